// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bridges (IEEE 802.1D without the spanning tree): interfaces of one stack that are one link. A port is never a bridge, so a frame passes
//! one bridge at most before it lies in a queue.

use super::{Interfaces, Kind};
use crate::hash::Keyed;
use crate::ip::Ip;
use crate::table::Table;
use crate::wire::Mac;
use abi::{Result, errno::*};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_netdev::{Buffer, HEADROOM};

/// An address that was not seen for so long is forgotten.
const AGEING_NS: u64 = 300_000_000_000;
/// Addresses that one bridge knows at most: strangers make them up.
const MAX_ADDRESSES: usize = 4096;
/// What bridges do not pass on (IEEE 802.1D 7.12.6).
const RESERVED: [u8; 5] = [1, 0x80, 0xc2, 0, 0];

struct Known {
    port: u32,
    seen: u64,
}

/// What a bridge knows.
pub struct Bridge {
    known: Table<Mac, Known>,
    ports: Vec<u32>,
}

impl Bridge {
    pub fn new(key: Keyed) -> Bridge {
        Bridge { known: Table::new(key), ports: Vec::new() }
    }

    pub fn ports(&self) -> &[u32] {
        &self.ports
    }

    fn learn(&mut self, now: u64, from: Mac, port: u32) {
        if from[0] & 1 == 1 {
            return;
        }
        if let Some(known) = self.known.get_mut(&from) {
            *known = Known { port, seen: now };
            return;
        }
        if self.known.len() >= MAX_ADDRESSES {
            return;
        }
        // An address that is not remembered is flooded.
        let _ = self.known.insert(from, Known { port, seen: now });
    }

    /// The port behind which an address is.
    fn port_of(&mut self, now: u64, to: &Mac) -> Option<u32> {
        match self.known.get(to) {
            Some(known) if now < known.seen + AGEING_NS => Some(known.port),
            Some(_) => {
                self.known.remove(to);
                None
            }
            None => None,
        }
    }

    fn forget_port(&mut self, port: u32) {
        self.ports.retain(|known| *known != port);
        self.known.retain(|_, known| known.port != port);
    }
}

impl Interfaces {
    pub(super) fn bridge_mut(&mut self, index: u32) -> Result<&mut Bridge> {
        match &mut self.get_mut(index)?.kind {
            Kind::Bridge(bridge) => Ok(bridge),
            _ => Err(EOPNOTSUPP),
        }
    }

    /// The ports of a bridge, of which the caller changes something.
    pub fn ports_of(&mut self, index: u32) -> Result<Vec<u32>> {
        let bridge = self.bridge_mut(index)?;
        let mut ports = Vec::new();
        ports.reserve_fallibly(bridge.ports.len()).map_err(|_| ENOMEM)?;
        ports.extend_from_slice(&bridge.ports);
        Ok(ports)
    }

    /// Makes an interface a port of a bridge, or with 0 of none.
    pub fn set_master(&mut self, index: u32, master: u32) -> Result<()> {
        let old = self.get(index)?.master;
        if old == master {
            return Ok(());
        }
        // It leaves the old bridge before it is looked whether the new one takes it (Linux' `do_set_master`).
        if let Ok(bridge) = self.bridge_mut(old) {
            bridge.forget_port(index);
            self.get_mut(index)?.master = 0;
            self.follow_ports(old)?;
        }
        if master != 0 {
            self.get(master).map_err(|_| EINVAL)?;
            let bridge = self.bridge_mut(master)?;
            bridge.ports.reserve_fallibly(1).map_err(|_| ENOMEM)?;
            match &self.get(index)?.kind {
                // Linux' br_add_if.
                Kind::Loopback => return Err(EINVAL),
                Kind::Bridge(_) => return Err(ELOOP),
                Kind::Port { has_ethernet: false, .. } => return Err(EINVAL),
                _ => {}
            }
        }
        if master != 0 {
            let (mac, mtu) = (self.get(index)?.mac, self.get(index)?.mtu);
            let bridge = self.bridge_mut(master)?;
            bridge.ports.push(index);
            let is_first = bridge.ports.len() == 1;
            let bridge = self.get_mut(master)?;
            // A bridge speaks with the address of a port, and takes no larger packets than its ports.
            if is_first {
                (bridge.mac, bridge.mtu) = (mac, mtu);
            } else {
                bridge.mac = bridge.mac.min(mac);
                bridge.mtu = bridge.mtu.min(mtu);
            }
        }
        self.get_mut(index)?.master = master;
        self.follow_ports(master)?;
        self.tell_link(index);
        Ok(())
    }

    /// A bridge is connected as long as one of its ports is; 0: none.
    pub(super) fn follow_ports(&mut self, bridge: u32) -> Result<()> {
        if bridge == 0 {
            return Ok(());
        }
        let ports = self.ports_of(bridge)?;
        let is_connected = |port: &u32| self.get(*port).is_ok_and(|port| port.is_up() && port.has_carrier);
        let has_carrier = ports.iter().any(is_connected);
        self.set_carrier(bridge, has_carrier);
        Ok(())
    }
}

/// A copy of a frame, with the room in front that headers take.
fn copy(frame: &Buffer) -> Option<Buffer> {
    let headroom = HEADROOM.device + HEADROOM.protocols;
    let mut copy = Buffer::new(headroom + frame.len(), headroom)?;
    copy.append(frame.bytes()).then_some(copy)
}

impl Ip {
    /// A frame that the bridge sends or that came to its port `from` goes to whom it is for. What is for the bridge itself comes back.
    pub(super) fn bridge(
        &mut self,
        now: u64,
        index: u32,
        from: Option<u32>,
        frame: Buffer,
    ) -> Option<Buffer> {
        let header: [u8; 12] = *frame.bytes().first_chunk()?;
        let to: Mac = *header.first_chunk()?;
        let sender: Mac = *header.last_chunk()?;
        if from.is_some() && to.starts_with(&RESERVED) && to[5] < 16 {
            return None;
        }
        let interfaces = self.interfaces.as_mut()?;
        let is_own = to == interfaces.get(index).ok()?.mac;
        let bridge = interfaces.bridge_mut(index).ok()?;
        if let Some(port) = from {
            bridge.learn(now, sender, port);
            if is_own {
                return Some(frame);
            }
        }
        let is_for_all = to[0] & 1 == 1;
        let known = if is_for_all { None } else { bridge.port_of(now, &to) };
        if let Some(port) = known {
            if Some(port) != from {
                self.leave_by_port(port, frame);
            }
            return None;
        }
        let count = self.interfaces.as_mut()?.bridge_mut(index).ok()?.ports.len();
        for at in 0..count {
            let port = self.interfaces.as_mut()?.bridge_mut(index).ok()?.ports.get(at).copied();
            let Some(port) = port.filter(|port| Some(*port) != from) else { continue };
            if let Some(copy) = copy(&frame) {
                self.leave_by_port(port, copy);
            }
        }
        (from.is_some() && is_for_all).then_some(frame)
    }
}
