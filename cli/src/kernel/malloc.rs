// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A program's `malloc`, made of one of the kernel's heap libraries (`micro/libc/malloc`): an object for a program that is
//! linked with the kernel, and a shared library for one that is not.

use super::{cargo, kept};
use crate::{
    fault::{Fault, Result, file},
    progress::Progress,
};
use std::{fs, path::PathBuf};
use unilith_image::Progress as _;

/// It is compiled as the kernel of process machines is: for speed.
const PROFILE: &str = "kernel-process";

/// The object, from the cache or newly built. `name`: a value of `--set alloc.program`.
pub fn object(name: &str, workshop: &unilith_static::Workshop, progress: &Progress) -> Result<PathBuf> {
    kept("malloc.o", &["linked", name], unilith_static::MALLOC_RECIPE, progress, |root, new| {
        progress.step("building the program's allocator");
        let what = ["rustc", "-p", "libc-malloc", "--lib", "--crate-type", "staticlib", "--profile", PROFILE];
        // Musl is near: no table of addresses, which would be the kernel's (`micro/kernel/linked-pc.ld`).
        let place = ["-C", "relocation-model=static"];
        let built = cargo(root, &what, &["linked", name], &place, progress)?;
        let library = built.join(PROFILE).join("liblibc_malloc.a");
        workshop.malloc_object(&library, new).map_err(|e| Fault::new(e.to_string()))
    })
}

/// The shared library, from the cache or newly built. It needs no other one, so it is the same for each C library.
pub fn library(name: &str, progress: &Progress) -> Result<PathBuf> {
    kept("malloc.so", &["preload", name], "", progress, |root, new| {
        progress.step("building the program's allocator");
        let what = ["rustc", "-p", "libc-malloc", "--lib", "--crate-type", "cdylib", "--profile", PROFILE];
        let alone = ["-C", "link-arg=-nostdlib"];
        let built = cargo(root, &what, &["preload", name], &alone, progress)?;
        let library = built.join(PROFILE).join("liblibc_malloc.so");
        fs::copy(library, new).map(drop).map_err(file("copy the allocator to", new))
    })
}
