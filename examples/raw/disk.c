// SPDX-License-Identifier: Apache-2.0 OR MIT
// A tiny fio: writes a disk in one order, reads it back in another, and compares every byte. What a block holds is made of its
// number and of the round that wrote it, so a block that was not written, or went to another place, is found.
//
//     unilith cc -O2 -o disk examples/raw/disk.c
//     truncate -s 64M disk.img
//     unilith run --rm --static --network none --drive disk.img ./disk -- write random 4k
//
// Arguments: write, read or verify (write, flush, then read), sequential or random, the bytes of a block (4k), and how many MiB
// of the disk (all). `read` compares with what an earlier round 1 has written.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unilith/blockdev.h>

static struct unilith_blockdev_info disk;
static char *memory;
static uint32_t block;
static uint64_t blocks;

static int fail(const char *what, int64_t code) {
    fprintf(stderr, "disk: %s: %s\n", what, strerror((int)-code));
    exit(1);
}

// xorshift64*.
static uint64_t next(uint64_t *state) {
    *state ^= *state >> 12, *state ^= *state << 25, *state ^= *state >> 27;
    return *state * 0x2545f4914f6cdd1dULL;
}

static void fill(char *at, uint64_t number) {
    uint64_t state = number * 0x9e3779b97f4a7c15ULL + 1;
    for (uint32_t done = 0; done < block; done += 8) {
        uint64_t word = next(&state);
        memcpy(at + done, &word, 8);
    }
}

static int is_filled(const char *at, uint64_t number) {
    uint64_t state = number * 0x9e3779b97f4a7c15ULL + 1;
    for (uint32_t done = 0; done < block; done += 8) {
        uint64_t word = next(&state);
        if (memcmp(at + done, &word, 8) != 0) return 0;
    }
    return 1;
}

// The n-th block of a round. Random: each block once, in an order that a disk cannot guess (n times an odd number, modulo the
// next power of two, without what lies behind the end).
static uint64_t place(uint64_t *at, int is_random) {
    if (!is_random) return (*at)++;
    uint64_t size = 1;
    while (size < blocks) size *= 2;
    uint64_t number;
    do number = (*at)++ * 0x9e3779b1ULL & (size - 1);
    while (number >= blocks);
    return number;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

// Does all blocks once, as many at a time as the device takes. A tag is the number of the block, and its buffer is the slot's.
static void round_of(uint32_t operation, int is_random) {
    uint32_t depth = disk.queue, free_slots[64], free_count = 0;
    uint64_t number_of[64], done = 0, begun = 0, at = 0;
    struct unilith_block_request requests[64];
    struct unilith_block_completion completions[64];
    unsigned offered = 0;
    if (depth > 64) depth = 64;
    while (free_count < depth) {
        free_slots[free_count] = free_count;
        free_count++;
    }
    double start = now();
    while (done < blocks) {
        while (offered < depth && free_count > 0 && begun < blocks) {
            uint32_t slot = free_slots[--free_count];
            char *buffer = memory + (uint64_t)slot * block;
            uint64_t number = number_of[slot] = place(&at, is_random);
            if (operation == UNILITH_BLOCK_WRITE) fill(buffer, number);
            requests[offered++] = (struct unilith_block_request){
                .buffer = buffer,
                .sector = number * (block / disk.sector_size),
                .sectors = block / disk.sector_size,
                .tag = slot,
                .operation = operation,
            };
            begun++;
        }
        int taken = unilith_blockdev_submit(0, requests, offered);
        if (taken < 0) fail("submit", taken);
        offered -= taken;
        memmove(requests, requests + taken, offered * sizeof *requests);
        int count = unilith_blockdev_poll(0, completions, 64);
        if (count < 0) fail("poll", count);
        if (count == 0) {
            int ready = unilith_blockdev_wait(0, -1);
            if (ready < 0) fail("wait", ready);
        }
        for (int n = 0; n < count; n++) {
            uint32_t slot = completions[n].tag;
            if (completions[n].result < 0) {
                fprintf(stderr, "disk: block %llu: ", (unsigned long long)number_of[slot]);
                fail(operation == UNILITH_BLOCK_WRITE ? "write" : "read", completions[n].result);
            }
            if (operation == UNILITH_BLOCK_READ && !is_filled(memory + (uint64_t)slot * block, number_of[slot])) {
                fprintf(stderr, "disk: block %llu has other bytes than were written\n",
                        (unsigned long long)number_of[slot]);
                exit(1);
            }
            free_slots[free_count++] = slot;
            done++;
        }
    }
    double seconds = now() - start;
    printf("%s: %llu blocks of %u bytes, %s: %.0f a second, %.1f MiB/s\n",
           operation == UNILITH_BLOCK_WRITE ? "written" : "read and compared", (unsigned long long)blocks, block,
           is_random ? "random" : "sequential", blocks / seconds, blocks / seconds * block / (1 << 20));
}

static void flush(void) {
    struct unilith_block_request request = {.operation = UNILITH_BLOCK_FLUSH, .tag = 1};
    struct unilith_block_completion completion;
    int taken = unilith_blockdev_submit(0, &request, 1);
    if (taken < 0) fail("submit", taken);
    int ready = unilith_blockdev_wait(0, -1);
    if (ready < 0) fail("wait", ready);
    int count = unilith_blockdev_poll(0, &completion, 1);
    if (count < 0) fail("poll", count);
    if (count == 1 && completion.result < 0) fail("flush", completion.result);
}

static uint64_t bytes(const char *text) {
    char *end;
    uint64_t value = strtoull(text, &end, 10);
    return *end == 'k' || *end == 'K' ? value << 10 : value;
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "verify";
    const char *order = count > 2 ? words[2] : "sequential";
    int is_random = strcmp(order, "random") == 0;
    if ((strcmp(what, "write") && strcmp(what, "read") && strcmp(what, "verify")) ||
        (!is_random && strcmp(order, "sequential"))) {
        fprintf(stderr, "disk: write|read|verify sequential|random [BLOCK [MIB]]\n");
        return 2;
    }
    int code = unilith_blockdev_open(0, &disk);
    if (code < 0) fail(code == -19 ? "there is no disk; give the machine one with --drive FILE" : "open", code);
    block = count > 3 ? bytes(words[3]) : 4096;
    if (block == 0 || block % disk.sector_size != 0 || block > disk.largest) {
        fprintf(stderr, "disk: a block is %u to %u bytes, in steps of %u\n", disk.sector_size, disk.largest,
                disk.sector_size);
        return 2;
    }
    blocks = disk.sectors * disk.sector_size / block;
    if (count > 4 && blocks > (bytes(words[4]) << 20) / block) blocks = (bytes(words[4]) << 20) / block;
    memory = malloc((uint64_t)64 * block);
    if (memory == NULL) fail("memory", -12);
    if (strcmp(what, "read") != 0) {
        round_of(UNILITH_BLOCK_WRITE, is_random);
        flush();
    }
    if (strcmp(what, "write") != 0) round_of(UNILITH_BLOCK_READ, is_random);
    return 0;
}
