// SPDX-License-Identifier: Apache-2.0 OR MIT
// io_uring by system calls: rings, requests of files, sockets and timers, links, cancellation, buffers. Passes on Linux.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>

#include "io_uring.h"

static struct ring ring;
static char bytes[4096];

static void sizes(void)
{
    struct io_uring_params params = {0};
    CHECK(ring_setup(0, &params) == -1 && errno == EINVAL);
    CHECK(ring_setup(40000, &params) == -1 && errno == EINVAL);
    CHECK(ring_setup(4, NULL) == -1 && errno == EFAULT);
    params.resv[1] = 1;
    CHECK(ring_setup(4, &params) == -1 && errno == EINVAL);
    memset(&params, 0, sizeof params);
    params.flags = IORING_SETUP_CQSIZE;
    CHECK(ring_setup(4, &params) == -1 && errno == EINVAL);
    params.cq_entries = 20;
    int fd = ring_setup(3, &params);
    CHECK(fd >= 0 && params.sq_entries == 4 && params.cq_entries == 32);
    unsigned all = IORING_FEAT_SINGLE_MMAP | IORING_FEAT_NODROP | IORING_FEAT_SUBMIT_STABLE | IORING_FEAT_FAST_POLL | IORING_FEAT_EXT_ARG |
                   IORING_FEAT_CQE_SKIP | IORING_FEAT_LINKED_FILE;
    CHECK((params.features & all) == all);
    CHECK(fcntl(fd, F_GETFD) == FD_CLOEXEC);
    CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0x20000000) == MAP_FAILED);
    CHECK(ring_enter(fd, 0, 0, 1 << 20, NULL, 0) == -1 && errno == EINVAL);
    CHECK(ring_enter(0, 0, 0, 0, NULL, 0) == -1 && errno == EOPNOTSUPP);
    CHECK(ring_enter(77, 0, 0, 0, NULL, 0) == -1 && errno == EBADF);
    close(fd);
}

static void files(void)
{
    char path[] = "/tmp/io_uring", other[] = "/tmp/io_uring-2";
    unlink(path), unlink(other);
    ring_entry(&ring, IORING_OP_NOP, -1, NULL, 0, 0, 1);
    CHECK(ring_result(&ring, 1) == 0);
    struct io_uring_sqe *sqe = ring_entry(&ring, IORING_OP_OPENAT, AT_FDCWD, path, 0600, 0, 2);
    sqe->open_flags = O_RDWR | O_CREAT | O_EXCL;
    int fd = ring_result(&ring, 2);
    CHECK(fd >= 0);
    sqe = ring_entry(&ring, IORING_OP_OPENAT, AT_FDCWD, path, 0600, 0, 2);
    sqe->open_flags = O_RDWR | O_CREAT | O_EXCL;
    CHECK(ring_result(&ring, 2) == -EEXIST);
    ring_entry(&ring, IORING_OP_WRITE, fd, "0123456789", 10, 0, 3);
    CHECK(ring_result(&ring, 3) == 10);
    ring_entry(&ring, IORING_OP_READ, fd, bytes, 100, 4, 4);
    CHECK(ring_result(&ring, 4) == 6 && !memcmp(bytes, "456789", 6));
    // The file's position, which moves.
    CHECK(lseek(fd, 2, SEEK_SET) == 2);
    struct iovec pieces[2] = {{bytes, 3}, {bytes + 10, 2}};
    ring_entry(&ring, IORING_OP_READV, fd, pieces, 2, -1, 5);
    CHECK(ring_result(&ring, 5) == 5 && !memcmp(bytes, "234", 3) && !memcmp(bytes + 10, "56", 2) && lseek(fd, 0, SEEK_CUR) == 7);
    pieces[0].iov_base = "ab";
    pieces[0].iov_len = 2;
    pieces[1].iov_len = 0;
    ring_entry(&ring, IORING_OP_WRITEV, fd, pieces, 2, 20, 6);
    CHECK(ring_result(&ring, 6) == 2 && lseek(fd, 0, SEEK_END) == 22);
    ring_entry(&ring, IORING_OP_READ, fd, (void *)8, 10, 0, 7);
    CHECK(ring_result(&ring, 7) == -EFAULT);
    ring_entry(&ring, IORING_OP_READ, 99, bytes, 10, 0, 8);
    CHECK(ring_result(&ring, 8) == -EBADF);
    ring_entry(&ring, IORING_OP_FSYNC, fd, NULL, 0, 0, 9)->fsync_flags = IORING_FSYNC_DATASYNC;
    CHECK(ring_result(&ring, 9) == 0);
    ring_entry(&ring, IORING_OP_FALLOCATE, fd, (void *)100, 0, 0, 10);
    CHECK(ring_result(&ring, 10) == 0 && lseek(fd, 0, SEEK_END) == 100);
    struct statx stat;
    ring_entry(&ring, IORING_OP_STATX, AT_FDCWD, path, STATX_SIZE, (uintptr_t)&stat, 11);
    CHECK(ring_result(&ring, 11) == 0 && stat.stx_size == 100);
    ring_entry(&ring, IORING_OP_RENAMEAT, AT_FDCWD, path, AT_FDCWD, (uintptr_t)other, 12);
    CHECK(ring_result(&ring, 12) == 0 && access(other, F_OK) == 0 && access(path, F_OK) == -1);
    ring_entry(&ring, IORING_OP_LINKAT, AT_FDCWD, other, AT_FDCWD, (uintptr_t)path, 13);
    CHECK(ring_result(&ring, 13) == 0);
    ring_entry(&ring, IORING_OP_UNLINKAT, AT_FDCWD, other, 0, 0, 14);
    CHECK(ring_result(&ring, 14) == 0 && access(other, F_OK) == -1);
    ring_entry(&ring, IORING_OP_SYMLINKAT, AT_FDCWD, path, 0, (uintptr_t)other, 15);
    CHECK(ring_result(&ring, 15) == 0 && readlink(other, bytes, 100) == 13);
    ring_entry(&ring, IORING_OP_UNLINKAT, AT_FDCWD, other, 0, 0, 16);
    CHECK(ring_result(&ring, 16) == 0);
    ring_entry(&ring, IORING_OP_MKDIRAT, AT_FDCWD, other, 0700, 0, 17);
    CHECK(ring_result(&ring, 17) == 0);
    ring_entry(&ring, IORING_OP_UNLINKAT, AT_FDCWD, other, 0, 0, 18)->unlink_flags = AT_REMOVEDIR;
    CHECK(ring_result(&ring, 18) == 0);
    ring_entry(&ring, IORING_OP_MADVISE, -1, ring.memory, 4096, 0, 19)->fadvise_advice = MADV_WILLNEED;
    int advised = ring_result(&ring, 19);
    CHECK(advised == 0 || advised == -EBADF);
    ring_entry(&ring, IORING_OP_CLOSE, fd, NULL, 0, 0, 20);
    CHECK(ring_result(&ring, 20) == 0 && fcntl(fd, F_GETFD) == -1);
    ring_entry(&ring, IORING_OP_CLOSE, ring.fd, NULL, 0, 0, 20);
    CHECK(ring_result(&ring, 20) == -EBADF);
    ring_entry(&ring, 200, fd, NULL, 0, 0, 21);
    CHECK(ring_result(&ring, 21) == -EINVAL);
    ring_entry(&ring, IORING_OP_NOP, fd, NULL, 0, 0, 22)->flags = 0x80;
    CHECK(ring_result(&ring, 22) == -EINVAL);
    unlink(path);
}

