// SPDX-License-Identifier: Apache-2.0 OR MIT
// What the own suites of libraries and languages (APR, Ruby, PHP, Perl, Tcl, coreutils) ask for, in which this kernel once differed from Linux.
#define _GNU_SOURCE
#include "check.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define FAILS(call, error) (errno = 0, (call) == -1 && errno == (error))

static int ends_well(pid_t child) {
    int status;
    return waitpid(child, &status, 0) == child && status == 0;
}

// An address for documentation (RFC 5737), which no computer has.
static struct sockaddr_in elsewhere(void) {
    return (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = inet_addr("192.0.2.77") };
}

static void addresses_of_others_can_be_bound_with_freebind(void) {
    static const int types[] = { SOCK_STREAM, SOCK_DGRAM };
    for (int i = 0; i < 2; i++) {
        struct sockaddr_in address = elsewhere(), bound = { 0 };
        socklen_t length = sizeof bound;
        int s = socket(AF_INET, types[i], 0), on = 1;
        CHECK(s >= 0 && FAILS(bind(s, (void *)&address, sizeof address), EADDRNOTAVAIL));
        CHECK(setsockopt(s, IPPROTO_IP, IP_FREEBIND, &on, sizeof on) == 0);
        CHECK(bind(s, (void *)&address, sizeof address) == 0 && getsockname(s, (void *)&bound, &length) == 0);
        CHECK(bound.sin_addr.s_addr == address.sin_addr.s_addr && bound.sin_port != 0);
        CHECK(types[i] == SOCK_DGRAM || listen(s, 1) == 0);
        close(s);
    }
}

// IPV6_ADDRFORM: a socket of IPv6 that is connected to an address of IPv4 becomes one of IPv4.
static void sockets_of_ipv6_become_sockets_of_ipv4(void) {
    static const int types[] = { SOCK_STREAM, SOCK_DGRAM };
    for (int i = 0; i < 2; i++) {
        struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        struct sockaddr_in6 mapped = { .sin6_family = AF_INET6 }, shown;
        socklen_t length = sizeof address;
        int server = socket(AF_INET, types[i], 0), s = socket(AF_INET6, types[i], 0), inet = AF_INET, form = 0;
        CHECK(bind(server, (void *)&address, length) == 0 && getsockname(server, (void *)&address, &length) == 0);
        CHECK(types[i] == SOCK_DGRAM || listen(server, 1) == 0);
        CHECK(inet_pton(AF_INET6, "::ffff:127.0.0.1", &mapped.sin6_addr) == 1);
        mapped.sin6_port = address.sin_port;
        socklen_t form_length = sizeof form;
        CHECK(FAILS(setsockopt(s, IPPROTO_IPV6, IPV6_ADDRFORM, &inet, sizeof inet), ENOTCONN));
        CHECK(FAILS(getsockopt(s, IPPROTO_IPV6, IPV6_ADDRFORM, &form, &form_length), ENOTCONN));
        CHECK(connect(s, (void *)&mapped, sizeof mapped) == 0);
        CHECK(getsockopt(s, IPPROTO_IPV6, IPV6_ADDRFORM, &form, &form_length) == 0 && form == AF_INET6);
        int other = AF_INET6;
        CHECK(FAILS(setsockopt(s, IPPROTO_IPV6, IPV6_ADDRFORM, &other, sizeof other), EINVAL));
        CHECK(setsockopt(s, IPPROTO_IPV6, IPV6_ADDRFORM, &inet, sizeof inet) == 0);
        length = sizeof shown;
        CHECK(getsockname(s, (void *)&shown, &length) == 0 && length == sizeof address && shown.sin6_family == AF_INET);
        length = sizeof shown;
        CHECK(getpeername(s, (void *)&shown, &length) == 0 && shown.sin6_family == AF_INET);
        CHECK(((struct sockaddr_in *)&shown)->sin_addr.s_addr == address.sin_addr.s_addr);
        form_length = sizeof form;
        CHECK(getsockopt(s, SOL_SOCKET, SO_DOMAIN, &form, &form_length) == 0 && form == AF_INET);
        CHECK(getsockopt(s, IPPROTO_IPV6, IPV6_ADDRFORM, &form, &form_length) == -1);
        CHECK(send(s, "x", 1, 0) == 1);
        close(s), close(server);
    }
}

static int lease(int fd, int kind) {
    return fcntl(fd, F_SETLEASE, kind);
}

