// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The neighbours' cache, of ARP (RFC 826, RFC 1122 2.3.2) and of neighbour discovery (RFC 4861 5.1): who has which Ethernet address, and the packets that wait for an answer.

use crate::hash::Keyed;
use crate::table::Table;
use crate::wire::Mac;
#[cfg(any(feature = "interfaces", feature = "ipv6"))]
use abi::Result;
#[cfg(feature = "interfaces")]
use abi::errno::ENOBUFS;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_netdev::Outgoing;
use core::net::Ipv4Addr;

/// An entry is asked about again after this long; until the answer it stays in use.
const FRESH_NS: u64 = 60_000_000_000;
/// An entry nobody confirmed goes after this long.
const STALE_NS: u64 = 300_000_000_000;
/// RFC 1122 2.3.2.1: no more than one request a second for a destination.
const RETRY_NS: u64 = 1_000_000_000;
/// Requests before a destination counts as unreachable (Linux: mcast_solicit).
const TRIES: u8 = 3;
/// RFC 1122 2.3.2.2 asks for at least one; a burst of a new connection fits.
const MAX_WAITING: usize = 64;
/// Bounds what strangers on the link can make us keep.
const MAX_ENTRIES: usize = 1024;

/// Neighbours that messages nobody asked for make known: beyond, the rest is for those that this machine asks for.
#[cfg(feature = "ipv6")]
const MAX_ENTRIES_OF_STRANGERS: usize = MAX_ENTRIES / 2;

/// The interface that a neighbour is asked for by, and its address.
pub type Neighbour = (u32, Ipv4Addr);

enum State {
    Incomplete {
        tries: u8,
        waiting: VecDeque<Outgoing>,
    },
    Known {
        mac: Mac,
        confirmed: u64,
    },
    /// A program said so, and no answer changes it.
    #[cfg(feature = "interfaces")]
    Permanent(Mac),
}

struct Entry {
    state: State,
    /// The last request.
    asked: u64,
}

/// What is known of a neighbour, for listings.
#[cfg(any(feature = "interfaces", feature = "ipv6"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    Incomplete,
    Known {
        mac: Mac,
        is_fresh: bool,
    },
    #[cfg(feature = "interfaces")]
    Permanent(Mac),
}

/// What a message of neighbour discovery says of a neighbour beside its address (RFC 4861 7.2.5).
#[cfg(feature = "ipv6")]
#[derive(Clone, Copy, Debug)]
pub struct Learned {
    /// It answers a question, so the neighbour is there.
    pub is_answer: bool,
    /// Its address of the link counts more than the one that is known.
    pub overrides: bool,
    /// A neighbour that is not known becomes known.
    pub creates: bool,
}

/// What to do with a packet for a neighbour.
pub enum Resolution {
    Send(Mac, Outgoing),
    /// The packet is kept (or dropped, when too many are); with true an ARP request is due.
    Wait(bool),
    /// Known, but an ARP request is due besides.
    SendAndAsk(Mac, Outgoing),
}

pub struct Neighbours {
    table: Table<Neighbour, Entry>,
    /// The neighbour asked last, nearly always the next one too.
    last: Option<(Neighbour, Mac, u64)>,
    /// Entries without an answer: it is asked for with every packet of the stack, whatever the table holds.
    incomplete: usize,
    /// When an entry was confirmed last.
    #[cfg(any(feature = "interfaces", feature = "ipv6"))]
    newest: u64,
}

impl Neighbours {
    pub fn new(key: Keyed) -> Neighbours {
        Neighbours {
            table: Table::new(key),
            last: None,
            incomplete: 0,
            #[cfg(any(feature = "interfaces", feature = "ipv6"))]
            newest: 0,
        }
    }

    pub fn resolve(&mut self, now: u64, address: Neighbour, packet: Outgoing) -> Resolution {
        if let Some((last, mac, until)) = self.last
            && last == address
            && now < until
        {
            return Resolution::Send(mac, packet);
        }
        if self.table.len() >= MAX_ENTRIES && !self.table.contains_key(&address) {
            self.expire(now);
            if self.table.len() >= MAX_ENTRIES {
                return Resolution::Wait(false);
            }
        }
        let incomplete = &mut self.incomplete;
        let fresh = || {
            *incomplete += 1;
            Entry { state: State::Incomplete { tries: 0, waiting: VecDeque::new() }, asked: 0 }
        };
        let Ok(entry) = self.table.get_or_insert_with(address, fresh) else {
            return Resolution::Wait(false);
        };
        match &mut entry.state {
            State::Known { mac, confirmed } => {
                if now < *confirmed + FRESH_NS {
                    self.last = Some((address, *mac, *confirmed + FRESH_NS));
                    Resolution::Send(*mac, packet)
                } else if now >= entry.asked + RETRY_NS {
                    entry.asked = now;
                    Resolution::SendAndAsk(*mac, packet)
                } else {
                    Resolution::Send(*mac, packet)
                }
            }
            #[cfg(feature = "interfaces")]
            State::Permanent(mac) => Resolution::Send(*mac, packet),
            State::Incomplete { tries, waiting } => {
                if waiting.len() < MAX_WAITING && waiting.reserve_fallibly(1).is_ok() {
                    waiting.push_back(packet);
                }
                if *tries == 0 {
                    *tries = 1;
                    entry.asked = now;
                    return Resolution::Wait(true);
                }
                Resolution::Wait(false)
            }
        }
    }

