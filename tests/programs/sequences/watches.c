// SPDX-License-Identifier: Apache-2.0 OR MIT
// Random sequences of calls (sequences.h) on a few files and directories, watched by two inotify instances: which events come, in which
// order, and which of them are one.
#include "sequences.h"
#include <dirent.h>
#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sendfile.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/xattr.h>

enum { INSTANCES = 2, FILES = 4, COOKIES = 4096 };

static int instances[INSTANCES], files[FILES];

static const char *path(void) {
    static const char *const all[] = {".", "a", "b", "c", "d", "d/a", "d/b", "d/e", "d/e/a", "e", "e/a", "s", "d/s"};
    return ONE_OF(all);
}

// Cookies are told by the order in which they were seen.
static int shown_cookie(uint32_t cookie) {
    static uint32_t seen[COOKIES];
    static int count;
    if (cookie == 0)
        return 0;
    for (int i = count - 1; i >= 0; i--)
        if (seen[i] == cookie)
            return i + 1;
    if (count == COOKIES)
        return -1;
    seen[count] = cookie;
    return ++count;
}

static void watches(void) {
    static const uint32_t masks[] = {IN_ALL_EVENTS, IN_ALL_EVENTS, IN_ALL_EVENTS, IN_MODIFY | IN_ATTRIB, IN_CREATE | IN_DELETE | IN_MOVE,
        IN_DELETE_SELF | IN_MOVE_SELF, IN_OPEN | IN_CLOSE, IN_ACCESS, 0};
    static const uint32_t ways[] = {0, 0, 0, IN_ONESHOT, IN_MASK_ADD, IN_MASK_CREATE, IN_ONLYDIR, IN_DONT_FOLLOW, IN_EXCL_UNLINK, IN_MASK_ADD | IN_MASK_CREATE};
    int which = (int)below(INSTANCES);
    uint32_t mask = ONE_OF(masks) | ONE_OF(ways);
    const char *watched = path();
    say("watch %d %s %x", which, watched, mask);
    answered(inotify_add_watch(instances[which], watched, mask));
}

static void forgets(void) {
    int which = (int)below(INSTANCES), watch = (int)below(30);
    say("forget %d %d", which, watch);
    answered(inotify_rm_watch(instances[which], watch));
}

static void reads_events(void) {
    static char bytes[4096] __attribute__((aligned(8)));
    static const size_t lengths[] = {sizeof bytes, sizeof bytes, sizeof bytes, 40, 16, 10};
    int which = (int)below(INSTANCES), left = -1;
    size_t size = ONE_OF(lengths);
    ioctl(instances[which], FIONREAD, &left);
    long length = read(instances[which], bytes, size);
    say("events %d of %d in %zu:", which, left, size);
    for (long at = 0; at < length;) {
        struct inotify_event *event = (void *)(bytes + at);
        say(" %d %x", event->wd, event->mask);
        if (event->cookie)
            say(" cookie %d", shown_cookie(event->cookie));
        if (event->len)
            // Files without a name have their number for one.
            say(" %s", event->name[0] == '#' ? "#" : event->name);
        at += (long)sizeof *event + event->len;
    }
    answered(length);
}

static void opens(void) {
    static const int all[] = {O_RDONLY, O_RDWR, O_RDWR | O_CREAT, O_RDWR | O_CREAT, O_WRONLY | O_TRUNC, O_RDWR | O_CREAT | O_EXCL, O_RDONLY | O_DIRECTORY,
        O_PATH, O_RDWR | O_CREAT | O_TRUNC, O_RDWR | O_TMPFILE};
    int slot = (int)below(FILES), flags = ONE_OF(all);
    const char *named = path();
    say("open %d %s %o", slot, named, flags);
    int descriptor = open(named, flags | O_NONBLOCK, 0644);
    if (descriptor >= 0) {
        if (files[slot] >= 0)
            close(files[slot]);
        files[slot] = descriptor;
    }
    answered(descriptor < 0 ? -1 : 0);
}

static void closes(void) {
    int slot = (int)below(FILES);
    say("close %d", slot);
    answered(close(files[slot]));
    files[slot] = -1;
}

