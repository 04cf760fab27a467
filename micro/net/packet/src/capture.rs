// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A frame as packet sockets see it: its protocol, its kind, and what filters may ask about it.

use crate::address::*;
use api_fs::Timespec;
use api_netdev::link::{ARPHRD_LOOPBACK, Frame, LINK_HEADER, Verdict};
use api_socket::filter::{Filter, environment};
use classic_bpf::packet::{Interface, Packet};

pub const ETH_P_802_3: u16 = 1;
pub const ETH_P_ALL: u16 = 3;
pub const ETH_P_802_2: u16 = 4;
const ETH_P_IP: u16 = 0x0800;
const ETH_P_IPV6: u16 = 0x86dd;
/// Smaller numbers in a header's place for the protocol are lengths (IEEE 802.3).
const ETH_P_802_3_MIN: u16 = 0x0600;

/// Bits of `tp_status` that say something of a packet (`linux/if_packet.h`).
pub const TP_STATUS_USER: u32 = 1;
pub const TP_STATUS_CSUMNOTREADY: u32 = 1 << 3;
pub const TP_STATUS_CSUM_VALID: u32 = 1 << 7;

const IPPROTO_ICMP: u8 = 1;
const IPPROTO_TCP: u8 = 6;
const IPPROTO_UDP: u8 = 17;
const IPPROTO_ICMPV6: u8 = 58;

/// A frame with what is found out about it once for all sockets.
pub struct Capture<'a> {
    pub frame: &'a Frame<'a>,
    /// ETH_P_* as `sll_protocol` has it.
    pub protocol: u16,
    /// PACKET_*.
    pub kind: u8,
    pub at: Timespec,
}

impl<'a> Capture<'a> {
    /// `None`: the frame is too short to have a header.
    pub fn new(frame: &'a Frame<'a>, at: Timespec) -> Option<Capture<'a>> {
        let header: &[u8; LINK_HEADER] = frame.bytes.first_chunk()?;
        let destination: [u8; MAC] = *header.first_chunk()?;
        let kind = match destination {
            _ if frame.is_outgoing => PACKET_OUTGOING,
            // Loopback has no address for all.
            [0xff, 0xff, 0xff, 0xff, 0xff, 0xff] if frame.interface.hardware != ARPHRD_LOOPBACK => {
                PACKET_BROADCAST
            }
            [first, ..] if first & 1 == 1 => PACKET_MULTICAST,
            own if own == frame.interface.mac => PACKET_HOST,
            _ => PACKET_OTHERHOST,
        };
        Some(Capture { frame, protocol: protocol(frame.bytes), kind, at })
    }

    /// Where the frame came from.
    pub fn address(&self) -> LinkAddress {
        let mut address = [0; 8];
        address[..MAC].copy_from_slice(&self.frame.bytes[MAC..MAC * 2]);
        LinkAddress {
            protocol: self.protocol,
            interface: self.frame.interface.index as i32,
            hardware: self.frame.interface.hardware,
            kind: self.kind,
            length: MAC as u8,
            address,
        }
    }

    /// The frame as a socket gets it, and how long the link's header in it is: datagrams have none.
    pub fn data(&self, is_raw: bool) -> (&'a [u8], usize) {
        if is_raw { (self.frame.bytes, LINK_HEADER) } else { (&self.frame.bytes[LINK_HEADER..], 0) }
    }

    /// Bytes that a socket with this filter gets; `None`: it gets none.
    pub fn keeps(&self, filter: Option<&Filter>, is_raw: bool) -> Option<usize> {
        let data = self.data(is_raw).0;
        match filter {
            Some(filter) => filter.keeps(&self.packet(is_raw)),
            None => Some(data.len()),
        }
    }

    /// What a filter looks at.
    pub fn packet(&self, is_raw: bool) -> Packet<'a> {
        let (data, header) = self.data(is_raw);
        let interface = self.frame.interface;
        Packet {
            data,
            link_length: header,
            network: &[],
            // Datagrams have it in front of their bytes.
            link: Some(&self.frame.bytes[..LINK_HEADER - header]),
            protocol: self.protocol,
            kind: self.kind,
            interface: Some(Interface { index: interface.index, hardware: interface.hardware.into() }),
            payload: (header + self.payload()) as u32,
            environment: environment(),
        }
    }

    /// Where the payload begins behind the network's and the transport's header (Linux' `skb_get_poff`).
    fn payload(&self) -> usize {
        let network = &self.frame.bytes[LINK_HEADER..];
        let (header, transport) = match (self.protocol, network) {
            (ETH_P_IP, [first, .., _]) if network.len() >= 20 => (usize::from(first & 15) * 4, network[9]),
            (ETH_P_IPV6, _) if network.len() >= 40 => (40, network[6]),
            _ => return 0,
        };
        header
            + match transport {
                IPPROTO_TCP => network.get(header + 12).map_or(20, |b| usize::from(b >> 4) * 4).max(20),
                IPPROTO_UDP | IPPROTO_ICMP | IPPROTO_ICMPV6 => 8,
                _ => 0,
            }
    }

    /// TP_STATUS_* of the packet itself.
    pub fn status(&self) -> u32 {
        TP_STATUS_USER
            | match self.frame.checksum {
                Verdict::Pending => TP_STATUS_CSUMNOTREADY,
                Verdict::Valid if !self.frame.is_outgoing => TP_STATUS_CSUM_VALID,
                _ => 0,
            }
    }
}

