// SPDX-License-Identifier: Apache-2.0 OR MIT
// Mounts by descriptors: open_tree(2), move_mount(2), mount_setattr(2), fsopen(2), fsconfig(2), fsmount(2), fspick(2). On Linux: as root.
#define _GNU_SOURCE
#include "check.h"
#include <dirent.h>
#include <fcntl.h>
#include <mqueue.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#define FAILS(call, error) (errno = 0, (call) == -1 && errno == (error))

// Debian 12's headers have some of these in one file and some in another.
enum { TREE_CLONE = 1, RECURSIVE = 0x8000, EMPTY = AT_EMPTY_PATH };
enum { F_SYMLINKS = 1, F_EMPTY = 4, T_SYMLINKS = 0x10, T_EMPTY = 0x40, SET_GROUP = 0x100 };
enum { SET_FLAG, SET_STRING, SET_BINARY, SET_PATH, SET_PATH_EMPTY, SET_FD, CREATE, RECONFIGURE };
enum { RDONLY = 1, NOSUID = 2, NODEV = 4, NOEXEC = 8, NOATIME = 0x10, STRICTATIME = 0x20, ATIME = 0x70 };
enum { NODIRATIME = 0x80, IDMAP = 0x100000, NOSYMFOLLOW = 0x200000 };

struct attributes {
    uint64_t set, clear, propagation, users;
};

static int open_tree_(int dir, const char *path, unsigned flags) {
    return syscall(SYS_open_tree, dir, path, flags);
}

static int move_mount_(int from, const char *path, int to, const char *to_path, unsigned flags) {
    return syscall(SYS_move_mount, from, path, to, to_path, flags);
}

static int setattr_(int dir, const char *path, unsigned flags, struct attributes is) {
    return syscall(SYS_mount_setattr, dir, path, flags, &is, sizeof is);
}

static int fsopen_(const char *type, unsigned flags) {
    return syscall(SYS_fsopen, type, flags);
}

static int fsconfig_(int fd, unsigned command, const void *key, const void *value, int aux) {
    return syscall(SYS_fsconfig, fd, command, key, value, aux);
}

static int fsmount_(int fd, unsigned flags, unsigned attributes) {
    return syscall(SYS_fsmount, fd, flags, attributes);
}

static int fspick_(int dir, const char *path, unsigned flags) {
    return syscall(SYS_fspick, dir, path, flags);
}

static void put(int dir, const char *path, const char *text) {
    int fd = openat(dir, path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && close(fd) == 0);
}

static int says(int dir, const char *path, const char *text) {
    char is[64] = "";
    int fd = openat(dir, path, O_RDONLY);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, is, sizeof is - 1);
    close(fd);
    return n >= 0 && strcmp(is, text) == 0;
}

// The options of the mount at a place as mountinfo has them, those of the file system behind a space; its propagation goes to `groups`.
static const char *options(const char *place, char *groups) {
    static char found[256];
    char line[1024];
    FILE *file = fopen("/proc/self/mountinfo", "r");
    CHECK(file != NULL);
    found[0] = 0;
    while (fgets(line, sizeof line, file)) {
        char at[256], own[128], shared[128], rest[256];
        CHECK(sscanf(line, "%*s %*s %*s %*s %255s %127s %255[^\n]", at, own, rest) == 3);
        if (strcmp(at, place) != 0)
            continue;
        char *end = strstr(rest, "- ");
        CHECK(end && sscanf(end, "- %*s %*s %127s", shared) == 1);
        snprintf(found, sizeof found, "%s %s", own, shared);
        *end = 0;
        if (groups)
            strcpy(groups, rest);
    }
    fclose(file);
    return found;
}

static int begins(const char *text, const char *with) {
    return strncmp(text, with, strlen(with)) == 0;
}

