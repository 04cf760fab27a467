// SPDX-License-Identifier: Apache-2.0 OR MIT
// Sockets: flags, control messages, options and error cases, over AF_INET, AF_UNIX and socket pairs.
#define _GNU_SOURCE
#include "check.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define FAILS(call, error) (errno = 0, (call) == -1 && errno == (error))

static struct sockaddr_in local(int port) {
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static int port_of(int fd) {
    struct sockaddr_in address;
    socklen_t length = sizeof address;
    CHECK(getsockname(fd, (void *)&address, &length) == 0 && length == sizeof address);
    return ntohs(address.sin_port);
}

static int option(int fd, int level, int name) {
    int value = -1;
    socklen_t length = sizeof value;
    return getsockopt(fd, level, name, &value, &length) ? -errno : value;
}

static void tcp_pair(int pair[2]) {
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = local(0);
    CHECK(bind(listener, (void *)&address, sizeof address) == 0 && listen(listener, 5) == 0);
    address = local(port_of(listener));
    pair[0] = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(pair[0], (void *)&address, sizeof address) == 0);
    pair[1] = accept(listener, NULL, NULL);
    CHECK(pair[1] >= 0 && close(listener) == 0);
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static void making(void) {
    CHECK(FAILS(socket(99, SOCK_STREAM, 0), EAFNOSUPPORT) && FAILS(socket(-1, SOCK_STREAM, 0), EAFNOSUPPORT));
    CHECK(FAILS(socket(AF_INET, 99, 0), EINVAL) && FAILS(socket(AF_INET, SOCK_STREAM, IPPROTO_UDP), EPROTONOSUPPORT));
    CHECK(FAILS(socket(AF_UNIX, SOCK_STREAM, 5), EPROTONOSUPPORT) && FAILS(socket(AF_INET, SOCK_STREAM | 0x100, 0), EINVAL));
    int pair[2];
    CHECK(FAILS(socketpair(AF_INET, SOCK_STREAM, 0, pair), EOPNOTSUPP) && FAILS(socketpair(AF_UNIX, SOCK_STREAM, 0, (int *)-1), EFAULT));
    int tcp = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), udp = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(fcntl(tcp, F_GETFL) == (O_RDWR | O_NONBLOCK) && fcntl(tcp, F_GETFD) == FD_CLOEXEC);
    CHECK(option(tcp, SOL_SOCKET, SO_TYPE) == SOCK_STREAM && option(tcp, SOL_SOCKET, SO_DOMAIN) == AF_INET && option(tcp, SOL_SOCKET, SO_PROTOCOL) == IPPROTO_TCP);
    CHECK(FAILS(bind(0, NULL, 0), ENOTSOCK) || errno == EFAULT || errno == EINVAL);
    int file = open("/dev/null", O_RDWR);
    struct sockaddr_in address = local(0);
    CHECK(FAILS(bind(file, (void *)&address, sizeof address), ENOTSOCK) && FAILS(listen(-1, 1), EBADF));
    CHECK(FAILS(bind(tcp, (void *)&address, 3), EINVAL) && FAILS(bind(tcp, (void *)-1, sizeof address), EFAULT) && FAILS(bind(tcp, (void *)&address, -1), EINVAL) && FAILS(bind(tcp, (void *)&address, 500), EINVAL));
    address.sin_addr.s_addr = htonl(0x08080808);
    CHECK(FAILS(bind(tcp, (void *)&address, sizeof address), EADDRNOTAVAIL));
    address.sin_family = AF_UNIX;
    CHECK(FAILS(bind(tcp, (void *)&address, sizeof address), EAFNOSUPPORT) && FAILS(connect(tcp, (void *)&address, sizeof address), EAFNOSUPPORT));
    address = local(0);
    CHECK(bind(tcp, (void *)&address, sizeof address) == 0 && FAILS(bind(tcp, (void *)&address, sizeof address), EINVAL));
    CHECK(FAILS(listen(udp, 1), EOPNOTSUPP) && FAILS(accept(udp, NULL, NULL), EOPNOTSUPP) && FAILS(accept(tcp, NULL, NULL), EINVAL));
    CHECK(listen(tcp, 1) == 0 && FAILS(accept(tcp, NULL, NULL), EAGAIN) && FAILS(accept4(tcp, NULL, NULL, 1), EINVAL));
    int other = socket(AF_INET, SOCK_STREAM, 0);
    address = local(port_of(tcp));
    CHECK(FAILS(bind(other, (void *)&address, sizeof address), EADDRINUSE) && FAILS(connect(tcp, (void *)&address, sizeof address), EISCONN));
    CHECK(connect(other, (void *)&address, sizeof address) == 0 && FAILS(connect(other, (void *)&address, sizeof address), EISCONN));
    close(tcp), close(other), close(file);
    other = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(FAILS(connect(other, (void *)&address, sizeof address), ECONNREFUSED) && FAILS(connect(other, (void *)&address, 3), EINVAL));
    char byte;
    CHECK(FAILS(recv(other, &byte, 1, 0), ENOTCONN) && FAILS(send(other, &byte, 1, MSG_NOSIGNAL), EPIPE) && FAILS(shutdown(other, SHUT_RD), ENOTCONN));
    socklen_t length = sizeof address;
    CHECK(FAILS(getpeername(other, (void *)&address, &length), ENOTCONN));
    CHECK(FAILS(sendto(udp, &byte, 1, 0, NULL, 0), EDESTADDRREQ) && FAILS(recv(udp, &byte, 1, MSG_DONTWAIT), EAGAIN));
    close(other), close(udp);
}

