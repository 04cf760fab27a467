// SPDX-License-Identifier: Apache-2.0 OR MIT
// Programs that mean io_uring no good: wrong indices, entries that change, rings that close, links and completions without end. Each is
// a process of its own; whatever becomes of it, the next one finds a kernel that works. Passes on Linux.
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "io_uring.h"

static char bytes[4096];
static volatile int stop;

// Heads, tails and indices out of a random sequence.
static void indices(void)
{
    struct ring ring;
    uint64_t state = 0x9e3779b97f4a7c15;
    ring_new(&ring, 16, 0, 0);
    for (int i = 0; i < 3000; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        unsigned *words[] = {WORD(&ring, sq, head), WORD(&ring, sq, tail), WORD(&ring, cq, head), WORD(&ring, cq, tail),
                             WORD(&ring, sq, ring_mask), WORD(&ring, cq, ring_entries), WORD(&ring, sq, array) + (state >> 20) % 16};
        *words[state % 7] = state >> 32;
        unsigned char *entry = (void *)&ring.sqes[(state >> 8) & 15];
        for (unsigned at = 0; at < sizeof *ring.sqes; at++)
            entry[at] = state >> (at % 8 * 8);
        // Nothing that reaches outside: what is done is done to a pipe that nobody has.
        entry[0] = (state >> 40) % 2 ? IORING_OP_NOP : IORING_OP_READ;
        ((struct io_uring_sqe *)entry)->fd = -1;
        ring_enter(ring.fd, (state >> 16) & 31, 0, IORING_ENTER_GETEVENTS, NULL, 0);
    }
    ring_free(&ring);
}

static void *rewrites(void *data)
{
    struct ring *ring = data;
    for (unsigned i = 0; !stop; i++) {
        ring->sqes[i & 7].opcode = i % 49;
        ring->sqes[i & 7].flags = i >> 3;
        ring->sqes[i & 7].len = i;
        if (i % 64 == 0)
            sched_yield();
    }
    return NULL;
}

// Entries that another thread writes over while they are submitted.
static void changing(void)
{
    struct ring ring;
    pthread_t thread;
    struct completion cqe;
    ring_new(&ring, 8, 0, 0);
    CHECK(pthread_create(&thread, NULL, rewrites, &ring) == 0);
    for (int i = 0; i < 2000; i++) {
        ring.tail++;
        ring_submit(&ring, 0);
        while (ring_reap(&ring, &cqe))
            ;
    }
    stop = 1;
    pthread_join(thread, NULL);
    ring_free(&ring);
}

static void *closes(void *data)
{
    usleep(2000);
    close(*(int *)data);
    return NULL;
}

// A ring whose descriptor another thread closes, with requests that wait.
static void closed(void)
{
    for (int i = 0; i < 20; i++) {
        struct ring ring;
        int pipe[2];
        pthread_t thread;
        CHECK(pipe2(pipe, 0) == 0);
        ring_new(&ring, 8, 0, 0);
        for (int k = 0; k < 4; k++)
            ring_entry(&ring, IORING_OP_READ, pipe[0], bytes, 1, 0, k);
        struct __kernel_timespec soon = {0, 10 * 1000 * 1000};
        struct io_uring_getevents_arg argument = {.ts = (uintptr_t)&soon};
        CHECK(ring_submit(&ring, 0) == 4 && pthread_create(&thread, NULL, closes, &ring.fd) == 0);
        ring_enter(ring.fd, 0, 1, IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG, &argument, sizeof argument);
        pthread_join(thread, NULL);
        // On Linux the ring lives as long as its memory is mapped, here as long as its descriptor.
        CHECK(write(pipe[1], "x", 1) == 1);
        close(pipe[0]), close(pipe[1]);
    }
}

// 100,000 linked requests, as many in one link as a ring has entries.
static void long_links(void)
{
    struct ring ring;
    unsigned seen = 0;
    struct completion cqe;
    ring_new(&ring, 32768, 0, 0);
    for (int round = 0; round < 4; round++) {
        for (unsigned i = 0; i < 32768; i++)
            ring_entry(&ring, IORING_OP_NOP, -1, NULL, 0, 0, i)->flags = i < 32767 ? IOSQE_IO_LINK : 0;
        // The first round starts, the second fails at once, the third waits and is cancelled.
        struct io_uring_sqe *first = &ring.sqes[(ring.tail - 32768) & 32767];
        int pipe[2];
        CHECK(pipe2(pipe, 0) == 0);
        if (round % 3) {
            first->opcode = IORING_OP_READ;
            first->fd = round == 1 ? -1 : pipe[0];
            first->addr = (uintptr_t)bytes;
            first->len = 1;
        }
        CHECK(ring_submit(&ring, 0) == 32768);
        if (round == 2) {
            close(pipe[1]);
            usleep(1000);
        } else {
            close(pipe[1]);
        }
        for (unsigned i = 0; i < 32768; i++)
            seen += ring_wait(&ring).user_data < 32768;
        close(pipe[0]);
    }
    CHECK(seen == 4 * 32768 && !ring_reap(&ring, &cqe));
    ring_free(&ring);
}

