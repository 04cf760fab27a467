// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files: what a descriptor refers to ([`File`]), and what a path leads to ([`Inode`]).
//!
//! # Contract
//!
//! - **No operation of a [`File`] blocks** for a peer or a person: it answers `EAGAIN`, and [`File::wait_queue`] is
//!   woken when that changes. The system-call layer does the waiting, so O_NONBLOCK, timeouts and signals are in
//!   one place. Disk-like waits (9p) may block inside.
//! - Errors are those of the system call in Linux' manual; callers pass them on unchanged.
//! - Read and write return a short count rather than an error once a byte was moved.
//! - Implementations lock inside and take `&self`; no lock may be held while moving bytes from or to a [`Sink`] or
//!   [`Source`], for that may fault: copy through a frame or a buffer.
//! - Names in directories are bytes without `/` and NUL, never empty, `.` or `..` (the path walk in `vfs` deals
//!   with those), at most [`NAME_MAX`] long.
#![no_std]
#![deny(unsafe_code)]
extern crate alloc;

mod acl;
mod inode_flags;
mod mounts;
mod unnamed;

pub use acl::{Acl, AclKind, UncheckedAcl};
pub use inode_flags::{InodeFlags, StoredFlags};
pub use mounts::Mounts;
pub use unnamed::Unnamed;

use abi::{Errno, Events, Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_lock::SpinLock;
use api_mem::PageSource;
use api_sched::WaitQueue;
pub use api_user::{Sink, Source, zeroed};
use core::any::Any;
use core::sync::atomic::AtomicU8;

/// Longest name in a directory (Linux `NAME_MAX`).
pub const NAME_MAX: usize = 255;

static KEEPS_SET_ID: SpinLock<Option<fn() -> bool>> = SpinLock::new(None);

/// Makes known how to tell whether the caller of a system call has CAP_FSETID.
pub fn register_keeps_set_id(keeps: fn() -> bool) {
    *KEEPS_SET_ID.lock() = Some(keeps);
}

/// Whether a write by the caller leaves the bits of set-user-id and set-group-id: the right of CAP_FSETID (capabilities(7)).
pub fn keeps_set_id() -> bool {
    let keeps = *KEEPS_SET_ID.lock();
    keeps.is_some_and(|keeps| keeps())
}

/// File type bits of `st_mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum FileType {
    /// A file that is none of these: an event's counter, an epoll instance.
    Anonymous = 0,
    Fifo = 0o010000,
    CharDevice = 0o020000,
    Directory = 0o040000,
    BlockDevice = 0o060000,
    Regular = 0o100000,
    Symlink = 0o120000,
    Socket = 0o140000,
}

impl FileType {
    /// From the type bits of a mode.
    pub fn from_mode(mode: u32) -> Option<FileType> {
        use FileType::*;
        [Fifo, CharDevice, Directory, BlockDevice, Regular, Symlink, Socket]
            .into_iter()
            .find(|t| *t as u32 == mode & 0o170000)
    }

    /// `d_type` of getdents64 (DT_DIR and so on).
    pub fn dirent_type(self) -> u8 {
        (self as u32 >> 12) as u8
    }
}

/// Seconds and nanoseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timespec {
    pub seconds: i64,
    /// 0 to 999,999,999.
    pub nanoseconds: u32,
}

impl Timespec {
    pub fn from_ns(ns: u64) -> Timespec {
        Timespec { seconds: (ns / 1_000_000_000) as i64, nanoseconds: (ns % 1_000_000_000) as u32 }
    }

    /// The wall clock, for time stamps of files.
    #[cfg(not(feature = "host"))]
    pub fn now() -> Timespec {
        Timespec::from_ns(unilith_fs_now_ns())
    }

    /// A fixed time, for tests.
    #[cfg(feature = "host")]
    pub fn now() -> Timespec {
        Timespec::from_ns(1_700_000_000_000_000_000)
    }
}

#[cfg(not(feature = "host"))]
#[allow(unsafe_code)] // declares one safe symbol
unsafe extern "Rust" {
    /// Nanoseconds since 1970; the system-call layer provides it.
    safe fn unilith_fs_now_ns() -> u64;
}

