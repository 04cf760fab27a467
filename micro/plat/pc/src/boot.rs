// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the first Rust code to the kernel's main function.

use crate::windows::{VirtioWindow, Windows};
use crate::{KERNEL_BASE, apic, asm, clock, cpu, descriptors, paging, pci, pvh, serial, windows};
use alloc::vec::Vec;
use api_lock::SpinLock;
use api_plat::{Boot, BootConfig, upcall};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use plat_x86::crash;

/// Called by `boot.s` on the boot stack, interrupts off, with the physical address of the PVH start information.
#[unsafe(no_mangle)]
extern "C" fn unilith_pc_main(start_info: u64) -> ! {
    serial::initialize();
    let processor = cpu::initialize();
    let rate = clock::told(&processor);
    apic::initialize(rate.is_some() && processor.tsc_deadline, processor.kvm_features);
    clock::begin(rate);
    descriptors::initialize();
    paging::protect_image();
    // SAFETY: the address is the boot loader's, and nothing outside of the image was written.
    let mut machine = match unsafe { pvh::read_machine(start_info) } {
        Ok(machine) => machine,
        Err(reason) => crash::fail(reason),
    };
    ACPI_ROOT.store(machine.acpi_root, Ordering::Relaxed);
    HAS_START_PAGES.store(machine.has_start_pages, Ordering::Relaxed);
    let image = asm::__kernel_start.address() - KERNEL_BASE..asm::__kernel_end.address() - KERNEL_BASE;
    machine.free.remove(image.start, image.end);
    if cfg!(feature = "smp") {
        machine.free.remove(pvh::START_PAGES.start, pvh::START_PAGES.end);
    }
    paging::map_high_memory(&mut machine.free);
    upcall::unilith_kernel_memory(machine.free.as_slice());
    let config = core::str::from_utf8(machine.command_line)
        .map_err(|_| alloc::string::String::from("boot command line: not UTF-8"))
        .and_then(|line| {
            let (line, words) = windows::split(line);
            WINDOWS.lock().extend(windows::parse(words));
            BootConfig::decode(line).map_err(|e| alloc::format!("{e}"))
        });
    let config = match config {
        Ok(config) => config,
        Err(reason) => crash::fail(&reason),
    };
    clock::finish();
    clock::set_wall_clock(config.epoch_ns);
    upcall::unilith_kernel_main(Boot {
        config,
        initrd: machine.initrd,
        memory: machine.memory,
        initrd_physical: machine.initrd_physical,
    })
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
    } else if pci::is_there() {
        Windows::None
    } else {
        Windows::Guessed(windows::microvm(apic::has_second_io_apic()).collect())
    }
}
