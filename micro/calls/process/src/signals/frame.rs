// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The frame of a signal handler on the program's stack: Linux' `struct rt_sigframe` for x86-64
//! (`arch/x86/include/asm/sigframe.h`), and rt_sigreturn(2), which takes it back.
//!
//! A handler may change the frame, and the program may make one up: whatever comes back is checked so far that
//! restoring it cannot make the kernel fault.
//!
//! An interrupted call that is to be made again is noted in the frame's `sc_reserved1` words, which Linux leaves
//! alone. (Linux moves RIP back to the `syscall` instruction instead; here the call may have come from a patched
//! site that has none.) The note counts only while RIP and RAX are what they were, so a handler that leaves through
//! setcontext(3) or changes the result wins. A made-up note makes a call, which any program may do anyway.

use abi::{Result, errno::EFAULT};
use api_plat::{Entry, FpuState, TrapFrame};
use api_user::{UserPtr, range_is_user, read_bytes, write_bytes};
use task::Task;
use task::call::Call;
use task::signals::action::{Action, SA_ONSTACK, SA_RESTORER};
use task::signals::fpu::{self, Extent};
use task::signals::stack::AltStack;
use task::signals::{self, SIGINFO_BYTES, SigInfo, SignalSet, Trap, bit};

/// The program's red zone (System V ABI for AMD64, 3.2.2).
const RED_ZONE: u64 = 128;
/// Selectors of user mode, which a program expects to see whatever privilege it runs with.
const USER_CS: u64 = 0x33;
const USER_SS: u64 = 0x2b;

/// Flags a program may set through a frame: AC, OF, DF, TF, SF, ZF, AF, PF, CF and RF (Linux' FIX_EFLAGS).
const USER_FLAGS: u64 = 0x5_0dd5;
/// Cleared for the handler: TF, DF, RF.
const HANDLER_CLEARS: u64 = 0x1_0500;

const UC_FP_XSTATE: u64 = 1;
const UC_SIGCONTEXT_SS: u64 = 2;
const UC_STRICT_RESTORE_SS: u64 = 4;

/// `struct rt_sigframe` as words: the return address, `ucontext`, `siginfo`.
const WORDS: usize = 1 + 38 + SIGINFO_BYTES / 8;
const BYTES: u64 = 8 * WORDS as u64;
// Index of each word, counted from the start of the frame.
const RETURN_ADDRESS: usize = 0;
const UC_FLAGS: usize = 1;
const UC_STACK: usize = 3;
/// R8 to R15, RDI, RSI, RBP, RBX, RDX, RAX, RCX, RSP, RIP, flags, selectors.
const REGISTERS: usize = 6;
const ERROR: usize = 25;
const TRAP_NUMBER: usize = 26;
const OLD_MASK: usize = 27;
const CR2: usize = 28;
const FPSTATE: usize = 29;
/// `sc_reserved1`, eight words.
const RESERVED: usize = 30;
const MASK: usize = 38;
const INFO: usize = 39;

/// Marks a noted restart; unlikely to be there by accident.
const RESTART_MAGIC: u64 = 0x7265_7374_6172_7421;

/// A call to be made again when the handler returns, and the registers that must not have changed meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Again {
    pub number: u64,
    rip: u64,
    rax: u64,
}

/// Where a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    /// The extended state, at a multiple of 64.
    fpu: u64,
    /// The frame; 8 above a multiple of 16, as after a call.
    frame: u64,
}

/// Below `sp` and its red zone, or at the top of the alternate stack; `None` when that stack is too small.
fn place(sp: u64, stack: &AltStack, on_stack: bool, fpu_bytes: u64) -> Option<Place> {
    let below = sp.checked_sub(RED_ZONE)?;
    let top = if on_stack { stack.top_for(below) } else { None };
    let start = top.unwrap_or(below);
    let fpu = start.checked_sub(fpu_bytes)? & !63;
    let frame = (fpu.checked_sub(BYTES)? & !15).checked_sub(8)?;
    let on_alternate = top.is_some() || stack.contains(sp);
    (!on_alternate || stack.bounds(frame)).then_some(Place { fpu, frame })
}

