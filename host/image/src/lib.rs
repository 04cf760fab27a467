// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Gathers a program and its files, from wherever they are, into one root file system archive for a machine.
//!
//! [`gather`] takes a [`Request`] and returns an [`Image`]: a cpio archive in the [`Cache`] (its layout is described
//! in `api-boot`) and how to run the program in it. Sources: the catalogue, Debian packages, ELF files of this
//! machine, directories, OCI and docker archives.
//!
//! The archive's bytes follow from its content alone. What differs from run to run (addresses, host name, volumes)
//! is not in it: the kernel writes /etc/resolv.conf and /etc/hostname from the boot configuration.
#![forbid(unsafe_code)]

mod cache;
mod catalogue;
mod error;
mod layers;
mod manifest;
mod request;

pub use cache::Cache;
pub use catalogue::{Catalogue, read as read_manifest};
pub use error::{ErrorKind, ImageError, Result};
pub use manifest::{Manifest, Port, Ready, Size, State, Works, signal_number};
pub use request::{Image, ImageConfig, Progress, Quiet, Reference, Request};

/// Gathers what the request names. An image that is in the cache already is not written again.
pub fn gather(request: &Request, _cache: &Cache, _progress: &dyn Progress) -> Result<Image> {
    error::fail!(NotRunnable, "{}: this kind of source cannot be gathered yet", request.reference)
}
