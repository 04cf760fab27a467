// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pairs of interfaces (veth(4)): what leaves by one end comes in at the other, which may be another stack's.
//!
//! A frame goes into the other stack's backlog, which is taken when that stack is polled: no stack ever calls into another one.

use crate::stack::Net;
use alloc::collections::VecDeque;
use alloc::sync::{Arc, Weak};
use api_alloc::Reserve;
use api_lock::SpinLock;
use api_netdev::Buffer;
use core::sync::atomic::{AtomicBool, Ordering};

/// Frames that wait for a stack at most (Linux' net.core.netdev_max_backlog), and their bytes.
const MAX_FRAMES: usize = 1000;
const MAX_BYTES: usize = 4 << 20;

#[derive(Default)]
struct Waiting {
    frames: VecDeque<(u32, Buffer)>,
    bytes: usize,
}

/// Frames that wait for a stack, with the interfaces that they came to.
#[derive(Default)]
pub struct Backlog {
    waiting: SpinLock<Waiting>,
    /// The other end of one of its pairs is gone, or up or down.
    has_changed: AtomicBool,
}

impl Backlog {
    /// False when there is no room.
    fn push(&self, interface: u32, frame: Buffer) -> bool {
        let mut waiting = self.waiting.lock();
        let size = frame.size();
        let has_room = waiting.frames.len() < MAX_FRAMES && waiting.bytes + size <= MAX_BYTES;
        if !has_room || waiting.frames.reserve_fallibly(1).is_err() {
            return false;
        }
        waiting.bytes += size;
        waiting.frames.push_back((interface, frame));
        true
    }

    pub fn pop(&self) -> Option<(u32, Buffer)> {
        let mut waiting = self.waiting.lock();
        let (interface, frame) = waiting.frames.pop_front()?;
        waiting.bytes -= frame.size();
        Some((interface, frame))
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.lock().frames.is_empty()
    }

    /// Whether something changed since this was asked last.
    pub fn take_change(&self) -> bool {
        self.has_changed.swap(false, Ordering::Relaxed)
    }
}

/// Where a stack is found from outside of its lock.
#[derive(Clone)]
pub struct Place {
    pub net: Weak<Net>,
    pub backlog: Arc<Backlog>,
}

impl Place {
    pub fn is(&self, other: &Place) -> bool {
        Arc::ptr_eq(&self.backlog, &other.backlog)
    }
}

/// One end as the other one sees it.
struct Seen {
    place: Place,
    index: u32,
    is_up: bool,
}

#[derive(Default)]
struct Pair {
    ends: [Option<Seen>; 2],
    /// An end went, and the other one is to follow.
    is_ended: bool,
}

/// One end, which its interface owns: when it goes, the other interface does, too.
pub struct End {
    pair: Arc<SpinLock<Pair>>,
    side: usize,
}

/// The two ends of a new pair.
pub fn pair() -> [End; 2] {
    let pair: Arc<SpinLock<Pair>> = Arc::default();
    [0, 1].map(|side| End { pair: pair.clone(), side })
}

impl End {
    /// The interface is that one of that stack from now on.
    pub fn settle_at(&self, place: &Place, index: u32, is_up: bool) {
        self.pair.lock().ends[self.side] = Some(Seen { place: place.clone(), index, is_up });
        self.tell_both();
    }

    pub fn set_up(&self, is_up: bool) {
        if let Some(own) = &mut self.pair.lock().ends[self.side] {
            own.is_up = is_up;
        }
        self.tell_both();
    }

    /// The other end's stack and index; `None`: it is gone.
    pub fn other(&self) -> Option<(Place, u32)> {
        self.pair.lock().ends[1 - self.side].as_ref().map(|seen| (seen.place.clone(), seen.index))
    }

    /// The other end's index, and whether that is another stack's.
    pub fn shown(&self) -> Option<(u32, bool)> {
        let pair = self.pair.lock();
        let [own, other] = [self.side, 1 - self.side].map(|side| pair.ends[side].as_ref());
        let (own, other) = (own?, other?);
        Some((other.index, !own.place.is(&other.place)))
    }

    /// Whether the other end went.
    pub fn is_ended(&self) -> bool {
        self.pair.lock().is_ended
    }

    /// Whether both ends are up.
    pub fn has_carrier(&self) -> bool {
        self.pair.lock().ends.iter().all(|end| end.as_ref().is_some_and(|end| end.is_up))
    }

    /// A frame leaves: into the backlog of the other end's stack.
    pub fn transmit(&self, frame: Buffer) -> bool {
        let pair = self.pair.lock();
        match &pair.ends[1 - self.side] {
            Some(other) if other.is_up => other.place.backlog.push(other.index, frame),
            _ => false,
        }
    }

    /// The other stack has something to do; called without any stack's lock.
    pub fn wake_other(place: &Place) {
        if let Some(net) = place.net.upgrade() {
            net.host.soon();
        }
    }

    /// Both stacks look at their ends again.
    fn tell_both(&self) {
        for end in self.pair.lock().ends.iter().flatten() {
            end.place.backlog.has_changed.store(true, Ordering::Relaxed);
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let other = {
            let mut pair = self.pair.lock();
            let own = pair.ends[self.side].take();
            pair.is_ended = true;
            let other = pair.ends[1 - self.side].as_ref().map(|seen| seen.place.clone());
            drop(pair);
            // A place may be the last to know of its backlog, whose frames are freed here.
            drop(own);
            other
        };
        if let Some(place) = other {
            place.backlog.has_changed.store(true, Ordering::Relaxed);
            End::wake_other(&place);
        }
    }
}
