// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interfaces that programs make, and what they change of the machine's own: the table of interfaces, their addresses, routes and rules.
//!
//! A stack has this from the first change on ([`Interfaces`]); until then its one device, with the address that the host gave, needs none
//! of it. From then on the table has all interfaces, `lo` and the device among them, and every route is looked up here.
//!
//! - [`addresses`] come and go with the routes to their networks;
//! - [`routes`] is the table of routes, [`rules`] says which tables a packet is looked up in;
//! - [`output`] is the way out: framing and ARP of an interface; [`veth`] are pairs, and how stacks reach each other;
//! - [`input`] takes frames in, [`forward`] sends on what is for others, [`bridge`] joins interfaces to one link;
//! - [`ports`] is the table as `api_netdev::interface` has it; [`notices`] tells listeners what changed.
//!
//! Frames never recurse: what leaves by a veth or a port lies in a queue with a bound until the other side is polled.

pub mod addresses;
pub mod bridge;
pub mod forward;
pub mod input;
pub mod notices;
pub mod output;
pub mod ports;
pub mod routes;
pub mod rules;
#[cfg(test)]
mod tests;
pub mod veth;

use crate::ip::Configuration;
use crate::sockets::interface_flags::*;
use crate::wire::Mac;
use abi::{Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_netdev::Name;
use api_netdev::interface::Port;
use bridge::Bridge;
use core::net::Ipv4Addr;
use notices::Notices;
use ordered::Map;
use routes::Routes;
use rules::Rules;
use veth::End;

/// Interfaces of one stack at most.
pub const MAX_INTERFACES: usize = 1024;
/// Largest packet of an interface that programs make (Linux: `ETH_MAX_MTU`).
pub const MAX_MTU: usize = 65_535;
/// Smallest one that IPv4 goes over (RFC 791).
pub const MIN_MTU: usize = 68;
pub const LOOPBACK: u32 = crate::multicast::LOOPBACK as u32;
pub const DEVICE: u32 = crate::multicast::ETHERNET as u32;
/// Flags that a program may set.
const CHANGEABLE: u32 = IFF_UP
    | IFF_NOARP
    | IFF_PROMISC
    | IFF_ALLMULTI
    | IFF_MULTICAST
    | IFF_DEBUG
    | IFF_NOTRAILERS
    | IFF_PORTSEL
    | IFF_AUTOMEDIA
    | IFF_DYNAMIC;

/// What an interface's frames come out of.
pub enum Kind {
    Loopback,
    /// The stack's device.
    Device,
    /// Takes everything and gives nothing.
    Dummy,
    Veth(End),
    Bridge(Bridge),
    /// tun(4): frames of Ethernet, or packets alone.
    Port {
        port: Arc<dyn Port>,
        has_ethernet: bool,
    },
}

/// An address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    pub local: Ipv4Addr,
    /// The other end's, where the link has two.
    pub peer: Ipv4Addr,
    pub prefix: u8,
    pub scope: u8,
    pub broadcast: Option<Ipv4Addr>,
    /// The name that it is listed by.
    pub label: Name,
    /// No route to its network comes with it (IFA_F_NOPREFIXROUTE).
    pub has_no_route: bool,
    /// The metric of that route (IFA_RT_PRIORITY).
    pub metric: u32,
}

impl Address {
    fn mask(&self) -> u32 {
        routes::mask(self.prefix)
    }

    /// The network that is reached by it.
    pub fn network(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.peer.to_bits() & self.mask())
    }

    /// The broadcast addresses of its network: the one that was given, and the last one, where there is room for it.
    pub fn broadcasts(&self) -> impl Iterator<Item = Ipv4Addr> {
        let network = self.network();
        let last = Ipv4Addr::from_bits(network.to_bits() | !self.mask());
        let last = Some(last).filter(|_| self.prefix < 31 && network.octets()[0] != 0);
        let given = self.broadcast.filter(|given| !given.is_broadcast() && Some(*given) != last);
        given.into_iter().chain(last)
    }

    /// Both are of one network.
    fn is_beside(&self, other: &Address) -> bool {
        (self.network(), self.prefix) == (other.network(), other.prefix)
    }

    fn holds(&self, address: Ipv4Addr) -> bool {
        (address.to_bits() ^ self.peer.to_bits()) & self.mask() == 0
    }
}

