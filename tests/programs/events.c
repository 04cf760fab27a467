// SPDX-License-Identifier: Apache-2.0 OR MIT
// epoll, poll, select, eventfd, signalfd, timerfd, pidfd, processes, clocks and mappings: flags and error cases.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <linux/membarrier.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define FAILS(call, error) (errno = 0, (call) == -1 && errno == (error))

static void epolls(void) {
    CHECK(FAILS(epoll_create(0), EINVAL) && FAILS(epoll_create1(1), EINVAL));
    int ep = epoll_create1(EPOLL_CLOEXEC), other = epoll_create(1), pipes[2], file = open("/proc/self/exe", O_RDONLY);
    CHECK(ep >= 0 && fcntl(ep, F_GETFD) == FD_CLOEXEC && pipe(pipes) == 0);
    struct epoll_event event = { EPOLLIN, { .u64 = 7 } }, got[4];
    CHECK(FAILS(epoll_ctl(ep, EPOLL_CTL_ADD, -1, &event), EBADF) && FAILS(epoll_ctl(-1, EPOLL_CTL_ADD, pipes[0], &event), EBADF) && FAILS(epoll_ctl(pipes[0], EPOLL_CTL_ADD, pipes[1], &event), EINVAL));
    CHECK(FAILS(epoll_ctl(ep, EPOLL_CTL_ADD, ep, &event), EINVAL) && FAILS(epoll_ctl(ep, EPOLL_CTL_ADD, file, &event), EPERM) && FAILS(epoll_ctl(ep, EPOLL_CTL_ADD, pipes[0], (void *)-1), EFAULT));
    CHECK(FAILS(epoll_ctl(ep, 99, pipes[0], &event), EINVAL) && FAILS(epoll_ctl(ep, EPOLL_CTL_MOD, pipes[0], &event), ENOENT) && FAILS(epoll_ctl(ep, EPOLL_CTL_DEL, pipes[0], NULL), ENOENT));
    CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, pipes[0], &event) == 0 && FAILS(epoll_ctl(ep, EPOLL_CTL_ADD, pipes[0], &event), EEXIST));
    CHECK(FAILS(epoll_wait(ep, got, 0, 0), EINVAL) && FAILS(epoll_wait(ep, got, -1, 0), EINVAL) && FAILS(epoll_wait(pipes[0], got, 1, 0), EINVAL) && FAILS(epoll_wait(-1, got, 1, 0), EBADF));
    CHECK(epoll_wait(ep, got, 4, 0) == 0 && epoll_wait(ep, got, 4, 10) == 0 && write(pipes[1], "x", 1) == 1 && epoll_wait(ep, got, 4, -1) == 1 && got[0].data.u64 == 7 && got[0].events == EPOLLIN);
    CHECK(FAILS(epoll_wait(ep, (void *)-1, 1, 0), EFAULT) && epoll_wait(ep, got, 4, 0) == 1);
    event.events = EPOLLIN | EPOLLET;
    CHECK(epoll_ctl(ep, EPOLL_CTL_MOD, pipes[0], &event) == 0 && epoll_wait(ep, got, 4, 0) == 1 && epoll_wait(ep, got, 4, 0) == 0 && write(pipes[1], "y", 1) == 1 && epoll_wait(ep, got, 4, 0) == 1);
    event.events = EPOLLIN | EPOLLONESHOT;
    CHECK(epoll_ctl(ep, EPOLL_CTL_MOD, pipes[0], &event) == 0 && epoll_wait(ep, got, 4, 0) == 1 && epoll_wait(ep, got, 4, 0) == 0 && epoll_ctl(ep, EPOLL_CTL_MOD, pipes[0], &event) == 0 && epoll_wait(ep, got, 4, 0) == 1);
    event.events = EPOLLIN | EPOLLEXCLUSIVE;
    CHECK(FAILS(epoll_ctl(ep, EPOLL_CTL_MOD, pipes[0], &event), EINVAL) && epoll_ctl(other, EPOLL_CTL_ADD, pipes[0], &event) == 0);
    event.events = EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT;
    CHECK(FAILS(epoll_ctl(other, EPOLL_CTL_ADD, pipes[1], &event), EINVAL));
    // One in the other, but not in a circle.
    event.events = EPOLLIN;
    CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, other, &event) == 0 && FAILS(epoll_ctl(other, EPOLL_CTL_ADD, ep, &event), ELOOP));
    struct pollfd nested = { ep, POLLIN, 0 };
    CHECK(poll(&nested, 1, 0) == 1 && nested.revents == POLLIN);
    close(pipes[1]);
    event.events = 0;
    CHECK(epoll_ctl(ep, EPOLL_CTL_DEL, other, NULL) == 0 && epoll_ctl(ep, EPOLL_CTL_MOD, pipes[0], &event) == 0 && epoll_wait(ep, got, 4, 0) == 1 && got[0].events == EPOLLHUP);
    // A closed descriptor leaves, one whose description lives on in a copy stays.
    int copy = dup(pipes[0]);
    close(pipes[0]);
    CHECK(epoll_wait(ep, got, 4, 0) == 1 && close(copy) == 0 && epoll_wait(ep, got, 4, 0) == 0);
    sigset_t none;
    sigemptyset(&none);
    struct timespec bad = { 0, 1000000000 };
    CHECK(FAILS(syscall(SYS_epoll_pwait, ep, got, 1, 0, &none, 4), EINVAL) && FAILS(syscall(441, ep, got, 1, &bad, NULL, 8), EINVAL));
    close(ep), close(other), close(file);
}

