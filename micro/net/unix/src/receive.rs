// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Receiving: bytes in order or packets, with what travels along.

use crate::garbage;
use crate::queue::{Message, Next, Urgent};
use crate::socket::{State, UnixSocket};
use abi::linux::net as linux;
use abi::{Result, errno::*};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_fs::{Sink, Timespec};
use api_socket::{Control, Credentials, Received, Rights, Type};

/// Of a message that was sent before anybody asked for credentials: no process, and nobody's ids.
const UNKNOWN: Credentials = Credentials { pid: 0, uid: 65_534, gid: 65_534 };

impl UnixSocket {
    /// Why there is nothing to read.
    fn nothing(&self, state: &mut State, flags: u32) -> Result<Received> {
        if let Some(error) = state.error.take() {
            return Err(error);
        }
        // Of datagrams only those who would wait are told of the end (Linux' __skb_wait_for_more_packets).
        if self.kind == Type::Datagram && flags & linux::MSG_DONTWAIT != 0 {
            return Err(EAGAIN);
        }
        if state.read_shut || state.peer_gone {
            return Ok(Received::default());
        }
        Err(EAGAIN)
    }

    /// Control messages in Linux' order: credentials come before descriptors.
    fn control(&self, credentials: Option<Credentials>, rights: Option<Rights>) -> Vec<Control> {
        let passes = self.passes_credentials();
        let credentials = passes.then(|| Control::Credentials(credentials.unwrap_or(UNKNOWN)));
        credentials.into_iter().chain(rights.map(Control::Rights)).collect()
    }

    /// The same of a packet, whose time comes first; of one that was sent before anybody wanted to know it is the time it is read.
    fn packet_control(
        &self,
        stamp: Option<Timespec>,
        credentials: Option<Credentials>,
        rights: Option<Rights>,
    ) -> Vec<Control> {
        let mut control = self.control(credentials, rights);
        if let Some(stamps) = self.stamps() {
            let other = |(level, kind, data)| Control::Other { level: level as i32, kind: kind as i32, data };
            control.splice(..0, stamps.messages(stamp.unwrap_or_else(Timespec::now)).map(other));
        }
        control
    }

    fn pop(&self, flags: u32) -> Result<core::result::Result<Message, Received>> {
        let mut state = self.state.lock();
        match state.inbox.pop() {
            Some(message) => Ok(Ok(message)),
            None => self.nothing(&mut state, flags).map(Err),
        }
    }

    /// Puts back what is left of a message. The collector may have looked while it was out; if there is no memory to tell it
    /// again, it takes the descriptors for those of somebody outside, and keeps them.
    fn put_back(&self, message: Message) {
        if let Some(me) = self.me.upgrade() {
            let _ = garbage::note(&me, message.rights.as_ref());
        }
        self.state.lock().inbox.push_front(message);
    }

    pub fn receive_packet(&self, to: &mut Sink<'_>, flags: u32) -> Result<Received> {
        let peek = flags & linux::MSG_PEEK != 0;
        // Of packets the error comes first, of a stream what was sent before it.
        if let Some(error) = self.state.lock().error.take() {
            return Err(error);
        }
        if let Some(start) = self.peek.start().filter(|_| peek) {
            return self.peek_packet(to, flags, start);
        }
        let mut message = match self.pop(flags)? {
            Ok(message) => message,
            Err(nothing) => return Ok(nothing),
        };
        let moved = to.put(&message.bytes);
        let full = message.bytes.len();
        let received = Received {
            length: if flags & linux::MSG_TRUNC != 0 { full } else { moved.unwrap_or(0) },
            from: message.from.get(),
            control: self.packet_control(message.stamp, message.credentials, message.rights.clone()),
            flags: if moved.is_ok_and(|n| n < full) { linux::MSG_TRUNC } else { 0 },
        };
        if peek || moved.is_err() {
            message.was_seen |= full == 0;
            self.put_back(message);
        } else {
            drop(message);
            self.peek.read(full);
            self.made_room();
        }
        moved.map(|_| received)
    }

