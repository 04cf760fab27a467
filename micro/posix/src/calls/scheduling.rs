// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Scheduling policies, priorities, processors. One processor and one policy, which the image chose: what a program
//! asks for is checked and remembered, and changes nothing.

use crate::call::Call;
use crate::calls::identity::capabilities::CAP_SYS_NICE;
use crate::calls::limits::{RLIMIT_NICE, RLIMIT_RTPRIO};
use crate::task::{self, Task};
use abi::{Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_user::UserPtr;

const SCHED_OTHER: u32 = 0;
const SCHED_FIFO: u32 = 1;
const SCHED_RR: u32 = 2;
const SCHED_BATCH: u32 = 3;
const SCHED_IDLE: u32 = 5;
const SCHED_RESET_ON_FORK: u32 = 0x4000_0000;
/// What Linux answers for SCHED_RR.
const RR_INTERVAL_NS: i64 = 100_000_000;
/// The slice of the preemptive policy.
const SLICE_NS: i64 = 4_000_000;
const PROCESSORS: u64 = 1;

/// What a thread asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scheduling {
    policy: u32,
    /// SCHED_RESET_ON_FORK.
    resets: bool,
    /// 1 to 99 for the real-time policies.
    priority: u32,
    /// -20 to 19.
    nice: i32,
    io_priority: u32,
}

impl Scheduling {
    fn check(policy: u32, priority: u32) -> Result<()> {
        match policy {
            SCHED_FIFO | SCHED_RR if (1..=99).contains(&priority) => Ok(()),
            SCHED_OTHER | SCHED_BATCH | SCHED_IDLE if priority == 0 => Ok(()),
            _ => Err(EINVAL),
        }
    }
}

fn is_real_time(policy: u32) -> bool {
    matches!(policy, SCHED_FIFO | SCHED_RR)
}

/// The thread with this id; 0: the caller.
fn thread(tid: i32) -> Result<Arc<Task>> {
    let current = task::current();
    match tid {
        0 => current.process.task(current.tid),
        1.. => current.process.task(tid),
        _ => return Err(EINVAL),
    }
    .ok_or(ESRCH)
}

fn may_raise() -> bool {
    task::current().process.credentials.lock().can(CAP_SYS_NICE)
}

fn set(task: &Task, policy: u32, resets: bool, priority: u32) -> Result<()> {
    Scheduling::check(policy, priority)?;
    let limit = task.process.limits.soft(RLIMIT_RTPRIO);
    if is_real_time(policy) && u64::from(priority) > limit && !may_raise() {
        return Err(EPERM);
    }
    let mut scheduling = task.scheduling.lock();
    *scheduling = Scheduling { policy, resets, priority, ..*scheduling };
    Ok(())
}

fn read_priority(pointer: UserPtr<i32>) -> Result<u32> {
    u32::try_from(pointer.non_null().ok_or(EINVAL)?.read()?).map_err(|_| EINVAL)
}

/// sched_setscheduler(2).
pub fn sched_setscheduler(call: &mut Call<'_>) -> Result<usize> {
    let policy = call.int(1);
    if policy < 0 || call.int(0) < 0 {
        return Err(EINVAL);
    }
    let priority = read_priority(call.ptr(2))?;
    let (policy, resets) = (policy as u32 & !SCHED_RESET_ON_FORK, policy as u32 & SCHED_RESET_ON_FORK != 0);
    set(&*thread(call.int(0))?, policy, resets, priority)?;
    Ok(0)
}

/// sched_setparam(2).
pub fn sched_setparam(call: &mut Call<'_>) -> Result<usize> {
    let priority = read_priority(call.ptr(1))?;
    let task = thread(call.int(0))?;
    let now = *task.scheduling.lock();
    set(&task, now.policy, now.resets, priority)?;
    Ok(0)
}

