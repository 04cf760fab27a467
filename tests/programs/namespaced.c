// SPDX-License-Identifier: Apache-2.0 OR MIT
// What settings of a network and IPC namespace forbid and bring about: sockets of ICMP, low ports, segments of shared memory that
// nobody has any more. Every value is put back. On Linux: as root, in `unshare --net --ipc`.
#define _GNU_SOURCE
#include "check.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *setting(const char *name) {
    static char text[128];
    char path[128];
    snprintf(path, sizeof path, "/proc/sys/%s", name);
    int fd = open(path, O_RDONLY);
    ssize_t n = read(fd, text, sizeof text - 1);
    CHECK(fd >= 0 && n > 0 && text[n - 1] == '\n' && close(fd) == 0);
    text[n - 1] = 0;
    return text;
}

static int store(const char *name, const char *value) {
    char path[128];
    snprintf(path, sizeof path, "/proc/sys/%s", name);
    int fd = open(path, O_WRONLY), error = errno;
    if (fd >= 0) {
        error = write(fd, value, strlen(value)) == (ssize_t)strlen(value) ? 0 : errno;
        close(fd);
    }
    return error;
}

// What `what` answers in a process of that group, with one more group, and of user 65534 unless it is root's.
static int as(gid_t group, gid_t further, int is_root, int (*what)(int), int argument) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        if (setgroups(1, &further) || setresgid(group, group, group) || (!is_root && setresuid(65534, 65534, 65534)))
            _exit(255);
        _exit(what(argument));
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) != 255);
    return WEXITSTATUS(status);
}

static int ping(int protocol) {
    int fd = socket(AF_INET, SOCK_DGRAM, protocol), error = errno;
    return fd >= 0 ? close(fd) : error;
}

static int raw(int keeps) {
    struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct data[2];
    CHECK(syscall(SYS_capget, &header, data) == 0);
    if (!keeps)
        data[0].effective &= ~(1u << CAP_NET_RAW);
    CHECK(syscall(SYS_capset, &header, data) == 0);
    int fd = socket(AF_INET, SOCK_RAW, IPPROTO_ICMP), error = errno;
    return fd >= 0 ? close(fd) : error;
}

static void sockets_of_icmp(void) {
    const char *name = "net/ipv4/ping_group_range";
    char old[128];
    strcpy(old, setting(name));
    CHECK(store(name, "1 0") == 0 && strcmp(setting(name), "1\t0") == 0);
    CHECK(as(0, 0, 1, ping, IPPROTO_ICMP) == EACCES && as(7, 7, 0, ping, IPPROTO_ICMP) == EACCES);
    CHECK(as(0, 0, 1, ping, IPPROTO_UDP) == 0);
    CHECK(store(name, "100\t200\n") == 0);
    CHECK(as(100, 7, 0, ping, IPPROTO_ICMP) == 0 && as(7, 200, 0, ping, IPPROTO_ICMP) == 0);
    CHECK(as(99, 201, 0, ping, IPPROTO_ICMP) == EACCES && as(0, 0, 1, ping, IPPROTO_ICMP) == EACCES);
    CHECK(store(name, "200 100") == 0 && strcmp(setting(name), "1\t0") == 0);
    CHECK(store(name, "0 4294967295") == EINVAL && store(name, "all") == EINVAL);
    CHECK(store(name, old) == 0 && strcmp(setting(name), old) == 0);
    CHECK(as(0, 0, 1, raw, 1) == 0 && as(0, 0, 1, raw, 0) == EPERM && as(7, 7, 0, raw, 1) == EPERM);
}

static int binds(int port) {
    for (int kind = SOCK_STREAM; kind <= SOCK_DGRAM; kind++)
        for (int family = 0; family < 2; family++) {
            struct sockaddr_in name = { .sin_family = AF_INET, .sin_port = htons(port) };
            struct sockaddr_in6 name6 = { .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = IN6ADDR_LOOPBACK_INIT };
            int fd = socket(family ? AF_INET6 : AF_INET, kind, 0);
            int bound = family ? bind(fd, (void *)&name6, sizeof name6) : bind(fd, (void *)&name, sizeof name);
            int error = errno;
            close(fd);
            // A namespace of its own has no address on its loopback yet.
            if (bound != 0 && !(family && error == EADDRNOTAVAIL))
                return error;
        }
    return 0;
}

static void low_ports(void) {
    const char *name = "net/ipv4/ip_unprivileged_port_start";
    char old[128];
    strcpy(old, setting(name));
    CHECK(store(name, "500") == 0 && strcmp(setting(name), "500") == 0);
    CHECK(as(7, 7, 0, binds, 499) == EACCES && as(7, 7, 0, binds, 1) == EACCES);
    CHECK(as(7, 7, 0, binds, 500) == 0 && as(7, 7, 0, binds, 0) == 0 && as(0, 0, 1, binds, 499) == 0);
    // Ports that are chosen for programs need no right.
    CHECK(store(name, "65000") == EINVAL && store(name, "65536") == EINVAL && strcmp(setting(name), "500") == 0);
    CHECK(store("net/ipv4/ip_local_port_range", "400 60000") == EINVAL);
    CHECK(store(name, "0") == 0 && as(7, 7, 0, binds, 1) == 0);
    CHECK(store(name, old) == 0);
}

