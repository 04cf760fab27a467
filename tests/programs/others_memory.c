// SPDX-License-Identifier: Apache-2.0 OR MIT
// Memory of other processes and of other nodes: process_madvise, process_mrelease, move_pages, migrate_pages; protection keys of a
// processor that has none; and kcmp's look into epoll instances.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define FAILS(call, error) CHECK((errno = 0, (call) == -1) && errno == (error))
#define PAGE 4096
#define MOVE 2
#define MOVE_ALL 4

static long advise(int process, struct iovec *ranges, unsigned long count, int advice, unsigned flags)
{
    return syscall(SYS_process_madvise, process, ranges, count, advice, flags);
}

static int open_process(pid_t pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

// A child that waits until it is killed.
static pid_t waiting_child(void)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        for (;;)
            pause();
    return child;
}

static void end(pid_t child)
{
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
}

static char *pages(size_t count)
{
    char *start = mmap(NULL, count * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(start != MAP_FAILED);
    return start;
}

static void advice(void)
{
    char *start = pages(8);
    memset(start, 7, 8 * PAGE);
    CHECK(munmap(start + 4 * PAGE, PAGE) == 0);
    pid_t child = waiting_child();
    int fd = open_process(child), no_process = eventfd(0, 0);
    struct iovec whole[] = {{start, 2 * PAGE}, {start + 2 * PAGE, 2 * PAGE}};
    struct iovec gap[] = {{start, 2 * PAGE}, {start + 3 * PAGE, 2 * PAGE}, {start, PAGE}};
    struct iovec odd[] = {{start + 1, PAGE}};
    CHECK(fd >= 0 && no_process >= 0);
    FAILS(advise(fd, whole, 2, MADV_COLD, 1), EINVAL);
    FAILS(advise(fd, whole, 1025, MADV_COLD, 0), EINVAL);
    FAILS(advise(fd, (void *)1, 1, MADV_COLD, 0), EFAULT);
    FAILS(advise(-1, whole, 2, MADV_COLD, 0), EBADF);
    FAILS(advise(no_process, whole, 2, MADV_COLD, 0), EBADF);
    FAILS(advise(fd, whole, 2, MADV_HUGEPAGE, 0), EINVAL);
    FAILS(advise(fd, odd, 1, MADV_COLD, 0), EINVAL);
    CHECK(advise(fd, whole, 2, MADV_COLD, 0) == 4 * PAGE);
    CHECK(advise(fd, whole, 2, MADV_PAGEOUT, 0) == 4 * PAGE);
    CHECK(advise(fd, whole, 2, MADV_WILLNEED, 0) == 4 * PAGE);
    CHECK(advise(fd, whole, 0, MADV_COLD, 0) == 0);
    // What comes before the gap counts.
    CHECK(advise(fd, gap, 3, MADV_COLD, 0) == 2 * PAGE);
    FAILS(advise(fd, gap + 1, 2, MADV_COLD, 0), ENOMEM);
    CHECK(start[0] == 7);
    pid_t other = fork();
    CHECK(other >= 0);
    if (other == 0) {
        CHECK(setuid(1234) == 0);
        FAILS(advise(fd, whole, 2, MADV_COLD, 0), EACCES);
        // It may look at a process of its own, but not slow it down.
        CHECK(prctl(PR_SET_DUMPABLE, 1) == 0);
        pid_t own = waiting_child();
        int own_fd = open_process(own);
        CHECK(own_fd >= 0);
        FAILS(advise(own_fd, whole, 2, MADV_COLD, 0), EPERM);
        end(own);
        _exit(0);
    }
    int status;
    CHECK(waitpid(other, &status, 0) == other && status == 0);
    end(child);
    FAILS(advise(fd, whole, 2, MADV_COLD, 0), ESRCH);
    CHECK(close(fd) == 0 && close(no_process) == 0 && munmap(start, 8 * PAGE) == 0);
}

static void release(void)
{
    char *start = pages(64);
    memset(start, 7, 64 * PAGE);
    pid_t child = waiting_child();
    int fd = open_process(child);
    CHECK(fd >= 0);
    FAILS(syscall(SYS_process_mrelease, fd, 1), EINVAL);
    FAILS(syscall(SYS_process_mrelease, -1, 0), EBADF);
    FAILS(syscall(SYS_process_mrelease, 0, 0), EBADF);
    // It is alive.
    FAILS(syscall(SYS_process_mrelease, fd, 0), EINVAL);
    CHECK(kill(child, SIGKILL) == 0);
    // Unless it was faster.
    CHECK(syscall(SYS_process_mrelease, fd, 0) == 0 || errno == ESRCH);
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    FAILS(syscall(SYS_process_mrelease, fd, 0), ESRCH);
    // The memory that both had is the parent's still.
    for (int i = 0; i < 64 * PAGE; i += PAGE)
        CHECK(start[i] == 7);
    CHECK(close(fd) == 0 && munmap(start, 64 * PAGE) == 0);
}

static long move(pid_t pid, unsigned long count, void **where, const int *nodes, int *status, int flags)
{
    return syscall(SYS_move_pages, pid, count, where, nodes, status, flags);
}

static void nodes(void)
{
    // Sequential use may bring a few more pages in.
    char *start = pages(64), *far_page = start + 48 * PAGE;
    void *where[4] = {start, start + PAGE + 5, far_page, (void *)16};
    int status[4] = {99, 99, 99, 99}, node[4] = {0, 0, 0, 0}, no_node[4] = {0, 5, 0, 0};
    memset(start, 1, 2 * PAGE);
    FAILS(move(0, 4, where, NULL, status, 1), EINVAL);
    FAILS(move(0, 4, where, NULL, status, 8), EINVAL);
    FAILS(move(99999, 4, where, NULL, status, MOVE), ESRCH);
    FAILS(move(0, 4, (void *)8, NULL, status, MOVE), EFAULT);
    FAILS(move(0, 4, where, NULL, (void *)8, MOVE), EFAULT);
    FAILS(move(0, 4, where, (void *)8, status, MOVE), EFAULT);
    FAILS(move(0, 4, where, no_node, status, MOVE), ENODEV);
    status[0] = status[1] = status[2] = status[3] = 99;
    CHECK(move(0, 0, where, NULL, status, 0) == 0 && status[0] == 99);
    CHECK(move(0, 4, where, NULL, status, 0) == 0);
    CHECK(status[0] == 0 && status[1] == 0 && status[3] == -EFAULT);
    // Linux tells pages that nobody touched by one error or the other.
    CHECK(status[2] == -ENOENT || status[2] == -EFAULT);
    volatile char read = *far_page;
    (void)read;
    CHECK(move(0, 4, where, NULL, status, 0) == 0);
    // Zeros that were only read may be a page that all share, which cannot be moved, or one of its own.
    CHECK(status[2] == -EFAULT || status[2] == 0);
    CHECK(move(0, 4, where, node, status, MOVE) == 0);
    CHECK(status[0] == 0 && status[1] == 0 && status[3] == -EFAULT);
    CHECK(status[2] == -EFAULT || status[2] == 0);
    CHECK(move(getpid(), 1, where, node, status, MOVE_ALL) == 0 && status[0] == 0);

    unsigned long one[2] = {1, 0}, two[2] = {2, 0}, none[2] = {0, 0}, far[17] = {[16] = 1};
    CHECK(syscall(SYS_migrate_pages, 0, 64, one, one) == 0);
    CHECK(syscall(SYS_migrate_pages, getpid(), 64, two, one) == 0);
    FAILS(syscall(SYS_migrate_pages, 0, 64, one, two), EINVAL);
    FAILS(syscall(SYS_migrate_pages, 0, 64, one, none), EINVAL);
    FAILS(syscall(SYS_migrate_pages, 99999, 64, one, one), ESRCH);
    FAILS(syscall(SYS_migrate_pages, 0, 64, (void *)8, one), EFAULT);
    FAILS(syscall(SYS_migrate_pages, 0, 64, one, (void *)8), EFAULT);
    FAILS(syscall(SYS_migrate_pages, 0, 1088, far, one), EINVAL);
    FAILS(syscall(SYS_migrate_pages, 0, PAGE * 8 + 2, one, one), EINVAL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(setuid(1234) == 0);
        FAILS(move(0, 1, where, node, status, MOVE_ALL), EPERM);
        FAILS(move(getppid(), 1, where, node, status, MOVE), EPERM);
        FAILS(syscall(SYS_migrate_pages, getppid(), 64, one, one), EPERM);
        FAILS(syscall(SYS_migrate_pages, 0, 64, one, two), EPERM);
        _exit(0);
    }
    int end;
    CHECK(waitpid(child, &end, 0) == child && end == 0);
    CHECK(munmap(start, 64 * PAGE) == 0);
}

static void keys(void)
{
    char *start = pages(1);
    FAILS(syscall(SYS_pkey_alloc, 1, 0), EINVAL);
    FAILS(syscall(SYS_pkey_alloc, 0, 4), EINVAL);
    long key = syscall(SYS_pkey_alloc, 0, 0);
    if (key < 0) {
        // Which of both is told depends on what was asked before.
        CHECK(errno == ENOSPC || errno == EINVAL);
        FAILS(syscall(SYS_pkey_free, 0), EINVAL);
        FAILS(syscall(SYS_pkey_free, 1), EINVAL);
        FAILS(syscall(SYS_pkey_free, -1), EINVAL);
        FAILS(syscall(SYS_pkey_mprotect, start, PAGE, PROT_READ, 1), EINVAL);
    }
    CHECK(syscall(SYS_pkey_mprotect, start, 0, PROT_READ, 5) == 0);
    FAILS(syscall(SYS_pkey_mprotect, start + 1, 0, PROT_READ, 5), EINVAL);
    FAILS(syscall(SYS_pkey_mprotect, start, -1ul, PROT_READ, 15), ENOMEM);
    CHECK(syscall(SYS_pkey_mprotect, start, PAGE, PROT_READ, -1) == 0);
    CHECK(munmap(start, PAGE) == 0);
}

static void epoll_targets(void)
{
    struct kcmp_epoll_slot slot = {0};
    struct epoll_event event = {.events = EPOLLIN};
    int instance = epoll_create1(0), one = eventfd(0, 0), other = eventfd(0, 0);
    pid_t own = getpid();
    CHECK(instance >= 0 && one >= 0 && other >= 0);
    CHECK(epoll_ctl(instance, EPOLL_CTL_ADD, one, &event) == 0);
    slot.efd = (unsigned)instance;
    slot.tfd = (unsigned)one;
    CHECK(syscall(SYS_kcmp, own, own, KCMP_EPOLL_TFD, one, &slot) == 0);
    CHECK(syscall(SYS_kcmp, own, own, KCMP_EPOLL_TFD, other, &slot) > 0);
    FAILS(syscall(SYS_kcmp, own, own, KCMP_EPOLL_TFD, one, (void *)8), EFAULT);
    FAILS(syscall(SYS_kcmp, own, own, KCMP_EPOLL_TFD, 999, &slot), EBADF);
    slot.toff = 1;
    FAILS(syscall(SYS_kcmp, own, own, KCMP_EPOLL_TFD, one, &slot), ENOENT);
    // The same number, watched again for another file.
    int kept = dup(one);
    CHECK(kept >= 0 && dup2(other, one) == one && epoll_ctl(instance, EPOLL_CTL_ADD, one, &event) == 0);
    slot.toff = 0;
    int first = syscall(SYS_kcmp, own, own, KCMP_EPOLL_TFD, kept, &slot) == 0;
    slot.toff = 1;
    int second = syscall(SYS_kcmp, own, own, KCMP_EPOLL_TFD, kept, &slot) == 0;
    CHECK(first + second == 1);
    slot.toff = 0;
    slot.tfd = (unsigned)instance;
    FAILS(syscall(SYS_kcmp, own, own, KCMP_EPOLL_TFD, one, &slot), ENOENT);
    slot.efd = (unsigned)one;
    FAILS(syscall(SYS_kcmp, own, own, KCMP_EPOLL_TFD, one, &slot), EINVAL);
    slot.efd = 999;
    FAILS(syscall(SYS_kcmp, own, own, KCMP_EPOLL_TFD, one, &slot), EBADF);
    FAILS(syscall(SYS_kcmp, own, own, KCMP_EPOLL_TFD + 1, one, &slot), EINVAL);
}

int main(void)
{
    advice();
    release();
    nodes();
    keys();
    epoll_targets();
    printf("memory of others works\n");
    return 0;
}
