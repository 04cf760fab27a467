// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sending: what goes out now, in which segments.

use super::calls::Push;
use super::connection::{Ack, Connection, Recovery, State, WINDOW_SCALE};
use super::queue::COPY_MAX;
use crate::families::is_v6;
use crate::hash::Tuple;
use crate::ip::{Header, Ip, Payload};
use crate::seq;
use crate::wire::{self, Flags, Options, Tcp};
use alloc::vec::Vec;

/// Corked data goes out after this long (tcp(7)).
const CORK_NS: u64 = 200_000_000;
/// An answer within the time an acknowledgement may wait makes a dialogue.
const DIALOGUE_NS: u64 = 40_000_000;

/// A segment without data, for whoever has no connection state.
pub struct Bare<'a> {
    pub tuple: &'a Tuple,
    pub seq: u32,
    pub ack: u32,
    pub flags: Flags,
    pub window: u16,
    pub options: Options,
    pub tos: u8,
    pub ttl: u8,
}

/// Sends a segment without data.
pub fn send_bare(ip: &mut Ip, now: u64, bare: &Bare<'_>) {
    let Some(mut head) = ip.buffer() else { return };
    let header = Tcp {
        source: bare.tuple.local.port(),
        destination: bare.tuple.remote.port(),
        seq: bare.seq,
        ack: bare.ack,
        flags: bare.flags,
        window: bare.window,
        urgent: 0,
        options: bare.options,
    };
    let Some(to) = head.prepend(header.length()) else { return };
    header.put(to, 0);
    let ip_header = Header {
        source: *bare.tuple.local.ip(),
        destination: *bare.tuple.remote.ip(),
        protocol: wire::PROTOCOL_TCP,
        tos: bare.tos,
        ttl: bare.ttl,
    };
    let payload = Payload { head, fragments: Vec::new(), checksum: Some(wire::TCP_CHECKSUM), segment: None };
    ip.counters.tcp.out_segments += 1;
    ip.counters.tcp.out_resets += u64::from(bare.flags.has(Flags::RST));
    ip.send(now, &ip_header, payload);
}

impl Connection {
    /// Sends everything that may go now: SYN, retransmissions of recovery, data, FIN, and an acknowledgement if one
    /// is due and nothing carried it.
    pub fn output(&mut self, ip: &mut Ip, now: u64) {
        match self.state {
            State::Closed => return,
            State::SynSent | State::SynReceived => {
                if self.next == self.iss {
                    self.send_syn(ip, now);
                } else if self.ack == Ack::Now {
                    self.send_ack(ip, now);
                }
                return;
            }
            _ => {}
        }
        if self.recovery.is_some() {
            self.repair(ip, now);
        }
        while self.send_next(ip, now) {}
        if self.ack == Ack::Now {
            self.send_ack(ip, now);
        }
        self.arm(now);
    }

    /// Sets the timers that follow from what is outstanding.
    pub fn arm(&mut self, now: u64) {
        if !self.is_quiet() {
            self.deadlines.persist = None;
            if self.deadlines.retransmit.is_none() {
                self.deadlines.retransmit = Some(now + self.backed_off());
            }
        } else {
            self.deadlines.retransmit = None;
            // All is acknowledged and data waits: for the window, for Nagle's rule or for the cork.
            if !self.queue.is_empty() && self.window < self.mss.min(self.queue.len() as u32) {
                if self.deadlines.persist.is_none() {
                    self.deadlines.persist = Some(now + self.backed_off());
                }
            } else {
                self.deadlines.persist = None;
            }
        }
    }

    /// The retransmission time-out after `retries` time-outs.
    pub fn backed_off(&self) -> u64 {
        let exponent = (self.retries + self.probes).min(16);
        (self.rtt.timeout << exponent).min(super::congestion::RTO_MAX)
    }

    fn send_syn(&mut self, ip: &mut Ip, now: u64) {
        let acknowledges = self.state == State::SynReceived;
        let mtu = ip.route(*self.tuple.remote.ip()).map_or(576, |r| r.mtu);
        let options = Options {
            mss: Some(self.settings.offered_mss(mtu)),
            window_scale: (!acknowledges || self.receive_scale > 0).then_some(WINDOW_SCALE),
            sack_permitted: !acknowledges || self.sack,
            timestamps: (!acknowledges || self.timestamps).then(|| (self.timestamp(now), self.ts_recent)),
            ..Options::default()
        };
        let window = self.receive_limit().min(65_535) as u16;
        let flags = if acknowledges { Flags::SYN.with(Flags::ACK) } else { Flags::SYN };
        let bare = Bare {
            tuple: &self.tuple,
            seq: self.iss,
            ack: if acknowledges { self.received } else { 0 },
            flags,
            window,
            options,
            tos: self.settings.tos,
            ttl: self.ttl(),
        };
        send_bare(ip, now, &bare);
        ip.counters.tcp.retransmitted += u64::from(self.retries > 0);
        if self.retries == 0 {
            self.timed = Some((self.iss.wrapping_add(1), now));
        }
        self.edge = self.received.wrapping_add(u32::from(window));
        self.next = self.iss.wrapping_add(1);
        self.max = self.next;
        self.ack = Ack::None;
        self.sent_at = now;
        self.deadlines.retransmit = Some(now + self.backed_off());
    }

