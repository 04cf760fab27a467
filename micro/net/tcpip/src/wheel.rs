// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Timers in a hierarchical wheel (Varghese and Lauck, SOSP 1987, scheme 7): setting one costs the same however many
//! there are. There is no cancelling: an owner remembers the tick its timer is set for and ignores others, so that a
//! deadline that keeps moving back (retransmission) touches the wheel only when it is reached.

use alloc::vec::Vec;
use segmented::SegmentedVec;

/// Nanoseconds a tick.
pub const TICK_NS: u64 = 1_000_000;
const BITS: u32 = 6;
const SLOTS: usize = 1 << BITS;
/// 64 ms, 4 s, 4.4 min, 4.7 h, 12 days.
const LEVELS: usize = 5;
/// Deadlines further off than the wheel reaches fire there and are set again by their owner.
const REACH: u64 = 1 << (BITS * LEVELS as u32);

/// A wheel of timers named by `K`.
pub struct Wheel<K> {
    /// The tick that was expired last.
    tick: u64,
    slots: Vec<SegmentedVec<(u64, K)>>,
    /// The earliest tick in each slot.
    earliest: Vec<u64>,
    /// One bit for each slot that is not empty.
    occupied: [u64; LEVELS],
    /// The answer of [`Wheel::next_ns`]: it is asked for far more often than it changes.
    next_ns: Option<u64>,
}

impl<K: Copy> Wheel<K> {
    pub fn new(now_ns: u64) -> Self {
        let slots = (0..LEVELS * SLOTS).map(|_| SegmentedVec::new()).collect();
        let earliest = alloc::vec![u64::MAX; LEVELS * SLOTS];
        Wheel { tick: now_ns / TICK_NS, slots, earliest, occupied: [0; LEVELS], next_ns: None }
    }

    /// The tick at which a deadline counts as passed: never before it.
    pub fn tick_of(deadline_ns: u64) -> u64 {
        deadline_ns.div_ceil(TICK_NS)
    }

    /// Sets a timer and returns the tick it fires at; 0 when there is no memory for it.
    pub fn set(&mut self, tick: u64, key: K) -> u64 {
        let tick = tick.clamp(self.tick + 1, self.tick + REACH - 1);
        if !self.insert(tick, key) {
            return 0;
        }
        self.next_ns = self.find_next_ns();
        tick
    }

    fn insert(&mut self, tick: u64, key: K) -> bool {
        // The level is that of the highest digit in which the tick differs from the present one.
        let differing = (tick ^ self.tick).max(1);
        let level = ((63 - differing.leading_zeros()) / BITS) as usize;
        let level = level.min(LEVELS - 1);
        let slot = (tick >> (BITS * level as u32)) as usize % SLOTS;
        let index = level * SLOTS + slot;
        if self.slots[index].push((tick, key)).is_err() {
            return false;
        }
        let is_alone = self.occupied[level] >> slot & 1 == 0;
        self.earliest[index] = if is_alone { tick } else { self.earliest[index].min(tick) };
        self.occupied[level] |= 1 << slot;
        true
    }

    /// The time of the first timer, in nanoseconds: nobody need be woken for [`Wheel::expire`] to move timers from one level to another.
    pub fn next_ns(&self) -> Option<u64> {
        self.next_ns
    }

    /// The first occupied slot of each level behind the present position, going round: the tick at which it begins, and its place.
    fn first_slots(&self) -> impl Iterator<Item = (u64, usize)> {
        (0..LEVELS).filter(|level| self.occupied[*level] != 0).map(|level| {
            let shift = BITS * level as u32;
            let position = (self.tick >> shift) as u32 % SLOTS as u32;
            let distance = self.occupied[level].rotate_right(position + 1).trailing_zeros() + 1;
            let place = (self.tick >> shift) + u64::from(distance);
            (place << shift, level * SLOTS + place as usize % SLOTS)
        })
    }

    /// The tick at which there is something to do next: timers fire, or are moved to the level below.
    fn next_step(&self) -> Option<u64> {
        self.first_slots().map(|(tick, _)| tick).min()
    }

    fn find_next_ns(&self) -> Option<u64> {
        self.first_slots().map(|(_, index)| self.earliest[index] * TICK_NS).min()
    }

