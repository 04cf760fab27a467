// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Descriptors for things without a name: pipes, event counters, memory files.

use crate::open::O_LARGEFILE;
use abi::setting::Setting;
use abi::{Result, errno::*};
use alloc::sync::Arc;
use api_fs::{File, Inode};
use api_user::UserPtr;
use descriptors::Description;
use eventfd::EventFd;
use pipe::User;
use task::call::Call;
use task::files::{self, O_CLOEXEC};
use vfs::{Capability, Dentry};

const O_NONBLOCK: u32 = 0o4000;
const O_RDWR: u32 = 2;
const O_DIRECT: u32 = 0o40000;
const EFD_SEMAPHORE: u32 = 1;
const MFD_CLOEXEC: u32 = 1;
const MFD_ALLOW_SEALING: u32 = 2;
/// MFD_NOEXEC_SEAL and MFD_EXEC: accepted, as there is nothing to forbid.
const MFD_KNOWN: u32 = 3 | 8 | 16;
/// Longest name of a memfd.
const MFD_NAME_MAX: usize = 249;

/// /proc/sys/fs/pipe-max-size: the largest capacity of pipes of others than the superuser.
pub static PIPE_MAX_SIZE: [Setting; 1] =
    [Setting::new(1 << 20, abi::PAGE_SIZE as u64, pipe::HARD_LIMIT as u64)];

/// The caller, and what pipes it may have.
pub fn pipe_user() -> User {
    let uid = task::current().credentials().lock().uid;
    let who = files::credentials();
    let is_limited = !who.has(Capability::SysResource) && !who.has(Capability::SysAdmin);
    let largest = match who.has(Capability::SysResource) {
        true => pipe::HARD_LIMIT,
        // A capacity is a power of two, and so is what is written there (Linux rounds it up at once).
        false => (PIPE_MAX_SIZE[0].get() as usize).next_power_of_two(),
    };
    User { uid, gid: who.gid, is_limited, largest }
}

fn make_pipe(to: UserPtr<[i32; 2]>, flags: u32) -> Result<usize> {
    let files = files::current();
    let (reader, writer) = pipe::pipe_of(&pipe_user())?;
    writer.flags_changed(flags);
    // Packets are the writer's business, and his flag.
    let r = files.install(reader, flags & !O_DIRECT)?;
    let undo = |fd: i32| {
        // Just made: nobody has it yet, and a pipe's close reports nothing.
        let _ = files.descriptors.remove(fd).map(|d| d.close());
    };
    let w = match files.install(writer, flags | 1) {
        Ok(w) => w,
        Err(e) => {
            undo(r);
            return Err(e);
        }
    };
    if let Err(e) = to.write([r, w]) {
        undo(r);
        undo(w);
        return Err(e);
    }
    Ok(0)
}

pub fn pipe(call: &mut Call<'_>) -> Result<usize> {
    make_pipe(call.ptr(0), 0)
}

pub fn pipe2(call: &mut Call<'_>) -> Result<usize> {
    /// O_EXCL: for notifications of the kernel (watch_queue), which are another part of Linux.
    const O_NOTIFICATION_PIPE: u32 = 0o200;
    let flags = call.flags(1, O_CLOEXEC | O_NONBLOCK | O_DIRECT | O_NOTIFICATION_PIPE)?;
    if flags & O_NOTIFICATION_PIPE != 0 {
        return Err(ENOPKG);
    }
    make_pipe(call.ptr(0), flags)
}

pub fn eventfd(call: &mut Call<'_>) -> Result<usize> {
    files::current().install(EventFd::new(call.uint(0), false), 2).map(|fd| fd as usize)
}

pub fn eventfd2(call: &mut Call<'_>) -> Result<usize> {
    let flags = call.flags(1, O_CLOEXEC | O_NONBLOCK | EFD_SEMAPHORE)?;
    let file = EventFd::new(call.uint(0), flags & EFD_SEMAPHORE != 0);
    files::current().install(file, (flags & !EFD_SEMAPHORE) | 2).map(|fd| fd as usize)
}

pub fn memfd_create(call: &mut Call<'_>) -> Result<usize> {
    let flags = call.flags(1, MFD_KNOWN)?;
    let name = call.ptr::<u8>(0).read_cstr(MFD_NAME_MAX + 1, EINVAL)?;
    let files = files::current();
    let who = files::credentials();
    let node = files.memory_files.unnamed(0o777, (who.uid, who.gid), flags & MFD_ALLOW_SEALING != 0)?;
    let mut shown = b"memfd:".to_vec();
    shown.extend_from_slice(&name);
    let inode: Arc<dyn Inode> = node;
    let dentry = Dentry::unnamed(files.namespace().root().mount(), inode.clone(), &shown)?;
    let description = Description::new(inode.open(&inode, 2)?, O_RDWR | O_LARGEFILE, Some(dentry));
    files.descriptors.insert(description, flags & MFD_CLOEXEC != 0).map(|fd| fd as usize)
}
