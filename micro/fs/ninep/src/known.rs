// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is known of directories whose changes the host tells: the names in them, attributes, and listings.
//!
//! A server of ours watches each directory that it is asked about (LOOK) before it answers, and a change is in the queue before the call
//! that made it returns. So what was answered is true for as long as the queue tells nothing else: whoever uses it empties the queue
//! first ([`refresh`]). The machine's own changes come that way as well. What was asked while something changed is not kept, for which
//! each directory counts its changes ([`Mark`]).
//!
//! Attributes of a file are known in the directory that it was found in, since they are told there. They are not known of files with
//! several names, which may change in another directory. What is not seen: that the host gives a file that the machine has looked at
//! another name in another directory, and changes it by that.
//!
//! **Locks.** `TOLD` before a directory's own; no request is made under either.

use crate::node::Node;
use abi::{
    Errno, Result,
    errno::{EAGAIN, EINTR},
};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_fs::{DirEntry, Stat};
use api_lock::SpinLock;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use ordered::Map;

/// Where changes of watched directories are told.
pub trait Changes: Send + Sync {
    /// Whole events (`struct inotify_event`, inotify(7)) that have not been read yet; `EAGAIN`: there are none.
    fn read(&self, events: &mut [u8]) -> Result<usize>;
}

/// Events are read in pieces of so many bytes; one has at most 16 and a name.
const BUFFER: usize = 4096;
/// Bytes of an event before its name.
const EVENT: usize = 16;
const IN_MODIFY: u32 = 2;
const IN_ATTRIB: u32 = 4;
const IN_MOVED: u32 = 0x40 | 0x80;
const IN_CREATE: u32 = 0x100;
const IN_DELETE: u32 = 0x200;
const IN_Q_OVERFLOW: u32 = 0x4000;
const IN_IGNORED: u32 = 0x8000;
const IN_ISDIR: u32 = 0x4000_0000;

/// A name and what is known of it takes about this much memory.
const ENTRY_BYTES: u64 = 320;
/// The part of the machine's memory that all of them may take, and the most that they may be.
const MEMORY_PART: u64 = 64;
const MAX_ENTRIES: u64 = 128 << 10;

struct Told {
    changes: Arc<dyn Changes>,
    buffer: Vec<u8>,
    /// By the number of their watch. A directory that is in two trees has two nodes and one watch.
    nodes: Map<i32, Vec<Weak<Node>>>,
    /// Events of watches that no node had yet.
    strangers: u64,
}

static TOLD: SpinLock<Option<Told>> = SpinLock::new(None);
/// Names that are known in all directories.
static ENTRIES: AtomicUsize = AtomicUsize::new(0);

/// Lets volumes keep what they know for as long as no change is told.
pub fn hear_of_changes(changes: Arc<dyn Changes>) {
    let mut buffer = Vec::new();
    // Without memory for it everything is asked each time.
    if buffer.reserve_exact_fallibly(BUFFER).is_ok() {
        buffer.extend([0; BUFFER]);
        *TOLD.lock() = Some(Told { changes, buffer, nodes: Map::new(), strangers: 0 });
    }
}

/// Takes in all changes so far; how many events of watches there were that no node had. `None`: nothing is told, so nothing is known.
pub fn refresh() -> Option<u64> {
    // Nodes that end do so when the lock is free.
    let mut seen = Vec::new();
    let mut told = TOLD.lock();
    loop {
        let Told { changes, buffer, nodes, strangers } = told.as_mut()?;
        let length = match changes.read(buffer) {
            Ok(length) if length > 0 => length,
            Err(EAGAIN) => return Some(*strangers),
            Err(EINTR) => continue,
            // No more can be heard.
            _ => {
                *told = None;
                return None;
            }
        };
        let mut events = buffer.get(..length).unwrap_or_default();
        while let Some((header, rest)) = events.split_first_chunk::<EVENT>() {
            let word =
                |at: usize| u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
            let (watch, mask, length) = (word(0).cast_signed(), word(4), word(12) as usize);
            let Some((name, rest)) = rest.split_at_checked(length) else { break };
            let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
            if mask & IN_Q_OVERFLOW != 0 {
                *strangers += 1;
                nodes.values().flatten().filter_map(Weak::upgrade).for_each(|node| {
                    node.known.lock().forget();
                    seen.push(node);
                });
            } else if let Some(nodes) = nodes.get(&watch) {
                for node in nodes.iter().filter_map(Weak::upgrade) {
                    let gone = node.known.lock().take_in(mask, name);
                    seen.push(node);
                    if let Some(gone) = gone.and_then(|gone| gone.upgrade()) {
                        gone.known.lock().loses_its_name();
                        seen.push(gone);
                    }
                }
            } else if mask & IN_IGNORED == 0 {
                *strangers += 1;
            }
            events = rest;
        }
    }
}

/// Tells a node of the changes of this watch from now on.
pub fn add(watch: i32, node: &Arc<Node>) {
    if let Some(told) = TOLD.lock().as_mut() {
        let nodes = told.nodes.entry(watch).or_insert(Vec::new());
        if !nodes.iter().any(|known| Weak::ptr_eq(known, &Arc::downgrade(node))) {
            nodes.push(Arc::downgrade(node));
        }
    }
}

