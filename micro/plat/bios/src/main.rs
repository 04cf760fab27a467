// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The BIOS loader: the disk's first sector reads it, below 640 KiB, and it reads the file that UEFI firmware would start, puts the kernel
//! where it belongs and goes on at the kernel's PVH entry. It runs in 64 bits, all memory below 4 GiB at its own address, and
//! returns to 16 bits for every call of the BIOS.
#![cfg_attr(panic = "abort", no_std, no_main)]

#[cfg(panic = "abort")]
mod firmware;
#[cfg(panic = "abort")]
mod loader;
#[cfg(panic = "abort")]
mod seed;

#[cfg(not(panic = "abort"))]
fn main() {
    eprintln!("this is the BIOS loader built as a host program: build it with --profile kernel");
}
