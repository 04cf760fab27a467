// SPDX-License-Identifier: Apache-2.0 OR MIT
// Locks, descriptors, transfers, terminals and sockets: cases of the Linux Test Project in which this kernel once differed from Linux.
#define _GNU_SOURCE
#include "check.h"
#include <asm/termbits.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/aio_abi.h>
#include <linux/close_range.h>
#include <linux/fs.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define FAILS(call, error) (errno = 0, (call) == -1 && errno == (error))

static int ends_well(pid_t child) {
    int status;
    return waitpid(child, &status, 0) == child && status == 0;
}

static int lock(int fd, int command, short type, off_t start, off_t length) {
    struct flock range = { .l_type = type, .l_start = start, .l_len = length };
    return fcntl(fd, command, &range);
}

static void the_first_lock_is_in_the_way(void) {
    int fd = open("locked", O_RDWR | O_CREAT, 0644);
    CHECK(fd >= 0 && lock(fd, F_SETLK, F_WRLCK, 10, 5) == 0 && lock(fd, F_SETLK, F_RDLCK, 1, 5) == 0);
    pid_t child = fork();
    if (child == 0) {
        struct flock range = { .l_type = F_WRLCK };
        CHECK(fcntl(fd, F_GETLK, &range) == 0 && range.l_type == F_RDLCK && range.l_start == 1 && range.l_len == 5);
        CHECK(range.l_pid == getppid());
        _exit(0);
    }
    CHECK(ends_well(child) && close(fd) == 0);
}

// Who would wait for a process that waits for it is told.
static void deadlocks_of_locks_are_found(void) {
    int fd = open("locked", O_RDWR), ready[2];
    CHECK(fd >= 0 && pipe(ready) == 0 && lock(fd, F_SETLK, F_WRLCK, 0, 1) == 0);
    pid_t child = fork();
    if (child == 0) {
        CHECK(lock(fd, F_SETLK, F_WRLCK, 1, 1) == 0 && write(ready[1], "x", 1) == 1);
        CHECK(lock(fd, F_SETLKW, F_WRLCK, 0, 1) == 0);
        _exit(0);
    }
    char byte;
    CHECK(read(ready[0], &byte, 1) == 1);
    // The child waits, or is about to: then this process waits until the child is the one that is told.
    for (;;) {
        char path[64], text[4096] = "";
        snprintf(path, sizeof path, "/proc/%d/stat", child);
        int stat = open(path, O_RDONLY);
        CHECK(stat >= 0 && read(stat, text, sizeof text - 1) > 0 && close(stat) == 0);
        if (strstr(text, ") S "))
            break;
        sched_yield();
    }
    CHECK(FAILS(lock(fd, F_SETLKW, F_WRLCK, 1, 1), EDEADLK) && lock(fd, F_SETLK, F_UNLCK, 0, 1) == 0);
    CHECK(ends_well(child) && lock(fd, F_SETLK, F_WRLCK, 1, 1) == 0);
    close(fd), close(ready[0]), close(ready[1]);
}

static void a_shared_table_is_left_before_it_is_closed(void) {
    int fd = open("/", O_PATH);
    pid_t child = syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        CHECK(syscall(SYS_close_range, fd, fd, CLOSE_RANGE_UNSHARE) == 0 && FAILS(fcntl(fd, F_GETFD), EBADF));
        _exit(0);
    }
    CHECK(ends_well(child) && fcntl(fd, F_GETFD) == 0 && close(fd) == 0);
}

static int64_t result_of(aio_context_t context, struct iocb *control) {
    struct io_event event;
    CHECK(syscall(SYS_io_submit, context, 1, &control) == 1 && syscall(SYS_io_getevents, context, 1, 1, &event, NULL) == 1);
    return event.res;
}

