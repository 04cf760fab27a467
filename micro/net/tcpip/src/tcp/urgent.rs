// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Urgent data (RFC 9293 3.8.5, RFC 6093) as sockets of Linux have it: the pointer names the byte behind the urgent
//! one, and that one byte is taken out of the stream unless SO_OOBINLINE leaves it in.

use super::Tcp;
use super::connection::{Connection, State};
use crate::seq;
use crate::slab::Id;
use crate::wire::{Flags, Tcp as Header};
use abi::{Events, Result, errno::*};
use api_netdev::Incoming;

/// What has become of the urgent byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Byte {
    /// Announced only.
    Coming,
    Here(u8),
    /// Fetched with MSG_OOB; its place in the stream still counts.
    Read,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    /// From what the program reads next, in bytes of the stream.
    distance: u32,
    byte: Byte,
}

/// Urgent data of a connection, both ways.
#[derive(Default)]
pub struct Urgent {
    /// Sequence number behind the last urgent byte, until it is acknowledged.
    sent: Option<u32>,
    mark: Option<Mark>,
}

impl Urgent {
    /// What was queued last is urgent; `end` is the sequence number behind it.
    pub fn send(&mut self, end: u32) {
        self.sent = Some(end);
    }

    pub fn acknowledged(&mut self, ack: u32) {
        self.sent = self.sent.filter(|end| seq::lt(ack, *end));
    }

    /// Urgent data is on its way: nothing holds it up.
    pub fn is_sending(&self) -> bool {
        self.sent.is_some()
    }

    /// The urgent pointer of a segment, if it has one.
    pub fn pointer(&self, start: u32) -> Option<u16> {
        let end = self.sent.filter(|end| seq::lt(start, *end))?;
        // Farther away than the field can say: the segments to come will tell.
        u16::try_from(end.wrapping_sub(start)).ok()
    }

    pub fn is_awaited(&self) -> bool {
        self.mark.is_some_and(|mark| mark.byte == Byte::Coming)
    }

    pub fn is_readable(&self) -> bool {
        self.mark.is_some_and(|mark| matches!(mark.byte, Byte::Here(_)))
    }

    /// SIOCATMARK: what is read next is the urgent byte.
    pub fn is_at_mark(&self) -> bool {
        self.distance() == Some(0)
    }

    /// Bytes before the mark.
    pub fn distance(&self) -> Option<u32> {
        self.mark.map(|mark| mark.distance)
    }

    /// The program has read that much of the stream.
    pub fn advance(&mut self, bytes: usize) {
        if let Some(mark) = &mut self.mark {
            match mark.distance.checked_sub(bytes as u32) {
                Some(left) => mark.distance = left,
                None => self.mark = None,
            }
        }
    }
}

impl Connection {
    /// A segment with urgent data, or while some is awaited (Linux' `tcp_urg`).
    pub fn take_urgent(&mut self, header: &Header, payload: &Incoming, length: usize) {
        if self.peer_done {
            return;
        }
        let read_next = self.received.wrapping_sub(self.input.len() as u32);
        if header.flags.has(Flags::URG) {
            let at = header.seq.wrapping_add(u32::from(header.urgent.max(1)) - 1);
            let distance = at.wrapping_sub(read_next);
            // Neither one that was passed, nor the same again, nor an older one.
            let is_new =
                !seq::lt(at, self.received) && self.urgent.mark.is_none_or(|mark| mark.distance < distance);
            if is_new {
                let mut distance = distance;
                // The last one was not read past: only one place can be kept.
                if self.urgent.is_at_mark() && !self.settings.urgent_inline && !self.input.is_empty() {
                    self.drop_first();
                    distance -= 1;
                }
                self.urgent.mark = Some(Mark { distance, byte: Byte::Coming });
                self.happened(Events::PRI);
            }
        }
        if let Some(mark) = &mut self.urgent.mark
            && mark.byte == Byte::Coming
        {
            let read_next = self.received.wrapping_sub(self.input.len() as u32);
            let offset = read_next.wrapping_add(mark.distance).wrapping_sub(header.seq) as usize;
            if offset < length
                && let Some(byte) = byte_at(payload, offset)
            {
                mark.byte = Byte::Here(byte);
                self.happened(Events::PRI | Events::READABLE);
            }
        }
    }

    /// Takes the byte at the front out of the stream.
    fn drop_first(&mut self) {
        if let Some(mut buffer) = self.input.pop() {
            buffer.trim_front(1);
            if !buffer.is_empty() {
                self.input.push_front(buffer);
            }
        }
    }

    /// Before reading: how many bytes lie before the mark. At the mark itself the urgent byte is left out, or
    /// reading ends there when it has begun.
    pub fn readable_to_mark(&mut self, has_begun: bool) -> usize {
        match self.urgent.distance() {
            None => usize::MAX,
            Some(0) if has_begun => 0,
            Some(0) if self.settings.urgent_inline => usize::MAX,
            Some(0) => {
                if !self.input.is_empty() {
                    self.drop_first();
                    self.urgent.mark = None;
                }
                usize::MAX
            }
            Some(distance) => distance as usize,
        }
    }

    /// The stream hides the byte that is read next.
    pub fn hides_first(&self) -> bool {
        self.urgent.is_at_mark() && !self.settings.urgent_inline
    }

    /// FIONREAD: up to the mark.
    pub fn readable_bytes(&self) -> usize {
        match self.urgent.distance() {
            Some(distance) if !self.settings.urgent_inline => self.input.len().min(distance as usize),
            _ => self.input.len(),
        }
    }
}

fn byte_at(payload: &Incoming, mut offset: usize) -> Option<u8> {
    for buffer in core::iter::once(&payload.first).chain(&payload.more) {
        if let Some(byte) = buffer.bytes().get(offset) {
            return Some(*byte);
        }
        offset -= buffer.len();
    }
    None
}

impl Tcp {
    /// recv(2) with MSG_OOB; `None` at the end of the stream.
    pub fn receive_urgent(&mut self, id: Id, peek: bool) -> Result<Option<u8>> {
        let connection = self.connection(id).map_err(|_| ENOTCONN)?;
        if connection.settings.urgent_inline {
            return Err(EINVAL);
        }
        match connection.urgent.mark.as_mut().map(|mark| &mut mark.byte) {
            None | Some(Byte::Read) => Err(EINVAL),
            Some(byte) if let Byte::Here(value) = *byte => {
                if !peek {
                    *byte = Byte::Read;
                }
                Ok(Some(value))
            }
            _ if connection.state == State::Closed || connection.read_shut => Ok(None),
            _ => Err(EAGAIN),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pointer_names_the_byte_behind_the_urgent_one() {
        let mut urgent = Urgent::default();
        assert_eq!(urgent.pointer(100), None);
        urgent.send(u32::MAX.wrapping_add(5));
        assert_eq!(urgent.pointer(u32::MAX - 1), Some(6));
        assert_eq!(urgent.pointer(4), None);
        assert_eq!(urgent.pointer(4u32.wrapping_sub(70_000)), None);
        urgent.acknowledged(3);
        assert!(urgent.is_sending());
        urgent.acknowledged(4);
        assert!(!urgent.is_sending());
    }

    #[test]
    fn the_mark_comes_nearer_and_is_passed() {
        let mut urgent = Urgent { sent: None, mark: Some(Mark { distance: 3, byte: Byte::Coming }) };
        urgent.advance(3);
        assert!(urgent.is_at_mark() && urgent.is_awaited() && !urgent.is_readable());
        urgent.advance(1);
        assert_eq!(urgent.distance(), None);
    }
}
