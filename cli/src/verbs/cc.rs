// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith cc` and `unilith c++`: compilers for programs that are linked with the micro kernel later.

use crate::{
    fault::{Fault, Result},
    linked,
    progress::Progress,
};
use std::ffi::OsString;
use unilith_static::{Flavour, Language, Libc};

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The C library: musl, or Debian's glibc (the default of `c++`)
    #[arg(long, value_enum)]
    libc: Option<LibcName>,
    /// The compiler's arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum LibcName {
    Glibc,
    Musl,
}

pub fn act(args: &Args, language: Language) -> Result<u8> {
    let libc = match (args.libc, language) {
        (Some(LibcName::Musl), Language::Cpp) => {
            return Err(Fault::new("--libc musl: Debian has no C++ library for musl; leave it out"));
        }
        (Some(LibcName::Glibc), _) | (None, Language::Cpp) => Libc::Glibc,
        (Some(LibcName::Musl) | None, Language::C) => Libc::Musl,
    };
    let progress = Progress::new();
    let outcome = linked::workshop()?.compile(Flavour { libc, language }, &args.arguments, false, &progress);
    drop(progress);
    let outcome = outcome.map_err(|e| Fault::new(e.to_string()))?;
    eprint!("{}", outcome.messages);
    Ok(outcome.code)
}