static void asynchronous_operations_count_and_do_not_wait(void) {
    aio_context_t context = 0;
    CHECK(FAILS(syscall(SYS_io_setup, -1, &context), EINVAL) && syscall(SYS_io_setup, 2, &context) == 0);
    int counter = eventfd(0, EFD_NONBLOCK), fd = open("data", O_RDWR | O_CREAT | O_TRUNC, 0644), ends[2];
    uint64_t most = UINT64_MAX - 1, count;
    CHECK(write(counter, &most, sizeof most) == sizeof most);
    struct iocb control = { .aio_fildes = fd, .aio_lio_opcode = IOCB_CMD_PWRITE, .aio_buf = (uintptr_t) "data", .aio_nbytes = 4 };
    control.aio_flags = IOCB_FLAG_RESFD, control.aio_resfd = counter;
    CHECK(result_of(context, &control) == 4);
    struct pollfd poller = { counter, POLLIN, 0 };
    CHECK(poll(&poller, 1, -1) == 1 && poller.revents == (POLLIN | POLLERR));
    CHECK(read(counter, &count, sizeof count) == sizeof count && count == UINT64_MAX);
    char byte;
    CHECK(pipe(ends) == 0);
    control = (struct iocb){ .aio_fildes = ends[0], .aio_lio_opcode = IOCB_CMD_PREAD, .aio_buf = (uintptr_t)&byte, .aio_nbytes = 1 };
    control.aio_rw_flags = RWF_NOWAIT;
    CHECK(result_of(context, &control) == -EAGAIN);
    CHECK(syscall(SYS_io_destroy, context) == 0);
    close(counter), close(fd), close(ends[0]), close(ends[1]);
}

static void a_program_that_runs_is_not_written_to(void) {
    CHECK(FAILS(open("/proc/self/exe", O_WRONLY), ETXTBSY) && FAILS(truncate("/proc/self/exe", 0), ETXTBSY));
}

