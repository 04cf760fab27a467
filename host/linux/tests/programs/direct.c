// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * direct: a program that is linked into the kernel calls the kernel's functions, under a signal a millisecond. Prints
 * the instructions that getppid takes by itself and as a function (under -icount, where a nanosecond is one).
 */
#include "check.h"
#include <signal.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unilith/kernel.h>
#include <unistd.h>

UNILITH_KERNEL(ktime_get_real_seconds);
UNILITH_KERNEL(__x64_sys_getppid);
UNILITH_KERNEL(msleep_interruptible);

enum { CALLS = 4096 };

static volatile sig_atomic_t alarms;

static void on_alarm(int signal)
{
	(void)signal;
	alarms++;
}

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1e9 + time.tv_nsec;
}

int main(void)
{
	struct itimerval often = {.it_value.tv_usec = 1000, .it_interval.tv_usec = 1000}, never = {0};
	double from = now();
	for (int i = 0; i < CALLS; i++)
		syscall(SYS_getppid);
	double middle = now();
	for (int i = 0; i < CALLS; i++)
		unilith_kernel(__x64_sys_getppid, 0, 0, 0, 0, 0);
	double end = now();
	CHECK(unilith_kernel(__x64_sys_getppid, 0, 0, 0, 0, 0) == getppid());
	signal(SIGALRM, on_alarm);
	CHECK(!setitimer(ITIMER_REAL, &often, NULL));
	while (alarms < 50) {
		long before = time(NULL), seconds = unilith_kernel(ktime_get_real_seconds, 0, 0, 0, 0, 0);
		CHECK(before <= seconds && seconds <= time(NULL));
	}
	/* It sleeps in the kernel until the signal. */
	CHECK(unilith_kernel(msleep_interruptible, 10000, 0, 0, 0, 0) > 0);
	CHECK(!setitimer(ITIMER_REAL, &never, NULL));
	printf("system %.0f\nfunction %.0f\n", (middle - from) / CALLS, (end - middle) / CALLS);
	return 0;
}
