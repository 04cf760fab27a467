// SPDX-License-Identifier: Apache-2.0 OR MIT
// A user tries what is another user's, or the machine's: as itself, and as root of a user namespace of its own, with all capabilities there. Nothing of it may
// work. Each line is a call that Linux refuses as well. To be run as root.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/io.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

enum { MINE = 1000, THEIRS = 1001 };

static int failures;
static const char *who;

// The call has to fail, whatever the error.
#define REFUSED(call)                                                                       \
    do {                                                                                    \
        errno = 0;                                                                          \
        if ((long)(call) != -1) {                                                           \
            printf("%s, line %d: %s worked\n", who, __LINE__, #call);                       \
            failures++;                                                                     \
        }                                                                                   \
    } while (0)

static struct shared {
    pid_t theirs, roots;
    int segment, queue, semaphore;
} *shared;

static int writes(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    int n = write(fd, text, strlen(text)), error = errno;
    close(fd);
    errno = error;
    return n < 0 ? -1 : 0;
}

static int of(pid_t pid, const char *name, int flags) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    int fd = open(path, flags | O_CLOEXEC);
    char byte;
    // Some files are opened by anybody, and read by few.
    if (fd >= 0 && flags == O_RDONLY && read(fd, &byte, 1) < 0)
        return close(fd), -1;
    return fd;
}

static int link_of(pid_t pid, const char *name) {
    char path[64], to[256];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    return readlink(path, to, sizeof to);
}

static int put_into(pid_t pid, const char *name, const char *text) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    return writes(path, text);
}

static int enter(pid_t pid, const char *name) {
    int fd = of(pid, name, O_RDONLY | O_PATH);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    if (fd >= 0)
        close(fd);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? -1 : setns(fd, 0);
}

static void process(pid_t pid) {
    char bytes[64];
    struct iovec own = {bytes, 8}, there = {(void *)shared, 8};
    struct rlimit limit = {1, 1};
    struct sched_param param = {0};
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(0, &set);
    int pidfd = syscall(SYS_pidfd_open, pid, 0);
    siginfo_t info = {.si_signo = SIGTERM, .si_code = SI_QUEUE};
    REFUSED(kill(pid, SIGTERM));
    REFUSED(kill(pid, 0));
    REFUSED(syscall(SYS_tgkill, pid, pid, SIGTERM));
    REFUSED(syscall(SYS_rt_sigqueueinfo, pid, SIGTERM, &info));
    REFUSED(syscall(SYS_pidfd_send_signal, pidfd, SIGTERM, NULL, 0));
    REFUSED(syscall(SYS_pidfd_getfd, pidfd, 0, 0));
    REFUSED(setns(pidfd, CLONE_NEWNS));
    REFUSED(setns(pidfd, CLONE_NEWUSER));
    REFUSED(setns(pidfd, CLONE_NEWNET | CLONE_NEWUTS));
    close(pidfd);
    REFUSED(ptrace(PTRACE_ATTACH, pid, 0, 0));
    REFUSED(ptrace(PTRACE_SEIZE, pid, 0, 0));
    REFUSED(process_vm_readv(pid, &own, 1, &there, 1, 0));
    REFUSED(process_vm_writev(pid, &own, 1, &there, 1, 0));
    REFUSED(syscall(SYS_kcmp, pid, getpid(), 0, 0, 0));
    REFUSED(prlimit(pid, RLIMIT_NOFILE, &limit, NULL));
    REFUSED(prlimit(pid, RLIMIT_NOFILE, NULL, &limit));
    REFUSED(setpriority(PRIO_PROCESS, pid, 5));
    REFUSED(sched_setscheduler(pid, SCHED_BATCH, &param));
    REFUSED(sched_setaffinity(pid, sizeof set, &set));
    REFUSED(syscall(SYS_ioprio_set, 1, pid, 2 << 13));
    REFUSED(syscall(SYS_migrate_pages, pid, 8, &(long){1}, &(long){1}));
    REFUSED(syscall(SYS_get_robust_list, pid, &(void *){0}, &(size_t){0}));
    REFUSED(of(pid, "mem", O_RDWR));
    REFUSED(of(pid, "environ", O_RDONLY));
    REFUSED(of(pid, "auxv", O_RDONLY));
    REFUSED(of(pid, "maps", O_RDONLY));
    REFUSED(of(pid, "smaps", O_RDONLY));
    REFUSED(of(pid, "io", O_RDONLY));
    REFUSED(of(pid, "syscall", O_RDONLY));
    REFUSED(of(pid, "stack", O_RDONLY));
    REFUSED(of(pid, "personality", O_RDONLY));
    REFUSED(of(pid, "fd", O_RDONLY | O_DIRECTORY));
    REFUSED(of(pid, "fdinfo/0", O_RDONLY));
    REFUSED(of(pid, "map_files", O_RDONLY | O_DIRECTORY));
    REFUSED(of(pid, "root/", O_RDONLY | O_DIRECTORY));
    REFUSED(of(pid, "cwd/", O_RDONLY | O_DIRECTORY));
    REFUSED(link_of(pid, "exe"));
    REFUSED(link_of(pid, "cwd"));
    REFUSED(link_of(pid, "root"));
    REFUSED(link_of(pid, "ns/mnt"));
    REFUSED(link_of(pid, "fd/0"));
    REFUSED(put_into(pid, "oom_score_adj", "1000"));
    REFUSED(put_into(pid, "comm", "x"));
    REFUSED(put_into(pid, "coredump_filter", "0"));
    REFUSED(put_into(pid, "clear_refs", "1"));
    REFUSED(put_into(pid, "uid_map", "0 0 1"));
    REFUSED(put_into(pid, "setgroups", "deny"));
    static const char *const spaces[] = {"ns/mnt", "ns/user", "ns/pid", "ns/net", "ns/uts", "ns/ipc", "ns/cgroup"};
    for (int i = 0; i < 7; i++)
        REFUSED(enter(pid, spaces[i]));
}

