// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Addresses, routes and neighbours of IPv6 on the device, by rtnetlink(7).

use super::message::Reply;
use super::{RTM_NEWADDR, RTM_NEWROUTE};
use crate::ipv6::V6;
use crate::ipv6::addresses::{Address, FOREVER};
use crate::neighbour::{Neighbours, Shown};
use abi::Result;
use alloc::vec::Vec;
use core::net::Ipv6Addr;

const AF_INET6: u8 = 10;
const DEVICE: u32 = crate::multicast::ETHERNET as u32;
const SECOND: u64 = 1_000_000_000;
const RT_SCOPE_LINK: u8 = 253;
const RT_TABLE_MAIN: u8 = 254;
const RT_TABLE_LOCAL: u8 = 255;
const RTPROT_KERNEL: u8 = 2;
const RTPROT_STATIC: u8 = 4;
const RTPROT_RA: u8 = 9;
const RTN_UNICAST: u8 = 1;
const RTN_LOCAL: u8 = 2;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_TABLE: u16 = 15;
const RTM_NEWNEIGH: u16 = 28;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NUD_INCOMPLETE: u16 = 1;
const NUD_REACHABLE: u16 = 2;
const NUD_STALE: u16 = 4;
#[cfg(feature = "interfaces")]
const NUD_PERMANENT: u16 = 0x80;

type Put<'a> = &'a mut dyn FnMut(Vec<u8>) -> Result<()>;

/// Seconds until then, as programs are told of lifetimes.
fn seconds(until: u64, now: u64) -> u32 {
    if until == FOREVER { u32::MAX } else { (until.saturating_sub(now) / SECOND) as u32 }
}

fn address(one: &Address, now: u64, reply: Reply) -> Result<Vec<u8>> {
    const IFA_ADDRESS: u16 = 1;
    const IFA_CACHEINFO: u16 = 6;
    const IFA_FLAGS: u16 = 8;
    let scope = if one.address.is_unicast_link_local() { RT_SCOPE_LINK } else { 0 };
    let flags = one.flags(now);
    let lifetimes = [seconds(one.preferred_until, now), seconds(one.valid_until, now), 0, 0];
    reply
        .message(RTM_NEWADDR)
        .put(&[AF_INET6, one.prefix, flags as u8, scope])
        .put(&DEVICE.to_ne_bytes())
        .attribute(IFA_ADDRESS, &one.address.octets())
        .attribute(IFA_FLAGS, &flags.to_ne_bytes())
        .attribute(IFA_CACHEINFO, lifetimes.map(u32::to_ne_bytes).as_flattened())
        .finish()
}

pub(super) fn addresses(v6: &V6, reply: Reply, put: Put<'_>) -> Result<()> {
    v6.addresses.all.iter().try_for_each(|one| put(address(one, v6.addresses.now, reply)?))
}

/// Of a table: to a network, or by a gateway.
struct Route {
    to: (Ipv6Addr, u8),
    gateway: Option<Ipv6Addr>,
    table: u8,
    protocol: u8,
    kind: u8,
    metric: u32,
}

impl Route {
    fn message(&self, reply: Reply) -> Result<Vec<u8>> {
        let mut message = reply
            .message(RTM_NEWROUTE)
            .put(&[AF_INET6, self.to.1, 0, 0, self.table, self.protocol, 0, self.kind])
            .put(&[0; 4])
            .attribute(RTA_TABLE, &u32::from(self.table).to_ne_bytes());
        if self.to.1 > 0 {
            message = message.attribute(RTA_DST, &self.to.0.octets());
        }
        message = message.attribute(RTA_PRIORITY, &self.metric.to_ne_bytes());
        if let Some(gateway) = self.gateway {
            message = message.attribute(RTA_GATEWAY, &gateway.octets());
        }
        message.attribute(RTA_OIF, &DEVICE.to_ne_bytes()).finish()
    }
}

pub(super) fn routes(v6: &V6, reply: Reply, put: Put<'_>) -> Result<()> {
    let main = |to, gateway, protocol, metric| Route {
        to,
        gateway,
        table: RT_TABLE_MAIN,
        protocol,
        kind: RTN_UNICAST,
        metric,
    };
    for one in &v6.routes.prefixes {
        let protocol = if one.valid_until == FOREVER { RTPROT_KERNEL } else { RTPROT_RA };
        put(main((one.network, one.length), None, protocol, 256).message(reply)?)?;
    }
    for one in &v6.routes.routers {
        let protocol = if one.until == FOREVER { RTPROT_STATIC } else { RTPROT_RA };
        put(main((Ipv6Addr::UNSPECIFIED, 0), Some(one.address), protocol, 1024).message(reply)?)?;
    }
    for one in v6.addresses.all.iter().filter(|one| one.is_assigned()) {
        let own = Route {
            to: (one.address, 128),
            gateway: None,
            table: RT_TABLE_LOCAL,
            protocol: RTPROT_KERNEL,
            kind: RTN_LOCAL,
            metric: 0,
        };
        put(own.message(reply)?)?;
    }
    Ok(())
}

/// Those of the device whose addresses are of IPv6.
pub(super) fn neighbours(v6: &V6, all: &Neighbours, reply: Reply, put: Put<'_>) -> Result<()> {
    all.each(&mut |(index, number), shown| {
        let Some(of) = v6.numbers.get(*number).filter(|_| crate::families::is_v6(*number)) else {
            return Ok(());
        };
        let (state, mac) = match shown {
            Shown::Incomplete => (NUD_INCOMPLETE, None),
            Shown::Known { mac, is_fresh: true } => (NUD_REACHABLE, Some(mac)),
            Shown::Known { mac, is_fresh: false } => (NUD_STALE, Some(mac)),
            #[cfg(feature = "interfaces")]
            Shown::Permanent(mac) => (NUD_PERMANENT, Some(mac)),
        };
        let ([s, t], [a, b, c, d]) = (state.to_ne_bytes(), index.to_ne_bytes());
        let is_router = v6.routes.routers.iter().any(|router| router.number == *number);
        let flags = u8::from(is_router) << 7;
        let mut message = reply
            .message(RTM_NEWNEIGH)
            .put(&[AF_INET6, 0, 0, 0, a, b, c, d, s, t, flags, RTN_UNICAST])
            .attribute(NDA_DST, &of.address.octets());
        if let Some(mac) = mac {
            message = message.attribute(NDA_LLADDR, &mac);
        }
        put(message.finish()?)
    })
}
