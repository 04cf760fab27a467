// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a platform gives the kernel, and what the kernel gives the platform.
//!
//! Two platforms implement it: `plat/pc` (guest of QEMU, Firecracker) and `plat/process` (a sandboxed Linux
//! process). Exactly one is linked; the functions are `extern "Rust"` symbols, so a call costs a call.
//!
//! # Contract
//!
//! - **Execution contexts.** *Program*: the program's code on the program's stack, interruptible. *Thread*: kernel
//!   code on the thread's kernel stack, entered by a system call, an exception or an interrupt of the program;
//!   never preempted. *Interrupt*: an interrupt that hits thread context runs its handler on a stack of its own,
//!   touches atomics only (acknowledges the device, raises deferred work) and returns. An interrupt
//!   that hits the program runs its handler and then the upcall `kernel_work` in thread context with the program's
//!   registers in a [`TrapFrame`].
//! - **Registers.** A system call preserves every register Linux preserves: all but RAX, RCX and R11, vector
//!   registers included. The kernel is compiled with SSE and without AVX, so entry saves the first [`FRAME_VECTORS`]
//!   XMM registers in the [`TrapFrame`]; the others, upper halves and the rest of the extended state stay in the processor
//!   until another program thread runs, and are switched by [`switch`].
//!   Code that is not part of the checked image (loaded while it runs) may use the others only on a thread with
//!   extended state of its own, or between [`save_fpu`] and [`load_fpu`].
//! - **Processors.** There may be several ([`cpus`]), of which one at a time is in thread context: the kernel's code is
//!   written for one. The others run the program, wait to come in, or wait in [`idle`], and handle interrupts. So thread
//!   context on one processor begins where another one left for the program or went idle, and a thread that was switched
//!   away may go on on another processor. Until the scheduler has a use for them ([`admit`]), and when something needs
//!   that ([`dismiss`]), the first one is alone, and takes no lock.
//! - **Red zone.** Program and kernel use it, so nothing is ever pushed on an interrupted stack above RSP - 128.
//! - **FS base** belongs to the program (TLS), GS base to the kernel. The kernel uses no TLS.
//! - Panics of the kernel end the machine with a report on the console and [`Status::Failed`].
#![no_std]

pub use api_boot::{BootConfig, Ipv4Prefix, Status};

/// How the program entered the kernel, and so how it is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Entry {
    /// A system call: RCX and R11 need not be restored.
    Call = 0,
    /// An exception or interrupt, or a frame changed by signal delivery: everything is restored.
    Full = 1,
    /// A program of the overlay, which may write its own memory only ([`domain`]).
    Overlay = 2,
    /// The same, which may write the application's memory as well.
    OverlayWriting = 3,
}

impl Entry {
    /// It is a program of the overlay that entered the kernel.
    pub fn is_overlay(self) -> bool {
        matches!(self, Entry::Overlay | Entry::OverlayWriting)
    }
}

/// XMM registers that a system call saves: those the kernel uses. Compilers take the lowest first and the kernel has no
/// wide arithmetic, so these are few, but nothing makes a compiler do so. The feature `few-vectors` is therefore only for
/// who then checks the linked image, as the command does; without it all are saved.
pub const FRAME_VECTORS: usize = if cfg!(feature = "few-vectors") { 6 } else { 16 };

/// The program's registers while the kernel runs, at the top of the thread's kernel stack.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(16))]
pub struct TrapFrame {
    /// Of a system call ([`Entry::Call`]) only the first [`FRAME_VECTORS`] are here; the processor holds the others.
    pub xmm: [[u64; 2]; 16],
    /// System-call number on entry, kept while RAX gets the result; `u64::MAX` when it was not a system call.
    pub orig_rax: u64,
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rdi: u64,
    pub rsi: u64,
    pub rdx: u64,
    pub rcx: u64,
    /// System-call number on entry, return value on exit.
    pub rax: u64,
    pub entry: Entry,
    pub rip: u64,
    pub cs: u64,
    pub rflags: u64,
    pub rsp: u64,
    pub ss: u64,
}

