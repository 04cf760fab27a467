// SPDX-License-Identifier: Apache-2.0 OR MIT
// Random sequences of calls (sequences.h) on a few objects of one kind that do not wait, by three users.
// KIND: 0 System V message queues, 1 its semaphores, 2 its shared memory, 3 POSIX message queues.
#include "sequences.h"
#include <fcntl.h>
#include <mqueue.h>
#include <poll.h>
#include <signal.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/stat.h>

enum { SLOTS = 6, FIRST_KEY = 100, KEYS = 4, LARGEST = 40 };

static int kind, ids[SLOTS];

static int any(void) {
    return (int)below(SLOTS);
}

// An object's number, or one that is none's.
static int id_of(int slot) {
    if (one_in(30)) {
        say(" (none)");
        return one_in(2) ? -1 : 1 << 20;
    }
    return ids[slot];
}

static void becomes(void) {
    static const int users[] = {0, 0, 1000, 1001};
    int user = ONE_OF(users), group = one_in(3) ? 1000 : user;
    if (seteuid(0) || setegid(group))
        abort();
    say("seteuid %d setegid %d", user, group);
    answered(seteuid(user));
}

static int mode(void) {
    static const int modes[] = {0666, 0600, 0640, 0444, 0222, 0, 0660, 0777};
    return ONE_OF(modes);
}

static int get_flags(void) {
    static const int flags[] = {0, IPC_CREAT, IPC_CREAT, IPC_CREAT, IPC_CREAT | IPC_EXCL, IPC_EXCL};
    return ONE_OF(flags);
}

static key_t some_key(void) {
    return one_in(5) ? IPC_PRIVATE : FIRST_KEY + (key_t)below(KEYS);
}

// The number itself is the kernel's choice: told is whether another slot has it.
static void got(int slot, int id) {
    if (id >= 0) {
        ids[slot] = id;
        for (int i = 0; i < SLOTS; i++)
            if (i != slot && ids[i] == id) {
                say(" as %d", i);
                break;
            }
    }
    answered(id < 0 ? id : 0);
}

static void say_rights(const struct ipc_perm *rights) {
    say(" key %d of %d:%d by %d:%d mode %o", (int)rights->__key, rights->uid, rights->gid, rights->cuid, rights->cgid, rights->mode);
}

static void set_rights(struct ipc_perm *rights) {
    static const int users[] = {0, 1000, 1001, -1};
    rights->uid = ONE_OF(users);
    rights->gid = ONE_OF(users);
    rights->mode = mode() | (one_in(8) ? 07000 : 0);
    say(" %d:%d %o", (int)rights->uid, (int)rights->gid, rights->mode);
}

// Message queues of System V.

static void gets_queue(void) {
    int slot = any(), key = some_key(), flags = get_flags() | mode();
    say("msgget %d key %d %o", slot, key, flags);
    got(slot, msgget(key, flags));
}

typedef struct {
    long type;
    char bytes[LARGEST];
} Message;

static void sends_message(void) {
    static const char letters[LARGEST] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMN";
    Message message;
    int slot = any(), length = (int)below(LARGEST);
    message.type = (long)below(6) - (one_in(8) ? 1 : -1);
    memcpy(message.bytes, letters, sizeof message.bytes);
    say("msgsnd %d type %ld %d", slot, message.type, length);
    int id = id_of(slot);
    answered(msgsnd(id, &message, one_in(40) ? (size_t)-1 : (size_t)length, IPC_NOWAIT));
}

static void receives_message(void) {
    static const int all[] = {0, 0, 0, MSG_NOERROR, MSG_NOERROR, MSG_EXCEPT, MSG_EXCEPT | MSG_NOERROR, MSG_COPY, MSG_COPY | MSG_EXCEPT};
    Message message;
    int slot = any(), length = (int)below(LARGEST), flags = ONE_OF(all) | IPC_NOWAIT;
    long type = (long)below(8) - 3;
    say("msgrcv %d type %ld %d %o", slot, type, length, flags);
    int id = id_of(slot);
    long result = msgrcv(id, &message, length, type, flags);
    if (result >= 0) {
        say(" type %ld", message.type);
        say_bytes(message.bytes, result);
    }
    answered(result);
}

