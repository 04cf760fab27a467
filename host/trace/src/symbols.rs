// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Addresses of names in the running machine: the files that are mapped there, their symbols, and where they are.

use crate::Script;
use crate::language::Variable;
use api_probes::{Attachment, Kind, Package, Plan};
use object::{
    Object, ObjectSection, ObjectSegment, ObjectSymbol, SectionKind, SegmentFlags, SymbolFlags, SymbolKind,
    elf,
};
use std::collections::BTreeMap;
use unilith_rewrite::probe::Prober;

/// A file that is mapped, or the kernel.
pub struct Module {
    pub path: String,
    pub elf: Vec<u8>,
    /// What is added to the file's own addresses.
    pub bias: u64,
}

/// One executable mapping of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub start: u64,
    pub offset: u64,
    pub path: String,
}

/// The executable mappings of files in the text of `/proc/PID/maps`.
pub fn mappings(maps: &str) -> Vec<Mapping> {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let (range, rights, offset) = (words.next()?, words.next()?, words.next()?);
        let path = words.nth(2)?;
        if !rights.contains('x') || !path.starts_with('/') {
            return None;
        }
        let start = u64::from_str_radix(range.split_once('-')?.0, 16).ok()?;
        Some(Mapping { start, offset: u64::from_str_radix(offset, 16).ok()?, path: path.into() })
    };
    maps.lines().filter_map(line).collect()
}

/// The modules of the machine; `read` gives a file of it.
pub fn modules(maps: &str, read: &mut dyn FnMut(&str) -> Option<Vec<u8>>) -> Vec<Module> {
    let mut out: Vec<Module> = Vec::new();
    for mapping in mappings(maps) {
        if out.iter().any(|m| m.path == mapping.path) {
            continue;
        }
        let Some(elf) = read(&mapping.path) else { continue };
        if let Some(bias) = bias(&elf, &mapping) {
            out.push(Module { path: mapping.path, elf, bias });
        }
    }
    out
}

fn bias(elf: &[u8], mapping: &Mapping) -> Option<u64> {
    let file = object::File::parse(elf).ok()?;
    let holds = |(offset, size): (u64, u64)| {
        offset & !0xfff <= mapping.offset && mapping.offset < offset.saturating_add(size)
    };
    // Segments may share a page of the file.
    let code = |flags| matches!(flags, SegmentFlags::Elf { p_flags } if p_flags & elf::PF_X != 0);
    let segment = file.segments().find(|s| code(s.flags()) && holds(s.file_range()))?;
    let address = segment.address().wrapping_sub(segment.file_range().0).wrapping_add(mapping.offset);
    Some(mapping.start.wrapping_sub(address))
}

/// A function by its name.
struct Function<'a> {
    module: &'a Module,
    /// The file's own address.
    address: u64,
}

fn demangled(name: &str) -> String {
    format!("{:#}", rustc_demangle::demangle(name))
}

/// The names of functions with code of their own, each once; not those that a line of the language cannot name.
pub fn functions(modules: &[Module]) -> Vec<String> {
    let mut names = std::collections::BTreeSet::new();
    for module in modules {
        let Ok(file) = object::File::parse(&*module.elf) else { continue };
        for symbol in file.symbols().chain(file.dynamic_symbols()) {
            let Ok(name) = symbol.name() else { continue };
            // Versions are not part of the name.
            let name = name.split('@').next().unwrap_or(name);
            let is_word = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            let is_function = symbol.kind() == SymbolKind::Text && symbol.size() > 0;
            if is_function && is_word && !symbol.is_undefined() && !is_chosen(&symbol) {
                names.insert(name.to_string());
            }
        }
    }
    names.into_iter().collect()
}

/// The dynamic linker asks it for the function (STT_GNU_IFUNC).
fn is_chosen<'a>(symbol: &impl ObjectSymbol<'a>) -> bool {
    matches!(symbol.flags(), SymbolFlags::Elf { st_info, .. } if st_info & 15 == elf::STT_GNU_IFUNC)
}

