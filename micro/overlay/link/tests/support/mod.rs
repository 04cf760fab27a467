// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Objects of the host's compiler.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![allow(dead_code, reason = "each test file uses some")]

use overlay_link::{Definition, Error, Image, Input, Place, Plan};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Compiles C; the compiler is the one that links Rust programs, so it is there.
pub fn compile(source: &str, flags: &[&str]) -> Vec<u8> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let directory =
        std::env::temp_dir().join(format!("unilith-overlay-link-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let (c, o) = (directory.join("x.c"), directory.join("x.o"));
    std::fs::write(&c, source).unwrap();
    let status = Command::new("cc").args(flags).arg("-c").arg(&c).arg("-o").arg(&o).status().unwrap();
    assert!(status.success(), "the test's C does not compile");
    let bytes = std::fs::read(&o).unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
    bytes
}

pub fn nothing(_: &[u8]) -> Option<Definition> {
    None
}

/// Links objects to an address without running them.
pub fn link(objects: &[(&str, &[u8])], resolver: &dyn overlay_link::Resolver) -> Result<Image, Error> {
    let inputs: Vec<Input> = objects.iter().map(|(name, bytes)| Input { name, bytes }).collect();
    Plan::new(&inputs, resolver)?.place(Place { base: 0xffff_ffff_4000_0000, canary: 0x1234 })
}

pub fn refusal(objects: &[(&str, &[u8])]) -> String {
    let text = link(objects, &nothing).map(|_| ()).unwrap_err().to_string();
    assert!(!text.contains('\n'), "one line: {text:?}");
    text
}
