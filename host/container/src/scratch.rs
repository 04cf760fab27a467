// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mounts of the type tmpfs, and their options.

use std::path::{Path, PathBuf};

/// Where POSIX' shared memory is.
pub const SHARED_MEMORY: &str = "/dev/shm";
/// The number of tmpfs (statfs(2)).
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;
const PAGE: u64 = 4096;

/// An empty directory that goes with the container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scratch {
    pub destination: PathBuf,
    pub mode: u32,
    /// Bytes, and files and directories.
    pub size: Option<u64>,
    pub inodes: Option<u64>,
    /// Programs in it may not be executed.
    pub noexec: bool,
    /// Nothing in it can be changed.
    pub read_only: bool,
    /// It begins with what the image has there (runc's `tmpcopyup`), where it is a directory of the host's.
    pub copies_up: bool,
}

impl Scratch {
    /// Reads the options of a tmpfs (tmpfs(5)).
    pub fn of(destination: PathBuf, options: &[String]) -> std::result::Result<Scratch, String> {
        let word = |key: &str| options.iter().rev().find_map(|o| o.strip_prefix(key)?.strip_prefix('='));
        let mode = word("mode").map_or(Some(0o1777), |text| u32::from_str_radix(text, 8).ok());
        let mode = mode.filter(|mode| *mode <= 0o7777).ok_or("mode= is no octal number")?;
        let number = |key: &str| match word(key) {
            None => Ok(None),
            Some(text) => amount(text)
                .map(Some)
                .ok_or(format!("{key}={text}: write a number, with k, m, g or t behind it")),
        };
        let pages = number("nr_blocks")?.map(|pages| pages.saturating_mul(PAGE));
        let size = number("size")?.or(pages);
        // 0 is as much as there is memory for, the same as without the word.
        let (size, inodes) =
            (size.filter(|n| *n > 0), number("nr_inodes")?.map(|n| if n == 0 { u64::MAX } else { n }));
        let has = |word: &str| options.iter().any(|option| option == word);
        let (noexec, read_only, copies_up) = (has("noexec"), has("ro"), has("tmpcopyup"));
        Ok(Scratch { destination, mode, size, inodes, noexec, read_only, copies_up })
    }

    /// Shared memory is the machine's; `None`: as large as it is. Podman and Docker mount a file system of the wanted size on the host, and
    /// bind that: the source.
    pub fn of_shared_memory(
        source: Option<&Path>,
        options: &[String],
    ) -> std::result::Result<Option<Scratch>, String> {
        let mut scratch = Scratch::of(SHARED_MEMORY.into(), options)?;
        if let Some(source) = source {
            let of_host = rustix::fs::statfs(source).ok();
            let memory = of_host.filter(|found| found.f_type == TMPFS_MAGIC);
            scratch.size =
                memory.and_then(|found| found.f_blocks.checked_mul(u64::try_from(found.f_bsize).ok()?));
        }
        Ok((scratch.size.is_some() || scratch.inodes.is_some()).then_some(scratch))
    }

    /// It is limited as a directory of the host's cannot be, so that it is a file system in the machine's memory.
    pub fn is_in_memory(&self) -> bool {
        self.size.is_some() || self.inodes.is_some() || self.noexec || self.read_only && !self.copies_up
    }
}

/// A number as mount options have it.
fn amount(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_a_tmpfs_are_those_of_its_options() {
        let of = |options: &[&str]| {
            let options: Vec<String> = options.iter().map(|text| text.to_string()).collect();
            let scratch = Scratch::of("/x".into(), &options).unwrap();
            (scratch.size, scratch.inodes, scratch.mode, scratch.is_in_memory())
        };
        assert_eq!(of(&[]), (None, None, 0o1777, false));
        assert_eq!(of(&["rw", "nosuid", "size=0", "mode=700"]), (None, None, 0o700, false));
        assert_eq!(of(&["size=1m", "size=2M"]), (Some(2 << 20), None, 0o1777, true), "the last one counts");
        assert_eq!(of(&["nr_blocks=3", "nr_inodes=0"]), (Some(3 * 4096), Some(u64::MAX), 0o1777, true));
        assert!(of(&["noexec"]).3);
        for text in ["", "-1", "k", "1kb", "20t0", "99999999999g", "\u{e4}"] {
            assert_eq!(amount(text), None, "{text}");
        }
    }

    #[test]
    fn shared_memory_is_as_large_as_what_an_engine_binds_there() {
        let of_host = Scratch::of_shared_memory(Some(Path::new("/dev/shm")), &[]).unwrap();
        let is_memory = rustix::fs::statfs("/dev/shm").is_ok_and(|found| found.f_type == TMPFS_MAGIC);
        assert_eq!(of_host.is_some_and(|scratch| scratch.size > Some(0)), is_memory);
        assert_eq!(Scratch::of_shared_memory(Some(Path::new("/proc")), &[]), Ok(None), "no tmpfs");
        assert_eq!(Scratch::of_shared_memory(Some(Path::new("/no/such")), &[]), Ok(None));
        let sized = Scratch::of_shared_memory(None, &["size=64m".into()]).unwrap();
        assert_eq!(sized.and_then(|scratch| scratch.size), Some(64 << 20));
    }
}
