// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the socket layer asks of TCP. Errors are those of Linux' manual pages.

use super::connection::{Connection, State};
use super::listen::Listener;
use super::{Entry, Kind, Tcp};
use crate::families::is_group;
use crate::ip::Ip;
use crate::seq;
use crate::slab::Id;
use crate::stack::Shared;
use abi::{Events, Result, errno::*};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::try_box;
use api_netdev::Buffer;
use core::net::{Ipv4Addr, SocketAddrV4};

impl Tcp {
    pub(super) fn connection(&mut self, id: Id) -> Result<&mut Connection> {
        self.sockets.get_mut(id).and_then(Entry::connection_mut).ok_or(EINVAL)
    }

    /// listen(2); again on a listener it changes the backlog.
    pub fn listen(&mut self, id: Id, backlog: i32) -> Result<SocketAddrV4> {
        let most = api_socket::settings::MAX_BACKLOG[0].get() as usize;
        let backlog = usize::try_from(backlog).unwrap_or(most).min(most);
        let entry = self.sockets.get_mut(id).ok_or(EINVAL)?;
        match &mut entry.kind {
            Kind::Listener(listener) => listener.backlog = backlog,
            Kind::Connection(connection) => {
                if connection.state != State::Closed
                    || connection.remote().port() != 0
                    || connection.connecting
                {
                    return Err(EINVAL);
                }
                let listener = try_box(Listener::new(connection, backlog)).map_err(|_| ENOBUFS)?;
                self.claim_for_listening(id)?;
                let entry = self.sockets.get_mut(id).ok_or(EINVAL)?;
                entry.kind = Kind::Listener(listener);
                self.join_group(id);
            }
        }
        self.sockets.get(id).and_then(|e| e.bound).ok_or(EINVAL)
    }

    /// accept(2): the connection that waited longest.
    pub fn accept(&mut self, id: Id) -> Result<(Id, Arc<Shared>, SocketAddrV4)> {
        let entry = self.sockets.get_mut(id).ok_or(EINVAL)?;
        let Kind::Listener(listener) = &mut entry.kind else { return Err(EINVAL) };
        // One that was reset while it waited is handed out all the same, as on Linux.
        let child = listener.ready.pop_front().ok_or(EAGAIN)?;
        let entry = self.sockets.get_mut(child).ok_or(ECONNABORTED)?;
        let shared = entry.shared.clone();
        let connection = entry.connection_mut().ok_or(ECONNABORTED)?;
        // What happened so far, the new owner sees by polling.
        connection.events = Events::NONE;
        let remote = connection.remote();
        let remote = entry.shown(remote);
        self.invite_refused(id);
        Ok((child, shared, remote))
    }

    /// What connect(2) says of a socket whatever the address is: `false` when the attempt before has succeeded, its error, or why
    /// there can be none; `true` where this call is to begin one.
    pub fn may_connect(&mut self, id: Id) -> Result<bool> {
        let entry = self.sockets.get_mut(id).ok_or(EINVAL)?;
        let Kind::Connection(connection) = &mut entry.kind else { return Err(EISCONN) };
        match connection.state {
            State::SynSent | State::SynReceived => Err(EALREADY),
            State::Closed if connection.is_given_up => Err(EINVAL),
            // The attempt failed. This call says so, even where SO_ERROR or a read said why before, and the next one is
            // a new attempt.
            State::Closed if connection.connecting => {
                let error = connection.error.take().unwrap_or(ECONNABORTED);
                **connection = Connection::unconnected(connection.settings);
                entry.forget_address();
                Err(error)
            }
            // It was connected, and remains so to connect(2) when the connection is over.
            State::Closed if connection.remote().port() != 0 => Err(EISCONN),
            State::Closed => Ok(true),
            // The first call after the attempt succeeded says so.
            _ if core::mem::take(&mut connection.connecting) => Ok(false),
            _ => Err(EISCONN),
        }
    }

