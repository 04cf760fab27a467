// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Operations on sockets. Each attempt does not wait; what cannot go on waits for the socket's readiness.

use super::buffers;
use super::files;
use super::ops::{self, Outcome};
use super::request::{BUFFER_SELECT, CQE_SKIP, Request, Stored};
use super::ring::Ring;
use super::run::{self, F_MORE, F_NOTIF, number};
use abi::{Events, Result, errno::*};
use alloc::boxed::Box;
use alloc::sync::Arc;
use api_user::{Sink, Source};
use calls_sockets::attempts::{self, Message};
use core::sync::atomic::Ordering;
use descriptors::Description;

const O_CLOEXEC: u32 = 0o2000000;
const O_NONBLOCK: u32 = 0o4000;
const SOCK_TYPE: u32 = 0xf;
const MSG_PEEK: u32 = 2;
const MSG_DONTWAIT: u32 = 0x40;
const MSG_TRUNC: u32 = 0x20;
const MSG_WAITALL: u32 = 0x100;
const MSG_NOSIGNAL: u32 = 0x4000;
/// IORING_RECVSEND_POLL_FIRST, RECV_MULTISHOT and RECVSEND_FIXED_BUF.
const POLL_FIRST: u16 = 1;
const RECV_MULTISHOT: u16 = 2;
const FIXED_BUF: u16 = 4;
const ACCEPT_MULTISHOT: u16 = 1;
/// Any place of the file table.
const ALLOC: u32 = u32::MAX;

/// Less than MSG_WAITALL asked for: what is linked behind the request does not start.
pub fn is_short(request: &Request, result: i32) -> bool {
    if request.sqe.op_flags & MSG_WAITALL == 0 {
        return false;
    }
    let wanted = match &request.inner.lock().stored {
        Stored::Message(message) => message.length(),
        _ => request.sqe.length as usize,
    };
    (result as usize) < wanted
}

pub fn prepare(request: &Request) -> Result<()> {
    let sqe = &request.sqe;
    let (length, index) = (sqe.length, sqe.file_index as u32);
    let allow = |known: u16| if sqe.ioprio & !known == 0 { Ok(()) } else { Err(EINVAL) };
    let check = |is_wrong: bool| if is_wrong { Err(EINVAL) } else { Ok(()) };
    match sqe.opcode {
        ops::SENDMSG | ops::SENDMSG_ZC | ops::SEND | ops::SEND_ZC => {
            let is_message = matches!(sqe.opcode, ops::SENDMSG | ops::SENDMSG_ZC);
            let is_zero_copy = matches!(sqe.opcode, ops::SEND_ZC | ops::SENDMSG_ZC);
            allow(if is_zero_copy { POLL_FIRST | FIXED_BUF } else { POLL_FIRST })?;
            check(is_message && (sqe.offset != 0 || index != 0))?;
            check(is_zero_copy && (request.has(CQE_SKIP) || sqe.address3 != 0))?;
            // The upper half of the field is padding of an address' length.
            check(!is_message && index >> 16 != 0)?;
            check(is_message && sqe.ioprio & FIXED_BUF != 0)?;
            match is_message {
                true => request.store(Message::to_send(sqe.address).map(|m| Stored::Message(Box::new(m)))),
                false if sqe.offset != 0 => {
                    request.store(attempts::address(sqe.offset, index as i32).map(Stored::Address));
                }
                false => {}
            }
            Ok(())
        }
        ops::RECVMSG | ops::RECV => {
            allow(POLL_FIRST | RECV_MULTISHOT)?;
            check(sqe.offset != 0 || index != 0)?;
            if sqe.ioprio & RECV_MULTISHOT != 0 {
                check(!request.has(BUFFER_SELECT) || sqe.op_flags & MSG_WAITALL != 0)?;
                check(sqe.opcode == ops::RECV && length != 0)?;
            }
            if sqe.opcode == ops::RECVMSG {
                let message = Message::to_receive(sqe.address).and_then(|message| {
                    check(request.has(BUFFER_SELECT) && message.segments.len() > 1).map(|()| message)
                });
                request.store(message.map(|message| Stored::Message(Box::new(message))));
            }
            Ok(())
        }
        ops::ACCEPT => {
            allow(ACCEPT_MULTISHOT)?;
            let is_many = sqe.ioprio & ACCEPT_MULTISHOT != 0;
            check(length != 0 || sqe.buffer != 0 || sqe.op_flags & !(O_CLOEXEC | O_NONBLOCK) != 0)?;
            check(index != 0 && sqe.op_flags & O_CLOEXEC != 0)?;
            check(is_many && index != 0 && index != ALLOC)
        }
        ops::CONNECT => {
            check(length != 0 || sqe.buffer != 0 || sqe.op_flags != 0 || index != 0)?;
            request.store(attempts::address(sqe.address, sqe.offset as i32).map(Stored::Address));
            Ok(())
        }
        ops::SOCKET => {
            check(sqe.address != 0 || sqe.op_flags != 0 || sqe.buffer != 0)?;
            let flags = sqe.offset as u32 & !SOCK_TYPE;
            check(index != 0 && flags & O_CLOEXEC != 0 || flags & !(O_CLOEXEC | O_NONBLOCK) != 0)
        }
        // SHUTDOWN
        _ => check(sqe.offset != 0 || sqe.address != 0 || sqe.op_flags != 0 || sqe.buffer != 0 || index != 0),
    }
}

