// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An image of one layer as a tar file of an OCI layout (image-spec 1.1, image-layout.md), with the manifest beside it that
//! `docker load` of before version 25 wants.

use crate::{
    cpio::{Error, Result},
    image::Image,
    layer::{self, Made},
};
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};
use tar::{Builder, Header};

/// What `unilith run` takes of an image (`unilith-image`), with room for what is beside the layer.
const MAX_LAYER: u64 = (2 << 30) - (16 << 20);
const BLOCK: u64 = 512;

/// The `config` of an image's configuration (image-spec config.md): how to run its program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Config {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub exposed_ports: BTreeMap<String, Empty>,
    pub env: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub entrypoint: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cmd: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub working_dir: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub stop_signal: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub healthcheck: Option<HealthConfig>,
}

/// docker's addition to it: how the program is asked whether it is well. Times are nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct HealthConfig {
    /// `CMD`, then the words.
    pub test: Vec<String>,
    pub interval: u64,
    pub timeout: u64,
    pub start_period: u64,
    pub start_interval: u64,
    pub retries: u32,
}

/// `{}`, the value of a set's member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Empty {}

/// Who made an image, when and why.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    /// RFC 3339.
    pub created: String,
    pub author: String,
    pub comment: String,
}

#[derive(Serialize)]
struct Descriptor<'a> {
    #[serde(rename = "mediaType")]
    media_type: &'a str,
    digest: String,
    size: u64,
}

/// An image that is written and has not got its name yet.
pub struct Written {
    pending: Pending,
    made: Made,
}

impl Written {
    /// Puts it where it belongs; what was there is replaced.
    pub fn finish(self) -> Result<Made> {
        self.pending.finish()?;
        Ok(self.made)
    }
}

/// Writes an image of what `archive` says of a machine, under another name beside `path`.
pub fn write(
    image: &Image,
    archive: impl Read,
    config: &Config,
    origin: &Origin,
    path: &Path,
) -> Result<Written> {
    let mut pending = Pending::begin(path)?;
    let failed = |e| Error::Io(format!("writing {}", path.display()), e);
    // The layer's name is its digest: its header is written when it is known.
    let file = &mut pending.file;
    file.seek(SeekFrom::Start(BLOCK)).map_err(failed)?;
    let hashed = Hashed { inner: io::BufWriter::new(&mut *file), hash: Sha256::new(), length: 0 };
    let (made, mut hashed) = layer::write(image, archive, hashed)?;
    hashed.inner.flush().map_err(failed)?;
    let (digest, length) = (hex(&hashed.hash.clone().finalize()), hashed.length);
    drop(hashed);
    file.seek(SeekFrom::Start(0)).map_err(failed)?;
    file.write_all(blob_header(&blob(&digest), length)?.as_bytes()).map_err(failed)?;
    let end = BLOCK + length.next_multiple_of(BLOCK);
    file.set_len(end).map_err(failed)?;
    file.seek(SeekFrom::Start(end)).map_err(failed)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    rest(file, &digest, length, config, origin, &name)?;
    Ok(Written { pending, made })
}

