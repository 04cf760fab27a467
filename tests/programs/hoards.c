// SPDX-License-Identifier: Apache-2.0 OR MIT
// A process makes as many objects of a kind as it can, and ends: calls fail before the machine does, and its memory is back afterwards. One kind after the
// other. usage: hoards [kind]. For a machine with little memory; on Linux few of these have a bound but memory, so it makes fewer there.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/if_packet.h>
#include <linux/rtnetlink.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <netinet/in.h>
#include <time.h>
#include <unistd.h>

static int most;

// Each makes number `i` of its kind; 0 when that failed.

static int mounts(int i) { return i < 100000 && mount("x", "/tmp/hoard", "tmpfs", 0, "size=64k") == 0; }
static int binds(int i) { return i < 100000 && mount("/tmp", "/tmp/hoard", NULL, MS_BIND, NULL) == 0; }

// A namespace that only a descriptor keeps.
static int kept(int flag, const char *file) { return unshare(flag) == 0 && open(file, O_RDONLY | O_CLOEXEC) >= 0; }
static int mount_namespaces(int i) { return i < most && kept(CLONE_NEWNS, "/proc/self/ns/mnt"); }
static int uts_namespaces(int i) { return i < most && kept(CLONE_NEWUTS, "/proc/self/ns/uts"); }
static int ipc_namespaces(int i) { return i < most && kept(CLONE_NEWIPC, "/proc/self/ns/ipc"); }
static int network_namespaces(int i) { return i < most && kept(CLONE_NEWNET, "/proc/self/ns/net"); }
static int cgroup_namespaces(int i) { return i < most && kept(CLONE_NEWCGROUP, "/proc/self/ns/cgroup"); }

static int pid_namespaces(int i) {
    static pid_t children[100000];
    children[i] = syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0);
    if (children[i] == 0)
        _exit(0);
    char path[32];
    sprintf(path, "/proc/%d/ns/pid", children[i]);
    int is_made = children[i] > 0 && open(path, O_RDONLY | O_CLOEXEC) >= 0;
    return is_made && waitpid(children[i], NULL, 0) == children[i];
}

static int user_namespaces(int i) {
    (void)i;
    pid_t child = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        pause();
        _exit(0);
    }
    char path[32];
    sprintf(path, "/proc/%d/ns/user", child);
    int is_made = child > 0 && open(path, O_RDONLY | O_CLOEXEC) >= 0;
    return child > 0 && kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child && is_made;
}

static int sockets_of_all_kinds(int i) {
    static const int kinds[][3] = {
        {AF_INET, SOCK_STREAM, 0}, {AF_INET, SOCK_DGRAM, 0}, {AF_INET6, SOCK_DGRAM, 0}, {AF_UNIX, SOCK_STREAM, 0}, {AF_INET, SOCK_RAW, 1}, {AF_NETLINK, SOCK_RAW, 0},
    };
    const int *kind = kinds[i % 6];
    return socket(kind[0], kind[1], kind[2]) >= 0;
}

static int filters(int i) {
    static struct sock_filter program[1000];
    for (int k = 0; k < 999; k++)
        program[k] = (struct sock_filter){BPF_LD | BPF_W | BPF_ABS, 0, 0, 0};
    program[999] = (struct sock_filter){BPF_RET | BPF_K, 0, 0, 0xffff};
    struct sock_fprog filter = {1000, program};
    int s = socket(i % 2 ? AF_INET : AF_UNIX, SOCK_DGRAM, 0);
    return s >= 0 && setsockopt(s, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) == 0;
}

static int seccomp_filters(int i) {
    (void)i;
    static struct sock_filter program[400];
    for (int k = 0; k < 399; k++)
        program[k] = (struct sock_filter){BPF_LD | BPF_W | BPF_ABS, 0, 0, 0};
    program[399] = (struct sock_filter){BPF_RET | BPF_K, 0, 0, 0x7fff0000};
    struct sock_fprog filter = {400, program};
    return prctl(PR_SET_SECCOMP, 2, &filter) == 0;
}

static int packet_rings(int i) {
    (void)i;
    int s = socket(AF_PACKET, SOCK_RAW, htons(3));
    struct tpacket_req ring = {1 << 16, 16, 2048, (1 << 16) / 2048 * 16};
    return s >= 0 && setsockopt(s, SOL_PACKET, PACKET_RX_RING, &ring, sizeof ring) == 0;
}

static int unread_datagrams(int i) {
    static int ends[2];
    static char bytes[60000];
    if (i % 2 == 0 && socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) != 0)
        return 0;
    while (send(ends[0], bytes, i % 4 < 2 ? 100 : sizeof bytes, MSG_DONTWAIT) > 0)
        ;
    return 1;
}

