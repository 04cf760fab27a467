// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading and writing: read, write, their vectored and positioned forms, lseek.

use abi::{Errno, Events, Result, errno::*};
use alloc::sync::Arc;
use api_fs::{File, FileType};
use api_user::{Sink, Source, read_iovec};
use descriptors::{Description, Moving};
use task::call::Call;
use task::limits::RLIM_INFINITY;
use task::{files, signals, wait};
use vfs::notify;

pub const SIGPIPE: i32 = 13;
const SIGXFSZ: i32 = 25;
const O_APPEND: u32 = 0o2000;
const SEEK_SET: u32 = 0;
const SEEK_CUR: u32 = 1;
const SEEK_END: u32 = 2;
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;
const RWF_HIPRI: u32 = 1;
pub const RWF_NOWAIT: u32 = 8;
const RWF_APPEND: u32 = 16;
/// RWF_HIPRI, RWF_DSYNC, RWF_SYNC, RWF_NOWAIT, RWF_APPEND.
pub const RWF_KNOWN: u32 = 31;

/// The position of a description that has one, waited for while another thread moves it.
#[inline]
fn hold_position(description: &Description) -> Result<Option<Moving<'_>>> {
    if !description.is_seekable() {
        return Ok(None);
    }
    match description.hold_position() {
        None => wait_for_position(description).map(Some),
        held => Ok(held),
    }
}

#[cold]
fn wait_for_position(description: &Description) -> Result<Moving<'_>> {
    let held = || description.hold_position().ok_or(EAGAIN);
    wait::on_queue(description.movers(), Events::IN, wait::FOREVER, held)
}

/// Reads from a description into `to`, waiting as it says.
pub fn read_from(description: &Description, to: &mut Sink<'_>) -> Result<usize> {
    let _moving = hold_position(description)?;
    let blocking = !description.is_nonblocking();
    let file = &**description.file();
    match wait::for_file(file, Events::READABLE, blocking, wait::FOREVER, || description.read(to)) {
        Err(EAGAIN) => file.read_rest(to, blocking),
        result => result,
    }
}

/// What RLIMIT_FSIZE says to a regular file that is to become `size` bytes long: `EFBIG`, with SIGXFSZ.
pub fn check_file_size(size: u64) -> Result<()> {
    if size <= task::current().process.limits.file_size() {
        return Ok(());
    }
    signals::send_to_current(SIGXFSZ);
    Err(EFBIG)
}

/// Cuts what is to be written to a regular file at `offset` (`None`: where its position or O_APPEND says) down to
/// what RLIMIT_FSIZE leaves.
#[inline]
fn limit_write(description: &Description, offset: Option<u64>, from: &mut Source<'_>) -> Result<()> {
    match task::current().process.limits.file_size() {
        RLIM_INFINITY => Ok(()),
        limit => limit_write_to(limit, description, offset, from),
    }
}

#[cold]
fn limit_write_to(
    limit: u64,
    description: &Description,
    offset: Option<u64>,
    from: &mut Source<'_>,
) -> Result<()> {
    let is_limited = description.is_seekable() && from.remaining() > 0;
    if !is_limited || description.file().stat()?.kind != FileType::Regular {
        return Ok(());
    }
    let start = if description.flags() & O_APPEND != 0 {
        description.file().size()?
    } else {
        offset.unwrap_or_else(|| description.position())
    };
    check_file_size(start.saturating_add(1))?;
    from.limit(usize::try_from(limit - start).unwrap_or(usize::MAX));
    Ok(())
}

/// pwrite(2) from inside the kernel.
pub fn write_at(description: &Description, offset: u64, from: &mut Source<'_>) -> Result<usize> {
    limit_write(description, Some(offset), from)?;
    description.write_at(offset, from)
}

/// Writes to what has no positions as much as goes without waiting (io_uring).
#[cfg(feature = "io_uring")]
pub fn write_at_once(description: &Description, from: &mut Source<'_>) -> Result<usize> {
    description.write(from).inspect_err(|e| {
        if *e == EPIPE && breaks_pipe(&**description.file(), 0) {
            signals::send_to_current(SIGPIPE);
        }
    })
}

