// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a socket has received: messages with their bytes, sender, descriptors and credentials.

use crate::names::Called;
use crate::socket::UnixSocket;
use alloc::collections::VecDeque;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_fs::Timespec;
use api_socket::{Credentials, Rights};

/// Small writes of a stream are put together up to here.
const GATHER: usize = 4096;

/// What a message takes of its sender's send buffer, until it is read or dropped.
pub struct Charge {
    sender: Weak<UnixSocket>,
    weight: usize,
}

impl Charge {
    /// The sender counted `weight` already.
    pub fn new(sender: Weak<UnixSocket>, weight: usize) -> Charge {
        Charge { sender, weight }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some(sender) = self.sender.upgrade() {
            sender.discharge(self.weight);
        }
    }
}

/// What a byte that was sent with MSG_OOB makes of its message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Urgent {
    /// No such byte, or one behind which another came.
    #[default]
    No,
    /// The byte is the stream's urgent one.
    Byte,
    /// The byte was read with MSG_OOB; where it was, a read ends.
    Mark,
}

/// What a read of a stream finds next.
pub enum Next {
    Message(Message),
    /// Something that a read passes over: an urgent byte, or the place of one.
    Passed(Message),
    /// The read ends before an urgent byte.
    Mark,
    Nothing,
}

pub struct Message {
    pub bytes: Vec<u8>,
    /// Of `bytes`, how many were read (streams).
    pub start: usize,
    /// SCM_RIGHTS sent along; taken with the first byte.
    pub rights: Option<Rights>,
    /// `None`: neither side asked for them when it was sent.
    pub credentials: Option<Credentials>,
    /// Who sent it.
    pub from: Arc<Called>,
    /// When a packet was sent to somebody who wants to know.
    pub stamp: Option<Timespec>,
    /// An empty packet that was looked at, so that the next look behind it passes it (SO_PEEK_OFF).
    pub was_seen: bool,
    pub urgent: Urgent,
    pub charge: Charge,
}

impl Message {
    pub fn rest(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

/// Messages in order. Whoever drops one holds no lock of a socket, for its sender is woken and its files are closed.
#[derive(Default)]
pub struct Queue {
    messages: VecDeque<Message>,
    bytes: usize,
    /// One of them is the urgent byte.
    has_urgent: bool,
}

impl Queue {
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Messages in it.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Bytes that can be read.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn first(&self) -> Option<&Message> {
        self.messages.front()
    }

    /// The packet that lies so many bytes behind the first one; what is left of these lies within it.
    pub fn packet_at(&mut self, offset: &mut usize) -> Option<&Message> {
        for message in &mut self.messages {
            let length = message.bytes.len();
            if *offset >= length && (*offset > 0 || message.was_seen) {
                *offset -= length;
                continue;
            }
            message.was_seen |= length == 0;
            return Some(message);
        }
        None
    }

    /// In order.
    pub fn messages(&self) -> impl Iterator<Item = &Message> {
        self.messages.iter()
    }

    /// What travels with the messages.
    pub fn rights(&self) -> impl Iterator<Item = &Rights> {
        self.messages.iter().filter_map(|m| m.rights.as_ref())
    }

    /// Appends a message; gives it back when there is no memory for it.
    pub fn push(&mut self, message: Message) -> Option<Message> {
        if self.messages.reserve_fallibly(1).is_err() {
            return Some(message);
        }
        self.bytes += message.rest().len();
        self.messages.push_back(message);
        None
    }

    /// There is an urgent byte to read.
    pub fn has_urgent(&self) -> bool {
        self.has_urgent
    }

    fn urgent(&mut self) -> Option<usize> {
        let at = |queue: &Queue| queue.messages.iter().rposition(|m| m.urgent == Urgent::Byte);
        if self.has_urgent { at(self) } else { None }
    }

    /// As [`Queue::push`], of the stream's urgent byte; the one before it is one as others are.
    pub fn push_urgent(&mut self, message: Message) -> Option<Message> {
        let before = self.urgent();
        let refused = self.push(message);
        if refused.is_none() {
            if let Some(before) = before.and_then(|at| self.messages.get_mut(at)) {
                before.urgent = Urgent::No;
            }
            self.has_urgent = true;
        }
        refused
    }

    /// The urgent byte, whose place stays unless it is only looked at, and a message that is over.
    pub fn take_urgent(&mut self, looks: bool) -> Option<(u8, Option<Message>)> {
        let at = self.urgent()?;
        let message = self.messages.get_mut(at)?;
        let byte = *message.rest().first()?;
        if looks {
            return Some((byte, None));
        }
        message.start += 1;
        message.urgent = Urgent::Mark;
        self.bytes -= 1;
        self.has_urgent = false;
        // Of places that follow each other one is enough.
        let is_second = at > 0 && self.messages[at - 1].urgent == Urgent::Mark;
        Some((byte, if is_second { self.messages.remove(at - 1) } else { None }))
    }

    /// What a read finds that has some bytes already (`has_some`); with `inline` (SO_OOBINLINE) the urgent byte is among those that it
    /// reads.
    pub fn next(&mut self, has_some: bool, inline: bool) -> Next {
        let urgent = self.messages.front().map(|first| first.urgent);
        match urgent {
            Some(Urgent::Byte) if has_some => return Next::Mark,
            Some(Urgent::Mark) if has_some && !self.has_urgent => return Next::Mark,
            Some(Urgent::Byte) => self.has_urgent = false,
            _ => {}
        }
        match (self.pop(), urgent) {
            (Some(message), Some(Urgent::Byte)) if inline => {
                Next::Message(Message { urgent: Urgent::No, ..message })
            }
            (Some(message), Some(Urgent::No)) => Next::Message(message),
            (Some(message), _) => Next::Passed(message),
            (None, _) => Next::Nothing,
        }
    }

    /// A read would begin where an urgent byte is, or was (sockatmark(3)).
    pub fn is_at_mark(&self) -> bool {
        let mut all = self.messages.iter().map(|message| message.urgent);
        match (all.next(), all.next()) {
            (Some(Urgent::Byte), _) => true,
            (Some(Urgent::Mark), next) => !self.has_urgent || next == Some(Urgent::Byte),
            _ => false,
        }
    }

    /// Nothing is there but places of urgent bytes that were read.
    pub fn is_read(&self) -> bool {
        self.messages.iter().all(|message| message.urgent == Urgent::Mark)
    }

    /// As [`Queue::push`], of a stream: joins the last message where nothing sets the two apart.
    pub fn push_stream(&mut self, mut message: Message) -> Option<Message> {
        if let Some(last) = self.messages.back_mut()
            && message.rights.is_none()
            && last.rights.is_none()
            && last.urgent == Urgent::No
            && last.credentials == message.credentials
            && last.bytes.len() + message.bytes.len() <= GATHER
            && last.bytes.reserve_fallibly(message.bytes.len()).is_ok()
        {
            last.bytes.extend_from_slice(&message.bytes);
            last.charge.weight += core::mem::take(&mut message.charge.weight);
            self.bytes += message.bytes.len();
            return None;
        }
        self.push(message)
    }

    pub fn pop(&mut self) -> Option<Message> {
        let message = self.messages.pop_front()?;
        self.bytes -= message.rest().len();
        Some(message)
    }

    /// Puts back what is left of a message that was taken out, for which there is room.
    pub fn push_front(&mut self, message: Message) {
        self.bytes += message.rest().len();
        self.messages.push_front(message);
    }
}
