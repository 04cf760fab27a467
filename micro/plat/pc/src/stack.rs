// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Kernel stacks: slots of 64 KiB in the last GiB of the address space, of which the upper half is mapped. The lower
//! half is the guard: an overflow faults instead of writing to what lies below.

use crate::{STACKS, asm, paging, processors};
use abi::{Result, errno::EAGAIN, errno::ENOMEM};
use alloc::vec::Vec;
use api_lock::SpinLock;
use api_plat::KernelStack;
use core::mem::ManuallyDrop;

const SLOT: u64 = 64 << 10;
/// Usable bytes of a stack.
pub const SIZE: u64 = 32 << 10;
/// The last 2 MiB of that are for code made at run time (`code.rs`).
const SLOTS: u64 = ((1 << 30) - (2 << 20)) / SLOT;
/// Freed stacks that stay mapped, for the next thread.
const SPARE: usize = 16;

struct Slots {
    /// Slots from here on were never used.
    fresh: u64,
    /// Free slots whose pages are mapped.
    mapped: Vec<u64>,
    /// Free slots without pages.
    empty: Vec<u64>,
}

static STATE: SpinLock<Slots> = SpinLock::new(Slots { fresh: 0, mapped: Vec::new(), empty: Vec::new() });

fn top_of(slot: u64) -> u64 {
    STACKS + (slot + 1) * SLOT
}

#[unsafe(no_mangle)]
fn unilith_plat_new_stack() -> Result<KernelStack> {
    let mut slots = STATE.lock();
    let slot = match slots.mapped.pop() {
        Some(slot) => slot,
        None => {
            let slot = match slots.empty.pop() {
                Some(slot) => slot,
                None if slots.fresh == SLOTS => return Err(EAGAIN),
                None => {
                    slots.fresh += 1;
                    slots.fresh - 1
                }
            };
            if let Err(e) = map(slot) {
                slots.empty.push(slot);
                return Err(e);
            }
            slot
        }
    };
    // SAFETY: the slot was free, is marked as taken and mapped now, and `free_stack` gives it back.
    Ok(unsafe { KernelStack::from_raw(top_of(slot), SIZE as usize) })
}

fn map(slot: u64) -> Result<()> {
    let start = top_of(slot) - SIZE;
    for page in (start..start + SIZE).step_by(4096) {
        let frame = api_mem::PageFrame::new();
        // SAFETY: the slot is not in use, and the caller holds the lock.
        let mapped = frame.and_then(|frame| {
            let frame = ManuallyDrop::new(frame);
            // SAFETY: as above; the page table holds the reference from here on.
            unsafe { paging::map_stack_page(page, frame.physical()) }.ok_or_else(|| {
                drop(ManuallyDrop::into_inner(frame));
                ENOMEM
            })
        });
        if let Err(e) = mapped {
            unmap(start, page);
            return Err(e);
        }
    }
    Ok(())
}

/// Takes the pages of a slot away; nobody has them before every processor has forgotten them.
fn unmap(start: u64, end: u64) {
    let mut frames = [0; (SIZE / 4096) as usize];
    let pages = (start..end).step_by(4096);
    for (page, frame) in pages.zip(&mut frames) {
        // SAFETY: the page was mapped above, and nothing uses the slot.
        *frame = unsafe { paging::unmap_stack_page(page) };
    }
    processors::forget_everywhere(start, end);
    for frame in frames.into_iter().filter(|frame| *frame != 0) {
        // SAFETY: the reference was the page table's.
        drop(unsafe { api_mem::PageFrame::from_raw(frame) });
    }
}

#[unsafe(no_mangle)]
fn unilith_plat_free_stack(stack: &mut KernelStack) {
    let slot = (stack.top() - STACKS) / SLOT - 1;
    let mut slots = STATE.lock();
    if slots.mapped.len() < SPARE {
        return slots.mapped.push(slot);
    }
    unmap(stack.top() - SIZE, stack.top());
    slots.empty.push(slot);
}

#[unsafe(no_mangle)]
fn unilith_machine_stack_holds(low: u64, high: u64) -> bool {
    if low >= STACKS && high <= top_of(SLOTS - 1) {
        let slot = (high - 1 - STACKS) / SLOT;
        return low >= top_of(slot) - SIZE;
    }
    high >= low && asm::on_boot_stack(high, high - low)
}

#[unsafe(no_mangle)]
fn unilith_machine_guard_at(address: u64) -> Option<&'static str> {
    if (STACKS..top_of(SLOTS - 1)).contains(&address) && (address - STACKS) % SLOT < SLOT - SIZE {
        return Some("a thread's kernel stack");
    }
    let guards = asm::stack_guards();
    guards.iter().find(|(guard, _)| (*guard..*guard + 4096).contains(&address)).map(|(_, name)| *name)
}