static void pipes_and_polls(void)
{
    int pipe[2], second[2];
    CHECK(pipe2(pipe, 0) == 0 && pipe2(second, 0) == 0);
    struct completion cqe;
    // A read that waits; the memory of its pieces is used for something else meanwhile.
    struct iovec piece = {bytes, 5};
    ring_entry(&ring, IORING_OP_READV, pipe[0], &piece, 1, 0, 1);
    CHECK(ring_submit(&ring, 0) == 1 && !ring_reap(&ring, &cqe));
    piece.iov_base = NULL;
    CHECK(write(pipe[1], "hello", 5) == 5);
    cqe = ring_wait(&ring);
    CHECK(cqe.user_data == 1 && cqe.res == 5 && !memcmp(bytes, "hello", 5));
    // Nobody enters the kernel for the ring: the completion comes all the same.
    ring_entry(&ring, IORING_OP_READ, pipe[0], bytes, 5, 0, 2);
    CHECK(ring_submit(&ring, 0) == 1 && write(pipe[1], "again", 5) == 5);
    for (int i = 0; i < 1000 && !ring_reap(&ring, &cqe); i++)
        usleep(1000);
    CHECK(cqe.user_data == 2 && cqe.res == 5);
    ring_entry(&ring, IORING_OP_POLL_ADD, pipe[0], NULL, 0, 0, 3)->poll32_events = POLLIN;
    CHECK(ring_submit(&ring, 0) == 1 && !ring_reap(&ring, &cqe));
    CHECK(write(pipe[1], "x", 1) == 1);
    cqe = ring_wait(&ring);
    CHECK(cqe.user_data == 3 && cqe.res == POLLIN);
    ring_entry(&ring, IORING_OP_POLL_ADD, pipe[1], NULL, 0, 0, 4)->poll32_events = POLLOUT;
    CHECK(ring_result(&ring, 4) == POLLOUT);
    CHECK(read(pipe[0], bytes, 1) == 1);
    // Many events of one request, until it is removed.
    ring_entry(&ring, IORING_OP_POLL_ADD, pipe[0], NULL, IORING_POLL_ADD_MULTI, 0, 5)->poll32_events = POLLIN;
    CHECK(ring_submit(&ring, 0) == 1);
    for (int i = 0; i < 3; i++) {
        CHECK(write(pipe[1], "x", 1) == 1);
        cqe = ring_wait(&ring);
        CHECK(cqe.user_data == 5 && cqe.res == POLLIN && cqe.flags == IORING_CQE_F_MORE && read(pipe[0], bytes, 1) == 1);
    }
    ring_entry(&ring, IORING_OP_POLL_REMOVE, -1, (void *)77, 0, 0, 6);
    CHECK(ring_result(&ring, 6) == -ENOENT);
    struct io_uring_sqe *sqe = ring_entry(&ring, IORING_OP_POLL_REMOVE, -1, (void *)5, 0, 55, 7);
    sqe->len = IORING_POLL_UPDATE_USER_DATA;
    CHECK(ring_result(&ring, 7) == 0);
    ring_entry(&ring, IORING_OP_POLL_REMOVE, -1, (void *)55, 0, 0, 8);
    CHECK(ring_submit(&ring, 2) == 1);
    int removed = 0;
    for (int i = 0; i < 2; i++) {
        cqe = ring_wait(&ring);
        CHECK((cqe.user_data == 8 && cqe.res == 0) || (cqe.user_data == 55 && cqe.res == -ECANCELED));
        removed += cqe.user_data;
    }
    CHECK(removed == 63);
    // Cancelled by name, by file and all together.
    for (int i = 0; i < 3; i++)
        ring_entry(&ring, IORING_OP_READ, pipe[0], bytes, 1, 0, 100 + i);
    CHECK(ring_submit(&ring, 0) == 3);
    ring_entry(&ring, IORING_OP_ASYNC_CANCEL, -1, (void *)101, 0, 0, 9)->flags = IOSQE_IO_HARDLINK;
    ring_entry(&ring, IORING_OP_ASYNC_CANCEL, pipe[0], NULL, 0, 0, 10)->cancel_flags = IORING_ASYNC_CANCEL_FD | IORING_ASYNC_CANCEL_ALL;
    CHECK(ring_submit(&ring, 0) == 2);
    int cancelled = 0;
    for (int i = 0; i < 5; i++) {
        cqe = ring_wait(&ring);
        if (cqe.user_data == 9)
            CHECK(cqe.res == 0);
        else if (cqe.user_data == 10)
            CHECK(cqe.res == 2);
        else
            cancelled += cqe.res == -ECANCELED;
    }
    CHECK(cancelled == 3);
    ring_entry(&ring, IORING_OP_ASYNC_CANCEL, -1, (void *)101, 0, 0, 9);
    CHECK(ring_result(&ring, 9) == -ENOENT);
    // From one pipe to the other.
    sqe = ring_entry(&ring, IORING_OP_SPLICE, second[1], (void *)-1, 4, -1, 11);
    sqe->splice_fd_in = pipe[0];
    CHECK(ring_submit(&ring, 0) == 1 && !ring_reap(&ring, &cqe) && write(pipe[1], "pipe", 4) == 4);
    cqe = ring_wait(&ring);
    CHECK(cqe.user_data == 11 && cqe.res == 4 && read(second[0], bytes, 9) == 4 && !memcmp(bytes, "pipe", 4));
    close(pipe[1]);
    ring_entry(&ring, IORING_OP_READ, pipe[0], bytes, 1, 0, 12);
    CHECK(ring_result(&ring, 12) == 0);
    close(pipe[0]), close(second[0]), close(second[1]);
}

