// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Asynchronous I/O (io_setup(2) and its kin). What is submitted is done at once, as Linux does for files that need no
//! waiting for a disk; its result waits to be fetched.

use crate::io::{RWF_KNOWN, RWF_NOWAIT, read_from, write_at, write_to};
use abi::setting::Setting;
use abi::{Events, PAGE_SIZE, Result, errno::*};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_lock::SpinLock;
use api_sched::WaitQueue;
use api_user::{Sink, Source, UserPtr, read_iovec};
use core::sync::atomic::{AtomicU64, Ordering};
use descriptors::Description;
use eventfd::EventFd;
use mem::{Prot, Request};
use ordered::Map;
use task::call::Call;
use task::files;
use task::signals::with_mask;
use task::time::duration::from_timespec;
use task::wait::{self, RESTART};

/// /proc/sys/fs/aio-max-nr: events that all contexts may have room for.
pub static MAX_EVENTS: [Setting; 1] = [Setting::new(65536, 0, u32::MAX as u64)];
/// /proc/sys/fs/aio-nr: those that they have room for.
static EVENTS: AtomicU64 = AtomicU64::new(0);
/// More than this is no number of events (Linux' ioctx_alloc).
const MAX_ASKED: u32 = 0x1000_0000 / size_of::<Event>() as u32;
const PREAD: u16 = 0;
const PWRITE: u16 = 1;
const FSYNC: u16 = 2;
const FDSYNC: u16 = 3;
const PREADV: u16 = 7;
const PWRITEV: u16 = 8;
const FLAG_EVENTFD: u32 = 1;

/// `struct iocb`.
struct Control {
    data: u64,
    rw_flags: u32,
    operation: u16,
    fd: i32,
    buffer: u64,
    length: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_fd: i32,
}

impl Control {
    fn read(at: UserPtr<[u64; 8]>) -> Result<Control> {
        let [data, numbers, kind, buffer, length, offset, reserved, flags] = at.read()?;
        Ok(Control {
            data,
            rw_flags: (numbers >> 32) as u32,
            operation: kind as u16,
            fd: (kind >> 32) as i32,
            buffer,
            length,
            offset: offset as i64,
            reserved,
            flags: flags as u32,
            event_fd: (flags >> 32) as i32,
        })
    }
}

/// `struct io_event`: what the program noted, its `struct iocb`, the result, and 0.
type Event = [u64; 4];

struct Context {
    most: usize,
    done: SpinLock<VecDeque<Event>>,
    wait: WaitQueue,
}

impl Context {
    /// `EAGAIN` when all contexts together would have too much room.
    fn new(most: u32) -> Result<Context> {
        let fits = |events: u64| Some(events + u64::from(most)).filter(|sum| *sum <= MAX_EVENTS[0].get());
        EVENTS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).map_err(|_| EAGAIN)?;
        Ok(Context { most: most as usize, done: SpinLock::default(), wait: WaitQueue::new() })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        EVENTS.fetch_sub(self.most as u64, Ordering::Relaxed);
    }
}

/// How many events all contexts have room for.
pub fn events() -> u64 {
    EVENTS.load(Ordering::Relaxed)
}

/// By process and id, which is the address of a page of the program: libraries look there for a ring they may read
/// themselves, and find none.
static CONTEXTS: SpinLock<Map<(i32, u64), Arc<Context>>> = SpinLock::new(Map::new());

/// The key of a context of the caller's.
fn own(id: u64) -> (i32, u64) {
    (task::current().process.pid.of_machine(), id)
}

fn find(id: u64) -> Result<Arc<Context>> {
    CONTEXTS.lock().get(&own(id)).cloned().ok_or(EINVAL)
}

/// The process ends, or runs another program, whose memory has no contexts.
pub fn program_ends(pid: i32) {
    CONTEXTS.lock().retain(|(owner, _), _| *owner != pid);
}

/// io_setup(2).
pub fn io_setup(call: &mut Call<'_>) -> Result<usize> {
    let (most, pointer) = (call.uint(0), call.ptr::<u64>(1));
    if pointer.read()? != 0 || most == 0 {
        return Err(EINVAL);
    }
    // Linux asks for twice as many, in 32 bits.
    if most.wrapping_mul(2) > 2 * MAX_ASKED {
        return Err(EINVAL);
    }
    if most > MAX_ASKED {
        return Err(EAGAIN);
    }
    let context = Context::new(most)?;
    let rights = Prot::READ.with(Prot::WRITE);
    let id = mem::current().map(Request { name: "[aio]", ..Request::anonymous(PAGE_SIZE as u64, rights) })?;
    CONTEXTS.lock().insert(own(id), Arc::new(context));
    if let Err(e) = pointer.write(id) {
        destroy(id)?;
        return Err(e);
    }
    Ok(0)
}

fn destroy(id: u64) -> Result<()> {
    let context = CONTEXTS.lock().remove(&own(id)).ok_or(EINVAL)?;
    context.wait.wake(Events::ALL);
    // The program may have unmapped it itself.
    let _ = mem::current().unmap(id, PAGE_SIZE as u64);
    Ok(())
}

/// io_destroy(2).
pub fn io_destroy(call: &mut Call<'_>) -> Result<usize> {
    destroy(call.arg(0)).map(|()| 0)
}

/// io_submit(2): how many of the operations were taken; an error only for the first.
pub fn io_submit(call: &mut Call<'_>) -> Result<usize> {
    let context = find(call.arg(0))?;
    let count = usize::try_from(call.long(1)).map_err(|_| EINVAL)?;
    for index in 0..count {
        let submitted = call.ptr::<u64>(2).add(index as u64).read().and_then(|at| submit(&context, at));
        match submitted {
            Ok(()) => {}
            Err(e) if index == 0 => return Err(e),
            Err(_) => return Ok(index),
        }
    }
    Ok(count)
}

