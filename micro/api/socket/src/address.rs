// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Socket addresses as the program hands them over.

use abi::{Result, errno::*};
use alloc::vec::Vec;

/// `struct sockaddr` of any family: at most [`Address::MAX`] bytes, family first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Address(Vec<u8>);

/// An IPv4 address and port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SocketAddressV4 {
    pub address: [u8; 4],
    pub port: u16,
}

/// An IPv6 address and port (`struct sockaddr_in6`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SocketAddressV6 {
    pub address: [u8; 16],
    pub port: u16,
    pub flow: u32,
    /// The interface of a link-local address.
    pub scope: u32,
}

/// Length of a `sockaddr_in6` without its scope, which is accepted (SIN6_LEN_RFC2133).
const V6_LEAST: usize = 24;

impl Address {
    /// `sizeof(struct sockaddr_storage)`.
    pub const MAX: usize = 128;
    pub const UNSPEC: u16 = 0;
    pub const UNIX: u16 = 1;
    pub const INET: u16 = 2;
    pub const INET6: u16 = 10;
    pub const NETLINK: u16 = 16;
    pub const PACKET: u16 = 17;

    /// `EINVAL` when longer than [`Address::MAX`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Address> {
        if bytes.len() > Address::MAX {
            return Err(EINVAL);
        }
        Ok(Address(bytes.into()))
    }

    /// A family with the bytes behind it, cut at [`Address::MAX`].
    pub fn new(family: u16, rest: &[u8]) -> Address {
        let mut bytes = Vec::from(family.to_ne_bytes());
        bytes.extend_from_slice(&rest[..rest.len().min(Address::MAX - 2)]);
        Address(bytes)
    }

    /// `struct sockaddr_in`.
    pub fn v4(v4: SocketAddressV4) -> Address {
        let mut rest = [0; 14];
        rest[..2].copy_from_slice(&v4.port.to_be_bytes());
        rest[2..6].copy_from_slice(&v4.address);
        Address::new(Address::INET, &rest)
    }

    /// `struct sockaddr_in6`.
    pub fn v6(v6: SocketAddressV6) -> Address {
        let mut rest = [0; 26];
        rest[..2].copy_from_slice(&v6.port.to_be_bytes());
        rest[2..6].copy_from_slice(&v6.flow.to_be_bytes());
        rest[6..22].copy_from_slice(&v6.address);
        rest[22..].copy_from_slice(&v6.scope.to_ne_bytes());
        Address::new(Address::INET6, &rest)
    }

    /// `EINVAL` when too short for a `sockaddr_in6`, `EAFNOSUPPORT` for another family.
    pub fn as_v6(&self) -> Result<SocketAddressV6> {
        if self.0.len() < V6_LEAST {
            return Err(EINVAL);
        }
        if self.family() != Some(Address::INET6) {
            return Err(EAFNOSUPPORT);
        }
        let rest = self.rest();
        let mut address = [0; 16];
        address.copy_from_slice(&rest[6..22]);
        let scope = rest.get(22..26).map_or(0, |b| u32::from_ne_bytes([b[0], b[1], b[2], b[3]]));
        let flow = u32::from_be_bytes([rest[2], rest[3], rest[4], rest[5]]);
        Ok(SocketAddressV6 { address, port: u16::from_be_bytes([rest[0], rest[1]]), flow, scope })
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// `None` when not even the family is there.
    pub fn family(&self) -> Option<u16> {
        Some(u16::from_ne_bytes(self.0.get(..2)?.try_into().ok()?))
    }

    /// Behind the family.
    pub fn rest(&self) -> &[u8] {
        self.0.get(2..).unwrap_or(&[])
    }

    /// `EINVAL` when too short for a `sockaddr_in`, `EAFNOSUPPORT` for another family.
    pub fn as_v4(&self) -> Result<SocketAddressV4> {
        if self.0.len() < 16 {
            return Err(EINVAL);
        }
        if self.family() != Some(Address::INET) {
            return Err(EAFNOSUPPORT);
        }
        let rest = self.rest();
        Ok(SocketAddressV4 {
            port: u16::from_be_bytes([rest[0], rest[1]]),
            address: [rest[2], rest[3], rest[4], rest[5]],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv4_address_survives_the_round_trip() {
        let v4 = SocketAddressV4 { address: [10, 0, 2, 15], port: 6379 };
        let address = Address::v4(v4);
        assert_eq!(address.bytes(), [2, 0, 0x18, 0xeb, 10, 0, 2, 15, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(address.as_v4(), Ok(v4));
    }

    #[test]
    fn an_ipv6_address_survives_the_round_trip_with_and_without_its_scope() {
        let mut v6 = SocketAddressV6 { address: [7; 16], port: 80, flow: 9, scope: 2 };
        let address = Address::v6(v6);
        assert_eq!(address.bytes().len(), 28);
        assert_eq!(address.as_v6(), Ok(v6));
        v6.scope = 0;
        assert_eq!(Address::from_bytes(&address.bytes()[..24]).unwrap().as_v6(), Ok(v6));
        assert_eq!(Address::from_bytes(&address.bytes()[..23]).unwrap().as_v6(), Err(EINVAL));
    }

    #[test]
    fn short_long_and_foreign_addresses_are_errors() {
        assert_eq!(Address::from_bytes(&[0; 129]), Err(EINVAL));
        assert_eq!(Address::from_bytes(&[2]).unwrap().family(), None);
        assert_eq!(Address::from_bytes(&[2, 0, 0, 80]).unwrap().as_v4(), Err(EINVAL));
        assert_eq!(Address::new(Address::INET6, &[0; 26]).as_v4(), Err(EAFNOSUPPORT));
    }
}
