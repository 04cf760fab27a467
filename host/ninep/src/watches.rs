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
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Directories that a machine may watch by each of its shares: each holds a kibibyte of the host's memory.
const SHARE: usize = 1024;
/// Most shares of a machine. It has one from the beginning, and takes more as it needs them.
const MAX_SHARES: usize = 8;
/// Where none was left it is looked for another one after so many directories.
const AGAIN: usize = 256;
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
    _instance: File,
    pool: Pool,
    state: Mutex<State>,
}

struct State {
    /// How many handles each watch has.
    handles: HashMap<i32, usize>,
    shares: Vec<File>,
    /// Directories that could not be watched.
    refused: usize,
}

/// What there is for all machines of a user: files in a directory of his, of which each is locked by whom it stands for.
struct Pool {
    folder: PathBuf,
    kind: &'static str,
    most: usize,
}

impl Pool {
    fn take(&self) -> Option<File> {
        (0..self.most).find_map(|number| {
            let file = File::create(self.folder.join(format!("{}{number}", self.kind))).ok()?;
            file.try_lock().is_ok().then_some(file)
        })
    }
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
        std::fs::create_dir_all(shares).ok()?;
        let pool = |kind, most| Pool { folder: shares.to_path_buf(), kind, most };
        let instance = pool("queue", limit("instances") / 2).take()?;
        let pool = pool("share", limit("watches") / 2 / SHARE);
        let state = State { handles: HashMap::new(), shares: vec![pool.take()?], refused: 0 };
        let queue = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK).ok()?;
        Some(Arc::new(Watches { queue, _instance: instance, pool, state: Mutex::new(state) }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the machine reads events from.
    pub fn queue(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }

    /// Watches a directory. `None`: its changes cannot be told, or there are too many watches.
    pub fn add(self: &Arc<Watches>, directory: &OwnedFd) -> Option<Watched> {
        use inotify::WatchFlags as W;
        let mut state = self.state();
        if !is_of_this_host(directory) || !state.has_room(&self.pool) {
            return None;
        }
        let names = W::CREATE | W::DELETE | W::MOVED_FROM | W::MOVED_TO | W::DELETE_SELF | W::MOVE_SELF;
        let flags = names | W::ATTRIB | W::MODIFY | W::ONLYDIR;
        let number = inotify::add_watch(&self.queue, &*by_number(directory), flags).ok()?;
        *state.handles.entry(number).or_default() += 1;
        Some(Watched { of: self.clone(), number })
    }
}

impl State {
    /// There may be another watch.
    fn has_room(&mut self, pool: &Pool) -> bool {
        if self.handles.len() < self.shares.len() * SHARE {
            return true;
        }
        let tries = self.shares.len() < MAX_SHARES && self.refused.is_multiple_of(AGAIN);
        let share = if tries { pool.take() } else { None };
        match share {
            Some(share) => self.shares.push(share),
            None => self.refused += 1,
        }
        self.handles.len() < self.shares.len() * SHARE
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
        let mut state = self.of.state();
        let Some(count) = state.handles.get_mut(&self.number) else { return };
        *count -= 1;
        if *count == 0 {
            state.handles.remove(&self.number);
            // It has gone by itself where the directory has.
            let _ = inotify::remove_watch(&self.of.queue, self.number);
        }
    }
}
