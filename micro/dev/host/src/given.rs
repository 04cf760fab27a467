// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files of volumes that their server gave the machine: it reads and writes them by calls of the host, which take a microsecond where a
//! question to the server takes fourteen to sixty.
//!
//! A host call that waits for a disk holds up the machine's processor, and all of its threads. So what the host does not have in memory
//! is left to the server, as far as the host says so (RWF_NOWAIT; overlayfs does not), and once a call took long, everything is for a while.

use crate::pieces::pieces;
use abi::{PAGE_SIZE, Result, errno::EOPNOTSUPP};
use alloc::sync::Arc;
use api_mem::Gather;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use plat_process::host::{self, IoVec};

/// Pages that the largest read or write touches.
const MAX_PIECES: usize = ninep::MAX_GIVEN / PAGE_SIZE + 1;
/// A call that took so long waited for something.
const LONG_NS: u64 = 2_000_000;
/// For so long the server is asked then.
const PAUSE_NS: u64 = 50_000_000;

/// A descriptor, closed when it is dropped.
pub struct Descriptor(pub i32);

impl Drop for Descriptor {
    fn drop(&mut self) {
        host::close(self.0);
    }
}

/// When files of one server's are read and written here.
#[derive(Default)]
pub struct Pace {
    /// The server is asked until then.
    paused_until: AtomicU64,
}

impl Pace {
    /// Does what a call of the host's does, unless the server is to be asked.
    fn keep<T>(&self, call: impl FnOnce() -> Option<T>) -> Option<T> {
        let began = api_plat::now_ns();
        if began < self.paused_until.load(Ordering::Relaxed) {
            return None;
        }
        let done = call();
        let ended = api_plat::now_ns();
        if ended > began + LONG_NS {
            self.paused_until.store(ended + PAUSE_NS, Ordering::Relaxed);
        }
        done
    }
}

/// An open file of a server's.
pub struct File {
    descriptor: Descriptor,
    pace: Arc<Pace>,
    /// The host cannot say whether it would have to wait for this one's data.
    cannot_tell: AtomicBool,
}

impl File {
    pub fn new(descriptor: Descriptor, pace: Arc<Pace>) -> File {
        File { descriptor, pace, cannot_tell: AtomicBool::new(false) }
    }

    /// # Safety
    ///
    /// Each part is memory that the kernel does not use meanwhile.
    unsafe fn read_parts(&self, parts: &[IoVec], offset: u64) -> Option<usize> {
        let fd = self.descriptor.0;
        self.pace.keep(|| {
            if !self.cannot_tell.load(Ordering::Relaxed) {
                // SAFETY: by the caller's word.
                match unsafe { host::preadv_at_hand(fd, parts, offset) } {
                    Err(EOPNOTSUPP) => self.cannot_tell.store(true, Ordering::Relaxed),
                    read => return read.ok(),
                }
            }
            // SAFETY: the same.
            unsafe { host::preadv(fd, parts, offset) }.ok()
        })
    }

    /// # Safety
    ///
    /// Each part is readable memory.
    unsafe fn write_parts(&self, parts: &[IoVec], offset: u64) -> Option<usize> {
        // SAFETY: by the caller's word.
        let write = || -> Result<usize> { unsafe { host::pwritev(self.descriptor.0, parts, offset) } };
        self.pace.keep(|| write().ok())
    }
}

impl ninep::Given for File {
    fn read(&self, offset: u64, to: &mut [u8]) -> Option<usize> {
        let part = IoVec { base: to.as_mut_ptr(), length: to.len() };
        // SAFETY: the slice is the caller's, who lends it.
        unsafe { self.read_parts(&[part], offset) }
    }

    fn read_pages(&self, offset: u64, to: &Gather) -> Option<usize> {
        let mut parts = [IoVec::EMPTY; MAX_PIECES];
        let count = pieces(to, 0, &mut parts);
        // SAFETY: the pieces lie in pages that are held. Only the program uses them besides, and sees what it then gets.
        unsafe { self.read_parts(&parts[..count], offset) }
    }

    fn write(&self, offset: u64, from: &[u8]) -> Option<usize> {
        // SAFETY: a slice is readable memory.
        unsafe { self.write_parts(&[IoVec::of(from)], offset) }
    }

    fn write_pages(&self, offset: u64, from: &Gather) -> Option<usize> {
        let mut parts = [IoVec::EMPTY; MAX_PIECES];
        let count = pieces(from, 0, &mut parts);
        // SAFETY: the pieces lie in pages that are held.
        unsafe { self.write_parts(&parts[..count], offset) }
    }
}
