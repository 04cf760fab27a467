// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Properties of what parses a program's requests, with random ones; and sockets over a link of the tests.

use crate::address::LinkAddress;
use crate::capture::tests::{ETHERNET, frame, received};
use crate::memory::Memory;
use crate::ring::{Incoming, Placed, Request, Ring, Version};
use crate::socket::{PacketSocket, SOL_PACKET};
use crate::table::Table;
use abi::{PAGE_SIZE, Result, errno::*};
use alloc::sync::Arc;
use api_fs::{Sink, Timespec};
use api_netdev::link::{Frame, Interface, Link, Tap, Verdict};
use api_sched::{TimerId, Waiter};
use api_socket::{Address, Socket, Type};
use std::sync::Mutex;
use std::vec::Vec;

/// Xorshift: the same numbers in each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as u32
    }

    /// Mostly a number that makes sense.
    fn one_of(&mut self, sound: &[u32]) -> u32 {
        match self.next() % 8 {
            0 => self.next(),
            1 => self.next() % 70_000,
            _ => sound[self.next() as usize % sound.len()],
        }
    }
}

fn request(random: &mut Random) -> Request {
    let block_size = random.one_of(&[4096, 8192, 16_384]);
    let frame_size = random.one_of(&[64, 128, 256, 2048, 4096]);
    let blocks = random.one_of(&[1, 2, 3, 7]);
    let frames = (block_size / frame_size.max(1)).wrapping_mul(blocks);
    Request {
        block_size,
        blocks,
        frame_size,
        frames: random.one_of(&[frames]),
        timeout: random.one_of(&[0, 1, 100]),
        private: random.one_of(&[0, 0, 13, 1000]),
        features: random.one_of(&[0, 1]),
    }
}

/// The program writes what it likes into the ring, and packets of all sizes come: nothing leaves the ring, and nothing ends.
#[test]
fn random_requests_are_refused_or_give_rings_that_take_random_packets() {
    let mut random = Random(0x1234_5678_9abc_def1);
    let data = Vec::from([0xaa; 70_000]);
    let (mut made, mut refused, mut stored) = (0, 0, 0);
    for _ in 0..4000 {
        let version = Version::from_number((random.next() % 3) as i32).unwrap();
        let (request, is_transmit) = (request(&mut random), random.next().is_multiple_of(4));
        let reserve = random.one_of(&[0, 0, 16, 4]);
        let is_sound = request.check(version, reserve, is_transmit).is_ok();
        // More than that a test has no memory for.
        if !is_sound || u64::from(request.block_size) * u64::from(request.blocks) > 1 << 20 {
            refused += 1;
            continue;
        }
        made += 1;
        let mut ring = Ring::new(request, version, reserve, is_transmit).unwrap();
        assert_eq!(ring.memory.pages() * PAGE_SIZE, request.block_size as usize * request.blocks as usize);
        for _ in 0..60 {
            let length = random.one_of(&[14, 60, 1514, 4000, 65_549]) as usize % data.len();
            let kept = if length == 0 { 0 } else { random.next() as usize % (length + 1) };
            let link_length = if random.next().is_multiple_of(2) { 14.min(length) } else { 0 };
            let (address, at, status) = (LinkAddress::default(), Timespec::now(), 1);
            let packet = Incoming { data: &data[..length], kept, link_length, address, at, status };
            stored +=
                u32::from(ring.put(&packet, reserve, random.next().is_multiple_of(9)) != Placed::Dropped);
            let _ = (ring.is_readable(), ring.has_room(), ring.is_too_small(&packet, reserve));
            if random.next().is_multiple_of(3) {
                let at = random.next() as usize % (ring.memory.pages() * PAGE_SIZE);
                ring.memory.write(at, &random.next().to_ne_bytes());
            }
            if let Some(blocks) = ring.blocks.as_mut().filter(|_| random.next().is_multiple_of(5)) {
                blocks.retire(&ring.memory, &ring.request, false);
            }
        }
    }
    assert!(made > 300 && refused > 300 && stored > 3000, "{made} {refused} {stored}");
}

