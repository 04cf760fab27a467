// SPDX-License-Identifier: Apache-2.0 OR MIT
// Ids, limits and names as programs use them, started as root: every check prints its name and ends the run when it
// fails. Passes on Linux as the first process of a container.
#define _GNU_SOURCE
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static void processes_and_groups(void)
{
    CHECK(getpgrp() == getpgid(0) && getsid(0) > 0);
    CHECK(getpgid(123456) == -1 && errno == ESRCH);
    CHECK(setpgid(0, -1) == -1 && errno == EINVAL);
    int status;
    CHECK(wait(&status) == -1 && errno == ECHILD);
    CHECK(waitpid(-1, &status, 1 << 20) == -1 && errno == EINVAL);
    CHECK(waitid(P_ALL, 0, NULL, WEXITED) == -1 && errno == ECHILD);
    CHECK(waitid(P_ALL, 0, NULL, WNOHANG) == -1 && errno == EINVAL);
    int fd = syscall(SYS_pidfd_open, getpid(), 0);
    CHECK(fd >= 0);
    CHECK(syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0) == 0);
    CHECK(syscall(SYS_pidfd_send_signal, 0, 0, NULL, 0) == -1 && errno == EBADF);
    CHECK(syscall(SYS_pidfd_open, 0, 0) == -1 && errno == EINVAL);
    close(fd);
}

static void limits(void)
{
    struct rlimit old, limit;
    CHECK(getrlimit(RLIMIT_NOFILE, &old) == 0 && old.rlim_cur >= 256);
    // Programs that close all they may have, or make a table for them, take what they find.
    CHECK(old.rlim_cur <= 65536 && old.rlim_max > old.rlim_cur);
    limit = (struct rlimit){64, old.rlim_max};
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    int last = 0;
    while ((last = dup(0)) >= 0)
        CHECK(last < 64);
    CHECK(errno == EMFILE);
    for (int i = 3; i < 64; i++)
        close(i);
    CHECK(setrlimit(RLIMIT_NOFILE, &old) == 0);
    limit = (struct rlimit){10, 5};
    CHECK(setrlimit(RLIMIT_CORE, &limit) == -1 && errno == EINVAL);
    CHECK(getrlimit(16, &limit) == -1 && errno == EINVAL);
    CHECK(getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur == 8 << 20);
    CHECK(prlimit(123456, RLIMIT_CPU, NULL, &limit) == -1 && errno == ESRCH);
}

static void names(void)
{
    struct utsname name;
    CHECK(uname(&name) == 0 && !strcmp(name.sysname, "Linux") && !strcmp(name.machine, "x86_64"));
    char text[65];
    CHECK(prctl(PR_SET_NAME, "a name that is too long") == 0);
    CHECK(prctl(PR_GET_NAME, text) == 0 && !strcmp(text, "a name that is "));
    CHECK(pthread_getname_np(pthread_self(), text, 16) == 0 && !strcmp(text, "a name that is "));
    struct sysinfo info;
    CHECK(sysinfo(&info) == 0 && info.totalram > info.freeram && info.freeram > 0 && info.mem_unit >= 1);
    CHECK(prctl(PR_GET_DUMPABLE) == 1);
    CHECK(prctl(PR_SET_DUMPABLE, 5) == -1 && errno == EINVAL);
    CHECK(prctl(12345) == -1 && errno == EINVAL);
    CHECK(personality(0xffffffff) == 0);
}

static void random_bytes(void)
{
    unsigned char a[300] = {0}, b[300] = {0};
    CHECK(getrandom(a, sizeof a, 0) == sizeof a && getrandom(b, sizeof b, GRND_NONBLOCK) == sizeof b);
    CHECK(memcmp(a, b, sizeof a) != 0 && memcmp(a, a + 16, 16) != 0);
    CHECK(getrandom(a, 1, 8) == -1 && errno == EINVAL);
    CHECK(syscall(SYS_getrandom, 8, 1, 0) == -1 && errno == EFAULT);
    CHECK(getrandom(a, 0, 0) == 0);
}

