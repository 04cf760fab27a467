// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The operations: what each takes, what is checked when it is submitted, and how it is made.

use super::buffers;
use super::cancel;
use super::files;
use super::message;
use super::names;
use super::poll;
use super::request::{BUFFER_SELECT, Request, Stored};
use super::ring::Ring;
use super::run::number;
use super::sockets;
use super::timeout;
use super::transfer;
use abi::{Errno, Events, Result, errno::*};
use alloc::boxed::Box;
use alloc::sync::Arc;
use api_user::read_iovec;
use descriptors::Description;
use task::io_priority;
use uring::SETUP_IOPOLL;

pub const NOP: u8 = 0;
pub const READV: u8 = 1;
pub const WRITEV: u8 = 2;
pub const FSYNC: u8 = 3;
pub const READ_FIXED: u8 = 4;
pub const WRITE_FIXED: u8 = 5;
pub const POLL_ADD: u8 = 6;
pub const POLL_REMOVE: u8 = 7;
pub const SYNC_FILE_RANGE: u8 = 8;
pub const SENDMSG: u8 = 9;
pub const RECVMSG: u8 = 10;
pub const TIMEOUT: u8 = 11;
pub const TIMEOUT_REMOVE: u8 = 12;
pub const ACCEPT: u8 = 13;
pub const ASYNC_CANCEL: u8 = 14;
pub const LINK_TIMEOUT: u8 = 15;
pub const CONNECT: u8 = 16;
pub const FALLOCATE: u8 = 17;
pub const OPENAT: u8 = 18;
pub const CLOSE: u8 = 19;
pub const FILES_UPDATE: u8 = 20;
pub const STATX: u8 = 21;
pub const READ: u8 = 22;
pub const WRITE: u8 = 23;
pub const FADVISE: u8 = 24;
pub const MADVISE: u8 = 25;
pub const SEND: u8 = 26;
pub const RECV: u8 = 27;
pub const OPENAT2: u8 = 28;
pub const EPOLL_CTL: u8 = 29;
pub const SPLICE: u8 = 30;
pub const PROVIDE_BUFFERS: u8 = 31;
pub const REMOVE_BUFFERS: u8 = 32;
pub const TEE: u8 = 33;
pub const SHUTDOWN: u8 = 34;
pub const RENAMEAT: u8 = 35;
pub const UNLINKAT: u8 = 36;
pub const MKDIRAT: u8 = 37;
pub const SYMLINKAT: u8 = 38;
pub const LINKAT: u8 = 39;
pub const MSG_RING: u8 = 40;
pub const FSETXATTR: u8 = 41;
pub const SETXATTR: u8 = 42;
pub const FGETXATTR: u8 = 43;
pub const GETXATTR: u8 = 44;
pub const SOCKET: u8 = 45;
pub const URING_CMD: u8 = 46;
pub const SEND_ZC: u8 = 47;
pub const SENDMSG_ZC: u8 = 48;
/// Opcodes are below this one.
pub const OPCODES: u8 = 49;

/// What became of an operation.
pub enum Outcome {
    /// It is done: the result and the flags of its completion.
    Done(i32, u32),
    /// It has to wait for one of these events of the file.
    Wait(Arc<Description>, Events),
    /// It hangs where it waits.
    Armed,
}

impl Outcome {
    pub fn error(e: Errno) -> Outcome {
        Outcome::Done(e.to_return() as i32, 0)
    }
}

impl From<Result<usize>> for Outcome {
    fn from(result: Result<usize>) -> Outcome {
        Outcome::Done(number(result), 0)
    }
}

/// Operations on a file that is looked up for them.
pub fn needs_file(opcode: u8) -> bool {
    matches!(
        opcode,
        READV
            ..=SYNC_FILE_RANGE
                | SENDMSG
                | RECVMSG
                | ACCEPT
                | CONNECT
                | FALLOCATE
                | READ
                | WRITE
                | FADVISE
                | SEND
                | RECV
                | SPLICE
                | TEE
                | SHUTDOWN
                | MSG_RING
                | FSETXATTR
                | FGETXATTR
                | URING_CMD
                | SEND_ZC
                | SENDMSG_ZC
    ) && opcode != POLL_REMOVE
}

/// Operations that take a buffer of a group.
fn selects_buffer(opcode: u8) -> bool {
    matches!(opcode, READV | READ | RECV | RECVMSG)
}

/// Operations of a ring with SETUP_IOPOLL.
fn serves_polled_rings(opcode: u8) -> bool {
    is_read_or_write(opcode)
        || matches!(opcode, NOP | FILES_UPDATE | PROVIDE_BUFFERS | REMOVE_BUFFERS | MSG_RING | URING_CMD)
}

/// Operations that use the field `ioprio`, for a priority or for flags.
fn takes_priority(opcode: u8) -> bool {
    matches!(
        opcode,
        READV
            | WRITEV
            | READ_FIXED
            | WRITE_FIXED
            | READ
            | WRITE
            | SENDMSG
            | RECVMSG
            | SEND
            | RECV
            | ACCEPT
            | SEND_ZC
            | SENDMSG_ZC
    )
}

fn is_read_or_write(opcode: u8) -> bool {
    matches!(opcode, READV | WRITEV | READ_FIXED | WRITE_FIXED | READ | WRITE)
}

