// SPDX-License-Identifier: Apache-2.0 OR MIT
// Files: flags and error cases of the calls about names, contents and descriptors.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define FAILS(call, error) (errno = 0, (call) == -1 && errno == (error))

static char dir[64];

static int make(const char *name, const char *text) {
    int fd = open(name, O_CREAT | O_TRUNC | O_RDWR, 0644);
    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    return fd;
}

static long openat2_(int at, const char *path, uint64_t flags, uint64_t mode, uint64_t resolve) {
    struct open_how how = { flags, mode, resolve };
    return syscall(SYS_openat2, at, path, &how, sizeof how);
}

static void opening(void) {
    int fd = make("a", "hello");
    CHECK(FAILS(open("a", O_CREAT | O_EXCL | O_RDWR, 0644), EEXIST));
    CHECK(FAILS(open("a", O_DIRECTORY), ENOTDIR));
    CHECK(FAILS(open("a/", O_RDONLY), ENOTDIR));
    CHECK(FAILS(open("a/b", O_RDONLY), ENOTDIR));
    CHECK(FAILS(open("nowhere", O_RDONLY), ENOENT));
    CHECK(FAILS(open("", O_RDONLY), ENOENT));
    CHECK(FAILS(open(".", O_RDWR), EISDIR));
    CHECK(FAILS(open(".", O_CREAT | O_RDONLY, 0600), EISDIR));
    CHECK(FAILS(open("new/", O_CREAT | O_RDWR, 0600), EISDIR));
    CHECK(FAILS(open((char *)-1, O_RDONLY), EFAULT));
    char name[NAME_MAX + 2], path[PATH_MAX + 2];
    memset(name, 'n', sizeof name - 1), name[sizeof name - 1] = 0;
    CHECK(FAILS(open(name, O_RDONLY), ENAMETOOLONG));
    name[NAME_MAX] = 0;
    CHECK(FAILS(open(name, O_RDONLY), ENOENT));
    memset(path, '/', sizeof path - 1), path[sizeof path - 1] = 0;
    CHECK(FAILS(open(path, O_RDONLY), ENAMETOOLONG));
    CHECK(symlink("loop", "loop") == 0 && FAILS(open("loop", O_RDONLY), ELOOP));
    CHECK(symlink("a", "link") == 0 && FAILS(open("link", O_RDONLY | O_NOFOLLOW), ELOOP));
    CHECK(FAILS(open("link", O_CREAT | O_EXCL | O_RDWR, 0600), EEXIST));
    // A dangling link is followed by O_CREAT.
    CHECK(symlink("target", "dangling") == 0);
    int made = open("dangling", O_CREAT | O_RDWR, 0600);
    CHECK(made >= 0 && access("target", F_OK) == 0 && close(made) == 0);
    int path_only = open("link", O_PATH | O_NOFOLLOW);
    char text[64];
    CHECK(path_only >= 0 && FAILS(read(path_only, text, 1), EBADF) && FAILS(fchmod(path_only, 0600), EBADF));
    CHECK(readlinkat(path_only, "", text, sizeof text) == 1 && text[0] == 'a');
    CHECK(FAILS(ioctl(path_only, FIONREAD, text), EBADF) && FAILS(fcntl(path_only, F_SETFL, 0), EBADF));
    CHECK((fcntl(path_only, F_GETFL) & O_PATH) == O_PATH);
    close(path_only);
    // The file system's name outlives O_TMPFILE's lack of one.
    int unnamed = open(".", O_TMPFILE | O_RDWR, 0600);
    CHECK(unnamed >= 0 && write(unnamed, "x", 1) == 1);
    struct stat st;
    CHECK(fstat(unnamed, &st) == 0 && st.st_nlink == 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", unnamed);
    CHECK(linkat(AT_FDCWD, path, AT_FDCWD, "named", AT_SYMLINK_FOLLOW) == 0);
    CHECK(stat("named", &st) == 0 && st.st_nlink == 1 && st.st_size == 1);
    close(unnamed);
    unnamed = open(".", O_TMPFILE | O_RDWR | O_EXCL, 0600);
    snprintf(path, sizeof path, "/proc/self/fd/%d", unnamed);
    CHECK(FAILS(linkat(AT_FDCWD, path, AT_FDCWD, "never", AT_SYMLINK_FOLLOW), ENOENT));
    close(unnamed);
    // A file that lost its last name gets no other.
    int lost = make("lost", "x");
    CHECK(unlink("lost") == 0 && FAILS(linkat(lost, "", AT_FDCWD, "found", AT_EMPTY_PATH), ENOENT));
    close(lost);
    CHECK(FAILS(open(".", O_TMPFILE | O_RDONLY, 0600), EINVAL));
    CHECK(FAILS(open("a", O_TMPFILE | O_RDWR, 0600), ENOTDIR));
    // O_APPEND: pwrite appends as well (Linux), position is behind.
    int append = open("a", O_APPEND | O_RDWR);
    CHECK(pwrite(append, "!", 1, 0) == 1 && pread(append, text, 10, 0) == 6 && memcmp(text, "hello!", 6) == 0);
    CHECK(lseek(append, 0, SEEK_SET) == 0 && write(append, "?", 1) == 1 && lseek(append, 0, SEEK_CUR) == 7);
    CHECK(fcntl(append, F_SETFL, 0) == 0 && pwrite(append, "J", 1, 0) == 1);
    CHECK(pread(append, text, 10, 0) == 7 && text[0] == 'J');
    close(append);
    CHECK(FAILS(lseek(fd, -1, SEEK_SET), EINVAL) && FAILS(lseek(fd, 0, 17), EINVAL));
    CHECK(lseek(fd, 100, SEEK_SET) == 100 && read(fd, text, 1) == 0);
    CHECK(FAILS(pread(fd, text, 1, -1), EINVAL) && FAILS(pwrite(fd, text, 1, -1), EINVAL));
    int read_only = open("a", O_RDONLY), write_only = open("a", O_WRONLY);
    CHECK(FAILS(write(read_only, "x", 1), EBADF) && FAILS(read(write_only, text, 1), EBADF));
    CHECK(FAILS(ftruncate(read_only, 0), EINVAL) && FAILS(ftruncate(fd, -1), EINVAL));
    CHECK(FAILS(read(fd, (char *)-1, 1), EFAULT) || lseek(fd, 0, SEEK_CUR) >= 7);
    CHECK(FAILS(read(-1, text, 1), EBADF) && FAILS(read(9999, text, 1), EBADF));
    CHECK(FAILS(truncate("nowhere", 0), ENOENT) && FAILS(truncate(".", 0), EISDIR) && FAILS(truncate("a", -1), EINVAL));
    close(read_only), close(write_only), close(fd);
}

static void opening_beneath(void) {
    CHECK(mkdir("box", 0755) == 0);
    close(make("box/in", "in"));
    CHECK(symlink("../a", "box/out") == 0 && symlink("/etc", "box/abs") == 0 && symlink("in", "box/near") == 0);
    int box = open("box", O_PATH | O_DIRECTORY), fd;
    CHECK((fd = openat2_(box, "in", O_RDONLY, 0, RESOLVE_BENEATH)) >= 0 && close(fd) == 0);
    CHECK((fd = openat2_(box, "near", O_RDONLY, 0, RESOLVE_BENEATH)) >= 0 && close(fd) == 0);
    CHECK((fd = openat2_(box, "../box/in", O_RDONLY, 0, 0)) >= 0 && close(fd) == 0);
    CHECK(FAILS(openat2_(box, "../a", O_RDONLY, 0, RESOLVE_BENEATH), EXDEV));
    CHECK(FAILS(openat2_(box, "out", O_RDONLY, 0, RESOLVE_BENEATH), EXDEV));
    CHECK(FAILS(openat2_(box, "abs", O_RDONLY, 0, RESOLVE_BENEATH), EXDEV));
    CHECK(FAILS(openat2_(box, "near", O_RDONLY, 0, RESOLVE_NO_SYMLINKS), ELOOP));
    CHECK(FAILS(openat2_(box, "/in", O_RDONLY, 0, RESOLVE_BENEATH), EXDEV));
    CHECK((fd = openat2_(box, "/in", O_RDONLY, 0, RESOLVE_IN_ROOT)) >= 0 && close(fd) == 0);
    CHECK((fd = openat2_(box, "../../in", O_RDONLY, 0, RESOLVE_IN_ROOT)) >= 0 && close(fd) == 0);
    CHECK(FAILS(openat2_(box, "out", O_RDONLY, 0, RESOLVE_IN_ROOT), ENOENT));
    CHECK(FAILS(openat2_(AT_FDCWD, "/proc/self/exe", O_RDONLY, 0, RESOLVE_NO_MAGICLINKS), ELOOP));
    CHECK(FAILS(openat2_(AT_FDCWD, "/proc/self/status", O_RDONLY, 0, RESOLVE_NO_XDEV), EXDEV));
    CHECK(FAILS(openat2_(box, "in", O_RDONLY, 0644, 0), EINVAL));
    CHECK(FAILS(openat2_(box, "in", 1ULL << 40, 0, 0), EINVAL));
    CHECK(FAILS(openat2_(box, "in", O_RDONLY, 0, 1 << 20), EINVAL));
    CHECK(FAILS(openat2_(box, "in", O_RDONLY, 0, RESOLVE_BENEATH | RESOLVE_IN_ROOT), EINVAL));
    struct { struct open_how how; uint64_t more; } big = { { O_RDONLY, 0, 0 }, 0 };
    CHECK((fd = syscall(SYS_openat2, box, "in", &big, sizeof big)) >= 0 && close(fd) == 0);
    big.more = 1;
    CHECK(FAILS(syscall(SYS_openat2, box, "in", &big, sizeof big), E2BIG));
    CHECK(FAILS(syscall(SYS_openat2, box, "in", &big, 8), EINVAL));
    close(box);
}

static void names(void) {
    close(make("one", "1")), close(make("two", "22"));
    CHECK(FAILS(renameat2(AT_FDCWD, "one", AT_FDCWD, "two", RENAME_NOREPLACE), EEXIST));
    CHECK(renameat2(AT_FDCWD, "one", AT_FDCWD, "two", RENAME_EXCHANGE) == 0);
    struct stat st;
    CHECK(stat("one", &st) == 0 && st.st_size == 2);
    CHECK(FAILS(renameat2(AT_FDCWD, "one", AT_FDCWD, "none", RENAME_EXCHANGE), ENOENT));
    CHECK(FAILS(renameat2(AT_FDCWD, "one", AT_FDCWD, "two", RENAME_EXCHANGE | RENAME_NOREPLACE), EINVAL));
    CHECK(FAILS(renameat2(AT_FDCWD, "one", AT_FDCWD, "two", 1 << 10), EINVAL));
    CHECK(mkdir("d", 0755) == 0 && mkdir("d/e", 0755) == 0 && mkdir("f", 0755) == 0);
    CHECK(FAILS(rename("d", "d/e/x"), EINVAL) && FAILS(rename("d/e", "d"), ENOTEMPTY));
    CHECK(FAILS(rename("one", "d"), EISDIR) && FAILS(rename("d", "one"), ENOTDIR));
    CHECK(FAILS(rename("f", "d"), ENOTEMPTY) && rename("f", "d/e") == 0 && FAILS(rename("nowhere", "x"), ENOENT));
    CHECK(FAILS(rename("d/.", "x"), EBUSY) && FAILS(rename("d", "two/"), ENOTDIR));
    CHECK(rename("one", "one") == 0 && link("one", "uno") == 0 && rename("one", "uno") == 0 && access("one", F_OK) == 0);
    CHECK(FAILS(link("d", "dd"), EPERM) && FAILS(link("one", "two"), EEXIST) && FAILS(link("nowhere", "x"), ENOENT));
    CHECK(FAILS(linkat(AT_FDCWD, "one", AT_FDCWD, "three", 1), EINVAL));
    int fd = open("one", O_RDONLY);
    CHECK(linkat(fd, "", AT_FDCWD, "by-fd", AT_EMPTY_PATH) == 0 && stat("by-fd", &st) == 0 && st.st_nlink == 3);
    close(fd);
    CHECK(symlink("one", "s") == 0 && linkat(AT_FDCWD, "s", AT_FDCWD, "s2", 0) == 0);
    CHECK(lstat("s2", &st) == 0 && S_ISLNK(st.st_mode) && st.st_nlink == 2);
    CHECK(linkat(AT_FDCWD, "s", AT_FDCWD, "s3", AT_SYMLINK_FOLLOW) == 0 && lstat("s3", &st) == 0 && S_ISREG(st.st_mode));
    CHECK(FAILS(unlink("d"), EISDIR) && FAILS(rmdir("d"), ENOTEMPTY) && FAILS(rmdir("one"), ENOTDIR));
    CHECK(FAILS(rmdir("d/."), EINVAL) && FAILS(rmdir("d/.."), ENOTEMPTY) && FAILS(unlink("one/"), ENOTDIR));
    CHECK(FAILS(unlinkat(AT_FDCWD, "d", 1 << 8), EINVAL) && FAILS(rmdir("/"), EBUSY) && FAILS(unlink(""), ENOENT));
    CHECK(FAILS(mkdir("d", 0755), EEXIST) && FAILS(mkdir("nowhere/x", 0755), ENOENT) && FAILS(mkdir("one/x", 0755), ENOTDIR));
    CHECK(FAILS(symlink("x", "one"), EEXIST) && FAILS(symlink("", "y"), ENOENT));
    char text[8];
    CHECK(readlink("s", text, 2) == 2 && FAILS(readlink("s", text, 0), EINVAL) && FAILS(readlink("one", text, 8), EINVAL));
    CHECK(FAILS(mknod("node", S_IFDIR | 0755, 0), EPERM) && mknod("fifo", S_IFIFO | 0644, 0) == 0);
    CHECK(FAILS(open("fifo", O_WRONLY | O_NONBLOCK), ENXIO));
    int reader = open("fifo", O_RDONLY | O_NONBLOCK), writer = open("fifo", O_WRONLY | O_NONBLOCK);
    CHECK(reader >= 0 && writer >= 0 && write(writer, "hi", 2) == 2 && read(reader, text, 8) == 2);
    CHECK(FAILS(read(reader, text, 8), EAGAIN) && close(writer) == 0 && read(reader, text, 8) == 0 && close(reader) == 0);
    // A working directory that is gone.
    CHECK(mkdir("gone", 0755) == 0 && chdir("gone") == 0 && rmdir("../gone") == 0);
    char cwd[PATH_MAX];
    CHECK(getcwd(cwd, sizeof cwd) == NULL && errno == ENOENT && FAILS(mkdir("x", 0755), ENOENT) && FAILS(open("x", O_CREAT | O_RDWR, 0600), ENOENT));
    CHECK(chdir(dir) == 0 && syscall(SYS_getcwd, cwd, 1) == -1 && errno == ERANGE);
    // A path longer than any call takes: libc finds it out step by step.
    char step[201], name_of_depth[8192];
    memset(step, 's', 200), step[200] = 0;
    for (int i = 0; i < 25; i++) CHECK(mkdir(step, 0755) == 0 && chdir(step) == 0);
    CHECK(syscall(SYS_getcwd, name_of_depth, sizeof name_of_depth) == -1 && errno == ENAMETOOLONG);
    CHECK(getcwd(name_of_depth, sizeof name_of_depth) && strlen(name_of_depth) > 25 * 201);
    for (int i = 0; i < 25; i++) CHECK(chdir("..") == 0 && rmdir(step) == 0);
    CHECK(FAILS(chdir("one"), ENOTDIR) && FAILS(chdir("nowhere"), ENOENT) && FAILS(fchdir(-1), EBADF));
    CHECK(FAILS(access("one", 8), EINVAL) && access("one", F_OK | R_OK | W_OK) == 0);
    CHECK(FAILS(faccessat(AT_FDCWD, "nowhere", F_OK, 0), ENOENT));
    CHECK(FAILS(fchmodat(AT_FDCWD, "s", 0600, AT_SYMLINK_NOFOLLOW), EOPNOTSUPP));
}

static void attributes(void) {
    int fd = make("attr", "0123456789");
    struct statx sx;
    CHECK(statx(AT_FDCWD, "attr", 0, STATX_ALL, &sx) == 0 && (sx.stx_mask & STATX_BASIC_STATS) == STATX_BASIC_STATS);
    CHECK(sx.stx_size == 10 && sx.stx_nlink == 1 && S_ISREG(sx.stx_mode) && sx.stx_blksize > 0);
    CHECK(statx(fd, "", AT_EMPTY_PATH, STATX_SIZE, &sx) == 0 && sx.stx_size == 10);
    CHECK(FAILS(statx(fd, "", 0, STATX_SIZE, &sx), ENOENT) && FAILS(statx(AT_FDCWD, "attr", 1 << 20, STATX_SIZE, &sx), EINVAL));
    CHECK(FAILS(statx(AT_FDCWD, "attr", 0, 1u << 31, &sx), EINVAL));
    CHECK(FAILS(statx(AT_FDCWD, "attr", AT_STATX_FORCE_SYNC | AT_STATX_DONT_SYNC, STATX_SIZE, &sx), EINVAL));
    CHECK(statx(AT_FDCWD, "/", 0, STATX_ALL, &sx) == 0 && sx.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT && sx.stx_attributes & STATX_ATTR_MOUNT_ROOT);
    struct timespec times[2] = { { 1000, 5 }, { 2000, UTIME_OMIT } };
    struct stat st;
    CHECK(futimens(fd, times) == 0 && fstat(fd, &st) == 0 && st.st_atim.tv_sec == 1000 && st.st_atim.tv_nsec == 5 && st.st_mtim.tv_sec != 2000);
    times[1].tv_nsec = 1000000000;
    CHECK(FAILS(futimens(fd, times), EINVAL) && FAILS(utimensat(AT_FDCWD, "nowhere", NULL, 0), ENOENT));
    CHECK(FAILS(utimensat(AT_FDCWD, "attr", NULL, 1), EINVAL) && syscall(SYS_utimensat, fd, NULL, NULL, 0) == 0);
    CHECK(fchmod(fd, 06755) == 0 && fchown(fd, 1, 1) == 0 && fstat(fd, &st) == 0 && (st.st_mode & 07777) == 0755);
    CHECK(fchown(fd, -1, 0) == 0 && fstat(fd, &st) == 0 && st.st_uid == 1 && st.st_gid == 0);
    CHECK(syscall(452 /* fchmodat2 */, AT_FDCWD, "attr", 0600, 0) == 0 && FAILS(syscall(452, AT_FDCWD, "attr", 0600, 1), EINVAL));
    struct statfs fs;
    CHECK(statfs("/proc", &fs) == 0 && fs.f_type == 0x9fa0 && fstatfs(fd, &fs) == 0 && fs.f_bsize > 0 && fs.f_namelen == 255);
    CHECK(FAILS(statfs("nowhere", &fs), ENOENT) && FAILS(fstatfs(-1, &fs), EBADF));
    close(fd);
}

static void contents(void) {
    int fd = make("data", "0123456789");
    char text[16] = "";
    struct iovec two[2] = { { text, 3 }, { text + 3, 4 } };
    CHECK(preadv2(fd, two, 2, 1, 0) == 7 && memcmp(text, "1234567", 7) == 0);
    CHECK(lseek(fd, 2, SEEK_SET) == 2 && preadv2(fd, two, 1, -1, 0) == 3 && lseek(fd, 0, SEEK_CUR) == 5);
    CHECK(FAILS(preadv2(fd, two, 1, 0, 1 << 20), EOPNOTSUPP) && FAILS(preadv(fd, two, -1, 0), EINVAL));
    CHECK(FAILS(preadv(fd, two, IOV_MAX + 1, 0), EINVAL) && preadv(fd, two, 0, 0) == 0);
    struct iovec out = { "AB", 2 };
    CHECK(pwritev2(fd, &out, 1, 0, RWF_APPEND) == 2 && pread(fd, text, 16, 0) == 12 && memcmp(text + 10, "AB", 2) == 0);
    CHECK(pwritev2(fd, &out, 1, 0, RWF_DSYNC | RWF_SYNC) == 2);
    CHECK(FAILS(pwritev2(fd, &out, 1, 0, 0x400), EOPNOTSUPP));
    // Holes.
    CHECK(ftruncate(fd, 3 * 4096) == 0 && fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 5 * 4096) == 0 && lseek(fd, 0, SEEK_END) == 3 * 4096);
    CHECK(fallocate(fd, 0, 0, 4 * 4096) == 0 && lseek(fd, 0, SEEK_END) == 4 * 4096);
    CHECK(pwrite(fd, "page1", 5, 4096) == 5 && pwrite(fd, "page2", 5, 8192) == 5);
    CHECK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 4096) == 0 && pread(fd, text, 5, 4096) == 5 && text[0] == 0);
    CHECK(FAILS(fallocate(fd, FALLOC_FL_PUNCH_HOLE, 0, 4096), EOPNOTSUPP) && FAILS(fallocate(fd, 0, 0, 0), EINVAL));
    CHECK(FAILS(fallocate(fd, 0, -1, 10), EINVAL) && FAILS(fallocate(fd, 0x100, 0, 10), EOPNOTSUPP) && FAILS(fallocate(fd, 0, LONG_MAX, 10), EFBIG));
    CHECK(FAILS(fallocate(fd, 0, 0, 1L << 44), ENOSPC) || errno == EFBIG);
    CHECK(lseek(fd, 0, SEEK_END) == 4 * 4096);
    int pipes[2];
    CHECK(pipe(pipes) == 0 && FAILS(fallocate(pipes[1], 0, 0, 10), ESPIPE) && FAILS(lseek(pipes[0], 0, SEEK_SET), ESPIPE));
    CHECK(FAILS(pread(pipes[0], text, 1, 0), ESPIPE) && FAILS(ftruncate(pipes[1], 0), EINVAL) && FAILS(fsync(pipes[1]), EINVAL));
    CHECK(FAILS(fdatasync(-1), EBADF) && fsync(fd) == 0 && FAILS(sync_file_range(fd, 0, 10, 1 << 8), EINVAL) && FAILS(sync_file_range(pipes[0], 0, 0, 0), ESPIPE));
    CHECK(posix_fadvise(fd, 0, 0, 77) == EINVAL && posix_fadvise(pipes[0], 0, 0, 0) == ESPIPE && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
    CHECK(FAILS(readahead(pipes[0], 0, 10), EINVAL) && readahead(fd, 0, 10) == 0);
    // Copies.
    int to = make("copy", "");
    loff_t from_at = 8192, to_at = 3;
    CHECK(copy_file_range(fd, &from_at, to, &to_at, 5, 0) == 5 && from_at == 8197 && to_at == 8 && pread(to, text, 16, 0) == 8 && memcmp(text + 3, "page2", 5) == 0);
    CHECK(FAILS(copy_file_range(fd, NULL, to, NULL, 5, 1), EINVAL) && FAILS(copy_file_range(fd, NULL, pipes[1], NULL, 5, 0), EINVAL));
    from_at = 0, to_at = 2;
    CHECK(FAILS(copy_file_range(fd, &from_at, fd, &to_at, 5, 0), EINVAL));
    CHECK(lseek(fd, 8192, SEEK_SET) == 8192 && lseek(to, 0, SEEK_SET) == 0 && copy_file_range(fd, NULL, to, NULL, 5, 0) == 5 && lseek(fd, 0, SEEK_CUR) == 8197);
    off_t at = 8192;
    CHECK(sendfile(to, fd, &at, 5) == 5 && at == 8197 && FAILS(sendfile(to, pipes[0], NULL, 5), EINVAL));
    at = -1;
    CHECK(FAILS(sendfile(to, fd, &at, 5), EINVAL) && FAILS(sendfile(-1, fd, NULL, 5), EBADF));
    close(to), close(fd);
    // Pipes.
    CHECK(write(pipes[1], "pipe", 4) == 4);
    int other[2], length;
    CHECK(pipe(other) == 0 && tee(pipes[0], other[1], 100, SPLICE_F_NONBLOCK) == 4 && read(other[0], text, 16) == 4);
    CHECK(ioctl(pipes[0], FIONREAD, &length) == 0 && length == 4 && splice(pipes[0], NULL, other[1], NULL, 3, 0) == 3 && read(other[0], text, 16) == 3);
    CHECK(FAILS(tee(pipes[0], pipes[1], 1, 0), EINVAL) && FAILS(splice(pipes[0], &from_at, other[1], NULL, 1, 0), ESPIPE) && FAILS(splice(pipes[0], NULL, other[1], NULL, 1, 1 << 8), EINVAL));
    CHECK(read(pipes[0], text, 16) == 1 && FAILS(splice(pipes[0], NULL, other[1], NULL, 1, SPLICE_F_NONBLOCK), EAGAIN));
    CHECK(fcntl(pipes[0], F_GETPIPE_SZ) == 65536 && fcntl(pipes[0], F_SETPIPE_SZ, 5000) == 8192 && FAILS(fcntl(pipes[0], F_SETPIPE_SZ, (1u << 31) + 1), EINVAL));
    CHECK(FAILS(pipe2(other, 1 << 20), EINVAL));
    // Packets (O_DIRECT): each write is one read, the rest of it is lost.
    int packets[2];
    CHECK(pipe2(packets, O_DIRECT | O_NONBLOCK) == 0 && write(packets[1], "abc", 3) == 3 && write(packets[1], "de", 2) == 2);
    CHECK(read(packets[0], text, 16) == 3 && read(packets[0], text, 1) == 1 && FAILS(read(packets[0], text, 1), EAGAIN));
}

