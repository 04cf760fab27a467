// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disks that a computer boots, by UEFI or by BIOS: a kernel, its command line and its root file system in one file that UEFI
//! firmware starts ([`efi_file`]), and a partition table, a file system and a loader for BIOSes around it ([`write_disk`]).
#![forbid(unsafe_code)]

mod bios_loader;
mod disk;
mod efi_file;

pub use bios_loader::Loader;
pub use disk::write_disk;
pub use efi_file::efi_file;

use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    #[error("the {what} cannot be read: {why}")]
    Elf { what: &'static str, why: String },
    #[error("the file for the firmware cannot be written: {0}")]
    Pe(String),
    #[error("{what} is too large: a file that firmware starts has at most 2 GiB")]
    TooLarge { what: &'static str },
    #[error("the BIOS loader cannot be used: {0}")]
    Loader(String),
    #[error("cannot write the disk {path}: {error}")]
    Write { path: PathBuf, error: std::io::Error },
    #[error("cannot write the partition table of {path}: {why}")]
    Partitions { path: PathBuf, why: String },
}

pub type Result<T> = std::result::Result<T, DiskError>;
