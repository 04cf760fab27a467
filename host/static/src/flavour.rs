// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which C library and which language a program is compiled for, and how objects say so.

use crate::{Result, StaticError, Workshop, bitcode, command, compile, glibc::Glibc, libc, read, run};
use object::{
    Object as _, ObjectSection as _, ObjectSymbol as _,
    read::archive::{ArchiveFile, ArchiveMember},
};
use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    process::Command,
};
use unilith_image::Progress;

/// Whose C library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Libc {
    /// Built from Debian's source, with the kernel's functions in place of system calls.
    Musl,
    /// Debian's own.
    Glibc,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    C,
    Cpp,
}

/// What a program is compiled as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flavour {
    pub libc: Libc,
    pub language: Language,
}

/// The objects of a program.
#[derive(Clone, Debug)]
pub struct Objects {
    pub libc: Libc,
    pub bytes: Vec<u8>,
}

impl Libc {
    /// The section of a program with the objects that it was linked from.
    pub(crate) fn section(self) -> &'static str {
        match self {
            Libc::Musl => compile::SECTION,
            Libc::Glibc => GLIBC_SECTION,
        }
    }

    /// A symbol in each object that was compiled for it.
    fn mark(self) -> &'static str {
        match self {
            Libc::Musl => "unilith_compiled_for_musl",
            Libc::Glibc => "unilith_compiled_for_glibc",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Libc::Musl => "musl",
            Libc::Glibc => "glibc",
        }
    }

    fn other(self) -> Libc {
        match self {
            Libc::Musl => Libc::Glibc,
            Libc::Glibc => Libc::Musl,
        }
    }

    /// What makes the compiler leave the mark.
    pub(crate) fn marking(self) -> String {
        format!("-Wa,--defsym,{}=1", self.mark())
    }

    /// Refuses files of a link that were compiled for the other C library: their structures and names differ.
    pub(crate) fn check(self, inputs: &[OsString]) -> Result<()> {
        let other = self.other();
        for input in inputs.iter().map(Path::new).filter(|path| is_object(path) && path.is_file()) {
            if has_mark(&read(input)?, other) {
                return Err(StaticError::new(format!(
                    "{} was compiled for {}, and this program is for {}: compile all of it with the same --libc",
                    input.display(),
                    other.name(),
                    self.name()
                )));
            }
        }
        Ok(())
    }
}

pub(crate) fn is_object(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "o" || ending == "a")
}

/// Whether an object, or one of an archive, was compiled for it. clang leaves no mark, but it leaves bitcode, and makes it for musl alone.
fn has_mark(bytes: &[u8], libc: Libc) -> bool {
    let has = |object: &[u8]| {
        object::File::parse(object).is_ok_and(|file| {
            let has_bitcode = || file.section_by_name(bitcode::SECTION).is_some();
            file.symbols().any(|s| s.name() == Ok(libc.mark())) || libc == Libc::Musl && has_bitcode()
        })
    };
    match ArchiveFile::parse(bytes) {
        Ok(archive) => {
            archive.members().flatten().any(|member| aligned(&member, bytes).is_some_and(|data| has(&data)))
        }
        Err(_) => has(bytes),
    }
}

/// A member of an archive; a copy, which is aligned as the headers want it.
pub(crate) fn aligned(member: &ArchiveMember<'_>, archive: &[u8]) -> Option<Vec<u8>> {
    member.data(archive).ok().map(<[u8]>::to_vec)
}

/// The objects of a program that `unilith cc` or `unilith c++` linked; `None` for any other file.
pub fn objects_of(program: &[u8]) -> Option<Objects> {
    let file = object::File::parse(program).ok()?;
    [Libc::Musl, Libc::Glibc].into_iter().find_map(|libc| {
        let bytes = file.section_by_name(libc.section())?.data().ok()?.to_vec();
        Some(Objects { libc, bytes })
    })
}

/// The sections that only linking it with the kernel is for: its objects, and with `--lto` what they were compiled from, and how.
pub const LINK_SECTIONS: [&str; 4] = [compile::SECTION, GLIBC_SECTION, bitcode::SECTION, ".llvmcmd"];

/// [`Libc::section`] of glibc.
const GLIBC_SECTION: &str = ".unilith.objects.glibc";

/// A C library that is there.
pub(crate) enum Library {
    Musl(libc::Libc),
    Glibc(Glibc),
}

