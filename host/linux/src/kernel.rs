// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Building the kernel, and finding it again when nothing it is made from has changed.

use crate::{
    LinuxError, Options, Progress, Result, Source, Workshop,
    command::{command, follow, is_complaint, run},
};
use sha2::{Digest, Sha256};
use std::{
    fs,
    path::{Path, PathBuf},
    thread,
};

/// Steps of a build from nothing, for the progress shown the first time.
const STEPS: u64 = 1750;

/// A finished kernel in the cache.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The ELF file, bootable through PVH.
    pub vmlinux: PathBuf,
    pub config: PathBuf,
    /// The version of the source package.
    pub version: String,
}

impl Workshop {
    /// The kernel of these options; from the cache when its inputs are unchanged.
    pub fn build(&self, options: &Options, progress: &dyn Progress) -> Result<Kernel> {
        // What is there appears as a whole, so that nobody waits for a kernel of others.
        if let Some(kernel) = self.finished(options, &self.version()?)? {
            return Ok(kernel);
        }
        let _lock = self.lock("", "is building Linux", progress)?;
        // Which may have been this one.
        if let Some(kernel) = self.finished(options, &self.version()?)? {
            return Ok(kernel);
        }
        let source = self.source_locked(progress)?;
        if let Some(kernel) = self.finished(options, &source.version)? {
            return Ok(kernel);
        }
        let config = self.config_locked(&source, options)?;
        let folder = self.build_folder(options)?;
        self.compile(&source, options, &folder, progress)?;
        let key = self.key(options, &source.version)?;
        let target = self.sub("kernels")?.join(&key);
        let new = target.with_extension("new");
        fs::create_dir_all(&new).map_err(|e| LinuxError::io("make", &new, &e))?;
        for (from, name) in [(folder.join("vmlinux"), "vmlinux"), (config, "config")] {
            fs::copy(&from, new.join(name)).map_err(|e| LinuxError::io("keep", &from, &e))?;
        }
        fs::rename(&new, &target).map_err(|e| LinuxError::io("write", &target, &e))?;
        Ok(kernel_in(&target, &source.version))
    }

    /// Whether [`Workshop::build`] would find the kernel of these options in the cache.
    pub fn is_built(&self, options: &Options) -> Result<bool> {
        Ok(self.finished(options, &self.version()?)?.is_some())
    }

    fn finished(&self, options: &Options, version: &str) -> Result<Option<Kernel>> {
        let folder = self.folder.join("kernels").join(self.key(options, version)?);
        Ok(folder.is_dir().then(|| kernel_in(&folder, version)))
    }

    /// The hash of everything a kernel is made from.
    fn key(&self, options: &Options, version: &str) -> Result<String> {
        let mut hash = Sha256::new();
        // Lengths keep the boundary between two inputs part of what is hashed.
        let mut add = |text: &str| {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        };
        add(&self.pin()?.package);
        add(version);
        for patch in self.release.series(&self.recipes())? {
            add(&patch.name);
            add(&patch.text);
        }
        add(&self.fragments(options)?);
        for tool in ["gcc", "ld"] {
            // A machine without the compiler can still use what another one built with Debian's.
            let text = run(tool, command(tool).arg("--version")).unwrap_or_default();
            add(text.lines().next().unwrap_or_default());
        }
        Ok(hash.finalize()[..12].iter().map(|b| format!("{b:02x}")).collect())
    }

    fn compile(
        &self,
        source: &Source,
        options: &Options,
        folder: &Path,
        progress: &dyn Progress,
    ) -> Result<()> {
        let jobs = thread::available_parallelism().map_or(1, usize::from);
        let log_path = self.folder.join(format!("build-{}{}.log", options.kernel(), self.release.suffix()));
        let total = if folder.join("vmlinux").exists() { 0 } else { STEPS };
        progress.step(&format!(
            "building Linux {} ({}), niced, {jobs} at a time",
            source.version,
            options.level()
        ));
        let mut make = self.make(source, folder, &[&format!("-j{jobs}"), "vmlinux"]);
        let mut done = 0;
        let whole = follow(&mut make, &log_path, &mut |line| {
            // Each step of kbuild is a line such as `  CC      kernel/fork.o`.
            if line.starts_with("  ") {
                done += 1;
                progress.advance(done, if done <= total { total } else { 0 });
            }
        })?;
        if whole {
            return Ok(());
        }
        let text = fs::read(&log_path).map_err(|e| LinuxError::io("read", &log_path, &e))?;
        let text = String::from_utf8_lossy(&text);
        let reason = text.lines().find(|l| is_complaint(l)).unwrap_or("make gave no reason");
        Err(LinuxError::new(format!(
            "building Linux failed: {reason}; the whole log is {}",
            log_path.display()
        )))
    }
}

fn kernel_in(folder: &Path, version: &str) -> Kernel {
    Kernel { vmlinux: folder.join("vmlinux"), config: folder.join("config"), version: version.into() }
}
