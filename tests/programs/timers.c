// SPDX-License-Identifier: Apache-2.0 OR MIT
// Clocks and timers as programs use them: every check prints its name and ends the run when it fails. Passes on Linux.
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/times.h>
#include <time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static long long now(clockid_t clock)
{
    struct timespec time;
    CHECK(clock_gettime(clock, &time) == 0);
    CHECK(time.tv_nsec >= 0 && time.tv_nsec < 1000000000);
    return time.tv_sec * 1000000000ll + time.tv_nsec;
}

enum { MS = 1000000 };

static void burn(long long ns)
{
    long long end = now(CLOCK_THREAD_CPUTIME_ID) + ns;
    while (now(CLOCK_THREAD_CPUTIME_ID) < end)
        ;
}

static void clocks_go_forward_and_agree(void)
{
    clockid_t clocks[] = {CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW, CLOCK_BOOTTIME,
                          CLOCK_REALTIME_COARSE, CLOCK_MONOTONIC_COARSE, CLOCK_TAI};
    for (unsigned i = 0; i < sizeof clocks / sizeof *clocks; i++) {
        long long before = now(clocks[i]);
        for (int n = 0; n < 1000; n++) {
            long long after = now(clocks[i]);
            CHECK(after >= before);
            before = after;
        }
        struct timespec resolution;
        CHECK(clock_getres(clocks[i], &resolution) == 0 && resolution.tv_sec == 0);
        // The raw call, which the C library leaves to the vDSO, says the same.
        struct timespec raw;
        CHECK(syscall(SYS_clock_gettime, clocks[i], &raw) == 0);
        long long difference = raw.tv_sec * 1000000000ll + raw.tv_nsec - before;
        CHECK(difference > -20 * MS && difference < 1000ll * MS);
    }
    struct timeval day;
    CHECK(gettimeofday(&day, NULL) == 0 && llabs(day.tv_sec - time(NULL)) <= 1);
    CHECK(time(NULL) > 1600000000);
    CHECK(clock_gettime(99, &(struct timespec){0}) == -1 && errno == EINVAL);
    CHECK(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, 8) == -1 && errno == EFAULT);
}

static void sleeping_takes_the_time_asked_for(void)
{
    long long begin = now(CLOCK_MONOTONIC);
    CHECK(usleep(30000) == 0);
    CHECK(now(CLOCK_MONOTONIC) - begin >= 30 * MS);
    struct timespec until;
    CHECK(clock_gettime(CLOCK_REALTIME, &until) == 0);
    until.tv_nsec += 30 * MS;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    CHECK(clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &until, NULL) == 0);
    CHECK(now(CLOCK_REALTIME) >= until.tv_sec * 1000000000ll + until.tv_nsec);
    // In the past: at once.
    until.tv_sec -= 100;
    CHECK(clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &until, NULL) == 0);
    CHECK(clock_nanosleep(CLOCK_THREAD_CPUTIME_ID, 0, &until, NULL) == EINVAL);
    CHECK(clock_nanosleep(CLOCK_MONOTONIC_COARSE, 0, &until, NULL) == EOPNOTSUPP);
    struct timespec bad = {0, 1000000000}, negative = {-1, 0};
    CHECK(nanosleep(&bad, NULL) == -1 && errno == EINVAL);
    CHECK(nanosleep(&negative, NULL) == -1 && errno == EINVAL);
}

static volatile sig_atomic_t fired;
static volatile siginfo_t last;

static void fire(int number, siginfo_t *info, void *context)
{
    (void)number, (void)context;
    fired++;
    memcpy((void *)&last, info, sizeof last);
}

