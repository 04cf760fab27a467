// SPDX-License-Identifier: Apache-2.0 OR MIT
// As many files and sockets as a program can make, and memory that is used up: calls fail, nothing else does.
#define _GNU_SOURCE
#include "check.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define MANY 100000

static int fds[MANY], many = MANY;

static struct sockaddr_in local(int port) {
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static void close_all(int count) {
    for (int i = 0; i < count; i++)
        CHECK(close(fds[i]) == 0);
}

// More sockets with a name than a table in one block would hold.
static void bound_sockets(void) {
    int count = many < 25000 ? many : 25000;
    for (int i = 0; i < count; i++) {
        struct sockaddr_in address = local(1024 + i);
        fds[i] = socket(AF_INET, SOCK_DGRAM, 0);
        CHECK(fds[i] >= 0 && bind(fds[i], (void *)&address, sizeof address) == 0);
    }
    char byte;
    struct sockaddr_in last = local(1024 + count - 1);
    CHECK(sendto(fds[0], "x", 1, 0, (void *)&last, sizeof last) == 1 && recv(fds[count - 1], &byte, 1, 0) == 1);
    close_all(count);
}

static void many_sockets(void) {
    for (int i = 0; i < many; i++)
        CHECK((fds[i] = socket(i % 2 ? AF_UNIX : AF_INET, i % 4 < 2 ? SOCK_STREAM : SOCK_DGRAM, 0)) >= 0);
    int epoll = epoll_create1(0);
    struct epoll_event event = { .events = EPOLLIN };
    for (int i = 0; i < many; i++)
        CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, fds[i], &event) == 0);
    close(epoll);
    close_all(many);
}

static void many_connections(void) {
    int listener = socket(AF_INET, SOCK_STREAM, 0), count = 0;
    struct sockaddr_in address = local(0);
    socklen_t length = sizeof address;
    CHECK(bind(listener, (void *)&address, length) == 0 && listen(listener, 4096) == 0);
    CHECK(getsockname(listener, (void *)&address, &length) == 0);
    // Clients of two addresses, for one has 28,232 ports.
    for (int from = 1; from <= 2; from++) {
        for (int i = 0; i < 20000 && count + 2 < many; i++) {
            struct sockaddr_in own = local(0);
            own.sin_addr.s_addr = htonl(0x7f000000 + from);
            int client = socket(AF_INET, SOCK_STREAM, 0), one = 1;
            setsockopt(client, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
            CHECK(bind(client, (void *)&own, sizeof own) == 0 && connect(client, (void *)&address, sizeof address) == 0);
            fds[count++] = client;
            CHECK((fds[count++] = accept(listener, NULL, NULL)) >= 0);
        }
    }
    char byte;
    CHECK(write(fds[count - 2], "z", 1) == 1 && read(fds[count - 1], &byte, 1) == 1 && byte == 'z');
    close_all(count);
    close(listener);
}

// Files fill the file system; then sockets, files and epolls are made until they are refused too.
static void full(void) {
    static char block[1 << 20];
    memset(block, 7, sizeof block);
    int file = open("/tmp/unilith-full", O_CREAT | O_RDWR | O_TRUNC, 0600);
    CHECK(file >= 0);
    ssize_t written;
    while ((written = write(file, block, sizeof block)) > 0)
        ;
    CHECK(written == -1 && (errno == ENOSPC || errno == ENOMEM));
    int count = 0, kinds = 0;
    while (count < many) {
        char name[64];
        snprintf(name, sizeof name, "/tmp/unilith-%d", count);
        int fd = kinds == 0 ? socket(AF_INET, SOCK_STREAM, 0)
            : kinds == 1    ? socket(AF_UNIX, SOCK_DGRAM, 0)
            : kinds == 2    ? epoll_create1(0)
            : kinds == 3    ? eventfd(0, 0)
                            : open(name, O_CREAT | O_RDWR, 0600);
        if (kinds == 4)
            unlink(name);
        if (fd < 0) {
            CHECK(errno == ENOMEM || errno == ENOBUFS || errno == ENFILE || errno == ENOSPC);
            if (++kinds == 5)
                break;
            continue;
        }
        fds[count++] = fd;
        if (count % (many / 5) == 0 && ++kinds == 5)
            break;
    }
    // What is refused now works when there is memory again.
    CHECK(ftruncate(file, 0) == 0 && close(file) == 0 && unlink("/tmp/unilith-full") == 0);
    close_all(count);
    many_sockets();
}

int main(int count, char **arguments) {
    struct rlimit limit = { 200000, 200000 };
    if (setrlimit(RLIMIT_NOFILE, &limit)) {
        // An ordinary user of Linux makes as many as it may.
        CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
        limit.rlim_cur = limit.rlim_max;
        CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
        many = limit.rlim_max < MANY ? (int)limit.rlim_max - 10 : MANY;
    }
    bound_sockets();
    many_sockets();
    many_connections();
    // Whoever runs this on Linux says that the file system there may be filled.
    if (count > 1 && strcmp(arguments[1], "fill") == 0)
        full();
    printf("all exhaustion tests passed\n");
    return 0;
}
