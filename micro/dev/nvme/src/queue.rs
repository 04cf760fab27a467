// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A pair of queues: commands go to the controller in one ring and come back as completions in another (NVMe 4.1).

use crate::command::{Command, WORDS, numbered};
use crate::controller::Hardware;
use crate::register::Capabilities;
use crate::shared::Shared;
use abi::Result;
use core::sync::atomic::{Ordering, fence};

/// Words of an entry of the completion queue.
const COMPLETION_WORDS: usize = 4;
/// In its last word: the entry is new when this differs from the last round's.
const PHASE: u32 = 1 << 16;

/// A completion as the controller wrote it, unchecked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The command's number.
    pub id: u16,
    pub status: Status,
    /// Command specific.
    pub result: u32,
}

/// The status of a command (NVMe 4.6.1): 0 when it was done, else a code in the low 8 bits and its type in the next three.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Status(pub u16);

impl Status {
    pub const OK: Status = Status(0);
    pub const INVALID_OPCODE: Status = Status(0x001);
    pub const INVALID_FIELD: Status = Status(0x002);
    pub const WRITE_PROTECTED: Status = Status(0x020);
    pub const CAPACITY_EXCEEDED: Status = Status(0x081);
}

impl core::fmt::Debug for Status {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "status {:#x} of type {}", self.0 & 0xff, self.0 >> 8)
    }
}

/// Not shared: the driver puts it behind its lock. The caller has at most [`Pair::limit`] commands in flight, fewer than either ring has
/// entries: so no command overwrites one that the controller has not fetched, and no completion one that was not taken.
pub struct Pair {
    entries: usize,
    submission: Shared,
    completion: Shared,
    /// Where the next command goes, and up to where the controller was told.
    tail: usize,
    told: usize,
    /// Where the next completion comes.
    head: usize,
    /// What [`PHASE`] is in a new entry.
    phase: bool,
    /// Completions that were taken and whose room the controller was not given back.
    unacknowledged: usize,
    limit: usize,
    submission_doorbell: u32,
    completion_doorbell: u32,
}

impl Pair {
    /// Queue `queue` of so many entries, two at least, for `limit` commands in flight, fewer than entries.
    pub fn new(queue: u16, entries: usize, limit: usize, capabilities: Capabilities) -> Result<Pair> {
        Ok(Pair {
            entries,
            submission: Shared::new(entries * WORDS * 4)?,
            completion: Shared::new(entries * COMPLETION_WORDS * 4)?,
            tail: 0,
            told: 0,
            head: 0,
            phase: true,
            unacknowledged: 0,
            limit,
            submission_doorbell: capabilities.doorbell(queue, false),
            completion_doorbell: capabilities.doorbell(queue, true),
        })
    }

    pub fn submission(&self) -> *const u8 {
        self.submission.start()
    }

    pub fn completion(&self) -> *const u8 {
        self.completion.start()
    }

    /// Puts a command into the queue under a number that no other one in flight has.
    pub fn push(&mut self, command: Command, id: u16) {
        for (n, word) in numbered(command, id).into_iter().enumerate() {
            self.submission.word(self.tail * WORDS + n).store(word, Ordering::Relaxed);
        }
        self.tail = (self.tail + 1) % self.entries;
    }

    /// Tells the controller of the commands.
    pub fn notify(&mut self, hardware: &impl Hardware) {
        if self.told != self.tail {
            self.told = self.tail;
            // Commands and data are in memory before the controller is told.
            fence(Ordering::SeqCst);
            hardware.write(self.submission_doorbell, self.tail as u32);
        }
    }

    /// The next completion, if there is one.
    pub fn pop(&mut self, hardware: &impl Hardware) -> Option<Answer> {
        if !self.has_completion() {
            self.acknowledge(hardware);
            return None;
        }
        let at = self.head * COMPLETION_WORDS;
        let last = self.completion.word(at + 3).load(Ordering::Acquire);
        let result = self.completion.word(at).load(Ordering::Relaxed);
        self.head = (self.head + 1) % self.entries;
        self.phase ^= self.head == 0;
        self.unacknowledged += 1;
        // What is in flight fits beside those that were not acknowledged, so that a burst has one doorbell.
        if self.unacknowledged + self.limit >= self.entries {
            self.acknowledge(hardware);
        }
        // Bits 28 to 31 say whether to try again and where to read more: nobody does.
        Some(Answer { id: last as u16, status: Status((last >> 17) as u16 & 0x7ff), result })
    }

    pub fn has_completion(&self) -> bool {
        let last = self.completion.word(self.head * COMPLETION_WORDS + 3).load(Ordering::Acquire);
        (last & PHASE != 0) == self.phase
    }

    fn acknowledge(&mut self, hardware: &impl Hardware) {
        if core::mem::take(&mut self.unacknowledged) > 0 {
            // The entries were read before the controller may write them again.
            fence(Ordering::SeqCst);
            hardware.write(self.completion_doorbell, self.head as u32);
        }
    }
}
