// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Symbols of ELF files, read in place: `.dynsym` through its GNU hash table, and `.symtab` where the file was not
//! stripped. There is no table of symbols to ship or to load; what a machine runs it can look up.
//!
//! A [`File`] reads its source piece by piece and keeps nothing but where the tables are. Nothing in a file is trusted:
//! what is malformed has no symbols.
#![no_std]
#![cfg_attr(not(test), forbid(unsafe_code))]
#[cfg(test)]
extern crate std;

#[cfg(test)]
mod tests;

/// Where a file's bytes come from.
pub trait Source {
    /// Fills `to` from `offset` on; false where the file ends before, or cannot be read.
    fn read_at(&self, offset: u64, to: &mut [u8]) -> bool;
}

impl Source for [u8] {
    fn read_at(&self, offset: u64, to: &mut [u8]) -> bool {
        let from = usize::try_from(offset).ok().and_then(|at| self.get(at..at.checked_add(to.len())?));
        from.is_some_and(|from| {
            to.copy_from_slice(from);
            true
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Function,
    /// Code that answers the function's address (STT_GNU_IFUNC).
    Indirect,
    Variable,
    ThreadLocal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Where it is in memory.
    pub address: u64,
    /// In bytes; 0 when the file does not say.
    pub size: u64,
    pub kind: Kind,
}

/// Longest name that is compared and handed out; C++ has longer ones, which cannot be found.
pub const NAME_MAX: usize = 512;
/// Entries of a symbol table read at once.
const PIECE: usize = 64;
const ENTRY: usize = 24;
/// Bytes of a section's header, and how many are read at once.
const SECTION: usize = 64;
const SECTIONS: usize = 16;

const SHT_SYMTAB: u32 = 2;
const SHT_DYNSYM: u32 = 11;
const SHT_GNU_HASH: u32 = 0x6fff_fff6;
const SHT_GNU_VERSYM: u32 = 0x6fff_ffff;
/// In a version's number: programs linked today do not get this one.
const VERSION_HIDDEN: u8 = 0x80;
const PT_LOAD: u32 = 1;

#[derive(Clone, Copy, Default)]
struct Range {
    offset: u64,
    size: u64,
}

#[derive(Clone, Copy, Default)]
struct Table {
    symbols: Range,
    strings: Range,
}

/// Where the tables of a file are, and where it is loaded. A file that has changed since gives other symbols, or none.
#[derive(Clone, Copy, Default)]
pub struct Layout {
    /// What is added to the file's addresses.
    bias: u64,
    dynamic: Option<Table>,
    hash: Option<Range>,
    versions: Option<Range>,
    full: Option<Table>,
}

/// The symbols of one file, at the place where it is loaded.
pub struct File<'a, S: Source + ?Sized> {
    source: &'a S,
    layout: Layout,
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

/// The hash of names in DT_GNU_HASH.
fn gnu_hash(name: &[u8]) -> u32 {
    name.iter().fold(5381, |hash: u32, byte| hash.wrapping_mul(33).wrapping_add(u32::from(*byte)))
}

impl Layout {
    /// Reads the headers of a file whose first byte is mapped at `start`; `None` when it is no ELF file with symbols.
    pub fn read(source: &(impl Source + ?Sized), start: u64) -> Option<Layout> {
        let mut header = [0; 64];
        if !source.read_at(0, &mut header) || header[..5] != *b"\x7fELF\x02" {
            return None;
        }
        let mut file = Layout::default();
        let (programs, count) = (u64_at(&header, 32), u16_at(&header, 56));
        for index in 0..count {
            let mut program = [0; 56];
            let offset = programs.checked_add(u64::from(index) * 56)?;
            if source.read_at(offset, &mut program) && u32_at(&program, 0) == PT_LOAD {
                // The first one maps the file's start; segments begin at pages.
                let address = u64_at(&program, 16).wrapping_sub(u64_at(&program, 8)) & !0xfff;
                file.bias = start.wrapping_sub(address);
                break;
            }
        }
        let (sections, count) = (u64_at(&header, 40), usize::from(u16_at(&header, 60)));
        let read = |index: usize, to: &mut [u8]| {
            sections.checked_add((index * SECTION) as u64).is_some_and(|at| source.read_at(at, to))
        };
        let range = |header: &[u8]| Range { offset: u64_at(header, 24), size: u64_at(header, 32) };
        let table = |header: &[u8]| {
            let (index, mut strings) = (u32_at(header, 40) as usize, [0; SECTION]);
            (index < count && read(index, &mut strings))
                .then(|| Table { symbols: range(header), strings: range(&strings) })
        };
        let mut piece = [0; SECTIONS * SECTION];
        for first in (0..count).step_by(SECTIONS) {
            let headers = &mut piece[..(count - first).min(SECTIONS) * SECTION];
            if !read(first, headers) {
                break;
            }
            for header in headers.chunks_exact(SECTION) {
                match u32_at(header, 4) {
                    SHT_SYMTAB => file.full = table(header),
                    SHT_DYNSYM => file.dynamic = table(header),
                    SHT_GNU_VERSYM => file.versions = Some(range(header)),
                    SHT_GNU_HASH => file.hash = Some(range(header)),
                    _ => {}
                }
            }
        }
        (file.full.is_some() || file.dynamic.is_some()).then_some(file)
    }
}

impl<'a, S: Source + ?Sized> File<'a, S> {
    /// As [`Layout::read`], to look for symbols.
    pub fn open(source: &'a S, start: u64) -> Option<Self> {
        Layout::read(source, start).map(|layout| File::new(source, layout))
    }

    /// Of a file whose layout was read before.
    pub fn new(source: &'a S, layout: Layout) -> Self {
        File { source, layout }
    }

    /// True when the file has more than its dynamic symbols.
    pub fn is_complete(&self) -> bool {
        self.layout.full.is_some()
    }

    /// What the file exports under that name, or else what it has under it.
    pub fn find(&self, name: &[u8]) -> Option<Symbol> {
        if name.is_empty() || name.len() > NAME_MAX {
            return None;
        }
        if let (Some(table), Some(hash)) = (self.layout.dynamic, self.layout.hash)
            && let Some(symbol) = self.find_hashed(table, hash, name)
        {
            return Some(symbol);
        }
        let mut found = None;
        // Every dynamic symbol that is defined is in the hash table, where there is one.
        let unhashed = self.layout.dynamic.filter(|_| self.layout.hash.is_none());
        for table in [self.layout.full, unhashed].into_iter().flatten() {
            self.walk(table, &mut |entry| {
                if let Some(symbol) = self.symbol(entry)
                    && self.is_named(table, u32_at(entry, 0), name)
                {
                    // A global one wins over local ones of the same name.
                    let is_global = entry[4] >> 4 != 0;
                    if found.is_none() || is_global {
                        found = Some(symbol);
                    }
                    return !is_global;
                }
                true
            });
            if found.is_some() {
                break;
            }
        }
        found
    }

    /// The symbol with the highest address that is not above `address`, and of several there one that programmers use,
    /// without an underscore in front; its name is written to `name`, and the length
    /// of it answered.
    pub fn describe(&self, address: u64, name: &mut [u8; NAME_MAX]) -> Option<(Symbol, usize)> {
        let mut best: Option<(Symbol, Table, u32)> = None;
        for table in [self.layout.full, self.layout.dynamic].into_iter().flatten() {
            self.walk(table, &mut |entry| {
                if let Some(symbol) = self.symbol(entry)
                    && symbol.kind != Kind::ThreadLocal
                    && symbol.address <= address
                    && (symbol.size == 0 || address - symbol.address < symbol.size)
                    && best.is_none_or(|(best, its, name)| {
                        symbol.address > best.address
                            || symbol.address == best.address
                                && self.is_internal(its, name)
                                && !self.is_internal(table, u32_at(entry, 0))
                    })
                {
                    best = Some((symbol, table, u32_at(entry, 0)));
                }
                true
            });
        }
        let (symbol, table, at) = best?;
        let length = self.name(table, at, name)?;
        Some((symbol, length))
    }

    /// Hands on every symbol whose name begins with `prefix`, until `found` answers false. Names may come twice.
    pub fn each(&self, prefix: &[u8], found: &mut dyn FnMut(&[u8], Symbol) -> bool) {
        let mut name = [0; NAME_MAX];
        let mut go_on = true;
        for table in [self.layout.full, self.layout.dynamic].into_iter().flatten() {
            self.walk(table, &mut |entry| {
                if let Some(symbol) = self.symbol(entry)
                    && let Some(length) = self.name(table, u32_at(entry, 0), &mut name)
                    && name[..length].starts_with(prefix)
                {
                    go_on = found(&name[..length], symbol);
                }
                go_on
            });
            if !go_on {
                return;
            }
        }
    }

    fn find_hashed(&self, table: Table, hash: Range, name: &[u8]) -> Option<Symbol> {
        let mut header = [0; 16];
        if !self.source.read_at(hash.offset, &mut header) {
            return None;
        }
        let (buckets, first, bloom) = (u32_at(&header, 0), u32_at(&header, 4), u32_at(&header, 8));
        let value = gnu_hash(name);
        let word = |at: u64| {
            let mut bytes = [0; 4];
            (at < hash.size && self.source.read_at(hash.offset.checked_add(at)?, &mut bytes))
                .then(|| u32::from_le_bytes(bytes))
        };
        let chains = 16 + u64::from(bloom) * 8;
        let bucket = value.checked_rem(buckets)?;
        let mut index = word(chains + u64::from(bucket) * 4)?;
        if index < first {
            return None;
        }
        let chains = chains + u64::from(buckets) * 4;
        let mut old = None;
        loop {
            let link = word(chains + u64::from(index - first) * 4)?;
            if link | 1 == value | 1 {
                let mut entry = [0; ENTRY];
                let at = u64::from(index) * ENTRY as u64;
                if at >= table.symbols.size
                    || !self.source.read_at(table.symbols.offset.checked_add(at)?, &mut entry)
                {
                    return None;
                }
                if self.is_named(table, u32_at(&entry, 0), name)
                    && let Some(symbol) = self.symbol(&entry)
                {
                    if !self.is_old_version(index) {
                        return Some(symbol);
                    }
                    old = Some(symbol);
                }
            }
            if link & 1 != 0 {
                return old;
            }
            index = index.checked_add(1)?;
        }
    }

    /// The dynamic symbol is kept for programs linked long ago.
    fn is_old_version(&self, index: u32) -> bool {
        let mut version = [0; 2];
        self.layout.versions.is_some_and(|versions| {
            let at = versions.offset.checked_add(u64::from(index) * 2);
            at.is_some_and(|at| self.source.read_at(at, &mut version)) && version[1] & VERSION_HIDDEN != 0
        })
    }

    /// Hands on every entry until `found` answers false.
    fn walk(&self, table: Table, found: &mut dyn FnMut(&[u8; ENTRY]) -> bool) {
        let mut piece = [0; PIECE * ENTRY];
        let end = table.symbols.size - table.symbols.size % ENTRY as u64;
        let mut at = 0;
        while at < end {
            let length = (end - at).min(piece.len() as u64) as usize;
            let Some(offset) = table.symbols.offset.checked_add(at) else { return };
            if !self.source.read_at(offset, &mut piece[..length]) {
                return;
            }
            for entry in piece[..length].chunks_exact(ENTRY) {
                let mut whole = [0; ENTRY];
                whole.copy_from_slice(entry);
                if !found(&whole) {
                    return;
                }
            }
            at += length as u64;
        }
    }

    /// A defined function or variable.
    fn symbol(&self, entry: &[u8; ENTRY]) -> Option<Symbol> {
        let section = u16_at(entry, 6);
        let kind = match entry[4] & 15 {
            // STT_NOTYPE: labels of assembly.
            0 | 2 => Kind::Function,
            1 => Kind::Variable,
            6 => Kind::ThreadLocal,
            10 => Kind::Indirect,
            _ => return None,
        };
        if section == 0 || section >= 0xff00 {
            return None;
        }
        let value = u64_at(entry, 8);
        let address = if kind == Kind::ThreadLocal { value } else { self.layout.bias.wrapping_add(value) };
        Some(Symbol { address, size: u64_at(entry, 16), kind })
    }

    fn is_named(&self, table: Table, at: u32, name: &[u8]) -> bool {
        if u64::from(at) + name.len() as u64 >= table.strings.size {
            return false;
        }
        let Some(mut offset) = table.strings.offset.checked_add(u64::from(at)) else { return false };
        // Most names differ at their beginning.
        let mut bytes = [0; 16];
        for piece in name.chunks(bytes.len()) {
            let there = &mut bytes[..piece.len()];
            if !self.source.read_at(offset, there) || there != piece {
                return false;
            }
            let Some(next) = offset.checked_add(piece.len() as u64) else { return false };
            offset = next;
        }
        self.source.read_at(offset, &mut bytes[..1]) && bytes[0] == 0
    }

    /// The name begins with an underscore, or there is none.
    fn is_internal(&self, table: Table, at: u32) -> bool {
        let mut first = [0];
        let offset = table.strings.offset.checked_add(u64::from(at));
        !offset.is_some_and(|offset| self.source.read_at(offset, &mut first)) || matches!(first[0], b'_' | 0)
    }

    /// Length of the name at `at` of the table's strings; `None` when it is empty or too long.
    fn name(&self, table: Table, at: u32, to: &mut [u8; NAME_MAX]) -> Option<usize> {
        let rest = table.strings.size.checked_sub(u64::from(at))?;
        let offset = table.strings.offset.checked_add(u64::from(at))?;
        // Most names are short.
        for length in [32, NAME_MAX as u64] {
            let length = length.min(rest) as usize;
            if !self.source.read_at(offset, &mut to[..length]) {
                return None;
            }
            if let Some(end) = to[..length].iter().position(|b| *b == 0) {
                return (end > 0).then_some(end);
            }
        }
        None
    }
}
