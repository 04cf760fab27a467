// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What terminals need to know of processes: who uses them, and who hears of their keys.

use abi::{Result, errno::EIO};
use devfs::Caller;
use task::identity::capabilities::CAP_SYS_ADMIN;
use task::pids::Pid;
use task::process::Process;
use task::processes;
use task::signals::{self, SIG_IGN, SIGTTIN, SigInfo, bit};
use task::wait::RESTART;

/// Device number and foreground process group of the terminal that controls the process' session.
pub fn of(process: &Process) -> Option<(u64, Pid)> {
    let session = process.sessions.lock().session;
    devfs::terminal_of(session.of_machine())
        .map(|(device, control)| (device, Pid::from_machine(control.group)))
}

/// Sends a signal to a process group, as a terminal does.
pub fn signal(group: i32, signal: i32) {
    for process in processes::of_group(Pid::from_machine(group)) {
        // A standard signal is never refused for want of room.
        let _ = signals::send_to_process(&process, SigInfo::from_kernel(signal));
    }
}

/// The running thread's process; a kernel thread is nobody to a terminal.
pub fn caller() -> Caller {
    let nobody = Caller { group: 0, session: 0, leads: false, administers: false };
    task::running().map_or(nobody, |task| {
        let sessions = *task.process.sessions.lock();
        Caller {
            group: sessions.group.of_machine(),
            session: sessions.session.of_machine(),
            leads: task.process.leads_session(),
            administers: task.credentials().lock().can(CAP_SYS_ADMIN),
        }
    })
}

/// The number that the caller has for a process group or session.
pub fn shown(number: i32) -> i32 {
    Pid::from_machine(number).here()
}

/// The process group that the caller means by a number; what is none of a namespace's is looked at by whoever asks.
pub fn named(number: i32) -> Option<i32> {
    // No group has such a number anywhere: devfs says which error that is.
    if number <= 0 { Some(number) } else { Pid::named(number).map(Pid::of_machine) }
}

/// The session of a process group.
pub fn session_of_group(group: i32) -> Option<i32> {
    let group = Pid::from_machine(group);
    processes::of_group(group).next().map(|process| process.sessions.lock().session.of_machine())
}

/// The running thread does from the background what only the foreground may (POSIX, 11.1.4): its group is stopped, unless it
/// does not care, or nobody could let it go on.
pub fn background(signal: i32) -> Result<()> {
    let Some(task) = task::running() else { return Ok(()) };
    let ignores = task.process.signals.action(signal).handler == SIG_IGN;
    let does_not_care = ignores || task.signals.blocked() & bit(signal) != 0;
    let group = task.process.sessions.lock().group;
    match () {
        () if does_not_care && signal == SIGTTIN => Err(EIO),
        () if does_not_care => Ok(()),
        () if processes::is_orphaned(group, None) => Err(EIO),
        () => {
            self::signal(group.of_machine(), signal);
            Err(RESTART)
        }
    }
}
