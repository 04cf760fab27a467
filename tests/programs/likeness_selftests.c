// SPDX-License-Identifier: Apache-2.0 OR MIT
// What Linux's own tests (tools/testing/selftests) showed to be other than on Linux.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

#define FAIL(...) (printf("line %d: ", __LINE__), printf(__VA_ARGS__), printf(" (%s)\n", strerror(errno)), exit(1))
#define CHECK(what) ((what) ? 0 : FAIL("%s", #what))
#define REFUSED(what, error) ((what) == -1 && errno == (error) ? 0 : FAIL("%s is not refused with %s", #what, #error))

static void alone(void (*act)(void)) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        act();
        exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static struct sockaddr_in place = {.sin_family = AF_INET};

static int made(int type, int option) {
    int one = 1, fd = socket(AF_INET, type, 0);
    CHECK(fd >= 0);
    if (option) CHECK(setsockopt(fd, SOL_SOCKET, option, &one, sizeof one) == 0);
    return fd;
}

static int bound(int fd) { return bind(fd, (struct sockaddr *)&place, sizeof place); }

// A port that nobody has.
static void choose(int type) {
    socklen_t length = sizeof place;
    int fd = made(type, 0);
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    place.sin_port = 0;
    CHECK(bound(fd) == 0 && getsockname(fd, (struct sockaddr *)&place, &length) == 0 && close(fd) == 0);
}

static int type_of_other;

static void other_user(void) {
    CHECK(setgid(1000) == 0 && setuid(1000) == 0);
    REFUSED(bound(made(type_of_other, SO_REUSEPORT)), EADDRINUSE);
}

static void ports_are_shared_by_one_user(void) {
    choose(SOCK_STREAM);
    int server = made(SOCK_STREAM, SO_REUSEPORT), client = made(SOCK_STREAM, 0), none = made(SOCK_STREAM, 0);
    CHECK(bound(server) == 0 && listen(server, 1) == 0);
    CHECK(connect(client, (struct sockaddr *)&place, sizeof place) == 0);
    int accepted = accept(server, 0, 0);
    char end;
    // The server's side ends first and keeps the port in TIME-WAIT.
    CHECK(accepted >= 0 && shutdown(accepted, SHUT_WR) == 0 && read(client, &end, 1) == 0 && close(client) == 0);
    CHECK(read(accepted, &end, 1) == 0 && close(accepted) == 0 && close(server) == 0);
    REFUSED(bound(none), EADDRINUSE);
    REFUSED(bound(made(SOCK_STREAM, SO_REUSEADDR)), EADDRINUSE);
    int again = made(SOCK_STREAM, SO_REUSEPORT);
    CHECK(bound(again) == 0 && listen(again, 1) == 0);
    CHECK(bound(made(SOCK_STREAM, SO_REUSEPORT)) == 0);
    type_of_other = SOCK_STREAM;
    alone(other_user);
    choose(SOCK_DGRAM);
    CHECK(bound(made(SOCK_DGRAM, SO_REUSEPORT)) == 0 && bound(made(SOCK_DGRAM, SO_REUSEPORT)) == 0);
    type_of_other = SOCK_DGRAM;
    alone(other_user);
}

static void data_may_come_with_the_first_send(void) {
    choose(SOCK_STREAM);
    int server = made(SOCK_STREAM, SO_REUSEADDR), client = made(SOCK_STREAM, 0);
    CHECK(bound(server) == 0 && listen(server, 1) == 0);
    REFUSED(sendto(client, "letter", 6, MSG_FASTOPEN, 0, 0), EINVAL);
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    REFUSED(sendto(client, "letter", 6, MSG_FASTOPEN, &none, sizeof none), EOPNOTSUPP);
    CHECK(sendto(client, "letter", 6, MSG_FASTOPEN, (struct sockaddr *)&place, sizeof place) == 6);
    int accepted = accept(server, 0, 0);
    char letter[8] = "";
    CHECK(accepted >= 0 && recv(accepted, letter, 6, MSG_WAITALL) == 6 && strcmp(letter, "letter") == 0);
    REFUSED(sendto(client, "more", 4, MSG_FASTOPEN, (struct sockaddr *)&place, sizeof place), EISCONN);
    CHECK(close(accepted) == 0 && close(client) == 0 && close(server) == 0);
    client = made(SOCK_STREAM, 0);
    REFUSED(sendto(client, "letter", 6, MSG_FASTOPEN, (struct sockaddr *)&place, sizeof place), ECONNREFUSED);
}

static uint64_t cookie_of(int fd) {
    uint64_t cookie = 0;
    socklen_t length = sizeof cookie;
    CHECK(getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &length) == 0 && length == sizeof cookie && cookie != 0);
    return cookie;
}

