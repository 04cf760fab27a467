// SPDX-License-Identifier: Apache-2.0 OR MIT
//! IORING_OP_POLL_ADD and POLL_REMOVE.

use super::cancel::{self, Wanted};
use super::ops::Outcome;
use super::request::{CQE_SKIP, Request, State};
use super::ring::Ring;
use super::run;
use abi::{Events, Result, errno::*};
use alloc::sync::Arc;
use core::sync::atomic::Ordering;

pub const ADD: u8 = 6;
const ADD_MULTI: u32 = 1;
const UPDATE_EVENTS: u32 = 1 << 1;
const UPDATE_USER_DATA: u32 = 1 << 2;
const ADD_LEVEL: u32 = 1 << 3;

fn interest(events: u32) -> u32 {
    // Flags of epoll that say how to wait, and bits that are no events.
    events & 0xffff | (Events::ERR | Events::HUP | Events::RDHUP).0
}

pub fn prepare_add(request: &Request) -> Result<()> {
    let sqe = &request.sqe;
    if sqe.buffer != 0 || sqe.offset != 0 || sqe.address != 0 || sqe.length & !(ADD_MULTI | ADD_LEVEL) != 0 {
        return Err(EINVAL);
    }
    if sqe.length & ADD_MULTI != 0 && request.has(CQE_SKIP) {
        return Err(EINVAL);
    }
    request.events.store(interest(sqe.op_flags), Ordering::Relaxed);
    request.is_multi.store(sqe.length & ADD_MULTI != 0, Ordering::Relaxed);
    Ok(())
}

pub fn prepare_remove(request: &Request) -> Result<()> {
    let sqe = &request.sqe;
    let (events, user_data) = (sqe.length & UPDATE_EVENTS != 0, sqe.length & UPDATE_USER_DATA != 0);
    if sqe.buffer != 0
        || sqe.file_index != 0
        || sqe.length & !(ADD_MULTI | UPDATE_EVENTS | UPDATE_USER_DATA) != 0
    {
        return Err(EINVAL);
    }
    // A poll that takes many events is made so by an update alone.
    if sqe.length == ADD_MULTI || !user_data && sqe.offset != 0 || !events && sqe.op_flags != 0 {
        return Err(EINVAL);
    }
    Ok(())
}

pub fn add(ring: &Arc<Ring>, request: &Arc<Request>) -> Outcome {
    let Some(description) = request.file() else { return Outcome::error(EBADF) };
    loop {
        let wanted = request.events.load(Ordering::Relaxed);
        let ready = description.file().poll().0 & wanted;
        let is_multi = request.is_multi.load(Ordering::Relaxed);
        if ready != 0 && (!is_multi || description.file().wait_queue().is_none()) {
            return Outcome::Done(ready as i32, 0);
        }
        if ready != 0 && !run::post_more(ring, request, ready as i32, 0) {
            return Outcome::Done(ready as i32, 0);
        }
        if description.file().wait_queue().is_none() {
            return Outcome::error(EINVAL);
        }
        // The queue is told all events: an update may ask for others.
        let armed = run::arm(ring, request).and_then(|()| request.watch(&description, Events::ALL));
        if let Err(e) = armed {
            return Outcome::error(e);
        }
        // What was there is told once (an edge), and what came while the request was not on the queue now.
        let is_later = description.file().poll().0 & request.events.load(Ordering::Relaxed) & !ready != 0;
        if !is_later || !request.change(State::Armed, State::Running) {
            return Outcome::Armed;
        }
    }
}

/// POLL_REMOVE: cancels a poll, or changes it.
pub fn remove(ring: &Arc<Ring>, request: &Request) -> Result<usize> {
    let sqe = &request.sqe;
    let wanted = Wanted { flags: 0, user_data: sqe.address, file: None };
    if sqe.length & (UPDATE_EVENTS | UPDATE_USER_DATA) == 0 {
        return cancel::cancel(ring, &wanted, None, |other| other.sqe.opcode == ADD);
    }
    let found = {
        let requests = ring.requests.lock();
        let named = requests.waiting.range((sqe.address, 0)..=(sqe.address, u64::MAX));
        named.map(|(_, other)| other).find(|other| other.sqe.opcode == ADD).cloned()
    };
    let found = found.ok_or(ENOENT)?;
    if !found.change(State::Armed, State::Running) {
        return Err(EALREADY);
    }
    if sqe.length & UPDATE_EVENTS != 0 {
        found.events.store(interest(sqe.op_flags), Ordering::Relaxed);
        found.is_multi.store(sqe.length & ADD_MULTI != 0, Ordering::Relaxed);
    }
    if sqe.length & UPDATE_USER_DATA != 0 {
        ring.remove(&found);
        found.user_data.store(sqe.offset, Ordering::Relaxed);
    }
    match add(ring, &found) {
        Outcome::Done(result, flags) => {
            let result =
                if result == run::number(Err(ENOMEM)) { run::number(Err(ECANCELED)) } else { result };
            let _ = flags;
            run::end_early(ring, &found, result);
        }
        Outcome::Armed | Outcome::Wait(..) => {}
    }
    Ok(0)
}
