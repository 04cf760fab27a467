// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Load averages: how many threads ran or waited for the processor, over one, five and fifteen minutes.
//!
//! Linux' arithmetic (`include/linux/sched/loadavg.h`): every five seconds the averages decay towards the number of
//! the moment, in fixed point.

use crate::calls::time::duration::SECOND;
use abi::Events;
use alloc::sync::Arc;
use api_lock::SpinLock;
use api_sched::Waiter;

const PERIOD_NS: u64 = 5 * SECOND;
/// Binary places of the averages.
pub const PLACES: u32 = 11;
const ONE: u64 = 1 << PLACES;
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
}

struct Tick;

impl Waiter for Tick {
    fn wake(&self, _: Events) {
        let active = runnable();
        let next_ns = {
            let mut averages = AVERAGES.lock();
            averages.decay(active);
            averages.next_ns = (averages.next_ns + PERIOD_NS).max(api_plat::now_ns());
            averages.next_ns
        };
        api_sched::add_timer(next_ns, Arc::new(Tick));
    }
}

/// From now on load is measured.
pub fn start() {
    let next_ns = api_plat::now_ns() + PERIOD_NS;
    AVERAGES.lock().next_ns = next_ns;
    api_sched::add_timer(next_ns, Arc::new(Tick));
}

/// Threads of the program that run or wait for the processor.
pub fn runnable() -> u64 {
    sched::threads().iter().filter(|thread| thread.runs_program() && thread.is_runnable()).count() as u64
}

/// The three averages, with [`PLACES`] binary places.
pub fn averages() -> [u64; 3] {
    AVERAGES.lock().values
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
}
