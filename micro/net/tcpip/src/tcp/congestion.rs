// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Congestion control (RFC 5681, CUBIC of RFC 9438), round-trip times (RFC 6298) and the scoreboard of selective
//! acknowledgements (RFC 6675).

use crate::seq;
use alloc::vec::Vec;
use api_alloc::Reserve;

const SECOND: u64 = 1_000_000_000;
/// Linux' TCP_RTO_MIN and TCP_RTO_MAX.
pub const RTO_MIN: u64 = SECOND / 5;
pub const RTO_MAX: u64 = 120 * SECOND;
/// Before anything was measured (RFC 6298 2.1).
pub const RTO_INITIAL: u64 = SECOND;
/// Initial window in segments (RFC 6928).
const INITIAL_WINDOW: u32 = 10;
/// Duplicate acknowledgements that mean loss (RFC 5681 3.2).
pub const DUPLICATES: u32 = 3;
/// Ranges kept in the scoreboard.
const MAX_RANGES: usize = 128;

/// Smoothed round-trip time and the time-out that follows from it, nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct RoundTrip {
    pub smoothed: u64,
    pub variation: u64,
    pub timeout: u64,
}

impl Default for RoundTrip {
    fn default() -> Self {
        RoundTrip { smoothed: 0, variation: 0, timeout: RTO_INITIAL }
    }
}

impl RoundTrip {
    /// RFC 6298 2.2 and 2.3.
    pub fn measured(&mut self, sample: u64) {
        if self.smoothed == 0 {
            self.smoothed = sample.max(1);
            self.variation = sample / 2;
        } else {
            self.variation = (3 * self.variation + self.smoothed.abs_diff(sample)) / 4;
            self.smoothed = ((7 * self.smoothed + sample) / 8).max(1);
        }
        // As Linux, the variation counts as at least RTO_MIN.
        self.timeout = (self.smoothed + (4 * self.variation).max(RTO_MIN)).min(RTO_MAX);
    }
}

/// How a window grows and shrinks (TCP_CONGESTION).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    #[default]
    Cubic,
    Reno,
}

impl Algorithm {
    /// `None` for a name that none of them has.
    pub fn named(name: &[u8]) -> Option<Algorithm> {
        [Algorithm::Cubic, Algorithm::Reno].into_iter().find(|algorithm| algorithm.name().as_bytes() == name)
    }

    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Cubic => "cubic",
            Algorithm::Reno => "reno",
        }
    }
}

/// Congestion window, bytes.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    algorithm: Algorithm,
    pub size: u32,
    pub threshold: u32,
    /// CUBIC's W_max in bytes, and when the present epoch began.
    largest: u32,
    epoch: Option<u64>,
    /// Where the cubic reaches W_max, milliseconds into the epoch.
    k_ms: u64,
    /// Bytes acknowledged towards the next segment of growth.
    credit: u32,
    /// What Reno would have (RFC 9438 4.3).
    reno: u32,
    /// The window before the last loss: until Reno would be there again it grows by less than a segment a round trip.
    prior: u32,
}

impl Window {
    pub fn new(mss: u32, algorithm: Algorithm) -> Window {
        Window {
            algorithm,
            size: INITIAL_WINDOW * mss,
            threshold: u32::MAX,
            largest: 0,
            epoch: None,
            k_ms: 0,
            credit: 0,
            reno: 0,
            prior: 0,
        }
    }

    /// Goes on as another algorithm has it, from the window that there is.
    pub fn change_to(&mut self, algorithm: Algorithm) {
        if self.algorithm != algorithm {
            self.algorithm = algorithm;
            (self.largest, self.epoch, self.reno, self.prior, self.credit) = (0, None, 0, 0, 0);
        }
    }

    /// Congestion avoidance of RFC 5681 3.1: a segment for each window that was acknowledged.
    fn grow_as_reno(&mut self, bytes: u32, mss: u32) {
        self.credit = self.credit.saturating_add(bytes);
        if self.credit >= self.size {
            self.credit -= self.size;
            self.size = self.size.saturating_add(mss);
        }
    }

