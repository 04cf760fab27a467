// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The exported directory: every operation on it starts at a descriptor beneath it.

use crate::{
    ids::{Ids, OVERFLOW},
    wire::Qid,
};
use rustix::{
    fs::{self, AtFlags, FileType, Gid, Mode, OFlags, RawMode, ResolveFlags, Stat, Timestamps, Uid},
    io::{Errno, Result},
    mount::{OpenTreeFlags, open_tree},
};
use std::{
    collections::HashMap,
    ffi::CStr,
    fs::File,
    io::{Read, Write},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

/// Flags of open that a client may set, besides the access mode.
const OPEN_FLAGS: OFlags =
    OFlags::TRUNC.union(OFlags::APPEND).union(OFlags::SYNC).union(OFlags::DSYNC).union(OFlags::RWMODE);
const PATH_ONLY: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// The attribute of a program file that holds its system-call sites. It is in none of the name spaces that files can have
/// attributes in (xattr(7)), so nothing that is stored can be taken for it.
pub const SITES: &[u8] = b"unilith.sites";
/// The mode of what a machine sees where this is in a regular file of [`Access::PlainFiles`]: 32 bits, little-endian, as QEMU's
/// `security_model=mapped-xattr` has it.
pub const MAPPED_MODE: &str = "user.virtfs.mode";
/// What it says of a symbolic link.
const LINK_MODE: RawMode = 0o120_777;
/// Longest target (Linux PATH_MAX, without the NUL).
const MAX_TARGET: u64 = 4095;
/// Bits of a qid's path that hold the inode number; the rest tells file systems beneath the export apart.
const INODE_BITS: u32 = 56;

/// What a machine may do in an exported directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Look.
    ReadOnly,
    /// Look, and everything where another file system is mounted below, as far as it is writable itself: what a recursive bind
    /// that is read-only is (mount(2), MS_BIND and MS_REC).
    ReadOnlyAbove,
    /// Everything that stays in the directory.
    All,
    /// Make, change and remove regular files and directories. Host programs that follow names there meet nothing that leads
    /// elsewhere, waits for another program or runs as its owner: no links, special files, set-user-ID bits. A symbolic link
    /// of the machine's is a regular file that holds where it leads, with the attribute [`MAPPED_MODE`].
    PlainFiles,
}

/// Finds what a machine's kernel wants to know of a program file: the table of its system-call sites (`api-sites`), or
/// nothing. The file is open for reading, and its bytes are not trusted.
pub type SiteTables = Arc<dyn Fn(&File) -> Vec<u8> + Send + Sync>;

/// A directory that machines may see, or a file.
pub struct Export {
    root: OwnedFd,
    access: Access,
    sites: Option<SiteTables>,
    /// `None`: the machine's ids are the host's.
    ids: Option<Ids>,
    /// File systems met so far, by device number, in that order.
    devices: Mutex<HashMap<u64, u64>>,
}

