// SPDX-License-Identifier: Apache-2.0 OR MIT
// AF_UNIX: how much goes into a buffer, who waits for room, whose credentials travel, and what addresses mean.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define FAILS(call, error) (errno = 0, (call) == -1 && errno == (error))

static struct sockaddr_un named(const char *name, socklen_t *length) {
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    strcpy(address.sun_path + 1, name);
    *length = offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name);
    return address;
}

static int bound(int type, const char *name) {
    socklen_t length;
    struct sockaddr_un address = named(name, &length);
    int fd = socket(AF_UNIX, type, 0);
    CHECK(fd >= 0 && bind(fd, (void *)&address, length) == 0);
    return fd;
}

static int meets(int fd, const char *name) {
    socklen_t length;
    struct sockaddr_un address = named(name, &length);
    return connect(fd, (void *)&address, length);
}

static ssize_t sends(int fd, const char *name, int flags) {
    socklen_t length;
    struct sockaddr_un address = named(name, &length);
    return sendto(fd, "x", 1, flags, (void *)&address, length);
}

static int has(int fd, short events) {
    struct pollfd entry = { fd, events, 0 };
    return poll(&entry, 1, 0) == 1 && (entry.revents & events) == events;
}

static int option(int fd, int name) {
    int value = -1;
    socklen_t length = sizeof value;
    return getsockopt(fd, SOL_SOCKET, name, &value, &length) ? -errno : value;
}

static void set(int fd, int name, int value) {
    CHECK(setsockopt(fd, SOL_SOCKET, name, &value, sizeof value) == 0);
}

// The largest size that is taken, doubled.
static int largest(const char *which) {
    char path[64];
    int value = 0;
    snprintf(path, sizeof path, "/proc/sys/net/core/%s", which);
    FILE *file = fopen(path, "r");
    CHECK(file && fscanf(file, "%d", &value) == 1 && value > 4608);
    fclose(file);
    return 2 * value;
}

static void buffers(void) {
    int types[] = { SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET }, pair[2];
    char byte;
    for (int i = 0; i < 3; i++) {
        CHECK(socketpair(AF_UNIX, types[i] | SOCK_NONBLOCK, 0, pair) == 0);
        int count = 0;
        while (write(pair[0], "x", 1) == 1)
            CHECK(has(pair[0], POLLOUT) == (++count <= 69));
        CHECK(errno == EAGAIN && count == 278);
        int queued;
        CHECK(ioctl(pair[0], TIOCOUTQ, &queued) == 0 && queued == 278 * 768);
        CHECK(option(pair[0], SO_SNDBUF) == 212992 && option(pair[0], SO_RCVBUF) == 212992);
        while (read(pair[1], &byte, 1) == 1)
            ;
        CHECK(errno == EAGAIN && has(pair[0], POLLOUT));
        set(pair[0], SO_SNDBUF, 1);
        CHECK(option(pair[0], SO_SNDBUF) == 4608);
        for (count = 0; write(pair[0], "x", 1) == 1; count++)
            ;
        CHECK(count == 6);
        set(pair[0], SO_SNDBUF, 1 << 30);
        CHECK(option(pair[0], SO_SNDBUF) == largest("wmem_max") && write(pair[0], "x", 1) == 1);
        set(pair[0], SO_SNDBUF, -1);
        set(pair[0], SO_RCVBUF, 1);
        CHECK(option(pair[0], SO_SNDBUF) == largest("wmem_max") && option(pair[0], SO_RCVBUF) == 2304);
        close(pair[0]), close(pair[1]);
    }
    static char large[1 << 20];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) == 0 && write(pair[0], large, sizeof large) == 219264);
    CHECK(send(pair[0], "", 0, 0) == 0);
    close(pair[0]), close(pair[1]);
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0 && FAILS(write(pair[0], large, 212992 - 31), EMSGSIZE));
    CHECK(write(pair[0], large, 212992 - 32) == 212992 - 32);
    close(pair[0]), close(pair[1]);
}

static void *takes_one(void *argument) {
    char byte;
    usleep(20000);
    CHECK(recv(*(int *)argument, &byte, 1, 0) == 1);
    return NULL;
}

static void full_queues(void) {
    int server = bound(SOCK_DGRAM, "unilith-full"), sender = socket(AF_UNIX, SOCK_DGRAM, 0), most = 0;
    while (sends(sender, "unilith-full", MSG_DONTWAIT) == 1)
        most++;
    CHECK(errno == EAGAIN && most > 0);
    for (int i = 0; i < 100000; i++)
        CHECK(FAILS(sends(sender, "unilith-full", MSG_DONTWAIT), EAGAIN));
    CHECK(meets(sender, "unilith-full") == 0 && !has(sender, POLLOUT) && FAILS(send(sender, "x", 1, MSG_DONTWAIT), EAGAIN));
    // A sender to an address waits, and one that is connected, and one that polls.
    pthread_t thread;
    int other = socket(AF_UNIX, SOCK_DGRAM, 0);
    CHECK(pthread_create(&thread, NULL, takes_one, &server) == 0 && sends(other, "unilith-full", 0) == 1);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(pthread_create(&thread, NULL, takes_one, &server) == 0 && send(sender, "x", 1, 0) == 1);
    CHECK(pthread_join(thread, NULL) == 0);
    struct pollfd entry = { sender, POLLOUT, 0 };
    CHECK(pthread_create(&thread, NULL, takes_one, &server) == 0 && poll(&entry, 1, 10000) == 1);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(close(server) == 0 && FAILS(send(sender, "x", 1, 0), ECONNREFUSED) && FAILS(send(sender, "x", 1, 0), ENOTCONN));
    close(sender), close(other);
}

