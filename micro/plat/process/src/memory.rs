// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine's memory: one memfd, of which the kernel sees all at `PHYS`; the root archive behind it; and pages of both
//! in the program's part of the address space.
//!
//! Physical address 0 is nothing, then come the pages of the vDSO, then free memory, then pages of code. The archive begins at
//! [`ARCHIVE`], so its pages are outside of every range of the frame allocator, which makes them permanent.

use crate::host::{self, MAP_NORESERVE, MAP_POPULATE, MAP_SHARED, PROT_READ, PROT_WRITE};
use crate::host_processes::LOWEST;
use crate::{code, domain, stack};
use abi::errno::{EAGAIN, EBUSY};
use abi::{PAGE_SIZE, Result};
use api_boot::MAX_MEMORY;
use api_plat::{MemoryRange, PHYS, USER_END, Vdso};
use core::arch::x86_64::__cpuid;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use plat_x86::asm::{self, Label};
use plat_x86::clock::ClockPage;

const PAGE: u64 = PAGE_SIZE as u64;
/// Physical address of the root archive.
pub const ARCHIVE: u64 = 1 << 40;
const CLOCK_PAGE: u64 = PAGE;
const VDSO_CODE: u64 = 2 * PAGE;
/// Bytes of a large page.
const LARGE: u64 = 2 << 20;
const FREE: u64 = 3 * PAGE;

static MEMORY: AtomicI32 = AtomicI32::new(-1);
static ROOT: AtomicI32 = AtomicI32::new(-1);
static BYTES: AtomicU64 = AtomicU64::new(0);

/// The memfd, and the root archive.
pub fn descriptors() -> [i32; 2] {
    [MEMORY.load(Ordering::Relaxed), ROOT.load(Ordering::Relaxed)]
}

/// Makes the machine's memory: its descriptor. Touches no variable of the kernel: they are not in it yet.
pub fn create(bytes: u64, root: i32) -> core::result::Result<i32, &'static str> {
    const MFD_CLOEXEC: u64 = 1;
    const MFD_ALLOW_SEALING: u64 = 2;
    const F_GETFL: u64 = 3;
    const O_ACCMODE: usize = 3;
    const F_ADD_SEALS: u64 = 1033;
    // F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW: a write behind the end would make the machine's memory larger.
    const SEALS: u64 = 1 | 2 | 4;
    let name = c"unilith-memory".as_ptr() as u64;
    // SAFETY: makes a new file, and sets its length.
    let memory = unsafe {
        let fd = host::call(host::MEMFD_CREATE, [name, MFD_CLOEXEC | MFD_ALLOW_SEALING, 0, 0, 0, 0])
            .map_err(|_| "the host refuses a memfd: the machine's memory is one")?;
        host::call(host::FTRUNCATE, [fd as u64, bytes + code::BYTES + variables_bytes(), 0, 0, 0, 0])
            .map_err(|_| "the host refuses a memfd as large as the machine's memory: try less with -m")?;
        host::call(host::FCNTL, [fd as u64, F_ADD_SEALS, SEALS, 0, 0, 0])
            .map_err(|_| "the host refuses to seal the size of the machine's memory")?;
        fd as i32
    };
    // SAFETY: asks how the descriptor was opened.
    let is_read_only = unsafe { host::call(host::FCNTL, [root as u64, F_GETFL, 0, 0, 0, 0]) }
        .is_ok_and(|flags| flags & O_ACCMODE == 0);
    if !is_read_only {
        return Err("root= is not a descriptor that can be read only: what it shows could be changed");
    }
    Ok(memory)
}

/// Notes what the machine's memory is, in the kernel's variables.
pub fn note(memory: i32, bytes: u64, root: i32) {
    MEMORY.store(memory, Ordering::Relaxed);
    ROOT.store(root, Ordering::Relaxed);
    BYTES.store(bytes, Ordering::Relaxed);
}

/// Bytes of the kernel's variables, which are a part of the memfd behind the pages of code.
fn variables_bytes() -> u64 {
    asm::__kernel_end.address() - domain::variables()
}

unsafe extern "C" {
    safe static __bss_start: Label;
}

/// Makes the kernel's variables, as its file has them and nobody wrote them yet, a part of the memfd.
pub fn move_variables(memory: i32, bytes: u64) -> Result<()> {
    let start = domain::variables();
    let written = (__bss_start.address().next_multiple_of(PAGE) - start) as usize;
    // SAFETY: nothing is mapped at the first place, which becomes the kernel's view of its memory later. The bytes of the
    // second are the same before and after, for nothing but zeros lies behind those that are copied.
    unsafe {
        host::map(PHYS, variables_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, memory, bytes + code::BYTES)?;
        core::ptr::copy_nonoverlapping(start as *const u8, PHYS as *mut u8, written);
        map_variables(memory, bytes)
    }
}

