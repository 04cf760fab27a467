// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Link-time optimisation of a program and its kernel, with or without a profile.
//!
//! Both come as LLVM's bitcode: the program's C from clang (`unilith cc --lto`), the kernel's Rust from rustc. The linker of Rust's
//! toolchain has the LLVM that reads both, and runs the passes that are named here. Each side is one module, for each has its own
//! half of the address space, names and constants. The program is optimised first: the system calls that are then left in it and its C
//! library decide which handlers the kernel's module keeps, and all others are removed before the kernel is optimised.
//!
//! An image can count how often its branches are taken (`--lto=count`, `counts.rs`), and the next link can be optimised for these
//! counts (`--profile-use`, `profile.rs`). The passes before counting are the same both times, so that a function which counted has the
//! same control flow where its counts are used.

use crate::{
    Result, StaticError, Workshop, archive, bitcode, command, compile,
    kernel::{all_names, hide, without_kernel},
    key,
    libc::Libc,
    profile::Identity,
    run, write,
};
use object::{Object as _, ObjectSymbol as _};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

/// What decides what is made of bitcode: an image that is kept was made by this.
const RECIPE: &str = include_str!("lto.rs");

/// What optimisers do beyond optimising.
#[derive(Clone, Copy, Debug)]
pub enum How<'a> {
    Plain,
    /// Each function counts how often its branches are taken. The image says what it is by this.
    Count(&'a Identity),
    /// Functions are optimised for such counts: a file that [`Workshop::indexed`] made.
    Use(&'a Path),
}

/// One link with optimisation.
#[derive(Clone, Copy, Debug)]
pub struct Lto<'a> {
    /// `rust-lld`.
    pub linker: &'a Path,
    /// The kernel as one module, and the library that it is from, which has besides what is not Rust's to optimise.
    pub kernel: &'a Path,
    pub library: &'a Path,
    /// What rustc optimises this kernel for, as LLVM names its pipelines: `O3`, or `Oz` for size.
    pub level: &'a str,
    pub how: How<'a>,
}

