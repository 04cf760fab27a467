// SPDX-License-Identifier: Apache-2.0 OR MIT
// Nanoseconds that processes take: fork + exit + wait, the same with vfork and with execve of a small static program (the
// argument) and of a shell, and a byte through two pipes to another process and back. Prints `name nanoseconds`, the least of
// several rounds (whatever is above it is interference).
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 5, FORKS = 200, PROGRAMS = 60, TURNS = 2000 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void await(pid_t child)
{
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        fail("a child");
}

static char *const *program;

static void run_fork(void)
{
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    await(child);
}

static void run_vfork(void)
{
    pid_t child = vfork();
    if (child == 0)
        _exit(0);
    await(child);
}

static void run_fork_exec(void)
{
    pid_t child = fork();
    if (child == 0) {
        execv(program[0], program);
        _exit(1);
    }
    await(child);
}

static void run_vfork_exec(void)
{
    pid_t child = vfork();
    if (child == 0) {
        execv(program[0], program);
        _exit(1);
    }
    await(child);
}

static void measure(const char *name, int calls, void (*call)(void))
{
    double best = 1e18;
    for (int round = 0; round < ROUNDS; round++) {
        double start = now();
        for (int i = 0; i < calls; i++)
            call();
        double each = (now() - start) / calls;
        if (each < best)
            best = each;
    }
    printf("%s %.1f\n", name, best);
    // A child has no output of its own to write.
    fflush(stdout);
}

static int to[2], from[2];

static void turn(void)
{
    char byte = 0;
    if (write(to[1], &byte, 1) != 1 || read(from[0], &byte, 1) != 1)
        fail("a turn");
}

int main(int count, char **words)
{
    if (count != 2)
        return 2;
    char *small[] = {words[1], NULL}, *shell[] = {"/bin/dash", "-c", "true", NULL};
    program = small;
    measure("fork+exit+wait", FORKS, run_fork);
    measure("vfork+exit+wait", FORKS, run_vfork);
    measure("fork+execve+wait", PROGRAMS, run_fork_exec);
    measure("vfork+execve+wait", PROGRAMS, run_vfork_exec);
    program = shell;
    measure("sh-c-true", PROGRAMS, run_vfork_exec);
    if (pipe(to) < 0 || pipe(from) < 0)
        fail("a pipe");
    pid_t child = fork();
    if (child == 0) {
        char byte;
        close(to[1]);
        while (read(to[0], &byte, 1) == 1)
            if (write(from[1], &byte, 1) != 1)
                _exit(1);
        _exit(0);
    }
    close(to[0]);
    measure("pipe-round-trip", TURNS, turn);
    close(to[1]);
    await(child);
    return 0;
}
