// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packet sockets of an interface (packet(7)), and the filters that say which frames they hear.
//!
//! The unsafe code here makes sockets, sets options whose values live during the call, and binds to initialised addresses.

use super::{Interface, index};
use std::{
    io,
    net::{Ipv4Addr, UdpSocket},
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
};

/// Bytes the host keeps of frames that the machine has not read yet: more than a window of TCP's.
const RECEIVE_BUFFER: libc::c_int = 4 << 20;
/// Where filters find the kind of a frame (linux/filter.h, `SKF_AD_OFF + SKF_AD_PKTTYPE`).
const KIND: u32 = (-0x1000_i32 + 4) as u32;
/// A frame that this computer sends (linux/if_packet.h, `PACKET_OUTGOING`).
const OUTGOING: u32 = 4;
const ALL: u32 = u32::MAX;
const NONE: u32 = 0;

/// A socket that has every frame of the interface but those this computer sends, each behind a virtio-net header.
/// `with_neighbour`: those of the interface's resolver or host side all the same.
pub fn machine(interface: &Interface, with_neighbour: bool) -> io::Result<OwnedFd> {
    let socket = make(0)?;
    let fd = socket.as_raw_fd();
    set(fd, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1)?;
    if with_neighbour {
        filter(fd, &frames_for_machine(interface.resolver_mac()))?;
    } else {
        // Linux before 4.20 lacks it: the machine would hear itself.
        set(fd, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1)?;
    }
    widen(fd);
    bind(fd, &interface.name)?;
    Ok(socket)
}

/// A socket that has every frame which a machine sends at its tap device, each behind a virtio-net header, and sends frames to it; it
/// does not block.
pub fn of_device(name: &str) -> io::Result<OwnedFd> {
    let socket = make(libc::SOCK_NONBLOCK)?;
    let fd = socket.as_raw_fd();
    set(fd, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1)?;
    set(fd, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1)?;
    widen(fd);
    bind(fd, name)?;
    Ok(socket)
}

/// Makes room for frames that are not read yet, beyond the host's limit where this process may.
fn widen(fd: RawFd) {
    let _ = set(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &RECEIVE_BUFFER)
        .or_else(|_| set(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, &RECEIVE_BUFFER));
}

/// A socket that hears what the machine sends to `address` and asks of it; it does not block. `with_header`: each frame is
/// behind a virtio-net header, as the machine sent it; else checksums may be missing.
pub fn neighbour(interface: &Interface, address: Ipv4Addr, with_header: bool) -> io::Result<OwnedFd> {
    let socket = make(libc::SOCK_NONBLOCK)?;
    if with_header {
        set(socket.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1)?;
    }
    filter(socket.as_raw_fd(), &frames_for_neighbour(address))?;
    bind(socket.as_raw_fd(), &interface.name)?;
    Ok(socket)
}

/// Protocol 0 hears nothing until the socket is bound to one interface.
fn make(flags: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: makes a descriptor that nobody else has.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC | flags, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was made just now.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn bind(fd: RawFd, name: &str) -> io::Result<()> {
    let control = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    // SAFETY: `sockaddr_ll` is plain data for which all zeroes is a valid value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index(control.as_raw_fd(), name)?;
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the address is initialised and as long as said.
    let bound = unsafe { libc::bind(fd, std::ptr::from_ref(&address).cast(), length) };
    if bound < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn set<T>(fd: RawFd, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the value lives during the call and is as long as said; those used here are an int and a `sock_fprog`.
    let result = unsafe { libc::setsockopt(fd, level, option, std::ptr::from_ref(value).cast(), length) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn filter(fd: RawFd, program: &[libc::sock_filter]) -> io::Result<()> {
    // The kernel copies it and does not write to it.
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    set(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

const fn step(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

/// Loads `size` (`BPF_W`, `BPF_H`, `BPF_B`) at an offset of the frame.
const fn load(size: u32, at: u32) -> libc::sock_filter {
    step(libc::BPF_LD | size | libc::BPF_ABS, 0, 0, at)
}

/// Goes on `then` or `otherwise` instructions further.
const fn equal(value: u32, then: u8, otherwise: u8) -> libc::sock_filter {
    step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, then, otherwise, value)
}

const fn answer(bytes: u32) -> libc::sock_filter {
    step(libc::BPF_RET | libc::BPF_K, 0, 0, bytes)
}

/// What arrives, and of what is sent the frames from this MAC.
fn frames_for_machine(mac: [u8; 6]) -> [libc::sock_filter; 8] {
    let [a, b, c, d, e, f] = mac;
    [
        load(libc::BPF_B, KIND),
        equal(OUTGOING, 0, 4),
        load(libc::BPF_W, 6),
        equal(u32::from_be_bytes([a, b, c, d]), 0, 3),
        load(libc::BPF_H, 10),
        equal(u32::from(u16::from_be_bytes([e, f])), 0, 1),
        answer(ALL),
        answer(NONE),
    ]
}

/// What is sent to this address, and requests for it (ARP).
fn frames_for_neighbour(address: Ipv4Addr) -> [libc::sock_filter; 11] {
    let address = u32::from(address);
    [
        load(libc::BPF_B, KIND),
        equal(OUTGOING, 0, 8),
        load(libc::BPF_H, 12),
        equal(libc::ETH_P_ARP as u32, 0, 2),
        load(libc::BPF_W, 38),
        equal(address, 3, 4),
        equal(libc::ETH_P_IP as u32, 0, 3),
        load(libc::BPF_W, 30),
        equal(address, 0, 1),
        answer(ALL),
        answer(NONE),
    ]
}
