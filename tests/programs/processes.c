// SPDX-License-Identifier: Apache-2.0 OR MIT
// Processes: fork, execve, waiting, signals between them, groups, shared and copied memory, pipes, orphans. Passes on Linux
// as well.
#define _GNU_SOURCE
#include "check.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/sched.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/times.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static char *own_path;

// A child that runs `body` and exits with what it answers.
#define CHILD(...) ({ \
    fflush(stdout); \
    pid_t child_ = fork(); \
    CHECK(child_ >= 0); \
    if (child_ == 0) { __VA_ARGS__; _exit(0); } \
    child_; \
})

static int status_of(pid_t pid) {
    int status = -1;
    CHECK(waitpid(pid, &status, 0) == pid);
    return status;
}

static void exits_with(pid_t pid, int code) {
    int status = status_of(pid);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == code);
}

static void read_byte(int fd) {
    char byte;
    CHECK(read(fd, &byte, 1) == 1);
}

static void put_byte(int fd) { CHECK(write(fd, "x", 1) == 1); }

static void memory_is_copied_and_shared(void) {
    static int variable = 1;
    int *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    size_t size = 8 << 20;
    unsigned char *large = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED && large != MAP_FAILED);
    memset(large, 7, size);
    char *heap = malloc(100);
    strcpy(heap, "parent");
    exits_with(CHILD({
        for (size_t i = 0; i < size; i += 4096) CHECK(large[i] == 7);
        for (size_t i = 0; i < size; i += 8192) large[i] = 9;
        variable = 2;
        strcpy(heap, "child");
        *shared = 42;
        for (size_t i = 0; i < size; i += 4096) CHECK(large[i] == (i % 8192 ? 7 : 9));
        _exit(5);
    }), 5);
    CHECK(variable == 1 && *shared == 42 && strcmp(heap, "parent") == 0);
    for (size_t i = 0; i < size; i += 4096) CHECK(large[i] == 7);
    // Advice about fork.
    CHECK(madvise(large, 4096, MADV_WIPEONFORK) == 0);
    CHECK(madvise(large + 4096, 4096, MADV_DONTFORK) == 0);
    int status = status_of(CHILD({
        if (large[0] != 0 || large[8192] != 7) _exit(1);
        _exit(large[4096]);
    }));
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    CHECK(large[0] == 7 && large[4096] == 7);
    // Changing rights does not let a process write what another one has.
    exits_with(CHILD({
        CHECK(mprotect(large + 8192, 8192, PROT_READ) == 0);
        CHECK(mprotect(large + 8192, 8192, PROT_READ | PROT_WRITE) == 0);
        large[8192] = 1;
    }), 0);
    CHECK(large[8192] == 7);
    munmap(large, size);
    free(heap);
}

static void waits_tell_what_happened(void) {
    int status;
    CHECK(waitpid(-1, &status, 0) == -1 && errno == ECHILD);
    pid_t pid = CHILD(_exit(300));
    CHECK(waitpid(pid + 1000, &status, 0) == -1 && errno == ECHILD);
    exits_with(pid, 300 & 0xff);
    CHECK(waitpid(pid, &status, 0) == -1 && errno == ECHILD);
    CHECK(kill(pid, 0) == -1 && errno == ESRCH);

    status = status_of(CHILD(raise(SIGTERM)));
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);

    // A wait that may not wait, and looking without taking.
    int go[2];
    CHECK(pipe(go) == 0);
    pid = CHILD({ close(go[1]); read_byte(go[0]); _exit(9); });
    CHECK(waitpid(pid, &status, WNOHANG) == 0);
    siginfo_t info;
    memset(&info, 0x55, sizeof info);
    CHECK(waitid(P_PID, pid, &info, WEXITED | WNOHANG) == 0 && info.si_pid == 0 && info.si_signo == 0);
    put_byte(go[1]);
    CHECK(waitid(P_PID, pid, &info, WEXITED | WNOWAIT) == 0);
    CHECK(info.si_pid == pid && info.si_code == CLD_EXITED && info.si_status == 9 && info.si_signo == SIGCHLD);
    CHECK(kill(pid, 0) == 0);
    struct rusage usage;
    CHECK(wait4(pid, &status, 0, &usage) == pid && WEXITSTATUS(status) == 9 && usage.ru_maxrss > 0);
    close(go[0]);
    close(go[1]);

    // Stopped and continued.
    pid = CHILD(for (;;) pause());
    CHECK(kill(pid, SIGSTOP) == 0);
    CHECK(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
    CHECK(waitpid(pid, &status, WUNTRACED | WNOHANG) == 0);
    CHECK(kill(pid, SIGCONT) == 0);
    CHECK(waitpid(pid, &status, WCONTINUED) == pid && WIFCONTINUED(status));
    CHECK(kill(pid, SIGSTOP) == 0);
    CHECK(waitid(P_PID, pid, &info, WSTOPPED) == 0 && info.si_code == CLD_STOPPED && info.si_status == SIGSTOP);
    CHECK(kill(pid, SIGKILL) == 0);
    status = status_of(pid);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);

    CHECK(waitid(P_ALL, 0, &info, 0) == -1 && errno == EINVAL);
    CHECK(waitid(P_PID, 0, &info, WEXITED) == -1 && errno == EINVAL);
    CHECK(waitpid(0, &status, 0x100) == -1 && errno == EINVAL);

    // Any child, by group.
    pid_t a = CHILD({ setpgid(0, 0); _exit(1); });
    setpgid(a, a);
    CHECK(waitpid(-a, &status, 0) == a && WEXITSTATUS(status) == 1);
}

