// SPDX-License-Identifier: Apache-2.0 OR MIT
//! AF_INET, SOCK_STREAM.

use super::{IPPROTO_TCP, bindable, from_core, ioctl, options, to_core};
use crate::slab::Id;
use crate::stack::{Net, Shared};
use crate::tcp::Kind;
use crate::tcp::calls::Bytes;
use abi::linux::net as linux;
use abi::{Events, Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_fs::{Sink, Source};
use api_lock::SpinLock;
use api_sched::WaitQueue;
use api_socket::options::Common;
use api_socket::{Address, Caller, Received, Sending, Shutdown, Socket, Type};
use core::net::{Ipv4Addr, SocketAddrV4};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Writes up to here go through a buffer on the stack.
const SMALL: usize = 2048;
/// Larger ones are taken in pieces of this size, a device's largest segmented packet or so.
const LARGE: usize = 64 * 1024;

pub struct StreamSocket {
    net: Arc<Net>,
    id: Id,
    shared: Arc<Shared>,
    common: SpinLock<Common>,
    /// SO_RCVLOWAT, where poll finds it.
    low_water: AtomicU32,
    closed: AtomicBool,
}

impl StreamSocket {
    pub fn new(net: Arc<Net>) -> Arc<StreamSocket> {
        let shared = Shared::new();
        let id = net.look(|s| s.tcp.create(shared.clone()));
        Self::of(net, id, shared)
    }

    fn of(net: Arc<Net>, id: Id, shared: Arc<Shared>) -> Arc<StreamSocket> {
        Arc::new(StreamSocket {
            net,
            id,
            shared,
            common: SpinLock::default(),
            low_water: AtomicU32::new(1),
            closed: AtomicBool::new(false),
        })
    }

    fn local(&self) -> SocketAddrV4 {
        self.net.look(|s| {
            let entry = s.tcp.sockets.get(self.id);
            let connected = entry.and_then(|e| e.connection()).map(|c| c.tuple.local);
            connected
                .filter(|l| l.port() != 0)
                .or(entry.and_then(|e| e.bound))
                .unwrap_or(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0))
        })
    }

    fn send_some(&self, from: &mut Source<'_>, room: usize, more: bool) -> Result<usize> {
        let n = from.remaining().min(room);
        if n <= SMALL {
            let mut small = [0; SMALL];
            let n = from.take(&mut small[..n])?;
            let more = more || from.remaining() > 0;
            self.net.act(|s, now| s.tcp.send(&mut s.ip, now, self.id, Bytes::Few(&small[..n]), more))?;
            return Ok(n);
        }
        let bytes = from.take_vec(n.min(LARGE))?;
        let n = bytes.len();
        let more = more || from.remaining() > 0;
        self.net.act(|s, now| s.tcp.send(&mut s.ip, now, self.id, Bytes::Many(bytes), more))?;
        Ok(n)
    }

    fn receive_some(&self, to: &mut Sink<'_>, limit: usize, discard: bool) -> Result<usize> {
        let Some(mut buffer) = self.net.look(|s| s.tcp.receive(self.id))? else { return Ok(0) };
        let wanted = buffer.len().min(limit);
        let moved = if discard { Ok(wanted) } else { to.put(&buffer.bytes()[..wanted]) };
        buffer.trim_front(*moved.as_ref().unwrap_or(&0));
        let update = self.net.look(|s| s.tcp.read_done(&mut s.ip, self.id, Some(buffer)));
        if update {
            self.net.act(|_, _| ());
        }
        moved
    }
}

impl Socket for StreamSocket {
    fn family(&self) -> u16 {
        Address::INET
    }

    fn socket_type(&self) -> Type {
        Type::Stream
    }

    fn protocol(&self) -> u32 {
        IPPROTO_TCP
    }

    fn bind(&self, _caller: &Caller<'_>, address: &Address) -> Result<()> {
        let address = bindable(&self.net, address)?;
        self.net.look(|s| s.tcp.bind(self.id, address))
    }

    fn listen(&self, _caller: &Caller<'_>, backlog: i32) -> Result<()> {
        let (again, address) = self.net.look(|s| {
            let entry = s.tcp.sockets.get(self.id);
            let again = entry.is_some_and(|e| matches!(e.kind, Kind::Listener(_)));
            s.tcp.listen(self.id, backlog).map(|address| (again, address))
        })?;
        if !again && !address.ip().is_loopback() {
            self.net.host.listening(false, address.port());
        }
        Ok(())
    }

    fn accept(&self) -> Result<(Arc<dyn Socket>, Address)> {
        let (id, shared, remote) = self.net.look(|s| s.tcp.accept(self.id))?;
        Ok((StreamSocket::of(self.net.clone(), id, shared), from_core(remote)))
    }

    fn connect(&self, _caller: &Caller<'_>, address: &Address) -> Result<()> {
        if address.family() == Some(Address::UNSPEC) {
            return self.net.act(|s, now| s.tcp.disconnect(&mut s.ip, now, self.id));
        }
        let remote = to_core(address.as_v4()?);
        self.net.act(|s, now| s.tcp.connect(&mut s.ip, now, self.id, remote))
    }

