// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Several virtual processors: threads of the host, of which one at a time is in the kernel.
//!
//! The kernel is written for one processor. So there is one lock around it ([`unilith_kernel_lock`]): who comes from the
//! program takes it before anything else, who leaves for the program or goes idle gives it back (`entry.s`, `idle.rs`). Only
//! a processor that holds it touches the kernel's data; what runs without it, on the ways in and out, in handlers of
//! signals and in the wait, touches its own block and atomics. With one processor nobody looks at the lock: one comparison
//! each way.
//!
//! The others are made when the machine starts, and sleep on that lock, which the first one holds without looking at it, until
//! the scheduler has a use for them ([`unilith_plat_admit`]).
//!
//! A processor is told of work by a word in its block and a signal ([`KICK`]), or, while it waits for nothing else, by
//! that word alone, which is a futex.
//!
//! Each host process ([`crate::host_processes`]) has a thread for every processor. Those of the first one are made by [`start`],
//! those of the others by the same code in [`make_threads`], before their host calls are filtered.

use crate::filter::{BARRIERS, FUTEXES, SHARED_FUTEXES};
use crate::host::{self, MAP_ANONYMOUS, MAP_NORESERVE, MAP_PRIVATE, PROT_READ, PROT_WRITE, TimeSpec};
use crate::{confine, host_processes, idle, signals, template};
use api_plat::upcall;
use core::arch::global_asm;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use plat_x86::cpu::{self, CPUS};

/// Not 0: several processors are in use, and whoever enters the kernel takes the lock. `entry.s` reads it.
#[unsafe(no_mangle)]
static unilith_several: AtomicU32 = AtomicU32::new(0);
static COUNT: AtomicU32 = AtomicU32::new(1);

#[inline]
pub fn several() -> bool {
    unilith_several.load(Ordering::Relaxed) != 0
}

/// The machine has more than one, in use or not.
pub fn has_others() -> bool {
    COUNT.load(Ordering::Relaxed) > 1
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
    let each_has_a_place = host_processes::is_enough_for_all();
    if each_has_a_place {
        idle::leave_to_all();
        unilith_several.store(1, Ordering::Relaxed);
    }
    each_has_a_place
}

/// The caller keeps the lock from here on.
#[unsafe(no_mangle)]
fn unilith_plat_dismiss() -> bool {
    let first_waits_for_descriptors = idle::leave_to_the_first();
    if first_waits_for_descriptors {
        unilith_several.store(0, Ordering::Relaxed);
    }
    first_waits_for_descriptors
}

/// Nobody holds the lock; somebody does; somebody does and others sleep until it is given back (U. Drepper, "Futexes Are
/// Tricky", 2011, section 6).
const FREE: u32 = 0;
const HELD: u32 = 1;
const WANTED: u32 = 2;
static LOCK: AtomicU32 = AtomicU32::new(FREE);
/// How often the lock is looked at before the host is asked to wait: most stays in the kernel are shorter than a sleep and
/// the wake-up behind it.
const LOOKS: u32 = 200;

/// Into the kernel, from the program or from the wait. A signal may come at any point of it.
#[unsafe(no_mangle)]
pub extern "C" fn unilith_kernel_lock() {
    let take = || LOCK.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok();
    if take() {
        return;
    }
    for _ in 0..LOOKS {
        if LOCK.load(Ordering::Relaxed) == FREE && take() {
            return;
        }
        core::hint::spin_loop();
    }
    while LOCK.swap(WANTED, Ordering::Acquire) != FREE {
        futex_wait(&LOCK, WANTED, None);
    }
}

/// Out of the kernel.
#[unsafe(no_mangle)]
pub extern "C" fn unilith_kernel_unlock() {
    if LOCK.swap(FREE, Ordering::Release) == WANTED {
        futex_wake(&LOCK);
    }
}

