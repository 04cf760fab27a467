// SPDX-License-Identifier: Apache-2.0 OR MIT
//! /proc/net (proc(5)): the sockets of all processes' descriptors. Connections nobody has accepted yet, and those that
//! outlive their descriptor, are not listed.

use super::text;
use abi::Result;
use abi::linux::net as linux;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_socket::{Address, Socket, Type};
use core::fmt::Write;
use descriptors::Description;
use ordered::Set;
use procfs::Output;
use task::processes;

const IPPROTO_TCP: i32 = 6;
/// What a socket's state is called in these tables (`include/net/tcp_states.h`): UDP uses two of TCP's.
pub const ESTABLISHED: u8 = 1;
pub const CLOSED: u8 = 7;
/// Of a UNIX socket (`SS_UNCONNECTED`, `SS_CONNECTED`), and its flag when it listens (`__SO_ACCEPTCON`).
const UNCONNECTED: u32 = 1;
const CONNECTED: u32 = 3;
const ACCEPTS: u32 = 0x1_0000;
/// Lines of the TCP and UDP tables are padded to one length.
const TCP_LINE: usize = 149;
const UDP_LINE: usize = 127;
/// The title of what has no connections; UDP's has one blank more.
const DATAGRAMS: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops";

/// A socket, with its inode number and the user of the process that was found to have it.
pub struct Found {
    pub inode: u64,
    pub uid: u32,
    pub socket: Arc<dyn Socket>,
}

/// The sockets of a family and of these types that some process has, each once, however many descriptors it has.
fn each(family: u16, kinds: &[Type], seen: &mut dyn FnMut(&Found) -> Result<()>) -> Result<()> {
    let mut known = Set::new();
    visit(family, kinds, &mut |found| if known.insert(found.inode) { seen(&found) } else { Ok(()) })
}