static void options(void) {
    int tcp = socket(AF_INET, SOCK_STREAM, 0), udp = socket(AF_INET, SOCK_DGRAM, 0), one = 1, value;
    socklen_t length = sizeof value;
    CHECK(FAILS(setsockopt(tcp, SOL_SOCKET, 9999, &one, 4), ENOPROTOOPT) && FAILS(setsockopt(tcp, 9999, 1, &one, 4), ENOPROTOOPT));
    CHECK(FAILS(setsockopt(tcp, SOL_SOCKET, SO_REUSEADDR, &one, 2), EINVAL) && FAILS(setsockopt(tcp, SOL_SOCKET, SO_REUSEADDR, (void *)-1, 4), EFAULT));
    CHECK(FAILS(setsockopt(tcp, SOL_SOCKET, SO_TYPE, &one, 4), ENOPROTOOPT) && FAILS(setsockopt(tcp, SOL_SOCKET, SO_REUSEADDR, &one, -1), EINVAL));
    static const int switches[] = { SO_REUSEADDR, SO_REUSEPORT, SO_KEEPALIVE, SO_BROADCAST, SO_OOBINLINE, SO_DONTROUTE, SO_TIMESTAMP };
    for (unsigned i = 0; i < sizeof switches / sizeof *switches; i++) {
        CHECK(option(tcp, SOL_SOCKET, switches[i]) == 0 && setsockopt(tcp, SOL_SOCKET, switches[i], &one, 4) == 0);
        CHECK(option(tcp, SOL_SOCKET, switches[i]) == 1);
    }
    value = 50000;
    CHECK(setsockopt(tcp, SOL_SOCKET, SO_RCVBUF, &value, 4) == 0 && option(tcp, SOL_SOCKET, SO_RCVBUF) == 100000);
    value = 1;
    CHECK(setsockopt(udp, SOL_SOCKET, SO_SNDBUF, &value, 4) == 0 && option(udp, SOL_SOCKET, SO_SNDBUF) == 4608);
    CHECK(setsockopt(udp, SOL_SOCKET, SO_RCVBUF, &value, 4) == 0 && option(udp, SOL_SOCKET, SO_RCVBUF) == 2304);
    struct linger linger = { 1, 7 };
    CHECK(setsockopt(tcp, SOL_SOCKET, SO_LINGER, &linger, sizeof linger) == 0 && FAILS(setsockopt(tcp, SOL_SOCKET, SO_LINGER, &linger, 4), EINVAL));
    linger.l_linger = 0, length = sizeof linger;
    CHECK(getsockopt(tcp, SOL_SOCKET, SO_LINGER, &linger, &length) == 0 && linger.l_onoff == 1 && linger.l_linger == 7 && length == 8);
    length = 1;
    char byte = 0;
    CHECK(getsockopt(tcp, SOL_SOCKET, SO_TYPE, &byte, &length) == 0 && length == 1 && byte == SOCK_STREAM);
    length = -1;
    CHECK(FAILS(getsockopt(tcp, SOL_SOCKET, SO_TYPE, &value, &length), EINVAL) && FAILS(getsockopt(tcp, SOL_SOCKET, 9999, &value, (length = 4, &length)), ENOPROTOOPT));
    struct timeval time = { 1, 1000000 };
    CHECK(FAILS(setsockopt(tcp, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time), EDOM) && FAILS(setsockopt(tcp, SOL_SOCKET, SO_RCVTIMEO, &time, 4), EINVAL));
    time = (struct timeval){ 0, 50000 };
    CHECK(setsockopt(udp, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time) == 0);
    double start = seconds();
    CHECK(FAILS(recv(udp, &byte, 1, 0), EAGAIN) && seconds() - start > 0.04);
    CHECK(setsockopt(tcp, IPPROTO_TCP, TCP_NODELAY, &one, 4) == 0 && option(tcp, IPPROTO_TCP, TCP_NODELAY) == 1);
    value = 100;
    CHECK(setsockopt(tcp, IPPROTO_TCP, TCP_KEEPIDLE, &value, 4) == 0 && option(tcp, IPPROTO_TCP, TCP_KEEPIDLE) == 100);
    value = 0;
    CHECK(FAILS(setsockopt(tcp, IPPROTO_TCP, TCP_KEEPIDLE, &value, 4), EINVAL) && FAILS(setsockopt(tcp, IPPROTO_TCP, 9999, &one, 4), ENOPROTOOPT));
    value = 64;
    CHECK(setsockopt(udp, IPPROTO_IP, IP_TTL, &value, 4) == 0 && option(udp, IPPROTO_IP, IP_TTL) == 64 && (value = 256) && FAILS(setsockopt(udp, IPPROTO_IP, IP_TTL, &value, 4), EINVAL));
    CHECK(option(tcp, SOL_SOCKET, SO_ERROR) == 0 && option(tcp, SOL_SOCKET, SO_ACCEPTCONN) == 0 && option(tcp, IPPROTO_TCP, TCP_MAXSEG) == 536);
    CHECK(setsockopt(udp, SOL_SOCKET, SO_PRIORITY, (value = 3, &value), 4) == 0 && option(udp, SOL_SOCKET, SO_PRIORITY) == 3);
    CHECK(FAILS(setsockopt(udp, SOL_SOCKET, SO_RCVLOWAT, &one, 2), EINVAL));
    close(tcp), close(udp);
}

