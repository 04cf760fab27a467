// SPDX-License-Identifier: Apache-2.0 OR MIT
// AF_PACKET (packet(7)) on loopback: what sockets see and send, their options, groups. On Linux: in a network namespace, as root.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <linux/filter.h>
#include <net/if_arp.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define EXPERIMENTAL 0x88b5
#ifndef PACKET_IGNORE_OUTGOING
#define PACKET_IGNORE_OUTGOING 23
#endif

#define FAILS(call, with) CHECK((call) == -1 && errno == (with))

static int lo;
static int udp, port;

static struct sockaddr_ll link_of(int index, int protocol)
{
    return (struct sockaddr_ll){.sll_family = AF_PACKET, .sll_ifindex = index, .sll_protocol = htons(protocol)};
}

static int opened(int type, int protocol)
{
    int fd = socket(AF_PACKET, type, 0);
    struct sockaddr_ll address = link_of(lo, protocol);
    CHECK(fd >= 0 && bind(fd, (void *)&address, sizeof address) == 0);
    return fd;
}

// The next packet, for which it waits.
static ssize_t get(int fd, void *buffer, size_t length, struct sockaddr_ll *from)
{
    struct pollfd p = {fd, POLLIN, 0};
    socklen_t size = sizeof *from;
    CHECK(poll(&p, 1, 5000) == 1 && p.revents == POLLIN);
    ssize_t n = recvfrom(fd, buffer, length, MSG_DONTWAIT | MSG_TRUNC, (void *)from, &size);
    CHECK(size == sizeof *from && from->sll_family == AF_PACKET && from->sll_ifindex == lo && from->sll_halen == 6);
    CHECK(from->sll_hatype == ARPHRD_LOOPBACK);
    return n;
}

static int is_empty(int fd)
{
    char byte;
    return recv(fd, &byte, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN;
}

// A datagram from this machine to itself.
static void say(const char *text)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = port, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    char back[2048];
    CHECK(sendto(udp, text, strlen(text), 0, (void *)&to, sizeof to) == (ssize_t)strlen(text));
    CHECK(recv(udp, back, sizeof back, 0) == (ssize_t)strlen(text));
}

static int number(int fd, int name)
{
    int value = -1;
    socklen_t length = sizeof value;
    CHECK(getsockopt(fd, SOL_PACKET, name, &value, &length) == 0 && length == sizeof value);
    return value;
}

static int set(int fd, int name, int value)
{
    return setsockopt(fd, SOL_PACKET, name, &value, sizeof value);
}

static struct tpacket_stats statistics(int fd)
{
    struct tpacket_stats stats;
    socklen_t length = sizeof stats;
    CHECK(getsockopt(fd, SOL_PACKET, PACKET_STATISTICS, &stats, &length) == 0 && length == sizeof stats);
    return stats;
}

