// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The clocks of clock_gettime(2).

use super::namespace;
use crate::pids::Pid;
use crate::process::Process;
use crate::{cpu_time, processes, thread};
use abi::{Result, errno::*};

/// Linux' tick, the resolution of the coarse clocks.
const TICK_NS: u64 = 4_000_000;

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

    /// Whether the id is that of a clock of processor time, be there such a process or not.
    pub fn is_of_processor(id: i32) -> bool {
        const KIND: i32 = 3;
        const FILE: i32 = 3;
        id < 0 && id & (KIND | 4) != FILE
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
                pid if pid != 0 && pid != thread::current().process.number => {
                    Clock::OtherProcess(named(pid)?)
                }
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

    /// Of the machine, whatever the process' time namespace: since 1970, since boot, or of processor time, in nanoseconds. `EINVAL` for a thread that is no more.
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
            Clock::Thread(Pid::NONE) => thread::current().cpu_ns(),
            Clock::Thread(tid) => process.task(tid).ok_or(EINVAL)?.cpu_ns(),
            Clock::ProcessUser => {
                cpu_time::start();
                process.usage().user_ns
            }
            Clock::ThreadUser(tid) => {
                cpu_time::start();
                let tid = if tid == Pid::NONE { thread::current().tid } else { tid };
                process.task(tid).ok_or(EINVAL)?.usage().user_ns
            }
        })
    }

    /// What the time namespace of the process adds to what [`Clock::now`] tells.
    pub fn offset(self, process: &Process) -> i64 {
        match self {
            Clock::Monotonic | Clock::MonotonicRaw | Clock::MonotonicCoarse => {
                namespace::offsets_of(process).monotonic
            }
            Clock::Boottime | Clock::BoottimeAlarm => namespace::offsets_of(process).boottime,
            _ => 0,
        }
    }

    /// What [`Clock::now`] tells when the process is shown `time`.
    pub fn from_shown(self, time: u64, process: &Process) -> u64 {
        time.saturating_add_signed(self.offset(process).saturating_neg())
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

    pub fn resolution(self) -> u64 {
        if matches!(self, Clock::RealtimeCoarse | Clock::MonotonicCoarse) { TICK_NS } else { 1 }
    }
}

/// Nanoseconds since 1970.
pub fn realtime_ns() -> u64 {
    api_plat::wall_ns() + api_plat::now_ns()
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
