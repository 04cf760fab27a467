// SPDX-License-Identifier: Apache-2.0 OR MIT
//! timer_create(2) and its family.

use abi::{Result, errno::*};
use alloc::sync::Arc;
use api_user::UserPtr;
use core::sync::atomic::{AtomicI32, Ordering::Relaxed};
use task::call::Call;
use task::pids::Pid;
use task::signals::{SIGALRM, SIGNALS};
use task::time::alarm::Alarm;
use task::time::clock::Clock;
use task::time::duration::{from_timespec, to_timespec};
use task::time::posix_timers::{Notify, PosixTimer};

const TIMER_ABSTIME: i32 = 1;
const SIGEV_SIGNAL: i32 = 0;
const SIGEV_NONE: i32 = 1;
const SIGEV_THREAD: i32 = 2;
const SIGEV_THREAD_ID: i32 = 4;

/// Most timers of a process: each takes kernel memory. (Linux counts them against RLIMIT_SIGPENDING.)
const MAX_TIMERS: usize = 16_384;

/// `struct sigevent`: value, signal and kind, thread id; 64 bytes in all.
fn read_notify(pointer: UserPtr<[u64; 8]>) -> Result<(Notify, u64)> {
    let [value, packed, thread, ..] = pointer.read()?;
    let (signal, kind) = (packed as i32, (packed >> 32) as i32);
    if kind != SIGEV_NONE && !(1..=SIGNALS).contains(&signal) {
        return Err(EINVAL);
    }
    let notify = match kind {
        SIGEV_NONE => Notify::Nothing,
        // SIGEV_THREAD is the C library's business; to the kernel it is a signal.
        SIGEV_SIGNAL | SIGEV_THREAD => Notify::Process(signal),
        SIGEV_THREAD_ID => {
            let tid = Pid::named(thread as i32).ok_or(EINVAL)?;
            task::current().process.task(tid).ok_or(EINVAL)?;
            Notify::Thread(signal, tid)
        }
        _ => return Err(EINVAL),
    };
    Ok((notify, value))
}

/// timer_create(2).
pub fn timer_create(call: &mut Call<'_>) -> Result<usize> {
    // All of it is read before anything is looked at.
    call.ptr::<[u64; 8]>(1).non_null().map(|event| event.read()).transpose()?;
    let clock = Clock::from_id(call.int(0))?;
    match clock {
        Clock::MonotonicRaw | Clock::RealtimeCoarse | Clock::MonotonicCoarse => return Err(EOPNOTSUPP),
        // What another process uses wakes nobody.
        Clock::OtherProcess(_) => return Err(EOPNOTSUPP),
        // Linux needs a clock device that wakes a sleeping machine.
        Clock::RealtimeAlarm | Clock::BoottimeAlarm => return Err(EOPNOTSUPP),
        _ => {}
    }
    let process = &task::current().process;
    // The clock of the calling thread stays its own when others look at the timer.
    let clock = if clock == Clock::Thread(Pid::NONE) { Clock::Thread(task::current().tid) } else { clock };
    clock.now(process)?;
    let event = call.ptr::<[u64; 8]>(1).non_null().map(read_notify).transpose()?;
    let id = {
        let mut timers = process.timers.posix.lock();
        if timers.len() >= MAX_TIMERS {
            return Err(EAGAIN);
        }
        // Ids go on where the last one ended, as on Linux: a search from the start would look at all timers.
        let id = loop {
            let id = process.timers.next_id.fetch_add(1, Relaxed) & i32::MAX;
            if !timers.contains_key(&id) {
                break id;
            }
        };
        // Without an event: SIGALRM with the id as its value (timer_create(2)).
        let (notify, value) = event.unwrap_or((Notify::Process(SIGALRM), id as u64));
        let timer = Arc::new_cyclic(|owner| PosixTimer {
            id,
            notify,
            value,
            overrun: AtomicI32::new(0),
            process: process.clone(),
            alarm: Alarm::new(clock, process.clone(), owner.clone()),
        });
        timers.insert(id, timer);
        id
    };
    if let Err(e) = call.ptr(2).write(id) {
        let removed = process.timers.posix.lock().remove(&id);
        drop(removed);
        return Err(e);
    }
    Ok(0)
}

fn timer(call: &Call<'_>) -> Result<Arc<PosixTimer>> {
    task::current().process.timers.posix.lock().get(&call.int(0)).cloned().ok_or(EINVAL)
}

/// `struct itimerspec`: period, then time left.
fn write(pointer: UserPtr<[i64; 4]>, (left, period): (u64, u64)) -> Result<()> {
    let ([a, b], [c, d]) = (to_timespec(period), to_timespec(left));
    pointer.write([a, b, c, d])
}

/// timer_settime(2).
pub fn timer_settime(call: &mut Call<'_>) -> Result<usize> {
    let new = call.ptr::<[i64; 4]>(2).non_null().ok_or(EINVAL)?;
    let [a, b, c, d] = new.read()?;
    let (period, time) = (from_timespec([a, b])?, from_timespec([c, d])?);
    // One that is switched off has no period.
    let period = if time == 0 { 0 } else { period };
    let timer = timer(call)?;
    timer.overrun.store(0, Relaxed);
    let absolute = call.int(1) & TIMER_ABSTIME != 0;
    let before = timer.alarm.set(time, period, absolute)?;
    if let Some(old) = call.ptr(3).non_null() {
        write(old, before)?;
    }
    Ok(0)
}

/// timer_gettime(2).
pub fn timer_gettime(call: &mut Call<'_>) -> Result<usize> {
    let timer = timer(call)?;
    write(call.ptr(1), timer.alarm.get())?;
    Ok(0)
}

/// timer_getoverrun(2).
pub fn timer_getoverrun(call: &mut Call<'_>) -> Result<usize> {
    Ok(timer(call)?.overrun.load(Relaxed) as usize)
}

/// timer_delete(2).
pub fn timer_delete(call: &mut Call<'_>) -> Result<usize> {
    let removed = task::current().process.timers.posix.lock().remove(&call.int(0));
    removed.map(|_| 0).ok_or(EINVAL)
}
