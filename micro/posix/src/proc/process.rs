// SPDX-License-Identifier: Apache-2.0 OR MIT
//! /proc/PID and /proc/PID/task/TID.

use super::descriptors::{Descriptors, Infos};
use super::{net, system, text};
use crate::cpu_time;
use crate::files;
use crate::process::{Process, Program};
use crate::task::{self, Task};
use abi::{PAGE_SIZE, Result, errno::*};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_fs::{FileType, Magic};
use api_user::UserPtr;
use core::fmt::Write;
use procfs::{Changing, Entry, Key, Row};
use vfs::Dentry;

const NS_PER_TICK: u64 = 1_000_000_000 / system::TICKS;

fn own() -> &'static Arc<Process> {
    &task::current().process
}

/// What a process shows, threads included.
pub const ROWS: &[Row] = &[
    COMM,
    ("stat", Entry::Text(stat)),
    ("status", Entry::Text(status)),
    ("wchan", Entry::Fixed("0")),
    ("task", Entry::Changing(&Tasks)),
    ("cmdline", Entry::Text(|_| strings(program()?.argument_bytes))),
    ("environ", Entry::Text(|_| strings(program()?.environment_bytes))),
    ("auxv", Entry::Text(|_| auxv())),
    ("maps", Entry::Text(|_| maps())),
    ("smaps_rollup", Entry::Text(|_| smaps_rollup())),
    ("statm", Entry::Text(|_| statm())),
    ("limits", Entry::Text(|_| limits())),
    ("mounts", Entry::Text(|_| system::mounts(false))),
    ("mountinfo", Entry::Text(|_| system::mounts(true))),
    ("cgroup", Entry::Fixed("0::/\n")),
    ("io", Entry::Fixed("rchar: 0\nwchar: 0\nsyscr: 0\nsyscw: 0\nread_bytes: 0\nwrite_bytes: 0\n")),
    ("oom_score", Entry::Fixed("0\n")),
    // Nothing kills by score: what is written is accepted and has no effect.
    ("oom_score_adj", ignored(|_| Ok(b"0\n".to_vec()))),
    ("coredump_filter", ignored(|_| Ok(b"00000033\n".to_vec()))),
    ("loginuid", Entry::Fixed("4294967295")),
    ("sessionid", Entry::Fixed("4294967295")),
    ("uid_map", Entry::Fixed("         0          0 4294967295\n")),
    ("gid_map", Entry::Fixed("         0          0 4294967295\n")),
    ("setgroups", Entry::Fixed("allow\n")),
    ("exe", Entry::Magic { text: |_| path(executable()), lead: |_| Ok(Magic::Place(executable()?)) }),
    ("cwd", Entry::Magic { text: |_| path(working()), lead: |_| Ok(Magic::Place(working()?)) }),
    ("root", Entry::Magic { text: |_| path(root()), lead: |_| Ok(Magic::Place(root()?)) }),
    ("fd", Entry::Changing(&Descriptors)),
    ("fdinfo", Entry::Changing(&Infos)),
    ("net/tcp", Entry::Text(|_| net::tcp())),
    ("net/udp", Entry::Text(|_| net::udp())),
    ("net/tcp6", Entry::Text(|_| net::tcp6())),
    ("net/udp6", Entry::Text(|_| net::udp6())),
    ("net/if_inet6", Entry::Text(|_| net::interfaces6())),
    ("net/unix", Entry::Text(|_| net::unix())),
    ("net/if_inet6", Entry::Fixed("")),
    (
        "net/route",
        Entry::Fixed("Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"),
    ),
];

/// What a thread shows; the key is its number.
const THREAD: &[Row] = &[
    COMM,
    ("stat", Entry::Text(stat)),
    ("status", Entry::Text(status)),
    ("wchan", Entry::Fixed("0")),
    ("maps", shared(|_| Ok(b"../../maps".to_vec()))),
    ("fd", shared(|_| Ok(b"../../fd".to_vec()))),
    ("limits", shared(|_| Ok(b"../../limits".to_vec()))),
    ("mounts", shared(|_| Ok(b"../../mounts".to_vec()))),
    ("cgroup", shared(|_| Ok(b"../../cgroup".to_vec()))),
    ("cwd", shared(|_| Ok(b"../../cwd".to_vec()))),
    ("root", shared(|_| Ok(b"../../root".to_vec()))),
    ("exe", shared(|_| Ok(b"../../exe".to_vec()))),
    ("statm", shared(|_| Ok(b"../../statm".to_vec()))),
];

const COMM: Row = ("comm", Entry::File { text: comm, store: set_comm, permissions: 0o644 });

/// The key of what is about the process and not about one of its threads.
const WHOLE: Key = 0;

