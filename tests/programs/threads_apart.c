// SPDX-License-Identifier: Apache-2.0 OR MIT
// Threads with descriptors, working directories and namespaces of their own (clone(2) without CLONE_FILES or CLONE_FS, unshare(2), setns(2)).
// On Linux: as root.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <linux/kcmp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#define FAILS(call, error) (errno = 0, (call) == -1 && errno == (error))
#define FLAGS_OF_A_THREAD (CLONE_VM | CLONE_SIGHAND | CLONE_THREAD)

static void in_thread(void *(*run)(void *)) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, run, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

static long compare(int kind) { return syscall(SYS_kcmp, getpid(), gettid(), kind, 0, 0); }

static void link_of(const char *what, char *text, size_t room, int of_thread) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/%s", what);
    if (of_thread)
        snprintf(path, sizeof path, "/proc/self/task/%d/%s", gettid(), what);
    ssize_t length = readlink(path, text, room - 1);
    text[length < 0 ? 0 : length] = 0;
}

static int differ(const char *what) {
    char first[128], own[128], same[128], path[64];
    link_of(what, first, sizeof first, 0);
    link_of(what, own, sizeof own, 1);
    snprintf(path, sizeof path, "/proc/thread-self/%s", what);
    ssize_t length = readlink(path, same, sizeof same - 1);
    CHECK(length > 0 && (size_t)length == strlen(own) && memcmp(same, own, length) == 0);
    return strcmp(first, own) != 0;
}

static void *with_own_descriptors(void *argument) {
    (void)argument;
    CHECK(compare(KCMP_FILES) == 0 && compare(KCMP_FS) == 0);
    int common = open("/dev/null", O_RDONLY);
    CHECK(unshare(CLONE_FILES) == 0);
    CHECK(compare(KCMP_FILES) != 0 && compare(KCMP_FS) == 0);
    // What was open is open in both, each with a number of its own from now on.
    CHECK(fcntl(common, F_GETFD) >= 0);
    int own = open("/dev/zero", O_RDONLY);
    char first[64], path[64];
    snprintf(path, sizeof path, "fd/%d", own);
    link_of(path, first, sizeof first, 0);
    CHECK(first[0] == 0);
    link_of(path, first, sizeof first, 1);
    CHECK(strcmp(first, "/dev/zero") == 0);
    // Closing here leaves the others' alone.
    close(common);
    CHECK(FAILS(fcntl(common, F_GETFD), EBADF));
    link_of((snprintf(path, sizeof path, "fd/%d", common), path), first, sizeof first, 0);
    CHECK(strcmp(first, "/dev/null") == 0);
    return NULL;
}

static void *with_own_place(void *argument) {
    (void)argument;
    CHECK(unshare(CLONE_FS) == 0);
    CHECK(compare(KCMP_FS) != 0 && compare(KCMP_FILES) == 0);
    CHECK(chdir("/proc") == 0);
    CHECK(umask(0077) == 0022);
    CHECK(access("self/stat", R_OK) == 0);
    CHECK(differ("cwd"));
    return NULL;
}

static void *ends_with_a_pipe(void *argument) {
    int *ends = argument;
    CHECK(unshare(CLONE_FILES) == 0);
    // The others' read end stays, this thread's write end is the only one.
    close(ends[0]);
    return NULL;
}

