// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Options of SOL_SOCKET that mean the same for every family, and their encodings.

use abi::linux::net as linux;
use abi::{Result, errno::*};
use alloc::vec::Vec;

/// Reads an `int` option.
pub fn int(value: &[u8]) -> Result<i32> {
    let bytes = value.get(..4).ok_or(EINVAL)?;
    Ok(i32::from_ne_bytes(bytes.try_into().map_err(|_| EINVAL)?))
}

/// An `int` option's bytes.
pub fn from_int(value: impl Into<i64>) -> Vec<u8> {
    Vec::from((value.into() as i32).to_ne_bytes())
}

/// Reads a `struct timeval`: nanoseconds, `None` for zero ("for ever").
fn timeval(value: &[u8]) -> Result<Option<u64>> {
    let word = |at: usize| -> Result<i64> {
        let bytes = value.get(at..at + 8).ok_or(EINVAL)?;
        Ok(i64::from_ne_bytes(bytes.try_into().map_err(|_| EINVAL)?))
    };
    let (seconds, micros) = (word(0)?, word(8)?);
    if !(0..1_000_000).contains(&micros) {
        return Err(EDOM);
    }
    // Linux: a negative time-out is none at all, which means "at once".
    let ns = (seconds.max(0) as u64).saturating_mul(1_000_000_000).saturating_add(micros as u64 * 1000);
    Ok(match (seconds, ns) {
        (..0, _) => Some(1),
        (_, 0) => None,
        (_, ns) => Some(ns),
    })
}

fn from_timeval(ns: Option<u64>) -> Vec<u8> {
    let ns = ns.unwrap_or(0);
    let mut out = Vec::from((ns / 1_000_000_000).to_ne_bytes());
    out.extend_from_slice(&(ns % 1_000_000_000 / 1000).to_ne_bytes());
    out
}

/// Options that are kept as they were set: either they matter to the system-call layer only (time-outs), or to
/// nothing on a machine with one program.
#[derive(Clone, Debug, Default)]
pub struct Common {
    pub receive_timeout: Option<u64>,
    pub send_timeout: Option<u64>,
    pub receive_low_water: u32,
    /// SO_TIMESTAMP.
    pub timestamp: bool,
    /// SO_PASSCRED.
    pub pass_credentials: bool,
    kept: Vec<(u32, i32)>,
}

/// Integers without effect here, accepted as Linux accepts them.
const KEPT: [u32; 10] = [
    linux::SO_DEBUG,
    linux::SO_DONTROUTE,
    linux::SO_PRIORITY,
    linux::SO_OOBINLINE,
    linux::SO_NO_CHECK,
    linux::SO_MARK,
    linux::SO_BUSY_POLL,
    linux::SO_INCOMING_CPU,
    linux::SO_RXQ_OVFL,
    linux::SO_TXREHASH,
];

impl Common {
    /// `None` when the option is not one of these.
    pub fn set(&mut self, name: u32, value: &[u8]) -> Option<Result<()>> {
        let result = match name {
            linux::SO_RCVTIMEO | linux::SO_RCVTIMEO_NEW => timeval(value).map(|t| self.receive_timeout = t),
            linux::SO_SNDTIMEO | linux::SO_SNDTIMEO_NEW => timeval(value).map(|t| self.send_timeout = t),
            linux::SO_RCVLOWAT => int(value).map(|n| {
                // Negative: as large as can be (Linux).
                self.receive_low_water = if n < 0 { i32::MAX as u32 } else { n.max(1) as u32 };
            }),
            linux::SO_TIMESTAMP => int(value).map(|n| self.timestamp = n != 0),
            linux::SO_PASSCRED => int(value).map(|n| self.pass_credentials = n != 0),
            linux::SO_TYPE
            | linux::SO_ERROR
            | linux::SO_DOMAIN
            | linux::SO_PROTOCOL
            | linux::SO_ACCEPTCONN => Err(ENOPROTOOPT),
            _ if KEPT.contains(&name) => int(value).map(|n| {
                self.kept.retain(|(k, _)| *k != name);
                self.kept.push((name, n));
            }),
            _ => return None,
        };
        Some(result)
    }

    /// `None` when the option is not one of these.
    pub fn get(&self, name: u32) -> Option<Vec<u8>> {
        Some(match name {
            linux::SO_RCVTIMEO | linux::SO_RCVTIMEO_NEW => from_timeval(self.receive_timeout),
            linux::SO_SNDTIMEO | linux::SO_SNDTIMEO_NEW => from_timeval(self.send_timeout),
            linux::SO_RCVLOWAT => from_int(self.receive_low_water.max(1)),
            linux::SO_SNDLOWAT => from_int(1),
            linux::SO_TIMESTAMP => from_int(self.timestamp),
            linux::SO_PASSCRED => from_int(self.pass_credentials),
            _ if KEPT.contains(&name) => {
                from_int(self.kept.iter().find(|(k, _)| *k == name).map_or(0, |(_, n)| *n))
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_and_kept_options_read_back_as_they_were_set() {
        let mut common = Common::default();
        let mut timeval = Vec::from(2i64.to_ne_bytes());
        timeval.extend_from_slice(&500_000i64.to_ne_bytes());
        assert_eq!(common.set(linux::SO_RCVTIMEO, &timeval), Some(Ok(())));
        assert_eq!(common.receive_timeout, Some(2_500_000_000));
        assert_eq!(common.get(linux::SO_RCVTIMEO), Some(timeval));
        assert_eq!(common.set(linux::SO_PRIORITY, &6i32.to_ne_bytes()), Some(Ok(())));
        assert_eq!(common.get(linux::SO_PRIORITY), Some(from_int(6)));
        assert_eq!(common.set(linux::SO_PRIORITY, &[1]), Some(Err(EINVAL)));
        assert_eq!(common.set(9999, &[]), None);
    }
}
