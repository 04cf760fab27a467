// SPDX-License-Identifier: Apache-2.0 OR MIT
//! /proc/PID/timens_offsets: what the time namespace of the process' children adds to the machine's clocks (time_namespaces(7)).

use super::process::of;
use super::text;
use abi::{PAGE_SIZE, Result, errno::*};
use alloc::format;
use alloc::sync::Arc;
use procfs::{Entry, Key};
use task::identity::capabilities::CAP_SYS_TIME;
use task::time::duration::SECOND;
use task::time::namespace::{Offsets, TimeNamespace};

pub const OFFSETS: Entry = Entry::File { text: show, store, permissions: 0o644 };

/// Lines that are read; what is behind them is left.
const MAX_LINES: usize = 2;
/// Linux' KTIME_SEC_MAX, and as far as a clock may be ahead.
const MAX_SECONDS: i64 = i64::MAX / SECOND as i64;

fn namespace(key: Key) -> Result<Arc<TimeNamespace>> {
    Ok(of(key)?.nsproxy.lock().time_for_children.clone())
}

fn show(key: Key) -> Result<alloc::vec::Vec<u8>> {
    let Offsets { monotonic, boottime } = namespace(key)?.offsets();
    let second = SECOND as i64;
    let line = |name: &str, ns: i64| {
        format!("{name:<10} {:10} {:9}\n", ns.div_euclid(second), ns.rem_euclid(second))
    };
    text(line("monotonic", monotonic) + &line("boottime", boottime))
}

fn store(key: Key, bytes: &[u8]) -> Result<()> {
    if bytes.len() >= PAGE_SIZE {
        return Err(EINVAL);
    }
    let written = core::str::from_utf8(bytes).map_err(|_| EINVAL)?;
    let namespace = namespace(key)?;
    let mut offsets = namespace.offsets();
    let mut range = Ok(());
    for line in written.strip_suffix('\n').unwrap_or(written).split('\n').take(MAX_LINES) {
        let mut words = line.split_ascii_whitespace();
        let mut word = || words.next().ok_or(EINVAL);
        let (clock, seconds, ns) = (word()?, word()?, word()?);
        let seconds: i64 = seconds.parse().map_err(|_| EINVAL)?;
        let ns: i64 = ns.parse().ok().filter(|ns| (0..SECOND as i64).contains(ns)).ok_or(EINVAL)?;
        let offset = match clock {
            "monotonic" | "1" => &mut offsets.monotonic,
            "boottime" | "7" => &mut offsets.boottime,
            _ => return Err(EINVAL),
        };
        match checked(seconds, ns) {
            Ok(value) => *offset = value,
            Err(error) => range = Err(error),
        }
    }
    if !task::current().credentials().lock().can_in(&namespace.owner, CAP_SYS_TIME) {
        return Err(EPERM);
    }
    range?;
    namespace.set_offsets(offsets)
}

/// `ERANGE` for a clock that would begin before its zero, or that could get to the end of nanoseconds.
fn checked(seconds: i64, ns: i64) -> Result<i64> {
    let offset = i128::from(seconds) * i128::from(SECOND) + i128::from(ns);
    let shown = offset + i128::from(api_plat::now_ns());
    let is_sensible = seconds.unsigned_abs() <= MAX_SECONDS as u64
        && shown >= 0
        && shown / i128::from(SECOND) <= i128::from(MAX_SECONDS / 2);
    if is_sensible { i64::try_from(offset).map_err(|_| ERANGE) } else { Err(ERANGE) }
}