impl TrapFrame {
    /// The registers of a program at its first instruction: all zero but RIP and RSP (psABI 3.4.1), interrupts on,
    /// and the kernel's own segments, which the program shares.
    pub fn at_start(rip: u64, rsp: u64) -> TrapFrame {
        let (cs, ss): (u64, u64);
        // SAFETY: reads two segment registers.
        unsafe {
            core::arch::asm!("mov {0:e}, cs", "mov {1:e}, ss", out(reg) cs, out(reg) ss,
                options(nomem, nostack, preserves_flags));
        }
        TrapFrame {
            xmm: [[0; 2]; 16],
            orig_rax: u64::MAX,
            r15: 0,
            r14: 0,
            r13: 0,
            r12: 0,
            rbp: 0,
            rbx: 0,
            r11: 0,
            r10: 0,
            r9: 0,
            r8: 0,
            rdi: 0,
            rsi: 0,
            rdx: 0,
            rcx: 0,
            rax: 0,
            entry: Entry::Full,
            rip,
            cs,
            rflags: 0x202,
            rsp,
            ss,
        }
    }
}

/// A processor exception raised by program code (or by the kernel touching the program's memory).
#[derive(Clone, Copy, Debug)]
pub struct Exception {
    /// x86 vector: 0 divide error, 1 debug, 3 breakpoint, 6 invalid opcode, 13 general protection, 14 page fault…
    pub vector: u8,
    pub error: u64,
    /// CR2 for page faults, else 0.
    pub address: u64,
    /// What the upcall `kernel_page_fault` answered to a page fault that it did not resolve; `None` for other
    /// vectors.
    pub fault: Option<FaultOutcome>,
}

/// Access that faulted, from the page-fault error code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
    Execute,
}

/// What page-fault handling decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultOutcome {
    /// The page is there now: run the instruction again.
    Resolved,
    /// Nothing is mapped there, or not with this right: SIGSEGV (`si_code` SEGV_MAPERR or SEGV_ACCERR).
    Segv { mapped: bool },
    /// Behind the end of the file, or the file could not be read: SIGBUS.
    Bus,
    /// No memory left.
    OutOfMemory,
}

mod layout;
pub use layout::*;

/// Free physical memory, from `start` to before `end`, both multiples of the page size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRange {
    pub start: u64,
    pub end: u64,
}

/// The vDSO: physical addresses of its two pages, which are the kernel's for ever.
#[derive(Clone, Copy, Debug)]
pub struct Vdso {
    /// To be mapped read-only, directly below `code`.
    pub data: u64,
    /// An ELF file, to be mapped readable and executable; AT_SYSINFO_EHDR is its address.
    pub code: u64,
}

/// What the platform found at boot.
pub struct Boot {
    pub config: BootConfig,
    /// The initial RAM disk, at a page boundary, permanent.
    pub initrd: &'static [u8],
    /// Bytes of memory the machine was given.
    pub memory: u64,
    /// Physical address of `initrd` (for use of its pages in place).
    pub initrd_physical: u64,
}

/// Saved kernel context of a thread that is off the processor: callee-saved registers are on its kernel stack.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Context {
    pub rsp: u64,
}

/// Extended processor state (x87, MXCSR, vector registers) of a program thread that is off the processor.
/// Allocated by [`new_fpu_state`]; its size is what XSAVE needs here.
pub struct FpuState(alloc::boxed::Box<[FpuBlock]>);

impl FpuState {
    /// For the platform.
    ///
    /// # Safety
    ///
    /// The blocks are as many as XSAVE writes and XRSTOR reads on this processor, and hold a state that XRSTOR takes.
    pub unsafe fn from_blocks(blocks: alloc::boxed::Box<[FpuBlock]>) -> FpuState {
        FpuState(blocks)
    }

    /// The XSAVE area.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: a block is 64 plain bytes without padding, and the slice covers exactly the boxed blocks.
        unsafe { core::slice::from_raw_parts(self.0.as_ptr().cast::<u8>(), size_of_val(&*self.0)) }
    }

    /// The XSAVE area; [`load_fpu`] says what it must hold.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and any bytes are a valid block.
        unsafe { core::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast::<u8>(), size_of_val(&*self.0)) }
    }
}

