// SPDX-License-Identifier: Apache-2.0 OR MIT
//! eBPF as it comes from the host: decoded, encoded again and verified.
#![no_main]

use bpf::{Bundle, verify};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(bundle) = Bundle::decode(bytes) else { return };
    assert_eq!(Bundle::decode(&bundle.encode()).map(|again| again.encode()), Ok(bundle.encode()));
    for program in &bundle.programs {
        let mut turns = 0;
        // A program that takes long to verify is given up, as in the kernel.
        let _ = verify(&program.insns, program.context, &bundle.maps, &mut || {
            turns += 1;
            turns < 200
        });
    }
});