static void polls(void) {
    int pipes[2], pair[2];
    CHECK(pipe(pipes) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    struct pollfd fds[3] = { { pipes[0], POLLIN, 0 }, { -1, POLLIN, 77 }, { 9999, POLLIN, 0 } };
    CHECK(poll(fds, 3, -1) == 1 && fds[1].revents == 0 && fds[2].revents == POLLNVAL);
    CHECK(poll(NULL, 0, 1) == 0 && FAILS(poll((void *)-1, 1, 0), EFAULT) && FAILS(poll(fds, 1u << 30, 0), EINVAL));
    struct pollfd both = { pipes[1], POLLOUT | POLLIN, 0 };
    CHECK(poll(&both, 1, 0) == 1 && both.revents == POLLOUT && close(pipes[0]) == 0 && poll(&both, 1, 0) == 1 && both.revents == (POLLOUT | POLLERR));
    close(pair[1]);
    struct pollfd end = { pair[0], POLLIN | POLLOUT | POLLRDHUP, 0 };
    CHECK(poll(&end, 1, 0) == 1 && end.revents == (POLLIN | POLLOUT | POLLRDHUP | POLLHUP));
    int file = open("/proc/self/exe", O_RDONLY);
    struct pollfd always = { file, POLLIN | POLLOUT, 0 };
    CHECK(poll(&always, 1, 0) == 1 && always.revents == (POLLIN | POLLOUT));
    struct timespec bad = { -1, 0 };
    CHECK(FAILS(ppoll(NULL, 0, &bad, NULL), EINVAL));
    fd_set in, out;
    FD_ZERO(&in);
    FD_ZERO(&out);
    FD_SET(file, &in);
    FD_SET(pipes[1], &out);
    struct timeval now = { 0, 0 }, wrong = { -1, 0 };
    CHECK(select(20, &in, &out, NULL, &now) == 2 && FD_ISSET(file, &in) && FD_ISSET(pipes[1], &out) && FAILS(select(-1, NULL, NULL, NULL, &now), EINVAL) && FAILS(select(0, NULL, NULL, NULL, &wrong), EINVAL));
    FD_ZERO(&in);
    FD_SET(pair[1], &in); // closed above
    CHECK(FAILS(select(pair[1] + 1, &in, NULL, NULL, &now), EBADF));
    struct timeval left = { 0, 20000 };
    CHECK(select(0, NULL, NULL, NULL, &left) == 0 && left.tv_sec == 0 && left.tv_usec == 0);
    close(pipes[1]), close(pair[0]), close(file);
}

static void counters(void) {
    uint64_t value;
    CHECK(FAILS(eventfd(0, 1 << 10), EINVAL));
    int e = eventfd(3, EFD_NONBLOCK | EFD_SEMAPHORE);
    CHECK(read(e, &value, 8) == 8 && value == 1 && read(e, &value, 8) == 8 && read(e, &value, 8) == 8 && FAILS(read(e, &value, 8), EAGAIN) && FAILS(read(e, &value, 4), EINVAL));
    value = UINT64_MAX;
    CHECK(FAILS(write(e, &value, 8), EINVAL) && FAILS(write(e, &value, 4), EINVAL) && (value = UINT64_MAX - 1, write(e, &value, 8)) == 8 && FAILS(write(e, &value, 8), EAGAIN) && FAILS(pread(e, &value, 8, 0), ESPIPE));
    close(e);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGKILL);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int s = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    struct signalfd_siginfo info[2];
    CHECK(s >= 0 && FAILS(read(s, info, sizeof info), EAGAIN) && FAILS(read(s, info, 10), EINVAL) && FAILS(signalfd(-1, &set, 1), EINVAL) && FAILS(signalfd(0, &set, 0), EINVAL) && FAILS(signalfd(9999, &set, 0), EBADF));
    union sigval with = { .sival_int = 42 };
    CHECK(sigqueue(getpid(), SIGUSR1, with) == 0 && read(s, info, sizeof info) == sizeof *info && info[0].ssi_signo == SIGUSR1 && info[0].ssi_int == 42 && info[0].ssi_code == SI_QUEUE && info[0].ssi_pid == (uint32_t)getpid());
    sigemptyset(&set), sigaddset(&set, SIGUSR2);
    CHECK(signalfd(s, &set, 0) == s && raise(SIGUSR1) == 0 && FAILS(read(s, info, sizeof info), EAGAIN));
    sigemptyset(&set), sigaddset(&set, SIGUSR1);
    struct timespec at_once = { 0, 0 }, bad = { 0, -1 };
    siginfo_t taken;
    CHECK(sigtimedwait(&set, &taken, &at_once) == SIGUSR1 && taken.si_code == SI_USER && FAILS(sigtimedwait(&set, &taken, &at_once), EAGAIN) && FAILS(sigtimedwait(&set, &taken, &bad), EINVAL));
    CHECK(FAILS(sigqueue(getpid(), 65, with), EINVAL) && FAILS(sigqueue(999999, 0, with), ESRCH) && FAILS(kill(getpid(), 65), EINVAL) && FAILS(kill(999999, 0), ESRCH) && kill(getpid(), 0) == 0);
    CHECK(FAILS(syscall(SYS_tgkill, getpid(), -1, 0), EINVAL) && FAILS(syscall(SYS_tgkill, getpid(), 999999, 0), ESRCH) && FAILS(syscall(SYS_tkill, 0, 0), EINVAL));
    close(s);
    CHECK(FAILS(timerfd_create(99, 0), EINVAL) && FAILS(timerfd_create(CLOCK_MONOTONIC, 1), EINVAL));
    int t = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    struct itimerspec soon = { { 0, 2000000 }, { 0, 2000000 } }, got, wrong = { { 0, 0 }, { 0, 1000000000 } };
    CHECK(FAILS(timerfd_settime(t, 0, &wrong, NULL), EINVAL) && FAILS(timerfd_settime(t, 99, &soon, NULL), EINVAL) && FAILS(timerfd_settime(0, 0, &soon, NULL), EINVAL) && FAILS(timerfd_settime(-1, 0, &soon, NULL), EBADF));
    CHECK(FAILS(read(t, &value, 8), EAGAIN) && timerfd_settime(t, 0, &soon, NULL) == 0 && usleep(20000) == 0 && read(t, &value, 8) == 8 && value >= 5 && FAILS(read(t, &value, 4), EINVAL));
    CHECK(timerfd_gettime(t, &got) == 0 && got.it_interval.tv_nsec == 2000000 && got.it_value.tv_nsec <= 2000000 && FAILS(timerfd_gettime(t, (void *)-1), EFAULT));
    close(t);
}

