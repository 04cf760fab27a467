// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The stack as one object: packets in, packets out, time, and whom to wake.

use crate::families::{is_group, is_v6};
use crate::hash::{Keyed, Secrets, Tuple};
use crate::icmp::Icmp;
use crate::ip::{Configuration, Ip};
use crate::raw::Raw;
use crate::reassembly::Reassembly;
use crate::sockets::fast_open::Keys;
use crate::tcp::Tcp;
use crate::udp::Udp;
use crate::wire::{self, Ethernet, Ipv4};
use abi::{Events, Result, errno::EHOSTUNREACH};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::library::{self, Library};
use api_lock::SpinLock;
use api_netdev::{Buffer, Incoming, NetDevice};
use api_sched::{TimerId, WaitQueue, Waiter};
use core::net::{Ipv4Addr, SocketAddrV4};
use core::sync::atomic::{AtomicU64, Ordering};

/// Packets taken from the device at once.
const BURST: usize = 64;
const LOOPBACK: u32 = crate::multicast::LOOPBACK as u32;
const DEVICE: u32 = crate::multicast::ETHERNET as u32;
/// ARP entries that wait are looked at this often.
const ARP_NS: u64 = 1_000_000_000;

/// What a socket object and the stack share.
pub struct Shared {
    pub queue: WaitQueue,
}

impl Shared {
    /// Kept apart by its name, by which `tests/refusals.rs` knows the one place that is not told of a lack of memory.
    #[inline(never)]
    pub fn new() -> Arc<Shared> {
        Arc::new(Shared { queue: WaitQueue::new() })
    }
}

/// Whom to wake when the stack is not locked any more.
pub type Wakes = Vec<(Arc<Shared>, Events)>;

/// All state of the network, without a lock and without a clock.
pub struct Stack {
    pub ip: Ip,
    pub tcp: Tcp,
    pub udp: Udp,
    pub icmp: Icmp,
    pub raw: Raw,
    pub reassembly: Reassembly,
    /// Of sockets that have none of their own; there is none before one is needed.
    pub(crate) fast_open: Option<Keys>,
    /// The numbers of net.ipv4.conf's `tag`, which are the programs' own, by [`Stack::TAGS`].
    pub(crate) tags: [i32; Stack::TAGS.len()],
    wakes: Wakes,
    incoming: VecDeque<Incoming>,
    arp_at: Option<u64>,
    #[cfg(feature = "dhcp")]
    dhcp: Option<crate::dhcp::Client>,
}

impl Stack {
    /// The directories of net.ipv4.conf that there are in each network.
    const TAGS: [&str; 3] = ["all_tag", "default_tag", "lo_tag"];

    /// The place of a tag that is set and shown by this name.
    pub(crate) fn tag(name: &str) -> Option<usize> {
        Stack::TAGS.iter().position(|tag| *tag == name)
    }

    /// `seed` is random.
    pub fn new(seed: [u8; 24], now: u64) -> Stack {
        let secrets = Secrets::from_bytes(seed);
        Stack {
            ip: Ip::new(Keyed::new(secrets.table)),
            tcp: Tcp::new(secrets, now),
            udp: Udp::new(secrets),
            icmp: Icmp::default(),
            raw: Raw::default(),
            reassembly: Reassembly::default(),
            fast_open: None,
            tags: [0; Stack::TAGS.len()],
            wakes: Vec::new(),
            incoming: VecDeque::new(),
            arp_at: None,
            #[cfg(feature = "dhcp")]
            dhcp: None,
        }
    }

    /// Gives the device its address and tells the network of it (RFC 5227 2.3).
    pub fn configure(&mut self, configuration: Configuration) {
        self.ip.configuration = Some(configuration);
        #[cfg(feature = "interfaces")]
        if let Some(all) = &mut self.ip.interfaces
            && all.configure(crate::interfaces::DEVICE, &configuration).is_err()
        {
            self.ip.follow_interfaces();
        }
        self.ip.ask(configuration.address);
    }

