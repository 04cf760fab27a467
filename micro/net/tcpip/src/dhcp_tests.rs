// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The client against a server that is made of bytes.

use super::*;
use std::vec::Vec;

const MAC: Mac = [2, 0, 0, 0, 0, 7];
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 1, 2, 3);
const SERVER_AT: Ipv4Addr = Ipv4Addr::new(10, 1, 2, 1);
const S: u64 = SECOND_NS;

fn client() -> Client {
    Client::new(0, MAC, 77, "web.example.org")
}

/// What is sent now.
fn sent(client: &mut Client, now: u64) -> (Vec<u8>, Option<Ipv4Addr>) {
    let (message, change) = client.poll(now);
    let message = message.expect("a message is due");
    assert_eq!(change, None);
    (message.bytes().to_vec(), message.to)
}

fn value(message: &[u8], wanted: u8) -> Option<Vec<u8>> {
    let mut rest = &message[OPTIONS..];
    while let [option, length, after @ ..] = rest {
        if *option == END {
            break;
        }
        let (value, after) = after.split_at((*length).into());
        if *option == wanted {
            return Some(value.to_vec());
        }
        rest = after;
    }
    None
}

/// An answer to `request`.
fn answer(request: &[u8], kind: u8, options: &[(u8, &[u8])]) -> Vec<u8> {
    let mut reply = request[..OPTIONS].to_vec();
    reply[0] = 2;
    reply[16..20].copy_from_slice(&ADDRESS.octets());
    let all = [(MESSAGE_TYPE, &[kind][..]), (SERVER, &SERVER_AT.octets())];
    for (option, value) in all.iter().chain(options) {
        reply.extend([*option, value.len() as u8]);
        reply.extend(*value);
    }
    reply.push(END);
    reply
}

/// A client that has a lease of so many seconds since time 0, and its last request.
fn bound(seconds: u32) -> (Client, Vec<u8>) {
    let mut client = client();
    let (discover, _) = sent(&mut client, 0);
    assert_eq!(client.input(0, &answer(&discover, OFFER, &[])), None);
    let (request, _) = sent(&mut client, 0);
    let options: [(u8, &[u8]); 4] = [
        (MASK, &[255, 255, 255, 0]),
        (ROUTER, &SERVER_AT.octets()),
        (DNS, &[9, 9, 9, 9, 0, 0, 0, 0, 8, 8, 8, 8, 7, 7, 7, 7]),
        (LEASE_TIME, &seconds.to_be_bytes()),
    ];
    let change = client.input(0, &answer(&request, ACK, &options));
    let servers = [Some(Ipv4Addr::new(9, 9, 9, 9)), None, Some(Ipv4Addr::new(8, 8, 8, 8))];
    let configuration = Configuration { address: ADDRESS, prefix: 24, gateway: Some(SERVER_AT) };
    assert_eq!(change, Some(Change::Bound(Lease { configuration, servers })));
    (client, request)
}

#[test]
fn an_address_is_looked_for_asked_for_and_used() {
    let mut client = client();
    let (discover, to) = sent(&mut client, 0);
    assert!(to.is_none() && discover.len() >= 300 && discover[10] == 0x80);
    assert_eq!(value(&discover, MESSAGE_TYPE), Some([DISCOVER].to_vec()));
    assert_eq!(value(&discover, HOST_NAME), Some(b"web".to_vec()));
    assert!(client.input(0, &answer(&discover, OFFER, &[])).is_none());
    let (request, to) = sent(&mut client, 0);
    assert!(to.is_none());
    assert_eq!(value(&request, MESSAGE_TYPE), Some([REQUEST].to_vec()));
    assert_eq!(value(&request, REQUESTED_ADDRESS), Some(ADDRESS.octets().to_vec()));
    assert_eq!(value(&request, SERVER), Some(SERVER_AT.octets().to_vec()));
    bound(3600);
}

#[test]
fn it_is_asked_again_and_again_with_longer_waits() {
    let mut client = client();
    let mut now = 0;
    for wait in [1, 2, 4, 8, 16, 32, 64, 64] {
        sent(&mut client, now);
        assert_eq!(client.next_deadline(), now + wait * S);
        assert!(client.poll(now).0.is_none(), "not before its time");
        now = client.next_deadline();
    }
}

