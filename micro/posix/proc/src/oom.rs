// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which process goes first when memory has run out: proc_pid_oom_score(5), proc_pid_oom_score_adj(5) and oom_adj, which was before it.

use super::process::of;
use super::text;
use abi::{Result, errno::*};
use alloc::format;
use alloc::vec::Vec;
use calls_process::out_of_memory;
use core::sync::atomic::Ordering;
use procfs::{Entry, Key, Row};
use task::identity::capabilities::CAP_SYS_RESOURCE;

pub const SCORE: Row =
    ("oom_score", Entry::Text(|key| text(format!("{}\n", out_of_memory::score(&*of(key)?)))));
pub const ADJUSTMENT: Row =
    ("oom_score_adj", Entry::File { text: adjustment, store: set_adjustment, permissions: 0o644 });
pub const OLD_ADJUSTMENT: Row =
    ("oom_adj", Entry::File { text: old_adjustment, store: set_old_adjustment, permissions: 0o644 });

/// OOM_DISABLE and OOM_ADJUST_MAX of oom_adj.
const OLD_NEVER: i32 = -17;
const OLD_MAX: i32 = 15;

fn number(bytes: &[u8]) -> Result<i32> {
    let text = core::str::from_utf8(bytes).map_err(|_| EINVAL)?;
    // Programs write the NUL behind it, too.
    text.split('\0').next().unwrap_or_default().trim().parse().map_err(|_| EINVAL)
}

fn adjustment(key: Key) -> Result<Vec<u8>> {
    text(format!("{}\n", of(key)?.family.oom_adjustment.load(Ordering::Relaxed)))
}

/// Lowering it takes CAP_SYS_RESOURCE (proc_pid_oom_score_adj(5)).
fn set(key: Key, new: i32) -> Result<()> {
    let process = of(key)?;
    let now = &process.family.oom_adjustment;
    if new < now.load(Ordering::Relaxed) && !task::current().credentials().lock().can(CAP_SYS_RESOURCE) {
        return Err(EACCES);
    }
    now.store(new, Ordering::Relaxed);
    Ok(())
}

fn set_adjustment(key: Key, bytes: &[u8]) -> Result<()> {
    let new = number(bytes)?;
    if !(out_of_memory::NEVER..=out_of_memory::ALWAYS_FIRST).contains(&new) {
        return Err(EINVAL);
    }
    set(key, new)
}

fn old_adjustment(key: Key) -> Result<Vec<u8>> {
    let shown = match of(key)?.family.oom_adjustment.load(Ordering::Relaxed) {
        out_of_memory::ALWAYS_FIRST => OLD_MAX,
        now => now * -OLD_NEVER / out_of_memory::ALWAYS_FIRST,
    };
    text(format!("{shown}\n"))
}

fn set_old_adjustment(key: Key, bytes: &[u8]) -> Result<()> {
    match number(bytes)? {
        OLD_MAX => set(key, out_of_memory::ALWAYS_FIRST),
        new @ OLD_NEVER..OLD_MAX => set(key, new * out_of_memory::ALWAYS_FIRST / -OLD_NEVER),
        _ => Err(EINVAL),
    }
}
