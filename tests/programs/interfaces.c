// SPDX-License-Identifier: Apache-2.0 OR MIT
// Interfaces that programs make (tun(4), veth(4), bridges), their addresses, routes and rules, and packets that are sent on. On Linux: as root.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <net/if.h>
#include <linux/fib_rules.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#include "netlink.h"

#define FAILS(call, error) (errno = 0, (call) == -1 && errno == (error))

static int open_tun(const char *name, int flags, char *made)
{
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
    struct ifreq i = {.ifr_flags = flags};
    CHECK(fd >= 0);
    strcpy(i.ifr_name, name);
    CHECK(ioctl(fd, TUNSETIFF, &i) == 0);
    if (made)
        strcpy(made, i.ifr_name);
    return fd;
}

static uint16_t sum_of(const void *data, size_t length)
{
    const uint8_t *bytes = data;
    uint32_t sum = 0;
    for (size_t i = 0; i < length; i++)
        sum += i & 1 ? bytes[i] : bytes[i] << 8;
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return htons(~sum);
}

// An IPv4 packet of `protocol` with that payload; its length.
static int packet(uint8_t *to, const char *from, const char *dest, int protocol, int ttl, const void *payload, int length)
{
    uint8_t header[20] = {0x45, 0, (20 + length) >> 8, 20 + length, 0, 7, 0x40, 0, ttl, protocol};
    CHECK(inet_pton(AF_INET, from, header + 12) == 1 && inet_pton(AF_INET, dest, header + 16) == 1);
    uint16_t sum = sum_of(header, 20);
    memcpy(header + 10, &sum, 2);
    memcpy(to, header, 20);
    memcpy(to + 20, payload, length);
    return 20 + length;
}

static int echo_request(uint8_t *to, const char *from, const char *dest, int ttl, int size)
{
    uint8_t icmp[2000] = {8, 0, 0, 0, 0x12, 0x34, 0, 1};
    uint16_t sum = sum_of(icmp, size);
    memcpy(icmp + 2, &sum, 2);
    return packet(to, from, dest, IPPROTO_ICMP, ttl, icmp, size);
}

// The next IPv4 packet from a queue, past whatever else Linux sends there (IPv6's own).
static int next(int fd, uint8_t *to, int size)
{
    for (;;) {
        struct pollfd p = {fd, POLLIN, 0};
        CHECK(poll(&p, 1, 5000) == 1 && p.revents & POLLIN);
        int n = read(fd, to, size);
        CHECK(n > 0);
        if (to[0] >> 4 == 4)
            return n;
    }
}

static int is_empty(int fd)
{
    uint8_t b[2048];
    for (;;) {
        int n = read(fd, b, sizeof b);
        if (n < 0)
            return errno == EAGAIN;
        if (b[0] >> 4 == 4)
            return 0;
    }
}

