// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which files are open for writing: nobody may execute those (ETXTBSY).

use alloc::sync::Arc;
use api_fs::Inode;
use api_lock::SpinLock;
use ordered::Map;

/// How many open file descriptions may write to an inode, by its address, which they keep from being used again.
static WRITERS: SpinLock<Map<usize, usize>> = SpinLock::new(Map::new());

fn key(inode: &Arc<dyn Inode>) -> usize {
    Arc::as_ptr(inode).cast::<()>() as usize
}

/// Whether the file is open for writing.
pub fn is_written(inode: &Arc<dyn Inode>) -> bool {
    WRITERS.lock().contains_key(&key(inode))
}

/// How many descriptions may write to the file.
pub fn count(inode: &Arc<dyn Inode>) -> usize {
    WRITERS.lock().get(&key(inode)).copied().unwrap_or(0)
}

pub(crate) fn add(inode: &Arc<dyn Inode>) {
    *WRITERS.lock().entry(key(inode)).or_default() += 1;
}

pub(crate) fn remove(inode: &Arc<dyn Inode>) {
    let mut writers = WRITERS.lock();
    if let Some(count) = writers.get_mut(&key(inode)) {
        *count -= 1;
        if *count == 0 {
            writers.remove(&key(inode));
        }
    }
}
