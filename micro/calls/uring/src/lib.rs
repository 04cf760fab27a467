// SPDX-License-Identifier: Apache-2.0 OR MIT
//! io_uring(7): system calls by a ring that a program shares with the kernel.
//!
//! A submission is made where it is submitted, as far as that needs no waiting ([`submit`], [`run`], [`ops`]). A request that has to wait
//! for its file hangs on the file's wait queue as an epoll registration does ([`request`]); when it is woken, a thread that waits for
//! the ring's completions goes on with it, or else the process' [`worker`]. So nothing ever blocks on behalf of a request, a ring costs
//! one kernel thread for each process whose requests wait, and a server that sleeps in io_uring_enter(2) needs none of its turns.
//!
//! The memory of the rings is the crate `uring`.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

mod buffers;
mod cancel;
mod files;
mod message;
mod names;
mod names_of_threads;
mod ops;
mod poll;
mod register;
mod request;
mod restrictions;
mod ring;
mod run;
mod sockets;
mod sqpoll;
mod submit;
mod tag;
mod timeout;
mod transfer;
mod worker;

use ::uring::{
    Params, SETUP_ATTACH_WQ, SETUP_DEFER_TASKRUN, SETUP_SINGLE_ISSUER, SETUP_SQ_AFF, SETUP_SQPOLL,
};
use abi::{Events, Result, errno::*};
use alloc::sync::Arc;
use api_user::UserPtr;
use core::sync::atomic::Ordering;
use descriptors::Description;
use ring::Ring;
use task::call::Call;
use task::process::Process;
use task::signals::with_mask;
use task::time::duration;
use task::{files as descriptors_of, wait};

const O_CLOEXEC: u32 = 0o2000000;
const ENTER_GETEVENTS: u32 = 1;
const ENTER_SQ_WAKEUP: u32 = 1 << 1;
const ENTER_SQ_WAIT: u32 = 1 << 2;
const ENTER_EXT_ARG: u32 = 1 << 3;
const ENTER_REGISTERED_RING: u32 = 1 << 4;
/// GETEVENTS, SQ_WAKEUP, SQ_WAIT, EXT_ARG, REGISTERED_RING.
const ENTER_KNOWN: u32 = 31;
/// `sizeof(struct io_uring_getevents_arg)`.
const EXT_ARG_SIZE: usize = 24;

/// True of a ring.
pub fn is_ring(description: &Description) -> bool {
    Ring::of(description).is_some()
}

/// The process ends, or `runs_another` program: whatever it waits for in any ring is cancelled. Timeouts of a process that ends go on in
/// rings that others have (Linux' io_uring_cancel_generic).
pub fn program_ends(process: &Process, runs_another: bool) {
    let pid = process.pid.of_machine();
    worker::program_ends(process);
    for poller in ring::all().filter_map(|ring| ring.poller()).filter(|poller| poller.is_of(process)) {
        poller.end_and_wait();
    }
    for ring in ring::all() {
        ring.cancel_all(Some(pid), runs_another);
    }
    names_of_threads::thread_ends(task::current().tid.of_machine());
}

/// A thread ends: the rings that it named are let go.
pub fn thread_ends(tid: i32) {
    names_of_threads::thread_ends(tid);
}

/// io_uring_setup(2).
pub fn io_uring_setup(call: &mut Call<'_>) -> Result<usize> {
    let at = call.ptr::<Params>(1);
    let mut params = at.read()?;
    params.fix(call.uint(0))?;
    if params.has(SETUP_ATTACH_WQ) {
        let other = descriptors_of::get(params.wq_fd as i32).map_err(|_| ENXIO)?;
        if !is_ring(&other) {
            return Err(EINVAL);
        }
    }
    let task = task::current();
    let ring = Ring::new(&mut params, &task.process, task.tid.of_machine())?;
    if params.has(SETUP_SQPOLL) {
        if params.has(SETUP_SQ_AFF) && params.sq_thread_cpu >= api_plat::cpus() {
            return Err(EINVAL);
        }
        let poller = sqpoll::start(&ring, &task.process, params.sq_thread_idle)?;
        ring.set_poller(poller);
    }
    at.write(params).inspect_err(|_| ring.end_poller())?;
    let fd =
        descriptors_of::current().install(ring.clone(), O_CLOEXEC | 2).inspect_err(|_| ring.end_poller())?;
    Ok(fd as usize)
}

/// The ring of a call's first argument.
fn target(description: &Description) -> Result<Arc<Ring>> {
    Ring::of(description).and_then(|ring| ring.me.upgrade()).ok_or(EOPNOTSUPP)
}