static void *accepts_one(void *argument) {
    usleep(20000);
    int fd = accept(*(int *)argument, NULL, NULL);
    CHECK(fd >= 0);
    return (void *)(long)fd;
}

static void *closes_it(void *argument) {
    usleep(20000);
    CHECK(shutdown(*(int *)argument, SHUT_RDWR) == 0 && close(*(int *)argument) == 0);
    return NULL;
}

static void full_backlog(void) {
    int listener = bound(SOCK_STREAM, "unilith-backlog"), clients[2];
    CHECK(listen(listener, 0) == 0);
    for (int i = 0; i < 2; i++)
        CHECK((clients[i] = socket(AF_UNIX, SOCK_STREAM, 0)) >= 0);
    CHECK(meets(clients[0], "unilith-backlog") == 0);
    fcntl(clients[1], F_SETFL, O_NONBLOCK);
    CHECK(FAILS(meets(clients[1], "unilith-backlog"), EAGAIN));
    fcntl(clients[1], F_SETFL, 0);
    pthread_t thread;
    void *first;
    CHECK(pthread_create(&thread, NULL, accepts_one, &listener) == 0 && meets(clients[1], "unilith-backlog") == 0);
    CHECK(pthread_join(thread, &first) == 0);
    close((int)(long)first);
    struct timeval soon = { .tv_usec = 10000 };
    int late = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(setsockopt(late, SOL_SOCKET, SO_SNDTIMEO, &soon, sizeof soon) == 0 && FAILS(meets(late, "unilith-backlog"), EAGAIN));
    CHECK(setsockopt(late, SOL_SOCKET, SO_SNDTIMEO, &(struct timeval){ 0 }, sizeof soon) == 0);
    CHECK(pthread_create(&thread, NULL, closes_it, &listener) == 0 && FAILS(meets(late, "unilith-backlog"), ECONNREFUSED));
    CHECK(pthread_join(thread, NULL) == 0);
    close(clients[0]), close(clients[1]), close(late);
}

struct letter {
    int credentials, rights, first;
    struct ucred who;
    struct msghdr header;
};

static struct letter letter(int fd, size_t room) {
    struct letter out = { 0 };
    static char control[256];
    char bytes[8];
    struct iovec part = { bytes, sizeof bytes };
    out.header = (struct msghdr){ .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = room };
    CHECK(recvmsg(fd, &out.header, 0) == 1);
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&out.header); c; c = CMSG_NXTHDR(&out.header, c)) {
        out.first = out.first ? out.first : c->cmsg_type;
        if (c->cmsg_type == SCM_CREDENTIALS)
            out.credentials++, memcpy(&out.who, CMSG_DATA(c), sizeof out.who);
        if (c->cmsg_type == SCM_RIGHTS) {
            int received;
            out.rights++, memcpy(&received, CMSG_DATA(c), sizeof received);
            close(received);
        }
    }
    return out;
}

static void send_fd(int through, int fd) {
    char control[CMSG_SPACE(sizeof fd)] = { 0 };
    struct iovec part = { "x", 1 };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS, header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    CHECK(sendmsg(through, &message, 0) == 1);
}

