// SPDX-License-Identifier: Apache-2.0 OR MIT
//! TCP between two of our stacks over a bad wire.

#![allow(clippy::unwrap_used)] // a panic is a failed test

mod common;
use abi::{Events, errno::*};
use api_socket::{Address, Shutdown, Socket, SocketAddressV4};
use common::*;
use tcpip::stack::Next;

/// Sends `total` bytes each way at the same time and checks every one; returns the time it took.
fn exchange(world: &World, total: usize, seed: u64) -> u64 {
    let listener = world.a.listen(80, 16);
    let (client, server) = world.connect(&listener, 80);
    let start = world.now();
    let byte =
        |i: usize, salt: u64| (i as u64).wrapping_mul(0x9e37_79b9).wrapping_add(salt).rotate_left(13) as u8;
    let ends: [&dyn Socket; 2] = [&*client, &*server];
    let mut sent = [0; 2];
    let mut got = [0; 2];
    let mut random = Random(seed + 99);
    let finished = world.until(600 * SECOND, || {
        for me in 0..2 {
            while sent[me] < total {
                let n = (1 + random.below(30_000) as usize).min(total - sent[me]);
                let bytes: Vec<u8> = (sent[me]..sent[me] + n).map(|i| byte(i, me as u64)).collect();
                match send(ends[me], &bytes) {
                    Ok(n) => sent[me] += n,
                    Err(EAGAIN) => break,
                    Err(e) => panic!("send: {e:?}"),
                }
                if sent[me] == total {
                    ends[me].shutdown(Shutdown::Write).unwrap();
                }
            }
            loop {
                match receive(ends[me], 1 + random.below(50_000) as usize) {
                    Ok(bytes) if bytes.is_empty() => break,
                    Ok(bytes) => {
                        for b in bytes {
                            assert_eq!(b, byte(got[me], 1 - me as u64), "byte {} is wrong", got[me]);
                            got[me] += 1;
                        }
                    }
                    Err(EAGAIN) => break,
                    Err(e) => panic!("receive: {e:?}"),
                }
            }
        }
        got == [total; 2]
    });
    assert!(finished, "sent {sent:?}, got {got:?} of {total}");
    let took = world.now() - start;
    assert_eq!(receive(ends[0], 1), Ok(vec![]), "end of data");
    drop((client, server, listener));
    world.run(130 * SECOND);
    for side in [&world.a, &world.b] {
        assert_eq!(
            side.net.look(|s| (s.tcp.counts(), s.tcp.sockets.len())),
            ((0, 0, 0), 0),
            "something is left"
        );
    }
    took
}

#[test]
fn a_clean_wire_carries_everything_both_ways() {
    for segmentation in [0, 65_535] {
        let world = World::new(Faults { delay: MS, ..Faults::default() }, segmentation, 1);
        let took = exchange(&world, 2_000_000, 1);
        assert!(took < SECOND, "{} ms", took / MS);
    }
}

#[test]
fn every_byte_arrives_over_a_wire_that_loses_reorders_doubles_and_damages() {
    for seed in 0..12 {
        let faults = Faults {
            loss: seed % 4 * 3,
            duplicate: 5,
            reorder: seed % 3 * 10,
            damage: 2,
            delay: 3 * MS,
            ..Faults::default()
        };
        let world = World::new(faults, if seed % 2 == 0 { 0 } else { 65_535 }, seed);
        exchange(&world, 300_000, seed);
    }
}

#[test]
fn random_loss_of_one_percent_costs_no_time_out() {
    let faults = Faults { loss: 1, delay: 5 * MS, ..Faults::default() };
    let world = World::new(faults, 65_535, 5);
    let took = exchange(&world, 3_000_000, 5);
    assert!(took < 8 * SECOND, "{} ms", took / MS);
}

#[test]
fn a_bottleneck_is_filled_without_collapse() {
    // 10 MB/s, 40 ms, a queue of 60 packets.
    let faults = Faults { delay: 20 * MS, rate: 10_000_000, queue: 60, ..Faults::default() };
    let world = World::new(faults, 0, 9);
    let took = exchange(&world, 10_000_000, 9);
    // 1 s at full rate.
    assert!(took < 3 * SECOND, "{} ms", took / MS);
}