// Answers of netlink, which the kernel makes, until there is no room for more.
static int unread_answers(int i) {
    int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
    if (i >= most || fd < 0)
        return 0;
    struct {
        struct nlmsghdr header;
        struct rtgenmsg about;
    } request = {{sizeof request, RTM_GETADDR, NLM_F_REQUEST | NLM_F_DUMP, 0, 0}, {AF_UNSPEC}};
    for (int n = 0; n < 1000 && send(fd, &request, sizeof request, 0) > 0; n++)
        ;
    return 1;
}

static int pipes(int i) {
    (void)i;
    int ends[2];
    if (pipe2(ends, O_NONBLOCK) != 0)
        return 0;
    static char page[4096];
    fcntl(ends[1], F_SETPIPE_SZ, 1 << 20);
    while (write(ends[1], page, sizeof page) > 0)
        ;
    return 1;
}

static int watches(int i) {
    static int inotify = -1;
    char path[64];
    sprintf(path, "/tmp/hoard/%d", i);
    if (i % 1000 == 0)
        inotify = inotify_init1(O_NONBLOCK);
    int file = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    return file >= 0 && close(file) == 0 && inotify_add_watch(inotify, path, IN_ALL_EVENTS) >= 0;
}

static int events(int i) {
    static int inotify;
    if (i == 0) {
        inotify = inotify_init1(O_NONBLOCK);
        inotify_add_watch(inotify, "/tmp/hoard", IN_ALL_EVENTS);
    }
    char path[300];
    sprintf(path, "/tmp/hoard/%0200d", i);
    return i < 100000 && mkdir(path, 0700) == 0 && rmdir(path) == 0;
}

static int attributes(int i) {
    static char value[8000];
    char path[64];
    sprintf(path, "/tmp/hoard/%d", i);
    return mkdir(path, 0700) == 0 && setxattr(path, "trusted.x", value, sizeof value, 0) == 0;
}

static int links(int i) {
    char path[300];
    sprintf(path, "/tmp/hoard/%0200d", i);
    return symlink("/tmp/hoard/01234567890123456789012345678901234567890123456789", path) == 0;
}

static int timers(int i) {
    (void)i;
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN};
    struct itimerspec soon = {{0, 1000}, {0, 1000}};
    return timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 && timer_settime(timer, 0, &soon, NULL) == 0;
}

static int timer_descriptors(int i) {
    (void)i;
    struct itimerspec soon = {{0, 100000}, {0, 1000}};
    int fd = timerfd_create(CLOCK_MONOTONIC, 0);
    return fd >= 0 && timerfd_settime(fd, 0, &soon, NULL) == 0;
}

static int polled(int i) {
    static int epoll;
    struct epoll_event event = {.events = EPOLLIN};
    int fd = i % 100 == 0 ? (epoll = epoll_create1(0)) : eventfd(1, 0);
    return fd >= 0 && (fd == epoll || epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0);
}

static int queued_signals(int i) { return i < 1000000 && sigqueue(getpid(), SIGRTMIN + i % 20, (union sigval){i}) == 0; }
static int segments(int i) { return i < 100000 && shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600) >= 0; }
static int semaphores(int i) { return i < 100000 && semget(IPC_PRIVATE, 250, IPC_CREAT | 0600) >= 0; }

static int messages(int i) {
    struct {
        long type;
        char text[8000];
    } message = {1, ""};
    static int queue;
    if (i % 2 == 0)
        queue = msgget(IPC_PRIVATE, IPC_CREAT | 0600);
    return queue >= 0 && (msgsnd(queue, &message, sizeof message.text, IPC_NOWAIT) == 0 || errno == EAGAIN);
}

static int record_locks(int i) {
    static int file;
    if (i == 0)
        file = open("/tmp/hoard/locks", O_CREAT | O_RDWR, 0600);
    struct flock lock = {F_WRLCK, SEEK_SET, i * 2L, 1, 0};
    return i < 30000 && fcntl(file, F_SETLK, &lock) == 0;
}

static int zombies(int i) {
    (void)i;
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    return child > 0;
}

static int pidfds(int i) {
    (void)i;
    return syscall(SYS_pidfd_open, getpid(), 0) >= 0;
}

static void *waits(void *unused) {
    pause();
    return unused;
}

static int threads(int i) {
    (void)i;
    pthread_t thread;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 16384);
    return pthread_create(&thread, &small, waits, NULL) == 0;
}

