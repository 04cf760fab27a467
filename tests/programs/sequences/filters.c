// SPDX-License-Identifier: Apache-2.0 OR MIT
// Random sequences of calls (sequences.h) on filters of system calls: programs of classic BPF, most of them sound, installed by
// prctl(2) or seccomp(2) with all flags, up to four in a row, by one of two threads or for both, and what a dozen calls answer under
// them. A child for each step; what it learnt it leaves in memory that is shared, for which no call is needed.
#include "sequences.h"
#include <linux/audit.h>
#include <linux/bpf_common.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { ROOM = 6000, MOST = 14 };

static struct {
    uint64_t state;
    int length;
    char text[ROOM];
} *shared;

static void tell(const char *format, ...) {
    va_list list;
    va_start(list, format);
    int room = ROOM - shared->length;
    int length = vsnprintf(shared->text + shared->length, (size_t)room, format, list);
    shared->length += length < room ? length : room - 1;
    va_end(list);
}

static void tell_answer(long result) {
    if (result < 0)
        tell("=%s", strerrorname_np(errno) ? strerrorname_np(errno) : "?");
    else
        tell("=%ld", result);
}

static const int calls[] = {SYS_getuid, SYS_getpriority, SYS_umask, SYS_dup3, SYS_close, SYS_kill, SYS_lseek, SYS_prctl, SYS_readlink, SYS_getpgid, 999, SYS_sched_yield};

static uint32_t some_action(void) {
    static const uint32_t all[] = {SECCOMP_RET_ALLOW, SECCOMP_RET_ALLOW, SECCOMP_RET_ALLOW, SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO, SECCOMP_RET_ERRNO, SECCOMP_RET_TRAP, SECCOMP_RET_TRAP, SECCOMP_RET_LOG, SECCOMP_RET_TRACE, SECCOMP_RET_USER_NOTIF, SECCOMP_RET_KILL_THREAD, SECCOMP_RET_KILL_PROCESS, 0x12340000};
    uint32_t action = ONE_OF(all);
    return action | (one_in(3) ? below(4) : one_in(2) ? below(134) : below(0x10000));
}

// An instruction, at `at` of `length`.
static struct sock_filter instruction(int at, int length) {
    static const uint16_t alu[] = {BPF_ADD, BPF_SUB, BPF_MUL, BPF_DIV, BPF_OR, BPF_AND, BPF_LSH, BPF_RSH, BPF_NEG, BPF_XOR, BPF_MOD};
    static const uint16_t jumps[] = {BPF_JEQ, BPF_JEQ, BPF_JEQ, BPF_JGT, BPF_JGE, BPF_JSET, BPF_JA};
    uint32_t left = (uint32_t)(length - at - 1), number = one_in(2) ? (uint32_t)ONE_OF(calls) : one_in(2) ? below(40) : below(2) * AUDIT_ARCH_X86_64;
    uint8_t yes = (uint8_t)(left > 1 ? below(left) : 0), no = (uint8_t)(left > 1 ? below(left) : 0);
    switch (below(14)) {
    case 0:
    case 1:
    case 2: return (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, one_in(20) ? below(80) : one_in(2) ? 0 : 4 * below(16));
    case 3:
    case 4:
    case 5: {
        uint16_t code = ONE_OF(jumps);
        if (code == BPF_JA)
            return (struct sock_filter)BPF_STMT(BPF_JMP | BPF_JA, yes);
        return (struct sock_filter)BPF_JUMP(BPF_JMP | code | (one_in(4) ? BPF_X : BPF_K), number, yes, no);
    }
    case 6: {
        uint16_t code = ONE_OF(alu);
        return (struct sock_filter)BPF_STMT(BPF_ALU | code | (one_in(2) ? BPF_X : BPF_K), code == BPF_LSH || code == BPF_RSH ? below(34) : number);
    }
    case 7: return (struct sock_filter)BPF_STMT(BPF_LD | BPF_IMM, number);
    case 8: return (struct sock_filter)BPF_STMT((one_in(2) ? BPF_ST : BPF_STX), below(17));
    case 9: return (struct sock_filter)BPF_STMT((one_in(2) ? BPF_LD : BPF_LDX) | BPF_MEM, below(17));
    case 10: return (struct sock_filter)BPF_STMT(BPF_MISC | (one_in(2) ? BPF_TAX : BPF_TXA), 0);
    case 11: return (struct sock_filter)BPF_STMT((one_in(2) ? BPF_LD : BPF_LDX) | BPF_W | BPF_LEN, 0);
    case 12: return (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, some_action());
    default: return one_in(12) ? (struct sock_filter){(uint16_t)below(256), yes, no, number} : (struct sock_filter)BPF_STMT(BPF_LDX | BPF_IMM, number);
    }
}

