// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel of a PC. Everything is in the library.
#![cfg_attr(panic = "abort", no_std, no_main)]

#[cfg(panic = "abort")]
<<<<<<< HEAD
use kernel_image as _;
=======
extern crate alloc;

#[cfg(panic = "abort")]
mod heap;
#[cfg(panic = "abort")]
mod logger;
#[cfg(all(panic = "abort", feature = "net-tcpip"))]
mod network;
#[cfg(all(panic = "abort", feature = "overlay"))]
mod overlay;
#[cfg(panic = "abort")]
mod start;
>>>>>>> 5a1ed48 (The overlay's line: commands from the host in a running machine)

#[cfg(not(panic = "abort"))]
fn main() {
    eprintln!("this is the micro kernel built as a host program: build it with --profile kernel");
}
