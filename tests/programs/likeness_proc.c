// SPDX-License-Identifier: Apache-2.0 OR MIT
// What /proc says of a process and takes from those who look at it: map_files, syscall, clear_refs, locked mappings in smaps. As root.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define FAIL(...) (printf("line %d: ", __LINE__), printf(__VA_ARGS__), printf(" (%s)\n", strerror(errno)), exit(1))
#define CHECK(what) ((what) ? 0 : FAIL("%s", #what))
#define REFUSED(what, error) ((what) == -1 && errno == (error) ? 0 : FAIL("%s is not refused with %s", #what, #error))
#define PAGE 4096ul

static char folder[] = "/tmp/likeness.XXXXXX";

static const char *below(const char *name) {
    static char path[2][256];
    static int turn;
    turn ^= 1;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

static void *mapped(size_t pages, int rights, int flags, int fd) {
    void *at = mmap(0, pages * PAGE, rights, flags, fd, 0);
    CHECK(at != MAP_FAILED);
    return at;
}

static void as_user(uid_t uid, void (*act)(void)) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(setgroups(0, 0) == 0 && setgid(uid) == 0 && setuid(uid) == 0);
        // The kernel took that away with the old ids.
        CHECK(prctl(PR_SET_DUMPABLE, 1) == 0);
        act();
        exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

// --- map_files ---

static const char *link_of(const void *at, size_t pages) {
    static char path[128];
    unsigned long start = (unsigned long)at;
    snprintf(path, sizeof path, "/proc/self/map_files/%lx-%lx", start, start + pages * PAGE);
    return path;
}

static int leads_to(const char *link, const char *wanted) {
    char path[512];
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return strcmp(path, wanted) == 0;
}

static int is_listed(const char *link) {
    DIR *directory = opendir("/proc/self/map_files");
    CHECK(directory);
    int found = 0;
    for (struct dirent *entry; (entry = readdir(directory));) {
        if (strcmp(entry->d_name, strrchr(link, '/') + 1) != 0) continue;
        CHECK(entry->d_type == DT_LNK);
        found++;
    }
    CHECK(closedir(directory) == 0);
    return found;
}

static void mapped_files_are_links(void) {
    int fd = open(below("file"), O_RDWR | O_CREAT | O_EXCL, 0644), only = open(below("file"), O_RDONLY);
    CHECK(fd >= 0 && only >= 0 && ftruncate(fd, 4 * PAGE) == 0 && pwrite(fd, "seen", 4, 0) == 4);
    char *shared = mapped(3, PROT_READ | PROT_WRITE, MAP_SHARED, fd);
    char *private = mapped(2, PROT_READ, MAP_PRIVATE, only);
    struct stat of_link, of_file;
    CHECK(lstat(link_of(shared, 3), &of_link) == 0 && of_link.st_mode == (S_IFLNK | 0600) && of_link.st_size == 64);
    CHECK(lstat(link_of(private, 2), &of_link) == 0 && of_link.st_mode == (S_IFLNK | 0400));
    CHECK(lstat("/proc/self/map_files", &of_link) == 0 && of_link.st_mode == (S_IFDIR | 0500));
    CHECK(leads_to(link_of(shared, 3), below("file")) && leads_to(link_of(private, 2), below("file")));
    CHECK(is_listed(link_of(shared, 3)) == 1 && is_listed(link_of(private, 2)) == 1);
    CHECK(stat(link_of(shared, 3), &of_link) == 0 && fstat(fd, &of_file) == 0 && of_link.st_ino == of_file.st_ino);

    // A part of a mapping is none, nor is what has no file.
    CHECK(!is_listed(link_of(shared, 2)));
    REFUSED(lstat(link_of(shared, 2), &of_link), ENOENT);
    char *anonymous = mapped(2, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    REFUSED(lstat(link_of(anonymous, 2), &of_link), ENOENT);
    CHECK(munmap(shared + PAGE, PAGE) == 0);
    REFUSED(lstat(link_of(shared, 3), &of_link), ENOENT);
    CHECK(leads_to(link_of(shared, 1), below("file")) && leads_to(link_of(shared + 2 * PAGE, 1), below("file")));

    // The link is about the file, whatever its name has become.
    CHECK(rename(below("file"), below("renamed")) == 0 && leads_to(link_of(private, 2), below("renamed")));
    CHECK(unlink(below("renamed")) == 0);
    char deleted[300], text[4];
    snprintf(deleted, sizeof deleted, "%s (deleted)", below("renamed"));
    CHECK(leads_to(link_of(private, 2), deleted));
    int again = open(link_of(private, 2), O_RDWR);
    CHECK(again >= 0 && pread(again, text, 4, 0) == 4 && memcmp(text, "seen", 4) == 0);
    CHECK(pwrite(again, "SEEN", 4, 0) == 4 && memcmp(shared, "SEEN", 4) == 0);
    CHECK(close(again) == 0 && close(fd) == 0 && close(only) == 0);
    CHECK(leads_to(link_of(private, 2), deleted));
    CHECK(munmap(private, 2 * PAGE) == 0 && munmap(shared, 3 * PAGE) == 0);
    REFUSED(open(link_of(private, 2), O_RDONLY), ENOENT);

    // Shared memory is a file without a place.
    char *both = mapped(1, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1);
    CHECK(leads_to(link_of(both, 1), "/dev/zero (deleted)") && is_listed(link_of(both, 1)));
    // Threads have no such directory.
    REFUSED(access("/proc/thread-self/map_files", F_OK), ENOENT);
}

static void names_of_ranges_are_exact(void) {
    static const char *const refused[] = {" %lx-%lx", "%lx -%lx", "%lx- %lx", "%lx-%lx ", "0%lx-%lx", "%lx-0%lx", "+%lx-%lx",
                                          "%lx-+%lx", "0x%lx-%lx", "%lx%lx", "1000000000000000000000%lx-%lx", "-%lx-%lx"};
    int fd = open("/dev/zero", O_RDONLY);
    char *at = mapped(1, PROT_NONE, MAP_PRIVATE, fd);
    CHECK(leads_to(link_of(at, 1), "/dev/zero"));
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        char name[128], path[192], to[64];
        snprintf(name, sizeof name, refused[i], (unsigned long)at, (unsigned long)at + PAGE);
        snprintf(path, sizeof path, "/proc/self/map_files/%s", name);
        if (readlink(path, to, sizeof to) != -1 || errno != ENOENT) FAIL("%s is found (errno %d)", name, errno);
    }
    CHECK(munmap(at, PAGE) == 0 && close(fd) == 0);
}

static char of_parent[64];

static void reads_names_alone(void) {
    int fd = open("/dev/zero", O_RDONLY);
    char *at = mapped(1, PROT_READ, MAP_PRIVATE, fd);
    CHECK(leads_to(link_of(at, 1), "/dev/zero") && is_listed(link_of(at, 1)));
    REFUSED(open(link_of(at, 1), O_RDONLY), EPERM);
    REFUSED(open(of_parent, O_RDONLY | O_DIRECTORY), EACCES);
    char inside[128];
    snprintf(inside, sizeof inside, "%s/1000-2000", of_parent);
    REFUSED(access(inside, F_OK), EACCES);
}

// --- syscall ---

static ssize_t call_of(pid_t pid, char *text, size_t size) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/syscall", pid);
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0);
    ssize_t length = read(fd, text, size - 1);
    text[length < 0 ? 0 : length] = 0;
    CHECK(close(fd) == 0);
    return length;
}