static long milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void timeouts(void)
{
    struct __kernel_timespec soon = {0, 30 * 1000 * 1000}, late = {100, 0}, wrong = {-1, 0};
    long begun = milliseconds();
    ring_entry(&ring, IORING_OP_TIMEOUT, -1, &soon, 1, 0, 1);
    CHECK(ring_result(&ring, 1) == -ETIME && milliseconds() - begun >= 29);
    ring_entry(&ring, IORING_OP_TIMEOUT, -1, &wrong, 1, 0, 1);
    CHECK(ring_result(&ring, 1) == -EINVAL);
    struct __kernel_timespec when = {0};
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    when.tv_sec = now.tv_sec;
    when.tv_nsec = now.tv_nsec;
    ring_entry(&ring, IORING_OP_TIMEOUT, -1, &when, 1, 0, 2)->timeout_flags = IORING_TIMEOUT_ABS | IORING_TIMEOUT_REALTIME;
    CHECK(ring_result(&ring, 2) == -ETIME);
    // By the number of completions.
    ring_entry(&ring, IORING_OP_TIMEOUT, -1, &late, 1, 2, 3);
    CHECK(ring_submit(&ring, 0) == 1);
    ring_entry(&ring, IORING_OP_NOP, -1, NULL, 0, 0, 4);
    ring_entry(&ring, IORING_OP_NOP, -1, NULL, 0, 0, 5);
    CHECK(ring_submit(&ring, 0) == 2);
    unsigned seen = 0;
    for (int i = 0; i < 3; i++) {
        struct completion cqe = ring_wait(&ring);
        CHECK(cqe.res == 0);
        seen |= 1 << cqe.user_data;
    }
    CHECK(seen == 0x38);
    // Removed, and given another time.
    ring_entry(&ring, IORING_OP_TIMEOUT, -1, &late, 1, 0, 6);
    CHECK(ring_submit(&ring, 0) == 1);
    struct io_uring_sqe *sqe = ring_entry(&ring, IORING_OP_TIMEOUT_REMOVE, -1, (void *)6, 0, (uintptr_t)&soon, 7);
    sqe->timeout_flags = IORING_TIMEOUT_UPDATE;
    CHECK(ring_result(&ring, 7) == 0);
    CHECK(ring_wait(&ring).res == -ETIME);
    ring_entry(&ring, IORING_OP_TIMEOUT_REMOVE, -1, (void *)6, 0, 0, 8);
    CHECK(ring_result(&ring, 8) == -ENOENT);
    // Of a call.
    struct io_uring_getevents_arg argument = {.ts = (uintptr_t)&soon};
    begun = milliseconds();
    CHECK(ring_enter(ring.fd, 0, 1, IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG, &argument, sizeof argument) == -1 && errno == ETIME);
    CHECK(milliseconds() - begun >= 29);
    CHECK(ring_enter(ring.fd, 0, 1, IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG, &argument, 8) == -1 && errno == EINVAL);
}

