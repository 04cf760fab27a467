// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Addresses of interfaces, and the routes that come and go with them (Linux' `devinet.c`).

use super::{Address, Interfaces, LOOPBACK, Own, routes};
use abi::{Result, errno::*};
use api_alloc::Reserve;
use core::net::Ipv4Addr;

/// Addresses of one interface at most.
const MAX_ADDRESSES: usize = 256;

impl Interfaces {
    /// RTM_NEWADDR. `EEXIST` for one that is there.
    pub fn add_address(&mut self, index: u32, address: Address) -> Result<()> {
        let is_host = |ip: Ipv4Addr| !ip.is_unspecified() && !ip.is_broadcast() && !ip.is_multicast();
        let interface = self.get_mut(index)?;
        if !is_host(address.local) || !is_host(address.peer) || address.prefix > 32 {
            return Err(EINVAL);
        }
        let is_same = |known: &Address| {
            (known.local, known.prefix, known.network()) == (address.local, address.prefix, address.network())
        };
        if interface.addresses.iter().any(is_same) {
            return Err(EEXIST);
        }
        if interface.addresses.len() >= MAX_ADDRESSES {
            return Err(ENOBUFS);
        }
        interface.addresses.reserve_fallibly(1).map_err(|_| ENOBUFS)?;
        interface.addresses.push(address);
        let is_up = interface.is_up();
        let known = self.own.get(&address.local).copied();
        let own = known.map_or(Own { interface: index, count: 1 }, |own| Own { count: own.count + 1, ..own });
        if self.own.insert_fallibly(address.local, own).is_err() {
            self.get_mut(index)?.addresses.pop();
            return Err(ENOBUFS);
        }
        for broadcast in address.broadcasts() {
            let count = self.broadcasts.get(&broadcast).map_or(1, |count| count + 1);
            // Without memory the network's broadcasts are not taken.
            let _ = self.broadcasts.insert_fallibly(broadcast, count);
        }
        self.tell_address(index, &address, true);
        if is_up {
            self.add_route_of(index, &address)?;
        }
        Ok(())
    }

    /// RTM_NEWADDR of an address that is there (NLM_F_REPLACE): the metric of its network's route becomes the other one's.
    pub fn set_metric(&mut self, index: u32, address: &Address) -> Result<()> {
        let is_it = |known: &&mut Address| {
            (known.local, known.prefix, known.network()) == (address.local, address.prefix, address.network())
        };
        let known = self.get_mut(index)?.addresses.iter_mut().find(is_it).ok_or(EADDRNOTAVAIL)?;
        if known.metric == address.metric {
            return Ok(());
        }
        let old = routes::Route::connected(index, known);
        known.metric = address.metric;
        let known = *known;
        // Whoever took the old route away has none.
        if self.get(index)?.is_up() && self.routes.remove_same(&old) {
            self.tell_route(&old, false);
            self.add_route_of(index, &known)?;
        }
        self.tell_address(index, &known, true);
        Ok(())
    }

    /// RTM_DELADDR: the address with what routes need it. The first one of a network takes the others along, as long as
    /// net.ipv4.conf.all.promote_secondaries is 0, which it is here.
    pub fn remove_address(&mut self, index: u32, address: &Address) -> Result<()> {
        let is_secondary = self.get(index)?.is_secondary(address);
        self.remove_one_address(index, address)?;
        if is_secondary {
            return Ok(());
        }
        loop {
            let others = &self.get(index)?.addresses;
            let Some(other) = others.iter().find(|known| known.is_beside(address)).copied() else {
                return Ok(());
            };
            self.remove_one_address(index, &other)?;
        }
    }

    fn remove_one_address(&mut self, index: u32, address: &Address) -> Result<()> {
        let interface = self.get_mut(index)?;
        let at = interface.addresses.iter().position(|known| known == address).ok_or(EADDRNOTAVAIL)?;
        interface.addresses.remove(at);
        match self.own.get_mut(&address.local) {
            Some(own) if own.count > 1 => own.count -= 1,
            _ => drop(self.own.remove(&address.local)),
        }
        for broadcast in address.broadcasts() {
            match self.broadcasts.get_mut(&broadcast) {
                Some(count) if *count > 1 => *count -= 1,
                _ => drop(self.broadcasts.remove(&broadcast)),
            }
        }
        self.tell_address(index, address, false);
        let is_gone = !self.own.contains_key(&address.local);
        let gone = self.routes.remove_with_source(index, address.local, is_gone);
        gone.iter().for_each(|route| self.tell_route(route, false));
        Ok(())
    }

    pub(super) fn add_routes_of_addresses(&mut self, index: u32) -> Result<()> {
        for at in 0..self.get(index)?.addresses.len() {
            let Some(address) = self.get(index)?.addresses.get(at).copied() else { break };
            self.add_route_of(index, &address)?;
        }
        Ok(())
    }

    /// The route to the network of an address, which is the kernel's own to make.
    fn add_route_of(&mut self, index: u32, address: &Address) -> Result<()> {
        if index == LOOPBACK
            || address.prefix == 32 && address.peer == address.local
            || address.network().octets()[0] == 0
            || self.get(index)?.is_secondary(address)
            || address.has_no_route
        {
            return Ok(());
        }
        let route = routes::Route::connected(index, address);
        // Beside what programs have put there.
        let manner = routes::Manner { creates: true, appends: true, ..Default::default() };
        match self.routes.change(route, manner) {
            Ok(_) => self.tell_route(&route, true),
            // Another address of the network has it.
            Err(EEXIST) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
