// SPDX-License-Identifier: Apache-2.0 OR MIT
// Random sequences of calls (sequences.h) on what threads have for themselves and what they share: directories, masks, descriptors, ids,
// capabilities, names, priorities, processors, signals. Five threads do what they are told one after another, by raw system calls, which
// change one thread. Numbers of threads are told by slot.
#include "sequences.h"
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/ioprio.h>
#include <linux/membarrier.h>
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { THREADS = 5, ROUND = 100 };

static struct {
    int pipe[2], is_gone;
    pid_t tid;
} threads[THREADS];
static int done[2];

static pid_t some_thread(void) {
    int slot = (int)below(THREADS + 2);
    say(" thread %d", slot);
    return slot < THREADS ? threads[slot].tid : slot == THREADS ? 0 : 1 << 22;
}

static void directories(void) {
    static const char *const all[] = {"/tmp", "/tmp/a", "/tmp/a/b", "..", "b", "/proc"};
    char text[100];
    const char *path = ONE_OF(all);
    switch (below(4)) {
    case 0:
    case 1: say("chdir %s", path); answered(syscall(SYS_chdir, path)); return;
    case 2: say("umask %o", below(512)); answered(syscall(SYS_umask, below(512))); return;
    default: say("getcwd"); { long got = syscall(SYS_getcwd, text, sizeof text); if (got > 0) say(" %s", text); answered(got); } return;
    }
}

static void descriptors(void) {
    static const char *const all[] = {"/tmp/a/f", "f", "b", "/tmp"};
    // Not the pipes of the threads.
    int fd = 20 + (int)below(12);
    const char *path = ONE_OF(all);
    switch (below(5)) {
    case 0:
    case 1: say("open %s", path); answered(syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | (one_in(2) ? O_CLOEXEC : 0))); return;
    case 2: say("close %d", fd); answered(syscall(SYS_close, fd)); return;
    case 3: say("fcntl %d", fd); answered(syscall(SYS_fcntl, fd, F_GETFD)); return;
    default: say("close_range %d", fd); answered(syscall(SYS_close_range, fd, fd + 2, one_in(2) ? 2 : 0)); return;
    }
}

static void unshares(void) {
    static const int all[] = {CLONE_FS, CLONE_FILES, CLONE_SYSVSEM, CLONE_VM, CLONE_SIGHAND, CLONE_THREAD, CLONE_FS | CLONE_FILES, 0, CLONE_NEWUTS, CLONE_NEWUSER, CLONE_NEWTIME, CLONE_NEWPID, CLONE_NEWNS};
    int flags = ONE_OF(all);
    say("unshare %x", flags);
    answered(syscall(SYS_unshare, flags));
}

static void ids(void) {
    static const uid_t all[] = {0, 0, 0, 1000, 1001, (uid_t)-1};
    uid_t a = ONE_OF(all), b = ONE_OF(all), c = ONE_OF(all), uids[3], gids[3];
    gid_t groups[] = {a, b};
    if (one_in(3)) {
        switch (below(5)) {
        case 0: say("setresuid %d %d %d", a, b, c); answered(syscall(SYS_setresuid, a, b, c)); break;
        case 1: say("setresgid %d %d %d", a, b, c); answered(syscall(SYS_setresgid, a, b, c)); break;
        case 2: say("setfsuid %d", a); answered(syscall(SYS_setfsuid, a)); break;
        case 3: say("setgroups %d %d", a, b); answered(syscall(SYS_setgroups, 2, groups)); break;
        default: say("seteuid %d", a); answered(syscall(SYS_setresuid, -1, a, -1)); break;
        }
    } else {
        syscall(SYS_getresuid, &uids[0], &uids[1], &uids[2]);
        syscall(SYS_getresgid, &gids[0], &gids[1], &gids[2]);
        say("ids %d %d %d %d %d %d groups %ld\n", uids[0], uids[1], uids[2], gids[0], gids[1], gids[2], syscall(SYS_getgroups, 0, 0));
    }
}

