// SPDX-License-Identifier: Apache-2.0 OR MIT
//! IPv6 between two stacks, and packets made by hand: what each clause that the stack claims asks for.
#![allow(clippy::unwrap_used)] // a panic is a failed test

mod common;

use abi::{Events, errno::*};
use api_socket::{Address, Socket, SocketAddressV6};
use common::ipv6::*;
use common::*;
use std::net::Ipv6Addr;
use tcpip::sockets::{Domain, RawSocket};
use tcpip::wire::Ipv4;

#[test]
fn datagrams_go_both_ways_and_their_addresses_are_told() {
    let world = world(Faults { delay: MS, ..Faults::default() }, 0);
    let (a, b) = (datagram(&world.a), datagram(&world.b));
    set(&*b, 49, 1);
    set(&*b, 51, 1);
    b.bind(&caller(), &at("::", 9)).unwrap();
    a.bind(&caller(), &at("2001:db8::1", 7)).unwrap();
    assert_eq!(say(&*a, &at("2001:db8::2", 9), b"hello"), Ok(5));
    world.run(100 * MS);
    let mut out = [0; 16];
    let received = b.receive(&mut api_fs::Sink::kernel(&mut out), 0).unwrap();
    assert_eq!(
        (&out[..received.length], text_of(received.from.as_ref().unwrap())),
        (&b"hello"[..], ("2001:db8::1".into(), 7, 0))
    );
    let data: Vec<(i32, Vec<u8>)> = received
        .control
        .into_iter()
        .map(|c| match c {
            api_socket::Control::Other { kind, data, .. } => (kind, data),
            _ => panic!(),
        })
        .collect();
    let info = [&ip("2001:db8::2").octets()[..], &2i32.to_ne_bytes()].concat();
    assert_eq!(data, [(50, info), (52, 64i32.to_ne_bytes().to_vec())]);
    assert_eq!(say(&*b, received.from.as_ref().unwrap(), b"back"), Ok(4));
    world.run(100 * MS);
    assert_eq!(receive(&*a, 9), Ok(b"back".to_vec()));
    assert_eq!(say(&*a, &at("2001:db9::2", 9), b"x"), Err(ENETUNREACH), "no router");
    assert_eq!(datagram(&world.a).bind(&caller(), &at("2001:db8::2", 0)), Err(EADDRNOTAVAIL));
}

#[test]
fn link_local_addresses_are_of_their_link() {
    let world = world(Faults { delay: MS, ..Faults::default() }, 0);
    world.run(3 * SECOND);
    let (a, b) = (datagram(&world.a), datagram(&world.b));
    b.bind(&caller(), &at("::", 9)).unwrap();
    assert_eq!(say(&*a, &at("fe80::ff:fe00:2", 9), b"near"), Ok(4));
    world.run(100 * MS);
    let mut out = [0; 16];
    let received = b.receive(&mut api_fs::Sink::kernel(&mut out), 0).unwrap();
    assert_eq!(text_of(received.from.as_ref().unwrap()).0, "fe80::ff:fe00:1");
    assert_eq!(text_of(received.from.as_ref().unwrap()).2, 2);
    let unscoped =
        Address::v6(SocketAddressV6 { address: ip("fe80::1").octets(), port: 9, flow: 0, scope: 0 });
    assert_eq!(say(&*a, &unscoped, b"x"), Err(EINVAL));
    let elsewhere =
        Address::v6(SocketAddressV6 { address: ip("fe80::1").octets(), port: 9, flow: 0, scope: 7 });
    assert_eq!(say(&*a, &elsewhere, b"x"), Err(ENODEV));
}

