// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Debian's glibc for linked programs: its own `libc.a`, whose system calls are made jumps to the kernel once and kept.
//!
//! What loads libraries (`dl-open.o`) is left out: a library makes its calls by the instruction, for which nothing is linked.
//! `dlopen` then fails with a sentence, and so does what tries it by itself, such as conversions of `iconv` that are no part of
//! the C library. Names of hosts and users are looked up by code that is in glibc itself (`files` and `dns`).

use crate::{
    Result, StaticError, Workshop, appear,
    archive::{Member, rewrite},
    command, key, read, run,
    syscalls::{self, KEPT},
    write,
};
use std::{
    collections::BTreeSet,
    ffi::OsString,
    path::{Path, PathBuf},
};
use unilith_image::Progress;

/// What decides what becomes of the archive: one that is kept was made by this.
const RECIPE: [&str; 7] = [
    include_str!("glibc.rs"),
    include_str!("archive.rs"),
    include_str!("syscalls.rs"),
    include_str!("syscalls/edit.rs"),
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
    pub(crate) fn others(&self) -> Result<Vec<(PathBuf, Vec<u8>)>> {
        file("libstdc++.a")?.map(|path| Ok((path.clone(), read(&path)?))).into_iter().collect()
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
        for name in ["libstdc++.a", "libm.a", "libresolv.a", "libatomic.a"] {
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
        let parts = RECIPE.iter().map(|text| text.as_bytes()).chain([&bytes[..]]);
        let folder = self.sub("glibc")?.join(key(parts));
        if !folder.join("libc.a").is_file() {
            progress.step("making glibc's system calls calls of the kernel");
            appear(&folder, |new| connect_archive(&bytes, new))?;
        }
        Ok(Glibc { folder })
    }

    /// The objects of a program: system calls that it makes itself become calls of the kernel too. With a sentence for each function
    /// that keeps some.
    pub(crate) fn connect_program(objects: &[u8]) -> Result<(Vec<u8>, Vec<String>)> {
        let done = syscalls::connect(objects, "the program")?;
        let left: BTreeSet<&String> = done.left.iter().collect();
        let said = left.into_iter().map(|name| {
            format!("{name}: its instruction `syscall` answers ENOSYS: there is no room for a jump around it")
        });
        let said = said.collect();
        Ok((done.object.unwrap_or_else(|| objects.to_vec()), said))
    }
}

fn connect_archive(bytes: &[u8], new: &Path) -> Result<()> {
    let (source, object) = (new.join("no-loader.s"), new.join("no-loader.o"));
    write(&source, NO_LOADER)?;
    run("assembling", command("gcc").arg("-c").arg(&source).arg("-o").arg(&object))?;
    let no_loader = read(&object)?;
    let mut left = Vec::new();
    rewrite(bytes, &new.join("libc.a"), |name, data| {
        if name == LOADER {
            return Ok(Member::Changed(no_loader.clone()));
        }
        let done = syscalls::connect(data, name)?;
        left.extend(done.left.iter().map(|function| format!("{function} ({name})")));
        Ok(done.object.map_or(Member::Kept, Member::Changed))
    })?;
    if left.is_empty() {
        return Ok(());
    }
    Err(StaticError::new(format!(
        "this glibc cannot be linked with the kernel: there is no room for a jump around system calls of {}",
        left.join(", ")
    )))
}

/// A name of the kernel's for a call by the instruction, as that of a call of musl's.
pub(crate) fn plain(name: &str) -> String {
    name.strip_prefix(KEPT).map_or_else(|| name.to_string(), |number| format!("unilith_syscall_{number}"))
}