/// Writes `from` to a description, waiting as it says. A blocking write to a pipe or stream ends when all is written;
/// `EPIPE` comes with SIGPIPE.
pub fn write_to(description: &Description, from: &mut Source<'_>) -> Result<usize> {
    let _moving = hold_position(description)?;
    limit_write(description, None, from)?;
    let blocking = !description.is_nonblocking();
    let mut done = 0;
    loop {
        let file = &**description.file();
        match wait::for_file(file, Events::WRITABLE, blocking, wait::FOREVER, || description.write(from)) {
            Ok(n) => {
                done += n;
                if n == 0 || !blocking || from.remaining() == 0 || !is_stream(description) {
                    return Ok(done);
                }
            }
            Err(e) => {
                if e == EPIPE && breaks_pipe(file, done) {
                    signals::send_to_current(SIGPIPE);
                }
                return if done > 0 { Ok(done) } else { Err(e) };
            }
        }
    }
}

/// Whether a write that ends with EPIPE sends SIGPIPE: of a pipe even where part was written before, of a stream socket
/// only where nothing was, and of no other socket.
fn breaks_pipe(file: &dyn File, done: usize) -> bool {
    match api_socket::of_file(file) {
        Ok(socket) => done == 0 && socket.socket_type() == api_socket::Type::Stream,
        Err(_) => done == 0 || file.as_any().is::<pipe::PipeEnd>(),
    }
}

fn is_stream(description: &Description) -> bool {
    // The attributes are asked for last: they cost more than a small write.
    !description.is_seekable()
        && matches!(description.file().stat().map(|stat| stat.kind), Ok(FileType::Fifo | FileType::Socket))
}

/// A call that reads has come to this (/proc/PID/io).
#[inline]
pub fn has_read(result: Result<usize>) -> Result<usize> {
    task::current().transferred.reads(*result.as_ref().unwrap_or(&0));
    result
}

/// The same of one that reads into pieces, which counts as an access where nothing was there to read, too (Linux' do_iter_read).
fn has_read_pieces(description: &Description, result: Result<usize>) -> Result<usize> {
    if result == Ok(0) {
        description.happened(notify::ACCESS);
    }
    has_read(result)
}

/// The same of one that writes.
#[inline]
pub fn has_written(result: Result<usize>) -> Result<usize> {
    task::current().transferred.writes(*result.as_ref().unwrap_or(&0));
    result
}

/// `error` about memory, or that of a file which cannot be read at all, which comes before it. Asked only where something is wrong: a
/// file answers itself otherwise.
fn unless_unreadable(description: &Description, error: Errno) -> Errno {
    if description.file().can_read() { error } else { EINVAL }
}

/// The same of one that cannot be written.
fn unless_unwritable(description: &Description, error: Errno) -> Errno {
    if description.file().can_write() { error } else { EINVAL }
}

pub fn read(call: &mut Call<'_>) -> Result<usize> {
    let description = files::get(call.int(0))?;
    if !description.may_read() {
        return Err(EBADF);
    }
    let to = Sink::user(call.arg(1), call.size(2));
    has_read(read_from(&description, &mut to.map_err(|e| unless_unreadable(&description, e))?))
}

pub fn write(call: &mut Call<'_>) -> Result<usize> {
    let description = files::get(call.int(0))?;
    if !description.may_write() {
        return Err(EBADF);
    }
    let from = Source::user(call.arg(1), call.size(2));
    has_written(write_to(&description, &mut from.map_err(|e| unless_unwritable(&description, e))?))
}

/// How many pieces: Linux keeps 32 bits of it.
pub fn count_of_pieces(call: &Call<'_>) -> usize {
    call.uint(2) as usize
}

