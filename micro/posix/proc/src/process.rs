// SPDX-License-Identifier: Apache-2.0 OR MIT
//! /proc/PID and /proc/PID/task/TID.

use super::descriptors::{Descriptors, Infos};
use super::{
    audit, interfaces, map_files, memory, mounts, namespaces, net, oom, system, text, time_offsets, user_maps,
};
use abi::{PAGE_SIZE, Result, errno::*};
use alloc::collections::BinaryHeap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_fs::{FileType, Magic};
use calls_process::scheduling::all_cpus;
use core::any::Any;
use core::fmt::Write;
use core::sync::atomic::Ordering;
use mem::Space;
use procfs::{Changing, Entry, Key, Output, Owner, Row};
use task::blocked::Blocked;
use task::cpu_time::{self, Bytes};
use task::files::{self, Files};
use task::identity::capabilities::{CAP_NET_ADMIN, CAP_SYS_NICE};
use task::identity::{As, check_access};
use task::pids::{Pid, PidNamespace};
use task::prctl::CORE_FILTER_KNOWN;
use task::process::{Process, Program};
use task::time::namespace::shown_boottime;
use task::users::{self, Kind};
use task::{Task, processes};
use vfs::Dentry;

const NS_PER_TICK: u64 = 1_000_000_000 / system::TICKS;

/// The processes, each a directory with its number.
pub struct Processes;

/// Files that are no sequences of lines on Linux.
const WITH_END: [&str; 10] = [
    "auxv",
    "clear_refs",
    "cmdline",
    "coredump_filter",
    "environ",
    "fail-nth",
    "loginuid",
    "oom_adj",
    "oom_score_adj",
    "sessionid",
];

impl Changing for Processes {
    fn has_end(&self, name: &str) -> bool {
        WITH_END.contains(&name)
    }

    fn numbers(&self, key: Key, from: u32, most: usize) -> Vec<u32> {
        let viewer = viewer(key);
        let numbers = processes::all().map(|process| viewer.number_of(process.pid));
        ascending(numbers.filter(|number| *number != 0), from, most)
    }

    fn count(&self, key: Key) -> u64 {
        let viewer = viewer(key);
        processes::all().filter(|process| viewer.number_of(process.pid) != 0).count() as u64
    }

    fn entry(&self, key: Key, name: &str) -> Result<(Entry, Key)> {
        let number = i32::try_from(procfs::number(name)?).map_err(|_| ENOENT)?;
        let pid = viewer(key).find(number).ok_or(ENOENT)?;
        match processes::find(pid) {
            Some(process) => Ok((Entry::Directory(ROWS), WHOLE | key_with(key, pid, &process))),
            // Linux lists only processes, but finds threads as well.
            None => {
                let task = processes::task(pid).ok_or(ENOENT)?;
                Ok((Entry::Directory(ROWS), key_with(key, pid, &task.process)))
            }
        }
    }

    fn kind(&self) -> FileType {
        FileType::Directory
    }

    fn owner(&self, key: Key) -> Option<Owner> {
        owner(key)
    }

    fn check_presence(&self, key: Key) -> Result<()> {
        of(key).map(|_| ())
    }

    /// Settings go by effective ids and no capability, those of a network by its administrator as well (Linux' sysctl_perm).
    fn rule_beside(&self, directory: &str, permissions: u32, want: u32) -> Option<Result<()>> {
        let below = directory.strip_prefix("sys/")?;
        let caller = task::current();
        let (who, owner) = (caller.credentials().lock(), caller.network().owner.clone());
        let administers = below.starts_with("net/") && who.can_in(&owner, CAP_NET_ADMIN);
        let shift = if who.euid == 0 || administers {
            6
        } else if who.egid == 0 || who.groups.contains(&0) {
            3
        } else {
            0
        };
        Some(if permissions >> shift & want == want { Ok(()) } else { Err(EACCES) })
    }

    /// The process, for pidfd_send_signal(2).
    fn object(&self, key: Key) -> Result<Arc<dyn Any + Send + Sync>> {
        Ok(of(key)?)
    }
}

