// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A ring as a file, and what it keeps.

use super::buffers::{Buffers, Groups};
use super::files::FileTable;
use super::ops::TIMEOUT;
use super::request::{Request, State};
use super::restrictions::Restrictions;
use super::sqpoll::Poller;
use super::worker;
use abi::{Events, Result, errno::*};
use alloc::collections::VecDeque;
use alloc::sync::{Arc, Weak};
use api_alloc::Reserve;
use api_fs::{File, FileType, Stat};
use api_lock::SpinLock;
use api_mem::PageSource;
use api_sched::WaitQueue;
use core::any::Any;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use descriptors::Description;
use eventfd::EventFd;
use ordered::Map;
use task::process::{Credentials, Process};
use uring::{Cqe, Params, Rings, SETUP_DEFER_TASKRUN, SETUP_R_DISABLED, SETUP_TASKRUN_FLAG, SQ_TASKRUN};

/// A link that waits for what was submitted before it.
pub struct Drained {
    pub head: Arc<Request>,
    pub length: usize,
    /// It has IOSQE_IO_DRAIN itself, or follows a link with that in its middle.
    pub drains: bool,
}

/// Requests that wait, and what they wait for.
#[derive(Default)]
pub struct Requests {
    /// Those that hang on a file or a timer, by what the program calls them.
    pub waiting: Map<(u64, u64), Arc<Request>>,
    /// Those that are ready for a thread that enters the kernel for this ring. There is room for all that wait.
    pub ready: VecDeque<Arc<Request>>,
    /// Links behind one that waits until everything before it is done (IOSQE_IO_DRAIN).
    pub drained: VecDeque<Drained>,
    /// The last one that was taken from there waited for nothing of its own: others like it start beside it.
    pub drained_flow: bool,
    /// Heads of what goes on after a cancelled request (IOSQE_IO_HARDLINK).
    pub resumed: VecDeque<Arc<Request>>,
    /// Timeouts by the number of completions that they wait for.
    pub by_count: Map<(u64, u64), Arc<Request>>,
    /// Requests that were started and are not done.
    pub started: usize,
    /// The next submission waits as well: the last link had IOSQE_IO_DRAIN in its middle.
    pub drains_next: bool,
    pub next_sequence: u64,
    /// A completion was left out (IOSQE_CQE_SKIP_SUCCESS): what came before cannot be told any more (as on Linux).
    pub cannot_drain: bool,
    /// Completions, but for those of timeouts.
    pub completed: u64,
    /// Completions in the course of a submission, which timeouts count at its end (as Linux, which posts them then).
    pub batched: u64,
    /// Timeouts that are done: each ends a wait for completions.
    pub timeouts: u64,
}

/// What is registered (io_uring_register(2)).
#[derive(Default)]
pub struct Registered {
    pub files: Option<FileTable>,
    pub buffers: Option<Buffers>,
    pub groups: Groups,
    pub personalities: Map<u16, Credentials>,
    pub next_personality: u16,
    /// And whether it hears only of what was not done at once.
    pub eventfd: Option<(Arc<Description>, bool)>,
    pub restrictions: Option<Restrictions>,
    pub workers: [u32; 2],
}

pub struct Ring {
    pub me: Weak<Ring>,
    pub flags: u32,
    pub rings: SpinLock<Rings>,
    memory: Arc<uring::Mapping>,
    /// Whose threads wait for it.
    owner: i32,
    pub is_enabled: AtomicBool,
    /// With SETUP_SINGLE_ISSUER: the thread that may submit, 0 before it is known.
    pub issuer: AtomicI32,
    pub requests: SpinLock<Requests>,
    pub registered: SpinLock<Registered>,
    /// Whoever watches the file.
    completions: WaitQueue,
    /// Threads in io_uring_enter(2).
    pub work: WaitQueue,
    pub waiters: AtomicUsize,
    /// A thread submits: completions are at once.
    pub submits: AtomicUsize,
    is_closed: AtomicBool,
    /// Its eventfd is being signalled.
    signals: AtomicBool,
    /// In [`TO_TELL`], and the next one there.
    is_told_later: AtomicBool,
    next_to_tell: SpinLock<Option<Arc<Ring>>>,
    next_to_close: SpinLock<Option<Arc<Ring>>>,
    /// The thread that takes submissions (SETUP_SQPOLL).
    poller: SpinLock<Option<Arc<Poller>>>,
}

