// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Local ports: the rules of bind(2) and the choice of ephemeral ones.

use super::connection::State;
use super::{Entry, Kind, Tcp};
use crate::families::{Families, addresses_overlap};
use crate::hash::Tuple;
use crate::reuse::Reuse;
use crate::slab::Id;
use abi::{Result, errno::*};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_socket::reserved_ports::is_reserved;
use api_socket::settings::local_ports;
use core::net::{Ipv4Addr, SocketAddrV4};

/// Ephemeral ports are of two halves, as on Linux since 4.2: connect(2) takes every other one first, bind(2) those between, so that
/// thousands of connections, whose ports can be shared by others to other remotes, leave ports to bind(2), which shares none.
const OF_CONNECT: usize = 0;
const OF_BIND: usize = 1;
/// How many ports of its own half a search looks at before it goes to the other: where the half is full, each search would pass over
/// all of it, and tens of thousands of sockets would cost their square.
const MAX_PROBES: u32 = 64;

/// A half of the ephemeral ports.
#[derive(Clone, Copy)]
struct Half {
    first: u16,
    ports: u32,
}

impl Half {
    fn of(which: usize) -> Half {
        let (first, count) = local_ports();
        Half { first: first + which as u16, ports: (count + 1 - which as u32) / 2 }
    }

    /// The `n`-th port from some place on, and so on in a circle; the half must have one.
    fn port(self, n: u32) -> u16 {
        self.first + 2 * (n % self.ports) as u16
    }
}

/// Connections and records of TIME-WAIT with one local port and address, of sockets that are not bound themselves: how
/// many there are, so that bind(2) looks at addresses and not at connections.
pub struct LocalUse {
    address: Ipv4Addr,
    families: Families,
    /// What they said.
    reuse: Reuse,
    count: u32,
}

impl Tcp {
    /// Linux' inet_csk_bind_conflict: whether `address` on this port is taken for the socket `id`.
    fn conflicts(&self, id: Id, address: SocketAddrV4) -> bool {
        let Some(entry) = self.sockets.get(id) else { return false };
        if self.connections_conflict(entry, address) {
            return true;
        }
        let Some(others) = self.ports.get(&address.port()) else { return false };
        others.iter().filter(|other| **other != id).any(|other| {
            let Some(other) = self.sockets.get(*other) else { return false };
            let Some(bound) = other.place() else { return false };
            let overlap = addresses_overlap((*bound.ip(), other.families), (*address.ip(), entry.families));
            let both_reuse = entry.reuse.address && other.reuse.address;
            let shares_port = entry.reuse.shares_port(other.reuse);
            overlap && !shares_port && (!both_reuse || matches!(other.kind, Kind::Listener(_)))
        })
    }

    /// Whether a connection or a record of TIME-WAIT keeps the address from being bound: all do, except where both sides said
    /// SO_REUSEADDR, or SO_REUSEPORT.
    fn connections_conflict(&self, entry: &Entry, address: SocketAddrV4) -> bool {
        self.local_ports.get(&address.port()).into_iter().flatten().any(|used| {
            !(entry.reuse.address && used.reuse.address || entry.reuse.shares_port(used.reuse))
                && addresses_overlap((used.address, used.families), (*address.ip(), entry.families))
        })
    }

    /// A connection or a record of TIME-WAIT has this local address from now on.
    pub(super) fn count_port(&mut self, port: u16, address: Ipv4Addr, reuse: Reuse) -> Result<()> {
        let used = self.local_ports.get_or_insert_with(port, Vec::new)?;
        match used.iter_mut().find(|u| u.address == address && u.reuse == reuse) {
            Some(used) => used.count += 1,
            None => {
                if used.reserve_fallibly(1).is_err() {
                    if used.is_empty() {
                        self.local_ports.remove(&port);
                    }
                    return Err(ENOBUFS);
                }
                used.push(LocalUse {
                    address,
                    families: Families::of(address, Families::BOTH),
                    reuse,
                    count: 1,
                });
            }
        }
        Ok(())
    }

    /// One less.
    pub(super) fn discount_port(&mut self, port: u16, address: Ipv4Addr, reuse: Reuse) {
        let Some(used) = self.local_ports.get_mut(&port) else { return };
        if let Some(at) = used.iter().position(|u| u.address == address && u.reuse == reuse) {
            used[at].count -= 1;
            if used[at].count == 0 {
                used.swap_remove(at);
            }
        }
        if used.is_empty() {
            self.local_ports.remove(&port);
        }
    }

    fn list(&mut self, id: Id, address: SocketAddrV4) -> Result<()> {
        let ids = self.ports.get_or_insert_with(address.port(), Vec::new)?;
        if ids.reserve_fallibly(1).is_err() {
            if ids.is_empty() {
                self.ports.remove(&address.port());
            }
            return Err(ENOBUFS);
        }
        ids.push(id);
        if let Some(entry) = self.sockets.get_mut(id) {
            (entry.bound, entry.name) = (Some(address), address);
        }
        Ok(())
    }