static void leases_are_for_files_that_nobody_else_has_open(void) {
    int reads = open("leased", O_RDONLY | O_CREAT, 0644), writes = open("leased", O_RDWR);
    CHECK(reads >= 0 && writes >= 0 && fcntl(reads, F_GETLEASE) == F_UNLCK && signal(SIGIO, SIG_IGN) != SIG_ERR);
    CHECK(FAILS(lease(reads, F_RDLCK), EAGAIN) && FAILS(lease(reads, F_WRLCK), EAGAIN));
    CHECK(FAILS(lease(writes, F_WRLCK), EAGAIN) && FAILS(lease(reads, F_UNLCK), EAGAIN));
    CHECK(FAILS(lease(reads, 7), EINVAL));
    CHECK(close(reads) == 0 && lease(writes, F_WRLCK) == 0 && fcntl(writes, F_GETLEASE) == F_WRLCK);
    CHECK(FAILS(open("leased", O_RDONLY | O_NONBLOCK), EAGAIN));
    CHECK(fcntl(writes, F_GETLEASE) == F_RDLCK && lease(writes, F_UNLCK) == 0);
    CHECK(close(writes) == 0 && (reads = open("leased", O_RDONLY)) >= 0 && lease(reads, F_RDLCK) == 0);
    int other = open("leased", O_RDONLY);
    CHECK(other >= 0 && lease(other, F_RDLCK) == 0 && FAILS(lease(other, F_WRLCK), EAGAIN));
    // The lease goes with the last descriptor of its description.
    int copy = dup(reads);
    CHECK(close(reads) == 0 && fcntl(copy, F_GETLEASE) == F_RDLCK && close(copy) == 0);
    CHECK(lease(other, F_WRLCK) == 0 && close(other) == 0);
    int pair[2];
    CHECK(pipe(pair) == 0 && FAILS(lease(pair[0], F_RDLCK), EINVAL));
    close(pair[0]), close(pair[1]);
}

static volatile sig_atomic_t told, told_fd, told_code;

static void on_break(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    told_fd = info->si_fd, told_code = info->si_code, told = 1;
}

// Who opens the file waits until its holder, which a signal tells, has given the lease back.
static void holders_of_leases_are_told(void) {
    static const struct { int flags, kind, becomes; } cases[] = {
        { O_RDONLY, F_WRLCK, F_RDLCK },
        { O_WRONLY, F_WRLCK, F_UNLCK },
        { O_RDWR, F_RDLCK, F_UNLCK },
    };
    sigset_t set, before;
    sigemptyset(&set), sigaddset(&set, SIGRTMIN);
    struct sigaction action = { .sa_sigaction = on_break, .sa_flags = SA_SIGINFO | SA_RESTART };
    CHECK(sigaction(SIGRTMIN, &action, NULL) == 0 && sigprocmask(SIG_BLOCK, &set, &before) == 0);
    for (int i = 0; i < 4; i++) {
        int kind = i < 3 ? cases[i].kind : F_RDLCK;
        int fd = open("leased", O_RDONLY);
        CHECK(fd >= 0 && fcntl(fd, F_SETSIG, SIGRTMIN) == 0 && lease(fd, kind) == 0);
        pid_t child = fork();
        if (child == 0) {
            close(fd);
            if (i == 3)
                _exit(truncate("leased", 5) != 0);
            int opened = open("leased", cases[i].flags);
            // By then the holder has said that it is ready.
            _exit(opened < 0 || access("ready", F_OK) != 0);
        }
        told = 0;
        while (!told)
            sigsuspend(&before);
        CHECK(told_fd == fd && told_code == POLL_MSG);
        CHECK(fcntl(fd, F_GETLEASE) == (i < 3 ? cases[i].becomes : F_UNLCK));
        int ready = open("ready", O_CREAT | O_WRONLY, 0644);
        CHECK(ready >= 0 && close(ready) == 0);
        CHECK(lease(fd, i < 3 ? cases[i].becomes : F_UNLCK) == 0);
        CHECK(ends_well(child) && close(fd) == 0 && unlink("ready") == 0);
    }
    struct stat stat;
    CHECK(lstat("leased", &stat) == 0 && stat.st_size == 5 && sigprocmask(SIG_SETMASK, &before, NULL) == 0);
}

int main(void) {
    char directory[] = "/tmp/likenessXXXXXX";
    CHECK(mkdtemp(directory) && chdir(directory) == 0);
    addresses_of_others_can_be_bound_with_freebind();
    sockets_of_ipv6_become_sockets_of_ipv4();
    leases_are_for_files_that_nobody_else_has_open();
    holders_of_leases_are_told();
    puts("all likeness tests of suites passed");
}
