// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading ELF headers (System V ABI, chapters 4 and 5; AMD64 supplement). Numbers only: nothing is mapped here.

use abi::{PAGE_SIZE, Result, errno::*};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_mem::PageSource;
use mem::{MmMap, Prot, USER_END};

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

/// One PT_LOAD, as it stands in the file: [`Segment::is_possible`] says whether it makes sense.
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
    fn read(entry: &[u8]) -> Segment {
        let flags = u32_at(entry, 4);
        let mut rights = Prot::NONE;
        for (flag, right) in [(PF_R, Prot::READ), (PF_W, Prot::WRITE), (PF_X, Prot::EXECUTE)] {
            if flags & flag != 0 {
                rights = rights.with(right);
            }
        }
        Segment {
            offset: u64_at(entry, 8),
            address: u64_at(entry, 16),
            file_size: u64_at(entry, 32),
            memory_size: u64_at(entry, 40),
            align: u64_at(entry, 48),
            rights,
        }
    }

    /// Its part of the file fits into it, lies within its pages as within the file's, and all of it within the program's half when it
    /// begins at `address`.
    pub fn is_possible(&self, address: u64) -> bool {
        let page = PAGE_SIZE as u64;
        let is_aligned = self.address % page == self.offset % page;
        let file_end = self.offset.checked_add(self.file_size);
        self.file_size <= self.memory_size
            && self.memory_size <= USER_END
            && address < USER_END
            && address <= USER_END - self.memory_size
            && (self.file_size == 0 || is_aligned && file_end.is_some_and(|end| end <= i64::MAX as u64))
    }
}

/// Whether an ELF file begins so whose code this machine has. Its class and byte order are not looked at, as on Linux.
fn is_of_this_machine(header: &[u8; HEADER]) -> bool {
    header.starts_with(b"\x7fELF") && u16_at(header, 18) == EM_X86_64
}

fn is_of_a_program(header: &[u8; HEADER]) -> bool {
    matches!(u16_at(header, 16), ET_EXEC | ET_DYN)
}

/// The path in PT_INTERP: `ENOEXEC` if it is too long, or does not end with a NUL; `EIO` if the file ends before.
fn read_interpreter_path(source: &dyn PageSource, at: &Segment) -> Result<Vec<u8>> {
    if !(2..=PATH_MAX).contains(&at.file_size) {
        return Err(ENOEXEC);
    }
    let mut path = Vec::new();
    path.reserve_exact_fallibly(at.file_size as usize).map_err(|_| ENOMEM)?;
    path.resize(at.file_size as usize, 0);
    if at.offset > i64::MAX as u64 {
        return Err(EINVAL);
    }
    read_exact(source, at.offset, &mut path, EIO)?;
    if path.pop() != Some(0) {
        return Err(ENOEXEC);
    }
    // What stands behind an inner NUL is not part of the name.
    let length = path.iter().position(|b| *b == 0).unwrap_or(path.len());
    path.truncate(length);
    Ok(path)
}

/// What the headers of an ELF file say.
#[derive(Debug)]
pub(crate) struct Elf {
    /// Addresses are relative to where it is loaded (ET_DYN).
    pub relocatable: bool,
    pub entry: u64,
    /// As they stand in the file; there may be none.
    pub segments: Vec<Segment>,
    pub interpreter: Option<Vec<u8>>,
    /// PT_GNU_STACK with PF_X.
    pub executable_stack: bool,
    pub header_offset: u64,
    pub header_count: u64,
}

impl Elf {
    /// Where code and data are once it is loaded, by its segments (Linux' `load_elf_binary`).
    pub fn mm_map(&self, base: u64) -> MmMap {
        let starts = |segment: &Segment| base.wrapping_add(segment.address);
        let ends = |segment: &Segment| starts(segment).wrapping_add(segment.file_size);
        let code = || self.segments.iter().filter(|segment| segment.rights.contains(Prot::EXECUTE));
        MmMap {
            start_code: code().map(starts).min().unwrap_or(0),
            end_code: code().map(ends).max().unwrap_or(0),
            start_data: self.segments.iter().map(starts).max().unwrap_or(0),
            end_data: self.segments.iter().map(ends).max().unwrap_or(0),
            ..MmMap::default()
        }
    }