/// Whether the caller is a thread of the process.
pub fn is_own(key: Key) -> bool {
    of(key).is_ok_and(|process| Arc::ptr_eq(&process, &task::current().process))
}

/// Whose the files of a process are: of its effective user, and where it may not be dumped the superuser's of the user namespace in which
/// it began its program.
pub fn owner(key: Key) -> Option<Owner> {
    let process = of(key).ok()?;
    let (uid, gid) = {
        let c = process.credentials.lock();
        (c.euid, c.egid)
    };
    let is_secret = !process.settings.lock().may_be_dumped();
    let users = process.users_of_program();
    let root = |kind| users.to_machine(kind, 0).unwrap_or(0);
    let superuser = if is_secret { (root(Kind::User), root(Kind::Group)) } else { (0, 0) };
    Some(Owner { uid, gid, is_secret, superuser })
}

/// The lowest of the numbers that are not below `from`, at most this many, in ascending order. A namespace's need not come in the
/// machine's order.
fn ascending(ids: impl Iterator<Item = i32>, from: u32, most: usize) -> Vec<u32> {
    let mut lowest = BinaryHeap::new();
    for id in ids.map(|id| id as u32).filter(|id| *id >= from) {
        if lowest.len() < most {
            lowest.push(id);
        } else if let Some(mut highest) = lowest.peek_mut()
            && id < *highest
        {
            *highest = id;
        }
    }
    lowest.into_sorted_vec()
}

/// The process a key is about; `ESRCH` when it is no more, also when another process has its number.
pub fn of(key: Key) -> Result<Arc<Process>> {
    let process = processes::with_thread(pid_of(key)).ok_or(ESRCH)?;
    if process.born_ns == (key >> BORN_AT) as u64 { Ok(process) } else { Err(ESRCH) }
}

/// The same, for what only those see who may trace it; `EACCES` for others.
pub fn traceable(key: Key) -> Result<Arc<Process>> {
    let process = of(key)?;
    check_access(&process, As::Files).map_err(|_| EACCES)?;
    Ok(process)
}

/// Its address space; `None` for one that has ended.
fn space(key: Key) -> Result<Option<Arc<Space>>> {
    Ok(of(key)?.space())
}

fn usage(key: Key) -> Result<mem::Usage> {
    Ok(space(key)?.map(|space| space.usage()).unwrap_or_default())
}

