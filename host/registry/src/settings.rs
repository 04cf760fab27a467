// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a registry is asked: mirrors, other locations and plain HTTP, from registries.conf, which Podman, CRI-O and Buildah
//! read as well (containers-registries.conf(5), version 2).

use crate::{
    error::{ErrorKind, RegistryError, Result, fail},
    name::{DOCKER_HUB, Name},
};
use serde::Deserialize;
use std::{
    env, fs, io,
    net::IpAddr,
    path::{Path, PathBuf},
};

/// The variable that names the one file to read (containers-registries.conf(5)).
const VARIABLE: &str = "CONTAINERS_REGISTRIES_CONF";
/// Docker Hub's host for images.
const DOCKER_HUB_HOST: &str = "registry-1.docker.io";
/// Bytes of a settings file.
const MAX_FILE: u64 = 1 << 20;

/// A place that may have an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// Host and port.
    pub host: String,
    pub repository: String,
    /// Plain HTTP and certificates that nobody knows are good enough.
    pub insecure: bool,
    /// Whose credentials are used: the registry's as the user writes it.
    pub credentials: String,
    pub is_mirror: bool,
}

/// All of registries.conf that is about where images are.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Settings {
    registry: Vec<Registry>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Registry {
    prefix: Option<String>,
    location: Option<String>,
    insecure: bool,
    blocked: bool,
    mirror: Vec<Mirror>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct Mirror {
    location: String,
    insecure: bool,
    /// `all`, `digest-only` or `tag-only`.
    pull_from_mirror: Option<String>,
}

impl Settings {
    /// The settings of this computer and this user; files of the user's replace the computer's.
    pub fn of_user() -> Result<Settings> {
        let mut settings = Settings::default();
        for file in files() {
            if let Some(text) = read(&file)? {
                settings.add(&text, &file.display().to_string())?;
            }
        }
        Ok(settings)
    }

    /// Adds the text of a file; a registry with the same prefix as one before replaces that.
    pub fn add(&mut self, text: &str, file: &str) -> Result<()> {
        let more: Settings = toml::from_str(text)
            .map_err(|e| RegistryError::new(ErrorKind::Settings, format!("{file}: {}", e.message())))?;
        for registry in more.registry {
            let Some(prefix) = registry.prefix.clone().or(registry.location.clone()) else {
                fail!(Settings, "{file}: a [[registry]] has neither prefix nor location");
            };
            self.registry.retain(|r| r.prefix.as_deref() != Some(&prefix));
            self.registry.push(Registry { prefix: Some(prefix), ..registry });
        }
        Ok(())
    }

    /// Where an image is asked for, in order.
    pub(crate) fn endpoints(&self, name: &Name) -> Result<Vec<Endpoint>> {
        let whole = format!("{}/{}", name.registry(), name.repository());
        let matching = self.registry.iter().filter_map(|registry| {
            let prefix = registry.prefix.as_deref()?;
            Some((rest_behind(prefix, &whole, name.registry())?, prefix.len(), registry))
        });
        let Some((rest, _, registry)) = matching.max_by_key(|(_, length, _)| *length) else {
            return Ok(vec![plain(name)]);
        };
        if registry.blocked {
            fail!(Denied, "{whole}: registries.conf of this computer blocks this registry");
        }
        let mut endpoints = Vec::new();
        for mirror in &registry.mirror {
            let skipped = match mirror.pull_from_mirror.as_deref() {
                Some("digest-only") => name.digest().is_none(),
                Some("tag-only") => name.digest().is_some(),
                _ => false,
            };
            if !skipped {
                let place = at(&format!("{}{rest}", mirror.location))?;
                endpoints.push(Endpoint {
                    insecure: mirror.insecure || place.insecure,
                    is_mirror: true,
                    ..place
                });
            }
        }
        let place = match &registry.location {
            Some(location) if registry.prefix.as_deref() != Some(location) => {
                at(&format!("{location}{rest}"))?
            }
            _ => plain(name),
        };
        endpoints.push(Endpoint { insecure: registry.insecure || place.insecure, ..place });
        Ok(endpoints)
    }

    /// Where a registry is spoken to that no image is asked of.
    pub(crate) fn endpoint_of(&self, registry: &str) -> Result<Endpoint> {
        let name = Name::parse(&format!("{registry}/any"))?;
        let mut endpoints = self.endpoints(&name)?;
        endpoints.retain(|e| !e.is_mirror);
        let endpoint = endpoints.pop().unwrap_or_else(|| plain(&name));
        Ok(Endpoint { credentials: registry.into(), ..endpoint })
    }
}

/// What remains of `registry/repository` behind a prefix, which ends where a part ends; `*.example.com` is for all hosts
/// below.
fn rest_behind(prefix: &str, whole: &str, registry: &str) -> Option<String> {
    if let Some(domain) = prefix.strip_prefix("*.") {
        let host = registry.split(':').next()?;
        let below = host.strip_suffix(domain)?.ends_with('.');
        return below.then(|| whole.strip_prefix(registry).unwrap_or_default().to_string());
    }
    let rest = whole.strip_prefix(prefix)?;
    (rest.is_empty() || rest.starts_with('/')).then(|| rest.to_string())
}

fn plain(name: &Name) -> Endpoint {
    let registry = name.registry();
    let host = if registry == DOCKER_HUB { DOCKER_HUB_HOST } else { registry };
    Endpoint {
        host: host.into(),
        repository: name.repository().into(),
        insecure: is_local(registry),
        credentials: registry.into(),
        is_mirror: false,
    }
}

/// An endpoint of a location: host, port and the beginning of the repository.
fn at(location: &str) -> Result<Endpoint> {
    let (host, repository) = location.split_once('/').unwrap_or((location, ""));
    // It is checked like any other name: what is not one never becomes part of an address.
    match Name::parse(&format!("{host}/{repository}")) {
        Ok(name) if name.registry() == host => Ok(plain(&name)),
        _ => fail!(Settings, "registries.conf: `{location}` is no location of images"),
    }
}

/// Whether a registry is on this computer, so that nobody listens in (docker's rule).
pub(crate) fn is_local(registry: &str) -> bool {
    let host = match registry.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => host,
        _ => registry,
    };
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The files that are there to be read, in the order in which later ones win.
fn files() -> Vec<PathBuf> {
    if let Some(file) = env::var_os(VARIABLE) {
        return vec![file.into()];
    }
    let config = env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|p| p.is_absolute());
    let config = config.or_else(|| env::var_os("HOME").map(|home| Path::new(&home).join(".config")));
    let users = config.map(|c| c.join("containers/registries.conf"));
    let main = users.filter(|f| f.is_file()).unwrap_or_else(|| "/etc/containers/registries.conf".into());
    let folder = PathBuf::from(format!("{}.d", main.display()));
    let mut parts: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).collect();
    parts.retain(|p| p.extension().is_some_and(|e| e == "conf"));
    parts.sort();
    std::iter::once(main).chain(parts).collect()
}