static void processes(void) {
    CHECK(FAILS(syscall(434, -1, 0), EINVAL) && FAILS(syscall(434, 999999, 0), ESRCH) && FAILS(syscall(434, getpid(), 1), EINVAL));
    int p = syscall(434, getpid(), 0);
    CHECK(p >= 0 && fcntl(p, F_GETFD) == FD_CLOEXEC && syscall(424, p, 0, NULL, 0) == 0 && FAILS(syscall(424, p, 0, NULL, 99), EINVAL) && FAILS(syscall(424, 0, 0, NULL, 0), EBADF));
    struct pollfd alive = { p, POLLIN, 0 };
    CHECK(poll(&alive, 1, 0) == 0);
    int same = syscall(438, p, 1, 0);
    CHECK(same >= 0 && FAILS(syscall(438, p, 9999, 0), EBADF) && FAILS(syscall(438, p, 1, 1), EINVAL));
    close(same), close(p);
    CHECK(FAILS(wait(NULL), ECHILD) && FAILS(waitpid(-1, NULL, 1 << 20), EINVAL) && FAILS(waitid(P_ALL, 0, NULL, 0), EINVAL) && FAILS(waitid(P_ALL, 0, NULL, WEXITED), ECHILD));
    char name[17] = "";
    CHECK(prctl(PR_SET_NAME, "a name that is too long") == 0 && prctl(PR_GET_NAME, name) == 0 && strcmp(name, "a name that is ") == 0 && FAILS(prctl(PR_SET_NAME, -1), EFAULT));
    CHECK(FAILS(prctl(9999), EINVAL) && prctl(PR_GET_DUMPABLE) == 1 && FAILS(prctl(PR_SET_DUMPABLE, 2), EINVAL) && prctl(PR_GET_KEEPCAPS) == 0 && FAILS(prctl(PR_SET_KEEPCAPS, 2), EINVAL));
    int signal = -1;
    CHECK(prctl(PR_SET_PDEATHSIG, SIGUSR1) == 0 && prctl(PR_GET_PDEATHSIG, &signal) == 0 && signal == SIGUSR1 && FAILS(prctl(PR_SET_PDEATHSIG, 65), EINVAL));
    CHECK(prctl(PR_GET_TIMERSLACK) == 50000 && prctl(PR_SET_TIMERSLACK, 1000) == 0 && prctl(PR_GET_TIMERSLACK) == 1000 && prctl(PR_SET_TIMERSLACK, 0) == 0 && prctl(PR_GET_TIMERSLACK) == 50000);
    CHECK(FAILS(prctl(PR_SET_NO_NEW_PRIVS, 1, 1, 0, 0), EINVAL) && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0 && prctl(PR_CAPBSET_READ, 0) >= 0 && FAILS(prctl(PR_CAPBSET_READ, 99), EINVAL) && prctl(PR_GET_SECCOMP) == 0);
    int reaper = -1;
    CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0 && prctl(PR_GET_CHILD_SUBREAPER, &reaper) == 0 && reaper == 1 && prctl(PR_SET_CHILD_SUBREAPER, 0) == 0);
    char random[300];
    CHECK(getrandom(random, 256, 0) == 256 && getrandom(random, 16, GRND_NONBLOCK | GRND_INSECURE) == 16 && FAILS(getrandom(random, 1, 99), EINVAL) && FAILS(getrandom(random, 1, GRND_RANDOM | GRND_INSECURE), EINVAL) && FAILS(getrandom((void *)-1, 1, 0), EFAULT));
    struct utsname names;
    CHECK(uname(&names) == 0 && strcmp(names.sysname, "Linux") == 0 && strcmp(names.machine, "x86_64") == 0 && FAILS(syscall(SYS_uname, -1L), EFAULT));
    struct rlimit limit = { 10, 5 };
    CHECK(FAILS(setrlimit(RLIMIT_CORE, &limit), EINVAL) && FAILS(getrlimit(99, &limit), EINVAL) && FAILS(prlimit(999999, RLIMIT_CORE, NULL, &limit), ESRCH));
    struct rusage usage;
    CHECK(getrusage(RUSAGE_SELF, &usage) == 0 && getrusage(RUSAGE_THREAD, &usage) == 0 && FAILS(getrusage(99, &usage), EINVAL) && getrusage(RUSAGE_CHILDREN, &usage) == 0 && usage.ru_utime.tv_sec == 0);
    struct sched_param zero = { 0 }, one = { 1 };
    CHECK(sched_getscheduler(0) == SCHED_OTHER && FAILS(sched_setscheduler(0, SCHED_OTHER, &one), EINVAL) && FAILS(sched_setscheduler(0, 99, &zero), EINVAL) && FAILS(sched_setscheduler(0, SCHED_FIFO, &zero), EINVAL) && FAILS(sched_getscheduler(-1), EINVAL) && FAILS(sched_getscheduler(999999), ESRCH));
    CHECK(sched_get_priority_max(SCHED_FIFO) == 99 && sched_get_priority_min(SCHED_RR) == 1 && sched_get_priority_max(SCHED_OTHER) == 0 && FAILS(sched_get_priority_max(99), EINVAL) && sched_setscheduler(0, SCHED_BATCH, &zero) == 0 && sched_getscheduler(0) == SCHED_BATCH && sched_setscheduler(0, SCHED_OTHER, &zero) == 0);
    struct timespec slice;
    CHECK(FAILS(sched_rr_get_interval(-1, &slice), EINVAL) && sched_rr_get_interval(0, &slice) == 0);
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CHECK(FAILS(sched_setaffinity(0, sizeof cpus, &cpus), EINVAL) && sched_getaffinity(0, sizeof cpus, &cpus) == 0 && CPU_COUNT(&cpus) >= 1 && FAILS(sched_getaffinity(0, 1, &cpus), EINVAL) && FAILS(sched_getaffinity(999999, sizeof cpus, &cpus), ESRCH));
    CHECK(FAILS(getpriority(99, 0), EINVAL) && (errno = 0, getpriority(PRIO_PROCESS, 0) == 0) && FAILS(getpriority(PRIO_PROCESS, 999999), ESRCH) && FAILS(setpriority(99, 0, 0), EINVAL));
    CHECK(syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0) > 0 && FAILS(syscall(SYS_membarrier, 1 << 30, 0, 0), EINVAL) && syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0 && syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0);
    CHECK(FAILS(setpgid(0, -1), EINVAL) && FAILS(getpgid(999999), ESRCH) && FAILS(getsid(999999), ESRCH) && FAILS(syscall(9999), ENOSYS));
}