/// All rings, for the end of programs.
static RINGS: SpinLock<Map<usize, Weak<Ring>>> = SpinLock::new(Map::new());

/// Rings that are to tell whoever watches them, and whether somebody goes through them.
static TO_TELL: SpinLock<Option<Arc<Ring>>> = SpinLock::new(None);
static TELLS: AtomicBool = AtomicBool::new(false);

/// Rings that are to end, and whether somebody goes through them.
static TO_CLOSE: SpinLock<Option<Arc<Ring>>> = SpinLock::new(None);
static CLOSES: AtomicBool = AtomicBool::new(false);

/// Every ring that there is.
pub fn all() -> impl Iterator<Item = Arc<Ring>> {
    let mut from = 0;
    core::iter::from_fn(move || {
        loop {
            let (key, ring) = {
                let rings = RINGS.lock();
                let (key, ring) = rings.range(from..).next()?;
                (*key, ring.clone())
            };
            from = key + 1;
            if let Some(ring) = ring.upgrade() {
                return Some(ring);
            }
        }
    })
}

impl Ring {
    pub fn new(params: &mut Params, owner: &Process, issuer: i32) -> Result<Arc<Ring>> {
        let rings = Rings::new(params)?;
        let is_enabled = !params.has(SETUP_R_DISABLED);
        let ring = Arc::new_cyclic(|me| Ring {
            me: me.clone(),
            flags: params.flags,
            memory: rings.memory().clone(),
            rings: SpinLock::new(rings),
            owner: owner.pid.of_machine(),
            is_enabled: AtomicBool::new(is_enabled),
            issuer: AtomicI32::new(if is_enabled { issuer } else { 0 }),
            requests: SpinLock::default(),
            registered: SpinLock::default(),
            completions: WaitQueue::new(),
            work: WaitQueue::new(),
            waiters: AtomicUsize::new(0),
            submits: AtomicUsize::new(0),
            is_closed: AtomicBool::new(false),
            signals: AtomicBool::new(false),
            is_told_later: AtomicBool::new(false),
            next_to_tell: SpinLock::default(),
            next_to_close: SpinLock::default(),
            poller: SpinLock::default(),
        });
        let key = Arc::as_ptr(&ring) as usize;
        RINGS.lock().insert_fallibly(key, Arc::downgrade(&ring)).map_err(|_| ENOMEM)?;
        Ok(ring)
    }

    pub fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    pub fn poller(&self) -> Option<Arc<Poller>> {
        self.poller.lock().clone()
    }

    pub fn set_poller(&self, poller: Arc<Poller>) {
        *self.poller.lock() = Some(poller);
    }

    pub fn end_poller(&self) {
        if let Some(poller) = self.poller() {
            poller.end();
        }
    }

    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// The request may wait from now on: it is in the table, and there is room for it where it goes when it is ready.
    pub fn insert(&self, request: &Arc<Request>) -> Result<()> {
        let worker = worker::of(&request.process)?;
        worker.arm()?;
        let mut requests = self.requests.lock();
        let room = requests.waiting.len() + 1;
        let reserved = requests.ready.reserve_fallibly(room).map_err(|_| ENOMEM);
        let inserted = reserved.and_then(|()| {
            requests.waiting.insert_fallibly(request.key(), request.clone()).map_err(|_| ENOMEM)
        });
        if inserted.is_err() {
            worker.disarm();
        }
        inserted.map(|_| ())
    }

    /// The request does not wait any more.
    pub fn remove(&self, request: &Request) {
        let removed = {
            let mut requests = self.requests.lock();
            let target = request.inner.lock().target.take();
            if let Some(target) = target {
                requests.by_count.remove(&(target, request.sequence));
            }
            requests.waiting.remove(&request.key())
        };
        if removed.is_some()
            && let Some(worker) = worker::find(&request.process)
        {
            worker.disarm();
        }
    }