static void a_copy_is_mounted_where_it_is_moved(void) {
    CHECK(mkdir("a", 0755) == 0 && mkdir("b", 0755) == 0 && mkdir("a/m", 0755) == 0);
    put(AT_FDCWD, "a/file", "one");
    CHECK(mount("in", "a/m", "tmpfs", 0, NULL) == 0);
    put(AT_FDCWD, "a/m/in", "mounted");
    int fd = open_tree_(AT_FDCWD, "a", TREE_CLONE | O_CLOEXEC);
    CHECK(fd >= 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC && (fcntl(fd, F_GETFL) & O_PATH));
    // It shows the same files, and nobody else sees it.
    CHECK(says(fd, "file", "one") && FAILS(faccessat(fd, "m/in", F_OK, 0), ENOENT) && options("/tmp/t/b", NULL)[0] == 0);
    put(fd, "new", "two");
    CHECK(says(AT_FDCWD, "a/new", "two"));
    CHECK(move_mount_(fd, "", AT_FDCWD, "b", F_EMPTY) == 0 && says(AT_FDCWD, "b/file", "one"));
    // The descriptor has no say any more.
    CHECK(close(fd) == 0 && says(AT_FDCWD, "b/file", "one") && umount("b") == 0 && FAILS(access("b/file", F_OK), ENOENT));
    // With what is mounted below.
    fd = open_tree_(AT_FDCWD, "a", TREE_CLONE | RECURSIVE);
    CHECK(fd >= 0 && fcntl(fd, F_GETFD) == 0 && says(fd, "m/in", "mounted"));
    CHECK(move_mount_(fd, "", AT_FDCWD, "b", F_EMPTY) == 0 && says(AT_FDCWD, "b/m/in", "mounted") && close(fd) == 0);
    // What is mounted is moved by a descriptor, too, and by paths.
    CHECK(mkdir("c", 0755) == 0 && mkdir("d", 0755) == 0);
    fd = open_tree_(AT_FDCWD, "b", 0);
    CHECK(fd >= 0 && move_mount_(fd, "", AT_FDCWD, "c", F_EMPTY) == 0 && says(AT_FDCWD, "c/m/in", "mounted"));
    CHECK(FAILS(access("b/file", F_OK), ENOENT) && close(fd) == 0);
    CHECK(move_mount_(AT_FDCWD, "c", AT_FDCWD, "d", 0) == 0 && says(AT_FDCWD, "d/file", "one"));
    CHECK(umount2("d", MNT_DETACH) == 0);
    // A single file, and a place by its descriptor.
    put(AT_FDCWD, "over", "covered");
    fd = open_tree_(AT_FDCWD, "a/file", TREE_CLONE);
    int to = open("over", O_PATH);
    CHECK(fd >= 0 && to >= 0 && move_mount_(fd, "", to, "", F_EMPTY | T_EMPTY) == 0 && says(AT_FDCWD, "over", "one"));
    CHECK(close(fd) == 0 && close(to) == 0 && umount("over") == 0 && says(AT_FDCWD, "over", "covered"));
}

static void what_nobody_mounts_goes_with_its_descriptor(void) {
    int fd = open_tree_(AT_FDCWD, "a", TREE_CLONE | RECURSIVE);
    CHECK(fd >= 0);
    int in = openat(fd, "m", O_PATH | O_DIRECTORY), other = dup(fd);
    CHECK(in >= 0 && other >= 0 && says(in, "in", "mounted") && close(fd) == 0);
    CHECK(says(other, "m/in", "mounted") && says(in, "../file", "one"));
    CHECK(close(other) == 0);
    // The mounts let go of each other; what is open stays.
    CHECK(says(in, "in", "mounted") && FAILS(faccessat(in, "../file", F_OK, 0), ENOENT));
    CHECK(FAILS(move_mount_(in, "", AT_FDCWD, "b", F_EMPTY), EINVAL) && close(in) == 0);
    // Nothing of it keeps the file system.
    CHECK(umount("a/m") == 0 && mount("in", "a/m", "tmpfs", 0, NULL) == 0);
    put(AT_FDCWD, "a/m/in", "mounted");
}

static void errors_of_trees(void) {
    CHECK(FAILS(open_tree_(AT_FDCWD, "a", 2), EINVAL) && FAILS(open_tree_(AT_FDCWD, "a", RECURSIVE), EINVAL));
    CHECK(FAILS(open_tree_(AT_FDCWD, "none", TREE_CLONE), ENOENT) && FAILS(open_tree_(AT_FDCWD, "", TREE_CLONE), ENOENT));
    CHECK(FAILS(open_tree_(-5, "a", TREE_CLONE), EBADF) && FAILS(open_tree_(AT_FDCWD, NULL, TREE_CLONE), EFAULT));
    CHECK(FAILS(move_mount_(AT_FDCWD, "a", AT_FDCWD, "b", 0x1000), EINVAL));
    CHECK(FAILS(move_mount_(AT_FDCWD, "none", AT_FDCWD, "b", 0), ENOENT));
    CHECK(FAILS(move_mount_(AT_FDCWD, "a/m", AT_FDCWD, "none", 0), ENOENT));
    CHECK(FAILS(move_mount_(AT_FDCWD, "", AT_FDCWD, "b", 0), ENOENT) && FAILS(move_mount_(-5, "", AT_FDCWD, "b", F_EMPTY), EBADF));
    // No mount, and a directory on a file.
    CHECK(FAILS(move_mount_(AT_FDCWD, "a", AT_FDCWD, "b", 0), EINVAL));
    CHECK(FAILS(move_mount_(AT_FDCWD, "a/m", AT_FDCWD, "over", 0), EINVAL));
    // Below itself.
    CHECK(mkdir("a/m/sub", 0755) == 0 && FAILS(move_mount_(AT_FDCWD, "a/m", AT_FDCWD, "a/m/sub", 0), ELOOP));
    int fd = open_tree_(AT_FDCWD, "a", TREE_CLONE | RECURSIVE);
    CHECK(fd >= 0 && FAILS(move_mount_(fd, "m", AT_FDCWD, "b", 0), EINVAL));
    // Nothing is mounted on what is mounted nowhere, or below itself.
    CHECK(FAILS(move_mount_(AT_FDCWD, "a/m", fd, "m", 0), EINVAL) && FAILS(move_mount_(fd, "", fd, "m", F_EMPTY), EINVAL));
    CHECK(FAILS(umount2("/proc/self/fd/99", 0), ENOENT) && close(fd) == 0);
    // Links are followed when that is said.
    CHECK(symlink("a/m", "to_m") == 0 && symlink("b", "to_b") == 0);
    CHECK(FAILS(move_mount_(AT_FDCWD, "to_m", AT_FDCWD, "b", 0), EINVAL));
    CHECK(move_mount_(AT_FDCWD, "to_m", AT_FDCWD, "to_b", F_SYMLINKS | T_SYMLINKS) == 0 && says(AT_FDCWD, "b/in", "mounted"));
    CHECK(move_mount_(AT_FDCWD, "b", AT_FDCWD, "a/m", 0) == 0);
    // What cannot be bound is not cloned.
    CHECK(mount(NULL, "a/m", NULL, MS_UNBINDABLE, NULL) == 0 && FAILS(open_tree_(AT_FDCWD, "a/m", TREE_CLONE), EINVAL));
    CHECK(mount(NULL, "a/m", NULL, MS_PRIVATE, NULL) == 0);
}

