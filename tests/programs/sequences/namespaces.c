// SPDX-License-Identifier: Apache-2.0 OR MIT
// Random sequences of calls (sequences.h) on namespaces: up to six processes, told one after another to make, enter and leave
// namespaces of all kinds, to write the maps of users, and to try what only the privileged may. Numbers of processes are told by slot,
// namespaces by the order in which they were seen first.
#include "sequences.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/nsfs.h>
#include <linux/sched.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/fsuid.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>

enum { SLOTS = 6, ROOM = 4000, SEEN = 400, ROUND = 60 };

// What all of them share: who is in which slot by the director's numbers, the state of the generator, so that the order of calls is
// one, and the namespaces that were seen.
static struct {
    uint64_t state;
    pid_t pids[SLOTS];
    // The slot of a process that was just made, or -1.
    int made;
    time_t begin;
    ino_t seen[SEEN];
    int seen_count, length;
    char text[ROOM];
} *shared;
// A pair of sockets for each slot: the director's end and the process'.
static int ends[SLOTS][2];
static int own;

static const struct {
    const char *name;
    int flag;
} kinds[] = {
    {"user", CLONE_NEWUSER}, {"uts", CLONE_NEWUTS}, {"ipc", CLONE_NEWIPC}, {"net", CLONE_NEWNET}, {"pid", CLONE_NEWPID}, {"cgroup", CLONE_NEWCGROUP}, {"time", CLONE_NEWTIME}, {"mnt", CLONE_NEWNS}, {"pid_for_children", CLONE_NEWPID}, {"time_for_children", CLONE_NEWTIME},
};

static void tell(const char *format, ...) {
    va_list list;
    va_start(list, format);
    int room = ROOM - shared->length, took = vsnprintf(shared->text + shared->length, (size_t)room, format, list);
    shared->length += took < room ? took : room - 1;
    va_end(list);
}

static void tell_answer(long result) {
    if (result < 0)
        tell(" = %s", strerrorname_np(errno));
    else
        tell(" = %ld", result);
}

// As tell_answer(), of a call that makes a descriptor, which is closed.
static void tell_opened(int file) {
    tell_answer(file < 0 ? -1 : 0);
    if (file >= 0)
        close(file);
}

static int numbered(ino_t inode) {
    for (int i = 0; i < shared->seen_count; i++)
        if (shared->seen[i] == inode)
            return i;
    if (shared->seen_count == SEEN)
        return -1;
    shared->seen[shared->seen_count] = inode;
    return shared->seen_count++;
}

static int file_of(int slot, const char *name, int flags) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", shared->pids[slot], name);
    return open(path, flags);
}

// A slot that is in use: the own one half of the time.
static int some_slot(void) {
    int slot = (int)below(SLOTS);
    return one_in(2) || shared->pids[slot] == 0 ? own : slot;
}

static int some_flags(void) {
    int flags = 0;
    for (uint32_t count = 1 + below(3); count > 0; count--)
        flags |= kinds[below(8)].flag;
    if (one_in(2))
        flags |= CLONE_NEWUSER;
    return flags;
}

static long some_id(void) {
    static const long all[] = {0, 0, 1, 5, 12, 1000, 65534, -1, 65536};
    return ONE_OF(all);
}

static void serve(void);

static void forks(void) {
    int slot = 1;
    while (slot < SLOTS && shared->pids[slot])
        slot++;
    int flags = one_in(2) ? 0 : some_flags(), is_own = one_in(8), is_numbered = one_in(8);
    pid_t number = one_in(2) ? 1 : 300 + (pid_t)below(3);
    if (slot == SLOTS) {
        tell("no slot");
        return;
    }
    tell("clone to %d %x", slot, flags);
    struct clone_args arguments = {.flags = (uint64_t)(unsigned)flags, .exit_signal = SIGCHLD};
    if (is_own) {
        tell(" sibling");
        arguments.flags |= CLONE_PARENT;
        arguments.exit_signal = 0;
    }
    if (is_numbered) {
        tell(" as %d", number);
        arguments.set_tid = (uint64_t)&number;
        arguments.set_tid_size = 1;
    }
    long pid = syscall(SYS_clone3, &arguments, sizeof arguments);
    if (pid == 0) {
        own = slot;
        // By its credentials the director learns who it is.
        if (write(ends[own][1], "r", 1) == 1)
            serve();
        _exit(1);
    }
    if (pid > 0)
        shared->made = slot;
    tell_answer(pid < 0 ? -1 : 0);
}

