// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Inodes without a name that are still held, and files that are being cut: a list on the disk, so that after a crash the next mount frees
//! what nobody can reach.

use crate::bytes::*;
use crate::inode::Inode;
use crate::log_damage;
use crate::mount::{CREDITS, Core};
use crate::superblock::field;
use abi::{Result, errno::*};
use api_fs::Timespec;

impl Core {
    /// Puts an inode in front of the list, in the running operation. The caller writes the inode.
    pub(crate) fn add_orphan(&mut self, inode: &mut Inode) -> Result<()> {
        if self.orphans.contains_key(&inode.number) {
            return Ok(());
        }
        self.has_touched_memory = true;
        let raw = self.edit_superblock()?;
        let first = le32(raw, field::LAST_ORPHAN);
        put32(raw, field::LAST_ORPHAN, inode.number);
        inode.set_next_orphan(first);
        self.orphans.insert_fallibly(inode.number, (0, first)).map_err(|_| ENOMEM)?;
        if let Some(next) = self.orphans.get_mut(&first) {
            next.0 = inode.number;
        }
        Ok(())
    }

    /// Takes an inode off the list, in the running operation. The caller writes the inode.
    pub(crate) fn remove_orphan(&mut self, inode: &mut Inode) -> Result<()> {
        let Some((before, next)) = self.orphans.get(&inode.number).copied() else { return Ok(()) };
        self.has_touched_memory = true;
        if before == 0 {
            put32(self.edit_superblock()?, field::LAST_ORPHAN, next);
        } else {
            let mut before = self.inode_or_reserved(before)?;
            before.set_next_orphan(next);
            self.put(&mut before)?;
        }
        inode.set_next_orphan(0);
        self.orphans.remove(&inode.number);
        if let Some(entry) = self.orphans.get_mut(&before) {
            entry.1 = next;
        }
        if let Some(entry) = self.orphans.get_mut(&next) {
            entry.0 = before;
        }
        Ok(())
    }

    /// Reads the list of the disk.
    pub(crate) fn read_orphans(&mut self) -> Result<()> {
        self.orphans.clear();
        let mut number = le32(self.superblock_bytes()?, field::LAST_ORPHAN);
        let mut before = 0;
        while number != 0 {
            let inode = self.inode(number)?;
            let next = inode.next_orphan();
            if self.orphans.contains_key(&number) || !self.is_inode_used(number)? {
                log_damage("the list of orphans is damaged", number.into());
                return Err(EUCLEAN);
            }
            self.orphans.insert_fallibly(number, (before, next)).map_err(|_| ENOMEM)?;
            (before, number) = (number, next);
        }
        Ok(())
    }

    /// Frees what was on the list when the machine before ended.
    pub(crate) fn free_orphans(&mut self, now: Timespec) -> Result<()> {
        self.read_orphans()?;
        let first = |core: &Core| core.orphans.keys().next().copied();
        while let Some(number) = first(self) {
            let inode = self.inode(number)?;
            if inode.links() == 0 {
                self.free_file(number, now)?;
            } else {
                self.finish_cut(number)?;
            }
        }
        Ok(())
    }

    /// Somebody uses the inode: it stays when its last name goes.
    pub fn hold(&mut self, number: u32) -> Result<()> {
        self.pages_of(number)?.holders += 1;
        Ok(())
    }

    /// Somebody uses it no more. One without a name is freed.
    pub fn release(&mut self, number: u32, now: Timespec) {
        if let Some(pages) = self.pages.get_mut(&number) {
            pages.holders = pages.holders.saturating_sub(1);
        }
        if self.orphans.contains_key(&number) {
            self.free_unless_held(number, now);
        } else {
            self.forget_pages_of_unused(number);
        }
    }

    pub(crate) fn free_unless_held(&mut self, number: u32, now: Timespec) {
        let is_held = self.pages.get(&number).is_some_and(|pages| pages.holders > 0);
        if is_held || !self.orphans.contains_key(&number) || self.is_read_only() {
            return;
        }
        // What cannot be freed now is on the list, and freed when the disk is mounted next.
        if let Err(e) = self.free_file(number, now) {
            log_damage("an inode cannot be freed", number.into());
            log::warn!("ext4: {e:?}");
        }
    }

    /// Frees the blocks of an inode on the list, and the inode.
    fn free_file(&mut self, number: u32, now: Timespec) -> Result<()> {
        self.drop_pages(number, 0);
        self.pages.remove(&number);
        self.linkable.remove(&number);
        self.dirty_files.remove(&number);
        let inode = self.inode(number)?;
        if inode.links() != 0 {
            return Err(EUCLEAN);
        }
        self.cut_blocks(number, 0)?;
        self.transact(CREDITS, |core| {
            let mut inode = core.inode(number)?;
            core.free_attributes(&mut inode)?;
            let is_directory = inode.is_directory();
            core.remove_orphan(&mut inode)?;
            inode.set_size(0);
            // The time of its end, in the place of the list's next.
            inode.set_next_orphan(now.seconds as u32);
            core.put(&mut inode)?;
            core.free_inode(number, is_directory)
        })
    }
}