static void links(void)
{
    int pipe[2];
    CHECK(pipe2(pipe, 0) == 0);
    struct __kernel_timespec soon = {0, 20 * 1000 * 1000};
    struct completion cqe;
    // In their order, each behind the one before.
    ring_entry(&ring, IORING_OP_READ, pipe[0], bytes, 3, 0, 1)->flags = IOSQE_IO_LINK;
    ring_entry(&ring, IORING_OP_WRITE, pipe[1], "two", 3, 0, 2)->flags = IOSQE_IO_LINK;
    ring_entry(&ring, IORING_OP_READ, pipe[0], bytes + 10, 3, 0, 3);
    CHECK(ring_submit(&ring, 0) == 3 && !ring_reap(&ring, &cqe) && write(pipe[1], "one", 3) == 3);
    for (unsigned i = 1; i <= 3; i++) {
        cqe = ring_wait(&ring);
        CHECK(cqe.user_data == i && cqe.res == 3);
    }
    CHECK(!memcmp(bytes, "one", 3) && !memcmp(bytes + 10, "two", 3));
    // A failure ends the link, and a hard link goes on.
    ring_entry(&ring, IORING_OP_READ, 99, bytes, 3, 0, 1)->flags = IOSQE_IO_LINK;
    ring_entry(&ring, IORING_OP_NOP, -1, NULL, 0, 0, 2)->flags = IOSQE_IO_LINK;
    ring_entry(&ring, IORING_OP_NOP, -1, NULL, 0, 0, 3);
    ring_entry(&ring, IORING_OP_READ, 99, bytes, 3, 0, 4)->flags = IOSQE_IO_HARDLINK;
    ring_entry(&ring, IORING_OP_NOP, -1, NULL, 0, 0, 5);
    CHECK(ring_submit(&ring, 5) == 5);
    int expected[] = {0, -EBADF, -ECANCELED, -ECANCELED, -EBADF, 0};
    for (int i = 0; i < 5; i++) {
        cqe = ring_wait(&ring);
        CHECK(cqe.res == expected[cqe.user_data]);
    }
    // A submission that is wrong ends all of its link.
    ring_entry(&ring, IORING_OP_NOP, -1, NULL, 0, 0, 1)->flags = IOSQE_IO_LINK;
    ring_entry(&ring, 200, -1, NULL, 0, 0, 2)->flags = IOSQE_IO_LINK;
    ring_entry(&ring, IORING_OP_NOP, -1, NULL, 0, 0, 3);
    CHECK(ring_submit(&ring, 3) == 3);
    int wrong[] = {0, -ECANCELED, -EINVAL, -ECANCELED};
    for (int i = 0; i < 3; i++) {
        cqe = ring_wait(&ring);
        CHECK(cqe.res == wrong[cqe.user_data]);
    }
    // A time for another request.
    ring_entry(&ring, IORING_OP_READ, pipe[0], bytes, 3, 0, 1)->flags = IOSQE_IO_LINK;
    ring_entry(&ring, IORING_OP_LINK_TIMEOUT, -1, &soon, 1, 0, 2);
    CHECK(ring_submit(&ring, 0) == 2);
    int timed[] = {0, -ECANCELED, -ETIME};
    for (int i = 0; i < 2; i++) {
        cqe = ring_wait(&ring);
        CHECK(cqe.res == timed[cqe.user_data]);
    }
    ring_entry(&ring, IORING_OP_NOP, -1, NULL, 0, 0, 1)->flags = IOSQE_IO_LINK;
    ring_entry(&ring, IORING_OP_LINK_TIMEOUT, -1, &soon, 1, 0, 2);
    CHECK(ring_submit(&ring, 2) == 2);
    int in_time[] = {0, 0, -ECANCELED};
    for (int i = 0; i < 2; i++) {
        cqe = ring_wait(&ring);
        CHECK(cqe.res == in_time[cqe.user_data]);
    }
    // Behind everything before.
    ring_entry(&ring, IORING_OP_READ, pipe[0], bytes, 1, 0, 1);
    ring_entry(&ring, IORING_OP_NOP, -1, NULL, 0, 0, 2)->flags = IOSQE_IO_DRAIN;
    ring_entry(&ring, IORING_OP_NOP, -1, NULL, 0, 0, 3);
    CHECK(ring_submit(&ring, 0) == 3 && !ring_reap(&ring, &cqe) && write(pipe[1], "x", 1) == 1);
    for (unsigned i = 1; i <= 3; i++)
        CHECK(ring_wait(&ring).user_data == i);
    // Success that nobody needs to know.
    ring_entry(&ring, IORING_OP_NOP, -1, NULL, 0, 0, 1)->flags = IOSQE_CQE_SKIP_SUCCESS;
    ring_entry(&ring, IORING_OP_READ, 99, bytes, 1, 0, 2)->flags = IOSQE_CQE_SKIP_SUCCESS;
    CHECK(ring_submit(&ring, 1) == 2);
    cqe = ring_wait(&ring);
    CHECK(cqe.user_data == 2 && cqe.res == -EBADF && !ring_reap(&ring, &cqe));
    close(pipe[0]), close(pipe[1]);
}