    pub fn attach(&mut self, device: Arc<dyn NetDevice>) {
        self.ip.attach(device);
        let mut none = VecDeque::new();
        self.ip.receive(&mut none, 0);
    }

    /// Takes a burst from the device and works on it; how many packets it was.
    pub fn receive(&mut self, now: u64) -> usize {
        #[cfg(feature = "ipv6")]
        if self.ip.v6.as_ref().is_some_and(|v6| v6.numbers.is_due()) {
            self.sweep_numbers();
        }
        let mut incoming = core::mem::take(&mut self.incoming);
        let count = self.ip.receive(&mut incoming, BURST);
        for packet in incoming.drain(..) {
            self.ethernet(now, packet);
        }
        self.incoming = incoming;
        count + self.receive_backlog(now)
    }

    /// Lets everything that was touched send, lets loopback deliver, and does what is due.
    pub fn settle(&mut self, now: u64) {
        if self.next_deadline().is_some_and(|at| at <= now) {
            #[cfg(feature = "dhcp")]
            self.poll_dhcp(now);
            self.tcp.timers(&mut self.ip, now);
            self.ip.settle6(now);
            if self.arp_at.is_some_and(|at| at <= now) {
                self.arp(now);
            }
        }
        #[cfg(feature = "interfaces")]
        if let Some(all) = &mut self.ip.interfaces {
            all.settle_pairs();
            self.ip.forget_neighbours();
        }
        self.tcp.settle(&mut self.ip, now, &mut self.wakes);
        // A dialogue over loopback that never ends (two sockets of one program cannot have one without the program).
        while let Some(packet) = self.ip.loopback.pop_front() {
            if self.ip.is_watched() {
                self.ip.show_looped(packet.first.bytes(), false);
            }
            self.ipv4_from(now, packet, LOOPBACK);
            if self.ip.loopback.is_empty() {
                self.tcp.settle(&mut self.ip, now, &mut self.wakes);
            }
        }
        if self.arp_at.is_none() && self.ip.neighbours.is_waiting() {
            self.arp_at = Some(now + ARP_NS);
        }
    }

    fn arp(&mut self, now: u64) {
        self.arp_at = None;
        let (ask, lost) = self.ip.neighbours.expire(now);
        ask.into_iter().for_each(|(index, address)| self.ip.ask_neighbour(now, index, address));
        if lost.is_empty() {
            return;
        }
        // Opening connections fail at once (Linux: EHOSTUNREACH); the others' timers decide.
        let gone = |remote: &SocketAddrV4| {
            lost.iter().any(|(_, l)| match is_v6(*l) {
                true => self.ip.route(*remote.ip()).is_ok_and(|route| route.next_hop == *l),
                false => remote.ip() == l || self.ip.configuration.and_then(|c| c.gateway) == Some(*l),
            })
        };
        let tuples: Vec<(Tuple, u32)> = self
            .tcp
            .sockets
            .iter()
            .filter_map(|(_, entry)| entry.connection())
            .filter(|c| c.state == crate::tcp::connection::State::SynSent && gone(&c.tuple.remote))
            .map(|c| (c.tuple, c.una))
            .collect();
        for (tuple, seq) in tuples {
            self.tcp.icmp_error(now, &tuple, seq, crate::icmp::Error::Unreachable(EHOSTUNREACH));
        }
    }

    /// When [`Stack::settle`] is to be called at the latest.
    pub fn next_deadline(&self) -> Option<u64> {
        #[cfg(feature = "dhcp")]
        let dhcp = self.dhcp.as_ref().map(|client| client.next_deadline());
        #[cfg(not(feature = "dhcp"))]
        let dhcp = None;
        [self.tcp.next_deadline(), self.arp_at, dhcp, self.ip.deadline6()].into_iter().flatten().min()
    }

    /// Those to wake, once the lock is released.
    pub fn take_wakes(&mut self) -> Wakes {
        core::mem::take(&mut self.wakes)
    }

    pub fn has_wakes(&self) -> bool {
        !self.wakes.is_empty()
    }