static void waits_for(pid_t pid, const char *start) {
    char text[256];
    for (int i = 0; i < 10000; i++) {
        CHECK(call_of(pid, text, sizeof text) > 0);
        if (strncmp(text, start, strlen(start)) == 0) return;
        usleep(1000);
    }
    FAIL("%s is not %s", text, start);
}

static void calls_are_seen(void) {
    char text[256], wanted[128];
    int fd = open("/proc/self/syscall", O_RDONLY);
    struct stat stat_;
    CHECK(fd >= 0 && fstat(fd, &stat_) == 0 && (stat_.st_mode & 07777) == 0400);
    ssize_t length = syscall(SYS_read, fd, text, sizeof text - 1);
    CHECK(length > 0);
    text[length] = 0;
    snprintf(wanted, sizeof wanted, "%d %#lx %#lx %#lx ", SYS_read, (long)fd, (long)text, (long)sizeof text - 1);
    CHECK(strncmp(text, wanted, strlen(wanted)) == 0);
    unsigned long words[8];
    CHECK(sscanf(text, "%*d %lx %lx %lx %lx %lx %lx %lx %lx", &words[0], &words[1], &words[2], &words[3], &words[4], &words[5],
                 &words[6], &words[7]) == 8);
    // Stack pointer and instruction, which is the one behind the call.
    CHECK(words[6] <= (unsigned long)text + sizeof text && words[6] > (unsigned long)text - (1 << 20) && words[7] > PAGE);

    int ends[2];
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char byte;
        CHECK(syscall(SYS_read, ends[0], &byte, 1l) == 1);
        for (;;) continue;
    }
    snprintf(wanted, sizeof wanted, "%d %#x 0x", SYS_read, ends[0]);
    waits_for(child, wanted);
    CHECK(kill(child, SIGSTOP) == 0);
    int status;
    CHECK(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
    CHECK(kill(child, SIGCONT) == 0 && write(ends[1], "", 1) == 1);
    waits_for(child, "running\n");
    CHECK(kill(child, SIGKILL) == 0);
    siginfo_t info;
    CHECK(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT) == 0);
    waits_for(child, "-1 0x0 0x0\n");
    CHECK(waitpid(child, &status, 0) == child);

    // Who may trace the process is looked at when the file is read.
    pid_t other = fork();
    CHECK(other >= 0);
    if (other == 0) {
        snprintf(wanted, sizeof wanted, "/proc/%d/syscall", getppid());
        int parents = open(wanted, O_RDONLY);
        CHECK(parents >= 0 && read(parents, text, sizeof text) > 0);
        CHECK(setgid(1000) == 0 && setuid(1000) == 0);
        CHECK(lseek(parents, 0, SEEK_SET) == 0);
        REFUSED(read(parents, text, sizeof text), EPERM);
        REFUSED(open(wanted, O_RDONLY), EACCES);
        exit(0);
    }
    CHECK(waitpid(other, &status, 0) == other && status == 0);
}

