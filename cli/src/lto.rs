// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `--lto`: program and kernel of a linked image are optimised at the link (`host/static/src/lto.rs`), `--profile-use`: for counts of
//! a machine that `--lto=count` made count.

use crate::{
    fault::{Fault, Result, file},
    kernel::bitcode::{self, Bitcode},
    progress::Progress,
    repository,
};
use std::{
    fs,
    io::Read as _,
    path::{Path, PathBuf},
};
use unilith_machine::record::Platform;
use unilith_static::{
    How, LTO, Libc, Lto, Objects, StaticError, Workshop,
    profile::{self, Identity, Profile},
};

#[derive(clap::Args, Clone, Debug, Default)]
#[group(skip)]
pub struct Flags {
    /// With --static: optimise program and kernel at the link, the kernel for the system calls that this program makes. The
    /// program is one of the catalogue, or was built with CC='unilith cc --lto'. `--lto=count`: the image counts how often each of
    /// its branches is taken, for `unilith profile --format counts`
    #[arg(long, value_name = "HOW", value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "on",
        hide_possible_values = true)]
    lto: Option<Choice>,
    /// With --lto: optimise for what `unilith profile --format counts` wrote of a machine of this program: what runs often for
    /// speed, what never ran for size
    #[arg(long, value_name = "FILE")]
    profile_use: Option<PathBuf>,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    On,
    Count,
}

impl Flags {
    pub fn is_on(&self) -> bool {
        self.lto.is_some()
    }

    /// Words of `unilith cc` for the programs of the catalogue.
    pub fn words(&self) -> &'static [&'static str] {
        if self.is_on() { &[LTO] } else { &[] }
    }

    pub fn check(&self, is_static: bool) -> Result<()> {
        if self.is_on() && !is_static {
            return Err(Fault::new("--lto is for a program that is linked with the kernel: add --static"));
        }
        let Some(profile) = &self.profile_use else { return Ok(()) };
        match self.lto {
            None => Err(Fault::new(
                "--profile-use is for a link that optimises program and kernel: add --static --lto",
            )),
            Some(Choice::Count) => Err(Fault::new(
                "--lto=count makes an image that counts, and --profile-use takes what one has counted: leave out =count",
            )),
            // Before the long work.
            Some(Choice::On) => read(profile).map(drop),
        }
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
        let modules = unilith_static::modules(&objects.bytes).map_err(fault)?;
        let linker = Workshop::linker(&repository::cargo()).map_err(fault)?;
        let counts = self.lto == Some(Choice::Count);
        let kernel = bitcode::bitcode(platform, features, counts || self.profile_use.is_some(), progress)?;
        let bytes = fs::read(&kernel.module).map_err(file("read", &kernel.module))?;
        let identity = Identity::new(&modules, &bytes);
        let indexed = match &self.profile_use {
            Some(path) => {
                let profile = read(path)?;
                profile.check(&identity).map_err(refused(path))?;
                let folder = tempfile::tempdir().map_err(file("make a folder in", &std::env::temp_dir()))?;
                let indexed = folder.path().join("profile");
                Workshop::indexed(&profile, &indexed, progress).map_err(refused(path))?;
                Some((indexed, folder))
            }
            None => None,
        };
        Ok(Some(Prepared { linker, kernel, identity, counts, indexed }))
    }
}

fn refused(profile: &Path) -> impl Fn(StaticError) -> Fault {
    move |e| Fault::new(format!("--profile-use {}: {e}", profile.display()))
}

fn read(path: &Path) -> Result<Profile> {
    let mut bytes = Vec::new();
    let from = fs::File::open(path).map_err(file("read", path))?;
    from.take(profile::MAX_BYTES + 1).read_to_end(&mut bytes).map_err(file("read", path))?;
    if bytes.len() as u64 > profile::MAX_BYTES {
        return Err(Fault::new(format!(
            "--profile-use {}: no profile has more than {} MiB",
            path.display(),
            profile::MAX_BYTES >> 20
        )));
    }
    Profile::read(&bytes).map_err(refused(path))
}

/// What a link takes beside the program.
pub struct Prepared {
    linker: PathBuf,
    kernel: Bitcode,
    identity: Identity,
    counts: bool,
    /// The profile as optimisers read it, and the folder that goes away with this.
    indexed: Option<(PathBuf, tempfile::TempDir)>,
}

impl Prepared {
    pub fn link(&self) -> Lto<'_> {
        let Bitcode { module, library, level } = &self.kernel;
        let how = match &self.indexed {
            Some((profile, _)) => How::Use(profile),
            None if self.counts => How::Count(&self.identity),
            None => How::Plain,
        };
        Lto { linker: &self.linker, kernel: module, library, level, how }
    }
}
