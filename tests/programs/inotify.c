// SPDX-License-Identifier: Apache-2.0 OR MIT
// inotify: which events come in which order, how they are read, and the errors.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define FAILS(call, error) (errno = 0, (call) == -1 && errno == (error))

static int instance;
static char buffer[4096] __attribute__((aligned(8)));
static ssize_t length, at;

// The next event is this one; its cookie.
static uint32_t is(int watch, uint32_t mask, const char *name, int line) {
    if (at >= length) {
        at = 0;
        length = read(instance, buffer, sizeof buffer);
    }
    if (length <= 0) {
        printf("line %d: no event, expected %x of %d\n", line, mask, watch);
        CHECK(0);
        return 0;
    }
    struct inotify_event *event = (void *)(buffer + at);
    at += sizeof *event + event->len;
    const char *got = event->len ? event->name : "";
    if (event->wd != watch || event->mask != mask || strcmp(got, name)) {
        printf("line %d: watch %d mask %x name '%s', expected %d %x '%s'\n", line, event->wd, event->mask, got, watch, mask, name);
        CHECK(0);
    }
    CHECK(event->len % 16 == 0);
    return event->cookie;
}
#define IS(watch, mask, name) is(watch, mask, name, __LINE__)

static void none(int line) {
    if (at < length || read(instance, buffer, sizeof buffer) != -1 || errno != EAGAIN) {
        printf("line %d: an event too many\n", line);
        CHECK(0);
    }
    length = at = 0;
}
#define NONE() none(__LINE__)

