// SPDX-License-Identifier: Apache-2.0 OR MIT
//! landlock_create_ruleset(2), landlock_add_rule(2) and landlock_restrict_self(2), as Linux 6.1 has them (ABI 2). What domains allow is in
//! `vfs::landlock`; which one a thread has is in its credentials.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

use abi::{Result, errno::*};
use alloc::sync::Arc;
use api_fs::{File, FileType, Sink, Source, Stat};
use api_user::UserPtr;
use core::any::Any;
use descriptors::Description;
use task::call::Call;
use task::files::{self, O_CLOEXEC};
use task::identity::capabilities::CAP_SYS_ADMIN;
use vfs::landlock::{ALL, Domain, Ruleset, is_in_tree};

const ABI_VERSION: usize = 2;
const CREATE_RULESET_VERSION: u32 = 1;
/// Asks which mistakes of earlier versions are mended; those that Linux numbers are not of this code, or were not.
const CREATE_RULESET_ERRATA: u32 = 2;
const RULE_PATH_BENEATH: u32 = 1;
/// `struct landlock_ruleset_attr`: what the set handles.
const ATTR_BYTES: usize = 8;
const O_RDWR: u32 = 2;
const O_ACCMODE: u32 = 3;

/// What a descriptor of a set refers to; it is neither read nor written.
struct RulesetFile(Ruleset);

impl File for RulesetFile {
    fn anonymous_name(&self) -> &'static str {
        "[landlock-ruleset]"
    }

    fn read(&self, _: u64, _: &mut Sink<'_>) -> Result<usize> {
        Err(EINVAL)
    }

    fn write(&self, _: u64, _: &mut Source<'_>) -> Result<usize> {
        Err(EINVAL)
    }

    fn stat(&self) -> Result<Stat> {
        Ok(Stat::new(FileType::Anonymous, 0o600))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// landlock_create_ruleset(2): the version of what there is, or a set without rules.
pub fn landlock_create_ruleset(call: &mut Call<'_>) -> Result<usize> {
    let (attr, size) = (call.ptr::<u64>(0), call.size(1));
    match call.uint(2) {
        0 => {}
        CREATE_RULESET_VERSION if attr.is_null() && size == 0 => return Ok(ABI_VERSION),
        CREATE_RULESET_ERRATA if attr.is_null() && size == 0 => return Ok(0),
        _ => return Err(EINVAL),
    }
    if attr.is_null() {
        return Err(EFAULT);
    }
    if size < ATTR_BYTES {
        return Err(EINVAL);
    }
    let [handled] = attr.read_extensible(size)?;
    if handled & !u64::from(ALL) != 0 {
        return Err(EINVAL);
    }
    if handled == 0 {
        return Err(ENOMSG);
    }
    let file = Arc::new(RulesetFile(Ruleset::new(handled as u16)));
    files::current().install(file, O_RDWR | O_CLOEXEC).map(|fd| fd as usize)
}

/// The description of a set: `EBADFD` for one of anything else.
fn ruleset(fd: i32) -> Result<Arc<Description>> {
    let description = files::get(fd)?;
    if set(&description).is_none() {
        return Err(EBADFD);
    }
    if description.flags() & O_ACCMODE != O_RDWR { Err(EPERM) } else { Ok(description) }
}

fn set(description: &Description) -> Option<&Ruleset> {
    description.file().as_any().downcast_ref::<RulesetFile>().map(|file| &file.0)
}

/// landlock_add_rule(2).
pub fn landlock_add_rule(call: &mut Call<'_>) -> Result<usize> {
    call.flags(3, 0)?;
    let description = ruleset(call.int(0))?;
    if call.uint(1) != RULE_PATH_BENEATH {
        return Err(EINVAL);
    }
    // `struct landlock_path_beneath_attr` is packed: rights and a descriptor.
    let attr = call.arg(2);
    let rights = UserPtr::<u64>::new(attr).read()?;
    let parent = UserPtr::<i32>::new(attr + 8).read()?;
    if rights == 0 {
        return Err(ENOMSG);
    }
    if rights & !u64::from(ALL) != 0 {
        return Err(EINVAL);
    }
    let set = set(&description).ok_or(EBADFD)?;
    if !set.handles(rights as u16) {
        return Err(EINVAL);
    }
    let place = files::current().descriptors.get_any(parent)?;
    // Pipes, sockets and their like are in no tree.
    let place = place.place().filter(|place| is_in_tree(place)).ok_or(EBADFD)?;
    set.add(place, rights as u16)?;
    Ok(0)
}

/// landlock_restrict_self(2), of who gains no privileges any more or has CAP_SYS_ADMIN.
pub fn landlock_restrict_self(call: &mut Call<'_>) -> Result<usize> {
    let task = task::current();
    let outer = {
        let credentials = task.credentials().lock();
        if !credentials.no_new_privileges && !credentials.can_here(CAP_SYS_ADMIN) {
            return Err(EPERM);
        }
        credentials.domain.clone()
    };
    call.flags(1, 0)?;
    let description = ruleset(call.int(0))?;
    let domain = Domain::within(outer.as_ref(), set(&description).ok_or(EBADFD)?)?;
    let old = task.credentials().lock().domain.replace(domain);
    drop(old);
    Ok(0)
}
