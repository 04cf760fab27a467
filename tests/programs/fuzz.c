// SPDX-License-Identifier: Apache-2.0 OR MIT
// Random system calls, by seed: of processes, threads and users, with arguments that fit and that do not. To be run
// as the first process of a machine, which afterwards has to work as before. usage: fuzz SEED COUNT [CALLS] [say]
// With `say` each call is printed before it is made: the last one is what the machine ended in.
#include "fuzz/arguments.h"
#include "check.h"
#include "fuzz/calls.h"
#include "fuzz/family.h"
#include <dirent.h>
#include <limits.h>
#include <grp.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/msg.h>
#include <sys/shm.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/timerfd.h>

enum { SHARED_FD = 1000, SAY_FD = 1001, SEED_S = 5, PATIENCE_S = 120 };

static int is_said;

// Calls that end this program or its machine by what they are for, that family.h makes, or that leave it waiting
// for ever.
static int is_left_out(long number)
{
    static const long left_out[] = {
        SYS_exit,
        SYS_exit_group,
        SYS_reboot,
        SYS_fork,
        SYS_vfork,
        SYS_clone,
        SYS_clone3,
        SYS_execve,
        SYS_execveat,
        SYS_ptrace,
        SYS_kill,
        SYS_tkill,
        SYS_tgkill,
        SYS_rt_sigqueueinfo,
        SYS_rt_tgsigqueueinfo,
        SYS_pidfd_send_signal,
        SYS_process_vm_writev,
        SYS_process_mrelease,
        SYS_prlimit64,
        SYS_setrlimit,
        SYS_rt_sigreturn,
        SYS_rt_sigaction,
        SYS_rt_sigprocmask,
        SYS_rt_sigsuspend,
        SYS_pause,
        SYS_munmap,
        SYS_mmap,
        SYS_mremap,
        SYS_mprotect,
        SYS_pkey_mprotect,
        SYS_madvise,
        SYS_process_madvise,
        SYS_shmat,
        SYS_brk,
        SYS_remap_file_pages,
        SYS_setitimer,
        SYS_alarm,
        SYS_close_range,
        SYS_settimeofday,
        SYS_clock_settime,
        SYS_seccomp,
        SYS_sched_setscheduler,
        SYS_sched_setattr,
        SYS_sched_setparam,
        SYS_vhangup,
        SYS_close,
        SYS_mount,
    };
    for (unsigned i = 0; i < sizeof left_out / sizeof *left_out; i++)
        if (left_out[i] == number)
            return 1;
    return 0;
}

static uint64_t anything(void)
{
    switch (below(6)) {
    case 0:
    case 1:
        return file();
    case 2:
        return structure();
    case 3:
        return path();
    default:
        return odd();
    }
}

static void say(const char *name, long number, const uint64_t *with)
{
    char line[200];
    int length = snprintf(line, sizeof line, "%d: %s %ld (%lx, %lx, %lx, %lx, %lx, %lx)\n", getpid(), name, number,
                          with[0], with[1], with[2], with[3], with[4], with[5]);
    if (write(SAY_FD, line, (size_t)length) < 0)
        is_said = 0;
}

// A descriptor that a call gave takes the place of another one, which is closed.
static void keep(long fd)
{
    int at = (int)below(FILES);
    if (fd < 3 || fd >= SHARED_FD)
        return;
    if (file_count < FILES) {
        files[file_count++] = (int)fd;
    } else if (at >= file_count / 2) {
        close(files[at]);
        files[at] = (int)fd;
    }
}

static int gives_descriptor(long number)
{
    return number == SYS_openat || number == SYS_open || number == SYS_creat || number == SYS_openat2 ||
           number == SYS_dup || number == SYS_socket || number == SYS_accept4 || number == SYS_eventfd2 ||
           number == SYS_memfd_create || number == SYS_epoll_create1 || number == SYS_inotify_init1 ||
           number == SYS_timerfd_create || number == SYS_signalfd4 || number == SYS_mq_open ||
           number == SYS_pidfd_open || number == SYS_pidfd_getfd;
}