/// # Safety
///
/// What the kernel's variables hold there goes on where this holds something else.
unsafe fn map_variables(memory: i32, bytes: u64) -> Result<()> {
    let (start, offset) = (domain::variables(), bytes + code::BYTES);
    // SAFETY: by the caller's word.
    unsafe { host::map(start, variables_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, memory, offset) }
}

/// What another host process maps of this machine, but for the kernel's variables.
#[derive(Clone, Copy)]
pub struct Shares {
    memory: i32,
    root: i32,
    bytes: u64,
    archive: u64,
}

impl Shares {
    /// The machine's.
    pub fn new(memory: i32, bytes: u64, root: i32) -> core::result::Result<Shares, &'static str> {
        let mut stat = [0u64; 18];
        // SAFETY: the host writes `struct stat`, 144 bytes, to our array.
        unsafe { host::call(host::FSTAT, [root as u64, &raw mut stat as u64, 0, 0, 0, 0]) }
            .map_err(|_| "root= is not a descriptor")?;
        // `st_size`
        Ok(Shares { memory, root, bytes, archive: stat[6] })
    }

    /// Maps the memory and the archive where the kernel sees them, and the areas of code and of stacks.
    #[inline(always)]
    pub fn map(&self) -> core::result::Result<(), &'static str> {
        let shared = MAP_SHARED | MAP_NORESERVE;
        let length = self.bytes + code::BYTES - PAGE;
        // SAFETY: the places above `PHYS` and the two areas are this crate's, and nothing of use is mapped there yet.
        unsafe {
            host::map(PHYS + PAGE, length, PROT_READ | PROT_WRITE, shared, self.memory, PAGE)
                .map_err(|_| "the host refuses to map the machine's memory: is RLIMIT_AS set?")?;
            if self.archive != 0 {
                // Shared, so that it cannot become memory of its own: the descriptor does not allow writing.
                host::map(PHYS + ARCHIVE, self.archive, PROT_READ, shared, self.root, 0)
                    .map_err(|_| "the root archive cannot be mapped: it must be a file or a memfd")?;
            }
        }
        code::map(self.memory, self.bytes)
            .map_err(|_| "the host refuses executable pages of the machine's memory")?;
        stack::reserve(self.memory)
            .map_err(|_| "the host refuses to reserve kernel stacks: is RLIMIT_AS set?")
    }

    /// Maps the kernel's variables, which other host processes change at any moment, in place of those of this one.
    ///
    /// # Safety
    ///
    /// Nothing of what comes behind relies on them.
    #[inline(always)]
    pub unsafe fn map_variables(&self) -> Result<()> {
        // SAFETY: by the caller's word.
        unsafe { map_variables(self.memory, self.bytes) }
    }
}

/// Maps the machine's memory and the archive, whose bytes it answers.
pub fn initialize(shares: &Shares) -> core::result::Result<&'static [u8], &'static str> {
    shares.map()?;
    let length = shares.archive;
    ARCHIVE_BYTES.store(length, Ordering::Relaxed);
    // SAFETY: the pages lie in the memory just mapped, which nobody uses yet; the vDSO is one page of the image.
    unsafe {
        ((PHYS + CLOCK_PAGE) as *mut ClockPage).write(ClockPage::new());
        let code = (PHYS + VDSO_CODE) as *mut u8;
        core::ptr::copy_nonoverlapping(asm::unilith_vdso.address() as *const u8, code, PAGE_SIZE);
        if has_rdtscp() {
            let at = asm::unilith_vdso_ordered.address() - asm::unilith_vdso.address();
            code.add(at as usize).cast::<[u8; 5]>().write(RDTSCP);
        }
        Ok(core::slice::from_raw_parts((PHYS + ARCHIVE) as *const u8, length as usize))
    }
}

/// Where the pages of code begin, which are nobody else's.
pub fn code() -> u64 {
    BYTES.load(Ordering::Relaxed)
}

/// Bytes of the root archive.
static ARCHIVE_BYTES: AtomicU64 = AtomicU64::new(0);

/// Where the kernel sees the machine's memory.
pub fn seen() -> Range<u64> {
    PHYS + PAGE..PHYS + code() + code::BYTES
}

/// How often the program's pages were changed.
static CHANGES: AtomicU64 = AtomicU64::new(0);

