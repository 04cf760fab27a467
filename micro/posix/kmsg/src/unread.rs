// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The log as syslog(2) reads it: lines with their priority before them. What one reader has taken no other one gets.

use crate::{CHANGED, CLEARED, Record, append, at, bounds, line};
use abi::{Events, Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_fs::{File, Inode, Sink, Stat};
use api_lock::SpinLock;
use api_sched::WaitQueue;
use core::any::Any;
use core::sync::atomic::Ordering;

/// A record's number, and how many bytes of its line were taken already.
static PLACE: SpinLock<(u64, usize)> = SpinLock::new((0, 0));

fn marked(record: &Record) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    append(&mut out, format_args!("<{}>", record.priority))?;
    line(record, "", &mut out)?;
    Ok(out)
}

/// Hands up to `room` bytes that nobody read to `put`, which says how many it took (SYSLOG_ACTION_READ); `EAGAIN` when there is nothing, and
/// [`crate::changed`] is woken by more.
pub fn take_unread(room: usize, mut put: impl FnMut(&[u8]) -> Result<usize>) -> Result<usize> {
    let mut done = 0;
    while done < room {
        let place = *PLACE.lock();
        let Some(record) = at(place.0)? else { break };
        let skipped = if record.number == place.0 { place.1 } else { 0 };
        let text = marked(&record)?;
        let rest = text.get(skipped..).unwrap_or_default();
        // A line that does not fit is cut where it is the only one.
        if done > 0 && rest.len() > room - done {
            break;
        }
        let part = &rest[..rest.len().min(room - done)];
        match put(part) {
            Ok(taken) => {
                done += taken;
                let is_over = taken == rest.len();
                let next = if is_over { (record.number + 1, 0) } else { (record.number, skipped + taken) };
                // Whoever was here meanwhile has the same lines.
                *PLACE.lock() = next;
                if taken < part.len() {
                    break;
                }
            }
            Err(e) if done == 0 => return Err(e),
            Err(_) => break,
        }
    }
    if done == 0 && room > 0 { Err(EAGAIN) } else { Ok(done) }
}

/// Bytes that are not read (SYSLOG_ACTION_SIZE_UNREAD).
pub fn unread() -> Result<usize> {
    let (number, taken) = *PLACE.lock();
    let mut sum = 0;
    let mut next = number;
    while let Some(record) = at(next)? {
        let length = marked(&record)?.len();
        sum += if record.number == number { length.saturating_sub(taken) } else { length };
        next = record.number + 1;
    }
    Ok(sum)
}

/// The last lines that fit into `room` bytes, of those that were not cleared, and the number behind them.
pub fn read_all(room: usize) -> Result<(Vec<u8>, u64)> {
    let end = bounds().1;
    let mut out: Vec<u8> = Vec::new();
    let mut next = CLEARED.load(Ordering::Relaxed);
    while let Some(record) = at(next)?.filter(|record| record.number < end) {
        let text = marked(&record)?;
        out.reserve_fallibly(text.len()).map_err(|_| ENOMEM)?;
        out.extend(&text);
        next = record.number + 1;
    }
    // Whole lines.
    while out.len() > room {
        let first = out.iter().position(|byte| *byte == b'\n').map_or(out.len(), |at| at + 1);
        out.drain(..first);
    }
    Ok((out, end))
}

/// /proc/kmsg.
struct UnreadFile(Arc<dyn Inode>);

/// Opens /proc/kmsg; the caller has asked who may.
pub fn unread_file(inode: &Arc<dyn Inode>) -> Arc<dyn File> {
    Arc::new(UnreadFile(inode.clone()))
}

impl File for UnreadFile {
    fn read(&self, _: u64, to: &mut Sink<'_>) -> Result<usize> {
        take_unread(to.remaining(), |part| to.put_up_to_fault(part))
    }

    fn can_write(&self) -> bool {
        false
    }

    fn stat(&self) -> Result<Stat> {
        self.0.stat()
    }

    fn poll(&self) -> Events {
        Events::NONE.with(Events::READABLE, PLACE.lock().0 < bounds().1)
    }

    fn wait_queue(&self) -> Option<&WaitQueue> {
        Some(&CHANGED)
    }

    fn inode(&self) -> Option<&Arc<dyn Inode>> {
        Some(&self.0)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