static void capabilities(void) {
    struct __user_cap_data_struct data[2] = {{0}};
    int number = (int)below(24);
    say("caps of");
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, some_thread()};
    if (one_in(4)) {
        struct __user_cap_header_struct self = {_LINUX_CAPABILITY_VERSION_3, 0};
        syscall(SYS_capget, &self, data);
        data[0].effective &= ~(1u << number);
        say(" without %d", number);
        answered(syscall(SYS_capset, &header, data));
        return;
    }
    long result = syscall(SYS_capget, &header, data);
    if (result == 0)
        say(" %x %x", data[0].effective & 0xffffff, data[0].permitted & 0xffffff);
    answered(result);
}

static void names(void) {
    char path[64], text[64] = "";
    int slot = (int)below(THREADS), letter = 'a' + (int)below(26);
    snprintf(path, sizeof path, "/proc/self/task/%d/comm", threads[slot].tid);
    switch (below(4)) {
    case 0: memset(text, letter, 1 + below(20)); say("name %s", text); answered(syscall(SYS_prctl, PR_SET_NAME, text)); return;
    case 1: syscall(SYS_prctl, PR_GET_NAME, text); say("name is %s\n", text); return;
    case 2: {
        int file = open(path, O_WRONLY);
        memset(text, letter, 1 + below(18));
        say("comm of %d %s", slot, text);
        answered(file < 0 ? -1 : write(file, text, strlen(text)));
        close(file);
        return;
    }
    default: {
        int file = open(path, O_RDONLY);
        long got = file < 0 ? -1 : read(file, text, sizeof text - 1);
        if (got > 0)
            text[got - 1] = 0;
        say("comm of %d %s", slot, text);
        answered(got);
        close(file);
    }
    }
}

static void priorities(void) {
    static const int policies[] = {SCHED_OTHER, SCHED_OTHER, SCHED_BATCH, SCHED_IDLE, SCHED_FIFO, SCHED_RR, 7, SCHED_OTHER | SCHED_RESET_ON_FORK};
    static const int classes[] = {0, 1 << 13, 2 << 13, 2 << 13 | 4, 2 << 13 | 9, 3 << 13, 4 << 13};
    int nice = (int)below(12) - 2, policy = ONE_OF(policies), class = ONE_OF(classes);
    struct sched_param parameter = {.sched_priority = one_in(2) ? 0 : 1};
    switch (below(9)) {
    case 0: say("setpriority %d", nice); answered(syscall(SYS_setpriority, PRIO_PROCESS, some_thread(), nice)); return;
    case 1: say("getpriority"); answered(syscall(SYS_getpriority, PRIO_PROCESS, some_thread())); return;
    // None that would keep the others from their turn.
    case 2: if (policy == SCHED_FIFO || policy == SCHED_RR) policy = SCHED_BATCH; say("policy %x %d", policy, parameter.sched_priority); answered(syscall(SYS_sched_setscheduler, some_thread(), policy, &parameter)); return;
    case 3: say("policy"); answered(syscall(SYS_sched_getscheduler, some_thread())); return;
    case 4: say("ioprio %x", class); answered(syscall(SYS_ioprio_set, 1, some_thread(), class)); return;
    case 5: say("ioprio"); answered(syscall(SYS_ioprio_get, 1, some_thread())); return;
    case 6: {
        struct {
            uint32_t size, policy;
            uint64_t flags;
            int32_t nice;
            uint32_t priority;
            uint64_t times[3];
        } attributes;
        memset(&attributes, 0, sizeof attributes);
        say("sched_getattr");
        long result = syscall(SYS_sched_getattr, some_thread(), &attributes, sizeof attributes, 0);
        say(" %u %llu %d", attributes.policy, (unsigned long long)attributes.flags, attributes.nice);
        answered(result);
        return;
    }
    case 7: {
        unsigned long set = one_in(3) ? 0 : 1;
        say("affinity %lx", set);
        answered(syscall(SYS_sched_setaffinity, some_thread(), sizeof set, &set));
        return;
    }
    default: {
        unsigned long set = 0;
        say("affinity");
        long result = syscall(SYS_sched_getaffinity, some_thread(), sizeof set, &set);
        answered(result);
    }
    }
}

