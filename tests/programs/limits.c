// SPDX-License-Identifier: Apache-2.0 OR MIT
// Limits that the kernel enforces: the size of files, processor time, the number of threads. Passes on Linux as root.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static volatile int seen;

static void note(int signal)
{
    seen = signal;
}

static void catch(int signal)
{
    struct sigaction action = {.sa_handler = note};
    CHECK(sigaction(signal, &action, NULL) == 0);
}

// True when the last call failed for a file that became too large, with its signal.
static int too_large(long result)
{
    int told = result == -1 && errno == EFBIG && seen == SIGXFSZ;
    seen = 0;
    return told;
}

static void files_grow_up_to_their_limit(void)
{
    static char bytes[8192];
    struct rlimit limit = {5000, RLIM_INFINITY}, before;
    CHECK(getrlimit(RLIMIT_FSIZE, &before) == 0);
    catch(SIGXFSZ);
    int fd = open("/tmp/limited", O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0);
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    CHECK(write(fd, bytes, sizeof bytes) == 5000 && seen == 0);
    CHECK(too_large(write(fd, bytes, 1)));
    CHECK(write(fd, bytes, 0) == 0 && seen == 0);
    CHECK(pwrite(fd, bytes, 100, 4950) == 50);
    CHECK(too_large(pwrite(fd, bytes, 100, 5000)));
    struct iovec parts[2] = {{bytes, 10}, {bytes, 100}};
    CHECK(pwritev(fd, parts, 2, 4980) == 20);
    CHECK(too_large(ftruncate(fd, 5001)));
    CHECK(too_large(truncate("/tmp/limited", 6000)));
    CHECK(ftruncate(fd, 4000) == 0 && ftruncate(fd, 5000) == 0);
    CHECK(too_large(posix_fallocate(fd, 0, 5001) == EFBIG ? (errno = EFBIG, -1) : 0));
    CHECK(fcntl(fd, F_SETFL, O_APPEND) == 0);
    CHECK(too_large(pwrite(fd, bytes, 1, 0)));
    CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);
    CHECK(write(fd, bytes, 100) == 100);
    // Pipes have no size.
    int ends[2];
    limit.rlim_cur = 0;
    CHECK(pipe(ends) == 0 && setrlimit(RLIMIT_FSIZE, &limit) == 0);
    CHECK(write(ends[1], bytes, 100) == 100 && seen == 0);
    CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);
    close(ends[0]);
    close(ends[1]);
    close(fd);
    unlink("/tmp/limited");
}

static double cpu(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static void processor_time_has_a_limit(void)
{
    catch(SIGXCPU);
    struct rlimit limit, before;
    CHECK(getrlimit(RLIMIT_CPU, &before) == 0);
    rlim_t at = (rlim_t)cpu() + 1;
    limit.rlim_cur = at;
    limit.rlim_max = before.rlim_max;
    CHECK(setrlimit(RLIMIT_CPU, &limit) == 0);
    seen = 0;
    while (!seen)
        CHECK(cpu() < at + 2);
    CHECK(seen == SIGXCPU && cpu() > at - 0.1);
    CHECK(setrlimit(RLIMIT_CPU, &before) == 0);
}

static void *ends(void *arg)
{
    return arg;
}

static void threads_are_counted(void)
{
    struct rlimit none = {0, 0};
    CHECK(setrlimit(RLIMIT_NPROC, &none) == 0);
    pthread_t thread;
    // The superuser may always.
    CHECK(pthread_create(&thread, NULL, ends, NULL) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(setresuid(4242, 4242, 4242) == 0);
    CHECK(pthread_create(&thread, NULL, ends, NULL) == EAGAIN);
}

static void *interrupter(void *main_thread)
{
    usleep(200 * 1000);
    pthread_kill(*(pthread_t *)main_thread, SIGWINCH);
    usleep(200 * 1000);
    raise(SIGWINCH);
    return NULL;
}

static void a_wait_keeps_its_time_over_signals_without_handler(void)
{
    // SIGWINCH is ignored by default, but a thread that does not block it is woken all the same.
    pthread_t own = pthread_self(), thread;
    CHECK(pthread_create(&thread, NULL, interrupter, &own) == 0);
    struct timespec timeout = {0, 600 * 1000 * 1000}, from, to;
    int word = 1;
    clock_gettime(CLOCK_MONOTONIC, &from);
    CHECK(syscall(SYS_futex, &word, 128, 1, &timeout, NULL, 0) == -1 && errno == ETIMEDOUT);
    clock_gettime(CLOCK_MONOTONIC, &to);
    double took = (to.tv_sec - from.tv_sec) + (to.tv_nsec - from.tv_nsec) / 1e9;
    CHECK(took >= 0.6 && took < 0.9);
    CHECK(pthread_join(thread, NULL) == 0);
}

int main(void)
{
    files_grow_up_to_their_limit();
    processor_time_has_a_limit();
    a_wait_keeps_its_time_over_signals_without_handler();
    threads_are_counted();
    puts("all limit tests passed");
    return 0;
}
