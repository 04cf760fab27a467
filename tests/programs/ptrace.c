// SPDX-License-Identifier: Apache-2.0 OR MIT
// ptrace(2), as a tracer sees it. It passes on Linux as well: cc -O1 -pthread tests/programs/ptrace.c && ./a.out
#define _GNU_SOURCE
#include "check.h"
#include <elf.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

static int stopped(int status, int signal)
{
	return WIFSTOPPED(status) && WSTOPSIG(status) == signal;
}

static int wait_for(pid_t pid)
{
	int status;
	pid_t waited = waitpid(pid, &status, __WALL);
	CHECK(pid == -1 ? waited > 0 : waited == pid);
	return status;
}

static void go(int request, pid_t pid, long signal)
{
	CHECK(ptrace(request, pid, NULL, signal) == 0);
}

// A child that asks to be traced, and stands in its first stop.
static pid_t traced_child(void (*body)(void))
{
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		CHECK(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0);
		raise(SIGSTOP);
		body();
		_exit(0);
	}
	CHECK(stopped(wait_for(pid), SIGSTOP));
	return pid;
}

static void end(pid_t pid, int code)
{
	go(PTRACE_CONT, pid, 0);
	int status = wait_for(pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == code);
}

static void call_getppid(void)
{
	long parent = syscall(SYS_getppid);
	_exit(parent == getppid() ? 7 : parent == 4711 ? 8 : 9);
}

// Goes on to the next stop in the call of that number, and back out of it when `out` is set.
static void to_call(pid_t pid, long number, int out)
{
	struct user_regs_struct regs;
	do {
		go(PTRACE_SYSCALL, pid, 0);
		int status = wait_for(pid);
		CHECK(stopped(status, SIGTRAP | 0x80));
		CHECK(ptrace(PTRACE_GETREGS, pid, NULL, &regs) == 0);
	} while ((long)regs.orig_rax != number || (long)regs.rax != -ENOSYS);
	if (out) {
		go(PTRACE_SYSCALL, pid, 0);
		CHECK(stopped(wait_for(pid), SIGTRAP | 0x80));
	}
}

static void calls(void)
{
	pid_t pid = traced_child(call_getppid);
	struct user_regs_struct regs;
	struct __ptrace_syscall_info info;
	CHECK(ptrace(PTRACE_SETOPTIONS, pid, NULL, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL) == 0);
	to_call(pid, SYS_getppid, 0);
	CHECK(ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof info, &info) == 80);
	CHECK(info.op == PTRACE_SYSCALL_INFO_ENTRY && info.entry.nr == SYS_getppid && info.arch == 0xc000003e);
	CHECK(ptrace(PTRACE_GETREGS, pid, NULL, &regs) == 0);
	CHECK(info.instruction_pointer == regs.rip && info.stack_pointer == regs.rsp);
	CHECK(regs.cs == 0x33 && regs.ss == 0x2b);
	// The instruction before is the program's own, whatever the kernel has put in its place.
	long word = ptrace(PTRACE_PEEKTEXT, pid, regs.rip - 2, NULL);
	CHECK((word & 0xffff) == 0x050f);
	go(PTRACE_SYSCALL, pid, 0);
	CHECK(stopped(wait_for(pid), SIGTRAP | 0x80));
	CHECK(ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof info, &info) == 33);
	CHECK(info.op == PTRACE_SYSCALL_INFO_EXIT && info.exit.rval == getpid() && !info.exit.is_error);
	end(pid, 7);

	// Another result, and a call that is not made at all.
	pid = traced_child(call_getppid);
	go(PTRACE_SETOPTIONS, pid, PTRACE_O_TRACESYSGOOD);
	to_call(pid, SYS_getppid, 0);
	CHECK(ptrace(PTRACE_POKEUSER, pid, offsetof(struct user_regs_struct, orig_rax), -1L) == 0);
	go(PTRACE_SYSCALL, pid, 0);
	CHECK(stopped(wait_for(pid), SIGTRAP | 0x80));
	CHECK(ptrace(PTRACE_PEEKUSER, pid, offsetof(struct user_regs_struct, rax), NULL) == -ENOSYS);
	CHECK(ptrace(PTRACE_POKEUSER, pid, offsetof(struct user_regs_struct, rax), 4711L) == 0);
	end(pid, 8);
}