static int status_of_script(void) {
    pid_t child = fork();
    if (child == 0) {
        char *const words[] = { "script", NULL };
        execve("script", words, words);
        _exit(errno);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void what_is_written_to_does_not_run(void) {
    // The interpreter cannot be found, which is the second thing that is looked at.
    int fd = open("script", O_RDWR | O_CREAT, 0755), again = dup(fd);
    CHECK(write(fd, "#!/nowhere/at/all\n", 18) == 18 && status_of_script() == ETXTBSY);
    char *map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(map != MAP_FAILED && close(fd) == 0 && status_of_script() == ETXTBSY);
    CHECK(munmap(map, 4096) == 0 && status_of_script() == ETXTBSY && close(again) == 0 && status_of_script() == ENOENT);
    int reader = open("script", O_RDONLY), place = open("script", O_PATH);
    CHECK(status_of_script() == ENOENT && chmod("script", 0644) == 0);
    fd = open("script", O_WRONLY | O_APPEND);
    CHECK(status_of_script() == EACCES && chmod("script", 0755) == 0 && status_of_script() == ETXTBSY);
    close(fd), close(reader), close(place);
    CHECK(unlink("script") == 0);
}

#ifndef TIOCGPTPEER
#define TIOCGPTPEER _IO('T', 0x41)
#endif

static void a_master_opens_its_peer(void) {
    int master = open("/dev/ptmx", O_RDWR | O_NOCTTY), lock = 0, slave, instance = inotify_init();
    CHECK(master >= 0 && FAILS(ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY), EIO));
    CHECK(ioctl(master, TIOCSPTLCK, &lock) == 0);
    slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    CHECK(slave >= 0 && fcntl(slave, F_GETFD) == FD_CLOEXEC && (fcntl(slave, F_GETFL) & O_ACCMODE) == O_RDWR);
    char bytes[8], name[32], link[32] = { 0 }, own[32];
    CHECK(write(slave, "out", 3) == 3 && read(master, bytes, sizeof bytes) == 3 && memcmp(bytes, "out", 3) == 0);
    CHECK(ptsname_r(master, name, sizeof name) == 0);
    snprintf(own, sizeof own, "/proc/self/fd/%d", slave);
    CHECK(readlink(own, link, sizeof link - 1) > 0 && strcmp(link, name) == 0);
    CHECK(FAILS(ioctl(slave, TIOCGPTPEER, O_RDWR), EIO) && FAILS(ioctl(instance, TIOCGPTPEER, O_RDWR), ENOTTY));
    int reader = ioctl(master, TIOCGPTPEER, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    CHECK(reader >= 0 && fcntl(reader, F_GETFD) == 0 && FAILS(write(reader, "x", 1), EBADF) && FAILS(read(reader, bytes, 1), EAGAIN));
    close(slave), close(reader), close(master), close(instance);
}

static void removed_names_are_left_out(void) {
    char buffer[512];
    int instance = inotify_init1(IN_NONBLOCK), fd = open("left", O_RDWR | O_CREAT, 0644);
    CHECK(inotify_add_watch(instance, "left", IN_ALL_EVENTS | IN_EXCL_UNLINK) == 1 && inotify_add_watch(instance, ".", IN_MODIFY | IN_EXCL_UNLINK) == 2);
    CHECK(write(fd, "1", 1) == 1 && read(instance, buffer, sizeof buffer) > 16);
    // A change of attributes is told of still, what is read and written is not.
    CHECK(unlink("left") == 0 && read(instance, buffer, sizeof buffer) == 16);
    CHECK(write(fd, "2", 1) == 1 && pread(fd, buffer, 1, 0) == 1 && FAILS(read(instance, buffer, sizeof buffer), EAGAIN));
    CHECK(fchmod(fd, 0600) == 0 && read(instance, buffer, sizeof buffer) == 16);
    CHECK(inotify_add_watch(instance, ".", IN_MODIFY) == 2 && write(fd, "3", 1) == 1 && read(instance, buffer, sizeof buffer) == 32);
    CHECK(close(fd) == 0 && read(instance, buffer, sizeof buffer) == 32);
    struct inotify_event *event = (void *)buffer;
    CHECK(event->wd == 1 && event->mask == IN_DELETE_SELF && close(instance) == 0);
}

static void transfers_check_what_they_are_given(void) {
    int from = open("data", O_RDONLY), to = open("copy", O_WRONLY | O_CREAT, 0644), ends[2], pair[2];
    off_t *position = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(FAILS(sendfile(to, from, position, 1), EFAULT) && munmap(position, 4096) == 0);
    int counter = eventfd(1, 0), directory = open(".", O_RDONLY), zero = open("/dev/zero", O_RDWR);
    CHECK(pipe(ends) == 0 && FAILS(splice(ends[0], NULL, counter, NULL, 1, 0), EINVAL));
    CHECK(FAILS(splice(counter, NULL, ends[1], NULL, 8, 0), EINVAL) && FAILS(splice(directory, NULL, ends[1], NULL, 1, 0), EINVAL));
    CHECK(FAILS(readahead(zero, 0, 1), EINVAL) && FAILS(sync_file_range(zero, 0, 1, SYNC_FILE_RANGE_WRITE), ESPIPE));
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && write(pair[0], "x", 1) == 1);
    struct sockaddr name;
    socklen_t length = -1;
    char byte;
    CHECK(FAILS(recvfrom(pair[1], &byte, 1, 0, &name, &length), EINVAL));
    for (int i = 0; i < 2; i++)
        close(ends[i]), close(pair[i]);
    close(from), close(to), close(counter), close(directory), close(zero);
}

static volatile sig_atomic_t notices;

static void noticed(int signal) {
    (void)signal;
    notices++;
}

// DN_RENAME is about names that change, not about files that come and go.
static void a_move_elsewhere_is_no_rename(void) {
    signal(SIGIO, noticed);
    CHECK(mkdir("inner", 0755) == 0 && close(open("moved", O_CREAT | O_WRONLY, 0644)) == 0);
    int here = open(".", O_RDONLY), inner = open("inner", O_RDONLY);
    CHECK(fcntl(here, F_NOTIFY, DN_RENAME | DN_MULTISHOT) == 0 && fcntl(inner, F_NOTIFY, DN_RENAME | DN_MULTISHOT) == 0);
    CHECK(rename("moved", "inner/moved") == 0 && notices == 0);
    CHECK(rename("inner", "within") == 0 && notices == 1 && rename("within/moved", "within/else") == 0 && notices == 2);
    CHECK(unlink("within/else") == 0 && rmdir("within") == 0);
    close(here), close(inner);
    signal(SIGIO, SIG_DFL);
}

static void watches_are_shown(void) {
    int fd = inotify_init1(0), number, mask;
    CHECK(inotify_add_watch(fd, ".", IN_MODIFY | IN_ONESHOT) == 1);
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    FILE *info = fopen(path, "r");
    int found = 0;
    while (fgets(line, sizeof line, info))
        found |= sscanf(line, "inotify wd:%x ino:%*x sdev:%*x mask:%x", &number, &mask) == 2;
    CHECK(found && number == 1 && mask == (int)(IN_MODIFY | IN_ONESHOT) && fclose(info) == 0 && close(fd) == 0);
}

static unsigned mode_of(int fd) {
    struct stat stat;
    CHECK(fstat(fd, &stat) == 0);
    return stat.st_mode & 07777;
}

// CAP_FSETID: root's writes leave the bits, those of others take them away.
static void who_may_keeps_set_user_id(void) {
    int fd = open("owned", O_RDWR | O_CREAT, 0666);
    CHECK(fchmod(fd, 06777) == 0 && write(fd, "x", 1) == 1 && mode_of(fd) == 06777);
    pid_t child = fork();
    if (child == 0) {
        CHECK(setuid(65534) == 0 && write(fd, "x", 1) == 1 && mode_of(fd) == 0777);
        _exit(0);
    }
    CHECK(ends_well(child) && fchmod(fd, 02767) == 0 && close(fd) == 0);
}

struct short_settings {
    unsigned short input, output, control, local;
    unsigned char line, keys[8];
};

static void terminals_have_two_sizes_of_settings(void) {
    int master = open("/dev/ptmx", O_RDWR | O_NOCTTY), unlocked = 0, number;
    CHECK(master >= 0 && ioctl(master, TIOCSPTLCK, &unlocked) == 0 && ioctl(master, TIOCGPTN, &number) == 0);
    char path[32];
    snprintf(path, sizeof path, "/dev/pts/%d", number);
    int slave = open(path, O_RDWR | O_NOCTTY), discipline = 1;
    struct short_settings settings;
    struct termios long_settings;
    CHECK(slave >= 0 && ioctl(slave, TCGETA, &settings) == 0 && settings.keys[VINTR] == 3 && settings.local & ECHO);
    settings.local &= ~ECHO, settings.keys[VEOF] = 5;
    CHECK(ioctl(slave, TCSETAW, &settings) == 0 && ioctl(slave, TCGETS, &long_settings) == 0);
    CHECK(!(long_settings.c_lflag & ECHO) && long_settings.c_cc[VEOF] == 5 && long_settings.c_cc[VSUSP] == 26);
    CHECK(FAILS(ioctl(slave, TCGETA, NULL), EFAULT) && FAILS(ioctl(slave, TCSETA, NULL), EFAULT));
    CHECK(ioctl(slave, TIOCGETD, &discipline) == 0 && discipline == 0 && ioctl(slave, TIOCSETD, &discipline) == 0);
    discipline = 29;
    CHECK(FAILS(ioctl(slave, TIOCSETD, &discipline), EINVAL));
    close(slave), close(master);
}

static void groups_are_joined_by_interface(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct group_req request = { .gr_interface = 1 };
    struct sockaddr_in *group = (void *)&request.gr_group;
    group->sin_family = AF_INET, group->sin_addr.s_addr = htonl(0xe0000001 + 0x100);
    CHECK(setsockopt(fd, IPPROTO_IP, MCAST_JOIN_GROUP, &request, sizeof request) == 0);
    CHECK(FAILS(setsockopt(fd, IPPROTO_IP, MCAST_JOIN_GROUP, &request, sizeof request), EADDRINUSE));
    CHECK(setsockopt(fd, IPPROTO_IP, MCAST_LEAVE_GROUP, &request, sizeof request) == 0);
    CHECK(FAILS(setsockopt(fd, IPPROTO_IP, MCAST_LEAVE_GROUP, &request, sizeof request), EADDRNOTAVAIL));
    CHECK(FAILS(ioctl(fd, SIOCSIFFLAGS, (void *)-1), EFAULT) && close(fd) == 0);
    int pair[2];
    CHECK(FAILS(socketpair(AF_INET, SOCK_DGRAM, IPPROTO_TCP, pair), EPROTONOSUPPORT));
    CHECK(FAILS(socketpair(AF_INET, SOCK_DGRAM, IPPROTO_UDP, pair), EOPNOTSUPP));
}

static void files_sealed_against_writes_may_grow(void) {
    int fd = memfd_create("sealed", MFD_ALLOW_SEALING);
    CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == 0 && FAILS(write(fd, "x", 1), EPERM) && fallocate(fd, 0, 0, 8192) == 0);
    CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW) == 0 && FAILS(fallocate(fd, 0, 0, 16384), EPERM) && close(fd) == 0);
}

