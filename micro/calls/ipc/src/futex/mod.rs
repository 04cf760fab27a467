// SPDX-License-Identifier: Apache-2.0 OR MIT
//! futex(2) and its newer forms. The sleepers live in [`crate::futex::table`].

mod table;

use self::table::{ANY, Key};
use abi::{Errno, Result, errno::*};
use alloc::vec::Vec;
use api_user::{UserPtr, compare_exchange_u32};
use task::call::Call;
use task::processes;
use task::time::clock::Clock;
use task::wait::{self, RESTART, RESTART_ALWAYS, RESTART_NO_HANDLER};

const FUTEX_WAIT: u32 = 0;
const FUTEX_WAKE: u32 = 1;
const FUTEX_REQUEUE: u32 = 3;
const FUTEX_CMP_REQUEUE: u32 = 4;
const FUTEX_WAKE_OP: u32 = 5;
const FUTEX_LOCK_PI: u32 = 6;
const FUTEX_UNLOCK_PI: u32 = 7;
const FUTEX_TRYLOCK_PI: u32 = 8;
const FUTEX_WAIT_BITSET: u32 = 9;
const FUTEX_WAKE_BITSET: u32 = 10;
const FUTEX_WAIT_REQUEUE_PI: u32 = 11;
const FUTEX_CMP_REQUEUE_PI: u32 = 12;
const FUTEX_LOCK_PI2: u32 = 13;
const FUTEX_CLOCK_REALTIME: u32 = 256;
const FUTEX_PRIVATE: u32 = 128;

const WAITERS: u32 = 0x8000_0000;
const OWNER_DIED: u32 = 0x4000_0000;
const TID_MASK: u32 = 0x3fff_ffff;

/// A word of the program's.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Word {
    at: u64,
    /// No other process uses it (FUTEX_PRIVATE_FLAG).
    private: bool,
}

impl Word {
    /// A word that other processes may use.
    fn any(at: u64) -> Word {
        Word { at, private: false }
    }

    fn key(self) -> Key {
        Key::of(self.at, self.private)
    }
}

/// futex(2).
pub fn futex(call: &mut Call<'_>) -> Result<usize> {
    let (word, operation, value) = (call.arg(0), call.uint(1), call.uint(2));
    let (timeout, second) = (call.arg(3), call.arg(4));
    let command = operation & !(FUTEX_PRIVATE | FUTEX_CLOCK_REALTIME);
    let realtime = operation & FUTEX_CLOCK_REALTIME != 0;
    if realtime && !matches!(command, FUTEX_WAIT_BITSET | FUTEX_WAIT_REQUEUE_PI | FUTEX_LOCK_PI2) {
        return Err(ENOSYS);
    }
    let private = operation & FUTEX_PRIVATE != 0;
    let (word, second) = (Word { at: word, private }, Word { at: second, private });
    match command {
        FUTEX_WAIT => wait_for(word, value, ANY, deadline(timeout, false, false)?, true),
        FUTEX_WAIT_BITSET => wait_for(word, value, call.uint(5), deadline(timeout, true, realtime)?, false),
        FUTEX_WAKE => wake(word, value, ANY),
        FUTEX_WAKE_BITSET => wake(word, value, call.uint(5)),
        FUTEX_REQUEUE => requeue(word, second, value, timeout as u32, None),
        FUTEX_CMP_REQUEUE => requeue(word, second, value, timeout as u32, Some(call.uint(5))),
        FUTEX_WAKE_OP => wake_op(word, second, value, timeout as u32, call.uint(5)),
        FUTEX_LOCK_PI => lock_pi(word, deadline(timeout, true, true)?),
        FUTEX_LOCK_PI2 => lock_pi(word, deadline(timeout, true, realtime)?),
        FUTEX_TRYLOCK_PI => try_lock_pi(word).map(|_| 0),
        FUTEX_UNLOCK_PI => unlock_pi(word),
        FUTEX_WAIT_REQUEUE_PI => wait_requeue_pi(word, value, deadline(timeout, true, realtime)?, second),
        FUTEX_CMP_REQUEUE_PI => requeue_pi(word, second, value, timeout as u32, call.uint(5)),
        _ => Err(ENOSYS),
    }
}

