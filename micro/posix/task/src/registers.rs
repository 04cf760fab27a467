// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The registers of a stopped thread, as its tracer sees and changes them: `struct user_regs_struct`, `struct user` and
//! the extended state. Nothing that comes from the tracer is trusted: what goes back to the thread is what a program may
//! have, or the request fails.

use crate::signals::fpu;
use abi::{Result, errno::*};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_plat::{Entry, FpuState, TrapFrame};
use api_user::{USER_END, range_is_user};

/// Words of `struct user_regs_struct`.
pub const WORDS: usize = 27;
const RIP: usize = 16;
const CS: usize = 17;
const FLAGS: usize = 18;
const RSP: usize = 19;
const SS: usize = 20;
const FS_BASE: usize = 21;
const GS_BASE: usize = 22;
/// Bytes of `struct user`, and where it has the debug registers.
const USER_BYTES: u64 = 912;
const DEBUG_REGISTERS: u64 = 848;

const USER_CS: u64 = 0x33;
const USER_SS: u64 = 0x2b;
/// Flags a tracer may set: those that a program may.
const USER_FLAGS: u64 = 0x5_0dd5;
/// RFLAGS.TF
pub const TRAP_FLAG: u64 = 0x100;
/// The FXSAVE area.
const LEGACY_BYTES: usize = 512;
const MXCSR_MASK: usize = 28;
/// Where the area says which parts are enabled (`struct user_xstateregs`), and the header behind the legacy part.
const ENABLED: usize = 464;
const HEADER: usize = 512;

/// All registers of a stopped thread.
pub struct Registers {
    pub frame: TrapFrame,
    fs_base: u64,
    fpu: FpuState,
    /// The tracer wrote to them.
    changed: bool,
    fpu_changed: bool,
}

impl Registers {
    pub fn new() -> Result<Registers> {
        let frame = TrapFrame::at_start(0, 0);
        Ok(Registers {
            frame,
            fs_base: 0,
            fpu: api_plat::new_fpu_state()?,
            changed: false,
            fpu_changed: false,
        })
    }

    /// Takes over the running thread's.
    pub fn save(&mut self, frame: &TrapFrame) {
        self.frame = *frame;
        self.fs_base = api_plat::fs_base();
        api_plat::save_fpu(&mut self.fpu);
        fpu::publish(self.fpu.bytes_mut(), &frame.xmm, fpu::features());
        (self.changed, self.fpu_changed) = (false, false);
    }

    /// Gives them back to the running thread. True when the tracer changed any.
    pub fn restore(&mut self, frame: &mut TrapFrame) -> bool {
        if self.fpu_changed {
            api_plat::load_fpu(&self.fpu);
        }
        if self.changed {
            // SAFETY: the stack is the running thread's own, as it was before.
            unsafe { api_plat::activate(sched::current().stack_top(), self.fs_base) };
        }
        let changed = self.changed || self.fpu_changed;
        if changed {
            *frame = self.frame;
            self.complete(frame);
        }
        core::mem::take(&mut self.changed) | core::mem::take(&mut self.fpu_changed)
    }

    /// All registers of the frame count from now on: those that a system call leaves in the processor are put into it.
    fn complete(&self, frame: &mut TrapFrame) {
        frame.xmm = fpu::xmm(self.fpu.bytes(), fpu::features());
        frame.entry = Entry::Full;
    }

    /// The same for a frame of the running thread.
    pub fn complete_running(&mut self, frame: &mut TrapFrame) {
        if frame.entry == Entry::Call {
            api_plat::save_fpu(&mut self.fpu);
            fpu::publish(self.fpu.bytes_mut(), &frame.xmm, fpu::features());
            self.complete(frame);
        }
    }

    /// `struct user_regs_struct`.
    pub fn words(&self, to: &mut [u64; WORDS]) {
        let f = &self.frame;
        *to = [
            f.r15,
            f.r14,
            f.r13,
            f.r12,
            f.rbp,
            f.rbx,
            f.r11,
            f.r10,
            f.r9,
            f.r8,
            f.rax,
            f.rcx,
            f.rdx,
            f.rsi,
            f.rdi,
            f.orig_rax,
            f.rip,
            USER_CS,
            f.rflags,
            f.rsp,
            USER_SS,
            self.fs_base,
            0,
            0,
            0,
            0,
            0,
        ];
    }

