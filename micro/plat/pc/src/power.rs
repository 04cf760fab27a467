// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The status port, or what takes its place, and the end of the machine.

use crate::off_switch;
use crate::serial::{self, unilith_machine_write_raw};
use crate::x86::{inb, outb, outl, outw, write_bytes};
use crate::xen;
use api_boot::{EXIT_PORT, STATUS_PORT, Status};
use api_lock::SpinLock;
use core::arch::asm;
use core::fmt::Write;
use core::sync::atomic::{AtomicU8, Ordering};

/// A status line as it is written, in few pieces: on the console each piece has its own bytes around it.
struct Port {
    text: [u8; 128],
    length: usize,
    /// After a crash: nobody else writes, and locks may be held for ever.
    is_alone: bool,
}

impl Port {
    const fn new(is_alone: bool) -> Port {
        Port { text: [0; 128], length: 0, is_alone }
    }

    fn send(&mut self) {
        let bytes = &self.text[..core::mem::take(&mut self.length)];
        match self.is_alone && listener() == ON_CONSOLE {
            true => serial::write_status_raw(bytes),
            false => unilith_plat_status_write(bytes),
        }
    }
}

impl Write for Port {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        for byte in text.bytes() {
            if self.length == self.text.len() {
                self.send();
            }
            self.text[self.length] = byte;
            self.length += 1;
        }
        Ok(())
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.send();
    }
}

const UNKNOWN: u8 = 0;
const ON_PORT: u8 = 1;
const ON_CONSOLE: u8 = 2;
const UNHEARD: u8 = 3;
static LISTENER: AtomicU8 = AtomicU8::new(UNKNOWN);

/// Where a host reads status lines: at the status port, where QEMU's debug console answers its own number and an empty port
/// something else, or, if the command line said so, on the console. On a computer of its own nobody does, and the machine says
/// what a person has to know on its console.
fn listener() -> u8 {
    if LISTENER.load(Ordering::Relaxed) == UNKNOWN {
        if xen::is_on() {
            return UNHEARD;
        }
        // SAFETY: nothing else is at this port.
        let answer = unsafe { inb(STATUS_PORT) };
        let heard = u16::from(answer) == STATUS_PORT;
        LISTENER.store(if heard { ON_PORT } else { UNHEARD }, Ordering::Relaxed);
    }
    LISTENER.load(Ordering::Relaxed)
}

/// The host takes status lines from the console.
pub fn report_on_console() {
    LISTENER.store(ON_CONSOLE, Ordering::Relaxed);
    serial::share();
}

#[unsafe(no_mangle)]
fn unilith_plat_status_write(bytes: &[u8]) {
    match listener() {
        ON_CONSOLE => serial::write_status(bytes),
        // SAFETY: the status port has no other effect than that the host reads the bytes.
        ON_PORT => unsafe { write_bytes(STATUS_PORT, bytes) },
        _ => unilith_machine_write_raw(bytes.strip_prefix(b"log ").unwrap_or(bytes)),
    }
}

#[unsafe(no_mangle)]
fn unilith_plat_status(status: &Status) {
    use Status::{Failed, Log, OutOfMemory, Signal};
    let concerns_a_person = matches!(status, Failed { .. } | Log { .. } | OutOfMemory { .. } | Signal { .. });
    // None of the ports can fail.
    if listener() != UNHEARD {
        let _ = writeln!(Port::new(false), "{status}");
    } else if concerns_a_person {
        let _ = writeln!(Port::new(false), "unilith: {status}");
    }
}

#[unsafe(no_mangle)]
fn unilith_plat_power_off(status: &Status) -> ! {
    unilith_plat_status(status);
    xen::tell_end(status);
    // Xen knows of ends and of crashes. A program that ends with a code has not crashed.
    xen::shut_down(!matches!(status, Status::Exit { .. }));
    off(matches!(status, Status::Exit { code: 0 }))
}

static IS_SENT: SpinLock<Option<fn() -> bool>> = SpinLock::new(None);

/// Registers a check that crash reports wait for: the program's output goes by another device than the report. The check runs with
/// interrupts off while all other processors are stopped, so it must neither wait for a lock nor allocate.
pub fn before_reports(is_sent: fn() -> bool) {
    *IS_SENT.lock() = Some(is_sent);
}

#[unsafe(no_mangle)]
fn unilith_machine_has_sent_all() -> bool {
    let is_sent = IS_SENT.try_lock().and_then(|is_sent| *is_sent);
    is_sent.is_none_or(|is_sent| is_sent())
}

/// As [`Status::Failed`], without the heap that its `String` needs.
#[unsafe(no_mangle)]
fn unilith_machine_failed(reason: &str) -> ! {
    let mut port = Port::new(true);
    let _ = write!(port, "failed ");
    for part in reason.split('\n') {
        let _ = write!(port, "{part} ");
    }
    let _ = writeln!(port);
    drop(port);
    xen::shut_down(true);
    off(false)
}

/// QEMU's power-management port on q35, and the value for "soft off" (ACPI 4.8.3.2.1, SLP_EN with SLP_TYP 0).
const ACPI_CONTROL: u16 = 0x604;
const SOFT_OFF: u16 = 0x2000;
/// Cloud Hypervisor's sleep control register (ACPI 4.8.3.7), and the value for "soft off" (SLP_EN with SLP_TYP 5). It takes the
/// keyboard controller's reset line for a reboot.
const SLEEP_CONTROL: u16 = 0x600;
const SLEEP_OFF: u8 = 0x34;

fn off(success: bool) -> ! {
    serial::flush();
    // SAFETY: each of these ends the machine or does nothing: QEMU's exit device, ACPI, the keyboard controller's
    // reset line (which Firecracker takes as the end), and a triple fault by an interrupt without a table. Cloud Hypervisor's
    // comes before ACPI's port, which it has as well, and of whose width it would complain.
    unsafe {
        asm!("cli");
        outl(EXIT_PORT, u32::from(!success));
        off_switch::off();
        // Elsewhere something else may be at this port.
        if listener() == ON_CONSOLE {
            outb(SLEEP_CONTROL, SLEEP_OFF);
        }
        outw(ACPI_CONTROL, SOFT_OFF);
        outb(0x64, 0xfe);
        // Firecracker sees to it soon, and would take a triple fault until then for a failure.
        while listener() == ON_CONSOLE {
            asm!("hlt");
        }
        asm!("lidt [{}]", "ud2", in(reg) &[0u64; 2], options(noreturn));
    }
}
