// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Priority-inheritance futexes: locks whose word has the owner's number, and which the kernel hands on when somebody waits. The
//! owner's priority stays as it is; who waits is served by priority.
//!
//! While somebody waits the kernel knows the owner by itself ([`Lock`]), and a word that says otherwise is `EINVAL`.

use super::table::{self, ANY, Kind, Lock, Sleeper};
use super::{OWNER_DIED, TID_MASK, WAITERS, Word, aligned, reachable, read, sleep, update, writable};
use abi::{Result, errno::*};
use alloc::sync::Arc;
use api_user::{UserPtr, compare_exchange_u32};
use task::pids::Pid;
use task::processes;
use task::wait::RESTART_ALWAYS;

/// What came of an attempt to own a lock.
enum Attempt {
    Taken,
    /// Somebody owns it.
    Owned(Arc<Lock>),
}

/// The number in a lock's word of a thread, as the caller sees it.
fn number_of(pid: Pid) -> u32 {
    pid.seen_by(&task::current().process) as u32
}

/// Whether the word of a lock that others wait for is what the kernel left there.
fn is_as_known(lock: &Lock, word: u32) -> bool {
    let (owner, number) = (lock.owner(), word & TID_MASK);
    if word & OWNER_DIED != 0 && (owner == Pid::NONE || number == 0) {
        return number == 0;
    }
    owner != Pid::NONE && number_of(owner) == number
}

/// Makes the thread the lock's owner where it is free; where it is not, its word says that somebody waits. `is_contended`: somebody
/// waits in any case.
fn attempt(word: Word, owner: Pid, is_contended: bool) -> Result<Attempt> {
    let number = number_of(owner);
    loop {
        let old = read(word)?;
        if old & TID_MASK == number {
            return Err(EDEADLK);
        }
        if let Some(first) = table::first(word.key()) {
            let lock = first.lock().ok_or(EINVAL)?;
            return if is_as_known(&lock, old) { Ok(Attempt::Owned(lock)) } else { Err(EINVAL) };
        }
        let holder = (old & TID_MASK) as i32;
        let new = match holder {
            0 => old & OWNER_DIED | number | if is_contended { WAITERS } else { 0 },
            _ => old | WAITERS,
        };
        if compare_exchange_u32(word.at, old, new)? != old {
            continue;
        }
        if holder == 0 {
            return Ok(Attempt::Taken);
        }
        return match processes::named_task(holder) {
            Some(task) => Ok(Attempt::Owned(Lock::of(task.tid))),
            None if read(word)? != new => continue,
            None => Err(ESRCH),
        };
    }
}

/// FUTEX_TRYLOCK_PI.
pub fn try_lock(word: Word) -> Result<usize> {
    writable(word)?;
    match attempt(word, task::current().tid, false)? {
        Attempt::Taken => Ok(0),
        Attempt::Owned(_) => Err(EAGAIN),
    }
}

/// FUTEX_LOCK_PI, FUTEX_LOCK_PI2. `EDEADLK` also where the owner waits for a lock of the caller's, or for one whose owner does.
pub fn lock(word: Word, deadline_ns: u64) -> Result<usize> {
    writable(word)?;
    let own = task::current().tid;
    let Attempt::Owned(lock) = attempt(word, own, false)? else { return Ok(0) };
    let sleeper = Sleeper::enter_for(word.key(), ANY, Kind::Lock(lock.clone()));
    if table::is_deadlock(&lock, own) {
        return Err(EDEADLK);
    }
    match sleep(&sleeper, deadline_ns) {
        Ok(()) => owns(word, &sleeper),
        Err(EINTR) => Err(RESTART_ALWAYS),
        Err(e) => Err(e),
    }
}

/// The caller was made the owner: by who unlocked, or because the owner has ended, and then the word does not say so yet.
fn owns(word: Word, sleeper: &Sleeper) -> Result<usize> {
    if sleeper.inherits() {
        let number = number_of(task::current().tid);
        update(word, |_| Ok(number | WAITERS | OWNER_DIED))?;
    }
    Ok(0)
}

/// FUTEX_UNLOCK_PI.
pub fn unlock(word: Word) -> Result<usize> {
    let own = task::current().tid;
    loop {
        let old = UserPtr::<u32>::new(word.at).read()?;
        if old & TID_MASK != number_of(own) {
            return Err(EPERM);
        }
        writable(word)?;
        let Some(first) = table::first(word.key()) else {
            let seen = compare_exchange_u32(word.at, old, 0)?;
            return if seen == old { Ok(0) } else { Err(EAGAIN) };
        };
        let lock = first.lock().filter(|lock| lock.owner() == own).ok_or(EINVAL)?;
        let seen = compare_exchange_u32(word.at, old, WAITERS | number_of(first.pid))?;
        if seen == old {
            table::hand_over(&first, &lock);
            return Ok(0);
        }
        if seen & TID_MASK != old & TID_MASK {
            return Err(EINVAL);
        }
    }
}

/// FUTEX_WAIT_REQUEUE_PI: waits on `word` to be requeued to the lock `target`, and comes back as its owner.
pub fn wait_to_be_requeued(word: Word, value: u32, deadline_ns: u64, target: Word) -> Result<usize> {
    if word.at == target.at {
        return Err(EINVAL);
    }
    writable(target)?;
    aligned(word)?;
    reachable(word)?;
    let sleeper = Sleeper::enter_for(word.key(), ANY, Kind::Requeue(target.key()));
    if UserPtr::<u32>::new(word.at).read()? != value {
        return Err(EAGAIN);
    }
    if word.key() == target.key() {
        return Err(EINVAL);
    }
    match sleep(&sleeper, deadline_ns) {
        Ok(()) => owns(target, &sleeper),
        // What it slept on first has changed by then.
        Err(EINTR) if sleeper.waits_for_lock() => Err(EAGAIN),
        Err(EINTR) => Err(RESTART_ALWAYS),
        Err(e) => Err(e),
    }
}

/// FUTEX_CMP_REQUEUE_PI: makes the first of the sleepers on `from` the owner of the lock `to` if that is free, and lets up to
/// `move_most` others wait for it.
pub fn requeue(from: Word, to: Word, wake: u32, move_most: u32, expected: u32) -> Result<usize> {
    if (wake | move_most) as i32 <= -1 || from.at == to.at || wake != 1 {
        return Err(EINVAL);
    }
    aligned(from)?;
    reachable(from)?;
    writable(to)?;
    if from.key() == to.key() {
        return Err(EINVAL);
    }
    if read(from)? != expected {
        return Err(EAGAIN);
    }
    let waits_for_it =
        |entry: &table::Entry| matches!(entry.kind(), Kind::Requeue(target) if target == to.key());
    let Some(first) = table::first(from.key()) else { return Ok(0) };
    if !waits_for_it(&first) {
        return Err(EINVAL);
    }
    let (lock, mut served) = match attempt(to, first.pid, move_most > 0)? {
        Attempt::Taken => {
            let lock = Lock::of(first.pid);
            table::hand_over(&first, &lock);
            (lock, 1)
        }
        Attempt::Owned(lock) => (lock, 0),
    };
    // One more than are moved is let go on or moved.
    while served <= move_most as usize {
        let Some(next) = table::first(from.key()) else { break };
        if !waits_for_it(&next) {
            return Err(EINVAL);
        }
        if table::is_deadlock(&lock, next.pid) {
            return Err(EDEADLK);
        }
        table::wait_for_lock(&next, to.key(), &lock);
        served += 1;
    }
    Ok(served)
}
