// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupts and exceptions, from the stack they came on to where they are handled.

use crate::{asm, cpu, crash, machine};
use api_plat::{Access, Entry, Exception, FaultOutcome, TrapFrame, USER_END, upcall};
use core::mem::{offset_of, size_of};

/// An exception on its way: lies directly below its [`TrapFrame`] on the stack where it is handled.
#[repr(C, align(16))]
pub struct Trap {
    pub error: u64,
    pub address: u64,
    pub vector: u32,
    /// Hit kernel code (a copy from or to the program's memory), not the program.
    pub in_kernel: bool,
}

pub const PAGE_FAULT: u32 = 14;
const DEBUG: u32 = 1;
const STACK_FAULT: u32 = 12;
const GENERAL_PROTECTION: u32 = 13;
const ALIGNMENT_CHECK: u32 = 17;
/// Stands for a system call of an overlay program, which has no vector of its own.
pub const SYSTEM_CALL: u32 = 256;
/// Of a page fault's error code: the page is there and may not be used so.
const PRESENT: u64 = 1;
/// RFLAGS.IF
const INTERRUPTS: u64 = 0x200;
/// RFLAGS.TF: an exception behind each instruction.
const TRAP_FLAG: u64 = 1 << 8;
/// RFLAGS.NT: IRET in 64-bit mode refuses to run (SDM 2A, IRET).
const NESTED_TASK: u64 = 1 << 14;
/// RFLAGS.AC: accesses must be aligned, where the kernel is not privileged.
const ALIGNMENT_CHECKS: u64 = 1 << 18;
/// The red zone of the System V ABI (3.2.2): bytes below RSP that an interrupted function may use.
const RED_ZONE: u64 = 128;

/// Where an interrupt or exception hit.
pub enum Origin {
    Program,
    Kernel,
    /// At the IRET out of the kernel, with the TrapFrame still below RSP.
    Leaving,
}

/// Tells where the frame comes from, and moves it out of the way out of the kernel: a frame in the middle of it goes
/// back to where pending work is looked for, one at its last jump has arrived in the program.
pub fn origin(frame: &mut TrapFrame) -> Origin {
    let rip = frame.rip;
    // Kernel code has its RSP in the kernel's half but for a few instructions of the entry; so a RIP that is neither
    // the program's nor kernel code is a wild jump of the program.
    if rip < USER_END || frame.rsp < USER_END && !asm::text().contains(&rip) {
        return Origin::Program;
    }
    if rip == asm::unilith_call_tail.address() || rip == asm::unilith_fast_tail.address() {
        frame.rip = frame.rcx;
        return Origin::Program;
    }
    if rip == asm::unilith_full_iret.address() {
        return Origin::Leaving;
    }
    for (check, end) in [
        (&asm::unilith_call_check, &asm::unilith_call_tail),
        (&asm::unilith_full_check, &asm::unilith_full_iret),
        (&asm::unilith_fast_check, &asm::unilith_fast_tail),
    ] {
        if (check.address()..end.address()).contains(&rip) {
            frame.rip = check.address();
        }
    }
    Origin::Kernel
}

/// Clears the program's flag that an instruction of the kernel ran into: a jump into the kernel leaves all flags as they are,
/// where SYSCALL clears those in IA32_FMASK. Answers whether there was one; the kernel goes on where it was then.
pub fn clear_flag(frame: &mut TrapFrame, vector: u32) -> bool {
    let flag = match vector {
        DEBUG => TRAP_FLAG,
        GENERAL_PROTECTION => NESTED_TASK,
        ALIGNMENT_CHECK => ALIGNMENT_CHECKS,
        _ => return false,
    };
    let found = frame.rflags & flag != 0 && !matches!(origin(frame), Origin::Program);
    if found {
        frame.rflags &= !flag;
    }
    found
}

/// A system call that could not write its frame, because GS base was not the kernel's (it is again, perhaps since a signal or an
/// interrupt before this exception was looked at), or because a program jumped into the middle of the entry: it begins again.
/// Answers whether it was one; the processor is in no overlay program's domain.
pub fn begin_call_again(frame: &mut TrapFrame, vector: u32) -> bool {
    let entry = asm::unilith_entry.address();
    let is_call = (entry..asm::unilith_entry_end.address()).contains(&frame.rip)
        && [STACK_FAULT, GENERAL_PROTECTION, PAGE_FAULT].contains(&vector);
    if is_call {
        // entry.s has the program's RSP there.
        (frame.rip, frame.rsp) = (entry, frame.r11);
    }
    is_call
}

/// Copies a program's frame to the top of the running thread's kernel stack, which is empty while the program runs.
pub fn move_to_thread(frame: &TrapFrame) -> &'static mut TrapFrame {
    // SAFETY: `activate` named a place of this size at the top of the thread's kernel stack, and nothing is on that
    // stack while the program runs.
    let place = unsafe { &mut *(cpu::frame_address() as *mut TrapFrame) };
    *place = *frame;
    place.entry = Entry::Full;
    place
}