static void making_and_naming(void)
{
    struct sockaddr_ll address = link_of(lo, ETH_P_ALL), name;
    struct sockaddr_in other = {.sin_family = AF_INET};
    socklen_t length = sizeof name;
    int pair[2];
    FAILS(socket(AF_PACKET, SOCK_STREAM, 0), ESOCKTNOSUPPORT);
    FAILS(socket(AF_PACKET, SOCK_SEQPACKET, 0), ESOCKTNOSUPPORT);
    FAILS(socketpair(AF_PACKET, SOCK_RAW, 0, pair), EOPNOTSUPP);
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0);
    CHECK(getsockname(fd, (void *)&name, &length) == 0 && length == 12);
    CHECK(name.sll_family == AF_PACKET && name.sll_ifindex == 0 && name.sll_protocol == 0 && name.sll_halen == 0);
    FAILS(bind(fd, (void *)&address, sizeof address - 1), EINVAL);
    FAILS(bind(fd, (void *)&other, sizeof other), EINVAL);
    address.sll_family = AF_INET;
    FAILS(bind(fd, (void *)&address, sizeof address), EINVAL);
    address = link_of(4711, ETH_P_ALL);
    FAILS(bind(fd, (void *)&address, sizeof address), ENODEV);
    address = link_of(lo, 0);
    CHECK(bind(fd, (void *)&address, sizeof address) == 0);
    say("nobody listens");
    CHECK(is_empty(fd));
    address = link_of(lo, ETH_P_IP);
    CHECK(bind(fd, (void *)&address, sizeof address) == 0);
    length = sizeof name;
    CHECK(getsockname(fd, (void *)&name, &length) == 0 && length == 18);
    CHECK(name.sll_ifindex == lo && name.sll_protocol == htons(ETH_P_IP) && name.sll_halen == 6);
    CHECK(name.sll_hatype == ARPHRD_LOOPBACK && name.sll_pkttype == 0);
    // The protocol stays where none is named.
    address = link_of(0, 0);
    CHECK(bind(fd, (void *)&address, sizeof address) == 0);
    length = sizeof name;
    CHECK(getsockname(fd, (void *)&name, &length) == 0 && name.sll_protocol == htons(ETH_P_IP) && name.sll_ifindex == 0);
    FAILS(getpeername(fd, (void *)&name, &length), EOPNOTSUPP);
    FAILS(connect(fd, (void *)&address, sizeof address), EOPNOTSUPP);
    FAILS(listen(fd, 1), EOPNOTSUPP);
    FAILS(accept(fd, NULL, NULL), EOPNOTSUPP);
    FAILS(shutdown(fd, SHUT_RDWR), EOPNOTSUPP);
    length = sizeof pair[0];
    CHECK(getsockopt(fd, SOL_SOCKET, SO_TYPE, pair, &length) == 0 && pair[0] == SOCK_RAW);
    CHECK(getsockopt(fd, SOL_SOCKET, SO_DOMAIN, pair, &length) == 0 && pair[0] == AF_PACKET);
    CHECK(getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, pair, &length) == 0 && pair[0] == 0);
    close(fd);
    // Without CAP_NET_RAW there is none.
    pid_t child = fork();
    if (child == 0) {
        CHECK(setresuid(65534, 65534, 65534) == 0);
        FAILS(socket(AF_PACKET, SOCK_RAW, 0), EPERM);
        FAILS(socket(AF_PACKET, SOCK_DGRAM, 0), EPERM);
        FAILS(socket(AF_PACKET, SOCK_STREAM, 0), EPERM);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void frames_go_by_twice(void)
{
    static const char text[] = "seen twice";
    unsigned char frame[256], packet[256];
    struct sockaddr_ll from;
    int all = opened(SOCK_RAW, ETH_P_ALL), ip = opened(SOCK_DGRAM, ETH_P_IP), arp = opened(SOCK_RAW, ETH_P_ARP);
    say(text);
    for (int kind = 0; kind < 2; kind++) {
        ssize_t n = get(all, frame, sizeof frame, &from);
        struct ethhdr *link = (void *)frame;
        CHECK(n == (ssize_t)(14 + 20 + 8 + strlen(text)) && from.sll_pkttype == (kind ? PACKET_HOST : PACKET_OUTGOING));
        CHECK(from.sll_protocol == htons(ETH_P_IP) && link->h_proto == htons(ETH_P_IP));
        CHECK(memcmp(frame, (char[12]){0}, 12) == 0 && memcmp(frame + 42, text, strlen(text)) == 0);
        struct udphdr *header = (void *)(frame + 34);
        CHECK(header->dest == port && ntohs(header->len) == 8 + strlen(text));
    }
    CHECK(is_empty(all) && is_empty(arp));
    // Those of one protocol get what comes in, and datagrams have no link header.
    CHECK(get(ip, packet, sizeof packet, &from) == (ssize_t)(28 + strlen(text)) && from.sll_pkttype == PACKET_HOST);
    CHECK(packet[0] == 0x45 && packet[9] == IPPROTO_UDP && memcmp(packet, frame + 14, 28 + strlen(text)) == 0);
    CHECK(is_empty(ip));
    CHECK(set(all, PACKET_IGNORE_OUTGOING, 2) == -1 && errno == EINVAL);
    CHECK(set(all, PACKET_IGNORE_OUTGOING, 1) == 0 && number(all, PACKET_IGNORE_OUTGOING) == 1);
    say(text);
    CHECK(get(all, frame, sizeof frame, &from) > 0 && from.sll_pkttype == PACKET_HOST && is_empty(all));
    // What does not fit is lost, and its length is told.
    say(text);
    struct msghdr message = {.msg_iov = &(struct iovec){frame, 20}, .msg_iovlen = 1};
    CHECK(recvmsg(all, &message, MSG_PEEK) == 20 && message.msg_flags == MSG_TRUNC);
    CHECK(recvmsg(all, &message, MSG_TRUNC) == (ssize_t)(42 + strlen(text)) && message.msg_flags == MSG_TRUNC);
    CHECK(is_empty(all));
    FAILS(recv(all, frame, 1, MSG_WAITALL), EINVAL);
    FAILS(recv(all, frame, 1, MSG_OOB), EINVAL);
    FAILS(recv(all, frame, 1, MSG_ERRQUEUE), EAGAIN);
    struct timeval brief = {0, 20000};
    CHECK(setsockopt(all, SOL_SOCKET, SO_RCVTIMEO, &brief, sizeof brief) == 0);
    FAILS(recv(all, frame, 1, 0), EAGAIN);
    close(all), close(ip), close(arp);
}

static void own_frames(void)
{
    unsigned char frame[2000] = {0}, back[2000];
    struct sockaddr_ll to = link_of(lo, EXPERIMENTAL), from;
    struct ifreq request = {.ifr_name = "lo"};
    int sender = opened(SOCK_RAW, ETH_P_ALL), other = opened(SOCK_RAW, ETH_P_ALL), mine = opened(SOCK_DGRAM, EXPERIMENTAL);
    memcpy(frame + 6, "\2\0\0\0\0\7", 6);
    frame[12] = EXPERIMENTAL >> 8, frame[13] = EXPERIMENTAL & 255;
    memcpy(frame + 14, "hello", 5);
    CHECK(send(sender, frame, 60, 0) == 60);
    // The sender does not see that it sends, but that it receives.
    CHECK(get(sender, back, sizeof back, &from) == 60 && from.sll_pkttype == PACKET_HOST && memcmp(back, frame, 60) == 0);
    CHECK(from.sll_protocol == htons(EXPERIMENTAL) && memcmp(from.sll_addr, "\2\0\0\0\0\7", 6) == 0 && is_empty(sender));
    CHECK(get(other, back, sizeof back, &from) == 60 && from.sll_pkttype == PACKET_OUTGOING);
    CHECK(get(other, back, sizeof back, &from) == 60 && from.sll_pkttype == PACKET_HOST && is_empty(other));
    CHECK(get(mine, back, sizeof back, &from) == 46 && memcmp(back, "hello", 5) == 0);
    // Loopback has no address for all.
    static const struct {
        unsigned char first, kind;
    } kinds[] = {{0xff, PACKET_MULTICAST}, {1, PACKET_MULTICAST}, {2, PACKET_OTHERHOST}};
    for (int i = 0; i < 3; i++) {
        memset(frame, kinds[i].first, 6);
        CHECK(sendto(sender, frame, 60, 0, (void *)&to, sizeof to) == 60);
        CHECK(get(mine, back, sizeof back, &from) == 46 && from.sll_pkttype == kinds[i].kind);
    }
    // Of a datagram the header is made from the address.
    memset(frame, 0, 6);
    to.sll_halen = 6;
    CHECK(sendto(mine, "hi", 2, 0, (void *)&to, sizeof to) == 2);
    for (int i = 0; i < 8; i++)
        CHECK(get(other, back, sizeof back, &from) > 0);
    CHECK(from.sll_pkttype == PACKET_HOST && memcmp(back + 14, "hi", 2) == 0 && is_empty(other));
    CHECK(send(mine, "ho", 2, 0) == 2);
    CHECK(get(other, back, sizeof back, &from) == 16 && back[12] == EXPERIMENTAL >> 8);
    // Errors.
    CHECK(ioctl(sender, SIOCGIFMTU, &request) == 0);
    FAILS(send(sender, frame, 13, 0), EINVAL);
    FAILS(sendto(sender, frame, 60, 0, (void *)&to, sizeof to - 1), EINVAL);
    to.sll_halen = 9;
    FAILS(sendto(sender, frame, 60, 0, (void *)&to, sizeof to), EINVAL);
    to = link_of(4711, EXPERIMENTAL);
    FAILS(sendto(sender, frame, 60, 0, (void *)&to, sizeof to), ENXIO);
    static char large[70000];
    large[12] = frame[12], large[13] = frame[13];
    FAILS(send(sender, large, request.ifr_mtu + 15, 0), EMSGSIZE);
    FAILS(send(sender, large, request.ifr_mtu + 100, 0), EMSGSIZE);
    int unbound = socket(AF_PACKET, SOCK_RAW, 0);
    FAILS(send(unbound, frame, 60, 0), ENXIO);
    close(unbound), close(sender), close(other), close(mine);
}

static unsigned short sum(const void *bytes, size_t length)
{
    const unsigned char *b = bytes;
    unsigned long total = 0;
    for (size_t i = 0; i < length; i++)
        total += i % 2 ? b[i] : b[i] << 8;
    while (total >> 16)
        total = (total & 0xffff) + (total >> 16);
    return htons(~total & 0xffff);
}

// Addresses of loopback come from nowhere else than the stack itself.
static void a_forged_address_is_not_received(void)
{
    struct __attribute__((packed)) {
        struct ethhdr link;
        struct iphdr ip;
        struct udphdr udp;
        char text[4];
    } frame = {.link.h_proto = htons(ETH_P_IP), .text = "made"};
    struct sockaddr_ll from;
    char back[64];
    frame.ip = (struct iphdr){.version = 4, .ihl = 5, .ttl = 9, .protocol = IPPROTO_UDP, .tot_len = htons(32)};
    frame.ip.saddr = frame.ip.daddr = htonl(INADDR_LOOPBACK);
    frame.ip.check = sum(&frame.ip, sizeof frame.ip);
    frame.udp = (struct udphdr){.source = htons(9), .dest = port, .len = htons(12)};
    int fd = opened(SOCK_RAW, ETH_P_IP);
    CHECK(send(fd, &frame, sizeof frame, 0) == sizeof frame);
    CHECK(get(fd, back, sizeof back, &from) == sizeof frame && memcmp(back, &frame, sizeof frame) == 0);
    CHECK(is_empty(udp));
    close(fd);
}

static void filters_and_statistics(void)
{
    // The destination's port in a frame of UDP, and the protocol that is known.
    struct sock_filter code[] = {
        {BPF_LD | BPF_W | BPF_ABS, 0, 0, SKF_AD_OFF + SKF_AD_PROTOCOL}, {BPF_JMP | BPF_JEQ | BPF_K, 0, 7, ETH_P_IP},
        {BPF_LD | BPF_H | BPF_ABS, 0, 0, 36},                          {BPF_JMP | BPF_JEQ | BPF_K, 0, 5, ntohs(port)},
        {BPF_LD | BPF_B | BPF_ABS, 0, 0, SKF_NET_OFF + 9},             {BPF_JMP | BPF_JEQ | BPF_K, 0, 3, IPPROTO_UDP},
        {BPF_LD | BPF_H | BPF_ABS, 0, 0, SKF_LL_OFF + 12},             {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, ETH_P_IP},
        {BPF_RET | BPF_K, 0, 0, 44},                                   {BPF_RET | BPF_K, 0, 0, 0},
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    unsigned char frame[256], other[60] = {0};
    struct sockaddr_ll from;
    int fd = opened(SOCK_RAW, ETH_P_ALL), on = 1, small = 1;
    CHECK(setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) == 0);
    other[12] = EXPERIMENTAL >> 8, other[13] = EXPERIMENTAL & 255;
    int sender = opened(SOCK_RAW, 0);
    CHECK(send(sender, other, sizeof other, 0) == sizeof other);
    say("filtered text");
    CHECK(get(fd, frame, sizeof frame, &from) == 44 && frame[42] == 'f' && frame[43] == 'i');
    CHECK(set(fd, PACKET_AUXDATA, 1) == 0 && number(fd, PACKET_AUXDATA) == 1);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof on) == 0);
    union {
        struct cmsghdr align;
        char bytes[256];
    } control;
    struct msghdr message = {
        .msg_iov = &(struct iovec){frame, sizeof frame}, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    CHECK(recvmsg(fd, &message, 0) == 44 && message.msg_flags == 0);
    int found = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
        if (c->cmsg_level == SOL_PACKET && c->cmsg_type == PACKET_AUXDATA) {
            struct tpacket_auxdata aux;
            CHECK(c->cmsg_len == CMSG_LEN(sizeof aux));
            memcpy(&aux, CMSG_DATA(c), sizeof aux);
            // Loopback's datagrams have no checksum yet.
            CHECK(aux.tp_status == (TP_STATUS_USER | TP_STATUS_CSUMNOTREADY) && aux.tp_len == 55 && aux.tp_snaplen == 44);
            CHECK(aux.tp_mac == 0 && aux.tp_net == 14 && aux.tp_vlan_tci == 0);
            found |= 1;
        }
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_TIMESTAMP)
            found |= 2;
    }
    CHECK(found == 3);
    struct tpacket_stats stats = statistics(fd);
    CHECK(stats.tp_packets == 2 && stats.tp_drops == 0);
    stats = statistics(fd);
    CHECK(stats.tp_packets == 0 && stats.tp_drops == 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &on, sizeof on) == 0);
    // What does not fit the buffer is counted.
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small) == 0);
    for (int i = 0; i < 20; i++)
        say("one of many");
    stats = statistics(fd);
    CHECK(stats.tp_packets == 40 && stats.tp_drops > 30 && stats.tp_drops < 40);
    int next = 0;
    CHECK(ioctl(fd, FIONREAD, &next) == 0 && next == 53);
    unsigned kept = 0;
    while (recv(fd, frame, sizeof frame, MSG_DONTWAIT) > 0)
        kept++;
    CHECK(kept == 40 - stats.tp_drops);
    CHECK(ioctl(fd, FIONREAD, &next) == 0 && next == 0);
    struct timeval at, now;
    on = 0;
    CHECK(setsockopt(fd, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof on) == 0);
    ioctl(fd, SIOCGSTAMP, &at);
    say("stamped");
    CHECK(recv(fd, frame, sizeof frame, 0) > 0);
    CHECK(ioctl(fd, SIOCGSTAMP, &at) == 0 && gettimeofday(&now, NULL) == 0 && now.tv_sec - at.tv_sec < 60);
    close(fd), close(sender);
}

