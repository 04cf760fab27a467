// SPDX-License-Identifier: Apache-2.0 OR MIT
// Settings below /proc/sys that tests of Linux write, and what they change. As root; what was set before is set again at the end.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FAIL(...) (printf("line %d: ", __LINE__), printf(__VA_ARGS__), printf(" (%s)\n", strerror(errno)), exit(1))
#define CHECK(what) ((what) ? 0 : FAIL("%s", #what))
#define REFUSED(what, error) ((what) == -1 && errno == (error) ? 0 : FAIL("%s is not refused with %s", #what, #error))

static char folder[] = "/tmp/likeness.XXXXXX";


static int set(const char *name, const char *value) {
    char path[128];
    snprintf(path, sizeof path, "/proc/sys/%s", name);
    int fd = open(path, O_WRONLY);
    if (fd < 0) return -1;
    ssize_t written = write(fd, value, strlen(value));
    int error = errno;
    CHECK(close(fd) == 0);
    errno = error;
    return written < 0 ? -1 : 0;
}

static const char *get(const char *name) {
    static char text[256];
    char path[128];
    snprintf(path, sizeof path, "/proc/sys/%s", name);
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0);
    ssize_t length = read(fd, text, sizeof text - 1);
    CHECK(length >= 0 && close(fd) == 0);
    text[length] = 0;
    return text;
}

static int is(const char *name, const char *value) { return strcmp(get(name), value) == 0; }

// --- ids of objects of System V ---

static int queue(void) { return msgget(IPC_PRIVATE, 0600); }
static int set_of_semaphores(void) { return semget(IPC_PRIVATE, 1, 0600); }
static int segment(void) { return shmget(IPC_PRIVATE, 4096, 0600); }
static int no_queue(int id) { return msgctl(id, IPC_RMID, 0); }
static int no_set(int id) { return semctl(id, 0, IPC_RMID); }
static int no_segment(int id) { return shmctl(id, IPC_RMID, 0); }

static void next_ids_are_given(void) {
    static const struct {
        const char *name;
        int (*make)(void), (*remove)(int);
    } all[] = {{"kernel/msg_next_id", queue, no_queue},
               {"kernel/sem_next_id", set_of_semaphores, no_set},
               {"kernel/shm_next_id", segment, no_segment}};
    CHECK(unshare(CLONE_NEWIPC) == 0);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const char *name = all[i].name;
        CHECK(is(name, "-1\n"));
        int first = all[i].make();
        CHECK(first >= 0 && all[i].remove(first) == 0);

        CHECK(set(name, "1234567") == 0 && is(name, "1234567\n"));
        int chosen = all[i].make();
        if (chosen != 1234567) FAIL("%s gave %d", name, chosen);
        // Once only.
        CHECK(is(name, "-1\n"));
        int other = all[i].make();
        CHECK(other >= 0 && other != chosen);
        // Where the index is taken the next one that is free is it.
        CHECK(set(name, "1234567\n") == 0);
        int behind = all[i].make();
        if (behind != 1234568) FAIL("%s gave %d", name, behind);
        CHECK(all[i].remove(chosen) == 0 && all[i].remove(other) == 0 && all[i].remove(behind) == 0);
        CHECK(set(name, "1234567\n") == 0);
        CHECK((chosen = all[i].make()) == 1234567 && all[i].remove(chosen) == 0);

        REFUSED(set(name, "-1"), EINVAL);
        REFUSED(set(name, "x"), EINVAL);
        REFUSED(set(name, "2147483648"), EINVAL);
        CHECK(is(name, "-1\n"));
        CHECK(set(name, "5") == 0);
    }
    // Another namespace has its own.
    CHECK(unshare(CLONE_NEWIPC) == 0 && is("kernel/msg_next_id", "-1\n"));
    CHECK(setgid(1000) == 0 && setuid(1000) == 0);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char path[128];
        struct stat stat_;
        snprintf(path, sizeof path, "/proc/sys/%s", all[i].name);
        CHECK(stat(path, &stat_) == 0 && (stat_.st_mode & 07777) == 0444);
        REFUSED(set(all[i].name, "7"), EACCES);
        CHECK(is(all[i].name, "-1\n"));
    }
}

