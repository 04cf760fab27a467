// SPDX-License-Identifier: Apache-2.0 OR MIT
// Random sequences of calls (sequences.h) on keys and keyrings, by four processes of two users and the superuser in a user namespace
// of their own. Keys are told by the order in which they were seen first.
#include "sequences.h"
#include <fcntl.h>
#include <grp.h>
#include <linux/keyctl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { SLOTS = 4, SEEN = 400, ROUND = 80 };

typedef int32_t key;

// What all of them share: the state of the generator, so that the order of calls is one, and the keys that were seen.
static struct {
    uint64_t state;
    key seen[SEEN];
    int seen_count;
} *shared;
static int ends[SLOTS][2];

static int numbered(key serial) {
    for (int i = 0; i < shared->seen_count; i++)
        if (shared->seen[i] == serial)
            return i;
    if (shared->seen_count == SEEN)
        return -1;
    shared->seen[shared->seen_count] = serial;
    return shared->seen_count++;
}

static long ctl(long operation, long a, long b, long c, long d) {
    return syscall(SYS_keyctl, operation, a, b, c, d);
}

// A call's answer that is a key.
static void answered_key(long result) {
    if (result > 0)
        say(" = key %d\n", numbered((key)result));
    else
        answered(result);
}

// One that was seen, most often of the last ones, one of the special names, or none.
static long some_key(void) {
    static const int special[] = {KEY_SPEC_THREAD_KEYRING, KEY_SPEC_PROCESS_KEYRING, KEY_SPEC_SESSION_KEYRING, KEY_SPEC_SESSION_KEYRING, KEY_SPEC_USER_KEYRING, KEY_SPEC_USER_SESSION_KEYRING, KEY_SPEC_GROUP_KEYRING, KEY_SPEC_REQKEY_AUTH_KEY, KEY_SPEC_REQUESTOR_KEYRING, -9, 0, 1};
    int number = (int)below(12), which = ONE_OF(special), is_special = one_in(3);
    if (is_special || shared->seen_count == 0) {
        say(" special %d", which);
        return which;
    }
    number = shared->seen_count - 1 - number;
    if (number < 0)
        number = 0;
    say(" key %d", number);
    return shared->seen[number];
}

static long some_ring(void) {
    static const int special[] = {KEY_SPEC_THREAD_KEYRING, KEY_SPEC_PROCESS_KEYRING, KEY_SPEC_SESSION_KEYRING, KEY_SPEC_SESSION_KEYRING, KEY_SPEC_USER_KEYRING, KEY_SPEC_USER_SESSION_KEYRING};
    int which = ONE_OF(special);
    if (one_in(3))
        return some_key();
    say(" ring %d", which);
    return which;
}

static const char *some_type(void) {
    static const char *const all[] = {"user", "user", "user", "logon", "keyring", "keyring", "nothing", ".user", "", "a type of more than thirty-two bytes"};
    const char *type = ONE_OF(all);
    say(" '%s'", type);
    return type;
}

static const char *some_name(void) {
    static const char *const all[] = {"a", "a", "b", "b", "x:y", "x:", ":y", "", ".c", "_ses"};
    const char *name = ONE_OF(all);
    say(" '%s'", name);
    return name;
}

static void adds(void) {
    static char bytes[40000];
    static const size_t sizes[] = {0, 1, 5, 5, 32767, 32768};
    say("add");
    const char *type = some_type(), *name = some_name();
    size_t size = !strcmp(type, "keyring") && !one_in(6) ? 0 : ONE_OF(sizes);
    memset(bytes, 'a' + (int)below(26), sizeof bytes);
    say(" %zu", size);
    long ring = some_ring();
    answered_key(syscall(SYS_add_key, type, name, size ? bytes : 0, size, ring));
}

static void requests(void) {
    say("request");
    const char *type = some_type(), *name = some_name();
    long ring = one_in(2) ? 0 : some_ring();
    answered_key(syscall(SYS_request_key, type, name, 0, ring));
}

static void names(void) {
    int creates = (int)below(2);
    say("get %d", creates);
    long id = some_key();
    answered_key(ctl(KEYCTL_GET_KEYRING_ID, id, creates, 0, 0));
}

