// SPDX-License-Identifier: Apache-2.0 OR MIT
// Filters of system calls: what they answer is what the program meets, its threads, its children and the programs they
// become, and nobody else; they are never taken back; and what is no filter is refused.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "check.h"

#ifndef SYS_SECCOMP
#define SYS_SECCOMP 1
#endif

#define FAILS(call, error) CHECK((errno = 0, (call) == -1) && errno == (error))
#define NUMBER BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))
#define IF_CALL(call, answer)                                                                                     \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1), BPF_STMT(BPF_RET | BPF_K, answer)
#define ELSE_ALLOW BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
#define LENGTH(a) (sizeof(a) / sizeof *(a))

static long seccomp(unsigned operation, unsigned flags, void *argument)
{
    return syscall(SYS_seccomp, operation, flags, argument);
}

static long install(struct sock_filter *filter, size_t length, unsigned flags)
{
    struct sock_fprog program = {.len = (unsigned short)length, .filter = filter};
    return seccomp(SECCOMP_SET_MODE_FILTER, flags, &program);
}

// Answers `answer` to getpriority, which nobody needs.
static long answer_getpriority(unsigned answer, unsigned flags)
{
    struct sock_filter filter[] = {NUMBER, IF_CALL(SYS_getpriority, answer), ELSE_ALLOW};
    return install(filter, LENGTH(filter), flags);
}

static long field(const char *name)
{
    char text[4096], *at;
    int fd = open("/proc/thread-self/status", O_RDONLY);
    CHECK(fd >= 0);
    ssize_t length = read(fd, text, sizeof text - 1);
    CHECK(length > 0 && close(fd) == 0);
    text[length] = 0;
    CHECK((at = strstr(text, name)));
    return atol(at + strlen(name));
}

// What a child that does `what` ended with.
static int child(void (*what)(void))
{
    int status;
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
        what();
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    return status;
}

#define ENDS_WELL(what) CHECK(child(what) == 0)
#define DIES_OF(signal, what)                                                                                     \
    do {                                                                                                          \
        int status_ = child(what);                                                                                \
        CHECK(WIFSIGNALED(status_) && WTERMSIG(status_) == (signal));                                             \
    } while (0)

static void errors_and_arguments(void)
{
    CHECK(prctl(PR_GET_SECCOMP) == 0 && field("\nSeccomp:") == 0 && field("Seccomp_filters:") == 0);
    CHECK(answer_getpriority(SECCOMP_RET_ERRNO | 77, 0) == 0);
    CHECK(prctl(PR_GET_SECCOMP) == 2 && field("\nSeccomp:") == 2 && field("Seccomp_filters:") == 1);
    FAILS(syscall(SYS_getpriority, 0, 0), 77);
    // Of equal answers the newest counts, of others the stronger; none is taken back.
    CHECK(answer_getpriority(SECCOMP_RET_ERRNO | 78, 0) == 0);
    FAILS(syscall(SYS_getpriority, 0, 0), 78);
    CHECK(answer_getpriority(SECCOMP_RET_ALLOW, 0) == 0);
    FAILS(syscall(SYS_getpriority, 0, 0), 78);
    CHECK(field("Seccomp_filters:") == 3);
    FAILS(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0), EINVAL);
    // By an argument, both halves, and by the instruction's address.
    struct sock_filter by_argument[] = {
        NUMBER,
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_lseek, 0, 5),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x89abcdef, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1]) + 4),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x1234567, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 5000),
        ELSE_ALLOW,
    };
    CHECK(install(by_argument, LENGTH(by_argument), 0) == 0);
    FAILS(lseek(-1, 0x123456789abcdef, SEEK_SET), 4095);
    FAILS(lseek(-1, 0x89abcdef, SEEK_SET), EBADF);
    struct sock_filter nothing[] = {NUMBER, IF_CALL(SYS_getpgid, SECCOMP_RET_ERRNO), ELSE_ALLOW};
    CHECK(install(nothing, LENGTH(nothing), 0) == 0);
    CHECK(syscall(SYS_getpgid, 12345678) == 0);
    // A call that the fast way serves otherwise, and one that does not exist.
    struct sock_filter fast[] = {NUMBER, IF_CALL(SYS_getppid, SECCOMP_RET_ERRNO | 9), IF_CALL(9999, SECCOMP_RET_ERRNO | 8),
                                 ELSE_ALLOW};
    CHECK(install(fast, LENGTH(fast), 0) == 0);
    FAILS(syscall(SYS_getppid), 9);
    FAILS(syscall(9999), 8);
    // Nobody traces.
    struct sock_filter traced[] = {NUMBER, IF_CALL(SYS_getpgrp, SECCOMP_RET_TRACE | 3), ELSE_ALLOW};
    CHECK(install(traced, LENGTH(traced), 0) == 0);
    FAILS(syscall(SYS_getpgrp), ENOSYS);
    // Children have them, and what they become.
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        CHECK(syscall(SYS_getppid) == -1 && errno == 9);
        execl("/proc/self/exe", "again", "filtered", NULL);
        _exit(1);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

