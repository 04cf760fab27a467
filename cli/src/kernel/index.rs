// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the sources of kernels hash to, without reading those that have not changed since they were hashed: the runtime of containers
//! asks at every start. A file is known by its size, its times and its number, as in Git's index.

use crate::fault::{Result, file};
use sha2::{Digest, Sha256};
use std::{
    collections::HashMap,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};
use unilith_image::mark;

/// The hash of each of the files, which are below `root`, in their order. `index` is what the last call knew of them; a new one takes its
/// place when there is more to know.
pub fn hashes(root: &Path, files: &[PathBuf], index: &Path) -> Result<Vec<String>> {
    // Whatever cannot be read or parsed is of no file.
    let text = fs::read_to_string(index).unwrap_or_default();
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    let known: HashMap<&str, &str> = lines.map(|(hash, stamp)| (stamp, hash)).collect();
    let mut new = String::new();
    let mut is_new = false;
    let mut hashes = Vec::with_capacity(files.len());
    for path in files {
        let meta = fs::metadata(path).map_err(file("read", path))?;
        let name = path.strip_prefix(root).unwrap_or(path).display();
        let stamp = mark(&meta).map(|mark| format!("{} {mark} {name}", meta.dev()));
        let hash = match stamp.as_ref().and_then(|stamp| known.get(&**stamp)) {
            Some(hash) => (*hash).to_string(),
            None => {
                let contents = fs::read(path).map_err(file("read", path))?;
                is_new |= stamp.is_some();
                super::name(Sha256::new().chain_update(contents))
            }
        };
        if let Some(stamp) = stamp {
            new.push_str(&format!("{hash} {stamp}\n"));
        }
        hashes.push(hash);
    }
    if is_new {
        // Without it the files are read again.
        let temporary = index.with_extension(std::process::id().to_string());
        let _ = index
            .parent()
            .map_or(Ok(()), fs::create_dir_all)
            .and_then(|()| fs::write(&temporary, new))
            .and_then(|()| fs::rename(&temporary, index));
    }
    Ok(hashes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs::File, time::Duration};

    #[test]
    fn what_changed_is_hashed_again_and_what_did_not_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let (root, index) = (folder.path(), folder.path().join("index"));
        let files = ["a", "b"].map(|name| root.join(name));
        fs::write(&files[0], "one").unwrap();
        fs::write(&files[1], "two").unwrap();
        let first = hashes(root, &files, &index).unwrap();
        assert!(first[0] != first[1]);
        assert!(!index.exists(), "files of this moment may change without another time");

        // The change of a file's status cannot be put back in time, so the test waits for it to be old.
        std::thread::sleep(Duration::from_millis(2100));
        assert_eq!(hashes(root, &files, &index).unwrap(), first);
        let text = fs::read_to_string(&index).unwrap();
        fs::write(&index, text.replace(&first[1], "of-nothing")).unwrap();
        let known = hashes(root, &files, &index).unwrap();
        assert_eq!((&known[0], &*known[1]), (&first[0], "of-nothing"), "it is known, and not read");

        // Other contents of the same length and with the same time.
        let time = fs::metadata(&files[1]).unwrap().modified().unwrap();
        fs::write(&files[1], "owt").unwrap();
        File::open(&files[1]).unwrap().set_modified(time).unwrap();
        let second = hashes(root, &files, &index).unwrap();
        assert_eq!(second[0], first[0]);
        assert!(second[1] != first[1] && second[1] != known[1]);
        fs::write(&index, "nonsense\n\n1 2").unwrap();
        assert_eq!(hashes(root, &files, &index).unwrap(), second);
    }
}
