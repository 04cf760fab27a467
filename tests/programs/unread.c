// SPDX-License-Identifier: Apache-2.0 OR MIT
// Its standard output is a pipe that nobody reads for a while. A child fills it; this one sees that a full pipe is full for
// poll(2) and for a write that does not block, and that a signal ends one that does. The file /tmp/unread.full says so, and
// `unread look` waits for it. In the end all lines come out.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PLACE "/tmp/unread.full"
#define LINES 200000

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, 0);
}

static int is_writable(void)
{
    struct pollfd out = {.fd = 1, .events = POLLOUT};
    int ready = poll(&out, 1, 0);
    CHECK(ready >= 0);
    return ready == 1 && out.revents & POLLOUT;
}

// Full, and not for a moment only.
static int stays_full(void)
{
    for (int i = 0; i < 20; i++) {
        if (is_writable())
            return 0;
        nap();
    }
    return 1;
}

static void on_alarm(int signal)
{
    (void)signal;
}

// 0 if all is as a full pipe is.
static int look_at_full(void)
{
    char line[8] = "0000000\n";
    int flags = fcntl(1, F_GETFL);
    if (fcntl(1, F_SETFL, flags | O_NONBLOCK) != 0 || write(1, line, 8) != -1 || errno != EAGAIN)
        return __LINE__;
    if (fcntl(1, F_SETFL, flags) != 0)
        return __LINE__;
    struct sigaction action = {.sa_handler = on_alarm};
    sigaction(SIGALRM, &action, 0);
    alarm(1);
    if (write(1, line, 8) != -1 || errno != EINTR)
        return __LINE__;
    int queue = epoll_create1(0);
    struct epoll_event wanted = {.events = EPOLLOUT}, got;
    if (queue < 0 || epoll_ctl(queue, EPOLL_CTL_ADD, 1, &wanted) != 0 || epoll_wait(queue, &got, 1, 50) != 0)
        return __LINE__;
    int place = creat(PLACE, 0644);
    if (place < 0)
        return __LINE__;
    // Somebody reads from now on, and it is heard of.
    if (epoll_wait(queue, &got, 1, 60000) != 1 || !(got.events & EPOLLOUT))
        return __LINE__;
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "look") == 0) {
        struct stat is;
        for (int i = 0; i < 6000; i++) {
            if (stat(PLACE, &is) == 0) {
                puts("it is full");
                return 0;
            }
            nap();
        }
        puts("it was never full");
        return 1;
    }
    unlink(PLACE);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char line[9];
        for (int i = 0; i < LINES; i++) {
            snprintf(line, sizeof line, "%07d\n", i);
            for (int done = 0; done < 8;) {
                // A non-blocking moment of the other's is seen here, too.
                ssize_t n = write(1, line + done, 8 - done);
                if (n < 0 && errno != EAGAIN && errno != EINTR)
                    _exit(1);
                done += n > 0 ? n : 0;
            }
        }
        _exit(0);
    }
    for (int i = 0; i < 3000 && !stays_full(); i++)
        nap();
    int wrong = look_at_full();
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    if (wrong)
        printf("FAILED line %d\n", wrong);
    else
        puts("ok");
    return wrong != 0;
}
