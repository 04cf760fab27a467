// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The internet layer's way out: routes, IPv4 and Ethernet headers, checksums and their offload, the queue to the
//! device, loopback; and the pool of packet buffers.

use crate::counters::Counters;
use crate::families::{is_group, is_v6};
use crate::hash::Keyed;
use crate::local_addresses::LocalAddresses;
use crate::multicast::Groups;
use crate::neighbour::{Neighbours, Resolution};
use crate::wire::{self, Arp, Ethernet, Ipv4, Mac, Sum};
use abi::{Result, errno::*};
#[cfg(any(feature = "link", feature = "interfaces", feature = "ipv6"))]
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_netdev::{
    BUFFER_SIZE, Buffer, Checksum, Fragment, HEADROOM, Incoming, Info, NetDevice, Outgoing, Segmentation,
};
use api_trace::{Event, Point};
use core::net::Ipv4Addr;

/// Loopback's MTU: the largest packet an IPv4 header can name (Linux says 65,536 and never uses the last byte).
pub const LOOPBACK_MTU: usize = 65_535;
const LOOPBACK: u32 = crate::multicast::LOOPBACK as u32;
const DEVICE: u32 = crate::multicast::ETHERNET as u32;
/// Default time to live (Linux: ip_default_ttl).
pub const TTL: u8 = 64;
/// Packets that wait for room in the device; what comes then is dropped, as a full qdisc does.
const MAX_QUEUED: usize = 1024;
/// Packets on their way through loopback.
const MAX_LOOPBACK_PACKETS: usize = 4096;
/// Free buffers kept; more are given back to the heap.
const MAX_POOLED: usize = 512;
/// Packets queued before the doorbell rings without being asked to.
const BURST: usize = 32;

/// The address of a network device and the way out of its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Configuration {
    pub address: Ipv4Addr,
    /// Prefix length, 0 to 32.
    pub prefix: u8,
    pub gateway: Option<Ipv4Addr>,
}

impl Configuration {
    pub fn netmask(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0))
    }

    pub fn broadcast(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.address.to_bits() | !self.netmask().to_bits())
    }

    fn is_local_net(&self, address: Ipv4Addr) -> bool {
        (address.to_bits() ^ self.address.to_bits()) & self.netmask().to_bits() == 0
    }
}

/// The loopback interface: of the machine's own network it is up for ever.
#[derive(Clone, Copy, Debug)]
pub struct Loopback {
    pub is_up: bool,
    /// 127.0.0.1 is its address.
    pub has_address: bool,
    /// Whoever administers the network may change it.
    pub can_change: bool,
    /// `::1` is its address.
    keeps_v6: bool,
    /// As it was set. No packet is larger than [`LOOPBACK_MTU`] all the same.
    pub mtu: u32,
}

impl Default for Loopback {
    fn default() -> Loopback {
        Loopback {
            is_up: true,
            has_address: true,
            can_change: false,
            keeps_v6: true,
            mtu: Loopback::USUAL_MTU,
        }
    }
}

impl Loopback {
    /// As a new network has it, which has no other interface (network_namespaces(7)).
    pub const ALONE: Loopback = Loopback {
        is_up: false,
        has_address: false,
        can_change: true,
        keeps_v6: true,
        mtu: Loopback::USUAL_MTU,
    };
    /// As it begins.
    pub const USUAL_MTU: u32 = LOOPBACK_MTU as u32 + 1;
    /// The smallest that it takes: what RFC 791 wants of every link. Linux takes less, and IPv4 is gone then.
    const MIN_MTU: u32 = 68;
    /// RFC 8200 5.
    const MIN_MTU6: u32 = 1280;

    /// `EINVAL` for a size that no packet of IPv4 fits. With one that is too small for IPv6 `::1` goes, which comes back when the
    /// interface goes up again with a larger one (Linux' `addrconf_notify`).
    pub fn set_mtu(&mut self, mtu: i64) -> Result<()> {
        let fits = |mtu: &u32| (Self::MIN_MTU..=i32::MAX as u32).contains(mtu);
        self.mtu = u32::try_from(mtu).ok().filter(fits).ok_or(EINVAL)?;
        self.keeps_v6 &= self.mtu >= Self::MIN_MTU6;
        Ok(())
    }

