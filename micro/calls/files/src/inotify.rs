// SPDX-License-Identifier: Apache-2.0 OR MIT
//! inotify(7): what the program does to files, told to the program. What the host does to a volume is not told.

use crate::open::read_path;
use crate::stat::lookup_at;
use abi::{Result, errno::*};
use alloc::sync::Arc;
use inotify::{IN_DONT_FOLLOW, IN_ONLYDIR, Instance};
use task::call::Call;
use task::files::{self, AT_FDCWD, O_CLOEXEC};
use vfs::Access;

const O_NONBLOCK: u32 = 0o4000;

/// One that counts against the real user's limit.
fn instance() -> Result<Arc<Instance>> {
    Instance::new(task::current().credentials().lock().uid)
}

pub fn inotify_init(_call: &mut Call<'_>) -> Result<usize> {
    files::current().install(instance()?, 0).map(|fd| fd as usize)
}

pub fn inotify_init1(call: &mut Call<'_>) -> Result<usize> {
    let flags = call.flags(0, O_CLOEXEC | O_NONBLOCK)?;
    files::current().install(instance()?, flags).map(|fd| fd as usize)
}

pub fn inotify_add_watch(call: &mut Call<'_>) -> Result<usize> {
    let mask = call.uint(2);
    Instance::check_mask(mask)?;
    let description = files::get(call.int(0))?;
    let instance = description.file().as_any().downcast_ref::<Instance>().ok_or(EINVAL)?;
    let path = read_path(call.ptr(1), false)?;
    let dentry = lookup_at(AT_FDCWD, &path, mask & IN_DONT_FOLLOW == 0)?;
    if mask & IN_ONLYDIR != 0 && !dentry.is_directory() {
        return Err(ENOTDIR);
    }
    files::credentials().check_file(dentry.inode(), &dentry.inode().stat()?, Access::READ)?;
    instance.add(dentry.inode(), mask).map(|number| number as usize)
}

pub fn inotify_rm_watch(call: &mut Call<'_>) -> Result<usize> {
    let description = files::get(call.int(0))?;
    let instance = description.file().as_any().downcast_ref::<Instance>().ok_or(EINVAL)?;
    instance.remove(call.int(1)).map(|()| 0)
}
