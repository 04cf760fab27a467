// SPDX-License-Identifier: Apache-2.0 OR MIT
//! OCI layouts (image-spec 1.1, image-layout.md), as a directory or a tar file, and docker-archive tar files (what
//! `docker save` and `podman save` write). Every blob's digest is checked.

use crate::{
    archive::{self, MAX_UNPACKED, Rules},
    cache::{digest, hex},
    error::{ErrorKind, ImageError, Result, fail},
    request::{ImageHealth, Progress, Stored},
    tree::Tree,
};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

/// Indexes may point to indexes; more levels than this are a mistake.
const MAX_INDEX_DEPTH: usize = 4;

/// Whether a file is a tar archive, plain or gzip-compressed, by its magic numbers (POSIX ustar, RFC 1952 2.3.1).
pub(crate) fn looks_like_archive(path: &Path) -> bool {
    let mut head = Vec::new();
    let Ok(file) = File::open(path) else { return false };
    // An unreadable file is not an archive here and gets its own error later.
    let _ = file.take(262).read_to_end(&mut head);
    head.starts_with(&GZIP) || head.starts_with(&ZSTD) || head.get(257..262) == Some(b"ustar")
}

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// The `config` object of an image configuration (image-spec config.md).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct RunConfig {
    pub user: Option<String>,
    pub exposed_ports: Option<BTreeMap<String, serde_json::Value>>,
    pub env: Option<Vec<String>>,
    pub entrypoint: Option<Vec<String>>,
    pub cmd: Option<Vec<String>>,
    pub volumes: Option<BTreeMap<String, serde_json::Value>>,
    pub working_dir: Option<String>,
    pub stop_signal: Option<String>,
    pub healthcheck: Option<HealthConfig>,
}

/// docker's addition to it: how a container is asked whether it is well. Times are nanoseconds, and 0 where it does not say.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct HealthConfig {
    test: Option<Vec<String>>,
    interval: i64,
    timeout: i64,
    start_period: i64,
    start_interval: i64,
    retries: i64,
}

