// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mounting, transactions, and unmounting.

use crate::buffers::{Buffers, Kind};
use crate::bytes::*;
use crate::checksum::crc32c;
use crate::data::Pages;
use crate::index::Index;
use crate::journal::{Journal, Piece};
use crate::superblock::{self, PLACE, Refusal, STATE_ERROR, STATE_VALID, Superblock, field, incompat};
use crate::{Disk, replay};
use abi::{Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_fs::{StatFs, Timespec, zeroed};
use ordered::Map;

/// Magic number of statfs(2).
const MAGIC: u64 = 0xef53;

/// How to mount.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    pub read_only: bool,
}

/// One mounted file system.
pub struct Core {
    pub(crate) superblock: Superblock,
    pub(crate) buffers: Buffers,
    /// Blocks that belong to no file: first block and the one behind the last, in order.
    pub(crate) system: Vec<(u64, u64)>,
    /// Blocks that the running transaction has freed, as bitmaps by group: nobody may use them before it is committed.
    pub(crate) freed: Map<u32, Vec<u8>>,
    /// `None` where nothing is written.
    journal: Option<Journal>,
    /// Of inodes that are open or have pages.
    pub(crate) pages: Map<u32, Pages>,
    /// Pages of all files in memory.
    pub(crate) page_count: usize,
    pub(crate) max_pages: usize,
    /// Files with pages to write.
    pub(crate) dirty_files: Map<u32, ()>,
    /// Names of large directories.
    pub(crate) indexes: Map<u32, Index>,
    /// The list of inodes to be freed, in the order of the disk's: predecessor and successor, 0 for none.
    pub(crate) orphans: Map<u32, (u32, u32)>,
    /// Inodes that were made without a name and may get one.
    pub(crate) linkable: Map<u32, ()>,
    /// Where the search for a block begins that has no better place.
    pub(crate) next_block: u64,
    /// A block that the log has was freed.
    pub(crate) must_checkpoint: bool,
    /// Something was written since the disk was flushed.
    pub(crate) is_unflushed: bool,
    /// The running operation has changed [`Core::indexes`] or [`Core::orphans`].
    pub(crate) has_touched_memory: bool,
    /// A write failed: the memory's state cannot become the disk's any more.
    has_failed: bool,
    is_read_only: bool,
}

/// Blocks that an operation changes at most, of those that do not say.
pub(crate) const CREDITS: usize = 64;

impl Core {
    /// One whose journal is not known yet: nothing can be written.
    fn new(superblock: Superblock, buffers: Buffers, is_read_only: bool) -> Core {
        Core {
            superblock,
            buffers,
            system: Vec::new(),
            freed: Map::new(),
            journal: None,
            pages: Map::new(),
            page_count: 0,
            max_pages: (api_mem::statistics().0 / 4).max(64) as usize,
            dirty_files: Map::new(),
            indexes: Map::new(),
            orphans: Map::new(),
            linkable: Map::new(),
            next_block: 0,
            must_checkpoint: false,
            is_unflushed: false,
            has_touched_memory: false,
            has_failed: false,
            is_read_only,
        }
    }

