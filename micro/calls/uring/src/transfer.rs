// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading, writing and splicing.

use super::buffers;
use super::files;
use super::ops::{self, Outcome};
use super::request::{BUFFER_SELECT, Request, Stored};
use super::ring::Ring;
use super::run::number;
use abi::{Events, Result, errno::*};
use alloc::sync::Arc;
use api_fs::FileType;
use api_user::{Segments, Sink, Source};
use calls_files::io::{self, RWF_KNOWN, RWF_NOWAIT};
use calls_files::transfer as pipes;
use descriptors::Description;
use eventfd::EventFd;
use uring::SETUP_IOPOLL;

/// SPLICE_F_FD_IN_FIXED, of io_uring alone.
const FD_IN_FIXED: u32 = 1 << 31;
const SPLICE_F_NONBLOCK: u32 = 2;

/// What to wait for when a read or write answers `EAGAIN`.
fn wait(request: &Request, description: &Arc<Description>, reads: bool) -> Outcome {
    // A descriptor with O_NONBLOCK is waited for all the same, as on Linux.
    if request.sqe.op_flags & RWF_NOWAIT != 0 {
        return Outcome::error(EAGAIN);
    }
    Outcome::Wait(description.clone(), if reads { Events::READABLE } else { Events::WRITABLE })
}

/// READ, WRITE and their vectored and fixed forms.
pub fn issue(ring: &Arc<Ring>, request: &Arc<Request>) -> Outcome {
    let Some(description) = request.file() else { return Outcome::error(EBADF) };
    let sqe = &request.sqe;
    let reads = matches!(sqe.opcode, ops::READ | ops::READV | ops::READ_FIXED);
    let (mut address, mut length) = (sqe.address, sqe.length as usize);
    if request.has(BUFFER_SELECT) {
        let most = if sqe.opcode == ops::READV { u32::MAX } else { sqe.length };
        match buffers::select(ring, request, most) {
            Ok(selected) => (address, length) = (selected.address, selected.length as usize),
            Err(e) => return Outcome::error(e),
        }
    }
    // The buffer is used up by an error too.
    let failed = |e| Outcome::Done(number(Err(e)), buffers::flags(request));
    if reads && !description.may_read() || !reads && !description.may_write() {
        return failed(EBADF);
    }
    // No file completes reads and writes by being polled.
    if sqe.op_flags & !RWF_KNOWN != 0 || ring.has(SETUP_IOPOLL) {
        return failed(EOPNOTSUPP);
    }
    let events = if reads { Events::READABLE } else { Events::WRITABLE };
    if !can_be_read(&description) && !is_ready(&description, events) {
        buffers::give_back(ring, request);
        return wait(request, &description, reads);
    }
    // Kept in the request again when it has to wait.
    let segments = match core::mem::take(&mut request.inner.lock().stored) {
        Stored::Segments(segments) => Some(segments),
        _ => None,
    };
    let pieces = segments.as_deref();
    let result = if reads {
        sink(pieces, address, length).and_then(|mut to| read(&description, sqe.offset, sqe.op_flags, &mut to))
    } else {
        source(pieces, address, length)
            .and_then(|mut from| write(&description, sqe.offset, sqe.op_flags, &mut from))
    };
    if let Some(segments) = segments {
        request.inner.lock().stored = Stored::Segments(segments);
    }
    match result {
        Err(EAGAIN) => {
            buffers::give_back(ring, request);
            wait(request, &description, reads)
        }
        Err(e) => failed(e),
        Ok(n) => Outcome::Done(n as i32, buffers::flags(request)),
    }
}

fn sink<'a>(segments: Option<&'a Segments>, address: u64, length: usize) -> Result<Sink<'a>> {
    match segments {
        Some(segments) => Ok(Sink::vectored(segments)),
        None => Sink::user(address, length),
    }
}

fn source<'a>(segments: Option<&'a Segments>, address: u64, length: usize) -> Result<Source<'a>> {
    match segments {
        Some(segments) => Ok(Source::vectored(segments)),
        None => Source::user(address, length),
    }
}

/// Sockets have no offset but 0; other files without a position ignore it.
fn check_offset(description: &Description, offset: u64) -> Result<()> {
    let is_given = offset != 0 && offset != u64::MAX;
    if is_given && is_socket(description) { Err(ESPIPE) } else { Ok(()) }
}