#[test]
fn streams_carry_megabytes_over_a_bad_wire_with_and_without_offloads() {
    for segmentation in [0, 65_535] {
        let faults =
            Faults { delay: 2 * MS, loss: 2, duplicate: 2, reorder: 5, damage: 1, ..Faults::default() };
        let world = world(faults, segmentation);
        let listener = stream(&world.a);
        listener.bind(&caller(), &at("::", 80)).unwrap();
        listener.listen(&caller(), 4).unwrap();
        let client = stream(&world.b);
        assert_eq!(client.connect(&caller(), &at("2001:db8::1", 80)), Err(EINPROGRESS));
        let mut server = None;
        assert!(world.until(60 * SECOND, || {
            server = server.take().or_else(|| listener.accept().ok());
            server.is_some()
        }));
        let (server, from) = server.unwrap();
        assert_eq!(text_of(&from).0, "2001:db8::2");
        assert_eq!(text_of(&server.local_address().unwrap()), ("2001:db8::1".into(), 80, 0));
        let data: Vec<u8> = (0..1_000_000u32).map(|i| (i * 7 + i / 251) as u8).collect();
        let (mut sent, mut got) = (0, Vec::new());
        assert!(world.until(600 * SECOND, || {
            while sent < data.len() {
                match send(&*client, &data[sent..]) {
                    Ok(n) => sent += n,
                    Err(error) => {
                        assert_eq!(error, EAGAIN);
                        break;
                    }
                }
            }
            while let Ok(bytes) = receive(&*server, 65_536) {
                got.extend_from_slice(&bytes);
            }
            got.len() == data.len()
        }));
        assert!(got == data);
        // Of a link of 1,500 bytes (RFC 8200 8.3).
        let mss = client.get_option(6, 2, &[]).unwrap();
        assert_eq!(
            i32::from_ne_bytes(mss[..4].try_into().unwrap()),
            1428,
            "20 bytes of header and 12 of options are gone"
        );
    }
}

#[test]
fn one_listener_on_the_any_address_serves_both_families() {
    let world = world(Faults { delay: MS, ..Faults::default() }, 0);
    let listener = stream(&world.a);
    listener.bind(&caller(), &at("::", 80)).unwrap();
    listener.listen(&caller(), 4).unwrap();
    let (six, four) = (stream(&world.b), world.b.stream());
    assert_eq!(six.connect(&caller(), &at("2001:db8::1", 80)), Err(EINPROGRESS));
    assert_eq!(four.connect(&caller(), &world.a.at(80)), Err(EINPROGRESS));
    let mut from = Vec::new();
    assert!(world.until(10 * SECOND, || {
        from.extend(listener.accept().ok().map(|(_, from)| text_of(&from).0));
        from.len() == 2
    }));
    from.sort();
    assert_eq!(from, ["2001:db8::2", "::ffff:10.9.0.2"]);
    let only = stream(&world.a);
    set(&*only, 26, 1);
    only.bind(&caller(), &at("::", 81)).unwrap();
    only.listen(&caller(), 4).unwrap();
    let four = world.b.stream();
    assert_eq!(four.connect(&caller(), &world.a.at(81)), Err(EINPROGRESS));
    assert!(world.until(SECOND, || four.poll().contains(Events::ERR)), "IPV6_V6ONLY");
}

#[test]
fn large_datagrams_travel_in_fragments() {
    for segmentation in [0, 65_535] {
        let world = world(Faults { delay: MS, reorder: 30, ..Faults::default() }, segmentation);
        let (a, b) = (datagram(&world.a), datagram(&world.b));
        b.bind(&caller(), &at("::", 9)).unwrap();
        let data: Vec<u8> = (0..20_000u32).map(|i| (i * 13) as u8).collect();
        let heard = listen_to(&world.a);
        assert_eq!(say(&*a, &at("2001:db8::2", 9), &data), Ok(data.len()));
        world.run(SECOND);
        assert_eq!(receive(&*b, 65_536), Ok(data));
        let parts: Vec<usize> =
            heard.lock().unwrap().iter().filter(|f| f[20] == 44).map(|f| f.len() - 14).collect();
        assert!(parts.len() == 14 && parts.iter().all(|length| *length <= 1500), "{parts:?}");
    }
}

