// SPDX-License-Identifier: Apache-2.0 OR MIT
//! File systems whose files are answers: /proc and /sys.
//!
//! This crate is the tree; what the files say comes from the functions that [`Directory`] is filled with, so that it
//! depends on nothing of the processes and devices it shows. A file's text is made when it is read from its start,
//! and later reads of the same open file continue in that text.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[cfg(test)]
extern crate std;

use abi::{Result, errno::*};
use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use api_fs::{DirEntry, File, FileType, Inode, Magic, SetAttr, Sink, Source, Stat, StatFs, Timespec};
use api_lock::SpinLock;
use core::any::Any;
use core::sync::atomic::{AtomicU64, Ordering};

/// Makes the text of a file, or the target of a link.
pub type Text = Box<dyn Fn() -> Result<Vec<u8>> + Send + Sync>;
/// Takes what was written to a file.
pub type Store = Box<dyn Fn(&[u8]) -> Result<()> + Send + Sync>;
/// Where a magic link leads.
pub type Lead = Box<dyn Fn() -> Result<Magic> + Send + Sync>;
/// Largest write that is taken.
const WRITE_LIMIT: usize = 4096;

/// What a name stands for.
pub enum Entry {
    File {
        text: Text,
        store: Option<Store>,
        permissions: u32,
    },
    /// A symbolic link by its text.
    Link(Text),
    /// A link that leads somewhere by itself; the text is for readlink.
    Magic {
        text: Text,
        lead: Lead,
    },
    Directory(Directory),
}

impl Entry {
    /// A file for reading.
    pub fn text(text: impl Fn() -> Result<Vec<u8>> + Send + Sync + 'static) -> Entry {
        Entry::File { text: Box::new(text), store: None, permissions: 0o444 }
    }

    /// A file that always says the same.
    pub fn fixed(text: &'static str) -> Entry {
        Entry::text(move || Ok(text.as_bytes().to_vec()))
    }
}

/// Names that come and go, below the fixed ones of a directory.
pub trait Changing: Send + Sync {
    /// The names there are now.
    fn names(&self) -> Vec<String>;
    /// The entry of a name; `ENOENT` when there is none.
    fn entry(&self, name: &str) -> Result<Entry>;
    /// The type of all its entries.
    fn kind(&self) -> FileType;
}

/// The contents of a directory.
#[derive(Default)]
pub struct Directory {
    fixed: BTreeMap<String, Entry>,
    changing: Option<Box<dyn Changing>>,
}

impl Directory {
    pub fn new() -> Directory {
        Directory::default()
    }

    /// Adds an entry at a path below this directory; directories on the way are made.
    pub fn add(&mut self, path: &str, entry: Entry) -> &mut Directory {
        match path.split_once('/') {
            None => {
                self.fixed.insert(path.to_owned(), entry);
            }
            Some((first, rest)) => {
                let below =
                    self.fixed.entry(first.to_owned()).or_insert_with(|| Entry::Directory(Directory::new()));
                if let Entry::Directory(below) = below {
                    below.add(rest, entry);
                }
            }
        }
        self
    }

    /// A directory of names that come and go.
    pub fn changing(names: impl Changing + 'static) -> Directory {
        Directory { fixed: BTreeMap::new(), changing: Some(Box::new(names)) }
    }

    /// The root inode of a file system with these contents. `magic` is its `f_type`.
    pub fn into_root(self, device: u64, magic: u64) -> Arc<dyn Inode> {
        let fs = Arc::new(Fs { device, magic, next: AtomicU64::new(1) });
        Node::new(&fs, Entry::Directory(self), Owner::default())
    }
}

struct Fs {
    device: u64,
    magic: u64,
    next: AtomicU64,
}

#[derive(Clone, Copy, Default)]
struct Owner {
    uid: u32,
    gid: u32,
}

enum Body {
    File {
        text: Text,
        store: Option<Store>,
        permissions: u32,
    },
    Link(Text),
    Magic {
        text: Text,
        lead: Lead,
    },
    Directory {
        fixed: BTreeMap<String, Arc<Node>>,
        changing: Option<Box<dyn Changing>>,
        known: SpinLock<Known>,
    },
}

/// Inodes of changing names that are in use.
type Known = BTreeMap<String, Weak<Node>>;

struct Node {
    fs: Arc<Fs>,
    this: Weak<Node>,
    number: u64,
    owner: Owner,
    born: Timespec,
    body: Body,
}

