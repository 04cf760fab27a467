// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls on sockets in pieces, for io_uring: what is read from the program, one attempt that does not wait, and what is written back.

use super::Target;
use super::address::{read_address, write_address};
use super::caller;
use super::messages::{self, Header, read_control};
use abi::linux::net as linux;
use abi::{Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_socket::{Address, Received, Sending, Socket, SocketFile, Type};
use api_user::{Segments, Sink, Source, UserPtr};
use descriptors::Description;
use task::signals;

const SIGPIPE: i32 = 13;
const MSG_CMSG_CLOEXEC: u32 = 0x4000_0000;
/// `sizeof(struct io_uring_recvmsg_out)`.
const OUT: usize = 16;

/// A message of sendmsg(2) or recvmsg(2), read from the program once.
pub struct Message {
    at: u64,
    header: Header,
    pub segments: Segments,
    sending: Sending,
}

impl Message {
    pub fn to_send(at: u64) -> Result<Message> {
        let header = Header::read(at)?;
        let segments = header.pieces()?;
        let control = read_control(header.control, header.control_length)?;
        let sending = Sending { to: header.destination()?, control, flags: 0 };
        Ok(Message { at, header, segments, sending })
    }

    pub fn to_receive(at: u64) -> Result<Message> {
        let header = Header::read(at)?;
        let segments = header.pieces()?;
        Ok(Message { at, header, segments, sending: Sending::default() })
    }

    pub fn length(&self) -> usize {
        self.segments.iter().map(|segment| segment.length).sum()
    }

    /// Sends what is behind the first `moved` bytes.
    pub fn send(&mut self, description: &Arc<Description>, flags: u32, moved: usize) -> Result<usize> {
        self.sending.flags = flags;
        let mut from = Source::vectored(&self.segments);
        from.skip(moved);
        let sent = attempt_send(description, &self.sending, &mut from)?;
        // Descriptors travel with the first byte.
        self.sending.control.clear();
        Ok(sent)
    }

    /// Receives behind the first `moved` bytes, and says so in the program's header.
    pub fn receive(&self, description: &Arc<Description>, flags: u32, moved: usize) -> Result<usize> {
        let mut to = Sink::vectored(&self.segments);
        to.skip(moved);
        self.receive_into(description, flags, &mut to)
    }

    /// The same into a buffer that is not the message's.
    pub fn receive_into(
        &self,
        description: &Arc<Description>,
        flags: u32,
        to: &mut Sink<'_>,
    ) -> Result<usize> {
        let received = attempt_receive(description, to, flags & !MSG_CMSG_CLOEXEC)?;
        messages::answer(&Target(description.clone()), self.at, &self.header, received, flags)
    }

    /// Receives one of many messages into a buffer: `struct io_uring_recvmsg_out`, room for the sender's name and for control data as
    /// long as the program's header says, and the bytes. How much of the buffer is used, and whether the stream has ended.
    pub fn receive_whole(
        &self,
        description: &Arc<Description>,
        flags: u32,
        address: u64,
        length: usize,
    ) -> Result<(usize, bool)> {
        let (name_room, control_room) = (self.header.name_length as usize, self.header.control_length);
        let before = OUT.checked_add(name_room).and_then(|n| n.checked_add(control_room)).ok_or(EOVERFLOW)?;
        let room = length.checked_sub(before).ok_or(EFAULT)?;
        let mut to = Sink::user(address + before as u64, room)?;
        let received = attempt_receive(description, &mut to, flags & !MSG_CMSG_CLOEXEC)?;
        let name = received.from.as_ref().map_or(&[][..], |from| from.bytes());
        api_user::write_bytes(address + OUT as u64, &name[..name.len().min(name_room)])?;
        let control_at = address + (OUT + name_room) as u64;
        let closes = flags & MSG_CMSG_CLOEXEC != 0;
        let (used, cut) = messages::write_control(received.control, control_at, control_room, closes)?;
        let flags = received.flags | if cut { linux::MSG_CTRUNC } else { 0 };
        let out = [name.len() as u32, used as u32, received.length as u32, flags];
        UserPtr::<[u32; 4]>::new(address).write(out)?;
        Ok((before + received.length.min(room), received.length == 0))
    }
}

fn attempt_send(description: &Arc<Description>, sending: &Sending, from: &mut Source<'_>) -> Result<usize> {
    let target = Target(description.clone());
    let socket = target.socket()?;
    let flags = sending.flags;
    socket.send(Some(&caller()), sending, from).inspect_err(|e| {
        let is_quiet = flags & linux::MSG_NOSIGNAL != 0;
        if *e == EPIPE && !is_quiet && socket.socket_type() == Type::Stream {
            signals::send_to_current(SIGPIPE);
        }
    })
}

fn attempt_receive(description: &Arc<Description>, to: &mut Sink<'_>, flags: u32) -> Result<Received> {
    Target(description.clone()).socket()?.receive(to, flags | linux::MSG_DONTWAIT)
}

/// One attempt of send(2) or sendto(2).
pub fn send(
    description: &Arc<Description>,
    to: Option<Address>,
    flags: u32,
    from: &mut Source<'_>,
) -> Result<usize> {
    let sending = Sending { to, control: Vec::new(), flags: flags | linux::MSG_DONTWAIT };
    attempt_send(description, &sending, from)
}

/// One attempt of recv(2); and whether the packet was longer.
pub fn receive(description: &Arc<Description>, flags: u32, to: &mut Sink<'_>) -> Result<usize> {
    attempt_receive(description, to, flags).map(|received| received.length)
}

/// Reads an address of the program's.
pub fn address(at: u64, length: i32) -> Result<Address> {
    read_address(at, length)
}

/// True of a stream, which MSG_WAITALL fills.
pub fn is_stream(description: &Description) -> bool {
    api_socket::of_file(&**description.file()).is_ok_and(|socket| socket.socket_type() == Type::Stream)
}

/// One attempt of accept(2): the new socket as a file. The peer's address is written where `at` is not null.
pub fn accept(
    description: &Arc<Description>,
    flags: u32,
    at: u64,
    length_at: u64,
) -> Result<Arc<Description>> {
    let target = Target(description.clone());
    let (accepted, peer) = target.socket()?.accept()?;
    let made = describe(accepted, target.network()?, flags);
    if at != 0 {
        write_address(&peer, at, length_at)?;
    }
    Ok(made)
}

/// One attempt of connect(2): `EINPROGRESS` and `EALREADY` until it is known what came of it.
pub fn connect(description: &Arc<Description>, address: &Address) -> Result<()> {
    Target(description.clone()).socket()?.connect(&caller(), address)
}

pub fn shutdown(description: &Arc<Description>, how: i32) -> Result<usize> {
    Target(description.clone()).shutdown(how)
}

/// A socket as a file without a descriptor. `kind` has the flags of socket(2)'s second argument.
pub fn socket(family: u32, kind: u32, protocol: u32) -> Result<Arc<Description>> {
    let (kind, flags) = super::split_type(kind)?;
    Ok(describe(super::make(family, kind, protocol)?, api_socket::network_number(), flags))
}

fn describe(socket: Arc<dyn Socket>, network: u64, flags: u32) -> Arc<Description> {
    Description::new(SocketFile::new(socket, network), flags & super::SOCK_NONBLOCK | super::READ_WRITE, None)
}