/// FUTEX_WAIT and FUTEX_WAKE, as far as processors may be in other host processes.
fn futexes() -> [u32; 2] {
    if template::is_there() { SHARED_FUTEXES } else { FUTEXES }
}

/// Sleeps while the word has the value, until it is woken, a signal comes or the time is over.
fn futex_wait(word: &AtomicU32, value: u32, limit: Option<TimeSpec>) {
    let limit = limit.as_ref().map_or(0, |limit| core::ptr::from_ref(limit) as u64);
    let arguments = [word.as_ptr() as u64, futexes()[0].into(), value.into(), limit, 0, 0];
    // SAFETY: the host reads the word and the time. Whoever calls looks at the word again, whatever the answer.
    let _ = unsafe { host::call(host::FUTEX, arguments) };
}

/// Wakes one that sleeps on the word.
fn futex_wake(word: &AtomicU32) {
    let arguments = [word.as_ptr() as u64, futexes()[1].into(), 1, 0, 0, 0];
    // SAFETY: touches no memory.
    let _ = unsafe { host::call(host::FUTEX, arguments) };
}

/// Sleeps until work is wanted of this processor, a signal comes, or the time is over.
pub fn sleep(limit: Option<TimeSpec>) {
    futex_wait(&CPUS[api_plat::cpu() as usize].work, 0, limit);
}

/// Asks the processor for work. What it is to find was stored before, by who holds the lock, and the processor clears the word
/// with the lock held.
///
/// A processor that was asked and has not taken the work yet gets no second signal. The host takes longer to put a signal's
/// frame on the alternate stack than another processor takes to send the next one, so that without this the frames pile up on
/// each other until that stack is full, and the host ends the machine.
#[unsafe(no_mangle)]
pub fn unilith_plat_kick(cpu: u32) {
    let index = cpu as usize;
    if CPUS[index].work.swap(1, Ordering::SeqCst) == 0 {
        wake(index);
    }
}

/// A processor whose word says that work is wanted looks at it.
pub fn wake(index: usize) {
    if idle::sleeps(index) { futex_wake(&CPUS[index].work) } else { host_processes::signal(index) }
}

#[unsafe(no_mangle)]
fn unilith_plat_barrier(code: bool) {
    if several() {
        // SAFETY: orders memory. Registered before, so that it does not fail.
        let _ = unsafe { host::call(host::MEMBARRIER, [BARRIERS[usize::from(code)].into(), 0, 0, 0, 0, 0]) };
    }
}

/// Where the stacks of the host's threads but the first are: for each an inaccessible part, the one it starts on, and that of
/// signals.
pub const STACKS: u64 = 0x7048_0000_0000;
/// From the first of one thread's to the first of the next one's, a power of two: `start.s` finds its processor by its stack.
pub const STACK_BYTES: u64 = 4 * PART;
const PART: u64 = 64 << 10;

/// The alternate stack of a thread but the first: start and bytes.
fn alternate_stack(index: usize) -> (u64, u64) {
    (STACKS + index as u64 * STACK_BYTES + 2 * PART, PART)
}

/// `CLONE_VM`, `CLONE_FS`, `CLONE_FILES`, `CLONE_SIGHAND`, `CLONE_THREAD`, `CLONE_SYSVSEM`.
const FLAGS: u64 = 0x100 | 0x200 | 0x400 | 0x800 | 0x1_0000 | 0x4_0000;

global_asm!(
    ".pushsection .text.unilith_clone,\"ax\",@progbits",
    // rdi = flags, rsi = stack, on which the new thread finds its argument, rax = number. It never comes back.
    ".globl unilith_clone",
    ".balign 16",
    "unilith_clone:",
    "    xor edx, edx",
    "    xor r10d, r10d",
    "    xor r8d, r8d",
    "    mov eax, {CLONE}",
    "    syscall",
    "    test rax, rax",
    "    jz 1f",
    "    ret",
    "1:  xor ebp, ebp",
    "    mov rdi, [rsp]",
    "    call {BEGIN}",
    "    ud2",
    ".popsection",
    CLONE = const host::CLONE,
    BEGIN = sym begin,
);

