// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Open file descriptions.

use crate::{locks, writers};
use abi::{Events, Result, errno::*};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_fs::{File, Inode, Sink, Source};
use api_lock::SpinLock;
use api_sched::WaitQueue;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use vfs::{Dentry, notify};

const O_ACCMODE: u32 = 0o3;
const O_APPEND: u32 = 0o2000;
const O_NONBLOCK: u32 = 0o4000;
const O_DSYNC: u32 = 0o10000;
const O_ASYNC: u32 = 0o20000;
const O_DIRECT: u32 = 0o40000;
const O_LARGEFILE: u32 = 0o100000;
const O_DIRECTORY: u32 = 0o200000;
const O_NOFOLLOW: u32 = 0o400000;
const O_NOATIME: u32 = 0o1000000;
const O_SYNC: u32 = 0o4010000;
const O_PATH: u32 = 0o10000000;
/// The bit of its own of O_TMPFILE.
const O_TMPFILE: u32 = 0o20000000;
/// What F_SETFL changes; the rest is ignored, as fcntl(2) says.
const SETTABLE: u32 = O_APPEND | O_NONBLOCK | O_ASYNC | O_DIRECT | O_NOATIME;
/// What F_GETFL shows besides the access mode: creation flags are not kept.
const KEPT: u32 = O_ACCMODE | SETTABLE | O_SYNC | O_PATH | O_LARGEFILE | O_DIRECTORY | O_NOFOLLOW | O_TMPFILE;

static NEXT_ID: AtomicUsize = AtomicUsize::new(1);
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Somebody who watches a description and must let it go when it is closed: an epoll instance.
pub trait Watcher: Send + Sync {
    /// The description with this [`Description::id`] is closed. Must not block.
    fn closed(&self, description: usize);
}

/// What the number of an owner names, as `struct f_owner_ex` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerKind {
    Thread = 0,
    Process = 1,
    Group = 2,
}

/// Who gets the signals of a file (F_SETOWN); nobody with id 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owned {
    pub kind: OwnerKind,
    pub id: i32,
    /// When it was named, in nanoseconds since boot: a process that was made later and was given the number is somebody else.
    pub since_ns: u64,
    pub by: OwnedBy,
}

/// Who said so: the signals are sent with the rights that it had then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnedBy {
    pub uid: u32,
    pub euid: u32,
    /// It was the machine's first process.
    pub is_first: bool,
}

/// Of a packed [`Owned`]: [`OwnedBy::is_first`].
const BY_FIRST: u64 = 1 << 34;

/// An open file description.
pub struct Description {
    file: Arc<dyn File>,
    place: Option<Arc<Dentry>>,
    id: usize,
    is_seekable: bool,
    position: AtomicU64,
    /// Somebody reads or writes at the position, which may wait for a disk or a host; the others wait for that.
    is_moving: AtomicBool,
    movers: WaitQueue,
    flags: AtomicU32,
    /// F_SETOWN: [`Owned`], packed, its users apart; and F_SETSIG.
    owner: AtomicU64,
    owned_by: AtomicU64,
    owned_since_ns: AtomicU64,
    signal: AtomicI32,
    /// F_SET_RW_HINT, where the file has no inode that keeps it.
    write_hint: AtomicU8,
    watchers: SpinLock<Vec<Weak<dyn Watcher>>>,
    /// It is one of the writers of a regular file ([`writers`]).
    is_writer: AtomicBool,
    /// Record locks or flock were taken through this description.
    has_locks: AtomicBool,
    is_closed: AtomicBool,
}

impl Description {
    /// `flags` are open(2)'s; `place` is where it was found, for files that have a name.
    pub fn new(file: Arc<dyn File>, flags: u32, place: Option<Arc<Dentry>>) -> Arc<Description> {
        COUNT.fetch_add(1, Ordering::Relaxed);
        Arc::new(Description {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            is_seekable: file.is_seekable(),
            file,
            place,
            position: AtomicU64::new(0),
            is_moving: AtomicBool::new(false),
            movers: WaitQueue::new(),
            flags: AtomicU32::new(flags & KEPT),
            owner: AtomicU64::new(0),
            owned_by: AtomicU64::new(0),
            owned_since_ns: AtomicU64::new(0),
            signal: AtomicI32::new(0),
            write_hint: AtomicU8::new(0),
            watchers: SpinLock::new(Vec::new()),
            is_writer: AtomicBool::new(false),
            has_locks: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
        })
    }

    /// How many there are.
    pub fn count() -> usize {
        COUNT.load(Ordering::Relaxed)
    }

    #[inline]
    pub fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    /// Where it is in the tree.
    pub fn place(&self) -> Option<&Arc<Dentry>> {
        self.place.as_ref()
    }

    pub fn inode(&self) -> Option<&Arc<dyn Inode>> {
        self.file.inode()
    }