static void files_become_interfaces(void)
{
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
    unsigned features;
    char b[64];
    CHECK(fd >= 0);
    CHECK(ioctl(fd, TUNGETFEATURES, &features) == 0);
    CHECK((features & (IFF_TUN | IFF_TAP | IFF_NO_PI | IFF_VNET_HDR | IFF_MULTI_QUEUE)) == (IFF_TUN | IFF_TAP | IFF_NO_PI | IFF_VNET_HDR | IFF_MULTI_QUEUE));
    CHECK(FAILS(read(fd, b, sizeof b), EBADFD) && FAILS(write(fd, b, sizeof b), EBADFD));
    struct ifreq i = {0};
    CHECK(FAILS(ioctl(fd, TUNGETIFF, &i), EBADFD));
    struct pollfd p = {fd, POLLIN | POLLOUT, 0};
    CHECK(poll(&p, 1, 0) == 1 && p.revents == POLLERR);
    CHECK(FAILS(ioctl(fd, TUNSETIFF, &i), EINVAL) && FAILS(ioctl(fd, TUNSETIFF, NULL), EFAULT));
    i.ifr_flags = IFF_TUN | IFF_NO_PI;
    strcpy(i.ifr_name, "a/b");
    CHECK(FAILS(ioctl(fd, TUNSETIFF, &i), EINVAL));
    strcpy(i.ifr_name, "lo");
    CHECK(FAILS(ioctl(fd, TUNSETIFF, &i), EINVAL));
    strcpy(i.ifr_name, "test%d");
    CHECK(ioctl(fd, TUNSETIFF, &i) == 0 && strcmp(i.ifr_name, "test0") == 0);
    CHECK(FAILS(ioctl(fd, TUNSETIFF, &i), EEXIST));
    struct ifreq got = {0};
    CHECK(ioctl(fd, TUNGETIFF, &got) == 0 && strcmp(got.ifr_name, "test0") == 0 && got.ifr_flags == (IFF_TUN | IFF_NO_PI));
    p.revents = 0;
    CHECK(FAILS(read(fd, b, sizeof b), EAGAIN));
    b[0] = 0x45;
    CHECK(FAILS(write(fd, b, sizeof b), EIO));
    CHECK(ioctl(fd, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4) == 0 && FAILS(ioctl(fd, TUNSETOFFLOAD, TUN_F_TSO4), EINVAL) && ioctl(fd, TUNSETOFFLOAD, 0) == 0);
    int size = 9;
    CHECK(FAILS(ioctl(fd, TUNSETVNETHDRSZ, &size), EINVAL) && ioctl(fd, TUNGETVNETHDRSZ, &size) == 0 && size == 10);
    CHECK(FAILS(ioctl(fd, _IO('T', 1), 0), EINVAL));
    // Another file: the interface has one queue.
    int other = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
    CHECK(FAILS(ioctl(other, TUNSETIFF, &i), EBUSY));
    i.ifr_flags = IFF_TAP | IFF_NO_PI;
    CHECK(FAILS(ioctl(other, TUNSETIFF, &i), EINVAL));
    int index = link_index("test0");
    CHECK(index > 1);
    close(fd);
    CHECK(link_index("test0") == 0);
    i.ifr_flags = IFF_TAP | IFF_NO_PI;
    CHECK(ioctl(other, TUNSETIFF, &i) == 0);
    CHECK(ioctl(other, TUNSETPERSIST, 1) == 0 && ioctl(other, TUNGETIFF, &got) == 0 && got.ifr_flags == (IFF_TAP | IFF_NO_PI | IFF_PERSIST));
    close(other);
    CHECK(link_index("test0") > 1);
    other = open_tun("test0", IFF_TAP | IFF_NO_PI, NULL);
    CHECK(ioctl(other, SIOCGIFHWADDR, &got) == 0 && got.ifr_hwaddr.sa_family == 1 && !(got.ifr_hwaddr.sa_data[0] & 1));
    CHECK(ioctl(other, TUNSETPERSIST, 0) == 0);
    close(other);
    CHECK(link_index("test0") == 0);
    CHECK(delete_link("test0") == ENODEV);
}