static void make_calls(int count)
{
    for (int i = 0; i < count; i++) {
        uint64_t with[6] = {0};
        const struct call *call = &calls[below(sizeof calls / sizeof *calls)];
        long number = call->number;
        const char *name = call->name;
        if (one_in(16)) {
            relate();
            continue;
        }
        if (one_in(10)) {
            number = (long)below(470);
            name = "call";
            if (is_left_out(number))
                continue;
            for (int k = 0; k < 6; k++)
                with[k] = anything();
        } else {
            for (int k = 0; k < 6 && call->arguments[k]; k++)
                with[k] = call->arguments[k]();
        }
        // What a process limits itself to early leaves little to try.
        if ((number == SYS_close_range || number == SYS_prlimit64 || number == SYS_chroot) && !one_in(20))
            continue;
        if (is_said)
            say(name, number, with);
        shared->calls++;
        long got = syscall(number, with[0], with[1], with[2], with[3], with[4], with[5]);
        if (gives_descriptor(number))
            keep(got);
    }
}

static void interrupted(int signal) { (void)signal; }

// A call that waits is interrupted.
static void interrupt_waits(void)
{
    struct itimerval often = {{0, 5000}, {0, 5000}};
    setitimer(ITIMER_REAL, &often, NULL);
}

static void add(int fd)
{
    if (fd >= 0 && file_count < FILES)
        files[file_count++] = fd;
}

static void add_pair(int made, const int *pair)
{
    if (made == 0)
        add(pair[0]), add(pair[1]);
}

static void open_files(void)
{
    int pair[2];
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    add(open("/tmp/f", O_RDWR | O_CREAT, 0666));
    add(open("/tmp", O_RDONLY | O_DIRECTORY));
    add_pair(pipe2(pair, one_in(2) ? O_NONBLOCK : 0), pair);
    add(epoll_create1(0));
    add(epoll_create1(0));
    add(eventfd(0, 0));
    add(timerfd_create(CLOCK_MONOTONIC, 0));
    add(inotify_init());
    add(signalfd(-1, &set, 0));
    add(open("/dev/ptmx", O_RDWR | O_NOCTTY));
    add(open("/proc/self/maps", O_RDONLY));
    add(open("/proc/self/mem", O_RDWR));
    add(open("/dev/zero", O_RDWR));
    add(memfd_create("m", MFD_ALLOW_SEALING));
    add((int)syscall(SYS_pidfd_open, getpid(), 0));
    first_socket = file_count;
    static const int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};
    for (int i = 0; i < 3; i++)
        add_pair(socketpair(AF_UNIX, types[i], 0, pair), pair);
    add(socket(AF_UNIX, SOCK_STREAM, 0));
    for (int i = 0; i < 2; i++) {
        add(socket(AF_INET, types[i], 0));
        add(socket(AF_INET6, types[i], 0));
    }
    add(socket(AF_INET, SOCK_RAW, IPPROTO_ICMP));
    add(socket(AF_NETLINK, SOCK_RAW, 0));
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (void *)&at, size) == 0 && listen(listener, 4) == 0 &&
        getsockname(listener, (void *)&at, &size) == 0 && connect(client, (void *)&at, size) == 0)
        add(accept(listener, NULL, NULL));
    add(client);
    add(listener);
    socket_count = file_count - first_socket;
}

