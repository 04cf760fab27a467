// SPDX-License-Identifier: Apache-2.0 OR MIT
// PID, user, IPC, cgroup and network namespaces (namespaces(7)), and mount namespaces of other owners. On Linux: as root, in a directory of a file system without nosuid.
#define _GNU_SOURCE
#include "check.h"
#include <dirent.h>
#include <grp.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sched.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mount.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <termios.h>
#include <unistd.h>

#define FAILS(call, error) (errno = 0, (call) == -1 && errno == (error))
#define NS_GET_USERNS 0xb701
#define NS_GET_PARENT 0xb702
#define NS_GET_NSTYPE 0xb703
#define NS_GET_OWNER_UID 0xb704
#define OVERFLOW 65534

static pid_t new_process(unsigned long flags) {
    fflush(stdout);
    return syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
}

// Runs it in a new process with those namespaces, and wants it to end well.
static void in_new(unsigned long flags, void (*run)(void)) {
    int status;
    pid_t child = new_process(flags);
    CHECK(child >= 0);
    if (child == 0) {
        run();
        fflush(stdout);
        _exit(0);
    }
    CHECK(waitpid(child, &status, __WALL) == child);
    if (status != 0) {
        printf("ended with %x\n", status);
        exit(1);
    }
}

static void put(const char *path, const char *text) {
    int fd = open(path, O_WRONLY);
    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && close(fd) == 0);
}

// 0, or the error of the write.
static int refused(const char *path, const char *text) {
    int fd = open(path, O_WRONLY);
    if (fd < 0)
        return errno;
    errno = 0;
    int error = write(fd, text, strlen(text)) < 0 ? errno : 0;
    close(fd);
    return error;
}

static const char *get(const char *path) {
    static char text[4096];
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0);
    ssize_t n = read(fd, text, sizeof text - 1);
    CHECK(n >= 0);
    text[n] = 0;
    close(fd);
    return text;
}

// The line of /proc/PID/status that begins with that word.
static const char *status_line(const char *path, const char *word) {
    const char *text = get(path), *line = strstr(text, word);
    CHECK(line != NULL);
    static char out[256];
    snprintf(out, sizeof out, "%.*s", (int)strcspn(line, "\n"), line);
    return out;
}

static char token_of_pipe(int fd) {
    char token = 0;
    return read(fd, &token, 1) == 1 ? token : 0;
}

static int handled, sender;
static void handler(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    handled++;
    sender = info->si_pid;
}

static void handle(int number) {
    struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART };
    CHECK(sigaction(number, &action, NULL) == 0);
}

static void see_numbers(void) {
    CHECK(getpid() == 1 && getppid() == 0 && syscall(SYS_gettid) == 1);
    CHECK(getpgrp() == 0 && getsid(0) == 0 && getpgid(1) == 0);
    CHECK(FAILS(kill(2, 0), ESRCH) && kill(1, 0) == 0);
    CHECK(setsid() == 1 && getpgrp() == 1 && getsid(0) == 1);
    pid_t child = fork();
    if (child == 0) {
        if (getpid() != 2 || getppid() != 1 || getsid(0) != 1)
            _exit(1);
        _exit(setpgid(0, 0) == 0 && getpgrp() == 2 && getpgid(1) == 1 ? 7 : 2);
    }
    CHECK(child == 2);
    siginfo_t info = { 0 };
    CHECK(waitid(P_PID, child, &info, WEXITED | WNOWAIT) == 0 && info.si_pid == 2 && info.si_status == 7);
    int status;
    CHECK(FAILS(waitpid(12345, &status, 0), ECHILD));
    CHECK(wait(&status) == 2 && WEXITSTATUS(status) == 7);
}