#[test]
fn an_offer_that_is_not_kept_is_forgotten() {
    let mut client = client();
    let (discover, _) = sent(&mut client, 0);
    client.input(0, &answer(&discover, OFFER, &[]));
    for _ in 0..REQUESTS {
        let now = client.next_deadline();
        assert_eq!(value(&sent(&mut client, now).0, MESSAGE_TYPE), Some([REQUEST].to_vec()));
    }
    let now = client.next_deadline();
    let (again, _) = sent(&mut client, now);
    assert_eq!(value(&again, MESSAGE_TYPE), Some([DISCOVER].to_vec()));
    assert_ne!(again[4..8], discover[4..8], "a new transaction");
    client.input(now, &answer(&again, OFFER, &[]));
    let (request, _) = sent(&mut client, now);
    assert_eq!(client.input(now, &answer(&request, NAK, &[])), None);
    assert_eq!(value(&sent(&mut client, now).0, MESSAGE_TYPE), Some([DISCOVER].to_vec()));
}

#[test]
fn a_lease_is_renewed_with_its_server_then_with_any_then_it_ends() {
    let (mut client, _) = bound(3600);
    assert_eq!(client.next_deadline(), 1800 * S);
    let (renew, to) = sent(&mut client, 1800 * S);
    assert_eq!(to, Some(SERVER_AT));
    assert!(renew[12..16] == ADDRESS.octets() && value(&renew, REQUESTED_ADDRESS).is_none());
    // The server answers: the lease begins anew.
    let longer = answer(&renew, ACK, &[(LEASE_TIME, &3600u32.to_be_bytes())]);
    assert!(matches!(client.input(1801 * S, &longer), Some(Change::Bound(_))));
    assert_eq!(client.next_deadline(), 3601 * S);
    // It does not: the next request goes to all servers.
    let mut asked = Vec::new();
    let lost = loop {
        let now = client.next_deadline();
        let (message, change) = client.poll(now);
        match message {
            Some(message) => asked.push(message.to),
            None => break (now, change),
        }
    };
    assert_eq!(lost, (5401 * S, Some(Change::Lost)));
    assert!(asked.first() == Some(&Some(SERVER_AT)) && asked.last() == Some(&None), "{asked:?}");
    assert!(asked.len() < 40 && client.lease().is_none());
    assert_eq!(value(&sent(&mut client, 5401 * S).0, MESSAGE_TYPE), Some([DISCOVER].to_vec()));
}

#[test]
fn a_lease_that_is_taken_back_is_lost_and_one_for_ever_never_ends() {
    let (mut client, _) = bound(3600);
    let (renew, _) = sent(&mut client, 1800 * S);
    assert_eq!(client.input(1800 * S, &answer(&renew, NAK, &[])), Some(Change::Lost));
    let (client, _) = bound(INFINITE);
    assert_eq!(client.next_deadline(), u64::MAX);
}

#[test]
fn what_a_host_cannot_have_is_no_offer() {
    for (address, mask) in [
        ([0, 0, 0, 0], [255, 255, 255, 0]),
        ([127, 0, 0, 1], [255, 0, 0, 0]),
        ([224, 0, 0, 1], [255, 0, 0, 0]),
        ([255, 255, 255, 255], [255, 0, 0, 0]),
        ([10, 0, 0, 2], [255, 0, 255, 0]),
        ([10, 0, 0, 2], [0, 0, 0, 0]),
    ] {
        let mut client = client();
        let (discover, _) = sent(&mut client, 0);
        let mut offer = answer(&discover, OFFER, &[(MASK, &mask)]);
        offer[16..20].copy_from_slice(&address);
        client.input(0, &offer);
        assert_eq!(client.state, State::Selecting, "{address:?} {mask:?}");
    }
}

#[test]
fn strangers_and_damaged_messages_change_nothing() {
    let mut client = client();
    let (discover, _) = sent(&mut client, 0);
    let offer = answer(&discover, OFFER, &[(MASK, &[255, 255, 255, 0])]);
    for (at, byte) in [(0, 1), (1, 2), (2, 7), (4, 1), (28, 9), (236, 0), (242, 99)] {
        let mut other = offer.clone();
        other[at] = byte;
        client.input(0, &other);
        assert_eq!(client.state, State::Selecting, "byte {at}");
    }
    // Any bytes behind the cookie, at any length: no panic, and nothing that cannot be.
    let mut random = 1u64;
    for n in 0..20_000 {
        let mut other = offer.clone();
        for _ in 0..n % 7 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = OPTIONS + (random >> 33) as usize % (other.len() - OPTIONS);
            other[at] = (random >> 25) as u8;
        }
        other.truncate(OPTIONS + n % (offer.len() - OPTIONS + 1));
        let mut client = Client::new(0, MAC, 77, "");
        sent(&mut client, 0);
        client.input(0, &other);
        sent(&mut client, u64::MAX / 2);
    }
}
