// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Moving bytes from descriptor to descriptor without a detour through the program: sendfile, splice, tee,
//! vmsplice, copy_file_range.

use crate::io::{SIGPIPE, count_of_pieces, has_read, has_written, read_from, write_at, write_to};
use abi::{Errno, Events, Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_fs::FileType;
use api_user::{Sink, Source, UserPtr, read_iovec};
use descriptors::{Description, check_range};
use pipe::PipeEnd;
use task::call::Call;
use task::{files, signals, wait};

const SPLICE_F_NONBLOCK: u32 = 2;
const SPLICE_KNOWN: u32 = 15;
const O_APPEND: u32 = 0o2000;
/// Bytes moved at a time.
const CHUNK: usize = 65536;
const PAGE: usize = 4096;
/// As Linux' MAX_RW_COUNT.
const LIMIT: usize = 0x7fff_f000;

fn buffer(length: usize) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    out.reserve_exact_fallibly(length).map_err(|_| ENOMEM)?;
    out.resize(length, 0);
    Ok(out)
}

/// A position that the caller passes by pointer, or the description's own.
enum Position {
    Pointer(UserPtr<i64>, u64),
    Own,
}

impl Position {
    fn read(pointer: UserPtr<i64>, description: &Description) -> Result<Position> {
        let Some(pointer) = pointer.non_null() else { return Ok(Position::Own) };
        if !description.is_seekable() {
            return Err(ESPIPE);
        }
        let at = u64::try_from(pointer.read()?).map_err(|_| EINVAL)?;
        Ok(Position::Pointer(pointer, at))
    }

    /// `EINVAL` where `count` bytes reach beyond the last position.
    fn check(&self, description: &Description, count: usize) -> Result<()> {
        match self {
            Position::Pointer(_, at) => check_range(*at, count),
            Position::Own if description.is_seekable() => check_range(description.position(), count),
            Position::Own => Ok(()),
        }
    }

    fn fill(&mut self, from: &Description, to: &mut [u8]) -> Result<usize> {
        match self {
            Position::Pointer(_, at) => from.read_at(*at, &mut Sink::kernel(to)),
            Position::Own if from.is_seekable() => from.read_at(from.position(), &mut Sink::kernel(to)),
            Position::Own => read_from(from, &mut Sink::kernel(to)),
        }
    }

    /// `n` bytes were used.
    fn advance(&mut self, description: &Description, n: usize) {
        match self {
            Position::Pointer(_, at) => *at += n as u64,
            Position::Own if description.is_seekable() => {
                description.set_position(description.position() + n as u64);
            }
            Position::Own => {}
        }
    }

    fn store(&self) -> Result<()> {
        match self {
            Position::Pointer(pointer, at) if !pointer.is_null() => pointer.write(*at as i64),
            _ => Ok(()),
        }
    }
}

/// sendfile(2): from a file that can be mapped to anything.
pub fn sendfile(call: &mut Call<'_>) -> Result<usize> {
    // The position is read before any descriptor is looked at and written whatever came of the transfer, as Linux does.
    let position = call.ptr::<i64>(2).non_null();
    let before = position.map(|pointer| pointer.read()).transpose()?;
    let result = send_file(call);
    if let (Some(pointer), Some(before), Err(_)) = (position, before, result) {
        pointer.write(before)?;
    }
    result
}

fn send_file(call: &Call<'_>) -> Result<usize> {
    let from = files::get(call.int(1))?;
    if !from.may_read() {
        return Err(EBADF);
    }
    let mut position = Position::read(call.ptr(2), &from)?;
    if isize::try_from(call.size(3)).is_err() {
        return Err(EINVAL);
    }
    position.check(&from, call.size(3))?;
    let to = files::get(call.int(0))?;
    if !to.may_write() {
        return Err(EBADF);
    }
    let count = call.size(3).min(LIMIT);
    if to.flags() & O_APPEND != 0 {
        return Err(EINVAL);
    }
    if count == 0 {
        return Ok(0);
    }
    if pipe_end(&to).is_some() && has_no_reader(&to) {
        return Err(broken_pipe());
    }
    if !from.is_seekable() || from.file().stat()?.kind == FileType::Directory {
        return Err(EINVAL);
    }
    let mut bytes = buffer(count.min(CHUNK))?;
    let mut done = 0;
    let result = loop {
        let want = (count - done).min(bytes.len());
        if want == 0 {
            break Ok(done);
        }
        let n = match position.fill(&from, &mut bytes[..want]) {
            Ok(0) => break Ok(done),
            Ok(n) => n,
            Err(e) => break Err(e),
        };
        match write_to(&to, &mut Source::kernel(&bytes[..n])) {
            Ok(written) => {
                position.advance(&from, written);
                done += written;
                if written < n || wait::take_a_break() {
                    break Ok(done);
                }
            }
            Err(e) => break Err(e),
        }
    };
    // Linux tells the position whatever came of the transfer.
    position.store()?;
    if done > 0 { has_moved(done) } else { result }
}

