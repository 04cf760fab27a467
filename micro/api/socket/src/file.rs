// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A socket as a file.

use super::{Address, Sending, Socket, Type};
use abi::linux::net as linux;
use abi::{Events, Result, errno::*};
use alloc::sync::Arc;
use api_fs::{File, FileType, SetAttr, Sink, Source, Stat, Unnamed};
use api_mem::PageSource;
use api_sched::WaitQueue;
use core::any::Any;
use core::sync::atomic::{AtomicU64, Ordering};

const AF_NETLINK: u16 = linux::AF_NETLINK as u16;
const AF_PACKET: u16 = linux::AF_PACKET as u16;
const IPPROTO_UDP: u32 = 17;

/// What a descriptor of a socket refers to, whatever the family.
pub struct SocketFile {
    socket: Arc<dyn Socket>,
    /// `/proc/self/fd` shows it as `socket:[N]`.
    inode: u64,
    /// The network that it is in, whatever the process that has it.
    network: u64,
    attributes: Unnamed,
}

impl SocketFile {
    /// A socket of the network with this number.
    pub fn new(socket: Arc<dyn Socket>, network: u64) -> Arc<SocketFile> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let owner = crate::family::caller().map(|caller| caller.credentials());
        let (uid, gid) = owner.map_or((0, 0), |who| (who.uid, who.gid));
        // The mode that Linux' sockfs begins with.
        let attributes = Unnamed::new(0o777, uid, gid);
        let inode = NEXT.fetch_add(1, Ordering::Relaxed);
        socket.named(inode);
        Arc::new(SocketFile { socket, inode, network, attributes })
    }

    pub fn socket(&self) -> &Arc<dyn Socket> {
        &self.socket
    }
}

/// The socket behind a file; `ENOTSOCK` for other files.
pub fn of_file(file: &dyn File) -> Result<&Arc<dyn Socket>> {
    file.as_any().downcast_ref::<SocketFile>().map(SocketFile::socket).ok_or(ENOTSOCK)
}

/// The number of the network that a socket is in; `ENOTSOCK` for other files.
pub fn network_of_file(file: &dyn File) -> Result<u64> {
    file.as_any().downcast_ref::<SocketFile>().map(|file| file.network).ok_or(ENOTSOCK)
}

impl File for SocketFile {
    fn read(&self, _offset: u64, to: &mut Sink<'_>) -> Result<usize> {
        // Unlike recv(2), read(2) of nothing waits for nothing (Linux' sock_read_iter).
        if to.remaining() == 0 {
            return Ok(0);
        }
        self.socket.receive(to, 0).map(|r| r.length)
    }

    fn write(&self, _offset: u64, from: &mut Source<'_>) -> Result<usize> {
        self.socket.send(crate::family::caller().as_ref(), &Sending::default(), from)
    }

    fn stat(&self) -> Result<Stat> {
        Ok(self.attributes.show(Stat { inode: self.inode, ..Stat::new(FileType::Socket, 0) }))
    }

    fn set_attr(&self, change: &SetAttr) -> Result<()> {
        self.attributes.change(change);
        Ok(())
    }

    fn protocol_name(&self) -> Option<&'static str> {
        let of_ip = |names: [&'static str; 2]| names[usize::from(self.socket.family() == Address::INET6)];
        Some(match (self.socket.family(), self.socket.socket_type(), self.socket.protocol()) {
            (Address::UNIX, Type::Stream, _) => "UNIX-STREAM",
            (Address::UNIX, ..) => "UNIX",
            (AF_NETLINK, ..) => "NETLINK",
            (AF_PACKET, ..) => "PACKET",
            (_, Type::Stream, _) => of_ip(["TCP", "TCPv6"]),
            (_, Type::Raw, _) => of_ip(["RAW", "RAWv6"]),
            (_, _, IPPROTO_UDP) => of_ip(["UDP", "UDPv6"]),
            _ => of_ip(["PING", "PINGv6"]),
        })
    }

    fn poll(&self) -> Events {
        self.socket.poll()
    }

    fn wait_queue(&self) -> Option<&WaitQueue> {
        Some(self.socket.wait_queue())
    }

    fn ioctl(&self, command: u32, argument: u64) -> Result<usize> {
        match self.socket.ioctl(command, argument) {
            Err(ENOTTY) => crate::family::interfaces(command, argument),
            answer => answer,
        }
    }

    fn page_source(&self) -> Result<Arc<dyn PageSource>> {
        self.socket.page_source()
    }

    fn close(&self) -> Result<()> {
        self.socket.close();
        Ok(())
    }

    fn handle_closed(&self) {
        self.socket.handle_closed();
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
