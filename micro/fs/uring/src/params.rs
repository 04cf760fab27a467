// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What io_uring_setup(2) is asked for and answers: `struct io_uring_params`.

use abi::{Result, errno::EINVAL};
use api_user::Plain;

pub const MAX_ENTRIES: u32 = 32768;
pub const MAX_CQ_ENTRIES: u32 = 2 * MAX_ENTRIES;

pub const SETUP_IOPOLL: u32 = 1 << 0;
pub const SETUP_SQPOLL: u32 = 1 << 1;
pub const SETUP_SQ_AFF: u32 = 1 << 2;
pub const SETUP_CQSIZE: u32 = 1 << 3;
pub const SETUP_CLAMP: u32 = 1 << 4;
pub const SETUP_ATTACH_WQ: u32 = 1 << 5;
pub const SETUP_R_DISABLED: u32 = 1 << 6;
pub const SETUP_SUBMIT_ALL: u32 = 1 << 7;
pub const SETUP_COOP_TASKRUN: u32 = 1 << 8;
pub const SETUP_TASKRUN_FLAG: u32 = 1 << 9;
pub const SETUP_SQE128: u32 = 1 << 10;
pub const SETUP_CQE32: u32 = 1 << 11;
pub const SETUP_SINGLE_ISSUER: u32 = 1 << 12;
pub const SETUP_DEFER_TASKRUN: u32 = 1 << 13;
const SETUP_KNOWN: u32 = (1 << 14) - 1;

/// IORING_FEAT_*: everything that Linux 6.1 has, SINGLE_MMAP (1 << 0) to LINKED_FILE (1 << 12).
const FEATURES: u32 = (1 << 13) - 1;

pub const OFFSET_SQ_RING: u64 = 0;
pub const OFFSET_CQ_RING: u64 = 0x800_0000;
pub const OFFSET_SQES: u64 = 0x1000_0000;

/// `struct io_sqring_offsets`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct SqOffsets {
    pub head: u32,
    pub tail: u32,
    pub ring_mask: u32,
    pub ring_entries: u32,
    pub flags: u32,
    pub dropped: u32,
    pub array: u32,
    pub reserved: [u32; 3],
}

/// `struct io_cqring_offsets`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CqOffsets {
    pub head: u32,
    pub tail: u32,
    pub ring_mask: u32,
    pub ring_entries: u32,
    pub overflow: u32,
    pub cqes: u32,
    pub flags: u32,
    pub reserved: [u32; 3],
}

/// `struct io_uring_params`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Params {
    pub sq_entries: u32,
    pub cq_entries: u32,
    pub flags: u32,
    pub sq_thread_cpu: u32,
    pub sq_thread_idle: u32,
    pub features: u32,
    pub wq_fd: u32,
    pub reserved: [u32; 3],
    pub sq: SqOffsets,
    pub cq: CqOffsets,
}

// SAFETY: integers without padding.
#[allow(unsafe_code)]
unsafe impl Plain for Params {}

/// Rounds up to a power of two within `most`; `EINVAL` for 0, and beyond `most` unless the caller clamps.
fn entries(asked: u32, most: u32, clamps: bool) -> Result<u32> {
    match asked {
        0 => Err(EINVAL),
        n if n > most && clamps => Ok(most),
        n if n > most => Err(EINVAL),
        n => Ok(n.next_power_of_two()),
    }
}

impl Params {
    pub fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Checks the flags and fixes the sizes of both rings, in Linux' order.
    pub fn fix(&mut self, asked: u32) -> Result<()> {
        if self.reserved != [0; 3] || self.flags & !SETUP_KNOWN != 0 {
            return Err(EINVAL);
        }
        let clamps = self.has(SETUP_CLAMP);
        self.sq_entries = entries(asked, MAX_ENTRIES, clamps)?;
        self.cq_entries = match self.has(SETUP_CQSIZE) {
            true => entries(self.cq_entries, MAX_CQ_ENTRIES, clamps)?,
            false => 2 * self.sq_entries,
        };
        if self.cq_entries < self.sq_entries {
            return Err(EINVAL);
        }
        let runs_tasks = self.has(SETUP_COOP_TASKRUN) || self.has(SETUP_DEFER_TASKRUN);
        if self.has(SETUP_TASKRUN_FLAG) && !runs_tasks
            || self.has(SETUP_SQPOLL) && runs_tasks
            || self.has(SETUP_DEFER_TASKRUN) && !self.has(SETUP_SINGLE_ISSUER)
            || self.has(SETUP_SQ_AFF) && !self.has(SETUP_SQPOLL)
        {
            return Err(EINVAL);
        }
        self.features = FEATURES;
        Ok(())
    }
}
