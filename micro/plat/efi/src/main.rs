// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The UEFI stub: firmware loads the file it is in, as a whole, and calls it. It puts the kernel where it belongs, ends boot
//! services and goes on at the kernel's PVH entry.
#![cfg_attr(panic = "abort", no_std, no_main)]

#[cfg(panic = "abort")]
mod firmware;
#[cfg(panic = "abort")]
mod handles;
#[cfg(panic = "abort")]
mod seed;
#[cfg(panic = "abort")]
mod stub;

#[cfg(not(panic = "abort"))]
fn main() {
    eprintln!("this is the UEFI stub built as a host program: build it with --profile kernel");
}
