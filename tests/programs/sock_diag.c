// SPDX-License-Identifier: Apache-2.0 OR MIT
// sock_diag(7), which ss(8) asks: dumps of sockets by family, protocol, state, port and filter, and single sockets.
#include "check.h"
#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/netlink_diag.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <netinet/in.h>
#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define ALL 0xfff
enum { ESTABLISHED = 1, CLOSED = 7, LISTENING = 10 };

static int diag;
static char answers[1 << 20];
static size_t length;

static unsigned inode(int fd) {
    struct stat about;
    CHECK(fstat(fd, &about) == 0);
    return (unsigned)about.st_ino;
}

// Sends a request; its answers are in `answers`. What the end or the error says is returned.
static int ask(uint16_t type, uint16_t flags, const void *request, size_t size) {
    static unsigned number;
    struct {
        struct nlmsghdr header;
        char data[512];
    } message = {{(uint32_t)(NLMSG_HDRLEN + size), type, (uint16_t)(NLM_F_REQUEST | flags), ++number, 0}, {0}};
    memcpy(message.data, request, size);
    CHECK(send(diag, &message, NLMSG_HDRLEN + size, 0) == (ssize_t)(NLMSG_HDRLEN + size));
    length = 0;
    for (;;) {
        struct pollfd ready = {diag, POLLIN, 0};
        CHECK(poll(&ready, 1, 5000) == 1);
        ssize_t got = recv(diag, answers + length, sizeof answers - length, 0);
        CHECK(got > 0);
        int left = (int)got;
        for (struct nlmsghdr *one = (void *)(answers + length); NLMSG_OK(one, left); one = NLMSG_NEXT(one, left)) {
            CHECK(one->nlmsg_seq == number);
            if (one->nlmsg_type == NLMSG_DONE || one->nlmsg_type == NLMSG_ERROR) {
                int code;
                memcpy(&code, NLMSG_DATA(one), sizeof code);
                length = (size_t)((char *)one - answers);
                return code;
            }
            CHECK(one->nlmsg_type == SOCK_DIAG_BY_FAMILY);
            if (!(flags & NLM_F_DUMP)) {
                length += (size_t)got;
                return 0;
            }
            CHECK(one->nlmsg_flags & NLM_F_MULTI);
        }
        length += (size_t)got;
    }
}

// The answer about this inode number; `place`: where that is in the message.
static void *about(unsigned wanted, size_t place) {
    int left = (int)length;
    for (struct nlmsghdr *one = (void *)answers; NLMSG_OK(one, left); one = NLMSG_NEXT(one, left)) {
        uint32_t found;
        memcpy(&found, (char *)NLMSG_DATA(one) + place, sizeof found);
        if (found == wanted)
            return NLMSG_DATA(one);
    }
    return NULL;
}

static struct inet_diag_msg *inet(int fd) { return about(inode(fd), offsetof(struct inet_diag_msg, idiag_inode)); }

static void *attribute(void *message, size_t head, int wanted) {
    struct nlmsghdr *header = (void *)((char *)message - NLMSG_HDRLEN);
    int left = (int)(header->nlmsg_len - NLMSG_HDRLEN - NLMSG_ALIGN(head));
    struct nlattr *one = (void *)((char *)message + NLMSG_ALIGN(head));
    for (; left >= NLA_HDRLEN && one->nla_len >= NLA_HDRLEN; one = (void *)((char *)one + NLA_ALIGN(one->nla_len))) {
        if (one->nla_type == wanted)
            return (char *)one + NLA_HDRLEN;
        left -= (int)NLA_ALIGN(one->nla_len);
    }
    return NULL;
}

static struct inet_diag_req_v2 request(int family, int protocol, unsigned states) {
    struct inet_diag_req_v2 out = {(uint8_t)family, (uint8_t)protocol, 0, 0, states, {0}};
    return out;
}

static int with_filter(struct inet_diag_req_v2 *wanted, const struct inet_diag_bc_op *filter, size_t size) {
    char both[256];
    struct nlattr head = {(uint16_t)(NLA_HDRLEN + size), INET_DIAG_REQ_BYTECODE};
    memcpy(both, wanted, sizeof *wanted);
    memcpy(both + sizeof *wanted, &head, sizeof head);
    if (size)
        memcpy(both + sizeof *wanted + sizeof head, filter, size);
    return ask(SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, both, sizeof *wanted + sizeof head + size);
}

