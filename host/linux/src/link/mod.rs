// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith linux cc`: a C compiler whose programs are linked into Linux.
//!
//! It is the system's compiler with other start files, a static C library and the linker script `linux/link`: what is
//! ordinary about the program stays so, and any build that lets its compiler be chosen can use it. Objects and
//! libraries need not be compiled by it; position-independent code, which is what distributions compile, will do.

mod calls;
mod explain;
mod kernel;

pub use calls::Calls;
pub(crate) use kernel::build_id;
pub use kernel::{Linked, linked};

use crate::{
    LinuxError, Options, Progress, Result, Workshop,
    command::{command, run, start_error},
};
use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

/// Whose C library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Libc {
    /// The system's own.
    Glibc,
    /// Debian's `musl-dev`.
    Musl,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    C,
    Cpp,
}

/// How programs are compiled and linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compiler {
    pub language: Language,
    pub libc: Libc,
    /// Which 16 MB of the kernel's addresses the text gets; programs that run at the same time need different ones.
    pub place: u8,
}

/// A change of what this module makes of a program gets a new number, so that programs in the cache are linked again.
const LINKER: &str = "1";

/// Places there are.
pub const PLACES: u8 = 15;

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The compiler's own.
    pub code: u8,
    /// What the compiler wrote to standard error.
    pub messages: String,
    /// One line about a program that was linked but will not do all it seems to.
    pub warning: Option<String>,
    /// How the program makes its system calls, if one was linked.
    pub calls: Option<Calls>,
}

/// Arguments with which the compiler links no program.
const NO_LINK: [&str; 11] =
    ["-c", "-S", "-E", "-M", "-MM", "-fsyntax-only", "--version", "-v", "-shared", "-r", "-Wl,-r"];
/// Arguments that ask for another form of program than this one.
const DROPPED: [&str; 6] = ["-pie", "-static-pie", "-no-pie", "-static", "-fno-pie", "-fno-PIE"];
const MUSL: &str = "/usr/lib/x86_64-linux-musl";
const MUSL_HEADERS: &str = "/usr/include/x86_64-linux-musl";

impl Workshop {
    /// Runs the compiler with these arguments.
    pub fn compile_program(
        &self,
        compiler: Compiler,
        arguments: &[OsString],
        progress: &dyn Progress,
    ) -> Result<Outcome> {
        if compiler.libc == Libc::Musl {
            check_musl(compiler.language)?;
        }
        let is = |words: &[&str], argument: &OsString| words.iter().any(|word| argument == OsStr::new(word));
        let links = arguments.iter().any(is_input) && !arguments.iter().any(|a| is(&NO_LINK, a));
        let given = arguments.iter().filter(|a| !is(&DROPPED, a));
        let mut compile = self.compiler(compiler)?;
        if !links {
            return finish(compile.args(given));
        }
        let output = output(arguments);
        let around = self.around(compiler)?;
        let folder =
            tempfile::tempdir().map_err(|e| LinuxError::io("make a folder in", &std::env::temp_dir(), &e))?;
        let link = |more: Option<&Path>| {
            let mut command = self.compiler(compiler)?;
            command
                .args(["-nostdlib", "-static", "-no-pie"])
                .args(&around.before)
                .args(arguments.iter().filter(|a| !is(&DROPPED, a)));
            command.args(more).args(&around.behind);
            finish(&mut command)
        };
        let mut outcome = link(None)?;
        let wanted = explain::wanted_of_kernel(&outcome.messages);
        if outcome.code != 0 && !wanted.is_empty() {
            let vmlinux = self.build(&Options::parse("base")?, progress)?.vmlinux;
            let source = folder.path().join("kernel.s");
            let text = kernel::definitions(&vmlinux, &wanted)?;
            fs::write(&source, text).map_err(|e| LinuxError::io("write", &source, &e))?;
            outcome = link(Some(&source))?;
        }
        if outcome.code != 0 {
            // A compiler's errors are in its own words; the linker's are put into one line.
            if outcome.messages.contains("ld returned") || outcome.messages.contains("ld: ") {
                return Err(LinuxError::new(explain::failure(&outcome.messages, &around.libraries)));
            }
            return Ok(outcome);
        }
        outcome.warning = explain::warnings(&outcome.messages).map_err(|why| {
            let _ = fs::remove_file(&output);
            LinuxError::new(why)
        })?;
        let mut program = fs::read(&output).map_err(|e| LinuxError::io("read", &output, &e))?;
        let calls = calls::connect(&mut program)
            .map_err(|e| LinuxError::new(format!("{}: {e}", output.display())))?;
        fs::write(&output, program).map_err(|e| LinuxError::io("write", &output, &e))?;
        outcome.calls = Some(calls);
        Ok(outcome)
    }

