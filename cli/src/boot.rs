// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What each kernel is given at boot.

use crate::{fault::Fault, prepare, repository};
use api_boot::BootConfig;
use unilith_image::Quiet;
use unilith_linux::{Console, Options, Workshop};
use unilith_machine::{record::KernelKind, store::Held, supervisor::BootFiles};

/// The initial RAM disk and the command line for a machine.
pub fn files(machine: &Held, config: &BootConfig) -> Result<BootFiles, String> {
    let spec = &machine.spec;
    match spec.kernel_kind {
        KernelKind::Micro => Ok(BootFiles { initrd: spec.initrd.clone(), append: config.encode() }),
        KernelKind::Linux => {
            let workshop = workshop().map_err(|e| e.to_string())?;
            // Built before the machine was made; here it is only looked up.
            let options = options(&spec.ukl).map_err(|e| e.to_string())?;
            let linux = workshop.prepare(&options, &Quiet).map_err(|e| e.to_string())?;
            let initrd = machine.initrd();
            linux.initial_ram_disk(&spec.initrd, config, &initrd).map_err(|e| e.to_string())?;
            Ok(BootFiles { initrd, append: linux.command_line(Console::Serial, config) })
        }
    }
}

/// The value of `--ukl`.
pub fn options(text: &str) -> crate::fault::Result<Options> {
    Options::parse(text).map_err(|e| Fault::new(e.to_string()))
}

/// Where Linux kernels are made.
pub fn workshop() -> crate::fault::Result<Workshop> {
    Ok(Workshop::new(repository::root()?, &prepare::cache()?))
}
