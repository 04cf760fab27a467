// SPDX-License-Identifier: Apache-2.0 OR MIT
// Random sequences of calls on six sockets of one kind that do not block (sequences.h), among few addresses.
// KIND: 0 TCP, 1 UDP, 2 AF_UNIX streams, 3 its datagrams, 4 its sequenced packets,
// 5 TCP and 6 UDP with IPv6, 7 raw sockets of a protocol that nobody has, 8 with IPv6, 9 raw sockets of ICMP.
#include "sequences.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

enum { FIRST_PORT = 7000, PORTS = 3 };

typedef union {
    struct sockaddr any;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
    struct sockaddr_un un;
} Address;

// A number of protocols for experiments (RFC 3692), which nothing answers.
enum { EXPERIMENT = 253 };

static const struct {
    int family, type, protocol;
} kinds[] = {
    {AF_INET, SOCK_STREAM, 0}, {AF_INET, SOCK_DGRAM, 0}, {AF_UNIX, SOCK_STREAM, 0}, {AF_UNIX, SOCK_DGRAM, 0}, {AF_UNIX, SOCK_SEQPACKET, 0},
    {AF_INET6, SOCK_STREAM, 0}, {AF_INET6, SOCK_DGRAM, 0}, {AF_INET, SOCK_RAW, EXPERIMENT}, {AF_INET6, SOCK_RAW, EXPERIMENT},
    {AF_INET, SOCK_RAW, IPPROTO_ICMP},
};
static int family, type, protocol, sockets[6] = {-1, -1, -1, -1, -1, -1};
// Streams of IPv6 that spoke IPv4, and those that were shut before they were connected.
static char was_mapped[COUNT(sockets)], was_shut[COUNT(sockets)];

static int is_tcp(void) {
    return family != AF_UNIX && type == SOCK_STREAM;
}

static int any(void) {
    return below(COUNT(sockets));
}

static int new_socket(void) {
    return socket(family, type | SOCK_NONBLOCK, protocol);
}

static void keep(int slot, int descriptor) {
    int one = 1;
    close(sockets[slot]);
    sockets[slot] = descriptor;
    was_mapped[slot] = was_shut[slot] = 0;
    // When bytes come that wait for an acknowledgement is a matter of time.
    if (is_tcp())
        setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

// Which port the kernel chose is not told: that differs from run to run, and what order they were first seen in by every line before.
static const char *shown_port(int port) {
    static char text[8];
    snprintf(text, sizeof text, "%d", port);
    return port == 0 || (port >= FIRST_PORT && port < FIRST_PORT + PORTS) ? text : "chosen";
}

static void say_address(const Address *address, socklen_t length) {
    if (length < sizeof(sa_family_t)) {
        say(" [none]");
    } else if (address->any.sa_family == AF_INET) {
        say(" %s:%s", inet_ntoa(address->in.sin_addr), shown_port(ntohs(address->in.sin_port)));
    } else if (address->any.sa_family == AF_INET6) {
        char text[INET6_ADDRSTRLEN];
        say(" %s:%s", inet_ntop(AF_INET6, &address->in6.sin6_addr, text, sizeof text), shown_port(ntohs(address->in6.sin6_port)));
    } else {
        long rest = length - offsetof(struct sockaddr_un, sun_path);
        int is_chosen = rest == 6 && address->un.sun_path[0] == 0;
        say_bytes(is_chosen ? "chosen" : address->un.sun_path, rest);
    }
}

// An address that is wrong, or one of a few; its length.
static socklen_t make_address(Address *to) {
    static const uint32_t hosts[] = {0x7f000001, 0x7f000001, 0x7f000001, 0x7f000001, 0x7f000002, 0, 0xffffffff, 0x01020304};
    static const char *const paths[] = {"s1", "s2", "s3", "s1", "s2", "s3", "file", "directory"};
    memset(to, 0, sizeof *to);
    to->any.sa_family = family;
    switch (below(12)) {
    case 0:
        to->any.sa_family = AF_UNSPEC;
        say(" (no family)");
        return one_in(2) ? 16 : one_in(3) ? 28 : 2;
    case 1:
        to->any.sa_family = family == AF_UNIX ? AF_INET : AF_UNIX;
        say(" (another family)");
        return family == AF_INET6 ? sizeof to->in6 : sizeof to->in;
    case 2: {
        socklen_t length = below(8);
        say(" (%u bytes)", length);
        return length;
    }
    }
    if (family == AF_INET) {
        to->in.sin_port = htons(one_in(6) ? 0 : FIRST_PORT + below(PORTS));
        to->in.sin_addr.s_addr = htonl(ONE_OF(hosts));
        say_address(to, sizeof to->in);
        return sizeof to->in;
    }
    if (family == AF_INET6) {
        static const char *const names[] = {"::1", "::1", "::1", "::", "::ffff:127.0.0.1", "::ffff:127.0.0.1", "ff02::1", "2001:db8::1"};
        // An IPv4 address is too short for a socket of IPv6.
        if (one_in(20)) {
            to->in.sin_family = AF_INET;
            to->in.sin_port = htons(FIRST_PORT);
            to->in.sin_addr.s_addr = htonl(0x7f000001);
            say(" (IPv4)");
            return sizeof to->in;
        }
        to->in6.sin6_port = htons(one_in(6) ? 0 : FIRST_PORT + below(PORTS));
        inet_pton(AF_INET6, ONE_OF(names), &to->in6.sin6_addr);
        say_address(to, sizeof to->in6);
        return sizeof to->in6;
    }
    socklen_t path = offsetof(struct sockaddr_un, sun_path);
    if (one_in(5)) {
        to->un.sun_path[1] = 'x' + below(3);
        path += 2;
    } else {
        strcpy(to->un.sun_path, ONE_OF(paths));
        path += strlen(to->un.sun_path) + one_in(2);
    }
    say_address(to, path);
    return path;
}

static void opens(void) {
    int slot = any();
    say("socket %d", slot);
    keep(slot, new_socket());
    answered(0);
}

static void binds(void) {
    Address address;
    int slot = any();
    say("bind %d", slot);
    socklen_t length = make_address(&address);
    answered(bind(sockets[slot], &address.any, length));
}

static void listens(void) {
    // A SYN that a full queue has refused comes again after a second natively, and as soon as there is room in a machine.
    int slot = any(), backlog = (int)below(4) - 1;
    if (is_tcp() && backlog >= 0)
        backlog += 64;
    say("listen %d %d", slot, backlog);
    answered(listen(sockets[slot], backlog));
}

static int is_mapped(const Address *address) {
    return address->any.sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&address->in6.sin6_addr);
}

