// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Kernel stacks: slots of 64 KiB in an area of one GiB, of which the upper half shows pages of the machine's memory while
//! the slot is open. The lower half is the guard: an overflow faults instead of writing to what lies below.

use crate::filter::{STACK_BYTES, STACKS};
use crate::host::{self, MAP_NORESERVE, MAP_SHARED, PROT_READ, PROT_WRITE};
use crate::memory;
use abi::{PAGE_SIZE, Result, errno::EAGAIN, errno::ENOMEM};
use alloc::vec::Vec;
use api_lock::SpinLock;
use api_mem::{Frame, Pages};
use api_plat::KernelStack;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

const PAGE: u64 = PAGE_SIZE as u64;
/// Bytes from [`STACKS`] on.
const AREA: u64 = 1 << 30;
const SLOT: u64 = 64 << 10;
/// Usable bytes of a stack.
const SIZE: u64 = STACK_BYTES;
const SLOTS: u64 = AREA / SLOT;
/// Freed stacks that stay open, for the next threads.
const SPARE: usize = 16;
/// What the kernel may use of the stack the host started it on.
const BOOT: u64 = 64 << 10;
static BOOT_TOP: AtomicU64 = AtomicU64::new(0);

struct Slots {
    /// Slots from here on were never used.
    fresh: u64,
    /// Free slots that are open, with the physical address of their pages.
    spare: Vec<u64>,
    /// Free slots that are closed.
    closed: Vec<u64>,
    /// Physical addresses of the pages of the slots that were used, by number; 0 for those that are closed.
    pages: Vec<u64>,
}

static STATE: SpinLock<Slots> =
    SpinLock::new(Slots { fresh: 0, spare: Vec::new(), closed: Vec::new(), pages: Vec::new() });

/// Slots that are open, a bit each, for those who may not wait for the lock; and how often that changed.
static OPEN: [AtomicU64; (SLOTS / 64) as usize] = [const { AtomicU64::new(0) }; (SLOTS / 64) as usize];
static CHANGES: AtomicU64 = AtomicU64::new(0);

fn is_open(slot: u64) -> bool {
    OPEN[(slot / 64) as usize].load(Ordering::Relaxed) & 1 << (slot % 64) != 0
}

fn note_change(slot: u64) {
    OPEN[(slot / 64) as usize].fetch_xor(1 << (slot % 64), Ordering::Relaxed);
    CHANGES.fetch_add(1, Ordering::Relaxed);
}

fn top_of(slot: u64) -> u64 {
    STACKS + (slot + 1) * SLOT
}

/// Whether an address lies in a kernel stack that is open.
pub fn is_seen(address: u64) -> bool {
    let boot = BOOT_TOP.load(Ordering::Relaxed);
    if !(STACKS..STACKS + AREA).contains(&address) {
        return (boot - BOOT..boot).contains(&address);
    }
    let (slot, offset) = ((address - STACKS) / SLOT, (address - STACKS) % SLOT);
    offset >= SLOT - SIZE && is_open(slot)
}

/// How often a stack was opened or closed.
pub fn changes() -> u64 {
    CHANGES.load(Ordering::Relaxed)
}

/// The accessible pages of all stacks.
pub fn each_open(each: &mut dyn FnMut(Range<u64>)) {
    let boot = BOOT_TOP.load(Ordering::Relaxed);
    each((boot - BOOT) & !(PAGE - 1)..boot.next_multiple_of(PAGE));
    for (word, slots) in OPEN.iter().enumerate() {
        let mut slots = slots.load(Ordering::Relaxed);
        while slots != 0 {
            let top = top_of(word as u64 * 64 + u64::from(slots.trailing_zeros()));
            each(top - SIZE..top);
            slots &= slots - 1;
        }
    }
}

/// Reserves the area, whose pages are the memfd's like all memory; `top` is where the stack begins on which the kernel was
/// started.
pub fn initialize(top: u64) -> Result<()> {
    BOOT_TOP.store(top, Ordering::Relaxed);
    // SAFETY: the place is this module's, and nothing is mapped there yet.
    unsafe { host::map(STACKS, AREA, 0, MAP_SHARED | MAP_NORESERVE, memory::descriptors()[0], 0) }
}

/// Shows memory in the upper half of a slot, or makes that inaccessible.
fn show(slot: u64, physical: Option<u64>) -> Result<()> {
    let rights = physical.map_or(0, |_| PROT_READ | PROT_WRITE);
    let (start, file) = (top_of(slot) - SIZE, memory::descriptors()[0]);
    // SAFETY: the slot is not in use.
    unsafe { host::map(start, SIZE, rights, MAP_SHARED | MAP_NORESERVE, file, physical.unwrap_or(0)) }?;
    note_change(slot);
    Ok(())
}

impl Slots {
    /// A slot that is closed, and whose number has room in `pages`.
    fn closed(&mut self) -> Result<u64> {
        if let Some(slot) = self.closed.pop() {
            return Ok(slot);
        }
        if self.fresh == SLOTS {
            return Err(EAGAIN);
        }
        self.pages.try_reserve(1).map_err(|_| ENOMEM)?;
        // Each slot is in one of these lists at most: returning one never needs memory.
        let room = self.pages.len() + 1;
        self.closed.try_reserve(room - self.closed.len()).map_err(|_| ENOMEM)?;
        self.spare.try_reserve(SPARE - self.spare.len()).map_err(|_| ENOMEM)?;
        self.pages.push(0);
        self.fresh += 1;
        Ok(self.fresh - 1)
    }

    fn open(&mut self) -> Result<u64> {
        let pages = Pages::new((SIZE / PAGE) as usize)?;
        let slot = self.closed()?;
        if show(slot, Some(pages.physical())).is_err() {
            self.closed.push(slot);
            return Err(ENOMEM);
        }
        self.pages[slot as usize] = pages.into_raw();
        Ok(slot)
    }

    fn close(&mut self, slot: u64) {
        if show(slot, None).is_err() {
            // The host has no room for the change: the pages stay where they are.
            return self.spare.push(slot);
        }
        let physical = core::mem::take(&mut self.pages[slot as usize]);
        for at in (physical..physical + SIZE).step_by(PAGE_SIZE) {
            // SAFETY: `into_raw` gave one count of each page, which the slot alone held, and nothing shows them any more.
            drop(unsafe { Frame::from_raw(at) });
        }
        self.closed.push(slot);
    }
}

#[unsafe(no_mangle)]
fn unilith_plat_new_stack() -> Result<KernelStack> {
    let mut slots = STATE.lock();
    let slot = match slots.spare.pop() {
        Some(slot) => slot,
        None => slots.open()?,
    };
    Ok(KernelStack { top: top_of(slot), size: SIZE as usize })
}

#[unsafe(no_mangle)]
fn unilith_plat_free_stack(stack: &mut KernelStack) {
    let slot = (stack.top - STACKS) / SLOT - 1;
    let mut slots = STATE.lock();
    if slots.spare.len() >= SPARE {
        return slots.close(slot);
    }
    slots.spare.push(slot);
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