static volatile long variable = 1;
__attribute__((noinline)) static int broken_at(int x)
{
	variable += x;
	return variable;
}

static void run_to_breakpoint(void)
{
	_exit(broken_at(5));
}

static void breakpoints(void)
{
	pid_t pid = traced_child(run_to_breakpoint);
	struct user_regs_struct regs;
	long original = ptrace(PTRACE_PEEKTEXT, pid, broken_at, NULL);
	CHECK(memcmp(&original, (void *)broken_at, sizeof original) == 0);
	CHECK(ptrace(PTRACE_POKETEXT, pid, broken_at, (original & ~0xffL) | 0xcc) == 0);
	CHECK(memcmp(&original, (void *)broken_at, sizeof original) == 0);
	go(PTRACE_CONT, pid, 0);
	CHECK(stopped(wait_for(pid), SIGTRAP));
	CHECK(ptrace(PTRACE_GETREGS, pid, NULL, &regs) == 0);
	CHECK(regs.rip == (unsigned long)broken_at + 1 && regs.rdi == 5);
	CHECK(ptrace(PTRACE_POKETEXT, pid, broken_at, original) == 0);
	regs.rip--;
	regs.rdi = 40;
	CHECK(ptrace(PTRACE_SETREGS, pid, NULL, &regs) == 0);
	CHECK(ptrace(PTRACE_PEEKDATA, pid, &variable, NULL) == 1);
	CHECK(ptrace(PTRACE_POKEDATA, pid, &variable, 2L) == 0);
	go(PTRACE_SINGLESTEP, pid, 0);
	CHECK(stopped(wait_for(pid), SIGTRAP));
	unsigned long before = regs.rip;
	CHECK(ptrace(PTRACE_GETREGS, pid, NULL, &regs) == 0);
	CHECK(regs.rip > before && regs.rip < before + 16 && !(regs.eflags & 0x100));
	end(pid, 42);
	CHECK(variable == 1);
}

static void step_over_calls(void)
{
	_exit(syscall(SYS_getppid) == getppid() ? 3 : 4);
}

// Steps through the C library's own system calls, one instruction at a time.
static void steps(void)
{
	pid_t pid = traced_child(step_over_calls);
	int calls = 0, count = 0, status;
	for (;;) {
		struct user_regs_struct regs, after;
		CHECK(ptrace(PTRACE_GETREGS, pid, NULL, &regs) == 0);
		long word = ptrace(PTRACE_PEEKTEXT, pid, regs.rip, NULL);
		go(PTRACE_SINGLESTEP, pid, 0);
		status = wait_for(pid);
		if (!WIFSTOPPED(status))
			break;
		CHECK(stopped(status, SIGTRAP));
		CHECK(ptrace(PTRACE_GETREGS, pid, NULL, &after) == 0);
		count++;
		if ((word & 0xffff) == 0x050f) {
			CHECK(after.rip == regs.rip + 2);
			CHECK(regs.rax != SYS_getppid || (pid_t)after.rax == getpid());
			calls += regs.rax == SYS_getppid;
		}
	}
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3 && calls == 2 && count > 10);
}

static volatile int got;
static void note(int signal, siginfo_t *info, void *context)
{
	(void)context;
	got += info->si_value.sival_int == 77 ? 100 : signal;
}

static void raise_several(void)
{
	struct sigaction action = { .sa_sigaction = note, .sa_flags = SA_SIGINFO };
	sigaction(SIGUSR1, &action, NULL);
	sigaction(SIGUSR2, &action, NULL);
	raise(SIGUSR1);
	raise(SIGUSR1);
	raise(SIGUSR1);
	raise(SIGWINCH);
	_exit(got);
}

