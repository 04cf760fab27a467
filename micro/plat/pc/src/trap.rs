// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupts and exceptions, from the IST stack to what all platforms share.

use crate::{descriptors, domain, interrupt, processors, x86};
use api_plat::{Entry, TrapFrame};
use core::mem::offset_of;
use plat_x86::trap::{self, Origin, PAGE_FAULT, Trap, move_to_thread, origin};
use plat_x86::{asm, cpu, crash, features};

/// RFLAGS.IF
const INTERRUPTS: u64 = 0x200;

/// An interrupt; on the interrupt stack with interrupts off. Answers 0 to go back, or the TrapFrame, moved to its thread's
/// stack, for which `kernel_work` is to run.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.unilith_gate")]
extern "C" fn unilith_pc_interrupt(frame: &mut TrapFrame, vector: u32) -> u64 {
    own_gs(frame);
    let overlay = domain::leave();
    interrupt::handle(vector as usize, frame);
    if let Some(entry) = overlay {
        // The way back into its domain begins on the thread's stack, whether there is work or not.
        let place = move_to_thread(frame);
        place.entry = entry;
        return place as *mut TrapFrame as u64;
    }
    match origin(frame) {
        Origin::Program if cpu::work_is_wanted() => move_to_thread(frame) as *mut TrapFrame as u64,
        Origin::Program | Origin::Kernel => 0,
        Origin::Leaving => {
            // The registers are loaded from the same TrapFrame again.
            frame.rsp -= offset_of!(TrapFrame, rip) as u64;
            frame.rip = asm::unilith_full_check.address();
            0
        }
    }
}

/// GS base is the program's to change (WRGSBASE): gives the processor its block back that is on this stack. In place, as all that runs before an overlay program's domain is left: other code cannot be executed there.
#[inline(always)]
fn own_gs(frame: *const TrapFrame) {
    let block = descriptors::block(frame);
    if features::has_fsgsbase() && x86::gs_base() != block {
        // SAFETY: GS base is the block of this processor again.
        unsafe { x86::set_gs_base(block) };
    }
}

/// An exception; on the exception stack with interrupts off. Answers where the [`Trap`] is that
/// [`unilith_trap`] handles, on a stack where that may block, or 0 to go back; does not return for faults of the kernel.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.unilith_gate")]
extern "C" fn unilith_pc_exception(frame: *mut TrapFrame, vector: u32, cr2: u64) -> u64 {
    own_gs(frame);
    let overlay = domain::leave();
    // SAFETY: the stub built the TrapFrame, all but `entry`: in its place the processor (or the stub) pushed the error
    // code. With a valid value written there it is a TrapFrame.
    let (frame, error) = unsafe {
        let slot = (&raw mut (*frame).entry).cast::<u64>();
        let error = slot.read();
        slot.write(Entry::Full as u64);
        (&mut *frame, error)
    };
    if matches!(vector, 2 | 8 | 18) {
        crash::exception(frame, vector, error, cr2);
    }
    if overlay.is_none() && (trap::begin_call_again(frame, vector) || trap::clear_flag(frame, vector)) {
        return 0;
    }
    let address = if vector == PAGE_FAULT { cr2 } else { 0 };
    match overlay {
        Some(entry) => trap::move_off_overlay(frame, vector, error, address, entry),
        None => trap::move_off(frame, vector, error, address),
    }
}

/// Handles an exception on the thread's stack. Answers true when the kernel was hit and goes on.
#[unsafe(no_mangle)]
extern "C" fn unilith_trap(trap: *mut Trap) -> bool {
    // SAFETY: `move_off` put the TrapFrame behind the Trap; nobody else has a reference to them.
    let (trap, frame) = unsafe { (&*trap, &mut *trap.add(1).cast::<TrapFrame>()) };
    let takes_turn = processors::several() && !trap.in_kernel;
    if frame.rflags & INTERRUPTS != 0 {
        // SAFETY: they were on where the exception hit, and its frame has left the exception stack.
        unsafe { core::arch::asm!("sti", options(nostack)) };
    }
    if takes_turn {
        processors::unilith_kernel_lock();
    }
    trap::handle(trap, frame)
}
