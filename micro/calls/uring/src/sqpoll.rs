// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's thread that takes submissions out of a ring by itself (IORING_SETUP_SQPOLL).
//!
//! It does not spin, for one processor at a time is in the kernel: it looks every [`NAP_NS`], and after `sq_thread_idle` without a
//! submission sleeps until IORING_ENTER_SQ_WAKEUP.

use super::ring::Ring;
use super::run;
use super::submit;
use abi::{Events, Result, errno::*};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_lock::SpinLock;
use api_sched::WaitQueue;
use core::sync::atomic::{AtomicBool, Ordering};
use task::process::Process;
use task::{auxiliary, wait};
use uring::SQ_NEED_WAKEUP;

const NAP_NS: u64 = 50_000;
const NS_PER_MS: u64 = 1_000_000;
/// What `sq_thread_idle` is where it is 0, in milliseconds.
const IDLE_MS: u32 = 1000;

/// The thread of one ring.
pub struct Poller {
    ring: Weak<Ring>,
    process: Arc<Process>,
    idle_ns: u64,
    thread: SpinLock<Option<Arc<sched::Thread>>>,
    is_ending: AtomicBool,
    has_ended: AtomicBool,
    ended: WaitQueue,
}

/// Threads that have not begun.
static BEGINNING: SpinLock<Vec<Arc<Poller>>> = SpinLock::new(Vec::new());

/// Starts the thread of a ring.
pub fn start(ring: &Arc<Ring>, process: &Arc<Process>, idle_ms: u32) -> Result<Arc<Poller>> {
    let idle_ms = if idle_ms == 0 { IDLE_MS } else { idle_ms };
    let poller = Arc::new(Poller {
        ring: Arc::downgrade(ring),
        process: process.clone(),
        idle_ns: u64::from(idle_ms) * NS_PER_MS,
        thread: SpinLock::default(),
        is_ending: AtomicBool::new(false),
        has_ended: AtomicBool::new(false),
        ended: WaitQueue::new(),
    });
    BEGINNING.lock().reserve_fallibly(1).map_err(|_| ENOMEM)?;
    let thread = sched::spawn(false, sched::Start::Kernel(work))?;
    *poller.thread.lock() = Some(thread.clone());
    BEGINNING.lock().push(poller.clone());
    sched::unpark(&thread);
    Ok(poller)
}

impl Poller {
    pub fn wake(&self) {
        let thread = self.thread.lock().clone();
        if let Some(thread) = thread {
            sched::unpark(&thread);
        }
    }

    /// The ring is closed. The thread may be the one that closes it.
    pub fn end(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
        self.wake();
    }

    /// The same, and waits until the thread is gone.
    pub fn end_and_wait(&self) {
        self.end();
        wait::for_good(&self.ended, || self.has_ended.load(Ordering::Relaxed));
    }

    pub fn is_of(&self, process: &Process) -> bool {
        core::ptr::eq(&*self.process, process)
    }

    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    /// Whether there was anything to do.
    fn turn(&self) -> bool {
        let Some(ring) = self.ring.upgrade() else { return false };
        if !ring.is_enabled.load(Ordering::Relaxed) || ring.is_closed() {
            return false;
        }
        ring.flush();
        run::resume_all(&ring);
        // Whoever waits for room (IORING_ENTER_SQ_WAIT) hears of it.
        let submitted = submit::submit(&ring, u32::MAX).unwrap_or(0);
        if submitted > 0 {
            ring.work.wake(Events::ALL);
        }
        submitted > 0
    }

    fn set_needs_wakeup(&self, on: bool) -> bool {
        let Some(ring) = self.ring.upgrade() else { return false };
        let mut rings = ring.rings.lock();
        rings.set_flag(SQ_NEED_WAKEUP, on);
        rings.submissions() > 0
    }

    fn run(&self) {
        let mut last = api_plat::now_ns();
        while !self.is_ending.load(Ordering::Relaxed) {
            let now = api_plat::now_ns();
            if self.turn() {
                last = now;
                sched::yield_now();
            } else if now.saturating_sub(last) < self.idle_ns {
                sched::park(now.saturating_add(NAP_NS));
            } else {
                // The flag first: a submission that does not see it is seen here.
                if !self.set_needs_wakeup(true) && !self.is_ending.load(Ordering::Relaxed) {
                    sched::park(wait::FOREVER);
                }
                self.set_needs_wakeup(false);
                last = api_plat::now_ns();
            }
        }
    }
}

fn work() {
    let own = sched::current_handle();
    let poller = {
        let mut beginning = BEGINNING.lock();
        let is_own = |poller: &Arc<Poller>| {
            poller.thread.lock().as_ref().is_some_and(|thread| Arc::ptr_eq(thread, &own))
        };
        let Some(place) = beginning.iter().position(is_own) else { return };
        beginning.swap_remove(place)
    };
    auxiliary::work_for(poller.process.clone(), b"iou-sqp", || poller.run());
    poller.has_ended.store(true, Ordering::Relaxed);
    poller.ended.wake_all(Events::ALL);
}
