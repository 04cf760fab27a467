// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls on clocks and timers, and sleeping.

pub mod clock;
pub mod itimers;
pub mod posix_timers;
pub mod sleep;
pub mod timerfd;
