// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Gathers a program and its files, from wherever they are, into one root file system archive for a machine.
//!
//! [`gather`] takes a [`Request`] and returns an [`Image`]: a cpio archive in the [`Cache`] (its layout is described
//! in `api-boot`) and how to run the program in it. Sources: the catalogue, Debian packages, ELF files of this
//! machine, directories, OCI and docker archives, images that `unilith-registry` got.
//!
//! The archive's bytes follow from its content alone. What differs from run to run (addresses, host name, volumes)
//! is not in it: the kernel writes /etc/resolv.conf and /etc/hostname from the boot configuration.
#![forbid(unsafe_code)]

mod archive;
mod base;
mod cache;
mod catalogue;
mod check;
mod choose;
mod confine;
mod control;
mod cpio;
mod debian;
mod elf;
mod error;
mod etc;
mod facts;
mod gather;
mod generate;
mod host;
mod layers;
mod libraries;
mod maintainer;
mod manifest;
mod mark;
mod pattern;
mod request;
mod service;
mod services;
mod sites;
mod source;
mod store;
mod tree;

pub use cache::Cache;
pub use catalogue::{Catalogue, read as read_manifest};
pub use check::{Need, Report, check};
pub use confine::is_own_volume;
pub use error::{ErrorKind, ImageError, Result};
pub use gather::gather;
pub use generate::{MAX_BYTES as MAX_PRINTED, Runner};
pub use manifest::{
    Build, Libc, Libraries, Library, Manifest, Port, Ready, Size, State, Works, signal_number,
};
pub use mark::mark;
pub use request::{
    Base, Image, ImageConfig, ImageHealth, Linked, Progress, Pull, Puller, Quiet, Reference, Request, Stored,
};
pub use sites::table_of as site_table;
pub use source::SourcePackage;
pub use store::{Cached, Part};
/// How far the kernel implements a call.
pub use syscall_table::Status;
