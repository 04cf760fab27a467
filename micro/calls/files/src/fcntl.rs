// SPDX-License-Identifier: Apache-2.0 OR MIT
//! fcntl, flock, ioctl: what can be asked of and told to a descriptor.

use crate::{async_io, inode_flags, leases, shared_blocks, special};
use task::call::Call;
use task::identity::capabilities::CAP_SYS_ADMIN;
use task::pids::Pid;
use task::{files, processes, wait};

use abi::{Events, Result, errno::*};
use alloc::sync::Arc;
use api_fs::{File, FileType};
use api_user::UserPtr;
use core::sync::atomic::Ordering;
use descriptors::{
    Description,
    locks::{self, Lock, Owner, Waiter},
};
use pipe::PipeEnd;
use ramfs::RamFile;

const F_DUPFD: i32 = 0;
const F_GETFD: i32 = 1;
const F_SETFD: i32 = 2;
const F_GETFL: i32 = 3;
const F_SETFL: i32 = 4;
const F_GETLK: i32 = 5;
const F_SETLK: i32 = 6;
const F_SETLKW: i32 = 7;
const F_SETOWN: i32 = 8;
const F_GETOWN: i32 = 9;
const F_SETSIG: i32 = 10;
const F_GETSIG: i32 = 11;
const F_SETOWN_EX: i32 = 15;
const F_GETOWN_EX: i32 = 16;
const F_OFD_GETLK: i32 = 36;
const F_OFD_SETLK: i32 = 37;
const F_OFD_SETLKW: i32 = 38;
const F_SETLEASE: i32 = 1024;
const F_GETLEASE: i32 = 1025;
#[cfg(feature = "inotify")]
const F_NOTIFY: i32 = 1026;
const F_DUPFD_CLOEXEC: i32 = 1030;
const F_SETPIPE_SZ: i32 = 1031;
const F_GETPIPE_SZ: i32 = 1032;
const F_ADD_SEALS: i32 = 1033;
const F_GET_SEALS: i32 = 1034;
const F_GET_RW_HINT: i32 = 1035;
const F_SET_RW_HINT: i32 = 1036;
/// RWH_WRITE_LIFE_EXTREME, the last of the lifetimes.
const LONGEST_LIFE: u32 = 5;
const FD_CLOEXEC: u64 = 1;
/// F_SEAL_SEAL, SHRINK, GROW, WRITE, FUTURE_WRITE.
const SEALS: u64 = 0x1f;
const F_SEAL_WRITE: u64 = 8;
const F_RDLCK: u16 = 0;
const F_WRLCK: u16 = 1;
const F_UNLCK: u16 = 2;
const LOCK_SH: i32 = 1;
const LOCK_EX: i32 = 2;
const LOCK_NB: i32 = 4;
const LOCK_UN: i32 = 8;
const LOCK_MAND: i32 = 32;
const O_NONBLOCK: u32 = 0o4000;
const O_APPEND: u32 = 0o2000;
const O_DIRECT: u32 = 0o40000;
const O_CLOEXEC: u32 = 0o2000000;
const O_LARGEFILE: u32 = 0o100000;
const TIOCGPTPEER: u32 = 0x5441;
const FIONREAD: u32 = 0x541b;
const FIONBIO: u32 = 0x5421;
const FIGETBSZ: u32 = 2;
const FIONCLEX: u32 = 0x5450;
const FIOCLEX: u32 = 0x5451;
const FIOQSIZE: u32 = 0x5460;
const FS_IOC_FIEMAP: u32 = 0xc020_660b;
const FIFREEZE: u32 = 0xc004_5877;
const FITHAW: u32 = 0xc004_5878;
/// Signals are numbered 1 to 64.
const SIGNAL_LIMIT: u64 = 64;

