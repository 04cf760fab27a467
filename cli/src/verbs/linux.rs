// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith linux`: the steps of building a Linux kernel, one at a time, for work on the series in `linux/patches`.

use crate::output::say;
use crate::{
    boot,
    fault::{Fault, Result},
    progress::Progress,
};
use std::ffi::OsString;
use unilith_linux::{Compiler, Language, Libc, PLACES, Quiet, Workshop};

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(subcommand)]
    step: Step,
}

#[derive(clap::Subcommand, Clone, Debug)]
enum Step {
    /// Fetch, unpack and patch the source; print where it is
    Source(Version),
    /// Write the configuration; print where it is
    Config(Level),
    /// Build the kernel; print where it is
    Build(Level),
    /// Change the configuration in the kernel's menu; print the changes as lines for linux/config
    Menuconfig(Level),
    /// Compile C and link the program into Linux, for `run --ukl base`: use it as a build's CC
    Cc(Words),
    /// The same for C++
    #[command(name = "c++")]
    Cpp(Words),
}

#[derive(clap::Args, Clone, Debug)]
struct Words {
    /// The C library: glibc, or Debian's musl
    #[arg(long, value_enum, default_value = "glibc")]
    libc: LibcName,
    /// Which 16 MB of kernel addresses the program gets: programs that run in one machine need different ones
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(..i64::from(PLACES)))]
    place: u8,
    #[command(flatten)]
    linux: Version,
    /// The compiler's arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum LibcName {
    Glibc,
    Musl,
}

#[derive(clap::Args, Clone, Debug)]
struct Level {
    /// As for `run`
    #[arg(long, value_name = "OPTIONS", default_value = "", hide_default_value = true)]
    ukl: String,
    #[command(flatten)]
    linux: Version,
}

#[derive(clap::Args, Clone, Debug)]
struct Version {
    /// Which Linux: 6.1 or 6.12
    #[arg(long, value_name = "VERSION", default_value = "", hide_default_value = true)]
    linux: String,
}

impl Level {
    fn workshop(&self) -> Result<Workshop> {
        boot::workshop(&self.linux.linux)
    }
}

pub fn act(args: &Args) -> Result<u8> {
    let progress = Progress::new();
    let fault = |e: unilith_linux::LinuxError| Fault::new(e.to_string());
    let lines = match &args.step {
        Step::Cc(words) => return compile(Language::C, words, progress),
        Step::Cpp(words) => return compile(Language::Cpp, words, progress),
        Step::Source(version) => {
            vec![boot::workshop(&version.linux)?.source(&progress).map_err(fault)?.tree.display().to_string()]
        }
        Step::Config(level) => {
            let path = level.workshop()?.config(&boot::options(&level.ukl)?, &progress).map_err(fault)?;
            vec![path.display().to_string()]
        }
        Step::Build(level) => {
            let kernel = level.workshop()?.build(&boot::options(&level.ukl)?, &progress).map_err(fault)?;
            vec![kernel.vmlinux.display().to_string()]
        }
        // The terminal is the menu's.
        Step::Menuconfig(level) => {
            level.workshop()?.menuconfig(&boot::options(&level.ukl)?, &Quiet).map_err(fault)?
        }
    };
    drop(progress);
    lines.iter().for_each(|line| say!("{line}"));
    Ok(0)
}

fn compile(language: Language, words: &Words, progress: Progress) -> Result<u8> {
    let libc = match words.libc {
        LibcName::Glibc => Libc::Glibc,
        LibcName::Musl => Libc::Musl,
    };
    let compiler = Compiler { language, libc, place: words.place };
    let outcome = boot::workshop(&words.linux.linux)?.compile_program(compiler, &words.arguments, &progress);
    drop(progress);
    let outcome = outcome.map_err(|e| Fault::new(e.to_string()))?;
    eprint!("{}", outcome.messages);
    if let Some(warning) = outcome.warning {
        eprintln!("unilith: {warning}");
    }
    Ok(outcome.code)
}