static volatile sig_atomic_t children_ended;
static siginfo_t last_child;

static void child_ended(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    last_child = *info;
    children_ended++;
}

static void parents_hear_of_children(void) {
    struct sigaction action = {.sa_sigaction = child_ended, .sa_flags = SA_SIGINFO | SA_RESTART}, old;
    CHECK(sigaction(SIGCHLD, &action, &old) == 0);
    sigset_t chld, before;
    sigemptyset(&chld);
    sigaddset(&chld, SIGCHLD);
    CHECK(sigprocmask(SIG_BLOCK, &chld, &before) == 0);
    pid_t pid = CHILD(_exit(4));
    while (!children_ended) sigsuspend(&before);
    CHECK(last_child.si_pid == pid && last_child.si_code == CLD_EXITED && last_child.si_status == 4);
    CHECK(last_child.si_uid == getuid());
    exits_with(pid, 4);
    // A child that stops is told of, too, unless nobody wants to know.
    children_ended = 0;
    pid = CHILD(for (;;) pause());
    CHECK(kill(pid, SIGSTOP) == 0);
    while (!children_ended) sigsuspend(&before);
    CHECK(last_child.si_code == CLD_STOPPED && last_child.si_status == SIGSTOP);
    CHECK(kill(pid, SIGKILL) == 0);
    status_of(pid);
    sigset_t none;
    struct timespec now = {0};
    while (sigtimedwait(&chld, NULL, &now) > 0) {}
    CHECK(sigprocmask(SIG_SETMASK, &before, NULL) == 0);

    // Ignored, children leave nothing to wait for.
    signal(SIGCHLD, SIG_IGN);
    pid = CHILD(_exit(1));
    CHECK(waitpid(pid, NULL, 0) == -1 && errno == ECHILD);
    action = (struct sigaction){.sa_handler = SIG_DFL, .sa_flags = SA_NOCLDWAIT};
    CHECK(sigaction(SIGCHLD, &action, NULL) == 0);
    pid = CHILD(_exit(1));
    CHECK(waitpid(-1, NULL, 0) == -1 && errno == ECHILD);
    CHECK(sigaction(SIGCHLD, &old, NULL) == 0);
    (void)none;
}