static void connections(void)
{
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    CHECK(bind(listener, (void *)&address, length) == 0 && listen(listener, 8) == 0);
    CHECK(getsockname(listener, (void *)&address, &length) == 0);
    struct sockaddr_in peer;
    socklen_t peer_length = sizeof peer;
    struct completion cqe;
    ring_entry(&ring, IORING_OP_ACCEPT, listener, &peer, 0, (uintptr_t)&peer_length, 1);
    CHECK(ring_submit(&ring, 0) == 1 && !ring_reap(&ring, &cqe));
    ring_entry(&ring, IORING_OP_SOCKET, AF_INET, NULL, 0, SOCK_STREAM, 2);
    CHECK(ring_submit(&ring, 1) == 1);
    cqe = ring_wait(&ring);
    CHECK(cqe.user_data == 2 && cqe.res >= 0);
    int client = cqe.res, server = -1;
    ring_entry(&ring, IORING_OP_CONNECT, client, &address, 0, length, 3);
    CHECK(ring_submit(&ring, 2) == 1);
    for (int i = 0; i < 2; i++) {
        cqe = ring_wait(&ring);
        if (cqe.user_data == 1)
            server = cqe.res;
        else
            CHECK(cqe.user_data == 3 && cqe.res == 0);
    }
    CHECK(server >= 0 && peer_length == length && peer.sin_family == AF_INET);
    ring_entry(&ring, IORING_OP_RECV, server, bytes, 100, 0, 4);
    CHECK(ring_submit(&ring, 0) == 1 && !ring_reap(&ring, &cqe));
    ring_entry(&ring, IORING_OP_SEND, client, "request", 7, 0, 5);
    CHECK(ring_submit(&ring, 2) == 1);
    for (int i = 0; i < 2; i++) {
        cqe = ring_wait(&ring);
        CHECK(cqe.res == 7);
    }
    CHECK(!memcmp(bytes, "request", 7));
    // Everything that was asked for, in however many pieces it comes.
    ring_entry(&ring, IORING_OP_RECV, server, bytes, 6, 0, 6)->msg_flags = MSG_WAITALL;
    CHECK(ring_submit(&ring, 0) == 1 && send(client, "abc", 3, 0) == 3);
    usleep(5000);
    CHECK(!ring_reap(&ring, &cqe) && send(client, "def", 3, 0) == 3);
    cqe = ring_wait(&ring);
    CHECK(cqe.user_data == 6 && cqe.res == 6 && !memcmp(bytes, "abcdef", 6));
    struct iovec piece = {"message", 7};
    struct msghdr header = {.msg_iov = &piece, .msg_iovlen = 1};
    ring_entry(&ring, IORING_OP_SENDMSG, client, &header, 1, 0, 7);
    CHECK(ring_result(&ring, 7) == 7);
    piece.iov_base = bytes;
    piece.iov_len = 100;
    ring_entry(&ring, IORING_OP_RECVMSG, server, &header, 1, 0, 8);
    CHECK(ring_result(&ring, 8) == 7 && !memcmp(bytes, "message", 7));
    // Provided buffers, each the next of its group.
    static char provided[4][16];
    struct io_uring_sqe *sqe = ring_entry(&ring, IORING_OP_PROVIDE_BUFFERS, 4, provided, 16, 10, 9);
    sqe->buf_group = 3;
    CHECK(ring_result(&ring, 9) == 0 && send(client, "bufferx", 7, 0) == 7);
    sqe = ring_entry(&ring, IORING_OP_RECV, server, NULL, 6, 0, 10);
    sqe->flags = IOSQE_BUFFER_SELECT;
    sqe->buf_group = 3;
    CHECK(ring_submit(&ring, 1) == 1);
    cqe = ring_wait(&ring);
    CHECK(cqe.res == 6 && (cqe.flags & IORING_CQE_F_BUFFER) && cqe.flags >> 16 == 10 && !memcmp(provided[0], "buffer", 6));
    CHECK(recv(server, bytes, 1, 0) == 1);
    // One request for all that comes, until no buffer is left.
    sqe = ring_entry(&ring, IORING_OP_RECV, server, NULL, 0, 0, 11);
    sqe->flags = IOSQE_BUFFER_SELECT;
    sqe->buf_group = 3;
    sqe->ioprio = IORING_RECV_MULTISHOT;
    CHECK(ring_submit(&ring, 0) == 1);
    for (unsigned i = 11; i < 14; i++) {
        CHECK(send(client, "more", 4, 0) == 4);
        cqe = ring_wait(&ring);
        CHECK(cqe.user_data == 11 && cqe.res == 4 && (cqe.flags & IORING_CQE_F_MORE) && cqe.flags >> 16 == i);
    }
    CHECK(send(client, "more", 4, 0) == 4);
    cqe = ring_wait(&ring);
    CHECK(cqe.user_data == 11 && cqe.res == -ENOBUFS && !(cqe.flags & IORING_CQE_F_MORE));
    CHECK(recv(server, bytes, 4, 0) == 4);
    ring_entry(&ring, IORING_OP_SEND_ZC, client, "zc", 2, 0, 12);
    CHECK(ring_submit(&ring, 2) == 1);
    cqe = ring_wait(&ring);
    CHECK(cqe.res == 2 && cqe.flags == IORING_CQE_F_MORE);
    cqe = ring_wait(&ring);
    CHECK(cqe.user_data == 12 && cqe.res == 0 && cqe.flags == IORING_CQE_F_NOTIF);
    ring_entry(&ring, IORING_OP_SHUTDOWN, client, NULL, SHUT_WR, 0, 13);
    CHECK(ring_result(&ring, 13) == 0 && recv(server, bytes, 10, 0) == 2);
    ring_entry(&ring, IORING_OP_RECV, server, bytes, 10, 0, 14);
    CHECK(ring_result(&ring, 14) == 0);
    // One request for all connections.
    ring_entry(&ring, IORING_OP_ACCEPT, listener, NULL, 0, 0, 15)->ioprio = IORING_ACCEPT_MULTISHOT;
    CHECK(ring_submit(&ring, 0) == 1);
    for (int i = 0; i < 3; i++) {
        int another = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(connect(another, (void *)&address, length) == 0);
        cqe = ring_wait(&ring);
        CHECK(cqe.user_data == 15 && cqe.res >= 0 && cqe.flags == IORING_CQE_F_MORE);
        close(another), close(cqe.res);
    }
    ring_entry(&ring, IORING_OP_ASYNC_CANCEL, -1, (void *)15, 0, 0, 16);
    CHECK(ring_submit(&ring, 2) == 1);
    for (int i = 0; i < 2; i++) {
        cqe = ring_wait(&ring);
        CHECK(cqe.user_data == 16 ? cqe.res == 0 : cqe.res == -ECANCELED);
    }
    // Nobody listens.
    close(listener);
    int lonely = socket(AF_INET, SOCK_STREAM, 0);
    ring_entry(&ring, IORING_OP_CONNECT, lonely, &address, 0, length, 17);
    CHECK(ring_result(&ring, 17) == -ECONNREFUSED);
    close(lonely), close(client), close(server);
}

