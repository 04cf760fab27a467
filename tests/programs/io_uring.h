// SPDX-License-Identifier: Apache-2.0 OR MIT
// A ring by system calls alone.
#include <linux/io_uring.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"

// struct io_uring_cqe without what may be behind it.
struct completion {
    uint64_t user_data;
    int res;
    unsigned flags;
};

struct ring {
    int fd;
    struct io_uring_params params;
    unsigned char *memory;
    struct io_uring_sqe *sqes;
    unsigned tail;
};

#define WORD(ring, queue, name) ((unsigned *)((ring)->memory + (ring)->params.queue##_off.name))

static inline int ring_setup(unsigned entries, struct io_uring_params *params)
{
    return syscall(SYS_io_uring_setup, entries, params);
}

static inline int ring_enter(int fd, unsigned submit, unsigned least, unsigned flags, void *argument, size_t size)
{
    return syscall(SYS_io_uring_enter, fd, submit, least, flags, argument, size);
}

static inline int ring_register(int fd, unsigned command, void *argument, unsigned count)
{
    return syscall(SYS_io_uring_register, fd, command, argument, count);
}

static inline void ring_map(struct ring *ring)
{
    size_t size = ring->params.sq_off.array + ring->params.sq_entries * sizeof(unsigned);
    int access = PROT_READ | PROT_WRITE, flags = MAP_SHARED | MAP_POPULATE;
    ring->memory = mmap(NULL, size, access, flags, ring->fd, IORING_OFF_SQ_RING);
    CHECK(ring->memory != MAP_FAILED);
    ring->sqes = mmap(NULL, ring->params.sq_entries * sizeof(struct io_uring_sqe), access, flags, ring->fd, IORING_OFF_SQES);
    CHECK(ring->sqes != MAP_FAILED);
    for (unsigned i = 0; i < ring->params.sq_entries; i++)
        WORD(ring, sq, array)[i] = i;
}

static inline void ring_new(struct ring *ring, unsigned entries, unsigned flags, unsigned cq_entries)
{
    memset(ring, 0, sizeof *ring);
    ring->params.flags = flags;
    ring->params.cq_entries = cq_entries;
    ring->fd = ring_setup(entries, &ring->params);
    CHECK(ring->fd >= 0);
    ring_map(ring);
}

static inline void ring_free(struct ring *ring)
{
    munmap(ring->memory, ring->params.sq_off.array + ring->params.sq_entries * sizeof(unsigned));
    munmap(ring->sqes, ring->params.sq_entries * sizeof(struct io_uring_sqe));
    close(ring->fd);
}

// The next entry, not yet given to the kernel.
static inline struct io_uring_sqe *ring_entry(struct ring *ring, int opcode, int fd, const void *address, unsigned length, uint64_t offset,
                                              uint64_t data)
{
    struct io_uring_sqe *sqe = &ring->sqes[ring->tail++ & (ring->params.sq_entries - 1)];
    memset(sqe, 0, sizeof *sqe);
    sqe->opcode = opcode;
    sqe->fd = fd;
    sqe->addr = (uintptr_t)address;
    sqe->len = length;
    sqe->off = offset;
    sqe->user_data = data;
    return sqe;
}

// Gives the kernel all entries; how many it took.
static inline int ring_submit(struct ring *ring, unsigned least)
{
    unsigned *tail = WORD(ring, sq, tail);
    unsigned count = ring->tail - *tail;
    __atomic_store_n(tail, ring->tail, __ATOMIC_RELEASE);
    return ring_enter(ring->fd, count, least, least ? IORING_ENTER_GETEVENTS : 0, NULL, 0);
}

// The next completion; 0 where there is none.
static inline int ring_reap(struct ring *ring, struct completion *cqe)
{
    unsigned head = *WORD(ring, cq, head);
    if (head == __atomic_load_n(WORD(ring, cq, tail), __ATOMIC_ACQUIRE))
        return 0;
    *cqe = *(struct completion *)(ring->memory + ring->params.cq_off.cqes +
                                    (head & (ring->params.cq_entries - 1)) * sizeof(struct completion));
    __atomic_store_n(WORD(ring, cq, head), head + 1, __ATOMIC_RELEASE);
    return 1;
}

// Waits for the next completion.
static inline struct completion ring_wait(struct ring *ring)
{
    struct completion cqe;
    while (!ring_reap(ring, &cqe))
        CHECK(ring_enter(ring->fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0) >= 0 || errno == EINTR);
    return cqe;
}

// Submits what there is, which must complete with this result, and nothing else.
static inline int ring_result(struct ring *ring, uint64_t data)
{
    CHECK(ring_submit(ring, 1) >= 0);
    struct completion cqe = ring_wait(ring);
    if (cqe.user_data != data)
        printf("data %llu, not %llu (result %d)\n", (unsigned long long)cqe.user_data, (unsigned long long)data, cqe.res);
    CHECK(cqe.user_data == data);
    return cqe.res;
}
