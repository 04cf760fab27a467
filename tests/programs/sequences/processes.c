// SPDX-License-Identifier: Apache-2.0 OR MIT
// Random sequences of calls (sequences.h) on processes: a tree of up to eight that do what they are told one after another:
// fork, end, wait, send and block signals, stop and continue, change groups and sessions. Numbers are told by slot.
#include "sequences.h"
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

// The first real-time signal, which SIGRTMIN says only when the program runs.
enum { SLOTS = 8, ROOM = 4000, REAL_TIME = 34 };

// What all of them share: who is in which slot, and the state of the generator, so that the order of calls is one.
static struct {
    uint64_t state;
    pid_t pids[SLOTS];
    int is_ready[SLOTS];
    int length;
    char text[ROOM];
} *shared;
// A pair of sockets for each slot: the director's end and the process'.
static int ends[SLOTS][2];
static int own;

static void tell(const char *format, ...) {
    va_list list;
    va_start(list, format);
    shared->length += vsnprintf(shared->text + shared->length, (size_t)(ROOM - shared->length), format, list);
    va_end(list);
}

static void tell_answer(long result) {
    if (result < 0)
        tell(" = %s", strerrorname_np(errno));
    else
        tell(" = %ld", result);
}

// The slot of a number, which is shown instead: 100 and more are numbers that mean nothing here.
static int slot_of(pid_t pid) {
    for (int i = 0; i < SLOTS; i++)
        if (pid > 0 && shared->pids[i] == pid)
            return i;
    return pid == 0 ? 100 : pid < 0 ? -slot_of(-pid) - 1 : pid == 1 ? 101 : 102;
}

static int free_slot(void) {
    for (int i = 1; i < SLOTS; i++)
        if (shared->pids[i] == 0)
            return i;
    return -1;
}

static pid_t some_pid(void) {
    int slot = (int)below(SLOTS);
    return shared->pids[slot];
}

static int some_signal(void) {
    static const int all[] = {0, SIGUSR1, SIGUSR1, SIGUSR2, REAL_TIME, REAL_TIME + 1, SIGCHLD, SIGURG, SIGWINCH, SIGTERM, 65, -1};
    return ONE_OF(all);
}

static void serve(void);

static void forks(void) {
    int slot = free_slot();
    if (slot < 0) {
        tell("no slot");
        return;
    }
    tell("fork to %d", slot);
    shared->is_ready[slot] = 0;
    pid_t pid = fork();
    if (pid == 0) {
        own = slot;
        // What the one before in this slot has not read any more.
        char orders[64];
        while (recv(ends[own][1], orders, sizeof orders, MSG_DONTWAIT) > 0)
            ;
        shared->is_ready[slot] = 1;
        serve();
    }
    shared->pids[slot] = pid < 0 ? 0 : pid;
    while (pid > 0 && !*(volatile int *)&shared->is_ready[slot])
        sched_yield();
    tell_answer(pid < 0 ? -1 : 0);
}

static void waits(void) {
    static const int flags_of_wait4[] = {0, WUNTRACED, WCONTINUED, WUNTRACED | WCONTINUED, __WALL, 0x100};
    static const int flags_of_waitid[] = {WEXITED, WEXITED | WSTOPPED | WCONTINUED, WSTOPPED, WEXITED | WNOWAIT, 0, WCONTINUED};
    int status = 0;
    if (one_in(2)) {
        pid_t pid = one_in(2) ? -1 : one_in(3) ? 0 : one_in(4) ? -some_pid() : some_pid();
        int flags = ONE_OF(flags_of_wait4) | WNOHANG;
        // With no number at all in the slot every child is meant.
        tell("wait4 %d %x", pid == -1 ? -1 : slot_of(pid), flags);
        struct rusage usage;
        pid_t got = wait4(pid, &status, flags, &usage);
        int error = errno;
        if (got > 0) {
            int slot = slot_of(got);
            tell(" slot %d status %x", slot, status);
            if (slot < SLOTS && (WIFEXITED(status) || WIFSIGNALED(status)))
                shared->pids[slot] = 0;
            got = 0;
        }
        errno = error;
        tell_answer(got);
    } else {
        siginfo_t info = {0};
        idtype_t type = one_in(2) ? P_ALL : one_in(2) ? P_PID : P_PGID;
        pid_t pid = some_pid();
        int flags = ONE_OF(flags_of_waitid) | WNOHANG;
        tell("waitid %d %d %x", type, slot_of(pid), flags);
        int result = waitid(type, (id_t)pid, &info, flags), error = errno;
        if (result == 0 && info.si_pid) {
            int slot = slot_of(info.si_pid);
            tell(" slot %d code %d status %d", slot, info.si_code, info.si_status);
            if (slot < SLOTS && !(flags & WNOWAIT) && (info.si_code == CLD_EXITED || info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED))
                shared->pids[slot] = 0;
        }
        errno = error;
        tell_answer(result);
    }
}

