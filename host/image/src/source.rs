// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Debian source packages: found, fetched and verified by apt, for programs that are built anew.
//!
//! The machine's own package sources seldom name the source archive beside the binary one, so apt is given copies of
//! them that do, with lists of their own. Releases and keys are the machine's.

use crate::{
    cache::{Cache, digest},
    debian::{Apt, FRESH, age, missing, reason},
    error::{ErrorKind, ImageError, Result, fail},
    request::Progress,
};
use serde::{Deserialize, Serialize};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// Bytes of a release's lists of source packages, with room to spare.
const LISTS: u64 = 64 << 20;
/// The folder of the cache.
const FOLDER: &str = "debian/sources";
/// Where a machine's package sources are (sources.list(5)).
const SYSTEM: &str = "/etc/apt";

/// A source package as the archive has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourcePackage {
    pub name: String,
    /// Debian's version without epoch.
    pub version: String,
    /// The version as apt takes it, if it is not the newest.
    #[serde(default)]
    full_version: Option<String>,
    files: Vec<SourceFile>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SourceFile {
    name: String,
    sha256: String,
}

impl SourcePackage {
    /// What the archive has; what was found within a day is taken without asking again.
    pub fn find(name: &str, cache: &Cache, offline: bool, progress: &dyn Progress) -> Result<SourcePackage> {
        let apt = Apt::open(cache)?;
        let record = cache.sub("debian/resolved")?.join(record_name(name));
        let known = fs::read(&record).ok().and_then(|b| serde_json::from_slice::<SourcePackage>(&b).ok());
        if let Some(package) = known.as_ref()
            && (offline || age(&record).is_some_and(|age| age < FRESH))
        {
            return Ok(package.clone());
        }
        if offline {
            fail!(Offline, "the source of {name} is not in the cache; run it once with a network");
        }
        let found = lists(&apt, progress).and_then(|()| look_up(&apt, name, None));
        if let Ok(package) = &found {
            package.record(&apt)?;
        }
        match (found, known) {
            (Ok(package), _) => Ok(package),
            // Without a network what was built before still is what it was.
            (Err(error), Some(package)) if error.kind == ErrorKind::Packages => Ok(package),
            (Err(error), _) => Err(error),
        }
    }

    /// Fetches the files, as far as they are not there, and returns the `.dsc` among them with the package that it
    /// is: a newer one, where the lists have been read again since this one was found.
    pub fn fetch(&self, cache: &Cache, progress: &dyn Progress) -> Result<(SourcePackage, PathBuf)> {
        let apt = Apt::open(cache)?;
        let folder = cache.sub(&format!("{FOLDER}/files"))?;
        if let Some(description) = self.whole(&folder) {
            return Ok((self.clone(), description));
        }
        lists(&apt, progress)?;
        let newest = look_up(&apt, &self.name, None)?;
        let error = match newest.download(&apt, &folder, progress) {
            Ok(description) => return Ok((newest, description)),
            Err(error) => error,
        };
        // An archive may list what it does not hold (yet, or any more), as mirrors of security updates do; the release
        // that it updates is there all the same.
        for version in versions(&apt, &self.name) {
            let Ok(older) = look_up(&apt, &self.name, Some(&version)) else { continue };
            if older.files == newest.files {
                continue;
            }
            if let Ok(description) = older.download(&apt, &folder, progress) {
                return Ok((older, description));
            }
        }
        Err(error)
    }

    /// Lets apt fetch the files; what was fetched is what [`Self::find`] finds from now on. Returns the `.dsc`.
    fn download(&self, apt: &Apt, folder: &Path, progress: &dyn Progress) -> Result<PathBuf> {
        let SourcePackage { name, version, .. } = self;
        progress.step(&format!("fetching the source of {name} {version}"));
        let wanted = exactly(name, self.full_version.as_deref());
        let output = run(apt, "apt-get", &["-qq", "--download-only", "source"], &wanted, folder)?;
        if !output.status.success() {
            return Err(refused(name, &output));
        }
        let Some(description) = self.whole(folder) else {
            fail!(Packages, "apt fetched other files of {name} than its lists name: try again")
        };
        self.record(apt)?;
        Ok(description)
    }

    fn record(&self, apt: &Apt) -> Result<()> {
        let text = serde_json::to_vec(self).map_err(|e| ImageError::new(ErrorKind::Io, e.to_string()))?;
        apt.cache.put("debian/resolved", &record_name(&self.name), &text).map(|_| ())
    }

    /// What tells this package from all others.
    pub fn digest(&self) -> String {
        let files: Vec<&str> = self.files.iter().map(|f| f.sha256.as_str()).collect();
        digest(files.join("\n").as_bytes())
    }

