// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A place in a map, occupied or not.

use crate::Map;
use crate::tree::Link;

pub enum Entry<'a, K, V> {
    Vacant(Vacant<'a, K, V>),
    Occupied(Occupied<'a, K, V>),
}

/// Where a key would be. The map does not change while this borrows it, so the place stays true.
pub struct Vacant<'a, K, V> {
    pub(crate) map: &'a mut Map<K, V>,
    pub(crate) key: K,
    pub(crate) parent: Link,
    pub(crate) side: usize,
}

/// A node of the map.
pub struct Occupied<'a, K, V> {
    pub(crate) map: &'a mut Map<K, V>,
    pub(crate) node: Link,
}

impl<'a, K, V> Entry<'a, K, V> {
    pub fn or_insert_with(self, value: impl FnOnce() -> V) -> &'a mut V {
        match self {
            Entry::Vacant(vacant) => vacant.insert(value()),
            Entry::Occupied(occupied) => occupied.into_mut(),
        }
    }

    pub fn or_insert(self, value: V) -> &'a mut V {
        self.or_insert_with(|| value)
    }

    pub fn or_default(self) -> &'a mut V
    where
        V: Default,
    {
        self.or_insert_with(V::default)
    }
}

impl<'a, K, V> Vacant<'a, K, V> {
    pub fn key(&self) -> &K {
        &self.key
    }

    pub fn insert(self, value: V) -> &'a mut V {
        let node = self.map.add(self.parent, self.side, self.key, value);
        // SAFETY: a node of the map, borrowed as the map is.
        unsafe { &mut Map::<K, V>::node_mut(node).value }
    }
}

impl<'a, K, V> Occupied<'a, K, V> {
    pub fn key(&self) -> &K {
        // SAFETY: a node of the map, borrowed as the map is.
        unsafe { &Map::<K, V>::node(self.node).key }
    }

    pub fn get(&self) -> &V {
        // SAFETY: as above.
        unsafe { &Map::<K, V>::node(self.node).value }
    }

    pub fn get_mut(&mut self) -> &mut V {
        // SAFETY: as above.
        unsafe { &mut Map::<K, V>::node_mut(self.node).value }
    }

    pub fn into_mut(self) -> &'a mut V {
        // SAFETY: as above.
        unsafe { &mut Map::<K, V>::node_mut(self.node).value }
    }

    pub fn remove(self) -> V {
        self.remove_entry().1
    }

    pub fn remove_entry(self) -> (K, V) {
        self.map.take(self.node)
    }
}