#[test]
fn connecting_to_a_shut_port_is_refused() {
    let world = World::new(Faults { delay: MS, ..Faults::default() }, 0, 1);
    let client = world.b.stream();
    assert_eq!(client.connect(&caller(), &world.a.at(81)), Err(EINPROGRESS));
    assert!(world.until(SECOND, || client.poll().contains(Events::ERR)));
    assert_eq!(client.connect(&caller(), &world.a.at(81)), Err(ECONNREFUSED));
    let udp = world.b.datagram();
    udp.connect(&caller(), &world.a.at(82)).unwrap();
    send(&*udp, b"x").unwrap();
    assert!(world.until(SECOND, || udp.poll().contains(Events::ERR)));
    assert_eq!(receive(&*udp, 1), Err(ECONNREFUSED));
}

#[test]
fn nobody_home_is_host_unreachable() {
    let world = World::new(Faults::default(), 0, 1);
    let client = world.b.stream();
    let nobody = api_socket::Address::v4(api_socket::SocketAddressV4 { address: [10, 9, 0, 77], port: 80 });
    assert_eq!(client.connect(&caller(), &nobody), Err(EINPROGRESS));
    assert!(world.until(10 * SECOND, || client.poll().contains(Events::ERR)));
    assert_eq!(client.connect(&caller(), &nobody), Err(EHOSTUNREACH));
    let far = api_socket::Address::v4(api_socket::SocketAddressV4 { address: [8, 8, 8, 8], port: 80 });
    assert_eq!(world.b.stream().connect(&caller(), &far), Err(ENETUNREACH));
}

#[test]
fn a_shut_window_opens_again() {
    for loss in [0, 20] {
        let world = World::new(Faults { delay: MS, loss, ..Faults::default() }, 0, 3);
        let listener = world.a.listen(80, 16);
        let (client, server) = world.connect(&listener, 80);
        let mut sent = 0;
        world.until(60 * SECOND, || {
            while let Ok(n) = send(&*client, &[7; 10_000]) {
                sent += n;
            }
            false
        });
        assert!(sent > 600_000, "{sent} bytes: the receiver's buffer is full and the sender's not empty");
        let mut got = 0;
        assert!(
            world.until(300 * SECOND, || {
                while let Ok(bytes) = receive(&*server, 5000) {
                    got += bytes.len();
                }
                got == sent
            }),
            "{got} of {sent}"
        );
    }
}

#[test]
fn half_closed_connections_carry_data_the_other_way() {
    let world = World::new(Faults { delay: MS, ..Faults::default() }, 0, 3);
    let listener = world.a.listen(80, 16);
    let (client, server) = world.connect(&listener, 80);
    client.shutdown(Shutdown::Write).unwrap();
    assert!(world.until(SECOND, || server.poll().contains(Events::RDHUP)));
    assert!(!server.poll().contains(Events::HUP));
    assert_eq!(receive(&*server, 10), Ok(vec![]));
    assert_eq!(send(&*client, b"x"), Err(EPIPE));
    send(&*server, b"late answer").unwrap();
    world.run(100 * MS);
    assert_eq!(receive(&*client, 100), Ok(b"late answer".to_vec()));
    server.close();
    world.run(100 * MS);
    assert!(client.poll().contains(Events::HUP));
    assert_eq!(world.b.net.look(|s| s.tcp.counts()), (0, 0, 1), "the side that closed first waits");
    assert_eq!(world.a.net.look(|s| s.tcp.counts()), (0, 0, 0));
}

#[test]
fn closing_with_unread_data_resets() {
    let world = World::new(Faults { delay: MS, ..Faults::default() }, 0, 3);
    let listener = world.a.listen(80, 16);
    let (client, server) = world.connect(&listener, 80);
    send(&*client, b"unread").unwrap();
    world.run(100 * MS);
    server.close();
    world.run(100 * MS);
    assert!(client.poll().contains(Events::ERR | Events::HUP));
    assert_eq!(receive(&*client, 1), Err(ECONNRESET));
    assert_eq!(receive(&*client, 1), Ok(vec![]));
    assert_eq!(send(&*client, b"x"), Err(EPIPE));
}

