// SPDX-License-Identifier: Apache-2.0 OR MIT
// Random sequences of calls (sequences.h) on children and the descriptors that stand for them: clone(2) and clone3(2) with flags, exit
// signals and sizes of all sorts, pidfd_open(2), pidfd_send_signal(2), pidfd_getfd(2), what is waited for and what is pending, poll(2).
// Up to six children do what they are told; they and their descriptors are told by slot.
#include "sequences.h"
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { CHILDREN = 6, DESCRIPTORS = 8, FIRST = 40, REAL_TIME = 34 };

static struct {
    pid_t pid;
    int order[2], answer[2];
    int has_ended;
} children[CHILDREN];
// Whom a descriptor is about: -1 nobody; they have the numbers from FIRST on.
static int about[DESCRIPTORS];
static pid_t self;

static const char *who(pid_t pid) {
    static char text[4][16];
    static int next;
    char *to = text[next++ % 4];
    for (int i = 0; i < CHILDREN; i++)
        if (children[i].pid == pid && pid > 0)
            return sprintf(to, "child %d", i), to;
    return pid == self ? "itself" : pid == 0 ? "0" : pid < 0 ? "-1" : "another";
}

static pid_t some_pid(void) {
    int slot = (int)below(CHILDREN + 2);
    if (slot == CHILDREN)
        return self;
    return slot > CHILDREN ? (one_in(2) ? 0 : one_in(2) ? -1 : 1 << 22) : children[slot].pid;
}

static int some_descriptor(void) {
    int slot = (int)below(DESCRIPTORS);
    int fd = one_in(12) ? (one_in(2) ? -1 : 0) : FIRST + slot;
    say(" fd %d", fd < FIRST ? fd : slot);
    return fd;
}

static int some_signal(void) {
    static const int all[] = {0, 0, SIGUSR1, SIGUSR1, SIGTERM, SIGKILL, SIGSTOP, SIGCONT, SIGCHLD, REAL_TIME, 64, 65, -1};
    return ONE_OF(all);
}

// A child: does as it is told, a letter at a time.
static void serve(int slot) {
    char letter, ready = 'r';
    close(children[slot].order[1]);
    while (write(children[slot].answer[1], &ready, 1) == 1 && read(children[slot].order[0], &letter, 1) == 1) {
        switch (letter) {
        case 'e': _exit(slot + 1);
        case 'k': raise(SIGKILL); break;
        case 's': raise(SIGSEGV); break;
        case 'u': umask(0123); break;
        case 'c': close(FIRST + slot); break;
        }
    }
    _exit(99);
}

// Waits until it has done what it was told, or has ended.
static void settled(int slot) {
    struct pollfd file = {children[slot].answer[0], POLLIN, 0};
    char byte;
    poll(&file, 1, 5000);
    if (read(children[slot].answer[0], &byte, 1) == 1)
        return;
    siginfo_t info;
    waitid(P_PID, (id_t)children[slot].pid, &info, WEXITED | WNOWAIT | __WALL);
    children[slot].has_ended = 1;
}

static int free_child(void) {
    for (int i = 0; i < CHILDREN; i++)
        if (children[i].pid == 0)
            return i;
    return -1;
}