static void attributes_of_one_mount_and_of_a_tree(void) {
    char groups[256];
    CHECK(setattr_(AT_FDCWD, "a/m", 0, (struct attributes){ 0 }) == 0);
    CHECK(setattr_(AT_FDCWD, "a/m", 0, (struct attributes){ .set = NOSUID | NODEV | NODIRATIME | NOSYMFOLLOW }) == 0);
    CHECK(begins(options("/tmp/t/a/m", NULL), "rw,nosuid,nodev,nodiratime,relatime,nosymfollow rw"));
    CHECK(symlink("in", "a/m/link") == 0 && FAILS(open("a/m/link", O_RDONLY), ELOOP));
    CHECK(setattr_(AT_FDCWD, "a/m", 0, (struct attributes){ .clear = NODEV | NOSYMFOLLOW | NODIRATIME }) == 0);
    CHECK(begins(options("/tmp/t/a/m", NULL), "rw,nosuid,relatime rw") && says(AT_FDCWD, "a/m/link", "mounted"));
    CHECK(setattr_(AT_FDCWD, "a/m", 0, (struct attributes){ .set = NOATIME, .clear = ATIME | NOSUID }) == 0);
    CHECK(begins(options("/tmp/t/a/m", NULL), "rw,noatime rw"));
    CHECK(setattr_(AT_FDCWD, "a/m", 0, (struct attributes){ .set = STRICTATIME, .clear = ATIME }) == 0);
    CHECK(begins(options("/tmp/t/a/m", NULL), "rw rw"));
    CHECK(setattr_(AT_FDCWD, "a/m", 0, (struct attributes){ .clear = ATIME }) == 0);
    CHECK(begins(options("/tmp/t/a/m", NULL), "rw,relatime rw"));
    // A mount whose files are open for writing does not become one for reading only.
    int fd = open("a/m/in", O_RDWR);
    CHECK(fd >= 0 && FAILS(setattr_(AT_FDCWD, "a/m", 0, (struct attributes){ .set = RDONLY }), EBUSY));
    CHECK(FAILS(mount(NULL, "a/m", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL), EBUSY));
    CHECK(FAILS(mount(NULL, "a/m", NULL, MS_REMOUNT | MS_RDONLY, NULL), EBUSY) && close(fd) == 0);
    // All of a tree, or nothing of it.
    CHECK(mount("a", "b", NULL, MS_BIND | MS_REC, NULL) == 0);
    fd = open("b/m/in", O_RDWR);
    CHECK(fd >= 0 && FAILS(setattr_(AT_FDCWD, "b", RECURSIVE, (struct attributes){ .set = RDONLY }), EBUSY));
    CHECK(begins(options("/tmp/t/b", NULL), "rw") && close(fd) == 0);
    CHECK(setattr_(AT_FDCWD, "b", RECURSIVE, (struct attributes){ .set = RDONLY, .propagation = MS_SHARED }) == 0);
    CHECK(begins(options("/tmp/t/b", groups), "ro,relatime rw") && begins(groups, "shared:"));
    CHECK(begins(options("/tmp/t/b/m", groups), "ro,relatime rw") && begins(groups, "shared:"));
    CHECK(FAILS(open("b/m/in", O_RDWR), EROFS) && FAILS(mkdir("b/x", 0755), EROFS) && access("a/m/in", W_OK) == 0);
    CHECK(setattr_(AT_FDCWD, "b", 0, (struct attributes){ .propagation = MS_PRIVATE }) == 0);
    CHECK(begins(options("/tmp/t/b", groups), "ro") && groups[0] == 0 && umount2("b", MNT_DETACH) == 0);
    // Before it is mounted.
    fd = open_tree_(AT_FDCWD, "a", TREE_CLONE | RECURSIVE);
    CHECK(fd >= 0 && setattr_(fd, "", EMPTY | RECURSIVE, (struct attributes){ .set = RDONLY | NOEXEC }) == 0);
    CHECK(FAILS(mkdirat(fd, "m/x", 0755), EROFS) && move_mount_(fd, "", AT_FDCWD, "b", F_EMPTY) == 0 && close(fd) == 0);
    CHECK(begins(options("/tmp/t/b/m", NULL), "ro,noexec,relatime rw") && umount2("b", MNT_DETACH) == 0);

    CHECK(FAILS(setattr_(AT_FDCWD, "a/m", 1, (struct attributes){ .set = RDONLY }), EINVAL));
    CHECK(FAILS(syscall(SYS_mount_setattr, AT_FDCWD, "a/m", 0, &(struct attributes){ 0 }, 31), EINVAL));
    CHECK(FAILS(syscall(SYS_mount_setattr, AT_FDCWD, "a/m", 0, &(struct attributes){ 0 }, 4097), E2BIG));
    CHECK(FAILS(syscall(SYS_mount_setattr, AT_FDCWD, "a/m", 0, NULL, 32), EFAULT));
    uint64_t longer[6] = { RDONLY, 0, 0, 0, 0, 1 };
    CHECK(FAILS(syscall(SYS_mount_setattr, AT_FDCWD, "a/m", 0, longer, sizeof longer), E2BIG));
    CHECK(FAILS(setattr_(AT_FDCWD, "a/m", 0, (struct attributes){ .propagation = MS_SHARED | MS_SLAVE }), EINVAL));
    CHECK(FAILS(setattr_(AT_FDCWD, "a/m", 0, (struct attributes){ .propagation = 1 }), EINVAL));
    CHECK(FAILS(setattr_(AT_FDCWD, "a/m", 0, (struct attributes){ .set = 1 << 30 }), EINVAL));
    CHECK(FAILS(setattr_(AT_FDCWD, "a/m", 0, (struct attributes){ .set = NOATIME }), EINVAL));
    CHECK(FAILS(setattr_(AT_FDCWD, "a/m", 0, (struct attributes){ .clear = NOATIME }), EINVAL));
    CHECK(FAILS(setattr_(AT_FDCWD, "a/m", 0, (struct attributes){ .set = ATIME, .clear = ATIME }), EINVAL));
    CHECK(FAILS(setattr_(AT_FDCWD, "a/m", 0, (struct attributes){ .set = IDMAP, .users = 999 }), EBADF));
    CHECK(FAILS(setattr_(AT_FDCWD, "a/m", 0, (struct attributes){ .set = IDMAP, .users = 1ul << 40 }), EINVAL));
    int ours = open("/proc/self/ns/user", O_RDONLY), others = open("/proc/self/ns/mnt", O_RDONLY);
    CHECK(FAILS(setattr_(AT_FDCWD, "a/m", 0, (struct attributes){ .set = IDMAP, .users = ours }), EPERM));
    CHECK(FAILS(setattr_(AT_FDCWD, "a/m", 0, (struct attributes){ .set = IDMAP, .users = others }), EINVAL));
    CHECK(close(ours) == 0 && close(others) == 0);
    CHECK(FAILS(setattr_(AT_FDCWD, "a", 0, (struct attributes){ .set = RDONLY }), EINVAL));
    CHECK(FAILS(setattr_(AT_FDCWD, "none", 0, (struct attributes){ .set = RDONLY }), ENOENT));
}

