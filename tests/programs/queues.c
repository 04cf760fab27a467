// SPDX-License-Identifier: Apache-2.0 OR MIT
// POSIX message queues: order, limits, waiting, notifications by signal and by thread. Passes on Linux.
#define _GNU_SOURCE
#include <fcntl.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

#define NAME "/unilith-queue"

static mqd_t make(long messages, long size, int flags)
{
    struct mq_attr attributes = {.mq_maxmsg = messages, .mq_msgsize = size};
    return mq_open(NAME, O_CREAT | O_RDWR | flags, 0640, &attributes);
}

static struct timespec in_ms(long ms)
{
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    time.tv_nsec += ms * 1000000;
    time.tv_sec += time.tv_nsec / 1000000000;
    time.tv_nsec %= 1000000000;
    return time;
}

static void names_and_attributes(void)
{
    CHECK(mq_open(NAME, O_RDWR) == -1 && errno == ENOENT);
    CHECK(mq_open("/a/b", O_RDWR | O_CREAT, 0600, NULL) == -1 && errno == EACCES);
    CHECK(make(0, 10, 0) == -1 && errno == EINVAL);
    CHECK(make(10, -1, 0) == -1 && errno == EINVAL);
    mqd_t queue = make(4, 16, O_EXCL);
    CHECK(queue >= 0);
    CHECK(make(4, 16, O_EXCL) == -1 && errno == EEXIST);
    CHECK(fcntl(queue, F_GETFD) == FD_CLOEXEC);
    struct stat stat;
    CHECK(fstat(queue, &stat) == 0 && S_ISREG(stat.st_mode) && (stat.st_mode & 0777) == 0640 && stat.st_size == 80);
    struct mq_attr attributes, nonblocking = {.mq_flags = O_NONBLOCK};
    CHECK(mq_getattr(queue, &attributes) == 0);
    CHECK(attributes.mq_maxmsg == 4 && attributes.mq_msgsize == 16 && attributes.mq_curmsgs == 0);
    CHECK(mq_setattr(queue, &nonblocking, &attributes) == 0 && attributes.mq_flags == 0);
    CHECK(mq_getattr(queue, &attributes) == 0 && attributes.mq_flags == O_NONBLOCK);
    nonblocking.mq_flags = O_RDWR;
    CHECK(mq_setattr(queue, &nonblocking, NULL) == -1 && errno == EINVAL);
    CHECK(mq_unlink(NAME) == 0 && mq_unlink(NAME) == -1 && errno == ENOENT);
    // It works until it is closed.
    CHECK(mq_send(queue, "x", 1, 0) == 0);
    CHECK(mq_close(queue) == 0 && mq_close(queue) == -1 && errno == EBADF);
}

static void messages(void)
{
    mqd_t queue = make(2, 16, O_NONBLOCK), reader = mq_open(NAME, O_RDONLY);
    char text[16];
    unsigned priority;
    CHECK(queue >= 0 && reader >= 0);
    CHECK(mq_receive(queue, text, sizeof text, NULL) == -1 && errno == EAGAIN);
    CHECK(mq_receive(queue, text, 15, NULL) == -1 && errno == EMSGSIZE);
    CHECK(mq_send(queue, text, 17, 0) == -1 && errno == EMSGSIZE);
    CHECK(mq_send(queue, text, 1, 32768) == -1 && errno == EINVAL);
    CHECK(mq_send(reader, text, 1, 0) == -1 && errno == EBADF);
    CHECK(mq_send(0, text, 1, 0) == -1 && errno == EBADF);
    CHECK(mq_send(queue, "low", 4, 1) == 0 && mq_send(queue, "high", 5, 9) == 0);
    CHECK(mq_send(queue, "more", 5, 0) == -1 && errno == EAGAIN);
    struct pollfd ready = {queue, POLLIN | POLLOUT, 0};
    CHECK(poll(&ready, 1, 0) == 1 && ready.revents == POLLIN);
    char line[128] = "";
    CHECK(read(queue, line, sizeof line) > 0 && !strncmp(line, "QSIZE:9 ", 8));
    CHECK(mq_receive(reader, text, sizeof text, &priority) == 5 && !strcmp(text, "high") && priority == 9);
    CHECK(mq_receive(reader, text, sizeof text, &priority) == 4 && !strcmp(text, "low") && priority == 1);
    struct timespec soon = in_ms(100), bad = {0, 1000000000};
    CHECK(mq_timedreceive(reader, text, sizeof text, NULL, &soon) == -1 && errno == ETIMEDOUT);
    CHECK(mq_timedreceive(reader, text, sizeof text, NULL, &bad) == -1 && errno == EINVAL);
    mq_close(queue);
    mq_close(reader);
    CHECK(mq_unlink(NAME) == 0);
}

