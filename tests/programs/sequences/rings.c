// SPDX-License-Identifier: Apache-2.0 OR MIT
// Random sequences of requests (sequences.h) to an io_uring: on two files, a pipe, two sockets, an eventfd and what is made on the way. After each
// submission the ring comes to rest; told is what was submitted and the completions, in the order of the requests.
// KIND: 0 an ordinary ring, 1 IORING_SETUP_DEFER_TASKRUN, 2 IORING_SETUP_COOP_TASKRUN.
#include "sequences.h"
#include <fcntl.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

enum { ENTRIES = 8, ROUND = 60, FIRST = 10, OBJECTS = 10, AHEAD = 64 };

static struct io_uring_params params;
static unsigned char *memory;
static struct io_uring_sqe *sqes;
static int ring;
static unsigned tail;
static uint64_t submitted;
// What requests point to, by their number: as long as they wait it stays.
static struct {
    char bytes[64];
    struct iovec pieces[2];
    struct msghdr message;
    struct __kernel_timespec time;
    struct epoll_event event;
    struct statx status;
} rooms[AHEAD];

static char makes[AHEAD];

#define WORD(queue, name) ((unsigned *)(memory + params.queue##_off.name))

static int some_fd(void) {
    int number = (int)below(OBJECTS + 2);
    return number == OBJECTS ? -1 : number == OBJECTS + 1 ? 199 : FIRST + number;
}

// One of the last requests.
static uint64_t some_request(void) {
    uint64_t back = below(8);
    return submitted > back ? submitted - back : 1;
}

static const char *some_path(void) {
    static const char *const all[] = {"a", "b", "d", "d/c", "none", "/tmp/a", "link"};
    return ONE_OF(all);
}

// What a thread of Linux' kernel does, in its own time.
static const char by_threads[] = {
    IORING_OP_SHUTDOWN, IORING_OP_RENAMEAT, IORING_OP_UNLINKAT, IORING_OP_MKDIRAT, IORING_OP_SYMLINKAT, IORING_OP_LINKAT, IORING_OP_FSYNC, IORING_OP_SYNC_FILE_RANGE, IORING_OP_FALLOCATE, IORING_OP_FADVISE, IORING_OP_STATX, IORING_OP_SPLICE, IORING_OP_TEE, IORING_OP_OPENAT, IORING_OP_EPOLL_CTL, IORING_OP_SOCKET,
};