fn is_socket(description: &Description) -> bool {
    api_socket::of_file(&**description.file()).is_ok()
}

/// Not so of files that can be polled alone, which a read waits for before it finds that out.
fn can_be_read(description: &Description) -> bool {
    !matches!(description.file().anonymous_name(), "[eventpoll]" | "[pidfd]" | "[io_uring]")
}

fn is_pipe(description: &Description) -> bool {
    description.file().as_any().is::<pipe::PipeEnd>()
}

/// An offset of -1 is the file's position.
fn read(description: &Description, offset: u64, _flags: u32, to: &mut Sink<'_>) -> Result<usize> {
    if !description.is_seekable() {
        check_offset(description, offset)?;
        return match description.read(to) {
            Err(EAGAIN) if description.is_nonblocking() => description.file().read_rest(to, false),
            done => done,
        };
    }
    // A directory's read is asked for each piece, of which there is none.
    if to.remaining() == 0 && description.file().stat()?.kind == FileType::Directory {
        return Ok(0);
    }
    if offset == u64::MAX {
        return io::read_from(description, to);
    }
    if i64::try_from(offset).is_err() {
        return Err(EINVAL);
    }
    description.read_at(offset, to)
}

fn write(description: &Description, offset: u64, flags: u32, from: &mut Source<'_>) -> Result<usize> {
    if !description.is_seekable() {
        check_offset(description, offset)?;
        // An eventfd's write is asked for each piece, of which there is none.
        if from.remaining() == 0 && description.file().as_any().is::<EventFd>() {
            return Ok(0);
        }
        return io::write_at_once(description, from);
    }
    // A file does not promise to take bytes without waiting for memory.
    if flags & RWF_NOWAIT != 0 {
        return Err(EOPNOTSUPP);
    }
    let n = io::write_with(description, (offset != u64::MAX).then_some(offset), flags, from)?;
    Ok(n)
}

pub fn prepare_splice(request: &Request) -> Result<()> {
    let sqe = &request.sqe;
    if sqe.op_flags & !(15 | FD_IN_FIXED) != 0
        || sqe.opcode == ops::TEE && (sqe.address != 0 || sqe.offset != 0)
    {
        return Err(EINVAL);
    }
    Ok(())
}

fn is_ready(description: &Description, events: Events) -> bool {
    description.file().wait_queue().is_none()
        || description.file().poll().intersects(events | Events::ERR | Events::HUP)
}

/// SPLICE and TEE. Pipes answer `EAGAIN` by themselves; of another file is read only what is there.
pub fn splice(ring: &Arc<Ring>, request: &Arc<Request>) -> Outcome {
    let sqe = &request.sqe;
    let Some(to) = request.file() else { return Outcome::error(EBADF) };
    let from = match sqe.op_flags & FD_IN_FIXED != 0 {
        true => files::fixed(ring, sqe.file_index as u32),
        false => task::files::get(sqe.file_index),
    };
    let from = match from {
        Ok(from) => from,
        Err(e) => return Outcome::error(e),
    };
    let flags = sqe.op_flags & !FD_IN_FIXED;
    let waits = flags & SPLICE_F_NONBLOCK == 0;
    if sqe.length > 0
        && let Err(e) = pipes::check_transfer(&from, &to, [sqe.address, sqe.offset], sqe.opcode == ops::TEE)
    {
        return Outcome::error(e);
    }
    if sqe.length > 0 && !is_pipe(&from) && !is_ready(&from, Events::READABLE) {
        return if waits { Outcome::Wait(from, Events::READABLE) } else { Outcome::error(EAGAIN) };
    }
    let result = match sqe.opcode {
        ops::TEE => pipes::tee_between(&from, &to, sqe.length as usize, flags | SPLICE_F_NONBLOCK),
        _ => {
            let offsets = [sqe.address, sqe.offset];
            pipes::splice_at(&from, &to, offsets, sqe.length as usize, flags | SPLICE_F_NONBLOCK)
        }
    };
    match result {
        Err(EAGAIN) if waits && !is_ready(&from, Events::READABLE) => Outcome::Wait(from, Events::READABLE),
        Err(EAGAIN) if waits => Outcome::Wait(to, Events::WRITABLE),
        result => result.into(),
    }
}
