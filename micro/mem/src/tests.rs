// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Address spaces over host pages: every operation as the kernel runs it, but for loading CR3.

mod fork;
pub(crate) mod model;

use crate::*;
use abi::{Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_lock::SpinLock;
use api_mem::{PageFrame, PageSource};
use api_plat::{Access, FaultOutcome};
use std::format;
use std::string::{String, ToString};
use std::vec;

const RW: Prot = Prot::READ.with(Prot::WRITE);
const RX: Prot = Prot::READ.with(Prot::EXECUTE);
const MAPPED: FaultOutcome = FaultOutcome::Segv { mapped: true };
const UNMAPPED: FaultOutcome = FaultOutcome::Segv { mapped: false };

/// A file of some pages; records what is written back.
#[derive(Default)]
struct TestFile {
    pages: Vec<PageFrame>,
    length: u64,
    sites: Vec<u8>,
    content: Option<u64>,
    /// Pages are not at hand: faults go through `page`.
    slow: bool,
    stored: SpinLock<Vec<u64>>,
    /// Pages that were asked for to be written.
    written: SpinLock<Vec<u64>>,
    read_only: bool,
}

impl TestFile {
    fn new(bytes: &[u8]) -> TestFile {
        let pages = bytes.chunks(4096).map(|chunk| {
            let frame = PageFrame::new().unwrap();
            frame.write(0, chunk);
            frame
        });
        TestFile { pages: pages.collect(), length: bytes.len() as u64, ..TestFile::default() }
    }

    fn mapped(self) -> (Arc<TestFile>, Arc<MappedFile>) {
        let file = Arc::new(self);
        let mapped = MappedFile {
            source: file.clone(),
            path: b"/f".to_vec(),
            device: 0x801,
            inode: 7,
            place: None,
            is_writable: true,
        };
        (file, Arc::new(mapped))
    }
}

impl PageSource for TestFile {
    fn page(&self, index: u64, for_write: bool) -> Result<PageFrame> {
        if for_write && self.read_only {
            return Err(ENOSPC);
        }
        if for_write {
            self.written.lock().push(index);
        }
        self.pages.get(index as usize).cloned().ok_or(EIO)
    }

    fn resident_page(&self, index: u64) -> Option<PageFrame> {
        if self.slow { None } else { self.pages.get(index as usize).cloned() }
    }

    fn length(&self) -> u64 {
        self.length
    }

    fn write_back(&self, index: u64, _frame: &PageFrame) -> Result<()> {
        self.stored.lock().push(index);
        Ok(())
    }

    fn content(&self) -> Option<u64> {
        self.content
    }

    fn sites(&self, read: &mut dyn FnMut(&[u8])) {
        if !self.sites.is_empty() {
            read(&self.sites);
        }
    }
}

fn space() -> Arc<Space> {
    Space::new(Layout::new([0; 4], 8 << 20), Limits::default()).unwrap()
}

/// What the program would read at `address`; faults as the program would.
fn load(space: &Space, address: u64) -> core::result::Result<u8, FaultOutcome> {
    match space.fault(address, Access::Read) {
        FaultOutcome::Resolved => Ok(peek(space, address).expect("a resolved fault leaves a page")),
        other => Err(other),
    }
}

/// The byte if its page is there and readable.
fn peek(space: &Space, address: u64) -> Option<u8> {
    use crate::pager::Pager;
    let page = space.lock().pager.page(address & !(PAGE - 1))?;
    assert!(page.rights.allow(Access::Read));
    // SAFETY: a mapped host page.
    Some(unsafe { *api_mem::view(page.physical).add((address % PAGE) as usize) })
}

/// A write by the program: faults until the page is writable, then writes and sets the dirty bit as the processor.
fn store(space: &Space, address: u64, byte: u8) -> core::result::Result<(), FaultOutcome> {
    match space.fault(address, Access::Write) {
        FaultOutcome::Resolved => {}
        other => return Err(other),
    }
    use crate::pager::Pager;
    let mut inner = space.lock();
    let page = inner.pager.page(address & !(PAGE - 1)).unwrap();
    assert!(page.rights.allow(Access::Write));
    // SAFETY: a mapped host page.
    unsafe { *api_mem::view(page.physical).add((address % PAGE) as usize) = byte };
    inner.pager.mark_written(address & !(PAGE - 1));
    Ok(())
}

fn maps(space: &Space) -> Vec<String> {
    space.mappings().unwrap().iter().map(ToString::to_string).collect()
}

#[test]
fn held_pages_stay_when_their_range_is_gone_and_are_the_programs_own_when_written() {
    let space = space();
    let at = space.map(Request::anonymous(3 * PAGE, RW)).unwrap();
    space.write(at + 100, b"kept").unwrap();
    let frames = space.hold(at + 100, 2 * PAGE as usize, Access::Write);
    assert_eq!(frames.len(), 3);
    space.unmap(at, 3 * PAGE).unwrap();
    let mut back = [0; 4];
    frames[0].read(100, &mut back);
    assert_eq!((&back, frames[0].is_unique()), (b"kept", true));
    assert!(space.hold(at, 1, Access::Read).is_empty());
    assert!(space.hold(u64::MAX, 2, Access::Read).is_empty());
    // As far as the memory reaches.
    let one = space.map(Request::anonymous(PAGE, RW)).unwrap();
    assert!(space.hold(one, 3 * PAGE as usize, Access::Write).len() == 1);
    // A device's writing to a file's page would not be noticed; a private copy has no file any more.
    let (_, file) = TestFile::new(&[7; 4096]).mapped();
    let shared =
        space.map(Request { shared: true, ..Request::anonymous(PAGE, RW).of(file.clone(), 0) }).unwrap();
    assert!(space.hold(shared, 16, Access::Write).is_empty());
    assert_eq!(space.hold(shared, 16, Access::Read).len(), 1);
    let private = space.map(Request::anonymous(PAGE, RW).of(file.clone(), 0)).unwrap();
    let own = space.hold(private, 16, Access::Write);
    assert_ne!(own[0].physical(), file.source.page(0, false).unwrap().physical());
}

#[test]
fn anonymous_memory_reads_as_zero_and_keeps_what_is_written() {
    let s = space();
    let a = s.map(Request::anonymous(5 * PAGE - 1, RW)).unwrap();
    assert_eq!(load(&s, a + PAGE), Ok(0));
    assert_eq!(s.usage().anonymous, 0, "reading costs no memory");
    store(&s, a + PAGE + 5, 9).unwrap();
    assert_eq!((load(&s, a + PAGE + 5), load(&s, a + PAGE)), (Ok(9), Ok(0)));
    assert_eq!(s.usage().anonymous, PAGE);
    assert_eq!(load(&s, a + 5 * PAGE), Err(UNMAPPED));
    s.unmap(a, 5 * PAGE).unwrap();
    assert_eq!(load(&s, a), Err(UNMAPPED));
    assert_eq!(
        s.usage(),
        Usage { peak_size: 5 * PAGE, peak_resident: PAGE, tables: PAGE, ..Usage::default() }
    );
}

#[test]
fn sequential_writes_get_pages_ahead_but_not_beyond_the_mapping() {
    let s = space();
    let a = s.map(Request::anonymous(40 * PAGE, RW)).unwrap();
    let mut faults = 0;
    for at in (a..a + 40 * PAGE).step_by(PAGE as usize) {
        if peek(&s, at).is_none() {
            faults += 1;
            store(&s, at, 1).unwrap();
        }
    }
    assert!(faults < 10, "{faults} faults for 40 pages");
    assert_eq!(s.usage().anonymous, 40 * PAGE);
}

#[test]
fn rights_are_enforced_and_the_reason_is_told() {
    let s = space();
    let a = s.map(Request::anonymous(3 * PAGE, Prot::READ)).unwrap();
    assert_eq!(store(&s, a, 1), Err(MAPPED));
    assert_eq!(s.fault(a, Access::Execute), MAPPED);
    s.protect(a, PAGE, RW, false).unwrap();
    store(&s, a, 1).unwrap();
    s.protect(a, PAGE, Prot::NONE, false).unwrap();
    assert_eq!(load(&s, a), Err(MAPPED));
    s.protect(a, PAGE, Prot::READ, false).unwrap();
    assert_eq!(load(&s, a), Ok(1), "the page outlives PROT_NONE");
    assert_eq!(store(&s, a, 2), Err(MAPPED));
    assert_eq!(s.protect(a, 4 * PAGE, RW, false), Err(ENOMEM));
    store(&s, a + 2 * PAGE, 1).expect("what lies before the hole was changed");
    assert_eq!(s.protect(a + 1, PAGE, RW, false), Err(EINVAL));
}

#[test]
fn neighbours_that_are_alike_become_one_and_are_split_again() {
    let s = space();
    let a = s.map(Request::anonymous(9 * PAGE, RW)).unwrap();
    s.protect(a + 3 * PAGE, 3 * PAGE, Prot::READ, false).unwrap();
    assert_eq!(s.mappings().unwrap().len(), 3);
    s.protect(a + 3 * PAGE, 3 * PAGE, RW, false).unwrap();
    assert_eq!(s.mappings().unwrap().len(), 1);
    s.unmap(a + 4 * PAGE, PAGE).unwrap();
    assert_eq!(s.mappings().unwrap().len(), 2);
    let middle = Request::anonymous(PAGE, RW).at(a + 4 * PAGE);
    assert_eq!(s.map(middle), Ok(a + 4 * PAGE));
    assert_eq!(s.mappings().unwrap().len(), 1);
}

#[test]
fn places_are_respected() {
    let s = space();
    let a = s.map(Request::anonymous(4 * PAGE, RW)).unwrap();
    let at = |address, place| Request { place, ..Request::anonymous(PAGE, RW).at(address) };
    assert_eq!(s.map(at(a + PAGE, Place::FixedNoReplace)), Err(EEXIST));
    assert_eq!(s.map(at(a + 1, Place::Fixed)), Err(EINVAL));
    assert_eq!(s.map(at(0, Place::Fixed)), Err(EPERM));
    assert_eq!(s.map(at(USER_END, Place::Fixed)), Err(ENOMEM));
    assert_eq!(s.map(at(0xffff_8000_0000_0000, Place::Fixed)), Err(ENOMEM));
    assert_eq!(s.map(Request::anonymous(0, RW)), Err(EINVAL));
    assert_eq!(s.map(Request::anonymous(u64::MAX, RW)), Err(ENOMEM));
    assert_eq!(s.map(Request::anonymous(USER_END, Prot::NONE)), Err(ENOMEM));
    assert!(s.map(at(0, Place::Low)).unwrap() + PAGE <= 1 << 31);
    assert_eq!(s.map(at(0x5000_0000, Place::Low)), Ok(0x5000_0000), "a hint below 2 GiB that is free");
    assert_ne!(s.map(at(0x5000_0000, Place::Low)), Ok(0x5000_0000), "a hint that is taken");
    assert!(s.map(at(1 << 31, Place::Low)).unwrap() + PAGE <= 1 << 31, "a hint above 2 GiB");
    let large = Request { place: Place::Low, ..Request::anonymous(1 << 32, Prot::NONE) };
    assert_eq!(s.map(large), Err(ENOMEM));
    assert_eq!(s.map(at(0x1234_5000, Place::Anywhere)), Ok(0x1234_5000));
    assert_ne!(s.map(at(a, Place::Anywhere)).unwrap(), a);
    store(&s, a + PAGE, 3).unwrap();
    assert_eq!(s.map(at(a + PAGE, Place::Fixed)), Ok(a + PAGE));
    assert_eq!(load(&s, a + PAGE), Ok(0), "what was there is gone");
    assert_eq!(s.unmap(a + 1, PAGE), Err(EINVAL));
    assert_eq!(s.unmap(a, 0), Err(EINVAL));
    assert_eq!(s.unmap(a, u64::MAX), Err(EINVAL));
}

#[test]
fn gaps_left_by_unmapping_are_used_again() {
    let s = space();
    let a: Vec<u64> = (0..10).map(|_| s.map(Request::anonymous(4 * PAGE, RW)).unwrap()).collect();
    assert!(a.windows(2).all(|w| w[1] + 4 * PAGE == w[0]));
    s.unmap(a[3], 4 * PAGE).unwrap();
    s.unmap(a[7] + PAGE, PAGE).unwrap();
    assert_eq!(s.map(Request::anonymous(5 * PAGE, RW)).unwrap(), a[9] - 5 * PAGE);
    assert_eq!(s.map(Request::anonymous(PAGE, Prot::READ)).unwrap(), a[3] + 3 * PAGE);
    assert_eq!(s.map(Request::anonymous(3 * PAGE, Prot::READ)).unwrap(), a[3]);
    assert_eq!(s.map(Request::anonymous(PAGE, Prot::READ)).unwrap(), a[7] + PAGE);
}

#[test]
fn only_an_obvious_overcommit_is_refused() {
    // No test wants more than there is but this one.
    OVERCOMMIT[0].set(0);
    let s = space();
    let (total, _) = api_mem::statistics();
    let more = (total + 1) * PAGE;
    assert_eq!(s.map(Request::anonymous(more, RW)), Err(ENOMEM));
    assert!(s.map(Request { no_reserve: true, ..Request::anonymous(more, RW) }).is_ok());
    assert!(s.map(Request::anonymous(more * 1000, Prot::NONE)).is_ok());
    assert!(s.map(Request::anonymous(more - PAGE, RW)).is_ok());
    assert!(s.map(Request::anonymous(more - PAGE, RW)).is_ok());
}

#[test]
fn private_file_pages_are_shared_until_they_are_written() {
    let s = space();
    let (file, mapped) = TestFile::new(&[7; 5 * 4096 + 10]).mapped();
    let a = s.map(Request::anonymous(8 * PAGE, RW).of(mapped, 1)).unwrap();
    assert_eq!(load(&s, a), Ok(7));
    assert!((0..5).all(|i| peek(&s, a + i * PAGE).is_some()), "neighbours come along");
    assert_eq!((s.usage().anonymous, s.usage().file), (0, 5 * PAGE));
    assert_eq!((load(&s, a + 4 * PAGE + 9), load(&s, a + 4 * PAGE + 10)), (Ok(7), Ok(0)));
    assert_eq!(load(&s, a + 5 * PAGE), Err(FaultOutcome::Bus));
    store(&s, a, 1).unwrap();
    store(&s, a + PAGE, 2).unwrap();
    assert_eq!((load(&s, a), load(&s, a + 1)), (Ok(1), Ok(7)));
    let mut original = [0];
    file.pages[1].read(0, &mut original);
    assert_eq!(original, [7], "the file is untouched");
    assert_eq!(s.usage().anonymous, 2 * PAGE);
    s.advise(a, PAGE, Advice::Discard).unwrap();
    assert_eq!(load(&s, a), Ok(7), "MADV_DONTNEED brings the file back");
}

#[test]
fn pages_that_are_not_at_hand_are_fetched() {
    let s = space();
    let (_, mapped) = TestFile { slow: true, ..TestFile::new(&[7; 3 * 4096]) }.mapped();
    let a = s.map(Request::anonymous(4 * PAGE, RW).of(mapped, 0)).unwrap();
    assert_eq!(load(&s, a), Ok(7));
    assert!(peek(&s, a + PAGE).is_none());
    store(&s, a + 2 * PAGE, 1).unwrap();
    assert_eq!(load(&s, a + 3 * PAGE), Err(FaultOutcome::Bus));
}

#[test]
fn shared_file_pages_are_the_file_and_are_stored() {
    let s = space();
    let (file, mapped) = TestFile::new(&[7; 3 * 4096]).mapped();
    let shared = Request { shared: true, ..Request::anonymous(3 * PAGE, RW).of(mapped, 0) };
    let a = s.map(shared).unwrap();
    assert_eq!(load(&s, a), Ok(7));
    store(&s, a + PAGE, 1).unwrap();
    let mut byte = [0];
    file.pages[1].read(0, &mut byte);
    assert_eq!(byte, [1]);
    s.sync(a, 3 * PAGE, false).unwrap();
    assert_eq!(*file.stored.lock(), [1]);
    s.sync(a, 3 * PAGE, false).unwrap();
    assert_eq!(*file.stored.lock(), [1], "clean pages are not stored again");
    store(&s, a + 2 * PAGE, 1).unwrap();
    s.unmap(a, 3 * PAGE).unwrap();
    assert_eq!(*file.stored.lock(), [1, 2]);
    assert_eq!(s.sync(a, PAGE, false), Err(ENOMEM));
}

#[test]
fn pages_that_a_file_lost_are_asked_for_again() {
    let s = space();
    let (_, mapped) = TestFile::new(&[7; 3 * 4096]).mapped();
    let (device, inode) = (mapped.device, mapped.inode);
    let shared = Request { shared: true, ..Request::anonymous(3 * PAGE, RW).of(mapped.clone(), 0) };
    let shared = s.map(shared).unwrap();
    let private = s.map(Request::anonymous(2 * PAGE, RW).of(mapped, 1)).unwrap();
    for page in 0..3 {
        store(&s, shared + page * PAGE, 1).unwrap();
    }
    store(&s, private + PAGE, 2).unwrap();
    s.file_lost(device, inode, PAGE, 3 * PAGE, false);
    assert!(peek(&s, shared).is_some() && peek(&s, shared + PAGE).is_none());
    assert!(peek(&s, private + PAGE).is_some(), "a copy is no page of the file");
    s.file_lost(device, inode, PAGE + 1, u64::MAX, true);
    assert!(peek(&s, private + PAGE).is_none());
    assert_eq!(load(&s, private + PAGE), Ok(1));
}

#[test]
fn a_file_that_cannot_take_a_write_is_a_bus_error() {
    let s = space();
    let (_, mapped) = TestFile { read_only: true, ..TestFile::new(&[7; 4096]) }.mapped();
    let a = s.map(Request { shared: true, ..Request::anonymous(PAGE, RW).of(mapped, 0) }).unwrap();
    assert_eq!(load(&s, a), Ok(7));
    assert_eq!(store(&s, a, 1), Err(FaultOutcome::Bus));
}

#[test]
fn a_mapping_cannot_get_rights_its_file_does_not_have() {
    let s = space();
    let (_, mapped) = TestFile::new(&[7; 4096]).mapped();
    let request = Request { shared: true, most: RX, ..Request::anonymous(PAGE, Prot::READ).of(mapped, 0) };
    let a = s.map(request).unwrap();
    assert_eq!(s.protect(a, PAGE, RW, false), Err(EACCES));
    assert_eq!(s.protect(a, PAGE, RX, false), Ok(()));
}

#[test]
fn the_stack_grows_to_its_limit_and_keeps_away_from_others() {
    let limits = Limits { stack: 64 * PAGE, ..Limits::default() };
    let s = Space::new(Layout::new([0; 4], 8 << 20), limits).unwrap();
    let top = s.layout().stack_top;
    let stack = Request { grows_down: true, name: "[stack]", ..Request::anonymous(2 * PAGE, RW) };
    s.map(stack.at(top - 2 * PAGE)).unwrap();
    store(&s, top - 10 * PAGE, 1).unwrap();
    store(&s, top - 64 * PAGE, 1).unwrap();
    assert_eq!(store(&s, top - 65 * PAGE, 1), Err(UNMAPPED));
    assert_eq!(s.usage().stack, 64 * PAGE);
    s.set_limits(Limits { stack: 8 << 20, ..limits });
    s.map(Request::anonymous(PAGE, RW).at(top - 400 * PAGE)).unwrap();
    assert_eq!(store(&s, top - 300 * PAGE, 1), Err(UNMAPPED), "the guard gap");
    store(&s, top - 140 * PAGE, 1).unwrap();
}

#[test]
fn the_break_moves_and_stops_at_a_neighbour() {
    let s = space();
    s.start_brk(0x60_0000);
    assert_eq!(s.set_brk(0), 0x60_0000);
    assert_eq!(s.set_brk(0x60_2001), 0x60_2001);
    store(&s, 0x60_2000, 5).unwrap();
    assert_eq!(load(&s, 0x60_3000), Err(UNMAPPED));
    assert_eq!(s.set_brk(0x60_1000), 0x60_1000);
    assert_eq!(load(&s, 0x60_2000), Err(UNMAPPED));
    s.map(Request::anonymous(PAGE, RW).at(0x70_0000)).unwrap();
    assert_eq!(s.set_brk(0x80_0000), 0x60_1000);
    assert_eq!(s.set_brk(u64::MAX), 0x60_1000);
    assert!(maps(&s)[0].ends_with("[heap]"), "{:?}", maps(&s));
}

#[test]
fn remapping_moves_grows_and_shrinks() {
    let s = space();
    let ask = |address, old_length, new_length| Remap {
        address,
        old_length,
        new_length,
        may_move: true,
        fixed: None,
        keep: false,
    };
    let a = s.map(Request::anonymous(4 * PAGE, RW)).unwrap();
    store(&s, a + 3 * PAGE, 9).unwrap();
    assert_eq!(s.remap(Remap { may_move: false, ..ask(a, 2 * PAGE, 8 * PAGE) }), Err(ENOMEM));
    assert_eq!(s.remap(ask(a + 9 * PAGE, PAGE, PAGE)), Err(EFAULT));
    assert_eq!(s.remap(ask(a, 5 * PAGE, 6 * PAGE)), Err(EFAULT));
    let fixed = |to| Remap { fixed: Some(to), ..ask(a, 8 * PAGE, 5 * PAGE) };
    assert_eq!(s.remap(fixed(0x6000_0000)), Err(EFAULT), "what stays reaches beyond the mapping");
    assert_eq!(s.remap(ask(a + 1, PAGE, PAGE)), Err(EINVAL));
    assert_eq!(s.remap(ask(a, PAGE, 0)), Err(EINVAL));
    assert_eq!(s.remap(ask(a, 0, PAGE)), Err(EINVAL));
    // The gap above leads up to mmap's base and beyond it to the stack: growing stays in place.
    assert_eq!(s.remap(ask(a, 4 * PAGE, 8 * PAGE)), Ok(a));
    s.map(Request::anonymous(PAGE, Prot::READ).at(a + 8 * PAGE)).unwrap();
    let b = s.remap(ask(a, 8 * PAGE, 16 * PAGE)).unwrap();
    assert_ne!(a, b);
    assert_eq!((load(&s, b + 3 * PAGE), load(&s, a + 3 * PAGE)), (Ok(9), Err(UNMAPPED)));
    assert_eq!(s.remap(ask(b, 16 * PAGE, 4 * PAGE)), Ok(b));
    assert_eq!(load(&s, b + 4 * PAGE), Err(UNMAPPED));
    let c = 0x5000_0000;
    assert_eq!(s.remap(Remap { fixed: Some(c), ..ask(b + 2 * PAGE, 2 * PAGE, 3 * PAGE) }), Ok(c));
    assert_eq!(load(&s, c + PAGE), Ok(9));
    assert_eq!(s.usage().anonymous, PAGE);
    let d = s.remap(Remap { keep: true, ..ask(c, 3 * PAGE, 3 * PAGE) }).unwrap();
    assert_eq!((load(&s, d + PAGE), load(&s, c + PAGE)), (Ok(9), Ok(0)));
}

#[test]
fn what_is_asked_of_a_part_of_a_mapping_is_answered_for_it() {
    let s = space();
    let a = s.map(Request::anonymous(4 * PAGE, RW)).unwrap();
    store(&s, a + 2 * PAGE, 9).unwrap();
    let mut entry = [0];
    s.page_map(a + 2 * PAGE, false, &mut entry);
    assert_ne!(entry[0] >> 63, 0, "the page is present");
    s.page_map(a + PAGE, false, &mut entry);
    assert_eq!(entry[0], 0);
    s.set_locked(a, 4 * PAGE, true, false).unwrap();
    assert_eq!(s.sync(a + 2 * PAGE, PAGE, true), Err(EBUSY));
    s.set_locked(a, 4 * PAGE, false, false).unwrap();
    s.protect(a, 4 * PAGE, Prot::NONE, false).unwrap();
    assert_eq!(s.set_locked(a + PAGE, PAGE, true, true), Err(ENOMEM));
}

#[test]
fn pages_count_as_referenced_from_the_fault_that_brought_them_until_they_are_aged() {
    let s = space();
    let own = s.map(Request::anonymous(4 * PAGE, RW)).unwrap();
    let shared = s.map(Request { shared: true, ..Request::anonymous(2 * PAGE, RW) }).unwrap();
    let referenced = |s: &Space, at: u64| {
        let mut out = None;
        s.each_mapping(at, &mut |_, residence| {
            let there = residence();
            out = Some((there.resident() / PAGE, there.referenced / PAGE));
            Ok(false)
        })
        .unwrap();
        out.unwrap()
    };
    for at in [own, own + PAGE, shared] {
        store(&s, at, 1).unwrap();
    }
    let (pages, of_shared) = (referenced(&s, own).0, referenced(&s, shared).0);
    assert_eq!((referenced(&s, own).1, referenced(&s, shared).1), (pages, of_shared));
    s.clear_referenced(Referenced::Anonymous);
    assert_eq!((referenced(&s, own), referenced(&s, shared).1), ((pages, 0), of_shared));
    s.clear_referenced(Referenced::Files);
    assert_eq!(referenced(&s, shared), (of_shared, 0));
    // Other rights are no touch, and a page that replaces another one begins anew.
    s.protect(own, 4 * PAGE, Prot::READ, false).unwrap();
    assert_eq!(referenced(&s, own), (pages, 0));
    s.advise(own, PAGE, Advice::Discard).unwrap();
    s.protect(own, 4 * PAGE, RW, false).unwrap();
    store(&s, own, 2).unwrap();
    assert!(referenced(&s, own).1 >= 1);
    s.reset_peak_resident();
    assert_eq!(s.usage().peak_resident, s.usage().resident());
}

#[test]
fn large_pages_are_made_where_asked_for_and_split_where_needed() {
    const LARGE: u64 = 2 << 20;
    let s = space();
    let a = s.map(Request::anonymous(4 * LARGE, RW)).unwrap().next_multiple_of(LARGE);
    s.advise(a, 2 * LARGE, Advice::Large).unwrap();
    store(&s, a + 5 * PAGE, 1).unwrap();
    assert_eq!(s.usage().anonymous, LARGE);
    store(&s, a + 6 * PAGE, 2).unwrap();
    s.unmap(a + 5 * PAGE, PAGE).unwrap();
    assert_eq!(s.usage().anonymous, LARGE - PAGE);
    assert_eq!((load(&s, a + 5 * PAGE), load(&s, a + 6 * PAGE)), (Err(UNMAPPED), Ok(2)));
    store(&s, a + LARGE, 3).unwrap();
    s.protect(a + LARGE, LARGE, Prot::READ, false).unwrap();
    assert_eq!(load(&s, a + LARGE), Ok(3));
    s.protect(a + LARGE + PAGE, PAGE, RW, false).unwrap();
    store(&s, a + LARGE + PAGE, 4).unwrap();
    s.unmap(a, 2 * LARGE).unwrap();
    assert_eq!(s.usage().anonymous, 0);
}

#[test]
fn the_listing_reads_as_linux_writes_it() {
    let s = space();
    let (_, mapped) = TestFile::new(&[0; 8192]).mapped();
    s.map(Request::anonymous(PAGE, RX).of(mapped, 1).at(0x40_0000)).unwrap();
    s.map(Request::anonymous(PAGE, RW).at(0x40_1000)).unwrap();
    assert_eq!(
        maps(&s),
        [
            format!("{:<73}/f", "00400000-00401000 r-xp 00001000 08:01 7 "),
            "00401000-00402000 rw-p 00000000 00:00 0 ".to_string(),
        ]
    );
}

#[test]
fn residence_and_locks_are_told() {
    let s = space();
    let a = s.map(Request::anonymous(4 * PAGE, RW)).unwrap();
    store(&s, a + PAGE, 1).unwrap();
    assert_eq!(s.resident(a, 4 * PAGE).unwrap(), [0, 1, 0, 0]);
    assert_eq!(s.resident(a, 5 * PAGE), Err(ENOMEM));
    s.set_locked(a + 2 * PAGE + 5, 1, true, true).unwrap();
    assert_eq!(s.resident(a, 4 * PAGE).unwrap(), [0, 1, 1, 0]);
    assert_eq!(s.usage().locked, PAGE);
    assert_eq!(s.sync(a, 4 * PAGE, true), Err(EBUSY));
    assert_eq!(s.advise(a, 4 * PAGE, Advice::Discard), Err(EINVAL));
    s.set_all_locked(Some(false), false, false).unwrap();
    assert_eq!(s.usage().locked, 0);
    assert_eq!(s.advise(a + 3 * PAGE, 2 * PAGE, Advice::Discard), Err(ENOMEM));
    s.advise(a, 4 * PAGE, Advice::Free).unwrap();
    assert_eq!(s.usage().anonymous, 0);
}

#[test]
fn locking_a_vast_reservation_takes_no_time_and_no_memory() {
    let s = space();
    let a = s.map(Request { no_reserve: true, ..Request::anonymous(1 << 44, Prot::NONE) }).unwrap();
    s.protect(a + (1 << 43), 2 * PAGE, RW, false).unwrap();
    s.set_all_locked(Some(true), false, true).unwrap();
    assert_eq!(s.usage().anonymous, 2 * PAGE);
}

mod patching;

#[test]
fn writing_to_a_private_mapping_is_no_writing_of_the_file() {
    let space = space();
    let (file, mapped) = TestFile { slow: true, ..TestFile::new(&[7; 4096]) }.mapped();
    let private = space.map(Request::anonymous(PAGE, RW).of(mapped.clone(), 0)).unwrap();
    store(&space, private, 1).unwrap();
    assert!(file.written.lock().is_empty(), "the file keeps what is known of its bytes");
    let shared = Request { shared: true, ..Request::anonymous(PAGE, RW).of(mapped, 0) };
    let shared = space.map(shared).unwrap();
    store(&space, shared, 1).unwrap();
    assert_eq!(*file.written.lock(), [0]);
}
