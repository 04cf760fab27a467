// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The end of threads, of processes, and with the first process of the machine.

use crate::identity::sessions;
use crate::{children, ptrace};
use abi::{Events, Result};
use alloc::sync::Arc;
use api_plat::Status;
use core::sync::atomic::{AtomicBool, Ordering};
use task::call::Call;
use task::children::{Ended, peak_of};
use task::end::begin;
use task::identity::sessions::{groups_at_risk, tell_orphaned};
use task::pids::Pid;
use task::process::{NsProxy, Process};
use task::{containers, processes, signals, tracing, wait};

/// exit(2): the calling thread; the process with the last one.
pub fn exit(call: &mut Call<'_>) -> Result<usize> {
    let code = call.int(0) as u8;
    ptrace::stop::ends(&task::current(), call.frame, Some(&Status::Exit { code }));
    end_thread(code)
}

/// exit_group(2).
pub fn exit_group(call: &mut Call<'_>) -> Result<usize> {
    let code = call.int(0) as u8;
    let status = Status::Exit { code };
    ptrace::stop::ends(&task::current(), call.frame, Some(&status));
    end_process(status)
}

/// Ends the calling thread's process.
pub fn end_process(status: Status) -> ! {
    let task = task::current();
    let process = &task.process;
    if process.pid == Pid::FIRST {
        end_machine(status);
    }
    begin(process, status);
    end_thread(0)
}

/// Ends the machine: stores what is not stored yet, then tells the host.
pub fn end_machine(status: Status) -> ! {
    // Storing may block and another thread may end the program meanwhile: the first one's status counts.
    static ENDING: AtomicBool = AtomicBool::new(false);
    if ENDING.swap(true, Ordering::Relaxed) {
        loop {
            sched::park(u64::MAX);
        }
    }
    report_others();
    store_everything();
    devfs::flush();
    api_plat::power_off(&status)
}

/// Processes that are left end with the machine.
fn report_others() {
    let left = processes::all().filter(|process| process.pid != Pid::FIRST && !process.family.is_zombie());
    for process in left {
        let name = process.main_task().map(|task| task.comm()).unwrap_or_default();
        let name = alloc::string::String::from_utf8_lossy(&name);
        log::info!("process {} ({name}) ends with the first one", process.pid.of_machine());
    }
}

/// Ends the calling thread, and the process when it is the last one.
pub fn end_thread(code: u8) -> ! {
    let task = task::current();
    calls_ipc::futex::thread_ends(&task);
    signals::thread_ends(&task);
    let process = task.process.clone();
    if process.thread_count() > 1 {
        // What it has for itself. Storing a file may block, so that it can be the last thread behind that.
        task.files().close_all();
    }
    let status = process.outcome().unwrap_or(Status::Exit { code });
    if tracing::is_anybody_traced() || !process.tracees.lock().is_empty() {
        ptrace::wait::thread_ends(
            &task,
            Ended::new(
                &status,
                process.family.left_core.load(Ordering::Relaxed),
                task.usage(),
                0,
                *task.name.lock(),
            ),
        );
    }
    if process.thread_count() == 1 {
        process.begin_end(Status::Exit { code });
        let status = process.outcome().unwrap_or(Status::Exit { code });
        if process.pid == Pid::FIRST {
            end_machine(status);
        }
        process_ends(&process, &status);
    } else if !process.is_ending() {
        children::maker_ends(&process, task.tid);
    }
    let tid = task.tid;
    #[cfg(feature = "io_uring")]
    calls_uring::thread_ends(tid.of_machine());
    // The table held the task: from here on this is a kernel thread about to end.
    // SAFETY: nobody comes back to the frames above, and nothing below asks for the task.
    unsafe { task::leave() };
    process.remove(tid);
    // Whoever waits to be alone.
    if let Some(only) = process.only().and_then(|tid| process.task(tid)) {
        only.interrupt();
    }
    drop(process);
    sched::exit_current()
}

/// The last thread takes the process apart: everything goes but the number and what the parent is to be told.
fn process_ends(process: &Arc<Process>, status: &Status) {
    containers::process_ends(process);
    if process.is_first() {
        end_namespace(process);
    }
    process.timers.process_ends();
    #[cfg(feature = "aio")]
    calls_files::aio::program_ends(process.pid.of_machine());
    #[cfg(feature = "io_uring")]
    calls_uring::program_ends(process, false);
    task::current().files().close_all();
    #[cfg(feature = "sysv-ipc")]
    calls_ipc::sysv::semaphores::process_ends(process.pid.of_machine());
    // Those that only a zombie is in are nobody's.
    task::current().set_nsproxy(NsProxy::first());
    let peak = peak_of(process);
    if let Some(space) = process.space()
        && let Err(e) = space.sync_all()
    {
        log::error!("a page written through a shared mapping could not be stored: {e:?}");
    }
    process.leave_space();
    process.family.release_vfork_parent();
    process.forget_program();
    // What it made the kernel allocate is gone.
    api_alloc::trim();
    sessions::leader_ends(process);
    let groups = groups_at_risk(process);
    children::give_away(process);
    tell_orphaned(process, &groups);
    let core = process.family.left_core.load(Ordering::Relaxed);
    let ended = Ended::new(status, core, process.usage(), peak, *task::current().name.lock());
    *process.family.zombie.lock() = Some(ended);
    process.family.change.lock().take();
    process.family.ended.wake_all(Events::ALL);
    if !ptrace::wait::process_ends(process, &ended) {
        children::tell_or_reap(process, &ended);
    }
}

/// With the first process of a PID namespace go all others of it, and it ends behind them (pid_namespaces(7)).
fn end_namespace(first: &Process) {
    let Some(left) = first.pids.left() else { return };
    first.pids.close();
    let others = || processes::all().filter(|other| other.pid != first.pid && other.pid.seen_by(first) != 0);
    for other in others() {
        begin(&other, Status::Signal { number: signals::SIGKILL as u8 });
    }
    wait::for_good(left, || {
        children::forget_zombies(first);
        others().next().is_none()
    });
}

/// Called once, before the machine goes: whatever a file system still holds back is stored.
pub fn store_everything() {
    for space in processes::spaces() {
        if let Err(e) = space.sync_all() {
            log::error!("a page written through a shared mapping could not be stored: {e:?}");
        }
    }
    calls_files::disks::end();
}
