// SPDX-License-Identifier: Apache-2.0 OR MIT
// State that several threads or calls share, and calls that take long: the position of a file, connections in every state,
// ports, capabilities, mappings that are only written.
#define _GNU_SOURCE
#include "check.h"
#include "one_descriptor.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#define FAILS(call, error) (errno = 0, (call) == -1 && errno == (error))

static struct sockaddr_in local(int port) {
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static struct sockaddr_in name_of(int fd) {
    struct sockaddr_in address;
    socklen_t length = sizeof address;
    CHECK(getsockname(fd, (void *)&address, &length) == 0);
    return address;
}

static void on(int fd, int name) {
    int one = 1;
    CHECK(setsockopt(fd, SOL_SOCKET, name, &one, sizeof one) == 0);
}

// A mapping that is only writable can be read where pages have no right for writing alone.
static void write_only(void) {
    int fd = memfd_create("pages", 0);
    CHECK(ftruncate(fd, 8192) == 0);
    volatile char *shared = mmap(NULL, 8192, PROT_WRITE, MAP_SHARED, fd, 0);
    volatile char *private = mmap(NULL, 8192, PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED && private != MAP_FAILED && shared[4096] == 0 && private[4096] == 0);
    shared[4096] = private[4096] = 1;
    CHECK(shared[4096] == 1 && private[4096] == 1);
    close(fd);
}

static volatile int turns, stop;

static void *counts(void *argument) {
    (void)argument;
    while (!stop) {
        turns++;
        sched_yield();
    }
    return NULL;
}

static void none(int signal) {
    (void)signal;
}

// A long sendfile lets others run, and ends with what it has done when a signal comes.
static void long_calls(void) {
    int from = memfd_create("hole", 0), to = open("/dev/null", O_WRONLY);
    const long size = 2L << 30;
    CHECK(ftruncate(from, size) == 0);
    pthread_t thread;
    sigset_t alarm;
    sigemptyset(&alarm), sigaddset(&alarm, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarm, NULL);
    CHECK(pthread_create(&thread, NULL, counts, NULL) == 0);
    pthread_sigmask(SIG_UNBLOCK, &alarm, NULL);
    while (turns == 0)
        sched_yield();
    int before = turns;
    CHECK(sendfile(to, from, NULL, size) > 0);
    CHECK(turns > before);
    stop = 1;
    pthread_join(thread, NULL);
    close(from), close(to);
}

static char path[] = "/tmp/unilith-state";

// What several threads write through one descriptor is all there, in whole writes.
static void position(void) {
    write_through_one_descriptor(path, 2000);
    unlink(path);
}

// A connection for which there is no descriptor waits for the next accept(2).
static void no_descriptor(void) {
    int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = local(0);
    CHECK(bind(listener, (void *)&address, sizeof address) == 0 && listen(listener, 5) == 0);
    address = name_of(listener);
    CHECK(connect(client, (void *)&address, sizeof address) == 0);
    struct rlimit before, none;
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    none = (struct rlimit){ client + 1, before.rlim_max };
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0 && FAILS(accept(listener, NULL, NULL), EMFILE));
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    int server = accept(listener, NULL, NULL);
    char byte;
    CHECK(server >= 0 && write(client, "y", 1) == 1 && read(server, &byte, 1) == 1 && byte == 'y');
    close(listener), close(client), close(server);
}

static void late_connect(void) {
    int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in address = local(0);
    CHECK(bind(listener, (void *)&address, sizeof address) == 0 && listen(listener, 5) == 0);
    address = name_of(listener);
    CHECK(FAILS(connect(client, (void *)&address, sizeof address), EINPROGRESS));
    struct pollfd entry = { client, POLLOUT, 0 };
    CHECK(poll(&entry, 1, 5000) == 1);
    CHECK(connect(client, (void *)&address, sizeof address) == 0 && FAILS(connect(client, (void *)&address, sizeof address), EISCONN));
    close(client);
    client = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(client, (void *)&address, sizeof address) == 0 && FAILS(connect(client, (void *)&address, sizeof address), EISCONN));
    close(client), close(listener);
}

