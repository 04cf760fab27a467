// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel of a PC. Everything is in the library.
#![cfg_attr(panic = "abort", no_std, no_main)]

#[cfg(panic = "abort")]
use kernel_image as _;

#[cfg(not(panic = "abort"))]
fn main() {
    eprintln!("this is the micro kernel built as a host program: build it with --profile kernel");
}
