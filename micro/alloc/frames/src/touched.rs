// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is in memory nobody used yet is unknown on a machine.

/// True when the page is known to hold zeros.
#[inline(always)]
pub fn take(_physical: u64) -> bool {
    false
}

/// The range has no map to hold.
///
/// # Safety
///
/// None is needed here; where a map is made, the range must be memory that nobody used yet.
#[inline(always)]
pub unsafe fn begin(start: u64, _end: u64) -> u64 {
    start
}
