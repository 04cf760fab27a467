// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Makes calls from sites of several forms many times, and prints which of them the kernel has made jumps. What a site
 * does must not change, whatever is around it.
 */
#include "check.h"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/time.h>
#include <unistd.h>

enum { UKL_BYP = 0x20000000, CALLS = 30000 };

/*
 * The plain forms. Then a site whose nearest padding follows the bytes of a RET that is none: 48 89 c3 is an instruction,
 * and the padding is run through. At last one whose number is loaded with an instruction that has a prefix.
 */
__asm__(".text\n"
	".type site_number, @function\n"
	"site_number: mov $39, %eax\n syscall\n ret\n"
	".balign 16\n"
	".type site_zero, @function\n"
	"site_zero: xor %eax, %eax\n syscall\n ret\n .byte 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0\n"
	".balign 256\n"
	".type site_false, @function\n"
	"site_false: push %rbx\n xor %eax, %eax\n syscall\n mov %rax, %rbx\n"
	" .byte 0x0f, 0x1f, 0x44, 0, 0\n mov %rbx, %rax\n pop %rbx\n ret\n"
	".balign 256\n"
	".type site_prefix, @function\n"
	"site_prefix: .byte 0x67\n mov $39, %eax\n syscall\n ret\n");

long site_number(void);
long site_zero(int file, void *to, size_t length);
long site_false(int file, void *to, size_t length);
long site_prefix(void);

static int zero;
static volatile sig_atomic_t alarms;

static void on_alarm(int signal)
{
	(void)signal;
	alarms += site_number() == getpid();
}

static void all(void)
{
	char bytes[3];
	for (int i = 0; i < CALLS; i++) {
		memset(bytes, 1, sizeof bytes);
		CHECK(site_number() == getpid());
		CHECK(site_zero(zero, bytes, 2) == 2);
		CHECK(bytes[0] == 0 && bytes[1] == 0 && bytes[2] == 1);
		CHECK(site_false(zero, bytes, 3) == 3 && bytes[2] == 0);
		CHECK(site_prefix() == getpid());
		CHECK(site_zero(-1, bytes, 1) == -EBADF);
	}
}

static void *thread(void *nothing)
{
	all();
	return nothing;
}

static const char *kind(const void *site)
{
	const unsigned char *code = site;
	return *code == 0xe9 || *code == 0xeb ? "jump" : "syscall";
}

int main(void)
{
	pthread_t threads[3];
	zero = open("/dev/zero", O_RDONLY);
	CHECK(zero >= 0);
	CHECK(signal(SIGALRM, on_alarm) != SIG_ERR);
	CHECK(setitimer(ITIMER_REAL, &(struct itimerval){{0, 1000}, {0, 1000}}, NULL) == 0);
	for (int i = 0; i < 3; i++)
		CHECK(pthread_create(&threads[i], NULL, thread, NULL) == 0);
	all();
	for (int i = 0; i < 3; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	/* Patched sites go on without the bypass, and with it again. */
	int flags = personality(0xffffffff);
	CHECK(personality(flags & ~UKL_BYP) == flags);
	all();
	CHECK(personality(flags) == (flags & ~UKL_BYP));
	all();
	CHECK(alarms > 0);
	printf("number %s, zero %s, false %s, prefix %s\n", kind(site_number), kind(site_zero),
	       kind((const char *)site_false + 1), kind((const char *)site_prefix + 1));
	return 0;
}
