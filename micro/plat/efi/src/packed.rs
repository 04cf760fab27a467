// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bytes that were packed: how many they are, 8 bytes, little-endian, and a stream of zlib (RFC 1950), which ends with a sum of them.

use miniz_oxide::inflate::{
    TINFLStatus,
    core::{DecompressorOxide, decompress, inflate_flags},
};

/// Bytes of the size.
const SIZE: usize = 8;

/// Packs bytes.
#[cfg(any(test, feature = "encode"))]
pub fn pack(bytes: &[u8]) -> alloc::vec::Vec<u8> {
    // More effort than 8 takes twice the time for less than a hundredth of the size.
    const EFFORT: u8 = 8;
    let mut out = (bytes.len() as u64).to_le_bytes().to_vec();
    out.extend(miniz_oxide::deflate::compress_to_vec_zlib(bytes, EFFORT));
    out
}

/// What [`pack`] wrote.
#[derive(Clone, Copy, Debug)]
pub struct Packed<'a> {
    size: usize,
    stream: &'a [u8],
}

impl<'a> Packed<'a> {
    /// `None`: it is damaged.
    pub fn decode(bytes: &'a [u8]) -> Option<Packed<'a>> {
        let (size, stream) = bytes.split_first_chunk::<SIZE>()?;
        Some(Packed { size: usize::try_from(u64::from_le_bytes(*size)).ok()?, stream })
    }

    /// How many bytes they are.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Unpacks them to exactly as many bytes; whether these are what was packed. 11 KiB of stack are used.
    pub fn unpack(&self, to: &mut [u8]) -> bool {
        let flags = inflate_flags::TINFL_FLAG_PARSE_ZLIB_HEADER
            | inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF
            | inflate_flags::TINFL_FLAG_COMPUTE_ADLER32;
        let (status, _, written) = decompress(&mut DecompressorOxide::new(), self.stream, to, 0, flags);
        status == TINFLStatus::Done && written == to.len() && written == self.size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_unpacked_as_they_were_packed() {
        for length in [0, 1, 4096, 100_000] {
            let bytes: alloc::vec::Vec<u8> = (0..length).map(|n: u32| ((n / 7) ^ n) as u8).collect();
            let packed = pack(&bytes);
            let packed = Packed::decode(&packed).unwrap();
            let mut out = alloc::vec![0xff; packed.size()];
            assert!(packed.unpack(&mut out) && out == bytes, "{length}");
            out.push(0);
            assert!(!packed.unpack(&mut out), "more room than bytes");
        }
    }

    #[test]
    fn damaged_bytes_are_refused() {
        let bytes: alloc::vec::Vec<u8> =
            (0..5000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 25) as u8).collect();
        let packed = pack(&bytes);
        let mut out = alloc::vec![0; bytes.len()];
        for length in 0..packed.len() {
            let is_read = Packed::decode(&packed[..length]).is_some_and(|packed| packed.unpack(&mut out));
            assert!(!is_read, "{length}");
        }
        for at in SIZE..packed.len() {
            let mut damaged = packed.clone();
            damaged[at] ^= 0x10;
            let is_read = Packed::decode(&damaged).is_some_and(|packed| packed.unpack(&mut out));
            assert!(!is_read || out == bytes, "{at}");
        }
    }
}
