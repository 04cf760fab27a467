// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Operations on names and attributes. Rights were checked by callers, who know the program.

use crate::buffers::Kind;
use crate::data::MAX_FILE;
use crate::directory::entry_kind;
use crate::extents::Extent;
use crate::inode::{BLOCK_BYTES, Inode, New, Time, flag};
use crate::log_damage;
use crate::mount::{CREDITS, Core};
use abi::{Result, errno::*};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_fs::{FileType, NAME_MAX, SetAttr, Stat, Timespec};

/// Names of one inode at most; directories may have more below them.
const MAX_LINKS: u16 = 65000;
const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;

impl Core {
    pub fn stat(&mut self, number: u32) -> Result<Stat> {
        let block_size = self.superblock.block_size;
        let inode = self.inode(number)?;
        if inode.links() == 0 && !self.orphans.contains_key(&number) {
            return Err(ESTALE);
        }
        inode.stat(block_size)
    }

    /// The inode of a name.
    pub fn lookup(&mut self, directory: u32, name: &[u8]) -> Result<u32> {
        let directory = self.inode(directory)?;
        let found = self.find(&directory, name)?.ok_or(ENOENT)?;
        let inode = self.inode(found.inode)?;
        let is_right = inode.links() > 0 && inode.kind().map(entry_kind) == Some(found.kind);
        if !is_right {
            log_damage("a name leads to an inode of another kind", found.inode.into());
            return Err(EUCLEAN);
        }
        Ok(found.inode)
    }

    /// Blocks that were freed can be used after a commit: what finds no room is tried once more then.
    pub(crate) fn with_space<T>(&mut self, mut operation: impl FnMut(&mut Core) -> Result<T>) -> Result<T> {
        match operation(self) {
            Err(ENOSPC) if !self.freed.is_empty() => {
                self.sync()?;
                operation(self)
            }
            done => done,
        }
    }

    /// A directory whose names may change.
    fn changing(&mut self, number: u32) -> Result<Inode> {
        let directory = self.inode(number)?;
        if !directory.is_directory() {
            return Err(ENOTDIR);
        }
        // Removed, and still open.
        if directory.links() == 0 { Err(ENOENT) } else { Ok(directory) }
    }

    fn check_new_name(&mut self, directory: &Inode, name: &[u8]) -> Result<()> {
        if name.len() > NAME_MAX {
            return Err(ENAMETOOLONG);
        }
        if self.find(directory, name)?.is_some() { Err(EEXIST) } else { Ok(()) }
    }

    /// Blocks that a change of this directory changes at most.
    fn credits(&mut self, directory: &Inode) -> Result<usize> {
        Ok(CREDITS + self.index_blocks(directory)?.len())
    }

    fn touch(directory: &mut Inode, now: Timespec) {
        directory.set_time(Time::Modified, now);
        directory.set_time(Time::Changed, now);
    }

    /// Counts one more subdirectory.
    fn add_subdirectory(&self, directory: &mut Inode) -> Result<()> {
        match directory.links() {
            // Of more than can be counted.
            1 => {}
            links if links + 1 < MAX_LINKS => directory.set_links(links + 1),
            _ if self.superblock.has_dir_nlink => directory.set_links(1),
            _ => return Err(EMLINK),
        }
        Ok(())
    }

    fn remove_subdirectory(directory: &mut Inode) {
        let links = directory.links();
        if links > 2 {
            directory.set_links(links - 1);
        }
    }

    /// Makes a file of any type but a link.
    pub fn create(&mut self, parent: u32, name: &[u8], new: New) -> Result<u32> {
        self.with_space(|core| core.try_create(parent, name, new))
    }

    fn try_create(&mut self, parent: u32, name: &[u8], new: New) -> Result<u32> {
        let mut directory = self.changing(parent)?;
        self.check_new_name(&directory, name)?;
        let credits = self.credits(&directory)?;
        self.transact(credits, |core| {
            let mut inode = core.new_inode(parent, &new)?;
            if new.kind == FileType::Directory {
                core.make_directory(&mut inode, parent)?;
                core.add_subdirectory(&mut directory)?;
            }
            core.put(&mut inode)?;
            core.add_name(&mut directory, name, inode.number, new.kind)?;
            Core::touch(&mut directory, new.now);
            core.put(&mut directory)?;
            Ok(inode.number)
        })
    }

