// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Starting requests, going on with those that waited, and completing them.
//!
//! What follows a request (its link, or requests behind IOSQE_IO_DRAIN) is started by the loop in [`run`], not by the completion: links
//! of any length take no stack.

use super::buffers;
use super::files;
use super::ops::{self, Outcome};
use super::request::{CQE_SKIP, FIXED_FILE, IO_DRAIN, IO_HARDLINK, Request, State, Stored};
use super::ring::{Drained, Ring};
use super::timeout;
use super::worker;
use abi::{Errno, Events, Result, errno::*};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use api_alloc::Reserve;
use core::sync::atomic::Ordering;
use descriptors::Description;

/// IORING_CQE_F_BUFFER, F_MORE, F_SOCK_NONEMPTY and F_NOTIF.
pub const F_BUFFER: u32 = 1;
pub const F_MORE: u32 = 2;
pub const F_SOCK_NONEMPTY: u32 = 4;
pub const F_NOTIF: u32 = 8;

/// The result of a completion.
pub fn number(result: Result<usize>) -> i32 {
    match result {
        Ok(n) => n as i32,
        // A call of the program's would be made again.
        Err(e) if e.0 >= 512 => EINTR.to_return() as i32,
        Err(e) => e.to_return() as i32,
    }
}

fn error(e: Errno) -> i32 {
    number(Err(e))
}

/// Hands a link to the ring: it starts now, or behind everything before it.
pub fn queue(ring: &Arc<Ring>, head: Arc<Request>) {
    let (length, in_middle) = {
        let inner = head.inner.lock();
        (1 + inner.links.len(), inner.links.iter().any(|request| request.has(IO_DRAIN)))
    };
    let waits = {
        let mut requests = ring.requests.lock();
        let drains = head.has(IO_DRAIN) || in_middle || requests.drains_next;
        requests.drains_next = in_middle;
        // What was refused is told at once.
        let waits = head.refused.load(Ordering::Relaxed) == 0
            && (!requests.drained.is_empty() || drains && requests.started > 0);
        if waits {
            match requests.drained.reserve_fallibly(1) {
                Ok(()) => requests.drained.push_back(Drained { head: head.clone(), length, drains }),
                Err(_) => head.refused.store(ENOMEM.0 as u32, Ordering::Relaxed),
            }
        }
        if !waits || head.refused.load(Ordering::Relaxed) == ENOMEM.0 as u32 {
            requests.started += length;
            false
        } else {
            true
        }
    };
    if !waits {
        run(ring, head);
    }
}

/// What the running thread may start now.
fn next(ring: &Ring) -> Option<Arc<Request>> {
    loop {
        let head = next_of_all(ring)?;
        if core::ptr::eq(&*head.process, &*task::current().process) {
            return Some(head);
        }
        // A ring may have requests of several processes, each of which is made with the memory of its own.
        head.set(State::Ready);
        let handed_over = worker::of(&head.process).and_then(|worker| worker.hand_over(head.clone()));
        if let Err(e) = handed_over {
            abandon(ring, &head, e);
        }
    }
}

/// What may start now: behind a request that was cancelled, or behind all that came before.
fn next_of_all(ring: &Ring) -> Option<Arc<Request>> {
    let mut requests = ring.requests.lock();
    if let Some(resumed) = requests.resumed.pop_front() {
        return Some(resumed);
    }
    let may_start = requests
        .drained
        .front()
        .is_some_and(|first| requests.started == 0 || requests.drained_flow && !first.drains);
    if !may_start {
        return None;
    }
    let next = requests.drained.pop_front()?;
    requests.drained_flow = !next.drains && !requests.drained.is_empty();
    requests.started += next.length;
    Some(next.head)
}

/// Starts a request, and then whatever may start because of it.
pub fn run(ring: &Arc<Ring>, first: Arc<Request>) {
    let mut now = Some(first);
    while let Some(request) = now {
        now = start(ring, &request).or_else(|| next(ring));
    }
}

/// Starts what may start now: what is linked behind a request that another one ended, for instance.
pub fn run_rest(ring: &Arc<Ring>) {
    if let Some(first) = next(ring) {
        run(ring, first);
    }
}

/// Goes on with a request that is ready.
pub fn resume(request: &Arc<Request>) {
    let Some(ring) = request.ring.upgrade() else { return };
    if !request.change(State::Ready, State::Running) {
        return;
    }
    let follower = match request.is_started.load(Ordering::Relaxed) {
        true if request.is_cancelled.load(Ordering::Relaxed) => finish(&ring, request, error(ECANCELED), 0),
        true => go_on(&ring, request),
        false => start(&ring, request),
    };
    if let Some(now) = follower.or_else(|| next(&ring)) {
        run(&ring, now);
    }
}