static void streams(int pair[2]) {
    char text[64];
    int count;
    CHECK(send(pair[0], "hello", 5, 0) == 5 && recv(pair[1], text, 2, MSG_PEEK) == 2 && recv(pair[1], text, 64, 0) == 5);
    CHECK(FAILS(recv(pair[1], text, 1, MSG_DONTWAIT), EAGAIN) && send(pair[0], "", 0, 0) == 0 && read(pair[1], text, 0) == 0);
    CHECK(send(pair[0], "abcdef", 6, 0) == 6 && recv(pair[1], text, 6, MSG_WAITALL) == 6 && FAILS(recv(pair[1], text, 1, MSG_DONTWAIT | MSG_ERRQUEUE), EAGAIN));
    CHECK(write(pair[0], "xyz", 3) == 3);
    struct pollfd ready = { pair[1], POLLIN, 0 };
    CHECK(poll(&ready, 1, 1000) == 1 && ready.revents == POLLIN && ioctl(pair[1], FIONREAD, &count) == 0 && count == 3);
    struct iovec parts[2] = { { text, 1 }, { text + 8, 8 } };
    struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };
    CHECK(recvmsg(pair[1], &message, 0) == 3 && text[0] == 'x' && text[8] == 'y' && message.msg_flags == 0);
    message.msg_iovlen = 2000;
    CHECK(FAILS(recvmsg(pair[1], &message, MSG_DONTWAIT), EMSGSIZE) && FAILS(sendmsg(pair[1], &message, MSG_DONTWAIT), EMSGSIZE));
    CHECK(FAILS(recvmsg(pair[1], (void *)-1, 0), EFAULT) && FAILS(send(pair[0], (void *)-1, 5, MSG_DONTWAIT), EFAULT));
    CHECK(FAILS(shutdown(pair[0], 9), EINVAL) && shutdown(pair[0], SHUT_WR) == 0 && recv(pair[1], text, 64, 0) == 0);
    CHECK(FAILS(send(pair[0], "x", 1, MSG_NOSIGNAL), EPIPE) && send(pair[1], "back", 4, 0) == 4 && recv(pair[0], text, 64, 0) == 4);
    ready = (struct pollfd){ pair[1], POLLIN | POLLRDHUP, 0 };
    CHECK(poll(&ready, 1, 0) == 1 && ready.revents == (POLLIN | POLLRDHUP));
    close(pair[0]), close(pair[1]);
}

