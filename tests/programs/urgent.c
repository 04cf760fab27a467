// SPDX-License-Identifier: Apache-2.0 OR MIT
// Urgent data of TCP, and signals that tell of files: SIGURG, SIGIO and what F_SETSIG names.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#ifndef F_SETSIG
#define F_SETSIG 10
#endif

static volatile sig_atomic_t urgent, told;
static siginfo_t last;

static void on_urgent(int signal)
{
    (void)signal;
    urgent++;
}

static void on_told(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)context;
    last = *info;
    told++;
}

static void connected(int *a, int *b)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(listener, (void *)&address, sizeof address) == 0 && listen(listener, 1) == 0);
    CHECK(getsockname(listener, (void *)&address, &length) == 0);
    *a = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(*a, (void *)&address, sizeof address) == 0);
    *b = accept(listener, NULL, NULL);
    CHECK(*b >= 0);
    close(listener);
}

static short events(int fd, short wanted)
{
    struct pollfd p = {fd, wanted, 0};
    CHECK(poll(&p, 1, 0) >= 0);
    return p.revents;
}

static void wait_for(int fd, short wanted)
{
    struct pollfd p = {fd, wanted, 0};
    CHECK(poll(&p, 1, 5000) == 1);
}

static int at_mark(int fd)
{
    int answer = -1;
    CHECK(ioctl(fd, SIOCATMARK, &answer) == 0);
    return answer;
}

static void one_byte_is_taken_out_of_the_stream(void)
{
    char buffer[16];
    int a, b, n;
    connected(&a, &b);
    signal(SIGURG, on_urgent);
    CHECK(fcntl(b, F_SETOWN, getpid()) == 0 && fcntl(b, F_GETOWN) == getpid());
    CHECK(recv(b, buffer, 1, MSG_OOB) == -1 && errno == EINVAL);
    CHECK(send(a, "abc", 3, 0) == 3);
    CHECK(send(a, "xyU", 3, MSG_OOB) == 3);
    CHECK(send(a, "de", 2, 0) == 2);
    wait_for(b, POLLPRI);
    CHECK(urgent == 1);
    for (int i = 0; i < 100 && (ioctl(b, FIONREAD, &n) != 0 || n < 5); i++)
        usleep(10000);
    CHECK(n == 5);
    CHECK(events(b, POLLIN | POLLPRI | POLLRDNORM) == (POLLIN | POLLPRI | POLLRDNORM));
    CHECK(at_mark(b) == 0);

    // Reading stops at the mark.
    CHECK(recv(b, buffer, sizeof buffer, MSG_PEEK) == 5 && memcmp(buffer, "abcxy", 5) == 0);
    CHECK(recv(b, buffer, sizeof buffer, 0) == 5 && memcmp(buffer, "abcxy", 5) == 0);
    CHECK(at_mark(b) == 1);
    CHECK(recv(b, buffer, sizeof buffer, MSG_OOB | MSG_PEEK) == 1 && buffer[0] == 'U');
    struct iovec part = {buffer, sizeof buffer};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    CHECK(recvmsg(b, &header, MSG_OOB) == 1 && buffer[0] == 'U' && header.msg_flags & MSG_OOB);
    CHECK(recv(b, buffer, 1, MSG_OOB) == -1 && errno == EINVAL);
    CHECK(events(b, POLLPRI) == 0 && at_mark(b) == 1);
    CHECK(recv(b, buffer, sizeof buffer, 0) == 2 && memcmp(buffer, "de", 2) == 0);
    CHECK(at_mark(b) == 0);

    // Only the urgent byte: nothing to read in the ordinary way.
    CHECK(send(a, "V", 1, MSG_OOB) == 1);
    wait_for(b, POLLPRI);
    CHECK(events(b, POLLIN | POLLPRI) == POLLPRI && at_mark(b) == 1);
    CHECK(recv(b, buffer, 1, MSG_OOB) == 1 && buffer[0] == 'V');
    CHECK(recv(b, buffer, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
    CHECK(urgent == 2);
    close(a);
    close(b);
}

static void inline_it_stays_in_the_stream(void)
{
    char buffer[16];
    int a, b, on = 1, value = 0, n = 0;
    socklen_t length = sizeof value;
    connected(&a, &b);
    CHECK(setsockopt(b, SOL_SOCKET, SO_OOBINLINE, &on, sizeof on) == 0);
    CHECK(getsockopt(b, SOL_SOCKET, SO_OOBINLINE, &value, &length) == 0 && value == 1);
    CHECK(send(a, "ab", 2, 0) == 2 && send(a, "U", 1, MSG_OOB) == 1 && send(a, "c", 1, 0) == 1);
    wait_for(b, POLLPRI);
    for (int i = 0; i < 100 && n < 4; i++) {
        CHECK(ioctl(b, FIONREAD, &n) == 0);
        usleep(10000);
    }
    CHECK(n == 4);
    CHECK(recv(b, buffer, 1, MSG_OOB) == -1 && errno == EINVAL);
    CHECK(recv(b, buffer, sizeof buffer, 0) == 2 && at_mark(b) == 1);
    CHECK(recv(b, buffer, sizeof buffer, 0) == 2 && memcmp(buffer, "Uc", 2) == 0);
    CHECK(at_mark(b) == 0 && events(b, POLLPRI) == 0);

    // epoll tells of it as of an exception.
    struct epoll_event event = {EPOLLPRI, {.fd = b}};
    int epoll = epoll_create1(0);
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, b, &event) == 0);
    CHECK(send(a, "1", 1, 0) == 1 && epoll_wait(epoll, &event, 1, 50) == 0);
    CHECK(send(a, "2", 1, MSG_OOB) == 1);
    CHECK(epoll_wait(epoll, &event, 1, 5000) == 1 && event.events == EPOLLPRI);
    int u = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(9),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    CHECK(sendto(u, "x", 1, MSG_OOB, (void *)&address, sizeof address) == -1 && errno == EOPNOTSUPP);
    close(u);
    close(epoll);
    close(a);
    close(b);
}

