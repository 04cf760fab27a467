// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One thread.

use abi::{Events, Result};
use alloc::boxed::Box;
use alloc::sync::Arc;
use api_plat::{Context, FpuState, KernelStack, TrapFrame};
use api_sched::Waiter;
use api_sched::policy::{Rank, ThreadIndex};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// On the processor or in a run queue.
pub(crate) const RUNNABLE: u8 = 0;
/// Off the processor until woken.
pub(crate) const PARKED: u8 = 1;
/// Never runs again.
pub(crate) const DEAD: u8 = 2;

/// Of a thread that is on no processor.
pub(crate) const NOWHERE: u32 = u32::MAX;

/// What a new thread runs first.
pub enum Start {
    /// Kernel code; the thread ends when it returns.
    Kernel(fn()),
    /// The program, with these registers.
    Program(Box<TrapFrame>),
}

/// A thread of the kernel; a program thread is one whose [`Start`] enters the program.
pub struct Thread {
    /// Place in the table of threads.
    pub index: ThreadIndex,
    pub(crate) state: AtomicU8,
    /// A wake-up came while the thread was running.
    pub(crate) token: AtomicBool,
    pub(crate) context: UnsafeCell<Context>,
    pub(crate) stack: KernelStack,
    pub(crate) fpu: UnsafeCell<Option<FpuState>>,
    /// While the thread is off the processor.
    pub(crate) fs_base: AtomicU64,
    pub(crate) start: UnsafeCell<Option<Start>>,
    local: AtomicPtr<()>,
    /// Processor time up to when it last left the processor, in nanoseconds.
    pub(crate) used_ns: AtomicU64,
    slice_limit: AtomicU64,
    /// A [`Rank`], packed.
    rank: AtomicU32,
    /// The processor it is on, or [`NOWHERE`].
    pub(crate) on: AtomicU32,
    /// The processor it was on last.
    pub(crate) last: AtomicU32,
    /// Where it may run, a bit for each processor.
    cpus: AtomicU64,
    /// Its processor time when it was woken last.
    pub(crate) woken_ns: AtomicU64,
    /// How often it left the processor to wait, and because another one was to run.
    pub(crate) switches: [AtomicU64; 2],
    pub(crate) is_program: bool,
}

// SAFETY: `context`, `fpu` and `start` are touched by the thread itself while it runs, or by the scheduler while it is
// off the processor; never by both, because switching is what passes them on.
unsafe impl Sync for Thread {}
// SAFETY: nothing in a thread is tied to the processor that made it.
unsafe impl Send for Thread {}

impl Thread {
    /// `with_fpu`: it will run program code and so has extended state of its own.
    pub(crate) fn new(index: ThreadIndex, with_fpu: bool, start: Start) -> Result<Arc<Thread>> {
        let fpu = if with_fpu { Some(api_plat::new_fpu_state()?) } else { None };
        Ok(Arc::new(Thread {
            index,
            state: AtomicU8::new(RUNNABLE),
            token: AtomicBool::new(false),
            context: UnsafeCell::new(Context::default()),
            stack: KernelStack::new()?,
            fpu: UnsafeCell::new(fpu),
            fs_base: AtomicU64::new(0),
            start: UnsafeCell::new(Some(start)),
            local: AtomicPtr::new(core::ptr::null_mut()),
            used_ns: AtomicU64::new(0),
            slice_limit: AtomicU64::new(u64::MAX),
            rank: AtomicU32::new(0),
            on: AtomicU32::new(NOWHERE),
            last: AtomicU32::new(0),
            cpus: AtomicU64::new(u64::MAX),
            woken_ns: AtomicU64::new(0),
            switches: [AtomicU64::new(0), AtomicU64::new(0)],
            is_program: with_fpu,
        }))
    }

    /// The FS base it starts with.
    pub fn set_initial_fs_base(&self, base: u64) {
        self.fs_base.store(base, Ordering::Relaxed);
    }

    /// While others wait it runs for so long at a time, even where the policy would let it run longer.
    pub fn limit_slice(&self, nanoseconds: u64) {
        self.slice_limit.store(nanoseconds, Ordering::Relaxed);
    }

    pub(crate) fn slice_limit(&self) -> u64 {
        self.slice_limit.load(Ordering::Relaxed)
    }

    /// What it is preferred to; the policy decides what that means.
    #[inline]
    pub fn rank(&self) -> Rank {
        let [priority, takes_turns, nice, _] = self.rank.load(Ordering::Relaxed).to_ne_bytes();
        Rank { priority, takes_turns: takes_turns != 0, nice: nice as i8 }
    }

    /// Counts from now on, wherever the thread is.
    pub fn set_rank(&self, rank: Rank) {
        let packed = [rank.priority, rank.takes_turns.into(), rank.nice as u8, 0];
        let packed = u32::from_ne_bytes(packed);
        if self.rank.swap(packed, Ordering::Relaxed) != packed {
            crate::run::rank_changed(self);
        }
    }