/// Bytes were read and written by one call.
fn has_moved(bytes: usize) -> Result<usize> {
    has_read(Ok(bytes))?;
    has_written(Ok(bytes))
}

/// Whether splice(2) moves bytes to and from such a file: files with contents, streams and devices; no directories, and nothing
/// that is read and written in records (eventfd, timerfd and their like).
fn can_be_spliced(description: &Description) -> Result<bool> {
    let kind = description.file().stat()?.kind;
    Ok(!matches!(kind, FileType::Directory | FileType::Anonymous))
}

fn pipe_end(description: &Description) -> Option<&PipeEnd> {
    description.file().as_any().downcast_ref()
}

/// Waits for a pipe as `flags` and the description say, and runs `operation` on it.
fn on_pipe<T>(
    description: &Description,
    nonblocking: bool,
    interest: Events,
    operation: impl FnMut() -> Result<T>,
) -> Result<T> {
    let blocking = !(nonblocking || description.is_nonblocking());
    task::wait::for_file(&**description.file(), interest, blocking, task::wait::FOREVER, operation)
}

/// splice(2): one side is a pipe.
pub fn splice(call: &mut Call<'_>) -> Result<usize> {
    if call.size(4) == 0 {
        return Ok(0);
    }
    let flags = call.flags(5, SPLICE_KNOWN)?;
    let from = files::get(call.int(0))?;
    let to = files::get(call.int(2))?;
    let offsets = [Offset::Pointer(call.ptr(1)), Offset::Pointer(call.ptr(3))];
    splice_between(&from, &to, offsets, call.size(4), flags)
}

/// Where a splice begins, as its caller says it.
#[derive(Clone, Copy)]
enum Offset {
    /// Behind a pointer, which may be null.
    Pointer(UserPtr<i64>),
    #[cfg(feature = "io_uring")]
    Value(u64),
}

impl Offset {
    fn is_none(self) -> bool {
        match self {
            Offset::Pointer(pointer) => pointer.is_null(),
            #[cfg(feature = "io_uring")]
            Offset::Value(value) => value == u64::MAX,
        }
    }

    /// `EFAULT` where there is no position behind the pointer, which is told before what is wrong with a descriptor.
    fn check(self) -> Result<()> {
        match self {
            Offset::Pointer(pointer) => {
                pointer.non_null().map_or(Ok(0), |pointer| pointer.read()).map(|_| ())
            }
            #[cfg(feature = "io_uring")]
            Offset::Value(_) => Ok(()),
        }
    }

    fn position(self, description: &Description) -> Result<Position> {
        match self {
            Offset::Pointer(pointer) => Position::read(pointer, description),
            #[cfg(feature = "io_uring")]
            Offset::Value(u64::MAX) => Ok(Position::Own),
            #[cfg(feature = "io_uring")]
            Offset::Value(at) if description.is_seekable() && i64::try_from(at).is_ok() => {
                Ok(Position::Pointer(UserPtr::new(0), at))
            }
            #[cfg(feature = "io_uring")]
            Offset::Value(_) => Err(EINVAL),
        }
    }
}

/// As splice(2), with the offsets themselves; -1 is none (io_uring).
#[cfg(feature = "io_uring")]
pub fn splice_at(
    from: &Description,
    to: &Description,
    offsets: [u64; 2],
    count: usize,
    flags: u32,
) -> Result<usize> {
    if count == 0 {
        return Ok(0);
    }
    splice_between(from, to, offsets.map(Offset::Value), count, flags)
}

/// What splice_at or, of two pipes, tee_between answers without looking at what there is to be moved (io_uring, which waits for that
/// after this).
#[cfg(feature = "io_uring")]
pub fn check_transfer(from: &Description, to: &Description, offsets: [u64; 2], is_tee: bool) -> Result<()> {
    match is_tee {
        true => tee_ends(from, to).map(|_| ()),
        false => check_splice(from, to, offsets.map(Offset::Value)),
    }
}

/// As splice(2), with descriptions.
fn splice_between(
    from: &Description,
    to: &Description,
    [from_at, to_at]: [Offset; 2],
    count: usize,
    flags: u32,
) -> Result<usize> {
    let count = count.min(LIMIT);
    check_splice(from, to, [from_at, to_at])?;
    let nonblocking = flags & SPLICE_F_NONBLOCK != 0;
    match (pipe_end(from), pipe_end(to)) {
        (Some(source), _) => {
            let mut position = to_at.position(to).map_err(without_place)?;
            position.check(to, count)?;
            let n = splice_out(from, source, to, &mut position, count, nonblocking)?;
            position.store()?;
            Ok(n)
        }
        (None, Some(target)) => {
            let mut position = from_at.position(from).map_err(without_place)?;
            position.check(from, count)?;
            let n = splice_in(from, &mut position, to, target, count, nonblocking)?;
            position.store()?;
            Ok(n)
        }
        (None, None) => Err(EINVAL),
    }
}

