// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What belongs to a thread: its stack, FS base and extended state.

use crate::features::{features, set_fs_base};
use crate::{asm, cpu};
use abi::{Result, errno::ENOMEM};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_plat::{Context, FpuBlock, FpuState, TrapFrame};
use core::arch::x86_64::{_fxrstor64, _fxsave64};
use core::mem::size_of;

#[unsafe(no_mangle)]
unsafe fn unilith_plat_activate(stack_top: u64, fs_base: u64) {
    cpu::set_frame_address(stack_top - size_of::<TrapFrame>() as u64);
    set_fs_base(fs_base);
}

unsafe extern "C" {
    fn unilith_switch(from: *mut Context, to: *const Context);
    fn unilith_enter_program(frame: *const TrapFrame) -> !;
}

#[unsafe(no_mangle)]
unsafe fn unilith_plat_switch(from: *mut Context, to: *const Context) {
    // SAFETY: by the caller's word. What compiled code may hold in vector registers does not live across a call.
    unsafe { unilith_switch(from, to) }
}

#[unsafe(no_mangle)]
unsafe fn unilith_plat_enter_program(frame: *const TrapFrame) -> ! {
    // SAFETY: by the caller's word.
    unsafe { unilith_enter_program(frame) }
}

/// Words that `unilith_switch` pops: R15, R14, R13, R12, RBP, RBX, and the address it returns to.
const SWITCH_WORDS: usize = 7;

#[unsafe(no_mangle)]
unsafe fn unilith_plat_start_thread(
    context: *mut Context,
    stack_top: u64,
    entry: extern "C" fn(usize) -> !,
    argument: usize,
) {
    // Below the place of the TrapFrame, so that entering the program overwrites nothing that is in use.
    let words = (stack_top as usize - size_of::<TrapFrame>()) as *mut [u64; SWITCH_WORDS];
    // SAFETY: the caller's stack has room, and nothing runs on it yet.
    unsafe {
        let words = words.sub(1);
        let (argument, entry) = (argument as u64, entry as usize as u64);
        words.write([0, 0, argument, entry, 0, 0, asm::unilith_thread_start.address()]);
        (*context).rsp = words as u64;
    }
}

/// MXCSR after reset: all exceptions masked, round to nearest (Intel SDM volume 1, 10.2.3).
const MXCSR: u32 = 0x1f80;
/// x87 control word after FNINIT.
const FCW: u16 = 0x37f;

#[unsafe(no_mangle)]
fn unilith_plat_new_fpu_state() -> Result<FpuState> {
    let blocks = features().xsave_size.div_ceil(size_of::<FpuBlock>());
    let mut state = Vec::new();
    state.reserve_exact_fallibly(blocks).map_err(|_| ENOMEM)?;
    state.resize(blocks, FpuBlock([0; 64]));
    // The legacy area (Intel SDM volume 1, 10.5.1): FCW at 0, MXCSR at 24. The XSAVE header stays 0: every component
    // is in its initial state, and XRSTOR takes MXCSR from the area all the same.
    state[0].0[..2].copy_from_slice(&FCW.to_le_bytes());
    state[0].0[24..28].copy_from_slice(&MXCSR.to_le_bytes());
    // Without XSAVE there is no header that says so: FXRSTOR reads all, and all zero is the initial state.
    if features().xcr0 != 0 {
        // x87 and SSE come from the area.
        state[8].0[0] = 3;
    }
    // SAFETY: as large as the processor says, and XRSTOR takes what was just written.
    Ok(unsafe { FpuState::from_blocks(state.into_boxed_slice()) })
}

#[unsafe(no_mangle)]
fn unilith_plat_save_fpu(state: &mut FpuState) {
    let area = state.bytes_mut().as_mut_ptr();
    // SAFETY: the area has the size CPUID gives for XCR0 and is aligned to 64.
    unsafe {
        if features().xcr0 == 0 {
            _fxsave64(area);
        } else {
            core::arch::asm!("xsave64 [{}]", in(reg) area, in("eax") u32::MAX, in("edx") u32::MAX,
                options(nostack, preserves_flags));
        }
    }
}

#[unsafe(no_mangle)]
fn unilith_plat_load_fpu(state: &FpuState) {
    let area = state.bytes().as_ptr();
    // SAFETY: as above. The vector registers are the program's here; the kernel's own values in them do not live
    // across this call (the calling convention preserves none).
    unsafe {
        if features().xcr0 == 0 {
            _fxrstor64(area);
        } else {
            core::arch::asm!("xrstor64 [{}]", in(reg) area, in("eax") u32::MAX, in("edx") u32::MAX,
                options(nostack, preserves_flags));
        }
    }
}
