// SPDX-License-Identifier: Apache-2.0 OR MIT
// Does one thing so many times, says so and waits: argv[1] is `null` (a system call that does nothing), `fault` (the first
// touch of a page) or `print` (a line of 64 bytes), argv[2] how often. Whoever counts what it costs runs it twice, with two numbers.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGES = 1024, PAGE = 4096 };

// The pages of one mapping are touched again and again: what the host gives the machine at first is not counted with them.
static void fault(long count)
{
    for (long done = 0; done < count; done += PAGES) {
        char *memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) {
            perror("mmap");
            exit(1);
        }
        madvise(memory, PAGES * PAGE, MADV_NOHUGEPAGE);
        for (long i = 0; i < PAGES; i++)
            memory[i * PAGE] = 1;
        munmap(memory, PAGES * PAGE);
    }
}

static void print(long count)
{
    static const char line[] = "A line as a server writes it into its log, one for each request\n";
    for (long i = 0; i < count; i++)
        if (write(1, line, sizeof line - 1) != sizeof line - 1)
            exit(1);
}

int main(int argc, char **argv)
{
    long count = argc == 3 ? atol(argv[2]) : 0;
    if (argc == 3 && strcmp(argv[1], "fault") == 0)
        fault(count);
    else if (argc == 3 && strcmp(argv[1], "print") == 0)
        print(count);
    else
        for (long i = 0; i < count; i++)
            syscall(SYS_getppid);
    puts("counted");
    fflush(stdout);
    for (;;)
        pause();
}
