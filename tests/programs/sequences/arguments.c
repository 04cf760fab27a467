// SPDX-License-Identifier: Apache-2.0 OR MIT
// Random sequences of calls (sequences.h): nearly all that there are, each alone in a child, with arguments of which most make no sense:
// which of several reasons a call is refused for is as much a part of it as the refusal. What an answer says of the computer is not
// told, only that there is one.
#include "sequences.h"
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/wait.h>

enum { PAGE = 4096 };

// TOLD: the answer is the same on two computers. CHILD: it may be another process in which it comes back.
enum { TOLD = 1, CHILD = 2 };

static const struct call {
    int number;
    const char *name;
    int count, kind;
    // What each argument is likely to be: f descriptor, p path, b buffer, n number, l flags, s small number, c clock, a one of four, x none.
    const char *likely;
} calls[] = {
#define CALL(name, count, kind, likely) {SYS_##name, #name, count, kind, likely}
    CALL(read, 3, TOLD, "fbn"), CALL(write, 3, TOLD, "fbn"), CALL(open, 3, 0, "pln"), CALL(close, 1, TOLD, "f"), CALL(stat, 2, TOLD, "pb"),
    CALL(fstat, 2, TOLD, "fb"), CALL(lstat, 2, TOLD, "pb"), CALL(poll, 3, TOLD, "bns"), CALL(lseek, 3, TOLD, "fns"), CALL(mmap, 6, 0, "bnslfn"),
    CALL(mprotect, 3, TOLD, "bns"), CALL(munmap, 2, TOLD, "bn"), CALL(rt_sigaction, 4, TOLD, "sbbn"), CALL(rt_sigprocmask, 4, TOLD, "sbbn"), CALL(ioctl, 3, TOLD, "flb"),
    CALL(pread64, 4, TOLD, "fbnn"), CALL(pwrite64, 4, TOLD, "fbnn"), CALL(readv, 3, TOLD, "fbn"), CALL(writev, 3, TOLD, "fbn"), CALL(access, 2, TOLD, "ps"),
    CALL(pipe, 1, TOLD, "b"), CALL(select, 5, TOLD, "sbbbb"), CALL(mremap, 5, 0, "bnnsb"), CALL(msync, 3, TOLD, "bns"), CALL(mincore, 3, TOLD, "bnb"), CALL(madvise, 3, TOLD, "bns"),
    CALL(shmget, 3, 0, "snl"), CALL(shmat, 3, 0, "sbl"), CALL(shmctl, 3, 0, "ssb"), CALL(dup, 1, TOLD, "f"), CALL(dup2, 2, TOLD, "ff"), CALL(nanosleep, 2, TOLD, "bb"),
    CALL(getitimer, 2, TOLD, "sb"), CALL(sendfile, 4, TOLD, "ffbn"), CALL(socket, 3, TOLD, "sss"), CALL(connect, 3, TOLD, "fbn"), CALL(accept, 3, TOLD, "fbb"),
    CALL(sendto, 6, TOLD, "fbnlbn"), CALL(recvfrom, 6, TOLD, "fbnlbb"), CALL(sendmsg, 3, TOLD, "fbl"), CALL(recvmsg, 3, TOLD, "fbl"), CALL(shutdown, 2, TOLD, "fs"),
    CALL(bind, 3, TOLD, "fbn"), CALL(listen, 2, TOLD, "fn"), CALL(getsockname, 3, TOLD, "fbb"), CALL(getpeername, 3, TOLD, "fbb"), CALL(socketpair, 4, TOLD, "sssb"),
    CALL(setsockopt, 5, TOLD, "fssbn"), CALL(getsockopt, 5, TOLD, "fssbb"), CALL(execve, 3, TOLD, "pbb"), CALL(wait4, 4, TOLD, "nslb"), CALL(kill, 2, TOLD, "ns"), CALL(uname, 1, TOLD, "b"),
    CALL(semget, 3, 0, "ssl"), CALL(semop, 3, TOLD, "sbn"), CALL(semctl, 4, 0, "sssb"), CALL(shmdt, 1, TOLD, "b"), CALL(msgget, 2, 0, "sl"), CALL(msgsnd, 4, TOLD, "sbnl"), CALL(msgrcv, 5, TOLD, "sbnnl"), CALL(msgctl, 3, 0, "ssb"),
    CALL(fcntl, 3, TOLD, "fsn"), CALL(flock, 2, TOLD, "fs"), CALL(fsync, 1, TOLD, "f"), CALL(fdatasync, 1, TOLD, "f"), CALL(truncate, 2, TOLD, "pn"), CALL(ftruncate, 2, TOLD, "fn"), CALL(getdents, 3, 0, "fbn"),
    CALL(getcwd, 2, TOLD, "bn"), CALL(chdir, 1, TOLD, "p"), CALL(fchdir, 1, TOLD, "f"), CALL(rename, 2, TOLD, "pp"), CALL(mkdir, 2, TOLD, "pn"), CALL(rmdir, 1, TOLD, "p"), CALL(creat, 2, TOLD, "pn"), CALL(link, 2, TOLD, "pp"),
    CALL(unlink, 1, TOLD, "p"), CALL(symlink, 2, TOLD, "pp"), CALL(readlink, 3, TOLD, "pbn"), CALL(chmod, 2, TOLD, "pn"), CALL(fchmod, 2, TOLD, "fn"), CALL(chown, 3, TOLD, "pnn"), CALL(fchown, 3, TOLD, "fnn"), CALL(lchown, 3, TOLD, "pnn"),
    CALL(umask, 1, TOLD, "n"), CALL(gettimeofday, 2, TOLD, "bb"), CALL(getrlimit, 2, TOLD, "sb"), CALL(getrusage, 2, TOLD, "sb"), CALL(sysinfo, 1, TOLD, "b"), CALL(times, 1, 0, "b"), CALL(setuid, 1, TOLD, "n"), CALL(setgid, 1, TOLD, "n"),
    CALL(setpgid, 2, TOLD, "nn"), CALL(setreuid, 2, TOLD, "nn"), CALL(setregid, 2, TOLD, "nn"), CALL(getgroups, 2, TOLD, "nb"), CALL(setgroups, 2, TOLD, "nb"), CALL(setresuid, 3, TOLD, "nnn"), CALL(getresuid, 3, TOLD, "bbb"),
    CALL(getpgid, 1, 0, "n"), CALL(setfsuid, 1, TOLD, "n"), CALL(getsid, 1, 0, "n"), CALL(capget, 2, TOLD, "bb"), CALL(capset, 2, TOLD, "bb"), CALL(rt_sigpending, 2, TOLD, "bn"), CALL(rt_sigtimedwait, 4, TOLD, "bbbn"),
    CALL(rt_sigqueueinfo, 3, TOLD, "nsb"), CALL(sigaltstack, 2, TOLD, "bb"), CALL(utime, 2, TOLD, "pb"), CALL(mknod, 3, TOLD, "pnn"), CALL(personality, 1, TOLD, "n"), CALL(statfs, 2, TOLD, "pb"), CALL(fstatfs, 2, TOLD, "fb"),
    CALL(sysfs, 3, 0, "snb"), CALL(getpriority, 2, TOLD, "sx"), CALL(sched_getparam, 2, TOLD, "xb"), CALL(sched_getscheduler, 1, TOLD, "x"), CALL(sched_get_priority_max, 1, TOLD, "c"), CALL(sched_rr_get_interval, 2, TOLD, "xb"),
    CALL(mlock, 2, TOLD, "bn"), CALL(munlock, 2, TOLD, "bn"), CALL(mlockall, 1, TOLD, "s"), CALL(prctl, 5, 0, "snnnn"), CALL(chroot, 1, TOLD, "p"), CALL(readahead, 3, TOLD, "fnn"),
    CALL(setxattr, 5, TOLD, "ppbnl"), CALL(fsetxattr, 5, TOLD, "fpbnl"), CALL(getxattr, 4, TOLD, "ppbn"), CALL(fgetxattr, 4, TOLD, "fpbn"), CALL(listxattr, 3, 0, "pbn"), CALL(removexattr, 2, TOLD, "pp"), CALL(fremovexattr, 2, TOLD, "fp"),
    CALL(tkill, 2, TOLD, "ns"), CALL(futex, 6, TOLD, "bsnbbn"), CALL(sched_getaffinity, 3, 0, "xnb"), CALL(io_setup, 2, TOLD, "nb"), CALL(io_destroy, 1, TOLD, "n"), CALL(io_getevents, 5, TOLD, "nnnbb"), CALL(io_submit, 3, TOLD, "nnb"), CALL(io_cancel, 3, TOLD, "nbb"),
    CALL(epoll_create, 1, TOLD, "n"), CALL(remap_file_pages, 5, TOLD, "bnsnl"), CALL(getdents64, 3, 0, "fbn"), CALL(semtimedop, 4, TOLD, "sbnb"), CALL(fadvise64, 4, TOLD, "fnns"),
    CALL(timer_create, 3, TOLD, "cbb"), CALL(timer_settime, 4, TOLD, "slbb"), CALL(timer_gettime, 2, TOLD, "sb"), CALL(timer_getoverrun, 1, TOLD, "s"), CALL(timer_delete, 1, TOLD, "s"), CALL(clock_gettime, 2, TOLD, "cb"), CALL(clock_getres, 2, TOLD, "cb"), CALL(clock_nanosleep, 4, TOLD, "clbb"),
    CALL(epoll_wait, 4, TOLD, "fbns"), CALL(epoll_ctl, 4, TOLD, "fsfb"), CALL(tgkill, 3, TOLD, "nns"), CALL(utimes, 2, TOLD, "pb"), CALL(mbind, 6, TOLD, "bnabnl"), CALL(set_mempolicy, 3, TOLD, "abn"), CALL(get_mempolicy, 5, TOLD, "bbnbl"),
    CALL(mq_open, 4, TOLD, "plnb"), CALL(mq_unlink, 1, TOLD, "p"), CALL(mq_timedsend, 5, TOLD, "fbnnb"), CALL(mq_timedreceive, 5, TOLD, "fbnbb"), CALL(mq_notify, 2, TOLD, "fb"), CALL(mq_getsetattr, 3, TOLD, "fbb"), CALL(waitid, 5, TOLD, "snbsb"),
    CALL(ioprio_get, 2, TOLD, "sx"), CALL(inotify_init1, 1, TOLD, "l"), CALL(inotify_add_watch, 3, TOLD, "fpl"), CALL(inotify_rm_watch, 2, TOLD, "fs"), CALL(openat, 4, 0, "fpln"), CALL(mkdirat, 3, TOLD, "fpn"), CALL(mknodat, 4, TOLD, "fpnn"), CALL(fchownat, 5, TOLD, "fpnnl"),
    CALL(futimesat, 3, TOLD, "fpb"), CALL(newfstatat, 4, TOLD, "fpbl"), CALL(unlinkat, 3, TOLD, "fpl"), CALL(renameat, 4, TOLD, "fpfp"), CALL(linkat, 5, TOLD, "fpfpl"), CALL(symlinkat, 3, TOLD, "pfp"), CALL(readlinkat, 4, TOLD, "fpbn"), CALL(fchmodat, 3, TOLD, "fpn"), CALL(faccessat, 3, TOLD, "fps"),
    CALL(pselect6, 6, TOLD, "sbbbbx"), CALL(ppoll, 5, TOLD, "bnbxn"), CALL(unshare, 1, TOLD, "l"), CALL(set_robust_list, 2, TOLD, "bn"), CALL(get_robust_list, 3, TOLD, "nbb"), CALL(splice, 6, TOLD, "fbfbnl"), CALL(tee, 4, TOLD, "ffnl"), CALL(sync_file_range, 4, TOLD, "fnnl"), CALL(vmsplice, 4, TOLD, "fbnl"),
    CALL(utimensat, 4, TOLD, "fpbl"), CALL(epoll_pwait, 6, TOLD, "fbnsxn"), CALL(signalfd, 3, TOLD, "fbn"), CALL(timerfd_create, 2, TOLD, "cl"), CALL(eventfd, 1, TOLD, "n"), CALL(fallocate, 4, TOLD, "fann"), CALL(timerfd_settime, 4, TOLD, "flbb"), CALL(timerfd_gettime, 2, TOLD, "fb"), CALL(accept4, 4, TOLD, "fbbl"),
    CALL(signalfd4, 4, TOLD, "fbnl"), CALL(eventfd2, 2, TOLD, "nl"), CALL(epoll_create1, 1, TOLD, "l"), CALL(dup3, 3, TOLD, "ffl"), CALL(pipe2, 2, TOLD, "bl"), CALL(preadv, 5, TOLD, "fbnnn"), CALL(pwritev, 5, TOLD, "fbnnn"), CALL(rt_tgsigqueueinfo, 4, TOLD, "nnsb"), CALL(recvmmsg, 5, TOLD, "fbnlb"),
    CALL(syncfs, 1, TOLD, "f"), CALL(sendmmsg, 4, TOLD, "fbnl"), CALL(setns, 2, TOLD, "fl"), CALL(getcpu, 3, TOLD, "bbb"), CALL(process_vm_readv, 6, TOLD, "nbnbnl"), CALL(process_vm_writev, 6, TOLD, "nbnbnl"), CALL(kcmp, 5, 0, "nnsnn"),
    CALL(sched_setattr, 3, TOLD, "nbl"), CALL(sched_getattr, 4, TOLD, "nbnl"), CALL(renameat2, 5, TOLD, "fpfpl"), CALL(seccomp, 3, TOLD, "slb"), CALL(getrandom, 3, TOLD, "bnl"), CALL(memfd_create, 2, TOLD, "pl"), CALL(execveat, 5, TOLD, "fpbbl"), CALL(membarrier, 3, 0, "lls"), CALL(mlock2, 3, TOLD, "bnl"), CALL(copy_file_range, 6, TOLD, "fbfbnl"),
    CALL(preadv2, 6, TOLD, "fbnnnl"), CALL(pwritev2, 6, TOLD, "fbnnnl"), CALL(statx, 5, TOLD, "fplnb"), CALL(rseq, 4, TOLD, "bnln"), CALL(pidfd_send_signal, 4, TOLD, "fsbx"), CALL(pidfd_open, 2, TOLD, "nl"), CALL(clone3, 2, CHILD, "bn"), CALL(close_range, 3, TOLD, "ffl"), CALL(openat2, 4, 0, "fpbn"),
    CALL(pidfd_getfd, 3, TOLD, "ffl"), CALL(faccessat2, 4, TOLD, "fpsl"), CALL(process_madvise, 5, TOLD, "fbnsl"), CALL(epoll_pwait2, 6, TOLD, "fbnbxn"), CALL(process_mrelease, 2, TOLD, "fl"), CALL(futex_waitv, 5, TOLD, "bnlbs"), CALL(set_mempolicy_home_node, 4, TOLD, "bnnl"),
};

