// SPDX-License-Identifier: Apache-2.0 OR MIT
// Raw sockets of AF_INET6 (RFC 3542 3) on ::1: checksums, filters, headers of the program's own, echoes, addresses and their errors;
// and shutdown(2) of raw sockets of both families. For who may make raw sockets. Passes on Linux, too.
#define _GNU_SOURCE
#include "check.h"
#include <arpa/inet.h>
#include <netinet/icmp6.h>
#include <netinet/in.h>
#include <netinet/ip6.h>
#include <netinet/ip_icmp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define RAW_CHECKSUM 7
#ifndef IPV6_HDRINCL
#define IPV6_HDRINCL 36
#endif
#define FAILS(call, error) CHECK((call) == -1 && errno == (error))

static struct sockaddr_in6 own = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};

static int raw(int family, int protocol) {
    int s = socket(family, SOCK_RAW, protocol);
    CHECK(s >= 0);
    return s;
}

static int set(int s, int level, int option, int value) {
    return setsockopt(s, level, option, &value, sizeof value) ? errno : 0;
}

// The value, or minus the error's number less a million.
static int get(int s, int level, int option) {
    int value = 0;
    socklen_t length = sizeof value;
    return getsockopt(s, level, option, &value, &length) ? -1000000 - errno : value;
}

static ssize_t to(int s, const void *bytes, int length, const struct sockaddr_in6 *address) {
    return sendto(s, bytes, length, 0, (const struct sockaddr *)address, sizeof *address);
}

static struct sockaddr_in6 address(const char *text, int port) {
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    CHECK(inet_pton(AF_INET6, text, &at.sin6_addr) == 1);
    return at;
}

static int got(int s, void *buffer, int room) {
    int n = (int)recv(s, buffer, room, MSG_DONTWAIT);
    return n < 0 ? -errno : n;
}

static void checksums(void) {
    unsigned char b[64];
    int icmp = raw(AF_INET6, IPPROTO_ICMPV6), udp = raw(AF_INET6, IPPROTO_UDP), s = raw(AF_INET6, 99);
    CHECK(get(icmp, IPPROTO_IPV6, IPV6_CHECKSUM) == 2 && set(icmp, IPPROTO_IPV6, IPV6_CHECKSUM, -1) == EINVAL);
    CHECK(set(icmp, SOL_RAW, RAW_CHECKSUM, -1) == 0 && get(icmp, SOL_RAW, RAW_CHECKSUM) == -1 && set(icmp, SOL_RAW, RAW_CHECKSUM, 2) == 0);
    CHECK(get(udp, IPPROTO_IPV6, IPV6_CHECKSUM) == -1 && set(udp, IPPROTO_IPV6, IPV6_CHECKSUM, 3) == EINVAL);
    CHECK(set(udp, SOL_RAW, RAW_CHECKSUM, 3) == EINVAL && set(udp, IPPROTO_IPV6, IPV6_CHECKSUM, 6) == 0);
    CHECK(get(udp, SOL_RAW, RAW_CHECKSUM) == 6);
    FAILS(to(udp, b, 7, &own), EINVAL);
    // Without one a packet is as it was sent.
    CHECK(to(s, "\1\2\3", 3, &own) == 3 && got(s, b, sizeof b) == 3 && memcmp(b, "\1\2\3", 3) == 0);
    CHECK(set(s, IPPROTO_IPV6, IPV6_CHECKSUM, 2) == 0);
    CHECK(to(s, "\1\2\3\4\5", 5, &own) == 5 && got(s, b, sizeof b) == 5 && memcmp(b, "\1\2\xf9\x93\5", 5) == 0);
    FAILS(to(s, "\1\2\3", 3, &own), EINVAL);
    FAILS(to(s, "", 0, &own), EINVAL);
    // What comes with another is lost.
    int other = raw(AF_INET6, 99);
    CHECK(to(other, "\1\2\3\4\5", 5, &own) == 5 && got(s, b, sizeof b) == -EAGAIN && got(other, b, sizeof b) == 5);
    CHECK(set(s, IPPROTO_IPV6, IPV6_CHECKSUM, -5) == 0 && get(s, IPPROTO_IPV6, IPV6_CHECKSUM) == -1);
    close(other);
    close(icmp);
    close(udp);
    close(s);
}

