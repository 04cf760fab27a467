// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory ran out: somebody has to end, so that the others can go on.
//!
//! As in Linux the victim is the process with the largest score: pages it has in memory and page tables, plus what was
//! written to its oom_score_adj in thousandths of the machine's memory. The first process counts a quarter, for the machine
//! goes with it; then the machine says how much memory it had. What somebody started from outside counts half: it may be there to
//! see what takes all memory.

use crate::end;
use abi::{Result, errno::ENOMEM};
use alloc::string::String;
use alloc::sync::Arc;
use api_plat::Status;
use core::cmp::Reverse;
use core::sync::atomic::Ordering;
use task::pids::Pid;
use task::process::Process;
use task::processes::{self, Claim};
use task::signals::{self, SIGKILL};
use task::{Task, containers};

const PAGE: u64 = abi::PAGE_SIZE as u64;
/// oom_score_adj that spares a process in any case, and the largest.
pub const NEVER: i32 = -1000;
pub const ALWAYS_FIRST: i32 = 1000;

/// What ending the process would give back, in pages, as its adjustment has it; `None` for one that is never chosen.
fn weight(process: &Process, total: u64) -> Option<i64> {
    let adjustment = process.family.oom_adjustment.load(Ordering::Relaxed);
    if adjustment == NEVER || process.family.is_zombie() {
        return None;
    }
    let usage = process.space()?.usage();
    let pages = (usage.resident() + usage.tables) / PAGE;
    Some(pages as i64 + i64::from(adjustment) * total as i64 / i64::from(ALWAYS_FIRST))
}

/// /proc/PID/oom_score: thousandths of memory, twice as Linux counts since 5.9.
pub fn score(process: &Process) -> u64 {
    let total = api_mem::statistics().0;
    let points = weight(process, total).unwrap_or(0).max(0) as u64;
    ((points * 1000 / total.max(1) + 1000) * 2 / 3).min(2000)
}

/// What a descriptor costs the kernel, roughly, with what is behind it: four of them count as a page, or else a process that
/// only has the kernel make objects would outlive all others. Linux counts pages alone.
const DESCRIPTORS_OF_A_PAGE: usize = 4;

/// The one that weighs most; of equals the one that began first, for a child has all that its parent has until it executes another program,
/// and its end gives nothing back.
fn heaviest(weighed: impl Iterator<Item = (i64, Arc<Process>)>) -> Option<(i64, Arc<Process>)> {
    weighed.max_by_key(|(weight, process)| (*weight, Reverse(process.born_ns)))
}

/// The process to end; `None` for the first one.
fn choose() -> Option<Arc<Process>> {
    let total = api_mem::statistics().0;
    let weighed = processes::all().filter_map(|process| {
        let share = match process.claim {
            _ if process.pid == Pid::FIRST => 4,
            Claim::Visitor => 2,
            _ => 1,
        };
        let mut descriptors = 0;
        let _ = process.each_files(|files| {
            descriptors += files.descriptors.count();
            Ok(())
        });
        let made = (descriptors / DESCRIPTORS_OF_A_PAGE) as i64;
        Some(((weight(&process, total)? + made) / share, process))
    });
    let victim = heaviest(weighed).map(|(_, process)| process);
    victim.filter(|process| process.pid != Pid::FIRST)
}

/// How long the victim's end is waited for: it may need what the waiting thread holds, which then has to do without the page.
const PATIENCE_NS: u64 = 10_000_000_000;

/// The running thread touched memory of the program, in the program or on a call's behalf in the kernel, and there is no page
/// for it. True when another process has ended, or what was kept for later ones is given back, so that it is worth trying again;
/// false when its own is to end, on its way out of the kernel. The machine's end does not come back from here.
pub fn make_room(task: &Task) -> bool {
    if task.process.is_ending() {
        return false;
    }
    if mem::release_common_text() {
        return true;
    }
    let Some(victim) = choose() else {
        let given = crate::system::memory();
        log::error!("out of memory: give the machine more than {} MiB", given >> 20);
        end::end_machine(Status::OutOfMemory { given });
    };
    begin(&victim);
    if core::ptr::eq(&*victim, &*task.process) {
        signals::end_thread(task);
        return false;
    }
    wait_for(&victim, task)
}

/// Programs have more memory than before. A container that has more than its limit now loses the process that has most of it, as a
/// control group does (cgroup-v1/memory.rst, 2.5); the others go on when that has ended. On a program's thread, on its way out of the kernel.
pub fn look_at_containers(task: &Task) {
    containers::look_at_memory(|container| {
        let is_ending = |process: &Process| process.is_ending() && !process.family.is_zombie();
        if container.processes().any(|process| is_ending(&process)) {
            return;
        }
        let total = api_mem::statistics().0;
        let weighed = container.processes().filter_map(|process| Some((weight(&process, total)?, process)));
        if let Some((_, victim)) = heaviest(weighed) {
            log::error!("a container has all the memory that it may have");
            container.group.met_memory_limit();
            begin(&victim);
            if core::ptr::eq(&*victim, &*task.process) {
                signals::end_thread(task);
            }
        }
    });
}

/// The running thread's call makes something that the kernel keeps: `ENOMEM` when memory is low and nobody else can end for it, or
/// when a test has it refused, for which nobody ends.
pub fn admit(task: &Task) -> Result<()> {
    let is_refused = api_alloc::fault::is_due() || api_alloc::is_really_low() && !relieve(task);
    if is_refused { Err(ENOMEM) } else { Ok(()) }
}

/// The running thread's call makes something that the kernel keeps, and memory is low. True when another process has ended for
/// it, or what was kept for later ones was enough; false when that would be its own or the first one: then the call is refused,
/// which a program can live with.
pub fn relieve(task: &Task) -> bool {
    if mem::release_common_text() && !api_alloc::is_really_low() {
        return true;
    }
    match choose() {
        Some(victim) if !task.process.is_ending() && !core::ptr::eq(&*victim, &*task.process) => {
            begin(&victim);
            wait_for(&victim, task)
        }
        _ => false,
    }
}

fn begin(victim: &Process) {
    if !victim.is_ending() {
        let name = victim.main_task().map(|task| task.comm()).unwrap_or_default();
        let resident = victim.space().map_or(0, |space| space.usage().resident());
        log::error!(
            "out of memory: ended process {} ({}), which had {} MiB",
            victim.pid.of_machine(),
            String::from_utf8_lossy(&name),
            resident >> 20
        );
        victim.group().was_out_of_memory();
    }
    victim.family.was_out_of_memory.store(true, Ordering::Relaxed);
    task::end::begin(victim, Status::Signal { number: SIGKILL as u8 });
}

/// The victim runs, ends, and gives back what it had. False when it does not in time, or the waiting thread is to end.
fn wait_for(victim: &Process, task: &Task) -> bool {
    let is_there = || !victim.family.is_zombie() && processes::find(victim.pid).is_some();
    let deadline = api_plat::now_ns() + PATIENCE_NS;
    while is_there() && !task.process.is_ending() {
        if api_plat::now_ns() > deadline {
            return false;
        }
        sched::yield_now();
    }
    !task.process.is_ending()
}
