// SPDX-License-Identifier: Apache-2.0 OR MIT
//! File systems whose files are answers: /proc and /sys.
//!
//! This crate is the tree; what the files say comes from the functions in the tables it is made of, so that it
//! depends on nothing of the processes and devices it shows. A table is constant: nothing is built when the file
//! system is mounted, and an inode is made when a path first leads to it. A file's text is made when it is read from
//! its start, and later reads of the same open file continue in that text.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod output;
pub mod settings;

pub use output::Output;

use abi::{Errno, Events, Result, errno::*};
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use api_fs::{DirEntry, File, FileType, Inode, Magic, SetAttr, Sink, Source, Stat, StatFs, Timespec};
use api_lock::SpinLock;
use api_mem::PageSource;
use api_sched::WaitQueue;
use core::any::Any;
use core::sync::atomic::{AtomicU64, Ordering};
use ordered::Map;

/// Which of several alike an entry is about (a thread, a descriptor): what [`Changing::entry`] gave it, handed down to
/// all below. A key is never given to another object, so that an inode whose object is gone shows nothing of a later object
/// with the same name.
pub type Key = u128;
/// Makes the text of a file, or the target of a link.
pub type Text = fn(Key) -> Result<Vec<u8>>;
/// As [`Text`], for what has no bound: a program decides how many lines there are. It may be made a part at a time, as it is
/// read, by [`Output::from`] and [`Output::go_on_at`].
pub type Lines = fn(Key, &mut Output) -> Result<()>;
/// Whether the caller may open a file.
pub type Check = fn(Key) -> Result<()>;
/// Takes what was written to a file.
pub type Store = fn(Key, &[u8]) -> Result<()>;
/// Where a magic link leads.
pub type Lead = fn(Key) -> Result<Magic>;
/// Opens a file that has this inode.
pub type Open = fn(Key, &Arc<dyn Inode>) -> Result<Arc<dyn File>>;
/// The type of /proc, as statfs(2) has it.
pub const PROC_SUPER_MAGIC: u64 = 0x9fa0;
/// Largest write that is taken.
const WRITE_LIMIT: usize = 4096;

