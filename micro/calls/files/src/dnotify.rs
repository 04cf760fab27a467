// SPDX-License-Identifier: Apache-2.0 OR MIT
//! F_NOTIFY of fcntl(2): a signal when something happens in a directory. What inotify(7) replaced.

use crate::async_io;
use abi::{Events, Result, errno::*};
use alloc::sync::{Arc, Weak};
use api_lock::SpinLock;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use descriptors::{Description, OwnerKind, Watcher};
use ordered::Map;
use vfs::notify::{self, Watch};

const DN_ACCESS: u32 = 1;
const DN_MODIFY: u32 = 2;
const DN_CREATE: u32 = 4;
const DN_DELETE: u32 = 8;
const DN_RENAME: u32 = 0x10;
const DN_ATTRIB: u32 = 0x20;
const DN_MULTISHOT: u32 = 0x8000_0000;
/// `si_code` of SIGIO: there is a message.
const POLL_MSG: i32 = 3;
const EPOLLMSG: Events = Events(0x400);

/// What one description wants to hear of its directory.
struct Notice {
    description: Weak<Description>,
    fd: i32,
    /// DN_*.
    wanted: AtomicU32,
    /// Of the directory.
    key: notify::Key,
}

/// By [`Description::id`].
static NOTICES: SpinLock<Map<usize, Arc<Notice>>> = SpinLock::new(Map::new());

/// The events of `notify` that the flags stand for.
fn events(wanted: u32) -> u32 {
    [
        (DN_ACCESS, notify::ACCESS),
        (DN_MODIFY, notify::MODIFY),
        (DN_CREATE, notify::CREATE | notify::MOVED_TO),
        (DN_DELETE, notify::DELETE | notify::MOVED_FROM),
        (DN_RENAME, notify::SAME_DIRECTORY),
        (DN_ATTRIB, notify::ATTRIB),
    ]
    .into_iter()
    .filter(|(flag, _)| wanted & flag != 0)
    .fold(0, |all, (_, events)| all | events)
}

impl Watch for Notice {
    fn happened(&self, mask: u32, _: u32, _: Option<&[u8]>, _: bool) {
        let wanted = self.wanted.load(Relaxed);
        if events(wanted) & mask == 0 {
            return;
        }
        if wanted & DN_MULTISHOT == 0 {
            self.wanted.store(0, Relaxed);
        }
        if let Some(description) = self.description.upgrade() {
            let band = Events::READABLE | EPOLLMSG;
            async_io::send(&description, self.fd, POLL_MSG, band);
        }
    }

    fn gone(&self) {
        self.wanted.store(0, Relaxed);
    }
}

impl Watcher for Notice {
    fn closed(&self, description: usize) {
        forget(description);
    }
}

/// The description with that number wants no signals any more.
fn forget(description: usize) {
    let gone = NOTICES.lock().remove(&description);
    if let Some(notice) = gone {
        notify::remove(notice.key, Arc::as_ptr(&notice).cast());
    }
}

/// F_NOTIFY. What a description asks for adds up; DN_MULTISHOT keeps it after the first event.
pub fn notify(fd: i32, description: &Arc<Description>, wanted: u32) -> Result<usize> {
    if wanted & !DN_MULTISHOT == 0 {
        forget(description.id());
        return Ok(0);
    }
    let place = description.place().filter(|place| place.is_directory()).ok_or(ENOTDIR)?;
    if description.owned().id == 0 {
        description.set_owned(async_io::owned(OwnerKind::Process, task::current().process.pid));
    }
    let known = NOTICES.lock().get(&description.id()).cloned();
    if let Some(notice) = known {
        notice.wanted.fetch_or(wanted, Relaxed);
        return Ok(0);
    }
    let key = notify::key(place.inode())?;
    let wanted = AtomicU32::new(wanted);
    let notice = Arc::new(Notice { description: Arc::downgrade(description), fd, key, wanted });
    let watcher: Arc<dyn Watcher> = notice.clone();
    description.watch(&watcher)?;
    let watch: Arc<dyn Watch> = notice.clone();
    notify::add(key, Arc::downgrade(&watch))?;
    NOTICES.lock().insert(description.id(), notice);
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_stand_for_events() {
        assert_eq!(events(DN_CREATE), notify::CREATE | notify::MOVED_TO);
        assert_eq!(events(DN_MULTISHOT), 0);
        assert_eq!(events(DN_ACCESS | DN_ATTRIB), notify::ACCESS | notify::ATTRIB);
    }
}