static void registered(void)
{
    int pipe[2], fds[3] = {-1, -1, -1};
    CHECK(pipe2(pipe, 0) == 0);
    CHECK(ring_register(ring.fd, IORING_UNREGISTER_FILES, NULL, 0) == -1 && errno == ENXIO);
    fds[0] = ring.fd;
    CHECK(ring_register(ring.fd, IORING_REGISTER_FILES, fds, 3) == -1 && errno == EBADF);
    fds[0] = pipe[0];
    CHECK(ring_register(ring.fd, IORING_REGISTER_FILES, fds, 3) == 0);
    CHECK(ring_register(ring.fd, IORING_REGISTER_FILES, fds, 3) == -1 && errno == EBUSY);
    struct io_uring_files_update update = {.offset = 2, .fds = (uintptr_t)&pipe[1]};
    CHECK(ring_register(ring.fd, IORING_REGISTER_FILES_UPDATE, &update, 1) == 1);
    // The table has the files, whatever becomes of the descriptors.
    close(pipe[0]), close(pipe[1]);
    ring_entry(&ring, IORING_OP_WRITE, 2, "fixed", 5, 0, 1)->flags = IOSQE_FIXED_FILE;
    CHECK(ring_result(&ring, 1) == 5);
    ring_entry(&ring, IORING_OP_READ, 0, bytes, 10, 0, 2)->flags = IOSQE_FIXED_FILE;
    CHECK(ring_result(&ring, 2) == 5 && !memcmp(bytes, "fixed", 5));
    ring_entry(&ring, IORING_OP_READ, 1, bytes, 10, 0, 3)->flags = IOSQE_FIXED_FILE;
    CHECK(ring_result(&ring, 3) == -EBADF);
    struct io_uring_sqe *sqe = ring_entry(&ring, IORING_OP_OPENAT, AT_FDCWD, "/", 0, 0, 4);
    sqe->open_flags = O_RDONLY;
    sqe->file_index = 2;
    CHECK(ring_result(&ring, 4) == 0);
    ring_entry(&ring, IORING_OP_CLOSE, 0, NULL, 0, 0, 5)->file_index = 2;
    CHECK(ring_result(&ring, 5) == 0);
    ring_entry(&ring, IORING_OP_CLOSE, 0, NULL, 0, 0, 5)->file_index = 2;
    CHECK(ring_result(&ring, 5) == -EBADF);
    CHECK(ring_register(ring.fd, IORING_UNREGISTER_FILES, NULL, 0) == 0);

    static char memory[8192];
    struct iovec buffers[2] = {{memory, 4096}, {NULL, 5}};
    CHECK(ring_register(ring.fd, IORING_REGISTER_BUFFERS, buffers, 2) == -1 && errno == EFAULT);
    CHECK(ring_register(ring.fd, IORING_REGISTER_BUFFERS, buffers, 1) == 0);
    int fd = open("/proc/self/exe", O_RDONLY);
    ring_entry(&ring, IORING_OP_READ_FIXED, fd, memory + 10, 4, 0, 6);
    CHECK(ring_result(&ring, 6) == 4 && !memcmp(memory + 10, "\177ELF", 4));
    ring_entry(&ring, IORING_OP_READ_FIXED, fd, memory + 4000, 100, 0, 7);
    CHECK(ring_result(&ring, 7) == -EFAULT);
    ring_entry(&ring, IORING_OP_READ_FIXED, fd, memory, 4, 0, 8)->buf_index = 1;
    CHECK(ring_result(&ring, 8) == -EFAULT);
    CHECK(ring_register(ring.fd, IORING_UNREGISTER_BUFFERS, NULL, 0) == 0);
    close(fd);

    int count = eventfd(0, EFD_NONBLOCK);
    eventfd_t value;
    CHECK(ring_register(ring.fd, IORING_REGISTER_EVENTFD, &count, 1) == 0);
    ring_entry(&ring, IORING_OP_NOP, -1, NULL, 0, 0, 9);
    CHECK(ring_result(&ring, 9) == 0 && eventfd_read(count, &value) == 0 && value == 1);
    CHECK(ring_register(ring.fd, IORING_UNREGISTER_EVENTFD, NULL, 0) == 0);
    close(count);

    struct io_uring_probe *probe = calloc(1, sizeof *probe + 256 * sizeof(struct io_uring_probe_op));
    CHECK(ring_register(ring.fd, IORING_REGISTER_PROBE, probe, 256) == 0 && probe->last_op >= IORING_OP_SEND_ZC);
    CHECK(probe->ops[IORING_OP_READV].flags == IO_URING_OP_SUPPORTED);
    free(probe);

    // A ring of buffers.
    struct io_uring_buf_ring *group = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct io_uring_buf_reg how = {.ring_addr = (uintptr_t)group, .ring_entries = 8, .bgid = 7};
    CHECK(ring_register(ring.fd, IORING_REGISTER_PBUF_RING, &how, 1) == 0);
    CHECK(ring_register(ring.fd, IORING_REGISTER_PBUF_RING, &how, 1) == -1 && errno == EEXIST);
    group->bufs[0] = (struct io_uring_buf){.addr = (uintptr_t)memory, .len = 100, .bid = 42};
    __atomic_store_n(&group->tail, 1, __ATOMIC_RELEASE);
    CHECK(pipe2(pipe, 0) == 0 && write(pipe[1], "ringed", 6) == 6);
    sqe = ring_entry(&ring, IORING_OP_READ, pipe[0], NULL, 50, 0, 10);
    sqe->flags = IOSQE_BUFFER_SELECT;
    sqe->buf_group = 7;
    CHECK(ring_submit(&ring, 1) == 1);
    struct completion cqe = ring_wait(&ring);
    CHECK(cqe.res == 6 && cqe.flags == (IORING_CQE_F_BUFFER | 42 << 16) && !memcmp(memory, "ringed", 6));
    CHECK(ring_register(ring.fd, IORING_UNREGISTER_PBUF_RING, &how, 1) == 0);
    CHECK(ring_register(ring.fd, IORING_UNREGISTER_PBUF_RING, &how, 1) == -1 && errno == ENOENT);
    close(pipe[0]), close(pipe[1]);
}