static void echoes(void) {
    struct icmp6_hdr echo = {.icmp6_type = ICMP6_ECHO_REQUEST, .icmp6_dataun.icmp6_un_data16 = {7, 8}};
    struct icmp6_filter filter;
    unsigned char b[64];
    struct sockaddr_in6 from;
    socklen_t length = sizeof from;
    int s = raw(AF_INET6, IPPROTO_ICMPV6), filtered = raw(AF_INET6, IPPROTO_ICMPV6), udp = raw(AF_INET6, IPPROTO_UDP), old = raw(AF_INET, IPPROTO_ICMP);
    ICMP6_FILTER_SETBLOCKALL(&filter);
    ICMP6_FILTER_SETPASS(ICMP6_ECHO_REPLY, &filter);
    CHECK(setsockopt(filtered, IPPROTO_ICMPV6, ICMP6_FILTER, &filter, sizeof filter) == 0);
    memset(&filter, 9, sizeof filter);
    length = sizeof filter;
    CHECK(getsockopt(filtered, IPPROTO_ICMPV6, ICMP6_FILTER, &filter, &length) == 0 && length == sizeof filter);
    CHECK(ICMP6_FILTER_WILLPASS(ICMP6_ECHO_REPLY, &filter) && ICMP6_FILTER_WILLBLOCK(ICMP6_ECHO_REQUEST, &filter));
    FAILS(setsockopt(udp, IPPROTO_ICMPV6, ICMP6_FILTER, &filter, sizeof filter), EOPNOTSUPP);
    FAILS(getsockopt(udp, IPPROTO_ICMPV6, ICMP6_FILTER, &filter, &length), EOPNOTSUPP);
    FAILS(setsockopt(s, IPPROTO_ICMPV6, ICMP6_FILTER + 1, &filter, sizeof filter), ENOPROTOOPT);
    CHECK(to(s, &echo, sizeof echo, &own) == sizeof echo);
    length = sizeof from;
    CHECK(recvfrom(s, b, sizeof b, 0, (struct sockaddr *)&from, &length) == 8 && b[0] == ICMP6_ECHO_REQUEST);
    CHECK(length == sizeof from && IN6_IS_ADDR_LOOPBACK(&from.sin6_addr) && from.sin6_port == 0);
    CHECK(recv(s, b, sizeof b, 0) == 8 && b[0] == ICMP6_ECHO_REPLY && memcmp(b + 4, &echo.icmp6_dataun, 4) == 0);
    CHECK(recv(filtered, b, sizeof b, 0) == 8 && b[0] == ICMP6_ECHO_REPLY && got(filtered, b, sizeof b) == -EAGAIN);
    // Of IPv4 nothing was heard.
    CHECK(got(old, b, sizeof b) == -EAGAIN && got(udp, b, sizeof b) == -EAGAIN);
    // What recvmsg tells of a packet.
    CHECK(set(s, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1) == 0 && set(s, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1) == 0);
    CHECK(set(s, IPPROTO_IPV6, IPV6_UNICAST_HOPS, 33) == 0 && to(s, &echo, sizeof echo, &own) == 8);
    char control[256];
    struct iovec piece = {b, sizeof b};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    int hops = 0, interface = 0;
    CHECK(recvmsg(s, &message, 0) == 8);
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
        if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_HOPLIMIT)
            memcpy(&hops, CMSG_DATA(c), sizeof hops);
        if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO)
            interface = (int)((struct in6_pktinfo *)CMSG_DATA(c))->ipi6_ifindex;
    }
    CHECK(hops == 33 && interface == 1);
    close(s);
    close(filtered);
    close(udp);
    close(old);
}

static void headers(void) {
    unsigned char packet[48] = {0x60}, b[64];
    int s = raw(AF_INET6, IPPROTO_RAW), user = raw(AF_INET6, 99);
    CHECK(get(s, IPPROTO_IPV6, IPV6_HDRINCL) == 1 && get(user, IPPROTO_IPV6, IPV6_HDRINCL) == 0);
    packet[5] = 8;
    packet[6] = 99;
    packet[7] = 64;
    packet[23] = packet[39] = 1;
    memcpy(packet + 40, "payload", 8);
    FAILS(to(s, packet, 39, &own), EINVAL);
    CHECK(to(s, packet, sizeof packet, &own) == sizeof packet);
    CHECK(got(user, b, sizeof b) == 8 && memcmp(b, "payload", 8) == 0 && got(s, b, sizeof b) == -EAGAIN);
    CHECK(set(user, IPPROTO_IPV6, IPV6_HDRINCL, 1) == 0 && to(user, packet, sizeof packet, &own) == sizeof packet);
    CHECK(got(user, b, sizeof b) == 8 && memcmp(b, "payload", 8) == 0);
    close(s);
    close(user);
}

