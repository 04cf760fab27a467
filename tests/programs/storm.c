// SPDX-License-Identifier: Apache-2.0 OR MIT
// Several processes on several processors. argv[1] says what: "together", or "storm" with the number of rounds in argv[2]. Passes on
// Linux as well.
#define _GNU_SOURCE
#include "check.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;
static char *own_path;

static void *shared_page(void) {
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    return page;
}

static int ending_of(pid_t child) {
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    return status;
}

static void ends_with(pid_t child, int code) {
    int status = ending_of(child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == code);
}

static pid_t begin(void) {
    pid_t child = fork();
    CHECK(child >= 0);
    return child;
}

// ---- together: two processes hand a number back and forth without a system call.

#define TURNS 200000

static void hand_over(_Atomic int *turn, int first) {
    for (int i = first; i < TURNS; i += 2) {
        while (atomic_load(turn) != i)
            __builtin_ia32_pause();
        atomic_store(turn, i + 1);
    }
}

static void together(void) {
    _Atomic int *turn = shared_page();
    pid_t child = begin();
    // On one processor each turn lasts as long as a time slice: the test's limit of time ends that.
    hand_over(turn, child == 0);
    if (child == 0)
        _exit(0);
    ends_with(child, 0);
    printf("together\n");
}

// ---- storm

#define BYTES (256 << 10)
static unsigned char *heap;
static volatile int word = 1;

static void fill(unsigned char *bytes, unsigned char value) {
    memset(bytes, value, BYTES);
}

static int holds(const unsigned char *bytes, unsigned char value) {
    for (int i = 0; i < BYTES; i++)
        if (bytes[i] != value)
            return 0;
    return 1;
}

// Both write the pages that they share at first, at the same time.
static void copies(unsigned round) {
    unsigned char before = round, after = round + 1;
    fill(heap, before);
    pid_t child = begin();
    if (child == 0) {
        int first = holds(heap, before);
        fill(heap, ~before);
        _exit(first && holds(heap, ~before) ? 3 : 4);
    }
    fill(heap, after);
    ends_with(child, 3);
    CHECK(holds(heap, after));
}

// posix_spawn(3) is clone with CLONE_VM and CLONE_VFORK, and an execve.
static void programs(unsigned round) {
    char code[8];
    snprintf(code, sizeof code, "%u", round % 100);
    char *words[] = {own_path, "code", code, NULL};
    pid_t child;
    CHECK(posix_spawn(&child, own_path, NULL, NULL, words, environ) == 0);
    ends_with(child, round % 100);
}

static _Atomic int *started;

static void *counts(void *unused) {
    atomic_fetch_add(started, 1);
    for (;;)
        word++;
    return unused;
}

