// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From a system call to its handler, and back to the program.

use crate::calls;
use abi::{Result, errno::ENOSYS};
use api_plat::{Access, Exception, FaultOutcome, Status, TrapFrame};
use api_trace::{Event, Point};
use calls_process::out_of_memory;
use core::sync::atomic::{AtomicU32, Ordering};
use syscall_table::NUMBERS;
use task::call::{Call, Handler};
use task::cpu_time::{self, InKernel};
use task::wait::{RESTART, RESTART_BLOCK, RESTART_NO_HANDLER};
use task::{overlay, watch};

/// Hands each family that an image may go without to `$with`: its feature and what is chosen by.
macro_rules! family {
    ($with:ident sysv $($call:ident)+) => { $with!("sysv-ipc" sysv $($call)+) };
    ($with:ident aio $($call:ident)+) => { $with!("aio" aio $($call)+) };
    ($with:ident message_queues $($call:ident)+) => { $with!("mqueue" message_queues $($call)+) };
    ($with:ident inotify $($call:ident)+) => { $with!("inotify" inotify $($call)+) };
    ($with:ident keys $($call:ident)+) => { $with!("keys" keys $($call)+) };
    ($with:ident landlock $($call:ident)+) => { $with!("landlock" landlock $($call)+) };
    ($with:ident uring $($call:ident)+) => { $with!("io_uring" uring $($call)+) };
    ($with:ident $($path:ident)+) => { $with!($($path)+) };
}

macro_rules! handler {
    (none) => {
        None
    };
    ($feature:literal $($path:ident)+) => {{
        #[cfg(feature = $feature)]
        {
            Some(calls::$($path)::+ as Handler)
        }
        #[cfg(not(feature = $feature))]
        {
            None
        }
    }};
    ($($path:ident)+) => {
        Some(calls::$($path)::+ as Handler)
    };
}

/// Why a call that has a handler is not there.
macro_rules! left_out {
    ($feature:literal $($path:ident)+) => {
        if cfg!(feature = $feature) { None } else { Some($feature) }
    };
    ($($path:ident)+) => {
        None
    };
}

/// A handler that is refused while memory is low.
macro_rules! admitted {
    ($handler:expr) => {{
        const HANDLER: Option<Handler> = $handler;
        fn admit(call: &mut Call<'_>) -> Result<usize> {
            let handler = HANDLER.ok_or(ENOSYS)?;
            calls_process::out_of_memory::admit(&task::current())?;
            handler(call)
        }
        match HANDLER {
            Some(_) => Some(admit as Handler),
            None => None,
        }
    }};
}

/// A handler that changes what is there, for which the kernel may need a little more: others end for it while memory is low, and
/// if nobody can it is for the handler to refuse.
macro_rules! relieved {
    ($handler:expr) => {{
        const HANDLER: Option<Handler> = $handler;
        fn relieve(call: &mut Call<'_>) -> Result<usize> {
            if api_alloc::is_really_low() {
                calls_process::out_of_memory::relieve(&task::current());
            }
            HANDLER.map_or(Err(ENOSYS), |handler| handler(call))
        }
        match HANDLER {
            Some(_) => Some(relieve as Handler),
            None => None,
        }
    }};
}

