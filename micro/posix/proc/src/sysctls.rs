// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Settings below /proc/sys/kernel that are no plain whole numbers (proc_sys_kernel(5)).

use super::text;
use abi::{Result, errno::*};
use alloc::format;
#[cfg(feature = "sysv-ipc")]
use alloc::vec::Vec;
use api_sched::policy::{ROUND_ROBIN_MS, SHARE_PERIOD_US, SHARE_RUNTIME_US};
#[cfg(feature = "sysv-ipc")]
use calls_ipc::sysv::NextId;
use calls_process::signals::core_name;
#[cfg(feature = "sysv-ipc")]
use procfs::Key;
use procfs::{Entry, Row};
#[cfg(feature = "sysv-ipc")]
use task::identity::capabilities::{CAP_CHECKPOINT_RESTORE, CAP_SYS_ADMIN};

/// A decimal number with or without a sign, which is all that was written.
fn number(written: &[u8]) -> Result<i32> {
    let text = core::str::from_utf8(written).map_err(|_| EINVAL)?;
    let text = text.trim_end_matches('\0').trim();
    text.parse().map_err(|_| EINVAL)
}

/// Whoever may restore processes writes it, and nobody else; the permissions are those of the caller (Linux' ipc_permissions).
#[cfg(feature = "sysv-ipc")]
pub const fn next_id<T: NextId>(name: &'static str) -> Row {
    fn show<T: NextId>(_: Key) -> Result<Vec<u8>> {
        text(format!("{}\n", T::next_id().unwrap_or(-1)))
    }
    fn store<T: NextId>(_: Key, written: &[u8]) -> Result<()> {
        if !may_restore() {
            return Err(EACCES);
        }
        let id = number(written)?;
        if id < 0 {
            return Err(EINVAL);
        }
        T::set_next_id(id);
        Ok(())
    }
    fn permissions(_: Key) -> Result<u32> {
        Ok(if may_restore() { 0o666 } else { 0o444 })
    }
    (name, Entry::Granted { text: show::<T>, store: store::<T>, permissions })
}

#[cfg(feature = "sysv-ipc")]
fn may_restore() -> bool {
    let (who, ipc) = (task::current().credentials().lock().clone(), task::ipc::here());
    who.can_in(&ipc.owner, CAP_SYS_ADMIN) || who.can_in(&ipc.owner, CAP_CHECKPOINT_RESTORE)
}

pub const CORE_PATTERN: Row = (
    "sys/kernel/core_pattern",
    Entry::File {
        text: |_| {
            let mut pattern = core_name::pattern();
            pattern.push(b'\n');
            Ok(pattern)
        },
        store: |_, written| core_name::set_pattern(written),
        permissions: 0o644,
    },
);

/// 0 and less stand for what it was at first.
pub const ROUND_ROBIN: Row = (
    "sys/kernel/sched_rr_timeslice_ms",
    Entry::File {
        text: |_| text(format!("{}\n", ROUND_ROBIN_MS.get())),
        store: |_, written| {
            let ms = number(written)?;
            ROUND_ROBIN_MS.set(if ms <= 0 { 100 } else { ms as u64 });
            Ok(())
        },
        permissions: 0o644,
    },
);

pub const SHARE_PERIOD: Row = (
    "sys/kernel/sched_rt_period_us",
    Entry::File {
        text: |_| text(format!("{}\n", SHARE_PERIOD_US.get())),
        store: |_, written| {
            let us = number(written)?;
            if us < 1 || SHARE_RUNTIME_US.get() != u64::MAX && SHARE_RUNTIME_US.get() > us as u64 {
                return Err(EINVAL);
            }
            SHARE_PERIOD_US.set(us as u64);
            Ok(())
        },
        permissions: 0o644,
    },
);

/// -1: threads with a priority leave nothing to the others.
pub const SHARE_RUNTIME: Row = (
    "sys/kernel/sched_rt_runtime_us",
    Entry::File {
        text: |_| text(format!("{}\n", SHARE_RUNTIME_US.get() as i64)),
        store: |_, written| {
            let us = number(written)?;
            if us < -1 || us as i64 > SHARE_PERIOD_US.get() as i64 {
                return Err(EINVAL);
            }
            SHARE_RUNTIME_US.set(us as i64 as u64);
            Ok(())
        },
        permissions: 0o644,
    },
);
