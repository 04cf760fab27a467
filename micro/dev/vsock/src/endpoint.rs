// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All connections of this machine.

use crate::connection::{Connection, State};
use crate::header::{HEADER, HOST_CID, Header, Operation, STREAM};
use abi::{
    Result,
    errno::{EAGAIN, ENOMEM},
};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use api_alloc::Reserve;

/// Connections at a time: directories of the host, the overlay's line, and commands that wait for its tools.
pub const MAX_CONNECTIONS: usize = 24;
/// Answers to packets of no connection that wait to be sent. A host that sends more of them gets no answer to some.
const MAX_ANSWERS: usize = 16;
/// The first port of a connection's own; smaller ones have a meaning elsewhere.
const FIRST_PORT: u32 = 1 << 16;

/// A connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Id(u32);

/// This machine's end of all connections.
#[derive(Debug)]
pub struct Endpoint {
    cid: u64,
    /// The host connects to this port to ask for the end.
    end_port: u32,
    connections: Vec<Connection>,
    answers: VecDeque<Header>,
    next_port: u32,
    /// The connection whose turn is next, so that one with much to send leaves the others their share.
    turn: usize,
    is_asked_to_end: bool,
    has_drained: bool,
}

impl Endpoint {
    /// `cid`: this machine's context identifier. `ENOMEM` without memory for what the host may cause.
    pub fn new(cid: u64, end_port: u32) -> Result<Endpoint> {
        let (mut connections, mut answers) = (Vec::new(), VecDeque::new());
        connections.reserve_fallibly(MAX_CONNECTIONS).map_err(|_| ENOMEM)?;
        answers.reserve_fallibly(MAX_ANSWERS).map_err(|_| ENOMEM)?;
        Ok(Endpoint {
            cid,
            end_port,
            connections,
            answers,
            next_port: FIRST_PORT,
            turn: 0,
            is_asked_to_end: false,
            has_drained: false,
        })
    }

    /// Asks the host for a connection to one of its ports. `EAGAIN` while there are [`MAX_CONNECTIONS`].
    pub fn connect(&mut self, port: u32) -> Result<Id> {
        if self.connections.len() == MAX_CONNECTIONS {
            return Err(EAGAIN);
        }
        while self.next_port < FIRST_PORT || self.connections.iter().any(|c| c.local_port == self.next_port) {
            self.next_port = self.next_port.wrapping_add(1).max(FIRST_PORT);
        }
        let local_port = self.next_port;
        self.next_port = self.next_port.wrapping_add(1);
        self.connections.push(Connection::new(local_port, port).ok_or(ENOMEM)?);
        Ok(Id(local_port))
    }

    /// Gives a connection up: the host is told, and the place is free behind that.
    pub fn close(&mut self, id: Id) {
        if let Some(connection) = self.find_mut(id) {
            connection.is_released = true;
            if connection.state != State::Ended {
                let was_asked_for = connection.owed.request;
                connection.end(!was_asked_for);
            }
        }
        self.drop_released();
    }

    fn drop_released(&mut self) {
        self.connections.retain(|c| !(c.is_released && c.state == State::Ended && !c.owed.reset));
    }

    fn find(&self, id: Id) -> Option<&Connection> {
        self.connections.iter().find(|c| c.local_port == id.0)
    }

    fn find_mut(&mut self, id: Id) -> Option<&mut Connection> {
        self.connections.iter_mut().find(|c| c.local_port == id.0)
    }

    pub fn state(&self, id: Id) -> State {
        self.find(id).map_or(State::Ended, |c| c.state)
    }

    /// Takes bytes that came; 0 when there are none.
    pub fn read(&mut self, id: Id, to: &mut [u8]) -> usize {
        self.find_mut(id).map_or(0, |c| c.read(to))
    }

    /// Takes bytes to be sent, or gives them back while others wait.
    pub fn send(&mut self, id: Id, bytes: Vec<u8>) -> core::result::Result<(), Vec<u8>> {
        self.find_mut(id).map_or(Ok(()), |c| c.send(bytes))
    }

    /// All bytes of a connection were sent since this was called last: others may be.
    pub fn take_drained(&mut self) -> bool {
        core::mem::take(&mut self.has_drained)
    }

    /// The host has asked for the end since this was called last.
    pub fn take_request_to_end(&mut self) -> bool {
        core::mem::take(&mut self.is_asked_to_end)
    }

    /// Heeds a packet that came, with its header.
    pub fn receive(&mut self, packet: &[u8]) {
        let Some(header) = Header::decode(packet) else { return };
        let payload = packet[HEADER..].get(..header.length as usize);
        let Some(payload) =
            payload.filter(|_| (header.source_cid, header.target_cid) == (HOST_CID, self.cid))
        else {
            return;
        };
        let is_its = |c: &&mut Connection| {
            (c.local_port, c.peer_port) == (header.target_port, header.source_port)
                && header.kind == STREAM
                && !c.is_released
        };
        match self.connections.iter_mut().find(is_its) {
            Some(connection) => connection.receive(&header, payload),
            None if header.operation == Operation::RST => {}
            None => {
                let is_request = (header.kind, header.operation) == (STREAM, Operation::REQUEST);
                if is_request && header.target_port == self.end_port {
                    self.is_asked_to_end = true;
                    self.answer(&header, Operation::RESPONSE);
                }
                self.answer(&header, Operation::RST);
            }
        }
    }

    fn answer(&mut self, to: &Header, operation: Operation) {
        if self.answers.len() < MAX_ANSWERS {
            self.answers.push_back(Header {
                length: 0,
                operation,
                kind: to.kind,
                flags: 0,
                buffer: 0,
                taken: 0,
                ..self.header(to.target_port, to.source_port)
            });
        }
    }

    fn header(&self, source_port: u32, target_port: u32) -> Header {
        Header {
            source_cid: self.cid,
            target_cid: HOST_CID,
            source_port,
            target_port,
            length: 0,
            kind: STREAM,
            operation: Operation(0),
            flags: 0,
            buffer: 0,
            taken: 0,
        }
    }

    /// Writes the next packet that is to go, and answers its length; 0 when there is none. `packet` has room for a header and
    /// a byte at least.
    pub fn transmit(&mut self, packet: &mut [u8]) -> usize {
        let Some((head, payload)) = packet.split_at_mut_checked(HEADER) else { return 0 };
        if let Some(header) = self.answers.pop_front() {
            head.copy_from_slice(&header.encode());
            return HEADER;
        }
        let count = self.connections.len();
        for _ in 0..count {
            self.turn = (self.turn + 1) % count;
            let connection = &mut self.connections[self.turn];
            let Some((operation, length)) = connection.transmit(payload) else { continue };
            let (source_port, target_port) = (connection.local_port, connection.peer_port);
            let (buffer, taken) = connection.tell_credit();
            self.has_drained |= operation == Operation::RW && connection.has_room();
            let header = Header {
                operation,
                length: length as u32,
                buffer,
                taken,
                ..self.header(source_port, target_port)
            };
            head.copy_from_slice(&header.encode());
            self.drop_released();
            return HEADER + length;
        }
        0
    }
}

#[cfg(test)]
mod tests;
