// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds system-call sites in ELF files. This first step of it finds none, so every call traps.
#![forbid(unsafe_code)]

/// Changes when the same file would get another table.
pub const VERSION: &str = "0";

/// What is known of one file.
pub struct Scan {
    pub sites: Vec<api_sites::Site>,
}

/// Scans a file.
pub fn scan(_elf: &[u8]) -> Result<Scan, String> {
    Ok(Scan { sites: Vec::new() })
}