#[test]
fn a_path_that_takes_less_is_heeded_for_what_is_in_flight_alone() {
    let world = world(Faults { delay: MS, ..Faults::default() }, 0);
    let (a, b) = (datagram(&world.a), datagram(&world.b));
    a.bind(&caller(), &at("::", 7)).unwrap();
    b.bind(&caller(), &at("::", 9)).unwrap();
    let heard = listen_to(&world.a);
    assert_eq!(say(&*a, &at("2001:db8::2", 9), &[1; 1400]), Ok(1400));
    world.run(SECOND);
    let sent = heard.lock().unwrap().iter().find(|f| f[20] == UDP).unwrap().clone();
    let too_big = |mtu: u32, quote: &[u8]| {
        let message = [&[2, 0, 0, 0], &mtu.to_be_bytes()[..], &quote[..quote.len().min(1232)]].concat();
        frame("2001:db8::99", "2001:db8::1", ICMPV6, 64, &message)
    };
    let path = || {
        world.a.net.look(|s| {
            let v6 = s.ip.v6.as_ref().unwrap();
            let to = tcpip::ipv6::numbers::Scoped::on(ip("2001:db8::2"), 2);
            v6.routes.path_mtu(v6.numbers.find(&to).unwrap())
        })
    };
    // Of a port that nobody has; of another host's.
    let mut forged = sent[14..].to_vec();
    forged[40..42].copy_from_slice(&99u16.to_be_bytes());
    world.a.device.inject(too_big(1300, &forged));
    forged[23] = 0x55;
    world.a.device.inject(too_big(1300, &forged));
    world.run(100 * MS);
    assert_eq!(path(), 1500);
    world.a.device.inject(too_big(1300, &sent[14..]));
    world.run(100 * MS);
    assert_eq!(path(), 1300);
    heard.lock().unwrap().clear();
    assert_eq!(say(&*a, &at("2001:db8::2", 9), &[2; 1400]), Ok(1400));
    world.run(SECOND);
    assert!(heard.lock().unwrap().iter().all(|f| f.len() <= 1314));
    assert_eq!(receive(&*b, 9000).unwrap().len(), 1400);
    assert_eq!(receive(&*b, 9000).unwrap().len(), 1400);
    // RFC 8201 4: not below what every link takes; RFC 8201 5.3: ten minutes.
    world.a.device.inject(too_big(500, &sent[14..]));
    world.run(100 * MS);
    assert_eq!(path(), 1280);
    world.run(601 * SECOND);
    assert_eq!(path(), 1500);
}

#[test]
fn echo_requests_are_answered_and_groups_from_an_address_of_the_device() {
    let world = world(Faults { delay: MS, ..Faults::default() }, 0);
    world.run(3 * SECOND);
    let raw = RawSocket::new(world.b.net.clone(), ICMPV6, false, Domain::V6).unwrap();
    assert_eq!(say(&*raw, &at("2001:db8::1", 0), &[128, 0, 0, 0, 1, 2, 3, 4, 5, 6]), Ok(10));
    world.run(100 * MS);
    let replies = || {
        let mut all = Vec::new();
        while let Ok(bytes) = receive(&*raw, 100) {
            all.extend((bytes[0] == 129).then_some(bytes));
        }
        all
    };
    let all = replies();
    assert_eq!((all.len(), &all[0][4..]), (1, &[1, 2, 3, 4, 5, 6][..]));
    let heard = listen_to(&world.a);
    assert_eq!(say(&*raw, &at("ff02::1", 0), &[128, 0, 0, 0, 1, 2, 3, 5]), Ok(8));
    world.run(100 * MS);
    assert!(replies().iter().any(|reply| reply[7] == 5));
    assert_eq!(messages(&heard, 129)[0][22..38], ip("fe80::ff:fe00:1").octets());
}

