// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a thread and the process keep about signals, and how a signal gets to them.
//!
//! The queues are locked; the sets of what is pending are mirrored in atomics, because every system call and every
//! switch of threads asks whether a signal is there.

use super::action::{Action, SA_NOCLDSTOP, SA_NOCLDWAIT, SIG_DFL, SIG_IGN};
use super::info::{SI_USER, SigInfo};
use super::queue::Queue;
use super::set::*;
use super::stack::AltStack;
use crate::call::Handler;
use crate::children::Change;
use crate::process::Process;
use crate::shared::Shared;
use crate::thread::{self, Task};
use abi::{Events, Result};
use alloc::sync::Arc;
use api_lock::SpinLock;
use api_plat::FpuState;
use api_sched::WaitQueue;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::Relaxed};

/// The part of signal handling that a process has.
pub struct ProcessSignals {
    /// Mirror of `shared`; while the process is stopped SIGSTOP is in it, so that every thread looks.
    pending: AtomicU64,
    shared: SpinLock<Queue>,
    actions: Shared<SpinLock<[Action; SIGNALS as usize]>>,
    /// The signal that stopped it; 0 while it runs. Changed under the lock of `shared`.
    stopped: AtomicI32,
    /// A thread took a signal that may stop the process, and neither SIGCONT nor SIGKILL was sent since (Linux'
    /// JOBCTL_STOP_DEQUEUED): without it the stop came too late.
    may_stop: AtomicBool,
}

/// Woken when any signal arrives anywhere, for signalfd: a descriptor tells whoever reads it of the reader's signals.
pub static ARRIVED: WaitQueue = WaitQueue::new();

impl ProcessSignals {
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        ProcessSignals::with(Shared::new(SpinLock::new([Action::DEFAULT; SIGNALS as usize])))
    }

    fn with(actions: Shared<SpinLock<[Action; SIGNALS as usize]>>) -> Self {
        ProcessSignals {
            pending: AtomicU64::new(0),
            shared: SpinLock::new(Queue::new()),
            actions,
            stopped: AtomicI32::new(0),
            may_stop: AtomicBool::new(false),
        }
    }

    /// For a new process: the same actions (CLONE_SIGHAND), or a copy of them, which only ignores with
    /// CLONE_CLEAR_SIGHAND; and nothing pending.
    pub fn fork(&self, shares: bool, clears: bool) -> Self {
        if shares {
            return ProcessSignals::with(self.actions.share());
        }
        let copy = ProcessSignals::with(Shared::new(SpinLock::new(*self.actions.lock())));
        if clears {
            copy.reset_handlers();
        }
        copy
    }

    /// Signals that are ignored, and those that have a handler.
    pub fn ignored_and_caught(&self) -> (SignalSet, SignalSet) {
        let actions = self.actions.lock();
        let those = |wanted: fn(&Action) -> bool| {
            actions.iter().enumerate().filter(|(_, action)| wanted(action)).map(|(i, _)| 1u64 << i).sum()
        };
        (those(|a| a.handler == SIG_IGN), those(|a| a.handler > SIG_IGN))
    }

    /// Another process has the same actions (CLONE_SIGHAND).
    pub fn shares_actions(&self) -> bool {
        self.actions.is_shared()
    }

    /// Tells actions apart that processes share (kcmp(2)).
    pub fn actions_address(&self) -> usize {
        self.actions.address()
    }

    /// Children that end are to be waited for: SIGCHLD is not ignored, and SA_NOCLDWAIT is not set.
    pub fn wants_zombies(&self) -> bool {
        let action = self.action(SIGCHLD);
        action.handler != SIG_IGN && !action.has(SA_NOCLDWAIT)
    }

    /// SIGCHLD tells of children that stop and go on.
    pub fn wants_stops(&self) -> bool {
        let action = self.action(SIGCHLD);
        action.handler != SIG_IGN && !action.has(SA_NOCLDSTOP)
    }

    pub fn action(&self, signal: i32) -> Action {
        self.actions.lock()[signal as usize - 1]
    }

    pub fn set_action(&self, signal: i32, action: Action) {
        self.actions.lock()[signal as usize - 1] = action;
    }

    /// execve: what another process shares stays its own.
    pub fn own_actions(&self) -> Result<()> {
        if self.actions.is_shared() {
            let copy = *self.actions.lock();
            self.actions.replace(SpinLock::new(copy))?;
        }
        Ok(())
    }

    /// execve: handlers go, ignored signals stay ignored (POSIX, "exec").
    pub fn reset_handlers(&self) {
        for action in self.actions.lock().iter_mut() {
            let handler = if action.handler == SIG_IGN { SIG_IGN } else { SIG_DFL };
            *action = Action { handler, ..Action::DEFAULT };
        }
    }

    /// Stopped by SIGSTOP or the like: no thread goes on until SIGCONT or SIGKILL.
    pub fn is_stopped(&self) -> bool {
        self.stopped_by() != 0
    }

    /// The signal that stopped it; 0 while it runs.
    pub fn stopped_by(&self) -> i32 {
        self.stopped.load(Relaxed)
    }

    /// A signal that may stop the process is about to be delivered.
    pub fn stop_is_due(&self) {
        self.may_stop.store(true, Relaxed);
    }

    /// Stops the process; false when SIGCONT or SIGKILL was sent since the signal was taken, which undoes it.
    pub fn stop(&self, by: i32) -> bool {
        self.with_queue(|_| {
            let may_stop = self.may_stop.swap(false, Relaxed);
            if may_stop {
                self.stopped.store(by, Relaxed);
            }
            may_stop
        })
    }

    /// Lets the process go on, and undoes a stop that has not begun. False when it was not stopped.
    pub fn go_on(&self) -> bool {
        self.with_queue(|_| {
            self.may_stop.store(false, Relaxed);
            self.stopped.swap(0, Relaxed) != 0
        })
    }

    fn with_queue<T>(&self, change: impl FnOnce(&mut Queue) -> T) -> T {
        let mut queue = self.shared.lock();
        let result = change(&mut queue);
        let stop = if self.is_stopped() { bit(SIGSTOP) } else { 0 };
        self.pending.store(queue.pending() | stop, Relaxed);
        result
    }

    /// What a pending signal says about itself, by its place among those that are.
    pub fn info(&self, index: usize) -> Option<SigInfo> {
        self.shared.lock().infos().get(index).copied()
    }

    /// What is pending for the process as a whole.
    pub fn pending(&self) -> SignalSet {
        self.shared.lock().pending()
    }
}