/// The monotonic deadline of a `struct timespec`; none for a null pointer. A wait that was interrupted without a
/// handler keeps the one it had.
fn deadline(address: u64, absolute: bool, realtime: bool) -> Result<u64> {
    let Some(pointer) = UserPtr::<[i64; 2]>::new(address).non_null() else { return Ok(wait::FOREVER) };
    let [seconds, nanoseconds] = pointer.read()?;
    if seconds < 0 || !(0..1_000_000_000).contains(&nanoseconds) {
        return Err(EINVAL);
    }
    let time = (seconds as u64).saturating_mul(1_000_000_000).saturating_add(nanoseconds as u64);
    Ok(match (absolute, realtime) {
        (false, _) => wait::deadline_in(time),
        (true, false) => Clock::Monotonic.from_shown(time, &task::current().process),
        (true, true) => time.saturating_sub(api_plat::wall_ns()),
    })
}

fn aligned(word: Word) -> Result<()> {
    if !word.at.is_multiple_of(4) {
        return Err(EINVAL);
    }
    if !api_user::range_is_user(word.at, 4) {
        return Err(EFAULT);
    }
    Ok(())
}

fn read(word: Word) -> Result<u32> {
    aligned(word)?;
    UserPtr::<u32>::new(word.at).read()
}

fn wait_for(word: Word, value: u32, bits: u32, deadline_ns: u64, relative: bool) -> Result<usize> {
    if bits == 0 {
        return Err(EINVAL);
    }
    aligned(word)?;
    let sleeper = table::Sleeper::enter(word.key(), bits);
    // After entering the queue: whoever changes the word from now on finds this thread when it wakes.
    let now = UserPtr::<u32>::new(word.at).read()?;
    if now != value {
        return if sleeper.leave() { Ok(0) } else { Err(EAGAIN) };
    }
    match sleep(&sleeper, deadline_ns) {
        Err(EINTR) if deadline_ns == wait::FOREVER => Err(RESTART),
        Err(EINTR) if relative => Err(wait::interrupted(deadline_ns)),
        // An absolute time is the same when the call is made again.
        Err(EINTR) => Err(RESTART_NO_HANDLER),
        other => other.map(|()| 0),
    }
}

/// Sleeps until woken; `ETIMEDOUT`, or `EINTR` when a signal is to be delivered.
fn sleep(sleeper: &table::Sleeper, deadline_ns: u64) -> Result<()> {
    loop {
        if sleeper.is_woken() {
            return Ok(());
        }
        let reason = if task::current().has_signal() {
            Some(EINTR)
        } else if api_plat::now_ns() >= deadline_ns {
            Some(ETIMEDOUT)
        } else {
            None
        };
        if let Some(reason) = reason {
            return if sleeper.leave() { Ok(()) } else { Err(reason) };
        }
        sched::park(deadline_ns);
    }
}

/// A word that several processes use is known by the page that it is on: `EFAULT` where there is none to be had.
fn reachable(word: Word) -> Result<()> {
    if word.private { Ok(()) } else { read(word).map(|_| ()) }
}

fn wake(word: Word, most: u32, bits: u32) -> Result<usize> {
    if bits == 0 {
        return Err(EINVAL);
    }
    aligned(word)?;
    reachable(word)?;
    Ok(table::wake(word.key(), at_least_one(most), bits))
}

/// Linux counts after it wakes: whoever asks for none or for a negative number wakes one. (FUTEX_REQUEUE does not.)
fn at_least_one(most: u32) -> u32 {
    if (most as i32) < 1 { 1 } else { most }
}

fn requeue(from: Word, to: Word, wake: u32, move_most: u32, expected: Option<u32>) -> Result<usize> {
    aligned(from)?;
    aligned(to)?;
    if (wake | move_most) as i32 <= -1 {
        return Err(EINVAL);
    }
    reachable(from)?;
    reachable(to)?;
    if let Some(expected) = expected
        && read(from)? != expected
    {
        return Err(EAGAIN);
    }
    let (woken, moved) = table::requeue(from.key(), to.key(), wake, move_most);
    // FUTEX_REQUEUE counts the woken only, FUTEX_CMP_REQUEUE both.
    Ok(if expected.is_some() { woken + moved } else { woken })
}

