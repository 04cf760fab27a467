// SPDX-License-Identifier: Apache-2.0 OR MIT
// AF_INET6: the loopback address, sockets that serve both families, and what cannot be reached.
#define _GNU_SOURCE
#include "check.h"
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define FAILS(call, error) (errno = 0, (call) == -1 && errno == (error))

static struct sockaddr_in6 v6(const char *text, int port) {
    struct sockaddr_in6 address = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
    CHECK(inet_pton(AF_INET6, text, &address.sin6_addr) == 1);
    return address;
}

static struct sockaddr_in v4(int port) {
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static char shown[INET6_ADDRSTRLEN];

static int name_of(int fd, int (*which)(int, struct sockaddr *, socklen_t *)) {
    struct sockaddr_in6 address;
    socklen_t length = sizeof address;
    CHECK(which(fd, (void *)&address, &length) == 0 && length == sizeof address && address.sin6_family == AF_INET6);
    CHECK(inet_ntop(AF_INET6, &address.sin6_addr, shown, sizeof shown));
    return ntohs(address.sin6_port);
}

static int listener(const char *text, int port, int only) {
    int fd = socket(AF_INET6, SOCK_STREAM, 0), value = -1;
    socklen_t length = sizeof value;
    CHECK(fd >= 0 && getsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &value, &length) == 0 && value == 0);
    CHECK(setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only) == 0);
    struct sockaddr_in6 address = v6(text, port);
    CHECK(bind(fd, (void *)&address, sizeof address) == 0 && listen(fd, 5) == 0);
    return fd;
}

static void streams(void) {
    int both = listener("::", 0, 0), port = name_of(both, getsockname), one = 1, client, served;
    CHECK(strcmp(shown, "::") == 0 && FAILS(setsockopt(both, IPPROTO_IPV6, IPV6_V6ONLY, &one, 4), EINVAL));
    char text[8];
    // By ::1.
    struct sockaddr_in6 own = v6("::1", port), peer;
    socklen_t length = sizeof peer;
    client = socket(AF_INET6, SOCK_STREAM, 0);
    CHECK(connect(client, (void *)&own, sizeof own) == 0 && (served = accept(both, (void *)&peer, &length)) >= 0 && length == sizeof peer);
    CHECK(IN6_IS_ADDR_LOOPBACK(&peer.sin6_addr) && write(client, "six", 3) == 3 && read(served, text, 8) == 3);
    CHECK(name_of(served, getsockname) == port && strcmp(shown, "::1") == 0 && name_of(client, getpeername) == port && strcmp(shown, "::1") == 0);
    close(client), close(served);
    // By 127.0.0.1, and by the same address mapped.
    struct sockaddr_in old = v4(port);
    client = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(client, (void *)&old, sizeof old) == 0 && (served = accept(both, (void *)&peer, &length)) >= 0);
    CHECK(IN6_IS_ADDR_V4MAPPED(&peer.sin6_addr) && name_of(served, getsockname) == port && strcmp(shown, "::ffff:127.0.0.1") == 0);
    close(client), close(served);
    struct sockaddr_in6 mapped = v6("::ffff:127.0.0.1", port);
    client = socket(AF_INET6, SOCK_STREAM, 0);
    CHECK(connect(client, (void *)&mapped, sizeof mapped) == 0 && (served = accept(both, NULL, NULL)) >= 0);
    CHECK(name_of(client, getsockname) > 0 && strcmp(shown, "::ffff:127.0.0.1") == 0);
    close(client), close(served);
    // The port is taken for both families.
    int other = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(FAILS(bind(other, (void *)&old, sizeof old), EADDRINUSE));
    close(both);
    CHECK(bind(other, (void *)&old, sizeof old) == 0);
    close(other);
    // With IPV6_V6ONLY the families keep apart: as nginx has `listen 80; listen [::]:80`.
    int only = listener("::", 0, 1);
    old = v4(port = name_of(only, getsockname));
    client = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(FAILS(connect(client, (void *)&old, sizeof old), ECONNREFUSED));
    close(client);
    other = socket(AF_INET, SOCK_STREAM, 0);
    old.sin_addr.s_addr = INADDR_ANY;
    CHECK(bind(other, (void *)&old, sizeof old) == 0 && listen(other, 1) == 0);
    own = v6("::1", port), old = v4(port);
    client = socket(AF_INET6, SOCK_STREAM, 0);
    CHECK(connect(client, (void *)&own, sizeof own) == 0 && (served = accept(only, NULL, NULL)) >= 0);
    close(client), close(served);
    client = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(client, (void *)&old, sizeof old) == 0 && (served = accept(other, NULL, NULL)) >= 0);
    close(client), close(served), close(only), close(other);
    // Bound to one address.
    int exact = listener("::1", 0, 0);
    old = v4(port = name_of(exact, getsockname));
    CHECK(strcmp(shown, "::1") == 0);
    client = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(FAILS(connect(client, (void *)&old, sizeof old), ECONNREFUSED));
    close(client), close(exact);
}

