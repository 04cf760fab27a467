// SPDX-License-Identifier: Apache-2.0 OR MIT
//! OCI layouts and docker archives.

use std::{fs::File, io::Read, path::Path};

/// Whether a file is a tar archive, plain or gzip-compressed, by its magic numbers (POSIX ustar, RFC 1952 2.3.1).
pub(crate) fn looks_like_archive(path: &Path) -> bool {
    let mut head = [0; 262];
    let Ok(mut file) = File::open(path) else { return false };
    let mut have = 0;
    while have < head.len() {
        match file.read(&mut head[have..]) {
            Ok(n) if n > 0 => have += n,
            _ => break,
        }
    }
    head[..have].starts_with(&[0x1f, 0x8b]) || head[..have].get(257..262) == Some(b"ustar")
}