// A change is told once to each open file.
static void changes_of_mounts_are_told(void) {
    int mounts = open("/proc/self/mounts", O_RDONLY), events = epoll_create1(0);
    struct epoll_event event = { .events = EPOLLPRI };
    CHECK(epoll_ctl(events, EPOLL_CTL_ADD, mounts, &event) == 0 && epoll_wait(events, &event, 1, 0) == 0);
    CHECK(mkdir("mounted", 0755) == 0 && mount("tmpfs", "mounted", "tmpfs", 0, NULL) == 0);
    CHECK(epoll_wait(events, &event, 1, -1) == 1 && event.events == (EPOLLPRI | EPOLLERR));
    CHECK(epoll_wait(events, &event, 1, 0) == 0 && umount("mounted") == 0 && epoll_wait(events, &event, 1, -1) == 1);
    CHECK(rmdir("mounted") == 0 && close(mounts) == 0 && close(events) == 0);
}

// A handle finds its file under every name, and not when it is gone.
static void handles_outlive_names(void) {
    struct {
        struct file_handle head;
        unsigned char bytes[128];
    } handle = { .head.handle_bytes = 0 };
    int mount, here = open(".", O_RDONLY), fd;
    CHECK(close(open("named", O_CREAT | O_WRONLY, 0644)) == 0);
    CHECK(FAILS(name_to_handle_at(AT_FDCWD, "named", &handle.head, &mount, 0), EOVERFLOW) && handle.head.handle_bytes > 0);
    CHECK(FAILS(name_to_handle_at(AT_FDCWD, "nothing", &handle.head, &mount, 0), ENOENT));
    CHECK(name_to_handle_at(AT_FDCWD, "named", &handle.head, &mount, 0) == 0 && rename("named", "renamed") == 0);
    fd = open_by_handle_at(here, &handle.head, O_RDWR);
    CHECK(fd >= 0 && write(fd, "x", 1) == 1 && close(fd) == 0);
    struct stat stat;
    CHECK(lstat("renamed", &stat) == 0 && stat.st_size == 1 && unlink("renamed") == 0);
    CHECK(FAILS(open_by_handle_at(here, &handle.head, O_RDONLY), ESTALE));
    int proc = open("/proc/version", O_RDONLY);
    CHECK(FAILS(open_by_handle_at(proc, &handle.head, O_RDONLY), ESTALE) && close(proc) == 0 && close(here) == 0);
}

