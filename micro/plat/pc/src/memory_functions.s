# SPDX-License-Identifier: Apache-2.0 OR MIT
# What compiled code expects of a C library. Eight bytes a step: under TCG a bytewise `rep` costs the same per step.

.pushsection .text.memory_functions,"ax",@progbits
.balign 16
.globl memcpy, memmove, memset
memcpy:
    mov rax, rdi
1:  cmp rdx, 32
    jb 2f
    mov rcx, rdx
    shr rcx, 3
    and edx, 7
    rep movsq
2:  test edx, edx
    je 4f
    # A short rest: byte by byte costs less than starting `rep`.
3:  movzx ecx, byte ptr [rsi]
    mov [rdi], cl
    inc rsi
    inc rdi
    dec edx
    jne 3b
4:  ret

.balign 16
memmove:
    mov rax, rdi
    mov rcx, rdi
    sub rcx, rsi
    cmp rcx, rdx
    jae 1b                      # the target is not inside the source: forwards is right
    lea rsi, [rsi + rdx]
    lea rdi, [rdi + rdx]
5:  cmp rdx, 8
    jb 6f
    mov rcx, [rsi - 8]
    sub rsi, 8
    sub rdi, 8
    mov [rdi], rcx
    sub rdx, 8
    jmp 5b
6:  test edx, edx
    je 8f
7:  dec rsi
    dec rdi
    movzx ecx, byte ptr [rsi]
    mov [rdi], cl
    dec edx
    jne 7b
8:  ret

.balign 16
memset:
    mov r8, rdi
    movzx eax, sil
    movabs rcx, 0x0101010101010101
    imul rax, rcx
    mov rcx, rdx
    shr rcx, 3
    and edx, 7
    rep stosq
    mov ecx, edx
    rep stosb
    mov rax, r8
    ret
.popsection
