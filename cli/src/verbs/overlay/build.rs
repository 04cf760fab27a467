// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith overlay build`: C, C++, assembly, Rust and objects become one relocatable object, with the compilers of this
//! machine.

use crate::fault::{Fault, Result, file};
use crate::output::say;
use std::{
    ffi::{OsStr, OsString},
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The object to write; the first source's name with .o otherwise
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// Keep debug information
    #[arg(short = 'g')]
    debug: bool,
    /// C (.c), C++ (.cc .cpp), assembly (.s .S), Rust (.rs), objects (.o)
    #[arg(required = true)]
    sources: Vec<PathBuf>,
    /// For the compiler of C and C++: -DX, -I, -O1
    #[arg(last = true)]
    flags: Vec<OsString>,
}

/// The SDK, part of this command so that it is there wherever the command is.
const HEADERS: [(&str, &str); 6] = [
    ("unilith/overlay.h", include_str!("../../../../overlay/include/unilith/overlay.h")),
    ("stdio.h", include_str!("../../../../overlay/include/stdio.h")),
    ("stdlib.h", include_str!("../../../../overlay/include/stdlib.h")),
    ("string.h", include_str!("../../../../overlay/include/string.h")),
    ("unistd.h", include_str!("../../../../overlay/include/unistd.h")),
    ("dirent.h", include_str!("../../../../overlay/include/dirent.h")),
];
const RUNTIME: &str = include_str!("../../../../overlay/runtime/runtime.c");
const RUST: &str = include_str!("../../../../overlay/rust/src/lib.rs");

/// How code of a program is compiled. Position-independent, for it lies anywhere; no FS for thread-local variables, for it
/// is the application's while its functions are called; nothing of a C library that is not there.
const C_FLAGS: [&str; 13] = [
    "-O2",
    "-fPIC",
    "-ftls-model=global-dynamic",
    "-ffreestanding",
    "-fstack-protector-strong",
    "-mstack-protector-guard=global",
    "-fcf-protection=none",
    "-fno-asynchronous-unwind-tables",
    "-ffunction-sections",
    "-fdata-sections",
    "-fno-strict-aliasing",
    "-mno-red-zone",
    "-nostdinc",
];

pub fn act(args: &Args) -> Result<u8> {
    let folder = Folder::new()?;
    let include = folder.path.join("include");
    for (name, text) in HEADERS {
        let path = include.join(name);
        fs::create_dir_all(path.parent().unwrap_or(&include)).map_err(file("make", &include))?;
        fs::write(&path, text).map_err(file("write", &path))?;
    }
    let mut build = Build { args, include, folder, objects: Vec::new(), compiler: None };
    for source in &args.sources {
        if !source.exists() {
            return Err(Fault::new(format!("there is no {}", source.display())));
        }
        build.compile(source)?;
    }
    build.runtime()?;
    let output = match &args.output {
        Some(output) => output.clone(),
        None => {
            PathBuf::from(args.sources[0].file_stem().unwrap_or(OsStr::new("program"))).with_extension("o")
        }
    };
    if args.sources.contains(&output) {
        return Err(Fault::new(format!("{} would be overwritten: say where to with -o", output.display())));
    }
    build.join(&output)?;
    say!("{}", output.display());
    Ok(0)
}

/// A folder for what is made on the way; removed in the end.
struct Folder {
    path: PathBuf,
}

impl Folder {
    fn new() -> Result<Folder> {
        let path = std::env::temp_dir().join(format!("unilith-overlay-build-{}", std::process::id()));
        // What is there already is not this process': it may be somebody else's trap.
        fs::DirBuilder::new().mode(0o700).create(&path).map_err(file("make", &path))?;
        Ok(Folder { path })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left over in the temporary directory hurts nobody.
        let _ = fs::remove_dir_all(&self.path);
    }
}

struct Build<'a> {
    args: &'a Args,
    folder: Folder,
    include: PathBuf,
    objects: Vec<PathBuf>,
    /// The C compiler, once one was found.
    compiler: Option<OsString>,
}

/// Runs a tool; what it says goes to this command's standard error.
fn run(command: &mut Command, package: &str) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(Fault::new(format!("{name} failed; its messages are above"))),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Err(missing(&name, package)),
        Err(e) => Err(Fault::new(format!("cannot run {name}: {e}"))),
    }
}

fn missing(name: &str, package: &str) -> Fault {
    Fault::new(format!("{name} is not installed: apt-get install {package}"))
}

fn is_there(program: &OsStr) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

/// What a tool prints, without the newline.
fn answer(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_string())
}

