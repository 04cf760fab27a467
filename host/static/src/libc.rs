// SPDX-License-Identifier: Apache-2.0 OR MIT
//! musl for linked programs, built from Debian's source.
//!
//! `micro/libc/musl` has what is other than in musl: a patch, and files that take the place of musl's own. A call of the
//! kernel is a jump to a symbol there, `unilith_syscall_NUMBER`. A program that runs on Linux gets these symbols from
//! `native.o`, where each makes the system call.

use crate::{Result, StaticError, Workshop, appear, command, key, read, run, write};
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    thread,
};
use unilith_image::{Progress, SourcePackage};

/// What is compiled in: no code for unwinding, and a section for each function, so that the linker can leave it out.
const FLAGS: &str = "-Os -fno-pie -fno-stack-protector -ffunction-sections -fdata-sections";
/// Libraries that are empty with musl, for build systems that name them.
const EMPTY: [&str; 8] = ["m", "rt", "pthread", "crypt", "util", "xnet", "resolv", "dl"];
/// What the build takes: the program or file to look for, and Debian's package that has it.
const TOOLS: [(&str, &str); 6] = [
    ("/usr/bin/make", "make"),
    ("/usr/bin/gcc", "gcc"),
    ("/usr/bin/ld", "binutils"),
    ("/usr/bin/patch", "patch"),
    ("/usr/bin/dpkg-source", "dpkg-dev"),
    ("/usr/include/linux/version.h", "linux-libc-dev"),
];

/// A built C library: `include`, and in `lib` `libc.a`, the start files, `native.o` and the raw APIs' `libunilith-*.a`.
#[derive(Clone, Debug)]
pub struct Libc {
    pub folder: PathBuf,
}

impl Libc {
    pub fn lib(&self, name: &str) -> PathBuf {
        self.folder.join("lib").join(name)
    }
}

impl Workshop {
    /// The C library, from the cache or newly built.
    pub fn libc(&self, offline: bool, progress: &dyn Progress) -> Result<Libc> {
        let of_image = |e: unilith_image::ImageError| StaticError::new(e.message);
        let package = SourcePackage::find("musl", &self.cache, offline, progress).map_err(of_image)?;
        let changes = files(&self.micro.join("libc/musl"))?;
        let raw = Raw {
            headers: files(&self.micro.join("raw/include"))?,
            program: files(&self.micro.join("raw/program"))?,
        };
        // What is compiled, and what is made here: a library that is kept was made by this.
        let native = native();
        let folder = |package: &SourcePackage| -> Result<PathBuf> {
            let digest = package.digest();
            let mut parts = vec![digest.as_bytes(), FLAGS.as_bytes(), native.as_bytes()];
            let all = changes.iter().chain(&raw.headers).chain(&raw.program);
            parts.extend(all.flat_map(|(name, bytes)| [name.as_bytes(), bytes.as_slice()]));
            Ok(self.sub("musl")?.join(key(parts)))
        };
        let kept = folder(&package)?;
        if kept.join("lib/libc.a").is_file() {
            return Ok(Libc { folder: kept });
        }
        if offline {
            return Err(StaticError::new("the C library has not been built yet; leave out --offline once"));
        }
        let gate = self.sub("musl")?.join("lock");
        let _lock = fs::File::create(&gate)
            .and_then(|f| f.lock().map(|()| f))
            .map_err(|e| StaticError::io("lock", &gate, &e))?;
        need(&TOOLS, "--static", progress)?;
        let (package, description) = package.fetch(&self.cache, progress).map_err(of_image)?;
        let kept = folder(&package)?;
        if !kept.join("lib/libc.a").is_file() {
            progress.step(&format!(
                "building musl {} for programs that are linked with the kernel",
                package.version
            ));
            appear(&kept, |new| {
                build(&description, &changes, new)?;
                raw.build(new)
            })?;
        }
        Ok(Libc { folder: kept })
    }
}