// The port that is chosen for a socket, or what is wrong.
static int chosen(int type) {
    int fd = socket(AF_INET, type, 0), port;
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t length = sizeof address;
    if (bind(fd, (void *)&address, sizeof address) == 0 && getsockname(fd, (void *)&address, &length) == 0)
        port = ntohs(address.sin_port);
    else
        port = -errno;
    close(fd);
    return port;
}

static void ports_that_nobody_is_given(void) {
    const char *name = "net/ipv4/ip_local_reserved_ports";
    char old[128], range[128];
    strcpy(old, setting(name));
    strcpy(range, setting("net/ipv4/ip_local_port_range"));
    CHECK(store("net/ipv4/ip_local_port_range", "50000 50003") == 0);
    CHECK(store(name, "50003,50000-50001") == 0 && strcmp(setting(name), "50000-50001,50003") == 0);
    CHECK(store(name, "50003-50000") == EINVAL && store(name, "x") == EINVAL && store(name, "65536") == EINVAL);
    CHECK(strcmp(setting(name), "50000-50001,50003") == 0);
    for (int i = 0; i < 20; i++)
        CHECK(chosen(SOCK_STREAM) == 50002 && chosen(SOCK_DGRAM) == 50002);
    CHECK(as(0, 0, 1, binds, 50001) == 0);
    CHECK(store(name, "50000-50003") == 0 && chosen(SOCK_STREAM) == -EADDRINUSE && chosen(SOCK_DGRAM) == -EADDRINUSE);
    CHECK(store(name, "\n") == 0 && strcmp(setting(name), "") == 0 && chosen(SOCK_STREAM) >= 50000);
    CHECK(store(name, old[0] ? old : "\n") == 0 && store("net/ipv4/ip_local_port_range", range) == 0);
}

static int buffer(int option) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), size = -1;
    socklen_t length = sizeof size;
    CHECK(getsockopt(fd, SOL_SOCKET, option, &size, &length) == 0);
    close(fd);
    return size;
}

static void buffers_of_connections(void) {
    char received[128], sent[128];
    strcpy(received, setting("net/ipv4/tcp_rmem"));
    strcpy(sent, setting("net/ipv4/tcp_wmem"));
    CHECK(store("net/ipv4/tcp_rmem", "4096 20000 60000") == 0);
    CHECK(strcmp(setting("net/ipv4/tcp_rmem"), "4096\t20000\t60000") == 0);
    CHECK(store("net/ipv4/tcp_wmem", "4096 30000 60000") == 0);
    CHECK(buffer(SO_RCVBUF) == 20000 && buffer(SO_SNDBUF) == 30000);
    CHECK(store("net/ipv4/tcp_rmem", "0 1 2") == EINVAL && store("net/ipv4/tcp_wmem", "x") == EINVAL);
    CHECK(store("net/ipv4/tcp_rmem", received) == 0 && store("net/ipv4/tcp_wmem", sent) == 0);
}

static int is_there(int id) {
    struct shmid_ds status;
    return shmctl(id, IPC_STAT, &status) == 0;
}

// A segment whose creator has ended without a mapping of it.
static int orphan(void) {
    int pipes[2], id, status;
    CHECK(pipe(pipes) == 0);
    if (fork() == 0) {
        id = shmget(IPC_PRIVATE, 4096, 0600);
        _exit(write(pipes[1], &id, sizeof id) != sizeof id);
    }
    CHECK(read(pipes[0], &id, sizeof id) == sizeof id && wait(&status) > 0 && status == 0);
    return close(pipes[0]) + close(pipes[1]) + id;
}

static void segments_that_nobody_has(void) {
    const char *name = "kernel/shm_rmid_forced";
    CHECK(strcmp(setting(name), "0") == 0 && store(name, "2") == EINVAL);
    int left = orphan(), own = shmget(IPC_PRIVATE, 4096, 0600);
    CHECK(is_there(left) && is_there(own));
    CHECK(store(name, "1") == 0 && strcmp(setting(name), "1") == 0);
    // Its creator may map it yet.
    CHECK(!is_there(left) && is_there(own) && !is_there(orphan()));
    char *at = shmat(own, 0, 0), *second = shmat(own, 0, 0);
    CHECK(at != (void *)-1 && second != (void *)-1 && shmdt(second) == 0 && is_there(own));
    CHECK(shmdt(at) == 0 && !is_there(own));
    CHECK(store(name, "0") == 0);
    own = shmget(IPC_PRIVATE, 4096, 0600);
    at = shmat(own, 0, 0);
    CHECK(shmdt(at) == 0 && is_there(own) && shmctl(own, IPC_RMID, 0) == 0 && !is_there(own));
}

int main(void) {
    sockets_of_icmp();
    low_ports();
    ports_that_nobody_is_given();
    buffers_of_connections();
    segments_that_nobody_has();
    puts("all tests of namespaced settings passed");
}
