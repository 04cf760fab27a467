// SPDX-License-Identifier: Apache-2.0 OR MIT
// Random requests of rtnetlink, random requests and packets of tun devices, from several processes in network namespaces that they share, enter and leave: the
// machine goes on. usage: hostile_netlink [requests] [seed]. On Linux: as root, in a network namespace of its own.
#define _GNU_SOURCE
#include "check.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/if_link.h>
#include <linux/veth.h>
#include <net/if.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORKERS = 3, LINKS = 8 };

static uint64_t state;

static unsigned below(unsigned n) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (state * 0x2545f4914f6cdd1dULL >> 33) % n;
}

static uint32_t number(void) {
    static const uint32_t some[] = {0, 1, 2, 3, 4, 7, 8, 16, 32, 33, 64, 67, 68, 254, 255, 1279, 1280, 1500, 65535, 65536, 0x7fffffff, 0x80000000, 0xffffffff};
    return below(3) ? below(24) : below(2) ? some[below(sizeof some / sizeof *some)] : below(1u << 31) * 2 + below(2);
}

static uint32_t address(void) { return htonl(below(8) ? 0x0a000000 | below(4) << 8 | below(6) : number()); }

// The message that is under construction.
static struct {
    struct nlmsghdr header;
    uint8_t rest[8192];
} m;

static void *grow(unsigned n) {
    uint8_t *at = (uint8_t *)&m + m.header.nlmsg_len;
    if (m.header.nlmsg_len + n + 64 > sizeof m)
        return (uint8_t *)&m + sizeof m - 8200 + 16;
    m.header.nlmsg_len += (n + 3) & ~3u;
    return at;
}

static void attribute(unsigned type, const void *value, unsigned length) {
    if (m.header.nlmsg_len + length + 128 > sizeof m)
        return;
    struct rtattr *head = grow(4 + length);
    *head = (struct rtattr){4 + length, type};
    memcpy(head + 1, value, length);
    if (below(40) == 0)
        head->rta_len = number();
}

static unsigned open_nest(unsigned type) {
    unsigned at = m.header.nlmsg_len;
    attribute(type, "", 0);
    return at;
}

static void close_nest(unsigned at) { ((struct rtattr *)((uint8_t *)&m + at))->rta_len = m.header.nlmsg_len - at; }

static char *link_name(char *name) {
    static const char *const odd[] = {"lo", "eth0", "", "%d", "x%d", "a/b", ".", "..", "all", "0123456789abcdef", "%d%d", "%s"};
    if (below(12) == 0)
        return strcpy(name, odd[below(12)]);
    sprintf(name, "l%u", below(LINKS));
    return name;
}

static void random_attribute(void) {
    uint8_t bytes[64];
    char name[32];
    uint32_t n = number(), ip = address();
    switch (below(6)) {
    case 0:
        for (unsigned i = 0; i < sizeof bytes; i++)
            bytes[i] = below(256);
        attribute(below(64) | (below(8) ? 0 : NLA_F_NESTED), bytes, below(40));
        break;
    case 1: case 2:
        attribute(below(32), &n, 1u << below(3));
        break;
    case 3: case 4:
        attribute(1 + below(8), &ip, 4);
        break;
    default:
        link_name(name);
        attribute(3, name, strlen(name) + below(2));
    }
}

static void link_info(int depth) {
    static const char *const kinds[] = {"veth", "bridge", "dummy", "tun", "vlan", "", "vethvethvethvethvethvethvethvethveth"};
    const char *kind = kinds[below(20) < 16 ? below(3) : below(7)];
    char name[32];
    unsigned info = open_nest(IFLA_LINKINFO);
    attribute(IFLA_INFO_KIND, kind, strlen(kind) + below(2));
    if (below(3)) {
        unsigned data = open_nest(IFLA_INFO_DATA);
        if (below(4)) {
            unsigned peer = open_nest(VETH_INFO_PEER);
            struct ifinfomsg *message = grow(sizeof *message);
            memset(message, 0, sizeof *message);
            message->ifi_index = below(4) ? 0 : number();
            link_name(name);
            attribute(IFLA_IFNAME, name, strlen(name) + 1);
            if (depth < 40 && below(3) == 0)
                link_info(depth + 1);
            for (unsigned i = below(3); i > 0; i--)
                random_attribute();
            close_nest(peer);
        } else {
            random_attribute();
        }
        close_nest(data);
    }
    close_nest(info);
}