static void a_private_mount_joins_the_groups_of_another(void) {
    char groups[256], copied[256];
    CHECK(mount("a/m", "b", NULL, MS_BIND, NULL) == 0 && mount("a/m", "c", NULL, MS_BIND, NULL) == 0);
    CHECK(FAILS(move_mount_(AT_FDCWD, "b", AT_FDCWD, "c", SET_GROUP), EINVAL));
    CHECK(mount(NULL, "b", NULL, MS_SHARED, NULL) == 0 && move_mount_(AT_FDCWD, "b", AT_FDCWD, "c", SET_GROUP) == 0);
    CHECK(options("/tmp/t/b", groups) && options("/tmp/t/c", copied) && begins(groups, "shared:") && strcmp(groups, copied) == 0);
    CHECK(mount("shown", "b/sub", "tmpfs", 0, NULL) == 0 && options("/tmp/t/c/sub", NULL)[0] != 0 && umount("b/sub") == 0);
    CHECK(FAILS(move_mount_(AT_FDCWD, "b", AT_FDCWD, "c", SET_GROUP), EINVAL));
    CHECK(FAILS(move_mount_(AT_FDCWD, "b/sub", AT_FDCWD, "c", SET_GROUP), EINVAL));
    CHECK(mount("other", "d", "tmpfs", 0, NULL) == 0 && FAILS(move_mount_(AT_FDCWD, "b", AT_FDCWD, "d", SET_GROUP), EINVAL));
    CHECK(umount("d") == 0 && umount("c") == 0 && umount("b") == 0);
}

static int log_says(int fd, const char *text) {
    char is[256] = "";
    ssize_t n = read(fd, is, sizeof is - 1);
    if (n < 0 || strcmp(is, text) != 0)
        printf("log: %s", is);
    return n == (ssize_t)strlen(text) && strcmp(is, text) == 0;
}

