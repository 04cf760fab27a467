// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The wait for the host: descriptors that become ready, and the timer.
//!
//! A process has no interrupts for its devices. While the processor idles it waits in ppoll for them and for the
//! deadline; of several processors one waits for the descriptors, and the others for work. While the program computes, a
//! timer of the host ([`TICK`]) looks at the descriptors; it is armed only when somebody wants to know, and not while the
//! processor idles.

use crate::host::{self, POLLIN, PollFd, TimeSpec};
use crate::host_processes::MAX_HOST_PROCESSES as MAX_HOST;
use crate::processors;
use abi::errno::EAGAIN;
use api_plat::{MAX_CPUS, TrapFrame, upcall};
use core::sync::atomic::{
    AtomicBool, AtomicI16, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};
use plat_x86::cpu::{self, CPUS, Cpu};

/// Most watched descriptors: the console's two directions, line, networks, and volumes.
const MAX_WATCHED: usize = 3 + crate::arguments::NETWORKS + crate::arguments::VOLUMES;
/// How long a ready device waits at most while the program computes and packets keep coming.
const TICK: u64 = 1_000_000;
/// The same when there was nothing to notice for a while. A look is a signal, two calls and the host's timer, which in a
/// virtual machine is the hypervisor's: each millisecond it took 2 to 9 % of a program that computes (SQLite's inserts).
const LONGEST_TICK: u64 = 8_000_000;
/// The same while only the console is watched: a person.
const CONSOLE_TICK: u64 = 10_000_000;

/// Runs in interrupt context: touches atomics only.
pub type Handler = fn(usize);

struct Entry {
    fd: AtomicI32,
    /// What of it is watched (poll(2)).
    events: AtomicI16,
    armed: AtomicBool,
    handler: AtomicPtr<()>,
    data: AtomicUsize,
}

static ENTRIES: [Entry; MAX_WATCHED] = [const {
    Entry {
        fd: AtomicI32::new(-1),
        events: AtomicI16::new(0),
        armed: AtomicBool::new(false),
        handler: AtomicPtr::new(core::ptr::null_mut()),
        data: AtomicUsize::new(0),
    }
}; MAX_WATCHED];
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// A request to stop hit the tracer; the timer, which comes soon, passes it on.
pub static TRACED: AtomicBool = AtomicBool::new(false);
/// What each processor waits for. Its timer is in its block, for assembly.
struct Waits {
    /// When the kernel wants its interrupt; `u64::MAX` when it wants none.
    deadline: AtomicU64,
    state: AtomicU32,
}

/// In the kernel, in the program, or on the way.
const RUNS: u32 = 0;
/// In ppoll: signals wake it.
const POLLS: u32 = 1;
/// For nothing but work.
const SLEEPS: u32 = 2;

static WAITS: [Waits; MAX_CPUS] =
    [const { Waits { deadline: AtomicU64::new(u64::MAX), state: AtomicU32::new(RUNS) } }; MAX_CPUS];

/// When the timer of each processor in each host process expires; `u64::MAX` when it is off. Only that processor's thread in that host process
/// stores here, so the word and the host's timer cannot disagree: whoever takes the signal, the processor or the thread while it waits
/// for its turn, says that the timer is off.
static ARMED: [Armed; MAX_HOST] = [const { [const { AtomicU64::new(u64::MAX) }; MAX_CPUS] }; MAX_HOST];
type Armed = [AtomicU64; MAX_CPUS];

fn armed() -> &'static AtomicU64 {
    &ARMED[crate::host_processes::current()][api_plat::cpu() as usize]
}

/// The host process that the processor has come to arms its own timer, unless it still is.
pub fn arrive() {
    ensure(api_plat::now_ns());
}

/// The timer of host process `number` expired while that waited for its turn: nobody is interrupted, and on arrival it is armed anew.
pub fn expired_away(number: usize) {
    ARMED[number][api_plat::cpu() as usize].store(u64::MAX, Ordering::Relaxed);
}

fn here() -> &'static Waits {
    &WAITS[api_plat::cpu() as usize]
}

/// The processor that waits for the descriptors as well.
static DEFERRED_WORK: AtomicU32 = AtomicU32::new(NOBODY);
const NOBODY: u32 = u32::MAX;
/// Only the first processor is to.
static IS_FIRSTS: AtomicBool = AtomicBool::new(false);
/// When the next sample is taken; `u64::MAX` when none is.
static SAMPLE: AtomicU64 = AtomicU64::new(u64::MAX);
/// From one sample to the next.
static INTERVAL: AtomicU64 = AtomicU64::new(0);
/// Between two looks at the descriptors: doubled by one that finds nothing, [`TICK`] again after one that does.
static PERIOD: AtomicU64 = AtomicU64::new(TICK);

