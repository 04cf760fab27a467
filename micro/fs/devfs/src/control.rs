// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Job control (POSIX, 11.1): the session that a terminal controls, and its process group in the foreground.

use crate::machine;
use abi::{Result, errno::*};
use api_user::UserPtr;

pub const SIGHUP: i32 = 1;
const SIGCONT: i32 = 18;
const SIGTTIN: i32 = 21;
const SIGTTOU: i32 = 22;

/// Who the running thread is to a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    pub group: i32,
    pub session: i32,
    /// It leads its session.
    pub leads: bool,
    /// It has CAP_SYS_ADMIN.
    pub administers: bool,
}

/// What a terminal controls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// 0: none.
    pub session: i32,
    /// Foreground process group.
    pub group: i32,
}

/// The number that the caller has for a group or session.
pub fn shown(number: i32) -> i32 {
    if number == 0 { 0 } else { (machine().shown)(number) }
}

/// TIOCSPGRP: the group that the caller names; `ESRCH` where there is none.
pub fn read_group(argument: u64) -> Result<i32> {
    let number = UserPtr::<i32>::new(argument).read()?;
    (machine().named)(number).ok_or(ESRCH)
}

impl Control {
    pub const NOTHING: Control = Control { session: 0, group: 0 };

    /// It controls the caller's session.
    fn is_callers(&self) -> bool {
        self.session != 0 && (machine().caller)().session == self.session
    }

    /// Sends a signal to the foreground group.
    pub fn signal(&self, signal: i32) {
        if self.session != 0 {
            (machine().signal)(self.group, signal);
        }
    }

    /// Nobody is at the terminal any more: whoever leads the session hears of it, and the foreground.
    pub fn hang_up(&self) {
        if self.session != 0 {
            (machine().signal)(self.session, SIGHUP);
            (machine().signal)(self.session, SIGCONT);
            if self.group != self.session {
                (machine().signal)(self.group, SIGHUP);
                (machine().signal)(self.group, SIGCONT);
            }
        }
    }

    /// A background process that reads is stopped, or told that it cannot.
    pub fn check_read(&self) -> Result<()> {
        self.check(SIGTTIN)
    }

    /// One that changes the terminal, or writes while `tostop` is set, is stopped unless it does not care.
    pub fn check_change(&self) -> Result<()> {
        self.check(SIGTTOU)
    }

    fn check(&self, signal: i32) -> Result<()> {
        let caller = (machine().caller)();
        if self.session == 0 || caller.session != self.session || caller.group == self.group {
            return Ok(());
        }
        (machine().background)(signal)
    }

    /// TIOCGPGRP on the terminal itself.
    pub fn foreground(&self) -> Result<i32> {
        if self.is_callers() { Ok(self.group) } else { Err(ENOTTY) }
    }

    /// TIOCGSID on the terminal itself.
    pub fn session(&self) -> Result<i32> {
        if self.is_callers() { Ok(self.session) } else { Err(ENOTTY) }
    }

    /// TIOCSPGRP: what it controls from now on.
    pub fn with_foreground(&self, group: i32) -> Result<Control> {
        self.check_change()?;
        if !self.is_callers() {
            return Err(ENOTTY);
        }
        if group < 0 {
            return Err(EINVAL);
        }
        match (machine().session_of_group)(group) {
            None => Err(ESRCH),
            Some(session) if session != self.session => Err(EPERM),
            Some(_) => Ok(Control { group, ..*self }),
        }
    }

    /// TIOCSCTTY: what it controls from now on. `has_terminal`: another one controls the caller's session.
    pub fn taken(&self, has_terminal: bool) -> Result<Control> {
        let caller = (machine().caller)();
        if caller.leads && self.session == caller.session {
            return Ok(*self);
        }
        if !caller.leads || has_terminal || self.session != 0 {
            return Err(EPERM);
        }
        Ok(Control { session: caller.session, group: caller.group })
    }
}
