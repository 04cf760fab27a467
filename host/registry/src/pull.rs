// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An image from a registry into the store: manifest, configuration and layers, each verified before it has a name.

use crate::{
    credentials::CredentialFiles,
    error::{ErrorKind, RegistryError, Result, fail},
    name::Name,
    session::{Session, TRIES, pause},
    settings::{Endpoint, Settings},
    store::{Record, Store, digest_of, hexadecimal, now_ms},
};
use oci_spec::image::{Arch, Descriptor, ImageIndex, ImageManifest, Os};
use serde::Deserialize;
use std::{
    collections::BTreeSet,
    io::Read,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};
use ureq::http::{StatusCode, header};

/// Bytes of a manifest or an index (docker's limit).
pub(crate) const MAX_MANIFEST: u64 = 4 << 20;
/// Bytes of a configuration.
pub(crate) const MAX_CONFIG: u64 = 8 << 20;
/// Bytes of all layers, packed: an image is in memory when it runs, and 2 GiB unpacked are the most there.
const MAX_LAYERS: u64 = 2 << 30;
/// Layers of an image; overlay file systems end at 127.
const MAX_COUNT: usize = 512;
/// Indexes may point to indexes; more levels than this are a mistake.
const MAX_DEPTH: usize = 4;
/// A body that brings less than this in the time in which nothing would be a stall, is one.
const LEAST_BYTES: u64 = 4 << 10;
/// Bytes that are read at once.
const PIECE: usize = 64 << 10;

const MANIFEST: [&str; 2] =
    ["application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json"];
const INDEX: [&str; 2] =
    ["application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json"];
/// Manifests of docker before 2017, without digests of what is in them.
const OLD: &str = "application/vnd.docker.distribution.manifest.v1+";
const CONFIG: [&str; 2] =
    ["application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json"];

/// Where long work tells how far it is.
pub trait Progress: Sync {
    fn step(&self, text: &str);
    /// Bytes.
    fn advance(&self, done: u64, total: u64);
}

/// All that getting images needs.
pub struct Registries {
    pub settings: Settings,
    pub credentials: CredentialFiles,
    pub store: Store,
}

/// A pulled image.
#[derive(Clone, Debug)]
pub struct Pulled {
    pub record: Record,
    /// Bytes that were fetched for it; the rest was there.
    pub fetched: u64,
    /// Mirrors that did not have it, and why.
    pub notes: Vec<String>,
}

impl Registries {
    /// Those of this user, with the store in `folder`.
    pub fn of_user(folder: impl Into<std::path::PathBuf>) -> Result<Registries> {
        Ok(Registries {
            settings: Settings::of_user()?,
            credentials: CredentialFiles::of_user()?,
            store: Store::new(folder),
        })
    }

    /// Gets an image, or makes sure that what the store has is what the registry has.
    pub fn pull(&self, name: &Name, progress: &dyn Progress) -> Result<Pulled> {
        let _lease = self.store.lease()?;
        let mut notes = Vec::new();
        for endpoint in self.settings.endpoints(name)? {
            match self.pull_from(&endpoint, name, progress) {
                Ok((record, fetched)) => return Ok(Pulled { record, fetched, notes }),
                // A mirror is a convenience.
                Err(e) if endpoint.is_mirror && e.kind != ErrorKind::Io => {
                    notes.push(format!("mirror {e}"));
                }
                Err(e) => {
                    let text = format!("{name}: {}", e.message);
                    return Err(RegistryError::new(e.kind, [notes, vec![text]].concat().join("; ")));
                }
            }
        }
        fail!(Settings, "{name}: registries.conf names no place to ask")
    }

    /// Whether a registry takes these credentials; the error says why not.
    pub fn log_in(&self, registry: &str, user: &str, password: &str) -> Result<()> {
        let endpoint = self.settings.endpoint_of(registry)?;
        let credentials =
            crate::credentials::Credentials::Password { user: user.into(), password: password.into() };
        Session::open_as(&endpoint, Some(credentials))?.log_in()
    }