static void signals(void)
{
	pid_t pid = traced_child(raise_several);
	siginfo_t info;
	// Delivered as it is; taken away; another one in its place, with what the tracer says of it.
	go(PTRACE_CONT, pid, 0);
	CHECK(stopped(wait_for(pid), SIGUSR1));
	CHECK(ptrace(PTRACE_GETSIGINFO, pid, NULL, &info) == 0);
	CHECK(info.si_signo == SIGUSR1 && info.si_code == SI_TKILL && info.si_pid == pid);
	info.si_value.sival_int = 77;
	CHECK(ptrace(PTRACE_SETSIGINFO, pid, NULL, &info) == 0);
	go(PTRACE_CONT, pid, SIGUSR1);
	CHECK(stopped(wait_for(pid), SIGUSR1));
	go(PTRACE_CONT, pid, 0);
	CHECK(stopped(wait_for(pid), SIGUSR1));
	go(PTRACE_CONT, pid, SIGUSR2);
	// What is ignored is seen as well.
	CHECK(stopped(wait_for(pid), SIGWINCH));
	uint64_t mask = 0, asked = 1 << (SIGUSR1 - 1);
	CHECK(ptrace(PTRACE_SETSIGMASK, pid, sizeof asked, &asked) == 0);
	CHECK(ptrace(PTRACE_GETSIGMASK, pid, sizeof mask, &mask) == 0 && mask == asked);
	CHECK(ptrace(PTRACE_GETSIGMASK, pid, 4, &mask) == -1 && errno == EINVAL);
	kill(pid, SIGUSR1);
	struct __ptrace_peeksiginfo_args peek = { .off = 0, .flags = PTRACE_PEEKSIGINFO_SHARED, .nr = 4 };
	siginfo_t infos[4];
	CHECK(ptrace(PTRACE_PEEKSIGINFO, pid, &peek, infos) == 1 && infos[0].si_signo == SIGUSR1);
	end(pid, 100 + SIGUSR2);

	pid = traced_child(raise_several);
	go(PTRACE_CONT, pid, SIGTERM);
	int status = wait_for(pid);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
}

static void *thread_body(void *argument)
{
	return argument;
}

static void make_things(void)
{
	pthread_t thread;
	int status;
	pid_t child = fork();
	if (child == 0)
		_exit(11);
	CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 11);
	child = vfork();
	if (child == 0)
		_exit(12);
	CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 12);
	CHECK(pthread_create(&thread, NULL, thread_body, NULL) == 0);
	pthread_join(thread, NULL);
	execl("/proc/self/exe", "ptrace", "child", NULL);
	_exit(99);
}

static void events(void)
{
	pid_t pid = traced_child(make_things);
	int seen[8] = { 0 }, ends = 0;
	long options = PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACEVFORKDONE | PTRACE_O_TRACECLONE |
		       PTRACE_O_TRACEEXEC | PTRACE_O_TRACEEXIT;
	go(PTRACE_SETOPTIONS, pid, options);
	go(PTRACE_CONT, pid, 0);
	for (;;) {
		int status;
		unsigned long message = 0;
		pid_t who = waitpid(-1, &status, __WALL);
		if (who == -1)
			break;
		if (!WIFSTOPPED(status)) {
			ends++;
			CHECK(WIFEXITED(status));
			CHECK(who != pid || WEXITSTATUS(status) == 21);
			continue;
		}
		int event = status >> 16;
		int signal = event || WSTOPSIG(status) == SIGSTOP ? 0 : WSTOPSIG(status);
		CHECK(ptrace(PTRACE_GETEVENTMSG, who, NULL, &message) == 0);
		if (event) {
			CHECK(status >> 8 == (SIGTRAP | event << 8) && event < 8);
			seen[event]++;
		}
		if (event == PTRACE_EVENT_FORK || event == PTRACE_EVENT_VFORK || event == PTRACE_EVENT_CLONE)
			CHECK(message > (unsigned long)pid);
		if (event == PTRACE_EVENT_EXEC)
			CHECK(message == (unsigned long)pid);
		if (event == PTRACE_EVENT_EXIT && who == pid)
			CHECK(message == 21 << 8);
		go(PTRACE_CONT, who, signal);
	}
	CHECK(seen[PTRACE_EVENT_FORK] == 1 && seen[PTRACE_EVENT_VFORK] == 1 && seen[PTRACE_EVENT_VFORK_DONE] == 1);
	CHECK(seen[PTRACE_EVENT_CLONE] == 1 && seen[PTRACE_EVENT_EXEC] == 1 && seen[PTRACE_EVENT_EXIT] == 4);
	// The process, its two children, and its thread.
	CHECK(ends == 4);
}

