// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The end of the kernel's log as programs read it: records with a number, a priority and a time (Documentation/ABI/testing/dev-kmsg of
//! Linux). What syslog(2) and /proc/kmsg hand over is read for all ([`take_unread`]); each open /dev/kmsg has a place of its own ([`device`]).
//!
//! One lock, held for as long as a record is copied. Who logs never waits for it and takes no memory.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod device;
mod unread;

pub use device::device;
pub use unread::{read_all, take_unread, unread, unread_file};

use abi::{Events, Result, errno::ENOMEM, setting::Setting};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_lock::SpinLock;
use api_sched::WaitQueue;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU64, Ordering};

/// kernel.dmesg_restrict: only who has CAP_SYSLOG reads the log.
pub static RESTRICTED: [Setting; 1] = [Setting::new(0, 0, 1)];

/// Bytes of records and their headers that are kept.
pub const KEPT: usize = 16 << 10;
/// Of a record's text; the rest of a longer one is left out.
pub const MAX_TEXT: usize = 1000;
/// Length of the text, priority, time in nanoseconds since boot.
const HEADER: usize = 2 + 2 + 8;

/// LOG_USER (syslog(3)): of a program, which cannot speak for the kernel.
const USER: u16 = 1;

struct Log {
    bytes: VecDeque<u8>,
    /// The numbers of the first record that is kept, and of the next one that comes.
    first: u64,
    next: u64,
    on_record: fn(),
}

static LOG: SpinLock<Log> =
    SpinLock::new(Log { bytes: VecDeque::new(), first: 0, next: 0, on_record: || {} });
/// Records before this one were cleared (SYSLOG_ACTION_CLEAR).
static CLEARED: AtomicU64 = AtomicU64::new(0);
/// Woken (IN) by a record.
static CHANGED: WaitQueue = WaitQueue::new();

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub number: u64,
    /// Eight times the facility, and the level (syslog(3)).
    pub priority: u16,
    /// Since boot.
    pub time_ns: u64,
    pub text: Vec<u8>,
}

/// Begins to keep the log; with the heap. What comes before is not kept. `on_record` is called after each record, in any context, and has
/// [`wake`] called soon in thread context.
pub fn start(on_record: fn()) {
    let mut log = LOG.lock();
    // Without memory for it nothing is kept.
    if log.bytes.reserve_fallibly(KEPT).is_ok() {
        log.on_record = on_record;
    }
}

/// Wakes who waits for records.
pub fn wake() {
    CHANGED.wake_all(Events::IN);
}

/// Woken (IN) by each record, soon after it came.
pub fn changed() -> &'static WaitQueue {
    &CHANGED
}

/// Keeps a record, in any context. Lost is what comes while the log is read on this processor.
pub fn record(priority: u16, time_ns: u64, text: fmt::Arguments<'_>) {
    let Some(mut log) = LOG.try_lock() else { return };
    if log.bytes.capacity() < KEPT {
        return;
    }
    log.add(priority, time_ns, text);
    let on_record = log.on_record;
    drop(log);
    on_record();
}

/// A text that grows at the end of the log, up to [`MAX_TEXT`].
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
        while self.bytes.len() + HEADER + MAX_TEXT > KEPT {
            let length = self.word(0);
            self.bytes.drain(..HEADER + usize::from(length));
            self.first += 1;
        }
        let start = self.bytes.len();
        self.bytes.extend([0; 2]);
        self.bytes.extend(priority.to_ne_bytes());
        self.bytes.extend(time_ns.to_ne_bytes());
        let mut grows = Text { bytes: &mut self.bytes, length: 0 };
        // Writing there does not fail; a value that cannot be shown ends the record.
        let _ = grows.write_fmt(text);
        let [low, high] = (grows.length as u16).to_ne_bytes();
        (self.bytes[start], self.bytes[start + 1]) = (low, high);
        self.next += 1;
    }

    fn word(&self, at: usize) -> u16 {
        u16::from_ne_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    /// The record with that number, or the first one that is kept behind it.
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

/// The record with that number, or the first one that is kept behind it; `ENOMEM` without memory for its text.
pub fn at(number: u64) -> Result<Option<Record>> {
    LOG.lock().at(number)
}

/// The numbers of the first record that is kept, and of the next one that comes.
pub fn bounds() -> (u64, u64) {
    let log = LOG.lock();
    (log.first, log.next)
}

/// Records before that number are no part of [`read_all`] any more.
pub fn clear_before(number: u64) {
    CLEARED.store(number, Ordering::Relaxed);
}

/// Appends a line of the log: seconds since boot, `word` and the text. `ENOMEM` without memory for it.
pub fn line(record: &Record, word: &str, out: &mut Vec<u8>) -> Result<()> {
    let (seconds, micros) = (record.time_ns / 1_000_000_000, record.time_ns / 1000 % 1_000_000);
    append(out, format_args!("[{seconds:5}.{micros:06}] {word}"))?;
    out.reserve_fallibly(record.text.len() + 1).map_err(|_| ENOMEM)?;
    out.extend(&record.text);
    out.push(b'\n');
    Ok(())
}

/// Formats at the end of `out`; `ENOMEM` without memory for it.
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
