// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The loopback of a pod's network namespace, for the machine that took over its interface.
//!
//! Engines forward a pod's ports by a connection to 127.0.0.1 in its namespace (`kubectl port-forward`). Nothing listens there:
//! the machine has a loopback of its own. So the namespace's loopback gives up its address, a tun device gets the route, and
//! this end translates the packets' 127.x.y.z into the machine's address and back (RFC 3022, basic NAT). They come from the
//! network's own address ([`Interface::host_side`]), for which this end answers (ARP), and are put on the machine's link as
//! the [resolver](crate::resolver)'s are. A program that listens at 127.0.0.1 only is not reached.
//!
//! The machine is not trusted: what it sends is read within its bounds, and only packets to the host's side are passed on.
//!
//! The unsafe code here configures devices by ioctls whose arguments are initialised and live during the call, and registers
//! descriptors that are open for as long as they are registered.

use crate::{
    interface::{Interface, packet},
    resolver::address_answer,
    tap::{ioctl, request, sockaddr},
};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    net::{Ipv4Addr, UdpSocket},
    os::{
        fd::{AsRawFd, RawFd},
        unix::fs::OpenOptionsExt,
    },
    sync::Arc,
};
use tokio::io::unix::AsyncFd;

/// The tun device's name.
pub(crate) const DEVICE: &str = "unilith-lo";
const LOOPBACK: &str = "lo";
const ETHERNET: usize = 14;
const IPV4: usize = 20;
const TYPE_IPV4: [u8; 2] = [8, 0];
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
/// `struct virtio_net_hdr` in front of every packet and frame (virtio 1.2, 5.1.6), and what is looked at in it.
const HEADER: usize = 10;
const FLAGS: usize = 0;
const HEADER_LENGTH: usize = 2;
const CHECKSUM_START: usize = 6;
const NEEDS_CHECKSUM: u8 = 1;
const MAX_PACKET: usize = 65_535;

/// Both ends of the translation.
#[derive(Debug)]
pub struct Loopback {
    /// Packets of the host's stack in the namespace.
    host: Arc<File>,
    /// Frames of the machine's to `address`.
    link: Arc<File>,
    machine: Ipv4Addr,
    machine_mac: [u8; 6],
    /// The host's side.
    address: Ipv4Addr,
    mac: [u8; 6],
}

impl Loopback {
    /// Takes over the loopback of the calling thread's namespace, which is to have no other use. `None`: the machine's network
    /// has no address to spare.
    pub fn new(interface: &Interface) -> io::Result<Option<Loopback>> {
        let Some(address) = interface.host_side() else { return Ok(None) };
        let host = Arc::new(open()?);
        let link = Arc::new(File::from(packet::neighbour(interface, address, true)?));
        route(address, interface.mtu)?;
        let (machine, machine_mac) = (interface.address, interface.mac);
        Ok(Some(Loopback { host, link, machine, machine_mac, address, mac: interface.resolver_mac() }))
    }

    /// Translates until the devices are gone. Must be called inside a runtime.
    pub async fn serve(self) {
        let loopback = Arc::new(self);
        tokio::spawn(loopback.clone().serve_host());
        loopback.serve_machine().await;
    }

    /// Whoever does not hear sends again: no write is waited for.
    async fn serve_host(self: Arc<Loopback>) {
        let Some(host) = register(&self.host) else { return };
        let mut buffer = vec![0; HEADER + MAX_PACKET];
        while let Some(length) = read(&host, &mut buffer).await {
            if let Some(frame) = self.to_machine(&buffer[..length]) {
                let _ = self.link.as_ref().write(&frame);
            }
        }
    }

    async fn serve_machine(self: Arc<Loopback>) {
        let Some(link) = register(&self.link) else { return };
        let mut buffer = vec![0; HEADER + ETHERNET + MAX_PACKET];
        while let Some(length) = read(&link, &mut buffer).await {
            match self.to_host(&mut buffer[..length]) {
                Some(Said::Address(answer)) => {
                    let _ = self.link.as_ref().write(&[&[0; HEADER][..], &answer].concat());
                }
                Some(Said::Packet(packet)) => drop(self.host.as_ref().write(&packet)),
                None => {}
            }
        }
    }

