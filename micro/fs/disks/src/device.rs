// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A disk as its users want it: bytes at a place, and a return when they are there.

use abi::{Events, PAGE_SIZE, Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_blockdev::{BlockDevice, Completion, Info, Operation, QUEUE, Request};
use api_lock::SpinLock;
use api_mem::{Gather, PageFrame};
use api_sched::WaitQueue;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Threads that wait for a completion of any disk.
static WAITERS: WaitQueue = WaitQueue::new();

fn interrupted() {
    WAITERS.wake_all(Events::IN);
}

pub struct Device {
    device: Arc<dyn BlockDevice>,
    pub info: Info,
    next: AtomicU64,
    /// Completions that another thread has taken from the device than the one that waits for them.
    done: SpinLock<Vec<Completion>>,
    /// Descriptors of the block special file that may write.
    writers: AtomicU32,
}

impl Device {
    pub fn new(device: Arc<dyn BlockDevice>) -> Result<Arc<Device>> {
        let mut done = Vec::new();
        done.reserve_exact_fallibly(QUEUE).map_err(|_| ENOMEM)?;
        let info = device.info();
        device.on_interrupt(api_sched::add_deferred_work(interrupted))?;
        let (next, done) = (AtomicU64::new(0), SpinLock::new(done));
        Ok(Arc::new(Device { device, info, next, done, writers: AtomicU32::new(0) }))
    }

    pub fn bytes(&self) -> u64 {
        self.info.sectors.saturating_mul(self.info.sector_size as u64)
    }

    pub fn add_writer(&self) {
        self.writers.fetch_add(1, Ordering::Relaxed);
    }

    pub fn remove_writer(&self) {
        self.writers.fetch_sub(1, Ordering::Relaxed);
    }

    pub fn has_writers(&self) -> bool {
        self.writers.load(Ordering::Relaxed) > 0
    }

    /// Does a request, and waits for it whatever signals come: the device uses the memory meanwhile.
    fn run(&self, operation: Operation, sector: u64, memory: Gather) -> Result<()> {
        let tag = self.next.fetch_add(1, Ordering::Relaxed);
        let mut request = Some(Request { operation, sector, memory, tag });
        // Before the first look: a completion between it and the wait would be lost otherwise.
        let key = WAITERS.add(api_sched::current(), Events::IN, false);
        let result = loop {
            if let Some(next) = request.take() {
                match self.device.submit(next) {
                    Ok(()) => self.device.notify(),
                    Err(full) => request = Some(full),
                }
            }
            if let Some(result) = self.collect(tag) {
                break result;
            }
            // Whoever found no room looks again when a request is done.
            if self.device.arm_interrupt() {
                api_sched::park(u64::MAX);
            }
        };
        WAITERS.remove(key);
        result
    }

    fn collect(&self, tag: u64) -> Option<Result<()>> {
        let (result, others) = {
            let mut done = self.done.lock();
            let before = done.len();
            while done.len() < done.capacity()
                && let Some(completion) = self.device.complete()
            {
                done.push(completion);
            }
            let others = done[before..].iter().any(|completion| completion.tag != tag);
            let at = done.iter().position(|completion| completion.tag == tag);
            (at.map(|at| done.swap_remove(at).result), others)
        };
        if others {
            WAITERS.wake_all(Events::IN);
        }
        result
    }

    fn check(&self, offset: u64, length: usize) -> Result<u64> {
        let sector_size = self.info.sector_size as u64;
        let end = offset.checked_add(length as u64).filter(|end| *end <= self.bytes());
        let is_whole = offset.is_multiple_of(sector_size) && (length as u64).is_multiple_of(sector_size);
        if end.is_some() && is_whole { Ok(offset / sector_size) } else { Err(EIO) }
    }

    fn frames(length: usize) -> Result<Vec<PageFrame>> {
        let mut frames = Vec::new();
        frames.reserve_exact_fallibly(length.div_ceil(PAGE_SIZE)).map_err(|_| ENOMEM)?;
        for _ in 0..length.div_ceil(PAGE_SIZE) {
            frames.push(PageFrame::new()?);
        }
        Ok(frames)
    }

    /// Handles to the same pages, for a request.
    fn shared(frames: &[PageFrame]) -> Result<Vec<PageFrame>> {
        let mut shared = Vec::new();
        shared.reserve_exact_fallibly(frames.len()).map_err(|_| ENOMEM)?;
        shared.extend_from_slice(frames);
        Ok(shared)
    }
}

impl ext4::Disk for Device {
    fn bytes(&self) -> u64 {
        Device::bytes(self)
    }

    fn is_read_only(&self) -> bool {
        self.info.read_only
    }

    fn read(&self, offset: u64, to: &mut [u8]) -> Result<()> {
        let mut sector = self.check(offset, to.len())?;
        for part in to.chunks_mut(self.info.largest) {
            let frames = Device::frames(part.len())?;
            let memory =
                Gather { frames: Device::shared(&frames)?, offset: 0, length: part.len(), is_written: true };
            self.run(Operation::Read, sector, memory)?;
            for (frame, bytes) in frames.iter().zip(part.chunks_mut(PAGE_SIZE)) {
                frame.read(0, bytes);
            }
            sector += (part.len() / self.info.sector_size) as u64;
        }
        Ok(())
    }

    fn write(&self, offset: u64, from: &[u8]) -> Result<()> {
        if self.info.read_only {
            return Err(EROFS);
        }
        let mut sector = self.check(offset, from.len())?;
        for part in from.chunks(self.info.largest) {
            let frames = Device::frames(part.len())?;
            for (frame, bytes) in frames.iter().zip(part.chunks(PAGE_SIZE)) {
                frame.write(0, bytes);
            }
            let memory = Gather { frames, offset: 0, length: part.len(), is_written: false };
            self.run(Operation::Write, sector, memory)?;
            sector += (part.len() / self.info.sector_size) as u64;
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.run(Operation::Flush, 0, Gather::default())
    }
}
