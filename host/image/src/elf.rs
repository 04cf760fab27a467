// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the gatherer must know of an ELF file: whether a machine can run it, and what it needs (System V gABI 4.1,
//! "Object Files" and "Dynamic Linking"; x86-64 psABI).

use crate::error::{Result, fail};
use object::{
    Endianness, elf,
    read::elf::{Dyn, ElfFile64, FileHeader, ProgramHeader, Sym},
};

/// The program's half of the address space.
const USER_END: u64 = 1 << 47;
/// Where a program that is linked into Linux has its text (UKL_TEXT_START and UKL_TEXT_END of the kernel series).
const LINKED_TEXT: u64 = 0xffff_ffff_f000_0000;
const LINKED_TEXT_END: u64 = 0xffff_ffff_ff00_0000;

/// A checked ELF file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Elf {
    /// PT_INTERP.
    pub interpreter: Option<String>,
    /// DT_NEEDED, in order.
    pub needed: Vec<String>,
    /// DT_RPATH; counts only where there is no DT_RUNPATH (ld.so(8)).
    pub rpath: Option<String>,
    pub runpath: Option<String>,
    /// Names of undefined dynamic symbols.
    pub imports: Vec<String>,
    /// ET_DYN without interpreter and without DF_1_PIE.
    pub library: bool,
}

type File<'a> = ElfFile64<'a, Endianness>;

pub(crate) fn is_elf(bytes: &[u8]) -> bool {
    bytes.starts_with(&elf::ELFMAG)
}

/// The interpreter line of a script: program and at most one argument (execve(2), "Interpreter scripts").
pub(crate) fn script(bytes: &[u8]) -> Option<(String, Option<String>)> {
    let line = bytes.strip_prefix(b"#!")?.split(|b| *b == b'\n').next()?;
    let line = std::str::from_utf8(line.get(..line.len().min(254))?).ok()?.trim();
    let (program, rest) = line.split_once([' ', '\t']).unwrap_or((line, ""));
    let argument = Some(rest.trim()).filter(|r| !r.is_empty()).map(str::to_string);
    (!program.is_empty()).then(|| (program.to_string(), argument))
}

/// Checks a file that is to be run; `name` is for messages.
pub(crate) fn program(bytes: &[u8], name: &str) -> Result<Elf> {
    let elf = parse(bytes, name)?;
    if elf.library {
        fail!(NotRunnable, "{name}: a shared library, not a program");
    }
    Ok(elf)
}

/// Checks a program or a library.
pub(crate) fn parse(bytes: &[u8], name: &str) -> Result<Elf> {
    if bytes.is_empty() {
        fail!(NotRunnable, "{name}: an empty file, not a program");
    }
    if let Some((interpreter, _)) = script(bytes) {
        fail!(
            NotRunnable,
            "{name}: a script for {interpreter}; put it and its interpreter in a directory or image and run that"
        );
    }
    if !is_elf(bytes) {
        let text = bytes.iter().take(512).all(|b| matches!(b, b'\t'..=b'\r' | b' '..=b'~' | 0x80..));
        fail!(
            NotRunnable,
            "{name}: {}, not a program (ELF file)",
            if text { "a text file" } else { "a data file" }
        );
    }
    match bytes.get(4) {
        Some(&elf::ELFCLASS64) => {}
        Some(&elf::ELFCLASS32) => {
            fail!(NotRunnable, "{name}: a 32-bit program; only 64-bit x86 programs run (compile with -m64)")
        }
        _ => fail!(Corrupt, "{name}: a damaged ELF file: unknown class"),
    }
    if bytes.get(5) == Some(&elf::ELFDATA2MSB) {
        fail!(NotRunnable, "{name}: a program for a big-endian machine; only x86-64 programs run");
    }
    // The fixed part of the header is read by hand first: for other machines it says more than a parser's error.
    let Some(machine) = bytes.get(18..20).map(|b| u16::from_le_bytes([b[0], b[1]])) else {
        fail!(Corrupt, "{name}: a truncated ELF file: {} bytes", bytes.len());
    };
    if machine != elf::EM_X86_64 {
        let architecture = match machine {
            elf::EM_AARCH64 => "64-bit ARM".to_string(),
            elf::EM_RISCV => "RISC-V".to_string(),
            elf::EM_PPC64 => "PowerPC".to_string(),
            elf::EM_S390 => "IBM z".to_string(),
            elf::EM_386 => "32-bit x86".to_string(),
            other => format!("machine number {other}"),
        };
        fail!(NotRunnable, "{name}: a program for {architecture}; only x86-64 programs run");
    }
    let kind = u16::from_le_bytes([bytes[16], bytes[17]]);
    match kind {
        elf::ET_EXEC | elf::ET_DYN => {}
        elf::ET_REL => fail!(NotRunnable, "{name}: an object file; link it into a program first"),
        elf::ET_CORE => fail!(NotRunnable, "{name}: a core dump, not a program"),
        _ => fail!(Corrupt, "{name}: a damaged ELF file: type {kind}"),
    }
    match read(bytes, kind) {
        Ok(elf) => Ok(elf),
        Err(why) => fail!(Corrupt, "{name}: a damaged ELF file: {why}"),
    }
}

