// SPDX-License-Identifier: Apache-2.0 OR MIT
// Restartable sequences: what registers them, which processor they name, and that a sequence which something came between goes on
// at its abort address. The C library's own area is taken out first.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/membarrier.h>
#include <linux/rseq.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define FAILS(call, error) CHECK((errno = 0, (call) == -1) && errno == (error))
#define SIGNATURE 0x53053053u
#define AREA 32

// glibc 2.35 and later have them; other C libraries register none.
extern __attribute__((weak)) const ptrdiff_t __rseq_offset;
extern __attribute__((weak)) const unsigned __rseq_size;

// As Linux 6.1 has it, whatever the headers know.
struct area {
    uint32_t cpu_id_start, cpu_id;
    uint64_t sequence;
    uint32_t flags, rest[3];
} __attribute__((aligned(32)));

struct sequence {
    uint32_t version, flags;
    uint64_t start, length, abort;
};

static __thread struct area area;

static long rseq(void *where, unsigned length, int flags, unsigned signature)
{
    return syscall(SYS_rseq, where, length, flags, signature);
}

// Loops in a sequence until something comes between: true once it went on at the abort address. `*in` is set inside.
static int loops(struct area *own, volatile int *in)
{
    int aborted;
    __asm__ volatile(
        ".pushsection __rseq_here, \"aw\"\n"
        ".balign 32\n"
        "3: .long 0, 0\n"
        ".quad 1f, 2f - 1f, 4f\n"
        ".popsection\n"
        "leaq 3b(%%rip), %%rax\n"
        "movq %%rax, 8(%[own])\n"
        "1: movl $1, (%[in])\n"
        "5: pause\n"
        "jmp 5b\n"
        "2: ud2\n"
        ".byte 0x0f, 0xb9, 0x3d\n"
        ".long 0x53053053\n"
        "4: movl $1, %[aborted]\n"
        : [aborted] "=&r"(aborted)
        : [own] "r"(own), [in] "r"(in)
        : "rax", "memory", "cc");
    return aborted;
}

static void errors(void)
{
    static struct area other;
    FAILS(rseq(&area, AREA, 2, SIGNATURE), EINVAL);
    FAILS(rseq(&area, AREA - 1, 0, SIGNATURE), EINVAL);
    FAILS(rseq((char *)&area + 8, AREA, 0, SIGNATURE), EINVAL);
    FAILS(rseq((void *)0xffff800000000000ul, AREA, 0, SIGNATURE), EFAULT);
    FAILS(rseq(&area, AREA, RSEQ_FLAG_UNREGISTER, SIGNATURE), EINVAL);
    area.cpu_id = area.cpu_id_start = 77;
    CHECK(rseq(&area, AREA, 0, SIGNATURE) == 0);
    CHECK(area.cpu_id == area.cpu_id_start && area.cpu_id == (unsigned)sched_getcpu());
    FAILS(rseq(&area, AREA, 0, SIGNATURE), EBUSY);
    FAILS(rseq(&area, AREA, 0, SIGNATURE + 1), EPERM);
    FAILS(rseq(&other, AREA, 0, SIGNATURE), EINVAL);
    FAILS(rseq(&area, AREA, RSEQ_FLAG_UNREGISTER | 2, SIGNATURE), EINVAL);
    FAILS(rseq(&other, AREA, RSEQ_FLAG_UNREGISTER, SIGNATURE), EINVAL);
    FAILS(rseq(&area, AREA, RSEQ_FLAG_UNREGISTER, SIGNATURE + 1), EPERM);
    CHECK(rseq(&area, AREA, RSEQ_FLAG_UNREGISTER, SIGNATURE) == 0);
    CHECK(area.cpu_id == (unsigned)RSEQ_CPU_ID_UNINITIALIZED && area.cpu_id_start == 0);
}

static volatile uint64_t seen_sequence;
static volatile int handled;

static void note(int signal)
{
    (void)signal;
    seen_sequence = area.sequence;
    handled++;
}

static void a_signal_aborts(void)
{
    int in = 0;
    struct itimerval soon = {.it_value = {.tv_usec = 20000}};
    signal(SIGALRM, note);
    CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
    // Something else may come first; the handler runs when the sequence was left.
    while (!handled)
        CHECK(loops(&area, &in) == 1 && in == 1);
    CHECK(handled == 1 && seen_sequence == 0 && area.sequence == 0);
}

static volatile int other_runs = 1;

static void *runs(void *unused)
{
    while (other_runs)
        ;
    return unused;
}