static void packets_go_through_tun(void)
{
    uint8_t b[2048], reply[2048];
    int fd = open_tun("tun0", IFF_TUN | IFF_NO_PI, NULL);
    CHECK(add_ip("tun0", "10.9.0.1", 24) == 0 && add_ip("tun0", "10.9.0.1", 24) == EEXIST);
    CHECK(set_up("tun0", 1) == 0);
    int n = echo_request(b, "10.9.0.2", "10.9.0.1", 64, 64);
    CHECK(write(fd, b, n) == n);
    CHECK(next(fd, reply, sizeof reply) == n && reply[20] == 0 && memcmp(reply + 12, b + 16, 4) == 0 && memcmp(reply + 16, b + 12, 4) == 0);
    CHECK(sum_of(reply, 20) == 0 && sum_of(reply + 20, n - 20) == 0);
    // What is no packet.
    memset(b, 0, sizeof b);
    CHECK(FAILS(write(fd, b, 20), EINVAL));
    // UDP both ways.
    int udp = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(4000)}, own;
    socklen_t length = sizeof own;
    inet_pton(AF_INET, "10.9.0.77", &to.sin_addr);
    CHECK(connect(udp, (void *)&to, sizeof to) == 0 && getsockname(udp, (void *)&own, &length) == 0);
    CHECK(own.sin_addr.s_addr == inet_addr("10.9.0.1") && send(udp, "question", 8, 0) == 8);
    CHECK(next(fd, b, sizeof b) == 36 && b[9] == IPPROTO_UDP && memcmp(b + 28, "question", 8) == 0);
    uint8_t answer[8 + 6] = {0x0f, 0xa0, own.sin_port & 255, own.sin_port >> 8, 0, 14, 0, 0, 'a', 'n', 's', 'w', 'e', 'r'};
    n = packet(reply, "10.9.0.77", "10.9.0.1", IPPROTO_UDP, 64, answer, sizeof answer);
    CHECK(write(fd, reply, n) == n);
    struct pollfd p = {udp, POLLIN, 0};
    CHECK(poll(&p, 1, 5000) == 1 && recv(udp, b, sizeof b, 0) == 6 && memcmp(b, "answer", 6) == 0);
    // A packet from this machine's own address is nobody's.
    n = echo_request(b, "10.9.0.1", "10.9.0.1", 64, 64);
    CHECK(write(fd, b, n) == n && is_empty(fd));
    // A closed port.
    answer[2] = 0, answer[3] = 9;
    n = packet(reply, "10.9.0.77", "10.9.0.1", IPPROTO_UDP, 64, answer, sizeof answer);
    CHECK(write(fd, reply, n) == n);
    CHECK(next(fd, b, sizeof b) == 20 + 8 + n && b[20] == 3 && b[21] == 3);
    close(udp);
    // Down: routes go, writes fail.
    CHECK(set_up("tun0", 0) == 0);
    udp = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(FAILS(connect(udp, (void *)&to, sizeof to), ENETUNREACH));
    CHECK(FAILS(write(fd, reply, n), EIO));
    CHECK(address(RTM_DELADDR, 0, "tun0", "10.9.0.1", 24) == 0 && address(RTM_DELADDR, 0, "tun0", "10.9.0.1", 24) == EADDRNOTAVAIL);
    close(udp);
    // Deleted while it is open.
    CHECK(delete_link("tun0") == 0 && FAILS(read(fd, b, sizeof b), EBADFD));
    close(fd);
    // Headers: struct tun_pi, and what does not fit the reader's buffer.
    fd = open_tun("tun1", IFF_TUN, NULL);
    CHECK(add_ip("tun1", "10.9.1.1", 24) == 0 && set_up("tun1", 1) == 0);
    uint8_t with[2048] = {0, 0, 8, 0};
    n = 4 + echo_request(with + 4, "10.9.1.2", "10.9.1.1", 64, 64);
    CHECK(FAILS(write(fd, with, 3), EINVAL) && write(fd, with, n) == n);
    for (;;) {
        struct pollfd q = {fd, POLLIN, 0};
        CHECK(poll(&q, 1, 5000) == 1);
        int got = read(fd, reply, 40);
        CHECK(got == 40);
        if (reply[4] >> 4 == 4)
            break;
    }
    CHECK(reply[0] == TUN_PKT_STRIP && reply[2] == 8 && reply[3] == 0 && reply[24] == 0);
    close(fd);
    // With struct virtio_net_hdr, a checksum is left to the interface.
    fd = open_tun("tun2", IFF_TUN | IFF_NO_PI | IFF_VNET_HDR, NULL);
    CHECK(add_ip("tun2", "10.9.2.1", 24) == 0 && set_up("tun2", 1) == 0);
    uint8_t vnet[2048] = {1, 0, 0, 0, 0, 0, 20, 0, 2, 0};
    n = echo_request(vnet + 10, "10.9.2.2", "10.9.2.1", 64, 64);
    vnet[32] = vnet[33] = 0;
    CHECK(FAILS(write(fd, vnet, 9), EINVAL) && write(fd, vnet, n + 10) == n + 10);
    for (;;) {
        struct pollfd q = {fd, POLLIN, 0};
        CHECK(poll(&q, 1, 5000) == 1);
        CHECK(read(fd, reply, sizeof reply) > 10);
        if (reply[10] >> 4 == 4)
            break;
    }
    CHECK(reply[30] == 0 && sum_of(reply + 30, 64) == 0);
    vnet[6] = 255;
    CHECK(FAILS(write(fd, vnet, n + 10), EINVAL));
    close(fd);
}

