// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A kernel without a table of addresses (GOT). A link has one such table, and it has to be near the code that reads it: glibc's
//! does, and the program lies low, the kernel high. So the kernel's calls and loads by the table become direct ones, and for
//! what compares or adds an address in memory there is a constant of its own.

use crate::{Result, StaticError};
use object::{
    LittleEndian, elf,
    pod::{bytes_of, slice_from_all_bytes},
};
use std::collections::BTreeMap;

type Header = elf::SectionHeader64<LittleEndian>;
type Rela = elf::Rela64<LittleEndian>;
type Sym = elf::Sym64<LittleEndian>;
const LE: LittleEndian = LittleEndian;

/// Rewrites a relocatable object.
pub(crate) fn without_table(object: &[u8]) -> Result<Vec<u8>> {
    rewritten(object).ok_or_else(|| StaticError::new("the kernel that was built: its tables cannot be read"))
}

/// The contents of a section.
fn contents<'a>(object: &'a [u8], header: &Header) -> Option<&'a [u8]> {
    let start = header.sh_offset.get(LE) as usize;
    object.get(start..start.checked_add(header.sh_size.get(LE) as usize)?)
}

fn all<T: object::pod::Pod + Copy>(bytes: &[u8]) -> Option<Vec<T>> {
    // A copy of its own is aligned; nothing has no alignment.
    let copy = bytes.to_vec();
    if copy.is_empty() { Some(Vec::new()) } else { Some(slice_from_all_bytes::<T>(&copy).ok()?.to_vec()) }
}

fn rewritten(object: &[u8]) -> Option<Vec<u8>> {
    let mut out = object.to_vec();
    let table = u64::from_le_bytes(object.get(40..48)?.try_into().ok()?) as usize;
    let mut count = usize::from(u16::from_le_bytes(object.get(60..62)?.try_into().ok()?));
    if count == 0 {
        // So many that the first header says it.
        let first: Vec<Header> = all(object.get(table..table + size_of::<Header>())?)?;
        count = first.first()?.sh_size.get(LE) as usize;
    }
    let mut headers: Vec<Header> = all(object.get(table..table.checked_add(count * size_of::<Header>())?)?)?;
    let symbols = headers.iter().position(|h| h.sh_type.get(LE) == elf::SHT_SYMTAB)?;
    let names = headers[symbols].sh_link.get(LE) as usize;
    let mut symbol_table = contents(object, &headers[symbols])?.to_vec();
    let mut strings = contents(object, headers.get(names)?)?.to_vec();
    let section_names =
        headers.iter().position(|h| h.sh_type.get(LE) == elf::SHT_STRTAB && has_name(object, h))?;
    let mut titles = contents(object, &headers[section_names])?.to_vec();
    // What holds an address: by symbol, the symbol of the constant.
    let mut slots: BTreeMap<u32, u32> = BTreeMap::new();
    let mut added: Vec<(Header, Vec<u8>)> = Vec::new();
    for index in 0..count {
        let header = headers[index];
        if header.sh_type.get(LE) != elf::SHT_RELA {
            continue;
        }
        let code = *headers.get(header.sh_info.get(LE) as usize)?;
        let mut entries: Vec<Rela> = all(contents(object, &header)?)?;
        let mut is_changed = false;
        for entry in &mut entries {
            let info = entry.r_info.get(LE);
            if ![elf::R_X86_64_GOTPCREL, elf::R_X86_64_GOTPCRELX, elf::R_X86_64_REX_GOTPCRELX]
                .contains(&(info as u32))
            {
                continue;
            }
            is_changed = true;
            let symbol = (info >> 32) as u32;
            let place = code.sh_offset.get(LE) as usize + entry.r_offset.get(LE) as usize;
            let (symbol, earlier) = match direct(out.get_mut(place.checked_sub(3)?..place + 4)?) {
                Some(earlier) => (symbol, earlier),
                None => {
                    let number = slots.len();
                    let slot = *slots.entry(symbol).or_insert_with(|| {
                        let next = (symbol_table.len() / size_of::<Sym>()) as u32;
                        let section = count + added.len();
                        symbol_table
                            .extend_from_slice(bytes_of(&defined(strings.len() as u32, section as u16)));
                        strings.extend(format!("unilith_address_{number}\0").bytes());
                        added.extend(slot_sections(symbol, section, symbols, titles.len() as u32));
                        titles.extend(b".rodata.unilith_address\0.rela.rodata.unilith_address\0");
                        next
                    });
                    (slot, 0)
                }
            };
            entry.r_offset.set(LE, entry.r_offset.get(LE) - earlier);
            entry.r_info.set(LE, u64::from(symbol) << 32 | u64::from(elf::R_X86_64_PC32));
        }
        if is_changed {
            let start = header.sh_offset.get(LE) as usize;
            let bytes: Vec<u8> = entries.iter().flat_map(|entry| bytes_of(entry).to_vec()).collect();
            out.get_mut(start..start + bytes.len())?.copy_from_slice(&bytes);
        }
    }
    // A symbol's section has 16 bits; where there are more sections their numbers are elsewhere.
    if count + added.len() >= usize::from(elf::SHN_LORESERVE) {
        return None;
    }
    let mut put = |header: &mut Header, bytes: &[u8]| {
        out.resize(out.len().next_multiple_of(8), 0);
        header.sh_offset.set(LE, out.len() as u64);
        header.sh_size.set(LE, bytes.len() as u64);
        out.extend_from_slice(bytes);
    };
    put(&mut headers[symbols], &symbol_table);
    put(&mut headers[names], &strings);
    if section_names != names {
        put(&mut headers[section_names], &titles);
    }
    for (mut header, bytes) in added {
        put(&mut header, &bytes);
        headers.push(header);
    }
    out.resize(out.len().next_multiple_of(8), 0);
    let (table, count) = (out.len() as u64, headers.len() as u16);
    out.extend(headers.iter().flat_map(|header| bytes_of(header).to_vec()));
    out[40..48].copy_from_slice(&table.to_le_bytes());
    out[60..62].copy_from_slice(&count.to_le_bytes());
    Some(out)
}