static void catch(int number)
{
    struct sigaction action = {.sa_sigaction = fire, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    CHECK(sigaction(number, &action, NULL) == 0);
    fired = 0;
}

static void interval_timers_repeat(void)
{
    catch(SIGALRM);
    struct itimerval timer = {{0, 10000}, {0, 10000}}, left, off = {0};
    CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
    CHECK(getitimer(ITIMER_REAL, &left) == 0);
    CHECK(left.it_interval.tv_usec == 10000 && left.it_value.tv_usec > 0 && left.it_value.tv_usec <= 10000);
    long long begin = now(CLOCK_MONOTONIC);
    while (fired < 5)
        pause();
    CHECK(now(CLOCK_MONOTONIC) - begin >= 40 * MS);
    CHECK(setitimer(ITIMER_REAL, &off, &left) == 0 && left.it_interval.tv_usec == 10000);
    CHECK(getitimer(ITIMER_REAL, &left) == 0 && left.it_value.tv_sec == 0 && left.it_value.tv_usec == 0);
    CHECK(alarm(100) == 0);
    unsigned seconds = alarm(0);
    CHECK(seconds == 100 || seconds == 99);
    timer.it_value.tv_usec = 1000000;
    CHECK(setitimer(ITIMER_REAL, &timer, NULL) == -1 && errno == EINVAL);
    CHECK(setitimer(7, &off, NULL) == -1 && errno == EINVAL);
    catch(SIGPROF);
    struct itimerval profile = {{0, 0}, {0, 20000}};
    CHECK(setitimer(ITIMER_PROF, &profile, NULL) == 0);
    usleep(60000);
    CHECK(fired == 0);
    burn(60 * MS);
    CHECK(fired == 1);
}

static void posix_timers_send_their_value_and_count_overruns(void)
{
    catch(SIGRTMIN + 1);
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 1};
    event.sigev_value.sival_int = 4711;
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    struct itimerspec spec = {{0, 0}, {0, 10 * MS}}, left;
    CHECK(timer_settime(timer, 0, &spec, NULL) == 0);
    CHECK(timer_gettime(timer, &left) == 0 && left.it_value.tv_nsec > 0 && left.it_value.tv_nsec <= 10 * MS);
    while (!fired)
        pause();
    CHECK(last.si_code == SI_TIMER && last.si_value.sival_int == 4711 && last.si_overrun == 0);
    CHECK(timer_gettime(timer, &left) == 0 && left.it_value.tv_sec == 0 && left.it_value.tv_nsec == 0);
    // Blocked for a while, a periodic timer counts what was missed.
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    spec = (struct itimerspec){{0, 5 * MS}, {0, 5 * MS}};
    fired = 0;
    CHECK(timer_settime(timer, 0, &spec, NULL) == 0);
    usleep(52000);
    // Taken while it is blocked: on a busy host a second signal may follow the first at once.
    siginfo_t missed;
    struct timespec none = {0, 0};
    CHECK(sigtimedwait(&set, &missed, &none) == SIGRTMIN + 1 && missed.si_overrun >= 1 && fired == 0);
    spec = (struct itimerspec){{0, 0}, {0, 0}};
    CHECK(timer_settime(timer, 0, &spec, NULL) == 0);
    while (sigtimedwait(&set, &missed, &none) > 0)
        ;
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    CHECK(timer_getoverrun(timer) >= 0);
    // Absolute, in the past: at once.
    spec = (struct itimerspec){{0, 0}, {0, 1}};
    fired = 0;
    CHECK(timer_settime(timer, TIMER_ABSTIME, &spec, NULL) == 0);
    usleep(20000);
    CHECK(fired == 1);
    CHECK(timer_delete(timer) == 0);
    CHECK(syscall(SYS_timer_delete, 12345) == -1 && errno == EINVAL);
    event.sigev_signo = 65;
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == -1 && errno == EINVAL);
    CHECK(timer_create(99, NULL, &timer) == -1 && errno == EINVAL);
}

static _Atomic int notified;

static void notify(union sigval value)
{
    notified = value.sival_int;
}

static void timers_may_start_threads(void)
{
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = notify};
    event.sigev_value.sival_int = 9;
    CHECK(timer_create(CLOCK_REALTIME, &event, &timer) == 0);
    struct itimerspec spec = {{0, 0}, {0, 5 * MS}};
    CHECK(timer_settime(timer, 0, &spec, NULL) == 0);
    for (int i = 0; i < 2000 && !notified; i++)
        usleep(1000);
    CHECK(notified == 9);
    CHECK(timer_delete(timer) == 0);
}

