// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One file that UEFI firmware starts: a stub, and in sections of the same PE file the kernel, its command line and its
//! root file system. The host writes that file (`unilith build --disk`), the stub in it reads it; this is what both know.
//!
//! | section | what is in it |
//! | --- | --- |
//! | `.kernel` | [`encode`]: where the kernel's segments go, and their bytes, each packed |
//! | `.line` | the kernel's command line, ended by a NUL byte |
//! | `.root` | the root file system, a cpio archive, packed |
//!
//! What is packed ([`Packed`]) carries a sum, so bytes that a disk has damaged are never run.
//!
//! All three begin at a page. As everything is in one file, one signature covers it (Secure Boot).
#![no_std]
#![forbid(unsafe_code)]
#[cfg(any(test, feature = "encode"))]
extern crate alloc;

pub mod map;
mod packed;
pub mod screen;

pub use packed::Packed;
#[cfg(any(test, feature = "encode"))]
pub use packed::pack;

pub const KERNEL: &str = ".kernel";
pub const LINE: &str = ".line";
pub const ROOT: &str = ".root";

const MAGIC: u64 = u64::from_le_bytes(*b"unilith2");
/// Bytes of the header, and of a segment's entry.
const HEADER: usize = 24;
const ENTRY: usize = 32;
/// Most segments of a kernel.
const MAX_SEGMENTS: u64 = 16;

/// A part of the kernel: its bytes, and zeros behind them up to `memory`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<B> {
    pub physical: u64,
    /// Bytes it has in memory: at least those of the file.
    pub memory: u64,
    pub bytes: B,
}

impl Segment<Packed<'_>> {
    /// Fills all of the segment's memory; whether its bytes are those that were packed.
    pub fn unpack(&self, memory: &mut [u8]) -> bool {
        let Some((bytes, zeros)) = memory.split_at_mut_checked(self.bytes.size()) else { return false };
        zeros.fill(0);
        self.bytes.unpack(bytes)
    }
}

/// The section `.kernel`: a magic number, the physical address of the entry, the number of segments; for each its physical
/// address, its bytes in memory, where its packed bytes begin in the section, and how many these are; the packed bytes. All numbers
/// have 8 bytes, little-endian.
#[cfg(any(test, feature = "encode"))]
pub fn encode(entry: u64, segments: &[Segment<&[u8]>]) -> alloc::vec::Vec<u8> {
    let mut out = alloc::vec::Vec::new();
    let packed: alloc::vec::Vec<_> = segments.iter().map(|segment| pack(segment.bytes)).collect();
    let mut offset = (HEADER + ENTRY * segments.len()) as u64;
    for number in [MAGIC, entry, segments.len() as u64] {
        out.extend(number.to_le_bytes());
    }
    for (segment, bytes) in segments.iter().zip(&packed) {
        for number in [segment.physical, segment.memory, offset, bytes.len() as u64] {
            out.extend(number.to_le_bytes());
        }
        offset += bytes.len() as u64;
    }
    out.extend(packed.into_iter().flatten());
    out
}

/// What [`encode`] wrote.
#[derive(Clone, Copy, Debug)]
pub struct Kernel<'a> {
    /// Physical address of the first instruction.
    pub entry: u64,
    section: &'a [u8],
    segments: usize,
}

impl<'a> Kernel<'a> {
    /// Reads the section. `None`: it is damaged.
    pub fn decode(section: &'a [u8]) -> Option<Kernel<'a>> {
        let (magic, entry, segments) = (word(section, 0)?, word(section, 8)?, word(section, 16)?);
        if magic != MAGIC || segments == 0 || segments > MAX_SEGMENTS || u32::try_from(entry).is_err() {
            return None;
        }
        let kernel = Kernel { entry, section, segments: segments as usize };
        (0..kernel.segments).all(|n| kernel.segment(n).is_some()).then_some(kernel)
    }

    fn segment(&self, n: usize) -> Option<Segment<Packed<'a>>> {
        let at = HEADER + n * ENTRY;
        let (physical, memory) = (word(self.section, at)?, word(self.section, at + 8)?);
        let start = usize::try_from(word(self.section, at + 16)?).ok()?;
        let end = start.checked_add(usize::try_from(word(self.section, at + 24)?).ok()?)?;
        let bytes = Packed::decode(self.section.get(start..end)?)?;
        // The kernel runs without paging at first.
        let fits = physical.checked_add(memory).is_some_and(|end| end <= 1 << 32);
        (bytes.size() as u64 <= memory && fits).then_some(Segment { physical, memory, bytes })
    }

    pub fn segments(&self) -> impl Iterator<Item = Segment<Packed<'a>>> + '_ {
        (0..self.segments).filter_map(|n| self.segment(n))
    }

