// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Host processes: each shows one address space of the program, and each processor runs one of them at a time.
//!
//! A process of the host has one address space, and giving it other pages costs a call for each piece of memory. So a second
//! space gets a host process of its own, as a processor has tags for the spaces its TLB knows (PCID). All of them have the
//! same kernel: its text is the executable's, and everything it writes (variables, stacks, memory) is the memfd, mapped at
//! the same places. [`enter`] hands the processor over: extended registers and FS base are saved, the next process is woken
//! by a futex and takes over stack and registers, this one waits until it is wanted again. The wait uses no stack
//! (`host_processes.s`), because the stack it came on is the next process' by then.
//!
//! They are made by the template ([`crate::template`]) when they are first wanted, [`MAX_HOST_PROCESSES`] at most, and live as long as the
//! machine. A space that none of them shows any more gets the one that was left longest ago, and unmaps what is shown there of
//! others and not its own.
//!
//! With several processors each host process has a thread for each of them, and each processor hands itself over alone: from
//! its thread in one process to its thread in the next. So two processors may be in one process, when threads of one program
//! run on both, or in different ones. All of this happens under the kernel's lock ([`crate::processors`]), which goes over with
//! the processor. A process that another processor is in is never given another space.
//!
//! What a host process has for itself: pages of the program; kernel stacks that it has touched (the first touch is a signal,
//! [`crate::stack::show_here`]); pages that stand for traced text; its alternate stack; its timer.

use crate::host::{self, TimeSpec};
use crate::{code, idle, memory, processors, stack, template};
use api_lock::SpinLock;
use api_plat::{FpuState, MAX_CPUS, USER_END};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use plat_x86::cpu::CPUS;
use plat_x86::features;

/// Most host processes, with the one that the machine was started as: number 0.
pub const MAX_HOST_PROCESSES: usize = api_plat::pages::MAX_PROCESSES;

/// For each of their threads a futex, by [`turn_of`]: [`RUNS`] or one of the others.
#[unsafe(no_mangle)]
static unilith_turns: [AtomicU32; MAX_HOST_PROCESSES * MAX_CPUS] =
    [const { AtomicU32::new(NOT_YET) }; MAX_HOST_PROCESSES * MAX_CPUS];
/// So many may be made only to find what they show again.
const FEW: usize = 4;
/// It is another thread's turn, and this one is on its way to sleep.
pub const NOT_YET: u32 = 0;
pub const RUNS: u32 = 1;
/// It is another thread's turn, and this one has to be woken.
#[cfg(all(not(test), panic = "abort"))]
pub const SLEEPS: u32 = 2;
/// For each: not 0 when all pages of the program that it shows are to go. They are unmapped before a space is shown there again;
/// with one processor it does that while it waits.
#[unsafe(no_mangle)]
static unilith_soiled: [AtomicU32; MAX_HOST_PROCESSES] = [const { AtomicU32::new(0) }; MAX_HOST_PROCESSES];
/// The end of the machine, which is the end of process 0: [`ENDS`] and the exit code.
#[unsafe(no_mangle)]
static unilith_machine_end: AtomicU32 = AtomicU32::new(0);
const ENDS: u32 = 0x100;
/// The numbers that the host has for their threads. The first one's is the process' as well.
static THREADS: [Threads; MAX_HOST_PROCESSES] =
    [const { [const { AtomicU32::new(0) }; MAX_CPUS] }; MAX_HOST_PROCESSES];
type Threads = [AtomicU32; MAX_CPUS];
/// The assembly takes the host process out of the number of a turn by a mask and a shift.
pub const MASK: usize = MAX_HOST_PROCESSES - 1;
pub const SHIFT: u32 = MAX_HOST_PROCESSES.ilog2();
const _: () = assert!(MAX_HOST_PROCESSES.is_power_of_two());

/// The number of the turn of a host process' thread for a processor.
pub fn turn_of(process: usize, cpu: usize) -> usize {
    cpu << SHIFT | process & MASK
}

struct Pool {
    /// For each process the space it shows; 0: none.
    spaces: [u64; MAX_HOST_PROCESSES],
    /// When it was last entered: a count.
    entered: [u64; MAX_HOST_PROCESSES],
    count: u64,
    /// How many there are.
    made: usize,
    /// There will be no more.
    is_full: bool,
    /// More than one space was there, or is about to be.
    has_several_spaces: bool,
    /// Extended registers of each processor on their way from one to the next.
    fpu: [Option<FpuState>; MAX_CPUS],
}

static POOL: SpinLock<Pool> = SpinLock::new(Pool {
    spaces: [0; MAX_HOST_PROCESSES],
    entered: [0; MAX_HOST_PROCESSES],
    count: 0,
    made: 1,
    is_full: false,
    has_several_spaces: false,
    fpu: [const { None }; MAX_CPUS],
});

/// RSP of the kernel while a processor goes from one process to the next.
#[unsafe(no_mangle)]
static unilith_handed_stacks: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];

unsafe extern "C" {
    /// Wakes the thread whose turn is `to`, which goes on here; this one waits.
    fn unilith_hand_over(to: u64, from: u64);
}