    /// Makes a regular file without a name: it is freed when nobody holds it.
    pub fn create_unnamed(&mut self, parent: u32, new: New, is_linkable: bool) -> Result<u32> {
        let number = self.with_space(|core| core.try_create_unnamed(parent, new))?;
        if is_linkable {
            self.linkable.insert_fallibly(number, ()).map_err(|_| ENOMEM)?;
        }
        Ok(number)
    }

    fn try_create_unnamed(&mut self, parent: u32, new: New) -> Result<u32> {
        self.changing(parent)?;
        self.transact(CREDITS, |core| {
            let mut inode = core.new_inode(parent, &new)?;
            inode.set_links(0);
            core.add_orphan(&mut inode)?;
            core.put(&mut inode)?;
            Ok(inode.number)
        })
    }

    pub fn symlink(&mut self, parent: u32, name: &[u8], target: &[u8], new: New) -> Result<u32> {
        self.with_space(|core| core.try_symlink(parent, name, target, new))
    }

    fn try_symlink(&mut self, parent: u32, name: &[u8], target: &[u8], mut new: New) -> Result<u32> {
        let mut directory = self.changing(parent)?;
        if target.len() >= self.superblock.block_size {
            return Err(ENAMETOOLONG);
        }
        self.check_new_name(&directory, name)?;
        new.kind = FileType::Symlink;
        new.permissions = 0o777;
        let credits = self.credits(&directory)?;
        self.transact(credits, |core| {
            let mut inode = core.new_inode(parent, &new)?;
            inode.set_size(target.len() as u64);
            if target.len() < BLOCK_BYTES {
                inode.block_mut()[..target.len()].copy_from_slice(target);
            } else {
                inode.set_flags(flag::EXTENTS);
                crate::extents::make_root(inode.block_mut());
                let (physical, _) = core.allocate(core.next_block, 1)?;
                core.insert(&mut inode, Extent { logical: 0, count: 1, physical, is_unwritten: false })?;
                inode.add_blocks(1, core.superblock.block_size);
                core.buffers.fresh(physical, Kind::Plain)?[..target.len()].copy_from_slice(target);
            }
            core.put(&mut inode)?;
            core.add_name(&mut directory, name, inode.number, FileType::Symlink)?;
            Core::touch(&mut directory, new.now);
            core.put(&mut directory)?;
            Ok(inode.number)
        })
    }

    pub fn read_link(&mut self, number: u32) -> Result<Vec<u8>> {
        let inode = self.inode(number)?;
        if inode.kind() != Some(FileType::Symlink) {
            return Err(EINVAL);
        }
        let length = usize::try_from(inode.size()).map_err(|_| EUCLEAN)?;
        let mut target = Vec::new();
        target.reserve_exact_fallibly(length.min(self.superblock.block_size)).map_err(|_| ENOMEM)?;
        if !inode.has(flag::EXTENTS) {
            target.extend_from_slice(
                inode.block().get(..length).filter(|_| length < BLOCK_BYTES).ok_or(EUCLEAN)?,
            );
        } else if length < self.superblock.block_size && !inode.has(flag::FOREIGN) {
            let physical = self.map(&inode, 0)?.physical.ok_or(EUCLEAN)?;
            target.extend_from_slice(&self.buffers.get(physical, Kind::Plain)?[..length]);
        } else {
            return Err(EUCLEAN);
        }
        Ok(target)
    }

    /// One more name for a file that is no directory.
    pub fn link(&mut self, parent: u32, name: &[u8], number: u32, now: Timespec) -> Result<()> {
        self.with_space(|core| core.try_link(parent, name, number, now))
    }

    fn try_link(&mut self, parent: u32, name: &[u8], number: u32, now: Timespec) -> Result<()> {
        let mut directory = self.changing(parent)?;
        let mut inode = self.inode(number)?;
        if inode.is_directory() {
            return Err(EPERM);
        }
        // Its last name is gone, which is for good, unless it never had one (O_TMPFILE).
        if inode.links() == 0 && !self.linkable.contains_key(&number) {
            return Err(ENOENT);
        }
        if inode.links() >= MAX_LINKS {
            return Err(EMLINK);
        }
        self.check_new_name(&directory, name)?;
        let credits = self.credits(&directory)?;
        self.transact(credits, |core| {
            if inode.links() == 0 {
                core.remove_orphan(&mut inode)?;
            }
            inode.set_links(inode.links() + 1);
            inode.set_time(Time::Changed, now);
            core.put(&mut inode)?;
            let kind = inode.kind().ok_or(EUCLEAN)?;
            core.add_name(&mut directory, name, number, kind)?;
            Core::touch(&mut directory, now);
            core.put(&mut directory)
        })?;
        self.linkable.remove(&number);
        Ok(())
    }

