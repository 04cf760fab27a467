// SPDX-License-Identifier: Apache-2.0 OR MIT
// A system call changes RAX, RCX and R11 and no other register: vector registers are compared in full before and after
// calls that return at once, that wait while another thread uses the registers, that a signal interrupts, and that fault.
// A thread that clone makes begins with its maker's.
#define _GNU_SOURCE
#include <cpuid.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

enum { REGISTERS = 16, HALF = 16, FULL = 32 };

struct vectors {
    uint8_t bytes[REGISTERS][FULL];
} __attribute__((aligned(64)));

static int has_avx;

#define EACH(op)                                                                                                  \
    op(0) op(1) op(2) op(3) op(4) op(5) op(6) op(7) op(8) op(9) op(10) op(11) op(12) op(13) op(14) op(15)
#define LOAD(n) "movups " #n "*32(%[in]), %%xmm" #n "\n"
#define STORE(n) "movups %%xmm" #n ", " #n "*32(%[out])\n"
#define LOAD_WIDE(n) "vmovups " #n "*32(%[in]), %%ymm" #n "\n"
#define STORE_WIDE(n) "vmovups %%ymm" #n ", " #n "*32(%[out])\n"
#define STORE_CHILD(n) "movups %%xmm" #n ", " #n "*32(%%rbx)\n"
#define CLOBBERS                                                                                                  \
    "rcx", "r11", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",       \
        "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"

// Makes a call with `in` in the registers, and stores what they hold behind it.
static long call(long number, long a, long b, long c, const struct vectors *in, struct vectors *out)
{
    long result;
    register long r10 __asm__("r10") = 0;
    register long r8 __asm__("r8") = 0;
    if (has_avx)
        __asm__ volatile(EACH(LOAD_WIDE) "syscall\n" EACH(STORE_WIDE) "vzeroupper\n"
                         : "=a"(result)
                         : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), [in] "r"(in), [out] "r"(out)
                         : CLOBBERS);
    else
        __asm__ volatile(EACH(LOAD) "syscall\n" EACH(STORE)
                         : "=a"(result)
                         : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), [in] "r"(in), [out] "r"(out)
                         : CLOBBERS);
    return result;
}

static void fill(struct vectors *v, unsigned seed)
{
    for (int i = 0; i < REGISTERS; i++)
        for (int j = 0; j < FULL; j++)
            v->bytes[i][j] = (uint8_t)((seed = seed * 1103515245 + 12345) >> 16);
}

static unsigned seed = 1;

static long preserved(long number, long a, long b, long c, int line)
{
    struct vectors in, out;
    fill(&in, seed++);
    memset(&out, 0xee, sizeof out);
    long result = call(number, a, b, c, &in, &out);
    for (int i = 0; i < REGISTERS; i++)
        if (memcmp(in.bytes[i], out.bytes[i], has_avx ? FULL : HALF)) {
            printf("FAILED line %d: call %ld changed vector register %d\n", line, number, i);
            exit(1);
        }
    return result;
}

#define PRESERVED(number, a, b, c) preserved(number, (long)(a), (long)(b), (long)(c), __LINE__)

enum { CHILD_STACK = 65536 };
static uint8_t child_stack[CHILD_STACK] __attribute__((aligned(64)));

// Clones a thread that stores its vector registers at the top of its stack and ends.
static void clone_keeps_registers(unsigned flags, int *gone)
{
    struct vectors in;
    uint8_t *top = child_stack + CHILD_STACK - sizeof in;
    struct vectors *out = (struct vectors *)top;
    long result;
    fill(&in, seed++);
    memset(out, 0xee, sizeof *out);
    *gone = 1;
    register int *r10 __asm__("r10") = gone;
    register long r8 __asm__("r8") = 0;
    __asm__ volatile(EACH(LOAD) "syscall\n"
                     "test %%rax, %%rax\n"
                     "jnz 1f\n"
                     "mov %%rsp, %%rbx\n" EACH(STORE_CHILD) "mov $60, %%eax\n"
                     "xor %%edi, %%edi\n"
                     "syscall\n"
                     "1:\n"
                     : "=a"(result)
                     : "a"(SYS_clone), "D"((long)flags), "S"(top), "d"(0L), "r"(r10), "r"(r8), [in] "r"(&in)
                     : CLOBBERS);
    CHECK(result > 0);
    // CLONE_CHILD_CLEARTID: the word is cleared when the thread has ended.
    for (int i = 0; __atomic_load_n(gone, __ATOMIC_ACQUIRE) && i < 10000; i++)
        usleep(1000);
    for (int i = 0; i < REGISTERS; i++)
        CHECK(!memcmp(in.bytes[i], out->bytes[i], HALF));
}

