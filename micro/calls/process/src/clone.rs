// SPDX-License-Identifier: Apache-2.0 OR MIT
//! clone(2), clone3(2), fork(2), vfork(2), unshare(2), set_tid_address(2): new threads and new processes.

use crate::namespaces::{
    CLONE_NEWIPC, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWTIME, CLONE_NEWUSER, NAMESPACES, New,
};
use crate::ptrace;
use crate::ptrace::stop::{EVENT_CLONE, EVENT_FORK, EVENT_VFORK, EVENT_VFORK_DONE};
use abi::{Result, errno::*};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_lock::SpinLock;
use api_plat::{Entry, Status, TrapFrame};
use api_user::{USER_END, UserPtr};
use core::sync::atomic::Ordering;
use mem::Space;
use sched::{Start, Thread};
use task::call::Call;
use task::control_group::ControlGroup;
use task::files::Files;
use task::identity::capabilities::{CAP_CHECKPOINT_RESTORE, CAP_SYS_ADMIN, CAP_SYS_RESOURCE};
use task::identity::credentials::Credentials;
use task::limits::RLIMIT_NPROC;
use task::pids::{Pid, PidNamespace};
use task::process::{Beginning, Process};
use task::registers::TRAP_FLAG;
use task::signals::{SIGCHLD, SIGKILL, SIGNALS, bit};
use task::tracing::{O_TRACECLONE, O_TRACEFORK, O_TRACEVFORK, O_TRACEVFORKDONE};
use task::{Own, Task, processes};

const CLONE_VM: u64 = 0x100;
const CLONE_FS: u64 = 0x200;
const CLONE_FILES: u64 = 0x400;
const CLONE_SIGHAND: u64 = 0x800;
const CLONE_PIDFD: u64 = 0x1000;
const CLONE_PTRACE: u64 = 0x2000;
const CLONE_VFORK: u64 = 0x4000;
const CLONE_PARENT: u64 = 0x8000;
const CLONE_THREAD: u64 = 0x1_0000;
const CLONE_SYSVSEM: u64 = 0x4_0000;
const CLONE_SETTLS: u64 = 0x8_0000;
const CLONE_PARENT_SETTID: u64 = 0x10_0000;
const CLONE_CHILD_CLEARTID: u64 = 0x20_0000;
const CLONE_DETACHED: u64 = 0x40_0000;
const CLONE_UNTRACED: u64 = 0x80_0000;
const CLONE_CHILD_SETTID: u64 = 0x100_0000;
const CLONE_IO: u64 = 0x8000_0000;
const CLONE_CLEAR_SIGHAND: u64 = 0x1_0000_0000;
/// The byte of clone's flags that is a signal; clone3 has a field of its own for it.
const SIGNAL_BITS: u64 = 0xff;
/// What clone3 knows, but for CLONE_INTO_CGROUP.
const KNOWN: u64 = CLONE_VM
    | CLONE_FS
    | CLONE_FILES
    | CLONE_SIGHAND
    | CLONE_PIDFD
    | CLONE_PTRACE
    | CLONE_VFORK
    | CLONE_PARENT
    | CLONE_THREAD
    | CLONE_SYSVSEM
    | CLONE_SETTLS
    | CLONE_PARENT_SETTID
    | CLONE_CHILD_CLEARTID
    | CLONE_UNTRACED
    | CLONE_CHILD_SETTID
    | CLONE_IO
    | CLONE_CLEAR_SIGHAND;

#[derive(Default)]
struct Wanted {
    flags: u64,
    /// Initial stack pointer; 0 keeps the caller's.
    stack: u64,
    parent_tid: u64,
    child_tid: u64,
    tls: u64,
    /// Where the descriptor of CLONE_PIDFD goes.
    pidfd: u64,
    /// What the parent gets at the end; 0 for nothing.
    exit_signal: i32,
    /// Those it is to have, the innermost namespace first (set_tid).
    numbers: Vec<i32>,
}

impl Wanted {
    fn has(&self, flag: u64) -> bool {
        self.flags & flag != 0
    }
}

