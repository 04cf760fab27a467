// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The administrator's file, `/etc/unilith/runc.toml` or that of `--config`: what containers are that say nothing, and what their
//! annotations may choose.

use crate::{ContainerError, Result, bundle::Container, file};
use serde::Deserialize;
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Where the file is that nobody named.
const USUAL: &str = "/etc/unilith/runc.toml";
/// Longest file that is read.
const MAX_LENGTH: u64 = 1 << 20;

/// Choices that annotations have one word for (`dev.unilith.machine`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    Machine,
    Kernel,
    /// How Linux runs the program.
    Ukl,
    /// Parts of the micro kernel.
    Set,
}

impl Choice {
    pub fn key(self) -> &'static str {
        match self {
            Choice::Machine => "machine",
            Choice::Kernel => "kernel",
            Choice::Ukl => "ukl",
            Choice::Set => "set",
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Words {
    machine: Option<String>,
    kernel: Option<String>,
    ukl: Option<String>,
    set: Option<String>,
    allow: Allow,
}

/// The words that annotations may have; `None`: any.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Allow {
    machine: Option<Vec<String>>,
    kernel: Option<Vec<String>>,
    ukl: Option<Vec<String>>,
    set: Option<Vec<String>>,
}

/// What the file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Administrator {
    path: PathBuf,
    words: Words,
}

impl Administrator {
    /// `given`: a file that must be there. Nobody need have the usual one.
    pub fn read(given: Option<&Path>) -> Result<Administrator> {
        let path = given.unwrap_or(Path::new(USUAL));
        let text = fs::metadata(path).and_then(|found| match found.len() {
            0..=MAX_LENGTH => fs::read_to_string(path),
            length => Err(io::Error::other(format!("it has {length} bytes; {MAX_LENGTH} at most"))),
        });
        match text {
            Err(e) if e.kind() == io::ErrorKind::NotFound && given.is_none() => Ok(Administrator::default()),
            text => Administrator::parse(&text.map_err(file("cannot read", path))?, path),
        }
    }

    fn parse(text: &str, path: &Path) -> Result<Administrator> {
        let words = toml::from_str(text).map_err(|e| {
            let before = e.span().map_or(0, |span| span.start.min(text.len()));
            let line = 1 + text.as_bytes()[..before].iter().filter(|byte| **byte == b'\n').count();
            ContainerError::Config(path.into(), format!("line {line}: {}", e.message()))
        })?;
        Ok(Administrator { path: path.into(), words })
    }

    /// The container's own word, if it may have that one, else the administrator's.
    pub fn choice<'a>(&'a self, container: &'a Container, choice: Choice) -> Result<Option<&'a str>> {
        let Words { machine, kernel, ukl, set, allow } = &self.words;
        let (default, allowed) = match choice {
            Choice::Machine => (machine, &allow.machine),
            Choice::Kernel => (kernel, &allow.kernel),
            Choice::Ukl => (ukl, &allow.ukl),
            Choice::Set => (set, &allow.set),
        };
        let Some(word) = container.choice(choice.key()) else { return Ok(default.as_deref()) };
        // What it would get without its annotation it may name.
        let is_default = default.as_deref() == Some(word);
        if let Some(allowed) = allowed
            && !is_default
        {
            // Those of `set` have commas between them.
            let parts = word.split(',').map(str::trim);
            let mut refused = parts.filter(|part| !allowed.iter().any(|allowed| allowed == part));
            if let Some(part) = refused.next() {
                let list = match allowed.as_slice() {
                    [] => "nothing".to_string(),
                    words => words.join(", "),
                };
                return Err(ContainerError::Forbidden {
                    key: choice.key(),
                    word: part.into(),
                    path: self.path.clone(),
                    allowed: list,
                });
            }
        }
        Ok(Some(word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(annotations: &[(&str, &str)]) -> Container {
        let annotations: serde_json::Map<String, serde_json::Value> =
            annotations.iter().map(|(key, word)| (key.to_string(), (*word).into())).collect();
        let config = serde_json::json!({
            "ociVersion": "1.0.2",
            "process": {"user": {"uid": 0, "gid": 0}, "args": ["x"], "cwd": "/"},
            "root": {"path": "rootfs"},
            "annotations": annotations,
        });
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
        Container::read(folder.path()).unwrap()
    }

    fn administrator(text: &str) -> Administrator {
        Administrator::parse(text, Path::new("/etc/x.toml")).unwrap()
    }

    #[test]
    fn containers_have_their_own_choice_then_the_administrators() {
        let file = administrator("machine = 'microvm'\n");
        assert_eq!(file.choice(&container(&[]), Choice::Machine).unwrap(), Some("microvm"));
        for key in ["unilith.machine", "dev.unilith.machine"] {
            let own = container(&[(key, "process")]);
            assert_eq!(file.choice(&own, Choice::Machine).unwrap(), Some("process"));
        }
        assert_eq!(file.choice(&container(&[]), Choice::Kernel).unwrap(), None);
    }

    #[test]
    fn a_choice_that_is_not_allowed_is_an_error_that_names_the_file() {
        let file = administrator(
            "machine = 'microvm'\n[allow]\nmachine = ['process']\nkernel = []\nset = ['tun=on', 'io_uring=on']\n",
        );
        let says = |key, word, choice| {
            let own = container(&[(key, word)]);
            file.choice(&own, choice).map(|word| word.map(str::to_string)).map_err(|e| e.to_string())
        };
        assert_eq!(says("unilith.machine", "microvm", Choice::Machine), Ok(Some("microvm".into())));
        let error = says("unilith.machine", "qemu", Choice::Machine).unwrap_err();
        assert!(error.contains("unilith.machine=qemu") && error.contains("/etc/x.toml"), "{error}");
        assert!(error.contains("process"), "{error}");
        assert!(says("unilith.kernel", "micro", Choice::Kernel).unwrap_err().contains("nothing"));
        assert!(says("unilith.set", "tun=on, io_uring=on", Choice::Set).is_ok());
        assert!(says("unilith.set", "tun=on,keys=on", Choice::Set).unwrap_err().contains("keys=on"));
    }

    #[test]
    fn a_mistake_in_the_file_is_said_with_its_line() {
        for (text, says) in [
            ("machine = 'microvm'\nmachin = 1\n", "line 2"),
            ("machine = 7", "line 1"),
            ("[allow]\nmachine = 'process'", "line 2"),
            ("=", "line 1"),
        ] {
            let error = Administrator::parse(text, Path::new("/etc/x.toml")).unwrap_err().to_string();
            assert!(error.contains("/etc/x.toml") && error.contains(says), "{text}: {error}");
        }
        assert!(Administrator::read(Some(Path::new("/no/such/file"))).is_err());
    }
}
