// SPDX-License-Identifier: Apache-2.0 OR MIT
// Four threads that write through one descriptor: all lines are there, each in one piece (check.h first).
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum { WRITERS = 4, LINE = 64 };
static int shared_file, lines_of_each;

static void *writes(void *letter) {
    char line[LINE];
    memset(line, *(char *)letter, sizeof line);
    for (int i = 0; i < lines_of_each; i++)
        CHECK(write(shared_file, line, sizeof line) == sizeof line);
    return NULL;
}

static void write_through_one_descriptor(const char *path, int lines) {
    char letters[] = "abcd", line[LINE];
    int seen[WRITERS] = { 0 };
    pthread_t threads[WRITERS];
    lines_of_each = lines;
    CHECK((shared_file = open(path, O_CREAT | O_TRUNC | O_RDWR, 0600)) >= 0);
    for (int i = 0; i < WRITERS; i++)
        CHECK(pthread_create(&threads[i], NULL, writes, &letters[i]) == 0);
    for (int i = 0; i < WRITERS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(lseek(shared_file, 0, SEEK_CUR) == WRITERS * lines * LINE && lseek(shared_file, 0, SEEK_SET) == 0);
    while (read(shared_file, line, sizeof line) == sizeof line) {
        for (int i = 1; i < LINE; i++)
            CHECK(line[i] == line[0]);
        CHECK(line[0] >= 'a' && line[0] <= 'd');
        seen[line[0] - 'a']++;
    }
    for (int i = 0; i < WRITERS; i++)
        CHECK(seen[i] == lines);
    close(shared_file);
}