    /// Sends the next piece of new data (or of data after a time-out) when window, congestion and the rules against
    /// small segments allow. True when it did and there may be more.
    fn send_next(&mut self, ip: &mut Ip, now: u64) -> bool {
        // After a time-out: what the peer has, it need not get again.
        if seq::lt(self.next, self.max)
            && let Some(end) = self.board.covers(self.next)
        {
            self.next = seq::min(end, self.max);
            return true;
        }
        let end = self.data_end();
        let unsent = seq::ahead(self.next, end);
        let fin_due = self.fin_pending() && seq::le(self.next, end);
        if unsent == 0 {
            if fin_due {
                self.send_segment(ip, now, self.next, 0, true);
            }
            return false;
        }
        if self.is_quiet() && now.saturating_sub(self.sent_at) > self.rtt.timeout {
            self.cwnd.idle(self.mss);
        }
        let offered = self.una.wrapping_add(self.window);
        let by_peer = seq::ahead(self.next, offered);
        let flight = match self.recovery {
            Some(recovery) => self.board.pipe(self.una, self.next, recovery.resent, self.mss),
            // After a time-out `next` is how far was sent again.
            None => self.next.wrapping_sub(self.una).saturating_sub(self.board.bytes_before(self.next)),
        };
        // Limited transmit (RFC 3042): the first two duplicate acknowledgements let one new segment go each.
        let limited = if self.recovery.is_none() { self.duplicates.min(2) * self.mss } else { 0 };
        let allowed = by_peer.min(self.cwnd.size.saturating_add(limited).saturating_sub(flight));
        if allowed == 0 {
            return false;
        }
        let route = ip.route(*self.tuple.remote.ip());
        let largest = route.map_or(0, |r| ip.segmentation(&r));
        let headers = (wire::IPV4 + wire::TCP + self.mss_options()) as u32;
        // A device that cuts a packet would repeat the pointer in each piece.
        let largest = if self.urgent.is_sending() { 0 } else { largest };
        let most =
            if largest > 0 { (largest as u32).saturating_sub(headers).max(self.mss) } else { self.mss };
        // A repeated segment ends where the peer's acknowledged ranges begin.
        let hole = match self.board.hole(self.next, end, self.mss) {
            Some((_, hole_end, _)) if seq::lt(self.next, self.max) => seq::ahead(self.next, hole_end),
            _ => unsent,
        };
        let mut length = unsent.min(allowed).min(most).min(hole.max(1));
        if length >= self.mss {
            // Whole segments, so that the device cuts no crumbs.
            if length < unsent || length % self.mss != 0 && !self.may_send_small(length, unsent) {
                length -= length % self.mss;
            }
        } else if seq::le(self.max, self.next) && !self.may_send_small(length, unsent) {
            return false;
        }
        let with_fin = fin_due && length == unsent;
        let sent = self.send_segment(ip, now, self.next, length, with_fin);
        sent > 0
    }

    /// Whether a segment that is not full may go: Nagle's rule as Minshall has it, the cork, and the sender's side of
    /// the silly window (RFC 9293 3.8.6.2.1).
    fn may_send_small(&mut self, length: u32, unsent: u32) -> bool {
        if length < unsent {
            // The window cuts it: wait for more of it unless it is half of the largest we have seen.
            return self.is_quiet() && (self.overdue || length >= self.largest_window / 2);
        }
        if self.fin || self.urgent.is_sending() {
            return true;
        }
        if self.settings.cork || self.is_held {
            return false;
        }
        self.settings.no_delay || !seq::lt(self.una, self.small_end)
    }

    fn mss_options(&self) -> usize {
        if self.timestamps { 12 } else { 0 }
    }

    /// The options of a segment of the established connection.
    fn options(&self, now: u64, with_sack: bool) -> Options {
        let mut options = Options::default();
        if self.timestamps {
            options.timestamps = Some((self.timestamp(now), self.ts_recent));
        }
        if with_sack && self.sack && !self.gaps.is_empty() {
            let most = if self.timestamps { 3 } else { wire::SACK_MAX };
            options.sack_count = self.gaps.blocks(most, &mut options.sack);
        }
        options
    }

