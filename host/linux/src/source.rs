// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Debian's kernel source: fetched and verified by apt, unpacked, with our series applied.

use crate::{
    LinuxError, Progress, Result, Workshop,
    command::{command, run, start_error, which},
    patches,
};
use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

/// An unpacked source tree with the series applied.
#[derive(Clone, Debug)]
pub struct Source {
    pub tree: PathBuf,
    /// The version of Debian's package, `6.1.192-2`.
    pub version: String,
}

/// Debian's package of the source, and the version the series was made for (`linux/source`, `linux/source-6.12`).
pub(crate) struct Pin {
    pub package: String,
    pub version: String,
}

/// What building a kernel takes: the program or file to look for, and Debian's package that has it.
const TOOLS: [(&str, &str); 10] = [
    ("make", "make"),
    ("gcc", "gcc"),
    ("ld", "binutils"),
    ("flex", "flex"),
    ("bison", "bison"),
    ("bc", "bc"),
    ("xz", "xz-utils"),
    ("patch", "patch"),
    ("/usr/include/stdio.h", "libc6-dev"),
    ("/usr/include/libelf.h", "libelf-dev"),
];

impl Workshop {
    pub(crate) fn pin(&self) -> Result<Pin> {
        let path = self.release.source_file(&self.recipes());
        let text = fs::read_to_string(&path).map_err(|e| LinuxError::io("read", &path, &e))?;
        match text.split_whitespace().collect::<Vec<_>>()[..] {
            [package, version] => Ok(Pin { package: package.into(), version: version.into() }),
            _ => Err(LinuxError::new(format!("{}: expected a package and its version", path.display()))),
        }
    }

    /// Fetches, unpacks and patches the source, as far as that is not done.
    pub fn source(&self, progress: &dyn Progress) -> Result<Source> {
        let _lock = self.lock("", "is building Linux", progress)?;
        self.source_locked(progress)
    }

    pub(crate) fn source_locked(&self, progress: &dyn Progress) -> Result<Source> {
        self.need_tools(progress)?;
        let pin = self.pin()?;
        let series = self.release.series(&self.recipes())?;
        let (package, version) = match self.fetched(&pin.package, Some(&pin.version))? {
            Some(found) => found,
            None => self.fetch(&pin, progress)?,
        };
        let tree = self.folder.join(format!("tree-{version}"));
        if !tree.is_dir() {
            progress.step(&format!("unpacking Linux {version} (a minute or two)"));
            unpack(&package, &pin.package, &tree, &self.folder.join("tree.new"))?;
        }
        patches::apply(&tree, &self.folder.join(format!("originals-{version}")), &series)?;
        Ok(Source { tree, version })
    }

    /// The version that will be built: the pinned one, or whatever a mirror that lost it gave instead.
    pub(crate) fn version(&self) -> Result<String> {
        let pin = self.pin()?;
        if self.fetched(&pin.package, Some(&pin.version))?.is_some() {
            return Ok(pin.version);
        }
        Ok(self.fetched(&pin.package, None)?.map_or(pin.version, |(_, version)| version))
    }

    /// The package file in the cache: of that version, or of any.
    fn fetched(&self, package: &str, version: Option<&str>) -> Result<Option<(PathBuf, String)>> {
        let folder = self.sub("packages")?;
        let entries = fs::read_dir(&folder).map_err(|e| LinuxError::io("read", &folder, &e))?;
        let mut found: Vec<_> = entries
            .filter_map(|entry| {
                let name = entry.ok()?.file_name().into_string().ok()?;
                // apt escapes the colon of an epoch.
                let has = name
                    .strip_prefix(package)?
                    .strip_prefix('_')?
                    .strip_suffix("_all.deb")?
                    .replace("%3a", ":");
                version.is_none_or(|v| v == has).then(|| (folder.join(name), has))
            })
            .collect();
        found.sort();
        Ok(found.pop())
    }