static void credentials(void) {
    int types[] = { SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET }, pair[2];
    for (int i = 0; i < 3; i++) {
        CHECK(socketpair(AF_UNIX, types[i], 0, pair) == 0);
        CHECK(write(pair[0], "a", 1) == 1);
        set(pair[1], SO_PASSCRED, 1);
        // Sent before anybody asked: it is not known from whom.
        struct letter l = letter(pair[1], 256);
        CHECK(l.credentials == 1 && l.who.pid == 0 && l.who.uid == 65534 && l.who.gid == 65534);
        CHECK(write(pair[0], "b", 1) == 1);
        l = letter(pair[1], 256);
        CHECK(l.credentials == 1 && l.who.pid == getpid() && l.who.uid == getuid() && l.who.gid == getgid());
        // Credentials come before descriptors; what has no room is cut.
        send_fd(pair[0], 0);
        l = letter(pair[1], 256);
        CHECK(l.credentials == 1 && l.rights == 1 && l.first == SCM_CREDENTIALS && !(l.header.msg_flags & MSG_CTRUNC));
        send_fd(pair[0], 0);
        l = letter(pair[1], CMSG_SPACE(sizeof(struct ucred)));
        CHECK(l.credentials == 1 && l.rights == 0 && (l.header.msg_flags & MSG_CTRUNC));
        CHECK(write(pair[0], "c", 1) == 1);
        l = letter(pair[1], 0);
        CHECK(l.credentials == 0 && (l.header.msg_flags & MSG_CTRUNC) && l.header.msg_controllen == 0);
        close(pair[0]), close(pair[1]);
    }
    // What the listener asks for, its connections give.
    int listener = bound(SOCK_STREAM, "unilith-cred"), client = socket(AF_UNIX, SOCK_STREAM, 0);
    set(listener, SO_PASSCRED, 1);
    CHECK(listen(listener, 1) == 0 && meets(client, "unilith-cred") == 0 && write(client, "d", 1) == 1);
    int server = accept(listener, NULL, NULL);
    CHECK(option(server, SO_PASSCRED) == 1);
    struct letter l = letter(server, 256);
    CHECK(l.credentials == 1 && l.who.pid == getpid());
    struct ucred peer;
    socklen_t length = sizeof peer;
    CHECK(getsockopt(client, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.pid == getpid() && peer.uid == geteuid());
    close(listener), close(client), close(server);
    // A socket that asks for credentials gets a name of its own when it sends.
    int target = bound(SOCK_DGRAM, "unilith-auto"), unnamed = socket(AF_UNIX, SOCK_DGRAM, 0);
    set(unnamed, SO_PASSCRED, 1);
    CHECK(sends(unnamed, "unilith-auto", 0) == 1);
    struct sockaddr_un name;
    length = sizeof name;
    CHECK(getsockname(unnamed, (void *)&name, &length) == 0 && length == 8 && name.sun_path[0] == 0);
    close(target), close(unnamed);
}

static volatile int signals;

static void count(int signal) {
    (void)signal;
    signals++;
}

static void addresses(void) {
    int pair[2], stray = bound(SOCK_DGRAM, "unilith-stray");
    signal(SIGPIPE, count);
    char byte;
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0);
    CHECK(sends(pair[0], "nobody-has-this-name", 0) == 1 && read(pair[1], &byte, 1) == 1);
    close(pair[1]);
    CHECK(FAILS(send(pair[0], "x", 1, 0), EPIPE) && signals == 0);
    close(pair[0]);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    CHECK(FAILS(sends(pair[0], "unilith-stray", 0), EISCONN) && FAILS(meets(pair[0], "unilith-stray"), ECONNREFUSED));
    close(pair[1]);
    CHECK(FAILS(send(pair[0], "x", 1, 0), EPIPE) && signals == 1 && FAILS(write(pair[0], "x", 1), EPIPE) && signals == 2);
    close(pair[0]);
    int fresh = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(FAILS(sends(fresh, "unilith-stray", 0), EOPNOTSUPP) && shutdown(fresh, SHUT_RDWR) == 0);
    close(fresh);
    // A name belongs to one type of socket; a path to any.
    int same = bound(SOCK_STREAM, "unilith-stray"), file = socket(AF_UNIX, SOCK_DGRAM, 0);
    struct sockaddr_un path = { .sun_family = AF_UNIX, .sun_path = "/tmp/unilith-unix-test" };
    unlink(path.sun_path);
    CHECK(bind(file, (void *)&path, sizeof path) == 0 && FAILS(connect(same, (void *)&path, sizeof path), EPROTOTYPE));
    CHECK(unlink(path.sun_path) == 0 && close(same) == 0 && close(file) == 0);
    // Who is connected elsewhere takes nothing, and is not connected to.
    int a = bound(SOCK_DGRAM, "unilith-a");
    CHECK(meets(a, "unilith-stray") == 0);
    int b = socket(AF_UNIX, SOCK_DGRAM, 0);
    CHECK(FAILS(meets(b, "unilith-a"), EPERM) && FAILS(sends(b, "unilith-a", 0), EPERM));
    close(a), close(b), close(stray);
}

// A connection that no descriptor is left for stays in the queue.
static void no_descriptor(void) {
    int listener = bound(SOCK_STREAM, "unilith-none"), client = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(listen(listener, 1) == 0 && meets(client, "unilith-none") == 0);
    struct rlimit before, none = { .rlim_cur = client + 1, .rlim_max = 0 };
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    none.rlim_max = before.rlim_max;
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0 && FAILS(accept(listener, NULL, NULL), EMFILE));
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    int server = accept(listener, NULL, NULL);
    char byte;
    CHECK(server >= 0 && write(client, "y", 1) == 1 && read(server, &byte, 1) == 1 && byte == 'y');
    close(listener), close(client), close(server);
}

int main(void) {
    buffers();
    full_queues();
    full_backlog();
    credentials();
    addresses();
    no_descriptor();
    printf("all unix tests passed\n");
    return 0;
}
