// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random bytes: a ChaCha20 generator, seeded by the processor and by whatever devices add.

use crate::chacha::{Key, SEED, generate};
use crate::{features::features, rdtsc};
use api_lock::SpinLock;

static KEY: SpinLock<Option<Key>> = SpinLock::new(None);

#[unsafe(no_mangle)]
fn unilith_plat_entropy(to: &mut [u8]) {
    generate(KEY.lock().get_or_insert_with(first_key), to);
}

/// Mixes bytes of a device in. The state is never worse than before.
pub fn add_entropy(bytes: &[u8]) {
    let mut key = KEY.lock();
    let key = key.get_or_insert_with(first_key);
    for chunk in bytes.chunks(SEED) {
        generate(key, &mut []);
        for (i, byte) in chunk.iter().enumerate() {
            key[i / 4] ^= u32::from(*byte) << (i % 4 * 8);
        }
        generate(key, &mut []);
    }
}

/// RDSEED or RDRAND where there is one, with the time-stamp counter mixed in. On a processor without either the seed
/// is only as good as the boot's timing, until a device adds to it.
fn first_key() -> Key {
    let features = features();
    let mut key = Key::default();
    let mut mix = rdtsc();
    for words in key.chunks_exact_mut(2) {
        // splitmix64 spreads the few unknown bits of the counter over the word.
        mix = mix.wrapping_add(0x9e37_79b9_7f4a_7c15) ^ rdtsc();
        let mut x = (mix ^ mix >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        let mut value = x ^ x >> 31;
        if let Some(random) = hardware(features.rdseed, features.rdrand) {
            value ^= random;
        }
        words.copy_from_slice(&[value as u32, (value >> 32) as u32]);
    }
    key
}

/// One word of the processor's generator. Both instructions may have nothing for a moment (Intel SDM volume 1,
/// 7.3.17): ten tries.
fn hardware(rdseed: bool, rdrand: bool) -> Option<u64> {
    for _ in 0..10 {
        let (value, ok): (u64, u8);
        // SAFETY: CPUID says that the instruction is there.
        unsafe {
            if rdseed {
                core::arch::asm!("rdseed {}", "setc {}", out(reg) value, out(reg_byte) ok, options(nomem, nostack));
            } else if rdrand {
                core::arch::asm!("rdrand {}", "setc {}", out(reg) value, out(reg_byte) ok, options(nomem, nostack));
            } else {
                return None;
            }
        }
        if ok != 0 {
            return Some(value);
        }
    }
    None
}
