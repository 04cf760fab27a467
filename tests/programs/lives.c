// SPDX-License-Identifier: Apache-2.0 OR MIT
// What becomes of processes that fork, stop, go on, die, wait for each other, change groups and sessions and lose their
// parents: a schedule made of a seed, one step at a time, and each step's outcome on a line. Linux and the machine must say
// the same. Usage: lives FIRST_SEED SEEDS STEPS
#define _GNU_SOURCE
#include "check.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ACTORS = 12 };
enum verb { FORK, EXIT, KILL, KILL_GROUP, WAIT, SETPGID, SETSID, PARENT, REAPER, CHILD_ACTION, VERBS };

// What the conductor and the actors share. An actor is a process with a number of its own that outlives its pid.
static struct {
    pid_t pid[ACTORS];
    int command[ACTORS][4];
    volatile int busy[ACTORS];
    volatile int told[ACTORS]; // SIGCHLDs that came
    char outcome[ACTORS][160];
    int born;
} *shared;

static int pipes[ACTORS][2];
static pid_t conductor;

static uint64_t state;

static unsigned pick(unsigned below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % below;
}

static int actor_of(pid_t pid) {
    for (int i = 0; i < shared->born; i++)
        if (shared->pid[i] == pid) return i;
    return -1;
}

// The name of a process in the log: pids differ from run to run.
static const char *name_of(pid_t pid) {
    static char text[4][24];
    static int next;
    char *to = text[next++ % 4];
    int actor = actor_of(pid);
    if (actor >= 0) sprintf(to, "#%d", actor);
    else strcpy(to, pid == conductor ? "conductor" : pid == 0 ? "none" : "stranger");
    return to;
}

static void on_child(int signal) {
    (void)signal;
    int me = actor_of(getpid());
    if (me >= 0) shared->told[me] = 1;
}

static void set_child_action(int which) {
    struct sigaction action = {.sa_handler = which == 1 ? SIG_IGN : on_child, .sa_flags = SA_RESTART};
    if (which == 2) action.sa_flags |= SA_NOCLDWAIT;
    if (which == 3) action.sa_flags |= SA_NOCLDSTOP;
    CHECK(sigaction(SIGCHLD, &action, NULL) == 0);
}

static void act(int me);

static void perform(int me) {
    int *c = shared->command[me];
    char *out = shared->outcome[me];
    errno = 0;
    switch (c[0]) {
    case FORK: {
        int child = c[1];
        pid_t pid = fork();
        if (pid == 0) {
            set_child_action(0);
            act(child);
        }
        shared->pid[child] = pid;
        shared->born = child + 1;
        sprintf(out, "forked #%d", child);
        break;
    }
    case EXIT:
        _exit(c[1]);
    case KILL: {
        int result = kill(shared->pid[c[1]], c[2]);
        sprintf(out, "kill #%d %d = %d %s", c[1], c[2], result, strerrorname_np(errno));
        break;
    }
    case KILL_GROUP: {
        int result = kill(-shared->pid[c[1]], c[2]);
        sprintf(out, "kill -#%d %d = %d %s", c[1], c[2], result, strerrorname_np(errno));
        break;
    }
    case WAIT: {
        siginfo_t info;
        memset(&info, 0, sizeof info);
        idtype_t type = c[1] < 0 ? P_ALL : c[3] ? P_PGID : P_PID;
        int result = waitid(type, c[1] < 0 ? 0 : shared->pid[c[1]], &info, c[2] | WNOHANG);
        sprintf(out, "waitid %d #%d %x = %d %s: %s code %d status %d", type, c[1], c[2], result, strerrorname_np(errno),
                name_of(info.si_pid), info.si_code, info.si_status);
        break;
    }
    case SETPGID: {
        int result = setpgid(shared->pid[c[1]], shared->pid[c[2]]);
        sprintf(out, "setpgid #%d #%d = %d %s", c[1], c[2], result, strerrorname_np(errno));
        break;
    }
    case SETSID:
        sprintf(out, "setsid = %s %s", name_of(setsid()), strerrorname_np(errno));
        break;
    case PARENT:
        sprintf(out, "parent %s group %s session %s", name_of(getppid()), name_of(getpgrp()), name_of(getsid(0)));
        break;
    case REAPER:
        sprintf(out, "reaper %d = %d", c[1], prctl(PR_SET_CHILD_SUBREAPER, c[1]));
        break;
    case CHILD_ACTION:
        set_child_action(c[1]);
        sprintf(out, "child action %d", c[1]);
        break;
    }
}

