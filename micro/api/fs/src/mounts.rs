// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How often a file system is mounted.

use core::sync::atomic::{AtomicBool, Ordering};

/// The mounts of one file system. Each of them has names of its own for the file system's inodes; what one mount makes or
/// removes, another one that keeps names does not hear of. So names are kept only as long as there was never a second mount.
#[derive(Debug, Default)]
pub struct Mounts {
    is_mounted: AtomicBool,
    is_shared: AtomicBool,
}

impl Mounts {
    /// The file system is mounted, once more if it was before.
    pub fn add(&self) {
        if self.is_mounted.swap(true, Ordering::Relaxed) {
            self.is_shared.store(true, Ordering::Relaxed);
        }
    }

    /// It was mounted twice, by a bind mount or in two mount namespaces.
    pub fn is_shared(&self) -> bool {
        self.is_shared.load(Ordering::Relaxed)
    }
}
