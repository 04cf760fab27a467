// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sending: frames of raw sockets as they are, packets of datagram sockets behind a header that is made here, and what lies in a ring
//! (PACKET_TX_RING).

use crate::address::{LinkAddress, SOCKADDR_LL};
use crate::ring::{Ring, TP_STATUS_KERNEL, Version};
use crate::socket::PacketSocket;
use abi::{Result, errno::*};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_netdev::link::{ARPHRD_LOOPBACK, Interface, LINK_HEADER};
use api_socket::{Address, Sending};
use api_user::Source;

/// A frame may be so much longer than the interface's packets: a tag of IEEE 802.1Q.
const VLAN_HEADER: usize = 4;
const ETHERTYPE_VLAN: u16 = 0x8100;
/// States of a frame in a ring that sends.
const TP_STATUS_SEND_REQUEST: u32 = 1;
const TP_STATUS_SENDING: u32 = 2;
const TP_STATUS_WRONG_FORMAT: u32 = 4;

/// Where a message goes.
struct Way {
    interface: Interface,
    protocol: u16,
    /// Of datagram sockets; `None` where the socket is bound and names nobody.
    to: Option<[u8; 6]>,
}

impl PacketSocket {
    /// `ENXIO`: there is no such interface. `EINVAL`: the address is too short.
    fn way(&self, to: Option<&Address>) -> Result<Way> {
        let Some(to) = to else {
            let (index, protocol) = {
                let state = self.member.state.lock();
                (state.interface, state.protocol)
            };
            let interface = self.table.link.interface(index).ok_or(ENXIO)?;
            return Ok(Way { interface, protocol, to: None });
        };
        let to = LinkAddress::destination(to)?;
        let index = u32::try_from(to.interface).map_err(|_| ENXIO)?;
        let interface = self.table.link.interface(index).ok_or(ENXIO)?;
        Ok(Way { interface, protocol: to.protocol, to: (!self.is_raw()).then(|| to.mac()) })
    }

    /// A frame for `payload`. Only loopback needs no destination.
    fn header(&self, way: &Way, length: usize) -> Result<Option<[u8; LINK_HEADER]>> {
        if self.is_raw() {
            return Ok(None);
        }
        let is_loopback = way.interface.hardware == ARPHRD_LOOPBACK;
        let to = way.to.or(is_loopback.then_some([0; 6])).ok_or(EINVAL)?;
        let mut header = [0; LINK_HEADER];
        header[..6].copy_from_slice(&to);
        header[6..12].copy_from_slice(&way.interface.mac);
        // Frames of IEEE 802.3 have their length there.
        let number = match way.protocol {
            crate::capture::ETH_P_802_3 | crate::capture::ETH_P_802_2 => length as u16,
            protocol => protocol,
        };
        header[12..].copy_from_slice(&number.to_be_bytes());
        Ok(Some(header))
    }

    /// `EMSGSIZE`: more bytes than the interface takes. `EINVAL`: fewer than a header has.
    fn check_length(&self, interface: &Interface, frame: &[u8]) -> Result<()> {
        if frame.len() < LINK_HEADER {
            return Err(EINVAL);
        }
        let is_tagged = self.is_raw() && frame[12..14] == ETHERTYPE_VLAN.to_be_bytes();
        let most = interface.mtu + LINK_HEADER + if is_tagged { VLAN_HEADER } else { 0 };
        if frame.len() > most { Err(EMSGSIZE) } else { Ok(()) }
    }

    /// sendmsg(2) of a socket without a ring that sends.
    pub(crate) fn send_message(&self, message: &Sending, from: &mut Source<'_>) -> Result<usize> {
        let way = self.way(message.to.as_ref())?;
        let length = from.remaining();
        if length > way.interface.mtu + LINK_HEADER + VLAN_HEADER {
            return Err(EMSGSIZE);
        }
        let header = self.header(&way, length)?;
        let header = header.as_ref().map_or(&[][..], |header| header);
        let mut frame = Vec::new();
        frame.reserve_exact_fallibly(header.len() + length).map_err(|_| ENOBUFS)?;
        frame.extend_from_slice(header);
        frame.extend_from_slice(&from.take_vec(length)?);
        if frame.len() < header.len() + length {
            return Err(EFAULT);
        }
        self.check_length(&way.interface, &frame)?;
        self.table.link.send(way.interface.index, &frame, self.member.id)?;
        Ok(length)
    }

