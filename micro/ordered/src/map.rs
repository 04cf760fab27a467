// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The map.

use crate::entry::{Entry, Occupied, Vacant};
use crate::iterate::{IntoIter, Iter, IterMut};
use crate::tree::{self, Header, LEFT, Link, RIGHT, Tree};
use alloc::boxed::Box;
use api_alloc::{NoMemory, try_box};
use core::borrow::Borrow;
use core::cmp::Ordering;
use core::fmt;
use core::marker::PhantomData;
use core::ops::{Bound, RangeBounds};
use core::ptr;

/// A node of a [`Map`]; the header comes first.
#[repr(C)]
pub struct Node<K, V> {
    header: Header,
    pub key: K,
    pub value: V,
}

/// An ordered map.
pub struct Map<K, V> {
    tree: Tree,
    entries: PhantomData<Box<Node<K, V>>>,
}

// SAFETY: the map owns its nodes, as boxes would; a shared map only gives out shared references.
unsafe impl<K: Send, V: Send> Send for Map<K, V> {}
// SAFETY: as above.
unsafe impl<K: Sync, V: Sync> Sync for Map<K, V> {}

/// Where a key is, or would be.
pub enum Place {
    At(Link),
    Below(Link, usize),
}

impl<K, V> Map<K, V> {
    pub const fn new() -> Map<K, V> {
        Map { tree: Tree::new(), entries: PhantomData }
    }

    pub fn len(&self) -> usize {
        self.tree.len
    }

    pub fn is_empty(&self) -> bool {
        self.tree.len == 0
    }

    /// The node with this header.
    ///
    /// # Safety
    ///
    /// The link is to a node of this map, and nobody changes it while the reference lives.
    pub(crate) unsafe fn node<'a>(link: Link) -> &'a Node<K, V> {
        // SAFETY: by the caller's word and the crate's invariant.
        unsafe { &*link.cast::<Node<K, V>>() }
    }

    /// As [`Map::node`], for changes.
    ///
    /// # Safety
    ///
    /// The link is to a node of this map, and nobody else looks at it while the reference lives.
    pub(crate) unsafe fn node_mut<'a>(link: Link) -> &'a mut Node<K, V> {
        // SAFETY: by the caller's word and the crate's invariant.
        unsafe { &mut *link.cast::<Node<K, V>>() }
    }

    pub(crate) fn outermost(&self, side: usize) -> Link {
        // SAFETY: the root is a node of this tree or null.
        unsafe { tree::outermost(self.tree.root, side) }
    }

    pub(crate) fn place<Q: Ord + ?Sized>(&self, key: &Q) -> Place
    where
        K: Borrow<Q>,
    {
        let (mut node, mut parent, mut side) = (self.tree.root, ptr::null_mut(), LEFT);
        while !node.is_null() {
            // SAFETY: a node of this map, which is borrowed.
            let order = key.cmp(unsafe { Self::node(node) }.key.borrow());
            side = match order {
                Ordering::Equal => return Place::At(node),
                Ordering::Less => LEFT,
                Ordering::Greater => RIGHT,
            };
            parent = node;
            // SAFETY: as above.
            node = unsafe { tree::child(node, side) };
        }
        Place::Below(parent, side)
    }

    pub(crate) fn find<Q: Ord + ?Sized>(&self, key: &Q) -> Option<Link>
    where
        K: Borrow<Q>,
    {
        match self.place(key) {
            Place::At(node) => Some(node),
            Place::Below(..) => None,
        }
    }

    /// Adds an entry at a [`Place::Below`] that is still true.
    pub(crate) fn add(&mut self, parent: Link, side: usize, key: K, value: V) -> Link {
        self.add_node(parent, side, Box::new(Node { header: Header::new(), key, value }))
    }

    fn add_node(&mut self, parent: Link, side: usize, node: Box<Node<K, V>>) -> Link {
        let node = Box::into_raw(node).cast::<Header>();
        // SAFETY: the node is fresh, and the place is one where nothing is.
        unsafe { self.tree.add(node, parent, side) };
        node
    }

    /// Takes a node of this map out.
    pub(crate) fn take(&mut self, link: Link) -> (K, V) {
        // SAFETY: a node of this map, which `add` made from a box of this type, and which is nobody's any more.
        let node = unsafe {
            self.tree.take(link);
            Box::from_raw(link.cast::<Node<K, V>>())
        };
        let Node { key, value, .. } = *node;
        (key, value)
    }

