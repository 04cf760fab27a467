// SPDX-License-Identifier: Apache-2.0 OR MIT
// What vm.overcommit_memory has promised, in a machine of its own: it changes the settings of all.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static int store(const char *name, long value) {
    char path[64], text[32];
    snprintf(path, sizeof path, "/proc/sys/vm/%s", name);
    int fd = open(path, O_WRONLY), length = snprintf(text, sizeof text, "%ld\n", value);
    int result = write(fd, text, (size_t)length) == length ? 0 : errno;
    close(fd);
    return result;
}

static long setting(const char *name) {
    char path[64];
    long value = -1;
    snprintf(path, sizeof path, "/proc/sys/vm/%s", name);
    FILE *file = fopen(path, "r");
    CHECK(file && fscanf(file, "%ld", &value) == 1 && fclose(file) == 0);
    return value;
}

// Of /proc/meminfo, in bytes.
static size_t said(const char *name) {
    char line[100];
    FILE *file = fopen("/proc/meminfo", "r");
    CHECK(file);
    while (fgets(line, sizeof line, file)) {
        long value;
        size_t length = strlen(name);
        if (strncmp(line, name, length) == 0 && sscanf(line + length, ": %ld", &value) == 1) {
            fclose(file);
            return (size_t)value << 10;
        }
    }
    CHECK(!"the line is there");
    return 0;
}

static void *map(size_t length, int rights, int flags) {
    return mmap(0, length, rights, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
}

int main(void) {
    enum { RW = PROT_READ | PROT_WRITE };
    size_t total = said("MemTotal"), mib = 1 << 20;
    CHECK(setting("overcommit_memory") == 1 && store("overcommit_memory", 3) == EINVAL);
    // Everything is promised.
    void *much = map(total * 100, RW, 0);
    CHECK(much != MAP_FAILED && said("Committed_AS") >= total * 100 && munmap(much, total * 100) == 0);
    CHECK(said("Committed_AS") < total);
    // What is obviously too much is not.
    CHECK(store("overcommit_memory", 0) == 0);
    CHECK(map(total * 2, RW, 0) == MAP_FAILED && errno == ENOMEM);
    CHECK(mmap(0, total * 2, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == ENOMEM);
    void *one = map(total / 4 * 3, RW, 0), *other = map(total / 4 * 3, RW, 0), *lazy = map(total * 2, RW, MAP_NORESERVE), *read = map(total * 2, PROT_READ, 0);
    CHECK(one != MAP_FAILED && other != MAP_FAILED && lazy != MAP_FAILED && read != MAP_FAILED);
    CHECK(mprotect(read, total * 2, RW) == -1 && errno == ENOMEM && mprotect(read, total / 2, RW) == 0);
    CHECK(munmap(one, total / 4 * 3) == 0 && munmap(other, total / 4 * 3) == 0 && munmap(lazy, total * 2) == 0 && munmap(read, total * 2) == 0);
    // Pages of a file are the file's, however long a mapping of it is.
    int file = memfd_create("file", 0);
    CHECK(file >= 0 && ftruncate(file, 4096) == 0);
    void *shared = mmap(0, 4096, RW, MAP_SHARED, file, 0);
    CHECK(shared != MAP_FAILED && (shared = mremap(shared, 4096, total * 2, MREMAP_MAYMOVE)) != MAP_FAILED);
    CHECK(munmap(shared, total * 2) == 0 && close(file) == 0);
    // No more than there may be in all.
    CHECK(store("overcommit_ratio", 80) == 0 && setting("overcommit_kbytes") == 0 && said("CommitLimit") <= total / 10 * 8 && said("CommitLimit") > total / 2);
    CHECK(store("overcommit_memory", 2) == 0);
    size_t left = said("CommitLimit") - said("Committed_AS");
    CHECK(map(left + mib, RW, MAP_NORESERVE) == MAP_FAILED && errno == ENOMEM);
    one = map(left / 2, RW, 0);
    CHECK(one != MAP_FAILED && map(left / 2 + mib, RW, 0) == MAP_FAILED);
    // A child would be promised the same once more.
    other = map(left / 4, RW, 0);
    CHECK(other != MAP_FAILED && fork() == -1 && errno == ENOMEM);
    CHECK(munmap(other, left / 4) == 0 && mprotect(one, left / 2, PROT_READ) == 0);
    pid_t child = fork();
    if (child == 0)
        _exit(mprotect(one, left / 2, RW) == 0 ? 0 : 1);
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    CHECK(munmap(one, left / 2) == 0);
    // malloc(3) says so, and nobody ends.
    CHECK(malloc(left + mib) == NULL);
    CHECK(store("overcommit_kbytes", (long)(total >> 11)) == 0 && setting("overcommit_ratio") == 0 && said("CommitLimit") / mib == total / 2 / mib);
    puts("promises are kept");
    return 0;
}