    /// `::1` is there.
    pub fn has_address6(&self) -> bool {
        self.is_up && self.keeps_v6
    }

    /// The largest packet for that destination, counted as one of IPv4, whose header is shorter.
    fn room(&self, destination: Ipv4Addr) -> usize {
        let shorter = if is_v6(destination) { 20 } else { 0 };
        LOOPBACK_MTU.min((self.mtu - shorter).max(Self::MIN_MTU) as usize)
    }

    /// It gets its address with it (Linux' `inetdev_event`).
    pub fn set_up(&mut self, is_up: bool) {
        self.keeps_v6 |= is_up && !self.is_up && self.mtu >= Self::MIN_MTU6;
        self.is_up = is_up;
        self.has_address |= is_up;
    }
}

/// How a destination is reached.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    pub source: Ipv4Addr,
    /// The destination itself, or the gateway.
    pub next_hop: Ipv4Addr,
    pub loopback: bool,
    pub mtu: usize,
    /// Index of the interface that it leaves by.
    pub interface: u32,
}

impl Route {
    /// Through loopback, whose MTU counts for packets to the destination.
    pub(crate) fn looped(lo: &Loopback, source: Ipv4Addr, destination: Ipv4Addr) -> Route {
        let mtu = lo.room(destination);
        Route { source, next_hop: destination, loopback: true, mtu, interface: LOOPBACK }
    }
}

/// A transport packet's IPv4 header.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    pub source: Ipv4Addr,
    pub destination: Ipv4Addr,
    pub protocol: u8,
    pub tos: u8,
    pub ttl: u8,
}

/// A transport packet on its way down.
pub struct Payload {
    /// Transport header and, for small packets, data.
    pub head: Buffer,
    pub fragments: Vec<Fragment>,
    /// Where the checksum belongs, from the first byte of the transport header; the field is zero. `None`: it is
    /// there already.
    pub checksum: Option<usize>,
    /// Transport header length and segment size, for the device to cut the packet up.
    pub segment: Option<(usize, usize)>,
}

#[derive(Default, Clone, Copy, Debug)]
pub struct Statistics {
    pub received_packets: u64,
    pub received_bytes: u64,
    pub sent_packets: u64,
    pub sent_bytes: u64,
    pub send_drops: u64,
    pub bad_packets: u64,
    pub looped_packets: u64,
    pub looped_bytes: u64,
}

/// The internet layer.
pub struct Ip {
    pub configuration: Option<Configuration>,
    device: Option<Arc<dyn NetDevice>>,
    pub info: Option<Info>,
    pub neighbours: Neighbours,
    queue: VecDeque<Outgoing>,
    pub loopback: VecDeque<Incoming>,
    /// Groups that sockets are in.
    pub groups: Groups,
    /// Addresses of the loopback interface beside 127.0.0.1.
    pub local: LocalAddresses,
    /// The loopback interface.
    pub lo: Loopback,
    pool: Vec<Buffer>,
    identification: u16,
    unannounced: usize,
    pub statistics: Statistics,
    pub counters: Counters,
    #[cfg(feature = "interfaces")]
    key: Keyed,
    /// Random numbers that were made.
    #[cfg(feature = "interfaces")]
    randoms: u64,
    /// IPv6 on the device; mostly nothing.
    #[cfg(feature = "ipv6")]
    pub v6: Option<Box<crate::ipv6::V6>>,
    /// What programs changed; mostly nothing.
    #[cfg(feature = "interfaces")]
    pub(crate) interfaces: Option<Box<crate::interfaces::Interfaces>>,
    /// Who sees every frame; mostly nobody.
    #[cfg(feature = "link")]
    pub(crate) watch: Option<Box<crate::link::Watch>>,
}

/// Nobody sees frames in a kernel that was built so.
#[cfg(not(feature = "link"))]
impl Ip {
    pub(crate) fn is_watched(&self) -> bool {
        false
    }

    fn show_sent(&mut self, _: &Outgoing) {}

    pub(crate) fn show_received(&mut self, _: &Incoming) {}

    pub(crate) fn show_looped(&mut self, _: &[u8], _: bool) {}