static void signals_go_between_processes(void) {
    int ready[2];
    CHECK(pipe(ready) == 0);
    pid_t pid = CHILD({
        sigset_t usr;
        sigemptyset(&usr);
        sigaddset(&usr, SIGUSR1);
        sigaddset(&usr, SIGRTMIN + 1);
        sigprocmask(SIG_BLOCK, &usr, NULL);
        put_byte(ready[1]);
        siginfo_t info;
        CHECK(sigwaitinfo(&usr, &info) == SIGUSR1);
        CHECK(info.si_pid == getppid() && info.si_code == SI_USER && info.si_uid == getuid());
        put_byte(ready[1]);
        CHECK(sigwaitinfo(&usr, &info) == SIGRTMIN + 1);
        CHECK(info.si_code == SI_QUEUE && info.si_value.sival_int == 77);
        _exit(11);
    });
    read_byte(ready[0]);
    CHECK(kill(pid, SIGUSR1) == 0);
    read_byte(ready[0]);
    union sigval value = {.sival_int = 77};
    CHECK(sigqueue(pid, SIGRTMIN + 1, value) == 0);
    exits_with(pid, 11);
    // A group hears together; kill(-1) is for the brave.
    pid_t first = CHILD({ setpgid(0, 0); for (;;) pause(); });
    setpgid(first, first);
    pid_t second = CHILD({ setpgid(0, first); for (;;) pause(); });
    setpgid(second, first);
    CHECK(getpgid(second) == first && getsid(second) == getsid(0));
    CHECK(kill(-first, SIGTERM) == 0);
    CHECK(WTERMSIG(status_of(first)) == SIGTERM && WTERMSIG(status_of(second)) == SIGTERM);
    CHECK(kill(-first, SIGTERM) == -1 && errno == ESRCH);
    // The own group, with who sends.
    exits_with(CHILD({
        setpgid(0, 0);
        sigset_t blocked;
        sigemptyset(&blocked);
        sigaddset(&blocked, SIGUSR1);
        sigprocmask(SIG_BLOCK, &blocked, NULL);
        CHECK(kill(0, SIGUSR1) == 0);
        int got;
        CHECK(sigwait(&blocked, &got) == 0 && got == SIGUSR1);
    }), 0);
    // Another user may not.
    if (getuid() == 0) {
        pid_t victim = CHILD(for (;;) pause());
        exits_with(CHILD({
            CHECK(setresuid(1000, 1000, 1000) == 0);
            CHECK(kill(victim, SIGTERM) == -1 && errno == EPERM);
            CHECK(kill(victim, 0) == -1 && errno == EPERM);
        }), 0);
        kill(victim, SIGKILL);
        status_of(victim);
    }
    close(ready[0]);
    close(ready[1]);
    // A descriptor for signals tells its reader of the reader's.
    sigset_t usr;
    sigemptyset(&usr);
    sigaddset(&usr, SIGUSR2);
    CHECK(sigprocmask(SIG_BLOCK, &usr, NULL) == 0);
    int fd = signalfd(-1, &usr, SFD_NONBLOCK);
    CHECK(fd >= 0);
    exits_with(CHILD({
        raise(SIGUSR2);
        struct signalfd_siginfo got;
        CHECK(read(fd, &got, sizeof got) == sizeof got && got.ssi_pid == (uint32_t)getpid());
    }), 0);
    struct signalfd_siginfo got;
    CHECK(read(fd, &got, sizeof got) == -1 && errno == EAGAIN);
    close(fd);
    CHECK(sigprocmask(SIG_UNBLOCK, &usr, NULL) == 0);
}

static void groups_and_sessions(void) {
    pid_t self = getpid();
    exits_with(CHILD({
        CHECK(getpgrp() == getpgid(getppid()) && getsid(0) == getsid(getppid()));
        CHECK(setsid() == getpid() && getpgrp() == getpid() && getsid(0) == getpid());
        CHECK(setsid() == -1 && errno == EPERM);
        CHECK(setpgid(0, 0) == -1 && errno == EPERM);
    }), 0);
    pid_t child = CHILD(for (;;) pause());
    CHECK(setpgid(child, 999999) == -1 && errno == EPERM);
    CHECK(setpgid(child, child) == 0 && getpgid(child) == child);
    CHECK(setpgid(child, 0) == 0);
    CHECK(setpgid(child, -1) == -1 && errno == EINVAL);
    exits_with(CHILD(CHECK(setpgid(child, 0) == -1 && errno == ESRCH)), 0);
    kill(child, SIGKILL);
    status_of(child);
    // After execve it is too late.
    int gate[2];
    CHECK(pipe2(gate, O_CLOEXEC) == 0);
    child = CHILD({ execl(own_path, own_path, "sleep", NULL); });
    close(gate[1]);
    char byte;
    CHECK(read(gate[0], &byte, 1) == 0);
    CHECK(setpgid(child, child) == -1 && errno == EACCES);
    close(gate[0]);
    kill(child, SIGKILL);
    status_of(child);
    CHECK(getpid() == self);
}

