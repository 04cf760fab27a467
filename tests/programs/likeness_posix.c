// SPDX-License-Identifier: Apache-2.0 OR MIT
// What the Open POSIX Test Suite and the later part of gVisor's system-call tests ask for, in which this kernel once differed from
// Linux (docs/reference/conformance.md).
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/magic.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#define FAILS(call, error) (errno = 0, (call) == -1 && errno == (error))
#define NOBODY 65534
#ifndef MSG_COPY
#define MSG_COPY 040000
#endif

static char directory[] = "/tmp/likeness-XXXXXX";

static int ends_well(pid_t child) {
    int status;
    return waitpid(child, &status, 0) == child && status == 0;
}

static int is_before(struct timespec a, struct timespec b) {
    return a.tv_sec < b.tv_sec || (a.tv_sec == b.tv_sec && a.tv_nsec < b.tv_nsec);
}

static struct stat stat_of(const char *path) {
    struct stat stat;
    CHECK(lstat(path, &stat) == 0);
    return stat;
}

// Puts the times of a file, and of a link itself, into the past.
static void age(const char *path) {
    struct timespec past[2] = {{.tv_sec = 1000}, {.tv_sec = 2000}};
    CHECK(utimensat(AT_FDCWD, path, past, AT_SYMLINK_NOFOLLOW) == 0);
}

static sem_t handled;
static atomic_int stop, sent;

static void posts(int signal) {
    (void)signal;
    sem_post(&handled);
}

// Sends the process the next signal as soon as the last one was handled.
static void *sends(void *unused) {
    sigset_t own;
    sigemptyset(&own), sigaddset(&own, SIGUSR1);
    CHECK(pthread_sigmask(SIG_BLOCK, &own, 0) == 0);
    while (!stop) {
        while (sem_wait(&handled) == -1)
            CHECK(errno == EINTR);
        CHECK(kill(getpid(), SIGUSR1) == 0);
        sent++;
    }
    return unused;
}

// Two threads send signals to a third one, which is on another processor, faster than that is interrupted: a machine that is a
// process of its host ran out of the stack of its own signals, and ended.
static void a_storm_of_signals_between_processors_passes(void) {
    struct sigaction action = {.sa_handler = posts};
    CHECK(sem_init(&handled, 0, 2) == 0 && sigaction(SIGUSR1, &action, 0) == 0);
    pthread_t senders[2];
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(senders + i, 0, sends, 0) == 0);
    while (sent < 100000)
        CHECK(pthread_kill(pthread_self(), SIGUSR1) == 0);
    stop = 1;
    sem_post(&handled), sem_post(&handled);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(senders[i], 0) == 0);
    signal(SIGUSR1, SIG_IGN);
}

static atomic_int exceeded;

static void counts(int signal) {
    (void)signal;
    exceeded++;
}

// A limit of processor time is a child's as well, which has used nothing of it; one that is reached when it is set is told of before
// the caller goes on to wait.
static void limits_of_processor_time_are_inherited(void) {
    pid_t child = fork();
    if (child == 0) {
        struct sigaction action = {.sa_handler = counts};
        CHECK(sigaction(SIGXCPU, &action, 0) == 0);
        CHECK(setrlimit(RLIMIT_CPU, &(struct rlimit){1, 2}) == 0);
        pid_t grandchild = fork();
        if (grandchild == 0) {
            signal(SIGXCPU, SIG_DFL);
            for (;;)
                ;
        }
        int status;
        siginfo_t info;
        CHECK(waitid(P_PID, grandchild, &info, WEXITED | WNOWAIT) == 0 && exceeded == 0);
        CHECK(waitpid(grandchild, &status, 0) == grandchild);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU);
        exit(0);
    }
    CHECK(ends_well(child));
}

