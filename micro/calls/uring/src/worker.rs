// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's thread that goes on with a process' requests while no thread of the process waits for completions.
//!
//! It is a thread of the process as far as memory, files and credentials are concerned ([`task::auxiliary`]), and works on requests
//! that are ready only: nothing it does waits for a peer, so one thread is enough for a process.

use super::request::Request;
use super::run;
use abi::{Events, Result, errno::*};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_lock::SpinLock;
use api_sched::WaitQueue;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use ordered::Map;
use task::process::Process;
use task::{auxiliary, wait};

pub struct Worker {
    process: Arc<Process>,
    ready: SpinLock<VecDeque<Arc<Request>>>,
    /// Requests that may become ready: there is room for all of them.
    armed: AtomicUsize,
    thread: SpinLock<Option<Arc<sched::Thread>>>,
    is_ending: AtomicBool,
    has_ended: AtomicBool,
    ended: WaitQueue,
}

/// By process.
static WORKERS: SpinLock<Map<i32, Arc<Worker>>> = SpinLock::new(Map::new());
/// Workers whose thread has not begun.
static BEGINNING: SpinLock<Vec<Arc<Worker>>> = SpinLock::new(Vec::new());

/// The worker of a process, made at the first request that has to wait.
pub fn of(process: &Arc<Process>) -> Result<Arc<Worker>> {
    let pid = process.pid.of_machine();
    if let Some(worker) = WORKERS.lock().get(&pid) {
        return Ok(worker.clone());
    }
    if process.is_ending() {
        return Err(ESRCH);
    }
    let worker = Arc::new(Worker {
        process: process.clone(),
        ready: SpinLock::default(),
        armed: AtomicUsize::new(0),
        thread: SpinLock::default(),
        is_ending: AtomicBool::new(false),
        has_ended: AtomicBool::new(false),
        ended: WaitQueue::new(),
    });
    let thread = sched::spawn(false, sched::Start::Kernel(work))?;
    *worker.thread.lock() = Some(thread.clone());
    // A thread that was spawned cannot be taken back: without room for its worker it ends at once.
    let begun = {
        let mut beginning = BEGINNING.lock();
        beginning.reserve_fallibly(1).map_err(|_| ENOMEM).and_then(|()| {
            WORKERS.lock().insert_fallibly(pid, worker.clone()).map_err(|_| ENOMEM)?;
            beginning.push(worker.clone());
            Ok(())
        })
    };
    sched::unpark(&thread);
    begun.map(|()| worker)
}

/// The worker of a process that has one.
pub fn find(process: &Process) -> Option<Arc<Worker>> {
    WORKERS.lock().get(&process.pid.of_machine()).cloned()
}

/// The process ends or runs another program: its worker ends, and nothing is done for the process any more.
pub fn program_ends(process: &Process) {
    let Some(worker) = WORKERS.lock().remove(&process.pid.of_machine()) else { return };
    worker.is_ending.store(true, Ordering::Relaxed);
    worker.wake();
    wait::for_good(&worker.ended, || worker.has_ended.load(Ordering::Relaxed));
    let ready = core::mem::take(&mut *worker.ready.lock());
    drop(ready);
}

impl Worker {
    /// One more request may become ready: `ENOMEM` where there is no room for it.
    pub fn arm(&self) -> Result<()> {
        let armed = self.armed.load(Ordering::Relaxed) + 1;
        // Behind those of rings that were closed, which are in the queue until the thread comes to them.
        self.ready.lock().reserve_fallibly(armed).map_err(|_| ENOMEM)?;
        self.armed.store(armed, Ordering::Relaxed);
        Ok(())
    }

    pub fn disarm(&self) {
        let fewer = |armed: usize| armed.checked_sub(1);
        let _ = self.armed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer);
    }

    /// Hands a ready request to the thread.
    pub fn push(&self, request: Arc<Request>) {
        self.ready.lock().push_back(request);
        self.wake();
    }

    /// As [`Worker::push`], of a request that was never armed.
    pub fn hand_over(&self, request: Arc<Request>) -> Result<()> {
        let armed = self.armed.load(Ordering::Relaxed);
        self.ready.lock().reserve_fallibly(armed + 1).map_err(|_| ENOMEM)?;
        self.push(request);
        Ok(())
    }

    pub fn pop(&self) -> Option<Arc<Request>> {
        self.ready.lock().pop_front()
    }

    fn wake(&self) {
        let thread = self.thread.lock().clone();
        if let Some(thread) = thread {
            sched::unpark(&thread);
        }
    }
}

/// What the thread does.
fn work() {
    let own = sched::current_handle();
    let is_own =
        |worker: &Arc<Worker>| worker.thread.lock().as_ref().is_some_and(|thread| Arc::ptr_eq(thread, &own));
    let worker = {
        let mut beginning = BEGINNING.lock();
        let Some(place) = beginning.iter().position(is_own) else { return };
        beginning.swap_remove(place)
    };
    auxiliary::work_for(worker.process.clone(), b"iou-wrk", || {
        while !worker.is_ending.load(Ordering::Relaxed) {
            match worker.pop() {
                Some(request) => {
                    run::resume(&request);
                    drop(request);
                    // Work on the way out, and a turn for the program.
                    if api_plat::take_work() {
                        sched::work();
                    }
                }
                None => sched::park(wait::FOREVER),
            }
        }
    });
    worker.has_ended.store(true, Ordering::Relaxed);
    worker.ended.wake_all(Events::ALL);
}