static void sends(void) {
    int signal = some_signal();
    switch (below(5)) {
    case 0: {
        // A group: not the director's, which all would be.
        pid_t pid = some_pid(), group = pid ? getpgid(pid) : -1;
        if (group <= 1 || group == shared->pids[0] || signal == SIGTERM) {
            tell("no group");
            return;
        }
        tell("kill group of %d %d", slot_of(pid), signal);
        tell_answer(kill(-group, signal));
        return;
    }
    case 1: {
        pid_t pid = some_pid();
        if (pid == 0)
            pid = 99999999;
        union sigval value = {(int)below(100)};
        if (pid == shared->pids[0])
            signal = 0;
        tell("sigqueue %d %d %d", slot_of(pid), signal, value.sival_int);
        tell_answer(sigqueue(pid, signal, value));
        return;
    }
    case 2: {
        pid_t pid = some_pid();
        if (pid == shared->pids[0])
            signal = 0;
        tell("tgkill %d %d", slot_of(pid), signal);
        tell_answer(syscall(SYS_tgkill, pid, pid, signal));
        return;
    }
    default: {
        pid_t pid = some_pid();
        if (pid == 0)
            pid = 99999999;
        if (pid == shared->pids[0])
            signal = 0;
        tell("kill %d %d", slot_of(pid), signal);
        tell_answer(kill(pid, signal));
    }
    }
}

static void blocks(void) {
    sigset_t set, old;
    sigemptyset(&set);
    static const int all[] = {SIGUSR1, SIGUSR2, REAL_TIME, REAL_TIME + 1, SIGCHLD, SIGTERM};
    for (size_t i = 0; i < COUNT(all); i++)
        if (one_in(2))
            sigaddset(&set, all[i]);
    int how = (int)below(4);
    tell("sigprocmask %d %lx", how, *(unsigned long *)&set);
    int result = sigprocmask(how, &set, &old);
    if (result == 0)
        tell(" was %lx", *(unsigned long *)&old);
    tell_answer(result);
}

static void takes(void) {
    sigset_t set;
    siginfo_t info = {0};
    struct timespec none = {0, 0};
    sigfillset(&set);
    if (one_in(3))
        sigdelset(&set, SIGCHLD);
    tell("sigtimedwait");
    int result = sigtimedwait(&set, &info, &none), error = errno;
    if (result > 0)
        tell(" code %d of %d value %d", info.si_code, slot_of(info.si_pid), info.si_code == SI_QUEUE ? info.si_value.sival_int : 0);
    errno = error;
    tell_answer(result);
}

static void looks(void) {
    sigset_t set;
    sigpending(&set);
    tell("sigpending %lx", *(unsigned long *)&set);
}

static int handled[66];

static void handle(int signal) {
    handled[signal]++;
}

static void acts(void) {
    static const int all[] = {SIGUSR1, SIGUSR2, REAL_TIME, SIGCHLD, SIGTERM, SIGKILL, SIGSTOP, 65};
    static const int flags[] = {0, SA_RESTART, SA_NODEFER, SA_RESETHAND, SA_NOCLDSTOP, SA_NOCLDWAIT};
    int signal = ONE_OF(all), kind = (int)below(4);
    struct sigaction action = {0}, old = {0};
    action.sa_handler = kind == 0 ? SIG_DFL : kind == 1 ? SIG_IGN : handle;
    action.sa_flags = ONE_OF(flags);
    tell("sigaction %d %d %x", signal, kind, action.sa_flags);
    int result = sigaction(signal, &action, &old);
    if (result == 0)
        tell(" was %d %x", old.sa_handler == SIG_DFL ? 0 : old.sa_handler == SIG_IGN ? 1 : 2, old.sa_flags & ~0x04000000);
    tell_answer(result);
}

static void counts(void) {
    tell("handled");
    for (int i = 1; i < 66; i++)
        if (handled[i])
            tell(" %d:%d", i, handled[i]);
    memset(handled, 0, sizeof handled);
}

static void groups(void) {
    pid_t pid = one_in(3) ? 0 : some_pid(), group = one_in(2) ? 0 : some_pid();
    switch (below(5)) {
    case 0: tell("getpgid %d", slot_of(pid)); { pid_t got = getpgid(pid); if (got > 0) { tell(" %d", slot_of(got)); got = 0; } tell_answer(got); } return;
    case 1: tell("getsid %d", slot_of(pid)); { pid_t got = getsid(pid); if (got > 0) { tell(" %d", slot_of(got)); got = 0; } tell_answer(got); } return;
    case 2: if (!one_in(4)) { tell("getppid %d", slot_of(getppid())); return; } tell("setsid"); { pid_t got = setsid(); tell_answer(got > 0 ? 0 : got); } return;
    default: tell("setpgid %d %d", slot_of(pid), slot_of(group)); tell_answer(setpgid(pid, group)); return;
    }
}