enum { DESCRIPTORS = 18 };
static char *room, *edge, *fixed;

static void put_descriptor(int fd, int at) {
    if (fd != at) {
        dup2(fd, at);
        close(fd);
    }
}

// Descriptors 3 to 20, and the files, as each call finds them.
static void prepare(void) {
    int pair[2];
    int file = open("/tmp/f", O_CREAT | O_RDWR | O_TRUNC, 0644);
    if (write(file, "text of a file\n", 15) != 15)
        abort();
    put_descriptor(file, 3);
    mkdir("/tmp/d", 0755);
    put_descriptor(open("/tmp/d", O_RDONLY | O_DIRECTORY), 4);
    if (pipe2(pair, O_NONBLOCK))
        abort();
    put_descriptor(pair[1], 50);
    put_descriptor(pair[0], 5);
    put_descriptor(50, 6);
    socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair);
    put_descriptor(pair[1], 51);
    put_descriptor(pair[0], 7);
    put_descriptor(51, 8);
    put_descriptor(eventfd(0, EFD_NONBLOCK), 9);
    put_descriptor(epoll_create1(0), 10);
    put_descriptor(open("/tmp/f", O_PATH), 11);
    put_descriptor(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), 12);
    put_descriptor(socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0), 13);
    put_descriptor(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK), 14);
    put_descriptor(inotify_init1(IN_NONBLOCK), 15);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    put_descriptor(signalfd(-1, &set, SFD_NONBLOCK), 16);
    put_descriptor(open("/proc/sys/kernel/ostype", O_RDONLY), 17);
    put_descriptor((int)syscall(SYS_memfd_create, "m", 2), 18);
    put_descriptor(open("/tmp/f", O_RDONLY), 19);
    put_descriptor(open("/tmp/f", O_WRONLY | O_APPEND), 20);
    symlink("f", "/tmp/l");
    strcpy(room + 64, "/tmp/f");
    strcpy(room + 96, "/tmp/d");
    strcpy(room + 128, "/tmp/none/x");
    strcpy(room + 160, "/tmp/l");
    strcpy(room + 192, "/tmp/new");
    strcpy(room + 224, "user.one");
    strcpy(room + 256, "/tmp/d/..");
    room[288] = 0;
    // A structure of ones, and one of everything.
    memset(room + 512, 1, 256);
    memset(room + 1024, 0xff, 256);
    // Two pieces of memory, one after the other.
    ((uint64_t *)(room + 1536))[0] = (uint64_t)(room + 2048);
    ((uint64_t *)(room + 1536))[1] = 16;
    ((uint64_t *)(room + 1536))[2] = (uint64_t)(room + 2080);
    ((uint64_t *)(room + 1536))[3] = 8;
    memset(room + 2048, 'x', 64);
    memcpy(edge + PAGE - 4, "/tmp", 4);
}