    fn shutdown(&self, how: Shutdown) -> Result<()> {
        self.net.act(|s, now| {
            let listens = s.tcp.sockets.get(self.id).is_some_and(|e| matches!(e.kind, Kind::Listener(_)));
            if listens {
                if how.reads() {
                    s.tcp.stop_listening(&mut s.ip, now, self.id);
                }
                return Ok(());
            }
            s.tcp.shutdown(self.id, how.reads(), how.writes())
        })
    }

    fn local_address(&self) -> Result<Address> {
        Ok(from_core(self.local()))
    }

    fn peer_address(&self) -> Result<Address> {
        self.net.look(|s| {
            let connection = s.tcp.sockets.get(self.id).and_then(|e| e.connection()).ok_or(ENOTCONN)?;
            match connection.is_synchronised() {
                true => Ok(from_core(connection.remote())),
                false => Err(ENOTCONN),
            }
        })
    }

    fn send(&self, _caller: Option<&Caller<'_>>, message: &Sending, from: &mut Source<'_>) -> Result<usize> {
        // A destination is ignored on a connected stream (Linux), and is no way to connect (no TCP Fast Open).
        let more = message.flags & linux::MSG_MORE != 0;
        let mut done = 0;
        loop {
            let moved = match self.net.look(|s| s.tcp.send_room(self.id)) {
                Ok(_) if from.remaining() == 0 => return Ok(done),
                Ok(room) => self.send_some(from, room, more),
                Err(e) => Err(e),
            };
            match moved {
                Ok(n) => done += n,
                Err(e) if done == 0 => return Err(e),
                Err(_) => return Ok(done),
            }
            if from.remaining() == 0 {
                return Ok(done);
            }
        }
    }

    fn receive(&self, to: &mut Sink<'_>, flags: u32) -> Result<Received> {
        if flags & linux::MSG_OOB != 0 {
            // No urgent data is kept apart from the stream (as with SO_OOBINLINE).
            return Err(EINVAL);
        }
        if flags & linux::MSG_ERRQUEUE != 0 {
            return Err(EAGAIN);
        }
        let discard = flags & linux::MSG_TRUNC != 0;
        let limit = to.remaining();
        if flags & linux::MSG_PEEK != 0 {
            let bytes = self.net.look(|s| s.tcp.peek(self.id, limit))?.unwrap_or_default();
            let length = if discard { bytes.len() } else { to.put(&bytes)? };
            return Ok(Received { length, ..Received::default() });
        }
        let mut done = 0;
        while done < limit {
            match self.receive_some(to, limit - done, discard) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if done == 0 => return Err(e),
                Err(_) => break,
            }
        }
        Ok(Received { length: done, ..Received::default() })
    }

    fn set_option(&self, level: i32, name: i32, value: &[u8]) -> Result<()> {
        if level as u32 == linux::SOL_SOCKET {
            let mut common = self.common.lock();
            if let Some(result) = common.set(name as u32, value) {
                self.low_water.store(common.receive_low_water.max(1), Ordering::Relaxed);
                return result;
            }
        }
        options::set_stream(&self.net, self.id, level, name, value)
    }

    fn get_option(&self, level: i32, name: i32, asked: &[u8]) -> Result<Vec<u8>> {
        if level as u32 == linux::SOL_SOCKET
            && let Some(value) = self.common.lock().get(name as u32)
        {
            return Ok(value);
        }
        options::get_stream(&self.net, self.id, level, name, asked)
    }

    fn timeout_ns(&self, receive: bool) -> Option<u64> {
        let common = self.common.lock();
        if receive { common.receive_timeout } else { common.send_timeout }
    }

    fn receive_low_water(&self) -> usize {
        self.low_water.load(Ordering::Relaxed) as usize
    }

    fn poll(&self) -> Events {
        self.net.look(|s| match s.tcp.sockets.get(self.id).map(|e| &e.kind) {
            Some(Kind::Connection(connection)) => connection.poll(self.receive_low_water()),
            Some(Kind::Listener(listener)) => {
                Events::NONE.with(Events::IN | Events::RDNORM, !listener.ready.is_empty())
            }
            None => Events::HUP,
        })
    }

    fn wait_queue(&self) -> &WaitQueue {
        &self.shared.queue
    }

    fn ioctl(&self, command: u32, argument: u64) -> Result<usize> {
        let counts = || {
            self.net.look(|s| {
                let connection = s.tcp.sockets.get(self.id).and_then(|e| e.connection());
                connection.map(|c| {
                    let unsent = crate::seq::ahead(c.next, c.data_end()) as usize;
                    (c.input.len(), c.queue.len(), unsent)
                })
            })
        };
        match command {
            ioctl::FIONREAD => ioctl::put_int(argument, counts().ok_or(EINVAL)?.0),
            ioctl::TIOCOUTQ => ioctl::put_int(argument, counts().ok_or(EINVAL)?.1),
            ioctl::SIOCOUTQNSD => ioctl::put_int(argument, counts().ok_or(EINVAL)?.2),
            linux_ioctl::SIOCATMARK => ioctl::put_int(argument, 0),
            _ => ioctl::interface(&self.net, command, argument),
        }
    }

    fn close(&self) {
        if !self.closed.swap(true, Ordering::Relaxed) {
            self.net.act(|s, now| s.tcp.close(&mut s.ip, now, self.id));
        }
    }
}

use abi::linux::ioctl as linux_ioctl;

impl Drop for StreamSocket {
    fn drop(&mut self) {
        self.close();
    }
}
