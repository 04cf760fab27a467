// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The first serial port (16550, COM1): console of the machine.
//!
//! Input stays in the port until it is asked for, so a program that does not read holds its sender back. Until then
//! the port's receive interrupt is off, and a break still interrupts.
//!
//! What is written is on the screen as well, where there is one (`screen.rs`). A computer without the port has the screen alone.
//!
//! On Xen the console's ring takes its place, and there are no ports.
//!
//! Where there is no second port for status lines they go over this one ([`share`]), as `api-boot` says. A monitor of that kind
//! sends no break either: what it can send is Ctrl-Alt-Del, and that counts as one ([`keyboard`]).

use crate::interrupt;
use crate::screen;
use crate::windows::Line;
use crate::x86::{inb, outb};
use crate::xen;
use api_boot::{STATUS_BEGIN, STATUS_END, encode_port};
use api_lock::SpinLock;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

const PORT: u16 = 0x3f8;
const DATA: u16 = PORT;
const INTERRUPTS: u16 = PORT + 1;
const FIFO_CONTROL: u16 = PORT + 2;
const MODEM_CONTROL: u16 = PORT + 4;
const LINE_STATUS: u16 = PORT + 5;
/// Its input of the I/O APIC.
const LINE: Line = Line(4);

// Line status.
const DATA_READY: u8 = 1;
const BREAK: u8 = 1 << 4;
const TRANSMITTER_EMPTY: u8 = 1 << 5;
/// Its FIFO and the byte that is on its way as well.
const ALL_SENT: u8 = 1 << 6;
// Interrupts.
const RECEIVED: u8 = 1;
const LINE_CHANGED: u8 = 1 << 2;
/// DTR, RTS, and OUT2, which connects the interrupt.
const CONNECTED: u8 = 0x0b;
/// Bytes the transmit FIFO takes when it is empty.
const FIFO: usize = 16;

/// Writes do not mix.
static WRITER: SpinLock<()> = SpinLock::new(());
static HANDLER: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
static BROKE: AtomicBool = AtomicBool::new(false);
/// Status lines go over this port as well.
static IS_SHARED: AtomicBool = AtomicBool::new(false);
/// Breaks whose NUL byte is still among the input.
static BREAK_BYTES: AtomicU32 = AtomicU32::new(0);

/// A byte that came before the FIFOs were on, with `EARLY_VALID`; turning them on would lose it.
static EARLY: AtomicU32 = AtomicU32::new(0);
const EARLY_VALID: u32 = 0x100;

/// No port answers at its address.
static IS_MISSING: AtomicBool = AtomicBool::new(false);

/// There are ports of a serial line: on Xen there are none, and on many computers nobody answers.
fn is_there() -> bool {
    !xen::is_on() && !IS_MISSING.load(Ordering::Relaxed)
}

/// Nobody is at the port: its register of interrupts does not keep the four bits that it has. Asked only where the line's status is
/// what an empty port answers, because each access is an exit to a monitor.
fn nobody_answers() -> bool {
    // SAFETY: the port is the console's alone, and its interrupts are off in the processor until they are wanted.
    unsafe {
        if !matches!(inb(LINE_STATUS), 0 | 0xff) {
            return false;
        }
        let keeps = |bits: u8| {
            outb(INTERRUPTS, bits);
            inb(INTERRUPTS) & 0x0f == bits
        };
        !(keeps(0x0f) && keeps(0))
    }
}

/// Turns the FIFOs on, with an interrupt from the first byte on.
pub fn initialize() {
    if xen::is_on() {
        return;
    }
    if nobody_answers() {
        return IS_MISSING.store(true, Ordering::Relaxed);
    }
    if line_status() & DATA_READY != 0 {
        // SAFETY: the port is the console's alone.
        EARLY.store(u32::from(unsafe { inb(DATA) }) | EARLY_VALID, Ordering::Relaxed);
    }
    // SAFETY: as above. Nothing is lost unless the next byte comes between the two instructions.
    unsafe { outb(FIFO_CONTROL, 0x01) };
}

/// Reading the register forgets a break, so every reader goes through here.
fn line_status() -> u8 {
    // SAFETY: the port is the console's alone.
    let status = unsafe { inb(LINE_STATUS) };
    if status & BREAK != 0 {
        BREAK_BYTES.fetch_add(1, Ordering::Relaxed);
        BROKE.store(true, Ordering::Release);
        call_handler();
    }
    status
}

fn call_handler() {
    let handler = HANDLER.load(Ordering::Acquire);
    if !handler.is_null() {
        // SAFETY: only `unilith_plat_on_console` stores there, and it stores a `fn()`.
        let handler: fn() = unsafe { core::mem::transmute(handler) };
        handler();
    }
}

/// The port carries two streams from now on.
pub fn share() {
    IS_SHARED.store(true, Ordering::Release);
}

fn send(bytes: &[u8]) {
    if let Some(console) = xen::console() {
        return console.write(bytes);
    }
    if !is_there() {
        return;
    }
    for chunk in bytes.chunks(FIFO) {
        // Monitors take bytes as fast as the host's end of the port does, so this waits only for a reader that is behind.
        while line_status() & TRANSMITTER_EMPTY == 0 {
            core::hint::spin_loop();
        }
        for byte in chunk {
            // SAFETY: the port is the console's alone.
            unsafe { outb(DATA, *byte) };
        }
    }
}

/// Waits until all is sent: what is still in the port when the machine ends is lost. A host whose reader is behind takes its time.
pub fn flush() {
    if is_there() {
        while line_status() & ALL_SENT == 0 {
            core::hint::spin_loop();
        }
    }
}

