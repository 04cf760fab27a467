// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disks by an asynchronous queue (`unilith/blockdev.h`).

use crate::{Errno, answer, nanoseconds};
use core::time::Duration;

/// The most requests that a [`Queue`] has at a time.
pub const QUEUE: usize = 64;

/// The functions as they are.
mod sys {
    use super::{Completion, Info, Request};

    unsafe extern "C" {
        pub safe fn unilith_blockdev_count() -> i32;
        pub fn unilith_blockdev_open(device: u32, info: *mut Info) -> i32;
        pub fn unilith_blockdev_submit(device: u32, requests: *const Request, count: u32) -> i32;
        pub fn unilith_blockdev_poll(device: u32, completions: *mut Completion, count: u32) -> i32;
        pub safe fn unilith_blockdev_wait(device: u32, timeout_ns: i64) -> i32;
    }
}

/// What the program is told of a disk.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Info {
    pub sectors: u64,
    pub sector_size: u32,
    /// Bytes of one request at most.
    pub largest: u32,
    /// Requests that the device has at most at a time.
    pub queue: u32,
    flags: u32,
}

impl Info {
    pub fn is_read_only(&self) -> bool {
        self.flags & 1 != 0
    }
}

/// `struct unilith_block_request`.
#[repr(C)]
struct Request {
    buffer: *mut u8,
    sector: u64,
    tag: u64,
    sectors: u32,
    operation: u32,
}

/// `struct unilith_block_completion`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Completion {
    tag: u64,
    result: i32,
    reserved: u32,
}

/// What a disk is asked for; a flush has an empty buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Operation {
    Read = 0,
    Write = 1,
    /// Done when all that was done before it was submitted is on stable storage.
    Flush = 2,
}

/// A request that is done, with the buffer that the disk had.
pub struct Done {
    pub tag: usize,
    pub buffer: &'static mut [u8],
    pub result: Result<(), Errno>,
}

/// A request that was not taken, with its buffer.
pub struct Refused {
    pub buffer: &'static mut [u8],
    /// None: the queue is full; take what is done and submit it again.
    pub why: Option<Errno>,
}

/// A disk that this program has, and the requests that it does.
pub struct Queue {
    number: u32,
    info: Info,
    /// Buffers that the disk has. They live as long as the program: whatever becomes of this, the disk may write to them.
    buffers: [Option<&'static mut [u8]>; QUEUE],
}

impl Queue {
    /// The disks of the machine, which are numbered from 0.
    pub fn count() -> usize {
        answer(sys::unilith_blockdev_count()).unwrap_or(0)
    }

    /// Takes a disk until the machine ends. `ENODEV`: there is none of this number; `EBUSY`: it is open already; `ENOMEM`.
    pub fn open(number: u32) -> Result<Queue, Errno> {
        let mut info = Info::default();
        // SAFETY: a place for the answer.
        answer(unsafe { sys::unilith_blockdev_open(number, &raw mut info) })?;
        Ok(Queue { number, info, buffers: [const { None }; QUEUE] })
    }

    pub fn info(&self) -> &Info {
        &self.info
    }

    /// Gives the disk a request, by whose tag it comes back. A buffer has whole sectors.
    pub fn submit(
        &mut self,
        operation: Operation,
        sector: u64,
        buffer: &'static mut [u8],
    ) -> Result<usize, Refused> {
        let Some(tag) = self.buffers.iter().position(Option::is_none) else {
            return Err(Refused { buffer, why: None });
        };
        let size = self.info.sector_size.max(1) as usize;
        let sectors = u32::try_from(buffer.len() / size);
        let (true, Ok(sectors)) = (buffer.len().is_multiple_of(size), sectors) else {
            return Err(Refused { buffer, why: Some(Errno::EINVAL) });
        };
        let request = Request {
            buffer: buffer.as_mut_ptr(),
            sector,
            tag: tag as u64,
            sectors,
            operation: operation as u32,
        };
        // SAFETY: one request; its buffer is kept until it is done, and lives for ever.
        match answer(unsafe { sys::unilith_blockdev_submit(self.number, &raw const request, 1) }) {
            Ok(1) => {
                self.buffers[tag] = Some(buffer);
                Ok(tag)
            }
            Ok(_) => Err(Refused { buffer, why: None }),
            Err(why) => Err(Refused { buffer, why: Some(why) }),
        }
    }

    /// A request that is done; `None` when none is.
    pub fn poll(&mut self) -> Result<Option<Done>, Errno> {
        let mut completion = Completion::default();
        // SAFETY: a place for one completion.
        if answer(unsafe { sys::unilith_blockdev_poll(self.number, &raw mut completion, 1) })? == 0 {
            return Ok(None);
        }
        let tag = completion.tag as usize;
        // Tags are those of `submit`.
        let buffer = self.buffers.get_mut(tag).and_then(Option::take).ok_or(Errno::EIO)?;
        let result = if completion.result < 0 { Err(Errno(-completion.result)) } else { Ok(()) };
        Ok(Some(Done { tag, buffer, result }))
    }

    /// Sleeps until a request is done: true, or false when the time has passed or the disk has no request. `EINTR`: a signal
    /// came.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<bool, Errno> {
        answer(sys::unilith_blockdev_wait(self.number, nanoseconds(timeout))).map(|done| done > 0)
    }
}