    /// The lifetime of what is written to the file (F_SET_RW_HINT): all who have it open share it, of a pipe or socket those who share this
    /// description.
    pub fn write_hint(&self) -> &AtomicU8 {
        self.inode().and_then(|inode| inode.write_hint()).unwrap_or(&self.write_hint)
    }

    /// As F_GETFL shows them.
    pub fn flags(&self) -> u32 {
        self.flags.load(Ordering::Relaxed)
    }

    /// F_SETFL.
    pub fn set_flags(&self, flags: u32) {
        let new = self.flags() & !SETTABLE | flags & SETTABLE;
        self.flags.store(new, Ordering::Relaxed);
        self.file.flags_changed(new);
    }

    pub fn is_nonblocking(&self) -> bool {
        self.flags() & O_NONBLOCK != 0
    }

    /// O_PATH: only names the place.
    pub fn is_path_only(&self) -> bool {
        self.flags() & O_PATH != 0
    }

    pub fn may_read(&self) -> bool {
        self.flags() & O_ACCMODE & !2 == 0 && !self.is_path_only()
    }

    pub fn may_write(&self) -> bool {
        matches!(self.flags() & O_ACCMODE, 1 | 2) && !self.is_path_only()
    }

    #[inline]
    pub fn is_seekable(&self) -> bool {
        self.is_seekable
    }

    pub fn position(&self) -> u64 {
        self.position.load(Ordering::Relaxed)
    }

    pub fn set_position(&self, position: u64) {
        self.position.store(position, Ordering::Relaxed);
    }