    #[cfg(feature = "interfaces")]
    pub(crate) fn show_of(&mut self, _: u32, _: &[u8], _: bool) {}
}

/// No program changes interfaces in a kernel that was built so.
#[cfg(not(feature = "interfaces"))]
impl Ip {
    fn is_own_elsewhere(&self, _: Ipv4Addr) -> bool {
        false
    }

    fn is_broadcast_elsewhere(&self, _: Ipv4Addr) -> bool {
        false
    }

    fn hand_to_interface(&mut self, _: u64, _: u32, _: Ipv4Addr, _: Outgoing) {}
}

#[cfg(feature = "interfaces")]
impl Ip {
    fn is_own_elsewhere(&self, address: Ipv4Addr) -> bool {
        self.interfaces.as_ref().is_some_and(|all| all.is_own(address))
    }

    fn is_broadcast_elsewhere(&self, address: Ipv4Addr) -> bool {
        self.interfaces.as_ref().is_some_and(|all| all.is_broadcast(address))
    }
}

impl Ip {
    /// A number that nobody outside can guess.
    #[cfg(feature = "interfaces")]
    pub(crate) fn random(&mut self) -> u64 {
        use core::hash::BuildHasher;
        self.randoms += 1;
        self.key.hash_one(self.randoms)
    }

    /// Where what is sent to 0.0.0.0 goes: to the address that the socket has, or else to the loopback interface's (Linux).
    pub fn destination(to: Ipv4Addr, own: Option<Ipv4Addr>) -> Ipv4Addr {
        if !to.is_unspecified() {
            return to;
        }
        own.filter(|own| !own.is_unspecified()).unwrap_or(Ipv4Addr::LOCALHOST)
    }

    pub fn new(key: Keyed) -> Ip {
        Ip {
            configuration: None,
            device: None,
            info: None,
            neighbours: Neighbours::new(key),
            queue: VecDeque::new(),
            loopback: VecDeque::new(),
            groups: Groups::default(),
            local: LocalAddresses::default(),
            lo: Loopback::default(),
            pool: Vec::new(),
            identification: key_bits(key),
            unannounced: 0,
            #[cfg(feature = "interfaces")]
            key,
            #[cfg(feature = "interfaces")]
            randoms: 0,
            #[cfg(feature = "ipv6")]
            v6: None,
            #[cfg(feature = "interfaces")]
            interfaces: None,
            statistics: Statistics::default(),
            counters: Counters::default(),
            #[cfg(feature = "link")]
            watch: None,
        }
    }

    pub fn attach(&mut self, device: Arc<dyn NetDevice>) {
        self.info = Some(*device.info());
        self.device = Some(device);
    }

    pub fn device(&self) -> Option<&Arc<dyn NetDevice>> {
        self.device.as_ref()
    }

    /// An empty buffer with headroom for every header.
    pub fn buffer(&mut self) -> Option<Buffer> {
        let headroom = HEADROOM.device + HEADROOM.protocols;
        match self.pool.pop() {
            Some(mut buffer) => {
                buffer.reset(headroom);
                Some(buffer)
            }
            None => Buffer::new(BUFFER_SIZE, headroom),
        }
    }

    /// Takes a buffer back.
    pub fn recycle(&mut self, buffer: Buffer) {
        let is_wanted = buffer.size() == BUFFER_SIZE && self.pool.len() < MAX_POOLED;
        if is_wanted && self.pool.reserve_fallibly(1).is_ok() {
            self.pool.push(buffer);
        }
    }

    pub fn recycle_packet(&mut self, packet: Incoming) {
        self.recycle(packet.first);
        packet.more.into_iter().for_each(|b| self.recycle(b));
    }

    /// True for addresses that are this machine's.
    pub fn is_own(&self, address: Ipv4Addr) -> bool {
        if is_v6(address) {
            return self.is_own6(address);
        }
        self.lo.is_up && (address.is_loopback() || self.local.network_of(address).is_some())
            || self.configuration.is_some_and(|c| c.address == address)
            || self.is_own_elsewhere(address)
    }