/// What stat(2) and statx(2) report.
#[derive(Clone, Copy, Debug)]
pub struct Stat {
    pub device: u64,
    pub inode: u64,
    pub kind: FileType,
    /// Permission bits with set-user-id and so on, without the type: `0o7777`.
    pub permissions: u32,
    pub links: u64,
    pub uid: u32,
    pub gid: u32,
    /// Device number of a device node.
    pub rdev: u64,
    pub size: u64,
    pub block_size: u32,
    /// 512-byte blocks.
    pub blocks: u64,
    pub accessed: Timespec,
    pub modified: Timespec,
    pub changed: Timespec,
    /// It has an access control list, of which the permission bits are a part ([`Inode::acl`]).
    pub has_acl: bool,
    /// `None` of a file system that has no such flags.
    pub flags: Option<InodeFlags>,
}

impl Stat {
    /// A stat of the given type with the rest zero, one link and 4 KiB blocks.
    pub fn new(kind: FileType, permissions: u32) -> Stat {
        let zero = Timespec::default();
        Stat {
            device: 0,
            inode: 0,
            kind,
            permissions,
            links: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            block_size: 4096,
            blocks: 0,
            accessed: zero,
            modified: zero,
            changed: zero,
            has_acl: false,
            flags: None,
        }
    }

    /// `st_mode`.
    pub fn mode(&self) -> u32 {
        self.kind as u32 | self.permissions
    }
}

/// Changes of an inode's attributes; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct SetAttr {
    pub permissions: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub accessed: Option<Timespec>,
    pub modified: Option<Timespec>,
}

/// What statfs(2) reports.
#[derive(Clone, Copy, Debug, Default)]
pub struct StatFs {
    /// `f_type`, as in statfs(2): TMPFS_MAGIC and so on.
    pub magic: u64,
    pub block_size: u64,
    pub blocks: u64,
    pub blocks_free: u64,
    pub files: u64,
    pub files_free: u64,
    pub name_max: u64,
}

/// What an open file description refers to. The defaults are those of an object that cannot do it.
pub trait File: Any + Send + Sync {
    /// Reads at `offset` (streams ignore it). `Ok(0)` is end of file; `EAGAIN` when there is nothing yet.
    fn read(&self, offset: u64, to: &mut Sink<'_>) -> Result<usize> {
        let _ = (offset, to);
        Err(EINVAL)
    }

    /// Writes at `offset` (streams ignore it).
    fn write(&self, offset: u64, from: &mut Source<'_>) -> Result<usize> {
        let _ = (offset, from);
        Err(EINVAL)
    }

    /// Whether read(2) is something that the file has at all (Linux' FMODE_CAN_READ): if not, `EINVAL` comes before what is wrong with
    /// the memory.
    fn can_read(&self) -> bool {
        true
    }

    /// The same of write(2).
    fn can_write(&self) -> bool {
        true
    }

    /// Writes at the end (O_APPEND) in one step against other appends; returns the bytes written and the position
    /// behind them.
    fn append(&self, from: &mut Source<'_>) -> Result<(usize, u64)> {
        let end = self.size()?;
        let n = self.write(end, from)?;
        Ok((n, end + n as u64))
    }

    /// Lines of its own in /proc/PID/fdinfo (proc_pid_fdinfo(5)). In the file's own crate, so that an image in which nobody opens
    /// such files has none of it.
    fn show_info(&self, out: &mut dyn core::fmt::Write) -> core::fmt::Result {
        let _ = out;
        Ok(())
    }