/// Everything of the frame but the extended state.
struct Contents<'a> {
    registers: &'a TrapFrame,
    flags: u64,
    trap: Trap,
    mask: SignalSet,
    stack: AltStack,
    fpu: u64,
    restorer: u64,
    info: SigInfo,
    again: Option<u64>,
}

impl Contents<'_> {
    fn to_words(&self) -> [u64; WORDS] {
        let f = self.registers;
        let mut words = [0; WORDS];
        words[RETURN_ADDRESS] = self.restorer;
        words[UC_FLAGS] = self.flags;
        words[UC_STACK..UC_STACK + 3].copy_from_slice(&self.stack.to_user());
        words[REGISTERS..REGISTERS + 19].copy_from_slice(&[
            f.r8,
            f.r9,
            f.r10,
            f.r11,
            f.r12,
            f.r13,
            f.r14,
            f.r15,
            f.rdi,
            f.rsi,
            f.rbp,
            f.rbx,
            f.rdx,
            f.rax,
            f.rcx,
            f.rsp,
            f.rip,
            f.rflags,
            USER_CS | USER_SS << 48,
        ]);
        words[ERROR] = self.trap.error;
        words[TRAP_NUMBER] = self.trap.vector;
        words[OLD_MASK] = self.mask;
        words[CR2] = self.trap.address;
        words[FPSTATE] = self.fpu;
        if let Some(number) = self.again {
            words[RESERVED..RESERVED + 4].copy_from_slice(&[RESTART_MAGIC, number, f.rip, f.rax]);
        }
        words[MASK] = self.mask;
        words[INFO..].copy_from_slice(&self.info.to_user());
        words
    }
}

/// Takes the registers of a frame over, except for what is the kernel's: selectors and system flags. `None` for a RIP
/// or RSP outside the program's half.
fn restore_registers(frame: &mut TrapFrame, words: &[u64; WORDS]) -> Option<()> {
    let r = &words[REGISTERS..REGISTERS + 18];
    if !range_is_user(r[16], 1) || !range_is_user(r[15], 0) {
        return None;
    }
    *frame = TrapFrame {
        r8: r[0],
        r9: r[1],
        r10: r[2],
        r11: r[3],
        r12: r[4],
        r13: r[5],
        r14: r[6],
        r15: r[7],
        rdi: r[8],
        rsi: r[9],
        rbp: r[10],
        rbx: r[11],
        rdx: r[12],
        rax: r[13],
        rcx: r[14],
        rsp: r[15],
        rip: r[16],
        rflags: frame.rflags & !USER_FLAGS | r[17] & USER_FLAGS,
        // No call is left to be made again by what a tracer sees.
        orig_rax: u64::MAX,
        entry: Entry::Full,
        ..*frame
    };
    Some(())
}

/// The noted restart of a frame whose registers were restored. To the handler the call has answered EINTR, and whoever changes the
/// frame goes by that, the signal mask included: musl's handler of cancellation blocks its signal in the frame and relies on the
/// answer, as it is not at the call itself that it finds the program (Linux shows that address).
fn noted_restart(frame: &TrapFrame, words: &[u64; WORDS]) -> Option<u64> {
    let [magic, number, rip, rax] = core::array::from_fn(|i| words[RESERVED + i]);
    let again = Again { number, rip, rax };
    let unchanged = again == Again { number, rip: frame.rip, rax: frame.rax };
    // Returning from a signal is never interrupted, so it is never to be made again.
    const RT_SIGRETURN: u64 = 15;
    let unchanged = unchanged && words[MASK] == words[OLD_MASK];
    (magic == RESTART_MAGIC && unchanged && number != RT_SIGRETURN).then_some(number)
}

