// SPDX-License-Identifier: Apache-2.0 OR MIT
//! execve(2): another program takes the place of the running one.

use crate::call::Call;
use crate::calls::open::read_path;
use crate::exec::{self, Prepared};
use crate::process::Program;
use crate::task;
use abi::{Result, errno::*};
use alloc::vec::Vec;
use api_plat::Frame;
use api_user::UserPtr;
use core::sync::atomic::Ordering;
use loader::Loaded;

/// Longest string with its NUL (MAX_ARG_STRLEN).
const LONGEST_STRING: usize = 32 * abi::PAGE_SIZE;
/// Most bytes of all strings that are read: three quarters of Linux' _STK_LIM. The loader knows the exact limit.
const MOST_BYTES: usize = 6 << 20;

/// execve(2).
pub fn execve(call: &mut Call<'_>) -> Result<usize> {
    let path = read_path(call.ptr(0), false)?;
    let mut room = MOST_BYTES;
    let arguments = read_strings(call.ptr(1), &mut room)?;
    let environment = read_strings(call.ptr(2), &mut room)?;
    let task = task::current();
    let process = &task.process;
    let Prepared { space, loaded, file } = exec::prepare(process, &path, arguments, environment)?;
    if process.thread_count() > 1 {
        log::warn!("execve from a program with several threads is refused: run it with --kernel linux");
        return Err(EAGAIN);
    }
    // A device that is full is the last reason to stay.
    mem::current().sync_all()?;
    let fpu = api_plat::new_fpu_state()?;

    // From here on there is no way back.
    while let Some((_, description)) = process.files.descriptors.remove_marked() {
        // As on Linux, nobody is told of errors.
        let _ = description.close();
    }
    process.signals.reset_handlers();
    task.signals.reset_stack();
    task.clear_child_tid.store(0, Ordering::Relaxed);
    task.robust_list.store(0, Ordering::Relaxed);
    space.activate();
    drop(space);
    task.set_name(path.rsplit(|b| *b == b'/').next().unwrap_or_default());
    let Loaded { entry, stack, argument_bytes, environment_bytes, auxv, .. } = loaded;
    process.set_program(Program { file, argument_bytes, environment_bytes, auxv });
    // SAFETY: the stack is the running thread's own, as it was before.
    unsafe { api_plat::activate(sched::current().stack_top(), 0) };
    api_plat::load_fpu(&fpu);
    *call.frame = Frame::at_start(entry, stack);
    call.keep_registers = true;
    Ok(0)
}

/// A NULL-terminated array of strings; a null pointer is an empty one. `E2BIG` beyond the limits.
fn read_strings(array: UserPtr<u64>, room: &mut usize) -> Result<Vec<Vec<u8>>> {
    let mut strings = Vec::new();
    if array.is_null() {
        return Ok(strings);
    }
    loop {
        let pointer = array.add(strings.len() as u64).read()?;
        if pointer == 0 {
            return Ok(strings);
        }
        let string = UserPtr::<u8>::new(pointer).read_cstr(LONGEST_STRING, E2BIG)?;
        // The pointer counts too.
        *room = room.checked_sub(string.len() + 1 + size_of::<u64>()).ok_or(E2BIG)?;
        strings.try_reserve(1).map_err(|_| ENOMEM)?;
        strings.push(string);
    }
}
