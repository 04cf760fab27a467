// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Settings of the kernel that programs read and the superuser writes below /proc/sys (proc_sys(5)).

use core::sync::atomic::{AtomicU64, Ordering};

/// A whole number within bounds, read where the kernel goes by it.
pub struct Setting {
    value: AtomicU64,
    min: u64,
    max: u64,
}

impl Setting {
    pub const fn new(value: u64, min: u64, max: u64) -> Setting {
        Setting { value: AtomicU64::new(value), min, max }
    }

    #[inline]
    pub fn get(&self) -> u64 {
        self.value.load(Ordering::Relaxed)
    }

    /// Whether it may have that value.
    pub fn allows(&self, value: u64) -> bool {
        (self.min..=self.max).contains(&value)
    }

    /// The caller has asked [`Setting::allows`].
    pub fn set(&self, value: u64) {
        self.value.store(value, Ordering::Relaxed);
    }
}

/// kernel.printk: the level from which on lines of the kernel's log are not written any more, the level of a line that says none, the least and
/// the first value of the former.
pub static PRINTK: [Setting; 4] = [
    Setting::new(7, 0, i32::MAX as u64),
    Setting::new(4, 0, i32::MAX as u64),
    Setting::new(1, 0, i32::MAX as u64),
    Setting::new(7, 0, i32::MAX as u64),
];
