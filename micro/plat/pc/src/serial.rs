// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The first serial port (16550, COM1): console of the machine.
//!
//! Input stays in the port until it is asked for, so a program that does not read holds its sender back. Until then
//! the port's receive interrupt is off, and a break still interrupts.
//!
//! Output goes to the port as long as that takes it, which a monitor's does until the host's reader is behind. What is left waits here
//! ([`Waiting`]) for the port's transmit interrupt, and when that is full whoever writes waits: nobody else is held up.
//!
//! What is written is on the screen as well, where there is one (`screen.rs`). A computer without the port has the screen alone.
//!
//! On Xen the console's ring takes its place, and there are no ports.
//!
//! Where there is no second port for status lines they go over this one ([`share`]), as `api-boot` says. A monitor of that kind
//! sends no break either: what it can send is Ctrl-Alt-Del, and that counts as one ([`keyboard`]).

mod waiting;

use crate::interrupt;
use crate::screen;
use crate::windows::Line;
use crate::x86::{inb, outb};
use crate::xen;
use abi::errno::{EAGAIN, EINVAL};
use api_boot::{STATUS_BEGIN, STATUS_END, encode_port};
use api_lock::SpinLock;
use api_plat::CONSOLE_PIECE;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, Ordering};
use waiting::Waiting;

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
const TRANSMITTED: u8 = 1 << 1;
const LINE_CHANGED: u8 = 1 << 2;
/// DTR, RTS, and OUT2, which connects the interrupt.
const CONNECTED: u8 = 0x0b;
/// Bytes the transmit FIFO takes when it is empty.
const FIFO: usize = 16;

/// Writes do not mix, and one at a time hands on what waits. Held for one filling of the FIFO.
static WRITER: SpinLock<()> = SpinLock::new(());
/// What the port has not taken yet. A program's byte may take two on a shared port.
static WAITING: Waiting<{ (2 * CONSOLE_PIECE).next_power_of_two() }> = Waiting::new();
/// Interrupts that are to be on.
static INTERRUPTS_ON: AtomicU8 = AtomicU8::new(0);
/// One at a time turns interrupts on.
static CHANGES: SpinLock<()> = SpinLock::new(());
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

/// Turns interrupts on. An interrupt that comes between may turn off in vain what it has the console looked after for; it comes again then.
fn turn_on(interrupts: u8) {
    let _one = CHANGES.lock();
    let on = INTERRUPTS_ON.fetch_or(interrupts, Ordering::Relaxed) | interrupts;
    // SAFETY: the port is the console's alone.
    unsafe { outb(INTERRUPTS, on) };
}

/// Turns interrupts off; any context. What another processor turns on meanwhile may go off with them: whoever calls this has the console
/// looked after, and that turns on what is needed.
fn turn_off(interrupts: u8) {
    let on = INTERRUPTS_ON.fetch_and(!interrupts, Ordering::Relaxed) & !interrupts;
    // SAFETY: as above.
    unsafe { outb(INTERRUPTS, on) };
}

/// What one look at the port came to.
enum Progress {
    NothingWaits,
    Sent,
    PortIsFull,
}

/// Hands the port as much of what waits as it takes at once.
fn fill_port() -> Progress {
    if WAITING.is_empty() {
        return Progress::NothingWaits;
    }
    if line_status() & TRANSMITTER_EMPTY == 0 {
        return Progress::PortIsFull;
    }
    let mut bytes = [0; FIFO];
    for byte in WAITING.take(&mut bytes) {
        // SAFETY: the port is the console's alone.
        unsafe { outb(DATA, *byte) };
    }
    Progress::Sent
}

/// Hands on what waits until the port is full, for which its interrupt is then on. Before there is a handler it waits for the port.
fn hand_on() {
    loop {
        let _writer = WRITER.lock();
        match fill_port() {
            Progress::NothingWaits => return,
            Progress::Sent => {}
            Progress::PortIsFull if HANDLER.load(Ordering::Relaxed).is_null() => core::hint::spin_loop(),
            // If it has become empty since, it interrupts at once.
            Progress::PortIsFull => return turn_on(TRANSMITTED),
        }
    }
}

