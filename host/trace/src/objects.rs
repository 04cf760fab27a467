// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Object files of `clang -target bpf -g -O2`.

use crate::Script;
use crate::report::Element;
use bpf::Bundle;
use std::fmt::Write;

/// Reads an object file; `address` knows symbols of the machine, for `extern … __ksym`.
pub fn read(_: &[u8], _: &dyn Fn(&str) -> Option<u64>) -> Result<Script, String> {
    Err("object files cannot be read yet".into())
}

/// The contents of all maps but ring buffers.
pub fn dump(bundle: &Bundle, elements: &[Element]) -> String {
    let mut out = String::new();
    for map in &bundle.maps {
        let own = elements.iter().filter(|e| e.map == map.name);
        for e in own {
            // Writing to a string cannot fail.
            let _ = writeln!(
                out,
                "{} {}: {}",
                map.name,
                number(&e.key),
                e.values.iter().map(|v| number(v)).collect::<Vec<_>>().join(" ")
            );
        }
    }
    out
}

/// Up to eight bytes as a number, more in hexadecimal.
fn number(bytes: &[u8]) -> String {
    if bytes.len() <= 8 {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        return u64::from_le_bytes(word).to_string();
    }
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