impl Node {
    fn new(fs: &Arc<Fs>, entry: Entry, owner: Owner) -> Arc<Node> {
        let number = fs.next.fetch_add(1, Ordering::Relaxed);
        let body = match entry {
            Entry::File { text, store, permissions } => Body::File { text, store, permissions },
            Entry::Link(text) => Body::Link(text),
            Entry::Magic { text, lead } => Body::Magic { text, lead },
            Entry::Directory(Directory { fixed, changing }) => {
                let fixed =
                    fixed.into_iter().map(|(name, entry)| (name, Node::new(fs, entry, owner))).collect();
                Body::Directory { fixed, changing, known: SpinLock::default() }
            }
        };
        let (fs, born) = (fs.clone(), Timespec::now());
        Arc::new_cyclic(|this| Node { fs, this: this.clone(), number, owner, born, body })
    }

    fn kind_of(&self) -> FileType {
        match &self.body {
            Body::File { .. } => FileType::Regular,
            Body::Link(_) | Body::Magic { .. } => FileType::Symlink,
            Body::Directory { .. } => FileType::Directory,
        }
    }
}

impl Inode for Node {
    fn stat(&self) -> Result<Stat> {
        let permissions = match &self.body {
            Body::File { permissions, .. } => *permissions,
            Body::Directory { .. } => 0o555,
            _ => 0o777,
        };
        let mut stat = Stat::new(self.kind_of(), permissions);
        stat.device = self.fs.device;
        stat.inode = self.number;
        stat.block_size = 1024;
        stat.uid = self.owner.uid;
        stat.gid = self.owner.gid;
        (stat.accessed, stat.modified, stat.changed) = (self.born, self.born, self.born);
        if let Body::Directory { fixed, .. } = &self.body {
            stat.links = 2 + fixed.values().filter(|n| n.kind_of() == FileType::Directory).count() as u64;
        }
        Ok(stat)
    }

    fn kind(&self) -> Result<FileType> {
        Ok(self.kind_of())
    }

    fn names_change(&self) -> bool {
        true
    }

    fn magic(&self) -> Option<Result<Magic>> {
        match &self.body {
            Body::Magic { lead, .. } => Some(lead()),
            _ => None,
        }
    }

    fn open(&self, this: &Arc<dyn Inode>, _flags: u32) -> Result<Arc<dyn File>> {
        match &self.body {
            Body::Link(_) | Body::Magic { .. } => Err(ELOOP),
            _ => {
                let node = self.this.upgrade().ok_or(EIO)?;
                Ok(Arc::new(OpenFile { node, inode: this.clone(), text: SpinLock::new(None) }))
            }
        }
    }

    /// Attributes are fixed; O_TRUNC of a file that is written to is no error.
    fn set_attr(&self, change: &SetAttr) -> Result<()> {
        if change.permissions.is_some() || change.uid.is_some() || change.gid.is_some() {
            Err(EPERM)
        } else {
            Ok(())
        }
    }

    fn read_link(&self) -> Result<Vec<u8>> {
        match &self.body {
            Body::Link(text) | Body::Magic { text, .. } => text(),
            _ => Err(EINVAL),
        }
    }

    fn lookup(&self, name: &[u8]) -> Result<Arc<dyn Inode>> {
        let Body::Directory { fixed, changing, known } = &self.body else { return Err(ENOTDIR) };
        let name = core::str::from_utf8(name).map_err(|_| ENOENT)?;
        if let Some(node) = fixed.get(name) {
            return Ok(node.clone());
        }
        let entry = changing.as_ref().ok_or(ENOENT)?.entry(name)?;
        if let Some(node) = known.lock().get(name).and_then(Weak::upgrade) {
            return Ok(node);
        }
        let node = Node::new(&self.fs, entry, self.owner);
        let mut known = known.lock();
        known.retain(|_, node| node.strong_count() > 0);
        known.insert(name.to_owned(), Arc::downgrade(&node));
        Ok(node)
    }

    fn create(&self, _: &[u8], _: FileType, _: u32, _: (u32, u32), _: u64) -> Result<Arc<dyn Inode>> {
        Err(EPERM)
    }

    fn symlink(&self, _: &[u8], _: &[u8], _: (u32, u32)) -> Result<()> {
        Err(EPERM)
    }

    fn link(&self, _: &[u8], _: &Arc<dyn Inode>) -> Result<()> {
        Err(EPERM)
    }

    fn unlink(&self, _: &[u8], _: bool) -> Result<()> {
        Err(EPERM)
    }

    fn rename(&self, _: &[u8], _: &Arc<dyn Inode>, _: &[u8], _: u32) -> Result<()> {
        Err(EPERM)
    }

