// SPDX-License-Identifier: Apache-2.0 OR MIT
// What the files of /proc answer to everything but being read in peace: a line for each, with the errors of the calls. Lines of files that two
// kernels have are to be the same.
// proc_files FOLDER [writes [as-a-user]]; `own` is the folder of this process.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

static char text[70000], again[70000];
static int writes, is_own;

// What a call answered.
static void said(const char *call, long result) {
    printf(" %s %s", call, result < 0 ? strerrorname_np(errno) : "ok");
}

static void closed(const char *call, int fd) {
    said(call, fd);
    if (fd >= 0)
        close(fd);
}

static void is_sought(int fd) {
    static const struct {
        const char *name;
        int whence;
        off_t offset;
    } all[] = {{"set", SEEK_SET, 0}, {"end", SEEK_END, 0}, {"before", SEEK_SET, -5}, {"data", SEEK_DATA, 0}, {"hole", SEEK_HOLE, 0}, {"far", SEEK_SET, 1 << 20}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        said(all[i].name, lseek(fd, all[i].offset, all[i].whence));
    long read_there = read(fd, again, 10);
    said("read", read_there);
    printf(" %ld", read_there < 0 ? 0 : read_there);
}

static void is_read(int fd) {
    long length = 0, got;
    while ((got = read(fd, text + length, sizeof text - (size_t)length)) > 0)
        length += got;
    said("read", got);
    is_sought(fd);
    got = pread(fd, again, 5, 0);
    said("pread", got);
    printf(" %d", got == (length < 5 ? length : 5));
    if (length)
        said("fault", pread(fd, (void *)8, 5, 0));
    said("none", read(fd, again, 0));
    void *memory = mmap(0, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
    said("mmap", memory == MAP_FAILED ? -1 : 0);
    if (memory != MAP_FAILED)
        munmap(memory, 4096);
    said("fsync", fsync(fd));
    int number;
    said("FIONREAD", ioctl(fd, FIONREAD, &number));
    struct pollfd polled = {fd, POLLIN | POLLOUT | POLLPRI, 0};
    poll(&polled, 1, 0);
    printf(" poll %x", polled.revents);
    said("write", write(fd, "x", 1));
    said("getdents64", getdents64(fd, again, 100));
    said("fallocate", fallocate(fd, 0, 0, 10));
    said("O_NONBLOCK", fcntl(fd, F_SETFL, O_NONBLOCK | O_APPEND));
    said("O_DIRECT", fcntl(fd, F_SETFL, O_DIRECT));
}

static void is_listed(int fd) {
    said("read", read(fd, text, 10));
    said("set", lseek(fd, 0, SEEK_SET));
    said("end", lseek(fd, 0, SEEK_END));
    said("getdents64", getdents64(fd, again, 3));
    said("fsync", fsync(fd));
}

static void is_written(int fd) {
    said("nothing", write(fd, "", 0));
    said("NUL", write(fd, "", 1));
    said("nonsense", write(fd, "~nonsense~", 10));
    said("a line", write(fd, "\n", 1));
    said("pwrite", pwrite(fd, "~n", 2, 5));
    said("read", read(fd, again, 1));
    said("ftruncate", ftruncate(fd, 0));
    memset(again, 'z', sizeof again);
    said("much", write(fd, again, 5000));
    said("more", write(fd, again, sizeof again));
}

static int visit(const char *path, const struct stat *unused, int kind, struct FTW *place) {
    // What acts when it is touched, waits, or is no file of one line of answers.
    static const char *const left_out[] = {"/proc/sysrq-trigger", "/proc/kmsg", "/proc/kcore", "/proc/acpi", "/task/", "/clear_refs", "/pagemap", "/mem"};
    (void)unused, (void)place;
    for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++)
        if (strstr(path, left_out[i]))
            return 0;
    if (!is_own && path[6] >= '0' && path[6] <= '9')
        return 0;
    const char *shown = is_own ? strchr(path + 6, '/') : path;
    struct stat status;
    if (!shown || lstat(path, &status))
        return 0;
    printf("%s", shown);
    if (kind == FTW_SL) {
        said("readlink", readlink(path, text, sizeof text));
        said("none", readlink(path, text, 0));
        closed("open", open(path, O_RDONLY | O_NOFOLLOW));
        printf("\n");
        return 0;
    }
    int is_directory = S_ISDIR(status.st_mode);
    printf(" %o %u:%u %d", status.st_mode, status.st_uid, status.st_gid, is_directory ? 0 : (int)status.st_nlink);
    said("R", access(path, R_OK));
    said("W", access(path, W_OK));
    said("X", access(path, X_OK));
    int fd = open(path, O_RDONLY);
    said("open", fd);
    if (fd >= 0 && is_directory)
        is_listed(fd);
    else if (fd >= 0)
        is_read(fd);
    if (fd >= 0)
        close(fd);
    closed("O_EXCL", open(path, O_WRONLY | O_CREAT | O_EXCL, 0600));
    closed("O_DIRECTORY", open(path, O_RDONLY | O_DIRECTORY));
    closed("O_TMPFILE", open(path, O_RDWR | O_TMPFILE, 0600));
    said("truncate", truncate(path, 0));
    if (is_directory) {
        char inside[4096];
        snprintf(inside, sizeof inside, "%s/none", path);
        said("mkdir", mkdir(inside, 0700));
        closed("O_CREAT", open(inside, O_CREAT | O_WRONLY, 0600));
        said("unlink", unlink(inside));
        said("symlink", symlink("a", inside));
        said("rmdir", rmdir(path));
    } else {
        said("unlink", unlink(path));
        fd = open(path, O_WRONLY);
        said("O_WRONLY", fd);
        if (fd >= 0 && writes)
            is_written(fd);
        if (fd >= 0)
            close(fd);
        closed("O_TRUNC", open(path, O_RDWR | O_APPEND | O_TRUNC));
        closed("O_DIRECT", open(path, O_RDONLY | O_DIRECT));
    }
    said("rename", rename(path, "/proc/none"));
    said("link", link(path, "/proc/none"));
    said("utimensat", utimensat(AT_FDCWD, path, 0, 0));
    said("getxattr", getxattr(path, "user.a", again, 10));
    said("setxattr", setxattr(path, "user.a", "x", 1, 0));
    printf("\n");
    return 0;
}

int main(int count, char **arguments) {
    char own[32];
    const char *folder = count > 1 ? arguments[1] : "/proc";
    writes = count > 2;
    if (count > 3 && (setgid(1000) || setuid(1000)))
        return 1;
    if (!strcmp(folder, "own")) {
        snprintf(own, sizeof own, "/proc/%d", getpid());
        folder = own;
        is_own = 1;
    }
    return nftw(folder, visit, 10, FTW_PHYS) || fflush(stdout) ? 1 : 0;
}