/// sched_getscheduler(2).
pub fn sched_getscheduler(call: &mut Call<'_>) -> Result<usize> {
    let scheduling = *thread(call.int(0))?.scheduling.lock();
    let resets = if scheduling.resets { SCHED_RESET_ON_FORK } else { 0 };
    Ok((scheduling.policy | resets) as usize)
}

/// sched_getparam(2).
pub fn sched_getparam(call: &mut Call<'_>) -> Result<usize> {
    let pointer = call.ptr::<u32>(1).non_null().ok_or(EINVAL)?;
    let priority = thread(call.int(0))?.scheduling.lock().priority;
    pointer.write(priority)?;
    Ok(0)
}

/// `struct sched_attr` in its first version: size and policy, flags, nice and priority, then the three times of
/// SCHED_DEADLINE.
type Attributes = [u64; 6];
const ATTRIBUTES_BYTES: u32 = 48;

/// sched_setattr(2). SCHED_DEADLINE is refused.
pub fn sched_setattr(call: &mut Call<'_>) -> Result<usize> {
    const RESET_ON_FORK: u64 = 1;
    if call.int(0) < 0 || call.uint(2) != 0 {
        return Err(EINVAL);
    }
    let pointer = call.ptr::<u32>(1).non_null().ok_or(EINVAL)?;
    let size = match pointer.read()? {
        0 => ATTRIBUTES_BYTES,
        size => size,
    };
    if !(ATTRIBUTES_BYTES..=4096).contains(&size) {
        pointer.write(ATTRIBUTES_BYTES)?;
        return Err(E2BIG);
    }
    let [head, flags, numbers, ..] = pointer.cast::<Attributes>().read()?;
    let (policy, nice, priority) = ((head >> 32) as u32, numbers as i32, (numbers >> 32) as u32);
    if flags & !RESET_ON_FORK != 0 {
        return Err(EINVAL);
    }
    let task = thread(call.int(0))?;
    set(&task, policy, flags & RESET_ON_FORK != 0, priority)?;
    if !is_real_time(policy) {
        set_nice(&task, nice).map_err(|_| EPERM)?;
    }
    Ok(0)
}

/// sched_getattr(2).
pub fn sched_getattr(call: &mut Call<'_>) -> Result<usize> {
    let size = call.uint(2);
    if call.int(0) < 0 || call.uint(3) != 0 || !(ATTRIBUTES_BYTES..=4096).contains(&size) {
        return Err(EINVAL);
    }
    let pointer = call.ptr::<Attributes>(1).non_null().ok_or(EINVAL)?;
    let s = *thread(call.int(0))?.scheduling.lock();
    let head = u64::from(ATTRIBUTES_BYTES) | u64::from(s.policy) << 32;
    let numbers = u64::from(s.nice as u32) | u64::from(s.priority) << 32;
    pointer.write([head, u64::from(s.resets), numbers, 0, 0, 0])?;
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
    const SCHED_DEADLINE: u32 = 6;
    match policy {
        SCHED_FIFO | SCHED_RR => Ok((1, 99)),
        SCHED_OTHER | SCHED_BATCH | SCHED_IDLE | SCHED_DEADLINE => Ok((0, 0)),
        _ => Err(EINVAL),
    }
}

/// sched_rr_get_interval(2).
pub fn sched_rr_get_interval(call: &mut Call<'_>) -> Result<usize> {
    let policy = thread(call.int(0))?.scheduling.lock().policy;
    let interval = match policy {
        SCHED_RR => RR_INTERVAL_NS,
        SCHED_FIFO => 0,
        _ => SLICE_NS,
    };
    call.ptr(1).write([0, interval])?;
    Ok(0)
}

/// sched_yield(2).
pub fn sched_yield(_: &mut Call<'_>) -> Result<usize> {
    sched::yield_now();
    Ok(0)
}