/// XSAVE areas are aligned to 64 bytes.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub struct FpuBlock(pub [u8; 64]);

extern crate alloc;

/// A system call without its [`TrapFrame`]: the six arguments, and the result or negative errno.
pub type FastCall = extern "C" fn(u64, u64, u64, u64, u64, u64) -> u64;

/// Lets system call `number` enter `call` directly, without saving vector registers.
///
/// # Safety
///
/// Neither `call` nor anything it calls touches a vector register: it is `#[unsafe(no_mangle)]`, its name begins with
/// `unilith_fast_`, and the test `fast_calls_touch_no_vector_register_and_no_strings` disassembles it. It does not block, but for
/// faults of its copies to and from the program's memory.
pub unsafe fn set_fast_call(number: u32, call: FastCall) {
    // SAFETY: by the caller's word.
    unsafe { symbols::unilith_plat_set_fast_call(number, call) }
}

/// The call takes the full path again. Kernel code is never preempted, so no thread is on the way to the fast one.
pub fn clear_fast_call(number: u32) {
    symbols::unilith_plat_clear_fast_call(number);
}

/// What the platform implements.
pub mod symbols {
    use super::*;
    unsafe extern "Rust" {
        pub safe fn unilith_plat_console_write(bytes: &[u8]) -> abi::Result<()>;
        pub safe fn unilith_plat_console_has_room() -> bool;
        pub safe fn unilith_plat_console_is_drained() -> bool;
        pub safe fn unilith_plat_console_read(to: &mut [u8]) -> usize;
        pub safe fn unilith_plat_on_console(handler: fn());
        pub safe fn unilith_plat_console_break() -> bool;
        pub safe fn unilith_plat_console_ended() -> bool;
        pub safe fn unilith_plat_status(status: &Status);
        pub safe fn unilith_plat_status_write(bytes: &[u8]);
        pub safe fn unilith_plat_power_off(status: &Status) -> !;
        pub safe fn unilith_plat_now_ns() -> u64;
        pub safe fn unilith_plat_wall_ns() -> u64;
        pub safe fn unilith_plat_set_wall_ns(ns: u64);
        pub safe fn unilith_plat_vdso() -> Vdso;
        pub safe fn unilith_plat_entropy(to: &mut [u8]);
        pub safe fn unilith_plat_set_timer(deadline_ns: u64);
        pub safe fn unilith_plat_idle();
        pub safe fn unilith_plat_request_work();
        pub safe fn unilith_plat_take_work() -> bool;
        pub safe fn unilith_plat_new_stack() -> abi::Result<KernelStack>;
        pub safe fn unilith_plat_free_stack(stack: &mut KernelStack);
        pub fn unilith_plat_switch(from: *mut Context, to: *const Context);
        pub fn unilith_plat_activate(stack_top: u64, fs_base: u64);
        pub safe fn unilith_plat_fs_base() -> u64;
        pub fn unilith_plat_enter_program(frame: *const TrapFrame) -> !;
        pub fn unilith_plat_start_thread(
            context: *mut Context,
            stack_top: u64,
            entry: extern "C" fn(usize) -> !,
            argument: usize,
        );
        pub safe fn unilith_plat_new_fpu_state() -> abi::Result<FpuState>;
        pub safe fn unilith_plat_save_fpu(state: &mut FpuState);
        pub safe fn unilith_plat_load_fpu(state: &FpuState);
        pub safe fn unilith_plat_cpu() -> u32;
        pub safe fn unilith_plat_cpus() -> u32;
        pub safe fn unilith_plat_several() -> bool;
        pub safe fn unilith_plat_admit() -> bool;
        pub safe fn unilith_plat_dismiss() -> bool;
        pub safe fn unilith_plat_kick(cpu: u32);
        pub safe fn unilith_plat_barrier(code: bool);
        pub safe fn unilith_plat_thread() -> u64;
        pub safe fn unilith_plat_set_thread(thread: u64);
        pub fn unilith_plat_set_fast_call(number: u32, call: FastCall);
        pub safe fn unilith_plat_domain_prepare() -> abi::Result<domain::Means>;
        pub safe fn unilith_plat_domain_give(start: u64, length: u64);
        pub safe fn unilith_plat_clear_fast_call(number: u32);
        pub safe fn unilith_plat_load_tools() -> abi::Result<()>;
        pub safe fn unilith_plat_new_code(code: &[u8]) -> abi::Result<u64>;
        pub fn unilith_plat_free_code(address: u64, length: usize);
        pub fn unilith_plat_write_code(address: u64, bytes: &[u8]) -> abi::Result<()>;
        pub safe fn unilith_plat_trace_slots() -> u32;
        pub safe fn unilith_plat_has_memory(address: u64, write: bool) -> bool;
        pub safe fn unilith_plat_set_sampling(interval_ns: u64);
    }
}

