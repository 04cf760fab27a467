// SPDX-License-Identifier: Apache-2.0 OR MIT
// Union mounts (mount -t overlay): what mount(2) takes and refuses, what programs see of a copied file, and users' namespaces. On Linux:
// as root. Random sequences are in sequences/overlays.c.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define FAILS(call, error) (errno = 0, (call) == -1 && errno == (error))

static void put(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && close(fd) == 0);
}

static int says(const char *path, const char *text) {
    char is[64] = "";
    int fd = open(path, O_RDONLY);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, is, sizeof is - 1);
    close(fd);
    return n >= 0 && strcmp(is, text) == 0;
}

static int overlay(const char *at, const char *options) {
    return mount("overlay", at, "overlay", 0, options);
}

static void layers_are_one_tree(void) {
    struct statfs fs;
    struct stat before, after, root;
    char line[1024];
    int shown = 0;
    CHECK(overlay("m", "lowerdir=l1:l2,upperdir=u,workdir=w") == 0);
    CHECK(says("m/one", "1") && says("m/two", "2") && says("m/both", "first") && says("m/d/in2", "2"));
    CHECK(statfs("m", &fs) == 0 && fs.f_type == 0x794c7630);
    FILE *file = fopen("/proc/self/mountinfo", "r");
    while (file && fgets(line, sizeof line, file))
        shown += strstr(line, " /tmp/o/m rw,relatime - overlay overlay rw,lowerdir=l1:l2,upperdir=u,workdir=w") != NULL;
    CHECK(file && fclose(file) == 0 && shown == 1);
    // A copied file is the same file, to whom has it open, too.
    int old = open("m/both", O_RDONLY);
    CHECK(old >= 0 && fstat(old, &before) == 0 && stat("m", &root) == 0 && before.st_dev == root.st_dev);
    char *map = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, old, 0), bytes[8];
    CHECK(map != MAP_FAILED && map[0] == 'f');
    int new = open("m/both", O_RDWR);
    CHECK(new >= 0 && pwrite(new, "F", 1, 0) == 1 && fsync(new) == 0 && pread(old, bytes, 5, 0) == 5 && memcmp(bytes, "First", 5) == 0);
    CHECK(fstat(new, &after) == 0 && after.st_ino == before.st_ino && after.st_dev == before.st_dev);
    CHECK(says("l1/both", "first") && says("u/both", "First") && munmap(map, 4096) == 0);
    char *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, new, 0);
    CHECK(shared != MAP_FAILED && (shared[1] = 'I') && pread(new, bytes, 5, 0) == 5 && memcmp(bytes, "FIrst", 5) == 0);
    CHECK(munmap(shared, 4096) == 0 && close(old) == 0 && close(new) == 0);
    // It keeps what it was: times, attributes, and holes.
    CHECK(stat("m/kept", &before) == 0 && chmod("m/kept", 0600) == 0 && stat("m/kept", &after) == 0);
    CHECK(after.st_mtim.tv_sec == 12345 && after.st_uid == 7 && after.st_gid == 8 && after.st_size == 8 << 20 && after.st_blocks < 5000);
    CHECK(getxattr("u/kept", "user.note", bytes, sizeof bytes) == 4 && memcmp(bytes, "note", 4) == 0);
    // The file system's own are not shown (EOPNOTSUPP until Linux 6.6, ENODATA from there on).
    CHECK(getxattr("m/kept", "trusted.overlay.origin", bytes, sizeof bytes) == -1 && getxattr("u/kept", "trusted.overlay.origin", line, sizeof line) > 0);
    // Removed, and made anew.
    CHECK(unlink("m/two") == 0 && FAILS(access("m/two", F_OK), ENOENT) && lstat("u/two", &after) == 0 && S_ISCHR(after.st_mode) && after.st_rdev == 0);
    put("m/two", "new");
    CHECK(says("m/two", "new") && says("l2/two", "2"));
    CHECK(FAILS(rmdir("m/d"), ENOTEMPTY) && unlink("m/d/in1") == 0 && unlink("m/d/in2") == 0 && rmdir("m/d") == 0);
    CHECK(mkdir("m/d", 0755) == 0 && FAILS(access("m/d/in1", F_OK), ENOENT) && getxattr("u/d", "trusted.overlay.opaque", bytes, 8) == 1);
    CHECK(FAILS(rename("m/e", "m/e2"), EXDEV) && rename("m/d", "m/d2") == 0 && FAILS(mknod("m/white", S_IFCHR, 0), EPERM));
    CHECK(FAILS(renameat2(AT_FDCWD, "m/one", AT_FDCWD, "m/moved", RENAME_WHITEOUT), EINVAL) && rename("m/one", "m/moved") == 0);
    CHECK(says("m/moved", "1") && FAILS(access("m/one", F_OK), ENOENT) && FAILS(link("m/moved", "u/out"), EXDEV));
    // All of it is there when it is mounted again.
    CHECK(umount("m") == 0 && overlay("m", "lowerdir=l1:l2,upperdir=u,workdir=w") == 0);
    CHECK(says("m/both", "FIrst") && says("m/two", "new") && FAILS(access("m/one", F_OK), ENOENT) && FAILS(access("m/d", F_OK), ENOENT));
    CHECK(stat("m/both", &after) == 0 && access("m/d2", F_OK) == 0 && umount("m") == 0);
}

