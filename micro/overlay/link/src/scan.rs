// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the relocations need before anything has an address: entries of the global offset table, stubs for calls.

use crate::Definition;
use crate::elf::{Object, Relocation, SHT_REL, SHT_RELA};
use crate::error::{Error, Result, Shown};
use crate::symbols::{Made, Symbols, Target};
use alloc::format;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_overlay::sort;

/// Relocation types (AMD64 supplement, table 4.10).
pub mod kinds {
    pub const NONE: u32 = 0;
    pub const WORD64: u32 = 1;
    pub const PC32: u32 = 2;
    pub const GOT32: u32 = 3;
    pub const PLT32: u32 = 4;
    pub const GOTPCREL: u32 = 9;
    pub const WORD32: u32 = 10;
    pub const WORD32S: u32 = 11;
    pub const WORD16: u32 = 12;
    pub const PC16: u32 = 13;
    pub const WORD8: u32 = 14;
    pub const PC8: u32 = 15;
    pub const DTPMOD64: u32 = 16;
    pub const DTPOFF64: u32 = 17;
    pub const TPOFF64: u32 = 18;
    pub const TLSGD: u32 = 19;
    pub const TLSLD: u32 = 20;
    pub const DTPOFF32: u32 = 21;
    pub const GOTTPOFF: u32 = 22;
    pub const TPOFF32: u32 = 23;
    pub const PC64: u32 = 24;
    pub const GOTOFF64: u32 = 25;
    pub const GOTPC32: u32 = 26;
    pub const GOT64: u32 = 27;
    pub const GOTPCREL64: u32 = 28;
    pub const GOTPC64: u32 = 29;
    pub const GOTPLT64: u32 = 30;
    pub const PLTOFF64: u32 = 31;
    pub const SIZE32: u32 = 32;
    pub const SIZE64: u32 = 33;
    pub const GOTPC32_TLSDESC: u32 = 34;
    pub const TLSDESC_CALL: u32 = 35;
    pub const GOTPCRELX: u32 = 41;
    pub const REX_GOTPCRELX: u32 = 42;
}
use kinds::*;

/// What an entry of the table holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Slot {
    /// The symbol's address.
    Address(Target),
    /// The variable's distance from the thread pointer.
    ThreadOffset(Target),
    /// Module and offset for `__tls_get_addr`.
    ThreadPair(Target),
    /// The same of the program's variables as a whole.
    ThreadModule,
}

impl Slot {
    pub fn size(self) -> u64 {
        if matches!(self, Slot::ThreadPair(_) | Slot::ThreadModule) { 16 } else { 8 }
    }
}

/// What all relocations together need.
pub struct Needs {
    /// Sorted, each with its offset in the table.
    pub slots: Vec<(Slot, u64)>,
    pub table_size: u64,
    /// Sorted: targets that are called through a stub.
    pub stubs: Vec<Target>,
    /// Code that expects FS to point to the program's thread control block.
    pub uses_fs: bool,
}

/// Width in bytes of what a relocation writes; `None` for types that are not for relocatable objects.
pub fn width(kind: u32) -> Option<usize> {
    Some(match kind {
        NONE => 0,
        WORD8 | PC8 => 1,
        WORD16 | PC16 | TLSDESC_CALL => 2,
        WORD64 | DTPMOD64 | DTPOFF64 | TPOFF64 | PC64 | GOTOFF64 | GOT64 | GOTPCREL64 | GOTPC64
        | GOTPLT64 | PLTOFF64 | SIZE64 => 8,
        PC32 | GOT32 | PLT32 | GOTPCREL | WORD32 | WORD32S | TLSGD | TLSLD | DTPOFF32 | GOTTPOFF
        | TPOFF32 | GOTPC32 | SIZE32 | GOTPC32_TLSDESC | GOTPCRELX | REX_GOTPCRELX => 4,
        _ => return None,
    })
}

/// A section with relocations of a section that is part of the program: number of the relocations' own section, and
/// of the one they change.
pub fn relocated<'o>(object: &'o Object<'_>, kept: &'o [bool]) -> impl Iterator<Item = (usize, usize)> + 'o {
    object
        .sections
        .iter()
        .enumerate()
        .filter(|(_, s)| s.kind == SHT_RELA)
        .map(|(index, s)| (index, s.info as usize))
        .filter(|(_, target)| kept.get(*target).copied().unwrap_or(false))
}