// An actor: waits for its next step.
static void act(int me) {
    while (shared->pid[me] != getpid()) usleep(100);
    char byte;
    while (read(pipes[me][0], &byte, 1) == 1) {
        perform(me);
        shared->busy[me] = 0;
    }
    _exit(0);
}

// The letter of a process' state, and the signals that wait for it.
static char look(pid_t pid, uint64_t *pending) {
    char path[40], text[2048];
    sprintf(path, "/proc/%d/status", pid);
    int fd = open(path, O_RDONLY);
    if (fd < 0) return '-';
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0) return '-';
    text[n] = 0;
    char letter = 0;
    unsigned long own = 0, all = 0;
    sscanf(strstr(text, "State:"), "State: %c", &letter);
    char *line = strstr(text, "SigPnd:");
    if (line) sscanf(line, "SigPnd: %lx ShdPnd: %lx", &own, &all);
    *pending = own | all;
    return letter;
}

#define BIT(signal) (1ull << ((signal) - 1))

static int is_settled(int actor, char *letter) {
    uint64_t pending = 0;
    *letter = look(shared->pid[actor], &pending);
    switch (*letter) {
    case 'Z': case 'X': case '-':
        *letter = *letter == 'Z' ? 'Z' : '-';
        return 1;
    case 'T':
        return !(pending & (BIT(SIGKILL) | BIT(SIGCONT)));
    case 'S':
        return pending == 0 && !shared->busy[actor];
    default:
        return 0;
    }
}

// Waits until nobody does anything any more; the letters of all actors.
static void settle(char *letters) {
    struct timespec nap = {.tv_nsec = 200000};
    for (int calm = 0; calm < 2;) {
        int all = 1;
        for (int i = 0; i < shared->born; i++) all &= is_settled(i, &letters[i]);
        calm = all ? calm + 1 : 0;
        if (!all) nanosleep(&nap, NULL);
    }
    letters[shared->born] = 0;
}

// A group hears only what ends nobody: whose end comes first, and so who inherits whom, is chance where several die at once.
static int some_signal(int is_for_group) {
    static const int signals[] = {SIGSTOP, SIGSTOP, SIGCONT, SIGCONT, SIGTSTP, SIGTTIN, 0, SIGTERM, SIGKILL, SIGHUP};
    return signals[pick(is_for_group ? 7 : 10)];
}

static int some_wait(void) {
    int options = 0;
    if (pick(4)) options |= WEXITED;
    if (pick(2)) options |= WSTOPPED;
    if (pick(2)) options |= WCONTINUED;
    if (pick(5) == 0) options |= WNOWAIT;
    return options;
}

