// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is known of a number: its bits, and its ranges in 64 and 32 bits, each signed and unsigned.

use super::range::{Range32, Range64};
use super::tnum::Tnum;
use crate::insn::{alu, jump};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scalar {
    pub bits: Tnum,
    pub wide: Range64,
    /// Of the lower 32 bits.
    pub low: Range32,
}

impl Scalar {
    pub const UNKNOWN: Scalar = Scalar { bits: Tnum::UNKNOWN, wide: Range64::ALL, low: Range32::ALL };

    pub const fn constant(value: u64) -> Scalar {
        Scalar {
            bits: Tnum::constant(value),
            wide: Range64::constant(value),
            low: Range32::constant(value as u32),
        }
    }

    /// A number that was loaded from `size` bytes.
    pub fn loaded(size: u32) -> Scalar {
        match size {
            8 => Scalar::UNKNOWN,
            _ => Scalar::between(0, (1 << (size * 8)) - 1),
        }
    }

    pub fn between(min: u64, max: u64) -> Scalar {
        let s = Scalar { wide: Range64::unsigned(min, max), ..Scalar::UNKNOWN };
        s.settle().unwrap_or(s)
    }

    pub fn is_constant(&self) -> bool {
        self.bits.is_constant()
    }

    pub fn value(&self) -> Option<u64> {
        self.bits.is_constant().then_some(self.bits.value)
    }

    /// Every number of `other` is one of `self`.
    pub fn holds(&self, other: &Scalar) -> bool {
        self.bits.holds(other.bits) && self.wide.holds(other.wide) && self.low.holds(other.low)
    }

    #[cfg(test)]
    pub fn contains(&self, n: u64) -> bool {
        self.bits.contains(n)
            && (self.wide.umin..=self.wide.umax).contains(&n)
            && (self.wide.smin..=self.wide.smax).contains(&(n as i64))
            && (self.low.umin..=self.low.umax).contains(&(n as u32))
            && (self.low.smin..=self.low.smax).contains(&(n as i32))
    }

    /// Lets each of the parts learn from the others; `None` when they contradict each other: no number is left.
    pub fn settle(mut self) -> Option<Scalar> {
        // Twice is enough for what one part tells the second and that the third.
        for _ in 0..2 {
            self.learn_from_bits();
            self.wide = self.wide.settle();
            self.low = self.low.settle();
            self.wide_to_low();
            self.low_to_wide();
            self.wide = self.wide.settle();
            self.low = self.low.settle();
            if self.wide.is_empty() || self.low.is_empty() {
                return None;
            }
            let low = Tnum::range(self.low.umin.into(), self.low.umax.into());
            let low = Tnum { value: low.value, mask: low.mask | 0xffff_ffff_0000_0000 };
            self.bits = self.bits.intersect(Tnum::range(self.wide.umin, self.wide.umax))?.intersect(low)?;
        }
        Some(self)
    }

    fn learn_from_bits(&mut self) {
        let (v, m) = (self.bits.value, self.bits.mask);
        let sign = 1 << 63;
        self.wide = self.wide.intersect(Range64 {
            umin: v,
            umax: v | m,
            smin: (v | m & sign) as i64,
            smax: (v | m & !sign) as i64,
        });
        let (v, m) = (v as u32, m as u32);
        let sign = 1 << 31;
        self.low = self.low.intersect(Range32 {
            umin: v,
            umax: v | m,
            smin: (v | m & sign) as i32,
            smax: (v | m & !sign) as i32,
        });
    }

    /// Where the upper halves of both ends are the same, the lower halves are ends of the lower range.
    fn wide_to_low(&mut self) {
        let w = self.wide;
        if w.umin >> 32 == w.umax >> 32 {
            self.low = self.low.intersect(Range32::unsigned(w.umin as u32, w.umax as u32));
        }
        if w.smin >> 32 == w.smax >> 32 && w.smin <= w.smax {
            self.low = self.low.intersect(Range32::unsigned(w.smin as u32, w.smax as u32));
        }
    }

