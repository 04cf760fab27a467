# SPDX-License-Identifier: Apache-2.0 OR MIT
# Into an overlay program's domain and out of it: loops over the list of `domain.rs` that touch registers only.

.pushsection .text.unilith_gate,"ax",@progbits
# To a program of the overlay, with RSP at its Frame.
.balign 16
.globl unilith_leave_to_overlay, unilith_overlay_check, unilith_overlay_end
unilith_leave_to_overlay:
    mov rdi, rsp
    call unilith_process_domain
    # A signal from here to IRET comes back to here, with everything open again.
unilith_overlay_check:
    cmp dword ptr gs:[{GS_WORK}], 0
    jne unilith_do_work
    mov qword ptr [rsp + {CS}], {CODE}
    mov qword ptr [rsp + {SS}], {DATA}
    mov rax, [rsp + {RFLAGS}]
    and eax, {PROGRAM_FLAGS}
    or eax, 0x202
    mov [rsp + {RFLAGS}], rax
    # From here on the first thing that a signal does is to open what may have been closed.
    mov rcx, [rsp + {ENTRY}]
    mov gs:[{GS_DOMAIN}], rcx
    mov rbx, [rip + {LIST}]
    mov rbp, [rip + {COUNT}]
1:  test rbp, rbp
    jz unilith_resume
    mov rdi, [rbx + {START}]
    mov rsi, [rbx + {LENGTH}]
    mov edx, [rbx + {INSIDE}]
    mov eax, {MPROTECT}
    syscall
    test rax, rax
    jnz 2f
    add rbx, {SIZE}
    dec rbp
    jmp 1b
    # Refused: the signal of this instruction opens everything and tells why.
2:  ud2
unilith_overlay_end:

# Opens what is closed; keeps RDI, RSI and RDX, and answers in RCX the domain that ended. Comes by a jump and goes back to
# R8; every register of what was hit is saved.
.balign 16
.globl unilith_domain_open
unilith_domain_open:
    mov r12, rdi
    mov r13, rsi
    mov r14, rdx
    mov r15, gs:[{GS_DOMAIN}]
    mov rbx, [rip + {LIST}]
    mov rbp, [rip + {COUNT}]
1:  test rbp, rbp
    jz 2f
    mov rdi, [rbx + {START}]
    mov rsi, [rbx + {LENGTH}]
    mov edx, [rbx + {OUTSIDE}]
    mov eax, {MPROTECT}
    syscall
    test rax, rax
    jnz 3f
    add rbx, {SIZE}
    dec rbp
    jmp 1b
2:  mov qword ptr gs:[{GS_DOMAIN}], 0
    mov rdi, r12
    mov rsi, r13
    mov rdx, r14
    mov rcx, r15
    jmp r8
    # The kernel cannot go on without its memory.
3:  mov edi, 1
    mov eax, {EXIT_GROUP}
    syscall
    ud2
.popsection
