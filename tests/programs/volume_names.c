// SPDX-License-Identifier: Apache-2.0 OR MIT
// Files in a directory (the argument), a volume, that have lost their name while they are open: what is done to them is done to no other
// file that has the name since.
#define _GNU_SOURCE
#include "check.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int makes(const char *name, const char *text) {
    int file = open(name, O_RDWR | O_CREAT | O_EXCL, 0644);
    CHECK(file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text));
    return file;
}

static void holds(int file, const char *text, off_t size) {
    char bytes[64] = "";
    struct stat stat;
    CHECK(fstat(file, &stat) == 0 && stat.st_size == size);
    ssize_t length = pread(file, bytes, sizeof bytes, 0);
    CHECK(length == size && !memcmp(bytes, text, (size_t)size));
}

static int mode_of(int file) {
    struct stat stat;
    CHECK(fstat(file, &stat) == 0);
    return stat.st_mode & 07777;
}

int main(int count, char **arguments) {
    CHECK(count == 2 && chdir(arguments[1]) == 0);
    int old = makes("file", "the old one");
    CHECK(unlink("file") == 0);
    int new = makes("file", "precious");
    CHECK(ftruncate(old, 3) == 0 && fchmod(old, 0600) == 0);
    holds(new, "precious", 8);
    holds(old, "the", 3);
    CHECK(mode_of(new) == 0644 && mode_of(old) == 0600);
    CHECK(ftruncate(old, 5) == 0 && pwrite(old, "!", 1, 6) == 1);
    holds(old, "the\0\0\0!", 7);

    // As programs replace a file that another one has open.
    int other = makes("other", "newer");
    CHECK(rename("other", "file") == 0);
    CHECK(ftruncate(new, 4) == 0 && fchmod(new, 0640) == 0);
    holds(new, "prec", 4);
    holds(other, "newer", 5);
    CHECK(mode_of(other) == 0644);

    // What a name leads to now is one matter, what is open another.
    CHECK(unlink("file") == 0 && mkdir("file", 0755) == 0 && ftruncate(other, 2) == 0);
    holds(other, "ne", 2);
    CHECK(chdir("file") == 0 && rmdir("../file") == 0 && mkdir("../file", 0755) == 0);
    CHECK(open("inside", O_WRONLY | O_CREAT, 0644) < 0 && errno == ENOENT);
    struct stat stat;
    int gone = open(".", O_PATH);
    CHECK(gone >= 0 && fstat(gone, &stat) == 0 && S_ISDIR(stat.st_mode) && stat.st_nlink == 0 && fchdir(gone) == 0);
    puts("each is itself");
    return 0;
}
