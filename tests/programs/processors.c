// SPDX-License-Identifier: Apache-2.0 OR MIT
// Threads on several processors. argv[1] says what: "together", "seen", "pinned", "crash", "changes", or "storm" with seconds
// in argv[2].
#define _GNU_SOURCE
#include "check.h"
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

// ---- together: two threads hand a number back and forth without a system call.

#define TURNS 200000
static _Atomic int turn;

static void *second(void *unused) {
    for (int i = 1; i < TURNS; i += 2) {
        while (atomic_load(&turn) != i)
            __builtin_ia32_pause();
        atomic_store(&turn, i + 1);
    }
    return unused;
}

static void together(void) {
    pthread_t other;
    CHECK(pthread_create(&other, NULL, second, NULL) == 0);
    double start = now();
    for (int i = 0; i < TURNS; i += 2) {
        while (atomic_load(&turn) != i)
            __builtin_ia32_pause();
        atomic_store(&turn, i + 1);
    }
    CHECK(pthread_join(other, NULL) == 0);
    // On one processor each turn lasts as long as a time slice: minutes.
    printf("together %s\n", now() - start < 90 ? "yes" : "no");
}

// ---- seen: every processor is seen by some thread, and the C library knows their number.

static _Atomic unsigned processors;

static void *looks(void *until) {
    while (now() < *(double *)until) {
        int cpu = sched_getcpu();
        unsigned by_call;
        CHECK(syscall(SYS_getcpu, &by_call, NULL, NULL) == 0 && by_call < 16);
        CHECK(cpu >= 0 && cpu < 16);
        atomic_fetch_or(&processors, 1u << cpu);
        atomic_fetch_or(&processors, 1u << by_call);
    }
    return NULL;
}

static void seen(void) {
    pthread_t threads[8];
    double until = now() + 1;
    for (int i = 0; i < 8; i++)
        CHECK(pthread_create(&threads[i], NULL, looks, &until) == 0);
    for (int i = 0; i < 8; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    printf("%d of %d processors\n", __builtin_popcount(processors), get_nprocs());
}

// ---- pinned: a thread is only where it may be, and goes elsewhere when it is told to.

static void be_at(int cpu) {
    cpu_set_t set, got;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    CHECK(sched_setaffinity(0, sizeof set, &set) == 0);
    CHECK(sched_getaffinity(0, sizeof got, &got) == 0 && CPU_EQUAL(&set, &got));
    CHECK(sched_getcpu() == cpu);
}

static void *walks(void *unused) {
    for (int i = 0; i < 300; i++) {
        int cpu = i % get_nprocs();
        be_at(cpu);
        if (i % 16 == 0)
            usleep(100);
        for (int j = 0; j < 100; j++)
            CHECK(sched_getcpu() == cpu);
    }
    return unused;
}

static void pinned(void) {
    cpu_set_t none;
    CPU_ZERO(&none);
    CPU_SET(63, &none);
    CHECK(sched_setaffinity(0, sizeof none, &none) == -1 && errno == EINVAL);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, walks, NULL) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    printf("pinned\n");
}

// ---- storm: everything at once, for some seconds, with sums that tell what was lost.

static double end;
static _Atomic uint64_t rounds, handled, sent;

// Pages come, change their rights and go; what is written in them stays.
static void *maps(void *seed) {
    unsigned random = (unsigned)(uintptr_t)seed;
    while (now() < end) {
        size_t pages = 1 + rand_r(&random) % 64, bytes = pages * 4096;
        uint64_t *m = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(m != MAP_FAILED);
        for (size_t i = 0; i < pages; i++)
            m[i * 512] = i ^ (uintptr_t)m;
        CHECK(mprotect(m, bytes, PROT_READ) == 0);
        for (size_t i = 0; i < pages; i++)
            CHECK(m[i * 512] == (i ^ (uintptr_t)m) && m[i * 512 + 511] == 0);
        CHECK(mprotect(m, bytes, PROT_READ | PROT_WRITE) == 0);
        uint64_t *to = mremap(m, bytes, bytes * 2, MREMAP_MAYMOVE);
        CHECK(to != MAP_FAILED);
        for (size_t i = 0; i < pages; i++)
            CHECK(to[i * 512] == (i ^ (uintptr_t)m));
        to[(pages * 2 - 1) * 512] = 7;
        if (rand_r(&random) % 2)
            CHECK(madvise(to, bytes, MADV_DONTNEED) == 0 && to[0] == 0);
        CHECK(munmap(to, bytes * 2) == 0);
        atomic_fetch_add(&rounds, 1);
    }
    return NULL;
}