static void errors(void) {
    int fd = socket(AF_INET6, SOCK_STREAM, 0), value;
    socklen_t length = sizeof value;
    struct sockaddr_in old = v4(0);
    struct sockaddr_in6 address = v6("2001:db8::1", 80);
    CHECK(FAILS(bind(fd, (void *)&old, sizeof old), EINVAL) && FAILS(bind(fd, (void *)&address, 20), EINVAL) && FAILS(bind(fd, (void *)&address, sizeof address), EADDRNOTAVAIL));
    // A machine without a route says the one, one with a route that forbids it the other.
    CHECK(FAILS(connect(fd, (void *)&address, sizeof address), ENETUNREACH) || errno == EHOSTUNREACH);
    address = v6("fe80::1", 80);
    CHECK(FAILS(connect(fd, (void *)&address, sizeof address), EINVAL) && FAILS(bind(fd, (void *)&address, sizeof address), EINVAL));
    CHECK(getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &value, &length) == 0 && value == AF_INET6);
    CHECK(getsockopt(fd, IPPROTO_IPV6, IPV6_UNICAST_HOPS, &value, &length) == 0 && value == 64);
    value = 256;
    CHECK(FAILS(setsockopt(fd, IPPROTO_IPV6, IPV6_UNICAST_HOPS, &value, 4), EINVAL) && FAILS(setsockopt(fd, IPPROTO_IPV6, 999, &value, 4), ENOPROTOOPT));
    value = 1;
    CHECK(setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &value, 4) == 0);
    address = v6("::ffff:127.0.0.1", 80);
    CHECK(FAILS(connect(fd, (void *)&address, sizeof address), ENETUNREACH) && FAILS(bind(fd, (void *)&address, sizeof address), EINVAL));
    close(fd);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(FAILS(setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &value, 4), ENOPROTOOPT));
    close(fd);
}

