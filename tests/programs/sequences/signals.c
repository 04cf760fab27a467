// SPDX-License-Identifier: Apache-2.0 OR MIT
// Random sequences of calls (sequences.h) about one thread's signals and timers: what is blocked, pending, handled, waited for and in which
// order handlers run. No timer is due before the end but for those that are read.
#include "sequences.h"
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>
#include <ucontext.h>

// linux/signal.h.
enum { TIMERS = 4, AUTODISARM = 1 << 31 };

// The last ones are of real time.
static const int numbers[] = {SIGUSR1, SIGUSR2, SIGALRM, SIGCHLD, SIGURG, SIGVTALRM, SIGPROF, 34, 35, 64};
static char text[2048];
static size_t length;
static timer_t timers[TIMERS];
static char has_timer[TIMERS];
static int descriptor = -1, clock_descriptor = -1;
static char alternate[1 << 16];

static int number(void) {
    return one_in(25) ? (int)below(70) - 2 : ONE_OF(numbers);
}

// What a handler has to say is told behind the call in which it ran.
static void note(const char *format, ...) {
    va_list list;
    va_start(list, format);
    int more = vsnprintf(text + length, sizeof text - length, format, list);
    va_end(list);
    length += more > 0 ? (size_t)more : 0;
    if (length > sizeof text)
        length = sizeof text;
}

static int is_alternate(void) {
    char here;
    return &here >= alternate && &here < alternate + sizeof alternate;
}

static unsigned long long some_of(const sigset_t *set) {
    unsigned long long bits = 0;
    for (int i = 1; i < 65; i++)
        if (sigismember(set, i) == 1)
            bits |= 1ull << (i - 1);
    return bits;
}

static void handles(int signal) {
    sigset_t blocked;
    sigprocmask(SIG_BLOCK, 0, &blocked);
    note(" {%d blocked %llx%s}", signal, some_of(&blocked), is_alternate() ? " alternate" : "");
}

static void handles_with(int signal, siginfo_t *about, void *context) {
    ucontext_t *before = context;
    note(" {%d code %d", signal, about->si_code);
    if (about->si_code == SI_QUEUE || about->si_code == SI_TIMER)
        note(" value %d", about->si_value.sival_int);
    if (about->si_code == SI_TIMER)
        note(" overrun %d", about->si_overrun);
    if (about->si_code <= 0 && about->si_code != SI_TIMER)
        note(" own %d %d", about->si_pid == getpid(), (int)about->si_uid);
    note(" before %llx%s}", some_of(&before->uc_sigmask), is_alternate() ? " alternate" : "");
}

static void told(long result) {
    if (length)
        say("%s", text);
    length = 0;
    answered(result);
}

static sigset_t some_set(void) {
    sigset_t set;
    sigemptyset(&set);
    for (uint32_t i = below(5); i > 0; i--)
        sigaddset(&set, ONE_OF(numbers));
    if (one_in(10))
        sigfillset(&set);
    return set;
}

static void acts(void) {
    static const int all[] = {0, SA_RESTART, SA_SIGINFO, SA_SIGINFO, SA_NODEFER, SA_ONSTACK, SA_SIGINFO | SA_NODEFER, SA_NOCLDWAIT};
    int signal = number(), kind = (int)below(6);
    struct sigaction action = {.sa_flags = ONE_OF(all), .sa_mask = some_set()}, before = {0};
    // A default that ends the program would be the end of the test.
    if (kind == 0)
        action.sa_handler = SIG_IGN;
    else if (kind == 1 && (signal == SIGCHLD || signal == SIGURG))
        action.sa_handler = SIG_DFL;
    else if (action.sa_flags & SA_SIGINFO)
        action.sa_sigaction = handles_with;
    else
        action.sa_handler = handles;
    say("sigaction %d %s %x %llx", signal, action.sa_handler == SIG_IGN ? "ignored" : action.sa_handler == SIG_DFL ? "default" : "handled",
        action.sa_flags, some_of(&action.sa_mask));
    // Those of the table alone are ever handled.
    int is_known = 0;
    for (size_t i = 0; i < COUNT(numbers); i++)
        is_known |= numbers[i] == signal;
    int result = is_known || signal < 1 || signal > 64 || signal == SIGKILL || signal == SIGSTOP ? sigaction(signal, &action, &before) : 0;
    if (result == 0)
        say(" was %s %x %llx", before.sa_handler == SIG_IGN ? "ignored" : before.sa_handler == SIG_DFL ? "default" : "handled",
            before.sa_flags & ~0x04000000, some_of(&before.sa_mask));
    told(result);
}

static void blocks(void) {
    sigset_t set = some_set(), before;
    int how = one_in(20) ? 7 : (int)below(3);
    say("sigprocmask %d %llx", how, some_of(&set));
    int result = sigprocmask(how, &set, &before);
    if (result == 0)
        say(" was %llx", some_of(&before));
    told(result);
}