pub fn fcntl(call: &mut Call<'_>) -> Result<usize> {
    let (fd, command, argument) = (call.int(0), call.int(1), call.arg(2));
    let descriptors = &files::current().descriptors;
    let description = descriptors.get_any(fd)?;
    match command {
        F_DUPFD | F_DUPFD_CLOEXEC => {
            let least = u32::try_from(argument as i32).map_err(|_| EINVAL)?;
            let on_exec = command == F_DUPFD_CLOEXEC;
            return match descriptors.insert_from(description, on_exec, least) {
                Ok(fd) => Ok(fd as usize),
                Err(e) => Err(e),
            };
        }
        F_GETFD => return Ok(descriptors.close_on_exec(fd)? as usize),
        F_SETFD => {
            return descriptors.set_close_on_exec(fd, argument & FD_CLOEXEC != 0).map(|()| 0);
        }
        F_GETFL => return Ok(description.flags() as usize),
        _ if description.is_path_only() => return Err(EBADF),
        _ => {}
    }
    match command {
        F_SETFL => {
            if argument as u32 & O_DIRECT != 0 && !may_be_direct(&description)? {
                return Err(EINVAL);
            }
            let toggles_append = (argument as u32 ^ description.flags()) & O_APPEND != 0;
            if toggles_append && description.inode().is_some_and(vfs::ops::is_append_only) {
                return Err(EPERM);
            }
            description.set_flags(async_io::set_async(fd, &description, argument as u32)?);
            Ok(0)
        }
        F_GETLK | F_OFD_GETLK => get_lock(&description, command, UserPtr::new(argument)),
        F_SETLK | F_SETLKW | F_OFD_SETLK | F_OFD_SETLKW => {
            set_lock(&description, command, UserPtr::new(argument))
        }
        F_SETOWN => async_io::set_owner(fd, &description, argument as i32),
        F_GETOWN => Ok(async_io::owner(&description) as isize as usize),
        F_SETSIG if argument > SIGNAL_LIMIT => Err(EINVAL),
        F_SETSIG => {
            description.set_signal(argument as i32);
            Ok(0)
        }
        F_GETSIG => Ok(description.signal() as usize),
        F_SETOWN_EX => async_io::set_owner_ex(fd, &description, UserPtr::new(argument)),
        F_GETOWN_EX => async_io::owner_ex(&description, UserPtr::new(argument)),
        #[cfg(feature = "inotify")]
        F_NOTIFY => crate::dnotify::notify(fd, &description, argument as u32),
        F_GETLEASE => Ok(leases::get(&description) as usize),
        F_SETLEASE => leases::set(fd, &description, leases::Kind::of(argument as u32 as u64)?),
        F_SETPIPE_SZ => {
            let size = u32::try_from(argument).map_err(|_| EINVAL)?;
            let end = description.file().as_any().downcast_ref::<PipeEnd>().ok_or(EBADF)?;
            end.pipe().set_capacity(size as usize, &special::pipe_user())
        }
        F_GETPIPE_SZ => {
            let end = description.file().as_any().downcast_ref::<PipeEnd>().ok_or(EBADF)?;
            Ok(end.pipe().capacity())
        }
        F_GET_SEALS => {
            let file = description.file().as_any().downcast_ref::<RamFile>().ok_or(EINVAL)?;
            file.node().seals().map(|seals| seals as usize).map_err(|_| EINVAL)
        }
        F_ADD_SEALS => add_seals(&description, argument),
        F_GET_RW_HINT => {
            let hint = description.write_hint().load(Ordering::Relaxed);
            UserPtr::<u64>::new(argument).write(hint.into())?;
            Ok(0)
        }
        F_SET_RW_HINT => {
            // Linux looks at the lower half of the word (enum rw_hint).
            let hint = UserPtr::<u64>::new(argument).read()? as u32;
            if hint > LONGEST_LIFE {
                return Err(EINVAL);
            }
            description.write_hint().store(hint as u8, Ordering::Relaxed);
            Ok(0)
        }
        _ => Err(EINVAL),
    }
}

/// O_DIRECT means something: to files with blocks, and as packet mode to pipes.
fn may_be_direct(description: &Description) -> Result<bool> {
    let file = description.file();
    let kind = file.stat()?.kind;
    Ok(kind == FileType::Fifo || has_direct(&**file, kind))
}

/// Whether open(2) takes O_DIRECT for a file of this type.
pub fn has_direct(file: &dyn File, kind: FileType) -> bool {
    matches!(kind, FileType::Regular | FileType::BlockDevice) && file.may_be_direct()
}

fn add_seals(description: &Description, seals: u64) -> Result<usize> {
    if !description.may_write() {
        return Err(EPERM);
    }
    let file = description.file().as_any().downcast_ref::<RamFile>().ok_or(EINVAL)?;
    if seals & !SEALS != 0 {
        return Err(EINVAL);
    }
    if seals & F_SEAL_WRITE != 0 && file.node().seals()? & F_SEAL_WRITE as u32 == 0 {
        let stat = description.file().stat()?;
        if processes::spaces().any(|space| space.may_write_shared(stat.device, stat.inode)) {
            return Err(EBUSY);
        }
    }
    file.node().add_seals(seals as u32).map(|()| 0)
}