static void strict(void)
{
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0);
    CHECK(write(STDOUT_FILENO, "", 0) == 0);
    syscall(SYS_exit, 0);
}

static void strict_and_more(void)
{
    CHECK(seccomp(SECCOMP_SET_MODE_STRICT, 0, NULL) == 0);
    getpid();
    syscall(SYS_getpid);
}

static void killed(void)
{
    // Neither a handler nor a mask keeps it away.
    sigset_t all;
    sigfillset(&all);
    CHECK(signal(SIGSYS, SIG_IGN) != SIG_ERR && sigprocmask(SIG_SETMASK, &all, NULL) == 0);
    CHECK(answer_getpriority(SECCOMP_RET_KILL_PROCESS, 0) == 0);
    syscall(SYS_getpriority, 0, 0);
}

static void unknown_answer(void)
{
    CHECK(answer_getpriority(0x12340000, 0) == 0);
    syscall(SYS_getpriority, 0, 0);
}

static void *forbidden(void *unused)
{
    syscall(SYS_getpriority, 0, 0);
    return unused;
}

static void a_thread_is_killed(void)
{
    pthread_t thread;
    CHECK(answer_getpriority(SECCOMP_RET_KILL_THREAD, 0) == 0);
    CHECK(pthread_create(&thread, NULL, forbidden, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    // The last one takes the process along.
    syscall(SYS_getpriority, 0, 0);
}

static volatile siginfo_t told;
static volatile long rax, rip;

static void trapped(int signal, siginfo_t *info, void *context)
{
    ucontext_t *c = context;
    CHECK(signal == SIGSYS);
    memcpy((void *)&told, info, sizeof told);
    rax = c->uc_mcontext.gregs[REG_RAX];
    rip = c->uc_mcontext.gregs[REG_RIP];
    c->uc_mcontext.gregs[REG_RAX] = 4711;
}

static void traps(void)
{
    struct sigaction action = {.sa_sigaction = trapped, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGSYS, &action, NULL) == 0);
    CHECK(answer_getpriority(SECCOMP_RET_TRAP | 99, 0) == 0);
    CHECK(syscall(SYS_getpriority, 1, 2) == 4711);
    CHECK(told.si_signo == SIGSYS && told.si_code == SYS_SECCOMP && told.si_errno == 99);
    CHECK(told.si_syscall == SYS_getpriority && told.si_arch == AUDIT_ARCH_X86_64);
    CHECK(rax == SYS_getpriority && (long)told.si_call_addr == rip);
}

static volatile int go, refused;

static void *waits(void *unused)
{
    while (!go)
        usleep(1000);
    errno = 0;
    refused = syscall(SYS_getpriority, 0, 0) == -1 ? errno : 0;
    CHECK(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
    return unused;
}

static void *has_its_own(void *unused)
{
    CHECK(answer_getpriority(SECCOMP_RET_ERRNO | 1, 0) == 0);
    refused = (int)syscall(SYS_gettid);
    while (!go)
        usleep(1000);
    return unused;
}

static void threads_together(void)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, waits, NULL) == 0);
    CHECK(answer_getpriority(SECCOMP_RET_ERRNO | 21, SECCOMP_FILTER_FLAG_TSYNC) == 0);
    go = 1;
    CHECK(pthread_join(thread, NULL) == 0 && refused == 21);
    go = refused = 0;
    CHECK(pthread_create(&thread, NULL, has_its_own, NULL) == 0);
    while (!refused)
        usleep(1000);
    // It has a filter that this thread has not.
    CHECK(answer_getpriority(SECCOMP_RET_ALLOW, SECCOMP_FILTER_FLAG_TSYNC) == refused);
#ifdef SECCOMP_FILTER_FLAG_TSYNC_ESRCH
    FAILS(answer_getpriority(SECCOMP_RET_ALLOW, SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_TSYNC_ESRCH), ESRCH);
#endif
    go = 1;
    CHECK(pthread_join(thread, NULL) == 0);
}

static void is_traced(void)
{
    CHECK(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0);
    raise(SIGSTOP);
    CHECK(answer_getpriority(SECCOMP_RET_TRACE | 55, 0) == 0);
    // The tracer makes it getpid, then skips it.
    CHECK(syscall(SYS_getpriority, 1, 2) == getpid());
    CHECK(syscall(SYS_getpriority, 1, 2) == 1234);
}

