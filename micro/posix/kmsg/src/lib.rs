// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's log buffer (Linux' printk ring buffer): records with a sequence number, a priority and a time stamp.
//!
//! Programs read it in two ways. syslog(2) and /proc/kmsg share one read position ([`syslog`]); each open file of /dev/kmsg has its own
//! ([`device`], Documentation/ABI/testing/dev-kmsg). The overlay's `log` command reads records by number ([`at`]).
//!
//! One spin lock guards the buffer and is held while a record is copied. The logger only tries to take the lock and never allocates, so it may
//! be called from interrupt handlers.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod device;
pub mod syslog;

pub use device::device;

use abi::{Events, Result, errno::ENOMEM, setting::Setting};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_lock::SpinLock;
use api_sched::WaitQueue;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU64, Ordering};

/// kernel.dmesg_restrict: 1 lets only threads with CAP_SYSLOG read the log.
pub static RESTRICTED: [Setting; 1] = [Setting::new(0, 0, 1)];

/// Size of the buffer in bytes; record headers count.
pub const BUFFER_SIZE: usize = 16 << 10;
/// Longest text of a record in bytes. Longer texts are truncated.
pub const MAX_TEXT: usize = 1000;
/// A record's header: length of the text, priority, time in nanoseconds since boot.
const HEADER: usize = 2 + 2 + 8;

/// Facility LOG_USER (syslog(3)). Programs cannot log with the kernel's facility, 0.
const USER: u16 = 1;

struct Log {
    bytes: VecDeque<u8>,
    /// Sequence numbers of the oldest record in the buffer and of the next record to be added.
    first: u64,
    next: u64,
    on_record: fn(),
}

static LOG: SpinLock<Log> =
    SpinLock::new(Log { bytes: VecDeque::new(), first: 0, next: 0, on_record: || {} });
/// SYSLOG_ACTION_CLEAR hides the records before this sequence number.
static CLEARED: AtomicU64 = AtomicU64::new(0);
/// Wakes readers (IN) when a record was added.
static CHANGED: WaitQueue = WaitQueue::new();

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Sequence number.
    pub number: u64,
    /// Eight times the facility, and the level (syslog(3)).
    pub priority: u16,
    /// Since boot.
    pub time_ns: u64,
    pub text: Vec<u8>,
}

/// Allocates the buffer. Records added earlier are lost. The log calls `on_record` after each record, in the context of the caller;
/// `on_record` schedules deferred work that calls [`wake`].
pub fn start(on_record: fn()) {
    let mut log = LOG.lock();
    // If the allocation fails, the buffer stays empty and records are dropped.
    if log.bytes.reserve_fallibly(BUFFER_SIZE).is_ok() {
        log.on_record = on_record;
    }
}

/// Wakes all readers that wait for records. For thread context.
pub fn wake() {
    CHANGED.wake_all(Events::IN);
}

/// The wait queue of readers; each new record wakes it (IN).
pub fn changed() -> &'static WaitQueue {
    &CHANGED
}

/// Adds a record; callable from any context. The record is dropped if the interrupted code holds the lock.
pub fn record(priority: u16, time_ns: u64, text: fmt::Arguments<'_>) {
    let Some(mut log) = LOG.try_lock() else { return };
    if log.bytes.capacity() < BUFFER_SIZE {
        return;
    }
    log.add(priority, time_ns, text);
    let on_record = log.on_record;
    drop(log);
    on_record();
}

/// Appends text to the newest record, up to [`MAX_TEXT`] bytes.
struct Text<'a> {
    bytes: &'a mut VecDeque<u8>,
    length: usize,
}

impl Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let taken = text.len().min(MAX_TEXT - self.length);
        self.bytes.extend(&text.as_bytes()[..taken]);
        self.length += taken;
        Ok(())
    }
}

