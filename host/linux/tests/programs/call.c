// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Prints the nanoseconds of one system call: the least of several averages, without the loop's own. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { CALLS = 2000, ROUNDS = 7 };

static int in, out;
static char byte[1];

static void nothing(void) { __asm__ volatile("" : : : "memory"); }
static void call_getppid(void) { getppid(); }
static void call_read(void) { (void)!read(in, byte, 1); }
static void call_write(void) { (void)!write(out, byte, 1); }

static double measure(void (*call)(void))
{
	double least = 1e12;
	for (int round = 0; round < ROUNDS; round++) {
		struct timespec from, to;
		clock_gettime(CLOCK_MONOTONIC, &from);
		for (int i = 0; i < CALLS; i++)
			call();
		clock_gettime(CLOCK_MONOTONIC, &to);
		double each = ((to.tv_sec - from.tv_sec) * 1e9 + (to.tv_nsec - from.tv_nsec)) / CALLS;
		if (each < least)
			least = each;
	}
	return least;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*call)(void);
	} calls[] = {{"getppid", call_getppid}, {"read", call_read}, {"write", call_write}};
	in = open("/dev/zero", O_RDONLY);
	out = open("/dev/null", O_WRONLY);
	if (in < 0 || out < 0 || argc < 2)
		return 1;
	for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++)
		if (!strcmp(calls[i].name, argv[1]))
			return printf("%.1f\n", measure(calls[i].call) - measure(nothing)) < 0;
	return 1;
}
