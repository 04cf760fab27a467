// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Making the bytes: copying sections, filling tables, relocating (AMD64 supplement, table 4.10).

use crate::Definition;
use crate::code::{Addresses, Entries, STUB, asked, call_stub, jump_stub};
use crate::elf::*;
use crate::error::{Error, Result, Shown, with_room};
use crate::image::{Image, Place, Symbol};
use crate::plan::{Calls, Plan};
use crate::scan::{Slot, kinds::*, place, relocated, width};
use crate::symbols::{Made, Target};
use alloc::string::ToString;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_overlay::sort;

impl Plan<'_> {
    /// Makes the program for `place`.
    pub fn place(&self, place: Place) -> Result<Image> {
        let mut maker = Maker {
            plan: self,
            base: place.base,
            entries: Entries::default(),
            text: zeros(self.text_end, "the program's text")?,
            rodata: zeros(self.rodata.1 - self.rodata.0, "the program's constants")?,
            data: zeros(self.data.1 - self.data.0, "the program's data")?,
        };
        // What others refer to lies before the lists of constructors, which are not relocated yet.
        maker.entries = maker.start_code(&[], &[])?.1;
        maker.copy();
        maker.fill_table();
        maker.write_stubs();
        maker.relocate()?;
        let (first, last) = (maker.listed(&self.start.first), maker.listed(&self.start.last));
        let (code, entries) = maker.start_code(&first, &last)?;
        maker.text[..code.len()].copy_from_slice(&code);
        let control = (self.thread_pointer - self.data.0) as usize;
        let thread_pointer = place.base + self.thread_pointer;
        maker.data[control..control + 8].copy_from_slice(&thread_pointer.to_le_bytes());
        maker.data[control + 0x28..control + 0x30].copy_from_slice(&place.canary.to_le_bytes());
        Ok(Image {
            symbols: maker.symbols()?,
            text: maker.text,
            rodata_address: place.base + self.rodata.0,
            rodata: maker.rodata,
            data_address: place.base + self.data.0,
            data: maker.data,
            data_size: self.end - self.data.0,
            start: entries.start,
            leave: entries.leave,
            thread_pointer,
            uses_fs: self.needs.uses_fs,
        })
    }
}

fn zeros(count: u64, what: &str) -> Result<Vec<u8>> {
    let mut out = with_room(count as usize, what)?;
    out.resize(count as usize, 0);
    Ok(out)
}

/// A program in the making.
struct Maker<'p, 'a> {
    plan: &'p Plan<'a>,
    base: u64,
    entries: Entries,
    text: Vec<u8>,
    rodata: Vec<u8>,
    data: Vec<u8>,
}

/// What a relocation is computed from, as the supplement names it.
struct Operands {
    /// S: the symbol's value (of a thread-local variable its address in the program's own block).
    s: u64,
    a: i64,
    p: u64,
}

impl Maker<'_, '_> {
    /// The bytes from `offset` of the program on; none where it has no bytes.
    fn bytes(&mut self, offset: u64, length: usize) -> Option<&mut [u8]> {
        let plan = self.plan;
        let (vector, start) = match offset {
            o if o >= plan.data.0 => (&mut self.data, plan.data.0),
            o if o >= plan.rodata.0 => (&mut self.rodata, plan.rodata.0),
            _ => (&mut self.text, 0),
        };
        let at = (offset - start) as usize;
        vector.get_mut(at..at.checked_add(length)?)
    }

    fn put(&mut self, offset: u64, bytes: &[u8]) {
        if let Some(to) = self.bytes(offset, bytes.len()) {
            to.copy_from_slice(bytes);
        }
    }

    fn copy(&mut self) {
        for (number, object) in self.plan.objects.iter().enumerate() {
            for section in 0..object.sections.len() {
                if self.plan.symbols.kept[number][section] {
                    self.put(self.plan.sections_at[number][section], object.contents(section));
                }
            }
        }
    }

    fn own(&self, object: u16, section: u16, offset: u64) -> u64 {
        self.base + self.plan.sections_at[object as usize][section as usize] + offset
    }

    fn stub(&self, target: Target) -> Option<u64> {
        let index = self.plan.needs.stubs.binary_search(&target).ok()?;
        Some(self.base + self.plan.stubs_at + index as u64 * STUB)
    }

