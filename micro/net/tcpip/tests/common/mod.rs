// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two stacks and a wire between them that loses, delays, reorders, duplicates and damages, under a clock of its own.
#![allow(dead_code, clippy::unwrap_used, clippy::manual_checked_ops)] // each test file uses its part; a panic is a failed test

pub mod ipv6;
pub mod repair;

use api_netdev::{Buffer, Incoming, Info, NetDevice, Outgoing};
use api_sched::{TimerId, Waiter};
use api_socket::{Address, Caller, Credentials, Names, Sending, Socket, SocketAddressV4};
use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tcpip::ip::Configuration;
use tcpip::sockets::{DatagramSocket, Domain, StreamSocket};
use tcpip::stack::{Host, Net, Next};
use tcpip::wire::{Ipv4, Sum};

pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1000 * MS;

std::thread_local! {
    /// The running thread is in the stack, and not in what these tests put around it.
    pub static IN_STACK: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Runs `work` as the stack's (`true`) or as the test's.
pub fn inside<T>(is_stack: bool, work: impl FnOnce() -> T) -> T {
    let before = IN_STACK.replace(is_stack);
    let answer = work();
    IN_STACK.set(before);
    answer
}

/// xorshift64*.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 11) % n.max(1)
    }

    pub fn percent(&mut self, p: u64) -> bool {
        self.below(100) < p
    }
}

/// What the wire does to packets, in percent.
#[derive(Clone, Copy, Default)]
pub struct Faults {
    pub loss: u64,
    pub duplicate: u64,
    pub reorder: u64,
    pub damage: u64,
    pub delay: u64,
    /// Bytes a second; 0: no limit.
    pub rate: u64,
    /// Packets the bottleneck's queue holds.
    pub queue: u64,
}

struct Packet {
    at: u64,
    bytes: Vec<u8>,
}

pub struct Link {
    packets: Vec<Packet>,
    free_at: u64,
    pub carried: u64,
    pub dropped: u64,
}

/// One end of the wire.
pub struct Device {
    info: Info,
    clock: Arc<AtomicU64>,
    out: Arc<Mutex<Link>>,
    input: Arc<Mutex<Link>>,
    random: Mutex<Random>,
    pub faults: Arc<Mutex<Faults>>,
    done: Mutex<Vec<Buffer>>,
    /// Sees and may drop each frame on its way out.
    #[allow(clippy::type_complexity)]
    pub filter: Mutex<Option<Box<dyn FnMut(&[u8]) -> bool + Send>>>,
}

impl Device {
    /// Puts a frame in front of this device, as if somebody had sent it.
    pub fn inject(&self, bytes: Vec<u8>) {
        let at = self.clock.load(Ordering::Relaxed);
        self.input.lock().unwrap().packets.push(Packet { at, bytes });
    }

    fn put(&self, bytes: Vec<u8>) {
        if let Some(filter) = &mut *self.filter.lock().unwrap()
            && !filter(&bytes)
        {
            return;
        }
        let faults = *self.faults.lock().unwrap();
        let mut random = self.random.lock().unwrap();
        let now = self.clock.load(Ordering::Relaxed);
        let mut link = self.out.lock().unwrap();
        if random.percent(faults.loss) {
            link.dropped += 1;
            return;
        }
        let mut start = now;
        if faults.rate > 0 {
            let each = bytes.len() as u64 * SECOND / faults.rate;
            if link.free_at > now + faults.queue * 1514 * SECOND / faults.rate {
                link.dropped += 1;
                return;
            }
            link.free_at = link.free_at.max(now) + each;
            start = link.free_at;
        }
        let copies = if random.percent(faults.duplicate) { 2 } else { 1 };
        for _ in 0..copies {
            let mut bytes = bytes.clone();
            if random.percent(faults.damage) {
                let at = 14 + random.below((bytes.len() as u64).saturating_sub(14)) as usize;
                bytes[at] ^= 1 << random.below(8);
            }
            let mut at = start + faults.delay;
            if random.percent(faults.reorder) {
                at += random.below(faults.delay.max(MS) * 2);
            }
            link.carried += 1;
            link.packets.push(Packet { at, bytes });
        }
    }
}