#[test]
fn errors_say_what_is_wrong_and_never_about_errors_or_groups() {
    let world = world(Faults { delay: MS, ..Faults::default() }, 0);
    world.run(3 * SECOND);
    let heard = listen_to(&world.a);
    let answer = |to: &str, next: u8, payload: &[u8]| {
        world.a.device.inject(frame("2001:db8::2", to, next, 64, payload));
        world.run(100 * MS);
        let all = std::mem::take(&mut *heard.lock().unwrap());
        let errors = all.into_iter().filter(|f| f[20] == ICMPV6 && f[54] < 128);
        errors
            .map(|f| (f[54], f[55], u32::from_be_bytes(f[58..62].try_into().unwrap()), f.len()))
            .collect::<Vec<_>>()
    };
    let own = "2001:db8::1";
    assert_eq!(
        answer(own, UDP, &udp(1, 2, b"hello")),
        [(1, 4, 0, 14 + 48 + 53)],
        "RFC 4443 3.1: no such port"
    );
    assert_eq!(answer(own, UDP, &udp(1, 2, &[0; 1400]))[0].3, 14 + 1280, "RFC 4443 2.4 (c)");
    assert_eq!(answer(own, 200, &[0; 8])[0], (4, 1, 6, 14 + 48 + 48), "RFC 4443 3.4: no such protocol");
    assert_eq!(answer(own, 1, &[8, 0, 0, 0, 0, 0, 0, 0])[0].0, 4, "ICMP is the other version's");
    assert_eq!(answer(own, 60, &[200, 0, 1, 4, 0, 0, 0, 0, 0, 0])[0].2, 40, "it was named there");
    assert_eq!(answer(own, 43, &[UDP, 0, 0, 1, 0, 0, 0, 0])[0], (4, 0, 42, 14 + 48 + 48), "RFC 5095");
    assert_eq!(answer(own, 60, &[UDP, 0, 0xc2, 4, 0, 0, 0, 0])[0].1, 2);
    assert_eq!(answer(own, 60, &[UDP, 0, 0x42, 4, 0, 0, 0, 0]), [], "RFC 8200 4.2: in silence");
    assert_eq!(answer("ff02::1", UDP, &udp(1, 2, b"hello")), []);
    assert_eq!(answer("ff02::1", 60, &[UDP, 0, 0xc2, 4, 0, 0, 0, 0]), []);
    assert_eq!(answer("ff02::1", 60, &[UDP, 0, 0x82, 4, 0, 0, 0, 0]).len(), 1, "RFC 4443 2.4 (e) (3.2)");
    assert_eq!(answer(own, ICMPV6, &[1, 4, 0, 0, 0, 0, 0, 0, 6, 7]), [], "about an error");
    assert_eq!(
        answer(own, 44, &[UDP, 0, 0, 1, 0, 0, 0, 9, 1, 2, 3])[0],
        (4, 0, 4, 14 + 48 + 51),
        "RFC 8200 4.5"
    );
    let mut without = udp(1, 2, b"hello");
    without[6..8].fill(0);
    let mut bytes = frame("2001:db8::2", own, UDP, 64, &without);
    bytes[60..62].fill(0);
    world.a.device.inject(bytes);
    world.run(100 * MS);
    assert!(heard.lock().unwrap().is_empty(), "RFC 8200 8.1: no checksum");
    let sent: usize = (0..300).map(|_| answer(own, UDP, &udp(1, 2, b"x")).len()).sum();
    assert_eq!(sent, 300, "ten a second are not too many");
    for _ in 0..300 {
        world.a.device.inject(frame("2001:db8::2", own, UDP, 64, &udp(1, 2, b"x")));
    }
    world.run(100 * MS);
    assert!(heard.lock().unwrap().len() <= 200, "RFC 4443 2.4 (f)");
}

#[test]
fn refused_datagrams_are_told_of_by_the_queue_of_errors() {
    let world = world(Faults { delay: MS, ..Faults::default() }, 0);
    let socket = datagram(&world.a);
    set(&*socket, 25, 1);
    socket.connect(&caller(), &at("2001:db8::2", 9)).unwrap();
    assert_eq!(send(&*socket, b"lost"), Ok(4));
    world.run(100 * MS);
    assert_eq!(receive(&*socket, 9), Err(ECONNREFUSED));
    let mut out = [0; 64];
    let received = socket.receive(&mut api_fs::Sink::kernel(&mut out), 0x2000).unwrap();
    assert_eq!(
        (&out[..received.length], text_of(received.from.as_ref().unwrap())),
        (&b"lost"[..], ("2001:db8::2".into(), 9, 0))
    );
    let api_socket::Control::Other { level: 41, kind: 25, data } = &received.control[0] else { panic!() };
    // struct sock_extended_err: the errno, and ICMPv6's type and code.
    assert_eq!((data[0], &data[4..7]), (111, &[3, 1, 4][..]));
}