/// clone(2), the raw x86-64 order of arguments.
pub fn clone(call: &mut Call<'_>) -> Result<usize> {
    let flags = call.arg(0);
    let wanted = Wanted {
        // Linux ignores the bits above and what does not concern it.
        flags: flags & u64::from(u32::MAX) & !SIGNAL_BITS,
        stack: call.arg(1),
        parent_tid: call.arg(2),
        child_tid: call.arg(3),
        tls: call.arg(4),
        pidfd: call.arg(2),
        exit_signal: (flags & SIGNAL_BITS) as i32,
        numbers: Vec::new(),
    };
    // One argument is the place for both numbers.
    if wanted.has(CLONE_PIDFD) && wanted.has(CLONE_PARENT_SETTID | CLONE_DETACHED) {
        return Err(EINVAL);
    }
    start(call, wanted)
}

/// Bytes of the first `struct clone_args` that Linux had.
const CLONE_ARGS_MIN: usize = 64;
/// Numbers that set_tid may have (MAX_PID_NS_LEVEL).
const MAX_NUMBERS: u64 = 32;

/// clone3(2).
pub fn clone3(call: &mut Call<'_>) -> Result<usize> {
    let size = call.size(1);
    if size < CLONE_ARGS_MIN {
        return Err(EINVAL);
    }
    // What is last is the control group.
    let [flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, count, _] =
        call.ptr(0).read_extensible(size)?;
    if (set_tid == 0) != (count == 0) || count > MAX_NUMBERS || exit_signal > SIGNALS as u64 {
        return Err(EINVAL);
    }
    // Before flags and stack are looked at.
    let numbers =
        if count == 0 { Vec::new() } else { UserPtr::<i32>::new(set_tid).read_vec(count as usize)? };
    if (stack == 0) != (stack_size == 0) || flags & !(KNOWN | NAMESPACES) != 0 {
        return Err(EINVAL);
    }
    if flags & (CLONE_THREAD | CLONE_PARENT) != 0 && exit_signal != 0 {
        return Err(EINVAL);
    }
    let wanted = Wanted {
        flags,
        stack: if stack == 0 { 0 } else { stack.checked_add(stack_size).ok_or(EINVAL)? },
        parent_tid,
        child_tid,
        tls,
        pidfd,
        exit_signal: exit_signal as i32,
        numbers,
    };
    start(call, wanted)
}

/// fork(2).
pub fn fork(call: &mut Call<'_>) -> Result<usize> {
    start(call, Wanted { exit_signal: SIGCHLD, ..Wanted::default() })
}

/// vfork(2).
pub fn vfork(call: &mut Call<'_>) -> Result<usize> {
    start(call, Wanted { flags: CLONE_VM | CLONE_VFORK, exit_signal: SIGCHLD, ..Wanted::default() })
}

/// Checks the flags as Linux' copy_process does, in its order.
fn start(call: &mut Call<'_>, wanted: Wanted) -> Result<usize> {
    if wanted.has(CLONE_NEWNS | CLONE_NEWUSER) && wanted.has(CLONE_FS) {
        return Err(EINVAL);
    }
    // What is to be undone is about one namespace.
    if wanted.has(CLONE_NEWIPC) && wanted.has(CLONE_SYSVSEM) {
        return Err(EINVAL);
    }
    let needs = |flag: u64, other: u64| wanted.has(flag) && !wanted.has(other);
    if needs(CLONE_THREAD, CLONE_SIGHAND) || needs(CLONE_SIGHAND, CLONE_VM) {
        return Err(EINVAL);
    }
    if wanted.has(CLONE_SIGHAND) && wanted.has(CLONE_CLEAR_SIGHAND) {
        return Err(EINVAL);
    }
    let parent = task::current();
    // A child could not be that of somebody outside, of the PID namespace or of the machine.
    if wanted.has(CLONE_PARENT) && (parent.process.is_first() || parent.process.family.parent() == Pid::NONE)
    {
        return Err(EINVAL);
    }
    if wanted.has(CLONE_PIDFD) && wanted.has(CLONE_DETACHED | CLONE_THREAD) {
        return Err(EINVAL);
    }
    if wanted.has(CLONE_THREAD) {
        let pids = parent.pids_for_children.lock().clone();
        if wanted.has(CLONE_NEWUSER | CLONE_NEWPID) || pids != parent.process.pids {
            return Err(EINVAL);
        }
    }
    // Neither a thread nor who shares the memory, with the vDSO's clock in it, is in another time namespace.
    if wanted.has(CLONE_THREAD | CLONE_VM) {
        let now = parent.nsproxy();
        if wanted.has(CLONE_NEWTIME) || !Arc::ptr_eq(&now.time, &now.time_for_children) {
            return Err(EINVAL);
        }
    }
    check_count(&parent.process)?;
    // As arch_prctl(ARCH_SET_FS): the processor takes no other address, and would fault when it is loaded.
    if wanted.has(CLONE_SETTLS) && wanted.tls >= USER_END {
        return Err(EPERM);
    }
    let namespaces = New::of(wanted.flags)?;
    if wanted.has(CLONE_THREAD) {
        return start_thread(call, &parent, &wanted, namespaces);
    }
    check_numbers(&namespaces, &wanted.numbers)?;
    start_process(call, &parent, &wanted, namespaces)
}

