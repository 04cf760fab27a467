// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Moving names (rename(2)).

use crate::names::{RENAME_EXCHANGE, clear, remove_directory};
use crate::node::Node;
use crate::{Changes, is_whiteout, lookup};
use abi::{Result, errno::*};
use alloc::sync::Arc;
use api_fs::{FileType, Inode};
use core::sync::atomic::Ordering;

const RENAME_NOREPLACE: u32 = 1;

impl Node {
    /// `EXDEV` for a directory that shows what is in a lower one: programs copy it then (`redirect_dir=off`, Linux' default).
    fn check_movable(&self) -> Result<()> {
        let is_lower = self.kind == FileType::Directory && !self.lowers.is_empty();
        if is_lower { Err(EXDEV) } else { Ok(()) }
    }

    /// What is below the place that a directory is moved to is not to be seen in it. `EXDEV` where that cannot be said, so that programs copy
    /// it.
    fn make_opaque(&self, moved: &Arc<Node>) -> Result<()> {
        let upper = moved.upper().ok_or(EIO)?;
        if self.fs.is_opaque(&upper) { Ok(()) } else { self.fs.set_opaque(&upper).map_err(|_| EXDEV) }
    }

    fn is_below(self: &Arc<Node>, other: &Arc<Node>) -> bool {
        let mut at = Some(self.clone());
        while let Some(node) = at {
            if Arc::ptr_eq(&node, other) {
                return true;
            }
            at = node.parent();
        }
        false
    }

    pub(crate) fn move_to(&self, name: &[u8], to: &Arc<Node>, to_name: &[u8], flags: u32) -> Result<()> {
        let exchanges = flags & RENAME_EXCHANGE != 0;
        if flags & !(RENAME_EXCHANGE | RENAME_NOREPLACE) != 0 {
            return Err(EINVAL);
        }
        let mut guard = self.fs.changes.lock();
        let changes = guard.get();
        let node = self.find(changes, name)?;
        let there = match to.find(changes, to_name) {
            Ok(_) if flags & RENAME_NOREPLACE != 0 => return Err(EEXIST),
            Ok(there) if Arc::ptr_eq(&there, &node) => return Ok(()),
            Ok(there) => Some(there),
            Err(ENOENT) if !exchanges => None,
            Err(e) => return Err(e),
        };
        node.check_movable()?;
        let is_directory = node.kind == FileType::Directory;
        // The caller saw that no directory gets into itself by the names of one mount, which may be others by now in another.
        if is_directory && to.is_below(&node) {
            return Err(EINVAL);
        }
        if exchanges {
            return self.exchange(changes, (&node, name), to, (&there.ok_or(ENOENT)?, to_name));
        }
        if let Some(there) = &there {
            match (is_directory, there.kind == FileType::Directory) {
                (true, false) => return Err(ENOTDIR),
                (false, true) => return Err(EISDIR),
                (true, true) => there.check_empty(changes)?,
                _ => {}
            }
        }
        node.copy_up_now(changes, true)?;
        let from_upper = self.copy_up_now(changes, true)?;
        let to_upper = to.copy_up_now(changes, true)?;
        let leaves_whiteout = self.lower_has(name)?;
        if !is_directory {
            to.set_impure()?;
            from_upper.rename(name, &to_upper, to_name, 0)?;
            if leaves_whiteout {
                self.fs.put_whiteout(changes, &from_upper, name)?;
            }
        } else {
            self.move_directory(changes, (&node, &from_upper, name), (to, &to_upper, to_name))?;
        }
        if let Some(there) = there.filter(|_| is_directory) {
            there.is_removed.store(true, Ordering::Relaxed);
        }
        self.forget(name);
        to.forget(to_name);
        node.moved(to, to_name);
        Ok(())
    }

    /// Moves a directory of the upper layer, to a free name or over one that shows nothing.
    fn move_directory(
        &self,
        changes: &mut Changes,
        (node, from_upper, name): (&Arc<Node>, &Arc<dyn Inode>, &[u8]),
        (to, to_upper, to_name): (&Arc<Node>, &Arc<dyn Inode>, &[u8]),
    ) -> Result<()> {
        let leaves_whiteout = self.lower_has(name)?;
        let covered = lookup(to_upper, to_name)?;
        if covered.is_some() || to.is_merged() {
            self.make_opaque(node)?;
        }
        match covered {
            None => from_upper.rename(name, to_upper, to_name, 0)?,
            Some(covered) if is_whiteout(&covered)? => {
                // The whiteout is left behind, where it is wanted.
                from_upper.rename(name, to_upper, to_name, RENAME_EXCHANGE)?;
                return if leaves_whiteout { Ok(()) } else { from_upper.unlink(name, false) };
            }
            Some(covered) => {
                // It has nothing but whiteouts, and what it covers is covered by the moved one.
                clear(&covered, 1)?;
                from_upper.rename(name, to_upper, to_name, RENAME_EXCHANGE)?;
                if !leaves_whiteout {
                    return remove_directory(from_upper, name);
                }
            }
        }
        if leaves_whiteout { self.fs.put_whiteout(changes, from_upper, name) } else { Ok(()) }
    }

    fn exchange(
        &self,
        changes: &mut Changes,
        (node, name): (&Arc<Node>, &[u8]),
        to: &Arc<Node>,
        (there, to_name): (&Arc<Node>, &[u8]),
    ) -> Result<()> {
        there.check_movable()?;
        let this = self.this()?;
        if there.kind == FileType::Directory && this.is_below(there) {
            return Err(EINVAL);
        }
        for moved in [node, there] {
            moved.copy_up_now(changes, true)?;
        }
        let from_upper = self.copy_up_now(changes, true)?;
        let to_upper = to.copy_up_now(changes, true)?;
        for (moved, directory) in [(node, to), (there, &this)] {
            match moved.kind {
                FileType::Directory if directory.is_merged() => self.make_opaque(moved)?,
                FileType::Directory => {}
                _ => directory.set_impure()?,
            }
        }
        from_upper.rename(name, &to_upper, to_name, RENAME_EXCHANGE)?;
        self.forget(name);
        to.forget(to_name);
        node.moved(to, to_name);
        there.moved(&this, name);
        Ok(())
    }
}
