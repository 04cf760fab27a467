// SPDX-License-Identifier: Apache-2.0 OR MIT
// What the Linux Test Project and gVisor ask for, in which this kernel once differed from Linux: flags of inodes, limits of users, policies of memory.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <grp.h>
#include <linux/fs.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define FAILS(call, error) (errno = 0, (call) == -1 && errno == (error))

static int ends_well(pid_t child) {
    int status;
    return waitpid(child, &status, 0) == child && status == 0;
}

static int flags_of(int fd) {
    int flags = -1;
    CHECK(ioctl(fd, FS_IOC_GETFLAGS, &flags) == 0);
    return flags;
}

static int set_flags(int fd, int flags) {
    return ioctl(fd, FS_IOC_SETFLAGS, &flags);
}

static void immutable_files_stay_as_they_are(void) {
    int fd = open("held", O_RDWR | O_CREAT, 0644);
    CHECK(fd >= 0 && flags_of(fd) == 0 && write(fd, "text", 4) == 4 && set_flags(fd, FS_IMMUTABLE_FL) == 0);
    CHECK(flags_of(fd) == FS_IMMUTABLE_FL);
    CHECK(FAILS(open("held", O_WRONLY), EPERM) && FAILS(open("held", O_RDWR | O_APPEND), EPERM));
    CHECK(FAILS(open("held", O_RDONLY | O_TRUNC), EPERM) && FAILS(access("held", W_OK), EPERM) && access("held", R_OK) == 0);
    CHECK(FAILS(truncate("held", 0), EPERM) && FAILS(chmod("held", 0600), EPERM) && FAILS(chown("held", 1, 1), EPERM));
    CHECK(FAILS(unlink("held"), EPERM) && FAILS(link("held", "other"), EPERM) && FAILS(rename("held", "other"), EPERM));
    CHECK(FAILS(utimensat(AT_FDCWD, "held", NULL, 0), EPERM) && FAILS(fchmod(fd, 0600), EPERM));
    CHECK(FAILS(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 100), EPERM));
    CHECK(FAILS(setxattr("held", "trusted.a", "b", 1, 0), EPERM) && FAILS(removexattr("held", "trusted.a"), EPERM));
    // What is open for writing stays so.
    CHECK(write(fd, "more", 4) == 4 && ftruncate(fd, 2) == 0 && flags_of(fd) == FS_IMMUTABLE_FL);
    CHECK(set_flags(fd, 0) == 0 && unlink("held") == 0 && close(fd) == 0);
}

static void append_only_files_grow(void) {
    int fd = open("grows", O_RDWR | O_CREAT, 0644), appends;
    CHECK(fd >= 0 && set_flags(fd, FS_APPEND_FL) == 0);
    CHECK(FAILS(open("grows", O_WRONLY), EPERM) && FAILS(open("grows", O_WRONLY | O_APPEND | O_TRUNC), EPERM));
    CHECK((appends = open("grows", O_RDWR | O_APPEND)) >= 0 && write(appends, "line\n", 5) == 5);
    CHECK(FAILS(fcntl(appends, F_SETFL, 0), EPERM) && fcntl(appends, F_SETFL, O_APPEND | O_NONBLOCK) == 0);
    CHECK(FAILS(truncate("grows", 1), EPERM) && FAILS(ftruncate(fd, 1), EPERM));
    CHECK(fallocate(fd, 0, 0, 100) == 0);
    CHECK(FAILS(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 5), EPERM));
    CHECK(FAILS(unlink("grows"), EPERM) && FAILS(rename("grows", "other"), EPERM) && FAILS(link("grows", "other"), EPERM));
    CHECK(FAILS(chmod("grows", 0600), EPERM) && FAILS(fsetxattr(fd, "user.a", "b", 1, 0), EPERM));
    struct timespec times[2] = { { 1, 0 }, { 2, 0 } };
    CHECK(FAILS(utimensat(AT_FDCWD, "grows", times, 0), EPERM) && utimensat(AT_FDCWD, "grows", NULL, 0) == 0);
    errno = 0;
    CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EACCES);
    void *copy = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    CHECK(copy != MAP_FAILED && munmap(copy, 4096) == 0);
    CHECK(set_flags(fd, 0) == 0 && unlink("grows") == 0 && close(fd) == 0 && close(appends) == 0);
}