static void controls_queue(void) {
    struct msqid_ds about;
    struct msginfo info;
    int slot = any(), result;
    memset(&about, 0, sizeof about);
    switch (below(6)) {
    case 0:
    case 1:
    case 2:
        say("msgctl %d IPC_STAT", slot);
        result = msgctl(id_of(slot), IPC_STAT, &about);
        if (result == 0) {
            say_rights(&about.msg_perm);
            say(" %lu messages %lu of %lu bytes sent %d received %d changed %d", about.msg_qnum, about.__msg_cbytes, about.msg_qbytes,
                about.msg_stime != 0, about.msg_rtime != 0, about.msg_ctime != 0);
            say(" own %d %d", about.msg_lspid == getpid(), about.msg_lrpid == getpid());
        }
        break;
    case 3:
        say("msgctl %d IPC_SET", slot);
        // Root has not everywhere what it takes to let a queue grow.
        about.msg_qbytes = one_in(3) ? 60 : one_in(3) && geteuid() ? 1 << 20 : 16384;
        say(" %lu", about.msg_qbytes);
        set_rights(&about.msg_perm);
        result = msgctl(id_of(slot), IPC_SET, &about);
        break;
    case 4:
        say("msgctl %d IPC_RMID", slot);
        result = one_in(2) ? msgctl(id_of(slot), IPC_RMID, 0) : msgctl(id_of(slot), 77, 0);
        break;
    default:
        say("msgctl MSG_INFO");
        result = msgctl(0, one_in(2) ? MSG_INFO : IPC_INFO, (struct msqid_ds *)&info);
        if (result >= 0)
            say(" %d %d %d of %d %d %d", info.msgpool, info.msgmap, info.msgtql, info.msgmax, info.msgmnb, info.msgmni);
    }
    answered(result);
}

// Semaphores.

static void gets_semaphores(void) {
    int slot = any(), key = some_key(), flags = get_flags() | mode(), count = (int)below(5);
    if (one_in(30))
        count = one_in(2) ? -1 : 1 << 20;
    say("semget %d key %d %d %o", slot, key, count, flags);
    got(slot, semget(key, count, flags));
}

static void operates(void) {
    struct sembuf operations[3];
    int slot = any(), count = 1 + (int)below(COUNT(operations));
    say("semop %d", slot);
    for (int i = 0; i < count; i++) {
        operations[i].sem_num = (unsigned short)below(one_in(8) ? 6 : 3);
        operations[i].sem_op = (short)below(5) - 2;
        operations[i].sem_flg = IPC_NOWAIT | (one_in(4) ? SEM_UNDO : 0);
        if (one_in(60))
            operations[i].sem_op = 32767;
        say(" %d:%d%s", operations[i].sem_num, operations[i].sem_op, operations[i].sem_flg & SEM_UNDO ? "u" : "");
    }
    int id = id_of(slot);
    answered(semop(id, operations, one_in(40) ? 0 : (size_t)count));
}

