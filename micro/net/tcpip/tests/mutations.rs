// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packet input under mutated traffic: whatever arrives, the stack neither panics nor stops serving others.
//!
//! The same 3,000 rounds in every run; `TCPIP_MUTATION_SECONDS=600 cargo test --release -p tcpip --test mutations`
//! goes on with fresh seeds for that long.
#![allow(clippy::unwrap_used)] // a panic is a failed test

mod common;
use api_socket::{Shutdown, Socket};
use common::repair::repair;
use common::*;
use std::sync::{Arc, Mutex};

/// Discovery, router advertisements, reports, datagrams in fragments and streams of IPv6 likewise.
fn round6(seed: u64) {
    use common::ipv6::{at, configure, datagram, frame, listen_to, router_advertisement, stream};
    let offload = if seed.is_multiple_of(2) { 0 } else { 65_535 };
    let world = World::new(Faults { delay: MS, ..Faults::default() }, offload, seed);
    let heard = [&world.a, &world.b].map(listen_to);
    configure(&world.a, "2001:db8::1", None, true);
    configure(&world.b, "2001:db8::2", Some("2001:db8::1"), true);
    let mut random = Random(seed + 1);
    let (listener, client) = (stream(&world.a), stream(&world.b));
    listener.bind(&caller(), &at("::", 80)).unwrap();
    listener.listen(&caller(), 8).unwrap();
    let (to, from) = (datagram(&world.a), datagram(&world.b));
    to.bind(&caller(), &at("::", 53)).unwrap();
    from.connect(&caller(), &at("2001:db8::1", 53)).unwrap();
    let _ = client.connect(&caller(), &at("2001:db8::1", 80));
    for _ in 0..6 {
        let _ = send(&*client, &vec![1; random.below(9000) as usize]);
        let _ = send(&*from, &vec![3; random.below(4000) as usize]);
        world.run(3 * MS);
        let mut frames: Vec<Vec<u8>> =
            heard.iter().flat_map(|h| std::mem::take(&mut *h.lock().unwrap())).collect();
        frames.push(frame("fe80::77", "ff02::1", 58, 255, &router_advertisement(1800, 86_400, 14_400)));
        for frame in frames.iter_mut().take(12) {
            mutate(frame, &mut random);
            let to = if random.percent(50) { &world.a } else { &world.b };
            to.device.inject(frame.clone());
        }
        world.run(400 * MS);
        let _ = (receive(&*to, 20_000), receive(&*client, 20_000));
    }
    drop((client, from));
    world.run(300 * SECOND);
    // Whoever has other addresses of the link now speaks to itself; the wire of IPv4 is as it was.
    let server = world.a.listen(81, 8);
    let (client, server) = world.connect(&server, 81);
    send(&*client, b"still there?").unwrap();
    world.run(10 * MS);
    assert_eq!(receive(&*server, 99).unwrap(), b"still there?");
}

fn mutate(frame: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..1 + random.below(4) {
        let length = frame.len() as u64;
        match random.below(7) {
            0 => frame.truncate(random.below(length + 1) as usize),
            1 => frame.extend((0..random.below(64)).map(|i| i as u8)),
            // Mostly in the headers.
            2..=4 if length > 0 => frame[random.below(length.min(74)) as usize] = random.next() as u8,
            5 if length > 0 => frame[random.below(length) as usize] ^= 1 << random.below(8),
            _ if length > 50 => {
                let at = 34 + random.below(16) as usize;
                let value = [0u8, 1, 0x7f, 0x80, 0xff][random.below(5) as usize];
                frame[at] = value;
            }
            _ => {}
        }
    }
    if random.percent(90) {
        repair(frame);
    }
}

/// One conversation whose every frame is recorded, mutated and sent again to both sides.
fn round(seed: u64) {
    let world = World::new(
        Faults { delay: MS, ..Faults::default() },
        if seed.is_multiple_of(2) { 0 } else { 65_535 },
        seed,
    );
    let heard: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
    for side in [&world.a, &world.b] {
        let heard = heard.clone();
        *side.device.filter.lock().unwrap() = Some(Box::new(move |frame: &[u8]| {
            heard.lock().unwrap().push(frame.to_vec());
            true
        }));
    }
    let mut random = Random(seed + 1);
    let listener = world.a.listen(80, 8);
    let udp = world.a.datagram();
    udp.bind(&caller(), &world.a.at(53)).unwrap();
    let sender = world.b.datagram();
    sender.connect(&caller(), &world.a.at(53)).unwrap();
    let (client, server) = world.connect(&listener, 80);
    for step in 0..6 {
        let _ = send(&*client, &vec![1; random.below(9000) as usize]);
        let _ = send(&*server, &vec![2; random.below(9000) as usize]);
        let _ = send(&*sender, &vec![3; random.below(4000) as usize]);
        if step == 4 {
            let _ = client.shutdown(Shutdown::Write);
        }
        world.run(3 * MS);
        let mut frames = std::mem::take(&mut *heard.lock().unwrap());
        for frame in frames.iter_mut().take(12) {
            mutate(frame, &mut random);
            let to = if random.percent(50) { &world.a } else { &world.b };
            to.device.inject(frame.clone());
        }
        world.run(5 * MS);
        for socket in [&*client as &dyn Socket, &*server, &*udp] {
            let _ = receive(socket, 20_000);
            let _ = socket.poll();
        }
    }
    drop((client, server));
    world.run(300 * SECOND);
    // Strangers' packets must not have shut the door.
    let (client, server) = world.connect(&listener, 80);
    send(&*client, b"still there?").unwrap();
    world.run(10 * MS);
    assert_eq!(receive(&*server, 99).unwrap(), b"still there?");
}

#[test]
fn mutated_packets_neither_crash_the_stack_nor_shut_it() {
    let seconds = std::env::var("TCPIP_MUTATION_SECONDS").ok().and_then(|s| s.parse().ok());
    let rounds = if cfg!(debug_assertions) { 300 } else { 3000 };
    for seed in 0..rounds {
        round(seed);
        round6(seed);
    }
    if let Some(seconds) = seconds {
        let start = std::time::Instant::now();
        let mut seed = start.elapsed().as_nanos() as u64 ^ u64::from(std::process::id()) << 20;
        while start.elapsed().as_secs() < seconds {
            seed += 1;
            let caught = std::panic::catch_unwind(|| {
                round(seed);
                round6(seed);
            });
            assert!(caught.is_ok(), "seed {seed}");
        }
    }
}
