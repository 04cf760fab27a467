// SPDX-License-Identifier: Apache-2.0 OR MIT
// Filters of sockets (socket(7), SO_ATTACH_FILTER) and the programs that choose among sockets of one port
// (SO_ATTACH_REUSEPORT_CBPF): what they see of a packet, what they leave of it, and the errors. Passes on Linux, too.
#define _GNU_SOURCE
#include "check.h"
#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <netinet/ip_icmp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#ifndef SO_ATTACH_REUSEPORT_CBPF
#define SO_ATTACH_REUSEPORT_CBPF 51
#define SO_ATTACH_REUSEPORT_EBPF 52
#endif
#ifndef SO_DETACH_REUSEPORT_BPF
#define SO_DETACH_REUSEPORT_BPF 68
#endif

#define PROGRAM(name, ...)                                                                  \
    static struct sock_filter name##_code[] = {__VA_ARGS__};                                \
    static const struct sock_fprog name = {sizeof name##_code / sizeof *name##_code, name##_code}

PROGRAM(nothing, BPF_STMT(BPF_RET | BPF_K, 0));
PROGRAM(all, BPF_STMT(BPF_RET | BPF_K, 0xffffffff));
PROGRAM(eleven, BPF_STMT(BPF_RET | BPF_K, 11));
// Packets whose first byte is 'x': behind a header of UDP, and at once.
PROGRAM(x_of_udp, BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 8), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 'x', 0, 1),
        BPF_STMT(BPF_RET | BPF_K, 0xffff), BPF_STMT(BPF_RET | BPF_K, 0));
PROGRAM(x, BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 0), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 'x', 0, 1),
        BPF_STMT(BPF_RET | BPF_K, 3), BPF_STMT(BPF_RET | BPF_K, 0));
// The first byte of the payload is a socket's place.
PROGRAM(place, BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 0), BPF_STMT(BPF_RET | BPF_A, 0));
PROGRAM(second, BPF_STMT(BPF_RET | BPF_K, 1));
PROGRAM(bad, BPF_STMT(BPF_LD | BPF_IMM, 0));
PROGRAM(unknown_field, BPF_STMT(BPF_LD | BPF_W | BPF_ABS, SKF_AD_OFF + SKF_AD_MAX), BPF_STMT(BPF_RET | BPF_A, 0));

static int attach(int s, int option, const struct sock_fprog *program) {
    return setsockopt(s, SOL_SOCKET, option, program, sizeof *program) ? errno : 0;
}

static int set(int s, int option, int value) {
    return setsockopt(s, SOL_SOCKET, option, &value, sizeof value) ? errno : 0;
}

// What is there to read, at once: its length, or minus the error.
static int got(int s, char *to, int room) {
    int n = (int)recv(s, to, room, MSG_DONTWAIT);
    return n < 0 ? -errno : n;
}

// The same when it has come.
static int awaited(int s, char *to, int room) {
    struct pollfd p = {s, POLLIN, 0};
    CHECK(poll(&p, 1, 60000) == 1);
    return got(s, to, room);
}

static int bound(int family, int type, struct sockaddr_storage *at, int shared) {
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    socklen_t length = family == AF_INET ? sizeof in : sizeof in6;
    int s = socket(family, type, 0);
    CHECK(s >= 0);
    if (at->ss_family == 0)
        memcpy(at, family == AF_INET ? (void *)&in : (void *)&in6, length);
    if (shared)
        CHECK(set(s, SO_REUSEPORT, 1) == 0);
    CHECK(bind(s, (struct sockaddr *)at, length) == 0);
    CHECK(getsockname(s, (struct sockaddr *)at, &length) == 0);
    return s;
}

static int connected(int family, int type, struct sockaddr_storage *to) {
    int s = socket(family, type, 0);
    CHECK(connect(s, (struct sockaddr *)to, family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6)) == 0);
    return s;
}

