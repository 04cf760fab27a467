// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Object files of `clang -target bpf -g -O2 -c`, as for libbpf: `SEC(…)` says where a program goes, maps are described
//! by BTF, global variables are arrays of one element.

use crate::btf::{self, Member, Reference, Types, reference};
use crate::report::{Report, Variable};
use crate::{Place, Script, language};
use api_probes::Kind;
use bpf::Insn;
use bpf::bundle::{MAX_INSTRUCTIONS, Program};
use bpf::context::Context;
use bpf::insn::{SIZE, call, class, jump, load};
use bpf::maps::{Kind as MapKind, READ_ONLY, Spec};
use object::read::elf::ElfFile64;
use object::{
    Endianness, Object, ObjectSection, ObjectSymbol, RelocationTarget, SectionFlags, SectionIndex,
    SymbolIndex, SymbolKind, SymbolSection, elf,
};
use std::collections::HashMap;

/// Gives the address of a symbol in the machine.
pub type Addresses<'a> = dyn Fn(&str) -> Option<u64> + 'a;

/// `BPF_F_NO_PREALLOC`: maps are always allocated in advance here.
const NO_PREALLOC: u32 = 1;

/// A section, with the symbol that each relocated byte refers to.
struct Section {
    name: String,
    is_code: bool,
    bytes: Vec<u8>,
    size: u64,
    relocations: HashMap<u64, SymbolIndex>,
}

struct Symbol {
    name: String,
    /// `None`: somewhere else.
    section: Option<SectionIndex>,
    value: u64,
    size: u64,
    kind: SymbolKind,
    weak: bool,
}

/// One section of code: everything but calls is resolved.
#[derive(Default)]
struct Code {
    insns: Vec<Insn>,
    /// Calls by instruction: section and instruction of what is called.
    calls: HashMap<usize, (SectionIndex, usize)>,
    /// First instruction of each function and the one behind it, and its name; in order.
    functions: Vec<(usize, usize, String)>,
}

struct Reader<'a> {
    sections: Vec<(SectionIndex, Section)>,
    symbols: HashMap<SymbolIndex, Symbol>,
    types: Types,
    ext: Vec<u8>,
    address: &'a Addresses<'a>,
    script: Script,
    /// Described maps, by symbol.
    by_symbol: HashMap<SymbolIndex, usize>,
    /// Maps of global variables, by section.
    by_section: HashMap<SectionIndex, usize>,
    code: HashMap<SectionIndex, Code>,
}

/// Reads an object file; `address` knows symbols of the machine, for `extern … __ksym`.
pub fn read(bytes: &[u8], address: &Addresses<'_>) -> Result<Script, String> {
    const HOW: &str = "compile with clang -target bpf -g -O2 -c";
    let file = ElfFile64::<Endianness>::parse(bytes).map_err(|_| format!("not an object file: {HOW}"))?;
    if file.elf_header().e_machine.get(Endianness::Little) != elf::EM_BPF || !file.is_little_endian() {
        return Err(format!("an object file, but not for eBPF: {HOW}"));
    }
    let mut reader = Reader {
        sections: file.sections().map(|s| (s.index(), section(&s))).collect(),
        symbols: file.symbols().map(|s| (s.index(), symbol(&s))).collect(),
        types: Types::default(),
        ext: Vec::new(),
        address,
        script: Script::default(),
        by_symbol: HashMap::new(),
        by_section: HashMap::new(),
        code: HashMap::new(),
    };
    if let Some(types) = reader.section(".BTF") {
        reader.types = Types::read(&types.bytes).ok_or("its types (.BTF) are damaged")?;
    }
    reader.ext = reader.section(".BTF.ext").map(|s| s.bytes.clone()).unwrap_or_default();
    reader.described_maps()?;
    reader.globals();
    reader.read_code()?;
    reader.programs()?;
    Ok(reader.script)
}

