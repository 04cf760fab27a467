// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The root file system of a running machine beside its image: what differs ([`diff`]), and an image of what there
//! is now ([`write`]).
//!
//! Both are cpio archives (newc). The image's is a file of the cache; the machine's is what the overlay's command `export`
//! prints. The machine is not trusted: its archive has bounds ([`cpio`]), and no name of it leaves the image that is
//! written.
//!
//! What is mounted in the machine is not part of its root file system: an entry with another device number than the root's
//! is a mount point, and the image's files below it count as unchanged.
#![forbid(unsafe_code)]

mod cpio;
mod diff;
mod image;
mod layer;
mod oci;
mod populate;

pub use cpio::{Contents, Error, Result};
pub use diff::{Asked, Change, Kind, diff};
pub use image::Image;
pub use layer::Made;
pub use oci::{Config, Empty, HealthConfig, Origin, Written, write};

/// Files of the root file system that the kernel writes at every start: what a program makes of them is no change of the
/// image, as with docker, which mounts them.
const WRITTEN_AT_START: [&[u8]; 3] = [b"/etc/hostname", b"/etc/hosts", b"/etc/resolv.conf"];
/// Directories that the kernel makes where the image has none.
const MADE_AT_START: [&[u8]; 7] = [b"/dev", b"/overlay", b"/proc", b"/root", b"/run", b"/sys", b"/tmp"];
/// Tables of the kernel's own in the image's archive, which the machine does not show.
const OWN: &[u8] = b"/.unilith";

fn is_below(path: &[u8], directory: &[u8]) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.first() == Some(&b'/'))
}

fn is_own(path: &[u8]) -> bool {
    path == OWN || is_below(path, OWN)
}

/// The directories above a path, the nearest first, without the root.
fn above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let slashes = path.iter().enumerate().skip(1).rev().filter(|(_, byte)| **byte == b'/');
    slashes.map(|(at, _)| &path[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_above_a_path_are_those_that_a_shell_would_name() {
        let of = |path: &'static str| {
            above(path.as_bytes()).map(|p| std::str::from_utf8(p).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(of("/a/b/c"), ["/a/b", "/a"]);
        assert!(of("/a").is_empty());
        assert!(is_below(b"/data/x", b"/data") && !is_below(b"/database", b"/data"));
        assert!(is_own(b"/.unilith") && is_own(b"/.unilith/sites/x") && !is_own(b"/.unilithic"));
    }
}
