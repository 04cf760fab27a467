// SPDX-License-Identifier: Apache-2.0 OR MIT
// The kernel's log by /dev/kmsg, /proc/kmsg and syslog(2). For the superuser: it reads and clears the machine's own log.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/klog.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CLOSE, OPEN, READ, READ_ALL, READ_CLEAR, CLEAR, OFF, ON, LEVEL, SIZE_UNREAD, SIZE_BUFFER };

static char text[1 << 20];

static void say(const char *line) {
    int fd = open("/dev/kmsg", O_WRONLY);
    CHECK(fd >= 0 && write(fd, line, strlen(line)) == (ssize_t)strlen(line) && close(fd) == 0);
}

// What is left of the log of a file that is read without waiting.
static char *rest_of(int fd, size_t most) {
    size_t length = 0;
    long got;
    while ((got = read(fd, text + length, most)) > 0)
        length += (size_t)got;
    CHECK(got == -1 && errno == EAGAIN);
    text[length] = 0;
    return text;
}

static void records(void) {
    struct stat status;
    CHECK(stat("/dev/kmsg", &status) == 0 && S_ISCHR(status.st_mode) && status.st_rdev == makedev(1, 11));
    int fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK);
    CHECK(fd >= 0 && lseek(fd, 0, SEEK_END) == 0);
    struct pollfd can = {fd, POLLIN, 0};
    CHECK(poll(&can, 1, 0) == 0 && read(fd, text, 8192) == -1 && errno == EAGAIN);
    say("<13>a first one\n");
    say("no priority\\ \x01\n");
    say("<2>who speaks for the kernel\n");
    CHECK(poll(&can, 1, 1000) == 1 && can.revents & POLLIN);
    unsigned priority;
    unsigned long long number, other, when;
    // A record is read whole, or not at all and lost.
    CHECK(read(fd, text, 8) == -1 && errno == EINVAL);
    CHECK(lseek(fd, 0, SEEK_SET) == 0 && strstr(rest_of(fd, 8192), ";a first one\n") && lseek(fd, 0, SEEK_END) == 0);
    say("<13>a first one\n");
    say("no priority\\ \x01\n");
    say("<2>who speaks for the kernel\n");
    long got = read(fd, text, 8192);
    text[got > 0 ? got : 0] = 0;
    CHECK(sscanf(text, "%u,%llu,%llu,", &priority, &number, &when) == 3 && priority == 13);
    CHECK(strchr(text, ';') && strcmp(strchr(text, ';'), ";a first one\n") == 0);
    got = read(fd, text, 8192);
    text[got > 0 ? got : 0] = 0;
    CHECK(sscanf(text, "%u,%llu,", &priority, &other) == 2 && priority == (1 << 3 | 4) && other == number + 1);
    CHECK(strcmp(strchr(text, ';'), ";no priority\\x5c \\x01\n") == 0);
    got = read(fd, text, 8192);
    text[got > 0 ? got : 0] = 0;
    CHECK(sscanf(text, "%u,%llu,", &priority, &other) == 2 && priority == (1 << 3 | 2) && other == number + 2);
    CHECK(read(fd, text, 8192) == -1 && errno == EAGAIN);
    // From the first record on, from what was cleared on, from the end on.
    CHECK(lseek(fd, 0, SEEK_SET) == 0 && strstr(rest_of(fd, 8192), ";a first one\n"));
    CHECK(klogctl(CLEAR, 0, 0) == 0);
    say("<14>behind what was cleared\n");
    CHECK(lseek(fd, 0, SEEK_DATA) == 0);
    char *cleared = rest_of(fd, 8192);
    CHECK(strstr(cleared, ";behind what was cleared\n") && !strstr(cleared, "a first one"));
    CHECK(lseek(fd, 1, SEEK_SET) == -1 && errno == ESPIPE && lseek(fd, 0, SEEK_CUR) == -1 && errno == EINVAL);
    CHECK(pread(fd, text, 8192, 0) == -1 || errno == ESPIPE);
    close(fd);
    // A reader that waits is woken.
    fd = open("/dev/kmsg", O_RDONLY);
    CHECK(fd >= 0 && lseek(fd, 0, SEEK_END) == 0);
    pid_t child = fork();
    if (child == 0) {
        usleep(50000);
        say("<14>it wakes\n");
        _exit(0);
    }
    got = read(fd, text, 8192);
    CHECK(got > 0 && memmem(text, (size_t)got, "it wakes", 8));
    CHECK(waitpid(child, 0, 0) == child && close(fd) == 0);
    fd = open("/dev/kmsg", O_WRONLY);
    memset(text, 'x', 5000);
    CHECK(write(fd, text, 5000) == -1 && errno == EINVAL);
    CHECK(close(fd) == 0);
}