static int lists(const char *file, const char *what) {
    char text[65536];
    int fd = open(file, O_RDONLY);
    CHECK(fd >= 0);
    size_t length = 0;
    for (ssize_t n; (n = read(fd, text + length, sizeof text - 1 - length)) > 0;) length += (size_t)n;
    text[length] = 0;
    CHECK(close(fd) == 0);
    return strstr(text, what) != 0;
}

static void sockets_stay_in_their_network(void) {
    int first = made(SOCK_STREAM, 0), named = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(cookie_of(first) == cookie_of(named));
    uint32_t half;
    socklen_t length = sizeof half;
    REFUSED(getsockopt(first, SOL_SOCKET, SO_NETNS_COOKIE, &half, &length), EINVAL);
    struct sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = "\0unilith-likeness"};
    CHECK(bind(named, (struct sockaddr *)&name, sizeof name.sun_family + 17) == 0);
    CHECK(lists("/proc/net/unix", "@unilith-likeness"));
    CHECK(unshare(CLONE_NEWNET) == 0);
    CHECK(!lists("/proc/net/unix", "@unilith-likeness"));
    CHECK(cookie_of(made(SOCK_STREAM, 0)) != cookie_of(first));
}

static void idle_time_goes_on(void) {
    double before = 0;
    for (int i = 0; i < 300; i++) {
        double up, idle;
        FILE *file = fopen("/proc/uptime", "r");
        CHECK(file && fscanf(file, "%lf %lf", &up, &idle) == 2 && fclose(file) == 0);
        if (idle < before) FAIL("idle time went from %f to %f", before, idle);
        before = idle;
        for (volatile int spin = 0; spin < 10000; spin++) continue;
    }
}

static char folder[] = "/tmp/likeness.XXXXXX";