#[test]
fn a_full_backlog_delays_and_does_not_refuse() {
    let world = World::new(Faults { delay: MS, ..Faults::default() }, 0, 3);
    let listener = world.a.listen(80, 2);
    let clients: Vec<_> = (0..8).map(|_| world.b.stream()).collect();
    for client in &clients {
        assert_eq!(client.connect(&caller(), &world.a.at(80)), Err(EINPROGRESS));
    }
    world.run(500 * MS);
    assert_eq!(world.a.net.look(|s| s.tcp.counts().0), 3, "the backlog and one more, as Linux");
    let mut accepted = Vec::new();
    assert!(world.until(60 * SECOND, || {
        accepted.extend(listener.accept().ok());
        accepted.len() == 8
    }));
    assert!(clients.iter().all(|c| c.poll().contains(Events::OUT) && !c.poll().contains(Events::ERR)));
}

#[test]
fn a_flood_of_syns_does_not_keep_others_out() {
    let world = World::new(Faults { delay: MS, ..Faults::default() }, 0, 3);
    let listener = world.a.listen(80, 16);
    // Senders that never answer: the other side's resets are lost.
    *world.b.device.filter.lock().unwrap() =
        Some(Box::new(|frame: &[u8]| frame.len() < 48 || frame[47] & 4 == 0));
    let mut flood = Vec::new();
    for _ in 0..200 {
        let client = world.b.stream();
        let _ = client.connect(&caller(), &world.a.at(80));
        world.b.net.look(|_| ());
        client.close();
        flood.push(client);
    }
    world.run(50 * MS);
    assert!(world.a.net.look(|s| s.tcp.counts().1) <= 16, "the queue is bounded");
    let (client, server) = world.connect(&listener, 80);
    send(&*client, &[1; 100_000]).unwrap();
    let mut got = 0;
    assert!(
        world.until(SECOND, || {
            got += receive(&*server, 100_000).map_or(0, |b| b.len());
            got == 100_000
        }),
        "a connection made by cookie works: {got}"
    );
}

#[test]
fn ten_thousand_connections_in_a_row_leave_no_trace_and_do_not_slow_down() {
    let world = World::new(Faults { delay: MS / 10, ..Faults::default() }, 0, 3);
    let listener = world.a.listen(80, 128);
    let start = std::time::Instant::now();
    let mut first = None;
    for i in 0..10_000 {
        let (client, server) = world.connect(&listener, 80);
        send(&*client, b"GET").unwrap();
        world.run(MS);
        assert_eq!(receive(&*server, 10).unwrap(), b"GET");
        // The server closes first, so its TIME-WAIT fills.
        send(&*server, b"OK").unwrap();
        server.close();
        world.run(MS);
        assert_eq!(receive(&*client, 10).unwrap(), b"OK");
        client.close();
        world.run(MS);
        if i == 1000 {
            first = Some(start.elapsed() / 1000);
        }
    }
    let each = start.elapsed() / 10_000;
    let first = first.unwrap();
    assert!(each < first * 3, "{each:?} each, {first:?} at first");
    world.run(61 * SECOND);
    assert_eq!(world.a.net.look(|s| (s.tcp.counts(), s.tcp.sockets.len())), ((0, 0, 0), 1));
}

#[test]
fn a_peer_that_vanishes_is_noticed_by_keep_alive_and_by_retransmission() {
    let world = World::new(Faults { delay: MS, ..Faults::default() }, 0, 3);
    let listener = world.a.listen(80, 16);
    let (idle, _keep) = world.connect(&listener, 80);
    let (busy, _keep2) = world.connect(&listener, 80);
    let set = |name: i32, value: i32| idle.set_option(6, name, &value.to_ne_bytes()).unwrap();
    idle.set_option(1, 9, &1i32.to_ne_bytes()).unwrap();
    set(4, 10); // TCP_KEEPIDLE
    set(5, 2); // TCP_KEEPINTVL
    set(6, 3); // TCP_KEEPCNT
    world.run(60 * SECOND);
    assert_eq!(idle.poll() & (Events::ERR | Events::HUP), Events::NONE, "the peer answers");
    world.faults.lock().unwrap().loss = 100;
    busy.set_option(6, 18, &5000i32.to_ne_bytes()).unwrap(); // TCP_USER_TIMEOUT
    send(&*busy, b"anybody?").unwrap();
    world.run(30 * SECOND);
    assert_eq!(receive(&*idle, 1), Err(ETIMEDOUT));
    assert_eq!(receive(&*busy, 1), Err(ETIMEDOUT));
}

