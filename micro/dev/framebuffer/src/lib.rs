// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A console on a screen: text drawn into a framebuffer that firmware set up.
//!
//! - [`mode`]: whether a framebuffer can be what a loader says it is.
//! - [`font`]: the glyphs, and which of them shows a character.
//! - [`parser`]: UTF-8 and escape sequences, taken apart.
//! - [`console`]: the grid of characters, and what of it has to be drawn anew.
//!
//! The framebuffer is written and never read: reading memory of a device takes a hundred times as long. The crate knows neither
//! where that memory is nor how it is mapped ([`console::Surface`]); the platform does.
#![no_std]
#![forbid(unsafe_code)]
#[cfg(test)]
extern crate std;

pub mod console;
pub mod font;
pub mod mode;
pub mod parser;

pub use console::{Console, Surface};
pub use mode::Mode;
