// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is known of numbers stays true under every operation and comparison.

use super::{Random, rounds};
use crate::insn::{alu, jump};
use crate::interpreter::{arithmetic, compares};
use crate::verify::{Scalar, refine};

/// Something that is known of `n`, by way of comparisons and masks.
fn known(random: &mut Random, n: u64) -> Scalar {
    let mut s = Scalar::UNKNOWN;
    if random.below(4) == 0 {
        return Scalar::constant(n);
    }
    for _ in 0..random.below(4) {
        let m = random.number();
        let operation = (random.below(13) as u8 + 1) << 4;
        if matches!(operation, jump::CALL | jump::EXIT) {
            continue;
        }
        let wide = random.below(2) == 0;
        let holds = compares(operation, n, m, wide);
        (s, _) = refine(operation, holds, s, Scalar::constant(m), wide).expect("n is one");
        assert!(s.contains(n), "{operation:#x} {n:#x} {m:#x} {wide}: {s:?}");
    }
    s
}

const OPERATIONS: [u8; 12] = [
    alu::ADD,
    alu::SUB,
    alu::MUL,
    alu::DIV,
    alu::OR,
    alu::AND,
    alu::LSH,
    alu::RSH,
    alu::MOD,
    alu::XOR,
    alu::ARSH,
    alu::NEG,
];

#[test]
fn results_of_arithmetic_are_among_what_is_known() {
    let mut random = Random(0x1357_9bdf_0246_8ace);
    for _ in 0..rounds(300_000) {
        let (p, q) = (random.number(), random.number());
        let (a, b) = (known(&mut random, p), known(&mut random, q));
        let operation = OPERATIONS[random.below(12) as usize];
        let (wide, signed) = (random.below(2) == 0, random.below(2) == 0);
        let r = a.compute(operation, b, wide, signed);
        let n = arithmetic(operation, p, q, wide, signed);
        assert!(
            r.contains(n),
            "{p:#x} {operation:#x} {q:#x} wide {wide} signed {signed} = {n:#x}\n{a:?}\n{b:?}\n{r:?}"
        );
        assert!(a.zero_extended().contains(p & 0xffff_ffff));
        for bits in [8, 16, 32] {
            let n = ((p << (64 - bits)) as i64 >> (64 - bits)) as u64;
            assert!(a.sign_extended(bits).contains(n), "{p:#x} {bits} {a:?}");
        }
        for (bits, n) in [
            (16, u64::from((p as u16).swap_bytes())),
            (32, u64::from((p as u32).swap_bytes())),
            (64, p.swap_bytes()),
        ] {
            assert!(a.byte_order(bits, true).contains(n));
        }
    }
}

#[test]
fn comparisons_never_exclude_what_holds() {
    let mut random = Random(0xfeed_beef_0bad_cafe);
    for _ in 0..rounds(300_000) {
        let p = random.number();
        let q = if random.below(3) == 0 {
            p.wrapping_add(random.below(3)).wrapping_sub(1)
        } else {
            random.number()
        };
        let (a, b) = (known(&mut random, p), known(&mut random, q));
        let operation = (random.below(13) as u8 + 1) << 4;
        if matches!(operation, jump::CALL | jump::EXIT) {
            continue;
        }
        let wide = random.below(2) == 0;
        let holds = compares(operation, p, q, wide);
        let refined = refine(operation, holds, a, b, wide);
        let (x, y) =
            refined.unwrap_or_else(|| panic!("{p:#x} {operation:#x} {q:#x} {wide} excluded\n{a:?}\n{b:?}"));
        assert!(
            x.contains(p) && y.contains(q),
            "{p:#x} {operation:#x} {q:#x} {wide}\n{a:?} {b:?}\n{x:?} {y:?}"
        );
        assert!(a.holds(&x) && b.holds(&y), "a comparison adds knowledge");
    }
}
