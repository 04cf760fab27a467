// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The clocks of clock_gettime(2), and the calls that read one.

use super::duration::{self, SECOND, to_timespec, to_timeval};
use crate::call::Call;
use crate::calls::children;
use crate::calls::identity::capabilities::CAP_SYS_TIME;
use crate::cpu_time;
use crate::pids::Pid;
use crate::process::Process;
use crate::processes;
use crate::task::{self, Task};
use abi::{Events, Result, errno::*};
use alloc::sync::Arc;
use api_sched::Waiter;
use api_user::UserPtr;

/// Linux' tick, the resolution of the coarse clocks.
const TICK_NS: u64 = 4_000_000;
/// Clock ticks of times(2) a second (USER_HZ).
const TICKS_PER_SECOND: u64 = 100;

/// As far as the wall clock may be set: 30 years before its nanoseconds overflow (Linux' TIME_SETTOD_SEC_MAX).
const LATEST: u64 = (i64::MAX as u64 / SECOND - 30 * 365 * 24 * 3600) * SECOND;

/// A clock, as programs name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    Realtime,
    Monotonic,
    MonotonicRaw,
    RealtimeCoarse,
    MonotonicCoarse,
    Boottime,
    RealtimeAlarm,
    BoottimeAlarm,
    Tai,
    /// Processor time of the process.
    Process,
    /// Processor time of another process; it can be read.
    OtherProcess(Pid),
    /// Processor time of the process outside of the kernel.
    ProcessUser,
    /// Processor time of the thread with this id; 0: the caller.
    Thread(Pid),
    /// The same, outside of the kernel.
    ThreadUser(Pid),
}

impl Clock {
    /// From a `clockid_t`. Negative ones name the processor time of a process or thread
    /// (`include/linux/posix-timers_types.h`): the inverted id, a bit for threads, two bits for the kind.
    pub fn from_id(id: i32) -> Result<Clock> {
        Clock::decode(id, Pid::named)
    }

    fn decode(id: i32, named: impl Fn(i32) -> Option<Pid>) -> Result<Clock> {
        const PER_THREAD: i32 = 4;
        const KIND: i32 = 3;
        const USER: i32 = 1;
        const FILE: i32 = 3;
        // 0 is the caller itself.
        let named = |number| if number == 0 { Ok(Pid::NONE) } else { named(number).ok_or(EINVAL) };
        Ok(match id {
            0 => Clock::Realtime,
            1 => Clock::Monotonic,
            2 => Clock::Process,
            3 => Clock::Thread(Pid::NONE),
            4 => Clock::MonotonicRaw,
            5 => Clock::RealtimeCoarse,
            6 => Clock::MonotonicCoarse,
            7 => Clock::Boottime,
            8 => Clock::RealtimeAlarm,
            9 => Clock::BoottimeAlarm,
            11 => Clock::Tai,
            // A file that is a clock: there are none.
            _ if id >= 0 || id & KIND == FILE => return Err(EINVAL),
            _ if id & PER_THREAD != 0 && id & KIND == USER => Clock::ThreadUser(named(!(id >> 3))?),
            _ if id & PER_THREAD != 0 => Clock::Thread(named(!(id >> 3))?),
            _ => match !(id >> 3) {
                pid if pid != 0 && pid != task::current().process.number => Clock::OtherProcess(named(pid)?),
                _ if id & KIND == USER => Clock::ProcessUser,
                _ => Clock::Process,
            },
        })
    }

    /// Counts processor time: it stands still while nothing runs.
    pub fn is_cpu(self) -> bool {
        use Clock::{OtherProcess, Process, ProcessUser, Thread, ThreadUser};
        matches!(self, Process | OtherProcess(_) | ProcessUser | Thread(_) | ThreadUser(_))
    }

    /// Since 1970, since boot, or of processor time, in nanoseconds. `EINVAL` for a thread that is no more.
    pub fn now(self, process: &Process) -> Result<u64> {
        Ok(match self {
            // The coarse ones are as fine as the others, here and in the vDSO: a reader of both sees them go one way.
            Clock::Realtime | Clock::RealtimeAlarm | Clock::RealtimeCoarse | Clock::Tai => realtime_ns(),
            Clock::Monotonic
            | Clock::MonotonicRaw
            | Clock::MonotonicCoarse
            | Clock::Boottime
            | Clock::BoottimeAlarm => api_plat::now_ns(),
            Clock::Process => process.cpu_ns(),
            Clock::OtherProcess(pid) => processes::find(pid).ok_or(EINVAL)?.cpu_ns(),
            Clock::Thread(Pid::NONE) => task::current().cpu_ns(),
            Clock::Thread(tid) => process.task(tid).ok_or(EINVAL)?.cpu_ns(),
            Clock::ProcessUser => {
                cpu_time::start();
                process.usage().user_ns
            }
            Clock::ThreadUser(tid) => {
                cpu_time::start();
                let tid = if tid == Pid::NONE { task::current().tid } else { tid };
                process.task(tid).ok_or(EINVAL)?.usage().user_ns
            }
        })
    }