static int bound(int family, int type, int port) {
    struct sockaddr_in v4 = {AF_INET, htons((uint16_t)port), {htonl(INADDR_LOOPBACK)}, {0}};
    struct sockaddr_in6 v6 = {AF_INET6, htons((uint16_t)port), 0, in6addr_any, 0};
    int fd = socket(family, type, 0), on = 1;
    CHECK(fd >= 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
    int done = family == AF_INET ? bind(fd, (void *)&v4, sizeof v4) : bind(fd, (void *)&v6, sizeof v6);
    CHECK(done == 0);
    return fd;
}

static void streams(void) {
    int listener = bound(AF_INET, SOCK_STREAM, 7401), unused = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(listen(listener, 5) == 0);
    struct sockaddr_in to = {AF_INET, htons(7401), {htonl(INADDR_LOOPBACK)}, {0}};
    int client = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(client, (void *)&to, sizeof to) == 0);
    // One waits for accept(2).
    struct inet_diag_req_v2 wanted = request(AF_INET, IPPROTO_TCP, ALL);
    wanted.idiag_ext = 1 << (INET_DIAG_INFO - 1) | 1 << (INET_DIAG_CONG - 1);
    CHECK(ask(SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, &wanted, sizeof wanted) == 0);
    struct inet_diag_msg *found = inet(listener);
    CHECK(found && found->idiag_family == AF_INET && found->idiag_state == LISTENING);
    CHECK(found->id.idiag_sport == htons(7401) && found->id.idiag_dport == 0);
    CHECK(found->id.idiag_src[0] == htonl(INADDR_LOOPBACK) && found->idiag_uid == getuid());
    CHECK(found->idiag_rqueue == 1 && found->idiag_wqueue == 5);
    CHECK(attribute(found, sizeof *found, INET_DIAG_INFO) && attribute(found, sizeof *found, INET_DIAG_CONG));
    int server = accept(listener, NULL, NULL);
    CHECK(server >= 0);
    CHECK(ask(SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, &wanted, sizeof wanted) == 0);
    CHECK(inet(listener)->idiag_rqueue == 0 && !inet(unused));
    found = inet(client);
    CHECK(found && found->idiag_state == ESTABLISHED && found->id.idiag_dport == htons(7401));
    struct inet_diag_msg *other = inet(server);
    CHECK(other && other->idiag_state == ESTABLISHED && other->id.idiag_sport == htons(7401));
    CHECK(other->id.idiag_dport == found->id.idiag_sport);
    uint16_t clients = found->id.idiag_sport;
    struct inet_diag_sockid id = found->id;

    // By state, by port.
    wanted.idiag_states = 1 << LISTENING;
    CHECK(ask(SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, &wanted, sizeof wanted) == 0 && inet(listener) && !inet(client));
    wanted.idiag_states = ALL & ~(1 << LISTENING);
    wanted.id.idiag_sport = clients;
    CHECK(ask(SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, &wanted, sizeof wanted) == 0 && inet(client) && !inet(server));
    wanted.id.idiag_sport = 0;

    // Filters.
    wanted.idiag_states = ALL;
    struct inet_diag_bc_op port[2] = {{INET_DIAG_BC_S_GE, 8, 12}, {0, 0, 7401}};
    CHECK(with_filter(&wanted, port, sizeof port) == 0 && inet(listener) && inet(server));
    port[0].code = INET_DIAG_BC_D_GE;
    port[1].no = ntohs(clients);
    CHECK(with_filter(&wanted, port, sizeof port) == 0 && !inet(listener) && inet(server) && (clients == htons(7401) || !inet(client)));
    struct {
        struct inet_diag_bc_op op;
        struct inet_diag_hostcond host;
        uint32_t address;
    } host = {{INET_DIAG_BC_S_COND, 16, 20}, {AF_INET, 8, -1}, htonl(0x7f090909)};
    CHECK(with_filter(&wanted, &host.op, 16) == 0 && inet(listener) && inet(client));
    host.address = htonl(0x0a000000);
    CHECK(with_filter(&wanted, &host.op, 16) == 0 && !inet(listener) && !inet(client));
    port[0].no = 5;
    CHECK(with_filter(&wanted, port, sizeof port) == -EINVAL);
    CHECK(with_filter(&wanted, port, 4) == -EINVAL && with_filter(&wanted, port, 0) == -EINVAL);

    // One alone.
    wanted.id = id;
    CHECK(ask(SOCK_DIAG_BY_FAMILY, 0, &wanted, sizeof wanted) == 0 && inet(client));
    wanted.id.idiag_cookie[0] = wanted.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
    CHECK(ask(SOCK_DIAG_BY_FAMILY, 0, &wanted, sizeof wanted) == 0 && inet(client));
    wanted.id.idiag_cookie[0] = id.idiag_cookie[0] ^ 0x55;
    wanted.id.idiag_cookie[1] = id.idiag_cookie[1];
    CHECK(ask(SOCK_DIAG_BY_FAMILY, 0, &wanted, sizeof wanted) == -ENOENT);
    wanted.id.idiag_dport = htons(1);
    wanted.id.idiag_sport = htons(2);
    CHECK(ask(SOCK_DIAG_BY_FAMILY, 0, &wanted, sizeof wanted) == -ENOENT);
    close(client), close(server), close(listener), close(unused);
}

