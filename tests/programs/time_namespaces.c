// SPDX-License-Identifier: Apache-2.0 OR MIT
// Time namespaces: clocks that count from boot, and all that waits for them or shows them, go by the offsets of the namespace, the
// others do not; offsets stay once somebody is in it.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif
#define FAILS(call, error) CHECK((errno = 0, (call) == -1) && errno == (error))
#define SECOND 1000000000ll
#define DAY 86400ll
// As far as a clock may go on between two looks at it.
#define NEAR (100 * SECOND)

static int64_t ns(struct timespec time)
{
    return time.tv_sec * SECOND + time.tv_nsec;
}

// By the C library, which asks the vDSO.
static int64_t now(clockid_t clock)
{
    struct timespec time;
    CHECK(clock_gettime(clock, &time) == 0);
    return ns(time);
}

static int64_t now_by_call(clockid_t clock)
{
    struct timespec time;
    CHECK(syscall(SYS_clock_gettime, clock, &time) == 0);
    return ns(time);
}

static int put(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY);
    CHECK(fd >= 0);
    ssize_t length = write(fd, text, strlen(text));
    int error = errno;
    close(fd);
    errno = error;
    return length == (ssize_t)strlen(text) ? 0 : -1;
}

static void get(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0);
    ssize_t length = read(fd, text, size - 1);
    CHECK(length > 0 && close(fd) == 0);
    text[length] = 0;
}

#define OFFSETS "/proc/self/timens_offsets"