#[test]
fn random_bytes_are_addresses_or_refused() {
    let mut random = Random(77);
    for _ in 0..5000 {
        let bytes: Vec<u8> = (0..random.next() % 40).map(|_| random.next() as u8).collect();
        let address = Address::from_bytes(&bytes).unwrap();
        match LinkAddress::destination(&address) {
            Ok(parsed) => assert!(bytes.len() >= 20 && bytes.len() >= 12 + usize::from(parsed.length)),
            Err(error) => assert_eq!(error, EINVAL),
        }
        let versions = [Version::V1, Version::V2, Version::V3];
        for (version, least) in versions.into_iter().zip([16, 16, 28]) {
            assert_eq!(Request::parse(version, &bytes).is_ok(), bytes.len() >= least);
        }
    }
}

/// A link of one interface that keeps what is sent.
#[derive(Default)]
struct TestLink {
    sent: Mutex<Vec<Vec<u8>>>,
    tap: Mutex<Option<Arc<dyn Tap>>>,
}

impl Link for TestLink {
    fn interface(&self, index: u32) -> Option<Interface> {
        (index == ETHERNET.index).then_some(ETHERNET)
    }

    fn interface_named(&self, name: &[u8]) -> Option<Interface> {
        (name == b"eth0").then_some(ETHERNET)
    }

    fn send(&self, _: u32, frame: &[u8], sender: u64) -> Result<()> {
        self.sent.lock().unwrap().push(frame.to_vec());
        let tap = self.tap.lock().unwrap().clone();
        let checksum = Verdict::Unknown;
        let frame =
            Frame { interface: &ETHERNET, bytes: frame, is_outgoing: true, checksum, sender: Some(sender) };
        if let Some(tap) = tap {
            tap.frame(&frame);
            tap.settle();
        }
        Ok(())
    }

    fn watch(&self, tap: Arc<dyn Tap>, is_wanted: &dyn Fn() -> bool) {
        *self.tap.lock().unwrap() = is_wanted().then_some(tap);
    }

    fn now_ns(&self) -> u64 {
        1
    }

    fn alarm(&self, _: u64, _: Arc<dyn Waiter>) -> Option<TimerId> {
        None
    }

    fn cancel_alarm(&self, _: TimerId) {}
}

fn read(socket: &PacketSocket) -> Option<usize> {
    let mut bytes = [0; 2000];
    socket.receive(&mut Sink::kernel(&mut bytes), 0x40).ok().map(|received| received.length)
}

#[test]
fn frames_are_looked_at_as_long_as_a_socket_receives() {
    let link = Arc::new(TestLink::default());
    let table = Table::new(link.clone());
    let is_watched = || link.tap.lock().unwrap().is_some();
    let silent = PacketSocket::new(&table, Type::Raw, 0, 0).unwrap();
    assert!(!is_watched());
    let arp = PacketSocket::new(&table, Type::Datagram, 0x0806, 0).unwrap();
    assert!(is_watched());
    table.frame(&received(&frame([0xff; 6], 0x0806, &[7; 28])));
    table.frame(&received(&frame([0xff; 6], 0x0800, &[7; 28])));
    assert_eq!((read(&arp), read(&arp), read(&silent)), (Some(28), None, None));
    assert!(table.report().lines().count() == 3 && table.report().contains("0806"));
    drop(arp);
    assert!(!is_watched());
    drop(silent);
    assert_eq!(table.report().lines().count(), 1);
}

#[test]
fn a_ring_is_mapped_by_whoever_holds_its_pages() {
    let link = Arc::new(TestLink::default());
    let socket = PacketSocket::new(&Table::new(link), Type::Raw, 3, 0).unwrap();
    let set = |words: [u32; 4]| {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        socket.set_option(SOL_PACKET as i32, 5, &bytes)
    };
    assert_eq!(socket.page_source().err(), Some(EINVAL));
    assert_eq!(set([4096, 1, 2048, 2]), Ok(()));
    let mapped = socket.page_source().unwrap();
    assert_eq!(set([0; 4]), Err(EBUSY));
    drop(mapped);
    assert_eq!(set([0; 4]), Ok(()));
    assert!(Memory::new(0).is_ok());
}
