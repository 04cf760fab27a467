// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A small registry (OCI distribution-spec 1.1, pulls only) that does what no honest one does: it lies, stalls and sends halves.

use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// The one user, the password, and the token that they are good for.
pub const USER: &str = "me";
pub const PASSWORD: &str = "secret:word";
const BASIC: &str = "Basic bWU6c2VjcmV0OndvcmQ=";
const TOKEN: &str = "Bearer a-token";

/// What is wrong with an answer.
#[derive(Clone, Debug)]
pub enum Trick {
    /// Other bytes of the same length.
    Lie,
    /// Half of the body, and then nothing, with the connection open.
    Stall,
    /// Half of the body, and the connection is closed; so many times, then the answer is whole.
    Half(u32),
    /// A body without end.
    Endless,
    /// This status; so many times.
    Status(u16, u32),
    /// It is somewhere else.
    Redirect(String),
    /// These bytes instead.
    Body(Vec<u8>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Auth {
    Basic,
    Bearer,
}

#[derive(Default)]
struct State {
    blobs: HashMap<String, Vec<u8>>,
    /// By repository and tag or digest.
    manifests: HashMap<(String, String), (String, Vec<u8>)>,
    tricks: HashMap<String, Trick>,
    auth: Option<Auth>,
    /// Method, path and whether it was authorised.
    log: Vec<String>,
}

/// It serves until the test's process ends.
pub struct Registry {
    /// `127.0.0.1:PORT`.
    pub host: String,
    state: Arc<Mutex<State>>,
}

pub fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold("sha256:".to_string(), |text, b| text + &format!("{b:02x}"))
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("memory can be written");
    encoder.finish().expect("memory can be written")
}

pub fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

/// An entry of a layer.
pub enum Entry<'a> {
    File(&'a str, u32, &'a [u8]),
    Link(&'a str, &'a str),
    HardLink(&'a str, &'a str),
    Directory(&'a str),
    Device(&'a str),
    /// A program whose file has these capabilities, as docker writes them.
    Capable(&'a str, &'a [u8], u32),
}

/// A layer; names are as they are written, also those that leave the root.
pub fn layer(entries: &[Entry<'_>]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for entry in entries {
        let mut header = tar::Header::new_ustar();
        let (name, kind, mode, data, target): (_, _, _, &[u8], _) = match entry {
            Entry::File(name, mode, data) => (name, tar::EntryType::Regular, *mode, *data, ""),
            Entry::Link(name, target) => (name, tar::EntryType::Symlink, 0o777, &[], *target),
            Entry::HardLink(name, target) => (name, tar::EntryType::Link, 0o644, &[], *target),
            Entry::Directory(name) => (name, tar::EntryType::Directory, 0o755, &[], ""),
            Entry::Device(name) => (name, tar::EntryType::Char, 0o666, &[], ""),
            Entry::Capable(name, data, permitted) => {
                const EFFECTIVE_OF_VERSION_2: u32 = 0x0200_0001;
                let value = [EFFECTIVE_OF_VERSION_2, *permitted, 0, 0, 0].map(u32::to_le_bytes).concat();
                let attribute = [("SCHILY.xattr.security.capability", &value[..])];
                builder.append_pax_extensions(attribute).expect("memory can be written");
                (name, tar::EntryType::Regular, 0o755, *data, "")
            }
        };
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(data.len() as u64);
        // The builder refuses what these tests are about.
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.as_mut_bytes()[157..157 + target.len()].copy_from_slice(target.as_bytes());
        header.set_cksum();
        builder.append(&header, data).expect("memory can be written");
    }
    builder.into_inner().expect("memory can be written")
}

impl Registry {
    pub fn start() -> Registry {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let host = listener.local_addr().expect("an address").to_string();
        let state = Arc::new(Mutex::new(State::default()));
        let (shared, own) = (state.clone(), host.clone());
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (state, host) = (shared.clone(), own.clone());
                thread::spawn(move || serve(&stream, &state, &host));
            }
        });
        Registry { host, state }
    }

    pub fn name(&self, rest: &str) -> String {
        format!("{}/{rest}", self.host)
    }

    fn with<T>(&self, how: impl FnOnce(&mut State) -> T) -> T {
        how(&mut self.state.lock().expect("no thread of it panics"))
    }

    pub fn blob(&self, bytes: &[u8]) -> String {
        let digest = digest(bytes);
        self.with(|s| s.blobs.insert(digest.clone(), bytes.to_vec()));
        digest
    }

    /// A manifest or an index under a tag and its digest, which is returned.
    pub fn manifest(&self, repository: &str, tag: &str, media_type: &str, value: &Value) -> String {
        let bytes = value.to_string().into_bytes();
        let digest = digest(&bytes);
        for reference in [tag, &digest] {
            let key = (repository.to_string(), reference.to_string());
            self.with(|s| s.manifests.insert(key, (media_type.into(), bytes.clone())));
        }
        digest
    }

    /// An image of layers, packed by `pack`; the manifest's digest.
    pub fn image(
        &self,
        repository: &str,
        tag: &str,
        layers: &[Vec<u8>],
        pack: fn(&[u8]) -> Vec<u8>,
        config: Value,
    ) -> String {
        let manifest = self.manifest_of(layers, pack, config, "amd64");
        self.manifest(repository, tag, MANIFEST, &manifest)
    }

    pub fn manifest_of(
        &self,
        layers: &[Vec<u8>],
        pack: fn(&[u8]) -> Vec<u8>,
        config: Value,
        architecture: &str,
    ) -> Value {
        let ids: Vec<String> = layers.iter().map(|l| digest(l)).collect();
        let config = json!({
            "architecture": architecture, "os": "linux", "config": config, "created": "2026-01-02T03:04:05Z",
            "rootfs": {"type": "layers", "diff_ids": ids}
        });
        let config = config.to_string().into_bytes();
        let media_type = "application/vnd.oci.image.layer.v1.tar+gzip";
        let described: Vec<Value> = layers
            .iter()
            .map(|l| pack(l))
            .map(|p| json!({"mediaType": media_type, "size": p.len(), "digest": self.blob(&p)}))
            .collect();
        json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "layers": described,
            "config": {
                "mediaType": "application/vnd.oci.image.config.v1+json",
                "size": config.len(), "digest": self.blob(&config)
            }
        })
    }

    /// An index of manifests with their architectures.
    pub fn index(&self, repository: &str, tag: &str, images: &[(&str, Value)]) -> String {
        let described: Vec<Value> = images
            .iter()
            .map(|(architecture, manifest)| {
                let bytes = manifest.to_string();
                let digest = self.manifest(repository, architecture, MANIFEST, manifest);
                json!({
                    "mediaType": MANIFEST, "size": bytes.len(), "digest": digest,
                    "platform": {"os": "linux", "architecture": architecture}
                })
            })
            .collect();
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": described});
        self.manifest(repository, tag, INDEX, &index)
    }

    /// Plays a trick on every request whose path ends so.
    pub fn trick(&self, path: &str, trick: Trick) {
        self.with(|s| s.tricks.insert(path.into(), trick));
    }

    pub fn honest(&self) {
        self.with(|s| s.tricks.clear());
    }

    pub fn protect(&self, auth: Option<Auth>) {
        self.with(|s| s.auth = auth);
    }

    /// The requests since the last call, `GET /v2/…`.
    pub fn requests(&self) -> Vec<String> {
        self.with(|s| std::mem::take(&mut s.log))
    }
}

