// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The repository's own catalogue.

use std::path::Path;
use unilith_image::Catalogue;

#[test]
fn every_entry_follows_the_schema_and_says_what_users_need() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../apps");
    let catalogue = Catalogue::open(&folder);
    let names = catalogue.names();
    for wanted in ["redis", "nginx", "memcached", "sqlite", "python", "lua", "busybox"] {
        assert!(names.iter().any(|n| n == wanted), "{wanted} is missing");
    }
    for name in names {
        let (manifest, folder) = catalogue.entry(&name).unwrap_or_else(|e| panic!("{e}"));
        let said = [&manifest.about, &manifest.from, &manifest.program, &manifest.try_it];
        assert!(
            said.iter().all(|s| s.is_some()),
            "{name}: about, from, program and try belong in every entry"
        );
        assert!(manifest.state.is_some() && manifest.memory.is_some(), "{name}: state and memory");
        for file in manifest.files.values() {
            assert!(folder.join(file).exists(), "{name}: {file}");
        }
    }
}
