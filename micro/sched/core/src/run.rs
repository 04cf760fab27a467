// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The processor: what runs on it and how it changes hands.

use crate::deferred_work::{run_deferred_work, unilith_sched_run_deferred as run_deferred};
use crate::load;
use crate::share::Share;
use crate::thread::{DEAD, NOWHERE, PARKED, RUNNABLE, Start, Thread};
use abi::{Result, errno::EAGAIN, errno::ENOMEM};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_lock::SpinLock;
use api_plat::MAX_CPUS;
use api_sched::policy::{
    Place, Rivals, ThreadIndex, unilith_sched_change, unilith_sched_enqueue, unilith_sched_other_waits,
    unilith_sched_pick, unilith_sched_pick_other, unilith_sched_reserve, unilith_sched_rivals,
    unilith_sched_slice, unilith_sched_waiting,
};
use api_sched::{TimerId, Waiter};
use api_trace::{Event, Leaves, Point};
use core::ops::Deref;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use time::Timers;

/// Most threads at once; a limit of the table, not of memory (Linux' default `kernel.threads-max` is of this order).
const MAX_THREADS: usize = 32_768;

struct Table {
    threads: Vec<Option<Arc<Thread>>>,
    free: Vec<ThreadIndex>,
}

static TABLE: SpinLock<Table> = SpinLock::new(Table { threads: Vec::new(), free: Vec::new() });
static TIMERS: Timers = Timers::new();

/// State of one processor.
struct Cpu {
    /// Kept alive by the table (or by `leaving`).
    current: AtomicPtr<Thread>,
    /// Whose extended state the processor holds.
    fpu_owner: AtomicPtr<Thread>,
    /// Ended; freed by the next thread, which no longer runs on its stack.
    leaving: AtomicPtr<Thread>,
    slice_end: AtomicU64,
    /// No slice of the thread that runs ends before, in nanoseconds; 0 for most.
    turn_end: AtomicU64,
    share: Share,
    /// Since when the current thread's processor time counts.
    since: AtomicU64,
    timer_expired: AtomicBool,
    timer_armed: AtomicU64,
    /// It waits for an interrupt, and nobody has told it of a thread yet.
    idles: AtomicBool,
    /// Another processor found that the running thread may have to make room.
    reconsiders: AtomicBool,
    /// Of several processors: the thread that is there when no other one is. Never in the queue. With one, who sleeps stays on
    /// the processor.
    idle_thread: AtomicPtr<Thread>,
}

// One entry per processor; the platform's `cpu()` is the index.
static CPUS: [Cpu; MAX_CPUS] = [const {
    Cpu {
        current: AtomicPtr::new(core::ptr::null_mut()),
        fpu_owner: AtomicPtr::new(core::ptr::null_mut()),
        leaving: AtomicPtr::new(core::ptr::null_mut()),
        slice_end: AtomicU64::new(u64::MAX),
        turn_end: AtomicU64::new(0),
        share: Share::new(),
        since: AtomicU64::new(0),
        timer_expired: AtomicBool::new(false),
        timer_armed: AtomicU64::new(u64::MAX),
        idles: AtomicBool::new(false),
        reconsiders: AtomicBool::new(false),
        idle_thread: AtomicPtr::new(core::ptr::null_mut()),
    }
}; MAX_CPUS];

#[inline]
fn cpu() -> &'static Cpu {
    &CPUS[api_plat::cpu() as usize]
}

/// Where its threads take turns on more than one processor.
#[inline]
fn several() -> bool {
    api_plat::several()
}

/// Who needs one processor alone at work: how many [`OneProcessor`]s there are.
static ALONE: AtomicU32 = AtomicU32::new(0);

/// The first processor alone is at work while this is there.
pub struct OneProcessor(());