static void orphans_get_another_parent(void) {
    int pipes[2];
    CHECK(pipe(pipes) == 0);
    CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    pid_t self = getpid();
    pid_t middle = CHILD({
        pid_t middle_pid = getpid();
        pid_t last = fork();
        if (last == 0) {
            while (getppid() == middle_pid) usleep(1000);
            CHECK(getppid() == self);
            _exit(21);
        }
        CHECK(write(pipes[1], &last, sizeof last) == sizeof last);
        _exit(0);
    });
    pid_t last;
    CHECK(read(pipes[0], &last, sizeof last) == sizeof last);
    exits_with(middle, 0);
    exits_with(last, 21);
    CHECK(prctl(PR_SET_CHILD_SUBREAPER, 0) == 0);
    // A signal at the parent's death.
    middle = CHILD({
        int up[2];
        CHECK(pipe(up) == 0);
        if (fork() == 0) {
            close(pipes[0]);
            CHECK(prctl(PR_SET_PDEATHSIG, SIGUSR1) == 0);
            sigset_t usr;
            sigemptyset(&usr);
            sigaddset(&usr, SIGUSR1);
            sigprocmask(SIG_BLOCK, &usr, NULL);
            put_byte(up[1]);
            int got;
            CHECK(sigwait(&usr, &got) == 0 && got == SIGUSR1);
            put_byte(pipes[1]);
            _exit(0);
        }
        read_byte(up[0]);
    });
    exits_with(middle, 0);
    read_byte(pipes[0]);
    close(pipes[0]);
    close(pipes[1]);
    // Its child is everybody's, and so the first process'.
    if (self == 1) CHECK(waitpid(-1, NULL, 0) > 0);
}

static void descriptors_are_copies_of_the_same_files(void) {
    char name[] = "/tmp/processesXXXXXX";
    int fd = mkstemp(name);
    CHECK(fd >= 0 && unlink(name) == 0);
    CHECK(write(fd, "0123456789", 10) == 10 && lseek(fd, 2, SEEK_SET) == 2);
    exits_with(CHILD({
        char bytes[3];
        CHECK(read(fd, bytes, 3) == 3 && memcmp(bytes, "234", 3) == 0);
        CHECK(fcntl(fd, F_SETFL, O_APPEND) == 0);
        CHECK(fcntl(fd, F_SETFD, FD_CLOEXEC) == 0);
        close(fd);
    }), 0);
    CHECK(lseek(fd, 0, SEEK_CUR) == 5);
    CHECK(fcntl(fd, F_GETFL) & O_APPEND);
    CHECK(fcntl(fd, F_GETFD) == 0);
    // Record locks are a process' own; flock's are the description's.
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 5};
    CHECK(fcntl(fd, F_SETLK, &lock) == 0);
    CHECK(flock(fd, LOCK_EX) == 0);
    exits_with(CHILD({
        struct flock wanted = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
        CHECK(fcntl(fd, F_SETLK, &wanted) == -1 && (errno == EAGAIN || errno == EACCES));
        CHECK(fcntl(fd, F_GETLK, &wanted) == 0 && wanted.l_type == F_WRLCK && wanted.l_pid == getppid());
        CHECK(flock(fd, LOCK_EX | LOCK_NB) == 0);
    }), 0);
    // The lock of a process goes with it, and who waits for it gets it.
    pid_t holder = CHILD({
        struct flock own = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 7, .l_len = 1};
        CHECK(fcntl(fd, F_SETLK, &own) == 0);
        for (;;) pause();
    });
    struct flock there = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 7, .l_len = 1};
    do {
        there.l_type = F_WRLCK;
        CHECK(fcntl(fd, F_GETLK, &there) == 0);
        sched_yield();
    } while (there.l_type == F_UNLCK);
    pid_t killer = CHILD({ usleep(20000); kill(holder, SIGKILL); });
    there = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 7, .l_len = 1};
    CHECK(fcntl(fd, F_SETLKW, &there) == 0);
    status_of(holder);
    exits_with(killer, 0);
    close(fd);
    // Working directory and umask are copies.
    umask(022);
    exits_with(CHILD({ CHECK(chdir("/tmp") == 0); umask(077); }), 0);
    CHECK(umask(022) == 022);
    // End of file comes with the last writer.
    int pipes[2];
    CHECK(pipe(pipes) == 0);
    pid_t writer = CHILD({ close(pipes[0]); CHECK(write(pipes[1], "hello", 5) == 5); });
    close(pipes[1]);
    char bytes[10];
    size_t got = 0;
    ssize_t n;
    while ((n = read(pipes[0], bytes + got, sizeof bytes - got)) > 0) got += n;
    CHECK(n == 0 && got == 5);
    exits_with(writer, 0);
    close(pipes[0]);
    // A pipe nobody reads.
    CHECK(pipe(pipes) == 0);
    close(pipes[0]);
    int status = status_of(CHILD({ put_byte(pipes[1]); }));
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE);
    close(pipes[1]);
    // Descriptors and identities through a socket.
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    int on = 1;
    CHECK(setsockopt(pair[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof on) == 0);
    pid_t sender = CHILD({
        int inner[2];
        CHECK(pipe(inner) == 0);
        CHECK(write(inner[1], "passed", 6) == 6);
        char control[CMSG_SPACE(sizeof(int))] = {0};
        struct iovec iov = {.iov_base = "f", .iov_len = 1};
        struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(header), &inner[0], sizeof(int));
        CHECK(sendmsg(pair[1], &message, 0) == 1);
    });
    char byte, control[256];
    struct iovec iov = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    CHECK(recvmsg(pair[0], &message, 0) == 1);
    int passed = -1;
    pid_t named = 0;
    for (struct cmsghdr *h = CMSG_FIRSTHDR(&message); h; h = CMSG_NXTHDR(&message, h)) {
        if (h->cmsg_type == SCM_RIGHTS) memcpy(&passed, CMSG_DATA(h), sizeof passed);
        if (h->cmsg_type == SCM_CREDENTIALS) named = ((struct ucred *)CMSG_DATA(h))->pid;
    }
    exits_with(sender, 0);
    CHECK(passed >= 0 && named == sender);
    CHECK(read(passed, bytes, sizeof bytes) == 6 && memcmp(bytes, "passed", 6) == 0);
    close(passed);
    close(pair[0]);
    close(pair[1]);
}