static void in_child(void (*run)(void))
{
    int status;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        run();
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static int is_near(int64_t one, int64_t other)
{
    return one - other < NEAR && other - one < NEAR;
}

static int64_t before[12];
static const clockid_t from_boot[] = {CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW, CLOCK_MONOTONIC_COARSE, CLOCK_BOOTTIME};

static void shows(int64_t monotonic, int64_t boottime)
{
    for (unsigned i = 0; i < 4; i++) {
        clockid_t clock = from_boot[i];
        int64_t offset = clock == CLOCK_BOOTTIME ? boottime : monotonic;
        CHECK(is_near(now(clock), before[clock] + offset));
        CHECK(is_near(now_by_call(clock), before[clock] + offset));
    }
    struct timeval day;
    CHECK(gettimeofday(&day, NULL) == 0);
    CHECK(is_near(now(CLOCK_REALTIME), before[CLOCK_REALTIME]));
    CHECK(is_near(day.tv_sec * SECOND, before[CLOCK_REALTIME]) && is_near(time(NULL) * SECOND, before[CLOCK_REALTIME]));
    struct sysinfo machine;
    char text[256];
    CHECK(sysinfo(&machine) == 0 && is_near(machine.uptime * SECOND, before[CLOCK_BOOTTIME] + boottime));
    get("/proc/uptime", text, sizeof text);
    CHECK(is_near((int64_t)strtod(text, NULL) * SECOND, before[CLOCK_BOOTTIME] + boottime));
    // What time it was at boot, by what is shown as the time since.
    static char all[1 << 16];
    get("/proc/stat", all, sizeof all);
    char *boot = strstr(all, "\nbtime ");
    CHECK(boot);
    CHECK(is_near(strtoll(boot + 7, NULL, 10) * SECOND, before[CLOCK_REALTIME] - before[CLOCK_BOOTTIME] - boottime));
    // When it began, in ticks since boot.
    get("/proc/self/stat", text, sizeof text);
    char *field = strrchr(text, ')');
    for (int i = 0; i < 20; i++)
        field = strchr(field + 1, ' ');
    CHECK(is_near(strtoll(field, NULL, 10) * 10000000, before[CLOCK_BOOTTIME] + boottime));
}

static struct timespec after(clockid_t clock, int64_t length)
{
    int64_t at = now(clock) + length;
    return (struct timespec){.tv_sec = at / SECOND, .tv_nsec = at % SECOND};
}

static volatile int alarms;

static void note(int signal)
{
    (void)signal;
    alarms++;
}

// Each waits a fiftieth of a second: with the offset in it, it would not end.
static void waits(void)
{
    const int64_t length = SECOND / 50;
    const clockid_t clocks[] = {CLOCK_MONOTONIC, CLOCK_BOOTTIME};
    for (unsigned i = 0; i < 2; i++) {
        clockid_t clock = clocks[i];
        struct timespec until = after(clock, length);
        CHECK(clock_nanosleep(clock, TIMER_ABSTIME, &until, NULL) == 0);
        int64_t passed = now(clock) - ns(until);
        CHECK(passed >= 0 && passed < 60 * SECOND);
        uint64_t count;
        int fd = timerfd_create(clock, 0);
        struct itimerspec one = {.it_value = after(clock, length)};
        CHECK(fd >= 0 && timerfd_settime(fd, TFD_TIMER_ABSTIME, &one, NULL) == 0);
        struct itimerspec left;
        CHECK(timerfd_gettime(fd, &left) == 0 && ns(left.it_value) <= length);
        CHECK(read(fd, &count, 8) == 8 && count == 1 && now(clock) >= ns(one.it_value));
        // A time that is over.
        one.it_value = (struct timespec){.tv_nsec = 1};
        CHECK(timerfd_settime(fd, TFD_TIMER_ABSTIME, &one, NULL) == 0);
        CHECK(read(fd, &count, 8) == 8 && close(fd) == 0);
        timer_t timer;
        struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
        alarms = 0;
        signal(SIGUSR1, note);
        CHECK(timer_create(clock, &event, &timer) == 0);
        one.it_value = after(clock, length);
        CHECK(timer_settime(timer, TIMER_ABSTIME, &one, NULL) == 0);
        while (!alarms)
            usleep(1000);
        CHECK(now(clock) >= ns(one.it_value) && timer_delete(timer) == 0);
    }
    uint32_t word = 0;
    struct timespec until = after(CLOCK_MONOTONIC, length);
    FAILS(syscall(SYS_futex, &word, FUTEX_WAIT_BITSET, 0, &until, NULL, FUTEX_BITSET_MATCH_ANY), ETIMEDOUT);
    CHECK(now(CLOCK_MONOTONIC) >= ns(until));
    struct itimerval soon = {.it_value = {.tv_usec = 20000}};
    alarms = 0;
    signal(SIGALRM, note);
    CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
    while (!alarms)
        usleep(1000);
}

static void changed(void)
{
    shows(10 * DAY * SECOND, 20 * DAY * SECOND);
    waits();
    char text[128];
    get(OFFSETS, text, sizeof text);
    CHECK(strcmp(text, "monotonic      864000         0\nboottime      1728000         0\n") == 0);
    // Somebody is in it.
    FAILS(put(OFFSETS, "monotonic 1 0\n"), EACCES);
    // Its children are in it, too, and in their next program.
    int status;
    pid_t child = fork();
    if (child == 0) {
        char start[32];
        snprintf(start, sizeof start, "%lld", (long long)(before[CLOCK_MONOTONIC] + 10 * DAY * SECOND));
        execl("/proc/self/exe", "time_namespaces", start, NULL);
        _exit(99);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static int same(const char *one, const char *other)
{
    struct stat a, b;
    CHECK(stat(one, &a) == 0 && stat(other, &b) == 0);
    return a.st_ino == b.st_ino && a.st_dev == b.st_dev;
}

static void *thread(void *unused)
{
    return unused;
}

static void made(void)
{
    CHECK(same("/proc/self/ns/time", "/proc/self/ns/time_for_children"));
    CHECK(unshare(CLONE_NEWTIME) == 0);
    CHECK(!same("/proc/self/ns/time", "/proc/self/ns/time_for_children"));
    // The caller's clocks are as they were.
    shows(0, 0);
    CHECK(put(OFFSETS, "monotonic 864000 0\n7 1728000 0\n") == 0);
    shows(0, 0);
    pthread_t other;
    // Threads share the memory and with it the clock. Linux 6.1 makes none now; later ones leave them in their maker's.
    int error = pthread_create(&other, NULL, thread, NULL);
    CHECK(error == EINVAL || (error == 0 && pthread_join(other, NULL) == 0));
    in_child(changed);
    FAILS(put(OFFSETS, "monotonic 864000 0\n"), EACCES);
    // Entered, and left again.
    int own = open("/proc/self/ns/time", O_RDONLY), other_one = open("/proc/self/ns/time_for_children", O_RDONLY);
    CHECK(own >= 0 && other_one >= 0);
    FAILS(setns(own, CLONE_NEWUTS), EINVAL);
    CHECK(setns(other_one, CLONE_NEWTIME) == 0);
    CHECK(same("/proc/self/ns/time", "/proc/self/ns/time_for_children"));
    shows(10 * DAY * SECOND, 20 * DAY * SECOND);
    CHECK(setns(own, 0) == 0);
    shows(0, 0);
    CHECK(pthread_create(&other, NULL, thread, NULL) == 0 && pthread_join(other, NULL) == 0);
}

static void refused(void)
{
    // The machine's own.
    FAILS(put(OFFSETS, "monotonic 1 0\n"), EACCES);
    CHECK(unshare(CLONE_NEWTIME) == 0);
    FAILS(put(OFFSETS, "monotonic 1\n"), EINVAL);
    FAILS(put(OFFSETS, "monotonic 1 1000000000\n"), EINVAL);
    FAILS(put(OFFSETS, "realtime 1 0\n"), EINVAL);
    FAILS(put(OFFSETS, "monotonic x 0\n"), EINVAL);
    FAILS(put(OFFSETS, "monotonic 9223372036 0\n"), ERANGE);
    FAILS(put(OFFSETS, "monotonic -9000000000 0\n"), ERANGE);
    FAILS(put(OFFSETS, "boottime 5000000000 0\n"), ERANGE);
    CHECK(put(OFFSETS, "1 1 500000000\n") == 0);
    char text[128];
    get(OFFSETS, text, sizeof text);
    CHECK(strcmp(text, "monotonic           1 500000000\nboottime            0         0\n") == 0);
    CHECK(setuid(1234) == 0);
    FAILS(unshare(CLONE_NEWTIME), EPERM);
}

int main(int count, char **words)
{
    if (count > 1) {
        CHECK(is_near(now(CLOCK_MONOTONIC), strtoll(words[1], NULL, 10)));
        CHECK(is_near(now_by_call(CLOCK_MONOTONIC), strtoll(words[1], NULL, 10)));
        return 0;
    }
    for (unsigned i = 0; i < 4; i++)
        before[from_boot[i]] = now(from_boot[i]);
    before[CLOCK_REALTIME] = now(CLOCK_REALTIME);
    in_child(made);
    in_child(refused);
    shows(0, 0);
    printf("each namespace has its time\n");
    return 0;
}
