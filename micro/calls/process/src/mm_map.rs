// SPDX-License-Identifier: Apache-2.0 OR MIT
//! prctl(2), PR_SET_MM: a program says anew where its parts are, what it was started with and which file it is. Debuggers' and
//! `ps`'s view changes by it, and nothing else.

use crate::program::executable;
use abi::linux::prctl as linux;
use abi::{Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_user::UserPtr;
use mem::{MappedFile, MmMap};
use task::call::Call;
use task::files;
use task::identity::capabilities::{CAP_CHECKPOINT_RESTORE, CAP_SYS_RESOURCE};
use task::process::{Process, Program};

/// `struct prctl_mm_map`: eleven addresses, that of an auxiliary vector, its bytes and the descriptor of a file, 32 bits each.
const WORDS: usize = 13;
const BYTES: u32 = WORDS as u32 * 8;
/// Words of an auxiliary vector (Linux' AT_VECTOR_SIZE on x86).
const MOST_AUXV: usize = 48;
const NO_FILE: u32 = u32::MAX;

/// PR_SET_MM: `EINVAL`, `EPERM`, `EFAULT`, and of a file `EBADF`, `EACCES` and `EBUSY`.
pub fn set(call: &mut Call<'_>) -> Result<usize> {
    let (option, value, length) = (call.uint(1), call.arg(2), call.arg(3));
    let has_length =
        matches!(option, linux::PR_SET_MM_AUXV | linux::PR_SET_MM_MAP | linux::PR_SET_MM_MAP_SIZE);
    if call.arg(4) != 0 || length != 0 && !has_length {
        return Err(EINVAL);
    }
    let caller = task::current();
    let process = &caller.process;
    match option {
        linux::PR_SET_MM_MAP_SIZE => return call.ptr(2).write(BYTES).map(|()| 0),
        linux::PR_SET_MM_MAP => return set_all(process, value, length),
        _ => {}
    }
    if !caller.credentials().lock().can(CAP_SYS_RESOURCE) {
        return Err(EPERM);
    }
    match option {
        linux::PR_SET_MM_EXE_FILE => return set_file(process, value as u32),
        linux::PR_SET_MM_AUXV => return set_auxv(process, &read_auxv(value, length)?),
        _ if !mem::is_place(value) => return Err(EINVAL),
        _ => {}
    }
    let space = process.space().ok_or(EINVAL)?;
    let mut map = space.mm_map();
    let field = match option {
        linux::PR_SET_MM_START_CODE => &mut map.start_code,
        linux::PR_SET_MM_END_CODE => &mut map.end_code,
        linux::PR_SET_MM_START_DATA => &mut map.start_data,
        linux::PR_SET_MM_END_DATA => &mut map.end_data,
        linux::PR_SET_MM_START_STACK => &mut map.start_stack,
        linux::PR_SET_MM_START_BRK => &mut map.start_brk,
        linux::PR_SET_MM_BRK => &mut map.brk,
        linux::PR_SET_MM_ARG_START => &mut map.arg_start,
        linux::PR_SET_MM_ARG_END => &mut map.arg_end,
        linux::PR_SET_MM_ENV_START => &mut map.env_start,
        linux::PR_SET_MM_ENV_END => &mut map.env_end,
        _ => return Err(EINVAL),
    };
    *field = value;
    let names_memory = matches!(
        option,
        linux::PR_SET_MM_START_STACK
            | linux::PR_SET_MM_ARG_START
            | linux::PR_SET_MM_ARG_END
            | linux::PR_SET_MM_ENV_START
            | linux::PR_SET_MM_ENV_END
    );
    space.check_mm_map(&map)?;
    if names_memory && !space.has_mapping_above(value) {
        return Err(EFAULT);
    }
    space.set_mm_map(map)?;
    Ok(0)
}

/// PR_SET_MM_MAP, which needs no capability but for another file.
fn set_all(process: &Process, at: u64, length: u64) -> Result<usize> {
    if length != BYTES.into() {
        return Err(EINVAL);
    }
    let words: [u64; WORDS] = UserPtr::new(at).read()?;
    let [start_code, end_code, start_data, end_data, start_brk, brk, start_stack, rest @ ..] = words;
    let [arg_start, arg_end, env_start, env_end, auxv, last] = rest;
    let (auxv_bytes, file) = (last as u32, (last >> 32) as u32);
    let map = MmMap {
        start_code,
        end_code,
        start_data,
        end_data,
        start_brk,
        brk,
        start_stack,
        arg_start,
        arg_end,
        env_start,
        env_end,
    };
    let space = process.space().ok_or(EINVAL)?;
    space.check_mm_map(&map)?;
    let auxv = match auxv_bytes {
        0 => None,
        _ if auxv == 0 => return Err(EINVAL),
        bytes => Some(read_auxv(auxv, bytes.into())?),
    };
    if file != NO_FILE {
        let can = {
            let credentials = task::current().credentials().lock().clone();
            credentials.can_here(CAP_CHECKPOINT_RESTORE)
                || credentials.can_here(task::identity::capabilities::CAP_SYS_ADMIN)
        };
        if !can {
            return Err(EPERM);
        }
        set_file(process, file)?;
    }
    space.set_mm_map(map)?;
    match auxv {
        Some(auxv) => set_auxv(process, &auxv),
        None => Ok(0),
    }
}

/// The words, as far as there are, with an end behind them.
fn read_auxv(at: u64, bytes: u64) -> Result<[u64; MOST_AUXV]> {
    let bytes = usize::try_from(bytes).ok().filter(|bytes| *bytes <= MOST_AUXV * 8).ok_or(EINVAL)?;
    let mut words = [[0; 8]; MOST_AUXV];
    api_user::read_bytes(at, &mut words.as_flattened_mut()[..bytes])?;
    let mut words = words.map(u64::from_ne_bytes);
    words[MOST_AUXV - 2..].fill(0);
    Ok(words)
}

fn set_auxv(process: &Process, words: &[u64]) -> Result<usize> {
    let end = words.chunks(2).position(|pair| pair[0] == 0).map_or(words.len(), |at| 2 * (at + 1));
    change(process, |program| {
        program.auxv.clear();
        program.auxv.extend_from_slice(&words[..end]);
    })
}

/// Another file for /proc/self/exe. Nothing of the one before may be mapped any more (Linux' `replace_mm_exe_file`).
fn set_file(process: &Process, descriptor: u32) -> Result<usize> {
    let description = files::current().descriptors.get_any(descriptor as i32)?;
    let file = description.place().ok_or(EACCES)?.clone();
    executable(process, &file).map_err(|e| if e == EBADF { e } else { EACCES })?;
    let (space, program) = (process.space().ok_or(EINVAL)?, process.program().ok_or(EINVAL)?);
    let before = program.file.inode().stat()?;
    let is_it = |mapped: &MappedFile| (mapped.device, mapped.inode) == (before.device, before.inode);
    if space.mapped_files().iter().any(|(_, mapped)| is_it(mapped)) {
        return Err(EBUSY);
    }
    change(process, |program| program.file = file)
}

fn change(process: &Process, with: impl FnOnce(&mut Program)) -> Result<usize> {
    let old: Arc<Program> = process.program().ok_or(EINVAL)?;
    let mut auxv = Vec::new();
    api_alloc::Reserve::reserve_exact_fallibly(&mut auxv, MOST_AUXV.max(old.auxv.len()))
        .map_err(|_| ENOMEM)?;
    auxv.extend_from_slice(&old.auxv);
    let mut new = Program { file: old.file.clone(), users: old.users.clone(), auxv };
    with(&mut new);
    process.set_program(new);
    Ok(0)
}