/// Writes the frame for a handler and changes `registers` to enter it. `again` is the interrupted call when it is to
/// be made again. `Err` when the frame does not fit or the memory is not there.
pub fn enter_handler(
    task: &Task,
    registers: &mut TrapFrame,
    info: SigInfo,
    action: &Action,
    mask: SignalSet,
    again: Option<u64>,
) -> Result<()> {
    // Linux demands a restorer on x86-64 as well: the stack is not executable.
    if !action.has(SA_RESTORER) {
        return Err(EFAULT);
    }
    let mut state = match task.signals.scratch.lock().take() {
        Some(state) => state,
        None => api_plat::new_fpu_state()?,
    };
    let entered = write_frame(task, registers, info, action, mask, again, &mut state);
    *task.signals.scratch.lock() = Some(state);
    let place = entered?;
    registers.xmm = [[0; 2]; 16];
    registers.rax = 0;
    registers.rdi = info.signal() as u64;
    registers.rsi = place.frame + 8 * INFO as u64;
    registers.rdx = place.frame + 8 * UC_FLAGS as u64;
    registers.rsp = place.frame;
    registers.rip = action.handler;
    registers.rflags &= !HANDLER_CLEARS;
    registers.entry = Entry::Full;
    Ok(())
}

fn write_frame(
    task: &Task,
    registers: &TrapFrame,
    info: SigInfo,
    action: &Action,
    mask: SignalSet,
    again: Option<u64>,
    state: &mut FpuState,
) -> Result<Place> {
    if !range_is_user(action.handler, 1) {
        return Err(EFAULT);
    }
    let features = fpu::features();
    let stack = *task.signals.stack.lock();
    let fpu_bytes = (state.bytes().len() + fpu::TAIL_BYTES) as u64;
    let place = place(registers.rsp, &stack, action.has(SA_ONSTACK), fpu_bytes).ok_or(EFAULT)?;
    let contents = Contents {
        registers,
        flags: UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS | if features != 0 { UC_FP_XSTATE } else { 0 },
        trap: *task.signals.trap.lock(),
        mask,
        stack,
        fpu: place.fpu,
        restorer: action.restorer,
        info,
        again,
    };
    // The processor still holds the program's state (all but XMM). Writing the frame may block and run another
    // thread; the scheduler keeps the state then, and this copy is as good.
    api_plat::save_fpu(state);
    fpu::publish(state.bytes_mut(), &registers.xmm, features);
    UserPtr::new(place.frame).write_slice(&contents.to_words())?;
    write_bytes(place.fpu, state.bytes())?;
    if features != 0 {
        write_bytes(place.fpu + state.bytes().len() as u64, &fpu::tail())?;
    }
    fpu::initialise(state.bytes_mut());
    api_plat::load_fpu(state);
    if stack.disarms() {
        *task.signals.stack.lock() = AltStack::DISARMED;
    }
    Ok(place)
}

/// rt_sigreturn(2).
pub fn rt_sigreturn(call: &mut Call<'_>) -> Result<usize> {
    call.keep_registers = true;
    let task = task::current();
    if leave_handler(&task, call.frame).is_err() {
        signals::force_bad_frame(&task, 0);
    }
    Ok(0)
}

fn leave_handler(task: &Task, frame: &mut TrapFrame) -> Result<()> {
    // The handler's `ret` took the return address.
    let words: [u64; WORDS] = UserPtr::new(frame.rsp.wrapping_sub(8)).read()?;
    let sp_of_handler = frame.rsp;
    task.signals.set_blocked(words[MASK]);
    let mut registers = *frame;
    restore_registers(&mut registers, &words).ok_or(EFAULT)?;
    let mut state = match task.signals.scratch.lock().take() {
        Some(state) => state,
        None => api_plat::new_fpu_state()?,
    };
    let restored = restore_fpu(&mut state, words[FPSTATE], &mut registers);
    *task.signals.scratch.lock() = Some(state);
    restored?;
    *frame = registers;
    *task.signals.again.lock() = noted_restart(frame, &words);
    // A stack that cannot be restored stays as it is (Linux ignores these errors as well).
    let [base, flags, size] = core::array::from_fn(|i| words[UC_STACK + i]);
    let wanted = AltStack::from_user([base, flags, size]);
    let mut stack = task.signals.stack.lock();
    if let Ok(after) = stack.replaced(wanted, sp_of_handler) {
        *stack = after;
    }
    Ok(())
}

