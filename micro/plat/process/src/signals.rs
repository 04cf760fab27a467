// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Signals of the host: the processor's exceptions, the timer, the request to stop, and system calls by the `syscall`
//! instruction (Syscall User Dispatch).
//!
//! All come on one alternate stack, and none is ever masked. What hit the program, or a copy from or to its memory,
//! leaves the alternate stack by a jump to the thread's kernel stack; the extended state is loaded from the signal's
//! frame first, as sigreturn would. What hit other kernel code touches atomics and goes back.
//!
//! What hits the tracer is put off ([`crate::idle::TRACED`]): it is not reentrant, and code may be half changed. While a
//! handler runs nothing is traced, since the tracer's stack would hide from the host that the alternate one is in use.

use crate::domain::{self, Hit};
pub use crate::filter::KICK;
use crate::host;
use crate::{console, host_processes, idle, processors, stack, template};
use abi::Result;
use api_plat::domain::GATE;
use api_plat::{CODE_SEGMENT, DATA_SEGMENT, Entry, Status, TrapFrame, upcall};
use core::ops::Range;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use plat_x86::asm::Label;
use plat_x86::trap::{self, Origin, PAGE_FAULT, Trap, origin};
use plat_x86::{cpu, crash, features};

const SIGHUP: u32 = 1;
pub const SIGINT: u32 = 2;
const SIGQUIT: u32 = 3;
const SIGILL: u32 = 4;
const SIGTRAP: u32 = 5;
const SIGBUS: u32 = 7;
const SIGFPE: u32 = 8;
const SIGSEGV: u32 = 11;
const SIGPIPE: u32 = 13;
pub const SIGCHLD: u32 = 17;
/// SIGALRM
pub const TIMER: u32 = 14;
pub const SIGTERM: u32 = 15;
const SIGTTIN: u32 = 21;
const SIGTTOU: u32 = 22;
/// A file would become larger than RLIMIT_FSIZE lets it: the call says so as well.
const SIGXFSZ: u32 = 25;
const SIGSYS: u32 = 31;

/// Vectors of [`Trap`] that no processor has: work is wanted; a system call by the instruction.
const WORK: u32 = 300;
const CALL: u32 = 301;
const GENERAL_PROTECTION: u32 = 13;

const SYS_SECCOMP: i32 = 1;
const SYS_USER_DISPATCH: i32 = 2;
const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
/// Bytes of `int 0x80`, and what its #GP pushes where there is no such gate.
const INT_80_LENGTH: u64 = 2;
const INT_80_ERROR: u64 = 0x80 << 3 | 2;
/// The same of an overlay program's call of the kernel.
const GATE_LENGTH: u64 = 2;
const GATE_ERROR: u64 = (GATE as u64) << 3 | 2;

/// `siginfo_t`, as far as it matters here.
#[repr(C)]
struct SigInfo {
    signal: i32,
    errno: i32,
    code: i32,
    pad: i32,
    /// SIGSYS: where the call was made.
    address: u64,
    /// SIGSYS: number and architecture.
    number: i32,
    architecture: u32,
}

/// `ucontext_t` with `struct sigcontext` (arch/x86/include/uapi/asm/sigcontext.h).
#[repr(C)]
struct Context {
    flags: u64,
    link: u64,
    stack: [u64; 3],
    r8: u64,
    r9: u64,
    r10: u64,
    r11: u64,
    r12: u64,
    r13: u64,
    r14: u64,
    r15: u64,
    rdi: u64,
    rsi: u64,
    rbp: u64,
    rbx: u64,
    rdx: u64,
    rax: u64,
    rcx: u64,
    rsp: u64,
    rip: u64,
    rflags: u64,
    segments: u64,
    error: u64,
    vector: u64,
    mask: u64,
    cr2: u64,
    extended: *const u8,
}

/// Where the XMM registers are in an FXSAVE area, and what Linux writes behind them (struct _fpx_sw_bytes).
const XMM: usize = 160;
const SOFTWARE: usize = 464;
const FP_XSTATE_MAGIC1: u32 = 0x4650_5853;

