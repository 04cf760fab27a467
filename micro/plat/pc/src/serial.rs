// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The first serial port (16550, COM1): console of the machine.

use crate::x86::{inb, outb};
use api_lock::SpinLock;

const PORT: u16 = 0x3f8;
const DATA: u16 = PORT;
const FIFO_CONTROL: u16 = PORT + 2;
const LINE_STATUS: u16 = PORT + 5;
const DATA_READY: u8 = 1;
const TRANSMITTER_EMPTY: u8 = 1 << 5;
/// Bytes the transmit FIFO takes when it is empty.
const FIFO: usize = 16;

/// Writes do not mix.
static WRITER: SpinLock<()> = SpinLock::new(());

/// Turns the FIFOs on.
pub fn initialize() {
    // SAFETY: FIFOs on and emptied; the port is the console's alone.
    unsafe { outb(FIFO_CONTROL, 0x07) };
}

/// Writes without the lock: for crash reports, when nothing else runs any more.
pub fn write_raw(bytes: &[u8]) {
    for chunk in bytes.chunks(FIFO) {
        // SAFETY: the port is the console's alone. QEMU takes bytes as fast as the host's end of the port does, so
        // this waits only for a reader that is behind.
        unsafe {
            while inb(LINE_STATUS) & TRANSMITTER_EMPTY == 0 {
                core::hint::spin_loop();
            }
            for byte in chunk {
                outb(DATA, *byte);
            }
        }
    }
}

#[unsafe(no_mangle)]
fn unilith_plat_console_write(bytes: &[u8]) {
    let _writer = WRITER.lock();
    write_raw(bytes);
}

#[unsafe(no_mangle)]
fn unilith_plat_console_read(to: &mut [u8]) -> usize {
    let mut n = 0;
    // SAFETY: the port is the console's alone.
    unsafe {
        while n < to.len() && inb(LINE_STATUS) & DATA_READY != 0 {
            to[n] = inb(DATA);
            n += 1;
        }
    }
    n
}

/// `core::fmt` to the console, without the lock.
pub struct Raw;

impl core::fmt::Write for Raw {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        write_raw(text.as_bytes());
        Ok(())
    }
}