/// The thread of a key; the first one for the whole process.
fn thread(key: Key) -> Result<Arc<Task>> {
    own().task(if key == WHOLE { own().pid } else { key }).ok_or(ESRCH)
}

fn comm(key: Key) -> Result<Vec<u8>> {
    let mut name = thread(key)?.comm();
    name.push(b'\n');
    Ok(name)
}

fn set_comm(key: Key, name: &[u8]) -> Result<()> {
    let name = name.strip_suffix(b"\n").unwrap_or(name);
    let mut padded = [0; 16];
    let n = name.len().min(15);
    padded[..n].copy_from_slice(&name[..n]);
    *thread(key)?.name.lock() = padded;
    Ok(())
}

const fn ignored(text: procfs::Text) -> Entry {
    Entry::File { text, store: |_, _| Ok(()), permissions: 0o644 }
}

/// What a thread shares with its process.
const fn shared(target: procfs::Text) -> Entry {
    Entry::Link(target)
}

fn executable() -> Result<Arc<Dentry>> {
    Ok(program()?.file.clone())
}

fn working() -> Result<Arc<Dentry>> {
    Ok(files::current().working())
}

fn root() -> Result<Arc<Dentry>> {
    Ok(files::current().root())
}

/// The path of a place in the tree, as the program sees it.
fn path(place: Result<Arc<Dentry>>) -> Result<Vec<u8>> {
    place?.path_from(&files::current().root()).ok_or(ENOENT)
}

fn program() -> Result<Arc<Program>> {
    own().program().ok_or(ENOENT)
}

/// The strings the program was started with, read from its stack: programs that rename themselves overwrite them.
fn strings((start, end): (u64, u64)) -> Result<Vec<u8>> {
    UserPtr::<u8>::new(start).read_vec((end - start) as usize)
}

fn auxv() -> Result<Vec<u8>> {
    Ok(program()?.auxv.iter().flat_map(|word| word.to_le_bytes()).collect())
}

struct Tasks;

impl Changing for Tasks {
    fn names(&self, _: Key) -> Vec<String> {
        own().tasks().iter().map(|task| format!("{}", task.tid)).collect()
    }

    fn entry(&self, _: Key, name: &str) -> Result<(Entry, Key)> {
        let tid = name.parse().map_err(|_| ENOENT)?;
        own().task(tid).ok_or(ENOENT)?;
        Ok((Entry::Directory(THREAD), tid))
    }

    fn kind(&self) -> FileType {
        FileType::Directory
    }
}

fn maps() -> Result<Vec<u8>> {
    let mut out = String::new();
    for line in mem::current().listing() {
        let _ = writeln!(out, "{line}");
    }
    text(out)
}

fn smaps_rollup() -> Result<Vec<u8>> {
    let usage = mem::current().usage();
    let kib = |bytes: u64| bytes / 1024;
    text(format!(
        "00400000-7ffffffff000 ---p 00000000 00:00 0                              [rollup]\n\
         Rss:            {:>8} kB\nPss:            {:>8} kB\nPrivate_Clean:         0 kB\n\
         Private_Dirty:  {:>8} kB\nAnonymous:      {:>8} kB\nSwap:                  0 kB\n",
        kib(usage.resident()),
        kib(usage.resident()),
        kib(usage.anonymous),
        kib(usage.anonymous),
    ))
}

fn statm() -> Result<Vec<u8>> {
    let usage = mem::current().usage();
    let pages = |bytes: u64| bytes / PAGE_SIZE as u64;
    text(format!(
        "{} {} {} {} 0 {} 0\n",
        pages(usage.size),
        pages(usage.resident()),
        pages(usage.file),
        pages(usage.text),
        pages(usage.data + usage.stack),
    ))
}

fn state(process: &Process) -> &'static str {
    if process.signals.is_stopped() { "T" } else { "R" }
}

fn name_of(key: Key) -> Result<String> {
    Ok(String::from_utf8_lossy(&thread(key)?.comm()).into_owned())
}

