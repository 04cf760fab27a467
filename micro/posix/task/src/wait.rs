// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The only place where a system call blocks.

use crate::thread;
use abi::{Errno, Events, Result, errno::EAGAIN, errno::EINTR};
use api_fs::File;
use api_sched::WaitQueue;

/// A call was interrupted by a signal and is to be made again unless a handler without SA_RESTART ran (Linux'
/// ERESTARTSYS; never seen by the program).
pub const RESTART: Errno = Errno(512);
/// As [`RESTART`], but EINTR whenever any handler ran (Linux' ERESTARTNOHAND: pause, sigsuspend, ppoll, pselect6).
pub const RESTART_NO_HANDLER: Errno = Errno(514);

/// As [`RESTART_NO_HANDLER`], of a call with a deadline that is kept ([`interrupted`]): it is made again as `restart_syscall` (Linux'
/// ERESTART_RESTARTBLOCK: nanosleep, poll).
pub const RESTART_BLOCK: Errno = Errno(516);
/// As [`RESTART`], whatever handlers ran (Linux' ERESTARTNOINTR: FUTEX_LOCK_PI).
pub const RESTART_ALWAYS: Errno = Errno(513);

/// No deadline.
pub const FOREVER: u64 = u64::MAX;

/// Makes `operation` until it answers something else than `EAGAIN`, sleeping on the file's queue between.
///
/// `EAGAIN` comes through when `blocking` is false, when the file has no queue, and when `deadline_ns` (monotonic)
/// has passed; [`RESTART`] when a signal is to be delivered.
pub fn for_file<T>(
    file: &dyn File,
    interest: Events,
    blocking: bool,
    deadline_ns: u64,
    mut operation: impl FnMut() -> Result<T>,
) -> Result<T> {
    match operation() {
        Err(EAGAIN) if blocking => {}
        done => return done,
    }
    let Some(queue) = file.wait_queue() else { return Err(EAGAIN) };
    if deadline_ns != FOREVER {
        return on_queue(queue, interest, deadline_ns, operation);
    }
    let limit = Some(file).filter(|_| interest.intersects(Events::IN)).and_then(|file| file.read_limit_ns());
    match deadline_of(file, interest) {
        FOREVER => {
            let deadline = limit.map_or(FOREVER, |ns| api_plat::now_ns().saturating_add(ns));
            on_queue(queue, interest, deadline, operation)
        }
        // A wait with a time-out of the socket's is not made again (signal(7)).
        deadline => match on_queue(queue, interest, deadline, operation) {
            Err(RESTART) => Err(EINTR),
            result => result,
        },
    }
}

/// When a blocking call on the socket ends without success: SO_RCVTIMEO and SO_SNDTIMEO.
#[inline]
pub fn deadline_of(file: &dyn File, interest: Events) -> u64 {
    let Ok(socket) = api_socket::of_file(file) else { return FOREVER };
    let timeout = socket.timeout_ns(interest.intersects(Events::IN));
    timeout.map_or(FOREVER, |ns| api_plat::now_ns().saturating_add(ns))
}

/// As [`for_file`], of a call on the socket `file` that waits for room in another socket's queue.
pub fn for_room<T>(file: &dyn File, queue: &WaitQueue, operation: impl FnMut() -> Result<T>) -> Result<T> {
    match deadline_of(file, Events::OUT) {
        FOREVER => on_queue(queue, Events::OUT, FOREVER, operation),
        deadline => match on_queue(queue, Events::OUT, deadline, operation) {
            Err(RESTART) => Err(EINTR),
            result => result,
        },
    }
}

/// As [`for_file`], for a queue.
pub fn on_queue<T>(
    queue: &WaitQueue,
    interest: Events,
    deadline_ns: u64,
    mut operation: impl FnMut() -> Result<T>,
) -> Result<T> {
    let _registration = Registration::new(queue, interest);
    loop {
        // After registering: a change between the last try and the registration would be lost otherwise.
        match operation() {
            Err(EAGAIN) => {}
            done => return done,
        }
        if thread::current().has_signal() {
            return Err(RESTART);
        }
        if api_plat::now_ns() >= deadline_ns {
            return Err(EAGAIN);
        }
        sched::park(deadline_ns);
    }
}

/// As [`on_queue`] without a deadline, for what decides itself which signals it gives up for.
pub fn on_queue_unless<T>(
    queue: &WaitQueue,
    mut operation: impl FnMut() -> Result<T>,
    mut gives_up: impl FnMut() -> bool,
) -> Result<T> {
    let _registration = Registration::new(queue, Events::ALL);
    loop {
        match operation() {
            Err(EAGAIN) => {}
            done => return done,
        }
        if gives_up() {
            return Err(RESTART);
        }
        sched::park(FOREVER);
    }
}

/// Sleeps until it is so, whatever signals come.
pub fn for_good(queue: &WaitQueue, mut is_so: impl FnMut() -> bool) {
    let _registration = Registration::new(queue, Events::ALL);
    while !is_so() {
        sched::park(FOREVER);
    }
}

/// Sleeps until the deadline or a signal: `true` when the time has passed.
pub fn sleep_until(deadline_ns: u64) -> bool {
    loop {
        if api_plat::now_ns() >= deadline_ns {
            return true;
        }
        if thread::current().has_signal() {
            return false;
        }
        sched::park(deadline_ns);
    }
}

/// Between the pieces of a long call: does what is due and lets other threads run. True when a signal waits, and the call is
/// to end with what it has done.
#[inline]
pub fn take_a_break() -> bool {
    sched::work();
    thread::current().has_signal()
}

/// When a call that may take `timeout_ns` is over. A call that was interrupted without a handler and is made again
/// keeps the deadline it had: its answer must go through [`interrupted`].
#[inline]
pub fn deadline_in(timeout_ns: u64) -> u64 {
    let resumed = thread::current().signals.take_resume();
    resumed.unwrap_or_else(|| api_plat::now_ns().saturating_add(timeout_ns))
}

/// What a call answers that has a deadline and was interrupted: EINTR after any handler, otherwise it goes on with
/// the same deadline.
pub fn interrupted(deadline_ns: u64) -> Errno {
    thread::current().signals.set_resume(deadline_ns);
    RESTART_BLOCK
}

/// A place in a wait queue for as long as it lives.
struct Registration<'a> {
    queue: &'a WaitQueue,
    key: api_sched::WaitKey,
}

impl<'a> Registration<'a> {
    fn new(queue: &'a WaitQueue, interest: Events) -> Self {
        let waiter = api_sched::current();
        Registration { queue, key: queue.add(waiter, interest, false) }
    }
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        self.queue.remove(self.key);
    }
}
