// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of routes (rtnetlink(7)): the longest prefix first, of one prefix the least metric. A look-up costs one search for each
//! length of prefix that the table has.

use super::Address;
use abi::{Errno, Result, errno::*};
use alloc::vec::Vec;
use api_alloc::Reserve;
use core::net::Ipv4Addr;
use ordered::Map;

/// Routes of one stack at most.
pub const MAX_ROUTES: usize = 8192;
pub const TABLE_DEFAULT: u32 = 253;
pub const TABLE_MAIN: u32 = 254;
pub const TABLE_LOCAL: u32 = 255;
pub const UNICAST: u8 = 1;
pub const LOCAL: u8 = 2;
pub const BROADCAST: u8 = 3;
pub const ANYCAST: u8 = 4;
pub const MULTICAST: u8 = 5;
pub const BLACKHOLE: u8 = 6;
pub const UNREACHABLE: u8 = 7;
pub const PROHIBIT: u8 = 8;
pub const THROW: u8 = 9;
pub const PROTOCOL_KERNEL: u8 = 2;
pub const PROTOCOL_BOOT: u8 = 3;
pub const SCOPE_UNIVERSE: u8 = 0;
pub const SCOPE_LINK: u8 = 253;
pub const SCOPE_HOST: u8 = 254;

/// The mask of a prefix's length.
pub fn mask(prefix: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0)
}

/// One route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    pub table: u32,
    pub to: Ipv4Addr,
    pub prefix: u8,
    pub tos: u8,
    pub metric: u32,
    /// RTN_*.
    pub kind: u8,
    /// RT_SCOPE_*.
    pub scope: u8,
    /// RTPROT_*.
    pub protocol: u8,
    pub gateway: Option<Ipv4Addr>,
    /// 0: of a route that leads nowhere.
    pub interface: u32,
    /// The address to speak with.
    pub source: Option<Ipv4Addr>,
    pub mtu: u32,
    /// The gateway need not be in a network of the interface's.
    pub is_onlink: bool,
}

/// The order in a table: table, lengths from 32 down, address, metric, and what comes with one metric (NLM_F_APPEND).
type Key = (u32, u8, u32, u32, u32);

impl Route {
    /// To the network of an address.
    pub fn connected(interface: u32, address: &Address) -> Route {
        Route {
            table: TABLE_MAIN,
            to: address.network(),
            prefix: address.prefix,
            tos: 0,
            metric: address.metric,
            kind: UNICAST,
            scope: SCOPE_LINK,
            protocol: PROTOCOL_KERNEL,
            gateway: None,
            interface,
            source: Some(address.local),
            mtu: 0,
            is_onlink: false,
        }
    }

    /// To everywhere.
    pub fn by_gateway(interface: u32, gateway: Ipv4Addr) -> Route {
        Route {
            table: TABLE_MAIN,
            to: Ipv4Addr::UNSPECIFIED,
            prefix: 0,
            tos: 0,
            metric: 0,
            kind: UNICAST,
            scope: SCOPE_UNIVERSE,
            protocol: PROTOCOL_BOOT,
            gateway: Some(gateway),
            interface,
            source: None,
            mtu: 0,
            is_onlink: false,
        }
    }

    fn key(&self, place: u32) -> Key {
        (self.table, 32 - self.prefix.min(32), self.to.to_bits(), self.metric, place)
    }

    /// The error of what is sent there, of a route that leads nowhere.
    pub fn refusal(&self) -> Option<Errno> {
        match self.kind {
            BLACKHOLE => Some(EINVAL),
            UNREACHABLE => Some(EHOSTUNREACH),
            PROHIBIT => Some(EACCES),
            _ => None,
        }
    }