static void request(int s, pid_t *others) {
    static const uint16_t types[] = {
        RTM_NEWLINK, RTM_NEWLINK, RTM_NEWLINK, RTM_DELLINK, RTM_GETLINK, RTM_SETLINK, RTM_NEWADDR, RTM_NEWADDR, RTM_DELADDR, RTM_GETADDR, RTM_NEWROUTE,
        RTM_NEWROUTE, RTM_DELROUTE, RTM_GETROUTE, RTM_NEWNEIGH, RTM_DELNEIGH, RTM_GETNEIGH, RTM_NEWRULE, RTM_DELRULE, RTM_GETRULE,
    };
    static const uint16_t flags[] = {NLM_F_CREATE | NLM_F_EXCL, NLM_F_CREATE, NLM_F_REPLACE, NLM_F_APPEND | NLM_F_CREATE, NLM_F_DUMP, 0};
    char name[32];
    uint32_t ip = address(), n;
    memset(&m.header, 0, sizeof m.header);
    m.header = (struct nlmsghdr){sizeof m.header, below(30) ? types[below(20)] : below(130), NLM_F_REQUEST | NLM_F_ACK | flags[below(6)], below(100), 0};
    switch (m.header.nlmsg_type) {
    case RTM_NEWLINK: case RTM_DELLINK: case RTM_SETLINK: case RTM_GETLINK: {
        struct ifinfomsg *message = grow(sizeof *message);
        *message = (struct ifinfomsg){.ifi_family = below(8) ? 0 : below(20), .ifi_index = below(2) ? 0 : below(20), .ifi_flags = below(4) ? IFF_UP : number(), .ifi_change = below(2) ? IFF_UP : number()};
        link_name(name);
        attribute(IFLA_IFNAME, name, strlen(name) + 1);
        if (m.header.nlmsg_type == RTM_NEWLINK && below(3))
            link_info(0);
        if (below(4) == 0)
            n = others[below(WORKERS)], attribute(below(2) ? IFLA_NET_NS_PID : IFLA_NET_NS_FD, &n, 4);
        if (below(4) == 0)
            n = below(20), attribute(IFLA_MASTER, &n, 4);
        if (below(6) == 0)
            n = number(), attribute(IFLA_MTU, &n, 4);
        break;
    }
    case RTM_NEWADDR: case RTM_DELADDR: case RTM_GETADDR: {
        struct ifaddrmsg *message = grow(sizeof *message);
        *message = (struct ifaddrmsg){below(8) ? AF_INET : below(20), below(8) ? 24 : number(), 0, below(3), below(20)};
        attribute(IFA_LOCAL, &ip, 4);
        break;
    }
    case RTM_NEWROUTE: case RTM_DELROUTE: case RTM_GETROUTE: {
        struct rtmsg *message = grow(sizeof *message);
        *message = (struct rtmsg){below(8) ? AF_INET : below(20), below(8) ? below(33) : number(), 0, 0, below(2) ? 254 : number(), 3, below(4) ? 0 : number(), below(6) ? 1 : number(), below(8) ? 0 : number()};
        attribute(RTA_DST, &ip, 4);
        n = below(20), attribute(RTA_OIF, &n, 4);
        break;
    }
    case RTM_NEWRULE: case RTM_DELRULE: case RTM_GETRULE: {
        struct rtmsg *message = grow(sizeof *message);
        *message = (struct rtmsg){AF_INET, below(33), below(33), 0, number(), 0, 0, number(), number()};
        break;
    }
    default:
        memset(grow(16), below(20), 12);
    }
    for (unsigned i = below(5); i > 0; i--)
        random_attribute();
    unsigned length = m.header.nlmsg_len;
    if (below(30) == 0)
        m.header.nlmsg_len = number();
    else if (below(30) == 0)
        length = below(length + 1);
    send(s, &m, length, MSG_DONTWAIT);
    static char answer[16384];
    for (int i = below(8); i > 0 && recv(s, answer, below(2) ? sizeof answer : below(64), MSG_DONTWAIT) > 0; i--)
        ;
}