static void controls_semaphores(void) {
    static const struct {
        int command;
        const char *name;
    } all[] = {{GETVAL, "GETVAL"}, {GETPID, "GETPID"}, {GETNCNT, "GETNCNT"}, {GETZCNT, "GETZCNT"}, {77, "none"}};
    union {
        int value;
        struct semid_ds *about;
        unsigned short *array;
        struct seminfo *info;
    } argument = {0};
    struct semid_ds about;
    struct seminfo info;
    unsigned short values[8] = {0};
    int slot = any(), number = (int)below(5) - one_in(20), result;
    memset(&about, 0, sizeof about);
    switch (below(8)) {
    case 0:
        say("semctl %d IPC_STAT", slot);
        argument.about = &about;
        result = semctl(id_of(slot), 0, IPC_STAT, argument);
        if (result == 0) {
            say_rights(&about.sem_perm);
            say(" %lu operated %d changed %d", about.sem_nsems, about.sem_otime != 0, about.sem_ctime != 0);
        }
        break;
    case 1:
        say("semctl %d IPC_SET", slot);
        set_rights(&about.sem_perm);
        argument.about = &about;
        result = semctl(id_of(slot), 0, IPC_SET, argument);
        break;
    case 2:
        say("semctl %d IPC_RMID", slot);
        result = one_in(3) ? semctl(id_of(slot), 0, IPC_RMID) : 0;
        break;
    case 3:
        argument.value = one_in(8) ? -1 : one_in(8) ? 40000 : (int)below(5);
        say("semctl %d SETVAL %d %d", slot, number, argument.value);
        result = semctl(id_of(slot), number, SETVAL, argument);
        break;
    case 4:
        for (size_t i = 0; i < COUNT(values); i++)
            values[i] = (unsigned short)below(4);
        if (one_in(8))
            values[0] = 40000;
        say("semctl %d SETALL %d %d", slot, values[0], values[1]);
        argument.array = values;
        result = semctl(id_of(slot), 0, SETALL, argument);
        break;
    case 5:
        say("semctl %d GETALL", slot);
        argument.array = values;
        result = semctl(id_of(slot), 0, GETALL, argument);
        say(" %d %d %d %d", values[0], values[1], values[2], values[3]);
        break;
    case 6:
        say("semctl SEM_INFO");
        argument.info = &info;
        result = semctl(0, 0, one_in(2) ? SEM_INFO : IPC_INFO, argument);
        if (result >= 0)
            say(" %d %d of %d %d %d %d %d", info.semusz, info.semaem, info.semmni, info.semmns, info.semmsl, info.semopm, info.semvmx);
        break;
    default: {
        int which = (int)below(COUNT(all));
        say("semctl %d %s %d", slot, all[which].name, number);
        result = semctl(id_of(slot), number, all[which].command);
        if (all[which].command == GETPID && result > 0)
            result = result == getpid();
    }
    }
    answered(result);
}

// Shared memory.

static char *places[SLOTS];

static void gets_memory(void) {
    static const long sizes[] = {0, 1, 4096, 4097, 8192, 8192, -1};
    int slot = any(), key = some_key(), flags = get_flags() | mode();
    long size = ONE_OF(sizes);
    say("shmget %d key %d %ld %o", slot, key, size, flags);
    got(slot, shmget(key, (size_t)size, flags));
}

static void attaches(void) {
    static const int all[] = {0, 0, 0, SHM_RDONLY, SHM_RDONLY, SHM_EXEC, SHM_REMAP, SHM_RND};
    int slot = any(), place = any(), flags = ONE_OF(all);
    // At one of three places, where only SHM_REMAP may put it if another is there, and beside a page's beginning. What lies beside a
    // place that the kernel chose is its own business.
    uintptr_t at = one_in(4) ? 0x20000000 + 0x10000 * below(3) + (one_in(4) ? 100 : 0) : 0;
    say("shmat %d to %d %o%s", slot, place, flags, at ? " at a place" : "");
    char *result = shmat(id_of(slot), (void *)at, flags);
    if (result == (char *)-1) {
        answered(-1);
        return;
    }
    say(" byte %d", *result);
    if (!(flags & SHM_RDONLY))
        *result = (char)below(100);
    places[place] = result;
    answered(0);
}

static void detaches(void) {
    int place = any();
    say("shmdt %d", place);
    answered(shmdt(places[place] + (one_in(10) ? 1 : 0)));
}

