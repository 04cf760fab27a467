// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's side of a link: its functions by name, and how a program says which kernel it was linked to.

use crate::{LinuxError, Result};
use object::{Endianness, Object, ObjectSymbol, elf, read::elf::ElfFile64};
use std::{collections::HashMap, fmt::Write, fs, path::Path};

/// How undefined symbols of a program name the kernel's (linux/link/include/unilith/kernel.h).
pub const PREFIX: &str = "linux.";
/// The owner and type of the note that holds the kernel's build identifier.
const NOTE: (&[u8], u32) = (b"Unilith", 1);
/// Where text of programs can be: UKL_TEXT_START and UKL_TEXT_END of the series.
const TEXT: std::ops::Range<u64> = 0xffff_ffff_f000_0000..0xffff_ffff_ff00_0000;

/// What a file says about being linked into the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Linked {
    No,
    /// To any kernel of the series: it calls none of the kernel's functions.
    Any,
    /// To the kernel with this build identifier.
    To(Vec<u8>),
}

/// Reads it from a program; what is no such program is not linked.
pub fn linked(program: &[u8]) -> Linked {
    let Ok(file) = ElfFile64::<Endianness>::parse(program) else { return Linked::No };
    use object::read::elf::ProgramHeader;
    let endian = file.endian();
    let headers = file.elf_program_headers();
    if !headers.iter().any(|h| h.p_type(endian) == elf::PT_LOAD && TEXT.contains(&h.p_vaddr(endian))) {
        return Linked::No;
    }
    let (owner, kind) = NOTE;
    note(&file, owner, kind).map_or(Linked::Any, Linked::To)
}

fn note(file: &ElfFile64<'_, Endianness>, owner: &[u8], kind: u32) -> Option<Vec<u8>> {
    use object::read::elf::ProgramHeader;
    let endian = file.endian();
    for header in file.elf_program_headers() {
        let Ok(Some(mut notes)) = header.notes(endian, file.data()) else { continue };
        while let Ok(Some(note)) = notes.next() {
            if note.name() == owner && note.n_type(endian) == kind {
                return Some(note.desc().to_vec());
            }
        }
    }
    None
}

/// The kernel's own identifier.
pub fn build_id(vmlinux: &Path) -> Result<Vec<u8>> {
    let bytes = fs::read(vmlinux).map_err(|e| LinuxError::io("read", vmlinux, &e))?;
    let file = parse(&bytes, vmlinux)?;
    note(&file, b"GNU", elf::NT_GNU_BUILD_ID)
        .ok_or_else(|| LinuxError::new(format!("{}: no build identifier", vmlinux.display())))
}

fn parse<'a>(bytes: &'a [u8], path: &Path) -> Result<ElfFile64<'a, Endianness>> {
    ElfFile64::parse(bytes).map_err(|e| LinuxError::new(format!("{}: {e}", path.display())))
}

/// Assembly text that defines the wanted symbols and the note for this kernel; an error names what it does not have.
pub fn definitions(vmlinux: &Path, wanted: &[String]) -> Result<String> {
    let bytes = fs::read(vmlinux).map_err(|e| LinuxError::io("read", vmlinux, &e))?;
    let file = parse(&bytes, vmlinux)?;
    let mut symbols: HashMap<&str, u64> = HashMap::new();
    for symbol in file.symbols().filter(|s| s.is_definition()) {
        if let Ok(name) = symbol.name() {
            symbols.insert(name, symbol.address());
        }
    }
    let name = |symbol: &String| symbol.strip_prefix(PREFIX).unwrap_or(symbol).to_string();
    let missing: Vec<_> = wanted.iter().map(name).filter(|n| !symbols.contains_key(n.as_str())).collect();
    if !missing.is_empty() {
        return Err(LinuxError::new(format!(
            "the kernel has no {}: it may be inlined or not configured; `nm {}` lists what there is",
            missing.join(", "),
            vmlinux.display()
        )));
    }
    let id = build_id(vmlinux)?;
    let (owner, kind) = NOTE;
    let mut text = String::from("\t.section .note.unilith, \"a\", @note\n");
    // The formatter writes to a string, which cannot fail.
    let _ = writeln!(
        text,
        "\t.long {}, {}, {kind}\n\t.asciz \"{}\"",
        owner.len() + 1,
        id.len(),
        owner.escape_ascii()
    );
    for byte in id {
        let _ = writeln!(text, "\t.byte {byte}");
    }
    text.push_str("\t.balign 4\n\t.section .note.GNU-stack, \"\", @progbits\n");
    for symbol in wanted {
        let address = symbols[name(symbol).as_str()];
        let _ = writeln!(text, "\t.globl {symbol}\n\t.set {symbol}, {address:#x}");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_program_is_not_linked_and_neither_is_damage() {
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(linked(&own), Linked::No);
        assert_eq!(linked(&own[..100]), Linked::No);
        assert_eq!(linked(b""), Linked::No);
    }
}
