// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cancelling requests that wait: IORING_OP_ASYNC_CANCEL, and IORING_REGISTER_SYNC_CANCEL.

use super::files;
use super::request::{Request, State};
use super::ring::Ring;
use super::run;
use abi::{Result, errno::*};
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use descriptors::Description;

pub const ALL: u32 = 1;
pub const FD: u32 = 1 << 1;
pub const ANY: u32 = 1 << 2;
pub const FD_FIXED: u32 = 1 << 3;
pub const KNOWN: u32 = 15;

/// What is to be cancelled.
pub struct Wanted {
    pub flags: u32,
    pub user_data: u64,
    pub file: Option<Arc<Description>>,
}

impl Wanted {
    /// By the flags: everything, requests of a file, or those that the program calls `user_data`.
    pub fn new(ring: &Ring, flags: u32, user_data: u64, fd: i32, is_fixed: bool) -> Result<Wanted> {
        let file = match flags & FD != 0 {
            true if is_fixed => Some(files::fixed(ring, fd as u32)?),
            true => Some(task::files::get(fd)?),
            false => None,
        };
        Ok(Wanted { flags, user_data, file })
    }

    fn is(&self, request: &Request) -> bool {
        match &self.file {
            _ if self.flags & ANY != 0 => true,
            Some(file) => request.file().is_some_and(|other| Arc::ptr_eq(&other, file)),
            None => request.user_data() == self.user_data,
        }
    }
}

/// Takes a request out of its wait, to be completed by the caller; false where it does not wait.
pub fn take(request: &Request) -> bool {
    request.change(State::Armed, State::Done)
}

/// Cancels one request; false where a thread is at it. One that is ready has its place in a queue and ends when it comes to that.
fn cancel_one(ring: &Ring, request: &Arc<Request>) -> bool {
    if take(request) {
        run::cancelled(ring, request);
        return true;
    }
    request.is(State::Ready) && !request.is_cancelled.swap(true, Ordering::Relaxed)
}

/// Cancels what is meant; how many were cancelled with [`ALL`] or [`ANY`], otherwise 0. `ENOENT` where there is none, `EALREADY` where a
/// thread is at it.
pub fn cancel(
    ring: &Ring,
    wanted: &Wanted,
    except: Option<&Request>,
    filter: impl Fn(&Request) -> bool,
) -> Result<usize> {
    let all = wanted.flags & (ALL | ANY) != 0;
    let by_name = wanted.flags & (FD | ANY) == 0;
    // The newest first, as Linux.
    let (first, mut to) = match by_name {
        true => ((wanted.user_data, 0), (wanted.user_data, u64::MAX)),
        false => ((0, 0), (u64::MAX, u64::MAX)),
    };
    let (mut count, mut is_running) = (0, false);
    loop {
        let next = {
            let requests = ring.requests.lock();
            requests.waiting.range(first..to).next_back().map(|(key, request)| (*key, request.clone()))
        };
        let Some((key, request)) = next else { break };
        to = key;
        if !wanted.is(&request) || except.is_some_and(|e| core::ptr::eq(e, &*request)) || !filter(&request) {
            continue;
        }
        if cancel_one(ring, &request) {
            count += 1;
            if !all {
                break;
            }
        } else {
            is_running = true;
        }
    }
    match count {
        // Linux says how many even where that is none.
        _ if all => Ok(count),
        0 if is_running => Err(EALREADY),
        0 => Err(ENOENT),
        _ => Ok(0),
    }
}
