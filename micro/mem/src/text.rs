// SPDX-License-Identifier: Apache-2.0 OR MIT
//! System-call sites become jumps: each site of a text mapping has a stub of its own, which enters the kernel
//! without an exception.
//!
//! The stub runs the instructions before the site's `syscall` that the jump replaced, puts the address where the
//! program goes on into RCX (as `syscall` does), and jumps to the platform's entry for that call. It touches neither
//! the stack nor the red zone. The table of sites comes with the file (`api-sites`); what is not in it traps.
//!
//! Stubs are [`SLOT`] bytes long and lie in a mapping of their own near the text, so that a site's stub is known
//! from its index alone and two pages can be patched independently. Pages of stubs and patched copies of text pages
//! are made when a text page is first touched; the kernel writes them through its own view of the page, so nothing
//! is ever writable and executable in the program's half.

use crate::MappedFile;
use crate::common_text::{CommonText, common_text, known_sites};
use abi::{PAGE_SIZE, Result, errno::ENOMEM};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_mem::PageFrame;
use api_sites::{JUMP_LENGTH, NUMBER_UNKNOWN, Site, Sites};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

/// Bytes for a stub: 14 of its own for entering, 5 to come back, 7 for RCX, and 38 copied ones.
pub(crate) const SLOT: u64 = 64;
const PAGE: u64 = PAGE_SIZE as u64;
/// How far a stub may be from its site: less than the reach of `jmp rel32`, by a margin for both mappings' sizes.
pub(crate) const REACH: u64 = (1 << 31) - (64 << 20);
/// Text mappings longer than this are left to trap: their far end could be out of reach of the stubs.
const LONGEST_TEXT: u64 = 32 << 20;

/// The [`CallEntry`] in use; null before [`set_call_entry`].
static ENTRY: AtomicPtr<()> = AtomicPtr::new(null_mut());

/// Where calls enter the kernel: an entry that expects the number in RAX and the return address in RCX, on the
/// program's stack.
pub type CallEntry = fn(number: Option<u16>) -> u64;

/// Turns patching on. Without it every call traps.
pub fn set_call_entry(entry: CallEntry) {
    ENTRY.store(entry as *mut (), Ordering::Relaxed);
}

fn call_entry(number: u16) -> Option<u64> {
    let entry = ENTRY.load(Ordering::Relaxed);
    if entry.is_null() {
        return None;
    }
    // SAFETY: only `set_call_entry` stores here, and it stores such a function.
    let entry = unsafe { core::mem::transmute::<*mut (), CallEntry>(entry) };
    Some(entry((number != NUMBER_UNKNOWN).then_some(number)))
}

/// The sites of one executable mapping.
#[derive(Clone)]
pub struct Text {
    file: Arc<MappedFile>,
    sites: Arc<Vec<Site>>,
    /// Address of byte 0 of the file, were it mapped whole; wraps.
    origin: u64,
    /// Where the stub of `sites[0]` is.
    stubs: u64,
    /// The page of the file that the mapping began with, and pages that other spaces have as well, from that one on.
    first: u64,
    common: Option<Arc<CommonText>>,
}

impl Text {
    /// The sites of `file` in the bytes `start..end` that are mapped from `address` on; `None` when there are none,
    /// or no entry to go to. The stubs have no place yet.
    pub(crate) fn of(file: &Arc<MappedFile>, address: u64, start: u64, end: u64) -> Result<Option<Text>> {
        if ENTRY.load(Ordering::Relaxed).is_null() || end - start > LONGEST_TEXT {
            return Ok(None);
        }
        let origin = address.wrapping_sub(start);
        let new =
            |sites| Text { file: file.clone(), sites, origin, stubs: 0, first: start / PAGE, common: None };
        if let Some(sites) = file.source.content().and_then(|content| known_sites(content, (start, end))) {
            return Ok(Some(new(sites)));
        }
        let mut sites = Vec::new();
        let mut has_room = true;
        file.source.sites(&mut |table| {
            let Some(table) = Sites::parse(table) else { return };
            has_room = sites.reserve_exact_fallibly(table.within(start, end).count()).is_ok();
            if has_room {
                sites.extend(table.within(start, end));
            }
        });
        if !has_room {
            return Err(ENOMEM);
        }
        if sites.is_empty() {
            return Ok(None);
        }
        Ok(Some(new(Arc::new(sites))))
    }