    fn header(&mut self, now: u64, seq: u32, flags: Flags, with_sack: bool) -> Tcp {
        let window = self.open_window() >> self.receive_scale;
        Tcp {
            source: self.tuple.local.port(),
            destination: self.tuple.remote.port(),
            seq,
            ack: self.received,
            flags: flags.with(Flags::ACK),
            window: window.min(65_535) as u16,
            urgent: 0,
            options: self.options(now, with_sack),
        }
    }

    /// IP_TTL, or IPV6_UNICAST_HOPS of what goes to IPv6.
    pub(super) fn ttl(&self) -> u8 {
        if is_v6(*self.tuple.remote.ip()) { self.settings.hops } else { self.settings.ttl }
    }

    fn ip_header(&self) -> Header {
        Header {
            source: *self.tuple.local.ip(),
            destination: *self.tuple.remote.ip(),
            protocol: wire::PROTOCOL_TCP,
            tos: self.settings.tos,
            ttl: self.ttl(),
        }
    }

    /// What every segment with an acknowledgement does to our state.
    fn acknowledged(&mut self) {
        self.ack = Ack::None;
        self.deadlines.delayed_ack = None;
        self.last_ack_sent = self.received;
    }

    /// A bare acknowledgement, now.
    pub fn send_ack(&mut self, ip: &mut Ip, now: u64) {
        let seq = self.max;
        self.send_empty(ip, now, seq, Flags::ACK);
    }

    /// A probe the peer must answer: a sequence number it has acknowledged (persist, keep-alive).
    pub fn send_probe(&mut self, ip: &mut Ip, now: u64) {
        let seq = self.una.wrapping_sub(1);
        self.send_empty(ip, now, seq, Flags::ACK);
    }

    pub fn send_reset(&mut self, ip: &mut Ip, now: u64) {
        let seq = self.max;
        self.send_empty(ip, now, seq, Flags::RST);
    }

    fn send_empty(&mut self, ip: &mut Ip, now: u64, seq: u32, flags: Flags) {
        let header = self.header(now, seq, flags, true);
        let bare = Bare {
            tuple: &self.tuple,
            seq,
            ack: header.ack,
            flags: header.flags,
            window: header.window,
            options: header.options,
            tos: self.settings.tos,
            ttl: self.ttl(),
        };
        send_bare(ip, now, &bare);
        self.acknowledged();
    }

    /// Sends `length` bytes from `seq` on, as one packet; how many it really were (memory, fragments).
    fn send_segment(&mut self, ip: &mut Ip, now: u64, seq: u32, length: u32, with_fin: bool) -> u32 {
        let offset = seq.wrapping_sub(self.una) as usize;
        let Some(mut head) = ip.buffer() else { return 0 };
        let mut fragments = Vec::new();
        let mut sent = length as usize;
        if sent <= COPY_MAX {
            if !self.queue.copy(offset, sent, &mut head) {
                return 0;
            }
        } else {
            let most = ip.route(*self.tuple.remote.ip()).map_or(0, |r| ip.fragments(&r));
            (fragments, sent) = self.queue.refer(offset, sent, most);
            // The segments of loopback are larger than a buffer.
            let fits = (length as usize).min(self.mss as usize).min(head.tailroom());
            if sent <= COPY_MAX || (fragments.len() > 2 && sent <= fits) {
                // Many small pieces: one copy is cheaper than their descriptors.
                sent = fits;
                fragments.clear();
                if !self.queue.copy(offset, sent, &mut head) {
                    return 0;
                }
            }
        }
        let sent = sent as u32;
        let fin = with_fin && sent == length;
        let last = seq.wrapping_add(sent) == self.data_end();
        let mut flags = Flags(0);
        if last && sent > 0 {
            flags = flags.with(Flags::PSH);
        }
        if fin {
            flags = flags.with(Flags::FIN);
        }
        let mut header = self.header(now, seq, flags, false);
        if let Some(pointer) = self.urgent.pointer(seq) {
            header.flags = header.flags.with(Flags::URG);
            header.urgent = pointer;
        }
        let header_length = header.length();
        let Some(to) = head.prepend(header_length) else { return 0 };
        header.put(to, 0);
        let segment = (sent > self.mss).then_some((header_length, self.mss as usize));
        let payload = Payload { head, fragments, checksum: Some(wire::TCP_CHECKSUM), segment };
        ip.send(now, &self.ip_header(), payload);
        // What the device cuts in pieces counts as these.
        let segments = u64::from(sent.div_ceil(self.mss.max(1)).max(1));
        ip.counters.tcp.out_segments += segments;
        let before = self.retransmitted;
        self.note_sent(now, seq, sent, fin);
        ip.counters.tcp.retransmitted += if self.retransmitted == before { 0 } else { segments };
        sent + u32::from(fin)
    }

