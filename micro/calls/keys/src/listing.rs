// SPDX-License-Identifier: Apache-2.0 OR MIT
//! /proc/keys and /proc/key-users.

use crate::own::who;
use abi::Result;
use keys::{list_accounts, table};
use procfs::Output;
use task::users::{self, Kind, OVERFLOW};

/// What the caller's user namespace calls a key's user and group. A user's keyrings have no group.
pub(crate) fn shown_owners() -> impl Fn(u32, u32) -> (u32, u32) {
    let users = users::here();
    move |uid, gid| {
        let gid = if gid == u32::MAX { OVERFLOW } else { users.shown_group(gid) };
        (users.shown_user(uid), gid)
    }
}

/// /proc/keys: the keys that the caller may view, of users that its user namespace knows.
pub fn keys(out: &mut Output) -> Result<()> {
    let (who, shown, users) = (who(), shown_owners(), users::here());
    let mut next = out.from() as i32;
    loop {
        let line = {
            let table = table();
            let Some(serial) = table.next_from(next) else { return Ok(()) };
            next = serial.saturating_add(1);
            let is_known = |uid| users.from_machine(Kind::User, uid).is_some();
            table
                .get(serial)
                .ok()
                .filter(|key| is_known(key.uid))
                .and_then(|_| table.line(&who, serial, &shown))
        };
        if let Some(line) = line {
            out.add(&line)?;
        }
        if out.go_on_at(next as u64) {
            return Ok(());
        }
    }
}

/// /proc/key-users.
pub fn users(out: &mut Output) -> Result<()> {
    let users = users::here();
    let lines = list_accounts(&table(), &|uid| users.from_machine(Kind::User, uid))?;
    out.add(&lines)
}