    /// connect(2): `EINPROGRESS`, or why there is no attempt, as [`Tcp::may_connect`] says.
    pub fn connect(&mut self, ip: &mut Ip, now: u64, id: Id, remote: SocketAddrV4) -> Result<()> {
        // Another thread may have been faster since the address was looked at.
        if !self.may_connect(id)? {
            return Ok(());
        }
        let bound = self.sockets.get(id).ok_or(EINVAL)?.bound;
        let own = bound.and_then(|bound| ip.speaking(*bound.ip()));
        let bound = bound.map(|bound| SocketAddrV4::new(own.unwrap_or(Ipv4Addr::UNSPECIFIED), bound.port()));
        if is_group(*remote.ip()) || ip.is_broadcast(*remote.ip()) {
            return Err(ENETUNREACH);
        }
        let ip_address = Ip::destination(*remote.ip(), own);
        let remote = SocketAddrV4::new(ip_address, remote.port());
        let route = ip.route(*remote.ip())?;
        self.connection(id)?.error = None;
        let chosen = self.choose(now, route.source, bound, remote);
        let entry = self.sockets.get_mut(id).ok_or(EINVAL)?;
        match &chosen {
            Ok((tuple, _)) => entry.take_name(tuple.local),
            Err(_) => entry.forget_address(),
        }
        let (tuple, above) = chosen?;
        if remote.port() == 0 {
            // Nobody listens there, which the attempt finds out.
            let connection = self.connection(id)?;
            (connection.connecting, connection.state) = (true, State::SynSent);
            connection.finish(Some(ECONNREFUSED));
            self.release(id);
            self.mark(id);
            return Err(EINPROGRESS);
        }
        let iss = self.initial_sequence(now, &tuple);
        let ts_offset = self.timestamp_offset(&tuple);
        self.connect_tuple(tuple, id)?;
        let connection = self.connection(id)?;
        connection.tuple = tuple;
        connection.ts_offset = ts_offset;
        connection.connecting = true;
        connection.start_sending(above.filter(|a| seq::lt(iss, *a)).unwrap_or(iss), now);
        connection.state = State::SynSent;
        ip.counters.tcp.active_opens += 1;
        self.mark(id);
        Err(EINPROGRESS)
    }

    /// Whether bytes may be sent now, and how many there is room for.
    pub fn send_room(&mut self, id: Id) -> Result<usize> {
        if let Some(error) = self.sockets.get_mut(id).and_then(|entry| entry.error_mut().take()) {
            return Err(error);
        }
        let connection = self.connection(id).map_err(|_| EPIPE)?;
        match connection.state {
            State::SynSent | State::SynReceived => return Err(EAGAIN),
            State::Closed if connection.remote().port() == 0 => return Err(EPIPE),
            _ => {}
        }
        if !connection.can_send() {
            return Err(EPIPE);
        }
        match connection.send_room() {
            0 => Err(EAGAIN),
            _ if api_alloc::is_low() => Err(ENOBUFS),
            room => Ok(room),
        }
    }

    /// Queues bytes; the caller asked for room before, so a little more than there is does no harm.
    pub fn send(&mut self, ip: &mut Ip, now: u64, id: Id, bytes: Bytes<'_>, how: Push) -> Result<()> {
        let connection = self.connection(id)?;
        if !connection.can_send() {
            return Err(EPIPE);
        }
        match bytes {
            Bytes::Few(bytes) => {
                if !connection.queue.append(bytes) {
                    return Err(ENOMEM);
                }
            }
            Bytes::Many(bytes) => connection.queue.push(bytes),
        }
        if how == Push::Urgent {
            connection.urgent.send(connection.data_end());
        }
        connection.pushed(ip, now, how);
        self.mark(id);
        Ok(())
    }

