// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whose code runs, for a library that may have a heap of its own (`alloc-apart`). One processor at a time is in the kernel, and a
//! library is entered where nothing waits.

/// Who allocates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// The network's stacks.
    Network,
    /// All others.
    Rest,
}

/// The library's code runs until this is dropped.
#[must_use]
pub struct Entered {
    #[cfg(feature = "libraries")]
    before: bool,
}

#[cfg(feature = "libraries")]
mod known {
    use super::{Entered, Library};
    use core::sync::atomic::{AtomicBool, Ordering};

    static IS_NETWORK: AtomicBool = AtomicBool::new(false);

    /// The library's code begins.
    #[inline]
    pub fn enter(library: Library) -> Entered {
        let before = IS_NETWORK.load(Ordering::Relaxed);
        IS_NETWORK.store(library == Library::Network, Ordering::Relaxed);
        Entered { before }
    }

    impl Drop for Entered {
        #[inline]
        fn drop(&mut self) {
            IS_NETWORK.store(self.before, Ordering::Relaxed);
        }
    }

    /// Whose code runs.
    #[inline]
    pub fn current() -> Library {
        if IS_NETWORK.load(Ordering::Relaxed) { Library::Network } else { Library::Rest }
    }
}

#[cfg(feature = "libraries")]
pub use known::{current, enter};

/// No library has a heap of its own.
#[cfg(not(feature = "libraries"))]
#[inline(always)]
pub fn enter(_: Library) -> Entered {
    Entered {}
}
