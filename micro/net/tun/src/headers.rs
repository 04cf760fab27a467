// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Headers that a program has in front of its frames: `struct tun_pi` and `struct virtio_net_hdr` (virtio 1.2, 5.1.6).

use abi::{Result, errno::EINVAL};

/// Bytes of `struct tun_pi`: flags, and the protocol as Ethernet has it.
pub const PI: usize = 4;
/// The frame was longer than the reader's buffer (TUN_PKT_STRIP).
pub const STRIPPED: u16 = 1;
/// Bytes of `struct virtio_net_hdr`.
pub const VNET: usize = 10;
const NEEDS_CHECKSUM: u8 = 1;
pub const GSO_NONE: u8 = 0;
pub const GSO_TCPV4: u8 = 1;
pub const GSO_TCPV6: u8 = 4;
const GSO_ECN: u8 = 0x80;

/// What is left to whoever takes the frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vnet {
    /// The sum from `start` on goes to `start + offset`.
    pub checksum: Option<(usize, usize)>,
    /// How it is cut into segments of `segment_size` bytes.
    pub segmentation: u8,
    pub segment_size: usize,
}

impl Vnet {
    /// Reads the header of a frame of `length` bytes (Linux' `tun_get_user`). `little`: its numbers are so on every machine, and this
    /// machine's otherwise, which is the same here.
    pub fn parse(bytes: &[u8; VNET], length: usize) -> Result<Vnet> {
        let [flags, kind, h, i, s, t, a, b, c, d] = *bytes;
        let half = |low, high| usize::from(u16::from_le_bytes([low, high]));
        let (mut header, segment_size, start, offset) = (half(h, i), half(s, t), half(a, b), half(c, d));
        let checksum = (flags & NEEDS_CHECKSUM != 0).then_some((start, offset));
        if checksum.is_some() {
            header = header.max(start + offset + 2);
        }
        if header > length {
            return Err(EINVAL);
        }
        let segmentation = kind & !GSO_ECN;
        match segmentation {
            GSO_NONE => {}
            GSO_TCPV4 | GSO_TCPV6 if segment_size > 0 => {}
            _ => return Err(EINVAL),
        }
        Ok(Vnet { checksum, segmentation, segment_size })
    }
}

/// `struct tun_pi` of a frame for a reader.
pub fn pi(is_stripped: bool, protocol: u16) -> [u8; PI] {
    let [a, b] = (if is_stripped { STRIPPED } else { 0 }).to_ne_bytes();
    let [c, d] = protocol.to_be_bytes();
    [a, b, c, d]
}
