// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests of a machine to the server of its volumes: each is answered, and nothing outside the tree changes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::fs;
use std::sync::Arc;
use unilith_ninep::server::Server;
use unilith_ninep::{Access, Export, Limits};

/// Length, kind, tag.
const HEADER: usize = 7;
/// So many files may be open.
const LIMITS: Limits = Limits { descriptors: 64, given: 8 };

fuzz_target!(|bytes: &[u8]| {
    let Ok(folder) = tempfile::tempdir() else { return };
    let tree = folder.path().join("tree");
    if fs::create_dir(&tree).and_then(|()| fs::write(folder.path().join("secret"), "secret")).is_err() {
        return;
    }
    let Ok(export) = Export::open(&tree, Access::All) else { return };
    let mut server = Server::new(LIMITS);
    assert!(server.add(b"", Arc::new(export)));
    let mut out = Vec::new();
    let mut rest = bytes;
    // Each request behind the length of it.
    while let Some((length, more)) = rest.split_first() {
        let (request, more) = more.split_at(usize::from(*length).min(more.len()));
        rest = more;
        if request.is_empty() {
            continue;
        }
        server.answer(request, &mut out);
        let said = out.first_chunk::<4>().map(|length| u32::from_le_bytes(*length) as usize);
        assert!(out.len() >= HEADER && said == Some(out.len()), "{request:?}");
    }
    server.close();
    assert_eq!(fs::read_to_string(folder.path().join("secret")).ok().as_deref(), Some("secret"));
    assert_eq!(fs::read_dir(folder.path()).map(Iterator::count).ok(), Some(2));
});