    /// Whether this is the route that a deletion names: what it does not say may be anything.
    fn is_named_by(&self, asked: &Wanted) -> bool {
        let Wanted { route, has_kind, has_scope, has_protocol, has_metric } = asked;
        self.tos == route.tos
            && (!has_kind || self.kind == route.kind)
            && (!has_scope || self.scope == route.scope)
            && (!has_protocol || self.protocol == route.protocol)
            && (!has_metric || self.metric == route.metric)
            && (route.interface == 0 || self.interface == route.interface)
            && (route.gateway.is_none() || self.gateway == route.gateway)
            && (route.source.is_none() || self.source == route.source)
    }
}

/// A route that is to be deleted, as far as it is said.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    pub route: Route,
    pub has_kind: bool,
    pub has_scope: bool,
    pub has_protocol: bool,
    pub has_metric: bool,
}

/// What a new route does where its place is taken (NLM_F_*).
#[derive(Clone, Copy, Debug, Default)]
pub struct Manner {
    pub creates: bool,
    pub replaces: bool,
    pub is_exclusive: bool,
    pub appends: bool,
}

#[derive(Default)]
pub struct Routes {
    all: Map<Key, Route>,
    /// How many routes a table has with each length of prefix.
    lengths: Map<(u32, u8), u32>,
}

impl Routes {
    pub fn iter(&self) -> impl Iterator<Item = &Route> {
        self.all.range::<Key, _>(..).map(|(_, route)| route)
    }

    pub fn count(&self) -> usize {
        self.all.len()
    }

    fn at(&self, route: &Route) -> impl Iterator<Item = (&Key, &Route)> {
        let (first, last) = (route.key(0), route.key(u32::MAX));
        self.all.range(first..=last).filter(move |(_, known)| known.tos == route.tos)
    }

    /// Adds a route where none is; `EEXIST` where its place is taken.
    pub fn add(&mut self, route: Route) -> Result<()> {
        let manner = Manner { creates: true, is_exclusive: true, ..Manner::default() };
        self.change(route, manner).map(drop)
    }

    /// RTM_NEWROUTE. The route that was replaced.
    pub fn change(&mut self, route: Route, manner: Manner) -> Result<Option<Route>> {
        let first = self.at(&route).next().map(|(key, known)| (*key, *known));
        if let Some((key, known)) = first {
            if manner.is_exclusive {
                return Err(EEXIST);
            }
            if manner.replaces {
                // The same route once more.
                let others = self.at(&route).skip(1).any(|(_, other)| *other == route);
                if others {
                    return Err(EEXIST);
                }
                if let Some(place) = self.all.get_mut(&key) {
                    *place = route;
                }
                return Ok(Some(known));
            }
            if self.at(&route).any(|(_, known)| *known == route) {
                return Err(EEXIST);
            }
        }
        if !manner.creates {
            return Err(ENOENT);
        }
        if self.all.len() >= MAX_ROUTES {
            return Err(ENOBUFS);
        }
        // Those of one metric are taken in their order; without NLM_F_APPEND the new one is the first.
        const MIDDLE: u32 = u32::MAX / 2;
        let place = match (first, manner.appends) {
            (None, _) => MIDDLE,
            (Some((key, _)), false) => key.4.checked_sub(1).ok_or(ENOBUFS)?,
            (Some(_), true) => {
                let last = self.all.range(route.key(0)..=route.key(u32::MAX)).next_back();
                last.map_or(MIDDLE, |(key, _)| key.4).checked_add(1).ok_or(ENOBUFS)?
            }
        };
        let length = (route.table, 32 - route.prefix.min(32));
        let count = self.lengths.get(&length).map_or(1, |count| count + 1);
        self.lengths.insert_fallibly(length, count).map_err(|_| ENOBUFS)?;
        if self.all.insert_fallibly(route.key(place), route).is_err() {
            self.forget(length);
            return Err(ENOBUFS);
        }
        Ok(None)
    }