    /// New data was acknowledged outside recovery.
    pub fn acknowledged(&mut self, bytes: u32, mss: u32, now: u64) {
        if self.size < self.threshold {
            // RFC 3465 with a limit of two segments would punish our stretched acknowledgements: count bytes.
            self.size = self.size.saturating_add(bytes).min(self.threshold.max(self.size));
            return;
        }
        if self.algorithm == Algorithm::Reno {
            return self.grow_as_reno(bytes, mss);
        }
        let epoch = *self.epoch.get_or_insert(now);
        if epoch == now && self.reno == 0 {
            self.reno = self.size;
            let short = u64::from(self.largest.saturating_sub(self.size) / mss.max(1));
            // K = cbrt((W_max - cwnd) / C), C = 0.4: in milliseconds cbrt(short * 2.5) * 1000.
            self.k_ms = cube_root(short * 2_500_000_000);
        }
        let t = (now - epoch) / 1_000_000;
        let distance = t.abs_diff(self.k_ms).min(100_000);
        // C * d^3 segments, d in seconds.
        let offset = (distance * distance * distance / 2_500_000_000).min(1 << 20) as u32;
        let offset = offset.saturating_mul(mss);
        let base = self.largest.max(self.reno.min(self.largest.max(self.size)));
        let target = if t < self.k_ms { base.saturating_sub(offset) } else { base.saturating_add(offset) };
        // RFC 9438 4.3: alpha = 3 (1 - beta) / (1 + beta) = 9/17 of a segment a round trip, one segment from where the
        // loss was.
        let (part, whole) = if self.reno < self.prior { (9, 17) } else { (1, 1) };
        let step = u64::from(mss) * u64::from(bytes) * part / (u64::from(self.reno.max(1)) * whole);
        self.reno = self.reno.saturating_add((step as u32).max(1));
        let target = target.max(self.reno).min(self.size.saturating_add(self.size / 2));
        if target > self.size {
            self.credit = self.credit.saturating_add(bytes);
            let step = u64::from(target - self.size) * u64::from(self.credit) / u64::from(self.size.max(1));
            if step > 0 {
                self.size = self.size.saturating_add(step as u32);
                self.credit = 0;
            }
        }
    }

    /// Loss was found: fast recovery begins with the new threshold.
    pub fn lost(&mut self, mss: u32) {
        self.prior = self.size;
        // Fast convergence (RFC 9438 4.7).
        self.largest =
            if self.size < self.largest { (u64::from(self.size) * 17 / 20) as u32 } else { self.size };
        let (kept, of) = match self.algorithm {
            Algorithm::Cubic => (7, 10),
            Algorithm::Reno => (1, 2),
        };
        self.threshold = ((u64::from(self.size) * kept / of) as u32).max(2 * mss);
        self.size = self.threshold;
        self.epoch = None;
        self.reno = 0;
        self.credit = 0;
    }

    /// The retransmission timer ran out.
    pub fn timed_out(&mut self, mss: u32, first: bool) {
        if first {
            self.lost(mss);
        }
        self.size = mss;
    }

    /// Nothing was sent for longer than a time-out: what is known of the path is old (RFC 5681 4.1).
    pub fn idle(&mut self, mss: u32) {
        self.size = self.size.min(INITIAL_WINDOW * mss);
        self.epoch = None;
        self.reno = 0;
    }
}

/// Integer cube root, by bits.
fn cube_root(value: u64) -> u64 {
    let mut root = 0u64;
    for bit in (0..21).rev() {
        let candidate = root | 1 << bit;
        if candidate * candidate * candidate <= value {
            root = candidate;
        }
    }
    root
}

/// What the peer has selectively acknowledged, sorted and disjoint.
#[derive(Default)]
pub struct Scoreboard {
    ranges: Vec<(u32, u32)>,
}

impl Scoreboard {
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub fn clear(&mut self) {
        self.ranges.clear();
    }

    /// Takes a block in; true when it told something new. Blocks outside `una..max` are ignored.
    pub fn add(&mut self, left: u32, right: u32, una: u32, max: u32) -> bool {
        if !seq::lt(left, right) || seq::lt(left, una) || seq::lt(max, right) {
            return false;
        }
        let first = self.ranges.partition_point(|(_, r)| seq::lt(*r, left));
        let last = self.ranges.partition_point(|(l, _)| seq::le(*l, right));
        if first < last {
            let (l, r) = (self.ranges[first].0, self.ranges[last - 1].1);
            if last - first == 1 && seq::le(l, left) && seq::le(right, r) {
                return false;
            }
            self.ranges.drain(first + 1..last);
            self.ranges[first] = (seq::min(l, left), seq::max(r, right));
            return true;
        }
        if self.ranges.len() >= MAX_RANGES || self.ranges.reserve_fallibly(1).is_err() {
            return false;
        }
        self.ranges.insert(first, (left, right));
        true
    }

    /// Forgets what lies before `una`.
    pub fn advance(&mut self, una: u32) {
        let gone = self.ranges.partition_point(|(_, r)| seq::le(*r, una));
        self.ranges.drain(..gone);
        if let Some(first) = self.ranges.first_mut() {
            first.0 = seq::max(first.0, una);
        }
    }

    pub fn bytes(&self) -> u32 {
        self.ranges.iter().map(|(l, r)| r.wrapping_sub(*l)).sum()
    }

    /// Acknowledged bytes before `at`.
    pub fn bytes_before(&self, at: u32) -> u32 {
        self.ranges.iter().map(|(l, r)| seq::ahead(*l, seq::min(*r, at))).sum()
    }

    /// The first hole at or behind `from` that ends before `max`: its start, its end, and whether enough above it
    /// was acknowledged to count it lost (RFC 6675 IsLost).
    pub fn hole(&self, from: u32, max: u32, mss: u32) -> Option<(u32, u32, bool)> {
        let mut start = from;
        for (index, (left, right)) in self.ranges.iter().enumerate() {
            if seq::lt(start, *left) {
                let above: u32 = self.ranges[index..].iter().map(|(l, r)| r.wrapping_sub(*l)).sum();
                let ranges = (self.ranges.len() - index) as u32;
                let lost = ranges >= DUPLICATES || above > (DUPLICATES - 1) * mss;
                return Some((start, *left, lost));
            }
            start = seq::max(start, *right);
        }
        seq::lt(start, max).then_some((start, max, false))
    }

