// SPDX-License-Identifier: Apache-2.0 OR MIT
// Reads and writes of a file of a volume (the argument) with buffers of all kinds: large ones go to and from the program's
// memory without a copy, and nobody may see a difference.
#define _GNU_SOURCE
#include "check.h"
#include "one_descriptor.h"
#include <sys/mman.h>
#include <sys/uio.h>

enum { PAGE = 4096, SIZE = 3 << 20, GUARD = 64 };

static unsigned char pattern(size_t at) { return at * 7 + (at >> 8) * 13 + (at >> 16) * 5; }

static unsigned char *pages(size_t size, int flags) {
    unsigned char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | flags, -1, 0);
    CHECK(memory != MAP_FAILED);
    return memory;
}

// What was read is there, and nothing beside it was touched.
static void holds(const unsigned char *buffer, size_t length, size_t from) {
    for (size_t i = 0; i < length; i++) CHECK(buffer[i] == pattern(from + i));
    for (int i = 1; i <= GUARD; i++) CHECK(buffer[-i] == 0xee && buffer[length + i - 1] == 0xee);
}

static void sizes(int fd, unsigned char *memory) {
    static const size_t all[] = {1, 4095, 8191, 8192, 8193, 65536, 131072, 131073, 487424, 491520, 491521, 1048576, 2000003};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        for (size_t shift = 0; shift < 5000; shift += 1663) {
            size_t length = all[i], at = 3 * i + shift;
            unsigned char *buffer = memory + PAGE + shift;
            for (size_t n = 0; n < length; n++) buffer[n] = pattern(at + n);
            CHECK(pwrite(fd, buffer, length, at) == (ssize_t)length);
            memset(buffer - GUARD, 0xee, length + 2 * GUARD);
            CHECK(pread(fd, buffer, length, at) == (ssize_t)length);
            holds(buffer, length, at);
        }
    }
}

int main(int count, char **words) {
    CHECK(count == 2);
    write_through_one_descriptor(words[1], 500);
    int fd = open(words[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0);
    sizes(fd, pages(SIZE, MAP_PRIVATE));
    // Memory that is shared, and that was never touched.
    sizes(fd, pages(SIZE, MAP_SHARED));
    unsigned char *fresh = pages(SIZE, MAP_PRIVATE);
    CHECK(ftruncate(fd, 0) == 0 && pwrite(fd, fresh, 1 << 20, 0) == 1 << 20);
    for (int i = 0; i < 1 << 20; i++) CHECK(fresh[i] == 0);
    for (int i = 0; i < 1 << 20; i++) fresh[i] = pattern(i);
    CHECK(pwrite(fd, fresh, 1 << 20, 0) == 1 << 20);
    // The end of the file cuts a read short, and what is behind it stays.
    unsigned char *buffer = pages(SIZE, MAP_PRIVATE) + PAGE;
    memset(buffer - GUARD, 0xee, 1 << 20);
    CHECK(pread(fd, buffer, 1 << 19, (1 << 20) - 100001) == 100001);
    holds(buffer, 100001, (1 << 20) - 100001);
    CHECK(pread(fd, buffer, 1 << 19, 1 << 20) == 0);
    // So does the end of the memory, or its rights.
    unsigned char *edge = pages(32 * PAGE, MAP_PRIVATE);
    CHECK(munmap(edge + 16 * PAGE, 16 * PAGE) == 0);
    CHECK(pread(fd, edge + 100, 20 * PAGE, 0) == 16 * PAGE - 100);
    CHECK(pwrite(fd, edge + 100, 20 * PAGE, 0) == 16 * PAGE - 100);
    for (int i = 0; i < 16 * PAGE - 100; i++) CHECK(edge[100 + i] == pattern(i));
    CHECK(mprotect(edge, 16 * PAGE, PROT_READ) == 0);
    CHECK(pread(fd, edge, 16 * PAGE, 0) == -1 && errno == EFAULT);
    CHECK(pwrite(fd, edge + 100, 16 * PAGE - 100, 0) == 16 * PAGE - 100);
    // A page of a file that others see as well.
    unsigned char *shared = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 64 * PAGE);
    // Linux' 9p without a cache has none.
    if (shared == MAP_FAILED) {
        CHECK(pread(fd, buffer, 16 * PAGE, 0) == 16 * PAGE);
    } else {
        CHECK(pread(fd, shared, 16 * PAGE, 0) == 16 * PAGE);
        CHECK(msync(shared, 16 * PAGE, MS_SYNC) == 0 && munmap(shared, 16 * PAGE) == 0);
        CHECK(pread(fd, buffer, 16 * PAGE, 64 * PAGE) == 16 * PAGE);
    }
    for (int i = 0; i < 16 * PAGE; i++) CHECK(buffer[i] == pattern(i));
    // Pieces, of which some are large enough and some are not.
    struct iovec pieces[] = {{fresh, 10}, {buffer, 40000}, {fresh + 20, 0}, {fresh + 5000, 9000}, {buffer + 50001, 300}};
    CHECK(preadv(fd, pieces, 5, 4096) == 49310);
    CHECK(fresh[9] == pattern(4105) && buffer[0] == pattern(4106) && buffer[39999] == pattern(44105));
    CHECK(fresh[5000] == pattern(44106) && fresh[13999] == pattern(53105) && buffer[50300] == pattern(53405));
    CHECK(fresh[10] == pattern(10) && fresh[14000] == pattern(14000));
    CHECK(pwritev(fd, pieces, 5, 1 << 20) == 49310);
    CHECK(pread(fd, fresh, 49310, 1 << 20) == 49310);
    for (int i = 0; i < 49310; i++) CHECK(fresh[i] == pattern(4096 + i));
    puts("volume: all is there");
    return 0;
}