// Bytes of a message that do not fit are cut off by MSG_NOERROR, but not off a copy.
static void a_copy_of_a_message_is_whole(void) {
    struct {
        long type;
        char text[8];
    } message = {1, "seven.."};
    int queue = msgget(IPC_PRIVATE, 0600);
    CHECK(queue >= 0 && msgsnd(queue, &message, 8, 0) == 0);
    int copy = MSG_COPY | IPC_NOWAIT;
    // Linux has it with CONFIG_CHECKPOINT_RESTORE alone.
    if (msgrcv(queue, &message, 8, 0, copy) == 8) {
        CHECK(FAILS(msgrcv(queue, &message, 7, 0, copy), E2BIG));
        CHECK(FAILS(msgrcv(queue, &message, 7, 0, copy | MSG_NOERROR), EINVAL));
    }
    CHECK(msgrcv(queue, &message, 7, 0, MSG_NOERROR) == 7);
    CHECK(msgctl(queue, IPC_RMID, 0) == 0);
}

static void nothing_can_be_written_to_what_is_sealed(void) {
    int fd = memfd_create("sealed", MFD_ALLOW_SEALING);
    CHECK(fd >= 0 && write(fd, "text", 4) == 4 && fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == 0);
    CHECK(FAILS(write(fd, "more", 4), EPERM) && FAILS(pwrite(fd, "more", 1, 0), EPERM));
    CHECK(write(fd, "", 0) == 0 && pwrite(fd, "", 0, 2) == 0);
    close(fd);
    // Nor does it change a time.
    fd = open("file", O_CREAT | O_RDWR | O_TRUNC, 0644);
    CHECK(fd >= 0 && write(fd, "text", 4) == 4);
    age("file");
    CHECK(write(fd, "", 0) == 0 && stat_of("file").st_mtim.tv_sec == 2000);
    CHECK(fcntl(fd, F_SETFL, O_APPEND) == 0 && write(fd, "", 0) == 0 && stat_of("file").st_mtim.tv_sec == 2000);
    close(fd);
}

// Following a link and mapping a file are accesses; a mapping that is written modifies its file.
static void times_tell_of_links_and_mappings(void) {
    int fd = open("file", O_CREAT | O_RDWR | O_TRUNC, 0644);
    CHECK(fd >= 0 && ftruncate(fd, 4096) == 0 && symlink("file", "link") == 0);
    age("link");
    stat_of("link");
    CHECK(stat_of("link").st_atim.tv_sec == 1000);
    int through = open("link", O_RDONLY);
    CHECK(through >= 0 && close(through) == 0 && stat_of("link").st_atim.tv_sec > 2000);
    char text[8];
    age("link");
    CHECK(readlink("link", text, sizeof text) == 4 && stat_of("link").st_atim.tv_sec > 2000);

    age("file");
    struct timespec changed = stat_of("file").st_ctim;
    char *bytes = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(bytes != MAP_FAILED && stat_of("file").st_atim.tv_sec > 2000);
    CHECK(stat_of("file").st_mtim.tv_sec == 2000);
    // Clocks of files may stand still for a tick.
    usleep(20000);
    bytes[0] = 1;
    CHECK(msync(bytes, 4096, MS_SYNC) == 0);
    CHECK(stat_of("file").st_mtim.tv_sec > 2000 && is_before(changed, stat_of("file").st_ctim));
    CHECK(munmap(bytes, 4096) == 0 && close(fd) == 0);
}

// Entries of an access list: version 2, then tag, permissions and number of each.
static const unsigned char list[] = {2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 4, 0, 4, 0, 255, 255, 255, 255, 32, 0, 4, 0, 255, 255, 255, 255};