impl HealthConfig {
    /// The check; `None` where there is none, an error where it is of a kind that is not known.
    pub fn check(self) -> std::result::Result<Option<ImageHealth>, String> {
        let test = self.test.unwrap_or_default();
        let command = match test.split_first() {
            None => return Ok(None),
            Some((kind, _)) if kind == "NONE" => return Ok(None),
            Some((kind, words)) if kind == "CMD" && !words.is_empty() => words.to_vec(),
            Some((kind, [line])) if kind == "CMD-SHELL" => vec!["/bin/sh".into(), "-c".into(), line.clone()],
            Some((kind, _)) => return Err(kind.clone()),
        };
        let time = |ns: i64| u64::try_from(ns).ok().filter(|ns| *ns > 0).map(|ns| ns.div_ceil(1_000_000));
        Ok(Some(ImageHealth {
            command,
            interval: time(self.interval),
            timeout: time(self.timeout),
            retries: u32::try_from(self.retries).ok().filter(|count| *count > 0),
            start_period: time(self.start_period),
            start_interval: time(self.start_interval),
        }))
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ImageFile {
    architecture: String,
    os: String,
    config: Option<RunConfig>,
    rootfs: RootFs,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RootFs {
    diff_ids: Vec<String>,
}

#[derive(Deserialize)]
struct Descriptor {
    digest: String,
    #[serde(default)]
    platform: Option<Platform>,
}

#[derive(Deserialize)]
struct Platform {
    architecture: String,
    os: String,
}

#[derive(Deserialize)]
struct Index {
    manifests: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct OciManifest {
    config: Descriptor,
    layers: Vec<Descriptor>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerManifest {
    config: String,
    layers: Vec<String>,
}

/// The files of an image, in a directory or a tar file.
enum Store {
    Directory(PathBuf),
    Archive(Box<Tree>),
}

struct Source {
    store: Store,
    /// For messages.
    name: String,
}

fn corrupt<E: std::fmt::Display>(what: &str) -> impl Fn(E) -> ImageError + '_ {
    move |e| ImageError::new(ErrorKind::Corrupt, format!("{what}: damaged image: {e}"))
}

impl Source {
    fn open(path: &Path) -> Result<Source> {
        let name = path.display().to_string();
        if path.is_dir() {
            if !path.join("index.json").is_file() {
                fail!(
                    NotRunnable,
                    "{name}: no index.json, so not an OCI layout; a plain root directory is written dir:{name}"
                );
            }
            return Ok(Source { store: Store::Directory(path.to_path_buf()), name });
        }
        let file = File::open(path).map_err(|e| ImageError::io("read", path, &e))?;
        let mut tree = Tree::new();
        let reader = decompress(Box::new(io::BufReader::new(file)), &name)?;
        archive::unpack(reader, &name, Rules::Package, &|_| false, &mut MAX_UNPACKED.clone(), &mut tree)?;
        Ok(Source { store: Store::Archive(Box::new(tree)), name })
    }

    fn file(&self, path: &str) -> Result<Option<Arc<[u8]>>> {
        match &self.store {
            Store::Directory(folder) => match fs::read(folder.join(path)) {
                Ok(bytes) => Ok(Some(bytes.into())),
                Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(e) => Err(ImageError::io("read", &folder.join(path), &e)),
            },
            Store::Archive(tree) => match tree.file(Path::new(path)) {
                Some((_, content)) => Ok(Some(content.read()?)),
                None => Ok(None),
            },
        }
    }

    /// A blob, its digest checked (image-spec descriptor.md, "Digests"; only sha256 is in use).
    fn blob(&self, wanted: &str) -> Result<Arc<[u8]>> {
        let name = &self.name;
        let hexadecimal = wanted
            .strip_prefix("sha256:")
            .filter(|h| h.len() == 64 && h.bytes().all(|b| b.is_ascii_hexdigit()));
        let Some(hexadecimal) = hexadecimal else {
            fail!(Corrupt, "{name}: damaged image: `{wanted}` is no sha256 digest");
        };
        let Some(bytes) = self.file(&format!("blobs/sha256/{hexadecimal}"))? else {
            fail!(Corrupt, "{name}: incomplete image: blob {wanted} is missing; copy the image again");
        };
        let found = digest(&bytes);
        if !found.eq_ignore_ascii_case(hexadecimal) {
            fail!(
                Corrupt,
                "{name}: damaged image: blob {wanted} has the digest sha256:{found}; copy the image again"
            );
        }
        Ok(bytes)
    }

    fn json<T: for<'de> Deserialize<'de>>(&self, bytes: &[u8], what: &str) -> Result<T> {
        serde_json::from_slice(bytes).map_err(|e| corrupt(&self.name)(format!("{what}: {e}")))
    }

    /// Follows indexes to the manifest for this architecture.
    fn manifest(&self, index: Index, depth: usize) -> Result<OciManifest> {
        let name = &self.name;
        let fits = |d: &&Descriptor| {
            d.platform.as_ref().is_none_or(|p| p.os == "linux" && p.architecture == "amd64")
        };
        let named = |d: &&Descriptor| d.platform.is_some();
        let all: Vec<&Descriptor> = index.manifests.iter().filter(fits).collect();
        let Some(chosen) = all.iter().find(|d| named(d)).or(all.first()) else {
            let has: Vec<String> = index
                .manifests
                .iter()
                .filter_map(|d| d.platform.as_ref())
                .map(|p| format!("{}/{}", p.os, p.architecture))
                .collect();
            fail!(
                NotRunnable,
                "{name}: no image for linux/amd64 in it (it has: {})",
                if has.is_empty() { "none".into() } else { has.join(", ") }
            );
        };
        let bytes = self.blob(&chosen.digest)?;
        if let Ok(inner) = serde_json::from_slice::<Index>(&bytes) {
            if depth == MAX_INDEX_DEPTH {
                fail!(Corrupt, "{name}: damaged image: indexes nested more than {MAX_INDEX_DEPTH} deep");
            }
            return self.manifest(inner, depth + 1);
        }
        self.json(&bytes, "manifest")
    }
}

fn decompress<'a>(mut reader: Box<dyn Read + 'a>, what: &str) -> Result<Box<dyn Read + 'a>> {
    let mut head = Vec::new();
    reader.by_ref().take(4).read_to_end(&mut head).map_err(corrupt(what))?;
    let compressed = (head.starts_with(&GZIP), head.starts_with(&ZSTD));
    let whole = io::Cursor::new(head).chain(reader);
    Ok(match compressed {
        (true, _) => Box::new(flate2::read::MultiGzDecoder::new(whole)),
        (_, true) => Box::new(ruzstd::decoding::StreamingDecoder::new(whole).map_err(corrupt(what))?),
        _ => Box::new(whole),
    })
}

/// Computes the digest of what passes through.
struct Hashed<R> {
    inner: R,
    hash: Sha256,
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.hash.update(&buffer[..n]);
        Ok(n)
    }
}

/// Where a layer is in an image.
enum Layer {
    Blob(String),
    File(String),
}

impl Source {
    fn need(&self, path: &str) -> Result<Arc<[u8]>> {
        let name = &self.name;
        match self.file(path)? {
            Some(bytes) => Ok(bytes),
            None => fail!(Corrupt, "{name}: incomplete image: {path} is missing; save the image again"),
        }
    }

    fn layer(&self, layer: &Layer) -> Result<Arc<[u8]>> {
        match layer {
            Layer::Blob(digest) => self.blob(digest),
            Layer::File(path) => self.need(path),
        }
    }

