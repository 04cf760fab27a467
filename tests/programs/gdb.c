// SPDX-License-Identifier: Apache-2.0 OR MIT
// What tests/tests/ptrace.rs has gdb look at: gdb WORD.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int counter;

static int square(int x)
{
	counter++;
	return x * x;
}

static int sum(const int *numbers, int count)
{
	int total = 0;
	for (int i = 0; i < count; i++)
		total += numbers[i];
	return total;
}

static void crash(volatile int *nowhere)
{
	*nowhere = square(3) + square(4);
}

static void note(int signal)
{
	counter += signal;
}

static void *worker(void *argument)
{
	return argument;
}

int main(int argc, char **argv)
{
	const int numbers[] = { 1, 2, 3, 4 };
	const char *word = argc > 1 ? argv[1] : "";
	if (strcmp(word, "sum") == 0)
		printf("The sum is %d\n", sum(numbers, 4));
	if (strcmp(word, "crash") == 0)
		crash(NULL);
	if (strcmp(word, "threads") == 0) {
		pthread_t thread;
		signal(SIGUSR1, note);
		pthread_create(&thread, NULL, worker, NULL);
		pthread_join(thread, NULL);
		pid_t child = fork();
		if (child == 0)
			_exit(0);
		waitpid(child, NULL, 0);
		raise(SIGUSR1);
		execl("/proc/self/exe", "program", "sum", NULL);
	}
	return 0;
}
