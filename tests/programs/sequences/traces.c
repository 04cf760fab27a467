// SPDX-License-Identifier: Apache-2.0 OR MIT
// Random sequences of calls (sequences.h) on processes that are traced: a tracer and up to four that do what they are told,
// which fork, run another program, end, stop and get signals. After each call all of them come to rest; told are their states.
#include "sequences.h"
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>

enum { SLOTS = 4, ROUND = 80, REAL_TIME = 34 };

// What all of them see: who is in which slot, which slot the next child of each is to have, and a word to be read and written.
static volatile struct {
    pid_t pids[SLOTS];
    int next[SLOTS], handled;
} *shared;
static volatile long word = 0x1122334455667788;
static int orders[SLOTS][2], own;
static char *program;

static pid_t pid_of(int slot) {
    return shared->pids[slot];
}

// The slot of a number: 8 is nobody's here, 9 is the tracer's.
static int slot_of(pid_t pid) {
    for (int i = 0; i < SLOTS; i++)
        if (pid > 0 && shared->pids[i] == pid)
            return i;
    return pid == getpid() ? 9 : 8;
}

// What the traced do.

static void on_signal(int signal) {
    (void)signal;
    shared->handled++;
}

static void serve(void);

static void serve_as(int slot) {
    own = slot;
    shared->pids[slot] = (pid_t)syscall(SYS_getpid);
    serve();
}

static void does(char order) {
    int slot = shared->next[own];
    switch (order) {
    case 'g': syscall(SYS_getppid); return;
    case 'b': syscall(SYS_close, 1000); return;
    case 't': syscall(SYS_tgkill, syscall(SYS_getpid), syscall(SYS_gettid), SIGUSR1); return;
    case 'T': syscall(SYS_tgkill, syscall(SYS_getpid), syscall(SYS_gettid), SIGTSTP); return;
    case 'i': __asm__ volatile("int3"); return;
    case 'm': { sigset_t set; sigemptyset(&set); sigaddset(&set, SIGUSR1); sigaddset(&set, SIGTERM); sigprocmask(shared->handled % 2 ? SIG_BLOCK : SIG_UNBLOCK, &set, 0); } return;
    case 's': { struct timespec time = {0, 1000}; syscall(SYS_nanosleep, &time, 0); } return;
    case 'n': ptrace(PTRACE_TRACEME, 0, 0, 0); return;
    case 'f':
    case 'v': {
        // No function of the library, so that the system calls are the same whoever built it.
        long flags = order == 'f' ? SIGCHLD : 0;
        long pid = syscall(SYS_clone, flags, 0, 0, 0, 0);
        if (pid == 0)
            serve_as(slot);
        if (pid > 0)
            shared->pids[slot] = (pid_t)pid;
        return;
    }
    case 'w':
        // Its end sends no signal, which could come before or behind what the parent goes on with.
        if (syscall(SYS_clone, CLONE_VFORK, 0, 0, 0, 0) == 0)
            syscall(SYS_exit_group, 7);
        return;
    case 'r': { int status; syscall(SYS_wait4, -1, &status, WNOHANG | __WALL, 0); } return;
    case 'e': {
        char text[2][16], *words[] = {program, "as", text[0], text[1], 0};
        snprintf(text[0], sizeof text[0], "%d", own);
        snprintf(text[1], sizeof text[1], "%d", orders[own][0]);
        execv(program, words);
        return;
    }
    case 'E': { char *words[] = {"/nowhere", 0}; execv(words[0], words); } return;
    case 'k': kill(getpid(), SIGKILL); return;
    case 'x': syscall(SYS_exit_group, 5); return;
    }
}

static void serve(void) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, 0);
    sigaction(REAL_TIME, &action, 0);
    char order;
    for (;;) {
        long got = syscall(SYS_read, orders[own][0], &order, 1);
        if (got == 1)
            does(order);
        else if (got == 0)
            syscall(SYS_exit_group, 6);
    }
}

// What the tracer does.

// R, S, T, t, Z or - as /proc has it.
static char state_of(pid_t pid) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    return state_in(path);
}

// Whether anybody runs or is about to, in a slot or not, or waits where one waits for a moment only.
static int is_busy(int tries) {
    int busy = 0;
    DIR *all = opendir("/proc");
    for (struct dirent *entry; all && (entry = readdir(all));) {
        char state = atoi(entry->d_name) > 1 ? state_of(atoi(entry->d_name)) : '-';
        // The parent of a vfork(2) whose child has stopped waits in this state for long.
        busy |= state == 'R' || state == 'X' || (state == 'D' && tries < 100);
    }
    closedir(all);
    return busy;
}

