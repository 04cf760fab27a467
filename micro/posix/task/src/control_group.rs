// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Control groups as containers have them (cgroup-v2.rst): one for each container of a pod, and one for the machine's own processes.
//! A group counts what its processes use and holds limits; no program makes groups or moves processes between them.

use crate::bandwidth::{Bandwidth, Throttling};
use crate::cpu_time::Usage;
use crate::process::Process;
use crate::processes;
use abi::{Result, errno::EAGAIN};
use alloc::sync::Arc;
use api_lock::SpinLock;
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};

/// A limit that is none.
pub const NO_LIMIT: u64 = u64::MAX;
/// Linux' `cpu.max` of a group without a limit, in microseconds.
const DEFAULT_PERIOD_US: u64 = 100_000;

/// What a group may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of memory of their own that its processes may have together.
    pub memory: u64,
    /// Processes and threads.
    pub pids: u64,
    /// Microseconds of processor time in each period of so many. A container of a pod is held to it here, a machine by the host.
    pub cpu: (u64, u64),
}

impl Default for Limits {
    fn default() -> Limits {
        Limits::NONE
    }
}

impl Limits {
    pub const NONE: Limits = Limits { memory: NO_LIMIT, pids: NO_LIMIT, cpu: (NO_LIMIT, DEFAULT_PERIOD_US) };
}

/// How often something happened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Events {
    /// A process was about to have more memory than the limit.
    pub memory_max: u64,
    /// Processes that ended for want of memory.
    pub oom_kills: u64,
    /// Processes and threads that were refused.
    pub pids_max: u64,
}

/// One group.
pub struct ControlGroup {
    memory: AtomicU64,
    pids: AtomicU64,
    cpu: SpinLock<(u64, u64)>,
    /// Processes, zombies included, and threads.
    count: AtomicU64,
    /// What processes used that nothing is left of.
    gone: SpinLock<Usage>,
    events: SpinLock<Events>,
    pub(crate) bandwidth: Bandwidth,
}

/// Of the processes that are in no container.
pub static MACHINE: ControlGroup = ControlGroup::new(Limits::NONE);

impl ControlGroup {
    pub const fn new(limits: Limits) -> ControlGroup {
        ControlGroup {
            memory: AtomicU64::new(limits.memory),
            pids: AtomicU64::new(limits.pids),
            cpu: SpinLock::new(limits.cpu),
            count: AtomicU64::new(0),
            gone: SpinLock::new(Usage::ZERO),
            events: SpinLock::new(Events { memory_max: 0, oom_kills: 0, pids_max: 0 }),
            bandwidth: Bandwidth::new(),
        }
    }

    pub fn limits(&self) -> Limits {
        let (memory, pids) = (self.memory.load(Ordering::Relaxed), self.pids.load(Ordering::Relaxed));
        Limits { memory, pids, cpu: *self.cpu.lock() }
    }

    /// Holds other limits from now on. What its processes have beyond them they lose when they want more, as with Linux' `memory.max`
    /// and `pids.max`.
    pub fn set_limits(&self, limits: Limits) {
        self.memory.store(limits.memory, Ordering::Relaxed);
        self.pids.store(limits.pids, Ordering::Relaxed);
        *self.cpu.lock() = limits.cpu;
    }

    /// `None` without a limit.
    #[inline]
    pub fn memory_limit(&self) -> Option<u64> {
        Some(self.memory.load(Ordering::Relaxed)).filter(|limit| *limit != NO_LIMIT)
    }

    /// One more process or thread. `EAGAIN` when there are as many as there may be.
    pub fn charge(&self) -> Result<()> {
        let most = self.pids.load(Ordering::Relaxed);
        let charged = self
            .count
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| (count < most).then_some(count + 1));
        charged.map(|_| ()).map_err(|_| {
            self.events.lock().pids_max += 1;
            EAGAIN
        })
    }

    /// One more, whatever the limit is: somebody outside of the machine wants it (cgroup-v2.rst, "PID": processes are moved in
    /// beyond the limit as well).
    pub fn charge_always(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// One less.
    pub fn uncharge(&self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Processes, zombies included, and threads.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Its processes, zombies included.
    pub fn processes(&self) -> impl Iterator<Item = Arc<Process>> + '_ {
        processes::all().filter(|process| ptr::eq(process.group(), self))
    }

    /// Bytes of memory that are its processes' own. A page that several address spaces have counts once.
    pub fn memory(&self) -> u64 {
        self.processes().filter_map(|process| Some(process.space()?.own_share())).sum()
    }

    /// Processor time and page faults, of processes that are gone as well.
    pub fn usage(&self) -> Usage {
        let mut sum = *self.gone.lock();
        self.processes().for_each(|process| sum += process.usage());
        sum
    }

    /// How often its processes waited because `cpu.max` was used up, and how long.
    pub fn throttling(&self) -> Throttling {
        self.bandwidth.counts()
    }

    pub fn events(&self) -> Events {
        *self.events.lock()
    }

    /// Nothing is left of a process of the group.
    pub fn forget(&self, process: &Process) {
        *self.gone.lock() += process.usage();
        self.uncharge();
    }

    pub fn met_memory_limit(&self) {
        self.events.lock().memory_max += 1;
    }

    pub fn was_out_of_memory(&self) {
        self.events.lock().oom_kills += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_as_many_processes_as_its_limit_says_and_counts_those_that_were_refused() {
        let group = ControlGroup::new(Limits { pids: 2, ..Limits::NONE });
        assert_eq!([group.charge(), group.charge(), group.charge()], [Ok(()), Ok(()), Err(EAGAIN)]);
        group.charge_always();
        assert_eq!((group.count(), group.events().pids_max), (3, 1));
        group.uncharge();
        assert_eq!(group.charge(), Err(EAGAIN), "it is full still");
        group.set_limits(Limits::NONE);
        assert_eq!((group.charge(), group.memory_limit()), (Ok(()), None));
    }
}