// --- smaps ---

/// A line of the mapping that begins at `at` in smaps.
static const char *line_of(const void *at, const char *name) {
    static char line[512];
    FILE *file = fopen("/proc/self/smaps", "r");
    CHECK(file);
    int is_here = 0;
    while (fgets(line, sizeof line, file)) {
        unsigned long start, end;
        char colon;
        if (sscanf(line, "%lx-%lx %c", &start, &end, &colon) == 3) is_here = start == (unsigned long)at;
        if (is_here && strncmp(line, name, strlen(name)) == 0) {
            CHECK(fclose(file) == 0);
            return line + strlen(name);
        }
    }
    FAIL("no %s of %p", name, at);
}

static long kib_of(const void *at, const char *name) { return strtol(line_of(at, name), 0, 10); }

static long status_of(const char *name) {
    char line[256];
    FILE *file = fopen("/proc/self/status", "r");
    CHECK(file);
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, name, strlen(name)) == 0) {
            CHECK(fclose(file) == 0);
            return strtol(line + strlen(name), 0, 10);
        }
    }
    FAIL("no %s", name);
}

static ssize_t clear(const char *what) {
    int fd = open("/proc/self/clear_refs", O_WRONLY);
    CHECK(fd >= 0);
    ssize_t result = write(fd, what, strlen(what));
    int error = errno;
    CHECK(close(fd) == 0);
    errno = error;
    return result;
}

