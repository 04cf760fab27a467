// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The client of xenstore: one request at a time, over the ring that the machine was started with. Requests are made while the machine
//! starts and when dom0 asks for something, so the processor itself waits for replies.

use crate::message::{self, ERROR, HEADER, Header, WATCH_EVENT};
use abi::{Result, errno::EIO, errno::ENOMEM, errno::ETIMEDOUT};
use alloc::string::String;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_lock::SpinLock;
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use plat_pc::xen::StoreRing;

/// Bytes of either direction's ring.
const RING: usize = 1024;
/// How long a reply may take.
const PATIENCE_NS: u64 = 5_000_000_000;
/// Messages that are read in vain for one reply, at most: watches fire no more often than that.
const MAX_OTHERS: usize = 64;

/// Who is told, and waited for.
pub trait Channel: Send + Sync {
    fn notify(&self);
    /// Comes back when the other end may have done something, or after that time at the latest.
    fn wait(&self, most_ns: u64);
    fn now_ns(&self) -> u64;
}

struct State {
    next_id: u32,
    /// The other end broke the protocol: nothing makes sense any more.
    is_broken: bool,
    /// A watch fired since somebody asked.
    fired: bool,
}

pub struct Store<C> {
    ring: &'static StoreRing,
    channel: C,
    state: SpinLock<State>,
}

impl<C: Channel> Store<C> {
    pub const fn new(ring: &'static StoreRing, channel: C) -> Store<C> {
        Store { ring, channel, state: SpinLock::new(State { next_id: 1, is_broken: false, fired: false }) }
    }

    pub fn read(&self, path: &str) -> Result<String> {
        let value = self.request(message::READ, &[path.as_bytes(), &[0]])?;
        String::from_utf8(value).map_err(|_| EIO)
    }

    /// A decimal number.
    pub fn number<T: core::str::FromStr>(&self, path: &str) -> Result<T> {
        self.read(path)?.trim_end_matches('\0').parse().map_err(|_| EIO)
    }

    pub fn write(&self, path: &str, value: &str) -> Result<()> {
        self.request(message::WRITE, &[path.as_bytes(), &[0], value.as_bytes()]).map(drop)
    }

    /// The names in a directory, in a form for [`message::names`].
    pub fn list(&self, path: &str) -> Result<Vec<u8>> {
        self.request(message::DIRECTORY, &[path.as_bytes(), &[0]])
    }

    /// [`Store::has_fired`] is true once at first, and whenever the value changes.
    pub fn watch(&self, path: &str) -> Result<()> {
        self.request(message::WATCH, &[path.as_bytes(), &[0], b"w\0"]).map(drop)
    }

    /// Whether a watch fired since the last question. Takes what came unasked.
    pub fn has_fired(&self) -> bool {
        let mut state = self.state.lock();
        for _ in 0..MAX_OTHERS {
            if state.is_broken || self.available(&mut state) < HEADER {
                break;
            }
            let deadline = self.channel.now_ns() + PATIENCE_NS;
            if self.message(&mut state, deadline).is_err() {
                break;
            }
        }
        core::mem::take(&mut state.fired)
    }

    fn request(&self, kind: u32, parts: &[&[u8]]) -> Result<Vec<u8>> {
        let mut state = self.state.lock();
        let length = parts.iter().map(|part| part.len()).sum();
        if state.is_broken || length > message::MAX_PAYLOAD {
            return Err(EIO);
        }
        let id = state.next_id;
        state.next_id = id.wrapping_add(1);
        let deadline = self.channel.now_ns() + PATIENCE_NS;
        self.send(&mut state, &Header { kind, id, length }.encode(), deadline)?;
        for part in parts {
            self.send(&mut state, part, deadline)?;
        }
        self.channel.notify();
        for _ in 0..MAX_OTHERS {
            let (header, text) = self.message(&mut state, deadline)?;
            match header.kind {
                // A watch, or the late reply to a request that was given up.
                WATCH_EVENT => {}
                _ if header.id != id => {}
                ERROR => return Err(message::error(&text)),
                _ => return Ok(text),
            }
        }
        Err(EIO)
    }

    fn broken<T>(&self, state: &mut State) -> Result<T> {
        state.is_broken = true;
        log::error!("xenstore: dom0 broke the protocol: it is not asked any more");
        Err(EIO)
    }

    /// A message that stays half sent or half read leaves the ring out of step.
    fn late<T>(&self, state: &mut State) -> Result<T> {
        state.is_broken = true;
        log::error!("xenstore: no reply in {} s: it is not asked any more", PATIENCE_NS / 1_000_000_000);
        Err(ETIMEDOUT)
    }

    fn send(&self, state: &mut State, bytes: &[u8], deadline: u64) -> Result<()> {
        let mut produced = self.ring.requests_produced.load(Ordering::Relaxed);
        for byte in bytes {
            loop {
                let used =
                    produced.wrapping_sub(self.ring.requests_consumed.load(Ordering::Acquire)) as usize;
                if used > RING {
                    return self.broken(state);
                }
                if used < RING {
                    break;
                }
                self.channel.notify();
                if !self.wait(deadline) {
                    return self.late(state);
                }
            }
            put(&self.ring.requests, produced, *byte);
            produced = produced.wrapping_add(1);
            self.ring.requests_produced.store(produced, Ordering::Release);
        }
        Ok(())
    }

    /// Bytes that can be read.
    fn available(&self, state: &mut State) -> usize {
        let count = count(&self.ring.replies_produced, &self.ring.replies_consumed);
        if count > RING {
            let _ = self.broken::<()>(state);
            return 0;
        }
        count
    }

    fn receive(&self, state: &mut State, to: &mut [u8], deadline: u64) -> Result<()> {
        let mut consumed = self.ring.replies_consumed.load(Ordering::Relaxed);
        for byte in to {
            while self.available(state) == 0 {
                if state.is_broken {
                    return Err(EIO);
                }
                if !self.wait(deadline) {
                    return self.late(state);
                }
            }
            *byte = self.ring.replies[consumed as usize % RING].load(Ordering::Relaxed);
            consumed = consumed.wrapping_add(1);
            self.ring.replies_consumed.store(consumed, Ordering::Release);
        }
        Ok(())
    }

    fn message(&self, state: &mut State, deadline: u64) -> Result<(Header, Vec<u8>)> {
        let mut header = [0; HEADER];
        self.receive(state, &mut header, deadline)?;
        let Some(header) = Header::decode(&header) else { return self.broken(state) };
        let mut text = Vec::new();
        if text.reserve_exact_fallibly(header.length).is_err() {
            return self.late(state).or(Err(ENOMEM));
        }
        text.resize(header.length, 0);
        self.receive(state, &mut text, deadline)?;
        self.channel.notify();
        state.fired |= header.kind == WATCH_EVENT;
        Ok((header, text))
    }

    /// False when the time is over.
    fn wait(&self, deadline: u64) -> bool {
        let now = self.channel.now_ns();
        if now < deadline {
            self.channel.wait(deadline - now);
        }
        now < deadline
    }
}

fn count(produced: &AtomicU32, consumed: &AtomicU32) -> usize {
    produced.load(Ordering::Acquire).wrapping_sub(consumed.load(Ordering::Relaxed)) as usize
}

fn put(ring: &[AtomicU8; RING], at: u32, byte: u8) {
    ring[at as usize % RING].store(byte, Ordering::Relaxed);
}

#[cfg(test)]
mod tests;
