// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One AF_UNIX socket of any type.

use crate::garbage::{self, Flight};
use crate::names::{self, Called, Key};
use crate::queue::Queue;
use abi::linux::net as linux;
use abi::{Errno, Events, Result, errno::*};
use alloc::collections::VecDeque;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_fs::{Sink, Source};
use api_lock::SpinLock;
use api_sched::WaitQueue;
use api_socket::filter::Filter;
use api_socket::options::{Common, Stamps, buffer_size, from_int};
use api_socket::settings;
use api_socket::{
    Address, Caller, Credentials, PeekOffset, Received, Relations, Sending, Shutdown, Socket, Type,
};
use api_user::UserPtr;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use ordered::Map;

/// Least buffer sizes (Linux' SOCK_MIN_SNDBUF and SOCK_MIN_RCVBUF).
const MIN_SEND_BUFFER: usize = 4608;
const MIN_RECEIVE_BUFFER: usize = 2304;
const FIONREAD: u32 = 0x541b;
const TIOCOUTQ: u32 = 0x5411;
const SIOCATMARK: u32 = 0x8905;

struct Listening {
    backlog: usize,
    /// Who called listen(2): what SO_PEERCRED of a client says.
    credentials: Credentials,
    ready: VecDeque<Arc<UnixSocket>>,
}

#[derive(Default)]
pub struct State {
    key: Option<Key>,
    listening: Option<Listening>,
    pub peer: Option<Weak<UnixSocket>>,
    pub peer_called: Option<Arc<Called>>,
    peer_credentials: Option<Credentials>,
    pub inbox: Queue,
    /// Datagram sockets connected to this one that found it full, by address.
    pub blocked_senders: Map<usize, Weak<UnixSocket>>,
    pub read_shut: bool,
    write_shut: bool,
    /// The other end of the connection is closed.
    pub peer_gone: bool,
    pub error: Option<Errno>,
    pub closed: bool,
    /// The listener in whose queue it is.
    pub listener: Option<Weak<UnixSocket>>,
}

impl State {
    fn is_established(&self) -> bool {
        self.peer.is_some() || self.peer_gone
    }
}

pub struct UnixSocket {
    pub me: Weak<UnixSocket>,
    pub kind: Type,
    pub creator: Credentials,
    pub called: Arc<Called>,
    pub waiters: WaitQueue,
    /// Who waits for room in this socket's queue of messages or of connections.
    pub room: WaitQueue,
    pub state: SpinLock<State>,
    /// What of its messages is queued somewhere, as [`crate::send`] counts it.
    pub sent: AtomicUsize,
    send_buffer: AtomicUsize,
    receive_buffer: AtomicUsize,
    common: SpinLock<Common>,
    /// SO_ATTACH_FILTER: the common options have a filter, which looks at packets first.
    has_filter: AtomicBool,
    /// The common options ask for stamps.
    has_stamps: AtomicBool,
    /// SO_OOBINLINE, as the common options have it.
    reads_urgent_inline: AtomicBool,
    /// SO_PEEK_OFF.
    pub peek: PeekOffset,
    pub flight: Flight,
    /// Messages that it holds from senders it is not connected to, one more let in.
    pub max_datagrams: usize,
    /// The number of its file; 0 before it has one.
    inode: AtomicU64,
}

impl UnixSocket {
    pub fn new(kind: Type, creator: Credentials) -> Arc<UnixSocket> {
        Arc::new_cyclic(|me| UnixSocket {
            me: me.clone(),
            kind,
            creator,
            called: Arc::default(),
            waiters: WaitQueue::new(),
            room: WaitQueue::new(),
            state: SpinLock::default(),
            sent: AtomicUsize::new(0),
            send_buffer: AtomicUsize::new(settings::SEND_BUFFER[0].get() as usize),
            receive_buffer: AtomicUsize::new(settings::RECEIVE_BUFFER[0].get() as usize),
            common: SpinLock::default(),
            has_filter: AtomicBool::new(false),
            has_stamps: AtomicBool::new(false),
            reads_urgent_inline: AtomicBool::new(false),
            peek: PeekOffset::default(),
            flight: Flight::default(),
            max_datagrams: settings::MAX_DATAGRAMS[0].get() as usize,
            inode: AtomicU64::new(0),
        })
    }

