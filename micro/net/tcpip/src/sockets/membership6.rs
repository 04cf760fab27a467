// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Multicast by ipv6(7): groups of the device that a socket is in, and how far its multicasts go.

use super::ipv6::{IPV6_ADD_MEMBERSHIP, IPV6_DROP_MEMBERSHIP, IPV6_MULTICAST_HOPS, IPV6_MULTICAST_LOOP};
use super::membership::Of;
use crate::multicast::ETHERNET;
use crate::stack::Net;
use abi::linux::net as linux;
use abi::{Result, errno::*};
use api_socket::options::int;
use core::net::Ipv6Addr;

/// setsockopt(2) of IPPROTO_IPV6; `ENOPROTOOPT` for what is not of multicasts.
pub fn set(net: &Net, of: Of, name: u32, value: &[u8]) -> Result<()> {
    match name {
        IPV6_MULTICAST_HOPS => {
            let hops = match int(value)? {
                -1 => 1,
                n => u8::try_from(n).map_err(|_| EINVAL)?,
            };
            net.look(|s| of.choices(s).map(|(choices, _)| choices.hops = hops))
        }
        IPV6_MULTICAST_LOOP => {
            let loops = match int(value)? {
                n @ 0..=1 => n == 1,
                _ => return Err(EINVAL),
            };
            net.look(|s| of.choices(s).map(|(choices, _)| choices.loops6 = loops))
        }
        // struct ipv6_mreq: group, interface.
        IPV6_ADD_MEMBERSHIP | IPV6_DROP_MEMBERSHIP => {
            let value: &[u8; 20] = value.first_chunk().ok_or(EINVAL)?;
            let (group, index) = (octets(&value[..16]), number(&value[16..]));
            change(net, of, name == IPV6_ADD_MEMBERSHIP, group, index)
        }
        // struct group_req: interface, struct sockaddr_in6.
        linux::MCAST_JOIN_GROUP | linux::MCAST_LEAVE_GROUP => {
            const SIZE: usize = 8 + 128;
            const AF_INET6: [u8; 2] = 10u16.to_ne_bytes();
            let value: &[u8; SIZE] = value.first_chunk().ok_or(EINVAL)?;
            if value[8..10] != AF_INET6 {
                return Err(EADDRNOTAVAIL);
            }
            change(net, of, name == linux::MCAST_JOIN_GROUP, octets(&value[16..32]), number(&value[..4]))
        }
        _ => Err(ENOPROTOOPT),
    }
}

fn octets(bytes: &[u8]) -> Ipv6Addr {
    Ipv6Addr::from(bytes.first_chunk::<16>().copied().unwrap_or_default())
}

fn number(bytes: &[u8]) -> i32 {
    i32::from_ne_bytes(bytes.first_chunk().copied().unwrap_or_default())
}

fn change(net: &Net, of: Of, joins: bool, group: Ipv6Addr, index: i32) -> Result<()> {
    if !group.is_multicast() {
        return Err(EINVAL);
    }
    if ![0, ETHERNET].contains(&index) || !net.look(|s| s.ip.has_v6()) {
        return Err(ENODEV);
    }
    let number = net.number_of(group, ETHERNET as u32)?;
    net.act(|s, now| {
        let (choices, groups) = of.choices(s)?;
        if !joins {
            groups.leave(choices, number, ETHERNET)?;
            s.ip.leave6(now, &group);
            return Ok(());
        }
        groups.join(choices, number, ETHERNET)?;
        if s.ip.join6(now, group) {
            return Ok(());
        }
        let (choices, groups) = of.choices(s)?;
        groups.leave(choices, number, ETHERNET)?;
        Err(ENOBUFS)
    })
}