/// The number of the host process that the processor is in.
pub fn current() -> usize {
    of(api_plat::cpu() as usize)
}

fn of(cpu: usize) -> usize {
    CPUS[cpu].owner.load(Ordering::SeqCst) as usize
}

/// The host's number of the thread of process `index` for a processor.
pub fn thread(index: usize, cpu: usize) -> u32 {
    THREADS[index][cpu].load(Ordering::Relaxed)
}

pub fn note_thread(index: usize, cpu: usize, thread: u32) {
    THREADS[index][cpu].store(thread, Ordering::Relaxed);
}

/// A signal for what a processor runs, behind what it is to find.
pub fn signal(cpu: usize) {
    let process = of(cpu);
    let arguments =
        [thread(process, 0).into(), thread(process, cpu).into(), crate::signals::KICK.into(), 0, 0, 0];
    // SAFETY: a signal that has a handler. When the processor has gone to another process meanwhile, which it does in the kernel,
    // it looks for work on its way out.
    let _ = unsafe { host::call(host::TGKILL, arguments) };
}

impl Pool {
    fn find(&self, space: u64) -> Option<usize> {
        self.spaces[..self.made].iter().position(|shown| *shown == space)
    }

    /// A processor but the running one is in it.
    fn is_in_use(index: usize) -> bool {
        let here = api_plat::cpu();
        (0..api_plat::cpus()).any(|cpu| cpu != here && of(cpu as usize) == index)
    }

    /// Makes one more; false where there is none to be had.
    fn make(&mut self) -> bool {
        if !self.is_full && self.made < MAX_HOST_PROCESSES {
            match template::request(self.made) {
                Ok(threads) => {
                    for (cpu, thread) in threads.into_iter().enumerate() {
                        note_thread(self.made, cpu, thread);
                    }
                    self.made += 1;
                    return true;
                }
                Err(_) => self.is_full = true,
            }
        }
        false
    }

    /// There are as many as processors, made now where there are fewer.
    fn is_enough_for_all(&mut self) -> bool {
        let cpus = api_plat::cpus() as usize;
        while self.made < cpus && self.make() {}
        self.made >= cpus
    }

    /// The process for a space whose predecessor was shown `here`, before its program executed another one. The next space that is
    /// shown here will be a fork of the same program again, and finds what it needs; so this one goes where the program before it was.
    fn choose_after(&mut self, here: usize) -> usize {
        // The first process stays where debuggers look for it.
        if here == 0 {
            return here;
        }
        let free = (0..self.made).rev().find(|index| *index != here && self.spaces[*index] == 0);
        match free {
            Some(free) => free,
            None if self.made < FEW && self.make() => self.made - 1,
            None => here,
        }
    }

    /// The process that is to show a space that none shows; the processor is in `here`.
    fn choose(&mut self, here: usize) -> usize {
        if self.spaces[here] == 0 {
            return self.choose_after(here);
        }
        if let Some(free) = self.find(0) {
            return free;
        }
        if self.make() {
            return self.made - 1;
        }
        // There are at least as many as processors, or one for all.
        let left = (0..self.made).filter(|index| !Self::is_in_use(*index));
        left.min_by_key(|index| self.entered[*index]).unwrap_or(here)
    }
}

/// Lets the processor go on in the host process that shows the space; its name is any number but 0. False where nothing of it
/// is shown any more, or yet: what is shown there is another one's, or nothing.
#[unsafe(no_mangle)]
fn unilith_plat_enter_space(space: u64) -> (usize, bool) {
    let here = current();
    let mut pool = POOL.lock();
    let found = pool.find(space);
    let to = match found {
        Some(index) => index,
        None => pool.choose(here),
    };
    pool.spaces[to] = space;
    pool.count += 1;
    pool.entered[to] = pool.count;
    if to != here {
        hand_over(&mut pool, to, here);
    }
    if unilith_soiled[to].swap(0, Ordering::Relaxed) != 0 {
        unmap_all();
    }
    (to, found.is_some())
}

/// The space is gone, and its host process is free for another one.
#[unsafe(no_mangle)]
fn unilith_plat_leave_space(space: u64) -> Option<usize> {
    let mut pool = POOL.lock();
    let index = pool.find(space)?;
    pool.spaces[index] = 0;
    pool.entered[index] = 0;
    Some(index)
}

#[unsafe(no_mangle)]
fn unilith_plat_unmap_all_in(process: usize) {
    unilith_soiled[process].store(1, Ordering::Relaxed);
}

/// Several spaces will be shown; each processor that is in use finds a host process, whatever the others are in.
#[unsafe(no_mangle)]
fn unilith_plat_expect_several_spaces() -> bool {
    let mut pool = POOL.lock();
    pool.has_several_spaces = true;
    !processors::several() || pool.is_enough_for_all()
}

/// Each processor finds a host process for the space that it goes to, were they all in use.
pub fn is_enough_for_all() -> bool {
    let mut pool = POOL.lock();
    !pool.has_several_spaces || pool.is_enough_for_all()
}