static void a_file_system_is_described_made_and_mounted(void) {
    struct statfs fs;
    char link[64] = "";
    int fd = fsopen_("tmpfs", 1);
    CHECK(fd >= 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC);
    char name[32];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    CHECK(readlink(name, link, sizeof link - 1) > 0 && strcmp(link, "anon_inode:[fscontext]") == 0);
    CHECK(FAILS(read(fd, link, sizeof link), ENODATA) && FAILS(write(fd, "x", 1), EINVAL));
    CHECK(FAILS(fsmount_(fd, 0, 0), EINVAL) && FAILS(fsconfig_(fd, RECONFIGURE, NULL, NULL, 0), EBUSY));
    CHECK(fsconfig_(fd, SET_STRING, "source", "my source", 0) == 0 && fsconfig_(fd, SET_STRING, "size", "64k", 0) == 0);
    CHECK(fsconfig_(fd, SET_STRING, "mode", "700", 0) == 0 && fsconfig_(fd, SET_STRING, "nr_inodes", "10", 0) == 0);
    CHECK(FAILS(fsconfig_(fd, SET_STRING, "source", "again", 0), EINVAL) && log_says(fd, "e Multiple sources\n"));
    CHECK(FAILS(fsconfig_(fd, SET_STRING, "what", "1", 0), EINVAL) && log_says(fd, "e tmpfs: Unknown parameter 'what'\n"));
    CHECK(FAILS(fsconfig_(fd, SET_FLAG, "what", NULL, 0), EINVAL) && FAILS(fsconfig_(fd, SET_STRING, "mode", "9", 0), EINVAL));
    CHECK(log_says(fd, "e tmpfs: Unknown parameter 'what'\n") && log_says(fd, "e tmpfs: Bad value for 'mode'\n"));
    CHECK(FAILS(fsconfig_(fd, SET_FLAG, "size", NULL, 0), EINVAL) && log_says(fd, "e tmpfs: Bad value for 'size'\n"));
    CHECK(fsconfig_(fd, CREATE, NULL, NULL, 0) == 0 && FAILS(fsconfig_(fd, CREATE, NULL, NULL, 0), EBUSY));
    CHECK(FAILS(fsconfig_(fd, SET_STRING, "size", "1m", 0), EBUSY));
    CHECK(FAILS(fsmount_(fd, 2, 0), EINVAL) && FAILS(fsmount_(fd, 0, IDMAP), EINVAL) && FAILS(fsmount_(fd, 0, ATIME), EINVAL));
    int mounted = fsmount_(fd, 1, NOSUID | NOATIME);
    CHECK(mounted >= 0 && fcntl(mounted, F_GETFD) == FD_CLOEXEC && FAILS(fsmount_(fd, 0, 0), EBUSY));
    put(mounted, "file", "in it");
    CHECK(fstatfs(mounted, &fs) == 0 && fs.f_type == 0x01021994 && fs.f_blocks == 16 && fs.f_files == 10);
    CHECK((fs.f_flags & (ST_NOSUID | ST_NOATIME | ST_RELATIME | ST_RDONLY)) == (ST_NOSUID | ST_NOATIME));
    CHECK(move_mount_(mounted, "", AT_FDCWD, "b", F_EMPTY) == 0 && says(AT_FDCWD, "b/file", "in it"));
    CHECK(begins(options("/tmp/t/b", NULL), "rw,nosuid,noatime rw"));
    struct stat stat_;
    CHECK(stat("b", &stat_) == 0 && (stat_.st_mode & 07777) == 0700);
    FILE *lines = fopen("/proc/self/mountinfo", "r");
    char line[512];
    int shown = 0;
    while (lines && fgets(line, sizeof line, lines))
        shown += strstr(line, " - tmpfs my\\040source ") != NULL;
    CHECK(lines && fclose(lines) == 0 && shown == 1);
    // It is reconfigured through what made it, without the mount's flags being touched.
    CHECK(fsconfig_(fd, SET_FLAG, "ro", NULL, 0) == 0 && fsconfig_(fd, RECONFIGURE, NULL, NULL, 0) == 0);
    CHECK(begins(options("/tmp/t/b", NULL), "rw,nosuid,noatime ro") && FAILS(mkdir("b/d", 0755), EROFS));
    CHECK(fsconfig_(fd, SET_FLAG, "rw", NULL, 0) == 0 && fsconfig_(fd, RECONFIGURE, NULL, NULL, 0) == 0 && mkdir("b/d", 0755) == 0);
    CHECK(close(fd) == 0 && close(mounted) == 0);
    // And through a descriptor of the place.
    fd = fspick_(AT_FDCWD, "b", 1);
    CHECK(fd >= 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC && FAILS(fsconfig_(fd, CREATE, NULL, NULL, 0), EBUSY));
    CHECK(FAILS(fsmount_(fd, 0, 0), EBUSY) && fsconfig_(fd, SET_STRING, "size", "128k", 0) == 0);
    CHECK(fsconfig_(fd, SET_FLAG, "sync", NULL, 0) == 0 && fsconfig_(fd, RECONFIGURE, NULL, NULL, 0) == 0);
    CHECK(statfs("b", &fs) == 0 && fs.f_blocks == 32 && strstr(options("/tmp/t/b", NULL), " rw,sync"));
    int open_file = open("b/file", O_RDWR);
    CHECK(open_file >= 0 && fsconfig_(fd, SET_FLAG, "ro", NULL, 0) == 0 && FAILS(fsconfig_(fd, RECONFIGURE, NULL, NULL, 0), EBUSY));
    CHECK(FAILS(fsconfig_(fd, SET_FLAG, "rw", NULL, 0), EBUSY) && close(fd) == 0 && close(open_file) == 0);
    CHECK(FAILS(fspick_(AT_FDCWD, "b/d", 0), EINVAL) && FAILS(fspick_(AT_FDCWD, "none", 0), ENOENT) && FAILS(fspick_(AT_FDCWD, "b", 16), EINVAL));
    CHECK(umount("b") == 0);
    // What nobody mounts goes.
    fd = fsopen_("tmpfs", 0);
    CHECK(fd >= 0 && fsconfig_(fd, CREATE, NULL, NULL, 0) == 0 && close(fd) == 0);
}

