// SPDX-License-Identifier: Apache-2.0 OR MIT
// Objects of the kernel, one kind after the other, each made by a child until the kernel refuses: whoever makes them is
// refused, or ended for want of memory. usage: objects [kind...]
#define _GNU_SOURCE
#include "cases.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

// A call that makes one more: below zero, with errno, when it is refused.
typedef int maker(void);

static char block[64 << 10];

static int tcp(void) { return socket(AF_INET, SOCK_STREAM, 0); }
static int udp(void) { return socket(AF_INET, SOCK_DGRAM, 0); }
static int events(void) { return eventfd(0, 0); }
static int paths(void) { return open("/tmp", O_PATH); }

static int signals(void) {
    sigset_t all;
    sigfillset(&all);
    return signalfd(-1, &all, 0);
}

static int clocks(void) {
    int fd = timerfd_create(CLOCK_MONOTONIC, 0);
    struct itimerspec hour = { { 3600, 0 }, { 3600, 0 } };
    return fd < 0 ? fd : timerfd_settime(fd, 0, &hour, NULL);
}

// Epolls that watch the same ready files.
static int epolls(void) {
    static int watched[16];
    struct epoll_event event = { EPOLLIN | EPOLLOUT, { 0 } };
    int epoll = epoll_create1(0);
    for (int i = 0; i < 16 && epoll >= 0; i++) {
        if (!watched[i])
            watched[i] = eventfd(1, 0);
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, watched[i], &event))
            return -1;
    }
    return epoll;
}

// Answers of the kernel that nobody reads.
static int netlink(void) {
    struct {
        struct nlmsghdr header;
        struct rtgenmsg family;
    } dump = { { sizeof dump, RTM_GETLINK, NLM_F_REQUEST | NLM_F_DUMP, 1, 0 }, { AF_UNSPEC } };
    int fd = socket(AF_NETLINK, SOCK_RAW, 0), most = 5000;
    while (fd >= 0 && most-- > 0 && send(fd, &dump, sizeof dump, MSG_DONTWAIT) > 0)
        ;
    return fd;
}

static int datagrams(void) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, ends))
        return -1;
    while (send(ends[0], block, 8192, 0) > 0)
        ;
    return 0;
}

// Datagrams of a byte to oneself.
static int loopback(void) {
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (void *)&address, length) || getsockname(fd, (void *)&address, &length))
        return -1;
    for (int i = 0; i < 1000 && sendto(fd, "x", 1, 0, (void *)&address, length) > 0; i++)
        ;
    return fd;
}

static int named(void) {
    struct sockaddr_un any = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    return fd < 0 ? fd : bind(fd, (void *)&any, sizeof any.sun_family);
}

static int groups(void) {
    static int fd, count;
    if (count % 20 == 0 && (fd = socket(AF_INET, SOCK_DGRAM, 0)) < 0)
        return -1;
    struct ip_mreqn request = { { htonl(0xe1000000 + count++) }, { htonl(INADDR_LOOPBACK) }, 0 };
    return setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &request, sizeof request);
}

// Both sides of a pseudo-terminal with output that nobody reads.
static int terminals(void) {
    int master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK), number, zero = 0;
    if (master < 0 || ioctl(master, TIOCSPTLCK, &zero) || ioctl(master, TIOCGPTN, &number))
        return -1;
    char name[32];
    snprintf(name, sizeof name, "/dev/pts/%d", number);
    int slave = open(name, O_RDWR | O_NOCTTY | O_NONBLOCK);
    if (slave < 0)
        return -1;
    // What the master has no room for is looked at and thrown away as long as no line has ended: more rounds cost only time.
    for (int i = 0; i < 4; i++)
        if (write(slave, block, 4096) < 0 && write(master, block, 4096) < 0)
            break;
    return 0;
}

static int watches(void) {
    int fd = inotify_init1(IN_NONBLOCK);
    return fd < 0 || inotify_add_watch(fd, "/tmp", IN_ALL_EVENTS) < 0 ? -1 : 0;
}

static int links(void) {
    static int count;
    char name[32];
    if (count == 0)
        close(open("/tmp/objects/file", O_CREAT | O_RDWR, 0600));
    snprintf(name, sizeof name, "/tmp/objects/%d", count++);
    return link("/tmp/objects/file", name);
}

static int attributes(void) {
    static int count;
    char name[32];
    snprintf(name, sizeof name, "/tmp/objects/%d", count++);
    int fd = open(name, O_CREAT | O_RDWR, 0600);
    if (fd < 0 || close(fd))
        return -1;
    return setxattr(name, "user.a", block, 60000, 0);
}

static int messages(void) {
    int id = msgget(IPC_PRIVATE, IPC_CREAT | 0600);
    struct {
        long kind;
        char text[1];
    } message = { 1, { 0 } };
    while (id >= 0 && msgsnd(id, &message, 0, IPC_NOWAIT) == 0)
        ;
    return id;
}

static int semaphores(void) {
    int id = semget(IPC_PRIVATE, 250, IPC_CREAT | 0600);
    for (int i = 0; i < 250 && id >= 0; i++) {
        struct sembuf up = { i, 1, SEM_UNDO };
        if (semop(id, &up, 1))
            return -1;
    }
    return id;
}

static int timers(void) {
    timer_t timer;
    struct sigevent event = { .sigev_notify = SIGEV_NONE };
    return timer_create(CLOCK_MONOTONIC, &event, &timer);
}

