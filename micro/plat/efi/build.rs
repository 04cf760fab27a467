// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Linker arguments of the stub: a file that runs wherever firmware puts it, without a C library.

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
        "-static-pie",
        "-Wl,--no-dynamic-linker",
        "-Wl,--build-id=none",
        "-Wl,-z,max-page-size=4096",
        "-Wl,-z,norelro",
        "-Wl,-z,noexecstack",
        "-Wl,-z,text",
    ] {
        println!("cargo:rustc-link-arg-bins={argument}");
    }
    println!("cargo:rustc-link-arg-bins=-Wl,-T,{folder}/stub.ld");
    println!("cargo:rerun-if-changed={folder}/stub.ld");
}