/// unshare(2): descriptors, root, working directory and umask that others have, too, become the calling thread's own, and so does a copy
/// of its mount namespace.
pub fn unshare(call: &mut Call<'_>) -> Result<usize> {
    const TOGETHER: u64 = CLONE_THREAD | CLONE_SIGHAND | CLONE_VM;
    let mut flags = call.arg(0);
    if flags & !(NAMESPACES | TOGETHER | CLONE_FS | CLONE_FILES | CLONE_SYSVSEM) != 0 {
        return Err(EINVAL);
    }
    if flags & CLONE_NEWUSER != 0 {
        flags |= CLONE_THREAD | CLONE_FS;
    }
    let task = task::current();
    let process = &task.process;
    if flags & TOGETHER != 0 && process.thread_count() > 1 {
        return Err(EINVAL);
    }
    if flags & (CLONE_SIGHAND | CLONE_VM) != 0 && process.signals.shares_actions() {
        return Err(EINVAL);
    }
    let New { credentials, pids, nsproxy } = New::of(flags)?;
    if flags & CLONE_FILES != 0 {
        task.files().own_descriptors()?;
    }
    if flags & (CLONE_FS | CLONE_NEWNS) != 0 {
        task.files().own_position()?;
    }
    if flags & CLONE_NEWNS != 0 {
        task.files().leave_namespace(&credentials.users)?;
    }
    if flags & CLONE_NEWUSER != 0 {
        task.set_credentials(credentials);
    }
    task.set_pids_for_children(pids);
    // What it was to undo in the namespace that it leaves.
    #[cfg(feature = "sysv-ipc")]
    if flags & (CLONE_NEWIPC | CLONE_SYSVSEM) != 0 {
        calls_ipc::sysv::semaphores::process_ends(process.pid.of_machine());
    }
    task.set_nsproxy(nsproxy);
    Ok(0)
}

/// Numbers are chosen by CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE, in each namespace that one is chosen in.
fn check_numbers(namespaces: &New, numbers: &[i32]) -> Result<()> {
    namespaces.pids.check_chosen(numbers)?;
    let mut at = Some(namespaces.pids.clone());
    for pids in numbers.iter().map_while(|_| {
        let pids = at.take()?;
        at = pids.parent();
        Some(pids)
    }) {
        let caller = task::current();
        let (who, owner) = (caller.credentials().lock(), pids.owner());
        if !who.can_in(&owner, CAP_SYS_ADMIN) && !who.can_in(&owner, CAP_CHECKPOINT_RESTORE) {
            return Err(EPERM);
        }
    }
    Ok(())
}

/// RLIMIT_NPROC counts the threads of all processes of the user (getrlimit(2)).
fn check_count(process: &Process) -> Result<()> {
    let limit = process.limits.soft(RLIMIT_NPROC);
    let uid = {
        let caller = task::current();
        let credentials = caller.credentials().lock();
        if may_exceed_limits(&credentials) {
            return Ok(());
        }
        credentials.uid
    };
    let mut count = 0;
    for other in processes::all() {
        if other.credentials.lock().uid == uid {
            // A zombie counts as the one thread it was.
            count += other.thread_count().max(1) as u64;
        }
    }
    if count >= limit { Err(EAGAIN) } else { Ok(()) }
}