unsafe extern "C" {
    fn unilith_clone(flags: u64, stack: u64) -> i64;
}

/// Threads that are prepared, and one that the host refused something.
static READY: AtomicU32 = AtomicU32::new(0);
static REFUSED: AtomicBool = AtomicBool::new(false);

/// First code of a processor but the first, on the stack that the host gave it.
extern "C" fn begin(index: usize) -> ! {
    if prepare(index).is_err() {
        REFUSED.store(true, Ordering::Relaxed);
    }
    READY.fetch_add(1, Ordering::Release);
    futex_wake(&READY);
    if template::me() != 0 {
        // The kernel's variables are about to become the machine's.
        template::wait_for_turn(index);
    }
    // From here on it holds the lock until it has something to do.
    unilith_kernel_lock();
    upcall::unilith_kernel_cpu()
}

/// What every thread of the host has for itself.
fn prepare(index: usize) -> abi::Result<()> {
    const GETTID: u32 = 186;
    const ARCH_SET_GS: u64 = 0x1001;
    // SAFETY: GS base is the block of this processor, and nothing here used it before.
    unsafe { host::call(host::ARCH_PRCTL, [ARCH_SET_GS, cpu::block(index), 0, 0, 0, 0])? };
    // SAFETY: asks for a number.
    let thread = unsafe { host::call(GETTID, [0; 6])? };
    host_processes::note_thread(template::me(), index, thread as u32);
    let (start, bytes) = alternate_stack(index);
    signals::use_stack(start, bytes)?;
    confine::dispatch()
}

/// Starts the other processors, which wait until the kernel, whose lock is held for the caller from now on, lets them in. Before
/// the host's calls are filtered. The error is a sentence for the user.
pub fn start(count: u32) -> Result<(), &'static str> {
    if count > 1 {
        LOCK.store(HELD, Ordering::Relaxed);
        note(count);
        make_threads()?;
    }
    Ok(())
}

/// Notes how many there are, in the kernel's variables.
pub fn note(count: u32) {
    COUNT.store(count, Ordering::Relaxed);
}

/// Makes what this host process has for each processor but the first: a thread and its timer. The error is a sentence for the
/// user.
pub fn make_threads() -> Result<(), &'static str> {
    let count = COUNT.load(Ordering::Relaxed);
    let refused = "the host refuses threads: try --cpus 1";
    // The number of registering is twice that of the barrier.
    for barrier in BARRIERS {
        // SAFETY: registers for barriers.
        unsafe { host::call(host::MEMBARRIER, [u64::from(barrier) * 2, 0, 0, 0, 0, 0]) }
            .map_err(|_| "the host has no membarrier (CONFIG_MEMBARRIER): try --cpus 1")?;
    }
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    for index in 1..count as usize {
        let first = STACKS + index as u64 * STACK_BYTES + PART;
        // SAFETY: the place is this module's, and nothing is mapped there yet; the new thread has the stack for itself, and
        // begins with its number.
        let thread = unsafe {
            host::map(first, 2 * PART, PROT_READ | PROT_WRITE, flags, -1, 0).map_err(|_| refused)?;
            let top = first + PART - 16;
            (top as *mut u64).write(index as u64);
            unilith_clone(FLAGS, top)
        };
        if thread < 0 {
            return Err(refused);
        }
    }
    loop {
        let ready = READY.load(Ordering::Acquire);
        if ready == count - 1 {
            break;
        }
        futex_wait(&READY, ready, None);
    }
    for index in 1..count as usize {
        let thread = host_processes::thread(template::me(), index);
        idle::new_timer(index, thread).map_err(|_| "the host refuses timers: try --cpus 1")?;
    }
    if REFUSED.load(Ordering::Relaxed) { Err(refused) } else { Ok(()) }
}