/// A descriptor that is watched.
#[derive(Clone, Copy, Debug)]
pub struct Watch(usize);

/// Watches `fd`, once armed, and then calls `handler(data)` once in interrupt context when it is readable.
pub fn watch(fd: i32, handler: Handler, data: usize) -> Watch {
    watch_for(POLLIN, fd, handler, data)
}

/// The same for other `events` of poll(2).
pub fn watch_for(events: i16, fd: i32, handler: Handler, data: usize) -> Watch {
    let index = COUNT.load(Ordering::Relaxed);
    // The arguments name no more devices than that.
    assert!(index < MAX_WATCHED, "more descriptors than devices");
    let entry = &ENTRIES[index];
    entry.fd.store(fd, Ordering::Relaxed);
    entry.events.store(events, Ordering::Relaxed);
    entry.data.store(data, Ordering::Relaxed);
    entry.handler.store(handler as *mut (), Ordering::Relaxed);
    COUNT.store(index + 1, Ordering::Release);
    Watch(index)
}

impl Watch {
    /// The handler is to be called, once, when the descriptor is ready, now or later.
    pub fn arm(&self) {
        let was_armed = ENTRIES[self.0].armed.swap(true, Ordering::Relaxed);
        match DEFERRED_WORK.load(Ordering::Relaxed) {
            NOBODY => ensure(api_plat::now_ns()),
            // It is to begin anew, with this one.
            work if !was_armed => api_plat::kick(work),
            _ => {}
        }
    }

    pub fn disarm(&self) {
        ENTRIES[self.0].armed.store(false, Ordering::Relaxed);
    }
}

/// Place for a [`Watch`] in a static.
pub struct Slot(AtomicUsize);

impl Slot {
    pub const fn new() -> Slot {
        Slot(AtomicUsize::new(usize::MAX))
    }

    pub fn set(&self, watch: Watch) {
        self.0.store(watch.0, Ordering::Relaxed);
    }

    pub fn get(&self) -> Option<Watch> {
        let index = self.0.load(Ordering::Relaxed);
        (index != usize::MAX).then_some(Watch(index))
    }
}

/// Makes the timer of the first processor; before anything sets it.
pub fn initialize() -> Result<(), &'static str> {
    const GETTID: u32 = 186;
    // SAFETY: asks for a number.
    let made = unsafe { host::call(GETTID, [0; 6]) }.and_then(|thread| new_timer(0, thread as u32));
    made.map_err(|_| "the host refuses a timer")
}

/// Makes the timer of processor `index`, which is that thread of the host. It has the processor's number in every host process,
/// because the block of the processor, where assembly looks for it, is the same in all: `EAGAIN` where the host counts otherwise.
pub fn new_timer(index: usize, thread: u32) -> abi::Result<()> {
    const SIGEV_THREAD_ID: u64 = 4;
    // `struct sigevent`: value; signal and kind of notification; the thread; the rest.
    let mut event = [0u64; 8];
    event[1] = u64::from(crate::signals::TIMER) | SIGEV_THREAD_ID << 32;
    event[2] = thread.into();
    let mut id = 0u32;
    let arguments = [host::CLOCK_MONOTONIC.into(), event.as_ptr() as u64, &raw mut id as u64, 0, 0, 0];
    // SAFETY: the host reads the structure and writes the number.
    unsafe { host::call(host::TIMER_CREATE, arguments)? };
    CPUS[index].timer.store(id, Ordering::Relaxed);
    if id as usize == index { Ok(()) } else { Err(EAGAIN) }
}

fn block() -> &'static Cpu {
    &CPUS[api_plat::cpu() as usize]
}

fn set_host_timer(after_ns: u64) {
    // Interval, then value; 0 turns it off.
    let times = [TimeSpec::default(), TimeSpec::of_ns(after_ns)];
    let arguments = [block().timer.load(Ordering::Relaxed).into(), 0, times.as_ptr() as u64, 0, 0, 0];
    // SAFETY: the host reads the structure.
    let _ = unsafe { host::call(host::TIMER_SETTIME, arguments) };
}

/// The timer of the host expires at `at` or before.
fn arm(at: u64, now: u64) {
    let armed = armed();
    if at < armed.load(Ordering::Relaxed) {
        armed.store(at, Ordering::Relaxed);
        set_host_timer(at.saturating_sub(now).max(1));
    }
}