/// io_uring_enter(2).
pub fn io_uring_enter(call: &mut Call<'_>) -> Result<usize> {
    let flags = call.flags(3, ENTER_KNOWN)?;
    let description = match flags & ENTER_REGISTERED_RING != 0 {
        true => names_of_threads::get(call.uint(0))?,
        false => descriptors_of::get(call.int(0))?,
    };
    let ring = target(&description)?;
    if !ring.is_enabled.load(Ordering::Relaxed) {
        return Err(EBADFD);
    }
    let (wanted, least) = (call.uint(1), call.uint(2));
    let mut submitted = 0;
    if let Some(poller) = ring.poller() {
        if poller.has_ended() {
            return Err(EOWNERDEAD);
        }
        ring.flush();
        if flags & ENTER_SQ_WAKEUP != 0 {
            poller.wake();
        }
        if flags & ENTER_SQ_WAIT != 0 {
            let has_room = || {
                let rings = ring.rings.lock();
                if rings.submissions() < rings.sq_entries() || poller.has_ended() {
                    Ok(())
                } else {
                    Err(EAGAIN)
                }
            };
            wait::on_queue(&ring.work, Events::ALL, wait::FOREVER, has_room)?;
        }
        submitted = wanted as usize;
    } else if wanted > 0 {
        let tid = task::current().tid.of_machine();
        if ring.has(SETUP_SINGLE_ISSUER) && ring.issuer.load(Ordering::Relaxed) != tid {
            return Err(EEXIST);
        }
        submitted = submit::submit(&ring, wanted)?;
        if submitted != wanted as usize {
            return Ok(submitted);
        }
    }
    if flags & ENTER_GETEVENTS == 0 {
        return Ok(submitted);
    }
    match get_events(call, &ring, least, flags) {
        Err(e) if submitted == 0 => Err(e),
        _ => Ok(submitted),
    }
}

fn get_events(call: &Call<'_>, ring: &Arc<Ring>, least: u32, flags: u32) -> Result<usize> {
    let is_issuer = ring.issuer.load(Ordering::Relaxed) == task::current().tid.of_machine();
    if ring.has(SETUP_DEFER_TASKRUN) && !is_issuer {
        return Err(EEXIST);
    }
    let (mut mask, mut size, mut deadline_ns) = (call.arg(4), call.size(5), wait::FOREVER);
    if flags & ENTER_EXT_ARG != 0 {
        if size != EXT_ARG_SIZE {
            return Err(EINVAL);
        }
        let [set, head, time] = call.ptr::<[u64; 3]>(4).read()?;
        (mask, size) = (set, head as u32 as usize);
        if head >> 32 != 0 {
            return Err(EINVAL);
        }
        if time != 0 {
            let length = duration::read_timespec(UserPtr::new(time))?;
            deadline_ns = api_plat::now_ns().saturating_add(length);
        }
    }
    with_mask(UserPtr::new(mask), size, || wait_for(ring, least, deadline_ns))
}

/// Waits until there are `least` completions, and goes on with requests that become ready meanwhile.
fn wait_for(ring: &Arc<Ring>, least: u32, deadline_ns: u64) -> Result<usize> {
    api_sched::run_deferred();
    run::resume_all(ring);
    ring.flush();
    let least = least.min(ring.rings.lock().cq_entries());
    if ring.rings.lock().completions() >= least {
        return Ok(0);
    }
    let key = ring.work.try_add(api_sched::current(), Events::ALL, false)?;
    ring.waiters.fetch_add(1, Ordering::Relaxed);
    let timeouts = ring.requests.lock().timeouts;
    let result = loop {
        run::resume_all(ring);
        // Completions without room stay where they are until the program makes some.
        if !ring.flush() {
            break Err(EBUSY);
        }
        if ring.rings.lock().completions() >= least {
            break Ok(0);
        }
        // A timeout that is done ends the wait, however many completions there are.
        if ring.requests.lock().timeouts != timeouts {
            break Ok(0);
        }
        if task::current().has_signal() {
            break Err(EINTR);
        }
        if api_plat::now_ns() >= deadline_ns {
            break Err(ETIME);
        }
        sched::park(deadline_ns);
    };
    ring.waiters.fetch_sub(1, Ordering::Relaxed);
    ring.work.remove(key);
    run::resume_all(ring);
    // An error is told where there is nothing else to tell.
    if ring.rings.lock().completions() > 0 { Ok(0) } else { result }
}

/// io_uring_register(2).
pub fn io_uring_register(call: &mut Call<'_>) -> Result<usize> {
    let command = call.uint(1);
    if command >= register::COMMANDS {
        return Err(EINVAL);
    }
    let description = descriptors_of::get(call.int(0))?;
    register::register(&target(&description)?, command, call.arg(2), call.uint(3))
}
