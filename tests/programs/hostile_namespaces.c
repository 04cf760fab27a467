// SPDX-License-Identifier: Apache-2.0 OR MIT
// Namespaces of all kinds are made, entered, kept by descriptors and mounts, and left by several processes and threads at once, while these are traced, exec
// and end: the machine goes on, and nothing of it stays. usage: hostile_namespaces [seconds] [seed]. On Linux: as root.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WORKERS = 4, KINDS = 7, KEPT = 8, DEPTH = 3 };

static const int flags[KINDS] = {CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWNET, CLONE_NEWCGROUP};
static const char *const names[] = {"mnt", "user", "pid", "uts", "ipc", "net", "cgroup", "pid_for_children"};
static _Thread_local uint64_t state;
static pid_t *others;
static char *own_path;

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

static void put(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        if (write(fd, text, strlen(text)) < 0)
            errno = 0;
        close(fd);
    }
}

static int some_flags(void) {
    int chosen = 0;
    for (unsigned n = 1 + below(3); n > 0; n--)
        chosen |= flags[below(KINDS)];
    return chosen;
}

static pid_t somebody(void) {
    return below(3) ? others[below(WORKERS)] : getpid();
}

static void work(unsigned steps, int depth);

static void *thread(void *argument) {
    state = (uint64_t)(uintptr_t)argument * 0x9e3779b97f4a7c15ULL | 1;
    work(1 + below(20), DEPTH);
    return NULL;
}

static void trace(pid_t whom) {
    if (ptrace(below(2) ? PTRACE_SEIZE : PTRACE_ATTACH, whom, 0, 0) != 0)
        return;
    for (int i = 0; i < 4; i++) {
        int status;
        waitpid(whom, &status, WNOHANG | __WALL);
        ptrace(below(2) ? PTRACE_INTERRUPT : PTRACE_CONT, whom, 0, 0);
    }
    if (below(2))
        ptrace(PTRACE_DETACH, whom, 0, 0);
}

static void work(unsigned steps, int depth) {
    int kept[KEPT];
    char path[128], bytes[512];
    memset(kept, -1, sizeof kept);
    for (; steps > 0; steps--) {
        int *at = &kept[below(KEPT)], fd;
        switch (below(16)) {
        case 0: case 1:
            unshare(some_flags() | (below(4) ? 0 : CLONE_FS | CLONE_FILES));
            break;
        case 2: case 3:
            snprintf(path, sizeof path, "/proc/%d/ns/%s", somebody(), names[below(8)]);
            if (*at >= 0)
                close(*at);
            *at = open(path, O_RDONLY | O_CLOEXEC);
            break;
        case 4: case 5:
            setns(*at, below(2) ? 0 : flags[below(KINDS)]);
            break;
        case 6:
            if ((fd = syscall(SYS_pidfd_open, somebody(), 0)) >= 0) {
                setns(fd, some_flags());
                close(fd);
            }
            break;
        case 7:
            if ((fd = ioctl(*at, 0xb701 + below(2))) >= 0)
                close(fd);
            break;
        case 8:
            snprintf(path, sizeof path, "/proc/self/fd/%d", *at);
            snprintf(bytes, sizeof bytes, "/tmp/spaces/%u", below(4));
            if (below(2))
                mount(path, bytes, NULL, MS_BIND, NULL);
            else
                umount2(bytes, MNT_DETACH);
            break;
        case 9:
            put("/proc/self/setgroups", "deny");
            put("/proc/self/uid_map", "0 0 1");
            put("/proc/self/gid_map", "0 0 1");
            break;
        case 10: case 11:
            if (depth < DEPTH) {
                pid_t child = syscall(SYS_clone, (below(2) ? some_flags() : 0) | SIGCHLD, 0, 0, 0, 0);
                if (child == 0) {
                    state += depth + 1;
                    if (below(4) == 0)
                        prctl(PR_SET_CHILD_SUBREAPER, 1);
                    work(below(20), depth + 1);
                    if (below(4) == 0)
                        execl(own_path, own_path, "nothing", (char *)0);
                    _exit(0);
                }
                if (child > 0 && below(3) == 0)
                    kill(child, SIGKILL);
                if (child > 0 && below(2))
                    waitpid(child, NULL, 0);
            }
            break;
        case 12:
            if (depth < DEPTH) {
                pthread_t one;
                if (pthread_create(&one, NULL, thread, (void *)(uintptr_t)(below(1 << 30) + 1)) == 0)
                    pthread_detach(one);
            }
            break;
        case 13:
            trace(somebody());
            break;
        case 14:
            snprintf(path, sizeof path, "/proc/%d/%s", somebody(), below(2) ? "status" : "mountinfo");
            if ((fd = open(path, O_RDONLY | O_CLOEXEC)) >= 0) {
                while (read(fd, bytes, sizeof bytes) > 0)
                    ;
                close(fd);
            }
            break;
        default:
            if ((fd = socket(below(2) ? AF_INET : AF_NETLINK, below(2) ? SOCK_DGRAM : SOCK_RAW, 0)) >= 0)
                close(fd);
            mount("proc", "/tmp/spaces/proc", "proc", 0, NULL);
        }
    }
    for (int i = 0; i < KEPT; i++)
        if (kept[i] >= 0)
            close(kept[i]);
}

