// SPDX-License-Identifier: Apache-2.0 OR MIT
// Signals as programs use them: every check prints its name and ends the run when it fails. Passes on Linux.
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "check.h"

static volatile int seen[65];
static volatile siginfo_t last;
static volatile int order[16], count;

static void note(int number, siginfo_t *info, void *context)
{
    (void)context;
    seen[number]++;
    memcpy((void *)&last, info, sizeof last);
    if (count < 16)
        order[count++] = info->si_value.sival_int;
}

static void catch(int number, int flags, void (*handler)(int, siginfo_t *, void *))
{
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = flags | SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    CHECK(sigaction(number, &action, NULL) == 0);
    seen[number] = 0;
    count = 0;
}

static void mask(int how, int number)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, number);
    CHECK(pthread_sigmask(how, &set, NULL) == 0);
}

static void a_handler_runs_and_learns_who_sent_the_signal(void)
{
    catch(SIGUSR1, 0, note);
    CHECK(kill(getpid(), SIGUSR1) == 0);
    CHECK(seen[SIGUSR1] == 1 && last.si_code == SI_USER && last.si_pid == getpid());
    CHECK(raise(SIGUSR1) == 0);
    CHECK(seen[SIGUSR1] == 2 && last.si_code == SI_TKILL);
    union sigval value = {.sival_int = 77};
    CHECK(sigqueue(getpid(), SIGUSR1, value) == 0);
    CHECK(seen[SIGUSR1] == 3 && last.si_code == SI_QUEUE && last.si_value.sival_int == 77);
    CHECK(kill(getpid(), 0) == 0);
    CHECK(kill(getpid(), 65) == -1 && errno == EINVAL);
}

static void blocked_signals_wait_and_real_time_ones_queue(void)
{
    catch(SIGUSR2, 0, note);
    catch(SIGRTMIN + 3, 0, note);
    mask(SIG_BLOCK, SIGUSR2);
    mask(SIG_BLOCK, SIGRTMIN + 3);
    for (int i = 0; i < 3; i++) {
        union sigval value = {.sival_int = i};
        CHECK(raise(SIGUSR2) == 0);
        CHECK(sigqueue(getpid(), SIGRTMIN + 3, value) == 0);
    }
    sigset_t pending;
    CHECK(sigpending(&pending) == 0 && sigismember(&pending, SIGUSR2) && seen[SIGUSR2] == 0);
    mask(SIG_UNBLOCK, SIGRTMIN + 3);
    CHECK(seen[SIGRTMIN + 3] == 3 && order[0] == 0 && order[1] == 1 && order[2] == 2);
    mask(SIG_UNBLOCK, SIGUSR2);
    CHECK(seen[SIGUSR2] == 1);
}

static void flags_do_what_they_say(void)
{
    catch(SIGUSR1, SA_RESETHAND, note);
    raise(SIGUSR1);
    struct sigaction now;
    CHECK(sigaction(SIGUSR1, NULL, &now) == 0 && now.sa_handler == SIG_DFL);
    struct sigaction unsupported = {.sa_handler = SIG_IGN, .sa_flags = 0x400};
    CHECK(sigaction(SIGUSR1, &unsupported, NULL) == 0);
    CHECK(sigaction(SIGUSR1, NULL, &now) == 0 && !(now.sa_flags & 0x400));
    raise(SIGUSR1);
    CHECK(sigaction(SIGKILL, &unsupported, NULL) == -1 && errno == EINVAL);
    CHECK(signal(SIGSTOP, SIG_IGN) == SIG_ERR && errno == EINVAL);
}

static volatile int depth, deepest;

static void again(int number, siginfo_t *info, void *context)
{
    (void)info, (void)context;
    seen[number]++;
    if (++depth > deepest)
        deepest = depth;
    if (seen[number] < 3)
        raise(number);
    depth--;
}

static void a_signal_is_blocked_in_its_handler_unless_nodefer(void)
{
    catch(SIGUSR1, 0, again);
    deepest = 0;
    raise(SIGUSR1);
    CHECK(seen[SIGUSR1] == 3 && deepest == 1);
    catch(SIGUSR1, SA_NODEFER, again);
    deepest = 0;
    raise(SIGUSR1);
    CHECK(seen[SIGUSR1] == 3 && deepest == 3);
}

static void *volatile handler_sp;

