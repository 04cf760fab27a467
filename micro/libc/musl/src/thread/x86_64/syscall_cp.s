# SPDX-License-Identifier: Apache-2.0 OR MIT
# long __syscall_cp_asm(volatile int *cancel, function, six arguments): the signal of a cancellation that comes between
# __cp_begin and __cp_end goes on at __cp_cancel.
.section .text.__syscall_cp_asm,"ax",@progbits
.global __cp_begin, __cp_end, __cp_cancel, __syscall_cp_asm
.hidden __cp_begin, __cp_end, __cp_cancel, __syscall_cp_asm, __cancel
.type __syscall_cp_asm,@function
__syscall_cp_asm:
__cp_begin:
	mov (%rdi), %eax
	test %eax, %eax
	jnz __cp_cancel
	mov %rsi, %rax
	mov %rdx, %rdi
	mov %rcx, %rsi
	mov %r8, %rdx
	mov %r9, %r10
	mov 8(%rsp), %r8
	mov 16(%rsp), %r9
	lea __cp_end(%rip), %rcx
	jmp *%rax
__cp_end:
	ret
__cp_cancel:
	jmp __cancel
