// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What TCP keeps: bytes to send, bytes received, and what came out of order. Nothing is allocated for an idle
//! connection.

use crate::seq;
use abi::{Result, errno::ENOMEM};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_netdev::{Buffer, Fragment};
use core::ops::Range;

/// Small writes are gathered in pieces of up to this size.
const PIECE: usize = 16 * 1024;
/// Up to here a segment's bytes are copied into the packet rather than referred to: a descriptor costs more.
pub const COPY_MAX: usize = 1024;
/// Out-of-order pieces of a connection; more than a window of small segments is an attack on our memory.
const MAX_PIECES: usize = 1024;

struct Chunk {
    memory: Arc<Vec<u8>>,
    start: usize,
}

/// Bytes not acknowledged yet, sent or not, in shared pieces that packets in flight refer to.
#[derive(Default)]
pub struct SendQueue {
    chunks: VecDeque<Chunk>,
    length: usize,
}

impl SendQueue {
    pub fn len(&self) -> usize {
        self.length
    }

    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Takes over a large piece.
    pub fn push(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.length += bytes.len();
            self.chunks.push_back(Chunk { memory: Arc::new(bytes), start: 0 });
        }
    }

    /// Copies a small piece; false when there is no memory.
    pub fn append(&mut self, bytes: &[u8]) -> bool {
        if let Some(last) = self.chunks.back_mut()
            && let Some(memory) = Arc::get_mut(&mut last.memory)
            && memory.len() + bytes.len() <= PIECE
            && memory.reserve_fallibly(bytes.len()).is_ok()
        {
            memory.extend_from_slice(bytes);
        } else {
            let mut memory = Vec::new();
            let length = bytes.len().next_power_of_two().max(128);
            if memory.reserve_exact_fallibly(length).is_err() || self.chunks.reserve_fallibly(1).is_err() {
                return false;
            }
            memory.extend_from_slice(bytes);
            self.chunks.push_back(Chunk { memory: Arc::new(memory), start: 0 });
        }
        self.length += bytes.len();
        true
    }

    /// Forgets the first `count` bytes: they were acknowledged.
    pub fn consume(&mut self, mut count: usize) {
        self.length -= count.min(self.length);
        while count > 0 {
            let Some(first) = self.chunks.front_mut() else { return };
            let there = first.memory.len() - first.start;
            if count < there {
                first.start += count;
                return;
            }
            count -= there;
            self.chunks.pop_front();
        }
    }

    /// The pieces that make up `length` bytes from `offset` on.
    fn pieces(
        &self,
        mut offset: usize,
        length: usize,
    ) -> impl Iterator<Item = (&Arc<Vec<u8>>, Range<usize>)> {
        let mut left = length;
        self.chunks.iter().filter_map(move |chunk| {
            let there = chunk.memory.len() - chunk.start;
            if left == 0 || offset >= there {
                offset = offset.saturating_sub(there);
                return None;
            }
            let start = chunk.start + offset;
            let count = left.min(there - offset);
            offset = 0;
            left -= count;
            Some((&chunk.memory, start..start + count))
        })
    }

    /// Copies `length` bytes from `offset` on behind what the buffer holds.
    pub fn copy(&self, offset: usize, length: usize, to: &mut Buffer) -> bool {
        self.pieces(offset, length).all(|(memory, range)| to.append(&memory[range]))
    }

    /// References to up to `length` bytes from `offset` on in at most `most` pieces, and how many bytes they are.
    pub fn refer(&self, offset: usize, length: usize, most: usize) -> (Vec<Fragment>, usize) {
        let (mut total, mut fragments) = (0, Vec::new());
        // Without memory for them none are referred to, and the caller copies.
        if fragments.reserve_exact_fallibly(most.min(self.chunks.len())).is_ok() {
            fragments.extend(self.pieces(offset, length).take(most).map(|(memory, range)| {
                total += range.len();
                Fragment::new(memory.clone(), range)
            }));
        }
        (fragments, total)
    }
}

/// Bytes in order that the program has not read yet, in the buffers they arrived in.
#[derive(Default)]
pub struct ReceiveQueue {
    buffers: VecDeque<Buffer>,
    length: usize,
}

