// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The file system ext4 on a disk, read and written, with its journal: what `mkfs.ext4` makes by default, with and without 64-bit block
//! numbers and checksums. The format is that of the kernel's documentation, *ext4 Data Structures and Algorithms*.
//!
//! - [`Core`] is one mounted file system. Its functions wait for the disk and take `&mut self`: whoever shares one has a lock that
//!   may be held over such waits.
//! - A change of metadata is an operation ([`Core::transact`]) that is done as a whole or not at all: an error of whatever kind
//!   leaves all blocks as they were. Operations gather in a transaction, which [`Core::sync`] puts into the journal as one.
//! - File data is in pages ([`api_mem::PageFrame`]) and is written before the transaction that refers to its blocks (`data=ordered`).
//! - The disk is not trusted: every number is checked against the geometry, every checksum is verified, a block belongs to one thing.
//!   Damage is `EUCLEAN`. When the journal cannot be written nothing is written any more (`errors=remount-ro`): `EROFS`.
//! - Time comes from callers.
//!
//! What is not there, and why, says docs/explanation/files.md.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod attributes;
mod buffers;
mod bytes;
mod checksum;

mod data;
mod directory;
mod extents;
mod groups;
mod index;
mod inode;
mod journal;
mod mount;
mod names;
mod orphans;
mod replay;
mod superblock;
mod truncate;

pub use crate::mount::{Core, Options};
pub use data::MAX_STEP;
pub use inode::New;
pub use superblock::Refusal;

use abi::Result;

/// The root directory's inode.
pub const ROOT: u32 = 2;

/// A disk, in whole blocks of a file system (which are whole sectors).
pub trait Disk: Send + Sync {
    fn bytes(&self) -> u64;

    fn is_read_only(&self) -> bool;

    fn read(&self, offset: u64, to: &mut [u8]) -> Result<()>;

    /// May be done in any order with other writes, up to the next [`Disk::flush`].
    fn write(&self, offset: u64, from: &[u8]) -> Result<()>;

    /// Returns when all that was written is on stable storage.
    fn flush(&self) -> Result<()>;
}

#[cold]
fn log_damage(what: &str, which: u64) {
    log::error!("ext4: {what}: {which}");
}

#[cfg(test)]
mod tests;