static void packets_are_sent_on(void)
{
    uint8_t b[2048], got[2048];
    int in = open_tun("in", IFF_TUN | IFF_NO_PI, NULL), out = open_tun("out", IFF_TUN | IFF_NO_PI, NULL);
    CHECK(add_ip("in", "10.1.0.1", 24) == 0 && add_ip("out", "10.2.0.1", 24) == 0 && set_up("in", 1) == 0 && set_up("out", 1) == 0);
    int forward = open("/proc/sys/net/ipv4/ip_forward", O_RDWR);
    CHECK(forward >= 0 && write(forward, "0", 1) == 1);
    int n = echo_request(b, "10.1.0.2", "10.2.0.2", 9, 100);
    CHECK(write(in, b, n) == n && is_empty(out) && is_empty(in));
    CHECK(pwrite(forward, "1", 1, 0) == 1 && pread(forward, got, 2, 0) == 2 && got[0] == '1');
    CHECK(write(in, b, n) == n && next(out, got, sizeof got) == n);
    CHECK(got[8] == 8 && sum_of(got, 20) == 0 && memcmp(got + 12, b + 12, n - 12) == 0);
    // The time to live ends.
    n = echo_request(b, "10.1.0.2", "10.2.0.2", 1, 100);
    CHECK(write(in, b, n) == n && is_empty(out));
    CHECK(next(in, got, sizeof got) >= 28 + 28 && got[9] == IPPROTO_ICMP && got[20] == 11 && got[21] == 0);
    CHECK(memcmp(got + 12, (uint8_t[]){10, 1, 0, 1}, 4) == 0 && sum_of(got, 20) == 0);
    // Nobody knows the way. Linux sends one host few errors a second.
    n = echo_request(b, "10.1.0.3", "10.77.0.2", 9, 100);
    CHECK(write(in, b, n) == n && next(in, got, sizeof got) >= 56 && got[20] == 3 && got[21] == 0);
    CHECK(route(RTM_NEWROUTE, ADD, (struct route){.to = "10.77.0.0", .prefix = 24, .kind = RTN_UNREACHABLE}) == 0);
    n = echo_request(b, "10.1.0.4", "10.77.0.2", 9, 100);
    CHECK(write(in, b, n) == n && next(in, got, sizeof got) >= 56 && got[20] == 3 && got[21] == 1);
    CHECK(route(RTM_DELROUTE, 0, (struct route){.to = "10.77.0.0", .prefix = 24}) == 0);
    CHECK(route(RTM_NEWROUTE, ADD, (struct route){.to = "10.77.0.0", .prefix = 24, .kind = RTN_PROHIBIT}) == 0);
    n = echo_request(b, "10.1.0.5", "10.77.0.2", 9, 100);
    CHECK(write(in, b, n) == n && next(in, got, sizeof got) >= 56 && got[20] == 3 && got[21] == 13);
    CHECK(route(RTM_DELROUTE, 0, (struct route){.to = "10.77.0.0", .prefix = 24}) == 0);
    // Too long, and not to be cut; and cut.
    CHECK(set_number("out", IFLA_MTU, 500) == 0);
    n = echo_request(b, "10.1.0.6", "10.2.0.2", 9, 700);
    CHECK(write(in, b, n) == n && next(in, got, sizeof got) >= 56 && got[20] == 3 && got[21] == 4 && got[26] * 256 + got[27] == 500);
    b[6] = 0, b[10] = b[11] = 0;
    uint16_t sum = sum_of(b, 20);
    memcpy(b + 10, &sum, 2);
    CHECK(write(in, b, n) == n && next(out, got, sizeof got) == 500 && got[6] == 0x20 && sum_of(got, 20) == 0);
    CHECK(next(out, got, sizeof got) == n - 480 && got[6] == 0 && got[7] == 60 && sum_of(got, 20) == 0);
    close(forward);
    close(in);
    close(out);
}

static int fails_to(const char *to)
{
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(9)};
    inet_pton(AF_INET, to, &a.sin_addr);
    int error = connect(fd, (void *)&a, sizeof a) == 0 ? 0 : errno;
    close(fd);
    return error;
}

// The address that something to there is sent with.
static const char *source_to(const char *to)
{
    static char text[16];
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(9)};
    socklen_t length = sizeof a;
    inet_pton(AF_INET, to, &a.sin_addr);
    CHECK(connect(fd, (void *)&a, sizeof a) == 0 && getsockname(fd, (void *)&a, &length) == 0);
    close(fd);
    inet_ntop(AF_INET, &a.sin_addr, text, sizeof text);
    return text;
}

static int rule(int type, int flags, const char *from, const char *to, int priority, int table, int action)
{
    struct fib_rule_hdr h = {.family = AF_INET, .table = table, .action = action, .src_len = from ? 32 : 0, .dst_len = to ? 32 : 0};
    struct request r = begin(type, flags, &h, sizeof h);
    if (from)
        add_address(&r, FRA_SRC, from);
    if (to)
        add_address(&r, FRA_DST, to);
    if (priority)
        add_number(&r, FRA_PRIORITY, priority);
    return ask(&r);
}

