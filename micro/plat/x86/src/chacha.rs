// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The generator behind random bytes: the ChaCha20 block function (RFC 8439, 2.3) with a new key for each request. It
//! is written for few instructions: requests are short, and the first is made at boot, where an instruction that runs
//! once costs more than one that runs often. Vector registers, which system calls would have to save, are not worth it.

/// "expand 32-byte k"
const CONSTANTS: [u32; 4] = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];

/// Bytes of a block, and of the part of a request's first block that becomes the next key.
const BLOCK: usize = 64;
pub const SEED: usize = 32;

/// Words of the four columns and the four diagonals.
const ROUNDS: [[usize; 4]; 8] = [
    [0, 4, 8, 12],
    [1, 5, 9, 13],
    [2, 6, 10, 14],
    [3, 7, 11, 15],
    [0, 5, 10, 15],
    [1, 6, 11, 12],
    [2, 7, 8, 13],
    [3, 4, 9, 14],
];

/// What a key is made of.
pub type Key = [u32; 8];

/// The block with that counter (a 64-bit one, and a nonce of 64 bits that is 0: every key is used once).
fn block(key: &Key, counter: u64) -> [u32; 16] {
    permute(&initial(key, [counter as u32, (counter >> 32) as u32, 0, 0]))
}

fn initial(key: &Key, rest: [u32; 4]) -> [u32; 16] {
    let mut state = [0; 16];
    state[..4].copy_from_slice(&CONSTANTS);
    state[4..12].copy_from_slice(key);
    state[12..].copy_from_slice(&rest);
    state
}

fn permute(initial: &[u32; 16]) -> [u32; 16] {
    let mut x = *initial;
    for _ in 0..10 {
        for [a, b, c, d] in ROUNDS {
            for (rotate_d, rotate_b) in [(16, 12), (8, 7)] {
                x[a] = x[a].wrapping_add(x[b]);
                x[d] = (x[d] ^ x[a]).rotate_left(rotate_d);
                x[c] = x[c].wrapping_add(x[d]);
                x[b] = (x[b] ^ x[c]).rotate_left(rotate_b);
            }
        }
    }
    for (x, initial) in x.iter_mut().zip(initial) {
        *x = x.wrapping_add(*initial);
    }
    x
}

/// The bytes of a block.
fn bytes(block: &[u32; 16]) -> [u8; BLOCK] {
    let mut out = [0; BLOCK];
    for (to, word) in out.chunks_exact_mut(4).zip(block) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    out
}

/// Fills `to`. A new key each time: what was handed out cannot be computed from the state later (Bernstein, "Fast-key-
/// erasure random-number generators").
pub fn generate(key: &mut Key, to: &mut [u8]) {
    let old = *key;
    let first = block(&old, 0);
    key.copy_from_slice(&first[..8]);
    let mut ready = bytes(&first);
    let mut used = SEED;
    let mut counter = 0;
    for byte in to {
        if used == BLOCK {
            counter += 1;
            ready = bytes(&block(&old, counter));
            used = 0;
        }
        *byte = ready[used];
        used += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_block_of_rfc_8439_comes_out() {
        // 2.3.2: key 00 01 .. 1f, counter 1, nonce 00 00 00 09 00 00 00 4a 00 00 00 00.
        let key = core::array::from_fn(|i| u32::from_le_bytes(core::array::from_fn(|b| (4 * i + b) as u8)));
        let out = permute(&initial(&key, [1, 0x0900_0000, 0x4a00_0000, 0]));
        let expected = [
            0xe4e7_f110,
            0x1559_3bd1,
            0x1fdd_0f50,
            0xc471_20a3,
            0xc7f4_d1c7,
            0x0368_c033,
            0x9aaa_2204,
            0x4e6c_d4c3,
            0x4664_82d2,
            0x09aa_9f07,
            0x05d7_c214,
            0xa202_8bd9,
            0xd19c_12b5,
            0xb94e_16de,
            0xe883_d0cb,
            0x4e3c_50a2,
        ];
        assert_eq!(out, expected);
    }

    #[test]
    fn a_request_is_one_stream_whatever_its_length_and_the_key_is_not_in_it() {
        let start: Key = core::array::from_fn(|i| i as u32 + 1);
        let mut long = [0; 300];
        let mut key = start;
        generate(&mut key, &mut long);
        for length in [0, 1, 31, 32, 33, 96, 97, 299] {
            let mut some = [0; 300];
            let mut other = start;
            generate(&mut other, &mut some[..length]);
            assert_eq!((&some[..length], other), (&long[..length], key));
            assert!(some[length..].iter().all(|b| *b == 0));
        }
        assert_ne!(key, start);
        let word = |i: usize| u32::from_le_bytes(core::array::from_fn(|b| long[4 * i + b]));
        assert!((0..75).all(|i| !key.contains(&word(i))));
        let before = long;
        generate(&mut key, &mut long);
        assert!(before.iter().zip(&long).filter(|(a, b)| a == b).count() < 20);
    }
}