static void flags_of_directories_hold_for_their_names(void) {
    CHECK(mkdir("d", 0755) == 0 && close(open("d/old", O_CREAT | O_WRONLY, 0644)) == 0);
    int fd = open("d", O_RDONLY | O_DIRECTORY);
    CHECK(set_flags(fd, FS_APPEND_FL) == 0 && FAILS(unlink("d/old"), EPERM) && FAILS(rename("d/old", "d/x"), EPERM));
    CHECK(close(open("d/new", O_CREAT | O_WRONLY, 0644)) == 0 && FAILS(rmdir("d"), EPERM));
    CHECK(set_flags(fd, FS_IMMUTABLE_FL) == 0 && FAILS(open("d/more", O_CREAT | O_WRONLY, 0644), EPERM));
    CHECK(FAILS(unlink("d/old"), EPERM) && FAILS(mkdir("d/m", 0755), EPERM) && FAILS(symlink("a", "d/s"), EPERM));
    int inside = open("d/old", O_RDWR);
    // The file itself is not protected.
    CHECK(inside >= 0 && write(inside, "x", 1) == 1 && close(inside) == 0);
    // Of the flags two are what a new file gets.
    CHECK(set_flags(fd, FS_NODUMP_FL | FS_NOATIME_FL) == 0);
    CHECK((inside = open("d/heir", O_CREAT | O_RDWR, 0644)) >= 0 && flags_of(inside) == (FS_NODUMP_FL | FS_NOATIME_FL));
    CHECK(close(inside) == 0 && unlink("d/heir") == 0 && unlink("d/new") == 0 && unlink("d/old") == 0);
    CHECK(close(fd) == 0 && rmdir("d") == 0);
}

static void flags_are_shown_and_guarded(void) {
    int fd = open("shown", O_RDWR | O_CREAT, 0644), ends[2];
    struct statx shown;
    struct fsxattr extended;
    CHECK(set_flags(fd, FS_NODUMP_FL | FS_APPEND_FL) == 0 && statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &shown) == 0);
    CHECK((shown.stx_attributes & 0x70) == (STATX_ATTR_NODUMP | STATX_ATTR_APPEND) && (shown.stx_attributes_mask & 0x70) == 0x70);
    CHECK(ioctl(fd, FS_IOC_FSGETXATTR, &extended) == 0 && extended.fsx_xflags == (FS_XFLAG_NODUMP | FS_XFLAG_APPEND));
    extended.fsx_xflags = FS_XFLAG_NOATIME;
    CHECK(ioctl(fd, FS_IOC_FSSETXATTR, &extended) == 0 && flags_of(fd) == FS_NOATIME_FL);
    extended.fsx_projid = 3;
    CHECK(FAILS(ioctl(fd, FS_IOC_FSSETXATTR, &extended), EOPNOTSUPP));
    CHECK(FAILS(set_flags(fd, FS_SYNC_FL), EOPNOTSUPP) && flags_of(fd) == FS_NOATIME_FL);
    CHECK(FAILS(ioctl(fd, FS_IOC_SETFLAGS, NULL), EFAULT) && FAILS(ioctl(fd, FS_IOC_GETFLAGS, NULL), EFAULT));
    CHECK(pipe(ends) == 0 && FAILS(ioctl(ends[0], FS_IOC_GETFLAGS, &shown), ENOTTY));
    pid_t child = fork();
    if (child == 0) {
        // The owner may change what protects nothing; to protect takes CAP_LINUX_IMMUTABLE, which user 1 has not.
        CHECK(fchown(fd, 1, 1) == 0 && setresgid(1, 1, 1) == 0 && setresuid(1, 1, 1) == 0);
        CHECK(set_flags(fd, FS_NODUMP_FL) == 0 && FAILS(set_flags(fd, FS_IMMUTABLE_FL), EPERM));
        CHECK(FAILS(set_flags(fd, FS_NODUMP_FL | FS_APPEND_FL), EPERM) && flags_of(fd) == FS_NODUMP_FL);
        _exit(0);
    }
    CHECK(ends_well(child));
    child = fork();
    if (child == 0) {
        CHECK(setresuid(2, 2, 2) == 0 && FAILS(set_flags(fd, 0), EPERM));
        _exit(0);
    }
    CHECK(ends_well(child) && close(fd) == 0 && unlink("shown") == 0 && close(ends[0]) == 0 && close(ends[1]) == 0);
}

