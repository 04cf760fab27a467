// SPDX-License-Identifier: Apache-2.0 OR MIT
// Bind mounts, moved mounts, mount and UTS namespaces, pivot_root(2). On Linux: as root; what is mounted is gone with the program.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#define FAILS(call, error) (errno = 0, (call) == -1 && errno == (error))

static void in_child(void (*run)(void)) {
    int status;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        run();
        fflush(stdout);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

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

// A field of the line in /proc/self/mountinfo for what is mounted there last.
static int info(const char *place, int wanted, char *field, size_t size) {
    char line[1024], found = 0;
    FILE *file = fopen("/proc/self/mountinfo", "r");
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file)) {
        char *rest = line, *fields[16] = { 0 };
        for (int i = 0; i < 16 && (fields[i] = strsep(&rest, " \n")); i++)
            ;
        if (strcmp(fields[4], place) == 0) {
            snprintf(field, size, "%s", fields[wanted]);
            found = 1;
        }
    }
    fclose(file);
    return found;
}

static void both_places_show_the_same(void) {
    struct stat a, b;
    CHECK(mkdir("a", 0755) == 0 && mkdir("a/sub", 0755) == 0 && mkdir("b", 0755) == 0);
    put("a/file", "one");
    CHECK(mount("a", "b", NULL, MS_BIND, NULL) == 0 && says("b/file", "one"));
    CHECK(stat("a/file", &a) == 0 && stat("b/file", &b) == 0 && a.st_ino == b.st_ino && a.st_dev == b.st_dev);
    // Whoever makes, changes or removes a name, both see it, although they have seen it otherwise before.
    put("b/new", "two");
    CHECK(says("a/new", "two") && unlink("a/new") == 0 && FAILS(access("b/new", F_OK), ENOENT));
    CHECK(says("a/file", "one") && says("b/file", "one"));
    CHECK(rename("b/file", "b/renamed") == 0 && FAILS(access("a/file", F_OK), ENOENT) && says("a/renamed", "one"));
    put("a/file", "three");
    CHECK(says("b/file", "three") && rename("a/renamed", "a/file") == 0 && says("b/file", "one"));
    CHECK(FAILS(access("b/renamed", F_OK), ENOENT));
    CHECK(access("b/sub", F_OK) == 0 && rmdir("a/sub") == 0 && FAILS(mkdir("b/sub/below", 0755), ENOENT));
    CHECK(mkdir("b/sub", 0755) == 0 && access("a/sub", F_OK) == 0);
    int dir = open("b/sub", O_RDONLY | O_DIRECTORY);
    CHECK(dir >= 0 && rmdir("a/sub") == 0 && FAILS(mkdirat(dir, "below", 0755), ENOENT) && close(dir) == 0);
    // They are different mounts nevertheless.
    CHECK(FAILS(rename("a/file", "b/other"), EXDEV) && FAILS(link("a/file", "b/other"), EXDEV));
    CHECK(umount("b") == 0 && FAILS(access("b/file", F_OK), ENOENT) && says("a/file", "one"));
}

static void one_of_them_may_be_read_only(void) {
    struct statfs fs;
    char field[256];
    CHECK(mount("a", "b", NULL, MS_BIND | MS_RDONLY, NULL) == 0);
    put("b/file", "not yet");
    CHECK(mount(NULL, "b", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOEXEC, NULL) == 0);
    CHECK(FAILS(open("b/file", O_WRONLY), EROFS) && FAILS(unlink("b/file"), EROFS) && FAILS(mkdir("b/d", 0755), EROFS));
    CHECK(statfs("b", &fs) == 0 && fs.f_flags & MS_RDONLY && statfs("a", &fs) == 0 && !(fs.f_flags & MS_RDONLY));
    put("a/file", "one");
    CHECK(says("b/file", "one"));
    CHECK(info("/tmp/tree/b", 3, field, sizeof field) && strcmp(field, "/a") == 0);
    CHECK(info("/tmp/tree/b", 5, field, sizeof field) && strncmp(field, "ro,", 3) == 0);
    // A copy of it is as it is.
    CHECK(mkdir("c", 0755) == 0 && mount("b", "c", NULL, MS_BIND, NULL) == 0 && FAILS(mkdir("c/d", 0755), EROFS));
    CHECK(umount("c") == 0 && umount("b") == 0 && rmdir("c") == 0);
    // Only what is mounted can be remounted.
    CHECK(FAILS(mount(NULL, "b", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL), EINVAL));
}

