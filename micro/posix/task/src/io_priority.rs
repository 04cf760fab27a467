// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Priorities of input and output (ioprio_set(2)): a class and a level. Programs see what they asked for; no device goes by it.

use crate::identity::capabilities::{CAP_SYS_ADMIN, CAP_SYS_NICE};
use crate::scheduling::{SCHED_IDLE, Scheduling};
use abi::{Result, errno::*};

const CLASS_SHIFT: u32 = 13;
const LEVEL: u32 = 7;

const CLASS_NONE: u32 = 0;
const CLASS_REAL_TIME: u32 = 1;
const CLASS_BEST_EFFORT: u32 = 2;
const CLASS_IDLE: u32 = 3;

fn class(priority: u32) -> u32 {
    priority >> CLASS_SHIFT & 7
}

/// Whether the running thread may ask for this priority: `EINVAL` where it is none, `EPERM` where it takes rights.
pub fn check(priority: u32) -> Result<()> {
    let may_be_real_time = || {
        let task = crate::current();
        let credentials = task.credentials().lock();
        credentials.can(CAP_SYS_NICE) || credentials.can(CAP_SYS_ADMIN)
    };
    match class(priority) {
        CLASS_REAL_TIME if !may_be_real_time() => Err(EPERM),
        CLASS_REAL_TIME | CLASS_BEST_EFFORT | CLASS_IDLE => Ok(()),
        // Above the level are hints for a device.
        CLASS_NONE if priority & LEVEL == 0 => Ok(()),
        _ => Err(EINVAL),
    }
}

/// What counts for a thread that asked for nothing: its policy and nice value.
pub fn effective(s: &Scheduling) -> u32 {
    if class(s.io_priority) != CLASS_NONE {
        return s.io_priority;
    }
    let class = match s.policy {
        SCHED_IDLE => CLASS_IDLE,
        _ if s.is_real_time() => CLASS_REAL_TIME,
        _ => CLASS_BEST_EFFORT,
    };
    let level = (s.nice + 20) as u32 / 5;
    class << CLASS_SHIFT | level
}
