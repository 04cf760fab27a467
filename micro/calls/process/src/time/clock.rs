// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The calls that read a clock or set it.

use crate::children;
use abi::{Events, Result, errno::*};
use alloc::sync::Arc;
use api_sched::Waiter;
use api_user::UserPtr;
use task::call::Call;
use task::identity::capabilities::CAP_SYS_TIME;
use task::process::Process;
use task::time::clock::{Clock, realtime_ns};
use task::time::duration::{self, SECOND, to_timespec, to_timeval};
use task::{Task, cpu_time, processes};

/// Clock ticks of times(2) a second (USER_HZ).
const TICKS_PER_SECOND: u64 = 100;

/// As far as the wall clock may be set: 30 years before its nanoseconds overflow (Linux' TIME_SETTOD_SEC_MAX).
const LATEST: u64 = (i64::MAX as u64 / SECOND - 30 * 365 * 24 * 3600) * SECOND;

fn process() -> Arc<Process> {
    task::current().process.clone()
}

/// clock_gettime(2).
pub fn clock_gettime(call: &mut Call<'_>) -> Result<usize> {
    let clock = Clock::from_id(call.int(0))?;
    let caller = task::current();
    let now = clock.now(&caller.process)?.saturating_add_signed(clock.offset(&caller.process));
    call.ptr(1).write(to_timespec(now))?;
    Ok(0)
}

/// clock_getres(2).
pub fn clock_getres(call: &mut Call<'_>) -> Result<usize> {
    let clock = Clock::from_id(call.int(0))?;
    // Of a thread or process that is no more there is no clock.
    clock.now(&process())?;
    if let Some(pointer) = call.ptr(1).non_null() {
        pointer.write(to_timespec(clock.resolution()))?;
    }
    Ok(0)
}

/// clock_settime(2). The machine starts with the host's time, and the program may change it; a clock of processor time
/// is set by nobody.
pub fn clock_settime(call: &mut Call<'_>) -> Result<usize> {
    let clock = Clock::from_id(call.int(0))?;
    // Of the clocks of processor time only those that are named by a number refuse it in these words.
    let named = clock.is_cpu() && call.int(0) < 0;
    if clock != Clock::Realtime && !named {
        return Err(EINVAL);
    }
    let words = call.ptr::<[i64; 2]>(1).read()?;
    if named {
        // `EINVAL` where the number is nobody's.
        clock.now(&process())?;
        return Err(EPERM);
    }
    set_realtime(duration::from_timespec(words)?)
}

/// Sets the wall clock: `EPERM` without CAP_SYS_TIME, `EINVAL` for a time that puts the machine's start before 1970.
fn set_realtime(time: u64) -> Result<usize> {
    if !task::current().credentials().lock().can(CAP_SYS_TIME) {
        return Err(EPERM);
    }
    let wall = time.checked_sub(api_plat::now_ns()).filter(|_| time <= LATEST).ok_or(EINVAL)?;
    api_plat::set_wall_ns(wall);
    task::time::alarm::clock_was_set();
    // Who sleeps until a time of day looks again how long that is.
    for process in processes::all() {
        for thread in process.tasks().filter_map(|task| task.thread()) {
            thread.wake(Events::NONE);
        }
    }
    Ok(0)
}

/// gettimeofday(2).
pub fn gettimeofday(call: &mut Call<'_>) -> Result<usize> {
    if let Some(pointer) = call.ptr(0).non_null() {
        pointer.write(to_timeval(realtime_ns()))?;
    }
    if let Some(zone) = call.ptr::<[i32; 2]>(1).non_null() {
        zone.write([0, 0])?;
    }
    Ok(0)
}

/// settimeofday(2); the time zone is not kept.
pub fn settimeofday(call: &mut Call<'_>) -> Result<usize> {
    let time = call
        .ptr::<[i64; 2]>(0)
        .non_null()
        .map(|pointer| duration::from_timeval(pointer.read()?))
        .transpose()?;
    if let Some(zone) = call.ptr::<[i32; 2]>(1).non_null() {
        zone.read()?;
    }
    time.map_or(Ok(0), set_realtime)
}

