// SPDX-License-Identifier: Apache-2.0 OR MIT
// So many objects of a kind that a walk over all of them for each would not end within the test's limit.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define FAILS(call, error) (errno = 0, (call) == -1 && errno == (error))

static int lock(int fd, int command, short kind, off_t start, off_t length) {
    struct flock request = { .l_type = kind, .l_whence = SEEK_SET, .l_start = start, .l_len = length };
    return fcntl(fd, command, &request);
}

static void record_locks(int count) {
    int fd = open("locked", O_RDWR | O_CREAT | O_TRUNC, 0600), other = open("locked", O_RDWR);
    // Exclusive ones in one direction, shared ones in the other, and none touches the next.
    for (int i = 0; i < count; i++) {
        CHECK(lock(fd, F_SETLK, F_WRLCK, 4L * i, 1) == 0);
        CHECK(lock(fd, F_SETLK, F_RDLCK, 4L * (2L * count - i), 2) == 0);
    }
    for (int i = 0; i < count; i++) {
        CHECK(FAILS(lock(other, F_OFD_SETLK, F_RDLCK, 4L * i, 1), EAGAIN));
        CHECK(FAILS(lock(other, F_OFD_SETLK, F_WRLCK, 4L * (2L * count - i) + 1, 1), EAGAIN));
        CHECK(lock(other, F_OFD_SETLK, F_WRLCK, 4L * i + 1, 2) == 0);
    }
    struct flock first = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    CHECK(fcntl(other, F_OFD_GETLK, &first) == 0 && first.l_type == F_WRLCK && first.l_start == 0 && first.l_len == 1);
    for (int i = 0; i < count; i++)
        CHECK(lock(fd, F_SETLK, F_UNLCK, 4L * i, 1) == 0);
    CHECK(close(other) == 0 && lock(fd, F_SETLK, F_WRLCK, 0, 0) == 0 && close(fd) == 0);
}

static void owners_of_locks(int count) {
    int *fds = calloc(count, sizeof *fds);
    CHECK(fds != NULL);
    for (int i = 0; i < count; i++) {
        fds[i] = open("locked", O_RDWR);
        CHECK(fds[i] >= 0 && lock(fds[i], F_OFD_SETLK, F_RDLCK, 0, 0) == 0 && flock(fds[i], LOCK_SH) == 0);
    }
    for (int i = 0; i < count; i++)
        CHECK(FAILS(lock(fds[i], F_OFD_SETLK, F_WRLCK, i, 1), EAGAIN));
    for (int i = 0; i + 1 < count; i++)
        CHECK(close(fds[i]) == 0);
    CHECK(lock(fds[count - 1], F_OFD_SETLK, F_WRLCK, 0, 0) == 0 && flock(fds[count - 1], LOCK_EX | LOCK_NB) == 0);
    CHECK(close(fds[count - 1]) == 0 && unlink("locked") == 0);
    free(fds);
}

static void names(int count) {
    char name[32];
    struct stat stat_;
    CHECK(mkdir("names", 0700) == 0 && chdir("names") == 0 && mknod("first", S_IFREG | 0600, 0) == 0);
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "%d", i);
        CHECK(link("first", name) == 0);
    }
    CHECK(stat("first", &stat_) == 0 && stat_.st_nlink == (nlink_t)count + 1);
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "%d", i);
        CHECK(unlink(name) == 0);
    }
    CHECK(stat("first", &stat_) == 0 && stat_.st_nlink == 1 && unlink("first") == 0);
    CHECK(chdir("..") == 0 && rmdir("names") == 0);
}

static void watches(int count) {
    char name[32];
    int instance = inotify_init1(IN_NONBLOCK);
    CHECK(instance >= 0 && mkdir("watched", 0700) == 0 && chdir("watched") == 0);
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "%d", i);
        CHECK(mknod(name, S_IFREG | 0600, 0) == 0 && inotify_add_watch(instance, name, IN_ATTRIB) == i + 1);
    }
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "%d", i);
        CHECK(inotify_add_watch(instance, name, IN_ATTRIB | IN_MASK_ADD) == i + 1);
    }
    for (int i = 0; i < count / 2; i++)
        CHECK(inotify_rm_watch(instance, i + 1) == 0);
    CHECK(close(instance) == 0);
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "%d", i);
        CHECK(unlink(name) == 0);
    }
    CHECK(chdir("..") == 0 && rmdir("watched") == 0);
}

static void epolls_of_one_file(int count) {
    int ends[2], *fds = calloc(count, sizeof *fds);
    CHECK(fds != NULL && pipe(ends) == 0);
    for (int i = 0; i < count; i++) {
        struct epoll_event event = { .events = EPOLLIN };
        fds[i] = epoll_create1(0);
        CHECK(fds[i] >= 0 && epoll_ctl(fds[i], EPOLL_CTL_ADD, ends[0], &event) == 0);
    }
    struct epoll_event event;
    CHECK(write(ends[1], "x", 1) == 1);
    for (int i = 0; i < count; i++)
        CHECK(epoll_wait(fds[i], &event, 1, 0) == 1 && close(fds[i]) == 0);
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
    free(fds);
}

static void timers(int count) {
    struct itimerspec later = { .it_value = { .tv_sec = 4000000000 } };
    int *fds = calloc(count, sizeof *fds);
    CHECK(fds != NULL);
    for (int i = 0; i < count; i++) {
        fds[i] = timerfd_create(CLOCK_REALTIME, 0);
        CHECK(fds[i] >= 0 && timerfd_settime(fds[i], TFD_TIMER_ABSTIME, &later, NULL) == 0);
    }
    for (int i = 0; i < count; i++)
        CHECK(timerfd_settime(fds[i], TFD_TIMER_ABSTIME, &later, NULL) == 0);
    for (int i = 0; i < count; i++)
        CHECK(close(fds[i]) == 0);
    free(fds);
}

// An argument divides the numbers: Linux walks lists of locks.
int main(int count, char **words) {
    int part = count > 1 ? atoi(words[1]) : 1;
    CHECK(part > 0);
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = limit.rlim_max;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_max > 4200);
    char directory[] = "/tmp/scaling-XXXXXX";
    CHECK(mkdtemp(directory) != NULL && chdir(directory) == 0);
    record_locks(15000 / part);
    owners_of_locks(4000 / part);
    names(10000 / part);
    watches(8000 / part);
    epolls_of_one_file(4000 / part);
    timers(4000 / part);
    CHECK(chdir("/") == 0 && rmdir(directory) == 0);
    puts("all scaling tests passed");
}