/// Writes everything but the layer.
fn rest(
    file: &mut File,
    layer: &str,
    length: u64,
    config: &Config,
    origin: &Origin,
    name: &str,
) -> Result<()> {
    let mut tar = Builder::new(file);
    let mut put = |name: &str, bytes: &[u8]| {
        let header = blob_header(name, bytes.len() as u64)?;
        tar.append(&header, bytes).map_err(|e| Error::Io(format!("writing {name}"), e))
    };
    let json = |value: &serde_json::Value| value.to_string().into_bytes();
    let created_by = "unilith commit";
    let configuration = json(&serde_json::json!({
        "created": origin.created,
        "author": origin.author,
        "architecture": "amd64",
        "os": "linux",
        "config": config,
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{layer}")] },
        "history": [{ "created": origin.created, "author": origin.author, "created_by": created_by, "comment": origin.comment }],
    }));
    let configured = hex(&Sha256::digest(&configuration));
    put(&blob(&configured), &configuration)?;
    let descriptor = |kind: &'static str, digest: &str, size: u64| Descriptor {
        media_type: kind,
        digest: format!("sha256:{digest}"),
        size,
    };
    let manifest = json(&serde_json::json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": descriptor("application/vnd.oci.image.config.v1+json", &configured, configuration.len() as u64),
        "layers": [descriptor("application/vnd.oci.image.layer.v1.tar", layer, length)],
    }));
    let id = hex(&Sha256::digest(&manifest));
    put(&blob(&id), &manifest)?;
    let index = serde_json::json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [{
            "mediaType": MANIFEST,
            "digest": format!("sha256:{id}"),
            "size": manifest.len(),
            "platform": { "architecture": "amd64", "os": "linux" },
            "annotations": { "org.opencontainers.image.ref.name": name },
        }],
    });
    put("index.json", &json(&index))?;
    put("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    let docker =
        serde_json::json!([{ "Config": blob(&configured), "RepoTags": [], "Layers": [blob(layer)] }]);
    put("manifest.json", &json(&docker))?;
    tar.finish().map_err(|e| Error::Io("writing the image".into(), e))
}

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

fn blob(digest: &str) -> String {
    format!("blobs/sha256/{digest}")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn blob_header(name: &str, size: u64) -> Result<Header> {
    let mut header = Header::new_ustar();
    header.set_path(name).map_err(|e| Error::Io(format!("writing {name}"), e))?;
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size);
    header.set_cksum();
    Ok(header)
}

/// Computes the digest of what passes through, up to as much as an image may have.
struct Hashed<W> {
    inner: W,
    hash: Sha256,
    length: u64,
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.length + bytes.len() as u64 > MAX_LAYER {
            let text = format!("the root file system is larger than the {} MiB of an image", MAX_LAYER >> 20);
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
        }
        let count = self.inner.write(bytes)?;
        self.hash.update(&bytes[..count]);
        self.length += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// A file under another name until it is whole; dropped before [`Pending::finish`], it is gone.
struct Pending {
    temporary: PathBuf,
    target: PathBuf,
    file: File,
}

impl Pending {
    fn begin(target: &Path) -> Result<Pending> {
        let failed = |e| Error::Io(format!("writing {}", target.display()), e);
        let Some(name) = target.file_name().filter(|_| !target.is_dir()) else {
            return Err(failed(io::ErrorKind::IsADirectory.into()));
        };
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}", std::process::id()));
        let temporary = target.with_file_name(hidden);
        // A leftover of the same number is nobody's any more.
        let _ = fs::remove_file(&temporary);
        let file = OpenOptions::new().write(true).create_new(true).open(&temporary).map_err(failed)?;
        Ok(Pending { temporary, target: target.to_path_buf(), file })
    }

    fn finish(self) -> Result<()> {
        let failed = |e| Error::Io(format!("writing {}", self.target.display()), e);
        self.file.sync_all().map_err(failed)?;
        fs::rename(&self.temporary, &self.target).map_err(failed)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        // After `finish` the name is gone already; nothing can be done about any other failure.
        let _ = fs::remove_file(&self.temporary);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpio::{
        Contents,
        tests::{Given, archive, given},
    };
    use std::collections::BTreeSet;

    const DIR: u32 = 0o040755;
    const FILE: u32 = 0o100644;

    fn written(before: &[Given<'_>], after: &[Given<'_>]) -> (tempfile::TempDir, Result<Made>) {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root.cpio");
        fs::write(&root, archive(before, Contents::Present)).unwrap();
        let image = Image::open(&root).unwrap();
        let after: Vec<Given<'_>> = [given(".", DIR, 0, b"")].iter().chain(after).cloned().collect();
        let bytes = archive(&after, Contents::Present);
        let out = folder.path().join("image.tar");
        let origin = Origin::default();
        let written = write(&image, &bytes[..], &Config::default(), &origin, &out);
        assert!(!out.exists(), "it has its name when it is said to be whole");
        (folder, written.and_then(Written::finish))
    }

    /// Path, kind, link's target, data and time of each entry of the layer.
    fn layer(folder: &tempfile::TempDir) -> Vec<String> {
        let file = File::open(folder.path().join("image.tar")).unwrap();
        let mut outer = tar::Archive::new(file);
        let mut entries = outer.entries().unwrap();
        let mut bytes = Vec::new();
        entries.next().unwrap().unwrap().read_to_end(&mut bytes).unwrap();
        let mut out = Vec::new();
        for entry in tar::Archive::new(&bytes[..]).entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut data = String::new();
            entry.read_to_string(&mut data).unwrap();
            let h = entry.header();
            let target = entry.link_name_bytes().map(|t| String::from_utf8_lossy(&t).into_owned());
            out.push(format!(
                "{} {:?} {:o} {}:{} {} {} {data}",
                String::from_utf8_lossy(&entry.path_bytes()),
                h.entry_type(),
                h.mode().unwrap(),
                h.uid().unwrap(),
                h.gid().unwrap(),
                h.mtime().unwrap(),
                target.unwrap_or_default(),
            ));
        }
        out
    }

