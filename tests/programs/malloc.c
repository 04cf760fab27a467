// SPDX-License-Identifier: Apache-2.0 OR MIT
// What malloc(3) and its family promise, whoever provides them; with a word, one misuse that a guard finds.
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { THREADS = 4, LIVE = 200, STEPS = 20000 };

// Sizes and alignments that a compiler must not see through.
static volatile size_t huge = PTRDIFF_MAX, none = 0;

static int is_filled(const unsigned char *block, unsigned char value, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (block[i] != value)
            return 0;
    return 1;
}

static void sizes(void)
{
    for (size_t size = 0; size < 5000; size += 7) {
        unsigned char *block = malloc(size);
        CHECK(block && (uintptr_t)block % 16 == 0 && malloc_usable_size(block) >= size);
        memset(block, 1, size);
        unsigned char *zeros = calloc(size, 3);
        CHECK(zeros && is_filled(zeros, 0, 3 * size));
        memset(zeros, 2, 3 * size);
        CHECK(is_filled(block, 1, size));
        free(zeros);
        free(block);
    }
    // Freed blocks were written to; what calloc gives is zeros all the same.
    for (int i = 0; i < 200; i++) {
        unsigned char *zeros = calloc(1, 1000 * i);
        CHECK(zeros && is_filled(zeros, 0, 1000 * i));
        memset(zeros, 0xff, 1000 * i);
        free(zeros);
    }
    void *first = malloc(none), *second = malloc(none);
    CHECK(first && second && first != second);
    free(first);
    free(second);
    errno = 5;
    free(malloc(1 << 20));
    free(NULL);
    CHECK(errno == 5 && malloc_usable_size(NULL) == 0);
}

static void refusals(void)
{
    errno = 0;
    CHECK(!malloc(huge) && errno == ENOMEM);
    errno = 0;
    CHECK(!malloc(2 * huge + 1) && errno == ENOMEM);
    errno = 0;
    CHECK(!calloc(huge, 4) && errno == ENOMEM);
    char *block = malloc(100);
    memset(block, 9, 100);
    errno = 0;
    CHECK(!realloc(block, huge) && errno == ENOMEM);
    errno = 0;
    CHECK(!reallocarray(block, huge / 2, 16) && errno == ENOMEM);
    CHECK(is_filled((unsigned char *)block, 9, 100));
    free(block);
    void *place = &place;
    CHECK(posix_memalign(&place, 24, 100) == EINVAL && posix_memalign(&place, 2, 100) == EINVAL);
    CHECK(posix_memalign(&place, 64, huge) == ENOMEM && place == &place);
    errno = 0;
    CHECK(!aligned_alloc(64, huge) && errno == ENOMEM);
}

static void alignments(void)
{
    void *all[24];
    int count = 0;
    for (size_t align = sizeof(void *); align <= 1 << 22; align *= 2) {
        void *block;
        CHECK(posix_memalign(&block, align, 100) == 0 && (uintptr_t)block % align == 0);
        memset(block, count, 100);
        void *other = memalign(align, 5000);
        CHECK(other && (uintptr_t)other % align == 0);
        memset(other, 1, 5000);
        block = realloc(block, 3000);
        CHECK(block && is_filled(block, count, 100));
        all[count++] = block;
        free(other);
        other = aligned_alloc(align, 2 * align);
        CHECK(other && (uintptr_t)other % align == 0 && malloc_usable_size(other) >= 2 * align);
        memset(other, 1, 2 * align);
        free(other);
    }
    while (count-- > 0) {
        CHECK(is_filled(all[count], count, 100));
        free(all[count]);
    }
    void *page = valloc(10);
    CHECK(page && (uintptr_t)page % 4096 == 0);
    free(page);
}

static void changes_of_size(void)
{
    unsigned char *block = NULL;
    for (size_t size = 1; size < 8 << 20; size += size / 2 + 1) {
        block = reallocarray(block, size, 1);
        CHECK(block && is_filled(block, 7, size / 2 - size / 6));
        memset(block, 7, size);
    }
    for (size_t size = 4 << 20; size > 0; size -= size / 3 + 1) {
        block = realloc(block, size);
        CHECK(block && is_filled(block, 7, size));
    }
    free(block);
}

struct piece {
    size_t size;
    unsigned char fill, bytes[];
};

static struct piece *shared[LIVE];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *traffic(void *seed)
{
    unsigned state = (uintptr_t)seed;
    for (int step = 0; step < STEPS; step++) {
        size_t size = sizeof(struct piece) + rand_r(&state) % (step % 100 ? 500 : 300000);
        struct piece *piece = malloc(size);
        CHECK(piece);
        piece->size = size - sizeof *piece;
        piece->fill = step;
        memset(piece->bytes, piece->fill, piece->size);
        if (step % 5 == 0) {
            piece = realloc(piece, size + 100);
            CHECK(piece);
        }
        // Another thread frees it.
        pthread_mutex_lock(&lock);
        unsigned index = rand_r(&state) % LIVE;
        struct piece *other = shared[index];
        shared[index] = piece;
        pthread_mutex_unlock(&lock);
        if (other)
            CHECK(is_filled(other->bytes, other->fill, other->size));
        free(other);
    }
    return NULL;
}

static void threads_and_forks(void)
{
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, traffic, (void *)(i + 1)) == 0);
    // Each child allocates, whatever the other threads did at the moment of its fork.
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(60);
            void *block = NULL;
            for (int j = 0; j < 300; j++) {
                block = realloc(block, 100 + 97 * j);
                free(malloc(100 + j));
                if (!block)
                    _exit(1);
            }
            free(block);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    for (int i = 0; i < LIVE; i++)
        free(shared[i]);
}

// Bytes of this process' address space.
static size_t address_space(void)
{
    size_t pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%zu", &pages) == 1 && fclose(file) == 0);
    return pages * 4096;
}

// A process may have only so much address space: the answer is NULL, and what was there stays.
static void the_end_of_memory(void)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        size_t most = address_space() + (32 << 20);
        struct rlimit limit = {most, most};
        CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
        void **list = NULL;
        int count = 0;
        errno = 0;
        for (void **block; (block = malloc(10000)); list = block, count++)
            *block = list;
        CHECK(errno == ENOMEM && count > 1000);
        for (void **next; list; list = next) {
            next = *list;
            free(list);
        }
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static int misuse(const char *how)
{
    volatile char *volatile block = malloc(40);
    void *volatile other = malloc(40);
    if (strcmp(how, "overflow") == 0) {
        block[40] = 1;
        free((void *)block);
    } else if (strcmp(how, "underflow") == 0) {
        block[-1] = 1;
        free((void *)block);
    } else if (strcmp(how, "twice") == 0) {
        free((void *)block);
        free((void *)block);
    } else if (strcmp(how, "late") == 0) {
        free((void *)block);
        block[20] = 1;
    } else if (strcmp(how, "wild") == 0) {
        free((void *)(block + 16));
    } else if (strcmp(how, "grown") == 0) {
        block[41] = 1;
        block = realloc((void *)block, 4000);
    }
    free(other);
    puts("nobody noticed");
    return 0;
}

int main(int count, char **words)
{
    if (count > 1)
        return misuse(words[1]);
    sizes();
    refusals();
    alignments();
    changes_of_size();
    threads_and_forks();
    the_end_of_memory();
    printf("a block for one byte has %zu\n", malloc_usable_size(malloc(1)));
    puts("memory is as it should be");
    return 0;
}
