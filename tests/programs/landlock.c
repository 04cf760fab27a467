// SPDX-License-Identifier: Apache-2.0 OR MIT
// Landlock (landlock(7), ABI 2): sets of rules, what a domain leaves of the rights on files, who inherits it, and who asks for too much.
// Passes on Linux.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/landlock.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define FAILS(call, error) ((call) == -1 && errno == (error))
#define A(name) LANDLOCK_ACCESS_FS_##name
#ifndef LANDLOCK_ACCESS_FS_REFER
#define LANDLOCK_ACCESS_FS_REFER (1ULL << 13)
#endif
#define EVERYTHING ((1ULL << 14) - 1)
#define READ (A(READ_FILE) | A(READ_DIR))

static int create(const void *attr, size_t size, unsigned flags)
{
    return syscall(SYS_landlock_create_ruleset, attr, size, flags);
}

static int set(unsigned long long handled)
{
    struct landlock_ruleset_attr attr = {.handled_access_fs = handled};
    return create(&attr, 8, 0);
}

static int add(int set, const char *path, unsigned long long rights)
{
    struct landlock_path_beneath_attr attr = {.allowed_access = rights, .parent_fd = open(path, O_PATH | O_CLOEXEC)};
    int result = syscall(SYS_landlock_add_rule, set, LANDLOCK_RULE_PATH_BENEATH, &attr, 0), error = errno;
    close(attr.parent_fd);
    errno = error;
    return result;
}

static int restrict_self(int set)
{
    return syscall(SYS_landlock_restrict_self, set, 0);
}

// Handles everything, and leaves what is said below up to two directories.
static void enter(const char *one, unsigned long long rights, const char *two, unsigned long long rights_there)
{
    int fd = set(EVERYTHING);
    CHECK(fd >= 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(!one || add(fd, one, rights) == 0);
    CHECK(!two || add(fd, two, rights_there) == 0);
    CHECK(restrict_self(fd) == 0 && close(fd) == 0);
}

static void in_child(void (*child)(void))
{
    int status;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        child();
        fflush(stdout);
        _exit(0);
    }
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    if (status)
        exit(1);
}

static int opens(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC, 0600);
    if (fd < 0)
        return -1;
    close(fd);
    return 0;
}

