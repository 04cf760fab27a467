# SPDX-License-Identifier: Apache-2.0 OR MIT
# The ways into the kernel and out of it. docs/explanation/entry.md argues why they are right.
#
# gs:[{GS_FRAME}] is where the running thread's Frame goes, at the top of its kernel stack; gs:[{GS_WORK}] asks for
# `kernel_work`. Nothing here writes to the program's stack.

# ---- System calls: by SYSCALL (IA32_LSTAR) and by a jump from a patched site. Both come with the return address in
# RCX, the number in RAX and R11 free; IA32_FMASK leaves IF alone, so interrupts are on either way.
.pushsection .text.unilith_entry,"ax",@progbits
.balign 64
.globl unilith_entry
unilith_entry:
    cmp eax, {FAST_NUMBERS}
    jae 2f
    mov eax, eax
    cmp qword ptr [{FAST_CALLS} + rax * 8], 0
    je 2f

    # An audited call: it touches no vector register, and the C calling convention keeps the callee-saved ones.
    mov r11, rsp
    mov rsp, gs:[{GS_FRAME}]
    mov [rsp + {RSP}], r11
    mov [rsp + {RIP}], rcx
    mov [rsp + {RDI}], rdi
    mov [rsp + {RSI}], rsi
    mov [rsp + {RDX}], rdx
    mov [rsp + {R10}], r10
    mov [rsp + {R9}], r9
    mov [rsp + {R8}], r8
    mov rcx, r10
    call [{FAST_CALLS} + rax * 8]
    mov rdi, [rsp + {RDI}]
    mov rsi, [rsp + {RSI}]
    mov rdx, [rsp + {RDX}]
    mov r10, [rsp + {R10}]
    mov r9, [rsp + {R9}]
    mov r8, [rsp + {R8}]
.globl unilith_fast_check, unilith_fast_tail, unilith_call_check, unilith_call_tail
.globl unilith_full_check, unilith_full_iret
    # An interrupt between here and the tail goes back to here: what it left to do is seen.
unilith_fast_check:
    cmp dword ptr gs:[{GS_WORK}], 0
    jne 3f
    mov rcx, [rsp + {RIP}]
    mov rsp, [rsp + {RSP}]
    # An interrupt here has already left the kernel: it continues at RCX.
unilith_fast_tail:
    jmp rcx

.balign 16
2:  mov r11, rsp
    mov rsp, gs:[{GS_FRAME}]
    mov [rsp + {RSP}], r11
    mov [rsp + {RIP}], rcx
    mov [rsp + {RDI}], rdi
    mov [rsp + {RSI}], rsi
    mov [rsp + {RDX}], rdx
    mov [rsp + {R10}], r10
    mov [rsp + {R9}], r9
    mov [rsp + {R8}], r8
    movsxd rax, eax
    mov [rsp + {ORIG_RAX}], rax
    call unilith_save_rest
    mov rdi, rsp
    call unilith_kernel_syscall
    jmp unilith_leave

    # An audited call came back and there is work: complete the Frame.
3:  mov qword ptr [rsp + {ORIG_RAX}], -1
    call unilith_save_rest
    jmp unilith_do_work

# Completes the Frame of a system call; RSP is 8 below it.
.balign 16
unilith_save_rest:
    mov [rsp + 8 + {RAX}], rax
    mov [rsp + 8 + {RCX}], rcx
    mov [rsp + 8 + {RBX}], rbx
    mov [rsp + 8 + {RBP}], rbp
    mov [rsp + 8 + {R12}], r12
    mov [rsp + 8 + {R13}], r13
    mov [rsp + 8 + {R14}], r14
    mov [rsp + 8 + {R15}], r15
    mov qword ptr [rsp + 8 + {R11}], 0x202
    mov qword ptr [rsp + 8 + {RFLAGS}], 0x202
    mov qword ptr [rsp + 8 + {CS}], 8
    mov qword ptr [rsp + 8 + {SS}], 16
    mov qword ptr [rsp + 8 + {ENTRY}], 0
    movups [rsp + 8], xmm0
    movups [rsp + 8 + 16], xmm1
    movups [rsp + 8 + 32], xmm2
    movups [rsp + 8 + 48], xmm3
    movups [rsp + 8 + 64], xmm4
    movups [rsp + 8 + 80], xmm5
    movups [rsp + 8 + 96], xmm6
    movups [rsp + 8 + 112], xmm7
    movups [rsp + 8 + 128], xmm8
    movups [rsp + 8 + 144], xmm9
    movups [rsp + 8 + 160], xmm10
    movups [rsp + 8 + 176], xmm11
    movups [rsp + 8 + 192], xmm12
    movups [rsp + 8 + 208], xmm13
    movups [rsp + 8 + 224], xmm14
    movups [rsp + 8 + 240], xmm15
    ret