/// Cuts a packet into segments as a device would.
fn segments(packet: &Outgoing) -> Vec<Vec<u8>> {
    let mut bytes = packet.head.bytes().to_vec();
    packet.fragments.iter().for_each(|f| bytes.extend_from_slice(f.bytes()));
    let complete = |bytes: &mut Vec<u8>| {
        if let Some(c) = packet.checksum {
            let (start, at) = (usize::from(c.start), usize::from(c.start + c.offset));
            let mut sum = Sum::default();
            sum.add(&bytes[start..]);
            let value = sum.finish();
            bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
        }
    };
    let Some(s) = packet.segmentation else {
        complete(&mut bytes);
        return vec![bytes];
    };
    let header = usize::from(s.header_length);
    let (head, payload) = bytes.split_at(header);
    let count = payload.len().div_ceil(usize::from(s.segment_size));
    if packet.is_ipv6() {
        return segments6(packet, head, payload, complete);
    }
    let ip = Ipv4::parse(&head[14..]).unwrap();
    payload
        .chunks(usize::from(s.segment_size))
        .enumerate()
        .map(|(i, piece)| {
            let mut out = head.to_vec();
            out.extend_from_slice(piece);
            let mut ip = ip;
            ip.total = out.len() - 14;
            ip.id = ip.id.wrapping_add(i as u16);
            ip.put(&mut out[14..34]);
            let seq = u32::from_be_bytes(out[38..42].try_into().unwrap());
            let seq = seq.wrapping_add((i * usize::from(s.segment_size)) as u32);
            out[38..42].copy_from_slice(&seq.to_be_bytes());
            if i + 1 < count {
                out[47] &= !9; // PSH and FIN belong to the last
            }
            let pseudo = Sum::pseudo(ip.source, ip.destination, 6, out.len() - 34).partial();
            out[50..52].copy_from_slice(&pseudo.to_be_bytes());
            complete(&mut out);
            out
        })
        .collect()
}

/// The same of IPv6.
fn segments6(
    packet: &Outgoing,
    head: &[u8],
    payload: &[u8],
    complete: impl Fn(&mut Vec<u8>),
) -> Vec<Vec<u8>> {
    let size = usize::from(packet.segmentation.unwrap().segment_size);
    let pieces: Vec<&[u8]> = payload.chunks(size).collect();
    let cut = |(i, piece): (usize, &&[u8])| {
        let mut out = [head, piece].concat();
        let length = out.len() - 54;
        out[18..20].copy_from_slice(&(length as u16).to_be_bytes());
        let seq = u32::from_be_bytes(out[58..62].try_into().unwrap()).wrapping_add((i * size) as u32);
        out[58..62].copy_from_slice(&seq.to_be_bytes());
        if i + 1 < pieces.len() {
            out[67] &= !9; // PSH and FIN belong to the last
        }
        let mut sum = Sum::default();
        sum.add(&out[22..54]).add16(6).add16(length as u16);
        let pseudo = sum.partial();
        out[70..72].copy_from_slice(&pseudo.to_be_bytes());
        complete(&mut out);
        out
    };
    pieces.iter().enumerate().map(cut).collect()
}

impl NetDevice for Device {
    fn info(&self) -> &Info {
        &self.info
    }

    fn transmit(&self, _queue: usize, packets: &mut VecDeque<Outgoing>) -> usize {
        let count = packets.len();
        inside(false, || {
            for packet in packets.drain(..) {
                segments(&packet).into_iter().for_each(|bytes| self.put(bytes));
                self.done.lock().unwrap().push(packet.head);
            }
        });
        count
    }

    fn flush(&self, _queue: usize) {}

    fn reclaim(&self, _queue: usize, heads: &mut Vec<Buffer>) {
        inside(false, || heads.append(&mut self.done.lock().unwrap()));
    }

    fn receive(&self, _queue: usize, packets: &mut VecDeque<Incoming>, most: usize) -> usize {
        let now = self.clock.load(Ordering::Relaxed);
        let mut link = self.input.lock().unwrap();
        link.packets.sort_by_key(|p| p.at);
        let mut count = 0;
        while count < most && link.packets.first().is_some_and(|p| p.at <= now) {
            let bytes = link.packets.remove(0).bytes;
            // Without a buffer the packet is lost.
            let Some(mut first) = Buffer::new(api_netdev::BUFFER_SIZE.max(bytes.len()), 0) else { continue };
            assert!(first.append(&bytes));
            let packet = Incoming { first, more: Vec::new(), checksum_valid: false };
            inside(false, || packets.push_back(packet));
            count += 1;
        }
        count
    }

