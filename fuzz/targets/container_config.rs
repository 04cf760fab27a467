// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A container's config.json: an error of one line, or a container.
#![no_main]

use libfuzzer_sys::fuzz_target;
use unilith_container::bundle::Container;

fuzz_target!(|bytes: &[u8]| {
    let Ok(bundle) = tempfile::tempdir() else { return };
    let path = bundle.path().join("config.json");
    if std::fs::write(&path, bytes).is_err() {
        return;
    }
    if let Err(e) = Container::read_from(&path, bundle.path()) {
        assert!(!e.to_string().contains('\n'), "an error is one line: {e}");
    }
});
