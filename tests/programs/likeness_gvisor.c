// SPDX-License-Identifier: Apache-2.0 OR MIT
// What gVisor's system-call tests ask for, in which this kernel once differed from Linux (docs/reference/conformance.md).
#define _GNU_SOURCE
#include "check.h"
#include <dirent.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define FAILS(call, error) (errno = 0, (call) == -1 && errno == (error))
#define NOBODY 65534

static char directory[] = "/tmp/likeness-XXXXXX";

static int ends_well(pid_t child) {
    int status;
    return waitpid(child, &status, 0) == child && status == 0;
}

// The text of a file of /proc, without its last newline.
static const char *text_of(const char *path) {
    static char text[65536];
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0);
    ssize_t length = read(fd, text, sizeof text - 1);
    CHECK(length >= 0 && close(fd) == 0);
    text[length] = 0;
    if (length > 0 && text[length - 1] == '\n')
        text[length - 1] = 0;
    return text;
}

static const char *below(const char *format, int number) {
    static char path[128];
    snprintf(path, sizeof path, format, number);
    return path;
}

// The processor takes no such address for a thread's pointer.
static void clone_refuses_what_is_no_address(void) {
    CHECK(FAILS(syscall(SYS_clone, CLONE_SETTLS | SIGCHLD, 0, 0, 0, 1ul << 63), EPERM));
}

static atomic_int word, awake;

static void *waits(void *unused) {
    while (syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, 0, 0, 0) == -1 && errno == EINTR)
        ;
    awake++;
    return unused;
}

static void a_futex_wakes_one_when_none_is_asked_for(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, 0, waits, 0) == 0);
    while (syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 0, 0, 0, 0) != 1)
        usleep(1000);
    CHECK(pthread_join(thread, 0) == 0 && awake == 1);
}

// recvfrom(2) of a stream tells the sender's name, bound late or not; so does getpeername(2).
static void streams_tell_who_sent(void) {
    struct sockaddr_un name = { AF_UNIX, "\0likeness-gvisor" }, from;
    socklen_t size = sizeof(sa_family_t) + 16, length = sizeof from;
    int s[2];
    char c;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0 && send(s[0], "ab", 2, 0) == 2);
    CHECK(recvfrom(s[1], &c, 1, 0, (void *)&from, &length) == 1 && length == 0);
    CHECK(bind(s[0], (void *)&name, size) == 0);
    length = sizeof from;
    CHECK(recvfrom(s[1], &c, 1, MSG_PEEK, (void *)&from, &length) == 1 && length == size);
    length = sizeof from;
    CHECK(recvfrom(s[1], &c, 1, 0, (void *)&from, &length) == 1 && length == size && memcmp(&from, &name, size) == 0);
    length = sizeof from;
    CHECK(getpeername(s[1], (void *)&from, &length) == 0 && length == size);
    struct statfs fs;
    CHECK(fstatfs(s[0], &fs) == 0 && fs.f_type == 0x534f434b);
    close(s[0]), close(s[1]);
}

// Capabilities of a file were given to what is in it, and by its owner.
static void file_capabilities_go(void) {
    static const unsigned capability[5] = { 0x02000001, 1 << 10 };
    static const char name[] = "security.capability";
    char value[20];
    int fd = open("capable", O_RDWR | O_CREAT, 0755);
    CHECK(fd >= 0);
    for (int by_owner = 0; by_owner < 2; by_owner++) {
        CHECK(fsetxattr(fd, name, capability, sizeof capability, 0) == 0);
        CHECK(fgetxattr(fd, name, value, sizeof value) == sizeof value);
        CHECK(by_owner ? fchown(fd, 1, 1) == 0 : write(fd, "x", 1) == 1);
        CHECK(FAILS(fgetxattr(fd, name, value, sizeof value), ENODATA));
    }
    close(fd);
}