fn wake_op(first: Word, second: Word, wake_first: u32, wake_second: u32, code: u32) -> Result<usize> {
    aligned(first)?;
    let (operation, comparison) = (code >> 28 & 7, code >> 24 & 15);
    let sign_extend = |bits: u32| ((bits << 20) as i32 >> 20) as u32;
    let (mut operand, against) = (sign_extend(code >> 12 & 0xfff), sign_extend(code & 0xfff));
    if code >> 31 != 0 {
        operand = 1u32.wrapping_shl(operand);
    }
    let old = update(second, |old| {
        Ok(match operation {
            0 => operand,
            1 => old.wrapping_add(operand),
            2 => old | operand,
            3 => old & !operand,
            4 => old ^ operand,
            _ => return Err(ENOSYS),
        })
    })?;
    let (old, against) = (old as i32, against as i32);
    let holds = match comparison {
        0 => old == against,
        1 => old != against,
        2 => old < against,
        3 => old <= against,
        4 => old > against,
        5 => old >= against,
        _ => return Err(ENOSYS),
    };
    let mut woken = table::wake(first.key(), at_least_one(wake_first), ANY);
    if holds {
        woken += table::wake(second.key(), at_least_one(wake_second), ANY);
    }
    Ok(woken)
}

/// Changes a word atomically and returns what it was.
fn update(word: Word, change: impl Fn(u32) -> Result<u32>) -> Result<u32> {
    let mut old = read(word)?;
    loop {
        let seen = compare_exchange_u32(word.at, old, change(old)?)?;
        if seen == old {
            return Ok(old);
        }
        old = seen;
    }
}

/// Takes a priority-inheritance futex if it is free. The owner's priority stays as it is; who waits is served
/// by priority.
fn try_lock_pi(word: Word) -> Result<()> {
    let tid = task::current().number as u32;
    let mut old = read(word)?;
    loop {
        if old & TID_MASK == tid {
            return Err(EDEADLK);
        }
        if old & TID_MASK != 0 {
            return Err(EAGAIN);
        }
        let seen = compare_exchange_u32(word.at, old, tid | (old & (WAITERS | OWNER_DIED)))?;
        if seen == old {
            return Ok(());
        }
        old = seen;
    }
}

fn lock_pi(word: Word, deadline_ns: u64) -> Result<usize> {
    loop {
        match try_lock_pi(word) {
            Err(EAGAIN) => {}
            done => return done.map(|()| 0),
        }
        let owner = (read(word)? & TID_MASK) as i32;
        // Given back just now, by a thread on another processor.
        if owner == 0 {
            continue;
        }
        if processes::named_task(owner).is_none() {
            return Err(ESRCH);
        }
        let sleeper = table::Sleeper::enter(word.key(), ANY);
        let before = update(word, |old| Ok(if old & TID_MASK == 0 { old } else { old | WAITERS }))?;
        if before & TID_MASK == 0 {
            sleeper.leave();
            continue;
        }
        match sleep(&sleeper, deadline_ns) {
            // The one who unlocked made us the owner.
            Ok(()) if read(word)? & TID_MASK == task::current().number as u32 => return Ok(0),
            Ok(()) => {}
            Err(EINTR) => return Err(RESTART_ALWAYS),
            Err(e) => return Err(e),
        }
    }
}

fn unlock_pi(word: Word) -> Result<usize> {
    let tid = task::current().number as u32;
    if read(word)? & TID_MASK != tid {
        return Err(EPERM);
    }
    let next = table::first(word.key());
    let new = match &next {
        Some((heir, more)) => *heir as u32 | if *more { WAITERS } else { 0 },
        None => 0,
    };
    update(word, |_| Ok(new))?;
    if next.is_some() {
        table::wake(word.key(), 1, ANY);
    }
    Ok(0)
}

/// Waits on `word` to be requeued to the priority-inheritance futex `target`, and comes back as its owner.
fn wait_requeue_pi(word: Word, value: u32, deadline_ns: u64, target: Word) -> Result<usize> {
    if word == target {
        return Err(EINVAL);
    }
    aligned(word)?;
    aligned(target)?;
    let sleeper = table::Sleeper::enter_for(word.key(), ANY, Some(target.key()));
    if UserPtr::<u32>::new(word.at).read()? != value {
        sleeper.leave();
        return Err(EAGAIN);
    }
    match sleep(&sleeper, deadline_ns) {
        // Made the owner by the one who requeued or unlocked, or on the way to it.
        Ok(()) if read(target)? & TID_MASK == task::current().number as u32 => Ok(0),
        Ok(()) => lock_pi(target, deadline_ns),
        // What it slept on first has changed by then.
        Err(EINTR) if sleeper.waits_for(target.key()) => Err(EAGAIN),
        Err(EINTR) => Err(RESTART_ALWAYS),
        Err(e) => Err(e),
    }
}