/// What went through an interface.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traffic {
    pub received_packets: u64,
    pub received_bytes: u64,
    pub received_dropped: u64,
    pub sent_packets: u64,
    pub sent_bytes: u64,
    pub sent_dropped: u64,
    pub multicasts: u64,
}

/// One interface.
pub struct Interface {
    pub index: u32,
    pub name: Name,
    pub kind: Kind,
    pub mac: Mac,
    pub mtu: usize,
    /// IFF_* that programs set.
    pub flags: u32,
    /// Somebody is at the other end.
    pub has_carrier: bool,
    /// The bridge that it is a port of; 0: none.
    pub master: u32,
    pub queue_length: u32,
    /// A number by which several are changed at once (IFLA_GROUP).
    pub group: u32,
    pub addresses: Vec<Address>,
    pub traffic: Traffic,
    /// Frames lie in its port's queue whose reader is not told yet.
    is_touched: bool,
}

impl Interface {
    pub fn is_up(&self) -> bool {
        self.flags & IFF_UP != 0
    }

    pub fn has_ethernet(&self) -> bool {
        !matches!(self.kind, Kind::Loopback | Kind::Port { has_ethernet: false, .. })
    }

    /// Whether neighbours are asked for their addresses (RFC 826).
    pub fn has_arp(&self) -> bool {
        self.has_ethernet() && self.flags & IFF_NOARP == 0
    }

    /// All flags, as netdevice(7) shows them.
    pub fn shown_flags(&self) -> u32 {
        let kind = match &self.kind {
            Kind::Loopback => IFF_LOOPBACK,
            Kind::Port { has_ethernet: false, .. } => IFF_POINTOPOINT,
            _ => IFF_BROADCAST,
        };
        let is_running = self.is_up() && self.has_carrier;
        self.flags | kind | if is_running { IFF_RUNNING | IFF_LOWER_UP } else { 0 }
    }

    /// Whether packets leave by it.
    fn is_usable(&self) -> bool {
        self.is_up()
    }

    /// Whether another address of the network came first (IFA_F_SECONDARY).
    pub fn is_secondary(&self, address: &Address) -> bool {
        let first = self.addresses.iter().find(|known| known.is_beside(address));
        first.is_some_and(|first| first != address)
    }

    /// Whether `first` is the first address of the other one's network.
    pub fn is_first_beside(&self, first: &Address, other: &Address) -> bool {
        first.is_beside(other) && !self.is_secondary(first)
    }

    /// The address that it speaks with to `to`: one of the same network, or else its first.
    pub fn source_to(&self, to: Ipv4Addr) -> Option<Ipv4Addr> {
        let near = self.addresses.iter().find(|address| address.holds(to));
        near.or(self.addresses.first()).map(|address| address.local)
    }
}

/// An address that is this machine's: of which interface, and how many have it.
#[derive(Clone, Copy)]
struct Own {
    interface: u32,
    count: u32,
}

/// Everything that programs change.
pub struct Interfaces {
    pub all: Map<u32, Interface>,
    names: Map<Name, u32>,
    own: Map<Ipv4Addr, Own>,
    broadcasts: Map<Ipv4Addr, u32>,
    pub routes: Routes,
    pub rules: Rules,
    pub notices: Notices,
    /// The next interface's index.
    next: u32,
    /// Interfaces whose ports are to be told; has room for all.
    touched: Vec<u32>,
    /// Packets for others are sent on (net.ipv4.ip_forward).
    pub forwards: bool,
    pub forwarded: u64,
    /// An interface went, or went down, whose neighbours are still known.
    has_lost: bool,
    /// The stack's address among others, for pairs that end here.
    pub place: veth::Place,
}