static void scheduling(void)
{
    cpu_set_t set;
    CHECK(sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) >= 1);
    CHECK(sched_setaffinity(0, sizeof set, &set) == 0);
    CPU_ZERO(&set);
    CHECK(sched_setaffinity(0, sizeof set, &set) == -1 && errno == EINVAL);
    CHECK(sched_getscheduler(0) == SCHED_OTHER);
    struct sched_param parameter = {.sched_priority = 1};
    CHECK(sched_setscheduler(0, SCHED_OTHER, &parameter) == -1 && errno == EINVAL);
    CHECK(sched_get_priority_max(SCHED_RR) == 99 && sched_get_priority_min(SCHED_FIFO) == 1);
    CHECK(sched_get_priority_max(77) == -1 && errno == EINVAL);
    errno = 0;
    CHECK(getpriority(PRIO_PROCESS, 0) == 0 && errno == 0);
    CHECK(setpriority(PRIO_PROCESS, 0, 5) == 0 && getpriority(PRIO_PROCESS, 0) == 5);
    CHECK(getpriority(9, 0) == -1 && errno == EINVAL);
    CHECK(sched_yield() == 0);
    // What to do about memory that fails: kept for those who ask.
    CHECK(prctl(PR_MCE_KILL_GET, 0, 0, 0, 0) == PR_MCE_KILL_DEFAULT && prctl(PR_MCE_KILL, PR_MCE_KILL_SET, PR_MCE_KILL_EARLY, 0, 0) == 0);
    CHECK(prctl(PR_MCE_KILL_GET, 0, 0, 0, 0) == PR_MCE_KILL_EARLY && prctl(PR_MCE_KILL, PR_MCE_KILL_CLEAR, 0, 0, 0) == 0);
    CHECK(prctl(PR_MCE_KILL_GET, 0, 0, 0, 0) == PR_MCE_KILL_DEFAULT && prctl(PR_MCE_KILL, PR_MCE_KILL_SET, 3, 0, 0) == -1 && errno == EINVAL);
    unsigned cpu;
    CHECK(getcpu(&cpu, NULL) == 0 && cpu < 1024);
}

static int has(int capability)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    CHECK(syscall(SYS_capget, &header, data) == 0);
    return data[capability / 32].effective >> capability % 32 & 1;
}

static void root_drops_its_rights_for_good(void)
{
    CHECK(getuid() == 0 && has(CAP_SETUID));
    gid_t groups[2] = {20, 10}, now[4];
    CHECK(setgroups(2, groups) == 0 && getgroups(4, now) == 2 && now[0] == 10 && now[1] == 20);
    CHECK(getgroups(1, now) == -1 && errno == EINVAL);
    CHECK(setresgid(33, 33, 33) == 0);
    CHECK(seteuid(1000) == 0 && geteuid() == 1000 && getuid() == 0 && !has(CAP_SETUID));
    CHECK(setfsuid(-1) == 1000);
    CHECK(seteuid(0) == 0 && has(CAP_SETUID));
    CHECK(setuid(1000) == 0);
    uid_t real, effective, saved;
    CHECK(getresuid(&real, &effective, &saved) == 0 && real == 1000 && effective == 1000 && saved == 1000);
    CHECK(!has(CAP_SETUID));
    CHECK(setuid(0) == -1 && errno == EPERM);
    CHECK(setgid(0) == -1 && errno == EPERM);
    CHECK(setgroups(0, NULL) == -1 && errno == EPERM);
    CHECK(sethostname("x", 1) == -1 && errno == EPERM);
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = 100;
    limit.rlim_max = 100;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_max = 101;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == -1 && errno == EPERM);
    CHECK(setpriority(PRIO_PROCESS, 0, -5) == -1 && errno == EACCES);
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
}

// Files below /proc/PID are their process' user's (ps shows them as his, and he may write them), but for what was in its memory
// when its ids changed.
static void files_of_a_process_are_its_users(void)
{
    struct stat s;
    CHECK(geteuid() == 1000 && prctl(PR_GET_DUMPABLE) == 0);
    CHECK(stat("/proc/self/", &s) == 0 && s.st_uid == 1000);
    CHECK(stat("/proc/self/oom_score_adj", &s) == 0 && s.st_uid == 0);
    CHECK(open("/proc/self/environ", O_RDONLY) == -1 && errno == EACCES);
    CHECK(prctl(PR_SET_DUMPABLE, 1) == 0);
    CHECK(stat("/proc/self/environ", &s) == 0 && s.st_uid == 1000 && (s.st_mode & 07777) == 0400);
    CHECK(stat("/proc/1/", &s) == 0);
    int file = open("/proc/self/oom_score_adj", O_WRONLY);
    CHECK(file >= 0 && write(file, "500", 3) == 3 && close(file) == 0);
    file = open("/proc/self/environ", O_RDONLY);
    CHECK(file >= 0 && close(file) == 0);
}

#define RUN(test)                                                                           \
    do {                                                                                    \
        test();                                                                             \
        puts(#test);                                                                        \
        fflush(stdout);                                                                     \
    } while (0)

int main(void)
{
    RUN(processes_and_groups);
    RUN(limits);
    RUN(names);
    RUN(random_bytes);
    RUN(scheduling);
    RUN(root_drops_its_rights_for_good);
    RUN(files_of_a_process_are_its_users);
    puts("all identity tests passed");
    return 0;
}
