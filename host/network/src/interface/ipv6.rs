// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Addresses of IPv6 that an engine gave an interface, as /proc/net/if_inet6 and /proc/net/ipv6_route show them.

use serde::{Deserialize, Serialize};
use std::net::Ipv6Addr;

/// Addresses that somebody else has (linux/if_addr.h, `IFA_F_DADFAILED`).
const DUPLICATE: u32 = 8;
/// Routes by a gateway, and those that lead nowhere (linux/route.h, linux/ipv6_route.h).
const BY_GATEWAY: u32 = 2;
const REJECTED: u32 = 0x200;

/// What of IPv6 the machine has in the interface's place. Its link-local address it makes itself, as the host did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ipv6 {
    /// With bits of their network parts.
    pub addresses: Vec<(Ipv6Addr, u8)>,
    pub gateway: Option<Ipv6Addr>,
}

fn number(digits: &str) -> Option<u32> {
    u32::from_str_radix(digits, 16).ok()
}

fn address(digits: &str) -> Option<Ipv6Addr> {
    Some(digits).filter(|d| d.len() == 32).and_then(|d| u128::from_str_radix(d, 16).ok()).map(Ipv6Addr::from)
}

impl Ipv6 {
    /// Of the interface, from the texts of both tables. A damaged line says nothing.
    pub fn of(addresses: &str, routes: &str, name: &str) -> Ipv6 {
        let given = |line: &str| {
            let columns: Vec<&str> = line.split_ascii_whitespace().collect();
            let [ip, _, length, _, flags, interface] = columns.as_slice() else { return None };
            let ip = address(ip).filter(|ip| !ip.is_unicast_link_local())?;
            let length = number(length).and_then(|n| u8::try_from(n).ok()).filter(|n| *n <= 128)?;
            let is_its = *interface == name && number(flags)? & DUPLICATE == 0;
            is_its.then_some((ip, length))
        };
        let gateway = |line: &str| {
            let columns: Vec<&str> = line.split_ascii_whitespace().collect();
            let [to, length, _, _, gateway, _, _, _, flags, interface] = columns.as_slice() else {
                return None;
            };
            let is_default = address(to)?.is_unspecified() && number(length)? == 0;
            let is_its = *interface == name && number(flags)? & (BY_GATEWAY | REJECTED) == BY_GATEWAY;
            address(gateway).filter(|_| is_default && is_its)
        };
        Ipv6 {
            addresses: addresses.lines().filter_map(given).collect(),
            gateway: routes.lines().find_map(gateway),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_gateway_are_those_of_the_interface() {
        let addresses = "fd000000000000000000000000000002 04 40 00 80     eth0\n\
            fd000000000000000000000000000003 04 40 00 88     eth0\n\
            fe8000000000000000fc00fffe000001 04 40 20 80     eth0\n\
            fd000000000000000000000000000004 05 40 00 80     eth1\n\
            00000000000000000000000000000001 01 80 10 80       lo\n";
        let zeros = "0".repeat(32);
        let route = |to: &str, gateway: &str, flags: &str, name: &str| {
            format!("{to} 00 {zeros} 00 {gateway} 00000400 00000001 00000000 {flags}     {name}\n")
        };
        let gateway = "fe800000000000000000000000000001";
        let routes = [
            route(&zeros, &zeros, "00200200", "lo"),
            route(&zeros, &zeros, "00000001", "eth0"),
            route(&zeros, gateway, "00000003", "eth0"),
        ]
        .concat();
        let found = Ipv6::of(addresses, &routes, "eth0");
        assert_eq!(found.addresses, [("fd00::2".parse().unwrap(), 64)]);
        assert_eq!(found.gateway, Some("fe80::1".parse().unwrap()));
        assert_eq!(Ipv6::of(addresses, &routes, "eth1").gateway, None);
        for damaged in ["", "x", "fd00 04 40 00 80 eth0", "zz000000000000000000000000000002 04 40 00 80 eth0"]
        {
            assert_eq!(Ipv6::of(damaged, damaged, "eth0"), Ipv6::default(), "{damaged}");
        }
    }
}