/// The calls that make something of the kernel's which stays, by name: a program that repeats one of them is refused
/// before the kernel has nothing left for itself.
#[rustfmt::skip] // one line for each name
macro_rules! guarded {
    (open $handler:expr) => { admitted!($handler) };
    (openat $handler:expr) => { admitted!($handler) };
    (openat2 $handler:expr) => { admitted!($handler) };
    (creat $handler:expr) => { admitted!($handler) };
    (memfd_create $handler:expr) => { admitted!($handler) };
    (pipe $handler:expr) => { admitted!($handler) };
    (pipe2 $handler:expr) => { admitted!($handler) };
    (dup $handler:expr) => { admitted!($handler) };
    (dup2 $handler:expr) => { admitted!($handler) };
    (dup3 $handler:expr) => { admitted!($handler) };
    (fcntl $handler:expr) => { admitted!($handler) };
    (flock $handler:expr) => { admitted!($handler) };
    (socket $handler:expr) => { admitted!($handler) };
    (socketpair $handler:expr) => { admitted!($handler) };
    (accept $handler:expr) => { admitted!($handler) };
    (accept4 $handler:expr) => { admitted!($handler) };
    (connect $handler:expr) => { admitted!($handler) };
    (bind $handler:expr) => { admitted!($handler) };
    (listen $handler:expr) => { admitted!($handler) };
    (sendmsg $handler:expr) => { admitted!($handler) };
    (sendmmsg $handler:expr) => { admitted!($handler) };
    (epoll_create $handler:expr) => { admitted!($handler) };
    (epoll_create1 $handler:expr) => { admitted!($handler) };
    (epoll_ctl $handler:expr) => { admitted!($handler) };
    (eventfd $handler:expr) => { admitted!($handler) };
    (eventfd2 $handler:expr) => { admitted!($handler) };
    (signalfd $handler:expr) => { admitted!($handler) };
    (signalfd4 $handler:expr) => { admitted!($handler) };
    (timerfd_create $handler:expr) => { admitted!($handler) };
    (timer_create $handler:expr) => { admitted!($handler) };
    (inotify_init $handler:expr) => { admitted!($handler) };
    (inotify_init1 $handler:expr) => { admitted!($handler) };
    (inotify_add_watch $handler:expr) => { admitted!($handler) };
    (mq_open $handler:expr) => { admitted!($handler) };
    (mq_timedsend $handler:expr) => { admitted!($handler) };
    (mkdir $handler:expr) => { admitted!($handler) };
    (mkdirat $handler:expr) => { admitted!($handler) };
    (mknod $handler:expr) => { admitted!($handler) };
    (mknodat $handler:expr) => { admitted!($handler) };
    (symlink $handler:expr) => { admitted!($handler) };
    (symlinkat $handler:expr) => { admitted!($handler) };
    (link $handler:expr) => { admitted!($handler) };
    (linkat $handler:expr) => { admitted!($handler) };
    (rename $handler:expr) => { admitted!($handler) };
    (renameat $handler:expr) => { admitted!($handler) };
    (renameat2 $handler:expr) => { admitted!($handler) };
    (setxattr $handler:expr) => { admitted!($handler) };
    (lsetxattr $handler:expr) => { admitted!($handler) };
    (fsetxattr $handler:expr) => { admitted!($handler) };
    (semget $handler:expr) => { admitted!($handler) };
    (shmget $handler:expr) => { admitted!($handler) };
    (shmat $handler:expr) => { admitted!($handler) };
    (semop $handler:expr) => { admitted!($handler) };
    (semtimedop $handler:expr) => { admitted!($handler) };
    (msgget $handler:expr) => { admitted!($handler) };
    (msgsnd $handler:expr) => { admitted!($handler) };
    (io_setup $handler:expr) => { admitted!($handler) };
    (io_submit $handler:expr) => { admitted!($handler) };
    (io_uring_setup $handler:expr) => { admitted!($handler) };
    (io_uring_enter $handler:expr) => { admitted!($handler) };
    (io_uring_register $handler:expr) => { admitted!($handler) };
    (add_key $handler:expr) => { admitted!($handler) };
    (request_key $handler:expr) => { admitted!($handler) };
    (landlock_create_ruleset $handler:expr) => { admitted!($handler) };
    (landlock_add_rule $handler:expr) => { admitted!($handler) };
    (landlock_restrict_self $handler:expr) => { admitted!($handler) };
    (mmap $handler:expr) => { admitted!($handler) };
    (mremap $handler:expr) => { admitted!($handler) };
    (munmap $handler:expr) => { relieved!($handler) };
    (mprotect $handler:expr) => { relieved!($handler) };
    (madvise $handler:expr) => { relieved!($handler) };
    (clone $handler:expr) => { admitted!($handler) };
    (clone3 $handler:expr) => { admitted!($handler) };
    (fork $handler:expr) => { admitted!($handler) };
    (vfork $handler:expr) => { admitted!($handler) };
    (pidfd_open $handler:expr) => { admitted!($handler) };
    (rt_sigqueueinfo $handler:expr) => { admitted!($handler) };
    (mount $handler:expr) => { admitted!($handler) };
    ($other:ident $handler:expr) => { $handler };
}