/// Arms the timer for what is wanted while the program runs.
fn ensure(now: u64) {
    let mut at = here().deadline.load(Ordering::Relaxed).min(SAMPLE.load(Ordering::Relaxed));
    if DEFERRED_WORK.load(Ordering::Relaxed) != NOBODY {
        // Another processor hears of the descriptors at once.
        if at != u64::MAX {
            arm(at, now);
        }
        return;
    }
    let is_armed = |entry: &Entry| entry.armed.load(Ordering::Relaxed);
    // The first watch is the console's.
    let count = COUNT.load(Ordering::Acquire);
    if ENTRIES[1.min(count)..count].iter().any(is_armed) {
        at = at.min(now + PERIOD.load(Ordering::Relaxed));
    } else if ENTRIES[..1.min(count)].iter().any(is_armed) {
        at = at.min(now + CONSOLE_TICK);
    }
    if at != u64::MAX {
        arm(at, now);
    }
}

/// Nothing interrupts any more.
pub fn disarm() {
    armed().store(0, Ordering::Relaxed);
    set_host_timer(0);
}

#[unsafe(no_mangle)]
fn unilith_plat_set_timer(deadline_ns: u64) {
    here().deadline.store(deadline_ns, Ordering::Relaxed);
    if deadline_ns != u64::MAX {
        arm(deadline_ns, api_plat::now_ns());
    }
}

#[unsafe(no_mangle)]
fn unilith_plat_set_sampling(interval_ns: u64) {
    INTERVAL.store(interval_ns, Ordering::Relaxed);
    let now = api_plat::now_ns();
    let first = if interval_ns == 0 { u64::MAX } else { now + interval_ns };
    SAMPLE.store(first, Ordering::Relaxed);
    ensure(now);
}

/// Looks at the code that was hit, if it is time.
fn sample(now: u64, hit: &TrapFrame) {
    if now >= SAMPLE.load(Ordering::Relaxed) {
        // Samples that were missed are not made up for.
        SAMPLE.store(now + INTERVAL.load(Ordering::Relaxed), Ordering::Relaxed);
        upcall::unilith_kernel_sample(hit);
    }
}

fn expire(now: u64) {
    let deadline = &here().deadline;
    if now >= deadline.load(Ordering::Relaxed) {
        deadline.store(u64::MAX, Ordering::Relaxed);
        upcall::unilith_kernel_timer();
    }
}

/// The timer of the host expired, and hit this code; interrupt context.
pub fn tick(hit: &TrapFrame) {
    armed().store(u64::MAX, Ordering::Relaxed);
    if TRACED.swap(false, Ordering::Relaxed) {
        crate::console::stop();
    }
    if here().state.load(Ordering::Relaxed) != RUNS {
        // The wait comes back and does the rest.
        return;
    }
    if DEFERRED_WORK.load(Ordering::Relaxed) == NOBODY && !(processors::several() && wake_a_poller()) {
        look();
    }
    let now = crate::clock::now_in_signal();
    sample(now, hit);
    expire(now);
    ensure(now);
}

/// Looks at the descriptors.
fn look() {
    let mut ready = Ready::gather();
    if !ready.is_empty() {
        let found = host::poll(ready.descriptors(), Some(TimeSpec::default())).is_ok_and(|n| n > 0);
        let period = if found { TICK } else { (PERIOD.load(Ordering::Relaxed) * 2).min(LONGEST_TICK) };
        PERIOD.store(period, Ordering::Relaxed);
        ready.call();
    }
}

/// The one that waited for the descriptors has been away for a while: one that has nothing to do takes that over.
fn wake_a_poller() -> bool {
    let sleeper = (0..api_plat::cpus()).find(|cpu| sleeps(*cpu as usize));
    sleeper.is_some_and(|cpu| {
        api_plat::kick(cpu);
        true
    })
}

/// The first processor waits for the descriptors from here on, until [`leave_to_all`]; false while another one does still, which was
/// told. With the kernel's lock, on that processor.
pub fn leave_to_the_first() -> bool {
    IS_FIRSTS.store(true, Ordering::Relaxed);
    match DEFERRED_WORK.load(Ordering::Relaxed) {
        NOBODY | 0 => true,
        other => {
            api_plat::kick(other);
            false
        }
    }
}

/// Any processor may wait for them.
pub fn leave_to_all() {
    IS_FIRSTS.store(false, Ordering::Relaxed);
}

/// The processor waits for nothing but work.
pub fn sleeps(index: usize) -> bool {
    WAITS[index].state.load(Ordering::SeqCst) == SLEEPS
}

/// The armed descriptors.
struct Ready {
    descriptors: [PollFd; MAX_WATCHED],
    entries: [u8; MAX_WATCHED],
    count: usize,
}