static void unshares(void) {
    static const int other[] = {CLONE_FS, CLONE_FILES, CLONE_SYSVSEM, CLONE_VM, CLONE_SIGHAND, CLONE_THREAD, CLONE_PARENT, 1};
    int flags = one_in(8) ? 0 : some_flags();
    if (one_in(6))
        flags |= ONE_OF(other);
    tell("unshare %x", flags);
    tell_answer(unshare(flags));
}

static void enters(void) {
    int slot = some_slot(), by_number = one_in(4), kind = (int)below(7);
    int type = one_in(4) ? kinds[below(8)].flag : one_in(2) ? kinds[kind].flag : 0;
    if (by_number) {
        // Only where numbers mean what they mean to the director; not the director's own root of mounts.
        int flags = some_flags() & ~CLONE_NEWNS;
        tell("setns by number %d %x", slot, flags);
        if (getpid() != shared->pids[own])
            return;
        int file = (int)syscall(SYS_pidfd_open, shared->pids[slot], 0);
        tell_answer(setns(file, flags));
        close(file);
        return;
    }
    tell("setns %d %s %x", slot, kinds[kind].name, type);
    char path[64];
    snprintf(path, sizeof path, "ns/%s", kinds[kind].name);
    int file = file_of(slot, path, O_RDONLY);
    if (file < 0)
        tell(" open");
    tell_answer(file < 0 ? -1 : setns(file, type));
    close(file);
}

static void maps(void) {
    static const char *const all[] = {"0 0 1", "0 0 1", "0 0 4294967295", "0 0 65536", "0 1000 1", "0 5 1", "1000 0 1", "0 0 10\n10 20 5", "0 0 1\n0 5 1", "0 5 2\n2 6 1", "5 5 0", "x", "", "0 0 1 1", "0 4294967294 5", " 0  0 10 \n", "1 1 5\n\n", "0 0", "-1 0 1", "0 0 1\n5 5 1\n12 12 1\n1000 1000 1\n1 1 1\n20 20 1"};
    static const char *const files[] = {"uid_map", "gid_map", "uid_map", "gid_map", "setgroups", "projid_map"};
    static const char *const words[] = {"deny", "deny", "allow", "deny\n", "no", "deny x"};
    int slot = some_slot();
    const char *name = ONE_OF(files), *text = ONE_OF(all), *word = ONE_OF(words);
    if (!strcmp(name, "setgroups"))
        text = word;
    tell("%s of %d '", name, slot);
    for (const char *c = text; *c; c++)
        tell(*c == '\n' ? "\\n" : "%c", *c);
    tell("'");
    int file = file_of(slot, name, O_WRONLY);
    if (file < 0)
        tell(" open");
    tell_answer(file < 0 ? -1 : write(file, text, strlen(text)));
    close(file);
}

static void reads(void) {
    static const char *const files[] = {"uid_map", "gid_map", "setgroups", "projid_map", "uid_map"};
    int slot = some_slot();
    const char *name = ONE_OF(files);
    char text[1000];
    tell("%s of %d", name, slot);
    int file = file_of(slot, name, O_RDONLY);
    long length = file < 0 ? -1 : read(file, text, sizeof text);
    for (long i = 0; i < length; i++)
        if (text[i] != ' ' || text[i - 1] != ' ')
            tell(text[i] == '\n' ? "/" : "%c", text[i]);
    tell_answer(length < 0 ? -1 : 0);
    close(file);
}