static void where(int number, siginfo_t *info, void *context)
{
    (void)info, (void)context;
    seen[number]++;
    char here;
    handler_sp = &here;
    stack_t stack;
    CHECK(sigaltstack(NULL, &stack) == 0 && stack.ss_flags == SS_ONSTACK);
    CHECK(sigaltstack(&stack, NULL) == -1 && errno == EPERM);
}

static void the_alternate_stack_is_used(void)
{
    static char memory[65536];
    stack_t stack = {.ss_sp = memory, .ss_size = sizeof memory}, old;
    CHECK(sigaltstack(&stack, &old) == 0 && old.ss_flags == SS_DISABLE);
    catch(SIGUSR1, SA_ONSTACK, where);
    raise(SIGUSR1);
    CHECK(seen[SIGUSR1] == 1);
    CHECK((char *)handler_sp > memory && (char *)handler_sp < memory + sizeof memory);
    stack.ss_size = 100;
    CHECK(sigaltstack(&stack, NULL) == -1 && errno == ENOMEM);
    stack.ss_flags = SS_DISABLE;
    CHECK(sigaltstack(&stack, NULL) == 0);
}

static sigjmp_buf back;

static void jump(int number, siginfo_t *info, void *context)
{
    (void)context;
    seen[number]++;
    memcpy((void *)&last, info, sizeof last);
    siglongjmp(back, 1);
}

static void overflow(volatile char *above)
{
    volatile char here[4096];
    here[0] = above[0];
    overflow(here);
    here[1] = 0;
}

static void exceptions_become_signals(void)
{
    volatile int zero = 0;
    catch(SIGSEGV, 0, jump);
    if (!sigsetjmp(back, 1))
        *(volatile int *)0x1234;
    CHECK(seen[SIGSEGV] == 1 && last.si_code == SEGV_MAPERR && last.si_addr == (void *)0x1234);
    char *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    if (!sigsetjmp(back, 1))
        page[5] = 1;
    CHECK(seen[SIGSEGV] == 2 && last.si_code == SEGV_ACCERR && last.si_addr == page + 5);
    if (!sigsetjmp(back, 1))
        *(volatile int *)0x8000000000000000;
    CHECK(seen[SIGSEGV] == 3 && last.si_code == SI_KERNEL);
    catch(SIGFPE, 0, jump);
    if (!sigsetjmp(back, 1))
        zero = 7 / zero;
    CHECK(seen[SIGFPE] == 1 && last.si_code == FPE_INTDIV);
    if (!sigsetjmp(back, 1)) {
        // Divide by zero unmasked; on the x87, for QEMU's emulation raises no exceptions of SSE.
        unsigned short control = 0x37b;
        __asm__ volatile("fldcw %0; fld1; fldz; fdivrp; fwait" : : "m"(control) : "st");
    }
    CHECK(seen[SIGFPE] == 2 && last.si_code == FPE_FLTDIV);
    __asm__ volatile("fninit");
    catch(SIGILL, 0, jump);
    if (!sigsetjmp(back, 1))
        __asm__ volatile("ud2");
    CHECK(seen[SIGILL] == 1 && last.si_code == ILL_ILLOPN);
    catch(SIGTRAP, 0, note);
    __asm__ volatile("int3");
    CHECK(seen[SIGTRAP] == 1 && last.si_code == SI_KERNEL);
    char stack_memory[32768];
    stack_t stack = {.ss_sp = stack_memory, .ss_size = sizeof stack_memory};
    CHECK(sigaltstack(&stack, NULL) == 0);
    catch(SIGSEGV, SA_ONSTACK, jump);
    if (!sigsetjmp(back, 1))
        overflow(stack_memory);
    CHECK(seen[SIGSEGV] == 1);
    stack.ss_flags = SS_DISABLE;
    CHECK(sigaltstack(&stack, NULL) == 0);
}

static void fix(int number, siginfo_t *info, void *context)
{
    ucontext_t *uc = context;
    seen[number]++;
    CHECK(uc->uc_mcontext.gregs[REG_CR2] == (greg_t)(uintptr_t)info->si_addr);
    CHECK(uc->uc_mcontext.gregs[REG_TRAPNO] == 14 && (uc->uc_mcontext.gregs[REG_ERR] & 6) == 6);
    CHECK((uc->uc_mcontext.gregs[REG_CSGSFS] & 0xffff) == 0x33);
    CHECK(mprotect((void *)((uintptr_t)info->si_addr & ~4095ul), 4096, PROT_READ | PROT_WRITE) == 0);
}