    /// True when the sequence number was acknowledged; then also where that range ends.
    pub fn covers(&self, at: u32) -> Option<u32> {
        self.ranges.iter().find(|(l, r)| seq::le(*l, at) && seq::lt(at, *r)).map(|r| r.1)
    }

    /// Bytes believed to be in the network (RFC 6675 SetPipe): not acknowledged, and not lost unless sent again
    /// (below `resent`).
    pub fn pipe(&self, una: u32, max: u32, resent: u32, mss: u32) -> u32 {
        let mut pipe = max.wrapping_sub(una).saturating_sub(self.bytes());
        let mut at = una;
        while let Some((start, end, lost)) = self.hole(at, max, mss) {
            if lost {
                pipe = pipe.saturating_sub(seq::ahead(seq::max(start, resent), end));
            }
            at = end;
            if end == max {
                break;
            }
        }
        pipe
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selective_acknowledgements_merge_and_show_the_holes() {
        let mut board = Scoreboard::default();
        assert!(board.add(3000, 4000, 1000, 9000));
        assert!(board.add(5000, 6000, 1000, 9000));
        assert!(!board.add(3200, 3800, 1000, 9000), "nothing new");
        assert!(!board.add(500, 700, 1000, 9000), "behind the window");
        assert!(!board.add(8000, 9001, 1000, 9000), "never sent");
        assert_eq!(board.hole(1000, 9000, 1000), Some((1000, 3000, false)));
        assert!(board.add(4000, 5000, 1000, 9000));
        assert_eq!(board.ranges, [(3000, 6000)]);
        assert_eq!(board.hole(1000, 9000, 1000), Some((1000, 3000, true)));
        assert_eq!(board.hole(3000, 9000, 1000), Some((6000, 9000, false)));
        // 8000 outstanding, 3000 acknowledged, 2000 lost.
        assert_eq!(board.pipe(1000, 9000, 1000, 1000), 3000);
        assert_eq!(board.pipe(1000, 9000, 2000, 1000), 4000, "what was sent again is in the network");
        board.advance(6000);
        assert!(board.is_empty());
    }

    #[test]
    fn the_time_out_follows_rfc_6298() {
        let mut rtt = RoundTrip::default();
        assert_eq!(rtt.timeout, SECOND);
        rtt.measured(100_000_000);
        assert_eq!(rtt.timeout, 300_000_000);
        for _ in 0..50 {
            rtt.measured(100_000_000);
        }
        assert_eq!(rtt.timeout, 300_000_000, "variation counts as at least 200 ms");
    }

    #[test]
    fn reno_is_estimated_as_rfc_9438_has_it() {
        let mss = 1000;
        let mut window = Window::new(mss, Algorithm::Cubic);
        window.size = 100 * mss;
        window.lost(mss);
        window.acknowledged(mss, mss, SECOND);
        // One round trip: as many segments as are in flight.
        let (before, round_trip) = (window.reno, window.reno / mss);
        for _ in 0..round_trip {
            window.acknowledged(mss, mss, SECOND + 1);
        }
        let grown = window.reno - before;
        assert!((480..=535).contains(&grown), "9/17 of a segment, not {grown} bytes");
        window.reno = window.prior;
        let round_trip = window.reno / mss;
        for _ in 0..round_trip {
            window.acknowledged(mss, mss, SECOND + 2);
        }
        assert!((890..=1000).contains(&(window.reno - window.prior)));
    }

    #[test]
    fn reno_halves_the_window_and_adds_a_segment_each_round_trip() {
        let mss = 1000;
        let mut window = Window::new(mss, Algorithm::Cubic);
        window.size = 100 * mss;
        window.change_to(Algorithm::Reno);
        window.lost(mss);
        assert_eq!((window.size, window.threshold), (50 * mss, 50 * mss));
        for round_trip in 1..=10 {
            for _ in 0..window.size / mss {
                window.acknowledged(mss, mss, SECOND);
            }
            assert_eq!(window.size, (50 + round_trip) * mss);
        }
        assert_eq!(Algorithm::named(b"reno"), Some(Algorithm::Reno));
        assert_eq!(Algorithm::named(b"bbr"), None);
    }

    #[test]
    fn the_window_grows_back_to_where_loss_was_and_beyond() {
        let mss = 1000;
        let mut window = Window::new(mss, Algorithm::Cubic);
        window.size = 100 * mss;
        window.lost(mss);
        assert_eq!(window.size, 70 * mss);
        let mut now = SECOND;
        // 20 s of round trips of 50 ms.
        for _ in 0..400 {
            for _ in 0..window.size / (2 * mss) {
                window.acknowledged(2 * mss, mss, now);
            }
            now += 50_000_000;
        }
        assert!(window.size > 110 * mss, "{}", window.size);
        assert_eq!(cube_root(27_000_000), 300);
    }
}