/// Loads the extended state at `pointer` (null: the initial one); XMM registers go to `registers`.
fn restore_fpu(state: &mut FpuState, pointer: u64, registers: &mut TrapFrame) -> Result<()> {
    let features = fpu::features();
    if pointer == 0 {
        fpu::initialise(state.bytes_mut());
    } else {
        api_plat::save_fpu(state);
        let mask = fpu::mxcsr_mask(state.bytes());
        let own_size = state.bytes().len();
        let area = state.bytes_mut();
        read_bytes(pointer, &mut area[..512])?;
        let mut extent = fpu::extent(&area[..512], own_size, features);
        if let Extent::Full(size) = extent {
            let mut tail = [0; fpu::TAIL_BYTES];
            if read_bytes(pointer.wrapping_add(size as u64), &mut tail).is_ok() && tail == fpu::tail() {
                read_bytes(pointer + 512, &mut area[512..size])?;
            } else {
                extent = Extent::Legacy;
            }
        }
        fpu::accept(area, extent, features, mask).ok_or(EFAULT)?;
    }
    registers.xmm = fpu::xmm(state.bytes(), features);
    api_plat::load_fpu(state);
    Ok(())
}

/// What is blocked while the handler of `signal` runs.
pub fn handler_mask(blocked: SignalSet, action: &Action, signal: i32) -> SignalSet {
    let own = if action.has(task::signals::action::SA_NODEFER) { 0 } else { bit(signal) };
    blocked | action.mask | own
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use api_plat::Entry;

    pub fn program_frame() -> TrapFrame {
        TrapFrame {
            xmm: [[0; 2]; 16],
            orig_rax: u64::MAX,
            r15: 15,
            r14: 14,
            r13: 13,
            r12: 12,
            rbp: 105,
            rbx: 103,
            r11: 11,
            r10: 10,
            r9: 9,
            r8: 8,
            rdi: 107,
            rsi: 106,
            rdx: 102,
            rcx: 101,
            rax: 100,
            entry: Entry::Call,
            rip: 0x40_1000,
            cs: 8,
            rflags: 0x202,
            rsp: 0x6fff_0000_1238,
            ss: 16,
        }
    }

    fn words(frame: &TrapFrame, again: Option<u64>) -> [u64; WORDS] {
        Contents {
            registers: frame,
            flags: UC_FP_XSTATE | UC_SIGCONTEXT_SS,
            trap: Trap { vector: 14, error: 6, address: 0x1234 },
            mask: 0xf0,
            stack: AltStack::NONE,
            fpu: 0x7000,
            restorer: 0x5000,
            info: SigInfo::fault(11, 1, 0x1234),
            again,
        }
        .to_words()
    }

    /// The layout as `asm/sigcontext.h` and `asm/ucontext.h` write it down.
    #[repr(C)]
    struct RtSigframe {
        pretcode: u64,
        uc_flags: u64,
        uc_link: u64,
        uc_stack: abi::linux::general::sigaltstack,
        r8_to_r15: [u64; 8],
        di: u64,
        si: u64,
        bp: u64,
        bx: u64,
        dx: u64,
        ax: u64,
        cx: u64,
        sp: u64,
        ip: u64,
        flags: u64,
        cs: u16,
        gs: u16,
        fs: u16,
        ss: u16,
        err: u64,
        trapno: u64,
        oldmask: u64,
        cr2: u64,
        fpstate: u64,
        reserved1: [u64; 8],
        uc_sigmask: u64,
        info: abi::linux::general::siginfo,
    }

    #[test]
    fn words_lie_where_the_structures_of_linux_have_them() {
        use core::mem::offset_of;
        assert_eq!(size_of::<RtSigframe>(), 8 * WORDS);
        assert_eq!(offset_of!(RtSigframe, info), 8 * INFO);
        let words = words(&program_frame(), Some(7));
        // SAFETY: the structure is plain data of the same size.
        let native: RtSigframe = unsafe { core::ptr::read_unaligned(words.as_ptr().cast()) };
        assert_eq!(native.r8_to_r15, [8, 9, 10, 11, 12, 13, 14, 15]);
        let [di, si, bp, bx, dx, ax, cx] =
            [native.di, native.si, native.bp, native.bx, native.dx, native.ax, native.cx];
        assert_eq!([ax, cx, dx, bx, bp, si, di], [100, 101, 102, 103, 105, 106, 107]);
        assert_eq!((native.sp, native.ip, native.flags), (0x6fff_0000_1238, 0x40_1000, 0x202));
        assert_eq!((native.cs, native.gs, native.fs, native.ss), (0x33, 0, 0, 0x2b));
        assert_eq!((native.err, native.trapno, native.cr2), (6, 14, 0x1234));
        assert_eq!((native.oldmask, native.uc_sigmask, native.fpstate), (0xf0, 0xf0, 0x7000));
        assert_eq!((native.pretcode, native.uc_stack.ss_flags), (0x5000, 0));
        assert_eq!(native.reserved1[..4], [RESTART_MAGIC, 7, 0x40_1000, 100]);
        let _ = (native.uc_flags, native.uc_link, native.info);
    }

    #[test]
    fn the_frame_keeps_the_red_zone_and_the_alignment_of_a_call() {
        let sp = 0x6fff_0000_1238;
        let place = place(sp, &AltStack::NONE, true, 836).unwrap();
        assert!(place.fpu + 836 <= sp - RED_ZONE);
        assert!(place.frame + BYTES <= place.fpu);
        assert_eq!((place.fpu % 64, place.frame % 16), (0, 8));
    }

    #[test]
    fn the_alternate_stack_is_used_when_asked_for_and_never_overflown() {
        let stack = |size| AltStack::from_user([0x10_0000, 0, size]);
        let sp = 0x6fff_0000_1238;
        let at = |size, on_stack, sp| place(sp, &stack(size), on_stack, 836);
        let first = at(8192, true, sp).unwrap().frame;
        assert!((0x10_0000..0x10_2000).contains(&first));
        assert!(at(8192, false, sp).unwrap().frame > 0x10_2000);
        let nested = at(8192, true, first).unwrap().frame;
        assert!((0x10_0000..first).contains(&nested));
        assert_eq!(at(1024, true, sp), None);
        assert_eq!(at(8192, true, 0x10_0100), None, "a nested handler without room");
    }

    #[test]
    fn registers_come_back_and_system_flags_do_not() {
        let before = program_frame();
        let mut words = words(&before, None);
        words[REGISTERS + 17] = u64::MAX;
        let mut frame = TrapFrame { rax: 0, r8: 0, rip: 1, ..before };
        restore_registers(&mut frame, &words).unwrap();
        assert_eq!((frame.rax, frame.r8, frame.rip), (100, 8, 0x40_1000));
        assert_eq!(frame.rflags, 0x202 | USER_FLAGS);
        assert_eq!((frame.cs, frame.ss), (before.cs, before.ss));
        words[REGISTERS + 16] = 0xffff_ffff_8020_0000;
        assert!(restore_registers(&mut frame, &words).is_none());
    }

    #[test]
    fn a_call_is_made_again_only_where_it_was_interrupted() {
        let frame = program_frame();
        let noted = words(&frame, Some(7));
        assert_eq!(noted_restart(&frame, &noted), Some(7));
        assert_eq!(noted_restart(&TrapFrame { rip: 0x40_1001, ..frame }, &noted), None);
        assert_eq!(noted_restart(&TrapFrame { rax: 3, ..frame }, &noted), None);
        assert_eq!(noted_restart(&frame, &words(&frame, None)), None);
        assert_eq!(noted_restart(&frame, &words(&frame, Some(15))), None);
        let mut masked = noted;
        masked[MASK] |= 1 << 31;
        assert_eq!(noted_restart(&frame, &masked), None, "the handler blocked a signal behind it");
    }
}
