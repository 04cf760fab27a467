// SPDX-License-Identifier: Apache-2.0 OR MIT
// Random sequences of calls (sequences.h) on futexes: a thread that wakes, requeues and writes, and five that wait and lock. After
// each call all of them come to rest; told is what their calls answered, who waits, and the words.
// KIND: 0 private futexes, 1 shared ones in anonymous memory, 2 in a file.
#include "sequences.h"
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

enum { THREADS = 5, WORDS = 4, ROUND = 100 };

typedef struct {
    int pipe[2], is_busy, is_new, is_gone, error;
    pid_t tid;
    long result;
    // What it is to do: a system call with its arguments.
    long number, arguments[6];
    pthread_t thread;
} Worker;

static Worker workers[THREADS];
static uint32_t *words, *read_only;
static int private_flag, handled;

static long call(const long *arguments, long number) {
    return syscall(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
}

static void on_signal(int signal) {
    (void)signal;
    __atomic_add_fetch(&handled, 1, __ATOMIC_SEQ_CST);
}

static void *works(void *own) {
    Worker *worker = own;
    worker->tid = (pid_t)syscall(SYS_gettid);
    char order;
    for (;;) {
        long got = read(worker->pipe[0], &order, 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got != 1)
            return 0;
        worker->result = call(worker->arguments, worker->number);
        worker->error = errno;
        worker->is_new = 1;
        __atomic_store_n(&worker->is_busy, 0, __ATOMIC_SEQ_CST);
    }
}

static char state_of(pid_t tid) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    return state_in(path);
}

// A word, the owner in that of a lock by thread: 0 is the director.
static void say_word(uint32_t word, int is_lock) {
    uint32_t owner = word & FUTEX_TID_MASK;
    int slot = owner == (uint32_t)getpid() ? 0 : -1;
    for (int i = 0; i < THREADS; i++)
        if ((uint32_t)workers[i].tid == owner)
            slot = i + 1;
    if (!is_lock)
        slot = -1;
    say(" %s%s%s%d", word & FUTEX_WAITERS ? "w" : "", word & FUTEX_OWNER_DIED ? "d" : "", slot < 0 ? "" : "T", slot < 0 ? (int)owner : slot);
}

static void settle(void) {
    char before[THREADS + 1] = "", now[THREADS + 1] = "";
    int same = 0;
    for (int tries = 0; tries < 3000 && same < 2; tries++) {
        usleep(200);
        int runs = 0;
        for (int i = 0; i < THREADS; i++) {
            now[i] = workers[i].is_gone ? '-' : __atomic_load_n(&workers[i].is_busy, __ATOMIC_SEQ_CST) ? 'w' : '.';
            runs |= state_of(workers[i].tid) != (workers[i].is_gone ? '-' : 'S');
        }
        same = !runs && !memcmp(before, now, THREADS) ? same + 1 : 0;
        memcpy(before, now, THREADS);
    }
    say("   [%s]", before);
    for (int i = 0; i < WORDS; i++)
        say_word(words[i], i >= 2);
    say(" handled %d", handled);
    for (int i = 0; i < THREADS; i++)
        if (!workers[i].is_busy && workers[i].is_new) {
            workers[i].is_new = 0;
            say(" thread %d = %s", i + 1, workers[i].result < 0 ? strerrorname_np(workers[i].error) : workers[i].result ? "more" : "0");
        }
    say("\n");
}

static int any_word(void) {
    return (int)below(WORDS);
}

// An address of a word, or one that is none's: not aligned, nowhere, read-only.
static long address(int word) {
    switch (below(60)) {
    case 0: say(" odd"); return (long)&words[word] + 1 + (long)below(3);
    case 1: say(" nowhere"); return 8;
    case 2: say(" read-only"); return (long)&read_only[word];
    }
    return (long)&words[word];
}

static uint32_t value(void) {
    // No thread has one of these numbers.
    static const uint32_t all[] = {0, 5000001, 5000002};
    return ONE_OF(all);
}

static const struct timespec *limit(void) {
    static const struct timespec none = {0, 0}, wrong = {0, 1000000000}, before = {-1, 0}, late = {1 << 30, 0};
    switch (below(9)) {
    case 0:
    case 1: say(" at once"); return &none;
    case 2: if (one_in(3)) { say(" wrong"); return &wrong; } break;
    case 3: if (one_in(3)) { say(" before"); return &before; } break;
    case 4: say(" late"); return &late;
    }
    return 0;
}

static void tells(int slot, long number, long a, long b, long c, long d, long e, long f) {
    Worker *worker = &workers[slot];
    long arguments[] = {a, b, c, d, e, f};
    if (worker->is_busy || worker->is_gone) {
        say(worker->is_busy ? " is busy\n" : " is gone\n");
        return;
    }
    worker->number = number;
    memcpy(worker->arguments, arguments, sizeof arguments);
    worker->is_busy = 1;
    if (write(worker->pipe[1], "o", 1) != 1)
        abort();
    say("\n");
}