    /// The frame for a packet of the host's to its loopback, both behind their headers.
    fn to_machine(&self, packet: &[u8]) -> Option<Vec<u8>> {
        let (header, ip) = packet.split_at_checked(HEADER)?;
        let mut ip = ip.to_vec();
        let to = address(&ip, DESTINATION)?;
        let is_ours = ip[0] >> 4 == 4 && to.is_loopback() && address(&ip, SOURCE)? == self.address;
        if !is_ours {
            return None;
        }
        let is_partial = header[FLAGS] & NEEDS_CHECKSUM != 0;
        translate(&mut ip, DESTINATION, self.machine, is_partial)?;
        let header = moved(header, ETHERNET as i32)?;
        Some([&header[..], &self.machine_mac, &self.mac, &TYPE_IPV4, &ip].concat())
    }

    fn to_host(&self, frame: &mut [u8]) -> Option<Said> {
        let (header, frame) = frame.split_at_mut_checked(HEADER)?;
        if let Some(answer) = address_answer(frame, self.address, self.mac) {
            return Some(Said::Address(answer));
        }
        let (ethernet, ip) = frame.split_at_mut_checked(ETHERNET)?;
        let is_ours = ethernet[12..] == TYPE_IPV4
            && *ip.first()? >> 4 == 4
            && address(ip, DESTINATION)? == self.address
            && address(ip, SOURCE)? == self.machine;
        if !is_ours {
            return None;
        }
        translate(ip, SOURCE, Ipv4Addr::LOCALHOST, header[FLAGS] & NEEDS_CHECKSUM != 0)?;
        Some(Said::Packet([&moved(header, -(ETHERNET as i32))?[..], ip].concat()))
    }
}

/// What a frame of the machine's asks for.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    /// Who has the host's address: the answer.
    Address([u8; 42]),
    Packet(Vec<u8>),
}

/// Where the addresses are in an IPv4 header.
const SOURCE: usize = 12;
const DESTINATION: usize = 16;

fn address(ip: &[u8], at: usize) -> Option<Ipv4Addr> {
    let bytes: [u8; 4] = ip.get(..IPV4)?.get(at..at + 4)?.try_into().ok()?;
    Some(bytes.into())
}

/// Replaces an address and what the checksums have of it (RFC 1624). `is_partial`: that of the transport is the sum of its
/// pseudo header so far, the rest is left to a device. `None`: a packet that is cut off or of a protocol without translation.
fn translate(ip: &mut [u8], at: usize, new: Ipv4Addr, is_partial: bool) -> Option<()> {
    let old = address(ip, at)?;
    let length = usize::from(ip[0] & 15) * 4;
    let is_first = u16::from_be_bytes([ip[6], ip[7]]) & 0x1fff == 0;
    let sum = match ip[9] {
        _ if !is_first => None,
        TCP => Some(length + 16),
        UDP => Some(length + 6),
        ICMP => None,
        _ => return None,
    };
    if length < IPV4 || ip.len() < length {
        return None;
    }
    ip[at..at + 4].copy_from_slice(&new.octets());
    adjust(ip, 10, old, new, false)?;
    if let Some(sum) = sum {
        // A datagram without a checksum stays without (RFC 768).
        if ip[9] == TCP || ip.get(sum..sum + 2)? != [0, 0] || is_partial {
            adjust(ip, sum, old, new, is_partial)?;
        }
    }
    Some(())
}

fn adjust(ip: &mut [u8], at: usize, old: Ipv4Addr, new: Ipv4Addr, is_partial: bool) -> Option<()> {
    let field: &mut [u8] = ip.get_mut(at..at + 2)?;
    let found = u16::from_be_bytes([field[0], field[1]]);
    let words = |address: Ipv4Addr| {
        let [a, b, c, d] = address.octets();
        [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])]
    };
    let mut sum = u32::from(if is_partial { found } else { !found });
    sum += words(old).into_iter().map(|word| u32::from(!word)).sum::<u32>();
    sum += words(new).into_iter().map(u32::from).sum::<u32>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let sum = if is_partial { sum as u16 } else { !(sum as u16) };
    field.copy_from_slice(&sum.to_be_bytes());
    Some(())
}

/// A header whose places count from another beginning.
fn moved(header: &[u8], by: i32) -> Option<[u8; HEADER]> {
    let mut header: [u8; HEADER] = header.try_into().ok()?;
    // The host's byte order, as all of this header (virtio 1.2, 2.1, legacy).
    for at in [HEADER_LENGTH, CHECKSUM_START] {
        let place = i32::from(u16::from_ne_bytes([header[at], header[at + 1]]));
        if place != 0 {
            let place = u16::try_from(place + by).ok()?;
            header[at..at + 2].copy_from_slice(&place.to_ne_bytes());
        }
    }
    Some(header)
}

