// SPDX-License-Identifier: Apache-2.0 OR MIT
//! File systems that programs mount: their types, their parameters, and how one is made. mount(2) and fsconfig(2) set the same
//! parameters, one by one.

use crate::mounts;
use abi::{Errno, PAGE_SIZE, Result, errno::*};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_fs::{FileType, Inode};
use calls_files::stat::lookup_at;
use task::files::{self, AT_FDCWD};
use task::identity::capabilities::CAP_SYS_ADMIN;
use task::users::{self, Kind, UserNamespace};
use vfs::{MountFlags, Owner, SuperBlock};

/// A tmpfs has half of memory unless `size=` says otherwise, as on Linux.
const TMPFS_SHARE: u64 = 2;

/// A type of file systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    Tmpfs,
    Ramfs,
    /// The machine has one of it, or a process namespace (proc).
    Single(&'static str),
    Ext4,
    /// Message queues of an IPC namespace.
    #[cfg(feature = "mqueue")]
    Mqueue,
    #[cfg(feature = "overlayfs")]
    Overlay,
    /// Mounted by the kernel alone, and reconfigured by programs.
    Other(&'static str),
}

/// The value of a parameter.
pub enum Value {
    Flag,
    Text(Vec<u8>),
    /// One of a kind that no file system here has: a path, bytes, a descriptor.
    Other,
}

/// Why a parameter is not set: the error of the call, and what the log of fsopen(2) says.
pub struct Refusal {
    pub error: Errno,
    pub why: String,
}

impl From<Errno> for Refusal {
    fn from(error: Errno) -> Refusal {
        Refusal { error, why: String::new() }
    }
}

/// A file system that is mounted, as far as a descriptor of fsopen(2) or fspick(2) knows it.
#[derive(Clone)]
pub struct Made {
    pub super_block: Arc<SuperBlock>,
    pub root: Arc<dyn Inode>,
}

/// What is said of a file system before it is made or reconfigured.
pub struct Parameters {
    pub kind: Type,
    pub source: Option<Vec<u8>>,
    flags: MountFlags,
    /// Flags that parameters set or took away.
    flags_said: u32,
    tmpfs: Tmpfs,
    proc: Proc,
    #[cfg(feature = "overlayfs")]
    overlay: crate::overlays::Overlay,
    /// Parameters that are looked at when the file system is made, with commas between them.
    words: Vec<u8>,
}

/// Parameters of a tmpfs (tmpfs(5)).
#[derive(Default)]
struct Tmpfs {
    /// Bytes; 0: no limit.
    size: Option<u64>,
    inodes: Option<u64>,
    mode: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
}

impl Type {
    /// `ENODEV` for one that programs cannot mount.
    pub fn of(name: &[u8]) -> Result<Type> {
        match name {
            b"tmpfs" => Ok(Type::Tmpfs),
            b"ramfs" => Ok(Type::Ramfs),
            b"ext4" if cfg!(feature = "ext4") => Ok(Type::Ext4),
            #[cfg(feature = "mqueue")]
            b"mqueue" => Ok(Type::Mqueue),
            #[cfg(feature = "overlayfs")]
            b"overlay" => Ok(Type::Overlay),
            _ => mounts::single(name).map(|(name, _)| Type::Single(name)).ok_or(ENODEV),
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Type::Tmpfs => "tmpfs",
            Type::Ramfs => "ramfs",
            Type::Ext4 => "ext4",
            #[cfg(feature = "mqueue")]
            Type::Mqueue => "mqueue",
            #[cfg(feature = "overlayfs")]
            Type::Overlay => "overlay",
            Type::Single(name) | Type::Other(name) => name,
        }
    }

    /// Linux has not taught it the calls of 5.2: its parameters are text.
    pub fn is_legacy(self) -> bool {
        matches!(self.name(), "devtmpfs" | "devpts" | "overlay")
    }

    /// Parameters that are known and mean nothing here, or what is so in any case.
    fn ignores(self, key: &[u8]) -> bool {
        match self {
            Type::Tmpfs => [&b"inode64"[..], b"mpol"].contains(&key),
            // Options of tmpfs are no error: whoever asks for one may get the other.
            Type::Ramfs => key != b"mode",
            Type::Single("devpts") => {
                [&b"uid"[..], b"gid", b"mode", b"ptmxmode", b"newinstance", b"max"].contains(&key)
            }
            Type::Single("devtmpfs") => true,
            _ => false,
        }
    }
}

impl Parameters {
    pub fn new(kind: Type) -> Parameters {
        Parameters {
            kind,
            source: None,
            flags: MountFlags(0),
            flags_said: 0,
            tmpfs: Tmpfs::default(),
            proc: Proc::default(),
            #[cfg(feature = "overlayfs")]
            overlay: Default::default(),
            words: Vec::new(),
        }
    }

    /// Those of mount(2): words with commas between them.
    pub fn set_all(&mut self, options: &[u8]) -> Result<()> {
        // A comma behind a backslash is part of a path, for the one file system that has paths.
        let (mut is_escaped, has_paths) = (false, self.kind.name() == "overlay");
        let is_end = |byte: &u8| {
            let is_end = *byte == b',' && !is_escaped;
            is_escaped = has_paths && *byte == b'\\' && !is_escaped;
            is_end
        };
        for option in options.split(is_end).filter(|option| !option.is_empty()) {
            let (key, value) = match option.iter().position(|b| *b == b'=') {
                // What begins with it has no name (Linux' generic_parse_monolithic).
                Some(0) => continue,
                Some(end) => (&option[..end], Value::Text(copy(&option[end + 1..])?)),
                None => (option, Value::Flag),
            };
            self.set(key, value).map_err(|refusal| refusal.error)?;
        }
        Ok(())
    }

    pub fn set(&mut self, key: &[u8], value: Value) -> core::result::Result<(), Refusal> {
        if let Some((flag, is_set)) = flag_of(key) {
            self.flags_said |= flag;
            self.flags.0 = if is_set { self.flags.0 | flag } else { self.flags.0 & !flag };
            return Ok(());
        }
        if key == b"source" {
            let Value::Text(source) = value else { return Err(refused("Non-string source")) };
            if self.source.is_some() {
                return Err(refused("Multiple sources"));
            }
            self.source = Some(source);
            return Ok(());
        }
        let shown = String::from_utf8_lossy(key).into_owned();
        let name = self.kind.name();
        if self.kind.ignores(key) {
            return Ok(());
        }
        let known = match self.kind {
            Type::Tmpfs | Type::Ramfs => self.tmpfs.set(key, &value)?,
            Type::Single("proc") => self.proc.set(key, &value),
            #[cfg(feature = "overlayfs")]
            Type::Overlay => self.overlay.set(key, value),
            Type::Ext4 => calls_files::disks::is_option(key) && self.keep(key, &value).is_ok(),
            _ => return Err(refused(&format!("{name}: Unknown parameter '{shown}'"))),
        };
        match known {
            true => Ok(()),
            false if self.knows(key) => Err(refused(&format!("{name}: Bad value for '{shown}'"))),
            false => Err(refused(&format!("{name}: Unknown parameter '{shown}'"))),
        }
    }

    /// Whether it is the name of a parameter.
    fn knows(&self, key: &[u8]) -> bool {
        match self.kind {
            Type::Tmpfs | Type::Ramfs => Tmpfs::KEYS.contains(&key),
            Type::Single("proc") => Proc::KEYS.contains(&key),
            _ => false,
        }
    }

    /// Keeps a word until the file system is made. `EINVAL` for more than a page.
    fn keep(&mut self, key: &[u8], value: &Value) -> Result<()> {
        let value = match value {
            Value::Flag => &[][..],
            Value::Text(text) => text,
            Value::Other => return Err(EINVAL),
        };
        let length = key.len() + value.len() + 2;
        if self.words.len() + length > PAGE_SIZE {
            return Err(EINVAL);
        }
        self.words.reserve_fallibly(length).map_err(|_| ENOMEM)?;
        for part in [if self.words.is_empty() { &b""[..] } else { b"," }, key] {
            self.words.extend_from_slice(part);
        }
        if !value.is_empty() {
            self.words.push(b'=');
            self.words.extend_from_slice(value);
        }
        Ok(())
    }

    /// Flags of file systems that are set besides.
    pub fn with_flags(mut self, flags: MountFlags) -> Parameters {
        self.flags.0 |= flags.0 & MountFlags::OF_FILE_SYSTEM;
        self
    }

    /// As mountinfo shows it.
    pub fn source_shown(&self) -> String {
        let source = self.source.as_deref().unwrap_or(b"none");
        String::from_utf8_lossy(source).into_owned()
    }

    /// The file system. `EPERM` for whoever may not have it.
    pub fn make(&self, owner: &Owner) -> Result<Made> {
        let is_inside = !task::current().credentials().lock().users.is_first();
        let root: Arc<dyn Inode> = match self.kind {
            Type::Tmpfs => self.tmpfs.make()?,
            Type::Ramfs => {
                let who = files::credentials();
                let mode = self.tmpfs.mode.unwrap_or(0o755);
                ramfs::ramfs(files::new_device(), files::current().memory, mode, (who.uid, who.gid))
            }
            Type::Single("proc") => {
                let pids = &task::current().process.pids;
                let may = task::current().credentials().lock().can_in(&pids.owner(), CAP_SYS_ADMIN);
                if !may {
                    return Err(EPERM);
                }
                let policy = self.proc.policy();
                let super_block = SuperBlock::new(self.flags, owner.clone()).with_options(policy.shown());
                let root = proc::proc(files::new_device(), pids, policy);
                return Ok(Made { super_block: Arc::new(super_block), root });
            }
            // They are not of a user namespace.
            Type::Single("devtmpfs" | "sysfs") | Type::Ext4 if is_inside => return Err(EPERM),
            Type::Single(name) => mounts::single(name.as_bytes()).ok_or(ENODEV)?.1,
            Type::Ext4 => self.on_disk()?,
            #[cfg(feature = "mqueue")]
            Type::Mqueue => calls_ipc::message_queues::file_system()?,
            #[cfg(feature = "overlayfs")]
            Type::Overlay => {
                let root = self.overlay.make()?;
                let read_only = if self.overlay.is_read_only() { MountFlags::READ_ONLY } else { 0 };
                let super_block = SuperBlock::new(MountFlags(self.flags.0 | read_only), owner.clone());
                let super_block = Arc::new(super_block.with_options(self.overlay.shown()));
                return Ok(Made { super_block, root });
            }
            Type::Other(_) => return Err(ENODEV),
        };
        Ok(Made { super_block: Arc::new(SuperBlock::new(self.flags, owner.clone())), root })
    }

    /// The root directory of the file system on a disk, which is named by its node.
    fn on_disk(&self) -> Result<Arc<dyn Inode>> {
        let source = self.source.as_deref().filter(|source| !source.is_empty()).ok_or(EINVAL)?;
        let node = lookup_at(AT_FDCWD, source, true)?;
        if node.kind() != FileType::BlockDevice {
            return Err(ENOTBLK);
        }
        if node.mount().flags().has(MountFlags::NODEV) {
            return Err(EACCES);
        }
        calls_files::disks::mount(node.inode().stat()?.rdev, self.flags, &self.words)
    }

    /// Changes what is mounted: the flags that were said, and those of `mask`; and the limits of a tmpfs.
    pub fn reconfigure(&self, made: &Made, mask: u32) -> Result<()> {
        let owner = UserNamespace::of_owner(made.super_block.owner());
        if !task::current().credentials().lock().can_in(&owner, CAP_SYS_ADMIN) {
            return Err(EPERM);
        }
        if let Some(node) = made.root.as_any().downcast_ref::<ramfs::Node>()
            && self.kind == Type::Tmpfs
        {
            node.set_limits(self.tmpfs.bytes(), self.tmpfs.inodes)?;
        }
        if let Some(policy) = proc::policy_of(&*made.root)
            && self.kind == Type::Single("proc")
        {
            policy.change(self.proc.hidden, self.proc.group, self.proc.processes_only);
            made.super_block.set_options(policy.shown());
        }
        made.super_block.reconfigure(self.flags, self.flags_said | mask)
    }
}

/// Parameters of a mount of /proc (proc(5)).
#[derive(Default)]
struct Proc {
    hidden: Option<proc::Hidden>,
    group: Option<u32>,
    processes_only: bool,
}

impl Proc {
    const KEYS: [&'static [u8]; 3] = [b"hidepid", b"gid", b"subset"];

    /// False for a parameter that it has not, and for a value that is none.
    fn set(&mut self, key: &[u8], value: &Value) -> bool {
        let Value::Text(text) = value else { return false };
        let Ok(text) = core::str::from_utf8(text) else { return false };
        match key {
            b"hidepid" => keep(&mut self.hidden, proc::Hidden::parse(text)),
            b"gid" => keep(&mut self.group, named(Kind::Group, text)),
            b"subset" => {
                self.processes_only |= text.split(':').any(|part| part == "pid");
                text.split(':').all(|part| part.is_empty() || part == "pid")
            }
            _ => false,
        }
    }

    fn policy(&self) -> proc::Policy {
        proc::Policy::new(
            self.hidden.unwrap_or(proc::Hidden::Nothing),
            self.group.unwrap_or(0),
            self.processes_only,
        )
    }
}

impl Tmpfs {
    const KEYS: [&'static [u8]; 6] = [b"size", b"nr_blocks", b"nr_inodes", b"mode", b"uid", b"gid"];

    /// False for a parameter that it has not, and for a value that is none.
    fn set(&mut self, key: &[u8], value: &Value) -> Result<bool> {
        let Value::Text(text) = value else { return Ok(false) };
        let Ok(text) = core::str::from_utf8(text) else { return Ok(false) };
        let is_set = match key {
            b"size" => keep(&mut self.size, size(text)),
            b"nr_blocks" => {
                keep(&mut self.size, count(text).and_then(|pages| pages.checked_mul(PAGE_SIZE as u64)))
            }
            // 0: as many as there is memory for.
            b"nr_inodes" => {
                keep(&mut self.inodes, count(text).map(|count| if count == 0 { u64::MAX } else { count }))
            }
            b"mode" => keep(&mut self.mode, u32::from_str_radix(text, 8).ok().map(|mode| mode & 0o7777)),
            b"uid" => keep(&mut self.uid, named(Kind::User, text)),
            b"gid" => keep(&mut self.gid, named(Kind::Group, text)),
            _ => false,
        };
        Ok(is_set)
    }

    /// Its limit, if one was said: without one it has all of memory.
    fn bytes(&self) -> Option<u64> {
        self.size.map(|size| if size == 0 { files::current().memory } else { size })
    }

    fn make(&self) -> Result<Arc<dyn Inode>> {
        let who = files::credentials();
        let owner = (self.uid.unwrap_or(who.uid), self.gid.unwrap_or(who.gid));
        let bytes = self.bytes().unwrap_or(files::current().memory / TMPFS_SHARE);
        let node = ramfs::tmpfs(files::new_device(), bytes, self.mode.unwrap_or(0o1777), owner);
        node.set_limits(None, self.inodes)?;
        Ok(node)
    }
}

fn keep<T>(to: &mut Option<T>, value: Option<T>) -> bool {
    let is_set = value.is_some();
    *to = value.or(to.take());
    is_set
}

fn named(kind: Kind, text: &str) -> Option<u32> {
    users::named(kind, text.parse().ok()?).ok()
}

fn refused(why: &str) -> Refusal {
    Refusal { error: EINVAL, why: String::from(why) }
}

fn copy(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    out.reserve_exact_fallibly(bytes.len()).map_err(|_| ENOMEM)?;
    out.extend_from_slice(bytes);
    Ok(out)
}

/// The flag of every file system that a parameter sets (true) or takes away. 0: one that nothing is kept of.
fn flag_of(key: &[u8]) -> Option<(u32, bool)> {
    Some(match key {
        b"ro" => (MountFlags::READ_ONLY, true),
        b"rw" => (MountFlags::READ_ONLY, false),
        b"sync" => (MountFlags::SYNCHRONOUS, true),
        b"async" => (MountFlags::SYNCHRONOUS, false),
        b"dirsync" => (MountFlags::DIRSYNC, true),
        b"lazytime" => (MountFlags::LAZYTIME, true),
        b"nolazytime" => (MountFlags::LAZYTIME, false),
        b"mand" | b"nomand" => (0, false),
        _ => return None,
    })
}

/// A number in tens, eights (0) or sixteens (0x) with K to E behind it, and what follows. More than 64 bits are lost (Linux' memparse).
fn number(text: &str) -> Option<(u64, &str)> {
    let (radix, text) = match text.as_bytes() {
        [b'0', b'x' | b'X', next, ..] if next.is_ascii_hexdigit() => (16, &text[2..]),
        [b'0', b'0'..=b'7', ..] => (8, &text[1..]),
        _ => (10, text),
    };
    let length = text.bytes().take_while(|byte| char::from(*byte).is_digit(radix)).count();
    let (digits, rest) = text.split_at(length);
    let add = |sum: u64, digit: char| {
        sum.wrapping_mul(radix.into()).wrapping_add(digit.to_digit(radix).unwrap_or(0).into())
    };
    let value = digits.chars().fold(0, add);
    let shift = match rest.bytes().next().map(|unit| unit.to_ascii_uppercase()) {
        Some(b'K') => 10,
        Some(b'M') => 20,
        Some(b'G') => 30,
        Some(b'T') => 40,
        Some(b'P') => 50,
        Some(b'E') => 60,
        _ => return (length > 0).then_some((value, rest)),
    };
    (length > 0).then_some((value << shift, &rest[1..]))
}

/// A size in bytes, or of memory in hundredths.
fn size(value: &str) -> Option<u64> {
    match number(value)? {
        (bytes, "") => Some(bytes),
        (share, "%") => Some(files::current().memory / 100 * share.min(100)),
        _ => None,
    }
}

/// A count of something that there can be no more of than an `i64` says.
fn count(value: &str) -> Option<u64> {
    number(value)
        .filter(|(count, rest)| rest.is_empty() && i64::try_from(*count).is_ok())
        .map(|(count, _)| count)
}