static int pipes[2];
static void read_and_exit(void)
{
	char byte = 0;
	CHECK(read(pipes[0], &byte, 1) == 1);
	_exit(byte);
}

static int tracer_of(pid_t pid)
{
	char path[64], line[256];
	int tracer = -1;
	snprintf(path, sizeof path, "/proc/%d/status", pid);
	FILE *file = fopen(path, "r");
	CHECK(file != NULL);
	while (fgets(line, sizeof line, file))
		sscanf(line, "TracerPid: %d", &tracer);
	fclose(file);
	return tracer;
}

static pid_t reader(void)
{
	CHECK(pipe(pipes) == 0);
	pid_t pid = fork();
	if (pid == 0)
		read_and_exit();
	return pid;
}

static void until_it_sleeps(pid_t pid)
{
	char path[64], state = 0;
	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	while (state != 'S') {
		FILE *file = fopen(path, "r");
		CHECK(file != NULL && fscanf(file, "%*d (%*[^)]) %c", &state) == 1);
		fclose(file);
		sched_yield();
	}
}

static void attaching(void)
{
	struct user_regs_struct regs;
	int status;
	// By ATTACH, in the middle of a call that is made again.
	pid_t pid = reader();
	until_it_sleeps(pid);
	CHECK(ptrace(PTRACE_PEEKDATA, pid, &variable, NULL) == -1 && errno == ESRCH);
	CHECK(tracer_of(pid) == 0);
	go(PTRACE_ATTACH, pid, 0);
	CHECK(stopped(wait_for(pid), SIGSTOP));
	CHECK(tracer_of(pid) == getpid());
	CHECK(ptrace(PTRACE_ATTACH, pid, NULL, NULL) == -1 && errno == EPERM);
	CHECK(ptrace(PTRACE_GETREGS, pid, NULL, &regs) == 0);
	CHECK(regs.orig_rax == SYS_read && (long)regs.rax == -512);
	CHECK(ptrace(PTRACE_DETACH, pid, NULL, 0) == 0);
	CHECK(tracer_of(pid) == 0);
	CHECK(write(pipes[1], "\x05", 1) == 1);
	status = wait_for(pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 5);

	// By SEIZE, which does not stop it; INTERRUPT does.
	pid = reader();
	until_it_sleeps(pid);
	CHECK(ptrace(PTRACE_SEIZE, pid, NULL, ~0L) == -1 && errno == EIO);
	CHECK(ptrace(PTRACE_SEIZE, pid, NULL, PTRACE_O_TRACESYSGOOD) == 0);
	CHECK(waitpid(pid, &status, __WALL | WNOHANG) == 0);
	go(PTRACE_INTERRUPT, pid, 0);
	CHECK(wait_for(pid) >> 8 == (SIGTRAP | PTRACE_EVENT_STOP << 8));
	// A stop of the process: the tracer lets it stay stopped, and hears when that is over.
	go(PTRACE_CONT, pid, 0);
	CHECK(kill(pid, SIGSTOP) == 0);
	CHECK(wait_for(pid) >> 8 == SIGSTOP);
	go(PTRACE_CONT, pid, SIGSTOP);
	CHECK(wait_for(pid) >> 8 == (SIGSTOP | PTRACE_EVENT_STOP << 8));
	go(PTRACE_LISTEN, pid, 0);
	CHECK(ptrace(PTRACE_GETREGS, pid, NULL, &regs) == -1 && errno == ESRCH);
	CHECK(kill(pid, SIGCONT) == 0);
	CHECK(wait_for(pid) >> 8 == (SIGTRAP | PTRACE_EVENT_STOP << 8));
	go(PTRACE_CONT, pid, 0);
	CHECK(stopped(wait_for(pid), SIGCONT));
	go(PTRACE_CONT, pid, 0);
	CHECK(write(pipes[1], "\x06", 1) == 1);
	status = wait_for(pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 6);

	// Killed where it stands.
	pid = reader();
	go(PTRACE_ATTACH, pid, 0);
	CHECK(stopped(wait_for(pid), SIGSTOP));
	CHECK(kill(pid, SIGKILL) == 0);
	status = wait_for(pid);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

// Somebody else traces a child of ours: we hear of its end when the tracer has.
static void tracers_end(void)
{
	int status;
	for (int kills = 0; kills < 2; kills++) {
		pid_t pid = reader();
		pid_t tracer = fork();
		if (tracer == 0) {
			CHECK(ptrace(PTRACE_SEIZE, pid, NULL, kills ? PTRACE_O_EXITKILL : 0L) == 0);
			go(PTRACE_INTERRUPT, pid, 0);
			CHECK(WIFSTOPPED(wait_for(pid)));
			_exit(0);
		}
		CHECK(wait_for(tracer) == 0);
		if (!kills)
			CHECK(write(pipes[1], "\x07", 1) == 1);
		status = wait_for(pid);
		CHECK(kills ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : WEXITSTATUS(status) == 7);
	}
	pid_t pid = reader();
	pid_t tracer = fork();
	if (tracer == 0) {
		CHECK(ptrace(PTRACE_SEIZE, pid, NULL, 0L) == 0);
		CHECK(write(pipes[1], "\x08", 1) == 1);
		CHECK(WEXITSTATUS(wait_for(pid)) == 8);
		_exit(0);
	}
	CHECK(wait_for(tracer) == 0);
	CHECK(WEXITSTATUS(wait_for(pid)) == 8);
}

// A parent that traced its child ends before it has waited for it: whoever gets the child then waits for it.
static void traced_orphans(void)
{
	CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
	pid_t parent = fork();
	CHECK(parent >= 0);
	if (parent == 0) {
		siginfo_t info;
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			CHECK(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0);
			_exit(9);
		}
		CHECK(waitid(P_PID, child, &info, WEXITED | WNOWAIT) == 0);
		_exit(0);
	}
	CHECK(wait_for(parent) == 0);
	int status = wait_for(-1);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 9);
	CHECK(prctl(PR_SET_CHILD_SUBREAPER, 0) == 0);
}

