// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The micro kernel as LLVM's bitcode, for links that optimise program and kernel (`--lto`).

use super::{cargo, kept};
use crate::{
    fault::{Fault, Result, file},
    progress::Progress,
};
use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};
use unilith_image::Progress as _;
use unilith_machine::record::Platform;

/// A kernel to be optimised.
pub struct Bitcode {
    /// All of its crates as one module, before link-time optimisation. What the platform reaches has kept its name.
    pub module: PathBuf,
    /// The static library that was made with it: it has the functions that a compiler takes for granted, such as `memcpy`.
    pub library: PathBuf,
    /// What it is optimised for, as LLVM names its pipelines.
    pub level: &'static str,
}

/// What rustc calls the module that it is about to optimise, with `-C save-temps`.
const MODULE: &str = ".lto.after-restriction.bc";

/// The kernel's bitcode, from the cache or newly compiled with the profile of the platform's kernel; `for_speed`: of process
/// machines' kernel, for an optimiser that learns from counts what is to be small.
pub fn bitcode(
    platform: Platform,
    features: &[&str],
    for_speed: bool,
    progress: &Progress,
) -> Result<Bitcode> {
    let feature = if platform.is_process() { "plat-process" } else { "plat-pc" };
    // The levels are those of the profiles in Cargo.toml.
    let (profile, level) =
        if for_speed || platform.is_process() { ("kernel-process", "O3") } else { ("kernel", "Oz") };
    let features: Vec<&str> = features.iter().copied().chain([feature, "linked"]).collect();
    let library = |module: &Path| module.with_file_name("kernel.a");
    let recipe = format!("{profile} {}", include_str!("bitcode.rs"));
    let module = kept("kernel.bc", &features, &recipe, progress, |root, new| {
        progress.step("compiling the kernel to bitcode");
        let what = ["rustc", "-p", "kernel", "--lib", "--crate-type", "staticlib", "--profile", profile];
        let built = cargo(root, &what, &features, &["-C", "save-temps"], progress)?.join(profile);
        let from = built.join("libkernel_image.a");
        let temporary = temporary_files(&built.join("deps"), &from)?;
        // It stays there: cargo does not make it again as long as nothing changes.
        let (modules, useless): (Vec<_>, Vec<_>) =
            temporary.into_iter().partition(|path| path.to_string_lossy().ends_with(MODULE));
        let [module] = &modules[..] else {
            return Err(Fault::new(
                "this Rust compiler keeps no bitcode of a kernel (-C save-temps): leave out --lto, or take the compiler of rustup",
            ));
        };
        fs::copy(module, new).map_err(file("copy the bitcode to", new))?;
        fs::copy(&from, library(new)).map_err(file("copy", &from))?;
        for path in &useless {
            fs::remove_file(path).map_err(file("remove", path))?;
        }
        Ok(())
    })?;
    Ok(Bitcode { library: library(&module), module, level })
}

/// What rustc kept beside a library in a folder of cargo's, where the library is a link to one with the hash of its choices.
fn temporary_files(folder: &Path, library: &Path) -> Result<Vec<PathBuf>> {
    let library = fs::metadata(library).map_err(file("read", library))?;
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(file("read", folder))? {
        paths.push(entry.map_err(file("read", folder))?.path());
    }
    let is_library = |path: &&PathBuf| {
        path.extension().is_some_and(|ending| ending == "a")
            && fs::metadata(path).is_ok_and(|m| (m.dev(), m.ino()) == (library.dev(), library.ino()))
    };
    let own = paths
        .iter()
        .find(is_library)
        .and_then(|path| path.file_stem()?.to_str()?.strip_prefix("lib"))
        .map(str::to_string);
    let Some(prefix) = own.map(|own| own + ".") else { return Ok(Vec::new()) };
    paths.retain(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(&prefix) && [".bc", ".rcgu.o"].iter().any(|ending| name.ends_with(ending))
    });
    Ok(paths)
}
