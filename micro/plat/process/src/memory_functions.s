# SPDX-License-Identifier: Apache-2.0 OR MIT
# What compiled code expects of a C library, for real processors: short copies in a few overlapping moves, long ones by
# `rep`, which runs by whole cache lines (ERMS).

.pushsection .text.memory_functions,"ax",@progbits
.balign 32
.globl memcpy, memmove, memset
memcpy:
memmove:
    mov rax, rdi
    cmp rdx, 16
    jb 3f
    cmp rdx, 32
    ja 1f
    movups xmm0, [rsi]
    movups xmm1, [rsi + rdx - 16]
    movups [rdi], xmm0
    movups [rdi + rdx - 16], xmm1
    ret
    # All is read before anything is written, so these work in either direction.
1:  cmp rdx, 64
    ja 2f
    movups xmm0, [rsi]
    movups xmm1, [rsi + 16]
    movups xmm2, [rsi + rdx - 32]
    movups xmm3, [rsi + rdx - 16]
    movups [rdi], xmm0
    movups [rdi + 16], xmm1
    movups [rdi + rdx - 32], xmm2
    movups [rdi + rdx - 16], xmm3
    ret
2:  mov rcx, rdi
    sub rcx, rsi
    cmp rcx, rdx
    jb 8f                       # the target lies inside the source, behind its start: backwards
    cmp rdx, 1024
    jae 7f
    movups xmm4, [rsi + rdx - 16]
    movups xmm5, [rsi + rdx - 32]
    lea r8, [rdi + rdx - 32]
6:  movups xmm0, [rsi]
    movups xmm1, [rsi + 16]
    movups [rdi], xmm0
    movups [rdi + 16], xmm1
    add rsi, 32
    add rdi, 32
    cmp rdi, r8
    jb 6b
    movups [r8], xmm5
    movups [r8 + 16], xmm4
    ret
7:  mov rcx, rdx
    rep movsb
    ret
3:  cmp rdx, 8
    jb 4f
    mov rcx, [rsi]
    mov r8, [rsi + rdx - 8]
    mov [rdi], rcx
    mov [rdi + rdx - 8], r8
    ret
4:  cmp rdx, 4
    jb 5f
    mov ecx, [rsi]
    mov r8d, [rsi + rdx - 4]
    mov [rdi], ecx
    mov [rdi + rdx - 4], r8d
    ret
5:  test edx, edx
    je 9f
    movzx r8d, byte ptr [rsi + rdx - 1]
    cmp edx, 2
    jb 10f
    movzx ecx, word ptr [rsi]
    mov [rdi], cx
10: mov [rdi + rdx - 1], r8b
9:  ret
8:  lea rsi, [rsi + rdx]
    lea rdi, [rdi + rdx]
11: cmp rdx, 32
    jb 12f
    movups xmm0, [rsi - 16]
    movups xmm1, [rsi - 32]
    movups [rdi - 16], xmm0
    movups [rdi - 32], xmm1
    sub rsi, 32
    sub rdi, 32
    sub rdx, 32
    jmp 11b
12: test rdx, rdx
    je 9b
13: dec rsi
    dec rdi
    movzx ecx, byte ptr [rsi]
    mov [rdi], cl
    dec rdx
    jne 13b
    ret

.balign 32
memset:
    mov r9, rdi
    movzx eax, sil
    movabs rcx, 0x0101010101010101
    imul rax, rcx
    cmp rdx, 16
    jb 3f
    cmp rdx, 512
    ja 2f
    movq xmm0, rax
    punpcklqdq xmm0, xmm0
    lea r8, [rdi + rdx - 16]
1:  movups [rdi], xmm0
    add rdi, 16
    cmp rdi, r8
    jb 1b
    movups [r8], xmm0
    mov rax, r9
    ret
2:  mov rcx, rdx
    rep stosb
    mov rax, r9
    ret
3:  cmp edx, 8
    jb 4f
    mov [rdi], rax
    mov [rdi + rdx - 8], rax
    mov rax, r9
    ret
4:  test edx, edx
    je 6f
5:  mov [rdi], al
    inc rdi
    dec edx
    jne 5b
6:  mov rax, r9
    ret
.popsection