    fn ethernet(&mut self, now: u64, mut packet: Incoming) {
        if self.ip.is_watched() {
            self.ip.show_received(&packet);
        }
        let Some(header) = Ethernet::parse(packet.first.bytes()) else {
            return self.ip.recycle_packet(packet);
        };
        #[cfg(feature = "interfaces")]
        {
            if self.ip.is_device_down() {
                return self.ip.recycle_packet(packet);
            }
            if let Some(bridge) = self.ip.master_of_device() {
                let frame = flat(&packet);
                self.ip.recycle_packet(packet);
                if let Some(frame) = frame {
                    self.receive_by_bridge(now, bridge, DEVICE, frame);
                }
                return;
            }
        }
        packet.first.trim_front(wire::ETHERNET);
        let for_us =
            header.destination[0] & 1 == 1 || self.ip.info.is_some_and(|info| info.mac == header.destination);
        match header.ethertype {
            wire::ETHERTYPE_IPV4 if for_us && is_martian(packet.first.bytes()) => {
                self.ip.counters.ip.in_receives += 1;
                self.ip.counters.ip.in_address_errors += 1;
                self.ip.statistics.bad_packets += 1;
                self.ip.recycle_packet(packet);
            }
            wire::ETHERTYPE_IPV4 if for_us => self.ipv4_from(now, packet, DEVICE),
            wire::ETHERTYPE_ARP if for_us => {
                self.ip.arp_input(now, packet.first.bytes());
                self.ip.recycle_packet(packet);
            }
            #[cfg(feature = "ipv6")]
            crate::ipv6::wire::ETHERTYPE_IPV6 if for_us => self.ipv6_from(now, packet),
            _ => self.ip.recycle_packet(packet),
        }
    }

    /// Makes keys of TCP Fast Open where there are none.
    pub(crate) fn need_fast_open_keys(&mut self) {
        if self.fast_open.is_none() {
            let words = [0, 1].map(|number| self.tcp.secret(number).to_ne_bytes());
            self.fast_open = Keys::from_bytes(words.as_flattened()).ok();
        }
    }

    /// Gives the loopback interface another MTU. Connections through it make no larger segments from then on.
    pub(crate) fn set_loopback_mtu(&mut self, mtu: i64) -> Result<()> {
        self.ip.lo.set_mtu(mtu)?;
        #[cfg(feature = "interfaces")]
        if let Some(interfaces) = &mut self.ip.interfaces {
            interfaces.set_mtu(crate::interfaces::LOOPBACK, mtu as usize)?;
        }
        let ip = &self.ip;
        self.tcp
            .narrow(|destination| ip.route(destination).ok().filter(|route| route.loopback).map(|r| r.mtu));
        Ok(())
    }

    /// A packet came in by an interface; by loopback, this machine sent it to itself, wherever its header says it goes.
    pub(crate) fn ipv4_from(&mut self, now: u64, mut packet: Incoming, interface: u32) {
        let is_looped = interface == LOOPBACK;
        self.ip.counters.ip.in_receives += 1;
        let there = packet.first.len() + packet.more.iter().map(|b| b.len()).sum::<usize>();
        let header = match Ipv4::parse(packet.first.bytes()) {
            Some(header) if header.total <= there => header,
            _ => {
                self.ip.counters.ip.in_header_errors += 1;
                self.ip.statistics.bad_packets += 1;
                return self.ip.recycle_packet(packet);
            }
        };
        self.ip.statistics.received_bytes += header.total as u64;
        let wanted = is_looped
            || self.ip.is_own(header.destination)
            || self.is_offered(&header)
            || self.ip.is_broadcast(header.destination)
            || is_group(header.destination);
        if !wanted && !self.ip.forwards() {
            self.ip.counters.ip.in_address_errors += 1;
            return self.ip.recycle_packet(packet);
        }
        cut(&mut packet, header.total);
        if !wanted {
            return self.forward(now, &header, packet, interface);
        }
        if header.more_fragments || header.fragment_offset > 0 {
            self.ip.counters.ip.reassembly_requests += 1;
            let whole = flat(&packet)
                .and_then(|all| self.reassembly.add(now, &header, &all.bytes()[header.header..]));
            self.ip.recycle_packet(packet);
            if let Some(first) = whole {
                self.ip.counters.ip.reassembled += 1;
                let packet = Incoming { first, more: Vec::new(), checksum_valid: false };
                self.transport(now, &header, packet, false);
            }
            return;
        }
        packet.first.trim_front(header.header);
        self.transport(now, &header, packet, true);
    }

