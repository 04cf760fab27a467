// SPDX-License-Identifier: Apache-2.0 OR MIT
// Takes memory in one piece, and keeps it: argv[1] is the way, argv[2] MiB.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv) {
    CHECK(argc == 3);
    size_t bytes = strtoul(argv[2], NULL, 10) << 20;
    int filled = strcmp(argv[1], "populate") == 0 ? MAP_POPULATE : 0;
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | filled, -1, 0);
    CHECK(memory != MAP_FAILED);
    if (strcmp(argv[1], "lock") == 0)
        CHECK(mlock(memory, bytes) == 0);
    if (strcmp(argv[1], "advise") == 0)
        CHECK(madvise(memory, bytes, 23 /* MADV_POPULATE_WRITE */) == 0);
    if (strcmp(argv[1], "read") == 0) {
        int zero = open("/dev/zero", O_RDONLY);
        CHECK(zero >= 0 && read(zero, memory, bytes) == (ssize_t)bytes);
    }
    if (strcmp(argv[1], "write") == 0) {
        puts("promised");
        fflush(stdout);
        memset(memory, 1, bytes);
    }
    printf("it has %s MiB\n", argv[2]);
    fflush(stdout);
    // It asks for nothing more.
    for (;;)
        pause();
}