    /// The processor that it is on, or was on last.
    pub fn processor(&self) -> u32 {
        self.last.load(Ordering::Relaxed)
    }

    /// Where it may run, a bit for each processor; more than there are.
    #[inline]
    pub fn cpus(&self) -> u64 {
        self.cpus.load(Ordering::Relaxed)
    }

    /// From now on it runs on one of these processors only. At least one of them exists.
    pub fn set_cpus(&self, cpus: u64) {
        if self.cpus.swap(cpus, Ordering::Relaxed) != cpus {
            crate::run::cpus_changed(self);
        }
    }

    /// As a new thread: where its maker may run.
    pub fn inherit_cpus(&self) {
        self.cpus.store(crate::current().cpus(), Ordering::Relaxed);
    }

    /// It runs the program just now, on another processor than who asks.
    pub fn runs_elsewhere(&self) -> bool {
        let on = self.on.load(Ordering::Relaxed);
        on != NOWHERE && on != api_plat::cpu()
    }

    /// Makes it look for work before it goes on with the program, if it is on a processor: its next turn begins with that.
    pub fn interrupt(&self) {
        match self.on.load(Ordering::Relaxed) {
            on if on != NOWHERE && on != api_plat::cpu() => api_plat::kick(on),
            _ => api_plat::request_work(),
        }
    }

    /// Processor time it has used since it was woken last, in nanoseconds.
    pub fn ns_since_woken(&self) -> u64 {
        self.cpu_ns().saturating_sub(self.woken_ns.load(Ordering::Relaxed))
    }

    /// On the processor or waiting for it.
    pub fn is_runnable(&self) -> bool {
        self.state.load(Ordering::Relaxed) == RUNNABLE
    }

    /// Gives a thread that has not run yet the extended state the processor holds now (clone(2) inherits it).
    pub fn inherit_fpu(&self) {
        assert!(self.state.load(Ordering::Relaxed) == PARKED, "the thread runs already");
        // SAFETY: the thread has not run, so the state is its maker's.
        if let Some(state) = unsafe { &mut *self.fpu.get() } {
            api_plat::save_fpu(state);
        }
    }

    /// A thread that has not run ends as soon as it does.
    pub fn cancel(&self) {
        assert!(self.state.load(Ordering::Relaxed) == PARKED, "the thread runs already");
        // SAFETY: the thread has not run, so the start is its maker's.
        let start = unsafe { (*self.start.get()).take() };
        drop(start);
    }

    /// It began as a thread of the program, whose registers are at the top of its stack while it is in the kernel.
    pub fn runs_program(&self) -> bool {
        self.is_program
    }

    /// First address above its kernel stack.
    pub fn stack_top(&self) -> u64 {
        self.stack.top()
    }

    /// Processor time it has used, in nanoseconds.
    pub fn cpu_ns(&self) -> u64 {
        self.used_ns.load(Ordering::Relaxed) + crate::run::running_ns(self)
    }

    /// How often it left the processor to wait, and because another one was to run.
    pub fn switches(&self) -> (u64, u64) {
        let [voluntary, involuntary] = &self.switches;
        (voluntary.load(Ordering::Relaxed), involuntary.load(Ordering::Relaxed))
    }

    /// It leaves the processor. (Who switches is alone, so it needs no locked instruction.)
    pub(crate) fn switches_away(&self) {
        let involuntary = self.state.load(Ordering::Relaxed) == RUNNABLE;
        let count = &self.switches[usize::from(involuntary)];
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// One pointer for the layer above (its task); null until set.
    #[inline]
    pub fn local(&self) -> *mut () {
        self.local.load(Ordering::Relaxed)
    }

    /// What [`Thread::local`] gives from now on.
    ///
    /// # Safety
    ///
    /// It is null, or of the one type that the kernel above keeps here, and lives until another one is stored or the thread ends.
    /// On the running thread nobody goes on with what was stored before.
    pub unsafe fn set_local(&self, pointer: *mut ()) {
        self.local.store(pointer, Ordering::Relaxed);
    }

    /// Off the processor until it is woken.
    pub fn is_parked(&self) -> bool {
        self.state.load(Ordering::Relaxed) == PARKED
    }

    /// Its FS base when it left the processor.
    pub fn saved_fs_base(&self) -> u64 {
        self.fs_base.load(Ordering::Relaxed)
    }

    pub fn is_dead(&self) -> bool {
        self.state.load(Ordering::Relaxed) == DEAD
    }
}

impl Waiter for Thread {
    fn wake(&self, _: Events) {
        crate::unpark(self);
    }

    /// One that runs, or was woken already and only waits for the processor, has no use for another wake-up.
    fn wake_exclusive(&self, _: Events) -> bool {
        let slept = self.is_parked();
        crate::unpark(self);
        slept
    }
}