static void files(void) {
    struct stat stat;
    static const uint8_t capabilities[20] = {1, 0, 0, 2, 0xff, 0xff, 0xff, 0xff};
    REFUSED(open("/tmp/users/secret", O_RDONLY));
    REFUSED(open("/tmp/users/secret", O_WRONLY));
    REFUSED(open("/tmp/users/closed/in", O_RDONLY));
    REFUSED(access("/tmp/users/closed/in", F_OK));
    REFUSED(truncate("/tmp/users/secret", 0));
    REFUSED(chmod("/tmp/users/secret", 0777));
    REFUSED(chown("/tmp/users/secret", MINE, MINE));
    REFUSED(utimensat(AT_FDCWD, "/tmp/users/secret", (struct timespec[2]){{1, 0}, {1, 0}}, 0));
    REFUSED(setxattr("/tmp/users/secret", "user.x", "y", 1, 0));
    REFUSED(setxattr("/tmp/users/secret", "trusted.x", "y", 1, 0));
    REFUSED(getxattr("/tmp/users/secret", "user.secret", &stat, sizeof stat));
    REFUSED(setxattr("/tmp/users/secret", "security.capability", capabilities, 20, 0));
    REFUSED(setxattr("/tmp/users/mine", "trusted.x", "y", 1, 0));
    REFUSED(unlink("/tmp/users/secret"));
    REFUSED(rename("/tmp/users/secret", "/tmp/users/gone"));
    REFUSED(rename("/tmp/users/mine", "/tmp/users/secret"));
    REFUSED(link("/tmp/users/secret", "/tmp/users/linked"));
    REFUSED(chown("/tmp/users/mine", THEIRS, -1));
    REFUSED(chown("/tmp/users/mine", -1, THEIRS));
    REFUSED(mknod("/tmp/users/device", S_IFCHR | 0666, makedev(1, 1)));
    REFUSED(mknod("/tmp/users/device", S_IFBLK | 0666, makedev(254, 0)));
    REFUSED(mount("none", "/tmp/users", "tmpfs", 0, NULL));
    REFUSED(mount("/tmp/users", "/tmp", NULL, MS_BIND, NULL));
    REFUSED(mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND, NULL));
    REFUSED(umount2("/tmp/users", MNT_DETACH));
    REFUSED(umount2("/proc", MNT_DETACH));
    REFUSED(syscall(SYS_pivot_root, "/tmp", "/tmp/users"));
    REFUSED(syscall(SYS_open_by_handle_at, AT_FDCWD, (char[32]){8, 0, 0, 0, 1}, O_RDONLY));
    REFUSED(open("/proc/1/root/tmp/users/secret", O_RDONLY));
    REFUSED(open("/proc/kcore", O_RDONLY));
    REFUSED(open("/dev/mem", O_RDONLY));
    REFUSED(syscall(SYS_quotactl, 0x800007, "/dev/root", 0, 0));
}