/// Whether splice(2) between the two makes sense at all, whatever there is to be moved.
fn check_splice(from: &Description, to: &Description, [from_at, to_at]: [Offset; 2]) -> Result<()> {
    let (source, target) = (pipe_end(from), pipe_end(to));
    if source.is_some() && !from_at.is_none() || target.is_some() && !to_at.is_none() {
        return Err(ESPIPE);
    }
    to_at.check()?;
    from_at.check()?;
    if !from.may_read() || !to.may_write() {
        return Err(EBADF);
    }
    match (source, target) {
        (None, None) => Err(EINVAL),
        (Some(_), None) if !can_be_spliced(to)? => Err(EINVAL),
        (Some(a), Some(b)) if Arc::ptr_eq(a.pipe(), b.pipe()) => Err(EINVAL),
        (Some(_), _) if to.flags() & O_APPEND != 0 && to.is_seekable() => Err(EINVAL),
        _ => Ok(()),
    }
}

/// splice(2) keeps ESPIPE for the offset of a pipe.
fn without_place(error: Errno) -> Errno {
    if error == ESPIPE { EINVAL } else { error }
}

fn has_no_reader(pipe: &Description) -> bool {
    pipe.file().poll().contains(Events::ERR)
}

/// The error of a pipe that nobody reads, with its signal.
fn broken_pipe() -> Errno {
    signals::send_to_current(SIGPIPE);
    EPIPE
}

/// Waits until whole pages fit into a pipe, and says how many bytes they are: what is spliced begins a page of its own,
/// so that a page with room at its end is full (Linux' `pipe_full`).
fn wait_for_room(to: &Description, target: &PipeEnd, nonblocking: bool) -> Result<usize> {
    let room = || {
        let used = target.pipe().length().next_multiple_of(PAGE);
        match target.pipe().capacity().saturating_sub(used) {
            // Without a reader it is the write that fails.
            _ if has_no_reader(to) => Ok(PAGE),
            0 => Err(EAGAIN),
            room => Ok(room),
        }
    };
    on_pipe(to, nonblocking, Events::OUT, room)
}

/// Out of a pipe: looks first, and takes out what the other side took.
fn splice_out(
    from: &Description,
    source: &PipeEnd,
    to: &Description,
    position: &mut Position,
    count: usize,
    nonblocking: bool,
) -> Result<usize> {
    let mut bytes = buffer(count.min(CHUNK))?;
    let n = on_pipe(from, nonblocking, Events::IN, || source.peek(&mut Sink::kernel(&mut bytes)))?;
    if n == 0 {
        return Ok(0);
    }
    // What is moved to another pipe ends where that is full.
    let n = match pipe_end(to) {
        Some(target) => n.min(wait_for_room(to, target, nonblocking)?),
        None => n,
    };
    let mut data = Source::kernel(&bytes[..n]);
    let written = match position {
        Position::Pointer(_, at) => write_at(to, *at, &mut data)?,
        Position::Own if nonblocking => to.write(&mut data)?,
        Position::Own => write_to(to, &mut data)?,
    };
    if let Position::Pointer(_, at) = position {
        *at += written as u64;
    }
    let mut taken = buffer(written)?;
    from.read(&mut Sink::kernel(&mut taken))?;
    Ok(written)
}

/// Into a pipe: no more than fits.
fn splice_in(
    from: &Description,
    position: &mut Position,
    to: &Description,
    target: &PipeEnd,
    count: usize,
    nonblocking: bool,
) -> Result<usize> {
    let room = wait_for_room(to, target, nonblocking)?;
    // Room comes first, as on Linux, and so does who reads.
    if has_no_reader(to) {
        return Err(broken_pipe());
    }
    if !can_be_spliced(from)? {
        return Err(EINVAL);
    }
    let mut bytes = buffer(count.min(CHUNK).min(room))?;
    let n = position.fill(from, &mut bytes)?;
    if n == 0 {
        return Ok(0);
    }
    let written = write_to(to, &mut Source::kernel(&bytes[..n]))?;
    position.advance(from, written);
    Ok(written)
}

/// tee(2): copies what is in one pipe to another, without taking it.
pub fn tee(call: &mut Call<'_>) -> Result<usize> {
    let flags = call.flags(3, SPLICE_KNOWN)?;
    if call.size(2) == 0 {
        return Ok(0);
    }
    tee_between(&*files::get(call.int(0))?, &*files::get(call.int(1))?, call.size(2), flags)
}