// Calls that no C library has any more.
static void old_calls_tell_of_file_systems(void) {
    char name[64];
    long count = syscall(SYS_sysfs, 3), number = syscall(SYS_sysfs, 1, "tmpfs");
    CHECK(number >= 0 && number < count && syscall(SYS_sysfs, 2, number, name) == 0 && strcmp(name, "tmpfs") == 0);
    CHECK(FAILS(syscall(SYS_sysfs, 1, "nonesuch"), EINVAL) && FAILS(syscall(SYS_sysfs, 2, -1, name), EINVAL));
    struct stat stat;
    unsigned char room[32];
    CHECK(lstat("/tmp", &stat) == 0 && syscall(SYS_ustat, stat.st_dev, room) == 0 && *(int *)room > 0);
    CHECK(FAILS(syscall(SYS_ustat, stat.st_dev, (void *)-1), EFAULT) && FAILS(syscall(SYS_ustat, 0xfffff, room), EINVAL));
}

// MSG_MORE holds bytes back until more come, whatever was acknowledged meanwhile; or until its timer, which is short: one of many times
// it must be seen.
static void what_more_follows_is_held(void) {
    int listener = socket(AF_INET, SOCK_STREAM, 0), held = 0;
    struct sockaddr_in name = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof name;
    CHECK(bind(listener, (void *)&name, sizeof name) == 0 && listen(listener, 1) == 0);
    CHECK(getsockname(listener, (void *)&name, &length) == 0);
    for (int i = 0; i < 100 && !held; i++) {
        int from = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(connect(from, (void *)&name, sizeof name) == 0);
        int to = accept(listener, NULL, NULL);
        char bytes[64] = "";
        CHECK(send(from, bytes, 16, 0) == 16 && recv(to, bytes, 64, 0) == 16 && send(from, bytes, 16, MSG_MORE) == 16);
        int early = recv(to, bytes, 64, MSG_DONTWAIT);
        CHECK(send(from, bytes, 1, 0) == 1);
        held = early == -1 && recv(to, bytes, 64, 0) == 17;
        close(from), close(to);
    }
    CHECK(held && close(listener) == 0);
}

