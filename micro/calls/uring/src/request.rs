// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One request of a ring, from its submission to its completion.
//!
//! Requests that wait hang on a file's wait queue or on a timer. A wake-up only notes that the request is ready ([`Ring::is_ready`]);
//! it goes on in a thread of the process that submitted it, for that has the memory which the request means.

use super::ops;
use super::ring::Ring;
use super::tag::Tag;
use abi::{Errno, Events, Result};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::{Arc, Weak};
use api_lock::SpinLock;
use api_sched::{TimerId, WaitKey, Waiter};
use api_socket::Address;
use api_user::Segments;
use calls_sockets::attempts::Message;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use descriptors::Description;
use task::process::{Credentials, Process};
use uring::Sqe;

pub const FIXED_FILE: u8 = 1;
pub const IO_DRAIN: u8 = 1 << 1;
pub const IO_LINK: u8 = 1 << 2;
pub const IO_HARDLINK: u8 = 1 << 3;
pub const BUFFER_SELECT: u8 = 1 << 5;
pub const CQE_SKIP: u8 = 1 << 6;
pub const FLAGS_KNOWN: u8 = (1 << 7) - 1;

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// It waits for others of its ring, or has just been made.
    New,
    /// A thread works on it.
    Running,
    /// It hangs on a wait queue or a timer.
    Armed,
    /// What it waited for has come, and a thread is to go on with it.
    Ready,
    Done,
}

/// What was read from the program when the request was submitted, for the program may use that memory for something else then.
#[derive(Default)]
pub enum Stored {
    #[default]
    Nothing,
    Segments(Box<Segments>),
    Message(Box<Message>),
    Address(Address),
    /// It could not be read: the operation fails, and the submission does not.
    Failed(Errno),
    /// When a timeout is due, or the length of one that is linked.
    Time(u64),
}

/// A provided buffer that the request has.
#[derive(Clone, Copy, Debug)]
pub struct Selected {
    pub group: u16,
    pub id: u16,
    pub address: u64,
    pub length: u32,
}

#[derive(Default)]
pub struct Inner {
    pub file: Option<Arc<Description>>,
    /// Whose wait queue it hangs on.
    pub watch: Option<(Arc<Description>, WaitKey)>,
    pub timer: Option<TimerId>,
    /// Requests that are linked behind this one, in their order.
    pub links: VecDeque<Arc<Request>>,
    /// The timeout that runs while this request does.
    pub link_timeout: Option<Arc<Request>>,
    /// Of a linked timeout: the request that it cancels.
    pub limits: Weak<Request>,
    pub stored: Stored,
    pub selected: Option<Selected>,
    pub credentials: Option<Credentials>,
    /// Of the registered file and buffer that it uses.
    pub file_tag: Option<Arc<Tag>>,
    pub buffer_tag: Option<Arc<Tag>>,
    /// Of a timeout by count: the number of completions it waits for.
    pub target: Option<u64>,
}

pub struct Request {
    pub me: Weak<Request>,
    pub ring: Weak<Ring>,
    pub process: Arc<Process>,
    pub sqe: Sqe,
    /// Tells requests of one ring apart.
    pub sequence: u64,
    pub user_data: AtomicU64,
    /// Of a poll: the events and [`super::poll::MULTI`], which an update changes.
    pub events: AtomicU32,
    pub is_multi: AtomicBool,
    state: AtomicU8,
    /// It was started, and a thread goes on with it.
    pub is_started: AtomicBool,
    /// It was cancelled when it was ready.
    pub is_cancelled: AtomicBool,
    /// The submission was refused, with this error, and its link ends with it.
    pub refused: AtomicU32,
    /// Bytes that were moved before the request had to wait (MSG_WAITALL).
    pub moved: AtomicU32,
    pub inner: SpinLock<Inner>,
}

impl Request {
    pub fn new(ring: &Arc<Ring>, process: &Arc<Process>, sqe: Sqe, sequence: u64) -> Arc<Request> {
        Arc::new_cyclic(|me| Request {
            me: me.clone(),
            ring: Arc::downgrade(ring),
            process: process.clone(),
            sqe,
            sequence,
            user_data: AtomicU64::new(sqe.user_data),
            events: AtomicU32::new(0),
            is_multi: AtomicBool::new(false),
            state: AtomicU8::new(State::New as u8),
            is_started: AtomicBool::new(false),
            is_cancelled: AtomicBool::new(false),
            refused: AtomicU32::new(0),
            moved: AtomicU32::new(0),
            inner: SpinLock::default(),
        })
    }

    pub fn has(&self, flag: u8) -> bool {
        self.sqe.flags & flag != 0
    }

    pub fn is_linked(&self) -> bool {
        self.has(IO_LINK | IO_HARDLINK)
    }

    pub fn user_data(&self) -> u64 {
        self.user_data.load(Ordering::Relaxed)
    }

    /// The key in its ring's table.
    pub fn key(&self) -> (u64, u64) {
        (self.user_data(), self.sequence)
    }

    pub fn is(&self, state: State) -> bool {
        self.state.load(Ordering::SeqCst) == state as u8
    }

    pub fn set(&self, state: State) {
        self.state.store(state as u8, Ordering::SeqCst);
    }

    /// Changes the state unless it has changed: whoever does so has the request.
    pub fn change(&self, from: State, to: State) -> bool {
        self.state.compare_exchange(from as u8, to as u8, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Keeps what was read from the program.
    pub fn store(&self, read: Result<Stored>) {
        self.inner.lock().stored = read.unwrap_or_else(Stored::Failed);
    }

    /// The file that it is about.
    pub fn file(&self) -> Option<Arc<Description>> {
        self.inner.lock().file.clone()
    }

    /// Hangs it on the file's queue, where it stays until it is done. False where the file has no queue.
    pub fn watch(&self, description: &Arc<Description>, events: Events) -> Result<bool> {
        let Some(queue) = description.file().wait_queue() else { return Ok(false) };
        if self.inner.lock().watch.as_ref().is_some_and(|(watched, _)| Arc::ptr_eq(watched, description)) {
            return Ok(true);
        }
        self.leave();
        let Some(me) = self.me.upgrade() else { return Ok(false) };
        let key = queue.try_add(me, events, false)?;
        self.inner.lock().watch = Some((description.clone(), key));
        Ok(true)
    }

    /// Takes it off the queue and the timer that it hangs on.
    pub fn leave(&self) {
        let (watch, timer) = {
            let mut inner = self.inner.lock();
            (inner.watch.take(), inner.timer.take())
        };
        if let Some(timer) = timer {
            api_sched::cancel_timer(timer);
        }
        if let Some((description, key)) = watch
            && let Some(queue) = description.file().wait_queue()
        {
            queue.remove(key);
        }
    }
}

impl Waiter for Request {
    fn wake(&self, events: Events) {
        // A poll hangs on the queue for all events, of which an update may ask for others.
        if self.sqe.opcode == ops::POLL_ADD && !events.intersects(Events(self.events.load(Ordering::Relaxed)))
        {
            return;
        }
        if self.change(State::Armed, State::Ready)
            && let (Some(ring), Some(me)) = (self.ring.upgrade(), self.me.upgrade())
        {
            ring.is_ready(me);
        }
    }
}