// Waits until everybody waits for something, twice in a row; tells how.
static const char *comes_to_rest(void) {
    static char before[SLOTS + 1];
    char now[SLOTS + 1] = "";
    int same = 0;
    memset(before, 0, sizeof before);
    for (int tries = 0; tries < 10000 && same < 2; tries++) {
        usleep(300);
        int busy = is_busy(tries);
        for (int i = 0; i < SLOTS; i++)
            now[i] = pid_of(i) > 0 ? state_of(pid_of(i)) : '.';
        same = !busy && !memcmp(before, now, SLOTS) ? same + 1 : 0;
        memcpy(before, now, SLOTS);
    }
    return before;
}

static int any(void) {
    return (int)below(SLOTS);
}

static int some_signal(void) {
    static const int all[] = {0, 0, 0, SIGUSR1, SIGUSR1, REAL_TIME, SIGSTOP, SIGSTOP, SIGCONT, SIGTSTP, SIGCHLD, SIGTRAP, SIGTERM, SIGKILL, 65, -1};
    int got = ONE_OF(all);
    // What ends it is rarer than all else.
    return (got == SIGKILL || got == SIGTERM || got == SIGTRAP) && !one_in(4) ? 0 : got;
}

static void orders_it(void) {
    static const char all[] = "ggbbttTimmssnffvwrreeEkx";
    int slot = any(), child = any();
    char order = all[below(sizeof all - 1)];
    if ((order == 'k' || order == 'x' || order == 'i') && !one_in(3))
        order = 'g';
    if (order == 'n' && !one_in(3))
        order = 's';
    say("order %d %c", slot, order);
    if (order == 'f' || order == 'v') {
        if (child == 0 || pid_of(child) || child == slot) {
            say(" no slot\n");
            return;
        }
        say(" to %d", child);
    }
    if (order == 'f' || order == 'v')
        shared->next[slot] = child;
    answered(write(orders[slot][1], &order, 1));
}

