// SPDX-License-Identifier: Apache-2.0 OR MIT
// What a program says of itself: /proc/self/cmdline and environ when it writes over its arguments (setproctitle(3)), where its parts are
// in /proc/self/stat, and prctl(PR_SET_MM).
#define _GNU_SOURCE
#include "check.h"
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <linux/capability.h>
#include <linux/prctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define FAILS(call, error) CHECK((call) == -1 && errno == (error))

static size_t content(const char *path, char *to, size_t room) {
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0);
    size_t done = 0;
    ssize_t n;
    while ((n = read(fd, to + done, room - done)) > 0)
        done += n;
    CHECK(n == 0);
    CHECK(close(fd) == 0);
    return done;
}

static void line_is(const char *expected, size_t length) {
    static char found[1 << 16];
    size_t n = content("/proc/self/cmdline", found, sizeof found);
    if (n != length || memcmp(found, expected, n) != 0)
        printf("%zu bytes: %.*s\n", n, (int)n, found);
    CHECK(n == length && memcmp(found, expected, n) == 0);
}

// Fields 3 to 52 of proc_pid_stat(5), by their numbers.
static void fields(const char *path, uint64_t *to) {
    static char text[4096];
    size_t n = content(path, text, sizeof text - 1);
    text[n] = 0;
    char *at = strrchr(text, ')') + 2;
    to[3] = *at++;
    for (int i = 4; i <= 52; i++)
        to[i] = strtoull(at, &at, 10);
    CHECK(strcmp(at, "\n") == 0);
}

static int global = 5;