static void files_are_bound_as_well(void) {
    put("over", "covered");
    CHECK(mount("a/file", "over", NULL, MS_BIND, NULL) == 0 && says("over", "one"));
    put("over", "written");
    CHECK(says("a/file", "written") && FAILS(unlink("over"), EBUSY) && FAILS(rename("over", "x"), EBUSY));
    CHECK(umount("over") == 0 && says("over", "covered"));
    put("a/file", "one");
    CHECK(FAILS(mount("a", "over", NULL, MS_BIND, NULL), ENOTDIR) && FAILS(mount("over", "a", NULL, MS_BIND, NULL), ENOTDIR));
    CHECK(FAILS(mount("none", "a", NULL, MS_BIND, NULL), ENOENT) && FAILS(mount("a", "none", NULL, MS_BIND, NULL), ENOENT));
    CHECK(FAILS(mount(NULL, "a", NULL, MS_BIND, NULL), EINVAL) && FAILS(mount("", "a", NULL, MS_BIND, NULL), EINVAL));
    CHECK(FAILS(umount("a"), EINVAL) && FAILS(umount("over"), EINVAL) && FAILS(umount2("a", 128), EINVAL));
}

static void what_is_mounted_below_comes_along_when_asked(void) {
    CHECK(mkdir("a/m", 0755) == 0 && mount("mem", "a/m", "tmpfs", 0, NULL) == 0 && mkdir("a/m/n", 0755) == 0);
    CHECK(mount("more", "a/m/n", "tmpfs", 0, "size=64k") == 0);
    put("a/m/in", "mounted");
    put("a/m/n/deep", "deeper");
    CHECK(mount("a", "b", NULL, MS_BIND, NULL) == 0 && FAILS(access("b/m/in", F_OK), ENOENT) && umount("b") == 0);
    CHECK(mount("a", "b", NULL, MS_BIND | MS_REC, NULL) == 0 && says("b/m/in", "mounted") && says("b/m/n/deep", "deeper"));
    put("b/m/n/deep", "again");
    CHECK(says("a/m/n/deep", "again"));
    CHECK(FAILS(umount("b"), EBUSY) && umount("a/m/n") == 0 && says("b/m/n/deep", "again"));
    CHECK(umount2("b", MNT_DETACH) == 0 && FAILS(access("b/m", F_OK), ENOENT) && says("a/m/in", "mounted"));
    // Into itself, once.
    CHECK(mkdir("a/self", 0755) == 0 && mount("a", "a/self", NULL, MS_BIND | MS_REC, NULL) == 0 && says("a/self/file", "one"));
    CHECK(says("a/self/m/in", "mounted") && FAILS(access("a/self/self/file", F_OK), ENOENT));
    CHECK(umount2("a/self", MNT_DETACH) == 0 && rmdir("a/self") == 0);
}

static void a_mount_is_moved_with_what_is_below_it(void) {
    CHECK(mkdir("to", 0755) == 0 && mkdir("a/m/t", 0755) == 0 && mount("t", "a/m/t", "tmpfs", 0, NULL) == 0);
    put("a/m/t/file", "below");
    CHECK(FAILS(mount("a/m", "a/m/t", NULL, MS_MOVE, NULL), ELOOP) && FAILS(mount("a/m/n", "to", NULL, MS_MOVE, NULL), EINVAL));
    CHECK(FAILS(mount("a/m", "over", NULL, MS_MOVE, NULL), EINVAL) && FAILS(mount(NULL, "to", NULL, MS_MOVE, NULL), EINVAL));
    int fd = open("a/m/in", O_RDONLY);
    char path[64] = "", link[32];
    CHECK(fd >= 0 && mount("a/m", "to", NULL, MS_MOVE, NULL) == 0);
    CHECK(says("to/in", "mounted") && says("to/t/file", "below") && FAILS(access("a/m/in", F_OK), ENOENT));
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    CHECK(readlink(link, path, sizeof path - 1) > 0 && strcmp(path, "/tmp/tree/to/in") == 0);
    CHECK(FAILS(umount("to/t/file"), EINVAL) && umount("to/t") == 0 && FAILS(umount("to"), EBUSY) && close(fd) == 0);
    CHECK(umount("to") == 0 && rmdir("a/m") == 0);
}