static void addresses(void) {
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct sockaddr_in6 mapped = address("::ffff:127.0.0.1", 0), far = address("2001:db8::1", 0), any = address("::", 0), at;
    socklen_t length = sizeof at;
    char b[64];
    int s = raw(AF_INET6, 99);
    FAILS(bind(s, (struct sockaddr *)&v4, sizeof v4), EINVAL);
    FAILS(bind(s, (struct sockaddr *)&own, 20), EINVAL);
    FAILS(bind(s, (struct sockaddr *)&mapped, sizeof mapped), EADDRNOTAVAIL);
    FAILS(bind(s, (struct sockaddr *)&far, sizeof far), EADDRNOTAVAIL);
    CHECK(bind(s, (struct sockaddr *)&any, sizeof any) == 0 && bind(s, (struct sockaddr *)&own, sizeof own) == 0);
    CHECK(bind(s, (struct sockaddr *)&own, sizeof own) == 0);
    CHECK(getsockname(s, (struct sockaddr *)&at, &length) == 0 && length == sizeof at && at.sin6_port == htons(99));
    CHECK(IN6_IS_ADDR_LOOPBACK(&at.sin6_addr));
    FAILS(getpeername(s, (struct sockaddr *)&at, &length), ENOTCONN);
    FAILS(send(s, "abc", 3, 0), EDESTADDRREQ);
    FAILS(sendto(s, "abc", 3, 0, (struct sockaddr *)&own, 20), EINVAL);
    FAILS(sendto(s, "abc", 3, 0, (struct sockaddr *)&v4, sizeof v4), EINVAL);
    FAILS(to(s, "abc", 3, &mapped), ENETUNREACH);
    FAILS(to(s, "abc", 3, &far), ENETUNREACH);
    // A port is the protocol's number, or nothing.
    struct sockaddr_in6 other = address("::1", 5), same = address("::1", 99);
    FAILS(to(s, "abc", 3, &other), EINVAL);
    CHECK(to(s, "abc", 3, &same) == 3 && got(s, b, sizeof b) == 3 && to(s, "de", 2, &any) == 2 && got(s, b, sizeof b) == 2);
    CHECK(sendto(s, "abc", 3, 0, (struct sockaddr *)&own, 24) == 3 && got(s, b, sizeof b) == 3);
    FAILS(connect(s, (struct sockaddr *)&v4, sizeof v4), EAFNOSUPPORT);
    FAILS(connect(s, (struct sockaddr *)&own, 20), EINVAL);
    FAILS(connect(s, (struct sockaddr *)&far, sizeof far), ENETUNREACH);
    CHECK(connect(s, (struct sockaddr *)&same, sizeof same) == 0 && send(s, "abc", 3, 0) == 3 && got(s, b, sizeof b) == 3);
    length = sizeof at;
    CHECK(getpeername(s, (struct sockaddr *)&at, &length) == 0 && at.sin6_port == htons(99));
    FAILS(bind(s, (struct sockaddr *)&own, sizeof own), EINVAL);
    // A peer without a port is none.
    CHECK(connect(s, (struct sockaddr *)&own, sizeof own) == 0);
    FAILS(getpeername(s, (struct sockaddr *)&at, &length), ENOTCONN);
    FAILS(listen(s, 1), EOPNOTSUPP);
    FAILS(sendto(s, "abc", 3, MSG_OOB, (struct sockaddr *)&own, sizeof own), EOPNOTSUPP);
    FAILS(recv(s, b, 3, MSG_OOB | MSG_DONTWAIT), EOPNOTSUPP);
    CHECK(get(s, IPPROTO_IP, IP_TTL) == -1000000 - ENOPROTOOPT && get(s, IPPROTO_TCP, 1) == -1000000 - ENOPROTOOPT);
    CHECK(set(s, IPPROTO_IP, IP_TTL, 1) == ENOPROTOOPT && set(s, 300, 1, 1) == ENOPROTOOPT);
    FAILS(socket(AF_INET6, SOCK_RAW, 0), EPROTONOSUPPORT);
    close(s);
}

static void shut(int family) {
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    const struct sockaddr *at = family == AF_INET ? (void *)&in : (void *)&own;
    socklen_t length = family == AF_INET ? sizeof in : sizeof own;
    int size = family == AF_INET ? 23 : 3;
    char b[64], packet[48] = {family == AF_INET ? 0x45 : 0x60};
    for (int connected = 0; connected < 2; connected++) {
        int s = raw(family, 99);
        if (connected)
            CHECK(connect(s, at, length) == 0);
        // It counts without a peer as well, and keeps neither what is sent nor what comes.
        CHECK(shutdown(s, SHUT_RD) == (connected ? 0 : -1) && (connected || errno == ENOTCONN));
        CHECK(shutdown(s, SHUT_WR) == (connected ? 0 : -1) && (connected || errno == ENOTCONN));
        CHECK(sendto(s, "abc", 3, 0, at, length) == 3);
        struct pollfd p = {s, POLLIN | POLLOUT | POLLRDHUP, 0};
        CHECK(poll(&p, 1, 0) == 1 && p.revents == (POLLIN | POLLOUT | POLLRDHUP | POLLHUP));
        CHECK(got(s, b, sizeof b) == size && got(s, b, sizeof b) == -EAGAIN && recv(s, b, sizeof b, 0) == 0);
        close(s);
    }
    int s = raw(family, IPPROTO_RAW);
    FAILS(shutdown(s, SHUT_WR), ENOTCONN);
    FAILS(sendto(s, packet, sizeof packet, 0, at, length), EPIPE);
    close(s);
}

int main(void) {
    if (socket(AF_INET6, SOCK_RAW, IPPROTO_ICMPV6) < 0 && errno == EPERM) {
        puts("no raw sockets: not for this user");
        return 1;
    }
    checksums();
    echoes();
    headers();
    addresses();
    shut(AF_INET);
    shut(AF_INET6);
    puts("raw sockets of IPv6: ok");
    return 0;
}