    fn pull_from(&self, endpoint: &Endpoint, name: &Name, progress: &dyn Progress) -> Result<(Record, u64)> {
        progress.step(&format!("fetching {name} from {}", endpoint.host));
        let mut session = Session::open(endpoint, &self.credentials)?;
        let top = document(&mut session, &format!("image {name}"), name.wanted(), None)?;
        let digest = digest_of(&top.bytes);
        let manifest = follow(&mut session, top, 0)?;
        let image = read_manifest(&manifest.bytes)?;

        let mut blobs = vec![(self.store.put(&manifest.bytes)?, manifest.bytes.len() as u64)];
        let mut missing = Vec::new();
        let mut seen = BTreeSet::new();
        for (what, descriptor) in std::iter::once(("configuration", image.config()))
            .chain(image.layers().iter().map(|l| ("layer", l)))
        {
            let digest = descriptor.digest().to_string();
            if hexadecimal(&digest).is_none() {
                fail!(Corrupt, "the manifest names a {what} `{digest}`, which is no sha256 digest");
            }
            if seen.insert(digest.clone()) {
                blobs.push((digest.clone(), descriptor.size()));
                if !self.store.has(&digest, descriptor.size()) {
                    missing.push(Blob { what, digest, size: descriptor.size() });
                }
            }
        }
        let total: u64 = missing.iter().map(|b| b.size).sum();
        self.fetch(session, &missing, total, progress)?;
        let config = image.config().digest().to_string();
        let Some(bytes) = self.store.read(&config, MAX_CONFIG) else {
            fail!(
                Corrupt,
                "the configuration {config} in the store is damaged: `unilith rmi` and pull again"
            );
        };
        let record = Record {
            name: name.to_string(),
            manifest: blobs[0].0.clone(),
            digest,
            created: check_config(&bytes)?,
            config,
            blobs,
            pulled_ms: now_ms(),
        };
        self.store.record(&record)?;
        Ok((record, total))
    }

    fn fetch(
        &self,
        mut session: Session,
        missing: &[Blob],
        total: u64,
        progress: &dyn Progress,
    ) -> Result<()> {
        let done = AtomicU64::new(0);
        // One after the other: a registry gives one connection most of what it gives.
        let shown = Mutex::new(Instant::now());
        for blob in missing {
            let add = |bytes: u64| {
                let sum = done.fetch_add(bytes, Ordering::Relaxed) + bytes;
                if let Ok(mut last) = shown.try_lock()
                    && last.elapsed().as_millis() > 100
                {
                    *last = Instant::now();
                    progress.advance(sum, total);
                }
            };
            self.fetch_blob(&mut session, blob, &add)?;
        }
        Ok(())
    }

    /// Fetches a blob, going on where a connection broke.
    fn fetch_blob(&self, session: &mut Session, blob: &Blob, add: &dyn Fn(u64)) -> Result<()> {
        let Blob { what, digest, size } = blob;
        let named = format!("{what} {digest}");
        let mut pending = self.store.begin()?;
        for attempt in 1.. {
            let begin = pending.written;
            let range = format!("bytes={begin}-");
            let headers = [("range", range.as_str())];
            let headers = if begin > 0 { &headers[..] } else { &[] };
            let result =
                session.get(&named, &format!("blobs/{digest}"), headers, false).and_then(|response| {
                    if begin > 0
                        && (response.status() != StatusCode::PARTIAL_CONTENT || !begins_at(&response, begin))
                    {
                        // It sends all of it again.
                        pending.clear()?;
                    }
                    let patience = session.patience();
                    let mut reader = response.into_body().into_reader();
                    let mut piece = vec![0; PIECE];
                    let (mut since, mut bytes) = (Instant::now(), 0);
                    loop {
                        let count = match reader.read(&mut piece) {
                            Ok(0) => break,
                            Ok(count) => count as u64,
                            Err(e) => return Err(broken_body(session, &named, e)),
                        };
                        if pending.written + count > *size {
                            fail!(
                                Corrupt,
                                "{}: {named} has more than the {size} bytes that its manifest says",
                                session.host()
                            );
                        }
                        pending.write(&piece[..count as usize])?;
                        add(count);
                        bytes += count;
                        if since.elapsed() > patience {
                            if bytes < LEAST_BYTES {
                                fail!(
                                    Network,
                                    "{}: {named} stalled: {bytes} bytes in {} s",
                                    session.host(),
                                    patience.as_secs()
                                );
                            }
                            (since, bytes) = (Instant::now(), 0);
                        }
                    }
                    if pending.written < *size {
                        fail!(
                            Network,
                            "{}: {named} ended after {} of {size} bytes",
                            session.host(),
                            pending.written
                        );
                    }
                    Ok(())
                });
            match result {
                Ok(()) => break,
                Err(e) if e.kind == ErrorKind::Network && attempt < TRIES => pause(attempt),
                Err(e) => return Err(e),
            }
        }
        pending.finish(&self.store, digest, *size, &format!("{}: {what}", session.host()))
    }
}