    /// An answer, or anything else that shows the address. With `create` an entry is made when there is none.
    /// Returns the packets that waited.
    pub fn confirm(&mut self, now: u64, address: Neighbour, mac: Mac, create: bool) -> VecDeque<Outgoing> {
        let known = State::Known { mac, confirmed: now };
        #[cfg(any(feature = "interfaces", feature = "ipv6"))]
        {
            self.newest = now;
        }
        match self.table.get_mut(&address) {
            #[cfg(feature = "interfaces")]
            Some(Entry { state: State::Permanent(_), .. }) => VecDeque::new(),
            Some(entry) => {
                if self.last.is_some_and(|(last, ..)| last == address) {
                    self.last = None;
                }
                match core::mem::replace(&mut entry.state, known) {
                    State::Incomplete { waiting, .. } => {
                        self.incomplete -= 1;
                        waiting
                    }
                    _ => VecDeque::new(),
                }
            }
            None => {
                if create && self.table.len() < MAX_ENTRIES {
                    // One that is not remembered is asked for again.
                    let _ = self.table.insert(address, Entry { state: known, asked: 0 });
                }
                VecDeque::new()
            }
        }
    }

    /// What a message of neighbour discovery says. Returns the address of the link, and the packets that waited for it.
    #[cfg(feature = "ipv6")]
    pub fn learn(
        &mut self,
        now: u64,
        address: Neighbour,
        link: Option<Mac>,
        how: Learned,
    ) -> Option<(Mac, VecDeque<Outgoing>)> {
        self.newest = now;
        // An entry is old from the beginning where nobody has answered: it is asked about when it is used.
        let confirmed = if how.is_answer { now } else { now.saturating_sub(FRESH_NS) };
        let Some(entry) = self.table.get_mut(&address) else {
            let mac = link.filter(|_| how.creates && self.table.len() < MAX_ENTRIES_OF_STRANGERS)?;
            // One that is not remembered is asked for.
            let _ = self.table.insert(address, Entry { state: State::Known { mac, confirmed }, asked: 0 });
            return Some((mac, VecDeque::new()));
        };
        if self.last.is_some_and(|(last, ..)| last == address) {
            self.last = None;
        }
        match &mut entry.state {
            State::Incomplete { waiting, .. } => {
                let (mac, waiting) = (link?, core::mem::take(waiting));
                entry.state = State::Known { mac, confirmed };
                entry.asked = 0;
                self.incomplete -= 1;
                Some((mac, waiting))
            }
            State::Known { mac, confirmed: known } => {
                let is_other = link.is_some_and(|link| link != *mac);
                match () {
                    // Two claim it: it is asked about with the next packet.
                    () if is_other && !how.overrides => *known = (*known).min(now.saturating_sub(FRESH_NS)),
                    () if is_other => (*mac, *known) = (link.unwrap_or(*mac), confirmed),
                    () if how.is_answer => *known = now,
                    () => {}
                }
                entry.asked = if how.is_answer { 0 } else { entry.asked };
                Some((*mac, VecDeque::new()))
            }
            #[cfg(feature = "interfaces")]
            State::Permanent(_) => None,
        }
    }

    /// Neighbours of an interface that are known or asked for.
    #[cfg(feature = "ipv6")]
    pub(crate) fn each_address(&self, index: u32, look: &mut dyn FnMut(Ipv4Addr)) {
        self.table.iter().filter(|((of, _), _)| *of == index).for_each(|((_, address), _)| look(*address));
    }

    /// Addresses to ask again, and destinations that did not answer (their packets are dropped).
    pub fn expire(&mut self, now: u64) -> (Vec<Neighbour>, Vec<Neighbour>) {
        let (mut ask, mut lost) = (Vec::new(), Vec::new());
        self.table.retain(|address, entry| match &mut entry.state {
            State::Known { confirmed, .. } => now < *confirmed + STALE_NS,
            #[cfg(feature = "interfaces")]
            State::Permanent(_) => true,
            State::Incomplete { tries, .. } => {
                if now < entry.asked + RETRY_NS {
                    return true;
                }
                if *tries >= TRIES {
                    lost.push(*address);
                    return false;
                }
                *tries += 1;
                entry.asked = now;
                ask.push(*address);
                true
            }
        });
        self.incomplete -= lost.len();
        (ask, lost)
    }