static void files_are_opened_as_asked(void) {
    char c;
    int fd = open("file", O_CREAT | O_ACCMODE, 0600);
    // Neither for reading nor for writing: for ioctl alone.
    CHECK(fd >= 0 && FAILS(read(fd, &c, 1), EBADF) && FAILS(write(fd, "x", 1), EBADF));
    close(fd);
    CHECK(FAILS(open(".", O_RDONLY | O_DIRECT), EINVAL));
    fd = open("file", O_RDWR | O_APPEND);
    CHECK(FAILS(pwrite(fd, "xy", 2, 0x7fffffffffffffff), EINVAL) && pwrite(fd, "xy", 2, 1000) == 2);
    CHECK(lseek(fd, 0, SEEK_END) == 2);
    close(fd);
    char entries[1024];
    fd = open(".", O_RDONLY);
    CHECK(FAILS(syscall(SYS_getdents64, fd, entries, 0x80000000u), EINVAL));
    CHECK(syscall(SYS_getdents64, fd, entries, sizeof entries) > 0);
    close(fd);
    fd = eventfd(0, 0);
    CHECK(FAILS(fallocate(fd, 0, 0, 10), ENODEV));
    close(fd);
    fd = (int)syscall(SYS_memfd_create, "memory", 0);
    CHECK(fallocate(fd, 0, 0, 10) == 0);
    close(fd);
}

static void memory_is_cut_and_locked(void) {
    size_t page = 4096;
    char *at = mmap(0, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED && mprotect(at + page, page, PROT_READ) == 0);
    // Three mappings become one.
    CHECK(mremap(at, 3 * page, page, 0) == at);
    CHECK(FAILS(msync(at + page, page, MS_ASYNC), ENOMEM) && FAILS(msync(at + 2 * page, page, MS_ASYNC), ENOMEM));
    CHECK(mprotect(at, page, PROT_NONE) == 0 && FAILS(mlock(at, page), ENOMEM));
    // It is locked all the same.
    CHECK(FAILS(msync(at, page, MS_ASYNC | MS_INVALIDATE), EBUSY) && munmap(at, page) == 0);
    unsigned long nodes = 1;
    int mode;
    CHECK(FAILS(syscall(SYS_set_mempolicy, 0, &nodes, 0), EINVAL));
    CHECK(FAILS(syscall(SYS_get_mempolicy, &mode, 0, 0, 0, 1), EINVAL));
}

static void *shows_itself(void *unused) {
    int tid = (int)syscall(SYS_gettid);
    char exe[128], own[128];
    static const char *const names[] = { "environ", "auxv", "cmdline", "io", "children", "mountinfo", "oom_score_adj", "fdinfo", "ns/pid" };
    // Not listed, but found (proc(5)).
    CHECK(access(below("/proc/%d/task", tid), F_OK) == 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[128];
        snprintf(path, sizeof path, "/proc/self/task/%d/%s", tid, names[i]);
        CHECK(access(path, F_OK) == 0);
    }
    ssize_t length = readlink("/proc/thread-self/exe", exe, sizeof exe);
    CHECK(length > 0 && readlink("/proc/self/exe", own, sizeof own) == length && memcmp(exe, own, (size_t)length) == 0);
    pid_t child = fork();
    if (child == 0)
        for (;;)
            pause();
    char path[128], wanted[32];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", tid);
    snprintf(wanted, sizeof wanted, "%d ", child);
    CHECK(strcmp(text_of(path), wanted) == 0);
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, 0, 0) == child);
    return unused;
}

static void threads_show_what_processes_show(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, 0, shows_itself, 0) == 0 && pthread_join(thread, 0) == 0);
    struct stat a, b;
    char link[64];
    CHECK(readlink("/proc/self/ns/pid", link, sizeof link) > 5 && strncmp(link, "pid:[", 5) == 0);
    CHECK(stat("/proc/self/ns/uts", &a) == 0 && stat(below("/proc/%d/ns/uts", getppid()), &b) == (getppid() ? 0 : -1));
    CHECK(getppid() == 0 || a.st_ino == b.st_ino);
    CHECK(strstr(text_of("/proc/cpuinfo"), "\ncpu MHz\t") && strstr(text_of("/proc/cpuinfo"), "\ncache size\t"));
    CHECK(strstr(text_of("/proc/cpuinfo"), " sse2 "));
}

