// SPDX-License-Identifier: Apache-2.0 OR MIT
// Filters that have another process decide (seccomp_unotify(2)): what it is told of a call, what it may answer, descriptors that it
// gives, signals that come first, and who goes first of both.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#ifndef SECCOMP_ADDFD_FLAG_SEND
#define SECCOMP_ADDFD_FLAG_SEND 2
#endif
#ifndef SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
#define SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (1UL << 5)
#endif
#define FAILS(call, error) CHECK((errno = 0, (call) == -1) && errno == (error))
#define LISTEN SECCOMP_FILTER_FLAG_NEW_LISTENER
// The call that is asked about.
#define ASKED SYS_getppid

static long seccomp(unsigned operation, unsigned long flags, void *argument)
{
    return syscall(SYS_seccomp, operation, flags, argument);
}

static long listen_to(unsigned long flags)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ASKED, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = 4, .filter = filter};
    return seccomp(SECCOMP_SET_MODE_FILTER, flags, &program);
}

static void in_child(void (*run)(void))
{
    int status;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        run();
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void wait_for(int fd, short events)
{
    struct pollfd poll_fd = {.fd = fd, .events = events};
    CHECK(poll(&poll_fd, 1, 60000) == 1 && poll_fd.revents & events);
}

static short state(int fd)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN | POLLOUT};
    CHECK(poll(&poll_fd, 1, 0) >= 0);
    return poll_fd.revents;
}

static struct seccomp_notif receive(int listener)
{
    struct seccomp_notif request = {0};
    CHECK(ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &request) == 0);
    return request;
}

static int answer(int listener, uint64_t id, int64_t value, int error, unsigned flags)
{
    struct seccomp_notif_resp response = {.id = id, .val = value, .error = error, .flags = flags};
    return ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &response);
}

static void errors(void)
{
    struct seccomp_notif_sizes sizes;
    unsigned action = SECCOMP_RET_USER_NOTIF;
    CHECK(seccomp(SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0);
    CHECK(seccomp(SECCOMP_GET_NOTIF_SIZES, 0, &sizes) == 0);
    CHECK(sizes.seccomp_notif == sizeof(struct seccomp_notif));
    CHECK(sizes.seccomp_notif_resp == sizeof(struct seccomp_notif_resp));
    CHECK(sizes.seccomp_data == sizeof(struct seccomp_data));
    FAILS(seccomp(SECCOMP_GET_NOTIF_SIZES, 1, &sizes), EINVAL);
    FAILS(seccomp(SECCOMP_GET_NOTIF_SIZES, 0, NULL), EFAULT);
    FAILS(listen_to(SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV), EINVAL);
    FAILS(listen_to(LISTEN | SECCOMP_FILTER_FLAG_TSYNC), EINVAL);
    FAILS(listen_to(LISTEN | 1UL << 20), EINVAL);
    FAILS(seccomp(SECCOMP_SET_MODE_FILTER, LISTEN, NULL), EFAULT);
    struct rlimit before, none;
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    none = before;
    none.rlim_cur = 0;
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    FAILS(listen_to(LISTEN), EMFILE);
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    // Nobody listens: the call is not there.
    CHECK(listen_to(0) == 0);
    FAILS(syscall(ASKED), ENOSYS);
    int listener = (int)listen_to(LISTEN | SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_TSYNC_ESRCH);
    CHECK(listener >= 0 && fcntl(listener, F_GETFD) == FD_CLOEXEC);
    char link[64], path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", listener);
    ssize_t length = readlink(path, link, sizeof link);
    CHECK(length == 25 && memcmp(link, "anon_inode:seccomp notify", 25) == 0);
    FAILS(listen_to(LISTEN), EBUSY);
    struct seccomp_notif request = {.pid = 1};
    FAILS(ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &request), EINVAL);
    FAILS(ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, NULL), EFAULT);
    FAILS(ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, NULL), EFAULT);
    FAILS(ioctl(listener, SECCOMP_IOCTL_NOTIF_ID_VALID, NULL), EFAULT);
    FAILS(ioctl(listener, _IO('!', 9), NULL), EINVAL);
    FAILS(answer(listener, 5, 0, 0, 2), EINVAL);
    FAILS(answer(listener, 5, 1, 0, SECCOMP_USER_NOTIF_FLAG_CONTINUE), EINVAL);
    FAILS(answer(listener, 5, 0, 1, SECCOMP_USER_NOTIF_FLAG_CONTINUE), EINVAL);
    FAILS(answer(listener, 5, 0, 0, 0), ENOENT);
    CHECK(state(listener) == 0);
    // Closed, it makes room for another one.
    CHECK(close(listener) == 0);
    FAILS(syscall(ASKED), ENOSYS);
    CHECK(listen_to(LISTEN) >= 0);
}