/// Installs the packages of tools that are missing; who is not root is told what `what` needs.
pub(crate) fn need(tools: &[(&str, &str)], what: &str, progress: &dyn Progress) -> Result<()> {
    let lacks = |(what, _): &&(&str, &str)| !Path::new(what).exists();
    let missing: Vec<&str> = tools.iter().filter(lacks).map(|(_, package)| *package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(" ");
    let is_root = fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0);
    if !is_root {
        return Err(StaticError::new(format!("{what} needs {list}: run `sudo apt-get install {list}`")));
    }
    progress.step(&format!("installing {list}"));
    let mut install = command("apt-get");
    install.args(["install", "--yes", "--quiet=2", "--no-install-recommends"]).args(&missing);
    run("installing", install.env("DEBIAN_FRONTEND", "noninteractive")).map(|_| ())
}

/// The raw APIs (`micro/raw`): their headers, and what a program has of them with a kernel and without.
struct Raw {
    headers: BTreeMap<String, Vec<u8>>,
    program: BTreeMap<String, Vec<u8>>,
}

impl Raw {
    /// Adds headers and libraries to a C library.
    fn build(&self, new: &Path) -> Result<()> {
        let put = |folder: &Path, files: &BTreeMap<String, Vec<u8>>| {
            files.iter().try_for_each(|(name, bytes)| {
                let path = folder.join(name);
                let folder = path.parent().unwrap_or(folder);
                fs::create_dir_all(folder).map_err(|e| StaticError::io("make", folder, &e))?;
                write(&path, bytes)
            })
        };
        let include = new.join("include");
        put(&include, &self.headers)?;
        let work = tempfile::tempdir_in(new).map_err(|e| StaticError::io("make a folder in", new, &e))?;
        put(work.path(), &self.program)?;
        // A program takes of an archive what it calls alone.
        for source in self.program.keys() {
            let side = source.split(['-', '.']).next().unwrap_or_default();
            let object = work.path().join(source).with_extension("o");
            let mut compile = command("gcc");
            compile.args([
                "-Os",
                "-fno-pie",
                "-fno-stack-protector",
                "-ffunction-sections",
                "-nostdinc",
                "-isystem",
            ]);
            compile.arg(&include).arg("-c").arg(work.path().join(source)).arg("-o").arg(&object);
            run("compiling the raw APIs' library", &mut compile)?;
            let archive = new.join("lib").join(format!("libunilith-{side}.a"));
            run("packing the raw APIs' library", command("ar").arg("rcsD").arg(archive).arg(&object))?;
        }
        Ok(())
    }
}

/// The files of a folder by their paths in it.
fn files(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).map_err(|e| StaticError::io("read", &next, &e))? {
            let path = entry.map_err(|e| StaticError::io("read", &next, &e))?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(folder).unwrap_or(&path).to_string_lossy().into_owned();
            found.insert(name, read(&path)?);
        }
    }
    Ok(found)
}

fn build(description: &Path, changes: &BTreeMap<String, Vec<u8>>, new: &Path) -> Result<()> {
    let work = tempfile::tempdir_in(new.parent().unwrap_or(new))
        .map_err(|e| StaticError::io("make a folder in", new, &e))?;
    let source = work.path().join("source");
    // apt has verified it already.
    let mut unpack = command("dpkg-source");
    run(
        "unpacking the source of musl",
        unpack.args(["--no-check", "--extract"]).arg(description).arg(&source),
    )?;
    for (name, bytes) in changes {
        let file = source.join(name);
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder).map_err(|e| StaticError::io("make", folder, &e))?;
        }
        write(&file, bytes)?;
        if name.ends_with(".patch") {
            // What has moved is found; what has changed is not guessed at.
            let mut apply = command("patch");
            apply.args(["--strip=1", "--batch", "--forward", "--fuzz=0", "--input"]).arg(&file);
            run("patching musl", apply.current_dir(&source))?;
        }
    }
    // vfork has the parent's stack, where its return address would be overwritten by the child: fork does it.
    let vfork = source.join("src/process/x86_64/vfork.s");
    fs::remove_file(&vfork).map_err(|e| StaticError::io("remove", &vfork, &e))?;
    let mut configure = command("sh");
    configure.args(["./configure", "--disable-shared", "--prefix=/"]).arg(format!("CFLAGS={FLAGS}"));
    run("configuring musl", configure.env("CC", "gcc").current_dir(&source))?;
    let jobs = thread::available_parallelism().map_or(1, usize::from);
    let mut make = command("nice");
    make.args(["-n", "10", "make", &format!("-j{jobs}"), "install-headers", "lib/libc.a"]);
    make.args(["lib/crt1.o", "lib/crti.o", "lib/crtn.o"]).arg(format!("DESTDIR={}", new.display()));
    run("building musl", make.current_dir(&source))?;
    let lib = new.join("lib");
    fs::create_dir_all(&lib).map_err(|e| StaticError::io("make", &lib, &e))?;
    for name in ["libc.a", "crt1.o", "crti.o", "crtn.o"] {
        let (from, to) = (source.join("lib").join(name), lib.join(name));
        fs::copy(&from, &to).map_err(|e| StaticError::io("keep", &from, &e))?;
    }
    for name in EMPTY {
        // An archive without members.
        write(&lib.join(format!("lib{name}.a")), "!<arch>\n")?;
    }
    let text = lib.join("native.s");
    write(&text, native())?;
    let mut assemble = command("gcc");
    run("assembling", assemble.arg("-c").arg(&text).arg("-o").arg(lib.join("native.o")))?;
    kernel_headers(&new.join("include"))
}

