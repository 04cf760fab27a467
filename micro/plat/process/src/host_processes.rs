// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Host processes: each shows one address space of the program, and one of them runs at a time.
//!
//! A process of the host has one address space, and giving it other pages costs a call for each piece of memory. So a second
//! space gets a host process of its own, as a processor has tags for the spaces its TLB knows (PCID). All of them have the
//! same kernel: its text is the executable's, and everything it writes (variables, stacks, memory) is the memfd, mapped at
//! the same places. [`enter`] hands the processor over: extended registers and FS base are saved, the next process is woken
//! by a futex and takes over stack and registers, this one waits until it is wanted again. The wait uses no stack
//! (`host_processes.s`), because the stack it came on is the next process' by then.
//!
//! They are made by the template ([`crate::template`]) when they are first wanted, [`MOST`] at most, and live as long as the
//! machine. A space that none of them shows any more gets the one that was left longest ago, whose pages of the program are
//! unmapped first.
//!
//! What a host process has for itself: pages of the program; kernel stacks that it has touched (the first touch is a signal,
//! [`crate::stack::show_here`]); pages that stand for traced text; its alternate stack; its timer.

use crate::host::{self, TimeSpec};
use crate::{code, idle, memory, stack, template};
use api_lock::SpinLock;
use api_plat::{FpuState, USER_END};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use plat_x86::cpu::CPUS;
use plat_x86::features;

/// Most host processes, with the one that the machine was started as: number 0.
pub const MOST: usize = 32;

/// For each a futex: not 0 while it runs.
#[unsafe(no_mangle)]
static unilith_turns: [AtomicU32; MOST] = [const { AtomicU32::new(0) }; MOST];
/// For each: not 0 when it shows pages of a space that is gone. It unmaps them before it runs again, or while it waits.
#[unsafe(no_mangle)]
static unilith_soiled: [AtomicU32; MOST] = [const { AtomicU32::new(0) }; MOST];
/// The end of the machine, which is the end of process 0: [`ENDS`] and the exit code.
#[unsafe(no_mangle)]
static unilith_machine_end: AtomicU32 = AtomicU32::new(0);
const ENDS: u32 = 0x100;
/// The numbers that the host has for them.
static PIDS: [AtomicU32; MOST] = [const { AtomicU32::new(0) }; MOST];

struct Pool {
    /// For each process the space it shows; 0: none.
    spaces: [u64; MOST],
    /// When it was last entered: a count.
    entered: [u64; MOST],
    count: u64,
    /// How many there are.
    made: usize,
    /// There will be no more.
    is_full: bool,
    /// Extended registers on their way from one to the next.
    fpu: Option<FpuState>,
}

static POOL: SpinLock<Pool> = SpinLock::new(Pool {
    spaces: [0; MOST],
    entered: [0; MOST],
    count: 0,
    made: 1,
    is_full: false,
    fpu: None,
});

/// RSP of the kernel while it goes from one process to the next.
#[unsafe(no_mangle)]
static unilith_handed_stack: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" {
    /// Wakes process `to`, which goes on here; this one waits.
    fn unilith_hand_over(to: u64, from: u64);
}

/// The number of the host process that runs.
pub fn current() -> usize {
    CPUS[0].owner.load(Ordering::Relaxed) as usize
}

/// The numbers of process and thread `index`, as the host counts.
pub fn pid(index: usize) -> u32 {
    PIDS[index].load(Ordering::Relaxed)
}

/// Process `index` is `pid`.
pub fn note_pid(index: usize, pid: u32) {
    PIDS[index].store(pid, Ordering::Relaxed);
}

impl Pool {
    fn find(&self, space: u64) -> Option<usize> {
        self.spaces[..self.made].iter().position(|shown| *shown == space)
    }