/// Registers a signal frame reports about the exception behind a signal.
#[derive(Clone, Copy, Default)]
pub struct Trap {
    pub vector: u64,
    pub error: u64,
    pub address: u64,
}

/// The part of signal handling that a thread has.
pub struct TaskSignals {
    blocked: AtomicU64,
    /// Mirror of `queue`.
    pending: AtomicU64,
    queue: SpinLock<Queue>,
    /// rt_sigtimedwait takes these although they are blocked outside of it.
    waited: AtomicU64,
    /// The mask to go back to when no handler runs (sigsuspend, ppoll); a handler's frame takes it otherwise.
    saved_mask: SpinLock<Option<SignalSet>>,
    pub stack: SpinLock<AltStack>,
    /// Memory for signal frames, kept from one to the next.
    pub scratch: SpinLock<Option<FpuState>>,
    pub trap: SpinLock<Trap>,
    /// A call that rt_sigreturn found to be made again.
    pub again: SpinLock<Option<u64>>,
    /// Deadline of the interrupted call, when it is made again without a handler in between, and its handler once it is made again.
    resume: SpinLock<(Option<u64>, Option<Handler>)>,
}

impl TaskSignals {
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        TaskSignals {
            blocked: AtomicU64::new(0),
            pending: AtomicU64::new(0),
            queue: SpinLock::new(Queue::new()),
            waited: AtomicU64::new(0),
            saved_mask: SpinLock::new(None),
            stack: SpinLock::new(AltStack::NONE),
            scratch: SpinLock::new(None),
            trap: SpinLock::new(Trap { vector: 0, error: 0, address: 0 }),
            again: SpinLock::new(None),
            resume: SpinLock::new((None, None)),
        }
    }

    /// A new thread starts with its maker's mask and nothing pending.
    pub fn inherit(&self, parent: &TaskSignals) {
        self.blocked.store(parent.blocked(), Relaxed);
    }

    /// fork: the alternate stack is in memory that the child has as well.
    pub fn inherit_stack(&self, parent: &TaskSignals) {
        let stack = *parent.stack.lock();
        *self.stack.lock() = stack;
    }

    /// For threads that are not the program's: none of its signals concerns them.
    pub fn block_all(&self) {
        self.blocked.store(SignalSet::MAX, Relaxed);
    }

    /// execve: the alternate stack was in memory that is gone.
    pub fn reset_stack(&self) {
        *self.stack.lock() = AltStack::NONE;
    }

    /// True when a signal is to be delivered to this thread.
    #[inline]
    pub fn is_pending(&self, process: &ProcessSignals) -> bool {
        let pending = self.pending.load(Relaxed) | process.pending.load(Relaxed);
        pending & !self.blocked.load(Relaxed) != 0
    }

    #[inline]
    pub fn blocked(&self) -> SignalSet {
        self.blocked.load(Relaxed)
    }

    /// Changes the mask; only the thread itself does.
    pub fn set_blocked(&self, set: SignalSet) {
        self.blocked.store(set & !UNBLOCKABLE, Relaxed);
        // Something may have become deliverable: look on the way out.
        if self.is_pending(&thread::current().process.signals) {
            api_plat::request_work();
        }
    }

    /// Blocks `set` until the call ends, and remembers the mask from before.
    pub fn set_blocked_for_call(&self, set: SignalSet) {
        let before = self.blocked();
        self.saved_mask.lock().get_or_insert(before);
        self.set_blocked(set);
        // The way out puts the mask back.
        api_plat::request_work();
    }

    /// The mask from before [`TaskSignals::set_blocked_for_call`], once.
    pub fn take_saved_mask(&self) -> Option<SignalSet> {
        self.saved_mask.lock().take()
    }

    fn with_queue<T>(&self, change: impl FnOnce(&mut Queue) -> T) -> T {
        let mut queue = self.queue.lock();
        let result = change(&mut queue);
        self.pending.store(queue.pending(), Relaxed);
        result
    }

    /// As [`TaskSignals::is_pending`], but for a stop of the process.
    pub fn has_pending(&self, process: &ProcessSignals) -> bool {
        (self.pending() | process.pending()) & !self.blocked() != 0
    }

    /// What a pending signal says about itself, by its place among those that are.
    pub fn info(&self, index: usize) -> Option<SigInfo> {
        self.queue.lock().infos().get(index).copied()
    }

    /// The mask as its tracer sees it: not that of a call which changes it for its own time.
    pub fn shown_mask(&self) -> SignalSet {
        let saved = *self.saved_mask.lock();
        saved.unwrap_or_else(|| self.blocked())
    }

    /// The tracer of the stopped thread changes its mask.
    pub fn set_blocked_by_tracer(&self, set: SignalSet) {
        self.saved_mask.lock().take();
        self.blocked.store(set & !UNBLOCKABLE, Relaxed);
    }

    /// What is pending for this thread alone.
    pub fn pending(&self) -> SignalSet {
        self.queue.lock().pending()
    }

    /// The time a call interrupted without a handler was to end, for the call made again; once.
    #[inline]
    pub fn take_resume(&self) -> Option<u64> {
        self.resume.lock().0.take()
    }

    pub fn set_resume(&self, deadline_ns: u64) {
        self.resume.lock().0 = Some(deadline_ns);
    }

    /// A deadline is kept for a call that is made again.
    pub fn resumes(&self) -> bool {
        self.resume.lock().0.is_some()
    }

    /// No call is to go on: a handler ran, or the call made again has answered.
    pub fn forget_resume(&self) {
        *self.resume.lock() = (None, None);
    }

    /// What restart_syscall(2) is to go on with: the handler of the call that was interrupted.
    pub fn set_restarted(&self, handler: Option<Handler>) {
        self.resume.lock().1 = handler;
    }

    /// `None` where no call is to go on.
    pub fn restarted(&self) -> Option<Handler> {
        let resume = self.resume.lock();
        resume.1.filter(|_| resume.0.is_some())
    }
}