static void routes_and_rules_are_linux(void)
{
    int a = open_tun("a", IFF_TUN | IFF_NO_PI, NULL), b = open_tun("b", IFF_TUN | IFF_NO_PI, NULL);
    struct route half = {.to = "172.16.0.0", .prefix = 12, .via = "10.1.0.9"};
    CHECK(add_ip("a", "10.1.0.1", 24) == 0 && add_ip("b", "10.2.0.1", 24) == 0);
    CHECK(route(RTM_NEWROUTE, ADD, half) == ENETUNREACH);
    CHECK(set_up("a", 1) == 0 && set_up("b", 1) == 0);
    CHECK(route(RTM_NEWROUTE, ADD, half) == 0 && route(RTM_NEWROUTE, ADD, half) == EEXIST);
    CHECK(strcmp(source_to("172.16.5.5"), "10.1.0.1") == 0 && fails_to("172.32.0.1") == ENETUNREACH);
    // A longer prefix comes first, a smaller metric before a larger.
    CHECK(route(RTM_NEWROUTE, ADD, (struct route){.to = "172.16.5.0", .prefix = 24, .via = "10.2.0.9"}) == 0);
    CHECK(strcmp(source_to("172.16.5.5"), "10.2.0.1") == 0);
    CHECK(route(RTM_NEWROUTE, ADD, (struct route){.to = "172.16.0.0", .prefix = 12, .via = "10.2.0.9", .metric = 5}) == 0);
    CHECK(strcmp(source_to("172.16.6.5"), "10.1.0.1") == 0);
    CHECK(route(RTM_DELROUTE, 0, half) == 0 && strcmp(source_to("172.16.6.5"), "10.2.0.1") == 0);
    CHECK(route(RTM_DELROUTE, 0, half) == ESRCH);
    CHECK(route(RTM_NEWROUTE, 0, half) == ENOENT);
    half.metric = 5;
    CHECK(route(RTM_NEWROUTE, NLM_F_REPLACE, half) == 0 && strcmp(source_to("172.16.6.5"), "10.1.0.1") == 0);
    // What leads nowhere.
    CHECK(route(RTM_NEWROUTE, ADD, (struct route){.to = "172.20.1.0", .prefix = 24, .kind = RTN_BLACKHOLE}) == 0 && fails_to("172.20.1.1") == EINVAL);
    CHECK(route(RTM_NEWROUTE, ADD, (struct route){.to = "172.20.2.0", .prefix = 24, .kind = RTN_UNREACHABLE}) == 0 && fails_to("172.20.2.1") == EHOSTUNREACH);
    CHECK(route(RTM_NEWROUTE, ADD, (struct route){.to = "172.20.3.0", .prefix = 24, .kind = RTN_PROHIBIT}) == 0 && fails_to("172.20.3.1") == EACCES);
    CHECK(route(RTM_NEWROUTE, ADD, (struct route){.to = "172.20.4.0", .prefix = 24, .kind = RTN_THROW}) == 0 && fails_to("172.20.4.1") == ENETUNREACH);
    // Mistakes.
    CHECK(route(RTM_NEWROUTE, ADD, (struct route){.to = "172.21.0.1", .prefix = 24, .via = "10.1.0.9"}) == EINVAL);
    CHECK(route(RTM_NEWROUTE, ADD, (struct route){.to = "172.21.0.0", .prefix = 24, .via = "10.1.0.9", .from = "10.5.5.5"}) == EINVAL);
    CHECK(route(RTM_NEWROUTE, ADD, (struct route){.to = "172.21.0.0", .prefix = 24}) == ENODEV);
    CHECK(route(RTM_NEWROUTE, ADD, (struct route){.to = "172.21.0.0", .prefix = 24, .via = "10.1.0.9", .from = "10.2.0.1"}) == 0);
    CHECK(strcmp(source_to("172.21.0.7"), "10.2.0.1") == 0);
    // Rules choose tables.
    CHECK(route(RTM_NEWROUTE, ADD, (struct route){.via = "10.2.0.9", .table = 100}) == 0);
    CHECK(fails_to("8.8.8.8") == ENETUNREACH);
    CHECK(rule(RTM_NEWRULE, ADD, NULL, "8.8.8.8", 500, 100, FR_ACT_TO_TBL) == 0 && rule(RTM_NEWRULE, ADD, NULL, "8.8.8.8", 500, 100, FR_ACT_TO_TBL) == EEXIST);
    CHECK(strcmp(source_to("8.8.8.8"), "10.2.0.1") == 0 && fails_to("8.8.4.4") == ENETUNREACH);
    CHECK(rule(RTM_NEWRULE, ADD, NULL, "8.8.8.8", 400, 0, FR_ACT_PROHIBIT) == 0 && fails_to("8.8.8.8") == EACCES);
    CHECK(rule(RTM_DELRULE, 0, NULL, "8.8.8.8", 400, 0, 0) == 0 && fails_to("8.8.8.8") == 0);
    CHECK(rule(RTM_DELRULE, 0, NULL, "8.8.8.8", 500, 100, 0) == 0 && rule(RTM_DELRULE, 0, NULL, "8.8.8.8", 500, 100, 0) == ENOENT);
    CHECK(fails_to("8.8.8.8") == ENETUNREACH);
    // An address goes with its network and with routes that speak with it; gateways stay.
    CHECK(address(RTM_DELADDR, 0, "b", "10.2.0.1", 24) == 0 && fails_to("10.2.0.5") == ENETUNREACH);
    CHECK(strcmp(source_to("172.21.0.7"), "10.1.0.1") == 0 && strcmp(source_to("172.16.5.5"), "10.1.0.1") == 0);
    close(a);
    close(b);
    CHECK(fails_to("10.1.0.5") == ENETUNREACH);
}

