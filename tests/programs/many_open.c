// SPDX-License-Identifier: Apache-2.0 OR MIT
// Many files of a directory open at a time, read and written in all ways: each has what was written to it, whoever wrote it and by
// whatever way. Passes on Linux, too.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 1500, LARGE = 300000 };

static void must(int holds, const char *what, int number) {
    if (!holds) {
        printf("%s: file %d: %s\n", what, number, strerror(errno));
        exit(1);
    }
}

static char *fill(char *buffer, size_t length, int number) {
    for (size_t i = 0; i < length; i++) buffer[i] = (char)(number * 31 + i * 7 + i / 4096);
    return buffer;
}

static size_t length_of(int number) { return number % 50 == 0 ? LARGE + number : 10 + number % 5000; }

static void check(int fd, int number, const char *how) {
    static char wanted[LARGE + MOST], found[LARGE + MOST + 1];
    size_t length = length_of(number);
    fill(wanted, length, number);
    must(pread(fd, found, sizeof found, 0) == (ssize_t)length, how, number);
    must(memcmp(wanted, found, length) == 0, how, number);
    // In two pieces that lie anywhere.
    struct iovec parts[2] = {{found, 3}, {found + 3, length}};
    must(preadv(fd, parts, 2, length / 2) == (ssize_t)(length - length / 2), how, number);
    must(memcmp(wanted + length / 2, found, length - length / 2) == 0, how, number);
}

int main(int count, char **words) {
    must(count == 2 && chdir(words[1]) == 0, "the directory", 0);
    struct rlimit limit = {MOST + 50, MOST + 50};
    setrlimit(RLIMIT_NOFILE, &limit);
    static int fds[MOST];
    static char buffer[LARGE + MOST];
    char name[32];
    int open_files = 0;
    for (; open_files < MOST; open_files++) {
        sprintf(name, "file%d", open_files);
        int fd = fds[open_files] = open(name, O_RDWR | O_CREAT | O_EXCL, 0644);
        if (fd < 0 && (errno == ENFILE || errno == EMFILE) && open_files >= 300) {
            // As many as this host lets a program have; below some are opened once more.
            for (int spare = 0; spare < 10; spare++) close(fds[--open_files]);
            break;
        }
        must(fd >= 0, "open", open_files);
        size_t length = length_of(open_files), half = length / 2;
        fill(buffer, length, open_files);
        must(pwrite(fd, buffer + half, length - half, half) == (ssize_t)(length - half), "pwrite", open_files);
        must(write(fd, buffer, half) == (ssize_t)half, "write", open_files);
    }
    for (int i = 0; i < open_files; i++) check(fds[i], i, "read");
    // Another process has the same descriptors.
    pid_t child = fork();
    if (child == 0) {
        for (int i = open_files - 1; i >= 0; i--) check(fds[i], i, "read by a child");
        must(pwrite(fds[7], "child", 5, 0) == 5, "written by a child", 7);
        exit(0);
    }
    int status;
    must(waitpid(child, &status, 0) == child && status == 0, "the child", 0);
    must(pread(fds[7], buffer, 5, 0) == 5 && memcmp(buffer, "child", 5) == 0, "seen of a child", 7);
    must(pwrite(fds[7], fill(buffer, 5, 7), 5, 0) == 5, "pwrite", 7);
    // Mappings and calls see the same bytes.
    char *shared = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_SHARED, fds[50], 0);
    must(shared != MAP_FAILED, "mmap", 50);
    memcpy(shared + 100000, "mapped", 6);
    must(pread(fds[50], buffer, 6, 100000) == 6 && memcmp(buffer, "mapped", 6) == 0, "read what was mapped", 50);
    must(pwrite(fds[50], "called", 6, 200000) == 6 && memcmp(shared + 200000, "called", 6) == 0, "map what was written", 50);
    int second = open("file50", O_RDONLY);
    must(pread(second, buffer, 6, 200000) == 6 && memcmp(buffer, "called", 6) == 0, "by another descriptor", 50);
    must(pwrite(second, "x", 1, 0) < 0 && errno == EBADF, "written by a descriptor for reading", 50);
    fill(buffer, length_of(50), 50);
    memcpy(shared + 100000, buffer + 100000, 6);
    memcpy(shared + 200000, buffer + 200000, 6);
    must(msync(shared, LARGE, MS_SYNC) == 0 && munmap(shared, LARGE) == 0, "msync", 50);
    check(second, 50, "read again");
    // A file that becomes shorter and longer, one that is appended to, and one that has no name any more.
    must(ftruncate(fds[100], 5000) == 0 && pread(fds[100], buffer, LARGE, 0) == 5000, "shorter", 100);
    must(ftruncate(fds[100], 9000) == 0 && pread(fds[100], buffer, LARGE, 0) == 9000 && buffer[5000] == 0, "longer", 100);
    int end = open("file8", O_WRONLY | O_APPEND);
    must(write(end, "end", 3) == 3 && pread(fds[8], buffer, 3, length_of(8)) == 3 && memcmp(buffer, "end", 3) == 0, "appended", 8);
    must(unlink("file9") == 0 && pwrite(fds[9], "gone", 4, 0) == 4 && pread(fds[9], buffer, 4, 0) == 4, "without a name", 9);
    must(memcmp(buffer, "gone", 4) == 0 && fsync(fds[9]) == 0 && fdatasync(fds[10]) == 0, "without a name", 9);
    // Half of them again, by their names.
    for (int i = 0; i < open_files; i += 2) close(fds[i]);
    for (int i = 12; i < open_files; i += 2) {
        sprintf(name, "file%d", i);
        int fd = open(name, O_RDONLY);
        must(fd >= 0, "open again", i);
        if (i != 100) check(fd, i, "opened again");
        close(fd);
    }
    puts("all of them");
    return 0;
}
