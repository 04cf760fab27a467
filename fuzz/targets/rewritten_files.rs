// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Executables of images, in which system calls are looked for: what is found is a system call.
#![no_main]

use libfuzzer_sys::fuzz_target;
use unilith_rewrite::{Object, needs, scan};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(found) = scan(bytes) {
        assert!(
            found.sites.is_empty() || api_sites::Sites::parse(&api_sites::encode(&found.sites)).is_some()
        );
        for site in &found.sites {
            let at = site.offset as usize + site.before as usize;
            assert_eq!(bytes[at..at + 2], [0x0f, 0x05]);
        }
    }
    let _ = needs(&[Object { name: "x".into(), bytes }]);
});
