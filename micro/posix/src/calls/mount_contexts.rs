// SPDX-License-Identifier: Apache-2.0 OR MIT
//! File systems that are described before they are made: fsopen(2), fsconfig(2), fsmount(2), fspick(2). The order of errors is that of
//! Linux' fs/fsopen.c.

use super::mount_trees::{self, MOUNT_ATTR_KNOWN, mount_flags, place};
use super::mounts::check_may_mount;
use crate::file_systems::{Made, Parameters, Refusal, Type, Value};
use abi::{PAGE_SIZE, Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_fs::{File, FileType, Sink, Stat};
use api_lock::SpinLock;
use api_user::UserPtr;
use calls_files::open::read_path;
use core::any::Any;
use task::call::Call;
use task::files::{self, AT_FDCWD, O_CLOEXEC};
use task::identity::capabilities::CAP_SYS_ADMIN;
use task::users::UserNamespace;
use vfs::{Detached, Owner};

const O_RDWR: u32 = 2;
const FSOPEN_CLOEXEC: u32 = 1;
const FSMOUNT_CLOEXEC: u32 = 1;
const FSPICK_CLOEXEC: u32 = 1;
const FSPICK_SYMLINK_NOFOLLOW: u32 = 2;
const FSPICK_NO_AUTOMOUNT: u32 = 4;
const FSPICK_EMPTY_PATH: u32 = 8;

const FSCONFIG_SET_FLAG: u32 = 0;
const FSCONFIG_SET_STRING: u32 = 1;
const FSCONFIG_SET_BINARY: u32 = 2;
const FSCONFIG_SET_PATH: u32 = 3;
const FSCONFIG_SET_PATH_EMPTY: u32 = 4;
const FSCONFIG_SET_FD: u32 = 5;
const FSCONFIG_CMD_CREATE: u32 = 6;
const FSCONFIG_CMD_RECONFIGURE: u32 = 7;
/// The longest name and value of a parameter, with the NUL.
const MAX_WORD: usize = 256;
/// The longest value of bytes.
const MAX_BYTES: i32 = 1 << 20;
/// Messages that are kept for read(2); older ones are lost.
const MAX_MESSAGES: usize = 8;

/// What may be done with a context.
enum Phase {
    /// Parameters are set; then the file system is made.
    Creating,
    /// It is made and waits for fsmount(2).
    Made,
    /// Parameters are set; then the mounted file system is reconfigured.
    Picked,
    Failed,
}

struct State {
    phase: Phase,
    parameters: Parameters,
    made: Option<Made>,
}

/// A descriptor of fsopen(2) or fspick(2).
pub struct Context {
    /// `None` while somebody changes it: others are told `EBUSY`.
    state: SpinLock<Option<State>>,
    messages: SpinLock<Vec<Vec<u8>>>,
    owner: Owner,
}

impl Context {
    fn install(state: State, flags: u32) -> Result<usize> {
        let owner = files::current().namespace().owner().clone();
        let context = Context { state: SpinLock::new(Some(state)), messages: SpinLock::default(), owner };
        files::current().install(Arc::new(context), O_RDWR | flags).map(|fd| fd as usize)
    }

    /// Nobody else changes the state meanwhile.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        let mut state = self.state.lock().take().ok_or(EBUSY)?;
        let changed = change(&mut state);
        *self.state.lock() = Some(state);
        changed
    }

    /// Keeps an error for read(2). Without memory for it, it is lost.
    fn tell(&self, why: &str) {
        let mut text: Vec<u8> = Vec::new();
        if why.is_empty() || text.reserve_exact_fallibly(why.len() + 3).is_err() {
            return;
        }
        for part in ["e ", why, "\n"] {
            text.extend_from_slice(part.as_bytes());
        }
        let mut messages = self.messages.lock();
        let oldest = if messages.len() == MAX_MESSAGES { Some(messages.remove(0)) } else { None };
        if messages.reserve_fallibly(1).is_ok() {
            messages.push(text);
        }
        drop(messages);
        drop(oldest);
    }

    fn set(&self, key: &[u8], value: Value) -> Result<()> {
        self.change(|state| {
            if !matches!(state.phase, Phase::Creating | Phase::Picked) {
                return Err(EBUSY);
            }
            state.parameters.set(key, value).map_err(|Refusal { error, why }| {
                self.tell(&why);
                error
            })
        })
    }

    fn create(&self) -> Result<()> {
        self.change(|state| {
            if !matches!(state.phase, Phase::Creating) {
                return Err(EBUSY);
            }
            // Whoever has not the right may hand the descriptor to somebody who has.
            let users = UserNamespace::of_owner(&self.owner);
            if !task::current().credentials().lock().can_in(&users, CAP_SYS_ADMIN) {
                return Err(EPERM);
            }
            match state.parameters.make(&self.owner) {
                Ok(made) => (state.made, state.phase) = (Some(made), Phase::Made),
                Err(error) => {
                    state.phase = Phase::Failed;
                    return Err(error);
                }
            }
            Ok(())
        })
    }

    fn reconfigure(&self) -> Result<()> {
        self.change(|state| {
            let made = state.made.as_ref().filter(|_| matches!(state.phase, Phase::Picked)).ok_or(EBUSY)?;
            let done = state.parameters.reconfigure(made, 0);
            match done {
                Ok(()) => state.parameters = Parameters::new(state.parameters.kind),
                Err(_) => state.phase = Phase::Failed,
            }
            done
        })
    }
}