#[test]
fn packets_that_no_wire_carries_are_dropped() {
    let world = world(Faults { delay: MS, ..Faults::default() }, 0);
    let socket = datagram(&world.a);
    socket.bind(&caller(), &at("::", 9)).unwrap();
    world.run(3 * SECOND);
    let put = |source: &str, to: &str| {
        world.a.device.inject(frame(source, to, UDP, 64, &udp(1, 9, b"x")));
        world.run(10 * MS);
        receive(&*socket, 9).is_ok()
    };
    assert!(put("2001:db8::2", "2001:db8::1") && put("fe80::2", "ff02::1"));
    for (source, to) in [
        ("::1", "2001:db8::1"),
        ("2001:db8::2", "::1"),
        ("ff02::1", "2001:db8::1"),
        ("::", "2001:db8::1"),
        ("2001:db8::1", "2001:db8::1"),
        ("::ffff:10.9.0.2", "2001:db8::1"),
        ("2001:db8::2", "::ffff:10.9.0.1"),
        ("2001:db8::2", "2001:db8::9"),
        ("2001:db8::2", "ff02::99"),
        ("2001:db8::2", "ff01::1"),
    ] {
        assert!(!put(source, to), "{source} to {to}");
    }
    // What stands for addresses of IPv6 inside is nobody's on a wire of IPv4.
    let number = world.a.net.look(|s| s.ip.v6.as_ref().unwrap().addresses.all[0].number);
    let old = Ipv4 {
        source: number,
        destination: world.a.address,
        protocol: UDP,
        ttl: 64,
        tos: 0,
        id: 0,
        dont_fragment: false,
        more_fragments: false,
        fragment_offset: 0,
        header: 20,
        total: 29,
    };
    let put = |header: Ipv4| {
        let mut bytes = [&MAC[..], &STRANGER, &[8, 0], &[0; 20]].concat();
        header.put(&mut bytes[14..]);
        bytes.extend(udp(1, 9, b"x"));
        // No checksum, which IPv4 allows.
        world.a.device.inject(bytes);
        world.run(10 * MS);
        receive(&*socket, 9).is_ok()
    };
    assert!(put(Ipv4 { source: world.b.address, ..old }) && !put(old));
    assert!(!put(Ipv4 { source: world.b.address, destination: number, ..old }));
}

#[test]
fn a_flood_of_strangers_neither_fills_the_stack_nor_ends_a_connection() {
    let world = world(Faults { delay: MS, ..Faults::default() }, 0);
    let listener = stream(&world.a);
    listener.bind(&caller(), &at("::", 80)).unwrap();
    listener.listen(&caller(), 4).unwrap();
    let client = stream(&world.b);
    assert_eq!(client.connect(&caller(), &at("2001:db8::1", 80)), Err(EINPROGRESS));
    world.run(SECOND);
    let server = listener.accept().unwrap().0;
    for round in 0..400u32 {
        for n in 0..50u32 {
            let source = Ipv6Addr::from_bits((0x2001_0db8_0001 << 80) + u128::from(round * 50 + n));
            world.a.device.inject(frame(&source.to_string(), "2001:db8::1", UDP, 64, &udp(1, 9, b"x")));
        }
        world.run(MS);
    }
    let count = world.a.net.look(|s| s.ip.v6.as_ref().unwrap().numbers.count());
    assert!(count < 10_000, "{count}");
    assert_eq!(send(&*client, b"still here"), Ok(10));
    assert!(world.until(10 * SECOND, || receive(&*server, 99) == Ok(b"still here".to_vec())));
    assert_eq!(text_of(&server.peer_address().unwrap()).0, "2001:db8::2");
}
