// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Code that is made at run time (compiled eBPF programs, the tracer's trampolines): the last 2 MiB of the address
//! space, executable and never writable. It is written through the physical map, which is not executable.

use crate::{asm, paging, physical_to_virtual, tools};
use abi::{PAGE_SIZE, Result, errno::EFAULT, errno::EINVAL, errno::ENOMEM};
use api_lock::SpinLock;
use core::mem::ManuallyDrop;

const START: u64 = 0xffff_ffff_ffe0_0000;
/// The last page stays empty: its end is no address.
const PAGES: usize = 511;

/// Which pages are taken.
static TAKEN: SpinLock<[bool; PAGES]> = SpinLock::new([false; PAGES]);

#[unsafe(no_mangle)]
fn unilith_plat_new_code(code: &[u8]) -> Result<u64> {
    if code.is_empty() {
        return Err(EINVAL);
    }
    let count = code.len().div_ceil(PAGE_SIZE);
    let mut taken = TAKEN.lock();
    let free = |first: &usize| !taken[*first..*first + count].contains(&true);
    let first = (0..(PAGES + 1).saturating_sub(count)).find(free).ok_or(ENOMEM)?;
    let address = START + (first * PAGE_SIZE) as u64;
    for (i, chunk) in code.chunks(PAGE_SIZE).enumerate() {
        let page = address + (i * PAGE_SIZE) as u64;
        if let Err(e) = fill(page, chunk) {
            (0..i).for_each(|i| remove(address + (i * PAGE_SIZE) as u64));
            return Err(e);
        }
    }
    taken[first..first + count].fill(true);
    Ok(address)
}

/// A new page with `code`, and breakpoints behind it.
fn fill(page: u64, code: &[u8]) -> Result<()> {
    let frame = api_mem::PageFrame::new()?;
    frame.write(0, code);
    // SAFETY: the frame is this function's own.
    unsafe { frame.bytes().add(code.len()).write_bytes(0xcc, PAGE_SIZE - code.len()) };
    let frame = ManuallyDrop::new(frame);
    // SAFETY: the page is free, and the caller holds the lock; the table takes the reference over.
    unsafe {
        if paging::map_stack_page(page, frame.physical()).is_none() {
            drop(ManuallyDrop::into_inner(frame));
            return Err(ENOMEM);
        }
        paging::make_executable(page);
    }
    Ok(())
}

fn remove(page: u64) {
    // SAFETY: it was mapped by `fill`, whose reference this is; the caller knows that nothing uses it.
    drop(unsafe { api_mem::PageFrame::from_raw(paging::unmap_stack_page(page)) });
}

#[unsafe(no_mangle)]
unsafe fn unilith_plat_free_code(address: u64, length: usize) {
    let mut taken = TAKEN.lock();
    let first = (address.saturating_sub(START) / PAGE_SIZE as u64) as usize;
    for page in first..first + length.div_ceil(PAGE_SIZE) {
        if taken.get(page) == Some(&true) {
            taken[page] = false;
            remove(START + (page * PAGE_SIZE) as u64);
        }
    }
}

#[unsafe(no_mangle)]
unsafe fn unilith_plat_write_code(address: u64, bytes: &[u8]) -> Result<()> {
    let end = address.checked_add(bytes.len() as u64).ok_or(EFAULT)?;
    let image = address >= asm::__kernel_start.address() && end <= asm::__text_end.address();
    let tools = tools::contains(address) && end <= asm::__overlay_text_end.address();
    if !image && !tools && (address < START || end > START + (PAGES * PAGE_SIZE) as u64) {
        return Err(EFAULT);
    }
    let physical = |at: u64| match (image, tools) {
        (true, _) => paging::image_physical(at),
        (_, true) => paging::image_frame(at) + at % PAGE_SIZE as u64,
        _ => paging::frame_of(at & !0xfff) + at % PAGE_SIZE as u64,
    };
    if (address..end).any(|at| physical(at) < PAGE_SIZE as u64) {
        return Err(EFAULT);
    }
    for (at, byte) in (address..end).zip(bytes) {
        // SAFETY: physical memory of code, seen through the physical map, where it is writable; that the new bytes
        // may run there is the caller's word.
        unsafe { physical_to_virtual::<u8>(physical(at)).write_volatile(*byte) };
    }
    Ok(())
}

/// Page tables tell, and whoever asks walks them.
#[unsafe(no_mangle)]
fn unilith_plat_has_memory(_: u64, _: bool) -> bool {
    true
}
