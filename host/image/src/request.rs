// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the user asks for, and what gathering it returns.

use crate::{
    catalogue::Catalogue,
    error::{Result, fail},
    generate::Runner,
    manifest::{Manifest, Port, Ready},
};
use serde::{Deserialize, Serialize};
use std::{fmt, path::PathBuf};

/// Where a program comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    /// `redis`: an entry of the catalogue.
    Catalogue(String),
    /// `debian:PACKAGE`, several separated by commas; `PACKAGE=VERSION` is passed to apt.
    Debian(Vec<String>),
    /// `./a.out`: an ELF file of this machine, with the libraries it needs.
    Elf(PathBuf),
    /// `dir:PATH` or the path of a directory.
    Directory(PathBuf),
    /// `oci:PATH`: an OCI layout directory, or a tar file of one, or a docker-archive tar file.
    Oci(PathBuf),
    /// `redis:7`, `quay.io/team/tool`, `docker://redis`: an image of a registry. `podman:NAME`, `docker:NAME` and
    /// `containerd:NAME`, images that an engine of this computer has, too: the [`Puller`] reads the name and says how one gets them.
    Registry(String),
}

/// Words before the name of an image that is a registry's or an engine's; skopeo's too.
const OF_REGISTRIES: [&str; 6] =
    ["docker://", "docker-daemon:", "docker:", "containers-storage:", "podman:", "containerd:"];

/// Whether a text that names no file is the name of an image: with a tag or a digest, or with a host before the first slash.
fn names_image(text: &str) -> bool {
    let image = |c: char| c.is_ascii_alphanumeric() || "._-/:@".contains(c);
    if !text.starts_with(|c: char| c.is_ascii_alphanumeric()) || !text.chars().all(image) {
        return false;
    }
    match text.split_once('/') {
        Some((host, _)) => host.contains(['.', ':']) || host == "localhost",
        None => text.contains([':', '@']),
    }
}

impl Reference {
    /// Reads a reference. A word with a known prefix is that kind; one with a slash, or that names an existing file
    /// and no catalogue entry, is a path; one that names no file but has a tag or a registry's host is an image of a
    /// registry; the rest are catalogue entries.
    pub fn parse(text: &str, catalogue: &Catalogue) -> Result<Reference> {
        if let Some(packages) = text.strip_prefix("debian:").or_else(|| text.strip_prefix("deb:")) {
            let packages: Vec<String> = packages.split(',').map(str::to_string).collect();
            for p in &packages {
                let plain = |c: char| c.is_ascii_alphanumeric() || "+-.:=~".contains(c);
                if p.is_empty() || p.starts_with('-') || !p.chars().all(plain) {
                    fail!(NotFound, "`{text}`: expected debian:PACKAGE, for example debian:redis-server");
                }
            }
            return Ok(Reference::Debian(packages));
        }
        if let Some(path) = text.strip_prefix("dir:") {
            return Ok(Reference::Directory(path.into()));
        }
        for prefix in ["oci:", "oci-archive:", "docker-archive:"] {
            if let Some(path) = text.strip_prefix(prefix) {
                return Ok(Reference::Oci(path.into()));
            }
        }
        if OF_REGISTRIES.iter().any(|prefix| text.starts_with(prefix)) {
            return Ok(Reference::Registry(text.to_string()));
        }
        let path = PathBuf::from(text);
        if names_image(text) && !path.exists() && !catalogue.contains(text) {
            return Ok(Reference::Registry(text.to_string()));
        }
        if !text.contains('/') && text != "." && text != ".." {
            if catalogue.contains(text) {
                return Ok(Reference::Catalogue(text.to_string()));
            }
            if !path.exists() {
                return Err(catalogue.unknown(text));
            }
        }
        if path.is_dir() {
            let oci = path.join("oci-layout").is_file() && path.join("index.json").is_file();
            return Ok(if oci { Reference::Oci(path) } else { Reference::Directory(path) });
        }
        if crate::layers::looks_like_archive(&path) {
            return Ok(Reference::Oci(path));
        }
        Ok(Reference::Elf(path))
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reference::Catalogue(name) => f.write_str(name),
            Reference::Debian(packages) => write!(f, "debian:{}", packages.join(",")),
            Reference::Elf(path) => write!(f, "{}", path.display()),
            Reference::Directory(path) => write!(f, "dir:{}", path.display()),
            Reference::Oci(path) => write!(f, "oci:{}", path.display()),
            Reference::Registry(name) => f.write_str(name),
        }
    }
}

/// How much of Debian's base system an image of Debian packages has beside what they depend on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Base {
    /// Nothing but the dependencies.
    None,
    /// What the programs can be seen to use: a shell and the usual tools where one starts other programs, certificates
    /// where one speaks TLS, time zones where `TZ` is set.
    #[default]
    Auto,
    /// Everything that Debian calls essential, certificates and time zones.
    Full,
}

impl std::str::FromStr for Base {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Base, String> {
        match text {
            "none" => Ok(Base::None),
            "auto" => Ok(Base::Auto),
            "full" => Ok(Base::Full),
            _ => Err(format!("base `{text}`: it is none, auto or full")),
        }
    }
}

/// A program that was made in place of one of the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Linked {
    pub file: PathBuf,
    /// Which one, by name or path: the settings file's, unless said.
    pub program: Option<String>,
}

