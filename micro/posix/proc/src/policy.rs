// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a mount of /proc keeps from those who may not look into a process (proc(5): `hidepid`, `gid`, `subset`).

use super::process::of;
use abi::{Result, errno::*};
use alloc::format;
use alloc::string::String;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use procfs::Key;
use task::identity::{As, check_access};

/// What of others' processes is hidden: the values of `hidepid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Hidden {
    Nothing = 0,
    /// Their directories are listed, and nobody may go into them.
    Contents = 1,
    /// They seem not to be there.
    All = 2,
    /// As [`Hidden::All`], for all who may not trace them, whatever groups they are in.
    Untraceable = 4,
}

impl Hidden {
    const EACH: [(Hidden, &'static str); 4] = [
        (Hidden::Nothing, "off"),
        (Hidden::Contents, "noaccess"),
        (Hidden::All, "invisible"),
        (Hidden::Untraceable, "ptraceable"),
    ];

    /// By number or name.
    pub fn parse(text: &str) -> Option<Hidden> {
        let is_it = |(hidden, name): &&(Hidden, &str)| *name == text || text.parse() == Ok(*hidden as u8);
        Hidden::EACH.iter().find(is_it).map(|(hidden, _)| *hidden)
    }

    fn of(number: u8) -> Hidden {
        let found = Hidden::EACH.iter().find(|(hidden, _)| *hidden as u8 == number);
        found.map_or(Hidden::Untraceable, |(hidden, _)| *hidden)
    }

    fn name(self) -> &'static str {
        Hidden::EACH.iter().find(|(hidden, _)| *hidden == self).map_or("", |(_, name)| name)
    }
}

/// A mount's own, which a remount may change.
#[derive(Debug)]
pub struct Policy {
    hidden: AtomicU8,
    /// Who is in this group sees everything, but for [`Hidden::Untraceable`].
    group: AtomicU32,
    /// Of the table at the root only the links to processes are there.
    processes_only: AtomicBool,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy::new(Hidden::Nothing, 0, false)
    }
}

impl Policy {
    pub fn new(hidden: Hidden, group: u32, processes_only: bool) -> Policy {
        Policy {
            hidden: AtomicU8::new(hidden as u8),
            group: group.into(),
            processes_only: processes_only.into(),
        }
    }

    /// Changes what is said.
    pub fn change(&self, hidden: Option<Hidden>, group: Option<u32>, processes_only: bool) {
        if let Some(hidden) = hidden {
            self.hidden.store(hidden as u8, Ordering::Relaxed);
        }
        if let Some(group) = group {
            self.group.store(group, Ordering::Relaxed);
        }
        if processes_only {
            self.processes_only.store(true, Ordering::Relaxed);
        }
    }

    /// As mountinfo shows it: each option behind a comma.
    pub fn shown(&self) -> String {
        let (hidden, group) = (self.hidden(), self.group.load(Ordering::Relaxed));
        let mut out = String::new();
        if group != 0 {
            out += &format!(",gid={group}");
        }
        if hidden != Hidden::Nothing {
            out += &format!(",hidepid={}", hidden.name());
        }
        if self.processes_only.load(Ordering::Relaxed) {
            out += ",subset=pid";
        }
        out
    }

    fn hidden(&self) -> Hidden {
        Hidden::of(self.hidden.load(Ordering::Relaxed))
    }

    /// Whether the caller sees what is hidden from `from` on (Linux' has_pid_permissions).
    fn sees(&self, key: Key, from: Hidden) -> bool {
        let hidden = self.hidden();
        if hidden < from && hidden != Hidden::Untraceable {
            return true;
        }
        let group = self.group.load(Ordering::Relaxed);
        let is_member = || task::current().credentials().lock().in_group(group);
        (hidden != Hidden::Untraceable && is_member())
            || of(key).is_ok_and(|process| check_access(&process, As::Files).is_ok())
    }
}

impl procfs::Policy for Policy {
    fn shows(&self, name: &str) -> bool {
        !self.processes_only.load(Ordering::Relaxed) || matches!(name, "self" | "thread-self")
    }

    fn tells(&self, key: Key) -> bool {
        self.sees(key, Hidden::All)
    }

    fn check(&self, key: Key) -> Result<()> {
        match self.sees(key, Hidden::Contents) {
            true => Ok(()),
            false if self.hidden() == Hidden::Contents => Err(EPERM),
            false => Err(ENOENT),
        }
    }
}
