// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Headers and segments without a stack.

use crate::headers::{GSO_TCPV4, VNET, Vnet};
use crate::segments;
use abi::errno::*;
use alloc::vec;
use alloc::vec::Vec;

fn sums_up(bytes: &[u8]) -> u32 {
    let mut sum: u32 = 0;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |b| u32::from(*b));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

/// A TCP packet with that payload, its sequence number 1000.
fn packet(payload: usize) -> Vec<u8> {
    let mut packet = vec![0; 40];
    let total = (40 + payload) as u16;
    (packet[0], packet[8], packet[9]) = (0x45, 64, 6);
    packet[2..4].copy_from_slice(&total.to_be_bytes());
    packet[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    packet[24..28].copy_from_slice(&1000u32.to_be_bytes());
    (packet[32], packet[33]) = (0x50, 0x19);
    packet.extend((0..payload).map(|at| at as u8));
    packet
}

#[test]
fn a_long_packet_becomes_segments_that_are_whole_packets() {
    let vnet = Vnet { checksum: None, segmentation: GSO_TCPV4, segment_size: 100 };
    let mut found = Vec::new();
    segments::each(&mut packet(250), &vnet, 0, &mut |segment| {
        found.push(Vec::from(segment.bytes()));
        Ok(())
    })
    .unwrap();
    assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [140, 140, 90]);
    let mut payload = Vec::new();
    for (at, segment) in found.iter().enumerate() {
        assert_eq!(sums_up(&segment[..20]), 0xffff);
        let pseudo =
            [&segment[12..20], &[0, 6], &(segment.len() as u16 - 20).to_be_bytes(), &segment[20..]].concat();
        assert_eq!(sums_up(&pseudo), 0xffff);
        assert_eq!(segment[24..28], (1000 + at as u32 * 100).to_be_bytes());
        // FIN and PSH are the last one's.
        assert_eq!(segment[33], if at == 2 { 0x19 } else { 0x10 });
        payload.extend_from_slice(&segment[40..]);
    }
    assert_eq!(payload, packet(250)[40..]);
}

#[test]
fn headers_that_do_not_fit_their_frame_are_refused() {
    let header = |flags, kind, length: u16, size: u16, start: u16, offset: u16| {
        let mut bytes = [0; VNET];
        (bytes[0], bytes[1]) = (flags, kind);
        for (at, number) in [length, size, start, offset].into_iter().enumerate() {
            bytes[2 + at * 2..4 + at * 2].copy_from_slice(&number.to_le_bytes());
        }
        bytes
    };
    assert_eq!(Vnet::parse(&header(0, 0, 0, 0, 0, 0), 0), Ok(Vnet::default()));
    assert_eq!(Vnet::parse(&header(0, 0, 41, 0, 0, 0), 40), Err(EINVAL));
    assert_eq!(Vnet::parse(&header(1, 0, 0, 0, 30, 9), 40), Err(EINVAL));
    assert_eq!(Vnet::parse(&header(1, 0, 0, 0, 20, 16), 40).unwrap().checksum, Some((20, 16)));
    assert_eq!(Vnet::parse(&header(0, 1, 0, 0, 0, 0), 40), Err(EINVAL));
    assert_eq!(Vnet::parse(&header(0, 3, 0, 100, 0, 0), 40), Err(EINVAL));
}

#[test]
fn no_frame_makes_segments_out_of_bounds() {
    let mut state = 11u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    for _ in 0..20_000 {
        let payload = random(200);
        let mut frame = packet(payload);
        for _ in 0..random(6) {
            let at = random(frame.len());
            frame[at] = random(256) as u8;
        }
        frame.truncate(random(frame.len() + 1));
        let (start, offset) = (random(frame.len() + 1), random(64));
        let checksum = (random(2) == 0 && start + offset + 2 <= frame.len()).then_some((start, offset));
        let segmentation = random(2) as u8;
        let vnet = Vnet { checksum, segmentation, segment_size: 1 + random(90) };
        let length = frame.len();
        let _ = segments::each(&mut frame, &vnet, 0, &mut |segment| {
            assert!(segment.len() <= length);
            Ok(())
        });
    }
}