    fn wanted(&self, _queue: usize) -> usize {
        0
    }

    fn refill(&self, _queue: usize, _buffers: &mut Vec<Buffer>) {}

    fn arm_interrupt(&self, _queue: usize) -> bool {
        true
    }

    fn on_interrupt(&self, _poller: api_sched::DeferredWork) {}
}

struct Clock {
    now: Arc<AtomicU64>,
    timer: Arc<AtomicU64>,
    soon: Arc<AtomicU64>,
}

impl Host for Clock {
    fn now_ns(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    fn set_timer(&self, deadline_ns: u64) {
        self.timer.store(deadline_ns, Ordering::Relaxed);
    }

    fn soon(&self) {
        self.soon.fetch_add(1, Ordering::Relaxed);
    }

    fn listening(&self, _udp: bool, _port: u16) {}

    fn alarm(&self, _: u64, _: Arc<dyn Waiter>) -> Option<TimerId> {
        None
    }

    fn cancel_alarm(&self, _: TimerId) {}
}

pub struct Side {
    pub net: Arc<Net>,
    pub device: Arc<Device>,
    timer: Arc<AtomicU64>,
    /// How often packets were left to wait for a doorbell.
    pub soon: Arc<AtomicU64>,
    pub address: Ipv4Addr,
}

impl Side {
    pub fn stream(&self) -> Arc<StreamSocket> {
        StreamSocket::new(self.net.clone(), Domain::V4, 0).unwrap()
    }

    pub fn datagram(&self) -> Arc<DatagramSocket> {
        DatagramSocket::new(self.net.clone(), Domain::V4, 0).unwrap()
    }

    pub fn at(&self, port: u16) -> Address {
        Address::v4(SocketAddressV4 { address: self.address.octets(), port })
    }

    pub fn listen(&self, port: u16, backlog: i32) -> Arc<StreamSocket> {
        let socket = self.stream();
        socket.bind(&caller(), &self.at(port)).unwrap();
        socket.listen(&caller(), backlog).unwrap();
        socket
    }
}

/// Two machines on one wire.
pub struct World {
    pub clock: Arc<AtomicU64>,
    pub a: Side,
    pub b: Side,
    links: [Arc<Mutex<Link>>; 2],
    pub faults: Arc<Mutex<Faults>>,
}

impl World {
    /// `segmentation` as in [`Info`]; with it goes the checksum offload.
    pub fn new(faults: Faults, segmentation: usize, seed: u64) -> World {
        World::with_mtu(faults, segmentation, 1500, seed)
    }

    pub fn with_mtu(faults: Faults, segmentation: usize, mtu: usize, seed: u64) -> World {
        let clock = Arc::new(AtomicU64::new(SECOND));
        let link = || Arc::new(Mutex::new(Link { packets: Vec::new(), free_at: 0, carried: 0, dropped: 0 }));
        let links = [link(), link()];
        let faults = Arc::new(Mutex::new(faults));
        let side = |me: usize| {
            let info = Info {
                mac: [2, 0, 0, 0, 0, me as u8 + 1],
                mtu,
                queues: 1,
                transmit_checksum: segmentation > 0,
                segmentation,
                segments_ipv6: segmentation > 0,
                fragments: 17,
                headroom: 0,
                interrupts: true,
            };
            let device = Arc::new(Device {
                info,
                clock: clock.clone(),
                out: links[me].clone(),
                input: links[1 - me].clone(),
                random: Mutex::new(Random(seed * 2 + me as u64 + 1)),
                faults: faults.clone(),
                done: Mutex::new(Vec::new()),
                filter: Mutex::new(None),
            });
            let timer = Arc::new(AtomicU64::new(u64::MAX));
            let soon = Arc::new(AtomicU64::new(0));
            let host = Clock { now: clock.clone(), timer: timer.clone(), soon: soon.clone() };
            let mut key = [me as u8 + 7; 24];
            key[..8].copy_from_slice(&seed.to_ne_bytes());
            let net = Net::new(Box::new(host), key);
            let address = Ipv4Addr::new(10, 9, 0, me as u8 + 1);
            net.act(|s, _| {
                s.attach(device.clone());
                s.configure(Configuration { address, prefix: 24, gateway: None });
            });
            Side { net, device, timer, soon, address }
        };
        World { clock: clock.clone(), a: side(0), b: side(1), links, faults }
    }