static void a_handler_may_repair_and_change_registers(void)
{
    volatile char *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    catch(SIGSEGV, 0, fix);
    page[7] = 9;
    CHECK(seen[SIGSEGV] == 1 && page[7] == 9);
}

static void change(int number, siginfo_t *info, void *context)
{
    (void)info;
    ucontext_t *uc = context;
    seen[number]++;
    uc->uc_mcontext.gregs[REG_R12] = 4242;
    uc->uc_mcontext.fpregs->_xmm[3].element[0] = 1717;
    double wipe[64];
    for (int i = 0; i < 64; i++)
        wipe[i] = i * 1.5;
    __asm__ volatile("" : : "r"(wipe) : "memory");
    __asm__ volatile("pxor %%xmm7, %%xmm7; mov $1, %%r13; fninit" : : : "xmm7", "r13");
}

static void registers_survive_and_can_be_changed(void)
{
    catch(SIGUSR1, 0, change);
    register long r12 __asm__("r12") = 1, r13 __asm__("r13") = 13;
    long in7[2] = {70, 71}, out7[2], out3[2];
    uint32_t in_red = 0x5eed, out_red = 0;
    long pid = getpid(), tid = gettid(), result;
    __asm__ volatile(
        "movdqu (%[in7]), %%xmm7\n\t"
        "movl %[red], -100(%%rsp)\n\t"
        "movl %[red], -8(%%rsp)\n\t"
        "mov %[number], %%eax\n\t"
        "syscall\n\t"
        "movl -100(%%rsp), %[out]\n\t"
        "movdqu %%xmm7, (%[out7])\n\t"
        "movdqu %%xmm3, (%[out3])\n\t"
        : "=&a"(result), "+r"(r12), "+r"(r13), [out] "=&r"(out_red)
        : [in7] "r"(in7), [out7] "r"(out7), [out3] "r"(out3), [red] "r"(in_red), [number] "i"(SYS_tgkill),
          "D"(pid), "S"(tid), "d"((long)SIGUSR1)
        : "rcx", "r11", "memory", "xmm3", "xmm7");
    CHECK(seen[SIGUSR1] == 1 && result == 0);
    CHECK(r12 == 4242 && r13 == 13 && out_red == in_red);
    CHECK(out7[0] == 70 && out7[1] == 71 && (uint32_t)out3[0] == 1717);
}

typedef long long wide __attribute__((vector_size(32)));

__attribute__((target("avx"), noinline)) static void wipe_wide(void)
{
    __asm__ volatile("vzeroall" : : : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8");
}

static void wipe_handler(int number, siginfo_t *info, void *context)
{
    (void)info, (void)context;
    seen[number]++;
    wipe_wide();
}

__attribute__((target("avx"))) static void wide_registers_survive(void)
{
    if (!__builtin_cpu_supports("avx"))
        return;
    catch(SIGUSR1, 0, wipe_handler);
    wide in = {1, 2, 3, 4}, out;
    long result;
    __asm__ volatile("vmovdqu %[in], %%ymm5\n\t"
                     "syscall\n\t"
                     "vmovdqu %%ymm5, %[out]"
                     : "=a"(result), [out] "=m"(out)
                     : [in] "m"(in), "a"((long)SYS_tgkill), "D"((long)getpid()), "S"((long)gettid()),
                       "d"((long)SIGUSR1)
                     : "rcx", "r11", "memory", "xmm5");
    CHECK(result == 0 && seen[SIGUSR1] == 1);
    CHECK(out[0] == 1 && out[1] == 2 && out[2] == 3 && out[3] == 4);
}

static void after(long microseconds)
{
    struct itimerval timer = {.it_value = {0, microseconds}};
    CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
}

static int ends[2];

static void feed(int number, siginfo_t *info, void *context)
{
    note(number, info, context);
    CHECK(write(ends[1], "x", 1) == 1);
}

static void interrupted_calls_are_made_again_or_not(void)
{
    char byte;
    CHECK(pipe(ends) == 0);
    catch(SIGALRM, 0, note);
    after(30000);
    CHECK(read(ends[0], &byte, 1) == -1 && errno == EINTR && seen[SIGALRM] == 1);
    catch(SIGALRM, SA_RESTART, feed);
    after(30000);
    CHECK(read(ends[0], &byte, 1) == 1 && byte == 'x' && seen[SIGALRM] == 1);
    // Never made again, whatever the handler says.
    catch(SIGALRM, SA_RESTART, note);
    struct timespec wanted = {5, 0}, left = {0, 0};
    after(30000);
    CHECK(nanosleep(&wanted, &left) == -1 && errno == EINTR && left.tv_sec == 4);
    after(30000);
    struct pollfd nothing = {.fd = ends[0], .events = POLLIN};
    CHECK(poll(&nothing, 1, 5000) == -1 && errno == EINTR);
    after(30000);
    CHECK(pause() == -1 && errno == EINTR);
    CHECK(seen[SIGALRM] == 3);
    close(ends[0]);
    close(ends[1]);
}

static void waiting_for_signals(void)
{
    sigset_t set, none;
    sigemptyset(&none);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGALRM);
    catch(SIGUSR1, 0, note);
    catch(SIGALRM, 0, note);
    CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
    raise(SIGUSR1);
    CHECK(seen[SIGUSR1] == 0);
    CHECK(sigsuspend(&none) == -1 && errno == EINTR && seen[SIGUSR1] == 1);
    sigset_t now;
    CHECK(sigprocmask(SIG_BLOCK, NULL, &now) == 0 && sigismember(&now, SIGUSR1));
    siginfo_t info;
    struct timespec soon = {0, 20000000};
    CHECK(sigtimedwait(&set, &info, &soon) == -1 && errno == EAGAIN);
    raise(SIGUSR1);
    CHECK(sigwaitinfo(&set, &info) == SIGUSR1 && info.si_signo == SIGUSR1 && seen[SIGUSR1] == 1);
    after(20000);
    CHECK(sigwaitinfo(&set, &info) == SIGALRM && info.si_code == SI_KERNEL && seen[SIGALRM] == 0);
    struct pollfd nothing = {.fd = -1};
    raise(SIGUSR1);
    struct timespec long_time = {5, 0};
    CHECK(ppoll(&nothing, 1, &long_time, &none) == -1 && errno == EINTR && seen[SIGUSR1] == 2);
    CHECK(sigprocmask(SIG_UNBLOCK, &set, NULL) == 0);
}

