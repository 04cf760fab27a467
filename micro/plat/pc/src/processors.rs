// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Several processors, of which one at a time is in the kernel.
//!
//! The kernel is written for one processor. So there is one lock around it ([`unilith_kernel_lock`]): who comes from the program
//! takes it before anything else, who leaves for the program or goes idle gives it back (`entry.s`, `cpu.rs`). What runs without
//! it, on the ways in and out, in handlers of interrupts and in the wait, touches the processor's own block and atomics. With
//! one processor nobody looks at the lock: the ways into the kernel and out of it lead around it until [`start`] changes two pointers.
//!
//! The other processors are started with the kernel, wait for the lock, and sleep while they wait. Devices interrupt the boot
//! processor.

use crate::apic::{self, FORGET, KICK, Message};
use crate::gate::{FREE, Gate, HELD};
use crate::pvh::{START_BYTES, START_PAGE};
use crate::round::Round;
use crate::topology::{self, Identities};
use crate::{asm, cpu, descriptors, interrupt, memory_types, paging, physical_to_virtual};
use alloc::vec::Vec;
use api_plat::{KernelStack, MAX_CPUS};
use core::mem::ManuallyDrop;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use plat_x86::cpu::CPUS;
use plat_x86::rdtsc;

/// Not 0: several processors are in use, and whoever enters the kernel takes the lock. `entry.s` reads it.
#[unsafe(no_mangle)]
static unilith_several: AtomicU32 = AtomicU32::new(0);
static COUNT: AtomicU32 = AtomicU32::new(1);
/// Of the local APICs.
static IDENTITIES: [AtomicU32; MAX_CPUS] = [const { AtomicU32::new(0) }; MAX_CPUS];

#[inline]
pub fn several() -> bool {
    unilith_several.load(Ordering::Relaxed) != 0
}

#[unsafe(no_mangle)]
fn unilith_plat_cpus() -> u32 {
    COUNT.load(Ordering::Relaxed)
}

#[unsafe(no_mangle)]
fn unilith_plat_several() -> bool {
    several()
}

/// The lock is held already, for the first processor; from here on it is given back.
#[unsafe(no_mangle)]
fn unilith_plat_admit() -> bool {
    unilith_several.store(1, Ordering::Relaxed);
    asm::lead_through_lock();
    true
}

/// Those that were dismissed since they went idle, a bit each. Nobody tells them of translations that are gone meanwhile.
static UNTOLD: AtomicU32 = AtomicU32::new(0);

/// The caller keeps the lock from here on.
#[unsafe(no_mangle)]
fn unilith_plat_dismiss() -> bool {
    UNTOLD.store(others(), Ordering::Relaxed);
    asm::lead_around_lock();
    unilith_several.store(0, Ordering::Relaxed);
    true
}

/// Back from where it was idle, with the lock.
pub fn come_back() {
    let bit = 1 << api_plat::cpu();
    if UNTOLD.load(Ordering::Relaxed) & bit != 0 {
        UNTOLD.fetch_and(!bit, Ordering::Relaxed);
        paging::forget_all();
    }
}

fn send(index: u32, message: Message) {
    apic::send(IDENTITIES[index as usize].load(Ordering::Relaxed), message);
}

static LOCK: Gate = Gate { word: AtomicU32::new(FREE), sleepers: AtomicU32::new(0), last: AtomicU32::new(0) };

/// How long the lock is looked at before the processor sleeps, in ticks: longer than most stays in the kernel, and about as
/// long as a hypervisor takes to wake a processor.
const PATIENCE: u64 = 1 << 16;

/// Into the kernel, from the program or from the wait. Interrupts are on.
#[unsafe(no_mangle)]
pub extern "C" fn unilith_kernel_lock() {
    if !LOCK.try_enter() {
        wait_for_lock();
    }
}

