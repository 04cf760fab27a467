// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The resolver of a network namespace, for the machine that took over its interface.
//!
//! Docker's networks of users have a name server at 127.0.0.11 of each container's namespace. A machine has a loopback of
//! its own, so it asks an address of its link instead ([`Interface::resolver`]), which nobody has. This end watches what the
//! machine sends (packet(7)): it answers for the address (ARP), passes questions over UDP on to the server in the
//! namespace and puts the answers on the link as frames to the machine. A bridge leaves these where they came from, for the
//! machine's address is behind the same port.
//!
//! The machine is not trusted: what it sends is read within its bounds, and it has a number of questions at once.
//!
//! The unsafe code here registers a descriptor that is open for as long as it is registered.

use crate::{
    dns::{ANSWER_LIMIT, LARGEST_MESSAGE, MAX_QUESTIONS},
    interface::{Interface, packet},
};
use std::{
    fs::File,
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};
use tokio::{io::unix::AsyncFd, net::UdpSocket, sync::Semaphore, time::timeout};

const DNS: u16 = 53;
const ETHERNET: usize = 14;
const IPV4: usize = 20;
const UDP: usize = 8;
const LARGEST_FRAME: usize = 65_535 + ETHERNET;
const TYPE_IPV4: [u8; 2] = [8, 0];
const TYPE_ARP: [u8; 2] = [8, 6];
const PROTOCOL_UDP: u8 = 17;

/// The resolver's end of a machine's link.
#[derive(Debug)]
pub struct Resolver {
    link: Arc<File>,
    address: Ipv4Addr,
    mac: [u8; 6],
    mtu: usize,
    server: SocketAddr,
}

/// What a frame of the machine's asks for.
#[derive(Debug, PartialEq, Eq)]
enum Asked<'a> {
    /// Who has the resolver's address: the answer.
    Address([u8; 42]),
    Name {
        peer: Peer,
        question: &'a [u8],
    },
}

/// Who asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Peer {
    mac: [u8; 6],
    address: Ipv4Addr,
    port: u16,
}

impl Resolver {
    /// Hears the machine on `interface` from now on. `None`: its network has no address to spare. `server` is one of the
    /// calling thread's namespace, in which [`Resolver::serve`] must run as well.
    pub fn new(interface: &Interface, server: Ipv4Addr) -> io::Result<Option<Resolver>> {
        let Some(address) = interface.resolver() else { return Ok(None) };
        let link = Arc::new(File::from(packet::neighbour(interface, address, false)?));
        let server = SocketAddr::from((server, DNS));
        let (mac, mtu) = (interface.resolver_mac(), usize::from(interface.mtu));
        Ok(Some(Resolver { link, address, mac, mtu, server }))
    }

    /// Answers until the link is gone. Must be called inside a runtime.
    pub async fn serve(self) {
        // SAFETY: the file owns its descriptor, which stays the same and open until the last of its owners goes; this is one.
        let link = unsafe { AsyncFd::register(self.link.clone()) };
        // It fails without a runtime's driver only.
        let Ok(link) = link else { return };
        let questions = Arc::new(Semaphore::new(MAX_QUESTIONS));
        let mut buffer = vec![0; LARGEST_FRAME];
        loop {
            let Ok(mut ready) = link.readable().await else { return };
            let length = match ready.try_io(|link| link.get_ref().as_ref().read(&mut buffer)) {
                Ok(Ok(length)) => length,
                Ok(Err(e)) if e.raw_os_error() == Some(libc::ENETDOWN) => continue,
                Ok(Err(_)) => return,
                Err(_) => continue,
            };
            match asked(&buffer[..length], self.address, self.mac) {
                // Whoever does not hear asks again.
                Some(Asked::Address(answer)) => drop(self.link.as_ref().write(&answer)),
                Some(Asked::Name { peer, question }) => {
                    let Ok(permit) = questions.clone().try_acquire_owned() else { continue };
                    let (link, question, server) = (self.link.clone(), question.to_vec(), self.server);
                    let frames = move |answer: &[u8]| frames(answer, self.address, self.mac, peer, self.mtu);
                    tokio::spawn(async move {
                        // No answer is an answer a resolver knows: it asks again.
                        if let Ok(Ok(answer)) = timeout(ANSWER_LIMIT, ask(&question, server)).await {
                            frames(&answer).iter().for_each(|frame| drop(link.as_ref().write(frame)));
                        }
                        drop(permit);
                    });
                }
                None => {}
            }
        }
    }
}