    /// Connects two sockets to each other.
    pub fn join(a: &Arc<UnixSocket>, b: &Arc<UnixSocket>) {
        for (one, other) in [(a, b), (b, a)] {
            let mut state = one.state.lock();
            state.peer = Some(Arc::downgrade(other));
            state.peer_called = Some(other.called.clone());
            state.peer_credentials = Some(other.creator);
        }
    }

    fn is_packet(&self) -> bool {
        self.kind != Type::Stream
    }

    pub fn is_connected_kind(&self) -> bool {
        self.kind != Type::Datagram
    }

    fn this(&self) -> Result<Arc<UnixSocket>> {
        self.me.upgrade().ok_or(EBADF)
    }

    pub fn send_buffer(&self) -> usize {
        self.send_buffer.load(Ordering::Relaxed)
    }

    pub fn passes_credentials(&self) -> bool {
        self.common.lock().pass_credentials
    }

    /// How packets are to be stamped, if they are (SO_TIMESTAMP and its like).
    pub fn stamps(&self) -> Option<Stamps> {
        self.has_stamps.load(Ordering::Relaxed).then(|| self.common.lock().stamps)
    }

    /// SO_OOBINLINE: an urgent byte is read among the others.
    pub fn reads_urgent_inline(&self) -> bool {
        self.reads_urgent_inline.load(Ordering::Relaxed)
    }

    /// What decides about packets before this socket has them.
    pub fn filter(&self) -> Option<Arc<Filter>> {
        if self.has_filter.load(Ordering::Relaxed) { self.common.lock().filter() } else { None }
    }

    pub fn is_unaccepted(&self) -> bool {
        self.state.lock().listener.is_some()
    }

    /// Connected once: Linux' TCP_ESTABLISHED, which a stream or a socket of packets stays when its peer is closed.
    pub fn is_established(&self) -> bool {
        self.state.lock().is_established()
    }

    /// It has said that it will send no more.
    pub fn is_mute(&self) -> bool {
        self.state.lock().write_shut
    }

    /// Nobody will read what is sent to it.
    pub fn is_deaf(&self) -> bool {
        let state = self.state.lock();
        state.read_shut || state.closed
    }

    /// A socket that asks for credentials has a name, so that it can be answered (unix(7), "Autobind feature").
    pub fn bind_for_credentials(&self) -> Result<()> {
        if !self.passes_credentials() || self.called.get().is_some() {
            return Ok(());
        }
        self.name_it(names::autobind(&self.this()?)?);
        Ok(())
    }

    fn name_it(&self, (key, name): (Key, Address)) {
        self.state.lock().key = Some(key);
        self.called.set(Some(name));
    }

    /// Takes the peer away, whose table of blocked senders forgets this socket.
    fn forget_peer(&self) -> Option<Arc<UnixSocket>> {
        let peer = self.state.lock().peer.take()?.upgrade()?;
        let entry = peer.state.lock().blocked_senders.remove(&self.key_as_sender());
        drop(entry);
        Some(peer)
    }

    /// The connected peer; the errors are those of sending.
    pub fn peer(&self) -> Result<Arc<UnixSocket>> {
        let mut state = self.state.lock();
        match &state.peer {
            // Of datagrams the end comes first.
            _ if state.write_shut && !self.is_connected_kind() => Err(EPIPE),
            None if !(state.peer_gone && self.is_connected_kind()) => Err(ENOTCONN),
            _ if state.write_shut => Err(EPIPE),
            None => Err(EPIPE),
            Some(peer) => match peer.upgrade() {
                Some(peer) => Ok(peer),
                None if self.is_connected_kind() => Err(EPIPE),
                None => {
                    (state.peer, state.peer_called) = (None, None);
                    drop(state);
                    self.forget_datagrams();
                    Err(ECONNREFUSED)
                }
            },
        }
    }

