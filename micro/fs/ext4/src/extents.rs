// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Extents: which blocks of the disk are which blocks of a file. A tree whose root is in the inode; nodes are copied out, changed and
//! written back.

use crate::buffers::Kind;
use crate::bytes::*;
use crate::inode::{BLOCK_BYTES, Inode, flag};
use crate::log_damage;
use crate::mount::Core;
use abi::{Result, errno::*};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_fs::zeroed;

const MAGIC: u16 = 0xf30a;
const HEADER: usize = 12;
const ENTRY: usize = 12;
/// Levels below the root (Linux EXT4_MAX_EXTENT_DEPTH).
const MAX_DEPTH: u16 = 5;
/// Blocks of one extent, and of one that is unwritten.
pub const MAX_WRITTEN: u32 = 1 << 15;
pub const MAX_UNWRITTEN: u32 = MAX_WRITTEN - 1;

/// Blocks of a file that lie together on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub logical: u32,
    pub count: u32,
    pub physical: u64,
    /// Reserved, and read as zeros.
    pub is_unwritten: bool,
}

impl Extent {
    pub fn end(&self) -> u64 {
        u64::from(self.logical) + u64::from(self.count)
    }

    /// The part from `logical` on, of `count` blocks.
    fn part(&self, logical: u32, count: u32) -> Extent {
        Extent { logical, count, physical: self.physical + u64::from(logical - self.logical), ..*self }
    }
}

/// What is at a place of a file.
#[derive(Clone, Copy, Debug)]
pub struct Mapping {
    /// `None`: a hole.
    pub physical: Option<u64>,
    /// Blocks from the place on that go on like that.
    pub count: u32,
    pub is_unwritten: bool,
}

/// Writes an empty root.
pub fn make_root(block: &mut [u8]) {
    block.fill(0);
    put16(block, 0, MAGIC);
    put16(block, 4, ((BLOCK_BYTES - HEADER) / ENTRY) as u16);
}

/// A copy of a node.
struct Node {
    /// `None`: the root.
    block: Option<u64>,
    bytes: Vec<u8>,
}

impl Node {
    fn len(&self) -> usize {
        le16(&self.bytes, 2).into()
    }

    fn capacity(&self) -> usize {
        le16(&self.bytes, 4).into()
    }

    fn is_full(&self) -> bool {
        self.len() >= self.capacity()
    }

    fn depth(&self) -> u16 {
        le16(&self.bytes, 6)
    }

    fn set_len(&mut self, len: usize) {
        put16(&mut self.bytes, 2, len as u16);
    }

    fn entry(&self, at: usize) -> &[u8] {
        &self.bytes[HEADER + at * ENTRY..HEADER + (at + 1) * ENTRY]
    }

    fn key(&self, at: usize) -> u32 {
        le32(self.entry(at), 0)
    }

    fn child(&self, at: usize) -> u64 {
        le48(self.entry(at), 4, 8)
    }

    fn extent(&self, at: usize) -> Extent {
        let entry = self.entry(at);
        let count = u32::from(le16(entry, 4));
        let is_unwritten = count > MAX_WRITTEN;
        let physical = u64::from(le32(entry, 8)) | u64::from(le16(entry, 6)) << 32;
        let count = if is_unwritten { count - MAX_WRITTEN } else { count };
        Extent { logical: le32(entry, 0), count, physical, is_unwritten }
    }

    fn set_extent(&mut self, at: usize, extent: Extent) {
        let entry = &mut self.bytes[HEADER + at * ENTRY..HEADER + (at + 1) * ENTRY];
        put32(entry, 0, extent.logical);
        put16(entry, 4, (extent.count + if extent.is_unwritten { MAX_WRITTEN } else { 0 }) as u16);
        put16(entry, 6, (extent.physical >> 32) as u16);
        put32(entry, 8, extent.physical as u32);
    }

    fn set_index(&mut self, at: usize, key: u32, child: u64) {
        let entry = &mut self.bytes[HEADER + at * ENTRY..HEADER + (at + 1) * ENTRY];
        put32(entry, 0, key);
        put32(entry, 4, child as u32);
        put16(entry, 8, (child >> 32) as u16);
        put16(entry, 10, 0);
    }

    /// Makes room for an entry, which the caller writes. The node is not full.
    fn open(&mut self, at: usize) {
        let (start, end) = (HEADER + at * ENTRY, HEADER + self.len() * ENTRY);
        self.bytes.copy_within(start..end, start + ENTRY);
        self.set_len(self.len() + 1);
    }

    fn remove(&mut self, at: usize) {
        let (start, end) = (HEADER + at * ENTRY, HEADER + self.len() * ENTRY);
        self.bytes.copy_within(start + ENTRY..end, start);
        self.set_len(self.len() - 1);
    }