async fn ask(question: &[u8], server: SocketAddr) -> io::Result<Vec<u8>> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await?;
    socket.connect(server).await?;
    socket.send(question).await?;
    let mut answer = vec![0; LARGEST_MESSAGE];
    let length = socket.recv(&mut answer).await?;
    answer.truncate(length);
    Ok(answer)
}

/// The answer to a frame that asks who has the address (RFC 826).
pub(crate) fn address_answer(frame: &[u8], address: Ipv4Addr, mac: [u8; 6]) -> Option<[u8; 42]> {
    let (sender, packet) = (frame.get(6..12)?, frame.get(ETHERNET..42)?);
    // Ethernet, IPv4, addresses of 6 and 4 bytes, a request, for this address.
    let is_request = frame[12..ETHERNET] == TYPE_ARP
        && packet[..8] == [0, 1, 8, 0, 6, 4, 0, 1]
        && packet[24..28] == address.octets();
    let mut answer = [0; 42];
    answer[..6].copy_from_slice(sender);
    answer[6..12].copy_from_slice(&mac);
    answer[12..22].copy_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 2]);
    answer[22..28].copy_from_slice(&mac);
    answer[28..32].copy_from_slice(&address.octets());
    answer[32..42].copy_from_slice(&packet[8..18]);
    is_request.then_some(answer)
}

/// Reads a frame. Its checksums are not looked at: it came from this computer, where they may be left to a device.
fn asked(frame: &[u8], address: Ipv4Addr, mac: [u8; 6]) -> Option<Asked<'_>> {
    if let Some(answer) = address_answer(frame, address, mac) {
        return Some(Asked::Address(answer));
    }
    let sender: [u8; 6] = frame.get(6..12)?.try_into().ok()?;
    let (kind, packet) = (frame.get(12..ETHERNET)?, frame.get(ETHERNET..)?);
    let number = |at: usize| Some(u16::from_be_bytes(packet.get(at..at + 2)?.try_into().ok()?));
    let ip = |at: usize| Some(Ipv4Addr::from(<[u8; 4]>::try_from(packet.get(at..at + 4)?).ok()?));
    let first = *packet.first()?;
    let header = usize::from(first & 15) * 4;
    // A question in fragments is longer than any resolver's.
    let is_whole = number(6)? & 0x3fff == 0;
    let for_us = kind == TYPE_IPV4 && first >> 4 == 4 && header >= IPV4 && ip(16)? == address;
    if !for_us || !is_whole || *packet.get(9)? != PROTOCOL_UDP || number(header + 2)? != DNS {
        return None;
    }
    let length = usize::from(number(header + 4)?);
    let question = packet.get(header + UDP..header + length.max(UDP))?;
    let peer = Peer { mac: sender, address: ip(12)?, port: number(header)? };
    Some(Asked::Name { peer, question })
}

