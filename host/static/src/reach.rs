// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who calls what, from the relocations of the program's objects and the C library's: a warning names the function of
//! the program that leads to a call, not only the call.

use crate::{Result, StaticError, glibc};
use object::{
    Object as _, ObjectSection as _, ObjectSymbol as _, RelocationTarget, SymbolSection,
    read::archive::ArchiveFile,
};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    path::{Path, PathBuf},
};

/// What the linker begins with.
const START: &str = "_start";

/// Functions and variables, and what each refers to. What is local has the name of its section and its object.
pub struct Reach {
    references: BTreeMap<String, BTreeSet<String>>,
    /// From where each one is first reached.
    from: BTreeMap<String, String>,
    /// Names that the program's own objects define, not the C library.
    own: BTreeSet<String>,
}

impl Reach {
    /// The files in the order of the link; the first one is the program's.
    pub fn new(files: &[(&PathBuf, &[u8])]) -> Result<Reach> {
        let mut reach = Reach { references: BTreeMap::new(), from: BTreeMap::new(), own: BTreeSet::new() };
        for (index, (path, bytes)) in files.iter().enumerate() {
            let unreadable = |e: object::Error| StaticError::new(format!("{}: {e}", path.display()));
            if !bytes.starts_with(b"!<arch>") {
                reach.add(bytes, path, index == 0).map_err(unreadable)?;
                continue;
            }
            let archive = ArchiveFile::parse(*bytes).map_err(unreadable)?;
            for member in archive.members() {
                let member = member.map_err(unreadable)?;
                let name = String::from_utf8_lossy(member.name()).into_owned();
                // A copy is aligned as the headers want it.
                let data = member.data(*bytes).map_err(unreadable)?.to_vec();
                reach.add(&data, Path::new(&name), index == 0).map_err(unreadable)?;
            }
        }
        // Start files call main, which no object here does.
        let mut next = VecDeque::from([String::from("main")]);
        while let Some(name) = next.pop_front() {
            for to in reach.references.get(&name).into_iter().flatten() {
                if to != "main" && !reach.from.contains_key(to) {
                    reach.from.insert(to.clone(), name.clone());
                    next.push_back(to.clone());
                }
            }
        }
        reach.from.remove(START);
        Ok(reach)
    }

    fn add(&mut self, bytes: &[u8], path: &Path, own: bool) -> object::Result<()> {
        let file = object::File::parse(bytes)?;
        let place = |section: object::SectionIndex| format!("{}:{}", path.display(), section.0);
        // A symbol leads to its section, and that to all it refers to.
        for symbol in file.symbols() {
            let SymbolSection::Section(section) = symbol.section() else { continue };
            let name = symbol.name().unwrap_or_default();
            if name.is_empty() || symbol.is_local() && !own {
                continue;
            }
            if own {
                self.own.insert(name.to_string());
            }
            self.references.entry(name.to_string()).or_default().insert(place(section));
        }
        for section in file.sections() {
            let from = place(section.index());
            for (_, relocation) in section.relocations() {
                let RelocationTarget::Symbol(index) = relocation.target() else { continue };
                let symbol = file.symbol_by_index(index)?;
                let to = match symbol.section() {
                    SymbolSection::Section(section) if symbol.is_local() => place(section),
                    _ => glibc::plain(symbol.name().unwrap_or_default()),
                };
                self.references.entry(from.clone()).or_default().insert(to);
            }
        }
        Ok(())
    }

    /// The way from the program to a name, its own functions first: (function of the program, function of the C library).
    fn way(&self, to: &str) -> Option<(String, Option<String>)> {
        let mut library = None;
        let mut at = to.to_string();
        // No way is longer than there are names.
        for _ in 0..=self.from.len() {
            let before = self.from.get(&at)?;
            if !before.contains(':') {
                if self.own.contains(before) {
                    return Some((before.clone(), library));
                }
                library = Some(before.clone());
            }
            at.clone_from(before);
        }
        None
    }

    fn who(&self, to: &str) -> Option<String> {
        let (own, library) = self.way(to)?;
        Some(match library {
            Some(library) => format!("{own} calls {library}"),
            None => own,
        })
    }

    /// What to say of a call without a handler.
    pub fn warning(&self, name: &str) -> Option<String> {
        let row = syscall_table::ROWS.iter().find(|row| row.name == name)?;
        let who = self.who(&format!("unilith_syscall_{}", row.number))?;
        let why = match row.note {
            "" => format!("this kernel was built without it (--set {name})"),
            note => note.to_string(),
        };
        Some(format!("{who}: {name} answers ENOSYS: {why}"))
    }

    /// The program runs programs, of which there is itself alone.
    pub fn execve(&self) -> Option<String> {
        const CALLS: [(&str, &str); 2] =
            [("execve", "unilith_syscall_59"), ("execveat", "unilith_syscall_322")];
        let (name, who) = CALLS.iter().find_map(|(name, call)| Some((name, self.who(call)?)))?;
        Some(format!(
            "{who}: {name} answers ENOSYS for other programs than this one: a machine of --static has this one program; \
             without --static it has all"
        ))
    }

    /// The program loads libraries, which it cannot here.
    pub fn dlopen(&self) -> Option<String> {
        let who = self.who("dlopen")?;
        Some(format!(
            "{who}: dlopen fails: all of a program of --static is linked; leave out --static for libraries"
        ))
    }

    /// The program drives a network device and makes sockets.
    pub fn stack_has_device(&self) -> Option<String> {
        const SOCKET: &str = "unilith_syscall_41";
        let who = self.who(SOCKET).or_else(|| self.who("unilith_syscall_any"))?;
        Some(format!(
            "{who}: so the kernel's TCP/IP has the first network device and unilith_netdev_open of it answers EBUSY; leave TCP/IP \
             out with --set net=none"
        ))
    }

    /// A number of a system call is no constant.
    pub fn any(&self) -> Option<String> {
        let who = self.who("unilith_syscall_any")?;
        Some(format!(
            "{who}: with a number that is known at run time only, so all system calls are in the image"
        ))
    }
}