/// Pages of the program on a platform without page tables of its own: the pager's means there.
#[cfg(feature = "process")]
pub mod pages {
    unsafe extern "Rust" {
        fn unilith_plat_map_pages(address: u64, physical: u64, length: u64, rights: u32) -> abi::Result<()>;
        fn unilith_plat_protect_pages(address: u64, length: u64, rights: u32) -> abi::Result<()>;
        fn unilith_plat_unmap_pages(address: u64, length: u64) -> bool;
        safe fn unilith_plat_enter_space(space: u64) -> (usize, bool);
        safe fn unilith_plat_leave_space(space: u64) -> Option<usize>;
        safe fn unilith_plat_unmap_all_in(process: usize);
        fn unilith_plat_unmap_in_space(space: u64, address: u64, length: u64) -> Option<(usize, bool)>;
        safe fn unilith_plat_expect_several_spaces() -> bool;
    }

    /// More than one address space will be there. False where not each of the processors at work would find one that it can enter,
    /// whatever the others are in: with one of them it works ([`super::dismiss`]), and the others cannot be let in again.
    pub fn expect_several() -> bool {
        unilith_plat_expect_several_spaces()
    }

    /// Most processes of the host that show address spaces: their numbers are below.
    pub const MAX_PROCESSES: usize = 32;

    /// Goes on where the address space is shown, whose name is any number but 0: the calls below are about it from here on. The
    /// number of the process of the host that shows it, and true when it is shown as it was when another one was entered; false
    /// when that process shows what it showed before of another space.
    pub fn enter(space: u64) -> (usize, bool) {
        unilith_plat_enter_space(space)
    }

    /// The address space is gone. The process that showed it goes on showing its pages until another one is shown there.
    pub fn leave(space: u64) -> Option<usize> {
        unilith_plat_leave_space(space)
    }

    /// All pages of a process that shows no space go before it shows one.
    pub fn unmap_all_in(process: usize) {
        unilith_plat_unmap_all_in(process);
    }

    /// Shows `length` bytes of memory from `physical` on at `address`, in place of what was there. `rights` are
    /// PROT_READ, PROT_WRITE and PROT_EXEC. `ENOMEM` when the host has no room for one more mapping.
    ///
    /// # Safety
    ///
    /// The range is the program's, page-aligned, and nothing of the kernel relies on what it shows.
    pub unsafe fn map(address: u64, physical: u64, length: u64, rights: u32) -> abi::Result<()> {
        // SAFETY: by the caller's word.
        unsafe { unilith_plat_map_pages(address, physical, length, rights) }
    }

    /// Gives pages other rights; all are mapped.
    ///
    /// # Safety
    ///
    /// As for [`map`].
    pub unsafe fn protect(address: u64, length: u64, rights: u32) -> abi::Result<()> {
        // SAFETY: by the caller's word.
        unsafe { unilith_plat_protect_pages(address, length, rights) }
    }

    /// Takes pages away. False when the host had no room for what it shows on both sides of them: all of the program's pages
    /// went then.
    ///
    /// # Safety
    ///
    /// As for [`map`].
    pub unsafe fn unmap(address: u64, length: u64) -> bool {
        // SAFETY: by the caller's word.
        unsafe { unilith_plat_unmap_pages(address, length) }
    }

