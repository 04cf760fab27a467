// SPDX-License-Identifier: Apache-2.0 OR MIT
// Settings below /proc/sys, objects of System V IPC as lists, and what a process may give up, lock and share: run as the superuser.
#define _GNU_SOURCE
#include "check.h"
#include <elf.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/futex.h>
#include <linux/securebits.h>
#include <mqueue.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FAILS(call, error) (errno = 0, (call) == -1 && errno == (error))

// MSG_STAT_ANY, SEM_STAT_ANY and SHM_STAT_ANY.
enum { MESSAGES_ANY = 13, SEMAPHORES_ANY = 20, MEMORY_ANY = 15 };

static char *contents(const char *path) {
    static char text[1 << 16];
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0);
    ssize_t length = 0, n;
    while ((n = read(fd, text + length, sizeof text - 1 - length)) > 0)
        length += n;
    CHECK(n == 0 && close(fd) == 0);
    text[length] = 0;
    return text;
}

static int store(const char *path, const char *text) {
    int fd = open(path, O_WRONLY);
    if (fd < 0)
        return errno;
    int error = write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : errno;
    close(fd);
    return error;
}

// What a child that does not come back with 0 found wrong is printed by itself.
static void in_child(void (*what)(void)) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        what();
        exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static int is_listed(const char *path, int id) {
    char *line = strtok(contents(path), "\n");
    while ((line = strtok(NULL, "\n")) != NULL) {
        int key, found;
        CHECK(sscanf(line, "%d %d", &key, &found) == 2);
        if (found == id)
            return 1;
    }
    return 0;
}

static void objects_are_listed_and_have_indexes(void) {
    struct msqid_ds queue;
    struct semid_ds set;
    struct shmid_ds segment;
    // The second one's id is more than its index.
    CHECK(msgctl(msgget(IPC_PRIVATE, 0600), IPC_RMID, NULL) == 0);
    CHECK(semctl(semget(IPC_PRIVATE, 1, 0600), 0, IPC_RMID) == 0);
    CHECK(shmctl(shmget(IPC_PRIVATE, 1, 0600), IPC_RMID, NULL) == 0);
    int q = msgget(IPC_PRIVATE, 0600), s = semget(IPC_PRIVATE, 3, 0600), m = shmget(IPC_PRIVATE, 5000, 0600);
    CHECK(q >= 0 && s >= 0 && m >= 0);
    CHECK(is_listed("/proc/sysvipc/msg", q) && is_listed("/proc/sysvipc/sem", s) && is_listed("/proc/sysvipc/shm", m));
    CHECK(msgctl(q, MESSAGES_ANY, &queue) == q);
    CHECK(semctl(s, 0, SEMAPHORES_ANY, &set) == s && set.sem_nsems == 3);
    CHECK(shmctl(m, MEMORY_ANY, &segment) == m && segment.shm_segsz == 5000);
    CHECK(msgctl(q, IPC_RMID, NULL) == 0 && semctl(s, 0, IPC_RMID) == 0 && shmctl(m, IPC_RMID, NULL) == 0);
    CHECK(!is_listed("/proc/sysvipc/msg", q) && !is_listed("/proc/sysvipc/sem", s) && !is_listed("/proc/sysvipc/shm", m));
}

static void limits_are_what_is_written(void) {
    char before[64];
    strncpy(before, contents("/proc/sys/kernel/msgmni"), sizeof before - 1);
    CHECK(store("/proc/sys/kernel/msgmni", "0\n") == 0 && atoi(contents("/proc/sys/kernel/msgmni")) == 0);
    CHECK(FAILS(msgget(IPC_PRIVATE, 0600), ENOSPC));
    CHECK(store("/proc/sys/kernel/msgmni", "-1\n") == EINVAL && store("/proc/sys/kernel/msgmni", "many") == EINVAL);
    CHECK(store("/proc/sys/kernel/msgmni", before) == 0);

    strncpy(before, contents("/proc/sys/kernel/shmmax"), sizeof before - 1);
    CHECK(store("/proc/sys/kernel/shmmax", "8192") == 0 && FAILS(shmget(IPC_PRIVATE, 8193, 0600), EINVAL));
    CHECK(store("/proc/sys/kernel/shmmax", before) == 0);

    strncpy(before, contents("/proc/sys/kernel/sem"), sizeof before - 1);
    CHECK(store("/proc/sys/kernel/sem", "4") == 0 && FAILS(semget(IPC_PRIVATE, 5, 0600), EINVAL));
    int values[4];
    CHECK(sscanf(contents("/proc/sys/kernel/sem"), "%d %d %d %d", &values[0], &values[1], &values[2], &values[3]) == 4);
    CHECK(values[0] == 4 && values[3] > 4);
    CHECK(store("/proc/sys/kernel/sem", before) == 0);

    // A file that only tells something cannot be opened for more, whoever asks.
    CHECK(store("/proc/sys/kernel/ostype", "Plan 9") == EACCES);
    CHECK(atoi(contents("/proc/sys/kernel/tainted")) >= 0);
}

