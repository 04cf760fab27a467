# SPDX-License-Identifier: Apache-2.0 OR MIT
# The first instruction, where signals of the host arrive, and the wait.

.pushsection .text.unilith_gate,"ax",@progbits
.balign 16
.globl unilith_start
unilith_start:
    # The time stamp of the first instruction, for the report of how long the kernel took.
    rdtsc
    shl rdx, 32
    or rax, rdx
    mov rsi, rax
    mov rdi, rsp
    xor ebp, ebp
    and rsp, -16
    call unilith_process_main
    ud2

# A signal, on the alternate stack: rdi = number, rsi = siginfo_t, rdx = ucontext_t, RSP 8 below a multiple of 16.
.balign 16
.globl unilith_signal
unilith_signal:
    # Flags of the program: the host leaves NT and AC to a handler, sigreturn does not take NT away, and IRET refuses to run
    # with it. The program has its AC again from the host's frame.
    push 2
    popfq
    # GS base is the program's to change (WRGSBASE): the stack of this thread says which one it is.
    cmp dword ptr [rip + {FSGSBASE}], 0
    je 9f
    mov rax, {STACKS}
    mov r8, rsp
    sub r8, rax
    shr r8, {STACK_SHIFT}
    xor eax, eax
    cmp r8, {MAX_CPUS}
    cmovae r8, rax
    imul r8, r8, {CPU_SIZE}
    lea rax, [rip + {CPUS}]
    add r8, rax
    rdgsbase rax
    cmp rax, r8
    jne 8f
    # A host process that waits for its turn is not the processor: this is not about what runs.
9:  movabs rax, {PRIVATE}
    mov eax, [rax]
    cmp eax, gs:[{GS_OWNER}]
    jne 6f
    cmp dword ptr gs:[{TRACE_FLAG}], {TRACING}
    je 2f
    # RCX: the domain of an overlay program that it ended.
1:  xor ecx, ecx
    cmp qword ptr gs:[{GS_DOMAIN}], 0
    je 5f
    lea r8, [rip + 5f]
    jmp unilith_domain_open
5:  sub rsp, 24
    mov eax, gs:[{TRACE_FLAG}]
    mov [rsp], eax
    mov dword ptr gs:[{TRACE_FLAG}], {TRACING} + 1
    call unilith_process_signal
    mov ecx, [rsp]
    mov gs:[{TRACE_FLAG}], ecx
    test rax, rax
    # RAX: a Trap on a stack where it can be handled. This frame is left behind.
    jnz unilith_handle_trap
    add rsp, 24
    # To the restorer, whose address the host pushed.
    ret
8:  wrgsbase r8
    jmp 9b
6:  sub rsp, 8
    call unilith_process_foreign_signal
    add rsp, 8
    ret
    # It hit the tracer. No function of the kernel can be called: it may be the one that is being changed.
2:  cmp edi, {SIGALRM}
    je 4f
    cmp edi, {SIGINT}
    je 3f
    cmp edi, {SIGTERM}
    jne 1b
3:  mov byte ptr [rip + {TRACED}], 1
4:  mov edi, gs:[{GS_TIMER}]
    xor esi, esi
    lea rdx, [rip + {PUT_OFF}]
    xor r10d, r10d
    mov eax, {TIMER_SETTIME}
    syscall
    ret
.balign 16
.globl unilith_restore
unilith_restore:
    mov eax, 15                 # rt_sigreturn
    syscall
    ud2

# The handler of the template: a process that it made has ended.
.balign 16
.globl unilith_template_child
unilith_template_child:
    mov edi, 1
    mov eax, {EXIT_GROUP}
    syscall
    ud2

# Goes on at RSI, on the stack that ends at RDI.
.balign 16
.globl unilith_on_stack
unilith_on_stack:
    mov rsp, rdi
    xor ebp, ebp
    call rsi
    ud2

# Waits in ppoll(rdi = descriptors, rsi = count, rdx = timespec) unless work is wanted. A signal that comes from the
# check up to the `syscall` goes back to the check, so what it raised is seen.
.balign 16
.globl unilith_wait, unilith_wait_check, unilith_wait_tail
unilith_wait:
    xor r10d, r10d
    mov r8d, 8
unilith_wait_check:
    cmp dword ptr gs:[{GS_WORK}], 0
    jne 1f
    mov eax, {PPOLL}
unilith_wait_tail:
    syscall
    ret
1:  mov rax, -4                 # EINTR
    ret
.popsection