    /// Takes pages away from an address space that another processor is in. The process that shows it, and false when all of
    /// its pages went as with [`unmap`]; `None` where it is not shown.
    ///
    /// # Safety
    ///
    /// As for [`map`].
    pub unsafe fn unmap_in(space: u64, address: u64, length: u64) -> Option<(usize, bool)> {
        // SAFETY: by the caller's word.
        unsafe { unilith_plat_unmap_in_space(space, address, length) }
    }
}

/// What the kernel implements for the platform.
pub mod upcall {
    use super::*;
    unsafe extern "Rust" {
        /// First of all: takes over the machine's free memory, in ascending order. The heap works when it returns.
        pub safe fn unilith_kernel_memory(free: &[MemoryRange]);
        /// First code of the kernel after the platform is up; on the boot stack, interrupts off until the first
        /// [`idle`] or return to the program.
        pub safe fn unilith_kernel_main(boot: Boot) -> !;
        /// A system call of the program, in thread context. The kernel writes the result to `frame.rax`, runs
        /// pending work and signals, and returns to leave to the program with `frame` as it is then.
        pub safe fn unilith_kernel_syscall(frame: &mut TrapFrame);
        /// A system call by code of the program that an overlay program called: the TrapFrame's entry says which domain.
        pub safe fn unilith_kernel_overlay_call(frame: &mut TrapFrame);
        /// An exception of the program, in thread context; returning goes on with `frame`. A page fault in the
        /// program's half comes here only when `kernel_page_fault` could not resolve it.
        pub safe fn unilith_kernel_exception(frame: &mut TrapFrame, exception: Exception);
        /// A page fault on the program's half of the address space, by the program or by the kernel's user copy, in
        /// thread context.
        pub safe fn unilith_kernel_page_fault(address: u64, access: Access) -> FaultOutcome;
        /// An interrupt hit the program and work is pending; in thread context.
        pub safe fn unilith_kernel_work(frame: &mut TrapFrame);
        /// The timer set by [`set_timer`] expired; interrupt context.
        pub safe fn unilith_kernel_timer();
        /// Tells what the program's part shows, in ascending order: start, end, and PROT_* rights of pages that have the
        /// same ones. In thread context, with no lock held.
        #[cfg(feature = "process")]
        pub safe fn unilith_kernel_shown(each: &mut dyn FnMut(u64, u64, u32));
        /// Another processor of a process machine comes up: as [`unilith_kernel_main`], when the kernel knows of it.
        #[cfg(feature = "process")]
        pub safe fn unilith_kernel_cpu() -> !;
        /// The sampling timer ([`set_sampling`]) hit code with these registers (XMM may be missing); interrupt context.
        pub safe fn unilith_kernel_sample(registers: &TrapFrame);
    }
}

/// A kernel stack with a guard page below it; freed on drop.
#[derive(Debug)]
pub struct KernelStack {
    top: u64,
    size: usize,
}

impl Drop for KernelStack {
    fn drop(&mut self) {
        symbols::unilith_plat_free_stack(self);
    }
}

impl KernelStack {
    pub fn new() -> abi::Result<KernelStack> {
        symbols::unilith_plat_new_stack()
    }

    /// For the platform.
    ///
    /// # Safety
    ///
    /// Below `top` are `size` bytes that nobody else has, for [`symbols::unilith_plat_free_stack`] to take back.
    pub unsafe fn from_raw(top: u64, size: usize) -> KernelStack {
        KernelStack { top, size }
    }

    /// First address above the stack, a multiple of 16.
    #[inline]
    pub fn top(&self) -> u64 {
        self.top
    }

    /// Usable bytes.
    #[inline]
    pub fn size(&self) -> usize {
        self.size
    }
}

/// Most bytes that [`console_write`] takes at once.
pub const CONSOLE_PIECE: usize = 1028;

/// Writes the program's output to the machine's console: all of it, or nothing and `EAGAIN` while the host's reader is so far behind that
/// there is no room for it. Up to [`CONSOLE_PIECE`] bytes; `EINVAL` for more. Never waits for the reader, except where the machine
/// boots and [`on_console`] was not called yet.
pub fn console_write(bytes: &[u8]) -> abi::Result<()> {
    symbols::unilith_plat_console_write(bytes)
}

