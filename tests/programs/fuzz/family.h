// SPDX-License-Identifier: Apache-2.0 OR MIT
// Processes and threads of a seed: each makes calls of its own; their parents signal, trace and wait for them.
#pragma once
#include "arguments.h"
#include <pthread.h>
#include <spawn.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

enum { CHILDREN = 8, MAX_FORKS = 24, MAX_THREADS = 6 };

// What all processes of a seed and the one that runs it share.
struct shared {
    _Atomic long calls;
    _Atomic int forks;
};

static struct shared *shared;
static pid_t children[CHILDREN];

static void make_calls(int count);
static void interrupt_waits(void);

// Makes calls of its own: those of the stream that its parent's begins here.
static void live(uint64_t seed, int count)
{
    begin_stream(seed);
    memset(children, 0, sizeof children);
    interrupt_waits();
    make_calls(count);
    _exit((int)below(256));
}

static void beget(pid_t *child)
{
    uint64_t seed = number(), kind = below(8);
    int count = 100 + (int)below(400);
    char *ids = slot();
    if (shared->forks++ >= MAX_FORKS)
        return;
    if (*child > 0) {
        kill(*child, SIGKILL);
        waitpid(*child, NULL, one_in(2) ? WNOHANG : 0);
    }
    if (kind == 0) {
        // Begins anew as another program in the place of a copy, with CLONE_VM and CLONE_VFORK.
        char text[24], *words[] = {"fuzz", "again", text, NULL};
        snprintf(text, sizeof text, "%lu", seed);
        if (posix_spawn(child, "/proc/self/exe", NULL, NULL, words, environ))
            *child = 0;
        return;
    }
    *child = kind < 4 ? fork()
                      : (pid_t)syscall(SYS_clone,
                                       SIGCHLD | BITS(CLONE_FILES, CLONE_FS, CLONE_PARENT_SETTID,
                                                      CLONE_CHILD_SETTID, CLONE_PARENT, CLONE_SYSVSEM),
                                       0, ids, ids, 0);
    if (*child == 0) {
        if (kind == 1)
            setsid();
        if (kind == 2)
            ptrace(PTRACE_TRACEME);
        live(seed, count);
    }
}

static void *thread(void *seed)
{
    begin_stream((uint64_t)seed);
    make_calls(400);
    return NULL;
}

static void begin_thread(void)
{
    static _Atomic int begun;
    pthread_attr_t attributes;
    pthread_t id;
    uint64_t seed = number();
    if (begun++ >= MAX_THREADS)
        return;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 16 * PAGE);
    pthread_create(&id, &attributes, thread, (void *)seed);
}

static void trace(pid_t child)
{
    static const int requests[] = {
        PTRACE_ATTACH,     PTRACE_SEIZE,     PTRACE_CONT,       PTRACE_DETACH,      PTRACE_SYSCALL,
        PTRACE_SINGLESTEP, PTRACE_PEEKDATA,  PTRACE_POKEDATA,   PTRACE_PEEKUSER,    PTRACE_GETREGS,
        PTRACE_SETREGS,    PTRACE_GETFPREGS, PTRACE_SETFPREGS,  PTRACE_SETOPTIONS,  PTRACE_GETEVENTMSG,
        PTRACE_INTERRUPT,  PTRACE_LISTEN,    PTRACE_KILL,       PTRACE_GETSIGINFO,  PTRACE_SETSIGINFO,
        PTRACE_GETREGSET,  PTRACE_SETREGSET, PTRACE_GETSIGMASK, PTRACE_PEEKSIGINFO,
    };
    ptrace(requests[below(sizeof requests / sizeof *requests)], child, memory(),
           one_in(2) ? memory() : below(0x200000));
}

// Another program takes the place of this one, beside threads that go on making calls; or a file that is none.
static void replace(void)
{
    static char *const files[] = {"/dev/null", "/tmp/f", "/tmp/none", "/proc/self/exe"};
    char text[24], *words[] = {"fuzz", "again", text, NULL};
    snprintf(text, sizeof text, "%lu", number());
    if (shared->forks++ < MAX_FORKS)
        execve(files[below(4)], words, environ);
}

static void relate(void)
{
    pid_t *child = &children[below(CHILDREN)];
    shared->calls++;
    switch (below(10)) {
    case 0:
    case 1:
        beget(child);
        return;
    case 2:
        begin_thread();
        return;
    case 3:
        if (one_in(20))
            replace();
        return;
    case 4:
        syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), ONE(0, SIGUSR1, SIGUSR2, 34, 40));
        return;
    default:
        break;
    }
    if (*child <= 0)
        return;
    switch (below(6)) {
    case 0:
        kill(*child, one_in(3) ? SIGCONT : one_in(3) ? SIGSTOP : (int)below(65));
        return;
    case 1:
        trace(*child);
        return;
    case 2:
        syscall(SYS_wait4, one_in(2) ? *child : -1, null_or_memory(),
                WNOHANG | BITS(WUNTRACED, WCONTINUED, __WALL, __WCLONE), null_or_memory());
        return;
    case 3:
        syscall(one_in(2) ? SYS_process_vm_readv : SYS_process_vm_writev, *child, vector(), few(), vector(), few(),
                0);
        return;
    case 4:
        syscall(SYS_setpgid, *child, one_in(2) ? 0 : *child);
        return;
    default:
        syscall(SYS_prlimit64, *child, below(16), limits(), null_or_memory());
    }
}
