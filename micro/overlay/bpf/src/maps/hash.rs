// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The keys of a hash table: chains through arrays of indexes, elements from a fixed stock.

use super::{MapError, NoMemory, Words, update};
use core::hint::spin_loop;
use core::sync::atomic::{AtomicBool, Ordering};

/// No element.
const NONE: u64 = 0xffff_ffff;

pub(crate) struct Table {
    locked: AtomicBool,
    /// First element of each chain; a power of two of them, then the head of the list of free elements.
    heads: Words,
    /// The next of an element in its chain; [`USED`] while it is in one.
    next: Words,
    keys: Words,
    key: usize,
    entries: u32,
}

/// The element is in the table.
const USED: u64 = 1 << 32;

/// Multiply and fold (the finaliser of MurmurHash3); keys are not chosen by an enemy.
pub(crate) fn hash_words(words: &[u64]) -> u64 {
    words.iter().fold(0x9e37_79b9_7f4a_7c15, |h, w| {
        let x = (h ^ w).wrapping_mul(0xff51_afd7_ed55_8ccd);
        x ^ x >> 32
    })
}

fn hash_of(key: &[u8]) -> u64 {
    key.chunks(8).fold(0x9e37_79b9_7f4a_7c15, |h, c| {
        let mut w = [0; 8];
        w[..c.len()].copy_from_slice(c);
        let x = (h ^ u64::from_le_bytes(w)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        x ^ x >> 32
    })
}

struct Held<'a>(&'a AtomicBool);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Table {
    pub fn new(key: u32, entries: u32) -> Result<Table, NoMemory> {
        let chains = (entries as usize).next_power_of_two();
        let heads = Words::new(chains + 1)?;
        let next = Words::new(entries as usize)?;
        let keys = Words::new(entries as usize * (key as usize).div_ceil(8))?;
        for chain in 0..chains {
            heads.set(chain, NONE);
        }
        for element in 0..entries as usize {
            next.set(element, if element + 1 == entries as usize { NONE } else { element as u64 + 1 });
        }
        Ok(Table { locked: AtomicBool::new(false), heads, next, keys, key: key as usize, entries })
    }

    fn lock(&self) -> Held<'_> {
        while self.locked.swap(true, Ordering::Acquire) {
            spin_loop();
        }
        Held(&self.locked)
    }

    fn chain(&self, key: &[u8]) -> usize {
        hash_of(key) as usize & (self.heads.bytes() / 8 - 2)
    }

    fn free(&self) -> usize {
        self.heads.bytes() / 8 - 1
    }

    fn key_at(&self, element: u64) -> usize {
        element as usize * self.key.div_ceil(8) * 8
    }

    fn is_key(&self, element: u64, key: &[u8]) -> bool {
        let base = self.key_at(element) / 8;
        key.chunks(8).enumerate().all(|(i, c)| {
            let mut w = [0; 8];
            w[..c.len()].copy_from_slice(c);
            self.keys.get(base + i) == Some(u64::from_le_bytes(w))
        })
    }

    /// The element and the one before it in its chain.
    fn search(&self, chain: usize, key: &[u8]) -> Option<(u64, Option<u64>)> {
        let mut before = None;
        let mut at = self.heads.get(chain)?;
        // No chain is longer than the stock.
        for _ in 0..self.entries {
            if at == NONE {
                return None;
            }
            if self.is_key(at, key) {
                return Some((at, before));
            }
            before = Some(at);
            at = self.next.get(at as usize)? & NONE;
        }
        None
    }

    pub fn find(&self, key: &[u8]) -> Option<u32> {
        if key.len() != self.key {
            return None;
        }
        let _held = self.lock();
        Some(self.search(self.chain(key), key)?.0 as u32)
    }

    /// The element, and whether it is new.
    pub fn find_or_insert(&self, key: &[u8], flags: u64) -> Result<(u32, bool), MapError> {
        if key.len() != self.key {
            return Err(MapError::Invalid);
        }
        let _held = self.lock();
        let chain = self.chain(key);
        if let Some((element, _)) = self.search(chain, key) {
            return if flags == update::NEW_ONLY {
                Err(MapError::Exists)
            } else {
                Ok((element as u32, false))
            };
        }
        if flags == update::EXISTING_ONLY {
            return Err(MapError::Missing);
        }
        let element = self.heads.get(self.free()).unwrap_or(NONE);
        if element == NONE {
            return Err(MapError::Full);
        }
        self.heads.set(self.free(), self.next.get(element as usize).unwrap_or(NONE));
        // Padding of the last word stays zero, which `is_key` relies on.
        self.keys.write(self.key_at(element), key);
        self.next.set(element as usize, USED | self.heads.get(chain).unwrap_or(NONE));
        self.heads.set(chain, element);
        Ok((element as u32, true))
    }

    pub fn remove(&self, key: &[u8]) -> Result<(), MapError> {
        if key.len() != self.key {
            return Err(MapError::Invalid);
        }
        let _held = self.lock();
        let chain = self.chain(key);
        let (element, before) = self.search(chain, key).ok_or(MapError::Missing)?;
        let next = self.next.get(element as usize).unwrap_or(NONE) & NONE;
        match before {
            Some(before) => self.next.set(before as usize, USED | next),
            None => self.heads.set(chain, next),
        }
        self.next.set(element as usize, self.heads.get(self.free()).unwrap_or(NONE));
        self.heads.set(self.free(), element);
        Ok(())
    }

    pub fn next(&self, from: u32) -> Option<u32> {
        (from..self.entries).find(|e| self.next.get(*e as usize).unwrap_or(0) & USED != 0)
    }

    pub fn read_key(&self, element: u32, to: &mut [u8]) {
        self.keys.read(self.key_at(element.into()), to);
    }
}
