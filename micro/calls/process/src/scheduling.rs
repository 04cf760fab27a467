// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Scheduling policies, priorities, processors. The preemptive scheduler prefers threads as
//! sched(7) has it; the cooperative one lets whoever came first run, and what a program asks for is only remembered.

use abi::{Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_sched::policy::ROUND_ROBIN_MS;
use api_user::UserPtr;
use task::call::Call;
use task::identity::capabilities::CAP_SYS_NICE;
use task::io_priority;
use task::limits::{RLIMIT_NICE, RLIMIT_RTPRIO};
use task::pids::Pid;
use task::process::Process;
use task::scheduling::{
    SCHED_BATCH, SCHED_DEADLINE, SCHED_FIFO, SCHED_IDLE, SCHED_OTHER, SCHED_RR, Scheduling, has_nice,
    is_fair, nice_rank,
};
use task::users::{self, Kind};
use task::{Task, processes};

const SCHED_RESET_ON_FORK: u32 = 0x4000_0000;

/// The slice of the preemptive policy.
const SLICE_NS: i64 = 4_000_000;

/// The thread with this id; 0: the caller.
fn thread(tid: i32) -> Result<Arc<Task>> {
    let current = task::current();
    match tid {
        0 => current.process.task(current.tid),
        1.. => processes::named_task(tid),
        _ => return Err(EINVAL),
    }
    .ok_or(ESRCH)
}

/// How a thread is scheduled, or how a zombie was.
fn scheduling_of(tid: i32) -> Result<Scheduling> {
    match thread(tid) {
        Ok(task) => Ok(*task.scheduling.lock()),
        Err(e) => processes::named(tid).and_then(|process| process.scheduling_at_end()).ok_or(e),
    }
}

fn may_raise() -> bool {
    task::current().credentials().lock().can(CAP_SYS_NICE)
}

fn set(task: &Task, new: Scheduling) -> Result<()> {
    new.check()?;
    check_change(task)?;
    let now = *task.scheduling.lock();
    let limits = &task.process.limits;
    if now.is_raised_by(&new, limits.soft(RLIMIT_RTPRIO), limits.soft(RLIMIT_NICE)) && !may_raise() {
        return Err(EPERM);
    }
    // The nice value of a thread with a priority is kept for later.
    let nice = if is_fair(new.policy) { new.nice } else { now.nice };
    task.set_scheduling(Scheduling { nice, ..new });
    Ok(())
}

fn read_priority(pointer: UserPtr<u32>) -> Result<u32> {
    pointer.non_null().ok_or(EINVAL)?.read()
}

/// sched_setscheduler(2).
pub fn sched_setscheduler(call: &mut Call<'_>) -> Result<usize> {
    let policy = call.int(1);
    if policy < 0 || call.int(0) < 0 {
        return Err(EINVAL);
    }
    let priority = read_priority(call.ptr(2))?;
    let task = thread(call.int(0))?;
    let (policy, resets) = (policy as u32 & !SCHED_RESET_ON_FORK, policy as u32 & SCHED_RESET_ON_FORK != 0);
    let now = *task.scheduling.lock();
    set(&task, Scheduling { policy, resets, priority, deadline: [0; 3], ..now })?;
    Ok(0)
}

/// sched_setparam(2).
pub fn sched_setparam(call: &mut Call<'_>) -> Result<usize> {
    if call.int(0) < 0 {
        return Err(EINVAL);
    }
    let priority = read_priority(call.ptr(1))?;
    let task = thread(call.int(0))?;
    let now = *task.scheduling.lock();
    set(&task, Scheduling { priority, deadline: [0; 3], ..now })?;
    Ok(0)
}

/// sched_getscheduler(2).
pub fn sched_getscheduler(call: &mut Call<'_>) -> Result<usize> {
    let scheduling = scheduling_of(call.int(0))?;
    let resets = if scheduling.resets { SCHED_RESET_ON_FORK } else { 0 };
    Ok((scheduling.policy | resets) as usize)
}

/// sched_getparam(2).
pub fn sched_getparam(call: &mut Call<'_>) -> Result<usize> {
    let pointer = call.ptr::<u32>(1).non_null().ok_or(EINVAL)?;
    let priority = scheduling_of(call.int(0))?.priority;
    pointer.write(priority)?;
    Ok(0)
}

/// `struct sched_attr`: size and policy, flags, nice and priority, the three times of SCHED_DEADLINE, and from its
/// second version on the utilisation clamps.
type Attributes = [u64; 7];

const FIRST_VERSION: usize = 48;
const ATTRIBUTES_BYTES: usize = size_of::<Attributes>();

/// Reads the structure in any version: what this one does not know must be zero.
fn read_attributes(pointer: UserPtr<u32>) -> Result<Attributes> {
    let size = match pointer.read()? as usize {
        0 => FIRST_VERSION,
        size => size,
    };
    let too_big = || {
        // It is too big, whether that can be said or not.
        let _ = pointer.write(ATTRIBUTES_BYTES as u32);
        Err(E2BIG)
    };
    if size < FIRST_VERSION {
        return too_big();
    }
    match pointer.cast::<u64>().read_extensible(size) {
        Err(E2BIG) => too_big(),
        attributes => attributes,
    }
}

/// sched_setattr(2). Linux without utilisation clamping refuses those as well.
pub fn sched_setattr(call: &mut Call<'_>) -> Result<usize> {
    const RESET_ON_FORK: u64 = 1;
    const RECLAIM: u64 = 2;
    const DEADLINE_OVERRUN: u64 = 4;
    const KEEP_POLICY: u64 = 8;
    const KEEP_PARAMETERS: u64 = 0x10;
    const CLAMPS: u64 = 0x60;
    const ALL: u64 = RESET_ON_FORK | RECLAIM | DEADLINE_OVERRUN | KEEP_POLICY | KEEP_PARAMETERS | CLAMPS;
    let pointer = call.ptr::<u32>(1).non_null().ok_or(EINVAL)?;
    if call.int(0) < 0 || call.uint(2) != 0 {
        return Err(EINVAL);
    }
    let [head, flags, numbers, deadline @ .., _] = read_attributes(pointer)?;
    if flags & CLAMPS != 0 && (head as u32 as usize) < ATTRIBUTES_BYTES {
        return Err(EINVAL);
    }
    let (policy, nice, priority) = ((head >> 32) as u32, numbers as i32, (numbers >> 32) as u32);
    if (policy as i32) < 0 {
        return Err(EINVAL);
    }
    let task = thread(call.int(0))?;
    let now = *task.scheduling.lock();
    let mut new = Scheduling { policy, priority, nice: nice.clamp(-20, 19), deadline, ..now };
    new.resets = flags & RESET_ON_FORK != 0;
    if flags & KEEP_POLICY != 0 {
        (new.policy, new.resets) = (now.policy, now.resets);
    }
    if flags & KEEP_PARAMETERS != 0 {
        (new.priority, new.nice, new.deadline) = (now.priority, now.nice, now.deadline);
    }
    if flags & !ALL != 0 {
        return Err(EINVAL);
    }
    if flags & CLAMPS != 0 {
        return Err(EOPNOTSUPP);
    }
    set(&task, new)?;
    Ok(0)
}

/// sched_getattr(2).
pub fn sched_getattr(call: &mut Call<'_>) -> Result<usize> {
    let size = call.uint(2) as usize;
    let pointer = call.ptr::<u8>(1).non_null().ok_or(EINVAL)?;
    if call.int(0) < 0 || call.uint(3) != 0 || !(FIRST_VERSION..=abi::PAGE_SIZE).contains(&size) {
        return Err(EINVAL);
    }
    let s = scheduling_of(call.int(0))?;
    let size = size.min(ATTRIBUTES_BYTES);
    let nice = if has_nice(s.policy) { s.nice } else { 0 };
    let mut attributes: Attributes = [0; 7];
    attributes[0] = size as u64 | u64::from(s.policy) << 32;
    attributes[1] = u64::from(s.resets);
    attributes[2] = u64::from(nice as u32) | u64::from(s.priority) << 32;
    attributes[3..6].copy_from_slice(&s.deadline);
    pointer.write_slice(&attributes.map(u64::to_ne_bytes).as_flattened()[..size])?;
    Ok(0)
}

/// sched_get_priority_max(2).
pub fn sched_get_priority_max(call: &mut Call<'_>) -> Result<usize> {
    priority_range(call.uint(0)).map(|(_, most)| most)
}

/// sched_get_priority_min(2).
pub fn sched_get_priority_min(call: &mut Call<'_>) -> Result<usize> {
    priority_range(call.uint(0)).map(|(least, _)| least)
}

fn priority_range(policy: u32) -> Result<(usize, usize)> {
    match policy {
        SCHED_FIFO | SCHED_RR => Ok((1, 99)),
        SCHED_OTHER | SCHED_BATCH | SCHED_IDLE | SCHED_DEADLINE => Ok((0, 0)),
        _ => Err(EINVAL),
    }
}

/// sched_rr_get_interval(2).
pub fn sched_rr_get_interval(call: &mut Call<'_>) -> Result<usize> {
    let policy = scheduling_of(call.int(0))?.policy;
    let interval = match policy {
        SCHED_RR => ROUND_ROBIN_MS.get() as i64 * 1_000_000,
        SCHED_FIFO => 0,
        _ => SLICE_NS,
    };
    call.ptr(1).write([interval / 1_000_000_000, interval % 1_000_000_000])?;
    Ok(0)
}

/// sched_yield(2).
pub fn sched_yield(_: &mut Call<'_>) -> Result<usize> {
    sched::yield_now();
    Ok(0)
}

/// The processors there are, a bit each.
pub fn all_cpus() -> u64 {
    (1 << api_plat::cpus()) - 1
}

/// sched_setaffinity(2).
pub fn sched_setaffinity(call: &mut Call<'_>) -> Result<usize> {
    let mut mask = [0u8; 8];
    let n = call.size(1).min(mask.len());
    api_user::read_bytes(call.arg(2), &mut mask[..n])?;
    let task = thread(call.int(0)).map_err(|_| ESRCH)?;
    check_change(&task)?;
    let cpus = u64::from_ne_bytes(mask) & all_cpus();
    if cpus == 0 {
        return Err(EINVAL);
    }
    if let Some(thread) = task.thread() {
        thread.set_cpus(cpus);
    }
    Ok(0)
}

/// sched_getaffinity(2): answers how many bytes the mask has.
pub fn sched_getaffinity(call: &mut Call<'_>) -> Result<usize> {
    const MASK_BYTES: usize = 8;
    let size = call.uint(1) as usize;
    // Linux counts bits in 32 of them.
    if size < MASK_BYTES || call.uint(1).wrapping_mul(8) < u64::BITS || !size.is_multiple_of(MASK_BYTES) {
        return Err(EINVAL);
    }
    let task = thread(call.int(0)).map_err(|_| ESRCH)?;
    let cpus = task.thread().map_or(u64::MAX, |thread| thread.cpus());
    call.ptr::<u64>(2).write(cpus & all_cpus())?;
    Ok(MASK_BYTES)
}

/// getcpu(2).
pub fn getcpu(call: &mut Call<'_>) -> Result<usize> {
    for (i, value) in [api_plat::cpu(), 0].into_iter().enumerate() {
        if let Some(pointer) = call.ptr(i).non_null() {
            pointer.write(value)?;
        }
    }
    Ok(0)
}

/// The threads getpriority and ioprio_get mean. `kinds` are their numbers for a thread, a group, a user.
fn those(which: i32, who: i32, kinds: [i32; 3]) -> Result<Vec<Arc<Task>>> {
    let process = &task::current().process;
    let chosen: &dyn Fn(&Process) -> bool = match which {
        _ if which == kinds[0] => {
            let tid = if who == 0 { Some(task::current().tid) } else { Pid::named(who) };
            return Ok(tid.and_then(processes::task).into_iter().collect());
        }
        _ if which == kinds[1] => {
            let group = if who == 0 { Some(process.sessions.lock().group) } else { Pid::named(who) };
            &move |process| Some(process.sessions.lock().group) == group
        }
        _ if which == kinds[2] => {
            let uid = match who {
                0 => Some(task::current().credentials().lock().uid),
                _ => users::named(Kind::User, who as u32).ok(),
            };
            &move |process| Some(process.credentials.lock().uid) == uid && process.pid.here() != 0
        }
        _ => return Err(EINVAL),
    };
    let mut those = Vec::new();
    for process in processes::all().filter(|process| chosen(process)) {
        for task in process.tasks() {
            those.reserve_fallibly(1).map_err(|_| ENOMEM)?;
            those.push(task);
        }
    }
    Ok(those)
}

/// `EPERM` unless the caller may change how the thread runs: its effective user is the thread's, which has no capability that
/// the caller has not, or CAP_SYS_NICE.
fn check_change(task: &Task) -> Result<()> {
    if may_raise() {
        return Ok(());
    }
    let (euid, permitted) = {
        let caller = task::current();
        let c = caller.credentials().lock();
        (c.euid, c.capabilities.permitted)
    };
    let theirs = task.credentials().lock();
    let is_within = theirs.capabilities.permitted & !permitted == 0;
    if is_within && [theirs.uid, theirs.euid].contains(&euid) { Ok(()) } else { Err(EPERM) }
}

/// `EPERM` unless the thread's real user is the caller's real or effective one, or the caller has CAP_SYS_NICE.
fn check_io_change(task: &Task) -> Result<()> {
    let own = {
        let caller = task::current();
        let c = caller.credentials().lock();
        [c.uid, c.euid]
    };
    let is_own = own.contains(&task.credentials().lock().uid);
    if is_own || may_raise() { Ok(()) } else { Err(EPERM) }
}

/// PRIO_PROCESS, PRIO_PGRP, PRIO_USER.
const NICE_KINDS: [i32; 3] = [0, 1, 2];

/// IOPRIO_WHO_PROCESS, IOPRIO_WHO_PGRP, IOPRIO_WHO_USER.
const IO_KINDS: [i32; 3] = [1, 2, 3];

/// getpriority(2): 20 less the lowest nice value, so that it is never negative.
pub fn getpriority(call: &mut Call<'_>) -> Result<usize> {
    let tasks = those(call.int(0), call.int(1), NICE_KINDS)?;
    let lowest = tasks.iter().map(|task| task.scheduling.lock().nice).min().ok_or(ESRCH)?;
    Ok((20 - lowest) as usize)
}

fn set_nice(task: &Task, nice: i32) -> Result<()> {
    let nice = nice.clamp(-20, 19);
    check_change(task)?;
    let allowed = nice_rank(nice) <= task.process.limits.soft(RLIMIT_NICE);
    let now = *task.scheduling.lock();
    if nice < now.nice && !allowed && !may_raise() {
        return Err(EACCES);
    }
    task.set_scheduling(Scheduling { nice, ..now });
    Ok(())
}

/// setpriority(2).
pub fn setpriority(call: &mut Call<'_>) -> Result<usize> {
    let tasks = those(call.int(0), call.int(1), NICE_KINDS)?;
    if tasks.is_empty() {
        return Err(ESRCH);
    }
    for task in tasks {
        set_nice(&task, call.int(2))?;
    }
    Ok(0)
}

/// ioprio_set(2).
pub fn ioprio_set(call: &mut Call<'_>) -> Result<usize> {
    let priority = call.uint(2);
    io_priority::check(priority)?;
    let tasks = those(call.int(0), call.int(1), IO_KINDS)?;
    if tasks.is_empty() {
        return Err(ESRCH);
    }
    for task in tasks {
        check_io_change(&task)?;
        task.scheduling.lock().io_priority = priority & 0xffff;
    }
    Ok(0)
}

/// ioprio_get(2): of one thread what it asked for, of several the best that counts.
pub fn ioprio_get(call: &mut Call<'_>) -> Result<usize> {
    let tasks = those(call.int(0), call.int(1), IO_KINDS)?;
    let of = |task: &Arc<Task>| {
        let scheduling = *task.scheduling.lock();
        if call.int(0) == IO_KINDS[0] { scheduling.io_priority } else { io_priority::effective(&scheduling) }
    };
    // Better classes and levels have lower numbers.
    tasks.iter().map(of).min().map(|best| best as usize).ok_or(ESRCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_time_policies_have_99_priorities() {
        assert_eq!(priority_range(SCHED_FIFO), Ok((1, 99)));
        assert_eq!(priority_range(7), Err(EINVAL));
    }

    #[test]
    fn disk_priorities_follow_nice_values() {
        let of = |policy: u32, priority: u32| Scheduling { policy, priority, ..Scheduling::default() };
        assert_eq!(io_priority::effective(&of(SCHED_OTHER, 0)), 2 << 13 | 4);
        assert_eq!(io_priority::effective(&of(SCHED_FIFO, 1)), 1 << 13 | 4);
        assert_eq!(
            io_priority::effective(&Scheduling { io_priority: 3 << 13, ..of(SCHED_OTHER, 0) }),
            3 << 13
        );
    }
}
