// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a program is told when the kernel is done with a registered file or buffer: a completion with its tag.

use super::ring::Ring;
use alloc::sync::{Arc, Weak};

/// Held by the table and by each request that uses what is registered; the last one to let go tells the program. None may be dropped while
/// the ring's tables are locked.
pub struct Tag {
    ring: Weak<Ring>,
    value: u64,
}

impl Tag {
    /// `None` for a value of 0, which nobody is told of.
    pub fn new(ring: &Ring, value: u64) -> Option<Arc<Tag>> {
        (value != 0).then(|| Arc::new(Tag { ring: ring.me.clone(), value }))
    }
}

impl Drop for Tag {
    fn drop(&mut self) {
        if let Some(ring) = self.ring.upgrade() {
            ring.post(self.value, 0, 0);
        }
    }
}
