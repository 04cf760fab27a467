// SPDX-License-Identifier: Apache-2.0 OR MIT
// Random sequences of calls (sequences.h) on ten descriptors that do not block: pipes, events' counters, timers, signals, epoll
// instances, files, what is ready of them and how they are copied.
#include "sequences.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>

enum { SLOTS = 10, FIRST = 20 };

// Slots are the descriptors from FIRST on.
static int any(void) {
    return FIRST + (int)below(SLOTS);
}

static void keep(int slot, int descriptor) {
    if (descriptor < 0 || descriptor == slot)
        return;
    dup2(descriptor, slot);
    close(descriptor);
}

static void opens(void) {
    int slot = any(), other = any(), two[2];
    switch (below(9)) {
    case 0:
    case 1: {
        int result = pipe2(two, O_NONBLOCK | (one_in(6) ? O_DIRECT : 0));
        say("pipe %d %d", slot, other);
        keep(slot, two[0]);
        keep(other, two[1]);
        answered(result);
        return;
    }
    case 2: {
        int value = (int)below(4), flags = EFD_NONBLOCK | (one_in(2) ? EFD_SEMAPHORE : 0);
        say("eventfd %d %d %x", slot, value, flags);
        keep(slot, eventfd(value, flags));
        break;
    }
    case 3: say("timerfd %d", slot); keep(slot, timerfd_create(one_in(2) ? CLOCK_MONOTONIC : CLOCK_REALTIME, TFD_NONBLOCK)); break;
    case 4: {
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        if (one_in(2))
            sigaddset(&set, SIGRTMIN);
        say("signalfd %d", slot);
        keep(slot, signalfd(-1, &set, SFD_NONBLOCK));
        break;
    }
    case 5:
    case 6: say("epoll_create %d", slot); keep(slot, epoll_create1(0)); break;
    case 7: {
        int result = socketpair(AF_UNIX, one_in(2) ? SOCK_STREAM : SOCK_DGRAM, 0, two);
        say("socketpair %d %d", slot, other);
        if (result == 0) {
            fcntl(two[0], F_SETFL, O_NONBLOCK);
            fcntl(two[1], F_SETFL, O_NONBLOCK);
        }
        keep(slot, two[0]);
        keep(other, two[1]);
        answered(result);
        return;
    }
    default: {
        static const int all[] = {O_RDWR, O_RDONLY, O_WRONLY | O_APPEND, O_RDWR | O_NONBLOCK, O_PATH};
        int flags = ONE_OF(all), is_fifo = one_in(2);
        if (is_fifo && !(flags & O_PATH))
            flags |= O_NONBLOCK;
        int descriptor = open(is_fifo ? "fifo" : "file", flags);
        say("open %s %d %x", is_fifo ? "fifo" : "file", slot, flags);
        int error = errno;
        keep(slot, descriptor);
        errno = error;
        answered(descriptor < 0 ? -1 : 0);
        return;
    }
    }
    answered(0);
}

static void closes(void) {
    int slot = any();
    say("close %d", slot);
    answered(close(slot));
}

static void copies(void) {
    int from = any(), to = any(), flags = one_in(8) ? O_NONBLOCK : one_in(2) ? O_CLOEXEC : 0;
    switch (below(4)) {
    case 0: say("dup2 %d %d", from, to); answered(dup2(from, to)); return;
    case 1: say("dup3 %d %d %x", from, to, flags); answered(dup3(from, to, flags)); return;
    case 2: say("F_GETFD %d", from); answered(fcntl(from, F_GETFD)); return;
    default: say("F_SETFD %d", from); answered(fcntl(from, F_SETFD, (int)below(2))); return;
    }
}

// A file of no type: an event's counter and its like.
static int is_anonymous(int slot) {
    struct stat s;
    return fstat(slot, &s) == 0 && (s.st_mode & S_IFMT) == 0;
}

static void writes(void) {
    static const int lengths[] = {0, 1, 3, 7, 8, 8, 8, 9, 100, 4096, 5000, 65536, 70000};
    static char bytes[70000];
    int slot = any(), length = ONE_OF(lengths);
    uint64_t value = one_in(8) ? (uint64_t)-1 - below(2) : below(5);
    memset(bytes, 'a' + (int)below(26), sizeof bytes);
    // Longer ones are refused by an eventfd since Linux 6.9.
    if (length > 8 && is_anonymous(slot))
        length = 8;
    if (length <= 9)
        memcpy(bytes, &value, sizeof value);
    say("write %d %d", slot, length);
    answered(write(slot, bytes, (size_t)length));
}

static void reads(void) {
    static const int lengths[] = {0, 1, 4, 7, 8, 8, 8, 9, 100, 128, 256, 4096, 65536};
    static char bytes[65536];
    int slot = any(), length = ONE_OF(lengths);
    long got = read(slot, bytes, (size_t)length);
    say("read %d %d", slot, length);
    // What tells of signals and files has numbers of processes in it.
    if (got > 0 && got <= 8)
        say_bytes(bytes, got);
    answered(got);
}

