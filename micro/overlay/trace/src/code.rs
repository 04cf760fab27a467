// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The way from a probed function to its programs and back, for x86-64.
//!
//! A trampoline turns interrupts off (a process has none to turn off: its platform puts signals off while the word `busy`
//! says so), changes to the tracer's stack, and calls one of the two routines here, which put the registers into a
//! `struct pt_regs`; or it calls a program that does without them. Nothing is written below the program's RSP but by the
//! program itself: its stack may not be there yet. The kernel's stack is, and gets the flags. Arithmetic flags mean nothing
//! at the entry to and the return from a function (System V ABI 3.2.1), so only the interrupt flag is kept.

use abi::Result;
use alloc::vec::Vec;
use api_plat::{KernelStack, PROCESS, TrapFrame};
use core::arch::{asm, global_asm};
use core::mem::{offset_of, size_of};
use core::sync::atomic::AtomicU64;

/// The registers as programs see them: Linux' `struct pt_regs`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Registers {
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub bp: u64,
    pub bx: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub ax: u64,
    pub cx: u64,
    pub dx: u64,
    pub si: u64,
    pub di: u64,
    pub orig_ax: u64,
    pub ip: u64,
    pub cs: u64,
    pub flags: u64,
    pub sp: u64,
    pub ss: u64,
}

impl Registers {
    /// Those of what was interrupted, or called the kernel.
    ///
    /// # Safety
    ///
    /// The memory is there. It need not be a `TrapFrame` yet: only words are read.
    pub unsafe fn of(frame: *const TrapFrame) -> Registers {
        let word = |offset: usize| {
            // SAFETY: within the TrapFrame, which is made of words.
            unsafe { frame.cast::<u64>().byte_add(offset).read() }
        };
        Registers {
            r15: word(offset_of!(TrapFrame, r15)),
            r14: word(offset_of!(TrapFrame, r14)),
            r13: word(offset_of!(TrapFrame, r13)),
            r12: word(offset_of!(TrapFrame, r12)),
            bp: word(offset_of!(TrapFrame, rbp)),
            bx: word(offset_of!(TrapFrame, rbx)),
            r11: word(offset_of!(TrapFrame, r11)),
            r10: word(offset_of!(TrapFrame, r10)),
            r9: word(offset_of!(TrapFrame, r9)),
            r8: word(offset_of!(TrapFrame, r8)),
            ax: word(offset_of!(TrapFrame, rax)),
            cx: word(offset_of!(TrapFrame, rcx)),
            dx: word(offset_of!(TrapFrame, rdx)),
            si: word(offset_of!(TrapFrame, rsi)),
            di: word(offset_of!(TrapFrame, rdi)),
            orig_ax: word(offset_of!(TrapFrame, orig_rax)),
            ip: word(offset_of!(TrapFrame, rip)),
            cs: word(offset_of!(TrapFrame, cs)),
            flags: word(offset_of!(TrapFrame, rflags)),
            sp: word(offset_of!(TrapFrame, rsp)),
            ss: word(offset_of!(TrapFrame, ss)),
        }
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: plain words without padding, for as long as the reference.
        unsafe { core::slice::from_raw_parts((&raw const *self).cast(), size_of::<Registers>()) }
    }
}

const _: () = assert!(size_of::<Registers>() == 168);

