// SPDX-License-Identifier: Apache-2.0 OR MIT
//! On the way back to the program: pending signals are taken, one after the other, and each does what its action says.

use super::core_file;
use super::crash;
use super::frame;
use crate::end::end_process;
use crate::ptrace;
use abi::{Result, errno::EINTR};
use api_plat::{Status, TrapFrame};
use core::sync::atomic::Ordering;
use task::children::Change;
use task::pids::Pid;
use task::signals::action::{Action, SA_IMMUTABLE, SA_RESETHAND, SA_RESTART, SIG_DFL, SIG_IGN};
use task::signals::{self, SigInfo, *};
use task::wait::{RESTART, RESTART_ALWAYS, RESTART_BLOCK, RESTART_NO_HANDLER};
use task::{Task, processes};

/// A call that was interrupted, and when it is made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Interrupted {
    /// Unless a handler without SA_RESTART runs.
    UnlessHandlerSaysNo(u64),
    /// Unless any handler runs.
    UnlessHandled(u64),
    /// In any case: the call asks for it, or an earlier handler with SA_RESTART has run already.
    Always(u64),
}

impl Interrupted {
    fn new(call: Option<(u64, Result<usize>)>, noted: Option<u64>) -> Option<Interrupted> {
        match call {
            Some((number, Err(RESTART))) => Some(Interrupted::UnlessHandlerSaysNo(number)),
            Some((number, Err(RESTART_NO_HANDLER | RESTART_BLOCK))) => {
                Some(Interrupted::UnlessHandled(number))
            }
            Some((number, Err(RESTART_ALWAYS))) => Some(Interrupted::Always(number)),
            _ => noted.map(Interrupted::Always),
        }
    }

    /// The number to call, when no handler runs.
    fn without_handler(self) -> u64 {
        match self {
            Interrupted::UnlessHandlerSaysNo(n) | Interrupted::UnlessHandled(n) | Interrupted::Always(n) => n,
        }
    }

    /// The number to call when the handler of `action` has run; `None`: it answers EINTR.
    fn after_handler(self, action: &Action) -> Option<u64> {
        match self {
            Interrupted::Always(n) => Some(n),
            Interrupted::UnlessHandlerSaysNo(n) => action.has(SA_RESTART).then_some(n),
            Interrupted::UnlessHandled(_) => None,
        }
    }
}

/// Delivers what is pending before the program goes on. `call` is the call being left: its number and result. The
/// returned number is to be called again.
pub fn deliver(registers: &mut TrapFrame, call: Option<(u64, Result<usize>)>) -> Option<u64> {
    let task = task::current();
    let signals = &task.signals;
    let mut interrupted = Interrupted::new(call, signals.again.lock().take());
    let mut handled = false;
    loop {
        let may_stop = task.process.signals.is_stopped() || task.tracing.is_on();
        if may_stop && ptrace::stop::wait_while_stopped(&task, registers) {
            interrupted = Interrupted::new(ptrace::stop::interrupted(registers), None);
        }
        // The process ends, or another thread runs another program (execve): this one's end has come.
        if task.process.is_ending() || task.process.only().is_some_and(|only| only != task.tid) {
            if !task.process.is_ending() {
                // Its tracer hears of the end.
                signals::end_was_seen(&task);
            }
            let status = task.process.outcome();
            ptrace::stop::ends(&task, registers, status.as_ref());
            crate::end::end_thread(0);
        }
        if task.process.restarts.take() {
            let outcome = crate::exec::restart(registers);
            task.process.restarts.done(outcome);
            if outcome.is_ok() {
                return None;
            }
        }
        let Some(mut info) = signals::take(&task, !signals.blocked()) else { break };
        let is_for_tracer =
            |signal| signal != SIGKILL && !task.process.signals.action(signal).has(SA_IMMUTABLE);
        if task.tracing.is_on() && is_for_tracer(info.signal()) {
            let (delivered, changed) = ptrace::stop::signal_arrives(&task, registers, info);
            if changed {
                interrupted = Interrupted::new(ptrace::stop::interrupted(registers), None);
            }
            let Some(delivered) = delivered else { continue };
            info = delivered;
        }
        let signal = info.signal();
        let action = task.process.signals.action(signal);
        match action.handler {
            SIG_IGN => {}
            SIG_DFL if is_ignored_by_first(&task, &info) => {}
            SIG_DFL => do_default(&task, registers, info),
            _ => {
                if action.has(SA_RESETHAND) {
                    let reset = Action { handler: SIG_DFL, ..action };
                    task.process.signals.set_action(signal, reset);
                }
                let again = interrupted.take().and_then(|call| {
                    let again = call.after_handler(&action);
                    if !matches!(call, Interrupted::Always(_)) {
                        registers.rax = EINTR.to_return() as u64;
                    }
                    again
                });
                // The handler interrupts a restartable sequence: its frame has the place where that goes on.
                task.rseq.interrupt();
                crate::rseq::goes_back(&task, registers);
                let mask = signals.take_saved_mask().unwrap_or_else(|| signals.blocked());
                match frame::enter_handler(&task, registers, info, &action, mask, again) {
                    Ok(()) => {
                        let blocked = signals.blocked();
                        signals.set_blocked(frame::handler_mask(blocked, &action, signal));
                        ptrace::stop::handler_entered(&task, registers);
                    }
                    Err(_) => signals::force_bad_frame(&task, signal),
                }
                handled = true;
            }
        }
    }
    if let Some(mask) = signals.take_saved_mask() {
        signals.set_blocked(mask);
    }
    if task.tracing.is_on() && interrupted.is_none() {
        ptrace::stop::leaves(&task, registers);
    }
    if handled || interrupted.is_none() {
        signals.forget_resume();
    }
    interrupted.map(Interrupted::without_handler)
}