static void calls(void)
{
    struct {
        unsigned long long handled, more[4];
    } attr = {.handled = A(READ_FILE)};
    CHECK(create(NULL, 0, LANDLOCK_CREATE_RULESET_VERSION) >= 2);
    CHECK(FAILS(create(NULL, 1, LANDLOCK_CREATE_RULESET_VERSION), EINVAL) && FAILS(create(&attr, 0, LANDLOCK_CREATE_RULESET_VERSION), EINVAL) && FAILS(create(NULL, 0, 1 << 30), EINVAL));
    CHECK(FAILS(create(NULL, 8, 0), EFAULT) && FAILS(create(&attr, 7, 0), EINVAL) && FAILS(create(&attr, 4097, 0), E2BIG) && FAILS(create((void *)8, 8, 0), EFAULT));
    int fd = create(&attr, sizeof attr, 0);
    CHECK(fd >= 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC && (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR);
    attr.more[3] = 1;
    CHECK(FAILS(create(&attr, sizeof attr, 0), E2BIG) && FAILS(set(0), ENOMSG) && FAILS(set(1ULL << 63), EINVAL));
    char byte, link[64] = "", path[32];
    sprintf(path, "/proc/self/fd/%d", fd);
    CHECK(FAILS(read(fd, &byte, 1), EINVAL) && FAILS(write(fd, &byte, 1), EINVAL) && readlink(path, link, 63) > 0 && strstr(link, "landlock-ruleset"));
    struct landlock_path_beneath_attr rule = {.allowed_access = A(READ_FILE), .parent_fd = open("/", O_PATH)};
#define ADD(fd, type, attr, flags) syscall(SYS_landlock_add_rule, fd, type, attr, flags)
    CHECK(FAILS(ADD(fd, LANDLOCK_RULE_PATH_BENEATH, &rule, 1), EINVAL) && FAILS(ADD(-1, LANDLOCK_RULE_PATH_BENEATH, &rule, 0), EBADF) && FAILS(ADD(0, LANDLOCK_RULE_PATH_BENEATH, &rule, 0), EBADFD));
    CHECK(FAILS(ADD(fd, 99, &rule, 0), EINVAL) && FAILS(ADD(fd, LANDLOCK_RULE_PATH_BENEATH, NULL, 0), EFAULT) && FAILS(ADD(rule.parent_fd, LANDLOCK_RULE_PATH_BENEATH, &rule, 0), EBADF));
    CHECK(ADD(fd, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) == 0 && close(rule.parent_fd) == 0 && FAILS(ADD(fd, LANDLOCK_RULE_PATH_BENEATH, &rule, 0), EBADF));
    CHECK(FAILS(add(fd, "/", 0), ENOMSG) && FAILS(add(fd, "/", A(EXECUTE)), EINVAL) && FAILS(add(fd, "/", 1ULL << 40), EINVAL));
    int pipes[2];
    CHECK(pipe(pipes) == 0);
    rule.parent_fd = pipes[0];
    CHECK(FAILS(ADD(fd, LANDLOCK_RULE_PATH_BENEATH, &rule, 0), EBADFD));
    rule.parent_fd = fd;
    CHECK(FAILS(ADD(fd, LANDLOCK_RULE_PATH_BENEATH, &rule, 0), EBADFD));
    int all = set(EVERYTHING);
    CHECK(FAILS(add(all, "/tmp/ll/a/file", READ), EINVAL) && add(all, "/tmp/ll/a/file", A(READ_FILE)) == 0);
    CHECK(FAILS(syscall(SYS_landlock_restrict_self, fd, 1 << 30), EINVAL) && FAILS(restrict_self(-1), EBADF) && FAILS(restrict_self(0), EBADFD));
    CHECK(setresuid(1000, 1000, 1000) == 0 && FAILS(restrict_self(-1), EPERM) && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && FAILS(restrict_self(-1), EBADF));
    // The last layer that there may be.
    for (int i = 0; i < 16; i++)
        CHECK(restrict_self(fd) == 0);
    CHECK(FAILS(restrict_self(fd), E2BIG));
}

static void opening(void)
{
    int before = open("/tmp/ll/b/file", O_RDWR);
    enter("/tmp/ll/a", READ, "/tmp/ll/b/file", A(WRITE_FILE));
    CHECK(opens("/tmp/ll/a", O_RDONLY) == 0 && opens("/tmp/ll/a/sub/file", O_RDONLY) == 0 && FAILS(opens("/tmp/ll/a/file", O_WRONLY), EACCES) && FAILS(opens("/tmp/ll/a/file", O_RDWR), EACCES));
    CHECK(FAILS(opens("/tmp/ll", O_RDONLY), EACCES) && opens("/tmp/ll", O_PATH) == 0 && FAILS(opens("/tmp/ll/b/file", O_RDONLY), EACCES) && opens("/tmp/ll/b/file", O_WRONLY) == 0);
    CHECK(FAILS(opens("/tmp/ll/b/none", O_RDONLY), ENOENT) && FAILS(opens("/tmp/ll/a/new", O_RDONLY | O_CREAT), EACCES) && FAILS(access("/tmp/ll/a/new", F_OK), ENOENT));
    CHECK(FAILS(opens("/tmp/ll/a/file", O_WRONLY | O_CREAT | O_EXCL), EEXIST) && FAILS(opens("/tmp/ll/a", O_RDWR | O_TMPFILE), EACCES));
    // What was open stays, and what is not opened is not asked about.
    char byte;
    struct stat status;
    CHECK(write(before, "x", 1) == 1 && pread(before, &byte, 1, 0) == 1 && stat("/tmp/ll/b/file", &status) == 0 && truncate("/tmp/ll/b/file", 1) == 0 && chdir("/tmp/ll/b") == 0 && chmod("file", 0644) == 0);
    CHECK(FAILS(opens("file", O_RDONLY), EACCES) && FAILS(opens("../b/file", O_RDONLY), EACCES) && opens("../a/file", O_RDONLY) == 0 && FAILS(opens("/tmp/ll/a/link", O_RDONLY), EACCES));
    // What is in no tree may be opened again.
    int pipes[2];
    char path[32];
    CHECK(pipe(pipes) == 0);
    sprintf(path, "/proc/self/fd/%d", pipes[0]);
    CHECK(opens(path, O_RDONLY) == 0);
    sprintf(path, "/proc/self/fd/%d", before);
    CHECK(FAILS(opens(path, O_RDONLY), EACCES) && opens(path, O_WRONLY) == 0);
}

static void executing(void)
{
    enter("/tmp/ll/a", READ, NULL, 0);
    CHECK(FAILS(execl("/proc/self/exe", "x", NULL), EACCES) && FAILS(execl("/tmp/ll/a/file", "x", NULL), EACCES));
}

static void executing_allowed(void)
{
    int fd = set(A(EXECUTE) | A(WRITE_FILE));
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && add(fd, "/", A(EXECUTE)) == 0 && restrict_self(fd) == 0);
    execl("/proc/self/exe", "landlock", "restricted", NULL);
    CHECK(!"it runs");
}

