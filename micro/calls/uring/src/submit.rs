// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Taking submissions out of a ring: each is copied, checked and linked to the one before.

use super::ops;
use super::request::{CQE_SKIP, FLAGS_KNOWN, IO_DRAIN, Request};
use super::ring::Ring;
use super::run;
use abi::{Errno, Result, errno::*};
use alloc::sync::Arc;
use api_alloc::Reserve;
use core::sync::atomic::Ordering;
use uring::{SETUP_SUBMIT_ALL, Sqe, Taken};

/// After so many submissions other work of the kernel gets its turn.
const TURN: u32 = 128;

/// A link that is put together.
#[derive(Default)]
struct Link {
    head: Option<Arc<Request>>,
    last_opcode: u8,
}

/// Submits up to `most` entries: how many were taken.
pub fn submit(ring: &Arc<Ring>, most: u32) -> Result<usize> {
    ring.submits.fetch_add(1, Ordering::SeqCst);
    let result = submit_all(ring, most);
    if ring.submits.fetch_sub(1, Ordering::SeqCst) == 1 {
        run::end_batch(ring);
        run::run_rest(ring);
    }
    result
}

fn submit_all(ring: &Arc<Ring>, most: u32) -> Result<usize> {
    let count = ring.rings.lock().submissions().min(most);
    let mut link = Link::default();
    let mut done = 0;
    while done < count {
        // A request needs memory, of which there must be some left for what it does.
        if api_alloc::is_low() {
            if done == 0 {
                return Err(EAGAIN);
            }
            break;
        }
        let taken = ring.rings.lock().take();
        let Taken::Entry(sqe) = taken else { break };
        done += 1;
        let ended = submit_one(ring, sqe, &mut link);
        if ended.is_err() && !ring.has(SETUP_SUBMIT_ALL) {
            break;
        }
        if done.is_multiple_of(TURN) {
            sched::work();
        }
    }
    if let Some(head) = link.head.take() {
        run::queue(ring, head);
    }
    Ok(done as usize)
}

fn refuse(request: &Request, e: Errno) {
    request.refused.store(u32::from(e.0), Ordering::Relaxed);
}

/// One submission; an error where it was refused, and ends nothing but itself.
fn submit_one(ring: &Arc<Ring>, sqe: Sqe, link: &mut Link) -> Result<()> {
    let sequence = {
        let mut requests = ring.requests.lock();
        requests.next_sequence += 1;
        requests.next_sequence
    };
    let request = Request::new(ring, &task::current().process, sqe, sequence);
    let checked = check(ring, &request, link);
    if let Err(e) = checked {
        refuse(&request, e);
    }
    link.last_opcode = sqe.opcode;
    let is_linked = request.is_linked();
    let complete = match link.head.take() {
        Some(head) => {
            if checked.is_err() && head.refused.load(Ordering::Relaxed) == 0 {
                refuse(&head, ECANCELED);
            }
            let added = {
                let mut inner = head.inner.lock();
                inner.links.reserve_fallibly(1).map(|()| inner.links.push_back(request))
            };
            if added.is_err() {
                refuse(&head, ENOMEM);
            }
            head
        }
        None => request,
    };
    if is_linked {
        link.head = Some(complete);
        // A link is never broken in its middle.
        return Ok(());
    }
    run::queue(ring, complete);
    checked
}

/// What is wrong with an entry (Linux' io_init_req).
fn check(ring: &Arc<Ring>, request: &Arc<Request>, link: &Link) -> Result<()> {
    let sqe = &request.sqe;
    if sqe.opcode >= ops::OPCODES || sqe.flags & !FLAGS_KNOWN != 0 {
        return Err(EINVAL);
    }
    {
        let mut requests = ring.requests.lock();
        requests.cannot_drain |= request.has(CQE_SKIP);
        if request.has(IO_DRAIN) && requests.cannot_drain {
            return Err(EOPNOTSUPP);
        }
    }
    {
        let registered = ring.registered.lock();
        if let Some(restrictions) = &registered.restrictions
            && !restrictions.allows_submission(sqe.opcode, sqe.flags)
        {
            return Err(EACCES);
        }
        if sqe.personality != 0 {
            let credentials = registered.personalities.get(&sqe.personality).cloned().ok_or(EINVAL)?;
            request.inner.lock().credentials = Some(credentials);
        }
    }
    if sqe.opcode == ops::LINK_TIMEOUT && (link.head.is_none() || link.last_opcode == ops::LINK_TIMEOUT) {
        return Err(EINVAL);
    }
    ops::prepare(ring, request)
}
