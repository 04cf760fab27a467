// SPDX-License-Identifier: Apache-2.0 OR MIT
// Mounts are made, bound, moved, shared and taken away by several processes at once, in namespaces that end meanwhile, on directories that are renamed and
// removed: the machine goes on. usage: hostile_mounts [seconds] [seed]. On Linux: in a mount namespace of its own.
#define _GNU_SOURCE
#include "check.h"
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WORKERS = 4, NAMES = 6 };

static uint64_t state;

static unsigned below(unsigned n) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (state * 0x2545f4914f6cdd1dULL >> 33) % n;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

// A place at most three directories below the ground of this test.
static char *place(char *at) {
    static const char names[NAMES] = "abcdef";
    char *end = stpcpy(at, "/tmp/ground");
    for (unsigned depth = below(4); depth > 0; depth--)
        *end++ = '/', *end++ = names[below(NAMES)];
    *end = 0;
    return at;
}

static void looks(const char *path) {
    char bytes[8192], name[64];
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        while (syscall(SYS_getdents64, fd, bytes, sizeof bytes) > 0)
            ;
        snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
        if (readlink(name, bytes, sizeof bytes) < 0)
            bytes[0] = 0;
        close(fd);
    }
}

static void one_step(pid_t *others) {
    static const unsigned long kinds[] = {MS_SHARED, MS_SLAVE, MS_PRIVATE, MS_UNBINDABLE};
    char a[64], b[64], bytes[4096];
    int fd;
    place(a), place(b);
    switch (below(20)) {
    case 0: case 1:
        mount("none", a, "tmpfs", 0, "size=64k");
        break;
    case 2: case 3:
        mount(a, b, NULL, MS_BIND | (below(2) ? MS_REC : 0), NULL);
        break;
    case 4: case 5: case 6:
        mount(a, b, NULL, MS_MOVE, NULL);
        break;
    case 7: case 8:
        umount2(a, below(2) ? MNT_DETACH : 0);
        break;
    case 9:
        mount(NULL, a, NULL, kinds[below(4)] | (below(2) ? MS_REC : 0), NULL);
        break;
    case 10: case 11:
        mkdir(a, 0700);
        break;
    case 12:
        rmdir(a);
        break;
    case 13:
        rename(a, b);
        break;
    case 14:
        if (chdir(a) == 0)
            looks("../.."), syscall(SYS_getcwd, bytes, sizeof bytes);
        break;
    case 15:
        fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
        while (read(fd, bytes, sizeof bytes) > 0)
            ;
        close(fd);
        break;
    case 16:
        unshare(CLONE_NEWNS);
        break;
    case 17:
        snprintf(bytes, sizeof bytes, "/proc/%d/ns/mnt", others[below(WORKERS)]);
        if ((fd = open(bytes, O_RDONLY | O_CLOEXEC)) >= 0) {
            setns(fd, CLONE_NEWNS);
            close(fd);
        }
        break;
    case 18:
        if (below(8) == 0 && chdir(a) == 0)
            syscall(SYS_pivot_root, ".", b);
        break;
    default:
        looks(a);
    }
}

// Two mounts go below each other at once: neither may vanish in a circle that no path leads to.
static void circles(unsigned rounds) {
    CHECK(mkdir("/tmp/circle", 0700) == 0 && mount("none", "/tmp/circle", "tmpfs", 0, NULL) == 0);
    CHECK(mount(NULL, "/tmp/circle", NULL, MS_PRIVATE, NULL) == 0);
    CHECK(mkdir("/tmp/circle/a", 0700) == 0 && mkdir("/tmp/circle/b", 0700) == 0);
    volatile int *turn = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(turn != MAP_FAILED);
    for (unsigned i = 0; i < rounds; i++) {
        CHECK(mount("a", "/tmp/circle/a", "tmpfs", 0, "size=64k") == 0 && mount("b", "/tmp/circle/b", "tmpfs", 0, "size=64k") == 0);
        CHECK(mkdir("/tmp/circle/a/in", 0700) == 0 && mkdir("/tmp/circle/b/in", 0700) == 0);
        *turn = 0;
        pid_t child = fork();
        CHECK(child >= 0);
        __atomic_fetch_add(turn, 1, __ATOMIC_SEQ_CST);
        for (unsigned spin = 0; *turn < 2 && spin < 1000000; spin++)
            if (spin % 1000 == 999)
                sched_yield();
        int moved = child == 0 ? mount("/tmp/circle/a", "/tmp/circle/b/in", NULL, MS_MOVE, NULL) == 0
                               : mount("/tmp/circle/b", "/tmp/circle/a/in", NULL, MS_MOVE, NULL) == 0;
        if (child == 0)
            _exit(moved);
        int status;
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
        CHECK(moved + WEXITSTATUS(status) == 1);
        CHECK(umount2(moved ? "/tmp/circle/a/in" : "/tmp/circle/b/in", 0) == 0);
        CHECK(umount2(moved ? "/tmp/circle/a" : "/tmp/circle/b", 0) == 0);
    }
    CHECK(umount2("/tmp/circle", 0) == 0 && rmdir("/tmp/circle") == 0);
}

// Directories in each other, deeper than any stack of the kernel: they go with their file system.
static void deep(void) {
    CHECK(mkdir("/tmp/deep", 0700) == 0 && mount("none", "/tmp/deep", "tmpfs", 0, NULL) == 0 && chdir("/tmp/deep") == 0);
    for (int i = 0; i < 8000; i++)
        CHECK(mkdir("d", 0700) == 0 && chdir("d") == 0);
    int fd = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(fd >= 0 && chdir("/") == 0 && umount2("/tmp/deep", 0) == -1 && errno == EBUSY);
    CHECK(umount2("/tmp/deep", MNT_DETACH) == 0 && close(fd) == 0 && rmdir("/tmp/deep") == 0);
}

static pid_t start(pid_t *others, uint64_t seed) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        state = seed * 0x9e3779b97f4a7c15ULL | 1;
        if (below(2))
            unshare(CLONE_NEWNS);
        for (unsigned left = 1 + below(400); left > 0; left--)
            one_step(others);
        _exit(0);
    }
    return child;
}

// In a namespace of its own: some of them take another root for all that are in it.
static int storm(double end, uint64_t seed) {
    CHECK(unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    CHECK(mkdir("/tmp/ground", 0700) == 0 && mount("none", "/tmp/ground", "tmpfs", 0, NULL) == 0);
    pid_t *others = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(others != MAP_FAILED);
    for (int i = 0; i < WORKERS; i++)
        others[i] = start(others, seed++);
    int ended = 0;
    for (int running = WORKERS; running > 0;) {
        int status;
        pid_t child = wait(&status);
        CHECK(child > 0 && status == 0);
        ended++, running--;
        for (int i = 0; i < WORKERS; i++)
            if (others[i] == child && now() < end)
                others[i] = start(others, seed++), running++;
    }
    return ended;
}

int main(int argc, char **argv) {
    double end = now() + (argc > 1 ? atof(argv[1]) : 5);
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
    mkdir("/tmp", 0777);
    CHECK(unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    deep();
    circles(300);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        _exit(storm(end, seed) < WORKERS);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(mkdir("/tmp/after", 0700) == 0 && mount("none", "/tmp/after", "tmpfs", 0, NULL) == 0 && umount2("/tmp/after", 0) == 0);
    CHECK(rmdir("/tmp/after") == 0);
    puts("hostile mounts: ok");
    return 0;
}