    pub fn mount(
        disk: Arc<dyn Disk>,
        options: Options,
        now: Timespec,
    ) -> core::result::Result<Core, Refusal> {
        let mut superblock = read_superblock(&disk)?;
        let mut buffers = Buffers::new(disk.clone(), &superblock);
        let wants_writing = !options.read_only && !disk.is_read_only();
        let is_read_only = !wants_writing || superblock.is_read_only;
        if superblock.is_read_only && !options.read_only {
            log::warn!("ext4: it has features that allow reading only: mounted read-only");
        }
        if superblock.journal_inode == 0 && !is_read_only {
            return Err(Refusal(
                "it has no journal, so it is mounted read-only or not at all (mount -o ro)",
                EROFS,
            ));
        }
        let mut journal = None;
        if superblock.journal_inode != 0 {
            let mut found = find_journal(&superblock, &mut buffers)?;
            // The superblock is the only thing that is written while the log is empty.
            if found.is_started || superblock.is_torn {
                if disk.is_read_only() {
                    return Err(Refusal("its journal has to be replayed, and the disk is read-only", EROFS));
                }
                log::info!("ext4: replaying the journal");
                found.sequence = replay::replay(&disk, &found, superblock.blocks)?;
                superblock = read_superblock(&disk)?;
                buffers = Buffers::new(disk.clone(), &superblock);
                found.write_super(&buffers, 0)?;
                disk.flush()?;
                found.is_started = false;
            }
            journal = Some(found);
        }
        if superblock.is_torn {
            return Err(Refusal("the checksum of its superblock is wrong", EUCLEAN));
        }
        let mut core = Core::new(superblock, buffers, is_read_only);
        core.check_groups()?;
        let ranges = journal.as_ref().map_or(&[][..], |journal| &journal.pieces);
        core.system.reserve_fallibly(ranges.len()).map_err(|_| ENOMEM)?;
        core.system.extend(ranges.iter().map(|piece| (piece.start, piece.start + u64::from(piece.count))));
        core.system.sort_unstable();
        core.check_root()?;
        if !is_read_only {
            let mut journal = journal.ok_or(EROFS)?;
            journal.set_features(core.superblock.has_checksums(), core.superblock.is_64bit);
            journal.write_super(&core.buffers, 0)?;
            core.journal = Some(journal);
            core.mark_mounted(now)?;
            core.free_orphans(now)?;
        }
        Ok(core)
    }

    /// Before anything is written: whoever finds the disk after a crash replays the journal.
    fn mark_mounted(&mut self, now: Timespec) -> Result<()> {
        self.write_superblock_at_once(|raw| {
            put32(raw, field::INCOMPAT, le32(raw, field::INCOMPAT) | incompat::RECOVER);
            put16(raw, field::STATE, le16(raw, field::STATE) & !STATE_VALID);
            put32(raw, field::MOUNT_TIME, now.seconds as u32);
            put16(raw, field::MOUNT_COUNT, le16(raw, field::MOUNT_COUNT).saturating_add(1));
        })
    }

    /// Changes the superblock where it is, while the journal is empty. Its sum is in another sector than what it is about, and the two may
    /// not come to the disk together: with sums it is in the log before, which stays empty for everybody who finds it whole.
    fn write_superblock_at_once(&mut self, change: impl FnOnce(&mut [u8])) -> Result<()> {
        let (block, at) = self.superblock_place();
        let has_checksums = self.superblock.has_checksums();
        self.buffers.begin();
        let raw = &mut self.buffers.edit(block, Kind::Plain)?[at..at + superblock::LENGTH];
        change(raw);
        seal_superblock(raw, has_checksums);
        self.buffers.keep();
        match self.journal.as_mut().filter(|_| has_checksums) {
            Some(journal) => journal.shadow(&mut self.buffers, Timespec::now().seconds as u64)?,
            None => {
                self.buffers.settle();
                self.buffers.committed();
            }
        }
        self.buffers.write_home()
    }

    fn superblock_place(&self) -> (u64, usize) {
        let size = self.superblock.block_size as u64;
        (PLACE / size, (PLACE % size) as usize)
    }

    pub(crate) fn superblock_bytes(&mut self) -> Result<&[u8]> {
        let (block, at) = self.superblock_place();
        Ok(&self.buffers.get(block, Kind::Plain)?[at..at + superblock::LENGTH])
    }

    pub(crate) fn edit_superblock(&mut self) -> Result<&mut [u8]> {
        let (block, at) = self.superblock_place();
        Ok(&mut self.buffers.edit(block, Kind::Plain)?[at..at + superblock::LENGTH])
    }

    fn check_root(&mut self) -> core::result::Result<(), Refusal> {
        let root = self.inode(crate::ROOT)?;
        if root.is_directory() { Ok(()) } else { Err(Refusal("its root is no directory", EUCLEAN)) }
    }

    pub fn block_size(&self) -> usize {
        self.superblock.block_size
    }

    pub fn is_read_only(&self) -> bool {
        self.is_read_only || self.has_failed
    }