    /// The path of the `.dsc`, if all files are there as apt verified them.
    fn whole(&self, folder: &Path) -> Option<PathBuf> {
        let intact = |f: &SourceFile| fs::read(folder.join(&f.name)).is_ok_and(|b| digest(&b) == f.sha256);
        let description = self.files.iter().find(|f| f.name.ends_with(".dsc"))?;
        self.files.iter().all(intact).then(|| folder.join(&description.name))
    }
}

fn record_name(name: &str) -> String {
    format!("source-{}.json", &digest(name.as_bytes())[..32])
}

/// A tool of apt on the lists of source packages.
fn run(apt: &Apt, tool: &str, arguments: &[&str], package: &str, here: &Path) -> Result<Output> {
    let folder = apt.cache.sub(FOLDER)?;
    let mut command = apt.command(tool);
    for (setting, path) in [
        ("Dir::Etc::sourcelist", "/dev/null".into()),
        ("Dir::Etc::sourceparts", folder.join("parts")),
        ("Dir::State::lists", folder.join("lists")),
        ("Dir::Cache", folder.join("cache")),
    ] {
        command.arg("-o").arg(format!("{setting}={}", Path::display(&path)));
    }
    command.args(arguments);
    if !package.is_empty() {
        command.args(["--", package]);
    }
    command.current_dir(here).output().map_err(|e| missing(tool, &e))
}

/// How apt is asked for one version of a package.
fn exactly(name: &str, version: Option<&str>) -> String {
    version.map_or_else(|| name.into(), |version| format!("{name}={version}"))
}

/// All versions of a package that the lists have, newest first.
fn versions(apt: &Apt, name: &str) -> Vec<String> {
    let Ok(here) = apt.cache.sub(FOLDER) else { return Vec::new() };
    let Ok(output) = run(apt, "apt-cache", &["--only-source", "showsrc"], name, &here) else {
        return Vec::new();
    };
    let mut found = parse_versions(&String::from_utf8_lossy(&output.stdout));
    let newer = |a: &String, b: &String| {
        let mut compare = Command::new("dpkg");
        compare.args(["--compare-versions", a, "gt", b]).status().is_ok_and(|status| status.success())
    };
    found.sort_by(|a, b| newer(b, a).cmp(&newer(a, b)));
    found
}

/// Reads `apt-cache showsrc`.
fn parse_versions(text: &str) -> Vec<String> {
    let mut found: Vec<String> = text
        .lines()
        .filter_map(|line| line.strip_prefix("Version: "))
        .map(|v| v.trim().to_string())
        .collect();
    found.sort();
    found.dedup();
    found
}

/// Reads the lists of source packages anew when they are old.
fn lists(apt: &Apt, progress: &dyn Progress) -> Result<()> {
    let stamp = apt.cache.sub(FOLDER)?.join("updated");
    let known = age(&stamp);
    if known.is_some_and(|age| age < FRESH) {
        return Ok(());
    }
    apt.room(LISTS)?;
    apt.configure(&[])?;
    for sub in ["lists/partial", "cache/archives/partial"] {
        apt.cache.sub(&format!("{FOLDER}/{sub}"))?;
    }
    let parts = apt.cache.sub(&format!("{FOLDER}/parts"))?;
    for (name, text) in source_lists(Path::new(SYSTEM)) {
        apt.cache.put(&format!("{FOLDER}/parts"), &name, text.as_bytes())?;
    }
    progress.step("fetching Debian's lists of sources");
    let output = run(apt, "apt-get", &["-qq", "update"], "", &parts)?;
    if output.status.success() {
        apt.cache.put(FOLDER, "updated", b"")?;
    } else if known.is_none() {
        fail!(
            Packages,
            "Debian's lists of sources could not be fetched: {}; check the network and {SYSTEM}/sources.list",
            reason(&output)
        );
    }
    Ok(())
}

/// What the lists say of a package: of its newest version, or of this one.
fn look_up(apt: &Apt, name: &str, version: Option<&str>) -> Result<SourcePackage> {
    let here = apt.cache.sub(FOLDER)?;
    let wanted = exactly(name, version);
    let output = run(apt, "apt-get", &["-qq", "--print-uris", "source"], &wanted, &here)?;
    if !output.status.success() {
        return Err(refused(name, &output));
    }
    let package = parse(name, &String::from_utf8_lossy(&output.stdout))
        .ok_or_else(|| ImageError::new(ErrorKind::Packages, format!("apt's list of {name} has no .dsc")))?;
    Ok(SourcePackage { full_version: version.map(str::to_string), ..package })
}

/// Reads `apt-get --print-uris`: lines of 'ADDRESS' FILE SIZE HASH.
fn parse(name: &str, text: &str) -> Option<SourcePackage> {
    let file = |line: &str| {
        let mut words = line.strip_prefix('\'')?.split_once('\'')?.1.split_ascii_whitespace();
        let (name, hash) = (words.next()?, words.nth(1)?);
        // The name becomes one of a folder's.
        let plain = !name.contains('/') && !name.starts_with('.');
        plain.then(|| Some(SourceFile { name: name.into(), sha256: hash.strip_prefix("SHA256:")?.into() }))?
    };
    let files: Vec<SourceFile> = text.lines().filter_map(file).collect();
    let description = files.iter().find_map(|f| f.name.strip_suffix(".dsc"))?;
    let version = description.split_once('_')?.1.to_string();
    Some(SourcePackage { name: name.into(), version, full_version: None, files })
}

