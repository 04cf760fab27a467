// SPDX-License-Identifier: Apache-2.0 OR MIT
// What unilith/blockdev.h promises. Disk 0 has 2,048 sectors and is written to, disk 1 has 8 and is read only. `full`: the
// host has no room for all of disk 0, and the device says so. `hold`: keeps disk 0.
#include "check.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unilith/blockdev.h>
#include <unistd.h>

typedef struct unilith_block_request request;
typedef struct unilith_block_completion completion;

static char *page(void) {
    char *at = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    return at;
}

// The result of one request.
static int done(unsigned device, request one) {
    completion answer;
    CHECK(unilith_blockdev_submit(device, &one, 1) == 1);
    CHECK(unilith_blockdev_wait(device, -1) == 1);
    CHECK(unilith_blockdev_poll(device, &answer, 1) == 1 && answer.tag == one.tag);
    return answer.result;
}

static int refused(unsigned device, request one) { return unilith_blockdev_submit(device, &one, 1); }

static request of(void *buffer, uint64_t sector, uint32_t sectors, uint32_t operation) {
    return (request){ buffer, sector, sector * 3 + operation, sectors, operation };
}

enum { READ = UNILITH_BLOCK_READ, WRITE = UNILITH_BLOCK_WRITE, FLUSH = UNILITH_BLOCK_FLUSH };