// A port stays taken while one of its connections lives or is in TIME-WAIT, unless both sides allow reuse.
static void ports(void) {
    for (int reuse = 0; reuse < 2; reuse++) {
        int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
        struct sockaddr_in address = local(0);
        if (reuse)
            on(listener, SO_REUSEADDR);
        CHECK(bind(listener, (void *)&address, sizeof address) == 0 && listen(listener, 5) == 0);
        address = name_of(listener);
        CHECK(connect(client, (void *)&address, sizeof address) == 0);
        int server = accept(listener, NULL, NULL), again = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(server >= 0 && close(listener) == 0);
        CHECK(FAILS(bind(again, (void *)&address, sizeof address), EADDRINUSE));
        // The server closes first, so TIME-WAIT is its.
        char byte;
        CHECK(close(server) == 0 && read(client, &byte, 1) == 0 && close(client) == 0);
        CHECK(FAILS(bind(again, (void *)&address, sizeof address), EADDRINUSE));
        on(again, SO_REUSEADDR);
        int bound = bind(again, (void *)&address, sizeof address);
        CHECK(reuse ? bound == 0 && listen(again, 5) == 0 : bound == -1 && errno == EADDRINUSE);
        close(again);
    }
}

static void *blocks(void *argument) {
    char byte;
    return (void *)(long)recv(*(int *)argument, &byte, 1, 0);
}

static void shut_reader(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in address = local(0);
    CHECK(bind(fd, (void *)&address, sizeof address) == 0);
    pthread_t thread;
    void *result;
    CHECK(pthread_create(&thread, NULL, blocks, &fd) == 0);
    usleep(20000);
    CHECK(FAILS(shutdown(fd, SHUT_RD), ENOTCONN) && pthread_join(thread, &result) == 0 && result == 0);
    close(fd);
}

static void *accepts(void *argument) {
    for (int i = 0; i < 1000; i++) {
        int fd = accept(*(int *)argument, NULL, NULL);
        CHECK(fd >= 0 && close(fd) == 0);
    }
    return NULL;
}

// A thousand connections one after another meet a queue that is shorter.
static void quick_connects(void) {
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = local(0);
    CHECK(bind(listener, (void *)&address, sizeof address) == 0 && listen(listener, 100) == 0);
    address = name_of(listener);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, accepts, &listener) == 0);
    for (int i = 0; i < 1000; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(connect(fd, (void *)&address, sizeof address) == 0);
        close(fd);
    }
    CHECK(pthread_join(thread, NULL) == 0);
    close(listener);
}

// User 0 without its capabilities is held to the permission bits.
static void capabilities(void) {
    if (getuid() != 0)
        return;
    int fd = open(path, O_CREAT | O_RDWR, 0600);
    CHECK(fd >= 0 && fchown(fd, 1000, 1000) == 0 && close(fd) == 0);
    struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct data[2], without[2];
    CHECK(syscall(SYS_capget, &header, data) == 0);
    memcpy(without, data, sizeof data);
    without[0].effective = 0;
    CHECK(open(path, O_RDWR) >= 0 && chmod(path, 0600) == 0);
    CHECK(syscall(SYS_capset, &header, without) == 0);
    CHECK(FAILS(open(path, O_RDWR), EACCES) && FAILS(chmod(path, 0644), EPERM) && FAILS(chown(path, 0, 0), EPERM));
    CHECK(syscall(SYS_capset, &header, data) == 0 && unlink(path) == 0);
}

// Each of many semaphore sets is made and found in about the same time.
static void many_sets(void) {
    static int sets[20000];
    int count = 0;
    while (count < 20000 && (sets[count] = semget(IPC_PRIVATE, 1, 0600)) >= 0)
        count++;
    CHECK(count == 20000 || errno == ENOSPC);
    int keyed = semget(0x5eed, 1, IPC_CREAT | 0600);
    CHECK((keyed >= 0 && semget(0x5eed, 1, 0) == keyed && semctl(keyed, 0, IPC_RMID) == 0) || errno == ENOSPC);
    CHECK(FAILS(semget(0x5eed, 1, 0), ENOENT));
    int middle = sets[count / 2];
    CHECK(semctl(middle, 0, IPC_RMID) == 0 && FAILS(semctl(middle, 0, GETVAL), EINVAL));
    CHECK((sets[count / 2] = semget(IPC_PRIVATE, 1, 0600)) >= 0 && sets[count / 2] != middle);
    for (int i = 0; i < count; i++)
        CHECK(semctl(sets[i], 0, IPC_RMID) == 0);
}

int main(void) {
    signal(SIGALRM, none);
    write_only();
    long_calls();
    position();
    no_descriptor();
    late_connect();
    ports();
    shut_reader();
    quick_connects();
    capabilities();
    many_sets();
    printf("all state tests passed\n");
    return 0;
}
