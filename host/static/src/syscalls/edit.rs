// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads a relocatable object and writes the changed one: sections that change are written anew behind all others, with the
//! numbers they have, so that what refers to sections and symbols stays true.

use super::{
    Connected, FUNCTION, KEPT, function,
    number::Flow,
    sites::{JUMP, Section, Site},
    targets::{References, branches, entries},
};
use crate::{Result, StaticError};
use iced_x86::{Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic, Register};
use object::{
    Endianness, LittleEndian, Object as _, ObjectSection as _, ObjectSymbol as _, SectionFlags, SymbolKind,
    elf,
    pod::{bytes_of, slice_from_all_bytes},
    read::elf::ElfFile64,
};
use std::collections::{BTreeMap, BTreeSet};

type Header = elf::SectionHeader64<LittleEndian>;
type Rela = elf::Rela64<LittleEndian>;
const LE: LittleEndian = LittleEndian;
const SYSCALL: [u8; 2] = [0x0f, 0x05];
const INT3: u8 = 0xcc;
/// A section that wants more is damaged: it would make a small object a large one.
const MAX_ALIGNMENT: u64 = 1 << 16;
/// Functions that do not return: what follows a call of one is reached from elsewhere.
const NO_RETURN: [&str; 12] = [
    "abort",
    "exit",
    "_exit",
    "__assert_fail",
    "__assert_perror_fail",
    "__chk_fail",
    "__fortify_fail",
    "__libc_fatal",
    "__stack_chk_fail",
    "_Unwind_Resume",
    "__longjmp_chk",
    "longjmp",
];

/// Turns the system calls of an object into jumps. `of`: what to call the object in an error. `unknown`: the function for calls whose
/// number is not known.
pub(crate) fn connect(bytes: &[u8], of: &str, unknown: &str) -> Result<Connected> {
    connected(bytes, unknown).map_err(|e| StaticError::new(format!("{of}: {}", e.0)))
}

/// Whether a section has bytes that may be a `syscall`.
fn is_candidate<'a>(section: &impl object::ObjectSection<'a>) -> bool {
    let SectionFlags::Elf { sh_flags } = section.flags() else { return false };
    sh_flags & u64::from(elf::SHF_EXECINSTR) != 0
        && section.data().is_ok_and(|data| data.windows(2).any(|w| w == SYSCALL))
}

fn connected(bytes: &[u8], unknown: &str) -> Read<Connected> {
    let mut out = Connected::default();
    let file = ElfFile64::<Endianness>::parse(bytes)?;
    let functions = function::calls(&file);
    let is_candidate = |section: &object::read::elf::ElfSection64<'_, '_>| {
        is_candidate(section) || functions.contains_key(&section.index().0)
    };
    if !file.sections().any(|section| is_candidate(&section)) {
        return Ok(out);
    }
    let references = References::read(&file)?;
    let mut edit = Edit::new(bytes, &file)?;
    for section in file.sections().filter(is_candidate) {
        let code = Code::read(&file, &references, section.index())?;
        let functions = functions.get(&section.index().0).map_or(&[][..], Vec::as_slice);
        code.connect(functions, unknown, &mut edit, &mut out)?;
    }
    if out.calls + out.functions > 0 {
        out.object = Some(edit.finish()?);
    }
    Ok(out)
}

/// The number of a system call that there is.
fn known(value: Option<u64>) -> Option<u32> {
    let number = u32::try_from(value?).ok()?;
    syscall_table::ROWS.iter().any(|row| row.number == number).then_some(number)
}