/// An answer.
struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

fn plain(status: u16) -> Reply {
    let body = json!({"errors": [{"code": "X", "message": format!("status \u{1b}[31m{status}")}]});
    Reply { status, headers: Vec::new(), body: body.to_string().into_bytes() }
}

/// Answers the requests of one connection until it ends.
fn serve(stream: &TcpStream, state: &Mutex<State>, host: &str) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        let mut headers = HashMap::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        loop {
            let mut header = String::new();
            if reader.read_line(&mut header).unwrap_or(0) == 0 {
                return;
            }
            match header.trim_end().split_once(':') {
                Some((key, value)) => headers.insert(key.to_ascii_lowercase(), value.trim().to_string()),
                None => break,
            };
        }
        let mut words = line.split_whitespace();
        let (Some(method), Some(path)) = (words.next(), words.next()) else { return };
        let (reply, trick) = {
            let mut state = state.lock().expect("no thread of it panics");
            state.log.push(format!("{method} {path}"));
            let trick = state.tricks.iter().find(|(end, _)| path.ends_with(end.as_str()));
            let trick = trick.map(|(end, trick)| (end.clone(), trick.clone()));
            if let Some((end, Trick::Half(left) | Trick::Status(_, left))) = &trick {
                match left.checked_sub(1) {
                    None => drop(state.tricks.remove(end)),
                    Some(left) => {
                        if let Some(Trick::Half(n) | Trick::Status(_, n)) = state.tricks.get_mut(end) {
                            *n = left;
                        }
                    }
                }
            }
            let still = trick.filter(|(_, t)| !matches!(t, Trick::Half(0) | Trick::Status(_, 0)));
            (answer(&state, path, &headers, host), still.map(|(_, trick)| trick))
        };
        if send(stream, reply, trick, headers.get("range")).is_none() {
            return;
        }
    }
}

