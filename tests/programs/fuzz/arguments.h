// SPDX-License-Identifier: Apache-2.0 OR MIT
// Arguments of system calls, made from a stream of random numbers: mostly what a call is made for, now and then
// what it is not.
#pragma once
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

typedef uint64_t argument(void);

// Marsaglia's xorshift64. Each thread and each process has a stream of its own, so that a seed makes the same calls
// again.
static __thread uint64_t stream;

static uint64_t number(void)
{
    stream ^= stream << 13;
    stream ^= stream >> 7;
    stream ^= stream << 17;
    return stream * 0x2545f4914f6cdd1dULL >> 8;
}

static uint64_t below(uint64_t bound) { return number() % bound; }
static int one_in(uint64_t times) { return below(times) == 0; }
static void begin_stream(uint64_t seed)
{
    stream = (seed + 1) * 0x9e3779b97f4a7c15ULL | 1;
    for (int i = 0; i < 8; i++)
        number();
}

// One of the values.
#define ONE(...)                                                                                                   \
    ({                                                                                                             \
        static const uint64_t values[] = {__VA_ARGS__};                                                            \
        values[below(sizeof values / sizeof *values)];                                                             \
    })
// One of the values, or several of them together.
#define BITS(...)                                                                                                  \
    ({                                                                                                             \
        static const uint64_t bits[] = {__VA_ARGS__};                                                              \
        uint64_t all = 0;                                                                                          \
        for (int i = (int)below(4); i > 0; i--)                                                                    \
            all |= bits[below(sizeof bits / sizeof *bits)];                                                        \
        all;                                                                                                       \
    })

enum { PAGE = 4096, ARENA = 16 * PAGE, AREA = 64, FILES = 64, SLOT = 512 };

// Memory that may be read and written, with a page behind it that may not; memory that may only be read.
static char *arena, *read_only;
static int files[FILES], file_count, first_socket, socket_count;

// A place in the arena for a structure of at most SLOT bytes.
static char *slot(void) { return arena + below(ARENA / SLOT) * SLOT; }

static uint64_t odd(void)
{
    static const uint64_t values[] = {
        0,
        1,
        2,
        3,
        4,
        7,
        8,
        16,
        31,
        63,
        64,
        65,
        127,
        128,
        255,
        256,
        511,
        512,
        1023,
        1024,
        4095,
        4096,
        4097,
        65535,
        65536,
        1 << 20,
        1 << 24,
        0x7ffff000,
        0x7fffffff,
        0x80000000u,
        0xfffff000u,
        0xffffffffu,
        1ULL << 32,
        1ULL << 47,
        1ULL << 62,
        ~0ULL >> 1,
        1ULL << 63,
        ~0ULL,
        ~0ULL - 1,
        -4096ULL,
        -4095ULL,
        -100ULL,
        0x7ffffffff000ULL,
    };
    switch (below(4)) {
    case 0:
        return below(64);
    case 1:
        return 1ULL << below(64);
    default:
        return values[below(sizeof values / sizeof *values)];
    }
}

static uint64_t bad_pointer(void)
{
    switch (below(6)) {
    case 0:
        return 0;
    case 1:
        return (uint64_t)read_only + below(PAGE);
    case 2:
        // Runs over the end into the page that may not be touched.
        return (uint64_t)arena + ARENA - below(64);
    case 3:
        return number();
    case 4:
        return 0xffff800000000000ULL + below(PAGE);
    default:
        return 0x7ffffffff000ULL - below(64);
    }
}

static uint64_t memory(void)
{
    return one_in(12) ? bad_pointer() : (uint64_t)slot() + (one_in(4) ? below(SLOT) : 0);
}
static uint64_t null_or_memory(void) { return one_in(2) ? 0 : memory(); }

// Pages that calls may map, unmap and protect without an end of this program.
static uint64_t pages(void) { return 0x200000000ULL + below(AREA) * PAGE; }
static uint64_t pages_length(void) { return one_in(12) ? odd() : below(AREA / 2) * PAGE; }

static uint64_t file(void)
{
    if (one_in(16))
        return one_in(2) ? (uint64_t)AT_FDCWD : odd();
    return (uint64_t)files[below((uint64_t)file_count)];
}

static uint64_t a_socket(void)
{
    return one_in(8) ? file() : (uint64_t)files[first_socket + (int)below((uint64_t)socket_count)];
}

static uint64_t directory(void) { return one_in(4) ? file() : (uint64_t)AT_FDCWD; }