    /// True while somebody waits for an answer.
    pub fn is_waiting(&self) -> bool {
        self.incomplete > 0
    }

    /// What is known, for SIOCGARP-like listings and tests.
    pub fn known(&self, address: Neighbour) -> Option<Mac> {
        match self.table.get(&address)?.state {
            State::Known { mac, .. } => Some(mac),
            #[cfg(feature = "interfaces")]
            State::Permanent(mac) => Some(mac),
            State::Incomplete { .. } => None,
        }
    }
}

/// What programs say of neighbours.
#[cfg(feature = "interfaces")]
impl Neighbours {
    pub fn is_there(&self, address: Neighbour) -> bool {
        self.table.contains_key(&address)
    }

    /// An address that a program knows. Returns the packets that waited; `ENOBUFS` where there are too many neighbours.
    pub fn set(
        &mut self,
        now: u64,
        address: Neighbour,
        mac: Mac,
        for_ever: bool,
    ) -> Result<VecDeque<Outgoing>> {
        if self.table.len() >= MAX_ENTRIES && !self.table.contains_key(&address) {
            return Err(ENOBUFS);
        }
        let state = if for_ever { State::Permanent(mac) } else { State::Known { mac, confirmed: now } };
        self.last = None;
        let Some(entry) = self.table.get_mut(&address) else {
            self.table.insert(address, Entry { state, asked: 0 })?;
            return Ok(VecDeque::new());
        };
        match core::mem::replace(&mut entry.state, state) {
            State::Incomplete { waiting, .. } => {
                self.incomplete -= 1;
                Ok(waiting)
            }
            _ => Ok(VecDeque::new()),
        }
    }

    /// Forgets a neighbour; whether it was there.
    pub fn remove(&mut self, address: Neighbour) -> bool {
        self.last = None;
        let gone = self.table.remove(&address);
        if matches!(gone, Some(Entry { state: State::Incomplete { .. }, .. })) {
            self.incomplete -= 1;
        }
        gone.is_some()
    }

    /// Forgets those of all interfaces of which that is true.
    pub fn remove_of(&mut self, is_gone: impl Fn(u32) -> bool) {
        self.last = None;
        let mut incomplete = 0;
        self.table.retain(|(index, _), entry| {
            let stays = !is_gone(*index);
            incomplete += usize::from(!stays && matches!(entry.state, State::Incomplete { .. }));
            stays
        });
        self.incomplete -= incomplete;
    }
}

/// Listings.
#[cfg(any(feature = "interfaces", feature = "ipv6"))]
impl Neighbours {
    pub fn each(&self, put: &mut dyn FnMut(&Neighbour, Shown) -> Result<()>) -> Result<()> {
        self.table.iter().try_for_each(|(address, entry)| {
            let shown = match entry.state {
                State::Incomplete { .. } => Shown::Incomplete,
                State::Known { mac, confirmed } => Shown::Known { mac, is_fresh: self.is_fresh(confirmed) },
                #[cfg(feature = "interfaces")]
                State::Permanent(mac) => Shown::Permanent(mac),
            };
            put(address, shown)
        })
    }

    /// Of the latest time that it was asked for something.
    fn is_fresh(&self, confirmed: u64) -> bool {
        self.newest < confirmed + FRESH_NS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api_netdev::Buffer;

    const MAC: Mac = [2, 0, 0, 0, 0, 1];

    fn packet() -> Outgoing {
        Outgoing::plain(Buffer::new(64, 0).unwrap())
    }

    #[test]
    fn somebody_waits_from_the_first_packet_to_the_answer_or_the_last_try() {
        let mut neighbours = Neighbours::new(Keyed::new(7));
        let [here, nowhere] = [(2, Ipv4Addr::new(10, 0, 0, 1)), (2, Ipv4Addr::new(10, 0, 0, 2))];
        neighbours.confirm(0, (2, Ipv4Addr::new(10, 0, 0, 3)), MAC, true);
        assert!(!neighbours.is_waiting());
        for _ in 0..2 {
            neighbours.resolve(1, here, packet());
            neighbours.resolve(1, nowhere, packet());
        }
        assert_eq!(neighbours.confirm(2, here, MAC, false).len(), 2);
        assert_eq!(neighbours.confirm(2, here, MAC, false).len(), 0);
        for try_ in 1..=u64::from(TRIES) {
            assert!(neighbours.is_waiting());
            let (asked, lost) = neighbours.expire(1 + try_ * RETRY_NS);
            assert_eq!((asked.len(), lost.len()), if try_ < TRIES.into() { (1, 0) } else { (0, 1) });
        }
        assert!(!neighbours.is_waiting());
    }
}
