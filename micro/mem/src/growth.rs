// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who limits what programs have is told when they have more, however that came: by faults, large pages, calls that touch memory or fill it
//! ahead of time, a fork's copies.

use core::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// Nobody is to be told.
const NEVER: i64 = i64::MAX;
/// So many more pages may come. With the kernel's lock.
static LEFT: AtomicI64 = AtomicI64::new(NEVER);
static HAS_GROWN: AtomicBool = AtomicBool::new(false);

/// [`has_grown`] once the address spaces have had so many pages of their own more, and the thread that is running then is asked for work;
/// never for `i64::MAX`. Pages that are given back meanwhile do not count.
pub fn tell_when_grown(pages: i64) {
    LEFT.store(pages, Ordering::Relaxed);
}

/// True once for each time that this was to be told.
pub fn has_grown() -> bool {
    HAS_GROWN.load(Ordering::Relaxed) && HAS_GROWN.swap(false, Ordering::Relaxed)
}

#[inline]
pub(crate) fn grows(pages: i64) {
    let left = LEFT.load(Ordering::Relaxed);
    if left == NEVER {
        return;
    }
    LEFT.store(left - pages, Ordering::Relaxed);
    if left <= pages {
        HAS_GROWN.store(true, Ordering::Relaxed);
        // Tests of what is above on the host have no processor that works.
        #[cfg(not(feature = "host"))]
        api_plat::request_work();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_told_when_there_is_as_much_as_was_said() {
        grows(100);
        assert!(!has_grown());
        tell_when_grown(10);
        grows(9);
        assert!(!has_grown());
        grows(512);
        assert!(has_grown() && !has_grown());
        grows(1);
        assert!(has_grown(), "until it is said anew");
        tell_when_grown(i64::MAX);
        grows(1 << 40);
        assert!(!has_grown());
    }
}
