// SPDX-License-Identifier: Apache-2.0 OR MIT
/* A program to look at: one thread works in `busy`, which calls `deeper`, the other sleeps in `idle`. Ends by SIGTERM. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

volatile long rounds;

__attribute__((noinline)) void deeper(long n)
{
	for (long i = 0; i < n; i++)
		rounds++;
}

__attribute__((noinline)) void busy(void)
{
	for (;;) {
		deeper(100000);
		getppid();
	}
}

__attribute__((noinline)) void *idle(void *arg)
{
	for (;;)
		pause();
	return arg;
}

int main(void)
{
	pthread_t thread;
	if (pthread_create(&thread, NULL, idle, NULL))
		return 1;
	puts("observed");
	fflush(stdout);
	busy();
}
