// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two stacks with IPv6, and frames of it made by hand.

use super::{Faults, Side, World};
use api_fs::Source;
use api_socket::{Address, Sending, Socket, SocketAddressV6};
use std::net::Ipv6Addr;
use std::sync::{Arc, Mutex};
use tcpip::hash::Keyed;
use tcpip::ipv6::{Configuration, wire};
use tcpip::sockets::{DatagramSocket, Domain, StreamSocket};

pub const UDP: u8 = 17;
pub const ICMPV6: u8 = 58;
pub const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// Of a stranger, whose frames are made here.
pub const STRANGER: [u8; 6] = [2, 0, 0, 0, 0, 0x77];

pub fn ip(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

pub fn at(text: &str, port: u16) -> Address {
    let scope = if text.starts_with("fe80") || text.starts_with("ff02") { 2 } else { 0 };
    Address::v6(SocketAddressV6 { address: ip(text).octets(), port, flow: 0, scope })
}

pub fn text_of(address: &Address) -> (String, u16, u32) {
    let v6 = address.as_v6().unwrap();
    (Ipv6Addr::from(v6.address).to_string(), v6.port, v6.scope)
}

pub fn configure(side: &Side, address: &str, gateway: Option<&str>, is_automatic: bool) {
    let addresses = if address.is_empty() { Vec::new() } else { vec![(ip(address), 64)] };
    let configuration = Configuration { addresses, gateway: gateway.map(ip), is_automatic };
    side.net.act(|s, now| s.ip.configure6(now, &configuration, Keyed::new(5)));
}

/// 2001:db8::1 and 2001:db8::2, whose link-local addresses are fe80::ff:fe00:1 and :2.
pub fn world(faults: Faults, segmentation: usize) -> World {
    let world = World::new(faults, segmentation, 3);
    configure(&world.a, "2001:db8::1", None, false);
    configure(&world.b, "2001:db8::2", None, false);
    world
}

pub fn datagram(side: &Side) -> Arc<DatagramSocket> {
    DatagramSocket::new(side.net.clone(), Domain::V6, 0).unwrap()
}

pub fn stream(side: &Side) -> Arc<StreamSocket> {
    StreamSocket::new(side.net.clone(), Domain::V6, 0).unwrap()
}

pub fn say(from: &dyn Socket, to: &Address, bytes: &[u8]) -> abi::Result<usize> {
    let message = Sending { to: Some(to.clone()), ..Sending::default() };
    from.send(None, &message, &mut Source::kernel(bytes))
}

pub fn set(socket: &dyn Socket, name: i32, value: i32) {
    socket.set_option(41, name, &value.to_ne_bytes()).unwrap();
}

/// What a side sends, from now on.
pub fn listen_to(side: &Side) -> Arc<Mutex<Vec<Vec<u8>>>> {
    let heard: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
    let to = heard.clone();
    *side.device.filter.lock().unwrap() = Some(Box::new(move |frame: &[u8]| {
        to.lock().unwrap().push(frame.to_vec());
        true
    }));
    heard
}

pub fn messages(heard: &Mutex<Vec<Vec<u8>>>, kind: u8) -> Vec<Vec<u8>> {
    let all = heard.lock().unwrap();
    let is_it = |f: &&Vec<u8>| f.len() > 54 && f[12..14] == [0x86, 0xdd] && f[20] == ICMPV6 && f[54] == kind;
    all.iter().filter(is_it).cloned().collect()
}

/// A frame of IPv6, with the checksum where the protocol has it.
pub fn frame(source: &str, to: &str, next: u8, hops: u8, payload: &[u8]) -> Vec<u8> {
    let header = wire::Header {
        source: ip(source),
        destination: ip(to),
        next,
        hops,
        class: 0,
        payload: payload.len(),
    };
    let mut out = [&MAC[..], &STRANGER, &[0x86, 0xdd], &header.bytes(), payload].concat();
    if let Some(at) = [(UDP, 6), (ICMPV6, 2)].iter().find(|(protocol, _)| *protocol == next).map(|one| one.1)
    {
        let sum =
            wire::pseudo(&header.source, &header.destination, next, payload.len()).add(payload).finish();
        out[54 + at..56 + at].copy_from_slice(&sum.to_be_bytes());
    }
    out
}

pub fn udp(source: u16, to: u16, bytes: &[u8]) -> Vec<u8> {
    let length = (8 + bytes.len()) as u16;
    let fields = [source, to, length, 0].map(u16::to_be_bytes);
    [fields.as_flattened(), bytes].concat()
}

/// An advertisement with a prefix of 2001:db8:5::/64 and the lifetimes, in seconds.
pub fn router_advertisement(lifetime: u16, valid: u32, preferred: u32) -> Vec<u8> {
    let mut message = vec![134, 0, 0, 0, 64, 0];
    message.extend(lifetime.to_be_bytes());
    message.extend([0; 8]);
    message.extend([&[1, 1], &STRANGER[..]].concat());
    message.extend([3, 4, 64, 0xc0]);
    message.extend(valid.to_be_bytes());
    message.extend(preferred.to_be_bytes());
    message.extend([0; 4]);
    message.extend(ip("2001:db8:5::").octets());
    message
}

pub fn addresses(side: &Side) -> Vec<String> {
    side.net.look(|s| {
        let all = &s.ip.v6.as_ref().unwrap().addresses.all;
        all.iter().filter(|one| one.is_assigned()).map(|one| one.address.to_string()).collect()
    })
}

pub fn say_to(socket: &dyn Socket, to: &str) -> abi::Result<usize> {
    say(socket, &at(to, 9), b"x")
}