/// There is room for a piece. Where there is none, and after `EAGAIN`, the handler of [`on_console`] is called when there may be; it
/// is to have this called outside of the interrupt, because what waits in the kernel goes on to the device here.
pub fn console_has_room() -> bool {
    symbols::unilith_plat_console_has_room()
}

/// All that was written has left the machine: what is sent to the host by another way arrives behind it.
pub fn console_is_drained() -> bool {
    symbols::unilith_plat_console_is_drained()
}

/// Calls `handler` in interrupt context when input arrived at the console, or a break (see `api-boot`), or its output has room again.
/// After input it is called again only when [`console_read`] has answered 0.
pub fn on_console(handler: fn()) {
    symbols::unilith_plat_on_console(handler);
}

/// True once after a break arrived at the console.
pub fn console_break() -> bool {
    symbols::unilith_plat_console_break()
}

/// True when no more input will ever come (a serial port never knows; its input ends as `api-boot` says).
pub fn console_ended() -> bool {
    symbols::unilith_plat_console_ended()
}

/// Takes input that arrived at the console; 0 when there is none.
pub fn console_read(to: &mut [u8]) -> usize {
    symbols::unilith_plat_console_read(to)
}

/// Tells the host.
pub fn status(status: &Status) {
    symbols::unilith_plat_status(status);
}

/// Writes bytes of status lines as they are, for lines that must not need the heap.
pub fn status_write(bytes: &[u8]) {
    symbols::unilith_plat_status_write(bytes);
}

/// Tells the host why, and ends the machine.
pub fn power_off(status: &Status) -> ! {
    symbols::unilith_plat_power_off(status)
}

/// Nanoseconds since boot, never going back.
#[inline]
pub fn now_ns() -> u64 {
    symbols::unilith_plat_now_ns()
}

/// Nanoseconds since 1970 at [`now_ns`] zero.
pub fn wall_ns() -> u64 {
    symbols::unilith_plat_wall_ns()
}

/// Sets what [`wall_ns`] answers, for the vDSO as well: the program may set its clock.
pub fn set_wall_ns(ns: u64) {
    symbols::unilith_plat_set_wall_ns(ns);
}

/// The vDSO, which reads [`now_ns`] and [`wall_ns`] without a system call.
pub fn vdso() -> Vdso {
    symbols::unilith_plat_vdso()
}

/// Random bytes fit for keys.
pub fn entropy(to: &mut [u8]) {
    symbols::unilith_plat_entropy(to);
}

/// Asks for one timer interrupt at `deadline_ns` (`u64::MAX`: none). Replaces the one before.
pub fn set_timer(deadline_ns: u64) {
    symbols::unilith_plat_set_timer(deadline_ns);
}

/// Sleeps until an interrupt came, or returns at once when [`request_work`] was called since the last time.
pub fn idle() {
    symbols::unilith_plat_idle();
}

/// Asks for [`upcall`] `kernel_work` before the program goes on, and [`idle`] not to sleep. Safe in interrupt
/// context.
#[inline]
pub fn request_work() {
    symbols::unilith_plat_request_work();
}

/// True once after [`request_work`]: the kernel asks before it returns to the program. An interrupt that comes after
/// this answered `false` and before the program runs again is the platform's to catch (it calls `kernel_work`).
#[inline]
pub fn take_work() -> bool {
    symbols::unilith_plat_take_work()
}

/// Index of the running processor.
#[inline]
pub fn cpu() -> u32 {
    if SEVERAL { symbols::unilith_plat_cpu() } else { 0 }
}

/// The platform can have more than one processor. Without this the code for several is not in the image.
pub const SEVERAL: bool = PROCESS || cfg!(feature = "smp");
/// Most processors.
pub const MAX_CPUS: usize = if SEVERAL { 16 } else { 1 };

/// How many processors there are, [`MAX_CPUS`] at most: their indexes begin at 0. Final before the program runs.
#[inline]
pub fn cpus() -> u32 {
    if SEVERAL { symbols::unilith_plat_cpus() } else { 1 }
}