static void waits(void) {
    int slot = (int)below(THREADS), word = any_word(), is_bitset = one_in(2), is_clock = one_in(6) ? FUTEX_CLOCK_REALTIME : 0;
    uint32_t wanted = one_in(4) ? value() : 9, bits = one_in(3) ? FUTEX_BITSET_MATCH_ANY : below(4);
    say("thread %d waits at %d", slot + 1, word);
    if (wanted == 9)
        wanted = words[word];
    else
        say(" for %u", wanted);
    if (is_bitset)
        say(" bits %x", bits);
    if (is_clock)
        say(" real time");
    const struct timespec *time = limit();
    long at = address(word);
    tells(slot, SYS_futex, at, (is_bitset ? FUTEX_WAIT_BITSET : FUTEX_WAIT) | private_flag | is_clock, wanted, (long)time, 0, bits);
}

static void waits_for_several(void) {
    static struct futex_waitv lists[THREADS][3];
    int slot = (int)below(THREADS);
    uint32_t count = below(4), flags = one_in(12) ? below(4) : 0, size = one_in(12) ? below(4) : FUTEX_32;
    say("thread %d waitv %u %u %u", slot + 1, count, flags, size);
    struct futex_waitv list[3];
    memset(list, 0, sizeof list);
    for (uint32_t i = 0; i < count && i < 3; i++) {
        int word = any_word();
        uint32_t wanted = one_in(6) ? value() : 9;
        say(" %d", word);
        if (wanted != 9)
            say("=%u", wanted);
        list[i] = (struct futex_waitv){wanted == 9 ? words[word] : wanted, (uint64_t)address(word), size | (uint32_t)private_flag, one_in(40)};
    }
    if (!workers[slot].is_busy)
        memcpy(lists[slot], list, sizeof list);
    const struct timespec *time = limit();
    tells(slot, SYS_futex_waitv, (long)lists[slot], count, flags, (long)time, CLOCK_MONOTONIC, 0);
}

static void locks(void) {
    static const int all[] = {FUTEX_LOCK_PI, FUTEX_LOCK_PI, FUTEX_LOCK_PI2, FUTEX_TRYLOCK_PI, FUTEX_UNLOCK_PI, FUTEX_UNLOCK_PI, FUTEX_UNLOCK_PI};
    int slot = (int)below(THREADS), which = ONE_OF(all), word = 2 + (int)below(2);
    say("thread %d lock op %d at %d", slot + 1, which, word);
    const struct timespec *time = which == FUTEX_LOCK_PI || which == FUTEX_LOCK_PI2 ? limit() : 0;
    long at = address(word);
    tells(slot, SYS_futex, at, which | private_flag, 0, (long)time, 0, 0);
}

static void waits_to_be_requeued(void) {
    int slot = (int)below(THREADS), word = (int)below(2), target = 2 + (int)below(2);
    say("thread %d waits at %d to lock %d", slot + 1, word, target);
    const struct timespec *time = limit();
    tells(slot, SYS_futex, (long)&words[word], FUTEX_WAIT_REQUEUE_PI | private_flag, words[word], (long)time, (long)&words[target], 0);
}

static void requeues_locks(void) {
    int word = (int)below(2), target = 2 + (int)below(2), wakes = one_in(6) ? (int)below(3) : 1, most = (int)below(4);
    uint32_t wanted = one_in(6) ? value() : words[word];
    say("requeue %d of %d to lock %d", most, word, target);
    answered(syscall(SYS_futex, &words[word], FUTEX_CMP_REQUEUE_PI | private_flag, wakes, most, &words[target], wanted));
}

static void wakes(void) {
    int word = any_word(), count = (int)below(4) - (one_in(20) ? 2 : 0), is_bitset = one_in(3);
    uint32_t bits = below(4);
    say("wake %d of %d", count, word);
    if (is_bitset)
        say(" bits %x", bits);
    long at = address(word);
    answered(syscall(SYS_futex, at, (is_bitset ? FUTEX_WAKE_BITSET : FUTEX_WAKE) | private_flag, count, 0, 0, bits));
}

static void requeues(void) {
    int word = any_word(), target = any_word(), count = (int)below(3) - (one_in(20) ? 1 : 0), most = (int)below(4) - (one_in(20) ? 1 : 0), compares = one_in(2);
    uint32_t wanted = one_in(6) ? value() : words[word];
    say("requeue %d to %d wake %d move %d", word, target, count, most);
    if (compares)
        say(" compared");
    long at = address(word), to = address(target);
    answered(syscall(SYS_futex, at, (compares ? FUTEX_CMP_REQUEUE : FUTEX_REQUEUE) | private_flag, count, (long)most, to, wanted));
}

