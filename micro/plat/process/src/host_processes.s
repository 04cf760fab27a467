# SPDX-License-Identifier: Apache-2.0 OR MIT
# From one host process to the next: the stack goes on there, so from the moment it is woken nothing here uses one.

.pushsection .text.unilith_gate,"ax",@progbits
# rdi = the turn of the thread that goes on, rsi = this one's: the processor's number above that of the host process.
.balign 16
.globl unilith_hand_over, unilith_wait_for_turn
unilith_hand_over:
    push rbx
    push rbp
    push r12
    push r13
    push r14
    push r15
    lea rbx, [rip + unilith_turns]
    mov rax, rsi
    shr rax, {SHIFT}
    lea rcx, [rip + unilith_handed_stacks]
    mov [rcx + rax * 8], rsp
    mov dword ptr [rbx + rsi * 4], {NOT_YET}
    mov r13, rsi
    lea rdi, [rbx + rdi * 4]
    mov eax, {RUNS}
    xchg [rdi], eax
    # One that handed over a moment ago, and was preempted before it slept, looks before it does.
    cmp eax, {SLEEPS}
    jne 4f
    mov esi, {FUTEX_WAKE}
    mov edx, 1
    mov eax, {FUTEX}
    syscall
4:  mov rdi, r13
# rdi = the turn of this thread, which has no stack. It waits for it.
unilith_wait_for_turn:
    mov r13, rdi
    lea rbx, [rip + unilith_turns]
    lea rbx, [rbx + r13 * 4]
    mov eax, r13d
    and eax, {MASK}
    lea r12, [rip + unilith_soiled]
    lea r12, [r12 + rax * 4]
1:  cmp dword ptr [rbx], {RUNS}
    je 3f
    cmp dword ptr [r12], 0
    je 2f
    # Another processor may be in this process, or enter it: then it is done under the kernel's lock.
    cmp dword ptr [rip + unilith_several], 0
    jne 2f
    # While others run: the pages of a space that is gone. Where the host refuses, the next one who enters sees to it.
    mov edi, {LOWEST}
    movabs rsi, {PROGRAM}
    mov eax, {MUNMAP}
    syscall
    test rax, rax
    jnz 2f
    mov dword ptr [r12], 0
    jmp 1b
2:  mov eax, {NOT_YET}
    mov edx, {SLEEPS}
    lock cmpxchg [rbx], edx
    cmp eax, {RUNS}
    je 3f
    mov rdi, rbx
    mov esi, {FUTEX_WAIT}
    xor r10d, r10d
    mov eax, {FUTEX}
    syscall
    jmp 1b
3:  mov edi, [rip + unilith_machine_end]
    test edi, edi
    jnz 4f
    shr r13, {SHIFT}
    lea rcx, [rip + unilith_handed_stacks]
    mov rsp, [rcx + r13 * 8]
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbp
    pop rbx
    ret
4:  movzx edi, dil
    mov eax, {EXIT_GROUP}
    syscall
    ud2
.popsection