static void leave_with_8(void)
{
	_exit(8);
}

// SIGKILL and SIGCONT undo a stop that the tracer has just ordered, whether it has begun or not.
static void late_stops(void)
{
	for (int i = 0; i < 50; i++) {
		pid_t pid = traced_child(leave_with_8);
		go(PTRACE_DETACH, pid, SIGSTOP);
		CHECK(kill(pid, i % 2 ? SIGKILL : SIGCONT) == 0);
		int status = wait_for(pid);
		CHECK(i % 2 ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : WIFEXITED(status) && WEXITSTATUS(status) == 8);
	}
}

static void spin(void)
{
	for (;;)
		variable++;
}

static void set_and_compare(pid_t pid, size_t index, unsigned long value, int refused)
{
	errno = 0;
	long outcome = ptrace(PTRACE_POKEUSER, pid, index, value);
	CHECK(refused ? outcome == -1 && errno == EIO : outcome == 0);
}

// What a tracer gives that no program could have.
static void hostile(void)
{
	pid_t pid = traced_child(spin);
	struct user_regs_struct regs, after;
	CHECK(ptrace(PTRACE_GETREGS, pid, NULL, &regs) == 0);
	set_and_compare(pid, offsetof(struct user_regs_struct, cs), 0x10, 1);
	set_and_compare(pid, offsetof(struct user_regs_struct, cs), 0, 1);
	set_and_compare(pid, offsetof(struct user_regs_struct, ss), 0x18, 1);
	set_and_compare(pid, offsetof(struct user_regs_struct, fs_base), 0xffff800000000000, 1);
	set_and_compare(pid, sizeof(struct user), 0, 1);
	set_and_compare(pid, 3, 0, 1);
	// IOPL, NT, VM, IF off: not the tracer's to set.
	set_and_compare(pid, offsetof(struct user_regs_struct, eflags), 0x33002, 0);
	CHECK(ptrace(PTRACE_GETREGS, pid, NULL, &after) == 0);
	CHECK((after.eflags & 0x23200) == 0x200);
	CHECK(ptrace(PTRACE_CONT, pid, NULL, 65L) == -1 && errno == EIO);
	CHECK(ptrace(PTRACE_SETOPTIONS, pid, NULL, 1L << 30) == -1 && errno == EINVAL);
	CHECK(ptrace(PTRACE_PEEKDATA, pid, 0xffffffff80000000, NULL) == -1 && errno == EIO);
	CHECK(ptrace(PTRACE_POKEDATA, pid, 0xffffffff80000000, 0L) == -1 && errno == EIO);
	CHECK(ptrace(PTRACE_PEEKDATA, pid, 16L, NULL) == -1 && errno == EIO);
	CHECK(ptrace(0x4fff, pid, NULL, NULL) == -1 && errno == EIO);

	char area[16384];
	struct iovec vector = { area, sizeof area };
	CHECK(ptrace(PTRACE_GETREGSET, pid, NT_PRSTATUS, &vector) == 0 && vector.iov_len == sizeof regs);
	vector.iov_len = sizeof area;
	CHECK(ptrace(PTRACE_GETREGSET, pid, NT_PRFPREG, &vector) == 0 && vector.iov_len == 512);
	vector.iov_len = sizeof area;
	CHECK(ptrace(PTRACE_GETREGSET, pid, NT_X86_XSTATE, &vector) == 0 && vector.iov_len >= 576);
	size_t length = vector.iov_len;
	CHECK(ptrace(PTRACE_SETREGSET, pid, NT_X86_XSTATE, &vector) == 0);
	// Reserved bits of the header, then of MXCSR.
	area[512 + 7] ^= 0x80;
	vector.iov_len = length;
	CHECK(ptrace(PTRACE_SETREGSET, pid, NT_X86_XSTATE, &vector) == -1 && errno == EINVAL);
	area[512 + 7] ^= 0x80;
	area[27] = 0x7f;
	vector.iov_len = length;
	CHECK(ptrace(PTRACE_SETREGSET, pid, NT_X86_XSTATE, &vector) == -1 && errno == EINVAL);
	vector.iov_len = sizeof area;
	CHECK(ptrace(PTRACE_GETREGSET, pid, 0x9999, &vector) == -1 && errno == EINVAL);

	// A made-up area of ones everywhere is refused, and the thread goes on as it was.
	struct user_fpregs_struct fp;
	CHECK(ptrace(PTRACE_GETFPREGS, pid, NULL, &fp) == 0);
	struct user_fpregs_struct bad;
	memset(&bad, 0xff, sizeof bad);
	CHECK(ptrace(PTRACE_SETFPREGS, pid, NULL, &bad) == -1 && errno == EINVAL);
	CHECK(ptrace(PTRACE_SETFPREGS, pid, NULL, &fp) == 0);
	go(PTRACE_CONT, pid, 0);
	CHECK(ptrace(PTRACE_GETREGS, pid, NULL, &regs) == -1 && errno == ESRCH);
	CHECK(ptrace(PTRACE_KILL, pid, NULL, NULL) == 0 || errno == ESRCH);
	kill(pid, SIGKILL);
	CHECK(WIFSIGNALED(wait_for(pid)));

	CHECK(ptrace(PTRACE_ATTACH, getpid(), NULL, NULL) == -1 && errno == EPERM);
	CHECK(ptrace(PTRACE_ATTACH, 0x3fffffff, NULL, NULL) == -1 && errno == ESRCH);
	CHECK(ptrace(PTRACE_CONT, getppid(), NULL, NULL) == -1 && errno == ESRCH);
}