    fn list(&self, from: u64, most: usize) -> Result<Vec<DirEntry>> {
        let Body::Directory { fixed, changing, .. } = &self.body else { return Err(ENOTDIR) };
        let first = fixed.iter().map(|(name, node)| (name.clone(), node.number, node.kind_of()));
        let changing = changing.iter().flat_map(|c| {
            let kind = c.kind();
            c.names().into_iter().map(move |name| (name, u64::from(u32::MAX), kind))
        });
        let entry = |(i, (name, inode, kind)): (usize, (String, u64, FileType))| DirEntry {
            name: name.into_bytes(),
            inode,
            kind,
            next: i as u64 + 1,
        };
        Ok(first.chain(changing).enumerate().skip(from as usize).take(most).map(entry).collect())
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
    /// What is being read.
    text: SpinLock<Option<Arc<Vec<u8>>>>,
}

impl File for OpenFile {
    fn read(&self, offset: u64, to: &mut Sink<'_>) -> Result<usize> {
        let Body::File { text, .. } = &self.node.body else { return Err(EISDIR) };
        let current = self.text.lock().clone();
        let current = match current {
            Some(current) if offset != 0 => current,
            _ => {
                let made = Arc::new(text()?);
                *self.text.lock() = Some(made.clone());
                made
            }
        };
        let rest = usize::try_from(offset).ok().and_then(|o| current.get(o..)).unwrap_or(&[]);
        to.put(rest)
    }

    fn write(&self, _: u64, from: &mut Source<'_>) -> Result<usize> {
        let Body::File { store, .. } = &self.node.body else { return Err(EISDIR) };
        let store = store.as_ref().ok_or(EACCES)?;
        let bytes = from.take_vec(WRITE_LIMIT)?;
        store(&bytes)?;
        Ok(bytes.len())
    }

    fn is_seekable(&self) -> bool {
        true
    }

    fn size(&self) -> Result<u64> {
        Ok(0)
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
mod tests {
    use super::*;
    use core::sync::atomic::AtomicU32;
    use std::format;

    static COUNT: AtomicU32 = AtomicU32::new(0);

    struct Numbers;
    impl Changing for Numbers {
        fn names(&self) -> Vec<String> {
            (0..3).map(|n| format!("{n}")).collect()
        }
        fn entry(&self, name: &str) -> Result<Entry> {
            let number: u32 = name.parse().ok().filter(|n| *n < 3).ok_or(ENOENT)?;
            let mut directory = Directory::new();
            directory.add("n", Entry::text(move || Ok(format!("{number}\n").into_bytes())));
            Ok(Entry::Directory(directory))
        }
        fn kind(&self) -> FileType {
            FileType::Directory
        }
    }

    fn tree() -> Arc<dyn Inode> {
        let mut root = Directory::new();
        root.add("version", Entry::fixed("Linux\n"));
        root.add(
            "sys/kernel/count",
            Entry::text(|| Ok(format!("{}", COUNT.fetch_add(1, Ordering::Relaxed)).into_bytes())),
        );
        root.add("self", Entry::Link(Box::new(|| Ok(b"1".to_vec()))));
        root.add("task", Entry::Directory(Directory::changing(Numbers)));
        root.into_root(5, 0x9fa0)
    }

    fn walk(root: &Arc<dyn Inode>, path: &str) -> Result<Arc<dyn Inode>> {
        path.split('/').try_fold(root.clone(), |dir, name| dir.lookup(name.as_bytes()))
    }

    fn read(file: &Arc<dyn File>, offset: u64) -> Vec<u8> {
        let mut out = [0; 100];
        let n = file.read(offset, &mut Sink::kernel(&mut out)).unwrap();
        out[..n].to_vec()
    }

    #[test]
    fn texts_are_made_anew_when_read_from_the_start() {
        let root = tree();
        let inode = walk(&root, "sys/kernel/count").unwrap();
        let file = inode.open(&inode, 0).unwrap();
        let first = read(&file, 0);
        assert_ne!(read(&file, 0), first);
        assert_eq!(read(&file, 1), b"");
        assert_eq!(inode.stat().unwrap().size, 0);
        assert_eq!(file.write(0, &mut Source::kernel(b"1")), Err(EACCES));
    }

    #[test]
    fn changing_names_keep_their_inode_while_it_is_used() {
        let root = tree();
        let a = walk(&root, "task/2").unwrap();
        assert!(Arc::ptr_eq(&a, &walk(&root, "task/2").unwrap()));
        let inode = walk(&root, "task/2/n").unwrap();
        assert_eq!(read(&inode.open(&inode, 0).unwrap(), 0), b"2\n");
        assert_eq!(walk(&root, "task/3").err(), Some(ENOENT));
        assert_eq!(walk(&root, "task").unwrap().list(1, 10).unwrap().len(), 2);
        assert_eq!(walk(&root, "self").unwrap().read_link().unwrap(), b"1");
        assert_eq!(root.unlink(b"version", false), Err(EPERM));
    }
}