static void lingering(void) {
    // A connection that is thrown away tells the peer so.
    int pair[2];
    char byte;
    tcp_pair(pair);
    struct linger linger = { 1, 0 };
    CHECK(setsockopt(pair[0], SOL_SOCKET, SO_LINGER, &linger, sizeof linger) == 0 && close(pair[0]) == 0);
    CHECK(FAILS(recv(pair[1], &byte, 1, 0), ECONNRESET) && close(pair[1]) == 0);
    // Data that the peer does not take makes close wait as long as it says.
    tcp_pair(pair);
    int small = 4096;
    CHECK(setsockopt(pair[1], SOL_SOCKET, SO_RCVBUF, &small, 4) == 0);
    static char much[1 << 20];
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
    while (send(pair[0], much, sizeof much, 0) > 0) {
    }
    fcntl(pair[0], F_SETFL, 0);
    linger.l_linger = 1;
    CHECK(setsockopt(pair[0], SOL_SOCKET, SO_LINGER, &linger, sizeof linger) == 0);
    double start = seconds();
    CHECK(close(pair[0]) == 0);
    double took = seconds() - start;
    CHECK(took > 0.9 && took < 3);
    close(pair[1]);
}

static void datagrams(void) {
    int a = socket(AF_INET, SOCK_DGRAM, 0), b = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in address = local(0), from;
    CHECK(bind(b, (void *)&address, sizeof address) == 0);
    address = local(port_of(b));
    char text[16];
    socklen_t length = sizeof from;
    CHECK(sendto(a, "datagram", 8, 0, (void *)&address, sizeof address) == 8 && recvfrom(b, text, 4, MSG_TRUNC, (void *)&from, &length) == 8);
    CHECK(length == sizeof from && from.sin_addr.s_addr == htonl(INADDR_LOOPBACK) && ntohs(from.sin_port) == port_of(a));
    CHECK(sendto(a, "", 0, 0, (void *)&address, sizeof address) == 0 && recv(b, text, 16, 0) == 0);
    static char large[70000];
    CHECK(FAILS(sendto(a, large, sizeof large, 0, (void *)&address, sizeof address), EMSGSIZE) && FAILS(sendto(a, large, 65508, 0, (void *)&address, sizeof address), EMSGSIZE));
    CHECK(connect(a, (void *)&address, sizeof address) == 0 && send(a, "1", 1, 0) == 1 && send(a, "22", 2, MSG_MORE) == 2 && send(a, "33", 2, 0) == 2);
    struct iovec part = { text, 1 };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
    CHECK(recv(b, text, 16, 0) == 1 && recvmsg(b, &message, 0) == 1 && message.msg_flags == MSG_TRUNC);
    struct sockaddr_in wrong = local(9);
    wrong.sin_port = 0;
    CHECK(FAILS(sendto(a, "x", 1, 0, (void *)&wrong, sizeof wrong), EINVAL));
    // Nobody there: the next call hears of it.
    close(b);
    CHECK(send(a, "x", 1, 0) == 1 && FAILS(recv(a, text, 1, 0), ECONNREFUSED));
    struct sockaddr none = { .sa_family = AF_UNSPEC };
    CHECK(connect(a, &none, sizeof none) == 0 && FAILS(send(a, "x", 1, 0), EDESTADDRREQ));
    close(a);
    // Both ends many at once.
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
    struct iovec two[2] = { { "one", 3 }, { "three", 5 } };
    struct mmsghdr many[2] = { { { .msg_iov = &two[0], .msg_iovlen = 1 } }, { { .msg_iov = &two[1], .msg_iovlen = 1 } } };
    CHECK(sendmmsg(pair[0], many, 2, 0) == 2 && many[1].msg_len == 5);
    char in[2][8];
    struct iovec into[2] = { { in[0], 8 }, { in[1], 8 } };
    many[0].msg_hdr.msg_iov = &into[0], many[1].msg_hdr.msg_iov = &into[1];
    CHECK(recvmmsg(pair[1], many, 2, MSG_WAITFORONE, NULL) == 2 && many[0].msg_len == 3 && many[1].msg_len == 5 && in[1][0] == 't');
    struct timespec wait = { 0, 1000000000 };
    CHECK(FAILS(recvmmsg(pair[1], many, 2, 0, &wait), EINVAL));
    CHECK(sendmmsg(pair[0], many, 0, 0) == 0);
    close(pair[0]), close(pair[1]);
}

