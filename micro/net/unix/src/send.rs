// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sending: what a message takes of the send buffer, whom it reaches, and who waits for room.
//!
//! As on Linux a socket's send buffer is what of its messages is queued at receivers, each counted with the memory that
//! a socket buffer of Linux takes, so that a program that fills a buffer to see how much goes in finds the same.

use crate::garbage;
use crate::names;
use crate::queue::{Charge, Message, Urgent};
use crate::socket::UnixSocket;
use abi::linux::net as linux;
use abi::{Events, Result, errno::*};
use alloc::sync::Arc;
use api_fs::{Source, Timespec};
use api_socket::filter::environment;
use api_socket::{Address, Caller, Control, Credentials, Rights, Sending, Type};
use classic_bpf::packet::Packet;
use core::sync::atomic::Ordering;

/// Linux' `sizeof(struct sk_buff)`, and `struct skb_shared_info` behind the bytes.
const BUFFER: usize = 256;
const SHARED_INFO: usize = 320;
const PAGE: usize = 4096;
/// Bytes of a datagram that are one block; the rest is in pages (Linux' SKB_MAX_ALLOC).
const DATAGRAM_BLOCK: usize = 4 * PAGE - SHARED_INFO;
/// The same of a stream (SKB_MAX_HEAD), and what it has in pages at most.
const STREAM_BLOCK: usize = PAGE - SHARED_INFO;
const STREAM_PAGES: usize = 8 * PAGE;

/// Memory of a message on Linux.
fn weight(length: usize, block: usize) -> usize {
    let inline = length.min(block);
    BUFFER + (inline + SHARED_INFO).next_power_of_two() + (length - inline).next_multiple_of(PAGE)
}

fn rights_of(message: &Sending) -> Option<Rights> {
    message.control.iter().find_map(|c| match c {
        Control::Rights(rights) => Some(rights.clone()),
        _ => None,
    })
}

fn claimed(message: &Sending) -> Option<Credentials> {
    message.control.iter().find_map(|c| match c {
        Control::Credentials(credentials) => Some(*credentials),
        _ => None,
    })
}

impl UnixSocket {
    /// Counts a message, while there is any room at all (the last one may exceed it).
    fn charge(&self, weight: usize) -> Result<Charge> {
        if self.sent.load(Ordering::Relaxed) >= self.send_buffer() {
            return Err(EAGAIN);
        }
        if api_alloc::is_low() {
            return Err(ENOBUFS);
        }
        self.sent.fetch_add(weight, Ordering::Relaxed);
        Ok(Charge::new(self.me.clone(), weight))
    }

    /// A message was read or dropped.
    pub fn discharge(&self, weight: usize) {
        if weight > 0 {
            self.sent.fetch_sub(weight, Ordering::Relaxed);
            if self.is_writable() {
                self.waiters.wake(Events::SENDABLE);
            }
        }
    }

    /// Linux' unix_writable: three quarters of the buffer are free.
    pub fn is_writable(&self) -> bool {
        self.sent.load(Ordering::Relaxed) << 2 <= self.send_buffer()
    }

    /// Credentials travel when either side wants them, or when the sender says whose they are.
    fn credentials_for(
        &self,
        target: &UnixSocket,
        caller: Option<&Caller<'_>>,
        message: &Sending,
    ) -> Option<Credentials> {
        claimed(message).or_else(|| {
            let wanted = self.passes_credentials() || target.passes_credentials() || target.is_unaccepted();
            wanted.then(|| caller.map_or(self.creator, |c| c.names.sender()))
        })
    }

    pub fn send_stream(
        &self,
        caller: Option<&Caller<'_>>,
        message: &Sending,
        from: &mut Source<'_>,
    ) -> Result<usize> {
        if message.to.as_ref().is_some_and(|to| !to.bytes().is_empty()) {
            return Err(if self.is_established() { EISCONN } else { EOPNOTSUPP });
        }
        // The last byte of what is sent with MSG_OOB is urgent.
        let has_urgent = message.flags & linux::MSG_OOB != 0;
        let mut rights = rights_of(message);
        let mut done = 0;
        loop {
            let urgent = if has_urgent && from.remaining() == 1 { Urgent::Byte } else { Urgent::No };
            let most = from.remaining() - usize::from(has_urgent && from.remaining() > 1);
            match self.send_piece(caller, message, &mut rights, from, (most, urgent)) {
                Ok(0) => return Ok(done),
                Ok(n) => done += n,
                Err(e) if done == 0 => return Err(e),
                Err(_) => return Ok(done),
            }
        }
    }