// A child of user `uid` names this process as the one to be told, by a signal of its choice.
static void tells_its_parent(uid_t uid, int signal)
{
    int status, fds[2];
    pid_t parent = getpid(), pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        CHECK(setresuid(uid, uid, uid) == 0 && pipe(fds) == 0);
        CHECK(fcntl(fds[0], F_SETSIG, signal) == 0 && fcntl(fds[0], F_SETOWN, parent) == 0);
        CHECK(fcntl(fds[0], F_SETFL, O_ASYNC) == 0 && write(fds[1], "1", 1) == 1);
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

static void nobody_is_told_without_the_right_to_a_signal(void)
{
    struct sigaction action = {.sa_sigaction = on_told, .sa_flags = SA_SIGINFO | SA_RESTART};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    if (getuid() != 0)
        return;
    told = 0;
    tells_its_parent(0, SIGUSR1);
    CHECK(told >= 1);
    told = 0;
    tells_its_parent(1000, SIGUSR1);
    tells_its_parent(1000, SIGKILL);
    CHECK(told == 0);
    // The first process, to which others' signals do nothing that it has no handler for.
    if (getpid() == 1) {
        tells_its_parent(0, SIGTERM);
        tells_its_parent(0, SIGKILL);
    }
}

static void signals_tell_of_files(void)
{
    char byte;
    int fds[2], a, b;
    struct sigaction action = {.sa_sigaction = on_told, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGIO, &action, NULL) == 0 && sigaction(SIGRTMIN + 1, &action, NULL) == 0);
    CHECK(pipe(fds) == 0);
    CHECK(fcntl(fds[0], F_SETOWN, getpid()) == 0);
    CHECK(fcntl(fds[0], F_SETFL, O_ASYNC | O_NONBLOCK) == 0);
    CHECK(fcntl(fds[0], F_GETFL) & O_ASYNC);
    CHECK(write(fds[1], "1", 1) == 1);
    CHECK(told == 1 && last.si_signo == SIGIO);
    CHECK(read(fds[0], &byte, 1) == 1);

    // A signal of one's own says which descriptor, and what is possible.
    CHECK(fcntl(fds[0], F_SETSIG, SIGRTMIN + 1) == 0 && fcntl(fds[0], F_GETSIG) == SIGRTMIN + 1);
    CHECK(fcntl(fds[0], F_SETSIG, 65) == -1 && errno == EINVAL);
    told = 0;
    CHECK(write(fds[1], "2", 1) == 1);
    CHECK(told == 1 && last.si_signo == SIGRTMIN + 1 && last.si_fd == fds[0]);
    CHECK(last.si_code == POLL_IN && last.si_band == (POLLIN | POLLRDNORM));
    CHECK(read(fds[0], &byte, 1) == 1);
    CHECK(fcntl(fds[0], F_SETFL, O_NONBLOCK) == 0);
    told = 0;
    CHECK(write(fds[1], "3", 1) == 1 && told == 0);

    struct f_owner_ex owner = {F_OWNER_TID, syscall(SYS_gettid)};
    CHECK(fcntl(fds[0], F_SETOWN_EX, &owner) == 0);
    memset(&owner, 0, sizeof owner);
    CHECK(fcntl(fds[0], F_GETOWN_EX, &owner) == 0 && owner.type == F_OWNER_TID);
    owner.type = 7;
    CHECK(fcntl(fds[0], F_SETOWN_EX, &owner) == -1 && errno == EINVAL);
    CHECK(fcntl(fds[0], F_SETOWN, 999999) == -1 && errno == ESRCH);
    CHECK(fcntl(fds[0], F_SETOWN, (int)0x80000000) == -1 && errno == EINVAL);

    connected(&a, &b);
    int who = getpid(), on = 1;
    CHECK(ioctl(b, FIOSETOWN, &who) == 0 && ioctl(b, FIOASYNC, &on) == 0);
    who = 0;
    CHECK(ioctl(b, FIOGETOWN, &who) == 0 && who == getpid());
    CHECK(fcntl(b, F_GETFL) & O_ASYNC);
    told = 0;
    CHECK(send(a, "x", 1, 0) == 1);
    for (int i = 0; i < 100 && told == 0; i++)
        usleep(10000);
    CHECK(told >= 1 && last.si_signo == SIGIO);
    close(a);
    close(b);

    // A file without events keeps no such flag.
    int file = open("/proc/self/exe", O_RDONLY);
    CHECK(fcntl(file, F_SETFL, O_ASYNC) == 0 && (fcntl(file, F_GETFL) & O_ASYNC) == 0);
    CHECK(ioctl(file, FIOASYNC, &on) == -1 && errno == ENOTTY);
    close(file);
}

