// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A hash table in parts, which strangers cannot aim at: the key is random.
//!
//! One table doubles in one block, and the machine's largest block is 4 MiB: some 28,000 connections ended it whatever
//! memory was free. Each of these parts may become that large, and growth that finds no memory is an answer.

use crate::hash::Keyed;
use abi::{Result, errno::ENOBUFS};
use alloc::vec::Vec;
use api_alloc::attempt;
use core::hash::{BuildHasher, Hash};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

const PARTS: usize = 64;
/// Bits of the hash that choose the part: hashbrown uses the highest seven and the lowest.
const PART_SHIFT: u32 = 40;

pub struct Table<K, V> {
    parts: Vec<HashTable<(K, V)>>,
    key: Keyed,
    length: usize,
}

impl<K: Hash + Eq, V> Table<K, V> {
    pub fn new(key: Keyed) -> Self {
        Table { parts: (0..PARTS).map(|_| HashTable::new()).collect(), key, length: 0 }
    }

    #[inline]
    fn part(hash: u64) -> usize {
        (hash >> PART_SHIFT) as usize % PARTS
    }

    pub fn len(&self) -> usize {
        self.length
    }

    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    #[inline]
    pub fn get(&self, key: &K) -> Option<&V> {
        let hash = self.key.hash_one(key);
        self.parts[Self::part(hash)].find(hash, |(k, _)| k == key).map(|(_, value)| value)
    }

    #[inline]
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let hash = self.key.hash_one(key);
        self.parts[Self::part(hash)].find_mut(hash, |(k, _)| k == key).map(|(_, value)| value)
    }

    #[inline]
    pub fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    /// The value of a key, made where there is none: `ENOBUFS` when there is no memory for it.
    pub fn get_or_insert_with(&mut self, key: K, make: impl FnOnce() -> V) -> Result<&mut V> {
        let (keyed, hash) = (self.key, self.key.hash_one(&key));
        let part = &mut self.parts[Self::part(hash)];
        attempt(|| part.try_reserve(1, |(k, _)| keyed.hash_one(k))).map_err(|_| ENOBUFS)?;
        let entry = part.entry(hash, |(k, _)| *k == key, |(k, _)| keyed.hash_one(k));
        if matches!(entry, Entry::Vacant(_)) {
            self.length += 1;
        }
        Ok(&mut entry.or_insert_with(|| (key, make())).into_mut().1)
    }

    /// Sets the value of a key.
    pub fn insert(&mut self, key: K, value: V) -> Result<()> {
        let (keyed, hash) = (self.key, self.key.hash_one(&key));
        let part = &mut self.parts[Self::part(hash)];
        attempt(|| part.try_reserve(1, |(k, _)| keyed.hash_one(k))).map_err(|_| ENOBUFS)?;
        match part.entry(hash, |(k, _)| *k == key, |(k, _)| keyed.hash_one(k)) {
            Entry::Occupied(mut entry) => entry.get_mut().1 = value,
            Entry::Vacant(entry) => {
                entry.insert((key, value));
                self.length += 1;
            }
        }
        Ok(())
    }

    pub fn remove(&mut self, key: &K) -> Option<V> {
        let hash = self.key.hash_one(key);
        let entry = self.parts[Self::part(hash)].find_entry(hash, |(k, _)| k == key).ok()?;
        self.length -= 1;
        Some(entry.remove().0.1)
    }

    pub fn retain(&mut self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        for part in &mut self.parts {
            part.retain(|(key, value)| keep(key, value));
        }
        self.length = self.parts.iter().map(HashTable::len).sum();
    }

    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.parts.iter().flat_map(|part| part.iter().map(|(key, value)| (key, value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_found_by_key_in_all_parts() {
        let mut table = Table::new(Keyed::new(7));
        for i in 0..200_000u32 {
            table.insert(i, i * 2).unwrap();
        }
        table.insert(5, 1).unwrap();
        assert_eq!((table.len(), table.get(&5), table.get(&199_999)), (200_000, Some(&1), Some(&399_998)));
        assert!(table.parts.iter().all(|part| (2000..5000).contains(&part.len())), "evenly");
        assert_eq!((table.remove(&5), table.remove(&5), table.contains_key(&5)), (Some(1), None, false));
        table.retain(|key, _| key % 2 == 0);
        assert_eq!((table.len(), table.iter().count()), (100_000, 100_000));
        *table.get_or_insert_with(9, || 4).unwrap() += 1;
        assert_eq!((table.get(&9), table.len()), (Some(&5), 100_001));
    }
}
