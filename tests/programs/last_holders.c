// SPDX-License-Identifier: Apache-2.0 OR MIT
// Who lets go of a file for good tells those who watch it. That happens wherever the last holder is: the memory that a file was mapped to
// is taken back, or a process ends. ARG: a directory.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static atomic_int ends;

// Needs the lock of the address space again and again.
static void *maps(void *unused) {
    while (!ends) {
        char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(page != MAP_FAILED);
        *page = 1;
        CHECK(munmap(page, 4096) == 0);
    }
    return unused;
}

int main(int argc, char **argv) {
    CHECK(argc == 2 && chdir(argv[1]) == 0);
    int watch = inotify_init1(IN_NONBLOCK);
    CHECK(watch >= 0 && inotify_add_watch(watch, ".", IN_ALL_EVENTS) >= 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, maps, NULL) == 0);
    char events[65536];
    int closed = 0;
    for (int i = 0; i < 300; i++) {
        char name[32];
        snprintf(name, sizeof name, "file%d", i);
        int fd = open(name, O_RDWR | O_CREAT | O_EXCL, 0644);
        CHECK(fd >= 0 && ftruncate(fd, 8192) == 0 && inotify_add_watch(watch, name, IN_ALL_EVENTS) >= 0);
        char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, i % 2 ? MAP_SHARED : MAP_PRIVATE, fd, 0);
        CHECK(page != MAP_FAILED && close(fd) == 0);
        page[0] = i;
        CHECK(i % 3 == 0 || unlink(name) == 0);
        switch (i % 4) {
        case 0: CHECK(munmap(page, 8192) == 0); break;
        // Something else in its place.
        case 1: CHECK(mmap(page, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == page && munmap(page, 8192) == 0); break;
        case 2: CHECK(munmap(page, 4096) == 0 && munmap(page + 4096, 4096) == 0); break;
        default: {
            // The child's memory goes with it, and is the last that has the file.
            pid_t child = fork();
            if (child == 0)
                _exit(0);
            int status;
            CHECK(child > 0 && munmap(page, 8192) == 0 && waitpid(child, &status, 0) == child && status == 0);
        }
        }
        CHECK(i % 3 != 0 || unlink(name) == 0);
        ssize_t length = read(watch, events, sizeof events);
        for (ssize_t at = 0; at < length;) {
            struct inotify_event *event = (void *)(events + at);
            closed += event->mask & IN_CLOSE_WRITE && event->len > 0;
            at += sizeof *event + event->len;
        }
    }
    ends = 1;
    CHECK(pthread_join(thread, NULL) == 0 && closed == 300);
    puts("all have let go");
}
