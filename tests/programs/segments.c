// SPDX-License-Identifier: Apache-2.0 OR MIT
// GS is a program's to change: whatever it points to, system calls, signals and the program's other processes go on.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define HWCAP2_FSGSBASE (1 << 1)
#define FAIL(...) (printf("line %d: ", __LINE__), printf(__VA_ARGS__), puts(""), exit(1))
#define CHECK(what) ((what) ? 0 : FAIL("%s", #what))

static volatile sig_atomic_t ticks, faults;
static char *pages;

static void tick(int signal) {
    (void)signal;
    ticks++;
}

static void set_base(uint64_t base) { __asm__ volatile("wrgsbase %0" ::"r"(base) : "memory"); }

static void set_selector(unsigned short selector) { __asm__ volatile("mov %0, %%gs" ::"r"(selector) : "memory"); }

// By the instruction itself, which the kernel may have replaced by a jump.
static long call(long number, long a, long b, long c) {
    long answer;
    __asm__ volatile("syscall" : "=a"(answer) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return answer;
}

// The page of zeros, one of a value that is no address, one of the address of nothing.
static uint64_t bases[] = {0, 0x10, 1ull << 46, 1, 2, 3, 0x7fffffffefffull};

static void change_to(unsigned which) {
    uint64_t base = bases[which];
    set_base(base >= 1 && base <= 3 ? (uint64_t)pages + (base - 1) * 4096 : base);
}

static void calls_are_made(void) {
    int ends[2];
    long parent = getppid(), own = getpid();
    CHECK(pipe(ends) == 0);
    for (unsigned i = 0; i < sizeof bases / sizeof *bases; i++) {
        change_to(i);
        CHECK(call(SYS_getpid, 0, 0, 0) == own);
        change_to(i);
        CHECK(call(SYS_getppid, 0, 0, 0) == parent);
        change_to(i);
        CHECK(call(SYS_write, ends[1], (long)"letters", 7) == 7);
        char letters[8] = "";
        change_to(i);
        CHECK(call(SYS_read, ends[0], (long)letters, 7) == 7 && strcmp(letters, "letters") == 0);
        change_to(i);
        CHECK(call(SYS_lseek, ends[0], 0, 0) == -29);
        change_to(i);
        struct timespec now;
        CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0 && now.tv_sec >= 0);
        change_to(i);
        CHECK(sched_yield() == 0);
    }
    unsigned short stack;
    __asm__ volatile("mov %%ss, %0" : "=r"(stack));
    for (int i = 0; i < 2; i++) {
        set_selector(i ? stack : 0);
        CHECK(call(SYS_getppid, 0, 0, 0) == parent);
    }
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
}

static void fault(int signal) {
    (void)signal;
    faults++;
    char *page = mmap(pages + 3 * 4096, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    CHECK(page == pages + 3 * 4096);
}

static void signals_arrive(void) {
    struct itimerval often = {{0, 2000}, {0, 2000}}, never = {{0, 0}, {0, 0}};
    CHECK(signal(SIGALRM, tick) != SIG_ERR && signal(SIGSEGV, fault) != SIG_ERR);
    CHECK(setitimer(ITIMER_REAL, &often, 0) == 0);
    // Nothing but the timer comes to the kernel meanwhile.
    for (unsigned i = 0; ticks < 40; i++) change_to(i % (sizeof bases / sizeof *bases));
    CHECK(setitimer(ITIMER_REAL, &never, 0) == 0);
    for (unsigned i = 0; i < sizeof bases / sizeof *bases; i++) {
        CHECK(mprotect(pages + 3 * 4096, 4096, PROT_NONE) == 0);
        change_to(i);
        ((volatile char *)pages)[3 * 4096] = 1;
    }
    CHECK(faults == sizeof bases / sizeof *bases);
    // Untouched memory.
    char *more = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(more != MAP_FAILED);
    for (int at = 0; at < 1 << 20; at += 4096) {
        change_to((unsigned)at / 4096 % (sizeof bases / sizeof *bases));
        more[at] = 1;
    }
    CHECK(munmap(more, 1 << 20) == 0);
}

static void *other(void *unused) {
    (void)unused;
    for (int i = 0; i < 50; i++) {
        set_base(0);
        CHECK(sched_yield() == 0);
    }
    return 0;
}

static void ended_in(void (*act)(void)) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        act();
        set_base(0);
        _exit(7);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    if (status != 7 << 8) FAIL("a child ended with %x", status);
}

int main(void) {
    setvbuf(stdout, 0, _IONBF, 0);
    if (!(getauxval(AT_HWCAP2) & HWCAP2_FSGSBASE)) {
        puts("segment tests left out: there is no WRGSBASE");
        return 0;
    }
    pages = mmap(0, 4 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED);
    memset(pages + 4096, 0x80, 4096);
    for (uint64_t *word = (uint64_t *)(pages + 2 * 4096); word < (uint64_t *)(pages + 3 * 4096); word++) *word = 1ull << 45;
    ended_in(calls_are_made);
    ended_in(signals_arrive);
    calls_are_made();
    signals_arrive();
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) CHECK(pthread_create(&threads[i], 0, other, 0) == 0);
    for (int i = 0; i < 3; i++) CHECK(pthread_join(threads[i], 0) == 0);
    puts("all segment tests passed");
    return 0;
}