static void controls_memory(void) {
    struct shmid_ds about;
    struct shm_info info;
    int slot = any(), result;
    memset(&about, 0, sizeof about);
    switch (below(7)) {
    case 0:
    case 1:
    case 2:
        say("shmctl %d IPC_STAT", slot);
        result = shmctl(id_of(slot), IPC_STAT, &about);
        if (result == 0) {
            say_rights(&about.shm_perm);
            say(" %zu bytes %lu times, attached %d detached %d changed %d own %d %d", about.shm_segsz, about.shm_nattch, about.shm_atime != 0,
                about.shm_dtime != 0, about.shm_ctime != 0, about.shm_cpid == getpid(), about.shm_lpid == getpid());
        }
        break;
    case 3:
        say("shmctl %d IPC_SET", slot);
        set_rights(&about.shm_perm);
        result = shmctl(id_of(slot), IPC_SET, &about);
        break;
    case 4:
        say("shmctl %d IPC_RMID", slot);
        result = shmctl(id_of(slot), IPC_RMID, 0);
        break;
    case 5: {
        int command = one_in(2) ? SHM_LOCK : SHM_UNLOCK;
        say("shmctl %d lock %d", slot, command);
        result = shmctl(id_of(slot), command, 0);
        break;
    }
    default:
        say("shmctl SHM_INFO");
        result = shmctl(0, SHM_INFO, (struct shmid_ds *)&info);
        if (result >= 0)
            say(" %d segments %lu pages", info.used_ids, info.shm_tot);
    }
    answered(result);
}

// POSIX message queues.

static const char *name(void) {
    static const char *const names[] = {"/a", "/a", "/b", "/b", "/c", "/c", "/", "", "a", "/a/b", "/."};
    return ONE_OF(names);
}

static void opens_queue(void) {
    static const int all[] = {0, O_CREAT, O_CREAT, O_CREAT, O_CREAT | O_EXCL, O_EXCL, O_TRUNC}, ways[] = {O_RDWR, O_RDWR, O_RDONLY, O_WRONLY, 3};
    static const long counts[] = {0, 1, 2, 3, 3, 10, -1}, sizes[] = {0, 1, 2, 3, 10, 11, 40, 8192, -1};
    struct mq_attr about = {.mq_maxmsg = ONE_OF(counts), .mq_msgsize = ONE_OF(sizes), .mq_flags = one_in(2) ? O_NONBLOCK : 0};
    int slot = any(), flags = ONE_OF(all) | ONE_OF(ways) | O_NONBLOCK, rights = mode(), is_usual = one_in(3);
    const char *named = name();
    say("mq_open %d %s %x %o", slot, named, flags, rights);
    if (!is_usual)
        say(" %ld of %ld", about.mq_maxmsg, about.mq_msgsize);
    mqd_t queue = mq_open(named, flags, rights, is_usual ? 0 : &about);
    if (queue >= 0) {
        if (ids[slot] >= 0)
            mq_close(ids[slot]);
        ids[slot] = queue;
    }
    answered(queue < 0 ? -1 : 0);
}

static void closes_queue(void) {
    int slot = any();
    say("mq_close %d", slot);
    answered(mq_close(id_of(slot)));
    ids[slot] = -1;
}

static void unlinks_queue(void) {
    const char *named = name();
    say("mq_unlink %s", named);
    answered(mq_unlink(named));
}

static void sends_to_queue(void) {
    static const int lengths[] = {0, 1, 2, 3, 10, 11, 39};
    int slot = any(), length = ONE_OF(lengths);
    unsigned priority = one_in(20) ? 40000 : below(4);
    say("mq_send %d %d priority %u", slot, length, priority);
    answered(mq_send(id_of(slot), "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMN", (size_t)length, priority));
}

static void receives_from_queue(void) {
    static char bytes[9000];
    static const int lengths[] = {1, 2, 3, 10, 11, 40, 8192, 8192, sizeof bytes};
    unsigned priority = 77;
    int slot = any(), length = ONE_OF(lengths);
    say("mq_receive %d %d", slot, length);
    long result = mq_receive(id_of(slot), bytes, (size_t)length, &priority);
    if (result >= 0) {
        say(" priority %u", priority);
        say_bytes(bytes, result);
    }
    answered(result);
}