static void settings(void) {
    switch (below(12)) {
    case 0: { unsigned long slack = below(3) * 1000; say("slack %lu", slack); answered(syscall(SYS_prctl, PR_SET_TIMERSLACK, slack)); } return;
    case 1: say("slack"); answered(syscall(SYS_prctl, PR_GET_TIMERSLACK)); return;
    case 2: say("keep"); answered(syscall(SYS_prctl, PR_SET_KEEPCAPS, below(3))); return;
    case 3: say("keep is"); answered(syscall(SYS_prctl, PR_GET_KEEPCAPS)); return;
    case 4: say("dumpable is"); answered(syscall(SYS_prctl, PR_GET_DUMPABLE)); return;
    case 5: say("personality"); answered(syscall(SYS_personality, one_in(2) ? 0xffffffff : below(2) * 0x40000)); return;
    case 6: say("no new is"); answered(syscall(SYS_prctl, PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)); return;
    case 7: say("bound"); answered(syscall(SYS_prctl, PR_CAPBSET_DROP, 5 + below(3))); return;
    case 8: say("bound is"); answered(syscall(SYS_prctl, PR_CAPBSET_READ, 5 + below(3))); return;
    case 9: say("securebits"); answered(syscall(SYS_prctl, PR_SET_SECUREBITS, below(2) * 4)); return;
    case 10: say("securebits are"); answered(syscall(SYS_prctl, PR_GET_SECUREBITS)); return;
    default: say("death"); { int signal = (int)below(2) * SIGUSR2, got = -1; if (one_in(2)) answered(syscall(SYS_prctl, PR_SET_PDEATHSIG, signal)); else { syscall(SYS_prctl, PR_GET_PDEATHSIG, &got); answered(got); } } return;
    }
}

static void signals(void) {
    static const int all[] = {SIGUSR1, SIGUSR2, SIGURG, SIGTERM, 40};
    unsigned long set = 0, old = 0;
    int signal = ONE_OF(all);
    switch (below(7)) {
    case 0:
    case 1:
        for (size_t i = 0; i < COUNT(all); i++)
            if (one_in(2))
                set |= 1ul << (all[i] - 1);
        say("mask %lx", set);
        answered(syscall(SYS_rt_sigprocmask, SIG_BLOCK, &set, &old, 8));
        return;
    case 2: {
        say("tgkill %d", signal);
        answered(syscall(SYS_tgkill, getpid(), some_thread(), signal));
        return;
    }
    case 3: say("kill %d", signal); answered(syscall(SYS_kill, getpid(), signal)); return;
    case 4: syscall(SYS_rt_sigpending, &set, 8); say("pending %lx\n", set); return;
    case 5: {
        siginfo_t info;
        struct timespec none = {0, 0};
        set = ~0ul;
        say("take");
        answered(syscall(SYS_rt_sigtimedwait, &set, &info, &none, 8));
        return;
    }
    default: {
        static char room[THREADS][8192];
        static const size_t sizes[] = {8192, 8192, 100, 0};
        stack_t now, wanted = {.ss_sp = room[below(THREADS)], .ss_size = ONE_OF(sizes), .ss_flags = one_in(3) ? SS_DISABLE : one_in(6) ? 5 : 0};
        int asks = (int)below(2);
        say("sigaltstack %zu %x %d", wanted.ss_size, wanted.ss_flags, asks);
        long result = syscall(SYS_sigaltstack, asks ? 0 : &wanted, &now);
        if (result == 0)
            say(" was %zu %x", now.ss_size, now.ss_flags);
        answered(result);
    }
    }
}

