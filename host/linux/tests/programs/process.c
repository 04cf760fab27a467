// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * What a process can expect of Linux at any processor level: signals, threads, fork, exec, faults, stacks. Prints
 * the first failed check and exits 1; prints "level N, all well" and exits 0 otherwise.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define CHECK(what)                                                                                                  \
	do {                                                                                                         \
		if (!(what)) {                                                                                       \
			printf("line %d: %s (errno %d)\n", __LINE__, #what, errno);                                  \
			exit(1);                                                                                     \
		}                                                                                                    \
	} while (0)

static unsigned level(void)
{
	unsigned short cs;
	__asm__("mov %%cs, %0" : "=r"(cs));
	return cs & 3;
}

static volatile sig_atomic_t got;
static volatile unsigned long seen_cs, seen_ss, seen_flags;

static void on_signal(int number, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;
	(void)info;
	got = number;
	seen_cs = uc->uc_mcontext.gregs[REG_CSGSFS] & 0xffff;
	seen_ss = uc->uc_mcontext.gregs[REG_CSGSFS] >> 48;
	seen_flags = uc->uc_mcontext.gregs[REG_EFL];
}

static void handle(int number, int flags)
{
	struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | flags};
	CHECK(!sigaction(number, &action, NULL));
}

/* The child's status. */
static int child(void (*body)(void))
{
	int status;
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		body();
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	return status;
}

static void signals(void)
{
	handle(SIGUSR1, 0);
	CHECK(!kill(getpid(), SIGUSR1) && got == SIGUSR1);
	/* A 64-bit program's registers, whatever the level. */
	CHECK(seen_cs == 0x33 && seen_ss == 0x2b && !(seen_flags & (3 << 12 | 1 << 18)));
	handle(SIGALRM, 0);
	got = 0;
	struct itimerval soon = {.it_value.tv_usec = 20000};
	CHECK(!setitimer(ITIMER_REAL, &soon, NULL));
	while (!got)
		;
	CHECK(got == SIGALRM);
	got = 0;
	CHECK(!setitimer(ITIMER_REAL, &soon, NULL));
	CHECK(pause() == -1 && errno == EINTR && got == SIGALRM);
	/* A restarted call. */
	int ends[2];
	handle(SIGALRM, SA_RESTART);
	CHECK(!pipe(ends));
	pid_t pid = fork();
	if (!pid) {
		usleep(100000);
		_exit(write(ends[1], "x", 1) != 1);
	}
	got = 0;
	CHECK(!setitimer(ITIMER_REAL, &soon, NULL));
	char c = 0;
	CHECK(read(ends[0], &c, 1) == 1 && c == 'x' && got == SIGALRM);
	CHECK(waitpid(pid, NULL, 0) == pid);
	/* On a stack of its own. */
	static char other[65536];
	stack_t stack = {.ss_sp = other, .ss_size = sizeof other};
	CHECK(!sigaltstack(&stack, NULL));
	handle(SIGUSR2, SA_ONSTACK);
	CHECK(!raise(SIGUSR2) && got == SIGUSR2);
}

static __thread int mine = 42;
static int counter, shared = 1;

static void *thread(void *argument)
{
	double sum = 0;
	mine += (int)(long)argument;
	for (int i = 0; i < 100000; i++) {
		__atomic_add_fetch(&counter, 1, __ATOMIC_RELAXED);
		sum += i * 0.5;
	}
	CHECK(sum == 100000.0 * 99999 / 4);
	return (void *)(long)mine;
}

static void threads(void)
{
	pthread_t all[4];
	void *result;
	for (long i = 0; i < 4; i++)
		CHECK(!pthread_create(&all[i], NULL, thread, (void *)i));
	for (long i = 0; i < 4; i++)
		CHECK(!pthread_join(all[i], &result) && (long)result == 42 + i);
	CHECK(counter == 400000 && mine == 42);
}

static void change_shared(void)
{
	CHECK(mine == 42 && shared == 1);
	shared = 2;
	_exit(level() == 0 ? 20 : 23);
}

static void *volatile nowhere = (void *)8;
static void read_null(void) { (void)*(volatile int *)nowhere; }
static void call_null(void) { ((void (*)(void))0)(); }
static void call_unmapped(void) { ((void (*)(void))0x10000000)(); }
static void call_no_code(void) { ((void (*)(void))&shared)(); }
static void bad_instruction(void) { __asm__ volatile("ud2"); }
static void breakpoint(void) { __asm__ volatile("int3"); }
static void divide(void) { __asm__ volatile("divl %0" : : "r"(0), "a"(1), "d"(0)); }
static void write_text(void) { *(volatile char *)write_text = 0; }

/* A stack pointer that no program should have: the program dies, the machine does not. */
static void stack_in_kernel(void)
{
	__asm__ volatile("mov $-4096, %rsp\n1: jmp 1b");
}

static void stack_nowhere(void)
{
	__asm__ volatile("mov $0x1000, %rsp\n push %rax");
}