static int is_own(int slot, const Address *address) {
    Address own;
    socklen_t length = sizeof own;
    return getsockname(sockets[slot], &own.any, &length) == 0 && own.in.sin_port == address->in.sin_port;
}

static void connects(void) {
    Address address;
    int slot = any();
    say("connect %d", slot);
    socklen_t length = make_address(&address);
    // Neither is asked for: a stream of Linux that spoke IPv4 once sends by IPv4 for ever, and one that was shut before it
    // connects to itself never gets there.
    if (is_tcp() && ((was_mapped[slot] && !is_mapped(&address)) || (was_shut[slot] && is_own(slot, &address)))) {
        answered(0);
        return;
    }
    was_mapped[slot] |= is_tcp() && is_mapped(&address);
    answered(connect(sockets[slot], &address.any, length));
}

static void accepts(void) {
    Address address;
    socklen_t length = sizeof address;
    int slot = any(), to = any(), descriptor = accept4(sockets[slot], &address.any, &length, SOCK_NONBLOCK);
    say("accept %d to %d", slot, to);
    if (descriptor >= 0) {
        say_address(&address, length);
        keep(to, descriptor);
        was_mapped[to] = is_mapped(&address);
    }
    answered(descriptor < 0 ? descriptor : 0);
}

static void shuts_down(void) {
    int slot = any(), how = one_in(8) ? below(6) : below(3);
    say("shutdown %d %d", slot, how);
    was_shut[slot] = 1;
    answered(shutdown(sockets[slot], how));
}

static void asks_for_name(void) {
    Address address;
    socklen_t length = sizeof address;
    int slot = any(), is_peer = one_in(2);
    int result = (is_peer ? getpeername : getsockname)(sockets[slot], &address.any, &length);
    say("%s %d", is_peer ? "getpeername" : "getsockname", slot);
    if (result == 0)
        say_address(&address, length);
    answered(result);
}

static void sends(void) {
    static const int all[] = {0, 0, 0, 0, MSG_NOSIGNAL, MSG_EOR};
    Address address;
    int slot = any(), length = below(20), flags = ONE_OF(all);
    if (one_in(3)) {
        say("sendto %d %d", slot, length);
        socklen_t size = make_address(&address);
        answered(sendto(sockets[slot], "abcdefghijklmnopqrst", length, flags, &address.any, size));
    } else {
        say("send %d %d %x", slot, length, flags);
        answered(send(sockets[slot], "ABCDEFGHIJKLMNOPQRST", length, flags));
    }
}

static void receives(void) {
    static const int all[] = {0, 0, 0, MSG_PEEK, MSG_PEEK | MSG_TRUNC, MSG_WAITALL, MSG_DONTWAIT, MSG_ERRQUEUE, MSG_OOB};
    Address address;
    char bytes[30];
    socklen_t size = sizeof address;
    int slot = any(), length = below(sizeof bytes), flags = ONE_OF(all);
    // What bytes are there is not asked of a stream that does not say which came together.
    long result = recvfrom(sockets[slot], bytes, length, flags, &address.any, &size);
    say("recvfrom %d %d %x", slot, length, flags);
    if (result >= 0) {
        // A header's number, whether it may be divided, and its checksum are each system's own.
        for (int i = 4; family == AF_INET && type == SOCK_RAW && i < 12; i++)
            if (i < 8 || i >= 10)
                bytes[i] = '.';
        say_bytes(bytes, result < length ? result : length);
        say_address(&address, size);
    }
    answered(result);
}

