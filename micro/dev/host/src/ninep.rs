// SPDX-License-Identifier: Apache-2.0 OR MIT
//! 9p over a stream socket: requests and replies as they are, each with its length in front (9P2000: `size[4]`), many in
//! flight, matched by their tags. With some replies comes the descriptor of the file that the server opened ([`crate::given`]).

use crate::given::{Descriptor, File, Pace};
use abi::{Result, errno::*};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_lock::SpinLock;
use api_mem::PageFrame;
use api_sched::{DeferredWork, DeferredWorkSlot, Waiter};
use core::sync::atomic::{AtomicBool, Ordering};
use ordered::Map;
use plat_process::Watch;
use plat_process::host::{self, Received};

/// Bytes of size, type and tag.
const HEADER: usize = 7;
/// What is read at a time.
const CHUNK: usize = 64 << 10;
/// Largest message in either direction.
const MAX_MESSAGE: usize = 512 << 10;

/// A request on its way.
struct Pending {
    reply: Vec<u8>,
    /// The descriptor that came with it.
    given: Option<Descriptor>,
    done: bool,
    waiter: Arc<dyn Waiter>,
}

struct State {
    pending: Map<u16, Pending>,
    /// Bytes that came and are no whole message yet.
    input: Vec<u8>,
    buffer: Box<[u8]>,
    /// Requests, or the rest of one, that the socket did not take yet.
    output: Vec<u8>,
    /// Descriptors that came, of replies that have not come wholly.
    given: VecDeque<Descriptor>,
    /// One was lost on its way: which reply the others belong to cannot be said.
    has_lost: bool,
    broken: bool,
}

/// One exported directory.
pub struct Channel {
    fd: i32,
    watch: Watch,
    state: SpinLock<State>,
    /// The last reply came so soon that the next one is waited for awake.
    is_quick: AtomicBool,
    hold: Hold,
    pace: Arc<Pace>,
}

/// The pages of the program's memory from an address on, to be written or only read.
pub type Hold = fn(address: u64, length: usize, is_written: bool) -> Vec<PageFrame>;

/// How long a reply is waited for awake: the host takes longer to let a processor sleep and wake it than most answers take.
const AWAKE_NS: u64 = 60_000;
/// A reply that took no longer than this, with the sleep, would have come while awake.
const QUICK_NS: u64 = 160_000;

static CHANNELS: SpinLock<Vec<Arc<Channel>>> = SpinLock::new(Vec::new());
static DEFERRED_WORK: DeferredWorkSlot = DeferredWorkSlot::new();

/// Prepares the socket.
pub fn start(fd: i32, hold: Hold) -> Result<Arc<Channel>> {
    host::set_non_blocking(fd)?;
    let mut buffer = Vec::new();
    buffer.reserve_exact_fallibly(CHUNK).map_err(|_| ENOMEM)?;
    buffer.resize(CHUNK, 0);
    let mut channels = CHANNELS.lock();
    if channels.is_empty() {
        let work: DeferredWork = api_sched::add_deferred_work(poll);
        DEFERRED_WORK.set(work);
    }
    let state = State {
        pending: Map::new(),
        input: Vec::new(),
        buffer: buffer.into_boxed_slice(),
        output: Vec::new(),
        given: VecDeque::new(),
        has_lost: false,
        broken: false,
    };
    let watch = plat_process::watch(fd, |_| DEFERRED_WORK.raise(), 0);
    watch.arm();
    let channel = Arc::new(Channel {
        fd,
        watch,
        state: SpinLock::new(state),
        is_quick: AtomicBool::new(false),
        hold,
        pace: Arc::default(),
    });
    channels.push(channel.clone());
    Ok(channel)
}

fn poll() {
    let channels = CHANNELS.lock().clone();
    channels.iter().for_each(|channel| channel.collect());
}

