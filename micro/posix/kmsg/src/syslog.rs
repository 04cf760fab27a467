// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The log as syslog(2) and /proc/kmsg show it: lines that begin with their priority. All readers share one position, so each record is read once.

use crate::{CHANGED, CLEARED, Record, append, at, bounds, line};
use abi::{Events, Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_fs::{File, Inode, Sink, Stat};
use api_lock::SpinLock;
use api_sched::WaitQueue;
use core::any::Any;
use core::sync::atomic::Ordering;

/// The shared read position: a record's sequence number and an offset into its line.
static POSITION: SpinLock<(u64, usize)> = SpinLock::new((0, 0));

/// Appends a record's line with its priority in front.
fn marked_line(record: &Record, out: &mut Vec<u8>) -> Result<()> {
    append(out, format_args!("<{}>", record.priority))?;
    line(record, "", out)
}

/// SYSLOG_ACTION_READ: passes up to `room` unread bytes to `put`, which returns how many it took. `EAGAIN` if the log has no unread records; then
/// [`crate::changed`] is woken by the next record.
pub fn read(room: usize, mut put: impl FnMut(&[u8]) -> Result<usize>) -> Result<usize> {
    let mut done = 0;
    while done < room {
        let position = *POSITION.lock();
        let Some(record) = at(position.0)? else { break };
        let skipped = if record.number == position.0 { position.1 } else { 0 };
        let mut text = Vec::new();
        marked_line(&record, &mut text)?;
        let rest = text.get(skipped..).unwrap_or_default();
        // Only the first line may be split.
        if done > 0 && rest.len() > room - done {
            break;
        }
        let part = &rest[..rest.len().min(room - done)];
        match put(part) {
            Ok(taken) => {
                done += taken;
                let is_over = taken == rest.len();
                let next = if is_over { (record.number + 1, 0) } else { (record.number, skipped + taken) };
                // Another reader may have read the same lines meanwhile; Linux serialises readers by a mutex.
                *POSITION.lock() = next;
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

/// SYSLOG_ACTION_SIZE_UNREAD: the unread bytes.
pub fn size_unread() -> Result<usize> {
    let (number, taken) = *POSITION.lock();
    let mut sum = 0;
    let mut next = number;
    while let Some(record) = at(next)? {
        let mut text = Vec::new();
        marked_line(&record, &mut text)?;
        sum += if record.number == number { text.len().saturating_sub(taken) } else { text.len() };
        next = record.number + 1;
    }
    Ok(sum)
}

/// SYSLOG_ACTION_READ_ALL: the newest lines that fit into `room` bytes, without cleared ones, and the sequence number that follows them.
pub fn read_all(room: usize) -> Result<(Vec<u8>, u64)> {
    let end = bounds().1;
    let mut out: Vec<u8> = Vec::new();
    let mut next = CLEARED.load(Ordering::Relaxed);
    while let Some(record) = at(next)?.filter(|record| record.number < end) {
        marked_line(&record, &mut out)?;
        next = record.number + 1;
    }
    // Linux returns whole lines.
    while out.len() > room {
        let first = out.iter().position(|byte| *byte == b'\n').map_or(out.len(), |at| at + 1);
        out.drain(..first);
    }
    Ok((out, end))
}

/// /proc/kmsg.
struct ProcKmsg(Arc<dyn Inode>);

/// Opens /proc/kmsg. The caller has checked CAP_SYSLOG.
pub fn proc_kmsg(inode: &Arc<dyn Inode>) -> Arc<dyn File> {
    Arc::new(ProcKmsg(inode.clone()))
}

impl File for ProcKmsg {
    fn read(&self, _: u64, to: &mut Sink<'_>) -> Result<usize> {
        read(to.remaining(), |part| to.put_up_to_fault(part))
    }

    fn can_write(&self) -> bool {
        false
    }

    fn stat(&self) -> Result<Stat> {
        self.0.stat()
    }

    fn poll(&self) -> Events {
        Events::NONE.with(Events::READABLE, POSITION.lock().0 < bounds().1)
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