// Nothing ends the first process but itself, what it handles, and whoever is outside.
static void be_first(void) {
    CHECK(raise(SIGTERM) == 0 && kill(1, SIGKILL) == 0 && kill(1, SIGSTOP) == 0);
    handle(SIGUSR1);
    pid_t child = fork();
    if (child == 0) {
        kill(1, SIGKILL);
        kill(1, SIGTERM);
        kill(1, SIGUSR1);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && handled == 1 && sender == 2);
    // What is blocked waits for a handler, and without one it is nothing.
    sigset_t usr2;
    sigemptyset(&usr2), sigaddset(&usr2, SIGUSR2);
    for (int handles = 0; handles < 2; handles++) {
        sigprocmask(SIG_BLOCK, &usr2, NULL);
        if ((child = fork()) == 0)
            _exit(kill(1, SIGUSR2) != 0);
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        if (handles)
            handle(SIGUSR2);
        sigprocmask(SIG_UNBLOCK, &usr2, NULL);
        CHECK(handled == 1 + handles);
    }
    // Orphans become its children.
    int ends[2];
    CHECK(pipe(ends) == 0);
    child = fork();
    if (child == 0) {
        if (fork() == 0) {
            close(ends[1]);
            token_of_pipe(ends[0]);
            _exit(getppid() == 1 ? 3 : 4);
        }
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    close(ends[1]);
    CHECK(wait(&status) == child + 1 && WEXITSTATUS(status) == 3);
}

static int line[2];

// Its descendants end with the first process: nobody has the pipe any more.
static void leave_behind(void) {
    for (int i = 0; i < 3; i++) {
        if (fork() == 0) {
            if (fork() == 0)
                signal(SIGTERM, SIG_IGN);
            for (;;)
                pause();
        }
    }
    // One has ended, and nobody has waited for it.
    if (fork() == 0)
        _exit(0);
    CHECK(write(line[1], "x", 1) == 1);
}

static void test_first(void) {
    in_new(CLONE_NEWPID, see_numbers);
    in_new(CLONE_NEWPID, be_first);
    CHECK(pipe(line) == 0);
    in_new(CLONE_NEWPID, leave_behind);
    close(line[1]);
    struct pollfd end = { .fd = line[0], .events = POLLIN };
    CHECK(token_of_pipe(line[0]) == 'x' && poll(&end, 1, 0) == 1 && token_of_pipe(line[0]) == 0);
    close(line[0]);
    // From outside it is a process like any other.
    int status;
    pid_t child = new_process(CLONE_NEWPID);
    if (child == 0)
        for (;;)
            pause();
    CHECK(child > 1 && kill(child, SIGTERM) == 0 && kill(child, SIGKILL) == 0);
    CHECK(waitpid(child, &status, 0) == child && WTERMSIG(status) == SIGKILL);
}

static void see_proc(void) {
    CHECK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    CHECK(mount("proc", "/proc", "proc", 0, NULL) == 0);
    char target[64] = "";
    CHECK(readlink("/proc/self", target, sizeof target) == 1 && target[0] == '1');
    CHECK(access("/proc/1", F_OK) == 0 && access("/proc/2", F_OK) != 0);
    CHECK(strcmp(status_line("/proc/1/status", "NSpid:"), "NSpid:\t1") == 0);
    CHECK(strcmp(status_line("/proc/1/status", "PPid:"), "PPid:\t0") == 0);
    pid_t child = fork();
    if (child == 0)
        for (;;)
            pause();
    DIR *directory = opendir("/proc");
    int count = 0;
    for (struct dirent *entry; (entry = readdir(directory));)
        count += entry->d_name[0] >= '0' && entry->d_name[0] <= '9';
    closedir(directory);
    CHECK(count == 2 && strncmp(get("/proc/2/stat"), "2 (", 3) == 0);
    CHECK(kill(-1, SIGKILL) == 0 && wait(NULL) == 2);
    // The machine's own is bound, not of this namespace.
    umount("/proc");
}

static void test_proc(void) {
    in_new(CLONE_NEWPID | CLONE_NEWNS, see_proc);
    // Outside all of its numbers are told.
    int hold[2], status;
    CHECK(pipe(hold) == 0);
    pid_t child = new_process(CLONE_NEWPID);
    if (child == 0) {
        close(hold[1]);
        token_of_pipe(hold[0]);
        _exit(0);
    }
    char path[64], wanted[64];
    snprintf(path, sizeof path, "/proc/%d/status", child);
    snprintf(wanted, sizeof wanted, "NSpid:\t%d\t1", child);
    CHECK(strcmp(status_line(path, "NSpid:"), wanted) == 0);
    int fd = syscall(SYS_pidfd_open, child, 0);
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    CHECK(fd >= 0 && strcmp(status_line(path, "NSpid:"), wanted) == 0);
    // Its namespace is entered by children of whoever enters it, and looked at.
    snprintf(path, sizeof path, "/proc/%d/ns/pid", child);
    int of = open(path, O_RDONLY | O_CLOEXEC);
    struct stat own, theirs, parents;
    CHECK(of >= 0 && fstat(of, &theirs) == 0 && stat("/proc/self/ns/pid", &own) == 0 && own.st_ino != theirs.st_ino);
    int parent = ioctl(of, NS_GET_PARENT);
    CHECK(parent >= 0 && fstat(parent, &parents) == 0 && parents.st_ino == own.st_ino);
    CHECK(FAILS(ioctl(parent, NS_GET_PARENT), EPERM) && ioctl(of, NS_GET_NSTYPE) == CLONE_NEWPID);
    pid_t enters = fork();
    if (enters == 0) {
        CHECK(setns(of, CLONE_NEWPID) == 0 && getpid() != 1);
        pid_t inside = fork();
        if (inside == 0)
            _exit(getpid() == 2 && getppid() == 0 && kill(1, 0) == 0 ? 0 : 1);
        CHECK(inside > 2 && waitpid(inside, &status, 0) == inside && status == 0);
        _exit(0);
    }
    CHECK(waitpid(enters, &status, 0) == enters && status == 0);
    close(parent), close(of), close(fd), close(hold[1]), close(hold[0]);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void unshare_numbers(void) {
    CHECK(unshare(CLONE_NEWPID) == 0 && getpid() != 1);
    CHECK(FAILS(unshare(CLONE_NEWPID), EINVAL));
    // Threads and their process are in the same one.
    unsigned long thread = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD;
    CHECK(FAILS(syscall(SYS_clone, thread, 0, 0, 0, 0), EINVAL));
    char target[64];
    CHECK(FAILS(readlink("/proc/self/ns/pid_for_children", target, sizeof target), ENOENT));
    int status;
    pid_t child = fork();
    if (child == 0)
        _exit(getpid() == 1 && getppid() == 0 ? 0 : 1);
    CHECK(child > 1 && waitpid(child, &status, 0) == child && status == 0);
    CHECK(FAILS(fork(), ENOMEM));
}

static void nest(void) {
    // Inside of the first namespace of this kind: 1 there, and something else outside.
    int status;
    pid_t inner = new_process(CLONE_NEWPID);
    if (inner == 0) {
        pid_t child = fork();
        if (child == 0)
            _exit(getpid() == 2 ? 0 : 1);
        CHECK(getpid() == 1 && child == 2 && waitpid(2, &status, 0) == 2 && status == 0);
        fflush(stdout);
        _exit(0);
    }
    CHECK(inner == 2 && waitpid(inner, &status, 0) == inner && status == 0);
}

static void choose_numbers(void) {
    pid_t chosen[2] = { 77, 0 };
    struct clone_args arguments = { .exit_signal = SIGCHLD, .set_tid = (uintptr_t)chosen, .set_tid_size = 1 };
    int status;
    pid_t child = syscall(SYS_clone3, &arguments, sizeof arguments);
    if (child == 0)
        _exit(getpid() == 77 ? 0 : 1);
    CHECK(child == 77 && waitpid(77, &status, 0) == 77 && status == 0);
    chosen[0] = 1;
    CHECK(FAILS(syscall(SYS_clone3, &arguments, sizeof arguments), EEXIST));
    chosen[0] = 0;
    CHECK(FAILS(syscall(SYS_clone3, &arguments, sizeof arguments), EINVAL));
    arguments.set_tid_size = 4;
    pid_t many[4] = { 5, 5, 5, 5 };
    arguments.set_tid = (uintptr_t)many;
    // More than there are namespaces around it: this one is nested once or, where the test itself is in one, twice.
    CHECK(syscall(SYS_clone3, &arguments, sizeof arguments) == -1);
}

static void choose_next(void) {
    put("/proc/sys/kernel/ns_last_pid", "500");
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    CHECK(child == 501 && wait(NULL) == 501 && strcmp(get("/proc/sys/kernel/ns_last_pid"), "501\n") == 0);
}

static void end_by_reboot(void) {
    reboot(RB_AUTOBOOT);
}

static int pair[2], locked, set;

// Numbers of processes that are not visible are 0, and those of visible ones the viewer's.
static void see_others(void) {
    struct ucred peer;
    socklen_t size = sizeof peer;
    CHECK(getsockopt(pair[1], SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.pid == 0);
    char byte, control[CMSG_SPACE(sizeof peer)];
    int on = 1;
    CHECK(setsockopt(pair[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof on) == 0);
    struct iovec part = { &byte, 1 };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
    CHECK(recvmsg(pair[1], &message, 0) == 1);
    memcpy(&peer, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof peer);
    CHECK(peer.pid == 0);
    CHECK(write(pair[1], "b", 1) == 1);
    struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    CHECK(fcntl(locked, F_GETLK, &lock) == 0 && lock.l_type == F_WRLCK && lock.l_pid == 0);
    lock = (struct flock){ .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 5, .l_len = 1 };
    CHECK(fcntl(locked, F_SETLK, &lock) == 0);
    struct sembuf operation = { 0, 1, 0 };
    CHECK(semctl(set, 0, GETPID) == 0 && semop(set, &operation, 1) == 0 && semctl(set, 0, GETPID) == 1);
    CHECK(fcntl(pair[1], F_SETOWN, 1) == 0 && fcntl(pair[1], F_GETOWN) == 1);
    CHECK(FAILS(fcntl(pair[1], F_SETOWN, 99), ESRCH));
    CHECK(write(pair[1], "c", 1) == 1 && token_of_pipe(pair[1]) == 'd');
}

static void test_others(void) {
    char name[] = "/tmp/namespacesXXXXXX";
    struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1 };
    locked = mkstemp(name);
    CHECK(locked >= 0 && unlink(name) == 0 && fcntl(locked, F_SETLK, &lock) == 0);
    set = semget(IPC_PRIVATE, 1, 0600);
    struct sembuf operation = { 0, 1, 0 };
    CHECK(set >= 0 && semop(set, &operation, 1) == 0 && semctl(set, 0, GETPID) == getpid());
    int on = 1;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    CHECK(setsockopt(pair[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof on) == 0 && write(pair[0], "a", 1) == 1);
    int status;
    pid_t child = new_process(CLONE_NEWPID);
    CHECK(child >= 0);
    if (child == 0) {
        see_others();
        fflush(stdout);
        _exit(0);
    }
    char byte, control[CMSG_SPACE(sizeof(struct ucred))];
    struct ucred peer;
    struct iovec part = { &byte, 1 };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
    CHECK(recvmsg(pair[0], &message, 0) == 1 && byte == 'b');
    memcpy(&peer, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof peer);
    CHECK(peer.pid == child && token_of_pipe(pair[0]) == 'c');
    lock = (struct flock){ .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 5, .l_len = 1 };
    CHECK(fcntl(locked, F_GETLK, &lock) == 0 && lock.l_pid == child && semctl(set, 0, GETPID) == child);
    handle(SIGCHLD);
    CHECK(write(pair[0], "d", 1) == 1 && waitpid(child, &status, 0) == child && status == 0);
    CHECK(sender == child && semctl(set, 0, IPC_RMID) == 0);
    signal(SIGCHLD, SIG_DFL);
    close(locked), close(pair[0]), close(pair[1]);
}

static void use_terminal(void) {
    CHECK(setsid() == 1);
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    CHECK(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    int slave = open(ptsname(master), O_RDWR);
    CHECK(slave >= 0 && tcgetsid(slave) == 1 && tcgetpgrp(slave) == 1 && tcgetpgrp(master) == 1);
    pid_t child = fork();
    if (child == 0)
        for (;;)
            pause();
    signal(SIGTTOU, SIG_IGN);
    CHECK(child == 2 && setpgid(2, 2) == 0 && tcsetpgrp(slave, 2) == 0 && tcgetpgrp(slave) == 2);
    CHECK(FAILS(tcsetpgrp(slave, 99), ESRCH));
    // A key's signal goes to that group.
    int status;
    CHECK(write(master, "\3", 1) == 1 && waitpid(2, &status, 0) == 2 && WTERMSIG(status) == SIGINT);
}

static void deepest(void) {
    // This process is in the first namespace inside: 31 more, and none behind those.
    for (int level = 2;; level++) {
        pid_t child = new_process(CLONE_NEWPID);
        if (child < 0) {
            CHECK(errno == ENOSPC && level > 25 && level <= 33);
            return;
        }
        if (child > 0) {
            int status;
            CHECK(waitpid(child, &status, 0) == child);
            _exit(status != 0);
        }
    }
}

static int ready[2], go[2];

// A new process in a user namespace, which goes on when its maps are set from outside.
static pid_t new_user(unsigned long flags, void (*run)(void)) {
    CHECK(pipe(ready) == 0 && pipe(go) == 0);
    pid_t child = new_process(CLONE_NEWUSER | flags);
    if (child == 0) {
        close(go[1]);
        CHECK(token_of_pipe(go[0]) == 0);
        run();
        fflush(stdout);
        _exit(0);
    }
    close(go[0]), close(ready[0]), close(ready[1]);
    return child;
}

static void finish(pid_t child) {
    int status;
    CHECK(close(go[1]) == 0 && waitpid(child, &status, 0) == child);
    if (status != 0) {
        printf("ended with %x\n", status);
        exit(1);
    }
}

static uint64_t effective(void) {
    return strtoull(status_line("/proc/self/status", "CapEff:") + 7, NULL, 16);
}

// What anybody may do: become root of a namespace that has one user.
static void be_alone(void) {
    CHECK(setgroups(0, NULL) == 0 && setresgid(1000, 1000, 1000) == 0 && setresuid(1000, 1000, 1000) == 0);
    // As a program that the user started.
    CHECK(prctl(PR_SET_DUMPABLE, 1) == 0 && effective() == 0);
    CHECK(FAILS(unshare(CLONE_NEWNS), EPERM) && FAILS(unshare(CLONE_NEWPID), EPERM));
    CHECK(unshare(CLONE_NEWUSER) == 0 && effective() == 0x1ffffffffff);
    CHECK(getuid() == OVERFLOW && getgid() == OVERFLOW && strcmp(get("/proc/self/uid_map"), "") == 0);
    CHECK(FAILS(setuid(0), EINVAL) && FAILS(setgroups(0, NULL), EPERM));
    // Other users' ids are not its own to give away.
    CHECK(refused("/proc/self/uid_map", "0 0 1") == EPERM && refused("/proc/self/uid_map", "0 1000 2") == EPERM);
    CHECK(refused("/proc/self/uid_map", "0 1001 1") == EPERM && refused("/proc/self/uid_map", "x") == EINVAL);
    CHECK(refused("/proc/self/gid_map", "0 1000 1") == EPERM);
    put("/proc/self/uid_map", "0 1000 1\n");
    put("/proc/self/setgroups", "deny");
    CHECK(refused("/proc/self/setgroups", "allow") == EPERM && strcmp(get("/proc/self/setgroups"), "deny\n") == 0);
    put("/proc/self/gid_map", "5 1000 1\n");
    CHECK(refused("/proc/self/gid_map", "5 1000 1") == EPERM);
    CHECK(strcmp(get("/proc/self/uid_map"), "         0       1000          1\n") == 0);
    CHECK(getuid() == 0 && geteuid() == 0 && getgid() == 5 && FAILS(setgroups(0, NULL), EPERM));
    CHECK(setuid(0) == 0 && FAILS(setuid(1000), EINVAL) && FAILS(setgid(0), EINVAL) && effective() == 0x1ffffffffff);
    CHECK(strcmp(status_line("/proc/self/status", "Uid:"), "Uid:\t0\t0\t0\t0") == 0);
    // Nobody is there but this user.
    struct stat stat_of;
    CHECK(stat("/etc/passwd", &stat_of) == 0 && stat_of.st_uid == OVERFLOW && stat_of.st_gid == OVERFLOW);
    CHECK(FAILS(chown("/etc/passwd", 0, -1), EPERM) && FAILS(chmod("/etc/passwd", 0600), EPERM));
    CHECK(FAILS(open("secret", O_RDONLY), EACCES) && FAILS(kill(getppid(), SIGTERM), EPERM));
    int fd = open("own", O_CREAT | O_RDWR, 0000);
    CHECK(fd >= 0 && fstat(fd, &stat_of) == 0 && stat_of.st_uid == 0 && stat_of.st_gid == 5);
    CHECK(FAILS(fchown(fd, 1, -1), EINVAL) && FAILS(fchown(fd, 1000, -1), EINVAL) && fchown(fd, 0, 5) == 0);
    close(fd);
    CHECK((fd = open("own", O_RDWR)) >= 0 && close(fd) == 0 && unlink("own") == 0);
    // What is the machine's it may not change, and what is its own it may.
    char name[] = "inside", was[65];
    CHECK(gethostname(was, sizeof was) == 0 && FAILS(sethostname(name, 6), EPERM));
    CHECK(FAILS(mount("tmpfs", "/tmp", "tmpfs", 0, NULL), EPERM) && FAILS(mknod("null", S_IFCHR | 0600, 0x103), EPERM));
    CHECK(unshare(CLONE_NEWUTS | CLONE_NEWNS) == 0 && sethostname(name, 6) == 0);
    CHECK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 && mount("tmpfs", "/tmp", "tmpfs", 0, NULL) == 0);
    CHECK(stat("/tmp", &stat_of) == 0 && stat_of.st_uid == 0 && umount("/tmp") == 0);
    CHECK(FAILS(reboot(RB_ENABLE_CAD), EPERM) && FAILS(setpriority(PRIO_PROCESS, 0, -5), EACCES));
    // Another one inside.
    int of = open("/proc/self/ns/user", O_RDONLY), uts = open("/proc/self/ns/uts", O_RDONLY);
    uid_t owner = 7;
    CHECK(of >= 0 && ioctl(of, NS_GET_OWNER_UID, &owner) == 0 && owner == 0 && FAILS(ioctl(of, NS_GET_PARENT), EPERM));
    int users = ioctl(uts, NS_GET_USERNS);
    struct stat a, b;
    CHECK(users >= 0 && fstat(users, &a) == 0 && fstat(of, &b) == 0 && a.st_ino == b.st_ino);
    CHECK(FAILS(setns(of, CLONE_NEWUSER), EINVAL) && FAILS(ioctl(uts, NS_GET_OWNER_UID, &owner), EINVAL));
    CHECK(unshare(CLONE_NEWUSER) == 0 && getuid() == OVERFLOW && FAILS(sethostname(name, 6), EPERM));
    put("/proc/self/uid_map", "77 0 1");
    CHECK(getuid() == 77 && FAILS(setns(of, CLONE_NEWUSER), EPERM));
    close(of), close(users), close(uts);
}

// Ids that root gave it.
static void be_many(void) {
    CHECK(getuid() == OVERFLOW && setresuid(0, 0, 0) == 0 && setresgid(0, 0, 0) == 0);
    CHECK(strcmp(get("/proc/self/uid_map"), "         0     100000         10\n        10       1000          1\n") == 0);
    gid_t groups[2] = { 3, 4 }, seen[2] = { 0 };
    CHECK(setgroups(2, groups) == 0 && getgroups(2, seen) == 2 && seen[0] == 3 && seen[1] == 4);
    CHECK(FAILS(setgroups(1, &(gid_t){ 500 }), EINVAL));
    int fd = open("many", O_CREAT | O_RDWR, 0644);
    struct stat stat_of;
    CHECK(fd >= 0 && fchown(fd, 10, 9) == 0 && fstat(fd, &stat_of) == 0 && stat_of.st_uid == 10 && stat_of.st_gid == 9);
    close(fd);
    // Programs get the ids of files' owners only where those are the namespace's.
    CHECK(setresuid(5, 5, 5) == 0 && effective() == 0);
    int status;
    pid_t child = fork();
    if (child == 0) {
        execl("./foreign", "foreign", "euid", "5", NULL);
        _exit(99);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    child = fork();
    if (child == 0) {
        execl("./mapped", "mapped", "euid", "7", NULL);
        _exit(99);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void copy(const char *from, const char *to, uid_t owner, mode_t mode) {
    char bytes[65536];
    int in = open(from, O_RDONLY), out = open(to, O_CREAT | O_TRUNC | O_WRONLY, 0755);
    CHECK(in >= 0 && out >= 0);
    for (ssize_t n; (n = read(in, bytes, sizeof bytes)) > 0;)
        CHECK(write(out, bytes, n) == n);
    CHECK(close(in) == 0 && fchown(out, owner, owner) == 0 && fchmod(out, mode) == 0 && close(out) == 0);
}

static void test_users(void) {
    char directory[] = "/tmp/usersXXXXXX";
    CHECK(mkdtemp(directory) && chdir(directory) == 0 && chmod(".", 0777) == 0);
    int fd = open("secret", O_CREAT | O_WRONLY, 0600);
    CHECK(fd >= 0 && close(fd) == 0);
    in_new(0, be_alone);
    copy("/proc/self/exe", "foreign", 0, 04755);
    copy("/proc/self/exe", "mapped", 100007, 04755);
    pid_t child = new_user(0, be_many);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/uid_map", child);
    CHECK(refused(path, "0 100000 10\n5 1000 1") == EINVAL);
    put(path, "0 100000 10\n10 1000 1\n");
    snprintf(path, sizeof path, "/proc/%d/gid_map", child);
    put(path, "0 100000 10\n");
    snprintf(path, sizeof path, "/proc/%d/ns/user", child);
    int of = open(path, O_RDONLY), status;
    CHECK(of >= 0);
    finish(child);
    struct stat stat_of;
    CHECK(stat("many", &stat_of) == 0 && stat_of.st_uid == 1000 && stat_of.st_gid == 100009);
    // Who enters it is what its ids are there, and has all capabilities.
    child = fork();
    if (child == 0) {
        CHECK(setns(of, CLONE_NEWUSER) == 0 && getuid() == OVERFLOW && effective() == 0x1ffffffffff);
        CHECK(setuid(3) == 0 && getuid() == 3);
        fflush(stdout);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    close(of);
    unlink("many"), unlink("secret"), unlink("foreign"), unlink("mapped");
    CHECK(chdir("/") == 0 && rmdir(directory) == 0);
}

static int outer_set, outer_key = 0x5eed;

static void be_apart(void) {
    CHECK(FAILS(semget(outer_key, 1, 0), ENOENT) && FAILS(semctl(outer_set, 0, GETVAL), EINVAL));
    CHECK(FAILS(msgget(outer_key, 0), ENOENT) && FAILS(shmget(outer_key, 1, 0), ENOENT));
    CHECK(FAILS(syscall(SYS_mq_open, "outer", O_RDWR, 0, NULL), ENOENT));
    int set_here = semget(outer_key, 1, IPC_CREAT | IPC_EXCL | 0600);
    int queue = msgget(outer_key, IPC_CREAT | IPC_EXCL | 0600);
    int segment = shmget(outer_key, 4096, IPC_CREAT | IPC_EXCL | 0600);
    CHECK(set_here >= 0 && queue >= 0 && segment >= 0);
    char *memory = shmat(segment, NULL, 0);
    CHECK(memory != (char *)-1);
    strcpy(memory, "there");
    CHECK(syscall(SYS_mq_open, "inner", O_RDWR | O_CREAT, 0600, NULL) >= 0);
    struct sembuf undone = { 0, 3, SEM_UNDO };
    CHECK(semop(set_here, &undone, 1) == 0 && semctl(set_here, 0, GETVAL) == 3);
    int first = open("/proc/self/ns/ipc", O_RDONLY);
    CHECK(first >= 0 && unshare(CLONE_NEWIPC) == 0 && FAILS(semget(outer_key, 1, 0), ENOENT));
    // What is mapped stays, and what was to be undone is.
    CHECK(strcmp(memory, "there") == 0 && setns(first, CLONE_NEWIPC) == 0);
    CHECK(semctl(set_here, 0, GETVAL) == 0 && semget(outer_key, 1, 0) == set_here);
    close(first);
}

static void test_ipc(void) {
    outer_set = semget(outer_key, 1, IPC_CREAT | IPC_EXCL | 0600);
    int queue = msgget(outer_key, IPC_CREAT | IPC_EXCL | 0600), segment = shmget(outer_key, 4096, IPC_CREAT | IPC_EXCL | 0600);
    int named = syscall(SYS_mq_open, "outer", O_RDWR | O_CREAT, 0600, NULL);
    CHECK(outer_set >= 0 && queue >= 0 && segment >= 0 && named >= 0);
    in_new(CLONE_NEWIPC, be_apart);
    CHECK(semctl(outer_set, 0, GETVAL) == 0 && FAILS(syscall(SYS_mq_open, "inner", O_RDWR, 0, NULL), ENOENT));
    CHECK(semctl(outer_set, 0, IPC_RMID) == 0 && msgctl(queue, IPC_RMID, NULL) == 0 && shmctl(segment, IPC_RMID, NULL) == 0);
    CHECK(syscall(SYS_mq_unlink, "outer") == 0 && close(named) == 0);
    CHECK(FAILS(syscall(SYS_clone, CLONE_NEWIPC | CLONE_SYSVSEM | SIGCHLD, 0, 0, 0, 0), EINVAL));
    // A control group's is another one that shows the same.
    struct stat before, behind;
    pid_t child = fork();
    if (child == 0) {
        CHECK(stat("/proc/self/ns/cgroup", &before) == 0 && unshare(CLONE_NEWCGROUP) == 0);
        CHECK(stat("/proc/self/ns/cgroup", &behind) == 0 && before.st_ino != behind.st_ino);
        fflush(stdout);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static int outer_line;

static int abstract(int connects) {
    struct sockaddr_un name = { .sun_family = AF_UNIX, .sun_path = "\0namespaces.c" };
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(fd >= 0);
    socklen_t size = offsetof(struct sockaddr_un, sun_path) + 13;
    int failed = connects ? connect(fd, (struct sockaddr *)&name, size) : bind(fd, (struct sockaddr *)&name, size) || listen(fd, 1);
    return failed ? -1 : fd;
}

static int request(int fd, void *message, unsigned size) {
    struct { struct nlmsghdr head; struct nlmsgerr error; } answer;
    CHECK(send(fd, message, size, 0) == size && recv(fd, &answer, sizeof answer, 0) >= (ssize_t)sizeof answer.head);
    CHECK(answer.head.nlmsg_type == NLMSG_ERROR && answer.head.nlmsg_pid == (unsigned)getpid());
    return -answer.error.error;
}

static void be_elsewhere(void) {
    struct sockaddr_in here = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(7171) };
    int listener = socket(AF_INET, SOCK_STREAM, 0), fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(listener >= 0 && fd >= 0 && FAILS(connect(fd, (struct sockaddr *)&here, sizeof here), ENETUNREACH));
    struct ifreq lo = { .ifr_name = "lo" }, none = { .ifr_name = "eth0" };
    CHECK(ioctl(fd, SIOCGIFFLAGS, &lo) == 0 && !(lo.ifr_flags & IFF_UP) && FAILS(ioctl(fd, SIOCGIFFLAGS, &none), ENODEV));
    int route = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
    struct { struct nlmsghdr head; struct ifaddrmsg address; struct rtattr at; unsigned ip; } add = {
        { sizeof add, RTM_NEWADDR, NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, 1, 0 },
        { AF_INET, 8, IFA_F_PERMANENT, RT_SCOPE_HOST, 1 }, { 8, IFA_LOCAL }, htonl(INADDR_LOOPBACK) };
    struct { struct nlmsghdr head; struct ifinfomsg link; } up = {
        { sizeof up, RTM_NEWLINK, NLM_F_REQUEST | NLM_F_ACK, 2, 0 }, { .ifi_index = 1, .ifi_flags = IFF_UP, .ifi_change = IFF_UP } };
    struct sockaddr_nl any = { .nl_family = AF_NETLINK };
    CHECK(route >= 0 && bind(route, (struct sockaddr *)&any, sizeof any) == 0);
    CHECK(request(route, &add, sizeof add) == 0 && request(route, &add, sizeof add) == EEXIST);
    CHECK(request(route, &up, sizeof up) == 0 && ioctl(fd, SIOCGIFFLAGS, &lo) == 0 && (lo.ifr_flags & IFF_UP));
    // The port is free here, and who listens outside is not heard of.
    CHECK(FAILS(connect(fd, (struct sockaddr *)&here, sizeof here), ECONNREFUSED));
    CHECK(bind(listener, (struct sockaddr *)&here, sizeof here) == 0 && listen(listener, 1) == 0);
    close(fd);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(fd, (struct sockaddr *)&here, sizeof here) == 0);
    int accepted = accept(listener, NULL, NULL);
    CHECK(accepted >= 0 && write(fd, "n", 1) == 1 && token_of_pipe(accepted) == 'n');
    // So are names that are of no file. What was opened outside is what it was.
    CHECK(abstract(1) == -1 && errno == ECONNREFUSED && (fd = abstract(0)) >= 0 && abstract(1) >= 0);
    CHECK(write(outer_line, "o", 1) == 1);
}

static void test_networks(void) {
    struct sockaddr_in here = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(7171) };
    int listener = socket(AF_INET, SOCK_STREAM, 0), named = abstract(0), again = 1;
    CHECK(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &again, sizeof again) == 0);
    outer_line = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(named >= 0 && bind(listener, (struct sockaddr *)&here, sizeof here) == 0 && listen(listener, 1) == 0);
    CHECK(connect(outer_line, (struct sockaddr *)&here, sizeof here) == 0);
    int accepted = accept(listener, NULL, NULL);
    in_new(CLONE_NEWNET | CLONE_NEWPID, be_elsewhere);
    CHECK(token_of_pipe(accepted) == 'o');
    in_new(CLONE_NEWUSER | CLONE_NEWNET, be_elsewhere);
    close(accepted), close(outer_line), close(listener), close(named);
}

// Who may mount in a user namespace may not uncover what was covered, nor loosen what was fixed.
static void be_covered(void) {
    CHECK(mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) == 0);
    CHECK(FAILS(umount2("/tmp/covered", 0), EINVAL) && FAILS(umount2("/tmp/covered", MNT_DETACH), EINVAL));
    CHECK(FAILS(mount("/tmp", "/mnt", NULL, MS_BIND, NULL), EINVAL));
    CHECK(FAILS(mount(NULL, "/tmp/covered", NULL, MS_REMOUNT | MS_BIND, NULL), EPERM));
    CHECK(mount(NULL, "/tmp/covered", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV, NULL) == 0);
    CHECK(mount("/tmp", "/mnt", NULL, MS_BIND | MS_REC, NULL) == 0 && umount2("/mnt", MNT_DETACH) == 0);
}

static void cover(void) {
    CHECK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    CHECK(mount("tmpfs", "/tmp", "tmpfs", 0, NULL) == 0 && mkdir("/tmp/covered", 0755) == 0);
    CHECK(mount("tmpfs", "/tmp/covered", "tmpfs", MS_RDONLY | MS_NOSUID, NULL) == 0);
    in_new(CLONE_NEWUSER | CLONE_NEWNS, be_covered);
    CHECK(umount("/tmp/covered") == 0);
}

// What root of a user namespace gives a file counts in that namespace, and is told so outside of it.
static void test_file_capabilities(void) {
    char path[] = "/tmp/capabilities-XXXXXX";
    int fd = mkstemp(path), status;
    CHECK(fd >= 0 && fchown(fd, 65534, 65534) == 0 && close(fd) == 0);
    unsigned given[5] = { 0x02000001, 1u << 12 }, seen[6] = { 0 };
    pid_t child = new_process(0);
    if (child == 0) {
        CHECK(syscall(SYS_setresgid, 65534, 65534, 65534) == 0 && syscall(SYS_setresuid, 65534, 65534, 65534) == 0);
        CHECK(prctl(PR_SET_DUMPABLE, 1) == 0);
        CHECK(FAILS(setxattr(path, "security.capability", given, sizeof given, 0), EPERM));
        CHECK(unshare(CLONE_NEWUSER) == 0);
        put("/proc/self/uid_map", "0 65534 1");
        // The file's group is none of its own.
        CHECK(FAILS(setxattr(path, "security.capability", given, sizeof given, 0), EPERM));
        put("/proc/self/setgroups", "deny");
        put("/proc/self/gid_map", "0 65534 1");
        CHECK(setxattr(path, "security.capability", given, sizeof given, 0) == 0);
        CHECK(getxattr(path, "security.capability", seen, sizeof seen) == sizeof given && seen[0] == given[0]);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(getxattr(path, "security.capability", seen, sizeof seen) == sizeof seen);
    CHECK(seen[0] == 0x03000001 && seen[1] == given[1] && seen[5] == 65534);
    // Of the machine's own root they count everywhere.
    CHECK(setxattr(path, "security.capability", given, sizeof given, 0) == 0);
    CHECK(getxattr(path, "security.capability", seen, sizeof seen) == sizeof given);
    CHECK(unlink(path) == 0);
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "euid") == 0)
        return geteuid() != (uid_t)atoi(argv[2]);
    setbuf(stdout, NULL);
    test_first();
    test_proc();
    in_new(0, unshare_numbers);
    in_new(CLONE_NEWPID, nest);
    in_new(CLONE_NEWPID, choose_numbers);
    in_new(CLONE_NEWPID, choose_next);
    in_new(CLONE_NEWPID, use_terminal);
    in_new(CLONE_NEWPID, deepest);
    int status;
    pid_t child = new_process(CLONE_NEWPID);
    if (child == 0) {
        end_by_reboot();
        _exit(1);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGHUP);
    test_others();
    CHECK(FAILS(syscall(SYS_clone, CLONE_NEWUSER | CLONE_FS | SIGCHLD, 0, 0, 0, 0), EINVAL));
    test_users();
    test_file_capabilities();
    test_ipc();
    test_networks();
    in_new(CLONE_NEWNS, cover);
    puts("all namespace tests passed");
}