static void moves_bytes(void) {
    static const char text[64] = "letters";
    char bytes[64];
    int slot = (int)below(FILES), other = (int)below(FILES), f = files[slot];
    struct iovec piece = {bytes, 5};
    size_t length = below(6);
    switch (below(12)) {
    case 0: say("read %d %zu", slot, length); answered(read(f, bytes, length)); return;
    case 1: say("pread %d %zu", slot, length); answered(pread(f, bytes, length, 0)); return;
    case 2: say("readv %d", slot); answered(readv(f, &piece, 1)); return;
    case 3: say("write %d %zu", slot, length); answered(write(f, text, length)); return;
    case 4: say("pwrite %d %zu", slot, length); answered(pwrite(f, text, length, 3)); return;
    case 5: say("ftruncate %d %zu", slot, length); answered(ftruncate(f, (off_t)length)); return;
    case 6: say("fallocate %d", slot); answered(fallocate(f, 0, 0, 10)); return;
    case 7: say("sendfile %d %d", slot, other); answered(sendfile(f, files[other], 0, 4)); return;
    case 8: say("copy_file_range %d %d", slot, other); answered(copy_file_range(files[other], 0, f, 0, 4, 0)); return;
    case 9: say("fchmod %d", slot); answered(fchmod(f, one_in(2) ? 0644 : 0600)); return;
    case 10: say("futimens %d", slot); answered(futimens(f, 0)); return;
    default: {
        DIR *directory = fdopendir(dup(f));
        long count = 0;
        say("readdir %d", slot);
        if (directory) {
            rewinddir(directory);
            while (readdir(directory))
                count++;
            closedir(directory);
        }
        answered(directory ? count : -1);
    }
    }
}

static void changes_names(void) {
    const char *one = path(), *two = path();
    switch (below(14)) {
    case 0: say("mkdir %s", one); answered(mkdir(one, 0755)); return;
    case 1: say("mkdir %s", one); answered(mkdir(one, 0755)); return;
    case 2: say("rmdir %s", one); answered(rmdir(one)); return;
    case 3: say("unlink %s", one); answered(unlink(one)); return;
    case 4: say("rename %s %s", one, two); answered(rename(one, two)); return;
    case 5: say("exchange %s %s", one, two); answered(renameat2(AT_FDCWD, one, AT_FDCWD, two, RENAME_EXCHANGE)); return;
    case 6: say("rename %s %s unless there", one, two); answered(renameat2(AT_FDCWD, one, AT_FDCWD, two, RENAME_NOREPLACE)); return;
    case 7: say("link %s %s", one, two); answered(link(one, two)); return;
    case 8: say("symlink %s %s", one, two); answered(symlink(one, two)); return;
    case 9: say("chmod %s", one); answered(chmod(one, one_in(2) ? 0755 : 0711)); return;
    case 10: say("chown %s", one); answered(lchown(one, one_in(2) ? 0 : (uid_t)-1, (gid_t)-1)); return;
    case 11: say("truncate %s", one); answered(truncate(one, below(4))); return;
    case 12: say("utimes %s", one); answered(utimes(one, 0)); return;
    default: say("mknod %s", one); answered(mknod(one, one_in(2) ? S_IFIFO | 0644 : S_IFREG | 0644, 0)); return;
    }
}

static void looks(void) {
    struct stat s;
    char bytes[20];
    const char *one = path();
    switch (below(4)) {
    case 0: say("stat %s", one); answered(stat(one, &s)); return;
    case 1: say("access %s", one); answered(access(one, R_OK)); return;
    case 2: say("readlink %s", one); answered(readlink(one, bytes, sizeof bytes)); return;
    default: say("setxattr %s", one); answered(lsetxattr(one, "security.x", "y", 1, 0)); return;
    }
}

static void renews(void) {
    int which = (int)below(INSTANCES);
    if (!one_in(6)) {
        say("nothing");
        answered(0);
        return;
    }
    close(instances[which]);
    instances[which] = inotify_init1(IN_NONBLOCK);
    say("instance %d", which);
    answered(instances[which] < 0 ? -1 : 0);
}

static void (*const steps[])(void) = {
    watches, watches, forgets, reads_events, reads_events, reads_events, opens, opens, opens, closes, moves_bytes, moves_bytes, moves_bytes,
    changes_names, changes_names, changes_names, changes_names, looks, renews,
};

int main(int count, char **arguments) {
    int kind;
    long total = begin(count, arguments, &kind);
    if (chdir("/tmp")) {
        perror("/tmp");
        return 1;
    }
    umask(022);
    for (int i = 0; i < INSTANCES; i++)
        instances[i] = inotify_init1(IN_NONBLOCK);
    for (int i = 0; i < FILES; i++)
        files[i] = -1;
    run_steps(steps, COUNT(steps), total, 0);
    return 0;
}