static int bound(int type, const char *to, int port)
{
    int fd = socket(AF_INET, type, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, to, &a.sin_addr);
    CHECK(bind(fd, (void *)&a, sizeof a) == 0);
    return fd;
}

static void *whole(int size)
{
    static char bytes[1 << 20];
    for (int i = 0; i < size; i++)
        bytes[i] = i * 7 + i / 251;
    return bytes;
}

// The other end of a pair in a namespace of its own: answers one datagram, and sends back what a connection sends.
static void other_end(int ready)
{
    char c;
    CHECK(unshare(CLONE_NEWNET) == 0 && write(ready, "u", 1) == 1 && read(ready, &c, 1) == 1);
    CHECK(link_index("near") == 0 && link_index("far") > 0);
    CHECK(set_up("lo", 1) == 0 && add_ip("far", "10.3.0.2", 24) == 0 && set_up("far", 1) == 0);
    int udp = bound(SOCK_DGRAM, "10.3.0.2", 5000), listener = bound(SOCK_STREAM, "0.0.0.0", 5001);
    CHECK(listen(listener, 1) == 0 && write(ready, "r", 1) == 1);
    struct sockaddr_in from;
    socklen_t length = sizeof from;
    char b[4096];
    ssize_t n = recvfrom(udp, b, sizeof b, 0, (void *)&from, &length);
    CHECK(n == 3000 && from.sin_addr.s_addr == inet_addr("10.3.0.1") && sendto(udp, b, n, 0, (void *)&from, length) == n);
    int fd = accept(listener, NULL, NULL);
    CHECK(fd >= 0);
    while ((n = read(fd, b, sizeof b)) > 0)
        for (ssize_t done = 0; done < n;) {
            ssize_t sent = write(fd, b + done, n - done);
            CHECK(sent > 0);
            done += sent;
        }
    close(fd);
    CHECK(read(ready, &c, 1) == 1);
    // The near end was deleted.
    CHECK(link_index("far") == 0 && fails_to("10.3.0.1") == ENETUNREACH);
    _exit(0);
}

