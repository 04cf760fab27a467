// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pending signals, of a thread or of the process (signal(7), "Queueing and delivery semantics").

use super::info::{SI_TIMER, SI_USER, SigInfo};
use super::set::{SIGRTMIN, SYNCHRONOUS, SignalSet, bit};
use abi::{Result, errno::EAGAIN};
use alloc::vec::Vec;
use api_alloc::Reserve;

/// Pending signals: standard ones at most once, real-time ones as often as they were sent.
pub struct Queue {
    pending: SignalSet,
    /// In the order they came.
    infos: Vec<SigInfo>,
}

impl Queue {
    pub const fn new() -> Queue {
        Queue { pending: 0, infos: Vec::new() }
    }

    /// What pending signals say about themselves, in the order they came.
    pub fn infos(&self) -> &[SigInfo] {
        &self.infos
    }

    pub fn pending(&self) -> SignalSet {
        self.pending
    }

    /// Adds a signal. With `limit` signals queued (RLIMIT_SIGPENDING) or without memory, `EAGAIN` for a real-time
    /// signal that was queued; others then lose what they say about themselves, but not their arrival.
    pub fn push(&mut self, info: SigInfo, limit: usize) -> Result<()> {
        let signal = info.signal();
        // A timer of timer_create has at most one signal on its way, and goes on when that is taken: it never merges.
        let of_timer = info.code() == SI_TIMER;
        if signal < SIGRTMIN && self.pending & bit(signal) != 0 && !of_timer {
            return Ok(());
        }
        let limited = !of_timer && (signal >= SIGRTMIN || info.code() < 0);
        let over_limit = limited && self.infos.len() >= limit;
        if over_limit || self.infos.reserve_fallibly(1).is_err() {
            if signal >= SIGRTMIN && info.code() != SI_USER {
                return Err(EAGAIN);
            }
        } else {
            self.infos.push(info);
        }
        self.pending |= bit(signal);
        Ok(())
    }

    /// Takes the next signal of `wanted`: those raised by an instruction first, then the lowest number, and among
    /// one number the oldest.
    pub fn take(&mut self, wanted: SignalSet) -> Option<SigInfo> {
        let ready = self.pending & wanted;
        let first = if ready & SYNCHRONOUS != 0 { ready & SYNCHRONOUS } else { ready };
        if first == 0 {
            return None;
        }
        let signal = first.trailing_zeros() as i32 + 1;
        let of_signal = |info: &SigInfo| info.signal() == signal;
        let info = match self.infos.iter().position(of_signal) {
            Some(i) => self.infos.remove(i),
            None => SigInfo::from_process(signal, SI_USER, 0, 0),
        };
        if !self.infos.iter().any(of_signal) {
            self.pending &= !bit(signal);
        }
        Some(info)
    }

    /// Forgets the pending signals of `set`.
    pub fn discard(&mut self, set: SignalSet) {
        self.pending &= !set;
        self.infos.retain(|info| bit(info.signal()) & set == 0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::info::{SI_QUEUE, SI_TKILL};
    use super::super::set::{SIGALRM, SIGSEGV};
    use super::*;

    const ALL: SignalSet = SignalSet::MAX;

    fn sent(signal: i32, pid: i32) -> SigInfo {
        SigInfo::from_process(signal, SI_QUEUE, pid, 0)
    }

    #[test]
    fn standard_signals_are_pending_once_and_real_time_signals_queue_in_order() {
        let mut queue = Queue::new();
        for pid in 1..=3 {
            queue.push(sent(40, pid), 100).unwrap();
            queue.push(sent(SIGALRM, pid), 100).unwrap();
        }
        queue.push(sent(35, 9), 100).unwrap();
        let mut order = Vec::new();
        while let Some(info) = queue.take(ALL) {
            order.push((info.signal(), info.pid()));
        }
        assert_eq!(order, [(SIGALRM, 1), (35, 9), (40, 1), (40, 2), (40, 3)]);
        assert_eq!(queue.pending(), 0);
    }

    #[test]
    fn signals_raised_by_an_instruction_come_first_and_blocked_ones_stay() {
        let mut queue = Queue::new();
        queue.push(sent(2, 1), 100).unwrap();
        queue.push(sent(SIGSEGV, 1), 100).unwrap();
        assert_eq!(queue.take(ALL).unwrap().signal(), SIGSEGV);
        assert_eq!(queue.take(!bit(2)), None);
        assert_eq!(queue.pending(), bit(2));
    }

    #[test]
    fn at_the_limit_real_time_signals_are_refused_and_standard_ones_lose_their_info() {
        let mut queue = Queue::new();
        queue.push(sent(40, 1), 1).unwrap();
        assert_eq!(queue.push(sent(40, 2), 1), Err(EAGAIN));
        queue.push(SigInfo::from_process(10, SI_TKILL, 5, 5), 1).unwrap();
        let info = queue.take(bit(10)).unwrap();
        assert_eq!((info.signal(), info.pid()), (10, 0));
    }

    #[test]
    fn discarded_signals_are_gone() {
        let mut queue = Queue::new();
        queue.push(sent(40, 1), 9).unwrap();
        queue.push(sent(41, 1), 9).unwrap();
        queue.discard(bit(40));
        assert_eq!(queue.take(ALL).unwrap().signal(), 41);
        assert_eq!(queue.take(ALL), None);
    }
}
