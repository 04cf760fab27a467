// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Code that is made at run time (compiled eBPF programs, the tracer's trampolines), and changes of the kernel's own.
//!
//! [`PAGES`] pages of the memfd behind the machine's memory are seen twice: executable at [`START`], within reach of a
//! relative jump from the kernel's text, and writable through [`PHYS`]. No page is both at one place, and none changes its
//! rights, so making code needs no call of the host. The kernel's text is its executable's: a page of it that is to be
//! changed is first replaced by one of these with the same bytes, which the filter allows for such pages alone.

use crate::host::{self, MAP_SHARED, PROT_EXEC, PROT_READ};
use crate::host_processes::{self, MAX_HOST_PROCESSES};
use crate::memory;
use abi::{PAGE_SIZE, Result, errno::EFAULT, errno::EINVAL, errno::ENOMEM};
use api_lock::SpinLock;
use api_plat::PHYS;
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};
use plat_x86::asm;

/// Where the code runs: in the 4 GiB of the kernel's image.
const START: u64 = 0x7000_4000_0000;
const PAGES: usize = 512;
/// Bytes of the memfd that are code's.
pub const BYTES: u64 = (PAGES * PAGE_SIZE) as u64;
const PAGE: u64 = PAGE_SIZE as u64;
/// `int3`
const BREAKPOINT: u8 = 0xcc;

/// What a page is used for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Free,
    Code,
    /// It stands for the page of the kernel's text at this address.
    Kernel(u64),
}

static USES: SpinLock<[Use; PAGES]> = SpinLock::new([Use::Free; PAGES]);

/// How many pages of the kernel's text have another one in their place, and how many of them each host process knows.
static REPLACED: AtomicUsize = AtomicUsize::new(0);
static KNOWN: [AtomicUsize; MAX_HOST_PROCESSES] = [const { AtomicUsize::new(0) }; MAX_HOST_PROCESSES];

/// Host process `number` runs from here on: pages of text that were replaced meanwhile are replaced here too.
pub fn arrive(number: usize) {
    let replaced = REPLACED.load(Ordering::Relaxed);
    if KNOWN[number].load(Ordering::Relaxed) == replaced {
        return;
    }
    for (index, of) in USES.lock().iter().enumerate() {
        if let Use::Kernel(text) = of
            && replace(*text, index).is_err()
        {
            crate::domain::refused();
        }
    }
    KNOWN[number].store(replaced, Ordering::Relaxed);
}

/// Puts a page in place of one of the kernel's text that has the same bytes, in this host process.
fn replace(text: u64, index: usize) -> Result<()> {
    let [file, _] = memory::descriptors();
    let physical = memory::code() + index as u64 * PAGE;
    // SAFETY: the same bytes come in place of the page, in one step; what runs there goes on.
    unsafe { host::map(text, PAGE, PROT_READ | PROT_EXEC, MAP_SHARED, file, physical) }.map_err(|_| ENOMEM)
}

/// Where pages of code are executed.
pub fn area() -> Range<u64> {
    START..START + BYTES
}

/// Shows the pages, which begin at byte `offset` of the file, where they are executed.
pub fn map(file: i32, offset: u64) -> Result<()> {
    // SAFETY: the place is this module's, and nothing is mapped there yet.
    unsafe { host::map(START, BYTES, PROT_READ | PROT_EXEC, MAP_SHARED, file, offset) }
}

/// A page where it can be written.
fn page(index: usize) -> *mut u8 {
    (PHYS + memory::code() + index as u64 * PAGE) as *mut u8
}

/// Fills pages with code, and breakpoints behind it.
fn fill(first: usize, count: usize, code: &[u8]) {
    // SAFETY: the caller owns these pages of the area, which lie one behind the other.
    unsafe {
        core::ptr::copy_nonoverlapping(code.as_ptr(), page(first), code.len());
        page(first).add(code.len()).write_bytes(BREAKPOINT, count * PAGE_SIZE - code.len());
    }
    settle();
}

/// Code that was written at another address is fetched only behind a serializing instruction (Intel SDM volume 3, 8.1.3).
fn settle() {
    core::hint::black_box(core::arch::x86_64::__cpuid(0));
}

/// All of the overlay is part of the image.
#[unsafe(no_mangle)]
fn unilith_plat_load_tools() -> Result<()> {
    Ok(())
}

#[unsafe(no_mangle)]
fn unilith_plat_new_code(code: &[u8]) -> Result<u64> {
    if code.is_empty() {
        return Err(EINVAL);
    }
    let count = code.len().div_ceil(PAGE_SIZE);
    let mut uses = USES.lock();
    let is_free = |first: &usize| uses[*first..*first + count].iter().all(|u| *u == Use::Free);
    let first = (0..(PAGES + 1).saturating_sub(count)).find(is_free).ok_or(ENOMEM)?;
    uses[first..first + count].fill(Use::Code);
    fill(first, count, code);
    Ok(START + first as u64 * PAGE)
}

#[unsafe(no_mangle)]
unsafe fn unilith_plat_free_code(address: u64, length: usize) {
    let mut uses = USES.lock();
    let first = (address.saturating_sub(START) / PAGE) as usize;
    for index in first..first + length.div_ceil(PAGE_SIZE) {
        if uses.get(index) == Some(&Use::Code) {
            uses[index] = Use::Free;
            fill(index, 1, &[]);
        }
    }
}

/// The page that stands for a page of the kernel's text; the first time it is put there.
fn own(text: u64) -> Result<usize> {
    let mut uses = USES.lock();
    if let Some(index) = uses.iter().position(|u| *u == Use::Kernel(text)) {
        return Ok(index);
    }
    let index = uses.iter().position(|u| *u == Use::Free).ok_or(ENOMEM)?;
    // SAFETY: a whole page of the kernel's text.
    fill(index, 1, unsafe { core::slice::from_raw_parts(text as *const u8, PAGE_SIZE) });
    replace(text, index)?;
    uses[index] = Use::Kernel(text);
    let replaced = REPLACED.fetch_add(1, Ordering::Relaxed) + 1;
    KNOWN[host_processes::current()].store(replaced, Ordering::Relaxed);
    Ok(index)
}

#[unsafe(no_mangle)]
unsafe fn unilith_plat_write_code(address: u64, bytes: &[u8]) -> Result<()> {
    let end = address.checked_add(bytes.len() as u64).ok_or(EFAULT)?;
    let (text, area) = (asm::text(), area());
    let in_text = address >= text.start && end <= text.end;
    if !in_text && (address < area.start || end > area.end) {
        return Err(EFAULT);
    }
    for (at, byte) in (address..end).zip(bytes) {
        let index = match in_text {
            true => own(at & !(PAGE - 1))?,
            false => ((at - START) / PAGE) as usize,
        };
        // SAFETY: a byte of the area; that the new one may run there is the caller's word.
        unsafe { page(index).add((at % PAGE) as usize).write_volatile(*byte) };
    }
    settle();
    Ok(())
}

/// The kernel's image, of which only the text and constants are not written by name.
fn image() -> Range<u64> {
    asm::__kernel_start.address()..asm::__kernel_end.address()
}

#[unsafe(no_mangle)]
fn unilith_plat_has_memory(address: u64, write: bool) -> bool {
    crate::stack::is_seen(address)
        || memory::is_seen(address, write)
        || !write && (image().contains(&address) || area().contains(&address))
}
