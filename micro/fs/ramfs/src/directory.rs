// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The names in one directory.
//!
//! They are kept in the order of their hashes, and the hash is the cookie of a listing, so that a listing goes on
//! correctly whatever is created or removed meanwhile (as in ext4's htree).

use crate::node::Node;
use abi::{Result, errno::ENOSPC};
use alloc::borrow::Cow;
use alloc::sync::{Arc, Weak};
use ordered::Map;

pub enum Child {
    /// An entry of the archive, or what was there initially, that no path has led to yet.
    Archived(u32),
    Node(Arc<Node>),
}

pub struct Named {
    pub name: Cow<'static, [u8]>,
    pub child: Child,
}

/// Names with equal hashes that fit in one directory.
const COLLISIONS: u64 = 256;

#[derive(Default)]
pub struct Directory {
    map: Map<u64, Named>,
    /// The directory of the archive (or the root, for what is there initially) whose entries were not yet put into
    /// `map`.
    pub archived: Option<u32>,
    /// Removed: nothing may be created in it any more.
    pub is_dead: bool,
    /// The directory that it is in, or was when it was removed; of the root none.
    pub parent: Weak<Node>,
    /// While a tree is freed: the directory that is emptied after this one ([`Directory::free`]).
    to_empty: Option<Arc<Node>>,
}

/// FNV-1a, folded to 54 bits so that cookies stay positive with [`COLLISIONS`] and `.` and `..` in them.
fn hash(name: &[u8]) -> u64 {
    let full =
        name.iter().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ *b as u64).wrapping_mul(0x100_0000_01b3));
    (full ^ full >> 32) & ((1 << 54) - 1)
}

impl Directory {
    pub fn of_archive(archived: Option<u32>, parent: Weak<Node>) -> Directory {
        Directory { archived, parent, ..Directory::default() }
    }

    fn key(&self, name: &[u8]) -> Option<u64> {
        let first = hash(name) * COLLISIONS;
        self.map.range(first..first + COLLISIONS).find(|(_, n)| *n.name == *name).map(|(key, _)| *key)
    }

    pub fn get(&self, name: &[u8]) -> Option<&Child> {
        self.key(name).and_then(|key| self.map.get(&key)).map(|n| &n.child)
    }

    pub fn get_mut(&mut self, name: &[u8]) -> Option<&mut Child> {
        let key = self.key(name)?;
        self.map.get_mut(&key).map(|n| &mut n.child)
    }

    /// Adds a name that is not there yet.
    pub fn insert(&mut self, name: Cow<'static, [u8]>, child: Child) -> Result<()> {
        let first = hash(&name) * COLLISIONS;
        let key = (first..first + COLLISIONS).find(|k| !self.map.contains_key(k)).ok_or(ENOSPC)?;
        self.map.insert(key, Named { name, child });
        Ok(())
    }

    pub fn remove(&mut self, name: &[u8]) -> Option<Named> {
        let key = self.key(name)?;
        self.map.remove(&key)
    }

    /// Frees what is below a directory that nobody refers to. One directory after the other is emptied, in a list that they are
    /// linked to: programs nest them as deeply as they like, and directories that drop each other would need as many frames of the
    /// kernel's stack.
    pub fn free(&mut self) {
        let mut names = core::mem::take(&mut self.map);
        let mut to_empty: Option<Arc<Node>> = None;
        loop {
            while let Some((_, named)) = names.pop_first() {
                let Child::Node(node) = named.child else { continue };
                // One that somebody has open goes with its last user.
                if Arc::strong_count(&node) > 1 {
                    continue;
                }
                let Ok(directory) = node.directory() else { continue };
                let mut directory = directory.lock();
                if !directory.map.is_empty() {
                    directory.to_empty = to_empty.take();
                    drop(directory);
                    to_empty = Some(node);
                }
            }
            let Some(node) = to_empty.take() else { return };
            let Ok(directory) = node.directory() else { continue };
            let mut directory = directory.lock();
            names = core::mem::take(&mut directory.map);
            to_empty = directory.to_empty.take();
        }
    }

    pub fn len(&self) -> usize {
        self.map.len()
    }

    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Names behind a cookie, with the cookie of each.
    pub fn behind(&self, cookie: u64) -> impl Iterator<Item = (u64, &Named)> {
        self.map.range(cookie..).map(|(key, named)| (key + 1, named))
    }
}