static void what_a_core_file_has_can_be_set(void) {
    int fd = open("/proc/self/coredump_filter", O_RDWR);
    CHECK(write(fd, "0x21", 5) == 5 && strcmp(text_of("/proc/self/coredump_filter"), "00000021") == 0);
    pid_t child = fork();
    if (child == 0)
        _exit(strcmp(text_of("/proc/self/coredump_filter"), "00000021") != 0);
    CHECK(ends_well(child) && write(fd, "51", 2) == 2);
    close(fd);
    CHECK(strcmp(text_of("/proc/self/coredump_filter"), "00000033") == 0);
    fd = open("/proc/self/oom_score_adj", O_WRONLY);
    CHECK(write(fd, "7", 2) == 2 && strcmp(text_of("/proc/self/oom_score_adj"), "7") == 0 && write(fd, "0", 1) == 1);
    close(fd);
}

// Memory is shown to those who may trace the process, and asked when it is opened; options that only an administrator may set.
static void others_are_kept_out(void) {
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        int s = socket(AF_INET, SOCK_DGRAM, 0), mark = 1, least = 6, high = 7;
        CHECK(setsockopt(s, SOL_SOCKET, SO_MARK, &mark, sizeof mark) == 0);
        CHECK(setresuid(NOBODY, NOBODY, NOBODY) == 0);
        CHECK(FAILS(setsockopt(s, SOL_SOCKET, SO_MARK, &mark, sizeof mark), EPERM));
        CHECK(setsockopt(s, SOL_SOCKET, SO_PRIORITY, &least, sizeof least) == 0);
        CHECK(FAILS(setsockopt(s, SOL_SOCKET, SO_PRIORITY, &high, sizeof high), EPERM));
        CHECK(FAILS(setsockopt(s, SOL_SOCKET, SO_RCVBUFFORCE, &high, sizeof high), EPERM));
        CHECK(FAILS(open(below("/proc/%d/maps", parent), O_RDONLY), EACCES));
        CHECK(FAILS(open(below("/proc/%d/environ", parent), O_RDONLY), EACCES));
        CHECK(FAILS(open(below("/proc/%d/auxv", parent), O_RDONLY), EACCES));
        CHECK(FAILS(open(below("/proc/%d/smaps", parent), O_RDONLY), EACCES));
        _exit(0);
    }
    CHECK(ends_well(child));
}

// A program that its user may run and not read is not shown to him by a core file either.
static void unreadable_programs_are_not_dumpable(void) {
    for (int mode = 0; mode < 2; mode++) {
        pid_t child = fork();
        if (child == 0) {
            char copy[4096];
            ssize_t n;
            int from = open("/proc/self/exe", O_RDONLY), to = open("program", O_WRONLY | O_CREAT | O_TRUNC, 0755);
            while ((n = read(from, copy, sizeof copy)) > 0)
                CHECK(write(to, copy, (size_t)n) == n);
            CHECK(fchmod(to, mode ? 0755 : 0711) == 0 && close(to) == 0);
            CHECK(setresgid(NOBODY, NOBODY, NOBODY) == 0 && setresuid(NOBODY, NOBODY, NOBODY) == 0);
            execl("./program", "program", "dumpable", (char *)0);
            _exit(99);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == mode);
    }
}

