// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What all mounts of one file system share.

use crate::mount::MountFlags;
use crate::namespace::Owner;
use abi::{Result, errno::*};
use alloc::string::String;
use api_lock::SpinLock;
use core::sync::atomic::{AtomicU32, Ordering};

/// A mounted file system, as its mounts know it.
pub struct SuperBlock {
    flags: AtomicU32,
    /// Open descriptions that may write to regular files, through whatever mount.
    writers: AtomicU32,
    owner: Owner,
    options: SpinLock<String>,
}

impl SuperBlock {
    /// Of these flags the ones of file systems; whoever may administer what belongs to `owner` may change them.
    pub fn new(flags: MountFlags, owner: Owner) -> SuperBlock {
        let flags = AtomicU32::new(flags.0 & MountFlags::OF_FILE_SYSTEM);
        SuperBlock { flags, writers: AtomicU32::new(0), owner, options: SpinLock::default() }
    }

    /// With options of its own, as mountinfo shows them: each behind a comma.
    pub fn with_options(self, options: String) -> SuperBlock {
        self.set_options(options);
        self
    }

    pub fn options(&self) -> String {
        self.options.lock().clone()
    }

    /// A remount changed them.
    pub fn set_options(&self, options: String) {
        *self.options.lock() = options;
    }

    pub fn flags(&self) -> MountFlags {
        MountFlags(self.flags.load(Ordering::Relaxed))
    }

    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// The flags of `mask` become those of `new`. `EBUSY` where a file system that becomes one for reading only has files that are open
    /// for writing.
    pub fn reconfigure(&self, new: MountFlags, mask: u32) -> Result<()> {
        self.check_writers(new, mask)?;
        let set = |now: u32| Some(now & !mask | new.0 & mask & MountFlags::OF_FILE_SYSTEM);
        let _ = self.flags.fetch_update(Ordering::Relaxed, Ordering::Relaxed, set);
        Ok(())
    }

    fn check_writers(&self, new: MountFlags, mask: u32) -> Result<()> {
        let becomes_read_only = new.0 & mask & MountFlags::READ_ONLY != 0
            && !self.flags().has(MountFlags::READ_ONLY)
            && self.writers.load(Ordering::Relaxed) > 0;
        if becomes_read_only { Err(EBUSY) } else { Ok(()) }
    }

    pub(crate) fn add_writer(&self) {
        self.writers.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn remove_writer(&self) {
        self.writers.fetch_sub(1, Ordering::Relaxed);
    }
}
