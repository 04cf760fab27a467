// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading one object (System V ABI, chapter 4). Everything is checked here, so that the rest may index.

use crate::error::{Error, Result, Shown, with_room};
use crate::{Input, OBJECT_MAX};
use alloc::vec::Vec;
use api_overlay::sort;

const HEADER: usize = 64;
const SECTION: usize = 64;
const SYMBOL: usize = 24;
const RELOCATION: usize = 24;

const ET_REL: u16 = 1;
const EM_X86_64: u16 = 62;

pub const SHT_PROGBITS: u32 = 1;
pub const SHT_SYMTAB: u32 = 2;
pub const SHT_STRTAB: u32 = 3;
pub const SHT_RELA: u32 = 4;
pub const SHT_NOTE: u32 = 7;
pub const SHT_NOBITS: u32 = 8;
pub const SHT_REL: u32 = 9;
pub const SHT_INIT_ARRAY: u32 = 14;
pub const SHT_FINI_ARRAY: u32 = 15;
pub const SHT_PREINIT_ARRAY: u32 = 16;
pub const SHT_GROUP: u32 = 17;
pub const SHT_X86_64_UNWIND: u32 = 0x7000_0001;

pub const SHF_WRITE: u64 = 1;
pub const SHF_ALLOC: u64 = 2;
pub const SHF_EXECINSTR: u64 = 4;
pub const SHF_TLS: u64 = 0x400;
pub const SHF_COMPRESSED: u64 = 0x800;

pub const SHN_UNDEF: u16 = 0;
pub const SHN_LORESERVE: u16 = 0xff00;
pub const SHN_ABS: u16 = 0xfff1;
pub const SHN_COMMON: u16 = 0xfff2;

pub const STB_LOCAL: u8 = 0;
pub const STB_WEAK: u8 = 2;
pub const STT_FUNC: u8 = 2;
pub const STT_SECTION: u8 = 3;
pub const STT_TLS: u8 = 6;
pub const STT_GNU_IFUNC: u8 = 10;

const GRP_COMDAT: u32 = 1;

/// Largest alignment of a section: the program starts at a page.
const ALIGN_MAX: u64 = 4096;

#[derive(Clone, Copy, Debug)]
pub struct Section<'a> {
    pub name: &'a [u8],
    pub kind: u32,
    pub flags: u64,
    /// In the file; a SHT_NOBITS section has none there.
    pub offset: usize,
    pub size: u64,
    pub link: u32,
    pub info: u32,
    pub align: u64,
}

impl Section<'_> {
    pub fn has(&self, flag: u64) -> bool {
        self.flags & flag != 0
    }

    /// Part of the program in memory. Unwind tables and notes are not: nothing reads them.
    pub fn is_loaded(&self) -> bool {
        self.has(SHF_ALLOC)
            && !matches!(self.kind, SHT_NOTE | SHT_X86_64_UNWIND | SHT_GROUP)
            && self.name != b".eh_frame"
    }

    pub fn has_bytes(&self) -> bool {
        self.kind != SHT_NOBITS
    }
}

#[derive(Clone, Copy, Debug)]
pub struct RawSymbol<'a> {
    pub name: &'a [u8],
    pub binding: u8,
    pub kind: u8,
    pub section: u16,
    pub value: u64,
    pub size: u64,
}

#[derive(Clone, Copy, Debug)]
pub struct Relocation {
    pub offset: u64,
    pub kind: u32,
    pub symbol: usize,
    pub addend: i64,
}

/// The members of a section group, of which several objects may have a copy (C++ inline functions).
#[derive(Clone, Debug)]
pub struct Group<'a> {
    pub signature: &'a [u8],
    pub members: Vec<usize>,
}

/// One object, read and checked.
pub struct Object<'a> {
    pub name: &'a str,
    pub bytes: &'a [u8],
    pub sections: Vec<Section<'a>>,
    pub symbols: Vec<RawSymbol<'a>>,
    pub groups: Vec<Group<'a>>,
}

// Not inline: each of the many uses would have the checks of bounds in it.
#[inline(never)]
pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |b| u16::from_le_bytes([b[0], b[1]]))
}

#[inline(never)]
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

#[inline(never)]
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// The NUL-terminated string at `at`.
fn string(table: &[u8], at: u32) -> Option<&[u8]> {
    let rest = table.get(at as usize..)?;
    Some(&rest[..rest.iter().position(|b| *b == 0)?])
}

