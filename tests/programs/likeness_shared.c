// SPDX-License-Identifier: Apache-2.0 OR MIT
// What the Linux Test Project asks of files and of directories that users share: lifetimes of writes, watches of what is unmounted, groups of new files,
// fs.protected_*. As root.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <grp.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define FAILS(call, error) (errno = 0, (call) == -1 && errno == (error))

static int ends_well(pid_t child) {
    int status;
    return waitpid(child, &status, 0) == child && status == 0;
}

static long text_to(const char *path, const char *text) {
    int fd = open(path, O_WRONLY);
    CHECK(fd >= 0);
    long written = write(fd, text, strlen(text));
    int error = errno;
    close(fd);
    errno = error;
    return written;
}

#ifndef F_GET_RW_HINT
#define F_GET_RW_HINT 1035
#define F_SET_RW_HINT 1036
#endif

static int hint_of(int fd) {
    uint64_t hint = ~0ul;
    CHECK(fcntl(fd, F_GET_RW_HINT, &hint) == 0);
    return hint;
}

static int set_hint(int fd, uint64_t hint) {
    return fcntl(fd, F_SET_RW_HINT, &hint);
}

static void lifetimes_of_writes_are_kept(void) {
    int fd = open("short-lived", O_RDWR | O_CREAT, 0644), other = open("short-lived", O_RDONLY), ends[2];
    CHECK(fd >= 0 && other >= 0 && hint_of(fd) == 0);
    // Each lifetime there is, for all who have the file open.
    for (int hint = 0; hint <= 5; hint++) CHECK(set_hint(fd, hint) == 0 && hint_of(other) == hint);
    CHECK(FAILS(set_hint(fd, 6), EINVAL) && FAILS(set_hint(fd, -1), EINVAL) && hint_of(fd) == 5);
    CHECK(FAILS(fcntl(fd, F_GET_RW_HINT, 1), EFAULT) && FAILS(fcntl(fd, F_SET_RW_HINT, 1), EFAULT) && FAILS(fcntl(-1, F_GET_RW_HINT, 1), EBADF));
    CHECK(close(other) == 0 && close(fd) == 0 && (fd = open("short-lived", O_RDWR)) >= 0 && hint_of(fd) == 5);
    CHECK(close(fd) == 0 && (fd = open("short-lived", O_PATH)) >= 0 && FAILS(fcntl(fd, F_GET_RW_HINT, &other), EBADF));
    CHECK(close(fd) == 0 && unlink("short-lived") == 0);
    CHECK(pipe(ends) == 0 && hint_of(ends[0]) == 0 && set_hint(ends[1], 3) == 0 && hint_of(ends[1]) == 3);
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
    // The hints of open files, which Linux 5.18 took away.
    CHECK((fd = open("/proc/self/exe", O_RDONLY)) >= 0 && FAILS(fcntl(fd, 1037, &other), EINVAL) && FAILS(fcntl(fd, 1038, &other), EINVAL) && close(fd) == 0);
}

static void is_event(int fd, int watch, unsigned mask) {
    struct inotify_event event;
    CHECK(read(fd, &event, sizeof event) == sizeof event && event.wd == watch && event.mask == mask && event.len == 0);
}