    /// Takes the first buffer of what was received, of which that many bytes may be read. `Ok(None)`: end of data,
    /// or reading that `has_begun` is to end here.
    pub fn receive(&mut self, id: Id, has_begun: bool) -> Result<Option<(Buffer, usize)>> {
        let connection = self.connection(id).map_err(|_| ENOTCONN)?;
        let most = connection.readable_to_mark(has_begun);
        if most == 0 {
            return Ok(None);
        }
        if let Some(buffer) = connection.input.pop() {
            return Ok(Some((buffer, most)));
        }
        Self::nothing_there(connection)
    }

    /// Neither connected nor about to be.
    pub fn is_unconnected(&mut self, id: Id) -> bool {
        self.connection(id).is_ok_and(|c| c.state == State::Closed && c.remote().port() == 0 && !c.read_shut)
    }

    pub fn is_listener(&self, id: Id) -> bool {
        self.sockets.get(id).is_some_and(|e| matches!(e.kind, Kind::Listener(_)))
    }

    /// Why there is nothing to read.
    fn nothing_there<T>(connection: &mut Connection) -> Result<Option<T>> {
        if connection.saw_end {
            return Ok(None);
        }
        if let Some(error) = connection.error.take() {
            return Err(error);
        }
        match connection.state {
            // Even before there is a connection: shutdown(2) fails then, and counts.
            _ if connection.read_shut => Ok(None),
            // After an attempt that failed there is nothing more to come, once the error was told.
            _ if connection.peer_done => Ok(None),
            State::Closed if connection.remote().port() == 0 => Err(ENOTCONN),
            State::Closed => Ok(None),
            _ => Err(EAGAIN),
        }
    }

    /// Up to `most` bytes, left where they are.
    pub fn peek(&mut self, id: Id, most: usize) -> Result<Option<Vec<u8>>> {
        let connection = self.connection(id).map_err(|_| ENOTCONN)?;
        let hidden = usize::from(connection.hides_first());
        if connection.input.len() > hidden {
            let most = match connection.urgent.distance() {
                Some(distance) if distance > 0 => most.min(distance as usize),
                _ => most,
            };
            return connection.input.peek(hidden, most).map(Some);
        }
        Self::nothing_there(connection)
    }

    /// Gives back what is left of a buffer after `read` bytes of it were read. True when the peer should hear of the room now.
    pub fn read_done(&mut self, ip: &mut Ip, id: Id, rest: Option<Buffer>, read: usize) -> bool {
        let Ok(connection) = self.connection(id) else { return false };
        if let Some(rest) = rest {
            if rest.is_empty() {
                ip.recycle(rest);
            } else {
                connection.input.push_front(rest);
            }
        }
        connection.urgent.advance(read);
        if connection.window_update_due() {
            connection.ack = super::connection::Ack::Now;
            self.mark(id);
            return true;
        }
        false
    }

    /// connect(2) with AF_UNSPEC: the connection is broken off, of which SO_ERROR tells, and the socket is as new (Linux'
    /// tcp_disconnect).
    pub fn disconnect(&mut self, ip: &mut Ip, now: u64, id: Id) -> Result<()> {
        if self.is_listener(id) {
            self.stop_listening(ip, now, id);
            return Ok(());
        }
        let connection = self.connection(id)?;
        let is_broken_off = connection.is_synchronised() || connection.state == State::SynSent;
        if connection.is_synchronised() {
            connection.send_reset(ip, now);
        }
        let (settings, before) = (connection.settings, connection.error);
        if connection.state != State::Closed {
            connection.finish(None);
            self.release(id);
        }
        let connection = self.connection(id)?;
        *connection = Connection::unconnected(settings);
        connection.error = if is_broken_off { Some(ECONNRESET) } else { before };
        connection.happened(Events::HUP);
        self.forget_address(id);
        self.mark(id);
        Ok(())
    }

    /// shutdown(2) before there is a connection: the attempt ends, of which SO_ERROR tells, and so does the call that waits
    /// for it (Linux' tcp_disconnect).
    fn end_attempt(&mut self, id: Id) -> Result<()> {
        self.connection(id)?.finish(None);
        self.release(id);
        let connection = self.connection(id)?;
        *connection = Connection::unconnected(connection.settings);
        connection.connecting = true;
        connection.error = Some(ECONNRESET);
        connection.happened(Events::IN | Events::OUT | Events::ERR | Events::HUP);
        self.forget_address(id);
        self.mark(id);
        Ok(())
    }