static void options(int s) {
    int value = 1;
    struct sock_filter back[8];
    socklen_t length = 0;
    CHECK(set(s, SO_DETACH_FILTER, 0) == ENOENT);
    CHECK(attach(s, SO_ATTACH_FILTER, &bad) == EINVAL);
    CHECK(attach(s, SO_ATTACH_FILTER, &unknown_field) == EINVAL);
    CHECK(setsockopt(s, SOL_SOCKET, SO_ATTACH_FILTER, &all, sizeof all - 1) == -1 && errno == EINVAL);
    CHECK(attach(s, SO_ATTACH_FILTER, &(struct sock_fprog){0, all_code}) == EINVAL);
    CHECK(attach(s, SO_ATTACH_FILTER, &(struct sock_fprog){1, NULL}) == EINVAL);
    CHECK(attach(s, SO_ATTACH_FILTER, &(struct sock_fprog){1, (void *)8}) == EFAULT);
    CHECK(attach(s, SO_ATTACH_FILTER, &(struct sock_fprog){BPF_MAXINSNS + 1, all_code}) == EINVAL);
    CHECK(getsockopt(s, SOL_SOCKET, SO_GET_FILTER, back, &length) == 0 && length == 0);
    CHECK(attach(s, SO_ATTACH_FILTER, &x) == 0);
    // Instructions are counted, not bytes.
    length = 0;
    CHECK(getsockopt(s, SOL_SOCKET, SO_GET_FILTER, NULL, &length) == 0 && length == 4);
    length = 3;
    CHECK(getsockopt(s, SOL_SOCKET, SO_GET_FILTER, back, &length) == -1 && errno == EINVAL);
    length = 8;
    CHECK(getsockopt(s, SOL_SOCKET, SO_GET_FILTER, back, &length) == 0 && length == 4);
    CHECK(memcmp(back, x_code, sizeof x_code) == 0);
    CHECK(attach(s, SO_ATTACH_FILTER, &all) == 0);
    CHECK(set(s, SO_DETACH_FILTER, 0) == 0 && set(s, SO_DETACH_FILTER, 0) == ENOENT);
    // There are no programs of bpf(2) among descriptors.
    CHECK(set(s, SO_ATTACH_BPF, -1) == EBADF && set(s, SO_ATTACH_BPF, s) == EINVAL);
    CHECK(set(s, SO_ATTACH_REUSEPORT_EBPF, -1) == EBADF && set(s, SO_ATTACH_REUSEPORT_EBPF, s) == EINVAL);
    CHECK(setsockopt(s, SOL_SOCKET, SO_ATTACH_BPF, &all, sizeof all) == -1 && errno == EINVAL);
    CHECK(attach(s, SO_ATTACH_FILTER, &all) == 0);
    CHECK(set(s, SO_LOCK_FILTER, 1) == 0 && set(s, SO_LOCK_FILTER, 0) == EPERM && set(s, SO_LOCK_FILTER, 1) == 0);
    CHECK(attach(s, SO_ATTACH_FILTER, &bad) == EPERM && set(s, SO_DETACH_FILTER, 0) == EPERM);
    CHECK(attach(s, SO_ATTACH_REUSEPORT_CBPF, &all) == EPERM);
    CHECK(set(s, SO_ATTACH_BPF, -1) == EPERM && set(s, SO_ATTACH_REUSEPORT_EBPF, s) == EPERM);
    length = sizeof value;
    CHECK(getsockopt(s, SOL_SOCKET, SO_LOCK_FILTER, &value, &length) == 0 && value == 1);
    close(s);
}