    /// `is_whole`: its header lies before the packet still, for errors to quote.
    pub(crate) fn transport(&mut self, now: u64, header: &Ipv4, packet: Incoming, is_whole: bool) {
        let is_trusted = packet.checksum_valid;
        let taken = !self.raw.is_empty()
            && flat(&packet).is_some_and(|all| {
                self.raw.input(&self.ip, header, all.bytes(), is_trusted, &mut self.wakes)
            });
        self.ip.counters.ip.in_delivers += 1;
        match header.protocol {
            wire::PROTOCOL_TCP => {
                if self.ip.is_own(header.destination) {
                    self.tcp.input(&mut self.ip, now, header, packet);
                } else {
                    self.ip.recycle_packet(packet);
                }
            }
            #[cfg(feature = "dhcp")]
            wire::PROTOCOL_UDP if !is_v6(header.destination) && self.is_for_dhcp(&packet) => {
                self.dhcp_input(now, header, packet)
            }
            wire::PROTOCOL_UDP => {
                if let Err(packet) = self.udp.input(&mut self.ip, header, packet, &mut self.wakes) {
                    self.refuse(now, header, packet, is_whole.then_some(wire::UDP), 3);
                }
            }
            wire::PROTOCOL_ICMPV6 if is_v6(header.destination) => self.icmp6_input(now, header, packet),
            wire::PROTOCOL_ICMP => {
                let error =
                    flat(&packet).and_then(|all| self.icmp.input(&mut self.ip, now, header, all.bytes()));
                self.ip.recycle_packet(packet);
                if let Some(quoted) = error {
                    self.icmp_error(now, &quoted.told_as(header.destination));
                }
            }
            _ => {
                if !taken {
                    self.ip.counters.ip.in_delivers -= 1;
                    self.ip.counters.ip.in_unknown_protocols += 1;
                }
                self.refuse(now, header, packet, (is_whole && !taken).then_some(0), 2);
            }
        }
    }

    /// Nobody takes the packet: an error of this code is sent back if so many bytes of the transport's header, and IP's, can be put
    /// in front of it again.
    fn refuse(&mut self, now: u64, header: &Ipv4, mut packet: Incoming, front: Option<usize>, code: u8) {
        let is_whole = front.is_some_and(|front| packet.first.prepend(header.header + front).is_some());
        if is_whole && packet.first.bytes().first().is_some_and(|first| first >> 4 == 6) {
            self.unreachable6(now, code, packet.first.bytes());
        } else if is_whole && (!is_v6(header.destination) || self.ip.is_own(header.source)) {
            self.icmp.unreachable(&mut self.ip, now, header, code, packet.first.bytes());
        }
        self.ip.recycle_packet(packet);
    }

    pub(crate) fn icmp_error(&mut self, now: u64, quoted: &crate::icmp::Quoted) {
        self.raw.icmp_error(quoted, &mut self.wakes);
        match quoted.protocol {
            wire::PROTOCOL_UDP => self.udp.icmp_error(quoted, &mut self.wakes),
            wire::PROTOCOL_TCP => {
                let t = &quoted.transport;
                let tuple = Tuple {
                    local: SocketAddrV4::new(quoted.source, u16::from_be_bytes([t[0], t[1]])),
                    remote: SocketAddrV4::new(quoted.destination, u16::from_be_bytes([t[2], t[3]])),
                };
                let seq = u32::from_be_bytes([t[4], t[5], t[6], t[7]]);
                self.tcp.icmp_error(now, &tuple, seq, quoted.error);
            }
            _ => {}
        }
    }
}