static void signals_tell_of_directories(void)
{
    char name[] = "/tmp/urgent-XXXXXX", file[64];
    CHECK(mkdtemp(name) != NULL);
    snprintf(file, sizeof file, "%s/file", name);
    int dir = open(name, O_RDONLY), fd;
    struct sigaction action = {.sa_sigaction = on_told, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGRTMIN + 2, &action, NULL) == 0);
    CHECK(fcntl(dir, F_SETSIG, SIGRTMIN + 2) == 0);
    CHECK(fcntl(dir, F_NOTIFY, DN_CREATE) == 0);
    told = 0;
    CHECK((fd = open(file, O_CREAT | O_RDWR, 0600)) >= 0);
    CHECK(told == 1 && last.si_fd == dir && last.si_code == POLL_MSG);
    // Once only, unless DN_MULTISHOT is set.
    CHECK(unlink(file) == 0 && close(open(file, O_CREAT | O_RDWR, 0600)) == 0 && told == 1);
    CHECK(fcntl(dir, F_NOTIFY, DN_DELETE | DN_RENAME | DN_MULTISHOT) == 0);
    CHECK(unlink(file) == 0 && told == 2);
    CHECK(close(open(file, O_CREAT | O_RDWR, 0600)) == 0 && told == 2);
    CHECK(unlink(file) == 0 && told == 3);
    CHECK(fcntl(dir, F_NOTIFY, 0) == 0);
    CHECK(close(open(file, O_CREAT | O_RDWR, 0600)) == 0 && unlink(file) == 0 && told == 3);
    CHECK(fcntl(fd, F_NOTIFY, DN_CREATE) == -1 && errno == ENOTDIR);
    close(fd);
    close(dir);
    rmdir(name);
}

int main(void)
{
    one_byte_is_taken_out_of_the_stream();
    inline_it_stays_in_the_stream();
    signals_tell_of_files();
    nobody_is_told_without_the_right_to_a_signal();
    signals_tell_of_directories();
    puts("all urgent tests passed");
    return 0;
}
