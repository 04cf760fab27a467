// SPDX-License-Identifier: Apache-2.0 OR MIT
//! /proc/PID and /proc/PID/task/TID.

use super::descriptors::{Descriptors, Infos};
use super::{link, system, text};
use crate::files;
use crate::process::{Process, Program};
use crate::task::{self, Task};
use abi::{PAGE_SIZE, Result, errno::*};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_fs::{FileType, Magic};
use api_user::UserPtr;
use core::fmt::Write;
use procfs::{Changing, Directory, Entry};

const NS_PER_TICK: u64 = 1_000_000_000 / system::TICKS;

fn own() -> &'static Arc<Process> {
    &task::current().process
}

/// Adds what a process shows.
pub fn fill(directory: &mut Directory) {
    common(directory, None);
    directory.add("task", Entry::Directory(Directory::changing(Tasks)));
    directory.add("cmdline", Entry::text(|| strings(program()?.argument_bytes)));
    directory.add("environ", Entry::text(|| strings(program()?.environment_bytes)));
    directory.add("auxv", Entry::text(auxv));
    directory.add("maps", Entry::text(maps));
    directory.add("smaps_rollup", Entry::text(smaps_rollup));
    directory.add("statm", Entry::text(statm));
    directory.add("limits", Entry::text(limits));
    directory.add("mounts", Entry::text(|| system::mounts(false)));
    directory.add("mountinfo", Entry::text(|| system::mounts(true)));
    directory.add("cgroup", Entry::fixed("0::/\n"));
    directory
        .add("io", Entry::fixed("rchar: 0\nwchar: 0\nsyscr: 0\nsyscw: 0\nread_bytes: 0\nwrite_bytes: 0\n"));
    directory.add("oom_score", Entry::fixed("0\n"));
    // Nothing kills by score: what is written is accepted and has no effect.
    directory.add("oom_score_adj", ignored("0\n"));
    directory.add("coredump_filter", ignored("00000033\n"));
    directory.add("loginuid", Entry::fixed("4294967295"));
    directory.add("sessionid", Entry::fixed("4294967295"));
    directory.add("uid_map", Entry::fixed("         0          0 4294967295\n"));
    directory.add("gid_map", Entry::fixed("         0          0 4294967295\n"));
    directory.add("setgroups", Entry::fixed("allow\n"));
    directory.add("exe", magic(|| Ok(program()?.file.clone())));
    directory.add("cwd", magic(|| Ok(files::current().working())));
    directory.add("root", magic(|| Ok(files::current().root())));
    directory.add("fd", Entry::Directory(Directory::changing(Descriptors)));
    directory.add("fdinfo", Entry::Directory(Directory::changing(Infos)));
    let titles = [
        (
            "net/tcp",
            "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n",
        ),
        (
            "net/udp",
            "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n",
        ),
        ("net/unix", "Num       RefCount Protocol Flags    Type St Inode Path\n"),
        ("net/if_inet6", ""),
        (
            "net/route",
            "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n",
        ),
    ];
    for (path, title) in titles {
        directory.add(path, Entry::fixed(title));
    }
}

/// What a process and each of its threads show.
fn common(directory: &mut Directory, tid: Option<i32>) {
    let task = move || -> Result<Arc<Task>> { own().task(tid.unwrap_or(own().pid)).ok_or(ESRCH) };
    directory.add(
        "comm",
        Entry::File {
            text: Box::new(move || {
                let mut name = task()?.comm();
                name.push(b'\n');
                Ok(name)
            }),
            store: Some(Box::new(move |name| {
                let name = name.strip_suffix(b"\n").unwrap_or(name);
                let mut padded = [0; 16];
                let n = name.len().min(15);
                padded[..n].copy_from_slice(&name[..n]);
                *task()?.name.lock() = padded;
                Ok(())
            })),
            permissions: 0o644,
        },
    );
    directory.add("stat", Entry::text(move || stat(tid)));
    directory.add("status", Entry::text(move || status(tid)));
    directory.add("wchan", Entry::fixed("0"));
}

fn ignored(value: &'static str) -> Entry {
    Entry::File {
        text: Box::new(move || Ok(value.as_bytes().to_vec())),
        store: Some(Box::new(|_| Ok(()))),
        permissions: 0o644,
    }
}

/// A link to a place in the tree, with its path as text.
fn magic(place: fn() -> Result<Arc<vfs::Dentry>>) -> Entry {
    Entry::Magic {
        text: Box::new(move || place()?.path_from(&files::current().root()).ok_or(ENOENT)),
        lead: Box::new(move || Ok(Magic::Place(place()?))),
    }
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
    fn names(&self) -> Vec<String> {
        own().tasks().iter().map(|task| format!("{}", task.tid)).collect()
    }

    fn entry(&self, name: &str) -> Result<Entry> {
        let tid = name.parse().map_err(|_| ENOENT)?;
        own().task(tid).ok_or(ENOENT)?;
        let mut directory = Directory::new();
        common(&mut directory, Some(tid));
        let shared = ["maps", "fd", "limits", "mounts", "cgroup", "cwd", "root", "exe", "statm"];
        for name in shared {
            directory.add(name, link(move || text(format!("../../{name}"))));
        }
        Ok(Entry::Directory(directory))
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

fn name_of(tid: Option<i32>) -> Result<String> {
    let task = own().task(tid.unwrap_or(own().pid)).ok_or(ESRCH)?;
    Ok(String::from_utf8_lossy(&task.comm()).into_owned())
}

/// proc_pid_stat(5): 52 fields.
fn stat(tid: Option<i32>) -> Result<Vec<u8>> {
    let process = own();
    let usage = mem::current().usage();
    let id = tid.unwrap_or(process.pid);
    let cpu = match tid {
        Some(tid) => process.task(tid).ok_or(ESRCH)?.cpu_ns(),
        None => process.cpu_ns(),
    };
    let mut fields: [u64; 49] = [0; 49];
    // Fields 4 to 52 of the manual, from index 0.
    let mut set = |number: usize, value: u64| fields[number - 4] = value;
    set(5, process.pid as u64);
    set(6, process.pid as u64);
    set(14, cpu / NS_PER_TICK);
    set(18, 20);
    set(20, process.thread_count() as u64);
    set(23, usage.size);
    set(24, usage.resident() / PAGE_SIZE as u64);
    set(25, u64::MAX);
    set(47, usage.brk_start);
    let mut out = format!("{id} ({}) {}", name_of(tid)?, state(process));
    for value in fields {
        let _ = write!(out, " {value}");
    }
    out.push('\n');
    text(out)
}

/// proc_pid_status(5).
fn status(tid: Option<i32>) -> Result<Vec<u8>> {
    let process = own();
    let task = process.task(tid.unwrap_or(process.pid)).ok_or(ESRCH)?;
    let usage = mem::current().usage();
    let c = process.credentials.lock().clone();
    let groups: String = c.groups.iter().map(|g| format!("{g} ")).collect();
    let mut out = format!(
        "Name:\t{}\nUmask:\t{:04o}\nState:\t{} (running)\nTgid:\t{}\nNgid:\t0\nPid:\t{}\nPPid:\t0\nTracerPid:\t0\n\
         Uid:\t{}\t{}\t{}\t{}\nGid:\t{}\t{}\t{}\t{}\nFDSize:\t64\nGroups:\t{groups}\n",
        name_of(tid)?,
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
         voluntary_ctxt_switches:\t0\nnonvoluntary_ctxt_switches:\t0\n",
        process.thread_count(),
        task.signals.pending(),
        process.signals.pending(),
        task.signals.blocked(),
        c.no_new_privileges as u8,
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