/// Linux's own headers are in one folder with those of the system's C library.
fn kernel_headers(include: &Path) -> Result<()> {
    let multiarch = run("asking the compiler for its name", command("gcc").arg("-print-multiarch"))?;
    let system = Path::new("/usr/include");
    for (name, target) in [
        ("linux", system.join("linux")),
        ("asm-generic", system.join("asm-generic")),
        ("asm", system.join(multiarch.trim()).join("asm")),
    ] {
        let link = include.join(name);
        std::os::unix::fs::symlink(&target, &link).map_err(|e| StaticError::io("write", &link, &e))?;
    }
    Ok(())
}

/// The functions `unilith_syscall_NUMBER` of a program that runs on Linux: the same jumps lead to system calls.
fn native() -> String {
    /// clone, munmap of the stack that it runs on, and exit after that: RSP is another, or leads nowhere.
    const WITHOUT_STACK: [u32; 3] = [56, 11, 60];
    let mut out = String::from("# Made by host/static/src/libc.rs.\n");
    let mut function = |name: &str, load: &str, number: Option<u32>| {
        let _ = writeln!(out, ".section .text.{name},\"ax\",@progbits\n.globl {name}\n{name}:");
        if number.is_some_and(|number| WITHOUT_STACK.contains(&number)) {
            // The return address is in a register that these calls have no argument in.
            let _ = writeln!(out, "\tmov %rcx, %r9\n\t{load}\n\tsyscall\n\tjmp *%r9");
        } else {
            // Below what the program may use without having moved RSP (System V ABI, 3.2.2).
            let _ = writeln!(
                out,
                "\tlea -128(%rsp), %rsp\n\tpush %rcx\n\t{load}\n\tsyscall\n\tpop %rcx\n\tlea 128(%rsp), %rsp\n\tjmp *%rcx"
            );
        }
    };
    for row in syscall_table::ROWS {
        // rt_sigreturn finds its frame at RSP.
        const RT_SIGRETURN: u32 = 15;
        if row.number != RT_SIGRETURN {
            let load = format!("mov ${}, %eax", row.number);
            function(&format!("unilith_syscall_{}", row.number), &load, Some(row.number));
        }
    }
    function("unilith_syscall_any", "", None);
    out.push_str(
        ".section .text.unilith_syscall_15,\"ax\",@progbits\n.globl unilith_syscall_15\nunilith_syscall_15:\n\
         \tmov $15, %eax\n\tsyscall\n\thlt\n.section .note.GNU-stack,\"\",@progbits\n",
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_runs_on_linux_finds_a_function_for_each_call() {
        let text = native();
        for row in syscall_table::ROWS {
            assert_eq!(
                text.matches(&format!("\nunilith_syscall_{}:\n", row.number)).count(),
                1,
                "{}",
                row.name
            );
        }
        assert!(text.contains("\nunilith_syscall_any:\n"));
    }

    #[test]
    fn a_thread_ends_without_the_stack_that_it_has_unmapped() {
        let text = native();
        for number in [11, 60] {
            let (_, function) = text.split_once(&format!("\nunilith_syscall_{number}:\n")).unwrap();
            let function = function.split(".section").next().unwrap();
            assert!(!function.contains("push") && !function.contains("pop"), "{function}");
        }
    }
}