// In both: [rsp] = return to the trampoline, [rsp + 8] = its argument, [rsp + 16] = RSP of the probed code.
global_asm!(
    ".pushsection .text.unilith_trace,\"ax\",@progbits",
    ".macro trace_save",
    "    sub rsp, 168",
    "    mov [rsp], r15",
    "    mov [rsp + 8], r14",
    "    mov [rsp + 16], r13",
    "    mov [rsp + 24], r12",
    "    mov [rsp + 32], rbp",
    "    mov [rsp + 40], rbx",
    "    mov [rsp + 48], r11",
    "    mov [rsp + 56], r10",
    "    mov [rsp + 64], r9",
    "    mov [rsp + 72], r8",
    "    mov [rsp + 80], rax",
    "    mov [rsp + 88], rcx",
    "    mov [rsp + 96], rdx",
    "    mov [rsp + 104], rsi",
    "    mov [rsp + 112], rdi",
    "    mov qword ptr [rsp + 120], -1",
    "    mov qword ptr [rsp + 136], 8",
    "    mov qword ptr [rsp + 144], 0x202",
    "    mov qword ptr [rsp + 160], 16",
    ".endm",
    ".macro trace_restore",
    "    mov r15, [rsp]",
    "    mov r14, [rsp + 8]",
    "    mov r13, [rsp + 16]",
    "    mov r12, [rsp + 24]",
    "    mov rbp, [rsp + 32]",
    "    mov rbx, [rsp + 40]",
    "    mov r11, [rsp + 48]",
    "    mov r10, [rsp + 56]",
    "    mov r9, [rsp + 64]",
    "    mov r8, [rsp + 72]",
    "    mov rax, [rsp + 80]",
    "    mov rcx, [rsp + 88]",
    "    mov rdx, [rsp + 96]",
    "    mov rsi, [rsp + 104]",
    "    mov rdi, [rsp + 112]",
    "    add rsp, 168",
    ".endm",
    // r14 = what to call with rdi and rsi as they are; keeps the vector registers.
    "unilith_trace_full:",
    "    sub rsp, 264",
    "    movups [rsp], xmm0",
    "    movups [rsp + 16], xmm1",
    "    movups [rsp + 32], xmm2",
    "    movups [rsp + 48], xmm3",
    "    movups [rsp + 64], xmm4",
    "    movups [rsp + 80], xmm5",
    "    movups [rsp + 96], xmm6",
    "    movups [rsp + 112], xmm7",
    "    movups [rsp + 128], xmm8",
    "    movups [rsp + 144], xmm9",
    "    movups [rsp + 160], xmm10",
    "    movups [rsp + 176], xmm11",
    "    movups [rsp + 192], xmm12",
    "    movups [rsp + 208], xmm13",
    "    movups [rsp + 224], xmm14",
    "    movups [rsp + 240], xmm15",
    "    call r14",
    "    movups xmm0, [rsp]",
    "    movups xmm1, [rsp + 16]",
    "    movups xmm2, [rsp + 32]",
    "    movups xmm3, [rsp + 48]",
    "    movups xmm4, [rsp + 64]",
    "    movups xmm5, [rsp + 80]",
    "    movups xmm6, [rsp + 96]",
    "    movups xmm7, [rsp + 112]",
    "    movups xmm8, [rsp + 128]",
    "    movups xmm9, [rsp + 144]",
    "    movups xmm10, [rsp + 160]",
    "    movups xmm11, [rsp + 176]",
    "    movups xmm12, [rsp + 192]",
    "    movups xmm13, [rsp + 208]",
    "    movups xmm14, [rsp + 224]",
    "    movups xmm15, [rsp + 240]",
    "    add rsp, 264",
    "    ret",
    // Entry to a function; the argument is the site's index.
    ".globl unilith_trace_entry",
    "unilith_trace_entry:",
    "    trace_save",
    "    mov eax, [rsp + 176]",
    "    lea rcx, [rip + {sites}]",
    "    mov rbx, [rcx + rax * 8]",
    "    mov rax, [rbx + {address}]",
    "    mov [rsp + 128], rax",
    "    mov rax, [rsp + 184]",
    "    add rax, [rbx + {pushed}]",
    "    mov [rsp + 152], rax",
    "    mov r12, [rbx + {first}]",
    "2:  test r12, r12",
    "    jz 4f",
    "    inc qword ptr [r12 + {hits}]",
    "    mov rdi, rsp",
    "    cmp dword ptr [r12 + {plain}], 0",
    "    je 3f",
    // A plain program touches no vector register and nothing of its runtime.
    "    xor esi, esi",
    "    call [r12 + {code}]",
    "    mov r12, [r12 + {next}]",
    "    jmp 2b",
    "3:  mov rsi, r12",
    "    lea r14, [rip + {run}]",
    "    call unilith_trace_full",
    "    mov r12, [r12 + {next}]",
    "    jmp 2b",
    "4:  cmp qword ptr [rbx + {returns}], 0",
    "    je 5f",
    "    mov rdi, rsp",
    "    mov rsi, rbx",
    "    lea r14, [rip + {arm}]",
    "    call unilith_trace_full",
    "5:  trace_restore",
    "    ret",
    // A function came back; the argument says whether it is the kernel's, and becomes where to go on.
    ".globl unilith_trace_back",
    "unilith_trace_back:",
    "    trace_save",
    "    mov rax, [rsp + 184]",
    "    mov [rsp + 152], rax",
    "    mov rdi, rsp",
    "    mov rsi, [rsp + 176]",
    "    lea r14, [rip + {back}]",
    "    call unilith_trace_full",
    "    mov [rsp + 176], rax",
    "    trace_restore",
    "    ret",
    ".popsection",
    sites = sym crate::sites::SITES,
    run = sym crate::load::run_active,
    arm = sym crate::returns::arm,
    back = sym crate::returns::back,
    address = const offset_of!(crate::sites::Site, address),
    pushed = const offset_of!(crate::sites::Site, pushed),
    first = const offset_of!(crate::sites::Site, entries),
    returns = const offset_of!(crate::sites::Site, returns),
    code = const offset_of!(crate::load::Active, code),
    plain = const offset_of!(crate::load::Active, plain),
    next = const offset_of!(crate::load::Active, next),
    hits = const offset_of!(crate::load::Active, hits),
);