static void programs_are_run(void) {
    // Close-on-exec, dispositions, arguments and environment.
    int pipes[2], kept[2];
    CHECK(pipe2(pipes, O_CLOEXEC) == 0 && pipe(kept) == 0);
    signal(SIGUSR1, SIG_IGN);
    char number[20], closed[20];
    snprintf(number, sizeof number, "%d", kept[1]);
    snprintf(closed, sizeof closed, "%d", pipes[1]);
    pid_t pid = CHILD({ execl(own_path, own_path, "report", number, closed, NULL); });
    exits_with(pid, 33);
    char bytes[3];
    CHECK(read(kept[0], bytes, 3) == 3 && memcmp(bytes, "yes", 3) == 0);
    signal(SIGUSR1, SIG_DFL);
    close(kept[0]), close(kept[1]), close(pipes[0]), close(pipes[1]);
    // A thread of a child replaces all of it.
    pid = CHILD({ execl(own_path, own_path, "threads", NULL); });
    exits_with(pid, 34);
    // posix_spawn is vfork in disguise; a program that is not there is told of at once.
    char *arguments[] = {own_path, "exit", "17", NULL};
    CHECK(posix_spawn(&pid, own_path, NULL, NULL, arguments, environ) == 0);
    exits_with(pid, 17);
    CHECK(posix_spawn(&pid, "/nothing/there", NULL, NULL, arguments, environ) == ENOENT);
    static volatile int seen;
    seen = 0;
    pid = vfork();
    if (pid == 0) {
        seen = 1;
        _exit(3);
    }
    CHECK(seen == 1);
    exits_with(pid, 3);
    FILE *shell = popen("echo one two | wc -w; exit 6", "r");
    if (access("/bin/sh", X_OK) == 0) {
        int words = 0;
        CHECK(fscanf(shell, "%d", &words) == 1 && words == 2);
        CHECK(WEXITSTATUS(pclose(shell)) == 6);
        CHECK(system("exit 4") == 4 << 8);
    } else if (shell) {
        pclose(shell);
    }
}

static int raw_clone3(struct clone_args *arguments) { return syscall(SYS_clone3, arguments, sizeof *arguments); }