static void pairs_join_namespaces(void)
{
    int ends[2];
    char c;
    CHECK(make_link("veth", "near", "far", ADD) == 0 && make_link("veth", "near", "third", ADD) == EEXIST);
    CHECK(link_index("third") == 0 && make_link("nosuch", "x", NULL, ADD) == EOPNOTSUPP);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        other_end(ends[1]);
    }
    close(ends[1]);
    CHECK(read(ends[0], &c, 1) == 1 && set_number("far", IFLA_NET_NS_PID, child) == 0 && link_index("far") == 0);
    CHECK(set_number("near", IFLA_NET_NS_PID, 999999) == ESRCH);
    CHECK(add_ip("near", "10.3.0.1", 24) == 0 && set_up("near", 1) == 0);
    CHECK(write(ends[0], "m", 1) == 1 && read(ends[0], &c, 1) == 1 && c == 'r');
    int udp = bound(SOCK_DGRAM, "10.3.0.1", 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(5000)};
    inet_pton(AF_INET, "10.3.0.2", &a.sin_addr);
    char b[4096], *data = whole(1 << 20);
    // In fragments, both ways.
    CHECK(sendto(udp, data, 3000, 0, (void *)&a, sizeof a) == 3000);
    struct pollfd p = {udp, POLLIN, 0};
    CHECK(poll(&p, 1, 5000) == 1 && recv(udp, b, sizeof b, 0) == 3000 && memcmp(b, data, 3000) == 0);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    a.sin_port = htons(5001);
    CHECK(connect(fd, (void *)&a, sizeof a) == 0);
    if (fork() == 0) {
        for (int done = 0; done < 1 << 20;) {
            ssize_t n = write(fd, data + done, (1 << 20) - done);
            CHECK(n > 0);
            done += n;
        }
        shutdown(fd, SHUT_WR);
        _exit(0);
    }
    int got = 0;
    for (ssize_t n; (n = read(fd, b, sizeof b)) > 0; got += n)
        CHECK(memcmp(b, data + got, n) == 0);
    int status;
    CHECK(got == 1 << 20 && waitpid(-1, &status, 0) > 0 && status == 0);
    close(fd);
    close(udp);
    CHECK(set_number("near", IFLA_MTU, 67) == EINVAL && set_number("near", IFLA_MTU, 1400) == 0);
    CHECK(delete_link("near") == 0 && write(ends[0], "d", 1) == 1);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    close(ends[0]);
    // With its namespace a pair's end goes, and so does the other.
    CHECK(make_link("veth", "near", "far", ADD) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    child = fork();
    if (child == 0) {
        CHECK(unshare(CLONE_NEWNET) == 0 && write(ends[1], "u", 1) == 1 && read(ends[1], &c, 1) == 1);
        _exit(0);
    }
    CHECK(read(ends[0], &c, 1) == 1 && set_number("far", IFLA_NET_NS_PID, child) == 0 && write(ends[0], "e", 1) == 1);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    for (int i = 0; link_index("near"); i++) {
        CHECK(i < 5000);
        usleep(1000);
    }
    close(ends[0]);
    close(ends[1]);
}

static int frame(uint8_t *to, const uint8_t *dest, const uint8_t *source, const char *text)
{
    memcpy(to, dest, 6);
    memcpy(to + 6, source, 6);
    to[12] = 0x88, to[13] = 0xb5;
    strcpy((char *)to + 14, text);
    return 60;
}

static int hears(int fd, const char *text)
{
    uint8_t b[2048];
    for (int i = 0; i < 50; i++) {
        struct pollfd p = {fd, POLLIN, 0};
        if (poll(&p, 1, 20) == 0)
            return 0;
        int n = read(fd, b, sizeof b);
        if (n > 14 && b[12] == 0x88 && b[13] == 0xb5 && strcmp((char *)b + 14, text) == 0)
            return 1;
    }
    return 0;
}

static void bridges_join_interfaces(void)
{
    static const uint8_t all[6] = {255, 255, 255, 255, 255, 255}, one[6] = {2, 0, 0, 0, 0, 1}, two[6] = {2, 0, 0, 0, 0, 2};
    uint8_t b[2048] = {0};
    int fds[3];
    char name[16];
    CHECK(make_link("bridge", "br", NULL, ADD) == 0 && set_up("br", 1) == 0);
    for (int i = 0; i < 3; i++) {
        sprintf(name, "tap%d", i);
        fds[i] = open_tun(name, IFF_TAP | IFF_NO_PI, NULL);
        CHECK(set_up(name, 1) == 0 && set_number(name, IFLA_MASTER, link_index("br")) == 0);
    }
    CHECK(set_number("br", IFLA_MASTER, link_index("br")) == ELOOP && set_number("lo", IFLA_MASTER, link_index("br")) != 0);
    // A frame for all goes to all others, one for somebody known to him alone.
    int n = frame(b, all, one, "all");
    CHECK(write(fds[0], b, n) == n && hears(fds[1], "all") && hears(fds[2], "all") && !hears(fds[0], "all"));
    n = frame(b, one, two, "answer");
    CHECK(write(fds[1], b, n) == n && hears(fds[0], "answer") && !hears(fds[2], "answer"));
    n = frame(b, two, one, "again");
    CHECK(write(fds[0], b, n) == n && hears(fds[1], "again") && !hears(fds[2], "again"));
    // The bridge answers for its own address.
    CHECK(add_ip("br", "10.4.0.1", 24) == 0);
    uint8_t arp[60] = {255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 1, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 4, 0, 2, 0, 0, 0, 0, 0, 0, 10, 4, 0, 1};
    CHECK(write(fds[0], arp, 60) == 60);
    for (int i = 0;; i++) {
        struct pollfd p = {fds[0], POLLIN, 0};
        CHECK(poll(&p, 1, 5000) == 1 && i < 50);
        int got = read(fds[0], b, sizeof b);
        if (got >= 42 && b[12] == 8 && b[13] == 6 && b[21] == 2)
            break;
    }
    CHECK(memcmp(b, one, 6) == 0 && memcmp(b + 28, arp + 38, 4) == 0 && memcmp(b + 38, arp + 28, 4) == 0);
    CHECK(set_number("tap1", IFLA_MASTER, 0) == 0);
    n = frame(b, all, one, "left");
    CHECK(write(fds[0], b, n) == n && hears(fds[2], "left") && !hears(fds[1], "left"));
    CHECK(delete_link("br") == 0 && link_index("tap0") > 0);
    for (int i = 0; i < 3; i++)
        close(fds[i]);
}

