// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ranges of numbers as unsigned and as signed ones, in 64 and in 32 bits.

macro_rules! ranges {
    ($name:ident, $u:ty, $s:ty) => {
        /// Both ranges hold.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name {
            pub umin: $u,
            pub umax: $u,
            pub smin: $s,
            pub smax: $s,
        }

        impl $name {
            pub const ALL: $name = $name { umin: 0, umax: <$u>::MAX, smin: <$s>::MIN, smax: <$s>::MAX };
            const BITS: u64 = <$u>::BITS as u64;

            pub const fn constant(value: $u) -> $name {
                $name { umin: value, umax: value, smin: value as $s, smax: value as $s }
            }

            pub const fn unsigned(umin: $u, umax: $u) -> $name {
                $name { umin, umax, ..$name::ALL }
            }

            const fn signed(smin: $s, smax: $s) -> $name {
                $name { smin, smax, ..$name::ALL }
            }

            pub fn is_empty(self) -> bool {
                self.umin > self.umax || self.smin > self.smax
            }

            pub fn holds(self, other: $name) -> bool {
                self.umin <= other.umin
                    && self.umax >= other.umax
                    && self.smin <= other.smin
                    && self.smax >= other.smax
            }

            pub fn intersect(self, other: $name) -> $name {
                $name {
                    umin: self.umin.max(other.umin),
                    umax: self.umax.min(other.umax),
                    smin: self.smin.max(other.smin),
                    smax: self.smax.min(other.smax),
                }
            }

            /// Carries what one range says over to the other, where the sign is known.
            pub fn settle(mut self) -> $name {
                if self.umin as $s <= self.umax as $s {
                    self.smin = self.smin.max(self.umin as $s);
                    self.smax = self.smax.min(self.umax as $s);
                }
                if self.smin as $u <= self.smax as $u {
                    self.umin = self.umin.max(self.smin as $u);
                    self.umax = self.umax.min(self.smax as $u);
                }
                self
            }

            pub fn add(self, b: $name) -> $name {
                let mut r = $name::ALL;
                if let (Some(min), Some(max)) = (self.umin.checked_add(b.umin), self.umax.checked_add(b.umax))
                {
                    (r.umin, r.umax) = (min, max);
                }
                if let (Some(min), Some(max)) = (self.smin.checked_add(b.smin), self.smax.checked_add(b.smax))
                {
                    (r.smin, r.smax) = (min, max);
                }
                r
            }

            pub fn sub(self, b: $name) -> $name {
                let mut r = $name::ALL;
                if let (Some(min), Some(max)) = (self.umin.checked_sub(b.umax), self.umax.checked_sub(b.umin))
                {
                    (r.umin, r.umax) = (min, max);
                }
                if let (Some(min), Some(max)) = (self.smin.checked_sub(b.smax), self.smax.checked_sub(b.smin))
                {
                    (r.smin, r.smax) = (min, max);
                }
                r
            }

            pub fn mul(self, b: $name) -> $name {
                let mut r = $name::ALL;
                if let Some(max) = self.umax.checked_mul(b.umax) {
                    (r.umin, r.umax) = (self.umin * b.umin, max);
                }
                let corners = [
                    self.smin.checked_mul(b.smin),
                    self.smin.checked_mul(b.smax),
                    self.smax.checked_mul(b.smin),
                    self.smax.checked_mul(b.smax),
                ];
                if let [Some(p), Some(q), Some(s), Some(t)] = corners {
                    r.smin = p.min(q).min(s).min(t);
                    r.smax = p.max(q).max(s).max(t);
                }
                r
            }

            /// A divisor of zero gives zero (RFC 9669 4.1).
            pub fn div(self, b: $name) -> $name {
                if b.umin == 0 {
                    return $name::unsigned(0, self.umax);
                }
                $name::unsigned(self.umin / b.umax, self.umax / b.umin)
            }

            /// A divisor of zero leaves the number as it is.
            pub fn rem(self, b: $name) -> $name {
                if b.umin == 0 {
                    return $name::unsigned(0, self.umax);
                }
                if self.umax < b.umin {
                    return self;
                }
                $name::unsigned(0, self.umax.min(b.umax - 1))
            }

            /// Signed division by a constant that is neither 0 nor -1; else anything.
            pub fn sdiv(self, b: $name) -> $name {
                if b.smin != b.smax || b.smin == 0 || b.smin == -1 {
                    return $name::ALL;
                }
                let (p, q) = (self.smin / b.smin, self.smax / b.smin);
                $name::signed(p.min(q), p.max(q))
            }

            pub fn srem(self, b: $name) -> $name {
                if b.smin != b.smax || b.smin == 0 {
                    return $name::ALL;
                }
                // |r| < |b|, with the sign of the dividend.
                let most = (b.smin.unsigned_abs() - 1) as $s;
                let smin = if self.smin >= 0 { 0 } else { self.smin.max(-most) };
                let smax = if self.smax <= 0 { 0 } else { self.smax.min(most) };
                $name::signed(smin, smax)
            }

            /// Counts of shifts are taken modulo the width; a range that goes beyond it says nothing.
            fn counts(b: $name) -> Option<(u32, u32)> {
                ((b.umax as u64) < Self::BITS).then_some((b.umin as u32, b.umax as u32))
            }

            pub fn shl(self, b: $name) -> $name {
                match Self::counts(b) {
                    Some((low, high)) if self.umax <= <$u>::MAX >> high => {
                        $name::unsigned(self.umin << low, self.umax << high)
                    }
                    _ => $name::ALL,
                }
            }

            pub fn shr(self, b: $name) -> $name {
                match Self::counts(b) {
                    Some((low, high)) => $name::unsigned(self.umin >> high, self.umax >> low),
                    None => $name::ALL,
                }
            }

            pub fn sar(self, b: $name) -> $name {
                match Self::counts(b) {
                    Some((low, high)) => $name::signed(
                        (self.smin >> low).min(self.smin >> high),
                        (self.smax >> low).max(self.smax >> high),
                    ),
                    None => $name::ALL,
                }
            }
        }
    };
}

ranges!(Range64, u64, i64);
ranges!(Range32, u32, i32);