static void schedule(uint64_t seed, int steps) {
    char letters[ACTORS + 1] = "";
    state = seed * 2654435761u + 12345;
    CHECK(setsid() == getpid() && prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    conductor = getpid();
    // Its group may become an orphaned one with somebody stopped in it.
    signal(SIGHUP, SIG_IGN);
    for (int i = 0; i < ACTORS; i++) CHECK(pipe2(pipes[i], O_CLOEXEC) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        signal(SIGHUP, SIG_DFL);
        set_child_action(0);
        act(0);
    }
    shared->pid[0] = pid;
    shared->born = 1;
    settle(letters);
    for (int step = 0; step < steps; step++) {
        int awake[ACTORS], count = 0;
        for (int i = 0; i < shared->born; i++)
            if (letters[i] == 'S') awake[count++] = i;
        // Draws are made whoever is awake, so that one difference does not make all that follows another one.
        unsigned who = pick(1000), verb = pick(VERBS + 10);
        int a = pick(shared->born), b = pick(shared->born), options = some_wait(), coin = pick(3), code = pick(100);
        if (count == 0) {
            // Somebody stopped goes on, or all is over.
            char *stopped = strchr(letters, 'T');
            if (!stopped) break;
            kill(shared->pid[stopped - letters], SIGCONT);
            settle(letters);
            printf("%d conductor: continues #%d | %s\n", step, (int)(stopped - letters), letters);
            continue;
        }
        int me = awake[who % count], *c = shared->command[me];
        if (verb == EXIT && code % 3) verb = WAIT;
        if (verb >= VERBS) verb = verb < VERBS + 3 ? FORK : verb < VERBS + 7 ? WAIT : KILL;
        if (verb == FORK && shared->born == ACTORS) verb = PARENT;
        // The last one that is awake stays.
        if (verb == EXIT && count == 1) verb = WAIT;
        c[0] = verb;
        c[1] = a, c[2] = b, c[3] = 0;
        switch (verb) {
        case FORK: c[1] = shared->born; break;
        case EXIT: c[1] = code; break;
        case KILL: c[2] = some_signal(0); break;
        case KILL_GROUP: c[2] = some_signal(1); break;
        case WAIT: c[1] = coin ? -1 : a, c[2] = options, c[3] = code & 1; break;
        case REAPER: c[1] = code & 1; break;
        case CHILD_ACTION: c[1] = code % 4; break;
        }
        // A pid that has been freed may be anybody's by now: nobody aims at those.
        if ((verb == KILL || verb == KILL_GROUP || verb == SETPGID) && (letters[a] == '-' || letters[b] == '-')) c[0] = PARENT;
        memset((void *)shared->told, 0, sizeof shared->told);
        strcpy(shared->outcome[me], "-");
        shared->busy[me] = 1;
        CHECK(write(pipes[me][1], "x", 1) == 1);
        settle(letters);
        printf("%d #%d %s | %s told", step, me, shared->outcome[me], letters);
        for (int i = 0; i < shared->born; i++)
            if (shared->told[i]) printf(" #%d", i);
        // What came to the conductor, as the reaper of orphans, in the order of their numbers.
        siginfo_t reaped[ACTORS] = {0}, info = {0};
        while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG) == 0 && info.si_pid) {
            reaped[actor_of(info.si_pid)] = info;
            info.si_pid = 0;
        }
        for (int i = 0; i < ACTORS; i++) {
            if (!reaped[i].si_pid) continue;
            printf(" reaped #%d code %d status %d", i, reaped[i].si_code, reaped[i].si_status);
            letters[i] = '-';
        }
        printf("\n");
    }
    for (int i = 0; i < shared->born; i++)
        if (letters[i] == 'S' || letters[i] == 'T') kill(shared->pid[i], SIGKILL);
    // Their children come to the conductor.
    while (wait(NULL) > 0 || errno == EINTR) {}
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    uint64_t first = strtoull(argv[1], NULL, 10);
    int seeds = atoi(argv[2]), steps = atoi(argv[3]);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    for (int i = 0; i < seeds; i++) {
        memset(shared, 0, sizeof *shared);
        printf("seed %lu\n", (unsigned long)(first + i));
        fflush(stdout);
        int status;
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            schedule(first + i, steps);
            fflush(stdout);
            _exit(0);
        }
        CHECK(waitpid(pid, &status, 0) == pid);
        printf("ended %x\n", status);
    }
    puts("all lives are over");
    return 0;
}