pub fn issue(ring: &Arc<Ring>, request: &Arc<Request>) -> Outcome {
    let sqe = &request.sqe;
    if sqe.opcode == ops::SOCKET {
        let made = attempts::socket(sqe.fd as u32, sqe.offset as u32, sqe.length);
        let flags = sqe.offset as u32 & O_CLOEXEC;
        return made.and_then(|socket| place(ring, request, socket, flags)).into();
    }
    let Some(description) = request.file() else { return Outcome::error(EBADF) };
    if api_socket::of_file(&**description.file()).is_err() {
        return Outcome::error(ENOTSOCK);
    }
    match sqe.opcode {
        ops::ACCEPT => accept(ring, request, &description),
        ops::CONNECT => connect(request, &description),
        ops::SHUTDOWN => attempts::shutdown(&description, sqe.length as i32).into(),
        ops::RECV | ops::RECVMSG => receive(ring, request, &description),
        _ => send(ring, request, &description),
    }
}

/// A descriptor or a place in the file table for a new socket.
fn place(ring: &Ring, request: &Request, socket: Arc<Description>, flags: u32) -> Result<usize> {
    match request.sqe.file_index as u32 {
        0 => {
            let descriptors = &task::files::current().descriptors;
            descriptors.insert(socket, flags & O_CLOEXEC != 0).map(|fd| fd as usize)
        }
        wanted => files::install(ring, socket, wanted),
    }
}

/// True when the request waits before its first attempt.
fn polls_first(request: &Request, description: &Description, events: Events) -> bool {
    request.sqe.ioprio & POLL_FIRST != 0
        && !description.file().poll().intersects(events | Events::ERR | Events::HUP)
}