    /// Bytes of the mapping of stubs.
    pub(crate) fn stub_bytes(&self) -> u64 {
        (self.sites.len() as u64 * SLOT).next_multiple_of(PAGE)
    }

    pub(crate) fn stubs(&self) -> u64 {
        self.stubs
    }

    /// The stubs get their place: the text is bytes up to `end` of the file.
    pub(crate) fn place(&mut self, stubs: u64, end: u64) {
        self.stubs = stubs;
        self.common = common_text(self, (self.first * PAGE, end));
    }

    /// How far the stubs are from byte 0 of the file; wraps.
    pub(crate) fn distance(&self) -> u64 {
        self.stubs.wrapping_sub(self.origin)
    }

    pub(crate) fn file(&self) -> &MappedFile {
        &self.file
    }

    pub(crate) fn sites(&self) -> &Arc<Vec<Site>> {
        &self.sites
    }

    /// Pages that other spaces have as well.
    pub(crate) fn common(&self) -> Option<&Arc<CommonText>> {
        self.common.as_ref()
    }

    /// A page of the file that is patched already, for all spaces that have it.
    pub(crate) fn common_page(&self, page: u64) -> Option<&PageFrame> {
        self.common.as_ref()?.page(page.checked_sub(self.first)?)
    }

    /// Indexes of the sites whose jump lies wholly in the page of the file. A jump over a page's end would have to
    /// appear on both pages at once: those few sites trap.
    fn on_page(&self, page: u64) -> core::ops::Range<usize> {
        let (start, end) = (page * PAGE, (page + 1) * PAGE);
        let from = self.sites.partition_point(|s| u64::from(s.offset) < start);
        let to = self.sites.partition_point(|s| u64::from(s.offset) + JUMP_LENGTH as u64 <= end);
        from..to.max(from)
    }