/// The first process of a PID namespace has no default actions but for what comes from outside (SIGKILL, SIGSTOP; the others are not
/// sent) and for faults of its own.
fn is_ignored_by_first(task: &Task, info: &SigInfo) -> bool {
    let is_fault = info.code() > 0 && bit(info.signal()) & SYNCHRONOUS != 0;
    let is_forced = [SIGKILL, SIGSTOP].contains(&info.signal()) || is_fault;
    task.process.is_first() && signals::may_be_spared(&task.process) && !is_forced
}

/// signal(7), "Signal dispositions".
fn do_default(task: &Task, registers: &mut TrapFrame, info: SigInfo) {
    let signal = info.signal();
    match default_action(signal) {
        DefaultAction::Ignore | DefaultAction::Continue => {}
        DefaultAction::Stop if signal != SIGSTOP && is_in_orphaned_group(task) => {}
        DefaultAction::Stop => {
            if task.process.signals.stop(signal) {
                task.process.tasks().for_each(|task| task.tracing.stop_changes(&task, true));
                task::children::changes(&task.process, Change::Stopped(signal));
            }
        }
        DefaultAction::Terminate => {
            let status = Status::Signal { number: signal as u8 };
            ptrace::stop::ends(task, registers, Some(&status));
            end_process(status)
        }
        DefaultAction::Core => {
            // Other processes' parents are told, and know what to say of it.
            if task.process.pid == Pid::FIRST {
                crash::report(task, registers, &info);
            }
            if core_file::dump(task, registers, &info) {
                task.process.family.left_core.store(true, Ordering::Relaxed);
            }
            let status = Status::Signal { number: signal as u8 };
            ptrace::stop::ends(task, registers, Some(&status));
            end_process(status)
        }
    }
}

/// Nobody could let it go on, so the stop signals of terminals do nothing (POSIX, 2.4.3). The group of the first process is
/// such a one.
fn is_in_orphaned_group(task: &Task) -> bool {
    let group = task.process.sessions.lock().group;
    processes::is_orphaned(group, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESTARTING: Action = Action { handler: 0x1000, flags: SA_RESTART, ..Action::DEFAULT };
    const PLAIN: Action = Action { handler: 0x1000, ..Action::DEFAULT };

    #[test]
    fn a_handler_decides_whether_a_call_is_made_again() {
        let read = Interrupted::new(Some((0, Err(RESTART))), None).unwrap();
        assert_eq!(read.without_handler(), 0);
        assert_eq!(read.after_handler(&RESTARTING), Some(0));
        assert_eq!(read.after_handler(&PLAIN), None);
        let pause = Interrupted::new(Some((34, Err(RESTART_NO_HANDLER))), None).unwrap();
        assert_eq!(pause.without_handler(), 34);
        assert_eq!(pause.after_handler(&RESTARTING), None);
    }

    #[test]
    fn a_call_noted_in_an_earlier_frame_is_made_again_whatever_the_next_handler_says() {
        let noted = Interrupted::new(None, Some(7)).unwrap();
        assert_eq!(noted.after_handler(&PLAIN), Some(7));
        assert_eq!(Interrupted::new(Some((1, Ok(3))), None), None);
    }
}
