// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's log: a status line each, with the seconds since boot as Linux prints them. The console is the program's.

use api_lock::SpinLock;
use core::fmt::{self, Write};
use log::{Level, LevelFilter, Log, Metadata, Record};

/// The status port as a text stream, a line at a time.
pub struct Port {
    buffer: [u8; 256],
    filled: usize,
}

impl Port {
    pub const fn new() -> Port {
        Port { buffer: [0; 256], filled: 0 }
    }

    pub fn flush(&mut self) {
        let bytes = &self.buffer[..self.filled];
        api_plat::status_write(bytes);
        #[cfg(feature = "overlay")]
        overlay_commands::journal::record(bytes.strip_prefix(WORD.as_bytes()).unwrap_or(bytes));
        self.filled = 0;
    }
}

impl Write for Port {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            if self.filled == self.buffer.len() {
                self.flush();
            }
            // A status line is one line.
            self.buffer[self.filled] = if byte == b'\n' { b' ' } else { byte };
            self.filled += 1;
        }
        Ok(())
    }
}

/// What a line of the log begins with on the status port.
const WORD: &str = "log ";

struct Logger(SpinLock<Port>);

static LOGGER: Logger = Logger(SpinLock::new(Port::new()));

impl Log for Logger {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        // An interrupt handler or a panic inside the logger itself would find it taken: better lost than stuck.
        let Some(mut port) = self.0.try_lock() else { return };
        let now = api_plat::now_ns();
        let (seconds, micros) = (now / 1_000_000_000, now / 1000 % 1_000_000);
        let level = match record.level() {
            Level::Error => "error: ",
            Level::Warn => "warning: ",
            _ => "",
        };
        // Writing to the buffer cannot fail.
        let _ = write!(port, "{WORD}[{seconds:5}.{micros:06}] {level}{}", record.args());
        port.flush();
        api_plat::status_write(b"\n");
        #[cfg(feature = "overlay")]
        overlay_commands::journal::record(b"\n");
    }

    fn flush(&self) {}
}

/// Starts logging at the level the host asked for; `warn` without a word.
pub fn start(level: Option<&str>) {
    let level = match level {
        Some("off") => LevelFilter::Off,
        Some("error") => LevelFilter::Error,
        Some("info") => LevelFilter::Info,
        Some("debug") => LevelFilter::Debug,
        Some("trace") => LevelFilter::Trace,
        _ => LevelFilter::Warn,
    };
    // Fails only when called twice.
    if log::set_logger(&LOGGER).is_ok() {
        log::set_max_level(level);
    }
}
