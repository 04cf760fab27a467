// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Directories: blocks of entries, each of which says where the next begins. A directory with an index (`dir_index`) is read without
//! it, as old kernels do. Before it is changed its index is dropped: that is what the format provides for kernels without one (the flag
//! goes, and the blocks of the index become blocks without names), and e2fsck(8) makes a new one on demand (`-D`).

use crate::buffers::{DIRECTORY_TAIL, Kind, directory_tail};
use crate::bytes::*;
use crate::checksum::crc32c;
use crate::extents::Extent;
use crate::index::Index;
use crate::inode::{Inode, flag};
use crate::log_damage;
use crate::mount::Core;
use abi::{Result, errno::*};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_fs::{DirEntry, FileType, NAME_MAX};

/// Bytes of an entry in front of its name.
const HEADER: usize = 8;
/// Directories of more blocks have an index in memory.
const MAX_SCANNED: u32 = 4;
/// Names in all indexes beyond which the others are given up.
const MAX_INDEXED: usize = 1 << 20;
/// Where the root of an index has its description, and its entries.
const INDEX_INFO: usize = 0x18;
const INDEX_ROOT: usize = 0x20;
const INDEX_NODE: usize = 8;

/// A name, and where it is.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    pub inode: u32,
    pub kind: u8,
    pub block: u32,
    offset: usize,
}

/// Bytes of an entry with a name of this length.
fn entry_bytes(name: usize) -> usize {
    (HEADER + name).next_multiple_of(4)
}

/// An entry of a block.
struct Entry<'a> {
    offset: usize,
    length: usize,
    inode: u32,
    kind: u8,
    name: &'a [u8],
}

impl Entry<'_> {
    /// Bytes behind what it needs.
    fn room(&self) -> usize {
        if self.inode == 0 { self.length } else { self.length - entry_bytes(self.name.len()) }
    }
}

/// The entries of a block; an error where one is wrong, which is the last then.
struct Entries<'a> {
    block: &'a [u8],
    at: usize,
    end: usize,
}

impl<'a> Entries<'a> {
    fn new(block: &'a [u8]) -> Entries<'a> {
        Entries { block, at: 0, end: directory_tail(block).unwrap_or(block.len()) }
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>>;

    fn next(&mut self) -> Option<Result<Entry<'a>>> {
        let offset = self.at;
        if offset >= self.end {
            return None;
        }
        self.at = self.end;
        if offset + HEADER > self.end {
            return Some(Err(EUCLEAN));
        }
        let length = usize::from(le16(self.block, offset + 4));
        let name_length = usize::from(self.block[offset + 6]);
        let inode = le32(self.block, offset);
        let fits = length >= HEADER
            && length.is_multiple_of(4)
            && offset + length <= self.end
            && (inode == 0 || name_length > 0 && entry_bytes(name_length) <= length);
        if !fits {
            return Some(Err(EUCLEAN));
        }
        self.at = offset + length;
        let name =
            if inode == 0 { &[][..] } else { &self.block[offset + HEADER..offset + HEADER + name_length] };
        Some(Ok(Entry { offset, length, inode, kind: self.block[offset + 7], name }))
    }
}

fn write_entry(block: &mut [u8], offset: usize, length: usize, inode: u32, kind: u8, name: &[u8]) {
    put32(block, offset, inode);
    put16(block, offset + 4, length as u16);
    block[offset + 6] = name.len() as u8;
    block[offset + 7] = kind;
    block[offset + HEADER..offset + HEADER + name.len()].copy_from_slice(name);
}

/// The type of an inode in a directory.
pub fn entry_kind(kind: FileType) -> u8 {
    match kind {
        FileType::Regular => 1,
        FileType::Directory => 2,
        FileType::CharDevice => 3,
        FileType::BlockDevice => 4,
        FileType::Fifo => 5,
        FileType::Socket => 6,
        FileType::Symlink => 7,
        FileType::Anonymous => 0,
    }
}

fn file_type(kind: u8) -> FileType {
    use FileType::*;
    let types = [Regular, Directory, CharDevice, BlockDevice, Fifo, Socket, Symlink];
    usize::from(kind).checked_sub(1).and_then(|at| types.get(at)).copied().unwrap_or(Anonymous)
}

/// The sum of a block of an index is right.
fn is_valid_index(block: &[u8], entries: usize, seed: u32) -> bool {
    let (limit, count) = (usize::from(le16(block, entries)), usize::from(le16(block, entries + 2)));
    let tail = entries + limit * 8;
    if count > limit || tail + 8 > block.len() {
        return false;
    }
    let sum = crc32c(seed, &block[..entries + count * 8]);
    let sum = crc32c(crc32c(sum, &block[tail..tail + 4]), &[0; 4]);
    sum == le32(block, tail + 4)
}

impl Core {
    fn directory_blocks(&self, directory: &Inode) -> Result<u32> {
        let size = self.superblock.block_size as u64;
        if !directory.is_directory() {
            return Err(ENOTDIR);
        }
        if directory.has(flag::FOREIGN) {
            return Err(EOPNOTSUPP);
        }
        if directory.size() == 0 || !directory.size().is_multiple_of(size) {
            log_damage("a directory has a wrong length", directory.number.into());
            return Err(EUCLEAN);
        }
        u32::try_from(directory.size() / size).map_err(|_| EUCLEAN)
    }

