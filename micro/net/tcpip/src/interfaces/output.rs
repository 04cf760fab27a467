// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The way out by an interface of the table: which one, framing, ARP, and what its frames come out of.

use super::rules::Question;
use super::veth::{End, Place};
use super::{DEVICE, Interfaces, Kind, LOOPBACK, routes};
use crate::ip::{Ip, LOOPBACK_MTU, Route};
use crate::neighbour::Resolution;
use crate::wire::{self, Arp, Ethernet, Mac};
use abi::{Result, errno::*};
use alloc::sync::Arc;
use api_netdev::interface::Port;
use api_netdev::{Buffer, HEADROOM, Name, Outgoing};
use core::net::Ipv4Addr;

/// Whom to tell of frames without the stack's lock.
pub enum Touched {
    Port(Arc<dyn Port>),
    Stack(Place),
}

impl Touched {
    pub fn settle(self) {
        match self {
            Touched::Port(port) => port.settle(),
            Touched::Stack(place) => End::wake_other(&place),
        }
    }
}

impl Interfaces {
    /// The way of a packet to an address that is not this machine's. `by`: the interface it has to leave by; 0: any.
    pub fn route(&self, from: Ipv4Addr, to: Ipv4Addr, incoming: u32, by: u32) -> Result<Route> {
        let name = |index: u32| self.all.get(&index).map(|interface| interface.name);
        let question = Question {
            to,
            from,
            tos: 0,
            mark: 0,
            incoming: name(incoming),
            outgoing: if by == 0 { None } else { name(by) },
            by,
        };
        let route = match self.rules.look_up(&self.routes, &question) {
            Err(ENETUNREACH) if to.is_multicast() || to.is_broadcast() || by != 0 => {
                return self.route_to_all(from, to, by);
            }
            found => found?,
        };
        let interface = self.get(route.interface)?;
        if !interface.is_usable() {
            return Err(ENETUNREACH);
        }
        let is_loopback = matches!(interface.kind, Kind::Loopback);
        let next_hop = route.gateway.filter(|_| !to.is_multicast() && !to.is_broadcast()).unwrap_or(to);
        let source = route.source.or_else(|| interface.source_to(next_hop)).or_else(|| self.any_source());
        Ok(Route {
            source: source.unwrap_or(if is_loopback { Ipv4Addr::LOCALHOST } else { Ipv4Addr::UNSPECIFIED }),
            next_hop,
            loopback: is_loopback,
            mtu: match (is_loopback, route.mtu as usize) {
                (true, _) => interface.mtu.min(LOOPBACK_MTU),
                (false, 0) => interface.mtu,
                (false, mtu) => mtu.clamp(super::MIN_MTU, interface.mtu),
            },
            interface: route.interface,
        })
    }

    /// Groups and the broadcast to all need no route where it is said which interface they leave by, or the device is there.
    fn route_to_all(&self, from: Ipv4Addr, to: Ipv4Addr, by: u32) -> Result<Route> {
        let of_source = self.interface_of(from);
        let index = if by != 0 { by } else { of_source.unwrap_or(DEVICE) };
        let interface = self.get(index).map_err(|_| ENETUNREACH)?;
        if !interface.is_usable() || index == LOOPBACK {
            return Err(ENETUNREACH);
        }
        let source = interface.source_to(to).or_else(|| self.any_source());
        let source = source.unwrap_or(Ipv4Addr::UNSPECIFIED);
        Ok(Route { source, next_hop: to, loopback: false, mtu: interface.mtu, interface: index })
    }

    /// An address of another interface, for one that has none (Linux' inet_select_addr).
    fn any_source(&self) -> Option<Ipv4Addr> {
        let all = self.all.range::<u32, _>(..).map(|(_, interface)| interface);
        all.flat_map(|interface| &interface.addresses).find(|a| a.scope < routes::SCOPE_LINK).map(|a| a.local)
    }

    pub fn name_of(&self, index: u32) -> Option<Name> {
        self.get(index).ok().map(|interface| interface.name)
    }

    /// The interface's port is told when the stack is not locked any more.
    pub(super) fn touch(&mut self, index: u32) {
        let Some(interface) = self.all.get_mut(&index) else { return };
        if !interface.is_touched {
            interface.is_touched = true;
            // There is room: see `Interfaces::add`.
            self.touched.push(index);
        }
    }

    pub fn has_touched(&self) -> bool {
        !self.touched.is_empty()
    }

    pub fn next_touched(&mut self) -> Option<Touched> {
        while let Some(index) = self.touched.pop() {
            let Some(interface) = self.all.get_mut(&index) else { continue };
            interface.is_touched = false;
            match &interface.kind {
                Kind::Port { port, .. } => return Some(Touched::Port(port.clone())),
                Kind::Veth(end) => {
                    if let Some((place, _)) = end.other() {
                        return Some(Touched::Stack(place));
                    }
                }
                _ => {}
            }
        }
        None
    }
}

/// The packet in one piece, with its headroom.
fn flat(packet: Outgoing) -> Option<Buffer> {
    if packet.fragments.is_empty() {
        return Some(packet.head);
    }
    let headroom = HEADROOM.device + HEADROOM.protocols;
    let mut whole = Buffer::new(headroom + packet.length(), headroom)?;
    let pieces = core::iter::once(packet.head.bytes()).chain(packet.fragments.iter().map(|f| f.bytes()));
    pieces.into_iter().all(|piece| whole.append(piece)).then_some(whole)
}