/// What a name stands for.
#[derive(Clone, Copy)]
pub enum Entry {
    /// A file for reading that always says the same.
    Fixed(&'static str),
    /// A file for reading.
    Text(Text),
    /// A file for reading, of any length.
    Lines(Lines),
    /// As [`Entry::Lines`], for those alone that `check` lets open it.
    Private {
        lines: Lines,
        check: Check,
        permissions: u32,
    },
    /// A file for reading whose changes poll(2) tells: how many there were, and the queue that is woken by the next.
    Watched {
        lines: Lines,
        changes: fn() -> (u64, &'static WaitQueue),
    },
    /// A file that may be written to.
    File {
        text: Text,
        store: Store,
        permissions: u32,
    },
    /// As [`Entry::File`], with permissions that are the caller's.
    Granted {
        text: Text,
        store: Store,
        permissions: fn(Key) -> Result<u32>,
    },
    /// As [`Entry::File`], opened for writing by those alone that `check` lets.
    Guarded {
        text: Text,
        store: Store,
        check: Check,
        permissions: u32,
    },
    /// A file that is no text: what is opened reads and writes by itself.
    Opens {
        open: Open,
        permissions: u32,
    },
    /// A symbolic link by its text.
    Link(Text),
    /// A link that leads somewhere by itself; the text is for readlink.
    Magic {
        text: Text,
        lead: Lead,
    },
    /// As [`Entry::Magic`], for a descriptor: `permissions` are those that it was opened with.
    Descriptor {
        text: Text,
        lead: Lead,
        permissions: fn(Key) -> Result<u32>,
    },
    Directory(&'static [Row]),
    /// As [`Entry::Directory`], with permissions of its own.
    DirectoryWith {
        rows: &'static [Row],
        permissions: u32,
    },
    /// A directory of numbers that come and go.
    Changing(&'static dyn Changing),
    /// A directory of both: a table, and names that come and go beside it.
    Beside {
        rows: &'static [Row],
        changing: &'static dyn Changing,
    },
}

/// A path below a directory, and what it stands for. The directories on the way are there by being named.
pub type Row = (&'static str, Entry);

/// Names that come and go: numbers, of processes, threads, descriptors. A number is its own place in the directory, so that a
/// program that closes descriptors while it lists them (before `execve`) misses none.
pub trait Changing: Send + Sync {
    /// Up to `most` of the numbers there are now, ascending, beginning with the first that is at least `from`.
    fn numbers(&self, key: Key, from: u32, most: usize) -> Vec<u32>;
    /// How many numbers there are now.
    fn count(&self, key: Key) -> u64 {
        self.numbers(key, 0, usize::MAX).len() as u64
    }
    /// The same as names, or names that are no numbers, in ascending order of places that they keep in the directory: those from place `from` on, up to
    /// `most`.
    fn names(&self, key: Key, from: u64, most: usize) -> Vec<(u64, String)> {
        let Ok(from) = u32::try_from(from) else { return Vec::new() };
        self.numbers(key, from, most).into_iter().map(|n| (n.into(), format!("{n}"))).collect()
    }
    /// The permissions of the directory itself.
    fn permissions(&self) -> u32 {
        0o555
    }
    /// Whether the caller may search and read the directory whatever its permissions are (Linux' proc_fd_permission).
    fn admits_caller(&self, key: Key) -> bool {
        let _ = key;
        false
    }
    /// What the caller's access of this kind (access(2)'s bits) to a file of the table beside these names is answered, by the file's directory
    /// and permissions; `None` where its owner and permission bits decide.
    fn rule_beside(&self, directory: &str, permissions: u32, want: u32) -> Option<Result<()>> {
        let _ = (directory, permissions, want);
        None
    }
    /// The entry of a name, and its key; `ENOENT` when there is none.
    fn entry(&self, key: Key, name: &str) -> Result<(Entry, Key)>;
    /// Whether the file of this name below an entry is one in whose text lseek(2) looks for an end, and for data. Most are made line by line.
    fn has_end(&self, name: &str) -> bool {
        let _ = name;
        false
    }
    /// The type of all its entries.
    fn kind(&self) -> FileType;
    /// Whether the caller may list them.
    fn check(&self, key: Key) -> Result<()> {
        let _ = key;
        Ok(())
    }
    /// Whose an entry is that [`Changing::entry`] gave this key, and all below it; `None` where it is the superuser's.
    fn owner(&self, key: Key) -> Option<Owner> {
        let _ = key;
        None
    }
    /// What a lookup in the directory answers to which [`Changing::entry`] gave this key, when its object is gone; `ENOENT` in
    /// directories below.
    fn check_presence(&self, key: Key) -> Result<()> {
        let _ = key;
        Ok(())
    }
    /// The object that a directory stands for to which [`Changing::entry`] gave this key, for system calls that take such a
    /// directory ([`object`]); `ESRCH` when the object is gone, `EBADF` when no system call takes these directories.
    fn object(&self, key: Key) -> Result<Arc<dyn Any + Send + Sync>> {
        let _ = key;
        Err(EBADF)
    }
}

/// What a mount of the file system keeps from callers, of the names that come and go beside those of its root's table, and of that
/// table (proc(5): hidepid, gid, subset).
pub trait Policy: Any + Send + Sync {
    /// Whether the caller finds a name of the table.
    fn shows(&self, name: &str) -> bool;
    /// Whether the caller is told of the entry that has this key, in lists and by stat(2).
    fn tells(&self, key: Key) -> bool;
    /// Whether the caller may go into it.
    fn check(&self, key: Key) -> Result<()>;
}

/// The policy of the file system that has this inode.
pub fn policy<P: Policy>(inode: &dyn Inode) -> Option<&P> {
    let policy: &dyn Any = inode.as_any().downcast_ref::<Node>()?.fs.policy.as_deref()?;
    policy.downcast_ref()
}

/// The number that a name is, as it is listed: digits alone (Linux' name_to_int). `ENOENT` for any other name.
pub fn number(name: &str) -> Result<u32> {
    let is_listed = name.bytes().all(|byte| byte.is_ascii_digit()) && (name == "0" || !name.starts_with('0'));
    name.parse().ok().filter(|_| is_listed).ok_or(ENOENT)
}

/// The object that a directory of numbers' entry stands for. `EBADF` for every other inode, those below such an entry included.
pub fn object(inode: &dyn Inode) -> Result<Arc<dyn Any + Send + Sync>> {
    let node = inode.as_any().downcast_ref::<Node>().ok_or(EBADF)?;
    match (node.body, node.owner) {
        (Body::Table { below: "", .. }, Some(changing)) if node.is_object() => changing.object(node.key),
        _ => Err(EBADF),
    }
}

/// Whose files are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    pub uid: u32,
    pub gid: u32,
    /// All are the superuser's but directories that everybody may list.
    pub is_secret: bool,
    /// The superuser's ids.
    pub superuser: (u32, u32),
}

impl Owner {
    /// The ids that a file of this type and with these permission bits has.
    fn ids(self, kind: FileType, permissions: u32) -> (u32, u32) {
        let is_open = kind == FileType::Directory && permissions == 0o555;
        if self.is_secret && !is_open { self.superuser } else { (self.uid, self.gid) }
    }
}

/// The root inode of a file system with these contents. `magic` is its `f_type`.
pub fn root(rows: &'static [Row], device: u64, magic: u64) -> Arc<dyn Inode> {
    let fs = Arc::new(Fs { device, magic, policy: None, _held: None });
    Node::root(&fs, Body::Table { rows, below: "", permissions: OPEN }, 0)
}

/// As [`root`], with a key that all entries are told.
pub fn root_about(rows: &'static [Row], device: u64, magic: u64, key: Key) -> Arc<dyn Inode> {
    let fs = Arc::new(Fs { device, magic, policy: None, _held: None });
    Node::root(&fs, Body::Table { rows, below: "", permissions: OPEN }, key)
}

/// What a file system keeps for as long as it is there.
pub type Held = Option<Arc<dyn Any + Send + Sync>>;

/// As [`root`], with names that come and go beside those of the table. All of them are told `key`, and it keeps what that is about.
pub fn root_with(
    rows: &'static [Row],
    changing: &'static dyn Changing,
    device: u64,
    magic: u64,
    (key, held): (Key, Held),
    policy: Option<Arc<dyn Policy>>,
) -> Arc<dyn Inode> {
    let fs = Arc::new(Fs { device, magic, policy, _held: held });
    Node::root(&fs, Body::Both { rows, changing }, key)
}

struct Fs {
    device: u64,
    magic: u64,
    policy: Option<Arc<dyn Policy>>,
    _held: Held,
}

/// Inode number of the root.
const ROOT: u64 = 1;
/// Permissions of most directories.
const OPEN: u32 = 0o555;
/// To write, as access(2) has it.
const WRITE: u32 = 2;

/// A hash (FNV-1a) of 48 bits, for inode numbers.
fn hash(start: u64, bytes: impl Iterator<Item = u8>) -> u64 {
    let mix = |h: u64, byte: u8| (h ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    let hash = bytes.fold(start, mix);
    (hash ^ hash >> 48) & ((1 << 48) - 1) | 2
}

#[derive(Clone, Copy)]
enum Body {
    /// The rows whose path begins with `below`, which is empty or ends with a slash.
    Table {
        rows: &'static [Row],
        below: &'static str,
        permissions: u32,
    },
    /// A whole table, and names that come and go.
    Both {
        rows: &'static [Row],
        changing: &'static dyn Changing,
    },
    Entry(Entry),
}

impl Body {
    fn kind(self) -> FileType {
        match self {
            Body::Table { .. }
            | Body::Both { .. }
            | Body::Entry(
                Entry::Directory(_) | Entry::DirectoryWith { .. } | Entry::Changing(_) | Entry::Beside { .. },
            ) => FileType::Directory,
            Body::Entry(Entry::Link(_) | Entry::Magic { .. } | Entry::Descriptor { .. }) => FileType::Symlink,
            Body::Entry(
                Entry::Fixed(_)
                | Entry::Text(_)
                | Entry::Lines(_)
                | Entry::Private { .. }
                | Entry::Watched { .. }
                | Entry::File { .. }
                | Entry::Granted { .. }
                | Entry::Guarded { .. }
                | Entry::Opens { .. },
            ) => FileType::Regular,
        }
    }
}

/// The names directly below, in the order of their first rows. A directory's rows need not be neighbours.
fn names(rows: &'static [Row], below: &'static str) -> impl Iterator<Item = (&'static str, Body)> {
    rows.iter().enumerate().filter_map(move |(index, (path, entry))| {
        let rest = path.strip_prefix(below)?;
        let Some(slash) = rest.find('/') else { return Some((rest, contents(*entry))) };
        let directory = &path[..below.len() + slash + 1];
        let first = rows[..index].iter().all(|(earlier, _)| !earlier.starts_with(directory));
        first.then_some((&rest[..slash], Body::Table { rows, below: directory, permissions: OPEN }))
    })
}

fn contents(entry: Entry) -> Body {
    match entry {
        Entry::Directory(rows) => Body::Table { rows, below: "", permissions: OPEN },
        Entry::DirectoryWith { rows, permissions } => Body::Table { rows, below: "", permissions },
        Entry::Beside { rows, changing } => Body::Both { rows, changing },
        other => Body::Entry(other),
    }
}

/// What `name` is directly below.
fn find(rows: &'static [Row], below: &'static str, name: &str) -> Option<Body> {
    rows.iter().find_map(|(path, entry)| {
        let rest = path.strip_prefix(below)?.strip_prefix(name)?;
        if rest.is_empty() {
            Some(contents(*entry))
        } else if rest.starts_with('/') {
            Some(Body::Table { rows, below: &path[..below.len() + name.len() + 1], permissions: OPEN })
        } else {
            None
        }
    })
}

/// Whose file operations a file has on Linux, which tells what it answers where it is not read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Maker {
    /// A setting (fs/proc/proc_sysctl.c).
    Setting,
    /// A table of the system or of a network (fs/proc/inode.c).
    Table,
    /// About a process (fs/proc/base.c).
    Object,
    /// Outside /proc (fs/kernfs).
    Device,
}

/// Inodes that are in use, by name.
type Known = Map<String, Weak<Node>>;

struct Node {
    fs: Arc<Fs>,
    this: Weak<Node>,
    /// Kept with this one: who looks for the name again must find the same inode.
    parent: Option<Arc<Node>>,
    number: u64,
    born: Timespec,
    body: Body,
    key: Key,
    /// Says whose it is, by the key.
    owner: Option<&'static dyn Changing>,
    /// Its owner's [`Changing::has_end`].
    has_end: bool,
    known: SpinLock<Known>,
}

impl Node {
    fn root(fs: &Arc<Fs>, body: Body, key: Key) -> Arc<Node> {
        Node::new(fs, None, (ROOT, false), body, key, None)
    }

    fn new(
        fs: &Arc<Fs>,
        parent: Option<Arc<Node>>,
        (number, has_end): (u64, bool),
        body: Body,
        key: Key,
        owner: Option<&'static dyn Changing>,
    ) -> Arc<Node> {
        let (fs, born) = (fs.clone(), Timespec::now());
        Arc::new_cyclic(|this| Node {
            fs,
            this: this.clone(),
            parent,
            number,
            born,
            body,
            key,
            owner,
            has_end,
            known: SpinLock::default(),
        })
    }

    /// Which of Linux' file operations it has.
    fn maker(&self) -> Maker {
        let below = match self.parent.as_ref().map(|parent| parent.body) {
            Some(Body::Table { below, .. }) => below,
            _ => "",
        };
        match self.owner {
            _ if self.fs.magic != PROC_SUPER_MAGIC => Maker::Device,
            None if below.starts_with("sys/") => Maker::Setting,
            Some(_) if below.starts_with("net/") => Maker::Table,
            None => Maker::Table,
            Some(_) => Maker::Object,
        }
    }

    /// The inode number of a name below this directory: the same each time, although the inode is made anew, and another one for
    /// another object with the same name.
    fn number_of(&self, name: &str, key: Key) -> u64 {
        let number = hash(self.number ^ 0xcbf2_9ce4_8422_2325, name.bytes());
        if key == self.key { number } else { hash(number, key.to_le_bytes().into_iter()) }
    }

    /// Whether [`Changing::entry`] gave this inode its key, and not one above it.
    fn is_object(&self) -> bool {
        self.parent.as_ref().is_some_and(|parent| parent.key != self.key)
    }

    /// The directory of a process or thread.
    fn is_immutable(&self) -> bool {
        matches!(self.body, Body::Table { .. }) && self.owner.is_some() && self.is_object()
    }

    /// The permission bits.
    fn permissions(&self) -> Result<u32> {
        let kind = self.body.kind();
        Ok(match self.body {
            Body::Entry(
                Entry::File { permissions, .. }
                | Entry::Guarded { permissions, .. }
                | Entry::Opens { permissions, .. }
                | Entry::Private { permissions, .. },
            ) => permissions,
            Body::Entry(Entry::Descriptor { permissions, .. } | Entry::Granted { permissions, .. }) => {
                permissions(self.key)?
            }
            Body::Entry(Entry::Changing(changing)) => changing.permissions(),
            Body::Table { permissions, .. } => permissions,
            _ if kind == FileType::Regular => 0o444,
            _ if kind == FileType::Directory => OPEN,
            _ => 0o777,
        })
    }

    /// The answer of [`Changing::rule_beside`], for a file or directory of the root's table.
    fn rule(&self, want: u32) -> Option<Result<()>> {
        let mut at = self.parent.as_ref()?;
        let below = match (self.body, at.body) {
            (Body::Table { below, .. }, _) | (_, Body::Table { below, .. }) => below,
            _ => return None,
        };
        while let Some(parent) = &at.parent {
            at = parent;
        }
        let Body::Both { changing, .. } = at.body else { return None };
        changing.rule_beside(below, self.permissions().ok()?, want)
    }

    /// What the policy is about: an entry that comes and goes beside the root's table.
    fn policy(&self) -> Option<&dyn Policy> {
        let is_beside = |parent: &Arc<Node>| matches!(parent.body, Body::Both { .. });
        let is_about = self.is_object() && self.parent.as_ref().is_some_and(is_beside);
        self.fs.policy.as_deref().filter(|_| is_about)
    }

    fn changes(&self) -> Option<(u64, &'static WaitQueue)> {
        match self.body {
            Body::Entry(Entry::Watched { changes, .. }) => Some(changes()),
            _ => None,
        }
    }

    /// The part of the text that begins where an earlier one said that it goes on, or 0.
    fn text(&self, from: u64) -> Result<Output> {
        let mut out = Output::part(from);
        match self.body {
            Body::Entry(Entry::Fixed(text)) => out.add(text.as_bytes())?,
            Body::Entry(
                Entry::Text(text)
                | Entry::File { text, .. }
                | Entry::Granted { text, .. }
                | Entry::Guarded { text, .. },
            ) => out.add(&text(self.key)?)?,
            Body::Entry(
                Entry::Lines(lines) | Entry::Private { lines, .. } | Entry::Watched { lines, .. },
            ) => lines(self.key, &mut out)?,
            _ => return Err(EISDIR),
        }
        Ok(out)
    }
}

impl Inode for Node {
    fn stat(&self) -> Result<Stat> {
        if self.policy().is_some_and(|policy| !policy.tells(self.key)) {
            return Err(ENOENT);
        }
        let kind = self.body.kind();
        let permissions = self.permissions()?;
        let mut stat = Stat::new(kind, permissions);
        stat.device = self.fs.device;
        stat.inode = self.number;
        if let Some(owner) = self.owner.and_then(|owner| owner.owner(self.key)) {
            (stat.uid, stat.gid) = owner.ids(kind, permissions);
        }
        stat.block_size = 1024;
        (stat.accessed, stat.modified, stat.changed) = (self.born, self.born, self.born);
        if kind == FileType::Directory {
            stat.links = 2;
        }
        if matches!(self.body, Body::Entry(Entry::Descriptor { .. })) {
            // As on Linux, whatever the target's length is.
            stat.size = 64;
        }
        let table = match self.body {
            Body::Table { rows, below, .. } => Some((rows, below)),
            Body::Both { rows, .. } => Some((rows, "")),
            Body::Entry(_) => None,
        };
        if let Some((rows, below)) = table {
            stat.links += names(rows, below).filter(|(_, b)| b.kind() == FileType::Directory).count() as u64;
        }
        if let Body::Entry(Entry::Changing(changing)) | Body::Both { changing, .. } = self.body {
            match changing.kind() {
                FileType::Directory => stat.links += changing.count(self.key),
                // The number of descriptors (since Linux 6.2).
                FileType::Symlink => stat.size = changing.count(self.key),
                _ => {}
            }
        }
        Ok(stat)
    }

    fn kind(&self) -> Result<FileType> {
        Ok(self.body.kind())
    }

    fn magic(&self) -> Option<Result<Magic>> {
        match self.body {
            Body::Entry(Entry::Magic { lead, .. } | Entry::Descriptor { lead, .. }) => Some(lead(self.key)),
            _ => None,
        }
    }

    /// Outside /proc `EACCES`, for the superuser as well, when a file that says what cannot be changed is opened for writing.
    fn open(&self, this: &Arc<dyn Inode>, flags: u32) -> Result<Arc<dyn File>> {
        const O_ACCMODE: u32 = 3;
        match self.body {
            body if body.kind() == FileType::Symlink => return Err(ELOOP),
            Body::Entry(Entry::Fixed(_) | Entry::Text(_) | Entry::Lines(_) | Entry::Private { .. })
                if flags & O_ACCMODE != 0 && self.maker() == Maker::Device =>
            {
                return Err(EACCES);
            }
            // A network's tables (Linux' seq_open_net).
            Body::Entry(Entry::Lines(_) | Entry::Text(_))
                if flags & O_ACCMODE != 0 && self.owner.is_some() && self.maker() == Maker::Table =>
            {
                return Err(EACCES);
            }
            Body::Entry(Entry::Private { check, .. }) => check(self.key)?,
            Body::Entry(Entry::Guarded { check, .. }) if flags & O_ACCMODE != 0 => check(self.key)?,
            Body::Entry(Entry::Changing(changing)) => changing.check(self.key)?,
            _ => {}
        }
        if let Some(policy) = self.policy() {
            policy.check(self.key)?;
        }
        if let Body::Entry(Entry::Opens { open, .. }) = self.body {
            return open(self.key, this);
        }
        let node = self.this.upgrade().ok_or(EIO)?;
        let seen = AtomicU64::new(node.changes().map_or(0, |(count, _)| count));
        Ok(Arc::new(OpenFile { node, inode: this.clone(), text: SpinLock::new(None), seen }))
    }

    /// Attributes are fixed; O_TRUNC of a file that is written to is no error. What is a process's stays its user's, whoever it is given
    /// to (Linux finds that out when the name is looked up the next time).
    fn set_attr(&self, change: &SetAttr) -> Result<()> {
        let is_given = change.uid.is_some() || change.gid.is_some();
        let is_object = self.maker() == Maker::Object;
        if change.permissions.is_some() || is_given && !is_object || is_object && self.is_immutable() {
            Err(EPERM)
        } else {
            Ok(())
        }
    }

    fn read_link(&self) -> Result<Vec<u8>> {
        match self.body {
            Body::Entry(Entry::Link(text) | Entry::Magic { text, .. } | Entry::Descriptor { text, .. }) => {
                text(self.key)
            }
            _ => Err(EINVAL),
        }
    }

    fn lookup(&self, name: &[u8]) -> Result<Arc<dyn Inode>> {
        let name = core::str::from_utf8(name).map_err(|_| ENOENT)?;
        let (row, changing) = match self.body {
            Body::Table { rows, below, .. } => (find(rows, below, name), None),
            Body::Both { rows, changing } => {
                let is_shown = self.fs.policy.as_ref().is_none_or(|policy| policy.shows(name));
                (find(rows, "", name).filter(|_| is_shown), Some(changing))
            }
            Body::Entry(Entry::Changing(changing)) => (None, Some(changing)),
            _ => return Err(ENOTDIR),
        };
        if let Some(policy) = self.policy() {
            policy.check(self.key)?;
        }
        if let Some(owner) = self.owner {
            owner.check_presence(self.key).map_err(|e| if self.is_object() { e } else { ENOENT })?;
        }
        let (body, key, owner) = match (row, changing) {
            (Some(body), _) => (body, self.key, self.owner),
            (None, Some(changing)) => {
                let (entry, key) = changing.entry(self.key, name)?;
                (contents(entry), key, Some(changing))
            }
            (None, None) => return Err(ENOENT),
        };
        // A process may have the number of one whose directory is still open.
        let known = self.known.lock().get(name).and_then(Weak::upgrade);
        if let Some(node) = known.filter(|node| node.key == key) {
            return Ok(node);
        }
        let has_end = owner.is_some_and(|owner| owner.has_end(name));
        let number = (self.number_of(name, key), has_end);
        let node = Node::new(&self.fs, self.this.upgrade(), number, body, key, owner);
        let mut known = self.known.lock();
        known.retain(|_, node| node.strong_count() > 0);
        known.insert(name.to_owned(), Arc::downgrade(&node));
        Ok(node)
    }

    fn refusal(&self) -> Errno {
        EPERM
    }

    fn has_fixed_names(&self) -> bool {
        self.fs.magic == PROC_SUPER_MAGIC
    }

    fn own_rule(&self, want: u32) -> Option<Result<()>> {
        match self.body {
            Body::Entry(Entry::Changing(changing)) => changing.admits_caller(self.key).then_some(Ok(())),
            _ if self.owner.is_none() => self.rule(want),
            _ if want & WRITE != 0 && self.is_immutable() => Some(Err(EPERM)),
            _ => None,
        }
    }

    fn list(&self, from: u64, most: usize) -> Result<Vec<DirEntry>> {
        let entry = |place: u64, name: &str, key: Key, kind: FileType| DirEntry {
            name: name.as_bytes().to_vec(),
            inode: self.number_of(name, key),
            kind,
            next: place + 1,
        };
        // The names of a table take the first places; a number's place is itself behind those.
        let (rows, below, changing) = match self.body {
            Body::Table { rows, below, .. } => (rows, below, None),
            Body::Both { rows, changing } => (rows, "", Some(changing)),
            Body::Entry(Entry::Changing(changing)) => (&[][..], "", Some(changing)),
            _ => return Err(ENOTDIR),
        };
        let mut all = Vec::new();
        let mut fixed = 0;
        let policy = self.fs.policy.as_ref().filter(|_| matches!(self.body, Body::Both { .. }));
        for (name, body) in names(rows, below) {
            let is_shown = policy.is_none_or(|policy| policy.shows(name));
            if is_shown && fixed >= from && all.len() < most {
                all.push(entry(fixed, name, self.key, body.kind()));
            }
            fixed += 1;
        }
        if let Some(changing) = changing {
            let kind = changing.kind();
            let (mut first, mut most) = (Some(from.saturating_sub(fixed)), most - all.len());
            // Of those that a policy keeps from the caller all may be what was asked for.
            while let Some(next) = first
                && most > 0
            {
                let names = changing.names(self.key, next, most);
                let is_last = names.len() < most;
                first = names.last().filter(|_| !is_last).and_then(|(last, _)| last.checked_add(1));
                for (place, name) in names {
                    // An object that is gone meanwhile is listed all the same, and not found afterwards.
                    let key = changing.entry(self.key, &name).map_or(self.key, |(_, key)| key);
                    if policy.is_none_or(|policy| policy.tells(key)) {
                        all.push(entry(fixed + place, &name, key, kind));
                        most -= 1;
                    }
                }
            }
        }
        Ok(all)
    }

    fn stat_fs(&self) -> Result<StatFs> {
        Ok(StatFs { magic: self.fs.magic, block_size: 4096, name_max: 255, ..StatFs::default() })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

struct OpenFile {
    node: Arc<Node>,
    inode: Arc<dyn Inode>,
    /// What is being read, and the offset at which this part of the text begins.
    text: SpinLock<Option<(u64, Arc<Output>)>>,
    /// Changes that were told.
    seen: AtomicU64,
}

impl OpenFile {
    fn has_end(&self) -> bool {
        let is_directory = self.node.body.kind() == FileType::Directory;
        is_directory || self.node.has_end || self.node.maker() == Maker::Setting
    }
}

impl File for OpenFile {
    fn read(&self, offset: u64, to: &mut Sink<'_>) -> Result<usize> {
        let current = self.text.lock().clone();
        let (mut start, mut text) = match current {
            Some((start, text)) if offset != 0 && offset >= start => (start, text),
            _ => (0, Arc::new(self.node.text(0)?)),
        };
        while offset >= start + text.length()
            && let Some(next) = text.next()
        {
            start += text.length();
            text = Arc::new(self.node.text(next)?);
        }
        *self.text.lock() = Some((start, text.clone()));
        text.copy(offset - start, to)
    }

    fn write(&self, _: u64, from: &mut Source<'_>) -> Result<usize> {
        let store = match self.node.body {
            Body::Entry(
                Entry::File { store, .. } | Entry::Granted { store, .. } | Entry::Guarded { store, .. },
            ) => store,
            body if body.kind() == FileType::Regular => {
                return Err(if self.node.maker() == Maker::Table { EIO } else { EINVAL });
            }
            _ => return Err(EISDIR),
        };
        let bytes = from.take_vec(WRITE_LIMIT)?;
        store(self.node.key, &bytes)?;
        Ok(bytes.len())
    }

    /// A change is told once: to whoever asks first (Linux' mounts_poll).
    fn poll(&self) -> Events {
        let count = self.node.changes().map(|(count, _)| count);
        let is_new = count.is_some_and(|count| self.seen.swap(count, Ordering::Relaxed) != count);
        let ready = Events::IN | Events::RDNORM;
        let ready = ready.with(Events::OUT | Events::WRNORM, count.is_none());
        ready.with(Events::ERR | Events::PRI, is_new)
    }

    fn wait_queue(&self) -> Option<&WaitQueue> {
        self.node.changes().map(|(_, queue)| queue)
    }

    fn is_seekable(&self) -> bool {
        true
    }

    fn size(&self) -> Result<u64> {
        Ok(0)
    }

    fn seek_end(&self) -> Result<u64> {
        // Linux' sequence files are made while they are read.
        if self.has_end() { Ok(0) } else { Err(EINVAL) }
    }

    fn seek_data(&self, _: u64, _: bool) -> Result<u64> {
        let is_directory = self.node.body.kind() == FileType::Directory;
        Err(if self.has_end() && !is_directory { ENXIO } else { EINVAL })
    }

    fn may_be_direct(&self) -> bool {
        false
    }

    fn can_write_at(&self) -> bool {
        self.has_end() || self.node.maker() == Maker::Device
    }

    fn page_source(&self) -> Result<Arc<dyn PageSource>> {
        Err(if self.node.maker() == Maker::Table { EIO } else { ENODEV })
    }

    fn stat(&self) -> Result<Stat> {
        self.node.stat()
    }

    fn truncate(&self, _: u64) -> Result<()> {
        Ok(())
    }

    fn inode(&self) -> Option<&Arc<dyn Inode>> {
        Some(&self.inode)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests;