static pid_t start(uint64_t seed) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        // What it starts is to be in its group, and ends with that.
        setpgid(0, 0);
        state = seed * 0x9e3779b97f4a7c15ULL | 1;
        work(1 + below(150), 0);
        _exit(0);
    }
    // Here, for another one may have stopped the child already.
    CHECK(setpgid(child, child) == 0);
    return child;
}

// The namespaces of which all are that are left when everybody has ended.
static long memory_available(void) {
    char line[128];
    long kilobytes = -1;
    FILE *file = fopen("/proc/meminfo", "r");
    CHECK(file);
    while (fgets(line, sizeof line, file))
        sscanf(line, "MemAvailable: %ld", &kilobytes);
    fclose(file);
    return kilobytes;
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "nothing") == 0)
        return 0;
    own_path = argv[0];
    double end = now() + (argc > 1 ? atof(argv[1]) : 5);
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
    // What is left behind by those who end comes to this process.
    CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    mkdir("/tmp", 0777);
    CHECK(unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    CHECK(mkdir("/tmp/spaces", 0700) == 0 && mount("none", "/tmp/spaces", "tmpfs", 0, NULL) == 0);
    CHECK(mkdir("/tmp/spaces/proc", 0700) == 0);
    for (int i = 0; i < 4; i++) {
        char path[32];
        snprintf(path, sizeof path, "/tmp/spaces/%d", i);
        close(open(path, O_CREAT | O_RDWR, 0600));
    }
    others = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(others != MAP_FAILED);
    long before = memory_available();
    double began[WORKERS];
    for (int i = 0; i < WORKERS; i++)
        others[i] = start(seed++), began[i] = now();
    for (;;) {
        pid_t child = waitpid(-1, NULL, __WALL | WNOHANG);
        if (child < 0)
            break;
        for (int i = 0; i < WORKERS; i++) {
            // Whoever waits or is stopped by a tracer has had its time.
            if (others[i] > 0 && (others[i] == child || now() > began[i] + 0.3)) {
                kill(-others[i], SIGKILL);
                others[i] = now() < end ? start(seed++) : 0;
                began[i] = now();
            }
        }
        if (child == 0)
            usleep(2000);
    }
    CHECK(errno == ECHILD);
    umount2("/tmp/spaces", MNT_DETACH);
    CHECK(rmdir("/tmp/spaces") == 0);
    for (int i = 0; i < KINDS; i++) {
        pid_t child = syscall(SYS_clone, flags[i] | SIGCHLD, 0, 0, 0, 0);
        if (child == 0)
            _exit(3);
        int status;
        CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 3);
    }
    printf("hostile namespaces: ok, %ld kB less than before\n", before - memory_available());
    return 0;
}