/// time(2).
pub fn time(call: &mut Call<'_>) -> Result<usize> {
    let seconds = (realtime_ns() / SECOND) as i64;
    if let Some(pointer) = call.ptr(0).non_null() {
        pointer.write(seconds)?;
    }
    Ok(seconds as usize)
}

/// `struct timex` has 208 bytes.
type Timex = [u64; 26];

/// adjtimex(2).
pub fn adjtimex(call: &mut Call<'_>) -> Result<usize> {
    adjust(call.ptr(0))
}

/// clock_adjtime(2).
pub fn clock_adjtime(call: &mut Call<'_>) -> Result<usize> {
    call.ptr::<Timex>(1).read()?;
    match Clock::from_id(call.int(0)) {
        // One of processor time is not adjusted, whosever it is.
        Err(_) if Clock::is_of_processor(call.int(0)) => Err(EOPNOTSUPP),
        Err(error) => Err(error),
        Ok(Clock::Realtime) => adjust(call.ptr(1)),
        _ => Err(EOPNOTSUPP),
    }
}

/// Reading the state works; the host adjusts the clock, so changing it is not permitted.
fn adjust(pointer: UserPtr<Timex>) -> Result<usize> {
    /// `time_state`: no leap second, and the clock is synchronised by nobody here.
    const TIME_ERROR: usize = 5;
    const STA_UNSYNC: u64 = 0x40;
    const MAX_ERROR_US: u64 = 16_000_000;
    const TICK_US: u64 = 10_000;
    let modes = pointer.read()?[0] as u32;
    if modes != 0 {
        return Err(EPERM);
    }
    let mut timex: Timex = [0; 26];
    // modes, offset, freq, maxerror, esterror, status, constant, precision, tolerance, time, tick…
    timex[3] = MAX_ERROR_US;
    timex[4] = MAX_ERROR_US;
    timex[5] = STA_UNSYNC;
    timex[7] = 1;
    let [seconds, microseconds] = to_timeval(realtime_ns());
    timex[9] = seconds as u64;
    timex[10] = microseconds as u64;
    timex[11] = TICK_US;
    pointer.write(timex)?;
    Ok(TIME_ERROR)
}

fn ticks(ns: u64) -> u64 {
    ns / (SECOND / TICKS_PER_SECOND)
}

/// times(2).
pub fn times(call: &mut Call<'_>) -> Result<usize> {
    if let Some(pointer) = call.ptr::<[u64; 4]>(0).non_null() {
        cpu_time::start();
        let usage = process().usage();
        let children = *process().family.children_used.lock();
        pointer.write([usage.user_ns, usage.system_ns, children.user_ns, children.system_ns].map(ticks))?;
    }
    Ok(ticks(api_plat::now_ns()) as usize)
}

/// getrusage(2). There is neither a disk nor swap to count.
pub fn getrusage(call: &mut Call<'_>) -> Result<usize> {
    const RUSAGE_SELF: i32 = 0;
    const RUSAGE_CHILDREN: i32 = -1;
    const RUSAGE_THREAD: i32 = 1;
    let current: &Task = &task::current();
    cpu_time::start();
    let family = &current.process.family;
    let (used, peak) = match call.int(0) {
        RUSAGE_SELF => (current.process.usage(), task::children::peak_of(&current.process)),
        // The largest memory is the process' for a thread as well.
        RUSAGE_THREAD => (current.usage(), task::children::peak_of(&current.process)),
        RUSAGE_CHILDREN => {
            (*family.children_used.lock(), family.children_peak.load(core::sync::atomic::Ordering::Relaxed))
        }
        _ => return Err(EINVAL),
    };
    call.ptr(1).write(children::rusage(&used, peak))?;
    Ok(0)
}
