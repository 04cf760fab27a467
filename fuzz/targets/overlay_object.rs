// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Object files that are loaded into a running kernel.
#![no_main]

use libfuzzer_sys::fuzz_target;
use overlay_link::{Definition, Input, Place, Plan};

fn nothing(_: &[u8]) -> Option<Definition> {
    None
}

fuzz_target!(|bytes: &[u8]| {
    let inputs = [Input { name: "x.o", bytes }];
    if let Err(e) = Plan::new(&inputs, &nothing)
        .and_then(|plan| plan.place(Place { base: 0xffff_ffff_4000_0000, canary: 0x1234 }))
    {
        assert!(!e.to_string().contains('\n'), "an error is one line");
    }
});