static void timers_are_read_from_a_descriptor(void)
{
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    CHECK(fd >= 0);
    uint64_t count;
    CHECK(read(fd, &count, sizeof count) == -1 && errno == EAGAIN);
    struct itimerspec spec = {{0, 10 * MS}, {0, 10 * MS}}, left;
    CHECK(timerfd_settime(fd, 0, &spec, NULL) == 0);
    CHECK(timerfd_gettime(fd, &left) == 0 && left.it_interval.tv_nsec == 10 * MS);
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = 5};
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0);
    CHECK(epoll_wait(epoll, &event, 1, 5000) == 1 && event.data.u32 == 5);
    usleep(50000);
    CHECK(read(fd, &count, sizeof count) == sizeof count && count >= 5);
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    CHECK(poll(&ready, 1, 5000) == 1 && ready.revents == POLLIN);
    CHECK(read(fd, &count, 4) == -1 && errno == EINVAL);
    spec = (struct itimerspec){0};
    CHECK(timerfd_settime(fd, 0, &spec, &left) == 0 && left.it_interval.tv_nsec == 10 * MS);
    CHECK(poll(&ready, 1, 30) == 0);
    CHECK(timerfd_settime(fd, 8, &spec, NULL) == -1 && errno == EINVAL);
    spec.it_value.tv_nsec = -1;
    CHECK(timerfd_settime(fd, 0, &spec, NULL) == -1 && errno == EINVAL);
    CHECK(timerfd_settime(0x7fff, 0, &(struct itimerspec){0}, NULL) == -1 && errno == EBADF);
    CHECK(timerfd_settime(epoll, 0, &(struct itimerspec){0}, NULL) == -1 && errno == EINVAL);
    CHECK(timerfd_create(CLOCK_PROCESS_CPUTIME_ID, 0) == -1 && errno == EINVAL);
    close(fd);
    // Blocking, and on the wall clock.
    fd = timerfd_create(CLOCK_REALTIME, 0);
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    spec = (struct itimerspec){{0, 0}, {wall.tv_sec, wall.tv_nsec}};
    CHECK(timerfd_settime(fd, TFD_TIMER_ABSTIME, &spec, NULL) == 0);
    CHECK(read(fd, &count, sizeof count) == sizeof count && count == 1);
    close(fd);
    close(epoll);
}

/* With another timer behind it: the machine once did nothing but let such a timer expire. */
static void a_timer_that_nobody_hears_leaves_time_for_others(void)
{
    timer_t id, later;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGURG};
    struct itimerspec spec = {{0, 1}, {0, 1}}, far = {{0, 0}, {10, 0}}, left;
    CHECK(timer_create(CLOCK_REALTIME, &event, &id) == 0 && timer_create(CLOCK_MONOTONIC, &event, &later) == 0);
    CHECK(timer_settime(later, 0, &far, NULL) == 0 && timer_settime(id, 0, &spec, NULL) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        burn(20 * MS);
        usleep(50000);
        _exit(7);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7);
    CHECK(timer_gettime(id, &left) == 0 && left.it_interval.tv_nsec == 1);
    CHECK(timer_delete(id) == 0 && timer_delete(later) == 0);
}

static void *spend(void *argument)
{
    (void)argument;
    burn(40 * MS);
    clockid_t clock;
    CHECK(pthread_getcpuclockid(pthread_self(), &clock) == 0 && now(clock) >= 40 * MS);
    return NULL;
}

static void processor_time_is_counted(void)
{
    /* Against each other: a busy host's own time counts as that of whoever was running. */
    long long process = now(CLOCK_PROCESS_CPUTIME_ID), thread = now(CLOCK_THREAD_CPUTIME_ID);
    long long begin = now(CLOCK_MONOTONIC);
    usleep(50000);
    CHECK(now(CLOCK_THREAD_CPUTIME_ID) - thread <= now(CLOCK_MONOTONIC) - begin - 40 * MS);
    pthread_t other;
    CHECK(pthread_create(&other, NULL, spend, NULL) == 0 && pthread_join(other, NULL) == 0);
    long long of_thread = now(CLOCK_THREAD_CPUTIME_ID) - thread;
    CHECK(of_thread + 40 * MS <= now(CLOCK_PROCESS_CPUTIME_ID) - process);
    CHECK(now(CLOCK_PROCESS_CPUTIME_ID) - process >= 40 * MS);
    struct rusage usage;
    CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
    CHECK((usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000 +
              (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000 >=
          40);
    struct tms times_now;
    CHECK(times(&times_now) != (clock_t)-1 && times_now.tms_utime + times_now.tms_stime >= 4);
    CHECK(getrusage(5, &usage) == -1 && errno == EINVAL);
}

#define RUN(test)                                                                           \
    do {                                                                                    \
        test();                                                                             \
        puts(#test);                                                                        \
        fflush(stdout);                                                                     \
    } while (0)

int main(void)
{
    RUN(clocks_go_forward_and_agree);
    RUN(sleeping_takes_the_time_asked_for);
    RUN(interval_timers_repeat);
    RUN(posix_timers_send_their_value_and_count_overruns);
    RUN(timers_may_start_threads);
    RUN(timers_are_read_from_a_descriptor);
    RUN(a_timer_that_nobody_hears_leaves_time_for_others);
    RUN(processor_time_is_counted);
    puts("all timer tests passed");
    return 0;
}
