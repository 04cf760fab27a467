// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The second archive of the initial RAM disk. Linux reads several cpio archives one after the other.

use crate::{LinuxError, Result};
use std::{
    fs::File,
    io::{self, Write},
    path::Path,
};

const DIRECTORY: u32 = 0o040_700;
const PROGRAM: u32 = 0o100_700;
const FILE: u32 = 0o100_600;

/// `/.unilith/init`, `/.unilith/boot` and, for the overlay, `/.unilith/busybox`, in "newc" format (Documentation/driver-api/early-userspace/buffer-format).
pub fn own_archive(init: &[u8], boot: &[u8], tools: Option<&[u8]>) -> Vec<u8> {
    let mut out = Vec::with_capacity(init.len() + boot.len() + 1024);
    entry(&mut out, ".unilith", DIRECTORY, b"");
    entry(&mut out, ".unilith/init", PROGRAM, init);
    entry(&mut out, ".unilith/boot", FILE, boot);
    if let Some(tools) = tools {
        entry(&mut out, ".unilith/busybox", PROGRAM, tools);
    }
    entry(&mut out, "TRAILER!!!", 0, b"");
    out
}

fn entry(out: &mut Vec<u8>, name: &str, mode: u32, data: &[u8]) {
    // A file with one link needs no inode number: Linux looks at it only to find hard links.
    let fields = [0, mode, 0, 0, 1, 0, data.len() as u32, 0, 0, 0, 0, name.len() as u32 + 1, 0];
    out.extend(b"070701");
    for field in fields {
        out.extend(format!("{field:08x}").bytes());
    }
    out.extend(name.bytes().chain([0]));
    pad(out);
    out.extend(data);
    pad(out);
}

fn pad(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(4), 0);
}

/// Writes `root` and then `behind`, which starts at a multiple of 4 as every archive must.
pub fn join(root: &Path, behind: &[u8], out: &Path) -> Result<()> {
    let mut from = File::open(root).map_err(|e| LinuxError::io("read", root, &e))?;
    let write = |e: io::Error| LinuxError::io("write", out, &e);
    let mut to = File::create(out).map_err(write)?;
    let length = io::copy(&mut from, &mut to).map_err(write)?;
    to.write_all(&[0; 3][..(length.next_multiple_of(4) - length) as usize]).map_err(write)?;
    to.write_all(behind).map_err(write)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_header_and_every_file_starts_at_a_multiple_of_four() {
        let archive = own_archive(b"12345", b"x", None);
        let headers: Vec<_> =
            (0..archive.len() - 6).filter(|at| &archive[*at..at + 6] == b"070701").collect();
        assert_eq!(headers.len(), 4);
        assert!(headers.iter().all(|at| at % 4 == 0));
        let data = archive.windows(5).position(|w| w == b"12345").unwrap();
        assert_eq!(data % 4, 0);
        assert_eq!(archive.len() % 4, 0);
    }

    #[test]
    fn the_second_archive_follows_the_first_on_a_boundary() {
        let folder = tempfile::tempdir().unwrap();
        let (root, out) = (folder.path().join("root"), folder.path().join("out"));
        std::fs::write(&root, b"12345").unwrap();
        join(&root, b"second", &out).unwrap();
        assert_eq!(std::fs::read(out).unwrap(), b"12345\0\0\0second");
    }
}
