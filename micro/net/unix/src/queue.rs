// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a socket has received: messages with their bytes, sender, descriptors and credentials.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use api_socket::{Address, Credentials, Rights};

/// Small writes of a stream are put together up to here.
const GATHER: usize = 4096;
/// Bookkeeping counted for each message, so that empty ones fill the queue too.
const OVERHEAD: usize = 64;

pub struct Message {
    pub bytes: Vec<u8>,
    /// Of `bytes`, how many were read (streams).
    pub start: usize,
    /// SCM_RIGHTS sent along; taken with the first byte.
    pub rights: Option<Rights>,
    pub credentials: Credentials,
    pub from: Option<Address>,
}

impl Message {
    pub fn rest(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    fn weight(&self) -> usize {
        self.bytes.len() + OVERHEAD
    }
}

#[derive(Default)]
pub struct Queue {
    messages: VecDeque<Message>,
    weight: usize,
    bytes: usize,
}

impl Queue {
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Bytes that can be read.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What the queue takes of the limit.
    pub fn weight(&self) -> usize {
        self.weight
    }

    pub fn first(&self) -> Option<&Message> {
        self.messages.front()
    }

    pub fn push(&mut self, message: Message) {
        self.weight += message.weight();
        self.bytes += message.rest().len();
        self.messages.push_back(message);
    }

    /// Appends to the last message of a stream where nothing sets the two apart; else gives the message back.
    pub fn merge(&mut self, message: Message) -> Option<Message> {
        if let Some(last) = self.messages.back_mut()
            && message.rights.is_none()
            && last.rights.is_none()
            && last.credentials == message.credentials
            && last.bytes.len() + message.bytes.len() <= GATHER
            && last.bytes.try_reserve(message.bytes.len()).is_ok()
        {
            last.bytes.extend_from_slice(&message.bytes);
            self.weight += message.bytes.len();
            self.bytes += message.bytes.len();
            return None;
        }
        Some(message)
    }

    pub fn pop(&mut self) -> Option<Message> {
        let message = self.messages.pop_front()?;
        self.weight -= message.weight();
        self.bytes -= message.rest().len();
        Some(message)
    }

    /// Puts back what is left of a message.
    pub fn unpop(&mut self, message: Message) {
        self.weight += message.weight();
        self.bytes += message.rest().len();
        self.messages.push_front(message);
    }
}