static unsigned long number_in(const char *path) {
    char text[32] = "";
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0 && read(fd, text, sizeof text - 1) > 0 && close(fd) == 0);
    return strtoul(text, NULL, 10);
}

static void limits_are_told(void) {
    aio_context_t context = 0, none = 0;
    unsigned long before = number_in("/proc/sys/fs/aio-nr"), most = number_in("/proc/sys/fs/aio-max-nr");
    CHECK(syscall(SYS_io_setup, 64, &context) == 0 && number_in("/proc/sys/fs/aio-nr") >= before + 64);
    CHECK(FAILS(syscall(SYS_io_setup, most * 2 + 1, &none), EAGAIN) && syscall(SYS_io_destroy, context) == 0);
    CHECK(number_in("/proc/sys/fs/pipe-max-size") >= 65536);
}

// null_lseek and noop_llseek of Linux' drivers/char: every offset is the same place.
static void devices_have_no_places(void) {
    static const char *const names[] = {"/dev/null", "/dev/zero", "/dev/full", "/dev/urandom"};
    for (int i = 0; i < 4; i++) {
        int fd = open(names[i], O_RDWR);
        char byte;
        CHECK(fd >= 0);
        CHECK(lseek(fd, -5, SEEK_SET) == 0 && lseek(fd, -1, SEEK_END) == 0 && lseek(fd, INT64_MIN, SEEK_CUR) == 0);
        CHECK(read(fd, &byte, 1) >= 0 && lseek(fd, 7, SEEK_CUR) == 0 && lseek(fd, 9, SEEK_DATA) == 0);
        CHECK(lseek(fd, 0, 17) == -1 && errno == EINVAL);
        CHECK(close(fd) == 0);
    }
}

