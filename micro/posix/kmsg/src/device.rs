// SPDX-License-Identifier: Apache-2.0 OR MIT
//! /dev/kmsg: each read returns one record, each write adds one.

use crate::{CHANGED, CLEARED, MAX_TEXT, RESTRICTED, Record, USER, append, at, bounds};
use abi::{Events, Result, errno::*};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_fs::{File, Inode, Sink, Source, Stat};
use api_lock::SpinLock;
use api_sched::WaitQueue;
use core::any::Any;
use core::sync::atomic::Ordering;

const SEEK_SET: u32 = 0;
const SEEK_END: u32 = 2;
const SEEK_DATA: u32 = 3;

struct Device {
    inode: Arc<dyn Inode>,
    /// Sequence number of the record that the next read returns.
    next: SpinLock<u64>,
    /// The opener had CAP_SYSLOG, or kernel.dmesg_restrict was 0.
    may_read: bool,
    now_ns: fn() -> u64,
}

/// Opens /dev/kmsg. `is_privileged`: the caller has CAP_SYSLOG. `now_ns` returns the time since boot.
pub fn device(inode: &Arc<dyn Inode>, is_privileged: bool, now_ns: fn() -> u64) -> Arc<dyn File> {
    let may_read = is_privileged || RESTRICTED[0].get() == 0;
    Arc::new(Device { inode: inode.clone(), next: SpinLock::new(bounds().0), may_read, now_ns })
}

/// Formats a record as `PRIORITY,SEQUENCE,MICROSECONDS,-;TEXT`. Bytes that are not printable ASCII, and the backslash, are escaped as `\xNN`.
fn shown(record: &Record) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let micros = record.time_ns / 1000;
    append(&mut out, format_args!("{},{},{micros},-;", record.priority, record.number))?;
    for byte in &record.text {
        match byte {
            b'\\' | 0..0x20 | 0x7f.. => append(&mut out, format_args!("\\x{byte:02x}"))?,
            _ => append(&mut out, format_args!("{}", char::from(*byte)))?,
        }
    }
    append(&mut out, format_args!("\n"))?;
    Ok(out)
}

/// Splits a written line into priority and text. The facility defaults to [`USER`], the level to 4 (Linux' default_message_loglevel).
fn priority_of(line: &str) -> (u16, &str) {
    const DEFAULT_LEVEL: u16 = 4;
    let said = line.strip_prefix('<').and_then(|rest| rest.split_once('>'));
    let number = said.and_then(|(number, rest)| Some((number.parse::<u32>().ok()?, rest)));
    match number {
        Some((number, rest)) => {
            let facility = (number >> 3) as u16 & 0xff;
            ((if facility == 0 { USER } else { facility }) << 3 | number as u16 & 7, rest)
        }
        None => (USER << 3 | DEFAULT_LEVEL, line),
    }
}

impl File for Device {
    fn read(&self, _: u64, to: &mut Sink<'_>) -> Result<usize> {
        if !self.may_read {
            return Err(EPERM);
        }
        let mut next = self.next.lock();
        let Some(record) = at(*next)? else { return Err(EAGAIN) };
        if record.number != *next {
            *next = record.number;
            return Err(EPIPE);
        }
        let text = shown(&record)?;
        // Linux advances before it checks the buffer, too: the record is lost to this reader.
        *next += 1;
        if text.len() > to.remaining() { Err(EINVAL) } else { to.put(&text) }
    }

    fn write(&self, _: u64, from: &mut Source<'_>) -> Result<usize> {
        let length = from.remaining();
        if length > MAX_TEXT {
            return Err(EINVAL);
        }
        let bytes: Vec<u8> = from.take_vec(MAX_TEXT)?;
        let line = String::from_utf8_lossy(&bytes);
        let line = line.split('\0').next().unwrap_or_default();
        let (priority, text) = priority_of(line);
        crate::record(priority, (self.now_ns)(), format_args!("{}", text.strip_suffix('\n').unwrap_or(text)));
        Ok(length)
    }

    fn append(&self, from: &mut Source<'_>) -> Result<(usize, u64)> {
        self.write(0, from).map(|length| (length, 0))
    }

    /// SEEK_SET goes to the oldest record, SEEK_DATA to the first record that was not cleared, SEEK_END to the end of the log.
    fn seek_itself(&self, offset: i64, whence: u32) -> Option<Result<u64>> {
        let to = match whence {
            _ if offset != 0 => return Some(Err(ESPIPE)),
            SEEK_SET => bounds().0,
            SEEK_DATA => CLEARED.load(Ordering::Relaxed),
            SEEK_END => bounds().1,
            _ => return Some(Err(EINVAL)),
        };
        *self.next.lock() = to;
        Some(Ok(0))
    }

    fn stat(&self) -> Result<Stat> {
        self.inode.stat()
    }

    fn poll(&self) -> Events {
        let (first, end) = bounds();
        let next = *self.next.lock();
        // Records were overwritten before this reader read them.
        let lost = Events::ERR.with(Events::PRI, true);
        Events::NONE.with(Events::READABLE, next < end).with(lost, next < first)
    }

    fn wait_queue(&self) -> Option<&WaitQueue> {
        Some(&CHANGED)
    }

    fn inode(&self) -> Option<&Arc<dyn Inode>> {
        Some(&self.inode)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_much_it_matters() {
        assert_eq!(priority_of("<30>started"), (30, "started"));
        assert_eq!(priority_of("<3>as the kernel"), (USER << 3 | 3, "as the kernel"));
        assert_eq!(priority_of("nothing said"), (USER << 3 | 4, "nothing said"));
        assert_eq!(priority_of("<x>y"), (USER << 3 | 4, "<x>y"));
        assert_eq!(priority_of("<30"), (USER << 3 | 4, "<30"));
    }

    #[test]
    fn what_is_no_character_is_shown_by_its_number() {
        let record = Record { number: 7, priority: 6, time_ns: 1_500_000, text: b"a\\b\nc\xc3".to_vec() };
        assert_eq!(shown(&record).unwrap(), b"6,7,1500,-;a\\x5cb\\x0ac\\xc3\n");
    }
}
