// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Linker arguments of the kernel images: each a static, position-dependent file without a C library.

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
    for (binary, script) in [("kernel", "link.ld"), ("kernel-process", "process.ld")] {
        println!("cargo:rustc-link-arg-bin={binary}=-Wl,-T,{folder}/{script}");
        println!("cargo:rerun-if-changed={folder}/{script}");
    }
}