impl OneProcessor {
    /// Waits until the others have left what they run. In a thread that may sleep.
    pub fn keep() -> OneProcessor {
        ALONE.fetch_add(1, Ordering::Relaxed);
        let kept = OneProcessor(());
        while several() {
            requeue();
            others_reconsider(|_| true);
            if api_plat::cpu() != 0 {
                // Its turn comes there.
                enqueue_current(Place::Back);
                select_cpu(&current());
                schedule();
            } else if (1..api_plat::cpus()).any(is_at_work_on) || !api_plat::dismiss() {
                park(api_plat::now_ns() + MOMENT_NS);
            } else {
                // The others may have armed theirs.
                arm(TIMERS.earliest().unwrap_or(u64::MAX));
            }
        }
        kept
    }
}

/// For which a processor is waited for before it is asked again.
const MOMENT_NS: u64 = 200_000;

/// The processor runs a thread, or is on its way into the kernel with one.
fn is_at_work_on(index: u32) -> bool {
    let cpu = &CPUS[index as usize];
    let current = cpu.current.load(Ordering::Relaxed);
    !current.is_null() && current != cpu.idle_thread.load(Ordering::Relaxed)
}

/// The queue learns anew where the threads may run.
fn requeue() {
    for thread in threads() {
        unilith_sched_change(places(&thread), thread.index, thread.rank());
    }
}

impl Drop for OneProcessor {
    fn drop(&mut self) {
        ALONE.fetch_sub(1, Ordering::Relaxed);
        // Some may be meant for the others alone.
        if threads().any(|thread| thread.cpus() >> api_plat::cpu() & 1 == 0) {
            admit_others();
        }
    }
}