static void names(void)
{
    enter("/tmp/ll/a", A(MAKE_DIR) | A(MAKE_REG) | A(REMOVE_FILE) | A(WRITE_FILE), "/tmp/ll/b", A(MAKE_FIFO) | A(MAKE_SYM) | A(MAKE_SOCK) | A(REMOVE_DIR));
    CHECK(mkdir("/tmp/ll/a/d", 0700) == 0 && FAILS(rmdir("/tmp/ll/a/d"), EACCES) && FAILS(mkdir("/tmp/ll/a/d", 0700), EEXIST) && FAILS(mkdir("/tmp/ll/b/d", 0700), EACCES));
    CHECK(mknod("/tmp/ll/a/r", S_IFREG | 0600, 0) == 0 && opens("/tmp/ll/a/w", O_WRONLY | O_CREAT) == 0 && unlink("/tmp/ll/a/r") == 0 && unlink("/tmp/ll/a/w") == 0);
    // A new file is made before it cannot be read.
    CHECK(FAILS(opens("/tmp/ll/a/n", O_RDONLY | O_CREAT), EACCES) && unlink("/tmp/ll/a/n") == 0);
    CHECK(FAILS(mkfifo("/tmp/ll/a/f", 0600), EACCES) && mkfifo("/tmp/ll/b/f", 0600) == 0 && FAILS(unlink("/tmp/ll/b/f"), EACCES));
    CHECK(FAILS(symlink("x", "/tmp/ll/a/s"), EACCES) && symlink("x", "/tmp/ll/b/s") == 0 && FAILS(mknod("/tmp/ll/b/c", S_IFCHR | 0600, 0x103), EACCES) && FAILS(mknod("/tmp/ll/b/c", S_IFBLK | 0600, 0x103), EACCES));
    struct sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = "/tmp/ll/a/sock"};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(FAILS(bind(fd, (void *)&name, sizeof name), EACCES));
    strcpy(name.sun_path, "/tmp/ll/b/sock");
    CHECK(bind(fd, (void *)&name, sizeof name) == 0 && rmdir("/tmp/ll/b/empty") == 0);
    CHECK(FAILS(unlink("/tmp/ll/a/sub/none"), ENOENT) && FAILS(unlink("/tmp/ll/c/file"), EACCES));
}

#define MOVES (A(MAKE_REG) | A(MAKE_DIR) | A(REMOVE_FILE) | A(REMOVE_DIR))

