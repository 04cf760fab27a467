// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The endpoint against a host of the tests.

use super::*;
use crate::connection::BUFFER;
use std::vec;

const CID: u64 = 3;
const END: u32 = 9;
const PORT: u32 = 7;

fn endpoint() -> Endpoint {
    Endpoint::new(CID, END).unwrap()
}

/// The next packet that goes to the host.
fn sent(endpoint: &mut Endpoint) -> Option<(Header, Vec<u8>)> {
    let mut packet = [0; 1024];
    let length = endpoint.transmit(&mut packet);
    (length > 0).then(|| (Header::decode(&packet[..length]).unwrap(), packet[HEADER..length].to_vec()))
}

fn operations(endpoint: &mut Endpoint) -> Vec<u16> {
    core::iter::from_fn(|| sent(endpoint)).map(|(header, _)| header.operation.0).collect()
}

/// A packet of the host to a connection.
fn packet(id: Id, operation: Operation, payload: &[u8]) -> Vec<u8> {
    packet_with(id, operation, payload, 0)
}

fn packet_with(id: Id, operation: Operation, payload: &[u8], taken: u32) -> Vec<u8> {
    let header = Header {
        source_cid: HOST_CID,
        target_cid: CID,
        source_port: PORT,
        target_port: id.0,
        length: payload.len() as u32,
        kind: STREAM,
        operation,
        flags: 0,
        buffer: 1000,
        taken,
    };
    [&header.encode()[..], payload].concat()
}

fn open() -> (Endpoint, Id) {
    let mut endpoint = endpoint();
    let id = endpoint.connect(PORT).unwrap();
    let (request, _) = sent(&mut endpoint).unwrap();
    assert_eq!((request.operation, request.target_port), (Operation::REQUEST, PORT));
    assert_eq!((request.source_cid, request.target_cid), (CID, HOST_CID));
    assert_eq!(request.buffer as usize, BUFFER);
    assert_eq!(endpoint.state(id), State::Connecting);
    endpoint.receive(&packet(id, Operation::RESPONSE, b""));
    assert_eq!(endpoint.state(id), State::Open);
    (endpoint, id)
}

fn read_all(endpoint: &mut Endpoint, id: Id) -> Vec<u8> {
    let (mut all, mut piece) = (Vec::new(), [0; 100]);
    loop {
        match endpoint.read(id, &mut piece) {
            0 => return all,
            length => all.extend_from_slice(&piece[..length]),
        }
    }
}

#[test]
fn bytes_go_both_ways() {
    let (mut endpoint, id) = open();
    endpoint.receive(&packet(id, Operation::RW, b"hello "));
    endpoint.receive(&packet(id, Operation::RW, b"machine"));
    assert_eq!(read_all(&mut endpoint, id), b"hello machine");
    endpoint.send(id, b"hello host".to_vec()).unwrap();
    let (header, payload) = sent(&mut endpoint).unwrap();
    assert_eq!((header.operation, &payload[..], header.taken), (Operation::RW, &b"hello host"[..], 13));
    assert!(sent(&mut endpoint).is_none());
}

#[test]
fn no_more_is_sent_than_the_host_has_room_for_and_it_is_asked_once() {
    let (mut endpoint, id) = open();
    endpoint.send(id, vec![1; 1500]).unwrap();
    assert_eq!(endpoint.send(id, b"more".to_vec()), Err(b"more".to_vec()));
    let lengths: Vec<usize> = (0..2).map(|_| sent(&mut endpoint).unwrap().1.len()).collect();
    assert_eq!(lengths, [1024 - HEADER, 1000 - (1024 - HEADER)]);
    assert_eq!(operations(&mut endpoint), [Operation::CREDIT_REQUEST.0]);
    endpoint.receive(&packet_with(id, Operation::CREDIT_UPDATE, b"", 400));
    assert_eq!(sent(&mut endpoint).unwrap().1.len(), 400);
    assert_eq!(operations(&mut endpoint), [Operation::CREDIT_REQUEST.0]);
    endpoint.receive(&packet_with(id, Operation::CREDIT_UPDATE, b"", 1000));
    assert_eq!(sent(&mut endpoint).unwrap().1.len(), 100);
    assert!(
        endpoint.take_drained() && !endpoint.take_drained() && endpoint.send(id, b"more".to_vec()).is_ok()
    );
}