static void ids(void) {
    long a = some_id(), b = some_id(), c = some_id();
    gid_t groups[3] = {(gid_t)a, (gid_t)b, (gid_t)c};
    int which = (int)below(8);
    // The first one is left its privileges for longer: others come from it.
    switch (own == 0 && !one_in(6) ? 8 : which) {
    case 0: tell("setuid %ld", a); tell_answer(setuid((uid_t)a)); break;
    case 1: tell("setresuid %ld %ld %ld", a, b, c); tell_answer(setresuid((uid_t)a, (uid_t)b, (uid_t)c)); break;
    case 2: tell("setgid %ld", a); tell_answer(setgid((gid_t)a)); break;
    case 3: tell("setresgid %ld %ld %ld", a, b, c); tell_answer(setresgid((gid_t)a, (gid_t)b, (gid_t)c)); break;
    case 4: tell("setgroups %ld %ld %ld", a, b, c); tell_answer(setgroups(below(4), groups)); break;
    case 5: tell("setfsuid %ld", a); tell_answer(setfsuid((uid_t)a)); break;
    case 6: tell("seteuid %ld", a); tell_answer(seteuid((uid_t)a)); break;
    default: tell("ids");
    }
    uid_t uids[3];
    gid_t gids[3];
    getresuid(&uids[0], &uids[1], &uids[2]);
    getresgid(&gids[0], &gids[1], &gids[2]);
    tell(" uids %d %d %d gids %d %d %d groups", uids[0], uids[1], uids[2], gids[0], gids[1], gids[2]);
    gid_t all[32];
    int count = getgroups(32, all);
    for (int i = 0; i < count; i++)
        tell(" %d", all[i]);
}

static void capabilities(void) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{0}};
    int number = (int)below(41);
    switch (below(6)) {
    case 0:
        tell("capset without effective %d", number);
        syscall(SYS_capget, &header, data);
        data[number / 32].effective &= ~(1u << number % 32);
        tell_answer(syscall(SYS_capset, &header, data));
        break;
    case 1:
        tell("capset inheritable %d", number);
        syscall(SYS_capget, &header, data);
        data[number / 32].inheritable |= 1u << number % 32;
        tell_answer(syscall(SYS_capset, &header, data));
        break;
    case 2: tell("drop %d", number); tell_answer(prctl(PR_CAPBSET_DROP, number)); break;
    case 3: tell("keep %d", number % 2); tell_answer(prctl(PR_SET_KEEPCAPS, number % 2)); break;
    case 4: tell("dumpable %d", number % 3); tell_answer(prctl(PR_SET_DUMPABLE, number % 3)); break;
    default: tell("capabilities");
    }
    syscall(SYS_capget, &header, data);
    // Where this runs natively a capability may be missing from the start.
    uint32_t mask = ~(1u << CAP_SYS_RESOURCE);
    tell(" %x%08x %x%08x %x%08x dumpable %d", data[1].effective, data[0].effective & mask, data[1].permitted, data[0].permitted & mask, data[1].inheritable, data[0].inheritable & mask, prctl(PR_GET_DUMPABLE));
}

static void names(void) {
    struct utsname name;
    char text[80];
    size_t length = one_in(8) ? 65 : 1 + below(8);
    memset(text, 'a' + (int)below(26), sizeof text);
    int is_domain = one_in(3), looks = one_in(2);
    if (!looks) {
        tell("set%sname %zu", is_domain ? "domain" : "host", length);
        tell_answer(is_domain ? setdomainname(text, length) : sethostname(text, length));
    }
    uname(&name);
    tell(" %s %s", name.nodename, name.domainname);
}

static void asks(void) {
    static const unsigned long all[] = {NS_GET_NSTYPE, NS_GET_PARENT, NS_GET_PARENT, NS_GET_USERNS, NS_GET_USERNS, NS_GET_OWNER_UID, 0xb7ff};
    int slot = some_slot(), kind = (int)below(COUNT(kinds));
    unsigned long request = ONE_OF(all);
    char path[64];
    snprintf(path, sizeof path, "ns/%s", kinds[kind].name);
    tell("ns %s of %d", kinds[kind].name, slot);
    int file = file_of(slot, path, O_RDONLY);
    struct stat status;
    if (file < 0 || fstat(file, &status)) {
        tell(" open");
        tell_answer(-1);
        return;
    }
    tell(" #%d ioctl %lx", numbered(status.st_ino), request & 0xff);
    uid_t owner = 9;
    int result = ioctl(file, request, &owner), error = errno;
    if (result >= 0 && request == NS_GET_OWNER_UID)
        tell(" owner %d", owner);
    if (result > 0 && (request == NS_GET_PARENT || request == NS_GET_USERNS)) {
        fstat(result, &status);
        tell(" #%d", numbered(status.st_ino));
        close(result);
        result = 0;
    }
    errno = error;
    tell_answer(result);
    close(file);
}

