// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Receiving: a segment arrives for a connection (RFC 9293 3.10.7).

use super::congestion::DUPLICATES;
use super::connection::{Ack, Connection, State};
use crate::ip::Ip;
use crate::seq;
use crate::wire::{Flags, Tcp};
use abi::{Events, errno::*};
use api_netdev::Incoming;

/// How long an acknowledgement may wait for data to travel with (Linux: TCP_DELACK_MIN; RFC 9293 allows 500 ms).
const DELAYED_ACK_NS: u64 = 40_000_000;
/// Delayed acknowledgements of many connections share timer interrupts.
const DELAYED_ACK_GRAIN_NS: u64 = 8_000_000;
/// Answers to segments that are out of window, at most one per connection in this time (Linux:
/// tcp_invalid_ratelimit; RFC 5961 7).
const CHALLENGE_NS: u64 = 500_000_000;
/// A timestamp older than this proves nothing (RFC 7323 5.5).
const TIMESTAMP_AGE_NS: u64 = 24 * 86_400 * 1_000_000_000;

/// What becomes of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    Stays,
    /// Both directions are closed in order: TIME-WAIT.
    TimeWait,
    /// Gone; its record may go when no socket holds it.
    Closed,
}

impl Connection {
    /// A segment with `length` bytes of payload in `payload`, checksum proven.
    pub fn input(&mut self, ip: &mut Ip, now: u64, header: &Tcp, payload: Incoming, length: usize) -> After {
        self.heard_at = now;
        if self.state == State::SynSent {
            ip.recycle_packet(payload);
            return self.input_syn_sent(ip, now, header);
        }
        match self.check(ip, now, header, length as u32) {
            Ok(()) => {}
            Err(after) => {
                ip.recycle_packet(payload);
                return after;
            }
        }
        let fin_acknowledged = self.process_ack(ip, now, header, length);
        if self.state == State::Closed {
            ip.recycle_packet(payload);
            return After::Closed;
        }
        if fin_acknowledged {
            match self.state {
                State::FinWait1 => {
                    self.state = State::FinWait2;
                    // For close(2) that lingers.
                    self.happened(Events::WRNORM);
                }
                State::Closing => {
                    ip.recycle_packet(payload);
                    return After::TimeWait;
                }
                State::LastAck => {
                    ip.recycle_packet(payload);
                    self.finish(None);
                    return After::Closed;
                }
                _ => {}
            }
        }
        if header.flags.has(Flags::URG) || self.urgent.is_awaited() {
            self.take_urgent(header, &payload, length);
        }
        if length > 0 {
            let is_new = seq::lt(self.received, header.seq.wrapping_add(length as u32));
            let is_half_over = matches!(self.state, State::FinWait1 | State::FinWait2);
            if (self.orphan || self.read_shut && is_half_over) && !self.peer_done && is_new {
                // Nobody will ever read it (RFC 9293 3.10.4, RFC 1122 4.2.2.13): the peer is told, and who shut both directions.
                ip.recycle_packet(payload);
                self.send_reset(ip, now);
                self.finish((!self.orphan).then_some(ECONNRESET));
                return After::Closed;
            }
            self.take_data(ip, now, header.seq, payload);
        } else {
            ip.recycle_packet(payload);
        }
        if header.flags.has(Flags::FIN) && !self.peer_done {
            let at = header.seq.wrapping_add(length as u32);
            if seq::le(at, self.edge) {
                self.peer_fin = Some(at);
            }
        }
        if self.peer_fin == Some(self.received) {
            return self.take_fin(now);
        }
        After::Stays
    }

