// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An ordered set: a map to nothing.

use crate::Map;
use core::borrow::Borrow;
use core::ops::RangeBounds;

#[derive(Clone, Debug, PartialEq)]
pub struct Set<T>(Map<T, ()>)
where
    T: Ord;

impl<T: Ord> Set<T> {
    pub const fn new() -> Set<T> {
        Set(Map::new())
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// False when it was there.
    pub fn insert(&mut self, value: T) -> bool {
        self.0.insert(value, ()).is_none()
    }

    /// True when it was there.
    pub fn remove<Q: Ord + ?Sized>(&mut self, value: &Q) -> bool
    where
        T: Borrow<Q>,
    {
        self.0.remove(value).is_some()
    }

    pub fn contains<Q: Ord + ?Sized>(&self, value: &Q) -> bool
    where
        T: Borrow<Q>,
    {
        self.0.contains_key(value)
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.0.keys()
    }

    pub fn range<Q: Ord + ?Sized, R: RangeBounds<Q>>(&self, range: R) -> impl DoubleEndedIterator<Item = &T>
    where
        T: Borrow<Q>,
    {
        self.0.range(range).map(|(value, ())| value)
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Takes those from `value` on out.
    pub fn split_off<Q: Ord + ?Sized>(&mut self, value: &Q) -> Set<T>
    where
        T: Borrow<Q>,
    {
        Set(self.0.split_off(value))
    }
}

impl<T: Ord> Default for Set<T> {
    fn default() -> Set<T> {
        Set::new()
    }
}

impl<T: Ord> Extend<T> for Set<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, values: I) {
        values.into_iter().for_each(|value| {
            self.insert(value);
        });
    }
}

impl<T: Ord> FromIterator<T> for Set<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Set<T> {
        let mut set = Set::new();
        set.extend(values);
        set
    }
}

impl<T: Ord, const N: usize> From<[T; N]> for Set<T> {
    fn from(values: [T; N]) -> Set<T> {
        values.into_iter().collect()
    }
}

impl<T: Ord> IntoIterator for Set<T> {
    type Item = T;
    type IntoIter = core::iter::Map<crate::IntoIter<T, ()>, fn((T, ())) -> T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter().map(|(value, ())| value)
    }
}