    /// True for the broadcast addresses of the device's network.
    pub fn is_broadcast(&self, address: Ipv4Addr) -> bool {
        address.is_broadcast()
            || self.local.is_broadcast(address)
            || self.configuration.is_some_and(|c| c.prefix < 31 && c.broadcast() == address)
            || self.is_broadcast_elsewhere(address)
    }

    /// The address to speak from of a socket that is bound to `address`, if there is one: those of many are only heard at.
    pub fn speaking(&self, address: Ipv4Addr) -> Option<Ipv4Addr> {
        let is_of_many = address.is_unspecified() || is_group(address) || self.is_broadcast(address);
        (!is_of_many).then_some(address)
    }

    /// The interface that something to an address of this machine came by, as far as the address says it.
    pub fn interface_with(&self, address: Ipv4Addr) -> i32 {
        #[cfg(feature = "interfaces")]
        if let Some(index) = self.interfaces.as_ref().and_then(|all| all.interface_of(address)) {
            return index as i32;
        }
        let _ = address;
        DEVICE as i32
    }

    /// `ENETUNREACH`, or what a route says that leads nowhere.
    pub fn route(&self, destination: Ipv4Addr) -> Result<Route> {
        self.route_of(Ipv4Addr::UNSPECIFIED, destination)
    }

    fn route_of(&self, source: Ipv4Addr, destination: Ipv4Addr) -> Result<Route> {
        let destination = Ip::destination(destination, None);
        if self.is_own(destination) {
            // All of 127.0.0.0/8 is this machine, and one of it speaks unless told otherwise.
            let source = match destination.is_loopback() {
                true => Ipv4Addr::LOCALHOST,
                false if is_v6(destination) => destination,
                false => self.local.network_of(destination).unwrap_or(destination),
            };
            return Ok(Route::looped(&self.lo, source, destination));
        }
        if is_v6(destination) {
            return self.route6(source, destination);
        }
        #[cfg(feature = "interfaces")]
        if let Some(interfaces) = &self.interfaces {
            return interfaces.route(source, destination, crate::interfaces::LOOPBACK, 0);
        }
        let _ = source;
        let (configuration, info) =
            (self.configuration.ok_or(ENETUNREACH)?, self.info.as_ref().ok_or(ENETUNREACH)?);
        let direct = configuration.is_local_net(destination)
            || destination.is_broadcast()
            || destination.is_multicast();
        let next_hop = if direct { destination } else { configuration.gateway.ok_or(ENETUNREACH)? };
        Ok(Route {
            source: configuration.address,
            next_hop,
            loopback: false,
            mtu: info.mtu,
            interface: DEVICE,
        })
    }

    /// The way of what has that source address, if any: multicasts and broadcasts of a loopback address stay on that
    /// interface.
    pub fn route_from(&self, source: Option<Ipv4Addr>, destination: Ipv4Addr) -> Result<Route> {
        match source {
            Some(source)
                if source.is_loopback() && (destination.is_multicast() || destination.is_broadcast()) =>
            {
                Ok(Route::looped(&self.lo, source, destination))
            }
            source => self.route_of(source.unwrap_or(Ipv4Addr::UNSPECIFIED), destination),
        }
    }

    /// The way by that interface, where it is not 0.
    pub fn route_by(&self, source: Option<Ipv4Addr>, destination: Ipv4Addr, interface: u32) -> Result<Route> {
        // What is for all on the loopback needs no route.
        if interface == LOOPBACK && (destination.is_multicast() || destination.is_broadcast()) {
            let own = || self.configuration.map_or(Ipv4Addr::UNSPECIFIED, |own| own.address);
            return Ok(Route::looped(&self.lo, source.unwrap_or_else(own), destination));
        }
        #[cfg(feature = "interfaces")]
        if let Some(interfaces) = &self.interfaces
            && interface > LOOPBACK
            && !is_v6(destination)
            && !self.is_own(destination)
        {
            let source = source.unwrap_or(Ipv4Addr::UNSPECIFIED);
            return interfaces.route(source, destination, crate::interfaces::LOOPBACK, interface);
        }
        let _ = interface;
        self.route_from(source, destination)
    }

