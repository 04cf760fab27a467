// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When a timer expires next, and how often it has: arithmetic only.

/// Expiry and period of a timer, in nanoseconds on its own clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interval {
    /// `None`: disarmed.
    pub next: Option<u64>,
    /// 0: expires once.
    pub period: u64,
}

impl Interval {
    /// How often it has expired up to `now`; the next expiry lies behind `now`, or nowhere.
    pub fn expire(&mut self, now: u64) -> u64 {
        match self.next {
            Some(next) if next <= now => {
                if self.period == 0 {
                    self.next = None;
                    return 1;
                }
                let count = (now - next) / self.period + 1;
                self.next = next.checked_add(count.saturating_mul(self.period));
                count
            }
            _ => 0,
        }
    }

    /// Time left; at least 1 while armed, 0 when not.
    pub fn remaining(&self, now: u64) -> u64 {
        self.next.map_or(0, |next| next.saturating_sub(now).max(1))
    }

    /// Time left until the first expiry behind `now`, for a timer whose expiries nobody has fetched yet.
    pub fn remaining_of_next(&self, now: u64) -> u64 {
        let mut ahead = *self;
        ahead.expire(now);
        ahead.remaining(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_periodic_timer_counts_what_was_missed_and_stays_in_step() {
        let mut timer = Interval { next: Some(100), period: 10 };
        assert_eq!(timer.expire(99), 0);
        assert_eq!(timer.remaining(99), 1);
        assert_eq!(timer.expire(100), 1);
        assert_eq!(timer.next, Some(110));
        assert_eq!(timer.expire(135), 3);
        assert_eq!(timer.next, Some(140));
        assert_eq!(timer.remaining(135), 5);
        assert_eq!(timer.remaining_of_next(141), 9);
    }

    #[test]
    fn a_timer_without_a_period_expires_once() {
        let mut timer = Interval { next: Some(5), period: 0 };
        assert_eq!(timer.expire(1000), 1);
        assert_eq!(timer, Interval { next: None, period: 0 });
        assert_eq!((timer.expire(2000), timer.remaining(2000)), (0, 0));
    }

    #[test]
    fn an_armed_timer_never_shows_zero() {
        assert_eq!(Interval { next: Some(5), period: 0 }.remaining(7), 1);
    }

    #[test]
    fn the_end_of_time_disarms() {
        let mut timer = Interval { next: Some(1), period: u64::MAX };
        assert_eq!(timer.expire(1), 1);
        assert_eq!(timer.next, None);
    }
}
