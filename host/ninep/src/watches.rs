// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a machine's kernel is told of changes in the directories that it has looked at, so that it need not ask again: watches of
//! inotify(7), whose descriptor the machine reads itself. An event is queued before the call that made the change returns, so a kernel
//! that finds the queue empty knows what was said before to be true still.

use crate::export::by_number;
use rustix::fs::{self, inotify};
use std::{
    collections::HashMap,
    fs::File,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

/// Directories of one machine that are watched at a time: each holds a kibibyte of the host's memory.
const MAX_WATCHES: usize = 1024;
/// File systems whose every change is made by this kernel's calls: the others (network, FUSE, /proc) change without an event.
/// ext4, XFS, Btrfs, tmpfs, ramfs, overlayfs, F2FS, bcachefs, ZFS, SquashFS, EROFS (statfs(2)).
const TOLD: [u32; 11] = [
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0x0102_1994,
    0x8584_58f6,
    0x794c_7630,
    0xf2f5_2010,
    0xca45_1a4e,
    0x2fc1_2fc1,
    0x7371_7368,
    0xe0f5_e1e2,
];

/// The watches of a machine.
pub struct Watches {
    queue: OwnedFd,
    /// What this machine may have one by.
    _share: File,
    /// How many handles each watch has.
    handles: Mutex<HashMap<i32, usize>>,
}

/// A watch, for as long as a handle has it.
pub struct Watched {
    of: Arc<Watches>,
    number: i32,
}

impl Watches {
    /// `None`: machines have as many already as may be theirs, or this user as many as he may. A user has few queues and watches, which
    /// are for whatever else he runs as well: machines take no more than half of either. `shares`: a directory of this user's, in which
    /// each machine locks a file.
    pub fn new(shares: &Path) -> Option<Arc<Watches>> {
        let limit = |name: &str| {
            let text = std::fs::read_to_string(format!("/proc/sys/fs/inotify/max_user_{name}"));
            text.ok().and_then(|text| text.trim().parse::<usize>().ok()).unwrap_or(0)
        };
        let most = (limit("instances") / 2).min(limit("watches") / 2 / MAX_WATCHES);
        std::fs::create_dir_all(shares).ok()?;
        let share = (0..most).find_map(|number| {
            let file = File::create(shares.join(number.to_string())).ok()?;
            file.try_lock().is_ok().then_some(file)
        })?;
        let queue = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK).ok()?;
        Some(Arc::new(Watches { queue, _share: share, handles: Mutex::default() }))
    }

    /// What the machine reads events from.
    pub fn queue(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }

    /// Watches a directory. `None`: its changes cannot be told, or there are too many watches.
    pub fn add(self: &Arc<Watches>, directory: &OwnedFd) -> Option<Watched> {
        use inotify::WatchFlags as W;
        let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_of_this_host(directory) || handles.len() >= MAX_WATCHES {
            return None;
        }
        let names = W::CREATE | W::DELETE | W::MOVED_FROM | W::MOVED_TO | W::DELETE_SELF | W::MOVE_SELF;
        let flags = names | W::ATTRIB | W::MODIFY | W::ONLYDIR;
        let number = inotify::add_watch(&self.queue, &*by_number(directory), flags).ok()?;
        *handles.entry(number).or_default() += 1;
        Some(Watched { of: self.clone(), number })
    }
}

/// The file is one of this kernel's own.
pub fn is_of_this_host(file: &OwnedFd) -> bool {
    fs::fstatfs(file).is_ok_and(|of| TOLD.contains(&(of.f_type as u32)))
}

impl Watched {
    pub fn number(&self) -> i32 {
        self.number
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let mut handles = self.of.handles.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(count) = handles.get_mut(&self.number) else { return };
        *count -= 1;
        if *count == 0 {
            handles.remove(&self.number);
            // It has gone by itself where the directory has.
            let _ = inotify::remove_watch(&self.of.queue, self.number);
        }
    }
}