/// Moves an exception's frame to the stack where it may be handled; answers where the [`Trap`] is that
/// [`handle`] takes, directly below the frame's copy. Does not return for faults of the kernel.
pub fn move_off(frame: &mut TrapFrame, vector: u32, error: u64, address: u64) -> u64 {
    let (place, in_kernel) = match origin(frame) {
        Origin::Program => (move_to_thread(frame) as *mut TrapFrame as u64, false),
        // IRET refused the program's RIP (a signal handler may have made it non-canonical): the program's fault.
        Origin::Leaving => (frame.rsp - offset_of!(TrapFrame, rip) as u64, false),
        Origin::Kernel => {
            let expected = is_absent(error, address) || api_user::fault_fixup(frame.rip).is_some();
            if vector != PAGE_FAULT || !expected {
                crash::exception(frame, vector, error, address);
            }
            let place = (frame.rsp - RED_ZONE - size_of::<TrapFrame>() as u64) & !15;
            if !machine::stack_holds(place - size_of::<Trap>() as u64, frame.rsp) {
                crash::exception(frame, vector, error, address);
            }
            // SAFETY: it lies on the stack of the code that was hit, below what that code may use.
            unsafe { (place as *mut TrapFrame).write(*frame) };
            (place, true)
        }
    };
    lay(place, Trap { error, address, vector, in_kernel })
}

/// As [`move_off`] for an exception of an overlay program, which was in the domain of `entry`.
pub fn move_off_overlay(frame: &TrapFrame, mut vector: u32, error: u64, address: u64, entry: Entry) -> u64 {
    let place = move_to_thread(frame);
    place.entry = entry;
    // Interrupts are on in programs; one that got at the flag has done so by accident.
    place.rflags |= INTERRUPTS;
    // A system call got no further than its first write to the kernel stack. It has the program's RSP in R11 and the
    // return address in RCX, as entry.s says.
    let entry_code = asm::unilith_entry.address()..asm::unilith_entry_end.address();
    if vector == PAGE_FAULT && entry_code.contains(&frame.rip) && frame.rsp == cpu::frame_address() {
        (place.rsp, place.rip) = (frame.r11, frame.rcx);
        place.orig_rax = frame.rax as i32 as i64 as u64;
        vector = SYSTEM_CALL;
    }
    lay(place as *mut TrapFrame as u64, Trap { error, address, vector, in_kernel: false })
}

/// As [`move_off_overlay`] for what is no exception.
pub fn move_off_in_domain(frame: &TrapFrame, vector: u32, entry: Entry) -> u64 {
    let place = move_to_thread(frame);
    place.entry = entry;
    lay(place as *mut TrapFrame as u64, Trap { error: 0, address: 0, vector, in_kernel: false })
}

/// As [`move_off`] for what is no exception: the program was hit, and the platform handles `vector` itself.
pub fn move_off_program(frame: &TrapFrame, vector: u32) -> u64 {
    let place = move_to_thread(frame) as *mut TrapFrame as u64;
    lay(place, Trap { error: 0, address: 0, vector, in_kernel: false })
}

/// Puts the trap below the TrapFrame at `place`.
fn lay(place: u64, trap: Trap) -> u64 {
    let at = place - size_of::<Trap>() as u64;
    // SAFETY: below a TrapFrame on the same stack, of which nothing else uses that part.
    unsafe { (at as *mut Trap).write(trap) };
    at
}

/// Whether the kernel's own code or constants were reached that the host has not handed over yet.
fn is_absent(error: u64, address: u64) -> bool {
    error & PRESENT == 0 && asm::tools().contains(&address)
}

/// Handles an exception on the thread's stack. Answers true when the kernel was hit and goes on.
pub fn handle(trap: &Trap, frame: &mut TrapFrame) -> bool {
    if trap.vector == SYSTEM_CALL {
        upcall::unilith_kernel_overlay_call(frame);
        return false;
    }
    if trap.in_kernel && is_absent(trap.error, trap.address) && api_plat::load_tools().is_ok() {
        return true;
    }
    let mut fault = None;
    // What an overlay program may not write is no matter of the application's memory.
    let forbidden = frame.entry == Entry::Overlay && trap.error & 1 << 1 != 0;
    if trap.vector == PAGE_FAULT && trap.address < USER_END && !forbidden {
        let access = match trap.error {
            e if e & 1 << 4 != 0 => Access::Execute,
            e if e & 1 << 1 != 0 => Access::Write,
            _ => Access::Read,
        };
        let outcome = upcall::unilith_kernel_page_fault(trap.address, access);
        if outcome == FaultOutcome::Resolved {
            return trap.in_kernel;
        }
        fault = Some(outcome);
    }
    if trap.in_kernel {
        match api_user::fault_fixup(frame.rip) {
            Some(fixup) => frame.rip = fixup,
            None => crash::exception(frame, trap.vector, trap.error, trap.address),
        }
        return true;
    }
    let (vector, error, address) = (trap.vector as u8, trap.error, trap.address);
    upcall::unilith_kernel_exception(frame, Exception { vector, error, address, fault });
    false
}
