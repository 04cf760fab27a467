// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The items of one instance by slot, and the list of those that are ready.
//!
//! The list is linked through the slots: what a wake-up does allocates nothing, and an item that is removed leaves the
//! list at once, so that the list is never longer than there are items and keeps no file open.

use crate::Item;
use abi::{Result, errno::ENOMEM};
use alloc::sync::Arc;
use segmented::SegmentedVec;

/// No slot.
const NONE: u32 = u32::MAX;
/// In `Slot::next`: not in the list.
const UNLINKED: u32 = u32::MAX - 1;

struct Slot {
    item: Option<Arc<Item>>,
    previous: u32,
    /// Of a free slot the next free one.
    next: u32,
}

pub struct Ready {
    slots: SegmentedVec<Slot>,
    free: u32,
    first: u32,
    last: u32,
    length: usize,
}

impl Default for Ready {
    fn default() -> Self {
        Ready { slots: SegmentedVec::new(), free: NONE, first: NONE, last: NONE, length: 0 }
    }
}

impl Ready {
    /// Items in the list.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Slots that were ever in use at once.
    #[cfg(test)]
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// A slot for the item that `make` makes of its number.
    pub fn insert(&mut self, make: impl FnOnce(u32) -> Arc<Item>) -> Result<Arc<Item>> {
        let index = match self.free {
            NONE => {
                let slot = Slot { item: None, previous: NONE, next: UNLINKED };
                self.slots.push(slot).map_err(|_| ENOMEM)? as u32
            }
            index => {
                self.free = self.slots[index as usize].next;
                index
            }
        };
        let item = make(index);
        let slot = &mut self.slots[index as usize];
        slot.item = Some(item.clone());
        slot.next = UNLINKED;
        Ok(item)
    }

    /// Gives the slot back; its item leaves the list.
    pub fn remove(&mut self, index: u32) {
        self.unlink(index);
        let slot = &mut self.slots[index as usize];
        slot.item = None;
        slot.next = self.free;
        self.free = index;
    }

    /// Appends the slot's item to the list unless it is there.
    pub fn push_back(&mut self, index: u32) {
        let last = self.last;
        let slot = &mut self.slots[index as usize];
        if slot.next != UNLINKED {
            return;
        }
        (slot.previous, slot.next) = (last, NONE);
        match last {
            NONE => self.first = index,
            last => self.slots[last as usize].next = index,
        }
        self.last = index;
        self.length += 1;
    }

    fn unlink(&mut self, index: u32) {
        let (previous, next) = {
            let slot = &mut self.slots[index as usize];
            if slot.next == UNLINKED {
                return;
            }
            (slot.previous, core::mem::replace(&mut slot.next, UNLINKED))
        };
        match previous {
            NONE => self.first = next,
            previous => self.slots[previous as usize].next = next,
        }
        match next {
            NONE => self.last = previous,
            next => self.slots[next as usize].previous = previous,
        }
        self.length -= 1;
    }

    pub fn front(&self) -> Option<&Arc<Item>> {
        self.slots.get(self.first as usize)?.item.as_ref()
    }

    pub fn pop_front(&mut self) -> Option<Arc<Item>> {
        let item = self.front()?.clone();
        self.unlink(self.first);
        Some(item)
    }
}
