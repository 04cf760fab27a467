// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One AF_UNIX socket of any type.

use crate::names::{self, Key};
use crate::queue::{Message, Queue};
use abi::linux::net as linux;
use abi::{Errno, Events, Result, errno::*};
use alloc::collections::VecDeque;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use api_fs::{Sink, Source};
use api_lock::SpinLock;
use api_sched::WaitQueue;
use api_socket::options::{Common, from_int, int};
use api_socket::{Address, Caller, Control, Credentials, Received, Rights, Sending, Shutdown, Socket, Type};
use api_user::UserPtr;

/// Bytes a socket receives before its senders wait (Linux' wmem_default).
const LIMIT: usize = 212_992;
/// Largest piece of a stream that is queued at once.
const PIECE: usize = 64 * 1024;
/// Linux' net.core.somaxconn.
const BACKLOG_MOST: usize = 4096;
const FIONREAD: u32 = 0x541b;
const TIOCOUTQ: u32 = 0x5411;
const READABLE: Events = Events(Events::IN.0 | Events::RDNORM.0);
const WRITABLE: Events = Events(Events::OUT.0 | Events::WRNORM.0);

struct Listening {
    backlog: usize,
    ready: VecDeque<Arc<UnixSocket>>,
}

#[derive(Default)]
struct State {
    key: Option<Key>,
    name: Option<Address>,
    listening: Option<Listening>,
    peer: Option<Weak<UnixSocket>>,
    peer_name: Option<Address>,
    peer_credentials: Option<Credentials>,
    inbox: Queue,
    /// Senders of datagrams that wait for room.
    crowd: Vec<Weak<UnixSocket>>,
    read_shut: bool,
    write_shut: bool,
    /// The other end of the connection is closed.
    peer_gone: bool,
    error: Option<Errno>,
    closed: bool,
}

pub struct UnixSocket {
    me: Weak<UnixSocket>,
    kind: Type,
    creator: Credentials,
    waiters: WaitQueue,
    state: SpinLock<State>,
    common: SpinLock<Common>,
}

impl UnixSocket {
    pub fn new(kind: Type, creator: Credentials) -> Arc<UnixSocket> {
        Arc::new_cyclic(|me| UnixSocket {
            me: me.clone(),
            kind,
            creator,
            waiters: WaitQueue::new(),
            state: SpinLock::default(),
            common: SpinLock::default(),
        })
    }

    /// Connects two sockets to each other.
    pub fn join(a: &Arc<UnixSocket>, b: &Arc<UnixSocket>) {
        for (one, other) in [(a, b), (b, a)] {
            let name = other.state.lock().name.clone();
            let mut state = one.state.lock();
            state.peer = Some(Arc::downgrade(other));
            state.peer_name = name;
            state.peer_credentials = Some(other.creator);
        }
    }

    fn is_packet(&self) -> bool {
        self.kind != Type::Stream
    }

    fn is_connected_kind(&self) -> bool {
        self.kind != Type::Datagram
    }

    fn this(&self) -> Result<Arc<UnixSocket>> {
        self.me.upgrade().ok_or(EBADF)
    }

    /// The connected peer; the errors are those of sending.
    fn peer(&self) -> Result<Arc<UnixSocket>> {
        let state = self.state.lock();
        if state.write_shut {
            return Err(EPIPE);
        }
        match &state.peer {
            None if state.peer_gone && self.is_connected_kind() => Err(EPIPE),
            None => Err(ENOTCONN),
            Some(peer) => peer.upgrade().ok_or(if self.is_connected_kind() { EPIPE } else { ECONNREFUSED }),
        }
    }

    /// The receiver read something: senders may go on.
    fn made_room(&self) {
        let (peer, crowd) = {
            let mut state = self.state.lock();
            let peer = if self.is_connected_kind() { state.peer.clone() } else { None };
            (peer, core::mem::take(&mut state.crowd))
        };
        for sender in crowd.iter().chain(&peer).filter_map(Weak::upgrade) {
            sender.waiters.wake(WRITABLE);
        }
    }