#[cold]
fn wait_for_lock() {
    let this = api_plat::cpu();
    loop {
        let begin = rdtsc();
        while rdtsc().wrapping_sub(begin) < PATIENCE {
            if LOCK.is_free() && LOCK.try_enter() {
                return;
            }
            core::hint::spin_loop();
        }
        // SAFETY: with interrupts off no message is lost between the look at the lock and HLT; STI takes effect after the
        // instruction behind it.
        unsafe {
            core::arch::asm!("cli", options(nostack));
            if LOCK.announce(this) {
                core::arch::asm!("sti", "hlt", options(nostack));
            } else {
                core::arch::asm!("sti", options(nostack));
            }
        }
        LOCK.withdraw(this);
    }
}

/// Out of the kernel.
#[unsafe(no_mangle)]
pub extern "C" fn unilith_kernel_unlock() {
    if let Some(sleeper) = LOCK.leave() {
        wake(sleeper);
    }
}

/// The processor holds the lock no more, and may be interrupted between the two halves of a command: by nothing that sends one.
#[cold]
fn wake(sleeper: u32) {
    send(sleeper, Message::Vector(KICK as u8));
}

/// Asks the processor for work. What it is to find was stored before, by who holds the lock.
#[unsafe(no_mangle)]
fn unilith_plat_kick(cpu: u32) {
    CPUS[cpu as usize].work.store(1, Ordering::SeqCst);
    if cpu != api_plat::cpu() {
        send(cpu, Message::Vector(KICK as u8));
    }
}

/// The interrupt itself is the message.
fn kicked(_: usize) {}

static ROUND: Round = Round { pending: AtomicU32::new(0), start: AtomicU64::new(0), end: AtomicU64::new(0) };

/// From this many pages on a full flush is cheaper than one by one (Linux' tlb_single_page_flush_ceiling).
const FORGET_ALL: u64 = 33;

/// Another processor, which holds the kernel's lock, waits for this one.
fn asked(_: usize) {
    let this = api_plat::cpu();
    if let Some((start, end)) = ROUND.asked(this) {
        if (end - start) / 4096 >= FORGET_ALL && end < api_plat::USER_END {
            // SAFETY: loads the root that is in use already.
            unsafe {
                core::arch::asm!("mov {0}, cr3", "mov cr3, {0}", out(reg) _, options(nostack, preserves_flags));
            }
        } else {
            (start..end).step_by(4096).for_each(paging::forget);
        }
        ROUND.done(this);
    }
}

/// The processors forget translations of `start..end`, and go on behind an instruction that serializes them (IRET). Comes back when
/// all have. They answer from anywhere: no part of the kernel has interrupts off for long.
#[unsafe(no_mangle)]
fn unilith_plat_forget_on(processors: u32, start: u64, end: u64) {
    if processors == 0 {
        return;
    }
    ROUND.ask(processors, start, end);
    for index in (0..MAX_CPUS as u32).filter(|index| processors & 1 << index != 0) {
        send(index, Message::Vector(FORGET as u8));
    }
    while !ROUND.is_over() {
        core::hint::spin_loop();
    }
}

fn others() -> u32 {
    ((1 << COUNT.load(Ordering::Relaxed)) - 1) & !(1 << api_plat::cpu())
}

/// All other processors forget translations of the kernel's own memory.
pub fn forget_everywhere(start: u64, end: u64) {
    if several() {
        unilith_plat_forget_on(others(), start, end);
    }
}

#[unsafe(no_mangle)]
fn unilith_plat_barrier(_code: bool) {
    forget_everywhere(0, 0);
}

#[unsafe(no_mangle)]
fn unilith_machine_stop_others() -> u32 {
    if !several() {
        return 0;
    }
    let others = others();
    for index in (0..MAX_CPUS as u32).filter(|index| others & 1 << index != 0) {
        // Its handler finds that this one reports.
        send(index, Message::NonMaskable);
    }
    others
}

/// What a processor but the first is started with: read by `boot.s`.
#[repr(C)]
struct Start {
    root: u64,
    stack: u64,
    entry: u64,
    /// The number of the attempt in the upper half, that of the processor in the lower one.
    attempt: u64,
}