static void references_are_cleared(void) {
    const size_t pages = 512;
    char *own = mapped(pages, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    CHECK(madvise(own, pages * PAGE, MADV_NOHUGEPAGE) == 0);
    memset(own, 1, pages * PAGE);
    int fd = open(below("referenced"), O_RDWR | O_CREAT, 0600);
    CHECK(fd >= 0 && ftruncate(fd, (off_t)(pages * PAGE)) == 0);
    char *file = mapped(pages, PROT_READ | PROT_WRITE, MAP_SHARED, fd);
    memset(file, 1, pages * PAGE);
    const long all = pages * PAGE / 1024;
    CHECK(kib_of(own, "Referenced:") == all && kib_of(file, "Referenced:") == all);

    CHECK(clear("2\n") == 2 && kib_of(own, "Referenced:") == 0 && kib_of(file, "Referenced:") == all);
    CHECK(clear("3") == 1 && kib_of(file, "Referenced:") == 0);
    CHECK(own[100 * PAGE] == 1);
    file[100 * PAGE] = 2;
    CHECK(kib_of(own, "Referenced:") == 4 && kib_of(file, "Referenced:") == 4);
    CHECK(clear(" 1 ") == 3 && kib_of(own, "Referenced:") == 0 && kib_of(file, "Referenced:") == 0);
    CHECK(kib_of(own, "Rss:") == all && kib_of(file, "Rss:") == all);
    // Nothing of it is lost, in a child neither.
    pid_t child = fork();
    CHECK(child >= 0);
    for (size_t i = 0; i < pages; i++) CHECK(own[i * PAGE] == 1 && file[i * PAGE] == (i == 100 ? 2 : 1));
    CHECK(kib_of(own, "Referenced:") == all && kib_of(file, "Referenced:") == all);
    if (child == 0) exit(0);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(munmap(file, pages * PAGE) == 0 && close(fd) == 0);

    CHECK(munmap(own, pages * PAGE) == 0);
    own = mapped(16 * 256, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    memset(own, 1, 16 << 20);
    CHECK(munmap(own, 16 << 20) == 0);
    long before = status_of("VmHWM:");
    CHECK(clear("5") == 1 && status_of("VmHWM:") < before - 8192);

    CHECK(clear("4") == 1);
    static const char *const bad[] = {"0", "6", "-1", "x", "1x", "1 1", "\n"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) REFUSED(clear(bad[i]), EINVAL);
    REFUSED(clear("99999999999"), ERANGE);
    struct stat stat_;
    CHECK(stat("/proc/self/clear_refs", &stat_) == 0 && (stat_.st_mode & 07777) == 0200);
    char byte;
    fd = open("/proc/self/clear_refs", O_RDWR);
    REFUSED(read(fd, &byte, 1), EINVAL);
    CHECK(close(fd) == 0);
}

static void may_not_clear(void) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/clear_refs", getppid());
    REFUSED(open(path, O_WRONLY), EACCES);
    CHECK(clear("1") == 1);
    REFUSED(open("/proc/self/clear_refs", O_RDONLY), EACCES);
}

static int has_flag(const void *at, const char *flag) { return strstr(line_of(at, "VmFlags:"), flag) != 0; }

static void locked_mappings_say_so(void) {
    char *at = mapped(3, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    CHECK(!has_flag(at, " lo"));
    CHECK(mlock(at + PAGE, PAGE) == 0 && has_flag(at + PAGE, " lo") && !has_flag(at, " lo"));
    CHECK(kib_of(at + PAGE, "Rss:") == 4 && kib_of(at + PAGE, "Locked:") == 4);
    CHECK(munlock(at, 3 * PAGE) == 0 && !has_flag(at, " lo"));
    // What is locked when it is touched is not there before.
    CHECK(syscall(SYS_mlock2, at, 3 * PAGE, MLOCK_ONFAULT) == 0 && has_flag(at, " lo"));
    at[0] = 1;
    CHECK(kib_of(at, "Rss:") == 8);
    REFUSED(syscall(SYS_mlock2, at, PAGE, 2), EINVAL);
    CHECK(munlock(at, 3 * PAGE) == 0 && munmap(at, 3 * PAGE) == 0);
    CHECK(mlockall(MCL_FUTURE | MCL_ONFAULT) == 0);
    at = mapped(3, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    at[0] = 1;
    CHECK(has_flag(at, " lo") && kib_of(at, "Rss:") == 4);
    CHECK(munlockall() == 0 && !has_flag(at, " lo") && munmap(at, 3 * PAGE) == 0);
}

// --- names and descriptors ---

static void names_cannot_be_made(void) {
    static const char *const places[] = {"/proc/none", "/proc/self/none", "/proc/self/fd/none", "/proc/sys/none", "/proc/sys/kernel/none"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const char *path = places[i];
        REFUSED(open(path, O_CREAT | O_WRONLY, 0600), ENOENT);
        REFUSED(open(path, O_CREAT | O_EXCL | O_RDWR, 0600), ENOENT);
        REFUSED(mkdir(path, 0700), ENOENT);
        REFUSED(mknod(path, S_IFIFO | 0600, 0), ENOENT);
        REFUSED(symlink("target", path), ENOENT);
        REFUSED(link("/proc/self/comm", path), ENOENT);
        REFUSED(link(folder, path), ENOENT);
    }
    // Names that are there stay.
    REFUSED(mkdir("/proc/self", 0700), EEXIST);
    REFUSED(open("/proc/version", O_CREAT | O_EXCL, 0600), EEXIST);
    REFUSED(rename("/proc/version", "/proc/none"), ENOENT);
    // In /sys a place for a name is found, and nothing can be made there.
    REFUSED(open("/sys/none", O_CREAT | O_WRONLY, 0600), EACCES);
    REFUSED(mkdir("/sys/none", 0700), EPERM);
    REFUSED(symlink("target", "/sys/none"), EPERM);
}

static void names_cannot_be_made_by_users(void) {
    REFUSED(open("/proc/none", O_CREAT | O_WRONLY, 0600), ENOENT);
    REFUSED(mkdir("/proc/none", 0700), ENOENT);
    REFUSED(unlink("/proc/version"), EACCES);
    REFUSED(mkdir("/sys/none", 0700), EACCES);
}

static char fds_of_parent[64];

static void finds_no_descriptors(void) {
    struct stat about;
    CHECK(stat(fds_of_parent, &about) == 0 && about.st_mode == (S_IFDIR | 0500) && about.st_uid == 0);
    REFUSED(access(fds_of_parent, R_OK), EACCES);
    REFUSED(open(fds_of_parent, O_RDONLY | O_DIRECTORY), EACCES);
    char path[80];
    snprintf(path, sizeof path, "%s/0", fds_of_parent);
    REFUSED(lstat(path, &about), EACCES);
    REFUSED(open(path, O_RDONLY), EACCES);
    // Its own, also when they have become the superuser's.
    CHECK(stat("/proc/self/fd", &about) == 0 && about.st_mode == (S_IFDIR | 0500) && about.st_uid == 1000);
    CHECK(prctl(PR_SET_DUMPABLE, 0) == 0);
    CHECK(stat("/proc/self/fd", &about) == 0 && about.st_mode == (S_IFDIR | 0500) && about.st_uid == 0);
    CHECK(lstat("/proc/self/fd/0", &about) == 0);
    int fds = open("/proc/self/fd", O_RDONLY | O_DIRECTORY);
    CHECK(fds >= 0 && close(fds) == 0);
}

int main(void) {
    CHECK(mkdtemp(folder));
    CHECK(chmod(folder, 0755) == 0);
    snprintf(of_parent, sizeof of_parent, "/proc/%d/map_files", getpid());
    mapped_files_are_links();
    names_of_ranges_are_exact();
    as_user(1000, reads_names_alone);
    calls_are_seen();
    references_are_cleared();
    as_user(1000, may_not_clear);
    locked_mappings_say_so();
    names_cannot_be_made();
    as_user(1000, names_cannot_be_made_by_users);
    snprintf(fds_of_parent, sizeof fds_of_parent, "/proc/%d/fd", getpid());
    as_user(1000, finds_no_descriptors);
    unlink(below("referenced"));
    CHECK(rmdir(folder) == 0);
    puts("all likeness tests of /proc passed");
    return 0;
}
