// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SO_PEEK_OFF (socket(7)): where a look with MSG_PEEK begins in what waits to be read.

use crate::options::{from_int, int};
use abi::Result;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicI32, Ordering::Relaxed};

/// Negative, as it is at first: each look begins at the first byte. Otherwise looks go on where the last one ended, and reads take
/// away from that.
pub struct PeekOffset(AtomicI32);

impl Default for PeekOffset {
    fn default() -> PeekOffset {
        PeekOffset(AtomicI32::new(-1))
    }
}

impl PeekOffset {
    pub fn set(&self, value: &[u8]) -> Result<()> {
        int(value).map(|n| self.0.store(n, Relaxed))
    }

    pub fn value(&self) -> Vec<u8> {
        from_int(self.0.load(Relaxed))
    }

    /// Where a look begins; `None`: looks do not move.
    pub fn start(&self) -> Option<usize> {
        usize::try_from(self.0.load(Relaxed)).ok()
    }

    /// So many bytes were looked at.
    pub fn looked(&self, bytes: usize) {
        self.change(|at| at.saturating_add(i32::try_from(bytes).unwrap_or(i32::MAX)));
    }

    /// So many bytes were read, and are no longer in front of those that a look finds.
    #[inline]
    pub fn read(&self, bytes: usize) {
        if self.0.load(Relaxed) > 0 {
            self.change(|at| at.saturating_sub(i32::try_from(bytes).unwrap_or(i32::MAX)).max(0));
        }
    }

    fn change(&self, to: impl Fn(i32) -> i32) {
        let moves = |at: i32| (at >= 0).then(|| to(at));
        // Refused where looks do not move.
        let _ = self.0.fetch_update(Relaxed, Relaxed, moves);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_move_on_and_reads_take_away_once_it_is_set() {
        let offset = PeekOffset::default();
        offset.looked(4);
        assert_eq!((offset.start(), offset.value()), (None, from_int(-1)));
        assert_eq!(offset.set(&3i32.to_ne_bytes()), Ok(()));
        offset.looked(4);
        assert_eq!(offset.start(), Some(7));
        offset.read(5);
        assert_eq!(offset.start(), Some(2));
        offset.read(5);
        assert_eq!(offset.start(), Some(0));
        offset.looked(usize::MAX);
        assert_eq!(offset.start(), Some(i32::MAX as usize));
    }
}