    /// An end of the wide range cannot have a lower half outside of the lower range.
    fn low_to_wide(&mut self) {
        let (min, max) = (u64::from(self.low.umin), u64::from(self.low.umax));
        let upper = 0xffff_ffff_0000_0000;
        let w = &mut self.wide;
        w.umin = w.umin.max(w.umin & upper | min);
        w.umax = w.umax.min(w.umax & upper | max);
        w.smin = w.smin.max((w.smin as u64 & upper | min) as i64);
        w.smax = w.smax.min((w.smax as u64 & upper | max) as i64);
    }

    /// The lower half, with zeros above.
    pub fn zero_extended(self) -> Scalar {
        let s = Scalar {
            bits: self.bits.low(),
            wide: Range64::unsigned(self.low.umin.into(), self.low.umax.into()),
            low: self.low,
        };
        s.settle().unwrap_or(Scalar { low: Range32::ALL, ..Scalar::between(0, u32::MAX.into()) })
    }

    /// The lower `bits` (8, 16, 32), with copies of their sign above.
    pub fn sign_extended(self, bits: u32) -> Scalar {
        let (min, max) = (-1i64 << (bits - 1), (1i64 << (bits - 1)) - 1);
        let mut wide = Range64 { smin: min, smax: max, ..Range64::ALL };
        if self.wide.smin >= min && self.wide.smax <= max {
            wide = self.wide;
        } else if bits == 32 {
            (wide.smin, wide.smax) = (self.low.smin.into(), self.low.smax.into());
        }
        let s = Scalar { bits: self.bits.sign_extend(bits), wide, low: Range32::ALL };
        s.settle().unwrap_or(Scalar::UNKNOWN)
    }

    /// `bits` (16, 32, 64) of it, the bytes reversed or not.
    pub fn byte_order(self, bits: u32, swap: bool) -> Scalar {
        let mask = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
        let turn = |v: u64| if swap { (v & mask).swap_bytes() >> (64 - bits) } else { v & mask };
        let bits = Tnum { value: turn(self.bits.value), mask: turn(self.bits.mask) };
        let s = Scalar { bits, ..Scalar::UNKNOWN };
        s.settle().unwrap_or(Scalar::UNKNOWN)
    }

    /// An arithmetic operation; `wide` for 64 bits, `signed` for signed division and remainder.
    pub fn compute(self, operation: u8, b: Scalar, wide: bool, signed: bool) -> Scalar {
        let (x, y) = (self, b);
        if let (Some(p), Some(q)) = (x.value(), y.value()) {
            return Scalar::constant(crate::interpreter::arithmetic(operation, p, q, wide, signed));
        }
        let bits = Scalar::compute_bits(operation, x.bits, y.bits, wide);
        let (mut high, low) = match operation {
            alu::ADD => (x.wide.add(y.wide), x.low.add(y.low)),
            alu::SUB => (x.wide.sub(y.wide), x.low.sub(y.low)),
            alu::MUL => (x.wide.mul(y.wide), x.low.mul(y.low)),
            alu::NEG => {
                let (zero, zero32) = (Range64::constant(0), Range32::constant(0));
                (zero.sub(x.wide), zero32.sub(x.low))
            }
            alu::DIV if signed => (x.wide.sdiv(y.wide), x.low.sdiv(y.low)),
            alu::DIV => (x.wide.div(y.wide), x.low.div(y.low)),
            alu::MOD if signed => (x.wide.srem(y.wide), x.low.srem(y.low)),
            alu::MOD => (x.wide.rem(y.wide), x.low.rem(y.low)),
            alu::LSH => (x.wide.shl(y.wide), x.low.shl(y.low)),
            alu::RSH => (x.wide.shr(y.wide), x.low.shr(y.low)),
            alu::ARSH => (x.wide.sar(y.wide), x.low.sar(y.low)),
            // Both at least as large as the larger of the two, or at most as the smaller.
            alu::OR => (
                Range64::unsigned(x.wide.umin.max(y.wide.umin), u64::MAX),
                Range32::unsigned(x.low.umin.max(y.low.umin), u32::MAX),
            ),
            alu::AND => (
                Range64::unsigned(0, x.wide.umax.min(y.wide.umax)),
                Range32::unsigned(0, x.low.umax.min(y.low.umax)),
            ),
            _ => (Range64::ALL, Range32::ALL),
        };
        // A shift left by 32 makes the sign of the lower half the sign of all, as sign extensions of old compilers do.
        if wide && operation == alu::LSH && y.value() == Some(32) {
            high.smin = i64::from(x.low.smin) << 32;
            high.smax = i64::from(x.low.smax) << 32;
        }
        // Division and shifts to the right let upper bits into the lower half.
        let upper_matter = matches!(operation, alu::DIV | alu::MOD | alu::RSH | alu::ARSH);
        let counts_differ = matches!(operation, alu::LSH) && wide;
        let r = if wide {
            let low = if upper_matter || counts_differ { Range32::ALL } else { low };
            Scalar { bits, wide: high, low }
        } else {
            Scalar { bits: bits.low(), wide: Range64::unsigned(low.umin.into(), low.umax.into()), low }
        };
        r.settle().unwrap_or(if wide { Scalar::UNKNOWN } else { Scalar::loaded(4) })
    }

