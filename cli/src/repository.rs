// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the sources of the kernel and the catalogue are.

use crate::fault::{Fault, Result};
use std::path::{Path, PathBuf};

/// The repository this command belongs to: the script names it in `UNILITH_ROOT`; a command started by hand finds it
/// above itself.
pub fn root() -> Result<PathBuf> {
    let is_root = |p: &Path| p.join("micro/kernel/Cargo.toml").is_file();
    if let Some(root) = std::env::var_os("UNILITH_ROOT").map(PathBuf::from) {
        return if is_root(&root) {
            Ok(root)
        } else {
            Err(Fault::new(format!("UNILITH_ROOT={} is not Unilith's repository", root.display())))
        };
    }
    let me = std::env::current_exe().and_then(|p| p.canonicalize()).unwrap_or_default();
    let above = me.ancestors().find(|p| is_root(p)).map(Path::to_path_buf);
    above.ok_or_else(|| {
        Fault::new("cannot find Unilith's repository; run its `./unilith`, or set UNILITH_ROOT")
    })
}

/// cargo, as the script chose it.
pub fn cargo() -> PathBuf {
    std::env::var_os("UNILITH_CARGO").map_or_else(|| "cargo".into(), PathBuf::from)
}
