// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An image taken apart: functions, variables and constants, the micro-library that each belongs to, and which of them refers
//! to which. What a symbol names belongs to the crate in its name; a constant without a name belongs to the library whose code
//! refers to it. References are those of the instructions and pointers that the link kept, so what was inlined is none.

use crate::{Result, StaticError, owner, owner::Crates};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, OpKind};
use object::{
    Object as _, ObjectSection as _, ObjectSegment as _, ObjectSymbol as _, SectionFlags, SectionKind,
    SymbolKind,
};
use std::collections::{BTreeMap, BTreeSet};

/// Below are addresses of programs, on every machine.
const KERNEL: u64 = 0x7000_0000_0000;
/// Sections of a kernel that its machine loads when the first command comes (`micro/kernel/link.ld`).
const ON_DEMAND: &str = ".overlay";
/// A function that every micro kernel has.
const ENTRY: &str = "unilith_kernel_main";
/// Where `Workshop::link` writes down which names are those of the C library.
pub(crate) const C_LIBRARY_NAMES: &str = ".unilith.libc";

/// Where it writes down those of the allocator that takes the place of the C library's.
pub(crate) const ALLOCATOR_NAMES: &str = ".unilith.malloc";
/// The crate of that allocator.
const ALLOCATOR: &str = "libc_malloc";

/// The program that the kernel is linked with.
pub const PROGRAM: &str = "(program)";
/// The program's C library.
pub const C_LIBRARY: &str = "(C library)";
/// Code of assembly files that is nobody's.
pub const ASSEMBLY: &str = "(assembly)";
/// Constants without a name that several libraries refer to: the linker merges strings.
pub const SHARED: &str = "(shared constants)";
/// What no instruction refers to: mostly space between functions.
pub const PADDING: &str = "(padding)";

/// A function, a variable, or a constant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    pub address: u64,
    /// Bytes in memory.
    pub length: u64,
    /// Bytes in the image: none, where memory begins as zeros.
    pub bytes: u64,
    /// The crate, or a word in parentheses.
    pub library: String,
    pub name: String,
    pub is_code: bool,
    /// It is loaded with the overlay's tools, not with the image.
    pub on_demand: bool,
}

/// From one piece to another, by their places in [`Anatomy::pieces`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference {
    pub from: usize,
    pub to: usize,
    /// A call or jump; otherwise an address that is taken.
    pub is_call: bool,
}

/// An image taken apart.
#[derive(Clone, Debug, Default)]
pub struct Anatomy {
    /// In the order of their addresses.
    pub pieces: Vec<Piece>,
    pub references: Vec<Reference>,
}

/// A part of the image's memory.
struct Region<'a> {
    address: u64,
    length: u64,
    data: &'a [u8],
    name: &'a str,
    is_code: bool,
    on_demand: bool,
}

impl Region<'_> {
    fn end(&self) -> u64 {
        self.address + self.length
    }
}

/// What a file is to somebody who asks what an image is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A micro kernel, alone or linked with a program.
    Kernel,
    /// A kernel as it boots, without the names of its parts.
    Stripped,
    /// A kernel that is none of ours.
    OtherKernel,
    /// A program of Linux.
    Program,
    /// No ELF file.
    Other,
}

impl Kind {
    pub fn of(bytes: &[u8]) -> Kind {
        let Ok(file) = object::File::parse(bytes) else { return Kind::Other };
        if file.segments().all(|segment| segment.address() < KERNEL) {
            return Kind::Program;
        }
        if file.symbols().next().is_none() {
            return Kind::Stripped;
        }
        let is_ours = file.symbols().any(|symbol| symbol.name() == Ok(ENTRY));
        if is_ours { Kind::Kernel } else { Kind::OtherKernel }
    }
}

