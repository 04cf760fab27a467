// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CRC-32C as ext4 and its journal use it (a running sum that is not inverted), and the CRC-16 of older group descriptors.

const fn table<const N: usize>(polynomial: u32) -> [u32; N] {
    let mut table = [0; N];
    let mut n = 0;
    while n < N {
        let (mut value, mut bit) = (n as u32, 0);
        while bit < 8 {
            value = if value & 1 != 0 { value >> 1 ^ polynomial } else { value >> 1 };
            bit += 1;
        }
        table[n] = value;
        n += 1;
    }
    table
}

/// Of the polynomials 0x1edc6f41 and 0x8005, reflected.
static CASTAGNOLI: [u32; 256] = table(0x82f6_3b78);
static ARC: [u32; 256] = table(0xa001);

fn continued(table: &[u32; 256], sum: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(sum, |sum, byte| sum >> 8 ^ table[((sum ^ u32::from(*byte)) & 0xff) as usize])
}

/// The sum of what was summed up to `sum`, and of `bytes` behind it.
pub fn crc32c(sum: u32, bytes: &[u8]) -> u32 {
    continued(&CASTAGNOLI, sum, bytes)
}

pub fn crc16(sum: u16, bytes: &[u8]) -> u16 {
    continued(&ARC, u32::from(sum), bytes) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_standards() {
        assert_eq!(!crc32c(!0, b"123456789"), 0xe306_9283);
        assert_eq!(crc16(0, b"123456789"), 0xbb3d);
    }
}