impl Ip {
    /// A packet leaves by an interface other than `lo` and the device.
    pub(crate) fn hand_to_interface(&mut self, now: u64, index: u32, next_hop: Ipv4Addr, packet: Outgoing) {
        let is_broadcast = self.is_broadcast(next_hop);
        let Some(interface) = self.interfaces.as_mut().and_then(|all| all.all.get_mut(&index)) else {
            return;
        };
        let mac = match () {
            () if !interface.has_ethernet() => {
                let Some(packet) = flat(packet) else { return };
                return self.leave(now, index, packet);
            }
            () if is_broadcast => Some(wire::BROADCAST),
            () if next_hop.is_multicast() => {
                let [_, b, c, d] = next_hop.octets();
                Some([1, 0, 0x5e, b & 0x7f, c, d])
            }
            () if !interface.has_arp() => Some(interface.mac),
            () => None,
        };
        if let Some(mac) = mac {
            return self.frame(now, index, mac, packet);
        }
        match self.neighbours.resolve(now, (index, next_hop), packet) {
            Resolution::Send(mac, packet) => self.frame(now, index, mac, packet),
            Resolution::SendAndAsk(mac, packet) => {
                self.frame(now, index, mac, packet);
                self.ask_by(now, index, next_hop);
            }
            Resolution::Wait(true) => self.ask_by(now, index, next_hop),
            Resolution::Wait(false) => {}
        }
    }

    /// A packet that waited for its neighbour's address leaves.
    pub(crate) fn frame(&mut self, now: u64, index: u32, destination: Mac, mut packet: Outgoing) {
        let Some(mac) = self.interfaces.as_ref().and_then(|all| Some(all.get(index).ok()?.mac)) else {
            return;
        };
        let header = Ethernet { destination, source: mac, ethertype: wire::ETHERTYPE_IPV4 };
        let Some(to) = packet.head.prepend(wire::ETHERNET) else { return };
        header.put(to);
        if let Some(frame) = flat(packet) {
            self.leave(now, index, frame);
        }
    }

    pub(super) fn send_arp(&mut self, now: u64, index: u32, destination: Mac, arp: &Arp) {
        let Some(mut buffer) = self.buffer() else { return };
        let header = Ethernet { destination, source: arp.sender_mac, ethertype: wire::ETHERTYPE_ARP };
        if let Some(to) = buffer.extend(wire::ETHERNET + Arp::LENGTH) {
            header.put(to);
            arp.put(&mut to[wire::ETHERNET..]);
            self.leave(now, index, buffer);
        }
    }

    /// Asks all of an interface's link who has the address.
    pub(crate) fn ask_by(&mut self, now: u64, index: u32, target: Ipv4Addr) {
        let Some(interface) = self.interfaces.as_ref().and_then(|all| all.get(index).ok()) else { return };
        if !interface.has_arp() || !interface.is_up() {
            return;
        }
        let sender = interface.source_to(target).unwrap_or(Ipv4Addr::UNSPECIFIED);
        let arp = Arp { operation: 1, sender_mac: interface.mac, sender, target_mac: [0; 6], target };
        self.send_arp(now, index, wire::BROADCAST, &arp);
    }

    /// A packet leaves for a neighbour whose address is known.
    pub(crate) fn hand_to_neighbour(&mut self, now: u64, index: u32, mac: Mac, packet: Outgoing) {
        if self.is_device(index) {
            self.hand_to_device(mac, packet);
        } else {
            self.frame(now, index, mac, packet);
        }
    }

    /// Asks for an address again whose neighbour has not answered.
    pub(crate) fn ask_neighbour(&mut self, now: u64, index: u32, address: Ipv4Addr) {
        if self.is_device(index) {
            self.ask(address);
        } else {
            self.ask_by(now, index, address);
        }
    }

    /// A frame leaves by an interface: into its port, its pair's other end, or through its bridge.
    pub(crate) fn leave(&mut self, now: u64, index: u32, frame: Buffer) {
        let is_bridge = {
            let Some(interface) = self.interfaces.as_mut().and_then(|all| all.all.get_mut(&index)) else {
                return;
            };
            let is_bridge = matches!(interface.kind, Kind::Bridge(_));
            if is_bridge && !interface.is_up() {
                interface.traffic.sent_dropped += 1;
                return;
            }
            if is_bridge {
                interface.traffic.sent_packets += 1;
                interface.traffic.sent_bytes += frame.len() as u64;
            }
            is_bridge
        };
        if is_bridge {
            if self.is_watched() {
                self.show_of(index, frame.bytes(), true);
            }
            drop(self.bridge(now, index, None, frame));
            return;
        }
        self.leave_by_port(index, frame);
    }

    /// As [`Ip::leave`], of an interface that is no bridge.
    pub(super) fn leave_by_port(&mut self, index: u32, frame: Buffer) {
        if self.is_watched() {
            self.show_of(index, frame.bytes(), true);
        }
        if self.is_device(index) {
            self.enqueue(Outgoing::plain(frame));
            return;
        }
        let Some(interfaces) = &mut self.interfaces else { return };
        let Some(interface) = interfaces.all.get_mut(&index) else { return };
        let length = frame.len() as u64;
        let is_sent = interface.is_up()
            && match &interface.kind {
                Kind::Dummy => true,
                Kind::Port { port, .. } => port.transmit(frame),
                Kind::Veth(end) => end.transmit(frame),
                Kind::Loopback | Kind::Device | Kind::Bridge(_) => false,
            };
        if is_sent {
            interface.traffic.sent_packets += 1;
            interface.traffic.sent_bytes += length;
            interfaces.touch(index);
        } else {
            interface.traffic.sent_dropped += 1;
        }
    }
}