static void errors_of_contexts(void) {
    CHECK(FAILS(fsopen_("none", 0), ENODEV) && FAILS(fsopen_("tmpfs", 2), EINVAL) && FAILS(fsopen_(NULL, 0), EFAULT));
    int fd = fsopen_("tmpfs", 0);
    CHECK(fd >= 0 && FAILS(fsconfig_(-1, SET_FLAG, "ro", NULL, 0), EINVAL) && FAILS(fsconfig_(99, SET_FLAG, "ro", NULL, 0), EBADF));
    CHECK(FAILS(fsconfig_(1, SET_FLAG, "ro", NULL, 0), EINVAL) && FAILS(fsconfig_(fd, 100, NULL, NULL, 0), EOPNOTSUPP));
    CHECK(FAILS(fsconfig_(fd, SET_FLAG, NULL, NULL, 0), EINVAL) && FAILS(fsconfig_(fd, SET_FLAG, "ro", "x", 0), EINVAL));
    CHECK(FAILS(fsconfig_(fd, SET_FLAG, "ro", NULL, 1), EINVAL) && FAILS(fsconfig_(fd, SET_STRING, "size", NULL, 0), EINVAL));
    CHECK(FAILS(fsconfig_(fd, SET_STRING, NULL, "1", 0), EINVAL) && FAILS(fsconfig_(fd, SET_STRING, "size", "1", 1), EINVAL));
    CHECK(FAILS(fsconfig_(fd, SET_BINARY, "size", "1", 0), EINVAL) && FAILS(fsconfig_(fd, SET_BINARY, "size", "1", (1 << 20) + 1), EINVAL));
    CHECK(FAILS(fsconfig_(fd, SET_PATH, "size", NULL, AT_FDCWD), EINVAL) && FAILS(fsconfig_(fd, SET_PATH, "size", "/", -3), EINVAL));
    CHECK(FAILS(fsconfig_(fd, SET_FD, "size", NULL, -1), EINVAL) && FAILS(fsconfig_(fd, SET_FD, "size", "x", 1), EINVAL));
    CHECK(FAILS(fsconfig_(fd, SET_FD, "size", NULL, 99), EBADF) && FAILS(fsconfig_(fd, CREATE, "x", NULL, 0), EINVAL));
    CHECK(FAILS(fsconfig_(fd, CREATE, NULL, NULL, 1), EINVAL) && FAILS(fsconfig_(fd, SET_FLAG, (void *)1, NULL, 0), EFAULT));
    char word[300];
    memset(word, 'x', sizeof word);
    word[299] = 0;
    CHECK(FAILS(fsconfig_(fd, SET_FLAG, word, NULL, 0), EINVAL) && FAILS(fsconfig_(fd, SET_STRING, "size", word, 0), EINVAL));
    CHECK(FAILS(fsmount_(99, 0, 0), EBADF) && FAILS(fsmount_(1, 0, 0), EINVAL) && close(fd) == 0);
    // The log keeps the last eight messages.
    fd = fsopen_("tmpfs", 0);
    for (int i = 0; i < 10; i++) {
        char name[8];
        snprintf(name, sizeof name, "p%d", i);
        CHECK(FAILS(fsconfig_(fd, SET_FLAG, name, NULL, 0), EINVAL));
    }
    CHECK(log_says(fd, "e tmpfs: Unknown parameter 'p2'\n") && FAILS(read(fd, word, 3), EMSGSIZE) && close(fd) == 0);
    // Proc and sysfs have a word for them as well.
    fd = fsopen_("proc", 0);
    CHECK(fd >= 0 && FAILS(fsconfig_(fd, SET_FLAG, "what", NULL, 0), EINVAL) && log_says(fd, "e proc: Unknown parameter 'what'\n"));
    CHECK(fsconfig_(fd, CREATE, NULL, NULL, 0) == 0);
    int mounted = fsmount_(fd, 0, 0);
    char self[16];
    CHECK(mounted >= 0 && readlinkat(mounted, "self", self, sizeof self) > 0 && close(mounted) == 0 && close(fd) == 0);
}

