// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a peer or a program may make of the stack's memory and time: bounded records, small windows, full queues.
#![allow(clippy::unwrap_used)] // a panic is a failed test

mod common;

use abi::{Events, errno::*};
use api_fs::{Sink, Source};
use api_socket::{Sending, Socket};
use common::*;
use std::sync::{Arc, Mutex};

const TCP_DEFER_ACCEPT: i32 = 9;
const SO_RCVBUF: i32 = 8;

fn send(socket: &dyn Socket, bytes: &[u8]) -> abi::Result<usize> {
    socket.send(None, &Sending::default(), &mut Source::kernel(bytes))
}

fn receive(socket: &dyn Socket, most: usize) -> abi::Result<Vec<u8>> {
    let mut out = vec![0; most];
    let received = socket.receive(&mut Sink::kernel(&mut out), 0)?;
    out.truncate(received.length);
    Ok(out)
}

/// Flags of a TCP segment in an Ethernet frame, and whether it has payload.
fn tcp_flags(frame: &[u8]) -> Option<(u8, bool)> {
    let ip = frame.get(14..)?;
    if frame[12..14] != [8, 0] || ip[9] != 6 {
        return None;
    }
    let header = usize::from(ip[0] & 15) * 4;
    let total = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
    let tcp = &ip[header..];
    Some((tcp[13], total > header + usize::from(tcp[12] >> 4) * 4))
}

/// Keeps the last frame from `side` for which `wanted` says so; its resets are lost.
fn keep(side: &Side, wanted: fn(u8, bool) -> bool) -> Arc<Mutex<Vec<u8>>> {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let copy = kept.clone();
    *side.device.filter.lock().unwrap() = Some(Box::new(move |frame| {
        if tcp_flags(frame).is_some_and(|(flags, data)| wanted(flags, data)) {
            *copy.lock().unwrap() = frame.to_vec();
        }
        // A real peer that repeats itself on purpose does not reset what answers it.
        tcp_flags(frame).is_none_or(|(flags, _)| flags & 4 == 0)
    }));
    kept
}

#[test]
fn a_peer_that_repeats_its_fin_takes_one_record() {
    let world = World::new(Faults { delay: MS, ..Faults::default() }, 0, 1);
    let fin = keep(&world.b, |flags, _| flags & 1 != 0);
    let listener = world.a.listen(80, 5);
    let (client, server) = world.connect(&listener, 80);
    server.close();
    assert!(world.until(SECOND, || client.poll().contains(Events::IN)));
    client.close();
    world.run(SECOND);
    assert_eq!(world.a.net.look(|s| s.tcp.time_wait_count()), 1);
    let fin = fin.lock().unwrap().clone();
    for _ in 0..2000 {
        for _ in 0..10 {
            world.a.device.inject(fin.clone());
        }
        world.run(10 * MS);
    }
    assert_eq!(world.a.net.look(|s| (s.tcp.time_wait_count(), s.tcp.time_wait_places())), (1, 1));
    // Each one was heard: the record stays for a minute after the last.
    world.run(50 * SECOND);
    assert_eq!(world.a.net.look(|s| s.tcp.time_wait_count()), 1);
    world.run(12 * SECOND);
    assert_eq!(world.a.net.look(|s| (s.tcp.time_wait_count(), s.tcp.time_wait_places())), (0, 0));
}

#[test]
fn what_a_small_window_lets_through_is_sent_in_the_end() {
    let world = World::new(Faults { delay: MS, ..Faults::default() }, 0, 2);
    let listener = world.a.stream();
    listener.set_option(1, SO_RCVBUF, &1152i32.to_ne_bytes()).unwrap();
    listener.bind(&caller(), &world.a.at(80)).unwrap();
    listener.listen(&caller(), 5).unwrap();
    let (client, server) = world.connect(&listener, 80);
    assert_eq!(send(&*client, &[1; 5000]), Ok(5000));
    // The reader takes nothing before the rest of its window, less than a segment, is used too (it is told in units of 128).
    let readable = || {
        let mut out = [0; 4000];
        server.receive(&mut Sink::kernel(&mut out), 2).map_or(0, |r| r.length)
    };
    assert!(world.until(20 * SECOND, || readable() >= 2216), "{}", readable());
    let mut got = 0;
    assert!(world.until(20 * SECOND, || {
        got += receive(&*server, 4000).map_or(0, |bytes| bytes.len());
        got == 5000
    }));
}