fn send(ring: &Arc<Ring>, request: &Arc<Request>, description: &Arc<Description>) -> Outcome {
    let sqe = &request.sqe;
    if polls_first(request, description, Events::WRITABLE) {
        return Outcome::Wait(description.clone(), Events::WRITABLE);
    }
    let flags = sqe.op_flags | MSG_NOSIGNAL | MSG_DONTWAIT;
    let moved = request.moved.load(Ordering::Relaxed) as usize;
    let stored = core::mem::take(&mut request.inner.lock().stored);
    let (result, stored, whole) = match stored {
        Stored::Message(mut message) => {
            let whole = message.length();
            (message.send(description, flags, moved), Stored::Message(message), whole)
        }
        stored => {
            let to = if let Stored::Address(address) = &stored { Some(address.clone()) } else { None };
            let result = fixed_buffer(ring, request)
                .and_then(|()| Source::user(sqe.address, sqe.length as usize))
                .and_then(|mut from| {
                    from.skip(moved);
                    attempts::send(description, to, flags, &mut from)
                });
            (result, stored, sqe.length as usize)
        }
    };
    request.inner.lock().stored = stored;
    let outcome = partial(request, description, result, whole, Events::WRITABLE);
    match outcome {
        // What was sent was copied: the program may use its buffer again at once.
        Outcome::Done(result, flags) if matches!(sqe.opcode, ops::SEND_ZC | ops::SENDMSG_ZC) => {
            ring.post(request.user_data(), result, flags | F_MORE);
            Outcome::Done(0, F_NOTIF)
        }
        outcome => outcome,
    }
}

/// SEND_ZC may name a registered buffer.
fn fixed_buffer(ring: &Ring, request: &Request) -> Result<()> {
    if request.sqe.opcode != ops::SEND_ZC || request.sqe.ioprio & FIXED_BUF == 0 {
        return Ok(());
    }
    buffers::check_fixed(ring, request)
}

/// What one attempt came to. With MSG_WAITALL a stream goes on until all is moved.
fn partial(
    request: &Request,
    description: &Arc<Description>,
    result: Result<usize>,
    whole: usize,
    events: Events,
) -> Outcome {
    let flags = request.sqe.op_flags;
    let moved = request.moved.load(Ordering::Relaxed) as usize;
    match result {
        Err(EAGAIN) if flags & MSG_DONTWAIT == 0 => Outcome::Wait(description.clone(), events),
        Err(_) if moved > 0 => Outcome::Done(moved as i32, 0),
        Err(e) => Outcome::error(e),
        Ok(n) => {
            let moved = moved + n;
            let goes_on = n > 0 && moved < whole && flags & (MSG_WAITALL | MSG_DONTWAIT) == MSG_WAITALL;
            if goes_on && attempts::is_stream(description) {
                request.moved.store(moved as u32, Ordering::Relaxed);
                return Outcome::Wait(description.clone(), events);
            }
            Outcome::Done(moved as i32, 0)
        }
    }
}

fn receive(ring: &Arc<Ring>, request: &Arc<Request>, description: &Arc<Description>) -> Outcome {
    if polls_first(request, description, Events::READABLE) {
        return Outcome::Wait(description.clone(), Events::READABLE);
    }
    let is_many = request.sqe.ioprio & RECV_MULTISHOT != 0;
    loop {
        let outcome = receive_one(ring, request, description);
        let Outcome::Done(result, flags) = outcome else { return outcome };
        let more = if result >= 0 { more(description) } else { 0 };
        // The end of a stream, an error or a full ring end a request for many.
        if !is_many
            || result <= 0
            || flags & ENDED != 0
            || !run::post_more(ring, request, result, flags | more)
        {
            return Outcome::Done(result, flags & !ENDED | more);
        }
        // Where nothing is there no buffer is needed.
        if more == 0 {
            return Outcome::Wait(description.clone(), Events::READABLE);
        }
    }
}

/// There is more to read already: IORING_CQE_F_SOCK_NONEMPTY. The end of a stream is not.
fn more(description: &Arc<Description>) -> u32 {
    let events = description.file().poll();
    let may_be_end = events.intersects(Events::RDHUP | Events::HUP | Events::ERR);
    let has_bytes = || {
        let mut byte = [0];
        attempts::receive(description, MSG_PEEK | MSG_DONTWAIT, &mut Sink::kernel(&mut byte)) == Ok(1)
    };
    if events.intersects(Events::IN) && (!may_be_end || has_bytes()) { run::F_SOCK_NONEMPTY } else { 0 }
}

/// A mark among the flags of a completion that no program sees: nothing can follow.
const ENDED: u32 = 1 << 15;