static void flags_of_mount_and_umount(void) {
    struct statfs fs;
    CHECK(mount("flags", "b", "tmpfs", MS_NOSUID | MS_NODIRATIME | MS_SYNCHRONOUS | MS_LAZYTIME, "size=64k,nr_inodes=7") == 0);
    CHECK(begins(options("/tmp/t/b", NULL), "rw,nosuid,nodiratime,relatime rw,sync,lazytime"));
    CHECK(statfs("b", &fs) == 0 && fs.f_blocks == 16 && fs.f_files == 7);
    // A bind mount's flags are its own; the file system's are everybody's.
    CHECK(mount("b", "c", NULL, MS_BIND, NULL) == 0 && mount(NULL, "c", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL) == 0);
    CHECK(begins(options("/tmp/t/c", NULL), "ro,nodiratime,relatime rw,sync,lazytime") && mkdir("b/d", 0755) == 0);
    CHECK(mount(NULL, "b", NULL, MS_REMOUNT | MS_STRICTATIME, "size=128k") == 0 && statfs("b", &fs) == 0 && fs.f_blocks == 32);
    CHECK(begins(options("/tmp/t/b", NULL), "rw rw") && begins(options("/tmp/t/c", NULL), "ro,nodiratime,relatime rw"));
    CHECK(mount(NULL, "b", NULL, MS_REMOUNT | MS_RDONLY, NULL) == 0 && FAILS(rmdir("b/d"), EROFS));
    CHECK(begins(options("/tmp/t/b", NULL), "ro ro") && begins(options("/tmp/t/c", NULL), "ro,nodiratime,relatime ro"));
    CHECK(FAILS(mount(NULL, "b", NULL, MS_REMOUNT, "what=1"), EINVAL) && FAILS(mount(NULL, "b/d", NULL, MS_REMOUNT, NULL), EINVAL));
    CHECK(umount("c") == 0 && umount("b") == 0);
    // It goes when it is asked for twice and nobody used it meanwhile.
    CHECK(mount("expires", "b", "tmpfs", 0, NULL) == 0 && FAILS(umount2("b", MNT_EXPIRE | MNT_DETACH), EINVAL));
    CHECK(FAILS(umount2("b", MNT_EXPIRE | MNT_FORCE), EINVAL) && FAILS(umount2("b", MNT_EXPIRE), EAGAIN));
    CHECK(access("b", F_OK) == 0 && FAILS(umount2("b", MNT_EXPIRE), EAGAIN));
    int fd = open("b", O_RDONLY);
    CHECK(fd >= 0 && FAILS(umount2("b", MNT_EXPIRE), EBUSY) && close(fd) == 0 && FAILS(umount2("b", MNT_EXPIRE), EAGAIN));
    CHECK(umount2("b", MNT_EXPIRE) == 0 && FAILS(umount2("b", MNT_EXPIRE), EINVAL));
}