    /// Sends what one message of a stream holds, so much at most; 0 when there is nothing left.
    fn send_piece(
        &self,
        caller: Option<&Caller<'_>>,
        message: &Sending,
        rights: &mut Option<Rights>,
        from: &mut Source<'_>,
        (most, urgent): (usize, Urgent),
    ) -> Result<usize> {
        let peer = self.peer()?;
        if peer.is_deaf() {
            return Err(EPIPE);
        }
        let length = most.min(STREAM_BLOCK + STREAM_PAGES).min(self.send_buffer() / 2 - 64);
        if length == 0 {
            return Ok(0);
        }
        let charge = self.charge(weight(length, STREAM_BLOCK))?;
        let bytes = from.take_vec(length)?;
        let sent = bytes.len();
        let credentials = self.credentials_for(&peer, caller, message);
        let from = self.called.clone();
        let rights = rights.take();
        let piece = Message {
            bytes,
            start: 0,
            rights,
            credentials,
            from,
            stamp: None,
            was_seen: false,
            urgent,
            charge,
        };
        // The program's memory may have been waited for: who was there then may be gone.
        if peer.is_deaf() {
            return Err(EPIPE);
        }
        garbage::note(&peer, piece.rights.as_ref())?;
        let refused = {
            let inbox = &mut peer.state.lock().inbox;
            if urgent == Urgent::Byte { inbox.push_urgent(piece) } else { inbox.push_stream(piece) }
        };
        if refused.is_some() {
            return Err(ENOBUFS);
        }
        let events = if urgent == Urgent::Byte { Events::READABLE | Events::PRI } else { Events::READABLE };
        peer.waiters.wake(events);
        Ok(sent)
    }

    pub fn send_packet(
        &self,
        caller: Option<&Caller<'_>>,
        message: &Sending,
        from: &mut Source<'_>,
    ) -> Result<usize> {
        // A sequenced packet goes to the peer whatever address is given (Linux).
        let to = message.to.as_ref().filter(|to| self.kind == Type::Datagram && !to.bytes().is_empty());
        let to = to.zip(caller);
        if let Some(error) = self.state.lock().error.take() {
            return Err(error);
        }
        let peer = match to {
            Some((to, _)) => names::check(to).map(|()| None)?,
            None => Some(self.peer()?),
        };
        self.bind_for_credentials()?;
        let length = from.remaining();
        if length > self.send_buffer() - 32 {
            return Err(EMSGSIZE);
        }
        let target = match (peer, to) {
            (Some(peer), _) => peer,
            (None, Some((to, caller))) if !self.is_mute() => self.target(caller, to)?,
            _ => return Err(EPIPE),
        };
        self.check_target(&target)?;
        let charge = self.charge(weight(length, DATAGRAM_BLOCK))?;
        let mut bytes = from.take_vec(length)?;
        if bytes.len() < length {
            return Err(EFAULT);
        }
        if let Some(filter) = target.filter() {
            match filter.keeps(&Packet::plain(&bytes, environment())) {
                Some(kept) => bytes.truncate(kept),
                // The sender does not hear of it.
                None => return Ok(length),
            }
        }
        let credentials = self.credentials_for(&target, caller, message);
        let from = self.called.clone();
        let rights = rights_of(message);
        let packet = Message {
            bytes,
            start: 0,
            rights,
            credentials,
            from,
            stamp: target.stamps().map(|_| Timespec::now()),
            was_seen: false,
            urgent: Urgent::No,
            charge,
        };
        // The program's memory may have been waited for.
        self.check_target(&target)?;
        garbage::note(&target, packet.rights.as_ref())?;
        let refused = target.state.lock().inbox.push(packet);
        if refused.is_some() {
            return Err(ENOBUFS);
        }
        target.waiters.wake(Events::READABLE);
        Ok(length)
    }

