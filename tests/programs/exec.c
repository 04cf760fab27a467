// SPDX-License-Identifier: Apache-2.0 OR MIT
// execve and execveat: the program runs itself again and again, each time another way, and each stage checks what the
// one before left. Passes on Linux.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static char *self;

static void next(const char *stage)
{
    char *words[] = {self, (char *)stage, NULL};
    execv(self, words);
    CHECK(!"execv came back");
}

static void *sleeps(void *arg)
{
    while (pause())
        ;
    return arg;
}

static void *reads(void *pipe)
{
    char byte;
    for (;;)
        CHECK(read(*(int *)pipe, &byte, 1) != 0);
}

static void *spins(void *arg)
{
    for (volatile long n = 0; n >= 0; n++)
        ;
    return arg;
}

static void *execs(void *arg)
{
    next(arg);
    return NULL;
}

static int threads_now(void)
{
    char line[128];
    int count = 0;
    FILE *file = fopen("/proc/self/status", "r");
    CHECK(file);
    while (fgets(line, sizeof line, file))
        sscanf(line, "Threads: %d", &count);
    fclose(file);
    return count;
}

static void start_threads(void)
{
    static int ends[2];
    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    pthread_t thread;
    sigset_t all, before;
    // One of them blocks every signal: that does not keep it.
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    CHECK(pthread_create(&thread, NULL, sleeps, NULL) == 0);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    CHECK(pthread_create(&thread, NULL, reads, ends) == 0);
    CHECK(pthread_create(&thread, NULL, spins, NULL) == 0);
    CHECK(threads_now() == 4);
}

static void check_alone(void)
{
    CHECK(threads_now() == 1);
    CHECK(gettid() == getpid());
    CHECK(fcntl(3, F_GETFD) == -1 && errno == EBADF);
}

int main(int count, char **words)
{
    self = realpath("/proc/self/exe", NULL);
    CHECK(self);
    const char *stage = count > 1 ? words[1] : "start";
    if (!strcmp(stage, "start")) {
        // A signal that was blocked and pending stays; a timer of timer_create does not.
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        sigprocmask(SIG_BLOCK, &set, NULL);
        kill(getpid(), SIGUSR1);
        start_threads();
        timer_t timer;
        struct itimerspec soon = {{0, 0}, {1, 0}};
        CHECK(timer_create(CLOCK_MONOTONIC, NULL, &timer) == 0);
        CHECK(timer_settime(timer, 0, &soon, NULL) == 0);
        next("from the first thread");
    } else if (!strcmp(stage, "from the first thread")) {
        check_alone();
        usleep(1200 * 1000);
        sigset_t set;
        CHECK(sigpending(&set) == 0 && sigismember(&set, SIGUSR1) == 1);
        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        int signal;
        CHECK(sigwait(&set, &signal) == 0 && signal == SIGUSR1);
        start_threads();
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, execs, "from another thread") == 0);
        for (;;)
            pause();
    } else if (!strcmp(stage, "from another thread")) {
        check_alone();
        char *args[] = {"name", "by descriptor", NULL}, *none[] = {NULL};
        int fd = open(self, O_PATH | O_CLOEXEC);
        CHECK(syscall(SYS_execveat, fd, "", args, none, 0) == -1 && errno == ENOENT);
        CHECK(syscall(SYS_execveat, fd, "x", args, none, 1) == -1 && errno == EINVAL);
        CHECK(syscall(SYS_execveat, 99, "x", args, none, 0) == -1 && errno == EBADF);
        CHECK(syscall(SYS_execveat, fd, "x", args, none, 0) == -1 && errno == ENOTDIR);
        CHECK(symlink(self, "/tmp/exec-link") == 0);
        CHECK(syscall(SYS_execveat, AT_FDCWD, "/tmp/exec-link", args, none, AT_SYMLINK_NOFOLLOW) == -1);
        CHECK(errno == ELOOP);
        CHECK(execv("/tmp", args) == -1 && errno == EACCES);
        syscall(SYS_execveat, fd, "", args, none, AT_EMPTY_PATH);
        CHECK(!"execveat came back");
    } else if (!strcmp(stage, "by descriptor")) {
        CHECK(!strcmp(words[0], "name") && environ[0] == NULL);
        CHECK(!strncmp((char *)getauxval(AT_EXECFN), "/dev/fd/", 8));
        char *args[] = {"name", "below a directory", NULL}, *none[] = {NULL};
        *strrchr(self, '/') = 0;
        int dir = open(*self ? self : "/", O_RDONLY | O_DIRECTORY);
        CHECK(dir >= 0);
        syscall(SYS_execveat, dir, self + strlen(self) + 1, args, none, 0);
        CHECK(!"execveat came back");
    } else {
        CHECK(!strcmp(stage, "below a directory"));
        CHECK(unlink("/tmp/exec-link") == 0);
        puts("all exec tests passed");
    }
    return 0;
}
