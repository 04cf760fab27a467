// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The advisory locks of one file in an order in which each request finds what it needs, however many there are.
//!
//! Each owner's record locks are apart from each other, by where they start. Exclusive ones overlap no other lock at all,
//! so of them only the nearest before a range and those that start in it can overlap it. Shared ones of several owners may
//! overlap as they like; they are kept by the power of two of their length, so that those which reach into a range start in it
//! or at most that length before it.

use crate::locks::{Lock, Owner};
use abi::{Result, errno::*};
use ordered::Map;

/// Lengths up to 2^64 - 1.
const CLASSES: usize = 64;
/// Orders before all others.
const FIRST: Owner = Owner::Process(i32::MIN);

/// The power of two of a lock's length; no lock is empty.
fn class(lock: &Lock) -> u8 {
    (lock.end - lock.start).max(1).ilog2() as u8
}

pub struct Held {
    records: Map<(Owner, u64), Lock>,
    /// Start of each exclusive record lock, and its owner.
    exclusive: Map<u64, (u64, Owner)>,
    /// Class, start and owner of each shared record lock, and its end.
    shared: Map<(u8, u64, Owner), u64>,
    /// How many shared ones each class has.
    in_class: [usize; CLASSES],
    /// flock: whole files, independent of record locks; whether exclusive.
    flocks: Map<Owner, bool>,
}

impl Default for Held {
    fn default() -> Held {
        Held {
            records: Map::new(),
            exclusive: Map::new(),
            shared: Map::new(),
            in_class: [0; CLASSES],
            flocks: Map::new(),
        }
    }
}

impl Held {
    pub fn is_empty(&self) -> bool {
        self.records.is_empty() && self.flocks.is_empty()
    }

    /// Record locks by owner, and of each by start.
    pub fn records(&self) -> impl Iterator<Item = Lock> {
        self.records.values().copied()
    }

    pub fn flocks(&self) -> impl Iterator<Item = Lock> {
        let whole = |(owner, exclusive): (&Owner, &bool)| Lock {
            start: 0,
            end: u64::MAX,
            exclusive: *exclusive,
            owner: *owner,
        };
        self.flocks.iter().map(whole)
    }

    fn insert(&mut self, lock: Lock) {
        self.records.insert((lock.owner, lock.start), lock);
        if lock.exclusive {
            self.exclusive.insert(lock.start, (lock.end, lock.owner));
        } else {
            self.shared.insert((class(&lock), lock.start, lock.owner), lock.end);
            self.in_class[class(&lock) as usize] += 1;
        }
    }

    fn remove(&mut self, lock: &Lock) {
        self.records.remove(&(lock.owner, lock.start));
        if lock.exclusive {
            self.exclusive.remove(&lock.start);
        } else {
            self.shared.remove(&(class(lock), lock.start, lock.owner));
            self.in_class[class(lock) as usize] -= 1;
        }
    }

    /// Whose lock stands in the way of `wanted`.
    pub fn conflict(&self, wanted: &Lock) -> Option<Owner> {
        let before = self.exclusive.range(..wanted.start).next_back();
        if let Some((_, (end, owner))) = before
            && *end > wanted.start
            && *owner != wanted.owner
        {
            return Some(*owner);
        }
        let within = self.exclusive.range(wanted.start..wanted.end);
        let exclusive = within.map(|(_, (_, owner))| *owner).find(|owner| *owner != wanted.owner);
        if exclusive.is_some() || !wanted.exclusive {
            return exclusive;
        }
        let classes = (0..CLASSES as u8).filter(|class| self.in_class[*class as usize] > 0);
        for class in classes {
            let reach = 1u64.checked_shl(u32::from(class) + 1).unwrap_or(0).wrapping_sub(1);
            let first = (class, wanted.start.saturating_sub(reach), FIRST);
            let mut near = self.shared.range(first..(class, wanted.end, FIRST));
            let other = near.find(|((_, _, owner), end)| **end > wanted.start && *owner != wanted.owner);
            if let Some(((_, _, owner), _)) = other {
                return Some(*owner);
            }
        }
        None
    }

    /// The lock in the way of `wanted`: the first of its owner's.
    pub fn obstacle(&self, wanted: &Lock) -> Option<Lock> {
        let owner = self.conflict(wanted)?;
        let before = self.records.range((owner, 0)..(owner, wanted.start)).next_back();
        let within = self.records.range((owner, wanted.start)..(owner, wanted.end));
        let all = before.into_iter().chain(within).map(|(_, lock)| *lock);
        all.into_iter().find(|lock| lock.overlaps(wanted) && (lock.exclusive || wanted.exclusive))
    }

