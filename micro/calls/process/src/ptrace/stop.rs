// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a traced thread stands still, and how it goes on (ptrace(2), "Stopped states"). Everything here is done by the
//! thread itself, in the kernel, on its way in or out.

use abi::{Result, errno::ENOSYS};
use api_plat::{Status, TrapFrame};
use core::sync::atomic::Ordering::Relaxed;
use task::children::{CLD_STOPPED, CLD_TRAPPED};
use task::pids::Pid;
use task::registers::TRAP_FLAG;
use task::signals::{self, SI_USER, SIGKILL, SIGTRAP, SigInfo, bit};
use task::tracing::*;
use task::wait::{RESTART, RESTART_ALWAYS, RESTART_BLOCK, RESTART_NO_HANDLER};
use task::{Task, processes};

pub const EVENT_FORK: i32 = 1;
pub const EVENT_VFORK: i32 = 2;
pub const EVENT_CLONE: i32 = 3;
pub const EVENT_EXEC: i32 = 4;
pub const EVENT_VFORK_DONE: i32 = 5;
pub const EVENT_EXIT: i32 = 6;
pub const EVENT_SECCOMP: i32 = 7;
pub const EVENT_STOP: i32 = 128;

/// `si_code` of a step over a system call, and into a handler.
const TRAP_BRKPT: i32 = 1;
/// Of a system-call stop with PTRACE_O_TRACESYSGOOD.
pub const CALL_STOP: i32 = SIGTRAP | 0x80;
/// What the status says of a call that a filter leaves to the tracer.
pub const FILTER_STOP: i32 = SIGTRAP | EVENT_SECCOMP << 8;
/// PTRACE_GETEVENTMSG of a system-call stop.
pub const CALL_ENTERS: u64 = 1;
pub const CALL_LEAVES: u64 = 2;
/// Numbers of the calls that end a thread and a process.
const SYS_EXIT: u64 = 60;
const SYS_EXIT_GROUP: u64 = 231;
/// The number of a call that is not made: RAX is what the tracer left there.
pub const NO_CALL: u64 = u64::MAX - 1;

/// A SIGTRAP of the tracee's own, which is what stops of ptrace look like.
fn trap_info(task: &Task, code: i32) -> SigInfo {
    let uid = task.credentials().lock().uid;
    SigInfo::from_process(SIGTRAP, code, task.number, task.process.shown_user(uid))
}

fn is_killed(task: &Task) -> bool {
    let pending = task.signals.pending() | task.process.signals.pending();
    pending & bit(SIGKILL) != 0 || task.process.is_ending()
}

/// Stands still until the tracer lets it go on, or it is killed. Answers the signal that the tracer gave, and whether
/// registers were changed.
fn stop(
    task: &Task,
    frame: &mut TrapFrame,
    code: i32,
    why: i32,
    info: Option<SigInfo>,
    message: u64,
) -> (i32, bool) {
    if is_killed(task) || frame.entry.is_overlay() {
        return (0, false);
    }
    normalise(task, frame);
    let tracer = task.tracing.with(|traced| {
        traced.registers.save(frame);
        traced.stop = Some(Stop { code, why, info, told: false, listens: false });
        traced.message = message;
        traced.signal = 0;
        traced.wants_trap = false;
        if code >> 8 == EVENT_STOP {
            traced.notify = false;
        }
        traced.tracer
    });
    let Some(tracer) = tracer else { return (0, false) };
    tell(task, tracer, code, why);
    loop {
        // A seized thread that only listens comes back to tell that something changed.
        let goes_on = task.tracing.with(|traced| {
            if traced.stop.is_some_and(|stop| stop.listens && traced.notify) {
                traced.stop = None;
            }
            traced.stop.is_none()
        });
        if goes_on.unwrap_or(true) {
            break;
        }
        if is_killed(task) {
            task.tracing.with(|traced| traced.stop = None);
            break;
        }
        sched::park(u64::MAX);
    }
    let outcome = task.tracing.with(|traced| (traced.signal, traced.registers.restore(frame)));
    task.tracing.forget_released();
    // The way out looks whether it is to make a single step, and the tracer may have sent or blocked signals.
    api_plat::request_work();
    outcome.unwrap_or((0, false))
}

/// The registers as they would be if no call were patched and the kernel did not step: what a tracer is to see.
fn normalise(task: &Task, frame: &mut TrapFrame) {
    if let Some(space) = task.process.space() {
        let rip = space.original_address(frame.rip);
        if frame.rcx == frame.rip {
            frame.rcx = rip;
        }
        frame.rip = rip;
    }
    if task.tracing.steps.swap(false, Relaxed) {
        frame.rflags &= !TRAP_FLAG;
    }
}