static uint64_t path(void)
{
    static const char *const paths[] = {
        "/tmp/f",
        "/tmp/f",
        "/tmp/g",
        "/tmp/d",
        "/tmp/d/x",
        "/tmp/d/y",
        "/tmp/link",
        "/tmp/loop",
        "/tmp/socket",
        "/tmp/fifo",
        "/tmp/a/b/c",
        "",
        "/",
        ".",
        "..",
        "/dev/shm/x",
        "/dev/zero",
        "/dev/null",
        "/dev/full",
        "/dev/urandom",
        "/dev/ptmx",
        "/dev/pts/0",
        "/dev/tty",
        "/proc",
        "/proc/self/maps",
        "/proc/self/smaps",
        "/proc/self/mem",
        "/proc/self/pagemap",
        "/proc/self/status",
        "/proc/self/stat",
        "/proc/self/fd",
        "/proc/self/fd/3",
        "/proc/self/fd/9",
        "/proc/self/fdinfo/8",
        "/proc/self/task",
        "/proc/self/comm",
        "/proc/self/cwd",
        "/proc/self/exe",
        "/proc/self/environ",
        "/proc/self/oom_score_adj",
        "/proc/self/mountinfo",
        "/proc/thread-self/stat",
        "/proc/net/tcp",
        "/proc/net/unix",
        "/proc/net/route",
        "/proc/meminfo",
        "/proc/cpuinfo",
        "/proc/sys/vm/max_map_count",
        "/proc/sys/kernel/hostname",
        "/proc/sys/net/ipv4/ip_local_port_range",
        "/proc/sys/fs/file-nr",
        "/proc/sysvipc/shm",
        "/proc/locks",
        "/sys",
        "/sys/class/net",
    };
    char *at = slot();
    strcpy(at, paths[below(sizeof paths / sizeof *paths)]);
    if (one_in(20)) {
        memset(at, one_in(2) ? 'a' : '/', SLOT - 1);
        at[SLOT - 1] = 0;
    }
    return one_in(40) ? bad_pointer() : (uint64_t)at;
}

// What is made and removed: of the paths above these alone, or little would be left of the machine.
static uint64_t own_path(void)
{
    static const char *const paths[] = {"/tmp/f",    "/tmp/g",    "/tmp/d",      "/tmp/d/x",  "/tmp/d/y",
                                        "/tmp/link", "/tmp/loop", "/tmp/socket", "/tmp/fifo", "/dev/shm/x"};
    return (uint64_t)strcpy(slot(), paths[below(sizeof paths / sizeof *paths)]);
}

// Of extended attributes, memory files and queues of messages.
static const char *const names[] = {
    "user.a", "user.b", "security.x", "trusted.t", "system.posix_acl_access", "system.posix_acl_default",
    "user.",  "x",      "/q",         "q"};
static uint64_t name(void) { return (uint64_t)strcpy(slot(), names[below(sizeof names / sizeof *names)]); }

static uint64_t length(void)
{
    if (one_in(10))
        return odd();
    return one_in(2) ? below(9000)
                     : ONE(0, 1, 3, 4, 7, 8, 12, 16, 20, 24, 28, 36, 64, 110, 112, 128, 136, 256, 264, 1024, 4096,
                           4097, 65536);
}

static uint64_t few(void) { return one_in(16) ? odd() : below(16); }
static uint64_t offset(void) { return one_in(6) ? odd() : below(100000); }
static uint64_t zero(void) { return 0; }
static uint64_t flags(void) { return one_in(3) ? 0 : one_in(2) ? 1ULL << below(32) : below(64); }
static uint64_t mode(void) { return one_in(4) ? number() & 0177777 : 0777; }
static uint64_t process(void)
{
    return one_in(3) ? 0 : one_in(2) ? (uint64_t)getpid() : one_in(3) ? odd() : below(64) + 2;
}
static uint64_t user(void) { return ONE(0, 1, 1000, 65534, -1ULL, 0xffffffffu); }
static uint64_t signal_number(void)
{
    return one_in(8) ? odd() : ONE(0, SIGUSR1, SIGUSR2, SIGALRM, SIGCHLD, SIGCONT, SIGURG, SIGIO, 34, 40, 64);
}

static uint64_t pointer_to(const void *bytes, size_t size)
{
    return one_in(24) ? bad_pointer() : (uint64_t)memcpy(slot(), bytes, size);
}

// Waits end after at most three milliseconds.
static uint64_t duration(void)
{
    struct timespec time = {0, (long)below(3000000)};
    if (one_in(16))
        time.tv_nsec = (long)odd();
    return pointer_to(&time, sizeof time);
}

static uint64_t timer(void)
{
    struct itimerspec time = {{0, one_in(2) ? 0 : (long)below(1000000000)}, {0, (long)below(2000000)}};
    if (one_in(16))
        time.it_interval.tv_sec = (long)odd(), time.it_value.tv_sec = (long)odd();
    return pointer_to(&time, sizeof time);
}

static uint64_t offset_pointer(void)
{
    uint64_t at = offset();
    return one_in(2) ? 0 : pointer_to(&at, sizeof at);
}

