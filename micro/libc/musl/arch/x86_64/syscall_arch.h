/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * System calls of musl in a program that is linked with its kernel, in place of arch/x86_64/syscall_arch.h: a jump to the
 * function unilith_syscall_NUMBER of the kernel (micro/kernel/src/linked.s), with the return address in RCX. The number is
 * part of the symbol's name, so the linker sees which calls a program makes, and leaves all others out.
 *
 * The kernel keeps what any function keeps: RBX, RBP, RSP and R12 to R15.
 */
#define __SYSCALL_LL_E(x) (x)
#define __SYSCALL_LL_O(x) (x)

#define __UNILITH_LOST "rcx", "r11", "memory", "cc", \
	"xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", \
	"xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"

/* An address of 64 bits: kernel and program lie further apart than a displacement of 32 bits reaches. */
#define __UNILITH_JUMP "lea 1f(%%rip), %%rcx\n\tmovabs $unilith_syscall_%c[number], %%rax\n\tjmp *%%rax\n1:"
/* A number that is no constant: with it comes the table of all calls. */
#define __UNILITH_ANY "lea 1f(%%rip), %%rcx\n\tmovabs $unilith_syscall_any, %%r11\n\tjmp *%%r11\n1:"

/* The function of a call, for calls that are handed on before they are made: cancellation points. */
#define __UNILITH_FUNCTION(n) __extension__ ({ long __function; \
	__asm__ ("movabs $unilith_syscall_%c1, %0" : "=r"(__function) : "i"(n)); __function; })

#define __UNILITH_CALL(n, lost, ...) do { \
	if (__builtin_constant_p(n)) \
		__asm__ __volatile__ (__UNILITH_JUMP : "=a"(ret) __VA_ARGS__ : [number] "i"(n) : lost __UNILITH_LOST); \
	else \
		__asm__ __volatile__ (__UNILITH_ANY : "=a"(ret) __VA_ARGS__ : "0"(n) : lost __UNILITH_LOST); \
	} while (0)
#define __UNILITH_INLINE static __inline __attribute__((__always_inline__))
#define __UNILITH_COMMA ,
#define __UNILITH_LOST4 "r10", "r8", "r9",
#define __UNILITH_LOST5 "r8", "r9",
#define __UNILITH_LOST6 "r9",

__UNILITH_INLINE long __syscall0(long n)
{
	unsigned long ret;
#define __UNILITH_LOST1 "rdi", "rsi", "rdx", "r10", "r8", "r9",
	__UNILITH_CALL(n, __UNILITH_LOST1);
	return ret;
}

__UNILITH_INLINE long __syscall1(long n, long a)
{
	unsigned long ret;
#define __UNILITH_LOST2 "rsi", "rdx", "r10", "r8", "r9",
	__UNILITH_CALL(n, __UNILITH_LOST2, , "+D"(a));
	return ret;
}

__UNILITH_INLINE long __syscall2(long n, long a, long b)
{
	unsigned long ret;
#define __UNILITH_LOST3 "rdx", "r10", "r8", "r9",
	__UNILITH_CALL(n, __UNILITH_LOST3, , "+D"(a), "+S"(b));
	return ret;
}

__UNILITH_INLINE long __syscall3(long n, long a, long b, long c)
{
	unsigned long ret;
	__UNILITH_CALL(n, __UNILITH_LOST4, , "+D"(a), "+S"(b), "+d"(c));
	return ret;
}

__UNILITH_INLINE long __syscall4(long n, long a, long b, long c, long d)
{
	unsigned long ret;
	register long r10 __asm__("r10") = d;
	__UNILITH_CALL(n, __UNILITH_LOST5, , "+D"(a), "+S"(b), "+d"(c), "+r"(r10));
	return ret;
}

__UNILITH_INLINE long __syscall5(long n, long a, long b, long c, long d, long e)
{
	unsigned long ret;
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	__UNILITH_CALL(n, __UNILITH_LOST6, , "+D"(a), "+S"(b), "+d"(c), "+r"(r10), "+r"(r8));
	return ret;
}

__UNILITH_INLINE long __syscall6(long n, long a, long b, long c, long d, long e, long f)
{
	unsigned long ret;
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	__UNILITH_CALL(n, , , "+D"(a), "+S"(b), "+d"(c), "+r"(r10), "+r"(r8), "+r"(r9));
	return ret;
}

/* By what __UNILITH_FUNCTION gave. */
__UNILITH_INLINE long __unilith_call(long function, long a, long b, long c, long d, long e, long f)
{
	unsigned long ret;
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	__asm__ __volatile__ ("lea 1f(%%rip), %%rcx\n\tjmp *%%rax\n1:"
		: "=a"(ret), "+D"(a), "+S"(b), "+d"(c), "+r"(r10), "+r"(r8), "+r"(r9)
		: "0"(function) : __UNILITH_LOST);
	return ret;
}

/* Its number is a constant only where it is inlined. */
__UNILITH_INLINE long __alt_socketcall(int, int, int, long, long, long, long, long, long);

#define VDSO_USEFUL
#define VDSO_CGT_SYM "__vdso_clock_gettime"
#define VDSO_CGT_VER "LINUX_2.6"
#define VDSO_GETCPU_SYM "__vdso_getcpu"
#define VDSO_GETCPU_VER "LINUX_2.6"

#define IPC_64 0