unsafe extern "C" {
    fn unilith_trace_entry();
    fn unilith_trace_back();
}

/// The processor's words, relative to GS: top of the tracer's stack, whether a program runs, a return address.
fn slots() -> [u32; 3] {
    let first = api_plat::trace_slots();
    [first, first + 8, first + 16]
}

fn set_slot(offset: u32, value: u64) {
    // SAFETY: the platform gave these words of the processor's own block to the tracer.
    unsafe {
        asm!("mov gs:[{}], {}", in(reg) u64::from(offset), in(reg) value, options(nostack, preserves_flags));
    }
}

/// Gives this processor its stack.
pub fn prepare() -> Result<KernelStack> {
    let stack = KernelStack::new()?;
    set_slot(slots()[0], stack.top());
    Ok(stack)
}

/// Runs `work` with interrupts off; probes that it hits are passed over.
pub fn undisturbed<R>(work: impl FnOnce() -> R) -> R {
    let busy = slots()[1];
    let flags: u64;
    let before: u64;
    // SAFETY: pushes and pops; the interrupt flag is put back below. It is not a process' to change.
    unsafe {
        if PROCESS {
            flags = 0;
        } else {
            asm!("pushfq", "pop {}", "cli", out(reg) flags);
        }
        asm!("mov {}, gs:[{}]", out(reg) before, in(reg) u64::from(busy), options(nostack, preserves_flags));
    }
    set_slot(busy, 1);
    let result = work();
    set_slot(busy, before);
    if flags & 0x200 != 0 {
        // SAFETY: they were on before.
        unsafe { asm!("sti", options(nostack)) };
    }
    result
}

#[derive(Default)]
struct Writer {
    code: Vec<u8>,
    /// Places of 32-bit displacements to words behind the code, and the words.
    words: Vec<(usize, u64)>,
}

impl Writer {
    fn bytes(&mut self, bytes: &[u8]) {
        self.code.extend_from_slice(bytes);
    }

    /// `gs:[slot]` behind an opcode with a ModRM for [disp32].
    fn slot(&mut self, opcode: &[u8], slot: u32) {
        self.bytes(opcode);
        self.bytes(&slot.to_le_bytes());
    }

    fn word(&mut self, opcode: &[u8], value: u64) {
        self.bytes(opcode);
        self.words.push((self.code.len(), value));
        self.bytes(&[0; 4]);
    }

    fn finish(mut self) -> Vec<u8> {
        for (place, value) in core::mem::take(&mut self.words) {
            let distance = (self.code.len() - (place + 4)) as u32;
            self.code[place..place + 4].copy_from_slice(&distance.to_le_bytes());
            self.code.extend_from_slice(&value.to_le_bytes());
        }
        self.code
    }
}

/// mov dword ptr gs:[disp32], imm32; xchg gs:[disp32], rsp; push qword ptr gs:[disp32]; pop qword ptr gs:[disp32]
const STORE: [u8; 4] = [0x65, 0xc7, 0x04, 0x25];
const EXCHANGE_RSP: [u8; 5] = [0x65, 0x48, 0x87, 0x24, 0x25];
const PUSH: [u8; 4] = [0x65, 0xff, 0x34, 0x25];
const POP: [u8; 4] = [0x65, 0x8f, 0x04, 0x25];
/// call [rip + disp32]; jmp [rip + disp32]
const CALL: [u8; 2] = [0xff, 0x15];
const JUMP: [u8; 2] = [0xff, 0x25];
const CLI: &[u8] = if PROCESS { &[] } else { &[0xfa] };
const STI: &[u8] = if PROCESS { &[] } else { &[0xfb] };
const RAX: u8 = 0;
const PUSHFQ: u8 = 0x9c;
const POPFQ: &[u8] = &[0x9d];
/// jmp [rsp - 8]: the red zone (System V ABI 3.2.2)
const JUMP_BELOW: [u8; 4] = [0xff, 0x64, 0x24, 0xf8];

/// Bytes for a site's trampoline: its door, the moved instructions of a function of the kernel, and from [`WAY`] on the
/// way to the programs. Only the way changes: nobody is on it but with interrupts off.
pub const TRAMPOLINE: usize = 192;
pub const WAY: usize = 72;

