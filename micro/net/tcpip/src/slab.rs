// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Objects by number, where a number that was reused is told from its predecessor.

use abi::{Result, errno::ENOBUFS};
use segmented::SegmentedVec;

/// Names one object for as long as it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Id {
    index: u32,
    generation: u32,
}

struct Slot<T> {
    generation: u32,
    /// Of a free slot the next free one.
    next: u32,
    value: Option<T>,
}

/// No slot.
const NONE: u32 = u32::MAX;

pub struct Slab<T> {
    slots: SegmentedVec<Slot<T>>,
    free: u32,
    length: usize,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab { slots: SegmentedVec::new(), free: NONE, length: 0 }
    }
}

impl<T> Slab<T> {
    /// `ENOBUFS` when there is no memory for another object.
    pub fn insert(&mut self, value: T) -> Result<Id> {
        let index = match self.free {
            NONE => {
                let slot = Slot { generation: 0, next: NONE, value: None };
                self.slots.push(slot).map_err(|_| ENOBUFS)? as u32
            }
            index => index,
        };
        let slot = &mut self.slots[index as usize];
        if index == self.free {
            self.free = slot.next;
        }
        slot.generation = slot.generation.wrapping_add(1);
        slot.value = Some(value);
        self.length += 1;
        Ok(Id { index, generation: slot.generation })
    }

    pub fn get(&self, id: Id) -> Option<&T> {
        self.slots.get(id.index as usize).filter(|s| s.generation == id.generation)?.value.as_ref()
    }

    pub fn get_mut(&mut self, id: Id) -> Option<&mut T> {
        self.slots.get_mut(id.index as usize).filter(|s| s.generation == id.generation)?.value.as_mut()
    }

    pub fn remove(&mut self, id: Id) -> Option<T> {
        let free = self.free;
        let slot = self.slots.get_mut(id.index as usize).filter(|s| s.generation == id.generation)?;
        let value = slot.value.take()?;
        slot.next = free;
        self.free = id.index;
        self.length -= 1;
        Some(value)
    }

    pub fn len(&self) -> usize {
        self.length
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn iter(&self) -> impl Iterator<Item = (Id, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            let id = Id { index: index as u32, generation: slot.generation };
            slot.value.as_ref().map(|value| (id, value))
        })
    }
}
