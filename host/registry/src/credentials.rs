// SPDX-License-Identifier: Apache-2.0 OR MIT
//! User names and passwords for registries: a file of our own that `login` writes, and docker's and podman's files, which are
//! read (containers-auth.json(5), config.json of docker).

use crate::{
    error::{ErrorKind, RegistryError, Result, fail},
    name::DOCKER_HUB,
    settings::read,
};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Deserialize;
use std::{
    collections::BTreeMap,
    env, fmt, fs,
    io::{Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// The variable that names the one file to read and write, as for Podman.
const VARIABLE: &str = "REGISTRY_AUTH_FILE";
/// The key that docker has for Docker Hub.
const DOCKER_HUB_KEY: &str = "https://index.docker.io/v1/";
/// Bytes of a helper's answer.
const MAX_ANSWER: u64 = 64 << 10;
/// How long a helper may take, which may ask its user something.
const HELPER_LIMIT: Duration = Duration::from_secs(60);
/// The user name of a helper's answer whose secret is a token (docker-credential-helpers).
const TOKEN_USER: &str = "<token>";

/// What a registry is told. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    Password {
        user: String,
        password: String,
    },
    /// A refresh token of OAuth 2.
    Token(String),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

impl Credentials {
    /// The value of an Authorization header (RFC 7617); none for tokens.
    pub(crate) fn basic(&self) -> Option<String> {
        match self {
            Credentials::Password { user, password } => {
                Some(format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))))
            }
            Credentials::Token(_) => None,
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct File {
    auths: BTreeMap<String, Entry>,
    cred_helpers: BTreeMap<String, String>,
    creds_store: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Entry {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    identitytoken: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    #[serde(default)]
    username: String,
    secret: String,
}

/// Where credentials are.
#[derive(Clone, Debug)]
pub struct CredentialFiles {
    /// The file that `login` writes.
    own: PathBuf,
    /// Files that are read, in order.
    all: Vec<PathBuf>,
}

impl CredentialFiles {
    /// The files of this user.
    pub fn of_user() -> Result<CredentialFiles> {
        if let Some(file) = env::var_os(VARIABLE) {
            return Ok(CredentialFiles { own: file.clone().into(), all: vec![file.into()] });
        }
        let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
        let home = absolute("HOME");
        let config = absolute("XDG_CONFIG_HOME").or_else(|| Some(home.clone()?.join(".config")));
        let Some(config) = config else {
            fail!(Settings, "no HOME and no XDG_CONFIG_HOME: set one of them");
        };
        let own = config.join("unilith/auth.json");
        let docker = absolute("DOCKER_CONFIG").or_else(|| Some(home?.join(".docker")));
        let engines = [
            absolute("XDG_RUNTIME_DIR").map(|d| d.join("containers/auth.json")),
            Some(config.join("containers/auth.json")),
            docker.map(|d| d.join("config.json")),
        ];
        let all = std::iter::once(own.clone()).chain(engines.into_iter().flatten()).collect();
        Ok(CredentialFiles { own, all })
    }

    /// The credentials for a repository of a registry: those of the longest name that fits, of the first file that has some.
    pub fn find(&self, registry: &str, repository: &str) -> Result<Option<Credentials>> {
        for path in &self.all {
            let Some(text) = read(path)? else { continue };
            let name = path.display().to_string();
            let file: File = serde_json::from_str(&text).map_err(|e| wrong(&name, &e))?;
            let helper = file.cred_helpers.iter().find(|(key, _)| is_key_of(key, registry)).map(|(_, h)| h);
            if let Some(helper) = helper {
                return ask_helper(helper, registry).map_err(|e| about(&name, e));
            }
            if let Some(found) = in_entries(&file.auths, registry, repository, &name)? {
                return Ok(Some(found));
            }
            if let Some(helper) = &file.creds_store
                && let Some(found) = ask_helper(helper, registry).map_err(|e| about(&name, e))?
            {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Keeps a user name and password in the file of ours, which nobody else may read; returns its path.
    pub fn store(&self, registry: &str, user: &str, password: &str) -> Result<PathBuf> {
        let auth = STANDARD.encode(format!("{user}:{password}"));
        self.change(|auths| {
            auths.insert(registry.into(), serde_json::json!({ "auth": auth }));
            true
        })?;
        Ok(self.own.clone())
    }

    /// Forgets what [`Self::store`] kept; `false` where there was nothing.
    pub fn remove(&self, registry: &str) -> Result<bool> {
        self.change(|auths| auths.remove(registry).is_some())
    }

    /// The first file other than ours that has credentials for a registry.
    pub fn elsewhere(&self, registry: &str) -> Option<&Path> {
        let others = self.all.iter().filter(|p| **p != self.own);
        others.map(PathBuf::as_path).find(|path| {
            let file = read(path).ok().flatten().and_then(|t| serde_json::from_str::<File>(&t).ok());
            file.is_some_and(|f| f.auths.keys().chain(f.cred_helpers.keys()).any(|k| is_key_of(k, registry)))
        })
    }

    /// Rewrites the file of ours as a whole; what else is in it stays.
    fn change(
        &self,
        how: impl FnOnce(&mut serde_json::Map<String, serde_json::Value>) -> bool,
    ) -> Result<bool> {
        let path = &self.own;
        let name = path.display().to_string();
        let mut whole: serde_json::Value = match read(path)? {
            Some(text) => serde_json::from_str(&text).map_err(|e| wrong(&name, &e))?,
            None => serde_json::json!({}),
        };
        let auths = whole.as_object_mut().map(|w| w.entry("auths").or_insert_with(|| serde_json::json!({})));
        let Some(auths) = auths.and_then(serde_json::Value::as_object_mut) else {
            fail!(Settings, "{name}: `auths` is no object");
        };
        if !how(auths) {
            return Ok(false);
        }
        let folder = path.parent().unwrap_or(Path::new("/"));
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|e| RegistryError::io("make", folder, &e))?;
        let new = path.with_extension(format!("new.{}", std::process::id()));
        let written = fs::OpenOptions::new()
            .create_new(true)
            .write(true)
            .mode(0o600)
            .open(&new)
            .and_then(|mut file| file.write_all(format!("{whole:#}\n").as_bytes()))
            .and_then(|()| fs::rename(&new, path));
        written.map_err(|e| {
            // Half a file with a password in it helps nobody.
            let _ = fs::remove_file(&new);
            RegistryError::io("write", path, &e)
        })?;
        Ok(true)
    }
}

fn wrong(file: &str, error: &serde_json::Error) -> RegistryError {
    // serde's text could quote what is in the file, which is secret; the place says enough.
    let (line, column) = (error.line(), error.column());
    RegistryError::new(
        ErrorKind::Settings,
        format!("{file}: line {line}, column {column}: damaged file of credentials"),
    )
}

fn about(file: &str, error: RegistryError) -> RegistryError {
    RegistryError::new(error.kind, format!("{file}: {}", error.message))
}

/// Whether a key of a file is a registry as a whole: docker writes addresses, podman hosts.
fn is_key_of(key: &str, registry: &str) -> bool {
    plain_key(key) == plain_key(registry)
}

/// A key without scheme and version; the names that Docker Hub goes by are one.
fn plain_key(key: &str) -> &str {
    let host = key.strip_prefix("https://").or_else(|| key.strip_prefix("http://")).unwrap_or(key);
    let host = host.trim_end_matches('/');
    let host = host.strip_suffix("/v1").or_else(|| host.strip_suffix("/v2")).unwrap_or(host);
    match host {
        "index.docker.io" | "registry-1.docker.io" => DOCKER_HUB,
        _ => host,
    }
}

fn in_entries(
    auths: &BTreeMap<String, Entry>,
    registry: &str,
    repository: &str,
    file: &str,
) -> Result<Option<Credentials>> {
    let whole = format!("{}/{repository}", plain_key(registry));
    let fits = |key: &str| {
        let rest = whole.strip_prefix(plain_key(key));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let fitting = auths.iter().filter(|(key, entry)| fits(key) && !entry.is_empty());
    let Some((key, entry)) = fitting.max_by_key(|(key, _)| plain_key(key).len()) else { return Ok(None) };
    match entry.credentials() {
        Some(found) => Ok(Some(found)),
        None => fail!(Settings, "{file}: the entry `{key}` has no user name and password in it"),
    }
}

impl Entry {
    /// docker leaves an empty entry where a helper has the password.
    fn is_empty(&self) -> bool {
        let none = |text: &Option<String>| text.as_deref().unwrap_or_default().is_empty();
        none(&self.auth) && none(&self.username) && none(&self.identitytoken)
    }

    fn credentials(&self) -> Option<Credentials> {
        if let Some(token) = self.identitytoken.as_ref().filter(|t| !t.is_empty()) {
            return Some(Credentials::Token(token.clone()));
        }
        let (user, password) = match self.auth.as_deref().filter(|a| !a.is_empty()) {
            Some(auth) => {
                let text = String::from_utf8(STANDARD.decode(auth.trim()).ok()?).ok()?;
                let (user, password) = text.split_once(':')?;
                // docker once padded with NUL bytes.
                (user.to_string(), password.trim_end_matches('\0').to_string())
            }
            None => (self.username.clone()?, self.password.clone()?),
        };
        (!user.is_empty()).then_some(Credentials::Password { user, password })
    }
}

/// Asks docker-credential-NAME, whose protocol docker's documentation has; `None`: it knows none.
fn ask_helper(helper: &str, registry: &str) -> Result<Option<Credentials>> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if helper.is_empty() || helper.starts_with(['-', '.']) || !helper.chars().all(plain) {
        fail!(Settings, "`{helper}` is no name of a credential helper");
    }
    let program = format!("docker-credential-{helper}");
    let spawned = Command::new(&program)
        .arg("get")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut child = spawned.map_err(|e| {
        let text = format!(
            "the credential helper {program} cannot be started ({e}): install it, or use `unilith login`"
        );
        RegistryError::new(ErrorKind::Settings, text)
    })?;
    let key = if registry == DOCKER_HUB { DOCKER_HUB_KEY } else { registry };
    let answer = talk(&mut child, key);
    // It has ended, or it is to.
    let _ = child.kill();
    let status = child.wait();
    let Some(answer) = answer else {
        fail!(Settings, "the credential helper {program} does not answer");
    };
    if !status.is_ok_and(|s| s.success()) {
        if String::from_utf8_lossy(&answer).contains("credentials not found") {
            return Ok(None);
        }
        fail!(Settings, "the credential helper {program} failed");
    }
    let Ok(Answer { username, secret }) = serde_json::from_slice(&answer) else {
        fail!(Settings, "the credential helper {program} answered something else than credentials");
    };
    Ok(Some(match username.as_str() {
        TOKEN_USER => Credentials::Token(secret),
        _ => Credentials::Password { user: username, password: secret },
    }))
}

/// What a helper answers within the limit.
fn talk(child: &mut Child, key: &str) -> Option<Vec<u8>> {
    let (mut input, output) = (child.stdin.take()?, child.stdout.take()?);
    // A helper that does not read what it is told has answered all the same.
    let _ = input.write_all(key.as_bytes());
    drop(input);
    let reader = thread::spawn(move || {
        let mut answer = Vec::new();
        output.take(MAX_ANSWER).read_to_end(&mut answer).map(|_| answer)
    });
    let limit = Instant::now() + HELPER_LIMIT;
    while child.try_wait().ok()?.is_none() {
        if Instant::now() > limit {
            let _ = child.kill();
            return None;
        }
        thread::sleep(Duration::from_millis(10));
    }
    // Its children may hold the pipe open; what it said itself is there.
    while !reader.is_finished() {
        if Instant::now() > limit {
            return None;
        }
        thread::sleep(Duration::from_millis(1));
    }
    reader.join().ok()?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn password(user: &str, password: &str) -> Option<Credentials> {
        Some(Credentials::Password { user: user.into(), password: password.into() })
    }

    #[test]
    fn files_of_docker_and_podman_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        let text = format!(
            r#"{{"auths": {{
                "https://index.docker.io/v1/": {{"auth": "{}"}},
                "quay.io": {{"auth": "{}"}},
                "quay.io/team": {{"auth": "{}"}},
                "empty.example": {{}},
                "bad.example": {{"auth": "???"}},
                "token.example": {{"auth": "{}", "identitytoken": "t"}}
            }}, "HttpHeaders": {{"a": "b"}}}}"#,
            STANDARD.encode("hub:p:w"),
            STANDARD.encode("all:1"),
            STANDARD.encode("team:2"),
            STANDARD.encode("x:y"),
        );
        fs::write(&path, text).unwrap();
        let files = CredentialFiles { own: folder.path().join("own.json"), all: vec![path] };
        let find = |registry, repository| files.find(registry, repository).unwrap();
        assert_eq!(find("docker.io", "library/redis"), password("hub", "p:w"));
        assert_eq!(find("quay.io", "other/x"), password("all", "1"));
        assert_eq!(find("quay.io", "team/x"), password("team", "2"));
        assert_eq!(find("quay.io", "teams/x"), password("all", "1"));
        assert_eq!(find("empty.example", "x"), None);
        assert_eq!(find("nobody.example", "x"), None);
        assert_eq!(find("token.example", "x"), Some(Credentials::Token("t".into())));
        let error = files.find("bad.example", "x").unwrap_err();
        assert!(error.message.contains("no user name") && !error.message.contains("???"), "{error}");
    }

    #[test]
    fn login_keeps_what_is_there_and_nobody_else_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("deep/er/auth.json");
        let files = CredentialFiles { own: own.clone(), all: vec![own.clone()] };
        files.store("localhost:5000", "me", "pass:word").unwrap();
        files.store("quay.io", "you", "x").unwrap();
        assert_eq!(files.find("localhost:5000", "a").unwrap(), password("me", "pass:word"));
        assert_eq!(fs::metadata(&own).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(own.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
        assert!(files.remove("localhost:5000").unwrap() && !files.remove("localhost:5000").unwrap());
        assert_eq!(files.find("localhost:5000", "a").unwrap(), None);
        assert_eq!(files.find("quay.io", "a").unwrap(), password("you", "x"));
        fs::write(&own, "{\"auths\": {\"quay.io\": {\"auth\": \"c2VjcmV0\"").unwrap();
        let error = files.find("quay.io", "a").unwrap_err().message;
        assert!(error.contains("damaged") && !error.contains("c2VjcmV0"), "{error}");
    }

    #[test]
    fn helpers_are_programs_by_name_and_a_missing_one_is_named() {
        for name in ["", "../x", "a/b", "-x", "a b"] {
            assert!(ask_helper(name, "quay.io").unwrap_err().message.contains("no name"), "{name}");
        }
        let error = ask_helper("surely-not-here", "quay.io").unwrap_err().message;
        assert!(error.contains("docker-credential-surely-not-here") && error.contains("unilith login"));
    }
}