static void options_and_memberships(void)
{
    int fd = opened(SOCK_RAW, ETH_P_ALL), value;
    socklen_t length;
    FAILS(setsockopt(fd, SOL_PACKET, 99, &fd, sizeof fd), ENOPROTOOPT);
    FAILS(setsockopt(fd, IPPROTO_IP, 1, &fd, sizeof fd), ENOPROTOOPT);
    length = sizeof value;
    FAILS(getsockopt(fd, SOL_PACKET, 99, &value, &length), ENOPROTOOPT);
    FAILS(getsockopt(fd, IPPROTO_IP, 1, &value, &length), ENOPROTOOPT);
    FAILS(setsockopt(fd, SOL_PACKET, PACKET_VERSION, &fd, 3), EINVAL);
    FAILS(set(fd, PACKET_VERSION, 3), EINVAL);
    CHECK(set(fd, PACKET_VERSION, TPACKET_V3) == 0 && number(fd, PACKET_VERSION) == TPACKET_V3);
    static const int headers[] = {sizeof(struct tpacket_hdr), sizeof(struct tpacket2_hdr), sizeof(struct tpacket3_hdr)};
    for (int version = 0; version < 3; version++) {
        value = version, length = sizeof value;
        CHECK(getsockopt(fd, SOL_PACKET, PACKET_HDRLEN, &value, &length) == 0 && value == headers[version]);
    }
    value = 3, length = sizeof value;
    FAILS(getsockopt(fd, SOL_PACKET, PACKET_HDRLEN, &value, &length), EINVAL);
    length = 3;
    FAILS(getsockopt(fd, SOL_PACKET, PACKET_HDRLEN, &value, &length), EINVAL);
    FAILS(set(fd, PACKET_RESERVE, -1), EINVAL);
    CHECK(set(fd, PACKET_RESERVE, 16) == 0 && number(fd, PACKET_RESERVE) == 16);
    CHECK(set(fd, PACKET_LOSS, 7) == 0 && number(fd, PACKET_LOSS) == 1);
    CHECK(set(fd, PACKET_TIMESTAMP, 1) == 0 && number(fd, PACKET_TIMESTAMP) == 1);
    CHECK(set(fd, PACKET_ORIGDEV, 1) == 0 && number(fd, PACKET_ORIGDEV) == 1);
    CHECK(set(fd, PACKET_QDISC_BYPASS, 1) == 0 && number(fd, PACKET_QDISC_BYPASS) == 1);
    CHECK(set(fd, PACKET_TX_HAS_OFF, 1) == 0 && number(fd, PACKET_TX_HAS_OFF) == 1);
    struct tpacket_stats_v3 stats;
    length = sizeof stats;
    CHECK(getsockopt(fd, SOL_PACKET, PACKET_STATISTICS, &stats, &length) == 0 && length == sizeof stats);
    struct packet_mreq mreq = {.mr_ifindex = lo, .mr_type = PACKET_MR_PROMISC};
    CHECK(setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &mreq, sizeof mreq) == 0);
    CHECK(setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &mreq, sizeof mreq) == 0);
    for (int i = 0; i < 3; i++)
        CHECK(setsockopt(fd, SOL_PACKET, PACKET_DROP_MEMBERSHIP, &mreq, sizeof mreq) == 0);
    FAILS(setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &mreq, sizeof mreq - 1), EINVAL);
    mreq.mr_type = PACKET_MR_MULTICAST, mreq.mr_alen = 5;
    FAILS(setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &mreq, sizeof mreq), EINVAL);
    mreq.mr_alen = 6, memcpy(mreq.mr_address, "\1\0\x5e\0\0\1", 6);
    CHECK(setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &mreq, sizeof mreq) == 0);
    mreq.mr_alen = 9;
    FAILS(setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &mreq, sizeof mreq), EINVAL);
    mreq.mr_alen = 6, mreq.mr_ifindex = 4711;
    FAILS(setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &mreq, sizeof mreq), ENODEV);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3) == 0);
    FAILS(setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "none", 5), ENODEV);
    close(fd);
}

