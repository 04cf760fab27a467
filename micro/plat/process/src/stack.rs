// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Kernel stacks: slots of 64 KiB in an area of one GiB, of which the upper half is accessible once it was used. The
//! lower half is the guard: an overflow faults instead of writing to what lies below.

use crate::host::{self, MAP_ANONYMOUS, MAP_NORESERVE, MAP_PRIVATE, PROT_READ, PROT_WRITE};
use abi::{PAGE_SIZE, Result, errno::EAGAIN, errno::ENOMEM};
use alloc::vec::Vec;
use api_lock::SpinLock;
use api_plat::KernelStack;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

const PAGE: u64 = PAGE_SIZE as u64;
/// The area of stacks.
const STACKS: u64 = 0x7040_0000_0000;
const AREA: u64 = 1 << 30;
const SLOT: u64 = 64 << 10;
/// Usable bytes of a stack.
const SIZE: u64 = 32 << 10;
const SLOTS: u64 = AREA / SLOT;
/// Freed stacks that keep their pages, for the next thread.
const SPARE: usize = 16;
/// What the kernel may use of the stack the host started it on.
const BOOT: u64 = 64 << 10;
static BOOT_TOP: AtomicU64 = AtomicU64::new(0);

struct Slots {
    /// Slots from here on were never used.
    fresh: u64,
    /// Free slots, accessible.
    free: Vec<u64>,
}

static STATE: SpinLock<Slots> = SpinLock::new(Slots { fresh: 0, free: Vec::new() });

fn top_of(slot: u64) -> u64 {
    STACKS + (slot + 1) * SLOT
}

/// `Slots::fresh`, for those who may not wait for the lock.
static FRESH: AtomicU64 = AtomicU64::new(0);

/// Whether an address lies in a kernel stack that was used before.
pub fn is_seen(address: u64) -> bool {
    let end = STACKS + FRESH.load(Ordering::Relaxed) * SLOT;
    let boot = BOOT_TOP.load(Ordering::Relaxed);
    (STACKS..end).contains(&address) && (address - STACKS) % SLOT >= SLOT - SIZE
        || (boot - BOOT..boot).contains(&address)
}

/// How often a stack became accessible.
pub fn changes() -> u64 {
    FRESH.load(Ordering::Relaxed)
}

/// The accessible pages of all stacks.
pub fn each_open(each: &mut dyn FnMut(Range<u64>)) {
    let boot = BOOT_TOP.load(Ordering::Relaxed);
    each((boot - BOOT) & !(PAGE - 1)..boot.next_multiple_of(PAGE));
    (0..changes()).for_each(|slot| each(top_of(slot) - SIZE..top_of(slot)));
}

/// Reserves the area; `top` is where the stack begins on which the kernel was started.
pub fn initialize(top: u64) -> Result<()> {
    BOOT_TOP.store(top, Ordering::Relaxed);
    // SAFETY: the place is this module's, and nothing is mapped there yet.
    unsafe { host::map(STACKS, AREA, 0, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) }
}

#[unsafe(no_mangle)]
fn unilith_plat_new_stack() -> Result<KernelStack> {
    let mut slots = STATE.lock();
    if let Some(slot) = slots.free.pop() {
        return Ok(KernelStack { top: top_of(slot), size: SIZE as usize });
    }
    if slots.fresh == SLOTS {
        return Err(EAGAIN);
    }
    let top = top_of(slots.fresh);
    let rights = u64::from(PROT_READ | PROT_WRITE);
    // SAFETY: the slot is not in use.
    unsafe { host::call(host::MPROTECT, [top - SIZE, SIZE, rights, 0, 0, 0]) }.map_err(|_| ENOMEM)?;
    slots.fresh += 1;
    FRESH.store(slots.fresh, Ordering::Relaxed);
    Ok(KernelStack { top, size: SIZE as usize })
}

#[unsafe(no_mangle)]
fn unilith_plat_free_stack(stack: &mut KernelStack) {
    const MADV_DONTNEED: u64 = 4;
    let slot = (stack.top - STACKS) / SLOT - 1;
    let mut slots = STATE.lock();
    if slots.free.len() >= SPARE {
        // SAFETY: nothing uses the slot any more. If the host refuses, the pages stay, which is only memory.
        let _ = unsafe { host::call(host::MADVISE, [stack.top - SIZE, SIZE, MADV_DONTNEED, 0, 0, 0]) };
    }
    slots.free.push(slot);
}

#[unsafe(no_mangle)]
fn unilith_machine_stack_holds(low: u64, high: u64) -> bool {
    if low >= STACKS && high <= STACKS + AREA && low < high {
        let slot = (high - 1 - STACKS) / SLOT;
        return low >= top_of(slot) - SIZE;
    }
    let top = BOOT_TOP.load(Ordering::Relaxed);
    low <= high && high <= top && low >= top - BOOT
}

#[unsafe(no_mangle)]
fn unilith_machine_guard_at(address: u64) -> Option<&'static str> {
    let guard = (STACKS..STACKS + AREA).contains(&address) && (address - STACKS) % SLOT < SLOT - SIZE;
    guard.then_some("a thread's kernel stack")
}
