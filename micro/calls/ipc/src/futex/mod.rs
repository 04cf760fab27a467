// SPDX-License-Identifier: Apache-2.0 OR MIT
//! futex(2) and its newer forms. The sleepers live in [`crate::futex::table`].

mod locks;
mod table;

use self::table::{ANY, Key};
use abi::{Errno, Result, errno::*};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_user::{UserPtr, compare_exchange_u32};
use task::call::Call;
use task::processes;
use task::time::clock::Clock;
use task::wait::{self, RESTART, RESTART_NO_HANDLER};

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
        // A time that is none is said first.
        if matches!(command, FUTEX_WAIT | FUTEX_LOCK_PI) {
            deadline(timeout, false, false)?;
        }
        return Err(ENOSYS);
    }
    let private = operation & FUTEX_PRIVATE != 0;
    let (word, second) = (Word { at: word, private }, Word { at: second, private });
    match command {
        FUTEX_WAIT => wait_for(word, value, ANY, deadline(timeout, false, false)?, Deadline::Relative),
        FUTEX_WAIT_BITSET => {
            wait_for(word, value, call.uint(5), deadline(timeout, true, realtime)?, Deadline::Absolute)
        }
        FUTEX_WAKE => wake(word, value, ANY),
        FUTEX_WAKE_BITSET => wake(word, value, call.uint(5)),
        FUTEX_REQUEUE => requeue(word, second, value, timeout as u32, None),
        FUTEX_CMP_REQUEUE => requeue(word, second, value, timeout as u32, Some(call.uint(5))),
        FUTEX_WAKE_OP => wake_op(word, second, value, timeout as u32, call.uint(5)),
        FUTEX_LOCK_PI => locks::lock(word, deadline(timeout, true, true)?),
        FUTEX_LOCK_PI2 => locks::lock(word, deadline(timeout, true, realtime)?),
        FUTEX_TRYLOCK_PI => locks::try_lock(word),
        FUTEX_UNLOCK_PI => locks::unlock(word),
        FUTEX_WAIT_REQUEUE_PI => {
            locks::wait_to_be_requeued(word, value, deadline(timeout, true, realtime)?, second)
        }
        FUTEX_CMP_REQUEUE_PI => locks::requeue(word, second, value, timeout as u32, call.uint(5)),
        _ => Err(ENOSYS),
    }
}

/// What becomes of a wait that a signal interrupts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Deadline {
    /// It ends a while after the call began: one that is made again goes on with what it had.
    Relative,
    /// It is the same when the call is made again, which no handler has it do.
    Absolute,
    /// The same of the newer calls, which handlers with SA_RESTART have made again.
    Restartable,
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

fn wait_for(word: Word, value: u32, bits: u32, deadline_ns: u64, kind: Deadline) -> Result<usize> {
    if bits == 0 {
        return Err(EINVAL);
    }
    aligned(word)?;
    reachable(word)?;
    let sleeper = table::Sleeper::enter(word.key(), bits);
    // After entering the queue: whoever changes the word from now on finds this thread when it wakes.
    let now = UserPtr::<u32>::new(word.at).read()?;
    if now != value {
        return if sleeper.leave() { Ok(0) } else { Err(EAGAIN) };
    }
    match sleep(&sleeper, deadline_ns) {
        Err(EINTR) if deadline_ns == wait::FOREVER || kind == Deadline::Restartable => Err(RESTART),
        Err(EINTR) if kind == Deadline::Relative => Err(wait::interrupted(deadline_ns)),
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

/// A word that several processes use is known by the page that it is on: `EFAULT` where there is none to be had, or one of private
/// memory that nobody can write to.
fn reachable(word: Word) -> Result<()> {
    if word.private {
        return Ok(());
    }
    read(word)?;
    if mem::current().is_read_only_at(word.at) { Err(EFAULT) } else { Ok(()) }
}

/// As [`reachable`], of a word that the kernel writes to.
fn writable(word: Word) -> Result<()> {
    aligned(word)?;
    if word.private || mem::current().is_writable_at(word.at) { Ok(()) } else { Err(EFAULT) }
}

fn wake(word: Word, most: u32, bits: u32) -> Result<usize> {
    if bits == 0 {
        return Err(EINVAL);
    }
    aligned(word)?;
    reachable(word)?;
    table::wake(word.key(), at_least_one(most), bits)
}

/// Linux counts after it wakes: whoever asks for none or for a negative number wakes one. (FUTEX_REQUEUE does not.)
fn at_least_one(most: u32) -> u32 {
    if (most as i32) < 1 { 1 } else { most }
}

fn requeue(from: Word, to: Word, wake: u32, move_most: u32, expected: Option<u32>) -> Result<usize> {
    if (wake | move_most) as i32 <= -1 {
        return Err(EINVAL);
    }
    for word in [from, to] {
        aligned(word)?;
        reachable(word)?;
    }
    if let Some(expected) = expected
        && read(from)? != expected
    {
        return Err(EAGAIN);
    }
    // Both count who is woken and who is moved, whatever futex(2) says of FUTEX_REQUEUE.
    table::requeue(from.key(), to.key(), wake, move_most)
}

fn wake_op(first: Word, second: Word, wake_first: u32, wake_second: u32, code: u32) -> Result<usize> {
    aligned(first)?;
    reachable(first)?;
    writable(second)?;
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
    let mut woken = table::wake(first.key(), at_least_one(wake_first), ANY)?;
    if holds {
        woken += table::wake(second.key(), at_least_one(wake_second), ANY)?;
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

/// What a thread leaves behind when it ends: zeroes the word of CLONE_CHILD_CLEARTID and wakes who joins it, and
/// marks the robust futexes it holds.
pub fn thread_ends(task: &task::Task) {
    // The program may have unmapped either: nobody is left to tell.
    let _ = release_robust(task);
    table::owner_ends(task.tid);
    let word = task.clear_child_tid();
    if word != 0 && UserPtr::<u32>::new(word).write(0).is_ok() {
        let _ = table::wake(Key::of(word, false), 1, ANY);
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
            // Who waits for a lock is given it by [`table::owner_ends`].
            if old & WAITERS != 0 && entry & 1 == 0 {
                let _ = table::wake(word.key(), 1, ANY);
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
    let (word, most, bits) = (word2(call.arg(0), call.uint(3)), call.uint(2), call.uint(1));
    // Unlike futex(2).
    if most == 0 && bits != 0 {
        return aligned(word).and(reachable(word)).map(|()| 0);
    }
    wake(word, most, bits)
}

/// futex_wait(2).
pub fn futex_wait(call: &mut Call<'_>) -> Result<usize> {
    check_flags2(call.uint(3))?;
    let (value, bits) = (call.uint(1), call.uint(2));
    let word = word2(call.arg(0), call.uint(3));
    wait_for(word, value, bits, clock_deadline(call.arg(4), call.uint(5))?, Deadline::Restartable)
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
        reachable(w.word())?;
    }
    let mut sleepers = Vec::new();
    sleepers.reserve_exact_fallibly(count).map_err(|_| ENOMEM)?;
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
            return Err(RESTART);
        }
        if api_plat::now_ns() >= deadline_ns {
            return Err(ETIMEDOUT);
        }
        sched::park(deadline_ns);
    }
}

/// The last of several, as on Linux.
fn woken(sleepers: &[table::Sleeper]) -> Option<usize> {
    sleepers.iter().rposition(|s| s.is_woken())
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