pub fn changes() -> u64 {
    CHANGES.load(Ordering::Relaxed)
}

/// The program's pages are about to change; they lie in its part.
fn change(address: u64, length: u64) {
    let is_its = address.checked_add(length).is_some_and(|end| end <= USER_END);
    assert!(is_its, "pages of the program outside of its part");
    // One thread writes: no need for an atomic change.
    CHANGES.store(changes() + 1, Ordering::Relaxed);
}

/// Whether the kernel sees memory at an address above `PHYS`, which it may also write if asked.
pub fn is_seen(address: u64, write: bool) -> bool {
    let archive = PHYS + ARCHIVE..PHYS + ARCHIVE + ARCHIVE_BYTES.load(Ordering::Relaxed);
    seen().contains(&address) || !write && archive.contains(&address)
}

/// RDTSCP and a no-operation of two bytes. It waits for what came before by itself, and is quicker than LFENCE and RDTSC.
const RDTSCP: [u8; 5] = [0x0f, 0x01, 0xf9, 0x66, 0x90];

fn has_rdtscp() -> bool {
    __cpuid(0x8000_0000).eax > 0x8000_0000 && __cpuid(0x8000_0001).edx & 1 << 27 != 0
}

/// Takes the kernel's view of the archive out of its page tables: the pages stay in the host's page cache, and come back with
/// the next use. The program sees most of them at its own addresses as well, and the host counts both.
pub fn forget_archive() {
    const MADV_DONTNEED: u64 = 4;
    let length = ARCHIVE_BYTES.load(Ordering::Relaxed);
    // SAFETY: nothing was written to the mapping, so nothing is lost. An empty archive makes the call do nothing.
    let _ = unsafe { host::call(host::MADVISE, [PHYS + ARCHIVE, length, MADV_DONTNEED, 0, 0, 0]) };
}

/// What the frame allocator gets.
pub fn free() -> MemoryRange {
    MemoryRange { start: FREE, end: BYTES.load(Ordering::Relaxed) }
}

/// The page of the clock, which exists once [`initialize`] came back.
#[inline]
pub fn clock_page() -> &'static ClockPage {
    // SAFETY: the page was written by `initialize`, is never given to anybody, and has atomic fields only.
    unsafe { &*((PHYS + CLOCK_PAGE) as *const ClockPage) }
}

#[unsafe(no_mangle)]
fn unilith_plat_vdso() -> Vdso {
    Vdso { data: CLOCK_PAGE, code: VDSO_CODE }
}

/// A bit for each part of memory.
struct Parts<const WORDS: usize>([AtomicU64; WORDS]);

impl<const WORDS: usize> Parts<WORDS> {
    const fn new() -> Self {
        Parts([const { AtomicU64::new(0) }; WORDS])
    }

    fn contains(&self, part: u64) -> bool {
        self.0
            .get((part / 64) as usize)
            .is_some_and(|word| word.load(Ordering::Relaxed) & 1 << (part % 64) != 0)
    }

    /// False where it was there before, or there is no such part.
    fn insert(&self, part: u64) -> bool {
        let Some(word) = self.0.get((part / 64) as usize) else { return false };
        // One thread writes: no need for an atomic change.
        let before = word.load(Ordering::Relaxed);
        word.store(before | 1 << (part % 64), Ordering::Relaxed);
        before & 1 << (part % 64) == 0
    }
}

/// Large pages that the host was asked for, and those it made.
static ASKED: Parts<{ (MAX_MEMORY / LARGE / 64) as usize }> = Parts::new();
static MADE: Parts<{ (MAX_MEMORY / LARGE / 64) as usize }> = Parts::new();
/// The host makes large pages.
static MAKES: AtomicBool = AtomicBool::new(true);
/// How many it is not asked for, because the last one took it longer than [`LONG`].
static LEFT_OUT: AtomicU64 = AtomicU64::new(0);
/// Nanoseconds, and the number: one that takes 20 ms is then a fifth of what the others take when they are touched.
const LONG: u64 = 3_000_000;
const LEFT_OUT_THEN: u64 = 64;