static void *sends_later(void *queue)
{
    usleep(50 * 1000);
    CHECK(mq_send(*(mqd_t *)queue, "later", 6, 3) == 0);
    return NULL;
}

static void a_receiver_sleeps_until_there_is_a_message(void)
{
    mqd_t queue = make(2, 16, 0);
    pthread_t thread;
    char text[16];
    CHECK(pthread_create(&thread, NULL, sends_later, &queue) == 0);
    CHECK(mq_receive(queue, text, sizeof text, NULL) == 6 && !strcmp(text, "later"));
    pthread_join(thread, NULL);
    mq_close(queue);
    mq_unlink(NAME);
}

static sem_t called;

static void call(union sigval value)
{
    CHECK(value.sival_int == 77);
    sem_post(&called);
}

static void notifications(void)
{
    mqd_t queue = make(2, 16, 0);
    char text[16];
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1, .sigev_value.sival_int = 5};
    CHECK(mq_notify(queue, &event) == 0);
    CHECK(mq_notify(queue, &event) == -1 && errno == EBUSY);
    CHECK(mq_send(queue, "a", 1, 0) == 0 && mq_send(queue, "b", 1, 0) == 0);
    siginfo_t info;
    CHECK(sigwaitinfo(&set, &info) == SIGUSR1);
    CHECK(info.si_code == SI_MESGQ && info.si_value.sival_int == 5 && info.si_pid == getpid());
    CHECK(mq_receive(queue, text, sizeof text, NULL) == 1 && mq_receive(queue, text, sizeof text, NULL) == 1);
    // Once only.
    CHECK(mq_send(queue, "a", 1, 0) == 0 && mq_receive(queue, text, sizeof text, NULL) == 1);
    CHECK(sigpending(&set) == 0 && !sigismember(&set, SIGUSR1));
    CHECK(mq_notify(queue, &event) == 0 && mq_notify(queue, NULL) == 0 && mq_notify(queue, &event) == 0);
    CHECK(mq_notify(queue, NULL) == 0);
    struct sigevent thread = {.sigev_notify = SIGEV_THREAD, .sigev_value.sival_int = 77};
    thread.sigev_notify_function = call;
    sem_init(&called, 0, 0);
    CHECK(mq_notify(queue, &thread) == 0);
    CHECK(mq_send(queue, "c", 1, 0) == 0);
    CHECK(sem_wait(&called) == 0);
    mq_close(queue);
    mq_unlink(NAME);
}

static void their_memory_is_limited(void)
{
    struct rlimit before, limit = {1000, 1000000};
    CHECK(getrlimit(RLIMIT_MSGQUEUE, &before) == 0);
    limit.rlim_max = before.rlim_max;
    CHECK(setrlimit(RLIMIT_MSGQUEUE, &limit) == 0);
    CHECK(make(10, 1024, 0) == -1 && errno == EMFILE);
    CHECK(setrlimit(RLIMIT_MSGQUEUE, &before) == 0);
}

int main(void)
{
    mq_unlink(NAME);
    names_and_attributes();
    messages();
    a_receiver_sleeps_until_there_is_a_message();
    notifications();
    their_memory_is_limited();
    puts("all queue tests passed");
    return 0;
}