/// What a file is that is no relocatable object for this machine, and what to do about it.
fn check_header(bytes: &[u8]) -> core::result::Result<(), &'static str> {
    if bytes.len() < 4 || bytes[..4] != *b"\x7fELF" {
        return Err("not an ELF object; make one with unilith overlay build");
    }
    if bytes.len() < HEADER {
        return Err("truncated: the ELF header is not complete");
    }
    if bytes[4] != 2 || bytes[5] != 1 {
        return Err("not a 64-bit little-endian object: compile it for x86-64");
    }
    match u16_at(bytes, 18) {
        EM_X86_64 => {}
        183 => return Err("an object for AArch64: compile it for x86-64"),
        243 => return Err("an object for RISC-V: compile it for x86-64"),
        247 => return Err("an eBPF object: attach it with the bpf commands"),
        _ => return Err("an object for another processor: compile it for x86-64"),
    }
    match u16_at(bytes, 16) {
        ET_REL => {}
        2 | 3 => return Err("a linked program or library, not a relocatable object: compile it with -c"),
        _ => return Err("not a relocatable object: compile it with -c"),
    }
    if bytes[6] != 1 || u16_at(bytes, 58) as usize != SECTION {
        return Err("malformed: the ELF header has unknown sizes");
    }
    Ok(())
}

impl<'a> Object<'a> {
    pub fn read(input: &Input<'a>) -> Result<Object<'a>> {
        let Input { name, bytes } = *input;
        let bad = |what: &str| Error::malformed(name, what);
        if bytes.len() > OBJECT_MAX {
            let most = OBJECT_MAX >> 20;
            return Err(Error::new(name, format_args!("larger than {most} MiB; strip it (strip -g)")));
        }
        check_header(bytes).map_err(|what| Error::new(name, what))?;
        let (at, count) = (u64_at(bytes, 40), u16_at(bytes, 60) as usize);
        let names_index = u16_at(bytes, 62) as usize;
        let table =
            usize::try_from(at)
                .ok()
                .and_then(|at| bytes.get(at..at.checked_add(count * SECTION)?))
                .ok_or_else(|| Error::new(name, "truncated: the section headers lie outside of the file"))?;
        if count == 0 || names_index >= count {
            return Err(bad("no table of section names"));
        }
        let mut object = Object {
            name,
            bytes,
            sections: with_room(count, "the sections")?,
            symbols: Vec::new(),
            groups: Vec::new(),
        };
        for header in table.chunks_exact(SECTION) {
            object.sections.push(Self::section(name, bytes, header)?);
        }
        let names = object.contents(names_index);
        for (section, header) in object.sections.iter_mut().zip(table.chunks_exact(SECTION)) {
            section.name = string(names, u32_at(header, 0)).ok_or_else(|| bad("a section without a name"))?;
        }
        object.check_sections()?;
        object.read_symbols()?;
        object.read_groups()?;
        Ok(object)
    }

    fn section(name: &str, bytes: &[u8], header: &[u8]) -> Result<Section<'a>> {
        let (kind, offset, size) = (u32_at(header, 4), u64_at(header, 24), u64_at(header, 32));
        let align = u64_at(header, 48).max(1);
        // The first header may hold extended counts, for which there is no use here; it is no section.
        let inside = offset.checked_add(size).is_some_and(|end| end <= bytes.len() as u64);
        if !inside && kind != SHT_NOBITS && kind != 0 {
            return Err(Error::new(name, "truncated: a section lies outside of the file"));
        }
        if kind == SHT_NOBITS && size > crate::IMAGE_MAX {
            return Err(Error::new(name, format_args!("a section of {size} bytes is too large")));
        }
        if !align.is_power_of_two() || align > ALIGN_MAX {
            return Err(Error::new(
                name,
                format_args!("a section is aligned to {align}; at most 4096 works"),
            ));
        }
        let offset = if kind == SHT_NOBITS || kind == 0 { 0 } else { offset as usize };
        let size = if kind == 0 { 0 } else { size };
        let (link, info) = (u32_at(header, 40), u32_at(header, 44));
        Ok(Section { name: b"", kind, flags: u64_at(header, 8), offset, size, link, info, align })
    }

