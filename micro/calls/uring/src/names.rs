// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Operations that are other system calls, with the arguments of those: they need no waiting, but for open(2) of a FIFO, for which the
//! thread waits that submits it.

use super::files;
use super::ops;
use super::request::{FIXED_FILE, Request};
use super::ring::Ring;
use abi::{Result, errno::*};
use alloc::sync::Arc;
use api_plat::TrapFrame;
use calls_files::{attributes, names, open, poll, stat};
use calls_memory::memory;
use descriptors::Description;
use task::call::{Call, Handler};

const O_CLOEXEC: u32 = 0o2000000;
const AT_REMOVEDIR: u32 = 0x200;
const FSYNC_DATASYNC: u32 = 1;

pub fn prepare(request: &Request) -> Result<()> {
    let sqe = &request.sqe;
    let check = |is_wrong: bool| if is_wrong { Err(EINVAL) } else { Ok(()) };
    let (index, flags) = (sqe.file_index as u32, sqe.op_flags);
    // A directory is named by a descriptor alone.
    let is_fixed = request.has(FIXED_FILE);
    match sqe.opcode {
        ops::OPENAT | ops::OPENAT2 => {
            check(sqe.buffer != 0)?;
            if is_fixed {
                return Err(EBADF);
            }
            check(sqe.opcode == ops::OPENAT && index != 0 && flags & O_CLOEXEC != 0)
        }
        ops::CLOSE => {
            check(sqe.offset != 0 || sqe.address != 0 || sqe.length != 0 || flags != 0 || sqe.buffer != 0)?;
            if is_fixed {
                return Err(EBADF);
            }
            check(index != 0 && sqe.fd != 0)
        }
        ops::STATX => {
            check(sqe.buffer != 0 || index != 0)?;
            if is_fixed { Err(EBADF) } else { Ok(()) }
        }
        ops::EPOLL_CTL => check(sqe.buffer != 0 || index != 0),
        ops::FADVISE => check(sqe.buffer != 0 || sqe.address != 0 || index != 0),
        ops::MADVISE => check(sqe.buffer != 0 || sqe.offset != 0 || index != 0),
        ops::SETXATTR | ops::GETXATTR if is_fixed => Err(EBADF),
        ops::GETXATTR | ops::FGETXATTR => check(flags != 0),
        ops::SETXATTR | ops::FSETXATTR => Ok(()),
        ops::UNLINKAT => {
            check(sqe.offset != 0 || sqe.length != 0 || sqe.buffer != 0 || index != 0)?;
            if is_fixed {
                return Err(EBADF);
            }
            check(flags & !AT_REMOVEDIR != 0)
        }
        ops::MKDIRAT => {
            check(sqe.offset != 0 || flags != 0 || sqe.buffer != 0 || index != 0)?;
            if is_fixed { Err(EBADF) } else { Ok(()) }
        }
        ops::SYMLINKAT => {
            check(sqe.length != 0 || flags != 0 || sqe.buffer != 0 || index != 0)?;
            if is_fixed { Err(EBADF) } else { Ok(()) }
        }
        // RENAMEAT and LINKAT
        _ => {
            check(sqe.buffer != 0 || index != 0)?;
            if is_fixed { Err(EBADF) } else { Ok(()) }
        }
    }
}

/// Makes a call as if the program had made it.
fn call(handler: Handler, arguments: [u64; 6]) -> Result<usize> {
    let mut frame = TrapFrame::at_start(0, 0);
    [frame.rdi, frame.rsi, frame.rdx, frame.r10, frame.r8, frame.r9] = arguments;
    handler(&mut Call { frame: &mut frame, keep_registers: false })
}