static void machine(void) {
    struct timeval time = {1, 0};
    struct timespec spec = {1, 0};
    int one = 1;
    struct ifreq interface = {.ifr_name = "lo"};
    struct sockaddr_in low = {.sin_family = AF_INET, .sin_port = htons(99)};
    int udp = socket(AF_INET, SOCK_DGRAM, 0);
    REFUSED(sethostname("taken", 5));
    REFUSED(setdomainname("taken", 5));
    REFUSED(settimeofday(&time, NULL));
    REFUSED(clock_settime(CLOCK_REALTIME, &spec));
    REFUSED(iopl(3));
    REFUSED(ioperm(0, 1, 1));
    REFUSED(syscall(SYS_reboot, 0xfee1dead, 672274793, 0, NULL));
    REFUSED(syscall(SYS_swapon, "/tmp/users/mine", 0));
    REFUSED(syscall(SYS_init_module, "", 0, ""));
    REFUSED(syscall(SYS_kexec_load, 0, 0, NULL, 0));
    REFUSED(syscall(SYS_syslog, 5, NULL, 0));
    REFUSED(acct("/tmp/users/mine"));
    REFUSED(nice(-5));
    REFUSED(sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){5}));
    REFUSED(writes("/proc/sys/kernel/hostname", "taken"));
    REFUSED(writes("/proc/sys/net/ipv4/ip_forward", "1"));
    REFUSED(writes("/proc/sys/vm/overcommit_memory", "1"));
    REFUSED(writes("/proc/sys/kernel/core_pattern", "|/tmp/users/mine"));
    REFUSED(writes("/proc/sysrq-trigger", "b"));
    REFUSED(writes("/proc/self/oom_score_adj", "-1000"));
    REFUSED(bind(udp, (void *)&low, sizeof low));
    REFUSED(setsockopt(udp, SOL_SOCKET, SO_RCVBUFFORCE, &one, sizeof one));
    REFUSED(setsockopt(udp, SOL_SOCKET, SO_MARK, &one, sizeof one));
    REFUSED(setsockopt(udp, SOL_SOCKET, SO_DEBUG, &one, sizeof one));
    REFUSED(setsockopt(udp, SOL_IP, IP_TRANSPARENT, &one, sizeof one));
    REFUSED(ioctl(udp, SIOCSIFFLAGS, &interface));
    REFUSED(ioctl(udp, SIOCSIFADDR, &interface));
    REFUSED(socket(AF_INET, SOCK_RAW, 1));
    REFUSED(socket(AF_PACKET, SOCK_RAW, 0));
    close(udp);
}

static void identity(void) {
    REFUSED(setuid(THEIRS));
    REFUSED(setresuid(-1, THEIRS, -1));
    REFUSED(setgid(THEIRS));
    REFUSED(setgroups(1, &(gid_t){THEIRS}));
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0);
    char control[CMSG_SPACE(sizeof(struct ucred))] = {0};
    struct iovec vector = {"x", 1};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    *head = (struct cmsghdr){CMSG_LEN(sizeof(struct ucred)), SOL_SOCKET, SCM_CREDENTIALS};
    struct ucred forged = {shared->roots, THEIRS, THEIRS};
    memcpy(CMSG_DATA(head), &forged, sizeof forged);
    REFUSED(sendmsg(ends[0], &message, 0));
}

