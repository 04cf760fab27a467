// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's log: a status line each, with the seconds since boot as Linux prints them. The console is the program's.

use abi::setting::PRINTK;
use api_lock::SpinLock;
use api_sched::DeferredWorkSlot;
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

/// Warnings of one place in the source that are written in a period, as Linux' printk_ratelimit() has it: what a program brings
/// about again and again does not fill the host's log.
const BURST: u32 = 10;
const PERIOD_NS: u64 = 5_000_000_000;
/// Places that are remembered; the one that was there longest makes way for another.
const PLACES: usize = 16;

/// A place that warned.
#[derive(Clone, Copy)]
struct Place {
    file: Option<&'static str>,
    line: Option<u32>,
    began: u64,
    written: u32,
    left_out: u32,
}

struct Limit {
    places: [Place; PLACES],
    next: usize,
}

impl Limit {
    const fn new() -> Limit {
        let nowhere = Place { file: None, line: None, began: 0, written: 0, left_out: 0 };
        Limit { places: [nowhere; PLACES], next: 0 }
    }

    /// How many were left out before this one; `None`: it is left out as well.
    fn passes(&mut self, file: Option<&'static str>, line: Option<u32>, now: u64) -> Option<u32> {
        let known = self.places.iter_mut().find(|p| p.written > 0 && p.line == line && p.file == file);
        let Some(place) = known else {
            self.places[self.next] = Place { file, line, began: now, written: 1, left_out: 0 };
            self.next = (self.next + 1) % PLACES;
            return Some(0);
        };
        if now.saturating_sub(place.began) >= PERIOD_NS {
            (place.began, place.written) = (now, 0);
        }
        if place.written >= BURST {
            place.left_out = place.left_out.saturating_add(1);
            return None;
        }
        place.written += 1;
        Some(core::mem::take(&mut place.left_out))
    }
}

struct Logger(SpinLock<(Port, Limit)>);

/// Wakes who reads the log.
static WAKE: DeferredWorkSlot = DeferredWorkSlot::new();

static LOGGER: Logger = Logger(SpinLock::new((Port::new(), Limit::new())));

/// Linux' number of a level (KERN_ERR, KERN_WARNING, KERN_INFO).
fn number_of(level: Level) -> u16 {
    match level {
        Level::Error => 3,
        Level::Warn => 4,
        _ => 6,
    }
}

impl Log for Logger {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    /// Adds the record to the log buffer, and writes it to the host if kernel.printk lets its level through.
    fn log(&self, record: &Record<'_>) {
        // An interrupt handler or a panic inside the logger itself would find it taken: better lost than stuck.
        let Some(mut logger) = self.0.try_lock() else { return };
        let (port, limit) = &mut *logger;
        let now = api_plat::now_ns();
        let left_out = match record.level() {
            Level::Warn => match limit.passes(record.file_static(), record.line(), now) {
                Some(count) => LeftOut(count),
                None => return,
            },
            _ => LeftOut(0),
        };
        let number = number_of(record.level());
        kmsg::record(number, now, format_args!("{}{left_out}", record.args()));
        if u64::from(number) >= PRINTK[0].get() {
            return;
        }
        // Writing to the buffer cannot fail.
        let _ =
            write!(port, "{WORD}{}{}{}{left_out}", kmsg::Stamp(now), kmsg::level_word(number), record.args());
        port.flush();
        api_plat::status_write(b"\n");
    }

    fn flush(&self) {}
}

/// How many lines the rate limit suppressed before this one.
struct LeftOut(u32);

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            count => write!(f, " ({count} like this were left out)"),
        }
    }
}

/// Starts logging, with the heap, at the level the host asked for; `warn` without a word.
pub fn start(level: Option<&str>) {
    let level = match level {
        Some("off") => LevelFilter::Off,
        Some("error") => LevelFilter::Error,
        Some("info") => LevelFilter::Info,
        Some("debug") => LevelFilter::Debug,
        Some("trace") => LevelFilter::Trace,
        _ => LevelFilter::Warn,
    };
    WAKE.set(api_sched::add_deferred_work(kmsg::wake));
    kmsg::start(|| WAKE.raise());
    // Fails only when called twice.
    if log::set_logger(&LOGGER).is_ok() {
        log::set_max_level(level);
    }
}
