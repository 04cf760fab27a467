// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What happens when time passes: retransmission, persist and keep-alive probes, delayed acknowledgements, the cork.

use super::connection::{Ack, Connection, State};
use super::input::After;
use crate::ip::Ip;
use abi::errno::ETIMEDOUT;

/// Time-outs in a row before a connection is given up when no socket holds it any more (Linux: tcp_orphan_retries, 8).
const ORPHAN_RETRIES: u32 = 8;
const SECOND: u64 = 1_000_000_000;

/// The same of an established connection that a socket holds.
fn retries() -> u32 {
    api_socket::settings::RETRIES[0].get() as u32
}

impl Connection {
    /// Does what is due at `now`.
    pub fn timers(&mut self, ip: &mut Ip, now: u64) -> After {
        let due = |deadline: Option<u64>| deadline.is_some_and(|d| d <= now);
        if due(self.deadlines.delayed_ack) {
            self.deadlines.delayed_ack = None;
            if self.ack == Ack::Delayed {
                // Nothing came to travel with it: not a dialogue (any more).
                self.interactive = false;
                self.ack = Ack::Now;
            }
        }
        if due(self.deadlines.retransmit) {
            self.deadlines.retransmit = None;
            if self.retransmit(ip, now) == After::Closed {
                return After::Closed;
            }
        }
        if due(self.deadlines.persist) {
            self.deadlines.persist = None;
            if self.give_up_probing(now) {
                return self.time_out(ip, now);
            }
            if self.window > 0 && !self.queue.is_empty() {
                // A window that stays small would be waited for for ever (RFC 9293 3.8.6.2.1, the override time-out).
                self.overdue = true;
                self.output(ip, now);
                self.overdue = false;
            } else {
                self.send_probe(ip, now);
                self.probes += 1;
                self.deadlines.persist = Some(now + self.backed_off());
            }
        }
        if due(self.deadlines.keep_alive) && self.keep_alive(ip, now) == After::Closed {
            return After::Closed;
        }
        if due(self.deadlines.cork) {
            self.deadlines.cork = None;
            self.is_held = false;
            let cork = core::mem::replace(&mut self.settings.cork, false);
            self.output(ip, now);
            self.settings.cork = cork;
        }
        After::Stays
    }

    fn time_out(&mut self, ip: &mut Ip, now: u64) -> After {
        if self.is_synchronised() {
            self.send_reset(ip, now);
        }
        self.finish(Some(ETIMEDOUT));
        After::Closed
    }

    fn user_timed_out(&self, now: u64) -> bool {
        let limit = u64::from(self.settings.user_timeout) * 1_000_000;
        limit > 0 && now.saturating_sub(self.progress_at) >= limit
    }

    /// A shut window may stay shut for ever as long as the peer answers (RFC 9293 3.8.6.1).
    fn give_up_probing(&self, now: u64) -> bool {
        let most = if self.orphan { ORPHAN_RETRIES } else { retries() };
        self.probes >= most || self.user_timed_out(now)
    }

    fn retransmit(&mut self, ip: &mut Ip, now: u64) -> After {
        if self.is_quiet() {
            return After::Stays;
        }
        let opening = matches!(self.state, State::SynSent | State::SynReceived);
        let most = match (opening, self.orphan) {
            (true, _) => self.settings.syn_retries,
            (false, true) => ORPHAN_RETRIES,
            (false, false) => retries(),
        };
        if self.retries >= most || self.user_timed_out(now) {
            return self.time_out(ip, now);
        }
        let first = self.retries == 0;
        self.retries += 1;
        self.timed = None;
        if opening {
            self.next = self.iss;
            self.output(ip, now);
            return After::Stays;
        }
        // RFC 5681 3.1, RFC 6675 5.1: what was selectively acknowledged may be taken back by the peer.
        self.cwnd.timed_out(self.mss, first && self.recovery.is_none());
        self.recovery = None;
        self.duplicates = 0;
        self.board.clear();
        self.next = self.una;
        self.deadlines.retransmit = Some(now + self.backed_off());
        if self.window == 0 {
            // The window shut over data in flight: one byte more would be refused, so ask instead.
            self.send_probe(ip, now);
        } else {
            self.resend_from(ip, now, self.una);
            if self.next == self.una {
                self.next = crate::seq::min(self.una.wrapping_add(self.mss), self.max);
            }
        }
        After::Stays
    }

    fn keep_alive(&mut self, ip: &mut Ip, now: u64) -> After {
        self.deadlines.keep_alive = None;
        if !self.settings.keep_alive || !self.is_synchronised() {
            return After::Stays;
        }
        let idle = u64::from(self.settings.keep_idle) * SECOND;
        let heard = self.heard_at.max(self.sent_at.min(self.heard_at));
        if self.probes == 0 && now < heard + idle || !self.is_quiet() {
            self.deadlines.keep_alive = Some((heard + idle).max(now + SECOND));
            return After::Stays;
        }
        if self.probes >= self.settings.keep_count || self.probes > 0 && self.user_timed_out(now) {
            return self.time_out(ip, now);
        }
        self.send_probe(ip, now);
        self.probes += 1;
        self.deadlines.keep_alive = Some(now + u64::from(self.settings.keep_interval) * SECOND);
        After::Stays
    }
}