impl Anatomy {
    /// Of an ELF file with symbols.
    ///
    /// # Errors
    /// The bytes are no ELF file, or it has no symbols.
    pub fn of(image: &[u8]) -> Result<Anatomy> {
        let unreadable = |e: object::Error| StaticError::new(e.to_string());
        let file = object::File::parse(image).map_err(unreadable)?;
        if file.symbols().next().is_none() {
            return Err(StaticError::new("it has no symbols: name the file that has them (kernel.symbols)"));
        }
        let regions = regions(&file).map_err(unreadable)?;
        let mut of_program = BTreeMap::new();
        // A name of both is the allocator's, which was linked first.
        for (section, library) in [(C_LIBRARY_NAMES, C_LIBRARY), (ALLOCATOR_NAMES, ALLOCATOR)] {
            if let Some(section) = file.section_by_name(section) {
                let text = section.data().map_err(unreadable)?;
                of_program.extend(text.split(|b| *b == b'\n').map(|name| (name, library)));
            }
        }
        let crates = Crates::of(file.symbols().filter_map(|symbol| symbol.name().ok()));
        let mut pieces = Vec::new();
        for region in &regions {
            named(&file, region, &crates, &of_program, &mut pieces);
        }
        let mut anatomy = Anatomy { pieces, references: Vec::new() };
        let targets = anatomy.targets(&regions);
        anatomy.fill_gaps(&regions, &targets);
        anatomy.refer(&targets);
        anatomy.give_constants();
        Ok(anatomy)
    }

    /// The piece at an address.
    fn at(&self, address: u64) -> Option<usize> {
        let after = self.pieces.partition_point(|piece| piece.address <= address);
        let found = after.checked_sub(1)?;
        (address - self.pieces[found].address < self.pieces[found].length).then_some(found)
    }