/// `None`: there is no runtime.
fn register(file: &Arc<File>) -> Option<AsyncFd<Arc<File>>> {
    // SAFETY: the file owns its descriptor, which stays the same and open until the last of its owners goes; this is one.
    unsafe { AsyncFd::register(file.clone()) }.ok()
}

/// The next packet; `None`: there will be none.
async fn read(from: &AsyncFd<Arc<File>>, buffer: &mut [u8]) -> Option<usize> {
    loop {
        let mut ready = from.readable().await.ok()?;
        match ready.try_io(|from| from.get_ref().as_ref().read(buffer)) {
            Ok(Ok(length)) => return Some(length),
            Ok(Err(e)) if matches!(e.raw_os_error(), Some(libc::ENETDOWN | libc::EINTR)) => {}
            Ok(Err(_)) => return None,
            Err(_) => {}
        }
    }
}

/// The tun device; it goes with the descriptor.
fn open() -> io::Result<File> {
    let file =
        OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
    let mut request = request(DEVICE);
    let flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    ioctl(file.as_raw_fd(), libc::TUNSETIFF as libc::c_ulong, &mut request)?;
    Ok(file)
}

/// Gives the device its address and what belongs to the loopback.
fn route(address: Ipv4Addr, mtu: u16) -> io::Result<()> {
    let control = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    let fd = control.as_raw_fd();
    let set = |name: &str, number: libc::c_ulong, change: &dyn Fn(&mut libc::ifreq)| {
        let mut request = request(name);
        change(&mut request);
        ioctl(fd, number, &mut request)
    };
    // Answers come from an address that otherwise never comes from a device. Hosts without IPv6 lack the other file.
    fs::write(format!("/proc/sys/net/ipv4/conf/{DEVICE}/route_localnet"), "1")?;
    let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{DEVICE}/disable_ipv6"), "1");
    set(DEVICE, libc::SIOCSIFADDR, &|r| r.ifr_ifru.ifru_addr = sockaddr(address))?;
    set(DEVICE, libc::SIOCSIFNETMASK, &|r| r.ifr_ifru.ifru_netmask = sockaddr(Ipv4Addr::BROADCAST))?;
    set(DEVICE, libc::SIOCSIFMTU, &|r| r.ifr_ifru.ifru_mtu = mtu.into())?;
    set(DEVICE, libc::SIOCSIFFLAGS, &|r| {
        r.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    })?;
    set(LOOPBACK, libc::SIOCSIFADDR, &|r| r.ifr_ifru.ifru_addr = sockaddr(Ipv4Addr::UNSPECIFIED))?;
    add_route(fd)
}