static void answers(void)
{
    int listener = (int)listen_to(LISTEN);
    CHECK(listener >= 0);
    pid_t own = getpid(), child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(syscall(ASKED, 1, 2, 3, 4, 5, 6) == 1234567890123);
        FAILS(syscall(ASKED), EBADMSG);
        CHECK(syscall(ASKED) == own);
        CHECK(syscall(ASKED) == 0);
        _exit(7);
    }
    struct seccomp_notif request = receive(listener);
    uint64_t id = request.id, other = id + 99;
    CHECK(request.pid == (unsigned)child && request.flags == 0 && request.data.nr == ASKED);
    CHECK(request.data.arch == 0xc000003e && request.data.instruction_pointer);
    for (unsigned i = 0; i < 6; i++)
        CHECK(request.data.args[i] == i + 1);
    CHECK(state(listener) == POLLOUT);
    CHECK(ioctl(listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &id) == 0);
    FAILS(ioctl(listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &other), ENOENT);
    CHECK(answer(listener, id, 1234567890123, 0, 0) == 0);
    CHECK(answer(listener, id, 1, 0, 0) == -1 && (errno == ENOENT || errno == EINPROGRESS));
    wait_for(listener, POLLIN);
    id++;
    // It was not received.
    FAILS(answer(listener, id, 1, 0, 0), EINPROGRESS);
    FAILS(ioctl(listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &id), ENOENT);
    CHECK(receive(listener).id == id);
    CHECK(answer(listener, id, 0, -EBADMSG, 0) == 0);
    request = receive(listener);
    CHECK(answer(listener, request.id, 0, 0, SECCOMP_USER_NOTIF_FLAG_CONTINUE) == 0);
    // Where nothing can be written it is there for the next one.
    wait_for(listener, POLLIN);
    void *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    FAILS(ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, page), EFAULT);
    CHECK(state(listener) == POLLIN);
    request = receive(listener);
    CHECK(answer(listener, request.id, 0, 0, 0) == 0);
    int status;
    CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7);
    FAILS(ioctl(listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &request.id), ENOENT);
}

static int add(int listener, uint64_t id, unsigned flags, int source, int target, unsigned target_flags)
{
    struct seccomp_notif_addfd request = {
        .id = id,
        .flags = flags,
        .srcfd = (unsigned)source,
        .newfd = (unsigned)target,
        .newfd_flags = target_flags,
    };
    return ioctl(listener, SECCOMP_IOCTL_NOTIF_ADDFD, &request);
}

static void descriptors(void)
{
    int listener = (int)listen_to(LISTEN), memory = memfd_create("given", 0);
    CHECK(listener >= 0 && memory >= 0 && write(memory, "given", 5) == 5);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char text[5];
        close(memory);
        long fd = syscall(ASKED);
        CHECK(fd >= 0 && pread((int)fd, text, 5, 0) == 5 && memcmp(text, "given", 5) == 0);
        CHECK(fcntl((int)fd, F_GETFD) == FD_CLOEXEC);
        CHECK(pread(42, text, 5, 0) == 5 && fcntl(42, F_GETFD) == 0);
        // Given and told of at once.
        fd = syscall(ASKED);
        CHECK(fd >= 0 && pread((int)fd, text, 5, 0) == 5);
        struct rlimit few = {.rlim_cur = 2, .rlim_max = 2};
        CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
        FAILS(syscall(ASKED), EPERM);
        _exit(0);
    }
    wait_for(listener, POLLIN);
    uint64_t id;
    struct seccomp_notif request = {0};
    FAILS(add(listener, 1, 0, memory, 0, O_CLOEXEC), ENOENT);
    request = receive(listener);
    id = request.id;
    FAILS(add(listener, id, 0, memory, 0, O_NONBLOCK), EINVAL);
    FAILS(add(listener, id, 0xff, memory, 0, 0), EINVAL);
    FAILS(add(listener, id, 0, memory, 1, 0), EINVAL);
    FAILS(add(listener, id, 0, -1, 0, 0), EBADF);
    struct {
        struct seccomp_notif_addfd known;
        uint64_t more;
    } longer = {.known = {.id = id, .srcfd = (unsigned)memory}, .more = 1};
    unsigned command = _IOC(_IOC_WRITE, '!', 3, sizeof longer);
    FAILS(ioctl(listener, command, &longer), E2BIG);
    FAILS(ioctl(listener, _IOC(_IOC_WRITE, '!', 3, 20), &longer), EINVAL);
    int fd = add(listener, id, 0, memory, 0, O_CLOEXEC);
    CHECK(fd >= 0);
    CHECK(add(listener, id, SECCOMP_ADDFD_FLAG_SETFD, memory, 42, 0) == 42);
    CHECK(add(listener, id, SECCOMP_ADDFD_FLAG_SETFD, memory, 42, 0) == 42);
    CHECK(answer(listener, id, fd, 0, 0) == 0);
    request = receive(listener);
    CHECK(add(listener, request.id, SECCOMP_ADDFD_FLAG_SEND, memory, 0, 0) >= 0);
    request = receive(listener);
    FAILS(add(listener, request.id, 0, memory, 0, 0), EMFILE);
    FAILS(add(listener, request.id, SECCOMP_ADDFD_FLAG_SEND, memory, 0, 0), EMFILE);
    FAILS(add(listener, request.id, SECCOMP_ADDFD_FLAG_SETFD, memory, 5, 0), EBADF);
    CHECK(answer(listener, request.id, 0, -EPERM, 0) == 0);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static volatile int handled;

