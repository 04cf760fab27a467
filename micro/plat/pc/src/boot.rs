// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the first Rust code to the kernel's main function.

use crate::windows::{VirtioWindow, Windows};
use crate::{
    KERNEL_BASE, apic, asm, clock, cpu, descriptors, off_switch, paging, pci, power, pvh, screen, serial,
    windows, xen,
};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_boot::SETTINGS_ADDRESS;
use api_lock::SpinLock;
use api_plat::{Boot, BootConfig, upcall};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use plat_x86::{crash, entropy};

/// Called by `boot.s` on the boot stack, interrupts off, with the physical address of the PVH start information.
#[unsafe(no_mangle)]
extern "C" fn unilith_pc_main(start_info: u64) -> ! {
    xen::begin();
    serial::initialize();
    // SAFETY: the address is the boot loader's, nothing outside of the image was written, and this is the only processor.
    unsafe { screen::begin(start_info) };
    let processor = cpu::initialize();
    let rate = clock::told(&processor);
    apic::initialize(rate.is_some() && processor.tsc_deadline, processor.kvm_features);
    clock::begin(rate);
    descriptors::initialize();
    paging::protect_image();
    // SAFETY: the address is the boot loader's, and nothing outside of the image was written.
    let mut machine = match unsafe { pvh::read_machine(start_info, processor.is_guest) } {
        Ok(machine) => machine,
        Err(reason) => crash::fail(reason),
    };
    ACPI_ROOT.store(machine.acpi_root, Ordering::Relaxed);
    HAS_START_PAGES.store(machine.has_start_pages, Ordering::Relaxed);
    let image = asm::__kernel_start.address() - KERNEL_BASE..asm::__kernel_end.address() - KERNEL_BASE;
    machine.free.remove(image.start, image.end);
    paging::map_high_memory(&mut machine.free);
    upcall::unilith_kernel_memory(machine.free.as_slice());
    let config = match settings(&mut machine) {
        Ok(config) => config,
        Err(reason) => crash::fail(&reason),
    };
    if let Some(seed) = config.seed {
        entropy::add_entropy(&seed);
    }
    clock::finish();
    clock::set_wall_clock(config.epoch_ns);
    off_switch::begin(machine.acpi_root);
    upcall::unilith_kernel_main(Boot {
        config,
        initrd: machine.initrd,
        memory: machine.memory,
        initrd_physical: machine.initrd_physical,
    })
}

/// What the command line says, and the settings that it names, in memory or in the initial RAM disk, from which they are cut off.
fn settings(machine: &mut pvh::Machine) -> Result<BootConfig, String> {
    let text = |bytes, what: &str| core::str::from_utf8(bytes).map_err(|_| format!("{what}: not UTF-8"));
    let decode = |line: &str| BootConfig::decode(line).map_err(|e| format!("{e}"));
    let words = windows::split(text(machine.command_line, "boot command line")?);
    {
        let mut told = WINDOWS.lock();
        for window in words.windows() {
            told.reserve_fallibly(1).map_err(|_| String::from("no memory for the list of devices"))?;
            told.push(window);
        }
    }
    let line = format!("{}{}", words.settings, words.program);
    let config = decode(&line)?;
    if config.status_on_console {
        power::report_on_console();
    }
    if let Some(length) = config.settings {
        if length != machine.settings.len() as u64 || length == 0 {
            return Err(format!(
                "boot command line: no monitor put {length} bytes of settings to {SETTINGS_ADDRESS:#x}"
            ));
        }
        return decode(text(machine.settings, "settings in memory")?);
    }
    let Some((offset, length)) = config.more else { return Ok(config) };
    let range = usize::try_from(offset).ok().zip(usize::try_from(length).ok());
    let range = range.and_then(|(offset, length)| Some(offset..offset.checked_add(length)?));
    let more = range.as_ref().and_then(|range| machine.initrd.get(range.clone()));
    let (Some(more), Some(range)) = (more, range) else {
        return Err(format!("boot command line: the initial RAM disk has no {length} bytes at {offset}"));
    };
    let config = decode(text(more, "settings in the initial RAM disk")?)?;
    machine.initrd = &machine.initrd[..range.start];
    Ok(config)
}

/// What the boot loader said of ACPI's root pointer; 0 for nothing.
static ACPI_ROOT: AtomicU64 = AtomicU64::new(0);
static HAS_START_PAGES: AtomicBool = AtomicBool::new(false);

/// Where ACPI's root pointer is; 0 where that is not told.
pub fn acpi_root() -> u64 {
    ACPI_ROOT.load(Ordering::Relaxed)
}

/// There is memory where processors start.
pub fn has_start_pages() -> bool {
    HAS_START_PAGES.load(Ordering::Relaxed)
}

static WINDOWS: SpinLock<Vec<VirtioWindow>> = SpinLock::new(Vec::new());

/// Where virtio-mmio devices may be.
pub fn virtio_windows() -> Windows {
    let told = WINDOWS.lock().clone();
    if !told.is_empty() {
        Windows::Told(told)
    } else if xen::is_on() || pci::is_there() {
        Windows::None
    } else {
        Windows::Guessed(windows::microvm(apic::has_second_io_apic()).collect())
    }
}