static void datagrams(void) {
    int server = socket(AF_INET6, SOCK_DGRAM, 0), client = socket(AF_INET6, SOCK_DGRAM, 0), one = 1;
    struct sockaddr_in6 address = v6("::", 0), from;
    CHECK(bind(server, (void *)&address, sizeof address) == 0);
    int port = name_of(server, getsockname);
    CHECK(setsockopt(server, IPPROTO_IPV6, IPV6_RECVPKTINFO, &one, 4) == 0 && setsockopt(server, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, &one, 4) == 0);
    address = v6("::1", port);
    CHECK(sendto(client, "x", 1, 0, (void *)&address, sizeof address) == 1);
    char text[8];
    union { char bytes[256]; struct cmsghdr align; } control;
    struct iovec part = { text, 8 };
    struct msghdr message = { .msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control };
    CHECK(recvmsg(server, &message, 0) == 1 && IN6_IS_ADDR_LOOPBACK(&from.sin6_addr));
    int seen = 0;
    for (struct cmsghdr *header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
        if (header->cmsg_level == IPPROTO_IPV6 && header->cmsg_type == IPV6_PKTINFO)
            seen |= IN6_IS_ADDR_LOOPBACK(&((struct in6_pktinfo *)CMSG_DATA(header))->ipi6_addr);
        if (header->cmsg_level == IPPROTO_IPV6 && header->cmsg_type == IPV6_HOPLIMIT)
            seen |= (*(int *)CMSG_DATA(header) == 64) << 1;
    }
    CHECK(seen == 3 && sendto(server, "y", 1, 0, (void *)&from, sizeof from) == 1 && recv(client, text, 8, 0) == 1);
    // An AF_INET socket talks to it, and is answered.
    int old = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in old_address = v4(port);
    CHECK(sendto(old, "z", 1, 0, (void *)&old_address, sizeof old_address) == 1);
    message.msg_namelen = sizeof from;
    CHECK(recvmsg(server, &message, 0) == 1 && IN6_IS_ADDR_V4MAPPED(&from.sin6_addr) && sendto(server, "w", 1, 0, (void *)&from, sizeof from) == 1 && recv(old, text, 8, 0) == 1);
    // Nobody there.
    close(server), close(old), close(client);
    client = socket(AF_INET6, SOCK_DGRAM, 0);
    CHECK(connect(client, (void *)&address, sizeof address) == 0 && send(client, "x", 1, 0) == 1 && FAILS(recv(client, text, 1, 0), ECONNREFUSED));
    CHECK(name_of(client, getsockname) > 0 && strcmp(shown, "::1") == 0);
    close(client);
    // A group that both families of sockets may not share: the any address of AF_INET beside ::1.
    server = socket(AF_INET6, SOCK_DGRAM, 0), old = socket(AF_INET, SOCK_DGRAM, 0);
    address = v6("::1", port), old_address.sin_addr.s_addr = INADDR_ANY;
    CHECK(bind(server, (void *)&address, sizeof address) == 0 && bind(old, (void *)&old_address, sizeof old_address) == 0);
    close(server), close(old);
}

static void interfaces(void) {
    struct ifaddrs *list;
    int found = 0;
    CHECK(getifaddrs(&list) == 0);
    for (struct ifaddrs *one = list; one; one = one->ifa_next)
        if (one->ifa_addr && one->ifa_addr->sa_family == AF_INET6)
            found |= IN6_IS_ADDR_LOOPBACK(&((struct sockaddr_in6 *)one->ifa_addr)->sin6_addr) && strcmp(one->ifa_name, "lo") == 0;
    freeifaddrs(list);
    CHECK(found);
    struct addrinfo hints = { .ai_family = AF_INET6, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_PASSIVE }, *answer;
    CHECK(getaddrinfo("::1", "80", &hints, &answer) == 0 && answer->ai_family == AF_INET6);
    freeaddrinfo(answer);
    FILE *table = fopen("/proc/net/if_inet6", "r");
    char line[256];
    found = 0;
    while (table && fgets(line, sizeof line, table))
        found |= strncmp(line, "00000000000000000000000000000001 01 80 10 80 ", 45) == 0;
    CHECK(found && fclose(table) == 0);
    int fd = listener("::1", 0, 0), port = name_of(fd, getsockname);
    char wanted[64];
    snprintf(wanted, sizeof wanted, " 00000000000000000000000001000000:%04X ", port);
    table = fopen("/proc/net/tcp6", "r");
    found = 0;
    while (table && fgets(line, sizeof line, table))
        found |= strstr(line, wanted) != NULL;
    CHECK(found && fclose(table) == 0);
    close(fd);
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    alarm(60);
    streams();
    errors();
    datagrams();
    interfaces();
    puts("all IPv6 tests passed");
    return 0;
}