static void settles(void) {
    int on = (int)below(2);
    switch (below(3)) {
    case 0: tell("subreaper %d", on); tell_answer(prctl(PR_SET_CHILD_SUBREAPER, on)); return;
    case 1: tell("pdeathsig %d", on); tell_answer(prctl(PR_SET_PDEATHSIG, on ? SIGUSR2 : 0)); return;
    default: {
        int priority = (int)below(45) - 22;
        tell("setpriority %d", priority);
        tell_answer(setpriority(PRIO_PROCESS, 0, priority));
        errno = 0;
        int got = getpriority(PRIO_PROCESS, 0);
        tell(" then %d", got);
    }
    }
}

static void (*const steps[])(void) = {
    forks, forks, waits, waits, waits, sends, sends, sends, blocks, takes, takes, looks, acts, counts, groups, groups, settles,
};

static char state_of(pid_t pid) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    return pid > 0 ? state_in(path) : '-';
}

// It is there and has not ended: one that has is a zombie until somebody waits for it.
static int is_alive(pid_t pid) {
    char letter = state_of(pid);
    return letter != '-' && letter != 'Z' && letter != 'X';
}

// Does a step whenever it is told to.
static void serve(void) {
    char order;
    for (;;) {
        long got = read(ends[own][1], &order, 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got != 1 || order == 'x')
            _exit(own);
        if (order == 'k')
            kill(getpid(), SIGKILL);
        state = shared->state;
        steps[below(COUNT(steps))]();
        shared->state = state;
        while (write(ends[own][1], "d", 1) < 0 && errno == EINTR)
            ;
    }
}

// Waits until what was sent has arrived: until nobody runs. On a busy computer that takes as long as it takes.
static void settle(void) {
    for (int look = 0; look < 2000; look++) {
        usleep(1500);
        int run = 0;
        for (int slot = 0; slot < SLOTS; slot++) {
            char letter = state_of(shared->pids[slot]);
            run += letter == 'R' || letter == 'D';
        }
        if (run == 0)
            return;
    }
}

int main(int count, char **arguments) {
    int kind;
    long total = begin(count, arguments, &kind);
    if (getpid() != 1) {
        fprintf(stderr, "%s ends all processes there are: it has to be the first of a namespace\n", arguments[0]);
        return 2;
    }
    setsid();
    shared = mmap(0, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    for (long done = 0; done < total; done += 60) {
        fflush(stdout);
        memset(shared, 0, sizeof *shared);
        for (int i = 0; i < SLOTS; i++)
            if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends[i]))
                return 1;
        shared->state = state;
        pid_t first = fork();
        if (first == 0) {
            setpgid(0, 0);
            shared->pids[0] = getpid();
            own = 0;
            serve();
        }
        while (!shared->pids[0])
            usleep(100);
        for (int step = 0; step < 60; step++) {
            state = shared->state;
            int slot = (int)below(SLOTS), does = (int)below(20);
            if (!is_alive(shared->pids[slot]))
                slot = 0;
            shared->length = 0;
            shared->text[0] = 0;
            char order = slot == 0 || does > 1 ? 's' : does ? 'x' : 'k';
            int is_stopped = slot != 0 && does == 2;
            say("%ld %d ", done + step, slot);
            shared->state = state;
            if (is_stopped) {
                kill(shared->pids[slot], SIGSTOP);
                settle();
                if (below(2))
                    kill(shared->pids[slot], SIGCONT);
                else
                    kill(shared->pids[slot], SIGKILL);
                shared->state = state;
                settle();
                say("stopped\n");
                continue;
            }
            if (write(ends[slot][0], &order, 1) != 1)
                return 1;
            settle();
            struct pollfd answer = {ends[slot][0], POLLIN, 0};
            if (order == 's' && poll(&answer, 1, 100) == 1) {
                char byte;
                if (read(ends[slot][0], &byte, 1) != 1)
                    return 1;
                say("%s\n", shared->text);
            } else {
                say("%s (%c)\n", shared->text, order);
                char late[64];
                while (recv(ends[slot][0], late, sizeof late, MSG_DONTWAIT) > 0)
                    ;
            }
            settle();
        }
        kill(-1, SIGKILL);
        while (waitpid(-1, 0, 0) > 0)
            ;
        for (int i = 0; i < SLOTS; i++) {
            close(ends[i][0]);
            close(ends[i][1]);
        }
        state = shared->state + 977;
    }
    return 0;
}
