// SPDX-License-Identifier: Apache-2.0 OR MIT
// SO_PEEK_OFF, SO_BINDTOIFINDEX, and MSG_ZEROCOPY with its messages of the error queue. Passes on Linux, too.
#define _GNU_SOURCE
#include "check.h"
#include <arpa/inet.h>
#include <linux/errqueue.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef SO_BINDTOIFINDEX
#define SO_BINDTOIFINDEX 62
#endif
#ifndef SO_EE_CODE_ZEROCOPY_COPIED
#define SO_EE_CODE_ZEROCOPY_COPIED 1
#endif

static int set(int s, int option, int value) {
    return setsockopt(s, SOL_SOCKET, option, &value, sizeof value) ? errno : 0;
}

// The value, or minus the error's number less a million.
static int get(int s, int option) {
    int value = 0;
    socklen_t length = sizeof value;
    return getsockopt(s, SOL_SOCKET, option, &value, &length) ? -1000000 - errno : value;
}

// Both ends of a connection of IP, or of two sockets of UDP.
static void internet_pair(int family, int type, int pair[2]) {
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct sockaddr_storage at = {0};
    socklen_t length = family == AF_INET ? sizeof in : sizeof in6;
    memcpy(&at, family == AF_INET ? (void *)&in : (void *)&in6, length);
    int s = socket(family, type, 0);
    CHECK(bind(s, (struct sockaddr *)&at, length) == 0 && getsockname(s, (struct sockaddr *)&at, &length) == 0);
    pair[0] = socket(family, type, 0);
    if (type == SOCK_STREAM)
        CHECK(listen(s, 1) == 0);
    CHECK(connect(pair[0], (struct sockaddr *)&at, length) == 0);
    pair[1] = type == SOCK_STREAM ? accept(s, NULL, NULL) : s;
    CHECK(pair[1] >= 0);
    if (type == SOCK_STREAM)
        close(s);
}

// What recv answers, which does not wait: a length, or minus the error.
static int look(int s, char *to, int room, int flags) {
    memset(to, 0, 16);
    int n = (int)recv(s, to, room, MSG_DONTWAIT | flags);
    return n < 0 ? -errno : n;
}

static int flags_of(int s, int room, int flags) {
    char buffer[64];
    struct iovec piece = {buffer, room};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    CHECK(recvmsg(s, &message, MSG_DONTWAIT | flags) >= 0);
    return message.msg_flags & MSG_TRUNC;
}

static void peek_offsets_of_packets(int pair[2]) {
    char b[64];
    CHECK(get(pair[1], SO_PEEK_OFF) == -1 && set(pair[1], SO_PEEK_OFF, -7) == 0 && get(pair[1], SO_PEEK_OFF) == -7);
    CHECK(set(pair[1], SO_PEEK_OFF, 0) == 0 && look(pair[1], b, 16, MSG_PEEK) == -EAGAIN);
    CHECK(send(pair[0], "abcd", 4, 0) == 4 && send(pair[0], "", 0, 0) == 0 && send(pair[0], "efgh", 4, 0) == 4);
    CHECK(look(pair[1], b, 3, MSG_PEEK) == 3 && strcmp(b, "abc") == 0 && get(pair[1], SO_PEEK_OFF) == 3);
    CHECK(look(pair[1], b, 16, MSG_PEEK) == 1 && strcmp(b, "d") == 0 && get(pair[1], SO_PEEK_OFF) == 4);
    // An empty one is looked at once.
    CHECK(look(pair[1], b, 16, MSG_PEEK) == 0);
    CHECK(look(pair[1], b, 16, MSG_PEEK) == 4 && strcmp(b, "efgh") == 0 && get(pair[1], SO_PEEK_OFF) == 8);
    CHECK(look(pair[1], b, 16, MSG_PEEK) == -EAGAIN && get(pair[1], SO_PEEK_OFF) == 8);
    CHECK(send(pair[0], "ij", 2, 0) == 2 && look(pair[1], b, 16, MSG_PEEK) == 2 && strcmp(b, "ij") == 0);
    // A read takes the first, and its bytes from the offset.
    CHECK(look(pair[1], b, 16, 0) == 4 && strcmp(b, "abcd") == 0 && get(pair[1], SO_PEEK_OFF) == 6);
    CHECK(look(pair[1], b, 16, 0) == 0 && look(pair[1], b, 16, 0) == 4 && get(pair[1], SO_PEEK_OFF) == 2);
    CHECK(look(pair[1], b, 16, 0) == 2 && get(pair[1], SO_PEEK_OFF) == 0);
    CHECK(send(pair[0], "klmn", 4, 0) == 4 && set(pair[1], SO_PEEK_OFF, 2) == 0);
    CHECK(flags_of(pair[1], 1, MSG_PEEK) == MSG_TRUNC && get(pair[1], SO_PEEK_OFF) == 3);
    CHECK(look(pair[1], b, 16, 0) == 4 && get(pair[1], SO_PEEK_OFF) == 0);
    CHECK(set(pair[1], SO_PEEK_OFF, -1) == 0 && send(pair[0], "op", 2, 0) == 2);
    CHECK(look(pair[1], b, 1, MSG_PEEK) == 1 && look(pair[1], b, 16, MSG_PEEK) == 2 && look(pair[1], b, 16, 0) == 2);
    close(pair[0]);
    close(pair[1]);
}