/// Goes on with everything that is ready for the running thread.
pub fn resume_all(ring: &Ring) {
    while let Some(request) = ring.next_ready() {
        resume(&request);
    }
    if let Some(worker) = worker::find(&task::current().process) {
        while let Some(request) = worker.pop() {
            resume(&request);
        }
    }
}

fn start(ring: &Arc<Ring>, request: &Arc<Request>) -> Option<Arc<Request>> {
    request.set(State::Running);
    request.is_started.store(true, Ordering::Relaxed);
    let refused = request.refused.load(Ordering::Relaxed);
    if refused != 0 {
        return finish(ring, request, error(Errno(refused as _)), 0);
    }
    timeout::take_linked(request);
    let credentials = request.inner.lock().credentials.take();
    match credentials {
        None => go_on(ring, request),
        // With the rights of a personality for as long as this thread is at it.
        Some(credentials) => {
            let task = task::current();
            let own = core::mem::replace(&mut *task.credentials().lock(), credentials);
            let follower = go_on(ring, request);
            *task.credentials().lock() = own;
            follower
        }
    }
}

/// The request's file, found once: a link's file may be the work of the request before (IORING_FEAT_LINKED_FILE).
fn assign_file(ring: &Ring, request: &Request) -> Result<()> {
    if !ops::needs_file(request.sqe.opcode) || request.inner.lock().file.is_some() {
        return Ok(());
    }
    let (file, tag) = match request.has(FIXED_FILE) {
        true => files::tagged(ring, request.sqe.fd as u32)?,
        false => (task::files::get(request.sqe.fd)?, None),
    };
    let mut inner = request.inner.lock();
    (inner.file, inner.file_tag) = (Some(file), tag);
    Ok(())
}

/// Makes the request's operation. Requests that have to wait are tried once more when they hang on the queue, for what they wait
/// for may have come in between.
fn go_on(ring: &Arc<Ring>, request: &Arc<Request>) -> Option<Arc<Request>> {
    let read = match request.inner.lock().stored {
        Stored::Failed(e) => Err(e),
        _ => Ok(()),
    };
    if let Err(e) = read.and_then(|()| assign_file(ring, request)) {
        return end(ring, request, error(e), 0, true);
    }
    let mut is_first = true;
    loop {
        let outcome = ops::issue(ring, request);
        let (description, events) = match outcome {
            Outcome::Done(result, flags) => return finish(ring, request, result, flags),
            Outcome::Armed => {
                timeout::arm_linked(ring, request);
                return None;
            }
            Outcome::Wait(description, events) => (description, events),
        };
        match wait_on(ring, request, &description, events) {
            Ok(true) => {}
            Ok(false) => return finish(ring, request, error(EAGAIN), 0),
            Err(e) => return finish(ring, request, error(e), 0),
        }
        timeout::arm_linked(ring, request);
        let wanted = events | Events::ERR | Events::HUP;
        if !is_first
            || !description.file().poll().intersects(wanted)
            || !request.change(State::Armed, State::Running)
        {
            return None;
        }
        is_first = false;
    }
}

/// Lets the request wait for its file; false where there is nothing to wait on.
fn wait_on(
    ring: &Arc<Ring>,
    request: &Arc<Request>,
    description: &Arc<Description>,
    events: Events,
) -> Result<bool> {
    if description.file().wait_queue().is_none() {
        return Ok(false);
    }
    arm(ring, request)?;
    request.watch(description, events)
}

/// The request waits from now on.
pub fn arm(ring: &Arc<Ring>, request: &Arc<Request>) -> Result<()> {
    let is_in = ring.requests.lock().waiting.contains_key(&request.key());
    if !is_in {
        ring.insert(request)?;
    }
    request.set(State::Armed);
    Ok(())
}

/// A completion that more will follow; false when the ring has no room, and the request must end.
pub fn post_more(ring: &Ring, request: &Request, result: i32, flags: u32) -> bool {
    if ring.rings.lock().is_full() {
        return false;
    }
    post(ring, request, result, flags | F_MORE);
    true
}

/// Completes the request and gives back what is linked behind it.
pub fn finish(ring: &Ring, request: &Arc<Request>, result: i32, flags: u32) -> Option<Arc<Request>> {
    end(ring, request, result, flags, ops::has_failed(request, result))
}