static void full(void)
{
    struct ring small;
    ring_new(&small, 4, IORING_SETUP_CQSIZE, 4);
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < 4; i++)
            ring_entry(&small, IORING_OP_NOP, -1, NULL, 0, 0, round * 4 + i);
        CHECK(ring_submit(&small, 0) == 4);
    }
    CHECK(*WORD(&small, sq, flags) & IORING_SQ_CQ_OVERFLOW);
    CHECK(ring_enter(small.fd, 0, 5, IORING_ENTER_GETEVENTS, NULL, 0) == 0 || errno == EBUSY);
    for (unsigned i = 0; i < 12; i++)
        CHECK(ring_wait(&small).user_data == i);
    CHECK(!(*WORD(&small, sq, flags) & IORING_SQ_CQ_OVERFLOW) && *WORD(&small, cq, overflow) == 0);
    // An entry that there is not.
    WORD(&small, sq, array)[small.tail & 3] = 1000;
    small.tail++;
    ring_submit(&small, 0);
    CHECK(*WORD(&small, sq, dropped) == 1);
    ring_free(&small);
}

static void *enters(void *data)
{
    struct ring *other = data;
    CHECK(ring_enter(other->fd, 1, 0, 0, NULL, 0) == -1 && errno == EEXIST);
    return NULL;
}