// One page that all threads write, each its own word, while its rights and copies change.
static _Atomic uint64_t *shared;
static void *counts(void *slot) {
    uint64_t own = 0;
    _Atomic uint64_t *word = shared + (uintptr_t)slot * 512;
    while (now() < end) {
        for (int i = 0; i < 1000; i++) {
            own++;
            atomic_fetch_add(word, 1);
            atomic_fetch_add(shared + 1, 1);
        }
    }
    CHECK(atomic_load(word) == own);
    return (void *)own;
}

static void *remaps(void *unused) {
    // Neighbours of the page come and go, so that its mapping is split and joined.
    while (now() < end) {
        for (int i = 8; i < 16; i++) {
            void *page = (char *)shared + i * 4096;
            CHECK(mmap(page, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == page);
            *(volatile char *)page = 1;
            CHECK(mprotect(page, 4096, PROT_NONE) == 0);
        }
    }
    return unused;
}

// Mutexes, conditions and a plain counter between them.
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, inherits;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static uint64_t guarded, guarded_inherits;
static void *locks(void *unused) {
    uint64_t own = 0;
    while (now() < end) {
        for (int i = 0; i < 200; i++) {
            CHECK(pthread_mutex_lock(&mutex) == 0);
            guarded++;
            if (i % 50 == 0)
                pthread_cond_broadcast(&condition);
            CHECK(pthread_mutex_unlock(&mutex) == 0);
            CHECK(pthread_mutex_lock(&inherits) == 0);
            guarded_inherits++;
            CHECK(pthread_mutex_unlock(&inherits) == 0);
            own++;
        }
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec = (until.tv_nsec + 1000000) % 1000000000;
        CHECK(pthread_mutex_lock(&mutex) == 0);
        pthread_cond_timedwait(&condition, &mutex, &until);
        CHECK(pthread_mutex_unlock(&mutex) == 0);
    }
    (void)unused;
    return (void *)own;
}

// Bytes through a pipe arrive in order.
static int ends[2];
static void *writes(void *unused) {
    uint64_t sum = 0;
    uint8_t next = 0, bytes[977];
    while (now() < end) {
        for (size_t i = 0; i < sizeof bytes; i++) {
            bytes[i] = next++;
            sum += bytes[i];
        }
        for (size_t done = 0; done < sizeof bytes;) {
            ssize_t n = write(ends[1], bytes + done, sizeof bytes - done);
            if (n < 0 && errno == EINTR)
                continue;
            CHECK(n > 0);
            done += n;
        }
    }
    close(ends[1]);
    (void)unused;
    return (void *)sum;
}
static void *reads(void *unused) {
    uint64_t sum = 0;
    uint8_t next = 0, bytes[1500];
    for (;;) {
        ssize_t n = read(ends[0], bytes, sizeof bytes);
        if (n < 0 && errno == EINTR)
            continue;
        CHECK(n >= 0);
        if (n == 0)
            break;
        for (ssize_t i = 0; i < n; i++) {
            CHECK(bytes[i] == next);
            next++;
            sum += bytes[i];
        }
    }
    (void)unused;
    return (void *)sum;
}

// Signals for threads that compute, with state in vector registers.
static _Atomic(pthread_t) target;
static _Atomic int target_lives;
static void on_signal(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info, (void)context;
    double x = 1;
    for (int i = 1; i < 10; i++)
        x *= i;
    CHECK(x == 362880);
    atomic_fetch_add(&handled, 1);
}
static void *computes(void *unused) {
    atomic_store(&target, pthread_self());
    atomic_store(&target_lives, 1);
    uint64_t turns = 0;
    while (now() < end) {
        double a = 1.5, b = 2.5, c = 3.5, d = 4.5;
        for (int i = 0; i < 1000; i++) {
            __asm__ volatile("addsd %4, %0\n addsd %4, %1\n addsd %4, %2\n addsd %4, %3"
                             : "+x"(a), "+x"(b), "+x"(c), "+x"(d)
                             : "x"(1.0));
        }
        CHECK(a == 1001.5 && b == 1002.5 && c == 1003.5 && d == 1004.5);
        turns++;
    }
    atomic_store(&target_lives, 0);
    // Until nobody can be about to send one any more.
    sleep(1);
    (void)unused;
    return (void *)turns;
}
static void *sends(void *unused) {
    while (!atomic_load(&target_lives))
        sched_yield();
    while (now() < end && atomic_load(&target_lives)) {
        uint64_t before = atomic_load(&handled);
        CHECK(pthread_kill(atomic_load(&target), SIGUSR1) == 0);
        atomic_fetch_add(&sent, 1);
        for (int i = 0; i < 100000 && atomic_load(&handled) == before && now() < end; i++)
            __builtin_ia32_pause();
        CHECK(kill(getpid(), SIGUSR2) == 0);
    }
    return unused;
}

// Threads begin and end.
static void *short_life(void *argument) {
    char stack[1000];
    memset(stack, (int)(uintptr_t)argument, sizeof stack);
    return (void *)(uintptr_t)(stack[500] + 1);
}
static void *spawns(void *unused) {
    while (now() < end) {
        pthread_t threads[6];
        for (uintptr_t i = 0; i < 6; i++)
            CHECK(pthread_create(&threads[i], NULL, short_life, (void *)i) == 0);
        for (uintptr_t i = 0; i < 6; i++) {
            void *result;
            CHECK(pthread_join(threads[i], &result) == 0 && (uintptr_t)result == i + 1);
        }
        atomic_fetch_add(&rounds, 1);
    }
    return unused;
}

static void *barriers(void *unused) {
    CHECK(syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0);
    while (now() < end) {
        CHECK(syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0);
        usleep(500);
        be_at(rand() % get_nprocs());
    }
    return unused;
}

static void storm(double seconds) {
    end = now() + seconds;
    shared = mmap(NULL, 16 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED && pipe(ends) == 0);
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    CHECK(pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT) == 0);
    CHECK(pthread_mutex_init(&inherits, &attributes) == 0);
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0 && sigaction(SIGUSR2, &action, NULL) == 0);
    static const struct {
        void *(*run)(void *);
        uintptr_t argument;
    } all[] = {{maps, 1},  {maps, 2},   {counts, 2}, {counts, 3},   {remaps, 0}, {locks, 0},  {locks, 0},
               {locks, 0}, {writes, 0}, {reads, 0},  {computes, 0}, {sends, 0},  {spawns, 0}, {barriers, 0}};
    enum { COUNT = sizeof all / sizeof *all };
    pthread_t threads[COUNT];
    uint64_t results[COUNT];
    for (size_t i = 0; i < COUNT; i++)
        CHECK(pthread_create(&threads[i], NULL, all[i].run, (void *)all[i].argument) == 0);
    for (size_t i = 0; i < COUNT; i++)
        CHECK(pthread_join(threads[i], (void **)&results[i]) == 0);
    CHECK(shared[1] == results[2] + results[3]);
    uint64_t taken = results[5] + results[6] + results[7];
    CHECK(guarded == taken && guarded_inherits == taken);
    CHECK(results[8] == results[9]);
    CHECK(handled > 0 && sent > 0 && rounds > 0);
    fprintf(stderr, "%lu rounds, %lu locks, %lu of %lu signals, %lu bytes\n", (unsigned long)rounds,
            (unsigned long)taken, (unsigned long)handled, (unsigned long)sent, (unsigned long)results[8]);
    printf("storm over\n");
}