#[test]
fn requests_and_answers_need_no_bare_acknowledgements() {
    let world = World::new(Faults { delay: MS / 10, ..Faults::default() }, 0, 3);
    let listener = world.a.listen(80, 16);
    let (client, server) = world.connect(&listener, 80);
    let carried = || world.a.net.look(|s| s.ip.statistics.sent_packets + s.ip.statistics.received_packets);
    let before = carried();
    for _ in 0..100 {
        send(&*client, b"request").unwrap();
        assert!(world.until(SECOND, || server.poll().contains(Events::IN)));
        receive(&*server, 100).unwrap();
        send(&*server, b"answer").unwrap();
        assert!(world.until(SECOND, || client.poll().contains(Events::IN)));
        receive(&*client, 100).unwrap();
    }
    let each = (carried() - before) as f64 / 100.0;
    assert!(each < 2.2, "{each} packets for a request and its answer");
}

#[test]
fn loopback_works_without_a_device() {
    let world = World::new(Faults::default(), 0, 3);
    let listener = world.a.listen(80, 16);
    let client = world.a.stream();
    let local = api_socket::Address::v4(api_socket::SocketAddressV4 { address: [127, 0, 0, 1], port: 80 });
    assert_eq!(client.connect(&caller(), &local), Err(EINPROGRESS));
    world.run(MS);
    assert!(client.poll().contains(Events::ERR), "bound to the other address");
    let client = world.a.stream();
    assert_eq!(client.connect(&caller(), &world.a.at(80)), Err(EINPROGRESS));
    let (server, _) = listener.accept().unwrap();
    assert_eq!(send(&*client, &[5; 300_000]), Ok(300_000));
    let mut got = 0;
    assert!(world.until(SECOND, || {
        got += receive(&*server, 1 << 20).map_or(0, |b| b.len());
        got == 300_000
    }));
}

#[test]
fn a_stream_over_loopback_never_waits_for_a_timer() {
    let world = World::new(Faults::default(), 0, 3);
    let mut random = common::Random(5);
    for block in [512, 8192, 10_000, 40_000, 100_000] {
        let listener = world.a.listen(80 + block as u16, 16);
        let client = world.a.stream();
        let address = world.a.at(80 + block as u16);
        assert_eq!(client.connect(&caller(), &address), Err(EINPROGRESS));
        let (server, _) = listener.accept().unwrap();
        let began = world.now();
        let bytes = vec![7; block];
        let (mut sent, mut got) = (0, 0);
        let total = 4 << 20;
        while got < total {
            for _ in 0..random.below(40) {
                match send(&*client, &bytes) {
                    Ok(n) => sent += n,
                    Err(e) => assert_eq!(e, EAGAIN),
                }
            }
            for _ in 0..random.below(40) {
                got += receive(&*server, 8192).map_or(0, |b| b.len());
            }
            if got == sent {
                continue;
            }
            assert!(
                client.poll().contains(Events::OUT) || server.poll().contains(Events::IN),
                "stalled with {sent} sent and {got} received in blocks of {block}"
            );
        }
        assert_eq!(world.now(), began);
    }
}

#[test]
fn datagrams_of_any_size_cross_in_fragments() {
    let world = World::new(Faults { delay: MS, reorder: 30, ..Faults::default() }, 0, 4);
    datagrams_cross(&world);
    // Three of them are longer than a packet.
    let sent = world.b.net.look(|stack| stack.ip.counters);
    let arrived = world.a.net.look(|stack| stack.ip.counters);
    assert_eq!((sent.ip.fragmented, sent.ip.fragments_created), (3, 2 + 4 + 45));
    assert_eq!((arrived.ip.reassembly_requests, arrived.ip.reassembled), (2 + 4 + 45, 3));
    assert_eq!((sent.udp.out_datagrams, arrived.udp.in_datagrams, arrived.udp.no_ports), (6, 6, 0));
    assert_eq!(sent.ip.out_requests, 6);
}

