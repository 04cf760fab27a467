// SPDX-License-Identifier: Apache-2.0 OR MIT
// Sockets in flight (SCM_RIGHTS) that only each other's queues hold: they are closed, and their peers told.
#define _GNU_SOURCE
#include "check.h"
#include <poll.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define HANG 60000
static char bytes[100000];

static int pass(int by, int what, size_t length) {
    char control[CMSG_SPACE(sizeof what)] = { 0 };
    struct iovec part = { bytes, length };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS, header->cmsg_len = CMSG_LEN(sizeof what);
    memcpy(CMSG_DATA(header), &what, sizeof what);
    return sendmsg(by, &message, 0) == (ssize_t)length;
}

static void pair(int fds[2]) {
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
}

// Linux looks when a socket ends, and here closing any handle of one in flight does too.
static void another_socket_ends(void) {
    close(socket(AF_UNIX, SOCK_STREAM, 0));
}

static int hangs_up(int fd) {
    struct pollfd one = { fd, 0, 0 };
    return poll(&one, 1, HANG) == 1 && (one.revents & POLLHUP);
}

static int is_connected(int fd) {
    struct pollfd one = { fd, 0, 0 };
    return poll(&one, 1, 0) == 0;
}

static void circle_of(int count) {
    int (*ends)[2] = calloc(count, sizeof *ends);
    CHECK(ends != NULL);
    for (int i = 0; i < count; i++)
        pair(ends[i]);
    // ends[i][0] is in the queue of ends[i + 1][0].
    for (int i = 0; i < count; i++)
        CHECK(pass(ends[(i + 1) % count][1], ends[i][0], 1));
    for (int i = 1; i < count; i++)
        CHECK(close(ends[i][0]) == 0);
    another_socket_ends();
    for (int i = 0; i < count; i++)
        CHECK(is_connected(ends[i][1]));
    // What the last handle holds is taken out and goes round.
    char byte;
    CHECK(write(ends[count - 1][1], "y", 1) == 1 && is_connected(ends[0][1]));
    CHECK(close(ends[0][0]) == 0);
    another_socket_ends();
    for (int i = 0; i < count; i++) {
        CHECK(hangs_up(ends[i][1]));
        // Nothing says that it had something unread.
        CHECK(read(ends[i][1], &byte, 1) == 0);
        CHECK(close(ends[i][1]) == 0);
    }
    free(ends);
}

static void listener_in_a_queue_of_its_own(void) {
    struct sockaddr_un name = { .sun_family = AF_UNIX };
    socklen_t length = sizeof(sa_family_t);
    int listener = socket(AF_UNIX, SOCK_STREAM, 0), client = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(bind(listener, (void *)&name, length) == 0 && listen(listener, 3) == 0);
    length = sizeof name;
    CHECK(getsockname(listener, (void *)&name, &length) == 0 && connect(client, (void *)&name, length) == 0);
    CHECK(pass(client, listener, 1) && close(listener) == 0);
    another_socket_ends();
    CHECK(hangs_up(client));
    int again = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(connect(again, (void *)&name, length) == -1 && errno == ECONNREFUSED);
    CHECK(close(again) == 0 && close(client) == 0);
}

static void peeked_descriptor_keeps_a_circle(void) {
    int a[2], control_fd = -1;
    pair(a);
    CHECK(pass(a[1], a[0], 1) && pass(a[0], a[1], 1));
    char byte, control[CMSG_SPACE(sizeof control_fd)];
    struct iovec part = { &byte, 1 };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
    CHECK(recvmsg(a[0], &message, MSG_PEEK) == 1);
    memcpy(&control_fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof control_fd);
    CHECK(close(a[0]) == 0 && close(a[1]) == 0);
    another_socket_ends();
    // The peeked descriptor is a[0] still, whose queue holds itself, and whose peer is in its own queue.
    CHECK(is_connected(control_fd) || hangs_up(control_fd));
    CHECK(recv(control_fd, &byte, 1, 0) == 1 && close(control_fd) == 0);
    another_socket_ends();
}

// Far more than the machine has memory for, and than may be in flight.
static void circles_leave_nothing(void) {
    struct rlimit limit = { 256, 256 };
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    for (int round = 0; round < 6000; round++) {
        int a[2], b[2];
        pair(a), pair(b);
        CHECK(pass(a[1], b[0], sizeof bytes) && pass(b[1], a[0], sizeof bytes));
        CHECK(close(a[0]) == 0 && close(b[0]) == 0 && close(a[1]) == 0 && close(b[1]) == 0);
    }
}

int main(void) {
    circle_of(1);
    circle_of(2);
    circle_of(300);
    listener_in_a_queue_of_its_own();
    peeked_descriptor_keeps_a_circle();
    circles_leave_nothing();
    puts("all flight tests passed");
}
