// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Both families in one stack, and sockets of AF_INET6 that speak IPv4 (RFC 3493 3.7).
//!
//! Inside the stack an address of IPv6 is a number: an IPv4 address of 0.0.0.0/8, "this network" (RFC 1122 3.2.1.3), which is no
//! address of any host. Only sockets of AF_INET6 can name one, and none is ever taken from a packet of IPv4. `::1` always has the
//! same; which others there are, `ipv6::numbers` knows, where that is built in.

use core::net::Ipv4Addr;

/// Stands for `::1`.
pub const LOOPBACK6: Ipv4Addr = Ipv4Addr::new(0, 0, 0, 1);
/// The first number of a group; those below are of hosts.
pub const FIRST_GROUP: u32 = 1 << 23;
/// Behind the last number.
const END: u32 = 1 << 24;

/// Whether an address stands for one of IPv6, which is not the any address.
#[inline]
pub fn is_v6(address: Ipv4Addr) -> bool {
    match cfg!(feature = "ipv6") {
        true => address.to_bits().wrapping_sub(1) < END - 1,
        false => address == LOOPBACK6,
    }
}

/// Whether a packet may go from one to the other.
#[inline]
pub fn are_of_one_family(a: Ipv4Addr, b: Ipv4Addr) -> bool {
    is_v6(a) == is_v6(b)
}

/// Whether it is a group's, of either family.
#[inline]
pub fn is_group(address: Ipv4Addr) -> bool {
    let is_of_v6 = cfg!(feature = "ipv6") && (FIRST_GROUP..END).contains(&address.to_bits());
    address.is_multicast() || is_of_v6
}

/// Whose addresses a socket stands for when it is bound to none of them in particular.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Families {
    pub v4: bool,
    pub v6: bool,
}

impl Families {
    /// A socket of AF_INET.
    pub const V4: Families = Families { v4: true, v6: false };
    /// One of AF_INET6 with IPV6_V6ONLY.
    pub const V6: Families = Families { v4: false, v6: true };
    /// One of AF_INET6 without.
    pub const BOTH: Families = Families { v4: true, v6: true };

    /// Those of a socket that is bound to `address`, and stands for `any` when that is the any address.
    pub fn of(address: Ipv4Addr, any: Families) -> Families {
        match address {
            address if is_v6(address) => Families::V6,
            address if address.is_unspecified() => any,
            _ => Families::V4,
        }
    }

    /// Whether the any address takes in `address`.
    pub fn has(self, address: Ipv4Addr) -> bool {
        if is_v6(address) { self.v6 } else { self.v4 }
    }

    pub fn overlaps(self, other: Families) -> bool {
        self.v4 && other.v4 || self.v6 && other.v6
    }
}

/// Whether a socket bound to one address gets in the way of another on the same port.
pub fn addresses_overlap(a: (Ipv4Addr, Families), b: (Ipv4Addr, Families)) -> bool {
    let same = a.0.is_unspecified() || b.0.is_unspecified() || a.0 == b.0;
    same && Families::of(a.0, a.1).overlaps(Families::of(b.0, b.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_shared_by_families_that_keep_apart() {
        let any = Ipv4Addr::UNSPECIFIED;
        assert!(addresses_overlap((any, Families::BOTH), (any, Families::V4)));
        assert!(!addresses_overlap((any, Families::V6), (any, Families::V4)));
        assert!(!addresses_overlap((LOOPBACK6, Families::V6), (any, Families::V4)));
        assert!(addresses_overlap((LOOPBACK6, Families::V6), (any, Families::BOTH)));
        assert!(!addresses_overlap((LOOPBACK6, Families::V6), (Ipv4Addr::LOCALHOST, Families::V4)));
    }
}
