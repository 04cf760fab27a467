// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The status port, and the end of the machine.

use crate::x86::{outb, outl, outw};
use api_boot::{EXIT_PORT, STATUS_PORT, Status};
use core::arch::asm;
use core::fmt::Write;

struct Port;

impl Write for Port {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        unilith_plat_status_write(text.as_bytes());
        Ok(())
    }
}

#[unsafe(no_mangle)]
fn unilith_plat_status_write(bytes: &[u8]) {
    for byte in bytes {
        // SAFETY: the status port has no other effect than that the host reads the byte.
        unsafe { outb(STATUS_PORT, *byte) };
    }
}

#[unsafe(no_mangle)]
fn unilith_plat_status(status: &Status) {
    // The port cannot fail.
    let _ = writeln!(Port, "{status}");
}

#[unsafe(no_mangle)]
fn unilith_plat_power_off(status: &Status) -> ! {
    unilith_plat_status(status);
    off(matches!(status, Status::Exit { code: 0 }))
}

/// As [`Status::Failed`], without the heap that its `String` needs.
#[unsafe(no_mangle)]
fn unilith_machine_failed(reason: &str) -> ! {
    let _ = write!(Port, "failed ");
    for part in reason.split('\n') {
        let _ = write!(Port, "{part} ");
    }
    let _ = writeln!(Port);
    off(false)
}

/// QEMU's power-management port on q35, and the value for "soft off" (ACPI 4.8.3.2.1, SLP_EN with SLP_TYP 0).
const ACPI_CONTROL: u16 = 0x604;
const SOFT_OFF: u16 = 0x2000;

fn off(success: bool) -> ! {
    // SAFETY: each of these ends the machine or does nothing: QEMU's exit device, ACPI, the keyboard controller's
    // reset line (which Firecracker takes as the end), and a triple fault by an interrupt without a table.
    unsafe {
        asm!("cli");
        outl(EXIT_PORT, u32::from(!success));
        outw(ACPI_CONTROL, SOFT_OFF);
        outb(0x64, 0xfe);
        asm!("lidt [{}]", "ud2", in(reg) &[0u64; 2], options(noreturn));
    }
}
