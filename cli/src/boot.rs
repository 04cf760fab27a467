// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What each kernel is given at boot.

use crate::{
    archive::Archive,
    fault::{Fault, file},
    prepare, repository,
};
use api_boot::BootConfig;
use unilith_image::{Image, Quiet, Reference, Request};
use unilith_linux::{Clock, Console, LinuxKernel, Options, Release, Workshop};
use unilith_machine::{
    boot::{BootFiles, settings_in_memory},
    cloud_hypervisor, firecracker,
    record::{Accel, KernelKind, Platform},
    store::Held,
};

/// The initial RAM disk and the command line for a machine.
pub fn files(machine: &Held, config: &BootConfig) -> Result<BootFiles, String> {
    let spec = &machine.spec;
    match spec.kernel_kind {
        KernelKind::Micro if spec.platform.is_lean_monitor() => {
            let most = match spec.platform {
                Platform::CloudHypervisor => cloud_hypervisor::config::MAX_BOOT_ARGS,
                _ => firecracker::config::MAX_BOOT_ARGS,
            };
            firecracker::boot::files(&spec.initrd, &machine.initrd(), config, most).map_err(|e| e.to_string())
        }
        // A process machine takes it by a descriptor.
        KernelKind::Micro if spec.platform.is_process() => Ok(BootFiles::new(&spec.initrd, config.encode())),
        KernelKind::Micro => {
            settings_in_memory(&spec.initrd, &machine.initrd(), config).map_err(|e| e.to_string())
        }
        KernelKind::Linux => {
            let workshop = workshop(&spec.linux).map_err(|e| e.to_string())?;
            // Built before the machine was made; here it is only looked up.
            let options = options(&spec.ukl).map_err(|e| e.to_string())?;
            let linux = workshop.prepare(&options, &Quiet).map_err(|e| e.to_string())?;
            let initrd = machine.initrd();
            let tools = spec.overlay.then(tools).transpose().map_err(|e| e.to_string())?;
            let made = linux.initial_ram_disk(&spec.initrd, config, tools.as_deref(), &initrd);
            made.map_err(|e| e.to_string())?;
            let clock = if spec.accel == Some(Accel::Icount) { Clock::Instructions } else { Clock::Host };
            Ok(BootFiles::new(&initrd, linux.command_line(Console::Serial, clock, config)))
        }
    }
}

/// The tools of a Linux machine's overlay: the catalogue's busybox, which needs no libraries.
pub fn tools() -> crate::fault::Result<Vec<u8>> {
    let catalogue = prepare::catalogue()?;
    let request = Request::new(Reference::parse("busybox", &catalogue)?, catalogue);
    let image = unilith_image::gather(&request, &prepare::cache()?, &Quiet)?;
    let bytes = std::fs::read(&image.root).map_err(file("read", &image.root))?;
    let found =
        Archive::read(&bytes).and_then(|archive| archive.file("/usr/bin/busybox").map(<[u8]>::to_vec));
    found.ok_or_else(|| Fault::new(format!("{} holds no busybox", image.root.display())))
}

/// Is the program linked into this kernel if that is the level, and not if it is another?
pub fn check_level(image: &Image, options: &Options, linux: &LinuxKernel) -> crate::fault::Result<()> {
    let bytes = std::fs::read(&image.root).map_err(file("read", &image.root))?;
    let path = image.config.args.first().map_or("", String::as_str);
    // A script or a link is nothing that can be linked into the kernel; whether it is there is for others to say.
    let program = Archive::read(&bytes).and_then(|archive| archive.file(path)).unwrap_or_default();
    linux.check_program(program, options).map_err(|why| Fault::new(format!("{path}: {why}")))
}

/// The value of `--ukl`.
pub fn options(text: &str) -> crate::fault::Result<Options> {
    Options::parse(text).map_err(|e| Fault::new(e.to_string()))
}

/// Where kernels of this Linux are made: the value of `--linux`, which nobody has to give.
pub fn workshop(release: &str) -> crate::fault::Result<Workshop> {
    let release = match release {
        "" => Release::default(),
        text => Release::parse(text).map_err(|e| Fault::new(e.to_string()))?,
    };
    Ok(Workshop::new(repository::sources("a Linux kernel")?, &prepare::cache()?).of(release))
}