static void users_may_not(void) {
    int fd = fsopen_("tmpfs", 0), status;
    pid_t child = fork();
    CHECK(fd >= 0 && child >= 0);
    if (child == 0) {
        CHECK(setuid(1000) == 0);
        CHECK(FAILS(open_tree_(AT_FDCWD, "a", TREE_CLONE), EPERM) && open_tree_(AT_FDCWD, "a", 0) >= 0);
        CHECK(FAILS(move_mount_(AT_FDCWD, "none", AT_FDCWD, "b", 0x1000), EPERM) && FAILS(fsopen_("none", 2), EPERM));
        CHECK(FAILS(setattr_(AT_FDCWD, "none", 0, (struct attributes){ .set = RDONLY }), EPERM));
        CHECK(FAILS(fspick_(AT_FDCWD, "none", 16), EPERM) && FAILS(fsmount_(fd, 2, 0), EPERM));
        // Describing is open to whoever has the descriptor; making is not.
        CHECK(fsconfig_(fd, SET_STRING, "size", "1m", 0) == 0 && FAILS(fsconfig_(fd, CREATE, NULL, NULL, 0), EPERM));
        fflush(stdout);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(fsconfig_(fd, CREATE, NULL, NULL, 0) == 0 && close(fd) == 0);
}

// A tree goes to another mount namespace by its descriptor, and is nobody else's there.
static void a_tree_goes_to_another_namespace(void) {
    int fd = open_tree_(AT_FDCWD, "a", TREE_CLONE | RECURSIVE), status;
    CHECK(fd >= 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(unshare(CLONE_NEWNS) == 0 && move_mount_(fd, "", AT_FDCWD, "b", F_EMPTY) == 0);
        CHECK(says(AT_FDCWD, "b/m/in", "mounted") && FAILS(move_mount_(fd, "", AT_FDCWD, "c", F_EMPTY | 0x1000), EINVAL));
        fflush(stdout);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    // It went with the namespace.
    CHECK(FAILS(access("b/file", F_OK), ENOENT) && FAILS(move_mount_(fd, "", AT_FDCWD, "b", F_EMPTY), EINVAL) && close(fd) == 0);
}

// Message queues as files (mq_overview(7)).
static void queues_are_files(void) {
    struct mq_attr small = { .mq_maxmsg = 4, .mq_msgsize = 16 };
    struct statfs fs;
    struct stat is;
    char bytes[128] = "";
    mqd_t queue = mq_open("/one", O_CREAT | O_RDWR, 0600, &small);
    CHECK(queue >= 0 && mount("queues", "b", "mqueue", 0, NULL) == 0 && mount("queues", "c", "mqueue", 0, NULL) == 0);
    CHECK(statfs("b", &fs) == 0 && fs.f_type == 0x19800202 && stat("b", &is) == 0 && (is.st_mode & 07777) == 01777 && is.st_size == 60);
    CHECK(stat("b/one", &is) == 0 && S_ISREG(is.st_mode) && (is.st_mode & 07777) == 0600 && is.st_size == 80);
    CHECK(mq_send(queue, "hello", 5, 1) == 0);
    int fd = open("b/one", O_RDONLY);
    CHECK(fd >= 0 && read(fd, bytes, sizeof bytes) > 0 && begins(bytes, "QSIZE:5 ") && mq_receive(fd, bytes, sizeof bytes, NULL) == 5 && close(fd) == 0);
    CHECK(chmod("b/one", 0640) == 0 && stat("c/one", &is) == 0 && (is.st_mode & 07777) == 0640);
    // A file that is made is a queue like others, and the other way round.
    fd = open("c/two", O_CREAT | O_RDWR | O_EXCL, 0600);
    mqd_t two = mq_open("/two", O_RDWR);
    CHECK(fd >= 0 && two >= 0 && mq_send(two, "x", 1, 0) == 0 && pread(fd, bytes, sizeof bytes, 0) > 0 && begins(bytes, "QSIZE:1 "));
    CHECK(FAILS(mkdir("b/dir", 0755), EPERM) && FAILS(symlink("one", "b/link"), EPERM) && FAILS(mkfifo("b/fifo", 0600), EPERM));
    DIR *dir = opendir("b");
    int seen = 0;
    for (struct dirent *e; dir && (e = readdir(dir));)
        seen += strcmp(e->d_name, "one") == 0 ? 1 : strcmp(e->d_name, "two") == 0 ? 10 : e->d_name[0] == '.' ? 0 : 100;
    CHECK(dir && closedir(dir) == 0 && seen == 11);
    CHECK(unlink("b/two") == 0 && FAILS(mq_open("/two", O_RDWR), ENOENT) && FAILS(unlink("b/two"), ENOENT) && mq_unlink("/one") == 0);
    CHECK(FAILS(access("b/one", F_OK), ENOENT) && close(fd) == 0 && mq_close(two) == 0 && mq_close(queue) == 0);
    // Another IPC namespace has others.
    int status;
    queue = mq_open("/ours", O_CREAT | O_RDWR, 0600, &small);
    pid_t child = fork();
    CHECK(queue >= 0 && child >= 0);
    if (child == 0) {
        CHECK(unshare(CLONE_NEWIPC | CLONE_NEWNS) == 0 && mount("queues", "d", "mqueue", 0, NULL) == 0);
        CHECK(FAILS(access("d/ours", F_OK), ENOENT) && access("b/ours", F_OK) == 0);
        fflush(stdout);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0 && unlink("c/ours") == 0 && mq_close(queue) == 0);
    // One in which nobody is any more gets no queues.
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(unshare(CLONE_NEWIPC) == 0 && mq_open("/left", O_CREAT | O_RDWR, 0600, &small) >= 0);
        CHECK(mount("queues", "d", "mqueue", 0, NULL) == 0);
        fflush(stdout);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0 && access("d/left", F_OK) == 0);
    CHECK(FAILS(open("d/more", O_CREAT | O_RDWR, 0600), EACCES) && umount("d") == 0);
    CHECK(umount("b") == 0 && umount("c") == 0);
}

int main(void) {
    CHECK(unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    CHECK(mount("outer", "/tmp", "tmpfs", 0, NULL) == 0 && mkdir("/tmp/t", 0755) == 0);
    CHECK(mount("outer", "/tmp/t", "tmpfs", 0, "mode=755") == 0 && chdir("/tmp/t") == 0);
    a_copy_is_mounted_where_it_is_moved();
    what_nobody_mounts_goes_with_its_descriptor();
    errors_of_trees();
    attributes_of_one_mount_and_of_a_tree();
    a_private_mount_joins_the_groups_of_another();
    a_file_system_is_described_made_and_mounted();
    errors_of_contexts();
    flags_of_mount_and_umount();
    users_may_not();
    queues_are_files();
    a_tree_goes_to_another_namespace();
    puts("all tests of mounts by descriptors passed");
    return 0;
}
