// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages of xenstore (`io/xs_wire.h`): a header of four words, and text with NUL bytes between its parts.

use abi::{Errno, errno::*};

pub const HEADER: usize = 16;
/// `XENSTORE_PAYLOAD_MAX`: bytes behind a header.
pub const MAX_PAYLOAD: usize = 4096;

pub const DIRECTORY: u32 = 1;
pub const READ: u32 = 2;
pub const WATCH: u32 = 4;
pub const WRITE: u32 = 11;
pub const WATCH_EVENT: u32 = 15;
pub const ERROR: u32 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub kind: u32,
    pub id: u32,
    /// Bytes behind the header.
    pub length: usize,
}

impl Header {
    pub fn encode(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        // The third word names a transaction; there are none.
        for (at, word) in [(0, self.kind), (4, self.id), (12, self.length as u32)] {
            bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// `None`: it is longer than any may be, and nothing that follows makes sense.
    pub fn decode(bytes: &[u8; HEADER]) -> Option<Header> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let length = word(12) as usize;
        (length <= MAX_PAYLOAD).then_some(Header { kind: word(0), id: word(4), length })
    }
}

/// The error that the text of an ERROR message names.
pub fn error(text: &[u8]) -> Errno {
    let name = text.split(|byte| *byte == 0).next().unwrap_or_default();
    match name {
        b"ENOENT" => ENOENT,
        b"EACCES" => EACCES,
        b"EINVAL" => EINVAL,
        b"EAGAIN" => EAGAIN,
        b"ENOSPC" | b"E2BIG" | b"EQUOTA" => ENOSPC,
        _ => EIO,
    }
}

/// The names in a directory's listing.
pub fn names(text: &[u8]) -> impl Iterator<Item = &str> {
    text.split(|byte| *byte == 0).filter_map(|name| core::str::from_utf8(name).ok()).filter(|n| !n.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn header_survives_its_way() {
        let header = Header { kind: READ, id: 7, length: 12 };
        assert_eq!(Header::decode(&header.encode()), Some(header));
        assert_eq!(Header::decode(&Header { length: MAX_PAYLOAD + 1, ..header }.encode()), None);
    }

    #[test]
    fn listing_is_taken_apart_at_its_zeros() {
        assert_eq!(names(b"vif\0vbd\0").collect::<std::vec::Vec<_>>(), ["vif", "vbd"]);
        assert_eq!(names(b"").count(), 0);
        assert_eq!(error(b"ENOENT\0"), ENOENT);
        assert_eq!(error(b""), EIO);
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken_apart(bytes in proptest::collection::vec(any::<u8>(), 0..300), head: [u8; HEADER]) {
            prop_assert!(Header::decode(&head).is_none_or(|h| h.length <= MAX_PAYLOAD));
            error(&bytes);
            prop_assert!(names(&bytes).all(|name| !name.contains('\0') && !name.is_empty()));
        }
    }
}