impl ReceiveQueue {
    pub fn len(&self) -> usize {
        self.length
    }

    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Makes room for one more buffer; false when there is no memory for it.
    pub fn reserve(&mut self) -> bool {
        self.buffers.reserve_fallibly(1).is_ok()
    }

    /// Takes a buffer over, or copies it behind the last one where it fits and gives it back. Callers made room for it
    /// ([`ReceiveQueue::reserve`]).
    pub fn push(&mut self, buffer: Buffer) -> Option<Buffer> {
        self.length += buffer.len();
        if let Some(last) = self.buffers.back_mut()
            && last.append(buffer.bytes())
        {
            return Some(buffer);
        }
        if buffer.is_empty() {
            return Some(buffer);
        }
        self.buffers.push_back(buffer);
        None
    }

    /// Takes the first buffer out.
    pub fn pop(&mut self) -> Option<Buffer> {
        let buffer = self.buffers.pop_front()?;
        self.length -= buffer.len();
        Some(buffer)
    }

    /// Puts the rest of a buffer back.
    pub fn push_front(&mut self, buffer: Buffer) {
        self.length += buffer.len();
        self.buffers.push_front(buffer);
    }

    /// Up to `most` bytes behind the first `skip`, copied.
    pub fn peek(&self, mut skip: usize, most: usize) -> Result<Vec<u8>> {
        let most = most.min(self.length.saturating_sub(skip));
        let mut out = Vec::new();
        out.reserve_exact_fallibly(most).map_err(|_| ENOMEM)?;
        for buffer in &self.buffers {
            let skipped = skip.min(buffer.len());
            skip -= skipped;
            let bytes = &buffer.bytes()[skipped..];
            out.extend_from_slice(&bytes[..bytes.len().min(most - out.len())]);
        }
        Ok(out)
    }

    pub fn clear(&mut self) {
        *self = ReceiveQueue::default();
    }
}

/// What came out of order, sorted, without overlaps.
#[derive(Default)]
pub struct OutOfOrder {
    pieces: VecDeque<(u32, Buffer)>,
    bytes: usize,
    /// Sequence number of the piece that came last: the first SACK block holds it (RFC 2018 4).
    latest: u32,
}

impl OutOfOrder {
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Keeps a piece; what is there already is cut off it. Gives the buffer back when nothing of it is new, or there is no
    /// memory for it: then it comes again.
    pub fn insert(&mut self, mut start: u32, mut buffer: Buffer) -> Option<Buffer> {
        self.latest = start;
        let mut end = start.wrapping_add(buffer.len() as u32);
        let at = self.pieces.partition_point(|(s, _)| seq::le(*s, start));
        if let Some((s, before)) = at.checked_sub(1).map(|i| &self.pieces[i]) {
            let covered = s.wrapping_add(before.len() as u32);
            if seq::le(end, covered) {
                return Some(buffer);
            }
            let overlap = seq::ahead(start, covered);
            buffer.trim_front(overlap as usize);
            start = start.wrapping_add(overlap);
        }
        while let Some((s, after)) = self.pieces.get(at) {
            let after_end = s.wrapping_add(after.len() as u32);
            if seq::le(end, *s) {
                break;
            }
            if seq::lt(end, after_end) {
                buffer.truncate(s.wrapping_sub(start) as usize);
                end = *s;
                break;
            }
            let (_, gone) = self.pieces.remove(at)?;
            self.bytes -= gone.len();
        }
        let _ = end;
        let has_room = self.pieces.len() < MAX_PIECES && self.pieces.reserve_fallibly(1).is_ok();
        if buffer.is_empty() || !has_room {
            return Some(buffer);
        }
        self.bytes += buffer.len();
        self.pieces.insert(at, (start, buffer));
        None
    }

    /// The piece that continues at `next`, cut to begin there. Pieces wholly before it go.
    pub fn take(&mut self, next: u32) -> Option<Buffer> {
        loop {
            let (start, first) = self.pieces.front()?;
            if seq::lt(next, *start) {
                return None;
            }
            let behind = seq::ahead(*start, next) as usize;
            let stale = behind >= first.len();
            let (_, mut buffer) = self.pieces.pop_front()?;
            self.bytes -= buffer.len();
            if !stale {
                buffer.trim_front(behind);
                return Some(buffer);
            }
        }
    }

