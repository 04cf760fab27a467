// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith cc`: a C compiler for programs that are linked with the kernel later.
//!
//! It is the system's compiler with another C library. What it links runs on Linux as it is, which is what configure scripts and
//! the programs' own tests want; the objects it is made of are in it too, in a section that is not loaded.

use crate::{
    Result, StaticError, Workshop, command,
    flavour::{self, Flavour},
    glibc, key,
    libc::{Libc, need},
    read, run,
};
use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};
use unilith_image::Progress;

/// The section of a program with the objects that it was linked from.
pub const SECTION: &str = ".unilith.objects";

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The compiler's own.
    pub code: u8,
    /// What compiler and linker wrote to standard error.
    pub messages: String,
}

/// Of this compiler alone: objects with bitcode, for `--lto`.
pub const LTO: &str = "--lto";
/// The compiler for that, and Debian's package that has it.
const CLANG: [(&str, &str); 1] = [("/usr/bin/clang", "clang")];

/// Arguments with which the compiler links no program.
const NO_LINK: [&str; 11] =
    ["-c", "-S", "-E", "-M", "-MM", "-fsyntax-only", "--version", "-v", "-shared", "-r", "-Wl,-r"];
/// Arguments that ask for another form of program than this one, or for what is done at the end.
const DROPPED: [&str; 11] = [
    "-pie",
    "-static-pie",
    "-no-pie",
    "-static",
    "-fpie",
    "-fPIE",
    "-fpic",
    "-fPIC",
    "-rdynamic",
    "-s",
    "-flto",
];
/// What the linker may be told when it puts objects together; all else is about the program that it does not make yet.
const LINKER_WORDS: [&str; 6] =
    ["--start-group", "--end-group", "--whole-archive", "--no-whole-archive", "-Bstatic", "-L"];

impl Workshop {
    /// What tells this compiler and its C library from all others, for the names under which their programs are kept.
    pub fn version(&self, with_bitcode: bool, offline: bool, progress: &dyn Progress) -> Result<Vec<u8>> {
        let libc = self.libc(offline, progress)?;
        let own = include_bytes!("compile.rs");
        let mut other = String::new();
        if with_bitcode {
            need(&CLANG, "--lto", progress)?;
            other = run("asking the compiler for its version", command("clang").arg("--version"))?;
        }
        Ok(key([libc.folder.as_os_str().as_encoded_bytes(), own, other.as_bytes()]).into_bytes())
    }

    /// Runs the compiler with these arguments.
    pub fn compile(
        &self,
        flavour: Flavour,
        arguments: &[OsString],
        offline: bool,
        progress: &dyn Progress,
    ) -> Result<Outcome> {
        let musl = match flavour.libc {
            flavour::Libc::Musl => Some(self.libc(offline, progress)?),
            flavour::Libc::Glibc => None,
        };
        let with_bitcode = arguments.iter().any(|word| word == LTO);
        if with_bitcode && musl.is_none() {
            return Err(StaticError::new("--lto is for programs in C with musl: leave it out"));
        }
        if with_bitcode {
            need(&CLANG, "unilith cc --lto", progress)?;
        }
        let arguments: Vec<OsString> = arguments.iter().filter(|word| *word != LTO).cloned().collect();
        let arguments = &arguments[..];
        let compiler = || match &musl {
            Some(musl) if with_bitcode => clang(musl),
            Some(musl) => gcc(musl),
            None => flavour::compiler(flavour.language),
        };
        let is = |words: &[&str], argument: &OsString| words.iter().any(|word| argument == OsStr::new(word));
        let links = arguments.iter().any(is_input) && !arguments.iter().any(|a| is(&NO_LINK, a));
        let given: Vec<&OsString> = arguments.iter().filter(|a| !is(&DROPPED, a)).collect();
        if !links {
            return finish(compiler()?.args(given));
        }
        flavour.libc.check(arguments)?;
        let output = output(arguments);
        let folder = tempfile::tempdir()
            .map_err(|e| StaticError::io("make a folder in", &std::env::temp_dir(), &e))?;
        let objects = folder.path().join("program.o");
        let mut together = compiler()?;
        // The start files ask for main later: it may be in an archive.
        together.args(["-r", "-nostdlib", "-Wl,-u,main"]);
        match &musl {
            Some(musl) => together.arg("-L").arg(musl.folder.join("lib")),
            None => together.arg("-static"),
        };
        let mut words = given.into_iter();
        while let Some(word) = words.next() {
            let text = word.to_string_lossy();
            if word == "-o" {
                words.next();
            } else if musl.is_none() && flavour::is_own(word) {
                // The C library comes last, when it is known whose calls it makes.
            } else if let Some(told) = text.strip_prefix("-Wl,") {
                if LINKER_WORDS.iter().any(|known| told.starts_with(known)) {
                    together.arg(word);
                }
            } else if !text.starts_with("-o") || text == "-o" {
                together.arg(word);
            }
        }
        let outcome = finish(together.arg("-o").arg(&objects))?;
        if outcome.code != 0 {
            return Ok(outcome);
        }
        let linked = match &musl {
            Some(musl) => {
                let mut link = command("ld");
                link.args(["-static", "--gc-sections", "-z", "noexecstack", "--build-id=none", "-o"])
                    .arg(&output);
                link.args(around(musl, &[objects.clone(), musl.lib("native.o")], "native")?);
                finish(&mut link)?
            }
            None => {
                glibc::check(&read(&objects)?, arguments)?;
                let mut linked = finish(&mut flavour::native(flavour.language, &objects, &output)?)?;
                linked.messages = flavour::without_loader_warnings(&linked.messages);
                linked
            }
        };
        let messages = outcome.messages + &linked.messages;
        if linked.code != 0 {
            return Ok(Outcome { code: linked.code, messages });
        }
        let mut add = command("objcopy");
        add.arg("--add-section").arg(format!("{}={}", flavour.libc.section(), objects.display()));
        run("keeping the objects", add.arg(&output))?;
        Ok(Outcome { code: 0, messages })
    }
}

