// SPDX-License-Identifier: Apache-2.0 OR MIT
// Which of several errors a call answers, where it is easy to get wrong. Linux 6.1's order.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <netinet/in.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

#define FAILS(call, error) (errno = 0, (call) == -1 && errno == (error))
#define BAD ((void *)8)

static void of_files(void)
{
    struct open_how how = {.flags = O_TRUNC | O_WRONLY, .resolve = RESOLVE_CACHED};
    char text[8];
    struct iovec part = {text, 4}, none = {text, 0};
    int fd = open("f", O_CREAT | O_RDWR, 0644), reads = open("f", O_RDONLY), dir = open(".", O_RDONLY);
    int pipes[2], socket_ = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0 && reads >= 0 && pipe(pipes) == 0 && write(fd, "text", 4) == 4);
    CHECK(FAILS(syscall(SYS_openat2, AT_FDCWD, "f", &how, sizeof how), EAGAIN));
    CHECK(lseek(fd, 0, SEEK_END) == 4);
    CHECK(FAILS(pwritev2(reads, &part, 1, 0, 0x4000), EBADF));
    CHECK(FAILS(pwritev2(fd, &part, 1, -2, 0x4000), EINVAL));
    CHECK(FAILS(pwritev2(fd, &part, 1, 0, 0x4000), EOPNOTSUPP));
    CHECK(pwritev2(fd, &none, 1, 0, 0x4000) == 0);
    CHECK(FAILS(pwritev2(fd, &part, 1, 0, RWF_NOWAIT), EOPNOTSUPP));
    CHECK(FAILS(preadv2(pipes[0], &part, 1, 0, 0), ESPIPE));
    CHECK(FAILS(preadv2(99, &part, 1, -2, 0), EINVAL));
    CHECK(FAILS(flock(99, LOCK_SH | LOCK_EX), EINVAL) && FAILS(flock(99, LOCK_SH), EBADF));
    CHECK(tee(99, 98, 0, 0) == 0 && FAILS(tee(reads, fd, 1, 0), EINVAL) && FAILS(tee(fd, reads, 1, 0), EBADF));
    struct flock lock = {.l_type = F_WRLCK};
    CHECK(fcntl(pipes[1], F_SETLK, &lock) == 0 && fcntl(socket_, F_SETLK, &lock) == 0);
    CHECK(FAILS(fcntl(pipes[0], F_SETLK, &lock), EBADF));
    CHECK(FAILS(fcntl(socket_, F_SETFL, O_DIRECT), EINVAL) && fcntl(pipes[1], F_SETFL, O_DIRECT) == 0);
    int count;
    CHECK(FAILS(ioctl(dir, FIONREAD, &count), ENOTTY) && ioctl(fd, FIONREAD, &count) == 0);
    CHECK(FAILS(syscall(SYS_renameat2, AT_FDCWD, BAD, AT_FDCWD, "x", 8), EINVAL));
    CHECK(FAILS(syscall(SYS_renameat2, AT_FDCWD, "f", AT_FDCWD, "x", 6), EINVAL));
    CHECK(FAILS(fallocate(fd, 3 | 0x10, 0, 1), EOPNOTSUPP));
    CHECK(FAILS(fallocate(fd, 0, -1, 1), EINVAL) && FAILS(fallocate(reads, 0, 0, 1), EBADF));
    if (setxattr("f", "user.a", "v", 1, 0) == 0)
        CHECK(FAILS(setxattr("f", "user.", "v", 1, 0), EINVAL));
    char *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(msync(page, -1, MS_SYNC) == 0 && FAILS(msync(page, -8192, MS_SYNC), ENOMEM));
    int epoll = epoll_create1(0);
    struct epoll_event event = {EPOLLIN | EPOLLEXCLUSIVE, {0}};
    CHECK(FAILS(epoll_ctl(epoll, EPOLL_CTL_MOD, pipes[0], &event), EINVAL));
    event.events = EPOLLIN;
    CHECK(FAILS(epoll_ctl(epoll, EPOLL_CTL_MOD, pipes[0], &event), ENOENT));
}

static void whiteouts_are_left(void)
{
    struct stat stat_;
    CHECK(symlink("target", "moves") == 0);
    CHECK(syscall(SYS_renameat2, AT_FDCWD, "moves", AT_FDCWD, "moved", 4) == 0);
    CHECK(lstat("moves", &stat_) == 0 && S_ISCHR(stat_.st_mode) && stat_.st_rdev == 0);
    CHECK(lstat("moved", &stat_) == 0 && S_ISLNK(stat_.st_mode));
}