static void looks(void) {
    tell("in");
    for (size_t i = 0; i < COUNT(kinds); i++) {
        char path[64];
        struct stat status;
        snprintf(path, sizeof path, "/proc/%d/ns/%s", shared->pids[own], kinds[i].name);
        if (stat(path, &status))
            tell(" %s", strerrorname_np(errno));
        else
            tell(" #%d", numbered(status.st_ino));
    }
}

static void others(void) {
    static const char *const files[] = {"mem", "environ", "maps", "fd", "ns/net", "task", "limits", "syscall", "auxv"};
    static const char *const links[] = {"exe", "root", "cwd", "ns/uts", "fd/0"};
    int slot = (int)below(SLOTS);
    if (!shared->pids[slot])
        slot = own;
    char path[64], text[100];
    struct stat status;
    switch (below(6)) {
    case 0: {
        tell("signal 0 to %d", slot);
        int file = file_of(slot, ".", O_RDONLY | O_DIRECTORY);
        tell_answer(file < 0 ? -1 : syscall(SYS_pidfd_send_signal, file, 0, 0, 0));
        close(file);
        return;
    }
    case 1:
        snprintf(path, sizeof path, "/proc/%d", shared->pids[slot]);
        tell("owner of %d", slot);
        int result = stat(path, &status);
        if (result == 0)
            tell(" %d %d", status.st_uid, status.st_gid);
        tell_answer(result);
        return;
    case 2: {
        const char *name = ONE_OF(links);
        snprintf(path, sizeof path, "/proc/%d/%s", shared->pids[slot], name);
        tell("link %s of %d", name, slot);
        tell_answer(readlink(path, text, sizeof text) < 0 ? -1 : 0);
        return;
    }
    case 3: {
        struct rlimit limit;
        tell("prlimit of %d", slot);
        if (getpid() != shared->pids[own])
            return;
        tell_answer(prlimit(shared->pids[slot], RLIMIT_NOFILE, 0, &limit));
        return;
    }
    default: {
        const char *name = ONE_OF(files);
        tell("open %s of %d", name, slot);
        tell_opened(file_of(slot, name, O_RDONLY));
    }
    }
}

static void files(void) {
    char path[32];
    struct stat status;
    int number = (int)below(4);
    long uid = some_id(), gid = some_id();
    snprintf(path, sizeof path, "/tmp/f%d", number);
    switch (below(8)) {
    case 0:
    case 1: tell("create %d", number); tell_opened(open(path, O_CREAT | O_RDWR, 0640)); break;
    case 2: tell("chown %d %ld %ld", number, uid, gid); tell_answer(chown(path, (uid_t)uid, (gid_t)gid)); break;
    case 3: tell("chmod %d", number); tell_answer(chmod(path, one_in(2) ? 06755 : 0600)); break;
    case 4: tell("unlink %d", number); tell_answer(unlink(path)); break;
    case 5: tell("mknod %d", number); tell_answer(mknod(path, (one_in(2) ? S_IFCHR : S_IFIFO) | 0600, makedev(1, 3))); break;
    case 6: tell("access %d", number); tell_answer(access(path, R_OK | W_OK)); break;
    default: tell("open %d", number); tell_opened(open(path, O_RDONLY | O_NONBLOCK)); break;
    }
    if (stat(path, &status) == 0)
        tell(" %o %d %d", status.st_mode, status.st_uid, status.st_gid);
}

static void mounts(void) {
    switch (below(5)) {
    case 0: tell("mkdir"); tell_answer(mkdir("/tmp/m", 0755)); return;
    case 1: tell("mount tmpfs"); tell_answer(mount("none", "/tmp/m", "tmpfs", 0, 0)); return;
    case 2: tell("umount"); tell_answer(umount2("/tmp/m", 0)); return;
    case 3: tell("private"); tell_answer(mount(0, "/", 0, MS_PRIVATE | MS_REC, 0)); return;
    default: tell("chroot"); tell_answer(chroot("/")); return;
    }
}