    /// RFC 9293 3.10.7.3.
    fn input_syn_sent(&mut self, ip: &mut Ip, now: u64, header: &Tcp) -> After {
        let flags = header.flags;
        if flags.has(Flags::ACK) && header.ack != self.max {
            if !flags.has(Flags::RST) {
                let before = core::mem::replace(&mut self.max, header.ack);
                self.send_reset_bare(ip, now);
                self.max = before;
            }
            return After::Stays;
        }
        if flags.has(Flags::RST) {
            if flags.has(Flags::ACK) {
                self.finish(Some(ECONNREFUSED));
                return After::Closed;
            }
            return After::Stays;
        }
        if !flags.has(Flags::SYN) {
            return After::Stays;
        }
        let mtu = ip.route(*self.tuple.remote.ip()).map_or(576, |r| r.mtu);
        self.start_receiving(header.seq);
        self.agree(&header.options, mtu, now);
        self.edge = self.received.wrapping_add(self.receive_limit().min(65_535) as u32);
        self.window = u32::from(header.window);
        self.window_seq = header.seq;
        self.window_ack = header.ack;
        self.largest_window = self.window;
        if flags.has(Flags::ACK) {
            self.measure(now, header);
            self.una = header.ack;
            self.retries = 0;
            self.progress_at = now;
            self.deadlines.retransmit = None;
            self.state = State::Established;
            self.ack = Ack::Now;
            self.start_keep_alive(now);
            self.happened(Events::WRITABLE);
        } else {
            // Simultaneous open: our SYN goes again, with an acknowledgement.
            self.state = State::SynReceived;
            self.next = self.iss;
        }
        After::Stays
    }

    fn send_reset_bare(&mut self, ip: &mut Ip, now: u64) {
        let bare = super::output::Bare {
            tuple: &self.tuple,
            seq: self.max,
            ack: 0,
            flags: Flags::RST,
            window: 0,
            options: Default::default(),
            tos: 0,
            ttl: self.ttl(),
        };
        super::output::send_bare(ip, now, &bare);
    }

    /// Timestamps, sequence numbers, RST, SYN and the presence of ACK: everything before the acknowledgement itself.
    fn check(&mut self, ip: &mut Ip, now: u64, header: &Tcp, length: u32) -> Result<(), After> {
        let flags = header.flags;
        if let (true, Some((value, _))) = (self.timestamps, header.options.timestamps) {
            let old = seq::lt(value, self.ts_recent);
            if old && now.saturating_sub(self.ts_recent_at) < TIMESTAMP_AGE_NS && !flags.has(Flags::RST) {
                // PAWS (RFC 7323 5.3 R1).
                self.answer(ip, now, length > 0);
                return Err(After::Stays);
            }
        }
        let taken = length + u32::from(flags.has(Flags::SYN)) + u32::from(flags.has(Flags::FIN));
        let end = header.seq.wrapping_add(taken);
        let in_window =
            seq::le(self.last_ack_sent, end) && seq::le(header.seq, seq::max(self.edge, self.received));
        if !in_window {
            if !flags.has(Flags::RST) {
                self.answer(ip, now, length > 0 && !flags.has(Flags::SYN));
            }
            return Err(After::Stays);
        }
        if flags.has(Flags::RST) {
            // RFC 5961 3.2: exactly the next number, or it may be a guess.
            if header.seq != self.received {
                self.answer(ip, now, false);
                return Err(After::Stays);
            }
            let error = match self.state {
                State::CloseWait => EPIPE,
                State::SynReceived => ECONNREFUSED,
                _ => ECONNRESET,
            };
            self.finish(Some(error));
            return Err(After::Closed);
        }
        if flags.has(Flags::SYN) {
            if self.state == State::SynReceived && header.seq == self.irs && flags.has(Flags::ACK) {
                // The other side's SYN again, now with an acknowledgement (simultaneous open).
            } else {
                // RFC 5961 4.2.
                self.answer(ip, now, false);
                return Err(After::Stays);
            }
        }
        if !flags.has(Flags::ACK) {
            return Err(After::Stays);
        }
        if let (true, Some((value, _))) = (self.timestamps, header.options.timestamps)
            && seq::le(header.seq, self.last_ack_sent)
            && seq::le(self.ts_recent, value)
        {
            self.ts_recent = value;
            self.ts_recent_at = now;
        }
        if self.state == State::SynReceived {
            if header.ack != self.max {
                return Err(After::Stays);
            }
            self.una = header.ack;
            self.measure(now, header);
            self.retries = 0;
            self.deadlines.retransmit = None;
            self.window = u32::from(header.window);
            if !flags.has(Flags::SYN) {
                self.window <<= self.send_scale;
            }
            self.window_seq = header.seq;
            self.window_ack = header.ack;
            self.state = if self.fin { State::FinWait1 } else { State::Established };
            self.start_keep_alive(now);
            self.happened(Events::WRITABLE);
            if flags.has(Flags::SYN) {
                return Err(After::Stays);
            }
        }
        // RFC 5961 5.2: neither from the future nor older than any window of ours.
        let oldest = self.una.wrapping_sub(self.largest_window.max(self.mss));
        if seq::lt(self.max, header.ack) || seq::lt(header.ack, oldest) {
            self.answer(ip, now, false);
            return Err(After::Stays);
        }
        Ok(())
    }

