// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which definition each symbol has, over all objects.

use crate::elf::*;
use crate::error::{Error, Result, Shown, with_room};
use crate::{CALL_EXIT, CALL_SMASHED, Definition, OBJECTS_MAX, Resolver};
use alloc::format;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_overlay::sort;

/// What a relocation refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// In a section of the program.
    Own {
        object: u16,
        section: u16,
        offset: u64,
    },
    /// A thread-local variable of the program.
    Thread {
        object: u16,
        section: u16,
        offset: u64,
    },
    /// The code that the own function there answers (STT_GNU_IFUNC).
    Chosen {
        object: u16,
        section: u16,
        offset: u64,
    },
    Absolute(u64),
    Common(u32),
    External(u32),
    Made(Made),
    /// Nobody defines it.
    Missing,
    /// In a section that is not part of the program.
    Gone,
}

/// What the linker itself defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Made {
    /// `_GLOBAL_OFFSET_TABLE_`
    Table,
    /// `exit`: destructors, then the end.
    Exit,
    /// `__tls_get_addr`
    ThreadAddress,
    /// `_TLS_MODULE_BASE_`: start of the thread-local variables.
    ThreadBase,
    /// `__dso_handle`: names the program to `__cxa_atexit`.
    Handle,
}

pub struct Common {
    pub size: u64,
    pub align: u64,
}

pub struct Symbols {
    /// By object and section: part of the program.
    pub kept: Vec<Vec<bool>>,
    /// By object and symbol.
    pub targets: Vec<Vec<Target>>,
    pub externals: Vec<Definition>,
    pub commons: Vec<Common>,
    pub main: Option<Target>,
}

/// One mention of a global name.
struct Global<'a> {
    name: &'a [u8],
    object: u16,
    symbol: u32,
}

fn made(name: &[u8]) -> Option<Target> {
    Some(Target::Made(match name {
        b"_GLOBAL_OFFSET_TABLE_" => Made::Table,
        b"exit" => Made::Exit,
        b"__tls_get_addr" => Made::ThreadAddress,
        b"_TLS_MODULE_BASE_" => Made::ThreadBase,
        b"__dso_handle" => Made::Handle,
        _ => return None,
    }))
}