    fn send_stream(&self, message: &Sending, from: &mut Source<'_>, who: Credentials) -> Result<usize> {
        if message.to.is_some() {
            let connected = self.state.lock().peer.is_some();
            return Err(if connected { EISCONN } else { EOPNOTSUPP });
        }
        let mut rights = rights_of(message);
        let mut done = 0;
        loop {
            let room = self.peer().and_then(|peer| {
                let state = peer.state.lock();
                match LIMIT.saturating_sub(state.inbox.weight()) {
                    _ if state.read_shut || state.closed => Err(EPIPE),
                    0 => Err(EAGAIN),
                    room => Ok((room, peer.clone())),
                }
            });
            let (room, peer) = match room {
                Ok(found) => found,
                Err(e) if done == 0 => return Err(e),
                Err(_) => return Ok(done),
            };
            if from.remaining() == 0 {
                return Ok(done);
            }
            let bytes = match from.take_vec(room.min(PIECE)) {
                Ok(bytes) => bytes,
                Err(e) if done == 0 => return Err(e),
                Err(_) => return Ok(done),
            };
            done += bytes.len();
            let piece = Message { bytes, start: 0, rights: rights.take(), credentials: who, from: None };
            {
                let mut state = peer.state.lock();
                if let Some(piece) = state.inbox.merge(piece) {
                    state.inbox.push(piece);
                }
            }
            peer.waiters.wake(READABLE);
        }
    }

    fn send_packet(
        &self,
        caller: Option<&Caller<'_>>,
        message: &Sending,
        from: &mut Source<'_>,
        who: Credentials,
    ) -> Result<usize> {
        if from.remaining() > LIMIT - 1024 {
            return Err(EMSGSIZE);
        }
        let target = match (&message.to, caller) {
            (Some(_), _) if self.kind == Type::SequencedPacket => return Err(EISCONN),
            (Some(to), Some(caller)) => names::find(caller, to)?,
            _ => self.peer()?,
        };
        if target.kind != self.kind {
            return Err(EPROTOTYPE);
        }
        let length = from.remaining();
        {
            let mut state = target.state.lock();
            // A connected datagram socket receives from its peer only.
            let stranger =
                state.peer.as_ref().is_some_and(|p| !p.ptr_eq(&self.me)) && self.kind == Type::Datagram;
            if stranger {
                return Err(EPERM);
            }
            if state.closed {
                return Err(if self.is_connected_kind() { EPIPE } else { ECONNREFUSED });
            }
            if state.read_shut {
                return Err(EPIPE);
            }
            if !state.inbox.is_empty() && state.inbox.weight() + length > LIMIT {
                state.crowd.push(self.me.clone());
                return Err(EAGAIN);
            }
        }
        let bytes = from.take_vec(length)?;
        if bytes.len() < length {
            return Err(EFAULT);
        }
        let name = self.state.lock().name.clone();
        let packet = Message { bytes, start: 0, rights: rights_of(message), credentials: who, from: name };
        target.state.lock().inbox.push(packet);
        target.waiters.wake(READABLE);
        Ok(length)
    }

    /// Why there is nothing to read.
    fn nothing(&self, state: &mut State) -> Result<Received> {
        if let Some(error) = state.error.take() {
            return Err(error);
        }
        if state.read_shut || state.peer_gone {
            return Ok(Received::default());
        }
        if self.is_connected_kind() && state.peer.is_none() {
            return Err(if self.kind == Type::Stream { EINVAL } else { ENOTCONN });
        }
        Err(EAGAIN)
    }

    fn receive_packet(&self, to: &mut Sink<'_>, flags: u32) -> Result<Received> {
        let peek = flags & linux::MSG_PEEK != 0;
        let message = {
            let mut state = self.state.lock();
            match state.inbox.pop() {
                Some(message) => message,
                None => return self.nothing(&mut state),
            }
        };
        let moved = to.put(&message.bytes);
        let full = message.bytes.len();
        let mut received = Received {
            length: if flags & linux::MSG_TRUNC != 0 { full } else { moved.unwrap_or(0) },
            from: message.from.clone(),
            control: message.rights.clone().into_iter().map(Control::Rights).collect(),
            flags: if moved.is_ok_and(|n| n < full) { linux::MSG_TRUNC } else { 0 },
        };
        self.add_credentials(&mut received, message.credentials);
        if peek || moved.is_err() {
            self.state.lock().inbox.unpop(message);
        } else {
            self.made_room();
        }
        moved.map(|_| received)
    }