pub fn readv(call: &mut Call<'_>) -> Result<usize> {
    let description = files::get(call.int(0))?;
    if !description.may_read() {
        return Err(EBADF);
    }
    let segments = read_iovec(call.arg(1), count_of_pieces(call));
    let segments = segments.map_err(|e| unless_unreadable(&description, e))?;
    let mut to = Sink::vectored(&segments);
    // Of nothing to read no file is asked.
    let result = match to.remaining() {
        0 if !description.file().can_read() => Err(EINVAL),
        0 => Ok(0),
        _ => read_from(&description, &mut to),
    };
    has_read_pieces(&description, result)
}

pub fn writev(call: &mut Call<'_>) -> Result<usize> {
    let description = files::get(call.int(0))?;
    if !description.may_write() {
        return Err(EBADF);
    }
    let segments = read_iovec(call.arg(1), count_of_pieces(call));
    let segments = segments.map_err(|e| unless_unwritable(&description, e))?;
    let mut from = Source::vectored(&segments);
    if from.remaining() == 0 {
        return if description.file().can_write() { Ok(0) } else { Err(EINVAL) };
    }
    has_written(write_to(&description, &mut from))
}

fn position(offset: i64) -> Result<u64> {
    u64::try_from(offset).map_err(|_| EINVAL)
}

pub fn pread64(call: &mut Call<'_>) -> Result<usize> {
    let offset = position(call.long(3))?;
    let description = files::get(call.int(0))?;
    check_positioned(description.is_seekable(), description.may_read())?;
    has_read(description.read_at(offset, &mut Sink::user(call.arg(1), call.size(2))?))
}

pub fn pwrite64(call: &mut Call<'_>) -> Result<usize> {
    let offset = position(call.long(3))?;
    let description = files::get(call.int(0))?;
    check_positioned(takes_positions(&description), description.may_write())?;
    has_written(write_at(&description, offset, &mut Source::user(call.arg(1), call.size(2))?))
}

fn takes_positions(description: &Description) -> bool {
    description.is_seekable() && description.file().can_write_at()
}

/// What is wrong with the descriptor comes before what is wrong with the pieces.
fn check_positioned(has_positions: bool, is_open_for: bool) -> Result<()> {
    match (has_positions, is_open_for) {
        (false, _) => Err(ESPIPE),
        (true, false) => Err(EBADF),
        (true, true) => Ok(()),
    }
}

pub fn preadv(call: &mut Call<'_>) -> Result<usize> {
    let offset = position(call.long(3))?;
    let description = files::get(call.int(0))?;
    check_positioned(description.is_seekable(), description.may_read())?;
    let segments = read_iovec(call.arg(1), count_of_pieces(call))?;
    let mut to = Sink::vectored(&segments);
    let result = if to.remaining() == 0 { Ok(0) } else { description.read_at(offset, &mut to) };
    has_read_pieces(&description, result)
}

pub fn pwritev(call: &mut Call<'_>) -> Result<usize> {
    let offset = position(call.long(3))?;
    let description = files::get(call.int(0))?;
    check_positioned(takes_positions(&description), description.may_write())?;
    let segments = read_iovec(call.arg(1), count_of_pieces(call))?;
    let mut from = Source::vectored(&segments);
    if from.remaining() == 0 {
        return Ok(0);
    }
    has_written(write_at(&description, offset, &mut from))
}

fn rwf(call: &Call<'_>) -> Result<u32> {
    let flags = call.uint(5);
    if flags & !RWF_KNOWN != 0 { Err(EOPNOTSUPP) } else { Ok(flags) }
}

/// The offset of preadv2(2) and pwritev2(2): -1 is the current position.
fn position_or_current(call: &Call<'_>) -> Result<(Option<u64>, Arc<Description>)> {
    let offset = match call.long(3) {
        -1 => None,
        offset => Some(position(offset)?),
    };
    let description = files::get(call.int(0))?;
    if offset.is_some() && !description.is_seekable() { Err(ESPIPE) } else { Ok((offset, description)) }
}