    /// The last entry that begins at `logical` or before; `None` when all begin behind it.
    fn position(&self, logical: u32) -> Option<usize> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = (low + high) / 2;
            if self.key(middle) <= logical { low = middle + 1 } else { high = middle }
        }
        low.checked_sub(1)
    }

    /// In order, without overlaps, within what the parent says.
    fn is_valid(&self, depth: u16, first: u32, end: u64) -> bool {
        let fits = HEADER + self.capacity() * ENTRY <= self.bytes.len();
        if le16(&self.bytes, 0) != MAGIC || self.depth() != depth || !fits || self.len() > self.capacity() {
            return false;
        }
        if depth > 0 && self.len() == 0 {
            return false;
        }
        let mut last = u64::from(first);
        for at in 0..self.len() {
            let is_in_order = if depth == 0 {
                let extent = self.extent(at);
                let fits = u64::from(extent.logical) >= last && extent.count > 0;
                last = extent.end();
                fits
            } else {
                let key = u64::from(self.key(at));
                let fits = key >= last;
                last = key + 1;
                fits
            };
            if !is_in_order || last > end {
                return false;
            }
        }
        true
    }
}

/// The way from the root to a leaf: nodes with the entry that was taken in each.
type Path = Vec<(Node, usize)>;

/// Entries behind all blocks of a file.
const END: u64 = u32::MAX as u64;

impl Core {
    fn root(&self, inode: &Inode) -> Result<Node> {
        if !inode.has(flag::EXTENTS) {
            log_damage("a file has no extents: it was made by ext3", inode.number.into());
            return Err(EOPNOTSUPP);
        }
        let mut bytes = zeroed(BLOCK_BYTES)?;
        bytes.copy_from_slice(inode.block());
        let node = Node { block: None, bytes };
        let depth = node.depth();
        if depth > MAX_DEPTH || !(node.is_valid(depth, 0, END) || depth > 0 && node.len() == 0) {
            log_damage("the extents of an inode are damaged", inode.number.into());
            return Err(EUCLEAN);
        }
        Ok(node)
    }

    fn node(&mut self, inode: &Inode, block: u64, depth: u16, first: u32, end: u64) -> Result<Node> {
        self.check_blocks(block, 1)?;
        let data = self.buffers.get(block, Kind::Extents(inode.seed))?;
        let mut bytes = Vec::new();
        bytes.reserve_exact_fallibly(data.len()).map_err(|_| ENOMEM)?;
        bytes.extend_from_slice(data);
        let node = Node { block: Some(block), bytes };
        if !node.is_valid(depth, first, end) {
            log_damage("a block of extents is damaged", block);
            return Err(EUCLEAN);
        }
        Ok(node)
    }

    fn store(&mut self, inode: &mut Inode, node: &Node) -> Result<()> {
        match node.block {
            None => inode.block_mut().copy_from_slice(&node.bytes),
            Some(block) => self.buffers.edit(block, Kind::Extents(inode.seed))?.copy_from_slice(&node.bytes),
        }
        Ok(())
    }

    /// The way to the leaf where `logical` is or would be; the entry there is the last one at or before it (0 where all are
    /// behind). Also where the entries of the next leaf begin.
    fn path(&mut self, inode: &Inode, logical: u32) -> Result<(Path, u64)> {
        let mut path: Path = Vec::new();
        path.reserve_exact_fallibly(usize::from(MAX_DEPTH) + 1).map_err(|_| ENOMEM)?;
        let mut node = self.root(inode)?;
        let mut end = END;
        loop {
            let at = node.position(logical).unwrap_or(0);
            let depth = node.depth();
            if depth == 0 || node.len() == 0 {
                path.push((node, at));
                return Ok((path, end));
            }
            let (child, first) = (node.child(at), node.key(at));
            if at + 1 < node.len() {
                end = node.key(at + 1).into();
            }
            let next = self.node(inode, child, depth - 1, first, end)?;
            path.push((node, at));
            node = next;
        }
    }

    /// What is at block `logical` of a file, and how far it goes on.
    pub(crate) fn map(&mut self, inode: &Inode, logical: u32) -> Result<Mapping> {
        let (path, end) = self.path(inode, logical)?;
        let hole = |end: u64| Mapping {
            physical: None,
            count: (end - u64::from(logical)).min(u64::from(u32::MAX)) as u32,
            is_unwritten: false,
        };
        let (leaf, at) = path.last().ok_or(EIO)?;
        if leaf.len() == 0 {
            return Ok(hole(end.max(u64::from(logical) + 1)));
        }
        let extent = leaf.extent(*at);
        if extent.logical > logical {
            return Ok(hole(extent.logical.into()));
        }
        if extent.end() > u64::from(logical) {
            if inode.number != self.superblock.journal_inode {
                self.check_blocks(extent.physical, extent.count.into())?;
            }
            let within = logical - extent.logical;
            return Ok(Mapping {
                physical: Some(extent.physical + u64::from(within)),
                count: extent.count - within,
                is_unwritten: extent.is_unwritten,
            });
        }
        let next = if at + 1 < leaf.len() { leaf.key(at + 1).into() } else { end };
        Ok(hole(next.max(u64::from(logical) + 1)))
    }