# ---- Out of the kernel. RSP is the Frame.
.macro restore_vectors
    movups xmm0, [rsp]
    movups xmm1, [rsp + 16]
    movups xmm2, [rsp + 32]
    movups xmm3, [rsp + 48]
    movups xmm4, [rsp + 64]
    movups xmm5, [rsp + 80]
    movups xmm6, [rsp + 96]
    movups xmm7, [rsp + 112]
    movups xmm8, [rsp + 128]
    movups xmm9, [rsp + 144]
    movups xmm10, [rsp + 160]
    movups xmm11, [rsp + 176]
    movups xmm12, [rsp + 192]
    movups xmm13, [rsp + 208]
    movups xmm14, [rsp + 224]
    movups xmm15, [rsp + 240]
.endm
# All but RAX, RCX, R11 and RSP.
.macro restore_general
    mov r15, [rsp + {R15}]
    mov r14, [rsp + {R14}]
    mov r13, [rsp + {R13}]
    mov r12, [rsp + {R12}]
    mov rbp, [rsp + {RBP}]
    mov rbx, [rsp + {RBX}]
    mov r10, [rsp + {R10}]
    mov r9, [rsp + {R9}]
    mov r8, [rsp + {R8}]
    mov rdi, [rsp + {RDI}]
    mov rsi, [rsp + {RSI}]
    mov rdx, [rsp + {RDX}]
.endm

.balign 16
unilith_do_work:
    mov dword ptr gs:[{GS_WORK}], 0
    mov rdi, rsp
    call unilith_kernel_work
unilith_leave:
    cmp qword ptr [rsp + {ENTRY}], 0
    jne 4f
    restore_vectors
unilith_call_check:
    cmp dword ptr gs:[{GS_WORK}], 0
    jne unilith_do_work
    restore_general
    mov rax, [rsp + {RAX}]
    mov rcx, [rsp + {RIP}]
    mov rsp, [rsp + {RSP}]
unilith_call_tail:
    jmp rcx

4:  restore_vectors
unilith_full_check:
    cmp dword ptr gs:[{GS_WORK}], 0
    jne unilith_do_work
    # The frame may have been changed by sigreturn: segments and system flags are not the program's to choose.
    mov qword ptr [rsp + {CS}], 8
    mov qword ptr [rsp + {SS}], 16
    mov rax, [rsp + {RFLAGS}]
    and eax, {PROGRAM_FLAGS}
    or eax, 0x202
    mov [rsp + {RFLAGS}], rax
    restore_general
    mov r11, [rsp + {R11}]
    mov rcx, [rsp + {RCX}]
    mov rax, [rsp + {RAX}]
    lea rsp, [rsp + {RIP}]
unilith_full_iret:
    iretq

# rdi = a Frame anywhere; moved to the top of the thread's kernel stack, and entered. From the end backwards: the two
# may overlap, and the target lies higher.
.globl unilith_pc_enter_program
unilith_pc_enter_program:
    mov rsp, gs:[{GS_FRAME}]
    mov ecx, {FRAME_SIZE}
1:  mov rax, [rdi + rcx - 8]
    mov [rsp + rcx - 8], rax
    sub ecx, 8
    jnz 1b
    mov qword ptr [rsp + {ENTRY}], 1
    jmp unilith_leave

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

# Back to where the interrupt or exception hit, whatever that was.
.balign 16
unilith_resume:
    restore_vectors
    restore_general
    mov r11, [rsp + {R11}]
    mov rcx, [rsp + {RCX}]
    mov rax, [rsp + {RAX}]
    lea rsp, [rsp + {RIP}]
    iretq

unilith_exception:
    save_all
    mov rdi, rsp
    mov esi, eax
    mov rdx, cr2
    call unilith_pc_exception
    # RAX: the Trap, moved off the exception stack, with its Frame behind it.
    mov rsp, rax
    mov rdi, rsp
    call unilith_pc_trap
    add rsp, {TRAP_SIZE}
    test eax, eax
    jnz unilith_resume
    jmp unilith_leave

# ---- Threads of the kernel. rdi = where RSP goes, rsi = where it comes from.
.balign 16
.globl unilith_pc_switch
unilith_pc_switch:
    push rbx
    push rbp
    push r12
    push r13
    push r14
    push r15
    mov [rdi], rsp
    mov rsp, [rsi]
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbp
    pop rbx
    ret

# First code of a thread: r12 = entry, r13 = argument, RSP a multiple of 16.
.globl unilith_thread_start
unilith_thread_start:
    xor ebp, ebp
    mov rdi, r13
    call r12
    ud2
.popsection