    /// SACK blocks, the latest first; how many there are.
    pub fn blocks(&self, most: usize, blocks: &mut [(u32, u32)]) -> usize {
        let mut count = 0;
        let mut found_latest = false;
        let mut pieces = self.pieces.iter().peekable();
        while let Some((start, buffer)) = pieces.next() {
            let mut end = start.wrapping_add(buffer.len() as u32);
            while let Some((_, more)) = pieces.next_if(|(s, _)| *s == end) {
                end = end.wrapping_add(more.len() as u32);
            }
            let latest = seq::le(*start, self.latest) && seq::lt(self.latest, end);
            if latest && !found_latest {
                found_latest = true;
                if count == most {
                    count -= 1;
                }
                blocks[..=count].rotate_right(1);
                blocks[0] = (*start, end);
                count += 1;
            } else if count < most {
                blocks[count] = (*start, end);
                count += 1;
            }
        }
        count
    }

    pub fn clear(&mut self) {
        *self = OutOfOrder::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(bytes: &[u8]) -> Buffer {
        let mut b = Buffer::new(64, 0).unwrap();
        assert!(b.append(bytes));
        b
    }

    #[test]
    fn sent_bytes_are_found_again_at_any_offset() {
        let mut queue = SendQueue::default();
        queue.push(Vec::from(*b"large piece "));
        queue.push(Vec::from(*b"small "));
        assert!(queue.append(b"pieces"));
        queue.consume(6);
        let mut out = Buffer::new(64, 0).unwrap();
        assert!(queue.copy(3, 9, &mut out));
        assert_eq!(out.bytes(), b"ce small ");
        let (fragments, length) = queue.refer(0, 18, 1);
        assert_eq!((fragments.len(), length, fragments[0].bytes()), (1, 6, &b"piece "[..]));
        // A piece in flight must not change: the next bytes go to a new one.
        let (held, _) = queue.refer(6, 12, 9);
        assert!(queue.append(b"!"));
        assert_eq!(held.iter().map(|f| f.bytes().len()).sum::<usize>(), 12);
        queue.consume(18);
        assert_eq!(queue.len(), 1);
    }

    #[test]
    fn pieces_out_of_order_come_back_in_order_and_once() {
        let text = b"abcdefghijklmnopqrstuvwxyz";
        // Every pair of overlapping ranges in both orders, around the wrap of sequence numbers.
        for (a, b) in
            [(2..9, 5..12), (5..12, 2..9), (2..20, 5..9), (5..9, 2..20), (3..8, 8..12), (3..8, 3..8)]
        {
            let base = u32::MAX - 6;
            let mut queue = OutOfOrder::default();
            let (start, end) = (a.start.min(b.start), a.end.max(b.end));
            for range in [a, b] {
                queue.insert(base.wrapping_add(range.start as u32), buffer(&text[range]));
            }
            let mut blocks = [(0, 0); 4];
            assert_eq!(queue.blocks(3, &mut blocks), 1);
            assert_eq!(blocks[0], (base.wrapping_add(start as u32), base.wrapping_add(end as u32)));
            let mut next = base.wrapping_add(start as u32);
            let mut out = Vec::new();
            while let Some(piece) = queue.take(next) {
                next = next.wrapping_add(piece.len() as u32);
                out.extend_from_slice(piece.bytes());
            }
            assert_eq!(out, &text[start..end]);
            assert_eq!(queue.bytes(), 0);
        }
    }

    #[test]
    fn the_first_sack_block_is_the_latest_one() {
        let mut queue = OutOfOrder::default();
        for start in [10u32, 20, 40, 30] {
            queue.insert(start, buffer(b"xxx"));
        }
        let mut blocks = [(0, 0); 4];
        assert_eq!(queue.blocks(3, &mut blocks), 3);
        assert_eq!(blocks[0], (30, 33));
        assert!(blocks[1..3].contains(&(10, 13)) && blocks[1..3].contains(&(20, 23)));
    }
}