/// What a process and each of its threads show; the names are those of `proc_pid(5)`.
macro_rules! rows {
    ($($own:expr),+) => {
        &[
            $($own,)+
            COMM,
            ("stat", Entry::Text(stat)),
            ("status", Entry::Text(status)),
            ("wchan", Entry::Fixed("0")),
            ("syscall", Entry::Private { lines: call, check: |_| Ok(()), permissions: 0o400 }),
            ("cmdline", Entry::Text(|key| space(key)?.map_or(Ok(Vec::new()), |space| space.command_line()))),
            ("environ", private(|key, out| out.add(&environment(key)?), 0o400)),
            ("auxv", private(|key, out| out.add(&auxv(key)?), 0o400)),
            ("maps", private(memory::maps, 0o444)),
            ("smaps", private(memory::smaps, 0o444)),
            ("smaps_rollup", private(|key, out| out.add(&memory::smaps_rollup(key)?), 0o444)),
            ("mem", MEM),
            ("pagemap", PAGEMAP),
            ("clear_refs", Entry::File { text: |_| Err(EINVAL), store: memory::clear_references, permissions: 0o200 }),
            ("statm", Entry::Text(statm)),
            ("limits", Entry::Text(limits)),
            ("mounts", mounts::MOUNTS),
            ("mountinfo", mounts::MOUNTINFO),
            ("cgroup", Entry::Fixed("0::/\n")),
            ("io", private(io, 0o400)),
            oom::SCORE,
            oom::ADJUSTMENT,
            oom::OLD_ADJUSTMENT,
            audit::LOGIN,
            audit::SESSION,
            ("personality", private(|key, out| out.print(format_args!("{:08x}\n", thread(key)?.settings.personality())), 0o400)),
            ("schedstat", Entry::Text(schedstat)),
            ("cpuset", Entry::Fixed("/\n")),
            #[cfg(feature = "fail-nth")]
            FAIL_NTH,
            ("timerslack_ns", Entry::File { text: timer_slack, store: set_timer_slack, permissions: 0o666 }),
            ("coredump_filter", Entry::File { text: core_filter, store: set_core_filter, permissions: 0o644 }),
            ("uid_map", user_maps::entry!(Kind::User)),
            ("gid_map", user_maps::entry!(Kind::Group)),
            ("projid_map", user_maps::entry!(Kind::Project)),
            ("setgroups", user_maps::SETGROUPS),
            ("timens_offsets", time_offsets::OFFSETS),
            (
                "exe",
                Entry::Magic { text: |key| path(executable(key)), lead: |key| Ok(Magic::Place(executable(key)?)) },
            ),
            ("cwd", Entry::Magic { text: |key| path(working(key)), lead: |key| Ok(Magic::Place(working(key)?)) }),
            ("root", Entry::Magic { text: |key| path(root(key)), lead: |key| Ok(Magic::Place(root(key)?)) }),
            ("ns", Entry::DirectoryWith { rows: namespaces::ROWS, permissions: 0o511 }),
            ("fd", Entry::Changing(&Descriptors)),
            ("fdinfo", Entry::Changing(&Infos)),
            ("net/tcp", Entry::Lines(|_, out| net::tcp(out))),
            ("net/udp", Entry::Lines(|_, out| net::udp(out))),
            ("net/tcp6", Entry::Lines(|_, out| net::tcp6(out))),
            ("net/udp6", Entry::Lines(|_, out| net::udp6(out))),
            ("net/raw", Entry::Lines(|_, out| net::raw(out))),
            ("net/raw6", Entry::Lines(|_, out| net::raw6(out))),
            ("net/udplite", Entry::Lines(|_, out| net::udplite(out))),
            ("net/udplite6", Entry::Lines(|_, out| net::udplite6(out))),
            ("net/netlink", Entry::Lines(|_, out| net::netlink(out))),
            ("net/if_inet6", Entry::Text(|_| net::table("if_inet6"))),
            ("net/ipv6_route", Entry::Text(|_| net::table("ipv6_route"))),
            ("net/snmp6", Entry::Text(|_| net::table("snmp6"))),
            ("net/unix", Entry::Lines(|_, out| net::unix(out))),
            ("net/packet", Entry::Text(|_| net::table("packet"))),
            ("net/dev", Entry::Text(|_| interfaces::devices())),
            ("net/route", Entry::Text(|_| interfaces::routes())),
            ("net/arp", Entry::Text(|_| interfaces::neighbours())),
            ("net/snmp", Entry::Text(|_| net::table("snmp"))),
            ("net/netstat", Entry::Text(|_| net::table("netstat"))),
            ("net/sockstat", Entry::Text(|_| net::table("sockstat"))),
        ]
    };
}

/// What a process shows, threads included.
pub const ROWS: &[Row] =
    rows!(("task", Entry::Changing(&Tasks)), ("map_files", Entry::Changing(&map_files::MapFiles)));

/// What a thread shows; the key is its number.
const THREAD: &[Row] = rows!(("children", Entry::Lines(children)));

/// The processes that the thread made, or was given by one of the same process that ended.
fn children(key: Key, out: &mut Output) -> Result<()> {
    let (process, thread, viewer) = (of(key)?, pid_of(key), viewer(key));
    // Held for as long as it takes to copy numbers.
    let mut pids = Vec::new();
    for child in process.family.children.lock().iter() {
        if process.maker_of(&child) == thread {
            pids.reserve_fallibly(1).map_err(|_| ENOMEM)?;
            pids.push(viewer.number_of(child.pid));
        }
    }
    pids.iter().try_for_each(|pid| out.print(format_args!("{pid} ")))
}