static void networks(void) {
    int type = one_in(3) ? SOCK_RAW : SOCK_DGRAM;
    int file = socket(AF_INET, type | SOCK_CLOEXEC, type == SOCK_RAW ? IPPROTO_ICMP : 0);
    tell("socket %d", type);
    if (file < 0) {
        tell_answer(-1);
        return;
    }
    int one = 1, seven = 7;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)(type == SOCK_RAW ? 0 : one_in(2) ? 80 : 8000))};
    struct ifreq request = {.ifr_name = "lo"};
    switch (below(7)) {
    case 0: tell(" bind"); tell_answer(bind(file, (void *)&address, sizeof address)); break;
    case 1: tell(" mark"); tell_answer(setsockopt(file, SOL_SOCKET, SO_MARK, &one, sizeof one)); break;
    case 2: tell(" priority"); tell_answer(setsockopt(file, SOL_SOCKET, SO_PRIORITY, &seven, sizeof seven)); break;
    case 3: tell(" force"); tell_answer(setsockopt(file, SOL_SOCKET, SO_RCVBUFFORCE, &one, sizeof one)); break;
    case 4: request.ifr_flags = IFF_UP; tell(" up"); tell_answer(ioctl(file, SIOCSIFFLAGS, &request)); break;
    case 5: tell(" flags"); ioctl(file, SIOCGIFFLAGS, &request); tell(" %x", request.ifr_flags & IFF_UP); break;
    default: tell(" setting"); tell_opened(open("/proc/sys/net/ipv4/ip_forward", O_WRONLY)); break;
    }
    close(file);
}

static void objects(void) {
    struct shm_info info = {0};
    struct shmid_ds status;
    int key = 5 + (int)below(3);
    tell("shm %d", key);
    int id = shmget(key, 4096, one_in(2) ? IPC_CREAT | 0600 : 0);
    if (id < 0) {
        tell_answer(-1);
    } else if (shmctl(id, IPC_STAT, &status) == 0) {
        tell(" %d %d by %d %d", status.shm_perm.uid, status.shm_perm.gid, status.shm_perm.cuid, status.shm_perm.cgid);
        tell_answer(one_in(4) ? shmctl(id, IPC_RMID, 0) : 0);
    } else {
        tell(" stat");
        tell_answer(-1);
    }
    shmctl(0, SHM_INFO, (struct shmid_ds *)&info);
    tell(" of %d", info.used_ids);
}

static void privileges(void) {
    struct sched_param parameter = {.sched_priority = 0};
    switch (below(4)) {
    case 0: tell("nice"); errno = 0; tell_answer(setpriority(PRIO_PROCESS, 0, (int)below(3) - 1)); return;
    case 1: tell("batch"); tell_answer(sched_setscheduler(0, one_in(2) ? SCHED_BATCH : SCHED_OTHER, &parameter)); return;
    case 2: tell("hostname file"); tell_opened(open("/proc/sys/kernel/hostname", O_WRONLY)); return;
    default: tell("no new privileges %d", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)); return;
    }
}

static void numbers(void) {
    int is_inside = getpid() != shared->pids[own];
    switch (below(4)) {
    case 0: tell("setsid"); { pid_t got = setsid(); if (got > 0 && is_inside) tell(" %d", got); tell_answer(got < 0 ? -1 : 0); } return;
    case 1: tell("setpgid"); tell_answer(setpgid(0, 0)); return;
    default:
        tell("pid");
        if (is_inside)
            tell(" %d parent %d group %d session %d", getpid(), getppid(), getpgid(0), getsid(0));
    }
}

static void times(void) {
    static const char *const all[] = {"monotonic 1000 0", "monotonic -4000000000 0", "boottime 5000 0", "1 20000 0", "7 100 5", "monotonic 1 1000000000", "realtime 5 0", "x", "monotonic 400000000000 0"};
    if (one_in(2)) {
        const char *text = ONE_OF(all);
        tell("offsets '%s'", text);
        int file = file_of(own, "timens_offsets", O_WRONLY);
        if (file < 0)
            tell(" open");
        tell_answer(file < 0 ? -1 : write(file, text, strlen(text)));
        close(file);
    } else {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        tell("clock ahead by %ld", (now.tv_sec - shared->begin + 50) / 100);
    }
}

static void (*const steps[])(void) = {
    forks, forks, unshares, unshares, enters, enters, enters, maps, maps, maps, maps, reads, ids, ids, capabilities, names, asks, asks, looks, others, others, files, files, mounts, networks, objects, privileges, numbers, times,
};

// It is there and has not ended.
static int is_alive(pid_t pid) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    char letter = pid > 0 ? state_in(path) : '-';
    return letter != '-' && letter != 'Z' && letter != 'X';
}

