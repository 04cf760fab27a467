// SPDX-License-Identifier: Apache-2.0 OR MIT
// Who used the processor for how long, and who gets it next: times, limits of time, policies, nice values.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/times.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <linux/futex.h>

#include "check.h"

static double seconds(clockid_t clock)
{
    struct timespec now;
    CHECK(clock_gettime(clock, &now) == 0);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static double user(const struct rusage *u)
{
    return u->ru_utime.tv_sec + u->ru_utime.tv_usec / 1e6;
}

static double kernel(const struct rusage *u)
{
    return u->ru_stime.tv_sec + u->ru_stime.tv_usec / 1e6;
}

// Processor time of the calling thread, in the program and in the kernel.
static void compute(double length)
{
    double end = seconds(CLOCK_THREAD_CPUTIME_ID) + length;
    while (seconds(CLOCK_THREAD_CPUTIME_ID) < end)
        for (volatile int i = 0; i < 100000; i++)
            ;
}

static void call_the_kernel(double length)
{
    static char buffer[1 << 16];
    int fds[2];
    double end = seconds(CLOCK_THREAD_CPUTIME_ID) + length;
    CHECK(pipe(fds) == 0);
    while (seconds(CLOCK_THREAD_CPUTIME_ID) < end)
        for (int i = 0; i < 10; i++)
            CHECK(write(fds[1], buffer, sizeof buffer) > 0 && read(fds[0], buffer, sizeof buffer) > 0);
    close(fds[0]);
    close(fds[1]);
}

static void *computes(void *length)
{
    compute(*(double *)length);
    return NULL;
}

static void times_are_told_apart(void)
{
    struct rusage before, after, thread;
    struct tms a, b;
    CHECK(getrusage(RUSAGE_SELF, &before) == 0);
    CHECK(times(&a) != (clock_t)-1);
    compute(0.3);
    CHECK(getrusage(RUSAGE_SELF, &after) == 0);
    CHECK(user(&after) - user(&before) > 0.2);
    CHECK(kernel(&after) - kernel(&before) < 0.15);
    before = after;
    call_the_kernel(0.3);
    CHECK(getrusage(RUSAGE_SELF, &after) == 0);
    CHECK(kernel(&after) - kernel(&before) > 0.1);
    CHECK(times(&b) != (clock_t)-1);
    CHECK(b.tms_utime - a.tms_utime >= 20 && b.tms_stime - a.tms_stime >= 10);
    CHECK(b.tms_cutime == 0 && b.tms_cstime == 0);

    // Another thread's time counts for the process, ended or not, and not for this thread.
    double length = 0.2;
    pthread_t other;
    CHECK(getrusage(RUSAGE_THREAD, &thread) == 0);
    before = after;
    CHECK(pthread_create(&other, NULL, computes, &length) == 0 && pthread_join(other, NULL) == 0);
    CHECK(getrusage(RUSAGE_SELF, &after) == 0);
    CHECK(user(&after) - user(&before) > 0.15);
    before = thread;
    CHECK(getrusage(RUSAGE_THREAD, &thread) == 0);
    CHECK(user(&thread) + kernel(&thread) - user(&before) - kernel(&before) < 0.15);
    CHECK(thread.ru_maxrss > 0 && thread.ru_minflt > 0);

    // Waiting is a voluntary switch.
    before = thread;
    usleep(10000);
    CHECK(getrusage(RUSAGE_THREAD, &thread) == 0);
    CHECK(thread.ru_nvcsw > before.ru_nvcsw);

    CHECK(getrusage(RUSAGE_CHILDREN, &thread) == 0 && user(&thread) == 0 && thread.ru_maxrss == 0);
    CHECK(getrusage(7, &thread) == -1 && errno == EINVAL);
    CHECK(syscall(SYS_getrusage, RUSAGE_SELF, NULL) == -1 && errno == EFAULT);
}

static volatile sig_atomic_t signals;

static void counts(int signal)
{
    (void)signal;
    signals++;
}

static void virtual_time_stands_still_in_the_kernel(void)
{
    struct itimerval timer = {{0, 0}, {0, 200000}}, left;
    signal(SIGVTALRM, counts);
    signals = 0;
    CHECK(setitimer(ITIMER_VIRTUAL, &timer, NULL) == 0);
    usleep(300000);
    CHECK(signals == 0);
    CHECK(getitimer(ITIMER_VIRTUAL, &left) == 0 && left.it_value.tv_usec > 100000);
    compute(0.4);
    CHECK(signals == 1);
    CHECK(getitimer(ITIMER_VIRTUAL, &left) == 0 && left.it_value.tv_usec == 0);
    signal(SIGPROF, counts);
    signals = 0;
    timer.it_value.tv_usec = 100000;
    CHECK(setitimer(ITIMER_PROF, &timer, NULL) == 0);
    call_the_kernel(0.3);
    CHECK(signals == 1);
}

static void averages_are_readable(void)
{
    struct sysinfo info;
    double loads[3];
    int running, all, newest;
    CHECK(sysinfo(&info) == 0);
    FILE *file = fopen("/proc/loadavg", "r");
    CHECK(file != NULL);
    CHECK(fscanf(file, "%lf %lf %lf %d/%d %d", loads, loads + 1, loads + 2, &running, &all, &newest) == 6);
    CHECK(running >= 1 && all >= running && newest >= 1);
    fclose(file);
    // Five seconds of work are seen.
    for (int i = 0; i < 12 && info.loads[0] == 0; i++) {
        compute(0.5);
        CHECK(sysinfo(&info) == 0);
    }
    CHECK(info.loads[0] > 0);
}

static int order[8];
static int arrived;

static void *arrives(void *number)
{
    order[arrived++] = (int)(long)number;
    return NULL;
}

static void start(pthread_t *thread, int policy, int priority, long number)
{
    pthread_attr_t attributes;
    struct sched_param parameter = {.sched_priority = priority};
    pthread_attr_init(&attributes);
    pthread_attr_setinheritsched(&attributes, PTHREAD_EXPLICIT_SCHED);
    CHECK(pthread_attr_setschedpolicy(&attributes, policy) == 0);
    CHECK(pthread_attr_setschedparam(&attributes, &parameter) == 0);
    CHECK(pthread_create(thread, &attributes, arrives, (void *)number) == 0);
}

static volatile long laps[2];
static volatile int stop;

static void *runs_laps(void *number)
{
    // Far apart: a busy computer's timer is late by some slices.
    CHECK(setpriority(PRIO_PROCESS, syscall(SYS_gettid), (long)number == 1 ? 19 : -20) == 0);
    while (!stop)
        for (int i = 0; i < 1000; i++)
            laps[(long)number]++;
    return NULL;
}

// A loop without end, before which nobody goes: who wants to end it gets its turn all the same.
static void endless_loops_can_be_ended(void)
{
    struct sched_param fifo = {.sched_priority = 80};
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    int status, child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(sched_setscheduler(0, SCHED_FIFO, &fifo) == 0);
        for (;;)
            ;
    }
    for (int i = 0; i < 3; i++) {
        usleep(300000);
        CHECK(waitpid(child, &status, WNOHANG) == 0);
    }
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void higher_priorities_go_first(void)
{
    pthread_t threads[4];
    struct sched_param fifo = {.sched_priority = 50}, other = {.sched_priority = 0};
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    CHECK(sched_setscheduler(0, SCHED_FIFO, &fifo) == 0);
    // None of them gets the processor while this thread has it, but for one that goes before it.
    start(&threads[0], SCHED_FIFO, 10, 1);
    start(&threads[1], SCHED_FIFO, 30, 2);
    start(&threads[2], SCHED_RR, 20, 3);
    sched_yield();
    CHECK(arrived == 0);
    start(&threads[3], SCHED_FIFO, 60, 4);
    sched_yield();
    CHECK(arrived == 1 && order[0] == 4);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(arrived == 4 && order[1] == 2 && order[2] == 3 && order[3] == 1);
    CHECK(sched_setscheduler(0, SCHED_OTHER, &other) == 0);

    for (long i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, runs_laps, (void *)i) == 0);
    sleep(1);
    stop = 1;
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(laps[0] > 3 * laps[1] && laps[1] > 0);
}