/// The stack goes: who has a port is told.
impl Drop for Interfaces {
    fn drop(&mut self) {
        for (_, interface) in self.all.range::<u32, _>(..) {
            if let Kind::Port { port, .. } = &interface.kind {
                port.detached();
                port.settle();
            }
        }
    }
}

/// What is asked for of a new interface.
pub struct New {
    pub name: Name,
    /// 0: the next one.
    pub index: u32,
    pub kind: Kind,
    pub mac: Mac,
    pub mtu: usize,
    pub flags: u32,
    pub has_carrier: bool,
}

impl Interfaces {
    /// With `lo` and, where there is one, the device.
    pub fn new(place: veth::Place) -> Result<Interfaces> {
        let mut all = Interfaces {
            all: Map::new(),
            names: Map::new(),
            own: Map::new(),
            broadcasts: Map::new(),
            routes: Routes::default(),
            rules: Rules::new()?,
            notices: Notices::default(),
            next: LOOPBACK,
            touched: Vec::new(),
            forwards: false,
            forwarded: 0,
            has_lost: false,
            place,
        };
        let loopback = New {
            name: Name::new("lo"),
            index: LOOPBACK,
            kind: Kind::Loopback,
            mac: [0; 6],
            mtu: crate::ip::LOOPBACK_MTU + 1,
            flags: 0,
            has_carrier: true,
        };
        all.add(loopback)?;
        Ok(all)
    }

    pub fn add_device(&mut self, mac: Mac, mtu: usize) -> Result<()> {
        let device = New {
            name: Name::new("eth0"),
            index: DEVICE,
            kind: Kind::Device,
            mac,
            mtu,
            flags: IFF_UP | IFF_MULTICAST,
            has_carrier: true,
        };
        self.add(device).map(drop)
    }

    pub fn get(&self, index: u32) -> Result<&Interface> {
        self.all.get(&index).ok_or(ENODEV)
    }

    pub fn get_mut(&mut self, index: u32) -> Result<&mut Interface> {
        self.all.get_mut(&index).ok_or(ENODEV)
    }

    pub fn named(&self, name: &Name) -> Option<u32> {
        self.names.get(name).copied()
    }

    /// A rule as programs see it.
    pub fn shown_rule(&self, rule: &rules::Rule) -> rules::Rule {
        let is_missing = |name: Option<Name>| name.is_some_and(|name| self.named(&name).is_none());
        let mut shown = *rule;
        if is_missing(rule.incoming) {
            shown.flags |= rules::INCOMING_IS_NOT_THERE;
        }
        if is_missing(rule.outgoing) {
            shown.flags |= rules::OUTGOING_IS_NOT_THERE;
        }
        shown
    }

    /// The name that a pattern with `%d` stands for: that of the first number which is free.
    pub fn free_name(&self, name: &Name) -> Result<Name> {
        // Directories of /proc/sys/net/ipv4/conf that are no interface's (Linux' `sysctl_dev_name_is_allowed`).
        if matches!(name.as_bytes(), b"all" | b"default") {
            return Err(EINVAL);
        }
        if !name.is_pattern()? {
            return if self.named(name).is_some() { Err(EEXIST) } else { Ok(*name) };
        }
        let numbered = (0..=self.all.len() as u32).map_while(|number| name.numbered(number));
        let mut free = numbered.filter(|name| self.named(name).is_none());
        free.next().ok_or(ENFILE)
    }