static void vectors_live(void)
{
	register double x asm("xmm9") = 2.5;
	asm volatile("" : "+x"(x));
	asm volatile("syscall" : : "a"(SYS_getppid) : "rcx", "r11", "memory");
	asm volatile("" : "+x"(x));
	_exit((int)(x * 2));
}

static void vectors(void)
{
	for (int changes = 0; changes < 2; changes++) {
		struct user_fpregs_struct fp;
		double value;
		pid_t pid = traced_child(vectors_live);
		go(PTRACE_SETOPTIONS, pid, PTRACE_O_TRACESYSGOOD);
		to_call(pid, SYS_getppid, changes);
		CHECK(ptrace(PTRACE_GETFPREGS, pid, NULL, &fp) == 0);
		memcpy(&value, &fp.xmm_space[9 * 4], sizeof value);
		CHECK(value == 2.5);
		if (changes) {
			value = 10.5;
			memcpy(&fp.xmm_space[9 * 4], &value, sizeof value);
			CHECK(ptrace(PTRACE_SETFPREGS, pid, NULL, &fp) == 0);
		}
		end(pid, changes ? 21 : 5);
	}
}

static void drop(void)
{
	pause();
}

// Others are traced by nobody but root, and those who hide by nobody but root either.
static void rights(void)
{
	if (geteuid() != 0)
		return;
	pid_t root = fork();
	if (root == 0) {
		drop();
		_exit(0);
	}
	pid_t pid = fork();
	if (pid == 0) {
		CHECK(setgid(1234) == 0 && setuid(1234) == 0);
		CHECK(ptrace(PTRACE_ATTACH, root, NULL, NULL) == -1 && errno == EPERM);
		pid_t own = fork();
		if (own == 0) {
			CHECK(prctl(PR_SET_DUMPABLE, 0) == 0);
			raise(SIGSTOP);
			_exit(0);
		}
		int status;
		CHECK(waitpid(own, &status, WUNTRACED) == own && stopped(status, SIGSTOP));
		CHECK(ptrace(PTRACE_SEIZE, own, NULL, NULL) == -1 && errno == EPERM);
		CHECK(kill(own, SIGKILL) == 0 && waitpid(own, &status, 0) == own);
		_exit(0);
	}
	CHECK(wait_for(pid) == 0);
	CHECK(kill(root, SIGKILL) == 0);
	wait_for(root);
}