static uint64_t length_pointer(void)
{
    uint64_t value = length();
    return pointer_to(&value, sizeof value);
}

static uint64_t signal_set(void)
{
    uint64_t set = one_in(2) ? 0 : number() & ~(1ULL << (SIGALRM - 1));
    return pointer_to(&set, sizeof set);
}

static uint64_t signal_set_length(void) { return one_in(20) ? odd() : 8; }

// Plausible contents of any structure: numbers, pointers and descriptors.
static uint64_t structure(void)
{
    char *at = slot();
    for (int i = (int)below(16); i >= 0; i--) {
        uint64_t word = one_in(3) ? 0 : one_in(3) ? odd() : one_in(2) ? memory() : file();
        if (one_in(2))
            word = (word & 0xffffffff) | odd() << 32;
        memcpy(at + i * 8, &word, sizeof word);
    }
    return one_in(24) ? bad_pointer() : (uint64_t)at;
}

static uint64_t vector(void)
{
    struct iovec parts[8];
    for (int i = 0; i < 8; i++) {
        parts[i].iov_base = (void *)memory();
        parts[i].iov_len = one_in(8) ? odd() : below(SLOT);
    }
    return pointer_to(parts, sizeof parts);
}

static uint64_t polled(void)
{
    struct pollfd list[8];
    for (int i = 0; i < 8; i++)
        list[i].fd = (int)file(), list[i].events = (short)number();
    return pointer_to(list, sizeof list);
}

static uint64_t address_size;

static uint64_t address(void)
{
    char *at = slot();
    memset(at, 0, 128);
    in_port_t port = htons((uint16_t)(5000 + below(20)));
    switch (below(5)) {
    case 0: {
        struct sockaddr_in to = {AF_INET,
                                 port,
                                 {htonl((uint32_t)ONE(0, INADDR_LOOPBACK, INADDR_LOOPBACK, 0x7f000002, 0xe0000001,
                                                      0xffffffff, 0x0a000001))},
                                 {0}};
        memcpy(at, &to, address_size = sizeof to);
        break;
    }
    case 1: {
        struct sockaddr_in6 to = {.sin6_family = AF_INET6, .sin6_port = port};
        to.sin6_addr.s6_addr[15] = (uint8_t)below(3);
        if (one_in(3))
            to.sin6_addr.s6_addr[10] = to.sin6_addr.s6_addr[11] = 255, to.sin6_addr.s6_addr[12] = 127;
        to.sin6_addr.s6_addr[0] = one_in(6) ? 255 : 0;
        memcpy(at, &to, address_size = sizeof to);
        break;
    }
    case 2: {
        // By path, or by an abstract name.
        struct sockaddr_un to = {AF_UNIX, "/tmp/socket"};
        if (one_in(2))
            memset(to.sun_path, 0, sizeof to.sun_path), to.sun_path[1] = (char)('a' + below(4));
        memcpy(at, &to, sizeof to);
        address_size = one_in(3) ? 2 + below(109) : 14;
        break;
    }
    case 3: {
        uint16_t family = AF_NETLINK;
        uint32_t id = (uint32_t)below(3);
        memcpy(at, &family, 2), memcpy(at + 4, &id, 4);
        address_size = 12;
        break;
    }
    default: {
        uint16_t family = one_in(3) ? 0 : (uint16_t)below(50);
        memcpy(at, &family, 2);
        address_size = below(128);
    }
    }
    return one_in(24) ? bad_pointer() : (uint64_t)at;
}

static uint64_t address_length(void) { return one_in(12) ? odd() : address_size; }
static uint64_t null_or_address(void) { return one_in(2) ? (address_size = 0) : address(); }

// Ancillary data: descriptors, credentials, and headers that lie about their length.
static size_t control(char *at)
{
    size_t used = 0;
    for (int i = (int)below(3); i >= 0; i--) {
        struct cmsghdr *header = (struct cmsghdr *)(at + used);
        size_t data = one_in(2) ? 4 * below(10) : below(40);
        header->cmsg_level = (int)ONE(SOL_SOCKET, SOL_SOCKET, SOL_SOCKET, 0, 6, 17, 41, 58);
        header->cmsg_type =
            (int)ONE(SCM_RIGHTS, SCM_RIGHTS, SCM_CREDENTIALS, 3, 8, 20, 25, 37, 50, 52, 61, 67, 103);
        header->cmsg_len = one_in(10) ? odd() : CMSG_LEN(data);
        for (size_t k = 0; k < data / 4; k++) {
            int sent = one_in(12) ? (int)number() : files[below((uint64_t)file_count)];
            memcpy(CMSG_DATA(header) + 4 * k, &sent, 4);
        }
        used += CMSG_SPACE(data);
    }
    return used;
}