static void tunnel(int *fd) {
    static const unsigned long requests[] = {TUNGETIFF, TUNSETPERSIST, TUNSETOWNER, TUNSETOFFLOAD, TUNGETFEATURES, TUNSETVNETHDRSZ, TUNGETVNETHDRSZ, TUNSETLINK, TUNSETSNDBUF, TUNSETQUEUE, TUNSETTXFILTER};
    struct ifreq i = {.ifr_flags = (below(2) ? IFF_TUN : IFF_TAP) | (below(2) ? IFF_NO_PI : 0) | (below(3) ? 0 : IFF_VNET_HDR) | (below(8) ? 0 : number())};
    uint8_t packet[3000];
    char name[32];
    unsigned n = below(8) ? 20 + below(200) : below(sizeof packet), at = below(3) * 5;
    switch (below(6)) {
    case 0:
        if (*fd >= 0)
            close(*fd);
        *fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
        strncpy(i.ifr_name, link_name(name), IFNAMSIZ - 1);
        ioctl(*fd, TUNSETIFF, &i);
        break;
    case 1:
        *(uint32_t *)packet = number();
        ioctl(*fd, requests[below(11)], below(2) ? (unsigned long)packet : number());
        break;
    case 2:
        if (read(*fd, packet, n) < 0)
            break;
        break;
    default:
        for (unsigned k = 0; k < n; k++)
            packet[k] = below(3) ? 0 : below(256);
        // Something like a packet behind one of the headers that may be there.
        if (n > at + 34) {
            uint32_t to = address(), from = address();
            packet[at] = below(8) ? 0x45 : below(256), packet[at + 3] = n - at, packet[at + 2] = (n - at) >> 8, packet[at + 8] = 64;
            packet[at + 9] = below(2) ? 17 : below(2) ? 6 : 1;
            memcpy(packet + at + 12, &from, 4), memcpy(packet + at + 16, &to, 4);
            packet[at + 10] = packet[at + 11] = 0;
            uint32_t sum = 0;
            for (int k = 0; k < 20; k += 2)
                sum += packet[at + k] << 8 | packet[at + k + 1];
            sum = (sum & 0xffff) + (sum >> 16), sum = (sum & 0xffff) + (sum >> 16);
            packet[at + 10] = ~sum >> 8, packet[at + 11] = ~sum;
        }
        if (write(*fd, packet, n) < 0)
            break;
    }
}

int main(int argc, char **argv) {
    long count = argc > 1 ? atol(argv[1]) : 20000;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
    pid_t others[WORKERS];
    CHECK(unshare(CLONE_NEWNET) == 0);
    for (int i = 0; i < WORKERS; i++)
        others[i] = getpid();
    for (int i = 0; i < WORKERS; i++) {
        others[i] = fork();
        CHECK(others[i] >= 0);
        if (others[i] == 0) {
            state = (seed + i) * 0x9e3779b97f4a7c15ULL | 1;
            others[i] = getpid();
            int s = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE), fds[3] = {-1, -1, -1};
            CHECK(s >= 0);
            for (long k = 0; k < count; k++) {
                if (below(2000) == 0) {
                    unshare(CLONE_NEWNET);
                    close(s);
                    s = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
                }
                if (below(3))
                    request(s, others);
                else
                    tunnel(&fds[below(3)]);
            }
            _exit(0);
        }
    }
    for (int i = 0; i < WORKERS; i++) {
        int status;
        CHECK(waitpid(others[i], &status, 0) == others[i] && status == 0);
    }
    puts("hostile netlink: ok");
    return 0;
}
