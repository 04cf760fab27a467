// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One connection: its state, what waits in it, and the credit of both sides (virtio 1.2, 5.10.6.3).

use crate::header::{Header, Operation};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use api_alloc::Reserve;

/// Bytes that wait for the reader of a connection, which the host is told (`buf_alloc`).
pub const BUFFER: usize = 32 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The host has not answered yet.
    Connecting,
    Open,
    /// Closed by the host or reset: what came before may still be read, and what is sent is lost.
    Ended,
}

/// Packets that a connection owes the host, besides its data.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Owed {
    pub request: bool,
    pub reset: bool,
    pub credit: bool,
    pub credit_request: bool,
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub local_port: u32,
    pub peer_port: u32,
    pub state: State,
    pub owed: Owed,
    /// Nobody here uses it any more.
    pub is_released: bool,
    incoming: VecDeque<u8>,
    /// Bytes that the reader has taken, and of which the host knows; modulo 2^32, as all of these counters.
    taken: u32,
    told: u32,
    outgoing: Vec<u8>,
    /// Where the rest of `outgoing` begins.
    offset: usize,
    sent: u32,
    /// The peer's buffer, and what its reader has taken.
    peer_buffer: u32,
    peer_taken: u32,
}

impl Connection {
    /// A connection that is to be asked for; `None` without memory for its buffer.
    pub fn new(local_port: u32, peer_port: u32) -> Option<Connection> {
        let mut incoming = VecDeque::new();
        incoming.reserve_fallibly(BUFFER).ok()?;
        Some(Connection {
            local_port,
            peer_port,
            state: State::Connecting,
            owed: Owed { request: true, ..Owed::default() },
            is_released: false,
            incoming,
            taken: 0,
            told: 0,
            outgoing: Vec::new(),
            offset: 0,
            sent: 0,
            peer_buffer: 0,
            peer_taken: 0,
        })
    }

    /// Ends the connection, and tells the host when `reset`.
    pub fn end(&mut self, reset: bool) {
        self.state = State::Ended;
        self.owed = Owed { reset, ..Owed::default() };
        self.outgoing = Vec::new();
        self.offset = 0;
    }

    /// Bytes the peer has room for.
    fn credit(&self) -> usize {
        self.peer_buffer.saturating_sub(self.sent.wrapping_sub(self.peer_taken)) as usize
    }

    /// Heeds a packet to this connection.
    pub fn receive(&mut self, header: &Header, payload: &[u8]) {
        if self.state == State::Ended {
            return;
        }
        // A peer cannot have taken more than it was sent, nor less than it said before.
        let in_flight = self.sent.wrapping_sub(self.peer_taken);
        if header.taken.wrapping_sub(self.peer_taken) > in_flight {
            return self.end(true);
        }
        (self.peer_buffer, self.peer_taken) = (header.buffer, header.taken);
        if self.credit() > 0 {
            self.owed.credit_request = false;
        }
        match (header.operation, self.state) {
            (Operation::RST, _) => self.end(false),
            // The reset is the answer to a shutdown, which monitors send for both directions at once.
            (Operation::SHUTDOWN, _) => self.end(true),
            (Operation::RESPONSE, State::Connecting) => self.state = State::Open,
            (Operation::RW, State::Open) if self.incoming.len() + payload.len() <= BUFFER => {
                self.incoming.extend(payload);
            }
            (Operation::CREDIT_UPDATE, State::Open) => {}
            (Operation::CREDIT_REQUEST, State::Open) => self.owed.credit = true,
            _ => self.end(true),
        }
    }

    /// Takes bytes that came; 0 when there are none.
    pub fn read(&mut self, to: &mut [u8]) -> usize {
        let mut length = 0;
        for part in <[&[u8]; 2]>::from(self.incoming.as_slices()) {
            let count = part.len().min(to.len() - length);
            to[length..length + count].copy_from_slice(&part[..count]);
            length += count;
        }
        self.incoming.drain(..length);
        self.taken = self.taken.wrapping_add(length as u32);
        // The host learns of it before it has to wait.
        self.owed.credit |=
            self.state == State::Open && self.taken.wrapping_sub(self.told) as usize >= BUFFER / 2;
        length
    }

    /// Takes bytes to be sent, or gives them back while others wait. Of a connection that has ended they are lost.
    pub fn send(&mut self, bytes: Vec<u8>) -> Result<(), Vec<u8>> {
        if self.state == State::Ended {
            return Ok(());
        }
        if !self.outgoing.is_empty() {
            return Err(bytes);
        }
        self.outgoing = bytes;
        Ok(())
    }

    /// Others could be sent.
    pub fn has_room(&self) -> bool {
        self.outgoing.is_empty()
    }

    /// The next packet that this connection owes, its payload written to `payload`.
    pub fn transmit(&mut self, payload: &mut [u8]) -> Option<(Operation, usize)> {
        let owed = &mut self.owed;
        let operation = if core::mem::take(&mut owed.reset) {
            Operation::RST
        } else if core::mem::take(&mut owed.request) {
            Operation::REQUEST
        } else if core::mem::take(&mut owed.credit) {
            Operation::CREDIT_UPDATE
        } else {
            return self.transmit_data(payload);
        };
        Some((operation, 0))
    }

    fn transmit_data(&mut self, payload: &mut [u8]) -> Option<(Operation, usize)> {
        let rest = &self.outgoing[self.offset..];
        if self.state != State::Open || rest.is_empty() {
            return None;
        }
        let length = rest.len().min(self.credit()).min(payload.len());
        if length == 0 {
            // Asked for once, until credit comes.
            let is_new = !core::mem::replace(&mut self.owed.credit_request, true);
            return is_new.then_some((Operation::CREDIT_REQUEST, 0));
        }
        payload[..length].copy_from_slice(&rest[..length]);
        self.offset += length;
        self.sent = self.sent.wrapping_add(length as u32);
        if self.offset == self.outgoing.len() {
            self.outgoing = Vec::new();
            self.offset = 0;
        }
        Some((Operation::RW, length))
    }

    /// What the host is told with each packet: how much is buffered here, and how much was taken.
    pub fn tell_credit(&mut self) -> (u32, u32) {
        self.told = self.taken;
        self.owed.credit = false;
        (BUFFER as u32, self.taken)
    }
}