static void datagrams(int family) {
    struct sockaddr_storage at = {0};
    char buffer[64];
    int s = bound(family, SOCK_DGRAM, &at, 0), c = connected(family, SOCK_DGRAM, &at);
    CHECK(attach(s, SO_ATTACH_FILTER, &x_of_udp) == 0);
    CHECK(send(c, "y", 1, 0) == 1 && send(c, "xyz", 3, 0) == 3 && send(c, "", 0, 0) == 0);
    CHECK(awaited(s, buffer, sizeof buffer) == 3 && memcmp(buffer, "xyz", 3) == 0);
    CHECK(got(s, buffer, sizeof buffer) == -EAGAIN);
    // The header counts, and is always left.
    CHECK(attach(s, SO_ATTACH_FILTER, &eleven) == 0 && send(c, "abcdef", 6, 0) == 6);
    CHECK(awaited(s, buffer, sizeof buffer) == 3 && memcmp(buffer, "abc", 3) == 0);
    CHECK(attach(s, SO_ATTACH_FILTER, &second) == 0 && send(c, "abcdef", 6, 0) == 6);
    CHECK(awaited(s, buffer, sizeof buffer) == 0);
    CHECK(attach(s, SO_ATTACH_FILTER, &nothing) == 0 && send(c, "abcdef", 6, 0) == 6);
    CHECK(got(s, buffer, sizeof buffer) == -EAGAIN);
    CHECK(set(s, SO_DETACH_FILTER, 0) == 0 && send(c, "abcdef", 6, 0) == 6);
    CHECK(awaited(s, buffer, sizeof buffer) == 6);
    close(s);
    close(c);
}

// Whether a program that loads this answers `value`.
static int is_loaded(int s, int c, unsigned code, unsigned offset, unsigned value) {
    struct sock_filter code_of[] = {BPF_STMT(code, offset), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1),
                                    BPF_STMT(BPF_RET | BPF_K, 0xffff), BPF_STMT(BPF_RET | BPF_K, 0)};
    char buffer[64];
    CHECK(attach(s, SO_ATTACH_FILTER, &(struct sock_fprog){4, code_of}) == 0);
    CHECK(send(c, "payload", 7, 0) == 7);
    return got(s, buffer, sizeof buffer) == 7;
}

static void headers(int family) {
    struct sockaddr_storage at = {0};
    int s = bound(family, SOCK_DGRAM, &at, 0), c = connected(family, SOCK_DGRAM, &at);
    int port = ntohs(((struct sockaddr_in *)&at)->sin_port), is_v6 = family == AF_INET6;
    enum { WORD = BPF_LD | BPF_W | BPF_ABS, HALF = BPF_LD | BPF_H | BPF_ABS, BYTE = BPF_LD | BPF_B | BPF_ABS };
    CHECK(is_loaded(s, c, HALF, 2, port) && is_loaded(s, c, HALF, 4, 15) && is_loaded(s, c, BYTE, 14, 'd'));
    CHECK(!is_loaded(s, c, HALF, 14, 0) && !is_loaded(s, c, BYTE, 15, 0));
    CHECK(is_loaded(s, c, BPF_LD | BPF_W | BPF_LEN, 0, 15));
    CHECK(is_loaded(s, c, BYTE, SKF_NET_OFF + (is_v6 ? 6 : 9), IPPROTO_UDP));
    CHECK(is_loaded(s, c, BYTE, SKF_NET_OFF, is_v6 ? 0x60 : 0x45));
    CHECK(is_loaded(s, c, HALF, SKF_NET_OFF + (is_v6 ? 42 : 22), port));
    CHECK(is_loaded(s, c, HALF, SKF_LL_OFF + 12, is_v6 ? 0x86dd : 0x800) && is_loaded(s, c, WORD, SKF_LL_OFF, 0));
    CHECK(is_loaded(s, c, BYTE, SKF_LL_OFF + 14, is_v6 ? 0x60 : 0x45));
    CHECK(is_loaded(s, c, WORD, SKF_AD_OFF + SKF_AD_PROTOCOL, is_v6 ? 0x86dd : 0x800));
    CHECK(is_loaded(s, c, WORD, SKF_AD_OFF + SKF_AD_PKTTYPE, 0));
    CHECK(is_loaded(s, c, WORD, SKF_AD_OFF + SKF_AD_IFINDEX, 1));
    CHECK(is_loaded(s, c, WORD, SKF_AD_OFF + SKF_AD_HATYPE, 772));
    CHECK(is_loaded(s, c, WORD, SKF_AD_OFF + SKF_AD_PAY_OFFSET, 8));
    CHECK(is_loaded(s, c, WORD, SKF_AD_OFF + SKF_AD_VLAN_TAG_PRESENT, 0));
    close(s);
    close(c);
}