/// The kernel that a program is linked with.
#[derive(Clone, Copy, Debug)]
pub enum Kernel<'a> {
    /// Machine code: a file named `kernel.o`.
    Object(&'a Path),
    /// Both sides are made anew of their bitcode.
    Bitcode(Lto<'a>),
}

/// What both sides are when they are linked.
pub(crate) struct Sides {
    /// A file named `kernel.o`.
    pub kernel: PathBuf,
    pub program: PathBuf,
    /// Assembly of sections in which the image says what it is.
    pub says: String,
}

/// Functions of the kernel that nobody but the program calls, and only through the entries of `micro/kernel/src/linked.s`.
const SERVES: [&str; 2] = [HANDLER, "unilith_fast_"];
const HANDLER: &str = "unilith_call_";
const SYSCALL: &str = "unilith_syscall_";
/// Stands in a function's name for the call's where the program has a number that is no constant.
const ANY: &str = "any";

impl Lto<'_> {
    /// What tells this link from others of the same objects.
    pub(crate) fn version(&self) -> Result<Vec<u8>> {
        let how = match self.how {
            How::Plain => b"plain".to_vec(),
            How::Count(_) => b"count".to_vec(),
            How::Use(file) => crate::read(file)?,
        };
        Ok(key([RECIPE.as_bytes(), &crate::read(self.kernel)?, self.level.as_bytes(), &how]).into_bytes())
    }

    /// Makes machine code of both sides in the folder. `others`: objects beside the program's that are linked.
    pub(crate) fn make(
        &self,
        libc: &Libc,
        objects: &[u8],
        others: &[PathBuf],
        folder: &Path,
    ) -> Result<Sides> {
        let program = self.program(libc, objects, others, folder)?;
        let calls = calls(libc, &program, others, folder)?;
        let says = match self.how {
            How::Count(identity) => identity.assembly(),
            How::Plain | How::Use(_) => String::new(),
        };
        Ok(Sides { kernel: self.kernel_for(&calls, folder)?, program, says })
    }

    /// Refuses a link in which these handlers are missing although the kernel has them: a call that the program makes must not become
    /// one that answers ENOSYS because nobody saw it.
    pub(crate) fn check_missing(&self, missing: &BTreeSet<String>) -> Result<()> {
        let all = all_names(&crate::read(self.library)?)?;
        match missing.iter().find(|name| all.contains(&format!("{HANDLER}{name}"))) {
            Some(name) => Err(StaticError::new(format!(
                "the program calls {name}, whose handler was removed from the kernel as one that nobody calls: leave out --lto, and report this"
            ))),
            None => Ok(()),
        }
    }

    /// The program as one object: optimised code of its modules, after a check that they are all of it.
    fn program(&self, libc: &Libc, objects: &[u8], others: &[PathBuf], folder: &Path) -> Result<PathBuf> {
        let mut inputs = Vec::new();
        for (index, module) in bitcode::modules(objects)?.iter().enumerate() {
            let path = folder.join(format!("program.{index}.bc"));
            write(&path, module)?;
            inputs.push(path);
        }
        // What others may call by its name: the C library has its main, and its own functions may be replaced.
        let mut keep = BTreeSet::from([String::from("main")]);
        for file in others.iter().chain([&libc.lib("libc.a"), &libc.lib("crt1.o")]) {
            keep.extend(names(&crate::read(file)?, true)?);
        }
        let own = names(objects, false)?;
        let to = folder.join("program.o");
        // What was assembled, or compiled by another compiler, is machine code alone.
        let defined = self.defined(&inputs, folder)?;
        let only: Vec<&str> = own.difference(&defined).take(4).map(String::as_str).collect();
        if !only.is_empty() {
            return Err(StaticError::new(format!(
                "the program has machine code without bitcode ({}): build all of it with CC='unilith cc --lto', or leave out --lto",
                only.join(", ")
            )));
        }
        // clang has not optimised it yet; what the program was compiled for (-Os) its functions say.
        self.optimise("lto-pre-link<O3>,lto<O3>", &inputs, &keep, &to)?;
        Ok(to)
    }

    /// The names that modules define, without optimising anything.
    fn defined(&self, inputs: &[PathBuf], folder: &Path) -> Result<BTreeSet<String>> {
        let all = folder.join("all.o");
        let mut link = self.link(inputs, &all);
        link.args(["--lto-newpm-passes=verify", "--lto-CGO0"]);
        run("reading the program's bitcode", &mut link)?;
        names(&crate::read(&all)?, false)
    }

    fn kernel_for(&self, calls: &BTreeSet<String>, folder: &Path) -> Result<PathBuf> {
        let library = crate::read(self.library)?;
        let keep = all_names(&library)?;
        let is_one = |call: &str| call == ANY || syscall_table::ROWS.iter().any(|row| row.name == call);
        let is_called = |name: &String| match SERVES.iter().find_map(|prefix| name.strip_prefix(prefix)) {
            Some(call) if is_one(call) => calls.contains(ANY) || calls.contains(call),
            _ => true,
        };
        let keep: BTreeSet<String> = keep.into_iter().filter(is_called).collect();
        let made = folder.join("optimised.o");
        // rustc has optimised each crate.
        self.optimise(&format!("lto<{}>", self.level), &[self.kernel.to_path_buf()], &keep, &made)?;
        let to = folder.join("kernel.o");
        // A call that was left out is not to be found there.
        let rest = folder.join("rest.a");
        without_kernel(&library, &rest)?;
        // What LLVM divides 128 bits with is nowhere in it. It has to be the kernel's own: the program's is out of reach.
        let own = run("asking the compiler for its library", command("gcc").arg("-print-libgcc-file-name"))?;
        hide(&[&made, &rest, Path::new(own.trim())], &BTreeSet::new(), &to)?;
        Ok(to)
    }

    /// One object of these modules, in which nobody finds other names than those of `keep`.
    fn optimise(&self, passes: &str, modules: &[PathBuf], keep: &BTreeSet<String>, to: &Path) -> Result<()> {
        let list = to.with_extension("names");
        write(&list, keep.iter().map(|name| format!("{name}\n")).collect::<String>())?;
        let mut link = self.link(modules, to);
        link.args(["-mllvm", &format!("-internalize-public-api-file={}", list.display())]);
        // As rustc does: functions with the same code become one, and the table of addresses is near, and what it has need not be.
        link.args(["-mllvm", "-enable-merge-functions", "-mllvm", "-x86-relax-relocations=false"]);
        // Before anything is counted, or counts are used.
        let counted = "function(sroa,early-cse,simplifycfg,instcombine<no-verify-fixpoint>),globaldce";
        let first = match self.how {
            How::Plain => String::new(),
            How::Count(_) => {
                // Values are counted, and names compressed, by code of a library that no image has.
                link.args(["-mllvm", "-disable-vp", "-mllvm", "-enable-name-compression=false"]);
                format!("{counted},pgo-instr-gen,instrprof,")
            }
            How::Use(file) => {
                link.args(["-mllvm", &format!("-pgo-test-profile-file={}", file.display())]);
                // A function that has no counts is optimised without: what the profile is of was compared before.
                link.args(["-mllvm", "-no-pgo-warn-mismatch"]);
                format!("{counted},pgo-instr-use,require<profile-summary>,")
            }
        };
        link.arg(format!("--lto-newpm-passes=internalize,globaldce,{first}{passes}"));
        run("optimising", &mut link).map(drop)
    }

    fn link(&self, modules: &[PathBuf], to: &Path) -> std::process::Command {
        let mut link = command(&self.linker.to_string_lossy());
        link.args(["-flavor", "gnu", "-r", "--lto-O3", "-o"]).arg(to).args(modules);
        link
    }
}