// Packets that the members of a group get, of as many datagrams.
static void count(int *group, int members, int datagrams, int *got)
{
    char frame[256];
    for (int i = 0; i < datagrams; i++)
        say("for one of the group");
    for (int i = 0; i < members; i++)
        for (got[i] = 0; recv(group[i], frame, sizeof frame, MSG_DONTWAIT) > 0;)
            got[i]++;
}

static void groups(void)
{
    int group[3], got[3], id = 77;
    for (int i = 0; i < 3; i++) {
        group[i] = opened(SOCK_RAW, ETH_P_IP);
        CHECK(number(group[i], PACKET_FANOUT) == 0);
        CHECK(set(group[i], PACKET_FANOUT, PACKET_FANOUT_LB << 16 | id) == 0);
        CHECK(number(group[i], PACKET_FANOUT) == (PACKET_FANOUT_LB << 16 | id));
    }
    count(group, 3, 9, got);
    CHECK(got[0] == 3 && got[1] == 3 && got[2] == 3);
    FAILS(set(group[0], PACKET_FANOUT, PACKET_FANOUT_LB << 16 | id), EALREADY);
    struct sockaddr_ll address = link_of(lo, ETH_P_IP);
    FAILS(bind(group[0], (void *)&address, sizeof address), EINVAL);
    int other = opened(SOCK_RAW, ETH_P_ALL);
    FAILS(set(other, PACKET_FANOUT, PACKET_FANOUT_LB << 16 | id), EINVAL);
    FAILS(set(other, PACKET_FANOUT, 99 << 16 | id), EINVAL);
    FAILS(setsockopt(other, SOL_PACKET, PACKET_FANOUT, &id, 3), EINVAL);
    close(group[1]);
    count(group, 1, 4, got);
    CHECK(got[0] == 2);
    close(group[0]), close(group[2]), close(other);
    // One flow comes to one member.
    for (int i = 0; i < 3; i++) {
        group[i] = opened(SOCK_DGRAM, ETH_P_IP);
        CHECK(set(group[i], PACKET_FANOUT, PACKET_FANOUT_HASH << 16 | id) == 0);
    }
    count(group, 3, 6, got);
    CHECK((got[0] == 6) + (got[1] == 6) + (got[2] == 6) == 1 && got[0] + got[1] + got[2] == 6);
    close(group[0]), close(group[1]), close(group[2]);
    // A program says which one.
    struct sock_filter code[] = {{BPF_LD | BPF_B | BPF_ABS, 0, 0, 0}, {BPF_ALU | BPF_RSH | BPF_K, 0, 0, 4}, {BPF_RET | BPF_A, 0, 0, 0}};
    struct sock_fprog program = {3, code};
    for (int i = 0; i < 3; i++) {
        group[i] = opened(SOCK_DGRAM, ETH_P_IP);
        FAILS(setsockopt(group[i], SOL_PACKET, PACKET_FANOUT_DATA, &program, sizeof program), EINVAL);
        CHECK(set(group[i], PACKET_FANOUT, PACKET_FANOUT_CBPF << 16 | id) == 0);
    }
    CHECK(setsockopt(group[0], SOL_PACKET, PACKET_FANOUT_DATA, &program, sizeof program) == 0);
    count(group, 3, 6, got);
    CHECK(got[0] == 0 && got[1] == 6 && got[2] == 0);
    close(group[0]), close(group[1]), close(group[2]);
    // What the first has no room for comes to the next.
    int small = 1;
    for (int i = 0; i < 2; i++) {
        group[i] = opened(SOCK_RAW, ETH_P_IP);
        CHECK(setsockopt(group[i], SOL_SOCKET, SO_RCVBUF, &small, sizeof small) == 0);
        CHECK(set(group[i], PACKET_FANOUT, PACKET_FANOUT_ROLLOVER << 16 | id) == 0);
    }
    count(group, 2, 20, got);
    CHECK(got[0] > 0 && got[1] > 0 && got[0] + got[1] < 20);
    close(group[0]), close(group[1]);
}

