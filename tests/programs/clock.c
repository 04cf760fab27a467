// SPDX-License-Identifier: Apache-2.0 OR MIT
// Setting the wall clock as root: who reads it, who waits for one of its times, and who must not notice.
// (On Linux it passes as well, and leaves the computer's clock a little off.)
#define _GNU_SOURCE
#include <pthread.h>
#include <string.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static void move(long seconds)
{
    struct timespec now;
    CHECK(clock_gettime(CLOCK_REALTIME, &now) == 0);
    now.tv_sec += seconds;
    CHECK(clock_settime(CLOCK_REALTIME, &now) == 0);
}

static double monotonic(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static void *moves(void *seconds)
{
    usleep(100 * 1000);
    move((long)seconds);
    return NULL;
}

static void sets_later(pthread_t *thread, long seconds)
{
    CHECK(pthread_create(thread, NULL, moves, (void *)seconds) == 0);
}

int main(void)
{
    struct timespec before, after, far, bad = {0, 1000000000};
    struct timeval tv;
    pthread_t thread;
    CHECK(clock_settime(CLOCK_REALTIME, &bad) == -1 && errno == EINVAL);
    CHECK(clock_settime(CLOCK_MONOTONIC, &before) == -1 && errno == EINVAL);
    bad.tv_sec = -1;
    bad.tv_nsec = 0;
    CHECK(clock_settime(CLOCK_REALTIME, &bad) == -1 && errno == EINVAL);

    double start = monotonic();
    clock_gettime(CLOCK_REALTIME, &before);
    move(10000);
    clock_gettime(CLOCK_REALTIME, &after);
    CHECK(after.tv_sec - before.tv_sec >= 10000 && after.tv_sec - before.tv_sec < 10010);
    CHECK(time(NULL) - before.tv_sec >= 10000);
    CHECK(monotonic() - start < 10);

    // A sleep and a timer until a time of day end when that time is skipped.
    far = after;
    far.tv_sec += 1000;
    start = monotonic();
    sets_later(&thread, 2000);
    CHECK(clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &far, NULL) == 0);
    CHECK(monotonic() - start < 20);
    pthread_join(thread, NULL);

    // So does the sleep of another process.
    struct timespec later;
    clock_gettime(CLOCK_REALTIME, &later);
    later.tv_sec += 3000;
    pid_t child = fork();
    if (child == 0)
        _exit(clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &later, NULL));
    usleep(100 * 1000);
    move(4000);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    move(-4000);

    int fd = timerfd_create(CLOCK_REALTIME, 0);
    struct itimerspec spec = {{0, 0}, {far.tv_sec + 5000, 0}};
    unsigned long count;
    CHECK(timerfd_settime(fd, TFD_TIMER_ABSTIME, &spec, NULL) == 0);
    sets_later(&thread, 8000);
    CHECK(read(fd, &count, sizeof count) == sizeof count && count == 1);
    pthread_join(thread, NULL);

    // Who waits for some time is not shortened, nor is it prolonged.
    struct timespec little = {0, 300 * 1000 * 1000};
    start = monotonic();
    sets_later(&thread, -5000);
    CHECK(clock_nanosleep(CLOCK_REALTIME, 0, &little, NULL) == 0);
    CHECK(monotonic() - start >= 0.3 && monotonic() - start < 20);
    pthread_join(thread, NULL);

    gettimeofday(&tv, NULL);
    tv.tv_sec -= 15000;
    CHECK(settimeofday(&tv, NULL) == 0);
    clock_gettime(CLOCK_REALTIME, &after);
    CHECK(after.tv_sec - before.tv_sec >= 0 && after.tv_sec - before.tv_sec < 60);

    CHECK(setresuid(4242, 4242, 4242) == 0);
    CHECK(clock_settime(CLOCK_REALTIME, &after) == -1 && errno == EPERM);
    puts("all clock tests passed");
    return 0;
}
