// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Prints whether another process got the processor while this one computed for half a second: "shared", or "alone" with
 * UKL_RTC. Without the flag and after blocking the other one runs, whatever the level.
 */
#include "check.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { UKL_RTC = 0x800 };

static volatile unsigned long *counter;
static volatile sig_atomic_t alarms;

static void on_alarm(int signal)
{
	(void)signal;
	alarms++;
}

/* How far the other process counts while this one does not block. */
static unsigned long compute(void)
{
	struct timespec from, now;
	unsigned long before = *counter;
	clock_gettime(CLOCK_MONOTONIC, &from);
	do
		clock_gettime(CLOCK_MONOTONIC, &now);
	while ((now.tv_sec - from.tv_sec) * 1000 + (now.tv_nsec - from.tv_nsec) / 1000000 < 500);
	return *counter - before;
}

int main(void)
{
	int flags = personality(0xffffffff);
	counter = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(counter != MAP_FAILED);
	pid_t other = fork();
	if (!other) {
		personality(flags & ~UKL_RTC);
		for (;;)
			++*counter;
	}
	/* The sites of these calls are patched first, where that is asked for: it may yield. */
	for (int i = 0; i < 20000; i++) {
		struct timespec now;
		clock_gettime(CLOCK_MONOTONIC, &now);
	}
	while (!*counter)
		usleep(10000);
	signal(SIGALRM, on_alarm);
	ualarm(20000, 20000);
	unsigned long meanwhile = compute();
	CHECK(alarms > 3);
	ualarm(0, 0);

	unsigned long before = *counter;
	for (int i = 0; i < 20 && *counter == before; i++)
		usleep(10000);
	CHECK(*counter != before);
	CHECK(personality(flags & ~UKL_RTC) == flags);
	CHECK(compute() > 0);
	kill(other, SIGKILL);
	CHECK(wait(NULL) == other);
	puts(meanwhile ? "shared" : "alone");
	return 0;
}