static void install(void) {
    static const uint32_t flags_of[] = {0, 0, 0, SECCOMP_FILTER_FLAG_TSYNC, SECCOMP_FILTER_FLAG_LOG, SECCOMP_FILTER_FLAG_SPEC_ALLOW, SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_TSYNC_ESRCH, SECCOMP_FILTER_FLAG_TSYNC_ESRCH, 1 << 6, SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_LOG};
    struct sock_filter program[MOST + 4];
    int length = 1 + (int)below(MOST), odd = (int)below(24);
    for (int i = 0; i < length; i++)
        program[i] = instruction(i, length);
    // Most programs let through what is needed to tell of them, and end with an answer.
    int at = 0, is_kind = !one_in(8);
    if (is_kind && length < MOST - 4) {
        memmove(program + 3, program, sizeof *program * (size_t)length);
        program[0] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0);
        program[1] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 200, 0, 1);
        program[2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
        length += 3;
        at = 3;
    }
    if (!one_in(16))
        program[length - 1] = one_in(6) ? (struct sock_filter)BPF_STMT(BPF_RET | BPF_A, 0) : (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, some_action());
    struct sock_fprog whole = {(unsigned short)(odd == 0 ? 0 : odd == 1 ? 4097 : length), odd == 2 ? (struct sock_filter *)8 : program};
    tell(" filter of %d", whole.len);
    for (int i = at; i < length; i++)
        tell(" %x:%d:%d:%x", program[i].code, program[i].jt, program[i].jf, program[i].k);
    if (one_in(3)) {
        tell(" by prctl");
        tell_answer(syscall(SYS_prctl, PR_SET_SECCOMP, one_in(12) ? (long)below(4) : SECCOMP_MODE_FILTER, &whole, 0, 0));
        return;
    }
    uint32_t flags = ONE_OF(flags_of), operation = one_in(12) ? below(5) : SECCOMP_SET_MODE_FILTER;
    tell(" by seccomp %u %x", operation, flags);
    uint32_t action = some_action() & SECCOMP_RET_ACTION_FULL;
    struct seccomp_notif_sizes sizes;
    void *argument = operation == SECCOMP_GET_ACTION_AVAIL ? (void *)&action : operation == SECCOMP_GET_NOTIF_SIZES ? (void *)&sizes : operation == SECCOMP_SET_MODE_STRICT ? 0 : &whole;
    if (operation == SECCOMP_GET_ACTION_AVAIL)
        tell(" %x", action);
    long result = syscall(SYS_seccomp, operation, flags, argument);
    tell_answer(result > 0 ? 1 : result);
    if (result == 0 && operation == SECCOMP_GET_NOTIF_SIZES)
        tell(" %d %d %d", sizes.seccomp_notif, sizes.seccomp_notif_resp, sizes.seccomp_data);
}

static void trapped(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    tell(" trap %d %d %d %x", info->si_code, info->si_errno, info->si_syscall, info->si_arch);
}

static void try_calls(int count) {
    for (int i = 0; i < count; i++) {
        int number = ONE_OF(calls);
        long a = 0, b = 0;
        switch (number) {
        case SYS_getpriority: break;
        case SYS_umask: a = below(512); break;
        case SYS_dup3: a = 1000; b = 1001; break;
        case SYS_close: a = 1000 + below(4); break;
        case SYS_kill: a = 0x7fffffff; break;
        case SYS_lseek: a = 1000; b = below(40); break;
        case SYS_prctl: a = one_in(2) ? PR_GET_SECCOMP : PR_GET_NO_NEW_PRIVS; break;
        case SYS_readlink: a = 8; break;
        case SYS_getpgid: a = 0x7ffffff0; break;
        }
        tell(" %d", number);
        errno = 0;
        long result = syscall(number, a, b, 0, 0, 0, 0);
        tell_answer(result);
    }
}

static void *other(void *argument) {
    volatile int *turn = argument;
    // What the library asks for at a thread's start no filter hinders.
    *turn = -1;
    while (*turn == -1)
        ;
    if (*turn == 1) {
        tell(" | other");
        try_calls(3);
        tell(" |");
        *turn = 2;
    }
    // It makes no call any more.
    while (*turn)
        ;
    return 0;
}

static void child(void) {
    static volatile int turn;
    struct rlimit none = {0, 0};
    struct sigaction action = {.sa_sigaction = trapped, .sa_flags = SA_SIGINFO};
    setrlimit(RLIMIT_CORE, &none);
    // A thread that is killed is waited for.
    alarm(2);
    if (!one_in(6))
        sigaction(SIGSYS, &action, 0);
    int is_user = one_in(2), has_other = one_in(12);
    if (is_user)
        syscall(SYS_setresuid, 1000, 1000, 1000);
    if (!one_in(6))
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    tell("user %d two %d", is_user, has_other);
    pthread_t thread;
    if (has_other) {
        pthread_create(&thread, 0, other, (void *)&turn);
        while (turn == 0)
            ;
    }
    for (int i = 1 + (int)below(4); i > 0; i--) {
        install();
        try_calls(2);
    }
    if (has_other) {
        turn = 1;
        while (turn == 1)
            ;
    }
    try_calls(4);
    _exit(3);
}

static void filters(void) {
    fflush(stdout);
    shared->length = 0;
    shared->state = state;
    // The draws of a step do not depend on what its calls answered.
    below(1);
    uint64_t next = state * 31 + 7;
    pid_t pid = fork();
    if (pid == 0)
        child();
    int status = 0;
    waitpid(pid, &status, 0);
    state = next;
    say("%.*s ", shared->length, shared->text);
    if (WIFSIGNALED(status))
        say(" killed by %d\n", WTERMSIG(status));
    else
        say(" ended with %d\n", WEXITSTATUS(status));
}

int main(int count, char **arguments) {
    int kind;
    long steps = begin(count, arguments, &kind);
    shared = mmap(0, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    void (*const all[])(void) = {filters};
    run_steps(all, 1, steps, 0);
    return 0;
}