/// Where in the door those go on who come back from the way, or were not let in.
const fn out(in_kernel: bool) -> usize {
    // pushfq, cli, cmp, je
    in_kernel as usize + CLI.len() + 9 + 6
}

/// What a site's trampoline begins with: it leads to the way, unless the tracer itself comes along, and then to `resume`,
/// where the function's moved instructions are.
pub fn door(in_kernel: bool, resume: u64) -> Vec<u8> {
    let [_, busy, _] = slots();
    let mut w = Writer::default();
    if in_kernel {
        w.bytes(&[PUSHFQ]);
    }
    w.bytes(CLI);
    // cmp dword ptr gs:[busy], 0; je WAY
    w.slot(&[0x65, 0x83, 0x3c, 0x25], busy);
    w.bytes(&[0, 0x0f, 0x84]);
    w.bytes(&((WAY - out(in_kernel)) as u32).to_le_bytes());
    // Interrupts come back behind the jump.
    w.bytes(if in_kernel { POPFQ } else { STI });
    w.word(&JUMP, resume);
    w.finish()
}

/// A way, on the tracer's stack.
fn way(in_kernel: bool, body: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let [stack, busy, _] = slots();
    let mut w = Writer::default();
    w.slot(&STORE, busy);
    w.bytes(&1u32.to_le_bytes());
    w.slot(&EXCHANGE_RSP, stack);
    body(&mut w);
    w.slot(&EXCHANGE_RSP, stack);
    w.slot(&STORE, busy);
    w.bytes(&0u32.to_le_bytes());
    // jmp back to the door
    w.bytes(&[0xe9]);
    let end = WAY + w.code.len() + 4;
    w.bytes(&(out(in_kernel) as i32 - end as i32).to_le_bytes());
    w.finish()
}

/// The way to all programs of a site, which see all registers.
pub fn way_to_all(in_kernel: bool, site: u32) -> Vec<u8> {
    way(in_kernel, |w| {
        w.slot(&PUSH, slots()[0]);
        w.bytes(&[0x68]);
        w.bytes(&site.to_le_bytes());
        w.word(&CALL, unilith_trace_entry as *const () as u64);
        w.bytes(&[0x48, 0x83, 0xc4, 16]);
    })
}

/// The way to one program that looks at no register and changes these (`bpf::jit::Compiled::changes`).
pub fn way_to_one(in_kernel: bool, program: u64, changes: u16, hits: &AtomicU64) -> Vec<u8> {
    let changed = |r: &u8| (changes | 1 << RAX) & 1 << r != 0;
    way(in_kernel, |w| {
        (0..16).filter(changed).for_each(|r| w.bytes(&[0x40 | r >> 3, 0x50 | r & 7]));
        // mov rax, hits; inc qword ptr [rax]
        w.bytes(&[0x48, 0xb8]);
        w.bytes(&(hits.as_ptr() as u64).to_le_bytes());
        w.bytes(&[0x48, 0xff, 0]);
        w.word(&CALL, program);
        (0..16).rev().filter(changed).for_each(|r| w.bytes(&[0x40 | r >> 3, 0x58 | r & 7]));
    })
}

/// Where functions come back to whose return is probed.
pub fn return_trampoline(in_kernel: bool) -> Vec<u8> {
    let [stack, busy, target] = slots();
    let mut w = Writer::default();
    if in_kernel {
        // Room for the return address, which `back` fills.
        w.bytes(&[0x48, 0x83, 0xec, 8, PUSHFQ]);
    }
    w.bytes(CLI);
    w.slot(&STORE, busy);
    w.bytes(&1u32.to_le_bytes());
    w.slot(&EXCHANGE_RSP, stack);
    w.slot(&PUSH, stack);
    w.bytes(&[0x6a, u8::from(in_kernel)]);
    w.word(&CALL, unilith_trace_back as *const () as u64);
    w.slot(&POP, target);
    w.bytes(&[0x48, 0x83, 0xc4, 8]);
    w.slot(&EXCHANGE_RSP, stack);
    w.slot(&STORE, busy);
    w.bytes(&0u32.to_le_bytes());
    if in_kernel {
        w.bytes(POPFQ);
        w.bytes(&[0xc3]);
    } else if PROCESS {
        // Another thread may come in between, and return itself: each has its target on its own stack, where `back` put
        // it in place of the return address.
        w.bytes(&JUMP_BELOW);
    } else {
        // jmp gs:[target], in the shadow of sti
        w.bytes(STI);
        w.slot(&[0x65, 0xff, 0x24, 0x25], target);
    }
    w.finish()
}