static const char *below(const char *name) {
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int listed(const char *name) {
    DIR *directory = opendir(folder);
    CHECK(directory);
    int found = 0;
    for (struct dirent *entry; (entry = readdir(directory));) found |= strcmp(entry->d_name, name) == 0;
    CHECK(closedir(directory) == 0);
    return found;
}

static void as_user(void (*act)(void)) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(setgroups(0, 0) == 0 && setgid(1000) == 0 && setuid(1000) == 0);
        act();
        exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static int opens(const char *name) {
    int fd = open(below(name), O_RDONLY);
    return fd >= 0 && close(fd) == 0;
}

static void sees_all(void) {
    struct stat stat_;
    CHECK(stat(below("1"), &stat_) == 0 && listed("1") && opens("1/status"));
}

static void sees_directories(void) {
    struct stat stat_;
    CHECK(stat(below("1"), &stat_) == 0 && listed("1"));
    REFUSED(open(below("1/status"), O_RDONLY), EPERM);
    REFUSED(open(below("1"), O_RDONLY), EPERM);
    CHECK(opens("self/status") && opens("meminfo"));
}

static void sees_own(void) {
    struct stat stat_;
    char own[16];
    snprintf(own, sizeof own, "%d", getpid());
    REFUSED(stat(below("1"), &stat_), ENOENT);
    REFUSED(open(below("1/status"), O_RDONLY), ENOENT);
    CHECK(!listed("1") && listed(own) && opens("self/status"));
}

static int shown(const char *options) {
    char line[512];
    snprintf(line, sizeof line, "%s rw,", folder);
    FILE *file = fopen("/proc/self/mountinfo", "r");
    CHECK(file);
    int found = 0;
    while (fgets(line, sizeof line, file)) found |= strstr(line, folder) && strstr(line, options);
    CHECK(fclose(file) == 0);
    return found;
}

static void mount_with(const char *options) {
    if (mount("proc", folder, "proc", 0, options) != 0) FAIL("proc is not mounted with %s", options);
}

static void processes_are_hidden(void) {
    CHECK(unshare(CLONE_NEWNS) == 0 && mount(0, "/", 0, MS_PRIVATE | MS_REC, 0) == 0 && mkdtemp(folder) && chmod(folder, 0755) == 0);
    mount_with("hidepid=0");
    as_user(sees_all);
    struct stat one, other;
    CHECK(stat("/proc", &one) == 0 && stat(folder, &other) == 0 && one.st_dev != other.st_dev);
    CHECK(mount(0, folder, 0, MS_REMOUNT, "hidepid=1") == 0 && shown("hidepid=noaccess"));
    as_user(sees_directories);
    sees_all();
    CHECK(umount(folder) == 0);
    mount_with("hidepid=invisible");
    CHECK(shown("hidepid=invisible"));
    as_user(sees_own);
    sees_all();
    CHECK(umount(folder) == 0);
    mount_with("hidepid=2,gid=1000");
    CHECK(shown("gid=1000"));
    as_user(sees_all);
    CHECK(umount(folder) == 0);
    mount_with("hidepid=4,gid=1000");
    as_user(sees_own);
    CHECK(umount(folder) == 0);
    mount_with("subset=pid");
    CHECK(shown("subset=pid"));
    CHECK(!listed("meminfo") && listed("self") && listed("thread-self") && listed("1"));
    REFUSED(open(below("meminfo"), O_RDONLY), ENOENT);
    REFUSED(open(below("sys/kernel/hostname"), O_RDONLY), ENOENT);
    sees_all();
    CHECK(umount(folder) == 0);
    REFUSED(mount("proc", folder, "proc", 0, "hidepid=3"), EINVAL);
    REFUSED(mount("proc", folder, "proc", 0, "hidepid=some"), EINVAL);
    REFUSED(mount("proc", folder, "proc", 0, "subset=all"), EINVAL);
    CHECK(rmdir(folder) == 0);
}

static void names_of_numbers_are_as_they_are_listed(void) {
    CHECK(open("/proc/self/fd/0", O_PATH) >= 0 || errno == ENOENT);
    int fd = open("/", O_PATH | O_DIRECTORY);
    char path[64];
    struct stat stat_;
    for (int form = 0; form < 4; form++) {
        static const char *const forms[] = {"/proc/self/fd/+%d", "/proc/self/fd/0%d", "/proc/self/fd/-%d", "/proc/self/fd/%d "};
        snprintf(path, sizeof path, forms[form], fd);
        REFUSED(lstat(path, &stat_), ENOENT);
    }
    for (int form = 0; form < 3; form++) {
        static const char *const forms[] = {"/proc/+%d", "/proc/0%d", "/proc/self/task/+%d"};
        snprintf(path, sizeof path, forms[form], getpid());
        REFUSED(lstat(path, &stat_), ENOENT);
    }
    REFUSED(lstat("/proc/self/fd/4294967296", &stat_), ENOENT);
    REFUSED(lstat("/proc/self/fd/2147483648", &stat_), ENOENT);
}

static void what_is_locked_is_counted_once(void) {
    long page = sysconf(_SC_PAGESIZE);
    struct rlimit limit = {10 * (rlim_t)page, 10 * (rlim_t)page};
    char *pages = mmap(0, 12 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED && setrlimit(RLIMIT_MEMLOCK, &limit) == 0 && setgid(1000) == 0 && setuid(1000) == 0);
    CHECK(mlock(pages, 8 * page) == 0);
    CHECK(mlock(pages + 2 * page, 8 * page) == 0);
    REFUSED(mlock(pages + 2 * page, 9 * page), ENOMEM);
    CHECK(mlock(pages + page / 2, 9 * page) == 0 && munlock(pages, 10 * page) == 0 && mlock(pages + page, 10 * page) == 0);
}

static unsigned waited_for, mutex;
static volatile int handled;
static volatile long waiter_error = -1;
static volatile pid_t waiter;

static void handle(int signal) {
    (void)signal;
    handled++;
}

static void *wait_for_mutex(void *unused) {
    (void)unused;
    waiter = (pid_t)syscall(SYS_gettid);
    long answer = syscall(SYS_futex, &waited_for, FUTEX_WAIT_REQUEUE_PI_PRIVATE, 0, 0, &mutex, 0);
    waiter_error = answer < 0 ? errno : 0;
    return 0;
}

static void a_signal_ends_no_wait_for_a_mutex(void) {
    pthread_t thread;
    struct sigaction action = {.sa_handler = handle};
    CHECK(sigaction(SIGUSR1, &action, 0) == 0);
    CHECK(syscall(SYS_futex, &mutex, FUTEX_LOCK_PI_PRIVATE, 0, 0, 0, 0) == 0);
    CHECK(pthread_create(&thread, 0, wait_for_mutex, 0) == 0);
    usleep(100000);
    for (int signals = 1; signals <= 3; signals++) {
        CHECK(pthread_kill(thread, SIGUSR1) == 0);
        while (handled < signals) usleep(1000);
        usleep(50000);
    }
    CHECK(waiter_error == -1);
    CHECK(syscall(SYS_futex, &waited_for, FUTEX_CMP_REQUEUE_PI_PRIVATE, 1, (void *)0, &mutex, 0) == 1);
    CHECK(pthread_kill(thread, SIGUSR1) == 0 && pthread_join(thread, 0) == 0);
    errno = (int)waiter_error;
    CHECK(handled == 4 && waiter_error == EAGAIN);
    CHECK(syscall(SYS_futex, &mutex, FUTEX_UNLOCK_PI_PRIVATE, 0, 0, 0, 0) == 0);
}

int main(void) {
    setvbuf(stdout, 0, _IONBF, 0);
    alone(ports_are_shared_by_one_user);
    alone(data_may_come_with_the_first_send);
    alone(sockets_stay_in_their_network);
    alone(names_of_numbers_are_as_they_are_listed);
    alone(what_is_locked_is_counted_once);
    alone(a_signal_ends_no_wait_for_a_mutex);
    alone(idle_time_goes_on);
    alone(processes_are_hidden);
    puts("all likeness tests of selftests passed");
    return 0;
}