    fn shut_down(&self) {
        let (key, listening, unread) = {
            let mut state = self.state.lock();
            if core::mem::replace(&mut state.closed, true) {
                return;
            }
            (state.key.take(), state.listening.take(), !state.inbox.is_read())
        };
        if let Some(key) = key {
            names::release(&key, &self.me);
        }
        // Connections nobody accepted are reset.
        for child in listening.into_iter().flat_map(|l| l.ready) {
            child.leave(true);
        }
        if let Some(peer) = self.forget_peer()
            && self.is_connected_kind()
        {
            peer.lose_peer(unread);
        }
        // Datagram senders connected to this socket find out when they send. Queued descriptors go with the inbox.
        let inbox = core::mem::take(&mut self.state.lock().inbox);
        drop(inbox);
        self.made_room();
        self.room.wake_all(Events::ALL);
        self.waiters.wake_all(Events::HUP | Events::READABLE | Events::SENDABLE | Events::RDHUP);
        garbage::request();
    }

    fn leave(&self, reset: bool) {
        if let Some(peer) = self.forget_peer() {
            peer.lose_peer(reset);
        }
    }

    fn connect_datagram(&self, target: &Arc<UnixSocket>) -> Result<()> {
        // One that is connected elsewhere would take nothing from here.
        if target.state.lock().peer.as_ref().is_some_and(|p| !p.ptr_eq(&self.me)) {
            return Err(EPERM);
        }
        self.leave_datagrams(Some(target));
        let mut state = self.state.lock();
        (state.peer, state.peer_called) = (Some(Arc::downgrade(target)), Some(target.called.clone()));
        state.peer_gone = false;
        Ok(())
    }

    /// A datagram socket turns from its peer to `next`: what it has not read is lost, of which a peer that is connected to it is
    /// told (Linux' unix_dgram_disconnected).
    fn leave_datagrams(&self, next: Option<&Arc<UnixSocket>>) {
        let had_peer = self.state.lock().peer.is_some();
        let peer = self.forget_peer();
        if !had_peer || peer.as_ref().zip(next).is_some_and(|(a, b)| Arc::ptr_eq(a, b)) {
            return;
        }
        if let Some(peer) = peer.filter(|_| self.forget_datagrams()) {
            let is_mutual = peer.state.lock().peer.as_ref().is_some_and(|p| p.ptr_eq(&self.me));
            if is_mutual {
                peer.state.lock().error = Some(ECONNRESET);
                peer.waiters.wake_all(Events::ERR);
            }
        }
    }

