// SPDX-License-Identifier: Apache-2.0 OR MIT
//! System calls of a program that is linked with its kernel: each is a function of its own, `unilith_call_NAME`, which
//! the linker finds by name. A call that the program does not make is in no image, nor is what only that call needs.
//!
//! The assembly of the kernel image (`linked.s`) enters these functions with the [`TrapFrame`] of the call. It has the
//! arguments and the callee-saved registers of the program; the others are lost to any function call.

use super::{is_restart, leave};
use abi::{Result, errno::ENOSYS};
use api_plat::{CODE_SEGMENT, DATA_SEGMENT, Entry, Status, TrapFrame};
use core::sync::atomic::{AtomicBool, Ordering};
use task::call::{Call, Handler};
use task::cpu_time;

/// RFLAGS of a program at a function call: interrupts on, and the bit that is always set.
const FLAGS: u64 = 0x202;

/// What the assembly goes on with: RAX for the program, or all of its registers from the TrapFrame.
#[repr(C)]
pub struct Outcome {
    rax: u64,
    has_registers: u64,
}

/// Serves a function of the kernel's that a linked program calls and that may block.
#[inline(always)]
pub fn serve(handler: Handler, frame: &mut TrapFrame) -> Outcome {
    if cpu_time::is_on() {
        cpu_time::entered();
    }
    let mut call = Call { frame, keep_registers: false };
    let result = handler(&mut call);
    let keeps = call.keep_registers;
    if cpu_time::is_on() {
        cpu_time::left();
    }
    match result {
        Ok(value) if !keeps => Outcome { rax: value as u64, has_registers: 0 },
        Err(e) if !keeps && !is_restart(Err(e)) => Outcome { rax: e.to_return() as u64, has_registers: 0 },
        _ => end(handler, frame, if keeps { None } else { Some(result) }),
    }
}

/// The handler replaced the registers (`None`), or a signal interrupted the call.
#[cold]
#[inline(never)]
fn end(handler: Handler, frame: &mut TrapFrame, result: Option<Result<usize>>) -> Outcome {
    if let Some(Err(e)) = result {
        (frame.rax, frame.rcx, frame.r11) = (e.to_return() as u64, frame.rip, FLAGS);
        (frame.cs, frame.ss, frame.rflags) = (CODE_SEGMENT, DATA_SEGMENT, FLAGS);
        frame.entry = Entry::Call;
        api_plat::request_work();
    }
    // A call that is made again is known by its handler, for there is no table of numbers.
    leave(frame, result.map(|result| (handler as usize as u64, result)));
    Outcome { rax: 0, has_registers: 1 }
}

/// Makes an interrupted call again; `handler` is what [`end`] gave.
pub(super) fn again(handler: u64, frame: &mut TrapFrame) -> Option<Result<usize>> {
    // SAFETY: it is the address of a `Handler`. Between `end` and here it may have been in the frame of a signal, in the
    // program's memory; program and kernel have the same rights, so no boundary is crossed.
    let handler: Handler = unsafe { core::mem::transmute(handler as usize) };
    let mut call = Call { frame, keep_registers: false };
    let result = handler(&mut call);
    if call.keep_registers {
        return None;
    }
    if is_restart(result) {
        api_plat::request_work();
    }
    frame.rax = result.map_or_else(|e| e.to_return() as u64, |value| value as u64);
    Some(result)
}

unsafe extern "C" {
    // Each jumps to the call's function, or to `unilith_call_none` where the program makes no such call: made by whoever links
    // (`host/static/src/image.rs`).
    safe fn unilith_linked_clock_gettime(frame: &mut TrapFrame) -> Outcome;
    safe fn unilith_linked_clock_getres(frame: &mut TrapFrame) -> Outcome;
}

/// What answers in place of a call that is not in the image.
#[unsafe(no_mangle)]
extern "C" fn unilith_call_none(_: &mut TrapFrame) -> Outcome {
    Outcome { rax: ENOSYS.to_return() as u64, has_registers: 0 }
}

/// The program has an instruction `syscall` of its own: nothing was linked for it. The vDSO has one too, by which it hands on the
/// clocks that it does not read, such as those of processor time.
pub(super) fn by_instruction(frame: &mut TrapFrame) {
    const CLOCK_GETTIME: u64 = 228;
    const CLOCK_GETRES: u64 = 229;
    static TOLD: AtomicBool = AtomicBool::new(false);
    let number = frame.rax;
    let of_vdso = match number {
        CLOCK_GETTIME => Some(unilith_linked_clock_gettime(frame)),
        CLOCK_GETRES => Some(unilith_linked_clock_getres(frame)),
        _ => None,
    };
    if let Some(outcome) = of_vdso {
        frame.rax = outcome.rax;
        return;
    }
    if !TOLD.swap(true, Ordering::Relaxed) {
        api_plat::status(&Status::Missing { number: number as u32 });
        log::warn!(
            "system call {number} by the instruction at {:#x} answers ENOSYS: a program that is linked with its kernel \
             calls functions; make it through the C library",
            frame.rip
        );
    }
    frame.rax = ENOSYS.to_return() as u64;
}

macro_rules! export {
    ($name:ident $($path:ident)+) => {
        const _: () = {
            #[unsafe(export_name = concat!("unilith_call_", stringify!($name)))]
            extern "C" fn call(frame: &mut TrapFrame) -> Outcome {
                const HANDLER: Option<Handler> = guarded!($name Some(crate::calls::$($path)::+ as Handler));
                match HANDLER {
                    Some(handler) => serve(handler, frame),
                    None => Outcome { rax: ENOSYS.to_return() as u64, has_registers: 0 },
                }
            }
        };
    };
}

macro_rules! one {
    ($name:ident none) => {};
    ($name:ident sysv $($call:ident)+) => { #[cfg(feature = "sysv-ipc")] export!($name sysv $($call)+); };
    ($name:ident aio $($call:ident)+) => { #[cfg(feature = "aio")] export!($name aio $($call)+); };
    ($name:ident message_queues $($call:ident)+) => { #[cfg(feature = "mqueue")] export!($name message_queues $($call)+); };
    ($name:ident inotify $($call:ident)+) => { #[cfg(feature = "inotify")] export!($name inotify $($call)+); };
    ($name:ident keys $($call:ident)+) => { #[cfg(feature = "keys")] export!($name keys $($call)+); };
    ($name:ident landlock $($call:ident)+) => { #[cfg(feature = "landlock")] export!($name landlock $($call)+); };
    ($name:ident uring $($call:ident)+) => { #[cfg(feature = "io_uring")] export!($name uring $($call)+); };
    ($name:ident $($path:ident)+) => { export!($name $($path)+); };
}

macro_rules! all {
    ($($number:literal $name:ident $status:ident $note:literal $($handler:ident)::+;)*) => {
        $(one!($name $($handler)+);)*
    };
}
syscall_table::system_calls!(all);

/// syscall(3) with a number that is no constant where it is called. Only an image that has such a call has this function, and
/// with it the table of all handlers.
#[unsafe(no_mangle)]
extern "C" fn unilith_call_any(frame: &mut TrapFrame) -> Outcome {
    match super::HANDLERS.get(frame.orig_rax as usize) {
        Some(Some(handler)) => serve(*handler, frame),
        _ => Outcome { rax: ENOSYS.to_return() as u64, has_registers: 0 },
    }
}
