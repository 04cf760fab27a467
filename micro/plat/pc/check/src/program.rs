// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program half: code that runs in the program's half of the address space, copied there from the image.

use core::arch::global_asm;
use core::sync::atomic::{AtomicBool, Ordering};
use plat_pc::{PHYS, kernel_table};

/// Where the code, the data and the stack are.
pub const CODE: u64 = 0x40_0000;
pub const DATA: u64 = 0x50_0000;
pub const STACK_TOP: u64 = 0x60_1000;
/// Mapped by the page-fault handler.
pub const LAZY: u64 = 0x70_0000;

// Calls: RAX = number. 500 reports failure RDI, 501 success, 502 does nothing, 503 answers with RDI nanoseconds of
// the time a call took, 39 is the audited one.
global_asm!(
    ".pushsection .rodata",
    ".globl check_program, check_program_end",
    ".balign 16",
    "check_program:",
    // Every register Linux keeps is kept, by the trap and by the call.
    ".macro fill",
    "  mov rbx, 0x1001",
    "  mov rbp, 0x1002",
    "  mov r12, 0x1003",
    "  mov r13, 0x1004",
    "  mov r14, 0x1005",
    "  mov r15, 0x1006",
    "  mov rdi, 0x1007",
    "  mov rsi, 0x1008",
    "  mov rdx, 0x1009",
    "  mov r10, 0x100a",
    "  mov r8, 0x100b",
    "  mov r9, 0x100c",
    "  movq xmm0, rbx",
    "  movq xmm7, rbp",
    "  movq xmm15, r12",
    "  mov qword ptr [rsp - 8], 0x77", // red zone
    "  mov qword ptr [rsp - 128], 0x78",
    ".endm",
    ".macro verify code",
    "  mov r11, rax",
    "  mov eax, \\code",
    "  cmp rbx, 0x1001",
    "  jne check_failed",
    "  cmp rbp, 0x1002",
    "  jne check_failed",
    "  cmp r12, 0x1003",
    "  jne check_failed",
    "  cmp r13, 0x1004",
    "  jne check_failed",
    "  cmp r14, 0x1005",
    "  jne check_failed",
    "  cmp r15, 0x1006",
    "  jne check_failed",
    "  cmp rdi, 0x1007",
    "  jne check_failed",
    "  cmp rsi, 0x1008",
    "  jne check_failed",
    "  cmp rdx, 0x1009",
    "  jne check_failed",
    "  cmp r10, 0x100a",
    "  jne check_failed",
    "  cmp r8, 0x100b",
    "  jne check_failed",
    "  cmp r9, 0x100c",
    "  jne check_failed",
    "  movq rcx, xmm0",
    "  cmp rcx, rbx",
    "  jne check_failed",
    "  movq rcx, xmm7",
    "  cmp rcx, rbp",
    "  jne check_failed",
    "  movq rcx, xmm15",
    "  cmp rcx, r12",
    "  jne check_failed",
    "  cmp qword ptr [rsp - 8], 0x77",
    "  jne check_failed",
    "  cmp qword ptr [rsp - 128], 0x78",
    "  jne check_failed",
    ".endm",
    "  fill",
    "  mov eax, 502",
    "  syscall",
    "  verify 1",
    "  cmp r11, 1234",
    "  jne check_failed",
    "  mov eax, 502",
    "  lea rcx, [rip + 1f]",
    "  jmp [rip + entry_address]",
    "1: verify 2",
    "  mov eax, 39",
    "  syscall",
    "  verify 3",
    "  cmp r11, 4321",
    "  jne check_failed",
    // Ten million turns through timer interrupts that each want work: nothing is lost.
    "  mov ebx, 1000000",
    "2: mov qword ptr [rsp - 16], rbx",
    "  movq xmm3, rbx",
    "  mov eax, 39",
    "  lea rcx, [rip + 3f]",
    "  jmp [rip + entry_address]",
    "3: mov eax, 502",
    "  syscall",
    "  cmp [rsp - 16], rbx",
    "  mov eax, 4",
    "  jne check_failed",
    "  movq rcx, xmm3",
    "  cmp rcx, rbx",
    "  mov eax, 5",
    "  jne check_failed",
    "  dec ebx",
    "  jne 2b",
    // A page fault of the program is resolved, with its flags and registers as they were.
    "  fill",
    "  mov rcx, 0x700000",
    "  stc",
    "  mov byte ptr [rcx], 5",
    "  mov eax, 6",
    "  jnc check_failed",
    "  cmp rcx, 0x700000",
    "  jne check_failed",
    "  verify 7",
    // Times: 1,000,000 audited calls, then as many with everything.
    "  call check_time",
    "  .quad 39",
    "  call check_time",
    "  .quad 502",
    "  mov eax, 501",
    "  syscall",
    "check_time:",
    "  pop rbx",
    "  mov r12, [rbx]",
    "  add rbx, 8",
    "  rdtsc",
    "  shl rdx, 32",
    "  lea r13, [rax + rdx]",
    "  mov ebp, 1000000",
    "4: mov eax, r12d",
    "  lea rcx, [rip + 5f]",
    "  jmp [rip + entry_address]",
    "5: dec ebp",
    "  jne 4b",
    "  rdtsc",
    "  shl rdx, 32",
    "  lea rdi, [rax + rdx]",
    "  sub rdi, r13",
    "  mov rsi, r12",
    "  mov eax, 503",
    "  syscall",
    "  jmp rbx",
    "check_failed:",
    "  mov edi, eax",
    "  mov eax, 500",
    "  syscall",
    ".balign 8",
    "entry_address: .quad unilith_entry",
    "check_program_end:",
    ".popsection",
);