impl Symbols {
    pub fn settle<'a>(objects: &[Object<'a>], resolver: &dyn Resolver) -> Result<Symbols> {
        let mut symbols = Symbols {
            kept: kept(objects)?,
            targets: with_room(objects.len(), "the symbols")?,
            externals: Vec::new(),
            commons: Vec::new(),
            main: None,
        };
        let mut globals = Vec::new();
        for (number, object) in objects.iter().enumerate() {
            let mut targets = with_room(object.symbols.len(), "the symbols")?;
            for (index, symbol) in object.symbols.iter().enumerate() {
                targets.push(symbols.own(objects, number, symbol));
                if symbol.binding != STB_LOCAL && !symbol.name.is_empty() {
                    globals.reserve_fallibly(1).map_err(|_| Error::memory("the symbols"))?;
                    globals.push(Global { name: symbol.name, object: number as u16, symbol: index as u32 });
                }
            }
            symbols.targets.push(targets);
        }
        sort(&mut globals, |a: &Global<'_>, b: &Global<'_>| {
            (a.name, a.object, a.symbol) < (b.name, b.object, b.symbol)
        });
        for mentions in globals.chunk_by(|a, b| a.name == b.name) {
            let target = symbols.choose(objects, mentions, resolver)?;
            if mentions[0].name == b"main" {
                symbols.main = Some(target).filter(|t| *t != Target::Missing);
            }
            for mention in mentions {
                symbols.targets[mention.object as usize][mention.symbol as usize] = target;
            }
        }
        Ok(symbols)
    }

    /// What the symbol is by its own entry alone; `Missing` for what is not defined there.
    fn own(&self, objects: &[Object<'_>], object: usize, symbol: &RawSymbol<'_>) -> Target {
        match symbol.section {
            SHN_UNDEF if symbol.name.is_empty() => Target::Absolute(0),
            SHN_UNDEF | SHN_COMMON => Target::Missing,
            SHN_ABS => Target::Absolute(symbol.value),
            section if !self.kept[object][section as usize] => Target::Gone,
            section => {
                let thread =
                    symbol.kind == STT_TLS || objects[object].sections[section as usize].has(SHF_TLS);
                let (object, offset) = (object as u16, symbol.value);
                match symbol.kind {
                    STT_GNU_IFUNC => Target::Chosen { object, section, offset },
                    _ if thread => Target::Thread { object, section, offset },
                    _ => Target::Own { object, section, offset },
                }
            }
        }
    }

    /// One definition for all mentions of a name.
    fn choose(
        &mut self,
        objects: &[Object<'_>],
        mentions: &[Global<'_>],
        resolver: &dyn Resolver,
    ) -> Result<Target> {
        let name = mentions[0].name;
        let symbol = |g: &Global<'_>| &objects[g.object as usize].symbols[g.symbol as usize];
        let target = |g: &Global<'_>| self.targets[g.object as usize][g.symbol as usize];
        let is_defined = |g: &Global<'_>| !matches!(target(g), Target::Missing | Target::Gone);
        let mut strong = mentions.iter().filter(|g| is_defined(g) && symbol(g).binding != STB_WEAK);
        if let Some(first) = strong.next() {
            if let Some(second) = strong.next() {
                let other = Shown(objects[first.object as usize].name.as_bytes());
                let what = format!("symbol {} is defined in {other} as well", Shown(name));
                return Err(Error::new(objects[second.object as usize].name, what));
            }
            return Ok(target(first));
        }
        let common = mentions.iter().map(symbol).filter(|s| s.section == SHN_COMMON);
        if let Some(size) = common.clone().map(|s| s.size).max() {
            // The value of a common symbol is its alignment.
            let align = common.map(|s| s.value).max().unwrap_or(1).max(1);
            if !align.is_power_of_two() || align > 4096 || size > crate::IMAGE_MAX {
                let what = format!("malformed: common symbol {}", Shown(name));
                return Err(Error::new(objects[mentions[0].object as usize].name, what));
            }
            self.commons.reserve_fallibly(1).map_err(|_| Error::memory("the symbols"))?;
            self.commons.push(Common { size, align });
            return Ok(Target::Common(self.commons.len() as u32 - 1));
        }
        if let Some(weak) = mentions.iter().find(|g| is_defined(g)) {
            return Ok(target(weak));
        }
        if let Some(made) = made(name) {
            return Ok(made);
        }
        let definition = match name {
            b"_exit" | b"_Exit" => Some(Definition::Call(CALL_EXIT)),
            b"__stack_chk_fail" => Some(Definition::Call(CALL_SMASHED)),
            _ => resolver.resolve(name),
        };
        if let Some(definition) = definition {
            self.externals.reserve_fallibly(1).map_err(|_| Error::memory("the symbols"))?;
            self.externals.push(definition);
            return Ok(Target::External(self.externals.len() as u32 - 1));
        }
        let undefined = |g: &Global<'_>| symbol(g).section == SHN_UNDEF;
        if mentions.iter().filter(|g| undefined(g)).all(|g| symbol(g).binding == STB_WEAK)
            && mentions.iter().any(undefined)
        {
            return Ok(Target::Absolute(0));
        }
        Ok(Target::Missing)
    }
}

/// Sections that are part of the program: loaded, and not a second copy of a group.
fn kept(objects: &[Object<'_>]) -> Result<Vec<Vec<bool>>> {
    let mut kept = with_room(objects.len().min(OBJECTS_MAX), "the sections")?;
    let mut groups = Vec::new();
    for (number, object) in objects.iter().enumerate() {
        let mut sections = with_room(object.sections.len(), "the sections")?;
        sections.extend(object.sections.iter().map(Section::is_loaded));
        kept.push(sections);
        groups.extend(object.groups.iter().enumerate().map(|(i, group)| (group.signature, number, i)));
    }
    sort(&mut groups, |a, b| a < b);
    for copies in groups.chunk_by(|a, b| a.0 == b.0) {
        for (_, object, group) in &copies[1..] {
            for member in &objects[*object].groups[*group].members {
                kept[*object][*member] = false;
            }
        }
    }
    Ok(kept)
}