static void kinds(void)
{
    struct ring other;
    struct completion cqe;
    ring_new(&other, 8, IORING_SETUP_R_DISABLED | IORING_SETUP_SINGLE_ISSUER, 0);
    ring_entry(&other, IORING_OP_NOP, -1, NULL, 0, 0, 1);
    CHECK(ring_submit(&other, 0) == -1 && errno == EBADFD);
    struct io_uring_restriction allowed[2] = {{.opcode = IORING_RESTRICTION_SQE_OP, .sqe_op = IORING_OP_NOP},
                                              {.opcode = IORING_RESTRICTION_REGISTER_OP, .register_op = IORING_REGISTER_ENABLE_RINGS}};
    CHECK(ring_register(other.fd, IORING_REGISTER_RESTRICTIONS, allowed, 2) == 0);
    CHECK(ring_register(other.fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0) == 0);
    CHECK(ring_register(other.fd, IORING_REGISTER_PROBE, NULL, 0) == -1 && errno == EACCES);
    CHECK(ring_enter(other.fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) == 1 && ring_wait(&other).res == 0);
    ring_entry(&other, IORING_OP_READ, 0, bytes, 1, 0, 2);
    CHECK(ring_result(&other, 2) == -EACCES);
    ring_entry(&other, IORING_OP_NOP, -1, NULL, 0, 0, 1);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, enters, &other) == 0 && pthread_join(thread, NULL) == 0);
    ring_free(&other);

    // Work is put off until the thread asks for completions.
    int pipe[2];
    CHECK(pipe2(pipe, 0) == 0);
    ring_new(&other, 8, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG, 0);
    ring_entry(&other, IORING_OP_READ, pipe[0], bytes, 1, 0, 1);
    CHECK(ring_submit(&other, 0) == 1 && write(pipe[1], "x", 1) == 1);
    usleep(20000);
    CHECK(!ring_reap(&other, &cqe) && *WORD(&other, sq, flags) & IORING_SQ_TASKRUN);
    CHECK(ring_wait(&other).res == 1);

    // From ring to ring.
    ring_entry(&ring, IORING_OP_MSG_RING, other.fd, NULL, 77, 1234, 2);
    CHECK(ring_result(&ring, 2) == 0);
    cqe = ring_wait(&other);
    CHECK(cqe.user_data == 1234 && cqe.res == 77);
    ring_entry(&ring, IORING_OP_MSG_RING, pipe[0], NULL, 77, 1234, 2);
    CHECK(ring_result(&ring, 2) == -EBADFD);
    ring_free(&other);

    // Watched as a file.
    struct epoll_event event = {.events = EPOLLIN};
    int epoll = epoll_create1(0);
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, ring.fd, &event) == 0 && epoll_wait(epoll, &event, 1, 0) == 0);
    ring_entry(&ring, IORING_OP_READ, pipe[0], bytes, 1, 0, 3);
    CHECK(ring_submit(&ring, 0) == 1 && write(pipe[1], "y", 1) == 1);
    CHECK(epoll_wait(epoll, &event, 1, 1000) == 1);
    CHECK(ring_wait(&ring).user_data == 3);
    close(epoll);

    // Named by the thread.
    struct io_uring_rsrc_update name = {.offset = -1u, .data = ring.fd};
    CHECK(ring_register(ring.fd, IORING_REGISTER_RING_FDS, &name, 1) == 1);
    ring_entry(&ring, IORING_OP_NOP, -1, NULL, 0, 0, 4);
    __atomic_store_n(WORD(&ring, sq, tail), ring.tail, __ATOMIC_RELEASE);
    CHECK(ring_enter(name.offset, 1, 1, IORING_ENTER_GETEVENTS | IORING_ENTER_REGISTERED_RING, NULL, 0) == 1);
    CHECK(ring_wait(&ring).user_data == 4);
    name.data = 0;
    CHECK(ring_register(ring.fd, IORING_UNREGISTER_RING_FDS, &name, 1) == 1);
    close(pipe[0]), close(pipe[1]);
}

static void nothing(int signal)
{
    (void)signal;
}

// Signals, and the end of processes with requests that wait.
static void ends(void)
{
    int pipe[2];
    CHECK(pipe2(pipe, 0) == 0);
    struct sigaction action = {.sa_handler = nothing};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval soon = {.it_value.tv_usec = 20000};
    setitimer(ITIMER_REAL, &soon, NULL);
    CHECK(ring_enter(ring.fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0) == -1 && errno == EINTR);
    for (int how = 0; how < 4; how++) {
        int child = fork();
        if (child == 0) {
            struct ring own;
            ring_new(&own, 8, 0, 0);
            ring_entry(&own, IORING_OP_READ, pipe[0], bytes, 1, 0, 1);
            // A ring that waits for itself.
            ring_entry(&own, IORING_OP_POLL_ADD, own.fd, NULL, 0, 0, 2)->poll32_events = POLLPRI;
            struct __kernel_timespec late = {100, 0};
            ring_entry(&own, IORING_OP_TIMEOUT, -1, &late, 1, 0, 3);
            CHECK(ring_submit(&own, 0) == 3);
            if (how == 0)
                close(own.fd);
            if (how == 1)
                execl("/proc/self/exe", "io_uring", "again", NULL);
            if (how == 2)
                kill(getpid(), SIGKILL);
            if (how == 3)
                CHECK(ring_enter(own.fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0) == 0);
            _exit(0);
        }
        int status;
        if (how == 3) {
            usleep(20000);
            kill(child, SIGKILL);
        }
        CHECK(child > 0 && waitpid(child, &status, 0) == child);
        CHECK(how < 2 ? status == 0 : WTERMSIG(status) == SIGKILL);
    }
    // Nobody reads the pipe for them any more.
    CHECK(write(pipe[1], "z", 1) == 1 && read(pipe[0], bytes, 2) == 1);
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    close(pair[0]), close(pair[1]), close(pipe[0]), close(pipe[1]);
}

int main(int count, char **words)
{
    if (count > 1 && !strcmp(words[1], "again"))
        return 0;
    sizes();
    ring_new(&ring, 32, 0, 0);
    files();
    pipes_and_polls();
    timeouts();
    links();
    connections();
    registered();
    full();
    kinds();
    ends();
    ring_free(&ring);
    puts("all io_uring tests passed");
    return 0;
}