    /// The address of the symbol: of its stub where it has nothing else.
    fn address(&self, target: Target) -> u64 {
        let plan = self.plan;
        match target {
            _ if plan.symbols.has_only_a_stub(target) => self.stub(target).unwrap_or(0),
            Target::Own { object, section, offset }
            | Target::Thread { object, section, offset }
            | Target::Chosen { object, section, offset } => self.own(object, section, offset),
            Target::Absolute(value) => value,
            Target::Common(index) => self.base + plan.commons_at[index as usize],
            Target::External(_) => match plan.symbols.definition(target) {
                Some(Definition::Function(at) | Definition::Data(at)) => at,
                _ => 0,
            },
            Target::Made(Made::Table) => self.base + plan.table_at,
            Target::Made(Made::Exit) => self.entries.exit,
            Target::Made(Made::ThreadAddress) => self.entries.thread_address,
            Target::Made(Made::ThreadBase) => self.base + plan.thread_at,
            Target::Made(Made::Handle) => self.base + plan.data.0,
            Target::Missing | Target::Gone => 0,
        }
    }

    /// The function that an indirect function's address is asked of.
    fn asked(&self, target: Target) -> u64 {
        match (target, self.plan.symbols.definition(target)) {
            (Target::Chosen { object, section, offset }, _) => self.own(object, section, offset),
            (_, Some(Definition::Indirect(at))) => at,
            _ => 0,
        }
    }

    fn start_code(&self, first: &[u64], last: &[u64]) -> Result<(Vec<u8>, Entries)> {
        let plan = self.plan;
        let table = self.base + plan.table_at;
        let asked: Vec<(u64, u64)> = asked(&plan.needs, &plan.symbols)
            .map(|(target, offset)| (self.asked(target), table + offset))
            .collect();
        let main = plan.symbols.main.map_or(0, |main| self.address(main));
        let thread_block = self.base + plan.thread_at;
        let base = self.base;
        let (code, entries) =
            plan.start.write(&Addresses { base, main, asked: &asked, first, last, thread_block });
        if code.len() as u64 > plan.start.size {
            return Err(Error::new(plan.objects[0].name, "too many constructors"));
        }
        Ok((code, entries))
    }

    /// The relocated pointers of a list of functions.
    fn listed(&mut self, lists: &[Calls]) -> Vec<u64> {
        let mut out = Vec::new();
        for list in lists {
            let size = self.plan.objects[list.object].sections[list.section].size;
            let at = self.plan.sections_at[list.object][list.section];
            let words = self.bytes(at, size as usize).map_or(Vec::new(), |bytes| {
                bytes.chunks_exact(8).map(|word| u64_at(word, 0)).collect::<Vec<u64>>()
            });
            if list.backwards {
                out.extend(words.iter().rev());
            } else {
                out.extend(words);
            }
        }
        out
    }

    fn fill_table(&mut self) {
        let plan = self.plan;
        for (slot, offset) in &plan.needs.slots {
            let at = plan.table_at + offset;
            let within = |target| self.address(target).wrapping_sub(self.base + plan.thread_at);
            match *slot {
                Slot::Address(target) => self.put(at, &self.address(target).to_le_bytes()),
                Slot::ThreadOffset(target) => {
                    let offset = self.address(target).wrapping_sub(self.base + plan.thread_pointer);
                    self.put(at, &offset.to_le_bytes());
                }
                Slot::ThreadPair(target) => {
                    let offset = within(target);
                    self.put(at, &1u64.to_le_bytes());
                    self.put(at + 8, &offset.to_le_bytes());
                }
                Slot::ThreadModule => self.put(at, &1u64.to_le_bytes()),
            }
        }
    }

    fn write_stubs(&mut self) {
        let plan = self.plan;
        for (index, target) in plan.needs.stubs.iter().enumerate() {
            let at = plan.stubs_at + index as u64 * STUB;
            let stub = match plan.symbols.definition(*target) {
                Some(Definition::Call(number)) => call_stub(number),
                _ => {
                    let slot = plan.needs.slot_offset(Slot::Address(*target)).unwrap_or(0);
                    jump_stub((plan.table_at + slot) as i32 - at as i32)
                }
            };
            self.put(at, &stub);
        }
    }

    fn relocate(&mut self) -> Result<()> {
        let plan = self.plan;
        for (number, object) in plan.objects.iter().enumerate() {
            for (from, section) in relocated(object, &plan.symbols.kept[number]) {
                for relocation in object.relocations(from) {
                    self.apply(number, section, &relocation)?;
                }
            }
        }
        Ok(())
    }

