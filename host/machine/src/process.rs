// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processes that are recognised again: a number alone may belong to another process by now.

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use std::fs;

/// A process by number and start time (clock ticks since boot, `proc(5)` stat field 22).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pub pid: u32,
    pub start: u64,
}

impl Process {
    /// The process with that number now; `None` if there is none.
    pub fn find(pid: u32) -> Option<Process> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The second field is the name in parentheses and may hold anything; fields are counted after it.
        let start = stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()?;
        Some(Process { pid, start })
    }

    pub fn myself() -> Option<Process> {
        Process::find(std::process::id())
    }

    pub fn is_alive(self) -> bool {
        Process::find(self.pid) == Some(self)
    }

    /// Sends a signal if the process is still the same one; `false` if it is gone.
    pub fn signal(self, signal: Signal) -> bool {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else { return false };
        // The descriptor pins the process; only then is the comparison final.
        let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else { return false };
        self.is_alive() && pidfd_send_signal(&pidfd, signal).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_itself_and_no_later_one_of_its_number() {
        let me = Process::myself().unwrap();
        assert!(me.is_alive());
        assert!(!Process { start: me.start + 1, ..me }.is_alive());
    }

    #[test]
    fn a_signal_reaches_only_the_same_process() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::find(child.id()).unwrap();
        assert!(!Process { start: process.start + 1, ..process }.signal(Signal::KILL));
        assert!(process.signal(Signal::KILL));
        assert!(!child.wait().unwrap().success());
        assert!(!process.signal(Signal::KILL));
    }
}
