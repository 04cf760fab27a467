// SPDX-License-Identifier: Apache-2.0 OR MIT
//! nanosleep(2) and clock_nanosleep(2).

use abi::{Result, errno::*};
use api_user::UserPtr;
use task::call::Call;
use task::pids::Pid;
use task::time::clock::Clock;
use task::time::duration::{read_timespec, to_timespec};
use task::wait::{self, RESTART_NO_HANDLER};

const TIMER_ABSTIME: i32 = 1;

/// nanosleep(2).
pub fn nanosleep(call: &mut Call<'_>) -> Result<usize> {
    sleep(Clock::Monotonic, read_timespec(call.ptr(0))?, call.ptr(1))
}

/// clock_nanosleep(2).
pub fn clock_nanosleep(call: &mut Call<'_>) -> Result<usize> {
    let clock = Clock::from_id(call.int(0))?;
    match clock {
        Clock::Realtime | Clock::Monotonic | Clock::Boottime | Clock::Tai => {}
        Clock::Process | Clock::ProcessUser => {}
        // CLOCK_THREAD_CPUTIME_ID.
        Clock::Thread(Pid::NONE) if call.int(0) > 0 => return Err(EOPNOTSUPP),
        // A thread cannot sleep until it has used processor time itself.
        Clock::Thread(Pid::NONE) | Clock::ThreadUser(Pid::NONE) => return Err(EINVAL),
        Clock::Thread(tid) | Clock::ThreadUser(tid) if tid == task::current().tid => return Err(EINVAL),
        Clock::Thread(_) | Clock::ThreadUser(_) => {}
        Clock::OtherProcess(_) => {}
        _ => return Err(EOPNOTSUPP),
    }
    let time = read_timespec(call.ptr(2))?;
    if let Clock::OtherProcess(_) = clock {
        // What another process uses wakes nobody here; of none there is no clock.
        return clock.now(&task::current().process).and(Err(EOPNOTSUPP));
    }
    if call.int(1) & TIMER_ABSTIME == 0 {
        return sleep(clock, time, call.ptr(3));
    }
    let time = clock.from_shown(time, &task::current().process);
    if sleep_until(clock, time)? { Ok(0) } else { Err(RESTART_NO_HANDLER) }
}

/// Sleeps for `time`; what is left goes to `remaining` when a signal comes first.
fn sleep(clock: Clock, time: u64, remaining: UserPtr<[i64; 2]>) -> Result<usize> {
    let process = &task::current().process;
    let clock = clock.for_relative();
    let until = match task::current().signals.take_resume() {
        Some(until) => until,
        None => clock.now(process)?.saturating_add(time),
    };
    if sleep_until(clock, until)? {
        return Ok(0);
    }
    if let Some(pointer) = remaining.non_null() {
        pointer.write(to_timespec(until.saturating_sub(clock.now(process)?)))?;
    }
    Err(wait::interrupted(until))
}

/// False when a signal came first.
fn sleep_until(clock: Clock, time: u64) -> Result<bool> {
    let process = &task::current().process;
    loop {
        if clock.now(process)? >= time {
            return Ok(true);
        }
        if task::current().has_signal() {
            return Ok(false);
        }
        // Looked at again after each wake-up: the wall clock may be set, one of processor time may have stood still.
        sched::park(clock.to_monotonic(time, process));
    }
}