static int through_link(int fd, int flags) {
    char link[32];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    return open(link, flags);
}

// proc_pid_fd(5): a pipe that is opened through its link is open once more, for itself, in either direction. bash's `exec 4< <(PROGRAM)`
// closes what it opened it by.
static void a_link_opens_a_pipe_anew(void) {
    int ends[2];
    char text[64], name[64], link[32];
    struct stat stat;
    CHECK(pipe(ends) == 0 && fstat(ends[0], &stat) == 0);
    int reader = through_link(ends[0], O_RDONLY), writer = through_link(ends[0], O_WRONLY | O_NONBLOCK);
    CHECK(reader >= 0 && writer >= 0 && close(ends[0]) == 0);
    CHECK(write(ends[1], "one", 3) == 3 && close(ends[1]) == 0);
    CHECK(read(reader, text, sizeof text) == 3 && fcntl(reader, F_SETFL, O_NONBLOCK) == 0);
    CHECK(read(reader, text, sizeof text) == -1 && errno == EAGAIN && read(writer, text, 1) == -1 && errno == EBADF);
    int path = through_link(reader, O_PATH);
    snprintf(name, sizeof name, "pipe:[%lu]", (unsigned long)stat.st_ino);
    for (int i = 0; i < 3; i++) {
        int fd = i == 0 ? reader : i == 1 ? writer : path;
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        int length = readlink(link, text, sizeof text);
        CHECK(length == (int)strlen(name) && memcmp(text, name, length) == 0);
        CHECK(lstat(link, &stat) == 0 && S_ISLNK(stat.st_mode) && stat.st_size == 64);
        CHECK((stat.st_mode & 07777) == (i == 0 ? 0500u : i == 1 ? 0300u : 0u));
        CHECK(fstat(fd, &stat) == 0 && S_ISFIFO(stat.st_mode));
    }
    CHECK(close(writer) == 0 && read(reader, text, sizeof text) == 0 && close(reader) == 0 && close(path) == 0);
}

// Who waits for the other side of a FIFO has met it, though that is gone before the waiter's turn.
static void who_came_and_went_was_there(void) {
    CHECK(mkfifo("meeting", 0600) == 0);
    for (int i = 0; i < 50; i++) {
        int mine = i % 2 ? O_WRONLY : O_RDONLY, theirs = i % 2 ? O_RDONLY : O_WRONLY;
        pid_t child = fork();
        if (child == 0) {
            usleep(i * 100);
            int fd = open("meeting", theirs);
            _exit(fd < 0 || close(fd) != 0);
        }
        int fd = open("meeting", mine);
        CHECK(fd >= 0 && ends_well(child) && close(fd) == 0);
    }
    // Nobody has hung up where nobody has been.
    int reader = open("meeting", O_RDONLY | O_NONBLOCK);
    struct pollfd polled = {.fd = reader, .events = POLLIN};
    CHECK(reader >= 0 && poll(&polled, 1, 0) == 0);
    int writer = open("meeting", O_WRONLY);
    CHECK(writer >= 0 && poll(&polled, 1, 0) == 0 && close(writer) == 0);
    CHECK(poll(&polled, 1, 0) == 1 && polled.revents == POLLHUP && close(reader) == 0 && unlink("meeting") == 0);
}

static void links_of_what_is_no_file_open_nothing(void) {
    int none[] = {eventfd(0, 0), epoll_create1(0), socket(AF_UNIX, SOCK_STREAM, 0), inotify_init()};
    for (int i = 0; i < 4; i++) {
        CHECK(none[i] >= 0 && through_link(none[i], O_RDONLY) == -1 && errno == ENXIO);
        CHECK(close(none[i]) == 0);
    }
}

