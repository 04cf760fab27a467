// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sockets: what the system calls of the socket family are made of.
//!
//! # Contract
//!
//! - A socket is a file by way of [`SocketFile`]; **nothing blocks**. [`Socket::accept`], [`Socket::receive`] and [`Socket::send`] answer
//!   `EAGAIN`, [`Socket::connect`] answers `EINPROGRESS`, and the file's wait queue is woken when trying again makes
//!   sense. The system-call layer does the waiting, `MSG_DONTWAIT`, `MSG_WAITALL` and the time-outs of
//!   [`Socket::timeout_ns`].
//! - `EPIPE` from [`Socket::send`] becomes SIGPIPE in the system-call layer unless `MSG_NOSIGNAL` is given.
//! - Errors are those of Linux' manual pages.
//! - Address families are micro-libraries: each registers a [`Family`] once, and [`create`] finds it. A family
//!   nobody registered is `EAFNOSUPPORT`.
//! - SO_ATTACH_FILTER and SO_ATTACH_REUSEPORT_CBPF come to a socket with the program's instructions for a value, and
//!   SO_GET_FILTER answers with them: the system-call layer follows pointers and counts instructions.
//! - Paths belong to the system-call layer: a family that uses them (AF_UNIX) asks through [`Caller::names`].
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod address;
mod diagnosis;
mod family;
mod file;
pub mod filter;
mod last_stamp;
pub mod options;
mod peek;
pub mod reserved_ports;
mod rights;
pub mod settings;
mod zero_copy;

pub use address::{Address, SocketAddressV4, SocketAddressV6};
pub use diagnosis::{Diagnosis, Relations, diagnosis, register_diagnosis};
pub use family::{
    Family, Maker, Network, caller, create, credentials, may_administer, network_number, pair, register,
    register_caller, register_maker, set, set_text, stack, table,
};
pub use file::{SocketFile, network_of_file, of_file};
pub use last_stamp::{LastStamp, SIOCGSTAMP, SIOCGSTAMPNS};
pub use peek::PeekOffset;
pub use rights::{RIGHTS_MAX, Right, Rights, register_reclaim};
pub use zero_copy::ZeroCopy;

use abi::{Events, Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_fs::{Inode, Sink, Source};
use api_mem::PageSource;
use api_sched::WaitQueue;
use core::any::Any;

/// Type of a socket, Linux numbering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Type {
    Stream = 1,
    Datagram = 2,
    Raw = 3,
    SequencedPacket = 5,
}

impl Type {
    /// From the low bits of socket(2)'s second argument; flags are taken off before.
    pub fn from_number(number: u32) -> Option<Type> {
        [Type::Stream, Type::Datagram, Type::Raw, Type::SequencedPacket]
            .into_iter()
            .find(|t| *t as u32 == number)
    }
}

/// `struct ucred`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    pub pid: u32,
    pub uid: u32,
    pub gid: u32,
}

/// Who calls, and the names of AF_UNIX sockets in its file system.
pub trait Names: Sync {
    /// Process and effective ids: what SO_PEERCRED says.
    fn credentials(&self) -> Credentials;
    /// Process and real ids: what goes along with a message.
    fn sender(&self) -> Credentials;
    /// CAP_NET_ADMIN: the caller may change how the machine is connected.
    fn may_administer(&self) -> bool;
    /// The network that the caller is in; `None`: the machine's own.
    fn network(&self) -> Option<Arc<Network>> {
        None
    }
    /// The network that a descriptor of the caller names (/proc/PID/ns/net): `EBADF`, `EINVAL`, `EPERM` where the caller may not
    /// administer it.
    fn network_of_descriptor(&self, fd: i32) -> Result<Arc<Network>> {
        let _ = fd;
        Err(EINVAL)
    }
    /// The network that a process is in: `ESRCH`, and `EPERM` likewise.
    fn network_of_process(&self, pid: i32) -> Result<Arc<Network>> {
        let _ = pid;
        Err(ESRCH)
    }
    /// Makes an inode of type socket at the path: `EADDRINUSE` when the name is taken, else mknod's errors.
    fn create(&self, path: &[u8]) -> Result<Arc<dyn Inode>>;
    /// The inode at the path: `ENOENT`, `EACCES` without write permission and so on.
    fn find(&self, path: &[u8]) -> Result<Arc<dyn Inode>>;
}

/// Who calls.
#[derive(Clone, Copy)]
pub struct Caller<'a> {
    pub names: &'a dyn Names,
}

impl Caller<'_> {
    pub fn credentials(&self) -> Credentials {
        self.names.credentials()
    }
}

/// One control message of sendmsg(2) or recvmsg(2).
#[derive(Clone)]
pub enum Control {
    /// SCM_RIGHTS.
    Rights(Rights),
    /// SCM_CREDENTIALS.
    Credentials(Credentials),
    /// Any other: level, type and data.
    Other { level: i32, kind: i32, data: Vec<u8> },
}

/// What is sent along with the bytes.
#[derive(Default)]
pub struct Sending {
    /// Destination; `None`: the connected peer.
    pub to: Option<Address>,
    pub control: Vec<Control>,
    /// MSG_* flags.
    pub flags: u32,
}

/// What came with the bytes.
#[derive(Default)]
pub struct Received {
    /// Bytes stored, or with MSG_TRUNC the real length of the packet.
    pub length: usize,
    /// Sender, where the protocol has one for each message.
    pub from: Option<Address>,
    pub control: Vec<Control>,
    /// MSG_TRUNC, MSG_EOR, MSG_ERRQUEUE, MSG_OOB for `msg_flags`.
    pub flags: u32,
}