static long setting(const char *path) {
    FILE *file = fopen(path, "r");
    long value = -1;
    CHECK(file && fscanf(file, "%ld", &value) == 1 && fclose(file) == 0);
    return value;
}

// pipe(7): who has too many pages in pipes gets small ones, and none of them grows.
static void pages_of_pipes_are_counted_for_each_user(void) {
    long limit = setting("/proc/sys/fs/pipe-user-pages-soft");
    CHECK(limit == 16384 && setting("/proc/sys/fs/pipe-user-pages-hard") == 0);
    pid_t child = fork();
    if (child == 0) {
        struct rlimit descriptors = { 4096, 4096 };
        CHECK(setrlimit(RLIMIT_NOFILE, &descriptors) == 0 && setresgid(4711, 4711, 4711) == 0 && setresuid(4711, 4711, 4711) == 0);
        int first[2], ends[2];
        CHECK(pipe(first) == 0 && fcntl(first[1], F_GETPIPE_SZ) == 65536 && fcntl(first[1], F_SETPIPE_SZ, 131072) == 131072);
        CHECK(fcntl(first[1], F_SETPIPE_SZ, 65536) == 65536);
        for (long made = 1; made < limit / 16; made++)
            CHECK(pipe(ends) == 0 && fcntl(ends[1], F_GETPIPE_SZ) == 65536);
        CHECK(pipe(ends) == 0 && fcntl(ends[1], F_GETPIPE_SZ) == 8192);
        CHECK(FAILS(fcntl(ends[1], F_SETPIPE_SZ, 65536), EPERM) && FAILS(fcntl(first[1], F_SETPIPE_SZ, 131072), EPERM));
        char bytes[8192] = { 0 };
        CHECK(write(ends[1], bytes, sizeof bytes) == sizeof bytes && read(ends[0], bytes, sizeof bytes - 1) == sizeof bytes - 1);
        CHECK(write(ends[1], bytes, 1) == 1);
        // A FIFO's pipe counts as well.
        CHECK(mkfifo("/dev/shm/fifo4711", 0600) == 0);
        int fifo = open("/dev/shm/fifo4711", O_RDWR);
        CHECK(unlink("/dev/shm/fifo4711") == 0 && fifo >= 0 && fcntl(fifo, F_GETPIPE_SZ) == 8192);
        // Smaller ones make room.
        CHECK(fcntl(first[1], F_SETPIPE_SZ, 4096) == 4096);
        CHECK(close(ends[0]) == 0 && close(ends[1]) == 0 && close(fifo) == 0);
        CHECK(pipe(ends) == 0 && fcntl(ends[1], F_GETPIPE_SZ) == 8192);
        CHECK(fcntl(ends[1], F_SETPIPE_SZ, 32768) == 32768);
        _exit(0);
    }
    CHECK(ends_well(child));
    // The superuser has as many as it likes.
    int ends[2];
    CHECK(pipe(ends) == 0 && fcntl(ends[1], F_GETPIPE_SZ) == 65536 && close(ends[0]) == 0 && close(ends[1]) == 0);
}