static void control(void) {
    int pair[2], pipes[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && pipe(pipes) == 0);
    union { char bytes[256]; struct cmsghdr align; } buffer;
    char text[8];
    struct iovec part = { "R", 1 };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = &buffer, .msg_controllen = CMSG_SPACE(2 * sizeof(int)) };
    memset(&buffer, 0, sizeof buffer);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *header = (struct cmsghdr){ CMSG_LEN(2 * sizeof(int)), SOL_SOCKET, SCM_RIGHTS };
    memcpy(CMSG_DATA(header), pipes, sizeof pipes);
    CHECK(sendmsg(pair[0], &message, 0) == 1 && write(pair[0], "after", 5) == 5);
    part = (struct iovec){ text, 8 };
    message.msg_controllen = sizeof buffer;
    // Bytes with descriptors are a message of their own even on a stream.
    CHECK(recvmsg(pair[1], &message, MSG_CMSG_CLOEXEC) == 1 && message.msg_flags == MSG_CMSG_CLOEXEC);
    header = CMSG_FIRSTHDR(&message);
    int got[2];
    CHECK(header && header->cmsg_type == SCM_RIGHTS && header->cmsg_len == CMSG_LEN(sizeof got));
    memcpy(got, CMSG_DATA(header), sizeof got);
    CHECK(write(got[1], "via", 3) == 3 && read(pipes[0], text, 8) == 3 && fcntl(got[0], F_GETFD) == FD_CLOEXEC);
    close(got[0]), close(got[1]);
    message.msg_controllen = 0;
    CHECK(recvmsg(pair[1], &message, 0) == 5);
    // Room for one of the two: the other is dropped and said so.
    part = (struct iovec){ "R", 1 };
    message.msg_controllen = CMSG_SPACE(2 * sizeof(int));
    header = CMSG_FIRSTHDR(&message);
    *header = (struct cmsghdr){ CMSG_LEN(2 * sizeof(int)), SOL_SOCKET, SCM_RIGHTS };
    memcpy(CMSG_DATA(header), pipes, sizeof pipes);
    CHECK(sendmsg(pair[0], &message, 0) == 1);
    part = (struct iovec){ text, 8 };
    message.msg_controllen = CMSG_LEN(sizeof(int));
    CHECK(recvmsg(pair[1], &message, 0) == 1 && message.msg_flags == MSG_CTRUNC && CMSG_FIRSTHDR(&message)->cmsg_len == CMSG_LEN(sizeof(int)));
    memcpy(got, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
    close(got[0]);
    // Errors.
    part = (struct iovec){ "R", 1 };
    message.msg_controllen = CMSG_SPACE(2 * sizeof(int));
    header = CMSG_FIRSTHDR(&message);
    int bad[2] = { pipes[0], 9999 };
    *header = (struct cmsghdr){ CMSG_LEN(2 * sizeof(int)), SOL_SOCKET, SCM_RIGHTS };
    memcpy(CMSG_DATA(header), bad, sizeof bad);
    CHECK(FAILS(sendmsg(pair[0], &message, 0), EBADF));
    header->cmsg_len = 4;
    CHECK(FAILS(sendmsg(pair[0], &message, 0), EINVAL));
    *header = (struct cmsghdr){ CMSG_LEN(4), SOL_SOCKET, 99 };
    CHECK(FAILS(sendmsg(pair[0], &message, 0), EINVAL));
    // Who sent it.
    int one = 1;
    CHECK(setsockopt(pair[1], SOL_SOCKET, SO_PASSCRED, &one, 4) == 0 && option(pair[1], SOL_SOCKET, SO_PASSCRED) == 1 && write(pair[0], "c", 1) == 1);
    part = (struct iovec){ text, 8 };
    message.msg_controllen = sizeof buffer;
    CHECK(recvmsg(pair[1], &message, 0) == 1);
    header = CMSG_FIRSTHDR(&message);
    struct ucred who;
    CHECK(header && header->cmsg_type == SCM_CREDENTIALS);
    memcpy(&who, CMSG_DATA(header), sizeof who);
    CHECK(who.pid == getpid() && who.uid == getuid());
    socklen_t length = sizeof who;
    CHECK(getsockopt(pair[0], SOL_SOCKET, SO_PEERCRED, &who, &length) == 0 && who.pid == getpid() && length == sizeof who);
    close(pair[0]), close(pair[1]), close(pipes[0]), close(pipes[1]);
    // Addresses of received datagrams.
    int a = socket(AF_INET, SOCK_DGRAM, 0), b = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in address = local(0);
    CHECK(bind(b, (void *)&address, sizeof address) == 0 && setsockopt(b, IPPROTO_IP, IP_PKTINFO, &one, 4) == 0 && setsockopt(b, IPPROTO_IP, IP_RECVTTL, &one, 4) == 0);
    address = local(port_of(b));
    CHECK(sendto(a, "x", 1, 0, (void *)&address, sizeof address) == 1);
    message.msg_controllen = sizeof buffer;
    CHECK(recvmsg(b, &message, 0) == 1);
    int seen = 0;
    for (header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
        if (header->cmsg_level == IPPROTO_IP && header->cmsg_type == IP_PKTINFO)
            seen |= ((struct in_pktinfo *)CMSG_DATA(header))->ipi_addr.s_addr == htonl(INADDR_LOOPBACK);
        if (header->cmsg_level == IPPROTO_IP && header->cmsg_type == IP_TTL)
            seen |= (*(int *)CMSG_DATA(header) == 64) << 1;
    }
    CHECK(seen == 3);
    close(a), close(b);
}