static void renaming_without_refer(void)
{
    enter("/tmp/ll", MOVES, NULL, 0);
    CHECK(rename("/tmp/ll/a/file", "/tmp/ll/a/other") == 0 && rename("/tmp/ll/a/other", "/tmp/ll/a/file") == 0 && link("/tmp/ll/a/file", "/tmp/ll/a/second") == 0 && unlink("/tmp/ll/a/second") == 0);
    CHECK(FAILS(rename("/tmp/ll/a/file", "/tmp/ll/c/new"), EXDEV) && FAILS(link("/tmp/ll/a/file", "/tmp/ll/c/new"), EXDEV) && FAILS(rename("/tmp/ll/a/sub", "/tmp/ll/c/sub"), EXDEV));
    CHECK(FAILS(renameat2(AT_FDCWD, "/tmp/ll/a/file", AT_FDCWD, "/tmp/ll/c/file", RENAME_EXCHANGE), EXDEV));
}

static void refer_is_denied_though_nobody_handles_it(void)
{
    int fd = set(A(EXECUTE));
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && restrict_self(fd) == 0);
    CHECK(FAILS(rename("/tmp/ll/a/file", "/tmp/ll/c/new"), EXDEV) && rename("/tmp/ll/a/file", "/tmp/ll/a/x") == 0 && rename("/tmp/ll/a/x", "/tmp/ll/a/file") == 0);
}

static void renaming_with_refer(void)
{
    enter("/tmp/ll/a", MOVES | A(REFER), "/tmp/ll/c", MOVES | A(REFER));
    CHECK(rename("/tmp/ll/a/file", "/tmp/ll/c/new") == 0 && link("/tmp/ll/c/new", "/tmp/ll/a/file") == 0 && unlink("/tmp/ll/c/new") == 0 && rename("/tmp/ll/a/sub", "/tmp/ll/c/sub") == 0 && rename("/tmp/ll/c/sub", "/tmp/ll/a/sub") == 0);
    CHECK(renameat2(AT_FDCWD, "/tmp/ll/a/file", AT_FDCWD, "/tmp/ll/c/file", RENAME_EXCHANGE) == 0);
    // A right that is missing counts more than that the file would gain one.
    CHECK(FAILS(rename("/tmp/ll/a/file", "/tmp/ll/b/new"), EACCES) && FAILS(rename("/tmp/ll/b/file", "/tmp/ll/a/new"), EACCES) && FAILS(link("/tmp/ll/b/file", "/tmp/ll/a/new"), EXDEV));
    CHECK(FAILS(rename("/tmp/ll/a/none", "/tmp/ll/b/new"), ENOENT) && FAILS(rename("/tmp/ll/a/file", "/proc/new"), EXDEV));
}

static void nobody_gains_a_right(void)
{
    enter("/tmp/ll/a", MOVES | A(REFER), "/tmp/ll/c", MOVES | A(REFER) | A(EXECUTE));
    // There files may be executed.
    CHECK(FAILS(rename("/tmp/ll/a/file", "/tmp/ll/c/new"), EXDEV) && FAILS(link("/tmp/ll/a/file", "/tmp/ll/c/new"), EXDEV) && FAILS(renameat2(AT_FDCWD, "/tmp/ll/a/file", AT_FDCWD, "/tmp/ll/c/file", RENAME_EXCHANGE), EXDEV));
    CHECK(rename("/tmp/ll/c/file", "/tmp/ll/a/new") == 0 && FAILS(rename("/tmp/ll/a/new", "/tmp/ll/c/file"), EXDEV));
}

static void layers(void)
{
    enter("/tmp/ll/a", READ | A(WRITE_FILE), "/tmp/ll/c", READ);
    enter("/tmp/ll/a/sub", READ | A(WRITE_FILE), "/tmp/ll/c", READ | A(WRITE_FILE));
    CHECK(opens("/tmp/ll/a/sub/file", O_RDWR) == 0 && FAILS(opens("/tmp/ll/a/file", O_RDONLY), EACCES) && opens("/tmp/ll/c/file", O_RDONLY) == 0 && FAILS(opens("/tmp/ll/c/file", O_WRONLY), EACCES));
}

