// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `struct sockaddr_ll` (packet(7)).

use abi::{Result, errno::*};
use api_socket::Address;

/// `sizeof(struct sockaddr_ll)`.
pub const SOCKADDR_LL: usize = 20;
/// Where the link's address is in it.
const ADDRESS: usize = 12;
/// Bytes of an Ethernet address.
pub const MAC: usize = 6;

/// Kinds of frames: for this machine, for all, for a group, for another machine, and sent by this one.
pub const PACKET_HOST: u8 = 0;
pub const PACKET_BROADCAST: u8 = 1;
pub const PACKET_MULTICAST: u8 = 2;
pub const PACKET_OTHERHOST: u8 = 3;
pub const PACKET_OUTGOING: u8 = 4;

/// An address of the link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkAddress {
    /// ETH_P_*, in the machine's order.
    pub protocol: u16,
    pub interface: i32,
    /// ARPHRD_*.
    pub hardware: u16,
    /// PACKET_*.
    pub kind: u8,
    /// Bytes of `address` that count.
    pub length: u8,
    pub address: [u8; 8],
}

impl LinkAddress {
    /// `EINVAL` when it is shorter than a `sockaddr_ll`. Linux looks at the family for bind(2) alone.
    pub fn parse(address: &Address) -> Result<LinkAddress> {
        let bytes: &[u8; SOCKADDR_LL] = address.bytes().first_chunk().ok_or(EINVAL)?;
        let [_, _, p, q, a, b, c, d, h, i, kind, length, address @ ..] = *bytes;
        Ok(LinkAddress {
            protocol: u16::from_be_bytes([p, q]),
            interface: i32::from_ne_bytes([a, b, c, d]),
            hardware: u16::from_ne_bytes([h, i]),
            kind,
            length,
            address,
        })
    }

    /// Where to send to: the address must have as many bytes as it says.
    pub fn destination(address: &Address) -> Result<LinkAddress> {
        let parsed = LinkAddress::parse(address)?;
        if address.bytes().len() < ADDRESS + usize::from(parsed.length) {
            return Err(EINVAL);
        }
        Ok(parsed)
    }

    /// The address as an Ethernet header has it.
    pub fn mac(&self) -> [u8; MAC] {
        let [a, b, c, d, e, f, ..] = self.address;
        [a, b, c, d, e, f]
    }

    /// The whole structure.
    pub fn bytes(&self) -> [u8; SOCKADDR_LL] {
        let mut out = [0; SOCKADDR_LL];
        out[..2].copy_from_slice(&Address::PACKET.to_ne_bytes());
        out[2..4].copy_from_slice(&self.protocol.to_be_bytes());
        out[4..8].copy_from_slice(&self.interface.to_ne_bytes());
        out[8..10].copy_from_slice(&self.hardware.to_ne_bytes());
        (out[10], out[11]) = (self.kind, self.length);
        out[ADDRESS..].copy_from_slice(&self.address);
        out
    }

    /// As recvmsg(2) answers it.
    pub fn show(&self) -> Address {
        Address::new(Address::PACKET, &self.bytes()[2..])
    }

    /// As getsockname(2) answers it, which ends behind the link's address.
    pub fn show_own(&self) -> Address {
        Address::new(Address::PACKET, &self.bytes()[2..ADDRESS + usize::from(self.length.min(8))])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_survives_the_round_trip_and_has_the_bytes_it_says() {
        let address = LinkAddress {
            protocol: 0x0806,
            interface: 2,
            hardware: 1,
            kind: PACKET_OUTGOING,
            length: 6,
            address: [1, 2, 3, 4, 5, 6, 0, 0],
        };
        assert_eq!(LinkAddress::parse(&address.show()), Ok(address));
        assert_eq!(address.show().bytes()[..4], [17, 0, 8, 6]);
        assert_eq!((address.show().bytes().len(), address.show_own().bytes().len()), (20, 18));
        assert_eq!(address.mac(), [1, 2, 3, 4, 5, 6]);
        let cut = Address::from_bytes(&address.bytes()[..19]).unwrap();
        assert_eq!(LinkAddress::parse(&cut), Err(EINVAL));
        let long = LinkAddress { length: 9, ..address };
        assert_eq!(LinkAddress::destination(&long.show()), Err(EINVAL));
        assert_eq!(
            LinkAddress::destination(&LinkAddress { length: 8, ..address }.show()).map(|a| a.length),
            Ok(8)
        );
        assert_eq!(LinkAddress { length: 255, ..address }.show_own().bytes().len(), 20);
    }
}