static void clones_of_all_kinds(void) {
    // A descriptor of a process: readable at its end, sends signals, is waited for.
    int fd = -1;
    struct clone_args arguments = {.flags = CLONE_PIDFD, .pidfd = (uintptr_t)&fd, .exit_signal = SIGCHLD};
    int pid = raw_clone3(&arguments);
    CHECK(pid >= 0);
    if (pid == 0) for (;;) pause();
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    CHECK(poll(&poll_fd, 1, 0) == 0);
    CHECK(fcntl(fd, F_GETFD) == FD_CLOEXEC);
    CHECK(syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0) == 0);
    CHECK(poll(&poll_fd, 1, 10000) == 1 && poll_fd.revents == POLLIN);
    siginfo_t info;
    CHECK(waitid(P_PIDFD, fd, &info, WEXITED) == 0 && info.si_pid == pid && info.si_code == CLD_KILLED);
    CHECK(syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0) == -1 && errno == ESRCH);
    close(fd);
    // Another signal than SIGCHLD: only __WALL or __WCLONE waits for it.
    arguments = (struct clone_args){.exit_signal = 0};
    pid = raw_clone3(&arguments);
    if (pid == 0) _exit(8);
    CHECK(waitpid(pid, NULL, 0) == -1 && errno == ECHILD);
    int status;
    CHECK(waitpid(pid, &status, __WALL) == pid && WEXITSTATUS(status) == 8);
    // Numbers in memory: the child's, and the child's own view of it.
    pid_t parent_tid = 0;
    static pid_t child_tid;
    child_tid = 0;
    pid = syscall(SYS_clone, CLONE_PARENT_SETTID | CLONE_CHILD_SETTID | SIGCHLD, 0, &parent_tid, &child_tid, 0);
    if (pid == 0) _exit(child_tid == getpid() ? 0 : 1);
    CHECK(parent_tid == pid && child_tid == 0);
    exits_with(pid, 0);
    // Descriptors and places that are shared.
    int null = open("/dev/null", O_RDONLY);
    pid = syscall(SYS_clone, CLONE_FILES | CLONE_FS | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) {
        close(null);
        umask(0);
        _exit(0);
    }
    exits_with(pid, 0);
    CHECK(close(null) == -1 && errno == EBADF);
    CHECK(umask(022) == 0);
    // Handlers that are cleared.
    struct sigaction action = {.sa_sigaction = child_ended, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    arguments = (struct clone_args){.flags = CLONE_CLEAR_SIGHAND, .exit_signal = SIGCHLD};
    pid = raw_clone3(&arguments);
    if (pid == 0) {
        struct sigaction now;
        sigaction(SIGUSR1, NULL, &now);
        _exit(now.sa_handler == SIG_DFL ? 0 : 1);
    }
    exits_with(pid, 0);
    signal(SIGUSR1, SIG_DFL);
    // What does not go together.
    CHECK(syscall(SYS_clone, CLONE_THREAD | SIGCHLD, 0, 0, 0, 0) == -1 && errno == EINVAL);
    CHECK(syscall(SYS_clone, CLONE_SIGHAND | SIGCHLD, 0, 0, 0, 0) == -1 && errno == EINVAL);
    arguments = (struct clone_args){.flags = CLONE_CLEAR_SIGHAND | CLONE_SIGHAND | CLONE_VM};
    CHECK(raw_clone3(&arguments) == -1 && errno == EINVAL);
    arguments = (struct clone_args){.exit_signal = 65};
    CHECK(raw_clone3(&arguments) == -1 && errno == EINVAL);
}