    fn forget_address(&mut self, id: Id) {
        if let Some(entry) = self.sockets.get_mut(id) {
            entry.forget_address();
        }
    }

    pub fn shutdown(&mut self, id: Id, reads: bool, writes: bool) -> Result<()> {
        let entry = self.sockets.get_mut(id).ok_or(EINVAL)?;
        let connection = match &mut entry.kind {
            Kind::Connection(connection) => connection,
            Kind::Listener(_) if reads => return Err(EOPNOTSUPP),
            Kind::Listener(_) => return Ok(()),
        };
        if connection.state == State::Closed {
            // It counts all the same, and whoever waits finds out (Linux).
            connection.read_shut |= reads;
            connection.write_shut |= writes;
            connection.is_given_up |= connection.connecting;
            connection.happened(Events::IN | Events::OUT | Events::RDHUP | Events::HUP);
            self.mark(id);
            return Err(ENOTCONN);
        }
        if matches!(connection.state, State::SynSent) {
            return self.end_attempt(id);
        }
        // It is connected, whether connect(2) has said so or not.
        connection.connecting = false;
        if reads {
            connection.read_shut = true;
            connection.happened(Events::READABLE | Events::RDHUP);
        }
        if writes {
            connection.shut_write();
            connection.happened(Events::WRITABLE);
        }
        if connection.fin && (connection.read_shut || connection.peer_done) {
            connection.happened(Events::HUP);
        }
        self.mark(id);
        Ok(())
    }

    /// shutdown(SHUT_RD) of a listener: it stops listening (Linux).
    pub fn stop_listening(&mut self, ip: &mut Ip, now: u64, id: Id) {
        self.abandon(ip, now, id);
        self.unbind_chosen(id);
        self.forget_address(id);
        if let Some(entry) = self.sockets.get_mut(id)
            && let Kind::Listener(listener) = &entry.kind
        {
            entry.kind = Kind::Connection(Box::new(Connection::unconnected(listener.settings)));
            if let Some(connection) = entry.connection_mut() {
                connection.happened(Events::HUP | Events::IN);
            }
        }
        self.mark(id);
    }

    /// The program's last descriptor goes.
    pub fn close(&mut self, ip: &mut Ip, now: u64, id: Id) {
        let Some(entry) = self.sockets.get_mut(id) else { return };
        entry.owned = false;
        let Kind::Connection(connection) = &mut entry.kind else {
            self.abandon(ip, now, id);
            self.remove(id);
            return;
        };
        connection.orphan = true;
        connection.settings.keep_alive = false;
        connection.deadlines.keep_alive = None;
        let unread = !connection.input.is_empty();
        connection.input.clear();
        match connection.state {
            State::Closed => {}
            State::SynSent => connection.finish(None),
            // Unread data, or SO_LINGER with zero: the peer is told that data was lost (RFC 2525 2.17).
            _ if unread || connection.settings.linger() == Some(0) => {
                connection.send_reset(ip, now);
                connection.finish(None);
            }
            _ => connection.shut_write(),
        }
        match connection.state {
            State::Closed => {
                self.release(id);
            }
            State::FinWait2 => self.after(ip, now, id, super::input::After::Stays),
            _ => self.mark(id),
        }
    }
}

/// What is to be done with bytes when they are queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Push {
    Now,
    /// More follow at once: the same call has them.
    More,
    /// More follow in another call (MSG_MORE): a segment that is not full waits for it, or for the cork's timer.
    Held,
    /// The last of them is urgent (MSG_OOB).
    Urgent,
}

/// Bytes to send: few are copied, many are taken over.
pub enum Bytes<'a> {
    Few(&'a [u8]),
    Many(Vec<u8>),
}
