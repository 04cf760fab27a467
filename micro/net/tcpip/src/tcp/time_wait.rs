// SPDX-License-Identifier: Apache-2.0 OR MIT
//! TIME-WAIT (RFC 9293 3.6.1), and FIN-WAIT-2 of connections nobody holds any more: 60 bytes each instead of a
//! connection, in the order they expire, and no obstacle to a new connection that can be told apart (RFC 6191).

use super::Tcp;
use super::connection::Connection;
use super::output::{Bare, send_bare};
use crate::hash::Tuple;
use crate::ip::Ip;
use crate::reuse::Reuse;
use crate::seq;
use crate::wire::{Flags, Options, Tcp as Header};

/// Linux' TCP_TIMEWAIT_LEN.
const TIME_WAIT_NS: u64 = 60_000_000_000;
/// Records kept; beyond, the oldest goes (Linux: tcp_max_tw_buckets).
const MAX_RECORDS: usize = 16_384;
/// A record waits anew after a segment, but not more often than this.
const RENEWAL_NS: u64 = 1_000_000_000;
/// A connection of ours may take a record's place after this long, when timestamps tell the two apart (Linux:
/// tcp_tw_reuse).
const REUSE_NS: u64 = 1_000_000_000;

pub struct TimeWait {
    expires: u64,
    /// In the queue.
    place: (u64, u64),
    created: u64,
    /// The peer's FIN is still to come.
    half_closed: bool,
    received: u32,
    next: u32,
    window: u16,
    timestamps: bool,
    ts_recent: u32,
    ts_offset: u32,
    /// Of the socket it was.
    pub(super) reuse: Reuse,
}

impl TimeWait {
    pub fn of(connection: &Connection, now: u64, half_closed: bool) -> TimeWait {
        let window = seq::ahead(connection.received, connection.edge) >> connection.receive_scale;
        let limit = if half_closed {
            connection.settings.fin_timeout.max(0) as u64 * 1_000_000_000
        } else {
            TIME_WAIT_NS
        };
        TimeWait {
            expires: now + limit.clamp(1, TIME_WAIT_NS),
            place: (0, 0),
            created: now,
            half_closed,
            received: connection.received,
            next: connection.max,
            window: window.min(65_535) as u16,
            timestamps: connection.timestamps,
            ts_recent: connection.ts_recent,
            ts_offset: connection.ts_offset,
            reuse: Reuse::default(),
        }
    }
}

impl Tcp {
    pub(super) fn insert_time_wait(&mut self, tuple: Tuple, mut record: TimeWait) {
        self.forget_time_wait(&tuple);
        while self.time_wait.len() >= MAX_RECORDS {
            let Some((_, oldest)) = self.time_wait_queue.first_key_value() else { break };
            let oldest = *oldest;
            self.forget_time_wait(&oldest);
        }
        // Without memory for the record the connection is over at once.
        let Some(place) = self.enlist(record.expires, tuple) else { return };
        record.place = place;
        let (port, address, reuse) = (tuple.local.port(), *tuple.local.ip(), record.reuse);
        if self.count_port(port, address, reuse).is_err() {
            self.time_wait_queue.remove(&place);
        } else if self.time_wait.insert(tuple, record).is_err() {
            self.time_wait_queue.remove(&place);
            self.discount_port(port, address, reuse);
        }
    }

    /// A record's place in the queue: each has one, so that what is waited for is bounded as the records are.
    /// `None` where there is no memory for one.
    fn enlist(&mut self, expires: u64, tuple: Tuple) -> Option<(u64, u64)> {
        self.time_wait_number += 1;
        let place = (expires, self.time_wait_number);
        self.time_wait_queue.insert_fallibly(place, tuple).ok()?;
        Some(place)
    }

    fn forget_time_wait(&mut self, tuple: &Tuple) {
        if let Some(record) = self.time_wait.remove(tuple) {
            self.time_wait_queue.remove(&record.place);
            self.discount_port(tuple.local.port(), *tuple.local.ip(), record.reuse);
        }
    }

