// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lines of /proc/keys and /proc/key-users (keyrings(7)).

use crate::key::{Key, Kind, Serial, Who};
use crate::now;
use crate::quota::limits;
use crate::table::Table;
use abi::{Result, errno::ENOMEM};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use api_alloc::Reserve;

/// A `big_key` above this is told to be in a file (Linux' `BIG_KEY_FILE_THRESHOLD`).
const IN_FILE: usize = 80;

/// How long a key lasts, in the largest unit that it lasts one of.
fn lasts(key: &Key, now: u64) -> String {
    let Some(until) = key.expires_at else { return "perm".into() };
    match until.saturating_sub(now) {
        0 => "expd".into(),
        left if left < 60 => format!("{left}s"),
        left if left < 3600 => format!("{}m", left / 60),
        left if left < 24 * 3600 => format!("{}h", left / 3600),
        left if left < 7 * 24 * 3600 => format!("{}d", left / (24 * 3600)),
        left => format!("{}w", left / (7 * 24 * 3600)),
    }
}

impl Table {
    /// The line of a key; `None` where the caller may not see it. `shown` says what users and groups are called in its namespace.
    pub fn line(&self, who: &Who, serial: Serial, shown: &dyn Fn(u32, u32) -> (u32, u32)) -> Option<Vec<u8>> {
        let key = self.get(serial).ok()?;
        if !self.is_visible(who, serial, key) {
            return None;
        }
        let flag = |is_set: bool, letter: char| if is_set { letter } else { '-' };
        let flags = [
            'I',
            flag(key.revoked_at.is_some(), 'R'),
            '-',
            flag(key.is_in_quota, 'Q'),
            '-',
            flag(key.negative.is_some(), 'N'),
            flag(key.is_invalidated, 'i'),
        ];
        let (uid, gid) = shown(key.uid, key.gid);
        let mut line = format!(
            "{serial:08x} {} {:5} {:>4} {:08x} {uid:5} {gid:5} {:<9} ",
            flags.iter().collect::<String>(),
            key.holders,
            lasts(key, now()),
            key.permissions,
            key.kind().name(),
        )
        .into_bytes();
        line.extend_from_slice(key.description());
        if key.negative.is_none() {
            let details = match key.links() {
                Some(links) if links.is_empty() => ": empty".into(),
                Some(links) => format!(": {}", links.len()),
                None if key.kind() == Kind::BigKey => {
                    let place = if key.data().len() > IN_FILE { "file" } else { "buff" };
                    format!(": {} [{place}]", key.data().len())
                }
                None => format!(": {}", key.counted_data),
            };
            line.extend_from_slice(details.as_bytes());
        }
        line.push(b'\n');
        Some(line)
    }
}

/// /proc/key-users: what each user has and may have, for those users that `shown` gives a name.
pub fn list_accounts(table: &Table, shown: &dyn Fn(u32) -> Option<u32>) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    for (uid, account) in table.accounts.iter() {
        let Some(name) = shown(*uid) else { continue };
        let (max_keys, max_bytes) = limits(*uid);
        let line = format!(
            "{name:5}: {:5} {}/{} {}/{max_keys} {}/{max_bytes}\n",
            account.keys, account.keys, account.keys, account.counted_keys, account.counted_bytes,
        );
        out.reserve_fallibly(line.len()).map_err(|_| ENOMEM)?;
        out.extend_from_slice(line.as_bytes());
    }
    Ok(out)
}