static void says_status(pid_t pid, int status) {
    int slot = slot_of(pid);
    if (WIFEXITED(status) || WIFSIGNALED(status)) {
        say(" slot %d %s %d", slot, WIFEXITED(status) ? "exited" : "killed", WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
        if (slot < SLOTS)
            shared->pids[slot] = 0;
    } else if (WIFSTOPPED(status)) {
        // A child that has been made is in the slot that its parent was told.
        int event = status >> 16;
        unsigned long message = 0;
        if (slot < SLOTS && (event == PTRACE_EVENT_FORK || event == PTRACE_EVENT_CLONE) && !ptrace(PTRACE_GETEVENTMSG, pid, 0, &message) && !pid_of(shared->next[slot]))
            shared->pids[shared->next[slot]] = (pid_t)message;
        say(" slot %d stopped %d event %d", slot, WSTOPSIG(status), event);
    } else {
        say(" slot %d %s", slot, WIFCONTINUED(status) ? "continued" : "?");
    }
}

static void waits(void) {
    static const int all[] = {WNOHANG | __WALL, WNOHANG | __WALL, WNOHANG, WNOHANG | __WCLONE, WNOHANG | __WALL | WUNTRACED, WNOHANG | WUNTRACED | WCONTINUED, WNOHANG | __WALL | __WNOTHREAD};
    int slot = any(), flags = ONE_OF(all), status = 0, is_any = one_in(2);
    say("wait %d %x", is_any ? -1 : slot, flags);
    pid_t pid = pid_of(slot);
    if (!is_any && !pid) {
        say(" nobody\n");
        return;
    }
    pid_t got = wait4(is_any ? -1 : pid, &status, flags, 0);
    int error = errno;
    if (got > 0) {
        says_status(got, status);
        got = 0;
    }
    errno = error;
    answered(got);
}

static void waits_by_id(void) {
    static const int all[] = {WEXITED, WSTOPPED, WSTOPPED | WEXITED | WCONTINUED, WSTOPPED | WNOWAIT, WEXITED | WNOWAIT, WCONTINUED};
    int slot = any(), flags = ONE_OF(all) | WNOHANG | (one_in(2) ? __WALL : 0);
    siginfo_t info;
    memset(&info, 0, sizeof info);
    say("waitid %d %x", slot, flags);
    if (!pid_of(slot)) {
        say(" nobody\n");
        return;
    }
    int result = waitid(P_PID, (id_t)pid_of(slot), &info, flags);
    if (result == 0 && info.si_pid) {
        say(" slot %d code %d status %x", slot_of(info.si_pid), info.si_code, info.si_status);
        if ((info.si_code == CLD_EXITED || info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED) && !(flags & WNOWAIT))
            shared->pids[slot] = 0;
    }
    answered(result);
}

static void sends(void) {
    int slot = any(), signal = some_signal();
    say("kill %d %d", slot, signal);
    if (!pid_of(slot)) {
        say(" nobody\n");
        return;
    }
    answered(kill(pid_of(slot), signal));
}

static long options(void) {
    static const long all[] = {0, 1, 1, 0x7f, 0x7f, PTRACE_O_TRACEFORK | 1, PTRACE_O_TRACECLONE, PTRACE_O_TRACEEXEC, PTRACE_O_TRACEEXIT, PTRACE_O_TRACEVFORK | PTRACE_O_TRACEVFORKDONE, PTRACE_O_EXITKILL, 1 << 12, 0x3fffff};
    return ONE_OF(all);
}

static void begins(void) {
    int slot = any();
    pid_t pid = pid_of(slot);
    long flags = options();
    switch (below(5)) {
    case 0:
    case 1:
        say("PTRACE_ATTACH %d", slot);
        answered(ptrace(PTRACE_ATTACH, pid, 0, 0));
        return;
    case 2:
    case 3:
        say("PTRACE_SEIZE %d %lx", slot, flags);
        answered(ptrace(PTRACE_SEIZE, pid, one_in(20) ? 1 : 0, flags));
        return;
    default:
        say("PTRACE_SETOPTIONS %d %lx", slot, flags);
        answered(ptrace(PTRACE_SETOPTIONS, pid, 0, flags));
    }
}

static void goes_on(void) {
    static const struct { int request; const char *name; } all[] = {
        {PTRACE_CONT, "CONT"}, {PTRACE_CONT, "CONT"}, {PTRACE_SYSCALL, "SYSCALL"}, {PTRACE_SYSCALL, "SYSCALL"}, {PTRACE_SYSCALL, "SYSCALL"},
        {PTRACE_SINGLESTEP, "SINGLESTEP"}, {PTRACE_DETACH, "DETACH"}, {PTRACE_LISTEN, "LISTEN"}, {PTRACE_INTERRUPT, "INTERRUPT"}, {PTRACE_KILL, "KILL"},
        {PTRACE_SYSEMU, "SYSEMU"}, {PTRACE_CONT, "CONT"}, {PTRACE_LISTEN, "LISTEN"}, {PTRACE_INTERRUPT, "INTERRUPT"},
    };
    int slot = any(), which = (int)below(COUNT(all)), signal = some_signal();
    if ((all[which].request == PTRACE_KILL || all[which].request == PTRACE_DETACH) && !one_in(3))
        which = 2;
    say("PTRACE_%s %d %d", all[which].name, slot, signal);
    if (!pid_of(slot)) {
        say(" nobody\n");
        return;
    }
    answered(ptrace(all[which].request, pid_of(slot), 0, (long)signal));
}

static void says_info(const siginfo_t *info) {
    say(" signo %d code %x", info->si_signo, (unsigned)info->si_code);
    if (info->si_code == SI_USER || info->si_code == SI_TKILL)
        say(" of %d", slot_of(info->si_pid));
}

static void looks(void) {
    int slot = any();
    pid_t pid = pid_of(slot);
    long result;
    if (!pid)
        pid = -1;
    switch (below(9)) {
    case 0: {
        unsigned long message = 0;
        say("PTRACE_GETEVENTMSG %d", slot);
        result = ptrace(PTRACE_GETEVENTMSG, pid, 0, &message);
        if (result == 0 && message < 100000)
            say(" %ld", message < 1 ? 0 : slot_of((pid_t)message) < 8 ? 100 + slot_of((pid_t)message) : message < 20 || message >= 256 ? (long)message & 0xff00 : 8);
        answered(result);
        return;
    }
    case 1: {
        siginfo_t info;
        memset(&info, 0, sizeof info);
        say("PTRACE_GETSIGINFO %d", slot);
        result = ptrace(PTRACE_GETSIGINFO, pid, 0, &info);
        if (result == 0)
            says_info(&info);
        answered(result);
        return;
    }
    case 2: {
        siginfo_t info;
        memset(&info, 0, sizeof info);
        static const int signals[] = {SIGUSR1, SIGCONT, SIGSTOP, SIGTERM, 0};
        info.si_signo = ONE_OF(signals);
        info.si_code = SI_QUEUE;
        say("PTRACE_SETSIGINFO %d %d", slot, info.si_signo);
        answered(ptrace(PTRACE_SETSIGINFO, pid, 0, &info));
        return;
    }
    case 3: {
        siginfo_t infos[4];
        struct __ptrace_peeksiginfo_args about = {below(3), one_in(3) ? PTRACE_PEEKSIGINFO_SHARED : one_in(9) ? 4 : 0, (int)below(5) - (one_in(9) ? 2 : 0)};
        say("PTRACE_PEEKSIGINFO %d %llu %x %d", slot, (unsigned long long)about.off, about.flags, about.nr);
        result = ptrace(PTRACE_PEEKSIGINFO, pid, &about, infos);
        for (long i = 0; i < result; i++)
            says_info(&infos[i]);
        answered(result);
        return;
    }
    case 4: {
        uint64_t mask = 0;
        size_t size = one_in(8) ? 4 : 8;
        say("PTRACE_GETSIGMASK %d %zu", slot, size);
        result = ptrace(PTRACE_GETSIGMASK, pid, size, &mask);
        if (result == 0)
            say(" %llx", (unsigned long long)mask);
        answered(result);
        return;
    }
    case 5: {
        uint64_t mask = one_in(2) ? 0 : one_in(2) ? 1ull << (SIGUSR1 - 1) : ~0ull;
        say("PTRACE_SETSIGMASK %d %llx", slot, (unsigned long long)mask);
        answered(ptrace(PTRACE_SETSIGMASK, pid, 8, &mask));
        return;
    }
    case 6: {
        struct __ptrace_syscall_info info;
        size_t size = one_in(4) ? below(sizeof info) : sizeof info;
        memset(&info, 0, sizeof info);
        say("PTRACE_GET_SYSCALL_INFO %d %zu", slot, size);
        result = ptrace(PTRACE_GET_SYSCALL_INFO, pid, size, &info);
        if (result > 0) {
            say(" op %d", info.op);
            if (size == sizeof info && info.op == PTRACE_SYSCALL_INFO_ENTRY)
                say(" nr %lld", (long long)info.entry.nr);
            if (size == sizeof info && info.op == PTRACE_SYSCALL_INFO_EXIT)
                // What rt_sigreturn answers is what the call that the handler interrupted had come to.
                say(" %lld", info.exit.rval < 0 && info.exit.rval != -EINTR ? (long long)info.exit.rval : 0);
        }
        answered(result);
        return;
    }
    case 7: {
        struct user_regs_struct registers;
        struct iovec room = {&registers, one_in(4) ? 8 * below(30) : sizeof registers};
        size_t asked = room.iov_len;
        memset(&registers, 0, sizeof registers);
        say("PTRACE_GETREGSET %d %zu", slot, asked);
        result = ptrace(PTRACE_GETREGSET, pid, one_in(12) ? 99 : 1, &room);
        if (result == 0) {
            say(" %zu", room.iov_len);
            if (room.iov_len == sizeof registers)
                say(" nr %lld result %lld cs %llx ss %llx flags %llx", (long long)registers.orig_rax, (long long)registers.rax < 0 ? (long long)registers.rax : 0,
                    registers.cs, registers.ss, registers.eflags & 0x100);
        }
        answered(result);
        return;
    }
    default: {
        errno = 0;
        say("PTRACE_PEEKUSER %d", slot);
        static const long offsets[] = {15 * 8, 17 * 8, 20 * 8, 27 * 8, 900, 1000, 3, -8};
        long offset = ONE_OF(offsets);
        say(" %ld", offset);
        result = ptrace(PTRACE_PEEKUSER, pid, offset, 0);
        answered(errno ? -1 : 0);
        return;
    }
    }
}

static void reaches(void) {
    int slot = any();
    pid_t pid = pid_of(slot);
    long value, result;
    if (!pid)
        pid = -1;
    switch (below(4)) {
    case 0:
        errno = 0;
        say("PTRACE_PEEKDATA %d", slot);
        value = ptrace(PTRACE_PEEKDATA, pid, &word, 0);
        say(" %lx", errno ? 0 : value);
        answered(errno ? -1 : 0);
        return;
    case 1:
        value = (long)below(1000);
        say("PTRACE_POKEDATA %d %ld", slot, value);
        answered(ptrace(PTRACE_POKEDATA, pid, &word, value));
        return;
    case 2:
        errno = 0;
        say("PTRACE_PEEKTEXT %d nowhere", slot);
        ptrace(PTRACE_PEEKTEXT, pid, 8, 0);
        answered(errno ? -1 : 0);
        return;
    default: {
        // The answer of a call, where it is at its end; a call that nobody knows, where it is at its beginning.
        struct __ptrace_syscall_info info = {0};
        say("answer of %d", slot);
        result = ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof info, &info);
        errno = result < 0 ? errno : 0;
        if (result > 0 && info.op == PTRACE_SYSCALL_INFO_EXIT)
            result = ptrace(PTRACE_POKEUSER, pid, 10 * 8, -EPERM);
        else if (result > 0 && info.op == PTRACE_SYSCALL_INFO_ENTRY && info.entry.nr == SYS_getppid)
            result = ptrace(PTRACE_POKEUSER, pid, 15 * 8, 2000L);
        answered(result < 0 ? -1 : info.op);
    }
    }
}