    /// Pages of the file that have sites, in order.
    pub(crate) fn pages(&self) -> impl Iterator<Item = u64> + '_ {
        let page = |i: usize| u64::from(self.sites[i].offset) / PAGE;
        (0..self.sites.len()).filter(move |i| *i == 0 || page(i - 1) != page(*i)).map(page)
    }

    /// Where the program would be without its stub, for an address in one; `None` for other addresses.
    pub(crate) fn original(&self, address: u64) -> Option<u64> {
        let offset = address.checked_sub(self.stubs)?;
        let site = self.sites.get((offset / SLOT) as usize)?;
        let at = self.origin.wrapping_add(site.offset.into());
        let (before, after, inside) = (u64::from(site.before), u64::from(site.after), offset % SLOT);
        let tail = Layout::of(*site).tail as u64;
        Some(match inside {
            _ if inside < before => at + inside,
            // Before the call was made, for RCX does not survive it either way.
            _ if inside < tail => at + before,
            _ => at + before + 2 + (inside - tail).min(after),
        })
    }

    pub(crate) fn has_sites(&self, page: u64) -> bool {
        !self.on_page(page).is_empty()
    }

    /// Bytes of the file from `offset` on, from the page at hand or its neighbour.
    fn bytes(&self, page: u64, frame: &PageFrame, offset: u64, to: &mut [u8]) -> Option<()> {
        let here = ((page + 1) * PAGE).saturating_sub(offset).min(to.len() as u64) as usize;
        let (first, rest) = to.split_at_mut(here);
        if !first.is_empty() {
            frame.read((offset % PAGE) as usize, first);
        }
        if !rest.is_empty() {
            let next = self.file.source.resident_page(page + 1)?;
            next.read(((offset + here as u64) % PAGE) as usize, rest);
        }
        Some(())
    }

    /// Patches a private copy of page `page` of the file. `stub_page` gives the frame of a page of stubs.
    pub(crate) fn patch(
        &self,
        page: u64,
        copy: &PageFrame,
        mut stub_page: impl FnMut(u64) -> Option<PageFrame>,
    ) {
        let sites = self.on_page(page);
        // Once for each page of stubs, not for each site.
        let mut last: Option<(u64, PageFrame)> = None;
        for index in sites {
            let site = self.sites[index];
            let stub = self.stubs + index as u64 * SLOT;
            let at = self.origin.wrapping_add(site.offset.into());
            let Some((code, length)) = self.stub(page, copy, site, at, stub) else { continue };
            let holder = stub & !(PAGE - 1);
            if last.as_ref().is_none_or(|(address, _)| *address != holder) {
                last = stub_page(holder).map(|frame| (holder, frame));
            }
            let Some((_, frame)) = &last else { continue };
            let Some(distance) = relative(at + JUMP_LENGTH as u64, stub) else { continue };
            frame.write((stub % PAGE) as usize, &code[..length]);
            let mut jump = [0xe9, 0, 0, 0, 0];
            jump[1..].copy_from_slice(&distance);
            copy.write((at % PAGE) as usize, &jump);
        }
    }

    /// The code of a site's stub.
    fn stub(
        &self,
        page: u64,
        frame: &PageFrame,
        site: Site,
        at: u64,
        stub: u64,
    ) -> Option<([u8; SLOT as usize], usize)> {
        let (before, after) = (usize::from(site.before), usize::from(site.after));
        let mut code = [0u8; SLOT as usize];
        let lea = before;
        let Layout { jump, address, tail, length } = Layout::of(site);
        if length > code.len() {
            return None;
        }
        let offset = u64::from(site.offset);
        self.bytes(page, frame, offset, &mut code[..before])?;
        let end = at + site.length() as u64;
        let resume = if after == 0 { end } else { stub + tail as u64 };
        // lea rcx, [rip + resume]
        code[lea..lea + 3].copy_from_slice(&[0x48, 0x8d, 0x0d]);
        code[lea + 3..jump].copy_from_slice(&relative(stub + jump as u64, resume)?);
        // jmp [rip + n], and the address behind it: the kernel is out of reach of a relative jump.
        code[jump..jump + JUMP_INDIRECT].copy_from_slice(&[0xff, 0x25, 0, 0, 0, 0]);
        code[jump + 2] = (address - jump - JUMP_INDIRECT) as u8;
        code[address..tail].copy_from_slice(&call_entry(site.number)?.to_le_bytes());
        if after != 0 {
            self.bytes(page, frame, offset + before as u64 + 2, &mut code[tail..tail + after])?;
            let back = tail + after;
            code[back] = 0xe9;
            code[back + 1..length].copy_from_slice(&relative(stub + length as u64, end)?);
        }
        Some((code, length))
    }

    /// Puts the bytes of the file back where a jump is: the page moves to an address the stubs do not know.
    pub(crate) fn unpatch(&self, page: u64, copy: &PageFrame) {
        if let Some(original) = self.file.source.resident_page(page) {
            self.unpatch_from(page, copy, &original);
        }
    }

    /// The same, with the page of the file.
    pub(crate) fn unpatch_from(&self, page: u64, copy: &PageFrame, original: &PageFrame) {
        for index in self.on_page(page) {
            let site = self.sites[index];
            let (at, mut bytes) = ((u64::from(site.offset) % PAGE) as usize, [0u8; JUMP_LENGTH]);
            let from = self.origin.wrapping_add(site.offset.into()) + JUMP_LENGTH as u64;
            copy.read(at, &mut bytes);
            if bytes[0] == 0xe9
                && relative(from, self.stubs + index as u64 * SLOT) == bytes[1..].try_into().ok()
            {
                original.read(at, &mut bytes);
                copy.write(at, &bytes);
            }
        }
    }
}

/// Where the parts of a stub lie behind the copied instructions and the LEA: the jump, the address that it takes, what is copied
/// from behind the call, and the end.
struct Layout {
    jump: usize,
    address: usize,
    tail: usize,
    length: usize,
}

impl Layout {
    fn of(site: Site) -> Layout {
        let (after, jump) = (usize::from(site.after), usize::from(site.before) + 7);
        let at = |address: usize| {
            let tail = address + 8;
            let length = if after == 0 { tail } else { tail + after + JUMP_LENGTH };
            Layout { jump, address, tail, length }
        };
        // The address is aligned where there is room: programs may have such accesses checked (RFLAGS.AC).
        let aligned = at((jump + JUMP_INDIRECT).next_multiple_of(8));
        if aligned.length > SLOT as usize { at(jump + JUMP_INDIRECT) } else { aligned }
    }
}

/// Bytes of `jmp [rip + n]`.
const JUMP_INDIRECT: usize = 6;

/// The displacement from the end of an instruction, if it can be reached.
fn relative(from: u64, to: u64) -> Option<[u8; 4]> {
    i32::try_from(to.wrapping_sub(from) as i64).ok().map(i32::to_le_bytes)
}
