# SPDX-License-Identifier: Apache-2.0 OR MIT
# A jump to the kernel; RCX is where it goes on (arch/x86_64/syscall_arch.h).
.macro enter number
	movabs $unilith_syscall_\number, %rax
	jmp *%rax
.endm

# Where signal handlers return to: rt_sigreturn, with RSP at the frame.
.section .text.__restore_rt,"ax",@progbits
.global __restore_rt
.hidden __restore_rt
.type __restore_rt,@function
__restore_rt:
	lea 1f(%rip), %rcx
	enter 15
1:	hlt
