// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An ordered map that is small where there are many of them.
//!
//! `alloc`'s B-tree is some 5 kB of code for each pair of types it holds, which for twenty maps was a tenth of the
//! kernel. Here the tree knows nothing of types: an AVL tree (Adelson-Velsky and Landis, 1962) of nodes with parent
//! pointers, as Linux' `rbtree` has it, whose balancing is there once ([`tree`]). What is compiled for each pair of types is
//! the search, and an allocation for each entry. Names and meaning are those of `alloc::collections::BTreeMap`.
//!
//! An entry stays where it is until it is removed. Everything is O(log n), or O(1) a step of an iteration.
//!
//! Invariant that this crate owns: every node of a map's tree is the header of a `Node<K, V>` that [`Map`] allocated and
//! nobody else refers to; references into entries borrow the map.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod entry;
mod iterate;
mod map;
mod set;
mod tree;

pub use entry::{Entry, Occupied, Vacant};
pub use iterate::{IntoIter, Iter, IterMut};
pub use map::Map;
pub use set::Set;

#[cfg(test)]
mod tests;