    fn fetch(&self, pin: &Pin, progress: &dyn Progress) -> Result<(PathBuf, String)> {
        progress.step(&format!("fetching {} {} (150 MB)", pin.package, pin.version));
        let exact = format!("{}={}", pin.package, pin.version);
        let doing = format!("fetching {}", pin.package);
        if run(&doing, &mut self.apt_get(&["download", &exact])?).is_err() {
            // No package lists yet, old ones, or a mirror that has moved on.
            progress.step("reading the package lists");
            run("apt-get update", &mut self.apt_get(&["update"])?)?;
            if run(&doing, &mut self.apt_get(&["download", &exact])?).is_err() {
                progress.step(&format!("{exact} is gone from the mirror: fetching its successor"));
                run(&doing, &mut self.apt_get(&["download", &pin.package])?)
                    .map_err(|e| self.release.not_found(&pin.package, e))?;
            }
        }
        match self.fetched(&pin.package, Some(&pin.version))? {
            Some(found) => Ok(found),
            None => self.fetched(&pin.package, None)?.ok_or_else(|| {
                LinuxError::new(format!(
                    "apt fetched no {}: is Debian 12 among the package sources?",
                    pin.package
                ))
            }),
        }
    }

    /// apt-get with lists of its own, so that an ordinary user may read them and the system's stay as they are.
    fn apt_get(&self, arguments: &[&str]) -> Result<Command> {
        for name in ["apt/lists/partial", "apt/cache/archives/partial"] {
            self.sub(name)?;
        }
        let mut apt = command("apt-get");
        for (setting, folder) in [("Dir::State::lists", "apt/lists"), ("Dir::Cache", "apt/cache")] {
            apt.arg("-o").arg(format!("{setting}={}", self.folder.join(folder).display()));
        }
        // The cache folder may be closed to apt's own user; signatures and hashes are verified all the same.
        apt.args(["-o", "APT::Sandbox::User=root", "--quiet=2"]).args(arguments);
        apt.current_dir(self.sub("packages")?);
        Ok(apt)
    }

    fn need_tools(&self, progress: &dyn Progress) -> Result<()> {
        let missing: Vec<&str> =
            TOOLS.iter().filter(|(what, _)| is_missing(what)).map(|(_, package)| *package).collect();
        need(&missing, "building Linux", progress)
    }
}

/// Whether this machine lacks a program, or a file whose path this is.
pub(crate) fn is_missing(what: &str) -> bool {
    match what.starts_with('/') {
        true => !Path::new(what).exists(),
        false => which(what).is_none(),
    }
}

/// Installs these packages when root; otherwise says how.
pub(crate) fn need(missing: &[&str], what_for: &str, progress: &dyn Progress) -> Result<()> {
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(" ");
    // Who we are is who owns our own process folder.
    let root = fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0);
    if !root || which("apt-get").is_none() {
        let text = format!("{what_for} needs {list}: run `sudo apt-get install {list}`");
        return Err(LinuxError::new(text));
    }
    progress.step(&format!("installing {list}"));
    let mut install = command("apt-get");
    install.args(["install", "--yes", "--quiet=2", "--no-install-recommends"]).args(missing);
    if run("installing", &mut install).is_err() {
        run("apt-get update", command("apt-get").args(["update", "--quiet=2"]))?;
        run(&format!("installing {list}"), &mut install)?;
    }
    Ok(())
}

/// Unpacks the source archive inside the package, and makes the tree appear when it is whole.
fn unpack(package: &Path, name: &str, tree: &Path, new: &Path) -> Result<()> {
    match fs::remove_dir_all(new) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(LinuxError::io("remove", new, &e)),
        _ => {}
    }
    fs::create_dir_all(new).map_err(|e| LinuxError::io("make", new, &e))?;
    let (mut first, files) = piped(command("dpkg-deb").arg("--fsys-tarfile").arg(package))?;
    let member = format!("./usr/src/{name}.tar.xz");
    let (mut second, source) =
        piped(command("tar").args(["--extract", "--to-stdout", &member]).stdin(files))?;
    let mut last = command("tar");
    last.args(["--extract", "--xz", "--strip-components=1", "--directory"]).arg(new).stdin(source);
    run("unpacking the kernel source", &mut last)?;
    for child in [&mut first, &mut second] {
        let status = child.wait().map_err(|e| LinuxError::io("unpack", package, &e))?;
        if !status.success() {
            let text = format!("{} is damaged: delete it and try again", package.display());
            return Err(LinuxError::new(text));
        }
    }
    fs::rename(new, tree).map_err(|e| LinuxError::io("write", tree, &e))
}

fn piped(command: &mut Command) -> Result<(Child, Stdio)> {
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(|e| start_error(command, &e))?;
    let out = child.stdout.take().map_or_else(Stdio::null, Stdio::from);
    Ok((child, out))
}