fn receive_one(ring: &Arc<Ring>, request: &Arc<Request>, description: &Arc<Description>) -> Outcome {
    let sqe = &request.sqe;
    let flags = sqe.op_flags;
    let moved = request.moved.load(Ordering::Relaxed) as usize;
    let stored = core::mem::take(&mut request.inner.lock().stored);
    let selected = match request.has(BUFFER_SELECT) {
        true => {
            let most = match &stored {
                Stored::Message(message) => {
                    message.segments.first().map_or(0, |segment| segment.length as u32)
                }
                _ => sqe.length,
            };
            match buffers::select(ring, request, most) {
                Ok(selected) => Some(selected),
                Err(e) => {
                    request.inner.lock().stored = stored;
                    return Outcome::error(e);
                }
            }
        }
        false => None,
    };
    let mut ended = 0;
    let (result, whole) = match (&stored, selected) {
        (Stored::Message(message), Some(selected)) if sqe.ioprio & RECV_MULTISHOT != 0 => {
            let length = selected.length as usize;
            let received = message.receive_whole(description, flags, selected.address, length);
            let received = received.map(|(used, is_end)| {
                ended = if is_end { ENDED } else { 0 };
                used
            });
            (received, 0)
        }
        (Stored::Message(message), Some(selected)) => {
            let to = Sink::user(selected.address, selected.length as usize);
            (
                to.and_then(|mut to| message.receive_into(description, flags, &mut to)),
                selected.length as usize,
            )
        }
        (Stored::Message(message), None) => (message.receive(description, flags, moved), message.length()),
        (_, selected) => {
            let (address, length) = selected.map_or((sqe.address, sqe.length), |s| (s.address, s.length));
            let received = Sink::user(address, length as usize).and_then(|mut to| {
                to.skip(moved);
                attempts::receive(description, flags, &mut to)
            });
            (received, length as usize)
        }
    };
    request.inner.lock().stored = stored;
    // A packet that was longer says how long it was, of which no more can come.
    let whole = if flags & MSG_TRUNC != 0 { 0 } else { whole };
    let outcome = partial(request, description, result, whole, Events::READABLE);
    match outcome {
        Outcome::Done(result, _) if result > 0 => Outcome::Done(result, buffers::flags(request) | ended),
        outcome => {
            buffers::give_back(ring, request);
            outcome
        }
    }
}

fn accept(ring: &Arc<Ring>, request: &Arc<Request>, description: &Arc<Description>) -> Outcome {
    let sqe = &request.sqe;
    loop {
        // A connection that is taken out of the queue is lost when there is no number for it.
        if sqe.file_index == 0
            && let Err(e) = task::files::current().descriptors.check_room()
        {
            return Outcome::error(e);
        }
        let result = attempts::accept(description, sqe.op_flags, sqe.address, sqe.offset)
            .and_then(|socket| place(ring, request, socket, sqe.op_flags));
        let is_many = sqe.ioprio & ACCEPT_MULTISHOT != 0;
        match result {
            Err(EAGAIN) => return Outcome::Wait(description.clone(), Events::READABLE),
            Ok(number) if is_many && run::post_more(ring, request, number as i32, 0) => {}
            result => return Outcome::Done(number(result), 0),
        }
    }
}

fn connect(request: &Arc<Request>, description: &Arc<Description>) -> Outcome {
    let address = match &request.inner.lock().stored {
        Stored::Address(address) => address.clone(),
        _ => return Outcome::error(EFAULT),
    };
    let has_begun = request.moved.load(Ordering::Relaxed) > 0;
    match attempts::connect(description, &address) {
        Err(EINPROGRESS | EALREADY) => {
            request.moved.store(1, Ordering::Relaxed);
            Outcome::Wait(description.clone(), Events::WRITABLE)
        }
        Err(EAGAIN) => Outcome::Wait(description.clone(), Events::WRITABLE),
        // What came of the attempt another thread may have been told.
        Err(EISCONN) if has_begun => Outcome::Done(0, 0),
        result => result.map(|()| 0).into(),
    }
}