static void by_pieces(void) {
    static char bytes[3][3000];
    struct iovec pieces[3];
    // Whether a file can be read at all is asked before there is nothing to read, or not at all.
    int slot = any(), count = one_in(5) ? -1 : 1 + (int)below(3), writes_it = one_in(2);
    long total = 0;
    for (int i = 0; i < 3; i++) {
        pieces[i] = (struct iovec){bytes[i], 1 + below(2999)};
        if (i < count)
            total += (long)pieces[i].iov_len;
    }
    // What a file system, or a driver, does not take is its own business.
    int flags = one_in(3) ? RWF_HIPRI : 0;
    say("%s %d %d (%ld) %x", writes_it ? "pwritev2" : "preadv2", slot, count, total, flags);
    answered(writes_it ? pwritev2(slot, pieces, count, -1, flags) : preadv2(slot, pieces, count, -1, flags));
}

static void polls(void) {
    static const short all[] = {POLLIN | POLLOUT, POLLIN | POLLOUT | POLLPRI | POLLRDHUP, POLLRDNORM | POLLWRNORM | POLLRDBAND | POLLWRBAND, 0};
    struct pollfd one[SLOTS];
    short wanted = ONE_OF(all);
    for (int i = 0; i < SLOTS; i++)
        one[i] = (struct pollfd){FIRST + i, wanted, 0};
    int result = poll(one, SLOTS, 0);
    say("poll");
    for (int i = 0; i < SLOTS; i++)
        say(" %x", one[i].revents);
    answered(result);
}

static void selects(void) {
    fd_set sets[3];
    struct timeval none = {0, 0};
    for (int s = 0; s < 3; s++) {
        FD_ZERO(&sets[s]);
        for (int i = 0; i < SLOTS; i++)
            if (one_in(4))
                FD_SET(FIRST + i, &sets[s]);
    }
    int result = select(FIRST + SLOTS, &sets[0], &sets[1], &sets[2], &none);
    say("select");
    for (int s = 0; s < 3 && result >= 0; s++) {
        say(" |");
        for (int i = 0; i < SLOTS; i++)
            if (FD_ISSET(FIRST + i, &sets[s]))
                say(" %d", FIRST + i);
    }
    answered(result);
}

static void controls_epoll(void) {
    static const int operations[] = {EPOLL_CTL_ADD, EPOLL_CTL_ADD, EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL, 0, 7};
    static const uint32_t modes[] = {0, 0, EPOLLET, EPOLLONESHOT, EPOLLEXCLUSIVE, EPOLLET | EPOLLONESHOT, EPOLLEXCLUSIVE | EPOLLET};
    int slot = any(), target = any(), operation = ONE_OF(operations);
    struct epoll_event event = {(one_in(4) ? 0 : EPOLLIN) | (one_in(2) ? EPOLLOUT : 0) | (one_in(6) ? EPOLLRDHUP | EPOLLPRI : 0) | ONE_OF(modes), {0}};
    event.data.u64 = (uint64_t)target;
    say("epoll_ctl %d %d %d %x", slot, operation, target, event.events);
    answered(epoll_ctl(slot, operation, target, &event));
}

static void waits_for_epoll(void) {
    struct epoll_event events[SLOTS];
    uint32_t found[FIRST + SLOTS] = {0}, count[FIRST + SLOTS] = {0};
    int slot = any(), most = one_in(10) ? (int)below(3) - 1 : SLOTS;
    // Which of two errors is told first changed with Linux 6.15.
    if (fcntl(slot, F_GETFD) < 0)
        most = SLOTS;
    int result = epoll_wait(slot, events, most, 0);
    say("epoll_wait %d %d", slot, most);
    // In which order is not said anywhere.
    for (int i = 0; i < result; i++) {
        found[events[i].data.u64] |= events[i].events;
        count[events[i].data.u64]++;
    }
    for (int i = FIRST; i < FIRST + SLOTS && most >= SLOTS; i++)
        if (count[i])
            say(" %d:%x(%u)", i, found[i], count[i]);
    answered(result);
}

static void sets_timer(void) {
    int slot = any();
    struct itimerspec spec = {{one_in(3) ? 1000 : 0, 0}, {0, 0}}, old;
    switch (below(4)) {
    case 0: spec.it_value.tv_nsec = 1; break;
    case 1: spec.it_value.tv_sec = 5000; break;
    case 2: break;
    default: spec.it_value.tv_nsec = one_in(2) ? 1000000000 : -1; break;
    }
    say("timerfd_settime %d %ld.%ld", slot, (long)spec.it_value.tv_sec, spec.it_value.tv_nsec);
    int result = timerfd_settime(slot, one_in(6) ? 1 | (int)below(8) : 0, &spec, &old);
    if (result == 0)
        say(" was %s", old.it_value.tv_sec || old.it_value.tv_nsec ? "set" : "not");
    answered(result);
    usleep(2000);
}