static void names_are_those_of_uname(void) {
    struct utsname name;
    CHECK(store("/proc/sys/kernel/domainname", "example.net\n") == 0 && uname(&name) == 0);
    CHECK(strcmp(name.domainname, "example.net") == 0);
    CHECK(setdomainname("example.org", 11) == 0);
    CHECK(strcmp(contents("/proc/sys/kernel/domainname"), "example.org\n") == 0);
}

static void locks_of_memory(void) {
    long page = sysconf(_SC_PAGESIZE);
    char *memory = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    struct rlimit none = { 0, page };
    CHECK(setrlimit(RLIMIT_MEMLOCK, &none) == 0);
    // CAP_IPC_LOCK is more than any limit.
    CHECK(mlock(memory, 2 * page) == 0 && munlock(memory, 2 * page) == 0);
    CHECK(syscall(SYS_setuid, 65534) == 0);
    CHECK(FAILS(mlock(memory, page), EPERM) && FAILS(mlockall(MCL_CURRENT), EPERM));
    CHECK(mmap(NULL, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_LOCKED, -1, 0) == MAP_FAILED && errno == EPERM);
    struct rlimit one = { page, page };
    CHECK(setrlimit(RLIMIT_MEMLOCK, &one) == 0);
    CHECK(FAILS(mlock(memory, 2 * page), ENOMEM) && mlock(memory, page) == 0);
}

static void secure_bits(void) {
    int bits = SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP | SECBIT_NO_CAP_AMBIENT_RAISE;
    CHECK(FAILS(prctl(PR_SET_SECUREBITS, 1 << 20), EPERM));
    CHECK(prctl(PR_SET_SECUREBITS, bits) == 0 && prctl(PR_GET_SECUREBITS) == bits);
    CHECK(FAILS(prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP), EPERM));
    struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct sets[2];
    CHECK(syscall(SYS_capget, &header, sets) == 0);
    sets[0].inheritable |= 1 << CAP_CHOWN;
    CHECK(syscall(SYS_capset, &header, sets) == 0);
    CHECK(FAILS(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_CHOWN, 0, 0), EPERM));
    CHECK(syscall(SYS_setuid, 65534) == 0 && syscall(SYS_capget, &header, sets) == 0);
    CHECK(sets[0].effective & 1 << CAP_CHOWN);
}