/// Takes the next signal of `wanted` that is pending for the thread or for the process. SIGKILL comes before all others,
/// whatever their numbers and whoever they are for: what it ends has died of it.
pub fn take(task: &Task, wanted: SignalSet) -> Option<SigInfo> {
    let next = |wanted| {
        let from = |queue: &mut Queue| {
            let taken = queue.take(wanted)?;
            // While the queue is locked: whoever lets the process go on empties the queues first.
            if bit(taken.signal()) & STOPS != 0 {
                task.process.signals.stop_is_due();
            }
            Some(taken)
        };
        let taken = task.signals.with_queue(from);
        taken.or_else(|| task.process.signals.with_queue(from))
    };
    let taken = next(wanted & bit(SIGKILL)).or_else(|| next(wanted));
    taken.map(|info| crate::time::posix_timers::signal_taken(&task.process, info))
}

/// Forgets pending signals everywhere in the process.
pub fn discard(process: &Process, set: SignalSet) {
    process.signals.with_queue(|queue| queue.discard(set));
    for task in process.tasks() {
        task.signals.with_queue(|queue| queue.discard(set));
    }
}

/// Sends to the process as a whole: any thread that does not block it takes it. False when it is ignored.
pub fn send_to_process(process: &Process, info: SigInfo) -> Result<bool> {
    let signal = info.signal();
    let Some(first) = process.tasks().next() else { return Ok(false) };
    if !prepare(process, &first, signal) {
        return Ok(false);
    }
    let limit = process.limits.signals_queued();
    process.signals.with_queue(|queue| queue.push(info, limit))?;
    let wants = |task: &Arc<Task>| task.signals.blocked() & bit(signal) == 0;
    if let Some(task) = process.tasks().find(wants) {
        task.interrupt();
    }
    ARRIVED.wake(Events::READABLE);
    Ok(true)
}