/// A node with this watch has ended.
pub fn remove(watch: i32) {
    if let Some(told) = TOLD.lock().as_mut()
        && let Some(nodes) = told.nodes.get_mut(&watch)
    {
        nodes.retain(|node| node.strong_count() > 0);
        if nodes.is_empty() {
            told.nodes.remove(&watch);
        }
    }
}

/// Room for more names in all directories; where there is none, half of what is known is forgotten, that of directories first that were
/// looked at first.
fn has_room(count: usize) -> bool {
    let (pages, _) = api_mem::statistics();
    let most = (pages * abi::PAGE_SIZE as u64 / MEMORY_PART / ENTRY_BYTES).min(MAX_ENTRIES) as usize;
    if count > most / 2 {
        return false;
    }
    if ENTRIES.load(Relaxed) + count <= most {
        return true;
    }
    let mut seen = Vec::new();
    if let Some(told) = TOLD.lock().as_mut() {
        // The numbers of watches grow.
        for node in told.nodes.values().flatten().filter_map(Weak::upgrade) {
            if ENTRIES.load(Relaxed) <= most / 2 {
                break;
            }
            node.known.lock().forget();
            seen.push(node);
        }
    }
    true
}

/// What a name in a directory leads to.
pub enum Entry {
    Nothing,
    /// No directory.
    File(KnownFile),
    Directory(Weak<Node>),
}

/// What is known of a file that is no directory.
pub struct KnownFile {
    pub stat: Stat,
    /// All of its attributes are told here.
    pub is_sure: bool,
    /// Where a symbolic link leads, if that is known.
    pub target: Option<Arc<[u8]>>,
    /// No other state ever had it, so that whoever finds it again knows that the file has not changed.
    pub version: u64,
    /// What was answered to who asked for the attribute `security.capability` (`ENODATA`, `EOPNOTSUPP`): each execution does.
    pub no_capabilities: Option<Errno>,
}

impl KnownFile {
    pub fn new(stat: Stat, target: Option<Arc<[u8]>>) -> KnownFile {
        KnownFile { stat, is_sure: stat.links == 1, target, version: new_version(), no_capabilities: None }
    }
}

impl Entry {
    /// What is known of a file of that name.
    pub fn file(&self) -> Option<&KnownFile> {
        if let Entry::File(file) = self { Some(file) } else { None }
    }

    /// Nothing was told of the file since it was asked for before: it is in the state that it was in.
    fn is_still(&self, new: &Entry) -> bool {
        let same =
            |before: &KnownFile, new: &KnownFile| before.is_sure && before.stat.inode == new.stat.inode;
        self.file().zip(new.file()).is_some_and(|(before, new)| same(before, new))
    }

    /// Takes what is new from an answer about the same state.
    fn learns(&mut self, new: Entry) {
        if let (Entry::File(before), Entry::File(new)) = (self, new) {
            before.target = before.target.take().or(new.target);
        }
    }

    fn file_mut(&mut self) -> Option<&mut KnownFile> {
        if let Entry::File(file) = self { Some(file) } else { None }
    }
}

fn new_version() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Relaxed)
}

/// What is known of a directory.
#[derive(Default)]
pub struct Known {
    /// The number of its watch. `None`: nothing can be known, or the node is no directory.
    pub watch: Option<i32>,
    stat: Option<Stat>,
    entries: Map<Vec<u8>, Entry>,
    listing: Option<Arc<[DirEntry]>>,
    /// It has been listed, with or without attributes.
    pub is_listed: bool,
    /// Names that were looked for since it was listed, and of which no more is known than that.
    missed: u32,
    changes: u64,
}

/// Who looks for so many names of a listing will look for the others as well.
const MANY: u32 = 3;

/// The state of a directory when something was asked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    changes: u64,
    /// `None`: nothing was told.
    strangers: Option<u64>,
}

impl Mark {
    pub fn strangers(self) -> Option<u64> {
        self.strangers
    }
}

impl Known {
    /// Its state now, when there had been so many events of strangers.
    pub fn mark(&self, strangers: Option<u64>) -> Mark {
        Mark { changes: self.changes, strangers }
    }

    fn forget(&mut self) {
        self.changes += 1;
        self.stat = None;
        self.forget_names();
    }

    fn forget_names(&mut self) {
        let count = self.entries.len() + self.listing.as_ref().map_or(0, |list| list.len());
        ENTRIES.fetch_sub(count, Relaxed);
        self.entries = Map::new();
        self.listing = None;
    }

    fn forget_name(&mut self, name: &[u8]) {
        if self.entries.remove(name).is_some() {
            ENTRIES.fetch_sub(1, Relaxed);
        }
    }

    /// A name is looked for of which nothing is known. Whether the listing is to be asked for again, with attributes.
    pub fn misses(&mut self) -> bool {
        let Some(list) = &self.listing else { return false };
        self.missed += 1;
        self.missed == MANY && list.len() > 2 * MANY as usize
    }

