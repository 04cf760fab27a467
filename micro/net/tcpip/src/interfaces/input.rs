// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames that come in by an interface of the table.

use super::{DEVICE, Interfaces, Kind};
use crate::ip::Ip;
use crate::stack::{Stack, is_martian};
use crate::wire::{self, Arp, Ethernet, Ipv4};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_netdev::{Buffer, Incoming};

/// Frames of the backlog that are taken at once.
const BURST: usize = 64;

impl Interfaces {
    /// Pairs whose other end went, or is up or down now.
    pub(crate) fn settle_pairs(&mut self) {
        if !self.place.backlog.take_change() {
            return;
        }
        let mut changed = Vec::new();
        for (index, interface) in self.all.range::<u32, _>(..) {
            let Kind::Veth(end) = &interface.kind else { continue };
            let is_gone = end.is_ended();
            if !is_gone && end.has_carrier() == interface.has_carrier {
                continue;
            }
            if changed.reserve_fallibly(1).is_err() {
                break;
            }
            changed.push((*index, is_gone, end.has_carrier()));
        }
        for (index, is_gone, has_carrier) in changed {
            if is_gone {
                // It was there a moment ago, and is no loopback.
                let _ = self.remove(index);
            } else {
                self.set_carrier(index, has_carrier);
            }
        }
    }
}

impl Ip {
    /// Neighbours on links that are gone, or down, are not known any more.
    pub(crate) fn forget_neighbours(&mut self) {
        let Some(all) = self.interfaces.as_mut().filter(|all| all.has_lost) else { return };
        all.has_lost = false;
        let is_gone = |index: u32| all.get(index).map_or(true, |interface| !interface.is_up());
        self.neighbours.remove_of(is_gone);
    }
}

impl Stack {
    /// Takes frames that other stacks and this one sent to interfaces of this one; how many.
    pub(crate) fn receive_backlog(&mut self, now: u64) -> usize {
        for count in 0..BURST {
            let next = self.ip.interfaces.as_ref().and_then(|all| all.place.backlog.pop());
            let Some((index, frame)) = next else { return count };
            self.receive_frame(now, index, frame);
        }
        BURST
    }

    /// A frame came in by an interface that has frames of Ethernet, or packets alone. False: the interface is down.
    pub(crate) fn receive_frame(&mut self, now: u64, index: u32, frame: Buffer) -> bool {
        let (has_ethernet, master) = {
            let Some(interface) = self.ip.interfaces.as_mut().and_then(|all| all.all.get_mut(&index)) else {
                return false;
            };
            if !interface.is_up() {
                interface.traffic.received_dropped += 1;
                return false;
            }
            interface.traffic.received_packets += 1;
            interface.traffic.received_bytes += frame.len() as u64;
            (interface.has_ethernet(), interface.master)
        };
        if !has_ethernet {
            self.receive_packet(now, index, frame);
            return true;
        }
        if self.ip.is_watched() {
            self.ip.show_of(index, frame.bytes(), false);
        }
        if master == 0 {
            self.receive_ethernet(now, index, frame);
        } else {
            self.receive_by_bridge(now, master, index, frame);
        }
        true
    }

    /// A frame came to a port of a bridge.
    pub(crate) fn receive_by_bridge(&mut self, now: u64, bridge: u32, port: u32, frame: Buffer) {
        let is_up = self.ip.interfaces.as_ref().is_some_and(|all| all.get(bridge).is_ok_and(|b| b.is_up()));
        if !is_up {
            return;
        }
        let Some(frame) = self.ip.bridge(now, bridge, Some(port), frame) else { return };
        if let Some(bridge) = self.ip.interfaces.as_mut().and_then(|all| all.all.get_mut(&bridge)) {
            bridge.traffic.received_packets += 1;
            bridge.traffic.received_bytes += frame.len() as u64;
        }
        if self.ip.is_watched() {
            self.ip.show_of(bridge, frame.bytes(), false);
        }
        self.receive_ethernet(now, bridge, frame);
    }

    fn receive_ethernet(&mut self, now: u64, index: u32, mut frame: Buffer) {
        let Some(header) = Ethernet::parse(frame.bytes()) else { return self.ip.recycle(frame) };
        let Some(interface) = self.ip.interfaces.as_mut().and_then(|all| all.all.get_mut(&index)) else {
            return;
        };
        let is_group = header.destination[0] & 1 == 1;
        if is_group && header.destination != wire::BROADCAST {
            interface.traffic.multicasts += 1;
        }
        if !is_group && header.destination != interface.mac {
            return self.ip.recycle(frame);
        }
        frame.trim_front(wire::ETHERNET);
        match header.ethertype {
            wire::ETHERTYPE_IPV4 => self.receive_packet(now, index, frame),
            wire::ETHERTYPE_ARP => {
                self.ip.arp_input_by(now, index, frame.bytes());
                self.ip.recycle(frame);
            }
            _ => self.ip.recycle(frame),
        }
    }

    /// A packet came in by an interface: those of IPv4 that this machine did not send itself are taken (Linux' `fib_validate_source`).
    fn receive_packet(&mut self, now: u64, index: u32, packet: Buffer) {
        let Some(header) = Ipv4::parse(packet.bytes()) else { return self.ip.recycle(packet) };
        if is_martian(packet.bytes()) || self.ip.is_own(header.source) || header.source.is_multicast() {
            self.ip.counters.ip.in_receives += 1;
            self.ip.counters.ip.in_address_errors += 1;
            return self.ip.recycle(packet);
        }
        self.ipv4_from(now, Incoming { first: packet, more: Vec::new(), checksum_valid: false }, index);
    }
}

impl Ip {
    /// The bridge that the device is a port of.
    pub(crate) fn master_of_device(&self) -> Option<u32> {
        let device = self.interfaces.as_ref()?.get(DEVICE).ok()?;
        Some(device.master).filter(|master| *master != 0)
    }

    pub(crate) fn is_device_down(&self) -> bool {
        let device = self.interfaces.as_ref().and_then(|all| all.get(DEVICE).ok());
        device.is_some_and(|device| !device.is_up())
    }

    /// A message of ARP came in (RFC 826): any address of this machine but those of `lo` is answered for, as Linux does.
    pub(crate) fn arp_input_by(&mut self, now: u64, index: u32, bytes: &[u8]) {
        let Some(arp) = Arp::parse(bytes) else { return };
        let Some(interfaces) = &self.interfaces else { return };
        let Ok(interface) = interfaces.get(index) else { return };
        let mac = interface.mac;
        let is_for_us = interfaces.is_own(arp.target);
        let is_sound = arp.sender_mac[0] & 1 == 0 && !interfaces.is_own(arp.sender);
        if !interface.has_arp() || !is_sound {
            return;
        }
        if !arp.sender.is_unspecified() {
            let waiting = self.neighbours.confirm(now, (index, arp.sender), arp.sender_mac, is_for_us);
            for packet in waiting {
                self.frame(now, index, arp.sender_mac, packet);
            }
        }
        if is_for_us && arp.operation == 1 {
            let reply = Arp {
                operation: 2,
                sender_mac: mac,
                sender: arp.target,
                target_mac: arp.sender_mac,
                target: arp.sender,
            };
            self.send_arp(now, index, arp.sender_mac, &reply);
        }
    }
}
