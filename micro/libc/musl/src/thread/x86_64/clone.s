# SPDX-License-Identifier: Apache-2.0 OR MIT
# A jump to the kernel; RCX is where it goes on (arch/x86_64/syscall_arch.h).
.macro enter number
	movabs $unilith_syscall_\number, %rax
	jmp *%rax
.endm

# int __clone(int (*)(void *), void *stack, int flags, void *, pid_t *ptid, void *tls, pid_t *ctid). The new
# thread finds function and argument on its stack.
.section .text.__clone,"ax",@progbits
.global __clone
.hidden __clone
.type __clone,@function
__clone:
	mov 8(%rsp), %r10
	and $-16, %rsi
	sub $16, %rsi
	mov %rdi, (%rsi)
	mov %rcx, 8(%rsi)
	mov %edx, %edi
	mov %r8, %rdx
	mov %r9, %r8
	lea 1f(%rip), %rcx
	enter 56
1:	test %eax, %eax
	jnz 3f
	xor %ebp, %ebp
	pop %rax
	pop %rdi
	call *%rax
	mov %eax, %edi
	lea 2f(%rip), %rcx
	enter 60
2:	hlt
3:	ret