    fn target(&self, caller: &Caller<'_>, to: &Address) -> Result<Arc<UnixSocket>> {
        let target = names::find(caller, to, self.kind)?;
        if target.kind != self.kind { Err(EPROTOTYPE) } else { Ok(target) }
    }

    /// Whether a packet may be queued there now.
    fn check_target(&self, target: &Arc<UnixSocket>) -> Result<()> {
        let blocked = {
            let state = target.state.lock();
            let connected = state.peer.as_ref();
            let to_us = connected.is_some_and(|p| p.ptr_eq(&self.me));
            // A connected datagram socket receives from its peer only.
            if self.kind == Type::Datagram && connected.is_some() && !to_us {
                return Err(EPERM);
            }
            if state.closed {
                drop(state);
                return Err(self.lost_target(target));
            }
            if state.read_shut {
                return Err(EPIPE);
            }
            self.kind == Type::Datagram && !to_us && state.inbox.len() > target.max_datagrams
        };
        if blocked {
            self.wait_for_room_at(target);
            return Err(EAGAIN);
        }
        Ok(())
    }

    /// The target was closed: a datagram socket that is connected to it is so no longer.
    fn lost_target(&self, target: &Arc<UnixSocket>) -> abi::Errno {
        if self.is_connected_kind() {
            return EPIPE;
        }
        let mut state = self.state.lock();
        if state.peer.as_ref().is_some_and(|p| core::ptr::eq(p.as_ptr(), Arc::as_ptr(target))) {
            (state.peer, state.peer_called) = (None, None);
            drop(state);
            self.forget_datagrams();
        }
        ECONNREFUSED
    }

    /// Linux' poll of a connected datagram socket: not writable while its peer is full.
    pub fn is_peer_full(&self, peer: &Arc<UnixSocket>) -> bool {
        let state = peer.state.lock();
        let to_us = state.peer.as_ref().is_some_and(|p| p.ptr_eq(&self.me));
        let full = self.kind == Type::Datagram && !to_us && state.inbox.len() > peer.max_datagrams;
        drop(state);
        if full {
            self.wait_for_room_at(peer);
        }
        full
    }

    /// Has this socket's waiters woken when its peer has room again. Each sender is in the peer's table once, and leaves it
    /// with its peer; who sends to an address waits on [`UnixSocket::room`] instead.
    fn wait_for_room_at(&self, peer: &Arc<UnixSocket>) {
        let is_peer =
            self.state.lock().peer.as_ref().is_some_and(|p| core::ptr::eq(p.as_ptr(), Arc::as_ptr(peer)));
        if is_peer {
            peer.state.lock().blocked_senders.insert(self.key_as_sender(), self.me.clone());
        }
    }

    pub fn key_as_sender(&self) -> usize {
        self.me.as_ptr() as usize
    }

    /// This socket read something: senders may go on.
    pub fn made_room(&self) {
        if self.is_connected_kind() {
            return;
        }
        let blocked = core::mem::take(&mut self.state.lock().blocked_senders);
        for sender in blocked.values().filter_map(alloc::sync::Weak::upgrade) {
            sender.waiters.wake(Events::SENDABLE);
        }
        self.room.wake_all(Events::SENDABLE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The counts are those of Linux 6.18 with its default send buffer.
    #[test]
    fn a_send_buffer_holds_as_much_as_linuxs() {
        let fits = |length: usize, block| 212_992usize.div_ceil(weight(length, block));
        let measured = [(1, 278), (67, 278), (342, 167), (1717, 93), (8592, 13), (42_967, 5)];
        for (length, count) in measured {
            assert_eq!(fits(length, DATAGRAM_BLOCK), count, "datagrams of {length}");
        }
        assert_eq!(fits(1, STREAM_BLOCK), 278);
        assert_eq!(fits(STREAM_BLOCK + STREAM_PAGES, STREAM_BLOCK) * (STREAM_BLOCK + STREAM_PAGES), 219_264);
    }
}