/// The functions of a section: (start, end, name).
fn functions(file: &ElfFile64<'_>, section: object::SectionIndex, size: u64) -> Vec<(u64, u64, String)> {
    let symbols = file.symbols().filter(|s| s.section_index() == Some(section));
    let mut all: Vec<(u64, u64, String)> = symbols
        // Assembly may leave out the type, too.
        .filter(|s| s.kind() == SymbolKind::Text || s.kind() == SymbolKind::Unknown && s.is_global())
        .map(|s| (s.address(), s.size(), s.name().unwrap_or_default().to_string()))
        .collect();
    all.sort();
    let starts: Vec<u64> = all.iter().map(|f| f.0).collect();
    // Assembly may leave out the size; a function that begins in another one cuts it.
    let end = |f: &(u64, u64, String)| {
        let next = starts.iter().copied().find(|start| *start > f.0).unwrap_or(size);
        if f.1 == 0 { next } else { next.min(f.0.saturating_add(f.1)) }
    };
    let mut out: Vec<(u64, u64, String)> =
        all.iter().map(|f| (f.0, end(f), f.2.clone())).filter(|f| f.0 < f.1 && f.1 <= size).collect();
    out.dedup_by_key(|f| f.0);
    out
}

/// One section with code.
struct Code<'a> {
    index: usize,
    data: &'a [u8],
    functions: Vec<(u64, u64, String)>,
    instructions: Vec<Instruction>,
    entries: BTreeSet<u64>,
    relocations: BTreeMap<u64, u32>,
    /// Where calls are that do not return.
    ends: BTreeSet<u64>,
}