    /// Makes an interface, whose name is free.
    pub fn add(&mut self, new: New) -> Result<u32> {
        if self.all.len() >= MAX_INTERFACES {
            return Err(ENFILE);
        }
        let name = self.free_name(&new.name)?;
        let index = match new.index {
            0 => {
                while self.all.contains_key(&self.next) {
                    self.next = self.next % (i32::MAX as u32) + 1;
                }
                self.next
            }
            index if self.all.contains_key(&index) => return Err(EBUSY),
            index => index,
        };
        let missing = self.all.len() + 1 - self.touched.len();
        self.touched.reserve_fallibly(missing).map_err(|_| ENOMEM)?;
        let interface = Interface {
            index,
            name,
            kind: new.kind,
            mac: new.mac,
            mtu: new.mtu,
            flags: new.flags,
            has_carrier: new.has_carrier,
            master: 0,
            queue_length: 1000,
            group: 0,
            addresses: Vec::new(),
            traffic: Traffic::default(),
            is_touched: false,
        };
        self.names.insert_fallibly(name, index).map_err(|_| ENOMEM)?;
        if self.all.insert_fallibly(index, interface).is_err() {
            self.names.remove(&name);
            return Err(ENOMEM);
        }
        if new.index == 0 {
            self.next = index % (i32::MAX as u32) + 1;
        } else {
            self.next = self.next.max(index % (i32::MAX as u32) + 1);
        }
        self.tell_link(index);
        Ok(index)
    }

    /// Takes an interface out, with its addresses and routes, and from its bridge.
    pub fn remove(&mut self, index: u32) -> Result<Interface> {
        if index == LOOPBACK {
            return Err(EOPNOTSUPP);
        }
        self.set_master(index, 0)?;
        if matches!(self.get(index)?.kind, Kind::Bridge(_)) {
            let ports: Vec<u32> = self.ports_of(index)?;
            for port in ports {
                self.set_master(port, 0)?;
            }
        }
        while let Some(address) = self.get(index)?.addresses.last().copied() {
            self.remove_address(index, &address)?;
        }
        let gone = self.routes.remove_of(index);
        gone.iter().for_each(|route| self.tell_route(route, false));
        self.tell_link_gone(index);
        self.has_lost = true;
        let interface = self.all.remove(&index).ok_or(ENODEV)?;
        self.names.remove(&interface.name);
        self.touched.retain(|touched| *touched != index);
        Ok(interface)
    }

    /// Takes the interface in that another stack had, under its index where that is free. What finds no place here goes back.
    #[allow(clippy::result_large_err)] // it is moved, once
    pub fn take_in(
        &mut self,
        mut interface: Interface,
        name: Option<Name>,
    ) -> core::result::Result<u32, Interface> {
        let wanted = name.unwrap_or(interface.name);
        let name = match self.free_name(&wanted) {
            Ok(name) => name,
            Err(_) => return Err(interface),
        };
        let missing = self.all.len() + 1 - self.touched.len();
        if self.all.len() >= MAX_INTERFACES || self.touched.reserve_fallibly(missing).is_err() {
            return Err(interface);
        }
        if self.all.contains_key(&interface.index) {
            while self.all.contains_key(&self.next) {
                self.next = self.next % (i32::MAX as u32) + 1;
            }
            interface.index = self.next;
        }
        (interface.name, interface.is_touched, interface.master) = (name, false, 0);
        let index = interface.index;
        if self.names.insert_fallibly(name, index).is_err() {
            return Err(interface);
        }
        // Nobody else names this index, so what is displaced is nothing.
        self.all.insert(index, interface);
        self.tell_link(index);
        Ok(index)
    }

    pub fn rename(&mut self, index: u32, name: &Name) -> Result<()> {
        let old = self.get(index)?.name;
        if old == *name {
            return Ok(());
        }
        let name = self.free_name(name)?;
        self.names.insert_fallibly(name, index).map_err(|_| ENOMEM)?;
        self.names.remove(&old);
        let interface = self.get_mut(index)?;
        interface.name = name;
        for address in interface.addresses.iter_mut().filter(|address| address.label == old) {
            address.label = name;
        }
        self.tell_link(index);
        Ok(())
    }

