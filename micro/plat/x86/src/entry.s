# SPDX-License-Identifier: Apache-2.0 OR MIT
# The ways into the kernel and out of it that all platforms share. docs/explanation/entry.md argues why they are right.
#
# gs:[{GS_FRAME}] is where the running thread's Frame goes, at the top of its kernel stack; gs:[{GS_WORK}] asks for
# `kernel_work`. Nothing here writes to the program's stack.

# ---- System calls: by a jump from a patched site, and on a PC by SYSCALL (IA32_LSTAR). Both come with the return
# address in RCX, the number in RAX and R11 free; IA32_FMASK leaves IF alone, so interrupts are on either way.
# A PC's kernel lies 2 GiB below the top, where an absolute address fits an instruction; others need a register.
.pushsection .text.unilith_gate,"ax",@progbits
# For who checks the image: registers from this one on appear only in what leaves to the program or comes from it.
.globl unilith_frame_vectors
.set unilith_frame_vectors, {FRAME_VECTORS}
# From the program's stack to the Frame, with what a system call must keep for its way back.
.macro to_frame
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
.endm
# One processor at a time is in the kernel. With the Frame complete, and RSP there; changes what a function may change.
.macro enter_kernel
    .if {SEVERAL}
    cmp dword ptr [rip + unilith_several], 0
    je 77f
    call unilith_kernel_lock
77:
    .endif
.endm
# Where an address fits an instruction, the ways that are gone most take no look at that word: they go through two pointers,
# which lead around the lock until there are several processors.
.macro leave_kernel
    .if {BY_POINTERS}
    jmp [unilith_leave_at]
    .else
    jmp unilith_leave
    .endif
.endm
.if {BY_POINTERS}
.pushsection .data,"aw",@progbits
.balign 8
.globl unilith_save_rest_at, unilith_leave_at
unilith_save_rest_at: .quad unilith_save_rest
unilith_leave_at: .quad unilith_leave_unlocked
.popsection
.endif
.balign 64
.globl unilith_entry
unilith_entry:
    cmp eax, {FAST_NUMBERS}
    jae 2f
    mov eax, eax
    .if {ABSOLUTE}
    cmp qword ptr [{FAST_CALLS} + rax * 8], 0
    .else
    lea r11, [rip + {FAST_CALLS}]
    cmp qword ptr [r11 + rax * 8], 0
    .endif
    je 2f

    # An audited call: it touches no vector register, and the C calling convention keeps the callee-saved ones.
    to_frame
    mov rcx, r10
    .if {ABSOLUTE}
    call [{FAST_CALLS} + rax * 8]
    .else
    lea r11, [rip + {FAST_CALLS}]
    call [r11 + rax * 8]
    .endif
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
2:  to_frame
    movsxd rax, eax
    mov [rsp + {ORIG_RAX}], rax
    .if {BY_POINTERS}
    call [unilith_save_rest_at]
    .else
    call unilith_save_rest
    enter_kernel
    .endif
    mov rdi, rsp
    call unilith_kernel_syscall
    leave_kernel

.globl unilith_entry_end
unilith_entry_end:
    # An audited call came back and there is work: complete the Frame.
3:  mov qword ptr [rsp + {ORIG_RAX}], -1
    call unilith_save_rest
    jmp unilith_do_work

.macro save_high_vectors below
    movups [rsp + \below + 96], xmm6
    movups [rsp + \below + 112], xmm7
    movups [rsp + \below + 128], xmm8
    movups [rsp + \below + 144], xmm9
    movups [rsp + \below + 160], xmm10
    movups [rsp + \below + 176], xmm11
    movups [rsp + \below + 192], xmm12
    movups [rsp + \below + 208], xmm13
    movups [rsp + \below + 224], xmm14
    movups [rsp + \below + 240], xmm15
.endm

# Completes the Frame of a system call; RSP is 8 below it. Vector registers: `api_plat::FRAME_VECTORS`. A program may jump
# here with the direction flag set, which the kernel's copies would follow; an audited call has no string instruction.
.macro save_rest
    cld
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
    mov qword ptr [rsp + 8 + {CS}], {CODE}
    mov qword ptr [rsp + 8 + {SS}], {DATA}
    mov qword ptr [rsp + 8 + {ENTRY}], 0
    movups [rsp + 8], xmm0
    movups [rsp + 8 + 16], xmm1
    movups [rsp + 8 + 32], xmm2
    movups [rsp + 8 + 48], xmm3
    movups [rsp + 8 + 64], xmm4
    movups [rsp + 8 + 80], xmm5