    pub fn receive_stream(&self, to: &mut Sink<'_>, flags: u32) -> Result<Received> {
        if flags & linux::MSG_PEEK != 0 {
            return self.peek_stream(to, flags);
        }
        let mut received = Received::default();
        let mut sender: Option<Option<Credentials>> = None;
        let mut from = None;
        let mut rights = None;
        let (pass, inline) = (self.passes_credentials(), self.reads_urgent_inline());
        // A read of nothing, too, waits for a message and takes what travels with it.
        loop {
            let mut message = {
                let mut state = self.state.lock();
                // A read ends where another sender begins, and behind a message with descriptors, not before it.
                let begins_other = |m: &Message| sender.is_some_and(|s| pass && s != m.credentials);
                let ends = state.inbox.first().is_some_and(begins_other);
                let next = if ends { Next::Mark } else { state.inbox.next(received.length > 0, inline) };
                match next {
                    Next::Message(message) => message,
                    Next::Passed(passed) => {
                        drop(state);
                        drop(passed);
                        continue;
                    }
                    Next::Mark | Next::Nothing if received.length > 0 => break,
                    Next::Mark | Next::Nothing => return self.nothing(&mut state, flags),
                }
            };
            let moved = to.put(message.rest());
            message.start += *moved.as_ref().unwrap_or(&0);
            received.length += *moved.as_ref().unwrap_or(&0);
            if sender.is_none() {
                from = message.from.get();
            }
            sender = Some(message.credentials);
            if moved.is_ok() {
                rights = message.rights.take();
            }
            if !message.rest().is_empty() {
                self.put_back(message);
                if received.length == 0 {
                    moved?;
                }
                break;
            }
            if rights.is_some() || to.remaining() == 0 {
                break;
            }
        }
        self.peek.read(received.length);
        if let Some(sender) = sender {
            received.control = self.control(sender, rights);
            received.from = from;
        }
        Ok(received)
    }

    /// Looks at the packet that lies so many bytes behind the first one (SO_PEEK_OFF), of which a copy is made: others may read
    /// meanwhile.
    fn peek_packet(&self, to: &mut Sink<'_>, flags: u32, start: usize) -> Result<Received> {
        let mut offset = start;
        let (bytes, rest, received) = {
            let mut state = self.state.lock();
            let Some(message) = state.inbox.packet_at(&mut offset) else {
                return self.nothing(&mut state, flags);
            };
            let rest = &message.bytes[offset..];
            let mut bytes = Vec::new();
            append(&mut bytes, &rest[..rest.len().min(to.remaining())])?;
            let (from, credentials, rights) =
                (message.from.get(), message.credentials, message.rights.clone());
            (bytes, rest.len(), (from, message.stamp, credentials, rights))
        };
        let moved = to.put(&bytes)?;
        self.peek.looked(moved);
        let (from, stamp, credentials, rights) = received;
        Ok(Received {
            length: if flags & linux::MSG_TRUNC != 0 { rest } else { moved },
            from,
            control: self.packet_control(stamp, credentials, rights),
            flags: if moved < rest { linux::MSG_TRUNC } else { 0 },
        })
    }

    /// The urgent byte of a stream: `EINVAL` without one, and where it is read among the others.
    pub fn receive_urgent(&self, to: &mut Sink<'_>, flags: u32) -> Result<Received> {
        if self.reads_urgent_inline() {
            return Err(EINVAL);
        }
        let looks = flags & linux::MSG_PEEK != 0;
        let taken = self.state.lock().inbox.take_urgent(looks);
        let (byte, over) = taken.ok_or(EINVAL)?;
        drop(over);
        to.put(&[byte])?;
        Ok(Received { length: 1, flags: linux::MSG_OOB, ..Received::default() })
    }

    /// Looks at as much of the stream as one read would take, from where the last look ended if SO_PEEK_OFF says so.
    fn peek_stream(&self, to: &mut Sink<'_>, flags: u32) -> Result<Received> {
        let (pass, inline) = (self.passes_credentials(), self.reads_urgent_inline());
        let room = to.remaining();
        let mut skipped = self.peek.start().unwrap_or(0);
        let (mut bytes, mut first, mut rights) = (Vec::new(), None, None);
        {
            let mut state = self.state.lock();
            let has_urgent = state.inbox.has_urgent();
            for message in state.inbox.messages() {
                match message.urgent {
                    Urgent::Byte if !bytes.is_empty() => break,
                    Urgent::Mark if !bytes.is_empty() && !has_urgent => break,
                    Urgent::Byte if !inline => continue,
                    Urgent::Mark => continue,
                    Urgent::Byte | Urgent::No => {}
                }
                if skipped > 0 && skipped >= message.rest().len() {
                    skipped -= message.rest().len();
                    continue;
                }
                if first.as_ref().is_some_and(|(_, credentials)| pass && *credentials != message.credentials)
                {
                    break;
                }
                let rest = &message.rest()[skipped..];
                skipped = 0;
                let left = room - bytes.len();
                append(&mut bytes, &rest[..rest.len().min(left)])?;
                first.get_or_insert_with(|| (message.from.get(), message.credentials));
                rights.clone_from(&message.rights);
                if rights.is_some() || bytes.len() == room {
                    break;
                }
            }
            if first.is_none() {
                return self.nothing(&mut state, flags);
            }
        }
        let moved = to.put(&bytes)?;
        self.peek.looked(moved);
        let (from, credentials) = first.unwrap_or_default();
        Ok(Received {
            length: moved,
            from,
            control: self.control(credentials, rights),
            ..Received::default()
        })
    }
}

fn append(to: &mut Vec<u8>, bytes: &[u8]) -> Result<()> {
    to.reserve_fallibly(bytes.len()).map_err(|_| ENOBUFS)?;
    to.extend_from_slice(bytes);
    Ok(())
}