    #[test]
    fn owners_modes_links_and_times_are_in_the_layer() {
        let long = "d/../".repeat(40);
        let twice = |path, data| Given { inode: 9, links: 2, owner: (7, 8), ..given(path, FILE, 5, data) };
        let after = [
            given("d", DIR, 3, b""),
            Given { owner: (3_000_000, 2), ..given("d/set", 0o104755, 4, b"x") },
            given("l", 0o120777, 6, b".//a/../b/"),
            given("long", 0o120777, 6, long.as_bytes()),
            twice("one", b""),
            twice("two", b"12"),
            given("pipe", 0o010644, 1, b""),
            given("d/.wh.x", FILE, 1, b"1"),
        ];
        let (folder, made) = written(&[], &after);
        assert_eq!(made.unwrap(), Made { files: 6, left_out: 2 });
        let wanted = [
            "d Directory 755 0:0 3  ".to_string(),
            "d/set Regular 4755 3000000:2 4  x".into(),
            "l Symlink 777 0:0 6 .//a/../b/ ".into(),
            format!("long Symlink 777 0:0 6 {long} "),
            "two Regular 644 7:8 5  12".into(),
            "one Link 644 7:8 5 two ".into(),
        ];
        assert_eq!(layer(&folder), wanted);
    }

    #[test]
    fn where_something_is_mounted_the_images_files_stay_and_what_is_mounted_is_left_out() {
        let before = [
            given("data", DIR, 1, b""),
            given("data/mine", FILE, 1, b"image"),
            given("etc/hosts", FILE, 1, b"image"),
            given("gone", FILE, 1, b"image"),
            given(".unilith/sites/x", FILE, 1, b"table"),
        ];
        let mounted = |path| Given { device: 7, ..given(path, DIR, 2000, b"") };
        let after = [mounted("data"), mounted("new"), given("etc/hosts", FILE, 9, b"start")];
        let (folder, made) = written(&before, &after);
        made.unwrap();
        let lines = layer(&folder);
        let names: BTreeSet<&str> = lines.iter().filter_map(|l| l.split(' ').next()).collect();
        assert_eq!(names, BTreeSet::from(["data", "data/mine", "etc/hosts", "new"]));
        assert!(lines.iter().any(|l| l == "etc/hosts Regular 644 0:0 1  image"), "{lines:?}");
    }

    #[test]
    fn an_archive_that_ends_early_leaves_nothing_and_what_was_there_stays() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root.cpio");
        fs::write(&root, archive(&[], Contents::Present)).unwrap();
        let image = Image::open(&root).unwrap();
        let whole = archive(&[given(".", DIR, 0, b""), given("a", FILE, 0, b"12345")], Contents::Present);
        let out = folder.path().join("image.tar");
        fs::write(&out, "before").unwrap();
        for cut in [0, 100, 230, whole.len() - 1] {
            let done = write(&image, &whole[..cut], &Config::default(), &Origin::default(), &out);
            assert!(done.is_err(), "{cut}");
        }
        assert_eq!(fs::read(&out).unwrap(), b"before");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        let done = write(&image, &whole[..], &Config::default(), &Origin::default(), folder.path());
        assert!(done.is_err(), "a directory is no place for a file");
    }
}