static void asks_queue(void) {
    struct mq_attr about = {0}, new = {.mq_flags = one_in(4) ? 1 : O_NONBLOCK};
    int slot = any(), sets = one_in(3);
    say(sets ? "mq_setattr %d %lx" : "mq_getattr %d", slot, new.mq_flags);
    int id = id_of(slot), result = sets ? mq_setattr(id, &new, &about) : mq_getattr(id, &about);
    if (result == 0)
        say(" flags %lx %ld of %ld, now %ld", about.mq_flags, about.mq_maxmsg, about.mq_msgsize, about.mq_curmsgs);
    answered(result);
}

static void wants_notice(void) {
    static const int all[] = {SIGEV_NONE, SIGEV_SIGNAL, SIGEV_SIGNAL, 9};
    struct sigevent event = {.sigev_notify = ONE_OF(all), .sigev_signo = one_in(8) ? 99 : SIGUSR1, .sigev_value.sival_int = 5};
    int slot = any(), forgets = one_in(3);
    say("mq_notify %d", slot);
    if (forgets)
        say(" forgets");
    else
        say(" %d %d", event.sigev_notify, event.sigev_signo);
    answered(mq_notify(id_of(slot), forgets ? 0 : &event));
}

static void looks_for_notice(void) {
    struct timespec now = {0};
    siginfo_t about = {0};
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    int result = sigtimedwait(&set, &about, &now);
    say("sigtimedwait");
    if (result > 0)
        say(" code %d value %d own %d user %d", about.si_code, about.si_value.sival_int, about.si_pid == getpid(), (int)about.si_uid);
    answered(result);
}

static void polls_queue(void) {
    int slot = any();
    struct pollfd one = {ids[slot], POLLIN | POLLOUT, 0};
    int result = poll(&one, 1, 0);
    say("poll %d %x", slot, one.revents);
    answered(result);
}

static void looks_at_queue(void) {
    struct stat s;
    char bytes[200];
    int slot = any(), result = fstat(ids[slot], &s);
    say("fstat %d", slot);
    if (result == 0) {
        long length = pread(ids[slot], bytes, sizeof bytes, 0);
        say(" %o %d:%d size %ld links %d", s.st_mode, (int)s.st_uid, (int)s.st_gid, (long)s.st_size, (int)s.st_nlink);
        // Which process is to hear of it is another number in each.
        if (length >= 0)
            say_bytes(bytes, length > 60 ? 60 : length);
    }
    answered(result);
}

static void (*const queues[])(void) = {
    gets_queue, gets_queue, sends_message, sends_message, sends_message, receives_message, receives_message, controls_queue, controls_queue, becomes,
};
static void (*const semaphores[])(void) = {
    gets_semaphores, gets_semaphores, operates, operates, operates, controls_semaphores, controls_semaphores, controls_semaphores, becomes,
};
static void (*const memory[])(void) = {
    gets_memory, gets_memory, attaches, attaches, detaches, detaches, controls_memory, controls_memory, controls_memory, becomes,
};
static void (*const posix_queues[])(void) = {
    opens_queue, opens_queue, opens_queue, closes_queue, unlinks_queue, sends_to_queue, sends_to_queue, sends_to_queue, receives_from_queue,
    receives_from_queue, asks_queue, wants_notice, looks_for_notice, polls_queue, looks_at_queue, becomes,
};
static const struct {
    void (*const *steps)(void);
    uint32_t count;
} kinds[] = {
    {queues, COUNT(queues)}, {semaphores, COUNT(semaphores)}, {memory, COUNT(memory)}, {posix_queues, COUNT(posix_queues)},
};

int main(int count, char **arguments) {
    long total = begin(count, arguments, &kind);
    sigset_t set;
    if (kind < 0 || (size_t)kind >= COUNT(kinds)) {
        fprintf(stderr, "there is no kind %d\n", kind);
        return 2;
    }
    umask(022);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, 0);
    for (int i = 0; i < SLOTS; i++)
        ids[i] = -1;
    run_steps(kinds[kind].steps, kinds[kind].count, total, 0);
    return 0;
}
