// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pages of a file that is mapped. While they live, read and write go through them, so that mappings and calls see
//! the same bytes.

use crate::client::Fid;
use crate::file::{read_once, write_once};
use crate::node::Node;
use abi::{PAGE_SIZE, Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_fs::{Sink, Source};
use api_lock::SpinLock;
use api_mem::{Gather, PageFrame, PageSource, Pages};
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use ordered::{Map, Set};

const PAGE: u64 = PAGE_SIZE as u64;
/// The attribute by which the host's server tells the system-call sites of a file (`api-sites`). No file system has it: its
/// name space is none of Linux's.
const SITES: &[u8] = b"unilith.sites";
/// Most bytes of them: those of the largest programs take a tenth.
const SITES_LIMIT: u64 = 4 << 20;
/// Text that is mapped so often is fetched as a whole.
const OFTEN: u32 = 3;
/// Pages fetched at once around a fault.
const CLUSTER: u64 = 16;

pub struct NinePages {
    node: Arc<Node>,
    /// Handles to read and write by; the descriptors they came from may be closed by now.
    fids: SpinLock<Vec<Arc<Fid>>>,
    pages: SpinLock<Map<u64, PageFrame>>,
    /// Pages that a mapping may have written to.
    writable: SpinLock<Set<u64>>,
    length: AtomicU64,
    /// System-call sites, once they were asked for.
    sites: SpinLock<Option<Arc<[u8]>>>,
    /// How often text of it was mapped.
    texts: AtomicU32,
    /// The state of the file that they are of ([`Node::version`]); `None`: they are nobody's once it is not mapped.
    version: Option<u64>,
}

impl NinePages {
    pub fn new(node: Arc<Node>, fid: Arc<Fid>, length: u64, version: Option<u64>) -> Arc<NinePages> {
        Arc::new(NinePages {
            node,
            fids: SpinLock::new(Vec::from([fid])),
            pages: SpinLock::new(Map::new()),
            writable: SpinLock::new(Set::new()),
            length: AtomicU64::new(length),
            sites: SpinLock::new(None),
            texts: AtomicU32::new(0),
            version,
        })
    }

    pub fn version(&self) -> Option<u64> {
        self.version
    }

    /// The number of the file.
    pub fn file(&self) -> u64 {
        self.node.path()
    }

    pub fn count(&self) -> usize {
        self.pages.lock().len()
    }

    /// The file is still as it was when they were made.
    pub fn are_true(&self) -> bool {
        self.version.is_some() && self.version == self.node.version()
    }

    /// A mapping may have written to them.
    pub fn are_written(&self) -> bool {
        !self.writable.lock().is_empty()
    }

    /// One more handle, which may be allowed what the others are not.
    pub fn also(&self, fid: &Arc<Fid>) {
        let mut fids = self.fids.lock();
        if fids.len() < 2 && !fids.iter().any(|f| Arc::ptr_eq(f, fid)) {
            fids.push(fid.clone());
        }
    }

    pub fn grew(&self, end: u64) {
        self.length.fetch_max(end, Ordering::Relaxed);
    }

    /// The file was cut to `size`.
    pub fn cut(&self, size: u64) {
        self.length.store(size, Ordering::Relaxed);
        let gone = self.pages.lock().split_off(&size.div_ceil(PAGE));
        drop(gone);
        let within = (size % PAGE) as usize;
        if within != 0
            && let Some(frame) = self.known(size / PAGE)
        {
            frame.zero(within, PAGE_SIZE - within);
        }
    }

    fn known(&self, index: u64) -> Option<PageFrame> {
        self.pages.lock().get(&index).cloned()
    }

    /// read(2) while mapped: from the page where there is one, else up to the next page that there is.
    pub fn read(&self, fid: &Fid, offset: u64, to: &mut Sink<'_>) -> Result<usize> {
        let (index, within) = (offset / PAGE, (offset % PAGE) as usize);
        let left = self.length.load(Ordering::Relaxed).saturating_sub(offset);
        if let Some(frame) = self.known(index) {
            let n = (PAGE_SIZE - within).min(to.remaining()).min(usize::try_from(left).unwrap_or(usize::MAX));
            return frame.send_up_to_fault(within, n, to);
        }
        // What is kept is read in pieces that are kept as well.
        if self.version.is_some() && left > 0 && to.remaining() < CLUSTER as usize * PAGE_SIZE {
            let frame = self.fetch(index)?;
            let n = (PAGE_SIZE - within).min(to.remaining()).min(usize::try_from(left).unwrap_or(usize::MAX));
            return frame.send_up_to_fault(within, n, to);
        }
        let next = self.pages.lock().range(index..).next().map(|(next, _)| *next);
        match next {
            None => read_once(fid, offset, to),
            Some(next) => {
                let room = usize::try_from(next * PAGE - offset).unwrap_or(usize::MAX).min(to.remaining());
                let mut buffer = Vec::new();
                let room = room.min(fid.client().io_limit() as usize);
                buffer.reserve_exact_fallibly(room).map_err(|_| ENOMEM)?;
                buffer.resize(room, 0);
                let n = read_once(fid, offset, &mut Sink::kernel(&mut buffer))?;
                to.put_up_to_fault(&buffer[..n])
            }
        }
    }

    /// write(2) while mapped stored `n` bytes at `offset`: the pages get them too.
    pub fn written(&self, fid: &Fid, offset: u64, n: usize) {
        let end = offset + n as u64;
        self.grew(end);
        let range = offset / PAGE..end.div_ceil(PAGE);
        let touched: Vec<(u64, PageFrame)> =
            self.pages.lock().range(range).map(|(i, f)| (*i, f.clone())).collect();
        for (index, frame) in touched {
            let start = offset.max(index * PAGE);
            let stop = end.min((index + 1) * PAGE);
            let mut bytes = [0; PAGE_SIZE];
            let bytes = &mut bytes[..(stop - start) as usize];
            // What the server has now is what was written; where it cannot be read, the page keeps what it had.
            if read_once(fid, start, &mut Sink::kernel(bytes)) == Ok(bytes.len()) {
                frame.write((start % PAGE) as usize, bytes);
            }
        }
    }

    fn with_fid<T>(&self, mut operation: impl FnMut(&Fid) -> Result<T>) -> Result<T> {
        let fids = self.fids.lock().clone();
        let mut result = Err(EIO);
        for fid in fids {
            result = operation(&fid);
            if result.is_ok() {
                return result;
            }
        }
        result
    }

    /// Fetches the cluster of pages around `index` where they are not there yet.
    fn fetch(&self, index: u64) -> Result<PageFrame> {
        if self.version.is_some() {
            self.node.client().kept.grows();
        }
        let first = index - index % CLUSTER;
        if let Some(frame) = self.fetch_given(first, index) {
            return Ok(frame);
        }
        let mut bytes = Vec::new();
        let room = (CLUSTER * PAGE) as usize;
        bytes.reserve_exact_fallibly(room).map_err(|_| ENOMEM)?;
        bytes.resize(room, 0);
        let mut filled = 0;
        // A short answer in front of the wanted page is asked again; behind it what came is enough.
        while filled < ((index - first + 1) * PAGE) as usize {
            let at = first * PAGE + filled as u64;
            let n = self.with_fid(|fid| read_once(fid, at, &mut Sink::kernel(&mut bytes[filled..])))?;
            if n == 0 {
                break;
            }
            filled += n;
        }
        let length = self.length.load(Ordering::Relaxed);
        let mut wanted = None;
        for i in 0..CLUSTER {
            let (page, start) = (first + i, (i * PAGE) as usize);
            // Whole pages, and the last of the file: its rest is zero.
            let is_whole =
                start + PAGE_SIZE <= filled || (start < filled && first * PAGE + filled as u64 >= length);
            if page != index && !is_whole {
                continue;
            }
            let Ok(frame) = PageFrame::new() else { continue };
            frame.write(0, &bytes[start..start + PAGE_SIZE]);
            let frame = self.pages.lock().entry(page).or_insert(frame).clone();
            if page == index {
                wanted = Some(frame);
            }
        }
        wanted.ok_or(ENOMEM)
    }

    /// The same from a file that the server gave; `None`: not all that is wanted came.
    fn fetch_given(&self, first: u64, index: u64) -> Option<PageFrame> {
        let fids = self.fids.lock().clone();
        let given = fids.iter().find_map(|fid| fid.given())?;
        let start = first * PAGE;
        let length = self.length().checked_sub(start)?.min(CLUSTER * PAGE) as usize;
        // In one piece, for those whom each piece that they map costs a call of the host.
        let frames = Pages::new(length.div_ceil(PAGE_SIZE)).and_then(Pages::into_frames).ok()?;
        let pages = Gather { frames, offset: 0, length, is_written: true };
        if given.read_pages(start, &pages)? < length {
            return None;
        }
        let mut known = self.pages.lock();
        for (page, frame) in (first..).zip(pages.frames) {
            known.entry(page).or_insert(frame);
        }
        known.get(&index).cloned()
    }

    /// Fetches all pages of a file that is small, where memory is plentiful.
    fn fetch_all(&self) {
        let length = self.length();
        if self.version.is_none() || length > self.node.client().kept.largest_file() {
            return;
        }
        for index in (0..length.div_ceil(PAGE)).step_by(CLUSTER as usize) {
            let is_there = (index..index + CLUSTER).any(|index| self.known(index).is_some());
            // What does not come now is asked for when it is touched.
            if !is_there && self.fetch_given(index, index).is_none() {
                return;
            }
        }
    }

    /// Stores every page that a mapping may have written to.
    pub fn store_all(&self) -> Result<()> {
        let writable: Vec<u64> = self.writable.lock().iter().copied().collect();
        for index in writable {
            if let Some(frame) = self.known(index) {
                self.write_back(index, &frame)?;
            }
        }
        Ok(())
    }
}

/// Pages of files that are not mapped any more, or were only read, kept for the next who maps or reads the file.
#[derive(Default)]
pub struct Kept {
    /// Those that were used last come first.
    all: SpinLock<Vec<Arc<NinePages>>>,
    /// Clusters that were fetched since it was looked how many there are.
    fetched: AtomicUsize,
}

/// Most files that have such pages: each is a descriptor of the server's.
const MAX_FILES: usize = 64;
/// The part of the machine's memory that they may be, and the most pages.
const MEMORY_PART: u64 = 16;
const MAX_PAGES: u64 = 4096;
/// None are kept where less than this part of the memory is free.
const LEAST_FREE: u64 = 8;
/// Their number is looked at when so many clusters have been fetched: a mebibyte.
const LOOK_EVERY: usize = 16;

impl Kept {
    /// Pages that may be kept now.
    fn limit() -> usize {
        let (total, free) = api_mem::statistics();
        if free < total / LEAST_FREE { 0 } else { (total / MEMORY_PART).min(MAX_PAGES) as usize }
    }

    /// Largest file that is kept because it is read, in bytes.
    pub fn largest_file(&self) -> u64 {
        Kept::limit() as u64 * PAGE / 4
    }

    /// Keeps them instead of those that are not true any more or were not used for longest.
    pub fn keep(&self, pages: &Arc<NinePages>) {
        self.look_through(Some(pages));
    }

    /// A cluster is about to be fetched.
    fn grows(&self) {
        if self.fetched.fetch_add(1, Ordering::Relaxed) > LOOK_EVERY {
            self.fetched.store(0, Ordering::Relaxed);
            self.look_through(None);
        }
    }

    fn look_through(&self, first: Option<&Arc<NinePages>>) {
        let all = core::mem::take(&mut *self.all.lock());
        let limit = Kept::limit();
        let mut left = Vec::new();
        let mut count = 0;
        if limit > 0 && left.reserve_exact_fallibly(MAX_FILES).is_ok() {
            for pages in first.into_iter().chain(all.iter().filter(|pages| pages.are_true())) {
                if left.iter().any(|other| Arc::ptr_eq(other, pages)) {
                    continue;
                }
                count += pages.count();
                if left.len() < MAX_FILES && count < limit {
                    left.push(pages.clone());
                }
            }
        }
        let meanwhile = core::mem::replace(&mut *self.all.lock(), left);
        drop((all, meanwhile));
    }

    /// Keeps those of a file no more.
    pub fn forget(&self, file: u64) {
        let gone: Vec<Arc<NinePages>> = {
            let mut all = self.all.lock();
            let (gone, left) = core::mem::take(&mut *all).into_iter().partition(|pages| pages.file() == file);
            *all = left;
            gone
        };
        drop(gone);
    }

    pub fn forget_all(&self) {
        let gone = core::mem::take(&mut *self.all.lock());
        drop(gone);
    }
}

impl PageSource for NinePages {
    fn page(&self, index: u64, for_write: bool) -> Result<PageFrame> {
        if index.checked_mul(PAGE).is_none_or(|start| start >= self.length()) {
            return Err(EIO);
        }
        if for_write {
            self.writable.lock().insert(index);
        }
        match self.known(index) {
            Some(frame) => Ok(frame),
            None => self.fetch(index),
        }
    }

    fn resident_page(&self, index: u64) -> Option<PageFrame> {
        self.known(index)
    }

    fn length(&self) -> u64 {
        self.length.load(Ordering::Relaxed)
    }

    /// A version is one state of one file's, for ever.
    fn content(&self) -> Option<u64> {
        /// What files of the image answer are addresses.
        const VERSION: u64 = 1 << 63;
        if self.are_true() { self.version.map(|version| VERSION | version) } else { None }
    }

    /// A server of ours knows the sites ([`SITES`]); with any other the file's system calls trap.
    fn prepare_text(&self) {
        if self.sites.lock().is_none() {
            let sites = self.node.read_xattr(SITES, SITES_LIMIT).unwrap_or_default();
            *self.sites.lock() = Some(sites.into());
        }
        // Programs that are executed again and again get patched copies of what is at hand then.
        if self.texts.fetch_add(1, Ordering::Relaxed) + 1 == OFTEN {
            self.fetch_all();
        }
    }

    fn sites(&self, read: &mut dyn FnMut(&[u8])) {
        let sites = self.sites.lock().clone();
        if let Some(sites) = sites.filter(|sites| !sites.is_empty()) {
            read(&sites);
        }
    }

    fn write_back(&self, index: u64, frame: &PageFrame) -> Result<()> {
        let start = index * PAGE;
        let n = self.length().saturating_sub(start).min(PAGE) as usize;
        let mut bytes = [0; PAGE_SIZE];
        frame.read(0, &mut bytes[..n]);
        let mut done = 0;
        while done < n {
            let at = start + done as u64;
            let (written, _) =
                self.with_fid(|fid| write_once(fid, at, &mut Source::kernel(&bytes[done..n])))?;
            if written == 0 {
                return Err(EIO);
            }
            done += written;
        }
        Ok(())
    }
}
