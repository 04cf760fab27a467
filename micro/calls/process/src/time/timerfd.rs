// SPDX-License-Identifier: Apache-2.0 OR MIT
//! timerfd_create(2): timers read from a descriptor.

use abi::{Events, Result, errno::*};
use alloc::sync::Arc;
use api_fs::{File, FileType, Sink, Stat};
use api_sched::WaitQueue;
use api_user::UserPtr;
use core::any::Any;
use task::call::Call;
use task::files::{self, O_CLOEXEC};
use task::process::Process;
use task::time::alarm::{Alarm, Expires};
use task::time::clock::Clock;
use task::time::duration::{from_timespec, to_timespec};

const O_NONBLOCK: u32 = 0o4000;
const O_RDWR: u32 = 2;
const TFD_TIMER_ABSTIME: i32 = 1;
/// The wall clock is never set, so there is nothing that cancels.
const TFD_TIMER_CANCEL_ON_SET: i32 = 2;

/// The file.
pub struct TimerFd {
    alarm: Alarm,
    queue: WaitQueue,
}

impl TimerFd {
    fn new(clock: Clock, process: &Arc<Process>) -> Arc<TimerFd> {
        Arc::new_cyclic(|file| TimerFd {
            alarm: Alarm::new(clock, process.clone(), file.clone()),
            queue: WaitQueue::new(),
        })
    }
}

impl Expires for TimerFd {
    fn expired(&self) {
        if self.alarm.has_expired() {
            self.queue.wake(Events::READABLE);
        }
    }
}

impl File for TimerFd {
    fn anonymous_name(&self) -> &'static str {
        "[timerfd]"
    }

    fn read(&self, _: u64, to: &mut Sink<'_>) -> Result<usize> {
        if to.remaining() < size_of::<u64>() {
            return Err(EINVAL);
        }
        match self.alarm.fetch() {
            0 => Err(EAGAIN),
            count => to.put(&count.to_ne_bytes()),
        }
    }

    fn can_write(&self) -> bool {
        false
    }

    fn stat(&self) -> Result<Stat> {
        Ok(Stat::new(FileType::Anonymous, 0o600))
    }

    fn poll(&self) -> Events {
        Events::NONE.with(Events::IN, self.alarm.is_due())
    }

    fn wait_queue(&self) -> Option<&WaitQueue> {
        Some(&self.queue)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// timerfd_create(2).
pub fn timerfd_create(call: &mut Call<'_>) -> Result<usize> {
    let flags = call.flags(1, O_CLOEXEC | O_NONBLOCK)?;
    let clock = match Clock::from_id(call.int(0)) {
        Ok(clock @ (Clock::Realtime | Clock::Monotonic | Clock::Boottime)) => clock,
        // A machine that never sleeps needs no waking.
        Ok(clock @ (Clock::RealtimeAlarm | Clock::BoottimeAlarm)) => clock,
        _ => return Err(EINVAL),
    };
    let file = TimerFd::new(clock, &task::current().process);
    files::current().install(file, flags | O_RDWR).map(|fd| fd as usize)
}

/// Calls `with` on the timer behind the descriptor.
fn with_timer<T>(fd: i32, with: impl FnOnce(&TimerFd) -> Result<T>) -> Result<T> {
    let description = files::get(fd)?;
    with(description.file().as_any().downcast_ref::<TimerFd>().ok_or(EINVAL)?)
}

/// `struct itimerspec`: period, then time left.
fn write(pointer: UserPtr<[i64; 4]>, (left, period): (u64, u64)) -> Result<()> {
    let ([a, b], [c, d]) = (to_timespec(period), to_timespec(left));
    pointer.write([a, b, c, d])
}

/// timerfd_settime(2).
pub fn timerfd_settime(call: &mut Call<'_>) -> Result<usize> {
    let [a, b, c, d] = call.ptr::<[i64; 4]>(2).read()?;
    let flags = call.int(1);
    if flags & !(TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET) != 0 {
        return Err(EINVAL);
    }
    let (period, time) = (from_timespec([a, b])?, from_timespec([c, d])?);
    let absolute = flags & TFD_TIMER_ABSTIME != 0;
    let before = with_timer(call.int(0), |timer| timer.alarm.set(time, period, absolute))?;
    if let Some(old) = call.ptr(3).non_null() {
        write(old, before)?;
    }
    Ok(0)
}

/// timerfd_gettime(2).
pub fn timerfd_gettime(call: &mut Call<'_>) -> Result<usize> {
    let now = with_timer(call.int(0), |timer| Ok(timer.alarm.get()))?;
    write(call.ptr(1), now)?;
    Ok(0)
}
