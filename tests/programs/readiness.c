// SPDX-License-Identifier: Apache-2.0 OR MIT
// Files within files, and who is woken: nesting of epoll instances and of sockets in flight, ends that epoll knows, wake-ups
// that nobody used.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define FAILS(call, error) (errno = 0, (call) == -1 && errno == (error))

static int watch(int epoll, int fd, unsigned events) {
    struct epoll_event event = { .events = events, .data.fd = fd };
    return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

static int ready(int epoll, int milliseconds) {
    struct epoll_event event[8];
    return epoll_wait(epoll, event, 8, milliseconds);
}

static void ring(int fd) {
    unsigned long one = 1;
    CHECK(write(fd, &one, 8) == 8);
}

static void send_fd(int through, int fd) {
    char byte = 'x', control[CMSG_SPACE(sizeof fd)] = { 0 };
    struct iovec part = { &byte, 1 };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    CHECK(sendmsg(through, &message, 0) == 1);
}

// Each pair of sockets is sent through the next; a pipe's end is in the innermost. Closing the outermost closes all.
static void sockets_in_sockets(int depth) {
    int ends[2], pair[2];
    CHECK(pipe(ends) == 0);
    int inner[2] = { ends[1], -1 };
    for (int i = 0; i < depth; i++) {
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
        for (int j = 0; j < 2 && inner[j] >= 0; j++) {
            send_fd(pair[0], inner[j]);
            CHECK(close(inner[j]) == 0);
        }
        memcpy(inner, pair, sizeof inner);
    }
    CHECK(close(inner[0]) == 0 && close(inner[1]) == 0);
    char byte;
    CHECK(read(ends[0], &byte, 1) == 0 && close(ends[0]) == 0);
}

static void epolls_in_epolls(void) {
    int fds[600];
    for (int i = 0; i < 600; i++)
        CHECK((fds[i] = epoll_create1(0)) >= 0);
    // From the top: what is below is short each time, what is above grows.
    for (int i = 0; i < 4; i++)
        CHECK(watch(fds[i], fds[i + 1], EPOLLIN) == 0);
    for (int i = 4; i < 599; i++)
        CHECK(FAILS(watch(fds[4], fds[i + 1], EPOLLIN), ELOOP));
    CHECK(FAILS(watch(fds[4], fds[0], EPOLLIN), ELOOP));
    int event = eventfd(0, EFD_NONBLOCK);
    CHECK(watch(fds[4], event, EPOLLIN) == 0 && ready(fds[0], 0) == 0);
    ring(event);
    CHECK(ready(fds[0], 0) == 1);
    CHECK(epoll_ctl(fds[3], EPOLL_CTL_DEL, fds[4], NULL) == 0 && ready(fds[0], 0) == 0);
    // Two chains of three links each are six together.
    for (int i = 10; i < 13; i++)
        CHECK(watch(fds[i], fds[i + 1], EPOLLIN) == 0 && watch(fds[i + 10], fds[i + 11], EPOLLIN) == 0);
    CHECK(FAILS(watch(fds[13], fds[20], EPOLLIN), ELOOP) && FAILS(watch(fds[13], fds[10], EPOLLIN), ELOOP));
    for (int i = 0; i < 600; i++)
        close(fds[i]);
    close(event);
}

static void edges(void) {
    int child = epoll_create1(0), parent = epoll_create1(0), event = eventfd(0, EFD_NONBLOCK);
    CHECK(watch(child, event, EPOLLIN) == 0 && watch(parent, child, EPOLLIN | EPOLLET) == 0);
    for (int i = 0; i < 3; i++) {
        ring(event);
        CHECK(ready(parent, 0) == 1 && ready(parent, 0) == 0);
        CHECK(ready(child, 0) == 1);
    }
    close(child), close(parent), close(event);
}

// Adding and removing a descriptor that is ready leaves nothing behind.
static void coming_and_going(void) {
    int epoll = epoll_create1(0), ends[2];
    CHECK(pipe(ends) == 0);
    for (int i = 0; i < 300000; i++)
        CHECK(watch(epoll, ends[1], EPOLLOUT) == 0 && epoll_ctl(epoll, EPOLL_CTL_DEL, ends[1], NULL) == 0);
    CHECK(watch(epoll, ends[1], EPOLLOUT) == 0 && ready(epoll, 0) == 1);
    // epoll knows the end, and has it on its list.
    CHECK(close(ends[1]) == 0);
    char byte;
    CHECK(read(ends[0], &byte, 1) == 0 && ready(epoll, 0) == 0);
    close(ends[0]), close(epoll);
}

static void *waits(void *argument) {
    return (void *)(long)ready(*(int *)argument, 10000);
}

// Of two exclusive instances the first is waited on by nobody: the second one's waiter hears of the event.
static void exclusive(void) {
    int idle = epoll_create1(0), waiting = epoll_create1(0), event = eventfd(0, EFD_NONBLOCK);
    CHECK(watch(idle, event, EPOLLIN | EPOLLEXCLUSIVE) == 0 && watch(waiting, event, EPOLLIN | EPOLLEXCLUSIVE) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, waits, &waiting) == 0);
    usleep(50000);
    ring(event);
    void *found;
    CHECK(pthread_join(thread, &found) == 0 && (long)found == 1);
    close(idle), close(waiting), close(event);
}

static volatile int signals;

static void count(int signal) {
    (void)signal;
    signals++;
}

static void *reads_some(void *argument) {
    static char buffer[65536];
    int *ends = argument;
    CHECK(read(ends[0], buffer, sizeof buffer) > 0);
    usleep(20000);
    close(ends[0]);
    return NULL;
}

// The reader goes while a long write is half done: the writer hears how much was written, and of the broken pipe.
static void broken_pipe(void) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    signal(SIGPIPE, count);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, reads_some, ends) == 0);
    static char buffer[1 << 20];
    ssize_t written = write(ends[1], buffer, sizeof buffer);
    CHECK(written > 0 && written < (ssize_t)sizeof buffer && signals == 1);
    pthread_join(thread, NULL);
    close(ends[1]);
}

int main(void) {
    sockets_in_sockets(450);
    epolls_in_epolls();
    edges();
    coming_and_going();
    exclusive();
    broken_pipe();
    printf("all readiness tests passed\n");
    return 0;
}