unsafe extern "C" {
    static check_program: u8;
    static check_program_end: u8;
}

/// Where the vDSO is.
const VDSO: u64 = 0x80_1000;

/// Address of a function of the vDSO, found as a C library finds it: by its dynamic section.
pub fn vdso_symbol(name: &[u8]) -> u64 {
    if !VDSO_MAPPED.swap(true, Ordering::Relaxed) {
        let vdso = api_plat::vdso();
        map_frame(VDSO - 4096, vdso.data);
        map_frame(VDSO, vdso.code);
    }
    // SAFETY: one page of ELF file, just mapped; offsets in it are its own.
    unsafe {
        let word = |at: u64| ((VDSO + at) as *const u64).read_unaligned();
        // The second program header is PT_DYNAMIC.
        let dynamic = word(64 + 56 + 16);
        let tag = |tag| (0..).map(|i| dynamic + 16 * i).find(|at| word(*at) == tag).map(|at| word(at + 8));
        let (symbols, names, hash) =
            (tag(6).expect("DT_SYMTAB"), tag(5).expect("DT_STRTAB"), tag(4).expect("DT_HASH"));
        let count = word(hash) >> 32;
        for i in 0..count {
            let symbol = symbols + 24 * i;
            let at = VDSO + names + (word(symbol) & 0xffff_ffff);
            let this = core::slice::from_raw_parts(at as *const u8, name.len() + 1);
            if this[..name.len()] == *name && this[name.len()] == 0 {
                return VDSO + word(symbol + 8);
            }
        }
    }
    panic!("no such symbol")
}

static VDSO_MAPPED: AtomicBool = AtomicBool::new(false);

/// Maps a fresh page at `address`.
pub fn map(address: u64) {
    map_frame(address, api_mem::PageFrame::new().expect("memory").into_raw());
}

fn map_frame(address: u64, frame: u64) {
    let mut table = kernel_table();
    for shift in [39, 30, 21] {
        let entry = ((PHYS + table) as *mut u64).wrapping_add((address >> shift & 511) as usize);
        // SAFETY: page tables of the lower half belong to this module.
        unsafe {
            if *entry & 1 == 0 {
                *entry = api_mem::PageFrame::new().expect("memory").into_raw() | 3;
            }
            table = *entry & 0xf_ffff_ffff_f000;
        }
    }
    let entry = ((PHYS + table) as *mut u64).wrapping_add((address >> 12 & 511) as usize);
    // SAFETY: as above.
    unsafe { *entry = frame | 3 };
}

/// Puts the code and a stack there.
pub fn load() {
    for page in [CODE, CODE + 0x1000, DATA, STACK_TOP - 0x1000, STACK_TOP - 0x2000] {
        map(page);
    }
    // SAFETY: two pages were mapped, and the code is shorter.
    unsafe {
        let start = &raw const check_program;
        let length = (&raw const check_program_end).offset_from(start) as usize;
        assert!(length <= 0x2000);
        core::ptr::copy_nonoverlapping(start, CODE as *mut u8, length);
    }
}
