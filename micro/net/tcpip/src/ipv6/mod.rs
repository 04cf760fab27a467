// SPDX-License-Identifier: Apache-2.0 OR MIT
//! IPv6 on the machine's device (RFC 8200): what the rest of the stack, which knows addresses by their [`numbers`], leaves to it.
//!
//! - [`wire`] knows the formats, [`discovery`] those of neighbour discovery;
//! - [`addresses`] are the device's, [`routes`] the ways out: prefixes, routers, and MTUs of paths (RFC 8201);
//! - [`input`] takes packets in as far as the transports, [`output`] sends theirs, [`errors`] makes and reads ICMPv6's (RFC 4443);
//! - [`neighbours`] asks and answers (RFC 4861 7), [`routers`] heeds advertisements (RFC 4861 6, RFC 4862), [`groups`] tells
//!   switches of memberships (RFC 3810), [`time`] does what is due.
//!
//! A stack without a [`Configuration`] has none of it, as a Linux whose device has IPv6 disabled.

pub mod addresses;
pub mod discovery;
pub mod errors;
pub mod groups;
pub mod input;
pub mod neighbours;
pub mod numbers;
pub mod output;
pub mod routers;
pub mod routes;
pub mod time;
pub mod wire;

use crate::families::is_v6;
use crate::hash::Keyed;
use crate::ip::{Ip, Route};
use crate::wire::{Mac, Sum};
use abi::{Result, errno::*};
use addresses::Addresses;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::hash::BuildHasher;
use core::net::{Ipv4Addr, Ipv6Addr};
use groups::Memberships;
use numbers::{Numbers, Scoped};
use routes::Routes;
use time::Deadlines;

pub(crate) const DEVICE: u32 = crate::multicast::ETHERNET as u32;
/// All nodes, and all routers, of a link (RFC 4291 2.7.1).
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
pub const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

/// What the host says of the device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    /// With their prefixes. The host has seen that nobody else has them.
    pub addresses: Vec<(Ipv6Addr, u8)>,
    pub gateway: Option<Ipv6Addr>,
    /// Routers of the link are heeded: addresses, prefixes and ways out are what they say.
    pub is_automatic: bool,
}

/// Of the device of one stack.
pub struct V6 {
    pub numbers: Numbers,
    key: Keyed,
    randoms: u64,
    mac: Mac,
    pub addresses: Addresses,
    pub routes: Routes,
    memberships: Memberships,
    deadlines: Deadlines,
    pub is_automatic: bool,
    pub counters: Counters,
}

/// Columns of /proc/net/snmp6 that IPv4's counters do not have.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    pub in_receives: u64,
    pub in_header_errors: u64,
    pub in_address_errors: u64,
    pub in_unknown_protocols: u64,
    pub in_delivers: u64,
    pub out_requests: u64,
    pub out_no_routes: u64,
    pub reassembly_requests: u64,
    pub reassembled: u64,
    pub fragmented: u64,
    pub fragments_created: u64,
    pub icmp_in: u64,
    pub icmp_in_errors: u64,
    pub icmp_out: u64,
}

impl V6 {
    fn new(key: Keyed, mac: Mac, mtu: usize) -> V6 {
        V6 {
            numbers: Numbers::new(key),
            key,
            randoms: 0,
            mac,
            addresses: Addresses::default(),
            routes: Routes::new(mtu),
            memberships: Memberships::default(),
            deadlines: Deadlines::default(),
            is_automatic: false,
            counters: Counters::default(),
        }
    }

    /// A number that nobody outside can guess.
    fn random(&mut self) -> u64 {
        self.randoms += 1;
        self.key.hash_one((6u8, self.randoms))
    }
}

impl Ip {
    /// Gives the device addresses of IPv6. Without memory, or a device, it has none.
    pub fn configure6(&mut self, now: u64, configuration: &Configuration, key: Keyed) {
        let Some(info) = self.info else { return };
        if info.mtu < wire::MIN_MTU {
            return;
        }
        let mut v6 = Box::new(V6::new(key, info.mac, info.mtu));
        v6.is_automatic = configuration.is_automatic;
        let local = Ipv6Addr::from_bits(0xfe80 << 112 | u128::from(wire::eui64(info.mac)));
        for (address, prefix) in &configuration.addresses {
            // The bounds are far above what one command line holds.
            let _ = v6.add_address(addresses::Address::given(*address, *prefix));
        }
        let delay = v6.random() % time::SECOND;
        let _ = v6.add_address(addresses::Address::tentative(local, 64, now + delay));
        if let Some(gateway) = configuration.gateway {
            let _ = v6.set_gateway(Some(gateway));
        }
        self.v6 = Some(v6);
        self.join6(now, ALL_NODES);
        self.join_solicited(now);
        self.announce_all(now);
    }

    pub(crate) fn is_own6(&self, number: Ipv4Addr) -> bool {
        number == crate::families::LOOPBACK6 && self.lo.has_address6()
            || self.v6.as_ref().is_some_and(|v6| v6.addresses.has_number(number))
    }

    /// The address that a number stands for, with its scope.
    pub fn address_of(&self, number: Ipv4Addr) -> Option<Scoped> {
        match &self.v6 {
            Some(v6) => v6.numbers.get(number),
            None => (number == crate::families::LOOPBACK6)
                .then_some(Scoped { address: Ipv6Addr::LOCALHOST, scope: 0 }),
        }
    }

    /// The number of an address that a program names: `ENETUNREACH` without IPv6, `ENODEV` for a link that is not there, `ENOBUFS`
    /// where too many are in use.
    pub fn number_of(&mut self, address: Ipv6Addr, scope: u32) -> Result<Ipv4Addr> {
        let v6 = self.v6.as_mut().ok_or(ENETUNREACH)?;
        let scope = if address.is_multicast() && scope == 0 { DEVICE } else { scope };
        if wire::is_link_local(&address) && scope != DEVICE {
            return Err(ENODEV);
        }
        v6.numbers.intern(Scoped::on(address, scope)).ok_or(ENOBUFS)
    }

    /// The sum of the pseudo header of two addresses that have numbers.
    pub(crate) fn pseudo6(
        &self,
        source: Ipv4Addr,
        destination: Ipv4Addr,
        protocol: u8,
        length: usize,
    ) -> Sum {
        let address = |number| self.address_of(number).map_or(Ipv6Addr::UNSPECIFIED, |of| of.address);
        wire::pseudo(&address(source), &address(destination), protocol, length)
    }

    /// Whether the device takes what is sent to the group.
    pub(crate) fn hears6(&self, group: Ipv4Addr) -> bool {
        is_v6(group) && self.v6.as_ref().is_some_and(|v6| v6.memberships.has_number(group))
    }

    pub(crate) fn route6(&self, source: Ipv4Addr, to: Ipv4Addr) -> Result<Route> {
        let v6 = self.v6.as_ref().ok_or(ENETUNREACH)?;
        let is_known = |hop| self.neighbours.known((DEVICE, hop)).is_some();
        v6.route(source, to, is_known)
    }

    pub(crate) fn has_v6(&self) -> bool {
        self.v6.is_some()
    }
}