fn section<'d>(s: &impl ObjectSection<'d>) -> Section {
    let relocation = |(at, r): (u64, object::Relocation)| match r.target() {
        RelocationTarget::Symbol(symbol) => Some((at, symbol)),
        _ => None,
    };
    Section {
        name: s.name().unwrap_or_default().into(),
        is_code: matches!(s.flags(), SectionFlags::Elf { sh_flags } if sh_flags & u64::from(elf::SHF_EXECINSTR) != 0),
        bytes: s.data().unwrap_or_default().to_vec(),
        size: s.size(),
        relocations: s.relocations().filter_map(relocation).collect(),
    }
}

fn symbol<'d>(s: &impl ObjectSymbol<'d>) -> Symbol {
    Symbol {
        name: s.name().unwrap_or_default().into(),
        section: match s.section() {
            SymbolSection::Section(index) => Some(index),
            _ => None,
        },
        value: s.address(),
        size: s.size(),
        kind: s.kind(),
        weak: s.is_weak(),
    }
}

/// Global variables, and what kind.
fn is_globals(name: &str) -> bool {
    [".data", ".rodata", ".bss"]
        .iter()
        .any(|p| name.strip_prefix(p).is_some_and(|r| r.is_empty() || r.starts_with('.')))
}

impl Reader<'_> {
    fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().map(|s| &s.1).find(|s| s.name == name)
    }

    fn add_map(&mut self, spec: Spec) -> Result<usize, String> {
        spec.check().map_err(|why| format!("map {}: {why}", spec.name))?;
        self.script.bundle.maps.push(spec);
        Ok(self.script.bundle.maps.len() - 1)
    }

    /// Maps of the section `.maps`, described by the types of its variables.
    fn described_maps(&mut self) -> Result<(), String> {
        if self.section("maps").is_some() {
            return Err(
                "its maps are of the old kind (SEC(\"maps\")): describe them in SEC(\".maps\")".into()
            );
        }
        let Some(index) = self.sections.iter().find(|s| s.1.name == ".maps").map(|s| s.0) else {
            return Ok(());
        };
        let variables = self.types.variables(".maps");
        if variables.is_empty() {
            return Err("its maps have no description: compile with -g".into());
        }
        let own =
            |s: &(&SymbolIndex, &Symbol)| s.1.section == Some(index) && variables.contains_key(&s.1.name);
        let mut found: Vec<(SymbolIndex, String, u64)> =
            self.symbols.iter().filter(own).map(|(i, s)| (*i, s.name.clone(), s.value)).collect();
        found.sort_by_key(|f| f.2);
        for (symbol, name, _) in found {
            let spec = self.described(&name, variables[&name])?;
            let map = self.add_map(spec)?;
            self.by_symbol.insert(symbol, map);
            if self.script.bundle.maps[map].kind != MapKind::RingBuffer {
                self.script.reports.push(Report::Table { map: name });
            }
        }
        Ok(())
    }

    fn described(&self, name: &str, of: u32) -> Result<Spec, String> {
        let (_, members) = self.types.structure(of).ok_or_else(|| format!("map {name} is no structure"))?;
        let number = |field: &str| self.types.number(members, field);
        let size = |explicit: &str, typed: &str| {
            number(explicit).or_else(|| self.types.size_of(members, typed)).unwrap_or(0)
        };
        let kind = number("type").unwrap_or(0);
        let Some(kind) = MapKind::from_number(kind) else {
            return Err(format!("map {name} has type {kind}: there are {}", bpf::maps::KINDS));
        };
        let flags = number("map_flags").unwrap_or(0) & !NO_PREALLOC;
        if flags & !READ_ONLY != 0 {
            return Err(format!("map {name} has flags {flags:#x}, which mean nothing here"));
        }
        Ok(Spec {
            name: name.into(),
            kind,
            key: size("key_size", "key"),
            value: size("value_size", "value"),
            entries: number("max_entries").unwrap_or(0),
            flags,
            initial: Vec::new(),
        })
    }

    fn globals(&mut self) {
        for (index, section) in &self.sections {
            if !is_globals(&section.name) || section.size == 0 {
                continue;
            }
            let constant = section.name.starts_with(".rodata");
            self.script.bundle.maps.push(Spec {
                name: section.name.clone(),
                kind: MapKind::Array,
                key: 4,
                value: u32::try_from(section.size).unwrap_or(u32::MAX),
                entries: 1,
                flags: if constant { READ_ONLY } else { 0 },
                initial: section.bytes.clone(),
            });
            self.by_section.insert(*index, self.script.bundle.maps.len() - 1);
            let own = |s: &&Symbol| s.section == Some(*index) && s.kind == SymbolKind::Data && s.size > 0;
            let mut variables: Vec<Variable> = self
                .symbols
                .values()
                .filter(own)
                .map(|s| Variable { name: s.name.clone(), offset: s.value as usize, size: s.size as usize })
                .collect();
            variables.sort_by_key(|v| v.offset);
            if !constant && !variables.is_empty() {
                self.script.reports.push(Report::Variables { map: section.name.clone(), variables });
            }
        }
    }

    /// Instructions of all sections of code.
    fn read_code(&mut self) -> Result<(), String> {
        for (index, section) in self.sections.iter().filter(|s| s.1.is_code && s.1.size > 0) {
            let insns =
                Insn::decode(&section.bytes).ok_or_else(|| format!("section {} is cut off", section.name))?;
            if insns.len() > MAX_INSTRUCTIONS {
                return Err(format!(
                    "section {} has more than {MAX_INSTRUCTIONS} instructions",
                    section.name
                ));
            }
            let mut code = Code { insns, ..Code::default() };
            let own = |s: &&Symbol| s.section == Some(*index) && s.kind == SymbolKind::Text && s.size > 0;
            for s in self.symbols.values().filter(own) {
                let (first, count) = (s.value as usize / SIZE, s.size as usize / SIZE);
                let end = first.checked_add(count).filter(|end| *end <= code.insns.len());
                let end = end.ok_or_else(|| format!("function {} is cut off", s.name))?;
                code.functions.push((first, end, s.name.clone()));
            }
            code.functions.sort();
            self.refer(&mut code, &section.name)?;
            self.relocate(&mut code, *index, section)?;
            self.code.insert(*index, code);
        }
        Ok(())
    }

    /// Members of contexts that were meant by name (CO-RE).
    fn refer(&self, code: &mut Code, section: &str) -> Result<(), String> {
        if self.ext.is_empty() {
            return Ok(());
        }
        let all = btf::references(&self.ext, &self.types, section).ok_or("its .BTF.ext is damaged")?;
        for r in all {
            let Some(value) = self.reference(&r) else { continue };
            let at = r.at as usize / SIZE;
            let Some(insn) = code.insns.get_mut(at) else {
                return Err("a reference to a member is outside of its section".into());
            };
            match value {
                // Reached only when the program did not ask whether it is there.
                None => *insn = Insn::new(class::JMP | jump::CALL, 0, 0, 0, bpf::helpers::ABSENT_MEMBER),
                Some(value) if matches!(insn.class(), class::LDX | class::ST | class::STX) => {
                    insn.off = i16::try_from(value).map_err(|_| "a member is too far away")?;
                }
                Some(value) => insn.imm = value as i32,
            }
        }
        Ok(())
    }

    /// What a reference to a context comes to; `None` for what stays as it is, `Some(None)` for what is not there.
    fn reference(&self, r: &Reference) -> Option<Option<u32>> {
        let (name, members) = self.types.structure(r.of)?;
        let context = Context::ALL.into_iter().find(|c| c.name() == name)?;
        let mut path = r.path.split(':').map(|n| n.parse::<usize>().ok());
        if path.next()?? != 0 {
            return None;
        }
        let (mut members, mut found): (&[Member], Option<&Member>) = (members, None);
        for index in path.by_ref() {
            let member = members.get(index?)?;
            if !member.name.is_empty() {
                found = Some(member);
                break;
            }
            members = self.types.structure(member.of)?.1;
        }
        let found = found?;
        let there = context.members().iter().find(|m| m.name == found.name);
        if r.kind == reference::EXISTS {
            return Some(Some(there.is_some().into()));
        }
        let Some(there) = there else { return Some(None) };
        // Elements of an array.
        let (mut offset, mut size) = (u32::from(there.offset), u32::from(there.size));
        if let Some(index) = path.next() {
            size = self.types.size(self.types.element(found.of)?)?;
            offset = offset.checked_add(size.checked_mul(u32::try_from(index?).ok()?)?)?;
        }
        match r.kind {
            reference::BYTE_OFFSET => Some(Some(offset)),
            reference::BYTE_SIZE => Some(Some(size)),
            _ => None,
        }
    }

    fn relocate(&self, code: &mut Code, index: SectionIndex, section: &Section) -> Result<(), String> {
        let mut at = 0;
        while at < code.insns.len() {
            let insn = code.insns[at];
            let symbol = section.relocations.get(&((at * SIZE) as u64));
            if insn.is_wide() {
                if at + 1 == code.insns.len() {
                    return Err(format!("section {} is cut off", section.name));
                }
                if let Some(symbol) = symbol {
                    self.load(&mut code.insns[at..at + 2], *symbol)?;
                }
                at += 2;
                continue;
            }
            if insn.is_call() && (insn.src == call::LOCAL || symbol.is_some()) {
                let target = match symbol.and_then(|s| self.symbols.get(s)) {
                    Some(Symbol { section: None, name, .. }) => {
                        return Err(format!("it calls {name}, which is not in the file and no helper"));
                    }
                    Some(s) => {
                        let first = (s.value as usize / SIZE).checked_add_signed(insn.imm as isize + 1);
                        (s.section.unwrap_or(index), first)
                    }
                    None => (index, (at + 1).checked_add_signed(insn.imm as isize)),
                };
                let (of, first) = (target.0, target.1.ok_or("a call leads out of its section")?);
                code.insns[at].src = call::LOCAL;
                code.calls.insert(at, (of, first));
            }
            at += 1;
        }
        Ok(())
    }

    /// `ld_imm64` of a map, a global variable, or a symbol of the machine.
    fn load(&self, pair: &mut [Insn], symbol: SymbolIndex) -> Result<(), String> {
        let Some(s) = self.symbols.get(&symbol) else { return Err("a relocation without a symbol".into()) };
        let addend = pair[0].imm;
        let (src, low, high) = if let Some(map) = self.by_symbol.get(&symbol) {
            (load::MAP, *map as i32, 0)
        } else if let Some(map) = s.section.and_then(|s| self.by_section.get(&s)) {
            (load::MAP_VALUE, *map as i32, (s.value as i32).wrapping_add(addend))
        } else if s.section.is_none() {
            let value = match (self.address)(&s.name) {
                Some(address) => address.wrapping_add_signed(addend.into()),
                None if s.weak => 0,
                None => return Err(format!("there is no symbol {} in the machine", s.name)),
            };
            (load::VALUE, value as i32, (value >> 32) as i32)
        } else {
            return Err(format!("it takes the address of {}, which is no map and no variable", s.name));
        };
        (pair[0].src, pair[0].imm, pair[1].imm) = (src, low, high);
        Ok(())
    }

    /// A program for each function of a section that is not `.text`.
    fn programs(&mut self) -> Result<(), String> {
        let sections = std::mem::take(&mut self.sections);
        for (index, section) in sections.iter().filter(|s| s.1.name != ".text") {
            let Some(code) = self.code.get(index) else { continue };
            for (first, end, name) in &code.functions {
                let (kind, place, context) = destination(&section.name)?;
                let insns = self.assemble(*index, *first, *end)?;
                let program = self.script.bundle.programs.len();
                self.script.bundle.programs.push(Program { name: name.clone(), context, insns });
                self.script.places.push(Place { program, kind, name: place, interval_ns: 0 });
            }
        }
        if self.script.bundle.programs.is_empty() {
            return Err("no programs are in it: put a function into SEC(\"entry/FUNCTION\")".into());
        }
        Ok(())
    }

    /// A function with all that it calls behind it.
    fn assemble(&self, index: SectionIndex, first: usize, end: usize) -> Result<Vec<Insn>, String> {
        // Section and first instruction of each function, and where it went.
        let mut placed = vec![(index, first, end, 0)];
        let mut out: Vec<Insn> = Vec::new();
        let mut next = 0;
        let mut calls = Vec::new();
        while let Some((section, first, end, _)) = placed.get(next).copied() {
            let code = self.code.get(&section).ok_or("a call leads to what is no code")?;
            placed[next].3 = out.len();
            for at in first..end {
                if let Some((of, target)) = code.calls.get(&at) {
                    let place = out.len() + at - first;
                    if !placed.iter().any(|p| (p.0, p.1) == (*of, *target)) {
                        let functions = self.code.get(of).map(|c| c.functions.as_slice()).unwrap_or_default();
                        let function = functions.iter().find(|f| f.0 == *target);
                        let function = function.ok_or("a call leads into the middle of a function")?;
                        placed.push((*of, *target, function.1, 0));
                    }
                    calls.push((place, *of, *target));
                }
            }
            out.extend_from_slice(&code.insns[first..end]);
            if out.len() > MAX_INSTRUCTIONS {
                return Err(format!(
                    "with what it calls a program has more than {MAX_INSTRUCTIONS} instructions"
                ));
            }
            next += 1;
        }
        for (at, of, target) in calls {
            if let Some(p) = placed.iter().find(|p| (p.0, p.1) == (of, target)) {
                out[at].imm = (p.3 as i64 - at as i64 - 1) as i32;
            }
        }
        Ok(out)
    }
}

