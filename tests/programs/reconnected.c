// SPDX-License-Identifier: Apache-2.0 OR MIT
// Sockets of the internet that are bound, connected, shut and connected again: what each of these leaves behind.
#define _GNU_SOURCE
#include "check.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PORT = 7710 };

static struct sockaddr_in v4(const char *address, int port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    CHECK(inet_pton(AF_INET, address, &to.sin_addr) == 1);
    return to;
}

static struct sockaddr_in6 v6(const char *address, int port) {
    struct sockaddr_in6 to = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    CHECK(inet_pton(AF_INET6, address, &to.sin6_addr) == 1);
    return to;
}

#define AT(address) ((struct sockaddr *)&(address)), sizeof(address)

static struct sockaddr_in name(int s) {
    struct sockaddr_in own;
    socklen_t length = sizeof own;
    CHECK(getsockname(s, (struct sockaddr *)&own, &length) == 0);
    return own;
}

static int is_at(struct sockaddr_in own, const char *address) {
    return own.sin_addr.s_addr == inet_addr(address);
}

static int error(int s) {
    int value;
    socklen_t length = sizeof value;
    CHECK(getsockopt(s, SOL_SOCKET, SO_ERROR, &value, &length) == 0);
    return value;
}

static int stream(void) {
    int s = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(s >= 0);
    return s;
}

static int listener(const char *address, int port) {
    int s = stream(), one = 1;
    struct sockaddr_in at = v4(address, port);
    CHECK(setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0);
    CHECK(bind(s, AT(at)) == 0 && listen(s, 8) == 0);
    return s;
}

static void a_name_stays_when_the_attempt_was_refused(void) {
    struct sockaddr_in nobody = v4("127.0.0.1", PORT), none = {.sin_family = AF_UNSPEC};
    int s = stream();
    CHECK(connect(s, AT(nobody)) == -1 && errno == ECONNREFUSED);
    // Told by connect(2), and so is taken back: the address, not the port.
    struct sockaddr_in own = name(s);
    CHECK(is_at(own, "0.0.0.0") && own.sin_port != 0);
    CHECK(connect(s, AT(none)) == 0 && name(s).sin_port == own.sin_port);
    // A port that the kernel chose is nobody's any more.
    int other = stream();
    struct sockaddr_in same = v4("127.0.0.1", ntohs(own.sin_port));
    CHECK(bind(other, AT(same)) == 0);
    CHECK(bind(s, AT(same)) == -1 && errno == EADDRINUSE && is_at(name(s), "0.0.0.0"));
    close(other);
    CHECK(bind(s, AT(same)) == 0 && name(s).sin_port == own.sin_port);
    close(s);
}

static void a_chosen_port_can_be_bound_anew_and_a_named_one_stays(void) {
    struct sockaddr_in any = v4("0.0.0.0", 0), named = v4("0.0.0.0", PORT + 1), nobody = v4("127.0.0.1", PORT);
    struct sockaddr_in again = v4("127.0.0.1", PORT + 2);
    int s = stream();
    CHECK(bind(s, AT(any)) == 0 && name(s).sin_port != 0);
    CHECK(bind(s, AT(again)) == -1 && errno == EINVAL);
    CHECK(connect(s, AT(nobody)) == -1 && errno == ECONNREFUSED);
    CHECK(bind(s, AT(again)) == 0 && name(s).sin_port == htons(PORT + 2));
    close(s);
    s = stream();
    CHECK(bind(s, AT(named)) == 0);
    CHECK(connect(s, AT(nobody)) == -1 && errno == ECONNREFUSED);
    CHECK(is_at(name(s), "0.0.0.0") && name(s).sin_port == htons(PORT + 1));
    CHECK(bind(s, AT(again)) == -1 && errno == EINVAL);
    close(s);
}

static void a_connection_narrows_the_address_that_others_find_taken(void) {
    int l = listener("127.0.0.1", PORT), s = stream(), other = stream();
    struct sockaddr_in any = v4("0.0.0.0", PORT + 3), to = v4("127.0.0.1", PORT), beside = v4("127.0.0.2", PORT + 3);
    CHECK(bind(s, AT(any)) == 0);
    CHECK(bind(other, AT(beside)) == -1 && errno == EADDRINUSE);
    CHECK(connect(s, AT(to)) == 0 && is_at(name(s), "127.0.0.1"));
    CHECK(bind(other, AT(beside)) == 0);
    close(other), close(s), close(l);
}

static void an_address_of_many_is_heard_at_and_not_spoken_from(void) {
    static const char *const many[] = {"255.255.255.255", "224.0.0.251"};
    for (int i = 0; i < 2; i++) {
        int s = socket(AF_INET, SOCK_DGRAM, 0), hears = socket(AF_INET, SOCK_DGRAM, 0);
        struct sockaddr_in at = v4(many[i], PORT), to = v4("127.0.0.1", PORT + 4), from;
        socklen_t length = sizeof from;
        char bytes[8];
        CHECK(bind(s, AT(at)) == 0 && bind(hears, AT(to)) == 0);
        CHECK(sendto(s, "hello", 5, 0, AT(to)) == 5);
        CHECK(recvfrom(hears, bytes, sizeof bytes, 0, (struct sockaddr *)&from, &length) == 5);
        CHECK(is_at(from, "127.0.0.1") && from.sin_port == htons(PORT));
        CHECK(connect(s, AT(to)) == 0 && is_at(name(s), many[i]));
        close(s), close(hears);
    }
    // A stream is at the address that it speaks from.
    int l = listener("127.0.0.1", PORT), s = stream();
    struct sockaddr_in at = v4("255.255.255.255", PORT + 5), to = v4("127.0.0.1", PORT);
    CHECK(bind(s, AT(at)) == 0 && connect(s, AT(to)) == 0);
    CHECK(is_at(name(s), "127.0.0.1") && name(s).sin_port == htons(PORT + 5));
    close(s), close(l);
}