static void connections_can_be_governed_by_reno(void) {
    char name[16] = "";
    socklen_t length = sizeof name;
    int s = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(setsockopt(s, IPPROTO_TCP, TCP_CONGESTION, "reno", 4) == 0);
    CHECK(getsockopt(s, IPPROTO_TCP, TCP_CONGESTION, name, &length) == 0 && strcmp(name, "reno") == 0 && length == 16);
    CHECK(setsockopt(s, IPPROTO_TCP, TCP_CONGESTION, "cubic", 6) == 0);
    length = sizeof name;
    CHECK(getsockopt(s, IPPROTO_TCP, TCP_CONGESTION, name, &length) == 0 && strcmp(name, "cubic") == 0);
    CHECK(FAILS(setsockopt(s, IPPROTO_TCP, TCP_CONGESTION, "none such", 9), ENOENT));
    // An accepted connection has its listener's.
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int client = socket(AF_INET, SOCK_STREAM, 0), server;
    length = sizeof address;
    CHECK(setsockopt(s, IPPROTO_TCP, TCP_CONGESTION, "reno", 4) == 0 && bind(s, (void *)&address, length) == 0);
    CHECK(listen(s, 1) == 0 && getsockname(s, (void *)&address, &length) == 0 && connect(client, (void *)&address, length) == 0);
    CHECK((server = accept(s, NULL, NULL)) >= 0);
    length = sizeof name;
    CHECK(getsockopt(server, IPPROTO_TCP, TCP_CONGESTION, name, &length) == 0 && strcmp(name, "reno") == 0);
    // Some megabytes go through.
    static char bytes[65536];
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 64; i++)
            CHECK(send(server, bytes, sizeof bytes, 0) == sizeof bytes);
        _exit(0);
    }
    CHECK(close(server) == 0);
    long all = 0, n;
    while ((n = recv(client, bytes, sizeof bytes, 0)) > 0)
        all += n;
    CHECK(ends_well(child) && all == 64 * 65536L && close(client) == 0 && close(s) == 0);
}

// The line of /proc/locks that is about this process and says LEASE.
static int shown_lease(char *state, char *access) {
    char line[256];
    FILE *file = fopen("/proc/locks", "r");
    int found = 0, pid;
    CHECK(file);
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "%*d: LEASE %15s %15s %d", state, access, &pid) == 3 && pid == getpid())
            found = 1;
    CHECK(fclose(file) == 0);
    return found;
}

static void leases_are_among_the_locks(void) {
    char state[16], access[16];
    int fd = open("leased", O_RDONLY | O_CREAT, 0644);
    signal(SIGIO, SIG_IGN);
    CHECK(fd >= 0 && !shown_lease(state, access) && fcntl(fd, F_SETLEASE, F_RDLCK) == 0);
    CHECK(shown_lease(state, access) && strcmp(state, "ACTIVE") == 0 && strcmp(access, "READ") == 0);
    CHECK(FAILS(open("leased", O_WRONLY | O_NONBLOCK), EAGAIN));
    CHECK(shown_lease(state, access) && strcmp(state, "BREAKING") == 0 && strcmp(access, "UNLCK") == 0);
    CHECK(fcntl(fd, F_SETLEASE, F_UNLCK) == 0 && !shown_lease(state, access));
    CHECK(close(fd) == 0 && unlink("leased") == 0);
}

// What mbind(2) said is what get_mempolicy(2) says of the mapping, also where only one node is.
static void mappings_have_policies(void) {
    enum { DEFAULT, PREFERRED, BIND, INTERLEAVE, LOCAL, OF_ADDRESS = 2 };
    long page = sysconf(_SC_PAGESIZE);
    unsigned long node = 1, none = 0, shown = 7;
    int mode = -1;
    char *at = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    if (syscall(SYS_mbind, at + page, 2 * page, BIND, &node, 64, 0) == -1) {
        // A Linux without NUMA.
        CHECK(errno == ENOSYS && munmap(at, 4 * page) == 0);
        return;
    }
    for (int i = 0; i < 4; i++) {
        int inside = i == 1 || i == 2;
        CHECK(syscall(SYS_get_mempolicy, &mode, &shown, 1024, at + i * page, OF_ADDRESS) == 0);
        CHECK(mode == (inside ? BIND : DEFAULT) && shown == (inside ? 1 : 0));
    }
    CHECK(syscall(SYS_mbind, at, 4 * page, PREFERRED, NULL, 0, 0) == 0);
    CHECK(syscall(SYS_get_mempolicy, &mode, &shown, 1024, at, OF_ADDRESS) == 0 && mode == LOCAL && shown == 0);
    CHECK(syscall(SYS_mbind, at, page, INTERLEAVE, &node, 64, 0) == 0 && mprotect(at, page, PROT_READ) == 0);
    CHECK(syscall(SYS_get_mempolicy, &mode, &shown, 1024, at, OF_ADDRESS) == 0 && mode == INTERLEAVE && shown == 1);
    CHECK(FAILS(syscall(SYS_mbind, at, page, BIND, &none, 64, 0), EINVAL));
    CHECK(syscall(SYS_mbind, at, 4 * page, DEFAULT, NULL, 0, 0) == 0);
    CHECK(syscall(SYS_get_mempolicy, &mode, &shown, 1024, at, OF_ADDRESS) == 0 && mode == DEFAULT && shown == 0);
    CHECK(munmap(at, 4 * page) == 0 && FAILS(syscall(SYS_mbind, at, page, BIND, &node, 64, 0), EFAULT));
    CHECK(FAILS(syscall(SYS_get_mempolicy, &mode, NULL, 0, at, OF_ADDRESS), EFAULT));
}

