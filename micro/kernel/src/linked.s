# SPDX-License-Identifier: Apache-2.0 OR MIT
# Where a program that is linked with the kernel enters it: for each system call a function `unilith_syscall_NUMBER`, in a
# section of its own, which leads to the call's handler alone (`posix/src/dispatch/linked.rs`).
#
# The program jumps here with the return address in RCX and arguments as for SYSCALL. It expects what a function call
# leaves: callee-saved registers, and the result in RAX. Nothing here writes to the program's stack. The Frame
# and the ways out are entry.s'; an interrupt that hits these instructions finds kernel code.

.macro linked_frame
    mov r11, rsp
    mov rsp, gs:[{GS_FRAME}]
    mov [rsp + {RSP}], r11
    mov [rsp + {RIP}], rcx
.endm

.macro linked_call number, name
    linked_function unilith_syscall_\number, \name, \number
.endm

# `number`: what the Frame says of which call this is; `any`: the number is in RAX.
.macro linked_function symbol, name, number
.pushsection .text.unilith_linked.\name,"ax",@progbits
.balign 16
.globl \symbol
.type \symbol, @function
\symbol:
    linked_frame
    mov [rsp + {RDI}], rdi
    mov [rsp + {RSI}], rsi
    mov [rsp + {RDX}], rdx
    mov [rsp + {R10}], r10
    mov [rsp + {R9}], r9
    mov [rsp + {R8}], r8
    mov [rsp + {RBX}], rbx
    mov [rsp + {RBP}], rbp
    mov [rsp + {R12}], r12
    mov [rsp + {R13}], r13
    mov [rsp + {R14}], r14
    mov [rsp + {R15}], r15
    .ifc \number,any
    mov [rsp + {ORIG_RAX}], rax
    .else
    mov qword ptr [rsp + {ORIG_RAX}], \number
    .endif
    mov qword ptr [rsp + {RFLAGS}], 0x202
    mov qword ptr [rsp + {ENTRY}], 0
    .if {SEVERAL}
    cmp dword ptr [rip + unilith_several], 0
    je 1f
    call unilith_kernel_lock
1:
    .endif
    mov rdi, rsp
    call unilith_call_\name
    test edx, edx
    jnz unilith_leave
    .if {SEVERAL}
    cmp dword ptr [rip + unilith_several], 0
    jne 2f
    .endif
    jmp unilith_fast_check
    .if {SEVERAL}
2:  mov rbx, rax
    call unilith_kernel_unlock
    mov rax, rbx
    mov rbx, [rsp + {RBX}]
    jmp unilith_fast_check
    .endif
.size \symbol, . - \symbol
.popsection
.endm

# A call that only reads a number (`posix/task/src/fast.rs`).
.macro linked_fast number, name
    linked_short unilith_syscall_\number, unilith_fast_\name, \name
.endm

# A function of the raw APIs that does not block, by the C calling convention (micro/raw).
.macro linked_raw name
    linked_short unilith_raw_\name, unilith_raw_serve_\name, raw_\name
.endm

# With one processor the Frame stays as it is. At most three arguments.
.macro linked_short symbol, to, name
.pushsection .text.unilith_linked.\name,"ax",@progbits
.balign 16
.globl \symbol
.type \symbol, @function
\symbol:
    linked_frame
    .if {SEVERAL}
    cmp dword ptr [rip + unilith_several], 0
    jne 1f
    .endif
    call \to
    jmp unilith_fast_check
    .if {SEVERAL}
1:  mov [rsp + {RBX}], rbx
    mov [rsp + {RDI}], rdi
    mov [rsp + {RSI}], rsi
    mov [rsp + {RDX}], rdx
    call unilith_kernel_lock
    mov rdi, [rsp + {RDI}]
    mov rsi, [rsp + {RSI}]
    mov rdx, [rsp + {RDX}]
    call \to
    mov rbx, rax
    call unilith_kernel_unlock
    mov rax, rbx
    mov rbx, [rsp + {RBX}]
    jmp unilith_fast_check
    .endif
.size \symbol, . - \symbol
.popsection
.endm

# The same call from code that was compiled for the instruction `syscall` (`host/static/src/syscalls.rs`): it keeps all registers
# but RAX, RCX and R11, vector registers too. `number`: as above.
.macro linked_kept number, name
.pushsection .text.unilith_linked.kept_\name,"ax",@progbits
.balign 16
.globl unilith_kept_\number
.type unilith_kept_\number, @function
unilith_kept_\number:
    linked_frame
    mov [rsp + {RDI}], rdi
    mov [rsp + {RSI}], rsi
    mov [rsp + {RDX}], rdx
    mov [rsp + {R10}], r10
    mov [rsp + {R9}], r9
    mov [rsp + {R8}], r8
    .ifc \number,any
    mov [rsp + {ORIG_RAX}], rax
    .else
    mov qword ptr [rsp + {ORIG_RAX}], \number
    .endif
    call unilith_save_rest
    .if {SEVERAL}
    cmp dword ptr [rip + unilith_several], 0
    je 1f
    call unilith_kernel_lock
1:
    .endif
    mov rdi, rsp
    call unilith_call_\name
    test edx, edx
    jnz unilith_leave
    mov [rsp + {RAX}], rax
    jmp unilith_leave
.size unilith_kept_\number, . - unilith_kept_\number
.popsection
.endm