static void makes(void) {
    static const char *const ways[] = {"untraced", "seized", "seized", "attached", "traces itself"};
    int slot = any(), way = (int)below(COUNT(ways));
    long flags = options() & 0x7f;
    say("fork %d %s %lx", slot, ways[way], flags);
    if (pid_of(slot)) {
        say(" is there\n");
        return;
    }
    // What the one before in this slot has not read any more.
    fcntl(orders[slot][0], F_SETFL, O_NONBLOCK);
    for (char late; read(orders[slot][0], &late, 1) == 1;)
        ;
    fcntl(orders[slot][0], F_SETFL, 0);
    pid_t pid = fork();
    if (pid == 0) {
        if (way == 4)
            ptrace(PTRACE_TRACEME, 0, 0, 0);
        serve_as(slot);
    }
    shared->pids[slot] = pid;
    // Where a new one is stopped does not depend on how far it has come meanwhile: it waits for its first order.
    comes_to_rest();
    answered(pid < 0 ? -1 : way == 1 || way == 2 ? ptrace(PTRACE_SEIZE, pid, 0, flags) : way == 3 ? ptrace(PTRACE_ATTACH, pid, 0, 0) : 0);
}

static void (*const steps[])(void) = {
    orders_it, orders_it, orders_it, orders_it, waits, waits, waits, waits_by_id, sends, begins, begins, goes_on, goes_on, goes_on, goes_on, goes_on, looks, looks, looks, reaches, makes, makes,
};