impl State {
    /// Writes what the socket takes; true when nothing is left.
    fn push(&mut self, fd: i32) -> bool {
        while !self.output.is_empty() && !self.broken {
            match host::write(fd, &self.output) {
                Ok(n) => drop(self.output.drain(..n.min(self.output.len()))),
                Err(EINTR) => {}
                Err(EAGAIN) => return false,
                Err(_) => self.broken = true,
            }
        }
        true
    }

    /// Reads what came.
    fn pull(&mut self, fd: i32) {
        loop {
            match host::receive(fd, &mut self.buffer) {
                Ok(Received { length: 0, .. }) => self.broken = true,
                Ok(Received { length: n, given }) => {
                    let is_all = n < self.buffer.len() && given.is_none();
                    self.take(given);
                    if self.input.reserve_fallibly(n).is_err() {
                        self.broken = true;
                        return;
                    }
                    self.input.extend_from_slice(&self.buffer[..n]);
                    if !is_all {
                        continue;
                    }
                }
                Err(EINTR) => continue,
                Err(EAGAIN) => {}
                Err(_) => self.broken = true,
            }
            return;
        }
    }

    /// Keeps a descriptor that came, for the reply that says so.
    fn take(&mut self, given: Option<Result<i32>>) {
        let Some(given) = given else { return };
        let given = given.map(Descriptor);
        self.has_lost |= given.is_err() || self.given.reserve_fallibly(1).is_err();
        match given {
            Ok(given) if !self.has_lost => self.given.push_back(given),
            _ => self.given.clear(),
        }
    }

    /// Gives whole messages to those who wait for them.
    fn deliver(&mut self, wake: &mut Vec<Arc<dyn Waiter>>) {
        let mut at = 0;
        while let Some(header) = self.input[at..].first_chunk::<HEADER>() {
            let [a, b, c, d, _, low, high] = *header;
            let (length, tag) = (u32::from_le_bytes([a, b, c, d]) as usize, u16::from_le_bytes([low, high]));
            if !(HEADER..=MAX_MESSAGE).contains(&length) {
                log::error!("9p: the host's server sent {length} bytes as a message: the volume is gone");
                self.broken = true;
                break;
            }
            let Some(message) = self.input.get(at..at + length) else { break };
            let given = if ninep::gives(message) { self.given.pop_front() } else { None };
            match self.pending.get_mut(&tag) {
                // A reply longer than there is room for is cut: the client finds that it makes no sense.
                Some(pending) if !pending.done => {
                    let room = pending.reply.capacity().min(length);
                    pending.reply.clear();
                    pending.reply.extend_from_slice(&message[..room]);
                    pending.given = given;
                    pending.done = true;
                    wake.push(pending.waiter.clone());
                }
                _ if tag == ninep::POSTED => {}
                _ => log::warn!("9p: a reply that nobody asked for"),
            }
            at += length;
        }
        self.input.drain(..at);
    }
}

impl Channel {
    fn collect(&self) {
        let mut wake = Vec::new();
        {
            let mut state = self.state.lock();
            state.pull(self.fd);
            state.deliver(&mut wake);
            state.push(self.fd);
            if state.broken {
                wake.extend(state.pending.values().map(|p| p.waiter.clone()));
            } else {
                self.watch.arm();
            }
        }
        for waiter in wake {
            waiter.wake(abi::Events::IN);
        }
    }
}

impl Channel {
    /// The reply to a request, if it has come by now.
    fn take_now(&self, tag: u16) -> Option<(Vec<u8>, Option<Descriptor>)> {
        let mut wake = Vec::new();
        let reply = {
            let mut state = self.state.lock();
            state.pull(self.fd);
            state.deliver(&mut wake);
            let is_done = state.pending.get(&tag).is_some_and(|pending| pending.done);
            if is_done { state.pending.remove(&tag).map(Pending::reply) } else { None }
        };
        // This thread is among them: it is awake.
        for waiter in wake {
            waiter.wake(abi::Events::IN);
        }
        reply
    }
}