static void timer_slack(void) {
    CHECK(prctl(PR_SET_TIMERSLACK, 70000) == 0 && prctl(PR_GET_TIMERSLACK) == 70000);
    CHECK(strcmp(contents("/proc/self/timerslack_ns"), "70000\n") == 0 && store("/proc/self/timerslack_ns", "80000\n") == 0);
    CHECK(prctl(PR_GET_TIMERSLACK) == 80000 && store("/proc/self/timerslack_ns", "much") == EINVAL && store("/proc/1/timerslack_ns", "70000") == 0);
    CHECK(store("/proc/self/timerslack_ns", "70000") == 0);
    pid_t child = fork();
    if (child == 0) {
        // 0 is what the parent had when this process was made.
        CHECK(prctl(PR_SET_TIMERSLACK, 90000) == 0 && prctl(PR_SET_TIMERSLACK, 0) == 0);
        exit(prctl(PR_GET_TIMERSLACK) == 70000 ? 0 : 1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(prctl(PR_SET_TIMERSLACK, 0) == 0 && prctl(PR_GET_TIMERSLACK) != 70000);
}

static void unshared(void) {
    CHECK(FAILS(unshare(1), EINVAL));
    int number = dup(0);
    CHECK(number >= 0 && close(number) == 0);
    // A child that has the same descriptors and working directory, until it does not want to.
    pid_t child = syscall(SYS_clone, CLONE_FILES | CLONE_FS | SIGCHLD, NULL, NULL, NULL, 0L);
    if (child == 0) {
        int wrong = unshare(CLONE_FILES | CLONE_FS) != 0 || dup(0) != number || chdir("/proc") != 0;
        _exit(wrong);
    }
    int status;
    char place[256];
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(FAILS(fcntl(number, F_GETFD), EBADF) && getcwd(place, sizeof place) && strcmp(place, "/proc") != 0);
    CHECK(syscall(SYS_setuid, 65534) == 0);
    CHECK(FAILS(syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, NULL, NULL, NULL, 0L), EPERM));
    CHECK(FAILS(unshare(CLONE_NEWUTS), EPERM));
}

static void pages_are_mapped_anew(void) {
    long page = sysconf(_SC_PAGESIZE);
    int fd = memfd_create("pages", 0);
    CHECK(fd >= 0 && ftruncate(fd, 4 * page) == 0);
    char *memory = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(memory != MAP_FAILED);
    for (int i = 0; i < 4; i++)
        memory[i * page] = 'a' + i;
    CHECK(syscall(SYS_remap_file_pages, memory + page, page, 0, 3, 0) == 0);
    CHECK(memory[0] == 'a' && memory[page] == 'd' && memory[2 * page] == 'c');
    memory[page] = 'z';
    CHECK(memory[3 * page] == 'z');
    CHECK(FAILS(syscall(SYS_remap_file_pages, memory, page, PROT_READ, 0, 0), EINVAL));
    char *own = mmap(NULL, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(own != MAP_FAILED && FAILS(syscall(SYS_remap_file_pages, own, page, 0, 0, 0), EINVAL));
}

static void sticky_timeouts(void) {
    struct timeval limit = { 0, 2000 };
    CHECK(personality(STICKY_TIMEOUTS) >= 0 && select(0, NULL, NULL, NULL, &limit) == 0);
    CHECK(limit.tv_sec == 0 && limit.tv_usec == 2000);
    CHECK(personality(0) >= 0 && select(0, NULL, NULL, NULL, &limit) == 0 && limit.tv_usec == 0);
}

// What a process used whose end nobody asked for is nobody's.
static void children_that_are_ignored(void) {
    CHECK(signal(SIGCHLD, SIG_IGN) == SIG_DFL);
    pid_t child = fork();
    if (child == 0) {
        long size = 64 << 20;
        char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(memory != MAP_FAILED);
        memset(memory, 1, size);
        _exit(0);
    }
    CHECK(FAILS(waitpid(child, NULL, 0), ECHILD));
    struct rusage usage;
    CHECK(getrusage(RUSAGE_CHILDREN, &usage) == 0 && usage.ru_maxrss == 0);
}

static void clocks(void) {
    // The coarse clocks go one way, whether the kernel or the vDSO is asked.
    for (int i = 0; i < 20000; i++) {
        struct timespec first, second;
        CHECK(clock_gettime(CLOCK_MONOTONIC_COARSE, &first) == 0);
        CHECK(syscall(SYS_clock_gettime, CLOCK_MONOTONIC_COARSE, &second) == 0);
        CHECK(second.tv_sec > first.tv_sec || (second.tv_sec == first.tv_sec && second.tv_nsec >= first.tv_nsec));
    }
    // The processor time of another process.
    clockid_t clock;
    struct timespec used;
    CHECK(clock_getcpuclockid(getppid(), &clock) == 0 && clock_gettime(clock, &used) == 0);
    CHECK(used.tv_sec > 0 || used.tv_nsec > 0);
    CHECK(clock_getcpuclockid(1 << 21, &clock) == ESRCH);
}

static void too_much(const char *self) {
    // 300,000 strings are too many, though few bytes.
    static char *many[300002];
    many[0] = (char *)self;
    for (int i = 1; i <= 300000; i++)
        many[i] = "x";
    CHECK(FAILS(execv(self, many), E2BIG));
    int fd = memfd_create("short", 0);
    CHECK(fd >= 0 && mmap(NULL, -4096UL, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED && errno == ENOMEM);
}

static void message_queues(void) {
    char before[64];
    strncpy(before, contents("/proc/sys/fs/mqueue/msg_max"), sizeof before - 1);
    CHECK(store("/proc/sys/fs/mqueue/msg_max", "20") == 0);
    pid_t child = fork();
    if (child == 0) {
        struct mq_attr attributes = { .mq_maxmsg = 20, .mq_msgsize = 100 };
        CHECK(syscall(SYS_setuid, 65534) == 0);
        mqd_t queue = mq_open("/settings", O_CREAT | O_EXCL | O_RDWR, 0600, &attributes);
        CHECK(queue >= 0 && mq_getattr(queue, &attributes) == 0 && attributes.mq_maxmsg == 20);
        CHECK(mq_unlink("/settings") == 0);
        attributes.mq_maxmsg = 21;
        CHECK(FAILS(mq_open("/settings", O_CREAT | O_EXCL | O_RDWR, 0600, &attributes), EINVAL));
        exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(store("/proc/sys/fs/mqueue/msg_max", before) == 0);
}

static void undo_lists(void) {
    // Processes that undo nothing have none, and are alike in that.
    enum { CONTEXTS = 5, LISTS = 6 };
    CHECK(syscall(SYS_kcmp, getpid(), getppid(), CONTEXTS, 0, 0) == 0);
    CHECK(syscall(SYS_kcmp, getpid(), getppid(), LISTS, 0, 0) == 0);
    int set = semget(IPC_PRIVATE, 1, 0600);
    struct sembuf one = { 0, 1, SEM_UNDO };
    CHECK(set >= 0 && semop(set, &one, 1) == 0);
    CHECK(syscall(SYS_kcmp, getpid(), getppid(), LISTS, 0, 0) > 0);
    CHECK(semctl(set, 0, IPC_RMID) == 0);
}

static void barriers(void) {
    enum { PRIVATE = 8, REGISTER = 16 };
    CHECK(FAILS(syscall(SYS_membarrier, PRIVATE, 0), EPERM));
    CHECK(syscall(SYS_membarrier, REGISTER, 0) == 0 && syscall(SYS_membarrier, PRIVATE, 0) == 0);
}

static void words_of_nobody(void) {
    uint32_t *none = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), word = 0;
    CHECK(none != MAP_FAILED && FAILS(syscall(SYS_futex, none, FUTEX_WAKE, 1, NULL, NULL, 0), EFAULT));
    CHECK(syscall(SYS_futex, none, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0) == 0);
    CHECK(FAILS(syscall(SYS_futex, &word, FUTEX_CMP_REQUEUE, 1, 1L, none, 0), EFAULT));
}

static char mark[] = "what the process knew";

// The bytes at an address in a core file; NULL when it has none.
static const char *in_core(const char *file, const void *address) {
    const Elf64_Ehdr *elf = (const void *)file;
    const Elf64_Phdr *parts = (const void *)(file + elf->e_phoff);
    for (int i = 0; i < elf->e_phnum; i++)
        if (parts[i].p_type == PT_LOAD && (Elf64_Addr)address - parts[i].p_vaddr < parts[i].p_filesz)
            return file + parts[i].p_offset + ((Elf64_Addr)address - parts[i].p_vaddr);
    return NULL;
}

static int aborted(rlim_t limit, int forbidden) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        struct rlimit core = { limit, limit };
        CHECK(setrlimit(RLIMIT_CORE, &core) == 0 && prctl(PR_SET_DUMPABLE, !forbidden) == 0);
        mark[0] = 'W';
        abort();
    }
    siginfo_t info;
    int status;
    CHECK(waitid(P_PID, child, &info, WEXITED | WNOWAIT) == 0 && info.si_status == SIGABRT);
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    CHECK(info.si_code == (WCOREDUMP(status) ? CLD_DUMPED : CLD_KILLED));
    return WCOREDUMP(status);
}

static void core_files(void) {
    char place[] = "/tmp/core-XXXXXX";
    CHECK(mkdtemp(place) && chdir(place) == 0);
    CHECK(!aborted(0, 0) && !aborted(RLIM_INFINITY, 1) && access("core", F_OK) == -1);
    CHECK(aborted(RLIM_INFINITY, 0));
    int fd = open("core", O_RDONLY);
    struct stat file;
    CHECK(fd >= 0 && fstat(fd, &file) == 0 && (file.st_mode & 0777) == 0600);
    const char *core = mmap(NULL, file.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    CHECK(core != MAP_FAILED && memcmp(core, ELFMAG, SELFMAG) == 0 && ((const Elf64_Ehdr *)core)->e_type == ET_CORE);
    const char *found = in_core(core, mark);
    CHECK(found && strcmp(found, "What the process knew") == 0);
    CHECK(munmap((void *)core, file.st_size) == 0 && close(fd) == 0);
    // The limit is one of bytes.
    CHECK(aborted(8192, 0) && stat("core", &file) == 0 && file.st_size <= 8192);
    CHECK(unlink("core") == 0 && chdir("/") == 0 && rmdir(place) == 0);
}

int main(int argc, char **argv) {
    CHECK(argc == 1);
    objects_are_listed_and_have_indexes();
    limits_are_what_is_written();
    names_are_those_of_uname();
    in_child(locks_of_memory);
    in_child(secure_bits);
    in_child(timer_slack);
    in_child(unshared);
    pages_are_mapped_anew();
    in_child(sticky_timeouts);
    in_child(children_that_are_ignored);
    in_child(clocks);
    in_child(undo_lists);
    in_child(barriers);
    words_of_nobody();
    core_files();
    message_queues();
    too_much(argv[0]);
    printf("all settings tests passed\n");
    return 0;
}
