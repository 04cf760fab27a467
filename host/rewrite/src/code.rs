// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The code of an ELF file: which bytes are instructions, where functions begin, and where execution can come in.

use crate::frames::{self, Loaded};
use iced_x86::{Decoder, DecoderOptions, Instruction};
use object::{
    Endianness, Object, ObjectSection, ObjectSegment, ObjectSymbol, RelocationTarget, SectionFlags,
    SectionKind, SegmentFlags, SymbolKind, elf, read::elf::ElfFile64,
};
use std::collections::{BTreeSet, HashMap};

/// A stretch of the file with one protection.
#[derive(Clone, Copy)]
pub(crate) struct Region<'a> {
    pub address: u64,
    /// In the file.
    pub offset: u64,
    pub bytes: &'a [u8],
}

impl Region<'_> {
    pub(crate) fn end(&self) -> u64 {
        self.address + self.bytes.len() as u64
    }

    pub(crate) fn holds(&self, address: u64) -> bool {
        (self.address..self.end()).contains(&address)
    }
}

/// A piece of code between two places where decoding starts afresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub region: usize,
    pub start: u64,
    pub end: u64,
    /// A function by symbol or frame description. Others may be data, padding, or code of a stripped file.
    pub function: bool,
}

pub(crate) struct Code<'a> {
    pub file: ElfFile64<'a, Endianness>,
    /// Executable bytes, in ascending order of address.
    pub text: Vec<Region<'a>>,
    /// Loaded bytes that are not executable.
    pub data: Vec<Region<'a>>,
    pub chunks: Vec<Chunk>,
    /// Whether functions are known well enough that what lies between them is not code.
    pub described: bool,
    /// Addresses that something other than a decoded instruction may jump to: functions, symbols of any kind,
    /// relocated pointers, landing pads. In order.
    pub entries: Vec<u64>,
    /// Relocated places and the symbol each refers to (GOT slots, pointers in tables).
    pub imports: HashMap<u64, String>,
    /// Addresses that relocations put into data.
    pub pointers: Vec<u64>,
}

/// More text than any real program has is damage, and would be decoded for minutes.
const MAX_TEXT: u64 = 1 << 30;

/// `DecoderOptions` and mode are the same everywhere.
pub(crate) fn decoder(bytes: &[u8], address: u64) -> Decoder<'_> {
    Decoder::with_ip(64, bytes, address, DecoderOptions::NONE)
}

