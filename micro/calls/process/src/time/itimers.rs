// SPDX-License-Identifier: Apache-2.0 OR MIT
//! getitimer(2), setitimer(2), alarm(2).

use abi::{Result, errno::*};
use api_user::UserPtr;
use task::call::Call;
use task::time::duration::{SECOND, from_timeval, to_timeval_up};
use task::time::itimers::{KINDS, timer};

fn which(call: &Call<'_>) -> Result<usize> {
    usize::try_from(call.int(0)).ok().filter(|which| *which < KINDS.len()).ok_or(EINVAL)
}

/// `struct itimerval`: period, then time left.
fn write(pointer: UserPtr<[i64; 4]>, (left, period): (u64, u64)) -> Result<()> {
    let ([a, b], [c, d]) = (to_timeval_up(period), to_timeval_up(left));
    pointer.write([a, b, c, d])
}

/// getitimer(2).
pub fn getitimer(call: &mut Call<'_>) -> Result<usize> {
    let timer = timer(which(call)?);
    write(call.ptr(1), timer.alarm.get())?;
    Ok(0)
}

/// setitimer(2). Without a new value the timer is disarmed, as Linux has it.
pub fn setitimer(call: &mut Call<'_>) -> Result<usize> {
    let (period, time) = match call.ptr::<[i64; 4]>(1).non_null() {
        Some(pointer) => {
            let [a, b, c, d] = pointer.read()?;
            (from_timeval([a, b])?, from_timeval([c, d])?)
        }
        None => (0, 0),
    };
    let which = which(call)?;
    // Of those of processor time the period stays where the timer does not run.
    let period = if which == 0 && time == 0 { 0 } else { period };
    let before = timer(which).alarm.set(time, period, false)?;
    if let Some(old) = call.ptr(2).non_null() {
        write(old, before)?;
    }
    Ok(0)
}

/// alarm(2): answers the seconds left, rounded to the nearest but never to 0 while it was armed.
pub fn alarm(call: &mut Call<'_>) -> Result<usize> {
    let (left, _) = timer(0).alarm.set(u64::from(call.uint(0)) * SECOND, 0, false)?;
    Ok(seconds_left(left))
}

fn seconds_left(left: u64) -> usize {
    let rounded = (left + SECOND / 2) / SECOND;
    if left != 0 { rounded.max(1) as usize } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alarm_answers_whole_seconds_and_never_zero_for_an_armed_timer() {
        assert_eq!(seconds_left(0), 0);
        assert_eq!(seconds_left(1), 1);
        assert_eq!(seconds_left(SECOND + 1), 1);
        assert_eq!(seconds_left(SECOND * 3 / 2), 2);
    }
}
