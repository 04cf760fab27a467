// SPDX-License-Identifier: Apache-2.0 OR MIT
// What is written below /proc/sys takes effect, or is refused; only the superuser writes. Every value is put back.
#define _GNU_SOURCE
#include "check.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/socket.h>
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

static int option(int fd, int level, int name) {
    int value = 0;
    socklen_t length = sizeof value;
    CHECK(getsockopt(fd, level, name, &value, &length) == 0);
    return value;
}

static void buffers(void) {
    char old[128], old_default[128];
    strcpy(old, setting("net/core/rmem_max"));
    strcpy(old_default, setting("net/core/rmem_default"));
    CHECK(store("net/core/rmem_max", "50000\n") == 0 && store("net/core/rmem_default", "30000") == 0);
    for (int family = 0; family < 2; family++) {
        int fd = socket(family ? AF_INET : AF_UNIX, SOCK_DGRAM, 0), size = 60000;
        CHECK(option(fd, SOL_SOCKET, SO_RCVBUF) == 30000);
        CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size) == 0 && option(fd, SOL_SOCKET, SO_RCVBUF) == 100000);
        close(fd);
    }
    CHECK(store("net/core/rmem_max", "1") == EINVAL && store("net/core/rmem_max", "-5") == EINVAL && store("net/core/rmem_max", "many") == EINVAL);
    CHECK(strcmp(setting("net/core/rmem_max"), "50000") == 0);
    CHECK(store("net/core/rmem_max", old) == 0 && store("net/core/rmem_default", old_default) == 0);
}

static void ports(void) {
    char old[128];
    strcpy(old, setting("net/ipv4/ip_local_port_range"));
    CHECK(store("net/ipv4/ip_local_port_range", "40000 40003") == 0);
    CHECK(strcmp(setting("net/ipv4/ip_local_port_range"), "40000\t40003") == 0);
    CHECK(store("net/ipv4/ip_local_port_range", "40003 40000") == EINVAL && store("net/ipv4/ip_local_port_range", "70000 70001") == EINVAL);
    CHECK(strcmp(setting("net/ipv4/ip_local_port_range"), "40000\t40003") == 0);
    for (int kind = SOCK_STREAM; kind <= SOCK_DGRAM; kind++) {
        int fds[5], bound = 0;
        for (int i = 0; i < 5; i++) {
            struct sockaddr_in name = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
            socklen_t length = sizeof name;
            fds[i] = socket(AF_INET, kind, 0);
            if (bind(fds[i], (void *)&name, sizeof name) == 0) {
                CHECK(getsockname(fds[i], (void *)&name, &length) == 0);
                CHECK(ntohs(name.sin_port) >= 40000 && ntohs(name.sin_port) <= 40003);
                bound++;
            } else {
                CHECK(errno == EADDRINUSE);
            }
        }
        CHECK(bound == 4);
        for (int i = 0; i < 5; i++)
            close(fds[i]);
    }
    CHECK(store("net/ipv4/ip_local_port_range", old) == 0);
}

static void queues_and_times(void) {
    char old[128];
    strcpy(old, setting("net/unix/max_dgram_qlen"));
    CHECK(store("net/unix/max_dgram_qlen", "3") == 0);
    int server = socket(AF_UNIX, SOCK_DGRAM, 0), client = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0), sent = 0;
    struct { sa_family_t family; char name[8]; } name = { AF_UNIX, "\0sysctl" };
    CHECK(bind(server, (void *)&name, sizeof name) == 0);
    while (sent < 100 && sendto(client, "x", 1, 0, (void *)&name, sizeof name) == 1)
        sent++;
    CHECK(errno == EAGAIN && sent == 4 && close(server) == 0 && close(client) == 0);
    CHECK(store("net/unix/max_dgram_qlen", old) == 0);

    strcpy(old, setting("net/ipv4/tcp_keepalive_time"));
    CHECK(store("net/ipv4/tcp_keepalive_time", "300") == 0);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(option(fd, IPPROTO_TCP, TCP_KEEPIDLE) == 300 && close(fd) == 0);
    CHECK(store("net/ipv4/tcp_keepalive_time", old) == 0);

    strcpy(old, setting("net/core/somaxconn"));
    CHECK(store("net/core/somaxconn", "-1") == EINVAL && store("net/core/somaxconn", "2") == 0);
    server = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(bind(server, (void *)&name, sizeof name) == 0 && listen(server, 100) == 0);
    int clients[10], connected = 0;
    for (int i = 0; i < 10; i++) {
        clients[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
        connected += connect(clients[i], (void *)&name, sizeof name) == 0;
    }
    CHECK(errno == EAGAIN && connected == 3 && close(server) == 0);
    for (int i = 0; i < 10; i++)
        close(clients[i]);
    CHECK(store("net/core/somaxconn", old) == 0);
}

static void watches(void) {
    char events[128], instances[128], most[128];
    strcpy(events, setting("fs/inotify/max_queued_events"));
    strcpy(instances, setting("fs/inotify/max_user_instances"));
    strcpy(most, setting("fs/inotify/max_user_watches"));
    CHECK(store("fs/inotify/max_queued_events", "3") == 0 && store("fs/inotify/max_user_watches", "0") == 0);
    int fd = inotify_init1(IN_NONBLOCK);
    CHECK(fd >= 0 && inotify_add_watch(fd, "/tmp", IN_CREATE) == -1 && errno == ENOSPC);
    CHECK(store("fs/inotify/max_user_watches", most) == 0 && inotify_add_watch(fd, "/tmp", IN_OPEN | IN_CLOSE) > 0);
    for (int i = 0; i < 5; i++)
        close(open("/tmp", O_RDONLY));
    char buffer[1024];
    CHECK(read(fd, buffer, sizeof buffer) == 4 * 16);
    struct inotify_event *last = (void *)(buffer + 48);
    CHECK(last->mask == IN_Q_OVERFLOW && last->wd == -1);
    CHECK(store("fs/inotify/max_user_instances", "0") == 0 && inotify_init() == -1 && errno == EMFILE && close(fd) == 0);
    CHECK(store("fs/inotify/max_user_instances", instances) == 0 && store("fs/inotify/max_queued_events", events) == 0);
    // The limit is each user's.
    int fds[1000], count = 0, limit = atoi(instances);
    while (count < 1000 && (fds[count] = inotify_init()) >= 0)
        count++;
    CHECK(count == 1000 || (errno == EMFILE && count <= limit));
    while (count > 0)
        close(fds[--count]);
}

static void others_are_refused(void) {
    CHECK(store("vm/overcommit_memory", "7") == EINVAL && store("net/core/somaxconn", "x") == EINVAL);
    pid_t child = fork();
    if (child == 0) {
        CHECK(setuid(1000) == 0 && store("net/core/somaxconn", "5") == EACCES && atoi(setting("net/core/somaxconn")) > 5);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    // What the kernel itself knows cannot be written.
    CHECK(store("kernel/ostype", "x") == EACCES);
    // Files that are open are counted.
    int before = atoi(setting("fs/file-nr")), fds[200];
    for (int i = 0; i < 200; i++)
        fds[i] = open("/dev/null", O_RDONLY);
    CHECK(atoi(setting("fs/file-nr")) >= before + 100);
    for (int i = 0; i < 200; i++)
        close(fds[i]);
}

// With an argument only what a network namespace has of its own: natively the rest is everybody's.
int main(int count, char **words) {
    int is_guest = count > 1 && words[1][0];
    if (!is_guest) {
        buffers();
        watches();
    }
    ports();
    queues_and_times();
    others_are_refused();
    puts("all sysctl tests passed");
}
