# SPDX-License-Identifier: Apache-2.0 OR MIT
# Interrupts and exceptions of a PC, up to where they join what all platforms share (plat-x86, entry.s).

.pushsection .text.unilith_gate,"ax",@progbits
# ---- Interrupts and exceptions. Each vector has a stub of 16 bytes; the Frame is built where the processor pushed.
.altmacro
.macro stub number, common
    .balign 16
    .if (\number == 8) || ((\number >= 10) && (\number <= 14)) || (\number == 17) || (\number == 21) || (\number == 29) || (\number == 30)
    .else
    push 0
    .endif
    push rax
    mov eax, \number
    jmp \common
.endm
.balign 16
.globl unilith_vectors
unilith_vectors:
.set vector, 0
.rept 32
    stub %vector, unilith_exception
    .set vector, vector + 1
.endr
.rept {VECTORS} - 32
    stub %vector, unilith_interrupt
    .set vector, vector + 1
.endr

# RSP is at the RAX of a Frame: saves the rest.
.macro save_all
    sub rsp, {RAX}
    mov [rsp + {RCX}], rcx
    mov [rsp + {RDX}], rdx
    mov [rsp + {RSI}], rsi
    mov [rsp + {RDI}], rdi
    mov [rsp + {R8}], r8
    mov [rsp + {R9}], r9
    mov [rsp + {R10}], r10
    mov [rsp + {R11}], r11
    mov [rsp + {RBX}], rbx
    mov [rsp + {RBP}], rbp
    mov [rsp + {R12}], r12
    mov [rsp + {R13}], r13
    mov [rsp + {R14}], r14
    mov [rsp + {R15}], r15
    mov qword ptr [rsp + {ORIG_RAX}], -1
    movups [rsp], xmm0
    movups [rsp + 16], xmm1
    movups [rsp + 32], xmm2
    movups [rsp + 48], xmm3
    movups [rsp + 64], xmm4
    movups [rsp + 80], xmm5
    movups [rsp + 96], xmm6
    movups [rsp + 112], xmm7
    movups [rsp + 128], xmm8
    movups [rsp + 144], xmm9
    movups [rsp + 160], xmm10
    movups [rsp + 176], xmm11
    movups [rsp + 192], xmm12
    movups [rsp + 208], xmm13
    movups [rsp + 224], xmm14
    movups [rsp + 240], xmm15
    cld
.endm

unilith_interrupt:
    save_all
    mov rdi, rsp
    mov esi, eax
    call unilith_pc_interrupt
    test rax, rax
    jz unilith_resume
    # The program was hit and there is work: the Frame was moved to its thread's stack.
    mov rsp, rax
    sti
    jmp unilith_do_work

unilith_exception:
    save_all
    mov rdi, rsp
    mov esi, eax
    mov rdx, cr2
    call unilith_pc_exception
    test rax, rax
    jz unilith_resume
    # RAX: the Trap, moved off the exception stack.
    jmp unilith_handle_trap

# To a program of the overlay, with RSP at its Frame: into its domain, in which the Frame can be read and not written.
# Interrupts stay off from the look at the work to IRET, so nothing comes between.
.globl unilith_leave_to_overlay
unilith_leave_to_overlay:
    cli
    cmp dword ptr gs:[{GS_WORK}], 0
    je 1f
    sti
    jmp unilith_do_work
1:  mov qword ptr [rsp + {CS}], {CODE}
    mov qword ptr [rsp + {SS}], {DATA}
    mov rax, [rsp + {RFLAGS}]
    and eax, {PROGRAM_FLAGS}
    or eax, 0x202
    mov [rsp + {RFLAGS}], rax
    mov rdi, [rsp + {ENTRY}]
    call unilith_pc_domain
    mov rcx, [rsp + {ENTRY}]
    mov gs:[{GS_DOMAIN}], rcx
    # RAX: the root of the domain's page tables, or what its protection keys forbid; RDX: 1 for the former.
    test edx, edx
    jz 2f
    mov rcx, cr4
    mov rdx, rcx
    and dl, 0x7f
    mov cr4, rdx
    mov cr3, rax
    mov cr4, rcx
    jmp unilith_resume
2:  mov ecx, {IA32_PKRS}
    wrmsr
    mov rax, cr4
    or rax, {CR4_SMEP}
    mov cr4, rax
    jmp unilith_resume
.popsection