    fn apply(&mut self, number: usize, section: usize, relocation: &Relocation) -> Result<()> {
        let plan = self.plan;
        let object = &plan.objects[number];
        let target = plan.symbols.targets[number][relocation.symbol];
        let at = plan.sections_at[number][section] + relocation.offset;
        let Operands { s, a, p } =
            Operands { s: self.address(target), a: relocation.addend, p: self.base + at };
        let table = self.base + plan.table_at;
        let slot = |slot: Slot| plan.needs.slot_offset(slot).unwrap_or(0);
        // L: the stub if there is one.
        let l = self.stub(target).unwrap_or(s);
        let sum = |value: u64| value.wrapping_add_signed(a);
        let value: u64 = match relocation.kind {
            NONE => return Ok(()),
            WORD64 | WORD32 | WORD32S | WORD16 | WORD8 => sum(s),
            PC64 | PC16 | PC8 => sum(s).wrapping_sub(p),
            PC32 | PLT32 => sum(l).wrapping_sub(p),
            GOTPCREL | GOTPCRELX | REX_GOTPCRELX | GOTPCREL64 => {
                sum(table + slot(Slot::Address(target))).wrapping_sub(p)
            }
            GOT32 | GOT64 | GOTPLT64 => sum(slot(Slot::Address(target))),
            GOTOFF64 => sum(s).wrapping_sub(table),
            GOTPC32 | GOTPC64 => sum(table).wrapping_sub(p),
            PLTOFF64 => sum(l).wrapping_sub(table),
            SIZE32 | SIZE64 => sum(object.symbols[relocation.symbol].size),
            TLSGD => sum(table + slot(Slot::ThreadPair(target))).wrapping_sub(p),
            TLSLD => sum(table + slot(Slot::ThreadModule)).wrapping_sub(p),
            GOTTPOFF => sum(table + slot(Slot::ThreadOffset(target))).wrapping_sub(p),
            DTPMOD64 => 1,
            DTPOFF32 | DTPOFF64 => sum(s).wrapping_sub(self.base + plan.thread_at),
            TPOFF32 | TPOFF64 => sum(s).wrapping_sub(self.base + plan.thread_pointer),
            GOTPC32_TLSDESC => {
                // lea x@tlsdesc(%rip), %rax becomes mov $x@tpoff, %rax; the addend (-4) belongs to LEA alone.
                self.put(at - 3, &[0x48, 0xc7, 0xc0]);
                s.wrapping_sub(self.base + plan.thread_pointer)
            }
            TLSDESC_CALL => {
                // The offset is in RAX already: a no-op of two bytes.
                self.put(at, &[0x66, 0x90]);
                return Ok(());
            }
            _ => return Err(place(object, section, relocation).because(&"is not supported")),
        };
        let signed = value as i64;
        let fits = match relocation.kind {
            WORD32 | SIZE32 | GOT32 => u32::try_from(value).is_ok(),
            WORD16 => u16::try_from(value).is_ok() || i16::try_from(signed).is_ok(),
            WORD8 => u8::try_from(value).is_ok() || i8::try_from(signed).is_ok(),
            PC16 => i16::try_from(signed).is_ok(),
            PC8 => i8::try_from(signed).is_ok(),
            kind => width(kind) != Some(4) || i32::try_from(signed).is_ok(),
        };
        if !fits {
            let symbol = &object.symbols[relocation.symbol];
            let name = if symbol.name.is_empty() {
                object.sections.get(symbol.section as usize).map_or(&b""[..], |s| s.name)
            } else {
                symbol.name
            };
            return Err(place(object, section, relocation).because(&format_args!(
                "does not reach {}: compile with -fPIC, as unilith overlay build does",
                Shown(name)
            )));
        }
        let length = width(relocation.kind).unwrap_or(0);
        self.put(at, &value.to_le_bytes()[..length]);
        Ok(())
    }

    /// Named functions and variables of the program.
    fn symbols(&self) -> Result<Vec<Symbol>> {
        let mut out = Vec::new();
        for (number, object) in self.plan.objects.iter().enumerate() {
            for (index, symbol) in object.symbols.iter().enumerate() {
                let target = self.plan.symbols.targets[number][index];
                let defined = matches!(target, Target::Own { .. } | Target::Common(_))
                    && !matches!(symbol.section, SHN_UNDEF)
                    && matches!(symbol.kind, 1 | STT_FUNC);
                if !defined || symbol.name.is_empty() {
                    continue;
                }
                out.reserve_fallibly(1).map_err(|_| Error::memory("the symbols"))?;
                let (address, size) = (self.address(target), symbol.size);
                out.push(Symbol { name: Shown(symbol.name).to_string(), address, size });
            }
        }
        sort(&mut out, |a, b| (a.address, &a.name) < (b.address, &b.name));
        out.dedup();
        Ok(out)
    }
}
