// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arithmetic on sequence numbers, modulo 2^32 (RFC 9293 3.4).

#[inline]
pub const fn lt(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

#[inline]
pub const fn le(a: u32, b: u32) -> bool {
    !lt(b, a)
}

#[inline]
pub const fn max(a: u32, b: u32) -> u32 {
    if lt(a, b) { b } else { a }
}

#[inline]
pub const fn min(a: u32, b: u32) -> u32 {
    if lt(a, b) { a } else { b }
}

/// How far `to` is ahead of `from`; 0 when it is not.
#[inline]
pub const fn ahead(from: u32, to: u32) -> u32 {
    if lt(from, to) { to.wrapping_sub(from) } else { 0 }
}