    /// Whether TCP may hand down packets larger than the MTU, and how large with the IP header.
    pub fn segmentation(&self, route: &Route) -> usize {
        match (route.loopback, self.info) {
            (false, Some(info)) if is_v6(route.next_hop) && !info.segments_ipv6 => 0,
            (false, Some(info)) if info.transmit_checksum && self.is_device(route.interface) => {
                info.segmentation
            }
            _ => 0,
        }
    }

    /// Most references to shared memory in a packet on this route.
    pub fn fragments(&self, route: &Route) -> usize {
        if route.loopback || !self.is_device(route.interface) {
            64
        } else {
            self.info.map_or(0, |i| i.fragments)
        }
    }

    /// Whether the interface is the device, which others than the table of interfaces know.
    pub(crate) fn is_device(&self, index: u32) -> bool {
        index == DEVICE && self.info.is_some()
    }

    /// Sends a packet that fits the MTU or is to be segmented by the device.
    pub fn send(&mut self, now: u64, header: &Header, payload: Payload) {
        match self.route_from(Some(header.source), header.destination) {
            Ok(route) => self.send_by(now, &route, header, payload),
            Err(_) => {
                self.counters.ip.out_requests += 1;
                self.counters.ip.out_no_routes += 1;
                self.recycle(payload.head);
            }
        }
    }

    /// The same by a way that was chosen.
    fn send_by(&mut self, now: u64, route: &Route, header: &Header, mut payload: Payload) {
        if is_v6(header.destination) && !route.loopback {
            return self.send6(now, route, header, payload);
        }
        self.counters.ip.out_requests += 1;
        let length = payload.head.len() + payload.fragments.iter().map(|f| f.bytes().len()).sum::<usize>();
        let has_offload = self.info.is_some_and(|i| i.transmit_checksum);
        let offload = !route.loopback && has_offload && self.is_device(route.interface);
        if let Some(at) = payload.checksum
            && !route.loopback
        {
            let mut sum = Sum::pseudo(header.source, header.destination, header.protocol, length);
            let value = if offload {
                sum.partial()
            } else {
                sum.add(payload.head.bytes());
                payload.fragments.iter().for_each(|f| {
                    sum.add(f.bytes());
                });
                // UDP: 0 means "none", so 0 is sent as its ones' complement twin.
                if sum.finish() == 0 { 0xffff } else { sum.finish() }
            };
            payload.head.bytes_mut()[at..at + 2].copy_from_slice(&value.to_be_bytes());
        }
        self.identification = self.identification.wrapping_add(1);
        let ip = Ipv4 {
            source: header.source,
            destination: header.destination,
            protocol: header.protocol,
            ttl: header.ttl,
            tos: header.tos,
            id: self.identification,
            dont_fragment: header.protocol == wire::PROTOCOL_TCP,
            more_fragments: false,
            fragment_offset: 0,
            header: wire::IPV4,
            total: wire::IPV4 + length,
        };
        let Some(to) = payload.head.prepend(wire::IPV4) else { return };
        ip.put(to);
        if route.loopback {
            return self.loop_back(payload);
        }
        let offset = wire::ETHERNET + wire::IPV4;
        let checksum = payload
            .checksum
            .filter(|_| offload)
            .map(|at| Checksum { start: offset as u16, offset: at as u16 });
        let segmentation = payload.segment.map(|(header_length, segment_size)| Segmentation {
            header_length: (offset + header_length) as u16,
            segment_size: segment_size as u16,
        });
        let packet = Outgoing { head: payload.head, fragments: payload.fragments, checksum, segmentation };
        self.hand_to_route(now, route, packet);
    }

    /// Sends a datagram of any size, in fragments where the MTU asks for it (UDP and ICMP; `head` holds it all).
    pub fn send_datagram(&mut self, now: u64, header: &Header, head: Buffer, checksum: Option<usize>) {
        match self.route_from(Some(header.source), header.destination) {
            Ok(route) => self.send_datagram_by(now, &route, header, head, checksum),
            Err(_) => {
                self.counters.ip.out_requests += 1;
                self.counters.ip.out_no_routes += 1;
            }
        }
    }