static volatile int handled, stop;

static void handler(int number)
{
    struct vectors in, out;
    (void)number;
    fill(&in, 4711 + (unsigned)handled);
    call(SYS_getppid, 0, 0, 0, &in, &out);
    handled++;
}

// Uses all registers, makes calls, and gives others the processor.
static void *noise(void *pipe_end)
{
    struct vectors in, out;
    unsigned mine = 99;
    char byte = 'x';
    while (!stop) {
        fill(&in, mine++);
        call(SYS_sched_yield, 0, 0, 0, &in, &out);
        CHECK(!memcmp(in.bytes[7], out.bytes[7], HALF));
        fill(&in, mine++);
        call(SYS_write, *(int *)pipe_end, (long)&byte, 1, &in, &out);
    }
    return NULL;
}

static void set_flag(unsigned long flag)
{
    __asm__ volatile("pushfq\norq %0, (%%rsp)\npopfq" ::"r"(flag) : "memory", "cc");
}

static void clear_flag(unsigned long flag)
{
    __asm__ volatile("pushfq\nandq %0, (%%rsp)\npopfq" ::"r"(~flag) : "memory", "cc");
}

static void traced(int signal)
{
    (void)signal;
}

enum { TRAP = 1 << 8, DIRECTION = 1 << 10, NESTED = 1 << 14, ALIGNMENT = 1 << 18 };

// Flags are the program's: that it wants its own accesses aligned, its instructions counted or its strings backwards asks
// nothing of the kernel, whose accesses are made on odd addresses here.
static void calls_are_made_with_flag(unsigned long flag)
{
    static char odd[512], name[16];
    static char pages[3 * 4096] __attribute__((aligned(4096)));
    int ends[2];
    struct vectors in = {0}, out;
    char *path = memcpy(name + 1, "/tmp", 5);
    CHECK(pipe(ends) == 0);
    memset(pages, 'p', sizeof pages);
    for (int i = 0; i < 301; i++)
        odd[1 + i] = (char)i;
    set_flag(flag);
    long written = call(SYS_write, ends[1], (long)(odd + 1), 301, &in, &out);
    set_flag(flag);
    long read = call(SYS_read, ends[0], (long)(odd + 3), 301, &in, &out);
    set_flag(flag);
    long named = call(SYS_uname, (long)(pages + 1), 0, 0, &in, &out);
    set_flag(flag);
    long told = call(SYS_clock_gettime, CLOCK_MONOTONIC, (long)(odd + 405), 0, &in, &out);
    set_flag(flag);
    long opened = call(SYS_open, (long)path, O_RDONLY, 0, &in, &out);
    set_flag(flag);
    long mine = call(SYS_getpid, 0, 0, 0, &in, &out);
    set_flag(flag);
    long random = call(SYS_getrandom, (long)(pages + 4096), 4096, 0, &in, &out);
    // Ticks of the clock hit the kernel with it, and the program.
    for (int before = handled; handled < before + 5;) {
        set_flag(flag);
        call(SYS_getppid, 0, 0, 0, &in, &out);
    }
    clear_flag(flag);
    CHECK(written == 301 && read == 301 && named == 0 && told == 0 && opened > 0 && random == 4096 && mine == getpid());
    for (int i = 0; i < 301; i++)
        CHECK(odd[3 + i] == (char)i);
    CHECK(!memcmp(pages + 1, "Linux", 6) && pages[0] == 'p');
    // Nothing in front of it or behind it was written.
    for (int i = 2048; i < 4096; i++)
        CHECK(pages[i] == 'p' && pages[i + 6144] == 'p');
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0 && close((int)opened) == 0);
}

