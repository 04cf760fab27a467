// SPDX-License-Identifier: Apache-2.0 OR MIT
//! io_uring_register(2).

use super::buffers::{self, Buffers};
use super::cancel::{self, Wanted};
use super::files::{self, FileTable};
use super::names_of_threads;
use super::ops;
use super::restrictions::Restrictions;
use super::ring::Ring;
use abi::{Result, errno::*};
use alloc::sync::Arc;
use api_user::UserPtr;
use core::sync::atomic::Ordering;
use eventfd::EventFd;

/// Commands are below this one.
pub const COMMANDS: u32 = 26;
/// IORING_RSRC_REGISTER_SPARSE.
const SPARSE: u32 = 1;
/// IO_URING_OP_SUPPORTED.
const SUPPORTED: u16 = 1;
/// Most personalities of a ring (Linux: as many as a 16-bit number names).
const MAX_PERSONALITIES: usize = 4096;
/// Threads of a process that would do unbounded work, where nobody says how many.
const WORKERS: [u32; 2] = [4, 4096];

/// What a command hands over: an address and a number.
#[derive(Clone, Copy)]
struct Argument {
    at: u64,
    count: u32,
}

impl Argument {
    fn none(self) -> Result<()> {
        if self.at == 0 && self.count == 0 { Ok(()) } else { Err(EINVAL) }
    }

    fn one(self) -> Result<()> {
        if self.at != 0 && self.count == 1 { Ok(()) } else { Err(EINVAL) }
    }

    /// A structure of `N` words whose size the caller gives.
    fn sized<const N: usize>(self) -> Result<[u64; N]> {
        if self.count as usize != 8 * N {
            return Err(EINVAL);
        }
        UserPtr::<[u64; N]>::new(self.at).read()
    }
}

pub fn register(ring: &Arc<Ring>, command: u32, at: u64, count: u32) -> Result<usize> {
    let argument = Argument { at, count };
    let issuer = ring.issuer.load(Ordering::Relaxed);
    if ring.has(uring::SETUP_SINGLE_ISSUER) && issuer != 0 && issuer != task::current().tid.of_machine() {
        return Err(EEXIST);
    }
    let is_enabled = ring.is_enabled.load(Ordering::Relaxed);
    let is_refused = |restrictions: &Restrictions| is_enabled && !restrictions.allows_command(command);
    if ring.registered.lock().restrictions.as_ref().is_some_and(is_refused) {
        return Err(EACCES);
    }
    match command {
        0 | 2 if at == 0 => Err(EFAULT),
        0 => set_buffers(ring, at, count, 0),
        1 => argument.none().and_then(|()| remove_buffers(ring)),
        2 => set_files(ring, at, count, 0),
        3 => argument.none().and_then(|()| remove_files(ring)),
        4 | 7 => argument.one().and_then(|()| set_eventfd(ring, at, command == 7)),
        5 => argument.none().and_then(|()| ring.registered.lock().eventfd.take().map(|_| 0).ok_or(ENXIO)),
        6 => {
            let [first, data] = UserPtr::<[u64; 2]>::new(at).read()?;
            check(count != 0 && first >> 32 == 0)?;
            files::update(ring, first as u32, data, 0, count)
        }
        8 => probe(argument),
        9 => argument.none().and_then(|()| add_personality(ring)),
        10 if at != 0 => Err(EINVAL),
        10 => {
            let id = u16::try_from(count).map_err(|_| EINVAL)?;
            ring.registered.lock().personalities.remove(&id).map(|_| 0).ok_or(EINVAL)
        }
        11 if is_enabled => Err(EBADFD),
        11 => restrict(ring, argument),
        12 => argument.none().and_then(|()| enable(ring)),
        13 | 15 => {
            let [head, reserved, data, tags] = argument.sized()?;
            let (number, flags) = (head as u32, (head >> 32) as u32);
            check(number != 0 && reserved == 0 && flags & !SPARSE == 0 && (flags == 0 || data == 0))?;
            match command {
                13 => set_files(ring, data, number, tags),
                _ => set_buffers(ring, data, number, tags),
            }
        }
        14 | 16 => {
            let [first, data, tags, number] = argument.sized()?;
            check(first >> 32 == 0 && number >> 32 == 0 && number != 0)?;
            match command {
                14 => files::update(ring, first as u32, data, tags, number as u32),
                _ => buffers::update(ring, first as u32, data, tags, number as u32),
            }
        }
        // Where threads that do unbounded work may run: there are none.
        17 => check(at != 0 && count != 0).and_then(|()| UserPtr::<u8>::new(at).read()).map(|_| 0),
        18 => argument.none().map(|()| 0),
        19 => set_workers(ring, argument),
        20 | 21 => names_of_threads::update(at, count, command == 20),
        22 | 23 => {
            argument.one()?;
            let [address, head, ref reserved @ ..] = UserPtr::<[u64; 5]>::new(at).read()?;
            check(reserved.iter().all(|word| *word == 0) && head >> 48 == 0)?;
            let (entries, group) = (head as u32, (head >> 32) as u16);
            match command {
                22 => buffers::register_ring(ring, address, entries, group),
                _ => buffers::unregister_ring(ring, group),
            }
            .map(|()| 0)
        }
        24 => cancel_now(ring, argument),
        25 => {
            check(at != 0 && count == 0)?;
            let [range, reserved] = UserPtr::<[u64; 2]>::new(at).read()?;
            check(reserved == 0)?;
            files::set_range(ring, range as u32, (range >> 32) as u32).map(|()| 0)
        }
        _ => Err(EINVAL),
    }
}

