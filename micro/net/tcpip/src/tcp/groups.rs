// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Listeners that share a port (SO_REUSEPORT), and the program that chooses among them (SO_ATTACH_REUSEPORT_CBPF). Linux keeps it
//! with the group; here each of the group has it.

use super::{Entry, Kind, Tcp, with_header};
use crate::ip::Ip;
use crate::slab::Id;
use crate::wire::Ipv4;
use abi::{Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_netdev::Incoming;
use api_socket::filter::Filter;

/// Both listen on the same address, and said that they share it.
fn is_same_group(a: &Entry, b: &Entry) -> bool {
    let is_member = |entry: &Entry| entry.is_grouped && matches!(entry.kind, Kind::Listener(_));
    is_member(a) && is_member(b) && (a.bound, a.families) == (b.bound, b.families)
}

impl Tcp {
    /// Listeners of the group that one of them is in, in the order in which they came to the port.
    fn group(&self, id: Id) -> impl Iterator<Item = Id> {
        let port = self.sockets.get(id).and_then(|entry| entry.bound).map(|bound| bound.port());
        let all = port.and_then(|port| self.ports.get(&port)).into_iter().flatten().copied();
        all.filter(move |other| self.are_same_group(id, *other))
    }

    fn are_same_group(&self, a: Id, b: Id) -> bool {
        self.sockets.get(a).zip(self.sockets.get(b)).is_some_and(|(a, b)| is_same_group(a, b))
    }

    /// A socket begins to listen: it joins the group of those that listen there, and has their program.
    pub(super) fn join_group(&mut self, id: Id) {
        let Some(entry) = self.sockets.get_mut(id) else { return };
        entry.is_grouped = entry.reuse.port;
        let other = self.group(id).find(|other| *other != id);
        if let Some(selector) = other.and_then(|other| self.sockets.get(other)).map(|e| e.selector.clone())
            && let Some(entry) = self.sockets.get_mut(id)
        {
            entry.selector = selector;
        }
    }

    /// Gives the group that a socket is in, or will be in, another program, or takes it away.
    pub fn set_selector(&mut self, id: Id, program: Option<Arc<Filter>>) -> Result<()> {
        let entry = self.sockets.get_mut(id).ok_or(EBADF)?;
        let is_hashed = !matches!(&entry.kind, Kind::Connection(c) if c.state == super::State::Closed);
        let has_group = if is_hashed { entry.is_grouped } else { entry.reuse.port };
        match program {
            _ if !has_group => {
                return Err(if entry.reuse.port && program.is_none() { ENOENT } else { EINVAL });
            }
            None if entry.selector.is_none() => return Err(ENOENT),
            _ => entry.selector.clone_from(&program),
        }
        let Some(port) = entry.bound.map(|bound| bound.port()) else { return Ok(()) };
        for at in 0..self.ports.get(&port).map_or(0, Vec::len) {
            let other = self.ports.get(&port).and_then(|ids| ids.get(at).copied());
            if let Some(other) = other.filter(|other| self.are_same_group(id, *other))
                && let Some(entry) = self.sockets.get_mut(other)
            {
                entry.selector.clone_from(&program);
            }
        }
        Ok(())
    }

    /// The listener that the group's program names for a segment; the one that was found where it names none.
    pub(super) fn select(
        &self,
        ip: &Ip,
        found: Id,
        header: &Ipv4,
        header_length: usize,
        packet: &mut Incoming,
    ) -> Id {
        let Some(selector) = self.sockets.get(found).and_then(|entry| entry.selector.as_ref()) else {
            return found;
        };
        let place = with_header(packet, header_length, |packet| {
            crate::filter::answer(selector, ip, header, &[], packet)
        });
        place.and_then(|place| self.group(found).nth(place as usize)).unwrap_or(found)
    }
}