// True when another thread does it: nothing is submitted with it.
static int fill(struct io_uring_sqe *sqe, int is_first) {
    static const int all[] = {
        IORING_OP_NOP, IORING_OP_READV, IORING_OP_WRITEV, IORING_OP_FSYNC, IORING_OP_POLL_ADD, IORING_OP_POLL_ADD, IORING_OP_POLL_REMOVE, IORING_OP_SENDMSG, IORING_OP_RECVMSG, IORING_OP_TIMEOUT, IORING_OP_TIMEOUT, IORING_OP_TIMEOUT_REMOVE, IORING_OP_ASYNC_CANCEL, IORING_OP_ASYNC_CANCEL, IORING_OP_LINK_TIMEOUT, IORING_OP_FALLOCATE, IORING_OP_OPENAT, IORING_OP_CLOSE, IORING_OP_STATX, IORING_OP_READ, IORING_OP_READ, IORING_OP_READ, IORING_OP_WRITE, IORING_OP_WRITE, IORING_OP_WRITE, IORING_OP_FADVISE, IORING_OP_SEND, IORING_OP_SEND, IORING_OP_RECV, IORING_OP_RECV, IORING_OP_EPOLL_CTL, IORING_OP_SPLICE, IORING_OP_TEE, IORING_OP_SHUTDOWN, IORING_OP_RENAMEAT, IORING_OP_UNLINKAT, IORING_OP_MKDIRAT, IORING_OP_SYMLINKAT, IORING_OP_LINKAT, IORING_OP_SOCKET, IORING_OP_PROVIDE_BUFFERS, IORING_OP_REMOVE_BUFFERS, IORING_OP_SYNC_FILE_RANGE, IORING_OP_ACCEPT, 200,
    };
    uint64_t number = ++submitted;
    makes[number % AHEAD] = 0;
    typeof(rooms[0]) *room = &rooms[number % AHEAD];
    int op = ONE_OF(all), fd = some_fd();
    uint32_t length = below(20), offset = below(40);
    memset(sqe, 0, sizeof *sqe);
    memset(room->bytes, 'a' + (int)(number % 26), sizeof room->bytes);
    room->pieces[0] = (struct iovec){room->bytes, length};
    room->pieces[1] = (struct iovec){room->bytes + 32, 5};
    room->message = (struct msghdr){.msg_iov = room->pieces, .msg_iovlen = 1};
    sqe->opcode = (uint8_t)op;
    sqe->fd = fd;
    sqe->user_data = number;
    makes[number % AHEAD] = op == IORING_OP_OPENAT || op == IORING_OP_SOCKET || op == IORING_OP_ACCEPT;
    say(" %llu: op %d", (unsigned long long)number, op);
    // An eventfd is written to by a thread.
    if ((op == IORING_OP_WRITE || op == IORING_OP_WRITEV) && fd == FIRST + 6)
        sqe->fd = fd = FIRST + 3;
    switch (op) {
    case IORING_OP_READ:
    case IORING_OP_WRITE:
        sqe->addr = (uint64_t)room->bytes;
        sqe->len = length;
        sqe->off = one_in(3) ? (uint64_t)-1 : offset;
        say(" fd %d %u at %lld", fd, length, (long long)sqe->off);
        if (op == IORING_OP_READ && one_in(6)) {
            sqe->flags |= IOSQE_BUFFER_SELECT;
            sqe->buf_group = (uint16_t)below(2);
            sqe->addr = 0;
            say(" group %u", sqe->buf_group);
        }
        break;
    case IORING_OP_READV:
    case IORING_OP_WRITEV:
        sqe->addr = (uint64_t)room->pieces;
        sqe->len = 1 + below(2);
        sqe->off = one_in(3) ? (uint64_t)-1 : offset;
        say(" fd %d %u of %u at %lld", fd, sqe->len, length, (long long)sqe->off);
        break;
    case IORING_OP_SENDMSG:
    case IORING_OP_RECVMSG:
        sqe->addr = (uint64_t)&room->message;
        sqe->msg_flags = one_in(3) ? MSG_DONTWAIT : 0;
        sqe->len = 1;
        say(" fd %d %u flags %x", fd, length, sqe->msg_flags);
        break;
    case IORING_OP_SEND:
    case IORING_OP_RECV:
        if (!one_in(4))
            sqe->fd = FIRST + 4 + (int)below(2);
        sqe->addr = (uint64_t)room->bytes;
        sqe->len = length;
        sqe->msg_flags = one_in(3) ? MSG_DONTWAIT : op == IORING_OP_RECV && one_in(4) ? MSG_PEEK : op == IORING_OP_RECV && one_in(4) ? MSG_WAITALL : MSG_NOSIGNAL;
        say(" fd %d %u flags %x", sqe->fd, length, sqe->msg_flags);
        if (op == IORING_OP_RECV && one_in(5)) {
            sqe->flags |= IOSQE_BUFFER_SELECT;
            sqe->buf_group = (uint16_t)below(2);
            sqe->addr = 0;
            say(" group %u", sqe->buf_group);
            if (one_in(2)) {
                sqe->ioprio = IORING_RECV_MULTISHOT;
                sqe->len = 0;
                sqe->msg_flags = 0;
                say(" again and again");
            }
        }
        break;
    case IORING_OP_POLL_ADD: {
        static const unsigned events[] = {POLLIN, POLLOUT, POLLIN | POLLOUT, POLLRDHUP, 0};
        sqe->poll32_events = ONE_OF(events);
        sqe->len = one_in(3) ? IORING_POLL_ADD_MULTI : one_in(30) ? 64 : 0;
        // Sockets and pipes that can always be written to would complete without end.
        say(" fd %d %x %x", fd, sqe->poll32_events, sqe->len);
        break;
    }
    case IORING_OP_POLL_REMOVE:
        sqe->fd = -1;
        sqe->addr = some_request();
        say(" %llu", (unsigned long long)sqe->addr);
        if (one_in(3)) {
            sqe->len = IORING_POLL_UPDATE_EVENTS | (one_in(2) ? IORING_POLL_ADD_MULTI : 0);
            sqe->poll32_events = one_in(2) ? POLLIN : POLLOUT;
            say(" updates %x", sqe->poll32_events);
        }
        break;
    case IORING_OP_TIMEOUT: {
        static const long long times[] = {0, 100000, 400000, -1, 1000000000};
        room->time = (struct __kernel_timespec){one_in(2) ? 1000 : 0, ONE_OF(times)};
        // What it counts begins when it is started, which is later in a link.
        sqe->off = is_first && one_in(3) ? 1 + below(3) : 0;
        // Which of the two comes first is not a matter of chance.
        if (sqe->off)
            room->time.tv_sec = 1000;
        sqe->fd = -1;
        sqe->addr = (uint64_t)&room->time;
        sqe->len = one_in(20) ? 2 : 1;
        sqe->timeout_flags = one_in(6) ? IORING_TIMEOUT_BOOTTIME : one_in(6) ? IORING_TIMEOUT_ETIME_SUCCESS : 0;
        say(" %lld.%09lld after %llu flags %x", (long long)room->time.tv_sec, (long long)room->time.tv_nsec, (unsigned long long)sqe->off, sqe->timeout_flags);
        break;
    }
    case IORING_OP_TIMEOUT_REMOVE:
        sqe->fd = -1;
        sqe->addr = some_request();
        say(" %llu", (unsigned long long)sqe->addr);
        if (one_in(3)) {
            room->time = (struct __kernel_timespec){0, 100000};
            sqe->addr2 = (uint64_t)&room->time;
            sqe->timeout_flags = IORING_TIMEOUT_UPDATE;
            say(" updates");
        }
        break;
    case IORING_OP_LINK_TIMEOUT:
        room->time = (struct __kernel_timespec){0, 300000};
        sqe->fd = -1;
        sqe->addr = (uint64_t)&room->time;
        sqe->len = 1;
        break;
    case IORING_OP_ASYNC_CANCEL:
        sqe->cancel_flags = one_in(2) ? 0 : one_in(3) ? IORING_ASYNC_CANCEL_FD : one_in(3) ? IORING_ASYNC_CANCEL_FD | IORING_ASYNC_CANCEL_ALL : one_in(3) ? IORING_ASYNC_CANCEL_ANY : IORING_ASYNC_CANCEL_ALL;
        if (!(sqe->cancel_flags & IORING_ASYNC_CANCEL_FD))
            sqe->fd = -1;
        sqe->addr = sqe->cancel_flags & (IORING_ASYNC_CANCEL_FD | IORING_ASYNC_CANCEL_ANY) ? 0 : some_request();
        say(" %llu fd %d flags %x", (unsigned long long)sqe->addr, sqe->fd, sqe->cancel_flags);
        break;
    case IORING_OP_FSYNC: sqe->fsync_flags = one_in(6) ? 4 : below(2); say(" fd %d %x", fd, sqe->fsync_flags); break;
    case IORING_OP_SYNC_FILE_RANGE: sqe->off = offset; sqe->len = length; sqe->sync_range_flags = below(8); say(" fd %d", fd); break;
    case IORING_OP_FALLOCATE: sqe->off = offset; sqe->addr = length; sqe->len = one_in(6) ? 1 : 0; say(" fd %d %u %u %u", fd, offset, length, sqe->len); break;
    case IORING_OP_FADVISE: sqe->off = offset; sqe->len = length; sqe->fadvise_advice = below(7); say(" fd %d %u", fd, sqe->fadvise_advice); break;
    case IORING_OP_OPENAT:
        sqe->fd = one_in(3) ? fd : AT_FDCWD;
        sqe->addr = (uint64_t)some_path();
        sqe->open_flags = one_in(3) ? O_CREAT | O_RDWR : one_in(4) ? O_DIRECTORY : O_RDONLY;
        sqe->len = 0600;
        say(" at %d %s %x", sqe->fd, (char *)sqe->addr, sqe->open_flags);
        break;
    case IORING_OP_CLOSE: sqe->fd = 40 + (int)below(8); say(" fd %d", sqe->fd); break;
    case IORING_OP_STATX:
        sqe->fd = AT_FDCWD;
        sqe->addr = (uint64_t)some_path();
        sqe->off = (uint64_t)&room->status;
        sqe->len = STATX_BASIC_STATS;
        say(" %s", (char *)sqe->addr);
        break;
    case IORING_OP_EPOLL_CTL:
        room->event = (struct epoll_event){.events = EPOLLIN};
        sqe->fd = one_in(4) ? fd : FIRST + 8;
        sqe->addr = (uint64_t)&room->event;
        sqe->len = 1 + below(3);
        sqe->off = (uint64_t)(FIRST + below(OBJECTS));
        say(" fd %d %u of %llu", sqe->fd, sqe->len, (unsigned long long)sqe->off);
        break;
    case IORING_OP_SPLICE:
    case IORING_OP_TEE:
        sqe->splice_fd_in = some_fd();
        // An eventfd's length is a matter of its own, for which a thread of the kernel waits.
        if (sqe->splice_fd_in == FIRST + 6)
            sqe->splice_fd_in = FIRST + 2;
        sqe->len = length;
        sqe->off = (uint64_t)-1;
        sqe->splice_off_in = op == IORING_OP_TEE ? 0 : (uint64_t)-1;
        if (op == IORING_OP_TEE)
            sqe->off = 0;
        // One that finds the pipe empty waits in a thread of the kernel's.
        sqe->splice_flags = 2;
        say(" from %d to %d %u", sqe->splice_fd_in, fd, length);
        break;
    case IORING_OP_SHUTDOWN:
        if (!one_in(8))
            sqe->fd = FIRST;
        sqe->len = below(4);
        say(" fd %d %u", sqe->fd, sqe->len);
        break;
    case IORING_OP_RENAMEAT:
    case IORING_OP_LINKAT:
        sqe->fd = AT_FDCWD;
        sqe->len = (uint32_t)AT_FDCWD;
        sqe->addr = (uint64_t)some_path();
        sqe->addr2 = (uint64_t)some_path();
        say(" %s to %s", (char *)sqe->addr, (char *)sqe->addr2);
        break;
    case IORING_OP_UNLINKAT: sqe->fd = AT_FDCWD; sqe->addr = (uint64_t)some_path(); sqe->unlink_flags = one_in(3) ? AT_REMOVEDIR : 0; say(" %s %x", (char *)sqe->addr, sqe->unlink_flags); break;
    case IORING_OP_MKDIRAT: sqe->fd = AT_FDCWD; sqe->addr = (uint64_t)some_path(); sqe->len = 0700; say(" %s", (char *)sqe->addr); break;
    case IORING_OP_SYMLINKAT: sqe->fd = AT_FDCWD; sqe->addr = (uint64_t)"a"; sqe->addr2 = (uint64_t)some_path(); say(" %s", (char *)sqe->addr2); break;
    case IORING_OP_SOCKET: sqe->fd = one_in(4) ? 99 : AF_UNIX; sqe->off = SOCK_STREAM; say(" %d", sqe->fd); break;
    case IORING_OP_ACCEPT: sqe->fd = one_in(4) ? fd : FIRST + 7; say(" fd %d", sqe->fd); break;
    case IORING_OP_PROVIDE_BUFFERS: {
        static char room_of_buffers[8][16];
        sqe->fd = 1 + (int)below(4);
        sqe->addr = (uint64_t)room_of_buffers;
        sqe->len = one_in(10) ? 0 : 8;
        sqe->off = below(4);
        sqe->buf_group = (uint16_t)below(2);
        say(" %d of %u from %llu group %u", sqe->fd, sqe->len, (unsigned long long)sqe->off, sqe->buf_group);
        break;
    }
    case IORING_OP_REMOVE_BUFFERS: sqe->fd = (int)below(4); sqe->buf_group = (uint16_t)below(2); say(" %d group %u", sqe->fd, sqe->buf_group); break;
    default: say(" fd %d", fd); break;
    }
    static const unsigned flags[] = {IOSQE_IO_LINK, IOSQE_IO_LINK, IOSQE_IO_HARDLINK, IOSQE_CQE_SKIP_SUCCESS, IOSQE_FIXED_FILE, 1u << 7};
    if (one_in(5)) {
        unsigned flag = ONE_OF(flags);
        // Such a request ends what is submitted together, and with it a link.
        if (memchr(by_threads, op, sizeof by_threads) && flag & (IOSQE_IO_LINK | IOSQE_IO_HARDLINK))
            flag = 0;
        sqe->flags |= (uint8_t)flag;
        say(" flags %x", flag);
    }
    // A request that is refused makes others wait all the same in some versions of Linux.
    if (op == IORING_OP_NOP && is_first && one_in(2)) {
        sqe->flags = IOSQE_IO_DRAIN;
        say(" behind all");
        return 0;
    }
    if (one_in(40)) {
        sqe->buf_index = 3;
        say(" index");
    }
    if (one_in(60)) {
        sqe->ioprio = 0x80;
        say(" priority");
    }
    return memchr(by_threads, op, sizeof by_threads) != 0;
}

