// SPDX-License-Identifier: Apache-2.0 OR MIT
// What gVisor's tests of sockets and netlink found different from Linux: groups and messages of raw sockets, who gets a datagram of
// sockets that share a port, what options answer, how much an error quotes, one answer of netlink, and addresses of the loopback. For
// the superuser, in a network of its own, whose loopback is up. Passes on Linux, too (unshare -n, ip link set lo up).
#define _GNU_SOURCE
#include "check.h"
#include <arpa/inet.h>
#include <linux/errqueue.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define FAILS(call, error) CHECK((call) == -1 && errno == (error))

static int one = 1;

static int set(int s, int level, int option, int value) {
    return setsockopt(s, level, option, &value, sizeof value) ? errno : 0;
}

static int get(int s, int level, int option) {
    int value = -1;
    socklen_t length = sizeof value;
    CHECK(getsockopt(s, level, option, &value, &length) == 0);
    return value;
}

static struct sockaddr_in at(const char *text, int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    CHECK(inet_pton(AF_INET, text, &address.sin_addr) == 1);
    return address;
}

// The port it got.
static int bound(int s, struct sockaddr_in address) {
    socklen_t length = sizeof address;
    CHECK(bind(s, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(getsockname(s, (struct sockaddr *)&address, &length) == 0);
    return ntohs(address.sin_port);
}

static int waits(int s) {
    struct pollfd poller = {.fd = s, .events = POLLIN};
    return poll(&poller, 1, 200) == 1;
}

static void raw_groups(void) {
    int s = socket(AF_INET, SOCK_RAW, 201);
    CHECK(s >= 0);
    struct in_addr leave_by = at("127.0.0.1", 0).sin_addr, answer = {0}, unknown = at("203.0.113.9", 0).sin_addr;
    socklen_t length = sizeof answer;
    FAILS(setsockopt(s, IPPROTO_IP, IP_MULTICAST_IF, &unknown, sizeof unknown), EADDRNOTAVAIL);
    FAILS(setsockopt(s, IPPROTO_IP, IP_MULTICAST_IF, &leave_by, 1), EINVAL);
    CHECK(setsockopt(s, IPPROTO_IP, IP_MULTICAST_IF, &leave_by, sizeof leave_by) == 0);
    CHECK(getsockopt(s, IPPROTO_IP, IP_MULTICAST_IF, &answer, &length) == 0 && answer.s_addr == leave_by.s_addr);
    CHECK(get(s, IPPROTO_IP, IP_MULTICAST_TTL) == 1 && get(s, IPPROTO_IP, IP_MULTICAST_LOOP) == 1);
    struct ip_mreqn group = {.imr_multiaddr = at("239.7.7.7", 0).sin_addr, .imr_ifindex = 1};
    FAILS(setsockopt(s, IPPROTO_IP, IP_DROP_MEMBERSHIP, &group, sizeof group), EADDRNOTAVAIL);
    CHECK(setsockopt(s, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof group) == 0);
    FAILS(setsockopt(s, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof group), EADDRINUSE);
    struct sockaddr_in to = at("239.7.7.7", 0);
    CHECK(set(s, IPPROTO_IP, IP_MULTICAST_TTL, 7) == 0);
    CHECK(sendto(s, "all", 3, 0, (struct sockaddr *)&to, sizeof to) == 3);
    unsigned char packet[64];
    CHECK(waits(s) && recv(s, packet, sizeof packet, 0) == 23 && packet[8] == 7);
    CHECK(setsockopt(s, IPPROTO_IP, IP_DROP_MEMBERSHIP, &group, sizeof group) == 0);

    // One message's own hops and class.
    char control[CMSG_SPACE(sizeof(int))] = {0};
    struct sockaddr_in own = at("127.0.0.1", 0);
    struct iovec bytes = {"mine", 4};
    struct msghdr message = {.msg_name = &own, .msg_namelen = sizeof own, .msg_iov = &bytes, .msg_iovlen = 1,
                             .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = IPPROTO_IP, c->cmsg_type = IP_TTL, c->cmsg_len = CMSG_LEN(sizeof(int));
    *(int *)CMSG_DATA(c) = 43;
    CHECK(sendmsg(s, &message, 0) == 4);
    CHECK(waits(s) && recv(s, packet, sizeof packet, 0) == 24 && packet[8] == 43);

    // A packet goes where it is sent, whatever its own header says.
    int writer = socket(AF_INET, SOCK_RAW, IPPROTO_RAW);
    unsigned char made[24] = {0x45, 0, 0, 24, 0, 0, 0, 0, 9, 201};
    struct in_addr elsewhere = at("203.0.113.77", 0).sin_addr;
    memcpy(made + 16, &elsewhere, 4);
    CHECK(sendto(writer, made, sizeof made, 0, (struct sockaddr *)&own, sizeof own) == sizeof made);
    CHECK(waits(s) && recv(s, packet, sizeof packet, 0) == 24 && memcmp(packet + 16, &elsewhere, 4) == 0);
    close(writer);
    close(s);
}

static void newest_gets_it(void) {
    int all[4];
    int port = 0;
    for (int i = 0; i < 4; i++) {
        all[i] = socket(AF_INET, SOCK_DGRAM, 0);
        CHECK(set(all[i], SOL_SOCKET, SO_REUSEADDR, 1) == 0);
        port = bound(all[i], at("127.0.0.1", port));
    }
    struct sockaddr_in to = at("127.0.0.1", port);
    int sender = socket(AF_INET, SOCK_DGRAM, 0);
    char byte;
    // The last one, and when that has gone the one before it; one that is connected to the sender before all.
    for (int last = 3; last > 0; last--) {
        CHECK(sendto(sender, "x", 1, 0, (struct sockaddr *)&to, sizeof to) == 1);
        CHECK(waits(all[last]) && recv(all[last], &byte, 1, 0) == 1);
        for (int i = 0; i < last; i++)
            FAILS(recv(all[i], &byte, 1, MSG_DONTWAIT), EAGAIN);
        if (last == 2)
            break;
        close(all[last]);
    }
    struct sockaddr_in from;
    socklen_t length = sizeof from;
    CHECK(getsockname(sender, (struct sockaddr *)&from, &length) == 0);
    from.sin_addr = to.sin_addr;
    CHECK(connect(all[0], (struct sockaddr *)&from, sizeof from) == 0);
    CHECK(sendto(sender, "x", 1, 0, (struct sockaddr *)&to, sizeof to) == 1);
    CHECK(waits(all[0]) && recv(all[0], &byte, 1, 0) == 1);
    for (int i = 0; i < 3; i++)
        close(all[i]);
    close(sender);
}

static void options(void) {
    int s = socket(AF_INET, SOCK_DGRAM, 0);
    unsigned char small[4] = {9, 9, 9, 9};
    socklen_t length = 2;
    CHECK(set(s, IPPROTO_IP, IP_TOS, 0xc0) == 0);
    CHECK(getsockopt(s, IPPROTO_IP, IP_TOS, small, &length) == 0 && length == 1 && small[0] == 0xc0 && small[1] == 9);
    close(s);
    for (int kind = 0; kind < 2; kind++) {
        s = socket(AF_INET6, kind ? SOCK_STREAM : SOCK_DGRAM, 0);
        CHECK(set(s, IPPROTO_IP, IP_TTL, 33) == 0 && get(s, IPPROTO_IPV6, IPV6_UNICAST_HOPS) == 64);
        CHECK(set(s, IPPROTO_IPV6, IPV6_UNICAST_HOPS, 22) == 0 && get(s, IPPROTO_IP, IP_TTL) == 33);
        close(s);
    }
    s = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(get(s, IPPROTO_TCP, TCP_QUICKACK) == 1);
    CHECK(set(s, IPPROTO_TCP, TCP_LINGER2, -5) == 0 && get(s, IPPROTO_TCP, TCP_LINGER2) == -1);
    struct linger on = {1, 5}, off = {0, 9}, told;
    length = sizeof told;
    CHECK(setsockopt(s, SOL_SOCKET, SO_LINGER, &on, sizeof on) == 0);
    CHECK(setsockopt(s, SOL_SOCKET, SO_LINGER, &off, sizeof off) == 0);
    CHECK(getsockopt(s, SOL_SOCKET, SO_LINGER, &told, &length) == 0 && told.l_onoff == 0 && told.l_linger == 5);
    CHECK(set(s, IPPROTO_TCP, TCP_WINDOW_CLAMP, 0) == 0 && bound(s, at("127.0.0.1", 0)) && listen(s, 1) == 0);
    CHECK(set(s, IPPROTO_TCP, TCP_WINDOW_CLAMP, 0) == EINVAL);
    close(s);
}

// What came back of a datagram that nobody takes: all of it, where it is small.
static void errors(void) {
    int s = socket(AF_INET6, SOCK_DGRAM, 0);
    struct sockaddr_in6 nobody = {.sin6_family = AF_INET6, .sin6_port = htons(9), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    char bytes[300] = {1}, back[400];
    // The other family's switch is another one.
    CHECK(setsockopt(s, IPPROTO_IP, IP_RECVERR, &one, sizeof one) == 0);
    CHECK(connect(s, (struct sockaddr *)&nobody, sizeof nobody) == 0 && send(s, bytes, sizeof bytes, 0) == 300);
    FAILS(recv(s, back, sizeof back, 0), ECONNREFUSED);
    FAILS(recv(s, back, sizeof back, MSG_ERRQUEUE), EAGAIN);
    CHECK(setsockopt(s, IPPROTO_IPV6, IPV6_RECVERR, &one, sizeof one) == 0 && send(s, bytes, sizeof bytes, 0) == 300);
    CHECK(recv(s, back, sizeof back, MSG_ERRQUEUE) == 300 && back[0] == 1);
    close(s);
}

struct request {
    struct nlmsghdr header;
    union {
        struct ifinfomsg link;
        struct {
            struct ifaddrmsg address;
            struct rtattr attribute;
            struct in_addr local;
        };
    };
};

// Sends it and answers what came: messages of `kind` without their last one, or an error's number.
static int asked(int s, struct request *request, int kind, int *flags) {
    static char answer[32768];
    CHECK(send(s, request, request->header.nlmsg_len, 0) == request->header.nlmsg_len);
    int count = 0;
    for (;;) {
        ssize_t n = recv(s, answer, sizeof answer, MSG_DONTWAIT);
        CHECK(n > 0);
        for (struct nlmsghdr *h = (struct nlmsghdr *)answer; NLMSG_OK(h, n); h = NLMSG_NEXT(h, n)) {
            *flags = h->nlmsg_flags;
            if (h->nlmsg_type == NLMSG_ERROR)
                return -((struct nlmsgerr *)NLMSG_DATA(h))->error;
            if (h->nlmsg_type == NLMSG_DONE)
                return count;
            CHECK(h->nlmsg_type == kind);
            count++;
            if (!(h->nlmsg_flags & NLM_F_MULTI))
                return count;
        }
    }
}

static void netlink(void) {
    int s = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE), flags;
    struct sockaddr_nl address = {.nl_family = AF_NETLINK, .nl_groups = RTMGRP_LINK};
    socklen_t length = sizeof address;
    CHECK(getsockname(s, (struct sockaddr *)&address, &length) == 0 && address.nl_pid == 0);
    address.nl_groups = RTMGRP_LINK;
    CHECK(bind(s, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(getsockname(s, (struct sockaddr *)&address, &length) == 0 && address.nl_pid && address.nl_groups == 1);
    unsigned groups[4] = {0};
    int group = RTNLGRP_NEIGH;
    CHECK(setsockopt(s, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof group) == 0);
    length = 0;
    CHECK(getsockopt(s, SOL_NETLINK, NETLINK_LIST_MEMBERSHIPS, NULL, &length) == 0 && length >= 4);
    length = sizeof groups;
    CHECK(getsockopt(s, SOL_NETLINK, NETLINK_LIST_MEMBERSHIPS, groups, &length) == 0 && groups[0] == 5);
    address.nl_pid++;
    FAILS(bind(s, (struct sockaddr *)&address, sizeof address), EINVAL);

    // One link is one message, without an end; nobody waits for another.
    struct request r = {.header = {sizeof r.header + sizeof r.link, RTM_GETLINK, NLM_F_REQUEST, 7, 0}, .link = {.ifi_index = 1}};
    CHECK(asked(s, &r, RTM_NEWLINK, &flags) == 1 && !(flags & NLM_F_MULTI));
    FAILS(recv(s, groups, sizeof groups, MSG_DONTWAIT), EAGAIN);
    r.link.ifi_index = 99;
    CHECK(asked(s, &r, RTM_NEWLINK, &flags) == ENODEV);
    r.header.nlmsg_flags |= NLM_F_DUMP;
    CHECK(asked(s, &r, RTM_NEWLINK, &flags) >= 1 && flags & NLM_F_MULTI);
    r.header.nlmsg_type = RTM_GETRULE;
    CHECK(asked(s, &r, RTM_NEWRULE, &flags) >= 3);
    r.header.nlmsg_type = RTM_DELLINK, r.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
    CHECK(asked(s, &r, 0, &flags) == ENODEV);
    r.link.ifi_index = 1;
    CHECK(asked(s, &r, 0, &flags) == EOPNOTSUPP);

    // An address of the loopback makes its network this machine.
    int there = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in own = at("192.0.2.7", 0), other = at("192.0.2.99", 0);
    FAILS(bind(there, (struct sockaddr *)&own, sizeof own), EADDRNOTAVAIL);
    struct request a = {.header = {sizeof a.header + sizeof a.address + 8, RTM_NEWADDR, NLM_F_REQUEST | NLM_F_ACK, 8, 0}};
    a.address = (struct ifaddrmsg){.ifa_family = AF_INET, .ifa_prefixlen = 24, .ifa_index = 1};
    a.attribute = (struct rtattr){8, IFA_LOCAL}, a.local = own.sin_addr;
    CHECK(asked(s, &a, 0, &flags) == 0);
    CHECK(asked(s, &a, 0, &flags) == EEXIST);
    int port = bound(there, other);
    other.sin_port = htons(port);
    int here = socket(AF_INET, SOCK_DGRAM, 0);
    char byte;
    length = sizeof own;
    CHECK(sendto(here, "x", 1, 0, (struct sockaddr *)&other, sizeof other) == 1);
    CHECK(waits(there) && recvfrom(there, &byte, 1, 0, (struct sockaddr *)&own, &length) == 1);
    CHECK(own.sin_addr.s_addr == at("192.0.2.7", 0).sin_addr.s_addr);
    a.header.nlmsg_type = RTM_DELADDR;
    CHECK(asked(s, &a, 0, &flags) == 0 && asked(s, &a, 0, &flags) == EADDRNOTAVAIL);
    close(here), close(there), close(s);
}

int main(void) {
    raw_groups();
    newest_gets_it();
    options();
    errors();
    netlink();
    printf("groups and answers: ok\n");
    return 0;
}
