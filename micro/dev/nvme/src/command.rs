// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands: the 16 words of an entry of a submission queue (NVMe 4.2).

/// Words of a command.
pub const WORDS: usize = 16;
pub type Command = [u32; WORDS];

// Admin commands (NVMe 5).
const CREATE_SUBMISSION: u32 = 0x01;
const CREATE_COMPLETION: u32 = 0x05;
const IDENTIFY: u32 = 0x06;
const SET_FEATURES: u32 = 0x09;
// NVM commands (NVMe 6).
const FLUSH: u32 = 0x00;
const WRITE: u32 = 0x01;
const READ: u32 = 0x02;

/// Feature "number of queues" (NVMe 5.21.1.7).
const NUMBER_OF_QUEUES: u32 = 0x07;
/// The queue is physically contiguous, in both commands that create one; its interrupts are on (NVMe 5.3).
const CONTIGUOUS: u32 = 1 << 0;
const INTERRUPTS: u32 = 1 << 1;

/// What Identify is asked for (NVMe 5.15.1).
pub const OF_NAMESPACE: u32 = 0x00;
pub const OF_CONTROLLER: u32 = 0x01;
pub const ACTIVE_NAMESPACES: u32 = 0x02;

/// Where the data of a command is (NVMe 4.3): the first page or piece of one, and the second page, or a list of all others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prp(pub u64, pub u64);

fn command(operation: u32, namespace: u32, prp: Prp, words: [u32; 3]) -> Command {
    let mut command = [0; WORDS];
    (command[0], command[1]) = (operation, namespace);
    (command[6], command[7]) = (prp.0 as u32, (prp.0 >> 32) as u32);
    (command[8], command[9]) = (prp.1 as u32, (prp.1 >> 32) as u32);
    command[10..13].copy_from_slice(&words);
    command
}

/// The command with its number.
pub fn numbered(mut command: Command, id: u16) -> Command {
    command[0] |= u32::from(id) << 16;
    command
}

pub fn identify(what: u32, namespace: u32, to: u64) -> Command {
    command(IDENTIFY, namespace, Prp(to, 0), [what, 0, 0])
}

/// Asks for so many pairs of I/O queues.
pub fn set_queues(pairs: u16) -> Command {
    let less = u32::from(pairs).saturating_sub(1);
    command(SET_FEATURES, 0, Prp::default(), [NUMBER_OF_QUEUES, less << 16 | less, 0])
}

/// Pairs that were granted: the smaller of both numbers, which are less one each.
pub fn granted_queues(answer: u32) -> u32 {
    (answer & 0xffff).min(answer >> 16) + 1
}

/// `message`: which entry of the MSI-X table interrupts; without one there are no interrupts.
pub fn create_completion(queue: u16, entries: usize, at: u64, message: Option<u16>) -> Command {
    let interrupts = message.map_or(0, |entry| INTERRUPTS | u32::from(entry) << 16);
    command(CREATE_COMPLETION, 0, Prp(at, 0), [size(queue, entries), CONTIGUOUS | interrupts, 0])
}

/// Its completions go to the completion queue of the same number.
pub fn create_submission(queue: u16, entries: usize, at: u64) -> Command {
    command(CREATE_SUBMISSION, 0, Prp(at, 0), [size(queue, entries), CONTIGUOUS | u32::from(queue) << 16, 0])
}

fn size(queue: u16, entries: usize) -> u32 {
    (entries as u32 - 1) << 16 | u32::from(queue)
}

pub fn flush(namespace: u32) -> Command {
    command(FLUSH, namespace, Prp::default(), [0; 3])
}

/// Reads or writes `blocks` blocks, at least one and at most 65,536.
pub fn transfer(is_read: bool, namespace: u32, first: u64, blocks: u32, prp: Prp) -> Command {
    let operation = if is_read { READ } else { WRITE };
    command(
        operation,
        namespace,
        prp,
        [first as u32, (first >> 32) as u32, blocks.saturating_sub(1) & 0xffff],
    )
}
