// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All processes, and the numbers of processes, threads, groups and sessions, which are of one kind.

use crate::pids::{Pid, PidNamespace};
use crate::process::Process;
use crate::thread::Task;
use abi::{
    Result,
    errno::{EAGAIN, EEXIST, ENOMEM},
};
use alloc::sync::Arc;
use api_fs::Inode;
use api_lock::SpinLock;
use core::iter;
use core::ops::Bound;
use mem::Space;
use ordered::Map;
use sched::OneProcessor;

/// Numbers are below (`kernel.pid_max`).
pub const PID_MAX: i32 = 32_768;
/// Where numbers begin again (Linux' RESERVED_PIDS): those below stay the first services'.
const AGAIN: i32 = 300;
/// Pages of memory for each process there may be: 2,048 in 256 MiB.
const PAGES_EACH: u64 = 32;
/// Pages that stay free when a process or thread is made: others must be able to go on, and to end.
const PAGES_LEFT: u64 = 256;
/// Pages that stay free for each process there is, when the program makes another: a forked shell has about 35 when it begins, and soon
/// 60. One that forks without end is to meet this limit, rather than have others end for want of memory.
const PAGES_TO_COME: u64 = 24;

/// Numbers and processes that only [`Claim::Visitor`] and [`Claim::Outside`] may have, and as many again for the latter alone: enough
/// to look around and to end what has taken all others.
const KEPT: u64 = 16;

/// Who asks for a process, or for a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The first process and all that descend from it.
    Program,
    /// What descends from a process that somebody outside of the machine started.
    Visitor,
    /// Somebody outside of the machine.
    Outside,
}

impl Claim {
    /// What is left of a limit to this one.
    fn share(self, limit: u64) -> u64 {
        let kept = KEPT.min(limit / 8);
        limit
            - match self {
                Claim::Program => 2 * kept,
                Claim::Visitor => kept,
                Claim::Outside => 0,
            }
    }
}

struct Table {
    next: i32,
    /// By whom each number is in use.
    used: Map<Pid, Uses>,
    all: Map<Pid, Arc<Process>>,
}

/// How often a number is in use: by a thread, by a process, by those in a group or session of that number.
struct Uses {
    count: u32,
    /// The namespace that it was made in, where it has another number.
    pids: PidNamespace,
}

static TABLE: SpinLock<Table> = SpinLock::new(Table { next: 1, used: Map::new(), all: Map::new() });

/// A number nobody has, which the caller has from now on. `EAGAIN` when all that it may have are in use.
pub fn allocate(claim: Claim) -> Result<Pid> {
    allocate_in(claim, &PidNamespace::FIRST, &[])
}

/// The same with a number in a namespace and in each around it: those of `chosen`, the innermost first, as far as it goes. Errors
/// are those of [`PidNamespace::enter`] as well.
pub fn allocate_in(claim: Claim, pids: &PidNamespace, chosen: &[i32]) -> Result<Pid> {
    let pid = allocate_outermost(claim, pids, chosen.get(pids.level() as usize).copied())?;
    if let Err(e) = pids.enter(pid, chosen) {
        TABLE.lock().used.remove(&pid);
        return Err(e);
    }
    Ok(pid)
}

fn allocate_outermost(claim: Claim, pids: &PidNamespace, chosen: Option<i32>) -> Result<Pid> {
    let mut table = TABLE.lock();
    if table.used.len() as u64 >= claim.share((PID_MAX - AGAIN) as u64) {
        return Err(EAGAIN);
    }
    let uses = || Uses { count: 1, pids: pids.clone() };
    if let Some(pid) = chosen.map(Pid::from_machine) {
        if table.used.contains_key(&pid) {
            return Err(EEXIST);
        }
        table.used.insert(pid, uses());
        return Ok(pid);
    }
    for _ in 0..PID_MAX {
        let id = table.next;
        table.next = if id + 1 < PID_MAX { id + 1 } else { AGAIN };
        let pid = Pid::from_machine(id);
        if !table.used.contains_key(&pid) {
            table.used.insert(pid, uses());
            return Ok(pid);
        }
    }
    Err(EAGAIN)
}

/// The number has one more use.
pub fn retain(id: Pid) {
    if let Some(uses) = TABLE.lock().used.get_mut(&id) {
        uses.count += 1;
    }
}

/// The number has one use less.
pub fn release(id: Pid) {
    let unused = {
        let mut table = TABLE.lock();
        let Some(uses) = table.used.get_mut(&id) else { return };
        uses.count -= 1;
        if uses.count == 0 { table.used.remove(&id) } else { None }
    };
    if let Some(Uses { pids, .. }) = unused {
        pids.leave(id);
    }
}

/// The number given out last.
pub fn newest() -> i32 {
    TABLE.lock().next - 1
}

/// The number after this one is given out next.
pub fn set_newest(number: i32) {
    TABLE.lock().next = if number + 1 < PID_MAX { number + 1 } else { AGAIN };
}

/// There is about to be a second address space. Where the host shows one at a time, the first processor alone is at work from here on.
/// In a thread that may sleep.
pub fn expect_second_space() {
    if !mem::expect_several() {
        let alone = OneProcessor::keep();
        // That was expected of one processor, and the platform lets no other in again.
        mem::expect_several();
        drop(alone);
    }
}