/// More than one of them is in use: the others have been let in ([`admit`]).
#[inline]
pub fn several() -> bool {
    SEVERAL && symbols::unilith_plat_several()
}

/// Lets the other processors in, which wait at the kernel's door until then: they come in one by one from when the caller leaves the
/// kernel or goes idle. False where they cannot be used. In thread context of the first processor, with more than one ([`cpus`])
/// and not [`several`].
pub fn admit() -> bool {
    symbols::unilith_plat_admit()
}

/// Lets the others in no more, all of which are idle: they wait at the door again when they wake up. False when one is needed still to
/// get there: the caller sleeps for a moment and asks again. In thread context of the first processor, where there are [`several`].
pub fn dismiss() -> bool {
    symbols::unilith_plat_dismiss()
}

/// [`request_work`] for another processor, whatever it is doing; in thread context.
pub fn kick(cpu: u32) {
    symbols::unilith_plat_kick(cpu);
}

/// The word that each processor has for the scheduler; 0 at first.
#[inline]
pub fn thread() -> u64 {
    symbols::unilith_plat_thread()
}

/// Sets it.
#[inline]
pub fn set_thread(thread: u64) {
    symbols::unilith_plat_set_thread(thread);
}

/// What membarrier(2) does to threads that run the program on other processors: they have passed a
/// barrier, with `code` one that instructions that were changed are fetched behind. One processor needs none.
pub fn barrier(code: bool) {
    symbols::unilith_plat_barrier(code);
}

/// Those processors, a bit each and not this one's, forget what they know of pages in `start..end` of the program's part, where they
/// are in its address space now. Nobody uses a page that was there before it comes back. For who holds the kernel's lock.
#[cfg(not(feature = "process"))]
pub fn forget_on(processors: u32, start: u64, end: u64) {
    unilith_plat_forget_on(processors, start, end);
}

#[cfg(not(feature = "process"))]
unsafe extern "Rust" {
    safe fn unilith_plat_forget_on(processors: u32, start: u64, end: u64);
}

/// FS base of the running program thread (it may set it itself with WRFSBASE).
pub fn fs_base() -> u64 {
    symbols::unilith_plat_fs_base()
}

/// Prepares `context` so that the first [`switch`] to it calls `entry(argument)` on the stack.
///
/// # Safety
///
/// `stack` lives as long as the thread.
pub unsafe fn start_thread(
    context: &mut Context,
    stack: &KernelStack,
    entry: extern "C" fn(usize) -> !,
    argument: usize,
) {
    // SAFETY: the stack is valid by the caller's word, and `context` is exclusive.
    unsafe { symbols::unilith_plat_start_thread(context, stack.top, entry, argument) }
}

/// Saves the running kernel context in `from` and goes on with `to`; returns when somebody switches back.
///
/// # Safety
///
/// `from` is the running thread's, `to` was saved by a switch or prepared by [`start_thread`], both stay valid, and
/// [`activate`] was called for the new thread.
pub unsafe fn switch(from: *mut Context, to: *const Context) {
    // SAFETY: as above.
    unsafe { symbols::unilith_plat_switch(from, to) }
}

/// Makes `stack_top` the stack of the next entry from the program and sets its FS base.
///
/// # Safety
///
/// The stack belongs to the thread that runs next.
pub unsafe fn activate(stack_top: u64, fs_base: u64) {
    // SAFETY: as above.
    unsafe { symbols::unilith_plat_activate(stack_top, fs_base) }
}

/// Goes to the program with all registers of `frame`.
///
/// # Safety
///
/// `frame` is a state the program may be in; nothing on the kernel stack is needed any more.
pub unsafe fn enter_program(frame: &TrapFrame) -> ! {
    // SAFETY: as above.
    unsafe { symbols::unilith_plat_enter_program(frame) }
}

/// State of a thread that has not used the unit yet: FNINIT and MXCSR 0x1f80.
pub fn new_fpu_state() -> abi::Result<FpuState> {
    symbols::unilith_plat_new_fpu_state()
}

/// XSAVE of the processor's state in standard (not compacted) format, as signal frames have it.
pub fn save_fpu(state: &mut FpuState) {
    symbols::unilith_plat_save_fpu(state);
}