static void datagrams(void) {
    int v4 = bound(AF_INET, SOCK_DGRAM, 7402), connected = bound(AF_INET, SOCK_DGRAM, 7403);
    struct sockaddr_in to = {AF_INET, htons(7402), {htonl(INADDR_LOOPBACK)}, {0}};
    CHECK(connect(connected, (void *)&to, sizeof to) == 0);
    struct inet_diag_req_v2 wanted = request(AF_INET, IPPROTO_UDP, ALL);
    CHECK(ask(SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, &wanted, sizeof wanted) == 0);
    CHECK(inet(v4) && inet(v4)->idiag_state == CLOSED && inet(v4)->id.idiag_sport == htons(7402));
    CHECK(inet(connected) && inet(connected)->idiag_state == ESTABLISHED && inet(connected)->id.idiag_dport == htons(7402));
    wanted.sdiag_protocol = IPPROTO_TCP;
    CHECK(ask(SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, &wanted, sizeof wanted) == 0 && !inet(v4));
    close(v4), close(connected);
    int six = socket(AF_INET6, SOCK_STREAM, 0);
    if (six >= 0) {
        close(six);
        int listener = bound(AF_INET6, SOCK_STREAM, 7404);
        CHECK(listen(listener, 1) == 0);
        wanted = request(AF_INET6, IPPROTO_TCP, 1 << LISTENING);
        CHECK(ask(SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, &wanted, sizeof wanted) == 0);
        struct inet_diag_msg *found = inet(listener);
        CHECK(found && found->idiag_family == AF_INET6 && found->id.idiag_sport == htons(7404));
        unsigned char *only = attribute(found, sizeof *found, INET_DIAG_SKV6ONLY);
        CHECK(only && *only == 0);
        wanted.sdiag_family = AF_INET;
        CHECK(ask(SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, &wanted, sizeof wanted) == 0 && !inet(listener));
        close(listener);
    }
}