struct completion {
    uint64_t user_data;
    int res;
    unsigned flags;
};

static int by_request(const void *a, const void *b) {
    const struct completion *x = a, *y = b;
    return x->user_data < y->user_data ? -1 : x->user_data > y->user_data;
}

// Requests that wait for nobody but the kernel complete in this time.
static void settles(void) {
    static struct completion seen[256];
    size_t count = 0;
    for (int quiet = 0; quiet < 4; quiet++) {
        usleep(1000);
        syscall(SYS_io_uring_enter, ring, 0, 0, IORING_ENTER_GETEVENTS, 0, 0);
        unsigned head = *WORD(cq, head);
        while (head != __atomic_load_n(WORD(cq, tail), __ATOMIC_ACQUIRE) && count < COUNT(seen)) {
            seen[count++] = ((struct completion *)(memory + params.cq_off.cqes))[head & (params.cq_entries - 1)];
            __atomic_store_n(WORD(cq, head), ++head, __ATOMIC_RELEASE);
            quiet = 0;
        }
    }
    qsort(seen, count, sizeof *seen, by_request);
    for (size_t i = 0; i < count; i++) {
        say("; %llu = ", (unsigned long long)seen[i].user_data);
        // Linux may have reserved other numbers.
        if (seen[i].res >= 0 && makes[seen[i].user_data % AHEAD])
            say("a descriptor");
        else if (seen[i].res < 0)
            say("%s", strerrorname_np(-seen[i].res));
        else
            say("%d", seen[i].res);
        say(" %x", seen[i].flags);
    }
    say("\n");
}

