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
    /// Of a free slot the next free one and the one before.
    next: u32,
    previous: u32,
    value: Option<T>,
}

/// No slot.
const NONE: u32 = u32::MAX;

/// Slots at the end that are free are given back: what many connections took, others have when they are gone.
pub struct Slab<T> {
    slots: SegmentedVec<Slot<T>>,
    free: u32,
    length: usize,
    /// Of the object made last; a slot that was given back would not remember its own.
    generation: u32,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab { slots: SegmentedVec::new(), free: NONE, length: 0, generation: 0 }
    }
}

impl<T> Slab<T> {
    /// `ENOBUFS` when there is no memory for another object.
    pub fn insert(&mut self, value: T) -> Result<Id> {
        let index = match self.free {
            NONE => {
                let slot = Slot { generation: 0, next: NONE, previous: NONE, value: None };
                self.slots.push(slot).map_err(|_| ENOBUFS)? as u32
            }
            index => {
                self.unlink(index);
                index
            }
        };
        self.generation = self.generation.wrapping_add(1);
        let slot = &mut self.slots[index as usize];
        slot.generation = self.generation;
        slot.value = Some(value);
        self.length += 1;
        Ok(Id { index, generation: self.generation })
    }

    /// Takes a slot out of the list of free ones.
    fn unlink(&mut self, index: u32) {
        let Slot { next, previous, .. } = self.slots[index as usize];
        match self.slots.get_mut(previous as usize) {
            Some(before) => before.next = next,
            None => self.free = next,
        }
        if let Some(behind) = self.slots.get_mut(next as usize) {
            behind.previous = previous;
        }
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
        (slot.next, slot.previous) = (free, NONE);
        if let Some(behind) = self.slots.get_mut(free as usize) {
            behind.previous = id.index;
        }
        self.free = id.index;
        self.length -= 1;
        while let Some(last) = self.slots.len().checked_sub(1)
            && self.slots[last].value.is_none()
        {
            self.unlink(last as u32);
            self.slots.pop();
        }
        Some(value)
    }

    pub fn len(&self) -> usize {
        self.length
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Objects have the numbers of places below this.
    pub fn places(&self) -> usize {
        self.slots.len()
    }

    /// The object at a place.
    pub fn id_at(&self, index: usize) -> Option<Id> {
        let slot = self.slots.get(index).filter(|slot| slot.value.is_some())?;
        Some(Id { index: index as u32, generation: slot.generation })
    }

    pub fn iter(&self) -> impl Iterator<Item = (Id, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            let id = Id { index: index as u32, generation: slot.generation };
            slot.value.as_ref().map(|value| (id, value))
        })
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().filter_map(|slot| slot.value.as_mut())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn a_number_used_again_is_another_and_free_ends_are_given_back() {
        let mut slab = Slab::default();
        let ids: Vec<Id> = (0..5000).map(|n| slab.insert(n).unwrap()).collect();
        for id in &ids[1..] {
            assert!(slab.remove(*id).is_some() && slab.remove(*id).is_none());
        }
        assert_eq!((slab.slots.len(), slab.len()), (1, 1));
        let again: Vec<Id> = (0..100).map(|n| slab.insert(n).unwrap()).collect();
        assert!(again.iter().all(|id| !ids.contains(id)) && slab.get(ids[1]).is_none());
        // Free ones in the middle are used before the table grows, in any order.
        for index in [3, 50, 7, 98] {
            assert_eq!(slab.remove(again[index]), Some(index));
        }
        let length = slab.slots.len();
        let fresh: Vec<Id> = (0..4).map(|n| slab.insert(n).unwrap()).collect();
        assert_eq!(slab.slots.len(), length);
        assert!(fresh.iter().enumerate().all(|(n, id)| slab.get(*id) == Some(&n)));
        for id in again.iter().chain(&fresh).chain(&ids[..1]) {
            let _ = slab.remove(*id);
        }
        assert!(slab.is_empty() && slab.slots.is_empty());
    }
}