static void errors(void) {
    CHECK(FAILS(inotify_init1(1), EINVAL) && FAILS(inotify_add_watch(-1, ".", IN_OPEN), EBADF) && FAILS(inotify_add_watch(1, ".", IN_OPEN), EINVAL));
    CHECK(FAILS(inotify_add_watch(instance, "nowhere", IN_OPEN), ENOENT) && FAILS(inotify_add_watch(instance, ".", 0), EINVAL));
    CHECK(FAILS(inotify_add_watch(instance, (char *)-1, IN_OPEN), EFAULT) && FAILS(inotify_add_watch(instance, ".", IN_OPEN | IN_MASK_ADD | IN_MASK_CREATE), EINVAL));
    CHECK(FAILS(inotify_rm_watch(instance, 999), EINVAL) && FAILS(inotify_rm_watch(-1, 1), EBADF) && FAILS(read(instance, buffer, sizeof buffer), EAGAIN));
    CHECK(FAILS(write(instance, "x", 1), EBADF));
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    mkdir("/tmp", 0777);
    char dir[] = "/tmp/inotify-XXXXXX";
    CHECK(mkdtemp(dir) && chdir(dir) == 0);
    CHECK((instance = inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) >= 0 && fcntl(instance, F_GETFD) == FD_CLOEXEC);
    errors();
    int w = inotify_add_watch(instance, ".", IN_ALL_EVENTS);
    CHECK(w > 0 && FAILS(inotify_add_watch(instance, ".", IN_OPEN | IN_MASK_CREATE), EEXIST) && inotify_add_watch(instance, dir, IN_ALL_EVENTS) == w);
    // A file's life.
    int fd = open("file", O_CREAT | O_RDWR, 0644), count;
    IS(w, IN_CREATE, "file"), IS(w, IN_OPEN, "file"), NONE();
    CHECK(write(fd, "abc", 3) == 3 && pread(fd, buffer, 1, 0) == 1);
    struct pollfd ready = { instance, POLLIN, 0 };
    CHECK(poll(&ready, 1, 0) == 1 && ready.revents == POLLIN && ioctl(instance, FIONREAD, &count) == 0 && count == 64);
    CHECK(FAILS(read(instance, buffer, 20), EINVAL));
    IS(w, IN_MODIFY, "file"), IS(w, IN_ACCESS, "file"), NONE();
    CHECK(write(fd, "d", 1) == 1 && write(fd, "e", 1) == 1 && ftruncate(fd, 1) == 0);
    IS(w, IN_MODIFY, "file"), NONE();
    CHECK(close(fd) == 0);
    IS(w, IN_CLOSE_WRITE, "file"), NONE();
    CHECK((fd = open("file", O_RDONLY)) >= 0 && close(fd) == 0);
    IS(w, IN_OPEN, "file"), IS(w, IN_CLOSE_NOWRITE, "file"), NONE();
    CHECK((fd = open("file", O_WRONLY | O_TRUNC)) >= 0 && close(fd) == 0);
    IS(w, IN_OPEN, "file"), IS(w, IN_MODIFY, "file"), IS(w, IN_CLOSE_WRITE, "file"), NONE();
    CHECK((fd = open("file", O_PATH)) >= 0 && close(fd) == 0);
    NONE();
    CHECK(chmod("file", 0600) == 0);
    IS(w, IN_ATTRIB, "file"), NONE();
    struct timespec times[2] = { { 1, 0 }, { 2, 0 } };
    CHECK(utimensat(AT_FDCWD, "file", times, 0) == 0 && chown("file", -1, -1) == 0 && truncate("file", 10) == 0);
    IS(w, IN_ATTRIB, "file"), IS(w, IN_MODIFY, "file"), NONE();
    // Names.
    CHECK(link("file", "second") == 0 && symlink("file", "symbolic") == 0 && mkdir("sub", 0755) == 0 && mknod("fifo", S_IFIFO | 0600, 0) == 0);
    IS(w, IN_CREATE, "second"), IS(w, IN_CREATE, "symbolic"), IS(w, IN_CREATE | IN_ISDIR, "sub"), IS(w, IN_CREATE, "fifo"), NONE();
    CHECK(rename("second", "third") == 0);
    uint32_t cookie = IS(w, IN_MOVED_FROM, "second");
    CHECK(cookie && IS(w, IN_MOVED_TO, "third") == cookie);
    NONE();
    CHECK(rename("third", "sub/third") == 0);
    CHECK(IS(w, IN_MOVED_FROM, "third") != cookie);
    NONE();
    CHECK(unlink("symbolic") == 0 && unlink("fifo") == 0 && unlink("sub/third") == 0 && rmdir("sub") == 0);
    IS(w, IN_DELETE, "symbolic"), IS(w, IN_DELETE, "fifo"), IS(w, IN_DELETE | IN_ISDIR, "sub"), NONE();
    // A watch on the file itself.
    int f = inotify_add_watch(instance, "file", IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF | IN_MODIFY);
    CHECK(f == w + 1 && inotify_add_watch(instance, ".", IN_DELETE) == w);
    CHECK(rename("file", "moved") == 0 && link("moved", "other") == 0 && unlink("other") == 0);
    IS(f, IN_MOVE_SELF, ""), IS(f, IN_ATTRIB, ""), IS(w, IN_DELETE, "other"), NONE();
    CHECK(unlink("moved") == 0);
    IS(f, IN_ATTRIB, ""), IS(f, IN_DELETE_SELF, ""), IS(f, IN_IGNORED, ""), IS(w, IN_DELETE, "moved"), NONE();
    CHECK(FAILS(inotify_rm_watch(instance, f), EINVAL));
    // Once only, and only directories.
    fd = open("file", O_CREAT | O_RDWR, 0644);
    CHECK(FAILS(inotify_add_watch(instance, "file", IN_OPEN | IN_ONLYDIR), ENOTDIR));
    f = inotify_add_watch(instance, "file", IN_MODIFY | IN_ONESHOT);
    CHECK(write(fd, "1", 1) == 1 && read(fd, buffer, 1) == 0 && write(fd, "2", 1) == 1);
    IS(f, IN_MODIFY, ""), IS(f, IN_IGNORED, ""), NONE();
    // A removed name is still told of to those who do not mind.
    CHECK(inotify_add_watch(instance, ".", IN_MODIFY | IN_EXCL_UNLINK) == w && unlink("file") == 0 && write(fd, "3", 1) == 1);
    NONE();
    CHECK(inotify_add_watch(instance, ".", IN_MODIFY) == w && write(fd, "4", 1) == 1);
    IS(w, IN_MODIFY, "file"), NONE();
    close(fd);
    // A link, or what it leads to.
    CHECK(symlink("target", "symbolic") == 0 && FAILS(inotify_add_watch(instance, "symbolic", IN_DELETE_SELF), ENOENT));
    f = inotify_add_watch(instance, "symbolic", IN_DELETE_SELF | IN_DONT_FOLLOW);
    CHECK(f > 0 && unlink("symbolic") == 0);
    IS(f, IN_DELETE_SELF, ""), IS(f, IN_IGNORED, ""), NONE();
    CHECK(inotify_rm_watch(instance, w) == 0);
    IS(w, IN_IGNORED, ""), NONE();
    CHECK(close(instance) == 0);
    puts("all inotify tests passed");
    return 0;
}