static void waiting_in_processes(void)
{
    char frame[256], line[256];
    int fd = opened(SOCK_RAW, ETH_P_IP), epoll = epoll_create1(0), status;
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0);
    CHECK(epoll_wait(epoll, &event, 1, 0) == 0);
    pid_t child = fork();
    if (child == 0) {
        CHECK(recv(fd, frame, sizeof frame, 0) == 42 + 4);
        _exit(7);
    }
    usleep(20000);
    say("four");
    CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7);
    CHECK(epoll_wait(epoll, &event, 1, 0) == 0);
    say("more");
    CHECK(epoll_wait(epoll, &event, 1, 5000) == 1 && event.events == EPOLLIN);
    CHECK(epoll_wait(epoll, &event, 1, 0) == 0 && recv(fd, frame, sizeof frame, 0) == 46);
    FILE *table = fopen("/proc/net/packet", "r");
    int lines = 0, found = 0;
    CHECK(table != NULL);
    for (; fgets(line, sizeof line, table); lines++) {
        int type, protocol, index;
        found += sscanf(line, "%*s %*d %d %x %d", &type, (unsigned *)&protocol, &index) == 3 && type == SOCK_RAW
            && protocol == ETH_P_IP && index == lo;
    }
    CHECK(lines == 2 && found == 1 && fclose(table) == 0);
    close(epoll), close(fd);
    // Sockets come and go while frames pass.
    child = fork();
    if (child == 0) {
        for (int i = 0; i < 300; i++)
            close(opened(SOCK_RAW, ETH_P_ALL));
        _exit(0);
    }
    for (int i = 0; i < 300; i++)
        say("traffic");
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(void)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof name;
    lo = if_nametoindex("lo");
    CHECK(lo > 0);
    udp = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(bind(udp, (void *)&name, sizeof name) == 0 && getsockname(udp, (void *)&name, &length) == 0);
    port = name.sin_port;
    making_and_naming();
    frames_go_by_twice();
    own_frames();
    a_forged_address_is_not_received();
    filters_and_statistics();
    options_and_memberships();
    groups();
    waiting_in_processes();
    puts("packet sockets: ok");
    return 0;
}