static void stat_tells_places(char **argv, char **envp) {
    uint64_t f[53];
    fields("/proc/self/stat", f);
    CHECK(f[3] == 'R' && f[35] == 0);
    uint64_t here = (uint64_t)(uintptr_t)stat_tells_places;
    CHECK(f[26] <= here && here < f[27]);
    // The stack pointer that it began with: at the count of its arguments.
    CHECK(*(long *)f[28] == 1 && ((char **)(f[28] + 8))[0] == argv[0]);
    uint64_t data = (uint64_t)(uintptr_t)&global;
    CHECK(f[45] <= data && data < f[46]);
    CHECK(f[47] <= (uint64_t)(uintptr_t)sbrk(0));
    CHECK(f[48] == (uint64_t)(uintptr_t)argv[0] && f[49] == f[48] + strlen(argv[0]) + 1);
    CHECK(f[50] == f[49] && f[50] == (uint64_t)(uintptr_t)envp[0]);
    CHECK(f[51] > f[50]);

    // Signals, as the lower half of their sets: pending, blocked, ignored, caught.
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
    CHECK(signal(SIGHUP, SIG_IGN) != SIG_ERR);
    CHECK(syscall(SYS_tgkill, getpid(), gettid(), SIGUSR1) == 0);
    fields("/proc/self/stat", f);
    CHECK(f[31] == 1u << (SIGUSR1 - 1));
    CHECK(f[32] == (1u << (SIGUSR1 - 1) | 1u << (SIGUSR2 - 1)));
    CHECK(f[33] & 1u << (SIGHUP - 1));
    fields("/proc/thread-self/stat", f);
    CHECK(f[31] == 1u << (SIGUSR1 - 1) && f[48] == (uint64_t)(uintptr_t)argv[0]);
    int parent = getpid();
    pid_t child = fork();
    if (child == 0) {
        // A child has its parent's places, and one that may not trace another process sees none of that.
        uint64_t own[53], other[53];
        char path[32];
        snprintf(path, sizeof path, "/proc/%d/stat", parent);
        fields("/proc/self/stat", own);
        fields(path, other);
        for (int i = 26; i <= 28; i++)
            CHECK(own[i] == other[i]);
        for (int i = 45; i <= 51; i++)
            CHECK(own[i] == other[i]);
        CHECK(other[35] == 1);
        CHECK(syscall(SYS_setresuid, 65534, 65534, 65534) == 0);
        fields(path, other);
        CHECK(other[26] == 1 && other[27] == 1 && other[28] == 0 && other[35] == 0);
        for (int i = 45; i <= 52; i++)
            CHECK(other[i] == 0);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void titles(char **argv, char **envp) {
    char *start = argv[0], *end = argv[0] + strlen(argv[0]) + 1;
    char *last = end;
    for (char **e = envp; *e; e++)
        last = *e + strlen(*e) + 1;
    size_t room = last - start;
    CHECK(room > 300 && room < 4096);
    char before[256];
    memcpy(before, start, end - start);
    line_is(before, end - start);
    // Shorter: all of the arguments' room, as it is.
    memset(start, 0, end - start);
    memcpy(start, "t", 2);
    char expected[4096] = "t";
    line_is(expected, end - start);
    // The last byte of the arguments is none of an end: to the first end in what follows.
    memset(start, 'x', 200);
    start[200] = 0;
    memset(expected, 'x', 200);
    line_is(expected, 201);
    memset(start, 'y', room);
    memset(expected, 'y', room);
    line_is(expected, room);
    // environ is what is there now.
    char found[4096];
    CHECK(content("/proc/self/environ", found, sizeof found) == (size_t)(last - end));
    CHECK(memcmp(found, expected, last - end) == 0);
}

struct map {
    uint64_t start_code, end_code, start_data, end_data, start_brk, brk, start_stack, arg_start, arg_end, env_start, env_end, auxv;
    uint32_t auxv_size, exe_fd;
};

static void a_program_says_it_itself(void) {
    unsigned size = 0;
    CHECK(prctl(PR_SET_MM, PR_SET_MM_MAP_SIZE, &size, 0, 0) == 0 && size == sizeof(struct map));
    FAILS(prctl(PR_SET_MM, PR_SET_MM_MAP_SIZE, 8, 0, 0), EFAULT);
    FAILS(prctl(PR_SET_MM, PR_SET_MM_MAP_SIZE, &size, 0, 1), EINVAL);
    uint64_t f[53];
    fields("/proc/self/stat", f);
    struct map map = {f[26], f[27], f[45], f[46], f[47], (uint64_t)(uintptr_t)sbrk(0), f[28], f[48], f[49], f[50], f[51], 0, 0, -1};
    char *page = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    memcpy(page + 4000, "one\0two\0A=b\0", 12);
    struct map good = map;
    good.arg_start = (uint64_t)(uintptr_t)page + 4000;
    good.arg_end = good.arg_start + 8;
    good.env_start = good.arg_end;
    good.env_end = good.env_start + 4;
    FAILS(prctl(PR_SET_MM, PR_SET_MM_MAP, &good, sizeof good - 8, 0), EINVAL);
    FAILS(prctl(PR_SET_MM, PR_SET_MM_MAP, 8, sizeof good, 0), EFAULT);
    CHECK(prctl(PR_SET_MM, PR_SET_MM_MAP, &good, sizeof good, 0) == 0);
    line_is("one\0two", 8);
    char found[64];
    CHECK(content("/proc/self/environ", found, sizeof found) == 4 && memcmp(found, "A=b", 4) == 0);
    fields("/proc/self/stat", f);
    CHECK(f[48] == good.arg_start && f[49] == good.arg_end && f[51] == good.env_end);
    // Longer than a page: cut, where its last byte is no end.
    memset(page, 'z', 2 * 4096);
    good.arg_start = (uint64_t)(uintptr_t)page;
    good.arg_end = good.arg_start + 5000;
    good.env_start = good.env_end = good.arg_end;
    CHECK(prctl(PR_SET_MM, PR_SET_MM_MAP, &good, sizeof good, 0) == 0);
    char *expected = page + 4096;
    line_is(expected, 4096);
    page[4999] = 0;
    static char whole[5000];
    memset(whole, 'z', 4999);
    line_is(whole, 5000);

    struct map bad;
#define REFUSED(change) \
    bad = good; \
    change; \
    FAILS(prctl(PR_SET_MM, PR_SET_MM_MAP, &bad, sizeof bad, 0), EINVAL);
    REFUSED(bad.arg_end = bad.arg_start - 1)
    REFUSED(bad.env_end = bad.env_start - 1)
    REFUSED(bad.end_code = bad.start_code)
    REFUSED(bad.end_data = bad.start_data - 1)
    REFUSED(bad.brk = bad.start_brk - 1)
    REFUSED(bad.start_stack = 0)
    REFUSED(bad.env_end = 0x7ffffffff000)
    REFUSED(bad.arg_start = 4096)
    REFUSED(bad.auxv_size = 16)
    REFUSED(bad.auxv = (uint64_t)(uintptr_t)page; bad.auxv_size = 4096)
    bad = good;
    bad.auxv = 8;
    bad.auxv_size = 16;
    FAILS(prctl(PR_SET_MM, PR_SET_MM_MAP, &bad, sizeof bad, 0), EFAULT);
    uint64_t auxv[] = {6, 4096, 0, 0};
    bad.auxv = (uint64_t)(uintptr_t)auxv;
    bad.auxv_size = sizeof auxv;
    CHECK(prctl(PR_SET_MM, PR_SET_MM_MAP, &bad, sizeof bad, 0) == 0);
    CHECK(content("/proc/self/auxv", found, sizeof found) == sizeof auxv && memcmp(found, auxv, sizeof auxv) == 0);
    CHECK(prctl(PR_SET_MM, PR_SET_MM_MAP, &map, sizeof map, 0) == 0);

    // One by one it is for who may raise limits.
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct caps[2];
    CHECK(syscall(SYS_capget, &header, caps) == 0);
    uint64_t at = (uint64_t)(uintptr_t)page;
    if (!(caps[0].effective & 1u << CAP_SYS_RESOURCE)) {
        FAILS(prctl(PR_SET_MM, PR_SET_MM_ARG_START, at, 0, 0), EPERM);
        return;
    }
    FAILS(prctl(PR_SET_MM, PR_SET_MM_ARG_START, at, 1, 0), EINVAL);
    FAILS(prctl(PR_SET_MM, PR_SET_MM_ARG_START, 4096, 0, 0), EINVAL);
    FAILS(prctl(PR_SET_MM, 99, at, 0, 0), EINVAL);
    FAILS(prctl(PR_SET_MM, PR_SET_MM_ARG_END, at - (1ul << 40), 0, 0), EINVAL);
    CHECK(prctl(PR_SET_MM, PR_SET_MM_ARG_START, at, 0, 0) == 0);
    memcpy(page, "named\0", 6);
    CHECK(prctl(PR_SET_MM, PR_SET_MM_ARG_END, at + 6, 0, 0) == 0);
    line_is("named", 6);
    CHECK(prctl(PR_SET_MM, PR_SET_MM_AUXV, auxv, sizeof auxv, 0) == 0);
    FAILS(prctl(PR_SET_MM, PR_SET_MM_EXE_FILE, 99, 0, 0), EBADF);
    int fd = open("/proc/self/exe", O_RDONLY);
    CHECK(fd >= 0);
    FAILS(prctl(PR_SET_MM, PR_SET_MM_EXE_FILE, fd, 0, 0), EBUSY);
    FAILS(prctl(PR_SET_MM, PR_SET_MM_EXE_FILE, open("/", O_RDONLY), 0, 0), EACCES);
}

int main(int argc, char **argv, char **envp) {
    if (argc > 1 || !getenv("LONG")) {
        // With one argument and an environment of some length.
        char value[400] = "LONG=";
        memset(value + 5, 'l', 390);
        char *arguments[] = {"title", NULL}, *environment[] = {value, "B=c", NULL};
        execve("/proc/self/exe", arguments, environment);
        return 1;
    }
    stat_tells_places(argv, envp);
    titles(argv, envp);
    a_program_says_it_itself();
    printf("what it says of itself\n");
    return 0;
}
