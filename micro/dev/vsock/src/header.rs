// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The header of a packet (virtio 1.2, 5.10.6).

/// Bytes of a header.
pub const HEADER: usize = 44;
/// The host's context identifier.
pub const HOST_CID: u64 = 2;
/// The type of stream sockets.
pub const STREAM: u16 = 1;

/// What a packet does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation(pub u16);

impl Operation {
    pub const REQUEST: Operation = Operation(1);
    pub const RESPONSE: Operation = Operation(2);
    pub const RST: Operation = Operation(3);
    pub const SHUTDOWN: Operation = Operation(4);
    pub const RW: Operation = Operation(5);
    pub const CREDIT_UPDATE: Operation = Operation(6);
    pub const CREDIT_REQUEST: Operation = Operation(7);
}

/// A header, fields in the order of the standard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub source_cid: u64,
    pub target_cid: u64,
    pub source_port: u32,
    pub target_port: u32,
    /// Bytes of the payload behind the header.
    pub length: u32,
    /// [`STREAM`].
    pub kind: u16,
    pub operation: Operation,
    pub flags: u32,
    /// Bytes that the sender of this packet buffers for its reader (`buf_alloc`).
    pub buffer: u32,
    /// Bytes that this reader has taken so far, modulo 2^32 (`fwd_cnt`).
    pub taken: u32,
}

impl Header {
    /// Reads the header in front of `packet`; `None` when the packet is shorter.
    pub fn decode(packet: &[u8]) -> Option<Header> {
        let mut rest = packet;
        Some(Header {
            source_cid: u64::from_le_bytes(take(&mut rest)?),
            target_cid: u64::from_le_bytes(take(&mut rest)?),
            source_port: u32::from_le_bytes(take(&mut rest)?),
            target_port: u32::from_le_bytes(take(&mut rest)?),
            length: u32::from_le_bytes(take(&mut rest)?),
            kind: u16::from_le_bytes(take(&mut rest)?),
            operation: Operation(u16::from_le_bytes(take(&mut rest)?)),
            flags: u32::from_le_bytes(take(&mut rest)?),
            buffer: u32::from_le_bytes(take(&mut rest)?),
            taken: u32::from_le_bytes(take(&mut rest)?),
        })
    }

    pub fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[0..8].copy_from_slice(&self.source_cid.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.target_cid.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.source_port.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.target_port.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.length.to_le_bytes());
        bytes[28..30].copy_from_slice(&self.kind.to_le_bytes());
        bytes[30..32].copy_from_slice(&self.operation.0.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.flags.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.buffer.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.taken.to_le_bytes());
        bytes
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(*bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_was_written_and_a_shorter_packet_is_none() {
        let header = Header {
            source_cid: 3,
            target_cid: HOST_CID,
            source_port: 0x1234_5678,
            target_port: 7,
            length: 9,
            kind: STREAM,
            operation: Operation::RW,
            flags: 0x0102_0304,
            buffer: 4096,
            taken: u32::MAX,
        };
        let bytes = header.encode();
        // The port is little-endian, behind both identifiers.
        assert_eq!((bytes[0], bytes[8], &bytes[16..20]), (3, 2, &[0x78, 0x56, 0x34, 0x12][..]));
        assert_eq!(Header::decode(&bytes), Some(header));
        assert_eq!(Header::decode(&[&bytes[..], b"payload"].concat()), Some(header));
        assert_eq!(Header::decode(&bytes[..HEADER - 1]), None);
    }
}