static void watches_end_with_their_file_system(void) {
    pid_t child = fork();
    if (child == 0) {
        CHECK(unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
        CHECK(mkdir("mounted", 0700) == 0 && mkdir("again", 0700) == 0 && mount("tmpfs", "mounted", "tmpfs", 0, NULL) == 0);
        CHECK(mount("mounted", "again", NULL, MS_BIND, NULL) == 0 && close(open("mounted/file", O_CREAT | O_WRONLY, 0600)) == 0);
        int fd = inotify_init1(IN_NONBLOCK), file = inotify_add_watch(fd, "mounted/file", IN_MODIFY);
        CHECK(fd >= 0 && file > 0);
        // It is there as long as it is mounted anywhere.
        CHECK(umount("mounted") == 0 && FAILS(read(fd, &file, sizeof file), EAGAIN) && umount("again") == 0);
        is_event(fd, file, IN_UNMOUNT);
        is_event(fd, file, IN_IGNORED);
        CHECK(FAILS(read(fd, &file, sizeof file), EAGAIN) && FAILS(inotify_rm_watch(fd, file), EINVAL));
        CHECK(rmdir("mounted") == 0 && rmdir("again") == 0);
        exit(0);
    }
    CHECK(ends_well(child));
}

static unsigned mode_of(const char *path) {
    struct stat about;
    CHECK(stat(path, &about) == 0 && unlink(path) == 0 && about.st_gid == 2000);
    return about.st_mode & 07777;
}

// The directory's group is not to be had through a program that runs as it.
static void groups_of_directories_are_not_lent(void) {
    static const gid_t none[] = {1000}, member[] = {2000};
    CHECK(mkdir("of-group", 0777) == 0 && chown("of-group", 0, 2000) == 0 && chmod("of-group", 02777) == 0 && chmod(".", 0755) == 0);
    for (int is_member = 0; is_member < 2; is_member++) {
        pid_t child = fork();
        if (child == 0) {
            unsigned kept = is_member ? 02000 : 0;
            umask(0);
            CHECK(chdir("of-group") == 0 && setgroups(1, is_member ? member : none) == 0 && setgid(1000) == 0 && setuid(1000) == 0);
            CHECK(close(open("made", O_CREAT | O_WRONLY, 02775)) == 0 && mode_of("made") == (kept | 0775));
            CHECK(close(creat("made", 02010)) == 0 && mode_of("made") == (kept | 010));
            CHECK(mknod("made", S_IFIFO | 02775, 0) == 0 && mode_of("made") == (kept | 0775));
            // Without the right to run it as the group the bit says something else.
            CHECK(close(creat("made", 02765)) == 0 && mode_of("made") == 02765);
            struct stat about;
            int fd = open(".", O_TMPFILE | O_RDWR, 02775);
            CHECK(fd >= 0 && fstat(fd, &about) == 0 && (about.st_mode & 07777) == (kept | 0775) && close(fd) == 0);
            exit(0);
        }
        CHECK(ends_well(child));
    }
    CHECK(rmdir("of-group") == 0);
}

static void blocks_are_not_told(void) {
    int fd = open("plain", O_CREAT | O_RDWR, 0600), ends[2];
    struct fiemap map = {.fm_length = ~0ul};
    CHECK(fd >= 0 && FAILS(ioctl(fd, FS_IOC_FIEMAP, &map), EOPNOTSUPP) && close(fd) == 0 && unlink("plain") == 0);
    CHECK(pipe(ends) == 0 && FAILS(ioctl(ends[0], FS_IOC_FIEMAP, &map), EOPNOTSUPP) && close(ends[0]) == 0 && close(ends[1]) == 0);
}

static int as_users(void (*act)(void)) {
    pid_t child = fork();
    if (child == 0) {
        CHECK(setgroups(0, NULL) == 0 && setgid(1000) == 0 && setuid(1000) == 0);
        act();
        exit(0);
    }
    return ends_well(child);
}

static int error_of(int result) {
    if (result >= 0) close(result);
    return result >= 0 ? 0 : errno;
}

static void are_led(void) {
    CHECK(error_of(open("shared/link", O_RDONLY)) == 0 && error_of(open("shared/file", O_RDWR | O_CREAT, 0600)) == 0);
    CHECK(link("shared/readable", "shared/more") == 0);
}

static void are_not_led(void) {
    CHECK(error_of(open("shared/link", O_RDONLY)) == EACCES && error_of(open("shared/link", O_RDWR | O_CREAT, 0600)) == EACCES);
    CHECK(error_of(open("shared/file", O_RDWR)) == 0 && error_of(open("shared/file", O_RDWR | O_CREAT, 0600)) == EACCES);
    CHECK(error_of(open("shared/queue", O_RDWR)) == 0 && error_of(open("shared/queue", O_RDWR | O_CREAT, 0600)) == EACCES);
    CHECK(FAILS(link("shared/readable", "shared/more"), EPERM));
    // The link is not at the end of the path, or the caller's.
    CHECK(error_of(open("shared/way/file", O_RDONLY)) == 0 && symlink("file", "shared/own") == 0);
    CHECK(error_of(open("shared/own", O_RDONLY)) == 0 && unlink("shared/own") == 0);
}

static void shared_directories_can_be_protected(void) {
    static const char *const names[] = {"symlinks", "hardlinks", "fifos", "regular"};
    char path[4][64], before[4][8] = {{0}};
    for (int i = 0; i < 4; i++) {
        snprintf(path[i], sizeof path[i], "/proc/sys/fs/protected_%s", names[i]);
        int fd = open(path[i], O_RDONLY);
        CHECK(fd >= 0 && read(fd, before[i], sizeof before[i] - 1) > 0 && close(fd) == 0);
        CHECK(text_to(path[i], "0") == 1 && FAILS(text_to(path[i], "3"), EINVAL));
    }
    // Files of a third user's in a directory of the superuser's.
    umask(0);
    CHECK(chmod(".", 0755) == 0 && mkdir("shared", 01777) == 0 && close(open("shared/file", O_CREAT | O_RDWR, 0666)) == 0);
    CHECK(close(open("shared/readable", O_CREAT | O_RDWR, 0644)) == 0 && mkfifo("shared/queue", 0666) == 0);
    CHECK(symlink("file", "shared/link") == 0 && symlink(".", "shared/way") == 0);
    static const char *const made[] = {"shared/file", "shared/readable", "shared/queue", "shared/link", "shared/way"};
    for (int i = 0; i < 5; i++) CHECK(lchown(made[i], 2000, 2000) == 0);
    CHECK(as_users(are_led) && unlink("shared/more") == 0);
    for (int i = 0; i < 4; i++) CHECK(text_to(path[i], "1") == 1);
    CHECK(as_users(are_not_led));
    // The owner of the directory leads all.
    CHECK(chown("shared", 2000, 2000) == 0 && text_to(path[1], "0") == 1 && as_users(are_led) && unlink("shared/more") == 0);
    for (int i = 0; i < 4; i++) CHECK(text_to(path[i], before[i]) > 0);
    for (int i = 0; i < 5; i++) CHECK(unlink(made[i]) == 0);
    CHECK(rmdir("shared") == 0 && umask(022) == 0);
}

int main(void) {
    char directory[] = "/dev/shm/likenessXXXXXX";
    CHECK(mkdtemp(directory) && chdir(directory) == 0);
    lifetimes_of_writes_are_kept();
    watches_end_with_their_file_system();
    groups_of_directories_are_not_lent();
    blocks_are_not_told();
    shared_directories_can_be_protected();
    CHECK(chdir("/") == 0 && rmdir(directory) == 0);
    puts("all likeness tests of shared directories passed");
}
