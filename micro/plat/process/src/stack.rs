// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Kernel stacks: slots of 64 KiB in an area of one GiB, of which the upper half shows pages of the machine's memory while
//! the slot is open. The lower half is the guard: an overflow faults instead of writing to what lies below.

use crate::filter::{STACK_BYTES, STACKS};
use crate::host::{self, MAP_NORESERVE, MAP_SHARED, PROT_READ, PROT_WRITE};
use crate::{host_processes, memory};
use abi::{PAGE_SIZE, Result, errno::EAGAIN, errno::ENOMEM};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_lock::SpinLock;
use api_mem::{PageFrame, Pages};
use api_plat::KernelStack;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const PAGE: u64 = PAGE_SIZE as u64;
/// Bytes from [`STACKS`] on.
const AREA: u64 = 1 << 30;
const SLOT: u64 = 64 << 10;
/// Usable bytes of a stack.
const SIZE: u64 = STACK_BYTES;
const SLOTS: u64 = AREA / SLOT;
/// Freed stacks that stay open in any case, for the next threads.
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
}

static STATE: SpinLock<Slots> = SpinLock::new(Slots { fresh: 0, spare: Vec::new(), closed: Vec::new() });

/// For those who may not wait for the lock: the number of the first page of each slot, 0 for those that are closed; the host
/// processes that show it, a bit each; and how often that changed.
static PAGES: [AtomicU32; SLOTS as usize] = [const { AtomicU32::new(0) }; SLOTS as usize];
static SHOWN: [AtomicU32; SLOTS as usize] = [const { AtomicU32::new(0) }; SLOTS as usize];
/// `Slots::fresh`.
static FRESH: AtomicU64 = AtomicU64::new(0);
static CHANGES: AtomicU64 = AtomicU64::new(0);
const _: () = assert!(host_processes::MAX_HOST_PROCESSES <= u32::BITS as usize);

/// The bit of the host process that runs.
fn here() -> u32 {
    1 << host_processes::current()
}

fn is_open(slot: u64) -> bool {
    PAGES[slot as usize].load(Ordering::Relaxed) != 0
}