// The interpreter would look for the script behind a descriptor that is closed by then.
static void scripts_behind_descriptors_that_close(void) {
    int fd = open("script", O_WRONLY | O_CREAT, 0755);
    CHECK(write(fd, "#!/proc/self/exe dumpable\n", 26) == 26 && close(fd) == 0);
    pid_t child = fork();
    if (child == 0) {
        char *const arguments[] = { "script", 0 };
        fd = open("script", O_RDONLY | O_CLOEXEC);
        CHECK(FAILS(syscall(SYS_execveat, fd, "", arguments, 0, AT_EMPTY_PATH), ENOENT));
        _exit(0);
    }
    CHECK(ends_well(child));
    // A thread's name is set by its own process alone.
    child = fork();
    if (child == 0) {
        fd = open(below("/proc/%d/comm", getppid()), O_WRONLY);
        CHECK(getppid() == 0 || FAILS(write(fd, "x", 1), EINVAL));
        CHECK(setresuid(NOBODY, NOBODY, NOBODY) == 0);
        CHECK(getppid() == 0 || FAILS(open(below("/proc/%d/fd", getppid()), O_RDONLY), EACCES));
        _exit(0);
    }
    CHECK(ends_well(child));
    struct stat stat_of;
    CHECK(stat("/proc/self/task", &stat_of) == 0 && stat_of.st_nlink == 3);
}

static int ready[2];
static pid_t orphan;

static void *makes_a_child(void *unused) {
    char c;
    orphan = fork();
    if (orphan == 0) {
        CHECK(prctl(PR_SET_PDEATHSIG, SIGTERM) == 0 && write(ready[1], "x", 1) == 1);
        for (;;)
            pause();
    }
    CHECK(read(ready[0], &c, 1) == 1);
    return unused;
}

// The parent of PR_SET_PDEATHSIG is the thread.
static void children_are_told_of_the_end_of_a_thread(void) {
    pthread_t thread;
    int status;
    CHECK(pipe(ready) == 0 && pthread_create(&thread, 0, makes_a_child, 0) == 0 && pthread_join(thread, 0) == 0);
    CHECK(waitpid(orphan, &status, 0) == orphan && WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
}

// Sockets and pipes have modes, owners and times, which their ends share; and a socket's file gets the mode of the socket.
static void what_has_no_name_has_attributes(void) {
    struct stat stat;
    struct timespec times[2] = { { 1, 0 }, { 2, 0 } };
    char value[8];
    int ends[2];
    CHECK(pipe(ends) == 0 && fstat(ends[0], &stat) == 0 && (stat.st_mode & 07777) == 0600);
    CHECK(fchmod(ends[0], 0640) == 0 && fchown(ends[0], 5, 6) == 0 && futimens(ends[0], times) == 0);
    CHECK(fstat(ends[0], &stat) == 0 && S_ISFIFO(stat.st_mode) && (stat.st_mode & 07777) == 0640);
    CHECK(stat.st_uid == 5 && stat.st_gid == 6 && stat.st_mtime == 2);
    CHECK(FAILS(fgetxattr(ends[0], "user.x", value, sizeof value), ENODATA));
    CHECK(FAILS(fsetxattr(ends[0], "user.x", "1", 1, 0), EPERM));
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
    mode_t mask = umask(022);
    struct sockaddr_un name = { AF_UNIX, "named" };
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(fstat(s, &stat) == 0 && S_ISSOCK(stat.st_mode) && (stat.st_mode & 07777) == 0777 && stat.st_uid == geteuid());
    CHECK(fchmod(s, 0624) == 0 && fstat(s, &stat) == 0 && (stat.st_mode & 07777) == 0624);
    CHECK(bind(s, (void *)&name, sizeof name) == 0 && lstat("named", &stat) == 0 && (stat.st_mode & 07777) == 0604);
    CHECK(unlink("named") == 0 && close(s) == 0);
    umask(mask);
    // Those that nothing tells apart but what they count have none of their own.
    CHECK(FAILS(fchown(eventfd(0, 0), 5, 6), EOPNOTSUPP));
}

// Files are read and written up to the byte behind which memory is not there; pipes and datagrams take all of it or nothing.
static void memory_ends_in_the_middle(void) {
    char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED && munmap(page + 4096, 4096) == 0);
    char *end = page + 4096, whole[64] = "", text[] = "some text of a file";
    const int size = sizeof text;
    int file = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600), ends[2], zeros = open("/dev/zero", O_RDONLY);
    CHECK(file >= 0 && zeros >= 0 && pipe(ends) == 0 && pwrite(file, text, size, 0) == size);

    CHECK(pread(file, end - 5, size, 0) == 5 && memcmp(end - 5, text, 5) == 0);
    struct iovec two[2] = {{whole, 3}, {end - 4, size}};
    CHECK(preadv(file, two, 2, 0) == 7 && memcmp(end - 4, text + 3, 4) == 0);
    CHECK(lseek(file, 0, SEEK_SET) == 0 && read(file, end - 7, size) == 7 && lseek(file, 0, SEEK_CUR) == 7);
    CHECK(FAILS(pread(file, end, size, 0), EFAULT) && read(zeros, end - 9, size) == 9);
    CHECK(syscall(SYS_getrandom, end - 9, size, 0) == 9 && FAILS(syscall(SYS_getrandom, end, size, 0), EFAULT));

    memcpy(end - 6, "abcdef", 6);
    CHECK(pwrite(file, end - 6, size, 2) == 6 && pread(file, whole, size, 0) == size);
    CHECK(memcmp(whole, "soabcdefof a file", 8) == 0 && FAILS(pwrite(file, end, 1, 0), EFAULT));
    CHECK(ftruncate(file, 0) == 0 && lseek(file, 0, SEEK_SET) == 0 && write(file, end - 6, size) == 6);
    CHECK(lseek(file, 0, SEEK_END) == 6);

    CHECK(FAILS(write(ends[1], end - 6, size), EFAULT) && write(ends[1], text, size) == size);
    CHECK(FAILS(read(ends[0], end - 6, size), EFAULT) && read(ends[0], whole, sizeof whole) == size);
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
    struct iovec parts[2] = {{text, 3}, {end, 3}};
    CHECK(FAILS(writev(pair[0], parts, 2), EFAULT) && FAILS(recv(pair[1], whole, 1, MSG_DONTWAIT), EAGAIN));
    CHECK(FAILS(write(pair[0], end - 6, size), EFAULT) && FAILS(recv(pair[1], whole, 1, MSG_DONTWAIT), EAGAIN));
    close(file), close(zeros), close(ends[0]), close(ends[1]), close(pair[0]), close(pair[1]), munmap(page, 4096);
}

