// SPDX-License-Identifier: Apache-2.0 OR MIT
// What /proc/net says of sockets, memory by process id, memory policies, descriptors
// that are listed, terminals that are opened. Passes on Linux, in a network namespace of its
// own and as root.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "check.h"

// Finds the line of a table with this inode, and its first nine columns.
static int line_of(const char *table, int fd, char words[9][64])
{
    struct stat stat;
    char line[512], inode[32];
    CHECK(fstat(fd, &stat) == 0);
    snprintf(inode, sizeof inode, " %lu ", (unsigned long)stat.st_ino);
    FILE *file = fopen(table, "r");
    CHECK(file && fgets(line, sizeof line, file));
    while (fgets(line, sizeof line, file)) {
        if (strstr(line, inode)) {
            fclose(file);
            return sscanf(line, "%63s %63s %63s %63s %63s %63s %63s %63s %63s", words[0], words[1], words[2], words[3],
                          words[4], words[5], words[6], words[7], words[8]);
        }
    }
    fclose(file);
    return 0;
}

static void sockets(void)
{
    char words[9][64], local[64], remote[64];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(line_of("/proc/net/tcp", listener, words) == 0);
    CHECK(bind(listener, (void *)&address, sizeof address) == 0 && listen(listener, 1) == 0);
    CHECK(getsockname(listener, (void *)&address, &length) == 0);
    snprintf(local, sizeof local, "0100007F:%04X", ntohs(address.sin_port));
    CHECK(line_of("/proc/net/tcp", listener, words) == 9);
    CHECK(!strcmp(words[1], local) && !strcmp(words[2], "00000000:0000") && !strcmp(words[3], "0A"));
    CHECK(connect(client, (void *)&address, sizeof address) == 0);
    int server = accept(listener, NULL, NULL);
    CHECK(server >= 0 && line_of("/proc/net/tcp", server, words) == 9);
    CHECK(!strcmp(words[1], local) && !strcmp(words[3], "01"));
    CHECK(getsockname(client, (void *)&address, &length) == 0);
    snprintf(remote, sizeof remote, "0100007F:%04X", ntohs(address.sin_port));
    CHECK(!strcmp(words[2], remote));

    int udp = socket(AF_INET, SOCK_DGRAM, 0);
    address.sin_port = 0;
    CHECK(bind(udp, (void *)&address, sizeof address) == 0);
    CHECK(line_of("/proc/net/udp", udp, words) == 9 && !strcmp(words[3], "07"));

    struct sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = "/tmp/tables"};
    int local_listener = socket(AF_UNIX, SOCK_STREAM, 0);
    unlink(name.sun_path);
    CHECK(bind(local_listener, (void *)&name, sizeof name) == 0 && listen(local_listener, 1) == 0);
    CHECK(line_of("/proc/net/unix", local_listener, words) == 8);
    CHECK(!strcmp(words[3], "00010000") && !strcmp(words[4], "0001") && !strcmp(words[5], "01"));
    CHECK(!strcmp(words[7], "/tmp/tables"));
    unlink(name.sun_path);
}

/* What interface a line of a table is about, after its title. */
static int has_interface(const char *path, const char *name)
{
    char line[512], shown[32];
    FILE *file = fopen(path, "r");
    int found = 0;
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file))
        if (sscanf(line, " %31[^: \t]", shown) == 1)
            found |= !strcmp(shown, name);
    fclose(file);
    return found;
}

static void interfaces(void)
{
    CHECK(has_interface("/proc/net/dev", "lo") && has_interface("/proc/net/route", "Iface"));
    char line[512];
    unsigned long long received = 0, packets = 0;
    FILE *file = fopen("/proc/net/dev", "r");
    while (fgets(line, sizeof line, file))
        sscanf(line, " lo: %llu %llu", &received, &packets);
    fclose(file);
    // The sockets above have spoken to each other.
    CHECK(packets > 0 && received > packets);
}

static void memory_by_process_id(void)
{
    char from[] = "hello, world", to[16] = "";
    struct iovec local[2] = {{to, 5}, {to + 5, 7}}, remote = {from, 12}, hole = {(void *)8, 8};
    CHECK(process_vm_readv(getpid(), local, 2, &remote, 1, 0) == 12 && !strcmp(to, from));
    memcpy(to, "HELLO, WORLD", 12);
    CHECK(process_vm_writev(getpid(), local, 1, &remote, 1, 0) == 5 && !strcmp(from, "HELLO, world"));
    CHECK(process_vm_readv(getpid(), local, 2, &hole, 1, 0) == -1 && errno == EFAULT);
    CHECK(process_vm_readv(getpid(), local, 2, &remote, 1, 1) == -1 && errno == EINVAL);
    CHECK(process_vm_readv(99999999, local, 2, &remote, 1, 0) == -1 && errno == ESRCH);
}

