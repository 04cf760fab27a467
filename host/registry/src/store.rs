// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The images that were pulled: blobs by their digest, which images share, and a record for each name. The folder has the
//! shape of an OCI image layout's `blobs`, so that what reads layouts reads it.

use crate::error::{ErrorKind, RegistryError, Result, fail};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{Read, Write},
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU32, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

/// Numbers the temporary files of this process.
static NEXT: AtomicU32 = AtomicU32::new(0);
/// Temporary files begin so.
const TEMPORARY: &str = ".new.";
/// Bytes of a record.
const MAX_RECORD: u64 = 1 << 20;

/// What is known of a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The whole name.
    pub name: String,
    /// Digest of the manifest for this architecture.
    pub manifest: String,
    /// Digest that the name stands for at the registry: the index's where there is one.
    pub digest: String,
    /// Digest of the configuration, which docker calls the image's id.
    pub config: String,
    /// All blobs, the manifest's and the configuration's too, with their bytes.
    pub blobs: Vec<(String, u64)>,
    pub pulled_ms: u64,
    /// What the image says of the time it was made at (RFC 3339), as it is.
    #[serde(default)]
    pub created: Option<String>,
}

impl Record {
    /// Bytes of its blobs.
    pub fn size(&self) -> u64 {
        self.blobs.iter().map(|(_, size)| size).sum()
    }
}

/// The pulled images of a user.
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
}

/// Blobs stay as long as it is held.
pub struct Lease {
    _lock: File,
}

/// The hexadecimal part of a sha256 digest; `None` for anything else, so that it can be a file's name.
pub fn hexadecimal(digest: &str) -> Option<&str> {
    let hex = digest.strip_prefix("sha256:")?;
    (hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))).then_some(hex)
}

pub(crate) fn digest_of(bytes: &[u8]) -> String {
    spell(&Sha256::digest(bytes))
}

fn spell(hash: &[u8]) -> String {
    hash.iter().fold("sha256:".to_string(), |text, byte| text + &format!("{byte:02x}"))
}

impl Store {
    /// A store in that folder, which is made when it is needed.
    pub fn new(folder: impl Into<PathBuf>) -> Store {
        Store { folder: folder.into() }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn sub(&self, name: &str) -> Result<PathBuf> {
        let path = self.folder.join(name);
        fs::create_dir_all(&path).map_err(|e| RegistryError::io("make", &path, &e))?;
        Ok(path)
    }

    /// Keeps blobs where they are; waits while somebody removes some.
    pub fn lease(&self) -> Result<Lease> {
        let (path, file) = self.lock()?;
        file.lock_shared().map_err(|e| RegistryError::io("lock", &path, &e))?;
        Ok(Lease { _lock: file })
    }

    fn lock(&self) -> Result<(PathBuf, File)> {
        let path = self.sub("")?.join("lock");
        let file = File::create(&path).map_err(|e| RegistryError::io("lock", &path, &e))?;
        Ok((path, file))
    }

    fn blob_path(&self, digest: &str) -> Option<PathBuf> {
        Some(self.folder.join("blobs/sha256").join(hexadecimal(digest)?))
    }

    /// Whether a blob of this size is there. Its content was verified when it was stored, and is again when it is used.
    pub(crate) fn has(&self, digest: &str, size: u64) -> bool {
        self.blob_path(digest).is_some_and(|p| fs::metadata(p).is_ok_and(|m| m.is_file() && m.len() == size))
    }

    /// The bytes of a small blob, if it is there and undamaged.
    pub fn read(&self, digest: &str, limit: u64) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(self.blob_path(digest)?).ok()?.take(limit + 1).read_to_end(&mut bytes).ok()?;
        (bytes.len() as u64 <= limit && digest_of(&bytes) == digest).then_some(bytes)
    }