static void tells(void) {
    static const char *const fields[] = {"Uid:", "CapEff:", "SigBlk:", "SigPnd:", "ShdPnd:", "Umask:", "NoNewPrivs:", "Threads:", "State:", "Seccomp:", "Groups:", "CapBnd:"};
    char path[64], text[4000];
    int slot = (int)below(THREADS);
    const char *field = ONE_OF(fields);
    snprintf(path, sizeof path, "/proc/self/task/%d/status", threads[slot].tid);
    say("status of %d", slot);
    int file = open(path, O_RDONLY);
    long got = file < 0 ? -1 : read(file, text, sizeof text - 1);
    close(file);
    if (got <= 0) {
        answered(got);
        return;
    }
    text[got] = 0;
    char *at = strstr(text, field), *end = at ? strchr(at, '\n') : 0;
    if (end)
        *end = 0;
    // Native capabilities need not be all; those below 24 are.
    if (at && !strncmp(at, "Cap", 3))
        memmove(at + 8, at + strlen(at) - 6, 7);
    say(" %s\n", at ? at : "none");
}

static void barriers(void) {
    static const int all[] = {MEMBARRIER_CMD_GLOBAL, MEMBARRIER_CMD_PRIVATE_EXPEDITED, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 3};
    int command = ONE_OF(all);
    say("membarrier %d", command);
    answered(syscall(SYS_membarrier, command, 0, 0));
}

static void (*const steps[])(void) = {
    directories, directories, descriptors, descriptors, unshares, ids, capabilities, names, priorities, priorities, settings, settings, signals, signals, signals, tells, tells, barriers,
};

static void *works(void *own) {
    long slot = (long)own;
    threads[slot].tid = (pid_t)syscall(SYS_gettid);
    char order;
    while (syscall(SYS_read, threads[slot].pipe[0], &order, 1) == 1) {
        if (order == 'x') {
            say("ends\n");
            fflush(stdout);
            threads[slot].is_gone = 1;
        } else {
            steps[below(COUNT(steps))]();
            fflush(stdout);
        }
        if (write(done[1], "d", 1) != 1)
            break;
        if (order == 'x')
            break;
    }
    return 0;
}

static void ignore(int signal) {
    (void)signal;
}

int main(int count, char **arguments) {
    int kind;
    long total = begin(count, arguments, &kind);
    prctl(PR_SET_NAME, "first");
    close_range(3, 100, 0);
    for (long at = 0; at < total; at += ROUND) {
        int over[2];
        fflush(stdout);
        if (pipe(over))
            return 1;
        pid_t child = fork();
        if (child == 0) {
            mkdir("/tmp/a", 0755);
            mkdir("/tmp/a/b", 0755);
            close(open("/tmp/a/f", O_CREAT | O_RDWR, 0644));
            if (chdir("/tmp"))
                _exit(1);
            umask(022);
            struct sigaction action = {.sa_handler = ignore, .sa_flags = SA_RESTART};
            static const int all[] = {SIGUSR1, SIGUSR2, SIGURG, SIGTERM, 40};
            for (size_t i = 0; i < COUNT(all); i++)
                sigaction(all[i], &action, 0);
            if (pipe(done))
                _exit(1);
            // The next ones that are given out are the steps' own.
            for (int fd = open("/", O_RDONLY); fd < 19 - 2 * THREADS; fd = dup(fd))
                ;
            for (long i = 0; i < THREADS; i++) {
                pthread_t thread;
                if (pipe(threads[i].pipe) || pthread_create(&thread, 0, works, (void *)i))
                    _exit(1);
                while (!*(volatile pid_t *)&threads[i].tid)
                    usleep(100);
            }
            for (int step = 0; step < ROUND; step++) {
                int slot = (int)below(THREADS), ends = one_in(60);
                if (threads[slot].is_gone)
                    continue;
                say("%ld %d ", at + step, slot);
                fflush(stdout);
                char byte;
                if (write(threads[slot].pipe[1], ends ? "x" : "s", 1) != 1)
                    _exit(1);
                while (read(done[0], &byte, 1) < 0 && errno == EINTR)
                    ;
                // Signals arrive, and a thread ends.
                usleep(1500);
            }
            if (write(over[1], &state, sizeof state) != sizeof state)
                _exit(1);
            _exit(0);
        }
        close(over[1]);
        if (read(over[0], &state, sizeof state) != sizeof state)
            return 1;
        close(over[0]);
        waitpid(child, 0, 0);
    }
    return 0;
}