impl Context {
    /// The registers, but for XMM.
    fn general(&self) -> TrapFrame {
        TrapFrame {
            xmm: [[0; 2]; 16],
            orig_rax: u64::MAX,
            r15: self.r15,
            r14: self.r14,
            r13: self.r13,
            r12: self.r12,
            rbp: self.rbp,
            rbx: self.rbx,
            r11: self.r11,
            r10: self.r10,
            r9: self.r9,
            r8: self.r8,
            rdi: self.rdi,
            rsi: self.rsi,
            rdx: self.rdx,
            rcx: self.rcx,
            rax: self.rax,
            entry: Entry::Full,
            rip: self.rip,
            cs: CODE_SEGMENT,
            rflags: self.rflags,
            rsp: self.rsp,
            ss: DATA_SEGMENT,
        }
    }

    /// All of them.
    fn frame(&self) -> TrapFrame {
        let mut frame = self.general();
        if !self.extended.is_null() {
            // SAFETY: the host wrote an FXSAVE area there.
            frame.xmm = unsafe { self.extended.add(XMM).cast::<[[u64; 2]; 16]>().read_unaligned() };
        }
        frame
    }

    /// Gives the processor the extended state back that the signal found; the XMM registers are in the TrapFrame.
    fn load_extended(&self) {
        if self.extended.is_null() {
            return;
        }
        // SAFETY: the host wrote the area, in the standard format, aligned to 64 bytes, with the components it names.
        unsafe {
            let magic = self.extended.add(SOFTWARE).cast::<u32>().read();
            if magic == FP_XSTATE_MAGIC1 {
                let components = self.extended.add(SOFTWARE + 8).cast::<u64>().read();
                let (low, high) = (components as u32, (components >> 32) as u32);
                core::arch::asm!("xrstor64 [{}]", in(reg) self.extended, in("eax") low, in("edx") high,
                    options(nostack, preserves_flags));
            } else {
                core::arch::x86_64::_fxrstor64(self.extended);
            }
        }
    }
}

/// The alternate stack: room for a frame with the largest extended state there is, and those nested in it, of which there are few:
/// each kind of signal comes again only after its handler armed the timer or the kernel took its work
/// ([`processors::unilith_plat_kick`]). Each host process has its own; it can be written in every domain.
pub fn alternate_stack() -> Range<u64> {
    template::ALTERNATE..template::ALTERNATE + template::ALTERNATE_BYTES
}

unsafe extern "C" {
    safe static unilith_signal: Label;
    safe static unilith_restore: Label;
    safe static unilith_wait_check: Label;
    safe static unilith_wait_tail: Label;
}

fn set_action(signal: u32, handler: u64) -> Result<()> {
    // SA_SIGINFO, SA_RESTORER, SA_ONSTACK, SA_NODEFER
    const FLAGS: u64 = 4 | 0x0400_0000 | 0x0800_0000 | 0x4000_0000;
    // `struct sigaction` of the kernel: handler, flags, restorer, mask.
    let action = [handler, FLAGS, unilith_restore.address(), 0];
    // SAFETY: the host reads the structure; the handler keeps to what this module says.
    unsafe { host::call(host::RT_SIGACTION, [signal.into(), action.as_ptr() as u64, 0, 8, 0, 0]) }.map(|_| ())
}

/// Lets signals that hit this thread of the host arrive on this stack, which stays.
pub fn use_stack(start: u64, bytes: u64) -> Result<()> {
    let stack = [start, 0, bytes];
    // SAFETY: the stack is the caller's and lives for ever.
    unsafe { host::call(host::SIGALTSTACK, [stack.as_ptr() as u64, 0, 0, 0, 0, 0]) }.map(|_| ())
}

/// Not 0: the program has WRGSBASE, and `start.s` looks at GS base.
pub static FSGSBASE: AtomicU32 = AtomicU32::new(0);