// One control message of a datagram: sent with it, or found in what came with it.
union message {
    char bytes[CMSG_SPACE(64)];
    struct cmsghdr header;
};

static int send_with(int to, const char *text, int level, int type, const void *data, size_t length) {
    union message control = { 0 };
    struct iovec iov = { (void *)text, strlen(text) };
    struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = CMSG_SPACE(length) };
    control.header = (struct cmsghdr){ .cmsg_len = CMSG_LEN(length), .cmsg_level = level, .cmsg_type = type };
    memcpy(CMSG_DATA(&control.header), data, length);
    return sendmsg(to, &message, 0);
}

static int receive_with(int from, int flags, int level, int type, void *data, size_t length) {
    char text[64], control[512];
    struct iovec iov = { text, sizeof text };
    struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
    int received = recvmsg(from, &message, flags);
    for (struct cmsghdr *one = CMSG_FIRSTHDR(&message); received >= 0 && one; one = CMSG_NXTHDR(&message, one))
        if (one->cmsg_level == level && one->cmsg_type == type) {
            memcpy(data, CMSG_DATA(one), one->cmsg_len - CMSG_LEN(0) < length ? one->cmsg_len - CMSG_LEN(0) : length);
            return received;
        }
    return received < 0 ? received : -2;
}

