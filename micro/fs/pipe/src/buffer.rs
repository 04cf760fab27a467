// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bytes in pages, first in, first out.

use abi::{PAGE_SIZE, Result, errno::ENOMEM};
use alloc::collections::VecDeque;
use api_alloc::Reserve;
use api_mem::PageFrame;

/// A run of bytes inside one page.
pub struct Segment {
    pub frame: PageFrame,
    pub start: usize,
    pub end: usize,
    /// One write of packet mode: one read takes it, and what it does not take is lost.
    pub packet: bool,
}

#[derive(Default)]
pub struct Buffer {
    segments: VecDeque<Segment>,
    length: usize,
    /// One page kept for the next write, so that a steady exchange allocates nothing.
    spare: Option<PageFrame>,
}

impl Buffer {
    pub fn length(&self) -> usize {
        self.length
    }

    /// The first run of bytes.
    pub fn front(&self) -> Option<Segment> {
        self.segments.front().map(|s| Segment { frame: s.frame.clone(), ..*s })
    }

    /// The run that starts `skip` runs behind the first, for tee.
    pub fn at(&self, skip: usize) -> Option<Segment> {
        self.segments.get(skip).map(|s| Segment { frame: s.frame.clone(), ..*s })
    }

    /// Where the next bytes go: behind the last ones in their page, or in a spare page (`None`: allocate one).
    pub fn tail(&mut self) -> Option<(PageFrame, usize)> {
        match self.segments.back() {
            Some(last) if last.end < PAGE_SIZE && !last.packet => Some((last.frame.clone(), last.end)),
            _ => self.spare(),
        }
    }

    /// The spare page, for a write that shares none.
    pub fn spare(&mut self) -> Option<(PageFrame, usize)> {
        self.spare.take().map(|frame| (frame, 0))
    }

    /// Adds `n` bytes that were put into `frame` at `start`.
    pub fn push(&mut self, frame: PageFrame, start: usize, n: usize, packet: bool) -> Result<()> {
        self.length += n;
        if let Some(last) = self.segments.back_mut()
            && last.end == start
            && last.frame == frame
        {
            last.end += n;
            return Ok(());
        }
        if self.segments.reserve_fallibly(1).is_err() {
            self.length -= n;
            return Err(ENOMEM);
        }
        self.segments.push_back(Segment { frame, start, end: start + n, packet });
        Ok(())
    }

    /// Gives back a page from [`Buffer::tail`] that was not used.
    pub fn keep(&mut self, frame: PageFrame) {
        if self.spare.is_none() && frame.is_unique() {
            self.spare = Some(frame);
        }
    }

    /// Removes `n` bytes from the front, all of one run.
    pub fn consume(&mut self, n: usize) {
        let Some(first) = self.segments.front_mut() else { return };
        let n = n.min(first.end - first.start);
        first.start += n;
        self.length -= n;
        if first.start == first.end
            && let Some(gone) = self.segments.pop_front()
        {
            self.keep(gone.frame);
        }
    }
}
