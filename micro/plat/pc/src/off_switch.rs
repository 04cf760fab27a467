// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A computer of its own is switched off by ACPI, and its power button asks for the program's end, as a host does elsewhere.

use crate::acpi_power::{self, Button, IS_OURS, Off, PRESSED};
use crate::x86::{inw, outb, outw};
use crate::{apic, interrupt, paging, serial};
use api_lock::SpinLock;
use core::hint::spin_loop;
use core::sync::atomic::{AtomicU32, Ordering};

/// How often it is looked whether firmware has handed the hardware over: about 300 ms, a microsecond a look.
const LOOKS: u32 = 300_000;

static OFF: SpinLock<Option<Off>> = SpinLock::new(None);
/// Set before the button's interrupt can come: its two registers, the enable register in the upper half.
static BUTTON: AtomicU32 = AtomicU32::new(0);

/// Reads what firmware says, by ACPI's root pointer or without. With the heap, and before other processors run.
pub fn begin(rsdp: u64) {
    match acpi_power::find(&paging::Mapped, rsdp) {
        Ok(Some(power)) => {
            *OFF.lock() = Some(power.off);
            if let Some(button) = power.button {
                listen(&button);
            }
        }
        Ok(None) => log::info!("ACPI does not say how this computer is switched off"),
        Err(reason) => log::warn!("{reason}: the computer is not switched off by ACPI"),
    }
}

fn listen(button: &Button) {
    if !apic::has_line(button.line) {
        return log::warn!("the power button has an interrupt that no I/O APIC has");
    }
    // SAFETY: firmware says that ACPI's registers are at these ports. The status register's bits are cleared by writing them.
    unsafe {
        if let Some((port, value)) = button.hand_over
            && inw(button.control) & IS_OURS == 0
        {
            outb(port, value);
            let is_ours = (0..LOOKS).any(|_| {
                spin_loop();
                inw(button.control) & IS_OURS != 0
            });
            if !is_ours {
                return log::warn!(
                    "firmware does not hand ACPI's hardware over: the power button is its own"
                );
            }
        }
        BUTTON.store(u32::from(button.enable) << 16 | u32::from(button.status), Ordering::Release);
        outw(button.status, PRESSED);
        outw(button.enable, PRESSED);
    }
    match interrupt::allocate_vector(pressed, 0) {
        // By its edge: a line that something else holds down does not interrupt for ever.
        Ok(vector) => apic::route_edge(button.line, vector, button.is_low),
        Err(_) => log::warn!("there is no interrupt vector for the power button"),
    }
}

/// Interrupt context.
fn pressed(_: usize) {
    let status = BUTTON.load(Ordering::Acquire) as u16;
    // SAFETY: as in `listen`.
    let is_pressed = unsafe {
        let told = inw(status);
        outw(status, told & PRESSED);
        told & PRESSED != 0
    };
    if is_pressed {
        serial::request_end();
    }
}

/// Switches the computer off; returns where ACPI does not say how, or it did not do it. Interrupts are off, and locks may be held for
/// ever.
pub fn off() {
    let Some(off) = OFF.try_lock().and_then(|off| *off) else { return };
    // SAFETY: as in `listen`; the computer is to end.
    unsafe {
        match off {
            Off::Control(registers) => {
                for (port, new) in registers.into_iter().filter(|(port, _)| *port != 0) {
                    outw(port, Off::value(inw(port), new));
                }
            }
            Off::Sleep(port, value) => outb(port, value),
        }
    }
    (0..LOOKS).for_each(|_| spin_loop());
}
