// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a tap sees of the stack's frames, and what becomes of frames of others (`api_netdev::link`).
#![allow(clippy::unwrap_used)] // a panic is a failed test

mod common;

use abi::errno::*;
use api_fs::{Sink, Source};
use api_netdev::link::{Frame, Tap, Verdict};
use api_socket::{Address, Sending, Socket, SocketAddressV4};
use common::*;
use std::sync::{Arc, Mutex};

/// Interface, direction, checksum and bytes of each frame, and who sent it.
type Seen = (u32, bool, Verdict, Vec<u8>, Option<u64>);

#[derive(Default)]
struct Recorder {
    seen: Mutex<Vec<Seen>>,
    settled: Mutex<usize>,
}

impl Tap for Recorder {
    fn frame(&self, frame: &Frame<'_>) {
        let seen =
            (frame.interface.index, frame.is_outgoing, frame.checksum, frame.bytes.to_vec(), frame.sender);
        self.seen.lock().unwrap().push(seen);
    }

    fn settle(&self) {
        *self.settled.lock().unwrap() += 1;
    }
}

impl Recorder {
    fn take(&self) -> Vec<Seen> {
        core::mem::take(&mut self.seen.lock().unwrap())
    }
}

fn watch(side: &Side) -> Arc<Recorder> {
    let tap = Arc::new(Recorder::default());
    tcpip::link::of(&side.net).watch(tap.clone(), &|| true);
    tap
}

fn say(from: &dyn Socket, to: Address, bytes: &[u8]) {
    let message = Sending { to: Some(to), ..Sending::default() };
    assert_eq!(from.send(None, &message, &mut Source::kernel(bytes)), Ok(bytes.len()));
}

#[test]
fn a_tap_sees_both_ways_of_the_wire_until_nobody_wants_it() {
    let world = World::new(Faults { delay: MS, ..Faults::default() }, 0, 3);
    world.run(10 * MS);
    let tap = watch(&world.a);
    let (a, b) = (world.a.datagram(), world.b.datagram());
    b.bind(&caller(), &world.b.at(9)).unwrap();
    a.bind(&caller(), &world.a.at(7)).unwrap();
    say(&*a, world.b.at(9), b"to the other");
    world.run(10 * MS);
    say(&*b, world.a.at(7), b"and back");
    world.run(10 * MS);
    let seen = tap.take();
    assert!(seen.iter().all(|(interface, ..)| *interface == 2) && *tap.settled.lock().unwrap() > 0);
    let find = |text: &[u8]| seen.iter().find(|(.., bytes, _)| bytes.ends_with(text)).unwrap();
    let (_, is_outgoing, _, bytes, sender) = find(b"to the other");
    assert!(*is_outgoing && sender.is_none() && bytes[..14] == [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
    assert!(!find(b"and back").1);
    // A frame of somebody else's, which the other side's stack hears.
    let link = tcpip::link::of(&world.a.net);
    let mut frame = find(b"to the other").3.clone();
    let length = frame.len();
    frame[length - 12..].copy_from_slice(b"by the other");
    frame[40..42].fill(0);
    assert_eq!(link.send(2, &frame, 5), Ok(()));
    world.run(10 * MS);
    let mut bytes = [0; 32];
    for text in [b"to the other", b"by the other"] {
        let received = b.receive(&mut Sink::kernel(&mut bytes), 0).unwrap();
        assert_eq!(&bytes[..received.length], text);
    }
    assert!(tap.take().iter().any(|seen| seen.1 && seen.3 == frame && seen.4 == Some(5)));
    assert_eq!(link.send(3, &frame, 5), Err(ENXIO));
    assert!(link.interface(3).is_none() && link.interface_named(b"eth0").is_some_and(|i| i.mac[5] == 1));
    link.watch(tap.clone(), &|| false);
    say(&*a, world.b.at(9), b"unseen");
    world.run(10 * MS);
    assert!(tap.take().is_empty());
}

#[test]
fn segments_that_the_device_is_to_cut_are_seen_whole_and_without_their_checksums() {
    let world = World::new(Faults { delay: MS, ..Faults::default() }, 65_535, 4);
    let listener = world.a.listen(80, 5);
    let (client, server) = world.connect(&listener, 80);
    let tap = watch(&world.a);
    let data = vec![b'x'; 20_000];
    assert!(server.send(None, &Sending::default(), &mut Source::kernel(&data)).unwrap() > 5000);
    let mut sink = vec![0; 20_000];
    assert!(world.until(SECOND, || client.receive(&mut Sink::kernel(&mut sink), 0).is_ok()));
    let seen = tap.take();
    assert!(seen.iter().any(|(_, is_outgoing, checksum, bytes, _)| {
        *is_outgoing && *checksum == Verdict::Pending && bytes.len() > 4000 && bytes.ends_with(b"xxx")
    }));
}

#[test]
fn loopback_shows_each_packet_twice_behind_a_header_of_zeros() {
    let world = World::new(Faults::default(), 0, 5);
    let tap = watch(&world.a);
    let (from, to) = (world.a.datagram(), world.a.datagram());
    let address = Address::v4(SocketAddressV4 { address: [127, 0, 0, 1], port: 99 });
    to.bind(&caller(), &address).unwrap();
    say(&*from, address, b"looped");
    let seen = tap.take();
    let looped: Vec<_> = seen.iter().filter(|(interface, ..)| *interface == 1).collect();
    assert_eq!(looped.iter().map(|seen| seen.1).collect::<Vec<_>>(), [true, false]);
    let bytes = &looped[0].3;
    assert!(bytes == &looped[1].3 && bytes[..12] == [0; 12] && bytes[12..15] == [8, 0, 0x45]);
    assert!(bytes.ends_with(b"looped") && looped[0].2 == Verdict::Pending);
    // The stack hears what comes by loopback from an address that is not its own, to one that is.
    let mut bytes = [0; 32];
    assert!(to.receive(&mut Sink::kernel(&mut bytes), 0).is_ok());
    let link = tcpip::link::of(&world.a.net);
    let mut frame = looped[0].3.clone();
    assert_eq!(link.send(1, &frame, 5), Ok(()));
    assert_eq!(to.receive(&mut Sink::kernel(&mut bytes), 0).err(), Some(EAGAIN), "its own is forged");
    let near = world.a.datagram();
    near.bind(&caller(), &world.a.at(99)).unwrap();
    frame[26..34].copy_from_slice(&[10, 9, 0, 77, 10, 9, 0, 1]);
    frame[24..26].fill(0);
    let sum = tcpip::wire::checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame[40..42].fill(0);
    assert_eq!(link.send(1, &frame, 5), Ok(()));
    assert_eq!(near.receive(&mut Sink::kernel(&mut bytes), 0).map(|r| r.length), Ok(6));
    // Too short to be a frame, and of no protocol that the stack has.
    assert_eq!(link.send(1, &frame[..13], 5), Err(EINVAL));
    frame[12] = 0x88;
    assert_eq!(link.send(1, &frame, 5), Ok(()));
}