/// Which half shutdown(2) closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    Read,
    Write,
    Both,
}

impl Shutdown {
    pub fn reads(self) -> bool {
        self != Shutdown::Write
    }

    pub fn writes(self) -> bool {
        self != Shutdown::Read
    }
}

/// A socket.
pub trait Socket: Any + Send + Sync {
    /// AF_* number (SO_DOMAIN).
    fn family(&self) -> u16;
    fn socket_type(&self) -> Type;
    /// IPPROTO_* number (SO_PROTOCOL).
    fn protocol(&self) -> u32 {
        0
    }

    fn bind(&self, caller: &Caller<'_>, address: &Address) -> Result<()> {
        let _ = (caller, address);
        Err(EOPNOTSUPP)
    }

    fn listen(&self, caller: &Caller<'_>, backlog: i32) -> Result<()> {
        let _ = (caller, backlog);
        Err(EOPNOTSUPP)
    }

    /// `EAGAIN` when nobody waits.
    fn accept(&self) -> Result<(Arc<dyn Socket>, Address)> {
        Err(EOPNOTSUPP)
    }

    /// `EINPROGRESS` when it goes on in the background: wait for [`abi::Events::OUT`], then call again: `EISCONN`,
    /// `Ok` or the error says how it ended, `EALREADY` that it has not.
    fn connect(&self, caller: &Caller<'_>, address: &Address) -> Result<()> {
        let _ = (caller, address);
        Err(EOPNOTSUPP)
    }

    /// The socket whose queue is full where sending to an address, or connecting to it, answered `EAGAIN`: the caller
    /// waits on its [`Socket::room`]. `None`: on this socket's own queue.
    fn blocker(&self, caller: &Caller<'_>, to: &Address) -> Option<Arc<dyn Socket>> {
        let _ = (caller, to);
        None
    }

    /// Woken when others may send or connect to this socket again.
    fn room(&self) -> &WaitQueue {
        self.wait_queue()
    }

    fn shutdown(&self, how: Shutdown) -> Result<()> {
        let _ = how;
        Err(EOPNOTSUPP)
    }

    fn local_address(&self) -> Result<Address>;

    /// `ENOTCONN` without a peer.
    fn peer_address(&self) -> Result<Address> {
        Err(ENOTCONN)
    }

    /// Sends one message, or of a stream as much as there is room for.
    /// Without a caller no path can be looked up and the credentials are those at creation.
    fn send(&self, caller: Option<&Caller<'_>>, message: &Sending, from: &mut Source<'_>) -> Result<usize>;

    /// Receives one message, or of a stream what there is. `flags` are MSG_*; MSG_PEEK leaves it there.
    fn receive(&self, to: &mut Sink<'_>, flags: u32) -> Result<Received>;

    /// `ENOPROTOOPT` for options the family does not know.
    fn set_option(&self, level: i32, name: i32, value: &[u8]) -> Result<()> {
        let _ = (level, name, value);
        Err(ENOPROTOOPT)
    }

    /// The option's value in full; `asked` is what the caller passed in (a few options read it).
    fn get_option(&self, level: i32, name: i32, asked: &[u8]) -> Result<Vec<u8>> {
        let _ = (level, name, asked);
        Err(ENOPROTOOPT)
    }

    /// SO_RCVTIMEO (`receive`) or SO_SNDTIMEO in nanoseconds; `None`: wait for ever.
    fn timeout_ns(&self, receive: bool) -> Option<u64> {
        let _ = receive;
        None
    }

    /// SO_RCVLOWAT: what a blocking receive waits for.
    fn receive_low_water(&self) -> usize {
        1
    }

    /// Queues a message as if it had been received: what a notification of mq_notify(2) is. An empty one only asks
    /// whether that is possible (`EINVAL`).
    fn post(&self, message: &[u8]) -> Result<()> {
        let _ = message;
        Err(EINVAL)
    }

    /// SO_LINGER: how long close(2) waits for [`Socket::finish`], in nanoseconds; `None`: not at all.
    fn linger_ns(&self) -> Option<u64> {
        None
    }

    /// Ends sending, of a socket that is about to be closed: `EAGAIN` until the peer has everything.
    fn finish(&self) -> Result<()> {
        Ok(())
    }

    /// What is possible now.
    fn poll(&self) -> Events;

    /// Woken when [`Socket::poll`] may have changed.
    fn wait_queue(&self) -> &WaitQueue;

    /// `argument` is the raw third argument, often a user pointer.
    fn ioctl(&self, command: u32, argument: u64) -> Result<usize> {
        let _ = (command, argument);
        Err(ENOTTY)
    }

    /// For mmap(2): memory that the socket shares with the program. `ENODEV` by default.
    fn page_source(&self) -> Result<Arc<dyn PageSource>> {
        Err(ENODEV)
    }

    /// The socket has a descriptor: the number that /proc shows its file by.
    fn named(&self, inode: u64) {
        let _ = inode;
    }

    /// Of AF_UNIX. `ENOMEM`.
    fn relations(&self) -> Result<Option<Relations>> {
        Ok(None)
    }

    /// The last descriptor goes.
    fn close(&self);

    /// A descriptor or another handle of it goes, and others stay. Must do no more than take note: locks may be held.
    fn handle_closed(&self) {}
}