struct transferred {
    long read, written, reads, writes;
};

static struct transferred transferred(const char *path) {
    char text[512] = "";
    struct transferred out;
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0 && read(fd, text, sizeof text - 1) > 0);
    CHECK(sscanf(text, "rchar: %ld\nwchar: %ld\nsyscr: %ld\nsyscw: %ld\nread_bytes:", &out.read, &out.written, &out.reads, &out.writes) == 4);
    close(fd);
    return out;
}

// Bytes and calls of read(2), write(2) and their like are counted by thread, and with those of children that were waited for by process.
static void transferred_bytes_are_counted(void) {
    char bytes[1000] = "";
    int ends[2], status;
    CHECK(pipe(ends) == 0);
    struct transferred before = transferred("/proc/self/io"), own = transferred("/proc/thread-self/io");
    CHECK(write(ends[1], bytes, 700) == 700 && read(ends[0], bytes, 1000) == 700);
    CHECK(read(-1, bytes, 1) == -1);
    struct transferred after = transferred("/proc/self/io"), own_after = transferred("/proc/thread-self/io");
    CHECK(after.written - before.written == 700 && after.writes - before.writes == 1);
    CHECK(own_after.written - own.written == 700 && own_after.writes - own.writes == 1);
    // The files of /proc were read as well.
    CHECK(after.reads - before.reads == 3 && after.read - before.read > 700 && after.read - before.read < 1200);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        _exit(pwrite(1, "", 0, 0) == -1 && write(ends[1], bytes, 900) == 900 ? 0 : 1);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(transferred("/proc/self/io").written - after.written == 900);
    CHECK(transferred("/proc/thread-self/io").written == own_after.written);
    close(ends[0]);
    close(ends[1]);
}