static void makes(void) {
    static const uint64_t flags_of[] = {CLONE_PIDFD, CLONE_PIDFD, CLONE_PARENT_SETTID, CLONE_CHILD_SETTID, CLONE_CHILD_CLEARTID, CLONE_FS, CLONE_SYSVSEM, CLONE_CLEAR_SIGHAND, CLONE_PARENT, CLONE_UNTRACED, CLONE_PTRACE, CLONE_IO, CLONE_DETACHED, CLONE_NEWUTS, CLONE_SIGHAND, CLONE_THREAD, 1ull << 40, CLONE_NEWTIME, 0x80};
    static const uint64_t signals[] = {SIGCHLD, SIGCHLD, SIGCHLD, SIGUSR1, 0, 64, 65, 1ull << 32, REAL_TIME};
    static const size_t sizes[] = {88, 88, 88, 80, 64, 72, 56, 96, 0, 4096, 5000, 65, 87};
    static struct { struct clone_args arguments; char behind[4096]; } room;
    int slot = free_child(), is_old = one_in(3), fd = 60, tid = 0;
    uint64_t flags = 0;
    for (int i = (int)below(3); i > 0; i--)
        flags |= ONE_OF(flags_of);
    uint64_t signal = ONE_OF(signals);
    size_t size = one_in(4) ? ONE_OF(sizes) : 88;
    int set_tid = one_in(10), odd = (int)below(14);
    if (slot < 0) {
        say("no slot\n");
        return;
    }
    if (pipe2(children[slot].order, 0) || pipe2(children[slot].answer, O_NONBLOCK))
        abort();
    fflush(stdout);
    long pid;
    if (is_old) {
        // Below the signal; and no stack of its own, so no memory that is shared.
        uint64_t word = (flags & 0xffffff00 & ~(uint64_t)(CLONE_THREAD | CLONE_SIGHAND)) | (signal & 0xff);
        say("clone %lx", word);
        flags = word;
        pid = syscall(SYS_clone, word, 0, &fd, &tid, 0);
    } else {
        struct clone_args arguments = {.flags = flags, .pidfd = (uint64_t)&fd, .child_tid = (uint64_t)&tid, .parent_tid = (uint64_t)&tid, .exit_signal = signal};
        pid_t numbers[] = {(pid_t)(5000 + below(5000)), 1};
        if (set_tid) {
            arguments.set_tid = one_in(3) ? 8 : (uint64_t)numbers;
            arguments.set_tid_size = one_in(3) ? below(3) * 20 : 1;
            // Given to others by now.
            if (arguments.set_tid_size == 1)
                numbers[0] = 1;
        }
        if (odd == 0)
            arguments.stack = 0x1000;
        if (odd == 1)
            arguments.stack_size = 0x1000;
        if (odd == 2)
            arguments.pidfd = 8;
        if (odd == 3)
            arguments.cgroup = 5;
        say("clone3 %lx signal %lu size %zu odd %d tid %d", flags, signal, size, odd, set_tid);
        memset(&room, 0, sizeof room);
        room.arguments = arguments;
        if (odd == 4)
            room.behind[0] = 1;
        pid = syscall(SYS_clone3, &room, size);
    }
    if (pid == 0)
        serve(slot);
    int error = errno;
    close(children[slot].order[0]);
    close(children[slot].answer[1]);
    if (pid < 0) {
        close(children[slot].order[1]);
        close(children[slot].answer[0]);
        errno = error;
        answered(-1);
        return;
    }
    children[slot].pid = (pid_t)pid;
    children[slot].has_ended = 0;
    say(" child %d%s", slot, flags & CLONE_PARENT_SETTID ? (tid == pid ? " told" : " not told") : "");
    settled(slot);
    if (flags & CLONE_PIDFD) {
        // Into the first place that is free.
        int at = 0;
        while (at < DESCRIPTORS && about[at] >= 0)
            at++;
        say(" descriptor %s", fcntl(fd, F_GETFD) == FD_CLOEXEC ? "closes" : "stays");
        if (at < DESCRIPTORS) {
            dup3(fd, FIRST + at, O_CLOEXEC);
            about[at] = slot;
        }
        close(fd);
    }
    answered(0);
}

static void orders(void) {
    int slot = (int)below(CHILDREN);
    char letter = "eekusc"[below(6)];
    say("child %d does %c", slot, letter);
    if (children[slot].pid == 0 || children[slot].has_ended) {
        say(" not\n");
        return;
    }
    // One that is stopped does nothing.
    kill(children[slot].pid, SIGCONT);
    answered(write(children[slot].order[1], &letter, 1));
    settled(slot);
}

static void opens(void) {
    static const unsigned flags_of[] = {0, 0, 0, O_NONBLOCK, 1, O_CLOEXEC};
    int at = (int)below(DESCRIPTORS);
    pid_t pid = some_pid();
    unsigned flags = ONE_OF(flags_of);
    say("pidfd_open %d %s %x", at, who(pid), flags);
    int fd = (int)syscall(SYS_pidfd_open, pid, flags);
    int error = errno;
    if (fd >= 0) {
        dup3(fd, FIRST + at, O_CLOEXEC);
        about[at] = pid == self ? 100 : 0;
        close(fd);
        fd = 0;
    }
    errno = error;
    answered(fd);
}

static void closes(void) {
    int at = (int)below(DESCRIPTORS);
    say("close %d", at);
    about[at] = -1;
    answered(close(FIRST + at));
}

static void signals(void) {
    siginfo_t info = {.si_signo = one_in(2) ? SIGUSR1 : SIGTERM, .si_code = one_in(2) ? SI_QUEUE : one_in(2) ? SI_USER : SI_TKILL};
    say("pidfd_send_signal");
    // Not what ends or stops it itself.
    int fd = some_descriptor(), signal = some_signal(), has_info = one_in(3), flags = one_in(10) ? 1 << 10 : 0;
    say(" %d", signal);
    if (has_info)
        say(" as %d of %d", info.si_signo, info.si_code);
    if (fd >= FIRST && about[fd - FIRST] == 100 && (signal == SIGKILL || signal == SIGSTOP)) {
        say(" not\n");
        return;
    }
    answered(syscall(SYS_pidfd_send_signal, fd, signal, has_info ? &info : 0, flags));
    // Whom it ends has ended when it is asked next.
    for (int i = 0; i < CHILDREN; i++) {
        if (children[i].pid && !children[i].has_ended && (signal == SIGKILL || signal == SIGTERM || signal == SIGUSR1 || signal == REAL_TIME || signal == 64)) {
            siginfo_t found = {0};
            for (int tries = 0; tries < 20; tries++) {
                if (waitid(P_PID, (id_t)children[i].pid, &found, WEXITED | WNOWAIT | WNOHANG | __WALL) == 0 && found.si_pid)
                    break;
                usleep(500);
            }
            children[i].has_ended = found.si_pid != 0;
        }
    }
}