static void wakes_and_changes(void) {
    int word = any_word(), target = (int)below(2), count = (int)below(3), other = (int)below(3);
    uint32_t op = below(one_in(20) ? 8 : 5), compare = below(one_in(20) ? 8 : 6), argument = below(3), compared = below(3), shift = one_in(8);
    uint32_t encoded = FUTEX_OP(op | (shift ? FUTEX_OP_OPARG_SHIFT : 0), argument, compare, compared);
    say("wake %d of %d, op %u %u%s then %d of %d where %u %u", count, word, op, argument, shift ? " shifted" : "", other, target, compare, compared);
    long at = address(word), to = address(target);
    answered(syscall(SYS_futex, at, FUTEX_WAKE_OP | private_flag, count, (long)other, to, encoded));
}

static void writes(void) {
    int word = (int)below(2), is_lock = one_in(20);
    uint32_t to = value();
    say("write %u to %d\n", to, is_lock ? word + 2 : word);
    words[is_lock ? word + 2 : word] = to == 5000002 && is_lock ? FUTEX_WAITERS : to;
}

static void director_locks(void) {
    static const int all[] = {FUTEX_TRYLOCK_PI, FUTEX_UNLOCK_PI, FUTEX_UNLOCK_PI, 40, FUTEX_FD, 14};
    int which = ONE_OF(all), word = 2 + (int)below(2);
    say("op %d at %d", which, word);
    answered(syscall(SYS_futex, &words[word], which | private_flag, 0, 0, 0, 0));
}

// A thread ends: what it owned is the next one's.
static void leaves(void) {
    int slot = (int)below(THREADS), is_wanted = one_in(3);
    say("thread %d ends", slot + 1);
    if (!is_wanted) {
        say(" not\n");
        return;
    }
    int is_free = !workers[slot].is_busy && !workers[slot].is_gone;
    tells(slot, SYS_exit, 0, 0, 0, 0, 0, 0);
    if (is_free) {
        workers[slot].is_busy = 0;
        workers[slot].is_gone = 1;
    }
}

static void signals(void) {
    int slot = (int)below(THREADS), restarts = one_in(2);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = restarts ? SA_RESTART : 0};
    sigaction(SIGUSR1, &action, 0);
    say("signal to thread %d%s", slot + 1, restarts ? " restarts" : "");
    answered(syscall(SYS_tgkill, getpid(), workers[slot].tid, SIGUSR1));
}

static void robust(void) {
    struct robust_list_head *head = 0;
    size_t length = 0;
    int who = (int)below(THREADS + 3);
    pid_t pid = who < THREADS ? workers[who].tid : who == THREADS ? 0 : who == THREADS + 1 ? 1 << 22 : -1;
    if (one_in(2)) {
        say("get_robust_list %d", who);
        long result = syscall(SYS_get_robust_list, pid, &head, &length);
        say(" %zu", length);
        answered(result);
    } else {
        size_t size = one_in(2) ? sizeof *head : below(40);
        say("set_robust_list %zu", size);
        answered(syscall(SYS_set_robust_list, size == sizeof *head ? 0 : &head, size));
    }
}

static void (*const steps[])(void) = {
    waits, waits, waits, waits, waits, waits_for_several, waits_for_several, locks, locks, locks, locks, waits_to_be_requeued, requeues_locks, wakes, wakes, wakes, requeues, requeues, wakes_and_changes, writes, writes, director_locks, signals, robust, leaves,
};

// Whoever waits or owns goes on, without a bound for what it takes.
static void ends(void) {
    for (int i = 0; i < THREADS; i++)
        close(workers[i].pipe[1]);
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGUSR1, &action, 0);
    _exit(0);
}

int main(int count, char **arguments) {
    int kind;
    long total = begin(count, arguments, &kind);
    private_flag = kind == 0 ? FUTEX_PRIVATE_FLAG : 0;
    for (long done = 0; done < total; done += ROUND) {
        fflush(stdout);
        // Locks that are owned and threads that wait end with their process.
        int ends_here[2];
        if (pipe(ends_here))
            return 1;
        pid_t child = fork();
        if (child == 0) {
            int file = kind == 2 ? open("/tmp/words", O_RDWR | O_CREAT | O_TRUNC, 0600) : -1;
            if (kind == 2 && ftruncate(file, 4096))
                abort();
            words = mmap(0, 4096, PROT_READ | PROT_WRITE, (kind == 0 ? MAP_PRIVATE : MAP_SHARED) | (kind == 2 ? 0 : MAP_ANONYMOUS), file, 0);
            read_only = mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            for (int i = 0; i < THREADS; i++) {
                if (pipe(workers[i].pipe) || pthread_create(&workers[i].thread, 0, works, &workers[i]))
                    abort();
                while (!*(volatile pid_t *)&workers[i].tid)
                    usleep(100);
            }
            for (int step = 0; step < ROUND; step++) {
                say("%ld ", done + step);
                steps[below(COUNT(steps))]();
                settle();
                fflush(stdout);
            }
            if (write(ends_here[1], &state, sizeof state) != sizeof state)
                abort();
            ends();
        }
        if (read(ends_here[0], &state, sizeof state) != sizeof state)
            return 1;
        close(ends_here[0]);
        close(ends_here[1]);
        while (waitpid(child, 0, 0) < 0)
            ;
    }
    return 0;
}
