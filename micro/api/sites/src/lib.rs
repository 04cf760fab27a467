// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of system-call sites of one ELF file, written by the host's `rewrite` crate with a real decoder and
//! used by the kernel when it maps the file's text: each site becomes a jump to a stub of its own.
//!
//! A site covers `before` bytes of whole, position-independent, straight-line instructions, the two bytes of
//! `syscall`, and `after` bytes of such instructions; together at least [`JUMP_LENGTH`]. The kernel overwrites the
//! first [`JUMP_LENGTH`] bytes with `jmp rel32` to a stub that runs the copied instructions before, loads the return
//! address into RCX, enters the kernel, and comes back behind the copied instructions after. No branch of the file
//! leads into the overwritten bytes except to their first. Where `before >= 5` the `syscall` itself stays in place
//! and an unexpected jump to it still traps.
//!
//! Layout, little-endian: magic `USIT`, version u32 = 1, number of records u32, zero u32; then the records of
//! [`RECORD_LENGTH`] bytes in ascending order of `offset`: offset u32, before u8, after u8, number u16.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

use alloc::vec::Vec;

pub const MAGIC: [u8; 4] = *b"USIT";
pub const VERSION: u32 = 1;
pub const HEADER_LENGTH: usize = 16;
pub const RECORD_LENGTH: usize = 8;
/// `jmp rel32`.
pub const JUMP_LENGTH: usize = 5;
/// `Site::number` where the number is not known from the code.
pub const NUMBER_UNKNOWN: u16 = 0xffff;

/// One system-call site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// File offset of the first covered byte.
    pub offset: u32,
    pub before: u8,
    pub after: u8,
    /// The system-call number when a `mov $number, %eax` is among the covered instructions, else [`NUMBER_UNKNOWN`].
    pub number: u16,
}

impl Site {
    /// Bytes covered in the file.
    pub fn length(&self) -> usize {
        self.before as usize + 2 + self.after as usize
    }
}

/// Writes a table; `sites` must be in ascending order of offset.
pub fn encode(sites: &[Site]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_LENGTH + sites.len() * RECORD_LENGTH);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&(sites.len() as u32).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    for s in sites {
        out.extend_from_slice(&s.offset.to_le_bytes());
        out.extend_from_slice(&[s.before, s.after]);
        out.extend_from_slice(&s.number.to_le_bytes());
    }
    out
}

/// A table in place. Nothing in it is trusted: every record read is checked to be long enough and in order.
#[derive(Clone, Copy, Debug)]
pub struct Sites<'a>(&'a [u8]);

impl<'a> Sites<'a> {
    /// `None` unless the whole is well formed.
    pub fn parse(bytes: &'a [u8]) -> Option<Sites<'a>> {
        let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        if bytes.get(..4)? != MAGIC || word(4)? != VERSION {
            return None;
        }
        let length = (word(8)? as usize).checked_mul(RECORD_LENGTH)?;
        let records = bytes.get(HEADER_LENGTH..)?.get(..length)?;
        let table = Sites(records);
        let mut end = 0;
        for site in table.iter() {
            let start = site.offset as usize;
            if site.length() < JUMP_LENGTH || start < end {
                return None;
            }
            end = start + site.length();
        }
        Some(table)
    }

    pub fn len(&self) -> usize {
        self.0.len() / RECORD_LENGTH
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn get(&self, index: usize) -> Option<Site> {
        let r = self.0.get(index * RECORD_LENGTH..(index + 1) * RECORD_LENGTH)?;
        Some(Site {
            offset: u32::from_le_bytes([r[0], r[1], r[2], r[3]]),
            before: r[4],
            after: r[5],
            number: u16::from_le_bytes([r[6], r[7]]),
        })
    }

    pub fn iter(&self) -> impl Iterator<Item = Site> + use<'a> {
        let table = *self;
        (0..self.len()).filter_map(move |i| table.get(i))
    }

    /// The sites that lie wholly inside the file range, in order.
    pub fn within(&self, start: u64, end: u64) -> impl Iterator<Item = Site> + use<'a> {
        self.iter()
            .skip_while(move |s| (s.offset as u64) < start)
            .take_while(move |s| s.offset as u64 + s.length() as u64 <= end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SITES: [Site; 2] = [
        Site { offset: 100, before: 5, after: 0, number: 39 },
        Site { offset: 200, before: 0, after: 3, number: NUMBER_UNKNOWN },
    ];

    #[test]
    fn a_table_survives_the_round_trip() {
        let bytes = encode(&SITES);
        assert_eq!(Sites::parse(&bytes).unwrap().iter().collect::<Vec<_>>(), SITES);
        assert_eq!(Sites::parse(&bytes).unwrap().within(101, 300).count(), 1);
        assert_eq!(Sites::parse(&bytes).unwrap().within(0, 204).count(), 1);
    }

    #[test]
    fn malformed_tables_are_refused() {
        let good = encode(&SITES);
        for cut in 0..good.len() {
            assert!(Sites::parse(&good[..cut]).is_none());
        }
        let overlap = encode(&[SITES[0], Site { offset: 103, ..SITES[1] }]);
        assert!(Sites::parse(&overlap).is_none());
        assert!(Sites::parse(&encode(&[Site { before: 2, after: 0, ..SITES[0] }])).is_none());
    }
}