static void joins(void) {
    static const char *const all[] = {0, 0, "s", "t", "", ".u"};
    const char *name = ONE_OF(all);
    say("join %s", name ? name : "(none)");
    answered_key(ctl(KEYCTL_JOIN_SESSION_KEYRING, (long)name, 0, 0, 0));
    // What was in the old one alone is taken away when no processor can still see the old credentials.
    usleep(60000);
}

static void describes(void) {
    char text[200];
    say("describe");
    long result = ctl(KEYCTL_DESCRIBE, some_key(), (long)text, sizeof text, 0);
    // The names of keyrings of users and sessions hold their numbers.
    if (result > 0)
        say(" %s", text);
    answered(result);
}

static int by_number(const void *a, const void *b) {
    return *(const int *)a - *(const int *)b;
}

static void reads(void) {
    char text[400];
    say("read");
    long id = some_key(), size = one_in(6) ? (long)below(20) : (long)sizeof text;
    char kind[200] = "";
    ctl(KEYCTL_DESCRIBE, id, (long)kind, sizeof kind, 0);
    say(" %ld", size);
    long result = ctl(KEYCTL_READ, id, (long)text, size, 0);
    if (result > 0 && result <= size && !strncmp(kind, "keyring", 7)) {
        int numbers[100], count = (int)(result / 4);
        for (int i = 0; i < count; i++)
            numbers[i] = numbered(((key *)text)[i]);
        qsort(numbers, (size_t)count, sizeof *numbers, by_number);
        for (int i = 0; i < count; i++)
            say(" %d", numbers[i]);
    } else if (result > 0 && result <= size) {
        say_bytes(text, result > 4 ? 4 : result);
    }
    answered(result);
}

static void updates(void) {
    char bytes[100];
    memset(bytes, 'A' + (int)below(26), sizeof bytes);
    long size = one_in(6) ? 0 : (long)below(100);
    say("update");
    long id = some_key();
    say(" %ld", size);
    answered(ctl(KEYCTL_UPDATE, id, size ? (long)bytes : 0, size, 0));
}

static void ends_one(void) {
    static const int all[] = {KEYCTL_REVOKE, KEYCTL_INVALIDATE, KEYCTL_CLEAR, KEYCTL_CLEAR};
    int which = ONE_OF(all);
    say("end %d", which);
    answered(ctl(which, some_key(), 0, 0, 0));
    // Linux takes them away by and by.
    usleep(4000);
}

static void owns(void) {
    static const long ids[] = {0, 1000, 1001, -1, 5};
    long uid = ONE_OF(ids), gid = ONE_OF(ids);
    say("chown %ld %ld", uid, gid);
    answered(ctl(KEYCTL_CHOWN, some_key(), uid, gid, 0));
}

static void permits(void) {
    static const uint32_t all[] = {0x3f3f3f3f, 0x3f000000, 0x3f010000, 0x3f3f0000, 0x003f3f3f, 0x1f1f1f1f, 0x3f030303, 0x40000000, 0, 0x3b3b0000};
    uint32_t bits = ONE_OF(all);
    say("setperm %x", bits);
    answered(ctl(KEYCTL_SETPERM, some_key(), bits, 0, 0));
}

static void links(void) {
    int links = (int)below(3);
    say(links ? "link" : "unlink");
    long id = some_key(), ring = some_ring();
    answered(ctl(links ? KEYCTL_LINK : KEYCTL_UNLINK, id, ring, 0, 0));
    usleep(4000);
}

static void moves(void) {
    long flags = one_in(8) ? 2 : below(2);
    say("move");
    long id = some_key(), from = some_ring(), to = some_ring();
    say(" %ld", flags);
    answered(ctl(KEYCTL_MOVE, id, from, to, flags));
}

static void searches(void) {
    say("search");
    long ring = some_ring();
    const char *type = some_type(), *name = some_name();
    long to = one_in(2) ? 0 : some_ring();
    answered_key(ctl(KEYCTL_SEARCH, ring, (long)type, (long)name, to));
}

