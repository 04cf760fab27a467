// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Addresses of IPv6 inside the stack: each one in use has a number, an IPv4 address of 0.0.0.0/8 that no host has.
//!
//! Connections, ports, neighbours and queues name peers by four bytes, so IPv4 pays nothing for IPv6 and there is one transport for
//! both. A number is a keyed hash of the address, with its scope: it is the same again when the address comes back, so that SYN
//! cookies and sequence numbers, which are functions of it, hold. Numbers that nothing in the stack refers to any more are
//! forgotten in sweeps ([`crate::stack::Stack`] says what refers to some), so strangers cannot fill the table for long.

use super::wire::is_link_local;
use crate::families::{FIRST_GROUP, LOOPBACK6};
use crate::hash::Keyed;
use crate::table::Table;
use core::hash::BuildHasher;
use core::net::{Ipv4Addr, Ipv6Addr};

/// Numbers in use before a sweep is due; twice as many as stay, from then on.
const FIRST_SWEEP: usize = 4096;
/// Numbers at most: with that many live peers a new one is ignored until a connection ends.
const MAX_NUMBERS: usize = 1 << 18;
/// Places where the number of an address may be. A table as full as it may be has one of 32 taken.
const PLACES: u32 = 8;

/// An address with the index of its link, 0 where it is the same everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scoped {
    pub address: Ipv6Addr,
    pub scope: u32,
}

impl Scoped {
    /// The address as one of that link, if its scope is a link.
    pub fn on(address: Ipv6Addr, link: u32) -> Scoped {
        Scoped { address, scope: if is_link_local(&address) { link } else { 0 } }
    }
}

struct Entry {
    is: Scoped,
    /// Somebody refers to it, a sweep found.
    is_live: bool,
    /// It was asked for since the last sweep.
    is_young: bool,
}

pub struct Numbers {
    entries: Table<u32, Entry>,
    key: Keyed,
    sweep_at: usize,
}

impl Numbers {
    pub fn new(key: Keyed) -> Numbers {
        Numbers { entries: Table::new(key), key, sweep_at: FIRST_SWEEP }
    }

    /// Where the number of an address may be: groups have a half of the numbers of their own.
    fn places(&self, of: &Scoped) -> impl Iterator<Item = u32> + use<> {
        let hash = self.key.hash_one((of.address.to_bits(), of.scope)) as u32;
        let is_group = of.address.is_multicast();
        // 0 is the any address, and 1 stands for ::1.
        (0..PLACES).map(move |n| {
            (hash.wrapping_add(n) % (FIRST_GROUP - 2) + 2) | if is_group { FIRST_GROUP } else { 0 }
        })
    }

    /// The number of an address that has one.
    pub fn find(&self, of: &Scoped) -> Option<Ipv4Addr> {
        if of.address.is_loopback() {
            return Some(LOOPBACK6);
        }
        let mut places = self.places(of);
        places.find(|n| self.entries.get(n).is_some_and(|entry| entry.is == *of)).map(Ipv4Addr::from_bits)
    }

    /// The number of an address; `None` where there is no room for one more.
    pub fn intern(&mut self, of: Scoped) -> Option<Ipv4Addr> {
        if let Some(known) = self.find(&of) {
            if let Some(entry) = self.entries.get_mut(&known.to_bits()) {
                entry.is_young = true;
            }
            return Some(known);
        }
        if of.address.is_unspecified() || self.entries.len() >= MAX_NUMBERS {
            return None;
        }
        let free = self.places(&of).find(|n| !self.entries.contains_key(n))?;
        self.entries.insert(free, Entry { is: of, is_live: false, is_young: true }).ok()?;
        Some(Ipv4Addr::from_bits(free))
    }

    /// The address that a number stands for.
    pub fn get(&self, number: Ipv4Addr) -> Option<Scoped> {
        if number == LOOPBACK6 {
            return Some(Scoped { address: Ipv6Addr::LOCALHOST, scope: 0 });
        }
        self.entries.get(&number.to_bits()).map(|entry| entry.is)
    }

    pub fn is_due(&self) -> bool {
        self.entries.len() >= self.sweep_at
    }

    /// Something refers to the number.
    pub fn mark(&mut self, number: Ipv4Addr) {
        if crate::families::is_v6(number)
            && let Some(entry) = self.entries.get_mut(&number.to_bits())
        {
            entry.is_live = true;
        }
    }

    /// Forgets what was not marked, nor asked for since the last sweep: whoever has just been told a number may not have put it
    /// anywhere yet.
    pub fn sweep(&mut self) {
        self.entries.retain(|_, entry| {
            let stays = entry.is_live || entry.is_young;
            (entry.is_live, entry.is_young) = (false, false);
            stays
        });
        self.sweep_at = (self.entries.len() * 2).clamp(FIRST_SWEEP, MAX_NUMBERS);
    }

    /// Numbers in use.
    pub fn count(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::families::{is_group, is_v6};

    fn nth(n: u128) -> Scoped {
        Scoped { address: Ipv6Addr::from_bits((0x2001_0db8 << 96) + n), scope: 0 }
    }

    #[test]
    fn an_address_has_one_number_for_each_link_and_keeps_it() {
        let mut numbers = Numbers::new(Keyed::new(7));
        let (here, there) = ("fe80::1".parse().unwrap(), "ff02::1".parse().unwrap());
        let [a, b, c] =
            [(here, 2), (here, 3), (there, 2)].map(|(a, link)| numbers.intern(Scoped::on(a, link)).unwrap());
        assert!(a != b && is_v6(a) && is_v6(c) && is_group(c) && !is_group(a));
        assert_eq!(numbers.intern(Scoped::on(here, 2)), Some(a));
        assert_eq!(numbers.get(a), Some(Scoped { address: here, scope: 2 }));
        assert_eq!(Scoped::on("2001:db8::1".parse().unwrap(), 2).scope, 0);
        assert_eq!(numbers.find(&Scoped::on(Ipv6Addr::LOCALHOST, 2)), Some(LOOPBACK6));
        assert_eq!(numbers.intern(Scoped::on(Ipv6Addr::UNSPECIFIED, 0)), None);
    }

    #[test]
    fn what_nobody_refers_to_goes_with_the_second_sweep_and_comes_back_as_it_was() {
        let mut numbers = Numbers::new(Keyed::new(7));
        let (kept, lost) = (numbers.intern(nth(1)).unwrap(), numbers.intern(nth(2)).unwrap());
        numbers.sweep();
        assert_eq!(numbers.find(&nth(2)), Some(lost), "somebody may hold it yet");
        numbers.mark(kept);
        numbers.sweep();
        assert_eq!((numbers.get(kept), numbers.get(lost)), (Some(nth(1)), None));
        assert_eq!(numbers.intern(nth(2)), Some(lost));
    }

    #[test]
    fn a_flood_of_strangers_stays_within_bounds() {
        let mut numbers = Numbers::new(Keyed::new(7));
        for n in 0..100_000 {
            if numbers.is_due() {
                numbers.sweep();
            }
            assert!(numbers.intern(nth(n)).is_some());
            assert!(numbers.count() <= 2 * FIRST_SWEEP + 1);
        }
    }
}