/// The attempt by which the last processor came up. It shows its time-stamp counter then until it is told whether it is used.
static ARRIVED: AtomicU32 = AtomicU32::new(0);
static IS_ASKED: AtomicBool = AtomicBool::new(false);
static OTHER_COUNTER: AtomicU64 = AtomicU64::new(0);
static VERDICT: AtomicU32 = AtomicU32::new(0);
const USED: u32 = 1;
const UNUSED: u32 = 2;
static RUN: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Starts the other processors of `wanted`, which run `run` once the kernel, whose lock is held for the caller from now on, lets them in.
/// Their number is final then; a processor that cannot be used is told of and left out. In the boot processor's first code, with
/// the heap.
pub fn start(wanted: u32, run: fn() -> !) {
    if wanted < 2 {
        return;
    }
    let found = match topology::find(&paging::Mapped, crate::boot::acpi_root()) {
        Ok(found) => found,
        Err(reason) => return log::error!("{reason}: one processor is used"),
    };
    let others = usable(&found, wanted);
    if others.is_empty() {
        return;
    }
    if !crate::boot::has_start_pages() {
        return log::error!("there is no memory at {START_PAGE:#x}, where processors start: one is used");
    }
    for (vector, handler) in [(KICK, kicked as interrupt::Handler), (FORGET, asked)] {
        interrupt::set(vector, handler);
    }
    memory_types::note();
    RUN.store(run as *mut (), Ordering::Relaxed);
    IDENTITIES[0].store(apic::identity(), Ordering::Relaxed);
    LOCK.word.store(HELD, Ordering::Relaxed);
    let kept = prepare_start();
    let mut count = 1;
    for (attempt, id) in (1..).zip(&others) {
        match start_one(count, attempt, *id) {
            Ok(()) => count += 1,
            Err(reason) => log::error!("the processor with APIC number {id} is not used: {reason}"),
        }
    }
    // SAFETY: the pages are memory that nobody uses now but for what was there before.
    unsafe { physical_to_virtual::<u8>(START_PAGE).copy_from_nonoverlapping(kept.as_ptr(), START_BYTES) };
    COUNT.store(count, Ordering::Relaxed);
}

/// Those of the others that can be named, as many as are wanted.
fn usable(found: &Identities, wanted: u32) -> Vec<u32> {
    let this = apic::identity();
    let all = || found.as_slice().iter().copied().filter(|id| *id != this);
    let mut others: Vec<u32> = all().filter(|id| apic::can_name(*id)).collect();
    let unnamed = all().count() - others.len();
    if unnamed > 0 {
        log::error!("{unnamed} processors have numbers above 254, which their APICs cannot name: not used");
    }
    others.truncate(wanted as usize - 1);
    let count = others.len() + 1;
    if count < wanted as usize {
        log::warn!("this machine has {count} of the {wanted} processors that were asked for");
    }
    others
}

/// Puts the code there; answers what was there.
fn prepare_start() -> Vec<u8> {
    let code = asm::start_code();
    let pages: *mut u8 = physical_to_virtual(START_PAGE);
    // SAFETY: two pages of memory, and what is there is put back; the root gets the kernel's upper half, and as its first entry
    // the tables of the physical map, so that the code finds itself where it is.
    unsafe {
        let kept = core::slice::from_raw_parts(pages, START_BYTES).to_vec();
        pages.copy_from_nonoverlapping(code.as_ptr(), code.len());
        let root = pages.add(4096).cast::<u64>();
        root.write_bytes(0, 256);
        let kernel: *const u64 = physical_to_virtual(paging::kernel_table());
        root.add(256).copy_from_nonoverlapping(kernel.add(256), 256);
        root.write(paging::image_physical(asm::unilith_pdpt_physical.address()) | 3);
        kept
    }
}

/// Ticks: seconds on any processor, and more than a busy host takes for the first instruction.
const HANG: u64 = 1 << 35;
/// The second message is sent where the first one was lost (Intel SDM volume 3, 9.4.4.1 sends both in any case).
const AGAIN: u64 = 1 << 20;