/// proc_pid_syscall(5): of a thread that waits, for those who may trace it. Who may not can open the file, and read nothing.
fn call(key: Key, out: &mut Output) -> Result<()> {
    check_access(&*of(key)?, As::Files)?;
    // A thread that has ended waits for nothing.
    let Ok(task) = thread(key) else { return out.print(format_args!("-1 0x0 0x0\n")) };
    let Some(Blocked { call, stack_pointer, instruction }) = task.blocked() else {
        return out.print(format_args!("running\n"));
    };
    match call {
        Some((number, [a, b, c, d, e, f])) => {
            out.print(format_args!("{} {a:#x} {b:#x} {c:#x} {d:#x} {e:#x} {f:#x}", number as i32))?;
        }
        None => out.print(format_args!("-1"))?,
    }
    out.print(format_args!(" {stack_pointer:#x} {instruction:#x}\n"))
}

/// For those alone who may trace the process.
const fn private(lines: procfs::Lines, permissions: u32) -> Entry {
    Entry::Private { lines, check: |key| traceable(key).map(|_| ()), permissions }
}

const MEM: Entry = Entry::Opens {
    open: |key, inode| traceable(key).and_then(|process| memory::open(&process, inode)),
    permissions: 0o600,
};
const PAGEMAP: Entry = Entry::Opens {
    open: |key, inode| traceable(key).and_then(|process| memory::open_page_map(&process, inode)),
    permissions: 0o400,
};
#[cfg(feature = "fail-nth")]
const FAIL_NTH: Row = (
    "fail-nth",
    Entry::File {
        text: |key| thread(key)?.fail_nth.take(),
        store: |key, text| thread(key)?.fail_nth.store(text),
        permissions: 0o644,
    },
);
const COMM: Row = ("comm", Entry::File { text: comm, store: set_comm, permissions: 0o644 });

/// A key is made of the time at which the process was made, the id of the PID namespace that the file system shows, this bit for what is
/// about the process and not about one of its threads, and the number of either in the machine's own namespace. The number alone may
/// be given to another process, the number and the time of birth are not. 32 bits remain for a descriptor.
const WHOLE: Key = 1 << 15;
const PIDS_AT: u32 = 16;
const PIDS: Key = 0xffff << PIDS_AT;
const BORN_AT: u32 = 32;

/// The key of a file system that shows a PID namespace.
pub fn key_of(pids: &PidNamespace) -> Key {
    Key::from(pids.id()) << PIDS_AT
}

/// The key of a thread with that number, or with [`WHOLE`] of the process, in the same file system as `key`.
fn key_with(key: Key, pid: Pid, process: &Process) -> Key {
    Key::from(process.born_ns) << BORN_AT | key & PIDS | pid.of_machine() as Key
}

fn pid_of(key: Key) -> Pid {
    Pid::from_machine((key & (WHOLE - 1)) as i32)
}

/// The PID namespace whose numbers are shown. The file system keeps it.
pub fn viewer(key: Key) -> PidNamespace {
    PidNamespace::by_id(((key & PIDS) >> PIDS_AT) as u32).unwrap_or_default()
}

/// The thread of a key; the first one for the whole process. `ESRCH` for a process that has ended.
pub fn thread(key: Key) -> Result<Arc<Task>> {
    let process = of(key)?;
    let task = if key & WHOLE != 0 { process.main_task() } else { process.task(pid_of(key)) };
    task.ok_or(ESRCH)
}

/// The name of the thread, or that a process had before its end.
fn name_of(key: Key) -> Result<Vec<u8>> {
    match thread(key) {
        Ok(task) => Ok(task.comm()),
        Err(e) => match *of(key)?.family.zombie.lock() {
            Some(ended) => Ok(ended.comm()),
            None => Err(e),
        },
    }
}

fn comm(key: Key) -> Result<Vec<u8>> {
    let mut name = name_of(key)?;
    name.push(b'\n');
    Ok(name)
}

fn set_comm(key: Key, name: &[u8]) -> Result<()> {
    let name = name.strip_suffix(b"\n").unwrap_or(name);
    let mut padded = [0; 16];
    let n = name.len().min(15);
    padded[..n].copy_from_slice(&name[..n]);
    let target = thread(key)?;
    // For the threads of a process alone, whatever the file's permissions say.
    if target.process.pid != task::current().process.pid {
        return Err(EINVAL);
    }
    *target.name.lock() = padded;
    Ok(())
}