    /// What a request waited for has come: a thread that waits for this ring's completions goes on with it, or the worker.
    pub fn is_ready(&self, request: Arc<Request>) {
        if self.is_closed() {
            return;
        }
        let is_own = request.process.pid.of_machine() == self.owner;
        if is_own && (self.has(SETUP_DEFER_TASKRUN) || self.waiters.load(Ordering::Relaxed) > 0) {
            self.requests.lock().ready.push_back(request);
            if self.has(SETUP_TASKRUN_FLAG) {
                self.rings.lock().set_flag(SQ_TASKRUN, true);
            }
            self.work.wake(Events::ALL);
            if self.has(SETUP_DEFER_TASKRUN) {
                self.tell_later();
            }
        } else if let Some(worker) = worker::find(&request.process) {
            worker.push(request);
        } else {
            // The process has ended; what it wanted is a timeout.
            super::run::end_early(self, &request, ETIME.to_return() as i32);
        }
    }

    /// A ready request for the running thread.
    pub fn next_ready(&self) -> Option<Arc<Request>> {
        let mut requests = self.requests.lock();
        let next = requests.ready.pop_front();
        if next.is_none() && self.has(SETUP_TASKRUN_FLAG) {
            self.rings.lock().set_flag(SQ_TASKRUN, false);
        }
        next
    }

    /// Stores a completion, and tells whoever waits.
    pub fn post(&self, user_data: u64, result: i32, flags: u32) {
        if self.is_closed() {
            return;
        }
        self.rings.lock().post(Cqe { user_data, result, flags });
        self.tell();
    }

    fn tell(&self) {
        self.completions.wake(Events::READABLE);
        self.work.wake(Events::ALL);
        self.signal();
    }

    /// Tells whoever watches the file that a thread may enter for it. Rings may watch each other in a chain as long as a program likes,
    /// and each would tell the next one out of its own wake-up: they stand in a list instead, which the first one goes through.
    fn tell_later(&self) {
        if !self.is_told_later.swap(true, Ordering::Relaxed) {
            let mut first = TO_TELL.lock();
            *self.next_to_tell.lock() = first.take();
            *first = self.me.upgrade();
        }
        if TELLS.swap(true, Ordering::Relaxed) {
            return;
        }
        loop {
            let ring = {
                let mut first = TO_TELL.lock();
                let Some(ring) = first.take() else { break };
                *first = ring.next_to_tell.lock().take();
                ring
            };
            ring.is_told_later.store(false, Ordering::Relaxed);
            ring.completions.wake(Events::READABLE);
            ring.signal();
        }
        TELLS.store(false, Ordering::Relaxed);
    }

    /// Signals the registered eventfd.
    fn signal(&self) {
        let eventfd = self.registered.lock().eventfd.clone();
        let Some((description, only_later)) = eventfd else { return };
        if only_later && self.submits.load(Ordering::Relaxed) > 0 || self.rings.lock().is_eventfd_disabled() {
            return;
        }
        // A request of this ring may wait for the eventfd: what its wake-up has to say is said already.
        if self.signals.swap(true, Ordering::Relaxed) {
            return;
        }
        if let Some(eventfd) = description.file().as_any().downcast_ref::<EventFd>() {
            eventfd.signal();
        }
        self.signals.store(false, Ordering::Relaxed);
    }

    /// Moves completions that found no room into the ring; false when some are left.
    pub fn flush(&self) -> bool {
        let mut rings = self.rings.lock();
        !rings.has_overflow() || rings.flush()
    }