static uint64_t message(void)
{
    struct msghdr header = {.msg_iov = (struct iovec *)vector(), .msg_iovlen = one_in(20) ? odd() : below(9)};
    if (one_in(3)) {
        header.msg_name = (void *)address();
        header.msg_namelen = (socklen_t)address_length();
    }
    if (one_in(2)) {
        header.msg_control = slot();
        header.msg_controllen = control(header.msg_control);
        if (one_in(10))
            header.msg_controllen = odd();
    }
    return pointer_to(&header, sizeof header);
}

static uint64_t messages(void)
{
    char *at = slot();
    for (int i = 0; i < 4; i++) {
        struct msghdr *one = (struct msghdr *)message();
        if ((char *)one >= arena && (char *)one <= arena + ARENA - 64)
            memmove(at + i * 64, one, sizeof *one);
    }
    return (uint64_t)at;
}

static uint64_t request_size;

// A request to the kernel's routing tables: a header that fits, and attributes that need not.
static uint64_t request(void)
{
    char *at = slot();
    uint32_t size = 16 + (uint32_t)below(20) * 4;
    for (uint32_t i = 0; i < size; i++)
        at[i] = one_in(3) ? (char)number() : 0;
    uint32_t said = one_in(8) ? (uint32_t)odd() : size;
    uint16_t type = (uint16_t)(one_in(4) ? below(120) : 16 + below(50)),
             asks = (uint16_t)ONE(1, 5, 0x301, 0x305, 0x501, 0x601, 0xffff);
    memcpy(at, &said, 4), memcpy(at + 4, &type, 2), memcpy(at + 6, &asks, 2);
    if (size > 36) {
        uint16_t rest = (uint16_t)(one_in(8) ? odd() : size - 32), kind = (uint16_t)below(40);
        memcpy(at + 32, &rest, 2), memcpy(at + 34, &kind, 2);
    }
    request_size = size;
    return (uint64_t)at;
}

static uint64_t request_length(void) { return one_in(10) ? odd() : request_size; }

static uint64_t semaphore_operations(void)
{
    struct sembuf list[8];
    for (int i = 0; i < 8; i++)
        list[i] = (struct sembuf){(unsigned short)(one_in(8) ? number() : below(20)), (short)((int)below(5) - 2),
                                  (short)(IPC_NOWAIT | (one_in(2) ? SEM_UNDO : 0))};
    return pointer_to(list, sizeof list);
}

static uint64_t epoll_event(void)
{
    struct epoll_event event = {(uint32_t)(one_in(3) ? EPOLLIN : number() & 0xe000201f), {.u64 = number()}};
    return pointer_to(&event, sizeof event);
}

static uint64_t lock(void)
{
    struct flock range = {(short)below(4), (short)below(3), (off_t)offset(), (off_t)offset(),
                          one_in(4) ? (pid_t)number() : 0};
    return pointer_to(&range, sizeof range);
}

// Contexts of asynchronous I/O, and requests to them.
static aio_context_t *contexts(void) { return (aio_context_t *)(read_only + PAGE); }
static uint64_t context_pointer(void) { return one_in(8) ? bad_pointer() : (uint64_t)&contexts()[below(4)]; }
static uint64_t context(void) { return one_in(8) ? odd() : contexts()[below(4)]; }

static uint64_t control_blocks(void)
{
    struct iocb block = {.aio_lio_opcode = (uint16_t)ONE(0, 1, 2, 3, 5, 7, 8, 9),
                         .aio_fildes = (uint32_t)file(),
                         .aio_buf = memory(),
                         .aio_nbytes = length(),
                         .aio_offset = (int64_t)offset()};
    if (one_in(3))
        block.aio_flags = IOCB_FLAG_RESFD, block.aio_resfd = (uint32_t)file();
    uint64_t at = pointer_to(&block, sizeof block);
    return pointer_to(&at, sizeof at);
}

static uint64_t limits(void)
{
    struct rlimit both = {below(100000), one_in(2) ? RLIM_INFINITY : odd()};
    return one_in(2) ? 0 : pointer_to(&both, sizeof both);
}

static uint64_t queue_shape(void)
{
    long shape[8] = {0, (long)below(12), (long)below(9000)};
    return one_in(2) ? 0 : pointer_to(shape, sizeof shape);
}

static uint64_t signal_event(void)
{
    struct sigevent event = {.sigev_signo = one_in(2) ? SIGUSR1 : (int)below(80),
                             .sigev_notify = (int)ONE(0, 1, 2, 4)};
    return one_in(4) ? 0 : pointer_to(&event, sizeof event);
}

static uint64_t typed_message(void)
{
    long type = (long)below(5);
    return pointer_to(&type, sizeof type);
}

// Words of a futex: a few, so that calls meet.
static uint64_t word(void) { return one_in(16) ? bad_pointer() : (uint64_t)arena + below(16) * 4; }