impl<'a> Code<'a> {
    fn read(file: &ElfFile64<'a>, references: &References, index: object::SectionIndex) -> Read<Code<'a>> {
        let section = file.section_by_index(index)?;
        let data = section.data()?;
        let functions = functions(file, index, data.len() as u64);
        let mut instructions = Vec::new();
        for (start, end, _) in &functions {
            let code = &data[*start as usize..*end as usize];
            instructions.extend(Decoder::with_ip(64, code, *start, DecoderOptions::NONE).iter());
        }
        let kind = |r: &object::Relocation| match r.flags() {
            object::RelocationFlags::Elf { r_type } => r_type,
            _ => elf::R_X86_64_NONE,
        };
        let relocations = section.relocations().map(|(place, r)| (place, kind(&r))).collect();
        let entries = entries(file, references, index)?;
        let is_end = |r: &object::Relocation| match r.target() {
            object::RelocationTarget::Symbol(symbol) => file
                .symbol_by_index(symbol)
                .is_ok_and(|symbol| symbol.name().is_ok_and(|name| NO_RETURN.contains(&name))),
            _ => false,
        };
        let ends = section.relocations().filter(|(_, r)| is_end(r)).map(|(place, _)| place).collect();
        Ok(Code { index: index.0, data, functions, instructions, entries, relocations, ends })
    }

    fn function(&self, address: u64) -> String {
        let at = self.functions.partition_point(|f| f.0 <= address);
        at.checked_sub(1).map_or_else(String::new, |at| self.functions[at].2.clone())
    }

    fn connect(
        &self,
        functions: &[u64],
        unknown: &str,
        edit: &mut Edit<'_>,
        out: &mut Connected,
    ) -> Read<()> {
        let relocated: BTreeSet<u64> = self.relocations.keys().copied().collect();
        let mut sources: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        let mut targets = self.entries.clone();
        for (at, to) in branches(&self.instructions, &relocated) {
            sources.entry(to).or_default().push(at);
            targets.insert(to);
        }
        let (instructions, relocations) = (&self.instructions[..], &self.relocations);
        let section = Section { instructions, targets: &targets, relocations };
        let flow = Flow { instructions, entries: &self.entries, sources: &sources, ends: &self.ends };
        let mut info = InstructionInfoFactory::new();
        let (mut text, mut moved, mut added) = (self.data.to_vec(), BTreeMap::new(), Vec::new());
        text.resize(text.len().next_multiple_of(16), INT3);
        let mut free = 0;
        for (at, i) in instructions.iter().enumerate().filter(|(_, i)| i.mnemonic() == Mnemonic::Syscall) {
            let Some(site) = section.choose(at, free) else {
                out.left.push(self.function(i.ip()));
                continue;
            };
            let name = match known(flow.value(at, Register::RAX, &mut info)) {
                Some(number) => format!("{KEPT}{number}"),
                None => {
                    out.unknown.push(self.function(i.ip()));
                    unknown.to_string()
                }
            };
            free = instructions[site.last()].next_ip();
            self.stub(&site, &mut text, &mut moved, |place| added.push((place, name.clone())));
            out.calls += 1;
        }
        if !added.is_empty() {
            edit.replace(self.index, text, &moved, added)?;
        }
        for place in functions {
            let at = instructions.partition_point(|i| i.next_ip() <= *place);
            if instructions.get(at).is_none_or(|i| i.ip() >= *place) {
                continue;
            }
            if let Some(number) = known(flow.value(at, Register::RDI, &mut info)) {
                edit.retarget(self.index, *place, &format!("{FUNCTION}{number}"))?;
                out.functions += 1;
            }
        }
        Ok(())
    }

    /// Writes the stub of a site behind the section's code, and the jump. `moved` gets the relocations that move with their
    /// instructions, `symbol` the place where the function's address goes.
    fn stub(
        &self,
        site: &Site,
        text: &mut Vec<u8>,
        moved: &mut BTreeMap<u64, u64>,
        mut symbol: impl FnMut(u64),
    ) {
        let start = self.instructions[site.first].ip() as usize;
        let end = self.instructions[site.last()].next_ip() as usize;
        let syscall = self.instructions[site.syscall()].ip() as usize;
        let behind = self.instructions[site.syscall()].next_ip() as usize;
        let here = text.len();
        let mut copy = |text: &mut Vec<u8>, from: usize, to: usize| {
            for (place, _) in self.relocations.range(from as u64..to as u64) {
                moved.insert(*place, (text.len() + (*place as usize - from)) as u64);
            }
            text.extend_from_slice(&self.data[from..to]);
        };
        let relative = |from: usize, to: usize| (to as i32).wrapping_sub(from as i32).to_le_bytes();
        copy(text, start, syscall);
        // lea next(%rip), %rcx; movabs $function, %r11; jmp *%r11
        const LEA: [u8; 3] = [0x48, 0x8d, 0x0d];
        const MOVABS: [u8; 2] = [0x49, 0xbb];
        const JUMP_R11: [u8; 3] = [0x41, 0xff, 0xe3];
        let after_lea = text.len() + LEA.len() + 4;
        let next = if site.after == 0 { end } else { after_lea + MOVABS.len() + 8 + JUMP_R11.len() };
        text.extend(LEA);
        text.extend(relative(after_lea, next));
        text.extend(MOVABS);
        symbol(text.len() as u64);
        text.extend([0; 8]);
        text.extend(JUMP_R11);
        if site.after > 0 {
            copy(text, behind, end);
            let after_jump = text.len() + JUMP;
            text.push(0xe9);
            text.extend(relative(after_jump, end));
        }
        text[start] = 0xe9;
        text[start + 1..start + JUMP].copy_from_slice(&relative(start + JUMP, here));
        text[start + JUMP..end].fill(INT3);
    }
}

/// An object that is being changed.
struct Edit<'a> {
    old: &'a [u8],
    headers: Vec<Header>,
    /// New contents by section.
    contents: BTreeMap<usize, Vec<u8>>,
    symbols: usize,
    /// Symbols that are new, with their numbers.
    added: BTreeMap<String, u32>,
}

