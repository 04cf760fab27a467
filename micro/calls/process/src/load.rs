// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Load averages: how many threads ran or waited for the processor, over one, five and fifteen minutes.
//!
//! Linux' arithmetic (`include/linux/sched/loadavg.h`): every five seconds the averages decay towards the number of
//! the moment, in fixed point. No timer does that, which would wake an idle machine: the scheduler calls when the processor
//! changes hands, and what fell due since the last time is made up for.

use api_lock::SpinLock;
use task::time::duration::SECOND;

const PERIOD_NS: u64 = 5 * SECOND;
/// Binary places of the averages.
pub const PLACES: u32 = 11;
const ONE: u64 = 1 << PLACES;
/// Periods that are made up for at once: after so many of them without load, six hours, all averages are zero.
const MAX_PERIODS: u64 = 4096;
/// ONE / exp(5 s / 1 min), / exp(5 s / 5 min), / exp(5 s / 15 min).
const DECAY: [u64; 3] = [1884, 2014, 2037];

struct Averages {
    values: [u64; 3],
    /// When they are due next.
    next_ns: u64,
}

static AVERAGES: SpinLock<Averages> = SpinLock::new(Averages { values: [0; 3], next_ns: 0 });

impl Averages {
    fn decay(&mut self, active: u64) {
        let active = active * ONE;
        for (value, decay) in self.values.iter_mut().zip(DECAY) {
            let rounding = if active >= *value { ONE - 1 } else { 0 };
            *value = (*value * decay + active * (ONE - decay) + rounding) / ONE;
        }
    }

    /// Makes up for all periods that have ended by now, with one number of threads.
    fn catch_up(&mut self, now_ns: u64, active: u64) {
        let Some(late) = now_ns.checked_sub(self.next_ns) else { return };
        let periods = late / PERIOD_NS + 1;
        (0..periods.min(MAX_PERIODS)).for_each(|_| self.decay(active));
        self.next_ns += periods * PERIOD_NS;
    }
}

/// The processor changes hands when a period has ended; answers when the next one ends. `was_idle`: it was idle until now.
#[unsafe(no_mangle)]
fn unilith_load_period_ended(now_ns: u64, was_idle: bool) -> u64 {
    let active = match runnable() {
        // The thread that woke the processor is runnable now, and was not before.
        woken if was_idle => woken.saturating_sub(1),
        others if sched::current().is_runnable() => others,
        // It ran until now.
        others => others + u64::from(sched::current().runs_program()),
    };
    let mut averages = AVERAGES.lock();
    averages.catch_up(now_ns, active);
    averages.next_ns
}

/// From now on load is measured.
pub fn start() {
    let next_ns = api_plat::now_ns() + PERIOD_NS;
    AVERAGES.lock().next_ns = next_ns;
    sched::measure_load_at(next_ns);
}

/// Threads of the program that run or wait for the processor.
pub fn runnable() -> u64 {
    sched::threads().filter(|thread| thread.runs_program() && thread.is_runnable()).count() as u64
}

/// The three averages, with [`PLACES`] binary places.
pub fn averages() -> [u64; 3] {
    // A thread that computes need not have changed hands for long.
    let active = runnable();
    let mut averages = AVERAGES.lock();
    averages.catch_up(api_plat::now_ns(), active);
    averages.values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_follow_the_load_each_at_its_pace() {
        let mut averages = Averages { values: [0; 3], next_ns: 0 };
        // One minute of one busy thread: 1 - 1/e, 1 - exp(-1/5), 1 - exp(-1/15).
        for _ in 0..12 {
            averages.decay(1);
        }
        let hundredths = |value: u64| value * 100 / ONE;
        assert_eq!(averages.values.map(hundredths), [63, 18, 6]);
        for _ in 0..1000 {
            averages.decay(0);
        }
        assert_eq!(averages.values[0], 0);
    }

    #[test]
    fn periods_that_nobody_looked_at_are_made_up_for() {
        let mut timely = Averages { values: [ONE; 3], next_ns: PERIOD_NS };
        let mut late = Averages { values: [ONE; 3], next_ns: PERIOD_NS };
        late.catch_up(PERIOD_NS - 1, 5);
        assert_eq!((late.values, late.next_ns), ([ONE; 3], PERIOD_NS), "nothing ended yet");
        for period in 1..=30 {
            timely.catch_up(period * PERIOD_NS, 2);
        }
        late.catch_up(30 * PERIOD_NS + 7, 2);
        assert_eq!((late.values, late.next_ns), (timely.values, timely.next_ns));
        late.catch_up(u64::MAX / 2, 0);
        assert_eq!(late.values, [0; 3], "after a sleep of centuries");
        assert!(late.next_ns > u64::MAX / 2);
    }
}