    /// What was sent and is not read is lost, if there is any.
    pub fn forget_datagrams(&self) -> bool {
        let unread = core::mem::take(&mut self.state.lock().inbox);
        if unread.is_empty() {
            return false;
        }
        drop(unread);
        self.made_room();
        true
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
        self.waiters.wake_all(Events::HUP | Events::READABLE | Events::SENDABLE | Events::RDHUP);
    }
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
        if self.called.get().is_some() {
            return names::bind_again(caller, address);
        }
        self.name_it(names::bind(caller, address, &this)?);
        Ok(())
    }

    fn listen(&self, caller: &Caller<'_>, backlog: i32) -> Result<()> {
        if !self.is_connected_kind() {
            return Err(EOPNOTSUPP);
        }
        let most = settings::MAX_BACKLOG[0].get() as usize;
        let backlog = usize::try_from(backlog).unwrap_or(most).min(most);
        let credentials = caller.credentials();
        let mut state = self.state.lock();
        if state.key.is_none() || state.is_established() {
            return Err(EINVAL);
        }
        match &mut state.listening {
            Some(listening) => (listening.backlog, listening.credentials) = (backlog, credentials),
            none => *none = Some(Listening { backlog, credentials, ready: VecDeque::new() }),
        }
        // A listener is its own peer (Linux' init_peercred).
        state.peer_credentials = Some(credentials);
        drop(state);
        self.room.wake_all(Events::ALL);
        Ok(())
    }

    fn accept(&self) -> Result<(Arc<dyn Socket>, Address)> {
        if !self.is_connected_kind() {
            return Err(EOPNOTSUPP);
        }
        let mut state = self.state.lock();
        // After shutdown(2) nobody comes any more.
        let none = if state.read_shut { EINVAL } else { EAGAIN };
        let listening = state.listening.as_mut().ok_or(EINVAL)?;
        let child = listening.ready.pop_front().ok_or(none)?;
        drop(state);
        // Unread bytes and the wish for credentials are inherited; who waited to connect may.
        let pass = self.passes_credentials();
        child.common.lock().pass_credentials = pass;
        child.state.lock().listener = None;
        self.room.wake_all(Events::ALL);
        let name = child.peer_address().unwrap_or(Address::new(Address::UNIX, &[]));
        Ok((child, name))
    }

    fn connect(&self, caller: &Caller<'_>, address: &Address) -> Result<()> {
        let this = self.this()?;
        if self.kind == Type::Datagram && address.family() == Some(Address::UNSPEC) {
            self.leave_datagrams(None);
            self.state.lock().peer_called = None;
            return Ok(());
        }
        self.bind_for_credentials()?;
        let target = names::find(caller, address, self.kind)?;
        if target.kind != self.kind {
            return Err(EPROTOTYPE);
        }
        if self.kind == Type::Datagram {
            return self.connect_datagram(&target);
        }
        let credentials = {
            let mut state = target.state.lock();
            let is_deaf = state.read_shut;
            let listening = state.listening.as_mut().filter(|_| !is_deaf).ok_or(ECONNREFUSED)?;
            if listening.ready.len() > listening.backlog {
                return Err(EAGAIN);
            }
            listening.ready.reserve_fallibly(1).map_err(|_| ENOMEM)?;
            listening.credentials
        };
        // Linux looks at its own state when it has found somebody to connect to.
        {
            let state = self.state.lock();
            if state.listening.is_some() {
                return Err(EINVAL);
            }
            if state.is_established() {
                return Err(EISCONN);
            }
        }
        let child = UnixSocket::new(self.kind, credentials);
        child.called.set(target.called.get());
        child.state.lock().listener = Some(target.me.clone());
        UnixSocket::join(&this, &child);
        child.state.lock().peer_credentials = Some(caller.credentials());
        {
            let mut state = target.state.lock();
            if let Some(listening) = state.listening.as_mut() {
                listening.ready.push_back(child);
            }
        }
        target.waiters.wake(Events::READABLE);
        Ok(())
    }

    /// The listener, or the receiver of a datagram, whose queue is full.
    fn blocker(&self, caller: &Caller<'_>, to: &Address) -> Option<Arc<dyn Socket>> {
        let target = names::find(caller, to, self.kind).ok()?;
        Some(target)
    }

    fn room(&self) -> &WaitQueue {
        &self.room
    }

    fn shutdown(&self, how: Shutdown) -> Result<()> {
        let peer = {
            let mut state = self.state.lock();
            state.read_shut |= how.reads();
            state.write_shut |= how.writes();
            if self.is_connected_kind() { state.peer.clone() } else { None }
        };
        self.waiters.wake_all(Events::HUP | Events::READABLE | Events::SENDABLE | Events::RDHUP);
        // The other side sees the mirror image.
        if let Some(peer) = peer.and_then(|p| p.upgrade()) {
            {
                let mut state = peer.state.lock();
                state.read_shut |= how.writes();
                state.write_shut |= how.reads();
            }
            peer.waiters.wake_all(Events::HUP | Events::READABLE | Events::SENDABLE | Events::RDHUP);
        }
        Ok(())
    }

    fn local_address(&self) -> Result<Address> {
        Ok(self.called.shown())
    }

    fn peer_address(&self) -> Result<Address> {
        let state = self.state.lock();
        if state.peer.is_none() && !(state.peer_gone && self.is_connected_kind()) {
            return Err(ENOTCONN);
        }
        Ok(state.peer_called.clone().ok_or(ENOTCONN)?.shown())
    }

    fn send(&self, caller: Option<&Caller<'_>>, message: &Sending, from: &mut Source<'_>) -> Result<usize> {
        let is_urgent_byte = self.kind == Type::Stream && from.remaining() > 0;
        if message.flags & linux::MSG_OOB != 0 && !is_urgent_byte {
            return Err(match self.kind {
                Type::SequencedPacket if !self.is_established() => ENOTCONN,
                _ => EOPNOTSUPP,
            });
        }
        match self.kind {
            Type::Stream => self.send_stream(caller, message, from),
            _ => self.send_packet(caller, message, from),
        }
    }

    fn receive(&self, to: &mut Sink<'_>, flags: u32) -> Result<Received> {
        if self.is_connected_kind() && !self.is_established() {
            return Err(if self.kind == Type::Stream { EINVAL } else { ENOTCONN });
        }
        if flags & linux::MSG_OOB != 0 {
            return if self.kind == Type::Stream { self.receive_urgent(to, flags) } else { Err(EOPNOTSUPP) };
        }
        if self.is_packet() { self.receive_packet(to, flags) } else { self.receive_stream(to, flags) }
    }

    fn set_option(&self, level: i32, name: i32, value: &[u8]) -> Result<()> {
        if level as u32 != linux::SOL_SOCKET {
            return Err(EOPNOTSUPP);
        }
        if name as u32 == linux::SO_PEEK_OFF {
            return self.peek.set(value);
        }
        {
            let mut common = self.common.lock();
            if let Some(result) = common.set(name as u32, value) {
                self.has_filter.store(common.filter().is_some(), Ordering::Relaxed);
                self.has_stamps.store(common.stamps.are_wanted(), Ordering::Relaxed);
                let inline = common.is_kept_on(linux::SO_OOBINLINE);
                self.reads_urgent_inline.store(inline, Ordering::Relaxed);
                return result;
            }
        }
        match name as u32 {
            linux::SO_SNDBUF | linux::SO_SNDBUFFORCE => {
                self.send_buffer.store(
                    buffer_size(name as u32, value, MIN_SEND_BUFFER / 2, &settings::MAX_SEND_BUFFER[0])?,
                    Ordering::Relaxed,
                );
                if self.is_writable() {
                    self.waiters.wake(Events::SENDABLE);
                }
                Ok(())
            }
            linux::SO_RCVBUF | linux::SO_RCVBUFFORCE => {
                self.receive_buffer.store(
                    buffer_size(
                        name as u32,
                        value,
                        MIN_RECEIVE_BUFFER / 2,
                        &settings::MAX_RECEIVE_BUFFER[0],
                    )?,
                    Ordering::Relaxed,
                );
                Ok(())
            }
            name => self.common.lock().set_inert(name, value).unwrap_or(Err(ENOPROTOOPT)),
        }
    }

    fn get_option(&self, level: i32, name: i32, _asked: &[u8]) -> Result<Vec<u8>> {
        if level as u32 != linux::SOL_SOCKET {
            return Err(EOPNOTSUPP);
        }
        if name as u32 == linux::SO_PEEK_OFF {
            return Ok(self.peek.value());
        }
        if let Some(value) = self.common.lock().get(name as u32) {
            return Ok(value);
        }
        let inert = self.common.lock().inert(name as u32);
        let mut state = self.state.lock();
        Ok(match name as u32 {
            linux::SO_ERROR => from_int(state.error.take().map_or(0, |e| i64::from(e.0))),
            linux::SO_TYPE => from_int(self.kind as u32),
            linux::SO_DOMAIN => from_int(Address::UNIX),
            linux::SO_PROTOCOL => from_int(0),
            linux::SO_ACCEPTCONN => from_int(state.listening.is_some()),
            linux::SO_SNDBUF => from_int(self.send_buffer() as i64),
            linux::SO_RCVBUF => from_int(self.receive_buffer.load(Ordering::Relaxed) as i64),
            linux::SO_PEERCRED => {
                // Without a peer: process 0 and ids of nobody (Linux: -1).
                let nobody = Credentials { pid: 0, uid: u32::MAX, gid: u32::MAX };
                let c = state.peer_credentials.unwrap_or(nobody);
                [c.pid, c.uid, c.gid].iter().flat_map(|w| w.to_ne_bytes()).collect()
            }
            _ => return inert.ok_or(ENOPROTOOPT),
        })
    }

    fn timeout_ns(&self, receive: bool) -> Option<u64> {
        self.common.lock().timeout_ns(receive)
    }

    fn poll(&self) -> Events {
        let (mut events, peer) = {
            let state = self.state.lock();
            let ended = state.read_shut || state.peer_gone;
            if let Some(listening) = &state.listening {
                let events = Events::NONE.with(Events::READABLE, !listening.ready.is_empty() || ended);
                return events.with(Events::RDHUP, ended).with(Events::HUP, ended && state.write_shut);
            }
            let mut events = Events::NONE.with(Events::READABLE, !state.inbox.is_empty() || ended);
            events = events.with(Events::RDHUP, ended).with(Events::PRI, state.inbox.has_urgent());
            let shut = state.peer_gone || state.read_shut && state.write_shut;
            let fresh = self.is_connected_kind() && state.peer.is_none() && !state.peer_gone;
            events = events.with(Events::HUP, shut || fresh);
            (events.with(Events::ERR, state.error.is_some()), state.peer.clone())
        };
        let full = || peer.and_then(|p| p.upgrade()).is_some_and(|p| self.is_peer_full(&p));
        events = events.with(Events::SENDABLE, self.is_writable() && !full());
        events
    }

    fn wait_queue(&self) -> &WaitQueue {
        &self.waiters
    }

    fn ioctl(&self, command: u32, argument: u64) -> Result<usize> {
        let value = match command {
            FIONREAD => {
                let state = self.state.lock();
                if state.listening.is_some() {
                    return Err(EINVAL);
                }
                match state.inbox.first() {
                    Some(first) if self.kind == Type::Datagram => first.bytes.len(),
                    _ => state.inbox.bytes(),
                }
            }
            SIOCATMARK if self.kind == Type::Stream => self.state.lock().inbox.is_at_mark().into(),
            SIOCATMARK => return Err(EOPNOTSUPP),
            TIOCOUTQ => self.sent.load(Ordering::Relaxed),
            _ => return Err(ENOTTY),
        };
        UserPtr::<i32>::new(argument).write(value as i32)?;
        Ok(0)
    }

    fn named(&self, inode: u64) {
        self.inode.store(inode, Ordering::Relaxed);
    }

    fn relations(&self) -> Result<Option<Relations>> {
        // Whoever holds the last reference to a socket takes its peer's lock when it goes: none is let go of with a lock held.
        let number =
            |peer: Option<Weak<UnixSocket>>| Some(peer?.upgrade()?.inode.load(Ordering::Relaxed) as u32);
        let mut asking = Vec::new();
        let (mut relations, peer) = {
            let state = self.state.lock();
            let file = match state.key {
                Some(Key::Inode(device, inode)) => Some((device, inode)),
                _ => None,
            };
            let queues = match &state.listening {
                Some(listening) => {
                    asking.reserve_exact_fallibly(listening.ready.len()).map_err(|_| ENOMEM)?;
                    asking.extend(listening.ready.iter().cloned());
                    [listening.ready.len() as u32, listening.backlog as u32]
                }
                None => [state.inbox.bytes() as u32, self.sent.load(Ordering::Relaxed) as u32],
            };
            let ends = state.peer_gone && self.is_connected_kind();
            let relations = Relations {
                file,
                peer: None,
                waiting: state.listening.as_ref().map(|_| Vec::new()),
                queues,
                shut: [state.read_shut || ends, state.write_shut || ends],
            };
            (relations, state.peer.clone())
        };
        relations.peer = number(peer);
        if let Some(waiting) = &mut relations.waiting {
            waiting.reserve_exact_fallibly(asking.len()).map_err(|_| ENOMEM)?;
            for child in asking {
                let client = child.state.lock().peer.clone();
                waiting.push(number(client).unwrap_or(0));
            }
        }
        Ok(Some(relations))
    }

    fn close(&self) {
        self.shut_down();
    }

    fn handle_closed(&self) {
        if self.flight.travels() {
            garbage::request();
        }
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        self.shut_down();
    }
}