static void receives_message(void) {
    char bytes[8], control[256];
    struct iovec piece = {bytes, sizeof bytes};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    int slot = any();
    long result = recvmsg(sockets[slot], &message, 0);
    say("recvmsg %d", slot);
    if (result >= 0)
        say(" flags %x control %zu", message.msg_flags, message.msg_controllen);
    answered(result);
}

static void polls(void) {
    struct pollfd one = {0, POLLIN | POLLOUT | POLLPRI | POLLRDHUP, 0};
    int slot = any();
    one.fd = sockets[slot];
    int result = poll(&one, 1, 0);
    say("poll %d %x", slot, one.revents);
    answered(result);
}

static void asks_for_option(void) {
    static const int options[] = {SO_ERROR, SO_ERROR, SO_ERROR, SO_ACCEPTCONN, SO_TYPE, SO_PROTOCOL, SO_DOMAIN};
    int slot = any(), option = ONE_OF(options), value = -1;
    socklen_t length = sizeof value;
    int result = getsockopt(sockets[slot], SOL_SOCKET, option, &value, &length);
    say("getsockopt %d %d: %d", slot, option, value);
    answered(result);
}

static void asks_by_ioctl(void) {
    static const unsigned long requests[] = {FIONREAD, SIOCATMARK};
    int slot = any(), value = -1;
    unsigned long request = ONE_OF(requests);
    int result = ioctl(sockets[slot], request, &value);
    say("ioctl %d %lx: %d", slot, request, result < 0 ? 0 : value);
    answered(result);
}

static void sets_option(void) {
    static const int options[] = {SO_REUSEADDR, SO_BROADCAST};
    int slot = any(), option = ONE_OF(options), value = one_in(2);
    if (family == AF_INET6 && one_in(3)) {
        say("IPV6_V6ONLY %d %d", slot, value);
        answered(setsockopt(sockets[slot], IPPROTO_IPV6, IPV6_V6ONLY, &value, sizeof value));
        return;
    }
    say("setsockopt %d %d %d", slot, option, value);
    answered(setsockopt(sockets[slot], SOL_SOCKET, option, &value, sizeof value));
}

static void looks(void) {
    struct stat s;
    int slot = any(), result = fstat(sockets[slot], &s);
    say("fstat %d %o", slot, result < 0 ? 0 : s.st_mode);
    answered(result);
}

static void does_what_its_family_has(void) {
    int slot = any(), other = any();
    if (family == AF_UNIX && one_in(2)) {
        char name[] = {'s', '1' + below(3), 0};
        say("unlink %s", name);
        answered(unlink(name));
    } else if (family == AF_UNIX) {
        int two[2], result = socketpair(family, type | SOCK_NONBLOCK, 0, two);
        say("socketpair %d %d", slot, other);
        keep(slot, two[0]);
        keep(other, two[1]);
        answered(result);
    } else {
        struct tcp_info info = {0};
        socklen_t length = sizeof info;
        int result = getsockopt(sockets[slot], IPPROTO_TCP, TCP_INFO, &info, &length);
        say("TCP_INFO %d state %d", slot, result < 0 ? 0 : info.tcpi_state);
        answered(result);
    }
}

static void (*const steps[])(void) = {
    opens, binds, binds, listens, listens, connects, connects, connects, accepts, accepts, shuts_down, asks_for_name, asks_for_name,
    sends, sends, sends, receives, receives, receives_message, polls, polls, asks_for_option, asks_by_ioctl, sets_option, looks,
    does_what_its_family_has, does_what_its_family_has,
};

int main(int count, char **arguments) {
    char directory[] = "/tmp/sequence-XXXXXX";
    int kind;
    long total = begin(count, arguments, &kind);
    if (kind < 0 || (size_t)kind >= COUNT(kinds) || !mkdtemp(directory) || chdir(directory)) {
        perror(directory);
        return 1;
    }
    family = kinds[kind].family;
    type = kinds[kind].type;
    protocol = kinds[kind].protocol;
    signal(SIGPIPE, SIG_IGN);
    close(creat("file", 0644));
    if (mkdir("directory", 0755))
        return 1;
    for (size_t i = 0; i < COUNT(sockets); i++)
        keep(i, new_socket());
    // Packets of the loopback interface have arrived by then.
    run_steps(steps, COUNT(steps), total, family == AF_UNIX ? 0 : 300);
    return 0;
}