    /// What the link in /proc/PID/fd shows of a file without inode that is neither pipe nor socket, behind `anon_inode:`.
    fn anonymous_name(&self) -> &'static str {
        "[file]"
    }

    /// The name of a socket's protocol (the attribute `system.sockprotoname`).
    fn protocol_name(&self) -> Option<&'static str> {
        None
    }

    /// The number by which statfs(2) tells the file system of a file without a place in the tree.
    fn file_system(&self) -> Result<u64> {
        const PIPEFS_MAGIC: u64 = 0x5049_5045;
        const SOCKFS_MAGIC: u64 = 0x534f_434b;
        const ANON_INODE_FS_MAGIC: u64 = 0x0904_1934;
        Ok(match self.stat()?.kind {
            FileType::Fifo => PIPEFS_MAGIC,
            FileType::Socket => SOCKFS_MAGIC,
            _ => ANON_INODE_FS_MAGIC,
        })
    }

    /// True when the file has positions: lseek, pread and pwrite work. Otherwise they answer ESPIPE.
    fn is_seekable(&self) -> bool {
        false
    }

    /// How long a read that waits does so before it answers with what there is (VTIME, termios(3)); `None`: for ever.
    fn read_limit_ns(&self) -> Option<u64> {
        None
    }

    /// Reads what there is, although a read that waits wants more (VMIN, termios(3)): for who does not wait, or `has_waited`
    /// long enough. `EAGAIN` where there is no such thing.
    fn read_rest(&self, to: &mut Sink<'_>, has_waited: bool) -> Result<usize> {
        let _ = (to, has_waited);
        Err(EAGAIN)
    }

    /// False for devices where every offset is the same place: lseek takes any and answers 0 (null(4), random(4)).
    fn has_places(&self) -> bool {
        true
    }

    /// lseek(2) for files that are not seekable and keep a position of their own (/dev/kmsg); `None`: the generic lseek applies.
    fn seek_itself(&self, offset: i64, whence: u32) -> Option<Result<u64>> {
        let _ = (offset, whence);
        None
    }

    /// Where SEEK_END counts from; `EINVAL` where the end is not known before it is read (sequence files of /proc).
    fn seek_end(&self) -> Result<u64> {
        self.size()
    }

    /// Bytes in the file, for O_APPEND.
    fn size(&self) -> Result<u64> {
        Ok(self.stat()?.size)
    }

    fn stat(&self) -> Result<Stat>;

    /// Changes attributes of what has no inode; `EOPNOTSUPP` where all share those they have (Linux' anonymous inodes).
    fn set_attr(&self, change: &SetAttr) -> Result<()> {
        let _ = change;
        Err(EOPNOTSUPP)
    }

    /// What is possible now. Regular files are always ready.
    fn poll(&self) -> Events {
        Events::IN | Events::OUT | Events::RDNORM | Events::WRNORM
    }

    /// Woken when [`File::poll`] may have changed. `None`: it never changes (epoll refuses such files: EPERM).
    fn wait_queue(&self) -> Option<&WaitQueue> {
        None
    }

    /// `argument` is the raw third argument, often a user pointer.
    fn ioctl(&self, command: u32, argument: u64) -> Result<usize> {
        let _ = (command, argument);
        Err(ENOTTY)
    }

    /// The descriptor's O_NONBLOCK or O_APPEND and so on were changed by fcntl; most files need not know.
    fn flags_changed(&self, flags: u32) {
        let _ = flags;
    }

    /// The inode behind the descriptor: directories, regular files and device nodes have one; pipes and sockets
    /// do not.
    fn inode(&self) -> Option<&Arc<dyn Inode>> {
        None
    }

    /// Opens what has no inode once more, through its link in /proc (proc_pid_fd(5)): a file of its own, since each is closed once.
    /// `ENXIO`: it cannot be opened, as sockets and the files behind eventfd(2), epoll(7) and their like.
    fn open_anew(self: Arc<Self>, flags: u32) -> Result<Arc<dyn File>> {
        let _ = flags;
        Err(ENXIO)
    }

    /// Whether pwrite(2) makes sense, of a file that can be sought (Linux' FMODE_PWRITE): not where it is made line by line.
    fn can_write_at(&self) -> bool {
        true
    }

    /// Whether a regular file or block device may be opened with O_DIRECT.
    fn may_be_direct(&self) -> bool {
        true
    }

    /// For mmap: `ENODEV` by default.
    fn page_source(&self) -> Result<Arc<dyn PageSource>> {
        Err(ENODEV)
    }

    /// Stores what was written; `data_only` as fdatasync.
    fn sync(&self, data_only: bool) -> Result<()> {
        let _ = data_only;
        Err(EINVAL)
    }

    /// The next position at or behind `offset` that holds data, or with `hole` a hole; `ENXIO` behind the end
    /// (lseek SEEK_DATA, SEEK_HOLE). By default a file is all data, and a directory has none: `EINVAL`.
    fn seek_data(&self, offset: u64, hole: bool) -> Result<u64> {
        if self.stat()?.kind == FileType::Directory {
            return Err(EINVAL);
        }
        let size = self.size()?;
        if offset >= size {
            return Err(ENXIO);
        }
        Ok(if hole { size } else { offset })
    }

    /// fallocate(2) with its mode flags; the range was checked not to overflow.
    fn allocate(&self, mode: u32, offset: u64, length: u64) -> Result<()> {
        let _ = (mode, offset, length);
        Err(EOPNOTSUPP)
    }

    /// ftruncate.
    fn truncate(&self, size: u64) -> Result<()> {
        let _ = size;
        Err(EINVAL)
    }

    /// The last descriptor of the open file description goes. Errors are what close(2) returns.
    fn close(&self) -> Result<()> {
        Ok(())
    }

    /// A descriptor of the open file description goes, and other handles of it stay (Linux' `flush`). Must do no more than
    /// take note.
    fn handle_closed(&self) {}

    /// A descriptor of it may go to another process through a socket (SCM_RIGHTS).
    fn may_be_sent(&self) -> bool {
        true
    }

    /// For downcasting to a concrete type (sockets, epoll, pipes).
    fn as_any(&self) -> &dyn Any;
}