/// SIGCHLD for the tracer, and a wait that looks.
fn tell(task: &Task, tracer: Pid, code: i32, why: i32) {
    let Some(tracer) = processes::find(tracer) else { return };
    if tracer.signals.wants_stops() {
        let uid = task.credentials().lock().uid;
        let status = if why == CLD_STOPPED { code & 0x7f } else { code };
        let info = SigInfo::child(
            signals::SIGCHLD,
            why,
            task.tid.seen_by(&tracer),
            tracer.shown_user(uid),
            status,
            [0, 0],
        );
        // A standard signal is never refused.
        let _ = signals::send_to_process(&tracer, info);
    }
    wake(&tracer);
}

/// How the tracer let the thread go on.
fn resume(task: &Task) -> Resume {
    task.tracing.with(|traced| traced.resume).unwrap_or(Resume::Freely)
}

/// A call begins: the number of the one to make, or [`NO_CALL`].
pub fn call_enters(task: &Task, frame: &mut TrapFrame, number: u64) -> u64 {
    let how = resume(task);
    if frame.entry.is_overlay() || !matches!(how, Resume::ToCall | Resume::ShowingCalls) {
        return number;
    }
    frame.orig_rax = number;
    frame.rax = ENOSYS.to_return() as u64;
    call_stop(task, frame, CALL_ENTERS);
    if is_killed(task) || how == Resume::ShowingCalls || (frame.orig_rax as i32) < 0 {
        return NO_CALL;
    }
    frame.orig_rax as i32 as u64
}

/// A call ends, with its result in the frame. What it came to when the tracer has changed that.
pub fn call_leaves(task: &Task, frame: &mut TrapFrame) {
    if frame.entry.is_overlay() {
        return;
    }
    match resume(task) {
        Resume::ToCall => call_stop(task, frame, CALL_LEAVES),
        // The trap flag does not survive a call, and the step is over.
        Resume::Step => {
            if task.tracing.steps.swap(false, Relaxed) {
                frame.rflags &= !TRAP_FLAG;
            }
            signals::force(task, SigInfo::fault(SIGTRAP, TRAP_BRKPT, frame.rip));
        }
        _ => {}
    }
}

/// A signal that the tracer gave, where none was delivered, comes from the kernel.
fn call_stop(task: &Task, frame: &mut TrapFrame, message: u64) {
    let code = if task.tracing.has_option(O_TRACESYSGOOD) { CALL_STOP } else { SIGTRAP };
    let (signal, _) = stop(task, frame, code, CLD_TRAPPED, Some(trap_info(task, code)), message);
    if signal != 0 {
        // A real-time signal may be refused for want of room.
        let _ = signals::send_to_task(task, SigInfo::from_kernel(signal));
    }
}

/// The number that the tracer of the thread has for somebody, as a message of an event.
pub fn number_for_tracer(task: &Task, pid: Pid) -> u64 {
    processes::find(task.tracing.tracer()).map_or(0, |tracer| pid.seen_by(&tracer) as u64)
}

/// A stop that tells of an event, if the tracer wants it (`option`).
pub fn event(task: &Task, frame: &mut TrapFrame, event: i32, option: u32, message: u64) -> bool {
    if !task.tracing.has_option(option) {
        return false;
    }
    let code = SIGTRAP | event << 8;
    stop(task, frame, code, CLD_TRAPPED, Some(trap_info(task, code)), message);
    true
}

/// The same within a call, which has no result yet.
pub fn event_in_call(task: &Task, frame: &mut TrapFrame, kind: i32, option: u32, message: u64) -> bool {
    if !task.tracing.has_option(option) {
        return false;
    }
    frame.rax = ENOSYS.to_return() as u64;
    event(task, frame, kind, option, message)
}

/// A filter of system calls leaves a call to the tracer, with the number in ORIG_RAX and what it answers in RAX. False when
/// nobody listens, or the thread is killed: the call is not made.
pub fn filter_asks(task: &Task, frame: &mut TrapFrame, message: u64) -> bool {
    event(task, frame, EVENT_SECCOMP, O_TRACESECCOMP, message) && !is_killed(task)
}

/// Another program runs: its first stop.
pub fn program_starts(task: &Task, frame: &mut TrapFrame, old: u64) {
    if !task.tracing.is_on() {
        return;
    }
    let result = frame.rax;
    if event_in_call(task, frame, EVENT_EXEC, O_TRACEEXEC, old) {
        frame.rax = result;
    } else {
        let seized = task.tracing.with(|traced| traced.seized).unwrap_or(false);
        if !seized {
            let uid = task.credentials().lock().uid;
            let number = task.process.number;
            let info = SigInfo::from_process(SIGTRAP, SI_USER, number, task.process.shown_user(uid));
            // A standard signal is never refused.
            let _ = signals::send_to_task(task, info);
        }
    }
}