// Two threads on one processor: one of them has to be taken off it.
static void preemption_aborts(void)
{
    cpu_set_t set, before;
    pthread_t thread;
    int in = 0;
    CHECK(sched_getaffinity(0, sizeof before, &before) == 0);
    CPU_ZERO(&set);
    CPU_SET(sched_getcpu(), &set);
    CHECK(sched_setaffinity(0, sizeof set, &set) == 0);
    CHECK(pthread_create(&thread, NULL, runs, NULL) == 0);
    CHECK(loops(&area, &in) == 1 && area.sequence == 0);
    other_runs = 0;
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(sched_setaffinity(0, sizeof before, &before) == 0);
}

// A sequence that the thread has left is forgotten, and nothing else happens.
static void a_sequence_that_was_left(void)
{
    static struct sequence old __attribute__((aligned(32)));
    uint32_t *place = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(place != MAP_FAILED);
    place[0] = SIGNATURE;
    old = (struct sequence){.start = 0x10000, .length = 16, .abort = (uint64_t)(place + 1)};
    area.sequence = (uint64_t)&old;
    CHECK(raise(SIGALRM) == 0 && seen_sequence == 0 && area.sequence == 0);
    CHECK(munmap(place, 4096) == 0);
}

// What makes no sense ends the program, wherever it is.
static void ends(struct sequence bad, uint64_t pointer, int flags)
{
    int status;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        static struct sequence copy __attribute__((aligned(32)));
        // The registration came along.
        FAILS(rseq(&area, AREA, 0, SIGNATURE), EBUSY);
        copy = bad;
        area.flags = (uint32_t)flags;
        area.sequence = pointer ? pointer : (uint64_t)&copy;
        raise(SIGALRM);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

static void nonsense(void)
{
    static uint32_t place[2] = {SIGNATURE, 0};
    struct sequence good = {.start = 0x10000, .length = 16, .abort = (uint64_t)(place + 1)}, bad;
    ends(good, 0xffff800000000000ul, 0);
    ends(good, 8, 0);
    bad = good, bad.version = 1, ends(bad, 0, 0);
    bad = good, bad.length = -16ul, ends(bad, 0, 0);
    bad = good, bad.abort = bad.start + 4, ends(bad, 0, 0);
    bad = good, bad.abort += 4, ends(bad, 0, 0);
    bad = good, bad.start = 0xffff800000000000ul, ends(bad, 0, 0);
}

static void *has_none(void *unused)
{
    (void)unused;
    // The C library registers nothing for a thread whose maker has nothing registered with it.
    CHECK(rseq(&area, AREA, 0, SIGNATURE) == 0);
    CHECK(area.cpu_id == area.cpu_id_start && (int)area.cpu_id >= 0);
    return NULL;
}

static void other_threads(void)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, has_none, NULL) == 0 && pthread_join(thread, NULL) == 0);
}

static volatile int inside;
static volatile int is_out;

static void *loops_elsewhere(void *unused)
{
    has_none(NULL);
    CHECK(loops(&area, &inside) == 1);
    is_out = 1;
    return unused;
}

static long barrier(int command, unsigned flags, int cpu)
{
    return syscall(SYS_membarrier, command, flags, cpu);
}

static void barriers(void)
{
    pthread_t thread;
    long known = barrier(MEMBARRIER_CMD_QUERY, 0, 0);
    CHECK(known > 0 && known & MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ);
    CHECK(known & MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ);
    FAILS(barrier(MEMBARRIER_CMD_QUERY, MEMBARRIER_CMD_FLAG_CPU, 0), EINVAL);
    FAILS(barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ, 2, 0), EINVAL);
    FAILS(barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ, 0, 0), EPERM);
    CHECK(barrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ, 0, 0) == 0);
    CHECK(barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ, 0, 0) == 0);
    CHECK(barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ, MEMBARRIER_CMD_FLAG_CPU, 100000) == 0);
    // Whether the thread has a processor of its own or not, it does not stay in its sequence.
    CHECK(pthread_create(&thread, NULL, loops_elsewhere, NULL) == 0);
    while (!inside)
        sched_yield();
    CHECK(barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ, 0, 0) == 0);
    CHECK(pthread_join(thread, NULL) == 0 && is_out);
}

int main(int count, char **words)
{
    // Another program begins without.
    if (count > 1) {
        printf("restartable sequences work\n");
        return 0;
    }
    if (&__rseq_size && __rseq_size) {
        struct area *own = (void *)((char *)__builtin_thread_pointer() + __rseq_offset);
        CHECK(own->cpu_id == own->cpu_id_start && (int)own->cpu_id >= 0);
        CHECK(rseq(own, AREA, RSEQ_FLAG_UNREGISTER, SIGNATURE) == 0);
    }
    errors();
    CHECK(rseq(&area, AREA, 0, SIGNATURE) == 0);
    a_signal_aborts();
    preemption_aborts();
    a_sequence_that_was_left();
    nonsense();
    other_threads();
    barriers();
    char *again[] = {words[0], "again", NULL};
    execv("/proc/self/exe", again);
    CHECK(!"execv");
}