#[test]
fn old_data_for_a_closed_connection_resets_nothing() {
    let world = World::new(Faults { delay: MS, ..Faults::default() }, 0, 3);
    let data = keep(&world.b, |_, data| data);
    let listener = world.a.listen(80, 5);
    let (client, server) = world.connect(&listener, 80);
    send(&*client, b"all of it").unwrap();
    assert!(world.until(SECOND, || server.poll().contains(Events::IN)));
    assert_eq!(receive(&*server, 99), Ok(b"all of it".to_vec()));
    server.close();
    // It comes again before the peer has answered the FIN.
    world.a.device.inject(data.lock().unwrap().clone());
    world.run(SECOND);
    assert_eq!(receive(&*client, 9), Ok(vec![]), "the end, and no reset");
}

#[test]
fn a_listener_that_waits_for_data_waits_as_long_as_it_said() {
    let world = World::new(Faults { delay: MS, ..Faults::default() }, 0, 4);
    let listener = world.a.listen(80, 5);
    listener.set_option(6, TCP_DEFER_ACCEPT, &3i32.to_ne_bytes()).unwrap();
    let (silent, eager) = (world.b.stream(), world.b.stream());
    assert_eq!(silent.connect(&caller(), &world.a.at(80)), Err(EINPROGRESS));
    assert_eq!(eager.connect(&caller(), &world.a.at(80)), Err(EINPROGRESS));
    assert!(
        world.until(SECOND, || silent.poll().contains(Events::OUT) && eager.poll().contains(Events::OUT))
    );
    world.run(100 * MS);
    assert_eq!(listener.accept().err(), Some(EAGAIN));
    send(&*eager, b"here").unwrap();
    world.run(100 * MS);
    let (first, _) = listener.accept().unwrap();
    assert_eq!(receive(&*first, 9), Ok(b"here".to_vec()));
    world.run(2 * SECOND);
    assert_eq!(listener.accept().err(), Some(EAGAIN));
    assert!(world.until(5 * SECOND, || listener.poll().contains(Events::IN)), "seven seconds are over");
    let (second, _) = listener.accept().unwrap();
    send(&*silent, b"late").unwrap();
    assert!(world.until(SECOND, || second.poll().contains(Events::IN)));
}

#[test]
fn the_first_connect_after_the_attempt_succeeded_says_so() {
    let world = World::new(Faults { delay: MS, ..Faults::default() }, 0, 5);
    let _listener = world.a.listen(80, 5);
    let client = world.b.stream();
    assert_eq!(client.connect(&caller(), &world.a.at(80)), Err(EINPROGRESS));
    assert_eq!(client.connect(&caller(), &world.a.at(80)), Err(EALREADY));
    assert!(world.until(SECOND, || client.poll().contains(Events::OUT)));
    assert_eq!(client.connect(&caller(), &world.a.at(80)), Ok(()));
    assert_eq!(client.connect(&caller(), &world.a.at(80)), Err(EISCONN));
}

#[test]
fn a_connection_of_this_machine_waits_for_no_timer_when_the_queue_was_full() {
    let world = World::new(Faults::default(), 0, 6);
    let listener = world.a.listen(80, 1);
    let clients: Vec<_> = (0..50).map(|_| world.a.stream()).collect();
    for client in &clients {
        assert_eq!(client.connect(&caller(), &world.a.at(80)), Err(EINPROGRESS));
    }
    let began = world.now();
    let mut servers = Vec::new();
    for _ in 0..50 {
        servers.push(listener.accept().unwrap());
    }
    assert!(clients.iter().all(|c| c.poll().contains(Events::OUT)));
    assert_eq!(world.now(), began);
}

#[test]
fn a_socket_that_is_shut_without_a_peer_wakes_its_reader() {
    let world = World::new(Faults::default(), 0, 7);
    let socket = world.a.datagram();
    assert_eq!(receive(&*socket, 9), Err(EAGAIN));
    assert_eq!(socket.shutdown(api_socket::Shutdown::Read), Err(ENOTCONN));
    assert!(socket.poll().contains(Events::IN | Events::RDHUP));
    assert_eq!(receive(&*socket, 9), Ok(vec![]));
}