/// The answer as frames to the machine: in fragments where it is longer than one packet (RFC 791).
fn frames(answer: &[u8], address: Ipv4Addr, mac: [u8; 6], to: Peer, mtu: usize) -> Vec<Vec<u8>> {
    let length = (UDP + answer.len()) as u16;
    // Without a checksum, which IPv4 allows: nothing can be lost between the two (RFC 768).
    let ports = [DNS, to.port, length, 0].map(u16::to_be_bytes);
    let datagram = [&ports.concat(), answer].concat();
    // Of a network that carries less than IPv4 asks for nothing is expected.
    let room = mtu.saturating_sub(IPV4).max(8) / 8 * 8;
    let count = datagram.len().div_ceil(room);
    let identification = to.port;
    let piece = |(n, data): (usize, &[u8])| {
        let place = (n * room / 8) as u16 | if n + 1 < count { 0x2000 } else { 0 };
        let total = (IPV4 + data.len()) as u16;
        let head = [0x4500, total, identification, place, 0x4000 | u16::from(PROTOCOL_UDP), 0];
        let mut ip: Vec<u8> = head.into_iter().flat_map(u16::to_be_bytes).collect();
        ip.extend(address.octets().iter().chain(&to.address.octets()));
        let sum: u32 = ip.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        [&to.mac[..], &mac, &TYPE_IPV4, &ip, data].concat()
    };
    datagram.chunks(room).enumerate().map(piece).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 1, 255, 254);
    const MAC: [u8; 6] = [6, 0x55, 3, 4, 5, 6];
    const PEER: Peer = Peer { mac: [2, 2, 3, 4, 5, 6], address: Ipv4Addr::new(10, 1, 0, 2), port: 4000 };

    fn arp() -> Vec<u8> {
        let (mac, own) = (PEER.mac, PEER.address.octets());
        let head = [0xff; 6];
        [&head[..], &mac, &TYPE_ARP, &[0, 1, 8, 0, 6, 4, 0, 1], &mac, &own, &[0; 6], &ADDRESS.octets()]
            .concat()
    }

    /// A question as the machine sends it: an answer's frame with the ends changed over.
    fn question(text: &[u8]) -> Vec<u8> {
        let back = Peer { mac: MAC, address: ADDRESS, port: DNS };
        let mut frame = frames(text, PEER.address, PEER.mac, back, 1500).remove(0);
        frame[34..36].copy_from_slice(&PEER.port.to_be_bytes());
        frame
    }

    #[test]
    fn who_asks_for_the_address_is_told_and_nobody_else() {
        let frame = arp();
        let Some(Asked::Address(answer)) = asked(&frame, ADDRESS, MAC) else { panic!("it is a request") };
        assert_eq!((&answer[..6], &answer[6..12]), (&PEER.mac[..], &MAC[..]));
        let owner = [&MAC[..], &ADDRESS.octets(), &PEER.mac, &PEER.address.octets()].concat();
        assert_eq!((&answer[20..22], &answer[22..]), (&[0, 2][..], &owner[..]));
        assert_eq!(asked(&frame, Ipv4Addr::new(10, 1, 0, 1), MAC), None);
        // An answer is no request.
        assert_eq!(asked(&answer, PEER.address, MAC), None);
    }

    #[test]
    fn questions_are_read_and_other_packets_are_not() {
        let frame = question(b"a question");
        assert_eq!(asked(&frame, ADDRESS, MAC), Some(Asked::Name { peer: PEER, question: b"a question" }));
        for (at, value) in
            [(12, 9), (14, 0x65), (14, 0x44), (20, 0x20), (23, 6), (33, 1), (37, 54), (38, 0xff)]
        {
            let mut other = frame.clone();
            other[at] = value;
            assert_eq!(asked(&other, ADDRESS, MAC), None, "byte {at}");
        }
        for whole in [frame, arp()] {
            for end in 0..whole.len() {
                assert_eq!(asked(&whole[..end], ADDRESS, MAC), None, "{end} bytes");
            }
        }
    }

    #[test]
    fn a_long_answer_comes_in_fragments_that_make_it_up() {
        let answer: Vec<u8> = (0..4000_u32).map(|n| n as u8).collect();
        let frames = frames(&answer, ADDRESS, MAC, PEER, 1500);
        assert_eq!(frames.len(), 3);
        let mut joined = Vec::new();
        for (n, frame) in frames.iter().enumerate() {
            assert!(frame.len() <= 1500 + ETHERNET);
            let place = u16::from_be_bytes([frame[20], frame[21]]);
            assert_eq!(place & 0x2000 != 0, n < 2, "more follow");
            assert_eq!(usize::from(place & 0x1fff) * 8, joined.len());
            joined.extend(&frame[ETHERNET + IPV4..]);
        }
        assert_eq!(joined[UDP..], answer);
        assert_eq!(usize::from(u16::from_be_bytes([joined[4], joined[5]])), joined.len());
    }
}