// A signal that would end the program, of which a handler is not set.
static int is_safe(int signal) {
    struct sigaction now;
    if (signal < 1 || signal > 64)
        return 1;
    return signal == SIGCHLD || signal == SIGURG || signal == SIGCONT || (sigaction(signal, 0, &now) == 0 && now.sa_handler != SIG_DFL);
}

static void sends(void) {
    int signal = one_in(12) ? 0 : number(), value = (int)below(10);
    if (!is_safe(signal)) {
        say("not sent %d", signal);
        told(0);
        return;
    }
    switch (below(5)) {
    case 0: say("kill %d", signal); told(kill(getpid(), signal)); return;
    case 1: say("tgkill %d", signal); told(syscall(SYS_tgkill, getpid(), gettid(), signal)); return;
    case 2: say("raise %d", signal); told(raise(signal)); return;
    case 3: {
        siginfo_t about = {.si_code = -7, .si_errno = 3};
        about.si_value.sival_int = value;
        if (one_in(4))
            about.si_code = 1;
        say("rt_tgsigqueueinfo %d code %d", signal, about.si_code);
        told(syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), signal, &about));
        return;
    }
    default: say("sigqueue %d %d", signal, value); told(sigqueue(getpid(), signal, (union sigval){value}));
    }
}

static void looks_at_pending(void) {
    sigset_t set;
    int result = sigpending(&set);
    say("sigpending %llx", some_of(&set));
    told(result);
}

static void waits(void) {
    struct timespec none = {0};
    siginfo_t about = {0};
    sigset_t set = some_set();
    say("sigtimedwait %llx", some_of(&set));
    int result = sigtimedwait(&set, &about, one_in(20) ? &(struct timespec){.tv_nsec = -1} : &none);
    if (result > 0)
        say(" code %d value %d", about.si_code, about.si_code == SI_QUEUE || about.si_code == SI_TIMER ? about.si_value.sival_int : 0);
    told(result);
}

// With nothing to come the call would wait for ever.
static void suspends(void) {
    struct timespec none = {0};
    sigset_t set = some_set();
    say("ppoll %llx", some_of(&set));
    told(ppoll(0, 0, &none, &set));
}

static void reads_descriptor(void) {
    struct signalfd_siginfo about = {0};
    if (descriptor < 0 || one_in(3)) {
        sigset_t set = some_set();
        say("signalfd %llx", some_of(&set));
        int result = signalfd(descriptor, &set, one_in(10) ? 1 : SFD_NONBLOCK);
        if (result >= 0)
            descriptor = result;
        told(result < 0 ? -1 : 0);
        return;
    }
    long result = read(descriptor, &about, one_in(10) ? 10 : sizeof about);
    say("signalfd's");
    if (result > 0)
        say(" %d code %d int %d overrun %d own %d", (int)about.ssi_signo, about.ssi_code, about.ssi_int, (int)about.ssi_overrun, about.ssi_pid == (uint32_t)getpid());
    told(result);
}

static void changes_stack(void) {
    static const int all[] = {0, 0, SS_DISABLE, AUTODISARM, SS_ONSTACK, 99};
    stack_t new = {.ss_sp = alternate, .ss_size = one_in(6) ? 100 : sizeof alternate, .ss_flags = ONE_OF(all)}, before = {0};
    say("sigaltstack %x %zu", (unsigned)new.ss_flags, new.ss_size);
    int result = sigaltstack(&new, &before);
    if (result == 0)
        say(" was %x %zu", (unsigned)before.ss_flags, before.ss_size);
    told(result);
}

static struct timespec some_time(void) {
    static const struct timespec all[] = {{0, 0}, {0, 0}, {100000, 0}, {200000, 500}, {0, 1000000000}, {-1, 0}, {0, -1}};
    return ONE_OF(all);
}

static clockid_t some_clock(void) {
    static const clockid_t all[] = {CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_BOOTTIME, CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID, CLOCK_MONOTONIC_RAW,
        CLOCK_REALTIME_COARSE, CLOCK_TAI, 99, -1};
    return ONE_OF(all);
}

static void makes_timer(void) {
    static const int ways[] = {SIGEV_SIGNAL, SIGEV_SIGNAL, SIGEV_NONE, SIGEV_THREAD_ID, 8, 77};
    int slot = (int)below(TIMERS), signal = number();
    struct sigevent event = {.sigev_notify = ONE_OF(ways), .sigev_signo = signal, .sigev_value.sival_int = slot};
    if (event.sigev_notify == SIGEV_THREAD_ID)
        event._sigev_un._tid = one_in(6) ? 1 << 22 : gettid();
    clockid_t clock = some_clock();
    int kernel = -1;
    say("timer_create %d clock %d %d %d", slot, clock, event.sigev_notify, signal);
    // The C library makes a thread of its own for some.
    long result = syscall(SYS_timer_create, clock, &event, &kernel);
    if (result == 0) {
        if (has_timer[slot])
            syscall(SYS_timer_delete, (int)(long)timers[slot]);
        timers[slot] = (timer_t)(long)kernel;
        has_timer[slot] = 1;
    }
    told(result);
}