    /// All that instructions and pointers refer to: where from, where to, and whether by a call.
    fn targets(&self, regions: &[Region<'_>]) -> Vec<(u64, u64, bool)> {
        let mut found = Vec::new();
        let inside = |address: u64| {
            let after = regions.partition_point(|region| region.address <= address);
            after > 0 && address < regions[after - 1].end()
        };
        // A small number in the kernel is a number, not an address of the program.
        let is_address = |from: u64, to: u64| inside(to) && (to >= KERNEL || from < KERNEL);
        for region in regions {
            let mut add = |from: u64, to: u64, is_call: bool| {
                if is_address(from, to) {
                    found.push((from, to, is_call));
                }
            };
            if !region.is_code {
                let skip = region.address.next_multiple_of(8) - region.address;
                let words = region.data.get(skip as usize..).unwrap_or_default().chunks_exact(8);
                for (index, word) in words.enumerate() {
                    let from = region.address + skip + 8 * index as u64;
                    add(from, u64::from_le_bytes(word.try_into().unwrap_or_default()), false);
                }
                continue;
            }
            // Function by function: what is between them need not be instructions.
            let first = self.pieces.partition_point(|piece| piece.address < region.address);
            for piece in self.pieces[first..].iter().take_while(|piece| piece.address < region.end()) {
                let begin = (piece.address - region.address) as usize;
                let Some(code) = region.data.get(begin..begin + piece.bytes as usize) else { continue };
                for instruction in &mut Decoder::with_ip(64, code, piece.address, DecoderOptions::NONE) {
                    addresses(&instruction, |to, is_call| add(instruction.ip(), to, is_call));
                }
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Makes pieces of what has no name. Each address that something refers to begins another one.
    fn fill_gaps(&mut self, regions: &[Region<'_>], targets: &[(u64, u64, bool)]) {
        let starts: BTreeSet<u64> = targets.iter().map(|(_, to, _)| *to).collect();
        let mut gaps = Vec::new();
        for region in regions {
            let mut at = region.address;
            let first = self.pieces.partition_point(|piece| piece.address < region.address);
            let mut named = self.pieces[first..].iter().take_while(|piece| piece.address < region.end());
            while at < region.end() {
                let next = named.next();
                let end = next.map_or(region.end(), |piece| piece.address);
                if at < end {
                    let edges = std::iter::once(at).chain(starts.range(at + 1..end).copied());
                    let ends = starts.range(at + 1..end).copied().chain([end]);
                    for (address, end) in edges.zip(ends) {
                        gaps.push(Piece {
                            address,
                            length: end - address,
                            bytes: if region.data.is_empty() { 0 } else { end - address },
                            library: PADDING.into(),
                            name: format!("rest of {}", region.name),
                            is_code: region.is_code,
                            on_demand: region.on_demand,
                        });
                    }
                }
                at = next.map_or(region.end(), |piece| piece.address + piece.length);
            }
        }
        self.pieces.extend(gaps);
        self.pieces.sort_by_key(|piece| piece.address);
    }

    fn refer(&mut self, targets: &[(u64, u64, bool)]) {
        let pair = |(from, to, is_call): &(u64, u64, bool)| {
            let (from, to) = (self.at(*from)?, self.at(*to)?);
            (from != to).then_some(Reference { from, to, is_call: *is_call })
        };
        self.references = targets.iter().filter_map(pair).collect();
    }

    /// Gives constants without a name to the library that refers to them, through other such constants as well.
    fn give_constants(&mut self) {
        let unowned: Vec<bool> = self.pieces.iter().map(|p| p.library == PADDING && !p.is_code).collect();
        let mut owners: BTreeMap<usize, BTreeSet<String>> = BTreeMap::new();
        let mut outgoing: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        let mut next = Vec::new();
        for Reference { from, to, .. } in self.references.iter().filter(|r| unowned[r.to]) {
            if unowned[*from] {
                outgoing.entry(*from).or_default().push(*to);
            } else {
                next.push((*to, self.pieces[*from].library.clone()));
            }
        }
        while let Some((piece, library)) = next.pop() {
            if owners.entry(piece).or_default().insert(library.clone()) {
                next.extend(outgoing.get(&piece).into_iter().flatten().map(|to| (*to, library.clone())));
            }
        }
        for (piece, libraries) in owners {
            let mut libraries = libraries.into_iter();
            let (first, second) = (libraries.next(), libraries.next());
            let piece = &mut self.pieces[piece];
            piece.library = if second.is_some() { SHARED.into() } else { first.unwrap_or_default() };
            piece.name = piece.name.replacen("rest of", "constants in", 1);
        }
    }
}

/// The addresses in an instruction.
fn addresses(instruction: &Instruction, mut each: impl FnMut(u64, bool)) {
    let jumps = matches!(
        instruction.flow_control(),
        FlowControl::Call | FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch
    );
    if jumps {
        each(instruction.near_branch_target(), true);
        return;
    }
    for operand in 0..instruction.op_count() {
        match instruction.op_kind(operand) {
            OpKind::Memory => each(instruction.memory_displacement64(), false),
            OpKind::Immediate64 => each(instruction.immediate64(), false),
            OpKind::Immediate32to64 => each(instruction.immediate32to64().cast_unsigned(), false),
            OpKind::Immediate32 => each(instruction.immediate32().into(), false),
            _ => {}
        }
    }
}

/// What is loaded of an image, in the order of addresses: sections within segments, and what comes on demand.
fn regions<'a>(file: &object::File<'a>) -> object::Result<Vec<Region<'a>>> {
    let segments: Vec<(u64, u64)> = file.segments().map(|s| (s.address(), s.address() + s.size())).collect();
    let mut regions = Vec::new();
    for section in file.sections() {
        let SectionFlags::Elf { sh_flags } = section.flags() else { continue };
        let name = section.name()?;
        let (address, length) = (section.address(), section.size());
        let on_demand = name.starts_with(ON_DEMAND);
        let is_loaded = segments.iter().any(|(begin, end)| *begin <= address && address + length <= *end);
        let is_allocated = sh_flags & u64::from(object::elf::SHF_ALLOC) != 0;
        // Of thread-local variables there is a copy for each thread elsewhere.
        let is_tls = sh_flags & u64::from(object::elf::SHF_TLS) != 0
            && section.kind() == SectionKind::UninitializedTls;
        if !is_allocated || !(is_loaded || on_demand) || length == 0 || is_tls {
            continue;
        }
        let data = if section.kind() == SectionKind::UninitializedData { &[] } else { section.data()? };
        let is_code = sh_flags & u64::from(object::elf::SHF_EXECINSTR) != 0;
        regions.push(Region { address, length, data, name, is_code, on_demand });
    }
    regions.sort_by_key(|region| region.address);
    Ok(regions)
}

/// The pieces of a region that have names.
fn named(
    file: &object::File<'_>,
    region: &Region<'_>,
    crates: &Crates,
    of_program: &BTreeMap<&[u8], &str>,
    pieces: &mut Vec<Piece>,
) {
    let is_program = region.address < KERNEL;
    let mut symbols: Vec<(u64, u64, &str)> = file
        .symbols()
        .filter(|s| (region.address..region.end()).contains(&s.address()))
        .filter(|s| {
            matches!(s.kind(), SymbolKind::Text | SymbolKind::Data | SymbolKind::Unknown | SymbolKind::Label)
        })
        .filter_map(|s| Some((s.address(), s.size(), s.name().ok()?)))
        // Labels of assembly have no size: in code they reach to the next one. Constants behind a label need not be its own.
        .filter(|(_, size, name)| *size > 0 || (region.is_code && !owner::of_label(name).is_empty()))
        .collect();
    // Of several names of one thing the one that says most.
    symbols.sort_by_key(|(address, size, name)| {
        (*address, std::cmp::Reverse(*size), !owner::has_crate(name), *name)
    });
    let starts: Vec<u64> = symbols.iter().map(|(address, ..)| *address).collect();
    let mut end = region.address;
    for (address, size, name) in symbols {
        let next = starts[starts.partition_point(|start| *start <= address)..].first().copied();
        let size = if size > 0 { size } else { next.unwrap_or(region.end()) - address };
        let (begin, stop) = (address.max(end), (address + size).min(region.end()));
        if stop <= begin {
            continue;
        }
        end = stop;
        let length = stop - begin;
        let library = match is_program {
            true => of_program.get(name.as_bytes()).copied().unwrap_or(PROGRAM).to_string(),
            false => crates.owner(name),
        };
        pieces.push(Piece {
            address: begin,
            length,
            bytes: if region.data.is_empty() { 0 } else { length },
            library,
            name: owner::readable(name),
            is_code: region.is_code,
            on_demand: region.on_demand,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A calls B and takes the address of C, which points at D; nothing refers to E.
    fn example() -> Anatomy {
        let piece = |address: u64, library: &str, is_code| Piece {
            address,
            length: 16,
            bytes: 16,
            library: library.into(),
            name: format!("rest of {address}"),
            is_code,
            on_demand: false,
        };
        let constants = [0x8000_0000_1000, 0x8000_0000_1010, 0x8000_0000_1020];
        let mut pieces = vec![piece(0x8000_0000_0000, "a", true), piece(0x8000_0000_0010, "b", true)];
        pieces.extend(constants.map(|address| piece(address, PADDING, false)));
        let reference = |from, to, is_call| Reference { from, to, is_call };
        Anatomy {
            pieces,
            references: vec![reference(0, 1, true), reference(0, 2, false), reference(2, 3, false)],
        }
    }

    #[test]
    fn constants_belong_to_who_refers_to_them_and_to_nobody_where_several_do() {
        let mut image = example();
        image.give_constants();
        let libraries: Vec<&str> = image.pieces.iter().map(|piece| piece.library.as_str()).collect();
        assert_eq!(libraries, ["a", "b", "a", "a", PADDING]);
        let mut image = example();
        image.references.push(Reference { from: 1, to: 3, is_call: false });
        image.give_constants();
        assert_eq!((image.pieces[2].library.as_str(), image.pieces[3].library.as_str()), ("a", SHARED));
    }

    #[test]
    fn calls_and_addresses_are_read_from_instructions() {
        // call +0; lea rax, [rip + 0x10]; mov rdi, -0x1000; mov rcx, 0x1122334455667788
        let code = [
            &[0xe8, 0, 0, 0, 0][..],
            &[0x48, 0x8d, 0x05, 0x10, 0, 0, 0],
            &[0x48, 0xc7, 0xc7, 0, 0xf0, 0xff, 0xff],
            &[0x48, 0xb9, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11],
        ]
        .concat();
        let mut found = Vec::new();
        for instruction in &mut Decoder::with_ip(64, &code, 0x1000, DecoderOptions::NONE) {
            addresses(&instruction, |to, is_call| found.push((to, is_call)));
        }
        let low = 0x1000_u64.wrapping_neg();
        assert_eq!(found, [(0x1005, true), (0x101c, false), (low, false), (0x1122_3344_5566_7788, false)]);
    }
}