    /// The position for as long as the answer lives; `None` while another thread has it. Of two threads that write, the
    /// second goes on where the first ended (POSIX 2.9.7, Linux' f_pos_lock). Whoever waits does so on
    /// [`Description::movers`].
    #[inline]
    pub fn hold_position(&self) -> Option<Moving<'_>> {
        if self.is_moving.swap(true, Ordering::Acquire) { None } else { Some(Moving(self)) }
    }

    /// Woken when the position is free again.
    pub fn movers(&self) -> &WaitQueue {
        &self.movers
    }

    /// read(2): from the position on, which moves. The caller holds the position where threads share it.
    pub fn read(&self, to: &mut Sink<'_>) -> Result<usize> {
        if !self.may_read() {
            return Err(EBADF);
        }
        if !self.is_seekable {
            let n = self.file.read(0, to)?;
            return Ok(self.used(n, notify::ACCESS));
        }
        let at = self.position();
        check_range(at, to.remaining())?;
        let n = self.file.read(at, to)?;
        self.set_position(at + n as u64);
        Ok(self.used(n, notify::ACCESS))
    }

    /// write(2): at the position, or at the end with O_APPEND.
    pub fn write(&self, from: &mut Source<'_>) -> Result<usize> {
        if !self.may_write() {
            return Err(EBADF);
        }
        if !self.is_seekable {
            let n = self.file.write(0, from)?;
            return Ok(self.used(n, notify::MODIFY));
        }
        let n = if self.flags() & O_APPEND != 0 {
            let (n, end) = self.file.append(from)?;
            self.set_position(end);
            n
        } else {
            let at = self.position();
            check_range(at, from.remaining())?;
            let n = self.file.write(at, from)?;
            self.set_position(at + n as u64);
            n
        };
        self.after_write(n)
    }

    /// pread(2).
    pub fn read_at(&self, offset: u64, to: &mut Sink<'_>) -> Result<usize> {
        if !self.is_seekable {
            return Err(ESPIPE);
        }
        if !self.may_read() {
            return Err(EBADF);
        }
        check_range(offset, to.remaining())?;
        let n = self.file.read(offset, to)?;
        Ok(self.used(n, notify::ACCESS))
    }

    /// pwrite(2); with O_APPEND at the end all the same, as Linux has it.
    pub fn write_at(&self, offset: u64, from: &mut Source<'_>) -> Result<usize> {
        if !self.is_seekable {
            return Err(ESPIPE);
        }
        if !self.may_write() {
            return Err(EBADF);
        }
        // O_APPEND does not use the offset, which must be one of a file all the same.
        check_range(offset, from.remaining())?;
        let n = if self.flags() & O_APPEND != 0 {
            self.file.append(from)?.0
        } else {
            self.file.write(offset, from)?
        };
        self.after_write(n)
    }

    #[inline]
    fn after_write(&self, n: usize) -> Result<usize> {
        if self.flags() & O_DSYNC != 0 && n > 0 {
            self.synchronise()?;
        }
        Ok(self.used(n, notify::MODIFY))
    }

    /// O_DSYNC or O_SYNC after a write.
    #[cold]
    fn synchronise(&self) -> Result<()> {
        self.file.sync(self.flags() & O_SYNC != O_SYNC)
    }

    /// Tells who watches the file that `n` bytes of it were read or written.
    #[inline]
    fn used(&self, n: usize, event: u32) -> usize {
        if n > 0 {
            self.happened(event);
        }
        n
    }

    /// Tells who watches the file of what was done to it by this description.
    #[inline]
    pub fn happened(&self, event: u32) {
        if notify::is_watched()
            && let Some(place) = &self.place
        {
            notify::event(place, event);
        }
    }

    pub fn owned(&self) -> Owned {
        let packed = self.owner.load(Ordering::Relaxed);
        let kind = match packed >> 32 & 3 {
            0 => OwnerKind::Thread,
            1 => OwnerKind::Process,
            _ => OwnerKind::Group,
        };
        let users = self.owned_by.load(Ordering::Relaxed);
        let by = OwnedBy { uid: users as u32, euid: (users >> 32) as u32, is_first: packed & BY_FIRST != 0 };
        Owned { kind, id: packed as i32, since_ns: self.owned_since_ns.load(Ordering::Relaxed), by }
    }

    pub fn set_owned(&self, owned: Owned) {
        let by = owned.by;
        let first = if by.is_first { BY_FIRST } else { 0 };
        let packed = (owned.kind as u64) << 32 | u64::from(owned.id as u32) | first;
        self.owned_by.store(u64::from(by.euid) << 32 | u64::from(by.uid), Ordering::Relaxed);
        self.owned_since_ns.store(owned.since_ns, Ordering::Relaxed);
        self.owner.store(packed, Ordering::Relaxed);
    }

    pub fn signal(&self) -> i32 {
        self.signal.load(Ordering::Relaxed)
    }

    pub fn set_signal(&self, signal: i32) {
        self.signal.store(signal, Ordering::Relaxed);
    }

    /// A number of its own, never used again.
    pub fn id(&self) -> usize {
        self.id
    }

    /// Tells `watcher` when it is closed; `ENOMEM` when there is no memory for another one.
    pub fn watch(&self, watcher: &Arc<dyn Watcher>) -> Result<()> {
        let mut watchers = self.watchers.lock();
        watchers.retain(|w| w.strong_count() > 0);
        if !watchers.iter().any(|w| core::ptr::addr_eq(w.as_ptr(), Arc::as_ptr(watcher))) {
            watchers.reserve_fallibly(1).map_err(|_| ENOMEM)?;
            watchers.push(Arc::downgrade(watcher));
        }
        Ok(())
    }

    /// Counts it as one that may write to its regular file, until it is closed.
    pub fn note_writer(&self) {
        if let Some(inode) = self.file.inode()
            && !self.is_writer.swap(true, Ordering::Relaxed)
        {
            writers::add(inode);
            if let Some(place) = &self.place {
                place.mount().add_writer();
            }
        }
    }

    pub(crate) fn note_locks(&self) {
        self.has_locks.store(true, Ordering::Relaxed);
    }

    fn end(&self) -> Result<()> {
        if self.is_closed.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let id = self.id;
        let watchers = core::mem::take(&mut *self.watchers.lock());
        for watcher in watchers {
            if let Some(watcher) = watcher.upgrade() {
                watcher.closed(id);
            }
        }
        if self.has_locks.load(Ordering::Relaxed)
            && let Some(inode) = self.file.inode()
        {
            locks::description_closed(inode, id);
        }
        if self.is_writer.swap(false, Ordering::Relaxed)
            && let Some(inode) = self.file.inode()
        {
            writers::remove(inode);
            if let Some(place) = &self.place {
                place.mount().remove_writer();
            }
        }
        if let Some(place) = &self.place {
            place.mount().note_use();
        }
        if self.is_path_only() {
            return Ok(());
        }
        self.happened(if self.may_write() { notify::CLOSE_WRITE } else { notify::CLOSE_NOWRITE });
        self.file.close()
    }

    /// close(2) of one descriptor: the file's error when this was the last one.
    pub fn close(self: Arc<Description>) -> Result<()> {
        if Arc::strong_count(&self) > 1 {
            self.file.handle_closed();
        }
        match Arc::into_inner(self) {
            Some(last) => last.end(),
            None => Ok(()),
        }
    }
}

/// `EINVAL` for bytes beyond the last position that there is, 2^63 - 1 (Linux' `rw_verify_area`).
#[inline]
pub fn check_range(offset: u64, count: usize) -> Result<()> {
    match offset.checked_add(count as u64) {
        Some(end) if end <= i64::MAX as u64 => Ok(()),
        _ => Err(EINVAL),
    }
}

/// The right to move a description's position.
pub struct Moving<'a>(&'a Description);

impl Drop for Moving<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.is_moving.store(false, Ordering::Release);
        if !self.0.movers.is_empty() {
            self.0.movers.wake(Events::IN);
        }
    }
}

impl Drop for Description {
    fn drop(&mut self) {
        COUNT.fetch_sub(1, Ordering::Relaxed);
        // Nobody is left to hear of an error.
        let _ = self.end();
    }
}
