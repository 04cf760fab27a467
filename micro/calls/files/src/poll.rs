// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waiting for many descriptors: poll, select, epoll.

use abi::{Events, Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::{CollectFallibly, Reserve};
use api_sched::{WaitKey, Waiter};
use api_user::{UserPtr, zeroed};
use descriptors::Description;
use epoll::Epoll;
use task::call::Call;
use task::files::{self, O_CLOEXEC};
use task::signals::with_mask;
use task::wait::{self, RESTART, RESTART_NO_HANDLER};

const POLLNVAL: u16 = 0x20;
/// struct epoll_event is packed: events and data.
const EVENT_SIZE: u64 = 12;
const EPOLL_CTL_ADD: i32 = 1;
const EPOLL_CTL_DEL: i32 = 2;
const EPOLL_CTL_MOD: i32 = 3;
/// INT_MAX / sizeof(struct epoll_event).
const EVENTS_LIMIT: i32 = i32::MAX / EVENT_SIZE as i32;
const NS_PER_SECOND: u64 = 1_000_000_000;
const NS_PER_MS: u64 = 1_000_000;

/// Deadline from milliseconds; negative means none.
fn deadline_ms(ms: i32) -> u64 {
    match u64::try_from(ms) {
        Ok(0) => 0,
        Ok(ms) => api_plat::now_ns().saturating_add(ms * NS_PER_MS),
        Err(_) => wait::FOREVER,
    }
}

/// Deadline from a struct timespec (null: none) given as two words.
fn deadline_timespec(pointer: UserPtr<[i64; 2]>) -> Result<u64> {
    let Some(pointer) = pointer.non_null() else { return Ok(wait::FOREVER) };
    let [seconds, nanoseconds] = pointer.read()?;
    if seconds < 0 || !(0..NS_PER_SECOND as i64).contains(&nanoseconds) {
        return Err(EINVAL);
    }
    let length = (seconds as u64).saturating_mul(NS_PER_SECOND).saturating_add(nanoseconds as u64);
    Ok(if length == 0 { 0 } else { api_plat::now_ns().saturating_add(length) })
}

/// What is left of a deadline, for ppoll and select, which write it back.
fn remaining(deadline: u64) -> u64 {
    deadline.saturating_sub(api_plat::now_ns())
}

/// One descriptor that is waited for.
struct Watched {
    description: Option<Arc<Description>>,
    /// Asked for, without ERR and HUP, which always count.
    interest: u32,
    /// Found.
    ready: u32,
    key: Option<WaitKey>,
}

impl Watched {
    fn new(fd: i32, interest: u32) -> Watched {
        let description = files::get(fd).ok();
        Watched { description, interest, ready: 0, key: None }
    }

    fn look(&mut self) -> bool {
        self.ready = match &self.description {
            None => POLLNVAL as u32,
            Some(d) => d.file().poll().0 & (self.interest | Events::ERR.0 | Events::HUP.0),
        };
        self.ready != 0
    }

    fn register(&mut self, waiter: &Arc<dyn Waiter>) -> Result<()> {
        if let Some(queue) = self.description.as_ref().and_then(|d| d.file().wait_queue()) {
            self.key = Some(queue.try_add(waiter.clone(), Events(self.interest), false)?);
        }
        Ok(())
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let (Some(d), Some(key)) = (&self.description, self.key)
            && let Some(queue) = d.file().wait_queue()
        {
            queue.remove(key);
        }
    }
}

/// Waits until one of them is ready; how many are.
fn wait_for(watched: &mut [Watched], deadline: u64) -> Result<usize> {
    let count = |watched: &mut [Watched]| watched.iter_mut().filter_map(|w| w.look().then_some(())).count();
    api_sched::run_deferred();
    let ready = count(watched);
    if ready > 0 {
        return Ok(ready);
    }
    if deadline == 0 {
        // A signal that the call's mask lets in is taken, though nothing was waited for.
        return if task::current().has_signal() { Err(EINTR) } else { Ok(0) };
    }
    let waiter = api_sched::current();
    for w in watched.iter_mut() {
        w.register(&waiter)?;
    }
    loop {
        let ready = count(watched);
        if ready > 0 {
            return Ok(ready);
        }
        if task::current().has_signal() {
            return Err(EINTR);
        }
        if api_plat::now_ns() >= deadline {
            return Ok(0);
        }
        sched::park(deadline);
    }
}

/// struct pollfd as one word: descriptor, events, revents.
fn read_pollfds(array: UserPtr<u64>, count: usize) -> Result<Vec<Watched>> {
    if count > files::current().descriptors.limit() as usize {
        return Err(EINVAL);
    }
    let mut watched = Vec::new();
    watched.reserve_exact_fallibly(count).map_err(|_| ENOMEM)?;
    for i in 0..count as u64 {
        let raw = array.add(i).read()?;
        let (fd, events) = (raw as i32, (raw >> 32) as u16);
        let mut w = if fd < 0 {
            // Ignored: never ready.
            Watched { description: None, interest: 0, ready: 0, key: None }
        } else {
            Watched::new(fd, events as u32)
        };
        if fd < 0 {
            w.interest = IGNORED;
        }
        watched.push(w);
    }
    Ok(watched)
}

/// Mark of a negative descriptor in poll's array.
const IGNORED: u32 = 1 << 31;

fn poll_array(array: UserPtr<u64>, count: usize, deadline: u64) -> Result<usize> {
    let watched = read_pollfds(array, count)?;
    let ignored = watched.iter().map(|w| w.interest == IGNORED).collect_fallibly().map_err(|_| ENOMEM)?;
    // In the same block.
    let mut used: Vec<Watched> = watched.into_iter().filter(|w| w.interest != IGNORED).collect();
    let ready = wait_for(&mut used, deadline)?;
    let mut found = used.iter();
    for (i, ignored) in ignored.iter().enumerate() {
        let revents = if *ignored { 0 } else { found.next().map_or(0, |w| w.ready as u16) };
        UserPtr::<u16>::new(array.add(i as u64).address() + 6).write(revents)?;
    }
    Ok(ready)
}

/// A wait that a signal interrupts is made again when no handler runs: the time left was written back.
fn interrupted(result: Result<usize>) -> Result<usize> {
    if result == Err(EINTR) { Err(RESTART_NO_HANDLER) } else { result }
}

pub fn poll(call: &mut Call<'_>) -> Result<usize> {
    let deadline = match u64::try_from(call.int(2)) {
        Ok(0) => 0,
        Ok(ms) => wait::deadline_in(ms * NS_PER_MS),
        Err(_) => wait::FOREVER,
    };
    match poll_array(call.ptr(0), call.uint(1) as usize, deadline) {
        Err(EINTR) => Err(wait::interrupted(deadline)),
        done => done,
    }
}

pub fn ppoll(call: &mut Call<'_>) -> Result<usize> {
    let deadline = deadline_timespec(call.ptr(2))?;
    let result =
        with_mask(call.ptr(3), call.size(4), || poll_array(call.ptr(0), call.uint(1) as usize, deadline));
    write_back(call.ptr(2), deadline, 1);
    interrupted(result)
}

/// Linux stores the time that is left; a fault there is ignored, as in Linux. `unit` is nanoseconds a fraction.
fn write_back(pointer: UserPtr<[i64; 2]>, deadline: u64, unit: u64) {
    if let Some(pointer) = pointer.non_null()
        && !task::current().settings.keeps_timeouts()
    {
        let left = remaining(deadline);
        let value = [(left / NS_PER_SECOND) as i64, (left % NS_PER_SECOND / unit) as i64];
        let _ = pointer.write(value);
    }
}

/// What readable, writable and exceptional mean to select(2).
const SETS: [u32; 3] = [
    Events::READABLE.0 | Events::RDBAND.0 | Events::HUP.0 | Events::ERR.0 | POLLNVAL as u32,
    Events::SENDABLE.0 | Events::ERR.0 | POLLNVAL as u32,
    Events::PRI.0 | POLLNVAL as u32,
];

fn select_sets(count: i32, sets: [UserPtr<u64>; 3], deadline: u64) -> Result<usize> {
    let count =
        usize::try_from(count).map_err(|_| EINVAL)?.min(files::current().descriptors.limit() as usize);
    let words = count.div_ceil(64);
    let mut wanted: [Vec<u64>; 3] = Default::default();
    for (words_of, set) in wanted.iter_mut().zip(sets) {
        if let Some(set) = set.non_null() {
            *words_of = set.read_vec(words)?;
        }
    }
    let bit = |set: &Vec<u64>, fd: usize| set.get(fd / 64).is_some_and(|w| w >> (fd % 64) & 1 != 0);
    let mut fds = Vec::new();
    let mut watched = Vec::new();
    for fd in 0..count {
        let asked = [bit(&wanted[0], fd), bit(&wanted[1], fd), bit(&wanted[2], fd)];
        if asked == [false; 3] {
            continue;
        }
        let mut interest = 0;
        for (asked, events) in asked.iter().zip(SETS) {
            interest |= if *asked { events } else { 0 };
        }
        let w = Watched::new(fd as i32, interest);
        // A descriptor that is open for its path alone (O_PATH) is told to be ready.
        if w.description.is_none() {
            files::current().descriptors.get_any(fd as i32)?;
        }
        fds.push((fd, asked));
        watched.push(w);
    }
    wait_for_select(&mut watched, &fds, deadline)?;
    let mut total = 0;
    let mut found: [Vec<u64>; 3] = [zeroed(words)?, zeroed(words)?, zeroed(words)?];
    for (w, (fd, asked)) in watched.iter().zip(&fds) {
        for ((set, events), asked) in found.iter_mut().zip(SETS).zip(asked) {
            if *asked && w.ready & events != 0 {
                set[fd / 64] |= 1 << (fd % 64);
                total += 1;
            }
        }
    }
    for (set, pointer) in found.iter().zip(sets) {
        if let Some(pointer) = pointer.non_null() {
            pointer.write_slice(set)?;
        }
    }
    Ok(total)
}

/// select does not count a hang-up of a descriptor that was only asked about writing: such a one is not ready.
fn wait_for_select(watched: &mut [Watched], fds: &[(usize, [bool; 3])], deadline: u64) -> Result<()> {
    loop {
        if wait_for(watched, deadline)? == 0 {
            return Ok(());
        }
        let counts = watched.iter().zip(fds).any(|(w, (_, asked))| {
            asked.iter().zip(SETS).any(|(asked, events)| *asked && w.ready & events != 0)
        });
        if counts || deadline == 0 {
            return Ok(());
        }
        // Only such hang-ups: they will not go away, so look again now and then for the others.
        if !wait::sleep_until(deadline.min(api_plat::now_ns() + 10 * NS_PER_MS)) {
            return Err(EINTR);
        }
        if api_plat::now_ns() >= deadline {
            return Ok(());
        }
    }
}

pub fn select(call: &mut Call<'_>) -> Result<usize> {
    let deadline = match call.ptr::<[i64; 2]>(4).non_null() {
        None => wait::FOREVER,
        Some(pointer) => {
            let [seconds, microseconds] = pointer.read()?;
            if seconds < 0 || microseconds < 0 {
                return Err(EINVAL);
            }
            let length = (seconds as u64)
                .saturating_mul(NS_PER_SECOND)
                .saturating_add((microseconds as u64).saturating_mul(1000));
            if length == 0 { 0 } else { api_plat::now_ns().saturating_add(length) }
        }
    };
    let result = select_sets(call.int(0), [call.ptr(1), call.ptr(2), call.ptr(3)], deadline);
    write_back(call.ptr(4), deadline, 1000);
    interrupted(result)
}

/// pselect6(2): the last argument points to a mask pointer and its size.
pub fn pselect6(call: &mut Call<'_>) -> Result<usize> {
    let [mask, size] = match call.ptr::<[u64; 2]>(5).non_null() {
        None => [0, 0],
        Some(pair) => pair.read()?,
    };
    let deadline = deadline_timespec(call.ptr(4))?;
    let sets = [call.ptr(1), call.ptr(2), call.ptr(3)];
    let result = with_mask(UserPtr::new(mask), size as usize, || select_sets(call.int(0), sets, deadline));
    write_back(call.ptr(4), deadline, 1);
    interrupted(result)
}

fn new_epoll(flags: u32) -> Result<usize> {
    files::current().install(Epoll::new(), flags | 2).map(|fd| fd as usize)
}

pub fn epoll_create(call: &mut Call<'_>) -> Result<usize> {
    if call.int(0) <= 0 { Err(EINVAL) } else { new_epoll(0) }
}

pub fn epoll_create1(call: &mut Call<'_>) -> Result<usize> {
    new_epoll(call.flags(0, O_CLOEXEC)?)
}

fn as_epoll(description: &Description) -> Result<&Epoll> {
    description.file().as_any().downcast_ref().ok_or(EINVAL)
}

pub fn epoll_ctl(call: &mut Call<'_>) -> Result<usize> {
    let (operation, fd) = (call.int(1), call.int(2));
    let (events, data) = if operation == EPOLL_CTL_DEL {
        (0, 0)
    } else {
        let [events, low, high] = call.ptr::<[u32; 3]>(3).read()?;
        (events, low as u64 | (high as u64) << 32)
    };
    let own = files::get(call.int(0))?;
    let target = files::get(fd)?;
    if target.file().wait_queue().is_none() {
        return Err(EPERM);
    }
    let epoll = as_epoll(&own)?;
    if Arc::ptr_eq(own.file(), target.file()) {
        return Err(EINVAL);
    }
    match operation {
        EPOLL_CTL_ADD => epoll.add(fd, &target, events, data)?,
        EPOLL_CTL_DEL => epoll.remove(fd, &target)?,
        EPOLL_CTL_MOD => epoll.modify(fd, &target, events, data)?,
        _ => return Err(EINVAL),
    }
    Ok(0)
}

fn wait_on_epoll(call: &Call<'_>, deadline: u64) -> Result<usize> {
    let description = files::get(call.int(0))?;
    let most = call.int(2);
    if most <= 0 || most > EVENTS_LIMIT {
        return Err(EINVAL);
    }
    let to = call.arg(1);
    if !api_user::range_is_user(to, most as u64 * EVENT_SIZE) {
        return Err(EFAULT);
    }
    let epoll = as_epoll(&description)?;
    api_sched::run_deferred();
    let collect = || {
        let mut at = to;
        epoll.collect(most as usize, |events, data| {
            UserPtr::<[u32; 3]>::new(at).write([events, data as u32, (data >> 32) as u32])?;
            at += EVENT_SIZE;
            Ok(())
        })
    };
    match wait::for_file(epoll, Events::IN, deadline != 0, deadline, collect) {
        Err(EAGAIN) => Ok(0),
        // epoll_wait(2) is never restarted.
        Err(RESTART) => Err(EINTR),
        done => done,
    }
}

pub fn epoll_wait(call: &mut Call<'_>) -> Result<usize> {
    wait_on_epoll(call, deadline_ms(call.int(3)))
}

pub fn epoll_pwait(call: &mut Call<'_>) -> Result<usize> {
    let deadline = deadline_ms(call.int(3));
    with_mask(call.ptr(4), call.size(5), || wait_on_epoll(call, deadline))
}

pub fn epoll_pwait2(call: &mut Call<'_>) -> Result<usize> {
    let deadline = deadline_timespec(call.ptr(3))?;
    with_mask(call.ptr(4), call.size(5), || wait_on_epoll(call, deadline))
}
