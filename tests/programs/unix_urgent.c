// SPDX-License-Identifier: Apache-2.0 OR MIT
// The urgent byte of AF_UNIX streams (MSG_OOB, Linux 5.15): how it is read, passed over and where it leaves a mark. Passes on
// Linux, too.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef SIOCATMARK
#define SIOCATMARK 0x8905
#endif

static int pair[2];
static volatile sig_atomic_t signals;

static void count(int number) {
    (void)number;
    signals++;
}

static void fresh(void) {
    if (pair[0]) {
        close(pair[0]);
        close(pair[1]);
    }
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
}

static void put(const char *text, int flags) {
    CHECK(send(pair[0], text, strlen(text), flags) == (int)strlen(text));
}

// Whether recv answers this text; of "" that there is nothing yet.
static int reads(const char *text, int flags) {
    char buffer[64] = "";
    int n = (int)recv(pair[1], buffer, sizeof buffer - 1, flags | MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN && !*text;
    if (n != (int)strlen(text) || memcmp(buffer, text, n))
        printf("read '%.*s' for '%s'\n", n, buffer, text);
    return n == (int)strlen(text) && memcmp(buffer, text, n) == 0;
}

static int has_no_urgent_byte(void) {
    char byte;
    return recv(pair[1], &byte, 1, MSG_OOB | MSG_DONTWAIT) == -1 && errno == EINVAL;
}

static int is_at_mark(void) {
    int answer = -1;
    CHECK(ioctl(pair[1], SIOCATMARK, &answer) == 0);
    return answer;
}

static int is_urgent(void) {
    struct pollfd p = {pair[1], POLLPRI, 0};
    return poll(&p, 1, 0) == 1 && p.revents == POLLPRI;
}

static void taken(void) {
    fresh();
    CHECK(has_no_urgent_byte() && !is_at_mark() && !is_urgent());
    put("abc", MSG_OOB);
    CHECK(is_urgent() && !is_at_mark());
    CHECK(reads("c", MSG_OOB | MSG_PEEK) && reads("c", MSG_OOB) && has_no_urgent_byte() && !is_urgent());
    CHECK(reads("ab", 0) && reads("", 0) && has_no_urgent_byte());
    // Where it was, a read ends.
    fresh();
    put("aZ", MSG_OOB);
    put("b", 0);
    CHECK(reads("Z", MSG_OOB) && reads("a", 0) && is_at_mark() == 1 && reads("b", 0) && !is_at_mark() && reads("", 0));
    // Also without a byte in front of it.
    fresh();
    put("Z", MSG_OOB);
    CHECK(is_at_mark() == 1 && reads("Z", MSG_OOB));
    put("b", 0);
    CHECK(reads("b", 0) && reads("", 0));
    // The flag and the length that recvmsg tells.
    fresh();
    put("Z", MSG_OOB);
    char byte = 0;
    struct iovec piece = {&byte, 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    CHECK(recvmsg(pair[1], &message, MSG_OOB) == 1 && byte == 'Z' && message.msg_flags & MSG_OOB);
}

static void passed(void) {
    fresh();
    put("ab", 0);
    put("xyZ", MSG_OOB);
    put("c", 0);
    // A read ends before it; one that begins there passes over it.
    CHECK(reads("abxy", MSG_PEEK) && reads("abxy", 0) && is_at_mark() == 1 && is_urgent());
    CHECK(reads("c", 0) && !is_urgent() && has_no_urgent_byte());
    fresh();
    put("aZ", MSG_OOB);
    CHECK(reads("a", 0) && reads("", 0) && has_no_urgent_byte());
}

static void replaced(void) {
    fresh();
    put("aY", MSG_OOB);
    put("bZ", MSG_OOB);
    put("c", 0);
    CHECK(reads("aYb", 0) && is_at_mark() == 1 && reads("Z", MSG_OOB) && reads("c", 0));
    fresh();
    put("Y", MSG_OOB);
    CHECK(reads("Y", MSG_OOB));
    put("Z", MSG_OOB);
    put("c", 0);
    CHECK(is_at_mark() == 1 && reads("Z", MSG_OOB) && reads("c", 0) && reads("", 0));
}

static void among_the_others(void) {
    int on = 1;
    fresh();
    CHECK(setsockopt(pair[1], SOL_SOCKET, SO_OOBINLINE, &on, sizeof on) == 0);
    put("aZ", MSG_OOB);
    put("b", 0);
    CHECK(has_no_urgent_byte() && is_urgent());
    CHECK(reads("a", 0) && is_at_mark() == 1 && reads("Zb", MSG_PEEK) && reads("Zb", 0) && reads("", 0) && !is_urgent());
}

static void refused(void) {
    fresh();
    CHECK(send(pair[0], "", 0, MSG_OOB) == -1 && errno == EOPNOTSUPP);
    int s = socket(AF_UNIX, SOCK_STREAM, 0), packets[2];
    CHECK(send(s, "", 0, MSG_OOB) == -1 && errno == EOPNOTSUPP && send(s, "x", 1, MSG_OOB) == -1 && errno == ENOTCONN);
    close(s);
    static const int TYPES[] = {SOCK_DGRAM, SOCK_SEQPACKET};
    for (int i = 0; i < 2; i++) {
        char byte;
        CHECK(socketpair(AF_UNIX, TYPES[i], 0, packets) == 0);
        CHECK(send(packets[0], "x", 1, MSG_OOB) == -1 && errno == EOPNOTSUPP);
        CHECK(recv(packets[1], &byte, 1, MSG_OOB | MSG_DONTWAIT) == -1 && errno == EOPNOTSUPP);
        close(packets[0]);
        close(packets[1]);
    }
    signal(SIGPIPE, SIG_IGN);
    close(pair[1]);
    pair[1] = dup(0);
    CHECK(send(pair[0], "x", 1, MSG_OOB) == -1 && errno == EPIPE);
}

static void signalled(void) {
    fresh();
    signal(SIGURG, count);
    CHECK(fcntl(pair[1], F_SETOWN, getpid()) == 0);
    put("a", 0);
    CHECK(signals == 0);
    put("bZ", MSG_OOB);
    CHECK(signals == 1 && reads("Z", MSG_OOB) && reads("ab", 0));
}

// A large send with an urgent byte goes in many pieces.
static void large(void) {
    static char out[300000], in[300000];
    int child, got = 0;
    fresh();
    memset(out, 'o', sizeof out);
    out[sizeof out - 1] = 'Z';
    CHECK((child = fork()) >= 0);
    if (child == 0) {
        CHECK(send(pair[0], out, sizeof out, MSG_OOB) == sizeof out);
        _exit(0);
    }
    while (got < (int)sizeof out - 1) {
        int n = (int)recv(pair[1], in + got, sizeof in - got, 0);
        CHECK(n > 0);
        got += n;
    }
    struct pollfd p = {pair[1], POLLPRI, 0};
    CHECK(got == sizeof out - 1 && memcmp(in, out, got) == 0 && poll(&p, 1, 60000) == 1 && reads("Z", MSG_OOB));
}

int main(void) {
    taken();
    passed();
    replaced();
    among_the_others();
    refused();
    signalled();
    large();
    puts("urgent bytes of AF_UNIX: ok");
    return 0;
}