static void a_tracer_decides(void)
{
    int status;
    struct user_regs_struct registers;
    unsigned long message;
    pid_t pid = fork();
    if (pid == 0) {
        CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
        is_traced();
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && WIFSTOPPED(status));
    CHECK(ptrace(PTRACE_SETOPTIONS, pid, NULL, PTRACE_O_TRACESECCOMP) == 0);
    for (int time = 0; time < 2; time++) {
        CHECK(ptrace(PTRACE_CONT, pid, NULL, NULL) == 0);
        CHECK(waitpid(pid, &status, 0) == pid && status >> 8 == (SIGTRAP | PTRACE_EVENT_SECCOMP << 8));
        CHECK(ptrace(PTRACE_GETEVENTMSG, pid, NULL, &message) == 0 && message == 55);
        CHECK(ptrace(PTRACE_GETREGS, pid, NULL, &registers) == 0);
        CHECK(registers.orig_rax == SYS_getpriority && registers.rdi == 1 && registers.rsi == 2);
        CHECK((long)registers.rax == -ENOSYS);
        registers.orig_rax = time == 0 ? SYS_getpid : -1UL;
        registers.rax = 1234;
        CHECK(ptrace(PTRACE_SETREGS, pid, NULL, &registers) == 0);
    }
    CHECK(ptrace(PTRACE_CONT, pid, NULL, NULL) == 0);
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

static void without_rights(void)
{
    CHECK(setresuid(1000, 1000, 1000) == 0);
    struct sock_filter allow[] = {ELSE_ALLOW};
    FAILS(install(allow, 1, 0), EACCES);
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && install(allow, 1, 0) == 0);
}

static void what_is_no_filter(void)
{
    struct sock_filter good[] = {ELSE_ALLOW}, no_end[] = {NUMBER}, far[] = {BPF_STMT(BPF_JMP | BPF_JA, 1), ELSE_ALLOW},
                       outside[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 64), ELSE_ALLOW},
                       unwritten[] = {BPF_STMT(BPF_LD | BPF_MEM, 3), ELSE_ALLOW},
                       no_opcode[] = {BPF_STMT(0xffff, 0), ELSE_ALLOW},
                       divided[] = {BPF_STMT(BPF_ALU | BPF_DIV | BPF_K, 0), ELSE_ALLOW};
    FAILS(install(no_end, 1, 0), EINVAL);
    FAILS(install(far, 2, 0), EINVAL);
    FAILS(install(outside, 2, 0), EINVAL);
    FAILS(install(unwritten, 2, 0), EINVAL);
    FAILS(install(no_opcode, 2, 0), EINVAL);
    FAILS(install(divided, 2, 0), EINVAL);
    FAILS(install(good, 0, 0), EINVAL);
    FAILS(install(good, 4097, 0), EINVAL);
    FAILS(install(NULL, 1, 0), EINVAL);
    FAILS(install((void *)-8L, 1, 0), EFAULT);
    FAILS(seccomp(SECCOMP_SET_MODE_FILTER, 0, NULL), EFAULT);
    FAILS(seccomp(SECCOMP_SET_MODE_FILTER, 0, (void *)-8L), EFAULT);
    FAILS(install(good, 1, 0x80000000), EINVAL);
    FAILS(seccomp(SECCOMP_SET_MODE_STRICT, 1, NULL), EINVAL);
    FAILS(seccomp(SECCOMP_SET_MODE_STRICT, 0, good), EINVAL);
    FAILS(seccomp(99, 0, NULL), EINVAL);
    FAILS(prctl(PR_SET_SECCOMP, 3, 0, 0, 0), EINVAL);
    uint32_t action = SECCOMP_RET_KILL_PROCESS;
    CHECK(seccomp(SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0);
    action = SECCOMP_RET_ALLOW;
    CHECK(seccomp(SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0);
    FAILS(seccomp(SECCOMP_GET_ACTION_AVAIL, 1, &action), EINVAL);
    action = 0x12340000;
    FAILS(seccomp(SECCOMP_GET_ACTION_AVAIL, 0, &action), EOPNOTSUPP);
    FAILS(seccomp(SECCOMP_GET_ACTION_AVAIL, 0, NULL), EFAULT);
}

// Thousands of them, until a call would take too long; and all go with the process.
static void many(void)
{
    struct sock_filter allow[16] = {[0 ... 14] = BPF_STMT(BPF_LD | BPF_IMM, 0), [15] = ELSE_ALLOW};
    int installed = 0;
    while (install(allow, 16, 0) == 0)
        CHECK(++installed < 20000);
    CHECK(errno == ENOMEM && installed > 1000);
    CHECK(getppid() > 0);
}

int main(int count, char **words)
{
    (void)words;
    if (count > 1) {
        CHECK(prctl(PR_GET_SECCOMP) == 2);
        FAILS(syscall(SYS_getppid), 9);
        return 0;
    }
    ENDS_WELL(errors_and_arguments);
    ENDS_WELL(strict);
    DIES_OF(SIGKILL, strict_and_more);
    DIES_OF(SIGSYS, killed);
    DIES_OF(SIGSYS, unknown_answer);
    DIES_OF(SIGSYS, a_thread_is_killed);
    ENDS_WELL(traps);
    ENDS_WELL(threads_together);
    a_tracer_decides();
    ENDS_WELL(what_is_no_filter);
    ENDS_WELL(many);
    if (getuid() == 0) {
        int status;
        pid_t pid = fork();
        if (pid == 0) {
            without_rights();
            _exit(0);
        }
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    }
    // Nobody else has any of it.
    CHECK(prctl(PR_GET_SECCOMP) == 0 && syscall(SYS_getpriority, 0, 0) > 0);
    printf("all filter tests passed\n");
    return 0;
}