    /// The first extent that ends behind `logical`.
    pub(crate) fn extent_from(&mut self, inode: &Inode, logical: u32) -> Result<Option<Extent>> {
        let (path, end) = self.path(inode, logical)?;
        let (leaf, at) = path.last().ok_or(EIO)?;
        for at in *at..leaf.len() {
            let extent = leaf.extent(at);
            if extent.end() > u64::from(logical) {
                return Ok(Some(extent));
            }
        }
        // The next leaf begins there, and has an extent.
        if end >= END || leaf.len() == 0 {
            return Ok(None);
        }
        let (path, _) = self.path(inode, end as u32)?;
        let (leaf, at) = path.last().ok_or(EIO)?;
        let extent = (leaf.len() > 0).then(|| leaf.extent(*at));
        extent.filter(|extent| extent.end() > u64::from(logical)).map(Some).ok_or(EUCLEAN)
    }

    /// The last extent of a file.
    pub(crate) fn last_extent(&mut self, inode: &Inode) -> Result<Option<Extent>> {
        let (path, _) = self.path(inode, u32::MAX)?;
        let (leaf, at) = path.last().ok_or(EIO)?;
        Ok((leaf.len() > 0).then(|| leaf.extent(*at)))
    }

    /// Adds blocks where there is a hole. The caller writes the inode.
    pub(crate) fn insert(&mut self, inode: &mut Inode, extent: Extent) -> Result<()> {
        let (mut path, _) = self.path(inode, extent.logical)?;
        if self.extend(inode, &mut path, extent)? {
            return Ok(());
        }
        while path.last().is_some_and(|(leaf, _)| leaf.is_full()) {
            self.split(inode, extent.logical)?;
            path = self.path(inode, extent.logical)?.0;
        }
        let (leaf, _) = path.last_mut().ok_or(EIO)?;
        let at = leaf.position(extent.logical).map_or(0, |at| at + 1);
        leaf.open(at);
        leaf.set_extent(at, extent);
        let leaf = &path[path.len() - 1].0;
        self.store(inode, leaf)?;
        if at == 0 { self.correct_keys(inode, path) } else { Ok(()) }
    }

    /// Makes the extent before longer where the new one goes on like it.
    fn extend(&mut self, inode: &mut Inode, path: &mut Path, extent: Extent) -> Result<bool> {
        let (leaf, at) = path.last_mut().ok_or(EIO)?;
        if leaf.len() == 0 {
            return Ok(false);
        }
        let before = leaf.extent(*at);
        let most = if before.is_unwritten { MAX_UNWRITTEN } else { MAX_WRITTEN };
        let goes_on = before.end() == u64::from(extent.logical)
            && before.physical + u64::from(before.count) == extent.physical
            && before.is_unwritten == extent.is_unwritten
            && before.count + extent.count <= most;
        if goes_on {
            leaf.set_extent(*at, Extent { count: before.count + extent.count, ..before });
            let leaf = &path[path.len() - 1].0;
            self.store(inode, leaf)?;
        }
        Ok(goes_on)
    }