static uint64_t argument(char likely) {
    static const uint64_t odd[] = {0, 1, 2, (uint64_t)-1, (uint64_t)-2, 4095, 4096, 4097, 0x7fffffff, 0x80000000, 0xffffffff, 1ull << 32, 1ull << 62, 1ull << 63, 0xffff800000000000, 0x800000000000};
    static const int paths[] = {64, 64, 96, 128, 160, 192, 224, 256, 288}, buffers[] = {0, 0, 0, 512, 1024, 1536, 1536};
    uint32_t draw = below(16);
    if (likely != 'a' && likely != 'x' && one_in(6)) {
        uint64_t value = ONE_OF(odd);
        say(" %lx", value);
        return value;
    }
    switch (likely) {
    case 'f': {
        int fd = one_in(12) ? (one_in(2) ? -100 : 99) : 3 + (int)below(DESCRIPTORS);
        say(" %d", fd);
        return (uint64_t)(int64_t)fd;
    }
    case 'p':
    case 'b': {
        if (draw == 0) {
            say(" edge");
            return (uint64_t)(edge + PAGE - 4);
        }
        if (draw == 1) {
            say(" fixed");
            return (uint64_t)fixed;
        }
        if (draw == 2) {
            say(" bad");
            return 8;
        }
        if (draw == 3 && likely == 'b') {
            say(" null");
            return 0;
        }
        int at = likely == 'p' ? ONE_OF(paths) : ONE_OF(buffers);
        say(" room+%d", at);
        return (uint64_t)(room + at);
    }
    case 'l': {
        uint64_t value = one_in(3) ? 0 : 1ull << below(32);
        say(" %lx", value);
        return value;
    }
    case 'c': {
        // Not those that wake the computer, which not all can.
        uint64_t value = below(7);
        say(" %lu", value);
        return value;
    }
    case 'x': return 0;
    case 'a': {
        // What all releases of Linux have an opinion of.
        uint64_t value = below(4);
        say(" %lu", value);
        return value;
    }
    case 's': {
        uint64_t value = below(12);
        say(" %lu", value);
        return value;
    }
    default: {
        uint64_t value = one_in(2) ? below(9) : one_in(2) ? below(5000) : 1ull << below(20);
        say(" %lu", value);
        return value;
    }
    }
}

