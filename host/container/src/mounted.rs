// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is mounted on the host (/proc/self/mountinfo, proc(5)).

use crate::Result;
use rustix::mount::UnmountFlags;
use std::{
    ffi::OsString,
    fs,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

/// The mounts of this process.
const MOUNTS: &str = "/proc/self/mountinfo";

/// Something that can be written to is mounted below that directory.
pub fn is_writable_below(directory: &Path) -> Result<bool> {
    let directory = directory.canonicalize().map_err(crate::file("cannot use", directory))?;
    let text = fs::read(MOUNTS).map_err(crate::file("cannot read", Path::new(MOUNTS)))?;
    Ok(has_writable_below(&text, &directory))
}

/// What is mounted below a container's root, in the order in which it was mounted.
pub fn below(directory: &Path) -> Result<Vec<PathBuf>> {
    let directory = directory.canonicalize().map_err(crate::file("cannot use the root", directory))?;
    let text = fs::read(MOUNTS).map_err(crate::file("cannot read", Path::new(MOUNTS)))?;
    Ok(points_below(&text, &directory))
}

fn points_below(text: &[u8], directory: &Path) -> Vec<PathBuf> {
    let points = text.split(|byte| *byte == b'\n').filter_map(|line| line.split(|byte| *byte == b' ').nth(4));
    points.map(unescape).filter(|point| point != directory && point.starts_with(directory)).collect()
}

/// Takes mounts away, the last one first. Those that somebody uses go when nobody does any more.
pub fn unmount(points: &[PathBuf]) {
    for point in points.iter().rev() {
        // Whoever mounted it may have taken it away.
        let _ = rustix::mount::unmount(point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
    }
}

fn has_writable_below(text: &[u8], directory: &Path) -> bool {
    text.split(|byte| *byte == b'\n').any(|line| {
        let mut fields = line.split(|byte| *byte == b' ').skip(4);
        let (Some(point), Some(options)) = (fields.next(), fields.next()) else { return false };
        let point = unescape(point);
        let is_below = point != directory && point.starts_with(directory);
        is_below && options.split(|byte| *byte == b',').any(|option| option == b"rw")
    })
}

/// White space and backslashes are three octal digits behind a backslash.
fn unescape(field: &[u8]) -> PathBuf {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [byte, after @ ..] = rest {
        let digits = after.get(..3).filter(|_| *byte == b'\\');
        let number = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        out.push(number.unwrap_or(*byte));
        rest = if number.is_some() { &after[3..] } else { after };
    }
    PathBuf::from(OsString::from_vec(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mounted_below_is_told_from_what_is_beside() {
        let text = b"22 1 0:20 / / rw,relatime - ext4 /dev/vda rw\n\
            30 22 0:31 / /a/b\\040c rw,nosuid shared:1 - tmpfs tmpfs rw\n\
            31 22 0:32 / /fixed/x ro - tmpfs tmpfs rw\n\
            32 22 0:33 / /one rw - tmpfs tmpfs rw\nshort line\n";
        let below = |path: &str| has_writable_below(text, Path::new(path));
        assert!(below("/") && below("/a"));
        assert!(!below("/a/b c"), "it is the mount itself");
        assert!(!below("/fixed"), "what is mounted there is read-only as well");
        assert!(!below("/on") && !below("/one") && !below("/nowhere"));
        assert_eq!(points_below(text, Path::new("/a")), [Path::new("/a/b c")]);
        assert_eq!(unescape(br"/x\134\12\999y"), Path::new(r"/x\\12\999y"));
    }
}
