// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Applies the series to an unpacked source tree, again and again as patches change, so that make rebuilds only what
//! differs.
//!
//! The originals of every file that a patch has touched are kept beside the tree. To apply a series, the originals
//! are patched in a scratch folder and only files whose text differs from the tree's are written, which leaves all
//! other modification times alone.

use crate::{
    LinuxError, Result,
    command::{command, run},
};
use std::{
    collections::BTreeSet,
    fs, io,
    path::{Component, Path, PathBuf},
};

/// One patch of the series.
#[derive(Clone, Debug)]
pub struct Patch {
    pub name: String,
    pub text: String,
}

/// The patches of a folder in the order of their names (`0001-…`).
pub fn read(folder: &Path) -> Result<Vec<Patch>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(e) => return Err(LinuxError::io("read", folder, &e)),
    };
    let mut patches = Vec::new();
    for entry in entries {
        let path = entry.map_err(|e| LinuxError::io("read", folder, &e))?.path();
        if path.extension().is_some_and(|e| e == "patch") {
            let text = fs::read_to_string(&path).map_err(|e| LinuxError::io("read", &path, &e))?;
            let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
            patches.push(Patch { name, text });
        }
    }
    patches.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(patches)
}

/// The files a patch names, as paths below the tree.
fn files(patch: &Patch) -> Result<BTreeSet<PathBuf>> {
    let mut out = BTreeSet::new();
    let mut lines = patch.text.lines().peekable();
    while let Some(line) = lines.next() {
        // A removed line that reads "-- x" looks like a header too; a real one is followed by "+++ ".
        let (Some(old), Some(next)) = (line.strip_prefix("--- "), lines.peek()) else { continue };
        let Some(new) = next.strip_prefix("+++ ") else { continue };
        for name in [old, new] {
            let name = name.split('\t').next().unwrap_or(name);
            if name == "/dev/null" {
                continue;
            }
            let path: PathBuf = Path::new(name).components().skip(1).collect();
            let inside = path.components().all(|c| matches!(c, Component::Normal(_)));
            if !inside || path.as_os_str().is_empty() {
                let text = format!("{}: `{name}` does not name a file of the source", patch.name);
                return Err(LinuxError::new(text));
            }
            out.insert(path);
        }
    }
    Ok(out)
}

/// Brings `tree` to the state after this series. `originals` belongs to this function.
pub fn apply(tree: &Path, originals: &Path, series: &[Patch]) -> Result<()> {
    let mut touched = BTreeSet::new();
    for patch in series {
        touched.extend(files(patch)?);
    }
    keep_originals(tree, originals, &touched)?;
    let scratch = beside(originals, ".scratch");
    remove_folder(&scratch)?;
    for path in &touched {
        copy_if_present(&originals.join(path), &scratch.join(path))?;
    }
    make_folder(&scratch)?;
    for patch in series {
        let file = beside(originals, ".patch");
        fs::write(&file, &patch.text).map_err(|e| LinuxError::io("write", &file, &e))?;
        let mut patching = command("patch");
        patching.args([
            "--strip=1",
            "--force",
            "--silent",
            "--fuzz=0",
            "--no-backup-if-mismatch",
            "--directory",
        ]);
        patching.arg(&scratch).arg("--input").arg(&file);
        run(&format!("applying {} to this source", patch.name), &mut patching).map_err(|e| {
            LinuxError::new(format!(
                "{e} (if the source package changed underneath, the patch has to be rebased)"
            ))
        })?;
    }
    // Files that an earlier series touched and this one does not go back to their originals.
    for path in listed(originals)? {
        let wanted = if touched.contains(&path) { scratch.join(&path) } else { originals.join(&path) };
        update(&wanted, &tree.join(&path))?;
    }
    remove_folder(&scratch)
}

/// A path that differs in a suffix; `with_extension` would cut the version.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The file that lists what is kept: a path a line. A listed path without a kept file was not in the source.
fn list_of(originals: &Path) -> PathBuf {
    beside(originals, ".list")
}