    /// When the monotonic clock may at the earliest show what this clock shows at `time`.
    pub fn to_monotonic(self, time: u64, process: &Process) -> u64 {
        match self {
            Clock::Realtime | Clock::RealtimeAlarm | Clock::RealtimeCoarse | Clock::Tai => {
                time.saturating_sub(api_plat::wall_ns())
            }
            clock if clock.is_cpu() => match self.now(process) {
                Ok(now) => api_plat::now_ns().saturating_add(time.saturating_sub(now)),
                Err(_) => u64::MAX,
            },
            _ => time,
        }
    }

    /// The clock that a relative time on this one is counted by: one that is never set.
    pub fn for_relative(self) -> Clock {
        match self {
            Clock::Realtime | Clock::RealtimeAlarm | Clock::Tai => Clock::Monotonic,
            clock => clock,
        }
    }

    fn resolution(self) -> u64 {
        if matches!(self, Clock::RealtimeCoarse | Clock::MonotonicCoarse) { TICK_NS } else { 1 }
    }
}

/// Nanoseconds since 1970.
pub fn realtime_ns() -> u64 {
    api_plat::wall_ns() + api_plat::now_ns()
}

fn process() -> &'static Arc<Process> {
    &task::current().process
}

/// clock_gettime(2).
pub fn clock_gettime(call: &mut Call<'_>) -> Result<usize> {
    let now = Clock::from_id(call.int(0))?.now(process())?;
    call.ptr(1).write(to_timespec(now))?;
    Ok(0)
}

/// clock_getres(2).
pub fn clock_getres(call: &mut Call<'_>) -> Result<usize> {
    let clock = Clock::from_id(call.int(0))?;
    // Of a thread or process that is no more there is no clock.
    clock.now(process())?;
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
        clock.now(process())?;
        return Err(EPERM);
    }
    set_realtime(duration::from_timespec(words)?)
}

/// Sets the wall clock: `EPERM` without CAP_SYS_TIME, `EINVAL` for a time that puts the machine's start before 1970.
fn set_realtime(time: u64) -> Result<usize> {
    if !crate::task::current().credentials().lock().can(CAP_SYS_TIME) {
        return Err(EPERM);
    }
    let wall = time.checked_sub(api_plat::now_ns()).filter(|_| time <= LATEST).ok_or(EINVAL)?;
    api_plat::set_wall_ns(wall);
    super::alarm::clock_was_set();
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
    match Clock::from_id(call.int(0))? {
        Clock::Realtime => adjust(call.ptr(1)),
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
    let current: &Task = task::current();
    cpu_time::start();
    let family = &current.process.family;
    let (used, peak) = match call.int(0) {
        RUSAGE_SELF => (current.process.usage(), children::peak_of(&current.process)),
        // The largest memory is the process' for a thread as well.
        RUSAGE_THREAD => (current.usage(), children::peak_of(&current.process)),
        RUSAGE_CHILDREN => {
            (*family.children_used.lock(), family.children_peak.load(core::sync::atomic::Ordering::Relaxed))
        }
        _ => return Err(EINVAL),
    };
    call.ptr(1).write(children::rusage(&used, peak))?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_ids_are_those_of_linux() {
        use abi::linux::general as linux;
        let of = |id: u32| Clock::from_id(id as i32);
        assert_eq!(of(linux::CLOCK_REALTIME), Ok(Clock::Realtime));
        assert_eq!(of(linux::CLOCK_THREAD_CPUTIME_ID), Ok(Clock::Thread(Pid::NONE)));
        assert_eq!(of(linux::CLOCK_MONOTONIC_COARSE), Ok(Clock::MonotonicCoarse));
        assert_eq!(of(linux::CLOCK_TAI), Ok(Clock::Tai));
        assert_eq!(of(linux::CLOCK_SGI_CYCLE), Err(EINVAL));
        assert_eq!(of(99), Err(EINVAL));
    }

    #[test]
    fn processor_time_of_a_thread_is_named_by_a_negative_id() {
        // pthread_getcpuclockid of thread 7: CPUCLOCK_SCHED (2) with the bit for threads (4).
        let named = |number| Some(Pid::from_machine(number));
        let seven = Pid::from_machine(7);
        assert_eq!(Clock::decode(!7 << 3 | 4 | 2, named), Ok(Clock::Thread(seven)));
        assert_eq!(Clock::decode(!7 << 3 | 4 | 1, named), Ok(Clock::ThreadUser(seven)));
        assert_eq!(Clock::decode(!7 << 3 | 4 | 2, |_| None), Err(EINVAL));
        assert_eq!(Clock::from_id(!5 << 3 | 3), Err(EINVAL));
    }

    #[test]
    fn the_structures_have_the_sizes_of_linux() {
        assert_eq!(size_of::<abi::linux::general::rusage>(), size_of::<[i64; 18]>());
    }
}