/// How the address of the device comes from a server of the network.
#[cfg(feature = "dhcp")]
impl Stack {
    /// Has the client look for an address.
    pub fn start_dhcp(&mut self, client: crate::dhcp::Client) {
        self.dhcp = Some(client);
    }

    /// The address the device has from a server, if it has one.
    pub fn lease(&self) -> Option<crate::dhcp::Lease> {
        self.dhcp.as_ref().and_then(|client| client.lease().copied())
    }

    /// Servers may send to an address before it is ours.
    fn is_offered(&self, header: &Ipv4) -> bool {
        self.dhcp.is_some() && self.ip.configuration.is_none() && header.protocol == wire::PROTOCOL_UDP
    }

    fn is_for_dhcp(&self, packet: &Incoming) -> bool {
        let port = crate::dhcp::CLIENT_PORT;
        let is_its = |udp: wire::Udp| udp.destination == port && udp.source == crate::dhcp::SERVER_PORT;
        self.dhcp.is_some() && wire::Udp::parse(packet.first.bytes()).is_some_and(is_its)
    }

    fn dhcp_input(&mut self, now: u64, header: &Ipv4, mut packet: Incoming) {
        let sound = crate::udp::unwrap(header, &mut packet).is_some();
        let whole = if sound { flat(&packet) } else { None };
        self.ip.recycle_packet(packet);
        let (Some(client), Some(message)) = (&mut self.dhcp, whole) else {
            self.ip.statistics.bad_packets += 1;
            return;
        };
        if let Some(change) = client.input(now, message.bytes()) {
            self.change_address(change);
        }
    }

    fn poll_dhcp(&mut self, now: u64) {
        let Some(client) = &mut self.dhcp else { return };
        let (message, change) = client.poll(now);
        if let Some(message) = message {
            self.send_dhcp(now, &message);
        }
        if let Some(change) = change {
            self.change_address(change);
        }
    }

    fn send_dhcp(&mut self, now: u64, message: &crate::dhcp::Message) {
        // Without memory the next try sends it.
        let Some(mut head) = self.ip.buffer() else { return };
        let length = wire::UDP + message.bytes().len();
        let udp = wire::Udp {
            source: crate::dhcp::CLIENT_PORT,
            destination: crate::dhcp::SERVER_PORT,
            length,
            checksum: 0,
        };
        let mut bytes = [0; wire::UDP];
        udp.put(&mut bytes);
        if !head.append(&bytes) || !head.append(message.bytes()) {
            return self.ip.recycle(head);
        }
        match self.ip.configuration {
            Some(ours) => {
                let header = crate::ip::Header {
                    source: ours.address,
                    destination: message.to.unwrap_or(Ipv4Addr::BROADCAST),
                    protocol: wire::PROTOCOL_UDP,
                    tos: 0,
                    ttl: crate::ip::TTL,
                };
                self.ip.send_datagram(now, &header, head, Some(UDP_CHECKSUM));
            }
            None => self.ip.send_from_nobody(now, head),
        }
    }

    fn change_address(&mut self, change: crate::dhcp::Change) {
        match change {
            crate::dhcp::Change::Bound(lease) if self.ip.configuration == Some(lease.configuration) => {}
            crate::dhcp::Change::Bound(lease) => self.configure(lease.configuration),
            crate::dhcp::Change::Lost => {
                #[cfg(feature = "interfaces")]
                self.ip.lose_configuration();
                self.ip.configuration = None;
            }
        }
    }
}

/// No program changes interfaces in a kernel that was built so.
#[cfg(not(feature = "interfaces"))]
impl Stack {
    fn receive_backlog(&mut self, _: u64) -> usize {
        0
    }

    fn forward(&mut self, _: u64, _: &Ipv4, packet: Incoming, _: u32) {
        self.ip.recycle_packet(packet);
    }
}

#[cfg(not(feature = "interfaces"))]
impl crate::ip::Ip {
    pub(crate) fn forwards(&self) -> bool {
        false
    }

