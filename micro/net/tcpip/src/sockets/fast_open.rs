// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keys of TCP Fast Open (RFC 7413; TCP_FASTOPEN_KEY, net.ipv4.tcp_fastopen_key). Cookies would be made from them; as with
//! net.ipv4.tcp_fastopen's first bit alone, no listener gives any out, and the keys are only kept.

use abi::{Result, errno::*};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

pub const TCP_FASTOPEN_KEY: u32 = 33;
const KEY: usize = 16;

/// The key that is used, and one from before, or that is used next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    bytes: [u8; 2 * KEY],
    has_backup: bool,
}

impl Keys {
    /// What is shown where there is none.
    pub const NONE: Keys = Keys { bytes: [0; 2 * KEY], has_backup: false };

    /// `EINVAL` for anything but one key or two.
    pub fn from_bytes(value: &[u8]) -> Result<Keys> {
        if value.len() != KEY && value.len() != 2 * KEY {
            return Err(EINVAL);
        }
        let mut bytes = [0; 2 * KEY];
        bytes[..value.len()].copy_from_slice(value);
        Ok(Keys { bytes, has_backup: value.len() > KEY })
    }

    pub fn to_bytes(self) -> Vec<u8> {
        self.bytes[..if self.has_backup { 2 * KEY } else { KEY }].to_vec()
    }

    /// Four words of a key in hexadecimal with dashes between them, and behind a comma those of another.
    pub fn parse(text: &str) -> Result<Keys> {
        let text = text.trim_end_matches(['\0', '\n']);
        let (first, backup) =
            text.split_once(',').map_or((text, None), |(first, backup)| (first, Some(backup)));
        let mut bytes = [0; 2 * KEY];
        for (part, key) in bytes.as_chunks_mut::<KEY>().0.iter_mut().zip([Some(first), backup]) {
            let Some(key) = key else { continue };
            let mut words =
                key.split('-').map(|word| u32::from_str_radix(word.trim(), 16).map_err(|_| EINVAL));
            for word in part.as_chunks_mut::<4>().0 {
                *word = words.next().ok_or(EINVAL)??.to_le_bytes();
            }
            if words.next().is_some() {
                return Err(EINVAL);
            }
        }
        Ok(Keys { bytes, has_backup: backup.is_some() })
    }

    /// As [`Keys::parse`] takes them.
    pub fn shown(&self) -> String {
        let mut out = String::new();
        for (i, word) in self.to_bytes().as_chunks::<4>().0.iter().enumerate() {
            let before = match i {
                0 => "",
                4 => ",",
                _ => "-",
            };
            out.push_str(&format!("{before}{:08x}", u32::from_le_bytes(*word)));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_shown_as_they_are_written() {
        for text in ["00000001-0000000a-ffffffff-12345678", "0-1-2-3,4-5-6-7\n"] {
            let keys = Keys::parse(text).unwrap();
            assert_eq!(Keys::parse(&keys.shown()), Ok(keys));
            assert_eq!(Keys::from_bytes(&keys.to_bytes()), Ok(keys));
        }
        assert_eq!(Keys::parse("1-2-3-4").unwrap().to_bytes()[..5], [1, 0, 0, 0, 2]);
        assert_eq!(Keys::parse("1-2-3-4").unwrap().shown(), "00000001-00000002-00000003-00000004");
        for bad in ["", "1-2-3", "1-2-3-4,", "1-2-3-4,5", "x-2-3-4", "100000000-2-3-4"] {
            assert_eq!(Keys::parse(bad), Err(EINVAL), "{bad}");
        }
        for length in [0, 15, 17, 31, 33] {
            assert_eq!(Keys::from_bytes(&[0; 40][..length]), Err(EINVAL));
        }
    }
}