static void connections(int family) {
    struct sockaddr_storage at = {0};
    char buffer[64];
    int listener = bound(family, SOCK_STREAM, &at, 0), value = 0;
    socklen_t length = 0;
    CHECK(listen(listener, 4) == 0 && attach(listener, SO_ATTACH_FILTER, &all) == 0 && set(listener, SO_LOCK_FILTER, 1) == 0);
    int c = connected(family, SOCK_STREAM, &at), s = accept(listener, NULL, NULL);
    // A connection has its listener's filter, and the lock.
    CHECK(getsockopt(s, SOL_SOCKET, SO_GET_FILTER, NULL, &length) == 0 && length == 1);
    length = sizeof value;
    CHECK(getsockopt(s, SOL_SOCKET, SO_LOCK_FILTER, &value, &length) == 0 && value == 1);
    CHECK(attach(s, SO_ATTACH_FILTER, &nothing) == EPERM);
    CHECK(send(c, "hello", 5, 0) == 5 && awaited(s, buffer, sizeof buffer) == 5);
    // What the filter of the other end takes away is sent again.
    CHECK(attach(c, SO_ATTACH_FILTER, &nothing) == 0 && send(s, "again", 5, 0) == 5);
    CHECK(poll(&(struct pollfd){c, POLLIN, 0}, 1, 50) == 0);
    CHECK(set(c, SO_DETACH_FILTER, 0) == 0 && awaited(c, buffer, sizeof buffer) == 5 && memcmp(buffer, "again", 5) == 0);
    // Of a segment at least the header is left: nothing of its data, which comes again.
    CHECK(attach(c, SO_ATTACH_FILTER, &second) == 0 && send(s, "more", 4, 0) == 4);
    CHECK(poll(&(struct pollfd){c, POLLIN, 0}, 1, 50) == 0);
    CHECK(set(c, SO_DETACH_FILTER, 0) == 0 && awaited(c, buffer, sizeof buffer) == 4 && memcmp(buffer, "more", 4) == 0);
    close(c);
    close(s);
    close(listener);
    // A listener that hears of no SYN.
    memset(&at, 0, sizeof at);
    listener = bound(family, SOCK_STREAM, &at, 0);
    CHECK(listen(listener, 4) == 0 && attach(listener, SO_ATTACH_FILTER, &nothing) == 0);
    c = socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK(connect(c, (struct sockaddr *)&at, family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6)) == -1);
    CHECK(errno == EINPROGRESS && poll(&(struct pollfd){c, POLLOUT, 0}, 1, 50) == 0);
    CHECK(set(listener, SO_DETACH_FILTER, 0) == 0 && poll(&(struct pollfd){c, POLLOUT, 0}, 1, 60000) == 1);
    close(c);
    close(listener);
}

static void unix_sockets(void) {
    char buffer[64];
    int pair[2];
    static const int TYPES[] = {SOCK_DGRAM, SOCK_SEQPACKET};
    for (int i = 0; i < 2; i++) {
        CHECK(socketpair(AF_UNIX, TYPES[i], 0, pair) == 0 && attach(pair[1], SO_ATTACH_FILTER, &x) == 0);
        // The sender does not hear of what is lost.
        CHECK(send(pair[0], "abcd", 4, 0) == 4 && send(pair[0], "xbcd", 4, 0) == 4 && send(pair[0], "", 0, 0) == 0);
        CHECK(got(pair[1], buffer, sizeof buffer) == 3 && memcmp(buffer, "xbc", 3) == 0);
        CHECK(got(pair[1], buffer, sizeof buffer) == -EAGAIN);
        CHECK(send(pair[1], "abcd", 4, 0) == 4 && got(pair[0], buffer, sizeof buffer) == 4);
        CHECK(attach(pair[1], SO_ATTACH_REUSEPORT_CBPF, &all) == EINVAL);
        close(pair[0]);
        close(pair[1]);
    }
    // No filter looks at a stream.
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && attach(pair[1], SO_ATTACH_FILTER, &nothing) == 0);
    CHECK(send(pair[0], "abcd", 4, 0) == 4 && got(pair[1], buffer, sizeof buffer) == 4);
    close(pair[0]);
    close(pair[1]);
}