    /// Cancels what a process waits for in this ring; `None`: everybody. Nothing goes on behind what is cancelled.
    pub fn cancel_all(&self, process: Option<i32>, with_timeouts: bool) {
        let is_meant = |request: &Request| {
            process.is_none_or(|pid| request.process.pid.of_machine() == pid)
                && (with_timeouts || request.sqe.opcode != TIMEOUT || !request.is(State::Armed))
        };
        // What is linked or drained first, so that nothing of it is started.
        let drained = {
            let mut requests = self.requests.lock();
            let all = core::mem::take(&mut requests.drained);
            let (gone, stay): (VecDeque<_>, VecDeque<_>) =
                all.into_iter().partition(|waiting| is_meant(&waiting.head));
            requests.drained = stay;
            gone
        };
        for waiting in drained {
            super::run::drop_link(self, &waiting.head);
        }
        let mut from = (0, 0);
        loop {
            let next = {
                let requests = self.requests.lock();
                requests.waiting.range(from..).next().map(|(key, request)| (*key, request.clone()))
            };
            let Some((key, request)) = next else { break };
            from = (key.0, key.1.saturating_add(1));
            if is_meant(&request)
                && (super::cancel::take(&request) || request.change(State::Ready, State::Done))
            {
                super::run::cancelled(self, &request);
            }
        }
        let resumed = {
            let mut requests = self.requests.lock();
            requests.ready.retain(|request| !is_meant(request));
            let all = core::mem::take(&mut requests.resumed);
            let (gone, stay): (VecDeque<_>, VecDeque<_>) =
                all.into_iter().partition(|request| is_meant(request));
            requests.resumed = stay;
            gone
        };
        resumed.iter().for_each(|request| super::run::abandon(self, request, ECANCELED));
    }

    /// The last descriptor is closed: nothing waits any more.
    fn end(&self) {
        self.end_poller();
        self.cancel_all(None, true);
        let registered = core::mem::take(&mut *self.registered.lock());
        drop(registered);
    }

    /// The ring of a description.
    pub fn of(description: &Description) -> Option<&Ring> {
        description.file().as_any().downcast_ref()
    }
}

impl File for Ring {
    fn anonymous_name(&self) -> &'static str {
        "[io_uring]"
    }

    fn may_be_sent(&self) -> bool {
        false
    }

    fn stat(&self) -> Result<Stat> {
        Ok(Stat::new(FileType::Anonymous, 0o600))
    }

    fn poll(&self) -> Events {
        let has_ready = self.has(SETUP_DEFER_TASKRUN) && !self.requests.lock().ready.is_empty();
        let rings = self.rings.lock();
        let is_readable = rings.completions() > 0 || rings.has_overflow() || has_ready;
        Events::NONE
            .with(Events::READABLE, is_readable)
            .with(Events::WRITABLE, rings.submissions() < rings.sq_entries())
    }

    fn wait_queue(&self) -> Option<&WaitQueue> {
        Some(&self.completions)
    }

    fn page_source(&self) -> Result<Arc<dyn PageSource>> {
        Ok(self.memory.clone())
    }

    fn show_info(&self, out: &mut dyn core::fmt::Write) -> core::fmt::Result {
        self.rings.lock().show(out)?;
        let registered = self.registered.lock();
        let (files, buffers) = (registered.files.as_ref(), registered.buffers.as_ref());
        // Threads of the kernel have no number.
        writeln!(out, "SqThread:\t-1\nSqThreadCpu:\t-1")?;
        writeln!(out, "UserFiles:\t{}", files.map_or(0, FileTable::len))?;
        writeln!(out, "UserBufs:\t{}", buffers.map_or(0, Buffers::len))?;
        writeln!(out, "PollList:")?;
        drop(registered);
        for request in self.requests.lock().waiting.values() {
            writeln!(out, "  op={}, task_works=0", request.sqe.opcode)?;
        }
        Ok(())
    }

    fn close(&self) -> Result<()> {
        self.is_closed.store(true, Ordering::Relaxed);
        // A request may hold the last handle of another ring, and so on: those stand in a list, which the first one goes through.
        {
            let mut first = TO_CLOSE.lock();
            *self.next_to_close.lock() = first.take();
            *first = self.me.upgrade();
        }
        while TO_CLOSE.lock().is_some() && !CLOSES.swap(true, Ordering::Relaxed) {
            loop {
                let ring = {
                    let mut first = TO_CLOSE.lock();
                    let Some(ring) = first.take() else { break };
                    *first = ring.next_to_close.lock().take();
                    ring
                };
                ring.end();
            }
            CLOSES.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let key = core::ptr::from_ref(self) as usize;
        RINGS.lock().remove(&key);
    }
}