// How a process was scheduled is known until it is waited for; a child of SCHED_RESET_ON_FORK is an ordinary one.
static void zombies_say_how_they_were_scheduled(void) {
    struct sched_param parameters = { .sched_priority = 10 };
    CHECK(sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &parameters) == 0);
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    siginfo_t ended;
    CHECK(waitid(P_PID, child, &ended, WEXITED | WNOWAIT) == 0);
    CHECK(sched_getscheduler(child) == SCHED_OTHER && sched_getparam(child, &parameters) == 0 && parameters.sched_priority == 0);
    CHECK(ends_well(child) && FAILS(sched_getscheduler(child), ESRCH) && FAILS(sched_getparam(child, &parameters), ESRCH));
    CHECK(sched_setscheduler(0, SCHED_OTHER, &parameters) == 0);
}

// An interface that is up is told to be: rtnetlink(7).
static void interfaces_can_be_told_to_be_as_they_are(void) {
    struct {
        struct nlmsghdr header;
        struct ifinfomsg info;
    } request = { { sizeof request, RTM_NEWLINK, NLM_F_REQUEST | NLM_F_ACK, 1, 0 }, { .ifi_index = 1, .ifi_flags = IFF_UP, .ifi_change = IFF_UP } };
    struct {
        struct nlmsghdr header;
        struct nlmsgerr error;
    } reply;
    int s = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
    CHECK(s >= 0 && send(s, &request, sizeof request, 0) == sizeof request);
    CHECK(recv(s, &reply, sizeof reply, 0) >= (long)sizeof reply && reply.header.nlmsg_type == NLMSG_ERROR && reply.error.error == 0);
    CHECK(close(s) == 0);
}

static void nothing_is_spliced_into_a_pidfd(void) {
    // Refused at once, although there is nothing in the pipe to wait for.
    int ends[2], process = syscall(SYS_pidfd_open, getpid(), 0);
    CHECK(process >= 0 && pipe(ends) == 0);
    alarm(20);
    CHECK(FAILS(splice(ends[0], NULL, process, NULL, 1, 0), EINVAL) && FAILS(splice(process, NULL, ends[1], NULL, 1, 0), EINVAL));
    alarm(0);
    CHECK(close(process) == 0 && close(ends[0]) == 0 && close(ends[1]) == 0);
}

static long text_to(const char *path, const char *text) {
    int fd = open(path, O_WRONLY);
    CHECK(fd >= 0);
    long written = write(fd, text, strlen(text));
    int error = errno;
    close(fd);
    errno = error;
    return written;
}

static void is_text(const char *path, const char *text) {
    char buffer[64] = "";
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0 && read(fd, buffer, sizeof buffer - 1) > 0 && close(fd) == 0);
    CHECK(strcmp(buffer, text) == 0);
}

static const char *const printk = "/proc/sys/kernel/printk";
enum { CONSOLE_OFF = 6, CONSOLE_ON = 7, CONSOLE_LEVEL = 8 };

static void levels_of_the_log_are_set(void) {
    char before[64] = "";
    int fd = open(printk, O_RDONLY);
    CHECK(fd >= 0 && read(fd, before, sizeof before - 1) > 0 && close(fd) == 0);
    CHECK(text_to(printk, "7 4 1 7") == 7);
    is_text(printk, "7\t4\t1\t7\n");
    CHECK(syscall(SYS_syslog, CONSOLE_LEVEL, NULL, 5) == 0);
    is_text(printk, "5\t4\t1\t7\n");
    // Switched off twice, it comes back as it was before both.
    CHECK(syscall(SYS_syslog, CONSOLE_OFF, NULL, 0) == 0 && syscall(SYS_syslog, CONSOLE_OFF, NULL, 0) == 0);
    is_text(printk, "1\t4\t1\t7\n");
    CHECK(syscall(SYS_syslog, CONSOLE_ON, NULL, 0) == 0);
    is_text(printk, "5\t4\t1\t7\n");
    CHECK(syscall(SYS_syslog, CONSOLE_ON, NULL, 0) == 0);
    is_text(printk, "5\t4\t1\t7\n");
    // No level below the least.
    CHECK(text_to(printk, "6 4 3") == 5 && syscall(SYS_syslog, CONSOLE_LEVEL, NULL, 2) == 0);
    is_text(printk, "3\t4\t3\t7\n");
    CHECK(FAILS(syscall(SYS_syslog, CONSOLE_LEVEL, NULL, 0), EINVAL) && FAILS(syscall(SYS_syslog, CONSOLE_LEVEL, NULL, 9), EINVAL));
    CHECK(FAILS(text_to(printk, "loud"), EINVAL) && text_to(printk, before) > 0);
    is_text(printk, before);
}

