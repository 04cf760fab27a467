// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an image is made of: bytes by micro-library and by function, from its symbols.

use crate::{Result, StaticError};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SectionFlags, SectionKind, SymbolKind};
use std::collections::BTreeMap;

/// The program and its C library, which the linker puts below the kernel.
const PROGRAM: &str = "(program)";
/// Code of assembly files, which no crate's name is in.
const ASSEMBLY: &str = "(assembly)";
/// Constants without a name: strings, tables of functions.
const UNNAMED: &str = "(unnamed constants)";
/// Below are addresses of programs, on every machine.
const KERNEL: u64 = 0x7000_0000_0000;

/// Something that has a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The crate, or a word in parentheses.
    pub library: String,
    pub name: String,
    pub bytes: u64,
}

/// An image's bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// All that is loaded from the file.
    pub total: u64,
    /// Largest first.
    pub items: Vec<Item>,
}

impl Size {
    /// Of an ELF file with symbols.
    pub fn of(image: &[u8]) -> Result<Size> {
        let file = object::File::parse(image).map_err(|e| StaticError::new(e.to_string()))?;
        let mut found: BTreeMap<(String, String), u64> = BTreeMap::new();
        let mut total = 0;
        for section in file.sections() {
            let SectionFlags::Elf { sh_flags } = section.flags() else { continue };
            let is_loaded = sh_flags & u64::from(object::elf::SHF_ALLOC) != 0;
            if !is_loaded || section.kind() == SectionKind::UninitializedData {
                continue;
            }
            total += section.size();
            let named = named(&file, section.index(), section.address() < KERNEL, &mut found);
            let rest = section.size().saturating_sub(named);
            let library = if section.address() < KERNEL { PROGRAM } else { UNNAMED };
            let name = section.name().unwrap_or_default();
            *found.entry((library.into(), format!("rest of {name}"))).or_default() += rest;
        }
        let mut items: Vec<Item> =
            found.into_iter().map(|((library, name), bytes)| Item { library, name, bytes }).collect();
        items.retain(|item| item.bytes > 0);
        items.sort_by_key(|item| std::cmp::Reverse(item.bytes));
        Ok(Size { total, items })
    }

    /// Bytes by library, largest first.
    pub fn libraries(&self) -> Vec<(String, u64)> {
        let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
        for item in &self.items {
            *sums.entry(&item.library).or_default() += item.bytes;
        }
        let mut sums: Vec<(String, u64)> = sums.into_iter().map(|(l, b)| (l.into(), b)).collect();
        sums.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        sums
    }
}

/// Counts the symbols of a section; the bytes that have a name.
fn named(
    file: &object::File<'_>,
    section: object::SectionIndex,
    is_program: bool,
    found: &mut BTreeMap<(String, String), u64>,
) -> u64 {
    let mut symbols: Vec<(u64, u64, &str)> = file
        .symbols()
        .filter(|s| s.section_index() == Some(section) && s.size() > 0)
        .filter(|s| matches!(s.kind(), SymbolKind::Text | SymbolKind::Data | SymbolKind::Unknown))
        .map(|s| (s.address(), s.size(), s.name().unwrap_or_default()))
        .collect();
    symbols.sort_unstable();
    let (mut end, mut sum) = (0, 0);
    for (address, size, name) in symbols {
        // Two names of one thing count once.
        let bytes = (address + size).saturating_sub(address.max(end));
        end = end.max(address + size);
        if bytes == 0 {
            continue;
        }
        sum += bytes;
        let name = format!("{:#}", rustc_demangle::demangle(name));
        let library = if is_program { PROGRAM.into() } else { library(&name) };
        *found.entry((library, name)).or_default() += bytes;
    }
    sum
}

/// The crate in a demangled name: `tcpip::tcp::output`, `<tcpip::Net as posix::…>::poll`.
fn library(name: &str) -> String {
    let start = name.trim_start_matches(['<', '&', '(', '*']);
    let start = start.strip_prefix("dyn ").or(start.strip_prefix("mut ")).unwrap_or(start);
    match start.split_once("::") {
        Some((library, _)) if library.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') => {
            library.into()
        }
        _ => ASSEMBLY.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_belongs_to_the_crate_that_its_name_begins_with() {
        assert_eq!(library("tcpip::tcp::output::send"), "tcpip");
        assert_eq!(library("<tcpip::Net as posix::Poll>::poll"), "tcpip");
        assert_eq!(library("unilith_leave"), ASSEMBLY);
    }

    #[test]
    fn all_bytes_of_an_image_are_somebodys_and_count_once() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let size = Size::of(&own).unwrap();
        assert_eq!(size.items.iter().map(|item| item.bytes).sum::<u64>(), size.total);
        assert_eq!(size.libraries().iter().map(|(_, bytes)| bytes).sum::<u64>(), size.total);
        assert!(Size::of(b"no image").is_err());
    }
}