/// Starts the processor of this identity as number `index`. `attempt` tells its arrival from that of an earlier one that was late.
/// The error says why it is not used; it stands still then.
fn start_one(index: u32, attempt: u32, id: u32) -> Result<(), &'static str> {
    IDENTITIES[index as usize].store(id, Ordering::Relaxed);
    let stack = || KernelStack::new().map_err(|_| "there is no memory for its stacks");
    let stacks = [stack()?, stack()?, stack()?, stack()?];
    let [boot, interrupt, exception, fatal] = stacks.map(|stack| ManuallyDrop::new(stack).top());
    descriptors::prepare(index as usize, [interrupt, exception, fatal]);
    let start = Start {
        root: paging::kernel_table(),
        stack: boot,
        entry: asm::unilith_processor_start.address(),
        attempt: u64::from(attempt) << 32 | u64::from(index),
    };
    // SAFETY: the place is the code's, behind its instructions.
    unsafe { physical_to_virtual::<Start>(START_PAGE + asm::start_words()).write_unaligned(start) };
    let begin = Message::Start((START_PAGE >> 12) as u8);
    send(index, Message::Reset);
    send(index, begin);
    if !arrives(attempt, AGAIN) {
        send(index, begin);
        if !arrives(attempt, HANG) {
            send(index, Message::Reset);
            return Err("it does not start");
        }
    }
    let agrees = counters_agree();
    VERDICT.store(if agrees { USED } else { UNUSED }, Ordering::Release);
    agrees.then_some(()).ok_or("its time-stamp counter differs from that of the first processor")
}

fn arrives(attempt: u32, limit: u64) -> bool {
    let begin = rdtsc();
    while rdtsc().wrapping_sub(begin) < limit {
        if ARRIVED.load(Ordering::Acquire) == attempt {
            return true;
        }
        core::hint::spin_loop();
    }
    false
}

/// If the counters of two processors agree, a value of the second one lies between two of the first one.
fn counters_agree() -> bool {
    const ROUNDS: u32 = 8;
    (0..ROUNDS).all(|_| {
        let before = rdtsc();
        IS_ASKED.store(true, Ordering::Release);
        let other = loop {
            match OTHER_COUNTER.swap(0, Ordering::AcqRel) {
                0 => core::hint::spin_loop(),
                other => break other,
            }
        };
        (before..=rdtsc()).contains(&other)
    })
}

/// The other processor's part of it; true when it is to be used.
fn shows_counter() -> bool {
    loop {
        if IS_ASKED.swap(false, Ordering::AcqRel) {
            OTHER_COUNTER.store(rdtsc().max(1), Ordering::Release);
        }
        match VERDICT.swap(0, Ordering::AcqRel) {
            0 => core::hint::spin_loop(),
            verdict => return verdict == USED,
        }
    }
}

/// Called by `boot.s` on the processor's boot stack, interrupts off.
#[unsafe(no_mangle)]
extern "C" fn unilith_pc_processor(attempt: u64) -> ! {
    let index = attempt as u32 as usize;
    cpu::initialize_other(index);
    memory_types::follow();
    apic::initialize_other(index);
    descriptors::load(index);
    ARRIVED.store((attempt >> 32) as u32, Ordering::Release);
    if !shows_counter() {
        loop {
            // SAFETY: the kernel does without this processor, whose interrupts are off.
            unsafe { core::arch::asm!("hlt", options(nostack)) };
        }
    }
    // SAFETY: the tables for interrupts are there.
    unsafe { core::arch::asm!("sti", options(nostack)) };
    unilith_kernel_lock();
    // What was mapped anew since it started, the others did not tell it of.
    paging::forget_all();
    // SAFETY: only `start` stores there, and it stores a `fn() -> !`.
    let run: fn() -> ! = unsafe { core::mem::transmute(RUN.load(Ordering::Relaxed)) };
    run()
}
