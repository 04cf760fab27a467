// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sums of damaged frames made right again, so that the damage gets past them.

use tcpip::wire::{Ipv4, Sum};

/// Of the headers of a frame of IPv4 or IPv6, where there are any.
pub fn repair(frame: &mut [u8]) {
    if frame.len() >= 54 && frame[12..14] == [0x86, 0xdd] {
        return repair6(frame);
    }
    if frame.len() < 34 || frame[12..14] != [8, 0] {
        return;
    }
    frame[24..26].fill(0);
    let header = usize::from(frame[14] & 15) * 4;
    if header < 20 || frame.len() < 14 + header {
        return;
    }
    let sum = tcpip::wire::checksum(&frame[14..14 + header]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    let Some(ip) = Ipv4::parse(&frame[14..]) else { return };
    let (start, end) = (14 + ip.header, (14 + ip.total).min(frame.len()));
    let at = match ip.protocol {
        1 => 2,
        6 => 16,
        17 => 6,
        _ => return,
    };
    if start + at + 2 > end {
        return;
    }
    frame[start + at..start + at + 2].fill(0);
    let mut sum = match ip.protocol {
        1 => Sum::default(),
        protocol => Sum::pseudo(ip.source, ip.destination, protocol, end - start),
    };
    let value = sum.add(&frame[start..end]).finish();
    frame[start + at..start + at + 2].copy_from_slice(&value.to_be_bytes());
}

/// The same of IPv6 without extension headers.
fn repair6(frame: &mut [u8]) {
    let Some(header) = tcpip::ipv6::wire::Header::parse(&frame[14..]) else { return };
    let Some(at) =
        [(6, 16), (17, 6), (58, 2)].iter().find(|(next, _)| *next == header.next).map(|one| 54 + one.1)
    else {
        return;
    };
    let end = (54 + header.payload).min(frame.len());
    if at + 2 > end {
        return;
    }
    frame[at..at + 2].fill(0);
    let mut sum = tcpip::ipv6::wire::pseudo(&header.source, &header.destination, header.next, end - 54);
    let value = sum.add(&frame[54..end]).finish();
    frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
}