#[test]
fn a_reader_that_took_half_of_the_buffer_gives_credit_back() {
    let (mut endpoint, id) = open();
    let piece = [7; 1024];
    for _ in 0..BUFFER / piece.len() {
        endpoint.receive(&packet(id, Operation::RW, &piece));
    }
    assert_eq!(operations(&mut endpoint), []);
    assert_eq!(read_all(&mut endpoint, id).len(), BUFFER);
    let (header, _) = sent(&mut endpoint).unwrap();
    assert_eq!((header.operation, header.taken as usize), (Operation::CREDIT_UPDATE, BUFFER));
    assert!(sent(&mut endpoint).is_none());
}

#[test]
fn a_host_that_sends_more_than_there_is_room_for_is_reset() {
    let (mut endpoint, id) = open();
    for _ in 0..BUFFER / 1024 {
        endpoint.receive(&packet(id, Operation::RW, &[7; 1024]));
    }
    endpoint.receive(&packet(id, Operation::RW, b"x"));
    assert_eq!(endpoint.state(id), State::Ended);
    assert_eq!(operations(&mut endpoint), [Operation::RST.0]);
    // What was in order may still be read.
    assert_eq!(read_all(&mut endpoint, id).len(), BUFFER);
}

#[test]
fn packets_out_of_order_reset_their_connection() {
    for (operation, taken) in [
        (Operation::RESPONSE, 0),
        (Operation::REQUEST, 0),
        (Operation(0), 0),
        (Operation(99), 0),
        (Operation::RW, 1),
        (Operation::CREDIT_UPDATE, u32::MAX),
    ] {
        let (mut endpoint, id) = open();
        endpoint.receive(&packet_with(id, operation, b"", taken));
        assert_eq!(endpoint.state(id), State::Ended, "{operation:?} {taken}");
        assert_eq!(operations(&mut endpoint), [Operation::RST.0]);
        assert!(endpoint.send(id, b"lost".to_vec()).is_ok() && sent(&mut endpoint).is_none());
    }
    let mut endpoint = endpoint();
    let id = endpoint.connect(PORT).unwrap();
    endpoint.receive(&packet(id, Operation::RW, b"too early"));
    assert_eq!((endpoint.state(id), read_all(&mut endpoint, id)), (State::Ended, Vec::new()));
}

#[test]
fn a_host_that_closes_is_answered_and_one_that_resets_is_not() {
    let (mut endpoint, id) = open();
    endpoint.receive(&packet(id, Operation::RW, b"last"));
    endpoint.receive(&packet(id, Operation::SHUTDOWN, b""));
    assert_eq!((endpoint.state(id), operations(&mut endpoint)), (State::Ended, vec![Operation::RST.0]));
    assert_eq!(read_all(&mut endpoint, id), b"last");
    let (mut endpoint, id) = open();
    endpoint.receive(&packet(id, Operation::RST, b""));
    assert_eq!((endpoint.state(id), operations(&mut endpoint)), (State::Ended, vec![]));
}

