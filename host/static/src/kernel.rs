// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel as one object that programs are linked with.

use crate::{
    Result, StaticError, Workshop, archive, command, image::exported, read, run, slots::without_table, write,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

/// What decides what becomes of a kernel's library: an object that is kept was made by this.
pub const RECIPE: &str = concat!(include_str!("kernel.rs"), include_str!("slots.rs"));
/// What names of the kernel begin with that a program may use.
const PREFIX: &str = "unilith_";
/// Sections of the objects of Rust that are nothing to a link, or are about unwinding, which it does not do.
pub(crate) const USELESS: [&str; 8] = [
    ".comment",
    ".llvm*",
    ".eh_frame",
    ".rela.eh_frame",
    ".gcc_except_table*",
    ".rela.gcc_except_table*",
    ".note.gnu*",
    ".group",
];

impl Workshop {
    /// Makes one relocatable object of the kernel's library: of its members that have the kernel's names, and of those which they
    /// need. Compilers put more into a library, Debian's Rust what C++ unwinds its stack with. Only what has the kernel's prefix
    /// has a name outside of the object: its `memcpy` is not the program's.
    pub fn kernel_object(&self, library: &Path, to: &Path) -> Result<()> {
        hide(&[library], &kernels_names(&read(library)?)?, to)
    }
}

/// One object of these objects, and of an archive's members what has a name of `wanted` or is needed.
pub(crate) fn hide(inputs: &[&Path], wanted: &BTreeSet<String>, to: &Path) -> Result<()> {
    let all = to.with_extension("all");
    let mut together = command("ld");
    together.args(wanted.iter().flat_map(|name| ["-u", name]));
    run("putting the kernel together", together.args(["-r", "-o"]).arg(&all).args(inputs))?;
    write(&all, without_table(&read(&all)?)?)?;
    let mut localize = command("objcopy");
    localize.args(["--wildcard", &format!("--keep-global-symbol={PREFIX}*"), "--strip-debug"]);
    localize.args(USELESS.map(|name| format!("--remove-section={name}")));
    run("hiding the kernel's names", localize.arg(&all).arg(to))?;
    std::fs::remove_file(&all).map_err(|e| StaticError::io("remove", &all, &e))
}

/// What has the kernel's prefix and is defined in a library.
fn kernels_names(library: &[u8]) -> Result<BTreeSet<String>> {
    Ok(all_names(library)?.into_iter().filter(|name| name.starts_with(PREFIX)).collect())
}

/// What the kernel's own members define, also under the names that a compiler calls, such as `_Unwind_Resume`.
pub(crate) fn all_names(library: &[u8]) -> Result<BTreeSet<String>> {
    Ok(members(library)?.into_values().flatten().collect())
}

/// The members of a library that have names with the kernel's prefix, and all that each defines.
fn members(library: &[u8]) -> Result<BTreeMap<String, BTreeSet<String>>> {
    let unreadable = |e: object::Error| StaticError::new(format!("the kernel's library: {e}"));
    let mut members = BTreeMap::new();
    for (name, data) in archive::members(library).map_err(unreadable)? {
        // The list of what the compiler knows of the crate is no object.
        if data.starts_with(b"\x7fELF") {
            let own = exported(&data)?;
            if own.iter().any(|name| name.starts_with(PREFIX)) {
                members.insert(name, own);
            }
        }
    }
    Ok(members)
}

/// The library without the kernel: what a compiler takes for granted.
pub(crate) fn without_kernel(library: &[u8], to: &Path) -> Result<()> {
    write(to, library)?;
    let mut delete = command("ar");
    run("taking the kernel's library apart", delete.arg("d").arg(to).args(members(library)?.keys())).map(drop)
}