.if {FRAME_VECTORS} > 6
    save_high_vectors 8
.endif
.endm
.balign 16
.globl unilith_save_rest
unilith_save_rest:
    save_rest
    ret
.if {BY_POINTERS}
.balign 16
.globl unilith_save_rest_and_lock
unilith_save_rest_and_lock:
    save_rest
    jmp unilith_kernel_lock
.endif

# ---- Out of the kernel. RSP is the Frame.
.macro restore_low_vectors
    movups xmm0, [rsp]
    movups xmm1, [rsp + 16]
    movups xmm2, [rsp + 32]
    movups xmm3, [rsp + 48]
    movups xmm4, [rsp + 64]
    movups xmm5, [rsp + 80]
.endm
.macro restore_vectors
    restore_low_vectors
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
# Those that a system call saved.
.macro restore_saved_vectors
.if {FRAME_VECTORS} > 6
    restore_vectors
.else
    restore_low_vectors
.endif
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
.globl unilith_do_work
unilith_do_work:
    enter_kernel
    mov dword ptr gs:[{GS_WORK}], 0
    mov rdi, rsp
    call unilith_kernel_work
.globl unilith_leave
unilith_leave:
    # From here on only this processor's own interrupts matter. Who wants something of this thread from now on asks for work,
    # which is looked at below, behind the point where the others may come in.
    .if {SEVERAL}
    cmp dword ptr [rip + unilith_several], 0
    je unilith_leave_unlocked
    call unilith_kernel_unlock
    .endif
.globl unilith_leave_unlocked
unilith_leave_unlocked:
    cmp qword ptr [rsp + {ENTRY}], 0
    jne 4f
    restore_saved_vectors
unilith_call_check:
    cmp dword ptr gs:[{GS_WORK}], 0
    jne unilith_do_work
    restore_general
    mov rax, [rsp + {RAX}]
    mov rcx, [rsp + {RIP}]
    mov rsp, [rsp + {RSP}]
unilith_call_tail:
    jmp rcx

4:  cmp qword ptr [rsp + {ENTRY}], 2
    jae 5f
    restore_vectors
unilith_full_check:
    cmp dword ptr gs:[{GS_WORK}], 0
    jne unilith_do_work
    # The frame may have been changed by sigreturn: segments and system flags are not the program's to choose.
    mov qword ptr [rsp + {CS}], {CODE}
    mov qword ptr [rsp + {SS}], {DATA}
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

    # To a program of the overlay.
5:  jmp [rip + {LEAVE_TO_OVERLAY}]

# rdi = a Frame anywhere; moved to the top of the thread's kernel stack, and entered. From the end backwards: the two
# may overlap, and the target lies higher.
.globl unilith_enter_program
unilith_enter_program:
    mov rsp, gs:[{GS_FRAME}]
    mov ecx, {FRAME_SIZE}
1:  mov rax, [rdi + rcx - 8]
    mov [rsp + rcx - 8], rax
    sub ecx, 8
    jnz 1b
    cmp qword ptr [rsp + {ENTRY}], 0
    jne unilith_leave
    mov qword ptr [rsp + {ENTRY}], 1
    # A frame of a system call that another thread begins with (clone): its other vector registers were loaded with
    # the thread's extended state.
.if {FRAME_VECTORS} <= 6
    save_high_vectors 0
.endif
    jmp unilith_leave

# Back to where the interrupt or exception hit, whatever that was.
.balign 16
.globl unilith_resume
unilith_resume:
    restore_vectors
    restore_general
    mov r11, [rsp + {R11}]
    mov rcx, [rsp + {RCX}]
    mov rax, [rsp + {RAX}]
    lea rsp, [rsp + {RIP}]
    iretq

# RAX: a Trap on the stack where it is to be handled, with its Frame behind it.
.globl unilith_handle_trap
unilith_handle_trap:
    mov rsp, rax
    mov rdi, rsp
    call unilith_trap
    add rsp, {TRAP_SIZE}
    test al, al
    jnz unilith_resume
    leave_kernel

# ---- Threads of the kernel. rdi = where RSP goes, rsi = where it comes from.
.balign 16
.globl unilith_switch
unilith_switch:
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