static void note(int signal)
{
    (void)signal;
    handled++;
}

static void handler(int flags)
{
    struct sigaction action = {.sa_handler = note, .sa_flags = flags};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
}

// A signal comes first: the call is made again, and asked about again, or interrupted.
static void signals(void)
{
    int listener = (int)listen_to(LISTEN);
    CHECK(listener >= 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        handler(SA_RESTART);
        CHECK(syscall(ASKED) == 5 && handled == 1);
        handler(0);
        FAILS(syscall(ASKED), EINTR);
        CHECK(handled == 2);
        _exit(0);
    }
    struct seccomp_notif first = receive(listener);
    CHECK(kill(child, SIGUSR1) == 0);
    struct seccomp_notif again = receive(listener);
    CHECK(again.id != first.id && again.pid == first.pid && again.data.nr == ASKED);
    FAILS(answer(listener, first.id, 4, 0, 0), ENOENT);
    CHECK(answer(listener, again.id, 5, 0, 0) == 0);
    receive(listener);
    CHECK(kill(child, SIGUSR1) == 0);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

// What was received waits for its answer, unless it is killed.
static void killable(void)
{
    int listener = (int)listen_to(LISTEN | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV);
    CHECK(listener >= 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        handler(0);
        CHECK(syscall(ASKED) == 5 && handled == 1);
        syscall(ASKED);
        _exit(0);
    }
    struct seccomp_notif request = receive(listener);
    CHECK(kill(child, SIGUSR1) == 0);
    usleep(20000);
    CHECK(ioctl(listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &request.id) == 0);
    CHECK(answer(listener, request.id, 5, 0, 0) == 0);
    request = receive(listener);
    CHECK(kill(child, SIGKILL) == 0);
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    FAILS(ioctl(listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &request.id), ENOENT);
}

// Sends the descriptor of a listener to the parent and goes on without it.
static int listener_of(pid_t *child, void (*run)(void))
{
    int pair[2], fd;
    char control[CMSG_SPACE(sizeof fd)] = {0}, byte = 0;
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    *child = fork();
    CHECK(*child >= 0);
    if (*child == 0) {
        fd = (int)listen_to(LISTEN);
        CHECK(fd >= 0);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(header), &fd, sizeof fd);
        CHECK(sendmsg(pair[0], &message, 0) == 1);
        close(fd);
        close(pair[0]);
        close(pair[1]);
        run();
        _exit(0);
    }
    CHECK(recvmsg(pair[1], &message, 0) == 1);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    close(pair[0]);
    close(pair[1]);
    return fd;
}

static void asks_in_vain(void)
{
    FAILS(syscall(ASKED), ENOSYS);
    FAILS(syscall(ASKED), ENOSYS);
}

static void *asks(void *unused)
{
    CHECK(syscall(ASKED) == 11);
    return unused;
}

static void asks_in_threads(void)
{
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, asks, NULL) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

static void ends_first(void)
{
    pid_t child;
    int status, listener = listener_of(&child, asks_in_vain);
    receive(listener);
    CHECK(close(listener) == 0);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    // The program: its listener hangs up.
    listener = listener_of(&child, asks_in_threads);
    for (int i = 0; i < 4; i++) {
        struct seccomp_notif request = receive(listener);
        CHECK(answer(listener, request.id, 11, 0, 0) == 0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    wait_for(listener, POLLHUP);
    CHECK(close(listener) == 0);
}

int main(void)
{
    in_child(errors);
    in_child(answers);
    in_child(descriptors);
    in_child(signals);
    in_child(killable);
    in_child(ends_first);
    printf("another process decides\n");
    return 0;
}