static void mounts(void)
{
    CHECK(unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    CHECK(mount("/tmp/ll/a", "/tmp/ll/m", NULL, MS_BIND, NULL) == 0 && mount("none", "/tmp/ll/c", "tmpfs", 0, NULL) == 0 && opens("/tmp/ll/c/inside", O_RDWR | O_CREAT) == 0);
    int covered = open("/tmp/ll/b", O_PATH);
    CHECK(mount("none", "/tmp/ll/b", "tmpfs", 0, NULL) == 0 && opens("/tmp/ll/b/inside", O_RDWR | O_CREAT) == 0);
    int fd = set(EVERYTHING);
    struct landlock_path_beneath_attr rule = {.allowed_access = READ, .parent_fd = covered};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && add(fd, "/tmp/ll/a/sub", READ) == 0 && add(fd, "/tmp/ll/c", READ) == 0 && ADD(fd, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) == 0 && restrict_self(fd) == 0);
    // The same directory by another way; a rule on the root of a mount; one on what a mount covers.
    CHECK(opens("/tmp/ll/m/sub/file", O_RDONLY) == 0 && FAILS(opens("/tmp/ll/m/file", O_RDONLY), EACCES) && opens("/tmp/ll/c/inside", O_RDONLY) == 0 && FAILS(opens("/tmp/ll/b/inside", O_RDONLY), EACCES));
    CHECK(FAILS(mount("none", "/tmp/ll/a", "tmpfs", 0, NULL), EPERM) && FAILS(mount("/tmp/ll/a", "/tmp/ll/b", NULL, MS_BIND, NULL), EPERM) && FAILS(mount(NULL, "/tmp/ll/c", NULL, MS_REMOUNT | MS_RDONLY, NULL), EPERM));
    CHECK(FAILS(umount("/tmp/ll/c"), EPERM) && FAILS(syscall(SYS_pivot_root, "/tmp/ll/c", "/tmp/ll/c"), EPERM) && chroot("/tmp/ll") == 0);
}

static void a_bind_mount_is_below_where_it_is(void)
{
    CHECK(unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 && mount("/tmp/ll/a", "/tmp/ll/m", NULL, MS_BIND, NULL) == 0);
    enter("/tmp/ll/m/..", A(READ_DIR), "/tmp/ll/a/sub", READ);
    CHECK(opens("/tmp/ll/m", O_RDONLY) == 0 && FAILS(opens("/tmp/ll/m/file", O_RDONLY), EACCES) && opens("/tmp/ll/m/sub/file", O_RDONLY) == 0);
}

static void *restricted_thread(void *arg)
{
    (void)arg;
    enter(NULL, 0, NULL, 0);
    CHECK(FAILS(opens("/tmp/ll/a/file", O_RDONLY), EACCES));
    return NULL;
}

static void *usual_thread(void *arg)
{
    (void)arg;
    CHECK(FAILS(opens("/tmp/ll/a/file", O_RDONLY), EACCES));
    return NULL;
}

static void is_restricted(void)
{
    CHECK(FAILS(opens("/tmp/ll/a/file", O_RDONLY), EACCES));
}

static void inheritance(void)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, restricted_thread, NULL) == 0 && pthread_join(thread, NULL) == 0 && opens("/tmp/ll/a/file", O_RDONLY) == 0);
    enter(NULL, 0, NULL, 0);
    in_child(is_restricted);
    CHECK(pthread_create(&thread, NULL, usual_thread, NULL) == 0 && pthread_join(thread, NULL) == 0);
}

// A child that waits until it may end, with a domain of its own or without.
static pid_t waits(int with_domain, int pipe_fds[4])
{
    CHECK(pipe(pipe_fds) == 0 && pipe(pipe_fds + 2) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        char byte;
        close(pipe_fds[1]);
        if (with_domain)
            enter(NULL, 0, NULL, 0);
        _exit(write(pipe_fds[3], "x", 1) != 1 || read(pipe_fds[0], &byte, 1) != 0);
    }
    char byte;
    close(pipe_fds[0]);
    CHECK(pid > 0 && read(pipe_fds[2], &byte, 1) == 1);
    return pid;
}

