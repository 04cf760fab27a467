// SPDX-License-Identifier: Apache-2.0 OR MIT
// Calls that take as long as a program likes: other threads go on meanwhile. Passes on Linux as well.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

// A busy host, or an emulated processor, stops everybody for a while; these calls took between 7 seconds and minutes.
static const double MOST_S = 3;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static _Atomic double longest;

static void *beats(void *unused) {
    // Signals are for the thread whose call they end.
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    for (double last = now();;) {
        usleep(1000);
        double t = now();
        if (t - last > longest)
            longest = t - last;
        last = t;
    }
    return unused;
}

static void begin(void) {
    usleep(10000);
    longest = 0;
}

static void ends(const char *what) {
    usleep(10000);
    printf("%s: others waited %.3f s\n", what, longest);
    CHECK(longest < MOST_S);
}

static void nothing(int signal) { (void)signal; }

static void randomness(char *memory, size_t size) {
    struct itimerval soon = {{0, 0}, {0, 100000}};
    signal(SIGALRM, nothing);
    begin();
    CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
    ssize_t n = getrandom(memory, size, 0);
    CHECK(n >= 256 && (size_t)n <= size);
    ends("getrandom");
}

static void copies(char *memory, size_t size) {
    enum { COUNT = 1024 };
    static struct iovec here[COUNT], there[COUNT];
    for (int i = 0; i < COUNT; i++) {
        here[i] = (struct iovec){memory, size / 4};
        there[i] = (struct iovec){memory + size / 2, size / 4};
    }
    begin();
    CHECK(process_vm_readv(getpid(), here, COUNT, there, COUNT, 0) == (ssize_t)(size / 4 * COUNT));
    ends("process_vm_readv");
}

static void files(char *memory, size_t size) {
    int fd = memfd_create("long", 0);
    begin();
    for (int i = 0; i < 4; i++)
        CHECK(pwrite(fd, memory, size, 0) == (ssize_t)size);
    ends("pwrite");
    close(fd);
}

// One call as long as can be: the same memory again and again. A signal ends it.
static void device(const char *path, char *memory, size_t size) {
    enum { COUNT = 256 };
    static struct iovec all[COUNT];
    struct itimerval soon = {{0, 0}, {0, 100000}};
    for (int i = 0; i < COUNT; i++)
        all[i] = (struct iovec){memory, size};
    int fd = open(path, O_RDONLY);
    signal(SIGALRM, nothing);
    begin();
    CHECK(fd >= 0 && setitimer(ITIMER_REAL, &soon, NULL) == 0);
    double start = now();
    CHECK(readv(fd, all, COUNT) > 0);
    printf("%s: %.3f s\n", path, now() - start);
    ends(path);
    close(fd);
}

static void unmaps(size_t size) {
    char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    CHECK(memory != MAP_FAILED);
    begin();
    CHECK(munmap(memory, size) == 0);
    ends("munmap");
    // All of it is gone.
    unsigned char there;
    for (size_t at = 0; at < size; at += 1 << 20)
        CHECK(mincore(memory + at, 1, &there) == -1 && errno == ENOMEM);
}

// Each instance of a layer watches all of the one below, so ways multiply; somewhere that ends.
static void layers(void) {
    enum { WIDE = 60, HIGH = 4 };
    static int all[HIGH][WIDE];
    int source = eventfd(0, 0), refused = 0;
    uint64_t one = 1;
    struct epoll_event event = {.events = EPOLLIN};
    begin();
    for (int high = 0; high < HIGH; high++) {
        for (int i = 0; i < WIDE; i++) {
            CHECK((all[high][i] = epoll_create1(0)) >= 0);
            if (high == 0)
                CHECK(epoll_ctl(all[0][i], EPOLL_CTL_ADD, source, &event) == 0);
            for (int below = 0; high > 0 && below < WIDE; below++)
                if (epoll_ctl(all[high][i], EPOLL_CTL_ADD, all[high - 1][below], &event) != 0) {
                    CHECK(errno == EINVAL || errno == ELOOP);
                    refused++;
                }
        }
    }
    CHECK(refused > 0 && write(source, &one, sizeof one) == sizeof one);
    CHECK(epoll_wait(all[0][0], &event, 1, 0) == 1 && epoll_wait(all[1][0], &event, 1, 0) == 1);
    for (int high = 0; high < HIGH; high++)
        for (int i = 0; i < WIDE; i++)
            close(all[high][i]);
    close(source);
    ends("epoll");
}

int main(void) {
    const size_t size = 4 << 20;
    pthread_t thread;
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur >= 512);
    CHECK(pthread_create(&thread, NULL, beats, NULL) == 0);
    char *memory = mmap(NULL, size * 32, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    memset(memory, 1, size);
    layers();
    copies(memory, size);
    randomness(memory, size * 32);
    files(memory, size * 4);
    device("/dev/zero", memory, size * 2);
    device("/dev/urandom", memory, size * 2);
    unmaps(size * 24);
    puts("long calls: ok");
    return 0;
}