    pub(super) fn unlist(&mut self, port: u16, id: Id) {
        if let Some(ids) = self.ports.get_mut(&port) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.ports.remove(&port);
            }
        }
    }

    /// It has a port. One whose attempt or connection has ended may be bound anew.
    pub fn is_bound(&self, id: Id) -> bool {
        let Some(entry) = self.sockets.get(id) else { return true };
        entry.bound.is_some() || entry.connection().is_none_or(|c| c.state != State::Closed)
    }

    /// bind(2): port 0 picks a free one.
    pub fn bind(&mut self, id: Id, address: SocketAddrV4) -> Result<()> {
        if self.is_bound(id) {
            return Err(EINVAL);
        }
        let chosen = match address.port() {
            0 => self.pick(id, *address.ip()),
            _ if self.conflicts(id, address) => Err(EADDRINUSE),
            _ => Ok(address),
        };
        let bound = chosen.and_then(|chosen| self.list(id, chosen));
        let entry = self.sockets.get_mut(id).ok_or(EINVAL)?;
        match bound {
            Ok(()) => {
                entry.keeps_address |= !address.ip().is_unspecified();
                entry.keeps_port |= address.port() != 0;
            }
            Err(_) => entry.name.set_ip(Ipv4Addr::UNSPECIFIED),
        }
        bound
    }

    /// Whether no socket and no connection has this port at an address that overlaps, whatever they said of reuse: Linux
    /// shares no port with anybody who did not name it (inet_csk_find_open_port).
    fn is_unused(&self, entry: &Entry, address: SocketAddrV4) -> bool {
        let ours = (*address.ip(), entry.families);
        let bound = self.ports.get(&address.port()).into_iter().flatten();
        let mut bound =
            bound.filter_map(|id| self.sockets.get(*id)).filter_map(|s| Some((*s.place()?.ip(), s.families)));
        let mut connected = self.local_ports.get(&address.port()).into_iter().flatten();
        !bound.any(|theirs| addresses_overlap(theirs, ours))
            && !connected.any(|used| addresses_overlap((used.address, used.families), ours))
    }

    /// A port nobody has at this address. The next search begins where this one ended, so that ports in use are passed
    /// over once a round and not once a search.
    fn pick(&mut self, id: Id, address: Ipv4Addr) -> Result<SocketAddrV4> {
        let nowhere = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
        let seed = Tuple { local: SocketAddrV4::new(address, 0), remote: nowhere };
        let offset = self.secrets.prf(5, &seed, 0) as u32;
        let entry = self.sockets.get(id).ok_or(EINVAL)?;
        for (which, probes) in [(OF_BIND, MAX_PROBES), (OF_CONNECT, u32::MAX), (OF_BIND, u32::MAX)] {
            let (half, begin) = (Half::of(which), self.port_counters[which]);
            for tried in 1..=half.ports.min(probes) {
                let next = begin.wrapping_add(tried);
                let candidate = SocketAddrV4::new(address, half.port(offset.wrapping_add(next)));
                if !is_reserved(candidate.port()) && self.is_unused(entry, candidate) {
                    self.port_counters[which] = next;
                    return Ok(candidate);
                }
            }
            self.port_counters[which] = begin.wrapping_add(half.ports.min(probes));
        }
        Err(EADDRINUSE)
    }

    /// listen(2): binds to a free port where bind(2) was not called, and checks that no other listener is in the way.
    pub(super) fn claim_for_listening(&mut self, id: Id) -> Result<()> {
        let bound = match self.sockets.get(id).ok_or(EINVAL)?.bound {
            Some(bound) => bound,
            None => {
                let picked = self.pick(id, Ipv4Addr::UNSPECIFIED)?;
                self.list(id, picked)?;
                picked
            }
        };
        if self.conflicts(id, bound) { Err(EADDRINUSE) } else { Ok(()) }
    }

    /// It listens no more, or its connection is over: a port that the kernel chose is free again.
    pub(super) fn unbind_chosen(&mut self, id: Id) {
        let Some(entry) = self.sockets.get_mut(id).filter(|entry| !entry.keeps_port) else { return };
        if let Some(bound) = entry.bound.take() {
            self.unlist(bound.port(), id);
        }
    }

    /// The addresses for a connection to `remote` from `source`, with an ephemeral port (RFC 6056, algorithm 3) where
    /// none was bound; and the sequence number to begin above when they were in use a moment ago.
    pub(super) fn choose(
        &mut self,
        now: u64,
        source: Ipv4Addr,
        bound: Option<SocketAddrV4>,
        remote: SocketAddrV4,
    ) -> Result<(Tuple, Option<u32>)> {
        if let Some(bound) = bound {
            let ip = if bound.ip().is_unspecified() { source } else { *bound.ip() };
            let tuple = Tuple { local: SocketAddrV4::new(ip, bound.port()), remote };
            let above = self.is_free(now, &tuple).map_err(|()| EADDRNOTAVAIL)?;
            return Ok((tuple, above));
        }
        let seed = Tuple { local: SocketAddrV4::new(source, 0), remote };
        let offset = self.secrets.prf(6, &seed, 0) as u32;
        let rounds = [(OF_CONNECT, MAX_PROBES), (OF_BIND, u32::MAX), (OF_CONNECT, u32::MAX)];
        for (which, probes) in rounds {
            let half = Half::of(which);
            for _ in 0..half.ports.min(probes) {
                self.port_counters[which] = self.port_counters[which].wrapping_add(1);
                let port = half.port(offset.wrapping_add(self.port_counters[which]));
                let tuple = Tuple { local: SocketAddrV4::new(source, port), remote };
                if !is_reserved(port)
                    && !self.ports.contains_key(&port)
                    && let Ok(above) = self.is_free(now, &tuple)
                {
                    return Ok((tuple, above));
                }
            }
        }
        Err(EADDRNOTAVAIL)
    }

    fn is_free(&mut self, now: u64, tuple: &Tuple) -> core::result::Result<Option<u32>, ()> {
        if self.connections.contains_key(tuple) || self.requests.contains_key(tuple) {
            return Err(());
        }
        self.reuse_time_wait(now, tuple)
    }
}
