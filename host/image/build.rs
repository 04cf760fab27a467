// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Puts a hash of the sources of this crate and of the one that finds system calls into the program: what they make of a source
//! is in the cache under it, so that a change of them never finds what an earlier one made.

use sha2::{Digest, Sha256};
use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

/// Files below a directory, in the order of their paths.
fn files(directory: &Path, out: &mut Vec<PathBuf>) -> io::Result<()> {
    let mut entries = fs::read_dir(directory)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::path);
    for entry in entries {
        match entry.file_type()?.is_dir() {
            true => files(&entry.path(), out)?,
            false => out.push(entry.path()),
        }
    }
    Ok(())
}

fn main() -> io::Result<()> {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let mut hash = Sha256::new();
    for folder in ["src", "../rewrite/src"] {
        println!("cargo::rerun-if-changed={folder}");
        let folder = here.join(folder);
        let mut all = Vec::new();
        files(&folder, &mut all)?;
        for file in all {
            let name = file.strip_prefix(&folder).unwrap_or(&file).to_string_lossy().into_owned();
            let bytes = fs::read(&file)?;
            for part in [name.as_bytes(), &bytes] {
                hash.update((part.len() as u64).to_le_bytes());
                hash.update(part);
            }
        }
    }
    let hex: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    println!("cargo::rustc-env=UNILITH_GATHERER={hex}");
    Ok(())
}
