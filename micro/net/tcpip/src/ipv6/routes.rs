// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ways out (RFC 4861 5): prefixes that are on the link, default routers, and what packets of a path may measure (RFC 8201).

use super::addresses::FOREVER;
use super::numbers::Scoped;
use super::wire::MIN_MTU;
use super::{DEVICE, V6};
use crate::ip::Route;
use crate::wire::IPV4;
use abi::{Result, errno::*};
use alloc::vec::Vec;
use api_alloc::Reserve;
use core::net::{Ipv4Addr, Ipv6Addr};
use ordered::Map;

/// Prefixes, and routers, that are remembered: a link has one or two, and strangers may say what they like.
const MAX_PREFIXES: usize = 32;
const MAX_ROUTERS: usize = 8;
/// Paths whose MTU is remembered; one that is forgotten is found again.
const MAX_PATHS: usize = 256;
/// RFC 8201 5.3: a path may have become wider after so long.
const PATH_NS: u64 = 600_000_000_000;

fn mask(prefix: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0)
}

pub fn is_in(address: &Ipv6Addr, network: &Ipv6Addr, prefix: u8) -> bool {
    (address.to_bits() ^ network.to_bits()) & mask(prefix) == 0
}

#[derive(Clone, Copy, Debug)]
pub struct Prefix {
    pub network: Ipv6Addr,
    pub length: u8,
    pub valid_until: u64,
}

#[derive(Clone, Copy, Debug)]
pub struct Router {
    pub address: Ipv6Addr,
    pub number: Ipv4Addr,
    /// [`FOREVER`]: the host or a program said so.
    pub until: u64,
}

struct Path {
    mtu: usize,
    until: u64,
}

pub struct Routes {
    pub prefixes: Vec<Prefix>,
    pub routers: Vec<Router>,
    paths: Map<Ipv4Addr, Path>,
    /// The link's, which a router may make smaller.
    pub mtu: usize,
    /// The device's.
    largest: usize,
}

impl Routes {
    pub fn new(mtu: usize) -> Routes {
        Routes { prefixes: Vec::new(), routers: Vec::new(), paths: Map::new(), mtu, largest: mtu }
    }

    /// Addresses of the prefix are on the link until then.
    pub fn add_prefix(&mut self, address: Ipv6Addr, length: u8, valid_until: u64) {
        let network = Ipv6Addr::from_bits(address.to_bits() & mask(length));
        let is_it = |known: &&mut Prefix| (known.network, known.length) == (network, length);
        if let Some(known) = self.prefixes.iter_mut().find(is_it) {
            known.valid_until = valid_until;
        } else if self.prefixes.len() < MAX_PREFIXES && self.prefixes.reserve_fallibly(1).is_ok() {
            self.prefixes.push(Prefix { network, length, valid_until });
        }
    }

    pub fn remove_prefix(&mut self, address: &Ipv6Addr, length: u8) {
        self.prefixes.retain(|known| known.length != length || !is_in(address, &known.network, length));
    }

    pub fn remove_router(&mut self, address: &Ipv6Addr) {
        self.routers.retain(|known| known.address != *address || known.until == FOREVER);
    }

    fn is_on_link(&self, address: &Ipv6Addr) -> bool {
        self.prefixes.iter().any(|known| is_in(address, &known.network, known.length))
    }

    /// A router says what packets of its link measure; what no link may have is ignored (RFC 4861 6.3.4).
    pub fn set_mtu(&mut self, mtu: usize) {
        if (MIN_MTU..=self.largest).contains(&mtu) {
            self.mtu = mtu;
        }
    }

    /// A packet to there was too large for the path: it is never taken to be wider than it was (RFC 8201 4).
    pub fn narrow(&mut self, now: u64, to: Ipv4Addr, mtu: usize) {
        let mtu = mtu.max(MIN_MTU);
        if mtu >= self.path_mtu(to) {
            return;
        }
        if self.paths.len() >= MAX_PATHS && !self.paths.contains_key(&to) {
            self.paths.pop_first();
        }
        // One that is not remembered is found again.
        let _ = self.paths.insert_fallibly(to, Path { mtu, until: now + PATH_NS });
    }

    pub fn path_mtu(&self, to: Ipv4Addr) -> usize {
        self.paths.get(&to).map_or(self.mtu, |path| path.mtu.min(self.mtu))
    }

    /// Forgets what has ended.
    pub fn expire(&mut self, now: u64) {
        self.prefixes.retain(|known| known.valid_until > now);
        self.routers.retain(|known| known.until > now);
        self.paths.retain(|_, path| path.until > now);
    }

    pub fn next_deadline(&self) -> u64 {
        let prefixes = self.prefixes.iter().map(|known| known.valid_until);
        let routers = self.routers.iter().map(|known| known.until);
        prefixes.chain(routers).chain(self.paths.values().map(|path| path.until)).min().unwrap_or(FOREVER)
    }

    pub fn numbers(&self) -> impl Iterator<Item = Ipv4Addr> {
        self.routers.iter().map(|router| router.number).chain(self.paths.keys().copied())
    }
}

impl V6 {
    /// The router that the host or a program names, in place of the one before.
    pub fn set_gateway(&mut self, gateway: Option<Ipv6Addr>) -> Result<()> {
        self.routes.routers.retain(|known| known.until != FOREVER);
        match gateway {
            Some(gateway) => self.add_router(gateway, FOREVER),
            None => Ok(()),
        }
    }

