// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files of programs: the application's file tree with the rights of root, and the host's directory in it. Descriptors are
//! the program's own, so nothing of the application's changes.

use crate::run::Run;
use abi::{Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_fs::{File, FileType, Sink, Source, Timespec};
use api_user::UserPtr;
use overlay_commands::paths::Tree;
use vfs::ops;

/// Most files a program has open.
const MAX_FILES: usize = 64;
/// Most bytes of one read or write (Linux' MAX_RW_COUNT is of this order).
const PIECE: u64 = 1 << 30;
/// Names handed out at once.
const BATCH: usize = 64;

struct Open {
    file: Arc<dyn File>,
    offset: u64,
    append: bool,
}

/// Descriptors, by number less 3: 0 to 2 are the console's.
#[derive(Default)]
pub struct Files(Vec<Option<Open>>);

const FIRST: u64 = 3;
const O_APPEND: u64 = 0o2000;

fn tree(path: &[u8]) -> Result<Tree> {
    Tree::for_path(path).map_err(|failure| failure.errno.unwrap_or(ENODEV))
}

fn path(address: u64) -> Result<Vec<u8>> {
    UserPtr::<u8>::new(address).read_path()
}

fn file(run: &Run, descriptor: u64) -> Result<(Arc<dyn File>, u64, bool)> {
    let files = run.files.lock();
    let index = descriptor.checked_sub(FIRST).ok_or(EBADF)? as usize;
    let open = files.0.get(index).and_then(Option::as_ref).ok_or(EBADF)?;
    Ok((open.file.clone(), open.offset, open.append))
}

fn set_offset(run: &Run, descriptor: u64, offset: u64) {
    if let Some(Some(open)) = run.files.lock().0.get_mut((descriptor - FIRST) as usize) {
        open.offset = offset;
    }
}

pub fn open(run: &Run, name: u64, flags: u64, permissions: u64) -> Result<u64> {
    let name = path(name)?;
    let file = tree(&name)?.open(&name, flags as u32, permissions as u32 & 0o7777)?;
    let open = Open { file, offset: 0, append: flags & O_APPEND != 0 };
    let mut files = run.files.lock();
    let index = match files.0.iter().position(Option::is_none) {
        Some(index) => index,
        None if files.0.len() == MAX_FILES => return Err(EMFILE),
        None => {
            files.0.reserve_fallibly(1).map_err(|_| ENOMEM)?;
            files.0.push(None);
            files.0.len() - 1
        }
    };
    files.0[index] = Some(open);
    Ok(FIRST + index as u64)
}

pub fn close(run: &Run, descriptor: u64) -> Result<u64> {
    let index = descriptor.checked_sub(FIRST).ok_or(EBADF)? as usize;
    let closed = run.files.lock().0.get_mut(index).and_then(Option::take).ok_or(EBADF)?;
    drop(closed);
    Ok(0)
}

pub fn read(run: &Run, descriptor: u64, address: u64, length: u64) -> Result<u64> {
    let (file, offset, _) = file(run, descriptor)?;
    let length = length.min(PIECE);
    run.check_target(address, length)?;
    let count = file.read(offset, &mut Sink::user(address, length as usize)?)? as u64;
    set_offset(run, descriptor, offset + count);
    Ok(count)
}

pub fn write(run: &Run, descriptor: u64, address: u64, length: u64) -> Result<u64> {
    let (file, offset, append) = file(run, descriptor)?;
    let mut source = Source::user(address, length.min(PIECE) as usize)?;
    let (count, end) = if append {
        file.append(&mut source)?
    } else {
        let count = file.write(offset, &mut source)?;
        (count, offset + count as u64)
    };
    set_offset(run, descriptor, end);
    Ok(count as u64)
}

pub fn seek(run: &Run, descriptor: u64, offset: i64, whence: u64) -> Result<u64> {
    let (file, at, _) = file(run, descriptor)?;
    let base = match whence {
        0 => 0,
        1 => at,
        2 => file.size()?,
        _ => return Err(EINVAL),
    };
    let target = base.checked_add_signed(offset).filter(|at| *at <= i64::MAX as u64).ok_or(EINVAL)?;
    set_offset(run, descriptor, target);
    Ok(target)
}

pub fn sync(run: &Run, descriptor: u64) -> Result<u64> {
    file(run, descriptor)?.0.sync(false).map(|()| 0)
}

pub fn unlink(name: u64, directory: bool) -> Result<u64> {
    let name = path(name)?;
    ops::unlink(&tree(&name)?.walk(), &name, directory).map(|()| 0)
}

pub fn rename(from: u64, to: u64) -> Result<u64> {
    let (from, to) = (path(from)?, path(to)?);
    let (here, there) = (tree(&from)?, tree(&to)?);
    ops::rename(&here.walk(), &from, &there.walk(), &to, 0).map(|()| 0)
}

pub fn make_directory(name: u64, permissions: u64) -> Result<u64> {
    let name = path(name)?;
    let permissions = permissions as u32 & 0o7777;
    ops::create(&tree(&name)?.walk(), &name, FileType::Directory, permissions, 0).map(|_| 0)
}

/// Fills `to` with names of a directory, each with its NUL, from the position at `cookie` on; answers the bytes, 0 at the
/// end.
pub fn list(run: &Run, name: u64, cookie: u64, to: u64, length: u64) -> Result<u64> {
    run.check_target(cookie, 8)?;
    run.check_target(to, length)?;
    let name = path(name)?;
    let position = UserPtr::<u64>::new(cookie).read()?;
    let directory = tree(&name)?.lookup(&name, true)?;
    let entries = directory.inode().list(position, BATCH)?;
    let (mut out, mut next) = (Vec::new(), position);
    for entry in &entries {
        if (out.len() + entry.name.len() + 1) as u64 > length {
            break;
        }
        out.extend_from_slice(&entry.name);
        out.push(0);
        next = entry.next;
    }
    if out.is_empty() && !entries.is_empty() {
        return Err(EINVAL);
    }
    UserPtr::new(to).write_slice(&out)?;
    UserPtr::new(cookie).write(next)?;
    Ok(out.len() as u64)
}

/// Writes size, permissions with the type, and the time of the last change in nanoseconds.
pub fn stat(run: &Run, name: u64, to: u64) -> Result<u64> {
    run.check_target(to, 24)?;
    let name = path(name)?;
    let stat = tree(&name)?.lookup(&name, true)?.inode().stat()?;
    let Timespec { seconds, nanoseconds } = stat.modified;
    let changed = (seconds as u64).wrapping_mul(1_000_000_000).wrapping_add(u64::from(nanoseconds));
    UserPtr::new(to).write_slice(&[stat.size, u64::from(stat.mode()), changed])?;
    Ok(0)
}