fn refused(name: &str, output: &Output) -> ImageError {
    let reason = reason(output);
    if reason.contains("Unable to find a source package") {
        let text = format!("no Debian source package `{name}` in this machine's apt sources");
        return ImageError::new(ErrorKind::NotFound, text);
    }
    ImageError::new(ErrorKind::Packages, format!("apt cannot fetch the source of {name}: {reason}"))
}

/// The machine's package sources, naming the archive of sources: file name and text.
fn source_lists(folder: &Path) -> Vec<(String, String)> {
    let mut files = vec![folder.join("sources.list")];
    let entries = fs::read_dir(folder.join("sources.list.d"));
    files.extend(entries.into_iter().flatten().filter_map(|e| Some(e.ok()?.path())));
    let lists = files.iter().filter_map(|path| {
        let (name, text) = (path.file_name()?.to_str()?, fs::read_to_string(path).ok()?);
        let text = match path.extension()?.to_str()? {
            "list" => of_lines(&text),
            "sources" => of_fields(&text),
            _ => return None,
        };
        Some((name.to_string(), text))
    });
    lists.collect()
}

/// One-line format: `deb [OPTIONS] ADDRESS SUITE COMPONENT...`.
fn of_lines(text: &str) -> String {
    let rest = |line: &str| {
        let (kind, rest) = line.trim().split_once(char::is_whitespace)?;
        matches!(kind, "deb" | "deb-src").then(|| rest.trim().to_string())
    };
    let mut lines: Vec<String> = text.lines().filter_map(rest).collect();
    lines.dedup();
    lines.iter().fold(String::new(), |all, line| all + "deb-src " + line + "\n")
}

/// Fields, `Types: deb`.
fn of_fields(text: &str) -> String {
    let is_types =
        |line: &str| line.split_once(':').is_some_and(|(key, _)| key.eq_ignore_ascii_case("Types"));
    text.lines()
        .fold(String::new(), |all, line| all + if is_types(line) { "Types: deb-src" } else { line } + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_of_package_sources_name_the_sources() {
        let lines = "# deb http://a b c\ndeb http://d.org/debian bookworm main\ndeb-src http://d.org/debian bookworm main\n\
                     deb [signed-by=/k] http://e sid main contrib\n";
        let expected =
            "deb-src http://d.org/debian bookworm main\ndeb-src [signed-by=/k] http://e sid main contrib\n";
        assert_eq!(of_lines(lines), expected);
        let fields = "types: deb\nURIs: http://d.org\nSigned-By: /k\n\nTypes: deb deb-src\n";
        assert_eq!(
            of_fields(fields),
            "Types: deb-src\nURIs: http://d.org\nSigned-By: /k\n\nTypes: deb-src\n"
        );
    }

    #[test]
    fn a_machines_lists_are_taken_and_other_files_are_not() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("sources.list.d")).unwrap();
        for name in ["a.sources", "b.sources.disabled", "c.list"] {
            fs::write(folder.path().join("sources.list.d").join(name), "deb x y z\n").unwrap();
        }
        let mut names: Vec<String> = source_lists(folder.path()).into_iter().map(|(name, _)| name).collect();
        names.sort();
        assert_eq!(names, ["a.sources", "c.list"]);
    }

    #[test]
    fn what_apt_lists_is_a_package_with_its_version() {
        let line = |file: &str, hash: &str| format!("'http://m/pool/{file}' {file} 12 SHA256:{hash}\n");
        let text = line("redis_7.0.15-1~deb12u5.dsc", "aa") + &line("redis_7.0.15.orig.tar.gz", "bb");
        let package = parse("redis", &text).unwrap();
        assert_eq!(package.version, "7.0.15-1~deb12u5");
        assert_eq!(package.files[1].sha256, "bb");
        assert_eq!(parse("redis", &line("../x.dsc", "aa")), None);
        assert_eq!(parse("redis", "E: no\n"), None);
        let lists = "Package: x\nVersion: 1:2-3\n\nPackage: x\nVersion: 1:2-3\n\nVersion: 1:2-3+deb12u1\n";
        assert_eq!(parse_versions(lists), ["1:2-3", "1:2-3+deb12u1"]);
        assert_eq!(exactly("x", Some("1:2-3")), "x=1:2-3");
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(package.whole(folder.path()), None);
        fs::write(folder.path().join("redis_7.0.15-1~deb12u5.dsc"), "another").unwrap();
        assert_eq!(package.whole(folder.path()), None);
    }
}
