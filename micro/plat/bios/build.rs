// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Linker arguments of the loader: it runs at fixed addresses, without a C library.

use std::env;

fn main() {
    // As with the kernel: profiles made from `dev` build an empty host program.
    if env::var("PROFILE").as_deref() != Ok("release") {
        return;
    }
    let folder = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    for argument in [
        "-nostartfiles",
        "-nostdlib",
        "-static",
        "-no-pie",
        "-Wl,--no-dynamic-linker",
        "-Wl,--build-id=none",
        "-Wl,-z,max-page-size=16",
        "-Wl,-z,norelro",
        "-Wl,-z,noexecstack",
    ] {
        println!("cargo:rustc-link-arg-bins={argument}");
    }
    println!("cargo:rustc-link-arg-bins=-Wl,-T,{folder}/loader.ld");
    println!("cargo:rerun-if-changed={folder}/loader.ld");
}