    /// The physical pages that the kernel needs: the first one's address, and behind the last one.
    pub fn pages(&self) -> (u64, u64) {
        let first = self.segments().map(|s| s.physical).min().unwrap_or(0);
        let end = self.segments().map(|s| s.physical + s.memory).max().unwrap_or(0);
        (first & !0xfff, end.next_multiple_of(4096))
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes)
}

/// A section of a PE file as it is in memory (Microsoft's PE format, "Section Table").
pub fn section<'a>(image: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let half = |at: usize| image.get(at..at + 2)?.try_into().ok().map(u16::from_le_bytes);
    let long = |at: usize| image.get(at..at + 4)?.try_into().ok().map(|b| u32::from_le_bytes(b) as usize);
    let header = long(0x3c)?;
    // Behind the signature and the file header is the optional header, then the table.
    let table = header.checked_add(24)?.checked_add(half(header.checked_add(20)?)?.into())?;
    let sections = usize::from(half(header.checked_add(6)?)?);
    (0..sections).find_map(|n| {
        let at = table.checked_add(n * 40)?;
        let own = image.get(at..at + 8)?;
        let own = own.split(|byte| *byte == 0).next().unwrap_or(&[]);
        if own != name.as_bytes() {
            return None;
        }
        let (size, start) = (long(at + 8)?, long(at + 12)?);
        image.get(start..start.checked_add(size)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_read_as_it_was_written() {
        let text = [7; 3000];
        let parts: [Segment<&[u8]>; 2] = [
            Segment { physical: 0x20_0000, memory: 0x1000, bytes: &text },
            Segment { physical: 0x20_1000, memory: 0x1801, bytes: b"" },
        ];
        let section = encode(0x20_0010, &parts);
        let kernel = Kernel::decode(&section).unwrap();
        assert_eq!((kernel.entry, kernel.pages()), (0x20_0010, (0x20_0000, 0x20_3000)));
        assert_eq!(kernel.segments().count(), parts.len());
        for (read, written) in kernel.segments().zip(parts) {
            assert_eq!((read.physical, read.memory), (written.physical, written.memory));
            let mut memory = alloc::vec![0xff; read.memory as usize];
            assert!(read.unpack(&mut memory));
            let (bytes, zeros) = memory.split_at(written.bytes.len());
            assert!(bytes == written.bytes && zeros.iter().all(|byte| *byte == 0));
            assert!(
                !read.unpack(&mut memory[..written.bytes.len().saturating_sub(1)])
                    || written.bytes.is_empty()
            );
        }
    }

    #[test]
    fn a_damaged_kernel_is_none() {
        let part: Segment<&[u8]> = Segment { physical: 0x20_0000, memory: 8, bytes: b"12345678" };
        let section = encode(0x20_0000, &[part]);
        for length in 0..section.len() {
            assert!(Kernel::decode(&section[..length]).is_none(), "{length}");
        }
        let with = |at: usize, value: u64| {
            let mut other = section.clone();
            other[at..at + 8].copy_from_slice(&value.to_le_bytes());
            Kernel::decode(&other).is_some()
        };
        assert!(with(8, 7) && !with(8, 1 << 32), "an entry above 4 GiB");
        assert!(!with(16, 0) && !with(16, 2) && !with(16, u64::MAX), "segments that are not there");
        assert!(!with(24, u64::MAX) && !with(24, (1 << 32) - 4), "above 4 GiB");
        assert!(!with(32, 7), "less memory than bytes");
        assert!(!with(40, u64::MAX) && !with(40, 64) && !with(48, u64::MAX), "bytes that are not there");
    }

    #[test]
    fn firmware_is_called_where_it_may_interrupt_and_nowhere_else() {
        let sources = [include_str!("handles.rs"), include_str!("seed.rs"), include_str!("stub.rs")];
        let mut calls = 0;
        for lines in sources.map(|source| source.lines().collect::<alloc::vec::Vec<_>>()) {
            for (n, line) in lines.iter().enumerate() {
                // A function that a field points to, as all of firmware's are.
                if ["(services.", "((*"].iter().any(|field| line.contains(field)) && line.contains(")(") {
                    calls += 1;
                    let call = lines[n.saturating_sub(1)..=n].concat();
                    assert!(call.contains("call(||"), "not by `firmware::call`: {line}");
                }
            }
        }
        assert!(calls > 15, "{calls}");
    }

    #[test]
    fn no_bytes_of_an_image_are_read_that_are_not_there() {
        let mut image = [0; 256];
        image[0x3c] = 0x40;
        image[0x46] = 1;
        image[0x58..0x5f].copy_from_slice(b".kernel");
        image[0x60] = 16;
        image[0x64] = 200;
        assert_eq!(section(&image, KERNEL).map(<[u8]>::len), Some(16));
        assert!(section(&image, ROOT).is_none());
        for length in 0..216 {
            assert!(section(&image[..length], KERNEL).is_none(), "{length}");
        }
        image[0x3c..0x40].fill(0xff);
        assert!(section(&image, KERNEL).is_none());
    }
}
