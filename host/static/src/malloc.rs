// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A program's allocator as one object that takes the place of the C library's (`micro/libc/malloc`).

use crate::{Result, StaticError, Workshop, command, image::exported, kernel::USELESS, read, run, write};
use object::{
    Endianness, elf,
    read::elf::{ElfFile64, Rela as _, SectionHeader as _},
};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

/// What decides what becomes of the library: an object that is kept was made by this.
pub const RECIPE: &str = include_str!("malloc.rs");

/// The functions of musl that it takes the place of, all at once: a block of one is none of another.
const FUNCTIONS: [&str; 11] = [
    "malloc",
    "calloc",
    "free",
    "realloc",
    "reallocarray",
    "posix_memalign",
    "aligned_alloc",
    "memalign",
    "valloc",
    "pvalloc",
    "malloc_usable_size",
];

/// An allocator to link a program with.
#[derive(Clone, Debug)]
pub struct Malloc<'a> {
    /// As `--set alloc.program` has it.
    pub name: &'a str,
    /// What [`Workshop::malloc_object`] made.
    pub object: PathBuf,
}

impl Workshop {
    /// Makes the object of the library that was built. Its other names are its own.
    pub fn malloc_object(&self, library: &Path, to: &Path) -> Result<()> {
        let all = to.with_extension("all");
        let mut together = command("ld");
        together.args(FUNCTIONS.iter().flat_map(|name| ["-u", name]));
        run("putting the allocator together", together.args(["-r", "-o"]).arg(&all).arg(library))?;
        let mut localize = command("objcopy");
        localize.args(FUNCTIONS.map(|name| format!("--keep-global-symbol={name}"))).arg("--strip-debug");
        localize.args(USELESS.map(|name| format!("--remove-section={name}")));
        run("hiding the allocator's names", localize.arg(&all).arg(to))?;
        std::fs::remove_file(&all).map_err(|e| StaticError::io("remove", &all, &e))?;
        let mut object = read(to)?;
        relax(&mut object).map_err(|e| StaticError::new(format!("the allocator's object: {e}")))?;
        write(to, object)
    }
}

/// Lets the linker call functions of the C library without a table of their addresses (System V ABI for x86-64, B.2, "Optimize
/// GOTPCRELX Relocations"): the table of a linked image is the kernel's, out of the program's reach. Rust's compiler writes
/// relocations of the older kind, which forbid that.
fn relax(object: &mut [u8]) -> object::Result<()> {
    const CALL_OR_JUMP: [[u8; 2]; 2] = [[0xff, 0x15], [0xff, 0x25]];
    const MOVE: u8 = 0x8b;
    let mut changes = Vec::new();
    {
        let file = ElfFile64::<Endianness>::parse(&*object)?;
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
                    let place =
                        section.sh_offset(endian) as usize + index * size_of::<elf::Rela64<Endianness>>();
                    changes.push((place + RELOCATION_TYPE, kind));
                }
            }
        }
    }
    for (place, kind) in changes {
        // The place is in a table that was just read.
        object[place..place + 4].copy_from_slice(&kind.to_le_bytes());
    }
    Ok(())
}

/// Where an `Elf64_Rela` has its type: the lower half of `r_info`.
const RELOCATION_TYPE: usize = 8;

impl Malloc<'_> {
    /// Refuses a program that brings an allocator of its own: one of the two would be in the image for nothing, or blocks of one
    /// would be given to the other.
    pub(crate) fn check(&self, program: &[u8]) -> Result<()> {
        let own: BTreeSet<String> = exported(program)?;
        let twice: Vec<&str> = FUNCTIONS.iter().copied().filter(|name| own.contains(*name)).collect();
        if twice.is_empty() {
            return Ok(());
        }
        Err(StaticError::new(format!(
            "alloc.program={}: the program brings an allocator of its own ({}); leave out --set alloc.program, or build the program \
             with the C library's (of Redis: make MALLOC=libc)",
            self.name,
            twice.join(", ")
        )))
    }
}
