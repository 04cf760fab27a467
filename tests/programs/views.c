// SPDX-License-Identifier: Apache-2.0 OR MIT
// What parent, child and grandchild see after fork under mappings made at random: private and shared, anonymous and of a file,
// mapped over each other, protected, unmapped, moved and advised before the fork and after it, in turns. Prints a line for each
// turn with what was seen; the same seeds print the same on Linux.
//
// `views FIRST COUNT`: seeds.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 48, FILE_PAGES = 20, STEPS = 12, TURNS = 3, FORKS = 4, DEPTH = 2 };
static char *const area = (char *)0x20000000;
// One of them is mapped shared and the other private: whether a private mapping sees what is written to its file later is nobody's
// word (mmap(2)).
static int files[2];
static uint64_t state;
static sigjmp_buf back;

static uint64_t below(uint64_t n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % n;
}

static void fault(int signal)
{
    siglongjmp(back, signal);
}

// A byte of a page as a load finds it, or the signal that it ends in.
static int load(const char *at)
{
    int signal = sigsetjmp(back, 1);
    return signal ? -signal : *(volatile const char *)at & 0xff;
}

static int store(char *at, int byte)
{
    int signal = sigsetjmp(back, 1);
    if (signal)
        return -signal;
    *(volatile char *)at = byte;
    return 0;
}

static uint64_t add(uint64_t digest, int64_t value)
{
    return (digest ^ (uint64_t)value) * 0x100000001b3;
}

// Some changes at random; answers what came of them.
static uint64_t change(void)
{
    static const int RIGHTS[] = {PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE, PROT_READ | PROT_EXEC};
    static const int ADVICE[] = {MADV_DONTNEED, MADV_DONTFORK, MADV_DOFORK, MADV_WIPEONFORK, MADV_KEEPONFORK, MADV_WILLNEED};
    uint64_t digest = 0xcbf29ce484222325;
    for (int step = 0; step < STEPS; step++) {
        uint64_t first = below(PAGES), count = 1 + below(9);
        if (count > PAGES - first)
            count = PAGES - first;
        char *at = area + first * PAGE;
        size_t length = count * PAGE;
        int rights = RIGHTS[below(8) < 5 ? 2 : below(4)];
        int64_t result = 0;
        switch (below(16)) {
        case 0:
        case 1: {
            int kind = below(2) ? MAP_PRIVATE : MAP_SHARED;
            result = mmap(at, length, rights, kind | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at;
            break;
        }
        case 2:
        case 3: {
            int shared = below(2), kind = shared ? MAP_SHARED : MAP_PRIVATE;
            off_t offset = (off_t)below(FILE_PAGES) * PAGE;
            result = mmap(at, length, rights, kind | MAP_FIXED, files[shared], offset) == at;
            break;
        }
        case 4:
            result = munmap(at, length);
            break;
        case 5:
        case 6:
            result = mprotect(at, length, rights);
            break;
        case 7:
            result = madvise(at, length, ADVICE[below(6)]);
            break;
        case 8: {
            // One page, which is of one mapping: of several Linux moves some, depending on its version.
            char *to = area + below(PAGES) * PAGE;
            result = mremap(at, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to;
            break;
        }
        default: {
            int byte = below(256);
            for (uint64_t page = 0; page < count; page++)
                digest = add(digest, store(at + page * PAGE + below(PAGE), byte));
            result = store(at, byte);
        }
        }
        digest = add(digest, result);
    }
    return digest;
}

// What is there: some bytes of each page.
static uint64_t look(void)
{
    static const int PLACES[] = {0, 1, 77, 2048, 4095};
    uint64_t digest = 0xcbf29ce484222325;
    for (int page = 0; page < PAGES; page++)
        for (size_t i = 0; i < sizeof PLACES / sizeof *PLACES; i++)
            digest = add(digest, load(area + page * PAGE + PLACES[i]));
    return digest;
}

static void turn(const char *who, int depth)
{
    uint64_t changed = change();
    printf("%d %s %016llx %016llx\n", depth, who, (unsigned long long)changed, (unsigned long long)look());
    CHECK(fflush(stdout) == 0);
}

static void hand_to(int fd)
{
    CHECK(write(fd, "", 1) == 1);
}

static void await(int fd)
{
    char byte;
    CHECK(read(fd, &byte, 1) == 1);
}

// Forks, and lets both change and look in turns; the child forks as well.
static void split(int depth)
{
    int there[2], back_here[2];
    CHECK(pipe(there) == 0 && pipe(back_here) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        state ^= 0x5bd1e995u * (depth + 1);
    if (child == 0) {
        // Before anything else: the fork alone.
        printf("%d child sees %016llx\n", depth, (unsigned long long)look());
        CHECK(fflush(stdout) == 0);
        hand_to(back_here[1]);
        for (int i = 0; i < TURNS; i++) {
            await(there[0]);
            turn("child", depth);
            if (i == 0 && depth + 1 < DEPTH)
                split(depth + 1);
            hand_to(back_here[1]);
        }
        _exit(0);
    }
    await(back_here[0]);
    for (int i = 0; i < TURNS; i++) {
        turn("parent", depth);
        hand_to(there[1]);
        await(back_here[0]);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    printf("%d parent sees %016llx\n", depth, (unsigned long long)look());
    CHECK(close(there[0]) == 0 && close(there[1]) == 0 && close(back_here[0]) == 0 && close(back_here[1]) == 0);
}

// Files whose bytes say where they are, and nothing mapped.
static void begin(uint64_t seed)
{
    static char bytes[PAGE];
    state = seed * 0x9e3779b97f4a7c15 + 1;
    for (int i = 0; i < 2; i++) {
        CHECK((files[i] = memfd_create("views", 0)) >= 0);
        for (int page = 0; page < FILE_PAGES; page++) {
            memset(bytes, page + 1, sizeof bytes);
            CHECK(write(files[i], bytes, sizeof bytes) == sizeof bytes);
        }
    }
    CHECK(mmap(area, PAGES * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == area);
}

int main(int count, char **words)
{
    CHECK(count == 3);
    struct sigaction action = {.sa_handler = fault};
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0 && sigaction(SIGBUS, &action, NULL) == 0);
    uint64_t first = strtoull(words[1], NULL, 10), seeds = strtoull(words[2], NULL, 10);
    for (uint64_t seed = first; seed < first + seeds; seed++) {
        printf("seed %llu\n", (unsigned long long)seed);
        CHECK(fflush(stdout) == 0);
        begin(seed);
        turn("alone", 0);
        for (int i = 0; i < FORKS; i++)
            split(0);
        CHECK(munmap(area, PAGES * PAGE) == 0 && close(files[0]) == 0 && close(files[1]) == 0);
    }
    printf("all views were seen\n");
    return 0;
}
