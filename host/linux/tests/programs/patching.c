// SPDX-License-Identifier: Apache-2.0 OR MIT
// One processor has the kernel change its own code again and again (the jump label that says whether packets get a time,
// which is so while a socket asks for it), while another one runs the changed code: it sends packets to itself. Prints how
// often it was changed; a kernel that does not survive it does not.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static volatile int done;
static volatile unsigned long sent;

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void stay_on(int processor)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    if (sched_setaffinity(0, sizeof(set), &set) != 0)
        fail("sched_setaffinity");
}

static void *send_packets(void *unused)
{
    (void)unused;
    stay_on(1);
    int socket_ = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in self = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(self);
    if (bind(socket_, (struct sockaddr *)&self, length) != 0 ||
        getsockname(socket_, (struct sockaddr *)&self, &length) != 0)
        fail("bind");
    char byte = 0;
    while (!done) {
        if (sendto(socket_, &byte, 1, 0, (struct sockaddr *)&self, length) != 1 || recv(socket_, &byte, 1, 0) != 1)
            fail("sendto");
        sent++;
    }
    return NULL;
}

// Until the other processor has run the code a few times; the kernel changes it from a thread of its own.
static void let_it_run(void)
{
    unsigned long until = sent + 3;
    while (sent < until)
        sched_yield();
}

int main(int argc, char **argv)
{
    int times = argc > 1 ? atoi(argv[1]) : 1000;
    stay_on(0);
    pthread_t other;
    if (pthread_create(&other, NULL, send_packets, NULL) != 0)
        fail("pthread_create");
    for (int n = 0; n < times; n++) {
        int on = 1, asking = socket(AF_INET, SOCK_DGRAM, 0);
        if (setsockopt(asking, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof(on)) != 0)
            fail("SO_TIMESTAMP");
        let_it_run();
        close(asking);
        let_it_run();
    }
    done = 1;
    pthread_join(other, NULL);
    printf("changed %d times\n", 2 * times);
    return 0;
}