static void queues(void) {
    struct {
        long type;
        char text[8];
    } message = {1, "x"};
    struct sembuf operation = {0, 1, 0};
    REFUSED(shmat(shared->segment, NULL, 0) == (void *)-1 ? -1 : 0);
    REFUSED(shmctl(shared->segment, IPC_RMID, NULL));
    REFUSED(shmctl(shared->segment, IPC_STAT, &(struct shmid_ds){0}));
    REFUSED(msgsnd(shared->queue, &message, 8, IPC_NOWAIT));
    REFUSED(msgctl(shared->queue, IPC_RMID, NULL));
    REFUSED(semop(shared->semaphore, &operation, 1));
    REFUSED(semctl(shared->semaphore, 0, IPC_RMID));
}

static int is_exec_privileged(void) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        execl("/tmp/users/set_id", "set_id", "who", (char *)0);
        _exit(99);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

// A set-user-ID program that the user traces stays the user's.
static void traced_set_id(void) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(ptrace(PTRACE_TRACEME, 0, 0, 0) == 0);
        execl("/tmp/users/set_id", "set_id", "who", (char *)0);
        _exit(99);
    }
    int status;
    while (waitpid(child, &status, 0) == child && WIFSTOPPED(status))
        ptrace(PTRACE_CONT, child, 0, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 1) {
        printf("%s: a traced set-user-ID program has other rights (%x)\n", who, status);
        failures++;
    }
}

static void all_attacks(void) {
    process(shared->theirs);
    process(shared->roots);
    files();
    machine();
    identity();
    queues();
    traced_set_id();
}

static void become(uid_t uid) {
    CHECK(setgroups(0, NULL) == 0 && setresgid(uid, uid, uid) == 0 && setresuid(uid, uid, uid) == 0);
    CHECK(prctl(PR_SET_DUMPABLE, 1) == 0);
}

static pid_t victim(uid_t uid) {
    int ready[2];
    char byte;
    CHECK(pipe(ready) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        become(uid);
        if (uid == THEIRS) {
            shared->segment = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);
            shared->queue = msgget(IPC_PRIVATE, IPC_CREAT | 0600);
            shared->semaphore = semget(IPC_PRIVATE, 1, IPC_CREAT | 0600);
        }
        CHECK(write(ready[1], "r", 1) == 1);
        for (;;)
            pause();
    }
    CHECK(read(ready[0], &byte, 1) == 1);
    close(ready[0]), close(ready[1]);
    return child;
}

static void write_map(void) {
    CHECK(writes("/proc/self/setgroups", "deny") == 0 && writes("/proc/self/uid_map", "0 1000 1") == 0);
    CHECK(writes("/proc/self/gid_map", "0 1000 1") == 0);
}

static void as_user(void) {
    who = "a user";
    become(MINE);
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{~0u, ~0u, ~0u}, {~0u, ~0u, ~0u}};
    REFUSED(syscall(SYS_capset, &header, data));
    REFUSED(setuid(0));
    REFUSED(chown("/tmp/users/mine", 0, -1));
    REFUSED(unshare(CLONE_NEWNS));
    REFUSED(unshare(CLONE_NEWNET));
    REFUSED(unshare(CLONE_NEWPID));
    REFUSED(chroot("/tmp"));
    all_attacks();
    if (is_exec_privileged() != 0)
        printf("the set-user-ID program has no rights\n"), failures++;
}