    fn compute_bits(operation: u8, x: Tnum, y: Tnum, wide: bool) -> Tnum {
        let count = y.is_constant().then_some((y.value & if wide { 63 } else { 31 }) as u32);
        let (x, y) = if wide { (x, y) } else { (x.low(), y.low()) };
        match (operation, count) {
            (alu::ADD, _) => x.add(y),
            (alu::SUB, _) => x.sub(y),
            (alu::NEG, _) => Tnum::constant(0).sub(x),
            (alu::MUL, _) => x.mul(y),
            (alu::AND, _) => x.and(y),
            (alu::OR, _) => x.or(y),
            (alu::XOR, _) => x.xor(y),
            (alu::LSH, Some(n)) => x.shl(n),
            (alu::RSH, Some(n)) => x.shr(n),
            (alu::ARSH, Some(n)) if wide => x.sar(n),
            (alu::ARSH, Some(n)) => x.sign_extend(32).sar(n).low(),
            _ => Tnum::UNKNOWN,
        }
    }
}

/// What two numbers are when a comparison of them holds, or does not; `None` when that cannot be.
pub fn refine(operation: u8, holds: bool, a: Scalar, b: Scalar, wide: bool) -> Option<(Scalar, Scalar)> {
    let (mut a, mut b) = (a, b);
    // A comparison that does not hold is the opposite one that does.
    let operation = match (operation, holds) {
        (o, true) => o,
        (jump::JEQ, _) => jump::JNE,
        (jump::JNE, _) => jump::JEQ,
        (jump::JGT, _) => jump::JLE,
        (jump::JLE, _) => jump::JGT,
        (jump::JGE, _) => jump::JLT,
        (jump::JLT, _) => jump::JGE,
        (jump::JSGT, _) => jump::JSLE,
        (jump::JSLE, _) => jump::JSGT,
        (jump::JSGE, _) => jump::JSLT,
        (jump::JSLT, _) => jump::JSGE,
        (jump::JSET, _) => return refine_no_bits(a, b, wide),
        _ => return Some((a, b)),
    };
    match operation {
        jump::JEQ => {
            let both = if wide {
                Scalar {
                    bits: a.bits.intersect(b.bits)?,
                    wide: a.wide.intersect(b.wide),
                    low: a.low.intersect(b.low),
                }
                .settle()?
            } else {
                let low = a.low.intersect(b.low);
                let bits = a.bits.low().intersect(b.bits.low())?;
                let keep = |s: Scalar| {
                    let bits = Tnum { value: bits.value, mask: bits.mask | 0xffff_ffff_0000_0000 };
                    Scalar { bits: s.bits.intersect(bits)?, low, ..s }.settle()
                };
                return Some((keep(a)?, keep(b)?));
            };
            return Some((both, both));
        }
        jump::JNE => {
            exclude(&mut a, &b, wide);
            exclude(&mut b, &a, wide);
        }
        jump::JSET => {
            let (p, q) = (a.bits.value | a.bits.mask, b.bits.value | b.bits.mask);
            let common = if wide { p & q } else { p & q & 0xffff_ffff };
            if common == 0 {
                return None;
            }
            if common.is_power_of_two() && b.is_constant() {
                a.bits = a.bits.intersect(Tnum::new(common, !common))?;
            }
        }
        _ if wide => order64(operation, &mut a.wide, &mut b.wide)?,
        _ => order32(operation, &mut a.low, &mut b.low)?,
    }
    Some((a.settle()?, b.settle()?))
}