static void settles(void) {
    switch (below(6)) {
    case 0: {
        int which = (int)below(10) - 1;
        say("default ring %d", which);
        answered(ctl(KEYCTL_SET_REQKEY_KEYRING, which, 0, 0, 0));
        return;
    }
    case 1: say("timeout"); { long id = some_key(); answered(ctl(KEYCTL_SET_TIMEOUT, id, one_in(2) ? 0 : 1000, 0, 0)); } return;
    case 2: {
        static const int uids[] = {-1, 0, 1000, 1001};
        int uid = ONE_OF(uids);
        say("persistent %d", uid);
        long ring = some_ring();
        answered_key(ctl(KEYCTL_GET_PERSISTENT, uid, ring, 0, 0));
        return;
    }
    case 3: say("reject"); { long id = some_key(); answered(ctl(KEYCTL_REJECT, id, 10, ENOKEY, 0)); } return;
    case 4: say("restrict"); { long id = some_key(); int is_user = one_in(2); answered(ctl(KEYCTL_RESTRICT_KEYRING, id, is_user ? (long)"user" : 0, is_user ? (long)"x" : 0, 0)); } return;
    default: {
        char label[100];
        say("security");
        long id = some_key();
        answered(ctl(KEYCTL_GET_SECURITY, id, (long)label, sizeof label, 0));
    }
    }
}

static void (*const steps[])(void) = {
    adds, adds, adds, adds, requests, names, joins, describes, describes, reads, reads, updates, ends_one, owns, permits, permits, links, links, links, moves, searches, settles,
};

static void serve(int own) {
    char order;
    while (read(ends[own][0], &order, 1) == 1) {
        state = shared->state;
        steps[below(COUNT(steps))]();
        fflush(stdout);
        shared->state = state;
        if (write(ends[own][0], "d", 1) != 1)
            break;
    }
    _exit(0);
}

static void writes(const char *path, const char *text) {
    int file = open(path, O_WRONLY);
    if (file < 0 || write(file, text, strlen(text)) != (long)strlen(text)) {
        perror(path);
        exit(2);
    }
    close(file);
}

int main(int count, char **arguments) {
    static const uid_t users[SLOTS] = {0, 1000, 1000, 1001};
    int kind;
    long total = begin(count, arguments, &kind);
    shared = mmap(0, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (long done = 0; done < total; done += ROUND) {
        fflush(stdout);
        memset(shared, 0, sizeof *shared);
        shared->state = state;
        // A namespace of users has keyrings of its users' own, which go with it.
        int ready[2], mapped[2];
        if (pipe(ready) || pipe(mapped))
            return 2;
        pid_t director = fork();
        if (director) {
            char path[64], byte;
            if (read(ready[0], &byte, 1) != 1)
                return 2;
            snprintf(path, sizeof path, "/proc/%d/uid_map", director);
            writes(path, "0 0 2000");
            snprintf(path, sizeof path, "/proc/%d/gid_map", director);
            writes(path, "0 0 2000");
            if (write(mapped[1], "m", 1) != 1 || waitpid(director, 0, 0) < 0)
                return 2;
            for (int i = 0; i < 2; i++) {
                close(ready[i]);
                close(mapped[i]);
            }
            state = shared->state + 977;
            continue;
        }
        char byte;
        if (unshare(CLONE_NEWUSER) || write(ready[1], "r", 1) != 1 || read(mapped[0], &byte, 1) != 1)
            _exit(2);
        for (int slot = 0; slot < SLOTS; slot++) {
            if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends[slot]))
                _exit(2);
            if (fork() == 0) {
                ctl(KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0);
                if (setgroups(0, 0) || setresgid(users[slot], users[slot], users[slot]) || setresuid(users[slot], users[slot], users[slot]))
                    _exit(2);
                // The session is its user's.
                ctl(KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0);
                serve(slot);
            }
        }
        for (int step = 0; step < ROUND; step++) {
            state = shared->state;
            int slot = (int)below(SLOTS);
            shared->state = state;
            say("%ld %d ", done + step, slot);
            fflush(stdout);
            if (write(ends[slot][1], "s", 1) != 1 || read(ends[slot][1], &byte, 1) != 1)
                _exit(2);
        }
        fflush(stdout);
        _exit(0);
    }
    return 0;
}