static void lists_that_are_taken_away(void) {
    if (geteuid() != 0)
        return;
    int fd = open("listed", O_CREAT | O_RDWR, 0600);
    CHECK(fd >= 0 && close(fd) == 0);
    if (setxattr("listed", "system.posix_acl_access", list, sizeof list, 0) == -1) {
        CHECK(errno == EOPNOTSUPP);
        return;
    }
    // Of a list that only directories have everybody may say that it is to go.
    pid_t child = fork();
    if (child == 0) {
        CHECK(setgroups(0, 0) == 0 && setresgid(NOBODY, NOBODY, NOBODY) == 0 && setresuid(NOBODY, NOBODY, NOBODY) == 0);
        CHECK(removexattr("listed", "system.posix_acl_default") == 0);
        CHECK(FAILS(removexattr("listed", "system.posix_acl_access"), EPERM));
        CHECK(FAILS(setxattr("listed", "system.posix_acl_default", list, sizeof list, 0), EACCES));
        exit(0);
    }
    CHECK(ends_well(child));
    // On tmpfs the set-group-ID bit goes with the list, unless the owner is in the group.
    struct statfs fs;
    CHECK(statfs("listed", &fs) == 0);
    if (fs.f_type == TMPFS_MAGIC) {
        CHECK(chown("listed", NOBODY, 0) == 0 && chmod("listed", 02750) == 0);
        CHECK(removexattr("listed", "system.posix_acl_access") == 0 && stat_of("listed").st_mode & S_ISGID);
        child = fork();
        if (child == 0) {
            CHECK(setgroups(0, 0) == 0 && setresgid(NOBODY, NOBODY, NOBODY) == 0 && setresuid(NOBODY, NOBODY, NOBODY) == 0);
            CHECK(removexattr("listed", "system.posix_acl_access") == 0);
            exit(0);
        }
        CHECK(ends_well(child) && (stat_of("listed").st_mode & 07777) == 0750);
    }
    unlink("listed");
}

// A read of a stream takes what was sent before a descriptor and the bytes that came with it, and ends there.
static void a_read_ends_behind_a_descriptor(void) {
    int pair[2], fd = open("/dev/null", O_RDONLY);
    CHECK(fd >= 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    union {
        char bytes[CMSG_SPACE(sizeof fd)];
        struct cmsghdr header;
    } control = {0};
    struct iovec with = {"with", 4};
    struct msghdr message = {.msg_iov = &with, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    control.header.cmsg_level = SOL_SOCKET, control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
    CHECK(write(pair[0], "before", 6) == 6 && sendmsg(pair[0], &message, 0) == 4 && write(pair[0], "after", 5) == 5);
    char text[32];
    struct iovec room = {text, sizeof text};
    message.msg_iov = &room, message.msg_controllen = sizeof control, memset(&control, 0, sizeof control);
    CHECK(recvmsg(pair[1], &message, 0) == 10 && memcmp(text, "beforewith", 10) == 0);
    CHECK(message.msg_controllen >= CMSG_LEN(sizeof fd) && control.header.cmsg_type == SCM_RIGHTS);
    memcpy(&fd, CMSG_DATA(&control.header), sizeof fd);
    CHECK(close(fd) == 0 && read(pair[1], text, sizeof text) == 5);
    close(pair[0]), close(pair[1]);
}

static void numbers_of_clocks_and_kinds_of_mappings_are_checked_first(void) {
    struct timespec time = {.tv_sec = 1037128358};
    static const int unknown[] = {INT_MIN, INT_MAX, -2147483647, -1073743192, 1073743192, -1, 50};
    for (unsigned i = 0; i < sizeof unknown / sizeof *unknown; i++)
        CHECK(FAILS(clock_settime(unknown[i], &time), EINVAL));
    // The own processor time, by the number of the process.
    CHECK(FAILS(clock_settime((~getpid() << 3) | 2, &time), EPERM));
    int fd = open("file", O_CREAT | O_RDWR, 0644);
    CHECK(fd >= 0 && FAILS((long)mmap(0, 1024, PROT_READ, ~0, fd, 0), EINVAL));
    CHECK(FAILS((long)mmap(0, 4096, PROT_READ, MAP_SHARED | MAP_HUGETLB, fd, 0), EINVAL));
    CHECK(FAILS((long)mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | 5 << MAP_HUGE_SHIFT, -1, 0), EINVAL));
    close(fd);
}

int main(void) {
    CHECK(mkdtemp(directory) && chmod(directory, 0755) == 0 && chdir(directory) == 0);
    a_storm_of_signals_between_processors_passes();
    limits_of_processor_time_are_inherited();
    a_copy_of_a_message_is_whole();
    nothing_can_be_written_to_what_is_sealed();
    times_tell_of_links_and_mappings();
    lists_that_are_taken_away();
    a_read_ends_behind_a_descriptor();
    numbers_of_clocks_and_kinds_of_mappings_are_checked_first();
    unlink("link"), unlink("file"), rmdir(directory);
    puts("all likeness tests of POSIX passed");
    return 0;
}
