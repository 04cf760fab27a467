// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the cache holds and what of it may go: images by their last use, packages, and everything else that comes back.

use crate::cache::Cache;
use serde::Deserialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// What was used within this time may belong to a command that has not made its machine yet.
const RECENT: Duration = Duration::from_secs(600);

/// An image of the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cached {
    /// SHA-256 of its archive.
    pub digest: String,
    /// What it was gathered from, where that is known: a directory's image is gathered anew each time.
    pub name: Option<String>,
    /// Digest of the manifest, of an image of a registry.
    pub manifest: Option<String>,
    pub path: PathBuf,
    /// Bytes of the archive.
    pub size: u64,
    pub used: SystemTime,
}

/// Of what is known of an archive (`facts::Facts`), what a listing shows: the rest, a line for each program of the image, is
/// passed over.
#[derive(Deserialize)]
struct Label {
    digest: String,
    name: String,
    stored: Option<String>,
}

/// A part of the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub name: &'static str,
    pub files: u64,
    /// Bytes on the disk.
    pub size: u64,
}

/// The parts of the cache: what they are called, and their folders.
const PARTS: [(&str, &[&str]); 7] = [
    ("images", &["roots", "recipes"]),
    ("packages", &["debian/archives"]),
    ("package lists", &["debian"]),
    ("system-call tables", &["sites-"]),
    ("kernels", &["kernels", "build-", "sources-"]),
    ("Linux", &["linux"]),
    ("registry images", &["oci"]),
];

/// Files and bytes of everything below a folder; links are not followed.
fn measure(folder: &Path, into: &mut Part) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let Ok(metadata) = entry.metadata() else { continue };
        if metadata.is_dir() {
            measure(&entry.path(), into);
        } else {
            into.files += 1;
            into.size += metadata.blocks() * 512;
        }
    }
}

impl Cache {
    /// How much each part takes.
    pub fn parts(&self) -> Vec<Part> {
        let top: Vec<PathBuf> =
            fs::read_dir(self.folder()).into_iter().flatten().flatten().map(|e| e.path()).collect();
        let mut parts = Vec::new();
        for (name, folders) in PARTS {
            let mut part = Part { name, files: 0, size: 0 };
            for folder in folders {
                match folder.strip_suffix('-') {
                    Some(_) => {
                        let begins = |p: &&PathBuf| {
                            p.file_name().is_some_and(|n| n.to_string_lossy().starts_with(folder))
                        };
                        top.iter().filter(begins).for_each(|p| measure(p, &mut part));
                    }
                    None => measure(&self.folder().join(folder), &mut part),
                }
            }
            parts.push(part);
        }
        // The archives are below the lists' folder.
        let archives = parts[1].clone();
        parts[2].files = parts[2].files.saturating_sub(archives.files);
        parts[2].size = parts[2].size.saturating_sub(archives.size);
        parts
    }

    /// All images, the one used last first.
    pub fn images(&self) -> Vec<Cached> {
        let mut names: BTreeMap<String, (String, Option<String>)> =
            self.labels().map(|(_, label)| (label.digest, (label.name, label.stored))).collect();
        let mut images = self.roots();
        for image in &mut images {
            if let Some((name, manifest)) = names.remove(&image.digest) {
                (image.name, image.manifest) = (Some(name), manifest);
            }
        }
        images
    }

    /// The recipes' files, and which archive each has led to.
    fn labels(&self) -> impl Iterator<Item = (PathBuf, Label)> {
        let entries = fs::read_dir(self.folder().join("recipes")).into_iter().flatten().flatten();
        entries.filter_map(|entry| {
            let text = fs::read(entry.path()).ok()?;
            Some((entry.path(), serde_json::from_slice(&text).ok()?))
        })
    }

    /// Removes the recipes whose archives are gone: a command would not take them, and each is read by every listing.
    fn drop_recipes(&self) -> u64 {
        let roots: BTreeSet<String> = self.roots().into_iter().map(|image| image.digest).collect();
        let gone = self.labels().filter(|(_, label)| !roots.contains(&label.digest));
        let removed = gone.map(|(path, _)| {
            let size = fs::metadata(&path).map_or(0, |m| m.len());
            if fs::remove_file(&path).is_ok() { size } else { 0 }
        });
        removed.sum()
    }

    /// The same without their names, which are in files of their own.
    fn roots(&self) -> Vec<Cached> {
        let mut images = Vec::new();
        for entry in fs::read_dir(self.folder().join("roots")).into_iter().flatten().flatten() {
            let path = entry.path();
            let Some(digest) = path.file_stem().map(|s| s.to_string_lossy().into_owned()) else { continue };
            if path.extension().is_none_or(|e| e != "cpio") {
                continue;
            }
            let Ok(metadata) = entry.metadata() else { continue };
            let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            images.push(Cached { digest, name: None, manifest: None, path, size: metadata.len(), used });
        }
        images.sort_by(|a, b| b.used.cmp(&a.used).then_with(|| a.digest.cmp(&b.digest)));
        images
    }

    /// Notes that an image is used now.
    pub(crate) fn touch(root: &Path) {
        // A cache that is read-only for this user keeps its times.
        if let Ok(file) = fs::File::open(root) {
            let _ = file.set_modified(SystemTime::now());
        }
    }