/// XRSTOR. The state must be valid for the processor: states that come from the program's signal frame are checked
/// first (reserved bits of MXCSR and of the XSAVE header), or #GP follows.
pub fn load_fpu(state: &FpuState) {
    symbols::unilith_plat_load_fpu(state);
}

/// Protection domains of overlay programs.
///
/// # Contract
///
/// - A thread whose [`TrapFrame`] has [`Entry::Overlay`] runs with all memory readable and only that writable which was
///   [`domain::give`]n; with [`Entry::OverlayWriting`] the program's half is writable as well, as far as its mappings are. The
///   kernel's half never is.
/// - Every way into the kernel (interrupt, exception, system call) ends the domain; the TrapFrame says which one it was, and
///   leaving with that TrapFrame takes it up again. `kernel_exception` gets what the domain does not allow as the page fault
///   it is, and the vector [`domain::GATE`] as the overlay program's call of the kernel.
/// - Overlay programs are assumed to have bugs, not bad intentions: they run privileged.
pub mod domain {
    use super::symbols;

    /// The vector by which an overlay program calls the kernel.
    pub const GATE: u8 = 31;
    /// Overlay programs live in this range of the program's half and nowhere else: it is one entry of the top-level
    /// page table.
    pub const REGION: core::ops::Range<u64> = 0x2000_0000_0000..0x2080_0000_0000;

    /// What keeps the domains apart.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Means {
        /// Protection keys of the processor.
        Keys,
        /// Page tables of their own.
        Tables,
        /// The rights of all pages, changed by the host on each way in and out.
        Rights,
    }

    /// Gets ready for the first overlay program; cheap afterwards. `ENOMEM` when there is no room for its page tables.
    pub fn prepare() -> abi::Result<Means> {
        symbols::unilith_plat_domain_prepare()
    }

    /// Lets overlay programs write what is mapped in that part of [`REGION`] as far as its mapping allows it. All of it
    /// is mapped by now and stays as it is until it is unmapped.
    pub fn give(start: u64, length: u64) {
        symbols::unilith_plat_domain_give(start, length);
    }
}

/// Words that each processor has for the tracer.
pub const TRACE_SLOTS: usize = 3;

/// Where those words are, relative to GS.
pub fn trace_slots() -> u32 {
    symbols::unilith_plat_trace_slots()
}

/// Whether the kernel's part of the address space has memory at an address, writable if asked, where there are no page
/// tables that tell. At any moment.
pub fn has_memory(address: u64, write: bool) -> bool {
    symbols::unilith_plat_has_memory(address, write)
}

/// Looks at what runs every so many nanoseconds from now on (the upcall `kernel_sample`); 0 ends it.
pub fn set_sampling(interval_ns: u64) {
    symbols::unilith_plat_set_sampling(interval_ns);
}

/// Makes sure that the overlay's part of the kernel's text is in memory. On a PC it is not in the image: the host hands it over
/// at the first call, which has to come before any of it is called. `ENOSYS` or `ENOENT` when the host does not, `EIO`
/// when it is another kernel's, `ENOMEM`.
pub fn load_tools() -> abi::Result<()> {
    symbols::unilith_plat_load_tools()
}

/// Copies code to executable pages of its own, within reach of a relative jump from the kernel's text. `ENOMEM`.
pub fn new_code(code: &[u8]) -> abi::Result<u64> {
    symbols::unilith_plat_new_code(code)
}

/// Gives the pages of [`new_code`] back.
///
/// # Safety
///
/// Nothing runs or refers to the code any more.
pub unsafe fn free_code(address: u64, length: usize) {
    // SAFETY: as above.
    unsafe { symbols::unilith_plat_free_code(address, length) }
}

/// Changes code of the kernel, or of [`new_code`]. No other processor may be running it: the bytes are written one by
/// one. `EFAULT` where there is none.
///
/// # Safety
///
/// What it is changed to is code that may run there.
pub unsafe fn write_code(address: u64, bytes: &[u8]) -> abi::Result<()> {
    // SAFETY: as above.
    unsafe { symbols::unilith_plat_write_code(address, bytes) }
}