// What one datagram has of its own, and what recvmsg tells of it.
static void messages(void) {
    int a = socket(AF_INET, SOCK_DGRAM, 0), b = socket(AF_INET, SOCK_DGRAM, 0), one = 1, zero = 0, value = 7;
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) }, found = { 0 };
    socklen_t length = sizeof address;
    CHECK(bind(a, (void *)&address, sizeof address) == 0 && getsockname(a, (void *)&address, &length) == 0 && connect(b, (void *)&address, sizeof address) == 0);
    CHECK(setsockopt(a, IPPROTO_IP, IP_RECVTTL, &one, sizeof one) == 0 && setsockopt(a, IPPROTO_IP, IP_RECVORIGDSTADDR, &one, sizeof one) == 0);
    CHECK(send_with(b, "ttl", IPPROTO_IP, IP_TTL, &value, sizeof value) == 3 && receive_with(a, 0, IPPROTO_IP, IP_TTL, (value = 0, &value), sizeof value) == 3 && value == 7);
    CHECK(FAILS(send_with(b, "x", IPPROTO_IP, IP_TTL, &zero, sizeof zero), EINVAL) && FAILS(send_with(b, "x", IPPROTO_IP, 99, &one, sizeof one), EINVAL));
    CHECK(send(b, "to", 2, 0) == 2 && receive_with(a, 0, IPPROTO_IP, IP_ORIGDSTADDR, &found, sizeof found) == 2 && found.sin_port == address.sin_port && found.sin_addr.s_addr == address.sin_addr.s_addr);
    // Times: one form takes the place of the other.
    struct timespec now, stamp[3] = { 0 };
    CHECK(setsockopt(a, SOL_SOCKET, SO_TIMESTAMP, &one, sizeof one) == 0 && setsockopt(a, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof one) == 0);
    CHECK(getsockopt(a, SOL_SOCKET, SO_TIMESTAMP, &value, (length = sizeof value, &length)) == 0 && value == 0 && clock_gettime(CLOCK_REALTIME, &now) == 0);
    CHECK(send(b, "t", 1, 0) == 1 && receive_with(a, 0, SOL_SOCKET, SO_TIMESTAMPNS, stamp, sizeof *stamp) == 1 && stamp->tv_sec - now.tv_sec >= 0 && stamp->tv_sec - now.tv_sec < 10);
    value = 1 << 3 | 1 << 4; // received in software, report software's
    CHECK(setsockopt(a, SOL_SOCKET, SO_TIMESTAMPING, &value, sizeof value) == 0 && send(b, "t", 1, 0) == 1 && receive_with(a, 0, SOL_SOCKET, SO_TIMESTAMPING, stamp, sizeof stamp) == 1 && stamp->tv_sec >= now.tv_sec);
    CHECK(FAILS(setsockopt(a, SOL_SOCKET, SO_TIMESTAMPING, (value = 1 << 30, &value), sizeof value), EINVAL));
    // UDP_SEGMENT: one send, several datagrams.
    unsigned short segment = 2;
    char text[IFNAMSIZ];
    CHECK(send_with(b, "abcde", IPPROTO_UDP, 103, &segment, sizeof segment) == 5);
    CHECK(recv(a, text, 8, 0) == 2 && recv(a, text, 8, 0) == 2 && recv(a, text, 8, 0) == 1 && text[0] == 'e');
    CHECK(getsockopt(b, IPPROTO_IP, IP_MTU, &value, (length = sizeof value, &length)) == 0 && value > 1000 && FAILS(getsockopt(a, IPPROTO_IP, IP_MTU, &value, &length), ENOTCONN));
    value = IP_PMTUDISC_DO;
    CHECK(setsockopt(b, IPPROTO_IP, IP_MTU_DISCOVER, &value, sizeof value) == 0 && getsockopt(b, IPPROTO_IP, IP_MTU_DISCOVER, (value = 0, &value), &length) == 0 && value == IP_PMTUDISC_DO);
    // A port where nobody listens: the error comes back with the datagram.
    CHECK(setsockopt(b, IPPROTO_IP, IP_RECVERR, &one, sizeof one) == 0 && close(a) == 0 && send(b, "lost", 4, 0) == 4);
    struct { unsigned errno_; unsigned char origin, type, code; } error;
    CHECK(receive_with(b, MSG_ERRQUEUE, IPPROTO_IP, IP_RECVERR, &error, sizeof error) == 4 && error.errno_ == ECONNREFUSED && error.origin == 2 && error.type == 3 && error.code == 3);
    close(b);
    // Interfaces are asked for through sockets of any family.
    int local = socket(AF_UNIX, SOCK_DGRAM, 0);
    struct ifreq request = { .ifr_name = "lo" };
    CHECK(ioctl(local, SIOCGIFINDEX, &request) == 0 && request.ifr_ifindex == 1 && if_nametoindex("lo") == 1 && if_indextoname(1, request.ifr_name) && strcmp(request.ifr_name, "lo") == 0);
    CHECK(FAILS(ioctl(local, 0x1234, &request), ENOTTY) && close(local) == 0);
    // A listener's TCP_MAXSEG is offered to those who connect.
    int listener = socket(AF_INET, SOCK_STREAM, 0), stream = socket(AF_INET, SOCK_STREAM, 0);
    address.sin_port = 0, value = 800;
    CHECK(setsockopt(listener, IPPROTO_TCP, TCP_MAXSEG, &value, sizeof value) == 0 && bind(listener, (void *)&address, sizeof address) == 0 && listen(listener, 1) == 0);
    CHECK(getsockname(listener, (void *)&address, (length = sizeof address, &length)) == 0 && connect(stream, (void *)&address, length) == 0);
    CHECK(getsockopt(stream, IPPROTO_TCP, TCP_MAXSEG, &value, (length = sizeof value, &length)) == 0 && value > 700 && value <= 800);
    CHECK(close(stream) == 0 && close(listener) == 0 && (stream = socket(AF_INET, SOCK_STREAM, 0)) >= 0);
    CHECK(setsockopt(stream, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &one, sizeof one) == 0 && getsockopt(stream, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, (value = 0, &value), &length) == 0 && value == 1);
    CHECK(setsockopt(stream, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3) == 0 && getsockopt(stream, SOL_SOCKET, SO_BINDTODEVICE, text, (length = sizeof text, &length)) == 0 && length == 3 && strcmp(text, "lo") == 0);
    CHECK(FAILS(setsockopt(stream, SOL_SOCKET, SO_BINDTODEVICE, "nowhere", 8), ENODEV) && close(stream) == 0);
}