/// A settings file; `None` where there is none.
pub(crate) fn read(path: &Path) -> Result<Option<String>> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.len() > MAX_FILE => {
            fail!(Settings, "{}: {} bytes is too much for a settings file", path.display(), metadata.len())
        }
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(e) => Err(RegistryError::io("read", path, &e)),
        Ok(_) => fs::read_to_string(path).map(Some).map_err(|e| RegistryError::io("read", path, &e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> Settings {
        let mut settings = Settings::default();
        settings.add(text, "test").unwrap();
        settings
    }

    fn places(text: &str, name: &str) -> Vec<String> {
        let endpoints = settings(text).endpoints(&Name::parse(name).unwrap()).unwrap();
        let word = |e: Endpoint| {
            let insecure = if e.insecure { " insecure" } else { "" };
            format!("{}/{}{insecure}", e.host, e.repository)
        };
        endpoints.into_iter().map(word).collect()
    }

    #[test]
    fn without_settings_a_name_says_where_it_is() {
        assert_eq!(places("", "redis"), ["registry-1.docker.io/library/redis"]);
        assert_eq!(places("", "localhost:5000/redis"), ["localhost:5000/redis insecure"]);
        assert_eq!(places("", "127.0.0.1:5000/redis"), ["127.0.0.1:5000/redis insecure"]);
        assert_eq!(places("", "quay.io/a/b"), ["quay.io/a/b"]);
    }

    #[test]
    fn mirrors_come_first_and_the_longest_prefix_wins() {
        let text = r#"
            unqualified-search-registries = ["docker.io"]
            [[registry]]
            prefix = "docker.io"
            [[registry.mirror]]
            location = "mirror.example:5000/hub"
            insecure = true
            [[registry.mirror]]
            location = "exact.example"
            pull-from-mirror = "digest-only"
            [[registry]]
            prefix = "docker.io/library/secret"
            blocked = true
            [[registry]]
            prefix = "*.corp"
            insecure = true
            [[registry]]
            prefix = "old.example/a"
            location = "new.example/b"
        "#;
        assert_eq!(
            places(text, "redis:7"),
            ["mirror.example:5000/hub/library/redis insecure", "registry-1.docker.io/library/redis"]
        );
        assert_eq!(places(text, &format!("redis@sha256:{}", "0".repeat(64))).len(), 3);
        assert_eq!(places(text, "a.b.corp/x"), ["a.b.corp/x insecure"]);
        assert_eq!(places(text, "old.example/a/c"), ["new.example/b/c"]);
        assert_eq!(places(text, "old.example/ab/c"), ["old.example/ab/c"]);
        let error = settings(text).endpoints(&Name::parse("library/secret").unwrap()).unwrap_err();
        assert!(error.message.contains("blocks"), "{error}");
    }

    #[test]
    fn locations_that_are_none_are_refused() {
        for location in ["http://x", "a b", "user:pass@host", "../x", ""] {
            let text = format!("[[registry]]\nprefix = \"docker.io\"\nlocation = {location:?}");
            let error = settings(&text).endpoints(&Name::parse("redis").unwrap());
            assert!(error.is_err(), "{location}");
        }
        assert!(Settings::default().add("[[registry]]\ninsecure = true", "f").is_err());
        assert!(Settings::default().add("registry = 7", "f").unwrap_err().message.starts_with("f: "));
    }
}