static void locals(void) {
    struct sockaddr_un path = {AF_UNIX, "/tmp/diagnosed"}, abstract = {AF_UNIX, "\0diagnosed"};
    int listener = socket(AF_UNIX, SOCK_STREAM, 0), datagrams = socket(AF_UNIX, SOCK_DGRAM, 0), pair[2];
    unlink(path.sun_path);
    CHECK(bind(listener, (void *)&path, sizeof path) == 0 && listen(listener, 3) == 0);
    CHECK(bind(datagrams, (void *)&abstract, sizeof(sa_family_t) + 10) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0);
    struct unix_diag_req wanted = {AF_UNIX, 0, 0, ALL, 0, UDIAG_SHOW_NAME | UDIAG_SHOW_RQLEN, {0}};
    CHECK(ask(SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, &wanted, sizeof wanted) == 0);
    size_t place = offsetof(struct unix_diag_msg, udiag_ino);
    struct unix_diag_msg *found = about(inode(listener), place);
    CHECK(found && found->udiag_family == AF_UNIX && found->udiag_type == SOCK_STREAM && found->udiag_state == LISTENING);
    char *name = attribute(found, sizeof *found, UNIX_DIAG_NAME);
    CHECK(name && strncmp(name, path.sun_path, strlen(path.sun_path)) == 0);
    CHECK(attribute(found, sizeof *found, UNIX_DIAG_RQLEN));
    found = about(inode(datagrams), place);
    CHECK(found && found->udiag_type == SOCK_DGRAM && found->udiag_state == CLOSED);
    name = attribute(found, sizeof *found, UNIX_DIAG_NAME);
    CHECK(name && memcmp(name, "\0diagnosed", 10) == 0);
    found = about(inode(pair[0]), place);
    CHECK(found && found->udiag_type == SOCK_SEQPACKET && found->udiag_state == ESTABLISHED);
    wanted.udiag_states = 1 << LISTENING;
    CHECK(ask(SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, &wanted, sizeof wanted) == 0);
    CHECK(about(inode(listener), place) && !about(inode(pair[0]), place));
    // One alone, by its inode.
    wanted.udiag_ino = inode(pair[1]);
    wanted.udiag_cookie[0] = wanted.udiag_cookie[1] = ~0u;
    CHECK(ask(SOCK_DIAG_BY_FAMILY, 0, &wanted, sizeof wanted) == 0 && about(inode(pair[1]), place));
    wanted.udiag_ino = 0;
    CHECK(ask(SOCK_DIAG_BY_FAMILY, 0, &wanted, sizeof wanted) == -EINVAL);
    wanted.udiag_ino = 0x7fffffff;
    CHECK(ask(SOCK_DIAG_BY_FAMILY, 0, &wanted, sizeof wanted) == -ENOENT);
    unlink(path.sun_path);
    close(listener), close(datagrams), close(pair[0]), close(pair[1]);

    struct netlink_diag_req links = {AF_NETLINK, NDIAG_PROTO_ALL, 0, 0, 0, {0}};
    int ours = (int)ask(SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, &links, sizeof links);
    // A Linux may be without its part of it.
    CHECK(ours == -ENOENT || (ours == 0 && about(inode(diag), offsetof(struct netlink_diag_msg, ndiag_ino))));
}

// More sockets than one answer holds.
static void many(void) {
    enum { COUNT = 700 };
    static int all[COUNT];
    for (int i = 0; i < COUNT; i++)
        all[i] = bound(AF_INET, SOCK_DGRAM, 20000 + i);
    struct inet_diag_req_v2 wanted = request(AF_INET, IPPROTO_UDP, ALL);
    CHECK(ask(SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, &wanted, sizeof wanted) == 0);
    for (int i = 0; i < COUNT; i++)
        CHECK(inet(all[i]) && inet(all[i])->id.idiag_sport == htons((uint16_t)(20000 + i)));
    int left = (int)length, count = 0;
    for (struct nlmsghdr *one = (void *)answers; NLMSG_OK(one, left); one = NLMSG_NEXT(one, left)) {
        uint16_t port = ntohs(((struct inet_diag_msg *)NLMSG_DATA(one))->id.idiag_sport);
        count += port >= 20000 && port < 20000 + COUNT;
    }
    CHECK(count == COUNT);
    for (int i = 0; i < COUNT; i++)
        close(all[i]);
}

int main(void) {
    diag = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    CHECK(diag >= 0);
    struct inet_diag_req_v2 wanted = request(AF_INET, IPPROTO_TCP, ALL);
    CHECK(ask(SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, &wanted, 20) == -EINVAL);
    CHECK(ask(SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, &wanted, 1) == -EINVAL);
    CHECK(ask(60, 0, &wanted, sizeof wanted) == -EINVAL);
    wanted.sdiag_family = AF_APPLETALK;
    CHECK(ask(SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, &wanted, sizeof wanted) == -ENOENT);
    wanted.sdiag_family = 200;
    CHECK(ask(SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, &wanted, sizeof wanted) == -EINVAL);
    streams();
    datagrams();
    locals();
    many();
    printf("sock_diag: ok\n");
    return 0;
}