static int mappings(int i) { return i < 1000000 && mmap(NULL, 4096, i % 2 ? PROT_READ : PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED; }

static int groups(int i) {
    static int s;
    if (i % 20 == 0)
        s = socket(AF_INET, SOCK_DGRAM, 0);
    struct ip_mreqn request = {{htonl(0xe1000000 + i)}, {htonl(INADDR_LOOPBACK)}, 0};
    return i < 5000 && s >= 0 && setsockopt(s, IPPROTO_IP, IP_ADD_MEMBERSHIP, &request, sizeof request) == 0;
}

static int connections(int i) {
    static int listener;
    static struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t length = sizeof address;
    static char bytes[1 << 16];
    if (i == 0) {
        listener = socket(AF_INET, SOCK_STREAM, 0);
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (bind(listener, (void *)&address, length) || listen(listener, 4096) || getsockname(listener, (void *)&address, &length))
            return 0;
    }
    int s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (s < 0 || (connect(s, (void *)&address, sizeof address) != 0 && errno != EINPROGRESS))
        return 0;
    int other = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
    while (send(s, bytes, sizeof bytes, MSG_DONTWAIT) > 0)
        ;
    return other >= 0;
}

struct kind {
    const char *name;
    int (*make)(int i);
};

static const struct kind all[] = {
    {"mounts", mounts}, {"binds", binds}, {"mount namespaces", mount_namespaces}, {"uts namespaces", uts_namespaces}, {"ipc namespaces", ipc_namespaces},
    {"network namespaces", network_namespaces}, {"cgroup namespaces", cgroup_namespaces}, {"pid namespaces", pid_namespaces},
    {"user namespaces", user_namespaces}, {"sockets", sockets_of_all_kinds}, {"filters", filters}, {"seccomp filters", seccomp_filters},
    {"packet rings", packet_rings}, {"unread datagrams", unread_datagrams}, {"unread answers", unread_answers}, {"pipes", pipes}, {"watches", watches},
    {"events", events}, {"attributes", attributes}, {"links", links}, {"timers", timers}, {"timer descriptors", timer_descriptors}, {"polled", polled},
    {"queued signals", queued_signals}, {"segments", segments}, {"semaphores", semaphores}, {"messages", messages}, {"record locks", record_locks},
    {"zombies", zombies}, {"pidfds", pidfds}, {"threads", threads}, {"mappings", mappings}, {"groups", groups}, {"connections", connections},
};

static int meminfo;

static long available(void) {
    char text[4096] = "";
    long kilobytes = -1;
    CHECK(pread(meminfo, text, sizeof text - 1, 0) > 0);
    const char *line = strstr(text, "MemAvailable:");
    CHECK(line && sscanf(line, "MemAvailable: %ld", &kilobytes) == 1);
    return kilobytes;
}

// All that the process made is in namespaces of its own, which end with it, and in a file system that nobody else has.
static int hoard(const struct kind *kind) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        sigset_t blocked;
        sigfillset(&blocked);
        sigprocmask(SIG_BLOCK, &blocked, NULL);
        CHECK(unshare(CLONE_NEWNS | CLONE_NEWIPC) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
        CHECK(mount("none", "/tmp/hoard", "tmpfs", 0, NULL) == 0);
        int made = 0;
        while (made < most && kind->make(made))
            made++;
        printf("%s: %d, then errno %d, %ld kB left\n", kind->name, made, made < most ? errno : 0, available());
        fflush(stdout);
        _exit(made > 4 || most < 1000 ? 0 : 1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    // What it left is the first process' now.
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
    return status;
}

static void touch(size_t bytes) {
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    for (size_t i = 0; i < bytes; i += 4096)
        memory[i] = 1;
    _exit(0);
}

int main(int argc, char **argv) {
    struct utsname name;
    struct rlimit limit = {100000, 100000};
    setvbuf(stdout, NULL, _IOLBF, 0);
    uname(&name);
    int is_here = strstr(name.release, "unilith") != NULL;
    most = is_here ? 100000 : 200;
    CHECK((meminfo = open("/proc/meminfo", O_RDONLY | O_CLOEXEC)) >= 0);
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        CHECK(!is_here);
    mkdir("/tmp", 0777), mkdir("/tmp/hoard", 0700);
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
        if (argc > 1 && strcmp(argv[1], all[i].name) != 0)
            continue;
        long before = available();
        for (int round = 0; round < 2; round++) {
            int status = hoard(&all[i]);
            // Killed when memory ran out, as Linux does, or ended by itself.
            CHECK(status == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
        }
        // The kernel's heap gives back what it has when a program needs pages.
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0)
            touch(is_here ? before / 4 * 3 * 1024 : 1 << 20);
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    puts("hoards: ok");
    return 0;
}