struct attributes {
    unsigned size, policy;
    unsigned long flags;
    int nice;
    unsigned priority;
    unsigned long runtime, deadline, period;
    unsigned clamps[2];
    char more[8];
};

static void attributes_are_checked(void)
{
    struct attributes a = {.size = 48, .policy = SCHED_RR, .priority = 5}, b;
    struct sched_param parameter = {.sched_priority = 1};
    CHECK(syscall(SYS_sched_setattr, 0, &a, 0) == 0);
    CHECK(syscall(SYS_sched_getattr, 0, &b, 56, 0) == 0);
    CHECK(b.size == 56 && b.policy == SCHED_RR && b.priority == 5 && b.nice == 0);
    CHECK(syscall(SYS_sched_getattr, 0, &b, 47, 0) == -1 && errno == EINVAL);
    CHECK(syscall(SYS_sched_getattr, 0, &b, 56, 1) == -1 && errno == EINVAL);
    CHECK(syscall(SYS_sched_getattr, 0, NULL, 56, 0) == -1 && errno == EINVAL);
    a.size = 64;
    CHECK(syscall(SYS_sched_setattr, 0, &a, 0) == 0);
    a.more[3] = 1;
    CHECK(syscall(SYS_sched_setattr, 0, &a, 0) == -1 && errno == E2BIG && a.size == 56);
    a.size = 20;
    CHECK(syscall(SYS_sched_setattr, 0, &a, 0) == -1 && errno == E2BIG && a.size == 56);
    a.flags = 1 << 20;
    CHECK(syscall(SYS_sched_setattr, 0, &a, 0) == -1 && errno == EINVAL);
    a = (struct attributes){.size = 48, .policy = SCHED_OTHER, .nice = 3};
    CHECK(syscall(SYS_sched_setattr, 0, &a, 0) == 0);
    CHECK(getpriority(PRIO_PROCESS, 0) == 3);
    CHECK(setpriority(PRIO_PROCESS, 0, 0) == 0);
    a = (struct attributes){.size = 48, .policy = 6, .runtime = 2000000, .deadline = 1000000};
    CHECK(syscall(SYS_sched_setattr, 0, &a, 0) == -1 && errno == EINVAL);
    CHECK(sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){0}) == -1 && errno == EINVAL);
    CHECK(sched_setscheduler(0, SCHED_OTHER, &parameter) == -1 && errno == EINVAL);
    CHECK(sched_setscheduler(0, 4, &parameter) == -1 && errno == EINVAL);
    CHECK(sched_setscheduler(-1, SCHED_FIFO, &parameter) == -1 && errno == EINVAL);
    CHECK(sched_setscheduler(99999, SCHED_FIFO, &parameter) == -1 && errno == ESRCH);
    CHECK(sched_setscheduler(0, SCHED_FIFO, NULL) == -1 && errno == EINVAL);
    CHECK(sched_setscheduler(0, SCHED_FIFO, (void *)8) == -1 && errno == EFAULT);
    CHECK(syscall(SYS_ioprio_get, 1, 0) == 0);
    CHECK(syscall(SYS_ioprio_set, 1, 0, 2 << 13 | 7) == 0 && syscall(SYS_ioprio_get, 1, 0) == (2 << 13 | 7));
    CHECK(syscall(SYS_ioprio_set, 1, 0, 0) == 0);
    CHECK(syscall(SYS_ioprio_get, 9, 0) == -1 && errno == EINVAL);
}