static void ranges_are_taken_out_and_put_in(void)
{
    char page[4096], seen[4096];
    int fd = open("ranges", O_CREAT | O_RDWR, 0600);
    for (int i = 0; i < 4; i++) {
        memset(page, 'a' + i, sizeof page);
        CHECK(write(fd, page, i < 3 ? sizeof page : 100) > 0);
    }
    if (FAILS(fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, 4096, 4096), EOPNOTSUPP))
        return; // tmpfs of Linux
    CHECK(lseek(fd, 0, SEEK_END) == 2 * 4096 + 100);
    CHECK(pread(fd, seen, 4096, 4096) == 4096 && seen[0] == 'c' && seen[4095] == 'c');
    CHECK(pread(fd, seen, 4096, 8192) == 100 && seen[0] == 'd' && seen[99] == 'd');
    CHECK(fallocate(fd, FALLOC_FL_INSERT_RANGE, 4096, 8192) == 0 && lseek(fd, 0, SEEK_END) == 4 * 4096 + 100);
    CHECK(pread(fd, seen, 4096, 0) == 4096 && seen[4095] == 'a');
    CHECK(pread(fd, seen, 4096, 4096) == 4096 && seen[0] == 0 && seen[4095] == 0);
    CHECK(pread(fd, seen, 4096, 12288) == 4096 && seen[0] == 'c' && seen[4095] == 'c');
    CHECK(pread(fd, seen, 4096, 16384) == 100 && seen[99] == 'd');
    CHECK(FAILS(fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, 1, 4096), EINVAL));
    CHECK(FAILS(fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, 8192, 3 * 4096), EINVAL));
    CHECK(FAILS(fallocate(fd, FALLOC_FL_INSERT_RANGE, 5 * 4096, 4096), EINVAL));
}

static void of_sockets(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(1),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    char text[8];
    socklen_t length = 4;
    int s = socket(AF_INET, SOCK_STREAM, 0), u = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(FAILS(accept4(99, NULL, NULL, 1), EBADF) && FAILS(accept4(u, NULL, NULL, 1), EINVAL));
    CHECK(FAILS(recv(s, text, 1, 0), ENOTCONN));
    CHECK(FAILS(connect(s, (void *)&address, sizeof address), ECONNREFUSED));
    CHECK(FAILS(recv(s, text, 1, 0), ENOTCONN));
    CHECK(FAILS(shutdown(s, SHUT_RDWR), ENOTCONN) && recv(s, text, 1, 0) == 0);
    struct msghdr header = {.msg_name = text, .msg_namelen = -1, .msg_iovlen = 5000};
    CHECK(FAILS(syscall(SYS_recvmsg, u, &header, MSG_DONTWAIT), EINVAL));
    header.msg_namelen = 0;
    CHECK(FAILS(syscall(SYS_recvmsg, u, &header, MSG_DONTWAIT), EMSGSIZE));
    CHECK(FAILS(getsockopt(s, 999, 1, text, &length), EOPNOTSUPP));
    CHECK(FAILS(setsockopt(s, 999, 1, text, length), ENOPROTOOPT));
    CHECK(FAILS(socket(AF_INET, SOCK_STREAM, 300), EINVAL));
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    CHECK(FAILS(recv(pair[0], text, 1, MSG_OOB | MSG_DONTWAIT), EINVAL));
}

static void of_clocks(void)
{
    struct timespec zero = {0, 0};
    CHECK(FAILS(syscall(SYS_clock_nanosleep, CLOCK_THREAD_CPUTIME_ID, 0, &zero, NULL), EOPNOTSUPP));
    // The calling thread's clock by its other name.
    CHECK(FAILS(syscall(SYS_clock_nanosleep, -2, 0, &zero, NULL), EINVAL));
    CHECK(FAILS(syscall(SYS_clock_settime, CLOCK_PROCESS_CPUTIME_ID, &zero), EINVAL));
    CHECK(FAILS(syscall(SYS_clock_settime, CLOCK_MONOTONIC, BAD), EINVAL));
    CHECK(FAILS(syscall(SYS_clock_adjtime, 99, BAD), EFAULT));
    CHECK(FAILS(setpgid(-1, 0), EINVAL));
}

int main(void)
{
    char dir[] = "/tmp/precedence-XXXXXX";
    CHECK(mkdtemp(dir) != NULL && chdir(dir) == 0);
    of_files();
    whiteouts_are_left();
    ranges_are_taken_out_and_put_in();
    of_sockets();
    of_clocks();
    puts("all precedence tests passed");
    return 0;
}