/// As [`finish`]; the caller says whether it failed, with which what is linked behind it does not start.
fn end(ring: &Ring, request: &Arc<Request>, result: i32, flags: u32, failed: bool) -> Option<Arc<Request>> {
    request.set(State::Done);
    request.leave();
    ring.remove(request);
    buffers::forget(request);
    let (file, tags) = {
        let mut inner = request.inner.lock();
        (inner.file.take(), [inner.file_tag.take(), inner.buffer_tag.take()])
    };
    drop(file);
    let refused = request.refused.load(Ordering::Relaxed) != 0;
    let failed = refused || failed;
    let is_timeout = request.sqe.opcode == ops::TIMEOUT && !refused;
    {
        let mut requests = ring.requests.lock();
        requests.started -= 1;
        requests.timeouts += u64::from(is_timeout);
    }
    // A linked timeout never fails: what becomes of it is a matter of the other request's.
    let is_told = refused || failed && request.sqe.opcode != ops::LINK_TIMEOUT;
    match is_told || !request.has(CQE_SKIP) {
        true if is_timeout => ring.post(request.user_data(), result, flags),
        true => post(ring, request, result, flags),
        false => {}
    }
    drop(tags);
    if let Some(timeout) = timeout::release(request) {
        end_linked(ring, &timeout, ECANCELED, timeout.has(CQE_SKIP));
    }
    let mut links = core::mem::take(&mut request.inner.lock().links);
    if failed && (refused || !request.has(IO_HARDLINK)) {
        let skips = request.has(CQE_SKIP);
        for linked in links {
            end_linked(ring, &linked, ECANCELED, skips);
        }
        return None;
    }
    let follower = links.pop_front()?;
    follower.inner.lock().links = links;
    Some(follower)
}

/// A request of a link that never starts ends: with the error of its submission where it was refused.
fn end_linked(ring: &Ring, request: &Arc<Request>, e: Errno, skips: bool) {
    request.set(State::Done);
    request.leave();
    ring.remove(request);
    ring.requests.lock().started -= 1;
    let refused = request.refused.load(Ordering::Relaxed);
    if !skips {
        post(ring, request, error(if refused != 0 { Errno(refused as _) } else { e }), 0);
    }
}

/// Ends a link that was never started, without completions: its ring or its program is gone.
pub fn drop_link(_ring: &Ring, head: &Arc<Request>) {
    head.set(State::Done);
    let links = core::mem::take(&mut head.inner.lock().links);
    links.iter().for_each(|request| request.set(State::Done));
}

/// Completes a request that was cancelled while it waited ([`super::cancel::take`]). What follows it is started by whoever runs the
/// ring next.
pub fn cancelled(ring: &Ring, request: &Arc<Request>) {
    end_early(ring, request, error(ECANCELED));
}

/// Completes a request out of its turn.
pub fn end_early(ring: &Ring, request: &Arc<Request>, result: i32) {
    let Some(follower) = finish(ring, request, result, 0) else { return };
    let mut requests = ring.requests.lock();
    if requests.resumed.reserve_fallibly(1).is_ok() {
        requests.resumed.push_back(follower);
        return;
    }
    drop(requests);
    abandon(ring, &follower, ENOMEM);
}

/// Ends a link that cannot start.
pub fn abandon(ring: &Ring, head: &Arc<Request>, e: Errno) {
    let links: VecDeque<_> = core::mem::take(&mut head.inner.lock().links);
    end_linked(ring, head, e, false);
    links.iter().for_each(|linked| end_linked(ring, linked, ECANCELED, false));
}

/// Stores a completion, which timeouts count.
fn post(ring: &Ring, request: &Request, result: i32, flags: u32) {
    ring.post(request.user_data(), result, flags);
    ring.requests.lock().batched += 1;
    // The thread that submits does so at its end.
    if ring.submits.load(Ordering::SeqCst) == 0 {
        end_batch(ring);
    }
}

/// Completions count from now on, and timeouts that waited for them are due.
pub fn end_batch(ring: &Ring) {
    {
        let mut requests = ring.requests.lock();
        requests.completed += core::mem::take(&mut requests.batched);
        if requests.by_count.is_empty() {
            return;
        }
    }
    loop {
        let due = {
            let mut requests = ring.requests.lock();
            let completed = requests.completed;
            match requests.by_count.first_key_value() {
                Some(((target, _), _)) if *target <= completed => {
                    requests.by_count.pop_first().map(|(_, request)| request)
                }
                _ => None,
            }
        };
        let Some(due) = due else { return };
        if super::cancel::take(&due) {
            end_early(ring, &due, 0);
        }
    }
}