// Completions that nobody takes, and requests that nobody waits for.
static void unreaped(void)
{
    struct ring ring;
    int pipe[2];
    CHECK(pipe2(pipe, 0) == 0);
    ring_new(&ring, 256, 0, 0);
    for (int round = 0; round < 400; round++) {
        for (int i = 0; i < 256; i++)
            ring_entry(&ring, round % 4 ? IORING_OP_NOP : IORING_OP_READ, pipe[0], bytes, 1, 0, i);
        if (ring_submit(&ring, 0) < 0)
            break;
    }
}

// Rings that wait for themselves and each other.
static void circles(void)
{
    for (int i = 0; i < 50; i++) {
        struct ring rings[3];
        for (int k = 0; k < 3; k++)
            ring_new(&rings[k], 4, 0, 0);
        for (int k = 0; k < 3; k++) {
            ring_entry(&rings[k], IORING_OP_POLL_ADD, rings[(k + 1) % 3].fd, NULL, 0, 0, k)->poll32_events = POLLIN;
            CHECK(ring_submit(&rings[k], 0) == 1);
        }
        int pair[2];
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
        char control[CMSG_SPACE(sizeof(int))] = {0};
        struct iovec piece = {"x", 1};
        struct msghdr header = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        struct cmsghdr *message = CMSG_FIRSTHDR(&header);
        message->cmsg_level = SOL_SOCKET, message->cmsg_type = SCM_RIGHTS, message->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(message), &rings[0].fd, sizeof(int));
        CHECK(sendmsg(pair[0], &header, 0) == -1 && errno == EINVAL);
        close(pair[0]), close(pair[1]);
        for (int k = 0; k < 3; k++)
            ring_free(&rings[k]);
    }
}

// A chain of rings, each of which watches the one before.
static void chains(void)
{
    static struct ring rings[300];
    int pipe[2];
    CHECK(pipe2(pipe, 0) == 0);
    for (int i = 0; i < 300; i++) {
        ring_new(&rings[i], 1, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN, 0);
        int watched = i ? rings[i - 1].fd : pipe[0];
        ring_entry(&rings[i], IORING_OP_POLL_ADD, watched, NULL, 0, 0, i)->poll32_events = POLLIN;
        CHECK(ring_submit(&rings[i], 0) == 1);
    }
    CHECK(write(pipe[1], "x", 1) == 1);
    CHECK(ring_wait(&rings[0]).res == POLLIN);
    for (int i = 0; i < 300; i++)
        ring_free(&rings[i]);
}

// Many requests, cancelled one by one.
static void cancelled(void)
{
    struct ring ring;
    int pipe[2];
    CHECK(pipe2(pipe, 0) == 0);
    ring_new(&ring, 4096, IORING_SETUP_CQSIZE, 16384);
    for (int i = 0; i < 4096; i++)
        ring_entry(&ring, IORING_OP_READ, pipe[0], bytes, 1, 0, i);
    CHECK(ring_submit(&ring, 0) == 4096);
    for (int i = 0; i < 4096; i++)
        ring_entry(&ring, IORING_OP_ASYNC_CANCEL, -1, (void *)(uintptr_t)i, 0, 0, 5000);
    CHECK(ring_submit(&ring, 0) == 4096);
    for (int i = 0; i < 8192; i++) {
        struct completion cqe = ring_wait(&ring);
        CHECK(cqe.res == (cqe.user_data == 5000 ? 0 : -ECANCELED));
    }
    ring_free(&ring);
}

int main(void)
{
    void (*all[])(void) = {indices, changing, closed, long_links, unreaped, circles, chains, cancelled};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
        int child = fork(), status;
        if (child == 0) {
            alarm(60);
            all[i]();
            _exit(0);
        }
        CHECK(child > 0 && waitpid(child, &status, 0) == child);
        if (status)
            printf("number %u ended with %#x\n", i, status);
        CHECK(status == 0);
        struct ring ring;
        ring_new(&ring, 4, 0, 0);
        ring_entry(&ring, IORING_OP_NOP, -1, NULL, 0, 0, 1);
        CHECK(ring_result(&ring, 1) == 0);
        ring_free(&ring);
    }
    puts("all hostile rings answered");
    return 0;
}