/// RLIMIT_NPROC does not hold for the superuser (fork(2)).
fn may_exceed_limits(credentials: &Credentials) -> bool {
    credentials.uid == 0 || credentials.can(CAP_SYS_RESOURCE) || credentials.can(CAP_SYS_ADMIN)
}

/// A number for a thread or process that is being made; given back unless it is kept.
struct Number<'a> {
    id: Pid,
    /// The control group that counts it.
    group: &'a ControlGroup,
    kept: bool,
}

impl<'a> Number<'a> {
    fn new(process: &'a Process, pids: &PidNamespace, chosen: &[i32]) -> Result<Number<'a>> {
        let group = process.group();
        group.charge()?;
        match processes::allocate_in(process.claim, pids, chosen) {
            Ok(id) => Ok(Number { id, group, kept: false }),
            Err(e) => {
                group.uncharge();
                Err(e)
            }
        }
    }

    fn keep(&mut self) {
        self.kept = true;
    }
}

impl Drop for Number<'_> {
    fn drop(&mut self) {
        if !self.kept {
            self.group.uncharge();
            processes::release(self.id);
        }
    }
}

/// A thread that has not begun; it ends as one of the kernel's unless it is let begin.
struct Unborn(Option<Arc<Thread>>);

impl Unborn {
    fn begin(mut self) {
        if let Some(thread) = self.0.take() {
            sched::unpark(&thread);
        }
    }
}

impl Drop for Unborn {
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            // SAFETY: it has not run, so nobody on it has asked for its task.
            unsafe { thread.set_local(core::ptr::null_mut()) };
            thread.cancel();
            sched::unpark(&thread);
        }
    }
}

/// A kernel thread that enters the program where the caller left it, with 0 as the answer.
fn spawn(frame: &TrapFrame, wanted: &Wanted) -> Result<Arc<Thread>> {
    let mut frame = *frame;
    frame.rax = 0;
    // A step of the parent's is not the child's.
    if task::current().tracing.is_on() {
        frame.rflags &= !TRAP_FLAG;
    }
    frame.entry = Entry::Call;
    if wanted.stack != 0 {
        frame.rsp = wanted.stack;
    }
    let thread = sched::spawn(true, Start::Program(Box::new(frame)))?;
    thread.inherit_fpu();
    thread.inherit_cpus();
    let tls = if wanted.has(CLONE_SETTLS) { wanted.tls } else { api_plat::fs_base() };
    thread.set_initial_fs_base(tls);
    Ok(thread)
}

/// The task of a new thread, tied to it.
fn new_task(
    process: &Arc<Process>,
    id: Pid,
    parent: &Task,
    thread: &Arc<Thread>,
    wanted: &Wanted,
    own: Option<Own>,
) -> Arc<Task> {
    let child = Task::new(process.clone(), id, *parent.name.lock(), own);
    child.signals.inherit(&parent.signals);
    *child.memory_policy.lock() = *parent.memory_policy.lock();
    child.settings.inherit(&parent.settings);
    child.timer_slack.inherit(&parent.timer_slack);
    child.seccomp.inherit(&parent.seccomp);
    // A thread of the same memory registers an area of its own.
    if !wanted.has(CLONE_VM) {
        child.rseq.inherit(&parent.rseq);
    }
    if wanted.has(CLONE_CHILD_CLEARTID) {
        child.clear_child_tid.store(wanted.child_tid, Ordering::Relaxed);
    }
    // SAFETY: the process' table holds the task from before the thread begins until it has left it; `Unborn` unties a thread that
    // never does.
    unsafe { child.attach(thread) };
    let scheduling = parent.scheduling.lock().inherited();
    child.set_scheduling(scheduling);
    child
}

/// The files of a new thread or process.
fn new_files(parent: &Task, wanted: &Wanted, namespaces: &New) -> Result<Files> {
    let files = parent.files().fork(wanted.has(CLONE_FILES), wanted.has(CLONE_FS))?;
    if wanted.has(CLONE_NEWNS) {
        files.leave_namespace(&namespaces.credentials.users)?;
    }
    Ok(files)
}

