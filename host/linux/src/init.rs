// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Builds the machine's first process: `linux/init`, statically linked, because the root file system is the program's
//! and may hold no C library at all.

use crate::{LinuxError, Progress, Result, Workshop, command::command, command::run};
use sha2::{Digest, Sha256};
use std::path::PathBuf;

impl Workshop {
    /// The path of init, built where cargo finds it missing or older than its source.
    pub fn init_program(&self, progress: &dyn Progress) -> Result<PathBuf> {
        // Checkouts have folders of their own: cargo gives what it builds the same name in each.
        let checkout = Sha256::digest(self.repository.as_os_str().as_encoded_bytes());
        let folder = format!("init-{:02x}{:02x}{:02x}", checkout[0], checkout[1], checkout[2]);
        let _lock = self.lock(&folder, "is building Linux's first program", progress)?;
        let target = self.sub(&folder)?;
        // The script that runs the command may have installed its own.
        let cargo =
            ["UNILITH_CARGO", "CARGO"].iter().find_map(std::env::var_os).unwrap_or_else(|| "cargo".into());
        let mut build = command(cargo);
        build.args(["rustc", "--quiet", "--release", "--package", "unilith-linux-init", "--target-dir"]);
        build.arg(&target).args(["--", "-C", "target-feature=+crt-static", "-C", "strip=symbols"]);
        // The flags of whoever runs the command are for its own programs.
        build.current_dir(&self.repository).env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
        progress.step("building the first process of Linux machines");
        run("building linux/init", &mut build)?;
        let program = target.join("release/unilith-linux-init");
        match program.is_file() {
            true => Ok(program),
            false => Err(LinuxError::new(format!("cargo built no {}", program.display()))),
        }
    }
}