fn listed(originals: &Path) -> Result<Vec<PathBuf>> {
    let list = list_of(originals);
    match fs::read_to_string(&list) {
        Ok(text) => Ok(text.lines().map(PathBuf::from).collect()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(LinuxError::io("read", &list, &e)),
    }
}

fn keep_originals(tree: &Path, originals: &Path, touched: &BTreeSet<PathBuf>) -> Result<()> {
    let mut known: BTreeSet<PathBuf> = listed(originals)?.into_iter().collect();
    for path in touched {
        if known.insert(path.clone()) {
            copy_if_present(&tree.join(path), &originals.join(path))?;
        }
    }
    let text: String = known.iter().map(|p| format!("{}\n", p.display())).collect();
    let list = list_of(originals);
    fs::write(&list, text).map_err(|e| LinuxError::io("write", &list, &e))
}

fn copy_if_present(from: &Path, to: &Path) -> Result<()> {
    if !from.exists() {
        return Ok(());
    }
    if let Some(parent) = to.parent() {
        make_folder(parent)?;
    }
    fs::copy(from, to).map(drop).map_err(|e| LinuxError::io("write", to, &e))
}

/// Makes `to` what `wanted` is: absent, or the same text.
fn update(wanted: &Path, to: &Path) -> Result<()> {
    if !wanted.exists() {
        return match fs::remove_file(to) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(LinuxError::io("remove", to, &e)),
            _ => Ok(()),
        };
    }
    let new = fs::read(wanted).map_err(|e| LinuxError::io("read", wanted, &e))?;
    match fs::read(to) {
        Ok(old) if old == new => Ok(()),
        _ => copy_if_present(wanted, to),
    }
}

fn make_folder(path: &Path) -> Result<()> {
    fs::create_dir_all(path).map_err(|e| LinuxError::io("make", path, &e))
}

fn remove_folder(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(LinuxError::io("remove", path, &e)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patch(name: &str, text: &str) -> Patch {
        Patch { name: name.into(), text: text.into() }
    }

    const CHANGE: &str = "why\n\n--- a/d/one\n+++ b/d/one\n@@ -1,2 +1,2 @@\n-old\n+new\n same\n";
    const ADD: &str = "--- /dev/null\n+++ b/d/two\n@@ -0,0 +1 @@\n+two\n";

    struct Tree(tempfile::TempDir);

    impl Tree {
        fn new() -> Tree {
            let folder = tempfile::tempdir().unwrap();
            fs::create_dir_all(folder.path().join("tree/d")).unwrap();
            fs::write(folder.path().join("tree/d/one"), "old\nsame\n").unwrap();
            Tree(folder)
        }
        fn apply(&self, series: &[Patch]) -> Result<()> {
            apply(&self.0.path().join("tree"), &self.0.path().join("originals"), series)
        }
        fn text(&self, name: &str) -> Option<String> {
            fs::read_to_string(self.0.path().join("tree/d").join(name)).ok()
        }
    }

    #[test]
    fn a_series_can_be_replaced_by_another() {
        let tree = Tree::new();
        tree.apply(&[patch("1", CHANGE), patch("2", ADD)]).unwrap();
        assert_eq!(
            (tree.text("one").unwrap(), tree.text("two").unwrap()),
            ("new\nsame\n".into(), "two\n".into())
        );
        tree.apply(&[patch("2", ADD)]).unwrap();
        assert_eq!(
            (tree.text("one").unwrap(), tree.text("two").unwrap()),
            ("old\nsame\n".into(), "two\n".into())
        );
        tree.apply(&[]).unwrap();
        assert_eq!(tree.text("two"), None);
    }

    #[test]
    fn files_that_stay_the_same_are_not_written_again() {
        let tree = Tree::new();
        tree.apply(&[patch("1", CHANGE)]).unwrap();
        let time = || fs::metadata(tree.0.path().join("tree/d/one")).unwrap().modified().unwrap();
        let before = time();
        tree.apply(&[patch("1", CHANGE), patch("2", ADD)]).unwrap();
        assert_eq!(time(), before);
    }

    #[test]
    fn a_patch_that_does_not_apply_is_named_with_its_file() {
        let tree = Tree::new();
        let error = tree.apply(&[patch("0007-x.patch", &CHANGE.replace("-old", "-other"))]).unwrap_err();
        assert!(error.to_string().contains("0007-x.patch"), "{error}");
        assert!(error.to_string().contains("d/one"), "{error}");
        assert_eq!(tree.text("one").unwrap(), "old\nsame\n");
    }

    #[test]
    fn a_patch_cannot_leave_the_tree() {
        let tree = Tree::new();
        let escaping = CHANGE.replace("b/d/one", "b/../../one");
        assert!(
            tree.apply(&[patch("1", &escaping)]).unwrap_err().to_string().contains("does not name a file")
        );
    }
}