macro_rules! handlers {
    ($($number:literal $name:ident $status:ident $note:literal $($handler:ident)::+;)*) => {{
        let mut table: [Option<Handler>; NUMBERS] = [None; NUMBERS];
        $(table[$number] = guarded!($name family!(handler $($handler)+));)*
        table
    }};
}

macro_rules! left_out_of_image {
    ($($number:literal $name:ident $status:ident $note:literal $($handler:ident)::+;)*) => {
        /// The choice (`--set`) that left the call of this number out.
        fn left_out_by(number: u64) -> Option<&'static str> {
            match number {
                $($number => family!(left_out $($handler)+),)*
                _ => None,
            }
        }
    };
}

syscall_table::system_calls!(left_out_of_image);

#[cfg(feature = "linked")]
mod linked;
#[cfg(feature = "linked")]
pub use linked::{Outcome, serve};

static HANDLERS: [Option<Handler>; NUMBERS] = syscall_table::system_calls!(handlers);

/// The number of `restart_syscall`.
#[cfg(not(feature = "linked"))]
const RESTART_SYSCALL: u64 = 219;

/// How often each number was asked for in vain.
static MISSING: [AtomicU32; NUMBERS] = [const { AtomicU32::new(0) }; NUMBERS];

#[unsafe(no_mangle)]
fn unilith_kernel_syscall(frame: &mut TrapFrame) {
    #[cfg(feature = "linked")]
    return linked::by_instruction(frame);
    #[cfg(not(feature = "linked"))]
    by_number(frame);
}

#[inline(always)]
fn by_number(frame: &mut TrapFrame) {
    let number = frame.rax;
    let result = invoke(number, frame);
    if api_plat::take_work() || result.is_none() {
        leave(frame, result.map(|r| (frame.orig_rax, r)));
    }
    if watch::is_on() {
        cpu_time::left();
    }
}

#[unsafe(no_mangle)]
fn unilith_kernel_overlay_call(frame: &mut TrapFrame) {
    let entry = frame.entry;
    overlay::call(frame);
    unilith_kernel_syscall(frame);
    // No signal is for this thread: what a signal would make again ends as if its handler had run.
    if [RESTART, RESTART_NO_HANDLER, RESTART_BLOCK].iter().any(|e| frame.rax == e.to_return() as u64) {
        frame.rax = abi::errno::EINTR.to_return() as u64;
    }
    frame.entry = entry;
    leave(frame, None);
}

/// Runs the handler and stores its result in RAX; `None` when the handler replaced the registers, else the error.
fn invoke(number: u64, frame: &mut TrapFrame) -> Option<Result<usize>> {
    let mut number = number;
    if watch::is_on() {
        number = comes_in(number, frame);
    }
    let mut call = Call { frame, keep_registers: false };
    let result = match HANDLERS.get(number as usize) {
        Some(Some(handler)) => handler(&mut call),
        _ => missing(number, call.frame),
    };
    let keep = call.keep_registers;
    if watch::is_on() {
        return goes_out(number, frame, result, keep);
    }
    if keep {
        return None;
    }
    store(result, frame);
    Some(result)
}