    pub(crate) fn forwarded(&self) -> u64 {
        0
    }

    fn ask_neighbour(&mut self, now: u64, _: u32, address: Ipv4Addr) {
        self.ask_for(now, address);
    }
}

/// Where the checksum is in a UDP header.
#[cfg(feature = "dhcp")]
const UDP_CHECKSUM: usize = 6;

#[cfg(not(feature = "dhcp"))]
impl Stack {
    fn is_offered(&self, _: &Ipv4) -> bool {
        false
    }
}

/// Addresses of loopback and of "this network" have no business on a wire (RFC 1122 3.2.1.3).
pub(crate) fn is_martian(packet: &[u8]) -> bool {
    let inside = |address: Ipv4Addr| address.is_loopback() || is_v6(address);
    Ipv4::parse(packet).is_some_and(|header| inside(header.source) || inside(header.destination))
}

/// Shortens a packet to `length` bytes: frames are padded to 60 bytes.
pub fn cut(packet: &mut Incoming, length: usize) {
    let mut left = length.saturating_sub(packet.first.len());
    packet.first.truncate(length);
    for buffer in &mut packet.more {
        let n = buffer.len().min(left);
        buffer.truncate(n);
        left -= n;
    }
}

/// The packet in one piece.
pub(crate) fn flat(packet: &Incoming) -> Option<Buffer> {
    let length = packet.first.len() + packet.more.iter().map(|b| b.len()).sum::<usize>();
    let mut buffer = Buffer::new(length, 0)?;
    let whole = core::iter::once(&packet.first).chain(&packet.more).all(|b| buffer.append(b.bytes()));
    whole.then_some(buffer)
}

/// What the stack needs of the kernel around it.
pub trait Host: Send + Sync {
    /// Nanoseconds on the monotonic clock.
    fn now_ns(&self) -> u64;
    /// Have [`Net::poll`] called at this time; replaces the time asked for before.
    fn set_timer(&self, deadline_ns: u64);
    /// Packets wait in the device for its doorbell: have [`Net::poll`] called when the program pauses, and soon.
    fn soon(&self);
    /// A server socket is there (TCP listens, UDP is bound to a fixed port).
    fn listening(&self, udp: bool, port: u16);
    /// Wakes the waiter at or after that time, once. `None` where there are no timers.
    fn alarm(&self, at_ns: u64, waiter: Arc<dyn Waiter>) -> Option<TimerId>;
    fn cancel_alarm(&self, id: TimerId);
}

/// A packet is alone when none came, or none was sent, for so long before it.
const ALONE_NS: u64 = 1_000_000;

/// When the last packet of one direction was seen.
struct Last(AtomicU64);

impl Last {
    /// A packet is seen now: was it alone?
    fn is_alone(&self, now: u64) -> bool {
        now.saturating_sub(self.0.swap(now, Ordering::Relaxed)) >= ALONE_NS
    }
}

/// How the stack learns of the next packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The device is to interrupt ([`Net::arm_interrupt`]): nothing came, or a packet that was alone.
    Interrupt,
    /// Packets keep coming: [`Net::poll`] looks for them when the program pauses, and soon.
    Poll,
}

/// The stack behind its lock.
///
/// Packets that follow each other closely share interrupts and doorbells, which takes a timer, for the program may compute
/// instead of pausing. One packet a millisecond, as a single client sends them, shares nothing: it gets an interrupt and a
/// doorbell of its own, because the timer would cost more exits to the hypervisor than it saves.
pub struct Net {
    stack: SpinLock<Stack>,
    armed: SpinLock<u64>,
    received: Last,
    sent: Last,
    pub host: Box<dyn Host>,
    /// Sockets that hear of changes.
    #[cfg(feature = "interfaces")]
    pub(crate) listeners: Arc<crate::interfaces::notices::Listeners>,
}