#[test]
fn a_link_without_a_wire_takes_packets_of_any_size() {
    let faults = || Faults { delay: MS, loss: 20, reorder: 30, ..Faults::default() };
    exchange(&World::with_mtu(faults(), 65_535, 65_521, 5), 4 << 20, 5);
    exchange(&World::with_mtu(faults(), 0, 65_521, 6), 4 << 20, 6);
    // The largest datagrams are a little larger than its packets, and their fragments than a buffer.
    datagrams_cross(&World::with_mtu(
        Faults { delay: MS, reorder: 30, ..Faults::default() },
        65_535,
        65_521,
        7,
    ));
}

fn datagrams_cross(world: &World) {
    let server = world.a.datagram();
    server.bind(&caller(), &world.a.at(53)).unwrap();
    let client = world.b.datagram();
    client.connect(&caller(), &world.a.at(53)).unwrap();
    for size in [0usize, 1, 1472, 1473, 5000, 65_507] {
        let bytes: Vec<u8> = (0..size).map(|i| i as u8).collect();
        assert_eq!(send(&*client, &bytes), Ok(size));
        assert!(world.until(SECOND, || server.poll().contains(Events::IN)), "{size}");
        assert_eq!(receive(&*server, 70_000), Ok(bytes));
    }
    assert_eq!(send(&*client, &[0; 65_508]), Err(EMSGSIZE));
}

#[test]
fn an_idle_connection_is_small() {
    assert!(size_of::<tcpip::tcp::connection::Connection>() < 800);
}

#[test]
fn a_published_port_reaches_a_listener_on_loopback_and_both_ends_are_loopbacks() {
    let world = World::new(Faults { delay: MS, ..Faults::default() }, 0, 1);
    let inside = world.a.stream();
    let loopback = |port| Address::v4(SocketAddressV4 { address: [127, 0, 0, 1], port });
    inside.bind(&caller(), &loopback(80)).unwrap();
    inside.listen(&caller(), 5).unwrap();

    let early = world.b.stream();
    assert_eq!(early.connect(&caller(), &world.a.at(80)), Err(EINPROGRESS));
    assert!(world.until(SECOND, || early.poll().contains(Events::ERR)), "it is not published yet");

    world.a.net.look(|s| s.tcp.published.push(80));
    let (client, server) = world.connect(&inside, 80);
    assert_eq!(server.local_address().unwrap(), loopback(80));
    let peer = server.peer_address().unwrap().as_v4().unwrap();
    assert_eq!(peer.address, [127, 0, 0, 1]);
    send(&*client, b"hello").unwrap();
    assert!(world.until(SECOND, || server.poll().contains(Events::IN)));
    assert_eq!(receive(&*server, 9).unwrap(), b"hello");

    // One that listens on the machine's own address comes first.
    let world = World::new(Faults { delay: MS, ..Faults::default() }, 0, 1);
    world.a.net.look(|s| s.tcp.published.push(80));
    let inside = world.a.stream();
    inside.bind(&caller(), &loopback(80)).unwrap();
    inside.listen(&caller(), 5).unwrap();
    let outside = world.a.stream();
    outside.bind(&caller(), &world.a.at(80)).unwrap();
    outside.listen(&caller(), 5).unwrap();
    let (_client, server) = world.connect(&outside, 80);
    assert_eq!(server.local_address().unwrap(), world.a.at(80));
}

#[test]
fn a_packet_that_is_alone_shares_neither_doorbell_nor_interrupt() {
    let world = World::new(Faults::default(), 0, 3);
    let server = world.a.datagram();
    server.bind(&caller(), &world.a.at(53)).unwrap();
    let client = world.b.datagram();
    client.connect(&caller(), &world.a.at(53)).unwrap();
    send(&*client, b"resolves the address").unwrap();
    world.run(SECOND);
    receive(&*server, 100).unwrap();
    let waited = || world.b.soon.load(std::sync::atomic::Ordering::Relaxed);
    for _ in 0..3 {
        world.run(SECOND);
        let before = waited();
        send(&*client, b"one").unwrap();
        assert_eq!(waited(), before, "a single packet does not wait for others");
        assert_eq!(world.a.net.poll(), Next::Interrupt);
        assert_eq!(receive(&*server, 10), Ok(b"one".to_vec()));
        send(&*client, b"two").unwrap();
        assert_eq!(waited(), before + 1, "the next one waits for more");
        assert_eq!(world.a.net.poll(), Next::Poll);
        assert_eq!(receive(&*server, 10), Ok(b"two".to_vec()));
    }
}
