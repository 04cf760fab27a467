// SPDX-License-Identifier: Apache-2.0 OR MIT
// Memory is used up but for a few hundred KiB, every other page of a range, and then calls are made whose work is as long as the range has
// pieces: whatever the kernel notes of those has no room any more. They come about, or say ENOMEM. On Linux there is more memory.
#define _GNU_SOURCE
#include "check.h"
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096ul
#define LENGTH (1ul << 30)
// Below 1 MiB the kernel takes nothing for programs.
#define LEFT (1200ul << 10)

static unsigned long left(void)
{
    struct sysinfo now;
    CHECK(sysinfo(&now) == 0);
    return now.freeram * now.mem_unit;
}

static int comes_about(int result)
{
    CHECK(result == 0 || errno == ENOMEM);
    return result == 0;
}

static unsigned long differ(const char *at, unsigned long end)
{
    unsigned long found = 0;
    for (unsigned long i = 0; i < end; i += 2 * PAGE)
        found += *(const unsigned long *)(at + i) != i;
    return found;
}

int main(void)
{
    struct rlimit files;
    CHECK(getrlimit(RLIMIT_NOFILE, &files) == 0);
    unsigned long count = files.rlim_max < 500000 ? files.rlim_max : 500000;
    files.rlim_cur = files.rlim_max;
    CHECK(setrlimit(RLIMIT_NOFILE, &files) == 0);
    struct pollfd *none = malloc(count * sizeof *none);
    for (unsigned long i = 0; i < count; i++)
        none[i] = (struct pollfd){ .fd = -1 };

    char *at = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(at != MAP_FAILED);
    unsigned long end = 0;
    for (; end < LENGTH && (end % (32 * PAGE) != 0 || left() > LEFT); end += 2 * PAGE) {
        // A touch may bring neighbours with it.
        CHECK(madvise(at + end, PAGE, MADV_POPULATE_WRITE) == 0);
        *(unsigned long *)(at + end) = end;
    }
    CHECK(end > LENGTH / 8);

    CHECK(comes_about(mprotect(at, LENGTH, PROT_READ)));
    pid_t child = fork();
    if (child == 0)
        _exit(differ(at, end) != 0);
    int status = 0;
    if (comes_about(child < 0 ? -1 : 0))
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(comes_about(mprotect(at, LENGTH, PROT_READ | PROT_WRITE)));
    comes_about(poll(none, count, 0));
    CHECK(differ(at, end) == 0);
    // What could not be noted is made up for.
    at[end / 4 / PAGE * PAGE] += 1;
    CHECK(differ(at, end) == 1);
    CHECK(munmap(at, LENGTH) == 0);
    CHECK(left() > LENGTH / 8);
    printf("the kernel went on at %lu pages\n", end / PAGE / 2);
    return 0;
}