#[test]
fn a_place_is_free_again_once_the_host_was_told() {
    let mut endpoint = endpoint();
    let ids: Vec<Id> = (0..MAX_CONNECTIONS).map(|_| endpoint.connect(PORT).unwrap()).collect();
    assert_eq!(endpoint.connect(PORT), Err(EAGAIN));
    // One of which the host has not heard is gone at once.
    endpoint.close(ids[0]);
    let fresh = endpoint.connect(PORT).unwrap();
    assert!(!ids.contains(&fresh));
    assert_eq!(operations(&mut endpoint), [Operation::REQUEST.0; MAX_CONNECTIONS]);
    endpoint.receive(&packet(ids[1], Operation::RESPONSE, b""));
    endpoint.close(ids[1]);
    assert_eq!(endpoint.connect(PORT), Err(EAGAIN));
    assert_eq!(operations(&mut endpoint), [Operation::RST.0]);
    endpoint.connect(PORT).unwrap();
    // What the host sent before it heard of that is of no connection.
    endpoint.receive(&packet(ids[1], Operation::RW, b"late"));
    assert_eq!(operations(&mut endpoint), [Operation::RST.0, Operation::REQUEST.0]);
}

#[test]
fn the_host_may_ask_for_the_end_and_connect_nowhere_else() {
    let mut endpoint = endpoint();
    endpoint.receive(&packet(Id(END + 1), Operation::REQUEST, b""));
    assert!(!endpoint.take_request_to_end());
    assert_eq!(operations(&mut endpoint), [Operation::RST.0]);
    endpoint.receive(&packet(Id(END), Operation::RW, b"x"));
    assert!(!endpoint.take_request_to_end());
    assert_eq!(operations(&mut endpoint), [Operation::RST.0]);
    endpoint.receive(&packet(Id(END), Operation::REQUEST, b""));
    assert!(endpoint.take_request_to_end() && !endpoint.take_request_to_end());
    assert_eq!(operations(&mut endpoint), [Operation::RESPONSE.0, Operation::RST.0]);
}

#[test]
fn answers_to_a_flood_are_few() {
    let mut endpoint = endpoint();
    for port in 0..1000 {
        endpoint.receive(&packet(Id(port + 100), Operation::REQUEST, b""));
    }
    assert_eq!(operations(&mut endpoint).len(), MAX_ANSWERS);
}

#[test]
fn one_connection_with_much_to_send_leaves_others_their_turn() {
    let mut endpoint = endpoint();
    let ids = [0, 1].map(|_| endpoint.connect(PORT).unwrap());
    assert_eq!(operations(&mut endpoint).len(), 2);
    for id in ids {
        endpoint.receive(&packet(id, Operation::RESPONSE, b""));
        endpoint.send(id, vec![1; 1000]).unwrap();
    }
    let ports: Vec<u32> = core::iter::from_fn(|| sent(&mut endpoint)).map(|(h, _)| h.source_port).collect();
    assert_eq!(ports.len(), 4);
    assert!(ports[0] != ports[1] && ports[2] != ports[3], "{ports:?}");
}

/// Nothing that a host sends panics, and what it may cause stays within bounds.
#[test]
fn any_packets_are_survived() {
    let mut seed = 1u64;
    let mut random = |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    let (mut endpoint, mut id) = open();
    let mut piece = [0; 4096];
    for round in 0..200_000u32 {
        if endpoint.state(id) == State::Ended && random(4) == 0 {
            endpoint.close(id);
            while sent(&mut endpoint).is_some() {}
            id = endpoint.connect(PORT).unwrap();
        }
        let payload = vec![0; random(3) as usize * random(1000) as usize];
        let operation = Operation(random(9) as u16);
        let mut bytes = packet_with(id, operation, &payload, random(3) as u32 * random(9) as u32);
        if random(8) == 0 {
            let at = random(HEADER as u64) as usize;
            bytes[at] ^= 1 << random(8);
        }
        if random(16) == 0 {
            bytes.truncate(random(bytes.len() as u64) as usize);
        }
        endpoint.receive(&bytes);
        if random(3) == 0 {
            let _ = endpoint.send(id, vec![0; random(5000) as usize]);
        }
        if random(3) == 0 {
            assert!(endpoint.read(id, &mut piece) <= piece.len());
        }
        let mut count = 0;
        while sent(&mut endpoint).is_some() {
            count += 1;
            assert!(count < 100, "round {round}: packets without end");
        }
    }
}
