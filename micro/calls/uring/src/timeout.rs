// SPDX-License-Identifier: Apache-2.0 OR MIT
//! IORING_OP_TIMEOUT, TIMEOUT_REMOVE and LINK_TIMEOUT.

use super::cancel;
use super::ops::Outcome;
use super::request::{FIXED_FILE, Request, State, Stored};
use super::ring::Ring;
use super::run::{self, number};
use abi::{Result, errno::*};
use alloc::sync::{Arc, Weak};
use api_user::UserPtr;
use core::sync::atomic::Ordering;
use task::time::duration;

const TIMEOUT: u8 = 11;
const TIMEOUT_REMOVE: u8 = 12;
pub const LINK_TIMEOUT: u8 = 15;

const ABS: u32 = 1;
const UPDATE: u32 = 1 << 1;
const BOOTTIME: u32 = 1 << 2;
const REALTIME: u32 = 1 << 3;
const LINK_UPDATE: u32 = 1 << 4;
const ETIME_SUCCESS: u32 = 1 << 5;
const CLOCKS: u32 = BOOTTIME | REALTIME;

/// Timeouts do not count as completions that other timeouts wait for.
pub fn is_timeout(request: &Request) -> bool {
    [TIMEOUT, LINK_TIMEOUT].contains(&request.sqe.opcode)
}

pub fn is_success(request: &Request, result: i32) -> bool {
    is_timeout(request) && result == number(Err(ETIME)) && request.sqe.op_flags & ETIME_SUCCESS != 0
}

/// Reads a `struct __kernel_timespec`, whose nanoseconds may be more than a second (unlike anywhere else).
fn read_time(at: u64) -> Result<u64> {
    let [seconds, nanoseconds] = UserPtr::<[i64; 2]>::new(at).read()?;
    let whole = duration::from_timespec([seconds, 0])?;
    Ok(whole.saturating_add(u64::try_from(nanoseconds).map_err(|_| EINVAL)?))
}

/// Reads the time that the program gives.
pub fn prepare(request: &Request) -> Result<()> {
    let sqe = &request.sqe;
    let flags = sqe.op_flags;
    if sqe.opcode == TIMEOUT_REMOVE {
        if sqe.buffer != 0 || sqe.length != 0 || sqe.file_index != 0 || request.has(FIXED_FILE) {
            return Err(EINVAL);
        }
        if flags & (UPDATE | LINK_UPDATE) == 0 {
            return if flags == 0 { Ok(()) } else { Err(EINVAL) };
        }
        if flags & !(UPDATE | LINK_UPDATE | ABS | CLOCKS) != 0 || flags & CLOCKS == CLOCKS {
            return Err(EINVAL);
        }
        let time = read_time(sqe.offset)?;
        request.inner.lock().stored = Stored::Time(time);
        return Ok(());
    }
    let is_link = sqe.opcode == LINK_TIMEOUT;
    if sqe.buffer != 0 || sqe.length != 1 || sqe.file_index != 0 || is_link && sqe.offset != 0 {
        return Err(EINVAL);
    }
    if flags & !(ABS | CLOCKS | ETIME_SUCCESS) != 0 || flags & CLOCKS == CLOCKS {
        return Err(EINVAL);
    }
    let time = read_time(sqe.address)?;
    request.inner.lock().stored = Stored::Time(time);
    Ok(())
}

/// When a time is, on the monotonic clock. (CLOCK_BOOTTIME is the same: the machine does not sleep.)
fn deadline(time: u64, flags: u32) -> u64 {
    let now = api_plat::now_ns();
    match flags {
        _ if flags & ABS == 0 => now.saturating_add(time),
        _ if flags & REALTIME != 0 => {
            now.saturating_add(time.saturating_sub(api_plat::wall_ns().wrapping_add(now)))
        }
        _ => time,
    }
}

fn time_of(request: &Request) -> u64 {
    match request.inner.lock().stored {
        Stored::Time(time) => time,
        _ => 0,
    }
}