/// The first thread of a process, whose timer slack another thread may see and set that has CAP_SYS_NICE.
fn with_timer_slack(key: Key) -> Result<Arc<Task>> {
    let (target, caller) = (thread(key)?, task::current());
    if target.tid != caller.tid && !caller.credentials().lock().can(CAP_SYS_NICE) {
        return Err(EPERM);
    }
    Ok(target)
}

fn timer_slack(key: Key) -> Result<Vec<u8>> {
    text(format!("{}\n", with_timer_slack(key)?.timer_slack.get()))
}

fn set_timer_slack(key: Key, written: &[u8]) -> Result<()> {
    let ns = core::str::from_utf8(written).ok().and_then(|t| t.trim_end().parse().ok()).ok_or(EINVAL)?;
    with_timer_slack(key)?.timer_slack.set(ns);
    Ok(())
}

fn core_filter(key: Key) -> Result<Vec<u8>> {
    let process = of(key)?;
    // The memory that it was about is gone.
    if process.space().is_none() {
        return Ok(Vec::new());
    }
    let filter = process.settings.lock().core_filter;
    text(format!("{filter:08x}\n"))
}

/// A number as C writes them; bits that mean nothing are dropped (core(5)).
fn set_core_filter(key: Key, bytes: &[u8]) -> Result<()> {
    let number = number_of(bytes)?;
    of(key)?.settings.lock().core_filter = number & CORE_FILTER_KNOWN;
    Ok(())
}

/// Decimal, octal with a leading 0, or hexadecimal with 0x; programs write the NUL behind it, too.
fn number_of(bytes: &[u8]) -> Result<u32> {
    let text = core::str::from_utf8(bytes).map_err(|_| EINVAL)?;
    let text = text.split('\0').next().unwrap_or_default().trim();
    let parsed = match (text.strip_prefix("0x"), text.strip_prefix('0')) {
        (Some(digits), _) => u32::from_str_radix(digits, 16),
        (_, Some(digits)) if !digits.is_empty() => u32::from_str_radix(digits, 8),
        _ => text.parse(),
    };
    parsed.map_err(|_| EINVAL)
}

/// proc_pid_io(5): of a thread, or of all threads and of children that were waited for. What reaches a disk is not told apart.
fn io(key: Key, out: &mut Output) -> Result<()> {
    let used = if key & WHOLE == 0 {
        thread(key)?.usage()
    } else {
        let process = of(key)?;
        let mut all = process.usage();
        all += *process.family.children_used.lock();
        all
    };
    let Bytes { read, written, reads, writes } = used.transferred;
    out.print(format_args!(
        "rchar: {read}\nwchar: {written}\nsyscr: {reads}\nsyscw: {writes}\nread_bytes: 0\nwrite_bytes: 0\ncancelled_write_bytes: 0\n"
    ))
}

/// Processor time, time in which it waited for a processor (which nobody measures), and how often it got one.
fn schedstat(key: Key) -> Result<Vec<u8>> {
    let used = thread(key).map(|task| task.usage()).unwrap_or_default();
    text(format!("{} 0 {}\n", used.total_ns(), used.voluntary_switches + used.involuntary_switches))
}

/// Its program's file. `EACCES` for whoever may not trace it.
fn executable(key: Key) -> Result<Arc<Dentry>> {
    traceable(key)?;
    Ok(program(key)?.file.clone())
}

fn working(key: Key) -> Result<Arc<Dentry>> {
    files_of(key, |files| files.working())
}

fn root(key: Key) -> Result<Arc<Dentry>> {
    files_of(key, |files| files.root())
}

/// What a thread has of the file tree. `ENOENT` for a process that has ended, `EACCES` for whoever may not trace it.
pub fn files_of<T>(key: Key, see: impl FnOnce(&Files) -> T) -> Result<T> {
    traceable(key)?;
    let task = thread(key).map_err(|_| ENOENT)?;
    Ok(see(task.files()))
}