// ---- crash: the kernel ends where the program, in supervisor mode, claims that memory is broken; another thread prints meanwhile.

static _Atomic unsigned printed;

static void *prints(void *unused) {
    for (;;) {
        CHECK(write(1, "goes on\n", 8) == 8);
        atomic_fetch_add(&printed, 1);
    }
    return unused;
}

static void crash(void) {
    pthread_t other;
    CHECK(pthread_create(&other, NULL, prints, NULL) == 0);
    while (atomic_load(&printed) < 10)
        sched_yield();
    __asm__ volatile("int $2");
}

// ---- changes: how many processors two threads that compute without end are on, whenever that is another number.

static void *computes_on(void *unused) {
    for (;;)
        atomic_fetch_or(&processors, 1u << sched_getcpu());
    return unused;
}

static void changes(void) {
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, computes_on, NULL) == 0);
    setlinebuf(stdout);
    for (int last = 0;;) {
        atomic_store(&processors, 0);
        // Longer than a turn, also where the host has other things to do.
        usleep(300000);
        int count = __builtin_popcount(processors);
        if (count != last)
            printf("on %d now\n", count);
        last = count;
    }
}

int main(int argc, char **argv) {
    CHECK(argc > 1);
    if (strcmp(argv[1], "together") == 0)
        together();
    else if (strcmp(argv[1], "seen") == 0)
        seen();
    else if (strcmp(argv[1], "pinned") == 0)
        pinned();
    else if (strcmp(argv[1], "crash") == 0)
        crash();
    else if (strcmp(argv[1], "changes") == 0)
        changes();
    else
        storm(argc > 2 ? atof(argv[2]) : 3);
    return 0;
}