    /// Sets one word of it. `EIO` for what a program cannot have there.
    pub fn put(&mut self, index: usize, value: u64) -> Result<()> {
        let f = &mut self.frame;
        match index {
            RIP if !range_is_user(value, 1) => return Err(EIO),
            RSP if !range_is_user(value, 0) => return Err(EIO),
            FS_BASE if value >= USER_END => return Err(EIO),
            // The GS base belongs to the kernel (arch_prctl(2) refuses it as well).
            GS_BASE if value != 0 => return Err(EIO),
            // Selectors are what they are; what no program could load is refused as on Linux.
            CS | SS if value as u16 == 0 => return Err(EIO),
            CS | SS | 23..=26 if value as u16 & 3 != 3 && value as u16 != 0 => return Err(EIO),
            CS | SS | GS_BASE | 23..=26 => return Ok(()),
            FLAGS => f.rflags = f.rflags & !USER_FLAGS | value & USER_FLAGS,
            FS_BASE => self.fs_base = value,
            _ => {
                let places = [
                    &mut f.r15,
                    &mut f.r14,
                    &mut f.r13,
                    &mut f.r12,
                    &mut f.rbp,
                    &mut f.rbx,
                    &mut f.r11,
                    &mut f.r10,
                    &mut f.r9,
                    &mut f.r8,
                    &mut f.rax,
                    &mut f.rcx,
                    &mut f.rdx,
                    &mut f.rsi,
                    &mut f.rdi,
                    &mut f.orig_rax,
                    &mut f.rip,
                ];
                match places.into_iter().nth(index) {
                    Some(place) => *place = value,
                    None if index == RSP => f.rsp = value,
                    None => return Err(EIO),
                }
            }
        }
        self.changed = true;
        Ok(())
    }

    /// Sets the words from the first on, up to one that is refused (as Linux' genregs_set does).
    pub fn put_all(&mut self, words: &[u64]) -> Result<()> {
        words.iter().take(WORDS).enumerate().try_for_each(|(i, word)| self.put(i, *word))
    }

    /// PTRACE_PEEKUSER. `EIO` outside of `struct user`, and between words.
    pub fn peek_user(&self, offset: u64) -> Result<u64> {
        check_user(offset)?;
        let mut words = [0; WORDS];
        self.words(&mut words);
        Ok(words.get(offset as usize / 8).copied().unwrap_or(0))
    }

    /// PTRACE_POKEUSER. The program's debug registers are always 0: no processor watches its memory here.
    pub fn poke_user(&mut self, offset: u64, value: u64) -> Result<()> {
        check_user(offset)?;
        match offset as usize / 8 {
            index if index < WORDS => self.put(index, value),
            _ if offset >= DEBUG_REGISTERS && value == 0 => Ok(()),
            _ => Err(EIO),
        }
    }

    /// The FXSAVE area (NT_PRFPREG).
    pub fn legacy(&self) -> &[u8] {
        &self.fpu.bytes()[..LEGACY_BYTES]
    }

    /// The whole area in standard format (NT_X86_XSTATE), which says by itself what is enabled.
    pub fn extended(&self) -> Result<Vec<u8>> {
        let mut area = Vec::new();
        let bytes = &self.fpu.bytes()[..self.extended_bytes()];
        area.reserve_exact_fallibly(bytes.len()).map_err(|_| ENOMEM)?;
        area.extend_from_slice(bytes);
        area[ENABLED..HEADER].fill(0);
        area[ENABLED..ENABLED + 8].copy_from_slice(&fpu::features().to_le_bytes());
        Ok(area)
    }

    /// What the processor has, without what the kernel's area is rounded up by: tracers know the size to the byte.
    pub fn extended_bytes(&self) -> usize {
        let most = self.fpu.bytes().len();
        match fpu::features() {
            0 => most,
            _ => most.min(core::arch::x86_64::__cpuid_count(0xd, 0).ebx as usize),
        }
    }

    /// Sets the FXSAVE area, or its beginning. `EINVAL` for bits that the processor would refuse.
    pub fn put_legacy(&mut self, bytes: &[u8]) -> Result<()> {
        let mut area = self.extended()?;
        let n = bytes.len().min(LEGACY_BYTES);
        area[..n].copy_from_slice(&bytes[..n]);
        area[ENABLED..HEADER].fill(0);
        area[ENABLED + 8..ENABLED + 16].copy_from_slice(&u64::MAX.to_le_bytes());
        // x87 and SSE are as they are given, whatever was in use before.
        const FP_SSE: u8 = 3;
        if fpu::features() != 0 {
            area[HEADER] |= FP_SSE;
        }
        self.accept(area)
    }

    /// Sets the whole area. `EFAULT` unless it is whole, `EINVAL` for what the processor would refuse.
    pub fn put_extended(&mut self, mut area: Vec<u8>) -> Result<()> {
        if area.len() != self.extended_bytes() {
            return Err(EFAULT);
        }
        area[ENABLED + 8..ENABLED + 16].copy_from_slice(&u64::MAX.to_le_bytes());
        self.accept(area)
    }

    fn accept(&mut self, mut area: Vec<u8>) -> Result<()> {
        let mask = fpu::mxcsr_mask(self.fpu.bytes());
        let length = area.len();
        fpu::accept(&mut area, fpu::Extent::Full(length), fpu::features(), mask).ok_or(EINVAL)?;
        // Which bits MXCSR has is the processor's to say: the next check goes by it.
        area[MXCSR_MASK..MXCSR_MASK + 4].copy_from_slice(&self.fpu.bytes()[MXCSR_MASK..MXCSR_MASK + 4]);
        let own = self.fpu.bytes_mut();
        own[length..].fill(0);
        own[..length].copy_from_slice(&area);
        self.fpu_changed = true;
        Ok(())
    }
}

fn check_user(offset: u64) -> Result<()> {
    if offset.is_multiple_of(8) && offset < USER_BYTES { Ok(()) } else { Err(EIO) }
}