impl Net {
    pub fn new(host: Box<dyn Host>, seed: [u8; 24]) -> Arc<Net> {
        let now = host.now_ns();
        Arc::new(Net {
            stack: SpinLock::new(Stack::new(seed, now)),
            armed: SpinLock::new(u64::MAX),
            received: Last(AtomicU64::new(0)),
            sent: Last(AtomicU64::new(0)),
            host,
            #[cfg(feature = "interfaces")]
            listeners: Arc::default(),
        })
    }

    /// Looks at or changes the stack without letting it act.
    pub fn look<R>(&self, f: impl FnOnce(&mut Stack) -> R) -> R {
        let mut stack = self.stack.lock();
        let _entered = library::enter(Library::Network);
        f(&mut stack)
    }

    /// The number of an address of IPv6 that a program names, on a link.
    pub(crate) fn number_of(&self, address: core::net::Ipv6Addr, scope: u32) -> abi::Result<Ipv4Addr> {
        self.look(|stack| stack.ip.number_of(address, scope))
    }

    /// Does something with the stack, lets it act on that, and wakes whom it concerns.
    pub fn act<R>(&self, f: impl FnOnce(&mut Stack, u64) -> R) -> R {
        self.run(false, f)
    }

    fn run<R>(&self, announce: bool, f: impl FnOnce(&mut Stack, u64) -> R) -> R {
        let now = self.host.now_ns();
        let mut stack = self.stack.lock();
        let entered = library::enter(Library::Network);
        let result = f(&mut stack, now);
        stack.settle(now);
        let mut waiting = stack.ip.pump(announce);
        if waiting && stack.ip.has_interrupts() && self.sent.is_alone(now) {
            waiting = stack.ip.pump(true);
        }
        let wakes = if stack.has_wakes() { stack.take_wakes() } else { Vec::new() };
        let next = stack.next_deadline().unwrap_or(u64::MAX);
        #[cfg(feature = "link")]
        let tap = stack.ip.tap();
        #[cfg(feature = "interfaces")]
        let has_news =
            stack.ip.interfaces.as_ref().is_some_and(|all| all.has_touched() || !all.notices.is_empty());
        drop(entered);
        drop(stack);
        #[cfg(feature = "interfaces")]
        if has_news {
            self.tell_others();
        }
        #[cfg(feature = "link")]
        if let Some(tap) = tap {
            tap.settle();
        }
        for (shared, events) in wakes {
            shared.queue.wake(events);
        }
        let earlier = {
            let mut armed = self.armed.lock();
            let earlier = next < *armed;
            if earlier {
                *armed = next;
            }
            earlier
        };
        if earlier {
            self.host.set_timer(next);
        }
        if waiting {
            self.host.soon();
        }
        result
    }

    /// Tells ports and other stacks of their frames, and listeners of changes.
    #[cfg(feature = "interfaces")]
    fn tell_others(&self) {
        loop {
            let (touched, notice) = self.look(|stack| {
                let all = stack.ip.interfaces.as_mut();
                all.map_or((None, None), |all| (all.next_touched(), all.notices.pop()))
            });
            if touched.is_none() && notice.is_none() {
                return;
            }
            if let Some(touched) = touched {
                touched.settle();
            }
            if let Some((group, message)) = notice {
                self.listeners.tell(group, &message);
            }
        }
    }

    /// Takes what the device has received, sends what waits, and does what is due.
    pub fn poll(&self) -> Next {
        let now = self.host.now_ns();
        {
            let mut armed = self.armed.lock();
            if *armed <= now {
                *armed = u64::MAX;
            }
        }
        let (count, interrupts) =
            self.run(true, |stack, now| (stack.receive(now), stack.ip.has_interrupts()));
        let is_alone = count > 0 && self.received.is_alone(now) && count == 1;
        if count == 0 || interrupts && is_alone { Next::Interrupt } else { Next::Poll }
    }

    /// Asks the device for an interrupt; false when packets wait already.
    pub fn arm_interrupt(&self) -> bool {
        let device = self.look(|stack| stack.ip.device().cloned());
        device.is_none_or(|d| d.arm_interrupt(0))
    }
}