/// The same, once for each descriptor.
pub fn visit(family: u16, kinds: &[Type], seen: &mut dyn FnMut(Found) -> Result<()>) -> Result<()> {
    let own = task::current().process.network().network.number;
    for process in processes::all() {
        if process.family.is_zombie() {
            continue;
        }
        let uid = process.credentials.lock().uid;
        process.each_files(|files| {
            let descriptors = &files.descriptors;
            let mut next = descriptors.next_open(0);
            while let Some(fd) = next {
                next = descriptors.next_open(fd as u32 + 1);
                let found = descriptors
                    .get(fd)
                    .ok()
                    .filter(|d| is_in(d, own))
                    .and_then(|d| of_family(&d, family, kinds));
                if let Some((inode, socket)) = found {
                    seen(Found { inode, uid, socket })?;
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Sockets of another network are not listed here, whoever has them.
fn is_in(description: &Description, network: u64) -> bool {
    api_socket::network_of_file(&**description.file()) == Ok(network)
}

fn of_family(description: &Description, family: u16, kinds: &[Type]) -> Option<(u64, Arc<dyn Socket>)> {
    let socket = api_socket::of_file(&**description.file()).ok()?;
    let wanted = socket.family() == family && kinds.contains(&socket.socket_type());
    wanted.then(|| Some((description.file().stat().ok()?.inode, socket.clone())))?
}

/// As Linux prints them: the address, each four bytes as one number of this machine, and the port, which is returned
/// as well.
fn endpoint(family: u16, address: Result<Address>) -> (u16, String) {
    let (bytes, port) = match family {
        Address::INET6 => {
            let v6 = address.and_then(|address| address.as_v6()).unwrap_or_default();
            (v6.address.to_vec(), v6.port)
        }
        _ => {
            let v4 = address.and_then(|address| address.as_v4()).unwrap_or_default();
            (v4.address.to_vec(), v4.port)
        }
    };
    let mut out = String::new();
    for word in bytes.chunks_exact(4) {
        let _ = write!(out, "{:08X}", u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
    }
    let _ = write!(out, ":{port:04X}");
    (port, out)
}

/// A line, padded as Linux pads it.
fn add(out: &mut Output, line: &str, width: usize) -> Result<()> {
    out.print(format_args!("{line:<width$}\n"))
}

pub fn tcp(out: &mut Output) -> Result<()> {
    tcp_of(Address::INET, out)
}

pub fn tcp6(out: &mut Output) -> Result<()> {
    tcp_of(Address::INET6, out)
}

pub fn udp(out: &mut Output) -> Result<()> {
    udp_of(Address::INET, out)
}

pub fn udp6(out: &mut Output) -> Result<()> {
    udp_of(Address::INET6, out)
}

/// A table about the whole stack; empty in a kernel without one.
pub fn table(name: &str) -> Result<Vec<u8>> {
    text(api_socket::table(name).unwrap_or_default())
}

/// Linux' title for the wider addresses.
fn title(family: u16, v4: &str) -> String {
    match family {
        Address::INET6 => v4.replace(
            "local_address rem_address   st",
            "local_address                         remote_address                        st",
        ),
        _ => String::from(v4),
    }
}

fn width(family: u16, v4: usize) -> usize {
    if family == Address::INET6 { 0 } else { v4 }
}

fn tcp_of(family: u16, out: &mut Output) -> Result<()> {
    let title =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode";
    add(out, &self::title(family, title), width(family, TCP_LINE))?;
    let mut number = 0;
    each(family, &[Type::Stream], &mut |Found { inode, uid, socket }| {
        // Sockets that are not in use yet are in no table.
        let info = socket.get_option(IPPROTO_TCP, linux::TCP_INFO as i32, &[]).unwrap_or_default();
        let Some(state) = info.first().copied().filter(|state| *state != CLOSED) else { return Ok(()) };
        let (_, local) = endpoint(family, socket.local_address());
        let (_, remote) = endpoint(family, socket.peer_address());
        let line = format!(
            "{number:4}: {local} {remote} {state:02X} 00000000:00000000 00:00000000 00000000 {uid:5}        0 {inode} 1 \
             0000000000000000 100 0 0 10 0"
        );
        number += 1;
        add(out, &line, width(family, TCP_LINE))
    })
}

fn udp_of(family: u16, out: &mut Output) -> Result<()> {
    let of_v6 = family == Address::INET6;
    let title = if of_v6 { String::from(DATAGRAMS) } else { format!(" {DATAGRAMS}") };
    add(out, &self::title(family, &title), width(family, UDP_LINE))?;
    let mut number = 0;
    each(family, &[Type::Datagram], &mut |Found { inode, uid, socket }| {
        let (port, local) = endpoint(family, socket.local_address());
        if port == 0 {
            return Ok(());
        }
        let peer = socket.peer_address();
        let state = if peer.is_ok() { ESTABLISHED } else { CLOSED };
        let (_, remote) = endpoint(family, peer);
        let line = format!(
            "{number:5}: {local} {remote} {state:02X} 00000000:00000000 00:00000000 00000000 {uid:5}        0 {inode} 2 \
             0000000000000000 0"
        );
        number += 1;
        add(out, &line, width(family, UDP_LINE))
    })
}

pub fn raw(out: &mut Output) -> Result<()> {
    raw_of(Address::INET, out)
}

pub fn raw6(out: &mut Output) -> Result<()> {
    raw_of(Address::INET6, out)
}

/// Sockets of UDP-Lite, of which there are none.
pub fn udplite(out: &mut Output) -> Result<()> {
    add(out, &title(Address::INET, &format!(" {DATAGRAMS}")), UDP_LINE)
}

pub fn udplite6(out: &mut Output) -> Result<()> {
    add(out, &title(Address::INET6, DATAGRAMS), 0)
}

/// The number of a socket's protocol.
pub fn protocol(socket: &Arc<dyn Socket>) -> i32 {
    let value = socket.get_option(linux::SOL_SOCKET as i32, linux::SO_PROTOCOL as i32, &[]);
    value.ok().and_then(|value| value.try_into().ok()).map_or(0, i32::from_ne_bytes)
}

fn raw_of(family: u16, out: &mut Output) -> Result<()> {
    add(out, &title(family, DATAGRAMS), 0)?;
    let mut number = 0;
    each(family, &[Type::Raw], &mut |Found { inode, uid, socket }| {
        let protocol = protocol(socket);
        let peer = socket.peer_address();
        let state = if peer.is_ok() { ESTABLISHED } else { CLOSED };
        // What stands for the port is the protocol.
        let with_protocol = |(_, text): (u16, String)| match text.split_once(':') {
            Some((address, _)) => format!("{address}:{protocol:04X}"),
            None => text,
        };
        let local = with_protocol(endpoint(family, socket.local_address()));
        let (_, remote) = endpoint(family, peer);
        out.print(format_args!(
            "{number:4}: {local} {remote} {state:02X} 00000000:00000000 00:00000000 00000000 {uid:5}        0 {inode} 2 \
             0000000000000000 0\n"
        ))?;
        number += 1;
        Ok(())
    })
}

/// Sockets of netlink(7): protocol, own number, groups of the first 32.
pub fn netlink(out: &mut Output) -> Result<()> {
    out.add(b"sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode\n")?;
    each(linux::AF_NETLINK as u16, &[Type::Raw, Type::Datagram], &mut |Found { inode, socket, .. }| {
        let Some([number, groups]) = netlink_address(socket) else { return Ok(()) };
        let protocol = protocol(socket);
        out.print(format_args!(
            "0000000000000000 {protocol:<3} {number:<10} {groups:08x} 0        0        0     2        0        {inode:<8}\n"
        ))
    })
}

/// A netlink socket's number, and its groups of the first 32. `None`: it has no number yet, and is in no table of Linux'.
pub fn netlink_address(socket: &Arc<dyn Socket>) -> Option<[u32; 2]> {
    // struct sockaddr_nl behind its family: padding, number, groups.
    let address = socket.local_address().map(|address| address.rest().to_vec()).unwrap_or_default();
    let numbers = [2, 6].map(|at| {
        let bytes = address.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u32::from_ne_bytes)
    });
    Some(numbers).filter(|[number, _]| *number != 0)
}

/// Whether a socket listens.
pub fn accepts(socket: &Arc<dyn Socket>) -> bool {
    let accepts = socket.get_option(linux::SOL_SOCKET as i32, linux::SO_ACCEPTCONN as i32, &[]);
    accepts.is_ok_and(|value| value.first() == Some(&1))
}

pub fn unix(out: &mut Output) -> Result<()> {
    out.add(b"Num       RefCount Protocol Flags    Type St Inode Path\n")?;
    let kinds = [Type::Stream, Type::Datagram, Type::SequencedPacket];
    each(Address::UNIX, &kinds, &mut |Found { inode, socket, .. }| {
        let flags = if accepts(socket) { ACCEPTS } else { 0 };
        let state = if socket.peer_address().is_ok() { CONNECTED } else { UNCONNECTED };
        let kind = socket.socket_type() as u32;
        out.print(format_args!(
            "0000000000000000: 00000002 00000000 {flags:08X} {kind:04X} {state:02X} {inode:5}"
        ))?;
        let name = socket.local_address().map(|address| address.rest().to_vec()).unwrap_or_default();
        // A NUL at the start is an abstract name, one at the end belongs to a path; Linux shows both as @.
        let name =
            if name.first() == Some(&0) { &name[..] } else { name.split(|b| *b == 0).next().unwrap_or(&[]) };
        if !name.is_empty() {
            let shown: Vec<u8> = name.iter().map(|b| if *b == 0 { b'@' } else { *b }).collect();
            out.print(format_args!(" {}", String::from_utf8_lossy(&shown)))?;
        }
        out.add(b"\n")
    })
}