static void one(void) {
    const struct call *call = &ONE_OF(calls);
    uint64_t values[6] = {0};
    say("%s", call->name);
    for (int i = 0; i < call->count; i++)
        values[i] = argument(call->likely[i]);
    fflush(stdout);
    // What an earlier one has left.
    static const char *const names[] = {"/tmp/f", "/tmp/l", "/tmp/new", "/tmp/d"};
    for (size_t i = 0; i < COUNT(names); i++)
        if (unlink(names[i]))
            rmdir(names[i]);
    pid_t pid = fork();
    if (pid == 0) {
        struct rlimit no_core = {0, 0};
        struct itimerval timer = {{0, 0}, {0, 400000}};
        setrlimit(RLIMIT_CORE, &no_core);
        // A signal for its group is for nobody else.
        setpgid(0, 0);
        prepare();
        // Where they lead is nobody's business.
        syscall(SYS_close_range, 0, 2, 0);
        setitimer(ITIMER_REAL, &timer, 0);
        errno = 0;
        long result = syscall(call->number, values[0], values[1], values[2], values[3], values[4], values[5]);
        int error = errno;
        setitimer(ITIMER_REAL, &(struct itimerval){0}, 0);
        if (call->kind & CHILD && result == 0)
            _exit(0);
        // Whatever has become of the streams: 60 is nobody's.
        char text[64];
        int length = result < 0 ? snprintf(text, sizeof text, " = %s\n", strerrorname_np(error)) : call->kind & TOLD ? snprintf(text, sizeof text, " = %ld\n", result) : snprintf(text, sizeof text, " = some\n");
        if (write(60, text, (size_t)length) != length)
            _exit(1);
        _exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    char text[64];
    long length = read(61, text, sizeof text);
    if (length > 0)
        say("%.*s", (int)length, text);
    else if (WIFSIGNALED(status))
        say(" = killed by %d\n", WTERMSIG(status));
    else
        say(" = ended with %d\n", WEXITSTATUS(status));
}

int main(int count, char **arguments) {
    int kind, ends[2];
    long steps = begin(count, arguments, &kind);
    // Limits that computers have not in common.
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){1024, 1024});
    if (chdir("/tmp") || pipe2(ends, O_NONBLOCK | O_CLOEXEC))
        return 1;
    fcntl(ends[1], F_DUPFD_CLOEXEC, 60);
    put_descriptor(ends[0], 61);
    close(ends[1]);
    room = mmap((void *)0x10000000, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    edge = mmap((void *)0x10010000, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    fixed = mmap((void *)0x10020000, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    memcpy(fixed, "/tmp/f", 7);
    mprotect(fixed, PAGE, PROT_READ);
    void (*const all[])(void) = {one};
    run_steps(all, 1, steps, 0);
    return 0;
}