static void clocks(void) {
    struct timespec time, bad = { 0, 1000000000 };
    CHECK(FAILS(clock_gettime(99, &time), EINVAL) && FAILS(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, -1L), EFAULT) && FAILS(clock_getres(99, &time), EINVAL) && clock_getres(CLOCK_MONOTONIC, NULL) == 0);
    CHECK(clock_nanosleep(CLOCK_MONOTONIC, 0, &bad, NULL) == EINVAL && clock_nanosleep(99, 0, &time, NULL) == EINVAL && clock_nanosleep(CLOCK_THREAD_CPUTIME_ID, 0, &time, NULL) == EINVAL && FAILS(nanosleep(&bad, NULL), EINVAL));
    struct itimerval wrong = { { 0, 0 }, { 0, 1000000 } }, value;
    CHECK(FAILS(setitimer(99, &wrong, NULL), EINVAL) && FAILS(setitimer(ITIMER_REAL, &wrong, NULL), EINVAL) && FAILS(getitimer(99, &value), EINVAL) && getitimer(ITIMER_REAL, &value) == 0);
    timer_t timer;
    struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = 99 };
    CHECK(FAILS(timer_create(99, NULL, &timer), EINVAL) && FAILS(timer_create(CLOCK_MONOTONIC, &event, &timer), EINVAL));
    clockid_t other;
    CHECK(clock_getcpuclockid(999999, &other) == ESRCH && clock_getcpuclockid(0, &other) == 0 && clock_gettime(other, &time) == 0);
}