static void peek_offsets_of_a_stream(void) {
    char b[64];
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    CHECK(get(pair[1], SO_PEEK_OFF) == -1 && set(pair[1], SO_PEEK_OFF, 0) == 0);
    CHECK(look(pair[1], b, 16, MSG_PEEK) == -EAGAIN);
    CHECK(send(pair[0], "abcd", 4, 0) == 4 && send(pair[0], "efgh", 4, 0) == 4);
    CHECK(look(pair[1], b, 3, MSG_PEEK) == 3 && strcmp(b, "abc") == 0);
    CHECK(look(pair[1], b, 3, MSG_PEEK) == 3 && strcmp(b, "def") == 0 && get(pair[1], SO_PEEK_OFF) == 6);
    CHECK(look(pair[1], b, 2, 0) == 2 && strcmp(b, "ab") == 0 && get(pair[1], SO_PEEK_OFF) == 4);
    CHECK(look(pair[1], b, 16, MSG_PEEK) == 2 && strcmp(b, "gh") == 0);
    CHECK(look(pair[1], b, 16, MSG_PEEK) == -EAGAIN && get(pair[1], SO_PEEK_OFF) == 6);
    CHECK(look(pair[1], b, 16, 0) == 6 && strcmp(b, "cdefgh") == 0 && get(pair[1], SO_PEEK_OFF) == 0);
    // Without an offset a look sees what a read would take.
    CHECK(set(pair[1], SO_PEEK_OFF, -1) == 0);
    static char large[9000], back[9000];
    for (unsigned i = 0; i < sizeof large; i++)
        large[i] = (char)i;
    CHECK(send(pair[0], large, 5000, 0) == 5000 && send(pair[0], large + 5000, 4000, 0) == 4000);
    CHECK(recv(pair[1], back, sizeof back, MSG_PEEK) == 9000 && memcmp(large, back, sizeof back) == 0);
    CHECK(recv(pair[1], back, sizeof back, 0) == 9000);
    close(pair[0]);
    CHECK(look(pair[1], b, 16, MSG_PEEK) == 0);
    close(pair[1]);
}

static void peek_offsets(void) {
    static const int NONE[][2] = {{AF_NETLINK, SOCK_RAW}};
    int pair[2];
    for (int i = 0; i < 2; i++) {
        internet_pair(i ? AF_INET6 : AF_INET, SOCK_DGRAM, pair);
        peek_offsets_of_packets(pair);
        CHECK(socketpair(AF_UNIX, i ? SOCK_SEQPACKET : SOCK_DGRAM, 0, pair) == 0);
        peek_offsets_of_packets(pair);
    }
    peek_offsets_of_a_stream();
    for (unsigned i = 0; i < sizeof NONE / sizeof *NONE; i++) {
        int s = socket(NONE[i][0], NONE[i][1], 0);
        CHECK(set(s, SO_PEEK_OFF, 0) == EOPNOTSUPP && get(s, SO_PEEK_OFF) == -1000000 - EOPNOTSUPP);
        close(s);
    }
}

static void interfaces(int family, int type) {
    char name[IFNAMSIZ] = "";
    socklen_t length = sizeof name;
    int s = socket(family, type, 0);
    CHECK(get(s, SO_BINDTOIFINDEX) == 0 && set(s, SO_BINDTOIFINDEX, -1) == EINVAL);
    CHECK(set(s, SO_BINDTOIFINDEX, 1) == 0 && get(s, SO_BINDTOIFINDEX) == 1);
    if (family == AF_INET || family == AF_INET6) {
        CHECK(getsockopt(s, SOL_SOCKET, SO_BINDTODEVICE, name, &length) == 0 && length == 3 && strcmp(name, "lo") == 0);
        // A number that no interface has is taken; its name is asked for in vain.
        CHECK(set(s, SO_BINDTOIFINDEX, 12345) == 0 && get(s, SO_BINDTOIFINDEX) == 12345);
        length = sizeof name;
        CHECK(getsockopt(s, SOL_SOCKET, SO_BINDTODEVICE, name, &length) == -1 && errno == ENODEV);
        CHECK(setsockopt(s, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3) == 0 && get(s, SO_BINDTOIFINDEX) == 1);
        CHECK(setsockopt(s, SOL_SOCKET, SO_BINDTODEVICE, "none", 5) == -1 && errno == ENODEV);
        CHECK(get(s, SO_BINDTOIFINDEX) == 1);
    }
    CHECK(set(s, SO_BINDTOIFINDEX, 0) == 0 && get(s, SO_BINDTOIFINDEX) == 0);
    close(s);
}

