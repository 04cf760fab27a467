// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's configuration: `tinyconfig`, the fragments of `linux/config`, and a check that every line of them held.

use crate::{
    LinuxError, Options, Progress, Result, Source, Workshop,
    command::{command, run},
};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

impl Workshop {
    /// Writes the configuration of these options into their build folder and returns its path.
    pub fn config(&self, options: &Options, progress: &dyn Progress) -> Result<PathBuf> {
        let _lock = self.lock("", "is building Linux", progress)?;
        let source = self.source_locked(progress)?;
        self.config_locked(&source, options)
    }

    pub(crate) fn config_locked(&self, source: &Source, options: &Options) -> Result<PathBuf> {
        let folder = self.build_folder(options)?;
        let path = folder.join(".config");
        let fragments = self.fragments(options)?;
        // make compares the configuration's time with what it made from it: write it only when it differs.
        let asked = folder.join("asked.config");
        if path.exists() && fs::read_to_string(&asked).is_ok_and(|old| old == fragments) {
            return Ok(path);
        }
        let doing = "configuring Linux";
        run(doing, &mut self.make(source, &folder, &["tinyconfig"]))?;
        let tiny = fs::read_to_string(&path).map_err(|e| LinuxError::io("read", &path, &e))?;
        // The last of several lines for one option is the one that counts.
        fs::write(&path, tiny + &fragments).map_err(|e| LinuxError::io("write", &path, &e))?;
        run(doing, &mut self.make(source, &folder, &["olddefconfig"]))?;
        let made = fs::read_to_string(&path).map_err(|e| LinuxError::io("read", &path, &e))?;
        check(&fragments, &made)?;
        fs::write(&asked, fragments).map_err(|e| LinuxError::io("write", &asked, &e))?;
        Ok(path)
    }

    /// Opens the kernel's own menu on the configuration and returns what was changed, as lines for a fragment.
    pub fn menuconfig(&self, options: &Options, progress: &dyn Progress) -> Result<Vec<String>> {
        let _lock = self.lock("", "is building Linux", progress)?;
        let source = self.source_locked(progress)?;
        let path = self.config_locked(&source, options)?;
        let read = || fs::read_to_string(&path).map_err(|e| LinuxError::io("read", &path, &e));
        let before = read()?;
        let mut menu = self.make(&source, &self.build_folder(options)?, &["menuconfig"]);
        let status = menu.stdin(Stdio::inherit()).status();
        if !status.map_err(|e| crate::command::start_error(&menu, &e))?.success() {
            return Err(LinuxError::new("the menu did not start: it needs the package libncurses-dev"));
        }
        let after = read()?;
        let before = settings(&before);
        let after = settings(&after);
        let changed = after.iter().filter(|(name, value)| before.get(*name) != Some(value));
        Ok(changed.map(|(name, value)| line(name, value)).collect())
    }

    /// The text of the fragments, one after the other.
    pub(crate) fn fragments(&self, options: &Options) -> Result<String> {
        let mut text = String::new();
        let shared = options.fragments().iter().map(ToString::to_string);
        for name in shared.chain(self.release.fragment()) {
            let path = self.recipes().join("config").join(name);
            text += &fs::read_to_string(&path).map_err(|e| LinuxError::io("read", &path, &e))?;
            text.push('\n');
        }
        Ok(text)
    }

    pub(crate) fn build_folder(&self, options: &Options) -> Result<PathBuf> {
        self.sub(&format!("build-{}{}", options.kernel(), self.release.suffix()))
    }

    /// make on this source and build folder. Nothing of the machine or the day gets into the kernel.
    pub(crate) fn make(&self, source: &Source, folder: &Path, targets: &[&str]) -> Command {
        let mut make = command("nice");
        make.args(["-n", "19", "make", "--no-print-directory", "-C"]).arg(&source.tree);
        make.arg(format!("O={}", folder.display())).args(targets);
        // The code behind PVH's entry, which compares strings, runs before KASAN's shadow memory is there; Linux does not say so.
        make.args(["KASAN_SANITIZE_enlighten.o=n", "KASAN_SANITIZE_string.o=n"]);
        make.env("KBUILD_BUILD_TIMESTAMP", "1970-01-01").env("KBUILD_BUILD_VERSION", "1");
        make.env("KBUILD_BUILD_USER", "unilith").env("KBUILD_BUILD_HOST", "unilith");
        make
    }
}

/// The settings of a configuration: `CONFIG_X=value`, and `# CONFIG_X is not set` as `n`.
fn settings(text: &str) -> BTreeMap<&str, &str> {
    let mut out = BTreeMap::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("# ").and_then(|l| l.strip_suffix(" is not set")) {
            out.insert(name, "n");
        } else if let Some((name, value)) =
            line.split_once('=').filter(|(name, _)| name.starts_with("CONFIG_"))
        {
            out.insert(name, value);
        }
    }
    out
}

fn line(name: &str, value: &str) -> String {
    match value {
        "n" => format!("# {name} is not set"),
        _ => format!("{name}={value}"),
    }
}

/// Kconfig drops what it does not know or what lacks a dependency without a word: find that out here.
fn check(asked: &str, made: &str) -> Result<()> {
    let made = settings(made);
    let lost: Vec<_> = settings(asked)
        .iter()
        // An option whose dependencies are off is not listed at all, which is as good as `n`.
        .filter(|(name, value)| made.get(*name).unwrap_or(&"n") != *value)
        .map(|(name, value)| line(name, value))
        .collect();
    match lost.is_empty() {
        true => Ok(()),
        false => Err(LinuxError::new(format!(
            "linux/config asks for what this source does not allow: {}",
            lost.join(", ")
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_that_kconfig_dropped_is_named() {
        let error = check("CONFIG_A=y\n# CONFIG_B is not set\n", "CONFIG_B=y\n").unwrap_err().to_string();
        assert!(error.ends_with("CONFIG_A=y, # CONFIG_B is not set"), "{error}");
    }

    #[test]
    fn an_option_that_is_not_listed_is_off() {
        check("# CONFIG_A is not set\nCONFIG_S=\"a b\"\n", "CONFIG_S=\"a b\"\n").unwrap();
    }

    #[test]
    fn later_lines_of_a_fragment_win() {
        assert_eq!(settings("CONFIG_A=y\n# CONFIG_A is not set\n")["CONFIG_A"], "n");
    }
}