/* The red zone survives interrupts and signals: 128 bytes below the stack pointer are the program's. */
static void red_zone(void)
{
	unsigned long bad;
	struct itimerval often = {.it_value.tv_usec = 1000, .it_interval.tv_usec = 1000}, never = {0};
	handle(SIGALRM, 0);
	CHECK(!setitimer(ITIMER_REAL, &often, NULL));
	__asm__ volatile("mov $20000000, %%rcx\n"
			 "xor %%rax, %%rax\n"
			 "mov %%rcx, -8(%%rsp)\n"
			 "mov %%rcx, -128(%%rsp)\n"
			 "1: mov -8(%%rsp), %%rdx\n"
			 "sub -128(%%rsp), %%rdx\n"
			 "or %%rdx, %%rax\n"
			 "dec %%rcx\n"
			 "jnz 1b\n"
			 "mov %%rax, %0\n"
			 : "=r"(bad)
			 :
			 : "rax", "rcx", "rdx", "memory", "cc");
	CHECK(!setitimer(ITIMER_REAL, &never, NULL));
	CHECK(!bad);
}

static int deep(int n)
{
	volatile char here[1000];
	here[0] = here[999] = (char)n;
	return n ? deep(n - 1) + (here[0] == here[999]) : 0;
}

static void overflow_stack(void)
{
	CHECK(deep(1 << 20) >= 0);
}

/* POPF with AC clear; SMAP must not bite for longer than the kernel needs to notice. */
static void flags(void)
{
	volatile int memory = 5;
	__asm__ volatile("pushf\n andl $~0x40000, (%%rsp)\n popf" : : : "cc", "memory");
	memory = memory + 1;
	CHECK(memory == 6 && getppid() > 0);
}

static void trace_me(void)
{
	CHECK(!ptrace(PTRACE_TRACEME, 0, NULL, NULL));
	raise(SIGSTOP);
	_exit(77);
}

static void tracing(void)
{
	struct user_regs_struct regs;
	int status, steps = 0;
	pid_t pid = fork();
	if (!pid)
		trace_me();
	CHECK(waitpid(pid, &status, 0) == pid && WIFSTOPPED(status));
	CHECK(!ptrace(PTRACE_GETREGS, pid, NULL, &regs));
	CHECK(regs.cs == 0x33 && regs.ss == 0x2b && !(regs.eflags & (3 << 12 | 1 << 18)));
	CHECK(!ptrace(PTRACE_SETREGS, pid, NULL, &regs));
	for (; steps < 200; steps++) {
		CHECK(!ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL));
		CHECK(waitpid(pid, &status, 0) == pid);
		if (!WIFSTOPPED(status))
			break;
		CHECK(WSTOPSIG(status) == SIGTRAP);
	}
	CHECK(steps > 5);
	if (WIFSTOPPED(status)) {
		CHECK(!ptrace(PTRACE_CONT, pid, NULL, NULL));
		CHECK(waitpid(pid, &status, 0) == pid);
	}
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 77);
}

static char *self;

static void again_at_this_level(void)
{
	execl(self, self, level() ? "level3" : "level0", NULL);
	_exit(1);
}

int main(int argc, char **argv);

/*
 * Supervisor mode is given up by the personality, and not taken back without the right. A program that is linked into
 * the kernel cannot run without it.
 */
static void again_as_ordinary(void)
{
	CHECK(personality(0) != -1);
	if ((long)main < 0) {
		CHECK(execl(self, self, "level3", NULL) == -1 && errno == EPERM);
		execl("/bin/sh", "/bin/sh", "-c", "exit 0", NULL);
	}
	execl(self, self, "level3", NULL);
	_exit(1);
}

static void *exec_thread(void *argument)
{
	(void)argument;
	again_as_ordinary();
	return NULL;
}

static void exec_from_thread(void)
{
	pthread_t id;
	CHECK(!pthread_create(&id, NULL, exec_thread, NULL));
	pthread_join(id, NULL);
}

static void become_nobody(void)
{
	CHECK(!setuid(65534));
	CHECK(personality(0) != -1);
	CHECK(personality(0x10000000) == -1 && errno == EPERM);
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	self = argv[0];
	if (argc > 1)
		return level() == (strcmp(argv[1], "level0") ? 3 : 0) ? 0 : 1;
	unsigned here = level();
	signals();
	threads();
	int status = child(change_shared);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 20 + (int)here && shared == 1);
	static const struct {
		void (*body)(void);
		int signal;
	} faults[] = {
		{read_null, SIGSEGV},	     {call_null, SIGSEGV},	{call_unmapped, SIGSEGV},
		{call_no_code, SIGSEGV},     {bad_instruction, SIGILL}, {breakpoint, SIGTRAP},
		{divide, SIGFPE},	     {write_text, SIGSEGV},	{stack_nowhere, SIGSEGV},
		{overflow_stack, SIGSEGV},
	};
	for (unsigned i = 0; i < sizeof faults / sizeof *faults; i++) {
		status = child(faults[i].body);
		if (!WIFSIGNALED(status) || WTERMSIG(status) != faults[i].signal) {
			printf("fault %u: status %x, expected signal %d\n", i, status, faults[i].signal);
			return 1;
		}
	}
	/* It loops on its bad stack until the timer's signal cannot be delivered. */
	pid_t looping = fork();
	if (!looping) {
		handle(SIGALRM, 0);
		struct itimerval soon = {.it_value.tv_usec = 20000};
		setitimer(ITIMER_REAL, &soon, NULL);
		stack_in_kernel();
	}
	CHECK(waitpid(looping, &status, 0) == looping && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	red_zone();
	CHECK(deep(3000) == 3000);
	flags();
	tracing();
	CHECK(child(again_at_this_level) == 0);
	CHECK(child(again_as_ordinary) == 0);
	CHECK(child(exec_from_thread) == 0);
	/* Elsewhere the flag means nothing. */
	if (!here)
		CHECK(child(become_nobody) == 0);
	printf("level %u, all well\n", here);
	return 0;
}
