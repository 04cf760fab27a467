# SPDX-License-Identifier: Apache-2.0 OR MIT
# What compiled code expects of a C library and is the same for real and for emulated processors. Copying and filling is not: each
# platform has its own.

.pushsection .text.memory_functions,"ax",@progbits
.globl memcmp, bcmp, strlen
.balign 16
bcmp:
memcmp:
    cmp rdx, 8
    jb 2f
    mov rax, [rdi]
    mov rcx, [rsi]
    cmp rax, rcx
    jne 1f
    add rdi, 8
    add rsi, 8
    sub rdx, 8
    jmp memcmp
1:  bswap rax                   # the first byte in memory is the most significant one
    bswap rcx
    cmp rax, rcx
    sbb eax, eax
    or eax, 1
    ret
2:  xor eax, eax
3:  test rdx, rdx
    je 4f
    movzx eax, byte ptr [rdi]
    movzx ecx, byte ptr [rsi]
    inc rdi
    inc rsi
    dec rdx
    sub eax, ecx
    je 3b
4:  ret

.balign 16
strlen:
    xor eax, eax
    cmp byte ptr [rdi], 0
    je 2f
1:  inc rax
    cmp byte ptr [rdi + rax], 0
    jne 1b
2:  ret
.popsection