#[inline(always)]
fn store(result: Result<usize>, frame: &mut TrapFrame) {
    frame.rax = match result {
        Ok(value) => value as u64,
        Err(e) => {
            if is_restart(Err(e)) {
                // Only a signal interrupts a call: it is pending, and `leave` decides what becomes of the call.
                api_plat::request_work();
            }
            e.to_return() as u64
        }
    };
}

#[cold]
fn comes_in(number: u64, frame: &mut TrapFrame) -> u64 {
    cpu_time::entered();
    if api_trace::is_on(Point::CallEntry) {
        let arguments = [frame.rdi, frame.rsi, frame.rdx, frame.r10, frame.r8, frame.r9];
        api_trace::hit(Event::CallEntry { number, arguments });
    }
    let Some(task) = task::running() else { return number };
    // The tracer first: what it makes of a call is what the filters are asked about.
    let number = match task.tracing.is_on() {
        true => calls::ptrace::stop::call_enters(&task, frame, number),
        false => number,
    };
    match task.seccomp.is_on() {
        true => calls::seccomp::call_enters(&task, frame, number),
        false => number,
    }
}

#[cold]
fn goes_out(number: u64, frame: &mut TrapFrame, result: Result<usize>, keep: bool) -> Option<Result<usize>> {
    if watch::is_traced() {
        trace(number, frame, &result);
    }
    if api_trace::is_on(Point::CallExit) {
        let result = result.map_or_else(|e| e.to_return() as u64, |value| value as u64);
        api_trace::hit(Event::CallExit { number, result });
    }
    if !keep {
        store(result, frame);
    }
    match task::running() {
        // What the tracer left in the registers counts.
        Some(task) if task.tracing.is_on() => {
            calls::ptrace::stop::call_leaves(&task, frame);
            match calls::ptrace::stop::interrupted(frame) {
                Some((_, result)) => Some(result),
                None => (!keep).then_some(Ok(frame.rax as usize)),
            }
        }
        _ => (!keep).then_some(result),
    }
}

#[cold]
fn missing(number: u64, frame: &TrapFrame) -> Result<usize> {
    if number == calls::ptrace::stop::NO_CALL {
        // A signal came before the answer of whoever a filter asks (seccomp_unotify(2)).
        let is_interrupted = frame.rax == RESTART.to_return() as u64 && task::current().has_signal();
        return if is_interrupted { Err(RESTART) } else { Ok(frame.rax as usize) };
    }
    if let Some(count) = MISSING.get(number as usize)
        && count.fetch_add(1, Ordering::Relaxed) == 0
    {
        api_plat::status(&Status::Missing { number: number as u32 });
        if let Some(row) = syscall_table::row(number as u32) {
            if let Some(choice) = left_out_by(number) {
                log::warn!(
                    "system call {} ({number}) answers ENOSYS: this kernel was built with --set {choice}=off",
                    row.name
                );
                return Err(ENOSYS);
            }
            match row.status {
                // On purpose, and programs are known to go on without it.
                syscall_table::Status::Refused => {
                    log::info!("system call {} ({number}) answers ENOSYS: {}", row.name, row.note);
                }
                _ => log::warn!("system call {} ({number}) answers ENOSYS: not implemented", row.name),
            }
        }
    }
    Err(ENOSYS)
}

#[cold]
fn trace(number: u64, frame: &TrapFrame, result: &Result<usize>) {
    let name = syscall_table::row(number as u32).map_or("?", |row| row.name);
    let tid = task::current().tid.of_machine();
    let f = frame;
    let (a, b, c, d) = (f.rdi, f.rsi, f.rdx, f.r10);
    match result {
        Ok(value) => log::error!("[{tid}] {name}({a:#x}, {b:#x}, {c:#x}, {d:#x}) = {value:#x}"),
        Err(e) => log::error!("[{tid}] {name}({a:#x}, {b:#x}, {c:#x}, {d:#x}) = {e:?}"),
    }
}