/// Looks in the order of the modules, the program first.
fn find<'a>(modules: impl Iterator<Item = &'a Module>, name: &str) -> Result<Function<'a>, String> {
    let mut near = BTreeMap::new();
    let mut searched = Vec::new();
    for module in modules {
        searched.push(module.path.as_str());
        let Ok(file) = object::File::parse(&*module.elf) else { continue };
        let mut found = BTreeMap::new();
        for symbol in file.symbols().chain(file.dynamic_symbols()) {
            let Ok(own) = symbol.name() else { continue };
            if symbol.kind() != SymbolKind::Text || symbol.is_undefined() || symbol.address() == 0 {
                continue;
            }
            // Versions are not part of the name.
            let own = own.split('@').next().unwrap_or(own);
            if own == name || name.contains("::") && demangled(own) == name {
                found.insert(symbol.address(), is_chosen(&symbol));
            } else if near.len() < 5 && is_near(own, name) {
                near.insert(own.to_string(), ());
            }
        }
        match found.len() {
            0 => {}
            1 => {
                let Some((address, indirect)) = found.pop_first() else { continue };
                if indirect {
                    return Err(format!(
                        "{name} is chosen when the program starts (IFUNC): name the one that is used"
                    ));
                }
                return Ok(Function { module, address });
            }
            n => return Err(format!("there are {n} functions {name} in {}", module.path)),
        }
    }
    let near: Vec<String> = near.into_keys().collect();
    let hint = match near.is_empty() {
        true => "symbols are needed: is the program stripped?".to_string(),
        false => format!("there is {}", near.join(", ")),
    };
    let others = match searched.len() {
        0 | 1 => String::new(),
        n => format!(" and {} libraries", n - 1),
    };
    let program = searched.first().unwrap_or(&"the machine, whose files are not known");
    Err(format!("no function {name} in {program}{others}: {hint}"))
}

/// Part of each other, or mistyped.
fn is_near(own: &str, name: &str) -> bool {
    let (own, name) = (own.to_lowercase(), name.to_lowercase());
    own.contains(&name)
        || own.len().abs_diff(name.len()) <= 2 && name.len() > 4 && strsim::levenshtein(&own, &name) <= 2
}

/// Puts each program of a script to where it goes.
pub fn package(script: &Script, modules: &[Module], kernel: Option<&Module>) -> Result<Package, String> {
    let mut package = Package { bundle: script.bundle.encode(), attachments: Vec::new() };
    // Decoding a whole file takes a while: once for each.
    let mut probers: Vec<(*const Module, Prober<'_>)> = Vec::new();
    for place in &script.places {
        let (mut address, mut plan) = (place.interval_ns, Plan::default());
        if place.kind != Kind::Tracepoint {
            let function = match place.name.strip_prefix("kernel:") {
                Some(name) => find(kernel.into_iter(), name)?,
                None => find(modules.iter(), &place.name)?,
            };
            let why = |e| format!("{}: {e}", place.name);
            let own = std::ptr::from_ref(function.module);
            let at = match probers.iter().position(|p| std::ptr::eq(p.0, own)) {
                Some(at) => at,
                None => {
                    probers.push((own, Prober::new(&function.module.elf).map_err(why)?));
                    probers.len() - 1
                }
            };
            let prober = &probers[at].1;
            plan = prober.plan(function.address).map_err(why)?;
            if place.kind == Kind::Return && !place.name.starts_with("kernel:") {
                prober.returns().map_err(why)?;
            }
            address = function.address.wrapping_add(function.module.bias);
        }
        package.attachments.push(Attachment {
            program: place.program as u16,
            kind: place.kind,
            name: place.name.clone(),
            address,
            plan,
        });
    }
    Ok(package)
}

/// A symbol of any kind but of a thread's own variables; `kernel:NAME` is one of the kernel.
fn symbol(modules: &[Module], kernel: Option<&Module>, name: &str) -> Option<Variable> {
    let (modules, name) = match name.strip_prefix("kernel:") {
        Some(name) => (&[][..], name),
        None => (modules, name),
    };
    modules.iter().chain(kernel).find_map(|module| {
        let file = object::File::parse(&*module.elf).ok()?;
        let symbol = file.symbols().chain(file.dynamic_symbols()).find(|s| {
            // Versions are not part of the name.
            let own = s.name().unwrap_or_default().split('@').next() == Some(name);
            own && !s.is_undefined() && s.kind() != SymbolKind::Tls
        })?;
        Some(Variable { address: symbol.address().wrapping_add(module.bias), size: symbol.size() })
    })
}

/// The address of a symbol, for programs that refer to it.
pub fn address(modules: &[Module], kernel: Option<&Module>, name: &str) -> Option<u64> {
    Some(symbol(modules, kernel, name)?.address)
}

/// A variable, for lines that name it.
pub fn variable(modules: &[Module], kernel: Option<&Module>, name: &str) -> Option<Variable> {
    symbol(modules, kernel, name).filter(|v| v.size > 0)
}

/// Names addresses.
pub struct Names {
    /// In order of their addresses.
    all: Vec<Named>,
}

/// What a range of addresses is called.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Named {
    start: u64,
    /// Behind its last byte; as it is for a label, until the next one is known.
    end: u64,
    what: What,
    name: String,
}

/// From the outside in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// A part of a file.
    File,
    /// In code that somebody wrote in assembly.
    Label,
    Function,
}