    fn receive_stream(&self, to: &mut Sink<'_>, flags: u32) -> Result<Received> {
        if flags & linux::MSG_PEEK != 0 {
            return self.peek_stream(to);
        }
        let mut received = Received::default();
        let mut sender: Option<Credentials> = None;
        let pass = self.common.lock().pass_credentials;
        while to.remaining() > 0 {
            let mut message = {
                let mut state = self.state.lock();
                // A read ends where descriptors or another sender begin.
                let ends = state.inbox.first().is_some_and(|m| {
                    sender.is_some_and(|s| pass && s != m.credentials)
                        || received.length > 0 && m.rights.is_some()
                });
                match if ends { None } else { state.inbox.pop() } {
                    Some(message) => message,
                    None if received.length > 0 => break,
                    None => return self.nothing(&mut state),
                }
            };
            let moved = to.put(message.rest());
            message.start += *moved.as_ref().unwrap_or(&0);
            received.length += *moved.as_ref().unwrap_or(&0);
            sender = Some(message.credentials);
            if moved.is_ok() {
                received.control.extend(message.rights.take().map(Control::Rights));
            }
            let with_rights = !received.control.is_empty();
            if !message.rest().is_empty() {
                self.state.lock().inbox.unpop(message);
                if received.length == 0 {
                    return moved.map(|_| Received::default());
                }
                break;
            }
            if with_rights {
                break;
            }
        }
        if let Some(sender) = sender {
            self.add_credentials(&mut received, sender);
        }
        self.made_room();
        Ok(received)
    }

    /// Looks at the first message of the stream only, which is a short answer and allowed to be.
    fn peek_stream(&self, to: &mut Sink<'_>) -> Result<Received> {
        let message = {
            let mut state = self.state.lock();
            match state.inbox.pop() {
                Some(message) => message,
                None => return self.nothing(&mut state),
            }
        };
        let moved = to.put(message.rest());
        let control = message.rights.clone().into_iter().map(Control::Rights).collect();
        let mut received = Received { control, ..Received::default() };
        self.add_credentials(&mut received, message.credentials);
        self.state.lock().inbox.unpop(message);
        received.length = moved?;
        Ok(received)
    }

    fn add_credentials(&self, received: &mut Received, sender: Credentials) {
        if self.common.lock().pass_credentials {
            received.control.push(Control::Credentials(sender));
        }
    }

    fn shut_down(&self) {
        let (key, peer, listening, unread) = {
            let mut state = self.state.lock();
            if core::mem::replace(&mut state.closed, true) {
                return;
            }
            let unread = !state.inbox.is_empty();
            (state.key.take(), state.peer.take(), state.listening.take(), unread)
        };
        if let Some(key) = key {
            names::release(&key);
        }
        // Connections nobody accepted are reset.
        for child in listening.into_iter().flat_map(|l| l.ready) {
            child.leave(true);
        }
        if self.is_connected_kind()
            && let Some(peer) = peer.and_then(|p| p.upgrade())
        {
            peer.lose_peer(unread);
        }
        // Datagram senders connected to this socket find out when they send. Queued descriptors go with the inbox.
        let inbox = core::mem::take(&mut self.state.lock().inbox);
        drop(inbox);
        self.made_room();
        self.waiters.wake_all(Events::HUP | READABLE | WRITABLE | Events::RDHUP);
    }

    fn leave(&self, reset: bool) {
        let peer = self.state.lock().peer.take();
        if let Some(peer) = peer.and_then(|p| p.upgrade()) {
            peer.lose_peer(reset);
        }
    }

    fn lose_peer(&self, reset: bool) {
        {
            let mut state = self.state.lock();
            state.peer = None;
            state.peer_gone = true;
            if reset {
                state.error = Some(ECONNRESET);
            }
        }
        self.waiters.wake_all(Events::HUP | READABLE | WRITABLE | Events::RDHUP);
    }
}

fn rights_of(message: &Sending) -> Option<Rights> {
    message.control.iter().find_map(|c| match c {
        Control::Rights(rights) => Some(rights.clone()),
        _ => None,
    })
}

impl Socket for UnixSocket {
    fn family(&self) -> u16 {
        Address::UNIX
    }

    fn socket_type(&self) -> Type {
        self.kind
    }

    fn bind(&self, caller: &Caller<'_>, address: &Address) -> Result<()> {
        let this = self.this()?;
        if self.state.lock().key.is_some() {
            return Err(EINVAL);
        }
        let (key, name) = names::bind(caller, address, &this)?;
        let mut state = self.state.lock();
        (state.key, state.name) = (Some(key), Some(name));
        Ok(())
    }

    fn listen(&self, _caller: &Caller<'_>, backlog: i32) -> Result<()> {
        if !self.is_connected_kind() {
            return Err(EOPNOTSUPP);
        }
        let backlog = usize::try_from(backlog).unwrap_or(BACKLOG_MOST).min(BACKLOG_MOST);
        let mut state = self.state.lock();
        if state.key.is_none() || state.peer.is_some() {
            return Err(EINVAL);
        }
        match &mut state.listening {
            Some(listening) => listening.backlog = backlog,
            none => *none = Some(Listening { backlog, ready: VecDeque::new() }),
        }
        Ok(())
    }