fn check(is_right: bool) -> Result<()> {
    if is_right { Ok(()) } else { Err(EINVAL) }
}

fn set_buffers(ring: &Ring, at: u64, count: u32, tags: u64) -> Result<usize> {
    if ring.registered.lock().buffers.is_some() {
        return Err(EBUSY);
    }
    let buffers = Buffers::new(ring, at, count, tags)?;
    ring.registered.lock().buffers = Some(buffers);
    Ok(0)
}

fn remove_buffers(ring: &Ring) -> Result<usize> {
    let buffers = ring.registered.lock().buffers.take().ok_or(ENXIO)?;
    drop(buffers);
    Ok(0)
}

fn set_files(ring: &Ring, at: u64, count: u32, tags: u64) -> Result<usize> {
    if ring.registered.lock().files.is_some() {
        return Err(EBUSY);
    }
    let table = FileTable::new(ring, at, count, tags)?;
    ring.registered.lock().files = Some(table);
    Ok(0)
}

fn remove_files(ring: &Ring) -> Result<usize> {
    let table = ring.registered.lock().files.take().ok_or(ENXIO)?;
    drop(table);
    Ok(0)
}

fn set_eventfd(ring: &Ring, at: u64, only_later: bool) -> Result<usize> {
    let fd = UserPtr::<i32>::new(at).read()?;
    if ring.registered.lock().eventfd.is_some() {
        return Err(EBUSY);
    }
    let description = task::files::get(fd)?;
    if !description.file().as_any().is::<EventFd>() {
        return Err(EINVAL);
    }
    ring.registered.lock().eventfd = Some((description, only_later));
    Ok(0)
}

/// IORING_REGISTER_PROBE: `struct io_uring_probe` and up to 256 of `struct io_uring_probe_op`.
fn probe(argument: Argument) -> Result<usize> {
    check(argument.at != 0 && argument.count <= 256)?;
    let words = 2 + u64::from(argument.count);
    let at = UserPtr::<u64>::new(argument.at);
    for index in 0..words {
        check(at.add(index).read()? == 0)?;
    }
    let count = argument.count.min(u32::from(ops::OPCODES));
    at.write(u64::from(ops::OPCODES - 1) | u64::from(count) << 8)?;
    at.add(1).write(0)?;
    for opcode in 0..count {
        let is_there = opcode as u8 != ops::URING_CMD;
        let flags = if is_there { SUPPORTED } else { 0 };
        at.add(2 + u64::from(opcode)).write(u64::from(opcode) | u64::from(flags) << 16)?;
    }
    Ok(0)
}

/// Requests may be made with the rights that the caller has now.
fn add_personality(ring: &Ring) -> Result<usize> {
    let credentials = task::current().credentials().lock().clone();
    let mut registered = ring.registered.lock();
    if registered.personalities.len() >= MAX_PERSONALITIES {
        return Err(ENOSPC);
    }
    let mut id = registered.next_personality.max(1);
    while registered.personalities.contains_key(&id) {
        id = id.checked_add(1).unwrap_or(1);
    }
    registered.next_personality = id.wrapping_add(1);
    registered.personalities.insert_fallibly(id, credentials).map_err(|_| ENOMEM)?;
    Ok(usize::from(id))
}

fn restrict(ring: &Ring, argument: Argument) -> Result<usize> {
    if ring.registered.lock().restrictions.is_some() {
        return Err(EBUSY);
    }
    let restrictions = Restrictions::read(argument.at, argument.count)?;
    ring.registered.lock().restrictions = Some(restrictions);
    Ok(0)
}

fn enable(ring: &Ring) -> Result<usize> {
    if ring.is_enabled.swap(true, Ordering::Relaxed) {
        return Err(EBADFD);
    }
    ring.issuer.store(task::current().tid.of_machine(), Ordering::Relaxed);
    Ok(0)
}

/// IORING_REGISTER_IOWQ_MAX_WORKERS: the numbers are kept and told, and nothing else, for one thread does all that waits.
fn set_workers(ring: &Ring, argument: Argument) -> Result<usize> {
    check(argument.at != 0 && argument.count == 2)?;
    let at = UserPtr::<[u32; 2]>::new(argument.at);
    let asked = at.read()?;
    check(asked.iter().all(|number| *number <= i32::MAX as u32))?;
    let old = {
        let mut registered = ring.registered.lock();
        let old = match registered.workers {
            [0, 0] => WORKERS,
            old => old,
        };
        let pick = |kind: usize| if asked[kind] == 0 { old[kind] } else { asked[kind] };
        registered.workers = [pick(0), pick(1)];
        old
    };
    at.write(old)?;
    Ok(0)
}

/// IORING_REGISTER_SYNC_CANCEL: `struct io_uring_sync_cancel_reg`.
fn cancel_now(ring: &Arc<Ring>, argument: Argument) -> Result<usize> {
    argument.one()?;
    let [user_data, head, _seconds, _nanoseconds, ref reserved @ ..] =
        UserPtr::<[u64; 8]>::new(argument.at).read()?;
    let (fd, flags) = (head as i32, (head >> 32) as u32);
    check(reserved.iter().all(|word| *word == 0) && flags & !cancel::KNOWN == 0)?;
    let wanted = Wanted::new(ring, flags, user_data, fd, flags & cancel::FD_FIXED != 0)?;
    let cancelled = cancel::cancel(ring, &wanted, None, |_| true);
    super::run::resume_all(ring);
    match cancelled {
        // None is not an error where all are meant, but here it is.
        Ok(0) if flags & (cancel::ALL | cancel::ANY) != 0 => Err(ENOENT),
        cancelled => cancelled,
    }
}