    /// Changes the flags that `change` names. An interface that goes down loses its routes, and one that comes up has those of its
    /// addresses.
    pub fn set_flags(&mut self, index: u32, flags: u32, change: u32) -> Result<()> {
        let interface = self.get_mut(index)?;
        let before = interface.flags;
        interface.flags = before & !(change & CHANGEABLE) | flags & change & CHANGEABLE;
        let (is_up, changed) = (interface.is_up(), before ^ interface.flags);
        if changed & IFF_UP != 0 {
            if let Kind::Veth(end) = &interface.kind {
                end.set_up(is_up);
            }
            if is_up {
                self.add_routes_of_addresses(index)?;
            } else {
                self.has_lost = true;
                let gone = self.routes.remove_of(index);
                gone.iter().for_each(|route| self.tell_route(route, false));
            }
            let master = self.get(index)?.master;
            self.follow_ports(master)?;
        }
        if changed != 0 {
            self.tell_link(index);
        }
        Ok(())
    }

    pub fn set_carrier(&mut self, index: u32, is_on: bool) {
        if let Ok(interface) = self.get_mut(index)
            && interface.has_carrier != is_on
        {
            interface.has_carrier = is_on;
            let master = interface.master;
            self.tell_link(index);
            // A bridge is no port, so this ends there.
            let _ = self.follow_ports(master);
        }
    }

    pub fn set_mtu(&mut self, index: u32, mtu: usize) -> Result<()> {
        let interface = self.get_mut(index)?;
        let range = match interface.kind {
            // A device is told by its host.
            Kind::Device => MIN_MTU..=interface.mtu.max(1500),
            // `Stack::set_loopback_mtu` has looked at it.
            Kind::Loopback => 0..=i32::MAX as usize,
            _ => MIN_MTU..=MAX_MTU,
        };
        if !range.contains(&mtu) {
            return Err(EINVAL);
        }
        interface.mtu = mtu;
        self.tell_link(index);
        Ok(())
    }

    pub fn set_mac(&mut self, index: u32, mac: Mac) -> Result<()> {
        let interface = self.get_mut(index)?;
        if !interface.has_ethernet() || matches!(interface.kind, Kind::Device) {
            return Err(EOPNOTSUPP);
        }
        if mac[0] & 1 == 1 || mac == [0; 6] {
            return Err(EADDRNOTAVAIL);
        }
        interface.mac = mac;
        self.tell_link(index);
        Ok(())
    }

    /// True for addresses of these interfaces; those of `lo` are known elsewhere.
    pub fn is_own(&self, address: Ipv4Addr) -> bool {
        self.own.contains_key(&address)
    }

    pub fn is_broadcast(&self, address: Ipv4Addr) -> bool {
        self.broadcasts.contains_key(&address)
    }

    /// The interface with that address.
    pub fn interface_of(&self, address: Ipv4Addr) -> Option<u32> {
        self.own.get(&address).map(|own| own.interface)
    }

    /// The device's first address and the gateway of the route to everywhere by it.
    pub fn configuration(&self) -> Option<Configuration> {
        let address = self.get(DEVICE).ok()?.addresses.first()?;
        let gateway = self.routes.default_by(DEVICE).and_then(|route| route.gateway);
        Some(Configuration { address: address.local, prefix: address.prefix, gateway })
    }

    /// Gives the device, or another interface, what the host or a DHCP server says.
    pub fn configure(&mut self, index: u32, configuration: &Configuration) -> Result<()> {
        let Configuration { address, prefix, gateway } = *configuration;
        let broadcast = (prefix < 31).then(|| configuration.broadcast());
        let label = self.get(index)?.name;
        let new = Address {
            local: address,
            peer: address,
            prefix,
            scope: 0,
            broadcast,
            label,
            has_no_route: false,
            metric: 0,
        };
        match self.add_address(index, new) {
            Ok(()) | Err(EEXIST) => {}
            Err(error) => return Err(error),
        }
        let Some(gateway) = gateway else { return Ok(()) };
        match self.routes.add(routes::Route::by_gateway(index, gateway)) {
            Ok(()) | Err(EEXIST) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
