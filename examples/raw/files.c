// SPDX-License-Identifier: Apache-2.0 OR MIT
// Opens the same files twice: through SHFS, a hash file system without a VFS, and by open(2) and the kernel's VFS. What an open
// takes of each is printed (the paper's figure 22: 1,000 opens of files in the root directory, and of files that are not
// there); every byte that SHFS reads is compared with what read(2) gives.
//
//     unilith cc -O2 -o files examples/raw/files.c
//     unilith shfs make files.shfs DIRECTORY
//     unilith run --rm --static --network none --drive files.shfs:ro -v DIRECTORY:/files:ro ./files -- /files
//
// Arguments: the directory with the same files, in the root file system, and how often all is done (1). The files are copied
// to the root directory first, which is in memory as the table of SHFS is.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unilith/shfs.h>
#include <unistd.h>

enum { MOST = 1000 };

static char *names[MOST], *missing[MOST];
static size_t lengths[MOST];
static int count;
static struct unilith_shfs_file found[MOST];
static int descriptors[MOST];

static _Noreturn void fail(const char *what, const char *name, int code) {
    fprintf(stderr, "files: %s %s: %s\n", what, name, strerror(code));
    exit(1);
}

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

// The files of the directory, and names beside them.
static void list(const char *directory) {
    DIR *dir = opendir(directory);
    if (dir == NULL) fail("opendir", directory, errno);
    for (struct dirent *entry; count < MOST && (entry = readdir(dir)) != NULL;) {
        if (entry->d_name[0] == '.') continue;
        // An absolute path, of which SHFS is given what is behind the slash.
        if (asprintf(&names[count], "/%s", entry->d_name) < 0 || asprintf(&missing[count], "/%s~", entry->d_name) < 0)
            fail("memory for", entry->d_name, ENOMEM);
        lengths[count] = strlen(entry->d_name);
        count++;
    }
    closedir(dir);
}

// A file of the directory goes to the root directory, which is in memory; SHFS has the same bytes.
static void compare(const char *directory, int n) {
    static char vfs[65536], shfs[65536];
    char path[512];
    snprintf(path, sizeof path, "%s%s", directory, names[n]);
    int from = open(path, O_RDONLY), to = open(names[n], O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (from < 0 || to < 0) fail("open", path, errno);
    int code = unilith_shfs_open(names[n] + 1, lengths[n], &found[n]);
    if (code < 0) fail("SHFS: open", names[n], -code);
    uint64_t offset = 0;
    for (ssize_t got; (got = read(from, vfs, sizeof vfs)) != 0; offset += (uint64_t)got) {
        if (got < 0) fail("read", path, errno);
        if (write(to, vfs, (size_t)got) != got) fail("write", names[n], errno);
        int same = unilith_shfs_read(found[n].number, offset, shfs, (size_t)got);
        if (same < 0) fail("SHFS: read", names[n], -same);
        if (same != got || memcmp(vfs, shfs, (size_t)got) != 0) fail("SHFS: other bytes in", names[n], EIO);
    }
    if (offset != found[n].size || unilith_shfs_read(found[n].number, offset, shfs, 1) != 0)
        fail("SHFS: another size of", names[n], EIO);
    close(from);
    close(to);
}

int main(int words, char **word) {
    const char *directory = words > 1 ? word[1] : "/files";
    int rounds = words > 2 ? atoi(word[2]) : 1;
    int files = unilith_shfs_mount(0);
    if (files == -EUCLEAN) fail("mount: disk 0 has no sound image", "(the line above says why)", EIO);
    if (files < 0) fail("mount", "disk 0", -files);
    list(directory);
    for (int n = 0; n < count; n++)
        compare(directory, n);
    printf("%d of %d files compared\n", count, files);
    if (count == 0) return 0;

    uint64_t took[4] = { 0 };
    for (int round = 0; round < rounds; round++) {
        uint64_t start = now();
        for (int n = 0; n < count; n++)
            descriptors[n] = open(names[n], O_RDONLY);
        took[0] += now() - start;
        for (int n = 0; n < count; n++) {
            if (descriptors[n] < 0) fail("open", names[n], errno);
            close(descriptors[n]);
        }
        int code = 0, bad = 0;
        start = now();
        for (int n = 0; n < count; n++)
            code |= unilith_shfs_open(names[n] + 1, lengths[n], &found[n]);
        took[1] += now() - start;
        if (code != 0) fail("SHFS: open", "a file that is there", -code);
        start = now();
        for (int n = 0; n < count; n++)
            bad += open(missing[n], O_RDONLY) >= 0;
        took[2] += now() - start;
        start = now();
        for (int n = 0; n < count; n++)
            bad += unilith_shfs_open(missing[n] + 1, lengths[n] + 1, &found[n]) != -ENOENT;
        took[3] += now() - start;
        if (bad > 0) fail("open", "a file that is not there", EEXIST);
    }
    const char *what[4] = { "open(2)", "SHFS", "open(2) of no file", "SHFS of no file" };
    for (int n = 0; n < 4; n++)
        printf("%s: %.1f ns\n", what[n], (double)took[n] / rounds / count);
    return 0;
}
