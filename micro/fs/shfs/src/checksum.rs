// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CRC-32C (Castagnoli; RFC 3720, appendix B.4), a nibble at a time: the table of a byte at a time would be 1 KiB of the image.

/// Of the polynomial 0x1edc6f41, reflected.
const POLYNOMIAL: u32 = 0x82f6_3b78;

const NIBBLES: [u32; 16] = {
    let mut table = [0; 16];
    let mut n = 0;
    while n < 16 {
        let (mut value, mut bit) = (n as u32, 0);
        while bit < 4 {
            value = if value & 1 != 0 { value >> 1 ^ POLYNOMIAL } else { value >> 1 };
            bit += 1;
        }
        table[n] = value;
        n += 1;
    }
    table
};

pub fn crc32c(bytes: &[u8]) -> u32 {
    let step = |sum: u32, byte: &u8| {
        let sum = sum ^ u32::from(*byte);
        let sum = sum >> 4 ^ NIBBLES[(sum & 15) as usize];
        sum >> 4 ^ NIBBLES[(sum & 15) as usize]
    };
    !bytes.iter().fold(!0, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_standard() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        // RFC 3720, B.4: 32 bytes of zeros, and of ones.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
    }
}