/// struct flock of x86-64 as four words: type and whence, start, length, process id.
type RawLock = [u64; 4];

/// Owner and range of a request; the type stands apart, for F_UNLCK is none of a lock.
fn decode(description: &Arc<Description>, command: i32, raw: &RawLock) -> Result<(u16, Lock)> {
    let (kind, whence) = (raw[0] as u16, (raw[0] >> 16) as u16);
    let base = match whence {
        0 => 0,
        1 => description.position() as i64,
        2 => description.file().size()? as i64,
        _ => return Err(EINVAL),
    };
    let start = base.checked_add(raw[1] as i64).ok_or(EOVERFLOW)?;
    let length = raw[2] as i64;
    let (start, end) = match length {
        0 => (start, i64::MAX),
        1.. => (start, start.checked_add(length - 1).ok_or(EOVERFLOW)?),
        // A negative length means the bytes before the start.
        _ => (start.checked_add(length).ok_or(EINVAL)?, start - 1),
    };
    if start < 0 {
        return Err(EINVAL);
    }
    let end = if end == i64::MAX { u64::MAX } else { end as u64 + 1 };
    let is_ofd = matches!(command, F_OFD_GETLK | F_OFD_SETLK | F_OFD_SETLKW);
    if is_ofd && raw[3] as u32 != 0 {
        return Err(EINVAL);
    }
    let owner = if is_ofd {
        Owner::Description(description.id())
    } else {
        Owner::Process(task::current().process.pid.of_machine())
    };
    match kind {
        F_RDLCK | F_WRLCK | F_UNLCK => {}
        _ => return Err(EINVAL),
    }
    Ok((kind, Lock { start: start as u64, end, exclusive: kind == F_WRLCK, owner }))
}

fn get_lock(description: &Arc<Description>, command: i32, pointer: UserPtr<RawLock>) -> Result<usize> {
    let mut raw = pointer.read()?;
    let (kind, wanted) = decode(description, command, &raw)?;
    if kind == F_UNLCK {
        return Err(EINVAL);
    }
    let obstacle = description.inode().and_then(|inode| locks::of(inode).obstacle(&wanted));
    match obstacle {
        None => raw[0] = raw[0] & !0xffff | F_UNLCK as u64,
        Some(lock) => {
            raw[0] = if lock.exclusive { F_WRLCK } else { F_RDLCK } as u64;
            raw[1] = lock.start;
            raw[2] = if lock.end == u64::MAX { 0 } else { lock.end - lock.start };
            let pid = match lock.owner {
                Owner::Process(pid) => Pid::from_machine(pid).here(),
                Owner::Description(_) => -1,
            };
            raw[3] = pid as u32 as u64;
        }
    }
    pointer.write(raw)?;
    Ok(0)
}

fn set_lock(description: &Arc<Description>, command: i32, pointer: UserPtr<RawLock>) -> Result<usize> {
    let (kind, wanted) = decode(description, command, &pointer.read()?)?;
    match kind {
        F_RDLCK if !description.may_read() => return Err(EBADF),
        F_WRLCK if !description.may_write() => return Err(EBADF),
        _ => {}
    }
    // A pipe or socket is locked against other processes only.
    let Some(inode) = description.inode() else { return Ok(0) };
    let locks = locks::of(inode);
    if kind == F_UNLCK {
        return locks.clear(wanted).map(|()| 0);
    }
    match command {
        F_SETLKW => {
            let thread = task::current();
            let waiter = Waiter::new(thread.tid.of_machine(), thread.process.pid.of_machine());
            let take = || locks.set_or_wait(wanted, description, &waiter);
            wait::on_queue(&locks.queue, Events::ALL, wait::FOREVER, take)?;
        }
        // Linux does not look for deadlocks of open file descriptions.
        F_OFD_SETLKW => {
            let take = || locks.set(wanted, description);
            wait::on_queue(&locks.queue, Events::ALL, wait::FOREVER, take)?;
        }
        _ => locks.set(wanted, description)?,
    }
    Ok(0)
}