    pub fn check_writable(&self) -> Result<()> {
        if self.is_read_only() { Err(EROFS) } else { Ok(()) }
    }

    /// Runs an operation that changes at most `credits` blocks. It is in the running transaction as a whole, or has changed nothing.
    pub(crate) fn transact<T>(
        &mut self,
        credits: usize,
        operation: impl FnOnce(&mut Core) -> Result<T>,
    ) -> Result<T> {
        self.check_writable()?;
        self.make_room(credits)?;
        self.buffers.begin();
        self.has_touched_memory = false;
        let result = operation(self);
        let fits =
            |core: &Core| core.journal.as_ref().is_some_and(|j| j.has_room(core.buffers.dirty_count()));
        match result {
            Ok(value) if fits(self) => {
                self.buffers.keep();
                Ok(value)
            }
            result => {
                if !self.buffers.undo() {
                    self.fail("there is no memory to undo an operation");
                }
                if core::mem::take(&mut self.has_touched_memory) {
                    self.indexes.clear();
                    if self.read_orphans().is_err() {
                        self.fail("the list of orphans cannot be read");
                    }
                }
                Err(result.err().unwrap_or(ENOSPC))
            }
        }
    }

    /// Sees to it that the running transaction may change so many blocks more.
    fn make_room(&mut self, credits: usize) -> Result<()> {
        let journal = self.journal.as_ref().ok_or(EROFS)?;
        let wanted = self.buffers.dirty_count() + credits;
        if wanted <= journal.max_transaction() && journal.has_room(wanted) {
            return Ok(());
        }
        self.commit()?;
        let journal = self.journal.as_ref().ok_or(EROFS)?;
        if !journal.has_room(credits) {
            self.checkpoint()?;
        }
        let most = self.journal.as_ref().map_or(0, Journal::max_transaction);
        if credits > most { Err(ENOSPC) } else { Ok(()) }
    }

    /// Blocks that an operation may change that is one of several.
    pub(crate) fn credits_of_part(&self) -> usize {
        self.journal.as_ref().map_or(CREDITS, |journal| (journal.max_transaction() / 2).max(CREDITS))
    }

    /// Nothing is written any more.
    #[cold]
    pub(crate) fn fail(&mut self, why: &str) {
        if !self.has_failed {
            log::error!("ext4: {why}: the file system is read-only from now on");
        }
        self.has_failed = true;
    }