/// A result with which what is linked behind the request does not start.
pub fn has_failed(request: &Request, result: i32) -> bool {
    match request.sqe.opcode {
        // Of these Linux does not look at the result: a link goes on behind an error, and IOSQE_CQE_SKIP_SUCCESS hides it.
        FSYNC | SYNC_FILE_RANGE | FALLOCATE | STATX | MADVISE => false,
        SHUTDOWN => result == ENOTSOCK.to_return() as i32,
        RENAMEAT..=LINKAT | FSETXATTR..=GETXATTR => false,
        _ if result < 0 => !timeout::is_success(request, result),
        // Less than was asked for ends a link.
        READ | WRITE | READ_FIXED | WRITE_FIXED if !request.has(BUFFER_SELECT) => {
            (result as u32) < request.sqe.length
        }
        READV | WRITEV => match &request.inner.lock().stored {
            Stored::Segments(segments) => {
                (result as usize) < segments.iter().map(|segment| segment.length).sum::<usize>()
            }
            _ => false,
        },
        SPLICE | TEE => (result as u32) != request.sqe.length,
        SEND | RECV | SENDMSG | RECVMSG => sockets::is_short(request, result),
        _ => false,
    }
}

/// What is checked and read from the program at the submission (Linux' `prep`).
pub fn prepare(ring: &Ring, request: &Request) -> Result<()> {
    let sqe = &request.sqe;
    let opcode = sqe.opcode;
    if request.has(BUFFER_SELECT) && !selects_buffer(opcode) {
        return Err(EOPNOTSUPP);
    }
    if ring.has(SETUP_IOPOLL) && !serves_polled_rings(opcode) {
        return Err(EINVAL);
    }
    if sqe.ioprio != 0 && !takes_priority(opcode) {
        return Err(EINVAL);
    }
    if is_read_or_write(opcode) {
        io_priority::check(sqe.ioprio.into())?;
    }
    let none = |fields: &[u64]| if fields.iter().all(|field| *field == 0) { Ok(()) } else { Err(EINVAL) };
    let (buffer, index) = (u64::from(sqe.buffer), sqe.file_index as u32 as u64);
    match opcode {
        READV | WRITEV if !request.has(BUFFER_SELECT) => {
            let segments = read_iovec(sqe.address, sqe.length as usize);
            request.store(segments.map(|segments| Stored::Segments(Box::new(segments))));
            Ok(())
        }
        // One piece of the buffer that is selected.
        READV if sqe.length > 1 => Err(EINVAL),
        READ_FIXED | WRITE_FIXED => buffers::check_fixed(ring, request),
        FSYNC if sqe.op_flags & !1 != 0 => Err(EINVAL),
        FSYNC | SYNC_FILE_RANGE => none(&[sqe.address, buffer, index]),
        POLL_ADD => poll::prepare_add(request),
        POLL_REMOVE => poll::prepare_remove(request),
        TIMEOUT | TIMEOUT_REMOVE | LINK_TIMEOUT => timeout::prepare(request),
        SENDMSG | RECVMSG | SENDMSG_ZC | SEND | RECV | SEND_ZC | ACCEPT | CONNECT | SOCKET | SHUTDOWN => {
            sockets::prepare(request)
        }
        ASYNC_CANCEL => {
            none(&[sqe.offset, u64::from(sqe.length), index])?;
            let flags = sqe.op_flags;
            if flags & !cancel::KNOWN != 0 || flags & cancel::FD != 0 && flags & cancel::ANY != 0 {
                return Err(EINVAL);
            }
            Ok(())
        }
        FALLOCATE => none(&[u64::from(sqe.op_flags), buffer, index]),
        OPENAT
        | OPENAT2
        | CLOSE
        | STATX
        | EPOLL_CTL
        | RENAMEAT..=LINKAT
        | FSETXATTR..=GETXATTR
        | FADVISE
        | MADVISE => names::prepare(request),
        SPLICE | TEE => transfer::prepare_splice(request),
        FILES_UPDATE => none(&[index, u64::from(sqe.op_flags)]).and(
            if sqe.length == 0 || request.has(super::request::FIXED_FILE) { Err(EINVAL) } else { Ok(()) },
        ),
        PROVIDE_BUFFERS | REMOVE_BUFFERS => buffers::prepare(sqe),
        MSG_RING => none(&[buffer, u64::from(sqe.personality)]),
        _ => Ok(()),
    }
}

/// Makes the operation, or as much of it as needs no waiting.
pub fn issue(ring: &Arc<Ring>, request: &Arc<Request>) -> Outcome {
    let sqe = &request.sqe;
    match sqe.opcode {
        NOP => Outcome::Done(0, 0),
        READV | WRITEV | READ_FIXED | WRITE_FIXED | READ | WRITE => transfer::issue(ring, request),
        POLL_ADD => poll::add(ring, request),
        POLL_REMOVE => poll::remove(ring, request).into(),
        SENDMSG | RECVMSG | SENDMSG_ZC | SEND | RECV | SEND_ZC | ACCEPT | CONNECT | SOCKET | SHUTDOWN => {
            sockets::issue(ring, request)
        }
        TIMEOUT | LINK_TIMEOUT => timeout::issue(ring, request),
        TIMEOUT_REMOVE => timeout::remove(ring, request).into(),
        ASYNC_CANCEL => {
            let is_fixed = request.has(super::request::FIXED_FILE) || sqe.op_flags & cancel::FD_FIXED != 0;
            cancel::Wanted::new(ring, sqe.op_flags, sqe.address, sqe.fd, is_fixed)
                .and_then(|wanted| cancel::cancel(ring, &wanted, Some(request), |_| true))
                .into()
        }
        FILES_UPDATE => files::update_by_request(ring, sqe).into(),
        SPLICE | TEE => transfer::splice(ring, request),
        PROVIDE_BUFFERS => buffers::provide(ring, sqe).into(),
        REMOVE_BUFFERS => buffers::remove(ring, sqe).into(),
        MSG_RING => message::send(ring, request).into(),
        // Commands of devices and file systems: no file has any.
        URING_CMD => Outcome::error(EOPNOTSUPP),
        _ => names::issue(ring, request).into(),
    }
}
