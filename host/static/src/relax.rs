// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Objects of Rust's compiler in a linked image.

use crate::{Result, StaticError};
use object::{
    Endianness, elf,
    read::elf::{ElfFile64, Rela as _, SectionHeader as _},
};

/// Lets the linker call functions of the C library without a table of their addresses (System V ABI for x86-64, B.2, "Optimize
/// GOTPCRELX Relocations"): the table of a linked image is the kernel's, out of the program's reach. Rust's compiler writes
/// relocations of the older kind, which forbid that.
pub(crate) fn relax(object: &[u8]) -> Result<Vec<u8>> {
    let places = places(object).map_err(|e| StaticError::new(format!("an object of Rust's: {e}")))?;
    let mut out = object.to_vec();
    for (place, kind) in places {
        if let Some(word) = out.get_mut(place..place + 4) {
            word.copy_from_slice(&kind.to_le_bytes());
        }
    }
    Ok(out)
}

/// Where a relocation has its type, and which it is to be.
fn places(object: &[u8]) -> object::Result<Vec<(usize, u32)>> {
    const CALL_OR_JUMP: [[u8; 2]; 2] = [[0xff, 0x15], [0xff, 0x25]];
    const MOVE: u8 = 0x8b;
    let mut changes = Vec::new();
    let file = ElfFile64::<Endianness>::parse(object)?;
    let (endian, sections) = (file.endian(), file.elf_section_table());
    for section in sections.iter() {
        let Some((entries, _)) = section.rela(endian, file.data())? else { continue };
        let code = sections.section(section.info_link(endian))?.data(endian, file.data())?;
        for (index, entry) in entries.iter().enumerate() {
            let at = entry.r_offset(endian) as usize;
            let before = at.checked_sub(3).and_then(|from| code.get(from..at));
            let kind = match before {
                Some(&[_, first, second]) if CALL_OR_JUMP.contains(&[first, second]) => {
                    elf::R_X86_64_GOTPCRELX
                }
                Some(&[rex, MOVE, _]) if rex & 0xf0 == 0x40 => elf::R_X86_64_REX_GOTPCRELX,
                _ => continue,
            };
            if entry.r_type(endian, false) == elf::R_X86_64_GOTPCREL {
                let place = section.sh_offset(endian) as usize + index * size_of::<elf::Rela64<Endianness>>();
                changes.push((place + RELOCATION_TYPE, kind));
            }
        }
    }
    Ok(changes)
}

/// Where an `Elf64_Rela` has its type: the lower half of `r_info`.
const RELOCATION_TYPE: usize = 8;