impl Export {
    pub fn open(path: &Path, access: Access) -> std::io::Result<Export> {
        let root = fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Export { root, access, sites: None, ids: None, devices: Mutex::new(HashMap::new()) })
    }

    /// As [`Export::open`], apart from the host's mounts: what is mounted below the directory now is seen if `recursive`, and what is
    /// mounted or unmounted there later is not (open_tree(2), as a private bind of mount(2) is). Where this process may not do that,
    /// mounts are seen as they come and go.
    pub fn open_private(path: &Path, access: Access, recursive: bool) -> std::io::Result<Export> {
        let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        flags.set(OpenTreeFlags::AT_RECURSIVE, recursive);
        match open_tree(fs::CWD, path, flags) {
            Ok(root) => {
                Ok(Export { root, access, sites: None, ids: None, devices: Mutex::new(HashMap::new()) })
            }
            Err(Errno::PERM | Errno::NOSYS | Errno::INVAL) => Export::open(path, access),
            Err(error) => Err(error.into()),
        }
    }

    /// Tells the machine the system-call sites of the programs in it, as the attribute [`SITES`] of their files.
    pub fn with_sites(self, sites: Option<SiteTables>) -> Export {
        Export { sites, ..self }
    }

    /// The machine's users and groups are others here.
    pub fn with_ids(self, ids: Option<Ids>) -> Export {
        Export { ids, ..self }
    }

    /// What [`SITES`] of a file says.
    pub fn site_table(&self, fd: BorrowedFd<'_>) -> Result<Vec<u8>> {
        let tables = self.sites.as_ref().ok_or(Errno::NODATA)?;
        if FileType::from_raw_mode(self.stat(fd)?.st_mode) != FileType::RegularFile {
            return Err(Errno::NODATA);
        }
        let file = File::from(self.open_again(fd, OFlags::RDONLY.bits())?);
        Ok(tables(&file))
    }

    pub fn root(&self) -> Result<OwnedFd> {
        rustix::io::fcntl_dupfd_cloexec(&self.root, 0)
    }

    /// To be asked before anything changes at a file or in a directory.
    pub fn writable(&self, at: impl AsFd) -> Result<()> {
        match self.access {
            Access::ReadOnly => Err(Errno::ROFS),
            Access::ReadOnlyAbove if mount_of(at)? == mount_of(&self.root)? => Err(Errno::ROFS),
            _ => Ok(()),
        }
    }

    /// To be asked before something is made that is no regular file and no directory, or a second name of one.
    fn may_be_special(&self, directory: impl AsFd) -> Result<()> {
        self.writable(directory)?;
        if self.access == Access::PlainFiles { Err(Errno::PERM) } else { Ok(()) }
    }

    /// The mode of a file that the machine makes or changes.
    fn permissions(&self, mode: u32) -> Mode {
        permissions(if self.access == Access::PlainFiles { mode & 0o777 } else { mode })
    }

    /// The entry of a directory; `name` is one component.
    pub fn child(&self, directory: impl AsFd, name: &[u8]) -> Result<OwnedFd> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        // A link itself is opened: O_PATH with O_NOFOLLOW is what NO_SYMLINKS lets through (openat2(2)).
        fs::openat2(&directory, name, PATH_ONLY, Mode::empty(), resolve)
    }

    /// What the machine sees: a link of its own is one.
    pub fn stat(&self, fd: impl AsFd) -> Result<Stat> {
        let mut stat = fs::statat(&fd, c"", AtFlags::EMPTY_PATH)?;
        if self.is_mapped_link(fd, &stat) {
            stat.st_mode = LINK_MODE;
        }
        self.translate(&mut stat);
        Ok(stat)
    }

    /// The same of an entry of a directory, as a listing has it.
    pub fn stat_of(&self, directory: &OwnedFd, name: &CStr) -> Result<Stat> {
        if self.access == Access::PlainFiles {
            return self.stat(self.child(directory, name.to_bytes())?);
        }
        let mut stat = fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT)?;
        self.translate(&mut stat);
        Ok(stat)
    }

    /// Users and groups as the machine knows them.
    fn translate(&self, stat: &mut Stat) {
        if let Some(Ids { users, groups }) = &self.ids {
            stat.st_uid = users.to_machine(stat.st_uid).unwrap_or(OVERFLOW);
            stat.st_gid = groups.to_machine(stat.st_gid).unwrap_or(OVERFLOW);
        }
    }

    fn is_mapped_link(&self, fd: impl AsFd, stat: &Stat) -> bool {
        let mut mode = [0; 4];
        self.access == Access::PlainFiles
            && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
            && fs::getxattr(&*by_number(fd), MAPPED_MODE, &mut mode) == Ok(mode.len())
            && FileType::from_raw_mode(u32::from_le_bytes(mode)) == FileType::Symlink
    }

    /// The kind of a directory's entry, which a listing of this host says is `listed`.
    pub fn kind(&self, directory: &OwnedFd, name: &[u8], listed: FileType) -> FileType {
        if self.access != Access::PlainFiles || listed != FileType::RegularFile {
            return listed;
        }
        let stat = self.child(directory, name).and_then(|fd| self.stat(fd));
        stat.map_or(listed, |stat| FileType::from_raw_mode(stat.st_mode))
    }

    /// Where a symbolic link leads.
    pub fn target(&self, fd: BorrowedFd<'_>) -> Result<Vec<u8>> {
        let stat = fs::statat(fd, c"", AtFlags::EMPTY_PATH)?;
        if self.is_mapped_link(fd, &stat) {
            let file = fs::open(&*by_number(fd), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
            let mut target = Vec::new();
            File::from(file).take(MAX_TARGET).read_to_end(&mut target).map_err(|_| Errno::IO)?;
            return Ok(target);
        }
        // readlinkat(2) answers ENOENT where an empty path leads to no link.
        let target = fs::readlinkat(fd, c"", Vec::new());
        Ok(target.map_err(|e| if e == Errno::NOENT { Errno::INVAL } else { e })?.into_bytes())
    }

    pub fn qid(&self, stat: &Stat) -> Qid {
        let mut devices = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
        let next = devices.len() as u64;
        let device = *devices.entry(stat.st_dev).or_insert(next);
        drop(devices);
        let inode = stat.st_ino;
        // Numbers that need more bits are folded; that two meet is as likely as for any 56-bit hash.
        let folded = (inode ^ (inode >> INODE_BITS)) & ((1 << INODE_BITS) - 1);
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => Qid::DIRECTORY,
            FileType::Symlink => Qid::SYMLINK,
            _ => 0,
        };
        Qid { kind, version: stat.st_mtime as u32, path: device << INODE_BITS | folded }
    }

    pub fn qid_of(&self, fd: impl AsFd) -> Result<Qid> {
        let stat = self.stat(fd)?;
        Ok(self.qid(&stat))
    }

    /// Opens what a descriptor leads to. Only regular files and directories: all else would reach beyond the files.
    pub fn open_again(&self, fd: BorrowedFd<'_>, flags: u32) -> Result<OwnedFd> {
        let flags = OFlags::from_bits_truncate(flags) & OPEN_FLAGS;
        if flags.intersects(OFlags::WRONLY | OFlags::RDWR | OFlags::TRUNC) {
            self.writable(fd)?;
        }
        let extra = match FileType::from_raw_mode(self.stat(fd)?.st_mode) {
            FileType::RegularFile => OFlags::empty(),
            FileType::Directory => OFlags::DIRECTORY,
            FileType::Symlink => return Err(Errno::LOOP),
            _ => return Err(Errno::NXIO),
        };
        fs::open(&*by_number(fd), flags | extra | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty())
    }

    /// Makes a file that is no directory and no link. Devices would be the host's.
    pub fn make_node(&self, directory: &OwnedFd, name: &[u8], mode: u32) -> Result<()> {
        self.writable(directory)?;
        let kind = FileType::from_raw_mode(mode as RawMode);
        if !matches!(kind, FileType::RegularFile | FileType::Fifo | FileType::Socket) {
            return Err(Errno::PERM);
        }
        if kind != FileType::RegularFile {
            self.may_be_special(directory)?;
        }
        fs::mknodat(directory, name, kind, self.permissions(mode), 0)
    }

    pub fn make_directory(&self, directory: &OwnedFd, name: &[u8], mode: u32) -> Result<()> {
        self.writable(directory)?;
        fs::mkdirat(directory, name, self.permissions(mode))
    }

    /// Gives what was just made the mode it was to have, whatever this process's umask is, and its group where that is
    /// allowed.
    pub fn settle(&self, fd: BorrowedFd<'_>, mode: u32, group: u32) -> Result<()> {
        self.give(fd, group);
        self.set_mode(fd, mode)
    }

    /// Gives what was just made its group, where that is allowed. It is the user's of this process, whom the machine takes for its root.
    pub fn give(&self, fd: BorrowedFd<'_>, group: u32) {
        let root = self.ids.is_some().then_some(0);
        // As `security_model=none`: an ordinary user's files are that user's.
        let _ = self.own(fd, root, Some(group));
    }

    pub fn set_mode(&self, fd: BorrowedFd<'_>, mode: u32) -> Result<()> {
        self.writable(fd)?;
        fs::chmod(&*by_number(fd), self.permissions(mode))
    }

    pub fn own(&self, fd: BorrowedFd<'_>, user: Option<u32>, group: Option<u32>) -> Result<()> {
        self.writable(fd)?;
        // The number that is no user means "leave it" to chown(2).
        let (mut user, mut group) = (user.filter(|n| *n != u32::MAX), group.filter(|n| *n != u32::MAX));
        if let Some(Ids { users, groups }) = &self.ids {
            // As chown(2) in a user namespace that does not have the id.
            user = user.map(|id| users.to_host(id).ok_or(Errno::INVAL)).transpose()?;
            group = group.map(|id| groups.to_host(id).ok_or(Errno::INVAL)).transpose()?;
        }
        fs::chownat(fd, c"", user.map(Uid::from_raw), group.map(Gid::from_raw), AtFlags::EMPTY_PATH)
    }

    pub fn set_times(&self, fd: BorrowedFd<'_>, times: &Timestamps) -> Result<()> {
        self.writable(fd)?;
        fs::utimensat(fd, c"", times, AtFlags::EMPTY_PATH)
    }

    pub fn set_size(&self, fd: BorrowedFd<'_>, size: u64) -> Result<()> {
        self.writable(fd)?;
        let file = self.open_again(fd, OFlags::WRONLY.bits())?;
        fs::ftruncate(file, size)
    }

    pub fn make_link(&self, target: BorrowedFd<'_>, directory: &OwnedFd, name: &[u8]) -> Result<()> {
        self.may_be_special(directory)?;
        // AT_EMPTY_PATH would need CAP_DAC_READ_SEARCH (linkat(2)).
        fs::linkat(fs::CWD, &*by_number(target), directory, name, AtFlags::SYMLINK_FOLLOW)
    }

    pub fn make_symlink(&self, directory: &OwnedFd, name: &[u8], target: &[u8]) -> Result<()> {
        self.writable(directory)?;
        if self.access != Access::PlainFiles {
            return fs::symlinkat(target, directory, name);
        }
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = fs::openat(directory, name, flags, permissions(0o600))?;
        let marked = fs::fsetxattr(&file, MAPPED_MODE, &LINK_MODE.to_le_bytes(), fs::XattrFlags::CREATE);
        let made = marked.and_then(|()| {
            let written = File::from(file).write_all(target);
            written.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))
        });
        if made.is_err() {
            let _ = fs::unlinkat(directory, name, AtFlags::empty());
        }
        // A file system without attributes has no links here.
        made.map_err(|e| if e == Errno::OPNOTSUPP { Errno::PERM } else { e })
    }

    pub fn remove(&self, directory: &OwnedFd, name: &[u8], flags: u32) -> Result<()> {
        self.writable(directory)?;
        fs::unlinkat(directory, name, AtFlags::from_bits_truncate(flags) & AtFlags::REMOVEDIR)
    }

    pub fn rename(&self, from: &OwnedFd, name: &[u8], to: &OwnedFd, to_name: &[u8]) -> Result<()> {
        self.writable(from)?;
        self.writable(to)?;
        fs::renameat(from, name, to, to_name)
    }

    pub fn attribute(&self, fd: BorrowedFd<'_>, name: &[u8]) -> Result<Vec<u8>> {
        is_user_attribute(name)?;
        let mut value = vec![0; MAX_ATTRIBUTE];
        let length = fs::getxattr(&*by_number(fd), name, &mut value)?;
        value.truncate(length);
        // The buffer is as long as the longest value; what is kept is not.
        value.shrink_to_fit();
        Ok(value)
    }

    /// Names that a machine may ask for, each ended by NUL.
    pub fn attributes(&self, fd: BorrowedFd<'_>) -> Result<Vec<u8>> {
        let mut names = vec![0; MAX_ATTRIBUTE];
        let length = fs::listxattr(&*by_number(fd), &mut names)?;
        let all = names[..length].split_inclusive(|b| *b == 0);
        Ok(all.filter(|name| is_user_attribute(name).is_ok()).flatten().copied().collect())
    }

    /// An empty value that is to replace one removes it, as Linux's client means it.
    pub fn set_attribute(&self, fd: BorrowedFd<'_>, name: &[u8], value: &[u8], flags: u32) -> Result<()> {
        self.writable(fd)?;
        is_user_attribute(name)?;
        let flags = fs::XattrFlags::from_bits(flags).ok_or(Errno::INVAL)?;
        if value.is_empty() && flags == fs::XattrFlags::REPLACE {
            return fs::removexattr(&*by_number(fd), name);
        }
        fs::setxattr(&*by_number(fd), name, value, flags)
    }
}

/// Largest value of an extended attribute, and largest list of names (Linux XATTR_SIZE_MAX, XATTR_LIST_MAX).
pub const MAX_ATTRIBUTE: usize = 65536;

/// Attributes of other spaces are the host's: capabilities, labels, overlay's own.
fn is_user_attribute(name: &[u8]) -> Result<()> {
    if name.starts_with(b"user.") { Ok(()) } else { Err(Errno::OPNOTSUPP) }
}

/// The number of the mount that a file is reached through. `EROFS` where the host's kernel does not tell it (before Linux 5.8).
fn mount_of(fd: impl AsFd) -> Result<u64> {
    let found = fs::statx(fd, c"", AtFlags::EMPTY_PATH, fs::StatxFlags::MNT_ID)?;
    let is_told = found.stx_mask & fs::StatxFlags::MNT_ID.bits() != 0;
    if is_told { Ok(found.stx_mnt_id) } else { Err(Errno::ROFS) }
}

/// The name of an open descriptor's file that leads to that file only, whatever its directory entries are.
pub(crate) fn by_number(fd: impl AsFd) -> String {
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())
}

fn permissions(mode: u32) -> Mode {
    Mode::from_raw_mode((mode & 0o7777) as RawMode)
}