static void a_network_has_a_tag_of_its_own(void) {
    static const char *const tag = "/proc/sys/net/ipv4/conf/lo/tag";
    CHECK(text_to(tag, "12") == 2);
    is_text(tag, "12\n");
    pid_t child = fork();
    if (child == 0) {
        CHECK(unshare(CLONE_NEWNET) == 0);
        is_text(tag, "0\n");
        CHECK(text_to(tag, "-7\n") == 3);
        is_text(tag, "-7\n");
        exit(0);
    }
    CHECK(ends_well(child));
    is_text(tag, "12\n");
    is_text("/proc/sys/net/ipv4/conf/default/tag", "0\n");
    CHECK(FAILS(text_to(tag, "one"), EINVAL) && text_to(tag, "0") == 1);
}

// Whether a line of /proc/self/maps is about just these addresses.
static int is_mapping(char *start, char *end) {
    char line[256], *from, *to;
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps);
    while (fgets(line, sizeof line, maps)) found |= sscanf(line, "%p-%p ", (void **)&from, (void **)&to) == 2 && from == start && to == end;
    fclose(maps);
    return found;
}

static char *map_at(char *at, size_t length) {
    return mmap(at, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

static void mappings_of_both_sides_of_a_fork_are_apart(void) {
    enum { LENGTH = 3 * 4096 };
    char *at = mmap(NULL, 5 * LENGTH, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    char *first = at + LENGTH, *second = first + LENGTH, *end = second + LENGTH;
    CHECK(map_at(first, LENGTH) == first);
    first[0] = 1;
    pid_t child = fork();
    if (child == 0) {
        first[0] = 2;
        CHECK(map_at(second, LENGTH) == second);
        CHECK(is_mapping(first, second) && is_mapping(second, end));
        // What was one mapping before is one again when its rights are.
        CHECK(mprotect(first, 4096, PROT_READ) == 0 && is_mapping(first, first + 4096) && is_mapping(first + 4096, second));
        CHECK(mprotect(first, 4096, PROT_READ | PROT_WRITE) == 0 && is_mapping(first, second));
        exit(0);
    }
    CHECK(ends_well(child));
    // The other side has pages of its own alone.
    CHECK(map_at(second, LENGTH) == second && is_mapping(first, end) && munmap(at, 5 * LENGTH) == 0);
}

static void is_up(int fd, int expected) {
    struct ifreq request = {.ifr_name = "lo"};
    CHECK(ioctl(fd, SIOCGIFFLAGS, &request) == 0 && !(request.ifr_flags & IFF_UP) == !expected);
}

static void loopback_is_switched_on_by_an_ioctl(void) {
    pid_t child = fork();
    if (child == 0) {
        CHECK(unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0);
        int fd = socket(AF_INET, SOCK_DGRAM, 0);
        struct ifreq request = {.ifr_name = "lo"};
        struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(7), .sin_addr = {htonl(INADDR_LOOPBACK)}};
        CHECK(fd >= 0 && FAILS(connect(fd, (void *)&to, sizeof to), ENETUNREACH));
        is_up(fd, 0);
        request.ifr_flags = IFF_UP;
        CHECK(ioctl(fd, SIOCSIFFLAGS, &request) == 0);
        is_up(fd, 1);
        CHECK(connect(fd, (void *)&to, sizeof to) == 0);
        request.ifr_flags = 0;
        CHECK(ioctl(fd, SIOCSIFFLAGS, &request) == 0);
        is_up(fd, 0);
        exit(0);
    }
    CHECK(ends_well(child));
}

// The names of RFC 2292, beside those of RFC 3542.
static void messages_of_ipv6_have_their_old_names_too(void) {
    enum { OLD_INFORMATION = 2, OLD_HOP_LIMIT = 8 };
    int from = socket(AF_INET6, SOCK_DGRAM, 0), to = socket(AF_INET6, SOCK_DGRAM, 0), one = 1, hops = 7;
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    socklen_t length = sizeof address;
    CHECK(from >= 0 && to >= 0 && bind(to, (void *)&address, length) == 0 && getsockname(to, (void *)&address, &length) == 0);
    CHECK(setsockopt(to, IPPROTO_IPV6, OLD_INFORMATION, &one, sizeof one) == 0 && setsockopt(to, IPPROTO_IPV6, OLD_HOP_LIMIT, &one, sizeof one) == 0);
    CHECK(setsockopt(to, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, &one, sizeof one) == 0);
    char byte, control[CMSG_SPACE(sizeof hops)] = "", received[256];
    struct iovec piece = {&byte, 1};
    struct msghdr message = {&address, sizeof address, &piece, 1, control, sizeof control, 0};
    *CMSG_FIRSTHDR(&message) = (struct cmsghdr){CMSG_LEN(sizeof hops), IPPROTO_IPV6, OLD_HOP_LIMIT};
    memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), &hops, sizeof hops);
    CHECK(sendmsg(from, &message, 0) == 1);
    message = (struct msghdr){NULL, 0, &piece, 1, received, sizeof received, 0};
    CHECK(recvmsg(to, &message, 0) == 1);
    struct cmsghdr *of = CMSG_FIRSTHDR(&message);
    CHECK(of && of->cmsg_level == IPPROTO_IPV6 && of->cmsg_type == IPV6_HOPLIMIT && *(int *)CMSG_DATA(of) == hops);
    of = CMSG_NXTHDR(&message, of);
    CHECK(of && of->cmsg_type == OLD_INFORMATION && of->cmsg_len == CMSG_LEN(20) && *(int *)(CMSG_DATA(of) + 16) == 1);
    CHECK(memcmp(CMSG_DATA(of), &address.sin6_addr, 16) == 0);
    of = CMSG_NXTHDR(&message, of);
    CHECK(of && of->cmsg_type == OLD_HOP_LIMIT && *(int *)CMSG_DATA(of) == hops && !CMSG_NXTHDR(&message, of));
    CHECK(close(from) == 0 && close(to) == 0);
}

