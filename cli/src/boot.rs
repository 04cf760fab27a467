// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What each kernel is given at boot.

use crate::{prepare, repository};
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
            let linux = workshop.prepare(&Options::default(), &Quiet).map_err(|e| e.to_string())?;
            let initrd = machine.initrd();
            linux.initial_ram_disk(&spec.initrd, config, &initrd).map_err(|e| e.to_string())?;
            Ok(BootFiles { initrd, append: linux.command_line(Console::Serial, config) })
        }
    }
}

/// Where Linux kernels are made.
pub fn workshop() -> crate::fault::Result<Workshop> {
    Ok(Workshop::new(repository::root()?, &prepare::cache()?))
}
