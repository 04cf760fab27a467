// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading ELF headers (System V ABI, chapters 4 and 5; AMD64 supplement). Numbers only: nothing is mapped here.

use abi::{PAGE_SIZE, Result, errno::*};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_mem::PageSource;
use mem::{Prot, USER_END};

const HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;
/// Linux reads at most 64 KiB of program headers.
const MAX_HEADERS: usize = 65_536 / PROGRAM_HEADER;
/// Longest interpreter path with its NUL (PATH_MAX).
const PATH_MAX: u64 = 4096;

const ET_EXEC: u16 = 2;
const ET_DYN: u16 = 3;
const EM_X86_64: u16 = 62;
const PT_LOAD: u32 = 1;
const PT_INTERP: u32 = 3;
const PT_GNU_STACK: u32 = 0x6474_e551;
const PF_X: u32 = 1;
const PF_W: u32 = 2;
const PF_R: u32 = 4;

/// Reads from a file through its pages; short at its end.
pub(crate) fn read_at(source: &dyn PageSource, offset: u64, to: &mut [u8]) -> Result<usize> {
    let end = source.length().min(offset.saturating_add(to.len() as u64));
    let mut at = offset;
    while at < end {
        let (page, within) = (at / PAGE_SIZE as u64, at as usize % PAGE_SIZE);
        let n = (PAGE_SIZE - within).min((end - at) as usize);
        let done = (at - offset) as usize;
        source.page(page, false)?.read(within, &mut to[done..done + n]);
        at += n as u64;
    }
    Ok((at.max(offset) - offset) as usize)
}

/// Fills the buffer; `error` when the file ends before.
fn read_exact(source: &dyn PageSource, offset: u64, to: &mut [u8], error: abi::Errno) -> Result<()> {
    if read_at(source, offset, to)? == to.len() { Ok(()) } else { Err(error) }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |b| u16::from_le_bytes([b[0], b[1]]))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// One PT_LOAD. `file_size <= memory_size`, and the end lies in the program's half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub offset: u64,
    pub address: u64,
    pub file_size: u64,
    pub memory_size: u64,
    pub align: u64,
    pub rights: Prot,
}

impl Segment {
    /// First byte behind it in memory.
    pub fn end(&self) -> u64 {
        self.address + self.memory_size
    }
}

/// What the headers of an ELF file say.
#[derive(Debug)]
pub(crate) struct Elf {
    /// Addresses are relative to where it is loaded (ET_DYN).
    pub relocatable: bool,
    pub entry: u64,
    /// At least one, as they stand in the file.
    pub segments: Vec<Segment>,
    pub interpreter: Option<Vec<u8>>,
    /// PT_GNU_STACK with PF_X.
    pub executable_stack: bool,
    pub header_offset: u64,
    pub header_count: u64,
}

/// True when the file starts as an ELF file does.
pub(crate) fn is_elf(start: &[u8]) -> bool {
    start.starts_with(b"\x7fELF")
}

impl Elf {
    /// Reads and checks the headers. `ENOEXEC` for what is no ELF program of this machine, `EINVAL` for segments
    /// that make no sense.
    pub fn read(source: &dyn PageSource) -> Result<Elf> {
        let mut header = [0; HEADER];
        read_exact(source, 0, &mut header, ENOEXEC)?;
        let kind = u16_at(&header, 16);
        // 64-bit, little-endian.
        if !is_elf(&header)
            || header[4..6] != [2, 1]
            || !matches!(kind, ET_EXEC | ET_DYN)
            || u16_at(&header, 18) != EM_X86_64
        {
            return Err(ENOEXEC);
        }
        let (header_offset, count) = (u64_at(&header, 32), usize::from(u16_at(&header, 56)));
        if usize::from(u16_at(&header, 54)) != PROGRAM_HEADER || count == 0 || count > MAX_HEADERS {
            return Err(ENOEXEC);
        }
        let mut table = Vec::new();
        table.reserve_exact_fallibly(count * PROGRAM_HEADER).map_err(|_| ENOMEM)?;
        table.resize(count * PROGRAM_HEADER, 0);
        read_exact(source, header_offset, &mut table, EIO)?;
        let mut elf = Elf {
            relocatable: kind == ET_DYN,
            entry: u64_at(&header, 24),
            segments: Vec::new(),
            interpreter: None,
            executable_stack: false,
            header_offset,
            header_count: count as u64,
        };
        for entry in table.chunks_exact(PROGRAM_HEADER) {
            elf.take(source, entry)?;
        }
        if elf.segments.is_empty() {
            return Err(EINVAL);
        }
        Ok(elf)
    }

    fn take(&mut self, source: &dyn PageSource, entry: &[u8]) -> Result<()> {
        let (flags, offset) = (u32_at(entry, 4), u64_at(entry, 8));
        let (file_size, memory_size) = (u64_at(entry, 32), u64_at(entry, 40));
        match u32_at(entry, 0) {
            PT_LOAD => {
                let mut rights = Prot::NONE;
                for (flag, right) in [(PF_R, Prot::READ), (PF_W, Prot::WRITE), (PF_X, Prot::EXECUTE)] {
                    if flags & flag != 0 {
                        rights = rights.with(right);
                    }
                }
                let (address, align) = (u64_at(entry, 16), u64_at(entry, 48));
                let segment = Segment { offset, address, file_size, memory_size, align, rights };
                let page = PAGE_SIZE as u64;
                if file_size > memory_size
                    || memory_size > USER_END
                    || address > USER_END - memory_size
                    || (file_size > 0 && address % page != offset % page)
                    || offset.checked_add(file_size).is_none_or(|end| end > i64::MAX as u64)
                {
                    return Err(EINVAL);
                }
                if memory_size > 0 {
                    self.segments.push(segment);
                }
            }
            PT_INTERP if self.interpreter.is_none() => {
                if !(2..=PATH_MAX).contains(&file_size) {
                    return Err(ENOEXEC);
                }
                let mut path = Vec::new();
                path.reserve_exact_fallibly(file_size as usize).map_err(|_| ENOMEM)?;
                path.resize(file_size as usize, 0);
                read_exact(source, offset, &mut path, EIO)?;
                if path.pop() != Some(0) {
                    return Err(ENOEXEC);
                }
                // What stands behind an inner NUL is not part of the name.
                let length = path.iter().position(|b| *b == 0).unwrap_or(path.len());
                path.truncate(length);
                self.interpreter = Some(path);
            }
            PT_GNU_STACK => self.executable_stack = flags & PF_X != 0,
            _ => {}
        }
        Ok(())
    }

    /// First page and end of all segments.
    pub fn span(&self) -> (u64, u64) {
        let start = self.segments.iter().map(|s| s.address).min().unwrap_or(0);
        let end = self.segments.iter().map(Segment::end).max().unwrap_or(0);
        (start & !(PAGE_SIZE as u64 - 1), end)
    }

    /// The largest alignment asked for that is a power of two, at least a page.
    pub fn align(&self) -> u64 {
        let asked = self.segments.iter().map(|s| s.align).filter(|a| a.is_power_of_two());
        asked.max().unwrap_or(0).max(PAGE_SIZE as u64)
    }

    /// Where the program headers are in memory, relative to the load address: in the segment that holds them.
    pub fn header_address(&self) -> u64 {
        let at = self.header_offset;
        let holds = |s: &&Segment| s.offset <= at && at - s.offset < s.file_size;
        self.segments.iter().find(holds).map_or(0, |s| s.address.wrapping_add(at - s.offset))
    }
}
