// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cargo decides by times whether a source has changed. In a build directory that was copied, or a tree whose files were
//! put back with older times, that is wrong, and what it then builds would be kept for good under the hash of sources it
//! was not built from. So the contents that a build directory knows are written down, and what has changed since without
//! being newer is given the time of now.

use crate::fault::{Result, file};
use std::{
    collections::HashMap,
    fs::{self, File},
    io::ErrorKind,
    path::{Path, PathBuf},
    time::SystemTime,
};

/// Where the contents are written down, in the build directory: a line for each file, its hash and its path.
pub const KNOWN: &str = "kernel-sources";
/// Where cargo puts what it builds of kernels, by profile.
pub const BUILT: [&str; 2] = ["kernel", "kernel-process"];

/// Makes cargo see which of `sources`, each with the hash of its contents, have other contents than at the last call for this build directory, where their times
/// do not tell it.
///
/// Call it before cargo, with nobody else building. Without a record all of them count as changed, if anything was built.
pub fn mark(target: &Path, root: &Path, sources: &[(PathBuf, String)]) -> Result<()> {
    let record = target.join(KNOWN);
    let text = fs::read_to_string(&record).unwrap_or_default();
    let known: HashMap<&str, &str> =
        text.lines().filter_map(|line| line.split_once(' ')).map(|(hash, path)| (path, hash)).collect();
    let built = BUILT.iter().any(|profile| target.join(profile).exists());
    let recorded = fs::metadata(&record).and_then(|m| m.modified()).ok();
    let is_newer = |path: &Path| {
        let time = fs::metadata(path).and_then(|m| m.modified()).map_err(file("read the time of", path))?;
        Result::Ok(recorded.is_some_and(|recorded| time > recorded))
    };
    let now = SystemTime::now();
    let mut new = String::new();
    let mut is_foreign = false;
    for (path, hash) in sources {
        let name = path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned();
        let same = known.get(&*name) == Some(&&**hash);
        if built && !same && !is_newer(path)? {
            match File::open(path).and_then(|f| f.set_modified(now)) {
                // A checkout of another user's: its files cannot be told newer.
                Err(e) if e.kind() == ErrorKind::PermissionDenied => is_foreign = true,
                done => done.map_err(file("set the time of", path))?,
            }
        }
        new.push_str(&format!("{hash} {name}\n"));
    }
    for built in BUILT.iter().filter(|_| is_foreign).map(|profile| target.join(profile)) {
        if built.exists() {
            fs::remove_dir_all(&built).map_err(file("remove", &built))?;
        }
    }
    fs::create_dir_all(target).map_err(file("make", target))?;
    // If this is cut off, what is missing in the record counts as changed.
    fs::write(&record, new).map_err(file("write", &record))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_has_other_contents_is_newer_than_the_build_whatever_its_time_says() {
        let folder = tempfile::tempdir().unwrap();
        let (root, target) = (folder.path(), folder.path().join("target"));
        let old = SystemTime::now() - Duration::from_secs(3600);
        let write = |name: &str, text: &str| {
            let path = root.join(name);
            fs::write(&path, text).unwrap();
            File::open(&path).unwrap().set_modified(old).unwrap();
            path
        };
        let age = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
        fs::create_dir_all(target.join(BUILT[0])).unwrap();
        let sources = [write("same.rs", "a"), write("changed.rs", "b")];
        let mark = |target: &Path, root: &Path, sources: &[PathBuf]| {
            let hashes = super::super::index::hashes(root, sources, &root.join("index"))?;
            super::mark(target, root, &sources.iter().cloned().zip(hashes).collect::<Vec<_>>())
        };
        mark(&target, root, &sources).unwrap();
        assert!(sources.iter().all(|path| age(path) > old), "nothing was known");
        write("same.rs", "a");
        write("changed.rs", "c");
        mark(&target, root, &sources).unwrap();
        assert!(age(&sources[0]) == old, "a build is not repeated");
        assert!(age(&sources[1]) > old);
        let newer = SystemTime::now() + Duration::from_secs(10);
        fs::write(&sources[0], "d").unwrap();
        File::open(&sources[0]).unwrap().set_modified(newer).unwrap();
        mark(&target, root, &sources).unwrap();
        assert!(
            age(&sources[0]) == newer,
            "cargo sees that by itself, and others who go by times build once"
        );
    }
}
