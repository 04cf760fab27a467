// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs that are linked with the micro kernel into one image (`unilith build --static`).
//!
//! | step | what |
//! | --- | --- |
//! | [`Workshop::libc`] | musl from Debian's source, whose system calls are calls of functions (`micro/libc/musl`) |
//! | [`Workshop::glibc`] | or Debian's glibc, whose system calls become calls of functions (`syscalls.rs`) |
//! | [`Workshop::compile`] | `unilith cc`: a compiler. What it links is an ordinary program of Linux, with its objects beside it |
//! | [`Lto`] | both sides optimised at the link, from bitcode (`--lto`), for a profile too (`--profile-use`) |
//! | [`Workshop::link`] | those objects, the C library and the kernel, in one link |
//! | [`size`] | what such an image is made of |
//!
//! The kernel comes as a relocatable object whose functions have sections of their own; what nobody calls is left out.
#![forbid(unsafe_code)]

pub mod anatomy;
mod archive;
mod bitcode;
mod compile;
pub mod counts;
mod flavour;
mod glibc;
pub mod graph;
mod image;
mod kernel;
pub mod layered;
mod libc;
mod lto;
mod malloc;
pub mod owner;
pub mod profile;
mod reach;
mod relax;
pub mod size;
mod slots;
mod syscalls;
pub mod treemap;

pub use bitcode::modules;
pub use compile::{LTO, Outcome};
pub use flavour::{Flavour, LINK_SECTIONS, Language, Libc, Objects, objects_of};
pub use image::Linked;
pub use kernel::RECIPE;
pub use lto::{How, Kernel, Lto};
pub use malloc::{Malloc, RECIPE as MALLOC_RECIPE};

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    process::Command,
};
use unilith_image::Cache;

/// Why a step failed: one line that says what to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticError(String);

impl fmt::Display for StaticError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StaticError {}

impl StaticError {
    fn new(message: impl Into<String>) -> StaticError {
        StaticError(message.into().trim().replace(['\n', '\r'], " "))
    }

    fn io(doing: &str, path: &Path, error: &io::Error) -> StaticError {
        StaticError::new(format!("cannot {doing} {}: {error}", path.display()))
    }
}

pub type Result<T> = std::result::Result<T, StaticError>;

/// Where programs are linked: this repository's sources, and a folder of the cache.
#[derive(Clone, Debug)]
pub struct Workshop {
    micro: PathBuf,
    cache: Cache,
}

impl Workshop {
    /// `repository` holds `micro/libc` and `micro/kernel`.
    pub fn new(repository: &Path, cache: &Cache) -> Workshop {
        Workshop { micro: repository.join("micro"), cache: cache.clone() }
    }

    fn sub(&self, name: &str) -> Result<PathBuf> {
        let path = self.cache.folder().join("static").join(name);
        fs::create_dir_all(&path).map_err(|e| StaticError::io("make the cache folder", &path, &e))?;
        Ok(path)
    }
}

/// A command whose output can be parsed.
fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("LC_ALL", "C").env_remove("MAKEFLAGS").stdin(std::process::Stdio::null());
    command
}

/// Runs it and returns its standard output; the error names `doing` and what it complained of.
fn run(doing: &str, command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|e| StaticError::new(format!("cannot run {program}: {e}")))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    let said = text(&[&output.stdout[..], b"\n", &output.stderr[..]].concat());
    let complaint = said.lines().find(|l| l.contains("error") || l.contains("***"));
    let last = said.lines().rev().find(|l| !l.trim().is_empty());
    Err(StaticError::new(format!("{doing} failed: {}", complaint.or(last).unwrap_or("no reason was given"))))
}

fn write(path: &Path, bytes: impl AsRef<[u8]>) -> Result<()> {
    fs::write(path, bytes).map_err(|e| StaticError::io("write", path, &e))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(|e| StaticError::io("read", path, &e))
}

/// The hexadecimal beginning of a hash of all parts; lengths keep the boundaries between them.
fn key<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    use sha2::{Digest, Sha256};
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize()[..12].iter().map(|b| format!("{b:02x}")).collect()
}

/// Makes a folder's contents under another name, which appears when it is whole.
fn appear(target: &Path, make: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let new = target.with_extension(format!("new.{}", std::process::id()));
    let clear = |folder: &Path| match fs::remove_dir_all(folder) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(StaticError::io("remove", folder, &e)),
        _ => Ok(()),
    };
    clear(&new)?;
    fs::create_dir_all(&new).map_err(|e| StaticError::io("make", &new, &e))?;
    make(&new)?;
    clear(target)?;
    fs::rename(&new, target).map_err(|e| StaticError::io("write", target, &e))
}