static void changes_are_told(void)
{
    int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
    struct sockaddr_nl own = {.nl_family = AF_NETLINK, .nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV4_ROUTE};
    CHECK(bind(fd, (void *)&own, sizeof own) == 0);
    CHECK(make_link("veth", "told", "told1", ADD) == 0 && add_ip("told", "10.6.0.1", 24) == 0 && set_up("told", 1) == 0);
    int index = link_index("told");
    CHECK(delete_link("told") == 0);
    int links = 0, addresses = 0, routes = 0, gone = 0, gone_addresses = 0;
    char b[8192];
    ssize_t n;
    while ((n = recv(fd, b, sizeof b, MSG_DONTWAIT)) > 0)
        for (struct nlmsghdr *h = (void *)b; NLMSG_OK(h, n); h = NLMSG_NEXT(h, n)) {
            struct ifinfomsg *link = NLMSG_DATA(h);
            struct ifaddrmsg *with = NLMSG_DATA(h);
            links += h->nlmsg_type == RTM_NEWLINK && link->ifi_index == index;
            gone += h->nlmsg_type == RTM_DELLINK && link->ifi_index == index && link->ifi_family == AF_UNSPEC;
            addresses += h->nlmsg_type == RTM_NEWADDR && with->ifa_family == AF_INET && with->ifa_index == (unsigned)index;
            gone_addresses += h->nlmsg_type == RTM_DELADDR && with->ifa_family == AF_INET && with->ifa_index == (unsigned)index;
            routes += h->nlmsg_type == RTM_NEWROUTE && ((struct rtmsg *)NLMSG_DATA(h))->rtm_dst_len == 24;
        }
    CHECK(links >= 2 && gone == 1 && addresses == 1 && gone_addresses == 1 && routes == 1);
    close(fd);
}

static void who_may_not_administer_is_refused(void)
{
    pid_t child = fork();
    if (child == 0) {
        CHECK(setuid(65534) == 0);
        int fd = open("/dev/net/tun", O_RDWR);
        struct ifreq i = {.ifr_flags = IFF_TUN, .ifr_name = "mine"};
        // On some computers the device is the superuser's.
        CHECK(fd < 0 ? errno == EACCES : FAILS(ioctl(fd, TUNSETIFF, &i), EPERM));
        CHECK(make_link("veth", "x", "y", ADD) == EPERM && add_ip("lo", "10.0.0.1", 8) == EPERM);
        CHECK(route(RTM_NEWROUTE, ADD, (struct route){.to = "10.0.0.0", .prefix = 8, .kind = RTN_BLACKHOLE}) == EPERM);
        int udp = socket(AF_INET, SOCK_DGRAM, 0);
        strcpy(i.ifr_name, "lo");
        i.ifr_flags = 0;
        CHECK(FAILS(ioctl(udp, SIOCSIFFLAGS, &i), EPERM));
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(void)
{
    setvbuf(stdout, NULL, _IONBF, 0);
    CHECK(unshare(CLONE_NEWNET) == 0 && set_up("lo", 1) == 0);
    files_become_interfaces();
    packets_go_through_tun();
    packets_are_sent_on();
    routes_and_rules_are_linux();
    pairs_join_namespaces();
    bridges_join_interfaces();
    changes_are_told();
    who_may_not_administer_is_refused();
    puts("interfaces: ok");
    return 0;
}