    /// A blob that is being written; the caller holds a lease.
    pub(crate) fn begin(&self) -> Result<Pending> {
        let folder = self.sub("blobs/sha256")?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("{TEMPORARY}{}.{number}", process::id()));
        let file = File::create(&path).map_err(|e| RegistryError::io("write", &path, &e))?;
        // What nobody holds was left behind.
        file.try_lock().map_err(|e| RegistryError::new(ErrorKind::Io, format!("{}: {e}", path.display())))?;
        Ok(Pending { path, file, hash: Sha256::new(), written: 0, done: false })
    }

    /// Stores bytes whose digest was checked.
    pub(crate) fn put(&self, bytes: &[u8]) -> Result<String> {
        let digest = digest_of(bytes);
        if !self.has(&digest, bytes.len() as u64) {
            let mut pending = self.begin()?;
            pending.write(bytes)?;
            pending.finish(self, &digest, bytes.len() as u64, "blob")?;
        }
        Ok(digest)
    }

    fn record_path(&self, name: &str) -> Result<PathBuf> {
        let hash = digest_of(name.as_bytes());
        Ok(self.sub("names")?.join(format!("{}.json", &hash[7..])))
    }

    /// Notes what a name stands for now.
    pub(crate) fn record(&self, record: &Record) -> Result<()> {
        let path = self.record_path(&record.name)?;
        let text =
            serde_json::to_vec(record).map_err(|e| RegistryError::new(ErrorKind::Io, e.to_string()))?;
        let new = path.with_file_name(format!(
            "{TEMPORARY}{}.{}",
            process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        ));
        let written = fs::write(&new, text).and_then(|()| fs::rename(&new, &path));
        written.map_err(|e| {
            let _ = fs::remove_file(&new);
            RegistryError::io("write", &path, &e)
        })
    }

    /// What a name stands for, if all of it is there.
    pub fn find(&self, name: &str) -> Option<Record> {
        let record = read_record(&self.record_path(name).ok()?)?;
        (record.name == name && self.is_whole(&record)).then_some(record)
    }

    fn is_whole(&self, record: &Record) -> bool {
        record.blobs.iter().all(|(digest, size)| self.has(digest, *size))
    }

    /// All names, the one pulled last first.
    pub fn list(&self) -> Vec<Record> {
        let mut all: Vec<Record> = fs::read_dir(self.folder.join("names"))
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| entry.path().extension().is_some_and(|e| e == "json"))
            .filter_map(|entry| read_record(&entry.path()))
            .collect();
        all.sort_by(|a, b| b.pulled_ms.cmp(&a.pulled_ms).then_with(|| a.name.cmp(&b.name)));
        all
    }

    /// Bytes of all that is kept, and of that what no image of these manifests has.
    pub fn sizes(&self, manifests: &BTreeSet<String>) -> (u64, u64) {
        let used = self.list().into_iter().filter(|r| manifests.contains(&r.manifest));
        let used: BTreeSet<String> = used.flat_map(|r| r.blobs).map(|(digest, _)| digest).collect();
        let (mut all, mut unused) = (0, 0);
        for entry in fs::read_dir(self.folder.join("blobs/sha256")).into_iter().flatten().flatten() {
            let Ok(size) = entry.metadata().map(|m| m.len()) else { continue };
            all += size;
            if !used.contains(&format!("sha256:{}", entry.file_name().to_string_lossy())) {
                unused += size;
            }
        }
        (all, unused)
    }

    /// Forgets a name; its blobs stay until [`Self::collect`].
    pub fn forget(&self, name: &str) -> Result<()> {
        let path = self.record_path(name)?;
        fs::remove_file(&path).map_err(|e| RegistryError::io("remove", &path, &e))
    }

    /// Removes blobs that no name has, and what pulls that were killed left behind. Returns the bytes that were freed: 0 as
    /// well while an image is being pulled or read, whose blobs have no name yet.
    pub fn collect(&self) -> u64 {
        let Ok((_, lock)) = self.lock() else { return 0 };
        if lock.try_lock().is_err() {
            return 0;
        }
        let named: BTreeSet<String> = self.list().into_iter().flat_map(|r| r.blobs).map(|(d, _)| d).collect();
        let mut freed = 0;
        for folder in ["blobs/sha256", "names"] {
            for entry in fs::read_dir(self.folder.join(folder)).into_iter().flatten().flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                let left_behind = name.starts_with(TEMPORARY)
                    && File::open(entry.path()).is_ok_and(|file| file.try_lock().is_ok());
                let unnamed = hexadecimal(&format!("sha256:{name}")).is_some()
                    && !named.contains(&format!("sha256:{name}"));
                let Ok(size) = entry.metadata().map(|m| m.len()) else { continue };
                if (left_behind || unnamed) && fs::remove_file(entry.path()).is_ok() {
                    freed += size;
                }
            }
        }
        freed
    }
}

fn read_record(path: &Path) -> Option<Record> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(MAX_RECORD).read_to_end(&mut bytes).ok()?;
    serde_json::from_slice(&bytes).ok()
}

pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A blob while it is written; dropped before [`Pending::finish`], it is gone.
pub(crate) struct Pending {
    path: PathBuf,
    file: File,
    hash: Sha256,
    pub(crate) written: u64,
    done: bool,
}

impl Pending {
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(|e| RegistryError::io("write", &self.path, &e))?;
        self.hash.update(bytes);
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Begins again.
    pub(crate) fn clear(&mut self) -> Result<()> {
        use std::io::Seek;
        let cleared = self.file.set_len(0).and_then(|()| self.file.rewind());
        cleared.map_err(|e| RegistryError::io("write", &self.path, &e))?;
        (self.hash, self.written) = (Sha256::new(), 0);
        Ok(())
    }

    /// Checks size and digest, and gives the blob its name. `what` is for the message.
    pub(crate) fn finish(mut self, store: &Store, digest: &str, size: u64, what: &str) -> Result<()> {
        if self.written != size {
            fail!(Corrupt, "{what} {digest} has {} bytes and not {size} as its manifest says", self.written);
        }
        let found = spell(&std::mem::take(&mut self.hash).finalize());
        let Some(target) = store.blob_path(digest).filter(|_| found == digest) else {
            fail!(Corrupt, "{what}: the digest of what was sent is {found}, and not {digest} as asked for");
        };
        fs::rename(&self.path, &target).map_err(|e| RegistryError::io("write", &target, &e))?;
        self.done = true;
        Ok(())
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.done {
            // Nothing can be done about a failure; `collect` finds it later.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(name: &str, blobs: &[&str]) -> Record {
        Record {
            name: name.into(),
            manifest: blobs[0].into(),
            digest: blobs[0].into(),
            config: blobs[0].into(),
            blobs: blobs.iter().map(|b| (b.to_string(), 1)).collect(),
            pulled_ms: 1,
            created: None,
        }
    }

    #[test]
    fn blobs_are_shared_and_go_with_the_last_name() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path().join("oci"));
        let [a, b, c] = [b"a", b"b", b"c"].map(|bytes| store.put(bytes).unwrap());
        store.record(&record("one", &[&a, &b])).unwrap();
        store.record(&record("two", &[&b, &c])).unwrap();
        assert_eq!(store.collect(), 0);
        let manifests = BTreeSet::from([store.find("two").unwrap().manifest]);
        assert_eq!(store.sizes(&manifests), (3, 1));
        store.forget("one").unwrap();
        let lease = store.lease().unwrap();
        assert_eq!(store.collect(), 0, "somebody pulls");
        drop(lease);
        assert_eq!(store.collect(), 1);
        assert!(!store.has(&a, 1) && store.has(&b, 1) && store.find("one").is_none());
        assert_eq!(store.find("two").unwrap(), record("two", &[&b, &c]));
        fs::remove_file(store.blob_path(&c).unwrap()).unwrap();
        assert!(store.find("two").is_none(), "a part is missing");
    }

    #[test]
    fn a_wrong_blob_is_named_by_both_digests_and_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path());
        let wanted = digest_of(b"right");
        for (bytes, parts) in
            [(&b"wrong"[..], vec![digest_of(b"wrong"), wanted.clone()]), (b"short", vec!["and not 9".into()])]
        {
            let mut pending = store.begin().unwrap();
            pending.write(bytes).unwrap();
            let size = if bytes == b"short" { 9 } else { 5 };
            let error = pending.finish(&store, &wanted, size, "layer").unwrap_err();
            assert!(parts.iter().all(|p| error.message.contains(p)), "{error}");
        }
        assert_eq!(fs::read_dir(folder.path().join("blobs/sha256")).unwrap().count(), 0);
    }

    #[test]
    fn what_a_killed_pull_left_behind_is_collected_and_what_is_written_stays() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path());
        let writing = store.begin().unwrap();
        let left = writing.path.with_file_name(".new.1.1");
        fs::write(&left, "half").unwrap();
        assert_eq!(store.collect(), 4);
        assert!(!left.exists() && writing.path.exists());
    }

    #[test]
    fn only_digests_are_names_of_files() {
        let x = "x".repeat(64);
        let upper = "A".repeat(64);
        for text in
            ["", "sha256:", "sha256:../../etc/passwd", &format!("sha256:{x}"), &format!("sha256:{upper}")]
        {
            assert!(hexadecimal(text).is_none(), "{text}");
        }
    }
}