/// Work that is due before the program goes on: deferred work, timers, preemption, signals, and the restart of an
/// interrupted call (its number and what it returned).
#[cold]
fn leave(frame: &mut TrapFrame, mut call: Option<(u64, Result<usize>)>) {
    loop {
        sched::work();
        if frame.entry.is_overlay() {
            overlay::work(frame);
            if !api_plat::take_work() {
                return;
            }
            continue;
        }
        if mem::has_grown() {
            out_of_memory::look_at_containers(&task::current());
        }
        task::current().wait_while_held();
        task::bandwidth::wait_while_throttled(&task::current().process);
        if task::current().rseq.is_due(call.is_some()) {
            calls::rseq::goes_back(&task::current(), frame);
        }
        let restart = calls::signals::deliver(frame, call);
        call = match restart {
            Some(number) => make_again(number, frame).map(|result| (number, result)),
            None => None,
        };
        if !api_plat::take_work() && call.is_none_or(|(_, r)| !is_restart(r)) {
            return;
        }
    }
}

/// Makes an interrupted call again, by what tells which: its number, or what [`linked`] has in place of one.
fn make_again(call: u64, frame: &mut TrapFrame) -> Option<Result<usize>> {
    #[cfg(feature = "linked")]
    return linked::again(call, frame);
    #[cfg(not(feature = "linked"))]
    {
        let signals = &task::current().signals;
        // A call whose deadline is kept goes on under a number of its own, which tracers and filters see.
        let number = if signals.resumes() { RESTART_SYSCALL } else { call };
        if number != call {
            signals.set_restarted(HANDLERS.get(call as usize).copied().flatten());
        }
        (frame.rax, frame.orig_rax) = (number, number);
        let result = invoke(number, frame);
        if result != Some(Err(RESTART_BLOCK)) {
            task::current().signals.forget_resume();
        }
        result
    }
}

fn is_restart(result: Result<usize>) -> bool {
    matches!(result, Err(RESTART | RESTART_NO_HANDLER | RESTART_BLOCK))
}

#[unsafe(no_mangle)]
fn unilith_kernel_work(frame: &mut TrapFrame) {
    let _time = InKernel::enter();
    leave(frame, None);
}

#[unsafe(no_mangle)]
fn unilith_kernel_timer() {
    sched::on_timer_interrupt();
}

#[unsafe(no_mangle)]
fn unilith_kernel_sample(registers: &TrapFrame) {
    if api_trace::is_on(Point::Sample) && !sched::idles() {
        api_trace::hit(Event::Sample { registers });
    }
}

#[unsafe(no_mangle)]
fn unilith_kernel_exception(frame: &mut TrapFrame, exception: Exception) {
    let _time = InKernel::enter();
    if frame.entry.is_overlay() {
        overlay::exception(frame, exception);
        return leave(frame, None);
    }
    calls::signals::exception(frame, exception);
    leave(frame, None);
}

#[unsafe(no_mangle)]
fn unilith_kernel_page_fault(address: u64, access: Access) -> FaultOutcome {
    if api_trace::is_on(Point::PageFault) {
        api_trace::hit(Event::PageFault { address, access });
    }
    let _time = InKernel::enter();
    let task = task::running();
    // A page that the program touches is no request of the call.
    let _none = task::fault::Suspended::enter(task.as_deref());
    if let Some(task) = task {
        task.rseq.fault_begins();
    }
    loop {
        let outcome = calls::memory::page_fault(address, access);
        match (outcome, task) {
            (FaultOutcome::Resolved, Some(task)) => {
                task.system_time.faulted();
                task.rseq.fault_ends();
            }
            // Whether the program touched the page or the kernel on its behalf: what is written for it (a signal's frame, the
            // result of a call) must not fail because another process has the memory.
            (FaultOutcome::OutOfMemory, Some(task)) if out_of_memory::make_room(&task) => continue,
            _ => {}
        }
        return outcome;
    }
}
