// SPDX-License-Identifier: Apache-2.0 OR MIT
// Sockets below the transports: raw ones, and ICMP datagrams as ping(8) uses them.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip_icmp.h>
#include <netinet/udp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"

#define ICMP_FILTER 1

static const struct sockaddr_in loopback = {.sin_family = AF_INET, .sin_addr.s_addr = 0x0100007f};

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

static ssize_t get(int fd, void *buffer, size_t length)
{
    struct pollfd p = {fd, POLLIN, 0};
    CHECK(poll(&p, 1, 5000) == 1 && p.revents == POLLIN);
    return recv(fd, buffer, length, MSG_DONTWAIT);
}

static void echo_through_a_raw_socket(void)
{
    unsigned char buffer[128];
    struct icmphdr echo = {.type = ICMP_ECHO, .un.echo = {htons(77), htons(3)}};
    unsigned filter = ~(1u << ICMP_ECHOREPLY), got = 0;
    socklen_t length = sizeof got;
    struct sockaddr_in name;
    int fd = socket(AF_INET, SOCK_RAW, IPPROTO_ICMP);
    CHECK(fd >= 0);
    CHECK(setsockopt(fd, 255, ICMP_FILTER, &filter, sizeof filter) == 0);
    CHECK(getsockopt(fd, 255, ICMP_FILTER, &got, &length) == 0 && got == filter);
    CHECK(send(fd, &echo, sizeof echo, 0) == -1 && errno == EDESTADDRREQ);
    echo.checksum = sum(&echo, sizeof echo);
    CHECK(sendto(fd, &echo, sizeof echo, 0, (void *)&loopback, sizeof loopback) == sizeof echo);
    // With its IP header, and without the request, which the filter keeps out.
    CHECK(get(fd, buffer, sizeof buffer) == sizeof(struct iphdr) + sizeof echo);
    struct iphdr *ip = (void *)buffer;
    struct icmphdr *answer = (void *)(ip + 1);
    CHECK(ip->version == 4 && ip->ihl == 5 && ip->protocol == IPPROTO_ICMP && sum(ip, sizeof *ip) == 0);
    CHECK(ntohs(ip->tot_len) == sizeof *ip + sizeof echo);
    CHECK(answer->type == ICMP_ECHOREPLY && answer->un.echo.id == htons(77) && answer->un.echo.sequence == htons(3));
    CHECK(recv(fd, buffer, sizeof buffer, MSG_DONTWAIT) == -1 && errno == EAGAIN);
    CHECK(send(fd, &echo, 8, MSG_OOB) == -1 && errno == EOPNOTSUPP);
    length = sizeof name;
    CHECK(getsockname(fd, (void *)&name, &length) == 0 && ntohs(name.sin_port) == IPPROTO_ICMP);
    CHECK(listen(fd, 1) == -1 && errno == EOPNOTSUPP);
    length = sizeof got;
    CHECK(getsockopt(fd, SOL_SOCKET, SO_TYPE, &got, &length) == 0 && got == SOCK_RAW);
    close(fd);
}

static void a_packet_with_its_own_header(void)
{
    unsigned char buffer[128];
    struct {
        struct iphdr ip;
        struct udphdr udp;
        char text[4];
    } packet = {0};
    struct sockaddr_in from, address = loopback;
    socklen_t length = sizeof address;
    int udp = socket(AF_INET, SOCK_DGRAM, 0), fd = socket(AF_INET, SOCK_RAW, IPPROTO_RAW), on = 0;
    int watch = socket(AF_INET, SOCK_RAW, IPPROTO_UDP);
    CHECK(bind(udp, (void *)&address, sizeof address) == 0);
    CHECK(getsockname(udp, (void *)&address, &length) == 0);
    length = sizeof on;
    CHECK(getsockopt(fd, IPPROTO_IP, IP_HDRINCL, &on, &length) == 0 && on == 1);
    packet.ip = (struct iphdr){.version = 4, .ihl = 5, .ttl = 9, .protocol = IPPROTO_UDP,
                               .daddr = loopback.sin_addr.s_addr};
    packet.udp.source = htons(1234);
    packet.udp.dest = address.sin_port;
    packet.udp.len = htons(sizeof packet.udp + 4);
    memcpy(packet.text, "text", 4);
    CHECK(sendto(fd, &packet, 10, 0, (void *)&loopback, sizeof loopback) == -1 && errno == EINVAL);
    CHECK(sendto(fd, &packet, sizeof packet, 0, (void *)&loopback, sizeof loopback) == sizeof packet);
    struct pollfd p = {udp, POLLIN, 0};
    CHECK(poll(&p, 1, 5000) == 1);
    length = sizeof from;
    CHECK(recvfrom(udp, buffer, sizeof buffer, 0, (void *)&from, &length) == 4 && memcmp(buffer, "text", 4) == 0);
    CHECK(from.sin_port == htons(1234) && from.sin_addr.s_addr == loopback.sin_addr.s_addr);
    // A raw socket of the protocol sees it as well.
    CHECK(get(watch, buffer, sizeof buffer) == sizeof packet && ((struct iphdr *)buffer)->ttl == 9);
    close(watch);
    close(udp);
    close(fd);
}

static void echo_through_a_datagram_socket(void)
{
    unsigned char buffer[64];
    struct icmphdr echo = {.type = ICMP_ECHO, .un.echo = {htons(1), htons(9)}};
    struct sockaddr_in name;
    socklen_t length = sizeof name;
    int fd = socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP);
    if (fd < 0 && errno == EACCES)
        return; // net.ipv4.ping_group_range
    CHECK(fd >= 0);
    CHECK(connect(fd, (void *)&loopback, sizeof loopback) == 0);
    CHECK(send(fd, &echo, 4, 0) == -1 && errno == EINVAL);
    CHECK(send(fd, &echo, sizeof echo, 0) == sizeof echo);
    CHECK(getsockname(fd, (void *)&name, &length) == 0 && name.sin_port != 0);
    CHECK(get(fd, buffer, sizeof buffer) == sizeof echo);
    struct icmphdr *answer = (void *)buffer;
    CHECK(answer->type == ICMP_ECHOREPLY && answer->un.echo.sequence == htons(9));
    CHECK(answer->un.echo.id == name.sin_port);
    echo.type = ICMP_TIMESTAMP;
    CHECK(send(fd, &echo, sizeof echo, 0) == -1 && errno == EINVAL);
    close(fd);
}

int main(void)
{
    echo_through_a_raw_socket();
    a_packet_with_its_own_header();
    echo_through_a_datagram_socket();
    CHECK(socket(AF_INET, SOCK_RAW, 0) == -1 && errno == EPROTONOSUPPORT);
    CHECK(socket(AF_INET, SOCK_RAW, 263) == -1 && errno == EINVAL);
    CHECK(setresuid(4242, 4242, 4242) == 0);
    CHECK(socket(AF_INET, SOCK_RAW, IPPROTO_ICMP) == -1 && errno == EPERM);
    puts("all raw tests passed");
    return 0;
}