    /// Removes a name; an empty directory's with `is_directory`.
    pub fn unlink(&mut self, parent: u32, name: &[u8], is_directory: bool, now: Timespec) -> Result<()> {
        let number = self.lookup(parent, name)?;
        let mut directory = self.changing(parent)?;
        let mut inode = self.inode(number)?;
        match (is_directory, inode.is_directory()) {
            (true, false) => return Err(ENOTDIR),
            (false, true) => return Err(EISDIR),
            (true, true) if !self.is_empty(&inode)? => return Err(ENOTEMPTY),
            _ => {}
        }
        let credits = self.credits(&directory)?;
        self.transact(credits, |core| {
            core.remove_name(&mut directory, name)?;
            if is_directory {
                Core::remove_subdirectory(&mut directory);
            }
            Core::touch(&mut directory, now);
            core.put(&mut directory)?;
            core.lose_link(&mut inode, now)
        })?;
        self.free_unless_held(number, now);
        Ok(())
    }

    /// A name of an inode is gone, in the running operation.
    fn lose_link(&mut self, inode: &mut Inode, now: Timespec) -> Result<()> {
        let links = if inode.is_directory() { 0 } else { inode.links().checked_sub(1).ok_or(EUCLEAN)? };
        inode.set_links(links);
        inode.set_time(Time::Changed, now);
        if links == 0 {
            self.has_touched_memory |= self.indexes.remove(&inode.number).is_some();
            self.add_orphan(inode)?;
        }
        self.put(inode)
    }

    /// rename(2), with RENAME_NOREPLACE and RENAME_EXCHANGE. That a directory is not moved below itself was checked by the caller.
    pub fn rename(&mut self, from: (u32, &[u8]), to: (u32, &[u8]), flags: u32, now: Timespec) -> Result<()> {
        self.with_space(|core| core.try_rename(from, to, flags, now))
    }

    fn try_rename(&mut self, from: (u32, &[u8]), to: (u32, &[u8]), flags: u32, now: Timespec) -> Result<()> {
        let (source, target) = (self.changing(from.0)?, self.changing(to.0)?);
        let moving = self.lookup(from.0, from.1)?;
        if to.1.len() > NAME_MAX {
            return Err(ENAMETOOLONG);
        }
        let there = match self.lookup(to.0, to.1) {
            Ok(there) => Some(there),
            Err(ENOENT) => None,
            Err(e) => return Err(e),
        };
        if there == Some(moving) {
            return if flags & RENAME_NOREPLACE != 0 { Err(EEXIST) } else { Ok(()) };
        }
        let credits = self.credits(&source)? + self.credits(&target)?;
        match (flags, there) {
            (RENAME_NOREPLACE, Some(_)) => return Err(EEXIST),
            (RENAME_EXCHANGE, None) => return Err(ENOENT),
            (RENAME_EXCHANGE, Some(there)) => {
                return self.transact(credits, |core| core.exchange(from, to, (moving, there), now));
            }
            _ => {}
        }
        if let Some(there) = there {
            let (moving, there) = (self.inode(moving)?, self.inode(there)?);
            match (moving.is_directory(), there.is_directory()) {
                (true, false) => return Err(ENOTDIR),
                (false, true) => return Err(EISDIR),
                (true, true) if !self.is_empty(&there)? => return Err(ENOTEMPTY),
                _ => {}
            }
        }
        self.transact(credits, |core| core.replace(from, to, (moving, there), now))?;
        if let Some(there) = there {
            self.free_unless_held(there, now);
        }
        Ok(())
    }

    /// The part of [`Core::rename`] that changes anything. Each inode is read and written once at a time: source and target may be one.
    fn replace(
        &mut self,
        from: (u32, &[u8]),
        to: (u32, &[u8]),
        (moving, there): (u32, Option<u32>),
        now: Timespec,
    ) -> Result<()> {
        let mut inode = self.inode(moving)?;
        let kind = inode.kind().ok_or(EUCLEAN)?;
        let is_directory = kind == FileType::Directory;
        let mut target = self.inode(to.0)?;
        match there {
            Some(there) => {
                self.replace_name(&mut target, to.1, moving, kind)?;
                let mut there = self.inode(there)?;
                if there.is_directory() {
                    Core::remove_subdirectory(&mut target);
                }
                self.lose_link(&mut there, now)?;
            }
            None => self.add_name(&mut target, to.1, moving, kind)?,
        }
        if is_directory && from.0 != to.0 {
            self.add_subdirectory(&mut target)?;
        }
        Core::touch(&mut target, now);
        self.put(&mut target)?;
        let mut source = self.inode(from.0)?;
        self.remove_name(&mut source, from.1)?;
        if is_directory && from.0 != to.0 {
            Core::remove_subdirectory(&mut source);
            self.replace_name(&mut inode, b"..", to.0, FileType::Directory)?;
        }
        Core::touch(&mut source, now);
        self.put(&mut source)?;
        inode.set_time(Time::Changed, now);
        self.put(&mut inode)
    }