// A message of the error queue that tells of sends; minus one without.
static int completed(int s, unsigned *first, unsigned *last, int is_v6) {
    union {
        char bytes[CMSG_SPACE(64)];
        struct cmsghdr align;
    } control;
    char byte;
    struct sockaddr_storage from;
    struct iovec piece = {&byte, 1};
    struct msghdr message = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &piece, .msg_iovlen = 1,
                             .msg_control = &control, .msg_controllen = sizeof control};
    if (recvmsg(s, &message, MSG_ERRQUEUE) < 0) {
        CHECK(errno == EAGAIN);
        return -1;
    }
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);
    struct sock_extended_err *error = (void *)CMSG_DATA(c);
    CHECK(message.msg_flags == MSG_ERRQUEUE && message.msg_namelen == 0 && c && CMSG_NXTHDR(&message, c) == NULL);
    CHECK(c->cmsg_level == (is_v6 ? SOL_IPV6 : SOL_IP) && c->cmsg_type == (is_v6 ? IPV6_RECVERR : IP_RECVERR));
    CHECK(c->cmsg_len == CMSG_LEN(sizeof *error + (is_v6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in))));
    CHECK(error->ee_errno == 0 && error->ee_origin == SO_EE_ORIGIN_ZEROCOPY && error->ee_type == 0);
    CHECK(error->ee_code == SO_EE_CODE_ZEROCOPY_COPIED);
    *first = error->ee_info;
    *last = error->ee_data;
    return 0;
}

static void zero_copy(int family, int type) {
    static char large[600000], back[65536];
    int pair[2], is_v6 = family == AF_INET6, is_stream = type == SOCK_STREAM;
    unsigned first = 9, last = 9, next = 0;
    internet_pair(family, type, pair);
    CHECK(get(pair[0], SO_ZEROCOPY) == 0 && set(pair[0], SO_ZEROCOPY, 2) == EINVAL && set(pair[0], SO_ZEROCOPY, -1) == EINVAL);
    // Without the option the flag means nothing.
    CHECK(send(pair[0], "a", 1, MSG_ZEROCOPY) == 1 && recv(pair[1], back, 1, 0) == 1);
    CHECK(completed(pair[0], &first, &last, is_v6) == -1);
    CHECK(set(pair[0], SO_ZEROCOPY, 1) == 0 && get(pair[0], SO_ZEROCOPY) == 1);
    CHECK(send(pair[0], "a", 1, 0) == 1 && recv(pair[1], back, 1, 0) == 1 && completed(pair[0], &first, &last, is_v6) == -1);
    for (int i = 0; i < 3; i++)
        CHECK(send(pair[0], "abc", 3, MSG_ZEROCOPY) == 3 && recv(pair[1], back, 3, is_stream ? MSG_WAITALL : 0) == 3);
    // Three sends, told of in one message or in more.
    while (next < 3) {
        struct pollfd p = {pair[0], 0, 0};
        CHECK(poll(&p, 1, 60000) == 1 && p.revents == POLLERR);
        CHECK(completed(pair[0], &first, &last, is_v6) == 0 && first == next && last >= first && last < 3);
        next = last + 1;
    }
    struct pollfd p = {pair[0], 0, 0};
    CHECK(poll(&p, 1, 0) == 0 && completed(pair[0], &first, &last, is_v6) == -1);
    CHECK(get(pair[0], SO_ERROR) == 0);
    if (is_stream) {
        // However many pieces it goes in, a send has one number.
        int child = fork(), got = 0;
        CHECK(child >= 0);
        if (child == 0) {
            for (int n; got < (int)sizeof large && (n = (int)recv(pair[1], back, sizeof back, 0)) > 0; got += n)
                ;
            _exit(got != sizeof large);
        }
        CHECK(send(pair[0], large, sizeof large, MSG_ZEROCOPY) == sizeof large);
        CHECK(poll(&p, 1, 60000) == 1 && completed(pair[0], &first, &last, is_v6) == 0 && first == 3 && last == 3);
    }
    close(pair[0]);
    close(pair[1]);
}

int main(void) {
    peek_offsets();
    interfaces(AF_INET, SOCK_STREAM);
    interfaces(AF_INET6, SOCK_DGRAM);
    interfaces(AF_NETLINK, SOCK_RAW);
    interfaces(AF_UNIX, SOCK_DGRAM);
    for (int i = 0; i < 2; i++) {
        zero_copy(i ? AF_INET6 : AF_INET, SOCK_STREAM);
        zero_copy(i ? AF_INET6 : AF_INET, SOCK_DGRAM);
    }
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(set(s, SO_ZEROCOPY, 1) == EOPNOTSUPP && get(s, SO_ZEROCOPY) == 0);
    puts("peek offsets and zero copy: ok");
    return 0;
}