/// Sends to one thread. False when it is ignored.
pub fn send_to_task(task: &Task, info: SigInfo) -> Result<bool> {
    let process = &task.process;
    if !prepare(process, task, info.signal()) {
        return Ok(false);
    }
    let limit = process.limits.signals_queued();
    task.signals.with_queue(|queue| queue.push(info, limit))?;
    if task.signals.blocked() & bit(info.signal()) == 0 {
        task.interrupt();
    }
    ARRIVED.wake(Events::READABLE);
    Ok(true)
}

/// What sending does whoever gets it: stop and continue signals cancel each other, SIGCONT and SIGKILL let a stopped
/// process go on. False when the signal is ignored.
fn prepare(process: &Process, task: &Task, signal: i32) -> bool {
    if bit(signal) & STOPS != 0 {
        discard(process, bit(SIGCONT));
    } else if signal == SIGCONT || signal == SIGKILL {
        discard(process, STOPS);
        if signal == SIGCONT {
            process.tasks().for_each(|task| task.tracing.stop_changes(&task, false));
        }
        if process.signals.go_on() {
            process.tasks().for_each(|task| task.interrupt());
            if signal == SIGCONT {
                crate::children::changes(process, Change::Continued);
            }
        }
    }
    let held = (task.signals.blocked() | task.signals.waited.load(Relaxed)) & bit(signal) != 0;
    // A tracer sees every signal.
    held || task.tracing.is_on() || !process.signals.action(signal).ignores(signal)
}

/// Sends a signal to the running thread, as if by itself (SIGPIPE of a write, for one).
pub fn send_to_current(signal: i32) {
    let task = thread::current();
    let uid = task.credentials().lock().uid;
    let info = SigInfo::from_process(signal, SI_USER, task.process.number, task.process.shown_user(uid));
    // A standard signal is never refused for want of room.
    let _ = send_to_task(&task, info);
}

/// Raises a signal that the thread cannot go on without: blocked or ignored, it ends the program (Linux'
/// `force_sig_info`).
pub fn force(task: &Task, info: SigInfo) {
    let signal = info.signal();
    let process = &task.process;
    let blocked = task.signals.blocked() & bit(signal) != 0;
    let action = process.signals.action(signal);
    if blocked || action.handler == SIG_IGN {
        process.signals.set_action(signal, Action { handler: SIG_DFL, ..action });
        task.signals.set_blocked(task.signals.blocked() & !bit(signal));
    }
    // A standard signal is never refused for want of room.
    let _ = task.signals.with_queue(|queue| queue.push(info, usize::MAX));
    api_plat::request_work();
}

/// A signal for one thread that no action and no sender's rights keep away: a tracer's.
pub fn raise(task: &Task, info: SigInfo) {
    // A standard signal is never refused for want of room.
    let _ = task.signals.with_queue(|queue| queue.push(info, usize::MAX));
    task.interrupt();
}

/// The frame of a handler for `signal` could not be written or read: SIGSEGV, and no second try for SIGSEGV itself.
pub fn force_bad_frame(task: &Task, signal: i32) {
    if signal == SIGSEGV {
        task.process.signals.set_action(SIGSEGV, Action::DEFAULT);
    }
    force(task, SigInfo::from_kernel(SIGSEGV));
}

/// Runs `wait` while the thread also takes the blocked signals of `set` (rt_sigtimedwait).
pub fn while_waiting_for<T>(task: &Task, set: SignalSet, wait: impl FnOnce() -> T) -> T {
    let signals = &task.signals;
    let blocked = signals.blocked();
    signals.waited.store(blocked & set, Relaxed);
    signals.set_blocked(blocked & !set);
    let result = wait();
    signals.set_blocked(blocked);
    signals.waited.store(0, Relaxed);
    result
}

/// Makes another thread of the process look whether it is to end ([`Process::only`], [`Process::is_ending`]), whatever it
/// is doing.
pub fn end_thread(task: &Task) {
    task.process.signals.go_on();
    // A standard signal is never refused for want of room.
    let _ = task.signals.with_queue(|queue| queue.push(SigInfo::from_kernel(SIGKILL), usize::MAX));
    task.interrupt();
}

/// What [`end_thread`] made the thread look by is gone (Linux' get_signal takes it); what somebody sent stays.
pub fn end_was_seen(task: &Task) {
    task.signals.with_queue(|queue| {
        let mut kills = queue.infos().iter().filter(|info| info.signal() == SIGKILL);
        if kills.all(|info| !info.has_sender()) {
            queue.discard(bit(SIGKILL));
        }
    });
}

/// A thread is about to end: what is pending for the process goes to another one.
pub fn thread_ends(task: &Task) {
    let pending = task.process.signals.pending();
    if pending != 0 {
        for other in task.process.tasks().filter(|other| other.tid != task.tid) {
            if pending & !other.signals.blocked() != 0 {
                other.interrupt();
            }
        }
    }
}