static int outer;
static int inner;

static void *requeued(void *unused)
{
    (void)unused;
    long result = syscall(SYS_futex, &outer, FUTEX_WAIT_REQUEUE_PI, 0, NULL, &inner, 0);
    CHECK(result == 0);
    CHECK((inner & FUTEX_TID_MASK) == syscall(SYS_gettid));
    CHECK(syscall(SYS_futex, &inner, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0) == 0);
    return NULL;
}

static void waiters_are_requeued_to_a_priority_futex(void)
{
    pthread_t threads[3];
    struct timespec past = {0, 0};
    CHECK(syscall(SYS_futex, &outer, FUTEX_CMP_REQUEUE_PI, 2, 1, &inner, 0) == -1 && errno == EINVAL);
    CHECK(syscall(SYS_futex, &outer, FUTEX_CMP_REQUEUE_PI, 1, 1, &outer, 0) == -1 && errno == EINVAL);
    CHECK(syscall(SYS_futex, &outer, FUTEX_CMP_REQUEUE_PI, 1, 1, &inner, 5) == -1 && errno == EAGAIN);
    CHECK(syscall(SYS_futex, &outer, FUTEX_WAIT_REQUEUE_PI, 1, NULL, &inner, 0) == -1 && errno == EAGAIN);
    CHECK(syscall(SYS_futex, &outer, FUTEX_WAIT_REQUEUE_PI, 0, &past, &inner, 0) == -1 && errno == ETIMEDOUT);
    CHECK(syscall(SYS_futex, &outer, FUTEX_WAIT_REQUEUE_PI, 0, NULL, &outer, 0) == -1 && errno == EINVAL);
    CHECK(syscall(SYS_futex, &outer, FUTEX_WAIT | FUTEX_CLOCK_REALTIME, 1, NULL, NULL, 0) == -1 &&
          errno == ENOSYS);
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&threads[i], NULL, requeued, NULL) == 0);
    usleep(200000);
    CHECK(syscall(SYS_futex, &outer, FUTEX_CMP_REQUEUE_PI, 1, 100, &inner, 0) == 3);
    for (int i = 0; i < 3; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(inner == 0);
}