    fn note_sent(&mut self, now: u64, seq: u32, sent: u32, fin: bool) {
        // Data soon after data: a dialogue (Linux' pingpong mode).
        if self.data_at != 0 && now.saturating_sub(self.data_at) < DIALOGUE_NS {
            self.interactive = true;
        }
        self.acknowledged();
        let end = seq.wrapping_add(sent).wrapping_add(u32::from(fin));
        if seq::lt(self.max, end) {
            if self.is_quiet() {
                self.progress_at = now;
            }
            if !sent.is_multiple_of(self.mss) {
                self.small_end = end;
            }
            if self.timed.is_none() && !self.timestamps && seq::le(self.max, seq) {
                self.timed = Some((end, now));
            }
            self.max = end;
        } else {
            self.retransmitted = self.retransmitted.wrapping_add(1);
            // Karn: what is sent twice measures nothing.
            self.timed = None;
            self.resent_ts = self.timestamp(now);
        }
        if seq::lt(self.next, end) && seq::le(seq, self.next) {
            self.next = end;
        }
        self.sent_at = now;
        self.deadlines.cork = None;
        if self.deadlines.retransmit.is_none() {
            self.deadlines.retransmit = Some(now + self.backed_off());
        }
    }

    /// Begins loss recovery: the window shrinks and the first hole is sent again at once.
    pub fn begin_recovery(&mut self, ip: &mut Ip, now: u64) {
        self.cwnd.lost(self.mss);
        self.recovery = Some(Recovery { end: self.max, resent: self.una });
        self.resend_from(ip, now, self.una);
        // The timer runs for the segment sent again (RFC 6298 5.4 in spirit, as Linux).
        self.deadlines.retransmit = Some(now + self.backed_off());
    }

    /// Sends one segment at `from` again, cut where the peer's acknowledged ranges begin.
    pub fn resend_from(&mut self, ip: &mut Ip, now: u64, from: u32) {
        let end = seq::min(self.data_end(), self.max);
        let hole_end = match self.board.hole(from, self.max, self.mss) {
            Some((start, hole_end, _)) if start == from => seq::min(hole_end, end),
            _ => end,
        };
        let length = seq::ahead(from, hole_end).min(self.mss);
        // The FIN goes along when everything behind it fits.
        let with_fin = self.fin_pending()
            && from.wrapping_add(length) == self.data_end()
            && seq::lt(self.data_end(), self.max);
        if length == 0 && !with_fin {
            return;
        }
        let sent = self.send_segment(ip, now, from, length, with_fin);
        if let Some(recovery) = &mut self.recovery {
            recovery.resent = seq::max(recovery.resent, from.wrapping_add(sent));
        }
    }

    /// Retransmissions of recovery as the congestion window allows (RFC 6675 NextSeg rules 1 and 3; new data, rule 2,
    /// follows in `send_next`).
    fn repair(&mut self, ip: &mut Ip, now: u64) {
        // Bounded by the window: each turn resends something or ends.
        while let Some(recovery) = self.recovery {
            let pipe = self.board.pipe(self.una, self.max, recovery.resent, self.mss);
            if pipe + self.mss > self.cwnd.size.max(self.mss) && pipe > 0 {
                // What left the network lets as much in (RFC 6937's reduction bound), or a lost tail, which counts as
                // being in the network, would stop the repair.
                match self.repair_credit.checked_sub(self.mss) {
                    Some(rest) => self.repair_credit = rest,
                    None => return,
                }
            }
            let from = seq::max(recovery.resent, self.una);
            match self.board.hole(from, self.max, self.mss) {
                Some((start, _, true)) => {
                    let before = self.recovery.map(|r| r.resent);
                    self.resend_from(ip, now, start);
                    if self.recovery.map(|r| r.resent) == before {
                        return;
                    }
                }
                _ => return,
            }
        }
    }

    /// Data was queued: sends, and sets the cork's timer when it held something back.
    pub fn pushed(&mut self, ip: &mut Ip, now: u64, how: Push) {
        let before = self.is_held;
        self.is_held = matches!(how, Push::More | Push::Held);
        self.output(ip, now);
        let holds = self.settings.cork || self.is_held;
        // An acknowledgement that comes meanwhile releases nothing that waits for another call.
        self.is_held = how == Push::Held || how == Push::More && before;
        if holds && seq::lt(self.next, self.data_end()) {
            self.deadlines.cork.get_or_insert(now + CORK_NS);
        }
    }
}