/// Makes the first of the sleepers on `from` the owner of the futex `to` if that is free, and lets the others wait
/// for it.
fn requeue_pi(from: Word, to: Word, wake: u32, move_most: u32, expected: u32) -> Result<usize> {
    if from == to || wake != 1 {
        return Err(EINVAL);
    }
    aligned(from)?;
    aligned(to)?;
    if (move_most as i32) < 0 {
        return Err(EINVAL);
    }
    if read(from)? != expected {
        return Err(EAGAIN);
    }
    let mut served = 0;
    while served <= move_most as usize {
        let Some((target, tid)) = table::first_target(from.key()) else { break };
        if target != Some(to.key()) {
            return if served == 0 { Err(EINVAL) } else { Ok(served) };
        }
        // Whoever unlocks is to look for the rest.
        let rest = if move_most == 0 { 0 } else { WAITERS };
        let before = update(to, |old| {
            Ok(if old & TID_MASK == 0 { tid as u32 | rest | (old & OWNER_DIED) } else { old | WAITERS })
        })?;
        if before & TID_MASK == 0 {
            table::wake(from.key(), 1, ANY);
        } else {
            table::requeue(from.key(), to.key(), 0, 1);
        }
        served += 1;
    }
    Ok(served)
}

/// What a thread leaves behind when it ends: zeroes the word of CLONE_CHILD_CLEARTID and wakes who joins it, and
/// marks the robust futexes it holds.
pub fn thread_ends(task: &task::Task) {
    // The program may have unmapped either: nobody is left to tell.
    let _ = release_robust(task);
    let word = task.clear_child_tid();
    if word != 0 && UserPtr::<u32>::new(word).write(0).is_ok() {
        table::wake(Key::of(word, false), 1, ANY);
    }
}

/// Most entries of a robust list (Linux `ROBUST_LIST_LIMIT`): the list is the program's and may be circular.
const ROBUST_LIMIT: usize = 2048;

fn release_robust(task: &task::Task) -> Result<()> {
    let head = task.robust_list.load(core::sync::atomic::Ordering::Relaxed);
    if head == 0 {
        return Ok(());
    }
    let [first, offset, pending] = UserPtr::<[u64; 3]>::new(head).read()?;
    let release = |entry: u64| -> Result<()> {
        // The lowest bit marks a priority-inheritance futex.
        let word = Word::any((entry & !1).wrapping_add(offset));
        if read(word)? & TID_MASK == task.number as u32 {
            let old = update(word, |old| Ok((old & WAITERS) | OWNER_DIED))?;
            if old & WAITERS != 0 {
                table::wake(word.key(), 1, ANY);
            }
        }
        Ok(())
    };
    let mut entry = first;
    for _ in 0..ROBUST_LIMIT {
        if entry & !1 == head {
            break;
        }
        let next = UserPtr::<u64>::new(entry & !1).read()?;
        if entry != pending {
            release(entry)?;
        }
        entry = next;
    }
    if pending != 0 {
        release(pending)?;
    }
    Ok(())
}

/// set_robust_list(2).
pub fn set_robust_list(call: &mut Call<'_>) -> Result<usize> {
    if call.size(1) != 24 {
        return Err(EINVAL);
    }
    task::current().robust_list.store(call.arg(0), core::sync::atomic::Ordering::Relaxed);
    Ok(0)
}

/// get_robust_list(2).
pub fn get_robust_list(call: &mut Call<'_>) -> Result<usize> {
    let current = task::current();
    let tid = call.int(0);
    let list = if tid == 0 {
        current.robust_list.load(core::sync::atomic::Ordering::Relaxed)
    } else {
        let task = processes::named_task(tid).ok_or(ESRCH)?;
        task::identity::check_access(&task.process, task::identity::As::Real)?;
        task.robust_list.load(core::sync::atomic::Ordering::Relaxed)
    };
    call.ptr::<u64>(2).write(24)?;
    call.ptr::<u64>(1).write(list)?;
    Ok(0)
}

