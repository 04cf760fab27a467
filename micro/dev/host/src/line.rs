// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A byte channel to the host over a stream socket: what a port of the console device is on a PC.

use abi::{Events, Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_lock::SpinLock;
use api_sched::{DeferredWorkSlot, WaitQueue, Waiter};
use plat_process::Watch;
use plat_process::host;

/// What is read at a time.
const CHUNK: usize = 4096;
/// Bytes that wait for the socket to take them; with more there is no room.
const MAX_WAITING: usize = 256 << 10;
/// How long a full socket is left alone.
const AGAIN_NS: u64 = 1_000_000;

struct State {
    /// What the socket did not take yet.
    output: Vec<u8>,
    /// Somebody waits for room in `output`.
    crowded: bool,
    /// A timer will look after `output`.
    timed: bool,
    /// The other side has closed it, for good.
    ended: bool,
}

/// The channel.
pub struct Line {
    fd: i32,
    watch: Watch,
    state: SpinLock<State>,
    /// IN: bytes came or the other side ended. OUT: there is room.
    events: WaitQueue,
}

static LINE: SpinLock<Option<Arc<Line>>> = SpinLock::new(None);
static DEFERRED_WORK: DeferredWorkSlot = DeferredWorkSlot::new();

/// Prepares the socket; a machine has one at most.
pub fn start(fd: i32) -> Result<()> {
    host::set_non_blocking(fd)?;
    DEFERRED_WORK.set(api_sched::add_deferred_work(poll));
    let state = State { output: Vec::new(), crowded: false, timed: false, ended: false };
    let watch = plat_process::watch(fd, |_| DEFERRED_WORK.raise(), 0);
    watch.arm();
    *LINE.lock() = Some(Arc::new(Line { fd, watch, state: SpinLock::new(state), events: WaitQueue::new() }));
    Ok(())
}

/// The channel, once it was started.
pub fn get() -> Option<Arc<Line>> {
    LINE.lock().clone()
}

fn poll() {
    if let Some(line) = get() {
        // Whoever receives arms the watch again.
        line.events.wake_all(Events::IN);
    }
}

impl State {
    /// Writes what the socket takes; false when something is left.
    fn push(&mut self, fd: i32) -> bool {
        while !self.output.is_empty() {
            match host::write(fd, &self.output) {
                Ok(n) => drop(self.output.drain(..n.min(self.output.len()))),
                Err(EINTR) => {}
                Err(EAGAIN) => return false,
                Err(_) => {
                    // The other side is gone: what is sent is lost, and nobody waits for ever.
                    self.output = Vec::new();
                    self.ended = true;
                }
            }
        }
        true
    }
}

impl Line {
    /// Hands over one piece of what came; `false` when there is nothing.
    pub fn receive(&self, to: &mut dyn FnMut(&[u8])) -> bool {
        let mut piece = [0; CHUNK];
        let length = {
            let mut state = self.state.lock();
            loop {
                match host::read(self.fd, &mut piece) {
                    Err(EINTR) => {}
                    Err(EAGAIN) => {
                        self.watch.arm();
                        return false;
                    }
                    // The end is always readable: it is not watched any more.
                    Ok(0) | Err(_) => {
                        state.ended = true;
                        return false;
                    }
                    Ok(n) => break n.min(CHUNK),
                }
            }
        };
        to(&piece[..length]);
        true
    }

    /// Sends the bytes, or gives them back when there is no room; the queue is woken then when there is.
    pub fn send(&self, bytes: Vec<u8>) -> core::result::Result<(), Vec<u8>> {
        let mut state = self.state.lock();
        if state.ended {
            return Ok(());
        }
        // What is larger than all of the room goes alone.
        let fits = state.output.is_empty() || state.output.len() + bytes.len() <= MAX_WAITING;
        if !fits || state.output.reserve_fallibly(bytes.len()).is_err() {
            state.crowded = true;
            look_after(&mut state);
            return Err(bytes);
        }
        state.output.extend_from_slice(&bytes);
        if !state.push(self.fd) {
            look_after(&mut state);
        }
        Ok(())
    }

    /// How often the other side closed the channel.
    pub fn hang_ups(&self) -> u32 {
        u32::from(self.state.lock().ended)
    }

    /// Woken when there are news.
    pub fn events(&self) -> &WaitQueue {
        &self.events
    }
}

/// Has a timer look whether the socket takes more.
fn look_after(state: &mut State) {
    if !state.timed
        && let Some(line) = get()
    {
        state.timed = true;
        api_sched::add_timer(api_plat::now_ns() + AGAIN_NS, line);
    }
}

impl Waiter for Line {
    fn wake(&self, _: Events) {
        let room = {
            let mut state = self.state.lock();
            state.timed = false;
            if !state.push(self.fd) {
                look_after(&mut state);
            }
            state.output.len() < MAX_WAITING / 2 && core::mem::take(&mut state.crowded)
        };
        if room {
            self.events.wake_all(Events::OUT);
        }
    }
}
