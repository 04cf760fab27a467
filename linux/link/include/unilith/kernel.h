/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Calls of the kernel's own functions, for programs that are linked into Linux by `unilith linux cc`.
 *
 *	UNILITH_KERNEL(ktime_get_real_seconds);
 *	long now = unilith_kernel(ktime_get_real_seconds, 0, 0, 0, 0, 0);
 *
 * The name is looked up in the kernel that the program is linked for, where local functions have names too; the program
 * then runs on that kernel only, and `unilith run` refuses it on others. The function runs on the thread's kernel stack
 * with interrupts on, and whatever is pending is done before it returns, signals included.
 *
 * Safe to call is what a system call could call: functions that may run in the context of a process, with arguments
 * that are right. The kernel trusts them. In particular
 *  - it must return with the locks and the preemption count that it was called with;
 *  - memory of the program is out of bounds for it (SMAP) unless it takes a `__user` pointer and copies; memory of
 *    the kernel is out of bounds for nobody;
 *  - a function that returns -ERESTARTSYS or its like is not called again by itself;
 *  - it takes at most five arguments in registers, and returns in RAX.
 */
#ifndef UNILITH_KERNEL_H
#define UNILITH_KERNEL_H

#define UNILITH_KERNEL(name) extern const char unilith_kernel_##name[] __asm__("linux." #name)

#define unilith_kernel(name, a, b, c, d, e) \
	unilith_call(unilith_kernel_##name, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e))

static inline long unilith_call(const void *function, long a, long b, long c, long d, long e)
{
	long result = (long)function;
	register long fourth __asm__("r10") = d;
	register long fifth __asm__("r8") = e;

	/* The jump back is taken if an interrupt comes before the kernel's stack is reached. */
	__asm__ volatile("0: lea 1f(%%rip), %%rcx\n\t"
			 "jmp unilith_call_function\n\t"
			 "jmp 0b\n"
			 "1:"
			 : "+a"(result)
			 : "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth)
			 : "rcx", "r11", "memory", "cc");
	return result;
}

#endif