int main(void)
{
    unsigned a, b, c, d;
    has_avx = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_AVX) && (c & bit_OSXSAVE);
    char byte = 0, path[64];
    int zero = open("/dev/zero", O_RDONLY), null = open("/dev/null", O_WRONLY), ends[2];
    CHECK(zero >= 0 && null >= 0 && pipe(ends) == 0);
    char *fresh = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(fresh != MAP_FAILED);
    for (int i = 0; i < 50; i++) {
        CHECK(PRESERVED(SYS_getpid, 0, 0, 0) == getpid());
        CHECK(PRESERVED(SYS_write, null, &byte, 1) == 1);
        CHECK(PRESERVED(SYS_read, zero, &byte, 1) == 1);
        // Into pages that are not there yet: the copy faults.
        CHECK(PRESERVED(SYS_read, zero, fresh + i * 16384, 8192) == 8192);
        CHECK(PRESERVED(SYS_read, zero, 8, 1) == -EFAULT);
        CHECK(PRESERVED(SYS_write, -1, &byte, 1) == -EBADF);
        CHECK(PRESERVED(100000, 0, 0, 0) == -ENOSYS);
        CHECK(PRESERVED(SYS_getcwd, path, sizeof path, 0) > 0);
        CHECK(PRESERVED(SYS_getrandom, fresh, 300, 0) == 300);
        int fd = (int)PRESERVED(SYS_open, "/proc/self/status", O_RDONLY, 0);
        CHECK(fd >= 0 && PRESERVED(SYS_read, fd, fresh, 4096) > 0 && PRESERVED(SYS_close, fd, 0, 0) == 0);
    }
    int gone;
    for (int i = 0; i < 20; i++)
        clone_keeps_registers(CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
                                  CLONE_CHILD_CLEARTID,
                              &gone);
    // Waits, with another thread on the processor meanwhile.
    pthread_t other;
    CHECK(pthread_create(&other, NULL, noise, &ends[1]) == 0);
    struct timespec tick = {.tv_nsec = 300000};
    for (int i = 0; i < 300; i++) {
        CHECK(PRESERVED(SYS_read, ends[0], &byte, 1) == 1);
        CHECK(PRESERVED(SYS_sched_yield, 0, 0, 0) == 0);
        if (i % 10 == 0)
            CHECK(PRESERVED(SYS_nanosleep, &tick, 0, 0) == 0);
    }
    // Signals: sent by the call itself, and while it waits.
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0 && sigaction(SIGALRM, &action, NULL) == 0);
    for (int i = 0; i < 50; i++)
        CHECK(PRESERVED(SYS_kill, getpid(), SIGUSR1, 0) == 0);
    struct itimerval often = {.it_interval.tv_usec = 500, .it_value.tv_usec = 500};
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
    int before = handled;
    for (int i = 0; i < 500 || handled < before + 20; i++) {
        CHECK(PRESERVED(SYS_read, ends[0], &byte, 1) == 1);
        CHECK(PRESERVED(SYS_write, null, &byte, 1) == 1);
    }
    stop = 1;
    // It may be waiting for room in the pipe.
    CHECK(fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0);
    while (read(ends[0], fresh, 65536) > 0)
        ;
    CHECK(pthread_join(other, NULL) == 0);
    calls_are_made_with_flag(ALIGNMENT);
    calls_are_made_with_flag(DIRECTION);
    calls_are_made_with_flag(NESTED);
    action.sa_handler = traced;
    CHECK(sigaction(SIGTRAP, &action, NULL) == 0);
    calls_are_made_with_flag(TRAP);
    printf("all register tests passed\n");
    return 0;
}