impl<'a> Edit<'a> {
    fn new(old: &'a [u8], file: &ElfFile64<'a>) -> Read<Edit<'a>> {
        let header = file.elf_header();
        let (start, count) =
            (header.e_shoff.get(Endianness::Little) as usize, file.elf_section_table().len());
        let table = old.get(start..start + count * size_of::<Header>()).ok_or_else(bad_table)?;
        let headers: &[Header] = slice_from_all_bytes(table).map_err(|()| bad_table())?;
        let symbols =
            headers.iter().position(|h| h.sh_type.get(LE) == elf::SHT_SYMTAB).ok_or_else(bad_table)?;
        Ok(Edit {
            old,
            headers: headers.to_vec(),
            contents: BTreeMap::new(),
            symbols,
            added: BTreeMap::new(),
        })
    }

    /// The contents of a section as they are by now.
    fn contents(&mut self, section: usize) -> Read<&mut Vec<u8>> {
        let header = self.headers.get(section).ok_or_else(bad_table)?;
        let start = header.sh_offset.get(LE) as usize;
        let old = self.old.get(start..start.saturating_add(header.sh_size.get(LE) as usize));
        let old = old.ok_or_else(bad_table)?;
        Ok(self.contents.entry(section).or_insert_with(|| old.to_vec()))
    }

    /// A symbol that is undefined here.
    fn symbol(&mut self, name: &str) -> Read<u32> {
        if let Some(index) = self.added.get(name) {
            return Ok(*index);
        }
        let table = self.symbols;
        let names = self.headers[table].sh_link.get(LE) as usize;
        let strings = self.contents(names)?;
        let at = strings.len() as u32;
        strings.extend(name.bytes().chain([0]));
        let entry = elf::Sym64::<LittleEndian> {
            st_name: object::U32::new(LE, at),
            st_info: elf::STB_GLOBAL << 4,
            st_other: 0,
            st_shndx: object::U16::new(LE, elf::SHN_UNDEF),
            st_value: object::U64::new(LE, 0),
            st_size: object::U64::new(LE, 0),
        };
        let symbols = self.contents(table)?;
        let index = (symbols.len() / size_of::<elf::Sym64<LittleEndian>>()) as u32;
        symbols.extend_from_slice(bytes_of(&entry));
        // Where sections are many, their numbers are in a table beside that of symbols.
        let is_beside =
            |h: &Header| h.sh_type.get(LE) == elf::SHT_SYMTAB_SHNDX && h.sh_link.get(LE) as usize == table;
        if let Some(beside) = self.headers.iter().position(is_beside) {
            self.contents(beside)?.extend([0; 4]);
        }
        self.added.insert(name.to_string(), index);
        Ok(index)
    }

    /// Gives a section other contents. `moved`: where relocations are now; `added`: places that get a symbol's address.
    fn replace(
        &mut self,
        section: usize,
        text: Vec<u8>,
        moved: &BTreeMap<u64, u64>,
        added: Vec<(u64, String)>,
    ) -> Read<()> {
        let mut new = Vec::new();
        for (place, name) in added {
            let symbol = self.symbol(&name)?;
            new.push(Rela {
                r_offset: object::U64::new(LE, place),
                r_info: object::U64::new(LE, u64::from(symbol) << 32 | u64::from(elf::R_X86_64_64)),
                r_addend: object::I64::new(LE, 0),
            });
        }
        self.contents.insert(section, text);
        let is_own = |h: &Header| h.sh_type.get(LE) == elf::SHT_RELA && h.sh_info.get(LE) as usize == section;
        let table = self.headers.iter().position(is_own);
        // Code that refers to nothing has no table yet.
        let table = table.map_or_else(|| self.new_table(section), Ok)?;
        let old = std::mem::take(self.contents(table)?);
        let mut all: Vec<Rela> = match old.is_empty() {
            // Nothing has no alignment.
            true => Vec::new(),
            false => slice_from_all_bytes::<Rela>(&old).map_err(|()| bad_table())?.to_vec(),
        };
        for entry in &mut all {
            if let Some(place) = moved.get(&entry.r_offset.get(LE)) {
                entry.r_offset.set(LE, *place);
            }
        }
        all.extend(new);
        all.sort_by_key(|entry| entry.r_offset.get(LE));
        *self.contents(table)? = all.iter().flat_map(|entry| bytes_of(entry).to_vec()).collect();
        Ok(())
    }

    /// Makes the relocation at a place of a section one to another symbol.
    fn retarget(&mut self, section: usize, place: u64, name: &str) -> Read<()> {
        let symbol = self.symbol(name)?;
        let is_own = |h: &Header| h.sh_type.get(LE) == elf::SHT_RELA && h.sh_info.get(LE) as usize == section;
        let table = self.headers.iter().position(is_own).ok_or_else(bad_table)?;
        let bytes = self.contents(table)?;
        for entry in bytes.chunks_exact_mut(size_of::<Rela>()) {
            // Elf64_Rela: offset; kind (4 bytes) and symbol (4 bytes); addend.
            if entry[..8] == place.to_le_bytes() {
                entry[12..16].copy_from_slice(&symbol.to_le_bytes());
            }
        }
        Ok(())
    }

    /// A table of relocations for a section that has none.
    fn new_table(&mut self, section: usize) -> Read<usize> {
        let names = u16::from_le_bytes([self.old[62], self.old[63]]);
        if names == elf::SHN_XINDEX {
            return Err(bad_table());
        }
        let strings = self.contents(names.into())?;
        let name = strings.len() as u32;
        strings.extend(b".rela.unilith\0");
        let mut header = *self.headers.get(section).ok_or_else(bad_table)?;
        let group = header.sh_flags.get(LE) & u64::from(elf::SHF_GROUP);
        if group != 0 {
            // It would have to become one of the group's sections.
            return Err(bad_table());
        }
        header.sh_name.set(LE, name);
        header.sh_type.set(LE, elf::SHT_RELA);
        header.sh_flags.set(LE, u64::from(elf::SHF_INFO_LINK));
        header.sh_size.set(LE, 0);
        header.sh_link.set(LE, self.symbols as u32);
        header.sh_info.set(LE, section as u32);
        header.sh_addralign.set(LE, 8);
        header.sh_entsize.set(LE, size_of::<Rela>() as u64);
        self.headers.push(header);
        Ok(self.headers.len() - 1)
    }

    /// The whole object.
    fn finish(mut self) -> Read<Vec<u8>> {
        let mut out = self.old.to_vec();
        for (section, contents) in &self.contents {
            let header = &mut self.headers[*section];
            let alignment = header.sh_addralign.get(LE).max(8);
            if !alignment.is_power_of_two() || alignment > MAX_ALIGNMENT {
                return Err(bad_table());
            }
            let alignment = alignment as usize;
            out.resize(out.len().next_multiple_of(alignment), 0);
            header.sh_offset.set(LE, out.len() as u64);
            header.sh_size.set(LE, contents.len() as u64);
            out.extend_from_slice(contents);
        }
        out.resize(out.len().next_multiple_of(8), 0);
        let table = out.len() as u64;
        let many = self.headers.len() >= usize::from(elf::SHN_LORESERVE);
        let count = if many { 0 } else { self.headers.len() as u16 };
        if many {
            let all = self.headers.len() as u64;
            self.headers[0].sh_size.set(LE, all);
        }
        out.extend(self.headers.iter().flat_map(|header| bytes_of(header).to_vec()));
        // e_shoff and e_shnum.
        out[40..48].copy_from_slice(&table.to_le_bytes());
        out[60..62].copy_from_slice(&count.to_le_bytes());
        Ok(out)
    }
}

/// Why an object cannot be read.
pub(super) struct Unreadable(String);

pub(super) type Read<T> = std::result::Result<T, Unreadable>;

impl From<object::Error> for Unreadable {
    fn from(error: object::Error) -> Unreadable {
        Unreadable(error.to_string())
    }
}

fn bad_table() -> Unreadable {
    Unreadable("its tables cannot be read".into())
}