static void what_is_open_outlives_the_mount(void) {
    char path[256] = "";
    CHECK(mount("gone", "to", "tmpfs", 0, NULL) == 0 && mkdir("to/dir", 0755) == 0);
    put("to/dir/file", "open");
    int dir = open("to/dir", O_RDONLY | O_DIRECTORY);
    CHECK(dir >= 0 && FAILS(umount("to"), EBUSY) && umount2("to", MNT_DETACH) == 0);
    CHECK(FAILS(access("to/dir", F_OK), ENOENT) && faccessat(dir, "file", F_OK, 0) == 0);
    CHECK(faccessat(dir, "../dir/file", F_OK, 0) == 0 && faccessat(dir, "../../../dir/file", F_OK, 0) == 0);
    CHECK(fchdir(dir) == 0 && syscall(SYS_getcwd, path, sizeof path) > 0 && strncmp(path, "(unreachable)", 13) == 0);
    CHECK(mount("/tmp/tree/a", ".", NULL, MS_BIND, NULL) == -1 && FAILS(mount(".", "/tmp/tree/b", NULL, MS_BIND, NULL), EINVAL));
    CHECK(chdir("/tmp/tree") == 0 && close(dir) == 0);
}

static void no_directory_gets_into_itself(void) {
    CHECK(mkdir("l", 0755) == 0 && mkdir("l/x", 0755) == 0 && mkdir("l/y", 0755) == 0 && mkdir("r", 0755) == 0);
    CHECK(mount("l", "r", NULL, MS_BIND, NULL) == 0);
    int x = open("l/x", O_RDONLY), l = open("l", O_RDONLY);
    CHECK(x >= 0 && l >= 0 && faccessat(l, "y", F_OK, 0) == 0);
    // By the other mount the one comes to be in the other.
    CHECK(rename("r/x", "r/y/x") == 0);
    CHECK(FAILS(renameat(l, "y", x, "y"), EINVAL) && FAILS(syscall(SYS_renameat2, l, "y", x, "y", 2), ENOENT));
    CHECK(rename("l/y/x", "l/x") == 0 && close(x) == 0 && close(l) == 0 && umount("r") == 0);
}

static void file_systems_and_their_options(void) {
    struct stat st;
    struct statfs fs;
    char field[256];
    CHECK(mount("a name", "b", "tmpfs", MS_NOSUID, "mode=0750,uid=5,gid=6,size=1m") == 0 && stat("b", &st) == 0);
    CHECK((st.st_mode & 07777) == 0750 && st.st_uid == 5 && st.st_gid == 6);
    CHECK(statfs("b", &fs) == 0 && fs.f_blocks * fs.f_bsize == 1 << 20);
    CHECK(info("/tmp/tree/b", 8, field, sizeof field) || info("/tmp/tree/b", 9, field, sizeof field));
    CHECK(strcmp(field, "a\\040name") == 0 && umount("b") == 0);
    CHECK(FAILS(mount("x", "b", "tmpfs", 0, "mode=9"), EINVAL) && FAILS(mount("x", "b", "tmpfs", 0, "unheard=1"), EINVAL));
    CHECK(FAILS(mount("x", "b", "no such", 0, NULL), ENODEV) && FAILS(mount("x", "b", NULL, 0, NULL), EINVAL));
    CHECK(FAILS(mount("x", "b", (char *)8, 0, NULL), EFAULT) && FAILS(mount("x", "none", "tmpfs", 0, NULL), ENOENT));
    CHECK(mount("proc", "b", "proc", 0, NULL) == 0 && access("b/self/status", R_OK) == 0 && umount("b") == 0);
    CHECK(mount(NULL, "/tmp/tree", NULL, MS_PRIVATE, NULL) == 0 && mount(NULL, "/tmp/tree", NULL, MS_SLAVE | MS_REC, NULL) == 0);
    CHECK(FAILS(mount(NULL, "a", NULL, MS_PRIVATE, NULL), EINVAL));
    CHECK(FAILS(mount(NULL, "/tmp/tree", NULL, MS_PRIVATE | MS_SLAVE, NULL), EINVAL));
}

static void users_may_not(void) {
    CHECK(chdir("/tmp/tree") == 0 && setgid(1000) == 0 && setuid(1000) == 0);
    CHECK(FAILS(mount("a", "b", NULL, MS_BIND, NULL), EPERM) && FAILS(mount("none", "b", NULL, MS_BIND, NULL), EPERM));
    CHECK(FAILS(mount("a", "none", NULL, MS_BIND, NULL), ENOENT) && FAILS(umount("/tmp/tree"), EPERM));
    CHECK(FAILS(unshare(CLONE_NEWNS), EPERM) && FAILS(syscall(SYS_pivot_root, "none", "b"), EPERM));
    int ns = open("/proc/self/ns/mnt", O_RDONLY);
    CHECK(ns >= 0 && FAILS(setns(ns, CLONE_NEWNS), EPERM));
}