/// Flags of the newer calls: the size of the word (4 bytes is the only one) and FUTEX2_PRIVATE.
const FUTEX2_SIZE_U32: u32 = 2;
const FUTEX2_PRIVATE: u32 = 128;

fn check_flags2(flags: u32) -> Result<()> {
    if flags & !FUTEX2_PRIVATE != FUTEX2_SIZE_U32 { Err(EINVAL) } else { Ok(()) }
}

fn word2(at: u64, flags: u32) -> Word {
    Word { at, private: flags & FUTEX2_PRIVATE != 0 }
}

fn clock_deadline(timeout: u64, clock: u32) -> Result<u64> {
    // CLOCK_REALTIME is 0 and CLOCK_MONOTONIC 1.
    if timeout != 0 && clock > 1 {
        return Err(EINVAL);
    }
    deadline(timeout, true, clock == 0)
}

/// futex_wake(2).
pub fn futex_wake(call: &mut Call<'_>) -> Result<usize> {
    check_flags2(call.uint(3))?;
    wake(word2(call.arg(0), call.uint(3)), call.uint(2), call.uint(1))
}

/// futex_wait(2).
pub fn futex_wait(call: &mut Call<'_>) -> Result<usize> {
    check_flags2(call.uint(3))?;
    let (value, bits) = (call.uint(1), call.uint(2));
    let timed = call.arg(4) != 0;
    let word = word2(call.arg(0), call.uint(3));
    wait_for(word, value, bits, clock_deadline(call.arg(4), call.uint(5))?, timed)
}

/// `struct futex_waitv`.
struct WaitV {
    value: u64,
    word: u64,
    flags: u32,
    reserved: u32,
}

impl WaitV {
    /// Several of them, one behind the other.
    fn read(at: UserPtr<[u64; 3]>, count: usize) -> Result<Vec<WaitV>> {
        let of = |[value, word, flags]: [u64; 3]| WaitV {
            value,
            word,
            flags: flags as u32,
            reserved: (flags >> 32) as u32,
        };
        Ok(at.read_vec(count)?.into_iter().map(of).collect())
    }

    fn word(&self) -> Word {
        word2(self.word, self.flags)
    }
}

/// Most words of one futex_waitv (Linux `FUTEX_WAITV_MAX`).
const WAITV_MAX: usize = 128;

/// futex_waitv(2): sleeps on several words; returns the index of one that was woken.
pub fn futex_waitv(call: &mut Call<'_>) -> Result<usize> {
    let count = call.size(1);
    if call.uint(2) != 0 || count == 0 || count > WAITV_MAX || call.arg(0) == 0 {
        return Err(EINVAL);
    }
    let deadline_ns = clock_deadline(call.arg(3), call.uint(4))?;
    let words = WaitV::read(call.ptr(0), count)?;
    for w in &words {
        check_flags2(w.flags)?;
        if w.reserved != 0 {
            return Err(EINVAL);
        }
        aligned(w.word())?;
    }
    let mut sleepers = Vec::with_capacity(count);
    for w in &words {
        sleepers.push(table::Sleeper::enter(w.word().key(), ANY));
        let seen = read(w.word());
        if seen != Ok(w.value as u32) {
            return match woken(&sleepers) {
                Some(index) => Ok(index),
                None => Err(seen.err().unwrap_or(EAGAIN)),
            };
        }
    }
    loop {
        if let Some(index) = woken(&sleepers) {
            return Ok(index);
        }
        if task::current().has_signal() {
            return Err(RESTART_NO_HANDLER);
        }
        if api_plat::now_ns() >= deadline_ns {
            return Err(ETIMEDOUT);
        }
        sched::park(deadline_ns);
    }
}

fn woken(sleepers: &[table::Sleeper]) -> Option<usize> {
    sleepers.iter().position(|s| s.is_woken())
}

/// futex_requeue(2).
pub fn futex_requeue(call: &mut Call<'_>) -> Result<usize> {
    if call.uint(1) != 0 {
        return Err(EINVAL);
    }
    let [from, to] = &WaitV::read(call.ptr(0), 2)?[..] else { return Err(EINVAL as Errno) };
    for w in [from, to] {
        check_flags2(w.flags)?;
    }
    requeue(from.word(), to.word(), call.uint(2), call.uint(3), Some(from.value as u32))
}