impl Ready {
    fn nothing() -> Ready {
        Ready { descriptors: [PollFd::default(); MAX_WATCHED], entries: [0; MAX_WATCHED], count: 0 }
    }

    fn gather() -> Ready {
        let mut out = Ready::nothing();
        for (i, entry) in ENTRIES[..COUNT.load(Ordering::Acquire)].iter().enumerate() {
            if entry.armed.load(Ordering::Relaxed) {
                let fd = entry.fd.load(Ordering::Relaxed);
                out.descriptors[out.count] =
                    PollFd { fd, events: entry.events.load(Ordering::Relaxed), revents: 0 };
                out.entries[out.count] = i as u8;
                out.count += 1;
            }
        }
        out
    }

    fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn descriptors(&mut self) -> &mut [PollFd] {
        &mut self.descriptors[..self.count]
    }

    /// Calls the handlers of those that are ready, ended or broken.
    fn call(&self) {
        for (descriptor, index) in self.descriptors.iter().zip(self.entries).take(self.count) {
            if descriptor.revents == 0 {
                continue;
            }
            let entry = &ENTRIES[usize::from(index)];
            entry.armed.store(false, Ordering::Relaxed);
            // SAFETY: only `watch` stores there, and it stores a `Handler`.
            let handler: Handler = unsafe { core::mem::transmute(entry.handler.load(Ordering::Relaxed)) };
            handler(entry.data.load(Ordering::Relaxed));
        }
    }
}

/// A wait of this length is a pause, in which memory that is not needed goes back to the host.
const PAUSE: u64 = 10_000_000;
/// At most this often.
const PAUSES: u64 = 1_000_000_000;
static NEXT_PAUSE: AtomicU64 = AtomicU64::new(0);
/// Something ran since memory last went back.
static RAN: AtomicBool = AtomicBool::new(true);

/// The machine is about to wait until `deadline`; answers when to come back for the memory that cannot go yet, `u64::MAX` when
/// there is none.
fn pause(now: u64, deadline: u64) -> u64 {
    if deadline.saturating_sub(now) < PAUSE || !RAN.load(Ordering::Relaxed) {
        return u64::MAX;
    }
    let next = NEXT_PAUSE.load(Ordering::Relaxed);
    if now < next {
        return next;
    }
    NEXT_PAUSE.store(now + PAUSES, Ordering::Relaxed);
    RAN.store(false, Ordering::Relaxed);
    crate::host_processes::forget_archive();
    u64::MAX
}

unsafe extern "C" {
    /// ppoll, unless work is wanted; the result as the host gives it.
    fn unilith_wait(descriptors: *mut PollFd, count: usize, timeout: *mut TimeSpec) -> i64;
}

#[unsafe(no_mangle)]
fn unilith_plat_idle() {
    // A tick that was armed for the program ends the wait early, for nothing.
    while !cpu::work_is_wanted() {
        // One waits for the descriptors; the others would all be woken by each packet.
        let polls = DEFERRED_WORK.load(Ordering::Relaxed) == NOBODY
            && (api_plat::cpu() == 0 || !IS_FIRSTS.load(Ordering::Relaxed));
        let mut ready = if polls { Ready::gather() } else { Ready::nothing() };
        let here = here();
        let deadline = here.deadline.load(Ordering::Relaxed);
        let now = api_plat::now_ns();
        let mut until = deadline;
        if polls {
            until = until.min(pause(now, deadline));
            DEFERRED_WORK.store(api_plat::cpu(), Ordering::Relaxed);
        }
        let limit = (until != u64::MAX).then(|| TimeSpec::of_ns(until.saturating_sub(now)));
        here.state.store(if polls { POLLS } else { SLEEPS }, Ordering::SeqCst);
        let several = processors::several();
        if several {
            processors::unilith_kernel_unlock();
        }
        let mut found = 0;
        if polls {
            let mut limit = limit;
            let limit = limit.as_mut().map_or(core::ptr::null_mut(), core::ptr::from_mut);
            // SAFETY: both are ours, and the host writes to them only.
            found = unsafe { unilith_wait(ready.descriptors.as_mut_ptr(), ready.count, limit) };
        } else {
            processors::sleep(limit);
        }
        if several {
            processors::unilith_kernel_lock();
        }
        here.state.store(RUNS, Ordering::SeqCst);
        if polls {
            DEFERRED_WORK.store(NOBODY, Ordering::Relaxed);
        }
        if found > 0 {
            ready.call();
        }
        if deadline != u64::MAX {
            expire(api_plat::now_ns());
        }
    }
    RAN.store(true, Ordering::Relaxed);
    ensure(api_plat::now_ns());
    crate::clock::improve();
}