/// When an image of a registry is asked for there (docker's `--pull`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pull {
    Always,
    /// When this computer has none of that name.
    #[default]
    Missing,
    Never,
}

/// An image of a registry that this computer has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// A short name for machines.
    pub name: String,
    /// A folder whose `blobs` are those of an OCI image layout.
    pub folder: PathBuf,
    /// Digest of the manifest.
    pub manifest: String,
    /// What the user should know, one line each.
    pub notes: Vec<String>,
}

/// Finds an image of a registry by its name, or gets it; or says in one line why not.
pub type Puller = fn(name: &str, when: Pull, progress: &dyn Progress) -> std::result::Result<Stored, String>;

/// One thing to gather.
#[derive(Clone, Debug)]
pub struct Request {
    pub reference: Reference,
    /// Where catalogue entries are.
    pub catalogue: Catalogue,
    /// The words after the reference (after `--` or not). For an ELF file they are its arguments. For an OCI image
    /// they replace the command and the entrypoint stays, as with docker. For the others, a first word that names a
    /// program of the image chooses that program; all others are arguments and replace the default ones.
    pub words: Vec<String>,
    /// `--entrypoint`: the program to run, by name or absolute path; the words are then all arguments.
    pub entrypoint: Option<String>,
    /// `--workdir`.
    pub workdir: Option<String>,
    /// `--user`: `UID[:GID]` or names of the image's passwd and group.
    pub user: Option<String>,
    /// Further groups of the program, numbers or names of the image's.
    pub groups: Vec<String>,
    /// `-e`; wins over what the source says.
    pub env: Vec<(String, String)>,
    /// Programs that take the place of the image's own: the same, linked into Linux.
    pub linked: Vec<Linked>,
    /// `--base`; `None`: what the settings file says, else [`Base::Auto`].
    pub base: Option<Base>,
    /// Runs programs of the image that make a part of it; `None`: the image does without.
    pub runner: Option<Runner>,
    /// Gets images of registries; `None`: there are none.
    pub puller: Option<Puller>,
    pub pull: Pull,
    /// Use only what is in the cache; an error of kind `Offline` when that is not enough.
    pub offline: bool,
}

impl Request {
    pub fn new(reference: Reference, catalogue: Catalogue) -> Request {
        Request {
            reference,
            catalogue,
            words: Vec::new(),
            entrypoint: None,
            workdir: None,
            user: None,
            groups: Vec::new(),
            env: Vec::new(),
            linked: Vec::new(),
            base: None,
            runner: None,
            puller: None,
            pull: Pull::default(),
            offline: false,
        }
    }
}

/// How to run the program of an image. The command turns this into an `api_boot::BootConfig`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImageConfig {
    /// The program's absolute path in the image, then its arguments.
    pub args: Vec<String>,
    /// In order, no name twice. PATH is always there.
    pub env: Vec<(String, String)>,
    /// Absolute.
    pub cwd: String,
    pub uid: u32,
    pub gid: u32,
    /// Further groups of the user.
    pub groups: Vec<u32>,
    /// Ports the program serves.
    pub ports: Vec<Port>,
    /// Linux signal number that asks the program to end; 15 (SIGTERM) unless the source says otherwise.
    pub stop_signal: u8,
    /// Bytes of memory the source asks for; `None`: the command's default.
    pub memory: Option<u64>,
    pub cpus: Option<u32>,
    /// Paths in the image that are meant for volumes.
    pub volumes: Vec<String>,
    pub health: Option<ImageHealth>,
    /// How to tell that the program is ready.
    pub ready: Option<Ready>,
    /// The settings file of a catalogue entry or a project, as written; `None` for other sources.
    pub manifest: Option<Manifest>,
}

/// How an image has its program asked whether it is well. Times are milliseconds; what it leaves open is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageHealth {
    /// A program of the image and its arguments, never empty.
    pub command: Vec<String>,
    pub interval: Option<u64>,
    pub timeout: Option<u64>,
    pub retries: Option<u32>,
    pub start_period: Option<u64>,
    pub start_interval: Option<u64>,
}

/// A gathered image.
#[derive(Clone, Debug)]
pub struct Image {
    /// The cpio archive, in the cache; never changed once there. `digest` is in its name.
    pub root: PathBuf,
    /// SHA-256 of the archive, in hexadecimal.
    pub digest: String,
    /// Bytes of the archive.
    pub size: u64,
    /// A short name for the machine, from the reference: `redis`, `a.out`.
    pub name: String,
    pub config: ImageConfig,
    /// Digest of the manifest, of an image of a registry.
    pub manifest: Option<String>,
    /// Other programs of the image, absolute paths, for messages.
    pub programs: Vec<String>,
    /// Things the user should know that did not stop the gathering, one line each.
    pub warnings: Vec<String>,
}

/// Where long work tells how far it is. The command shows it; tests ignore it.
pub trait Progress: Sync {
    /// A step begins: `fetching redis-server and 12 others`.
    fn step(&self, text: &str);
    /// How far the step is, in units of its own; `total` 0 when unknown.
    fn advance(&self, done: u64, total: u64);
}

/// Tells nobody.
pub struct Quiet;

impl Progress for Quiet {
    fn step(&self, _: &str) {}
    fn advance(&self, _: u64, _: u64) {}
}