    /// Makes everything that was done survive a crash: data, then the transaction, then a flush of the disk.
    pub fn sync(&mut self) -> Result<()> {
        if self.is_read_only {
            return Ok(());
        }
        self.check_writable().map_err(|_| EIO)?;
        self.commit()?;
        if self.is_unflushed {
            self.buffers.disk.flush().inspect_err(|_| self.fail("the disk cannot be flushed"))?;
            self.is_unflushed = false;
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        self.write_data().inspect_err(|_| self.fail("file data cannot be written"))?;
        if self.buffers.settle().is_empty() {
            return Ok(());
        }
        let now = Timespec::now();
        let result = self.seal(now).and_then(|()| {
            let journal = self.journal.as_mut().ok_or(EROFS)?;
            journal.commit(&mut self.buffers, now.seconds as u64)
        });
        result.inspect_err(|_| self.fail("the journal cannot be written"))?;
        self.is_unflushed = false;
        if self.must_checkpoint {
            self.checkpoint()?;
        }
        self.freed.clear();
        Ok(())
    }

    /// Makes the sums of all blocks of the transaction. Those of bitmaps are in the descriptors of their groups.
    fn seal(&mut self, now: Timespec) -> Result<()> {
        self.buffers.begin();
        let mut at = 0;
        while let Some(block) = self.buffers.dirty.get(at).copied() {
            at += 1;
            if let Some(kind) = self.buffers.known(block).map(|buffer| buffer.kind) {
                self.seal_bitmap(block, kind)?;
            }
        }
        let has_checksums = self.superblock.has_checksums();
        let raw = self.edit_superblock()?;
        put32(raw, field::WRITE_TIME, now.seconds as u32);
        seal_superblock(raw, has_checksums);
        self.buffers.keep();
        self.buffers.seal();
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<()> {
        let journal = self.journal.as_mut().ok_or(EROFS)?;
        let result = journal.checkpoint(&mut self.buffers);
        result.inspect_err(|_| self.fail("metadata cannot be written"))?;
        self.must_checkpoint = false;
        Ok(())
    }

    /// Writes everything and leaves the disk as mkfs(8) does: nothing is to be replayed. No file may be used any more.
    pub fn unmount(&mut self) -> Result<()> {
        if self.is_read_only() {
            return if self.has_failed { Err(EIO) } else { Ok(()) };
        }
        self.sync()?;
        self.checkpoint()?;
        let has_orphans = !self.orphans.is_empty();
        self.is_read_only = true;
        self.write_superblock_at_once(|raw| {
            put32(raw, field::INCOMPAT, le32(raw, field::INCOMPAT) & !incompat::RECOVER);
            if !has_orphans && le16(raw, field::STATE) & STATE_ERROR == 0 {
                put16(raw, field::STATE, le16(raw, field::STATE) | STATE_VALID);
            }
        })
    }

    pub fn stat_fs(&mut self) -> Result<StatFs> {
        let raw = self.superblock_bytes()?;
        let blocks_free =
            u64::from(le32(raw, field::FREE_BLOCKS)) | u64::from(le32(raw, field::FREE_BLOCKS_HIGH)) << 32;
        let files_free = u64::from(le32(raw, field::FREE_INODES));
        let overhead: u64 = self.system.iter().map(|(start, end)| end - start).sum();
        Ok(StatFs {
            magic: MAGIC,
            block_size: self.superblock.block_size as u64,
            blocks: self.superblock.blocks.saturating_sub(overhead),
            blocks_free,
            files: u64::from(self.superblock.inodes),
            files_free,
            name_max: 255,
        })
    }
}

fn seal_superblock(raw: &mut [u8], has_checksums: bool) {
    if has_checksums {
        let sum = crc32c(!0, &raw[..field::CHECKSUM]);
        put32(raw, field::CHECKSUM, sum);
    }
}

fn read_superblock(disk: &Arc<dyn Disk>) -> core::result::Result<Superblock, Refusal> {
    if disk.bytes() < 64 << 10 {
        return Err(Refusal("it is too small for a file system", EINVAL));
    }
    // As much as the largest block: sectors may be larger than the superblock.
    let mut bytes = zeroed(4096)?;
    disk.read(0, &mut bytes)?;
    let start = PLACE as usize;
    Superblock::parse(&bytes[start..start + superblock::LENGTH], disk.bytes())
}

/// The journal's file, whose blocks are read past the checks of blocks of files.
fn find_journal(superblock: &Superblock, buffers: &mut Buffers) -> core::result::Result<Journal, Refusal> {
    let damaged = |e| Refusal("its journal is damaged", e);
    let mut core = Core::new(superblock.clone(), Buffers::new(buffers.disk.clone(), superblock), true);
    let inode = core.inode_or_reserved(superblock.journal_inode).map_err(damaged)?;
    let blocks = inode.size() / superblock.block_size as u64;
    let blocks = u32::try_from(blocks).map_err(|_| damaged(EUCLEAN))?;
    let mut pieces: Vec<Piece> = Vec::new();
    let mut logical = 0;
    while logical < blocks {
        let found = core.map(&inode, logical).map_err(damaged)?;
        let start = found.physical.filter(|_| !found.is_unwritten).ok_or(damaged(EUCLEAN))?;
        let count = found.count.min(blocks - logical);
        pieces.reserve_fallibly(1).map_err(|_| ENOMEM)?;
        pieces.push(Piece { logical, start, count });
        logical += count;
    }
    let first = pieces.first().ok_or(damaged(EUCLEAN))?.start;
    let mut raw = zeroed(superblock.block_size)?;
    buffers.disk.read(first * superblock.block_size as u64, &mut raw)?;
    Journal::parse(raw, pieces, blocks).map_err(damaged)
}
