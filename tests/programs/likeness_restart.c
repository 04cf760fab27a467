// SPDX-License-Identifier: Apache-2.0 OR MIT
// Calls with a deadline that a signal interrupts and no handler sees go on as restart_syscall(2), and end when they were to end. A tracer and a filter
// see that number.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FAIL(...) (printf("line %d: ", __LINE__), printf(__VA_ARGS__), printf(" (%s)\n", strerror(errno)), exit(1))
#define CHECK(what) ((what) ? 0 : FAIL("%s", #what))
#define REFUSED(what, error) ((what) == -1 && errno == (error) ? 0 : FAIL("%s is not refused with %s", #what, #error))

enum { RESTART_BLOCK = 516, NO_HANDLER = 514, MILLISECONDS = 300 };

static const struct timespec length = {0, MILLISECONDS * 1000000l};

static void polls(void) {
    CHECK(syscall(SYS_poll, NULL, 0, MILLISECONDS) == 0);
}
static void polls_for_ever(void) {
    syscall(SYS_poll, NULL, 0, -1);
}
static void sleeps(void) {
    CHECK(syscall(SYS_nanosleep, &length, NULL) == 0);
}
static void sleeps_by_a_clock(void) {
    CHECK(syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &length, NULL) == 0);
}
static void waits_for_a_word(void) {
    int word = 0;
    REFUSED(syscall(SYS_futex, &word, FUTEX_WAIT, 0, &length, NULL, 0), ETIMEDOUT);
}
static void pauses(void) {
    syscall(SYS_pause);
}

static long now_ms(void) {
    struct timespec now;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static struct user_regs_struct registers_of(pid_t child) {
    struct user_regs_struct registers;
    CHECK(ptrace(PTRACE_GETREGS, child, NULL, &registers) == 0);
    return registers;
}

static void go_to(pid_t child, int stop) {
    int status;
    CHECK(ptrace(PTRACE_SYSCALL, child, NULL, NULL) == 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == stop);
}

static void wait_till_it_waits(pid_t child) {
    char path[64], state = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", child);
    while (state != 'S') {
        FILE *stat = fopen(path, "r");
        CHECK(stat && fscanf(stat, "%*d %*s %c", &state) == 1 && fclose(stat) == 0);
    }
}

enum { CALL = SIGTRAP | 0x80 };

// The numbers under which a call that is interrupted goes on, and what the tracer sees it answer.
static void goes_on_as(void (*act)(void), long number, long again, int answer, int ends) {
    long before = now_ms();
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0 && raise(SIGSTOP) == 0);
        act();
        exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
    CHECK(ptrace(PTRACE_SETOPTIONS, child, NULL, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL) == 0);
    do go_to(child, CALL);
    while ((long)registers_of(child).orig_rax != number);
    for (int times = 0; times < 2; times++) {
        CHECK(ptrace(PTRACE_SYSCALL, child, NULL, NULL) == 0);
        wait_till_it_waits(child);
        CHECK(kill(child, SIGUSR1) == 0 && waitpid(child, &status, 0) == child && WSTOPSIG(status) == CALL);
        CHECK((long)registers_of(child).rax == -answer);
        // The signal is kept from it.
        go_to(child, SIGUSR1);
        go_to(child, CALL);
        CHECK((long)registers_of(child).orig_rax == again && (long)registers_of(child).rax == -ENOSYS);
    }
    if (!ends) {
        CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child);
        return;
    }
    CHECK(ptrace(PTRACE_CONT, child, NULL, NULL) == 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(now_ms() - before >= MILLISECONDS);
}

// Behind a filter that knows no restart_syscall; what is next is a call of its own, which waits as long as it says.
static void a_filter_is_asked(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_restart_syscall, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EBADMSG),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof code / sizeof *code, code};
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
        struct timespec hour = {3600, 0};
        REFUSED(syscall(SYS_nanosleep, &hour, NULL), EBADMSG);
        long before = now_ms();
        sleeps();
        CHECK(now_ms() - before >= MILLISECONDS);
        exit(0);
    }
    wait_till_it_waits(child);
    int status;
    // What stops and goes on has no handler.
    CHECK(kill(child, SIGSTOP) == 0 && waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status) && kill(child, SIGCONT) == 0);
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void does_nothing(int signal) {
    (void)signal;
}

static void handlers_end_it(void) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        struct sigaction action = {.sa_handler = does_nothing, .sa_flags = SA_RESTART};
        CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
        REFUSED(syscall(SYS_poll, NULL, 0, 3600000), EINTR);
        // There is nothing to go on with.
        REFUSED(syscall(SYS_restart_syscall), EINTR);
        sleeps();
        exit(0);
    }
    int status;
    wait_till_it_waits(child);
    CHECK(kill(child, SIGUSR1) == 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void) {
    setbuf(stdout, NULL);
    REFUSED(syscall(SYS_restart_syscall), EINTR);
    goes_on_as(polls, SYS_poll, SYS_restart_syscall, RESTART_BLOCK, 1);
    goes_on_as(polls_for_ever, SYS_poll, SYS_restart_syscall, RESTART_BLOCK, 0);
    goes_on_as(sleeps, SYS_nanosleep, SYS_restart_syscall, RESTART_BLOCK, 1);
    goes_on_as(sleeps_by_a_clock, SYS_clock_nanosleep, SYS_restart_syscall, RESTART_BLOCK, 1);
    goes_on_as(waits_for_a_word, SYS_futex, SYS_restart_syscall, RESTART_BLOCK, 1);
    goes_on_as(pauses, SYS_pause, SYS_pause, NO_HANDLER, 0);
    a_filter_is_asked();
    handlers_end_it();
    puts("all tests of calls that are made again passed");
    return 0;
}