static void say_time(const struct itimerspec *about) {
    say(" %d:%s every %ld.%09ld", about->it_value.tv_sec > 0 || about->it_value.tv_nsec > 0, about->it_value.tv_sec > 150000 ? "long" : "short",
        (long)about->it_interval.tv_sec, about->it_interval.tv_nsec);
}

static void sets_timer(void) {
    // When the signal comes of a timer that is due at once is not the same everywhere: none is.
    int slot = (int)below(TIMERS), flags = one_in(20) ? 8 : 0, timer = has_timer[slot] ? (int)(long)timers[slot] : 12345;
    struct itimerspec new = {.it_value = some_time(), .it_interval = some_time()}, before = {0};
    say("timer_settime %d %d %ld.%09ld every %ld.%09ld", slot, flags, (long)new.it_value.tv_sec, new.it_value.tv_nsec, (long)new.it_interval.tv_sec,
        new.it_interval.tv_nsec);
    long result = syscall(SYS_timer_settime, timer, flags, &new, one_in(5) ? 0 : &before);
    if (result == 0)
        say_time(&before);
    told(result);
}

static void asks_timer(void) {
    int slot = (int)below(TIMERS), timer = has_timer[slot] ? (int)(long)timers[slot] : 12345;
    struct itimerspec about = {0};
    long result;
    switch (below(3)) {
    case 0:
        say("timer_gettime %d", slot);
        result = syscall(SYS_timer_gettime, timer, &about);
        if (result == 0)
            say_time(&about);
        break;
    case 1:
        say("timer_getoverrun %d", slot);
        result = syscall(SYS_timer_getoverrun, timer);
        break;
    default:
        say("timer_delete %d", slot);
        result = one_in(2) ? syscall(SYS_timer_delete, timer) : 0;
        if (result == 0 && has_timer[slot] && syscall(SYS_timer_gettime, timer, &about) < 0)
            has_timer[slot] = 0;
    }
    told(result);
}

static void sets_interval(void) {
    static const int all[] = {ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF, 7};
    int which = ONE_OF(all), result;
    struct itimerval new = {{one_in(3) ? 400000 : 0, 0}, {one_in(2) ? 100000 : 0, one_in(12) ? 1000000 : 0}}, before = {0};
    if (one_in(3)) {
        say("getitimer %d", which);
        result = getitimer(which, &before);
    } else {
        say("setitimer %d %ld every %ld", which, (long)new.it_value.tv_sec, (long)new.it_interval.tv_sec);
        result = setitimer(which, &new, &before);
    }
    if (result == 0)
        say(" %d every %ld", before.it_value.tv_sec > 0, (long)before.it_interval.tv_sec);
    told(result);
}

static void sets_clock_descriptor(void) {
    struct itimerspec new = {.it_value = some_time(), .it_interval = some_time()}, before = {0};
    uint64_t count = 0;
    int flags = one_in(5) ? TFD_TIMER_ABSTIME : one_in(10) ? 77 : 0;
    long result;
    switch (below(4)) {
    case 0: {
        clockid_t clock = some_clock();
        say("timerfd_create %d", clock);
        int made = timerfd_create(clock, TFD_NONBLOCK);
        if (made >= 0) {
            close(clock_descriptor);
            clock_descriptor = made;
        }
        told(made < 0 ? -1 : 0);
        return;
    }
    case 1:
        // What has been is due at once.
        if (flags == TFD_TIMER_ABSTIME)
            new.it_interval.tv_sec = 0, new.it_interval.tv_nsec = 0;
        say("timerfd_settime %x %ld.%09ld every %ld.%09ld", flags, (long)new.it_value.tv_sec, new.it_value.tv_nsec, (long)new.it_interval.tv_sec, new.it_interval.tv_nsec);
        result = timerfd_settime(clock_descriptor, flags, &new, &before);
        if (result == 0)
            say_time(&before);
        told(result);
        return;
    case 2:
        say("timerfd_gettime");
        result = timerfd_gettime(clock_descriptor, &before);
        if (result == 0)
            say(" every %ld", (long)before.it_interval.tv_sec);
        told(result);
        return;
    default:
        result = read(clock_descriptor, &count, one_in(8) ? 4 : sizeof count);
        say("timerfd's %llu", (unsigned long long)count);
        told(result);
    }
}

static void (*const steps[])(void) = {
    acts, acts, blocks, blocks, sends, sends, sends, sends, looks_at_pending, waits, waits, suspends, reads_descriptor, changes_stack, makes_timer, makes_timer,
    sets_timer, asks_timer, sets_interval, sets_clock_descriptor, sets_clock_descriptor,
};

int main(int count, char **arguments) {
    int kind;
    long total = begin(count, arguments, &kind);
    struct sigaction action = {.sa_handler = handles};
    for (size_t i = 0; i < COUNT(numbers); i++)
        sigaction(numbers[i], &action, 0);
    run_steps(steps, COUNT(steps), total, 0);
    return 0;
}
