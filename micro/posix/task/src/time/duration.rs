// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Times as programs pass them, in nanoseconds. Times are saturated at [`FAR`], as Linux does (KTIME_MAX).

use abi::{Result, errno::EINVAL};
use api_user::UserPtr;

pub const SECOND: u64 = 1_000_000_000;
/// The latest time there is: 292 years.
pub const FAR: u64 = i64::MAX as u64;

/// `struct timespec`: seconds and nanoseconds.
pub fn from_timespec([seconds, nanoseconds]: [i64; 2]) -> Result<u64> {
    from_parts(seconds, nanoseconds, 1)
}

/// `struct timeval`: seconds and microseconds.
pub fn from_timeval([seconds, microseconds]: [i64; 2]) -> Result<u64> {
    from_parts(seconds, microseconds, 1000)
}

fn from_parts(seconds: i64, fraction: i64, unit: u64) -> Result<u64> {
    let (Ok(seconds), Ok(fraction)) = (u64::try_from(seconds), u64::try_from(fraction)) else {
        return Err(EINVAL);
    };
    if fraction >= SECOND / unit {
        return Err(EINVAL);
    }
    Ok(seconds.saturating_mul(SECOND).saturating_add(fraction * unit).min(FAR))
}

pub fn to_timespec(ns: u64) -> [i64; 2] {
    [(ns / SECOND) as i64, (ns % SECOND) as i64]
}

pub fn to_timeval(ns: u64) -> [i64; 2] {
    [(ns / SECOND) as i64, (ns % SECOND / 1000) as i64]
}

/// Rounded up, for what is left of a timer: a running one is never shown as zero.
pub fn to_timeval_up(ns: u64) -> [i64; 2] {
    to_timeval(ns.saturating_add(999))
}

pub fn read_timespec(pointer: UserPtr<[i64; 2]>) -> Result<u64> {
    from_timespec(pointer.read()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_time_is_refused_and_what_is_far_is_saturated() {
        assert_eq!(from_timespec([1, 5]), Ok(SECOND + 5));
        assert_eq!(from_timeval([1, 999_999]), Ok(2 * SECOND - 1000));
        assert_eq!(from_timespec([0, SECOND as i64]), Err(EINVAL));
        assert_eq!(from_timeval([0, 1_000_000]), Err(EINVAL));
        assert_eq!(from_timespec([-1, 0]), Err(EINVAL));
        assert_eq!(from_timespec([0, -1]), Err(EINVAL));
        assert_eq!(from_timespec([i64::MAX, 0]), Ok(FAR));
    }

    #[test]
    fn what_is_left_of_a_timer_is_rounded_up() {
        assert_eq!(to_timeval_up(1), [0, 1]);
        assert_eq!(to_timeval_up(0), [0, 0]);
        assert_eq!(to_timespec(SECOND + 1), [1, 1]);
    }
}