/// Everything of 127.0.0.0/8 through the device.
fn add_route(fd: RawFd) -> io::Result<()> {
    let name = std::ffi::CString::new(DEVICE).map_err(io::Error::other)?;
    // SAFETY: `rtentry` is plain data for which all zeroes is a valid value.
    let mut entry: libc::rtentry = unsafe { std::mem::zeroed() };
    entry.rt_dst = sockaddr(Ipv4Addr::new(127, 0, 0, 0));
    entry.rt_genmask = sockaddr(Ipv4Addr::new(255, 0, 0, 0));
    entry.rt_flags = libc::RTF_UP;
    entry.rt_dev = name.as_ptr().cast_mut();
    // SAFETY: the entry is initialised, and it and the name live during the call, which writes to neither.
    let result = unsafe { libc::ioctl(fd, libc::SIOCADDRT, std::ptr::from_ref(&entry)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 2);
    const HOST: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 0);
    const DATA: &[u8] = b"some data";

    fn loopback() -> Loopback {
        let null = || Arc::new(File::open("/dev/null").unwrap());
        let (machine_mac, mac) = ([2, 2, 3, 4, 5, 6], [6, 0x55, 3, 4, 5, 6]);
        Loopback { host: null(), link: null(), machine: MACHINE, machine_mac, address: HOST, mac }
    }

    /// The Internet checksum (RFC 1071).
    fn sum(bytes: &[u8]) -> u16 {
        let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        let mut sum: u32 = bytes.chunks(2).map(word).sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    fn pseudo(ip: &[u8]) -> Vec<u8> {
        [&ip[12..20], &[0, ip[9]], &((ip.len() - IPV4) as u16).to_be_bytes()].concat()
    }

    /// A segment or datagram; `is_partial`: with the sum of the pseudo header only.
    fn packet(protocol: u8, from: Ipv4Addr, to: Ipv4Addr, is_partial: bool) -> Vec<u8> {
        let (size, at) = if protocol == TCP { (20, 16) } else { (8, 6) };
        let length = (IPV4 + size + DATA.len()) as u16;
        let mut ip = [0x45, 0, 0, 0, 1, 2, 0x40, 0, 64, protocol, 0, 0].to_vec();
        ip[2..4].copy_from_slice(&length.to_be_bytes());
        ip.extend(from.octets().iter().chain(&to.octets()));
        let head = sum(&ip);
        ip[10..12].copy_from_slice(&head.to_be_bytes());
        ip.resize(IPV4 + size, 7);
        ip[IPV4 + at..IPV4 + at + 2].fill(0);
        ip.extend(DATA);
        let check =
            if is_partial { !sum(&pseudo(&ip)) } else { sum(&[&pseudo(&ip)[..], &ip[IPV4..]].concat()) };
        ip[IPV4 + at..IPV4 + at + 2].copy_from_slice(&check.to_be_bytes());
        ip
    }

    /// Behind a header that leaves the checksum to a device, or none of it.
    fn behind_header(packet: &[u8], start: Option<u16>) -> Vec<u8> {
        let mut header = [0; HEADER];
        if let Some(start) = start {
            header[FLAGS] = NEEDS_CHECKSUM;
            header[CHECKSUM_START..CHECKSUM_START + 2].copy_from_slice(&start.to_ne_bytes());
        }
        [&header[..], packet].concat()
    }

    #[test]
    fn what_goes_to_the_loopback_reaches_the_machine_and_comes_back() {
        let local = Ipv4Addr::LOCALHOST;
        let loopback = loopback();
        for (protocol, is_partial) in [(TCP, false), (TCP, true), (UDP, false), (UDP, true)] {
            let case = format!("protocol {protocol}, partial {is_partial}");
            let start = is_partial.then_some(IPV4 as u16);
            let asked = behind_header(&packet(protocol, HOST, local, is_partial), start);
            let frame = loopback.to_machine(&asked).expect(&case);
            let expected = [
                &[2, 2, 3, 4, 5, 6, 6, 0x55, 3, 4, 5, 6, 8, 0][..],
                &packet(protocol, HOST, MACHINE, is_partial),
            ];
            let start = is_partial.then_some((ETHERNET + IPV4) as u16);
            assert_eq!(frame, behind_header(&expected.concat(), start), "{case}");
            let answer = packet(protocol, MACHINE, HOST, is_partial);
            let mut answer =
                behind_header(&[&[6, 0x55, 3, 4, 5, 6, 2, 2, 3, 4, 5, 6, 8, 0], &answer[..]].concat(), start);
            let start = is_partial.then_some(IPV4 as u16);
            let heard = behind_header(&packet(protocol, local, HOST, is_partial), start);
            assert_eq!(loopback.to_host(&mut answer), Some(Said::Packet(heard)), "{case}");
        }
    }

    #[test]
    fn packets_of_others_and_pieces_of_packets_pass_in_neither_direction() {
        let loopback = loopback();
        let other = Ipv4Addr::new(10, 1, 0, 9);
        for (from, to) in [(other, Ipv4Addr::LOCALHOST), (HOST, other), (HOST, MACHINE)] {
            assert_eq!(loopback.to_machine(&behind_header(&packet(TCP, from, to, false), None)), None);
        }
        let frame = |from, to, kind: [u8; 2]| {
            behind_header(&[&[0; 12][..], &kind, &packet(TCP, from, to, false)].concat(), None)
        };
        for mut frame in [
            frame(other, HOST, TYPE_IPV4),
            frame(MACHINE, other, TYPE_IPV4),
            frame(MACHINE, HOST, [0x86, 0xdd]),
        ] {
            assert_eq!(loopback.to_host(&mut frame), None);
        }
        let whole = behind_header(&packet(TCP, HOST, Ipv4Addr::LOCALHOST, false), None);
        for end in 0..HEADER + IPV4 + 18 {
            assert_eq!(loopback.to_machine(&whole[..end]), None, "{end} bytes");
        }
        let whole = frame(MACHINE, HOST, TYPE_IPV4);
        for end in 0..HEADER + ETHERNET + IPV4 + 18 {
            assert_eq!(loopback.to_host(&mut whole[..end].to_vec()), None, "{end} bytes");
        }
        // A header of IPv4 that is said to be longer than the packet, and one that says where no checksum can be.
        let mut long = whole.clone();
        long[HEADER + ETHERNET] = 0x4f;
        long.truncate(HEADER + ETHERNET + IPV4 + 20);
        assert_eq!(loopback.to_host(&mut long), None);
        let mut misplaced = whole;
        misplaced[CHECKSUM_START] = 3;
        assert_eq!(loopback.to_host(&mut misplaced), None);
    }
}
