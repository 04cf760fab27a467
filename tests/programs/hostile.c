// SPDX-License-Identifier: Apache-2.0 OR MIT
// System calls with hostile arguments, from several threads: none may end the kernel. usage: hostile [calls] [seed]
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { POOL = 1 << 16, ARENA = 1 << 22, WORKERS = 2, GENERATION = 1000, STACK = 1 << 16 };

static char *pool, *arena;
static int trace = -1;
static _Atomic long calls_left;
static _Atomic int running;
static _Atomic long beats[WORKERS];
static _Atomic int threads[WORKERS];

struct rng {
    uint64_t state;
};

static uint64_t next(struct rng *r) {
    r->state ^= r->state << 13;
    r->state ^= r->state >> 7;
    r->state ^= r->state << 17;
    return r->state * 0x2545f4914f6cdd1dULL;
}

static uint64_t below(struct rng *r, uint64_t n) { return next(r) % n; }

// Calls that end the program or this test by what they are for.
static int is_excluded(int number) {
    static const int excluded[] = {
        SYS_exit,          SYS_exit_group,      SYS_rt_sigreturn, SYS_arch_prctl,    SYS_reboot,    SYS_fork,
        SYS_vfork,         SYS_clone,           SYS_clone3,       SYS_pause,         SYS_setrlimit, SYS_prlimit64,
        SYS_vhangup,       SYS_rt_sigprocmask,  SYS_brk,          SYS_process_vm_writev, SYS_shmat, SYS_mlockall,
        SYS_clock_settime, SYS_settimeofday,    SYS_remap_file_pages, SYS_setgroups,
    };
    for (unsigned i = 0; i < sizeof excluded / sizeof *excluded; i++)
        if (excluded[i] == number)
            return 1;
    return 0;
}

static uint64_t number_of_interest(struct rng *r) {
    static const uint64_t interesting[] = {
        0,          1,          2,           3,          4,          7,          8,           16,
        31,         32,         63,          64,         65,         127,        128,         255,
        256,        511,        512,         1023,       1024,       4095,       4096,        4097,
        8192,       65535,      65536,       1 << 20,    0x7ffff000, 0x7fffffff, 0x80000000u, 0xfffff000u,
        0xffffffff, 1ULL << 32, 1ULL << 40,  1ULL << 47, 1ULL << 62, 1ULL << 63, ~0ULL,       ~0ULL - 1,
        -4096ULL,   -4095ULL,   -100ULL,     0x541b,     0x5421,     0x5401,     0x8912,      0x5413,
        0x1000,     0x0800,     0x40000,     0x80000,    0x200000,   0x400000,   02000000,    0100,
    };
    switch (below(r, 4)) {
    case 0:
        return below(r, 40);
    case 1:
        return 1ULL << below(r, 64);
    case 2:
        return interesting[below(r, sizeof interesting / sizeof *interesting)];
    default:
        return next(r) >> below(r, 64);
    }
}

static uint64_t pointer(struct rng *r) {
    switch (below(r, 16)) {
    case 0:
        return 0;
    case 1:
        return 0xffff800000000000ULL + below(r, 1 << 30);
    case 2:
        return 0xffffffff80200000ULL + below(r, 1 << 22);
    case 3:
        return 0x00007ffffffff000ULL - below(r, 64);
    case 4:
        return 0x0000800000000000ULL - below(r, 64) + below(r, 64);
    case 5:
        return ~0ULL - below(r, 64);
    case 6:
        return next(r);
    case 7: // the end of what is mapped, with less behind it than the call wants
        return (uint64_t)pool + POOL - below(r, 64);
    case 8: // read only
        return (uint64_t)arena + ARENA + below(r, 4096);
    default:
        return (uint64_t)pool + (below(r, POOL - 8192) & (below(r, 4) ? ~7ULL : ~0ULL));
    }
}

static void fill(struct rng *r) {
    static const char *names[] = { "/tmp/a", "/tmp/b", "/tmp/d", "/tmp/d/../a", "/proc/self/maps", "/proc/self/fd/5", "/dev/zero", "/dev/null", "/tmp", ".", "", "/nowhere/x", "/proc/self/status", "/sys" };
    uint64_t *words = (uint64_t *)(pool + (below(r, POOL - 1024) & ~7ULL));
    switch (below(r, 4)) {
    case 0:
        for (int i = 0; i < 64; i++)
            words[i] = number_of_interest(r);
        break;
    case 1: // vectors of pointers and lengths
        for (int i = 0; i < 64; i += 2) {
            words[i] = pointer(r);
            words[i + 1] = number_of_interest(r);
        }
        break;
    case 2:
        for (int i = 0; i < 128; i++)
            ((uint32_t *)words)[i] = (uint32_t)number_of_interest(r);
        break;
    default:
        strcpy((char *)words, names[below(r, sizeof names / sizeof *names)]);
    }
}

static uint64_t argument(struct rng *r) {
    switch (below(r, 5)) {
    case 0:
    case 1:
        return pointer(r);
    case 2:
        return 3 + below(r, 40);
    default:
        return number_of_interest(r);
    }
}

