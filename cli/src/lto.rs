// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `--lto`: program and kernel of a linked image are optimised at the link (`host/static/src/lto.rs`).

use crate::{
    fault::{Fault, Result},
    kernel::bitcode::{self, Bitcode},
    progress::Progress,
    repository,
};
use std::path::PathBuf;
use unilith_machine::record::Platform;
use unilith_static::{LTO, Libc, Lto, Objects, StaticError, Workshop};

#[derive(clap::Args, Clone, Debug, Default)]
#[group(skip)]
pub struct Flags {
    /// With --static: optimise program and kernel at the link, the kernel for the system calls that this program makes. The
    /// program is one of the catalogue, or was built with CC='unilith cc --lto'
    #[arg(long)]
    lto: bool,
}

impl Flags {
    pub fn is_on(&self) -> bool {
        self.lto
    }

    /// Words of `unilith cc` for the programs of the catalogue.
    pub fn words(&self) -> &'static [&'static str] {
        if self.is_on() { &[LTO] } else { &[] }
    }

    pub fn check(&self, is_static: bool) -> Result<()> {
        if self.is_on() && !is_static {
            return Err(Fault::new("--lto is for a program that is linked with the kernel: add --static"));
        }
        Ok(())
    }

    /// Gets what such a link takes beside the program; `None` without --lto.
    pub fn prepare(
        &self,
        platform: Platform,
        features: &[&str],
        objects: &Objects,
        progress: &Progress,
    ) -> Result<Option<Prepared>> {
        if !self.is_on() {
            return Ok(None);
        }
        let fault = |e: StaticError| Fault::new(e.to_string());
        // Before the long work.
        if objects.libc == Libc::Glibc {
            return Err(Fault::new("--lto is for programs in C with musl: leave it out"));
        }
        unilith_static::modules(&objects.bytes).map_err(fault)?;
        let linker = Workshop::linker(&repository::cargo()).map_err(fault)?;
        Ok(Some(Prepared { linker, kernel: bitcode::bitcode(platform, features, progress)? }))
    }
}

/// What a link takes beside the program.
pub struct Prepared {
    linker: PathBuf,
    kernel: Bitcode,
}

impl Prepared {
    pub fn link(&self) -> Lto<'_> {
        let Bitcode { module, library, level } = &self.kernel;
        Lto { linker: &self.linker, kernel: module, library, level }
    }
}