    /// Reads and checks a program's headers: `ENOEXEC` for what is none of this machine. A file that is too short for a header counts
    /// as having zeros behind it.
    pub fn read(source: &dyn PageSource) -> Result<Elf> {
        let mut header = [0; HEADER];
        read_at(source, 0, &mut header)?;
        if !is_of_this_machine(&header) || !is_of_a_program(&header) {
            return Err(ENOEXEC);
        }
        Elf::read_segments(source, &header, true)?.ok_or(ENOEXEC)
    }

    /// Reads and checks an interpreter's headers: `EIO` for a file that is too short, `ELIBBAD` for what is no ELF file of this machine.
    /// One that is neither a program nor a shared library has no segments.
    pub fn read_interpreter(source: &dyn PageSource) -> Result<Elf> {
        let mut header = [0; HEADER];
        read_exact(source, 0, &mut header, EIO)?;
        if !is_of_this_machine(&header) {
            return Err(ELIBBAD);
        }
        let mut elf = Elf::read_segments(source, &header, false)?.ok_or(ELIBBAD)?;
        if !is_of_a_program(&header) {
            elf.segments.clear();
        }
        Ok(elf)
    }

    /// The rest of what the header tells of; none when there are no program headers or not of the right size, or the file ends before
    /// their end. An interpreter has none itself.
    fn read_segments(
        source: &dyn PageSource,
        header: &[u8; HEADER],
        has_interpreter: bool,
    ) -> Result<Option<Elf>> {
        let (header_offset, count) = (u64_at(header, 32), usize::from(u16_at(header, 56)));
        if usize::from(u16_at(header, 54)) != PROGRAM_HEADER || count == 0 || count > MAX_HEADERS {
            return Ok(None);
        }
        let mut table = Vec::new();
        table.reserve_exact_fallibly(count * PROGRAM_HEADER).map_err(|_| ENOMEM)?;
        table.resize(count * PROGRAM_HEADER, 0);
        if header_offset > i64::MAX as u64 || read_at(source, header_offset, &mut table)? < table.len() {
            return Ok(None);
        }
        let mut elf = Elf {
            relocatable: u16_at(header, 16) == ET_DYN,
            entry: u64_at(header, 24),
            segments: Vec::new(),
            interpreter: None,
            executable_stack: false,
            header_offset,
            header_count: count as u64,
        };
        for entry in table.chunks_exact(PROGRAM_HEADER) {
            match u32_at(entry, 0) {
                PT_LOAD => {
                    elf.segments.reserve_fallibly(1).map_err(|_| ENOMEM)?;
                    elf.segments.push(Segment::read(entry));
                }
                PT_INTERP if has_interpreter && elf.interpreter.is_none() => {
                    elf.interpreter = Some(read_interpreter_path(source, &Segment::read(entry))?);
                }
                PT_GNU_STACK => elf.executable_stack = u32_at(entry, 4) & PF_X != 0,
                _ => {}
            }
        }
        Ok(Some(elf))
    }

    /// First page and bytes of all segments; `EINVAL` if there are none.
    pub fn span(&self) -> Result<(u64, u64)> {
        let start = self.segments.iter().map(|s| s.address).min().ok_or(EINVAL)? & !(PAGE_SIZE as u64 - 1);
        let end = self.segments.iter().map(|s| s.address.wrapping_add(s.memory_size)).max().unwrap_or(0);
        let length = end.wrapping_sub(start);
        if length == 0 { Err(EINVAL) } else { Ok((start, length)) }
    }

    /// The largest alignment asked for that is a power of two, at least a page.
    pub fn align(&self) -> u64 {
        let asked = self.segments.iter().map(|s| s.align).filter(|a| a.is_power_of_two());
        asked.max().unwrap_or(0).max(PAGE_SIZE as u64)
    }

    /// Where the program headers are in memory, relative to the load address: in the last segment that holds them.
    pub fn header_address(&self) -> u64 {
        let at = self.header_offset;
        let holds = |s: &&Segment| s.offset <= at && at - s.offset < s.file_size;
        self.segments.iter().rfind(holds).map_or(0, |s| s.address.wrapping_add(at - s.offset))
    }
}
