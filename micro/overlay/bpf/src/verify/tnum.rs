// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tristate numbers: what is known of each bit of a value. The operations are those of H. Vishwanathan, M. Shachnai,
//! S. Narayana, S. Nagarakatte, "Sound, Precise, and Fast Abstract Interpretation with Tristate Numbers" (CGO 2022).

/// Bits set in `mask` are unknown; the others are as in `value`, which has none of the mask's bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tnum {
    pub value: u64,
    pub mask: u64,
}

impl Tnum {
    pub const UNKNOWN: Tnum = Tnum { value: 0, mask: u64::MAX };

    pub const fn constant(value: u64) -> Tnum {
        Tnum { value, mask: 0 }
    }

    pub const fn new(value: u64, mask: u64) -> Tnum {
        Tnum { value: value & !mask, mask }
    }

    /// The smallest that holds `min..=max`.
    pub const fn range(min: u64, max: u64) -> Tnum {
        let bits = 64 - (min ^ max).leading_zeros();
        if bits == 64 {
            return Tnum::UNKNOWN;
        }
        Tnum::new(min, (1 << bits) - 1)
    }

    pub const fn is_constant(self) -> bool {
        self.mask == 0
    }

    /// Every number of `other` is one of `self`.
    pub const fn holds(self, other: Tnum) -> bool {
        other.mask & !self.mask == 0 && other.value & !self.mask == self.value
    }

    #[cfg(test)]
    pub const fn contains(self, number: u64) -> bool {
        number & !self.mask == self.value
    }

    /// What is in both; `None` when nothing is.
    pub const fn intersect(self, other: Tnum) -> Option<Tnum> {
        if (self.value ^ other.value) & !self.mask & !other.mask != 0 {
            return None;
        }
        Some(Tnum::new(self.value | other.value, self.mask & other.mask))
    }

    pub const fn add(self, other: Tnum) -> Tnum {
        let masks = self.mask.wrapping_add(other.mask);
        let values = self.value.wrapping_add(other.value);
        let unknown = masks.wrapping_add(values) ^ values | self.mask | other.mask;
        Tnum::new(values, unknown)
    }

    pub const fn sub(self, other: Tnum) -> Tnum {
        let difference = self.value.wrapping_sub(other.value);
        let high = difference.wrapping_add(self.mask);
        let low = difference.wrapping_sub(other.mask);
        Tnum::new(difference, high ^ low | self.mask | other.mask)
    }

    pub const fn and(self, other: Tnum) -> Tnum {
        let known = self.value & other.value;
        let possible = (self.value | self.mask) & (other.value | other.mask);
        Tnum::new(known, possible & !known)
    }

    pub const fn or(self, other: Tnum) -> Tnum {
        let known = self.value | other.value;
        Tnum::new(known, (self.mask | other.mask) & !known)
    }

    pub const fn xor(self, other: Tnum) -> Tnum {
        Tnum::new(self.value ^ other.value, self.mask | other.mask)
    }

    pub const fn mul(self, other: Tnum) -> Tnum {
        let product = self.value.wrapping_mul(other.value);
        let (mut a, mut b) = (self, other);
        let mut unknown = Tnum::constant(0);
        while a.value != 0 || a.mask != 0 {
            if a.value & 1 != 0 {
                unknown = unknown.add(Tnum::new(0, b.mask));
            } else if a.mask & 1 != 0 {
                unknown = unknown.add(Tnum::new(0, b.value | b.mask));
            }
            a = a.shr(1);
            b = b.shl(1);
        }
        Tnum::constant(product).add(unknown)
    }

    /// `count` is below 64 here and in the next two.
    pub const fn shl(self, count: u32) -> Tnum {
        Tnum { value: self.value << count, mask: self.mask << count }
    }

    pub const fn shr(self, count: u32) -> Tnum {
        Tnum { value: self.value >> count, mask: self.mask >> count }
    }

    pub const fn sar(self, count: u32) -> Tnum {
        Tnum { value: ((self.value as i64) >> count) as u64, mask: ((self.mask as i64) >> count) as u64 }
    }

    /// The lower 32 bits.
    pub const fn low(self) -> Tnum {
        Tnum { value: self.value & 0xffff_ffff, mask: self.mask & 0xffff_ffff }
    }

    /// Sign-extended from `bits`, which is 8, 16 or 32.
    pub const fn sign_extend(self, bits: u32) -> Tnum {
        self.shl(64 - bits).sar(64 - bits)
    }
}