static void time_without_waiting_is_limited(void)
{
    // Ample: a machine on a busy computer, or under an emulated KVM, counts time that was its host's.
    struct rlimit limit = {1000000, RLIM_INFINITY};
    struct sched_param fifo = {.sched_priority = 1}, other = {.sched_priority = 0};
    signal(SIGXCPU, counts);
    signals = 0;
    CHECK(setrlimit(RLIMIT_RTTIME, &limit) == 0);
    compute(1.2);
    CHECK(signals == 0);
    CHECK(sched_setscheduler(0, SCHED_FIFO, &fifo) == 0);
    // Longer in all than the limit, with waits between. Time that the machine's host took counts for who was running, also on the way to
    // the wait and from it; and a wait that is over before it begins is none.
    double longest = 0;
    for (int i = 0; i < 6; i++) {
        double begin = seconds(CLOCK_THREAD_CPUTIME_ID);
        usleep(50000);
        compute(0.2);
        double length = seconds(CLOCK_THREAD_CPUTIME_ID) - begin;
        longest = length > longest ? length : longest;
    }
    CHECK(signals == 0 || longest > 0.9);
    compute(1.1);
    CHECK(signals >= 1);
    CHECK(getrlimit(RLIMIT_RTTIME, &limit) == 0 && limit.rlim_cur >= 2000000);
    CHECK(sched_setscheduler(0, SCHED_OTHER, &other) == 0);
}

static void without_the_right_priorities_are_limited(void)
{
    struct sched_param fifo = {.sched_priority = 5}, other = {.sched_priority = 0};
    struct rlimit limit = {10, 10};
    CHECK(setrlimit(RLIMIT_RTPRIO, &limit) == 0);
    limit = (struct rlimit){15, 15};
    CHECK(setrlimit(RLIMIT_NICE, &limit) == 0);
    CHECK(setpriority(PRIO_PROCESS, 0, 7) == 0);
    CHECK(setresuid(4242, 4242, 4242) == 0);
    CHECK(sched_setscheduler(0, SCHED_FIFO, &fifo) == 0);
    fifo.sched_priority = 11;
    CHECK(sched_setparam(0, &fifo) == -1 && errno == EPERM);
    CHECK(sched_setscheduler(0, SCHED_OTHER, &other) == 0);
    CHECK(setpriority(PRIO_PROCESS, 0, 5) == 0);
    CHECK(setpriority(PRIO_PROCESS, 0, 4) == -1 && errno == EACCES);
    CHECK(getpriority(PRIO_PROCESS, 0) == 5);
    CHECK(syscall(SYS_ioprio_set, 1, 0, 1 << 13) == -1 && errno == EPERM);
    CHECK(sched_setscheduler(0, SCHED_IDLE, &other) == 0);
    // Idle counts as nicer than all.
    CHECK(sched_setscheduler(0, SCHED_OTHER, &other) == 0);
}

int main(void)
{
    times_are_told_apart();
    virtual_time_stands_still_in_the_kernel();
    endless_loops_can_be_ended();
    higher_priorities_go_first();
    attributes_are_checked();
    waiters_are_requeued_to_a_priority_futex();
    time_without_waiting_is_limited();
    averages_are_readable();
    without_the_right_priorities_are_limited();
    puts("all scheduling tests passed");
    return 0;
}