pub fn issue(ring: &Arc<Ring>, request: &Request) -> Result<usize> {
    let sqe = &request.sqe;
    let fd = sqe.fd as u64;
    let (length, flags) = (u64::from(sqe.length), u64::from(sqe.op_flags));
    let with_file = |operation: &dyn Fn(&Description) -> Result<usize>| {
        let file = request.file().ok_or(EBADF)?;
        // As files that are open for their path alone, which only descriptors are.
        operation(&file)
    };
    match sqe.opcode {
        ops::FSYNC => with_file(&|file| file.file().sync(sqe.op_flags & FSYNC_DATASYNC != 0).map(|()| 0)),
        ops::SYNC_FILE_RANGE => with_file(&|file| {
            attributes::sync_range(file, sqe.offset as i64, i64::from(sqe.length), sqe.op_flags)
        }),
        ops::FALLOCATE => with_file(&|file| {
            attributes::check_range(sqe.offset as i64, sqe.address as i64)?;
            // Linux' thread that does this has the signal (SIGXFSZ) to itself.
            let end = sqe.offset.saturating_add(sqe.address);
            if end > task::current().process.limits.file_size() && end > file.file().size()? {
                return Err(EFBIG);
            }
            attributes::allocate(file, sqe.length, sqe.offset as i64, sqe.address as i64)
        }),
        ops::FADVISE => with_file(&|file| attributes::advise(file, i64::from(sqe.length), sqe.op_flags)),
        ops::MADVISE => call(memory::madvise, [sqe.address, length, flags, 0, 0, 0]),
        ops::OPENAT => install(ring, request, call(open::openat, [fd, sqe.address, flags, length, 0, 0])),
        ops::OPENAT2 => {
            install(ring, request, call(open::openat2, [fd, sqe.address, sqe.offset, length, 0, 0]))
        }
        ops::CLOSE if sqe.file_index != 0 => files::close(ring, (sqe.file_index as u32).wrapping_sub(1)),
        ops::CLOSE => close(sqe.fd),
        ops::STATX => call(stat::statx, [fd, sqe.address, flags, length, sqe.offset, 0]),
        ops::EPOLL_CTL => call(poll::epoll_ctl, [fd, length, sqe.offset, sqe.address, 0, 0]),
        ops::RENAMEAT => call(names::renameat2, [fd, sqe.address, length, sqe.offset, flags, 0]),
        ops::UNLINKAT => call(names::unlinkat, [fd, sqe.address, flags, 0, 0, 0]),
        ops::MKDIRAT => call(names::mkdirat, [fd, sqe.address, length, 0, 0, 0]),
        ops::SYMLINKAT => call(names::symlinkat, [sqe.address, fd, sqe.offset, 0, 0, 0]),
        ops::LINKAT => call(names::linkat, [fd, sqe.address, length, sqe.offset, flags, 0]),
        ops::SETXATTR => {
            call(attributes::setxattr, [sqe.address3, sqe.address, sqe.offset, length, flags, 0])
        }
        ops::GETXATTR => call(attributes::getxattr, [sqe.address3, sqe.address, sqe.offset, length, 0, 0]),
        ops::FSETXATTR | ops::FGETXATTR => with_file(&|file| {
            let mut frame = TrapFrame::at_start(0, 0);
            (frame.rsi, frame.rdx) = (sqe.address, sqe.offset);
            (frame.r10, frame.r8) = (length, flags);
            let call = Call { frame: &mut frame, keep_registers: false };
            attributes::xattr_of(&call, file, sqe.opcode == ops::FSETXATTR)
        }),
        _ => Err(EINVAL),
    }
}

/// CLOSE of a descriptor. A ring is not closed by a request (as on Linux), which may be its own.
fn close(fd: i32) -> Result<usize> {
    let descriptors = &task::files::current().descriptors;
    if super::is_ring(&*descriptors.get_any(fd)?) {
        return Err(EBADF);
    }
    task::files::end(descriptors.remove(fd)?).map(|()| 0)
}

/// Moves what was opened into the file table where the request says so.
fn install(ring: &Arc<Ring>, request: &Request, opened: Result<usize>) -> Result<usize> {
    let fd = opened?;
    let wanted = request.sqe.file_index as u32;
    if wanted == 0 {
        return Ok(fd);
    }
    let description = task::files::current().descriptors.remove(fd as i32)?;
    files::install(ring, description, wanted)
}