/// What a link of a program takes: start files, these objects, and the libraries. `side`: `native` for a program of Linux, `linked`
/// for one with a kernel.
pub fn around(libc: &Libc, objects: &[PathBuf], side: &str) -> Result<Vec<OsString>> {
    let own = run("asking the compiler for its library", command("gcc").arg("-print-libgcc-file-name"))?;
    let mut out: Vec<OsString> = vec![libc.lib("crt1.o").into(), libc.lib("crti.o").into()];
    out.extend(objects.iter().map(|object| object.clone().into_os_string()));
    out.push(libc.lib(&format!("libunilith-{side}.a")).into());
    out.extend(["--start-group".into(), libc.lib("libc.a").into(), own.trim().into(), "--end-group".into()]);
    out.push(libc.lib("crtn.o").into());
    Ok(out)
}

/// Of both compilers.
const WORDS: [&str; 7] = [
    "-fno-pie",
    "-fno-stack-protector",
    "-ffunction-sections",
    "-fdata-sections",
    // Nobody unwinds a program in C; for debuggers -g describes the stack apart.
    "-fno-asynchronous-unwind-tables",
    "-fno-unwind-tables",
    "-U_FORTIFY_SOURCE",
];

fn gcc(libc: &Libc) -> Result<Command> {
    let own = run("asking the compiler for its headers", command("gcc").arg("-print-file-name=include"))?;
    let mut out = Command::new("gcc");
    out.args(["-nostdinc", "-isystem"]).arg(libc.folder.join("include")).args(["-isystem", own.trim()]);
    out.args(WORDS).arg(flavour::Libc::Musl.marking());
    Ok(out)
}

/// A compiler that puts into each object what it was made of, beside its machine code: everything that handles objects goes on as
/// before, and the link with the kernel has something to optimise.
fn clang(libc: &Libc) -> Result<Command> {
    let own = run("asking the compiler for its headers", command("clang").arg("-print-resource-dir"))?;
    let mut out = Command::new("clang");
    out.args(["-nostdinc", "-isystem"]).arg(libc.folder.join("include"));
    out.arg("-isystem").arg(Path::new(own.trim()).join("include")).args(WORDS);
    // The compiler's driver refuses the last one beside sections for functions, which its machine code has in any case.
    out.args(["-Qunused-arguments", "-Wno-unknown-warning-option", "-Xclang", "-fembed-bitcode=all"]);
    Ok(out)
}

/// Something that is compiled or linked, not an option.
fn is_input(argument: &OsString) -> bool {
    let text = argument.to_string_lossy();
    let ending = text.rsplit_once('.').map_or("", |(_, ending)| ending);
    !text.starts_with('-') && ["c", "cc", "cpp", "cxx", "C", "s", "S", "o", "a", "lo"].contains(&ending)
}

fn output(arguments: &[OsString]) -> PathBuf {
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        if word == "-o" {
            return words.next().map_or_else(|| "a.out".into(), PathBuf::from);
        }
        if let Some(path) = word.to_str().and_then(|w| w.strip_prefix("-o")).filter(|p| !p.is_empty()) {
            return path.into();
        }
    }
    "a.out".into()
}

fn finish(command: &mut Command) -> Result<Outcome> {
    command.stdin(Stdio::inherit()).stdout(Stdio::inherit());
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|e| StaticError::new(format!("cannot run {program}: {e}")))?;
    let messages = String::from_utf8_lossy(&output.stderr).into_owned();
    let code = output.status.code().and_then(|c| u8::try_from(c).ok()).unwrap_or(1);
    Ok(Outcome { code, messages })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_an_input_and_is_not_told_otherwise_is_linked() {
        for (word, is) in [("a.c", true), ("lib/x.a", true), ("-lz.c", false), ("README", false)] {
            assert_eq!(is_input(&word.into()), is, "{word}");
        }
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert_eq!(output(&words("a.c -o out -O2")), Path::new("out"));
        assert_eq!(output(&words("a.c -oout")), Path::new("out"));
        assert_eq!(output(&words("a.c")), Path::new("a.out"));
    }
}