    /// Configuration and layers that a manifest names.
    fn parts(&self, manifest: OciManifest) -> Result<(Arc<[u8]>, Vec<Layer>)> {
        let layers = manifest.layers.into_iter().map(|l| Layer::Blob(l.digest)).collect();
        Ok((self.blob(&manifest.config.digest)?, layers))
    }
}

/// Unpacks an image of a layout or an archive and returns its configuration.
pub(crate) fn load(path: &Path, progress: &dyn Progress, tree: &mut Tree) -> Result<RunConfig> {
    progress.step("reading the image");
    let source = Source::open(path)?;
    let name = source.name.clone();
    let (config, layers) = if let Some(index) = source.file("index.json")? {
        let manifest = source.manifest(source.json(&index, "index.json")?, 0)?;
        source.parts(manifest)?
    } else if let Some(bytes) = source.file("manifest.json")? {
        let manifests: Vec<DockerManifest> = source.json(&bytes, "manifest.json")?;
        let [manifest] = &manifests[..] else {
            fail!(NotRunnable, "{name}: {} images in one archive; save one image only", manifests.len());
        };
        let layers = manifest.layers.iter().map(|l| Layer::File(l.clone())).collect();
        (source.need(&manifest.config)?, layers)
    } else {
        fail!(
            NotRunnable,
            "{name}: neither index.json nor manifest.json in it, so not an OCI or docker image"
        );
    };
    unpack(&source, &config, &layers, progress, tree)
}

/// Unpacks an image that was got from a registry and returns its configuration.
pub(crate) fn load_stored(image: &Stored, progress: &dyn Progress, tree: &mut Tree) -> Result<RunConfig> {
    let source = Source { store: Store::Directory(image.folder.clone()), name: image.name.clone() };
    let manifest = source.json(&source.blob(&image.manifest)?, "manifest")?;
    let (config, layers) = source.parts(manifest)?;
    unpack(&source, &config, &layers, progress, tree)
}

fn unpack(
    source: &Source,
    config: &[u8],
    layers: &[Layer],
    progress: &dyn Progress,
    tree: &mut Tree,
) -> Result<RunConfig> {
    let name = &source.name;
    let image: ImageFile = source.json(config, "configuration")?;
    if !image.architecture.is_empty() && (image.architecture != "amd64" || image.os != "linux") {
        fail!(NotRunnable, "{name}: an image for {}/{}; only linux/amd64 runs", image.os, image.architecture);
    }
    if image.rootfs.diff_ids.len() != layers.len() {
        fail!(
            Corrupt,
            "{name}: damaged image: {} layers, but {} layer digests",
            layers.len(),
            image.rootfs.diff_ids.len()
        );
    }
    progress.step("unpacking layers");
    let mut budget = MAX_UNPACKED;
    for (number, (layer, wanted)) in layers.iter().zip(&image.rootfs.diff_ids).enumerate() {
        progress.advance(number as u64, layers.len() as u64);
        let what = format!("{name}: layer {}", number + 1);
        let layer = source.layer(layer)?;
        let reader = decompress(Box::new(&layer[..]), &what)?;
        let mut hashed = Hashed { inner: reader.take(MAX_UNPACKED), hash: Sha256::new() };
        let unpacked = archive::unpack(&mut hashed, &what, Rules::Layer, &|_| false, &mut budget, tree);
        // The digest covers all bytes, and a wrong one explains whatever the archive reader met.
        let read = io::copy(&mut hashed, &mut io::sink());
        let found = format!("sha256:{}", hex(&hashed.hash.finalize()));
        if read.is_err() || found != *wanted {
            fail!(Corrupt, "{what}: damaged: its digest is {found}, expected {wanted}; copy the image again");
        }
        unpacked?;
    }
    Ok(image.config.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_checks_of_every_kind_are_read() {
        let read = |text: &str| serde_json::from_str::<HealthConfig>(text).unwrap().check();
        let command = |text: &str| read(text).unwrap().map(|health| health.command);
        assert_eq!(command("{}"), None);
        assert_eq!(command(r#"{"Test": null}"#), None);
        assert_eq!(command(r#"{"Test": ["NONE"]}"#), None);
        assert_eq!(command(r#"{"Test": ["CMD", "a", "b"]}"#), Some(vec!["a".into(), "b".into()]));
        assert_eq!(
            command(r#"{"Test": ["CMD-SHELL", "a b"]}"#),
            Some(vec!["/bin/sh".into(), "-c".into(), "a b".into()])
        );
        for text in [r#"{"Test": ["CMD"]}"#, r#"{"Test": ["CMD-SHELL", "a", "b"]}"#, r#"{"Test": ["X"]}"#] {
            assert!(read(text).is_err(), "{text}");
        }
        let text = r#"{"Test": ["CMD", "a"], "Interval": -1, "Timeout": 9223372036854775807, "Retries": 5000000000}"#;
        let health = read(text).unwrap().unwrap();
        assert_eq!((health.interval, health.timeout, health.retries), (None, Some(9_223_372_036_855), None));
    }
}