    /// The file of this name has other attributes, and nothing tells of that.
    pub fn file_changes(&mut self, name: &[u8]) {
        self.changes += 1;
        if let Some(file) = self.entries.get_mut(name).and_then(Entry::file_mut) {
            (file.is_sure, file.version, file.no_capabilities) = (false, new_version(), None);
        }
    }

    /// It has no links any more, of which its own watch does not tell.
    fn loses_its_name(&mut self) {
        self.changes += 1;
        self.stat = None;
    }

    /// An event of its watch. Answers a directory in it that has lost its name, if it is known.
    fn take_in(&mut self, mask: u32, name: &[u8]) -> Option<Weak<Node>> {
        self.changes += 1;
        let mut gone = None;
        if name.is_empty() {
            self.stat = None;
            if mask & (IN_ATTRIB | IN_MODIFY) == 0 {
                self.forget_names();
            }
            return None;
        }
        if mask & (IN_CREATE | IN_DELETE | IN_MOVED) != 0 {
            self.stat = None;
            if let Some(list) = self.listing.take() {
                ENTRIES.fetch_sub(list.len(), Relaxed);
            }
            if let Some(Entry::Directory(node)) = self.entries.get(name) {
                gone = Some(node.clone());
            }
            self.forget_name(name);
        } else if mask & IN_ISDIR == 0 {
            // A directory's own attributes are told by its own watch.
            self.file_changes(name);
        }
        gone
    }

    /// Whether what was asked at that time is true still.
    fn is_as(&self, mark: Mark) -> bool {
        self.watch.is_some() && mark.strangers.is_some() && self.changes == mark.changes
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        self.forget_names();
    }
}

impl Node {
    /// To be taken before something is asked of this directory.
    pub(crate) fn mark(&self) -> Mark {
        let strangers = refresh();
        self.known.lock().mark(strangers)
    }

    /// Its attributes, where they are known: a directory's.
    pub(crate) fn known_stat(&self) -> Option<Stat> {
        refresh()?;
        self.known.lock().stat
    }

    /// `mark`: of when it was asked.
    pub(crate) fn keep_stat(&self, stat: Stat, mark: Mark) {
        // A watch that was made by the answer may have told of a change before it was known.
        let strangers = refresh();
        let mut known = self.known.lock();
        if strangers == mark.strangers && known.is_as(mark) {
            known.stat = Some(stat);
        }
    }

    /// What is known of a name in this directory.
    pub(crate) fn with_entry<T>(&self, name: &[u8], read: impl FnOnce(&Entry) -> Option<T>) -> Option<T> {
        refresh()?;
        self.known.lock().entries.get(name).and_then(read)
    }

    /// `mark`: of when it was asked what the names lead to.
    pub(crate) fn keep_entries(&self, entries: Vec<(Vec<u8>, Entry)>, mark: Mark) {
        if !has_room(entries.len()) {
            return;
        }
        refresh();
        let mut known = self.known.lock();
        if known.is_as(mark) {
            let before = known.entries.len();
            for (name, entry) in entries {
                match known.entries.get_mut(&name) {
                    Some(before) if before.is_still(&entry) => before.learns(entry),
                    _ => drop(known.entries.insert(name, entry)),
                }
            }
            ENTRIES.fetch_add(known.entries.len() - before, Relaxed);
        }
    }

    pub(crate) fn keep_entry(&self, name: &[u8], entry: Entry, mark: Mark) {
        let (mut own, mut one) = (Vec::new(), Vec::new());
        if own.reserve_exact_fallibly(name.len()).is_ok() && one.reserve_exact_fallibly(1).is_ok() {
            own.extend_from_slice(name);
            one.push((own, entry));
            self.keep_entries(one, mark);
        }
    }

    /// Attributes of a file, which was found by this name once and may have lost it since.
    pub(crate) fn keep_attributes(&self, name: &[u8], new: Stat, mark: Mark) {
        self.keep_of(name, new.inode, mark, |file| (file.stat, file.is_sure) = (new, new.links == 1));
    }

    /// Keeps what else was asked of a file that was found by this name.
    pub(crate) fn keep_of(&self, name: &[u8], inode: u64, mark: Mark, keep: impl FnOnce(&mut KnownFile)) {
        refresh();
        let mut known = self.known.lock();
        if known.is_as(mark)
            && let Some(file) = known.entries.get_mut(name).and_then(Entry::file_mut)
            && file.stat.inode == inode
        {
            keep(file);
        }
    }

    /// All names in this directory.
    pub(crate) fn known_listing(&self) -> Option<Arc<[DirEntry]>> {
        refresh()?;
        self.known.lock().listing.clone()
    }

    pub(crate) fn keep_listing(&self, list: Vec<DirEntry>, mark: Mark) {
        if !has_room(list.len()) {
            return;
        }
        let list: Arc<[DirEntry]> = list.into();
        refresh();
        let mut known = self.known.lock();
        if known.is_as(mark) && known.listing.is_none() {
            ENTRIES.fetch_add(list.len(), Relaxed);
            known.listing = Some(list);
            known.missed = 0;
        }
    }
}