static void unix_names(void) {
    struct sockaddr_un name = { .sun_family = AF_UNIX, .sun_path = "/tmp/unix-name" }, got;
    socklen_t length = sizeof name;
    unlink(name.sun_path);
    int a = socket(AF_UNIX, SOCK_STREAM, 0), b = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(FAILS(connect(b, (void *)&name, sizeof name), ENOENT) && bind(a, (void *)&name, sizeof name) == 0 && FAILS(connect(b, (void *)&name, sizeof name), ECONNREFUSED));
    CHECK(FAILS(bind(b, (void *)&name, sizeof name), EADDRINUSE) && getsockname(a, (void *)&got, &length) == 0 && length == offsetof(struct sockaddr_un, sun_path) + strlen(name.sun_path) + 1);
    CHECK(listen(a, 1) == 0 && connect(b, (void *)&name, sizeof name) == 0);
    int c = accept(a, (void *)&got, (length = sizeof got, &length));
    CHECK(c >= 0 && length == sizeof(sa_family_t) && getpeername(b, (void *)&got, (length = sizeof got, &length)) == 0 && strcmp(got.sun_path, name.sun_path) == 0);
    int datagram = socket(AF_UNIX, SOCK_DGRAM, 0);
    CHECK(FAILS(connect(datagram, (void *)&name, sizeof name), EPROTOTYPE) && FAILS(open(name.sun_path, O_RDWR), ENXIO));
    CHECK(write(b, "hi", 2) == 2 && close(b) == 0);
    char text[8];
    CHECK(read(c, text, 8) == 2 && read(c, text, 8) == 0 && FAILS(send(c, "x", 1, MSG_NOSIGNAL), EPIPE));
    close(a), close(c), close(datagram), unlink(name.sun_path);
    // Abstract names, and one the kernel chooses.
    a = socket(AF_UNIX, SOCK_DGRAM, 0), b = socket(AF_UNIX, SOCK_DGRAM, 0);
    struct sockaddr_un abstract = { .sun_family = AF_UNIX, .sun_path = "\0some" };
    CHECK(bind(a, (void *)&abstract, 7) == 0 && FAILS(bind(b, (void *)&abstract, 7), EADDRINUSE) && bind(b, (void *)&abstract, sizeof(sa_family_t)) == 0);
    CHECK(getsockname(b, (void *)&got, (length = sizeof got, &length)) == 0 && length == 8 && got.sun_path[0] == 0);
    CHECK(sendto(b, "abs", 3, 0, (void *)&abstract, 7) == 3 && recvfrom(a, text, 8, 0, (void *)&got, (length = sizeof got, &length)) == 3 && length == 8);
    close(a);
    CHECK(FAILS(sendto(b, "abs", 3, 0, (void *)&abstract, 7), ECONNREFUSED));
    close(b);
    // Packets in sequence.
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0 && send(pair[0], "abc", 3, 0) == 3 && send(pair[0], "de", 2, MSG_EOR) == 2);
    CHECK(recv(pair[1], text, 1, MSG_TRUNC) == 3 && recv(pair[1], text, 8, 0) == 2 && close(pair[0]) == 0 && recv(pair[1], text, 8, 0) == 0);
    close(pair[1]);
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    alarm(60);
    int pair[2];
    making();
    options();
    tcp_pair(pair);
    streams(pair);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    streams(pair);
    lingering();
    datagrams();
    control();
    messages();
    unix_names();
    puts("all socket tests passed");
    return 0;
}
