// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Going through a map in order, from both ends.

use crate::Map;
use crate::tree::{self, LEFT, Link, RIGHT};
use core::marker::PhantomData;

/// The first and the last node that are left.
struct Ends(Option<(Link, Link)>);

impl Ends {
    /// The node at one end, which is left behind.
    fn take(&mut self, side: usize) -> Option<Link> {
        let (front, back) = self.0?;
        let node = if side == LEFT { front } else { back };
        self.0 = if front == back {
            None
        } else if side == LEFT {
            // SAFETY: a node of the map that the iterator borrows, and not the last one.
            Some((unsafe { tree::step(front, RIGHT) }, back))
        } else {
            // SAFETY: as above, and not the first one.
            Some((front, unsafe { tree::step(back, LEFT) }))
        };
        Some(node)
    }
}

pub struct Iter<'a, K, V>(Ends, PhantomData<&'a Map<K, V>>);

pub struct IterMut<'a, K, V>(Ends, PhantomData<&'a mut Map<K, V>>);

impl<K, V> Iter<'_, K, V> {
    pub(crate) fn new(ends: Option<(Link, Link)>) -> Self {
        Iter(Ends(ends), PhantomData)
    }
}

impl<K, V> IterMut<'_, K, V> {
    pub(crate) fn new(ends: Option<(Link, Link)>) -> Self {
        IterMut(Ends(ends), PhantomData)
    }
}

fn shared<'a, K, V>(link: Link) -> (&'a K, &'a V) {
    // SAFETY: only called with nodes of a map that is borrowed as long as the references live.
    let node = unsafe { Map::<K, V>::node(link) };
    (&node.key, &node.value)
}

fn exclusive<'a, K, V>(link: Link) -> (&'a K, &'a mut V) {
    // SAFETY: as above, and an iterator hands out each node once.
    let node = unsafe { Map::<K, V>::node_mut(link) };
    (&node.key, &mut node.value)
}

impl<'a, K, V> Iterator for Iter<'a, K, V> {
    type Item = (&'a K, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.take(LEFT).map(shared)
    }
}

impl<K, V> DoubleEndedIterator for Iter<'_, K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.0.take(RIGHT).map(shared)
    }
}

impl<'a, K, V> Iterator for IterMut<'a, K, V> {
    type Item = (&'a K, &'a mut V);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.take(LEFT).map(exclusive)
    }
}

impl<K, V> DoubleEndedIterator for IterMut<'_, K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.0.take(RIGHT).map(exclusive)
    }
}

/// The entries of a map that is used up.
pub struct IntoIter<K, V>(pub(crate) Map<K, V>);

impl<K, V> Iterator for IntoIter<K, V> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        self.0.pop_first()
    }
}

impl<K, V> DoubleEndedIterator for IntoIter<K, V> {
    fn next_back(&mut self) -> Option<(K, V)> {
        self.0.pop_last()
    }
}