// Keeps what the test itself stands on: its memory, its descriptors below 3, its signals.
static void tame(struct rng *r, int number, uint64_t *a) {
    uint64_t offset = below(r, ARENA) & ~4095ULL;
    switch (number) {
    case SYS_mmap:
        if (a[1] < 1ULL << 40)
            a[1] &= (1 << 20) - 1;
        a[3] &= below(r, 2) ? 0x22 | (a[3] & 3) : ~0x10ULL & ~0x100000ULL;
        if (below(r, 4) == 0) {
            a[0] = (uint64_t)arena + offset;
            a[1] = below(r, ARENA - offset) + 1;
            a[3] |= 0x10;
        }
        break;
    case SYS_munmap:
    case SYS_mprotect:
    case SYS_pkey_mprotect:
    case SYS_madvise:
    case SYS_mremap:
    case SYS_mbind:
    case SYS_mlock:
    case SYS_mlock2:
    case SYS_msync:
    case SYS_munlock:
    case SYS_mincore:
        if (below(r, 4) || a[0] < 0x800000000000ULL) {
            a[0] = (uint64_t)arena + offset;
            a[1] = below(r, 4) ? below(r, ARENA - offset) + 1 : 1ULL << (47 + below(r, 17));
        }
        if (number == SYS_mremap) {
            a[2] = below(r, 4) ? below(r, 1 << 20) : 1ULL << (47 + below(r, 17));
            a[4] = (uint64_t)arena + (below(r, ARENA - (1 << 20)) & ~4095ULL);
        }
        if (number == SYS_mincore)
            a[2] = (uint64_t)pool;
        break;
    case 462: // mseal
        a[0] |= 1ULL << 63;
        break;
    case SYS_close:
        a[0] = 3 + below(r, 40);
        break;
    case SYS_dup2:
    case SYS_dup3:
        a[1] = below(r, 8) ? 3 + below(r, 40) : a[1] | 64;
        break;
    case SYS_close_range:
        a[0] = 3 + below(r, 60);
        a[1] &= 63;
        break;
    case SYS_rt_sigaction:
        a[0] = 50 + below(r, 20);
        break;
    case SYS_kill:
    case SYS_tkill:
        a[1] = below(r, 2) ? 0 : 65 + below(r, 100);
        break;
    case SYS_tgkill:
    case SYS_rt_sigqueueinfo:
    case SYS_pidfd_send_signal:
        a[number == SYS_tgkill ? 2 : 1] = below(r, 2) ? 0 : 65 + below(r, 100);
        break;
    case SYS_rt_tgsigqueueinfo:
        a[2] = below(r, 2) ? 0 : 65 + below(r, 100);
        break;
    case SYS_setuid: case SYS_setgid: case SYS_setreuid: case SYS_setregid: case SYS_setresuid: case SYS_setresgid:
    case SYS_capset: case SYS_chroot: case SYS_unshare: case SYS_seccomp: case SYS_setfsuid: case SYS_umount2:
    case SYS_pivot_root: case SYS_mount: case SYS_move_mount:
        // Rarely, or the rest runs without privileges.
        if (below(r, 20))
            a[0] = pointer(r) | 1ULL << 63;
        break;
    case SYS_prctl:
        if (a[0] == 1 || a[0] == 22) // PR_SET_PDEATHSIG, PR_SET_SECCOMP
            a[0] = 3;
        break;
    case SYS_memfd_create: case SYS_fallocate:
        if (a[3] < 1ULL << 34)
            a[3] &= (1 << 20) - 1;
        if (a[2] < 1ULL << 34)
            a[2] &= (1 << 20) - 1;
        break;
    case SYS_shmget:
        a[1] &= 0xfffff;
        break;
    case SYS_execve: case SYS_execveat:
        // Nothing that exists.
        a[number == SYS_execveat ? 1 : 0] = pointer(r) | 1ULL << 63;
        if (number == SYS_execveat)
            a[4] &= ~0x1000ULL;
        break;
    }
}

