// SPDX-License-Identifier: Apache-2.0 OR MIT
// As many processes alive at the same time as the first argument says, in a small machine, and as many forks one after the other as
// the second says; what the machine has free afterwards is what it had before. Prints what it found.
#define _GNU_SOURCE
#include "check.h"
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

// Free memory in KiB.
static long free_memory(void) {
    FILE *file = fopen("/proc/meminfo", "r");
    CHECK(file != NULL);
    char line[128];
    long free = -1;
    while (free < 0 && fgets(line, sizeof line, file))
        sscanf(line, "MemFree: %ld kB", &free);
    fclose(file);
    CHECK(free >= 0);
    return free;
}

static void forks(long count) {
    for (long i = 0; i < count; i++) {
        pid_t pid = fork();
        if (pid == 0)
            _exit((int)(i & 0x7f));
        CHECK(pid > 0);
        int status;
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == (i & 0x7f));
    }
}

// Each child has written a page of its own, says so, and waits until the pipe's writer is gone.
static void lives(long count) {
    int ready[2], go[2];
    CHECK(pipe(ready) == 0 && pipe(go) == 0);
    pid_t *children = calloc(count, sizeof *children);
    long *own = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(children != NULL && own != MAP_FAILED);
    for (long i = 0; i < count; i++) {
        pid_t pid = children[i] = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            close(go[1]);
            *own = i;
            char byte = 'x';
            CHECK(write(ready[1], &byte, 1) == 1);
            CHECK(read(go[0], &byte, 1) == 0);
            _exit(*own == i ? 0 : 1);
        }
    }
    for (long i = 0; i < count; i++) {
        char byte;
        CHECK(read(ready[0], &byte, 1) == 1);
    }
    for (long i = 0; i < count; i++)
        CHECK(kill(children[i], 0) == 0 && waitpid(children[i], NULL, WNOHANG) == 0);
    printf("%ld are alive\n", count);
    fflush(stdout);
    close(go[1]);
    for (long i = 0; i < count; i++) {
        int status;
        CHECK(waitpid(children[i], &status, 0) == children[i] && status == 0);
    }
    close(go[0]);
    close(ready[0]);
    close(ready[1]);
    munmap(own, 4096);
    free(children);
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    long alive = atol(argv[1]), after = atol(argv[2]);
    // Whatever the kernel keeps for later is made by the first round.
    lives(alive);
    forks(100);
    long before = free_memory();
    lives(alive);
    forks(after);
    long now = free_memory();
    fprintf(stderr, "%ld KiB were free and %ld are\n", before, now);
    CHECK(now + 1024 >= before);
    printf("memory is back\n");
    return 0;
}