/// sched_setaffinity(2): there is one processor to be on.
pub fn sched_setaffinity(call: &mut Call<'_>) -> Result<usize> {
    let mut mask = [0u8; 8];
    let n = call.size(1).min(mask.len());
    api_user::read_bytes(call.arg(2), &mut mask[..n])?;
    thread(call.int(0)).map_err(|_| ESRCH)?;
    if u64::from_ne_bytes(mask) & ((1 << PROCESSORS) - 1) == 0 { Err(EINVAL) } else { Ok(0) }
}

/// sched_getaffinity(2): answers how many bytes the mask has.
pub fn sched_getaffinity(call: &mut Call<'_>) -> Result<usize> {
    const MASK_BYTES: usize = 8;
    let size = call.uint(1) as usize;
    if size < MASK_BYTES || !size.is_multiple_of(MASK_BYTES) {
        return Err(EINVAL);
    }
    thread(call.int(0)).map_err(|_| ESRCH)?;
    call.ptr::<u64>(2).write((1 << PROCESSORS) - 1)?;
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
    let all = match which {
        _ if which == kinds[0] => {
            let tid = if who == 0 { task::current().tid } else { who };
            return Ok(process.task(tid).into_iter().collect());
        }
        _ if which == kinds[1] => who == 0 || who == process.sessions.lock().group,
        _ if which == kinds[2] => {
            let uid = process.credentials.lock().uid;
            who as u32 == uid || who == 0
        }
        _ => return Err(EINVAL),
    };
    Ok(if all { process.tasks() } else { Vec::new() })
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
    // The limit counts the other way round: 20 - nice (getrlimit(2), RLIMIT_NICE).
    let allowed = 20 - i64::from(nice) <= task.process.limits.soft(RLIMIT_NICE).min(40) as i64;
    let before = task.scheduling.lock().nice;
    if nice < before && !allowed && !may_raise() {
        return Err(EACCES);
    }
    task.scheduling.lock().nice = nice;
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

const IO_CLASS_SHIFT: u32 = 13;
/// Of a thread that asked for nothing: no class, the middle level.
const IO_DEFAULT: u32 = 4;

fn check_io_priority(priority: u32) -> Result<()> {
    const REAL_TIME: u32 = 1;
    const BEST_EFFORT: u32 = 2;
    const IDLE: u32 = 3;
    let (class, level) = (priority >> IO_CLASS_SHIFT, priority & ((1 << IO_CLASS_SHIFT) - 1));
    match class {
        REAL_TIME if !may_raise() => Err(EPERM),
        REAL_TIME | BEST_EFFORT if level < 8 => Ok(()),
        IDLE => Ok(()),
        0 if level == 0 => Ok(()),
        _ => Err(EINVAL),
    }
}

/// ioprio_set(2).
pub fn ioprio_set(call: &mut Call<'_>) -> Result<usize> {
    let priority = call.uint(2);
    check_io_priority(priority)?;
    let tasks = those(call.int(0), call.int(1), IO_KINDS)?;
    if tasks.is_empty() {
        return Err(ESRCH);
    }
    for task in tasks {
        task.scheduling.lock().io_priority = priority;
    }
    Ok(0)
}

/// ioprio_get(2).
pub fn ioprio_get(call: &mut Call<'_>) -> Result<usize> {
    let tasks = those(call.int(0), call.int(1), IO_KINDS)?;
    let best = tasks.iter().map(|task| task.scheduling.lock().io_priority).max().ok_or(ESRCH)?;
    Ok(if best == 0 { IO_DEFAULT } else { best } as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_have_their_priorities() {
        assert_eq!(Scheduling::check(SCHED_FIFO, 1), Ok(()));
        assert_eq!(Scheduling::check(SCHED_RR, 0), Err(EINVAL));
        assert_eq!(Scheduling::check(SCHED_RR, 100), Err(EINVAL));
        assert_eq!(Scheduling::check(SCHED_OTHER, 1), Err(EINVAL));
        assert_eq!(Scheduling::check(4, 0), Err(EINVAL));
        assert_eq!(priority_range(SCHED_FIFO), Ok((1, 99)));
        assert_eq!(priority_range(7), Err(EINVAL));
    }
}