static void without_an_upper_directory_it_is_for_reading(void) {
    CHECK(overlay("m", "lowerdir=l1:l2") == 0 && says("m/both", "first") && says("m/two", "2"));
    CHECK(FAILS(open("m/both", O_RDWR), EROFS) && FAILS(mkdir("m/x", 0755), EROFS) && FAILS(unlink("m/two"), EROFS) && umount("m") == 0);
    // A colon in a name, and a union on a union, whose whiteouts and opaque directories count.
    CHECK(overlay("m", "lowerdir=co\\:lon:u:l1:l2") == 0 && says("m/in colon", "c") && FAILS(access("m/one", F_OK), ENOENT));
    CHECK(mkdir("m2", 0755) == 0 && overlay("m2", "lowerdir=m:l2") == 0 && says("m2/in colon", "c") && umount("m2") == 0 && umount("m") == 0);
}

static void errors(void) {
    CHECK(FAILS(overlay("m", NULL), EINVAL) && FAILS(overlay("m", "lowerdir=l1"), EINVAL) && FAILS(overlay("m", "what=1,lowerdir=l1:l2"), EINVAL));
    CHECK(FAILS(overlay("m", "lowerdir=l1,upperdir=u"), EINVAL) && FAILS(overlay("m", "upperdir=u,workdir=w"), EINVAL));
    CHECK(FAILS(overlay("m", "lowerdir=none,upperdir=u,workdir=w"), ENOENT) && FAILS(overlay("m", "lowerdir=l1,upperdir=none,workdir=w"), ENOENT));
    CHECK(FAILS(overlay("m", "lowerdir=l1/one,upperdir=u,workdir=w"), EINVAL) && FAILS(overlay("m", "lowerdir=l1,upperdir=u,workdir=u/d2"), EINVAL));
    CHECK(FAILS(overlay("m", "lowerdir=l1,upperdir=u,workdir=u"), EINVAL) && FAILS(overlay("m", "lowerdir=l1,upperdir=u,workdir=other"), EINVAL));
    CHECK(FAILS(overlay("m", "lowerdir=l1:,upperdir=u,workdir=w"), EINVAL) && FAILS(overlay("none", "lowerdir=l1:l2"), ENOENT));
}

static void say_map(const char *path, const char *text) {
    int fd = open(path, O_WRONLY);
    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && close(fd) == 0);
}

static void in_a_users_namespace(void) {
    int status;
    CHECK(mkdir("users", 0755) == 0 && chown("users", 1000, 1000) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(setgid(1000) == 0 && setuid(1000) == 0 && prctl(PR_SET_DUMPABLE, 1) == 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0);
        say_map("/proc/self/setgroups", "deny");
        say_map("/proc/self/uid_map", "0 1000 1");
        say_map("/proc/self/gid_map", "0 1000 1");
        CHECK(chdir("users") == 0 && mkdir("l", 0755) == 0 && mkdir("l/d", 0755) == 0 && mkdir("u", 0755) == 0 && mkdir("w", 0755) == 0 && mkdir("m", 0755) == 0);
        put("l/file", "low");
        put("l/d/in", "low");
        CHECK(overlay("m", "lowerdir=l,upperdir=u,workdir=w,userxattr") == 0);
        put("m/file", "high");
        CHECK(says("m/file", "high") && says("l/file", "low") && unlink("m/file") == 0 && FAILS(access("m/file", F_OK), ENOENT));
        CHECK(unlink("m/d/in") == 0 && rmdir("m/d") == 0 && mkdir("m/d", 0755) == 0 && FAILS(access("m/d/in", F_OK), ENOENT));
        CHECK(umount("m") == 0);
        fflush(stdout);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(void) {
    CHECK(unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    CHECK(mount("outer", "/tmp", "tmpfs", 0, NULL) == 0 && mkdir("/tmp/o", 0755) == 0 && chdir("/tmp/o") == 0);
    static const char *const directories[] = { "l1", "l2", "u", "w", "m", "other", "l1/d", "l2/d", "l1/e", "co:lon" };
    for (unsigned i = 0; i < sizeof directories / sizeof *directories; i++)
        CHECK(mkdir(directories[i], 0755) == 0);
    CHECK(mount("other", "other", "tmpfs", 0, NULL) == 0);
    put("l1/one", "1");
    put("l2/two", "2");
    put("l1/both", "first");
    put("l2/both", "second");
    put("l1/d/in1", "1");
    put("l2/d/in2", "2");
    put("co:lon/in colon", "c");
    put("l2/kept", "k");
    struct timespec times[2] = { { .tv_sec = 1 }, { .tv_sec = 12345 } };
    CHECK(truncate("l2/kept", 8 << 20) == 0 && chown("l2/kept", 7, 8) == 0 && setxattr("l2/kept", "user.note", "note", 4, 0) == 0);
    CHECK(utimensat(AT_FDCWD, "l2/kept", times, 0) == 0);
    layers_are_one_tree();
    without_an_upper_directory_it_is_for_reading();
    errors();
    in_a_users_namespace();
    puts("all tests of union mounts passed");
    return 0;
}