static void netlink(void) {
    struct {
        struct nlmsghdr header;
        struct ifinfomsg info;
    } request = {{sizeof request, RTM_GETLINK, NLM_F_REQUEST, 1, 0}, {.ifi_index = 1}};
    // Answers of the type RTM_NEWLINK, which netlink has in the computer's own order.
    PROGRAM(links, BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 4), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, RTM_NEWLINK << 8, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, 20), BPF_STMT(BPF_RET | BPF_K, 0));
    char buffer[8192];
    int s = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
    CHECK(attach(s, SO_ATTACH_FILTER, &links) == 0 && send(s, &request, sizeof request, 0) == sizeof request);
    CHECK(got(s, buffer, sizeof buffer) == 20);
    request.info.ifi_index = 12345;
    CHECK(send(s, &request, sizeof request, 0) == sizeof request && got(s, buffer, sizeof buffer) == -EAGAIN);
    CHECK(set(s, SO_DETACH_FILTER, 0) == 0 && send(s, &request, sizeof request, 0) == sizeof request);
    CHECK(got(s, buffer, sizeof buffer) > 20);
    close(s);
}

static void raw_sockets(void) {
    PROGRAM(replies, BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, 0), BPF_STMT(BPF_LD | BPF_B | BPF_IND, 0),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ICMP_ECHOREPLY, 0, 1), BPF_STMT(BPF_RET | BPF_K, 24), BPF_STMT(BPF_RET | BPF_K, 0));
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct icmphdr echo = {.type = ICMP_ECHO, .checksum = htons(0xf7ff)};
    char buffer[64];
    int s = socket(AF_INET, SOCK_RAW, IPPROTO_ICMP);
    if (s < 0) {
        CHECK(errno == EPERM);
        puts("no raw sockets: not for this user");
        return;
    }
    CHECK(attach(s, SO_ATTACH_FILTER, &replies) == 0);
    CHECK(sendto(s, &echo, sizeof echo, 0, (struct sockaddr *)&to, sizeof to) == sizeof echo);
    CHECK(awaited(s, buffer, sizeof buffer) == 24 && buffer[20] == ICMP_ECHOREPLY);
    CHECK(got(s, buffer, sizeof buffer) == -EAGAIN);
    close(s);
}