static void ends(pid_t pid, int pipe_fds[4])
{
    int status;
    close(pipe_fds[1]), close(pipe_fds[2]), close(pipe_fds[3]);
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

static int traces(pid_t pid)
{
    int status;
    if (ptrace(PTRACE_ATTACH, pid, 0, 0))
        return -1;
    CHECK(waitpid(pid, &status, __WALL) == pid && ptrace(PTRACE_DETACH, pid, 0, 0) == 0);
    return 0;
}

static void tracing(void)
{
    int fds[4], others[4], more[4];
    pid_t restricted = waits(1, fds), usual = waits(0, others);
    CHECK(traces(restricted) == 0);
    enter("/proc", READ, NULL, 0);
    char path[32];
    sprintf(path, "/proc/%d/mem", usual);
    // From within one sees neither those outside nor those in another domain.
    CHECK(FAILS(traces(restricted), EPERM) && FAILS(traces(usual), EPERM) && FAILS(opens(path, O_RDONLY), EACCES));
    pid_t inner = waits(1, more), same;
    CHECK(traces(inner) == 0);
    ends(inner, more);
    same = waits(0, more);
    CHECK(traces(same) == 0);
    ends(same, more);
    ends(usual, others);
    ends(restricted, fds);
}

static void many_rules(void)
{
    char path[64];
    int fd = set(EVERYTHING), last = set(EVERYTHING);
    CHECK(mkdir("/tmp/ll/many", 0700) == 0);
    for (int i = 0; i < 5000; i++) {
        sprintf(path, "/tmp/ll/many/%d", i);
        CHECK(mknod(path, S_IFREG | 0600, 0) == 0 && add(fd, path, A(READ_FILE)) == 0 && (i != 4321 || add(last, path, A(READ_FILE)) == 0));
    }
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && FAILS(opens("/tmp/ll/many/9999", O_RDONLY), ENOENT));
    for (int i = 0; i < 15; i++)
        CHECK(restrict_self(fd) == 0);
    CHECK(opens("/tmp/ll/many/4321", O_RDONLY) == 0 && opens("/tmp/ll/many/1", O_RDONLY) == 0 && restrict_self(last) == 0);
    CHECK(opens("/tmp/ll/many/4321", O_RDONLY) == 0 && FAILS(opens("/tmp/ll/many/1", O_RDONLY), EACCES) && FAILS(restrict_self(last), E2BIG));
}

static void make_file(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0755);
    CHECK(fd >= 0 && write(fd, "text", 4) == 4 && close(fd) == 0);
}

static void begin(void)
{
    const char *directories[] = {"/tmp", "/tmp/ll", "/tmp/ll/a", "/tmp/ll/a/sub", "/tmp/ll/b", "/tmp/ll/b/empty", "/tmp/ll/c", "/tmp/ll/m"};
    for (unsigned i = 0; i < sizeof directories / sizeof *directories; i++)
        CHECK(mkdir(directories[i], 0755) == 0 || errno == EEXIST);
    make_file("/tmp/ll/a/file"), make_file("/tmp/ll/a/sub/file"), make_file("/tmp/ll/b/file"), make_file("/tmp/ll/c/file");
    CHECK(symlink("../b/file", "/tmp/ll/a/link") == 0 || errno == EEXIST);
}

int main(int argc, char **argv)
{
    // Run again, from within a domain.
    if (argc == 2 && !strcmp(argv[1], "restricted")) {
        CHECK(FAILS(opens("/tmp/ll/a/file", O_WRONLY), EACCES) && opens("/tmp/ll/a/file", O_RDONLY) == 0);
        return 0;
    }
    begin();
    void (*tests[])(void) = {calls, opening, executing, names, renaming_without_refer, refer_is_denied_though_nobody_handles_it, renaming_with_refer, nobody_gains_a_right, layers, mounts, a_bind_mount_is_below_where_it_is, inheritance, tracing, many_rules};
    for (unsigned i = 0; i < sizeof tests / sizeof *tests; i++) {
        in_child(tests[i]);
        begin();
    }
    in_child(executing_allowed);
    puts("all landlock tests passed");
    return 0;
}