    /// Answers a segment that was not acceptable with an acknowledgement; unless it is due, rarely.
    fn answer(&mut self, ip: &mut Ip, now: u64, due: bool) {
        if due || now >= self.challenged_at + CHALLENGE_NS || self.challenged_at == 0 {
            if !due {
                self.challenged_at = now;
            }
            self.send_ack(ip, now);
        }
    }

    fn measure(&mut self, now: u64, header: &Tcp) {
        match (self.timestamps, header.options.timestamps, self.timed) {
            (true, Some((_, echo)), _) if echo != 0 => {
                // An echo from before the last retransmission measures the wait for the timer, not the path (Karn).
                let repairing = self.retries > 0 || self.recovery.is_some();
                if repairing && seq::lt(echo, self.resent_ts) {
                    return;
                }
                let elapsed = self.timestamp(now).wrapping_sub(echo);
                // A peer may echo nonsense: nothing takes longer than the longest time-out.
                if elapsed < 120_000 {
                    self.rtt.measured(u64::from(elapsed) * 1_000_000);
                }
            }
            (_, _, Some((end, sent))) if seq::le(end, header.ack) => {
                self.rtt.measured(now.saturating_sub(sent));
                self.timed = None;
            }
            _ => {}
        }
    }

    /// RFC 9293 3.10.7.4, fifth, with SACK and recovery. True when our FIN is acknowledged now.
    fn process_ack(&mut self, ip: &mut Ip, now: u64, header: &Tcp, length: usize) -> bool {
        let ack = header.ack;
        let window = u32::from(header.window) << self.send_scale;
        let same_window = window == self.window;
        if seq::lt(self.window_seq, header.seq)
            || self.window_seq == header.seq && seq::le(self.window_ack, ack)
        {
            let was_shut = self.window == 0;
            self.window = window;
            self.window_seq = header.seq;
            self.window_ack = ack;
            self.largest_window = self.largest_window.max(window);
            if was_shut && window > 0 {
                self.deadlines.persist = None;
            }
        }
        self.probes = 0;
        let mut news = false;
        if self.sack {
            for (left, right) in &header.options.sack[..header.options.sack_count] {
                news |= self.board.add(*left, *right, seq::max(self.una, ack), self.max);
            }
        }
        if seq::lt(self.una, ack) {
            return self.new_ack(ip, now, header);
        }
        if ack == self.una && !self.is_quiet() && length == 0 && (news || !self.sack && same_window) {
            self.duplicates += 1;
            match &self.recovery {
                // Without SACK each duplicate means that a segment has left the network (RFC 5681 3.2).
                Some(_) if !self.sack => self.cwnd.size = self.cwnd.size.saturating_add(self.mss),
                Some(_) => {}
                None => {
                    let lost = self.board.hole(self.una, self.max, self.mss).is_some_and(|(_, _, lost)| lost);
                    let after_timeout = seq::lt(self.next, self.max);
                    if (self.duplicates >= DUPLICATES || lost) && !after_timeout {
                        self.begin_recovery(ip, now);
                    }
                }
            }
        }
        false
    }

