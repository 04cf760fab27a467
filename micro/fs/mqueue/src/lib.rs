// SPDX-License-Identifier: Apache-2.0 OR MIT
//! POSIX message queues (mq_overview(7)): what is in one, and the descriptor for it. Names, permissions and limits are
//! the business of the system calls.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

mod queue;
#[cfg(test)]
mod tests;

pub use queue::{Attributes, Outcome, Queue, Receiving};

use abi::{Events, Result, errno::*};
use alloc::format;
use alloc::sync::Arc;
use api_fs::{File, Sink, Stat};
use api_sched::WaitQueue;
use core::any::Any;

/// An open queue.
pub struct QueueFile(pub Arc<Queue>);

impl QueueFile {
    pub fn new(queue: Arc<Queue>) -> Arc<QueueFile> {
        Arc::new(QueueFile(queue))
    }
}

/// The number of the queues' file system (statfs(2)).
pub const MQUEUE_MAGIC: u64 = 0x1980_0202;

impl File for QueueFile {
    /// What Linux shows of the queue: bytes in it, and who is to be notified how.
    fn read(&self, offset: u64, to: &mut Sink<'_>) -> Result<usize> {
        let (bytes, notify) = self.0.status();
        let [kind, signal, pid] = notify.unwrap_or([0; 3]);
        let line = format!("QSIZE:{bytes:<10} NOTIFY:{kind:<5} SIGNO:{signal:<5} NOTIFY_PID:{pid:<6}\n");
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(line.len());
        to.put(&line.as_bytes()[from..])
    }

    fn is_seekable(&self) -> bool {
        true
    }

    fn stat(&self) -> Result<Stat> {
        Ok(self.0.stat())
    }

    fn file_system(&self) -> Result<u64> {
        Ok(MQUEUE_MAGIC)
    }

    fn poll(&self) -> Events {
        self.0.poll()
    }

    fn wait_queue(&self) -> Option<&WaitQueue> {
        Some(self.0.wait_queue())
    }

    /// As on Linux, a notification does not outlive a descriptor of its process.
    fn close(&self) -> Result<()> {
        self.0.forget_notification();
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Opens a queue's descriptor; `EBADF` for another file.
pub fn of_file(file: &dyn File) -> Result<&Arc<Queue>> {
    file.as_any().downcast_ref::<QueueFile>().map(|file| &file.0).ok_or(EBADF)
}