/// The path of a place in the tree, as the program sees it.
fn path(place: Result<Arc<Dentry>>) -> Result<Vec<u8>> {
    Ok(place?.path_seen_from(&files::current().root()))
}

fn program(key: Key) -> Result<Arc<Program>> {
    of(key)?.program().ok_or(ENOENT)
}

/// Empty once the program has ended.
fn environment(key: Key) -> Result<Vec<u8>> {
    space(key)?.map_or(Ok(Vec::new()), |space| space.environment())
}

fn auxv(key: Key) -> Result<Vec<u8>> {
    traceable(key)?;
    Ok(program(key)?.auxv.iter().flat_map(|word| word.to_le_bytes()).collect())
}

struct Tasks;

impl Changing for Tasks {
    fn has_end(&self, name: &str) -> bool {
        WITH_END.contains(&name)
    }

    fn numbers(&self, key: Key, from: u32, most: usize) -> Vec<u32> {
        match of(key) {
            Ok(process) => {
                let viewer = viewer(key);
                ascending(process.tasks().map(|task| viewer.number_of(task.tid)), from, most)
            }
            Err(_) => Vec::new(),
        }
    }

    fn count(&self, key: Key) -> u64 {
        of(key).map_or(0, |process| process.tasks().count() as u64)
    }

    fn entry(&self, key: Key, name: &str) -> Result<(Entry, Key)> {
        let number = i32::try_from(procfs::number(name)?).map_err(|_| ENOENT)?;
        let tid = viewer(key).find(number).ok_or(ENOENT)?;
        let process = of(key)?;
        process.task(tid).ok_or(ENOENT)?;
        Ok((Entry::Directory(THREAD), key_with(key, tid, &process)))
    }

    fn kind(&self) -> FileType {
        FileType::Directory
    }

    fn owner(&self, key: Key) -> Option<Owner> {
        owner(key)
    }

    fn check_presence(&self, key: Key) -> Result<()> {
        of(key).map(|_| ()).map_err(|_| ENOENT)
    }
}