static void asks_timer(void) {
    struct itimerspec now;
    int slot = any(), result = timerfd_gettime(slot, &now);
    say("timerfd_gettime %d", slot);
    if (result == 0)
        say(" %s every %ld", now.it_value.tv_sec || now.it_value.tv_nsec ? "set" : "not", (long)now.it_interval.tv_sec);
    answered(result);
}

static void sends_signals(void) {
    int is_queued = one_in(2), is_taken = one_in(3);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGRTMIN);
    if (is_taken) {
        struct timespec none = {0, 0};
        say("sigtimedwait");
        answered(sigtimedwait(&set, 0, &none));
    } else {
        say("kill %s", is_queued ? "SIGRTMIN" : "SIGUSR1");
        answered(kill(getpid(), is_queued ? SIGRTMIN : SIGUSR1));
    }
}

static void changes_flags(void) {
    static const int all[] = {O_NONBLOCK, O_NONBLOCK, O_NONBLOCK | O_APPEND, O_NONBLOCK | O_DIRECT, O_NONBLOCK | O_ASYNC, O_NONBLOCK | O_NOATIME};
    int slot = any(), flags = ONE_OF(all);
    switch (below(3)) {
    case 0: say("F_SETFL %d %x", slot, flags); answered(fcntl(slot, F_SETFL, flags)); return;
    // O_LARGEFILE is told or not.
    case 1: {
        int got = fcntl(slot, F_GETFL);
        say("F_GETFL %d", slot);
        answered(got < 0 ? got : got & ~0100000);
        return;
    }
    default: {
        // What epoll instances answer to requests they do not know changed with Linux 6.9.
        int value = -1, result = ioctl(slot, FIONREAD, &value);
        say("FIONREAD %d: %d", slot, result < 0 ? -1 : value);
        answered(0);
    }
    }
}

static void sizes_pipe(void) {
    int slot = any(), size = one_in(6) ? -1 : (int)below(4) * 40000;
    if (one_in(2)) {
        say("F_SETPIPE_SZ %d %d", slot, size);
        answered(fcntl(slot, F_SETPIPE_SZ, size));
    } else {
        say("F_GETPIPE_SZ %d", slot);
        answered(fcntl(slot, F_GETPIPE_SZ));
    }
}

static void moves(void) {
    int from = any(), to = any();
    size_t length = below(3) ? below(9000) : 1 + below(10);
    unsigned flags = SPLICE_F_NONBLOCK | (one_in(4) ? SPLICE_F_MORE : 0) | (one_in(10) ? 0x40 : 0);
    loff_t offset = below(100), *at = one_in(6) ? &offset : 0;
    switch (below(4)) {
    case 0: say("tee %d %d %zu %x", from, to, length, flags); answered(tee(from, to, length, flags)); return;
    case 1: {
        static char bytes[9000];
        struct iovec piece = {bytes, length};
        say("vmsplice %d %zu %x", to, length, flags);
        answered(vmsplice(to, &piece, 1, flags));
        return;
    }
    default: say("splice %d %d %zu %x %s", from, to, length, flags, at ? "at" : ""); answered(splice(from, at, to, 0, length, flags)); return;
    }
}

static void seeks(void) {
    static const int whences[] = {SEEK_SET, SEEK_CUR, SEEK_END, SEEK_DATA, SEEK_HOLE, 9};
    int slot = any(), whence = ONE_OF(whences);
    long offset = (long)below(3000) - 500;
    say("lseek %d %ld %d", slot, offset, whence);
    answered(lseek(slot, offset, whence));
}

static void looks(void) {
    struct stat s;
    int slot = any(), result = fstat(slot, &s);
    say("fstat %d %o", slot, result < 0 ? 0 : s.st_mode);
    answered(result);
}

static void (*const steps[])(void) = {
    opens, opens, opens, closes, copies, writes, writes, writes, reads, reads, reads, by_pieces, polls, polls, selects, controls_epoll,
    controls_epoll, controls_epoll, waits_for_epoll, waits_for_epoll, sets_timer, asks_timer, sends_signals, changes_flags, changes_flags,
    sizes_pipe, moves, moves, seeks, looks,
};

int main(int count, char **arguments) {
    char directory[] = "/tmp/sequence-XXXXXX";
    int kind;
    long total = begin(count, arguments, &kind);
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, 0);
    if (!mkdtemp(directory) || chdir(directory) || mkfifo("fifo", 0600)) {
        perror(directory);
        return 1;
    }
    int file = open("file", O_CREAT | O_RDWR, 0600);
    for (long done = 0; done < total; done += 100) {
        if (ftruncate(file, 0) || pwrite(file, "what the file holds", 19, 1000) != 19)
            return 1;
        for (int slot = FIRST; slot < FIRST + SLOTS; slot++)
            close(slot);
        run_steps(steps, COUNT(steps), 100, 0);
    }
    return 0;
}
