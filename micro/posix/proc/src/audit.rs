// SPDX-License-Identifier: Apache-2.0 OR MIT
//! /proc/PID/loginuid and sessionid: who logged in, which pam_loginuid(8) writes and children inherit. Nothing here audits.

use super::process::of;
use super::text;
use abi::{Result, errno::*};
use alloc::format;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};
use procfs::{Entry, Key, Row};
use task::identity::capabilities::CAP_AUDIT_CONTROL;
use task::login::{Login, NONE};
use task::users::{self, Kind};

pub const LOGIN: Row = ("loginuid", Entry::File { text: login, store: set_login, permissions: 0o644 });

pub const SESSION: Row =
    ("sessionid", Entry::Text(|key| text(format!("{}", of(key)?.settings.lock().login.session))));

static NEXT_SESSION: AtomicU32 = AtomicU32::new(1);

fn login(key: Key) -> Result<Vec<u8>> {
    let uid = of(key)?.settings.lock().login.uid;
    text(format!("{}", if uid == NONE { NONE } else { users::here().shown_user(uid) }))
}

/// By the process itself (`EPERM`), and once it is set, with CAP_AUDIT_CONTROL.
fn set_login(key: Key, bytes: &[u8]) -> Result<()> {
    let (process, caller) = (of(key)?, task::current());
    if process.pid != caller.process.pid {
        return Err(EPERM);
    }
    let text = core::str::from_utf8(bytes).map_err(|_| EINVAL)?;
    let number: u32 = text.trim().parse().map_err(|_| EINVAL)?;
    let uid = if number == NONE { NONE } else { users::named(Kind::User, number)? };
    let may_audit = caller.credentials().lock().can(CAP_AUDIT_CONTROL);
    let mut settings = process.settings.lock();
    if settings.login.uid != NONE && !may_audit {
        return Err(EPERM);
    }
    let session = if uid == NONE { NONE } else { NEXT_SESSION.fetch_add(1, Ordering::Relaxed) };
    settings.login = Login { uid, session };
    Ok(())
}