    /// The same by a way that was chosen, wherever the header says it goes.
    pub fn send_datagram_by(
        &mut self,
        now: u64,
        route: &Route,
        header: &Header,
        head: Buffer,
        checksum: Option<usize>,
    ) {
        if is_v6(header.destination) && !route.loopback {
            return self.send_datagram6(now, route, header, head, checksum);
        }
        if head.len() + wire::IPV4 <= route.mtu {
            let payload = Payload { head, fragments: Vec::new(), checksum, segment: None };
            return self.send_by(now, route, header, payload);
        }
        let mut head = head;
        if let Some(at) = checksum {
            let mut sum = Sum::pseudo(header.source, header.destination, header.protocol, head.len());
            let value = sum.add(head.bytes()).finish();
            let value = if value == 0 { 0xffff } else { value };
            head.bytes_mut()[at..at + 2].copy_from_slice(&value.to_be_bytes());
        }
        self.identification = self.identification.wrapping_add(1);
        let id = self.identification;
        // On a link of large packets a fragment still has to fit a buffer.
        let room = BUFFER_SIZE - HEADROOM.device - HEADROOM.protocols;
        let most = (route.mtu - wire::IPV4).min(room) & !7;
        let total = head.len();
        self.counters.ip.out_requests += 1;
        self.counters.ip.fragmented += 1;
        for (index, piece) in head.bytes().chunks(most).enumerate() {
            let Some(mut buffer) = self.buffer() else { return };
            if !buffer.append(piece) {
                return;
            }
            let ip = Ipv4 {
                source: header.source,
                destination: header.destination,
                protocol: header.protocol,
                ttl: header.ttl,
                tos: header.tos,
                id,
                dont_fragment: false,
                more_fragments: (index + 1) * most < total,
                fragment_offset: index * most,
                header: wire::IPV4,
                total: wire::IPV4 + piece.len(),
            };
            let Some(to) = buffer.prepend(wire::IPV4) else { return };
            ip.put(to);
            self.counters.ip.fragments_created += 1;
            if route.loopback {
                self.loop_back(Payload {
                    head: buffer,
                    fragments: Vec::new(),
                    checksum: None,
                    segment: None,
                });
            } else {
                self.hand_to_route(now, route, Outgoing::plain(buffer));
            }
        }
        self.recycle(head);
    }

    /// Sends a UDP datagram with its header to all hosts, from nobody: there is no address yet.
    #[cfg(feature = "dhcp")]
    pub fn send_from_nobody(&mut self, now: u64, mut head: Buffer) {
        let (source, destination) = (Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST);
        self.identification = self.identification.wrapping_add(1);
        let ip = Ipv4 {
            source,
            destination,
            protocol: wire::PROTOCOL_UDP,
            ttl: TTL,
            tos: 0,
            id: self.identification,
            dont_fragment: false,
            more_fragments: false,
            fragment_offset: 0,
            header: wire::IPV4,
            total: wire::IPV4 + head.len(),
        };
        let Some(to) = head.prepend(wire::IPV4) else { return };
        ip.put(to);
        self.hand_to_link(now, destination, Outgoing::plain(head));
    }

    /// This machine hears a copy of a multicast that leaves by the device, unless its sender does not want that (`loops`) or no socket is
    /// in the group.
    pub fn hear_too(&mut self, loops: bool, route: &Route, header: &Header, message: &Buffer) {
        let leaves = is_group(route.next_hop) && !route.loopback;
        if !loops || !leaves || !self.hears(header.source, route.next_hop) {
            return;
        }
        let Some(mut head) = Buffer::new(wire::IPV4 + message.len(), wire::IPV4) else { return };
        head.append(message.bytes());
        let route = Route::looped(&self.lo, header.source, header.destination);
        // The checksum is made for the wire alone.
        let payload = Payload { head, fragments: Vec::new(), checksum: Some(0), segment: None };
        self.send_by(0, &route, header, payload);
    }