/// Asks the host, once, to make one of its large pages of those of memory, whatever they hold already. Small ones take it 2 µs
/// each when they are touched, and 1 µs more where they are seen at a second place; a large one 400 µs for all 512. But it
/// waits for the host's other processors, which on a busy host takes up to 20 ms. So this is for memory of which all will be
/// used, and not tried again soon when it took long. Hosts without it, or without a large page left, go on as before: page by
/// page.
fn make_large(part: u64) {
    const MADV_COLLAPSE: u64 = 25;
    let start = part * LARGE;
    if start < FREE || start + LARGE > code() || !MAKES.load(Ordering::Relaxed) {
        return;
    }
    let left_out = LEFT_OUT.load(Ordering::Relaxed);
    if left_out != 0 {
        // One thread writes: no need for an atomic change.
        return LEFT_OUT.store(left_out - 1, Ordering::Relaxed);
    }
    if !ASKED.insert(part) {
        return;
    }
    let begin = api_plat::now_ns();
    // Where nothing is yet the host has nothing to make a large page of.
    // SAFETY: memory that is mapped, and read without a meaning.
    unsafe { ((PHYS + start) as *const u8).read_volatile() };
    // SAFETY: the bytes stay what they are.
    let made = unsafe { host::call(host::MADVISE, [PHYS + start, LARGE, MADV_COLLAPSE, 0, 0, 0]) };
    if api_plat::now_ns().saturating_sub(begin) > LONG {
        LEFT_OUT.store(LEFT_OUT_THEN, Ordering::Relaxed);
    }
    match made {
        Ok(_) => {
            MADE.insert(part);
        }
        // Somebody holds a page just now.
        Err(EAGAIN | EBUSY) => {}
        // Linux before 6.1, or its memory is in small pieces: looking for a large one takes long.
        Err(_) => MAKES.store(false, Ordering::Relaxed),
    }
}

/// Memory is remembered in blocks of this size.
const BLOCK: u64 = 64 << 10;
/// Blocks that the program has had before.
static USED: Parts<{ (MAX_MEMORY / BLOCK / 64) as usize }> = Parts::new();

/// Whether a piece of memory is shown to the program at once, where it would take a fault for each page: all of it is there,
/// because it is part of a large page, or because the program had it before, which is remembered. Memory that was never used
/// stays away until it is touched, for then the host has to make it; but for less than a block, which is mapped for the page
/// that the program just asked for, or for copies.
fn is_wanted_at_once(physical: u64, length: u64) -> bool {
    let mut all_used = true;
    for block in physical / BLOCK..(physical + length).div_ceil(BLOCK) {
        all_used &= !USED.insert(block);
    }
    let mut large = physical / LARGE..(physical + length).div_ceil(LARGE);
    all_used || length < BLOCK || large.all(|part| MADE.contains(part))
}

/// Longer runs that are only read are left to be touched: then the host maps the pages around the one that is read as well (16, Linux
/// `fault_around_bytes`), which takes it less than looking up each page of a long run that is to be there at once.
const FEW: u64 = 2 * PAGE;

#[unsafe(no_mangle)]
fn unilith_plat_map_pages(address: u64, physical: u64, length: u64, rights: u32) -> Result<()> {
    change(address, length);
    let [memory, root] = descriptors();
    // SAFETY: the program's part is the pager's to change.
    unsafe {
        match physical.checked_sub(ARCHIVE) {
            Some(offset) => host::map(address, length, rights, MAP_SHARED | MAP_NORESERVE, root, offset),
            None => {
                (physical.div_ceil(LARGE)..(physical + length) / LARGE).for_each(make_large);
                let is_ready = is_wanted_at_once(physical, length);
                let is_touched_alone = rights & PROT_WRITE != 0 || length <= FEW;
                let at_once = if is_ready && is_touched_alone { MAP_POPULATE } else { 0 };
                host::map(address, length, rights, MAP_SHARED | MAP_NORESERVE | at_once, memory, physical)
            }
        }
    }
}

#[unsafe(no_mangle)]
fn unilith_plat_protect_pages(address: u64, length: u64, rights: u32) -> Result<()> {
    change(address, length);
    // SAFETY: as above.
    unsafe { host::call(host::MPROTECT, [address, length, rights.into(), 0, 0, 0]) }.map(|_| ())
}

#[unsafe(no_mangle)]
fn unilith_plat_unmap_pages(address: u64, length: u64) -> bool {
    unmap(address, length)
}

/// Takes pages of the program away; false when all of them went, because the host would have had to split a mapping and has
/// no room for one more (vm.max_map_count).
pub fn unmap(address: u64, length: u64) -> bool {
    change(address, length);
    // SAFETY: as above.
    let call = |start: u64, length: u64| unsafe { host::call(host::MUNMAP, [start, length, 0, 0, 0, 0]) };
    if call(address, length).is_ok() {
        return true;
    }
    // No mapping lies across an end of the program's part, so nothing is split.
    if call(LOWEST, USER_END - LOWEST).is_err() {
        plat_x86::crash::fail("the host cannot unmap the program's memory");
    }
    false
}
