// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Event counters (eventfd(2)).
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

use abi::{Events, Result, errno::*};
use alloc::sync::Arc;
use api_fs::{File, FileType, Sink, Source, Stat};
use api_sched::WaitQueue;
use core::any::Any;
use core::sync::atomic::{AtomicU64, Ordering};

/// The largest value that write(2) may make of the counter. One more, the overflow of eventfd(2), is the kernel's alone to make.
const LIMIT: u64 = u64::MAX - 1;

/// A counter that is a file.
pub struct EventFd {
    count: AtomicU64,
    /// EFD_SEMAPHORE: a read takes one.
    is_semaphore: bool,
    queue: WaitQueue,
}

impl EventFd {
    pub fn new(initial: u32, is_semaphore: bool) -> Arc<EventFd> {
        Arc::new(EventFd { count: AtomicU64::new(initial as u64), is_semaphore, queue: WaitQueue::new() })
    }

    /// Counts an event of the kernel's own (asynchronous I/O): this never waits, and one too many is the overflow that poll(2)
    /// shows as POLLERR.
    pub fn signal(&self) {
        let add = |count: u64| Some(count.saturating_add(1));
        let before = self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        let overflows = before.is_ok_and(|count| count >= LIMIT);
        self.queue.wake(Events::IN.with(Events::ERR, overflows));
    }

    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

impl File for EventFd {
    fn anonymous_name(&self) -> &'static str {
        "[eventfd]"
    }

    fn read(&self, _: u64, to: &mut Sink<'_>) -> Result<usize> {
        if to.remaining() < 8 {
            return Err(EINVAL);
        }
        let take = |count: u64| match count {
            0 => None,
            count if self.is_semaphore => Some(count - 1),
            _ => Some(0),
        };
        let before =
            self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).map_err(|_| EAGAIN)?;
        let value = if self.is_semaphore { 1 } else { before };
        self.queue.wake(Events::OUT);
        to.put(&value.to_ne_bytes())
    }

    fn write(&self, _: u64, from: &mut Source<'_>) -> Result<usize> {
        let mut bytes = [0; 8];
        // Linux 6.9 and later take no longer ones.
        if from.remaining() != 8 {
            return Err(EINVAL);
        }
        if from.take(&mut bytes)? < 8 {
            return Err(EFAULT);
        }
        let value = u64::from_ne_bytes(bytes);
        if value == u64::MAX {
            return Err(EINVAL);
        }
        let add = |count: u64| count.checked_add(value).filter(|n| *n <= LIMIT);
        self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).map_err(|_| EAGAIN)?;
        if value > 0 {
            self.queue.wake(Events::IN);
        }
        Ok(8)
    }

    fn stat(&self) -> Result<Stat> {
        Ok(Stat::new(FileType::Anonymous, 0o600))
    }

    fn poll(&self) -> Events {
        let count = self.count();
        Events::NONE
            .with(Events::IN, count > 0)
            .with(Events::OUT, count < LIMIT)
            .with(Events::ERR, count > LIMIT)
    }

    fn wait_queue(&self) -> Option<&WaitQueue> {
        Some(&self.queue)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(e: &EventFd) -> Result<u64> {
        let mut out = [0; 8];
        e.read(0, &mut Sink::kernel(&mut out))?;
        Ok(u64::from_ne_bytes(out))
    }

    fn write(e: &EventFd, value: u64) -> Result<usize> {
        e.write(0, &mut Source::kernel(&value.to_ne_bytes()))
    }

    #[test]
    fn reading_takes_all_or_one() {
        let e = EventFd::new(2, false);
        write(&e, 3).unwrap();
        assert_eq!(read(&e), Ok(5));
        assert_eq!(read(&e), Err(EAGAIN));
        let s = EventFd::new(2, true);
        assert_eq!((read(&s), read(&s), read(&s)), (Ok(1), Ok(1), Err(EAGAIN)));
    }

    #[test]
    fn the_counter_does_not_overflow() {
        let e = EventFd::new(0, false);
        assert_eq!(write(&e, u64::MAX), Err(EINVAL));
        assert_eq!(write(&e, LIMIT), Ok(8));
        assert_eq!(write(&e, 1), Err(EAGAIN));
        assert_eq!(e.poll(), Events::IN);
        assert_eq!(e.read(0, &mut Sink::kernel(&mut [0; 7])), Err(EINVAL));
        e.signal();
        assert_eq!(e.poll(), Events::IN.with(Events::ERR, true));
        assert_eq!(read(&e), Ok(u64::MAX));
        assert_eq!(e.poll(), Events::OUT);
    }
}