static void whole(void) {
    CHECK(klogctl(SIZE_BUFFER, 0, 0) > 0 && klogctl(CLEAR, 0, 0) == 0);
    CHECK(klogctl(READ_ALL, text, sizeof text) == 0);
    say("<14>one\n");
    say("<14>two\n");
    int length = klogctl(READ_ALL, text, sizeof text);
    CHECK(length > 0);
    text[length] = 0;
    CHECK(strncmp(text, "<14>[", 5) == 0 && strstr(text, "] one\n<14>[") && strcmp(text + length - 6, "] two\n") == 0);
    // The last lines that fit.
    int some = klogctl(READ_ALL, text, length - 1);
    text[some > 0 ? some : 0] = 0;
    CHECK(some > 0 && some < length && !strstr(text, "one") && strstr(text, "two"));
    CHECK(klogctl(READ_CLEAR, text, sizeof text) == length && klogctl(READ_ALL, text, sizeof text) == 0);
    CHECK(klogctl(READ_ALL, text, -1) == -1 && errno == EINVAL && klogctl(READ_ALL, 0, 5) == -1 && errno == EINVAL);
}

// What one takes no other one gets.
static void unread(void) {
    int fd = open("/proc/kmsg", O_RDONLY | O_NONBLOCK);
    CHECK(fd >= 0);
    rest_of(fd, 8192);
    CHECK(klogctl(SIZE_UNREAD, 0, 0) == 0);
    struct pollfd can = {fd, POLLIN, 0};
    CHECK(poll(&can, 1, 0) == 0);
    say("<14>for one\n");
    CHECK(poll(&can, 1, 1000) == 1 && can.revents & POLLIN);
    int length = klogctl(SIZE_UNREAD, 0, 0);
    CHECK(length > 10);
    // In pieces.
    CHECK(klogctl(READ, text, 5) == 5 && strncmp(text, "<14>[", 5) == 0 && klogctl(SIZE_UNREAD, 0, 0) == length - 5);
    CHECK((int)strlen(rest_of(fd, 8192)) == length - 5 && strcmp(text + length - 5 - 10, "] for one\n") == 0);
    CHECK(close(fd) == 0 && klogctl(SIZE_UNREAD, 0, 0) == 0);
    pid_t child = fork();
    if (child == 0) {
        usleep(50000);
        say("<14>it wakes\n");
        _exit(0);
    }
    int got = klogctl(READ, text, 8192);
    CHECK(got > 0 && memmem(text, (size_t)got, "it wakes", 8) && waitpid(child, 0, 0) == child);
}

static void users(void) {
    pid_t child = fork();
    if (child == 0) {
        CHECK(setgid(1000) == 0 && setuid(1000) == 0);
        CHECK(open("/dev/kmsg", O_WRONLY) == -1 && errno == EACCES && open("/proc/kmsg", O_RDONLY) == -1);
        CHECK(klogctl(READ, text, 10) == -1 && errno == EPERM && klogctl(CLEAR, 0, 0) == -1 && errno == EPERM);
        int length = klogctl(READ_ALL, text, sizeof text);
        int is_restricted = open("/proc/sys/kernel/dmesg_restrict", O_RDONLY);
        char said = '0';
        CHECK(read(is_restricted, &said, 1) == 1 && (said == '0' ? length >= 0 : length == -1));
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(void) {
    records();
    whole();
    unread();
    users();
    puts("the log is as on Linux");
    return 0;
}