int main(int count, char **words) {
    struct unilith_blockdev_info info, second;
    completion answers[64];
    char *buffer = page();
    CHECK(unilith_blockdev_count() >= 1);
    CHECK(unilith_blockdev_poll(0, answers, 1) == -EBADF && unilith_blockdev_wait(0, 0) == -EBADF);
    CHECK(refused(0, of(buffer, 0, 1, READ)) == -EBADF);
    CHECK(unilith_blockdev_open(99, &info) == -ENODEV);
    CHECK(unilith_blockdev_open(0, (struct unilith_blockdev_info *)8) == -EFAULT);
    CHECK(unilith_blockdev_open(0, &info) == 0);
    CHECK(unilith_blockdev_open(0, &second) == -EBUSY);
    if (count > 1 && strcmp(words[1], "hold") == 0) {
        pause();
        return 0;
    }
    if (count > 1) {
        int failed = 0, good = 0;
        memset(buffer, 'x', 8192);
        for (uint64_t sector = 0; sector < info.sectors; sector += 16) {
            int result = done(0, of(buffer, sector, 16, WRITE));
            CHECK(result == 0 || result == -EIO);
            *(result == 0 ? &good : &failed) += 1;
        }
        // The device goes on after an error.
        CHECK(done(0, of(buffer, 0, 1, READ)) == 0);
        printf("%s, %s\n", good > 0 ? "some done" : "none done", failed > 0 ? "some failed" : "none failed");
        return 0;
    }
    CHECK(info.sectors == 2048 && info.sector_size == 512 && info.flags == 0);
    CHECK(info.largest >= 4096 && info.largest % 512 == 0 && info.queue >= 1 && info.queue <= 64);
    CHECK(unilith_blockdev_open(1, &second) == 0);
    CHECK(second.sectors == 8 && second.flags == UNILITH_BLOCKDEV_READ_ONLY);

    // Any address, first and last sector, and what is beside them stays.
    memset(buffer, 'a', 8192);
    CHECK(done(0, of(buffer, 2047, 1, WRITE)) == 0);
    memset(buffer, 'b', 8192);
    CHECK(done(0, of(buffer + 4096 - 301, 2045, 2, WRITE)) == 0);
    memset(buffer, 0, 8192);
    CHECK(done(0, of(buffer + 4096 - 13, 2045, 3, READ)) == 0);
    CHECK(buffer[4096 - 14] == 0 && buffer[4096 - 13 + 1536] == 0);
    for (int i = 0; i < 1536; i++)
        CHECK(buffer[4096 - 13 + i] == (i < 1024 ? 'b' : 'a'));
    CHECK(done(0, of(0, 0, 0, FLUSH)) == 0);

    // The largest request, in memory that nobody has touched.
    char *large = mmap(0, info.largest + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(large != MAP_FAILED);
    CHECK(done(0, of(large + 100, 0, info.largest / 512, WRITE)) == 0);
    memset(large, 1, info.largest);
    CHECK(done(0, of(large + 100, 0, info.largest / 512, READ)) == 0);
    for (uint32_t i = 0; i < info.largest; i++)
        CHECK(large[100 + i] == 0);

    // What is no request.
    CHECK(refused(0, of(buffer, 2048, 1, READ)) == -EINVAL && refused(0, of(buffer, 2047, 2, WRITE)) == -EINVAL);
    CHECK(refused(0, of(buffer, UINT64_MAX, 1, READ)) == -EINVAL && refused(0, of(buffer, 0, 0, READ)) == -EINVAL);
    CHECK(refused(0, of(buffer, 0, info.largest / 512 + 1, READ)) == -EINVAL);
    CHECK(refused(0, of(buffer, 0, UINT32_MAX, WRITE)) == -EINVAL && refused(0, of(0, 0, 1, FLUSH)) == -EINVAL);
    CHECK(refused(0, of(buffer, 0, 1, 3)) == -EINVAL);
    CHECK(refused(1, of(buffer, 0, 1, WRITE)) == -EROFS && refused(1, of(0, 0, 0, FLUSH)) == -EROFS);
    CHECK(done(1, of(buffer, 7, 1, READ)) == 0 && memcmp(buffer, "last sector", 11) == 0);
    CHECK(refused(0, of((void *)8, 0, 1, READ)) == -EFAULT && refused(0, of((void *)-512, 0, 1, WRITE)) == -EFAULT);
    CHECK(refused(0, of(buffer + 8192 - 511, 0, 1, READ)) == -EFAULT);
    CHECK(refused(0, of((void *)main, 0, 1, READ)) == -EFAULT);
    CHECK(unilith_blockdev_submit(0, (request *)8, 1) == -EFAULT);
    char *constant = page();
    CHECK(mprotect(constant, 8192, PROT_READ) == 0);
    CHECK(refused(0, of(constant, 0, 1, READ)) == -EFAULT && done(0, of(constant, 0, 1, WRITE)) == 0);

    // Those in front of a bad one are taken.
    request some[3] = { of(buffer, 0, 1, READ), of(buffer, 1, 1, READ), of(buffer, 9999, 1, READ) };
    CHECK(unilith_blockdev_submit(0, some, 3) == 2);
    int came = 0;
    while (came < 2) {
        CHECK(unilith_blockdev_wait(0, -1) == 1);
        // They are kept when they cannot be written.
        CHECK(unilith_blockdev_poll(0, (completion *)8, 64) == -EFAULT);
        int got = unilith_blockdev_poll(0, answers + came, 64);
        CHECK(got > 0);
        came += got;
    }
    CHECK(came == 2 && answers[0].tag + answers[1].tag == 3 && answers[0].result == 0 && answers[1].result == 0);

    // A full queue takes no more, and all of it is answered; memory that was unmapped meanwhile harms nobody.
    unsigned in_flight = 0;
    for (;;) {
        request burst[UNILITH_BLOCK_BURST];
        char *memory = mmap(0, 64 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(memory != MAP_FAILED);
        for (int i = 0; i < 64; i++) {
            burst[i] = of(memory + i * 4096, (uint64_t)i * 8, 8, READ);
            burst[i].tag = in_flight + (unsigned)i;
        }
        int taken = unilith_blockdev_submit(0, burst, 64);
        CHECK(taken >= 0 && munmap(memory, 64 * 4096) == 0);
        in_flight += (unsigned)taken;
        if (taken == 0) break;
        CHECK(in_flight <= info.queue);
    }
    CHECK(in_flight >= 1);
    static char seen[256];
    for (unsigned left = in_flight; left > 0;) {
        CHECK(unilith_blockdev_wait(0, -1) == 1);
        int got = unilith_blockdev_poll(0, answers, 64);
        CHECK(got > 0 && (unsigned)got <= left);
        for (int i = 0; i < got; i++)
            CHECK(answers[i].tag < in_flight && answers[i].result == 0 && seen[answers[i].tag]++ == 0);
        left -= (unsigned)got;
    }

    // Nobody waits for nothing.
    CHECK(unilith_blockdev_wait(0, -1) == 0 && unilith_blockdev_poll(0, answers, 64) == 0);
    puts("all of it");
    return 0;
}