fn statm(key: Key) -> Result<Vec<u8>> {
    let usage = usage(key)?;
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

/// Letter and word of what it does.
fn state(process: &Process, task: Option<&Task>) -> (char, &'static str) {
    let sleeps = |task: &Task| task.thread().is_some_and(|thread| thread.is_parked());
    match task {
        None => ('Z', "zombie"),
        Some(task) if task.tracing.is_stopped() => ('t', "tracing stop"),
        Some(task) if task.in_vfork.load(Ordering::Relaxed) => ('D', "disk sleep"),
        // Its tracer may have let it go on although its process is stopped.
        Some(task) if process.signals.is_stopped() && !task.tracing.passes_stop() => ('T', "stopped"),
        Some(task) if sleeps(task) => ('S', "sleeping"),
        Some(_) => ('R', "running"),
    }
}

fn shown_name(key: Key) -> Result<String> {
    Ok(String::from_utf8_lossy(&name_of(key)?).into_owned())
}

/// Device number and foreground group of the terminal that controls the process' session; 0 and -1 for none.
fn terminal_of(process: &Process, viewer: &PidNamespace) -> (u64, i32) {
    calls_process::terminals::of(process).map_or((0, -1), |(device, group)| (device, viewer.number_of(group)))
}

/// proc_pid_stat(5): 52 fields.
fn stat(key: Key) -> Result<Vec<u8>> {
    let process = of(key)?;
    let usage = usage(key)?;
    let viewer = viewer(key);
    let seen = |pid: Pid| viewer.number_of(pid) as u64;
    let id = viewer.number_of(pid_of(key));
    let task = thread(key).ok();
    let zombie = *process.family.zombie.lock();
    cpu_time::start();
    let used = match (&task, zombie) {
        (_, Some(ended)) => ended.used,
        (Some(task), None) if key & WHOLE == 0 => task.usage(),
        _ => process.usage(),
    };
    let children = *process.family.children_used.lock();
    let scheduling = task.as_ref().map_or_else(Default::default, |task| *task.scheduling.lock());
    let sessions = *process.sessions.lock();
    let (terminal, foreground) = terminal_of(&process, &viewer);
    let mut fields: [u64; 49] = [0; 49];
    // Fields 4 to 52 of the manual, from index 0.
    let mut set = |number: usize, value: u64| fields[number - 4] = value;
    set(4, seen(process.family.parent()));
    set(5, seen(sessions.group));
    set(6, seen(sessions.session));
    set(7, terminal);
    set(8, foreground as u64);
    set(10, used.faults);
    set(14, used.user_ns / NS_PER_TICK);
    set(15, used.system_ns / NS_PER_TICK);
    set(16, children.user_ns / NS_PER_TICK);
    set(17, children.system_ns / NS_PER_TICK);
    set(18, scheduling.kernel_priority() as u64);
    set(19, i64::from(scheduling.nice()) as u64);
    set(20, process.thread_count() as u64);
    set(22, shown_boottime(process.born_ns) / NS_PER_TICK);
    set(23, usage.size);
    set(24, usage.resident() / PAGE_SIZE as u64);
    set(25, u64::MAX);
    let set_of = |signals: u64| signals & 0x7fff_ffff;
    let (ignored, caught) = process.signals.ignored_and_caught();
    if let Some(task) = &task {
        set(31, set_of(task.signals.pending()));
        set(32, set_of(task.signals.blocked()));
        set(39, task.thread().map_or(0, |thread| u64::from(thread.processor())));
    }
    set(33, set_of(ignored));
    set(34, set_of(caught));
    set(38, process.family.exit_signal.load(Ordering::Relaxed) as u64);
    set(40, u64::from(scheduling.priority()));
    set(41, u64::from(scheduling.policy()));
    let is_permitted = traceable(key).is_ok();
    let letter = state(&process, task.as_deref()).0;
    if is_permitted && (key & WHOLE == 0 || process.thread_count() < 2) {
        // That it waits, and not for what.
        set(35, u64::from(letter != 'R'));
    }
    if let Some(space) = process.space() {
        let map = space.mm_map();
        // Who may not know gets a number that is no address.
        set(26, if is_permitted { map.start_code } else { 1 });
        set(27, if is_permitted { map.end_code } else { 1 });
        if is_permitted {
            set(28, map.start_stack);
            let data = [map.start_data, map.end_data, map.start_brk];
            let strings = [map.arg_start, map.arg_end, map.env_start, map.env_end];
            (45..).zip(data.into_iter().chain(strings)).for_each(|(number, at)| set(number, at));
        }
    }
    if let Some(ended) = zombie
        && is_permitted
    {
        set(52, ended.wait_status() as u64);
    }
    let mut out = format!("{id} ({}) {letter}", shown_name(key)?);
    for (i, value) in fields.into_iter().enumerate() {
        // The terminal's group, priority and nice value are the signed ones.
        let _ = if [8 - 4, 18 - 4, 19 - 4].contains(&i) {
            write!(out, " {}", value as i64)
        } else {
            write!(out, " {value}")
        };
    }
    out.push('\n');
    text(out)
}

/// Processors as a list (cpuset(7)): `0,2-3`.
fn cpu_list(mask: u64) -> String {
    let mut out = String::new();
    let mut cpu = 0;
    while cpu < u64::BITS && mask >> cpu != 0 {
        cpu += (mask >> cpu).trailing_zeros();
        let last = cpu + (mask >> cpu).trailing_ones() - 1;
        let comma = if out.is_empty() { "" } else { "," };
        let _ = if last == cpu { write!(out, "{comma}{cpu}") } else { write!(out, "{comma}{cpu}-{last}") };
        cpu = last + 1;
    }
    out
}

/// proc_pid_status(5).
fn status(key: Key) -> Result<Vec<u8>> {
    let (process, viewer) = (of(key)?, viewer(key));
    let task = thread(key).ok();
    let usage = usage(key)?;
    let used = task.as_ref().map_or_else(Default::default, |task| task.usage());
    let (letter, word) = state(&process, task.as_deref());
    let chosen = task.as_ref().and_then(|task| task.thread()).map_or(u64::MAX, |thread| thread.cpus());
    let cpus = chosen & all_cpus();
    let of_task = task.as_ref().map(|task| task.credentials().lock().clone());
    let c = of_task.unwrap_or_else(|| process.credentials.lock().clone());
    // A space ends the list, and is all there is of an empty one.
    let users = users::here();
    let (user, group) = (|id: u32| users.shown_user(id), |id: u32| users.shown_group(id));
    let groups: String = c.groups.iter().map(|g| format!("{} ", group(*g))).collect();
    let mut out = format!(
        "Name:\t{}\nUmask:\t{:04o}\nState:\t{letter} ({word})\nTgid:\t{}\nNgid:\t0\nPid:\t{}\nPPid:\t{}\nTracerPid:\t{}\n\
         Uid:\t{}\t{}\t{}\t{}\nGid:\t{}\t{}\t{}\t{}\nFDSize:\t64\nGroups:\t{groups:1}\n",
        shown_name(key)?,
        task.as_ref().map_or(&process.files, |task| task.files()).umask(),
        viewer.number_of(process.pid),
        viewer.number_of(pid_of(key)),
        viewer.number_of(process.family.parent()),
        task.as_ref().map_or(0, |task| viewer.number_of(task.tracing.tracer())),
        user(c.uid),
        user(c.euid),
        user(c.suid),
        user(c.fsuid),
        group(c.gid),
        group(c.egid),
        group(c.sgid),
        group(c.fsgid),
    );
    let sessions = *process.sessions.lock();
    let ids = [
        ("NStgid", process.pid),
        ("NSpid", pid_of(key)),
        ("NSpgid", sessions.group),
        ("NSsid", sessions.session),
    ];
    for (name, pid) in ids {
        let _ = write!(out, "{name}:");
        for number in viewer.numbers_down_to(&process.pids, pid) {
            let _ = write!(out, "\t{number}");
        }
        out.push('\n');
    }
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
    let (ignored_signals, caught_signals) = process.signals.ignored_and_caught();
    let _ = write!(
        out,
        "Threads:\t{}\nSigPnd:\t{:016x}\nShdPnd:\t{:016x}\nSigBlk:\t{:016x}\n\
         SigIgn:\t{:016x}\nSigCgt:\t{:016x}\nCapInh:\t{:016x}\nCapPrm:\t{:016x}\nCapEff:\t{:016x}\n\
         CapBnd:\t{:016x}\nCapAmb:\t{:016x}\nNoNewPrivs:\t{}\n\
         Seccomp:\t{}\nSeccomp_filters:\t{}\n\
         Cpus_allowed:\t{:x}\nCpus_allowed_list:\t{}\nMems_allowed:\t1\nMems_allowed_list:\t0\n\
         voluntary_ctxt_switches:\t{}\nnonvoluntary_ctxt_switches:\t{}\n",
        // A zombie counts as the one thread it was.
        process.thread_count().max(1),
        task.as_ref().map_or(0, |task| task.signals.pending()),
        process.signals.pending(),
        task.as_ref().map_or(0, |task| task.signals.blocked()),
        ignored_signals,
        caught_signals,
        c.capabilities.inheritable,
        c.capabilities.permitted,
        c.capabilities.effective,
        c.capabilities.bounding,
        c.capabilities.ambient,
        c.no_new_privileges as u8,
        task.as_ref().map_or(0, |task| task.seccomp.mode()),
        task.as_ref().map_or(0, |task| task.seccomp.filters()),
        cpus,
        cpu_list(cpus),
        used.voluntary_switches,
        used.involuntary_switches,
    );
    text(out)
}

fn limits(key: Key) -> Result<Vec<u8>> {
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
    let process = of(key)?;
    let mut out = format!("{:<25} {:<20} {:<20} {:<10}\n", "Limit", "Soft Limit", "Hard Limit", "Units");
    let show = |value: u64| if value == u64::MAX { "unlimited".into() } else { format!("{value}") };
    for (resource, (name, unit)) in NAMES.iter().enumerate() {
        let limit = process.limits.both(resource);
        let _ = writeln!(out, "{name:<25} {:<20} {:<20} {unit:<10}", show(limit.soft), show(limit.hard));
    }
    text(out)
}