static volatile int running = 1;
static void *spinner(void *argument)
{
	while (running)
		sched_yield();
	return argument;
}

static void several_threads(void)
{
	pthread_t threads[3];
	for (int i = 0; i < 3; i++)
		CHECK(pthread_create(&threads[i], NULL, spinner, NULL) == 0);
	raise(SIGSTOP);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	_exit(33);
}

// Every thread is a tracee of its own.
static void threads(void)
{
	pid_t pid = fork(), tids[4];
	int status, count = 0;
	if (pid == 0)
		several_threads();
	CHECK(waitpid(pid, &status, WUNTRACED) == pid && stopped(status, SIGSTOP));
	for (pid_t tid = pid; count < 4 && tid < pid + 100; tid++) {
		if (syscall(SYS_tgkill, pid, tid, 0) == 0) {
			CHECK(ptrace(PTRACE_SEIZE, tid, NULL, NULL) == 0);
			tids[count++] = tid;
		}
	}
	CHECK(count == 4);
	CHECK(kill(pid, SIGCONT) == 0);
	for (int i = 0; i < 4; i++) {
		// It tells of the stop first, or of its end.
		CHECK(ptrace(PTRACE_INTERRUPT, tids[i], NULL, NULL) == 0);
		status = wait_for(tids[i]);
		CHECK(WIFSTOPPED(status));
	}
	CHECK(ptrace(PTRACE_POKEDATA, tids[2], &running, 0L) == 0);
	for (int left = 4; left > 0;) {
		pid_t who = waitpid(-1, &status, __WALL | WNOHANG);
		if (who == 0) {
			// Those that stand still go on, whatever they told.
			for (int i = 0; i < 4; i++)
				ptrace(PTRACE_CONT, tids[i], NULL, NULL);
			sched_yield();
			continue;
		}
		CHECK(who > 0);
		if (WIFSTOPPED(status)) {
			ptrace(PTRACE_CONT, who, NULL, NULL);
			continue;
		}
		CHECK(WIFEXITED(status) && (who != pid || WEXITSTATUS(status) == 33));
		left--;
	}
}