static void as_root_of_its_own(void) {
    who = "root of a user namespace";
    become(MINE);
    CHECK(unshare(CLONE_NEWUSER) == 0);
    REFUSED(writes("/proc/self/uid_map", "0 0 1"));
    REFUSED(writes("/proc/self/uid_map", "0 1000 2"));
    REFUSED(writes("/proc/self/uid_map", "0 1001 1"));
    REFUSED(writes("/proc/self/gid_map", "0 1000 1"));
    write_map();
    CHECK(setresuid(0, 0, 0) == 0 && geteuid() == 0);
    all_attacks();
    // Programs of users that it does not have run as whoever calls them.
    if (is_exec_privileged() != 1)
        printf("a set-user-ID program of nobody that is mapped has other rights\n"), failures++;
    who = "root of namespaces of its own";
    CHECK(unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID) == 0);
    process(shared->roots);
    REFUSED(umount2("/proc", 0));
    REFUSED(mount(NULL, "/tmp/users/fixed", NULL, MS_REMOUNT | MS_BIND, NULL));
    REFUSED(mount("none", "/tmp/users/below", "devtmpfs", 0, NULL));
    REFUSED(mount("none", "/tmp/users/below", "proc", 0, NULL));
    CHECK(mount("none", "/tmp/users/below", "tmpfs", 0, NULL) == 0);
    REFUSED(mknod("/tmp/users/below/device", S_IFCHR | 0666, makedev(1, 1)));
    REFUSED(setxattr("/tmp/users/below", "trusted.x", "y", 1, 0));
    REFUSED(writes("/proc/sys/kernel/core_pattern", "|/x"));
    REFUSED(writes("/proc/sys/vm/overcommit_memory", "1"));
    REFUSED(settimeofday(&(struct timeval){1, 0}, NULL));
    REFUSED(open("/tmp/users/secret", O_RDONLY));
    REFUSED(chown("/tmp/users/mine", THEIRS, -1));
}

static void run(void (*attack)(void)) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        attack();
        fflush(stdout);
        _exit(failures != 0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    failures += status != 0;
}

static void copy(const char *from, const char *to) {
    static char bytes[1 << 16];
    int in = open(from, O_RDONLY), out = open(to, O_CREAT | O_WRONLY | O_TRUNC, 0755);
    CHECK(in >= 0 && out >= 0);
    for (ssize_t n; (n = read(in, bytes, sizeof bytes)) > 0;)
        CHECK(write(out, bytes, n) == n);
    close(in), close(out);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "who") == 0)
        return geteuid() == 0 && getuid() != 0 ? 0 : 1;
    setvbuf(stdout, NULL, _IOLBF, 0);
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    mkdir("/tmp", 01777);
    CHECK(mkdir("/tmp/users", 0700) == 0 && mount("none", "/tmp/users", "tmpfs", 0, "mode=1777") == 0);
    umask(0);
    // Containers begin with 0: everybody has all ports.
    CHECK(writes("/proc/sys/net/ipv4/ip_unprivileged_port_start", "1024") == 0);
    CHECK(mkdir("/tmp/users/closed", 0700) == 0 && mkdir("/tmp/users/below", 0777) == 0 && mkdir("/tmp/users/fixed", 0777) == 0);
    int fd = open("/tmp/users/secret", O_CREAT | O_RDWR, 0600);
    CHECK(fd >= 0 && write(fd, "secret", 6) == 6 && setxattr("/tmp/users/secret", "trusted.secret", "x", 1, 0) == 0 && fchown(fd, THEIRS, THEIRS) == 0);
    close(fd);
    fd = open("/tmp/users/closed/in", O_CREAT | O_RDWR, 0666), close(fd);
    fd = open("/tmp/users/mine", O_CREAT | O_RDWR, 0755);
    CHECK(fd >= 0 && fchown(fd, MINE, MINE) == 0);
    close(fd);
    CHECK(mount("/tmp/users/fixed", "/tmp/users/fixed", NULL, MS_BIND, NULL) == 0);
    CHECK(mount(NULL, "/tmp/users/fixed", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL) == 0);
    copy("/proc/self/exe", "/tmp/users/set_id");
    CHECK(chmod("/tmp/users/set_id", 04755) == 0);
    shared->theirs = victim(THEIRS);
    shared->roots = victim(0);
    run(as_user);
    run(as_root_of_its_own);
    CHECK(kill(shared->theirs, 0) == 0 && kill(shared->theirs, SIGKILL) == 0 && kill(shared->roots, SIGKILL) == 0);
    umount2("/tmp/users", MNT_DETACH);
    rmdir("/tmp/users");
    CHECK(failures == 0);
    puts("hostile users: ok");
    return 0;
}