// Pieces of one mapping, cut by what each of these calls changes.
static char *piece(void) {
    static char *start;
    static size_t at;
    if (!start)
        start = mmap(NULL, 1UL << 36, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(start != MAP_FAILED);
    return start + (at += 8192);
}

static int protections(void) { return mprotect(piece(), 4096, PROT_NONE); }
static int holes(void) { return munmap(piece(), 4096); }
static int advice(void) { return madvise(piece(), 4096, MADV_DONTFORK); }

static int locks(void) {
    char *at = piece();
    static int is_hidden;
    // Nothing is to be read in.
    if (!is_hidden++ && mprotect(at - 8192, 1UL << 35, PROT_NONE))
        return -1;
    return mlock(at, 4096) && errno != ENOMEM ? -1 : munlock(at + 4096, 4096);
}

static int shared(void) {
    char *at = mmap(NULL, 4096, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? -1 : 0;
}

// Messages with descriptors that nobody ever fetches.
static int in_flight(void) {
    int ends[2], sent[250];
    if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, ends))
        return -1;
    for (int i = 0; i < 250; i++)
        sent[i] = 0;
    char control[CMSG_SPACE(sizeof sent)];
    struct iovec byte = { block, 1 };
    struct msghdr message = { .msg_iov = &byte, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS, header->cmsg_len = CMSG_LEN(sizeof sent);
    memcpy(CMSG_DATA(header), sent, sizeof sent);
    return sendmsg(ends[0], &message, 0) < 0 ? -1 : 0;
}

static int processes(void) {
    int pid = fork();
    if (pid == 0)
        for (;;)
            pause();
    return pid;
}

#define KIND(name) { #name, name }
static const struct {
    const char *name;
    maker *make;
} kinds[] = {
    KIND(tcp), KIND(udp), KIND(events), KIND(paths), KIND(signals), KIND(clocks), KIND(epolls), KIND(netlink),
    KIND(datagrams), KIND(loopback), KIND(named), KIND(groups), KIND(terminals), KIND(watches), KIND(links),
    KIND(attributes), KIND(messages), KIND(semaphores), KIND(timers), KIND(protections), KIND(holes), KIND(advice),
    KIND(locks), KIND(shared), KIND(in_flight), KIND(processes),
};

// More of a kind than a small machine has memory for; what costs the kernel nothing ends there.
enum { MOST = 40000 };

// What outlives whoever made it.
static void clear(void) {
    for (int i = 0; i < MOST; i++) {
        char name[32];
        snprintf(name, sizeof name, "/tmp/objects/%d", i);
        if (unlink(name))
            break;
    }
    unlink("/tmp/objects/file");
    struct msginfo queues;
    for (int i = msgctl(0, MSG_INFO, (void *)&queues); i >= 0; i--) {
        struct msqid_ds state;
        msgctl(msgctl(i, MSG_STAT, &state), IPC_RMID, NULL);
    }
    struct seminfo sets;
    for (int i = semctl(0, 0, SEM_INFO, &sets); i >= 0; i--) {
        struct semid_ds state;
        semctl(semctl(i, 0, SEM_STAT, &state), 0, IPC_RMID);
    }
}

// What a kind took is pages for programs again when those who had it made are gone. Grandchildren that were killed end in their
// own time, and the kernel gives memory back at the end of a process.
static void comes_back(const char *name, long before) {
    for (int tries = 0; free_kib() < before / 2; tries++) {
        if (tries == 500)
            printf("%s: %ld KiB of %ld are free\n", name, free_kib(), before);
        CHECK(tries < 500);
        int pid = fork();
        if (pid == 0)
            _exit(0);
        waitpid(pid, NULL, 0);
        usleep(10000);
    }
}

// A child makes objects of the kind until it is refused; its answer is the errno, 0 when it never was.
static void exhaust(maker *make, const char *name) {
    int group = fork(), status;
    CHECK(group >= 0);
    if (group == 0) {
        setpgid(0, 0);
        for (int i = 0; i < MOST; i++)
            if (make() < 0)
                _exit(errno);
        _exit(0);
    }
    CHECK(waitpid(group, &status, 0) == group);
    kill(-group, SIGKILL);
    static const int refusals[] = { 0, ENOMEM, ENOBUFS, ENFILE, EMFILE, ENOSPC, EAGAIN, EADDRINUSE, ETOOMANYREFS };
    int is_refusal = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    for (unsigned i = 0; i < sizeof refusals / sizeof *refusals && WIFEXITED(status); i++)
        is_refusal |= WEXITSTATUS(status) == refusals[i];
    printf("%s: %s %d\n", name, WIFEXITED(status) ? "errno" : "signal", WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
    CHECK(is_refusal);
}

int main(int count, char **names) {
    struct rlimit files = { 1 << 20, 1 << 20 }, none = { RLIM_INFINITY, RLIM_INFINITY };
    setrlimit(RLIMIT_NOFILE, &files);
    setrlimit(RLIMIT_MEMLOCK, &none);
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGPIPE, SIG_IGN);
    mkdir("/tmp", 01777);
    CHECK(mkdir("/tmp/objects", 0700) == 0 || errno == EEXIST);
    memset(block, 'x', sizeof block);
    long before = free_kib();
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!is_named(kinds[i].name, count, names))
            continue;
        exhaust(kinds[i].make, kinds[i].name);
        clear();
        comes_back(kinds[i].name, before);
    }
    printf("all object tests passed\n");
    return 0;
}