// A debugger's call of a function while the program sleeps in a call that is to be made again.
static void borrowed_thread(void)
{
	pid_t pid = reader();
	struct user_regs_struct saved, regs;
	until_it_sleeps(pid);
	go(PTRACE_ATTACH, pid, 0);
	CHECK(stopped(wait_for(pid), SIGSTOP));
	CHECK(ptrace(PTRACE_GETREGS, pid, NULL, &saved) == 0);
	long original = ptrace(PTRACE_PEEKTEXT, pid, drop, NULL);
	CHECK(ptrace(PTRACE_POKETEXT, pid, drop, (original & ~0xffL) | 0xcc) == 0);
	regs = saved;
	regs.rsp = ((saved.rsp - 1024) & ~15UL) - 8;
	regs.rip = (unsigned long)broken_at;
	regs.rdi = 4;
	regs.orig_rax = -1;
	CHECK(ptrace(PTRACE_POKEDATA, pid, regs.rsp, drop) == 0);
	CHECK(ptrace(PTRACE_SETREGS, pid, NULL, &regs) == 0);
	go(PTRACE_CONT, pid, 0);
	CHECK(stopped(wait_for(pid), SIGTRAP));
	CHECK(ptrace(PTRACE_GETREGS, pid, NULL, &regs) == 0);
	CHECK(regs.rip == (unsigned long)drop + 1 && (int)regs.rax == 5);
	CHECK(ptrace(PTRACE_POKETEXT, pid, drop, original) == 0);
	CHECK(ptrace(PTRACE_SETREGS, pid, NULL, &saved) == 0);
	CHECK(ptrace(PTRACE_DETACH, pid, NULL, 0) == 0);
	CHECK(write(pipes[1], "\x09", 1) == 1);
	int status = wait_for(pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 9);
}

// A thread that is asked to stop and killed before it looks at either ends.
static void killed_before_it_stops(void)
{
	int status;
	for (int i = 0; i < 20; i++) {
		pid_t pid = fork();
		if (pid == 0)
			for (;;)
				;
		CHECK(ptrace(PTRACE_SEIZE, pid, NULL, 0L) == 0);
		go(PTRACE_INTERRUPT, pid, 0);
		CHECK(kill(pid, SIGKILL) == 0);
		do
			status = wait_for(pid);
		while (WIFSTOPPED(status));
		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	}
}

static void run(const char *name, void (*test)(void))
{
	test();
	printf("%s\n", name);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "child") == 0)
		return 21;
	run("calls", calls);
	run("breakpoints", breakpoints);
	run("steps", steps);
	run("signals", signals);
	run("events", events);
	run("attaching", attaching);
	run("tracers end", tracers_end);
	run("traced orphans", traced_orphans);
	run("late stops", late_stops);
	run("hostile", hostile);
	run("vectors", vectors);
	run("rights", rights);
	run("threads", threads);
	run("borrowed thread", borrowed_thread);
	run("killed before it stops", killed_before_it_stops);
	printf("all ptrace tests passed\n");
	return 0;
}