struct Blob {
    what: &'static str,
    digest: String,
    size: u64,
}

/// A manifest or an index, as it was sent.
struct Document {
    bytes: Vec<u8>,
    media_type: String,
}

/// Gets a manifest or an index and checks its digest, where one is known.
fn document(session: &mut Session, what: &str, wanted: &str, size: Option<u64>) -> Result<Document> {
    let accept = [MANIFEST, INDEX].concat().join(", ");
    let path = format!("manifests/{wanted}");
    let mut response = session.get(what, &path, &[("accept", &accept)], true)?;
    let text = |response: &ureq::http::Response<ureq::Body>, name: &str| {
        response.headers().get(name).and_then(|v| v.to_str().ok()).map(str::to_string)
    };
    let said = text(&response, "docker-content-digest");
    let content_type = text(&response, header::CONTENT_TYPE.as_str()).unwrap_or_default();
    let read = response.body_mut().with_config().limit(MAX_MANIFEST).read_to_vec();
    let host = session.host().to_string();
    let bytes = read.map_err(|e| session.broken(&format!("{host}: {what}"), &e))?;
    let found = digest_of(&bytes);
    // What the user or an index asks for counts; a header is the registry's own word.
    let expected = if wanted.contains(':') { Some(wanted.to_string()) } else { said };
    if let Some(expected) = expected.filter(|e| e.starts_with("sha256:") && *e != found) {
        fail!(Corrupt, "{host}: the digest of what was sent as manifest is {found}, and not {expected}");
    }
    if size.is_some_and(|size| size != bytes.len() as u64) {
        fail!(
            Corrupt,
            "{host}: the manifest {found} has {} bytes, and not as many as its index says",
            bytes.len()
        );
    }
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Kind {
        media_type: Option<String>,
        manifests: Option<serde_json::Value>,
        schema_version: u64,
    }
    let Ok(kind) = serde_json::from_slice::<Kind>(&bytes) else {
        fail!(Corrupt, "{host}: what was sent as manifest is none");
    };
    if kind.schema_version == 1 || content_type.starts_with(OLD) {
        fail!(NotRunnable, "{host}: a manifest of schema 1, which docker gave up; push the image anew");
    }
    let media_type = match kind.media_type {
        Some(text) => text,
        None if kind.manifests.is_some() => INDEX[0].into(),
        None => MANIFEST[0].into(),
    };
    Ok(Document { bytes, media_type })
}

/// Follows indexes to the manifest for this architecture.
fn follow(session: &mut Session, document: Document, depth: usize) -> Result<Document> {
    if MANIFEST.contains(&document.media_type.as_str()) {
        return Ok(document);
    }
    if !INDEX.contains(&document.media_type.as_str()) {
        let short: String = document.media_type.chars().take(100).collect();
        fail!(NotRunnable, "it is no image but `{short}`");
    }
    if depth == MAX_DEPTH {
        fail!(Corrupt, "indexes nested more than {MAX_DEPTH} deep");
    }
    let index: ImageIndex = serde_json::from_slice(&document.bytes)
        .map_err(|e| RegistryError::new(ErrorKind::Corrupt, format!("damaged index: {e}")))?;
    let chosen = choose(&index)?;
    let wanted = chosen.digest().to_string();
    if hexadecimal(&wanted).is_none() {
        fail!(Corrupt, "the index names a manifest `{wanted}`, which is no sha256 digest");
    }
    let next = self::document(session, &format!("manifest {wanted}"), &wanted, Some(chosen.size()))?;
    follow(session, next, depth + 1)
}