    /// sendmsg(2) of a socket with a ring that sends: everything in it that is to be sent. Bytes of what was.
    pub(crate) fn send_ring(&self, message: &Sending) -> Result<usize> {
        let way = self.way(message.to.as_ref())?;
        let mut total = 0;
        while let Some((at, frame)) = self.next_of_ring(&way)? {
            let length = frame.len();
            let sent = self.table.link.send(way.interface.index, &frame, self.member.id);
            let again = sent.is_err();
            self.with_ring(|ring| {
                ring.set_status(at, if again { TP_STATUS_SEND_REQUEST } else { TP_STATUS_KERNEL })
            });
            sent?;
            self.with_ring(Ring::advance);
            total += length - if self.is_raw() { 0 } else { LINK_HEADER };
        }
        Ok(total)
    }

    fn with_ring<R>(&self, f: impl FnOnce(&mut Ring) -> R) -> Option<R> {
        self.member.state.lock().sending.as_mut().map(f)
    }

    /// The ring's next frame, if the program wants it sent: where it is, and a copy. One with wrong numbers is an error, or passed over
    /// (PACKET_LOSS).
    fn next_of_ring(&self, way: &Way) -> Result<Option<(usize, Vec<u8>)>> {
        loop {
            let mut state = self.member.state.lock();
            let options = state.options;
            let Some(ring) = state.sending.as_mut() else { return Ok(None) };
            let at = ring.head();
            if ring.status(at) != TP_STATUS_SEND_REQUEST {
                return Ok(None);
            }
            let room = way.interface.mtu + if self.is_raw() { LINK_HEADER + VLAN_HEADER } else { 0 };
            let found = payload(ring, at, options.has_offset, self.is_raw(), room)
                .and_then(|(from, length)| self.copy_frame(ring, way, from, length));
            match found {
                Ok(frame) => {
                    ring.set_status(at, TP_STATUS_SENDING);
                    return Ok(Some((at, frame)));
                }
                Err(_) if options.loss => {
                    ring.set_status(at, TP_STATUS_KERNEL);
                    ring.advance();
                }
                Err(error) => {
                    ring.set_status(at, TP_STATUS_WRONG_FORMAT);
                    return Err(error);
                }
            }
        }
    }

    fn copy_frame(&self, ring: &Ring, way: &Way, from: usize, length: usize) -> Result<Vec<u8>> {
        let header = self.header(way, length)?;
        let header = header.as_ref().map_or(&[][..], |header| header);
        let mut frame = Vec::new();
        frame.reserve_exact_fallibly(header.len() + length).map_err(|_| ENOBUFS)?;
        frame.extend_from_slice(header);
        frame.resize(header.len() + length, 0);
        ring.memory.read(from, &mut frame[header.len()..]);
        self.check_length(&way.interface, &frame)?;
        Ok(frame)
    }
}

/// Where the bytes of a frame in the ring are, and how many (Linux' tpacket_parse_header). `EMSGSIZE`, `EINVAL`.
fn payload(ring: &Ring, at: usize, has_offset: bool, is_raw: bool, room: usize) -> Result<(usize, usize)> {
    let version = ring.version;
    let frame_size = ring.request.frame_size as usize;
    let header = version.header_and_address() as usize - SOCKADDR_LL;
    let (length_at, places_at) = match version {
        Version::V1 => (8, 16),
        Version::V2 => (4, 12),
        Version::V3 => (16, 24),
    };
    if version == Version::V3 && ring.memory.word(at) != 0 {
        // Frames of any size are not sent.
        return Err(EINVAL);
    }
    let length = ring.memory.word(at + length_at) as usize;
    if length > (frame_size - header).min(room) {
        return Err(EMSGSIZE);
    }
    let places = ring.memory.word(at + places_at);
    let offset = match (has_offset, is_raw) {
        (false, _) => header,
        (true, true) => (places & 0xffff) as usize,
        (true, false) => (places >> 16) as usize,
    };
    if offset < header || offset > frame_size - length {
        return Err(EINVAL);
    }
    Ok((at + offset, length))
}
