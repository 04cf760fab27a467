// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disks of the BIOS (EDD-3, T13 1572D).

/// Numbers of hard disks, and of CDs as far as firmware gives them any.
pub const NUMBERS: [core::ops::Range<u8>; 2] = [0x80..0x90, 0xe0..0xf0];
/// Bytes of what AH=48h answers, the first of which say so.
pub const PARAMETERS: usize = 30;
/// Bytes of a call's buffer: so many are read at once.
pub const BUFFER: usize = 32 << 10;

/// Bytes of a disk's blocks, by what AH=48h answers: a power of two that the buffer is a multiple of.
pub fn block(parameters: &[u8; PARAMETERS]) -> Option<usize> {
    let bytes = u16::from_le_bytes([parameters[24], parameters[25]]).into();
    matches!(bytes, 512 | 1024 | 2048 | 4096).then_some(bytes)
}

/// The packet of AH=42h: `blocks` from `first` on to memory at `address`, below 1 MiB.
pub fn packet(blocks: u16, address: u32, first: u64) -> [u8; 16] {
    let mut out = [0; 16];
    out[0] = 16;
    out[2..4].copy_from_slice(&blocks.to_le_bytes());
    out[4..6].copy_from_slice(&((address & 15) as u16).to_le_bytes());
    out[6..8].copy_from_slice(&((address >> 4) as u16).to_le_bytes());
    out[8..].copy_from_slice(&first.to_le_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_other_sizes_are_not_read() {
        let with = |bytes: u16| {
            let mut parameters = [0; PARAMETERS];
            parameters[24..26].copy_from_slice(&bytes.to_le_bytes());
            block(&parameters)
        };
        assert_eq!([512, 2048, 4096].map(with), [Some(512), Some(2048), Some(4096)]);
        assert_eq!([0, 1, 520, 513, u16::MAX].map(with), [None; 5]);
    }

    #[test]
    fn a_packet_is_as_the_bios_reads_it() {
        let expected = [16, 0, 64, 0, 8, 0, 0x34, 0x12, 0x28, 0, 0, 0, 1, 0, 0, 0];
        assert_eq!(packet(64, 0x12348, 0x1_0000_0028), expected);
    }
}
