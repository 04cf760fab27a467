/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Disks for programs that are linked with the micro kernel: requests in an asynchronous queue, without a file system, without
 * copies.
 *
 * Compile with `unilith cc`, run with `unilith run --static --drive FILE`. The same file started on Linux, or without
 * --static, ends at its start with a sentence that says so: these functions are the kernel's.
 *
 * Functions answer a negative error number (of Linux) when they fail. None waits for the device, but for
 * unilith_blockdev_wait. Any thread may call them.
 */
#ifndef UNILITH_BLOCKDEV_H
#define UNILITH_BLOCKDEV_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Devices ---------------------------------------------------------------------------------------------- */

/*
 * What the program is told of a device.
 *
 * sectors: its capacity; sector_size: bytes of a sector: 512, or 4,096 of some NVMe disks. largest: bytes of one request at most.
 * queue: requests that the device has at most at a time; it may take fewer where they are large and their memory is in pieces.
 * flags: UNILITH_BLOCKDEV_READ_ONLY.
 */
struct unilith_blockdev_info {
    uint64_t sectors;
    uint32_t sector_size;
    uint32_t largest;
    uint32_t queue;
    uint32_t flags;
};

/* In flags: the device takes no writes (`--drive FILE:ro`). */
#define UNILITH_BLOCKDEV_READ_ONLY 1

/*
 * The disks of the machine: as many as its --drive. They are numbered from 0, in that order. On a computer that boots from a
 * disk of `unilith build --disk`: virtio's disks, then those of NVMe. The one that it has booted from is among them.
 */
int unilith_blockdev_count(void);

/*
 * Takes a device for the program, until the machine ends, and tells of it.
 * 0, or -ENODEV: there is no such device; -EBUSY: it is open already; -ENOMEM; -EFAULT: info cannot be written.
 */
int unilith_blockdev_open(unsigned device, struct unilith_blockdev_info *info);

/* ---- Requests --------------------------------------------------------------------------------------------- */

/* Operations. A flush completes when all that was completed before it was submitted is on stable storage. */
#define UNILITH_BLOCK_READ 0
#define UNILITH_BLOCK_WRITE 1
#define UNILITH_BLOCK_FLUSH 2

/*
 * What a device is asked for.
 *
 * buffer: where the bytes go or come from, at any address: memory of the program's own, not of a file that it has mapped. The
 * device reads and writes it itself, until the completion was taken. A program that touches it meanwhile, or forks, gets a mixture; one
 * that unmaps it harms nobody.
 * sector: the first one; sectors: how many. A flush has 0 of them and no buffer.
 * tag: the program's name for the request, any number; it comes back with the completion.
 */
struct unilith_block_request {
    void *buffer;
    uint64_t sector;
    uint64_t tag;
    uint32_t sectors;
    uint32_t operation;
};

/*
 * A request that is done. result: 0, or a negative error number: -EIO: the device could not do it, and what is in the
 * sectors, or in the buffer of a read, is unknown.
 */
struct unilith_block_completion {
    uint64_t tag;
    int32_t result;
    uint32_t reserved;
};

/* The most requests or completions that one call takes or gives. */
#define UNILITH_BLOCK_BURST 64

/*
 * Gives requests to the device; how many were taken from the front, 0 when its queue is full: take completions and offer the
 * others again. Those in the queue together are done in any order.
 * -EINVAL: the first request is no operation, has no sectors or more than the largest request, or is not within the device;
 * -EROFS: it writes to a device that is read-only; -EFAULT: its buffer is no memory of the program's. With such a request
 * behind others, those are taken. -EBADF here and below: the device is not open.
 */
int unilith_blockdev_submit(unsigned device, const struct unilith_block_request *requests, unsigned count);

/* Takes up to count completions; how many, 0 when no request is done. -EFAULT: they cannot be written, and are kept. */
int unilith_blockdev_poll(unsigned device, struct unilith_block_completion *completions, unsigned count);

/*
 * Sleeps until a request is done: 1, or 0 when timeout_ns nanoseconds have passed or the device has no request, or -EINTR after
 * a signal. A negative timeout_ns: however long it takes. A program that calls unilith_blockdev_poll again and again learns
 * of a completion soonest, and takes a whole processor.
 */
int unilith_blockdev_wait(unsigned device, int64_t timeout_ns);

#ifdef __cplusplus
}
#endif

#endif /* UNILITH_BLOCKDEV_H */