static void groups_of_datagrams(int family) {
    enum { COUNT = 3 };
    struct sockaddr_storage at = {0};
    char buffer[8];
    int s[COUNT], alone = socket(family, SOCK_DGRAM, 0);
    CHECK(attach(alone, SO_ATTACH_REUSEPORT_CBPF, &place) == EINVAL && set(alone, SO_DETACH_REUSEPORT_BPF, 0) == EINVAL);
    CHECK(set(alone, SO_REUSEPORT, 1) == 0 && set(alone, SO_DETACH_REUSEPORT_BPF, 0) == ENOENT);
    CHECK(attach(alone, SO_ATTACH_REUSEPORT_CBPF, &bad) == EINVAL && attach(alone, SO_ATTACH_REUSEPORT_CBPF, &place) == 0);
    CHECK(set(alone, SO_DETACH_REUSEPORT_BPF, 0) == 0 && set(alone, SO_DETACH_REUSEPORT_BPF, 0) == ENOENT);
    close(alone);
    for (int i = 0; i < COUNT; i++)
        s[i] = bound(family, SOCK_DGRAM, &at, 1);
    // Any of them speaks for all.
    CHECK(attach(s[1], SO_ATTACH_REUSEPORT_CBPF, &place) == 0);
    int c = connected(family, SOCK_DGRAM, &at);
    for (int i = COUNT - 1; i >= 0; i--) {
        buffer[0] = (char)i;
        CHECK(send(c, buffer, 1, 0) == 1 && awaited(s[i], buffer, sizeof buffer) == 1 && buffer[0] == i);
    }
    // Who is not there is chosen as without a program.
    buffer[0] = 100;
    CHECK(send(c, buffer, 1, 0) == 1);
    struct pollfd any[COUNT] = {{s[0], POLLIN, 0}, {s[1], POLLIN, 0}, {s[2], POLLIN, 0}};
    CHECK(poll(any, COUNT, 60000) == 1);
    for (int i = 0; i < COUNT; i++)
        if (any[i].revents)
            CHECK(got(s[i], buffer, sizeof buffer) == 1);
    // The last one takes the place of one that goes; a new one has the group's program.
    close(s[0]);
    buffer[0] = 0;
    CHECK(send(c, buffer, 1, 0) == 1 && awaited(s[2], buffer, sizeof buffer) == 1);
    s[0] = bound(family, SOCK_DGRAM, &at, 1);
    buffer[0] = 2;
    CHECK(send(c, buffer, 1, 0) == 1 && awaited(s[0], buffer, sizeof buffer) == 1);
    CHECK(set(s[0], SO_DETACH_REUSEPORT_BPF, 0) == 0 && set(s[1], SO_DETACH_REUSEPORT_BPF, 0) == ENOENT);
    for (int i = 0; i < COUNT; i++)
        close(s[i]);
    close(c);
}

static void groups_of_listeners(int family) {
    struct sockaddr_storage at = {0};
    int first = bound(family, SOCK_STREAM, &at, 1), other = bound(family, SOCK_STREAM, &at, 1);
    CHECK(listen(first, 8) == 0 && listen(other, 8) == 0 && attach(first, SO_ATTACH_REUSEPORT_CBPF, &second) == 0);
    for (int i = 0; i < 6; i++) {
        int c = connected(family, SOCK_STREAM, &at), s = accept(other, NULL, NULL);
        CHECK(s >= 0);
        close(s);
        close(c);
    }
    CHECK(poll(&(struct pollfd){first, POLLIN, 0}, 1, 0) == 0);
    CHECK(set(other, SO_DETACH_REUSEPORT_BPF, 0) == 0 && set(first, SO_DETACH_REUSEPORT_BPF, 0) == ENOENT);
    close(first);
    close(other);
}

int main(void) {
    static const int FAMILIES[] = {AF_INET, AF_INET6};
    static const struct {
        int family, type;
    } KINDS[] = {{AF_INET, SOCK_STREAM},  {AF_INET6, SOCK_STREAM}, {AF_INET, SOCK_DGRAM},    {AF_INET6, SOCK_DGRAM},
                 {AF_UNIX, SOCK_STREAM},  {AF_UNIX, SOCK_DGRAM},   {AF_UNIX, SOCK_SEQPACKET}, {AF_NETLINK, SOCK_RAW}};
    for (unsigned i = 0; i < sizeof KINDS / sizeof *KINDS; i++)
        options(socket(KINDS[i].family, KINDS[i].type, 0));
    for (int i = 0; i < 2; i++) {
        datagrams(FAMILIES[i]);
        headers(FAMILIES[i]);
        connections(FAMILIES[i]);
        groups_of_datagrams(FAMILIES[i]);
        groups_of_listeners(FAMILIES[i]);
    }
    unix_sockets();
    netlink();
    raw_sockets();
    puts("socket filters: ok");
    return 0;
}
