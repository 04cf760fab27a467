// SPDX-License-Identifier: Apache-2.0 OR MIT
// Threads as programs use them: every check prints its name and aborts the run when it fails.
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

enum { THREADS = 8, ROUNDS = 20000 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static long counter;
static _Thread_local long mine;

static void *count(void *argument)
{
    for (int i = 0; i < ROUNDS; i++) {
        pthread_mutex_lock(&mutex);
        counter++;
        pthread_mutex_unlock(&mutex);
        mine++;
        if (i % 1000 == 0)
            sched_yield();
    }
    CHECK(mine == ROUNDS);
    return argument;
}

static void mutual_exclusion_and_join(void)
{
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, count, (void *)i) == 0);
    for (long i = 0; i < THREADS; i++) {
        void *result;
        CHECK(pthread_join(threads[i], &result) == 0 && result == (void *)i);
    }
    CHECK(counter == (long)THREADS * ROUNDS);
    CHECK(mine == 0);
}

static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static int turn;

static void *ping(void *argument)
{
    long me = (long)argument;
    for (int i = 0; i < 1000; i++) {
        pthread_mutex_lock(&mutex);
        while (turn != me)
            pthread_cond_wait(&condition, &mutex);
        turn = !me;
        pthread_cond_broadcast(&condition);
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}

static void condition_variables(void)
{
    pthread_t a, b;
    CHECK(pthread_create(&a, NULL, ping, (void *)0) == 0);
    CHECK(pthread_create(&b, NULL, ping, (void *)1) == 0);
    CHECK(pthread_join(a, NULL) == 0 && pthread_join(b, NULL) == 0);
}

static long long now(clockid_t clock)
{
    struct timespec t;
    CHECK(clock_gettime(clock, &t) == 0);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void timed_waits_time_out(void)
{
    struct timespec t;
    CHECK(clock_gettime(CLOCK_REALTIME, &t) == 0);
    t.tv_nsec += 50000000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_nsec -= 1000000000;
        t.tv_sec++;
    }
    long long start = now(CLOCK_MONOTONIC);
    pthread_mutex_lock(&mutex);
    int error = 0;
    while (error == 0)
        error = pthread_cond_timedwait(&condition, &mutex, &t);
    pthread_mutex_unlock(&mutex);
    CHECK(error == ETIMEDOUT);
    CHECK(now(CLOCK_MONOTONIC) - start >= 49000000);
    sem_t semaphore;
    CHECK(sem_init(&semaphore, 0, 1) == 0);
    CHECK(sem_wait(&semaphore) == 0);
    CHECK(sem_timedwait(&semaphore, &t) == -1 && errno == ETIMEDOUT);
    CHECK(sem_trywait(&semaphore) == -1 && errno == EAGAIN);
}

static pthread_barrier_t barrier;
static atomic_int arrived;

static void *meet(void *unused)
{
    for (int i = 1; i <= 50; i++) {
        atomic_fetch_add(&arrived, 1);
        pthread_barrier_wait(&barrier);
        CHECK(atomic_load(&arrived) >= i * THREADS);
        pthread_barrier_wait(&barrier);
    }
    return unused;
}

static void barriers(void)
{
    pthread_t threads[THREADS];
    CHECK(pthread_barrier_init(&barrier, NULL, THREADS) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, meet, NULL) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

static pthread_mutex_t robust, inheriting;

static void *die_holding(void *unused)
{
    pthread_mutex_lock(&robust);
    return unused;
}

static void *hold_a_while(void *unused)
{
    pthread_mutex_lock(&inheriting);
    usleep(20000);
    pthread_mutex_unlock(&inheriting);
    return unused;
}

static void robust_and_inheriting_mutexes(void)
{
    pthread_mutexattr_t attributes;
    pthread_t thread;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    CHECK(pthread_mutex_init(&robust, &attributes) == 0);
    CHECK(pthread_create(&thread, NULL, die_holding, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(pthread_mutex_lock(&robust) == EOWNERDEAD);
    CHECK(pthread_mutex_consistent(&robust) == 0);
    CHECK(pthread_mutex_unlock(&robust) == 0);

    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
    CHECK(pthread_mutex_init(&inheriting, &attributes) == 0);
    CHECK(pthread_create(&thread, NULL, hold_a_while, NULL) == 0);
    usleep(5000);
    CHECK(pthread_mutex_lock(&inheriting) == 0);
    CHECK(pthread_mutex_unlock(&inheriting) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void *sleep_for_ever(void *unused)
{
    for (;;)
        pause();
    return unused;
}

static void cancellation(void)
{
    pthread_t thread;
    void *result;
    CHECK(pthread_create(&thread, NULL, sleep_for_ever, NULL) == 0);
    usleep(5000);
    CHECK(pthread_cancel(thread) == 0);
    CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
}

static atomic_int spinning;

static void *spin(void *unused)
{
    while (!atomic_load(&spinning))
        ;
    return unused;
}

static void a_thread_that_computes_is_preempted(void)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, spin, NULL) == 0);
    usleep(20000);
    atomic_store(&spinning, 1);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void futex_errors(void)
{
    static int word = 5;
    CHECK(syscall(SYS_futex, &word, FUTEX_WAIT, 4, NULL, NULL, 0) == -1 && errno == EAGAIN);
    CHECK(syscall(SYS_futex, (char *)&word + 1, FUTEX_WAIT, 5, NULL, NULL, 0) == -1 && errno == EINVAL);
    CHECK(syscall(SYS_futex, (void *)-4096L, FUTEX_WAIT, 5, NULL, NULL, 0) == -1 && errno == EFAULT);
    CHECK(syscall(SYS_futex, (void *)8, FUTEX_WAIT, 5, NULL, NULL, 0) == -1 && errno == EFAULT);
    CHECK(syscall(SYS_futex, &word, FUTEX_WAIT_BITSET, 5, NULL, NULL, 0) == -1 && errno == EINVAL);
    CHECK(syscall(SYS_futex, &word, 77, 5, NULL, NULL, 0) == -1 && errno == ENOSYS);
    struct timespec bad = {0, 1000000000};
    CHECK(syscall(SYS_futex, &word, FUTEX_WAIT, 5, &bad, NULL, 0) == -1 && errno == EINVAL);
    struct timespec brief = {0, 1000000};
    CHECK(syscall(SYS_futex, &word, FUTEX_WAIT, 5, &brief, NULL, 0) == -1 && errno == ETIMEDOUT);
    CHECK(syscall(SYS_futex, &word, FUTEX_WAKE, 1, NULL, NULL, 0) == 0);
}

int main(int argc, char **argv)
{
    int cooperative = argc > 1 && strcmp(argv[1], "cooperative") == 0;
    mutual_exclusion_and_join();
    condition_variables();
    timed_waits_time_out();
    barriers();
    robust_and_inheriting_mutexes();
    cancellation();
    if (!cooperative)
        a_thread_that_computes_is_preempted();
    futex_errors();
    puts("threads: all checks passed");
    return 0;
}
