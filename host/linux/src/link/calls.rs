// SPDX-License-Identifier: Apache-2.0 OR MIT
//! System calls of a linked program become jumps into the kernel: its C library stays as it was compiled.
//!
//! Each `syscall` that can be (`unilith-rewrite` finds and judges them) gets a jump to a piece of code at the end of
//! the text that does what the overwritten instructions did, loads into RCX the address behind a `syscall` that makes
//! the same call, and jumps to the kernel's entry. The kernel falls back to that `syscall` where the jump cannot do:
//! for calls that need all registers, for threads that are traced or do not bypass, and on interrupts.

use object::{Endianness, Object, ObjectSection, ObjectSymbol, read::elf::ElfFile64};
use std::ops::Range;

/// UKL_GATE_CALL of the series' arch/x86/include/uapi/asm/ukl.h.
const GATE: u64 = 0xffff_ffff_f000_0000;
/// Where the new code goes (linux/link/program.lds).
const ROOM: &str = ".text.unilith";
/// musl recognises a thread that waits in a cancellable call by RIP between two labels of this function.
const LEFT_ALONE: &str = "__syscall_cp_asm";
const JUMP: usize = api_sites::JUMP_LENGTH;
const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    pub jumps: usize,
    /// Those that stay `syscall`.
    pub left: usize,
}

/// Changes the program in place. An error is one line.
pub fn connect(elf: &mut [u8]) -> Result<Calls, String> {
    let scan = unilith_rewrite::scan(elf)?;
    let file = ElfFile64::<Endianness>::parse(&*elf).map_err(|e| e.to_string())?;
    let section = file.section_by_name(ROOM).ok_or(format!("it has no section {ROOM}"))?;
    let text = file.section_by_name(".text").ok_or("it has no text")?;
    let place = |section: &object::read::elf::ElfSection64<'_, '_, Endianness>| {
        let (offset, size) = section.file_range().ok_or("its text is not in the file")?;
        let (start, end) = (usize::try_from(offset), usize::try_from(offset.saturating_add(size)));
        Ok::<_, String>(Piece { address: section.address(), bytes: start.unwrap_or(0)..end.unwrap_or(0) })
    };
    let (room, text) = (place(&section)?, place(&text)?);
    let symbol = file.symbols().find(|s| s.name() == Ok(LEFT_ALONE));
    let left_alone = symbol.map_or(0..0, |s| s.address()..s.address().saturating_add(s.size()));
    let mut out = Calls { jumps: 0, left: scan.missed.len() };
    let mut free = room.bytes.start;
    for site in &scan.sites {
        let start = site.offset as usize;
        let end = start + site.length();
        let done = (text.bytes.start <= start && end <= text.bytes.end)
            .then(|| text.at(start))
            .filter(|address| !left_alone.contains(address))
            .and_then(|address| piece(elf.get(start..end)?, site, address, room.at(free)))
            .filter(|piece| free + piece.len() <= room.bytes.end)
            .and_then(|piece| Some((jump(text.at(start), room.at(free))?, piece)));
        let Some((jump, piece)) = done else {
            out.left += 1;
            continue;
        };
        elf[start..start + JUMP].copy_from_slice(&jump);
        elf[free..free + piece.len()].copy_from_slice(&piece);
        free += piece.len();
        out.jumps += 1;
    }
    Ok(out)
}

/// A section of the file.
struct Piece {
    address: u64,
    bytes: Range<usize>,
}

impl Piece {
    fn at(&self, offset: usize) -> u64 {
        self.address.wrapping_add((offset - self.bytes.start) as u64)
    }
}

fn displacement(behind: u64, to: u64) -> Option<[u8; 4]> {
    i32::try_from(to.wrapping_sub(behind) as i64).ok().map(i32::to_le_bytes)
}

/// `jmp rel32`.
fn jump(from: u64, to: u64) -> Option<[u8; JUMP]> {
    let [a, b, c, d] = displacement(from.wrapping_add(JUMP as u64), to)?;
    Some([0xe9, a, b, c, d])
}

/// The code for a site with these bytes at `site_address`, to be at `here`.
fn piece(bytes: &[u8], site: &api_sites::Site, site_address: u64, here: u64) -> Option<Vec<u8>> {
    let before = usize::from(site.before);
    let mut out = bytes.get(..before)?.to_vec();
    let lea_end = here.wrapping_add(out.len() as u64 + 7);
    let keeps = before >= JUMP;
    let next = match keeps {
        // The `syscall` is where it was.
        true => site_address.wrapping_add(before as u64 + 2),
        false => lea_end.wrapping_add((JUMP + SYSCALL.len()) as u64),
    };
    out.extend([0x48, 0x8d, 0x0d]); // lea next(%rip), %rcx
    out.extend(displacement(lea_end, next)?);
    out.extend(jump(lea_end, GATE)?);
    if !keeps {
        out.extend(SYSCALL);
        out.extend(bytes.get(before + SYSCALL.len()..)?);
        let from = here.wrapping_add(out.len() as u64);
        out.extend(jump(from, site_address.wrapping_add(bytes.len() as u64))?);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use api_sites::Site;

    const HERE: u64 = 0xffff_ffff_f010_0000;
    const SITE: u64 = 0xffff_ffff_f001_0000;

    #[test]
    fn a_site_whose_syscall_stays_comes_back_behind_it() {
        let site = Site { offset: 0, before: 5, after: 0, number: 39 };
        let bytes = [0xb8, 39, 0, 0, 0, 0x0f, 0x05];
        let code = piece(&bytes, &site, SITE, HERE).unwrap();
        assert_eq!(code[..8], [0xb8, 39, 0, 0, 0, 0x48, 0x8d, 0x0d]);
        let next = i32::from_le_bytes(code[8..12].try_into().unwrap());
        assert_eq!((HERE + 12).wrapping_add_signed(next.into()), SITE + 7);
        assert_eq!(code[12], 0xe9);
        let gate = i32::from_le_bytes(code[13..17].try_into().unwrap());
        assert_eq!((HERE + 17).wrapping_add_signed(gate.into()), GATE);
        assert_eq!(code.len(), 17);
    }

    #[test]
    fn a_site_whose_syscall_is_overwritten_has_one_of_its_own() {
        let site = Site { offset: 0, before: 2, after: 3, number: 0 };
        let bytes = [0x31, 0xc0, 0x0f, 0x05, 0x48, 0x89, 0xc3];
        let code = piece(&bytes, &site, SITE, HERE).unwrap();
        assert_eq!(code[..2], [0x31, 0xc0]);
        let next = i32::from_le_bytes(code[5..9].try_into().unwrap()) as usize;
        assert_eq!(code[9 + next - 2..9 + next], SYSCALL);
        assert_eq!(code[9 + next..][..4], [0x48, 0x89, 0xc3, 0xe9]);
        let back = i32::from_le_bytes(code[code.len() - 4..].try_into().unwrap());
        assert_eq!((HERE + code.len() as u64).wrapping_add_signed(back.into()), SITE + 7);
    }

    #[test]
    fn what_is_not_a_linked_program_is_refused() {
        assert!(connect(&mut []).is_err());
        let mut own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(connect(&mut own).unwrap_err(), "it has no section .text.unilith");
    }
}
