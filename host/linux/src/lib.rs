// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Linux as the machine's kernel: fetches Debian's source, applies the series in `linux/patches`, configures,
//! builds, and makes the archive with which a built kernel starts a program.
//!
//! Everything is below one folder of the cache and comes back when it is deleted:
//!
//! | path in `linux/` | what |
//! | --- | --- |
//! | `packages/` | Debian's source package, fetched and verified by apt |
//! | `tree-VERSION/` | the source with the series applied; updated in place, so that a changed patch rebuilds little |
//! | `build-KERNEL/`, `build-KERNEL.log` | make's output folder and log; `build-KERNEL-6.12` of another release than the default |
//! | `kernels/KEY/` | finished kernels; KEY is the hash of everything they are made from |
//! | `programs/KEY/` | programs of the catalogue that are linked into Linux, built from Debian's source |
//! | `init-CHECKOUT/` | cargo's target folder of the machine's first process |
//!
//! The steps are methods of [`Workshop`], one for each command of `unilith linux`; [`Workshop::prepare`] does
//! what `unilith run --kernel linux` needs.
#![forbid(unsafe_code)]

mod archive;
mod command;
mod config;
mod init;
mod kernel;
mod library;
mod link;
mod options;
mod patches;
mod recipe;
mod release;
mod source;

pub use kernel::Kernel;
pub use link::{Compiler, Language, Libc, Linked, Outcome, PLACES, linked};
pub use options::{Clock, Console, Options};
pub use recipe::{Recipe, Target};
pub use release::Release;
pub use source::Source;
pub use unilith_image::{Cache, Progress, Quiet};

use api_boot::BootConfig;
use std::{
    fmt, fs,
    path::{Path, PathBuf},
};

/// Why a step failed: one line that says what to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinuxError(String);

impl fmt::Display for LinuxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for LinuxError {}

impl LinuxError {
    fn new(message: impl Into<String>) -> LinuxError {
        LinuxError(message.into().trim().replace(['\n', '\r'], " "))
    }

    fn io(doing: &str, path: &Path, error: &std::io::Error) -> LinuxError {
        LinuxError::new(format!("cannot {doing} {}: {error}", path.display()))
    }
}

pub type Result<T> = std::result::Result<T, LinuxError>;

/// Where kernels are made: this repository's recipes, and a folder of the cache.
#[derive(Clone, Debug)]
pub struct Workshop {
    repository: PathBuf,
    cache: Cache,
    folder: PathBuf,
    release: Release,
}

/// What the command needs to boot Linux in place of the micro kernel.
#[derive(Clone, Debug)]
pub struct LinuxKernel {
    /// An ELF file with a PVH entry: `-kernel` on q35 and microvm, with or without firmware.
    pub kernel: PathBuf,
    /// The machine's first process.
    pub init: PathBuf,
    options: Options,
}

impl Workshop {
    /// `repository` holds `linux/patches`, `linux/config` and the source of init.
    pub fn new(repository: impl Into<PathBuf>, cache: &Cache) -> Workshop {
        let folder = cache.folder().join("linux");
        Workshop { repository: repository.into(), cache: cache.clone(), folder, release: Release::default() }
    }

    /// The same place, for kernels of this release.
    #[must_use]
    pub fn of(self, release: Release) -> Workshop {
        Workshop { release, ..self }
    }

    /// A kernel for these options and the program that starts others on it, built where they are not in the cache.
    pub fn prepare(&self, options: &Options, progress: &dyn Progress) -> Result<LinuxKernel> {
        let kernel = self.build(options, progress)?;
        let init = self.init_program(progress)?;
        Ok(LinuxKernel { kernel: kernel.vmlinux, init, options: *options })
    }

    /// The folder of the repository that this crate builds from.
    fn recipes(&self) -> PathBuf {
        self.repository.join("linux")
    }

    fn sub(&self, name: &str) -> Result<PathBuf> {
        let path = self.folder.join(name);
        fs::create_dir_all(&path).map_err(|e| LinuxError::io("make the cache folder", &path, &e))?;
        Ok(path)
    }

    /// Held while something in that folder of the cache is being made, so that two commands do not make it at once.
    fn lock(&self, folder: &str, who: &str, progress: &dyn Progress) -> Result<fs::File> {
        let path = self.sub(folder)?.join("lock");
        let file = fs::File::create(&path).map_err(|e| LinuxError::io("write", &path, &e))?;
        if file.try_lock().is_err() {
            progress.step(&format!("waiting for another unilith that {who}"));
            file.lock().map_err(|e| LinuxError::io("lock", &path, &e))?;
        }
        Ok(file)
    }
}

impl LinuxKernel {
    /// Whether the program can run at the level that is asked for, as far as being linked into the kernel goes.
    pub fn check_program(&self, program: &[u8], options: &Options) -> Result<()> {
        let why = match (linked(program), options.linked()) {
            (Linked::No, false) => return Ok(()),
            (Linked::No, true) => {
                "it is not linked into Linux: link it with `unilith linux cc`, or run it unmodified with `--ukl cpl0`"
            }
            (_, false) => "it is linked into Linux: run it with `--kernel linux --ukl base`",
            (Linked::Any, true) => return Ok(()),
            (Linked::To(id), true) => {
                if id == link::build_id(&self.kernel)? {
                    return Ok(());
                }
                "it calls functions of another Linux kernel: link it again"
            }
        };
        Err(LinuxError::new(why))
    }

    /// Linux's own command line. The program's settings are not on it but in [`LinuxKernel::initial_ram_disk`];
    /// words for devices (`virtio_mmio.device=…`) may be added.
    pub fn command_line(&self, console: Console, clock: Clock, config: &BootConfig) -> String {
        self.options.command_line(console, clock, config.log.as_deref())
    }

    /// Writes the initial RAM disk: the image's root archive with init, the boot configuration and, where the machine
    /// has an overlay, its tools (a busybox without libraries) behind it.
    pub fn initial_ram_disk(
        &self,
        root: &Path,
        config: &BootConfig,
        tools: Option<&[u8]>,
        out: &Path,
    ) -> Result<()> {
        let init = fs::read(&self.init).map_err(|e| LinuxError::io("read", &self.init, &e))?;
        let behind = archive::own_archive(&init, config.encode().as_bytes(), tools);
        archive::join(root, &behind, out)
    }
}