/// Takes pages away from a space that another processor is in: this one goes there, and back.
#[unsafe(no_mangle)]
fn unilith_plat_unmap_in_space(space: u64, address: u64, length: u64) -> Option<(usize, bool)> {
    let here = current();
    let mut pool = POOL.lock();
    let there = pool.find(space)?;
    if there != here {
        hand_over(&mut pool, there, here);
    }
    let is_exact = memory::unmap(address, length);
    if there != here {
        hand_over(&mut pool, here, there);
    }
    Some((there, is_exact))
}

/// Which host processes a processor has been in since their page tables last lost the kernel's view of the archive.
static SAW_ARCHIVE: [AtomicBool; MAX_HOST_PROCESSES] = [const { AtomicBool::new(false) }; MAX_HOST_PROCESSES];

/// Takes the view of the archive from the page tables of every host process: the processor goes to those that have it. Kernel context,
/// and the machine has nothing better to do.
pub fn forget_archive() {
    let here = current();
    let mut pool = POOL.lock();
    for (there, saw) in SAW_ARCHIVE.iter().enumerate() {
        if there != here && saw.load(Ordering::Relaxed) && !Pool::is_in_use(there) {
            hand_over(&mut pool, there, here);
            memory::forget_archive();
            hand_over(&mut pool, here, there);
            saw.store(false, Ordering::Relaxed);
        }
    }
    memory::forget_archive();
}

/// Pages below are never mapped.
pub const LOWEST: u64 = 1 << 16;

fn unmap_all() {
    memory::unmap(LOWEST, USER_END - LOWEST);
}

fn hand_over(pool: &mut Pool, to: usize, here: usize) {
    let (fs_base, cpu) = (api_plat::fs_base(), api_plat::cpu() as usize);
    if let Some(state) = &mut pool.fpu[cpu] {
        api_plat::save_fpu(state);
    }
    // Signals that hit `here` from now on are not the processor's, and what they were to tell is looked for on arrival.
    CPUS[cpu].owner.store(to as u32, Ordering::SeqCst);
    // SAFETY: the processor's thread in `to` waits for its turn. It goes on behind this call, with the same stack.
    unsafe { unilith_hand_over(turn_of(to, cpu) as u64, turn_of(here, cpu) as u64) };
    if let Some(state) = &pool.fpu[cpu] {
        api_plat::load_fpu(state);
    }
    features::set_fs_base(fs_base);
    SAW_ARCHIVE[to].store(true, Ordering::Relaxed);
    stack::arrive();
    code::arrive(to);
    idle::arrive();
}

/// Before the first space: so many processors are in process 0.
pub fn initialize(cpus: u32) -> core::result::Result<(), &'static str> {
    let mut pool = POOL.lock();
    SAW_ARCHIVE[0].store(true, Ordering::Relaxed);
    for cpu in 0..cpus as usize {
        let state = api_plat::new_fpu_state().map_err(|_| "no memory for extended registers")?;
        pool.fpu[cpu] = Some(state);
        unilith_turns[turn_of(0, cpu)].store(RUNS, Ordering::Relaxed);
    }
    pool.is_full = !template::is_there();
    // SAFETY: asks for a number.
    let pid =
        unsafe { host::call(host::GETPID, [0; 6]) }.map_err(|_| "the host has no number for the machine")?;
    note_thread(0, 0, pid as u32);
    Ok(())
}

/// A signal of the host hit a process that its processor is not in. What asks the machine for something is passed on; the rest
/// is late.
#[unsafe(no_mangle)]
extern "C" fn unilith_process_foreign_signal(signal: u32) {
    use crate::signals::{KICK, SIGCHLD, SIGINT, SIGTERM, TIMER};
    match signal {
        TIMER => idle::expired_away(template::me()),
        KICK => {}
        SIGINT | SIGTERM => {
            crate::console::stop();
            let cpu = api_plat::cpu() as usize;
            CPUS[cpu].work.store(1, Ordering::SeqCst);
            processors::wake(cpu);
        }
        SIGCHLD => lost(),
        // Waiting raises no exception: somebody changed what it stands on.
        _ => host::exit(1),
    }
}

/// One of the host processes ended, which only the host or somebody on it does.
pub fn lost() -> ! {
    plat_x86::crash::fail("a process of the machine was ended by the host: was it short of memory?")
}

/// Ends the machine: process 0 ends, and with it the namespace of all others.
pub fn end(code: u8) -> ! {
    if template::me() != 0 {
        unilith_machine_end.store(ENDS | u32::from(code), Ordering::SeqCst);
        let turn = &unilith_turns[turn_of(0, api_plat::cpu() as usize)];
        turn.store(RUNS, Ordering::SeqCst);
        // SAFETY: wakes this processor's thread of process 0, which touches no memory of anybody.
        let _ = unsafe { host::call(host::FUTEX, [turn.as_ptr() as u64, 1, 1, 0, 0, 0]) };
        loop {
            let _ = host::poll(&mut [], Some(TimeSpec::of_ns(1_000_000_000)));
        }
    }
    loop {
        // SAFETY: nothing runs after it.
        let _ = unsafe { host::call(host::EXIT_GROUP, [code.into(), 0, 0, 0, 0, 0]) };
    }
}
