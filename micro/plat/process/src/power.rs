// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The status descriptor, and the end of the machine.

use crate::host;
use api_boot::Status;
use core::fmt::Write;
use core::sync::atomic::{AtomicI32, Ordering};

static STATUS: AtomicI32 = AtomicI32::new(-1);
/// Standard error: for what goes wrong where nobody reads the status.
const ERRORS: i32 = 2;

/// Status lines go there.
pub fn set_status(fd: i32) {
    STATUS.store(fd, Ordering::Relaxed);
}

/// The descriptor of status lines.
pub fn status() -> i32 {
    STATUS.load(Ordering::Relaxed)
}

/// One status line in one write, so that lines never mix.
struct Line {
    text: [u8; 1024],
    length: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let room = self.text.len() - 1 - self.length;
        let n = text.len().min(room);
        self.text[self.length..self.length + n].copy_from_slice(&text.as_bytes()[..n]);
        self.length += n;
        Ok(())
    }
}

fn line(text: core::fmt::Arguments<'_>) {
    let mut line = Line { text: [0; 1024], length: 0 };
    // Writing to the buffer cannot fail; what is too long is cut.
    let _ = line.write_fmt(text);
    line.text[line.length] = b'\n';
    unilith_plat_status_write(&line.text[..line.length + 1]);
}

#[unsafe(no_mangle)]
fn unilith_plat_status_write(bytes: &[u8]) {
    let fd = status();
    if fd >= 0 {
        host::write_all(fd, bytes);
    }
}

#[unsafe(no_mangle)]
fn unilith_plat_status(status: &Status) {
    line(format_args!("{status}"));
}

/// Bits that a shell adds to the number of the signal that ended a program.
const SIGNALLED: u8 = 128;
const SIGKILL: u8 = 9;

#[unsafe(no_mangle)]
fn unilith_plat_power_off(status: &Status) -> ! {
    let count = crate::trapped_calls();
    if count > 0 {
        unilith_plat_status(&Status::Trapped { count });
    }
    unilith_plat_status(status);
    host::exit(match status {
        Status::Exit { code } => *code,
        Status::Signal { number } => SIGNALLED + (*number & 127),
        Status::OutOfMemory { .. } => SIGNALLED + SIGKILL,
        _ => 1,
    })
}

#[unsafe(no_mangle)]
fn unilith_machine_failed(reason: &str) -> ! {
    if status() < 0 {
        for part in ["unilith: ", reason, "\n"] {
            host::write_all(ERRORS, part.as_bytes());
        }
    }
    let mut text = Line { text: [0; 1024], length: 0 };
    for part in reason.split('\n') {
        let _ = write!(text, "{part} ");
    }
    let reason = core::str::from_utf8(&text.text[..text.length]).unwrap_or("kernel fault");
    line(format_args!("failed {reason}"));
    host::exit(1)
}

/// Everything of the report is on its way out: no signal may come in between.
#[unsafe(no_mangle)]
fn unilith_machine_stop_interrupts() {
    crate::idle::disarm();
}

/// They are in the program or wait for the kernel's lock, which the reporter holds or does not care for: the end of the process ends
/// them.
#[unsafe(no_mangle)]
fn unilith_machine_stop_others() -> u32 {
    0
}

/// The host takes what is written at once.
#[unsafe(no_mangle)]
fn unilith_machine_has_sent_all() -> bool {
    true
}
