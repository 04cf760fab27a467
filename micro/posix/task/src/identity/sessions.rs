// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sessions and process groups (setsid(2), setpgid(2)).

use crate::pids::Pid;
use crate::process::Process;
use crate::processes;
use crate::signals::{self, SIGCONT, SIGHUP, SigInfo};
use alloc::vec::Vec;
use api_alloc::Reserve;

/// What a process belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Sessions {
    pub group: Pid,
    pub session: Pid,
}

impl Default for Sessions {
    fn default() -> Self {
        Sessions { group: Pid::FIRST, session: Pid::FIRST }
    }
}

impl Process {
    /// Puts it into a group and session; their numbers stay in use as long as somebody is in them.
    pub fn join(&self, new: Sessions) {
        let old = core::mem::replace(&mut *self.sessions.lock(), new);
        [new.group, new.session].into_iter().for_each(processes::retain);
        [old.group, old.session].into_iter().for_each(processes::release);
    }

    /// It began its session.
    pub fn leads_session(&self) -> bool {
        self.sessions.lock().session == self.pid
    }
}

/// The groups that somebody could continue so far and that may lose this process as the last who could: its own and its
/// children's. To be asked before the children have another parent.
pub fn groups_at_risk(process: &Process) -> Vec<Pid> {
    let own = *process.sessions.lock();
    let mut groups = Vec::new();
    // A group that there is no memory to note is told nothing.
    let add = |groups: &mut Vec<Pid>, group| {
        if groups.reserve_fallibly(1).is_ok() {
            groups.push(group);
        }
    };
    add(&mut groups, own.group);
    for child in process.family.children.lock().iter() {
        let theirs = *child.sessions.lock();
        if theirs.session == own.session && !groups.contains(&theirs.group) {
            add(&mut groups, theirs.group);
        }
    }
    groups.retain(|group| !processes::is_orphaned(*group, None));
    groups
}

/// The process has ended and its children have their new parent, who may be one that can continue them: groups that nobody
/// is left to continue hear of it when one of their processes is stopped (POSIX, _exit(), "Consequences of Process
/// Termination").
pub fn tell_orphaned(process: &Process, groups: &[Pid]) {
    for group in groups.iter().copied() {
        let stopped = processes::of_group(group).any(|m| m.pid != process.pid && m.signals.is_stopped());
        if stopped && processes::is_orphaned(group, Some(process.pid)) {
            for member in processes::of_group(group).filter(|member| member.pid != process.pid) {
                for signal in [SIGHUP, SIGCONT] {
                    // A standard signal is never refused.
                    let _ = signals::send_to_process(&member, SigInfo::from_kernel(signal));
                }
            }
        }
    }
}