impl File for Context {
    fn anonymous_name(&self) -> &'static str {
        "[fscontext]"
    }

    /// One message of the log. `ENODATA` when there is none, `EMSGSIZE` for one that is longer than the buffer, which is lost.
    fn read(&self, _: u64, to: &mut Sink<'_>) -> Result<usize> {
        let oldest = {
            let mut messages = self.messages.lock();
            if messages.is_empty() { None } else { Some(messages.remove(0)) }
        };
        let message = oldest.ok_or(ENODATA)?;
        if message.len() > to.remaining() {
            return Err(EMSGSIZE);
        }
        to.put(&message)
    }

    fn stat(&self) -> Result<Stat> {
        Ok(Stat::new(FileType::Anonymous, 0o600))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn cloexec(flags: u32, flag: u32) -> u32 {
    if flags & flag != 0 { O_CLOEXEC } else { 0 }
}

/// fsopen(2).
pub fn fsopen(call: &mut Call<'_>) -> Result<usize> {
    check_may_mount()?;
    let flags = call.flags(1, FSOPEN_CLOEXEC)?;
    let kind = Type::of(&call.ptr::<u8>(0).read_cstr(PAGE_SIZE, EINVAL)?)?;
    let state = State { phase: Phase::Creating, parameters: Parameters::new(kind), made: None };
    Context::install(state, cloexec(flags, FSOPEN_CLOEXEC))
}

/// fspick(2).
pub fn fspick(call: &mut Call<'_>) -> Result<usize> {
    check_may_mount()?;
    let known = FSPICK_CLOEXEC | FSPICK_SYMLINK_NOFOLLOW | FSPICK_NO_AUTOMOUNT | FSPICK_EMPTY_PATH;
    let flags = call.flags(2, known)?;
    let path = read_path(call.ptr(1), flags & FSPICK_EMPTY_PATH != 0)?;
    let at = place(call.int(0), &path, flags & FSPICK_SYMLINK_NOFOLLOW == 0)?;
    if at.parent().is_some() || at.is_unlinked() {
        return Err(EINVAL);
    }
    let mount = at.mount();
    let kind = Type::of(mount.file_system.as_bytes()).unwrap_or(Type::Other(mount.file_system));
    let made = Made { super_block: mount.super_block().clone(), root: at.inode().clone() };
    let state = State { phase: Phase::Picked, parameters: Parameters::new(kind), made: Some(made) };
    Context::install(state, cloexec(flags, FSPICK_CLOEXEC))
}

/// fsconfig(2).
pub fn fsconfig(call: &mut Call<'_>) -> Result<usize> {
    let (descriptor, command, auxiliary) = (call.int(0), call.uint(1), call.int(4));
    let (key, value): (UserPtr<u8>, UserPtr<u8>) = (call.ptr(2), call.ptr(3));
    let (has_key, has_value) = (key.non_null().is_some(), value.non_null().is_some());
    if descriptor < 0 {
        return Err(EINVAL);
    }
    let is_well_formed = match command {
        FSCONFIG_SET_FLAG => has_key && !has_value && auxiliary == 0,
        FSCONFIG_SET_STRING => has_key && has_value && auxiliary == 0,
        FSCONFIG_SET_BINARY => has_key && has_value && (1..=MAX_BYTES).contains(&auxiliary),
        FSCONFIG_SET_PATH | FSCONFIG_SET_PATH_EMPTY => {
            has_key && has_value && (auxiliary == AT_FDCWD || auxiliary >= 0)
        }
        FSCONFIG_SET_FD => has_key && !has_value && auxiliary >= 0,
        FSCONFIG_CMD_CREATE | FSCONFIG_CMD_RECONFIGURE => !has_key && !has_value && auxiliary == 0,
        _ => return Err(EOPNOTSUPP),
    };
    if !is_well_formed {
        return Err(EINVAL);
    }
    let description = files::get(descriptor)?;
    let context = description.file().as_any().downcast_ref::<Context>().ok_or(EINVAL)?;
    let is_text_only = context.change(|state| Ok(state.parameters.kind.is_legacy()))?;
    if is_text_only && (FSCONFIG_SET_BINARY..=FSCONFIG_SET_FD).contains(&command) {
        return Err(EOPNOTSUPP);
    }
    match command {
        FSCONFIG_CMD_CREATE => return context.create().map(|()| 0),
        FSCONFIG_CMD_RECONFIGURE => return context.reconfigure().map(|()| 0),
        _ => {}
    }
    let key = key.read_cstr(MAX_WORD, EINVAL)?;
    let value = match command {
        FSCONFIG_SET_FLAG => Value::Flag,
        FSCONFIG_SET_STRING => Value::Text(value.read_cstr(MAX_WORD, EINVAL)?),
        FSCONFIG_SET_BINARY => {
            check_readable(value, auxiliary as usize)?;
            Value::Other
        }
        FSCONFIG_SET_FD => {
            files::get(auxiliary)?;
            Value::Other
        }
        _ => {
            read_path(value, command == FSCONFIG_SET_PATH_EMPTY)?;
            Value::Other
        }
    };
    context.set(&key, value).map(|()| 0)
}

/// `EFAULT` unless the bytes can be read. No file system has a parameter of bytes, so nothing is kept of them.
fn check_readable(from: UserPtr<u8>, length: usize) -> Result<()> {
    let mut buffer = Vec::new();
    buffer.reserve_exact_fallibly(length.min(PAGE_SIZE)).map_err(|_| ENOMEM)?;
    buffer.resize(length.min(PAGE_SIZE), 0);
    let mut source = api_fs::Source::user(from.address(), length)?;
    while source.remaining() > 0 {
        if source.take(&mut buffer)? == 0 {
            return Err(EFAULT);
        }
    }
    Ok(())
}

/// fsmount(2).
pub fn fsmount(call: &mut Call<'_>) -> Result<usize> {
    check_may_mount()?;
    let flags = call.flags(1, FSMOUNT_CLOEXEC)?;
    let attributes = u64::from(call.uint(2));
    if attributes & !MOUNT_ATTR_KNOWN != 0 {
        return Err(EINVAL);
    }
    let mount_flags = mount_flags(attributes)?;
    let description = files::get(call.int(0))?;
    let context = description.file().as_any().downcast_ref::<Context>().ok_or(EINVAL)?;
    let detached = context.change(|state| {
        let made = state.made.as_ref().ok_or(EINVAL)?;
        if !matches!(state.phase, Phase::Made) {
            return Err(EBUSY);
        }
        let (kind, source) = (state.parameters.kind, state.parameters.source_shown());
        let owner = files::current().namespace().owner().clone();
        let (super_block, root) = (made.super_block.clone(), made.root.clone());
        let mounted = Detached::new(super_block, root, kind.name(), source, mount_flags, owner)?;
        // From here on the context is as one of fspick(2).
        (state.parameters, state.phase) = (Parameters::new(kind), Phase::Picked);
        Ok(mounted)
    })?;
    mount_trees::install(detached, cloexec(flags, FSMOUNT_CLOEXEC))
}