/// Whether a table of strings has the names of sections.
fn has_name(object: &[u8], header: &Header) -> bool {
    let name = b"\0.shstrtab\0";
    contents(object, header).is_some_and(|bytes| bytes.windows(name.len()).any(|w| w == name))
}

/// Makes an instruction that reads an address of the table use the address itself; `bytes` end with its displacement. How far before
/// its old place the displacement is then; `None`: it does something else with the address.
fn direct(bytes: &mut [u8]) -> Option<u64> {
    match *bytes {
        // call *x(%rip): addr32 call x
        [_, 0xff, 0x15, ..] => {
            bytes[1..3].copy_from_slice(&[0x67, 0xe8]);
            Some(0)
        }
        // jmp *x(%rip): jmp x; nop
        [_, 0xff, 0x25, ..] => {
            bytes[1..].copy_from_slice(&[0xe9, 0, 0, 0, 0, 0x90]);
            Some(1)
        }
        // mov x(%rip), %reg: lea x(%rip), %reg
        [rex, 0x8b, mode, ..] if rex & 0xf8 == 0x48 && mode & 0xc7 == 0x05 => {
            bytes[1] = 0x8d;
            Some(0)
        }
        _ => None,
    }
}

/// A hidden global symbol at the beginning of a section.
fn defined(name: u32, section: u16) -> Sym {
    Sym {
        st_name: object::U32::new(LE, name),
        st_info: elf::STB_GLOBAL << 4 | elf::STT_OBJECT,
        st_other: elf::STV_HIDDEN,
        st_shndx: object::U16::new(LE, section),
        st_value: object::U64::new(LE, 0),
        st_size: object::U64::new(LE, 8),
    }
}