/// Signals arrive from here on.
pub fn initialize() -> Result<()> {
    const SIG_IGN: u64 = 1;
    use_stack(template::ALTERNATE, template::ALTERNATE_BYTES)?;
    FSGSBASE.store(features::features().fsgsbase.into(), Ordering::Relaxed);
    for signal in [SIGINT, SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV, TIMER, SIGTERM, SIGCHLD, SIGSYS, KICK] {
        set_action(signal, unilith_signal.address())?;
    }
    for signal in [SIGHUP, SIGQUIT, SIGPIPE, SIGTTIN, SIGTTOU, SIGXFSZ] {
        set_action(signal, SIG_IGN)?;
    }
    // A parent may have masked some.
    const RT_SIGPROCMASK: u32 = 14;
    const SIG_SETMASK: u64 = 2;
    let none = 0u64;
    // SAFETY: the host reads the mask.
    unsafe { host::call(RT_SIGPROCMASK, [SIG_SETMASK, &raw const none as u64, 0, 8, 0, 0]) }.map(|_| ())
}

/// A process whose children end with a jump there: to end itself.
pub fn end_with_children(handler: u64) -> Result<()> {
    set_action(SIGCHLD, handler)
}

/// A signal, on the alternate stack, and the domain of the overlay program that it ended or 0. Answers 0 to go back by
/// sigreturn, or where the Trap is that is to be handled.
#[unsafe(no_mangle)]
extern "C" fn unilith_process_signal(
    signal: u32,
    info: *const SigInfo,
    context: *mut Context,
    domain: u64,
) -> u64 {
    let overlay = match domain {
        0 => None,
        d if d == Entry::OverlayWriting as u64 => Some(Entry::OverlayWriting),
        _ => Some(Entry::Overlay),
    };
    // SAFETY: the host made both, for this handler alone.
    let (info, context) = unsafe { (&*info, &mut *context) };
    match signal {
        TIMER => {
            idle::tick(&context.general());
            interrupt(context, overlay)
        }
        SIGINT | SIGTERM => {
            console::stop();
            interrupt(context, overlay)
        }
        SIGSYS => call(info, context, overlay),
        SIGCHLD => host_processes::lost(),
        // Somebody sent it: the processor has no part in it.
        _ if info.code <= 0 => interrupt(context, overlay),
        _ => {
            let vector = context.vector as u32;
            let address = if vector == PAGE_FAULT { context.cr2 } else { 0 };
            if overlay.is_none() && vector == PAGE_FAULT && stack::show_here(address) {
                // This host process had not touched the stack before.
                return 0;
            }
            let mut frame = context.general();
            if overlay.is_none() && trap::begin_call_again(&mut frame, vector) {
                (context.rip, context.rsp) = (frame.rip, frame.rsp);
                return 0;
            }
            if overlay.is_none() && trap::clear_flag(&mut frame, vector) {
                context.rflags = frame.rflags;
                return 0;
            }
            exception(context, overlay, vector, context.error, address)
        }
    }
}

/// It came while an overlay program ran. The way back into its domain begins on the thread's stack, whether there is work or
/// not.
fn interrupt_overlay(context: &mut Context, entry: Entry) -> u64 {
    match domain::hit(context.rip, context.rsp) {
        Hit::WayIn => {
            (context.rip, context.rsp) = domain::again();
            0
        }
        Hit::WayOut => {
            // The host gave several signals at once, and the other one has yet to see what it hit.
            cpu::set_domain(entry as u64);
            0
        }
        Hit::Program => {
            let trap = trap::move_off_in_domain(&context.frame(), WORK, entry);
            context.load_extended();
            trap
        }
    }
}

fn interrupt(context: &mut Context, overlay: Option<Entry>) -> u64 {
    if let Some(entry) = overlay {
        return interrupt_overlay(context, entry);
    }
    let mut frame = context.general();
    match origin(&mut frame) {
        Origin::Program if cpu::work_is_wanted() => {
            let rip = frame.rip;
            frame = context.frame();
            frame.rip = rip;
            let trap = trap::move_off_program(&frame, WORK);
            context.load_extended();
            trap
        }
        Origin::Program => 0,
        Origin::Kernel => {
            // In the middle of the way out, or of the way to sleep: the check for work is made again.
            context.rip = frame.rip;
            if (unilith_wait_check.address()..=unilith_wait_tail.address()).contains(&context.rip) {
                context.rip = unilith_wait_check.address();
            }
            0
        }
        Origin::Leaving => {
            // The registers are loaded from the same TrapFrame again.
            context.rsp -= core::mem::offset_of!(TrapFrame, rip) as u64;
            context.rip = plat_x86::asm::unilith_full_check.address();
            0
        }
    }
}