    /// Takes the range out of the owner's locks, splitting them where needed, and with `add` makes it a lock of the owner's,
    /// joined with those of its kind that touch it. True when anything was given back; `ENOLCK` when memory is short.
    pub fn change(&mut self, range: &Lock, add: bool) -> Result<bool> {
        if api_alloc::is_low() {
            return Err(ENOLCK);
        }
        let owner = range.owner;
        let mut new = *range;
        let mut gave = false;
        let before = self.records.range((owner, 0)..(owner, range.start)).next_back().map(|(_, lock)| *lock);
        if let Some(lock) = before.filter(|lock| lock.end >= range.start) {
            let overlaps = lock.end > range.start;
            gave |= overlaps;
            if add && lock.exclusive == range.exclusive {
                self.remove(&lock);
                (new.start, new.end) = (lock.start, new.end.max(lock.end));
            } else if overlaps {
                self.remove(&lock);
                self.insert(Lock { end: range.start, ..lock });
                if lock.end > range.end {
                    self.insert(Lock { start: range.end, ..lock });
                }
            }
        }
        loop {
            let next = self.records.range((owner, range.start)..(owner, range.end)).next();
            let Some(lock) = next.map(|(_, lock)| *lock) else { break };
            self.remove(&lock);
            gave = true;
            if lock.end > range.end {
                if add && lock.exclusive == range.exclusive {
                    new.end = new.end.max(lock.end);
                } else {
                    self.insert(Lock { start: range.end, ..lock });
                }
            }
        }
        if add {
            let behind = self.records.get(&(owner, range.end)).copied();
            if let Some(lock) = behind.filter(|lock| lock.exclusive == range.exclusive) {
                self.remove(&lock);
                new.end = new.end.max(lock.end);
            }
            self.insert(new);
        }
        Ok(gave)
    }

    /// Takes away all record locks of an owner. True when there was any.
    pub fn clear_all(&mut self, owner: Owner) -> bool {
        let mut gave = false;
        loop {
            let next = self.records.range((owner, 0)..=(owner, u64::MAX)).next();
            let Some(lock) = next.map(|(_, lock)| *lock) else { return gave };
            self.remove(&lock);
            gave = true;
        }
    }

    /// Locks the file as a whole; `EAGAIN` when another owner's lock is in the way. Also says whether an old lock of the
    /// owner's was given up for it.
    pub fn flock(&mut self, owner: Owner, exclusive: bool) -> (Result<()>, bool) {
        let old = self.flocks.get(&owner).copied();
        if old == Some(exclusive) {
            return (Ok(()), false);
        }
        if api_alloc::is_low() {
            return (Err(ENOLCK), false);
        }
        self.unflock(owner);
        // An exclusive lock is the only one there is.
        let is_held = self.flocks.values().next().is_some_and(|other| exclusive || *other);
        if is_held {
            return (Err(EAGAIN), old.is_some());
        }
        self.flocks.insert(owner, exclusive);
        (Ok(()), old.is_some())
    }

    /// True when there was a lock.
    pub fn unflock(&mut self, owner: Owner) -> bool {
        self.flocks.remove(&owner).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// Every byte's lock for each owner, as fcntl(2) defines the calls.
    #[derive(Clone)]
    struct Model([[Option<bool>; 24]; 3]);

    impl Model {
        fn conflicts(&self, wanted: &Lock, me: usize) -> bool {
            let bytes = wanted.start as usize..(wanted.end as usize).min(24);
            let others = self.0.iter().enumerate().filter(|(owner, _)| *owner != me);
            others
                .flat_map(|(_, locks)| &locks[bytes.clone()])
                .any(|lock| lock.is_some_and(|exclusive| exclusive || wanted.exclusive))
        }
    }

    /// Ranges, kinds and owners at random, against the model; also that touching locks of a kind are one.
    #[test]
    fn locks_are_those_of_a_table_of_bytes() {
        let mut held = Held::default();
        let mut model = Model([[None; 24]; 3]);
        let mut seed = 7u32;
        let mut random = |below: u32| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 16) % below
        };
        for _ in 0..20_000 {
            let start = u64::from(random(23));
            let end =
                if random(8) == 0 { u64::MAX } else { start + 1 + u64::from(random(23 - start as u32)) };
            let me = random(3) as usize;
            let range = Lock { start, end, exclusive: random(2) == 0, owner: Owner::Process(me as i32) };
            let bytes = start as usize..(end as usize).min(24);
            let conflicts = model.conflicts(&range, me);
            assert_eq!(held.conflict(&range).is_some(), conflicts);
            assert_eq!(held.obstacle(&range).is_some(), conflicts);
            let add = random(3) > 0;
            if add && conflicts {
                continue;
            }
            held.change(&range, add).unwrap();
            model.0[me][bytes].fill(add.then_some(range.exclusive));
            let mut bytes = [[None; 24]; 3];
            let mut last: Option<Lock> = None;
            for lock in held.records() {
                let Owner::Process(owner) = lock.owner else { unreachable!() };
                bytes[owner as usize][lock.start as usize..(lock.end as usize).min(24)]
                    .fill(Some(lock.exclusive));
                let joins = last.is_some_and(|l| {
                    l.owner == lock.owner && l.exclusive == lock.exclusive && l.end == lock.start
                });
                assert!(!joins, "{last:?} {lock:?}");
                last = Some(lock);
            }
            assert_eq!(bytes, model.0);
        }
        let owners: Vec<_> = held.records().map(|lock| lock.owner).collect();
        for owner in (0..3).map(Owner::Process) {
            assert_eq!(held.clear_all(owner), owners.contains(&owner));
        }
        assert!(held.is_empty() && held.shared.is_empty() && held.exclusive.is_empty());
        assert_eq!(held.in_class, [0; CLASSES]);
    }
}