/// Waits until the port has taken all that waits, whoever reads it.
fn hand_on_all() {
    while !matches!(fill_port(), Progress::NothingWaits) {
        core::hint::spin_loop();
    }
}

/// Writes behind all that waits, and waits for the port.
fn send(bytes: &[u8]) {
    if let Some(console) = xen::console() {
        return console.write(bytes);
    }
    if !is_there() {
        return;
    }
    for piece in bytes.chunks(FIFO) {
        hand_on_all();
        WAITING.add(piece);
    }
    hand_on_all();
}

/// Waits until all is sent: what is still in the port when the machine ends is lost. A host whose reader is behind takes its time.
pub fn flush() {
    if is_there() {
        hand_on_all();
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

/// Adds to what waits, where there is room for all of it.
fn try_add(bytes: &[u8]) -> bool {
    let _writer = WRITER.lock();
    let is_shared = IS_SHARED.load(Ordering::Acquire);
    if WAITING.room() < bytes.len() * (1 + usize::from(is_shared)) {
        return false;
    }
    screen::write(bytes);
    if is_shared {
        encode_port(bytes, |piece| WAITING.add(piece))
    } else {
        WAITING.add(bytes)
    }
    true
}

#[unsafe(no_mangle)]
fn unilith_plat_console_write(bytes: &[u8]) -> abi::Result<()> {
    if bytes.len() > CONSOLE_PIECE {
        return Err(EINVAL);
    }
    if let Some(console) = xen::console() {
        let _writer = WRITER.lock();
        if console.room() < bytes.len() {
            return Err(EAGAIN);
        }
        screen::write(bytes);
        console.write(bytes);
        return Ok(());
    }
    if !is_there() {
        let _writer = WRITER.lock();
        screen::write(bytes);
        return Ok(());
    }
    if !try_add(bytes) {
        hand_on();
        if !try_add(bytes) {
            return Err(EAGAIN);
        }
    }
    hand_on();
    Ok(())
}

#[unsafe(no_mangle)]
fn unilith_plat_console_has_room() -> bool {
    if let Some(console) = xen::console() {
        let _writer = WRITER.lock();
        return console.room() >= CONSOLE_PIECE;
    }
    if !is_there() {
        return true;
    }
    hand_on();
    WAITING.room() >= 2 * CONSOLE_PIECE
}

#[unsafe(no_mangle)]
fn unilith_plat_console_is_drained() -> bool {
    if let Some(console) = xen::console() {
        return console.is_drained();
    }
    !is_there() || WAITING.is_empty() && line_status() & ALL_SENT != 0
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
        // What came since the last look raises the interrupt at once.
        turn_on(RECEIVED | LINE_CHANGED);
        // But not Firecracker's: its port interrupts for what comes from now on.
        if IS_SHARED.load(Ordering::Acquire) && line_status() & DATA_READY != 0 {
            turn_off(RECEIVED);
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
    unsafe { outb(MODEM_CONTROL, CONNECTED) };
    turn_on(RECEIVED | LINE_CHANGED);
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

/// Interrupt context. The receive interrupt goes off until the input was read, and the transmit interrupt until the port is full again: the
/// line is free for a break then.
fn interrupted(_: usize) {
    let status = line_status();
    let mut off = 0;
    if status & TRANSMITTER_EMPTY != 0 {
        off |= TRANSMITTED;
    }
    if status & DATA_READY != 0 {
        off |= RECEIVED;
    }
    let was_wanted = INTERRUPTS_ON.load(Ordering::Relaxed) & off & TRANSMITTED != 0;
    turn_off(off);
    if was_wanted || status & DATA_READY != 0 {
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
