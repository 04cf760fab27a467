// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Patched text that address spaces have together.
//!
//! A program that is executed again and again, by a shell's loop or a build, has its text patched the same way each time: jumps
//! and stubs depend on how far the stubs are from the text, not on where both are. So the third time that the text of a file
//! is mapped with the same distance, patched copies of its pages are made once, with all stubs, and every space that maps it
//! from then on gets these pages at once, without a fault. To a space they are pages of the file: whoever writes to one, or
//! puts a breakpoint there, gets a copy.
//!
//! Where pages cost calls of the host ([`Pager::CHUNKS`]) the copies are all pages of the text, in one piece of memory, so
//! that one call shows them. Elsewhere they are those that have sites.
//!
//! Only files whose bytes cannot change are known ([`api_mem::PageSource::content`]). The pages are given back when memory
//! is short ([`release_common_text`]) or other texts are used more.

use crate::PAGE;
use crate::pager::{Machine, Pager};
use crate::text::{SLOT, Text};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_lock::SpinLock;
use api_mem::{PageFrame, Pages};
use api_sites::Site;

/// Texts that are known at a time.
const MAX_TEXTS: usize = 64;
/// The time that a text is mapped for which its pages are made: copying a page takes as long as patching it does, so a text that
/// is used twice would gain nothing.
const MAPPED_OFTEN: u32 = 3;
/// Shares of all memory: what one text may have, what all of them may have, and what has to be free.
const ONE_SHARE: u64 = 32;
const ALL_SHARE: u64 = 16;
const FREE_SHARE: u64 = 4;

/// The patched pages of a text.
pub(crate) struct CommonText {
    /// By page of the mapping; `None` for those that are shown from the file.
    pages: Vec<Option<PageFrame>>,
    stubs: Vec<PageFrame>,
}

impl CommonText {
    /// Page `index` of the mapping.
    pub fn page(&self, index: u64) -> Option<&PageFrame> {
        self.pages.get(index as usize)?.as_ref()
    }

    /// The pages of stubs, in order.
    pub fn stubs(&self) -> &[PageFrame] {
        &self.stubs
    }

    /// Pages of memory that it takes.
    fn count(&self) -> u64 {
        (self.pages.iter().flatten().count() + self.stubs.len()) as u64
    }

    /// Patched copies of pages `first` to `end` of the text's file; `None` where memory is short.
    fn new(text: &Text, first: u64, end: u64) -> Option<CommonText> {
        let is_wanted = |index: u64| Machine::CHUNKS || text.has_sites(index);
        let count = (first..end).filter(|index| is_wanted(*index)).count();
        let (total, free) = api_mem::statistics();
        let stub_count = (text.stub_bytes() / PAGE) as usize;
        let needed = (count + stub_count) as u64;
        if needed > total / ONE_SHARE || free < total / FREE_SHARE || count > Pages::MAX {
            return None;
        }
        let stubs = frames(stub_count)?;
        let mut copies = frames(count)?.into_iter();
        let mut pages = Vec::new();
        pages.reserve_exact_fallibly((end - first) as usize).ok()?;
        for index in first..end {
            let copy = if is_wanted(index) { copies.next() } else { None };
            // What is not at hand is shown from the file, once it is there.
            let original = text.file().source.resident_page(index);
            let (Some(copy), Some(original)) = (copy, original) else {
                pages.push(None);
                continue;
            };
            // SAFETY: both are whole pages, and nobody else has the new one.
            unsafe { core::ptr::copy_nonoverlapping(original.bytes(), copy.bytes(), PAGE as usize) };
            text.patch(index, &copy, |stub| stubs.get(((stub - text.stubs()) / PAGE) as usize).cloned());
            pages.push(Some(copy));
        }
        Some(CommonText { pages, stubs })
    }
}

/// New pages, in one piece where that is worth something.
fn frames(count: usize) -> Option<Vec<PageFrame>> {
    if Machine::CHUNKS && count > 0 {
        return Pages::new(count).and_then(Pages::into_frames).ok();
    }
    let mut frames = Vec::new();
    frames.reserve_exact_fallibly(count).ok()?;
    for _ in 0..count {
        frames.push(PageFrame::new().ok()?);
    }
    Some(frames)
}