// The first process of a seed; every second one is no superuser.
static void run(uint64_t seed, int count)
{
    begin_stream(seed);
    arena = mmap(NULL, ARENA + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    read_only = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(arena != MAP_FAILED && read_only != MAP_FAILED);
    CHECK(mprotect(arena + ARENA, PAGE, PROT_NONE) == 0 && mprotect(read_only, PAGE, PROT_READ) == 0);
    for (int i = 1; i < 65; i++)
        if (i != SIGKILL && i != SIGSTOP && i != SIGSEGV && i != SIGBUS && i != SIGILL && i != SIGFPE &&
            i != SIGSYS && i != 32 && i != 33)
            sigaction(i, &(struct sigaction){.sa_handler = interrupted}, NULL);
    int null = open("/dev/null", O_RDWR);
    for (int i = 0; i < 3; i++)
        dup2(null, i);
    open_files();
    if (seed % 2 && (setgroups(0, NULL) || setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534)))
        _exit(1);
    live(seed, count);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

// Removes what is in a directory, whatever it is.
static void empty(const char *directory)
{
    DIR *list = opendir(directory);
    for (struct dirent *entry; list && (entry = readdir(list));) {
        char at[PATH_MAX];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        snprintf(at, sizeof at, "%s/%s", directory, entry->d_name);
        while (umount2(at, MNT_DETACH) == 0)
            ;
        if (unlink(at) && errno != ENOENT) {
            empty(at);
            rmdir(at);
        }
    }
    if (list)
        closedir(list);
}

// What the processes that are left are at.
static void tell_who_is_left(void)
{
    char at[64], text[4096];
    for (int pid = 2; pid < 100000; pid++) {
        snprintf(at, sizeof at, "/proc/%d/status", pid);
        int file = open(at, O_RDONLY);
        ssize_t length = file < 0 ? 0 : read(file, text, sizeof text - 1);
        if (length > 0)
            printf("%.*s\n", (int)length, text);
        if (file >= 0)
            close(file);
    }
}

// Ends all that a seed left, also what has left its session or belongs to another user, and removes what outlives
// processes.
static void clear(uint64_t seed)
{
    double begin = now();
    kill(-1, SIGKILL);
    while (waitpid(-1, NULL, WNOHANG) >= 0) {
        if (now() - begin > PATIENCE_S) {
            tell_who_is_left();
            printf("seed %lu: its processes do not end though they were killed\n", seed);
            exit(1);
        }
        usleep(500);
    }
    empty("/tmp");
    empty("/dev/shm");
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        syscall(SYS_mq_unlink, names[i]);
    for (int id = 0; id < 64; id++) {
        shmctl(id, IPC_RMID, NULL);
        msgctl(id, IPC_RMID, NULL);
        semctl(id, 0, IPC_RMID);
    }
}

// What any program expects of a machine: processes, pipes, sockets, files and memory.
static void serve(void)
{
    int pair[2], status;
    char text[8] = "";
    CHECK(pipe(pair) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        _exit(write(pair[1], "pipe", 4) == 4 ? 7 : 1);
    CHECK(read(pair[0], text, 4) == 4 && strcmp(text, "pipe") == 0);
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    close(pair[0]), close(pair[1]);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    CHECK(write(pair[0], "unix", 4) == 4 && read(pair[1], text, 4) == 4 && strcmp(text, "unix") == 0);
    close(pair[0]), close(pair[1]);
    int file = open("/tmp/served", O_RDWR | O_CREAT | O_EXCL, 0600);
    CHECK(file >= 0 && write(file, "file", 4) == 4 && pread(file, text, 4, 0) == 4 && strcmp(text, "file") == 0);
    CHECK(close(file) == 0 && unlink("/tmp/served") == 0);
    char *memory = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    for (int i = 0; i < 1 << 20; i += PAGE)
        CHECK(memory[i] == 0 && (memory[i] = 1));
    CHECK(munmap(memory, 1 << 20) == 0);
}

static unsigned long free_kib(void)
{
    struct sysinfo info;
    CHECK(sysinfo(&info) == 0);
    return info.freeram * info.mem_unit >> 10;
}

int main(int words, char **word)
{
    if (words < 3 || getpid() != 1) {
        if (words == 3 && strcmp(word[1], "again") == 0) {
            shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, SHARED_FD, 0);
            if (shared == MAP_FAILED)
                return 1;
            is_said = fcntl(SAY_FD, F_GETFD) >= 0;
            run(strtoull(word[2], NULL, 0), 200);
        }
        printf("usage: fuzz SEED COUNT [CALLS] [say], as the first process of a machine: it ends all others\n");
        return 2;
    }
    uint64_t first = strtoull(word[1], NULL, 0), count = strtoull(word[2], NULL, 0);
    int each = words > 3 ? atoi(word[3]) : 2000, file = memfd_create("shared", 0);
    CHECK(file >= 0 && ftruncate(file, PAGE) == 0 && dup2(file, SHARED_FD) == SHARED_FD && close(file) == 0);
    shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, SHARED_FD, 0);
    CHECK(shared != MAP_FAILED);
    is_said = words > 4 && dup2(1, SAY_FD) == SAY_FD;
    mkdir("/tmp", 01777);
    unsigned long before = free_kib(), after = before;
    long calls = 0;
    for (uint64_t seed = first; seed < first + count; seed++) {
        int status = 0;
        printf("\nseed %lu: ", seed);
        fflush(stdout);
        shared->calls = shared->forks = 0;
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            setsid();
            run(seed, each);
        }
        double begin = now();
        while (waitpid(child, &status, WNOHANG) == 0 && now() - begin < SEED_S)
            usleep(1000);
        clear(seed);
        serve();
        calls += shared->calls;
        after = free_kib();
        printf("%ld calls, %lu KiB are free\n", (long)shared->calls, after);
    }
    printf("%lu seeds from %lu are survived: %ld calls, %lu of %lu KiB are free\n", count, first, calls, after,
           before);
    return 0;
}
