// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a registry or a file of settings may say, with some of its bytes changed: an answer or an error in a line.

use crate::{Name, RegistryError, Settings, challenge, pull};
use oci_spec::image::ImageIndex;
use proptest::prelude::*;

const MANIFEST: &str = r#"{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json",
"config":{"mediaType":"application/vnd.oci.image.config.v1+json","size":1470,"digest":"sha256:4d3bf1a2f9d9e6d2f1cbd7a8a6ad4b7f3f6d1fa8c9b5f3e5d7a1c0b2e4f68a90"},
"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar+gzip","size":3208942,"digest":"sha256:4d3bf1a2f9d9e6d2f1cbd7a8a6ad4b7f3f6d1fa8c9b5f3e5d7a1c0b2e4f68a90"}]}"#;
const INDEX: &str = r#"{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[
{"mediaType":"application/vnd.oci.image.manifest.v1+json","size":610,"digest":"sha256:4d3bf1a2f9d9e6d2f1cbd7a8a6ad4b7f3f6d1fa8c9b5f3e5d7a1c0b2e4f68a90","platform":{"os":"linux","architecture":"amd64"}},
{"mediaType":"application/vnd.oci.image.manifest.v1+json","size":610,"digest":"sha256:4d3bf1a2f9d9e6d2f1cbd7a8a6ad4b7f3f6d1fa8c9b5f3e5d7a1c0b2e4f68a91","platform":{"os":"linux","architecture":"arm","variant":"v7"}}]}"#;
const CONFIG: &str =
    r#"{"architecture":"amd64","os":"linux","created":"2026-01-02T03:04:05Z","config":{"Env":["A=b"]}}"#;
const SETTINGS: &str = "unqualified-search-registries = [\"docker.io\"]\n[[registry]]\nprefix = \"docker.io\"\n\
    [[registry.mirror]]\nlocation = \"mirror.example:5000/hub\"\n[[registry]]\nprefix = \"registry.lan:5000\"\ninsecure = true\n";
const CHALLENGE: &str =
    r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:x:pull""#;
const NAME: &str =
    "registry.lan:5000/team/tool:7@sha256:4d3bf1a2f9d9e6d2f1cbd7a8a6ad4b7f3f6d1fa8c9b5f3e5d7a1c0b2e4f68a90";

/// A change at a place of a text: bytes that are taken away, and others that come there.
fn changed(text: &'static str) -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..4),
        proptest::sample::select(vec![
            "\"",
            "{",
            "]",
            "[[",
            "-1",
            "1e999",
            "18446744073709551616",
            "null",
            "\u{202e}",
            "//"
        ])
        .prop_map(|s| s.as_bytes().to_vec()),
    ];
    proptest::collection::vec((0..text.len(), 0..12usize, piece), 0..4).prop_map(move |changes| {
        let mut bytes = text.as_bytes().to_vec();
        for (at, gone, new) in changes {
            let begin = at.min(bytes.len());
            let end = (begin + gone).min(bytes.len());
            bytes.splice(begin..end, new);
        }
        bytes
    })
}

/// An error is a line that a terminal may be shown.
fn is_said<T>(result: Result<T, RegistryError>) {
    if let Err(e) = result {
        assert!(e.message.len() < 2000, "{}", e.message);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn changed_documents_are_read_or_refused(
        manifest in changed(MANIFEST), index in changed(INDEX), config in changed(CONFIG)
    ) {
        if let Ok(read) = pull::read_manifest(&manifest) {
            prop_assert!(read.layers().len() <= 1);
        }
        is_said(pull::read_manifest(&manifest));
        is_said(pull::check_config(&config));
        if let Ok(index) = serde_json::from_slice::<ImageIndex>(&index) {
            is_said(pull::choose(&index).map(|chosen| chosen.size()));
        }
    }

    #[test]
    fn changed_settings_headers_and_names_are_read_or_refused(
        settings in changed(SETTINGS), header in changed(CHALLENGE), name in changed(NAME)
    ) {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        is_said(Settings::default().add(&text(settings), "registries.conf"));
        let _ = challenge::parse(&text(header));
        let name = Name::parse(&text(name));
        if let Ok(name) = &name {
            // What it stands for is the same when it is written and read again.
            let written = name.to_string();
            prop_assert_eq!(&Name::parse(&written).map(|n| n.to_string()).ok(), &Some(written));
        }
        is_said(name);
    }
}