static void a_socket_of_both_families_changes_its_peer(void) {
    int s = socket(AF_INET6, SOCK_DGRAM, 0), hears = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in at = v4("127.0.0.1", PORT), from;
    struct sockaddr_in6 own, peer, six = v6("::1", PORT), four = v6("::ffff:127.0.0.1", PORT), none = {.sin6_family = AF_UNSPEC};
    socklen_t length = sizeof own;
    char bytes[8];
    CHECK(bind(hears, AT(at)) == 0);
    CHECK(connect(s, AT(six)) == 0 && connect(s, AT(four)) == 0);
    CHECK(getpeername(s, (struct sockaddr *)&peer, &length) == 0 && IN6_IS_ADDR_V4MAPPED(&peer.sin6_addr));
    CHECK(getsockname(s, (struct sockaddr *)&own, &length) == 0 && IN6_IS_ADDR_LOOPBACK(&own.sin6_addr));
    CHECK(send(s, "hello", 5, 0) == 5);
    length = sizeof from;
    CHECK(recvfrom(hears, bytes, sizeof bytes, 0, (struct sockaddr *)&from, &length) == 5 && is_at(from, "127.0.0.1"));
    // An address of IPv4, and one of no family, which means the peer, if that is one of IPv6.
    CHECK(sendto(s, "hello", 5, 0, AT(at)) == 5);
    CHECK(sendto(s, "hello", 5, 0, AT(none)) == -1 && errno == ENETUNREACH);
    four.sin6_port = 0;
    CHECK(connect(s, AT(four)) == 0 && send(s, "hello", 5, 0) == -1 && errno == EINVAL);
    // From an address of IPv4 none of IPv6 is reached, the other way round.
    int back = socket(AF_INET6, SOCK_DGRAM, 0), one = 1;
    four.sin6_port = htons(PORT);
    CHECK(connect(back, AT(four)) == 0 && connect(back, AT(six)) == -1 && errno == EAFNOSUPPORT);
    close(back), close(s);
    s = socket(AF_INET6, SOCK_DGRAM, 0);
    CHECK(setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one) == 0);
    CHECK(connect(s, AT(at)) == -1 && errno == EAFNOSUPPORT);
    CHECK(sendto(s, "hello", 5, 0, AT(at)) == -1 && errno == ENETUNREACH);
    close(s), close(hears);
}

static void shutting_counts_before_there_is_a_connection(void) {
    int l = listener("127.0.0.1", PORT), s = stream();
    struct sockaddr_in to = v4("127.0.0.1", PORT);
    CHECK(shutdown(s, SHUT_WR) == -1 && errno == ENOTCONN);
    CHECK(connect(s, AT(to)) == 0);
    CHECK(send(s, "hello", 5, MSG_NOSIGNAL) == -1 && errno == EPIPE);
    // And the other end hears of no end.
    int a = accept(l, NULL, NULL);
    char byte;
    CHECK(a >= 0 && recv(a, &byte, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
    close(a), close(s), close(l);
}

static void bytes_behind_the_end_of_both_directions_reset(void) {
    int l = listener("127.0.0.1", PORT), s = stream();
    struct sockaddr_in to = v4("127.0.0.1", PORT);
    struct pollfd one = {.fd = s};
    CHECK(connect(s, AT(to)) == 0);
    int a = accept(l, NULL, NULL);
    CHECK(a >= 0 && shutdown(s, SHUT_RDWR) == 0);
    CHECK(send(a, "hello", 5, MSG_NOSIGNAL) == 5);
    CHECK(poll(&one, 1, 5000) == 1 && error(s) == ECONNRESET);
    one.fd = a;
    CHECK(poll(&one, 1, 5000) == 1 && (one.revents & POLLERR));
    // Its end came first, of which a read tells whatever came behind it.
    char byte;
    CHECK(recv(a, &byte, 1, 0) == 0 && error(a) == EPIPE);
    close(a), close(s), close(l);
}

static void a_listener_tells_what_its_attempt_left(void) {
    struct sockaddr_in nobody = v4("127.0.0.1", PORT), none = {.sin_family = AF_UNSPEC};
    int s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct pollfd one = {.fd = s};
    CHECK(connect(s, AT(nobody)) == -1 && errno == EINPROGRESS);
    CHECK(poll(&one, 1, 5000) == 1 && connect(s, AT(none)) == 0 && listen(s, 1) == 0);
    CHECK(error(s) == ECONNREFUSED && error(s) == 0);
    close(s);
}

int main(void) {
    a_name_stays_when_the_attempt_was_refused();
    a_chosen_port_can_be_bound_anew_and_a_named_one_stays();
    a_connection_narrows_the_address_that_others_find_taken();
    an_address_of_many_is_heard_at_and_not_spoken_from();
    a_socket_of_both_families_changes_its_peer();
    shutting_counts_before_there_is_a_connection();
    bytes_behind_the_end_of_both_directions_reset();
    a_listener_tells_what_its_attempt_left();
    puts("all tests of sockets that are connected again passed");
    return 0;
}