fn start_thread(call: &mut Call<'_>, parent: &Task, wanted: &Wanted, namespaces: New) -> Result<usize> {
    let process = &parent.process;
    processes::has_memory(process.claim).map_err(|_| EAGAIN)?;
    let mut number = Number::new(process, &process.pids, &wanted.numbers)?;
    let tid = number.id;
    let thread = spawn(call.frame, wanted)?;
    let (event, tracee) = traced(parent, wanted)?;
    #[cfg(feature = "keys")]
    let namespaces = New { credentials: calls_keys::own_of_thread(namespaces.credentials)?, ..namespaces };
    let own = Own {
        files: new_files(parent, wanted, &namespaces)?,
        credentials: SpinLock::new(namespaces.credentials),
        nsproxy: SpinLock::new(namespaces.nsproxy),
    };
    let child = new_task(process, tid, parent, &thread, wanted, Some(own));
    process.add(child.clone());
    if let Some(tracee) = tracee {
        tracee.begin(&child);
    }
    number.keep();
    // A bad pointer does not undo the thread (Linux ignores both results as well).
    if wanted.has(CLONE_PARENT_SETTID) {
        let _ = UserPtr::<i32>::new(wanted.parent_tid).write(child.number);
    }
    if wanted.has(CLONE_CHILD_SETTID) {
        let _ = UserPtr::<i32>::new(wanted.child_tid).write(child.number);
    }
    sched::unpark(&thread);
    tell_tracer(call, parent, event, tid);
    Ok(child.number as usize)
}

/// The event that the caller's tracer sees, its option, and what makes the child a tracee as well.
type Traced = (Option<(i32, u32)>, Option<ptrace::NewTracee>);

/// What ptrace(2) makes of a clone.
fn traced(parent: &Task, wanted: &Wanted) -> Result<Traced> {
    if !parent.tracing.is_on() {
        return Ok((None, None));
    }
    let (event, option) = match wanted.exit_signal {
        _ if wanted.has(CLONE_VFORK) => (EVENT_VFORK, O_TRACEVFORK),
        SIGCHLD if !wanted.has(CLONE_THREAD) => (EVENT_FORK, O_TRACEFORK),
        _ => (EVENT_CLONE, O_TRACECLONE),
    };
    let option = if wanted.has(CLONE_UNTRACED) { 0 } else { option };
    let tracee = ptrace::NewTracee::of(parent, option, wanted.has(CLONE_PTRACE))?;
    Ok((Some((event, option)), tracee))
}

fn tell_tracer(call: &mut Call<'_>, parent: &Task, event: Option<(i32, u32)>, id: Pid) {
    if let Some((event, option)) = event {
        let message = ptrace::stop::number_for_tracer(parent, id);
        ptrace::stop::event_in_call(parent, call.frame, event, option, message);
    }
}

/// The address space of a new process.
fn new_space(process: &Process, wanted: &Wanted) -> Result<Arc<Space>> {
    let space = process.space().ok_or(ENOMEM)?;
    if wanted.has(CLONE_VM) {
        return Ok(space);
    }
    let child = space.fork()?;
    child.set_limits(process.limits.of_memory());
    Ok(child)
}