/// The entry of an index that runs here: the plain variant rather than one for newer processors.
pub(crate) fn choose(index: &ImageIndex) -> Result<&Descriptor> {
    let fits = |d: &&Descriptor| {
        d.platform().as_ref().is_none_or(|p| *p.os() == Os::Linux && *p.architecture() == Arch::Amd64)
    };
    let rank = |d: &&Descriptor| match d.platform() {
        Some(p) => usize::from(p.variant().as_deref().is_some_and(|v| v != "v1")),
        None => 2,
    };
    if let Some(chosen) = index.manifests().iter().filter(fits).min_by_key(rank) {
        return Ok(chosen);
    }
    let platforms = index.manifests().iter().filter_map(|d| d.platform().as_ref());
    let mut has: Vec<String> = platforms.map(|p| format!("{}/{}", p.os(), p.architecture())).collect();
    // Attestations.
    has.retain(|p| p != "unknown/unknown");
    has.truncate(20);
    let has = if has.is_empty() { "none".into() } else { has.join(", ") };
    fail!(NotRunnable, "no image for linux/amd64 (there is: {has})")
}

/// A manifest of an image whose parts can be had and are not too many.
pub(crate) fn read_manifest(bytes: &[u8]) -> Result<ImageManifest> {
    let image: ImageManifest = serde_json::from_slice(bytes)
        .map_err(|e| RegistryError::new(ErrorKind::Corrupt, format!("damaged manifest: {e}")))?;
    let kind = image.config().media_type().to_string();
    if !CONFIG.contains(&kind.as_str()) {
        let short: String = kind.chars().take(100).collect();
        fail!(NotRunnable, "it is no image but an artifact (`{short}`)");
    }
    if image.config().size() > MAX_CONFIG {
        fail!(Corrupt, "a configuration of {} bytes; {MAX_CONFIG} is the limit", image.config().size());
    }
    if image.layers().len() > MAX_COUNT {
        fail!(Corrupt, "{} layers; {MAX_COUNT} is the limit", image.layers().len());
    }
    let mut total = 0u64;
    for layer in image.layers() {
        let kind = layer.media_type().to_string();
        if kind.contains("encrypted") {
            fail!(NotRunnable, "its layers are encrypted");
        }
        if kind.contains("nondistributable") || kind.contains(".foreign.") {
            fail!(NotRunnable, "a layer of it is not in the registry (`{kind}`)");
        }
        total = total.saturating_add(layer.size());
    }
    if total > MAX_LAYERS {
        fail!(NotRunnable, "its layers have {} MiB; {} MiB is the limit", total >> 20, MAX_LAYERS >> 20);
    }
    Ok(image)
}

/// Whether an image is for this computer; returns when it was made.
pub(crate) fn check_config(bytes: &[u8]) -> Result<Option<String>> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Config {
        architecture: String,
        os: String,
        created: Option<String>,
    }
    let config: Config = serde_json::from_slice(bytes)
        .map_err(|e| RegistryError::new(ErrorKind::Corrupt, format!("damaged configuration: {e}")))?;
    if !config.architecture.is_empty() && (config.architecture != "amd64" || config.os != "linux") {
        fail!(NotRunnable, "an image for {}/{}; only linux/amd64 runs", config.os, config.architecture);
    }
    Ok(config.created.map(|c| c.chars().take(40).collect()))
}

/// Whether a partial answer begins where it was asked to (RFC 9110 14.4).
fn begins_at(response: &ureq::http::Response<ureq::Body>, begin: u64) -> bool {
    let range = response.headers().get(header::CONTENT_RANGE).and_then(|v| v.to_str().ok());
    range.is_some_and(|r| r.starts_with(&format!("bytes {begin}-")))
}

/// An error in the middle of a body.
fn broken_body(session: &Session, what: &str, error: std::io::Error) -> RegistryError {
    let who = format!("{}: {what}", session.host());
    session.broken(&who, &ureq::Error::from(error))
}