/// A signal is about to be delivered: what the tracer makes of it, and whether it changed registers.
pub fn signal_arrives(task: &Task, frame: &mut TrapFrame, info: SigInfo) -> (Option<SigInfo>, bool) {
    let number = info.signal();
    let told = task.tracing.with(|traced| traced.tracer);
    // The tracer may make a stop of it; SIGCONT and SIGKILL undo that meanwhile.
    task.process.signals.stop_is_due();
    let (signal, changed) = stop(task, frame, number, CLD_TRAPPED, Some(info), 0);
    if signal == 0 {
        return (None, changed);
    }
    // PTRACE_SETSIGINFO counts for the signal that it was.
    let shown = task.tracing.with(|traced| traced.new_info.take()).flatten().unwrap_or(info);
    if signal == shown.signal() {
        return (Some(shown), changed);
    }
    let tracer = told.unwrap_or(Pid::NONE);
    let uid = processes::find(tracer).map_or(0, |tracer| tracer.credentials.lock().uid);
    let info =
        SigInfo::from_process(signal, SI_USER, tracer.seen_by(&task.process), task.process.shown_user(uid));
    if task.signals.blocked() & bit(signal) != 0 {
        let _ = signals::send_to_task(task, info);
        return (None, changed);
    }
    (Some(info), changed)
}

/// A handler was entered: a single step ends there.
pub fn handler_entered(task: &Task, frame: &mut TrapFrame) {
    if task.tracing.is_on() && resume(task) == Resume::Step {
        stop(task, frame, SIGTRAP, CLD_TRAPPED, Some(trap_info(task, SIGTRAP)), 0);
    }
}

/// Stands still while its process is stopped, unless its tracer lets it go on, and for the tracer's requests to stop. True
/// when the tracer changed registers.
pub fn wait_while_stopped(task: &Task, frame: &mut TrapFrame) -> bool {
    let mut changed = false;
    loop {
        let process = &task.process;
        // Who is killed stands still for nobody, whatever a tracer asks for meanwhile.
        if is_killed(task) || process.only().is_some_and(|only| only != task.tid) {
            return changed;
        }
        let stopped_by = process.signals.stopped_by();
        if !task.tracing.is_on() {
            if stopped_by == 0 {
                return changed;
            }
            sched::park(u64::MAX);
            continue;
        }
        let (seized, passes, asked) = task
            .tracing
            .with(|t| (t.seized, t.passes_stop, t.seized && (t.wants_trap || t.notify)))
            .unwrap_or_default();
        let participates = stopped_by != 0 && !passes;
        if !participates && !asked {
            return changed;
        }
        let signal = if stopped_by != 0 { stopped_by } else { SIGTRAP };
        if participates {
            task.tracing.with(|traced| traced.passes_stop = true);
        }
        changed |= if seized {
            let code = signal | EVENT_STOP << 8;
            let uid = task.credentials().lock().uid;
            let info = SigInfo::from_process(signal, code, task.number, process.shown_user(uid));
            let why = if stopped_by != 0 { CLD_STOPPED } else { CLD_TRAPPED };
            stop(task, frame, code, why, Some(info), 0).1
        } else {
            // What it is let go on with counts for nothing: no signal is about to be delivered.
            stop(task, frame, signal, CLD_STOPPED, None, 0).1
        };
    }
}

/// On the way out, behind everything else: the trap flag for a single step.
pub fn leaves(task: &Task, frame: &mut TrapFrame) {
    if resume(task) != Resume::Step || frame.rflags & TRAP_FLAG != 0 {
        return;
    }
    task.tracing.with(|traced| traced.registers.complete_running(frame));
    // A step begins in the text, not in a stub.
    normalise(task, frame);
    frame.rflags |= TRAP_FLAG;
    task.tracing.steps.store(true, Relaxed);
}

/// The trap of a single step came. False when there is no tracer any more, and the program is not to hear of it.
pub fn stepped(task: &Task, frame: &mut TrapFrame) -> bool {
    let steps = task.tracing.steps.swap(false, Relaxed);
    if steps {
        frame.rflags &= !TRAP_FLAG;
    }
    !steps || task.tracing.is_on()
}

/// The call that is to be made again by what the tracer left in the registers: it may have put aside an interrupted call, let
/// the thread run something else, and put the registers back.
pub fn interrupted(frame: &TrapFrame) -> Option<(u64, Result<usize>)> {
    let results = [RESTART, RESTART_ALWAYS, RESTART_NO_HANDLER, RESTART_BLOCK];
    let result = results.into_iter().find(|e| frame.rax == e.to_return() as u64)?;
    let number = frame.orig_rax as i32;
    (number >= 0).then_some((number as u64, Err(result)))
}

/// The thread is about to end, with this if its process does as well.
pub fn ends(task: &Task, frame: &mut TrapFrame, status: Option<&Status>) {
    let code = match status {
        Some(Status::Exit { code }) => u64::from(*code) << 8,
        Some(Status::Signal { number }) => u64::from(*number),
        _ => 0,
    };
    let in_call = [SYS_EXIT, SYS_EXIT_GROUP].contains(&frame.orig_rax);
    let stops = if in_call { event_in_call } else { event };
    stops(task, frame, EVENT_EXIT, O_TRACEEXIT, code);
}