/// proc_pid_stat(5): 52 fields.
fn stat(key: Key) -> Result<Vec<u8>> {
    let process = own();
    let usage = mem::current().usage();
    let id = if key == WHOLE { process.pid } else { key };
    let task = thread(key)?;
    cpu_time::start(process);
    let used = if key == WHOLE { process.usage() } else { task.usage() };
    let scheduling = *task.scheduling.lock();
    let mut fields: [u64; 49] = [0; 49];
    // Fields 4 to 52 of the manual, from index 0.
    let mut set = |number: usize, value: u64| fields[number - 4] = value;
    set(5, process.pid as u64);
    set(6, process.pid as u64);
    set(10, used.faults);
    set(14, used.user_ns / NS_PER_TICK);
    set(15, used.system_ns / NS_PER_TICK);
    set(18, scheduling.kernel_priority() as u64);
    set(19, i64::from(scheduling.nice()) as u64);
    set(20, process.thread_count() as u64);
    set(23, usage.size);
    set(24, usage.resident() / PAGE_SIZE as u64);
    set(25, u64::MAX);
    set(40, u64::from(scheduling.priority()));
    set(41, u64::from(scheduling.policy()));
    set(47, usage.brk_start);
    let mut out = format!("{id} ({}) {}", name_of(key)?, state(process));
    for (i, value) in fields.into_iter().enumerate() {
        // Priority and nice value are the signed ones.
        let _ = if [18 - 4, 19 - 4].contains(&i) {
            write!(out, " {}", value as i64)
        } else {
            write!(out, " {value}")
        };
    }
    out.push('\n');
    text(out)
}

/// proc_pid_status(5).
fn status(key: Key) -> Result<Vec<u8>> {
    let process = own();
    let task = thread(key)?;
    let usage = mem::current().usage();
    let used = task.usage();
    let c = process.credentials.lock().clone();
    let groups: String = c.groups.iter().map(|g| format!("{g} ")).collect();
    let mut out = format!(
        "Name:\t{}\nUmask:\t{:04o}\nState:\t{} (running)\nTgid:\t{}\nNgid:\t0\nPid:\t{}\nPPid:\t0\nTracerPid:\t0\n\
         Uid:\t{}\t{}\t{}\t{}\nGid:\t{}\t{}\t{}\t{}\nFDSize:\t64\nGroups:\t{groups}\n",
        name_of(key)?,
        process.files.umask(),
        state(process),
        process.pid,
        task.tid,
        c.uid,
        c.euid,
        c.suid,
        c.fsuid,
        c.gid,
        c.egid,
        c.sgid,
        c.fsgid,
    );
    let sizes = [
        ("VmPeak", usage.peak_size),
        ("VmSize", usage.size),
        ("VmLck", usage.locked),
        ("VmPin", 0),
        ("VmHWM", usage.peak_resident),
        ("VmRSS", usage.resident()),
        ("RssAnon", usage.anonymous),
        ("RssFile", usage.file),
        ("RssShmem", 0),
        ("VmData", usage.data),
        ("VmStk", usage.stack),
        ("VmExe", usage.text),
        ("VmLib", 0),
        ("VmPTE", usage.tables),
        ("VmSwap", 0),
    ];
    for (name, bytes) in sizes {
        let _ = writeln!(out, "{name}:\t{:>8} kB", bytes / 1024);
    }
    let _ = write!(
        out,
        "Threads:\t{}\nSigPnd:\t{:016x}\nShdPnd:\t{:016x}\nSigBlk:\t{:016x}\nNoNewPrivs:\t{}\nSeccomp:\t0\n\
         Cpus_allowed:\t1\nCpus_allowed_list:\t0\nMems_allowed:\t1\nMems_allowed_list:\t0\n\
         voluntary_ctxt_switches:\t{}\nnonvoluntary_ctxt_switches:\t{}\n",
        process.thread_count(),
        task.signals.pending(),
        process.signals.pending(),
        task.signals.blocked(),
        c.no_new_privileges as u8,
        used.voluntary_switches,
        used.involuntary_switches,
    );
    text(out)
}

fn limits() -> Result<Vec<u8>> {
    const NAMES: [(&str, &str); 16] = [
        ("Max cpu time", "seconds"),
        ("Max file size", "bytes"),
        ("Max data size", "bytes"),
        ("Max stack size", "bytes"),
        ("Max core file size", "bytes"),
        ("Max resident set", "bytes"),
        ("Max processes", "processes"),
        ("Max open files", "files"),
        ("Max locked memory", "bytes"),
        ("Max address space", "bytes"),
        ("Max file locks", "locks"),
        ("Max pending signals", "signals"),
        ("Max msgqueue size", "bytes"),
        ("Max nice priority", ""),
        ("Max realtime priority", ""),
        ("Max realtime timeout", "us"),
    ];
    let mut out = format!("{:<25} {:<20} {:<20} {:<10}\n", "Limit", "Soft Limit", "Hard Limit", "Units");
    let show = |value: u64| if value == u64::MAX { "unlimited".into() } else { format!("{value}") };
    for (resource, (name, unit)) in NAMES.iter().enumerate() {
        let limit = own().limits.both(resource);
        let _ = writeln!(out, "{name:<25} {:<20} {:<20} {unit:<10}", show(limit.soft), show(limit.hard));
    }
    text(out)
}
