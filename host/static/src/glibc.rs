// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Debian's glibc for linked programs: its own `libc.a`, whose system calls are made jumps to the kernel once and kept.
//!
//! What loads libraries (`dl-open.o`) is left out: a library makes its calls by the instruction, for which nothing is linked.
//! `dlopen` then fails with a sentence, and so does what tries it by itself, such as conversions of `iconv` that are no part of
//! the C library. Names of hosts and users are looked up by code that is in glibc itself (`files` and `dns`).

use crate::{
    Result, StaticError, Workshop, appear,
    archive::{Member, rewrite},
    command,
    flavour::{aligned, is_object},
    key, read, run,
    syscalls::{self, ANY, KEPT},
    write,
};
use object::read::archive::ArchiveFile;
use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};
use unilith_image::Progress;

/// What decides what becomes of the archive: one that is kept was made by this.
const RECIPE: [&str; 8] = [
    include_str!("glibc.rs"),
    include_str!("archive.rs"),
    include_str!("syscalls.rs"),
    include_str!("syscalls/edit.rs"),
    include_str!("syscalls/function.rs"),
    include_str!("syscalls/number.rs"),
    include_str!("syscalls/sites.rs"),
    include_str!("syscalls/targets.rs"),
];

/// The member of `libc.a` that loads libraries.
const LOADER: &str = "dl-open.o";

/// What takes its place: `_dl_open` signals an error, and no address belongs to a loaded library.
const NO_LOADER: &str = "
    .section .text.unilith_no_loader,\"ax\",@progbits
    .globl _dl_open
    .type _dl_open, @function
_dl_open:
    mov %rdi, %rsi
    xor %edi, %edi
    xor %edx, %edx
    lea reason(%rip), %rcx
    jmp _dl_signal_error
    .globl _dl_find_dso_for_object
    .type _dl_find_dso_for_object, @function
_dl_find_dso_for_object:
    xor %eax, %eax
    ret
    .section .rodata.unilith_no_loader,\"a\",@progbits
reason: .asciz \"a program that is linked with its kernel loads no libraries; leave out --static\"
    .section .note.GNU-stack,\"\",@progbits
";

/// The member of `libc.a` that changes the user and groups of all threads: whoever does so leaves the number of his call to the
/// other threads. Each program with threads has it.
const SETXID: &str = "nptl_setxid.o";
/// What takes the place of a call by any number there.
const SETXID_CALL: &str = "unilith_libc_setxid";
/// What it calls: futex, setuid, setgid, setreuid, setregid, setgroups, setresuid and setresgid.
const SETXID_NUMBERS: [u32; 8] = [202, 105, 106, 113, 114, 116, 117, 119];

/// A function that is called as those of the kernel are, and makes one of these calls.
fn setxid_call() -> String {
    let one = |number: u32| format!("movabs ${KEPT}{number}, %r11\ncmp ${number}, %eax\nje 1f\n");
    let all: String = SETXID_NUMBERS.into_iter().map(one).collect();
    format!(
        ".section .text.{SETXID_CALL},\"ax\",@progbits\n.globl {SETXID_CALL}\n.type {SETXID_CALL}, @function\n\
         {SETXID_CALL}:\n{all}mov ${}, %rax\njmp *%rcx\n1: jmp *%r11\n.section .note.GNU-stack,\"\",@progbits\n",
        -ENOSYS
    )
}

const ENOSYS: i32 = 38;

/// Debian's glibc, and its C++ library if it is installed.
#[derive(Clone, Debug)]
pub struct Glibc {
    folder: PathBuf,
}

impl Glibc {
    /// `libc.a` with calls of the kernel.
    pub fn archive(&self) -> PathBuf {
        self.folder.join("libc.a")
    }

    /// The C++ library, if it is installed.
    fn cpp(&self) -> Option<PathBuf> {
        Some(self.folder.join(CPP)).filter(|path| path.is_file())
    }

    /// Libraries beside the C library that make system calls.
    pub(crate) fn others(&self) -> Result<Vec<(PathBuf, Vec<u8>)>> {
        self.cpp().map(|path| Ok((path.clone(), read(&path)?))).into_iter().collect()
    }

    /// What a link of a program with the kernel takes: start files, these objects, and the libraries.
    pub(crate) fn around(&self, objects: &[PathBuf]) -> Result<Vec<OsString>> {
        let mut out: Vec<OsString> = Vec::new();
        for name in ["crt1.o", "crti.o", "crtbegin.o"] {
            out.push(needed(name)?.into());
        }
        out.extend(objects.iter().map(|object| object.clone().into_os_string()));
        out.push("--start-group".into());
        // Only what a program refers to is taken of them.
        out.extend(self.cpp().map(OsString::from));
        for name in ["libm.a", "libresolv.a", "libatomic.a"] {
            out.extend(file(name)?.map(OsString::from));
        }
        for name in ["libgcc.a", "libgcc_eh.a"] {
            out.push(needed(name)?.into());
        }
        out.extend([self.archive().into(), "--end-group".into()]);
        for name in ["crtend.o", "crtn.o"] {
            out.push(needed(name)?.into());
        }
        Ok(out)
    }
}

const CPP: &str = "libstdc++.a";