impl Build<'_> {
    /// $CC, else gcc, else clang.
    fn c_compiler(&mut self) -> Result<OsString> {
        if let Some(compiler) = &self.compiler {
            return Ok(compiler.clone());
        }
        let candidates = std::env::var_os("CC").into_iter().chain(["gcc".into(), "clang".into()]);
        let compiler =
            candidates.into_iter().find(|c| is_there(c)).ok_or_else(|| missing("a C compiler", "gcc"))?;
        self.compiler = Some(compiler.clone());
        Ok(compiler)
    }

    fn next_object(&mut self) -> PathBuf {
        let object = self.folder.path.join(format!("{}.o", self.objects.len()));
        self.objects.push(object.clone());
        object
    }

    fn compile(&mut self, source: &Path) -> Result<()> {
        match source.extension().and_then(OsStr::to_str) {
            Some("c" | "s" | "S") => {
                let compiler = self.c_compiler()?;
                self.compile_c(&compiler, source, &[], "gcc")
            }
            Some("cc" | "cpp" | "cxx") => {
                let compiler = std::env::var_os("CXX").unwrap_or_else(|| {
                    if is_there(OsStr::new("g++")) { "g++".into() } else { "clang++".into() }
                });
                let flags = ["-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics", "-nostdinc++"];
                self.compile_c(&compiler, source, &flags, "g++")
            }
            Some("rs") => self.compile_rust(source),
            Some("o") => {
                self.objects.push(source.to_path_buf());
                Ok(())
            }
            _ => Err(Fault::new(format!(
                "{}: of this kind nothing can be made; C, C++, assembly, Rust and objects can",
                source.display()
            ))),
        }
    }

    fn compile_c(&mut self, compiler: &OsStr, source: &Path, more: &[&str], package: &str) -> Result<()> {
        let object = self.next_object();
        // The compiler's own headers: stddef.h, stdint.h, stdarg.h.
        let own = answer(Command::new(compiler).arg("-print-file-name=include")).or_else(|| {
            answer(Command::new(compiler).arg("-print-resource-dir")).map(|path| path + "/include")
        });
        let mut command = Command::new(compiler);
        command.args(C_FLAGS).args(more);
        if let Some(own) = own {
            command.arg("-isystem").arg(own);
        }
        if self.args.debug {
            command.arg("-g");
        }
        command.arg("-I").arg(&self.include).args(&self.args.flags);
        command.arg("-c").arg(source).arg("-o").arg(object);
        run(&mut command, package)
    }

    /// The SDK as a library, and the program over it as a static library: the linker takes the members that are used.
    fn compile_rust(&mut self, source: &Path) -> Result<()> {
        let sdk = self.folder.path.join("unilith_program.rs");
        fs::write(&sdk, RUST).map_err(file("write", &sdk))?;
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let common = |kind: &str| {
            let mut command = Command::new(&rustc);
            command.args([
                "--edition",
                "2024",
                "--crate-type",
                kind,
                "-C",
                "panic=abort",
                "-C",
                "opt-level=s",
            ]);
            command.args(["-C", "relocation-model=pic", "-C", "lto=no", "-C", "codegen-units=1"]);
            command.arg("--out-dir").arg(&self.folder.path);
            command
        };
        run(common("rlib").arg("--crate-name").arg("unilith_program").arg(&sdk), "rustc")?;
        let mut command = common("staticlib");
        command
            .args(["--crate-name", "program", "--extern", "unilith_program"])
            .arg("-L")
            .arg(&self.folder.path)
            .arg(source);
        run(&mut command, "rustc")?;
        self.objects.push(self.folder.path.join("libprogram.a"));
        Ok(())
    }

    /// What the runtime has and the program uses.
    fn runtime(&mut self) -> Result<()> {
        let source = self.folder.path.join("runtime.c");
        fs::write(&source, RUNTIME).map_err(file("write", &source))?;
        let compiler = self.c_compiler()?;
        let flags = ["-Os", "-fno-builtin", "-fno-tree-loop-distribute-patterns"];
        // clang does not know the last one, and needs it not.
        let flags = if compiler.to_string_lossy().contains("clang") { &flags[..2] } else { &flags[..] };
        self.compile_c(&compiler, &source, flags, "gcc")?;
        // A program may have a function of that name, and two objects with the same ones be loaded together.
        let object = &self.objects[self.objects.len() - 1];
        run(Command::new("objcopy").arg("--weaken").arg(object), "binutils")
    }

    /// One object of all, without what nobody uses.
    fn join(&self, output: &Path) -> Result<()> {
        let link = |flags: &[&str]| {
            let mut command = Command::new("ld");
            command.arg("-r").args(flags).arg("-o").arg(output).args(&self.objects);
            if !self.args.debug {
                command.arg("-S");
            }
            command
        };
        // What has no `main` is a part of a program, of which nothing can be left out.
        let whole = link(&["--gc-sections", "-u", "main"]).stderr(Stdio::null()).status();
        if !whole.is_ok_and(|status| status.success()) {
            run(&mut link(&[]), "binutils")?;
        }
        if self.objects.iter().any(|object| object.extension().is_some_and(|e| e == "a")) {
            // Rust's own libraries come with bitcode, and with tables for unwinding, which is not done here.
            let mut command = Command::new("objcopy");
            command.args([
                "-w",
                "-R",
                ".llvmbc",
                "-R",
                ".llvmcmd",
                "-R",
                ".gcc_except_table*",
                "-R",
                ".eh_frame",
            ]);
            run(command.arg(output), "binutils")?;
        }
        Ok(())
    }
}