fn start_process(call: &mut Call<'_>, parent: &Task, wanted: &Wanted, namespaces: New) -> Result<usize> {
    let process = &parent.process;
    processes::expect_second_space();
    // A program that forks without end is told of a limit, whichever it met (fork(2)).
    processes::may_begin(process.claim).map_err(|_| EAGAIN)?;
    let mut number = Number::new(process, &namespaces.pids, &wanted.numbers)?;
    let pid = number.id;
    let space = new_space(process, wanted)?;
    let mut nsproxy = namespaces.nsproxy.clone();
    if !Arc::ptr_eq(&nsproxy.time, &nsproxy.time_for_children) {
        let time = nsproxy.time_for_children.clone();
        time.is_entered(&space);
        Arc::make_mut(&mut nsproxy).time = time;
    }
    let thread = spawn(call.frame, wanted)?;
    let unborn = Unborn(Some(thread.clone()));
    let (event, tracee) = traced(parent, wanted)?;
    let (parent_pid, exit_signal) = match wanted.has(CLONE_PARENT) {
        true => (process.family.parent(), process.family.exit_signal.load(Ordering::Relaxed)),
        false => (process.pid, wanted.exit_signal),
    };
    let files = new_files(parent, wanted, &namespaces)?;
    #[cfg(feature = "keys")]
    let namespaces = {
        let mut namespaces = namespaces;
        namespaces.credentials.keyrings.fork();
        namespaces
    };
    let child = Process::begin(
        pid,
        Beginning {
            credentials: namespaces.credentials,
            files,
            signals: process.signals.fork(wanted.has(CLONE_SIGHAND), wanted.has(CLONE_CLEAR_SIGHAND)),
            limits: process.limits.duplicate(),
            sessions: *process.sessions.lock(),
            settings: process.settings.lock().inherited(),
            pids: namespaces.pids,
            parent: parent_pid,
            exit_signal,
            claim: process.claim,
            container: process.container.clone(),
            nsproxy,
            program: process.program(),
            space: Some(space.clone()),
        },
    );
    child
        .family
        .oom_adjustment
        .store(process.family.oom_adjustment.load(Ordering::Relaxed), Ordering::Relaxed);
    let task = new_task(&child, pid, parent, &thread, wanted, None);
    // The alternate stack is in the memory that the child has as well, unless both use it at once (sigaltstack(2)).
    if !wanted.has(CLONE_VM) || wanted.has(CLONE_VFORK) {
        task.signals.inherit_stack(&parent.signals);
    }
    let descriptor = match wanted.has(CLONE_PIDFD) {
        true => Some(crate::pidfd::install(&child, 0)?),
        false => None,
    };
    if let Some(fd) = descriptor
        && let Err(e) = UserPtr::<i32>::new(wanted.pidfd).write(fd)
    {
        let _ = parent.files().descriptors.remove(fd).and_then(|description| description.close());
        return Err(e);
    }
    if wanted.has(CLONE_PARENT_SETTID) {
        let _ = UserPtr::<i32>::new(wanted.parent_tid).write(pid.here());
    }
    if wanted.has(CLONE_CHILD_SETTID) {
        let _ = space.write(wanted.child_tid, &child.number.to_ne_bytes());
    }
    drop(space);
    child.family.maker.set(parent.tid);
    child.add(task.clone());
    number.keep();
    // The process has the number as well as its first thread.
    processes::add(&child);
    if child.is_first() {
        child.pids.begins();
    }
    let father = processes::find(parent_pid).unwrap_or_else(|| process.clone());
    father.family.children.lock().push(child.clone());
    if wanted.has(CLONE_VFORK) {
        *child.family.vfork_parent.lock() = Some(api_sched::current());
    }
    if let Some(tracee) = tracee {
        tracee.begin(&task);
    }
    task::time::cpu_limit::limit_changes(&child);
    drop(task);
    unborn.begin();
    let is_late =
        child.pids.is_closed() || child.container.as_ref().is_some_and(|container| container.is_ending());
    if is_late {
        task::end::begin(&child, Status::Signal { number: task::signals::SIGKILL as u8 });
    }
    tell_tracer(call, parent, event, pid);
    if wanted.has(CLONE_VFORK) {
        wait_for_vfork(parent, &child);
        ptrace::stop::event_in_call(
            parent,
            call.frame,
            EVENT_VFORK_DONE,
            O_TRACEVFORKDONE,
            ptrace::stop::number_for_tracer(parent, pid),
        );
    }
    Ok(pid.here() as usize)
}

/// Until the child has another address space than the caller, or none. Only the end of the process is a reason not to
/// wait (Linux' TASK_KILLABLE).
fn wait_for_vfork(parent: &Task, child: &Process) {
    parent.in_vfork.store(true, Ordering::Relaxed);
    while child.family.vfork_parent.lock().is_some() {
        let is_killed = (parent.signals.pending() | parent.process.signals.pending()) & bit(SIGKILL) != 0;
        if is_killed || parent.process.is_ending() {
            child.family.vfork_parent.lock().take();
            break;
        }
        sched::park(u64::MAX);
    }
    parent.in_vfork.store(false, Ordering::Relaxed);
}

/// set_tid_address(2).
pub fn set_tid_address(call: &mut Call<'_>) -> Result<usize> {
    let task = task::current();
    task.clear_child_tid.store(call.arg(0), Ordering::Relaxed);
    Ok(task.number as usize)
}