static void signals_are_read_from_a_descriptor(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGRTMIN);
    CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
    int fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    CHECK(fd >= 0);
    struct signalfd_siginfo read_info[3];
    CHECK(read(fd, read_info, sizeof read_info) == -1 && errno == EAGAIN);
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    CHECK(poll(&ready, 1, 0) == 0);
    union sigval value = {.sival_int = 5};
    CHECK(sigqueue(getpid(), SIGRTMIN, value) == 0);
    CHECK(kill(getpid(), SIGUSR1) == 0);
    CHECK(poll(&ready, 1, 0) == 1 && ready.revents == POLLIN);
    CHECK(read(fd, read_info, sizeof read_info) == 2 * sizeof read_info[0]);
    CHECK(read_info[0].ssi_signo == SIGUSR1 && read_info[0].ssi_pid == (unsigned)getpid());
    CHECK(read_info[1].ssi_signo == (unsigned)SIGRTMIN && read_info[1].ssi_int == 5);
    CHECK(read(fd, read_info, 100) == -1 && errno == EINVAL);
    close(fd);
    CHECK(sigprocmask(SIG_UNBLOCK, &set, NULL) == 0);
}

static _Atomic int ready_threads, stop, taken_by;

static void who(int number, siginfo_t *info, void *context)
{
    (void)info, (void)context;
    seen[number]++;
    taken_by = gettid();
}

static void *spin(void *argument)
{
    mask(SIG_UNBLOCK, SIGUSR2);
    *(_Atomic int *)argument = gettid();
    ready_threads++;
    while (!stop)
        usleep(1000);
    return NULL;
}

static void *compute(void *argument)
{
    *(_Atomic int *)argument = gettid();
    ready_threads++;
    while (!stop)
        ;
    return NULL;
}