static void prepare(struct rng *r) {
    int fds[2], at[40], n = 0;
    at[n++] = open("/tmp/a", O_CREAT | O_RDWR, 0644);
    at[n++] = open("/tmp", O_RDONLY | O_DIRECTORY);
    at[n++] = open("/tmp", O_TMPFILE | O_RDWR, 0600);
    at[n++] = open("/dev/zero", O_RDWR);
    at[n++] = open("/proc/self/status", O_RDONLY);
    at[n++] = eventfd(0, EFD_NONBLOCK);
    at[n++] = epoll_create1(0);
    at[n++] = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    at[n++] = memfd_create("m", MFD_ALLOW_SEALING);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 5);
    at[n++] = signalfd(-1, &set, SFD_NONBLOCK);
    if (pipe2(fds, O_NONBLOCK) == 0)
        at[n++] = fds[0], at[n++] = fds[1];
    static const int kinds[][2] = { { AF_UNIX, SOCK_STREAM }, { AF_UNIX, SOCK_DGRAM }, { AF_UNIX, SOCK_SEQPACKET } };
    for (int i = 0; i < 3; i++)
        if (socketpair(kinds[i][0], kinds[i][1] | SOCK_NONBLOCK, 0, fds) == 0)
            at[n++] = fds[0], at[n++] = fds[1];
    at[n++] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    at[n++] = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    at[n++] = socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK, 0);
    at[n++] = socket(AF_INET6, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    at[n++] = socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK, 0);
    at[n++] = syscall(SYS_inotify_init1, O_NONBLOCK);
    at[n++] = syscall(SYS_pidfd_open, getpid(), 0);
    // Spread over the numbers that arguments name.
    for (int i = 0; i < n; i++)
        if (at[i] >= 0) {
            dup2(at[i], 3 + below(r, 40));
            if (at[i] > 42)
                close(at[i]);
        }
    mmap(arena, ARENA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

struct job {
    int slot;
    uint64_t seed;
};

static void *worker(void *argument_) {
    struct job job = *(struct job *)argument_;
    free(argument_);
    struct rng r = { job.seed * 0x9e3779b97f4a7c15ULL | 1 };
    atomic_store(&threads[job.slot], (int)syscall(SYS_gettid));
    prepare(&r);
    sigset_t none;
    sigemptyset(&none);
    for (int i = 0; i < GENERATION && atomic_fetch_sub(&calls_left, 1) > 0; i++) {
        int number = below(&r, 50) ? (int)below(&r, 463) : (int)next(&r);
        if (number > 334 && number < 424)
            number = SYS_close;
        uint64_t a[6];
        fill(&r);
        for (int k = 0; k < 6; k++)
            a[k] = argument(&r);
        if (is_excluded(number))
            continue;
        tame(&r, number, a);
        if (trace >= 0) {
            char line[200];
            int n = snprintf(line, sizeof line, "%d %d(%lx, %lx, %lx, %lx, %lx, %lx)\n", job.slot, number, a[0], a[1], a[2], a[3], a[4], a[5]);
            syscall(SYS_write, 2, line, n);
        }
        atomic_fetch_add(&beats[job.slot], 1);
        syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
        pthread_sigmask(SIG_SETMASK, &none, NULL);
    }
    atomic_store(&threads[job.slot], 0);
    atomic_fetch_sub(&running, 1);
    // The kernel walks the robust list and clears the word that set_tid_address named, wherever those lead.
    return NULL;
}

static void nothing(int signal) { (void)signal; }

static void start(int slot, uint64_t seed) {
    struct job *job = malloc(sizeof *job);
    CHECK(job);
    *job = (struct job){ slot, seed };
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    // In the heap: a mapping of its own could lie in a hole that a call made in the arena. Never reused, for nobody can
    // tell when the thread has left it.
    pthread_attr_setstack(&attributes, aligned_alloc(4096, STACK), STACK);
    atomic_store(&threads[slot], -1);
    atomic_fetch_add(&running, 1);
    if (pthread_create(&thread, &attributes, worker, job) != 0) {
        // Threads that hang for good hold their stacks.
        atomic_store(&threads[slot], 0);
        atomic_fetch_sub(&running, 1);
        free(job);
    }
}

int main(int argc, char **argv) {
    long calls = argc > 1 ? atol(argv[1]) : 20000;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
    mallopt(M_MMAP_MAX, 0);
    if (getenv("TRACE"))
        trace = 2;
    for (int signal = 1; signal <= 64; signal++) {
        struct sigaction action = { .sa_handler = nothing };
        if (signal != SIGSEGV && signal != SIGBUS && signal != SIGILL && signal != SIGFPE)
            sigaction(signal, &action, NULL);
    }
    pool = mmap(NULL, POOL + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    // Not a hole: a call could map something there, and others write on through it.
    CHECK(pool != MAP_FAILED && mprotect(pool + POOL, 4096, PROT_NONE) == 0);
    arena = mmap(NULL, ARENA + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(arena != MAP_FAILED && mprotect(arena + ARENA, 4096, PROT_READ) == 0);
    mkdir("/tmp", 0777), mkdir("/tmp/d", 0777);
    atomic_store(&calls_left, calls);
    long last[WORKERS] = { 0 };
    int stuck[WORKERS] = { 0 };
    for (int i = 0; i < WORKERS; i++)
        start(i, seed++);
    while (atomic_load(&calls_left) > 0) {
        struct timespec pause = { 0, 5000000 };
        syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &pause, NULL);
        for (int i = 0; i < WORKERS; i++) {
            int thread = atomic_load(&threads[i]);
            long beat = atomic_load(&beats[i]);
            if (thread == 0) {
                start(i, seed++);
            } else if (beat == last[i] && thread > 0) {
                // Waits for something: a signal ends that, unless it blocked them all; then another takes its place.
                syscall(SYS_tgkill, getpid(), thread, SIGUSR1);
                if (++stuck[i] > 40) {
                    stuck[i] = 0;
                    start(i, seed++);
                }
            } else {
                stuck[i] = 0;
            }
            last[i] = beat;
        }
    }
    // All is still there: memory, files, threads.
    char *fresh = malloc(1 << 20);
    CHECK(fresh);
    memset(fresh, 7, 1 << 20);
    dprintf(1, "all hostile calls answered\n");
    _exit(0);
}