/// `a & b` is zero.
fn refine_no_bits(mut a: Scalar, b: Scalar, wide: bool) -> Option<(Scalar, Scalar)> {
    let mask = if wide { u64::MAX } else { 0xffff_ffff };
    if a.bits.value & b.bits.value & mask != 0 {
        return None;
    }
    // What is surely set in b is not in a.
    let gone = b.bits.value & mask;
    a.bits = a.bits.intersect(Tnum::new(0, !gone))?;
    Some((a.settle()?, b))
}

/// `a` is not `b`: an end that is a known `b` moves.
fn exclude(a: &mut Scalar, b: &Scalar, wide: bool) {
    if wide && let Some(n) = b.value() {
        let w = &mut a.wide;
        // An end that cannot move is a range of one number: an empty range is left.
        if w.umin == n {
            (w.umin, w.umax) = if n == u64::MAX { (1, 0) } else { (n + 1, w.umax) };
        }
        if w.umax == n {
            (w.umin, w.umax) = if n == 0 { (1, 0) } else { (w.umin, n - 1) };
        }
        if w.smin == n as i64 {
            (w.smin, w.smax) = if n as i64 == i64::MAX { (1, 0) } else { (w.smin + 1, w.smax) };
        }
        if w.smax == n as i64 {
            (w.smin, w.smax) = if n as i64 == i64::MIN { (1, 0) } else { (w.smin, w.smax - 1) };
        }
    } else if !wide && b.bits.low().is_constant() {
        let (w, n) = (&mut a.low, b.bits.value as u32);
        if w.umin == n {
            (w.umin, w.umax) = if n == u32::MAX { (1, 0) } else { (n + 1, w.umax) };
        }
        if w.umax == n {
            (w.umin, w.umax) = if n == 0 { (1, 0) } else { (w.umin, n - 1) };
        }
        if w.smin == n as i32 {
            (w.smin, w.smax) = if n as i32 == i32::MAX { (1, 0) } else { (w.smin + 1, w.smax) };
        }
        if w.smax == n as i32 {
            (w.smin, w.smax) = if n as i32 == i32::MIN { (1, 0) } else { (w.smin, w.smax - 1) };
        }
    }
}

macro_rules! order {
    ($name:ident, $range:ty) => {
        fn $name(operation: u8, a: &mut $range, b: &mut $range) -> Option<()> {
            match operation {
                jump::JGT => {
                    a.umin = a.umin.max(b.umin.checked_add(1)?);
                    b.umax = b.umax.min(a.umax.checked_sub(1)?);
                }
                jump::JGE => {
                    a.umin = a.umin.max(b.umin);
                    b.umax = b.umax.min(a.umax);
                }
                jump::JLT => {
                    a.umax = a.umax.min(b.umax.checked_sub(1)?);
                    b.umin = b.umin.max(a.umin.checked_add(1)?);
                }
                jump::JLE => {
                    a.umax = a.umax.min(b.umax);
                    b.umin = b.umin.max(a.umin);
                }
                jump::JSGT => {
                    a.smin = a.smin.max(b.smin.checked_add(1)?);
                    b.smax = b.smax.min(a.smax.checked_sub(1)?);
                }
                jump::JSGE => {
                    a.smin = a.smin.max(b.smin);
                    b.smax = b.smax.min(a.smax);
                }
                jump::JSLT => {
                    a.smax = a.smax.min(b.smax.checked_sub(1)?);
                    b.smin = b.smin.max(a.smin.checked_add(1)?);
                }
                jump::JSLE => {
                    a.smax = a.smax.min(b.smax);
                    b.smin = b.smin.max(a.smin);
                }
                _ => {}
            }
            Some(())
        }
    };
}

order!(order64, Range64);
order!(order32, Range32);