    pub fn add_router(&mut self, address: Ipv6Addr, until: u64) -> Result<()> {
        let number = self.numbers.intern(Scoped::on(address, DEVICE)).ok_or(ENOBUFS)?;
        let routers = &mut self.routes.routers;
        if let Some(known) = routers.iter_mut().find(|known| known.address == address) {
            known.until = if known.until == FOREVER { FOREVER } else { until };
        } else {
            if routers.len() >= MAX_ROUTERS || routers.reserve_fallibly(1).is_err() {
                return Err(ENOBUFS);
            }
            routers.push(Router { address, number, until });
        }
        self.plan();
        Ok(())
    }

    /// The way to an address that is not this machine's. `is_known` tells routers that have answered from others.
    pub fn route(
        &self,
        source: Ipv4Addr,
        to: Ipv4Addr,
        is_known: impl Fn(Ipv4Addr) -> bool,
    ) -> Result<Route> {
        let destination = self.numbers.get(to).ok_or(ENETUNREACH)?.address;
        let next_hop =
            if self.is_direct(&destination) { to } else { self.router(is_known).ok_or(ENETUNREACH)? };
        let source = match self.numbers.get(source) {
            Some(_) => source,
            None => self.addresses.source_to(&destination).ok_or(EADDRNOTAVAIL)?.number,
        };
        // The rest of the stack counts a header of IPv4, which is so much shorter.
        let mtu = self.routes.path_mtu(to) - (super::wire::IPV6 - IPV4);
        Ok(Route { source, next_hop, loopback: false, mtu, interface: DEVICE })
    }

    /// The same for who only wants to know: the address that speaks, and the router if there is one on the way.
    pub fn way(
        &self,
        destination: &Ipv6Addr,
        is_known: impl Fn(Ipv4Addr) -> bool,
    ) -> Result<(Ipv6Addr, Option<Ipv6Addr>)> {
        let source = self.addresses.source_to(destination).ok_or(ENETUNREACH)?.address;
        if self.is_direct(destination) {
            return Ok((source, None));
        }
        let router = self.router(is_known).and_then(|number| self.numbers.get(number)).ok_or(ENETUNREACH)?;
        Ok((source, Some(router.address)))
    }

    fn is_direct(&self, destination: &Ipv6Addr) -> bool {
        destination.is_multicast()
            || super::wire::is_link_local(destination)
            || self.routes.is_on_link(destination)
    }

    /// RFC 4861 6.3.6: one that answers is better than one that may be gone. What a program said comes first.
    fn router(&self, is_known: impl Fn(Ipv4Addr) -> bool) -> Option<Ipv4Addr> {
        let routers = &self.routes.routers;
        let best = routers.iter().max_by_key(|router| (router.until == FOREVER, is_known(router.number)));
        best.map(|router| router.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::Keyed;

    fn v6() -> V6 {
        let mut v6 = V6::new(Keyed::new(7), [2, 0, 0, 0, 0, 1], 1500);
        v6.add_address(super::super::addresses::Address::given("2001:db8::1".parse().unwrap(), 64)).unwrap();
        v6
    }

    fn number(v6: &mut V6, text: &str) -> Ipv4Addr {
        v6.numbers.intern(Scoped::on(text.parse().unwrap(), DEVICE)).unwrap()
    }

    #[test]
    fn what_is_on_the_link_is_reached_directly_and_all_else_by_a_router() {
        let mut v6 = v6();
        let [near, far, one, two] =
            ["2001:db8::9", "2001:db9::9", "fe80::1", "fe80::2"].map(|t| number(&mut v6, t));
        let hop = |v6: &V6, to, known: Ipv4Addr| {
            v6.route(Ipv4Addr::UNSPECIFIED, to, |router| router == known)
                .map(|route| (route.next_hop, route.mtu))
        };
        assert_eq!(hop(&v6, near, one), Ok((near, 1480)));
        assert_eq!(hop(&v6, far, one), Err(ENETUNREACH));
        v6.add_router("fe80::1".parse().unwrap(), 100).unwrap();
        v6.add_router("fe80::2".parse().unwrap(), 50).unwrap();
        assert_eq!(hop(&v6, far, one), Ok((one, 1480)));
        assert_eq!(hop(&v6, far, two), Ok((two, 1480)));
        v6.routes.expire(50);
        assert_eq!(hop(&v6, far, two), Ok((one, 1480)));
        v6.routes.expire(100);
        assert_eq!(hop(&v6, far, one), Err(ENETUNREACH));
    }

    #[test]
    fn a_path_becomes_narrower_only_and_is_forgotten_after_ten_minutes() {
        let (mut routes, to) = (Routes::new(1500), Ipv4Addr::new(0, 0, 0, 9));
        routes.narrow(0, to, 1400);
        routes.narrow(0, to, 1450);
        assert_eq!(routes.path_mtu(to), 1400);
        routes.narrow(0, to, 68);
        assert_eq!(routes.path_mtu(to), MIN_MTU, "RFC 8201 4");
        routes.expire(PATH_NS);
        assert_eq!(routes.path_mtu(to), 1500);
        for n in 0..1000 {
            routes.narrow(0, Ipv4Addr::from_bits(n), 1300);
        }
        assert_eq!(routes.paths.len(), MAX_PATHS);
    }

    #[test]
    fn strangers_do_not_fill_the_tables() {
        let mut v6 = v6();
        for n in 0..1000u128 {
            v6.routes.add_prefix(Ipv6Addr::from_bits(n << 64), 64, 10);
            let _ = v6.add_router(Ipv6Addr::from_bits(0xfe80 << 112 | n), 10);
        }
        assert_eq!((v6.routes.prefixes.len(), v6.routes.routers.len()), (MAX_PREFIXES, MAX_ROUTERS));
        v6.routes.set_mtu(1279);
        v6.routes.set_mtu(9000);
        assert_eq!(v6.routes.mtu, 1500);
        v6.routes.set_mtu(1280);
        assert_eq!(v6.routes.mtu, 1280);
    }
}