// A file system that shares no blocks says so once nothing else is wrong.
static void blocks_are_not_shared(void) {
    int from = open("whole", O_RDWR | O_CREAT | O_TRUNC, 0600), to = open("part", O_RDWR | O_CREAT | O_TRUNC, 0600);
    int pipes[2], directory = open(".", O_RDONLY), reader = open("part", O_RDONLY), appender = open("part", O_WRONLY | O_APPEND);
    int elsewhere = open("/proc/self/stat", O_RDONLY);
    CHECK(from >= 0 && to >= 0 && pipe(pipes) == 0 && write(from, "0123456789", 10) == 10);
    CHECK(FAILS(ioctl(to, FICLONE, from), EOPNOTSUPP) && FAILS(ioctl(to, FICLONE, 999), EBADF));
    CHECK(FAILS(ioctl(to, FICLONE, directory), EISDIR) && FAILS(ioctl(reader, FICLONE, from), EBADF));
    CHECK(FAILS(ioctl(appender, FICLONE, from), EBADF) && FAILS(ioctl(to, FICLONE, elsewhere), EXDEV));
    CHECK(FAILS(ioctl(to, FICLONE, pipes[0]), EXDEV) && FAILS(ioctl(pipes[1], FICLONE, pipes[0]), EINVAL));
    struct file_clone_range range = { .src_fd = from };
    CHECK(FAILS(ioctl(to, FICLONERANGE, &range), EOPNOTSUPP) && FAILS(ioctl(to, FICLONERANGE, 8), EFAULT));
    struct {
        struct file_dedupe_range head;
        struct file_dedupe_range_info to[3];
    } shared = { { .src_length = 10, .dest_count = 3 }, { { .dest_fd = to }, { .dest_fd = 999 }, { .dest_fd = elsewhere } } };
    CHECK(FAILS(ioctl(from, FIDEDUPERANGE, &shared), EOPNOTSUPP) && FAILS(ioctl(directory, FIDEDUPERANGE, &shared), EISDIR));
    CHECK(FAILS(ioctl(appender, FIDEDUPERANGE, &shared), EINVAL) && FAILS(ioctl(pipes[0], FIDEDUPERANGE, &shared), EINVAL));
    shared.head.reserved2 = 1;
    CHECK(FAILS(ioctl(from, FIDEDUPERANGE, &shared), EINVAL));
    shared.head.dest_count = 200;
    CHECK(FAILS(ioctl(from, FIDEDUPERANGE, &shared), ENOMEM) && FAILS(ioctl(from, FIDEDUPERANGE, 8), EFAULT));
    int all[] = { from, to, pipes[0], pipes[1], directory, reader, appender, elsewhere };
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        CHECK(close(all[i]) == 0);
    CHECK(unlink("whole") == 0 && unlink("part") == 0);
}

int main(void) {
    devices_have_no_places();
    CHECK(mkdir("/tmp/likeness", 0755) == 0 && chdir("/tmp/likeness") == 0);
    the_first_lock_is_in_the_way();
    deadlocks_of_locks_are_found();
    a_shared_table_is_left_before_it_is_closed();
    asynchronous_operations_count_and_do_not_wait();
    a_program_that_runs_is_not_written_to();
    what_is_written_to_does_not_run();
    a_master_opens_its_peer();
    removed_names_are_left_out();
    transfers_check_what_they_are_given();
    a_move_elsewhere_is_no_rename();
    watches_are_shown();
    who_may_keeps_set_user_id();
    terminals_have_two_sizes_of_settings();
    groups_are_joined_by_interface();
    files_sealed_against_writes_may_grow();
    changes_of_mounts_are_told();
    handles_outlive_names();
    old_calls_tell_of_file_systems();
    what_more_follows_is_held();
    limits_are_told();
    a_link_opens_a_pipe_anew();
    links_of_what_is_no_file_open_nothing();
    blocks_are_not_shared();
    who_came_and_went_was_there();
    puts("all likeness tests of files passed");
    return 0;
}