fn answer(state: &State, path: &str, headers: &HashMap<String, String>, host: &str) -> Reply {
    let authorization = headers.get("authorization").map(String::as_str);
    if path.starts_with("/token") {
        if !path.contains("service=tests") {
            return plain(400);
        }
        // Anybody gets a token; it is good for something where the password was right.
        let token = if authorization == Some(BASIC) { "a-token" } else { "anonymous" };
        let body = json!({"token": token}).to_string().into_bytes();
        return Reply { status: 200, headers: Vec::new(), body };
    }
    let (wanted, asks) = match state.auth {
        None => (None, String::new()),
        Some(Auth::Basic) => (Some(BASIC), "Basic realm=\"tests\"".to_string()),
        Some(Auth::Bearer) => {
            (Some(TOKEN), format!("Bearer realm=\"http://{host}/token\",service=\"tests\",scope=\"x\""))
        }
    };
    if wanted.is_some() && authorization != wanted {
        return Reply { headers: vec![("www-authenticate".into(), asks)], ..plain(401) };
    }
    let Some(rest) = path.strip_prefix("/v2/") else { return plain(404) };
    if rest.is_empty() {
        return Reply { status: 200, headers: Vec::new(), body: b"{}".to_vec() };
    }
    if let Some((_, digest)) = rest.split_once("/blobs/") {
        let Some(bytes) = state.blobs.get(digest) else { return plain(404) };
        return Reply { status: 200, headers: Vec::new(), body: bytes.clone() };
    }
    let Some((repository, reference)) = rest.split_once("/manifests/") else { return plain(404) };
    let Some((media_type, bytes)) = state.manifests.get(&(repository.into(), reference.into())) else {
        return plain(404);
    };
    let headers = [("content-type", media_type), ("docker-content-digest", &digest(bytes))];
    let headers = headers.map(|(k, v)| (k.to_string(), v.clone()));
    Reply { status: 200, headers: headers.to_vec(), body: bytes.clone() }
}

/// `None`: the connection is to be closed.
fn send(
    mut stream: &TcpStream,
    mut reply: Reply,
    trick: Option<Trick>,
    range: Option<&String>,
) -> Option<()> {
    match &trick {
        Some(Trick::Lie) => reply.body.iter_mut().for_each(|byte| *byte = byte.wrapping_add(1)),
        Some(Trick::Body(bytes)) => reply.body = bytes.clone(),
        Some(Trick::Status(status, _)) => reply = plain(*status),
        Some(Trick::Redirect(to)) => {
            reply = Reply { headers: vec![("location".into(), to.clone())], ..plain(307) };
        }
        _ => {}
    }
    let begin = range.and_then(|r| r.strip_prefix("bytes=")?.strip_suffix('-')?.parse::<usize>().ok());
    if let Some(begin) = begin.filter(|b| *b < reply.body.len() && reply.status == 200) {
        let whole = reply.body.len();
        reply.headers.push(("content-range".into(), format!("bytes {begin}-{}/{whole}", whole - 1)));
        reply.body.drain(..begin);
        reply.status = 206;
    }
    let length = if matches!(trick, Some(Trick::Endless)) { usize::MAX >> 2 } else { reply.body.len() };
    let mut head = format!("HTTP/1.1 {} X\r\ncontent-length: {length}\r\n", reply.status);
    for (key, value) in &reply.headers {
        head.push_str(&format!("{key}: {value}\r\n"));
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes()).ok()?;
    match trick {
        Some(Trick::Half(_)) => {
            stream.write_all(&reply.body[..reply.body.len() / 2]).ok()?;
            None
        }
        Some(Trick::Stall) => {
            stream.write_all(&reply.body[..reply.body.len() / 2]).ok()?;
            // Until the other side has had enough.
            let _ = std::io::Read::read(&mut stream, &mut [0]);
            None
        }
        Some(Trick::Endless) => {
            while stream.write_all(&[b' '; 4096]).is_ok() {}
            None
        }
        _ => stream.write_all(&reply.body).ok(),
    }
}