static void futexes_are_shared_where_memory_is(void) {
    uint32_t *word = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    static uint32_t own;
    CHECK(word != MAP_FAILED);
    pid_t pid = CHILD({
        while (__atomic_load_n(word, __ATOMIC_SEQ_CST) == 0) syscall(SYS_futex, word, FUTEX_WAIT, 0, NULL, NULL, 0);
        _exit(0);
    });
    usleep(10000);
    __atomic_store_n(word, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
    exits_with(pid, 0);
    // The same address in private memory is another word.
    pid = CHILD({
        struct timespec moment = {.tv_nsec = 50000000};
        int result = syscall(SYS_futex, &own, FUTEX_WAIT, 0, &moment, NULL, 0);
        _exit(result == -1 && errno == ETIMEDOUT ? 0 : 1);
    });
    for (int i = 0; i < 20; i++) {
        CHECK(syscall(SYS_futex, &own, FUTEX_WAKE, 1, NULL, NULL, 0) == 0);
        usleep(1000);
    }
    exits_with(pid, 0);
    // A lock of two processes, whose owner dies.
    pthread_mutex_t *lock = (pthread_mutex_t *)(word + 16);
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(lock, &attributes);
    exits_with(CHILD(pthread_mutex_lock(lock)), 0);
    CHECK(pthread_mutex_lock(lock) == EOWNERDEAD);
    CHECK(pthread_mutex_consistent(lock) == 0 && pthread_mutex_unlock(lock) == 0);
    munmap(word, 4096);
    // System V shared memory counts who has it.
    int id = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);
    if (id >= 0) {
        int *memory = shmat(id, NULL, 0);
        struct shmid_ds status;
        int ready[2];
        CHECK(pipe(ready) == 0);
        pid = CHILD({ *memory = 5; close(ready[1]); char byte; read(ready[0], &byte, 1); });
        close(ready[0]);
        CHECK(shmctl(id, IPC_STAT, &status) == 0 && status.shm_nattch == 2);
        close(ready[1]);
        exits_with(pid, 0);
        CHECK(*memory == 5);
        CHECK(shmctl(id, IPC_STAT, &status) == 0 && status.shm_nattch == 1);
        CHECK(shmctl(id, IPC_RMID, NULL) == 0 && shmdt(memory) == 0);
    }
    // A semaphore that a process took and never gave back.
    id = semget(IPC_PRIVATE, 2, IPC_CREAT | 0600);
    if (id >= 0) {
        struct sembuf give = {.sem_num = 1, .sem_op = 3}, take = {.sem_num = 1, .sem_op = -2, .sem_flg = SEM_UNDO};
        CHECK(semop(id, &give, 1) == 0);
        exits_with(CHILD(CHECK(semop(id, &take, 1) == 0 && semctl(id, 1, GETVAL) == 1)), 0);
        CHECK(semctl(id, 1, GETVAL) == 3);
        CHECK(semctl(id, 0, IPC_RMID) == 0);
    }
}

static void *spins(void *argument) {
    volatile int *stop = argument;
    while (!*stop) sched_yield();
    return NULL;
}

static void processes_of_threads(void) {
    volatile int stop = 0;
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) CHECK(pthread_create(&threads[i], NULL, spins, (void *)&stop) == 0);
    // Only the thread that forks is there in the child.
    for (int i = 0; i < 10; i++) {
        exits_with(CHILD({
            char path[64];
            CHECK(access("/proc/self/task", R_OK) == 0);
            snprintf(path, sizeof path, "/proc/self/task/%d", getpid());
            struct stat status;
            CHECK(stat("/proc/self/task", &status) == 0);
            CHECK(syscall(SYS_gettid) == getpid());
        }), 0);
    }
    // A process of several threads ends at once.
    int status = status_of(CHILD({
        pthread_t other;
        volatile int never = 0;
        pthread_create(&other, NULL, spins, (void *)&never);
        pthread_create(&other, NULL, spins, (void *)&never);
        kill(getpid(), SIGKILL);
        for (;;) pause();
    }));
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    exits_with(CHILD({
        pthread_t other;
        volatile int never = 0;
        pthread_create(&other, NULL, spins, (void *)&never);
        exit(12);
    }), 12);
    stop = 1;
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
}

static void tables_show_each_process(void) {
    pid_t pid = CHILD({ prctl(PR_SET_NAME, "a (child)"); for (;;) pause(); });
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    for (;;) {
        FILE *file = fopen(path, "r");
        CHECK(file && fgets(line, sizeof line, file));
        fclose(file);
        if (strstr(line, "(a (child)) S")) break;
        sched_yield();
    }
    int shown, parent, group, session;
    CHECK(sscanf(line, "%d", &shown) == 1 && shown == pid);
    CHECK(sscanf(strrchr(line, ')') + 4, "%d %d %d", &parent, &group, &session) == 3);
    CHECK(parent == getpid() && group == getpgrp() && session == getsid(0));
    snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
    int fd = open(path, O_RDONLY);
    ssize_t n = read(fd, line, sizeof line);
    CHECK(n > 0 && strcmp(line, own_path) == 0);
    close(fd);
    snprintf(path, sizeof path, "/proc/%d/exe", pid);
    n = readlink(path, line, sizeof line);
    CHECK(n > 0);
    // Its memory, from here.
    static int value;
    value = 1234;
    pid_t other = CHILD({ value = 4321; for (;;) pause(); });
    int copy = 0;
    struct iovec here = {.iov_base = &copy, .iov_len = sizeof copy}, there = {.iov_base = &value, .iov_len = sizeof value};
    do {
        CHECK(process_vm_readv(other, &here, 1, &there, 1, 0) == sizeof copy);
    } while (copy == 1234);
    CHECK(copy == 4321 && value == 1234);
    kill(other, SIGKILL);
    status_of(other);
    // A zombie shows as one.
    kill(pid, SIGKILL);
    siginfo_t info;
    CHECK(waitid(P_PID, pid, &info, WEXITED | WNOWAIT) == 0);
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    CHECK(file && fgets(line, sizeof line, file) && strstr(line, ") Z "));
    fclose(file);
    status_of(pid);
    CHECK(access(path, F_OK) == -1 && errno == ENOENT);
}