    fn forget(&mut self, length: (u32, u8)) {
        match self.lengths.get_mut(&length) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(self.lengths.remove(&length)),
        }
    }

    fn take(&mut self, key: &Key) -> Option<Route> {
        let route = self.all.remove(key)?;
        self.forget((key.0, key.1));
        Some(route)
    }

    /// RTM_DELROUTE: the first route that fits. `ESRCH` without one.
    pub fn remove(&mut self, wanted: &Wanted) -> Result<Route> {
        let (mut low, mut high) = (wanted.route, wanted.route);
        if !wanted.has_metric {
            (low.metric, high.metric) = (0, u32::MAX);
        }
        let mut there = self.all.range(low.key(0)..=high.key(u32::MAX));
        let key = there.find(|(_, route)| route.is_named_by(wanted)).map(|(key, _)| *key).ok_or(ESRCH)?;
        self.take(&key).ok_or(ESRCH)
    }

    /// Takes all routes out of which that is true. Those for which there is no memory to name them are not told.
    fn remove_if(&mut self, is_gone: impl Fn(&Route) -> bool) -> Vec<Route> {
        let mut gone = Vec::new();
        let mut from: Option<Key> = None;
        loop {
            let next = {
                let mut rest = self.all.range((
                    from.map_or(core::ops::Bound::Unbounded, core::ops::Bound::Excluded),
                    core::ops::Bound::Unbounded,
                ));
                rest.find(|(_, route)| is_gone(route)).map(|(key, _)| *key)
            };
            let Some(key) = next else { return gone };
            if let Some(route) = self.take(&key)
                && gone.reserve_fallibly(1).is_ok()
            {
                gone.push(route);
            }
            from = Some(key);
        }
    }

    /// Takes out the very route; whether it was there.
    pub fn remove_same(&mut self, route: &Route) -> bool {
        !self.remove_if(|known| known == route).is_empty()
    }

    /// The interface goes, or goes down.
    pub fn remove_of(&mut self, interface: u32) -> Vec<Route> {
        self.remove_if(|route| route.interface == interface)
    }

    /// An address goes: its network's route by that interface and, if no other interface has it, every route that speaks with it.
    pub fn remove_with_source(&mut self, interface: u32, source: Ipv4Addr, is_last: bool) -> Vec<Route> {
        self.remove_if(|route| {
            let is_its = route.interface == interface && route.protocol == PROTOCOL_KERNEL;
            route.source == Some(source) && (is_last || is_its)
        })
    }

    /// Whether a table has routes.
    pub fn has_table(&self, table: u32) -> bool {
        self.lengths.range((table, 0)..=(table, 32)).next().is_some()
    }

    /// The route to everywhere by an interface.
    pub fn default_by(&self, interface: u32) -> Option<&Route> {
        let everywhere = Route::by_gateway(interface, Ipv4Addr::UNSPECIFIED);
        let (first, last) = (everywhere.key(0), Route { metric: u32::MAX, ..everywhere }.key(u32::MAX));
        self.all.range(first..=last).map(|(_, route)| route).find(|route| route.interface == interface)
    }

    /// The best route of a table to an address, by that interface where it is not 0.
    pub fn look_up(&self, table: u32, to: Ipv4Addr, tos: u8, interface: u32) -> Option<&Route> {
        self.look_up_where(table, to, tos, interface, |_| true)
    }

    /// The same of those routes of which that is true.
    pub fn look_up_where(
        &self,
        table: u32,
        to: Ipv4Addr,
        tos: u8,
        interface: u32,
        counts: impl Fn(&Route) -> bool,
    ) -> Option<&Route> {
        let lengths = self.lengths.range((table, 0)..=(table, 32));
        for ((_, inverse), _) in lengths {
            let network = to.to_bits() & mask(32 - inverse);
            let there = self
                .all
                .range((table, *inverse, network, 0, 0)..=(table, *inverse, network, u32::MAX, u32::MAX));
            let is_it = |route: &&Route| {
                (route.tos == 0 || route.tos == tos)
                    && (interface == 0 || route.interface == interface)
                    && counts(route)
            };
            if let Some(route) = there.map(|(_, route)| route).find(is_it) {
                return Some(route);
            }
        }
        None
    }
}