    fn new_ack(&mut self, ip: &mut Ip, now: u64, header: &Tcp) -> bool {
        let ack = header.ack;
        let bytes = ack.wrapping_sub(self.una);
        let fin_acknowledged = self.fin_pending() && ack == self.data_end().wrapping_add(1);
        let was_writable = self.is_writable();
        self.measure(now, header);
        self.queue.consume(bytes as usize - usize::from(fin_acknowledged));
        self.una = ack;
        self.next = seq::max(self.next, ack);
        self.board.advance(ack);
        self.urgent.acknowledged(ack);
        self.retries = 0;
        self.duplicates = 0;
        self.progress_at = now;
        self.deadlines.retransmit = if self.is_quiet() { None } else { Some(now + self.backed_off()) };
        match self.recovery {
            Some(recovery) if seq::le(recovery.end, ack) => {
                self.recovery = None;
                self.cwnd.size = self.cwnd.threshold;
            }
            Some(_) if !self.sack => {
                // NewReno (RFC 6582 3.2): a partial acknowledgement names the next hole.
                self.cwnd.size = self.cwnd.size.saturating_sub(bytes).saturating_add(self.mss);
                self.resend_from(ip, now, ack);
            }
            Some(_) => {
                self.repair_credit = bytes.min(8 * self.mss) + self.mss;
                // The hole right behind a partial acknowledgement is lost when nothing above it moved us past it.
                if self.recovery.is_some_and(|r| seq::le(r.resent, ack)) {
                    self.resend_from(ip, now, ack);
                }
            }
            None => self.cwnd.acknowledged(bytes, self.mss, now),
        }
        if !was_writable && self.is_writable() && self.can_send() {
            self.happened(Events::WRITABLE);
        }
        fin_acknowledged
    }

    fn take_data(&mut self, ip: &mut Ip, now: u64, start: u32, payload: Incoming) {
        if self.peer_done {
            return ip.recycle_packet(payload);
        }
        let mut at = start;
        let mut advanced = false;
        let had_gaps = !self.gaps.is_empty();
        let mut out_of_order = false;
        for mut buffer in core::iter::once(payload.first).chain(payload.more) {
            let length = buffer.len() as u32;
            let end = at.wrapping_add(length);
            let stale = seq::ahead(at, self.received).min(length);
            buffer.trim_front(stale as usize);
            let begin = at.wrapping_add(stale);
            // Beyond the window: cut (RFC 9293 3.10.7.4, first).
            buffer.truncate(seq::ahead(begin, self.edge) as usize);
            at = end;
            if buffer.is_empty() {
                ip.recycle(buffer);
                continue;
            }
            let refused = if begin == self.received {
                if !self.input.reserve() {
                    // As lost on the way: it comes again.
                    ip.recycle(buffer);
                    continue;
                }
                self.received = self.received.wrapping_add(buffer.len() as u32);
                advanced = true;
                self.input.push(buffer)
            } else {
                out_of_order = true;
                self.gaps.insert(begin, buffer)
            };
            refused.into_iter().for_each(|b| ip.recycle(b));
        }
        if advanced && had_gaps {
            while self.input.reserve()
                && let Some(buffer) = self.gaps.take(self.received)
            {
                self.received = self.received.wrapping_add(buffer.len() as u32);
                self.input.push(buffer).into_iter().for_each(|b| ip.recycle(b));
            }
        }
        if advanced {
            self.data_at = now;
            self.happened(Events::READABLE);
        }
        if out_of_order || !advanced {
            // At once, one for each: the peer counts duplicates (RFC 5681 4.2).
            self.send_ack(ip, now);
        } else if had_gaps {
            self.ack = Ack::Now;
        } else if self.ack != Ack::Now {
            let waiting = self.received.wrapping_sub(self.last_ack_sent);
            if waiting >= 2 * self.mss || !self.interactive || self.settings.quick_ack == Some(true) {
                self.ack = Ack::Now;
            } else {
                self.ack = Ack::Delayed;
                let deadline = (now + DELAYED_ACK_NS).next_multiple_of(DELAYED_ACK_GRAIN_NS);
                self.deadlines.delayed_ack.get_or_insert(deadline);
            }
        }
    }

    fn take_fin(&mut self, now: u64) -> After {
        self.received = self.received.wrapping_add(1);
        (self.peer_done, self.saw_end) = (true, true);
        self.peer_fin = None;
        self.gaps.clear();
        self.ack = Ack::Now;
        self.happened(Events::READABLE | Events::RDHUP);
        self.heard_at = now;
        match self.state {
            State::Established | State::SynReceived => self.state = State::CloseWait,
            State::FinWait1 => {
                self.state = State::Closing;
                self.happened(Events::HUP);
            }
            State::FinWait2 => return After::TimeWait,
            _ => {}
        }
        After::Stays
    }

    /// SO_KEEPALIVE's clock starts (again).
    pub fn start_keep_alive(&mut self, now: u64) {
        self.deadlines.keep_alive = (self.settings.keep_alive && self.is_synchronised())
            .then(|| now + u64::from(self.settings.keep_idle) * 1_000_000_000);
    }
}