    /// The packet comes back in as one piece. A checksum that was left to the device needs no proof, and is not there.
    fn loop_back(&mut self, payload: Payload) {
        if self.loopback.len() >= MAX_LOOPBACK_PACKETS {
            self.statistics.send_drops += 1;
            return;
        }
        let is_trusted = payload.checksum.is_some();
        let mut first = payload.head;
        if !payload.fragments.is_empty() {
            let more: usize = payload.fragments.iter().map(|f| f.bytes().len()).sum();
            if more > first.tailroom() {
                let Some(mut larger) = Buffer::new(first.len() + more, 0) else { return };
                larger.append(first.bytes());
                self.recycle(core::mem::replace(&mut first, larger));
            }
            payload.fragments.iter().for_each(|f| {
                first.append(f.bytes());
            });
        }
        if self.loopback.reserve_fallibly(1).is_err() {
            return self.recycle(first);
        }
        if self.is_watched() {
            self.show_looped(first.bytes(), true);
        }
        self.statistics.looped_packets += 1;
        self.statistics.looped_bytes += first.len() as u64;
        self.loopback.push_back(Incoming { first, more: Vec::new(), checksum_valid: is_trusted });
    }

    /// A packet leaves by the interface of its route.
    pub(crate) fn hand_to_route(&mut self, now: u64, route: &Route, packet: Outgoing) {
        if self.is_device(route.interface) {
            self.hand_to_link(now, route.next_hop, packet);
        } else {
            self.hand_to_interface(now, route.interface, route.next_hop, packet);
        }
    }

    pub(crate) fn hand_to_link(&mut self, now: u64, next_hop: Ipv4Addr, packet: Outgoing) {
        if self.is_broadcast(next_hop) {
            return self.hand_to_device(wire::BROADCAST, packet);
        }
        if is_v6(next_hop) && is_group(next_hop) {
            return self.hand_to_group6(next_hop, packet);
        }
        if next_hop.is_multicast() {
            // RFC 1112 6.4: the low 23 bits of the group.
            let [_, b, c, d] = next_hop.octets();
            return self.hand_to_device([1, 0, 0x5e, b & 0x7f, c, d], packet);
        }
        match self.neighbours.resolve(now, (DEVICE, next_hop), packet) {
            Resolution::Send(mac, packet) => self.hand_to_device(mac, packet),
            Resolution::SendAndAsk(mac, packet) => {
                self.hand_to_device(mac, packet);
                self.ask_for(now, next_hop);
            }
            Resolution::Wait(true) => self.ask_for(now, next_hop),
            Resolution::Wait(false) => {}
        }
    }

    pub(crate) fn hand_to_device(&mut self, destination: Mac, mut packet: Outgoing) {
        let Some(info) = &self.info else { return };
        let header = Ip::link_header(destination, info.mac, packet.head.bytes());
        let Some(to) = packet.head.prepend(wire::ETHERNET) else { return };
        header.put(to);
        self.enqueue(packet);
    }

    /// Whether there was room for the frame.
    pub(crate) fn enqueue(&mut self, packet: Outgoing) -> bool {
        if self.queue.len() >= MAX_QUEUED || self.queue.reserve_fallibly(1).is_err() {
            self.statistics.send_drops += 1;
            self.recycle(packet.head);
            return false;
        }
        self.statistics.sent_packets += 1;
        self.statistics.sent_bytes += packet.length() as u64;
        if self.is_watched() {
            self.show_sent(&packet);
        }
        if api_trace::is_on(Point::Send) {
            api_trace::hit(Event::Send { frame: packet.head.bytes(), length: packet.length() });
        }
        self.queue.push_back(packet);
        true
    }

    fn arp(&mut self, destination: Mac, arp: &Arp) {
        let Some(mac) = self.info.map(|i| i.mac) else { return };
        let Some(mut buffer) = self.buffer() else { return };
        let header = Ethernet { destination, source: mac, ethertype: wire::ETHERTYPE_ARP };
        if let Some(to) = buffer.extend(wire::ETHERNET + Arp::LENGTH) {
            header.put(to);
            arp.put(&mut to[wire::ETHERNET..]);
            self.enqueue(Outgoing::plain(buffer));
        }
    }

    /// Asks for a neighbour of either family.
    pub(crate) fn ask_for(&mut self, now: u64, target: Ipv4Addr) {
        if is_v6(target) { self.solicit(now, target) } else { self.ask(target) }
    }

