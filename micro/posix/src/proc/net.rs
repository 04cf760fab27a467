// SPDX-License-Identifier: Apache-2.0 OR MIT
//! /proc/net (proc(5)): the sockets of the program's descriptors. Connections nobody has accepted yet, and those that
//! outlive their descriptor, are not listed.

use super::text;
use crate::files;
use abi::Result;
use abi::linux::net as linux;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_socket::{Address, Socket, SocketAddressV4, Type};
use core::fmt::Write;
use descriptors::Description;

const IPPROTO_TCP: i32 = 6;
/// What a socket's state is called in these tables (`include/net/tcp_states.h`): UDP uses two of TCP's.
const ESTABLISHED: u8 = 1;
const CLOSED: u8 = 7;
/// Of a UNIX socket (`SS_UNCONNECTED`, `SS_CONNECTED`), and its flag when it listens (`__SO_ACCEPTCON`).
const UNCONNECTED: u32 = 1;
const CONNECTED: u32 = 3;
const ACCEPTS: u32 = 0x1_0000;
/// Lines of the TCP and UDP tables are padded to one length.
const TCP_LINE: usize = 149;
const UDP_LINE: usize = 127;

/// A socket of a family and type, with its inode number; each once, however many descriptors it has.
fn sockets(family: u16, kinds: &[Type]) -> Vec<(u64, Arc<dyn Socket>)> {
    let descriptors = &files::current().descriptors;
    let mut out: Vec<(u64, Arc<dyn Socket>)> = Vec::new();
    let mut next = descriptors.next_open(0);
    while let Some(fd) = next {
        next = descriptors.next_open(fd as u32 + 1);
        let found = descriptors.get(fd).ok().and_then(|d| of_family(&d, family, kinds));
        if let Some(found) = found
            && !out.iter().any(|(inode, _)| *inode == found.0)
        {
            out.push(found);
        }
    }
    out
}

fn of_family(description: &Description, family: u16, kinds: &[Type]) -> Option<(u64, Arc<dyn Socket>)> {
    let socket = api_socket::of_file(&**description.file()).ok()?;
    let wanted = socket.family() == family && kinds.contains(&socket.socket_type());
    wanted.then(|| Some((description.file().stat().ok()?.inode, socket.clone())))?
}

/// As Linux prints them: the address' four bytes as one number of this machine, and the port.
fn endpoint(address: Result<Address>) -> (SocketAddressV4, String) {
    let v4 = address.and_then(|address| address.as_v4()).unwrap_or_default();
    (v4, format!("{:08X}:{:04X}", u32::from_ne_bytes(v4.address), v4.port))
}

fn uid() -> u32 {
    crate::task::current().process.credentials.lock().uid
}

/// A line, padded as Linux pads it.
fn add(out: &mut String, line: &str, width: usize) {
    let _ = writeln!(out, "{line:<width$}");
}

pub fn tcp() -> Result<Vec<u8>> {
    let mut out = String::new();
    let title =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode";
    add(&mut out, title, TCP_LINE);
    let bound = sockets(Address::INET, &[Type::Stream]).into_iter().filter_map(|(inode, socket)| {
        // Sockets that are not in use yet are in no table.
        let info = socket.get_option(IPPROTO_TCP, linux::TCP_INFO as i32, &[]).ok()?;
        let state = *info.first()?;
        (state != CLOSED).then_some((inode, socket, state))
    });
    for (number, (inode, socket, state)) in bound.enumerate() {
        let (_, local) = endpoint(socket.local_address());
        let (_, remote) = endpoint(socket.peer_address());
        let line = format!(
            "{number:4}: {local} {remote} {state:02X} 00000000:00000000 00:00000000 00000000 {:5}        0 {inode} 1 \
             0000000000000000 100 0 0 10 0",
            uid()
        );
        add(&mut out, &line, TCP_LINE);
    }
    text(out)
}

pub fn udp() -> Result<Vec<u8>> {
    let mut out = String::new();
    let title = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops";
    add(&mut out, title, UDP_LINE);
    for (number, (inode, socket)) in sockets(Address::INET, &[Type::Datagram]).into_iter().enumerate() {
        let (bound, local) = endpoint(socket.local_address());
        if bound.port == 0 {
            continue;
        }
        let peer = socket.peer_address();
        let state = if peer.is_ok() { ESTABLISHED } else { CLOSED };
        let (_, remote) = endpoint(peer);
        let line = format!(
            "{number:5}: {local} {remote} {state:02X} 00000000:00000000 00:00000000 00000000 {:5}        0 {inode} 2 \
             0000000000000000 0",
            uid()
        );
        add(&mut out, &line, UDP_LINE);
    }
    text(out)
}

pub fn unix() -> Result<Vec<u8>> {
    let mut out = String::from("Num       RefCount Protocol Flags    Type St Inode Path\n");
    let kinds = [Type::Stream, Type::Datagram, Type::SequencedPacket];
    for (inode, socket) in sockets(Address::UNIX, &kinds) {
        let accepts = socket.get_option(linux::SOL_SOCKET as i32, linux::SO_ACCEPTCONN as i32, &[]);
        let flags = if accepts.is_ok_and(|v| v.first() == Some(&1)) { ACCEPTS } else { 0 };
        let state = if socket.peer_address().is_ok() { CONNECTED } else { UNCONNECTED };
        let kind = socket.socket_type() as u32;
        let _ =
            write!(out, "0000000000000000: 00000002 00000000 {flags:08X} {kind:04X} {state:02X} {inode:5}");
        let name = socket.local_address().map(|address| address.rest().to_vec()).unwrap_or_default();
        // A NUL at the start is an abstract name, one at the end belongs to a path; Linux shows both as @.
        let name =
            if name.first() == Some(&0) { &name[..] } else { name.split(|b| *b == 0).next().unwrap_or(&[]) };
        if !name.is_empty() {
            let shown: Vec<u8> = name.iter().map(|b| if *b == 0 { b'@' } else { *b }).collect();
            let _ = write!(out, " {}", String::from_utf8_lossy(&shown));
        }
        out.push('\n');
    }
    text(out)
}