impl Symbols {
    pub fn definition(&self, target: Target) -> Option<Definition> {
        match target {
            Target::External(index) => Some(self.externals[index as usize]),
            _ => None,
        }
    }

    /// Its address is known only when the program starts.
    pub fn is_indirect(&self, target: Target) -> bool {
        matches!(target, Target::Chosen { .. })
            || matches!(self.definition(target), Some(Definition::Indirect(_)))
    }

    /// Reached through a stub, whatever refers to it.
    pub fn has_only_a_stub(&self, target: Target) -> bool {
        self.is_indirect(target) || matches!(self.definition(target), Some(Definition::Call(_)))
    }
}

/// A relocation in words, for messages.
#[cold]
#[inline(never)]
pub fn place(object: &Object<'_>, section: usize, relocation: &Relocation) -> Error {
    let name = object.sections.get(section).map_or(&b"?"[..], |s| s.name);
    Error::new(
        object.name,
        format_args!(
            "relocation of type {} in section {} at {:#x}",
            relocation.kind,
            Shown(name),
            relocation.offset
        ),
    )
}

/// Checks every relocation and collects what they need. All missing symbols are named at once.
pub fn scan(objects: &[Object<'_>], symbols: &Symbols) -> Result<Needs> {
    let mut needs = Needs { slots: Vec::new(), table_size: 0, stubs: Vec::new(), uses_fs: false };
    for (number, object) in objects.iter().enumerate() {
        let kept = &symbols.kept[number];
        if let Some(section) = object.sections.iter().find(|s| s.kind == SHT_REL) {
            let name = Shown(section.name);
            return Err(Error::new(
                object.name,
                format_args!("malformed: section {name} has relocations without addends"),
            ));
        }
        let mut missing: Vec<(&[u8], &[u8])> = Vec::new();
        for (from, section) in relocated(object, kept) {
            for relocation in object.relocations(from) {
                let size = object.sections[section].size;
                let Some(width) = width(relocation.kind) else {
                    return Err(place(object, section, &relocation).because(&"is not supported"));
                };
                let end = relocation.offset.checked_add(width as u64);
                if end.is_none_or(|end| end > size) || !object.sections[section].has_bytes() && width > 0 {
                    return Err(place(object, section, &relocation).because(&"lies outside of its section"));
                }
                let Some(&target) = symbols.targets[number].get(relocation.symbol) else {
                    return Err(
                        place(object, section, &relocation).because(&"names a symbol that does not exist")
                    );
                };
                let name = object.symbols[relocation.symbol].name;
                match target {
                    _ if relocation.kind == NONE => {}
                    Target::Missing => {
                        missing.reserve_fallibly(1).map_err(|_| Error::memory("the symbols"))?;
                        missing.push((name, object.sections[section].name));
                    }
                    Target::Gone => {
                        return Err(place(object, section, &relocation).because(&format_args!(
                            "refers to {}, which is in a section that is not loaded",
                            Shown(name)
                        )));
                    }
                    _ => needs.add(symbols, object, section, &relocation, target)?,
                }
            }
        }
        if !missing.is_empty() {
            return Err(missing_symbols(object, missing));
        }
    }
    needs.finish()?;
    Ok(needs)
}

/// How many missing symbols one message names.
const MISSING_SHOWN: usize = 8;

fn missing_symbols(object: &Object<'_>, mut missing: Vec<(&[u8], &[u8])>) -> Error {
    sort(&mut missing, |a, b| a < b);
    missing.dedup_by_key(|(name, _)| *name);
    let mut text = alloc::string::String::from("no symbol");
    for (i, (name, section)) in missing.iter().take(MISSING_SHOWN).enumerate() {
        let comma = if i == 0 { "" } else { "," };
        text += &format!("{comma} {} (used in {})", Shown(name), Shown(section));
    }
    if missing.len() > MISSING_SHOWN {
        text += &format!(" and {} more", missing.len() - MISSING_SHOWN);
    }
    Error::new(object.name, text + " in the application or the kernel")
}

impl Needs {
    fn slot(&mut self, slot: Slot) -> Result<()> {
        // Neighbouring relocations often want the same.
        if self.slots.last().is_none_or(|(last, _)| *last != slot) {
            self.slots.reserve_fallibly(1).map_err(|_| Error::memory("the offset table"))?;
            self.slots.push((slot, 0));
        }
        Ok(())
    }

    fn stub(&mut self, symbols: &Symbols, target: Target) -> Result<()> {
        if self.stubs.last() != Some(&target) {
            self.stubs.reserve_fallibly(1).map_err(|_| Error::memory("the stubs"))?;
            self.stubs.push(target);
        }
        match symbols.definition(target) {
            Some(Definition::Call(_)) => Ok(()),
            _ => self.slot(Slot::Address(target)),
        }
    }

    fn add(
        &mut self,
        symbols: &Symbols,
        object: &Object<'_>,
        section: usize,
        relocation: &Relocation,
        target: Target,
    ) -> Result<()> {
        let thread_local = matches!(target, Target::Thread { .. } | Target::Made(Made::ThreadBase));
        let wants_thread_local = matches!(
            relocation.kind,
            DTPMOD64
                | DTPOFF64
                | TPOFF64
                | TLSGD
                | DTPOFF32
                | GOTTPOFF
                | TPOFF32
                | GOTPC32_TLSDESC
                | TLSDESC_CALL
        );
        let name = Shown(object.symbols[relocation.symbol].name);
        if symbols.definition(target) == Some(Definition::ThreadLocal) {
            return Err(Error::new(
                object.name,
                format_args!(
                    "{name} is a thread-local variable of the application, which a program cannot use"
                ),
            ));
        }
        if thread_local != wants_thread_local && !matches!(relocation.kind, TLSLD | SIZE32 | SIZE64) {
            let what = format!("malformed: {name} is used both as a thread-local and as a common variable");
            return Err(Error::new(object.name, what));
        }
        if symbols.has_only_a_stub(target) {
            self.stub(symbols, target)?;
        }
        match relocation.kind {
            GOT32 | GOT64 | GOTPCREL | GOTPCREL64 | GOTPCRELX | REX_GOTPCRELX | GOTPLT64 => {
                self.slot(Slot::Address(target))
            }
            PLT32 | PLTOFF64 if matches!(target, Target::External(_) | Target::Absolute(_)) => {
                self.stub(symbols, target)
            }
            // Code compiled without PIC calls and takes addresses of functions like this.
            PC32 if matches!(symbols.definition(target), Some(Definition::Function(_))) => {
                self.stub(symbols, target)
            }
            GOTTPOFF => {
                self.uses_fs = true;
                self.slot(Slot::ThreadOffset(target))
            }
            TPOFF32 | TPOFF64 | GOTPC32_TLSDESC => {
                self.uses_fs = true;
                if relocation.kind == GOTPC32_TLSDESC {
                    check_tlsdesc(object, section, relocation)?;
                }
                Ok(())
            }
            TLSDESC_CALL => {
                let at = relocation.offset as usize;
                match object.contents(section).get(at..at + 2) {
                    // call *(%rax)
                    Some([0xff, 0x10]) => Ok(()),
                    _ => Err(place(object, section, relocation).because(&"is not at a call through RAX")),
                }
            }
            TLSGD => self.slot(Slot::ThreadPair(target)),
            TLSLD => self.slot(Slot::ThreadModule),
            _ => Ok(()),
        }
    }

    fn finish(&mut self) -> Result<()> {
        sort(&mut self.slots, |a, b| a < b);
        self.slots.dedup();
        for (slot, offset) in &mut self.slots {
            *offset = self.table_size;
            self.table_size += slot.size();
        }
        sort(&mut self.stubs, |a, b| a < b);
        self.stubs.dedup();
        Ok(())
    }

    /// Offset in the table.
    pub fn slot_offset(&self, slot: Slot) -> Option<u64> {
        let index = self.slots.binary_search_by_key(&slot, |(slot, _)| *slot).ok()?;
        Some(self.slots[index].1)
    }
}

/// The instruction is `lea x@tlsdesc(%rip), %rax`, the only one the ABI allows here.
fn check_tlsdesc(object: &Object<'_>, section: usize, relocation: &Relocation) -> Result<()> {
    let at = relocation.offset as usize;
    match at.checked_sub(3).and_then(|at| object.contents(section).get(at..at + 3)) {
        Some([0x48, 0x8d, 0x05]) => Ok(()),
        _ => Err(place(object, section, relocation).because(&"is not at LEA of RAX")),
    }
}

impl Error {
    /// The same with a reason behind it.
    #[cold]
    #[inline(never)]
    pub(crate) fn because(self, why: &dyn core::fmt::Display) -> Error {
        Error::of(format_args!("{} {why}", self.0))
    }
}