fn submit(context: &Context, at: u64) -> Result<()> {
    let control = Control::read(UserPtr::new(at))?;
    if control.reserved != 0 || control.length > isize::MAX as u64 {
        return Err(EINVAL);
    }
    if context.done.lock().len() >= context.most {
        return Err(EAGAIN);
    }
    let description = files::get(control.fd)?;
    let told = if control.flags & FLAG_EVENTFD != 0 { Some(files::get(control.event_fd)?) } else { None };
    if told.as_ref().is_some_and(|d| !d.file().as_any().is::<EventFd>()) {
        return Err(EINVAL);
    }
    // The key that io_cancel(2) checks.
    UserPtr::<u32>::new(at.wrapping_add(8)).write(0)?;
    let result = operate(&description, &control)?;
    let result = match result {
        Ok(n) => n as i64,
        Err(e) => e.to_return() as i64,
    };
    context.done.lock().push_back([control.data, at, result as u64, 0]);
    context.wait.wake(Events::IN);
    if let Some(counter) = told.as_ref().and_then(|told| told.file().as_any().downcast_ref::<EventFd>()) {
        counter.signal();
    }
    Ok(())
}

/// Does one operation. The outer error refuses it, the inner result is its own.
fn operate(description: &Description, control: &Control) -> Result<Result<usize>> {
    let Ok(offset) = u64::try_from(control.offset) else { return Err(EINVAL) };
    let reads = matches!(control.operation, PREAD | PREADV);
    let writes = matches!(control.operation, PWRITE | PWRITEV);
    if reads && !description.may_read() || writes && !description.may_write() {
        return Err(EBADF);
    }
    let (address, length) = (control.buffer, control.length as usize);
    if control.rw_flags & !RWF_KNOWN != 0 {
        return Err(EOPNOTSUPP);
    }
    let may_wait = control.rw_flags & RWF_NOWAIT == 0;
    let read = |to: &mut Sink<'_>| match description.is_seekable() {
        true => description.read_at(offset, to),
        false if may_wait => read_from(description, to),
        false => description.read(to),
    };
    let write = |from: &mut Source<'_>| match description.is_seekable() {
        true if may_wait => write_at(description, offset, from),
        // A file does not promise to take bytes without waiting for memory, as of pwritev2(2).
        true => Err(EOPNOTSUPP),
        false if may_wait => write_to(description, from),
        false => description.write(from),
    };
    Ok(match control.operation {
        PREAD => read(&mut Sink::user(address, length)?),
        PWRITE => write(&mut Source::user(address, length)?),
        PREADV => read(&mut Sink::vectored(&read_iovec(address, length)?)),
        PWRITEV => write(&mut Source::vectored(&read_iovec(address, length)?)),
        FSYNC | FDSYNC => {
            if control.buffer != 0 || control.offset != 0 || control.length != 0 || control.rw_flags != 0 {
                return Err(EINVAL);
            }
            description.file().sync(control.operation == FDSYNC).map(|()| 0)
        }
        _ => return Err(EINVAL),
    })
}

fn fetch(call: &Call<'_>) -> Result<usize> {
    /// Events that are copied to the program together.
    const AT_ONCE: usize = 64;
    let timeout = call.ptr::<[i64; 2]>(4).non_null().map(|t| t.read()).transpose()?;
    let context = find(call.arg(0))?;
    let (least, most) = (call.long(1), call.long(2));
    if least < 0 || most < least {
        return Err(EINVAL);
    }
    let timeout = timeout.map(from_timespec).transpose()?;
    let deadline_ns = timeout.map_or(wait::FOREVER, |ns| api_plat::now_ns().saturating_add(ns));
    let enough = || {
        let gone = !CONTEXTS.lock().values().any(|other| Arc::ptr_eq(other, &context));
        let there = context.done.lock().len() as i64;
        if there >= least || gone { Ok(()) } else { Err(EAGAIN) }
    };
    let waited = wait::on_queue(&context.wait, Events::ALL, deadline_ns, enough);
    let to = call.ptr::<Event>(3);
    let mut count = 0;
    while count < most as usize {
        let events: Vec<Event> = {
            let mut done = context.done.lock();
            let some = done.len().min(most as usize - count).min(AT_ONCE);
            done.drain(..some).collect()
        };
        if events.is_empty() {
            break;
        }
        to.add(count as u64).write_slice(&events)?;
        count += events.len();
    }
    match waited {
        Err(RESTART) if count == 0 => Err(EINTR),
        _ => Ok(count),
    }
}

/// io_getevents(2).
pub fn io_getevents(call: &mut Call<'_>) -> Result<usize> {
    fetch(call)
}

/// io_pgetevents(2): with a signal mask for as long as it waits.
pub fn io_pgetevents(call: &mut Call<'_>) -> Result<usize> {
    let (mask, size) = match call.ptr::<[u64; 2]>(5).non_null() {
        Some(pointer) => pointer.read().map(|[mask, size]| (mask, size as usize))?,
        None => (0, 0),
    };
    with_mask(UserPtr::new(mask), size, || fetch(call))
}

/// io_cancel(2): everything is done before anybody can ask.
pub fn io_cancel(call: &mut Call<'_>) -> Result<usize> {
    call.ptr::<[u64; 8]>(1).read()?;
    find(call.arg(0))?;
    Err(EINVAL)
}
