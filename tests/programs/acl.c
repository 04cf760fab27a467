// SPDX-License-Identifier: Apache-2.0 OR MIT
// POSIX access control lists (acl(5)) by their extended attributes: who may do what, chmod, and what new files get.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <grp.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define FAILS(call, error) (errno = 0, (call) == -1 && errno == (error))
#define ACCESS "system.posix_acl_access"
#define DEFAULT "system.posix_acl_default"
#define NONE ((unsigned)-1)

enum { USER_OBJ = 1, USER = 2, GROUP_OBJ = 4, GROUP = 8, MASK = 16, OTHER = 32 };
struct entry { unsigned short tag, permissions; unsigned id; };
struct list { unsigned version; struct entry entries[8]; };

#define LIST(...) ((struct list){ 2, { __VA_ARGS__ } })

static size_t size_of(const struct list *list) {
    int n = 0;
    while (n < 8 && list->entries[n].tag)
        n++;
    return 4 + n * sizeof *list->entries;
}

static int set(const char *path, const char *name, struct list list) {
    return setxattr(path, name, &list, size_of(&list), 0);
}

static int is(const char *path, const char *name, struct list list) {
    struct list there = { 0 };
    ssize_t size = getxattr(path, name, &there, sizeof there);
    return size == (ssize_t)size_of(&list) && memcmp(&there, &list, size) == 0;
}

static int mode_of(const char *path) {
    struct stat status;
    CHECK(lstat(path, &status) == 0);
    return status.st_mode & 07777;
}

// Whether somebody may, as access(2) and as open(2) see it.
static int may(const char *path, unsigned uid, unsigned gid, unsigned group, int want) {
    pid_t child = fork();
    if (child == 0) {
        gid_t groups[] = { group };
        CHECK(setgroups(group != NONE, groups) == 0 && setresgid(gid, gid, gid) == 0 && setresuid(uid, uid, uid) == 0);
        int answer = access(path, want) == 0;
        if (want & (R_OK | W_OK)) {
            int fd = open(path, want & W_OK ? want & R_OK ? O_RDWR : O_WRONLY : O_RDONLY);
            CHECK((fd >= 0) == answer || want & X_OK);
        }
        _exit(answer ? 10 : 11);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) >= 10);
    return WEXITSTATUS(status) == 10;
}