/// A thread waits that another processor could run: those that the machine has take part from here on. Until then the
/// first one takes no lock, and no wake-up goes to another one, which costs the host more than to go on with the thread here. So
/// threads that hand work to each other and sleep do not let them in; one that waited until the end of another one's turn does.
fn admit_others() {
    if !are_others_out() || ALONE.load(Ordering::Relaxed) > 0 || !api_plat::admit() {
        return;
    }
    // The processor may hold the state of a thread that another one is about to run.
    let cpu = cpu();
    let owner = cpu.fpu_owner.load(Ordering::Relaxed);
    if !owner.is_null() && !core::ptr::eq(owner, running()) {
        cpu.fpu_owner.store(core::ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: the owner is alive (ending clears the field), and the others come in when this has left the kernel.
        if let Some(state) = unsafe { &mut *(*owner).fpu.get() } {
            api_plat::save_fpu(state);
        }
    }
    requeue();
    unilith_processors_admitted();
}

/// There are processors that have no part yet.
#[inline]
fn are_others_out() -> bool {
    api_plat::cpus() > 1 && !several()
}

/// Where the thread may run at present, a bit for each processor.
fn places(thread: &Thread) -> u64 {
    const FIRST: u64 = 1;
    if ALONE.load(Ordering::Relaxed) > 0 || !several() { FIRST } else { thread.cpus() }
}

/// The running thread, as the thread itself sees it. It is lent for as long as the caller keeps this, not for ever, and stays
/// with the thread: what has to outlive the call counts it with [`current_handle`].
///
/// ```compile_fail,E0277
/// fn hand_to_another_thread<T: Send>(_: T) {}
/// hand_to_another_thread(sched::current());
/// ```
///
/// ```compile_fail,E0716
/// let kept: &'static sched::Thread = &sched::current();
/// ```
#[derive(Clone, Copy)]
pub struct Current(NonNull<Thread>);

impl Deref for Current {
    type Target = Thread;

    #[inline]
    fn deref(&self) -> &Thread {
        // SAFETY: the table (or `leaving`) keeps a thread alive while it is current, and this is on that thread.
        unsafe { self.0.as_ref() }
    }
}

/// The running thread.
#[inline]
pub fn current() -> Current {
    // SAFETY: set before any thread code runs.
    Current(unsafe { NonNull::new_unchecked(running().cast_mut()) })
}

/// As [`current`]; null before the first one.
#[cfg(panic = "abort")]
#[inline]
fn running() -> *const Thread {
    api_plat::thread() as *const Thread
}

/// Tests of what is above on the host have no processor's block.
#[cfg(not(panic = "abort"))]
fn running() -> *const Thread {
    CPUS[0].current.load(Ordering::Relaxed)
}

/// The running thread, counted.
pub fn current_handle() -> Arc<Thread> {
    handle(current().index).expect("the running thread is in the table")
}

fn handle(index: ThreadIndex) -> Option<Arc<Thread>> {
    TABLE.lock().threads.get(index as usize)?.clone()
}

#[unsafe(no_mangle)]
fn unilith_sched_current() -> Arc<dyn Waiter> {
    current_handle()
}

/// Makes a thread that runs `start` on a kernel stack of its own; runnable once [`unpark`]ed. `EAGAIN` when there
/// are too many threads, `ENOMEM` without memory.
pub fn spawn(runs_program: bool, start: Start) -> Result<Arc<Thread>> {
    let index = {
        let mut table = TABLE.lock();
        match table.free.pop() {
            Some(index) => index,
            None if table.threads.len() == MAX_THREADS => return Err(EAGAIN),
            None => {
                // With room for the end of each of them as well, which must not fail.
                let count = table.threads.len() + 1;
                table.threads.reserve_fallibly(1).map_err(|_| ENOMEM)?;
                let free = table.free.len();
                table.free.reserve_fallibly(count - free).map_err(|_| ENOMEM)?;
                if !unilith_sched_reserve(count) {
                    return Err(ENOMEM);
                }
                table.threads.push(None);
                (table.threads.len() - 1) as ThreadIndex
            }
        }
    };
    let thread = match Thread::new(index, runs_program, start) {
        Ok(thread) => thread,
        Err(e) => {
            TABLE.lock().free.push(index);
            return Err(e);
        }
    };
    thread.state.store(PARKED, Ordering::Relaxed);
    // SAFETY: nobody else has the context yet, and the stack lives in the thread.
    unsafe {
        let context = &mut *thread.context.get();
        api_plat::start_thread(context, &thread.stack, first_code, Arc::as_ptr(&thread) as usize);
    }
    TABLE.lock().threads[index as usize] = Some(thread.clone());
    Ok(thread)
}

extern "C" fn first_code(thread: usize) -> ! {
    // SAFETY: `spawn` passed the thread that now runs; the table keeps it alive.
    let thread = unsafe { &*(thread as *const Thread) };
    arrived();
    // SAFETY: only the thread itself takes its start, once.
    let start = unsafe { (*thread.start.get()).take() };
    match start {
        Some(Start::Program(boxed)) => {
            let frame = *boxed;
            // The thread does not come back to let it go.
            drop(boxed);
            // SAFETY: `frame` was prepared by the maker of the thread; nothing below it on the stack is needed.
            unsafe { api_plat::enter_program(&frame) }
        }
        Some(Start::Kernel(run)) => run(),
        None => {}
    }
    exit_current()
}

/// All threads that have not ended, but for those that stand for processors without work. Each is looked for when it is its turn,
/// so that nothing is allocated: the scheduler asks, too, and memory may have run out.
pub fn threads() -> impl Iterator<Item = Arc<Thread>> {
    let idles = |thread: &Thread| {
        CPUS.iter().any(|cpu| core::ptr::eq(cpu.idle_thread.load(Ordering::Relaxed), thread))
    };
    let mut place = 0;
    core::iter::from_fn(move || {
        let table = TABLE.lock();
        let mut left = table.threads.iter().enumerate().skip(place);
        let found =
            left.find_map(|(at, thread)| Some((at, thread.as_ref().filter(|thread| !idles(thread))?)));
        let (at, thread) = found?;
        place = at + 1;
        Some(thread.clone())
    })
}

/// Starts the first thread, from the boot stack.
pub fn start_first(thread: &Arc<Thread>) -> ! {
    thread.state.store(RUNNABLE, Ordering::Relaxed);
    let mut boot = api_plat::Context::default();
    take_over(thread);
    // SAFETY: the boot context is never switched back to; the thread's was prepared by `spawn`.
    unsafe { api_plat::switch(&raw mut boot, thread.context.get()) };
    unreachable!("the boot context was switched to");
}

/// Makes what the processors but the first begin with, for [`start_other`]. Before any of them comes up.
pub fn prepare_others() -> Result<()> {
    if api_plat::cpus() == 1 {
        return Ok(());
    }
    for cpu in &CPUS[..api_plat::cpus() as usize] {
        let thread = spawn(false, Start::Kernel(idle))?;
        cpu.idle_thread.store(Arc::as_ptr(&thread).cast_mut(), Ordering::Relaxed);
    }
    Ok(())
}

/// Another processor begins, from its boot stack.
pub fn start_other() -> ! {
    // SAFETY: `prepare_others` stored a thread that the table keeps alive, for it never ends.
    let thread = unsafe { &*cpu().idle_thread.load(Ordering::Relaxed) };
    let mut boot = api_plat::Context::default();
    take_over(thread);
    // SAFETY: as in `start_first`.
    unsafe { api_plat::switch(&raw mut boot, thread.context.get()) };
    unreachable!("the boot context was switched to");
}

/// What a processor does that has nothing to do. The thread is parked all the time.
fn idle() {
    loop {
        unilith_processor_idles();
        schedule();
    }
}

/// The thread is there only because no other one is.
fn is_idle(thread: &Thread) -> bool {
    core::ptr::eq(thread, cpu().idle_thread.load(Ordering::Relaxed))
}

/// Makes the thread runnable. When it has not parked yet it will not sleep the next time.
pub fn unpark(thread: &Thread) {
    match thread.state.load(Ordering::Relaxed) {
        PARKED => {
            thread.state.store(RUNNABLE, Ordering::Relaxed);
            thread.woken_ns.store(thread.used_ns.load(Ordering::Relaxed), Ordering::Relaxed);
            let rank = thread.rank();
            unilith_sched_enqueue(places(thread), thread.index, rank, Place::Back);
            if api_trace::is_on(Point::Wakeup) {
                api_trace::hit(Event::Wakeup { thread: thread.local() });
            }
            // A thread with a priority may have to take the processor from another one.
            if several() {
                select_cpu(thread);
            } else if !core::ptr::eq(thread, running())
                && (cpu().slice_end.load(Ordering::Relaxed) == u64::MAX || rank.priority != 0)
            {
                // A thread that sleeps on the one processor idles in `schedule`, which takes the next thread from the queue. It
                // is no rival of itself: a slice for it would set a timer, and interrupt it for nothing, at each wake-up.
                check_preempt();
            }
        }
        DEAD => {}
        _ => thread.token.store(true, Ordering::Relaxed),
    }
}

/// Sleeps until [`unpark`]ed or until the deadline; see `api_sched::park`.
pub fn park(deadline_ns: u64) {
    api_lock::blocks();
    let thread = current();
    if thread.token.swap(false, Ordering::Relaxed) {
        // What was waited for may be in the hands of deferred work still.
        run_deferred();
        return;
    }
    let mut timer = None;
    if deadline_ns != u64::MAX {
        if deadline_ns <= api_plat::now_ns() {
            run_deferred();
            return;
        }
        timer = Some(unilith_sched_add_timer(deadline_ns, unilith_sched_current()));
    }
    thread.state.store(PARKED, Ordering::Relaxed);
    schedule();
    if let Some(timer) = timer {
        TIMERS.cancel(timer);
    }
    // A second wake-up for the same sleep would cost the next one a turn.
    thread.token.store(false, Ordering::Relaxed);
}

#[unsafe(no_mangle)]
fn unilith_sched_park(deadline_ns: u64) {
    park(deadline_ns);
}

/// Lets others run first.
pub fn yield_now() {
    api_lock::blocks();
    run_deferred_work();
    run_timers();
    if unilith_sched_waiting(api_plat::cpu()) {
        enqueue_current(Place::Back);
        schedule();
    }
}

fn enqueue_current(place: Place) {
    let thread = current();
    unilith_sched_enqueue(places(&thread), thread.index, thread.rank(), place);
}

fn may_run(thread: &Thread, cpu: u32) -> bool {
    places(thread) >> cpu & 1 != 0
}

/// Of several processors: one that is to take the thread, which is in the queue now.
fn select_cpu(thread: &Thread) {
    let here = api_plat::cpu();
    let rank = thread.rank();
    let own = may_run(thread, here);
    // This one is about to take the next thread anyway, and tells another one if there are more.
    // SAFETY: as in `current`; before the first thread runs there is none.
    if own && unsafe { running().as_ref() }.is_some_and(|t| !t.is_runnable()) {
        return;
    }
    if wake_idle(|cpu| may_run(thread, cpu)) {
        return;
    }
    if own && (cpu().slice_end.load(Ordering::Relaxed) == u64::MAX || rank.priority != 0) {
        check_preempt();
    }
    if !own || rank.priority != 0 {
        others_reconsider(|cpu| may_run(thread, cpu));
    }
}

/// Tells one idle processor of those that there is a thread for it; false when there is none.
fn wake_idle(is_wanted: impl Fn(u32) -> bool) -> bool {
    let found = (0..api_plat::cpus())
        .find(|cpu| CPUS[*cpu as usize].idles.load(Ordering::Relaxed) && is_wanted(*cpu));
    let Some(index) = found else { return false };
    // The next thread is for another one.
    CPUS[index as usize].idles.store(false, Ordering::Relaxed);
    api_plat::kick(index);
    true
}

/// The threads on other processors of those may have to make room.
fn others_reconsider(is_wanted: impl Fn(u32) -> bool) {
    for index in (0..api_plat::cpus()).filter(|index| *index != api_plat::cpu() && is_wanted(*index)) {
        if !CPUS[index as usize].reconsiders.swap(true, Ordering::Relaxed) {
            api_plat::kick(index);
        }
    }
}

/// The turn of a thread is over, and others wait: who runs without end on another processor makes room as well.
fn share_out() {
    if several() {
        others_reconsider(|index| {
            let cpu = &CPUS[index as usize];
            let runs_on = cpu.current.load(Ordering::Relaxed) != cpu.idle_thread.load(Ordering::Relaxed);
            runs_on && cpu.slice_end.load(Ordering::Relaxed) == u64::MAX && unilith_sched_waiting(index)
        });
    }
}

/// Ends the running thread.
pub fn exit_current() -> ! {
    let thread = current();
    thread.state.store(DEAD, Ordering::Relaxed);
    let cpu = cpu();
    let this = thread.0.as_ptr();
    if cpu.fpu_owner.load(Ordering::Relaxed) == this {
        cpu.fpu_owner.store(core::ptr::null_mut(), Ordering::Relaxed);
    }
    let owner = {
        let mut table = TABLE.lock();
        table.free.push(thread.index);
        table.threads[thread.index as usize].take()
    };
    if let Some(owner) = owner {
        cpu.leaving.store(Arc::into_raw(owner).cast_mut(), Ordering::Relaxed);
    }
    schedule();
    unreachable!("a dead thread was scheduled");
}

/// The processor has nothing to do; for interrupts.
pub fn idles() -> bool {
    cpu().idles.load(Ordering::Relaxed)
}

/// The running thread's work is done now, not the scheduler's own on its stack; for interrupts.
pub fn is_at_work() -> bool {
    current().state.load(Ordering::Relaxed) == RUNNABLE
}

fn pick(here: u32) -> Option<ThreadIndex> {
    let others_first = cpu().share.others_until(api_plat::now_ns) != 0;
    let other = if others_first { unilith_sched_pick_other(here) } else { None };
    other.or_else(|| unilith_sched_pick(here))
}

/// Gives the processor to the next runnable thread; idles until there is one.
fn schedule() {
    let running = current();
    let previous: &Thread = &running;
    let begin = charge(previous);
    load::measure(begin, false);
    let here = api_plat::cpu();
    let mut idled = false;
    let next = loop {
        run_deferred();
        if let Some(index) = pick(here) {
            match handle(index) {
                Some(next) => break next,
                None => continue,
            }
        }
        run_timers();
        if unilith_sched_waiting(here) {
            continue;
        }
        if several() && !is_idle(previous) {
            // Another processor may want to go on with this thread.
            // SAFETY: `prepare_others` stored a thread that the table keeps alive, for it never ends.
            let index = unsafe { &*cpu().idle_thread.load(Ordering::Relaxed) }.index;
            match handle(index) {
                Some(next) => break next,
                None => continue,
            }
        }
        if !idled {
            idled = true;
            previous.switches_away();
            trace_switch(Some(previous), None);
        }
        cpu().idles.store(true, Ordering::Relaxed);
        api_plat::idle();
        cpu().idles.store(false, Ordering::Relaxed);
        api_plat::take_work();
        run_timers();
    };
    // It was willing to go on, and so was the next one: a turn was over. Threads of the kernel have theirs without that.
    if previous.is_runnable() && previous.is_program && next.is_program && !core::ptr::eq(&*next, previous) {
        admit_others();
    }
    if several() {
        wake_idle(unilith_sched_waiting);
    }
    let since = if idled { api_plat::now_ns() } else { begin };
    if idled {
        load::measure(since, true);
    }
    cpu().since.store(since, Ordering::Relaxed);
    if !core::ptr::eq(&*next, previous) {
        cpu().turn_end.store(0, Ordering::Relaxed);
    }
    start_slice(&next);
    if idled || !core::ptr::eq(&*next, previous) {
        trace_switch((!idled).then_some(previous), Some(&next));
    }
    if core::ptr::eq(&*next, previous) {
        unilith_thread_resumed(previous.local());
        return;
    }
    if !idled {
        previous.switches_away();
    }
    previous.fs_base.store(api_plat::fs_base(), Ordering::Relaxed);
    let to = next.context.get();
    take_over(&next);
    // The table keeps `next` alive from here on; a reference on this stack would leak if this thread never returns.
    drop(next);
    // SAFETY: both contexts belong to threads the table (or `leaving`) keeps alive, and `take_over` activated the
    // next one.
    unsafe { api_plat::switch(previous.context.get(), to) };
    arrived();
}

/// `None` is no thread.
#[inline]
fn trace_switch(previous: Option<&Thread>, next: Option<&Thread>) {
    if api_trace::is_on(Point::Switch) {
        let leaves = match previous.map(|t| t.state.load(Ordering::Relaxed)) {
            Some(PARKED) => Leaves::Sleeps,
            Some(DEAD) => Leaves::Ends,
            _ => Leaves::Preempted,
        };
        let (previous, next) = (previous.map(Thread::local), next.map(Thread::local));
        api_trace::hit(Event::Switch { previous, leaves, next });
    }
}

/// Adds the time since it got the processor to the thread's account, which rests from now on; answers the time.
fn charge(thread: &Thread) -> u64 {
    let now = api_plat::now_ns();
    let since = cpu().since.swap(u64::MAX, Ordering::Relaxed);
    thread.used_ns.fetch_add(now.saturating_sub(since), Ordering::Relaxed);
    now
}

/// What is not on the thread's account yet because it is running.
pub(crate) fn running_ns(thread: &Thread) -> u64 {
    match thread.on.load(Ordering::Relaxed) {
        NOWHERE => 0,
        on => api_plat::now_ns().saturating_sub(CPUS[on as usize].since.load(Ordering::Relaxed)),
    }
}

/// First thing a thread does when it got the processor: frees the one that ended before it.
fn arrived() {
    let leaving = cpu().leaving.load(Ordering::Relaxed);
    if !leaving.is_null() && !core::ptr::eq(leaving, &*current()) {
        cpu().leaving.store(core::ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: `exit_current` gave this reference away, and nothing runs on the thread's stack any more.
        drop(unsafe { Arc::from_raw(leaving) });
    }
}

/// Makes `next` the current thread, with its stack, FS base and extended state.
fn take_over(next: &Thread) {
    let cpu = cpu();
    let next_pointer = (next as *const Thread).cast_mut();
    // SAFETY: as in `current`; the first time there is none.
    if let Some(previous) = unsafe { cpu.current.load(Ordering::Relaxed).as_ref() } {
        previous.on.store(NOWHERE, Ordering::Relaxed);
    }
    cpu.current.store(next_pointer, Ordering::Relaxed);
    api_plat::set_thread(next_pointer as u64);
    next.on.store(api_plat::cpu(), Ordering::Relaxed);
    next.last.store(api_plat::cpu(), Ordering::Relaxed);
    // SAFETY: it is the stack of the thread that runs next.
    unsafe { api_plat::activate(next.stack.top(), next.fs_base.load(Ordering::Relaxed)) };
    // SAFETY: `next` is off the processor until the switch below, so its state is the scheduler's.
    let state = unsafe { &*next.fpu.get() };
    let owner = cpu.fpu_owner.load(Ordering::Relaxed);
    // The processor keeps the state of the last thread that has one. Where there are several processors, another one may run that thread
    // next: its state is saved in any case.
    if owner != next_pointer && (state.is_some() || several()) {
        if !owner.is_null() {
            // SAFETY: the owner is alive (ending clears the field) and off the processor.
            if let Some(old) = unsafe { &mut *(*owner).fpu.get() } {
                api_plat::save_fpu(old);
            }
        }
        let new = if state.is_some() { next_pointer } else { core::ptr::null_mut() };
        cpu.fpu_owner.store(new, Ordering::Relaxed);
        if let Some(state) = state {
            api_plat::load_fpu(state);
        }
    }
    unilith_thread_resumed(next.local());
}

unsafe extern "Rust" {
    /// The layer above learns that a thread with this local pointer runs next (pending signals ask for work).
    safe fn unilith_thread_resumed(local: *mut ());
    /// One of several processors has nothing to do: it keeps nothing of the process whose thread ran there last.
    safe fn unilith_processor_idles();
    /// Several processors are at work from here on.
    safe fn unilith_processors_admitted();
}

/// The slice of the thread that runs now or next.
fn start_slice(thread: &Thread) {
    let rank = thread.rank();
    let here = api_plat::cpu();
    // Who waits now would wait for long.
    let for_long = || rank.priority != 0 || unilith_sched_slice(rank).is_none();
    if are_others_out() && for_long() && unilith_sched_waiting(here) {
        admit_others();
    }
    cpu().share.begins(rank.priority, api_plat::now_ns);
    let slice = || match unilith_sched_slice(rank).unwrap_or(u64::MAX).min(thread.slice_limit()) {
        u64::MAX => u64::MAX,
        slice => (api_plat::now_ns() + slice).max(cpu().turn_end.load(Ordering::Relaxed)),
    };
    let end = match unilith_sched_rivals(here, rank) {
        Rivals::Better if rank.priority == 0 && cpu().share.others_until(api_plat::now_ns) != 0 => {
            slice().min(cpu().share.others_until(|| 0))
        }
        Rivals::None if rank.priority != 0 && unilith_sched_waiting(here) => cpu().share.preferred_until(),
        // Alone on the processor a thread needs no timer interrupt; `unpark` starts the slice when company comes.
        Rivals::None => u64::MAX,
        Rivals::Equal if rank.priority != 0 => slice().min(cpu().share.preferred_until()),
        Rivals::Equal => slice(),
        Rivals::Better => {
            cpu().slice_end.store(0, Ordering::Relaxed);
            return api_plat::request_work();
        }
    };
    cpu().slice_end.store(end, Ordering::Relaxed);
    arm(end);
}

/// The thread that runs now or next came at a price: threads that are no better than it wait until it has run for so long, in
/// nanoseconds. It would spend shorter turns on nothing but that price.
pub fn prolong_turn(nanoseconds: u64) {
    let end = api_plat::now_ns() + nanoseconds;
    cpu().turn_end.store(end, Ordering::Relaxed);
    let slice_end = cpu().slice_end.load(Ordering::Relaxed);
    // 0: a better one waits.
    if slice_end != 0 {
        cpu().slice_end.store(slice_end.max(end), Ordering::Relaxed);
    }
}

/// Somebody else waits for the processor now: is the running thread to make room, and when?
fn check_preempt() {
    // SAFETY: as in `current`; before the first thread runs there is none.
    if let Some(running) = unsafe { cpu().current.load(Ordering::Relaxed).as_ref() }
        && running.is_runnable()
    {
        let end = cpu().slice_end.load(Ordering::Relaxed);
        start_slice(running);
        // A slice that has begun goes on.
        let now = cpu().slice_end.load(Ordering::Relaxed);
        cpu().slice_end.store(now.min(end), Ordering::Relaxed);
    }
}

/// A thread has another rank: it, or the one that runs, may have to make room.
pub(crate) fn rank_changed(thread: &Thread) {
    unilith_sched_change(places(thread), thread.index, thread.rank());
    cpu().slice_end.store(u64::MAX, Ordering::Relaxed);
    check_preempt();
    if several() {
        others_reconsider(|_| true);
    }
}

/// A thread may run elsewhere: it leaves a processor that it may no longer be on, when that looks for work.
pub(crate) fn cpus_changed(thread: &Thread) {
    if thread.cpus() >> api_plat::cpu() & 1 == 0 {
        admit_others();
    }
    unilith_sched_change(places(thread), thread.index, thread.rank());
    if several() {
        // Who may take it from the queue now, or has to give it back.
        if !wake_idle(unilith_sched_waiting) {
            others_reconsider(unilith_sched_waiting);
        }
        thread.interrupt();
    }
}

/// Sets the hardware timer, if it is not set early enough already. Each timer is armed on the processor where it was added, or
/// where an earlier one of that processor's expired.
fn arm(deadline_ns: u64) {
    let cpu = cpu();
    if deadline_ns < cpu.timer_armed.load(Ordering::Relaxed) {
        cpu.timer_armed.store(deadline_ns, Ordering::Relaxed);
        api_plat::set_timer(deadline_ns);
    }
}

#[unsafe(no_mangle)]
fn unilith_sched_add_timer(deadline_ns: u64, callback: Arc<dyn Waiter>) -> TimerId {
    let (id, earliest) = TIMERS.add(deadline_ns, callback);
    if earliest {
        arm(deadline_ns);
    }
    id
}

#[unsafe(no_mangle)]
fn unilith_sched_cancel_timer(id: TimerId) {
    // The hardware timer stays: one interrupt for nothing costs less than setting it twice.
    TIMERS.cancel(id);
}

/// The hardware timer expired; interrupt context.
pub fn on_timer_interrupt() {
    cpu().timer_expired.store(true, Ordering::Release);
    api_plat::request_work();
}

fn run_timers() {
    let cpu = cpu();
    if cpu.timer_expired.swap(false, Ordering::Acquire) {
        cpu.timer_armed.store(u64::MAX, Ordering::Relaxed);
        TIMERS.expire(api_plat::now_ns());
        arm(TIMERS.earliest().unwrap_or(u64::MAX).min(cpu.slice_end.load(Ordering::Relaxed)));
    }
}

#[unsafe(no_mangle)]
fn unilith_sched_work() {
    work();
}

/// What waits to be done before the program goes on: deferred work, timers, preemption. Thread context.
pub fn work() {
    run_deferred_work();
    run_timers();
    if several() {
        let cpu = cpu();
        if cpu.reconsiders.swap(false, Ordering::Relaxed) {
            cpu.slice_end.store(u64::MAX, Ordering::Relaxed);
            check_preempt();
        }
        if !may_run(&current(), api_plat::cpu()) {
            enqueue_current(Place::Back);
            select_cpu(&current());
            return schedule();
        }
    }
    let now = api_plat::now_ns();
    if now >= cpu().slice_end.load(Ordering::Relaxed) {
        let (here, rank) = (api_plat::cpu(), current().rank());
        let share = &cpu().share;
        match unilith_sched_rivals(here, rank) {
            // It is their turn, and this one's slice among them.
            Rivals::Better if rank.priority == 0 && share.others_until(|| now) != 0 => {
                enqueue_current(Place::Back)
            }
            Rivals::None | Rivals::Equal if rank.priority != 0 && now >= share.preferred_until() => {
                if !share.is_used_up(unilith_sched_other_waits(here), now) {
                    return start_slice(&current());
                }
                enqueue_current(Place::Front);
            }
            // Another processor took them.
            Rivals::None => return cpu().slice_end.store(u64::MAX, Ordering::Relaxed),
            Rivals::Equal => enqueue_current(Place::Back),
            Rivals::Better => enqueue_current(Place::Front),
        }
        share_out();
        schedule();
    }
}