/// How long a request waits for room in the socket before it looks again.
const AGAIN_NS: u64 = 1_000_000;

impl Pending {
    fn reply(self) -> (Vec<u8>, Option<Descriptor>) {
        (self.reply, self.given)
    }
}

/// Request, reply, and the descriptor that came with it.
type Answered = (Vec<u8>, Vec<u8>, Option<Descriptor>);

impl Channel {
    fn ask(&self, request: Vec<u8>, reply: Vec<u8>) -> Result<Answered> {
        let Some([_, _, _, _, _, low, high]) = request.first_chunk::<HEADER>().copied() else {
            return Err(EINVAL);
        };
        let tag = u16::from_le_bytes([low, high]);
        {
            let mut state = self.state.lock();
            if state.broken {
                return Err(EIO);
            }
            state.output.reserve_fallibly(request.len()).map_err(|_| ENOMEM)?;
            state.output.extend_from_slice(&request);
            state
                .pending
                .insert(tag, Pending { reply, given: None, done: false, waiter: api_sched::current() });
            state.push(self.fd);
        }
        let asked = api_plat::now_ns();
        while self.is_quick.load(Ordering::Relaxed) {
            if let Some((reply, given)) = self.take_now(tag) {
                return Ok((request, reply, given));
            }
            if api_plat::now_ns() > asked + AWAKE_NS {
                self.is_quick.store(false, Ordering::Relaxed);
            }
            // The host may have woken the server on this processor.
            host::sched_yield();
        }
        loop {
            let mut deadline = u64::MAX;
            {
                let mut state = self.state.lock();
                if state.pending.get(&tag).is_some_and(|p| p.done)
                    && let Some(pending) = state.pending.remove(&tag)
                {
                    self.is_quick.store(api_plat::now_ns() < asked + QUICK_NS, Ordering::Relaxed);
                    let (reply, given) = pending.reply();
                    return Ok((request, reply, given));
                }
                if state.broken {
                    state.pending.remove(&tag);
                    return Err(EIO);
                }
                if !state.push(self.fd) {
                    deadline = api_plat::now_ns() + AGAIN_NS;
                }
            }
            api_sched::park(deadline);
        }
    }
}

impl ninep::Transport for Channel {
    fn call(&self, request: Vec<u8>, reply: Vec<u8>) -> Result<(Vec<u8>, Vec<u8>)> {
        self.ask(request, reply).map(|(request, reply, _)| (request, reply))
    }

    fn call_to_open(&self, request: Vec<u8>, reply: Vec<u8>) -> Result<ninep::OpenAnswered> {
        let (request, reply, given) = self.ask(request, reply)?;
        let file = |given| Box::new(File::new(given, self.pace.clone())) as Box<dyn ninep::Given>;
        Ok((request, reply, given.map(file)))
    }

    fn post(&self, request: &[u8]) -> bool {
        let mut state = self.state.lock();
        // Who does not read what is sent is not sent more.
        let has_room =
            state.output.len() <= MAX_MESSAGE && state.output.reserve_fallibly(request.len()).is_ok();
        if state.broken || !has_room {
            return false;
        }
        state.output.extend_from_slice(request);
        state.push(self.fd);
        true
    }

    fn hold(&self, address: u64, length: usize, is_written: bool) -> Vec<PageFrame> {
        (self.hold)(address, length, is_written)
    }

    fn largest(&self) -> usize {
        MAX_MESSAGE
    }

    fn is_extended(&self) -> bool {
        true
    }
}

/// Changes in the directories of all channels' exports: a queue of inotify(7), which the servers watch by.
struct Queue(i32);

/// What reads the queue of the servers' watches.
pub fn changes(fd: i32) -> Arc<dyn ninep::Changes> {
    Arc::new(Queue(fd))
}

impl ninep::Changes for Queue {
    fn read(&self, events: &mut [u8]) -> Result<usize> {
        host::read(self.0, events)
    }
}