    /// The first key of a leaf has changed: the keys above it are to be the same.
    fn correct_keys(&mut self, inode: &mut Inode, mut path: Path) -> Result<()> {
        let Some((leaf, _)) = path.pop() else { return Ok(()) };
        let key = leaf.key(0);
        while let Some((mut node, at)) = path.pop() {
            if node.key(at) == key {
                return Ok(());
            }
            let child = node.child(at);
            node.set_index(at, key, child);
            self.store(inode, &node)?;
            if at > 0 {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Splits the uppermost full node of those that must be split to make room in the leaf of `logical`.
    fn split(&mut self, inode: &mut Inode, logical: u32) -> Result<()> {
        let (mut path, _) = self.path(inode, logical)?;
        // The lowest node with room, below which all are full.
        let with_room = path.iter().rposition(|(node, _)| !node.is_full());
        let block_size = self.superblock.block_size;
        let goal = path.last().and_then(|(node, _)| node.block).unwrap_or(self.next_block);
        let (block, _) = self.allocate(goal, 1)?;
        inode.add_blocks(1, block_size);
        let tail = if self.superblock.has_checksums() { 4 } else { 0 };
        let capacity = (block_size - HEADER - tail) / ENTRY;
        let mut new = Node { block: Some(block), bytes: zeroed(block_size)? };
        put16(&mut new.bytes, 0, MAGIC);
        put16(&mut new.bytes, 4, capacity as u16);
        self.buffers.fresh(block, Kind::Extents(inode.seed))?;
        let Some(above) = with_room else {
            // All are full: the tree grows by a level, and the root has one entry.
            let (mut root, _) = path.swap_remove(0);
            if root.depth() >= MAX_DEPTH {
                return Err(EFBIG);
            }
            let used = HEADER + root.len() * ENTRY;
            new.bytes[HEADER..used].copy_from_slice(&root.bytes[HEADER..used]);
            new.set_len(root.len());
            put16(&mut new.bytes, 6, root.depth());
            let (depth, key) = (root.depth() + 1, root.key(0));
            put16(&mut root.bytes, 6, depth);
            root.set_len(1);
            root.set_index(0, key, block);
            self.store(inode, &new)?;
            return self.store(inode, &root);
        };
        let (mut full, position) = path.swap_remove(above + 1);
        let (mut parent, at) = path.swap_remove(above);
        // Files grow at their end: there the old node stays full.
        let half = if position + 1 == full.len() { full.len() - 1 } else { full.len() / 2 };
        let moved = full.len() - half;
        let (from, to) = (HEADER + half * ENTRY, HEADER + full.len() * ENTRY);
        new.bytes[HEADER..HEADER + moved * ENTRY].copy_from_slice(&full.bytes[from..to]);
        new.set_len(moved);
        put16(&mut new.bytes, 6, full.depth());
        full.set_len(half);
        parent.open(at + 1);
        parent.set_index(at + 1, new.key(0), block);
        self.store(inode, &new)?;
        self.store(inode, &full)?;
        self.store(inode, &parent)
    }

    /// Takes blocks `logical..end` of the first extent there out of the file, and returns them; the caller frees them. `None`: there
    /// are none. The caller writes the inode.
    pub(crate) fn cut(&mut self, inode: &mut Inode, logical: u32, end: u64) -> Result<Option<Extent>> {
        let Some(extent) = self.extent_from(inode, logical)? else { return Ok(None) };
        let first = extent.logical.max(logical);
        if u64::from(first) >= end {
            return Ok(None);
        }
        let last = extent.end().min(end);
        let gone = extent.part(first, (last - u64::from(first)) as u32);
        let behind = (last < extent.end()).then(|| extent.part(last as u32, (extent.end() - last) as u32));
        let (mut path, _) = self.path(inode, extent.logical)?;
        let (leaf, at) = path.last_mut().ok_or(EIO)?;
        let at = *at;
        if leaf.extent(at) != extent {
            return Err(EUCLEAN);
        }
        if first > extent.logical {
            leaf.set_extent(at, extent.part(extent.logical, first - extent.logical));
            let leaf = &path[path.len() - 1].0;
            self.store(inode, leaf)?;
            if let Some(behind) = behind {
                self.insert(inode, behind)?;
            }
        } else if let Some(behind) = behind {
            leaf.set_extent(at, behind);
            let leaf = &path[path.len() - 1].0;
            self.store(inode, leaf)?;
            if at == 0 {
                self.correct_keys(inode, path)?;
            }
        } else {
            self.remove_entry(inode, path)?;
        }
        Ok(Some(gone))
    }

    /// Removes the entry at the end of the path, and nodes that have none then.
    fn remove_entry(&mut self, inode: &mut Inode, mut path: Path) -> Result<()> {
        while let Some((mut node, at)) = path.pop() {
            node.remove(at);
            match node.block {
                Some(block) if node.len() == 0 => {
                    self.free_metadata(block, Kind::Extents(inode.seed))?;
                    inode.add_blocks(-1, self.superblock.block_size);
                }
                _ => {
                    if node.len() == 0 {
                        // An empty root is a leaf.
                        make_root(&mut node.bytes);
                    }
                    self.store(inode, &node)?;
                    if at == 0 && node.len() > 0 {
                        path.push((node, 0));
                        return self.correct_keys(inode, path);
                    }
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Blocks that were reserved have data from now on: those of `logical..end` in the first extent there.
    pub(crate) fn mark_written(&mut self, inode: &mut Inode, logical: u32, end: u64) -> Result<()> {
        if let Some(part) = self.cut(inode, logical, end)? {
            self.insert(inode, Extent { is_unwritten: false, ..part })?;
        }
        Ok(())
    }
}