    /// The process that is to show a space that none shows; `here` runs.
    fn choose(&mut self, here: usize) -> usize {
        if self.spaces[here] == 0 {
            return here;
        }
        if let Some(free) = self.find(0) {
            return free;
        }
        if !self.is_full && self.made < MOST {
            match template::request(self.made) {
                Ok(pid) => {
                    note_pid(self.made, pid);
                    self.made += 1;
                    return self.made - 1;
                }
                Err(_) => self.is_full = true,
            }
        }
        let oldest = (0..self.made).min_by_key(|index| self.entered[*index]).unwrap_or(here);
        unilith_soiled[oldest].store(1, Ordering::Relaxed);
        oldest
    }
}

/// Lets the processor go on in the host process that shows the space; its name is any number but 0. False where nothing of it
/// is shown any more, or yet.
#[unsafe(no_mangle)]
fn unilith_plat_enter_space(space: u64) -> bool {
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
    found.is_some()
}

/// The space is gone: what a host process shows of it is not to be seen again.
#[unsafe(no_mangle)]
fn unilith_plat_leave_space(space: u64) {
    let mut pool = POOL.lock();
    if let Some(index) = pool.find(space) {
        pool.spaces[index] = 0;
        pool.entered[index] = 0;
        unilith_soiled[index].store(1, Ordering::Relaxed);
    }
}

/// Pages below are never mapped.
pub const LOWEST: u64 = 1 << 16;

fn unmap_all() {
    memory::unmap(LOWEST, USER_END - LOWEST);
}

fn hand_over(pool: &mut Pool, to: usize, here: usize) {
    let fs_base = api_plat::fs_base();
    if let Some(state) = &mut pool.fpu {
        api_plat::save_fpu(state);
    }
    idle::leave(here);
    // Signals that hit `here` from now on are not the machine's, and what they were to tell is looked for on arrival.
    CPUS[0].owner.store(to as u32, Ordering::SeqCst);
    // SAFETY: `to` waits for its turn. It goes on behind this call, with the same stack.
    unsafe { unilith_hand_over(to as u64, here as u64) };
    if let Some(state) = &pool.fpu {
        api_plat::load_fpu(state);
    }
    features::set_fs_base(fs_base);
    stack::arrive();
    code::arrive(to);
    idle::arrive(to);
}

/// Before the first space: process 0 runs.
pub fn initialize() -> core::result::Result<(), &'static str> {
    let state = api_plat::new_fpu_state().map_err(|_| "no memory for extended registers")?;
    let mut pool = POOL.lock();
    pool.fpu = Some(state);
    pool.is_full = !template::is_there();
    // SAFETY: asks for a number.
    let pid =
        unsafe { host::call(host::GETPID, [0; 6]) }.map_err(|_| "the host has no number for the machine")?;
    note_pid(0, pid as u32);
    unilith_turns[0].store(1, Ordering::Relaxed);
    Ok(())
}

/// A signal of the host hit a process that does not run. What asks the machine for something is passed on to the one that
/// does; the rest is late.
#[unsafe(no_mangle)]
extern "C" fn unilith_process_foreign_signal(signal: u32) {
    use crate::signals::{KICK, SIGCHLD, SIGINT, SIGTERM, TIMER};
    match signal {
        TIMER | KICK => {}
        SIGINT | SIGTERM => {
            crate::console::stop();
            CPUS[0].work.store(1, Ordering::SeqCst);
            let pid = u64::from(pid(current()));
            // SAFETY: a signal that has a handler.
            let _ = unsafe { host::call(host::TGKILL, [pid, pid, KICK.into(), 0, 0, 0]) };
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
        unilith_turns[0].store(1, Ordering::SeqCst);
        // SAFETY: wakes process 0, which touches no memory of anybody.
        let _ = unsafe { host::call(host::FUTEX, [unilith_turns[0].as_ptr() as u64, 1, 1, 0, 0, 0]) };
        loop {
            let _ = host::poll(&mut [], Some(TimeSpec::of_ns(1_000_000_000)));
        }
    }
    loop {
        // SAFETY: nothing runs after it.
        let _ = unsafe { host::call(host::EXIT_GROUP, [code.into(), 0, 0, 0, 0, 0]) };
    }
}