static ino_t namespace_of(const char *process) {
    char path[64];
    struct stat st;
    snprintf(path, sizeof path, "/proc/%s/ns/mnt", process);
    CHECK(stat(path, &st) == 0);
    return st.st_ino;
}

static int outer;

static void what_a_namespace_mounts_stays_in_it(void) {
    char path[256] = "", was[256];
    ino_t before = namespace_of("self");
    CHECK(chdir("a") == 0 && getcwd(was, sizeof was));
    int here = open(".", O_RDONLY);
    CHECK(FAILS(unshare(CLONE_NEWNS | 1), EINVAL) && namespace_of("self") == before);
    CHECK(unshare(CLONE_NEWNS) == 0 && namespace_of("self") != before);
    CHECK(getcwd(path, sizeof path) && strcmp(path, was) == 0 && chdir("/tmp/tree") == 0);
    CHECK(mount("own", "b", "tmpfs", 0, NULL) == 0);
    put("b/inside", "inside");
    // Files are the same.
    put("a/shared", "shared");
    // A descriptor of before is of the mounts of before.
    CHECK(faccessat(here, "../b/inside", F_OK, 0) == -1 && faccessat(here, "shared", F_OK, 0) == 0);
    int own = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    CHECK(own >= 0 && FAILS(setns(outer, CLONE_NEWUTS), EINVAL) && setns(outer, CLONE_NEWNS) == 0);
    CHECK(namespace_of("self") == before && access("/tmp/tree/b/inside", F_OK) == -1 && says("/tmp/tree/a/shared", "shared"));
    CHECK(getcwd(path, sizeof path) && strcmp(path, "/") == 0);
    CHECK(setns(own, 0) == 0 && says("/tmp/tree/b/inside", "inside") && FAILS(setns(here, 0), EINVAL) && FAILS(setns(-1, 0), EBADF));
    in_child(users_may_not);
    CHECK(umount("/tmp/tree/b") == 0 && close(here) == 0 && close(own) == 0);
}

static void a_child_in_a_namespace_of_its_own(void) {
    int status, ready[2], done[2];
    char byte, path[64];
    CHECK(FAILS(syscall(SYS_clone, CLONE_NEWNS | CLONE_FS | SIGCHLD, 0, 0, 0, 0), EINVAL));
    CHECK(pipe(ready) == 0 && pipe(done) == 0);
    pid_t child = syscall(SYS_clone, CLONE_NEWNS | SIGCHLD, 0, 0, 0, 0);
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(mount("childs", "b", "tmpfs", 0, NULL) == 0);
        put("b/only", "here");
        CHECK(write(ready[1], "x", 1) == 1 && read(done[0], &byte, 1) == 1);
        _exit(0);
    }
    CHECK(read(ready[0], &byte, 1) == 1 && FAILS(access("b/only", F_OK), ENOENT));
    snprintf(path, sizeof path, "/proc/%d/root/tmp/tree/b/only", child);
    CHECK(says(path, "here"));
    snprintf(path, sizeof path, "%d", child);
    CHECK(namespace_of(path) != namespace_of("self"));
    snprintf(path, sizeof path, "/proc/%d/mounts", child);
    FILE *mounts = fopen(path, "r");
    char line[512], found = 0;
    while (mounts && fgets(line, sizeof line, mounts))
        found |= strstr(line, "childs /tmp/tree/b tmpfs") != NULL;
    CHECK(found && fclose(mounts) == 0);
    CHECK(write(done[1], "x", 1) == 1 && waitpid(child, &status, 0) == child && status == 0);
    close(ready[0]), close(ready[1]), close(done[0]), close(done[1]);
}

