// SPDX-License-Identifier: Apache-2.0 OR MIT
//! /dev/net/tun (tun(4)): interfaces whose frames a program reads and writes.
//!
//! - [`file`] is an open file, which becomes a queue of an interface by TUNSETIFF; [`requests`] are its ioctls;
//! - [`device`] is the interface as the stack sees it (`api_netdev::interface`), [`queue`] what waits for a reader;
//! - [`headers`] are those that a program has in front of its frames, [`segments`] cuts what it did not cut.
//!
//! May depend on the API crates; the kernel image picks it and says how the stack of a caller is found.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod device;
pub mod file;
pub mod headers;
pub mod queue;
pub mod requests;
pub mod segments;
#[cfg(test)]
mod tests;

use abi::{Result, errno::ENXIO};
use alloc::sync::Arc;
use api_fs::{File, Inode};
use api_lock::SpinLock;
use api_netdev::interface::Interfaces;

/// Finds the interfaces of the caller's network.
pub type Find = fn() -> Option<Arc<dyn Interfaces>>;

static FIND: SpinLock<Option<Find>> = SpinLock::new(None);

/// Makes known how the caller's network is found.
pub fn register(find: Find) {
    *FIND.lock() = Some(find);
}

/// Opens the device, for the network that the caller is in now.
pub fn open(inode: &Arc<dyn Inode>) -> Result<Arc<dyn File>> {
    let find = FIND.lock().ok_or(ENXIO)?;
    let network = find().ok_or(ENXIO)?;
    Ok(file::TunFile::new(inode.clone(), network))
}
