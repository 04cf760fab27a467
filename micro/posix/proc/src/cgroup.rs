// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The files of a control group (cgroup-v2.rst), as a container sees its own below /sys/fs/cgroup: what language runtimes and agents
//! read to know their limits and use. Nothing can be written; engines mount them to be read only.

use super::{cpus, text};
use abi::{Result, errno::ENODEV};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_fs::Inode;
use procfs::{Entry, Key, Output, Row};
use task::bandwidth::Throttling;
use task::containers;
use task::control_group::{ControlGroup, MACHINE, NO_LIMIT};
use task::pids::Pid;

/// CGROUP2_SUPER_MAGIC.
const MAGIC: u64 = 0x6367_7270;

/// The root of a file system with the files of a container's group, by the container's number; 0: those of the machine's own.
pub fn cgroup(device: u64, container: u64) -> Arc<dyn Inode> {
    procfs::root_about(ROWS, device, MAGIC, container.into())
}

const ROWS: &[Row] = &[
    ("cgroup.controllers", Entry::Fixed("cpuset cpu io memory pids\n")),
    ("cgroup.subtree_control", Entry::Fixed("")),
    ("cgroup.type", Entry::Fixed("domain\n")),
    ("cgroup.max.depth", Entry::Fixed("max\n")),
    ("cgroup.max.descendants", Entry::Fixed("max\n")),
    ("cgroup.stat", Entry::Fixed("nr_descendants 0\nnr_dying_descendants 0\n")),
    ("cgroup.freeze", Entry::Fixed("0\n")),
    (
        "cgroup.events",
        Entry::Text(|key| {
            with(key, |group| format!("populated {}\nfrozen 0\n", u8::from(group.count() > 0)))
        }),
    ),
    ("cgroup.procs", Entry::Lines(procs)),
    ("cgroup.threads", Entry::Lines(threads)),
    ("cpuset.cpus", Entry::Fixed("\n")),
    ("cpuset.cpus.effective", Entry::Text(|_| cpus())),
    ("cpuset.mems", Entry::Fixed("\n")),
    ("cpuset.mems.effective", Entry::Fixed("0\n")),
    ("cpu.max", Entry::Text(|key| with(key, cpu_max))),
    ("cpu.max.burst", Entry::Fixed("0\n")),
    ("cpu.weight", Entry::Fixed("100\n")),
    ("cpu.weight.nice", Entry::Fixed("0\n")),
    ("cpu.stat", Entry::Text(|key| with(key, cpu_stat))),
    ("io.stat", Entry::Fixed("")),
    ("memory.current", Entry::Text(|key| with(key, |group| format!("{}\n", group.memory())))),
    ("memory.min", Entry::Fixed("0\n")),
    ("memory.low", Entry::Fixed("0\n")),
    ("memory.high", Entry::Fixed("max\n")),
    ("memory.max", Entry::Text(|key| with(key, |group| line(group.limits().memory)))),
    ("memory.events", Entry::Text(|key| with(key, memory_events))),
    ("memory.events.local", Entry::Text(|key| with(key, memory_events))),
    ("memory.oom.group", Entry::Fixed("0\n")),
    ("memory.stat", Entry::Text(|key| with(key, memory_stat))),
    ("memory.swap.current", Entry::Fixed("0\n")),
    ("memory.swap.max", Entry::Fixed("0\n")),
    ("memory.swap.events", Entry::Fixed("high 0\nmax 0\nfail 0\n")),
    ("pids.current", Entry::Text(|key| with(key, |group| format!("{}\n", group.count())))),
    ("pids.max", Entry::Text(|key| with(key, |group| line(group.limits().pids)))),
    ("pids.events", Entry::Text(|key| with(key, |group| format!("max {}\n", group.events().pids_max)))),
];

/// `ENODEV` when the container is gone, as Linux answers for a group that was removed.
fn with(key: Key, say: impl Fn(&ControlGroup) -> String) -> Result<Vec<u8>> {
    if key == 0 {
        return text(say(&MACHINE));
    }
    let container = containers::by_number(key as u64).ok_or(ENODEV)?;
    text(say(&container.group))
}

/// A limit, as all files write one.
fn line(limit: u64) -> String {
    shown(limit) + "\n"
}

fn shown(limit: u64) -> String {
    if limit == NO_LIMIT { "max".into() } else { limit.to_string() }
}

fn cpu_max(group: &ControlGroup) -> String {
    let (quota, period) = group.limits().cpu;
    format!("{} {period}\n", shown(quota))
}

fn cpu_stat(group: &ControlGroup) -> String {
    // Whoever asks for times gets exact ones from then on.
    task::cpu_time::start();
    let used = group.usage();
    let (user, system) = (used.user_ns / 1000, used.system_ns / 1000);
    let Throttling { periods, throttled, throttled_ns } = group.throttling();
    format!(
        "usage_usec {}\nuser_usec {user}\nsystem_usec {system}\nnr_periods {periods}\nnr_throttled {throttled}\n\
        throttled_usec {}\n",
        user + system,
        throttled_ns / 1000
    )
}

fn memory_events(group: &ControlGroup) -> String {
    let events = group.events();
    let (max, kills) = (events.memory_max, events.oom_kills);
    format!("low 0\nhigh 0\nmax {max}\noom {max}\noom_kill {kills}\noom_group_kill 0\n")
}

/// Memory of files is the machine's as a whole, and no group's.
fn memory_stat(group: &ControlGroup) -> String {
    format!("anon {}\nfile 0\nkernel 0\nshmem 0\npgfault {}\n", group.memory(), group.usage().faults)
}

fn procs(key: Key, out: &mut Output) -> Result<()> {
    members(key, out, false)
}

fn threads(key: Key, out: &mut Output) -> Result<()> {
    members(key, out, true)
}

/// The numbers of its processes or threads as the reader sees them: 0 for those that it does not see (cgroup-v2.rst, "cgroup.procs").
fn members(key: Key, out: &mut Output, threads: bool) -> Result<()> {
    let container = match key {
        0 => None,
        key => Some(containers::by_number(key as u64).ok_or(ENODEV)?),
    };
    let group = container.as_ref().map_or(&MACHINE, |container| &container.group);
    let mut add = |pid: Pid| out.add(format!("{}\n", pid.here()).as_bytes());
    for process in group.processes().filter(|process| !process.family.is_zombie()) {
        match threads {
            true => process.tasks().try_for_each(|task| add(task.tid))?,
            false => add(process.pid)?,
        }
    }
    Ok(())
}
