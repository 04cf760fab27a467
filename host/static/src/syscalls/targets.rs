// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where execution may come into a section of an object: what a jump must not overwrite the middle of.
//!
//! An object is easier to judge than a linked file: whatever leads to another section, or through a table, has a relocation.

use iced_x86::Instruction;
use object::{
    Object as _, ObjectSection as _, ObjectSymbol as _, RelocationFlags, RelocationTarget, SectionIndex,
    SectionKind, elf, read::elf::ElfFile64,
};
use std::collections::{BTreeMap, BTreeSet};

/// A relocation in a section that is loaded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reference {
    /// The section that it is in.
    pub from: SectionIndex,
    pub place: u64,
    pub kind: u32,
    /// The section that it leads to, and where in it, without what the kind adds.
    pub to: SectionIndex,
    pub value: i64,
}

/// Relocations that lead to sections of this object, by the section they lead to.
pub(super) struct References(BTreeMap<usize, Vec<Reference>>);

impl References {
    pub(super) fn read(file: &ElfFile64<'_>) -> object::Result<References> {
        let mut all: BTreeMap<usize, Vec<Reference>> = BTreeMap::new();
        for section in file.sections() {
            if matches!(section.kind(), SectionKind::Debug | SectionKind::DebugString | SectionKind::Metadata)
            {
                continue;
            }
            for (place, relocation) in section.relocations() {
                let RelocationTarget::Symbol(index) = relocation.target() else { continue };
                let symbol = file.symbol_by_index(index)?;
                let (Some(to), RelocationFlags::Elf { r_type }) =
                    (symbol.section_index(), relocation.flags())
                else {
                    continue;
                };
                let value = (symbol.address() as i64).wrapping_add(relocation.addend());
                let one = Reference { from: section.index(), place, kind: r_type, to, value };
                all.entry(to.0).or_default().push(one);
            }
        }
        Ok(References(all))
    }

    fn to(&self, section: SectionIndex) -> &[Reference] {
        self.0.get(&section.0).map_or(&[], Vec::as_slice)
    }
}

/// Addresses in one section that something other than a branch of this section may lead to.
pub(super) fn entries(
    file: &ElfFile64<'_>,
    references: &References,
    section: SectionIndex,
) -> object::Result<BTreeSet<u64>> {
    let symbols = file.symbols().filter(|s| s.section_index() == Some(section));
    let mut out: BTreeSet<u64> = symbols.map(|s| s.address()).collect();
    for reference in references.to(section) {
        let from = file.section_by_index(reference.from)?;
        let (is_code, is_frames) = (from.kind() == SectionKind::Text, from.name()? == ".eh_frame");
        let mut add = |offset: i64| {
            if let Ok(address) = u64::try_from(reference.value.wrapping_add(offset)) {
                out.insert(address);
            }
        };
        match reference.kind {
            elf::R_X86_64_PC32 | elf::R_X86_64_PLT32 | elf::R_X86_64_PC64 if is_code => {
                // Relative to the end of the instruction, which an immediate of up to four bytes may follow.
                [4, 5, 6, 8].into_iter().for_each(&mut add);
            }
            elf::R_X86_64_PC32 | elf::R_X86_64_PC64 => {
                // A frame description names the function itself, an entry of a jump table how far it is from the table.
                let base = if is_frames { None } else { base(references, reference) };
                add(base.map_or(0, |base| base.wrapping_sub(reference.place as i64)));
            }
            _ => add(0),
        }
    }
    out.extend(landing_pads(file, references, section)?);
    Ok(out)
}

/// Where the table begins that an entry is in: the last place before it that code refers to.
fn base(references: &References, entry: &Reference) -> Option<i64> {
    let known = references.to(entry.from).iter().map(|r| r.value.wrapping_add(4));
    known.filter(|base| *base <= entry.place as i64).max()
}

/// Where exceptions land (the language-specific data area of the Itanium C++ ABI's exception handling).
fn landing_pads(
    file: &ElfFile64<'_>,
    references: &References,
    section: SectionIndex,
) -> object::Result<Vec<u64>> {
    /// In a frame description, from the function's address to that of its data: the function's length (4 bytes) and the length of
    /// what follows (1 byte) are between them, with the encodings that compilers use on this processor.
    const TO_DATA: u64 = 9;
    let mut pads = Vec::new();
    for function in references.to(section) {
        if file.section_by_index(function.from)?.name()? != ".eh_frame" {
            continue;
        }
        let table = references.0.values().flatten().find(|r| {
            r.from == function.from && r.place == function.place + TO_DATA && r.kind == elf::R_X86_64_PC32
        });
        let Some(table) = table else { continue };
        let tables = file.section_by_index(table.to)?;
        if let (Ok(start), Ok(at)) = (u64::try_from(function.value), u64::try_from(table.value)) {
            // What cannot be read to its end has given what it has.
            let _ = unilith_rewrite::landing_pads(tables.data()?, at, start, &mut |pad| pads.push(pad));
        }
    }
    Ok(pads)
}

/// Where branches within a section lead. `relocated`: what starts or ends at a relocation leads elsewhere.
pub(super) fn branches(instructions: &[Instruction], relocated: &BTreeSet<u64>) -> Vec<(usize, u64)> {
    let is_branch = |i: &Instruction| {
        i.is_jcc_short_or_near()
            || i.is_jmp_short_or_near()
            || i.is_call_near()
            || i.is_jcx_short()
            || i.is_loop()
            || i.is_loopcc()
    };
    let own = |i: &Instruction| relocated.range(i.ip()..i.next_ip()).next().is_none();
    let all = instructions.iter().enumerate();
    all.filter(|(_, i)| is_branch(i) && own(i)).map(|(at, i)| (at, i.near_branch_target())).collect()
}
