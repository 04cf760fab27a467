// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where this command belongs: to a checkout of the repository, or to a Debian package that was installed.

use crate::{
    fault::{Fault, Result},
    installed::Installed,
};
use std::path::{Path, PathBuf};

/// What to do for what the package lacks, behind a sentence that says what that is.
pub const CLONE: &str =
    "clone Unilith's repository and use the ./unilith in it, or set UNILITH_ROOT to the clone";
/// What the kernel adds to the path of an executable that was replaced or removed (proc_pid_exe(5)).
const DELETED: &str = " (deleted)";

/// What a command has around it.
#[derive(Clone, Debug)]
pub enum Place {
    Checkout(PathBuf),
    Installed(Installed),
}

/// Where this command is: the script names its repository in `UNILITH_ROOT`; an installed command has its catalogue at a
/// place that follows from its own; a command started by hand finds the repository above itself.
pub fn place() -> Result<Place> {
    let is_root = |p: &Path| p.join("micro/kernel/Cargo.toml").is_file();
    if let Some(root) = std::env::var_os("UNILITH_ROOT").map(PathBuf::from) {
        return if is_root(&root) {
            Ok(Place::Checkout(root))
        } else {
            Err(Fault::new(format!("UNILITH_ROOT={} is not Unilith's repository", root.display())))
        };
    }
    let me = without_mark(&std::env::current_exe().unwrap_or_default());
    let me = me.canonicalize().unwrap_or(me);
    if let Some(installed) = Installed::of(&me) {
        return Ok(Place::Installed(installed));
    }
    let above = me.ancestors().find(|p| is_root(p)).map(Path::to_path_buf);
    above.map(Place::Checkout).ok_or_else(|| {
        Fault::new("cannot find Unilith's repository; run its `./unilith`, or set UNILITH_ROOT")
    })
}

/// The checkout, for `what` is made of the sources.
pub fn sources(what: &str) -> Result<PathBuf> {
    match place()? {
        Place::Checkout(root) => Ok(root),
        Place::Installed(_) => Err(Fault::new(format!(
            "{what} needs Unilith's sources, which its package does not have: {CLONE}"
        ))),
    }
}

/// The catalogue's directory.
pub fn catalogue() -> Result<PathBuf> {
    Ok(match place()? {
        Place::Checkout(root) => root.join("apps"),
        Place::Installed(installed) => installed.catalogue(),
    })
}

/// cargo, as the script chose it.
pub fn cargo() -> PathBuf {
    let given = std::env::var_os("UNILITH_CARGO").filter(|path| !path.is_empty());
    given.map_or_else(|| "cargo".into(), PathBuf::from)
}

/// This command's executable, to be started again: after an upgrade of its package the new one at its place, and this
/// process' own after a removal.
pub fn executable() -> Result<PathBuf> {
    let me =
        std::env::current_exe().map_err(|e| Fault::new(format!("cannot find my own executable: {e}")))?;
    Ok(Some(without_mark(&me)).filter(|path| path.exists()).unwrap_or_else(|| "/proc/self/exe".into()))
}

fn without_mark(path: &Path) -> PathBuf {
    let replaced = path.to_str().filter(|_| !path.exists()).and_then(|path| path.strip_suffix(DELETED));
    replaced.map_or_else(|| path.to_path_buf(), PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_executable_that_was_replaced_is_the_one_at_its_place() {
        let scratch = tempfile::tempdir().unwrap();
        let command = scratch.path().join("unilith");
        let marked = scratch.path().join("unilith (deleted)");
        assert_eq!(without_mark(&marked), command);
        assert_eq!(without_mark(&command), command);
        std::fs::write(&marked, "").unwrap();
        assert_eq!(without_mark(&marked), marked, "that is its name");
    }
}