    /// Moves on to `now` and appends what fired, with the tick it was set for. Where `fired` finds no memory the wheel stays
    /// behind with what did not fit, and [`Wheel::next_ns`] is in the past.
    pub fn expire(&mut self, now_ns: u64, fired: &mut SegmentedVec<(u64, K)>) {
        let now = now_ns / TICK_NS;
        while self.tick < now {
            // Jump to the next tick at which anything happens.
            let next = self.next_step().unwrap_or(now).min(now);
            self.tick = next;
            for level in (1..LEVELS).rev() {
                let shift = BITS * level as u32;
                if next & ((1 << shift) - 1) == 0 {
                    let slot = (next >> shift) as usize % SLOTS;
                    if !self.cascade(level, slot, fired) {
                        return self.stay_behind(next);
                    }
                }
            }
            let slot = next as usize % SLOTS;
            if self.occupied[0] >> slot & 1 == 1 {
                self.occupied[0] &= !(1 << slot);
                let mut entries = core::mem::take(&mut self.slots[slot]);
                if fired.is_empty() {
                    core::mem::swap(fired, &mut entries);
                }
                while let Some(entry) = entries.pop() {
                    if fired.push(entry).is_err() {
                        self.put_back(slot, entries, entry);
                        return self.stay_behind(next);
                    }
                }
            }
        }
        self.next_ns = self.find_next_ns();
    }

    /// The rest of a slot that was being emptied; `entry` came from it last, so there is room for it.
    #[cold]
    fn put_back(&mut self, index: usize, mut entries: SegmentedVec<(u64, K)>, entry: (u64, K)) {
        let is_back = entries.push(entry).is_ok();
        debug_assert!(is_back, "its place is still there");
        self.slots[index] = entries;
        self.occupied[index / SLOTS] |= 1 << (index % SLOTS);
    }

    /// The work of the tick `next` is not done: it comes again.
    #[cold]
    fn stay_behind(&mut self, next: u64) {
        self.tick = next - 1;
        self.next_ns = self.find_next_ns();
    }

    /// Empties a slot into the levels below; false when there is no memory for that.
    fn cascade(&mut self, level: usize, slot: usize, fired: &mut SegmentedVec<(u64, K)>) -> bool {
        if self.occupied[level] >> slot & 1 == 0 {
            return true;
        }
        self.occupied[level] &= !(1 << slot);
        let mut entries = core::mem::take(&mut self.slots[level * SLOTS + slot]);
        while let Some((tick, key)) = entries.pop() {
            // What finds no memory on its way down fires now: an owner sets its timer again.
            let is_kept = tick > self.tick && self.insert(tick, key);
            if !is_kept && fired.push((tick, key)).is_err() {
                self.put_back(level * SLOTS + slot, entries, (tick, key));
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_timer_fires_once_and_on_its_tick() {
        let mut wheel = Wheel::new(5 * TICK_NS);
        let ticks = [6u64, 7, 68, 69, 70, 133, 4096, 4101, 4102, 5000, 262_144, 262_150, 20_000_000];
        for (i, tick) in ticks.iter().enumerate() {
            assert_eq!(wheel.set(*tick, i), *tick);
        }
        let mut seen = Vec::new();
        let mut steps = 0;
        while let Some(next) = wheel.next_ns() {
            let mut fired = SegmentedVec::new();
            wheel.expire(next, &mut fired);
            while let Some((tick, i)) = fired.pop() {
                assert_eq!(tick, ticks[i]);
                assert_eq!(next / TICK_NS, tick, "fired late or early");
                seen.push(i);
            }
            seen.sort_unstable();
            steps += 1;
            assert!(steps <= ticks.len(), "woken for nothing");
        }
        assert_eq!(seen, (0..ticks.len()).collect::<Vec<_>>());
    }

    #[test]
    fn a_long_sleep_fires_everything_that_is_due() {
        let mut wheel = Wheel::new(0);
        for i in 0..10_000u64 {
            wheel.set(i * 7 + 1, i);
        }
        let mut fired = SegmentedVec::new();
        wheel.expire(35_000 * TICK_NS, &mut fired);
        assert_eq!(fired.len(), 5000);
        assert!(fired.iter().all(|(tick, _)| *tick <= 35_000));
        assert_eq!(wheel.set(3, 9), 35_001, "a deadline in the past fires at the next tick");
    }
}
