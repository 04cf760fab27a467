// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pipes and FIFOs (pipe(7)).
//!
//! Data is kept in pages, in order. Moving bytes from and to the program may fault and so may block, so it happens
//! outside the lock: one reader and one writer at a time have the *turn*, and others find `EAGAIN` and wait. Writes
//! of at most [`PIPE_BUF`] bytes are done whole or not at all.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod buffer;
mod end;
mod fifo;
mod users;

pub use end::PipeEnd;
pub use fifo::{Fifo, fifo};
pub use users::{USER_PAGES_HARD, USER_PAGES_SOFT, User};

use abi::Events;
use alloc::sync::Arc;
use api_fs::Unnamed;
use api_lock::SpinLock;
use api_sched::WaitQueue;
use buffer::Buffer;
use core::sync::atomic::{AtomicU64, Ordering};
use users::Charge;

/// Bytes that are written in one piece.
pub const PIPE_BUF: usize = 4096;
/// Capacity of a new pipe.
pub const DEFAULT_CAPACITY: usize = 65536;
/// Largest capacity at all.
pub const HARD_LIMIT: usize = 1 << 31;

struct State {
    buffer: Buffer,
    /// Its capacity, and whose it is.
    charge: Charge,
    readers: usize,
    writers: usize,
    /// How often either side was opened: who waits for the other side of a FIFO learns of one that has come and gone.
    reader_opens: usize,
    writer_opens: usize,
    /// Somebody moves bytes out, or in, outside the lock.
    reading: bool,
    writing: bool,
    /// Somebody found the turn taken and waits.
    turn_wanted: bool,
}

impl State {
    /// How many have the other side of a reader, or a writer, open, and how often it was opened.
    fn other_side(&self, of_reader: bool) -> (usize, usize) {
        if of_reader { (self.writers, self.writer_opens) } else { (self.readers, self.reader_opens) }
    }
}

/// What the two ends share.
pub struct Pipe {
    state: SpinLock<State>,
    queue: WaitQueue,
    number: u64,
    /// Of one without a name.
    attributes: Unnamed,
}

static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);

impl Pipe {
    /// A pipe of that user's without ends; `ENFILE` when the user has too many.
    pub fn new(user: &User) -> abi::Result<Arc<Pipe>> {
        let state = State {
            buffer: Buffer::default(),
            charge: Charge::new(user)?,
            readers: 0,
            writers: 0,
            reader_opens: 0,
            writer_opens: 0,
            reading: false,
            writing: false,
            turn_wanted: false,
        };
        Ok(Arc::new(Pipe {
            state: SpinLock::new(state),
            queue: WaitQueue::new(),
            attributes: Unnamed::new(0o600, user.uid, user.gid),
            number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
        }))
    }

    /// F_GETPIPE_SZ.
    pub fn capacity(&self) -> usize {
        self.state.lock().charge.capacity()
    }

    /// F_SETPIPE_SZ: a power of two of at least a page. `EPERM` when `user` may not have it so large, `EBUSY` when more is in it than
    /// would fit.
    pub fn set_capacity(&self, wanted: usize, user: &User) -> abi::Result<usize> {
        if wanted > HARD_LIMIT {
            return Err(abi::errno::EINVAL);
        }
        let capacity = wanted.max(abi::PAGE_SIZE).next_power_of_two();
        let mut state = self.state.lock();
        if state.buffer.length() > capacity {
            return Err(abi::errno::EBUSY);
        }
        state.charge.change(capacity, user)?;
        drop(state);
        self.queue.wake_all(Events::WRITABLE);
        Ok(capacity)
    }

    /// Bytes in it (FIONREAD).
    pub fn length(&self) -> usize {
        self.state.lock().buffer.length()
    }
}

/// The two ends of a new pipe of the kernel's own, the reading one first.
pub fn pipe() -> abi::Result<(Arc<PipeEnd>, Arc<PipeEnd>)> {
    pipe_of(&User::KERNEL)
}

/// The two ends of a user's new pipe; `ENFILE` when the user has too many.
pub fn pipe_of(user: &User) -> abi::Result<(Arc<PipeEnd>, Arc<PipeEnd>)> {
    let pipe = Pipe::new(user)?;
    Ok((PipeEnd::new(pipe.clone(), true, false, None), PipeEnd::new(pipe, false, true, None)))
}