static void names_of_the_computer(void) {
    char before[65], name[65];
    CHECK(gethostname(before, sizeof before) == 0);
    int out = open("/proc/self/ns/uts", O_RDONLY | O_CLOEXEC);
    CHECK(out >= 0 && unshare(CLONE_NEWUTS) == 0 && gethostname(name, sizeof name) == 0 && strcmp(name, before) == 0);
    CHECK(sethostname("another", 7) == 0 && gethostname(name, sizeof name) == 0 && strcmp(name, "another") == 0);
    CHECK(says("/proc/sys/kernel/hostname", "another\n"));
    int in = open("/proc/self/ns/uts", O_RDONLY | O_CLOEXEC);
    struct stat one, other;
    CHECK(in >= 0 && fstat(in, &one) == 0 && fstat(out, &other) == 0 && one.st_ino != other.st_ino);
    CHECK(FAILS(setns(out, CLONE_NEWNS), EINVAL) && setns(out, CLONE_NEWUTS) == 0);
    CHECK(gethostname(name, sizeof name) == 0 && strcmp(name, before) == 0);
    pid_t child = syscall(SYS_clone, CLONE_NEWUTS | SIGCHLD, 0, 0, 0, 0);
    CHECK(child >= 0);
    if (child == 0)
        _exit(sethostname("child", 5) != 0);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(gethostname(name, sizeof name) == 0 && strcmp(name, before) == 0);
    CHECK(setns(in, 0) == 0 && gethostname(name, sizeof name) == 0 && strcmp(name, "another") == 0);
}

static void the_root_is_exchanged(void) {
    char path[256];
    CHECK(unshare(CLONE_NEWNS) == 0 && mkdir("new", 0755) == 0);
    CHECK(FAILS(syscall(SYS_pivot_root, "new", "new"), EINVAL) && FAILS(syscall(SYS_pivot_root, "/", "/"), EBUSY));
    CHECK(mount("newroot", "new", "tmpfs", 0, NULL) == 0 && mkdir("new/old", 0755) == 0 && mkdir("new/proc", 0755) == 0);
    put("new/file", "new root");
    CHECK(FAILS(syscall(SYS_pivot_root, "none", "new"), ENOENT) && FAILS(syscall(SYS_pivot_root, "new/file", "new"), ENOTDIR));
    CHECK(FAILS(syscall(SYS_pivot_root, "new/old", "new/old"), EINVAL));
    CHECK(mount("proc", "new/proc", "proc", 0, NULL) == 0 && chdir("/") == 0);
    CHECK(syscall(SYS_pivot_root, "/tmp/tree/new", "/tmp/tree/new/old") == 0);
    CHECK(says("/file", "new root") && says("/old/tmp/tree/a/file", "one"));
    // Whoever was in the old root is in the new one.
    CHECK(getcwd(path, sizeof path) && strcmp(path, "/") == 0 && says("file", "new root"));
    CHECK(info("/", 3, path, sizeof path) && info("/old", 3, path, sizeof path));
    CHECK(FAILS(umount("/old"), EBUSY) && umount2("/old", MNT_DETACH) == 0 && FAILS(access("/old/tmp", F_OK), ENOENT));
}

static void the_root_is_exchanged_without_a_place_for_the_old_one(void) {
    CHECK(unshare(CLONE_NEWNS) == 0 && mount("newroot", "new", "tmpfs", 0, NULL) == 0);
    put("new/file", "stacked");
    CHECK(chdir("new") == 0 && syscall(SYS_pivot_root, ".", ".") == 0 && umount2(".", MNT_DETACH) == 0);
    CHECK(chdir("/") == 0 && says("file", "stacked") && says("/file", "stacked") && FAILS(access("/tmp", F_OK), ENOENT));
}

int main(void) {
    CHECK(unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    CHECK(mount("tree", "/tmp", "tmpfs", 0, NULL) == 0 && mkdir("/tmp/tree", 0755) == 0);
    CHECK(mount("tree", "/tmp/tree", "tmpfs", 0, "mode=755") == 0 && chdir("/tmp/tree") == 0);
    outer = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    CHECK(outer >= 0);
    both_places_show_the_same();
    one_of_them_may_be_read_only();
    files_are_bound_as_well();
    what_is_mounted_below_comes_along_when_asked();
    a_mount_is_moved_with_what_is_below_it();
    what_is_open_outlives_the_mount();
    no_directory_gets_into_itself();
    file_systems_and_their_options();
    in_child(users_may_not);
    in_child(what_a_namespace_mounts_stays_in_it);
    CHECK(FAILS(access("b/inside", F_OK), ENOENT));
    a_child_in_a_namespace_of_its_own();
    in_child(names_of_the_computer);
    in_child(the_root_is_exchanged);
    CHECK(says("/tmp/tree/a/file", "one") && access("new", F_OK) == 0);
    in_child(the_root_is_exchanged_without_a_place_for_the_old_one);
    puts("all mount tests passed");
    return 0;
}