// --- fs.nr_open ---

static void nr_open_bounds_descriptors(void) {
    struct rlimit limit, before;
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0 && before.rlim_max > 2000);
    limit.rlim_cur = limit.rlim_max = before.rlim_max;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    int bound = (int)before.rlim_max - 1000;
    char value[32];
    snprintf(value, sizeof value, "%d\n", bound);
    CHECK(set("fs/nr_open", value) == 0 && is("fs/nr_open", value));
    // It bounds what is asked for from now on, and what descriptors may be made, whatever was allowed before.
    REFUSED(setrlimit(RLIMIT_NOFILE, &limit), EPERM);
    REFUSED(dup2(0, bound + 100), EBADF);
    REFUSED(fcntl(0, F_DUPFD, bound), EMFILE);
    limit.rlim_cur = limit.rlim_max = (rlim_t)bound + 1;
    REFUSED(setrlimit(RLIMIT_NOFILE, &limit), EPERM);
    limit.rlim_cur = limit.rlim_max = (rlim_t)bound;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    REFUSED(set("fs/nr_open", "63"), EINVAL);
    REFUSED(set("fs/nr_open", "x"), EINVAL);
    CHECK(is("fs/nr_open", value));
    // A table that has more numbers than that is not copied.
    int high = fcntl(0, F_DUPFD, 1000);
    CHECK(high >= 1000 && set("fs/nr_open", "512") == 0);
    REFUSED(fork(), EMFILE);
    CHECK(set("fs/nr_open", value) == 0 && close(high) == 0);
}

// --- scheduling ---

static void turns_have_a_length(void) {
    struct sched_param parameter = {1};
    struct timespec turn;
    CHECK(set("kernel/sched_rr_timeslice_ms", "40") == 0 && is("kernel/sched_rr_timeslice_ms", "40\n"));
    CHECK(sched_setscheduler(0, SCHED_RR, &parameter) == 0);
    CHECK(sched_rr_get_interval(0, &turn) == 0 && turn.tv_sec == 0 && turn.tv_nsec == 40000000);
    CHECK(set("kernel/sched_rr_timeslice_ms", "2000\n") == 0);
    CHECK(sched_rr_get_interval(0, &turn) == 0 && turn.tv_sec == 2 && turn.tv_nsec == 0);
    REFUSED(set("kernel/sched_rr_timeslice_ms", "many"), EINVAL);
    CHECK(set("kernel/sched_rr_timeslice_ms", "0") == 0 && is("kernel/sched_rr_timeslice_ms", "100\n"));
    CHECK(set("kernel/sched_rr_timeslice_ms", "-7") == 0 && is("kernel/sched_rr_timeslice_ms", "100\n"));
}

static void shares_have_bounds(void) {
    CHECK(set("kernel/sched_rt_period_us", "1000000") == 0);
    CHECK(set("kernel/sched_rt_runtime_us", "950000") == 0);
    REFUSED(set("kernel/sched_rt_runtime_us", "1000001"), EINVAL);
    REFUSED(set("kernel/sched_rt_runtime_us", "-2"), EINVAL);
    REFUSED(set("kernel/sched_rt_period_us", "0"), EINVAL);
    REFUSED(set("kernel/sched_rt_period_us", "-1"), EINVAL);
    REFUSED(set("kernel/sched_rt_period_us", "700000"), EINVAL);
    CHECK(is("kernel/sched_rt_period_us", "1000000\n") && is("kernel/sched_rt_runtime_us", "950000\n"));
    CHECK(set("kernel/sched_rt_runtime_us", "-1") == 0 && is("kernel/sched_rt_runtime_us", "-1\n"));
    CHECK(set("kernel/sched_rt_runtime_us", "950000") == 0);
}

