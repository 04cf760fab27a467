// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Threads: clone, clone3 and what belongs to them.

use super::identity::capabilities::{CAP_SYS_ADMIN, CAP_SYS_RESOURCE};
use super::identity::credentials::Credentials;
use super::limits::RLIMIT_NPROC;
use crate::call::Call;
use crate::task::{self, Task};
use abi::{Result, errno::*};
use alloc::boxed::Box;
use api_plat::{Entry, Status};
use api_user::UserPtr;
use core::sync::atomic::{AtomicBool, Ordering};
use sched::Start;

const CLONE_VM: u64 = 0x100;
const CLONE_FS: u64 = 0x200;
const CLONE_FILES: u64 = 0x400;
const CLONE_SIGHAND: u64 = 0x800;
const CLONE_PIDFD: u64 = 0x1000;
const CLONE_THREAD: u64 = 0x1_0000;
const CLONE_SETTLS: u64 = 0x8_0000;
const CLONE_PARENT_SETTID: u64 = 0x10_0000;
const CLONE_CHILD_CLEARTID: u64 = 0x20_0000;
const CLONE_CHILD_SETTID: u64 = 0x100_0000;
const CLONE_CLEAR_SIGHAND: u64 = 0x1_0000_0000;

/// What a thread shares with its process; without one of these it would be something else than a thread.
const THREAD: u64 = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD;

struct Wanted {
    flags: u64,
    /// Initial stack pointer; 0 keeps the caller's.
    stack: u64,
    parent_tid: u64,
    child_tid: u64,
    tls: u64,
}

/// clone(2), the raw x86-64 order of arguments.
pub fn clone(call: &mut Call<'_>) -> Result<usize> {
    let wanted = Wanted {
        // The low byte is the signal sent to the parent at the end; a thread sends none.
        flags: call.arg(0) & !0xff,
        stack: call.arg(1),
        parent_tid: call.arg(2),
        child_tid: call.arg(3),
        tls: call.arg(4),
    };
    start(call, wanted)
}

/// Sizes of `struct clone_args` that Linux has had: the first and the current one.
const CLONE_ARGS_MIN: usize = 64;
const CLONE_ARGS_MAX: usize = 4096;

/// clone3(2).
pub fn clone3(call: &mut Call<'_>) -> Result<usize> {
    let size = call.size(1);
    if size > CLONE_ARGS_MAX {
        return Err(E2BIG);
    }
    if size < CLONE_ARGS_MIN {
        return Err(EINVAL);
    }
    let words = call.ptr::<u64>(0).read_vec(size.div_ceil(8).min(11))?;
    let field = |i: usize| words.get(i).copied().unwrap_or(0);
    // flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup
    let (stack, stack_size) = (field(5), field(6));
    if (stack == 0) != (stack_size == 0) || field(0) & 0xff != 0 || field(4) > 64 {
        return Err(EINVAL);
    }
    if field(9) != 0 {
        return Err(EPERM);
    }
    let wanted = Wanted {
        flags: field(0),
        stack: if stack == 0 { 0 } else { stack.checked_add(stack_size).ok_or(EINVAL)? },
        parent_tid: field(3),
        child_tid: field(2),
        tls: field(7),
    };
    start(call, wanted)
}

fn start(call: &mut Call<'_>, wanted: Wanted) -> Result<usize> {
    let flags = wanted.flags;
    let needs = |flag: u64, other: u64| flags & flag != 0 && flags & other == 0;
    if needs(CLONE_SIGHAND, CLONE_VM) || needs(CLONE_THREAD, CLONE_SIGHAND) {
        return Err(EINVAL);
    }
    if flags & (CLONE_SIGHAND | CLONE_CLEAR_SIGHAND) == CLONE_SIGHAND | CLONE_CLEAR_SIGHAND {
        return Err(EINVAL);
    }
    if flags & THREAD != THREAD {
        return Err(no_second_process("clone"));
    }
    if flags & CLONE_PIDFD != 0 {
        return Err(EINVAL);
    }
    let parent = task::current();
    let process = &parent.process;
    let limit = process.limits.soft(RLIMIT_NPROC);
    if process.thread_count() as u64 >= limit && !may_exceed_limits(&process.credentials.lock()) {
        return Err(EAGAIN);
    }
    let mut frame = *call.frame;
    frame.rax = 0;
    frame.entry = Entry::Call;
    if wanted.stack != 0 {
        frame.rsp = wanted.stack;
    }
    let tid = process.allocate_tid();
    let thread = sched::spawn(true, Start::Program(Box::new(frame)))?;
    thread.inherit_fpu();
    thread.inherit_cpus();
    let tls = if flags & CLONE_SETTLS != 0 { wanted.tls } else { api_plat::fs_base() };
    thread.set_initial_fs_base(tls);
    let child = Task::new(process.clone(), tid, *parent.name.lock());
    child.signals.inherit(&parent.signals);
    *child.memory_policy.lock() = *parent.memory_policy.lock();
    let scheduling = parent.scheduling.lock().inherited();
    if flags & CLONE_CHILD_CLEARTID != 0 {
        child.clear_child_tid.store(wanted.child_tid, Ordering::Relaxed);
    }
    child.attach(&thread);
    child.set_scheduling(scheduling);
    process.add(child);
    // A bad pointer does not undo the thread (Linux ignores both results as well).
    if flags & CLONE_PARENT_SETTID != 0 {
        let _ = UserPtr::<i32>::new(wanted.parent_tid).write(tid);
    }
    if flags & CLONE_CHILD_SETTID != 0 {
        let _ = UserPtr::<i32>::new(wanted.child_tid).write(tid);
    }
    sched::unpark(&thread);
    Ok(tid as usize)
}

/// RLIMIT_NPROC does not hold for the superuser (fork(2)).
fn may_exceed_limits(credentials: &Credentials) -> bool {
    credentials.uid == 0 || credentials.can(CAP_SYS_RESOURCE) || credentials.can(CAP_SYS_ADMIN)
}

/// Answers fork, vfork and a clone that is no thread, with one line in the log the first time.
fn no_second_process(name: &str) -> abi::Errno {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if !TOLD.swap(true, Ordering::Relaxed) {
        log::error!("{name}: this kernel runs one process; for programs that fork use --kernel linux");
        api_plat::status(&Status::Missing { number: 57 });
    }
    ENOSYS
}

/// fork(2).
pub fn fork(_: &mut Call<'_>) -> Result<usize> {
    Err(no_second_process("fork"))
}

/// vfork(2).
pub fn vfork(_: &mut Call<'_>) -> Result<usize> {
    Err(no_second_process("vfork"))
}

/// set_tid_address(2).
pub fn set_tid_address(call: &mut Call<'_>) -> Result<usize> {
    let task = task::current();
    task.clear_child_tid.store(call.arg(0), Ordering::Relaxed);
    Ok(task.tid as usize)
}