    fn accept(&self) -> Result<(Arc<dyn Socket>, Address)> {
        if !self.is_connected_kind() {
            return Err(EOPNOTSUPP);
        }
        let mut state = self.state.lock();
        let listening = state.listening.as_mut().ok_or(EINVAL)?;
        let child = listening.ready.pop_front().ok_or(EAGAIN)?;
        drop(state);
        let name = child.peer_address().unwrap_or(Address::new(Address::UNIX, &[]));
        Ok((child, name))
    }

    fn connect(&self, caller: &Caller<'_>, address: &Address) -> Result<()> {
        let this = self.this()?;
        if self.kind == Type::Datagram && address.family() == Some(Address::UNSPEC) {
            let mut state = self.state.lock();
            (state.peer, state.peer_name) = (None, None);
            return Ok(());
        }
        let target = names::find(caller, address)?;
        if target.kind != self.kind {
            return Err(EPROTOTYPE);
        }
        if self.kind == Type::Datagram {
            let name = target.state.lock().name.clone();
            let mut state = self.state.lock();
            (state.peer, state.peer_name) = (Some(Arc::downgrade(&target)), name);
            state.peer_gone = false;
            return Ok(());
        }
        {
            let state = self.state.lock();
            if state.listening.is_some() {
                return Err(EINVAL);
            }
            if state.peer.is_some() {
                return Err(EISCONN);
            }
        }
        {
            let state = target.state.lock();
            let listening = state.listening.as_ref().ok_or(ECONNREFUSED)?;
            if listening.ready.len() > listening.backlog {
                return Err(EAGAIN);
            }
        }
        let child = UnixSocket::new(self.kind, target.creator);
        child.state.lock().name = target.state.lock().name.clone();
        UnixSocket::join(&this, &child);
        child.state.lock().peer_credentials = Some(caller.credentials);
        {
            let mut state = target.state.lock();
            if let Some(listening) = state.listening.as_mut() {
                listening.ready.push_back(child);
            }
        }
        target.waiters.wake(READABLE);
        Ok(())
    }

    fn shutdown(&self, how: Shutdown) -> Result<()> {
        let peer = {
            let mut state = self.state.lock();
            if self.is_connected_kind()
                && state.peer.is_none()
                && !state.peer_gone
                && state.listening.is_none()
            {
                return Err(ENOTCONN);
            }
            state.read_shut |= how.reads();
            state.write_shut |= how.writes();
            if self.is_connected_kind() { state.peer.clone() } else { None }
        };
        self.waiters.wake_all(Events::HUP | READABLE | WRITABLE | Events::RDHUP);
        // The other side sees the mirror image.
        if let Some(peer) = peer.and_then(|p| p.upgrade()) {
            {
                let mut state = peer.state.lock();
                state.read_shut |= how.writes();
                state.write_shut |= how.reads();
            }
            peer.waiters.wake_all(Events::HUP | READABLE | WRITABLE | Events::RDHUP);
        }
        Ok(())
    }

    fn local_address(&self) -> Result<Address> {
        Ok(self.state.lock().name.clone().unwrap_or(Address::new(Address::UNIX, &[])))
    }

    fn peer_address(&self) -> Result<Address> {
        let state = self.state.lock();
        if state.peer.is_none() && !(state.peer_gone && self.is_connected_kind()) {
            return Err(ENOTCONN);
        }
        Ok(state.peer_name.clone().unwrap_or(Address::new(Address::UNIX, &[])))
    }

    fn send(&self, caller: Option<&Caller<'_>>, message: &Sending, from: &mut Source<'_>) -> Result<usize> {
        if message.flags & linux::MSG_OOB != 0 {
            return Err(EOPNOTSUPP);
        }
        let claimed = message.control.iter().find_map(|c| match c {
            Control::Credentials(credentials) => Some(*credentials),
            _ => None,
        });
        let who = claimed.unwrap_or(caller.map_or(self.creator, |c| c.credentials));
        match self.kind {
            Type::Stream => self.send_stream(message, from, who),
            _ => self.send_packet(caller, message, from, who),
        }
    }

