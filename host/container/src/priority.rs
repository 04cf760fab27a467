// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How the host's kernel treats the container's process, and its machine, beside others: `process.scheduler` and `process.ioPriority`
//! (config.md, "Linux Process").
//!
//! The unsafe code here is one sched_setattr(2) and one ioprio_set(2), which rustix does not have.

use crate::{ContainerError, Result};
use oci_spec::runtime::{IOPriorityClass, LinuxSchedulerPolicy, Process};
use std::io;

/// Levels of a class of ioprio_set(2), 0 being the highest.
const MAX_LEVEL: i64 = 7;
/// Bits in front of the class (linux/ioprio.h).
const CLASS_SHIFT: u16 = 13;
const WHO_PROCESS: i32 = 1;

/// `None`: as that of whoever makes the container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Priority {
    /// Class and level as ioprio_set(2) has them.
    io: Option<u16>,
    scheduler: Option<Scheduler>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Scheduler {
    /// SCHED_OTHER and so on (linux/sched.h).
    policy: u32,
    nice: i32,
    priority: u32,
}

/// `struct sched_attr` (sched_setattr(2)).
#[repr(C)]
#[derive(Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

impl Priority {
    pub fn of(process: &Process) -> std::result::Result<Priority, String> {
        let io = process.io_priority().map(|wanted| {
            let class: u16 = match wanted.class() {
                IOPriorityClass::IoprioClassRt => 1,
                IOPriorityClass::IoprioClassBe => 2,
                IOPriorityClass::IoprioClassIdle => 3,
            };
            let level = u16::try_from(wanted.priority()).ok().filter(|level| i64::from(*level) <= MAX_LEVEL);
            level.map(|level| class << CLASS_SHIFT | level).ok_or_else(|| {
                format!("process.ioPriority: priority {} is none of 0 to {MAX_LEVEL}", wanted.priority())
            })
        });
        let scheduler = process.scheduler().as_ref().map(|wanted| {
            let policy = match wanted.policy() {
                LinuxSchedulerPolicy::SchedOther => libc::SCHED_OTHER,
                LinuxSchedulerPolicy::SchedFifo => libc::SCHED_FIFO,
                LinuxSchedulerPolicy::SchedRr => libc::SCHED_RR,
                LinuxSchedulerPolicy::SchedBatch => libc::SCHED_BATCH,
                LinuxSchedulerPolicy::SchedIdle => libc::SCHED_IDLE,
                other @ (LinuxSchedulerPolicy::SchedIso | LinuxSchedulerPolicy::SchedDeadline) => {
                    return Err(format!(
                        "process.scheduler: {other}: a process that starts others cannot have it"
                    ));
                }
            };
            let number = wanted.priority().unwrap_or(0);
            let priority = u32::try_from(number);
            let priority =
                priority.map_err(|_| format!("process.scheduler: priority {number} is below 0"))?;
            Ok(Scheduler { policy: policy as u32, nice: wanted.nice().unwrap_or(0), priority })
        });
        Ok(Priority { io: io.transpose()?, scheduler: scheduler.transpose()? })
    }

    /// The field that says one.
    pub fn field(&self) -> Option<&'static str> {
        let io = self.io.map(|_| "process.ioPriority");
        io.or(self.scheduler.map(|_| "process.scheduler"))
    }

    /// Gives it to the calling thread, and to what that starts afterwards. To be called before other threads are there.
    pub fn enter(&self) -> Result<()> {
        if let Some(Scheduler { policy, nice, priority }) = self.scheduler {
            let size = size_of::<Attributes>() as u32;
            let wanted = Attributes { size, policy, nice, priority, ..Attributes::default() };
            // SAFETY: the kernel reads `size` bytes, which are those of the structure, and keeps no pointer to them.
            let done = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const wanted, 0) };
            check("process.scheduler", done)?;
        }
        if let Some(wanted) = self.io {
            // SAFETY: three numbers; nothing of this process' memory is touched.
            let done = unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, i32::from(wanted)) };
            check("process.ioPriority", done)?;
        }
        Ok(())
    }
}

fn check(field: &'static str, done: libc::c_long) -> Result<()> {
    match done {
        0 => Ok(()),
        _ => Err(ContainerError::Priority(field, io::Error::last_os_error())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn of(part: &str, value: Value) -> std::result::Result<Priority, String> {
        let mut process = json!({"user": {"uid": 0, "gid": 0}, "cwd": "/"});
        process[part] = value;
        Priority::of(&serde_json::from_value(process).unwrap())
    }

    #[test]
    fn a_thread_gets_what_the_bundle_says() {
        let wanted = of("scheduler", json!({"policy": "SCHED_BATCH", "nice": 7})).unwrap();
        let io = of("ioPriority", json!({"class": "IOPRIO_CLASS_BE", "priority": 6})).unwrap();
        assert_eq!((wanted.field(), io.field()), (Some("process.scheduler"), Some("process.ioPriority")));
        assert_eq!(io.io, Some(2 << 13 | 6));
        let thread = std::thread::spawn(move || {
            wanted.enter().unwrap();
            io.enter().unwrap();
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            let rest = stat.rsplit_once(')').unwrap().1;
            let fields: Vec<&str> = rest.split_whitespace().collect();
            // proc(5): nice is the 19th field and the policy the 41st; the third is the first behind the name.
            (fields[19 - 3].to_string(), fields[41 - 3].to_string())
        });
        assert_eq!(thread.join().unwrap(), ("7".into(), "3".into()));
        assert_eq!(Priority::default().field(), None);
    }

    #[test]
    fn what_there_is_not_is_refused_by_its_name() {
        for (part, value, says) in [
            ("ioPriority", json!({"class": "IOPRIO_CLASS_RT", "priority": 8}), "priority 8"),
            ("ioPriority", json!({"class": "IOPRIO_CLASS_RT", "priority": -1}), "priority -1"),
            ("scheduler", json!({"policy": "SCHED_DEADLINE"}), "SCHED_DEADLINE"),
            ("scheduler", json!({"policy": "SCHED_FIFO", "priority": -1}), "below 0"),
        ] {
            let error = of(part, value).unwrap_err();
            assert!(error.contains(part) && error.contains(says), "{error}");
        }
    }
}