fn exception(context: &Context, overlay: Option<Entry>, vector: u32, error: u64, address: u64) -> u64 {
    let mut frame = context.frame();
    let trap = match overlay {
        None => trap::move_off(&mut frame, vector, error, address),
        Some(_) if matches!(domain::hit(frame.rip, frame.rsp), Hit::WayIn) => domain::refused(),
        Some(entry) if vector == GENERAL_PROTECTION && error == GATE_ERROR => {
            frame.rip += GATE_LENGTH;
            trap::move_off_overlay(&frame, GATE.into(), 0, 0, entry)
        }
        Some(entry) => trap::move_off_overlay(&frame, vector, error, address, entry),
    };
    context.load_extended();
    trap
}

/// A call of the host that was not made.
fn call(info: &SigInfo, context: &mut Context, overlay: Option<Entry>) -> u64 {
    let mut frame = context.frame();
    let by_program = overlay.is_some() || matches!(origin(&mut frame), Origin::Program);
    match info.code {
        SYS_USER_DISPATCH
            if let Some(entry) = overlay
                && info.architecture == AUDIT_ARCH_X86_64 =>
        {
            frame.rax = info.number as i64 as u64;
            frame.orig_rax = frame.rax;
            let trap = trap::move_off_in_domain(&frame, trap::SYSTEM_CALL, entry);
            context.load_extended();
            trap
        }
        SYS_USER_DISPATCH if by_program && info.architecture == AUDIT_ARCH_X86_64 => {
            frame.rax = info.number as i64 as u64;
            frame.orig_rax = frame.rax;
            let trap = trap::move_off_program(&frame, CALL);
            context.load_extended();
            trap
        }
        SYS_USER_DISPATCH if by_program => {
            // `int 0x80`: to a processor without that gate a general protection fault.
            context.rip -= INT_80_LENGTH;
            exception(context, overlay, GENERAL_PROTECTION, INT_80_ERROR, 0)
        }
        // The page of vsyscalls, which the host emulates.
        SYS_SECCOMP if by_program => exception(context, overlay, GENERAL_PROTECTION, 0, 0),
        SYS_SECCOMP => {
            log::error!("the host call {} is not allowed", info.number);
            crash::exception(&frame, WORK, info.number as u64, 0)
        }
        _ => 0,
    }
}

/// Calls that came by the `syscall` instruction.
static CALLS: AtomicU64 = AtomicU64::new(0);

/// How many system calls came by the `syscall` instruction, each 200 times as dear as one from a patched site.
pub fn trapped_calls() -> u64 {
    CALLS.load(Ordering::Relaxed)
}

/// Handles a trap on the thread's stack. Answers true when the kernel was hit and goes on.
#[unsafe(no_mangle)]
extern "C" fn unilith_trap(trap: *mut Trap) -> bool {
    // SAFETY: it was put there with its TrapFrame behind it; nobody else has a reference to them.
    let (trap, frame) = unsafe { (&*trap, &mut *trap.add(1).cast::<TrapFrame>()) };
    if processors::several() && !trap.in_kernel {
        processors::unilith_kernel_lock();
    }
    match trap.vector {
        WORK => {
            // As the way out does: asked for and about to be done.
            api_plat::take_work();
            upcall::unilith_kernel_work(frame);
            false
        }
        CALL => {
            let count = CALLS.fetch_add(1, Ordering::Relaxed) + 1;
            // Rare, or the program makes code of its own: told at 1, 10, 100…, and at the end.
            if 10u64.pow(count.ilog10()) == count {
                api_plat::status(&Status::Trapped { count });
            }
            upcall::unilith_kernel_syscall(frame);
            false
        }
        _ => trap::handle(trap, frame),
    }
}
