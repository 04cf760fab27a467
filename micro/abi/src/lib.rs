// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Linux numbers and structures for x86-64: [`Errno`], [`Events`], and everything of `linux-raw-sys` under [`linux`].
//!
//! Depends on nothing of the kernel; every kernel crate may depend on it.
#![no_std]
#![forbid(unsafe_code)]

pub mod errno;
pub mod setting;

pub use errno::Errno;
/// Linux' own headers: constants and structures.
pub use linux_raw_sys as linux;

/// What kernel functions return: an error number is data, never a negative integer.
pub type Result<T = usize> = core::result::Result<T, Errno>;

/// A page of memory.
pub const PAGE_SIZE: usize = 4096;
/// Longest path that a system call takes or gives, its end included.
pub const PATH_MAX: usize = 4096;

/// Rounds up to a multiple of the page size; `None` on overflow.
pub const fn page_up(n: u64) -> Option<u64> {
    match n.checked_add(PAGE_SIZE as u64 - 1) {
        Some(n) => Some(n & !(PAGE_SIZE as u64 - 1)),
        None => None,
    }
}

/// Readiness of a file, with the bits of poll(2) and epoll(7) (they are the same).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events(pub u32);

impl Events {
    pub const NONE: Events = Events(0);
    pub const IN: Events = Events(0x1);
    pub const PRI: Events = Events(0x2);
    pub const OUT: Events = Events(0x4);
    pub const ERR: Events = Events(0x8);
    pub const HUP: Events = Events(0x10);
    pub const RDNORM: Events = Events(0x40);
    pub const RDBAND: Events = Events(0x80);
    pub const WRNORM: Events = Events(0x100);
    pub const WRBAND: Events = Events(0x200);
    pub const RDHUP: Events = Events(0x2000);
    pub const ALL: Events = Events(u32::MAX);
    /// Something can be read.
    pub const READABLE: Events = Events(Events::IN.0 | Events::RDNORM.0);
    /// Something can be written.
    pub const WRITABLE: Events = Events(Events::OUT.0 | Events::WRNORM.0);
    /// The same of a socket whose messages have no priority: TCP, which has urgent data, is [`Events::WRITABLE`] alone.
    pub const SENDABLE: Events = Events(Events::WRITABLE.0 | Events::WRBAND.0);

    pub const fn contains(self, other: Events) -> bool {
        self.0 & other.0 == other.0
    }

    pub const fn intersects(self, other: Events) -> bool {
        self.0 & other.0 != 0
    }

    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// `other` where `condition` holds, for building an answer piece by piece.
    pub const fn with(self, other: Events, condition: bool) -> Events {
        if condition { Events(self.0 | other.0) } else { self }
    }
}

impl core::ops::BitOr for Events {
    type Output = Events;
    fn bitor(self, other: Events) -> Events {
        Events(self.0 | other.0)
    }
}

impl core::ops::BitAnd for Events {
    type Output = Events;
    fn bitand(self, other: Events) -> Events {
        Events(self.0 & other.0)
    }
}
