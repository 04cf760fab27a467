// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A program's allocator as one object that takes the place of the C library's (`micro/libc/malloc`).

use crate::{
    Result, StaticError, Workshop, command,
    flavour::{Libc, Objects},
    image::exported,
    kernel::USELESS,
    read,
    relax::relax,
    run, write,
};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

/// What decides what becomes of the library: an object that is kept was made by this.
pub const RECIPE: &str = include_str!("malloc.rs");

/// The functions of musl that it takes the place of, all at once: a block of one is none of another.
const FUNCTIONS: [&str; 11] = [
    "malloc",
    "calloc",
    "free",
    "realloc",
    "reallocarray",
    "posix_memalign",
    "aligned_alloc",
    "memalign",
    "valloc",
    "pvalloc",
    "malloc_usable_size",
];

/// An allocator to link a program with.
#[derive(Clone, Debug)]
pub struct Malloc<'a> {
    /// As `--set alloc.program` has it.
    pub name: &'a str,
    /// What [`Workshop::malloc_object`] made.
    pub object: PathBuf,
}

impl Workshop {
    /// Makes the object of the library that was built. Its other names are its own.
    pub fn malloc_object(&self, library: &Path, to: &Path) -> Result<()> {
        let all = to.with_extension("all");
        let mut together = command("ld");
        together.args(FUNCTIONS.iter().flat_map(|name| ["-u", name]));
        run("putting the allocator together", together.args(["-r", "-o"]).arg(&all).arg(library))?;
        let mut localize = command("objcopy");
        localize.args(FUNCTIONS.map(|name| format!("--keep-global-symbol={name}"))).arg("--strip-debug");
        localize.args(USELESS.map(|name| format!("--remove-section={name}")));
        run("hiding the allocator's names", localize.arg(&all).arg(to))?;
        std::fs::remove_file(&all).map_err(|e| StaticError::io("remove", &all, &e))?;
        write(to, relax(&read(to)?)?)
    }
}

impl Malloc<'_> {
    /// Refuses a program that brings an allocator of its own: one of the two would be in the image for nothing, or blocks of one
    /// would be given to the other.
    pub fn check(name: &str, program: &Objects) -> Result<()> {
        if program.libc == Libc::Glibc {
            // The library's lock is one of musl's.
            return Err(StaticError::new(format!(
                "alloc.program={name}: that is for programs with musl; leave it out, or compile the program without --libc glibc"
            )));
        }
        let own: BTreeSet<String> = exported(&program.bytes)?;
        let twice: Vec<&str> = FUNCTIONS.iter().copied().filter(|name| own.contains(*name)).collect();
        if twice.is_empty() {
            return Ok(());
        }
        Err(StaticError::new(format!(
            "alloc.program={name}: the program brings an allocator of its own ({}); leave out --set alloc.program, or build the program \
             with the C library's (of Redis: make MALLOC=libc)",
            twice.join(", ")
        )))
    }
}
