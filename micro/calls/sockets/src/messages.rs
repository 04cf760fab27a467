// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sending and receiving: send and recv in their four forms each, control messages, descriptors that travel.

use super::Target;
use super::address::{read_address, write_address};
use super::{IPPROTO_TCP, caller, connect_to, waiting};
use abi::linux::net as linux;
use abi::{Events, Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_socket::{Address, Control, Credentials, RIGHTS_MAX, Received, Right, Rights, Sending, Socket, Type};
use api_user::{IO_MAX, Segments, Sink, Source, UserPtr, read_iovec};
use descriptors::Description;
use task::call::Call;
use task::identity::capabilities::{CAP_SETGID, CAP_SETUID, CAP_SYS_ADMIN};
use task::pids::Pid;
use task::users::{self, Kind};
use task::wait::{FOREVER, deadline_of as deadline, for_file};
use task::{files, processes, signals};

const SIGPIPE: i32 = 13;
const SCM_RIGHTS: i32 = 1;
const SCM_CREDENTIALS: i32 = 2;
const SO_TIMESTAMPING: u32 = 37;
const SO_TXTIME: u32 = 61;
/// Longest control data (Linux' optmem_max is 20 KiB in old kernels).
const CONTROL_MAX: usize = 20 * 1024;
/// Most messages of sendmmsg and recvmmsg (UIO_MAXIOV).
const MESSAGES_MAX: usize = 1024;
/// `sizeof(struct cmsghdr)`, and what control messages are aligned to.
const CMSG: usize = 16;
const MSG_WAITFORONE: u32 = 0x10000;
const MSG_ZEROCOPY: u32 = 0x400_0000;
const MSG_FASTOPEN: u32 = 0x2000_0000;
const MSG_CMSG_CLOEXEC: u32 = 0x4000_0000;

/// `struct msghdr` (56 bytes on x86-64).
pub struct Header {
    pub name: u64,
    pub name_length: u32,
    pub iov: u64,
    pub iov_count: usize,
    pub control: u64,
    pub control_length: usize,
}

impl Header {
    const SIZE: u64 = 56;

    pub fn read(at: u64) -> Result<Header> {
        let w: [u64; 7] = UserPtr::new(at).read()?;
        if w[0] != 0 && (w[1] as i32) < 0 {
            return Err(EINVAL);
        }
        Ok(Header {
            name: w[0],
            name_length: w[1] as u32,
            iov: w[2],
            iov_count: w[3] as usize,
            control: w[4],
            control_length: w[5] as usize,
        })
    }

    /// What is sent, or where to what is received goes: `EMSGSIZE` for too many pieces, behind what is wrong with the address.
    pub fn pieces(&self) -> Result<Segments> {
        if self.iov_count > api_user::IOV_MAX { Err(EMSGSIZE) } else { read_iovec(self.iov, self.iov_count) }
    }

    /// Where a message goes.
    pub fn destination(&self) -> Result<Option<Address>> {
        match self.name {
            0 => Ok(None),
            _ if self.name_length == 0 => Ok(None),
            // Of a longer one what fits counts.
            name => read_address(name, self.name_length.min(Address::MAX as u32) as i32).map(Some),
        }
    }
}

/// Sends one message, waiting as the socket and the flags say.
fn send(target: &Target, mut message: Sending, from: &mut Source<'_>) -> Result<usize> {
    let socket = target.socket()?;
    let blocking = !target.0.is_nonblocking() && message.flags & linux::MSG_DONTWAIT == 0;
    let stream = socket.socket_type() == Type::Stream;
    let quiet = message.flags & linux::MSG_NOSIGNAL != 0;
    let who = caller();
    if message.flags & MSG_FASTOPEN != 0 && socket.protocol() == IPPROTO_TCP {
        // The server is asked without data first, as Linux does where it has no cookie of its (RFC 7413).
        let address = message.to.take().ok_or(EINVAL)?;
        if address.family().is_none_or(|family| family == Address::UNSPEC) {
            return Err(EOPNOTSUPP);
        }
        connect_to(target, &address, blocking).map_err(|e| if e == EALREADY { EINPROGRESS } else { e })?;
    }
    let mut done = 0;
    loop {
        match waiting(target, message.to.as_ref(), blocking, || socket.send(Some(&who), &message, from)) {
            Ok(n) => {
                done += n;
                if !stream || !blocking || from.remaining() == 0 || n == 0 {
                    return Ok(done);
                }
                // Descriptors travel with the first byte, and a send has one number (MSG_ZEROCOPY) in however many pieces it goes.
                message.control.clear();
                message.flags &= !MSG_ZEROCOPY;
            }
            Err(_) if done > 0 => return Ok(done),
            Err(e) => {
                if e == EPIPE && !quiet && stream {
                    signals::send_to_current(SIGPIPE);
                }
                return Err(e);
            }
        }
    }
}

/// Receives one message, waiting as the socket and the flags say; with MSG_WAITALL a stream fills the buffer.
pub fn receive(target: &Target, to: &mut Sink<'_>, flags: u32) -> Result<Received> {
    let socket = target.socket()?;
    let file = &**target.0.file();
    let blocking = !target.0.is_nonblocking() && flags & (linux::MSG_DONTWAIT | linux::MSG_ERRQUEUE) == 0;
    let readable = Events::READABLE;
    // The socket is told that nobody waits.
    let flags = if target.0.is_nonblocking() { flags | linux::MSG_DONTWAIT } else { flags };
    let all = flags & linux::MSG_WAITALL != 0
        && flags & linux::MSG_PEEK == 0
        && blocking
        && socket.socket_type() == Type::Stream;
    let mut first = for_file(file, readable, blocking, FOREVER, || socket.receive(to, flags))?;
    while all && to.remaining() > 0 && first.length > 0 && first.control.is_empty() {
        match for_file(file, readable, true, FOREVER, || socket.receive(to, flags)) {
            Ok(more) if more.length > 0 => first.length += more.length,
            _ => break,
        }
    }
    Ok(first)
}

pub fn sendto(call: &mut Call<'_>) -> Result<usize> {
    let mut from = Source::user(call.arg(1), call.size(2).min(IO_MAX))?;
    let target = Target::of(call.int(0))?;
    let to = if call.arg(4) == 0 { None } else { Some(read_address(call.arg(4), call.int(5))?) };
    send(&target, Sending { to, control: Vec::new(), flags: call.uint(3) }, &mut from)
}

pub fn recvfrom(call: &mut Call<'_>) -> Result<usize> {
    let mut to = Sink::user(call.arg(1), call.size(2).min(IO_MAX))?;
    let target = Target::of(call.int(0))?;
    let received = receive(&target, &mut to, call.uint(3))?;
    if call.arg(4) != 0 {
        put_sender(&target, &received, call.arg(4), call.arg(5))?;
    }
    Ok(received.length)
}

/// The sender's address; of a connected stream none (length 0, as Linux).
fn put_sender(_target: &Target, received: &Received, at: u64, length_at: u64) -> Result<()> {
    match &received.from {
        Some(address) => write_address(address, at, length_at),
        None => {
            let length_at = UserPtr::<i32>::new(length_at);
            if length_at.read()? < 0 { Err(EINVAL) } else { length_at.write(0) }
        }
    }
}

/// Decodes the control data of sendmsg(2).
pub fn read_control(at: u64, length: usize) -> Result<Vec<Control>> {
    if at == 0 || length < CMSG {
        return Ok(Vec::new());
    }
    if length > CONTROL_MAX {
        return Err(ENOBUFS);
    }
    let bytes = api_user::read_vec(at, length)?;
    let mut out = Vec::new();
    let mut files = Vec::new();
    let mut rest = &bytes[..];
    while rest.len() >= CMSG {
        let word = |at: usize| i32::from_ne_bytes([rest[at], rest[at + 1], rest[at + 2], rest[at + 3]]);
        let size = u64::from(word(0) as u32) | u64::from(word(4) as u32) << 32;
        let size = usize::try_from(size).ok().filter(|n| (CMSG..=rest.len()).contains(n)).ok_or(EINVAL)?;
        let (level, kind, data) = (word(8), word(12), &rest[CMSG..size]);
        out.reserve_fallibly(1).map_err(|_| ENOMEM)?;
        out.push(match (level as u32, kind) {
            (linux::SOL_SOCKET, SCM_RIGHTS) => {
                read_rights(data, &mut files)?;
                rest = &rest[size.next_multiple_of(8).min(rest.len())..];
                continue;
            }
            (linux::SOL_SOCKET, SCM_CREDENTIALS) => Control::Credentials(read_credentials(data)?),
            // Others of this level are unknown, but for marks and times of packets, which mean nothing here.
            (linux::SOL_SOCKET, kind)
                if !matches!(kind as u32, linux::SO_MARK | SO_TIMESTAMPING | SO_TXTIME) =>
            {
                return Err(EINVAL);
            }
            _ => {
                let mut copy = api_user::zeroed(data.len())?;
                copy.copy_from_slice(data);
                Control::Other { level, kind, data: copy }
            }
        });
        rest = &rest[size.next_multiple_of(8).min(rest.len())..];
    }
    if !files.is_empty() {
        // What travels is as many files as the process may have open.
        let most = files::current().descriptors.limit() as usize;
        out.push(Control::Rights(Rights::new(files, most, socket_of)?));
    }
    Ok(out)
}

fn socket_of(file: &Right) -> Option<Arc<dyn Socket>> {
    let description = file.downcast_ref::<Description>()?;
    api_socket::of_file(&**description.file()).ok().cloned()
}

/// Adds the files of one control message; those of several travel together.
fn read_rights(data: &[u8], to: &mut Vec<Right>) -> Result<()> {
    if to.len() + data.len() / 4 > RIGHTS_MAX {
        return Err(EINVAL);
    }
    let descriptors = &files::current().descriptors;
    to.reserve_fallibly(data.len() / 4).map_err(|_| ENOMEM)?;
    for fd in data.chunks_exact(4) {
        let description = descriptors.get_any(i32::from_ne_bytes([fd[0], fd[1], fd[2], fd[3]]))?;
        // A ring that waits for the socket it travels through would never end (Linux 6.1.68 and later).
        if !description.file().may_be_sent() {
            return Err(EINVAL);
        }
        to.push(description);
    }
    Ok(())
}

/// Which ids a sender may claim (unix(7), SCM_CREDENTIALS): its own of any kind, or with a capability those of others; the process
/// must be there.
fn read_credentials(data: &[u8]) -> Result<Credentials> {
    if data.len() != size_of::<[u32; 3]>() {
        return Err(EINVAL);
    }
    let word = |at: usize| u32::from_ne_bytes([data[at], data[at + 1], data[at + 2], data[at + 3]]);
    let claimed = Credentials {
        pid: word(0),
        uid: users::named(Kind::User, word(4))?,
        gid: users::named(Kind::Group, word(8))?,
    };
    let own = task::current().process.number as u32;
    {
        let caller = task::current();
        let c = caller.credentials().lock();
        let is_own = claimed.pid == own || c.can_in(&task::current().process.pids.owner(), CAP_SYS_ADMIN);
        let has_user = [c.uid, c.euid, c.suid].contains(&claimed.uid) || c.can_here(CAP_SETUID);
        let has_group = [c.gid, c.egid, c.sgid].contains(&claimed.gid) || c.can_here(CAP_SETGID);
        if !(is_own && has_user && has_group) {
            return Err(EPERM);
        }
    }
    let sender = match claimed.pid == own {
        true => task::current().process.pid,
        false => processes::named_with_thread(claimed.pid as i32).ok_or(ESRCH)?.pid,
    };
    let pid = sender.of_machine() as u32;
    Ok(Credentials { pid, ..claimed })
}

/// `struct ucred` as the caller sees it.
pub fn shown(c: Credentials) -> [u32; 3] {
    let users = users::here();
    // Nobody's ids are those of sockets without a peer.
    let seen = |id: u32, shown: u32| if id == u32::MAX { id } else { shown };
    let (uid, gid) = (seen(c.uid, users.shown_user(c.uid)), seen(c.gid, users.shown_group(c.gid)));
    [Pid::from_machine(c.pid as i32).here() as u32, uid, gid]
}

/// Encodes control messages into the program's buffer; the bytes used, and whether something did not fit.
pub fn write_control(
    control: Vec<Control>,
    at: u64,
    room: usize,
    close_on_exec: bool,
) -> Result<(usize, bool)> {
    let room = if at == 0 { 0 } else { room };
    let mut used = 0;
    let mut cut = false;
    for message in control {
        let left = room - used;
        if left < CMSG {
            // What does not fit is closed (Linux: descriptors are lost then).
            return Ok((used, true));
        }
        let (level, kind, data) = match message {
            Control::Rights(rights) => {
                let most = (left - CMSG) / 4;
                cut |= rights.files().len() > most;
                let mut data = Vec::new();
                for right in rights.files().iter().take(most) {
                    let Ok(description) = right.clone().downcast::<Description>() else { continue };
                    match files::current().descriptors.insert(description, close_on_exec) {
                        Ok(fd) => data.extend_from_slice(&fd.to_ne_bytes()),
                        Err(_) => {
                            cut = true;
                            break;
                        }
                    }
                }
                if data.is_empty() {
                    continue;
                }
                (linux::SOL_SOCKET as i32, SCM_RIGHTS, data)
            }
            Control::Credentials(c) => (
                linux::SOL_SOCKET as i32,
                SCM_CREDENTIALS,
                shown(c).iter().flat_map(|w| w.to_ne_bytes()).collect(),
            ),
            Control::Other { level, kind, data } => (level, kind, data),
        };
        let fits = data.len().min(left - CMSG);
        cut |= fits < data.len();
        let mut bytes = Vec::from((CMSG + fits).to_ne_bytes());
        bytes.extend_from_slice(&level.to_ne_bytes());
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(&data[..fits]);
        api_user::write_bytes(at + used as u64, &bytes)?;
        used = (used + bytes.len().next_multiple_of(8)).min(room);
    }
    Ok((used, cut))
}

fn send_header(target: &Target, at: u64, flags: u32) -> Result<usize> {
    let header = Header::read(at)?;
    let to = header.destination()?;
    let segments = header.pieces()?;
    let control = read_control(header.control, header.control_length)?;
    send(target, Sending { to, control, flags }, &mut Source::vectored(&segments))
}

fn receive_header(target: &Target, at: u64, flags: u32) -> Result<usize> {
    let header = Header::read(at)?;
    let segments = header.pieces()?;
    let received = receive(target, &mut Sink::vectored(&segments), flags & !MSG_CMSG_CLOEXEC)?;
    answer(target, at, &header, received, flags)
}

/// Says what was received in the program's `struct msghdr`.
pub fn answer(target: &Target, at: u64, header: &Header, received: Received, flags: u32) -> Result<usize> {
    let length_at = at + 8;
    if header.name != 0 {
        put_sender(target, &received, header.name, length_at)?;
    }
    let close_on_exec = flags & MSG_CMSG_CLOEXEC != 0;
    let Received { length, control, flags: mut out, .. } = received;
    let (used, cut) = write_control(control, header.control, header.control_length, close_on_exec)?;
    if cut {
        out |= linux::MSG_CTRUNC;
    }
    UserPtr::<u64>::new(at + 40).write(used as u64)?;
    UserPtr::<u32>::new(at + 48).write(out | flags & MSG_CMSG_CLOEXEC)?;
    Ok(length)
}

/// MSG_CMSG_COMPAT is the kernel's own: `EINVAL` before any descriptor is looked at.
fn message_flags(flags: u32) -> Result<u32> {
    if flags & MSG_CMSG_COMPAT != 0 { Err(EINVAL) } else { Ok(flags) }
}

pub fn sendmsg(call: &mut Call<'_>) -> Result<usize> {
    let flags = message_flags(call.uint(2))?;
    send_header(&Target::of(call.int(0))?, call.arg(1), flags)
}

pub fn recvmsg(call: &mut Call<'_>) -> Result<usize> {
    let flags = message_flags(call.uint(2))?;
    receive_header(&Target::of(call.int(0))?, call.arg(1), flags)
}

const MSG_CMSG_COMPAT: u32 = 0x8000_0000;

/// `struct mmsghdr` is a msghdr with the length behind it.
const MMSG: u64 = Header::SIZE + 8;

pub fn sendmmsg(call: &mut Call<'_>) -> Result<usize> {
    message_flags(call.uint(3))?;
    let target = Target::of(call.int(0))?;
    let count = (call.uint(2) as usize).min(MESSAGES_MAX);
    for i in 0..count {
        let at = call.arg(1) + i as u64 * MMSG;
        let sent = send_header(&target, at, call.uint(3))
            .and_then(|n| UserPtr::<u32>::new(at + Header::SIZE).write(n as u32));
        match sent {
            Ok(()) => {}
            Err(e) if i == 0 => return Err(e),
            Err(_) => return Ok(i),
        }
    }
    Ok(count)
}

/// recvmmsg(2). As on Linux the time-out is looked at after each message only.
pub fn recvmmsg(call: &mut Call<'_>) -> Result<usize> {
    let mut flags = message_flags(call.uint(3))?;
    let count = (call.uint(2) as usize).min(MESSAGES_MAX);
    let until = match call.ptr::<[i64; 2]>(4).non_null() {
        Some(timeout) => {
            let [seconds, ns] = timeout.read()?;
            if seconds < 0 || !(0..1_000_000_000).contains(&ns) {
                return Err(EINVAL);
            }
            let wait = (seconds as u64).saturating_mul(1_000_000_000).saturating_add(ns as u64);
            api_plat::now_ns().saturating_add(wait)
        }
        None => FOREVER,
    };
    let target = Target::of(call.int(0))?;
    for i in 0..count {
        let at = call.arg(1) + i as u64 * MMSG;
        let received = receive_header(&target, at, flags & !MSG_WAITFORONE)
            .and_then(|n| UserPtr::<u32>::new(at + Header::SIZE).write(n as u32));
        match received {
            Ok(()) => {}
            Err(e) if i == 0 => return Err(e),
            Err(_) => return Ok(i),
        }
        if flags & MSG_WAITFORONE != 0 {
            flags |= linux::MSG_DONTWAIT;
        }
        if api_plat::now_ns() >= until.min(deadline(&**target.0.file(), Events::IN)) {
            return Ok(i + 1);
        }
    }
    Ok(count)
}
