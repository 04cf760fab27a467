// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What becomes of children, and how their parents hear of it.

use crate::cpu_time::Usage;
use crate::process::Process;
use crate::processes;
use crate::signals::{self, SIGCHLD, SIGCONT, SIGNALS, SigInfo};
use abi::Events;
use alloc::vec::Vec;
use api_plat::Status;
use core::sync::atomic::Ordering;

pub const CLD_EXITED: i32 = 1;
pub const CLD_KILLED: i32 = 2;
pub const CLD_DUMPED: i32 = 3;
pub const CLD_TRAPPED: i32 = 4;
pub const CLD_STOPPED: i32 = 5;
pub const CLD_CONTINUED: i32 = 6;

/// wait4's status of a child that goes on.
pub const CONTINUED: i32 = 0xffff;

/// The bit of wait4's status that tells of a core file.
pub const CORE_DUMPED: i32 = 0x80;

/// What became of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    pub code: u8,
    /// The signal that ended it; 0 when it exited.
    pub signal: u8,
    /// It left a core file.
    pub core: bool,
    pub used: Usage,
    /// Most memory it had at a time, in bytes.
    pub peak: u64,
    /// The name of its last thread, padded.
    name: [u8; 16],
}

impl Ended {
    pub fn new(status: &Status, core: bool, used: Usage, peak: u64, name: [u8; 16]) -> Ended {
        let (code, signal) = match status {
            Status::Exit { code } => (*code, 0),
            Status::Signal { number } => (0, *number),
            // Nothing else ends a process that is not the first.
            _ => (0, signals::SIGKILL as u8),
        };
        Ended { code, signal, core: core && signal != 0, used, peak, name }
    }

    /// The name without its padding.
    pub fn comm(&self) -> Vec<u8> {
        self.name.iter().copied().take_while(|byte| *byte != 0).collect()
    }

    /// `si_code` and `si_status`.
    pub fn code_and_status(&self) -> (i32, i32) {
        match self.signal {
            0 => (CLD_EXITED, i32::from(self.code)),
            signal if self.core => (CLD_DUMPED, i32::from(signal)),
            signal => (CLD_KILLED, i32::from(signal)),
        }
    }

    /// As wait4(2) has it.
    pub fn wait_status(&self) -> i32 {
        match self.signal {
            0 => i32::from(self.code) << 8,
            signal if self.core => i32::from(signal) | CORE_DUMPED,
            signal => signal.into(),
        }
    }
}

/// A child stopped or went on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Stopped(i32),
    Continued,
}

/// What a parent is told, with numbers as it sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    pub pid: i32,
    pub uid: u32,
    pub code: i32,
    pub status: i32,
    pub used: Usage,
    pub peak: u64,
}

impl Told {
    pub fn ended(parent: &Process, child: &Process, ended: &Ended) -> Told {
        let (code, status) = ended.code_and_status();
        Told { used: ended.used, peak: ended.peak, ..Told::of(parent, child, code, status) }
    }

    pub fn changed(parent: &Process, child: &Process, change: Change) -> Told {
        match change {
            Change::Stopped(signal) => Told::of(parent, child, CLD_STOPPED, signal),
            Change::Continued => Told::of(parent, child, CLD_CONTINUED, SIGCONT),
        }
    }

    pub fn of(parent: &Process, child: &Process, code: i32, status: i32) -> Told {
        let uid = child.credentials.lock().uid;
        let (used, peak) = match child.family.is_zombie() {
            true => (Usage::default(), 0),
            false => (child.usage(), peak_of(child)),
        };
        let (pid, uid) = (child.pid.seen_by(parent), parent.shown_user(uid));
        Told { pid, uid, code, status, used, peak }
    }

    /// Of a traced thread. (wait4 tells all of a stop's code, and so does waitid.)
    pub fn of_thread(self, number: i32, why: i32) -> Told {
        let code = if why != 0 { CLD_TRAPPED } else { self.code };
        Told { pid: number, code, ..self }
    }

    /// As wait4 has it.
    pub fn wait_status(&self) -> i32 {
        match self.code {
            CLD_EXITED => (self.status & 0xff) << 8,
            CLD_STOPPED | CLD_TRAPPED => self.status << 8 | 0x7f,
            CLD_CONTINUED => CONTINUED,
            CLD_DUMPED => self.status | CORE_DUMPED,
            _ => self.status,
        }
    }

    pub fn info(&self, signal: i32) -> SigInfo {
        const NS_PER_TICK: u64 = 10_000_000;
        let times = [self.used.user_ns / NS_PER_TICK, self.used.system_ns / NS_PER_TICK];
        SigInfo::child(signal, self.code, self.pid, self.uid, self.status, times)
    }
}

/// Most memory the process had at a time, in bytes.
pub fn peak_of(process: &Process) -> u64 {
    process.space().map_or(0, |space| space.usage().peak_resident)
}

/// Tells the parent of the child's end; false when it does not want to know, so that nobody is to wait for it.
pub fn tell_end(parent: &Process, child: &Process, ended: &Ended) -> bool {
    let signal = child.family.exit_signal.load(Ordering::Relaxed);
    // The first process of a PID namespace waits for nobody any more when it ends.
    let is_gone = parent.is_first() && parent.pids.is_closed();
    let wanted = !is_gone && (signal != SIGCHLD || parent.signals.wants_zombies());
    if (1..=SIGNALS).contains(&signal) {
        // A standard signal is never refused.
        let _ = signals::send_to_process(parent, Told::ended(parent, child, ended).info(signal));
    }
    parent.family.changed.wake_all(Events::ALL);
    wanted
}

/// The process stopped or went on: its parent hears of it.
pub fn changes(child: &Process, change: Change) {
    *child.family.change.lock() = Some(change);
    let Some(parent) = processes::find(child.family.parent()) else { return };
    if parent.signals.wants_stops() {
        // A standard signal is never refused.
        let _ = signals::send_to_process(&parent, Told::changed(&parent, child, change).info(SIGCHLD));
    }
    parent.family.changed.wake_all(Events::ALL);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(code: i32, status: i32) -> Told {
        Told { pid: 7, uid: 1000, code, status, used: Usage::default(), peak: 0 }
    }

    #[test]
    fn wait_statuses_are_those_the_macros_of_wait_take_apart() {
        assert_eq!(told(CLD_EXITED, 3).wait_status(), 0x300);
        assert_eq!(told(CLD_KILLED, 9).wait_status(), 9);
        assert_eq!(told(CLD_STOPPED, 20).wait_status(), 20 << 8 | 0x7f);
        assert_eq!(told(CLD_CONTINUED, SIGCONT).wait_status(), 0xffff);
    }

    #[test]
    fn a_process_ends_with_a_code_or_by_a_signal() {
        let of = |status| {
            let ended = Ended::new(&status, false, Usage::default(), 0, [0; 16]);
            (ended.code, ended.signal)
        };
        assert_eq!(of(Status::Exit { code: 3 }), (3, 0));
        assert_eq!(of(Status::Signal { number: 11 }), (0, 11));
        assert_eq!(of(Status::OutOfMemory { given: 1 }), (0, 9));
    }
}
