// SPDX-License-Identifier: Apache-2.0 OR MIT
//! cloud-init's *NoCloud*: settings of one computer on a disk or CD of its own, labelled `cidata`, with the files `meta-data`,
//! `network-config` and `user-data` (cloud-init's documentation, "NoCloud" and "Networking config").
//!
//! The loaders that firmware starts (`efi`, `bios`) find the disk, which firmware reads for them whatever controller it is at, and
//! [`Media::add_to`] turns the files into words of the kernel's command line. It runs where nothing can be allocated. Everything on the disk is untrusted: it is read within bounds,
//! and what is not understood is left out with a sentence.
//!
//! | file | what counts |
//! | --- | --- |
//! | (the computer's serial number) | `ds=nocloud;h=NAME`, above the `meta-data` |
//! | `meta-data` | `local-hostname` or `hostname` |
//! | `network-config` | version 1: `physical` with `subnets` (`static`, `dhcp`), and `nameserver`; version 2: of the first of `ethernets` `addresses`, `gateway4`, `routes` to `default`, `nameservers`, `dhcp4` |
//! | `user-data` | `#cloud-config` with `hostname`, and `unilith`, `env`: environment variables of the program |
#![no_std]
#![forbid(unsafe_code)]
#[cfg(test)]
extern crate std;

pub mod fat;
pub mod iso;
mod line;
mod loader;
mod media;
mod network;
pub mod smbios;
#[cfg(test)]
mod tests;
mod yaml;

pub use line::words;
pub use loader::{MAX_ADDED, line};
pub use media::{Media, UNREADABLE};

/// Most bytes of a file. cloud-init itself warns of user data above 16 KiB.
pub const MAX_FILE: usize = 16 << 10;
/// What disk and CD are called; some tools make it upper case.
pub const LABEL: &str = "cidata";
/// The files, in the order of [`Files`].
pub const NAMES: [&str; 3] = ["meta-data", "network-config", "user-data"];

/// What the files say; empty where there is none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Files<'a> {
    pub meta: &'a str,
    pub network: &'a str,
    pub user: &'a str,
    /// The computer's serial number, in firmware's tables.
    pub serial: &'a str,
}

/// Told what was left out and why, a sentence at a time.
pub type Say<'s> = dyn FnMut(core::fmt::Arguments<'_>) + 's;