    /// What a linked program takes from this repository and this machine, as bytes to be hashed.
    pub(crate) fn link_inputs(&self, compiler: Compiler) -> Result<Vec<u8>> {
        let folder = self.recipes().join("link");
        let header = folder.join("include/unilith/kernel.h");
        let mut out = format!("{LINKER} {} {compiler:?}\n", unilith_rewrite::VERSION).into_bytes();
        for tool in ["cc", "ld"] {
            let text = run(tool, command(tool).arg("--version")).unwrap_or_default();
            out.extend(text.lines().next().unwrap_or_default().bytes());
        }
        let Ok(around) = self.around(compiler) else { return Ok(out) };
        for path in [folder.join("program.lds"), header, around.libraries.join("libc.a")] {
            out.extend(fs::read(&path).unwrap_or_default());
        }
        Ok(out)
    }

    /// The headers that are there for linked programs.
    pub(crate) fn headers(&self) -> Result<Vec<Vec<u8>>> {
        let folder = self.recipes().join("link/include/unilith");
        let unreadable = |e: std::io::Error| LinuxError::io("read", &folder, &e);
        let entries = fs::read_dir(&folder).map_err(unreadable)?;
        let paths: std::io::Result<BTreeSet<PathBuf>> = entries.map(|entry| Ok(entry?.path())).collect();
        paths.map_err(unreadable)?.iter().map(|path| fs::read(path).map_err(unreadable)).collect()
    }

    fn compiler(&self, compiler: Compiler) -> Result<Command> {
        let mut out = command(if compiler.language == Language::Cpp { "c++" } else { "cc" });
        out.arg("-fPIE").arg("-isystem").arg(self.recipes().join("link/include"));
        out.args(self.release.definition());
        if compiler.libc == Libc::Musl {
            let own =
                run("asking the compiler for its headers", command("cc").arg("-print-file-name=include"))?;
            out.args(["-nostdinc", "-isystem", MUSL_HEADERS, "-isystem", own.trim(), "-isystem"])
                .arg(self.kernel_headers()?);
        }
        Ok(out)
    }

    /// Linux's own headers without those of the system's C library, which lie in one folder with them.
    fn kernel_headers(&self) -> Result<PathBuf> {
        let folder = self.sub("headers")?;
        let asm = run("asking the compiler for its name", command("cc").arg("-print-multiarch"))?;
        let system = Path::new("/usr/include");
        for (name, target) in [
            ("linux", system.join("linux")),
            ("asm-generic", system.join("asm-generic")),
            ("asm", system.join(asm.trim()).join("asm")),
        ] {
            let link = folder.join(name);
            match symlink(&target, &link) {
                Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
                    return Err(LinuxError::io("write", &link, &e));
                }
                _ => {}
            }
        }
        Ok(folder)
    }

    /// What stands before and behind the arguments of a link.
    fn around(&self, compiler: Compiler) -> Result<Around> {
        let ask = |name: &str| {
            let argument = format!("-print-file-name={name}");
            let path = run("asking the compiler for its files", command("cc").arg(argument))?;
            Ok::<_, LinuxError>(PathBuf::from(path.trim()))
        };
        let libraries = match compiler.libc {
            Libc::Musl => PathBuf::from(MUSL),
            Libc::Glibc => {
                let start = ask("crt1.o")?;
                let folder = start.parent().map(Path::to_path_buf).unwrap_or_default();
                folder.canonicalize().unwrap_or(folder)
            }
        };
        let script = self.recipes().join("link/program.lds");
        let mut before: Vec<OsString> =
            ["crt1.o", "crti.o"].iter().map(|n| libraries.join(n).into()).collect();
        before.push(ask("crtbeginS.o")?.into());
        before.extend(["-T".into(), script.into()]);
        for option in ["--eh-frame-hdr", "--build-id=none", "--warn-execstack"] {
            before.push(format!("-Wl,{option}").into());
        }
        before.push(format!("-Wl,--defsym,unilith_place={}", compiler.place).into());
        let mut behind: Vec<OsString> = Vec::new();
        let mut directory = OsString::from("-L");
        directory.push(&libraries);
        behind.push(directory);
        let own = match compiler.language {
            Language::Cpp => ["-lstdc++", "-lm"].as_slice(),
            Language::C => &[],
        };
        behind.extend(own.iter().map(OsString::from));
        behind
            .extend(["-Wl,--start-group", "-lgcc", "-lgcc_eh", "-lc", "-Wl,--end-group"].map(OsString::from));
        behind.extend([ask("crtendS.o")?.into(), libraries.join("crtn.o").into()]);
        Ok(Around { before, behind, libraries })
    }
}

struct Around {
    before: Vec<OsString>,
    behind: Vec<OsString>,
    libraries: PathBuf,
}

pub(crate) fn check_musl(language: Language) -> Result<()> {
    if language == Language::Cpp {
        return Err(LinuxError::new("--libc musl: Debian has no C++ library for musl; leave it out"));
    }
    if !Path::new(MUSL).join("libc.a").is_file() {
        return Err(LinuxError::new("--libc musl: it is not there; install musl-dev"));
    }
    Ok(())
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
    command.stdin(std::process::Stdio::inherit()).stdout(std::process::Stdio::inherit());
    let output = command.output().map_err(|e| start_error(command, &e))?;
    let messages = String::from_utf8_lossy(&output.stderr).into_owned();
    let code = output.status.code().and_then(|c| u8::try_from(c).ok()).unwrap_or(1);
    Ok(Outcome { code, messages, warning: None, calls: None })
}