static void threads_take_their_own_signals(void)
{
    catch(SIGUSR1, 0, who);
    catch(SIGUSR2, 0, who);
    mask(SIG_BLOCK, SIGUSR2);
    pthread_t sleeper, worker;
    _Atomic int tids[2];
    CHECK(pthread_create(&sleeper, NULL, spin, &tids[0]) == 0);
    CHECK(pthread_create(&worker, NULL, compute, &tids[1]) == 0);
    while (ready_threads < 2)
        usleep(1000);
    taken_by = 0;
    CHECK(kill(getpid(), SIGUSR2) == 0);
    while (!taken_by)
        usleep(1000);
    CHECK(taken_by == tids[0]);
    taken_by = 0;
    CHECK(pthread_kill(worker, SIGUSR1) == 0);
    while (!taken_by)
        usleep(1000);
    CHECK(taken_by == tids[1]);
    CHECK(syscall(SYS_tgkill, getpid(), tids[0], 0) == 0);
    CHECK(syscall(SYS_tgkill, getpid() + 100000, tids[0], 0) == -1 && errno == ESRCH);
    CHECK(syscall(SYS_tkill, 0, SIGUSR1) == -1 && errno == EINVAL);
    stop = 1;
    CHECK(pthread_join(sleeper, NULL) == 0 && pthread_join(worker, NULL) == 0);
    mask(SIG_UNBLOCK, SIGUSR2);
}

static void a_storm_of_signals_harms_nothing(void)
{
    catch(SIGALRM, SA_RESTART, note);
    struct itimerval fast = {{0, 500}, {0, 500}}, off = {0};
    CHECK(setitimer(ITIMER_REAL, &fast, NULL) == 0);
    double sum = 0;
    uint64_t hash = 1;
    char *block = NULL;
    for (long i = 0; seen[SIGALRM] < 200; i++) {
        sum += 0.5;
        hash = hash * 6364136223846793005ull + i;
        if (i % 64 == 0) {
            free(block);
            block = malloc(1 + hash % 5000);
            memset(block, 3, 1 + hash % 5000);
            CHECK(getppid() != -1);
        }
        if (sum != (double)(i + 1) * 0.5) {
            printf("FAILED: a register changed\n");
            exit(1);
        }
    }
    CHECK(setitimer(ITIMER_REAL, &off, NULL) == 0);
    free(block);
}

static int spoiled;

static void spoil(int number, siginfo_t *info, void *context)
{
    (void)info;
    ucontext_t *uc = context;
    char *area = (char *)uc->uc_mcontext.fpregs;
    seen[number]++;
    switch (spoiled) {
    case 0: // reserved bits of MXCSR
        memset(area + 24, 0xff, 4);
        break;
    case 1: // parts of the extended state that no processor has
        memset(area + 512, 0xff, 8);
        break;
    case 2: // reserved bytes of the XSAVE header
        memset(area + 512 + 16, 0xff, 8);
        break;
    case 3: // no address at all
        uc->uc_mcontext.gregs[REG_RIP] = 0x8000000000000000;
        break;
    case 4: // a frame that is not there
        uc->uc_mcontext.fpregs = (void *)8;
        break;
    default: // flags that are not the program's
        uc->uc_mcontext.gregs[REG_EFL] |= 0x3000 | 0x4000 | 0x20000 | 0x100000;
    }
}

static void frames_that_were_spoiled_end_in_sigsegv(void)
{
    catch(SIGUSR1, 0, spoil);
    catch(SIGSEGV, 0, jump);
    for (spoiled = 0; spoiled < 5; spoiled++) {
        if (!sigsetjmp(back, 1))
            raise(SIGUSR1);
        CHECK(seen[SIGSEGV] == spoiled + 1 && seen[SIGUSR1] == spoiled + 1);
    }
    raise(SIGUSR1);
    unsigned long flags;
    __asm__ volatile("pushf; pop %0" : "=r"(flags));
    CHECK(seen[SIGSEGV] == 5 && (flags & 0x124000) == 0);
}

static void *sleep_long(void *argument)
{
    struct timespec time = {0, 200000000};
    *(int *)argument = nanosleep(&time, NULL);
    return NULL;
}

static long long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000ll + time.tv_nsec / 1000000;
}

static void a_stopped_process_goes_on_where_it_was(void)
{
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGCONT};
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    pthread_t sleeper;
    int slept = -1;
    CHECK(pthread_create(&sleeper, NULL, sleep_long, &slept) == 0);
    usleep(10000);
    long long begin = now();
    struct itimerspec soon = {{0, 0}, {0, 100000000}};
    CHECK(timer_settime(timer, 0, &soon, NULL) == 0);
    CHECK(kill(getpid(), SIGSTOP) == 0);
    CHECK(now() - begin >= 95);
    CHECK(pthread_join(sleeper, NULL) == 0 && slept == 0 && now() - begin < 2000);
    CHECK(timer_delete(timer) == 0);
}