static void says(const char *path, const char *wanted) {
    char text[256] = "";
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0 && read(fd, text, sizeof text - 1) >= 0);
    close(fd);
    if (strcmp(text, wanted) != 0)
        printf("%s says %s\n", path, text);
    CHECK(strcmp(text, wanted) == 0);
}

static long put(const char *path, const char *text) {
    int fd = open(path, O_WRONLY);
    CHECK(fd >= 0);
    long done = write(fd, text, strlen(text));
    int error = errno;
    close(fd);
    errno = error;
    return done;
}

// Small files of /proc/PID that tools read.
static void small_files_say_what_they_should(void) {
    unsigned long long ran, waited, turns;
    char text[128] = "";
    int status;
    fflush(stdout);
    pid_t child = fork();
    if (child != 0) {
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        return;
    }
    personality(0x0400000);
    says("/proc/self/personality", "00400000\n");
    int fd = open("/proc/self/schedstat", O_RDONLY);
    CHECK(fd >= 0 && read(fd, text, sizeof text - 1) > 0 && close(fd) == 0);
    CHECK(sscanf(text, "%llu %llu %llu\n", &ran, &waited, &turns) == 3);
    CHECK(put("/proc/self/oom_score_adj", "500") == 3);
    says("/proc/self/oom_adj", "8\n");
    CHECK(put("/proc/self/oom_adj", "15") == 2);
    says("/proc/self/oom_score_adj", "1000\n");
    // Lowering takes CAP_SYS_RESOURCE.
    long lowered = put("/proc/self/oom_adj", "-17");
    CHECK(lowered == 3 || errno == EACCES);
    says("/proc/self/oom_score_adj", lowered == 3 ? "-1000\n" : "1000\n");
    CHECK(FAILS(put("/proc/self/oom_adj", "16"), EINVAL) && FAILS(put("/proc/self/oom_adj", "-18"), EINVAL));
    says("/proc/self/loginuid", "4294967295");
    says("/proc/self/sessionid", "4294967295");
    CHECK(FAILS(put("/proc/1/loginuid", "1000"), EPERM) && FAILS(put("/proc/self/loginuid", "x"), EINVAL));
    CHECK(put("/proc/self/loginuid", "1000") == 4);
    says("/proc/self/loginuid", "1000");
    fflush(stdout);
    child = fork();
    if (child == 0) {
        says("/proc/self/loginuid", "1000");
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    fd = open("/proc/self/sessionid", O_RDONLY);
    CHECK(fd >= 0 && read(fd, text, sizeof text) > 0 && strncmp(text, "4294967295", 10) != 0);
    exit(0);
}

int main(int count, char **arguments) {
    if (count >= 2 && strcmp(arguments[1], "dumpable") == 0)
        return prctl(PR_GET_DUMPABLE);
    CHECK(mkdtemp(directory) && chmod(directory, 0755) == 0 && chdir(directory) == 0);
    clone_refuses_what_is_no_address();
    a_futex_wakes_one_when_none_is_asked_for();
    streams_tell_who_sent();
    file_capabilities_go();
    files_are_opened_as_asked();
    memory_is_cut_and_locked();
    threads_show_what_processes_show();
    what_a_core_file_has_can_be_set();
    others_are_kept_out();
    unreadable_programs_are_not_dumpable();
    scripts_behind_descriptors_that_close();
    children_are_told_of_the_end_of_a_thread();
    what_has_no_name_has_attributes();
    memory_ends_in_the_middle();
    unlink("script"), unlink("capable"), unlink("file"), unlink("program"), rmdir(directory);
    transferred_bytes_are_counted();
    small_files_say_what_they_should();
    puts("all likeness tests of gVisor's passed");
    return 0;
}