pub fn flock(call: &mut Call<'_>) -> Result<usize> {
    let operation = call.int(1);
    if operation & LOCK_MAND != 0 {
        // Mandatory locks are gone; Linux accepts the request and does nothing.
        return Ok(0);
    }
    let kind = operation & !LOCK_NB;
    if ![LOCK_SH, LOCK_EX, LOCK_UN].contains(&kind) {
        return Err(EINVAL);
    }
    let description = files::get(call.int(0))?;
    if kind != LOCK_UN && !description.may_read() && !description.may_write() {
        return Err(EBADF);
    }
    let exclusive = match kind {
        LOCK_SH => false,
        LOCK_EX => true,
        _ => {
            if let Some(inode) = description.inode() {
                locks::of(inode).unflock(description.id());
            }
            return Ok(0);
        }
    };
    let Some(inode) = description.inode() else { return Ok(0) };
    let (locks, id) = (locks::of(inode), description.id());
    match locks.flock(id, exclusive, &description) {
        Err(EAGAIN) if operation & LOCK_NB == 0 => {
            wait::on_queue(&locks.queue, Events::ALL, wait::FOREVER, || {
                locks.flock(id, exclusive, &description)
            })?;
        }
        done => done?,
    }
    Ok(0)
}

pub fn ioctl(call: &mut Call<'_>) -> Result<usize> {
    let (fd, command, argument) = (call.int(0), call.uint(1), call.arg(2));
    let description = files::get(fd)?;
    if let Some(answer) = async_io::ioctl(fd, &description, command, argument) {
        return answer;
    }
    let set_flag = |flag: u32| {
        let on = UserPtr::<i32>::new(argument).read()? != 0;
        let flags = description.flags();
        description.set_flags(if on { flags | flag } else { flags & !flag });
        Ok(0)
    };
    let is_regular = || {
        let stat = description.file().stat();
        description.is_seekable() && stat.is_ok_and(|stat| stat.kind == FileType::Regular)
    };
    match command {
        FIOCLEX | FIONCLEX => {
            let on = command == FIOCLEX;
            files::current().descriptors.set_close_on_exec(fd, on).map(|()| 0)
        }
        FIONBIO => set_flag(O_NONBLOCK),
        FIGETBSZ => {
            let size = description.file().stat()?.block_size;
            UserPtr::<u32>::new(argument).write(size as u32).map(|()| 0)
        }
        FIONREAD if is_regular() => {
            let left = description.file().size()?.saturating_sub(description.position());
            UserPtr::<i32>::new(argument).write(i32::try_from(left).unwrap_or(i32::MAX))?;
            Ok(0)
        }
        FIOQSIZE => {
            let stat = description.file().stat()?;
            if !matches!(stat.kind, FileType::Regular | FileType::Directory | FileType::Symlink) {
                return Err(ENOTTY);
            }
            // What it takes up, in units of stat(2).
            UserPtr::<u64>::new(argument).write(stat.blocks * 512)?;
            Ok(0)
        }
        // No file system here tells where its blocks are.
        FS_IOC_FIEMAP => Err(EOPNOTSUPP),
        // None can be frozen, nor is.
        FIFREEZE | FITHAW if !task::current().credentials().lock().can(CAP_SYS_ADMIN) => Err(EPERM),
        FIFREEZE => Err(EOPNOTSUPP),
        FITHAW => Err(EINVAL),
        TIOCGPTPEER => open_peer(&description, argument as u32),
        inode_flags::GET | inode_flags::SET | inode_flags::GET_EXTENDED | inode_flags::SET_EXTENDED => {
            inode_flags::ioctl(&description, command, argument)
        }
        shared_blocks::CLONE | shared_blocks::CLONE_RANGE | shared_blocks::DEDUPE_RANGE => {
            shared_blocks::ioctl(&description, command, argument)
        }
        _ => description.file().ioctl(command, argument),
    }
}

/// TIOCGPTPEER: a descriptor of a pseudo-terminal's slave, whatever is mounted at /dev/pts.
fn open_peer(master: &Description, flags: u32) -> Result<usize> {
    let (number, file) = devfs::open_peer(&**master.file(), flags)?;
    // Its name, where there is one, is what ttyname(3) reads.
    let place =
        files::current().lookup(alloc::format!("/dev/pts/{number}").as_bytes(), &files::credentials());
    let place = place.ok().filter(|place| place.kind() == FileType::CharDevice);
    let slave = Description::new(file, flags | O_LARGEFILE, place);
    files::current().descriptors.insert(slave, flags & O_CLOEXEC != 0).map(|fd| fd as usize)
}
