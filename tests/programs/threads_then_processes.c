// SPDX-License-Identifier: Apache-2.0 OR MIT
// Threads compute at the same time, and then the program has children, and these have children, while a thread computes on.
#include "check.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

static _Atomic int stops;

static void *computes(void *count) {
    while (!stops)
        atomic_fetch_add((_Atomic long *)count, 1);
    return NULL;
}

int main(void) {
    pthread_t threads[2];
    _Atomic long counts[2] = {0, 0};
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, computes, (void *)&counts[i]) == 0);
    // Longer than their turns are.
    usleep(300000);
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            pid_t grandchild = fork();
            if (grandchild == 0)
                _exit(i);
            int status;
            CHECK(waitpid(grandchild, &status, 0) == grandchild);
            _exit(WEXITSTATUS(status) + 1);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == i + 1);
    }
    long before = counts[0] + counts[1];
    usleep(300000);
    CHECK(counts[0] + counts[1] > before);
    stops = 1;
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    printf("twenty children, and theirs\n");
    return 0;
}