/// One entry of a directory listing.
#[derive(Clone, Debug)]
pub struct DirEntry {
    pub name: Vec<u8>,
    pub inode: u64,
    pub kind: FileType,
    /// Where a listing continues behind this entry; never 0.
    pub next: u64,
}

/// Answers an ioctl through its pointer to an `int`.
pub fn write_user_int(address: u64, value: i32) -> Result<()> {
    api_user::UserPtr::new(address).write(value)
}

/// Where a magic link of /proc leads, past its text.
pub enum Magic {
    /// A place in the file tree: a directory entry of `vfs`.
    Place(Arc<dyn Any + Send + Sync>),
    /// A file without a name, a pipe for one.
    File(Arc<dyn File>),
}

/// What a path leads to.
pub trait Inode: Any + Send + Sync {
    fn stat(&self) -> Result<Stat>;

    /// Device and number. Never blocks: who drops the last handle of a file tells its watches, whatever locks there are.
    fn identity(&self) -> Result<(u64, u64)> {
        self.stat().map(|stat| (stat.device, stat.inode))
    }

    /// The type, which never changes.
    fn kind(&self) -> Result<FileType> {
        Ok(self.stat()?.kind)
    }

    /// Of a file system whose names only the kernel makes and removes: its mounts. `None` where names may come and go
    /// without the kernel's doing (volumes of the host, /proc), so that each path walk asks [`Inode::lookup`] again.
    fn mounts(&self) -> Option<&Arc<Mounts>> {
        None
    }

    /// A character device 0:0 can be left behind by rename(2) in this directory (RENAME_WHITEOUT). A volume of the host has no such thing.
    fn takes_whiteouts(&self) -> bool {
        self.mounts().is_some()
    }

    /// For the links of /proc that lead somewhere by themselves (`/proc/self/fd/3`).
    fn magic(&self) -> Option<Result<Magic>> {
        None
    }

    /// Opens it. `flags` are open(2)'s: the inode honours O_TRUNC and access modes; permission checks, O_CREAT,
    /// O_EXCL and O_DIRECTORY were done by `vfs`. `this` is the inode itself.
    fn open(&self, this: &Arc<dyn Inode>, flags: u32) -> Result<Arc<dyn File>>;

    fn set_attr(&self, change: &SetAttr) -> Result<()> {
        let _ = change;
        Err(EPERM)
    }

    /// Target of a symbolic link; `EINVAL` for anything else.
    fn read_link(&self) -> Result<Vec<u8>> {
        Err(EINVAL)
    }

    fn lookup(&self, name: &[u8]) -> Result<Arc<dyn Inode>> {
        let _ = name;
        Err(ENOTDIR)
    }

    /// What the caller's access of this kind (access(2)'s bits) is answered whatever owner, permission bits and the caller's ids for files
    /// say; `None` where they decide.
    fn own_rule(&self, want: u32) -> Option<Result<()>> {
        let _ = want;
        None
    }

    /// A name that is not there cannot be made either: a search for the place of a new name answers `ENOENT`, as all of /proc does.
    fn has_fixed_names(&self) -> bool {
        false
    }