// A process is killed while its threads compute.
static void deaths(unsigned round) {
    atomic_store(started, 0);
    pid_t child = begin();
    if (child == 0) {
        pthread_t threads[2];
        for (int i = 0; i < 2; i++)
            CHECK(pthread_create(&threads[i], NULL, counts, NULL) == 0);
        pthread_join(threads[0], NULL);
        _exit(1);
    }
    while (atomic_load(started) < (int)(round % 3))
        sched_yield();
    CHECK(kill(child, SIGKILL) == 0);
    int status = ending_of(child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

// The child looks at a page that it shares with its parent until the parent changes the child's copy, from outside.
static void writes(unsigned round) {
    int value = 2 + round % 100, here = word;
    atomic_store(started, 0);
    pid_t child = begin();
    if (child == 0) {
        atomic_store(started, 1);
        while (word == here)
            ;
        _exit(word == here + value ? 5 : 6);
    }
    while (atomic_load(started) == 0)
        sched_yield();
    int new_value = here + value;
    struct iovec from = {&new_value, sizeof new_value}, to = {(void *)&word, sizeof word};
    CHECK(process_vm_writev(child, &from, 1, &to, 1, 0) == (ssize_t)sizeof word);
    ends_with(child, 5);
    CHECK(word == here);
}

static void bus_error(int signal) {
    (void)signal;
    _exit(7);
}

// The page that the child looks at goes, because the file becomes shorter.
static void truncations(unsigned round) {
    (void)round;
    int file = memfd_create("storm", MFD_CLOEXEC);
    CHECK(file >= 0 && ftruncate(file, 4096) == 0);
    volatile int *page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, file, 0);
    CHECK(page != MAP_FAILED);
    atomic_store(started, 0);
    pid_t child = begin();
    if (child == 0) {
        signal(SIGBUS, bus_error);
        int sum = *page;
        atomic_store(started, 1);
        for (;;)
            sum += *page;
    }
    while (atomic_load(started) == 0)
        sched_yield();
    CHECK(ftruncate(file, 0) == 0);
    ends_with(child, 7);
    CHECK(munmap((void *)page, 4096) == 0 && close(file) == 0);
}

static void pipes(unsigned round) {
    (void)round;
    int there[2], back[2];
    CHECK(pipe(there) == 0 && pipe(back) == 0);
    pid_t child = begin();
    unsigned char byte;
    if (child == 0) {
        for (int i = 0; i < 50; i++) {
            CHECK(read(there[0], &byte, 1) == 1);
            byte++;
            CHECK(write(back[1], &byte, 1) == 1);
        }
        _exit(8);
    }
    for (int i = 0; i < 50; i++) {
        byte = i;
        CHECK(write(there[1], &byte, 1) == 1);
        CHECK(read(back[0], &byte, 1) == 1);
        CHECK(byte == i + 1);
    }
    ends_with(child, 8);
    for (int i = 0; i < 2; i++)
        CHECK(close(there[i]) == 0 && close(back[i]) == 0);
}

static volatile sig_atomic_t heard;

static void hears(int signal) {
    (void)signal;
    heard++;
}

// Signals that queue reach a process that computes, each once, and it stops and goes on in between.
static void signals(unsigned round) {
    (void)round;
    atomic_store(started, 0);
    heard = 0;
    pid_t child = begin();
    if (child == 0) {
        signal(SIGRTMIN, hears);
        atomic_store(started, 1);
        while (heard < 20)
            ;
        _exit(heard);
    }
    while (atomic_load(started) == 0)
        sched_yield();
    for (int i = 0; i < 20; i++) {
        CHECK(sigqueue(child, SIGRTMIN, (union sigval){0}) == 0);
        if (i == 10) {
            int status;
            CHECK(kill(child, SIGSTOP) == 0);
            CHECK(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
            CHECK(kill(child, SIGCONT) == 0);
        }
    }
    ends_with(child, 20);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *writes_heap(void *end) {
    for (unsigned n = 0; !atomic_load((_Atomic int *)end); n++) {
        pthread_mutex_lock(&lock);
        fill(heap, n);
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

// A fork while another thread writes: nothing that it wrote before is missing, in neither process.
static void forks_of_threads(unsigned round) {
    (void)round;
    static _Atomic int end;
    atomic_store(&end, 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, writes_heap, &end) == 0);
    for (int i = 0; i < 5; i++) {
        pthread_mutex_lock(&lock);
        unsigned char value = heap[0];
        pid_t child = begin();
        if (child == 0)
            _exit(holds(heap, value) ? 9 : 10);
        int is_whole = holds(heap, value);
        pthread_mutex_unlock(&lock);
        CHECK(is_whole);
        ends_with(child, 9);
    }
    atomic_store(&end, 1);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void worker(unsigned number, unsigned rounds) {
    void (*const kinds[])(unsigned) = {copies, programs, deaths,  writes,
                                       truncations, pipes, signals, forks_of_threads};
    const unsigned count = sizeof kinds / sizeof *kinds;
    started = shared_page();
    heap = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(heap != MAP_FAILED);
    // Each begins with another one, so that all of them meet.
    for (unsigned round = 0; round < rounds; round++)
        kinds[(round + number * 3) % count](round);
}

static void storm(unsigned rounds) {
    enum { WORKERS = 5 };
    pid_t workers[WORKERS];
    for (unsigned i = 0; i < WORKERS; i++) {
        workers[i] = begin();
        if (workers[i] == 0) {
            worker(i, rounds);
            _exit(0);
        }
    }
    for (int i = 0; i < WORKERS; i++)
        ends_with(workers[i], 0);
    CHECK(waitpid(-1, NULL, 0) == -1 && errno == ECHILD);
    printf("storm over\n");
}

int main(int argc, char **argv) {
    own_path = argv[0];
    if (argc == 3 && strcmp(argv[1], "code") == 0)
        return atoi(argv[2]);
    if (argc == 2 && strcmp(argv[1], "together") == 0)
        together();
    else if (argc == 3 && strcmp(argv[1], "storm") == 0)
        storm(strtoul(argv[2], NULL, 10));
    else
        return 2;
    return 0;
}