    /// Removes images and packages, those used longest ago first, until all of them together take no more than `budget`
    /// bytes. What is `in_use`, what was used just now, and all packages while another command unpacks some, stays. Returns
    /// the bytes that were freed.
    pub fn trim(&self, budget: u64, in_use: &BTreeSet<PathBuf>) -> u64 {
        let mut files: Vec<(SystemTime, PathBuf, u64)> =
            self.roots().into_iter().map(|i| (i.used, i.path, i.size)).collect();
        let packages = self.folder().join("debian/archives");
        for entry in fs::read_dir(&packages).into_iter().flatten().flatten() {
            if let Ok(metadata) = entry.metadata()
                && metadata.is_file()
                && let Ok(used) = metadata.accessed()
            {
                files.push((used, entry.path(), metadata.len()));
            }
        }
        let mut total: u64 = files.iter().map(|f| f.2).sum();
        let before = total;
        files.sort();
        // Held to the end: what is asked for meanwhile is fetched again, not found half removed.
        let removal = if total > budget { self.may_remove_packages() } else { None };
        let mut archives_went = false;
        for (used, path, size) in files {
            if total <= budget {
                break;
            }
            let recent = used.elapsed().is_ok_and(|age| age < RECENT) || used > SystemTime::now();
            let leased = removal.is_none() && path.starts_with(&packages);
            if !recent && !leased && !in_use.contains(&path) && fs::remove_file(&path).is_ok() {
                total -= size;
                archives_went |= !path.starts_with(&packages);
            }
        }
        before - total + if archives_went { self.drop_recipes() } else { 0 }
    }

    /// Removes all images but those `in_use` and those used just now. Returns the bytes that were freed.
    pub fn trim_images(&self, in_use: &BTreeSet<PathBuf>) -> u64 {
        let recent = |used: SystemTime| used.elapsed().is_ok_and(|age| age < RECENT);
        let unused = self.roots().into_iter().filter(|i| !in_use.contains(&i.path) && !recent(i.used));
        let freed: u64 = unused.filter(|i| fs::remove_file(&i.path).is_ok()).map(|i| i.size).sum();
        freed + self.drop_recipes()
    }

    /// Removes what was left by commands that were killed while they wrote.
    pub fn sweep(&self) -> u64 {
        let mut freed = 0;
        for folder in ["roots", "recipes", "kernels", "debian"] {
            for entry in fs::read_dir(self.folder().join(folder)).into_iter().flatten().flatten() {
                let name = entry.file_name();
                let Ok(metadata) = entry.metadata() else { continue };
                let old = metadata.modified().is_ok_and(|t| t.elapsed().is_ok_and(|age| age > RECENT));
                if name.to_string_lossy().starts_with(".new.")
                    && metadata.is_file()
                    && old
                    && fs::remove_file(entry.path()).is_ok()
                {
                    freed += metadata.len();
                }
            }
        }
        freed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Facts;

    fn put(cache: &Cache, name: &str, bytes: usize, age: u64) -> PathBuf {
        let path = cache.put("roots", &format!("{name}.cpio"), &vec![0; bytes]).unwrap();
        let then = SystemTime::now() - Duration::from_secs(age);
        fs::File::open(&path).unwrap().set_modified(then).unwrap();
        path
    }

    #[test]
    fn packages_stay_while_a_command_unpacks_them() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path());
        let package = cache.put("debian/archives", "x_1_amd64.deb", &[0; 1000]).unwrap();
        let then = SystemTime::now() - Duration::from_secs(9000);
        let times = fs::FileTimes::new().set_accessed(then).set_modified(then);
        fs::File::open(&package).unwrap().set_times(times).unwrap();
        let image = put(&cache, "old", 1000, 9000);
        let (lease, other) = (cache.lease_packages().unwrap(), cache.lease_packages().unwrap());
        assert_eq!(cache.trim(0, &BTreeSet::new()), 1000, "the image goes all the same");
        assert!(package.exists() && !image.exists());
        drop(lease);
        assert_eq!(cache.trim(0, &BTreeSet::new()), 0);
        drop(other);
        assert_eq!(cache.trim(0, &BTreeSet::new()), 1000);
        assert!(!package.exists());
    }

    #[test]
    fn the_image_used_longest_ago_goes_first_and_what_a_machine_uses_never() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path());
        let used = put(&cache, "used", 1000, 9000);
        let old = put(&cache, "old", 1000, 8000);
        let newer = put(&cache, "newer", 1000, 7000);
        let fresh = put(&cache, "fresh", 1000, 1);
        let in_use = BTreeSet::from([used.clone()]);
        let recipe = |digest: &str| {
            let facts =
                Facts { digest: digest.into(), name: format!("name of {digest}"), ..Facts::default() };
            let text = serde_json::to_vec(&facts).unwrap();
            (cache.put("recipes", &format!("{digest}.json"), &text).unwrap(), text.len() as u64)
        };
        let ((kept, _), (gone, size)) = (recipe("used"), recipe("old"));
        assert_eq!(cache.trim(4000, &in_use), 0);
        assert_eq!(cache.trim(3500, &in_use), 1000 + size, "a recipe goes with its image");
        assert!(kept.exists() && !gone.exists());
        assert!(used.exists() && !old.exists() && newer.exists() && fresh.exists());
        assert_eq!(cache.trim(0, &in_use), 1000);
        assert!(used.exists() && !newer.exists() && fresh.exists(), "a command may be about to use it");
        let names: Vec<String> = cache.images().into_iter().map(|i| i.digest).collect();
        assert_eq!(names, ["fresh", "used"]);
        Cache::touch(&used);
        assert_eq!(cache.images()[0].digest, "used");
        let names: Vec<Option<String>> = cache.images().into_iter().map(|i| i.name).collect();
        assert_eq!(names, [Some("name of used".to_string()), None]);
        assert!(
            cache.parts()[0].files == 3 && cache.parts()[0].name == "images",
            "two archives and a recipe"
        );
    }
}
