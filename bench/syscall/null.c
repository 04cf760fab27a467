// SPDX-License-Identifier: Apache-2.0 OR MIT
// Nanoseconds a system call takes: getppid through libc's syscall instruction, the clock through the vDSO, one-byte
// read and write. Prints `name nanoseconds`, the least of several rounds (whatever is above it is interference).
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 7, CALLS = 20000 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

#define MEASURE(name, statement)                                  \
    do {                                                          \
        double best = 1e18;                                       \
        for (int round = 0; round < ROUNDS; round++) {            \
            double start = now();                                 \
            for (int i = 0; i < CALLS; i++)                       \
                statement;                                        \
            double each = (now() - start) / CALLS;                \
            if (each < best)                                      \
                best = each;                                      \
        }                                                         \
        printf("%s %.1f\n", name, best);                          \
    } while (0)

int main(void)
{
    char byte = 0;
    int zero = open("/dev/zero", O_RDONLY), null = open("/dev/null", O_WRONLY), ends[2];
    if (zero < 0 || null < 0 || pipe(ends) < 0) {
        perror("null");
        return 1;
    }
    struct timespec t;
    MEASURE("getppid", getppid());
    MEASURE("clock_gettime", clock_gettime(CLOCK_MONOTONIC, &t));
    MEASURE("read-1", if (read(zero, &byte, 1) != 1) exit(1));
    MEASURE("write-1", if (write(null, &byte, 1) != 1) exit(1));
    MEASURE("pipe-1", if (write(ends[1], &byte, 1) != 1 || read(ends[0], &byte, 1) != 1) exit(1));
    return 0;
}