    /// The lifetime of what is written to the file (F_SET_RW_HINT), for as long as the inode is there; `None` of files that have no inode of
    /// their own.
    fn write_hint(&self) -> Option<&AtomicU8> {
        None
    }

    /// Why names cannot be made, changed or removed here, where none of the next five is there.
    fn refusal(&self) -> Errno {
        ENOTDIR
    }

    /// Makes a regular file, directory, FIFO, socket or device node (`rdev`); `EEXIST` when the name is taken.
    fn create(
        &self,
        name: &[u8],
        kind: FileType,
        permissions: u32,
        owner: (u32, u32),
        rdev: u64,
    ) -> Result<Arc<dyn Inode>> {
        let _ = (name, kind, permissions, owner, rdev);
        Err(self.refusal())
    }

    /// Makes a regular file in the file system of this directory that has no name (O_TMPFILE), and may get one later
    /// if `linkable` (without O_EXCL).
    fn create_unnamed(&self, permissions: u32, owner: (u32, u32), linkable: bool) -> Result<Arc<dyn Inode>> {
        let _ = (permissions, owner, linkable);
        Err(EOPNOTSUPP)
    }

    fn symlink(&self, name: &[u8], target: &[u8], owner: (u32, u32)) -> Result<()> {
        let _ = (name, target, owner);
        Err(self.refusal())
    }

    /// A hard link to `inode`, which is of the same file system (`EXDEV` otherwise).
    fn link(&self, name: &[u8], inode: &Arc<dyn Inode>) -> Result<()> {
        let _ = (name, inode);
        Err(self.refusal())
    }

    /// Removes a name; with `directory` an empty directory (rmdir), else anything but a directory (unlink).
    fn unlink(&self, name: &[u8], directory: bool) -> Result<()> {
        let _ = (name, directory);
        Err(self.refusal())
    }

    /// rename(2) and renameat2(2) with RENAME_NOREPLACE and RENAME_EXCHANGE in `flags`.
    fn rename(&self, name: &[u8], to: &Arc<dyn Inode>, to_name: &[u8], flags: u32) -> Result<()> {
        let _ = (name, to, to_name, flags);
        Err(self.refusal())
    }

    /// Up to `most` entries behind the cookie `from` (0: the start); empty at the end. Without `.` and `..`.
    fn list(&self, from: u64, most: usize) -> Result<Vec<DirEntry>> {
        let _ = (from, most);
        Err(ENOTDIR)
    }

    fn stat_fs(&self) -> Result<StatFs> {
        Err(ENOSYS)
    }

    /// The flags that protect it; `None` of a file system that has none.
    fn flags(&self) -> Option<InodeFlags> {
        None
    }

    /// Sets the flags; the caller has checked who may.
    fn set_flags(&self, flags: InodeFlags) -> Result<()> {
        let _ = flags;
        Err(ENOTTY)
    }

    /// An access control list; `EOPNOTSUPP` of a file system that has none.
    fn acl(&self, kind: AclKind) -> Result<Option<Arc<Acl>>> {
        let _ = kind;
        Err(EOPNOTSUPP)
    }

    /// Sets or takes away an access control list, and with it the permission bits where `permissions` is given.
    fn set_acl(&self, kind: AclKind, acl: Option<Arc<Acl>>, permissions: Option<u32>) -> Result<()> {
        let _ = (kind, acl, permissions);
        Err(EOPNOTSUPP)
    }

    /// Extended attributes; RAM file systems may keep `user.` ones.
    fn get_xattr(&self, name: &[u8]) -> Result<Vec<u8>> {
        let _ = name;
        Err(EOPNOTSUPP)
    }

    /// `flags` are setxattr(2)'s XATTR_CREATE and XATTR_REPLACE.
    fn set_xattr(&self, name: &[u8], value: &[u8], flags: u32) -> Result<()> {
        let _ = (name, value, flags);
        Err(EOPNOTSUPP)
    }

    fn remove_xattr(&self, name: &[u8]) -> Result<()> {
        let _ = name;
        Err(EOPNOTSUPP)
    }

    /// Names, each with a NUL behind it.
    fn list_xattr(&self) -> Result<Vec<u8>> {
        Err(EOPNOTSUPP)
    }

    fn as_any(&self) -> &dyn Any;
}
