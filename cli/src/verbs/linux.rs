// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith linux`: the steps of building a Linux kernel, one at a time, for work on the series in `linux/patches`.

use crate::{
    boot,
    fault::{Fault, Result},
    progress::Progress,
};
use unilith_linux::Quiet;

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(subcommand)]
    step: Step,
}

#[derive(clap::Subcommand, Clone, Debug)]
enum Step {
    /// Fetch, unpack and patch the source; print where it is
    Source,
    /// Write the configuration; print where it is
    Config(Level),
    /// Build the kernel; print where it is
    Build(Level),
    /// Change the configuration in the kernel's menu; print the changes as lines for linux/config
    Menuconfig(Level),
}

#[derive(clap::Args, Clone, Debug)]
struct Level {
    /// As for `run`
    #[arg(long, value_name = "OPTIONS", default_value = "", hide_default_value = true)]
    ukl: String,
}

pub fn act(args: &Args) -> Result<u8> {
    let workshop = boot::workshop()?;
    let progress = Progress::new();
    let fault = |e: unilith_linux::LinuxError| Fault::new(e.to_string());
    let lines = match &args.step {
        Step::Source => vec![workshop.source(&progress).map_err(fault)?.tree.display().to_string()],
        Step::Config(level) => {
            let path = workshop.config(&boot::options(&level.ukl)?, &progress).map_err(fault)?;
            vec![path.display().to_string()]
        }
        Step::Build(level) => {
            let kernel = workshop.build(&boot::options(&level.ukl)?, &progress).map_err(fault)?;
            vec![kernel.vmlinux.display().to_string()]
        }
        // The terminal is the menu's.
        Step::Menuconfig(level) => workshop.menuconfig(&boot::options(&level.ukl)?, &Quiet).map_err(fault)?,
    };
    drop(progress);
    lines.iter().for_each(|line| println!("{line}"));
    Ok(0)
}