static void lists_are_kept_and_refused(void) {
    struct list full = LIST({ USER_OBJ, 6, NONE }, { USER, 4, 1000 }, { GROUP_OBJ, 4, NONE }, { GROUP, 6, 2000 }, { MASK, 6, NONE }, { OTHER, 0, NONE });
    close(open("file", O_CREAT | O_RDWR, 0644));
    char small[8], names[100];
    CHECK(FAILS(getxattr("file", ACCESS, NULL, 0), ENODATA) && FAILS(getxattr("file", DEFAULT, NULL, 0), ENODATA));
    CHECK(set("file", ACCESS, full) == 0 && is("file", ACCESS, full) && mode_of("file") == 0660);
    CHECK(getxattr("file", ACCESS, NULL, 0) == 52 && FAILS(getxattr("file", ACCESS, small, sizeof small), ERANGE));
    CHECK(setxattr("file", "user.a", "1", 1, 0) == 0 && listxattr("file", names, sizeof names) == sizeof ACCESS + 7);
    CHECK(memcmp(names, ACCESS, sizeof ACCESS) == 0 && removexattr("file", "user.a") == 0);
    // What is no list, and what files can have none.
    struct list bad = full;
    bad.version = 3;
    CHECK(FAILS(set("file", ACCESS, bad), EOPNOTSUPP) && FAILS(setxattr("file", ACCESS, &full, 11, 0), EINVAL));
    bad = full, bad.entries[1].permissions = 8;
    CHECK(FAILS(set("file", ACCESS, bad), EINVAL));
    bad = full, bad.entries[4] = bad.entries[5], bad.entries[5].tag = 0;
    CHECK(FAILS(set("file", ACCESS, bad), EINVAL));
    bad = full, bad.entries[1].id = NONE;
    CHECK(FAILS(set("file", ACCESS, bad), EINVAL) && is("file", ACCESS, full));
    CHECK(FAILS(set("file", DEFAULT, full), EACCES) && removexattr("file", DEFAULT) == 0);
    CHECK(symlink("file", "symbolic") == 0 && FAILS(lsetxattr("symbolic", ACCESS, &full, size_of(&full), 0), EOPNOTSUPP));
    CHECK(FAILS(lgetxattr("symbolic", ACCESS, NULL, 0), EOPNOTSUPP) && is("symbolic", ACCESS, full));
    int fd = open("file", O_RDONLY);
    CHECK(fgetxattr(fd, ACCESS, &bad, sizeof bad) == 52 && fremovexattr(fd, ACCESS) == 0 && fremovexattr(fd, ACCESS) == 0);
    CHECK(mode_of("file") == 0660 && FAILS(fgetxattr(fd, ACCESS, NULL, 0), ENODATA) && close(fd) == 0);
    // Only permission bits: nothing else is kept.
    CHECK(set("file", ACCESS, LIST({ USER_OBJ, 7, NONE }, { GROUP_OBJ, 5, NONE }, { OTHER, 1, NONE })) == 0 && mode_of("file") == 0751);
    CHECK(FAILS(getxattr("file", ACCESS, NULL, 0), ENODATA) && listxattr("file", names, sizeof names) == 0);
    // The owner may, others not; a set-group-id bit goes when the group is not the owner's.
    CHECK(chown("file", 1000, 2000) == 0 && chmod("file", 02755) == 0);
    pid_t child = fork();
    if (child == 0) {
        CHECK(setgroups(0, NULL) == 0 && setresuid(1000, 1000, 1000) == 0);
        CHECK(set("file", ACCESS, full) == 0 && mode_of("file") == 0660);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    child = fork();
    if (child == 0) {
        CHECK(setresuid(1001, 1001, 1001) == 0 && FAILS(set("file", ACCESS, full), EPERM) && FAILS(removexattr("file", ACCESS), EPERM));
        CHECK(is("file", ACCESS, full));
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(unlink("file") == 0 && unlink("symbolic") == 0);
}

static void lists_decide(void) {
    close(open("file", O_CREAT | O_RDWR, 0600));
    CHECK(chown("file", 1000, 2000) == 0);
    CHECK(set("file", ACCESS, LIST({ USER_OBJ, 6, NONE }, { USER, 6, 1001 }, { USER, 0, 1002 }, { GROUP_OBJ, 4, NONE }, { GROUP, 2, 2001 }, { MASK, 6, NONE }, { OTHER, 1, NONE })) == 0);
    CHECK(may("file", 1000, 1, NONE, R_OK | W_OK) && !may("file", 1000, 1, NONE, X_OK));
    CHECK(may("file", 1001, 1, NONE, R_OK | W_OK) && !may("file", 1001, 2000, 2001, X_OK));
    CHECK(!may("file", 1002, 2000, NONE, R_OK) && !may("file", 1002, 1, NONE, X_OK));
    CHECK(may("file", 1003, 2000, NONE, R_OK) && !may("file", 1003, 2000, NONE, W_OK) && !may("file", 1003, 2000, NONE, X_OK));
    CHECK(may("file", 1003, 2000, 2001, W_OK) && !may("file", 1003, 2000, 2001, R_OK | W_OK) && may("file", 1003, 1, 2001, W_OK));
    CHECK(may("file", 1003, 1, NONE, X_OK) && !may("file", 1003, 1, NONE, R_OK));
    // chmod's group is the mask.
    CHECK(chmod("file", 0640) == 0 && mode_of("file") == 0640);
    CHECK(is("file", ACCESS, LIST({ USER_OBJ, 6, NONE }, { USER, 6, 1001 }, { USER, 0, 1002 }, { GROUP_OBJ, 4, NONE }, { GROUP, 2, 2001 }, { MASK, 4, NONE }, { OTHER, 0, NONE })));
    CHECK(may("file", 1001, 1, NONE, R_OK) && !may("file", 1001, 1, NONE, W_OK) && !may("file", 1003, 1, 2001, W_OK));
    // A mask of nothing: the bits alone decide.
    CHECK(chmod("file", 0604) == 0 && may("file", 1001, 1, NONE, R_OK) && may("file", 1002, 1, NONE, R_OK) && !may("file", 1003, 2000, NONE, R_OK));
    CHECK(unlink("file") == 0);
    // Directories are searched and changed by them.
    CHECK(mkdir("dir", 0700) == 0 && chmod("dir", 0700) == 0 && set("dir", ACCESS, LIST({ USER_OBJ, 7, NONE }, { USER, 7, 1001 }, { GROUP_OBJ, 0, NONE }, { MASK, 7, NONE }, { OTHER, 0, NONE })) == 0);
    close(open("dir/file", O_CREAT | O_RDWR, 0666));
    CHECK(may("dir/file", 1001, 1, NONE, R_OK) && !may("dir/file", 1002, 1, NONE, R_OK));
    CHECK(unlink("dir/file") == 0 && rmdir("dir") == 0);
}

static void new_files_inherit(void) {
    struct list inherited = LIST({ USER_OBJ, 7, NONE }, { USER, 7, 1001 }, { GROUP_OBJ, 5, NONE }, { MASK, 7, NONE }, { OTHER, 5, NONE });
    umask(077);
    CHECK(mkdir("dir", 0755) == 0 && mode_of("dir") == 0700 && set("dir", DEFAULT, inherited) == 0 && mode_of("dir") == 0700);
    CHECK(FAILS(getxattr("dir", ACCESS, NULL, 0), ENODATA) && is("dir", DEFAULT, inherited) && chdir("dir") == 0);
    // The umask is left out, and the mode cuts the list.
    close(open("file", O_CREAT | O_RDWR, 0664));
    CHECK(mode_of("file") == 0664 && is("file", ACCESS, LIST({ USER_OBJ, 6, NONE }, { USER, 7, 1001 }, { GROUP_OBJ, 5, NONE }, { MASK, 6, NONE }, { OTHER, 4, NONE })));
    CHECK(FAILS(getxattr("file", DEFAULT, NULL, 0), ENODATA));
    CHECK(mkdir("sub", 0750) == 0 && mode_of("sub") == 0750 && is("sub", DEFAULT, inherited));
    CHECK(is("sub", ACCESS, LIST({ USER_OBJ, 7, NONE }, { USER, 7, 1001 }, { GROUP_OBJ, 5, NONE }, { MASK, 5, NONE }, { OTHER, 0, NONE })));
    CHECK(mkfifo("fifo", 0666) == 0 && mode_of("fifo") == 0664 && symlink("x", "symbolic") == 0 && mode_of("symbolic") == 0777);
    int fd = open(".", O_TMPFILE | O_RDWR, 0620), server = socket(AF_UNIX, SOCK_STREAM, 0);
    struct stat status;
    CHECK(fd >= 0 && fstat(fd, &status) == 0 && (status.st_mode & 07777) == 0620 && fgetxattr(fd, ACCESS, NULL, 0) == 44);
    struct sockaddr_un name = { AF_UNIX, "socket" };
    CHECK(bind(server, (void *)&name, sizeof name) == 0 && mode_of("socket") == 0700);
    close(fd), close(server);
    // Of bits alone nothing but those is inherited.
    CHECK(set(".", DEFAULT, LIST({ USER_OBJ, 6, NONE }, { GROUP_OBJ, 4, NONE }, { OTHER, 0, NONE })) == 0);
    close(open("plain", O_CREAT | O_RDWR, 0666));
    CHECK(mode_of("plain") == 0640 && FAILS(getxattr("plain", ACCESS, NULL, 0), ENODATA));
    CHECK(removexattr(".", DEFAULT) == 0 && FAILS(getxattr(".", DEFAULT, NULL, 0), ENODATA));
    close(open("masked", O_CREAT | O_RDWR, 0666));
    CHECK(mode_of("masked") == 0600 && chdir("..") == 0);
    const char *left[] = { "file", "fifo", "symbolic", "socket", "plain", "masked" };
    char path[32];
    for (unsigned i = 0; i < sizeof left / sizeof *left; i++) {
        snprintf(path, sizeof path, "dir/%s", left[i]);
        CHECK(unlink(path) == 0);
    }
    CHECK(rmdir("dir/sub") == 0 && rmdir("dir") == 0);
}

int main(int count, char **words) {
    // A file system with lists: natively a tmpfs is given as the argument.
    char directory[64];
    snprintf(directory, sizeof directory, "%s/acl-XXXXXX", count > 1 ? words[1] : "/tmp");
    CHECK(mkdtemp(directory) != NULL && chdir(directory) == 0 && chmod(".", 0755) == 0);
    umask(022);
    lists_are_kept_and_refused();
    lists_decide();
    new_files_inherit();
    CHECK(chdir("/") == 0 && rmdir(directory) == 0);
    puts("all acl tests passed");
}