    fn check_sections(&self) -> Result<()> {
        let bad = |section: &Section<'_>, what: &str| {
            Error::new(self.name, format_args!("section {} {what}", Shown(section.name)))
        };
        let mut ranges = with_room(self.sections.len(), "the sections")?;
        for section in self.sections.iter().filter(|s| s.is_loaded()) {
            if section.has(SHF_WRITE) && section.has(SHF_EXECINSTR) {
                return Err(bad(section, "is writable and executable, which nothing may be"));
            }
            if section.has(SHF_COMPRESSED) {
                return Err(bad(section, "is compressed"));
            }
            if section.has_bytes() && section.size > 0 {
                ranges.push((section.offset, section.offset + section.size as usize));
            }
        }
        sort(&mut ranges, |a, b| a < b);
        if ranges.windows(2).any(|pair| pair[0].1 > pair[1].0) {
            return Err(Error::new(self.name, "malformed: sections overlap in the file"));
        }
        Ok(())
    }

    /// The bytes of a section; none for one without bytes in the file.
    pub fn contents(&self, section: usize) -> &'a [u8] {
        let Some(s) = self.sections.get(section) else { return &[] };
        if !s.has_bytes() {
            return &[];
        }
        self.bytes.get(s.offset..s.offset + s.size as usize).unwrap_or(&[])
    }

    fn read_symbols(&mut self) -> Result<()> {
        let bad = |what: &str| Error::malformed(self.name, what);
        let mut tables = self.sections.iter().enumerate().filter(|(_, s)| s.kind == SHT_SYMTAB);
        let Some((index, section)) = tables.next() else {
            return Err(Error::new(self.name, "has no symbols: it was stripped (strip -g is enough)"));
        };
        if tables.next().is_some() {
            return Err(bad("two symbol tables"));
        }
        let strings = self.sections.get(section.link as usize).filter(|s| s.kind == SHT_STRTAB);
        strings.ok_or_else(|| bad("the symbols have no names"))?;
        let (names, table) = (self.contents(section.link as usize), self.contents(index));
        let mut symbols = with_room(table.len() / SYMBOL, "the symbols")?;
        for raw in table.chunks_exact(SYMBOL) {
            let symbol = RawSymbol {
                name: string(names, u32_at(raw, 0)).ok_or_else(|| bad("a symbol's name"))?,
                binding: raw[4] >> 4,
                kind: raw[4] & 15,
                section: u16_at(raw, 6),
                value: u64_at(raw, 8),
                size: u64_at(raw, 16),
            };
            match symbol.section {
                SHN_UNDEF | SHN_ABS | SHN_COMMON => {}
                SHN_LORESERVE.. => return Err(bad("a symbol in an unknown kind of section")),
                at => {
                    let Some(section) = self.sections.get(at as usize) else {
                        return Err(bad("a symbol in a section that does not exist"));
                    };
                    if section.is_loaded() && symbol.value > section.size {
                        let name = Shown(symbol.name);
                        return Err(Error::new(
                            self.name,
                            format_args!("malformed: symbol {name} lies behind its section"),
                        ));
                    }
                }
            }
            symbols.push(symbol);
        }
        self.symbols = symbols;
        Ok(())
    }

    fn read_groups(&mut self) -> Result<()> {
        let bad = |what: &str| Error::malformed(self.name, what);
        let mut groups = Vec::new();
        for (index, section) in self.sections.iter().enumerate().filter(|(_, s)| s.kind == SHT_GROUP) {
            let words = self.contents(index);
            let symbol =
                self.symbols.get(section.info as usize).ok_or_else(|| bad("a group without a name"))?;
            let named_section = self.sections.get(symbol.section as usize);
            let signature = match (symbol.kind, named_section) {
                (STT_SECTION, Some(section)) => section.name,
                _ => symbol.name,
            };
            if u32_at(words, 0) & GRP_COMDAT == 0 {
                continue;
            }
            let mut members = with_room(words.len() / 4, "a section group")?;
            for word in words.chunks_exact(4).skip(1) {
                let member = u32_at(word, 0) as usize;
                if member >= self.sections.len() {
                    return Err(bad("a group has a section that does not exist"));
                }
                members.push(member);
            }
            groups.push(Group { signature, members });
        }
        self.groups = groups;
        Ok(())
    }

    /// The relocations of section `target`.
    pub fn relocations(&self, section: usize) -> impl Iterator<Item = Relocation> + '_ {
        self.contents(section).chunks_exact(RELOCATION).map(|raw| {
            let info = u64_at(raw, 8);
            Relocation {
                offset: u64_at(raw, 0),
                kind: info as u32,
                symbol: (info >> 32) as usize,
                addend: u64_at(raw, 16) as i64,
            }
        })
    }
}