/// The protocol of a frame that has a header (Linux' `eth_type_trans`).
pub fn protocol(frame: &[u8]) -> u16 {
    match u16::from_be_bytes([frame[12], frame[13]]) {
        number @ ETH_P_802_3_MIN.. => number,
        // Novell's frames have no header of IEEE 802.2 there.
        _ if frame.get(14..16) == Some(&[0xff, 0xff]) => ETH_P_802_3,
        _ => ETH_P_802_2,
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use api_netdev::link::{ARPHRD_ETHER, Interface};
    use std::vec::Vec;

    pub const ETHERNET: Interface = Interface {
        index: 2,
        name: api_netdev::Name::new("eth0"),
        hardware: ARPHRD_ETHER,
        mac: [2, 0, 0, 0, 0, 1],
        mtu: 1500,
    };

    pub fn frame(destination: [u8; 6], protocol: u16, payload: &[u8]) -> Vec<u8> {
        [&destination[..], &[2, 0, 0, 0, 0, 9], &protocol.to_be_bytes(), payload].concat()
    }

    pub fn received(bytes: &[u8]) -> Frame<'_> {
        Frame { interface: &ETHERNET, bytes, is_outgoing: false, checksum: Verdict::Unknown, sender: None }
    }

    #[test]
    fn kinds_and_protocols_are_those_of_the_frame() {
        let kind =
            |to: [u8; 6]| Capture::new(&received(&frame(to, ETH_P_IP, &[])), Timespec::now()).unwrap().kind;
        assert_eq!(kind(ETHERNET.mac), PACKET_HOST);
        assert_eq!(kind([0xff; 6]), PACKET_BROADCAST);
        assert_eq!(kind([1, 0, 0x5e, 0, 0, 1]), PACKET_MULTICAST);
        assert_eq!(kind([2, 0, 0, 0, 0, 7]), PACKET_OTHERHOST);
        assert!(Capture::new(&received(&[0; 13]), Timespec::now()).is_none());
        assert_eq!(protocol(&frame([0; 6], 0x88cc, &[])), 0x88cc);
        assert_eq!(protocol(&frame([0; 6], 38, &[0x42, 0x42])), ETH_P_802_2);
        assert_eq!(protocol(&frame([0; 6], 38, &[0xff, 0xff])), ETH_P_802_3);
        assert_eq!(protocol(&frame([0; 6], 38, &[])), ETH_P_802_2);
    }

    #[test]
    fn a_filter_counts_from_the_link_for_raw_sockets_and_from_the_network_for_others() {
        let mut packet = [0; 28];
        (packet[0], packet[9]) = (0x45, IPPROTO_UDP);
        let bytes = frame(ETHERNET.mac, ETH_P_IP, &packet);
        let frame = received(&bytes);
        let capture = Capture::new(&frame, Timespec::now()).unwrap();
        assert_eq!((capture.packet(true).payload, capture.packet(false).payload), (42, 28));
        assert_eq!((capture.packet(true).data.len(), capture.packet(false).data[0]), (42, 0x45));
        assert_eq!(capture.address().address[..6], [2, 0, 0, 0, 0, 9]);
    }
}
