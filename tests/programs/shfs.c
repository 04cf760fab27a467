// SPDX-License-Identifier: Apache-2.0 OR MIT
// What unilith/shfs.h promises. The image on disk 0 has the file `css/site.css` of 10,000 bytes, byte n of which is n modulo
// 251, and an empty one.
#include "check.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unilith/blockdev.h>
#include <unilith/shfs.h>

static struct unilith_shfs_file file;

static int is_file(const unsigned char *at, uint64_t offset, size_t length) {
    for (size_t n = 0; n < length; n++)
        if (at[n] != (offset + n) % 251) return 0;
    return 1;
}

// Every offset in turn, of another length each time.
static void *reader(void *start) {
    static _Thread_local unsigned char bytes[10100];
    for (uint64_t offset = (uintptr_t)start; offset < 10100; offset += 127) {
        size_t length = offset * 31 % 9000, rest = offset < 10000 ? 10000 - offset : 0;
        memset(bytes, 0xee, sizeof bytes);
        int got = unilith_shfs_read(file.number, offset, bytes + 77, length);
        CHECK(got == (int)(length < rest ? length : rest) && is_file(bytes + 77, offset, (size_t)got));
        CHECK(bytes[76] == 0xee && bytes[77 + got] == 0xee);
    }
    return NULL;
}

int main(void) {
    static unsigned char bytes[16384];
    struct unilith_shfs_file empty;
    struct unilith_blockdev_info info;
    char name[UNILITH_SHFS_NAME + 2];
    CHECK(unilith_shfs_open("css/site.css", 12, &file) == -ENODEV);
    CHECK(unilith_shfs_read(0, 0, bytes, 1) == -ENODEV);
    CHECK(unilith_shfs_mount(9) == -ENODEV);
    CHECK(unilith_shfs_mount(0) == 2);
    CHECK(unilith_shfs_mount(0) == -EBUSY && unilith_blockdev_open(0, &info) == -EBUSY);

    CHECK(unilith_shfs_open("css/site.css", 12, &file) == 0 && file.size == 10000 && file.reserved == 0);
    CHECK(unilith_shfs_open("empty", 5, &empty) == 0 && empty.size == 0 && empty.number != file.number);
    CHECK(empty.digest[0] == 0xe3 && empty.digest[31] == 0x55);
    CHECK(unilith_shfs_open("css/site.css", 11, &empty) == -ENOENT && unilith_shfs_open("", 0, &empty) == -ENOENT);
    CHECK(unilith_shfs_open("/css/site.css", 13, &empty) == -ENOENT);
    memset(name, 'x', sizeof name);
    CHECK(unilith_shfs_open(name, UNILITH_SHFS_NAME, &empty) == -ENOENT);
    CHECK(unilith_shfs_open(name, sizeof name, &empty) == -ENOENT);
    CHECK(unilith_shfs_open(name, (size_t)-1, &empty) == -ENOENT);
    CHECK(unilith_shfs_open((char *)8, 5, &empty) == -EFAULT);
    CHECK(unilith_shfs_open("empty", 5, (struct unilith_shfs_file *)8) == -EFAULT);

    CHECK(unilith_shfs_read(file.number, 0, bytes, sizeof bytes) == 10000 && is_file(bytes, 0, 10000));
    CHECK(unilith_shfs_read(file.number, 10000, bytes, 1) == 0 && unilith_shfs_read(file.number, UINT64_MAX, bytes, 1) == 0);
    CHECK(unilith_shfs_read(file.number, 9999, bytes, (size_t)-1) == 1 && bytes[0] == 9999 % 251);
    CHECK(unilith_shfs_read(empty.number, 0, bytes, 1) == 0 && unilith_shfs_read(file.number, 0, bytes, 0) == 0);
    CHECK(unilith_shfs_read(UINT32_MAX, 0, bytes, 1) == -EINVAL && unilith_shfs_read(0x7fffffff, 0, bytes, 1) == -EINVAL);
    CHECK(unilith_shfs_read(file.number, 0, (void *)8, 512) == -EFAULT);
    // As far as the memory goes.
    char *two = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(two != MAP_FAILED && munmap(two + 4096, 4096) == 0);
    int part = unilith_shfs_read(file.number, 0, two, 8192);
    CHECK(part > 0 && part <= 4096 && is_file((unsigned char *)two, 0, (size_t)part));

    pthread_t threads[4];
    for (uintptr_t n = 0; n < 4; n++)
        CHECK(pthread_create(&threads[n], NULL, reader, (void *)n) == 0);
    for (int n = 0; n < 4; n++)
        CHECK(pthread_join(threads[n], NULL) == 0);
    puts("all of it");
    return 0;
}