static void waits(void) {
    static const int options_of[] = {WEXITED, WEXITED, WEXITED | __WALL, WEXITED | __WCLONE, WEXITED | WNOWAIT, WSTOPPED, WCONTINUED, WEXITED | WSTOPPED | WCONTINUED, 0, 1 << 20, WEXITED | __WNOTHREAD};
    siginfo_t info;
    memset(&info, 0, sizeof info);
    int type = (int)below(5), options = ONE_OF(options_of) | WNOHANG;
    say("waitid %d %x", type, options);
    id_t id = 0;
    if (type == P_PIDFD) {
        id = (id_t)some_descriptor();
    } else {
        pid_t pid = some_pid();
        say(" %s", who(pid));
        id = (id_t)pid;
    }
    long result = syscall(SYS_waitid, type, id, &info, options, 0);
    int error = errno;
    if (result == 0 && info.si_pid) {
        say(" %s signal %d code %d status %d", who(info.si_pid), info.si_signo, info.si_code, info.si_status);
        if (!(options & WNOWAIT) && info.si_code <= CLD_DUMPED)
            for (int i = 0; i < CHILDREN; i++)
                if (children[i].pid == info.si_pid) {
                    close(children[i].order[1]);
                    close(children[i].answer[0]);
                    children[i].pid = 0;
                }
    }
    errno = error;
    answered(result);
}

static void polls(void) {
    say("poll");
    struct pollfd file = {some_descriptor(), POLLIN, 0};
    long result = poll(&file, 1, 0);
    // Later releases hang up as well.
    say(" %x", file.revents & ~POLLHUP);
    answered(result);
}

static void borrows(void) {
    static const int numbers[] = {0, 1, 2, 39, -1, 60, FIRST, FIRST + 3};
    int flags = one_in(8);
    say("pidfd_getfd");
    int fd = some_descriptor(), number = ONE_OF(numbers);
    say(" %d %d", number, flags);
    int got = (int)syscall(SYS_pidfd_getfd, fd, number, flags), error = errno;
    if (got >= 0) {
        say(" %s", fcntl(got, F_GETFD) == FD_CLOEXEC ? "closes" : "stays");
        close(got);
        got = 0;
    }
    errno = error;
    answered(got);
}

static void looks(void) {
    char path[64], text[1024] = "", byte;
    int at = (int)below(DESCRIPTORS);
    if (one_in(3)) {
        say("read %d", at);
        answered(read(FIRST + at, &byte, 1));
        return;
    }
    sprintf(path, "/proc/self/fdinfo/%d", FIRST + at);
    int file = open(path, O_RDONLY);
    say("fdinfo %d", at);
    long length = file < 0 ? -1 : read(file, text, sizeof text - 1);
    int error = errno;
    close(file);
    const char *line = length > 0 ? strstr(text, "\nPid:") : 0;
    if (line)
        say(" of %s", who(atoi(line + 5)));
    errno = error;
    answered(length < 0 ? -1 : 0);
}

static void pending(void) {
    sigset_t set, all;
    if (one_in(3)) {
        struct timespec now = {0, 0};
        sigfillset(&all);
        say("sigtimedwait");
        siginfo_t info;
        int signal = sigtimedwait(&all, &info, &now);
        if (signal > 0)
            say(" code %d of %s", info.si_code, who(info.si_pid));
        answered(signal);
        return;
    }
    say("pending");
    sigpending(&set);
    for (int i = 1; i < 65; i++)
        if (sigismember(&set, i) == 1)
            say(" %d", i);
    say("\n");
}

int main(int count, char **arguments) {
    int kind;
    long steps = begin(count, arguments, &kind);
    // The first process of a namespace is spared signals, that of a machine is not.
    pid_t pid = fork();
    if (pid > 0)
        return waitpid(pid, &kind, 0) == pid && kind == 0 ? 0 : 1;
    sigset_t all;
    // Nothing of what children tell comes by a handler.
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, 0);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    // Whoever started it may have left it in a group of another one.
    setpgid(0, 0);
    self = getpid();
    memset(about, -1, sizeof about);
    void (*const table[])(void) = {makes, makes, makes, orders, orders, opens, opens, closes, signals, signals, waits, waits, waits, waits, polls, polls, borrows, looks, pending};
    run_steps(table, COUNT(table), steps, 0);
    for (int i = 0; i < CHILDREN; i++)
        if (children[i].pid)
            kill(children[i].pid, SIGKILL);
    return 0;
}