static void memory(void) {
    char *page = mmap(NULL, 8 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char there[8];
    CHECK(page != MAP_FAILED && FAILS(madvise(page + 1, 4096, MADV_NORMAL), EINVAL) && FAILS(madvise(page, 4096, 9999), EINVAL) && madvise(page, 0, MADV_NORMAL) == 0);
    CHECK(FAILS(mincore(page + 1, 4096, there), EINVAL) && FAILS(mincore(page, 4096, (void *)-1), EFAULT) && FAILS(msync(page, 4096, MS_SYNC | MS_ASYNC), EINVAL) && FAILS(msync(page + 1, 4096, MS_SYNC), EINVAL) && FAILS(msync(page, 4096, 99), EINVAL));
    CHECK(munmap(page + 4096, 4096) == 0 && FAILS(msync(page, 3 * 4096, MS_SYNC), ENOMEM) && FAILS(mincore(page, 3 * 4096, there), ENOMEM) && FAILS(madvise(page, 3 * 4096, MADV_DONTNEED), ENOMEM) && FAILS(mlock(page, 3 * 4096), ENOMEM) && FAILS(mprotect(page, 3 * 4096, PROT_READ), ENOMEM) && mprotect(page, 4096, PROT_READ | PROT_WRITE) == 0);
    CHECK(FAILS(munmap(page + 1, 4096), EINVAL) && FAILS(munmap(page, 0), EINVAL) && FAILS(mprotect(page + 1, 4096, PROT_READ), EINVAL) && FAILS(mprotect(page, 4096, 1 << 20), EINVAL));
    CHECK(mmap(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == EINVAL && mmap(NULL, 4096, PROT_READ, MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == EINVAL && mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, -1, 0) == MAP_FAILED && errno == EBADF);
    CHECK(mmap(page + 2 * 4096, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED && errno == EEXIST && mmap(NULL, 1UL << 60, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == ENOMEM);
    CHECK(mremap(page + 1, 4096, 8192, 0) == MAP_FAILED && errno == EINVAL && mremap(page, 4096, 0, 0) == MAP_FAILED && errno == EINVAL && mremap(page + 4096, 4096, 8192, MREMAP_MAYMOVE) == MAP_FAILED && errno == EFAULT && mremap(page, 4096, 8192, 99) == MAP_FAILED && errno == EINVAL && mremap(page, 4096, 8192, MREMAP_FIXED, page) == MAP_FAILED && errno == EINVAL);
    strcpy(page, "kept");
    char *moved = mremap(page, 4096, 4 * 4096, MREMAP_MAYMOVE);
    CHECK(moved != MAP_FAILED && strcmp(moved, "kept") == 0);
    char *old = mremap(moved, 4096, 4096, MREMAP_MAYMOVE | MREMAP_DONTUNMAP);
    CHECK(old != MAP_FAILED && old != moved && strcmp(old, "kept") == 0 && moved[0] == 0);
    CHECK(FAILS(mlock2(page + 2 * 4096, 4096, 99), EINVAL) && FAILS(mlockall(0), EINVAL) && FAILS(mlockall(99), EINVAL) && mlock(page + 2 * 4096, 4096) == 0 && FAILS(madvise(page + 2 * 4096, 4096, MADV_DONTNEED), EINVAL) && munlock(page + 2 * 4096, 4096) == 0);
    int file = open("/proc/self/exe", O_RDONLY);
    CHECK(mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, file, 0) == MAP_FAILED && errno == EACCES && mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, file, 1) == MAP_FAILED && errno == EINVAL && mmap(NULL, 4096, PROT_READ, MAP_SHARED_VALIDATE | 0x800000, file, 0) == MAP_FAILED && errno == EOPNOTSUPP);
    char *shared = mmap(NULL, 4096, PROT_READ, MAP_SHARED, file, 0);
    CHECK(shared != MAP_FAILED && FAILS(mprotect(shared, 4096, PROT_READ | PROT_WRITE), EACCES) && FAILS(madvise(shared, 4096, MADV_REMOVE), EACCES));
    close(file);
    int directory = open("/", O_RDONLY);
    CHECK(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, directory, 0) == MAP_FAILED && errno == ENODEV);
    close(directory);
    // MADV_REMOVE makes a hole in the file that a shared mapping shows.
    int hole = memfd_create("hole", 0);
    CHECK(ftruncate(hole, 8192) == 0 && (shared = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, hole, 0)) != MAP_FAILED);
    shared[0] = 1, shared[4096] = 2;
    CHECK(madvise(shared, 4096, MADV_REMOVE) == 0 && shared[0] == 0 && shared[4096] == 2);
    CHECK(FAILS(madvise(page + 2 * 4096, 4096, MADV_REMOVE), EINVAL));
    // Pages of a file that are in memory.
    uint64_t range[2] = { 0, 8192 }, cached[5] = { 0 };
    CHECK(pwrite(hole, "x", 1, 0) == 1 && syscall(451, hole, range, cached, 0) == 0 && cached[0] == 2);
    CHECK(FAILS(syscall(451, hole, range, cached, 1), EINVAL) && FAILS(syscall(451, -1, range, cached, 0), EBADF) && FAILS(syscall(451, hole, NULL, cached, 0), EFAULT));
    close(hole);
    // Sealed mappings stay as they are.
    char *sealed = mmap(NULL, 4 * 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(FAILS(syscall(462, sealed, 4096, 1), EINVAL) && FAILS(syscall(462, sealed + 1, 4096, 0), EINVAL) && syscall(462, sealed, 0, 0) == 0);
    CHECK(munmap(sealed + 2 * 4096, 4096) == 0 && FAILS(syscall(462, sealed, 4 * 4096, 0), ENOMEM) && syscall(462, sealed, 2 * 4096, 0) == 0);
    CHECK(FAILS(munmap(sealed, 4096), EPERM) && FAILS(mprotect(sealed, 4096, PROT_READ | PROT_WRITE), EPERM) && FAILS(madvise(sealed, 4096, MADV_DONTNEED), EPERM));
    CHECK(mremap(sealed, 4096, 8192, MREMAP_MAYMOVE) == MAP_FAILED && errno == EPERM && mmap(sealed, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED && errno == EPERM);
    CHECK(munmap(sealed + 3 * 4096, 4096) == 0);
}

static void terminals(void) {
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK), locked, number, one = 1;
    char text[64], name[64];
    CHECK(master >= 0 && ioctl(master, TIOCGPTN, &number) == 0 && ptsname_r(master, name, sizeof name) == 0);
    CHECK(ioctl(master, TIOCGPTLCK, &locked) == 0 && locked == 1 && FAILS(open(name, O_RDWR | O_NOCTTY), EIO));
    CHECK(grantpt(master) == 0 && unlockpt(master) == 0);
    int slave = open(name, O_RDWR | O_NOCTTY), other = posix_openpt(O_RDWR | O_NOCTTY), next;
    CHECK(slave >= 0 && isatty(slave) && isatty(master) && ttyname_r(slave, text, sizeof text) == 0 && strcmp(text, name) == 0);
    CHECK(other >= 0 && ioctl(other, TIOCGPTN, &next) == 0 && next != number && close(other) == 0);
    struct stat stat;
    CHECK(fstat(slave, &stat) == 0 && S_ISCHR(stat.st_mode) && stat.st_rdev == makedev(136, number));
    // A line is read when it is finished, and seen by the master as it is typed.
    CHECK(write(master, "hi", 2) == 2 && ioctl(slave, FIONREAD, &one) == 0 && one == 0);
    CHECK(write(master, "!\r", 2) == 2 && read(slave, text, sizeof text) == 4 && memcmp(text, "hi!\n", 4) == 0);
    CHECK(read(master, text, sizeof text) == 5 && memcmp(text, "hi!\r\n", 5) == 0 && FAILS(read(master, text, 1), EAGAIN));
    CHECK(write(slave, "a\nb", 3) == 3 && read(master, text, sizeof text) == 4 && memcmp(text, "a\r\nb", 4) == 0);
    struct termios raw;
    CHECK(tcgetattr(master, &raw) == 0 && (raw.c_lflag & (ICANON | ECHO | ISIG)) == (ICANON | ECHO | ISIG));
    cfmakeraw(&raw);
    CHECK(tcsetattr(slave, TCSAFLUSH, &raw) == 0 && write(master, "\r\3", 2) == 2 && read(slave, text, 8) == 2 && memcmp(text, "\r\3", 2) == 0);
    CHECK(write(slave, "\n", 1) == 1 && read(master, text, 8) == 1);
    struct winsize size = { 50, 132, 0, 0 };
    CHECK(ioctl(master, TIOCSWINSZ, &size) == 0 && memset(&size, 0, sizeof size) && ioctl(slave, TIOCGWINSZ, &size) == 0 && size.ws_row == 50 && size.ws_col == 132);
    // Packet mode: a byte of status before what was written.
    CHECK(ioctl(master, TIOCPKT, (one = 1, &one)) == 0 && write(slave, "p", 1) == 1 && read(master, text, 8) == 2 && text[0] == 0 && text[1] == 'p');
    CHECK(ioctl(master, TIOCPKT, (one = 0, &one)) == 0);
    CHECK(write(slave, "xy", 2) == 2 && tcflush(slave, TCOFLUSH) == 0 && FAILS(read(master, text, 8), EAGAIN));
    // A side that is gone: what is there may still be read.
    struct pollfd ready = { .fd = master, .events = POLLIN | POLLOUT };
    CHECK(write(slave, "z", 1) == 1 && close(slave) == 0 && poll(&ready, 1, 0) == 1 && (ready.revents & (POLLIN | POLLHUP)) == (POLLIN | POLLHUP));
    CHECK(read(master, text, 8) == 1 && FAILS(read(master, text, 8), EIO));
    CHECK((slave = open(name, O_RDWR | O_NOCTTY)) >= 0 && FAILS(read(master, text, 8), EAGAIN) && close(master) == 0);
    ready = (struct pollfd){ .fd = slave, .events = POLLIN };
    CHECK(poll(&ready, 1, 0) == 1 && (ready.revents & POLLHUP) && read(slave, text, 8) == 0 && FAILS(write(slave, "x", 1), EIO) && FAILS(tcgetattr(slave, &raw), EIO));
    CHECK(FAILS(open(name, O_RDWR | O_NOCTTY), ENOENT) && close(slave) == 0 && FAILS(open("/dev/pts/07", O_RDWR), ENOENT));
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    alarm(60);
    terminals();
    epolls();
    polls();
    counters();
    processes();
    clocks();
    memory();
    puts("all event tests passed");
    return 0;
}
