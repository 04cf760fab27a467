// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The console's ring (`public/io/console.h`). What dom0 writes to its counters moves the place in the ring and nothing else.

use super::event;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, Ordering};

const PFN: u32 = 17;
const EVTCHN: u32 = 18;
const INPUT: usize = 1024;
const OUTPUT: usize = 2048;
// A piece fits the ring when that is empty.
const _: () = assert!(api_plat::CONSOLE_PIECE <= OUTPUT);

/// `xencons_interface`.
#[repr(C)]
struct Ring {
    input: [AtomicU8; INPUT],
    output: [AtomicU8; OUTPUT],
    input_consumed: AtomicU32,
    input_produced: AtomicU32,
    output_consumed: AtomicU32,
    output_produced: AtomicU32,
}

/// The machine's console.
pub struct Console {
    ring: AtomicPtr<Ring>,
    channel: AtomicU32,
}

static CONSOLE: Console = Console { ring: AtomicPtr::new(core::ptr::null_mut()), channel: AtomicU32::new(0) };

/// Asks where it is.
pub fn find() {
    if let Some((ring, channel)) = super::ring::<Ring>(PFN, EVTCHN) {
        CONSOLE.channel.store(channel, Ordering::Relaxed);
        CONSOLE.ring.store(core::ptr::from_ref(ring).cast_mut(), Ordering::Release);
    }
}

pub fn get() -> Option<&'static Console> {
    CONSOLE.ring().map(|_| &CONSOLE)
}

impl Console {
    fn ring(&self) -> Option<&'static Ring> {
        // SAFETY: null, or the ring that `find` was given, which stays.
        unsafe { self.ring.load(Ordering::Acquire).as_ref() }
    }

    /// Nothing is in the ring that was not taken.
    pub fn is_drained(&self) -> bool {
        self.room() == OUTPUT
    }

    /// Bytes that [`Console::write`] takes without waiting. Less than all: there is an event when the reader took some.
    pub fn room(&self) -> usize {
        let Some(ring) = self.ring() else { return OUTPUT };
        let taken = ring.output_consumed.load(Ordering::Acquire);
        OUTPUT.saturating_sub(ring.output_produced.load(Ordering::Relaxed).wrapping_sub(taken) as usize)
    }

    /// Waits while the reader is behind. One writer at a time.
    pub fn write(&self, bytes: &[u8]) {
        let Some(ring) = self.ring() else { return };
        let channel = self.channel.load(Ordering::Relaxed);
        let mut produced = ring.output_produced.load(Ordering::Relaxed);
        for byte in bytes {
            while produced.wrapping_sub(ring.output_consumed.load(Ordering::Acquire)) as usize >= OUTPUT {
                ring.output_produced.store(produced, Ordering::Release);
                event::notify(channel);
                event::give_way();
            }
            ring.output[produced as usize % OUTPUT].store(*byte, Ordering::Relaxed);
            produced = produced.wrapping_add(1);
        }
        ring.output_produced.store(produced, Ordering::Release);
        event::notify(channel);
    }

    /// What came, as far as there is room for it. The rest stays in the ring, which holds its sender back.
    pub fn read(&self, to: &mut [u8]) -> usize {
        let Some(ring) = self.ring() else { return 0 };
        let consumed = ring.input_consumed.load(Ordering::Relaxed);
        let there = ring.input_produced.load(Ordering::Acquire).wrapping_sub(consumed) as usize;
        let count = there.min(INPUT).min(to.len());
        for (i, byte) in to[..count].iter_mut().enumerate() {
            *byte = ring.input[(consumed as usize).wrapping_add(i) % INPUT].load(Ordering::Relaxed);
        }
        if count > 0 {
            ring.input_consumed.store(consumed.wrapping_add(count as u32), Ordering::Release);
            event::notify(self.channel.load(Ordering::Relaxed));
        }
        count
    }

    /// Has the handler called in interrupt context when something came, or was taken.
    pub fn listen(&self, handler: fn(usize)) {
        if let Err(e) = event::listen(self.channel.load(Ordering::Relaxed), handler, 0) {
            log::error!("console: no event channel: {e:?}");
        }
    }
}
