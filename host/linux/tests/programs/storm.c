// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Walks down fresh stacks in small steps, so that interrupts and page faults meet stack pages that are not there yet:
 * an entry that pushed onto the program's stack would end the machine within a second. One walker for each CPU.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { STACK = 1 << 20, STEPS = 20000 };

static long __attribute__((noinline)) step(long n)
{
	if (!n)
		return 0;
	__asm__ volatile("" : : : "memory");
	long below = step(n - 1);
	__asm__ volatile("" : "+r"(below));
	return below + 1;
}

static void *walk(void *argument)
{
	(void)argument;
	return (void *)step(STEPS);
}

static void *walker(void *argument)
{
	for (long i = 0; i < (long)argument; i++) {
		char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		pthread_attr_t attributes;
		pthread_t id;
		void *result;
		if (stack == MAP_FAILED || pthread_attr_init(&attributes) ||
		    pthread_attr_setstack(&attributes, stack, STACK) ||
		    pthread_create(&id, &attributes, walk, NULL) || pthread_join(id, &result) ||
		    (long)result != STEPS)
			exit(1);
		munmap(stack, STACK);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	long walks = argc > 1 ? atol(argv[1]) : 1000, cpus = sysconf(_SC_NPROCESSORS_ONLN);
	pthread_t ids[64];
	for (long i = 0; i < cpus; i++)
		if (pthread_create(&ids[i], NULL, walker, (void *)walks))
			return 1;
	for (long i = 0; i < cpus; i++)
		pthread_join(ids[i], NULL);
	printf("%ld stacks on %ld processors\n", walks * cpus, cpus);
	return 0;
}