static void resources_are_counted(void) {
    struct rusage before, after;
    CHECK(getrusage(RUSAGE_CHILDREN, &before) == 0);
    exits_with(CHILD({
        struct timespec end;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
        CHECK(end.tv_sec == 0);
        do clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
        while (end.tv_sec == 0 && end.tv_nsec < 30000000);
        struct rlimit limit = {.rlim_cur = 77, .rlim_max = 77};
        CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    }), 0);
    CHECK(getrusage(RUSAGE_CHILDREN, &after) == 0);
    long used = (after.ru_utime.tv_sec - before.ru_utime.tv_sec) * 1000000 + after.ru_utime.tv_usec - before.ru_utime.tv_usec +
                (after.ru_stime.tv_sec - before.ru_stime.tv_sec) * 1000000 + after.ru_stime.tv_usec - before.ru_stime.tv_usec;
    CHECK(used >= 20000);
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != 77);
    if (getuid() != 0) return;
    // A limit of processes for those who are not the superuser.
    exits_with(CHILD({
        struct rlimit few = {.rlim_cur = 3, .rlim_max = 3};
        CHECK(setrlimit(RLIMIT_NPROC, &few) == 0);
        CHECK(setresuid(4711, 4711, 4711) == 0);
        pid_t one = fork();
        if (one == 0) for (;;) pause();
        pid_t two = fork();
        if (two == 0) for (;;) pause();
        CHECK(one > 0 && two > 0);
        CHECK(fork() == -1 && errno == EAGAIN);
        kill(one, SIGKILL);
        status_of(one);
        pid_t three = fork();
        if (three == 0) _exit(0);
        CHECK(three > 0);
        status_of(three);
        kill(two, SIGKILL);
        status_of(two);
    }), 0);
}

static void storm(void) {
    // Numbers are used again, and nothing is left of any of them.
    for (int i = 0; i < 300; i++) {
        pid_t pids[8];
        for (int k = 0; k < 8; k++) pids[k] = CHILD({ if (k & 1) raise(SIGKILL); _exit(k); });
        for (int k = 0; k < 8; k++) {
            int status = status_of(pids[k]);
            CHECK(k & 1 ? WIFSIGNALED(status) : WEXITSTATUS(status) == k);
        }
        if (i % 20 == 0) {
            pid_t pid;
            char *arguments[] = {own_path, "exit", "0", NULL};
            CHECK(posix_spawn(&pid, own_path, NULL, NULL, arguments, environ) == 0);
            exits_with(pid, 0);
        }
    }
    CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
}

static void *runs_another(void *argument) {
    (void)argument;
    execl(own_path, own_path, "exit", "34", NULL);
    return NULL;
}

static int as_child(char **words) {
    if (strcmp(words[0], "exit") == 0) return atoi(words[1]);
    if (strcmp(words[0], "sleep") == 0) for (;;) pause();
    if (strcmp(words[0], "report") == 0) {
        struct sigaction action;
        CHECK(sigaction(SIGUSR1, NULL, &action) == 0 && action.sa_handler == SIG_IGN);
        CHECK(fcntl(atoi(words[2]), F_GETFD) == -1 && errno == EBADF);
        CHECK(write(atoi(words[1]), "yes", 3) == 3);
        return 33;
    }
    if (strcmp(words[0], "threads") == 0) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, runs_another, NULL) == 0);
        pthread_join(thread, NULL);
    }
    return 99;
}

int main(int count, char **words) {
    own_path = words[0];
    if (count > 1) return as_child(words + 1);
    memory_is_copied_and_shared();
    waits_tell_what_happened();
    parents_hear_of_children();
    signals_go_between_processes();
    groups_and_sessions();
    orphans_get_another_parent();
    descriptors_are_copies_of_the_same_files();
    programs_are_run();
    clones_of_all_kinds();
    futexes_are_shared_where_memory_is();
    processes_of_threads();
    tables_show_each_process();
    resources_are_counted();
    storm();
    puts("all process tests passed");
    return 0;
}