// --- names of core files ---

static const char *below(const char *name) {
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/// Ends a child by a signal, which leaves a file; the child's number.
static pid_t leaves_a_file(void) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        struct rlimit limit = {1 << 20, 1 << 20};
        CHECK(setrlimit(RLIMIT_CORE, &limit) == 0 && chdir(folder) == 0);
        CHECK(prctl(PR_SET_NAME, "a/b") == 0 && setgid(7) == 0 && setuid(1000) == 0 && prctl(PR_SET_DUMPABLE, 1) == 0);
        raise(SIGABRT);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && WCOREDUMP(status));
    return child;
}

static void is_a_core_file(const char *name) {
    char magic[4];
    int fd = open(below(name), O_RDONLY);
    if (fd < 0) FAIL("there is no %s", name);
    CHECK(read(fd, magic, 4) == 4 && memcmp(magic, "\177ELF", 4) == 0);
    CHECK(close(fd) == 0 && unlink(below(name)) == 0);
}

static void core_files_have_names(void) {
    char name[128], pattern[256];
    CHECK(chmod(folder, 0777) == 0);
    CHECK(set("kernel/core_uses_pid", "0") == 0);
    CHECK(set("kernel/core_pattern", "left.%p.%u.%g.%s.%e.%%.%y.%c\n") == 0);
    CHECK(is("kernel/core_pattern", "left.%p.%u.%g.%s.%e.%%.%y.%c\n"));
    pid_t child = leaves_a_file();
    snprintf(name, sizeof name, "left.%d.1000.7.6.a!b.%%..1048576", child);
    is_a_core_file(name);
    // A path is where it leads to, and a number of the process is added where none is asked for.
    CHECK(set("kernel/core_uses_pid", "1") == 0);
    snprintf(pattern, sizeof pattern, "%s/whole-%%f", folder);
    CHECK(set("kernel/core_pattern", pattern) == 0);
    child = leaves_a_file();
    char program[128];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    CHECK(length > 0);
    program[length] = 0;
    snprintf(name, sizeof name, "whole-%s.%d", strrchr(program, '/') + 1, child);
    is_a_core_file(name);
    CHECK(set("kernel/core_uses_pid", "0") == 0);
    // What is longer than it may be is cut off.
    memset(pattern, 'c', sizeof pattern - 1);
    pattern[sizeof pattern - 1] = 0;
    CHECK(set("kernel/core_pattern", pattern) == 0 && strlen(get("kernel/core_pattern")) == 128);
}

static void are_of_the_superuser(void) {
    static const char *const names[] = {"fs/nr_open", "kernel/core_pattern", "kernel/sched_rr_timeslice_ms", "kernel/sched_rt_runtime_us"};
    CHECK(setgid(1000) == 0 && setuid(1000) == 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) REFUSED(set(names[i], "1"), EACCES);
}

int main(void) {
    static const char *const changed[] = {"fs/nr_open", "kernel/core_pattern", "kernel/core_uses_pid", "kernel/sched_rr_timeslice_ms",
                                          "kernel/sched_rt_period_us", "kernel/sched_rt_runtime_us"};
    enum { COUNT = sizeof changed / sizeof *changed };
    char before[COUNT][256];
    CHECK(mkdtemp(folder));
    for (int i = 0; i < COUNT; i++) strcpy(before[i], get(changed[i]));
    static void (*const all[])(void) = {next_ids_are_given,  nr_open_bounds_descriptors, turns_have_a_length,
                                        shares_have_bounds, core_files_have_names,      are_of_the_superuser};
    int failed = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            all[i]();
            exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        failed += status != 0;
    }
    for (int i = 0; i < COUNT; i++) CHECK(set(changed[i], before[i]) == 0);
    if (failed == 0) CHECK(rmdir(folder) == 0);
    if (failed == 0) puts("all likeness tests of settings passed");
    return failed;
}
