// SPDX-License-Identifier: Apache-2.0 OR MIT
// Sequential writes and reads of one file, past the page cache where there is one, with several sizes of one write or
// read. Arguments: the file or block device, and a file to wait for (or nothing). Prints `write-4096 MB/s` and so on.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TOTAL = 64 << 20, LARGEST = 1 << 20 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void fail(const char *what)
{
    fprintf(stderr, "files: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int open_file(const char *path, int flags)
{
    int fd = open(path, flags | O_DIRECT, 0600);
    // Not every file system has it; those keep no pages of the file either.
    if (fd < 0 && errno == EINVAL)
        fd = open(path, flags, 0600);
    if (fd < 0)
        fail(path);
    return fd;
}

static double pass(const char *path, int flags, char *buffer, size_t size)
{
    int fd = open_file(path, flags);
    int writes = (flags & O_ACCMODE) == O_WRONLY;
    double begin = now();
    for (size_t at = 0; at < TOTAL; at += size) {
        ssize_t n = writes ? write(fd, buffer, size) : read(fd, buffer, size);
        if (n != (ssize_t)size)
            fail(writes ? "write" : "read");
    }
    if (writes && fsync(fd) < 0)
        fail("fsync");
    double took = now() - begin;
    close(fd);
    return TOTAL / took / 1e6;
}

int main(int count, char **words)
{
    if (count < 2) {
        fprintf(stderr, "usage: files FILE [WAIT]\n");
        return 2;
    }
    while (count > 2 && access(words[2], F_OK) < 0)
        usleep(10000);
    char *buffer = aligned_alloc(4096, LARGEST);
    if (!buffer)
        fail("memory");
    memset(buffer, 'x', LARGEST);
    static const size_t sizes[] = {4096, 16384, 65536, 262144, 1048576};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        printf("write-%zu %.1f\n", sizes[i], pass(words[1], O_WRONLY | O_CREAT, buffer, sizes[i]));
        printf("read-%zu %.1f\n", sizes[i], pass(words[1], O_RDONLY, buffer, sizes[i]));
    }
    return 0;
}