static void closed_pipes_raise_sigpipe(void)
{
    CHECK(pipe(ends) == 0);
    close(ends[0]);
    catch(SIGPIPE, 0, note);
    CHECK(write(ends[1], "x", 1) == -1 && errno == EPIPE && seen[SIGPIPE] == 1);
    signal(SIGPIPE, SIG_IGN);
    CHECK(write(ends[1], "x", 1) == -1 && errno == EPIPE);
    close(ends[1]);
}

#define RUN(test)                                                                           \
    do {                                                                                    \
        test();                                                                             \
        puts(#test);                                                                        \
        fflush(stdout);                                                                     \
    } while (0)

/* How musl cancels a thread: who is at the call, or about to make it, goes elsewhere; who is not has the signal blocked behind the
   handler, and finds the flag set. A call that waits must not be made again then. */
long call_cancellable(volatile int *flag, long number, long a, long b, long c);
extern const char cancellable_begins[], cancellable_ends[], cancellable_leaves[];
__asm__(".text\n.global call_cancellable, cancellable_begins, cancellable_ends, cancellable_leaves\n"
        "call_cancellable:\n mov %rdi, %r11\n mov %rsi, %rax\n mov %rdx, %rdi\n mov %rcx, %rsi\n mov %r8, %rdx\n"
        "cancellable_begins:\n mov (%r11), %r11d\n test %r11d, %r11d\n jnz cancellable_leaves\n syscall\n"
        "cancellable_ends:\n ret\n"
        "cancellable_leaves:\n mov $-125, %rax\n ret\n");
#define LEFT (-125)

static volatile int is_cancelled, is_reading;
static int empty_pipe[2];

static void cancel_here(int number, siginfo_t *info, void *context)
{
    (void)info;
    ucontext_t *at = context;
    uintptr_t place = at->uc_mcontext.gregs[REG_RIP];
    if (!is_cancelled)
        return;
    sigaddset(&at->uc_sigmask, number);
    if (place >= (uintptr_t)cancellable_begins && place < (uintptr_t)cancellable_ends)
        at->uc_mcontext.gregs[REG_RIP] = (greg_t)(uintptr_t)cancellable_leaves;
    else
        syscall(SYS_tkill, syscall(SYS_gettid), number);
}

static void *read_nothing(void *unused)
{
    char byte;
    (void)unused;
    is_reading = 1;
    long result = call_cancellable(&is_cancelled, SYS_read, empty_pipe[0], (long)&byte, 1);
    return (void *)(result == -EINTR && is_cancelled ? LEFT : result);
}

static void a_thread_that_waits_is_cancelled_as_musl_does_it(void)
{
    CHECK(pipe(empty_pipe) == 0);
    catch(SIGUSR2, SA_RESTART, cancel_here);
    for (int pause = 0; pause < 20; pause++) {
        pthread_t thread;
        void *result;
        is_cancelled = is_reading = 0;
        CHECK(pthread_create(&thread, NULL, read_nothing, NULL) == 0);
        while (!is_reading)
            usleep(100);
        /* A signal that means nothing leaves it waiting. */
        CHECK(pthread_kill(thread, SIGUSR2) == 0);
        usleep(pause * 500);
        is_cancelled = 1;
        CHECK(pthread_kill(thread, SIGUSR2) == 0 && pthread_join(thread, &result) == 0);
        CHECK((long)result == LEFT);
    }
    CHECK(close(empty_pipe[0]) == 0 && close(empty_pipe[1]) == 0);
}

int main(void)
{
    RUN(a_handler_runs_and_learns_who_sent_the_signal);
    RUN(blocked_signals_wait_and_real_time_ones_queue);
    RUN(flags_do_what_they_say);
    RUN(a_signal_is_blocked_in_its_handler_unless_nodefer);
    RUN(the_alternate_stack_is_used);
    RUN(exceptions_become_signals);
    RUN(a_handler_may_repair_and_change_registers);
    RUN(registers_survive_and_can_be_changed);
    RUN(wide_registers_survive);
    RUN(interrupted_calls_are_made_again_or_not);
    RUN(a_thread_that_waits_is_cancelled_as_musl_does_it);
    RUN(waiting_for_signals);
    RUN(signals_are_read_from_a_descriptor);
    RUN(threads_take_their_own_signals);
    RUN(a_storm_of_signals_harms_nothing);
    RUN(frames_that_were_spoiled_end_in_sigsegv);
    RUN(a_stopped_process_goes_on_where_it_was);
    RUN(closed_pipes_raise_sigpipe);
    puts("all signal tests passed");
    return 0;
}
