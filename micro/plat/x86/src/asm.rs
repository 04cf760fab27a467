// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What Rust sees of the assembly (`image.rs`).

use crate::trap::Trap;
use api_plat::{FastCall, TrapFrame};
use core::mem::{offset_of, size_of};
use core::sync::atomic::{AtomicPtr, Ordering};

/// Flags the program may have: carry, parity, adjust, zero, sign, trap, direction, overflow, resume, alignment check,
/// identification.
pub const PROGRAM_FLAGS: u32 = 0x25_0dd5;

/// Numbers the fast path looks up.
pub const FAST_NUMBERS: usize = 512;

/// Calls that are entered without a TrapFrame, by number; null where there is none.
pub static FAST_CALLS: [AtomicPtr<()>; FAST_NUMBERS] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; FAST_NUMBERS];

#[unsafe(no_mangle)]
unsafe fn unilith_plat_set_fast_call(number: u32, call: FastCall) {
    FAST_CALLS[number as usize].store(call as *mut (), Ordering::Relaxed);
}

#[unsafe(no_mangle)]
fn unilith_plat_clear_fast_call(number: u32) {
    FAST_CALLS[number as usize].store(core::ptr::null_mut(), Ordering::Relaxed);
}

// The processor pushes SS, RSP, RFLAGS, CS and RIP at a multiple of 16, and the stubs build the TrapFrame around them.
const _: () = assert!(size_of::<TrapFrame>().is_multiple_of(16));
const _: () = assert!(size_of::<TrapFrame>() - offset_of!(TrapFrame, rip) == 5 * 8);
const _: () = assert!(size_of::<Trap>().is_multiple_of(16));

/// Where the way out to an overlay program goes on: the platform's code that takes its domain up. Null without domains.
pub static LEAVE_TO_OVERLAY: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// An address in the assembly; only its address has a meaning.
#[repr(transparent)]
pub struct Label(u8);

impl Label {
    pub fn address(&'static self) -> u64 {
        core::ptr::from_ref(self) as u64
    }
}

unsafe extern "C" {
    pub safe static unilith_entry: Label;
    pub safe static unilith_entry_end: Label;
    pub safe static unilith_fast_check: Label;
    pub safe static unilith_fast_tail: Label;
    pub safe static unilith_call_check: Label;
    pub safe static unilith_call_tail: Label;
    pub safe static unilith_full_check: Label;
    pub safe static unilith_full_iret: Label;
    pub safe static unilith_leave: Label;
    pub safe static unilith_thread_start: Label;
    safe static unilith_resume: Label;
    safe static unilith_handle_trap: Label;
    /// The vDSO's code, one page.
    pub safe static unilith_vdso: Label;
    /// In it: LFENCE and RDTSC, five bytes.
    pub safe static unilith_vdso_ordered: Label;
    // The linker script's.
    pub safe static __kernel_start: Label;
    pub safe static __text_end: Label;
    pub safe static __kernel_end: Label;
    // What is not in the image, see `api_plat::load_tools`.
    pub safe static __overlay_start: Label;
    pub safe static __overlay_text_end: Label;
    pub safe static __overlay_end: Label;
}

/// The way back to whatever was hit, to its IRET.
pub fn resume() -> core::ops::Range<u64> {
    unilith_resume.address()..unilith_handle_trap.address()
}

/// The kernel's code.
pub fn text() -> core::ops::Range<u64> {
    __kernel_start.address()..__text_end.address()
}

/// The overlay's code and constants, see `api_plat::load_tools`.
pub fn tools() -> core::ops::Range<u64> {
    __overlay_start.address()..__overlay_end.address()
}

/// Where a patched system-call site jumps to, with the return address in RCX and the number in RAX; R11 is free.
pub fn system_call_entry() -> u64 {
    unilith_entry.address()
}
