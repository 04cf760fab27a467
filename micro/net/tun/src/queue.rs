// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames that wait for a reader.

use alloc::collections::VecDeque;
use api_alloc::Reserve;
use api_lock::SpinLock;
use api_netdev::Buffer;
use api_sched::WaitQueue;

/// Frames of one queue at most (Linux' `TUN_READQ_SIZE`), and their bytes.
pub const MAX_FRAMES: usize = 500;
const MAX_BYTES: usize = 2 << 20;

#[derive(Default)]
struct Waiting {
    frames: VecDeque<Buffer>,
    bytes: usize,
}

/// One queue of an interface: that of one open file.
pub struct Queue {
    waiting: SpinLock<Waiting>,
    /// Woken when a frame comes, and when the interface goes.
    pub wait: WaitQueue,
}

impl Queue {
    pub fn new() -> Queue {
        Queue { waiting: SpinLock::default(), wait: WaitQueue::new() }
    }

    /// False when there is no room.
    pub fn push(&self, frame: Buffer) -> bool {
        let mut waiting = self.waiting.lock();
        let size = frame.size();
        let has_room = waiting.frames.len() < MAX_FRAMES && waiting.bytes + size <= MAX_BYTES;
        if !has_room || waiting.frames.reserve_fallibly(1).is_err() {
            return false;
        }
        waiting.bytes += size;
        waiting.frames.push_back(frame);
        true
    }

    pub fn pop(&self) -> Option<Buffer> {
        let mut waiting = self.waiting.lock();
        let frame = waiting.frames.pop_front()?;
        waiting.bytes -= frame.size();
        Some(frame)
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.lock().frames.is_empty()
    }

    /// The interface goes, or the file leaves it.
    pub fn clear(&self) {
        let gone = core::mem::take(&mut *self.waiting.lock());
        drop(gone);
    }
}

impl Default for Queue {
    fn default() -> Queue {
        Queue::new()
    }
}
