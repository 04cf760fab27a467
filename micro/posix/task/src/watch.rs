// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who looks at system calls as they are made: tracers, filters, trace points, the console, whoever tells the kernel's time apart.

use crate::{cpu_time, seccomp, tracing};
use api_trace::Point;
use core::sync::atomic::{AtomicBool, Ordering};

static TRACE: AtomicBool = AtomicBool::new(false);
/// Calls are traced, or their time is told apart: one look tells a call that it can go the short way.
static WATCHED: AtomicBool = AtomicBool::new(false);

/// Prints every call to the console from now on, or does not.
pub fn set_trace(on: bool) {
    TRACE.store(on, Ordering::Relaxed);
    changed();
}

/// Every call is printed to the console.
#[inline]
pub fn is_traced() -> bool {
    TRACE.load(Ordering::Relaxed)
}

/// Somebody looks at calls.
#[inline]
pub fn is_on() -> bool {
    WATCHED.load(Ordering::Relaxed)
}

/// Who looks at calls has changed: while somebody does, every call takes the full path, which keeps all registers.
pub fn changed() {
    let traced = tracing::is_anybody_traced()
        || seccomp::is_anybody_filtered()
        || is_traced()
        || api_trace::is_on(Point::CallEntry)
        || api_trace::is_on(Point::CallExit);
    WATCHED.store(traced || cpu_time::is_on(), Ordering::Relaxed);
    // A linked program calls these functions itself.
    #[cfg(not(feature = "linked"))]
    crate::fast::enable(!traced && !api_trace::is_on(Point::Sample));
}