/// An open slot that the host process that runs had not touched before is shown there too; false where there is another
/// reason for the fault at the address. Interrupt context.
pub fn show_here(address: u64) -> bool {
    if !(STACKS..STACKS + AREA).contains(&address) || (address - STACKS) % SLOT < SLOT - SIZE {
        return false;
    }
    let slot = (address - STACKS) / SLOT;
    let page = PAGES[slot as usize].load(Ordering::Relaxed);
    let is_new = page != 0 && SHOWN[slot as usize].load(Ordering::Relaxed) & here() == 0;
    is_new && show(slot, Some(u64::from(page) * PAGE)).is_ok()
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

/// How many stacks were closed while other host processes showed them, and how many of those each has looked for.
static CLOSED: AtomicU64 = AtomicU64::new(0);
static LOOKED_FOR: [AtomicU64; host_processes::MAX_HOST_PROCESSES] =
    [const { AtomicU64::new(0) }; host_processes::MAX_HOST_PROCESSES];

/// The host process runs from here on: it no longer shows stacks that were closed meanwhile.
pub fn arrive() {
    let (closed, looked_for) = (CLOSED.load(Ordering::Relaxed), &LOOKED_FOR[host_processes::current()]);
    if looked_for.load(Ordering::Relaxed) == closed {
        return;
    }
    for slot in 0..FRESH.load(Ordering::Relaxed) {
        if !is_open(slot)
            && SHOWN[slot as usize].load(Ordering::Relaxed) & here() != 0
            && show(slot, None).is_err()
        {
            crate::domain::refused();
        }
    }
    looked_for.store(closed, Ordering::Relaxed);
}

/// Shows all stacks that are open in the host process that runs: an overlay program may read them, but its faults are its own.
pub fn show_all_here() {
    for slot in 0..FRESH.load(Ordering::Relaxed) {
        show_here(top_of(slot) - SIZE);
    }
}

/// How often a stack was shown or closed.
pub fn changes() -> u64 {
    CHANGES.load(Ordering::Relaxed)
}

/// The pages of all stacks that this host process shows.
pub fn each_open(each: &mut dyn FnMut(Range<u64>)) {
    let boot = BOOT_TOP.load(Ordering::Relaxed);
    each((boot - BOOT) & !(PAGE - 1)..boot.next_multiple_of(PAGE));
    for slot in 0..FRESH.load(Ordering::Relaxed) {
        if SHOWN[slot as usize].load(Ordering::Relaxed) & here() != 0 {
            each(top_of(slot) - SIZE..top_of(slot));
        }
    }
}

/// The stack begins at `top` on which the kernel was started.
pub fn initialize(top: u64) {
    BOOT_TOP.store(top, Ordering::Relaxed);
}

/// Reserves the area, whose pages are the memfd's like all memory.
pub fn reserve(file: i32) -> Result<()> {
    // SAFETY: the place is this module's, and nothing is mapped there yet.
    unsafe { host::map(STACKS, AREA, 0, MAP_SHARED | MAP_NORESERVE, file, 0) }
}

/// Shows memory in the upper half of a slot, or makes that inaccessible.
fn show(slot: u64, physical: Option<u64>) -> Result<()> {
    let rights = physical.map_or(0, |_| PROT_READ | PROT_WRITE);
    let (start, file) = (top_of(slot) - SIZE, memory::descriptors()[0]);
    // SAFETY: the slot is not in use, or shows nothing in this host process.
    unsafe { host::map(start, SIZE, rights, MAP_SHARED | MAP_NORESERVE, file, physical.unwrap_or(0)) }?;
    match physical {
        Some(_) => SHOWN[slot as usize].fetch_or(here(), Ordering::Relaxed),
        None => SHOWN[slot as usize].fetch_and(!here(), Ordering::Relaxed),
    };
    CHANGES.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

impl Slots {
    /// A slot that is closed.
    fn closed(&mut self) -> Result<u64> {
        // Not one of which a host process still shows pages that it had before.
        let is_nowhere = |slot: &u64| SHOWN[*slot as usize].load(Ordering::Relaxed) == 0;
        if let Some(index) = self.closed.iter().rposition(is_nowhere) {
            return Ok(self.closed.swap_remove(index));
        }
        if self.fresh == SLOTS {
            return Err(EAGAIN);
        }
        // Each slot is in one of these lists at most: returning one never needs memory.
        let room = self.fresh as usize + 1;
        self.closed.reserve_fallibly(room - self.closed.len()).map_err(|_| ENOMEM)?;
        self.spare.reserve_fallibly(room - self.spare.len()).map_err(|_| ENOMEM)?;
        self.fresh += 1;
        FRESH.store(self.fresh, Ordering::Relaxed);
        Ok(self.fresh - 1)
    }

    fn open(&mut self) -> Result<u64> {
        let pages = Pages::new((SIZE / PAGE) as usize)?;
        let slot = self.closed()?;
        if show(slot, Some(pages.physical())).is_err() {
            self.closed.push(slot);
            return Err(ENOMEM);
        }
        PAGES[slot as usize].store((pages.into_raw() / PAGE) as u32, Ordering::Relaxed);
        Ok(slot)
    }

    fn close(&mut self, slot: u64) {
        if show(slot, None).is_err() {
            // The host has no room for the change: the pages stay the slot's, for the next thread.
            return self.spare.push(slot);
        }
        if SHOWN[slot as usize].load(Ordering::Relaxed) != 0 {
            // Other host processes show the pages until they run again, and do nothing before they have taken them away.
            CLOSED.fetch_add(1, Ordering::Relaxed);
        }
        let physical = u64::from(PAGES[slot as usize].swap(0, Ordering::Relaxed)) * PAGE;
        for at in (physical..physical + SIZE).step_by(PAGE_SIZE) {
            // SAFETY: `into_raw` gave one count of each page, which the slot alone held, and nothing shows them any more.
            drop(unsafe { PageFrame::from_raw(at) });
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
    // SAFETY: the slot was free, is marked as taken and mapped now, and `free_stack` gives it back.
    Ok(unsafe { KernelStack::from_raw(top_of(slot), SIZE as usize) })
}

#[unsafe(no_mangle)]
fn unilith_plat_free_stack(stack: &mut KernelStack) {
    let slot = (stack.top() - STACKS) / SLOT - 1;
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
