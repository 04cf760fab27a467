# SPDX-License-Identifier: Apache-2.0 OR MIT
# The first instruction, where signals of the host arrive, and the wait.

.pushsection .text.unilith_process,"ax",@progbits
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
    sub rsp, 8
    call unilith_process_signal
    test rax, rax
    # RAX: a Trap on a stack where it can be handled. This frame is left behind.
    jnz unilith_handle_trap
    add rsp, 8
    # To the restorer, whose address the host pushed.
    ret
.balign 16
.globl unilith_restore
unilith_restore:
    mov eax, 15                 # rt_sigreturn
    syscall
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
