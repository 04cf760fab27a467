// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names of images as docker's users write them: `redis:7`, `localhost:5000/redis`, `quay.io/team/tool@sha256:…`.

use crate::error::{Result, fail};
use oci_spec::distribution::{ParseError, Reference};
use std::fmt;

/// The registry of names that name none.
pub const DOCKER_HUB: &str = "docker.io";
/// skopeo's word before such a name.
const TRANSPORT: &str = "docker://";
/// Bytes of a name: 255 of its repository, the longest host name, tag and digest, and room.
const MAX_NAME: usize = 1024;

/// The name of an image in a registry, whole: with registry, and tag or digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    reference: Reference,
}

impl Name {
    /// Reads a name; without a registry it is Docker Hub's, without tag and digest `latest`.
    pub fn parse(text: &str) -> Result<Name> {
        let short: String = text.chars().take(100).collect();
        let bare = text.strip_prefix(TRANSPORT).unwrap_or(text);
        let why = if bare.len() > MAX_NAME {
            "it is too long"
        } else {
            match bare.parse::<Reference>() {
                Ok(reference) => match reference.digest() {
                    Some(digest) if !digest.starts_with("sha256:") => "digests are sha256 here",
                    // A first part with capital letters is taken for a part of the repository, in which there are none.
                    _ if reference.repository().chars().any(|c| c.is_ascii_uppercase()) => {
                        "a repository has small letters, digits and . _ - / only"
                    }
                    _ => return Ok(Name { reference }),
                },
                Err(ParseError::DigestInvalidLength) => "a sha256 digest has 64 hexadecimal digits",
                Err(ParseError::DigestInvalidFormat | ParseError::DigestUnsupported) => {
                    "digests are sha256 here"
                }
                Err(ParseError::NameEmpty) => "it is empty",
                Err(ParseError::NameTooLong) => "its repository has more than 255 characters",
                Err(_) if bare.chars().any(|c| c.is_ascii_uppercase()) => {
                    "a repository has small letters, digits and . _ - / only"
                }
                Err(_) => {
                    "write [REGISTRY[:PORT]/]NAME[:TAG][@sha256:DIGEST], for example docker.io/library/redis:7"
                }
            }
        };
        fail!(Name, "`{short}` is no name of an image: {why}")
    }

    /// The host and port that the name names.
    pub fn registry(&self) -> &str {
        self.reference.registry()
    }

    pub fn repository(&self) -> &str {
        self.reference.repository()
    }

    pub fn digest(&self) -> Option<&str> {
        self.reference.digest()
    }

    /// What a registry is asked for: the digest if there is one, as docker does.
    pub(crate) fn wanted(&self) -> &str {
        self.digest().or(self.reference.tag()).unwrap_or("latest")
    }

    /// A short name for machines: the last part of the repository.
    pub fn short(&self) -> &str {
        self.repository().rsplit('/').next().unwrap_or_default()
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reference.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capital_letters_are_refused_wherever_they_are() {
        for name in ["Registry/team/tool:7", "team/Tool"] {
            assert!(Name::parse(name).unwrap_err().to_string().contains("small letters"), "{name}");
        }
    }

    #[test]
    fn names_are_completed_as_dockers_are() {
        let of = |text: &str| Name::parse(text).unwrap().to_string();
        assert_eq!(of("redis"), "docker.io/library/redis:latest");
        assert_eq!(of("redis:7"), "docker.io/library/redis:7");
        assert_eq!(of("docker://team/tool"), "docker.io/team/tool:latest");
        assert_eq!(of("localhost:5000/redis:7"), "localhost:5000/redis:7");
        assert_eq!(of("localhost/redis"), "localhost/redis:latest");
        let digest = format!("sha256:{}", "0".repeat(64));
        assert_eq!(of(&format!("quay.io/a/b@{digest}")), format!("quay.io/a/b@{digest}"));
        let both = Name::parse(&format!("quay.io/a/b:1@{digest}")).unwrap();
        assert_eq!((both.wanted(), both.short(), both.registry()), (digest.as_str(), "b", "quay.io"));
    }

    #[test]
    fn what_is_no_name_is_said_in_one_line() {
        let long = "a".repeat(5000);
        for (text, part) in [
            ("", "empty"),
            ("Redis:7", "small letters"),
            ("redis:7:8", "write [REGISTRY"),
            ("a b", "write [REGISTRY"),
            ("../x", "write [REGISTRY"),
            ("redis@sha256:12", "write [REGISTRY"),
            (&format!("redis@sha256:{}", "0".repeat(63)), "64 hexadecimal"),
            (&format!("redis@sha512:{}", "0".repeat(128)), "sha256"),
            ("a\nb", "write [REGISTRY"),
            (&long, "too long"),
            (&"a".repeat(300), "255"),
        ] {
            let error = Name::parse(text).unwrap_err().message;
            assert!(error.contains(part) && !error.contains('\n') && error.len() < 400, "{text}: {error}");
        }
    }
}