/// Bounds of what is believed: more program headers or names than any real file has are damage.
const MAX_SEGMENTS: usize = 1024;
const MAX_NEEDED: usize = 4096;

fn read(bytes: &[u8], kind: u16) -> std::result::Result<Elf, String> {
    let header = elf::FileHeader64::<Endianness>::parse(bytes).map_err(|e| e.to_string())?;
    let endian = header.endian().map_err(|e| e.to_string())?;
    let segments = header.program_headers(endian, bytes).map_err(|e| e.to_string())?;
    if segments.len() > MAX_SEGMENTS {
        return Err(format!("{} program headers", segments.len()));
    }
    let mut out = Elf::default();
    let mut entry_is_code = false;
    let mut loads = 0;
    let entry = header.e_entry(endian);
    for s in segments {
        let (offset, size) = s.file_range(endian);
        let end = offset.checked_add(size).ok_or("a segment beyond any file")?;
        match s.p_type(endian) {
            elf::PT_LOAD => {
                loads += 1;
                let (start, length) = (s.p_vaddr(endian), s.p_memsz(endian));
                if end > bytes.len() as u64 {
                    return Err(format!("truncated: {} bytes, its segments need {end}", bytes.len()));
                }
                if length < size {
                    return Err("a segment smaller in memory than in the file".into());
                }
                // Text of a program that is linked into Linux is where the kernel's is (`unilith linux cc`).
                let space = if start >= LINKED_TEXT { LINKED_TEXT_END } else { USER_END };
                if start.checked_add(length).is_none_or(|end| end > space) {
                    return Err("a segment outside the address space of programs".into());
                }
                if start % 4096 != offset % 4096 {
                    return Err("a segment whose offset and address do not agree".into());
                }
                entry_is_code |=
                    s.p_flags(endian) & elf::PF_X != 0 && (start..start + length).contains(&entry);
            }
            elf::PT_INTERP => {
                let path =
                    bytes.get(offset as usize..end as usize).ok_or("the interpreter's name is cut off")?;
                let path = path.split(|b| *b == 0).next().unwrap_or(path);
                let path = std::str::from_utf8(path).ok().filter(|p| p.starts_with('/'));
                out.interpreter = Some(path.ok_or("the interpreter is no absolute path")?.to_string());
            }
            _ => {}
        }
    }
    if loads == 0 {
        return Err("no segment to load".into());
    }
    let mut pie = false;
    dynamic(bytes, &mut out, &mut pie)?;
    out.library = kind == elf::ET_DYN && out.interpreter.is_none() && !pie;
    if !out.library && !entry_is_code {
        return Err(format!("its entry point {entry:#x} is not in its code"));
    }
    Ok(out)
}

fn dynamic(bytes: &[u8], out: &mut Elf, pie: &mut bool) -> std::result::Result<(), String> {
    let header = elf::FileHeader64::<Endianness>::parse(bytes).map_err(|e| e.to_string())?;
    let endian = header.endian().map_err(|e| e.to_string())?;
    let segments = header.program_headers(endian, bytes).map_err(|e| e.to_string())?;
    let Some(table) = segments.iter().find_map(|s| s.dynamic(endian, bytes).transpose()) else {
        return Ok(());
    };
    let table = table.map_err(|e| e.to_string())?;
    let (mut strings_at, mut strings_size) = (0, 0);
    for d in table {
        match d.tag32(endian) {
            Some(elf::DT_NULL) => break,
            Some(elf::DT_STRTAB) => strings_at = d.d_val(endian),
            Some(elf::DT_STRSZ) => strings_size = d.d_val(endian),
            Some(elf::DT_FLAGS_1) => *pie = d.d_val(endian) & u64::from(elf::DF_1_PIE) != 0,
            _ => {}
        }
    }
    let strings = segments
        .iter()
        .find_map(|s| s.data_range(endian, bytes, strings_at, strings_size).ok().flatten())
        .unwrap_or_default();
    let text = |at: u64| {
        let tail =
            usize::try_from(at).ok().and_then(|at| strings.get(at..)).ok_or("a name outside its table")?;
        let name = tail.split(|b| *b == 0).next().unwrap_or(tail);
        std::str::from_utf8(name).map(str::to_string).map_err(|_| "a name that is not UTF-8")
    };
    for d in table {
        let value = d.d_val(endian);
        match d.tag32(endian) {
            Some(elf::DT_NULL) => break,
            Some(elf::DT_NEEDED) if out.needed.len() < MAX_NEEDED => out.needed.push(text(value)?),
            Some(elf::DT_RPATH) => out.rpath = Some(text(value)?),
            Some(elf::DT_RUNPATH) => out.runpath = Some(text(value)?),
            _ => {}
        }
    }
    // Section headers may be stripped; then imports stay unknown, which only costs the guess at dlopened libraries.
    if let Ok(file) = File::parse(bytes) {
        let symbols = file.elf_dynamic_symbol_table();
        for symbol in symbols.iter().filter(|s| s.is_undefined(endian)) {
            if let Ok(name) = symbols.symbol_name(endian, symbol)
                && let Ok(name) = std::str::from_utf8(name)
                && !name.is_empty()
            {
                out.imports.push(name.to_string());
            }
        }
    }
    Ok(())
}