/// preadv2(2). The flags are looked at last, and not for nothing to read (Linux' order).
pub fn preadv2(call: &mut Call<'_>) -> Result<usize> {
    let (offset, description) = position_or_current(call)?;
    if !description.may_read() {
        return Err(EBADF);
    }
    let segments = read_iovec(call.arg(1), count_of_pieces(call))?;
    let mut to = Sink::vectored(&segments);
    if to.remaining() == 0 {
        return has_read_pieces(&description, Ok(0));
    }
    let flags = rwf(call)?;
    if flags & !RWF_HIPRI != 0 && description.file().stat()?.kind == FileType::Directory {
        return Err(EOPNOTSUPP);
    }
    let result = match offset {
        Some(offset) => description.read_at(offset, &mut to),
        None if flags & RWF_NOWAIT != 0 => description.read(&mut to),
        None => read_from(&description, &mut to),
    };
    has_read_pieces(&description, result)
}

/// pwritev2(2), likewise. A file does not promise to take bytes without waiting for memory.
pub fn pwritev2(call: &mut Call<'_>) -> Result<usize> {
    let (offset, description) = position_or_current(call)?;
    if !description.may_write() {
        return Err(EBADF);
    }
    let segments = read_iovec(call.arg(1), count_of_pieces(call))?;
    let mut from = Source::vectored(&segments);
    if from.remaining() == 0 {
        return Ok(0);
    }
    let flags = rwf(call)?;
    if flags & RWF_NOWAIT != 0 && description.is_seekable() {
        return Err(EOPNOTSUPP);
    }
    write_with(&description, offset, flags, &mut from)
}

/// Writes at an offset, or at the current position, as the flags of pwritev2(2) say.
pub fn write_with(
    description: &Description,
    offset: Option<u64>,
    flags: u32,
    from: &mut Source<'_>,
) -> Result<usize> {
    let done = if flags & RWF_APPEND != 0 && description.is_seekable() {
        let size = description.file().size()?;
        limit_write(description, Some(size), from)?;
        let (n, end) = description.file().append(from)?;
        if offset.is_none() {
            description.set_position(end);
        }
        n
    } else if let Some(offset) = offset {
        write_at(description, offset, from)?
    } else if flags & RWF_NOWAIT != 0 {
        description.write(from)?
    } else {
        write_to(description, from)?
    };
    // RWF_DSYNC and RWF_SYNC.
    if flags & 6 != 0 {
        description.file().sync(flags & 4 == 0)?;
    }
    has_written(Ok(done))
}

pub fn lseek(call: &mut Call<'_>) -> Result<usize> {
    let description = files::get(call.int(0))?;
    let (offset, whence) = (call.long(1), call.uint(2));
    if !description.is_seekable() {
        if let Some(answer) = description.file().seek_itself(offset, whence) {
            return answer.map(|to| to as usize);
        }
        // Linux' epoll, eventfd and their like have a position that never moves; pipes, sockets and terminals none.
        let streams = [FileType::Fifo, FileType::Socket, FileType::CharDevice];
        return match description.file().stat()?.kind {
            _ if whence > SEEK_HOLE => Err(EINVAL),
            kind if streams.contains(&kind) => Err(ESPIPE),
            _ => Ok(0),
        };
    }
    if !description.file().has_places() {
        return if whence > SEEK_HOLE { Err(EINVAL) } else { Ok(0) };
    }
    let base = match whence {
        SEEK_SET => 0,
        SEEK_CUR => description.position(),
        SEEK_END => description.file().seek_end()?,
        SEEK_DATA | SEEK_HOLE => {
            let seek = |from| description.file().seek_data(from, whence == SEEK_HOLE);
            let found = match u64::try_from(offset) {
                Ok(from) => seek(from)?,
                // Where there is anything to look for.
                Err(_) => return seek(0).and(Err(ENXIO)),
            };
            description.set_position(found);
            return Ok(found as usize);
        }
        _ => return Err(EINVAL),
    };
    let to = base.checked_add_signed(offset).filter(|to| *to <= i64::MAX as u64).ok_or(EINVAL)?;
    description.set_position(to);
    Ok(to as usize)
}