    /// Takes any entry out, leaving the rest fit for nothing else.
    fn take_any(&mut self) -> bool {
        let link = self.tree.take_leaf();
        if !link.is_null() {
            // SAFETY: as in `take`.
            drop(unsafe { Box::from_raw(link.cast::<Node<K, V>>()) });
        }
        !link.is_null()
    }

    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        // SAFETY: a node of this map, borrowed as the map is.
        self.find(key).map(|node| unsafe { &Self::node(node).value })
    }

    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        // SAFETY: as above.
        self.find(key).map(|node| unsafe { &mut Self::node_mut(node).value })
    }

    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.find(key).is_some()
    }

    /// The value that was there.
    pub fn insert(&mut self, key: K, value: V) -> Option<V>
    where
        K: Ord,
    {
        match self.place(&key) {
            Place::At(node) => {
                // SAFETY: a node of this map, borrowed as the map is.
                Some(core::mem::replace(&mut unsafe { Self::node_mut(node) }.value, value))
            }
            Place::Below(parent, side) => {
                self.add(parent, side, key, value);
                None
            }
        }
    }

    /// [`Map::insert`] with an answer where there is no memory for a new entry.
    pub fn insert_fallibly(&mut self, key: K, value: V) -> Result<Option<V>, NoMemory>
    where
        K: Ord,
    {
        match self.place(&key) {
            Place::At(node) => {
                // SAFETY: a node of this map, borrowed as the map is.
                Ok(Some(core::mem::replace(&mut unsafe { Self::node_mut(node) }.value, value)))
            }
            Place::Below(parent, side) => {
                let node = try_box(Node { header: Header::new(), key, value })?;
                self.add_node(parent, side, node);
                Ok(None)
            }
        }
    }

    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.remove_entry(key).map(|(_, value)| value)
    }

    pub fn remove_entry<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<(K, V)>
    where
        K: Borrow<Q>,
    {
        self.find(key).map(|node| self.take(node))
    }

    pub fn entry(&mut self, key: K) -> Entry<'_, K, V>
    where
        K: Ord,
    {
        match self.place(&key) {
            Place::At(node) => Entry::Occupied(Occupied { map: self, node }),
            Place::Below(parent, side) => Entry::Vacant(Vacant { map: self, key, parent, side }),
        }
    }

    pub fn first_key_value(&self) -> Option<(&K, &V)> {
        self.entry_at(self.outermost(LEFT))
    }

    pub fn last_key_value(&self) -> Option<(&K, &V)> {
        self.entry_at(self.outermost(RIGHT))
    }

    /// The entry of a node of this map, or of none.
    fn entry_at(&self, link: Link) -> Option<(&K, &V)> {
        if link.is_null() {
            return None;
        }
        // SAFETY: a node of this map, borrowed as the map is.
        let node = unsafe { Self::node(link) };
        Some((&node.key, &node.value))
    }

    pub fn first_entry(&mut self) -> Option<Occupied<'_, K, V>> {
        let node = self.outermost(LEFT);
        (!node.is_null()).then_some(Occupied { map: self, node })
    }

    pub fn last_entry(&mut self) -> Option<Occupied<'_, K, V>> {
        let node = self.outermost(RIGHT);
        (!node.is_null()).then_some(Occupied { map: self, node })
    }

    pub fn pop_first(&mut self) -> Option<(K, V)> {
        self.first_entry().map(Occupied::remove_entry)
    }

    pub fn pop_last(&mut self) -> Option<(K, V)> {
        self.last_entry().map(Occupied::remove_entry)
    }

    /// The outermost node within a bound: the first one from below, or the last one from above.
    fn edge<Q: Ord + ?Sized>(&self, bound: Bound<&Q>, side: usize) -> Link
    where
        K: Borrow<Q>,
    {
        let (key, included) = match bound {
            Bound::Unbounded => return self.outermost(side),
            Bound::Included(key) => (key, true),
            Bound::Excluded(key) => (key, false),
        };
        match self.place(key) {
            Place::At(node) if included => node,
            // SAFETY: a node of this tree.
            Place::At(node) => unsafe { tree::step(node, side ^ 1) },
            // The key would be below `node` on that side: `node` is its neighbour on the other one.
            Place::Below(node, at) if node.is_null() || at == side => node,
            // SAFETY: as above.
            Place::Below(node, _) => unsafe { tree::step(node, side ^ 1) },
        }
    }

    /// First and last node of a range; `None` for an empty one.
    fn ends<Q: Ord + ?Sized>(&self, range: &impl RangeBounds<Q>) -> Option<(Link, Link)>
    where
        K: Borrow<Q>,
    {
        let front = self.edge(range.start_bound(), LEFT);
        let back = self.edge(range.end_bound(), RIGHT);
        if front.is_null() || back.is_null() {
            return None;
        }
        // SAFETY: nodes of this map, which is borrowed.
        let (first, last) = unsafe { (Self::node(front).key.borrow(), Self::node(back).key.borrow()) };
        (first <= last).then_some((front, back))
    }

    /// Entries in a range. One whose start is behind its end is empty.
    pub fn range<Q: Ord + ?Sized, R: RangeBounds<Q>>(&self, range: R) -> Iter<'_, K, V>
    where
        K: Borrow<Q>,
    {
        Iter::new(self.ends(&range))
    }

    pub fn range_mut<Q: Ord + ?Sized, R: RangeBounds<Q>>(&mut self, range: R) -> IterMut<'_, K, V>
    where
        K: Borrow<Q>,
    {
        IterMut::new(self.ends(&range))
    }

    fn all(&self) -> Option<(Link, Link)> {
        (!self.is_empty()).then(|| (self.outermost(LEFT), self.outermost(RIGHT)))
    }

    pub fn iter(&self) -> Iter<'_, K, V> {
        Iter::new(self.all())
    }

    pub fn iter_mut(&mut self) -> IterMut<'_, K, V> {
        IterMut::new(self.all())
    }

    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    pub fn values_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut V> {
        self.iter_mut().map(|(_, value)| value)
    }

    pub fn into_values(self) -> impl Iterator<Item = V> {
        self.into_iter().map(|(_, value)| value)
    }

    /// Keeps the entries of which `keep` says so.
    pub fn retain(&mut self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        let mut at = self.outermost(LEFT);
        while !at.is_null() {
            // SAFETY: a node of this map, borrowed as the map is; its neighbour is found before it may go.
            let (next, node) = unsafe { (tree::step(at, RIGHT), Self::node_mut(at)) };
            if !keep(&node.key, &mut node.value) {
                drop(self.take(at));
            }
            at = next;
        }
    }

    /// Takes the entries from `key` on out.
    pub fn split_off<Q: Ord + ?Sized>(&mut self, key: &Q) -> Map<K, V>
    where
        K: Borrow<Q> + Ord,
    {
        let mut rest = Map::new();
        loop {
            let at = self.edge(Bound::Included(key), LEFT);
            if at.is_null() {
                return rest;
            }
            let (key, value) = self.take(at);
            rest.insert(key, value);
        }
    }

    pub fn clear(&mut self) {
        while self.take_any() {}
    }

    #[cfg(test)]
    pub(crate) fn check(&self) {
        // SAFETY: the root is a node of this tree or null.
        assert_eq!(unsafe { tree::check(self.tree.root, ptr::null_mut()) }, self.len());
    }
}

