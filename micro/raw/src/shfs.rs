// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The functions of `unilith/shfs.h`: an image on a block device, whose table lies in memory, so that a file is opened by a hash and a
//! comparison. There are no descriptors: an open file is its number in the table.

use crate::blockdev::{self, Hold};
use abi::{Events, PAGE_SIZE, Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_blockdev::{BlockDevice, Completion, Info, Operation, QUEUE, Request};
use api_lock::SpinLock;
use api_mem::{Gather, PageFrame};
use core::sync::atomic::{AtomicU64, Ordering};
use shfs::{BLOCK, MAX_NAME, Superblock, Volume};

const _: () = assert!(BLOCK == PAGE_SIZE, "a page holds a block");

struct Mounted {
    disk: Disk,
    volume: Volume<Vec<u8>>,
}

static MOUNTED: SpinLock<Option<Arc<Mounted>>> = SpinLock::new(None);

/// A device, and requests of several threads to it.
struct Disk {
    device: Arc<dyn BlockDevice>,
    next: AtomicU64,
    /// Completions that another thread has taken from the device than the one that waits for them.
    done: SpinLock<Vec<Completion>>,
}

impl Disk {
    fn new(device: Arc<dyn BlockDevice>) -> Result<Disk> {
        let mut done = Vec::new();
        done.reserve_exact_fallibly(QUEUE).map_err(|_| ENOMEM)?;
        Ok(Disk { device, next: AtomicU64::new(0), done: SpinLock::new(done) })
    }

    /// Reads sectors, and waits for them whatever signals come: the device writes to the memory meanwhile.
    fn read(&self, sector: u64, memory: Gather) -> Result<()> {
        let tag = self.next.fetch_add(1, Ordering::Relaxed);
        let mut request = Some(Request { operation: Operation::Read, sector, memory, tag });
        let waiters = blockdev::waiters();
        // Before the first look: a completion between it and the wait would be lost otherwise.
        let key = waiters.add(api_sched::current(), Events::IN, false);
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
        waiters.remove(key);
        result
    }

    fn collect(&self, tag: u64) -> Option<Result<()>> {
        let (result, others) = {
            let mut done = self.done.lock();
            let before = done.len();
            while let Some(completion) = self.device.complete() {
                done.push(completion);
            }
            let others = done[before..].iter().any(|completion| completion.tag != tag);
            let at = done.iter().position(|completion| completion.tag == tag);
            (at.map(|at| done.swap_remove(at).result), others)
        };
        if others {
            blockdev::waiters().wake_all(Events::IN);
        }
        result
    }

    fn sectors_of_block(&self) -> u64 {
        (BLOCK / self.device.info().sector_size) as u64
    }

    /// A page of the kernel's with a block.
    fn block(&self, block: u64) -> Result<PageFrame> {
        let frame = PageFrame::new()?;
        let mut frames = Vec::new();
        frames.reserve_exact_fallibly(1).map_err(|_| ENOMEM)?;
        frames.push(frame.clone());
        let memory = Gather { frames, offset: 0, length: BLOCK, is_written: true };
        self.read(block * self.sectors_of_block(), memory).map(|()| frame)
    }
}

/// `unilith_shfs_mount`. Blocks.
pub fn mount(index: usize) -> Result<usize> {
    if MOUNTED.lock().is_some() {
        return Err(EBUSY);
    }
    let device = blockdev::take_for_file_system(index)?;
    let disk = Disk::new(device)?;
    let available = disk.device.info().sectors / disk.sectors_of_block();
    let damaged = |damage: shfs::Damage| {
        log::error!("SHFS on disk {index}: {damage}");
        EUCLEAN
    };
    let read = || {
        let mut first = [0; shfs::SUPERBLOCK];
        if available > 0 {
            disk.block(0)?.read(0, &mut first);
        }
        let superblock = Superblock::parse(&first, available).map_err(damaged)?;
        let mut table = Vec::new();
        table.reserve_exact_fallibly(superblock.table_bytes()).map_err(|_| ENOMEM)?;
        table.resize(superblock.table_bytes(), 0);
        for (n, part) in table.chunks_mut(BLOCK).enumerate() {
            disk.block(1 + n as u64)?.read(0, part);
        }
        Volume::new(superblock, table).map_err(damaged)
    };
    // Another image may be tried.
    let volume = read().inspect_err(|_| blockdev::give_back(index))?;
    let files = volume.superblock().files;
    *MOUNTED.lock() = Some(Arc::new(Mounted { disk, volume }));
    Ok(files as usize)
}

/// `unilith_shfs_open`.
pub fn open(name: u64, length: usize, file: u64) -> Result<usize> {
    // To make room for a short name takes less than the rest of the call.
    if length <= SHORT_NAME {
        return open_named(name, &mut [0; SHORT_NAME][..length], file);
    }
    // A longer name is no file's.
    open_named(name, [0; MAX_NAME].get_mut(..length).ok_or(ENOENT)?, file)
}

/// Bytes of a name as most are.
const SHORT_NAME: usize = 64;

#[inline]
fn open_named(name: u64, bytes: &mut [u8], file: u64) -> Result<usize> {
    api_user::read_bytes(name, bytes)?;
    let mut out = [0; 48];
    {
        let mounted = MOUNTED.lock();
        let found = mounted.as_ref().ok_or(ENODEV)?.volume.find(bytes).ok_or(ENOENT)?;
        out[..8].copy_from_slice(&found.size.to_ne_bytes());
        out[8..12].copy_from_slice(&found.number.to_ne_bytes());
        out[16..].copy_from_slice(found.digest);
    }
    api_user::write_bytes(file, &out).map(|()| 0)
}

/// `unilith_shfs_read`. Blocks.
pub fn read(number: u32, offset: u64, buffer: u64, length: usize, hold: Hold) -> Result<usize> {
    let mounted = MOUNTED.lock().clone().ok_or(ENODEV)?;
    let file = mounted.volume.file(number).ok_or(EINVAL)?;
    // What one call reads at most on Linux.
    const MAX_READ: u64 = i32::MAX as u64 & !(PAGE_SIZE as u64 - 1);
    let end = file.size.min(offset.saturating_add(MAX_READ.min(length as u64)));
    let mut at = offset;
    while at < end {
        let to = buffer.wrapping_add(at - offset);
        match mounted.piece(file.first_block, at, end, to, hold) {
            Ok(n) => at += n as u64,
            Err(e) if at == offset => return Err(e),
            Err(_) => break,
        }
    }
    Ok(at.saturating_sub(offset) as usize)
}

impl Mounted {
    /// Reads some bytes of a file: whole sectors straight to the program's memory, what is less through a page.
    fn piece(&self, first: u64, at: u64, end: u64, to: u64, hold: Hold) -> Result<usize> {
        let Info { sector_size, largest, .. } = self.disk.device.info();
        let sectors = (end - at).min(largest as u64) / sector_size as u64;
        if at.is_multiple_of(sector_size as u64) && sectors > 0 {
            let length = sectors as usize * sector_size;
            let offset = (to % PAGE_SIZE as u64) as usize;
            let frames = hold(to, length, true);
            if frames.len() == (offset + length).div_ceil(PAGE_SIZE) {
                let sector = first * self.disk.sectors_of_block() + at / sector_size as u64;
                let memory = Gather { frames, offset, length, is_written: true };
                return self.disk.read(sector, memory).map(|()| length);
            }
        }
        // What of a page lies on the stack at once.
        const PIECE: usize = 512;
        let page = self.disk.block(first + at / BLOCK as u64)?;
        let offset = (at % BLOCK as u64) as usize;
        let mut bytes = [0; PIECE];
        let length = ((end - at).min((BLOCK - offset) as u64) as usize).min(PIECE);
        page.read(offset, &mut bytes[..length]);
        api_user::write_bytes(to, &bytes[..length]).map(|()| length)
    }
}