/// A text that was mapped.
struct Known {
    /// What the bytes of the file are known by, and which of its bytes are mapped.
    content: u64,
    range: (u64, u64),
    sites: Arc<Vec<Site>>,
    /// How far the stubs are from byte 0 of the file; wraps.
    distance: u64,
    /// How often it was mapped with that distance.
    mapped: u32,
    /// When it was mapped last: a count.
    used: u64,
    common: Option<Arc<CommonText>>,
}

struct Texts {
    known: Vec<Known>,
    count: u64,
}

static TEXTS: SpinLock<Texts> = SpinLock::new(Texts { known: Vec::new(), count: 0 });

impl Texts {
    fn find(&mut self, content: u64, range: (u64, u64)) -> Option<&mut Known> {
        self.known.iter_mut().find(|known| known.content == content && known.range == range)
    }

    /// Notes a text that is new, in place of the one that was not used for longest.
    fn add(&mut self, new: Known) {
        if self.known.len() < MAX_TEXTS {
            if self.known.reserve_fallibly(1).is_ok() {
                self.known.push(new);
            }
        } else if let Some(oldest) = self.known.iter_mut().min_by_key(|known| known.used) {
            *oldest = new;
        }
    }

    /// All texts together keep to their share of memory: those that were not used for longest lose their pages.
    fn shrink(&mut self) {
        let most = api_mem::statistics().0 / ALL_SHARE;
        let count = |known: &Known| known.common.as_ref().map_or(0, |common| common.count());
        let mut all: u64 = self.known.iter().map(count).sum();
        while all > most {
            let made = self.known.iter_mut().filter(|known| known.common.is_some());
            let Some(oldest) = made.min_by_key(|known| known.used) else { return };
            all -= count(oldest);
            (oldest.common, oldest.mapped) = (None, 0);
        }
    }
}

/// The sites of a text that was mapped before.
pub(crate) fn known_sites(content: u64, range: (u64, u64)) -> Option<Arc<Vec<Site>>> {
    TEXTS.lock().find(content, range).map(|known| known.sites.clone())
}

/// Bytes `range` of the text's file were mapped, and the stubs have their place: the pages that other spaces have as well.
pub(crate) fn common_text(text: &Text, range: (u64, u64)) -> Option<Arc<CommonText>> {
    let content = text.file().source.content()?;
    let distance = text.distance();
    {
        let mut texts = TEXTS.lock();
        texts.count += 1;
        let used = texts.count;
        let Some(known) = texts.find(content, range) else {
            let sites = text.sites().clone();
            texts.add(Known { content, range, sites, distance, mapped: 1, used, common: None });
            return None;
        };
        known.used = used;
        if known.distance != distance {
            // Whatever was in the way the first time need not be there the next time.
            if known.common.is_none() {
                (known.distance, known.mapped) = (distance, 1);
            }
            return None;
        }
        known.mapped += 1;
        if known.common.is_some() || known.mapped < MAPPED_OFTEN {
            return known.common.clone();
        }
    }
    let made = CommonText::new(text, range.0 / PAGE, range.1.div_ceil(PAGE)).map(Arc::new);
    let mut texts = TEXTS.lock();
    let known = texts.find(content, range).filter(|known| known.distance == distance)?;
    // Without memory it is not tried at once again.
    known.mapped = 0;
    known.common = made;
    let common = known.common.clone();
    texts.shrink();
    common
}

/// Gives the pages of patched text back that no address space has; false when there are none.
pub fn release_common_text() -> bool {
    let mut texts = TEXTS.lock();
    let mut released = false;
    for known in &mut texts.known {
        if let Some(common) = known.common.take() {
            known.mapped = 0;
            released |= Arc::strong_count(&common) == 1;
        }
    }
    released
}

const _: () = assert!(PAGE.is_multiple_of(SLOT), "a stub lies in one page");