/// The pipe that tee(2) copies from, where both are pipes.
fn tee_ends<'a>(from: &'a Description, to: &Description) -> Result<&'a PipeEnd> {
    if !from.may_read() || !to.may_write() {
        return Err(EBADF);
    }
    let (source, target) = (pipe_end(from).ok_or(EINVAL)?, pipe_end(to).ok_or(EINVAL)?);
    if Arc::ptr_eq(source.pipe(), target.pipe()) {
        return Err(EINVAL);
    }
    Ok(source)
}

/// As tee(2), with descriptions.
pub fn tee_between(from: &Description, to: &Description, count: usize, flags: u32) -> Result<usize> {
    let count = count.min(CHUNK);
    if count == 0 {
        return Ok(0);
    }
    let source = tee_ends(from, to)?;
    let nonblocking = flags & SPLICE_F_NONBLOCK != 0;
    let mut bytes = buffer(count)?;
    let n = on_pipe(from, nonblocking, Events::IN, || source.peek(&mut Sink::kernel(&mut bytes)))?;
    if n == 0 {
        return Ok(0);
    }
    on_pipe(to, nonblocking, Events::OUT, || to.write(&mut Source::kernel(&bytes[..n])))
}

/// vmsplice(2): copies, which is what a pipe of the program's pages comes to without page stealing.
pub fn vmsplice(call: &mut Call<'_>) -> Result<usize> {
    let flags = call.flags(3, SPLICE_KNOWN)?;
    let description = files::get(call.int(0))?;
    if !description.may_read() && !description.may_write() {
        return Err(EBADF);
    }
    let segments = read_iovec(call.arg(1), count_of_pieces(call))?;
    if segments.iter().all(|s| s.length == 0) {
        return Ok(0);
    }
    let end = pipe_end(&description).ok_or(EBADF)?;
    let nonblocking = flags & SPLICE_F_NONBLOCK != 0;
    if end.writes() {
        let mut from = Source::vectored(&segments);
        on_pipe(&description, nonblocking, Events::OUT, || description.write(&mut from))
    } else {
        let mut to = Sink::vectored(&segments);
        on_pipe(&description, nonblocking, Events::IN, || description.read(&mut to))
    }
}

/// copy_file_range(2): between regular files.
pub fn copy_file_range(call: &mut Call<'_>) -> Result<usize> {
    let from = files::get(call.int(0))?;
    let to = files::get(call.int(2))?;
    for pointer in [call.ptr::<i64>(1), call.ptr(3)] {
        pointer.non_null().map(|pointer| pointer.read()).transpose()?;
    }
    if call.uint(5) != 0 {
        return Err(EINVAL);
    }
    let kinds = [from.file().stat()?.kind, to.file().stat()?.kind];
    if kinds.contains(&FileType::Directory) {
        return Err(EISDIR);
    }
    if kinds != [FileType::Regular; 2] {
        return Err(EINVAL);
    }
    if !from.may_read() || !to.may_write() || to.flags() & O_APPEND != 0 {
        return Err(EBADF);
    }
    if from.file().stat()?.device != to.file().stat()?.device {
        return Err(EXDEV);
    }
    let mut source = Position::read(call.ptr(1), &from)?;
    let mut target = Position::read(call.ptr(3), &to)?;
    let at = |position: &Position, description: &Description| match position {
        Position::Pointer(_, at) => *at,
        Position::Own => description.position(),
    };
    let (a, b) = (at(&source, &from), at(&target, &to));
    let left = usize::try_from(from.file().size()?.saturating_sub(a)).unwrap_or(usize::MAX);
    let count = call.size(4).min(LIMIT).min(left);
    let same = match (from.inode(), to.inode()) {
        (Some(x), Some(y)) => Arc::ptr_eq(x, y),
        _ => false,
    };
    let (a_end, b_end) = (a.saturating_add(count as u64), b.saturating_add(count as u64));
    if same && a < b_end && b < a_end {
        return Err(EINVAL);
    }
    let mut bytes = buffer(count.min(CHUNK))?;
    let mut done = 0;
    while done < count {
        let want = (count - done).min(bytes.len());
        let moved = source.fill(&from, &mut bytes[..want]).and_then(|n| {
            let mut data = Source::kernel(&bytes[..n]);
            write_at(&to, at(&target, &to), &mut data)
        });
        match moved {
            Ok(0) => break,
            Ok(n) => {
                source.advance(&from, n);
                target.advance(&to, n);
                done += n;
                if wait::take_a_break() {
                    break;
                }
            }
            Err(e) if done == 0 => return Err(e),
            Err(_) => break,
        }
    }
    source.store()?;
    target.store()?;
    has_moved(done)
}
