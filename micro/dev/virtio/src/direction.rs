// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Buffers of the kernel heap on their way through a queue.

use crate::{Area, Queue};
use alloc::vec::Vec;

/// Bytes with a queue they go through, by token.
pub(crate) struct Direction {
    pub queue: Queue,
    buffers: Vec<Option<Vec<u8>>>,
}

impl Direction {
    pub fn new(queue: Queue) -> Direction {
        Direction { buffers: (0..queue.size()).map(|_| None).collect(), queue }
    }

    /// Gives the device a buffer, to be written or to be read; the buffer comes back when there is no room.
    pub fn give(&mut self, mut buffer: Vec<u8>, to_write: bool) -> core::result::Result<(), Vec<u8>> {
        let Some(token) = self.buffers.iter().position(Option::is_none) else { return Err(buffer) };
        let area = if to_write { Area::of_mut(&mut buffer) } else { Area::of(&buffer) };
        let (read, write): (&[Area], &[Area]) = if to_write { (&[], &[area]) } else { (&[area], &[]) };
        // SAFETY: the buffer is kept in `buffers`, untouched, until the device gave it back; moving the vector does
        // not move what it holds.
        match unsafe { self.queue.add(read, write, token) } {
            Ok(()) => {
                self.buffers[token] = Some(buffer);
                Ok(())
            }
            Err(_) => Err(buffer),
        }
    }

    /// A buffer the device is done with, and how much of it was written.
    pub fn take(&mut self) -> Option<(Vec<u8>, usize)> {
        loop {
            let used = self.queue.pop()?;
            if let Some(buffer) = self.buffers.get_mut(used.token).and_then(Option::take) {
                let written = (used.written as usize).min(buffer.len());
                return Some((buffer, written));
            }
        }
    }
}