// A pipe whose write end a thread alone has ends with the thread.
static void closes_with_its_thread(void) {
    int ends[2];
    char byte;
    pthread_t thread;
    CHECK(pipe(ends) == 0);
    CHECK(pthread_create(&thread, NULL, ends_with_a_pipe, ends) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    close(ends[1]);
    CHECK(read(ends[0], &byte, 1) == 0);
    close(ends[0]);
}

static volatile int word, started;
static char stack[65536] __attribute__((aligned(16)));

static int bare_thread(void *argument) {
    (void)argument;
    int fd = syscall(SYS_openat, AT_FDCWD, "/dev/full", O_RDONLY, 0);
    started = fd >= 0 && syscall(SYS_chdir, "/dev") == 0 ? fd : -1;
    syscall(SYS_exit, 0);
    return 0;
}

// clone(2) itself, with neither.
static void begins_apart(void) {
    char before[128], after[128];
    CHECK(getcwd(before, sizeof before) != NULL);
    word = 1;
    started = 0;
    CHECK(clone(bare_thread, stack + sizeof stack, FLAGS_OF_A_THREAD | CLONE_CHILD_CLEARTID, NULL, NULL, NULL, (void *)&word) > 0);
    while (word != 0)
        syscall(SYS_futex, &word, 0, 1, NULL);
    CHECK(started > 0);
    CHECK(FAILS(fcntl(started, F_GETFD), EBADF));
    CHECK(getcwd(after, sizeof after) != NULL && strcmp(before, after) == 0);
    // Only processes begin in other namespaces of users and numbers.
    CHECK(FAILS(clone(bare_thread, stack + sizeof stack, FLAGS_OF_A_THREAD | CLONE_NEWPID, NULL), EINVAL));
    CHECK(FAILS(clone(bare_thread, stack + sizeof stack, FLAGS_OF_A_THREAD | CLONE_NEWUSER, NULL), EINVAL));
    CHECK(FAILS(clone(bare_thread, stack + sizeof stack, FLAGS_OF_A_THREAD | CLONE_FS | CLONE_NEWNS, NULL), EINVAL));
}

static void *in_other_namespaces(void *argument) {
    (void)argument;
    struct utsname name, before;
    CHECK(uname(&before) == 0);
    int home = open("/proc/self/ns/uts", O_RDONLY);
    CHECK(!differ("ns/uts") && !differ("ns/net") && !differ("ns/ipc") && !differ("ns/mnt"));
    // Those of users are the process'.
    CHECK(FAILS(unshare(CLONE_NEWUSER), EINVAL) && FAILS(unshare(CLONE_THREAD), EINVAL) && FAILS(unshare(CLONE_VM), EINVAL));
    CHECK(unshare(CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNET) == 0);
    CHECK(differ("ns/uts") && differ("ns/net") && differ("ns/ipc") && !differ("ns/mnt"));
    CHECK(sethostname("apart", 5) == 0);
    CHECK(uname(&name) == 0 && strcmp(name.nodename, "apart") == 0);
    CHECK(setns(home, CLONE_NEWUTS) == 0);
    CHECK(uname(&name) == 0 && strcmp(name.nodename, before.nodename) == 0);
    CHECK(!differ("ns/uts") && differ("ns/net"));
    // A mount namespace is entered by threads whose places are their own.
    int mounts = open("/proc/self/ns/mnt", O_RDONLY);
    CHECK(FAILS(setns(mounts, CLONE_NEWNS), EINVAL));
    CHECK(unshare(CLONE_NEWNS) == 0);
    CHECK(differ("ns/mnt") && compare(KCMP_FS) != 0);
    CHECK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    CHECK(mount("apart", "/tmp", "tmpfs", 0, NULL) == 0);
    int file = open("/tmp/seen", O_CREAT | O_RDWR, 0600);
    CHECK(file >= 0);
    char path[64], first[128];
    snprintf(path, sizeof path, "/proc/self/task/%d/root/tmp/seen", gettid());
    CHECK(access(path, F_OK) == 0);
    CHECK(FAILS(access("/proc/self/root/tmp/seen", F_OK), ENOENT));
    close(file);
    // And back.
    CHECK(setns(mounts, CLONE_NEWNS) == 0);
    CHECK(!differ("ns/mnt"));
    CHECK(FAILS(access("/tmp/seen", F_OK), ENOENT));
    // A child begins where the thread is.
    pid_t child = fork();
    if (child == 0) {
        char own[128];
        link_of("ns/net", own, sizeof own, 0);
        snprintf(path, sizeof path, "/proc/%d/ns/net", getppid());
        ssize_t length = readlink(path, first, sizeof first - 1);
        first[length < 0 ? 0 : length] = 0;
        _exit(strcmp(own, first) == 0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    close(mounts);
    close(home);
    return NULL;
}

static void *runs_a_program(void *argument) {
    (void)argument;
    CHECK(unshare(CLONE_FILES | CLONE_FS | CLONE_NEWUTS) == 0);
    CHECK(sethostname("program", 7) == 0);
    CHECK(chdir("/dev") == 0);
    int fd = open("/dev/zero", O_RDONLY);
    CHECK(dup2(fd, 77) == 77);
    execl("/proc/self/exe", "threads_apart", "program", NULL);
    return NULL;
}

// The program of a thread that is not the first goes on with that thread's.
static void becomes_the_process(void) {
    int status;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        in_thread(runs_a_program);
        _exit(1);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static int program(void) {
    char place[64], open_file[64];
    struct utsname name;
    CHECK(getcwd(place, sizeof place) != NULL && strcmp(place, "/dev") == 0);
    link_of("fd/77", open_file, sizeof open_file, 0);
    CHECK(strcmp(open_file, "/dev/zero") == 0);
    CHECK(uname(&name) == 0 && strcmp(name.nodename, "program") == 0);
    CHECK(gettid() == getpid());
    return 0;
}

static int pipe_of[2];

static void *first_is_gone(void *argument) {
    (void)argument;
    // The first thread had this end for itself, and ends.
    char byte;
    close(pipe_of[1]);
    CHECK(read(pipe_of[0], &byte, 1) == 0);
    CHECK(fcntl(1, F_GETFD) >= 0);
    fflush(stdout);
    _exit(0);
}

static void outlives_the_first(void) {
    int status;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        pthread_t thread;
        CHECK(pipe(pipe_of) == 0);
        CHECK(unshare(CLONE_FILES) == 0);
        CHECK(pthread_create(&thread, NULL, first_is_gone, NULL) == 0);
        CHECK(unshare(CLONE_FILES) == 0);
        syscall(SYS_exit, 0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void *limited(void *argument) {
    (void)argument;
    CHECK(unshare(CLONE_FILES) == 0);
    // A limit is the process', whichever thread set it.
    struct rlimit before, few = {64, 64};
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    few.rlim_max = before.rlim_max;
    CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    CHECK(FAILS(fcntl(0, F_DUPFD, 64), EINVAL) && FAILS(dup2(0, 64), EBADF));
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK(dup2(0, 64) == 64);
    return NULL;
}

static void *briefly(void *argument) {
    (void)argument;
    CHECK(unshare(CLONE_FILES | CLONE_FS) == 0);
    CHECK(open("/dev/null", O_RDONLY) >= 0);
    return NULL;
}

int main(int count, char **arguments) {
    if (count > 1)
        return program();
    (void)arguments;
    umask(0022);
    CHECK(chdir("/") == 0);
    in_thread(with_own_descriptors);
    in_thread(with_own_place);
    char place[64];
    CHECK(getcwd(place, sizeof place) != NULL && strcmp(place, "/") == 0);
    CHECK(umask(0022) == 0022);
    closes_with_its_thread();
    begins_apart();
    in_thread(in_other_namespaces);
    becomes_the_process();
    outlives_the_first();
    in_thread(limited);
    for (int i = 0; i < 2000; i++)
        in_thread(briefly);
    CHECK(FAILS(fcntl(64, F_GETFD), EBADF));
    puts("all tests of threads apart passed");
    return 0;
}