static void memory_policies(void)
{
    int mode = 77;
    unsigned long nodes = 9, one = 1, other = 1UL << 40;
    CHECK(syscall(SYS_get_mempolicy, &mode, NULL, 0, NULL, 0) == 0 && mode == 0);
    CHECK(syscall(SYS_set_mempolicy, 2, &one, 64) == 0);
    CHECK(syscall(SYS_get_mempolicy, &mode, &nodes, 64, NULL, 0) == 0 && mode == 2 && nodes == 1);
    CHECK(syscall(SYS_set_mempolicy, 2, &other, 64) == -1 && errno == EINVAL);
    CHECK(syscall(SYS_set_mempolicy, 2, NULL, 0) == -1 && errno == EINVAL);
    CHECK(syscall(SYS_set_mempolicy, 99, &one, 64) == -1 && errno == EINVAL);
    CHECK(syscall(SYS_set_mempolicy, 0, NULL, 0) == 0);
    CHECK(syscall(SYS_get_mempolicy, NULL, &nodes, 64, NULL, 4) == 0 && nodes & 1);
    void *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(syscall(SYS_mbind, page, 4096, 2, &one, 64, 0) == 0);
    CHECK(syscall(SYS_mbind, (char *)page + 1, 4096, 2, &one, 64, 0) == -1 && errno == EINVAL);
    CHECK(munmap(page, 4096) == 0 && syscall(SYS_mbind, page, 4096, 2, &one, 64, 0) == -1 && errno == EFAULT);
}

static void a_process_directory_names_the_process(void)
{
    char path[32];
    snprintf(path, sizeof path, "/proc/%d", getpid());
    int fd = open(path, O_DIRECTORY);
    CHECK(fd >= 0 && syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0) == 0);
    close(fd);
}

// As programs close what their children are not to have: listing and closing in turn, a few entries at a time.
static void closing_what_is_listed(void)
{
    enum { OPEN = 100, HIGH = 300 };
    int closed = 0;
    for (int i = 0; i < OPEN; i++) CHECK(fcntl(0, F_DUPFD, HIGH + i) == HIGH + i);
    int listing = open("/proc/self/fd", O_RDONLY | O_DIRECTORY);
    CHECK(listing >= 0 && listing < HIGH);
    char buffer[128];
    for (;;) {
        long n = syscall(SYS_getdents64, listing, buffer, sizeof buffer);
        CHECK(n >= 0);
        if (n == 0) break;
        for (long at = 0; at < n; at += *(unsigned short *)(buffer + at + 16)) {
            int fd = atoi(buffer + at + 19);
            if (fd >= HIGH && fd < HIGH + OPEN) {
                CHECK(close(fd) == 0);
                closed++;
            }
        }
    }
    CHECK(closed == OPEN);
    close(listing);
}

// The leader of a session without a terminal gets the one that it opens, unless it says that it wants none (open(2)).
static void opening_a_terminal_makes_it_the_sessions(void)
{
    int master = posix_openpt(O_RDWR | O_NOCTTY), status;
    CHECK(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char name[32];
        int number;
        CHECK(ioctl(master, TIOCGPTN, &number) == 0);
        snprintf(name, sizeof name, "/dev/pts/%d", number);
        CHECK(setsid() == getpid());
        CHECK(open("/dev/tty", O_RDWR) == -1 && errno == ENXIO);
        int fd = open(name, O_RDWR | O_NOCTTY);
        CHECK(fd >= 0 && open("/dev/tty", O_RDWR) == -1 && errno == ENXIO);
        CHECK(open(name, O_WRONLY) >= 0 && open("/dev/tty", O_RDWR) == -1);
        CHECK(open(name, O_RDWR) >= 0 && open("/dev/tty", O_RDWR) >= 0);
        CHECK(tcgetsid(fd) == getpid() && tcgetpgrp(fd) == getpid());
        // A second terminal controls nothing.
        int other = posix_openpt(O_RDWR);
        CHECK(other >= 0 && grantpt(other) == 0 && unlockpt(other) == 0 && ioctl(other, TIOCGPTN, &number) == 0);
        snprintf(name, sizeof name, "/dev/pts/%d", number);
        int second = open(name, O_RDWR);
        CHECK(second >= 0 && tcgetsid(second) == -1 && errno == ENOTTY && tcgetsid(fd) == getpid());
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    close(master);
}

int main(void)
{
    sockets();
    interfaces();
    memory_by_process_id();
    memory_policies();
    a_process_directory_names_the_process();
    closing_what_is_listed();
    opening_a_terminal_makes_it_the_sessions();
    puts("all table tests passed");
    return 0;
}
