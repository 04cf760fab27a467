// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host's side of tracing: from a line such as `count(processCommand)` or an object file of clang to a package of
//! verified programs with a place for each, and from what they found to text.
//!
//! - [`language`]: one-liners, compiled to eBPF here.
//! - [`ready`]: some that have a name.
//! - [`objects`]: object files: maps, programs, relocations, BTF, CO-RE.
//! - [`symbols`]: which address a name has in the running machine.
//! - [`profile`]: samples, with the callers found.
//! - [`report`]: what maps and records say.
#![cfg_attr(not(test), forbid(unsafe_code))]

mod btf;
pub mod emit;
pub mod language;
pub mod objects;
pub mod profile;
pub mod ready;
pub mod report;
pub mod symbols;

use api_probes::Kind;
use bpf::Bundle;
use report::Report;

/// Where a program goes, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Index in the bundle.
    pub program: usize,
    pub kind: Kind,
    /// A function, `kernel:` and a function, or a tracepoint.
    pub name: String,
    /// Of samples: from one to the next; 0 leaves it to the machine.
    pub interval_ns: u64,
}

/// Programs, where they go, and how to show what they find.
#[derive(Clone, Debug, Default)]
pub struct Script {
    pub bundle: Bundle,
    pub places: Vec<Place>,
    pub reports: Vec<Report>,
}

impl Script {
    /// Verifies every program; the error names it, the instruction, and what could go wrong.
    pub fn verify(&self) -> Result<(), String> {
        for program in &self.bundle.programs {
            bpf::verify(&program.insns, program.context, &self.bundle.maps, &mut || true)
                .map_err(|r| format!("{}: {r}", program.name))?;
        }
        Ok(())
    }
}