/// The system calls that a program makes, by name: a link without the kernel, as for Linux, has their functions and no others.
fn calls(libc: &Libc, program: &Path, others: &[PathBuf], folder: &Path) -> Result<BTreeSet<String>> {
    let whole = folder.join("calls");
    let mut objects = vec![program.to_path_buf(), libc.lib("native.o")];
    objects.extend_from_slice(others);
    let mut link = command("ld");
    link.args(["-static", "--gc-sections", "--build-id=none", "-o"]).arg(&whole);
    link.args(compile::around(libc, &objects, "native")?);
    run("looking for the program's calls", &mut link)?;
    let found = names(&crate::read(&whole)?, false)?;
    let number = |name: &String| name.strip_prefix(SYSCALL).map(str::to_string);
    let name = |number: String| {
        let row = syscall_table::ROWS.iter().find(|row| number.parse() == Ok(row.number));
        row.map_or(number, |row| row.name.to_string())
    };
    Ok(found.iter().filter_map(number).map(name).collect())
}

/// The global names that an object or an archive defines, `with_needed` also those that it needs. Functions of assembly have neither a
/// type nor a length, which is all the same here.
fn names(file: &[u8], with_needed: bool) -> Result<BTreeSet<String>> {
    let unreadable = |e: object::Error| StaticError::new(format!("a library: {e}"));
    let mut found = BTreeSet::new();
    let mut add = |object: &[u8]| {
        let file = object::File::parse(object).map_err(unreadable)?;
        let global = file.symbols().filter(|s| s.is_global() && (with_needed || !s.is_undefined()));
        found.extend(global.filter_map(|s| s.name().ok().map(str::to_string)));
        Result::Ok(())
    };
    if !file.starts_with(b"!<arch>") {
        add(file)?;
        return Ok(found);
    }
    for (_, member) in archive::members(file).map_err(unreadable)? {
        add(&member)?;
    }
    Ok(found)
}

impl Workshop {
    /// The linker of the toolchain that a cargo belongs to.
    pub fn linker(cargo: &Path) -> Result<PathBuf> {
        let beside = cargo.with_file_name("rustc");
        let rustc = if beside.is_file() { beside } else { "rustc".into() };
        let ask = |what: &[&str]| run("asking Rust's compiler", command(&rustc.to_string_lossy()).args(what));
        let root = PathBuf::from(ask(&["--print", "sysroot"])?.trim());
        let said = ask(&["-vV"])?;
        let host = said.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default();
        let linker = root.join("lib/rustlib").join(host).join("bin/rust-lld");
        if linker.is_file() {
            return Ok(linker);
        }
        Err(StaticError::new(format!(
            "--lto needs the linker of Rust's toolchain, and {} has none: install the toolchain with rustup, and put its cargo on PATH",
            root.display()
        )))
    }
}
