// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a program leaves to the device that takes its frames: checksums, and TCP packets that are longer than a segment.

use crate::headers::{GSO_NONE, GSO_TCPV4, Vnet};
use abi::{Result, errno::*};
use api_netdev::{Buffer, HEADROOM};

const IPPROTO_TCP: u8 = 6;
const FIN: u8 = 1;
const PSH: u8 = 8;
const CWR: u8 = 0x80;

/// The ones' complement sum of RFC 1071, not folded.
fn sum(bytes: &[u8]) -> u64 {
    let (pairs, rest) = bytes.as_chunks::<2>();
    let whole: u64 = pairs.iter().map(|pair| u64::from(u16::from_be_bytes(*pair))).sum();
    whole + rest.first().map_or(0, |last| u64::from(*last) << 8)
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Completes the checksum whose pseudo header is summed up already. `EINVAL` where it does not lie in the frame.
pub fn complete(frame: &mut [u8], (start, offset): (usize, usize)) -> Result<()> {
    let at = start + offset;
    if at + 2 > frame.len() {
        return Err(EINVAL);
    }
    let value = fold(sum(&frame[start..]));
    // UDP: 0 means that there is none.
    let value = if value == 0 { 0xffff } else { value };
    frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
    Ok(())
}

/// A buffer with that in it, and room in front.
pub fn buffer(pieces: &[&[u8]]) -> Result<Buffer> {
    let headroom = HEADROOM.device + HEADROOM.protocols;
    let length: usize = pieces.iter().map(|piece| piece.len()).sum();
    let mut buffer = Buffer::new(headroom + length, headroom).ok_or(ENOBUFS)?;
    if pieces.iter().all(|piece| buffer.append(piece)) { Ok(buffer) } else { Err(ENOBUFS) }
}

/// The parts of a TCP packet in a frame.
struct Parts {
    ip: usize,
    tcp: usize,
    payload: usize,
    /// Behind what the IP header says, Ethernet has padding.
    end: usize,
}

impl Parts {
    /// `EINVAL` where it is no TCP over IPv4, or is cut off.
    fn of(frame: &[u8], link: usize) -> Result<Parts> {
        let ip = frame.get(link..link + 20).ok_or(EINVAL)?;
        let header = usize::from(ip[0] & 15) * 4;
        let total = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
        if ip[0] >> 4 != 4
            || header < 20
            || ip[9] != IPPROTO_TCP
            || u16::from_be_bytes([ip[6], ip[7]]) & 0x3fff != 0
        {
            return Err(EINVAL);
        }
        let tcp = link + header;
        let length = usize::from(frame.get(tcp + 12).ok_or(EINVAL)? >> 4) * 4;
        let (payload, end) = (tcp + length, link + total);
        if length < 20 || payload > end || end > frame.len() {
            return Err(EINVAL);
        }
        Ok(Parts { ip: link, tcp, payload, end })
    }
}

/// Gives each frame that this one stands for to `put`. `link`: bytes of the link's header.
pub fn each(
    frame: &mut [u8],
    vnet: &Vnet,
    link: usize,
    put: &mut dyn FnMut(Buffer) -> Result<()>,
) -> Result<()> {
    match vnet.segmentation {
        GSO_NONE => {
            if let Some(checksum) = vnet.checksum {
                complete(frame, checksum)?;
            }
            return put(buffer(&[frame])?);
        }
        GSO_TCPV4 => {}
        // The stack takes no IPv6: the frame is whole to whoever else gets it.
        _ => return put(buffer(&[frame])?),
    }
    let parts = Parts::of(frame, link)?;
    let first = u32::from_be_bytes([
        frame[parts.tcp + 4],
        frame[parts.tcp + 5],
        frame[parts.tcp + 6],
        frame[parts.tcp + 7],
    ]);
    let id = u16::from_be_bytes([frame[parts.ip + 4], frame[parts.ip + 5]]);
    let payload = &frame[parts.payload..parts.end];
    let count = payload.len().div_ceil(vnet.segment_size).max(1);
    for at in 0..count {
        let from = at * vnet.segment_size;
        let piece = &payload[from..payload.len().min(from + vnet.segment_size)];
        let mut segment = buffer(&[&frame[..parts.payload], piece])?;
        let bytes = segment.bytes_mut();
        let total = (bytes.len() - parts.ip) as u16;
        bytes[parts.ip + 2..parts.ip + 4].copy_from_slice(&total.to_be_bytes());
        bytes[parts.ip + 4..parts.ip + 6].copy_from_slice(&id.wrapping_add(at as u16).to_be_bytes());
        bytes[parts.ip + 10..parts.ip + 12].fill(0);
        let value = fold(sum(&bytes[parts.ip..parts.tcp]));
        bytes[parts.ip + 10..parts.ip + 12].copy_from_slice(&value.to_be_bytes());
        let sequence = first.wrapping_add(from as u32);
        bytes[parts.tcp + 4..parts.tcp + 8].copy_from_slice(&sequence.to_be_bytes());
        if at + 1 < count {
            bytes[parts.tcp + 13] &= !(FIN | PSH);
        }
        if at > 0 {
            bytes[parts.tcp + 13] &= !CWR;
        }
        bytes[parts.tcp + 16..parts.tcp + 18].fill(0);
        let length = (bytes.len() - parts.tcp) as u64;
        let pseudo = sum(&bytes[parts.ip + 12..parts.ip + 20]) + u64::from(IPPROTO_TCP) + length;
        let value = fold(pseudo + sum(&bytes[parts.tcp..]));
        bytes[parts.tcp + 16..parts.tcp + 18].copy_from_slice(&value.to_be_bytes());
        put(segment)?;
    }
    Ok(())
}