    fn receive(&self, to: &mut Sink<'_>, flags: u32) -> Result<Received> {
        if flags & linux::MSG_OOB != 0 {
            // A stream could have had an urgent byte, and has none.
            return Err(if self.kind == Type::Stream { EINVAL } else { EOPNOTSUPP });
        }
        if self.state.lock().listening.is_some() {
            return Err(EINVAL);
        }
        if self.is_packet() { self.receive_packet(to, flags) } else { self.receive_stream(to, flags) }
    }

    fn set_option(&self, level: i32, name: i32, value: &[u8]) -> Result<()> {
        if level as u32 != linux::SOL_SOCKET {
            return Err(EOPNOTSUPP);
        }
        if let Some(result) = self.common.lock().set(name as u32, value) {
            return result;
        }
        match name as u32 {
            linux::SO_SNDBUF
            | linux::SO_RCVBUF
            | linux::SO_SNDBUFFORCE
            | linux::SO_RCVBUFFORCE
            | linux::SO_REUSEADDR
            | linux::SO_REUSEPORT
            | linux::SO_KEEPALIVE
            | linux::SO_BROADCAST
            | linux::SO_PASSSEC => int(value).map(|_| ()),
            linux::SO_LINGER => Ok(()),
            _ => Err(ENOPROTOOPT),
        }
    }

    fn get_option(&self, level: i32, name: i32, _asked: &[u8]) -> Result<Vec<u8>> {
        if level as u32 != linux::SOL_SOCKET {
            return Err(EOPNOTSUPP);
        }
        if let Some(value) = self.common.lock().get(name as u32) {
            return Ok(value);
        }
        let mut state = self.state.lock();
        Ok(match name as u32 {
            linux::SO_ERROR => from_int(state.error.take().map_or(0, |e| i64::from(e.0))),
            linux::SO_TYPE => from_int(self.kind as u32),
            linux::SO_DOMAIN => from_int(Address::UNIX),
            linux::SO_PROTOCOL
            | linux::SO_REUSEADDR
            | linux::SO_REUSEPORT
            | linux::SO_KEEPALIVE
            | linux::SO_BROADCAST => from_int(0),
            linux::SO_ACCEPTCONN => from_int(state.listening.is_some()),
            linux::SO_SNDBUF | linux::SO_RCVBUF => from_int(LIMIT as i64),
            linux::SO_LINGER => Vec::from([0; 8]),
            linux::SO_PEERCRED => {
                // Without a peer: process 0 and ids of nobody (Linux: -1).
                let nobody = Credentials { pid: 0, uid: u32::MAX, gid: u32::MAX };
                let c = state.peer_credentials.unwrap_or(nobody);
                [c.pid, c.uid, c.gid].iter().flat_map(|w| w.to_ne_bytes()).collect()
            }
            _ => return Err(ENOPROTOOPT),
        })
    }

    fn timeout_ns(&self, receive: bool) -> Option<u64> {
        self.common.lock().timeout_ns(receive)
    }

    fn poll(&self) -> Events {
        let (mut events, peer) = {
            let state = self.state.lock();
            if let Some(listening) = &state.listening {
                return Events::NONE.with(READABLE, !listening.ready.is_empty());
            }
            let ended = state.read_shut || state.peer_gone;
            let mut events = Events::NONE.with(READABLE, !state.inbox.is_empty() || ended);
            events = events.with(Events::RDHUP, ended);
            let shut = state.peer_gone || state.read_shut && state.write_shut;
            let fresh = self.is_connected_kind() && state.peer.is_none() && !state.peer_gone;
            events = events.with(Events::HUP, shut || fresh);
            (events.with(Events::ERR, state.error.is_some()), state.peer.clone())
        };
        let full = peer.and_then(|p| p.upgrade()).is_some_and(|p| p.state.lock().inbox.weight() >= LIMIT);
        events = events.with(WRITABLE, !full);
        events
    }

    fn wait_queue(&self) -> &WaitQueue {
        &self.waiters
    }

    fn ioctl(&self, command: u32, argument: u64) -> Result<usize> {
        let value = match command {
            FIONREAD => {
                let state = self.state.lock();
                match state.inbox.first() {
                    Some(first) if self.is_packet() => first.bytes.len(),
                    _ => state.inbox.bytes(),
                }
            }
            TIOCOUTQ => {
                let peer = self.state.lock().peer.clone().and_then(|p| p.upgrade());
                peer.map_or(0, |p| p.state.lock().inbox.weight())
            }
            _ => return Err(ENOTTY),
        };
        UserPtr::<i32>::new(argument).write(value as i32)?;
        Ok(0)
    }

    fn close(&self) {
        self.shut_down();
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        self.shut_down();
    }
}