impl<'a> Code<'a> {
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Code<'a>, String> {
        let file = ElfFile64::<Endianness>::parse(bytes).map_err(|e| e.to_string())?;
        if file.architecture() != object::Architecture::X86_64 {
            return Err("not an x86-64 file".into());
        }
        let (mut text, mut data) = regions(&file);
        text.sort_by_key(|r| r.address);
        data.sort_by_key(|r| r.address);
        // Damaged headers can make regions overlap; then no address has one meaning.
        if text.windows(2).any(|w| w[0].end() > w[1].address) {
            return Err("overlapping code".into());
        }
        if text.iter().map(|r| r.bytes.len() as u64).sum::<u64>() > MAX_TEXT {
            return Err("more than a gigabyte of code".into());
        }
        let mut code = Code {
            file,
            text,
            data,
            chunks: Vec::new(),
            described: false,
            entries: Vec::new(),
            imports: HashMap::new(),
            pointers: Vec::new(),
        };
        code.describe();
        Ok(code)
    }

    pub(crate) fn region(&self, address: u64) -> Option<&Region<'a>> {
        let at = self.text.partition_point(|r| r.end() <= address);
        self.text.get(at).filter(|r| r.holds(address))
    }

    /// Loaded data from an address to the end of its region.
    pub(crate) fn data_at(&self, address: u64) -> Option<&'a [u8]> {
        let region = self.data.iter().find(|r| r.holds(address))?;
        region.bytes.get((address - region.address) as usize..)
    }

    pub(crate) fn decode(&self, chunk: &Chunk, out: &mut Vec<Instruction>) {
        out.clear();
        let region = &self.text[chunk.region];
        let bytes =
            &region.bytes[(chunk.start - region.address) as usize..(chunk.end - region.address) as usize];
        out.extend(decoder(bytes, chunk.start).iter());
    }

    fn describe(&mut self) {
        // Function ranges, entries, and where decoding starts afresh.
        let mut functions: Vec<(u64, u64)> = Vec::new();
        let mut entries = BTreeSet::from([self.file.entry()]);
        for symbol in self.file.symbols().chain(self.file.dynamic_symbols()) {
            let address = symbol.address();
            if self.region(address).is_none() {
                continue;
            }
            entries.insert(address);
            if symbol.kind() == SymbolKind::Text && symbol.size() != 0 {
                functions.push((address, address.saturating_add(symbol.size())));
            }
        }
        self.read_frames(&mut functions, &mut entries);
        self.read_relocations(&mut entries);
        let inside =
            |(start, end): &(u64, u64)| self.region(*start).is_some_and(|r| *end <= r.end() && start < end);
        functions.retain(inside);
        functions.sort_unstable();
        entries.extend(functions.iter().map(|f| f.0));
        let mut chunks = Vec::new();
        let mut covered = 0;
        for (index, region) in self.text.iter().enumerate() {
            let mut at = region.address;
            let own = functions.iter().filter(|f| region.holds(f.0));
            let mut own = own.copied().peekable();
            while let Some((start, end)) = own.next() {
                if at < start {
                    chunks.push(Chunk { region: index, start: at, end: start, function: false });
                    at = start;
                }
                // A function that starts inside another (cold parts, assembler entry points) cuts it there.
                let mut next = own.peek();
                while next.is_some_and(|n| n.0 == start) {
                    own.next();
                    next = own.peek();
                }
                let longest = functions
                    .iter()
                    .skip_while(|f| f.0 < start)
                    .take_while(|f| f.0 == start)
                    .map(|f| f.1)
                    .max();
                let end = longest.unwrap_or(end).min(next.map_or(u64::MAX, |n| n.0)).max(start);
                if end > at {
                    covered += end - at;
                    chunks.push(Chunk { region: index, start: at, end, function: true });
                    at = end;
                }
            }
            if at < region.end() {
                chunks.push(Chunk { region: index, start: at, end: region.end(), function: false });
            }
        }
        let all: u64 = self.text.iter().map(|r| r.bytes.len() as u64).sum();
        self.described = covered * 2 >= all && covered > 0;
        self.chunks = chunks;
        self.entries = entries.into_iter().collect();
    }

    fn read_frames(&self, functions: &mut Vec<(u64, u64)>, entries: &mut BTreeSet<u64>) {
        let loaded = |name: &str| {
            let section = self.file.section_by_name(name)?;
            Some(Loaded { address: section.address(), bytes: section.data().ok()? })
        };
        let address = |name: &str| self.file.section_by_name(name).map_or(0, |s| s.address());
        let Some(eh_frame) = loaded(".eh_frame") else { return };
        let exceptions = loaded(".gcc_except_table");
        for frame in frames::frames(eh_frame, address(".text"), address(".got")) {
            functions.push((frame.start, frame.end));
            if let (Some(table), Some(lsda)) = (exceptions, frame.lsda) {
                // A table that cannot be read to its end has given what it has; pads only forbid.
                let _ = frames::landing_pads(table, lsda, frame.start, &mut |pad| {
                    entries.insert(pad);
                });
            }
        }
    }

    fn read_relocations(&mut self, entries: &mut BTreeSet<u64>) {
        let symbols: HashMap<usize, (String, u64)> = self
            .file
            .dynamic_symbols()
            .map(|s| (s.index().0, (s.name().unwrap_or_default().to_string(), s.address())))
            .collect();
        for (place, relocation) in self.file.dynamic_relocations().into_iter().flatten() {
            match relocation.target() {
                RelocationTarget::Symbol(index) => {
                    if let Some((name, address)) = symbols.get(&index.0) {
                        self.imports.insert(place, name.clone());
                        self.pointers.push(address.wrapping_add_signed(relocation.addend()));
                    }
                }
                // RELATIVE and IRELATIVE.
                _ => self.pointers.push(relocation.addend() as u64),
            }
        }
        // A file that is not relocated has its pointers in its data as they are.
        if self.file.kind() == object::ObjectKind::Executable {
            for region in &self.data {
                let skip = (region.address.next_multiple_of(8) - region.address) as usize;
                let words = region.bytes.get(skip..).unwrap_or_default().chunks_exact(8);
                let values =
                    words.map(|w| u64::from_le_bytes([w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]]));
                self.pointers.extend(values.filter(|v| self.text.iter().any(|r| r.holds(*v))));
            }
        }
        self.pointers.retain(|p| self.text.iter().any(|r| r.holds(*p)));
        self.pointers.sort_unstable();
        self.pointers.dedup();
        entries.extend(self.pointers.iter().copied());
    }
}

/// Executable and other loaded stretches: by sections where there are any, since segments also hold headers.
fn regions<'a>(file: &ElfFile64<'a, Endianness>) -> (Vec<Region<'a>>, Vec<Region<'a>>) {
    let (mut text, mut data) = (Vec::new(), Vec::new());
    for section in file.sections() {
        let SectionFlags::Elf { sh_flags } = section.flags() else { continue };
        if sh_flags & u64::from(elf::SHF_ALLOC) == 0 || section.kind() == SectionKind::UninitializedData {
            continue;
        }
        let (Some((offset, _)), Ok(bytes)) = (section.file_range(), section.data()) else { continue };
        let region = Region { address: section.address(), offset, bytes };
        if bytes.is_empty() || region.address.checked_add(bytes.len() as u64).is_none() {
            continue;
        }
        if sh_flags & u64::from(elf::SHF_EXECINSTR) != 0 { text.push(region) } else { data.push(region) }
    }
    if text.is_empty() {
        data.clear();
        for segment in file.segments() {
            let SegmentFlags::Elf { p_flags } = segment.flags() else { continue };
            let Ok(bytes) = segment.data() else { continue };
            let region = Region { address: segment.address(), offset: segment.file_range().0, bytes };
            if bytes.is_empty() || region.address.checked_add(bytes.len() as u64).is_none() {
                continue;
            }
            if p_flags & elf::PF_X != 0 { text.push(region) } else { data.push(region) }
        }
    }
    (text, data)
}
