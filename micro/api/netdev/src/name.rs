// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names of network interfaces.

use abi::{Result, errno::EINVAL};
use core::fmt;

/// Bytes of a name with the zero behind it (IFNAMSIZ).
pub const IFNAMSIZ: usize = 16;

/// The name of an interface: 1 to 15 bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    bytes: [u8; IFNAMSIZ],
}

impl Name {
    /// The kernel's own names.
    pub const fn new(name: &'static str) -> Name {
        let mut bytes = [0; IFNAMSIZ];
        let mut at = 0;
        while at < name.len() && at < IFNAMSIZ - 1 {
            bytes[at] = name.as_bytes()[at];
            at += 1;
        }
        Name { bytes }
    }

    /// A name that a program gives, up to its first zero. `EINVAL` for what is none (Linux' `dev_valid_name`).
    pub fn parse(name: &[u8]) -> Result<Name> {
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        let is_wrong = |byte: &u8| matches!(byte, b'/' | b':') || byte.is_ascii_whitespace() || *byte == 0x0b;
        if name.is_empty()
            || name.len() >= IFNAMSIZ
            || name == b"."
            || name == b".."
            || name.iter().any(is_wrong)
        {
            return Err(EINVAL);
        }
        let mut bytes = [0; IFNAMSIZ];
        bytes[..name.len()].copy_from_slice(name);
        Ok(Name { bytes })
    }

    /// What an address or a rule calls an interface: any text, as far as there is room for it.
    pub fn label(text: &[u8]) -> Name {
        let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
        let mut bytes = [0; IFNAMSIZ];
        let length = text.len().min(IFNAMSIZ - 1);
        bytes[..length].copy_from_slice(&text[..length]);
        Name { bytes }
    }

    /// Without the zeros behind it.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.split(|byte| *byte == 0).next().unwrap_or_default()
    }

    /// The field of a `struct ifreq`.
    pub fn field(&self) -> [u8; IFNAMSIZ] {
        self.bytes
    }

    /// The name that `%d` in a pattern stands for with this number; `None` when it has no such place or becomes too long. A pattern
    /// with another `%` is `EINVAL` to the caller, who asks [`Name::is_pattern`] first.
    pub fn numbered(&self, number: u32) -> Option<Name> {
        let pattern = self.as_bytes();
        let at = pattern.windows(2).position(|pair| pair == b"%d")?;
        let mut digits = [0; 10];
        let (mut left, mut count) = (number, 0);
        loop {
            digits[count] = b'0' + (left % 10) as u8;
            (left, count) = (left / 10, count + 1);
            if left == 0 {
                break;
            }
        }
        let length = pattern.len() - 2 + count;
        if length >= IFNAMSIZ {
            return None;
        }
        let mut bytes = [0; IFNAMSIZ];
        bytes[..at].copy_from_slice(&pattern[..at]);
        digits[..count].iter().rev().zip(&mut bytes[at..]).for_each(|(digit, to)| *to = *digit);
        bytes[at + count..length].copy_from_slice(&pattern[at + 2..]);
        Some(Name { bytes })
    }

    /// Whether the name has a `%d`; `EINVAL` where it has any other `%`, or more of them.
    pub fn is_pattern(&self) -> Result<bool> {
        let pattern = self.as_bytes();
        match pattern.iter().position(|byte| *byte == b'%') {
            None => Ok(false),
            Some(at) if pattern.get(at + 1) == Some(&b'd') && !pattern[at + 1..].contains(&b'%') => Ok(true),
            Some(_) => Err(EINVAL),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for piece in self.as_bytes().utf8_chunks() {
            f.write_str(piece.valid())?;
            if !piece.invalid().is_empty() {
                f.write_str("\u{fffd}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_linux_takes() {
        for wrong in [&b""[..], b".", b"..", b"a/b", b"a b", b"a:b", b"0123456789abcdef", b"\0tun"] {
            assert_eq!(Name::parse(wrong), Err(EINVAL), "{wrong:?}");
        }
        assert_eq!(Name::parse(b"tun0\0rest").unwrap().as_bytes(), b"tun0");
        assert_eq!(Name::parse(b"0123456789abcde").unwrap().as_bytes().len(), 15);
    }

    #[test]
    fn a_pattern_has_one_place_for_a_number() {
        let pattern = Name::parse(b"tun%d").unwrap();
        assert_eq!(pattern.is_pattern(), Ok(true));
        assert_eq!(pattern.numbered(120).unwrap().as_bytes(), b"tun120");
        assert_eq!(Name::new("a%db").numbered(0).unwrap().as_bytes(), b"a0b");
        assert_eq!(Name::new("eth0").is_pattern(), Ok(false));
        assert_eq!(Name::new("eth0").numbered(1), None);
        for wrong in ["a%s", "%d%d", "a%"] {
            assert_eq!(Name::new(wrong).is_pattern(), Err(EINVAL));
        }
        assert_eq!(Name::new("0123456789abc%d").numbered(100), None);
    }
}