/// A section with the address of a symbol, and its relocation.
fn slot_sections(symbol: u32, section: usize, symbols: usize, titles: u32) -> [(Header, Vec<u8>); 2] {
    const TITLE: u32 = ".rodata.unilith_address\0".len() as u32;
    let header = |name: u32, kind: u32, flags: u64, link: usize, info: usize, entry: u64| Header {
        sh_name: object::U32::new(LE, name),
        sh_type: object::U32::new(LE, kind),
        sh_flags: object::U64::new(LE, flags),
        sh_addr: object::U64::new(LE, 0),
        sh_offset: object::U64::new(LE, 0),
        sh_size: object::U64::new(LE, 0),
        sh_link: object::U32::new(LE, link as u32),
        sh_info: object::U32::new(LE, info as u32),
        sh_addralign: object::U64::new(LE, 8),
        sh_entsize: object::U64::new(LE, entry),
    };
    let address = Rela {
        r_offset: object::U64::new(LE, 0),
        r_info: object::U64::new(LE, u64::from(symbol) << 32 | u64::from(elf::R_X86_64_64)),
        r_addend: object::I64::new(LE, 0),
    };
    let flags = u64::from(elf::SHF_ALLOC);
    [
        (header(titles, elf::SHT_PROGBITS, flags, 0, 0, 0), vec![0; 8]),
        (
            header(
                titles + TITLE,
                elf::SHT_RELA,
                u64::from(elf::SHF_INFO_LINK),
                symbols,
                section,
                size_of::<Rela>() as u64,
            ),
            bytes_of(&address).to_vec(),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use object::{Object as _, ObjectSection as _};
    use std::process::Command;

    #[test]
    fn what_reads_the_table_is_made_direct_or_gets_a_constant_and_does_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let gcc = |words: &[&str]| {
            let ran = Command::new("gcc").current_dir(folder.path()).args(words).output().unwrap();
            assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        };
        let text = "
            .globl calls, jumps, loads, compares
            calls: sub $8,%rsp; call *target@GOTPCREL(%rip); add $8,%rsp; ret
            jumps: jmp *target@GOTPCREL(%rip)
            loads: mov variable@GOTPCREL(%rip),%r9; mov (%r9),%eax; ret
            compares: xor %eax,%eax; cmp variable@GOTPCREL(%rip),%rdi; sete %al; ret
            .section .note.GNU-stack,\"\",@progbits\n";
        let main = "int variable = 5; int target(void) { return 7; } int calls(void), jumps(void), loads(void), compares(int *);
            int main(void) { return calls() * 100 + jumps() * 10 + loads() + compares(&variable) * 2 + compares(0) * 50 - 700; }";
        std::fs::write(path("reads.s"), text).unwrap();
        std::fs::write(path("main.c"), main).unwrap();
        // The assembler's own relaxation is not wanted: these are the relocations that Rust's compiler writes.
        gcc(&["-c", "-Wa,-mrelax-relocations=no", "reads.s"]);
        let changed = without_table(&std::fs::read(path("reads.o")).unwrap()).unwrap();
        let file = object::File::parse(&changed[..]).unwrap();
        let kinds: Vec<String> = file
            .sections()
            .flat_map(|s| s.relocations().map(|(_, r)| format!("{:?}", r.flags())).collect::<Vec<_>>())
            .collect();
        for kind in [elf::R_X86_64_GOTPCREL, elf::R_X86_64_GOTPCRELX, elf::R_X86_64_REX_GOTPCRELX] {
            assert!(!kinds.iter().any(|said| said.contains(&format!("r_type: {kind} "))), "{kinds:?}");
        }
        std::fs::write(path("reads.o"), changed).unwrap();
        gcc(&["-fno-pie", "-no-pie", "-o", "program", "main.c", "reads.o"]);
        let ran = Command::new(path("program")).status().unwrap();
        assert_eq!(ran.code(), Some(70 + 5 + 2), "{ran}");
    }
}