/// A file of the compiler or the C library.
fn file(name: &str) -> Result<Option<PathBuf>> {
    let mut ask = command("gcc");
    let path = run("asking the compiler for its files", ask.arg(format!("-print-file-name={name}")))?;
    let path = PathBuf::from(path.trim());
    Ok(path.is_absolute().then_some(path))
}

fn needed(name: &str) -> Result<PathBuf> {
    file(name)?.ok_or_else(|| {
        StaticError::new(format!("--libc glibc needs {name}: run `sudo apt-get install gcc libc6-dev`"))
    })
}

impl Workshop {
    /// glibc, from the cache or newly made of Debian's.
    pub fn glibc(&self, progress: &dyn Progress) -> Result<Glibc> {
        let from = needed("libc.a")?;
        let bytes = read(&from)?;
        let cpp = file(CPP)?.map_or(Ok(Vec::new()), |path| read(&path))?;
        let parts = RECIPE.iter().map(|text| text.as_bytes()).chain([&bytes[..], &cpp]);
        let folder = self.sub("glibc")?.join(key(parts));
        if !folder.join("libc.a").is_file() {
            progress.step("making glibc's system calls calls of the kernel");
            appear(&folder, |new| {
                connect_libc(&bytes, new)?;
                if cpp.is_empty() { Ok(()) } else { connect_archive(&cpp, &new.join(CPP), Vec::new()) }
            })?;
        }
        Ok(Glibc { folder })
    }

    /// The objects of a program, put together: system calls that it makes itself become calls of the kernel too.
    pub(crate) fn connect_program(objects: &[u8]) -> Result<Vec<u8>> {
        let done = syscalls::connect(objects, "the program", ANY)?;
        match done.left.first() {
            Some(function) => Err(no_room(&format!("the program: {function}"))),
            None => Ok(done.object.unwrap_or_else(|| objects.to_vec())),
        }
    }
}

/// Refuses a program with a system call that cannot be made one of the kernel. `together` are its objects in one; of `inputs`, what
/// the compiler was given, the error names the one that has it.
pub(crate) fn check(together: &[u8], inputs: &[OsString]) -> Result<()> {
    let done = syscalls::connect(together, "the program", ANY)?;
    let Some(function) = done.left.first() else { return Ok(()) };
    let has_it =
        |bytes: &[u8]| syscalls::connect(bytes, "", ANY).is_ok_and(|own| own.left.contains(function));
    for path in inputs.iter().map(Path::new).filter(|path| is_object(path) && path.is_file()) {
        let bytes = read(path)?;
        let of = match ArchiveFile::parse(&bytes[..]) {
            Ok(archive) => archive
                .members()
                .flatten()
                .find(|member| aligned(member, &bytes).is_some_and(|data| has_it(&data)))
                .map(|member| format!("{}({})", path.display(), String::from_utf8_lossy(member.name()))),
            Err(_) => has_it(&bytes).then(|| path.display().to_string()),
        };
        if let Some(of) = of {
            return Err(no_room(&format!("{of}: {function}")));
        }
    }
    Err(no_room(&format!("the program: {function}")))
}

fn no_room(place: &str) -> StaticError {
    StaticError::new(format!(
        "{place}: there is no room for a jump around its instruction `syscall`, by which the kernel would be called: make the call by \
         the C library, with syscall(2)"
    ))
}

/// Writes a `libc.a` whose system calls are calls of the kernel.
pub(crate) fn connect_libc(bytes: &[u8], folder: &Path) -> Result<()> {
    let assembled = |name: &str, text: &str| {
        let (source, object) = (folder.join(name).with_extension("s"), folder.join(name));
        write(&source, text)?;
        run("assembling", command("gcc").arg("-c").arg(&source).arg("-o").arg(&object))?;
        Ok((name.to_string(), read(&object)?))
    };
    let new = vec![
        assembled("unilith-no-loader.o", NO_LOADER)?,
        assembled("unilith-setxid.o", &setxid_call())?,
        assembled("unilith-syscalls.o", &syscalls::functions())?,
    ];
    connect_archive(bytes, &folder.join("libc.a"), new)
}

fn connect_archive(bytes: &[u8], to: &Path, new: Vec<(String, Vec<u8>)>) -> Result<()> {
    let mut left = Vec::new();
    rewrite(bytes, to, new, |name, data| {
        if name == LOADER {
            return Ok(Member::Gone);
        }
        let done = syscalls::connect(data, name, if name == SETXID { SETXID_CALL } else { ANY })?;
        left.extend(done.left.iter().map(|function| format!("{function} ({name})")));
        Ok(done.object.map_or(Member::Kept, Member::Changed))
    })?;
    if left.is_empty() {
        return Ok(());
    }
    Err(StaticError::new(format!(
        "{} cannot be linked with the kernel: there is no room for a jump around system calls of {}",
        to.file_name().unwrap_or_default().display(),
        left.join(", ")
    )))
}

/// A name of the kernel's for a call by the instruction, as that of a call of musl's.
pub(crate) fn plain(name: &str) -> String {
    name.strip_prefix(KEPT).map_or_else(|| name.to_string(), |number| format!("unilith_syscall_{number}"))
}