static int lock(int fd, int command, short type, off_t start, off_t length) {
    struct flock l = { .l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = length };
    int result = fcntl(fd, command, &l);
    return result == 0 && (command == F_GETLK || command == F_OFD_GETLK) ? l.l_type : result;
}

// Whether /proc/locks has a lock of that file.
static int is_listed(int fd, const char *kind, const char *access, const char *range) {
    char line[256], wanted[64], found[16], mode[16];
    struct stat stat;
    FILE *locks = fopen("/proc/locks", "r");
    int seen = 0;
    CHECK(locks && fstat(fd, &stat) == 0);
    snprintf(wanted, sizeof wanted, ":%lu %s", stat.st_ino, range);
    while (fgets(line, sizeof line, locks))
        seen |= sscanf(line, "%*d: %15s ADVISORY %15s", found, mode) == 2 && !strcmp(found, kind) && !strcmp(mode, access) && strstr(line, wanted);
    fclose(locks);
    return seen;
}

static void descriptors(void) {
    int fd = make("locks", "0123456789"), second = open("locks", O_RDWR);
    CHECK(lock(fd, F_SETLK, F_WRLCK, 0, 5) == 0 && lock(second, F_SETLK, F_WRLCK, 0, 5) == 0 && lock(second, F_GETLK, F_WRLCK, 0, 5) == F_UNLCK);
    CHECK(lock(second, F_OFD_GETLK, F_WRLCK, 0, 5) == F_WRLCK && FAILS(lock(second, F_OFD_SETLK, F_RDLCK, 4, 1), EAGAIN));
    CHECK(lock(second, F_OFD_SETLK, F_RDLCK, 5, 1) == 0 && FAILS(lock(fd, F_SETLK, F_WRLCK, 0, 0), EAGAIN));
    CHECK(FAILS(lock(fd, F_SETLK, 9, 0, 0), EINVAL) && FAILS(lock(fd, F_SETLK, F_WRLCK, -1, 0), EINVAL));
    int read_only = open("locks", O_RDONLY);
    CHECK(FAILS(lock(read_only, F_SETLK, F_WRLCK, 0, 1), EBADF));
    close(read_only); // takes the process' locks along
    CHECK(lock(second, F_OFD_SETLK, F_WRLCK, 0, 5) == 0);
    CHECK(flock(fd, LOCK_SH) == 0 && is_listed(fd, "OFDLCK", "WRITE", "0 4") && is_listed(fd, "FLOCK", "READ", "0 EOF") && !is_listed(fd, "POSIX", "WRITE", ""));
    CHECK(flock(fd, LOCK_SH) == 0 && flock(second, LOCK_SH) == 0 && FAILS(flock(fd, LOCK_EX | LOCK_NB), EAGAIN) && flock(second, LOCK_UN) == 0 && flock(fd, LOCK_EX) == 0);
    CHECK(FAILS(flock(fd, 16), EINVAL) && FAILS(flock(-1, LOCK_SH), EBADF));
    close(second);
    CHECK(FAILS(dup2(-1, 5), EBADF) && FAILS(dup2(fd, -1), EBADF) && dup2(fd, fd) == fd && FAILS(dup3(fd, fd, 0), EINVAL) && FAILS(dup3(fd, 50, 1), EINVAL));
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 100);
    CHECK(copy >= 100 && fcntl(copy, F_GETFD) == FD_CLOEXEC && FAILS(fcntl(fd, F_DUPFD, -1), EINVAL) && FAILS(fcntl(fd, F_DUPFD, 1 << 30), EINVAL));
    CHECK(fcntl(copy, F_SETFD, 0) == 0 && ioctl(copy, FIOCLEX) == 0 && fcntl(copy, F_GETFD) == FD_CLOEXEC);
    CHECK(FAILS(fcntl(fd, 9999), EINVAL) && FAILS(fcntl(-1, F_GETFD), EBADF) && FAILS(close(9999), EBADF));
    // fcntl changes only the flags that may change.
    int flags = fcntl(fd, F_GETFL);
    CHECK(fcntl(fd, F_SETFL, O_WRONLY | O_NONBLOCK | O_APPEND) == 0 && (fcntl(fd, F_GETFL) & ~(O_NONBLOCK | O_APPEND)) == flags);
    close(fd), close(copy);
    // Sealing.
    int sealed = memfd_create("seal", MFD_ALLOW_SEALING), unsealable = memfd_create("plain", 0);
    CHECK(ftruncate(sealed, 4096) == 0 && fcntl(sealed, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
    CHECK(FAILS(ftruncate(sealed, 0), EPERM) && FAILS(ftruncate(sealed, 8192), EPERM) && FAILS(fcntl(unsealable, F_ADD_SEALS, F_SEAL_WRITE), EPERM));
    char *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, sealed, 0);
    CHECK(shared != MAP_FAILED && FAILS(fcntl(sealed, F_ADD_SEALS, F_SEAL_WRITE), EBUSY) && munmap(shared, 4096) == 0 && fcntl(sealed, F_ADD_SEALS, F_SEAL_WRITE) == 0);
    CHECK(FAILS(write(sealed, "x", 1), EPERM) && mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, sealed, 0) == MAP_FAILED && errno == EPERM);
    CHECK(fcntl(sealed, F_GET_SEALS) == (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) && FAILS(memfd_create("x", 1 << 20), EINVAL));
    CHECK(FAILS(fcntl(0, F_GET_SEALS), EINVAL));
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    mkdir("/tmp", 0777);
    strcpy(dir, "/tmp/files-XXXXXX");
    CHECK(mkdtemp(dir) && chdir(dir) == 0);
    opening();
    opening_beneath();
    names();
    attributes();
    contents();
    descriptors();
    puts("all file tests passed");
    return 0;
}