static void step(void) {
    unsigned most = 1 + below(3), count = 0;
    say("submit");
    while (count < most) {
        count++;
        struct io_uring_sqe *sqe = &sqes[tail++ & (params.sq_entries - 1)];
        if (fill(sqe, count == 1))
            break;
        // A thread does what is at the head of a link that does not end.
        if (count == most && sqe->flags & (IOSQE_IO_LINK | IOSQE_IO_HARDLINK))
            most++;
    }
    __atomic_store_n(WORD(sq, tail), tail, __ATOMIC_RELEASE);
    say(" = %ld", syscall(SYS_io_uring_enter, ring, count, 0, IORING_ENTER_GETEVENTS, 0, 0));
    tail = *WORD(sq, head);
    __atomic_store_n(WORD(sq, tail), tail, __ATOMIC_RELEASE);
    settles();
}

static void move_to(int fd, int to) {
    if (dup2(fd, to) < 0)
        abort();
    close(fd);
}

static void begins(int kind) {
    int pair[2];
    close_range(3, 100, 0);
    if (chdir("/tmp"))
        abort();
    mkdir("d", 0755);
    // 10: a socket of a pair of its own that is shut now and then, 12 and 13: a pipe, 14 and 15: sockets, 16: an eventfd.
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
        abort();
    move_to(pair[0], FIRST);
    move_to(pair[1], 50);
    move_to(open("a", O_RDWR | O_CREAT | O_TRUNC, 0644), FIRST + 1);
    if (pipe(pair))
        abort();
    move_to(pair[0], FIRST + 2);
    move_to(pair[1], FIRST + 3);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
        abort();
    move_to(pair[0], FIRST + 4);
    move_to(pair[1], FIRST + 5);
    move_to(eventfd(0, 0), FIRST + 6);
    int server = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "server"};
    if (bind(server, (void *)&address, sizeof address) || listen(server, 5))
        abort();
    move_to(server, FIRST + 7);
    move_to(epoll_create1(0), FIRST + 8);
    move_to(open(".", O_RDONLY | O_DIRECTORY), FIRST + 9);
    memset(&params, 0, sizeof params);
    params.flags = IORING_SETUP_CQSIZE | (kind == 1 ? IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_SINGLE_ISSUER : kind == 2 ? IORING_SETUP_COOP_TASKRUN : 0);
    params.cq_entries = 128;
    int fd = (int)syscall(SYS_io_uring_setup, ENTRIES, &params);
    if (fd < 0) {
        perror("io_uring_setup");
        exit(2);
    }
    move_to(fd, 51);
    ring = 51;
    size_t size = params.sq_off.array + params.sq_entries * sizeof(unsigned);
    memory = mmap(0, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQ_RING);
    sqes = mmap(0, params.sq_entries * sizeof *sqes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQES);
    for (unsigned i = 0; i < params.sq_entries; i++)
        WORD(sq, array)[i] = i;
    // What is opened has numbers of its own.
    for (int i = 0; i < FIRST; i++)
        if (fcntl(i, F_GETFD) < 0)
            dup2(0, i);
    for (int i = FIRST + OBJECTS; i < 50; i++)
        dup2(0, i);
}

int main(int count, char **arguments) {
    int kind;
    signal(SIGPIPE, SIG_IGN);
    long total = begin(count, arguments, &kind);
    for (long done = 0; done < total; done += ROUND) {
        int over[2];
        fflush(stdout);
        if (pipe(over))
            return 1;
        pid_t child = fork();
        if (child == 0) {
            move_to(over[1], 200);
            begins(kind);
            for (int i = 0; i < ROUND; i++) {
                say("%ld ", done + i);
                step();
                fflush(stdout);
            }
            if (write(200, &state, sizeof state) != sizeof state)
                _exit(1);
            _exit(0);
        }
        close(over[1]);
        if (read(over[0], &state, sizeof state) != sizeof state) {
            int status = 0;
            waitpid(child, &status, 0);
            printf("ended with %x\n", status);
            return 1;
        }
        close(over[0]);
        waitpid(child, 0, 0);
        static const char *const files[] = {"/tmp/a", "/tmp/b", "/tmp/d/c", "/tmp/d", "/tmp/none", "/tmp/link", "/tmp/server"};
        for (size_t i = 0; i < COUNT(files); i++)
            remove(files[i]);
    }
    return 0;
}