/// An address is looked for among so many ranges that begin before it: most are functions, and none is within another.
const LOOK_BACK: usize = 1 << 12;

impl Names {
    pub fn new<'a>(modules: impl Iterator<Item = &'a Module>) -> Names {
        let mut all = Vec::new();
        for module in modules {
            let Ok(file) = object::File::parse(&*module.elf) else { continue };
            let at = |address: u64| address.wrapping_add(module.bias);
            let code: Vec<_> =
                file.sections().filter(|s| s.kind() == SectionKind::Text).map(|s| s.index()).collect();
            for symbol in file.symbols().chain(file.dynamic_symbols()) {
                let what = match symbol.kind() {
                    SymbolKind::Text if symbol.size() > 0 => What::Function,
                    SymbolKind::Text | SymbolKind::Unknown
                        if symbol.section_index().is_some_and(|s| code.contains(&s)) =>
                    {
                        What::Label
                    }
                    _ => continue,
                };
                if !symbol.is_undefined()
                    && let Ok(name) = symbol.name()
                {
                    let start = at(symbol.address());
                    let end = start.wrapping_add(symbol.size());
                    all.push(Named { start, end, what, name: demangled(name) });
                }
            }
            // What has no symbol still belongs to a file.
            let name = module.path.rsplit('/').next().unwrap_or(&module.path);
            for segment in file.segments().filter(|s| s.size() > 0) {
                let start = at(segment.address());
                let end = start.wrapping_add(segment.size());
                all.push(Named { start, end, what: What::File, name: name.to_string() });
            }
        }
        all.sort();
        for i in 1..all.len() {
            if all[i - 1].what == What::Label {
                all[i - 1].end = all[i].start;
            }
        }
        Names { all }
    }

    /// Those that hold the address, the innermost first.
    fn around(&self, address: u64) -> impl Iterator<Item = &Named> {
        let end = self.all.partition_point(|n| n.start <= address);
        self.all[..end].iter().rev().take(LOOK_BACK).filter(move |n| address < n.end)
    }

    /// The file that is mapped there, without its path.
    pub fn file(&self, address: u64) -> Option<&str> {
        let file = self.all.iter().find(|n| n.what == What::File && (n.start..n.end).contains(&address));
        file.map(|f| f.name.as_str())
    }

    /// A compiler made the code there.
    pub fn is_function(&self, address: u64) -> bool {
        self.around(address).any(|n| n.what == What::Function)
    }

    /// The function, else what is known.
    pub fn name(&self, address: u64) -> Option<String> {
        let find = |what| self.around(address).find(|n| n.what == what);
        match find(What::Function).or_else(|| find(What::Label)) {
            Some(named) => Some(named.name.clone()),
            None => self.file(address).map(|file| format!("[{file}]")),
        }
    }

    /// The name, or else the address.
    pub fn known(&self, address: u64) -> String {
        self.name(address).unwrap_or_else(|| format!("{address:#x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
55a0000000-55a0001000 r--p 00000000 00:00 5 /usr/bin/x\n\
55a0001000-55a0003000 r-xp 00001000 00:00 5 /usr/bin/x\n\
7f0000000000-7f0000001000 r-xp 00000000 00:00 0 [calls]\n\
7f0000100000-7f0000200000 r-xp 00028000 00:00 9 /lib/libc.so.6\n";

    #[test]
    fn executable_mappings_of_files_are_found() {
        let found = mappings(MAPS);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0], Mapping { start: 0x55_a000_1000, offset: 0x1000, path: "/usr/bin/x".into() });
    }

    #[test]
    fn functions_are_found_where_the_file_is_mapped_and_can_be_probed() {
        let own = std::fs::read("/proc/self/exe").unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let modules = modules(&maps, &mut |path| std::fs::read(path).ok());
        assert!(modules.iter().any(|m| m.elf == own));
        let here = marker_for_this_test as *const () as u64;
        let function = find(modules.iter(), "marker_for_this_test").unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(function.address.wrapping_add(function.module.bias), here);
        let names = Names::new(modules.iter());
        assert_eq!(names.name(here).as_deref(), Some("marker_for_this_test"));
        assert!(names.is_function(here) && !names.is_function(1));
        let file = names.file(here).unwrap();
        assert!(modules[0].path.ends_with(file), "{file}");
        let missing = find(modules.iter(), "marker_for_this_tes").err().unwrap();
        assert!(missing.contains("there is marker_for_this_test"), "{missing}");
        assert_eq!(marker_for_this_test(3), 10);
    }

    #[unsafe(no_mangle)]
    #[inline(never)]
    extern "C" fn marker_for_this_test(x: u64) -> u64 {
        std::hint::black_box(x) * 3 + 1
    }
}