/// `EAGAIN` when there are as many processes as the machine's memory is for, `ENOMEM` when little of that is left.
pub fn may_begin(claim: Claim) -> Result<()> {
    if TABLE.lock().all.len() as u64 >= claim.share(most()) {
        return Err(EAGAIN);
    }
    has_memory(claim)
}

/// `ENOMEM` when too little memory is left for another process or thread.
pub fn has_memory(claim: Claim) -> Result<()> {
    let to_come = TABLE.lock().all.len() as u64 * PAGES_TO_COME;
    let has_pages = || {
        let (total, free) = api_mem::statistics();
        let left = PAGES_LEFT.min(total / 16);
        free >= match claim {
            Claim::Program => left + to_come,
            Claim::Visitor => left,
            Claim::Outside => left / 2,
        }
    };
    if !has_pages() {
        // Objects that are gone may have left the heap large.
        api_alloc::trim();
    }
    if has_pages() { Ok(()) } else { Err(ENOMEM) }
}

/// Most processes.
pub fn most() -> u64 {
    (api_mem::statistics().0 / PAGES_EACH).min(PID_MAX as u64 / 2)
}

/// A new process, which has a use of its number, of its group's and of its session's.
pub fn add(process: &Arc<Process>) {
    let sessions = *process.sessions.lock();
    [process.pid, sessions.group, sessions.session].into_iter().for_each(retain);
    TABLE.lock().all.insert(process.pid, process.clone());
}

/// The process was waited for: nothing is left of it.
pub fn remove(process: &Process) {
    let sessions = *process.sessions.lock();
    let removed = TABLE.lock().all.remove(&process.pid);
    if removed.is_some() {
        [process.pid, sessions.group, sessions.session].into_iter().for_each(release);
        process.group().forget(process);
        process.pids.process_left();
    }
}

/// The process of that number, zombies included.
pub fn find(pid: Pid) -> Option<Arc<Process>> {
    TABLE.lock().all.get(&pid).cloned()
}

/// The first process; `None` before it is there.
pub fn first() -> Option<Arc<Process>> {
    find(Pid::FIRST)
}

/// The process of that number, or of the thread that has it.
pub fn with_thread(id: Pid) -> Option<Arc<Process>> {
    find(id).or_else(|| all().find(|process| process.task(id).is_some()))
}

/// The thread of that number.
pub fn task(tid: Pid) -> Option<Arc<Task>> {
    let process = with_thread(tid)?;
    process.task(tid)
}

/// The process that has that number for the caller, zombies included.
pub fn named(number: i32) -> Option<Arc<Process>> {
    Pid::named(number).and_then(find)
}

/// The process that has that number for the caller, or whose thread has it.
pub fn named_with_thread(number: i32) -> Option<Arc<Process>> {
    Pid::named(number).and_then(with_thread)
}

/// The thread that has that number for the caller.
pub fn named_task(number: i32) -> Option<Arc<Task>> {
    Pid::named(number).and_then(task)
}

/// All of them, by number, zombies included. Each is looked for when it is its turn, so that nothing is allocated: who asks may be
/// looking for somebody to end because memory has run out.
pub fn all() -> impl Iterator<Item = Arc<Process>> {
    let mut last = Pid::NONE;
    iter::from_fn(move || {
        let behind = (Bound::Excluded(last), Bound::Unbounded);
        let (pid, process) = TABLE.lock().all.range(behind).next().map(|(pid, p)| (*pid, p.clone()))?;
        last = pid;
        Some(process)
    })
}

/// Whether a process runs the program in that file: nobody may write to it then (ETXTBSY).
pub fn run_file(inode: &Arc<dyn Inode>) -> bool {
    let runs = |process: &Arc<Process>| process.program().is_some_and(|p| Arc::ptr_eq(p.file.inode(), inode));
    TABLE.lock().all.values().any(runs)
}

/// How many there are, zombies included.
pub fn count() -> usize {
    TABLE.lock().all.len()
}

/// How many threads there are.
pub fn threads() -> usize {
    all().map(|process| process.thread_count()).sum()
}

/// Those of a process group.
pub fn of_group(group: Pid) -> impl Iterator<Item = Arc<Process>> {
    all().filter(move |process| process.sessions.lock().group == group)
}

/// All address spaces; one that several processes have (vfork) comes as often.
pub fn spaces() -> impl Iterator<Item = Arc<Space>> {
    all().filter_map(|process| process.space())
}

/// Nobody in the group could let one of its processes go on that a terminal stopped: no member has a parent in another
/// group of the session (POSIX, 3.264). `without` does not count as a parent or member.
pub fn is_orphaned(group: Pid, without: Option<Pid>) -> bool {
    !of_group(group).any(|member| {
        if Some(member.pid) == without || member.family.is_zombie() {
            return false;
        }
        let session = member.sessions.lock().session;
        let parent = find(member.family.parent()).filter(|parent| Some(parent.pid) != without);
        parent.is_some_and(|parent| {
            let theirs = *parent.sessions.lock();
            theirs.session == session && theirs.group != group
        })
    })
}

/// Who gets the signals of the terminal's keys.
static FOREGROUND: SpinLock<Option<Arc<Process>>> = SpinLock::new(None);

/// The process that the terminal belongs to.
pub fn set_foreground(process: &Arc<Process>) {
    *FOREGROUND.lock() = Some(process.clone());
}

/// That process; `None` before the program is there.
pub fn foreground() -> Option<Arc<Process>> {
    FOREGROUND.lock().clone()
}
