// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Linker arguments of the kernel image: a static, position-dependent file without a C library.

use std::env;

fn main() {
    // Profiles made from `dev` unwind; there the package is an empty host program (cfg(panic) in main.rs), so that
    // checks and tests of the whole workspace can build it.
    if env::var("PROFILE").as_deref() != Ok("release") {
        return;
    }
    let folder = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    for argument in [
        "-nostartfiles",
        "-nostdlib",
        "-static",
        "-no-pie",
        "-Wl,--build-id=none",
        "-Wl,-z,max-page-size=4096",
        "-Wl,-z,norelro",
        "-Wl,-z,noexecstack",
        "-Wl,--no-dynamic-linker",
    ] {
        println!("cargo:rustc-link-arg-bins={argument}");
    }
    println!("cargo:rustc-link-arg-bins=-Wl,-T,{folder}/link.ld");
    println!("cargo:rerun-if-changed={folder}/link.ld");
}