impl<K, V> Drop for Map<K, V> {
    fn drop(&mut self) {
        self.clear();
    }
}

impl<K, V> Default for Map<K, V> {
    fn default() -> Map<K, V> {
        Map::new()
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for Map<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<K: Ord + Clone, V: Clone> Clone for Map<K, V> {
    fn clone(&self) -> Map<K, V> {
        self.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
    }
}

impl<K: PartialEq, V: PartialEq> PartialEq for Map<K, V> {
    fn eq(&self, other: &Map<K, V>) -> bool {
        self.len() == other.len() && self.iter().zip(other.iter()).all(|(a, b)| a == b)
    }
}

impl<K: Ord, V> Extend<(K, V)> for Map<K, V> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        entries.into_iter().for_each(|(key, value)| drop(self.insert(key, value)));
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for Map<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Map<K, V> {
        let mut map = Map::new();
        map.extend(entries);
        map
    }
}

impl<'a, K, V> IntoIterator for &'a Map<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = Iter<'a, K, V>;

    fn into_iter(self) -> Iter<'a, K, V> {
        self.iter()
    }
}

impl<'a, K, V> IntoIterator for &'a mut Map<K, V> {
    type Item = (&'a K, &'a mut V);
    type IntoIter = IterMut<'a, K, V>;

    fn into_iter(self) -> IterMut<'a, K, V> {
        self.iter_mut()
    }
}

impl<K, V> IntoIterator for Map<K, V> {
    type Item = (K, V);
    type IntoIter = IntoIter<K, V>;

    fn into_iter(self) -> IntoIter<K, V> {
        IntoIter(self)
    }
}
