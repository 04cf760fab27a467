// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Block devices: requests for whole sectors in an asynchronous queue, from and to pages that the caller holds.
//!
//! # Contract
//!
//! What a caller must not rely on comes first.
//!
//! - Requests that are in the queue together are done in any order, two for the same sector among them. What was
//!   completed before a flush was submitted is on stable storage when the flush completes; nothing else is.
//! - The device checks nothing that the caller can check: a request lies within [`Info::sectors`], its memory is
//!   `sectors * Info::sector_size` bytes long and [`Info::largest`] at most, and a device that is read-only gets no write.
//! - [`BlockDevice::submit`] only queues. Nothing need reach the device before [`BlockDevice::notify`], so that a burst has
//!   one doorbell; a caller that has submitted must notify in bounded time.
//! - A queue that is full hands the request back.
//! - The memory of a request stays held until its completion was taken with [`BlockDevice::complete`], whatever
//!   becomes of the program's mapping. A device that broke the protocol may still write to it: that memory is never freed.
//! - An interrupt is promised after [`BlockDevice::arm_interrupt`] alone; a device may interrupt without it. The interrupt handler touches atomics only and raises the deferred work
//!   registered with [`BlockDevice::on_interrupt`].
//! - No function blocks on another thread. On a process machine `submit` is a call of the host, which may read from its disk.
//! - What a device says of a request is untrusted: a completion is an error unless all bytes were transferred.
#![no_std]
#![forbid(unsafe_code)]

use abi::Result;
use api_mem::Gather;
use api_sched::DeferredWork;

/// Bytes of a sector of most devices, and of no device fewer: the unit of every request to a virtio device (virtio 1.2, 5.2.4, "capacity").
pub const SECTOR: usize = 512;
/// Requests in a device's queue at most.
pub const QUEUE: usize = 64;
/// Bytes of one request at most: what a disk reads at once without seeking, and few descriptors of a ring.
pub const MAX_REQUEST: usize = 128 << 10;

/// What a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Its capacity.
    pub sectors: u64,
    /// Bytes of a sector, the unit of every request: [`SECTOR`], or a larger power of two, a page at most.
    pub sector_size: usize,
    pub read_only: bool,
    /// Bytes of one request at most, a multiple of the sector's.
    pub largest: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The memory is written to.
    Read,
    Write,
    /// Has no sectors and no memory.
    Flush,
}

/// A request to a device. [`Gather::is_written`] is that of the operation.
#[derive(Debug)]
pub struct Request {
    pub operation: Operation,
    pub sector: u64,
    pub memory: Gather,
    /// The caller's name for it, which comes back with the completion.
    pub tag: u64,
}

/// A request the device is done with.
#[derive(Debug)]
pub struct Completion {
    pub tag: u64,
    /// `EIO`, or another error that the host gave.
    pub result: Result<()>,
}

pub trait BlockDevice: Send + Sync {
    fn info(&self) -> Info;

    /// Puts a request into the queue; it comes back when there is no room.
    fn submit(&self, request: Request) -> core::result::Result<(), Request>;

    /// Tells the device of what was submitted.
    fn notify(&self);

    /// The next completion, if there is one.
    fn complete(&self) -> Option<Completion>;

    /// Asks for an interrupt at the next completion. False when there is one already.
    fn arm_interrupt(&self) -> bool;

    /// Interrupts raise `work` from now on. Called once, before the first request.
    fn on_interrupt(&self, work: DeferredWork) -> Result<()>;
}