impl Log {
    fn add(&mut self, priority: u16, time_ns: u64, text: fmt::Arguments<'_>) {
        while self.bytes.len() + HEADER + MAX_TEXT > BUFFER_SIZE {
            let length = self.word(0);
            self.bytes.drain(..HEADER + usize::from(length));
            self.first += 1;
        }
        let start = self.bytes.len();
        self.bytes.extend([0; 2]);
        self.bytes.extend(priority.to_ne_bytes());
        self.bytes.extend(time_ns.to_ne_bytes());
        let mut grows = Text { bytes: &mut self.bytes, length: 0 };
        // `Text` never fails; an error comes from a value's own formatter and truncates the record.
        let _ = grows.write_fmt(text);
        let [low, high] = (grows.length as u16).to_ne_bytes();
        (self.bytes[start], self.bytes[start + 1]) = (low, high);
        self.next += 1;
    }

    fn word(&self, at: usize) -> u16 {
        u16::from_ne_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    /// The record with this number, or the oldest record if this one was overwritten.
    fn at(&self, number: u64) -> Result<Option<Record>> {
        if number >= self.next {
            return Ok(None);
        }
        let mut at = 0;
        for _ in self.first..number {
            at += HEADER + usize::from(self.word(at));
        }
        let length = usize::from(self.word(at));
        let mut text = Vec::new();
        text.reserve_exact_fallibly(length).map_err(|_| ENOMEM)?;
        text.extend(self.bytes.range(at + HEADER..at + HEADER + length));
        let mut time = [0; 8];
        for (to, from) in time.iter_mut().zip(self.bytes.range(at + 4..)) {
            *to = *from;
        }
        let time_ns = u64::from_ne_bytes(time);
        Ok(Some(Record { number: number.max(self.first), priority: self.word(at + 2), time_ns, text }))
    }
}

/// The record with this sequence number, or the oldest record if this one was overwritten; `None` at the end of the log. `ENOMEM` if its text cannot
/// be allocated.
pub fn at(number: u64) -> Result<Option<Record>> {
    LOG.lock().at(number)
}

/// Sequence numbers of the oldest record and of the next record to be added.
pub fn bounds() -> (u64, u64) {
    let log = LOG.lock();
    (log.first, log.next)
}

/// Hides records before this sequence number from [`syslog::read_all`].
pub fn clear_before(number: u64) {
    CLEARED.store(number, Ordering::Relaxed);
}

/// Formats a time since boot in nanoseconds as printk does: `[    1.234567] `.
pub struct Stamp(pub u64);

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, micros) = (self.0 / 1_000_000_000, self.0 / 1000 % 1_000_000);
        write!(f, "[{seconds:5}.{micros:06}] ")
    }
}

/// The word for a record's level in logs that people read.
pub fn level_word(priority: u16) -> &'static str {
    match priority & 7 {
        0..=3 => "error: ",
        4 => "warning: ",
        _ => "",
    }
}

/// Appends a record to `out` as a line: `[seconds since boot]`, `word`, text. `ENOMEM` if `out` cannot grow.
pub fn line(record: &Record, word: &str, out: &mut Vec<u8>) -> Result<()> {
    append(out, format_args!("{}{word}", Stamp(record.time_ns)))?;
    out.reserve_fallibly(record.text.len() + 1).map_err(|_| ENOMEM)?;
    out.extend(&record.text);
    out.push(b'\n');
    Ok(())
}

/// Appends formatted text to `out`; `ENOMEM` if `out` cannot grow.
fn append(out: &mut Vec<u8>, text: fmt::Arguments<'_>) -> Result<()> {
    struct Out<'a>(&'a mut Vec<u8>);
    impl Write for Out<'_> {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0.reserve_fallibly(text.len()).map_err(|_| fmt::Error)?;
            self.0.extend(text.as_bytes());
            Ok(())
        }
    }
    Out(out).write_fmt(text).map_err(|_| ENOMEM)
}

#[cfg(test)]
mod tests;