fn set_timer(request: &Request, at: u64) {
    let Some(me) = request.me.upgrade() else { return };
    let old = request.inner.lock().timer.take();
    if let Some(old) = old {
        api_sched::cancel_timer(old);
    }
    let timer = api_sched::add_timer(at, me);
    request.inner.lock().timer = Some(timer);
}

/// Starts a timeout, or ends it when its time has come.
pub fn issue(ring: &Arc<Ring>, request: &Arc<Request>) -> Outcome {
    if request.inner.lock().timer.is_some() {
        return expired(ring, request);
    }
    if let Err(e) = run::arm(ring, request) {
        return Outcome::error(e);
    }
    if request.sqe.offset != 0 {
        let mut requests = ring.requests.lock();
        let target = requests.completed.saturating_add(request.sqe.offset & 0xffff_ffff);
        if requests.by_count.insert_fallibly((target, request.sequence), request.clone()).is_err() {
            drop(requests);
            request.set(State::Running);
            return Outcome::error(ENOMEM);
        }
        request.inner.lock().target = Some(target);
    }
    set_timer(request, deadline(time_of(request), request.sqe.op_flags));
    Outcome::Armed
}

fn expired(ring: &Arc<Ring>, request: &Arc<Request>) -> Outcome {
    if request.sqe.opcode == LINK_TIMEOUT {
        let limited = core::mem::take(&mut request.inner.lock().limits).upgrade();
        if let Some(limited) = limited {
            limited.inner.lock().link_timeout = None;
            if cancel::take(&limited) {
                run::cancelled(ring, &limited);
            } else if limited.is(State::Running) {
                return Outcome::error(EALREADY);
            }
        }
    }
    Outcome::error(ETIME)
}

/// Ties the timeout that is linked behind a request to it, before it starts.
pub fn take_linked(request: &Arc<Request>) {
    let mut inner = request.inner.lock();
    if inner
        .links
        .front()
        .is_none_or(|next| next.sqe.opcode != LINK_TIMEOUT || next.refused.load(Ordering::Relaxed) != 0)
    {
        return;
    }
    let timeout = inner.links.pop_front();
    if let Some(timeout) = &timeout {
        timeout.inner.lock().limits = Arc::downgrade(request);
    }
    inner.link_timeout = timeout;
}

/// The request waits: its time runs from now on.
pub fn arm_linked(ring: &Arc<Ring>, request: &Request) {
    let timeout = request.inner.lock().link_timeout.clone();
    let Some(timeout) = timeout.filter(|timeout| timeout.is(State::New)) else { return };
    if run::arm(ring, &timeout).is_ok() {
        set_timer(&timeout, deadline(time_of(&timeout), timeout.sqe.op_flags));
    }
}

/// The timeout of a request that is done, if its time has not come.
pub fn release(request: &Request) -> Option<Arc<Request>> {
    let timeout = request.inner.lock().link_timeout.take()?;
    timeout.inner.lock().limits = Weak::new();
    (timeout.change(State::New, State::Done) || cancel::take(&timeout)).then_some(timeout)
}

/// TIMEOUT_REMOVE: cancels a timeout, or gives it another time.
pub fn remove(ring: &Arc<Ring>, request: &Request) -> Result<usize> {
    let flags = request.sqe.op_flags;
    let wanted = cancel::Wanted { flags: 0, user_data: request.sqe.address, file: None };
    if flags & (UPDATE | LINK_UPDATE) == 0 {
        return cancel::cancel(ring, &wanted, None, |other| other.sqe.opcode == TIMEOUT);
    }
    let opcode = if flags & LINK_UPDATE != 0 { LINK_TIMEOUT } else { TIMEOUT };
    let found = {
        let requests = ring.requests.lock();
        let named = requests.waiting.range((wanted.user_data, 0)..=(wanted.user_data, u64::MAX));
        named.map(|(_, other)| other).find(|other| other.sqe.opcode == opcode).cloned()
    };
    let found = found.ok_or(ENOENT)?;
    if !found.is(State::Armed) {
        return Err(EALREADY);
    }
    set_timer(&found, deadline(time_of(request), flags));
    Ok(0)
}
