// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An echo server without a stack, in Rust: UDP datagrams to port 7 come back (RFC 862), and ARP is answered. It is
//! `examples/raw/echo.c` once more.
#![no_std]
#![no_main]

use unilith_raw::netdev::{Device, Info, Packet, serves_udp};
use unilith_raw::{Errno, eprintln, program, program::Arguments};

const PORT: u16 = 7;
/// Bytes of the headers of Ethernet, of ARP for IPv4, of IPv4 without options, and of UDP.
const ETHERNET: usize = 14;
const ARP: usize = 28;
const IP: usize = 20;
const UDP: usize = 8;

program!(main);

fn main(_: Arguments) -> i32 {
    match serve() {
        Ok(()) => 0,
        Err(why) => {
            eprintln!("echo: network device 0: {why}");
            1
        }
    }
}

fn serve() -> Result<(), Errno> {
    let device = Device::open(0)?;
    serves_udp(PORT);
    loop {
        let mut burst = device.receive()?;
        if burst.is_empty() {
            match device.wait(None) {
                Ok(_) | Err(Errno::EINTR) => continue,
                Err(why) => return Err(why),
            }
        }
        burst.retain(|packet| answer_udp(device.info(), packet) || answer_arp(device.info(), packet));
        // What the device has no room for is dropped with the burst, as on any wire.
        device.send(&mut burst)?;
    }
}

/// Makes a request for this machine's address its answer (RFC 826).
fn answer_arp(own: &Info, packet: &mut Packet) -> bool {
    /// ARP; Ethernet, IPv4, the lengths of their addresses, a request.
    const REQUEST: [u8; 10] = [8, 6, 0, 1, 8, 0, 6, 4, 0, 1];
    const LENGTH: usize = ETHERNET + ARP;
    if packet.len() < LENGTH || packet[12..22] != REQUEST || packet[38..42] != own.address {
        return false;
    }
    packet.copy_within(22..28, 0);
    packet[6..12].copy_from_slice(&own.mac);
    packet[21] = 2;
    packet.copy_within(22..32, 32);
    packet[22..28].copy_from_slice(&own.mac);
    packet[28..32].copy_from_slice(&own.address);
    packet.set_length(LENGTH).is_ok()
}

/// Turns a datagram for the port round. Swapped addresses leave the sums of both headers as they are.
fn answer_udp(own: &Info, packet: &mut Packet) -> bool {
    if packet.len() < ETHERNET + IP + UDP {
        return false;
    }
    let word = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
    let is_whole = word(20) & 0x3fff == 0;
    let is_udp = word(12) == 0x0800 && packet[14] == 0x45 && packet[23] == 17 && is_whole;
    let length = ETHERNET + usize::from(word(16));
    if !is_udp || packet[30..34] != own.address || word(36) != PORT || word(34) == PORT || length > packet.len() {
        return false;
    }
    swap(packet, 0, 6);
    swap(packet, 26, 4);
    swap(packet, 34, 2);
    if packet.is_checked() {
        // Its sum was not computed: none is allowed over IPv4 (RFC 768).
        packet[40..42].fill(0);
    }
    packet.set_length(length).is_ok()
}

/// Swaps two neighbours of so many bytes.
fn swap(packet: &mut Packet, at: usize, length: usize) {
    let (first, second) = packet[at..at + 2 * length].split_at_mut(length);
    first.swap_with_slice(second);
}