/// Where the programs of a section go, by its name.
fn destination(section: &str) -> Result<(Kind, String, Context), String> {
    let (how, place) = section.split_once('/').unwrap_or((section, ""));
    // `uprobe/PATH:FUNCTION`: the function says enough.
    let function = place.rsplit(['/', ':']).next().unwrap_or(place);
    let kernel = format!("kernel:{}", place.trim_start_matches("kernel:"));
    let (kind, name) = match how {
        "entry" => (Kind::Entry, place.to_string()),
        "return" => (Kind::Return, place.to_string()),
        "uprobe" => (Kind::Entry, function.to_string()),
        "uretprobe" => (Kind::Return, function.to_string()),
        "kprobe" => (Kind::Entry, kernel),
        "kretprobe" => (Kind::Return, kernel),
        "tp" | "tracepoint" => {
            let name = place.replacen('/', ":", 1);
            return match language::tracepoint(&name) {
                Some((name, context)) => Ok((Kind::Tracepoint, name.into(), context)),
                None => {
                    Err(format!("there is no tracepoint {name}: `unilith exec NAME bpf points` lists them"))
                }
            };
        }
        "perf_event" => return Ok((Kind::Tracepoint, language::SAMPLE.into(), Context::Registers)),
        _ => {
            return Err(format!(
                "SEC(\"{section}\") has no meaning here: use entry/FUNCTION, return/FUNCTION, or tp/GROUP/TRACEPOINT"
            ));
        }
    };
    if place.is_empty() {
        return Err(format!("SEC(\"{section}\") does not say where: use SEC(\"{how}/FUNCTION\")"));
    }
    Ok((kind, name, Context::Registers))
}