// Does a step whenever it is told to.
static void serve(void) {
    char order;
    while (read(ends[own][1], &order, 1) == 1 && order == 's') {
        state = shared->state;
        steps[below(COUNT(steps))]();
        shared->state = state;
        if (write(ends[own][1], "d", 1) != 1)
            break;
    }
    _exit(own);
}

// Waits for a byte from a slot, whose sender's number is told; 0 when it does not come.
static pid_t hears(int slot) {
    char byte, room[CMSG_SPACE(sizeof(struct ucred))];
    struct iovec piece = {&byte, 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct pollfd answer = {ends[slot][0], POLLIN, 0};
    if (poll(&answer, 1, 2000) != 1 || recvmsg(ends[slot][0], &message, 0) != 1)
        return 0;
    struct ucred sender = {0};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header)
        memcpy(&sender, CMSG_DATA(header), sizeof sender);
    return sender.pid;
}

// After one has ended those have, too, whose first process it was.
static void settle(pid_t ended) {
    for (int tries = 0; tries < 2000 && is_alive(ended); tries++)
        usleep(1000);
    usleep(3000);
    for (int slot = 0; slot < SLOTS; slot++)
        if (!is_alive(shared->pids[slot]))
            shared->pids[slot] = 0;
}

int main(int count, char **arguments) {
    int kind;
    long total = begin(count, arguments, &kind);
    if (getpid() != 1) {
        fprintf(stderr, "%s ends all processes there are: it has to be the first of a namespace\n", arguments[0]);
        return 2;
    }
    // What is tried changes nothing of the computer's.
    if (unshare(CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNET | CLONE_NEWCGROUP | CLONE_NEWNS)) {
        perror("unshare");
        return 2;
    }
    sethostname("first", 5);
    setdomainname("none", 4);
    // Machines let everybody bind low ports, as docker does.
    int ports = open("/proc/sys/net/ipv4/ip_unprivileged_port_start", O_WRONLY);
    if (write(ports, "1024", 4) != 4)
        return 2;
    close(ports);
    umask(022);
    setgroups(0, 0);
    signal(SIGCHLD, SIG_IGN);
    shared = mmap(0, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (long done = 0; done < total; done += ROUND) {
        fflush(stdout);
        memset(shared, 0, sizeof *shared);
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        shared->begin = now.tv_sec;
        for (int i = 0; i < SLOTS; i++) {
            int on = 1;
            if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends[i]) || setsockopt(ends[i][0], SOL_SOCKET, SO_PASSCRED, &on, sizeof on))
                return 1;
        }
        shared->state = state;
        pid_t first = fork();
        if (first == 0) {
            while (!*(volatile pid_t *)&shared->pids[0])
                usleep(100);
            serve();
        }
        shared->pids[0] = first;
        for (int step = 0; step < ROUND; step++) {
            state = shared->state;
            int slot = (int)below(SLOTS), is_end = one_in(25);
            if (!shared->pids[slot])
                slot = 0;
            is_end &= slot != 0;
            shared->state = state;
            shared->length = 0;
            shared->text[0] = 0;
            shared->made = -1;
            say("%ld %d ", done + step, slot);
            pid_t pid = shared->pids[slot];
            if (write(ends[slot][0], is_end ? "x" : "s", 1) != 1)
                return 1;
            if (is_end) {
                settle(pid);
                say("ends, left:");
                for (int i = 0; i < SLOTS; i++)
                    say(" %d", shared->pids[i] != 0);
                say("\n");
                continue;
            }
            int is_answered = hears(slot) != 0;
            if (shared->made >= 0)
                shared->pids[shared->made] = hears(shared->made);
            say("%s%s\n", shared->text, is_answered ? "" : " (no answer)");
            fflush(stdout);
        }
        kill(-1, SIGKILL);
        for (int i = 0; i < SLOTS; i++) {
            close(ends[i][0]);
            close(ends[i][1]);
        }
        usleep(5000);
        for (int i = 0; i < 4; i++) {
            char path[32];
            snprintf(path, sizeof path, "/tmp/f%d", i);
            unlink(path);
        }
        rmdir("/tmp/m");
        for (int key = 5; key < 8; key++)
            shmctl(shmget(key, 0, 0), IPC_RMID, 0);
        sethostname("first", 5);
        setdomainname("none", 4);
        state = shared->state + 977;
    }
    return 0;
}