    fn exchange(
        &mut self,
        from: (u32, &[u8]),
        to: (u32, &[u8]),
        (moving, there): (u32, u32),
        now: Timespec,
    ) -> Result<()> {
        for (directory, name, inode) in [(from.0, from.1, there), (to.0, to.1, moving)] {
            let kind = self.inode(inode)?.kind().ok_or(EUCLEAN)?;
            let mut directory = self.inode(directory)?;
            self.replace_name(&mut directory, name, inode, kind)?;
            Core::touch(&mut directory, now);
            self.put(&mut directory)?;
        }
        for (number, old, new) in [(moving, from.0, to.0), (there, to.0, from.0)] {
            let mut inode = self.inode(number)?;
            if inode.is_directory() && old != new {
                self.replace_name(&mut inode, b"..", new, FileType::Directory)?;
                let (mut left, mut entered) = (self.inode(old)?, self.inode(new)?);
                Core::remove_subdirectory(&mut left);
                self.put(&mut left)?;
                self.add_subdirectory(&mut entered)?;
                self.put(&mut entered)?;
            }
            inode.set_time(Time::Changed, now);
            self.put(&mut inode)?;
        }
        Ok(())
    }

    /// chmod(2), chown(2), utimensat(2) and truncate(2).
    pub fn set_attributes(&mut self, number: u32, change: &SetAttr, now: Timespec) -> Result<()> {
        if let Some(size) = change.size {
            self.truncate(number, size, now)?;
        }
        let has_more = change.permissions.is_some()
            || change.uid.is_some()
            || change.gid.is_some()
            || change.accessed.is_some()
            || change.modified.is_some();
        if !has_more {
            return self.check_writable();
        }
        self.transact(CREDITS, |core| {
            let mut inode = core.inode(number)?;
            if let Some(permissions) = change.permissions {
                inode.set_permissions(permissions);
            }
            let (uid, gid) = inode.owner();
            inode.set_owner((change.uid.unwrap_or(uid), change.gid.unwrap_or(gid)));
            if let Some(time) = change.accessed {
                inode.set_time(Time::Accessed, time);
            }
            if let Some(time) = change.modified {
                inode.set_time(Time::Modified, time);
            }
            inode.set_time(Time::Changed, now);
            core.put(&mut inode)
        })
    }

    /// Flags that protect it, as FS_IOC_GETFLAGS has them: immutable, append-only, and what dump(8) and times of access ask for.
    pub fn protection(&mut self, number: u32) -> Result<u32> {
        Ok(self.inode(number)?.flags() & flag::PROTECTION)
    }

    pub fn set_protection(&mut self, number: u32, flags: u32, now: Timespec) -> Result<()> {
        self.transact(CREDITS, |core| {
            let mut inode = core.inode(number)?;
            inode.set_flags(inode.flags() & !flag::PROTECTION | flags & flag::PROTECTION);
            inode.set_time(Time::Changed, now);
            core.put(&mut inode)
        })
    }

    /// The file was read: its time of access, by the rule of `relatime`.
    pub fn accessed(&mut self, number: u32, now: Timespec) -> Result<()> {
        const DAY: i64 = 24 * 3600;
        let mut inode = self.inode(number)?;
        let (accessed, modified) = (inode.time(Time::Accessed), inode.time(Time::Modified));
        if inode.has(flag::NOATIME) {
            return Ok(());
        }
        let is_old = accessed <= modified
            || accessed <= inode.time(Time::Changed)
            || now.seconds - accessed.seconds >= DAY;
        if !is_old || self.is_read_only() || accessed == now {
            return Ok(());
        }
        self.transact(CREDITS, |core| {
            inode.set_time(Time::Accessed, now);
            core.put(&mut inode)
        })
    }

    /// `EFBIG` for a length that no file can have.
    pub(crate) fn check_size(&self, size: u64) -> Result<()> {
        if size > self.superblock.max_size().min(MAX_FILE) { Err(EFBIG) } else { Ok(()) }
    }
}