    pub(super) fn expire_time_wait(&mut self, now: u64) {
        while let Some((&(expires, _), _)) = self.time_wait_queue.first_key_value() {
            if expires > now {
                return;
            }
            if let Some((_, tuple)) = self.time_wait_queue.pop_first() {
                self.forget_time_wait(&tuple);
            }
        }
    }

    /// A segment for such a record. True when it opens a new connection: the record is gone, go on.
    pub(super) fn input_time_wait(
        &mut self,
        ip: &mut Ip,
        now: u64,
        tuple: &Tuple,
        tcp: &Header,
        length: usize,
    ) -> bool {
        let Some(record) = self.time_wait.get_mut(tuple) else { return true };
        let flags = tcp.flags;
        let newer = match tcp.options.timestamps {
            Some((value, _)) if record.timestamps => Some(seq::lt(record.ts_recent, value)),
            _ => None,
        };
        if flags.has(Flags::SYN) && !flags.has(Flags::RST) && !flags.has(Flags::ACK) {
            // RFC 6191 2: a later timestamp or a higher sequence number tells the new connection from the old.
            if newer == Some(true) || newer != Some(false) && seq::lt(record.received, tcp.seq) {
                self.forget_time_wait(tuple);
                return true;
            }
        }
        if flags.has(Flags::RST) {
            if tcp.seq == record.received {
                self.forget_time_wait(tuple);
            }
            return false;
        }
        let old = record.timestamps
            && newer == Some(false)
            && tcp.options.timestamps.map(|t| t.0) != Some(record.ts_recent);
        if record.half_closed && !old && flags.has(Flags::ACK) {
            if length > 0 && seq::lt(record.received, tcp.seq.wrapping_add(length as u32)) {
                // Data nobody will read.
                self.forget_time_wait(tuple);
                super::refuse(ip, now, tuple, tcp, length);
                return false;
            }
            if !flags.has(Flags::FIN) || tcp.seq != record.received {
                return false;
            }
            record.received = record.received.wrapping_add(1);
            record.half_closed = false;
        } else if length == 0 && !flags.has(Flags::SYN) && !flags.has(Flags::FIN) {
            return false;
        }
        if let Some((value, _)) = tcp.options.timestamps
            && seq::lt(record.ts_recent, value)
        {
            record.ts_recent = value;
        }
        // Our last acknowledgement was lost, or this is the FIN: acknowledge, and wait anew.
        let renewed = now + TIME_WAIT_NS > record.expires + RENEWAL_NS;
        if renewed {
            record.expires = now + TIME_WAIT_NS;
        }
        let timestamp = ((now / 1_000_000) as u32).wrapping_add(record.ts_offset);
        let bare = Bare {
            tuple,
            seq: record.next,
            ack: record.received,
            flags: Flags::ACK,
            window: record.window,
            options: Options {
                timestamps: record.timestamps.then_some((timestamp, record.ts_recent)),
                ..Options::default()
            },
            tos: 0,
            ttl: crate::ip::TTL,
        };
        send_bare(ip, now, &bare);
        if renewed {
            let (expires, old) = (record.expires, record.place);
            // Without memory for the later place the record goes at its first one.
            let Some(place) = self.enlist(expires, *tuple) else { return false };
            self.time_wait_queue.remove(&old);
            if let Some(record) = self.time_wait.get_mut(tuple) {
                record.place = place;
            }
        }
        false
    }

    /// Whether a connection of ours may take these addresses; then the record goes, and the sequence number to begin
    /// above is returned.
    pub(super) fn reuse_time_wait(&mut self, now: u64, tuple: &Tuple) -> Result<Option<u32>, ()> {
        match self.time_wait.get(tuple) {
            None => Ok(None),
            Some(record) if record.timestamps && now >= record.created + REUSE_NS => {
                let above = record.next.wrapping_add(65_535 + 2);
                self.forget_time_wait(tuple);
                Ok(Some(above))
            }
            Some(_) => Err(()),
        }
    }
}