static void opens_shared(void) {
    int file = open("/tmp/traced", O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, 4096))
        abort();
    shared = mmap(0, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
}

int main(int count, char **arguments) {
    int kind;
    // A traced one that has run this program again.
    if (count == 4 && !strcmp(arguments[1], "as")) {
        opens_shared();
        program = arguments[0];
        orders[atoi(arguments[2])][0] = atoi(arguments[3]);
        for (int i = 0; i < SLOTS; i++)
            orders[i][0] = atoi(arguments[3]) + 2 * (i - atoi(arguments[2]));
        serve_as(atoi(arguments[2]));
    }
    long total = begin(count, arguments, &kind);
    program = arguments[0];
    if (getpid() != 1) {
        fprintf(stderr, "%s ends all processes there are: it has to be the first of a namespace\n", arguments[0]);
        return 2;
    }
    // Its group has nobody above it, wherever this is run.
    setsid();
    opens_shared();
    for (long done = 0; done < total; done += ROUND) {
        memset((void *)shared, 0, sizeof *shared);
        // Each slot's two ends have the numbers behind those of the slot before.
        for (int i = 0; i < SLOTS; i++)
            if (pipe2(orders[i], O_NONBLOCK) || fcntl(orders[i][0], F_SETFL, 0))
                return 1;
        for (int step = 0; step < ROUND; step++) {
            say("%ld ", done + step);
            fflush(stdout);
            steps[below(COUNT(steps))]();
            fflush(stdout);
            const char *states = comes_to_rest();
            say("   [%s %d]\n", states, shared->handled);
        }
        kill(-1, SIGKILL);
        // What is killed stops on its way out where the tracer has asked for it, or has done so before.
        int status;
        DIR *all = opendir("/proc");
        for (struct dirent *entry; all && (entry = readdir(all));)
            if (atoi(entry->d_name) > 1)
                ptrace(PTRACE_CONT, atoi(entry->d_name), 0, 0);
        closedir(all);
        for (pid_t pid; (pid = waitpid(-1, &status, __WALL)) > 0;)
            if (WIFSTOPPED(status))
                ptrace(PTRACE_CONT, pid, 0, 0);
        for (int i = 0; i < SLOTS; i++) {
            close(orders[i][0]);
            close(orders[i][1]);
        }
    }
    return 0;
}