impl Library {
    pub(crate) fn archive(&self) -> PathBuf {
        match self {
            Library::Musl(musl) => musl.lib("libc.a"),
            Library::Glibc(glibc) => glibc.archive(),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Library::Musl(_) => Libc::Musl.name(),
            Library::Glibc(_) => Libc::Glibc.name(),
        }
    }

    /// The linker's words for a table by which frames are found, where something is unwound.
    pub(crate) fn unwinding(&self) -> &'static [&'static str] {
        match self {
            Library::Musl(_) => &[],
            Library::Glibc(_) => &["--eh-frame-hdr"],
        }
    }

    /// Libraries beside the C library that lead to it.
    pub(crate) fn others(&self) -> Result<Vec<(PathBuf, Vec<u8>)>> {
        match self {
            Library::Musl(_) => Ok(Vec::new()),
            Library::Glibc(glibc) => glibc.others(),
        }
    }

    /// What a link with the kernel takes beside the kernel.
    pub(crate) fn around(&self, objects: &[PathBuf]) -> Result<Vec<OsString>> {
        match self {
            Library::Musl(musl) => compile::around(musl, objects, "linked"),
            Library::Glibc(glibc) => glibc.around(objects),
        }
    }
}

impl Workshop {
    pub(crate) fn library(&self, libc: Libc, offline: bool, progress: &dyn Progress) -> Result<Library> {
        Ok(match libc {
            Libc::Musl => Library::Musl(self.libc(offline, progress)?),
            Libc::Glibc => Library::Glibc(self.glibc(progress)?),
        })
    }
}

/// Libraries that are part of each link, or of the C library.
const OWN: [&str; 11] = [
    "-lc",
    "-lm",
    "-lpthread",
    "-ldl",
    "-lrt",
    "-lutil",
    "-lresolv",
    "-lstdc++",
    "-lgcc",
    "-lgcc_eh",
    "-latomic",
];

/// The system's compiler for glibc.
pub(crate) fn compiler(language: Language) -> Result<Command> {
    let program = if language == Language::Cpp { "g++" } else { "gcc" };
    if run("asking the compiler for its version", command(program).arg("--version")).is_err() {
        return Err(StaticError::new(format!("there is no {program}: run `sudo apt-get install {program}`")));
    }
    let mut out = Command::new(program);
    out.args(["-fno-pie", "-ffunction-sections", "-fdata-sections"]).arg(Libc::Glibc.marking());
    Ok(out)
}

/// Whether a word of a link names a library that is part of it anyhow.
pub(crate) fn is_own(word: &OsStr) -> bool {
    OWN.iter().any(|own| word == *own)
}

/// The compiler's command that links an ordinary program of Linux of these objects.
pub(crate) fn native(language: Language, objects: &Path, output: &Path) -> Result<Command> {
    let mut out = compiler(language)?;
    out.args(["-static", "-no-pie", "-Wl,--gc-sections", "-Wl,--build-id=none", "-o"])
        .arg(output)
        .arg(objects);
    out.args(["-Wl,--start-group", "-lm", "-lresolv", "-Wl,--end-group"]);
    Ok(out)
}

/// What the linker says of glibc's functions that load libraries, which is not so for names of hosts and users here.
pub(crate) fn without_loader_warnings(messages: &str) -> String {
    const WARNING: &str = "in statically linked applications requires at runtime the shared libraries";
    let lines: Vec<&str> = messages.lines().collect();
    let is_warning = |line: Option<&&str>| line.is_some_and(|line| line.contains(WARNING));
    let kept = lines.iter().enumerate().filter(|(at, line)| {
        let leads = line.contains("in function `") && is_warning(lines.get(at + 1));
        !leads && !is_warning(Some(line))
    });
    kept.map(|(_, line)| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_files_have_no_objects() {
        assert!(objects_of(b"#!/bin/sh\n").is_none());
        assert!(objects_of(&std::fs::read(std::env::current_exe().unwrap()).unwrap()).is_none());
    }

    #[test]
    fn warnings_of_loading_are_left_out_and_others_are_not() {
        let said = "ld: p.o: in function `main':\n(.text+0x1): warning: Using 'dlopen' in statically linked applications requires \
                    at runtime the shared libraries from the glibc version used for linking\nld: p.o: in function `main':\nmain.c: undefined\n";
        assert_eq!(without_loader_warnings(said), "ld: p.o: in function `main':\nmain.c: undefined\n");
    }
}
