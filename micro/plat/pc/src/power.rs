// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The status port, or what takes its place, and the end of the machine.

use crate::serial::unilith_machine_write_raw;
use crate::x86::{inb, outb, outl, outw};
use api_boot::{EXIT_PORT, STATUS_PORT, Status};
use core::arch::asm;
use core::fmt::Write;
use core::sync::atomic::{AtomicU8, Ordering};

struct Port;

impl Write for Port {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        unilith_plat_status_write(text.as_bytes());
        Ok(())
    }
}

const UNKNOWN: u8 = 0;
const HEARD: u8 = 1;
const UNHEARD: u8 = 2;
static LISTENER: AtomicU8 = AtomicU8::new(UNKNOWN);

/// Whether a host reads the status port: QEMU's debug console answers its own number, an empty port something else. On
/// a computer of its own the machine says what a person has to know on its console.
fn is_heard() -> bool {
    if LISTENER.load(Ordering::Relaxed) == UNKNOWN {
        // SAFETY: nothing else is at this port.
        let answer = unsafe { inb(STATUS_PORT) };
        let heard = u16::from(answer) == STATUS_PORT;
        LISTENER.store(if heard { HEARD } else { UNHEARD }, Ordering::Relaxed);
    }
    LISTENER.load(Ordering::Relaxed) == HEARD
}

#[unsafe(no_mangle)]
fn unilith_plat_status_write(bytes: &[u8]) {
    if !is_heard() {
        return unilith_machine_write_raw(bytes.strip_prefix(b"log ").unwrap_or(bytes));
    }
    for byte in bytes {
        // SAFETY: the status port has no other effect than that the host reads the byte.
        unsafe { outb(STATUS_PORT, *byte) };
    }
}

#[unsafe(no_mangle)]
fn unilith_plat_status(status: &Status) {
    use Status::{Failed, Log, OutOfMemory, Signal};
    let concerns_a_person = matches!(status, Failed { .. } | Log { .. } | OutOfMemory { .. } | Signal { .. });
    // Neither port can fail.
    if is_heard() {
        let _ = writeln!(Port, "{status}");
    } else if concerns_a_person {
        let _ = writeln!(Port, "unilith: {status}");
    }
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