    /// Loads a block of a directory; where it is on the disk.
    fn directory_block(&mut self, directory: &Inode, logical: u32) -> Result<u64> {
        let mapping = self.map(directory, logical)?;
        let physical = mapping.physical.filter(|_| !mapping.is_unwritten).ok_or(EUCLEAN)?;
        let has_checksums = self.superblock.has_checksums();
        let block = self.buffers.get(physical, Kind::Directory(directory.seed))?;
        if has_checksums && directory_tail(block).is_none() {
            let entries = if logical == 0 { INDEX_ROOT } else { INDEX_NODE };
            if !directory.has(flag::INDEX) || !is_valid_index(block, entries, directory.seed) {
                log_damage("the checksum of a directory is wrong", directory.number.into());
                return Err(EUCLEAN);
            }
        }
        Ok(physical)
    }

    /// Looks at the entries of a block until `look` answers.
    fn scan<T>(
        &mut self,
        directory: &Inode,
        logical: u32,
        mut look: impl FnMut(&Entry<'_>) -> Option<T>,
    ) -> Result<Option<T>> {
        let physical = self.directory_block(directory, logical)?;
        let block = self.buffers.get(physical, Kind::Directory(directory.seed))?;
        for entry in Entries::new(block) {
            let entry =
                entry.inspect_err(|_| log_damage("a directory is damaged", directory.number.into()))?;
            if let Some(found) = look(&entry) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn scan_for(&mut self, directory: &Inode, logical: u32, name: &[u8]) -> Result<Option<Found>> {
        self.scan(directory, logical, |entry| {
            (entry.inode != 0 && entry.name == name).then_some(Found {
                inode: entry.inode,
                kind: entry.kind,
                block: logical,
                offset: entry.offset,
            })
        })
    }

    /// The entry of that name.
    pub(crate) fn find(&mut self, directory: &Inode, name: &[u8]) -> Result<Option<Found>> {
        let blocks = self.directory_blocks(directory)?;
        if blocks > MAX_SCANNED {
            self.index(directory)?;
            // A few: names of one sum.
            let mut candidates = [0; 16];
            let mut count = 0;
            let mut is_more = false;
            if let Some(index) = self.indexes.get(&directory.number) {
                for block in index.blocks(name) {
                    is_more |= count == candidates.len();
                    if !is_more && !candidates[..count].contains(&block) {
                        candidates[count] = block;
                        count += 1;
                    }
                }
            }
            if !is_more {
                for block in &candidates[..count] {
                    if let Some(found) = self.scan_for(directory, *block, name)? {
                        return Ok(Some(found));
                    }
                }
                return Ok(None);
            }
        }
        for logical in 0..blocks {
            if let Some(found) = self.scan_for(directory, logical, name)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Sees to it that a directory has an index in memory.
    fn index(&mut self, directory: &Inode) -> Result<()> {
        if self.indexes.contains_key(&directory.number) {
            return Ok(());
        }
        let names: usize = self.indexes.values().map(Index::names).sum();
        if names > MAX_INDEXED || self.indexes.len() > 256 {
            self.indexes.clear();
        }
        let mut index = Index::new(directory.seed ^ self.superblock.seed)?;
        for logical in 0..self.directory_blocks(directory)? {
            let mut room = 0;
            let failed = self.scan(directory, logical, |entry| {
                room = room.max(entry.room());
                if entry.inode == 0 { None } else { index.add(entry.name, logical).err() }
            })?;
            if let Some(failed) = failed {
                return Err(failed);
            }
            index.set_room(logical, room as u16)?;
        }
        self.indexes.insert_fallibly(directory.number, index).map_err(|_| ENOMEM)?;
        Ok(())
    }

    /// Corrects what the index says of the room in a block.
    fn note_room(&mut self, directory: &Inode, logical: u32) -> Result<()> {
        if !self.indexes.contains_key(&directory.number) {
            return Ok(());
        }
        self.has_touched_memory = true;
        let mut room = 0;
        self.scan(directory, logical, |entry| {
            room = room.max(entry.room());
            None::<()>
        })?;
        let index = self.indexes.get_mut(&directory.number).ok_or(EIO)?;
        index.set_room(logical, room as u16)
    }

    /// Blocks of the index on the disk, which dropping it changes.
    pub(crate) fn index_blocks(&mut self, directory: &Inode) -> Result<Vec<u32>> {
        let mut blocks = Vec::new();
        if !directory.has(flag::INDEX) || !self.superblock.has_checksums() {
            return Ok(blocks);
        }
        let physical = self.directory_block(directory, 0)?;
        let root = self.buffers.get(physical, Kind::Directory(directory.seed))?;
        if directory_tail(root).is_some() {
            return Ok(blocks);
        }
        let (levels, count) = (root[INDEX_INFO + 6], usize::from(le16(root, INDEX_ROOT + 2)));
        if levels > 1 || INDEX_ROOT + count * 8 > root.len() {
            return Err(EUCLEAN);
        }
        blocks.reserve_exact_fallibly(count + 1).map_err(|_| ENOMEM)?;
        blocks.push(0);
        if levels == 1 {
            // The flags of a block number are for the future.
            blocks.extend((0..count).map(|at| le32(root, INDEX_ROOT + at * 8 + 4) & 0x0fff_ffff));
        }
        Ok(blocks)
    }

    /// Makes a list of blocks of a directory with an index, in the running operation. The caller writes the inode.
    fn drop_index(&mut self, directory: &mut Inode) -> Result<()> {
        if !directory.has(flag::INDEX) {
            return Ok(());
        }
        for logical in self.index_blocks(directory)? {
            let physical = self.directory_block(directory, logical)?;
            let block = self.buffers.edit(physical, Kind::Directory(directory.seed))?;
            if directory_tail(block).is_some() {
                return Err(EUCLEAN);
            }
            // `.` and `..` stay, and one of the two fills the block, or the empty entry of other blocks does.
            let last = if logical == 0 { 12 } else { 0 };
            let used = if logical == 0 { 12 + entry_bytes(2) } else { HEADER };
            let tail = block.len() - DIRECTORY_TAIL;
            if logical == 0 && le16(block, 4) != 12 {
                return Err(EUCLEAN);
            }
            block[used..].fill(0);
            put16(block, last + 4, (tail - last) as u16);
            make_tail(block);
        }
        directory.set_flags(directory.flags() & !flag::INDEX);
        self.has_touched_memory |= self.indexes.remove(&directory.number).is_some();
        Ok(())
    }

    /// Adds a name that is not there. The caller writes the directory's inode.
    pub(crate) fn add_name(
        &mut self,
        directory: &mut Inode,
        name: &[u8],
        inode: u32,
        kind: FileType,
    ) -> Result<()> {
        self.drop_index(directory)?;
        let wanted = entry_bytes(name.len());
        let blocks = self.directory_blocks(directory)?;
        let mut with_room = None;
        if blocks > MAX_SCANNED {
            self.index(directory)?;
            with_room = self.indexes.get(&directory.number).and_then(|index| index.with_room(wanted as u16));
        } else {
            for logical in 0..blocks {
                let has_room =
                    self.scan(directory, logical, |entry| (entry.room() >= wanted).then_some(()))?;
                if has_room.is_some() {
                    with_room = Some(logical);
                    break;
                }
            }
        }
        let logical = match with_room {
            Some(logical) => logical,
            None => self.grow_directory(directory)?,
        };
        let place = self.scan(directory, logical, |entry| {
            (entry.room() >= wanted).then_some((entry.offset, entry.length, entry.length - entry.room()))
        })?;
        let (offset, length, used) = place.ok_or(EUCLEAN)?;
        let physical = self.directory_block(directory, logical)?;
        let block = self.buffers.edit(physical, Kind::Directory(directory.seed))?;
        if used > 0 {
            put16(block, offset + 4, used as u16);
        }
        write_entry(block, offset + used, length - used, inode, entry_kind(kind), name);
        if let Some(index) = self.indexes.get_mut(&directory.number) {
            self.has_touched_memory = true;
            index.add(name, logical)?;
        }
        self.note_room(directory, logical)
    }

    /// One more block without names.
    fn grow_directory(&mut self, directory: &mut Inode) -> Result<u32> {
        let logical = self.directory_blocks(directory)?;
        let block_size = self.superblock.block_size;
        let goal = self
            .last_extent(directory)?
            .map_or(self.next_block, |last| last.physical + u64::from(last.count));
        let (physical, _) = self.allocate(goal, 1)?;
        let extent = Extent { logical, count: 1, physical, is_unwritten: false };
        self.insert(directory, extent)?;
        directory.add_blocks(1, block_size);
        directory.set_size((u64::from(logical) + 1) * block_size as u64);
        self.fresh_directory_block(directory.seed, physical, &[])?;
        if let Some(index) = self.indexes.get_mut(&directory.number) {
            self.has_touched_memory = true;
            index.set_room(logical, 0)?;
        }
        self.note_room(directory, logical)?;
        Ok(logical)
    }

    /// Writes a new block with these names and an empty rest.
    fn fresh_directory_block(&mut self, seed: u32, physical: u64, names: &[(&[u8], u32)]) -> Result<()> {
        let has_checksums = self.superblock.has_checksums();
        let block = self.buffers.fresh(physical, Kind::Directory(seed))?;
        let end = block.len() - if has_checksums { DIRECTORY_TAIL } else { 0 };
        let mut at = 0;
        for (n, (name, inode)) in names.iter().enumerate() {
            let length = if n + 1 == names.len() { end - at } else { entry_bytes(name.len()) };
            write_entry(block, at, length, *inode, entry_kind(FileType::Directory), name);
            at += length;
        }
        if at == 0 {
            put16(block, 4, end as u16);
        }
        if has_checksums {
            make_tail(block);
        }
        Ok(())
    }

    /// The first block of a new directory. The caller writes the inode.
    pub(crate) fn make_directory(&mut self, directory: &mut Inode, parent: u32) -> Result<()> {
        let block_size = self.superblock.block_size;
        let (physical, _) = self.allocate(self.next_block, 1)?;
        self.insert(directory, Extent { logical: 0, count: 1, physical, is_unwritten: false })?;
        directory.add_blocks(1, block_size);
        directory.set_size(block_size as u64);
        directory.set_links(2);
        self.fresh_directory_block(directory.seed, physical, &[(b".", directory.number), (b"..", parent)])
    }

    /// Removes an entry. The caller writes the directory's inode.
    pub(crate) fn remove_name(&mut self, directory: &mut Inode, name: &[u8]) -> Result<()> {
        self.drop_index(directory)?;
        let found = self.find(directory, name)?.ok_or(ENOENT)?;
        let before = self.scan(directory, found.block, |entry| {
            (entry.offset + entry.length == found.offset).then_some((entry.offset, entry.length))
        })?;
        let physical = self.directory_block(directory, found.block)?;
        let block = self.buffers.edit(physical, Kind::Directory(directory.seed))?;
        match before {
            Some((offset, length)) => {
                let gone = usize::from(le16(block, found.offset + 4));
                put16(block, offset + 4, (length + gone) as u16);
                block[found.offset..found.offset + HEADER].fill(0);
            }
            None => put32(block, found.offset, 0),
        }
        if let Some(index) = self.indexes.get_mut(&directory.number) {
            self.has_touched_memory = true;
            index.remove(name, found.block);
        }
        self.note_room(directory, found.block)
    }

    /// Makes an entry lead to another inode. The caller writes the directory's inode.
    pub(crate) fn replace_name(
        &mut self,
        directory: &mut Inode,
        name: &[u8],
        inode: u32,
        kind: FileType,
    ) -> Result<()> {
        self.drop_index(directory)?;
        let found = self.find(directory, name)?.ok_or(ENOENT)?;
        let physical = self.directory_block(directory, found.block)?;
        let block = self.buffers.edit(physical, Kind::Directory(directory.seed))?;
        put32(block, found.offset, inode);
        block[found.offset + 7] = entry_kind(kind);
        Ok(())
    }

    pub(crate) fn is_empty(&mut self, directory: &Inode) -> Result<bool> {
        for logical in 0..self.directory_blocks(directory)? {
            let named = self.scan(directory, logical, |entry| {
                (entry.inode != 0 && entry.name != b"." && entry.name != b"..").then_some(())
            })?;
            if named.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Up to `most` entries behind the cookie `from`, which is a place in the directory: names that are made or removed meanwhile change
    /// nothing for the others.
    pub fn list(&mut self, number: u32, from: u64, most: usize) -> Result<Vec<DirEntry>> {
        let directory = self.inode(number)?;
        let blocks = self.directory_blocks(&directory)?;
        let size = self.superblock.block_size as u64;
        let inodes = self.superblock.inodes;
        let mut out = Vec::new();
        for logical in u32::try_from(from / size).unwrap_or(u32::MAX)..blocks {
            if out.len() >= most {
                break;
            }
            let start = u64::from(logical) * size;
            let failed = self.scan(&directory, logical, |entry| {
                let place = start + entry.offset as u64;
                let is_dot = entry.name == b"." || entry.name == b"..";
                if place < from || entry.inode == 0 || is_dot || out.len() >= most {
                    return None;
                }
                if entry.inode > inodes || entry.name.contains(&b'/') || entry.name.contains(&0) {
                    return Some(EUCLEAN);
                }
                debug_assert!(entry.name.len() <= NAME_MAX);
                let mut name = Vec::new();
                if name.reserve_exact_fallibly(entry.name.len()).is_err() || out.reserve_fallibly(1).is_err()
                {
                    return Some(ENOMEM);
                }
                name.extend_from_slice(entry.name);
                let (inode, kind) = (entry.inode.into(), file_type(entry.kind));
                out.push(DirEntry { name, inode, kind, next: place + entry.length as u64 });
                None
            })?;
            match failed {
                Some(failed) if out.is_empty() => return Err(failed),
                Some(_) => break,
                None => {}
            }
        }
        Ok(out)
    }
}

fn make_tail(block: &mut [u8]) {
    let tail = block.len() - DIRECTORY_TAIL;
    block[tail..].fill(0);
    put16(block, tail + 4, DIRECTORY_TAIL as u16);
    put16(block, tail + 6, 0xde00);
}