    pub fn now(&self) -> u64 {
        self.clock.load(Ordering::Relaxed)
    }

    /// Lets both sides work, then moves the clock to the next thing that happens, at most `most` ahead.
    pub fn step(&self, most: u64) {
        let until = self.now() + most;
        loop {
            let worked =
                [&self.a, &self.b].map(|side| inside(true, || side.net.poll()) == Next::Poll).contains(&true);
            let due = self
                .links
                .iter()
                .filter_map(|l| l.lock().unwrap().packets.iter().map(|p| p.at).min())
                .chain([&self.a, &self.b].map(|s| s.timer.load(Ordering::Relaxed)))
                .min()
                .unwrap_or(u64::MAX);
            if due > self.now() && !worked {
                let next = due.min(until);
                for side in [&self.a, &self.b] {
                    if side.timer.load(Ordering::Relaxed) <= next {
                        side.timer.store(u64::MAX, Ordering::Relaxed);
                    }
                }
                self.clock.store(next, Ordering::Relaxed);
                if next == until {
                    self.a.net.poll();
                    self.b.net.poll();
                }
                return;
            }
            for side in [&self.a, &self.b] {
                if side.timer.load(Ordering::Relaxed) <= self.now() {
                    side.timer.store(u64::MAX, Ordering::Relaxed);
                }
            }
        }
    }

    /// Steps for this long.
    pub fn run(&self, time: u64) {
        let until = self.now() + time;
        while self.now() < until {
            self.step(until - self.now());
        }
    }

    /// Steps until `done`, at most for this long; whether it came about.
    pub fn until(&self, time: u64, mut done: impl FnMut() -> bool) -> bool {
        let until = self.now() + time;
        while !done() {
            if self.now() >= until {
                return false;
            }
            self.step((until - self.now()).min(10 * MS));
        }
        true
    }

    /// A connection from b to a listener on a: (client, server).
    pub fn connect(&self, listener: &StreamSocket, port: u16) -> (Arc<StreamSocket>, Arc<dyn Socket>) {
        let client = self.b.stream();
        assert_eq!(client.connect(&caller(), &self.a.at(port)), Err(abi::errno::EINPROGRESS));
        let mut server = None;
        assert!(self.until(30 * SECOND, || {
            server = server.take().or_else(|| listener.accept().ok().map(|s| s.0));
            server.is_some()
        }));
        assert!(self.until(SECOND, || client.poll().contains(abi::Events::OUT)));
        (client, server.unwrap())
    }
}

struct NoNames;

impl Names for NoNames {
    fn credentials(&self) -> Credentials {
        Credentials::default()
    }

    fn sender(&self) -> Credentials {
        Credentials::default()
    }

    fn may_administer(&self) -> bool {
        true
    }

    fn create(&self, _: &[u8]) -> abi::Result<Arc<dyn api_fs::Inode>> {
        Err(abi::errno::EROFS)
    }

    fn find(&self, _: &[u8]) -> abi::Result<Arc<dyn api_fs::Inode>> {
        Err(abi::errno::ENOENT)
    }
}

pub fn caller() -> Caller<'static> {
    Caller { names: &NoNames }
}

pub fn send(socket: &dyn Socket, bytes: &[u8]) -> abi::Result<usize> {
    socket.send(None, &Sending::default(), &mut api_fs::Source::kernel(bytes))
}

pub fn receive(socket: &dyn Socket, most: usize) -> abi::Result<Vec<u8>> {
    let mut out = vec![0; most];
    let n = socket.receive(&mut api_fs::Sink::kernel(&mut out), 0)?.length;
    out.truncate(n);
    Ok(out)
}