    /// Whether what comes from there to the group is for somebody here: a socket is in it, or the device of its own.
    pub fn hears(&self, from: Ipv4Addr, group: Ipv4Addr) -> bool {
        self.groups.hears(from, group) || self.hears6(group)
    }

    /// A socket goes, which was in these groups.
    pub(crate) fn leave_groups(&mut self, socket: &crate::multicast::Choices) {
        self.groups.leave_all(socket);
        #[cfg(feature = "ipv6")]
        for group in socket.groups() {
            if let Some(of) = self.address_of(group).filter(|_| is_v6(group)) {
                self.leave6(0, &of.address);
            }
        }
    }

    /// Broadcasts a request for an address; for our own it is the announcement of RFC 5227 2.3.
    pub fn ask(&mut self, target: Ipv4Addr) {
        if let (Some(c), Some(info)) = (self.configuration, self.info) {
            let arp =
                Arp { operation: 1, sender_mac: info.mac, sender: c.address, target_mac: [0; 6], target };
            self.arp(wire::BROADCAST, &arp);
        }
    }

    /// An ARP packet came in.
    pub fn arp_input(&mut self, now: u64, bytes: &[u8]) {
        let (Some(arp), Some(c), Some(info)) = (Arp::parse(bytes), self.configuration, self.info) else {
            return;
        };
        let sound = !arp.sender.is_unspecified() && arp.sender_mac[0] & 1 == 0 && arp.sender != c.address;
        let for_us = arp.target == c.address || self.is_own_elsewhere(arp.target);
        if sound {
            // RFC 826: update what is known; learn only from packets meant for us.
            let waiting = self.neighbours.confirm(now, (DEVICE, arp.sender), arp.sender_mac, for_us);
            for packet in waiting {
                self.hand_to_device(arp.sender_mac, packet);
            }
        }
        if for_us && arp.operation == 1 && arp.sender != c.address {
            let reply = Arp {
                operation: 2,
                sender_mac: info.mac,
                sender: arp.target,
                target_mac: arp.sender_mac,
                target: arp.sender,
            };
            self.arp(arp.sender_mac, &reply);
        }
    }

    /// Hands queued packets to the device, and takes finished buffers back. With `now` the doorbell rings; without
    /// it rings after a burst. True when something waits for the doorbell.
    pub fn pump(&mut self, announce: bool) -> bool {
        let Some(device) = &self.device else { return false };
        if !self.queue.is_empty() {
            let taken = device.transmit(0, &mut self.queue);
            self.unannounced += taken;
            device.reclaim(0, &mut self.pool);
            if self.pool.len() > MAX_POOLED {
                self.pool.truncate(MAX_POOLED);
            }
        }
        if self.unannounced > 0 && (announce || self.unannounced >= BURST || !self.queue.is_empty()) {
            device.flush(0);
            self.unannounced = 0;
        }
        self.unannounced > 0 || !self.queue.is_empty()
    }

    /// True when packets interrupt a program that computes.
    pub fn has_interrupts(&self) -> bool {
        self.device.as_ref().is_some_and(|device| device.info().interrupts)
    }

    /// Takes packets from the device and gives it fresh buffers.
    pub fn receive(&mut self, to: &mut VecDeque<Incoming>, most: usize) -> usize {
        let Some(device) = self.device.clone() else { return 0 };
        let count = device.receive(0, to, most);
        self.statistics.received_packets += count as u64;
        if api_trace::is_on(Point::Receive) {
            for packet in to.iter().skip(to.len() - count) {
                let length = packet.first.len() + packet.more.iter().map(Buffer::len).sum::<usize>();
                api_trace::hit(Event::Receive { frame: packet.first.bytes(), length });
            }
        }
        let wanted = device.wanted(0);
        // In batches, for refilling may ring a doorbell.
        if wanted >= BURST || count == 0 && wanted > 0 {
            while self.pool.len() < wanted {
                match Buffer::new(BUFFER_SIZE, 0) {
                    Some(buffer) => self.pool.push(buffer),
                    None => break,
                }
            }
            device.refill(0, &mut self.pool);
        }
        count
    }
}

fn key_bits(key: Keyed) -> u16 {
    use core::hash::BuildHasher;
    key.hash_one(0u8) as u16
}