static void a_second_that_has_begun_counts_in_sysinfo(void) {
    struct sysinfo info;
    double before, after;
    FILE *uptime = fopen("/proc/uptime", "r");
    CHECK(uptime && fscanf(uptime, "%lf", &before) == 1 && sysinfo(&info) == 0 && freopen("/proc/uptime", "r", uptime) && fscanf(uptime, "%lf", &after) == 1);
    CHECK(info.uptime >= before && info.uptime <= after + 1 && fclose(uptime) == 0);
}

int main(void) {
    // A file system in memory, which every Linux has there.
    char directory[] = "/dev/shm/likenessXXXXXX";
    CHECK(mkdtemp(directory) && chdir(directory) == 0);
    immutable_files_stay_as_they_are();
    append_only_files_grow();
    flags_of_directories_hold_for_their_names();
    flags_are_shown_and_guarded();
    pages_of_pipes_are_counted_for_each_user();
    connections_can_be_governed_by_reno();
    leases_are_among_the_locks();
    mappings_have_policies();
    zombies_say_how_they_were_scheduled();
    interfaces_can_be_told_to_be_as_they_are();
    nothing_is_spliced_into_a_pidfd();
    levels_of_the_log_are_set();
    a_network_has_a_tag_of_its_own();
    mappings_of_both_sides_of_a_fork_are_apart();
    a_second_that_has_begun_counts_in_sysinfo();
    loopback_is_switched_on_by_an_ioctl();
    messages_of_ipv6_have_their_old_names_too();
    CHECK(chdir("/") == 0 && rmdir(directory) == 0);
    puts("all likeness tests of LTP passed");
}