/// Writes without the lock: for crash reports, when nothing else runs any more.
#[unsafe(no_mangle)]
pub fn unilith_machine_write_raw(bytes: &[u8]) {
    screen::write(bytes);
    if IS_SHARED.load(Ordering::Acquire) { encode_port(bytes, send) } else { send(bytes) }
}

#[unsafe(no_mangle)]
fn unilith_plat_console_write(bytes: &[u8]) {
    let _writer = WRITER.lock();
    unilith_machine_write_raw(bytes);
}

/// Writes bytes of status lines to a port that is shared.
pub fn write_status(bytes: &[u8]) {
    let _writer = WRITER.lock();
    write_status_raw(bytes);
}

/// The same without the lock: another processor may hold it that was stopped.
pub fn write_status_raw(bytes: &[u8]) {
    send(&STATUS_BEGIN);
    encode_port(bytes, send);
    send(&STATUS_END);
}

#[unsafe(no_mangle)]
fn unilith_plat_console_read(to: &mut [u8]) -> usize {
    if let Some(console) = xen::console() {
        return console.read(to);
    }
    if !is_there() {
        return 0;
    }
    let mut n = 0;
    let early = EARLY.load(Ordering::Relaxed);
    if early != 0 && !to.is_empty() {
        EARLY.store(0, Ordering::Relaxed);
        to[0] = early as u8;
        n = 1;
    }
    while n < to.len() && line_status() & DATA_READY != 0 {
        // SAFETY: the port is the console's alone.
        let byte = unsafe { inb(DATA) };
        // A break puts a NUL byte among the input.
        if byte == 0 && BREAK_BYTES.load(Ordering::Relaxed) > 0 {
            BREAK_BYTES.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        to[n] = byte;
        n += 1;
    }
    if n == 0 && !to.is_empty() && !HANDLER.load(Ordering::Relaxed).is_null() {
        // SAFETY: as above. What came since the last look raises the interrupt at once.
        unsafe { outb(INTERRUPTS, RECEIVED | LINE_CHANGED) };
        // But not Firecracker's: its port interrupts for what comes from now on.
        if IS_SHARED.load(Ordering::Acquire) && line_status() & DATA_READY != 0 {
            // SAFETY: as above.
            unsafe { outb(INTERRUPTS, LINE_CHANGED) };
            return unilith_plat_console_read(to);
        }
    }
    n
}

#[unsafe(no_mangle)]
fn unilith_plat_on_console(handler: fn()) {
    let first = HANDLER.swap(handler as *mut (), Ordering::AcqRel).is_null();
    if let Some(console) = xen::console() {
        if first {
            console.listen(|_| call_handler());
        }
        // What came before may not raise the interrupt.
        return handler();
    }
    if !is_there() {
        return;
    }
    if first && let Err(e) = interrupt::route(LINE, interrupted, 0) {
        log::error!("console: no interrupt vector: {e:?}");
    }
    // SAFETY: as above.
    unsafe {
        outb(MODEM_CONTROL, CONNECTED);
        outb(INTERRUPTS, RECEIVED | LINE_CHANGED);
    }
    if IS_SHARED.load(Ordering::Acquire) && first {
        keyboard::start();
    }
    // What came before the interrupt was on may not raise it.
    if EARLY.load(Ordering::Relaxed) != 0 || IS_SHARED.load(Ordering::Acquire) {
        handler();
    }
}

/// Nobody hangs up on a serial port.
#[unsafe(no_mangle)]
fn unilith_plat_console_ended() -> bool {
    false
}

#[unsafe(no_mangle)]
fn unilith_plat_console_break() -> bool {
    BROKE.swap(false, Ordering::Acquire)
}

/// The host asks for the end by another way than a break.
pub fn request_end() {
    BROKE.store(true, Ordering::Release);
    call_handler();
}

/// Interrupt context. The receive interrupt goes off until the input was read: the line is free for a break then.
fn interrupted(_: usize) {
    if line_status() & DATA_READY != 0 {
        // SAFETY: as above.
        unsafe { outb(INTERRUPTS, LINE_CHANGED) };
        call_handler();
    }
}

/// The keyboard controller (i8042): a monitor without breaks sends Ctrl-Alt-Del.
mod keyboard {
    use crate::interrupt;
    use crate::windows::Line;
    use crate::x86::inb;

    const DATA: u16 = 0x60;
    const STATUS: u16 = 0x64;
    const OUTPUT_FULL: u8 = 1;
    /// Its input of the I/O APIC.
    const LINE: Line = Line(1);
    /// The last byte of Delete in the scan code set that PS/2 keyboards have (set 2), in which no other key that Firecracker
    /// sends has it.
    const DELETE: u8 = 0x71;
    /// What the controller keeps; one that always has more is broken.
    const MAX_BYTES: usize = 16;

    pub(super) fn start() {
        if let Err(e) = interrupt::route(LINE, pressed, 0) {
            log::error!("keyboard: no interrupt vector, so the host cannot ask for the end: {e:?}");
        }
    }

    fn pressed(_: usize) {
        for _ in 0..MAX_BYTES {
            // SAFETY: the ports are the controller's, and nothing else reads them.
            let byte = unsafe {
                if inb(STATUS) & OUTPUT_FULL == 0 {
                    return;
                }
                inb(DATA)
            };
            if byte == DELETE {
                super::request_end();
            }
        }
    }
}
