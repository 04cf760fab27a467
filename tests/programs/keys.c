// SPDX-License-Identifier: Apache-2.0 OR MIT
// Keys and keyrings (keyrings(7)): types, permissions, links, searches, what threads and programs inherit, quotas, and who asks for too
// much. Passes on Linux.
#define _GNU_SOURCE
#include <linux/keyctl.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

#define ctl(...) ((long)syscall(SYS_keyctl, __VA_ARGS__))
#define FAILS(call, error) ((call) == -1 && errno == (error))
#define SES KEY_SPEC_SESSION_KEYRING
#define ANYBODY 0x3f3f3f3f

static long add(const char *type, const char *name, const void *data, size_t length, long ring)
{
    return syscall(SYS_add_key, type, name, data, length, ring);
}

static long text(const char *name, const char *data, long ring)
{
    return add("user", name, data, strlen(data), ring);
}

static long ring(const char *name, long in)
{
    return add("keyring", name, NULL, 0, in);
}

static long request(const char *type, const char *name, const char *info, long in)
{
    return syscall(SYS_request_key, type, name, info, in);
}

static int in_child(void (*child)(void))
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        child();
        fflush(stdout);
        _exit(0);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

static int contains(const char *path, const char *what)
{
    static char buffer[1 << 20];
    FILE *file = fopen(path, "r");
    if (!file)
        return 0;
    size_t length = fread(buffer, 1, sizeof buffer - 1, file);
    buffer[length] = 0;
    fclose(file);
    return strstr(buffer, what) != NULL;
}

static void arguments(void)
{
    char long_type[33], long_name[5000];
    memset(long_type, 't', 32), long_type[32] = 0;
    memset(long_name, 'n', 4999), long_name[4999] = 0;
    CHECK(FAILS(add(NULL, "a", "x", 1, SES), EFAULT) && FAILS(add("", "a", "x", 1, SES), EINVAL));
    CHECK(FAILS(add(long_type, "a", "x", 1, SES), EINVAL) && FAILS(add(".type", "a", "x", 1, SES), EPERM));
    CHECK(FAILS(text("", "x", SES), EINVAL) && FAILS(add("user", NULL, "x", 1, SES), EINVAL) && FAILS(text(long_name, "x", SES), EINVAL));
    CHECK(FAILS(add("user", "a", NULL, 1, SES), EFAULT) && FAILS(add("user", "a", "x", 0, SES), EINVAL) && FAILS(add("user", "a", "x", 1 << 20, SES), EINVAL));
    CHECK(FAILS(add("nosuch", "a", "x", 1, SES), ENODEV) && FAILS(add("keyring", "a", "x", 1, SES), EINVAL) && FAILS(ring(".a", SES), EPERM));
    CHECK(FAILS(add("logon", "a", "x", 1, SES), EINVAL) && FAILS(add("logon", ":a", "x", 1, SES), EINVAL));
    CHECK(FAILS(text("a", "x", 0), EINVAL) && FAILS(text("a", "x", -6), EINVAL) && FAILS(text("a", "x", -9), EINVAL) && FAILS(text("a", "x", -7), ENOKEY));
    CHECK(FAILS(text("a", "x", 1), ENOKEY) && FAILS(add("nosuch", "a", "x", 1, 1), ENOKEY));
    long key = text("a", "x", SES);
    CHECK(key > 0 && FAILS(text("b", "x", key), ENOTDIR) && FAILS(ctl(KEYCTL_LINK, key, key), ENOTDIR));
    CHECK(FAILS(ctl(99), EOPNOTSUPP) && FAILS(ctl(-1), EOPNOTSUPP) && FAILS(ctl(KEYCTL_SETPERM, key, ~0), EINVAL));
    CHECK(FAILS(ctl(KEYCTL_UPDATE, key, "x", 4097), EINVAL) && FAILS(ctl(KEYCTL_UPDATE, key, "", 0), EINVAL) && FAILS(ctl(KEYCTL_UPDATE, SES, "", 0), EOPNOTSUPP));
    CHECK(FAILS(ctl(KEYCTL_INSTANTIATE, key, "x", 1, 0), EPERM) && FAILS(ctl(KEYCTL_NEGATE, key, 1, 0), EPERM) && FAILS(ctl(KEYCTL_REJECT, key, 1, 0, 0), EINVAL));
    CHECK(FAILS(ctl(KEYCTL_REJECT, key, 1, 4095, 0), EINVAL) && FAILS(ctl(KEYCTL_REJECT, key, 1, EKEYREJECTED, 0), EPERM));
    CHECK(ctl(KEYCTL_ASSUME_AUTHORITY, 0) == 0 && FAILS(ctl(KEYCTL_ASSUME_AUTHORITY, key), ENOKEY) && FAILS(ctl(KEYCTL_ASSUME_AUTHORITY, -3), EINVAL));
    unsigned char can[4] = {9, 9, 9, 9};
    CHECK(ctl(KEYCTL_CAPABILITIES, can, 4) == 2 && (can[0] & 0xe3) == 0xe3 && can[1] & 1 && can[2] == 0 && can[3] == 0);
    CHECK(FAILS(request("nosuch", "a", NULL, 0), ENOKEY) && FAILS(request("user", NULL, NULL, 0), EFAULT));
    CHECK(FAILS(ctl(KEYCTL_MOVE, key, SES, SES, 2), EINVAL) && FAILS(ctl(KEYCTL_SET_REQKEY_KEYRING, 6), EINVAL) && FAILS(ctl(KEYCTL_SET_REQKEY_KEYRING, 8), EINVAL));
}

static void reading(void)
{
    char buffer[64];
    long key = text("name", "secret", SES);
    CHECK(key > 0 && ctl(KEYCTL_READ, key, NULL, 0) == 6 && ctl(KEYCTL_READ, key, buffer, sizeof buffer) == 6 && !memcmp(buffer, "secret", 6));
    memset(buffer, 'x', sizeof buffer);
    CHECK(ctl(KEYCTL_READ, key, buffer, 3) == 6 && buffer[0] == 'x');
    CHECK(FAILS(ctl(KEYCTL_READ, key, (char *)8, 6), EFAULT));
    CHECK(text("name", "other", SES) == key && ctl(KEYCTL_READ, key, buffer, sizeof buffer) == 5);
    CHECK(ctl(KEYCTL_UPDATE, key, "third!!", 7) == 0 && ctl(KEYCTL_READ, key, buffer, sizeof buffer) == 7 && !memcmp(buffer, "third!!", 7));
    long length = ctl(KEYCTL_DESCRIBE, key, buffer, sizeof buffer);
    CHECK(length == (long)strlen(buffer) + 1 && !strcmp(buffer, "user;0;0;3f010000;name"));
    CHECK(ctl(KEYCTL_DESCRIBE, key, buffer, 3) == length && ctl(KEYCTL_GET_SECURITY, key, buffer, 64) >= 1);
    long secret = add("logon", "me:pass", "word", 4, SES);
    CHECK(secret > 0 && FAILS(ctl(KEYCTL_READ, secret, buffer, 64), EOPNOTSUPP));
    long rings[2] = {ring("one", SES), 0};
    CHECK(rings[0] > 0 && ctl(KEYCTL_READ, rings[0], NULL, 0) == 0 && ctl(KEYCTL_LINK, key, rings[0]) == 0 && ctl(KEYCTL_LINK, secret, rings[0]) == 0);
    int serials[2] = {0, 0};
    CHECK(ctl(KEYCTL_READ, rings[0], serials, 4) == 8 && ctl(KEYCTL_READ, rings[0], serials, 8) == 8);
    CHECK((serials[0] == key && serials[1] == secret) || (serials[1] == key && serials[0] == secret));
    // A keyring of the name takes the place of one that is there; a key keeps its number.
    long again = ring("one", SES);
    CHECK(again > 0 && again != rings[0] && ctl(KEYCTL_READ, key, NULL, 0) == 7);
    CHECK(ctl(KEYCTL_CLEAR, again) == 0 && FAILS(ctl(KEYCTL_CLEAR, key), ENOTDIR) && FAILS(ctl(KEYCTL_UNLINK, key, again), ENOENT));
    CHECK(contains("/proc/keys", " user      name: 7\n") && contains("/proc/keys", " logon     me:pass: 4\n") && contains("/proc/keys", " keyring   one: empty\n"));
    CHECK(contains("/proc/key-users", "/1000000 ") && ctl(KEYCTL_UNLINK, key, SES) == 0);
}

static void searching(void)
{
    long outer = ring("outer", SES), inner = ring("inner", outer), key = text("deep", "x", inner);
    CHECK(outer > 0 && inner > 0 && key > 0);
    CHECK(ctl(KEYCTL_SEARCH, outer, "user", "deep", 0) == key && FAILS(ctl(KEYCTL_SEARCH, outer, "user", "none", 0), ENOKEY) && FAILS(ctl(KEYCTL_SEARCH, outer, "nosuch", "deep", 0), ENOKEY));
    CHECK(FAILS(ctl(KEYCTL_SEARCH, key, "user", "deep", 0), ENOTDIR) && FAILS(ctl(KEYCTL_SEARCH, KEY_SPEC_THREAD_KEYRING, "user", "deep", 0), ENOKEY));
    CHECK(request("user", "deep", NULL, 0) == key && FAILS(request("user", "none", NULL, 0), ENOKEY));
    CHECK(request("user", "deep", NULL, outer) == key && ctl(KEYCTL_UNLINK, key, outer) == 0);
    // A keyring that may not be searched hides what is in it, and what is in it is not possessed.
    CHECK(ctl(KEYCTL_SETPERM, inner, ANYBODY & ~0x08080808) == 0 && FAILS(request("user", "deep", NULL, 0), ENOKEY) && FAILS(ctl(KEYCTL_READ, key, NULL, 0), EACCES));
    CHECK(ctl(KEYCTL_SETPERM, inner, ANYBODY) == 0 && ctl(KEYCTL_SETPERM, key, 0x37373737) == 0);
    CHECK(FAILS(ctl(KEYCTL_SEARCH, outer, "user", "deep", 0), EACCES) && FAILS(request("user", "deep", NULL, 0), EACCES));
    // Nobody is asked for a key; but that it was asked for is remembered.
    long last = ring("last", SES);
    CHECK(FAILS(request("user", "asked", NULL, last), ENOKEY) && ctl(KEYCTL_READ, last, NULL, 0) == 0);
    CHECK(request("user", "asked", "info", last) == -1 && ctl(KEYCTL_READ, last, NULL, 0) == 4);
    int negative;
    CHECK(ctl(KEYCTL_READ, last, &negative, 4) == 4 && FAILS(ctl(KEYCTL_READ, negative, NULL, 0), ENOKEY) && FAILS(request("user", "asked", "info", last), ENOKEY));
    CHECK(text("asked", "now", last) == negative && request("user", "asked", NULL, 0) == negative && FAILS(request("keyring", "none", "info", last), EPERM));
}

static void cycles(void)
{
    long rings[9];
    for (int i = 0; i < 9; i++) {
        char name[] = {'r', '0' + i, 0};
        CHECK((rings[i] = ring(name, SES)) > 0);
    }
    CHECK(FAILS(ctl(KEYCTL_LINK, rings[0], rings[0]), EDEADLK));
    for (int i = 0; i < 7; i++)
        CHECK(ctl(KEYCTL_LINK, rings[i + 1], rings[i]) == 0);
    CHECK(FAILS(ctl(KEYCTL_LINK, rings[0], rings[6]), EDEADLK) && FAILS(ctl(KEYCTL_LINK, rings[0], rings[8]), ELOOP));
    long key = text("moved", "x", rings[7]);
    CHECK(ctl(KEYCTL_MOVE, key, rings[7], rings[8], 0) == 0 && FAILS(ctl(KEYCTL_MOVE, key, rings[7], rings[8], 0), ENOENT));
    CHECK(text("moved", "y", rings[7]) > 0 && FAILS(ctl(KEYCTL_MOVE, key, rings[8], rings[7], KEYCTL_MOVE_EXCL), EEXIST) && ctl(KEYCTL_MOVE, key, rings[8], rings[7], 0) == 0);
    CHECK(ctl(KEYCTL_RESTRICT_KEYRING, rings[7], NULL, NULL) == 0 && FAILS(ctl(KEYCTL_RESTRICT_KEYRING, rings[7], NULL, NULL), EEXIST) && FAILS(text("more", "x", rings[7]), EPERM));
    CHECK(FAILS(ctl(KEYCTL_RESTRICT_KEYRING, rings[8], "user", "x"), ENOENT) && FAILS(ctl(KEYCTL_RESTRICT_KEYRING, rings[8], "nosuch", "x"), ENOKEY) && FAILS(ctl(KEYCTL_RESTRICT_KEYRING, rings[8], "user", NULL), EINVAL));
}

static void ends(void)
{
    long revoked = text("revoked", "x", SES), invalid = text("invalid", "x", SES), expires = text("expires", "x", SES), box = ring("box", SES);
    CHECK(text("inside", "x", box) > 0 && ctl(KEYCTL_REVOKE, box) == 0 && FAILS(text("inside", "x", box), EKEYREVOKED) && FAILS(ctl(KEYCTL_READ, box, NULL, 0), EKEYREVOKED));
    CHECK(ctl(KEYCTL_REVOKE, revoked) == 0 && FAILS(ctl(KEYCTL_READ, revoked, NULL, 0), EKEYREVOKED) && FAILS(ctl(KEYCTL_REVOKE, revoked), EKEYREVOKED) && FAILS(request("user", "revoked", NULL, 0), EKEYREVOKED));
    long anew = text("revoked", "y", SES);
    CHECK(anew > 0 && anew != revoked && ctl(KEYCTL_INVALIDATE, invalid) == 0 && request("user", "invalid", NULL, 0) == -1 && (errno == ENOKEY || errno == EKEYREVOKED));
    CHECK(ctl(KEYCTL_SET_TIMEOUT, expires, 1) == 0 && contains("/proc/keys", " user      expires: 1\n"));
    while (ctl(KEYCTL_DESCRIBE, expires, NULL, 0) > 0)
        sched_yield();
    CHECK(errno == EKEYEXPIRED && FAILS(ctl(KEYCTL_READ, expires, NULL, 0), EKEYEXPIRED) && FAILS(ctl(KEYCTL_SEARCH, SES, "user", "expires", 0), EKEYEXPIRED) && FAILS(request("user", "expires", NULL, 0), ENOKEY));
    // Linux frees it a while later.
    CHECK(ctl(KEYCTL_UNLINK, expires, SES) == 0 && ctl(KEYCTL_UNLINK, expires, SES) == -1 && (errno == ENOKEY || errno == ENOENT));
}

static long shared;

static void another_user(void)
{
    CHECK(ctl(KEYCTL_JOIN_SESSION_KEYRING, NULL) > 0 && setresgid(1000, 1000, 1000) == 0 && setresuid(1000, 1000, 1000) == 0);
    // Root's key: not a thing of it, until others may.
    CHECK(FAILS(ctl(KEYCTL_DESCRIBE, shared, NULL, 0), EACCES) && FAILS(ctl(KEYCTL_READ, shared, NULL, 0), EACCES));
    CHECK(!contains("/proc/keys", " user      shared:"));
    char buffer[64];
    long user = ctl(KEYCTL_GET_KEYRING_ID, KEY_SPEC_USER_KEYRING, 0);
    CHECK(user > 0 && ctl(KEYCTL_DESCRIBE, user, buffer, 64) > 0 && !strcmp(buffer, "keyring;1000;65534;1f3f0000;_uid.1000"));
    long key = text("own", "x", KEY_SPEC_PROCESS_KEYRING);
    CHECK(key > 0 && FAILS(ctl(KEYCTL_CHOWN, key, 0, -1), EACCES) && FAILS(ctl(KEYCTL_CHOWN, key, -1, 0), EACCES) && ctl(KEYCTL_CHOWN, key, 1000, 1000) == 0);
    CHECK(FAILS(ctl(KEYCTL_GET_PERSISTENT, 0, KEY_SPEC_PROCESS_KEYRING), EPERM));
    long persistent = ctl(KEYCTL_GET_PERSISTENT, -1, KEY_SPEC_PROCESS_KEYRING);
    CHECK(persistent > 0 && ctl(KEYCTL_GET_PERSISTENT, 1000, KEY_SPEC_PROCESS_KEYRING) == persistent && ctl(KEYCTL_DESCRIBE, persistent, buffer, 64) > 0);
    CHECK(!strcmp(buffer, "keyring;1000;65534;1f030000;_persistent.1000"));
    // So many keys, so many bytes.
    char name[16], large[20000];
    memset(large, 'l', sizeof large);
    CHECK(FAILS(add("user", "large", large, sizeof large, KEY_SPEC_PROCESS_KEYRING), EDQUOT));
    int made = 0;
    while (sprintf(name, "%d", made), text(name, "x", KEY_SPEC_PROCESS_KEYRING) > 0)
        made++;
    CHECK(errno == EDQUOT && made > 150 && made < 200 && ctl(KEYCTL_CLEAR, KEY_SPEC_PROCESS_KEYRING) == 0);
    // Linux frees them a while later.
    while (text("fits", "again", KEY_SPEC_PROCESS_KEYRING) == -1)
        CHECK(errno == EDQUOT && sched_yield() == 0);
    CHECK(contains("/proc/key-users", "/200 "));
}

static void others(void)
{
    CHECK((shared = text("shared", "for some", SES)) > 0);
    CHECK(in_child(another_user));
    CHECK(ctl(KEYCTL_CHOWN, shared, 0, 77) == 0 && ctl(KEYCTL_CHOWN, shared, -1, -1) == 0);
    char buffer[64];
    CHECK(ctl(KEYCTL_DESCRIBE, shared, buffer, 64) > 0 && !strcmp(buffer, "user;0;77;3f010000;shared"));
    CHECK(ctl(KEYCTL_SETPERM, shared, 0x3f010002) == 0);
}

static void *in_thread(void *arg)
{
    long own = ctl(KEYCTL_GET_KEYRING_ID, KEY_SPEC_THREAD_KEYRING, 0);
    CHECK(own > 0 && own != *(long *)arg);
    CHECK(ctl(KEYCTL_GET_KEYRING_ID, KEY_SPEC_PROCESS_KEYRING, 0) == ((long *)arg)[1] && ctl(KEYCTL_GET_KEYRING_ID, SES, 0) == ((long *)arg)[2]);
    return NULL;
}

static void child_of_fork(void)
{
    CHECK(FAILS(ctl(KEYCTL_GET_KEYRING_ID, KEY_SPEC_THREAD_KEYRING, 0), ENOKEY) && FAILS(ctl(KEYCTL_GET_KEYRING_ID, KEY_SPEC_PROCESS_KEYRING, 0), ENOKEY));
    CHECK(ctl(KEYCTL_GET_KEYRING_ID, SES, 0) == shared);
}

static void run_again(void)
{
    char session[32];
    CHECK(ctl(KEYCTL_GET_KEYRING_ID, KEY_SPEC_PROCESS_KEYRING, 1) > 0);
    sprintf(session, "%ld", shared);
    execl("/proc/self/exe", "keys", session, NULL);
    CHECK(!"it runs");
}

static void grandchild(void)
{
    long session = ctl(KEYCTL_JOIN_SESSION_KEYRING, NULL);
    CHECK(session > 0 && text("given", "x", SES) > 0 && ctl(KEYCTL_SESSION_TO_PARENT) == 0);
}

static void parent_is_given_a_session(void)
{
    long before = ctl(KEYCTL_GET_KEYRING_ID, SES, 0);
    CHECK(before == shared && in_child(grandchild));
    CHECK(ctl(KEYCTL_GET_KEYRING_ID, SES, 0) != before && request("user", "given", NULL, 0) > 0);
}

static void inheritance(void)
{
    long rings[] = {
        ctl(KEYCTL_GET_KEYRING_ID, KEY_SPEC_THREAD_KEYRING, 1),
        ctl(KEYCTL_GET_KEYRING_ID, KEY_SPEC_PROCESS_KEYRING, 1),
        ctl(KEYCTL_GET_KEYRING_ID, SES, 0),
    };
    pthread_t thread;
    CHECK(rings[0] > 0 && rings[1] > 0 && rings[2] > 0 && pthread_create(&thread, NULL, in_thread, rings) == 0 && pthread_join(thread, NULL) == 0);
    shared = rings[2];
    CHECK(in_child(child_of_fork) && in_child(run_again) && in_child(parent_is_given_a_session));
    CHECK(ctl(KEYCTL_GET_KEYRING_ID, SES, 0) == rings[2]);
    // The thread's keyring belongs to whom its files would.
    char buffer[64];
    CHECK(ctl(KEYCTL_SETPERM, rings[0], ANYBODY) == 0 && syscall(SYS_setresuid, -1, 1000, -1) == 0 && ctl(KEYCTL_DESCRIBE, rings[0], buffer, 64) > 0);
    CHECK(!strncmp(buffer, "keyring;1000;0;", 15) && syscall(SYS_setresuid, -1, 0, -1) == 0);
    CHECK(ctl(KEYCTL_SET_REQKEY_KEYRING, KEY_REQKEY_DEFL_SESSION_KEYRING) == 0 && ctl(KEYCTL_SET_REQKEY_KEYRING, KEY_REQKEY_DEFL_NO_CHANGE) == 3);
    long named = ctl(KEYCTL_JOIN_SESSION_KEYRING, "named");
    CHECK(named > 0 && ctl(KEYCTL_SETPERM, named, ANYBODY) == 0 && ctl(KEYCTL_JOIN_SESSION_KEYRING, NULL) != named && ctl(KEYCTL_JOIN_SESSION_KEYRING, ".x") == -1 && errno == EPERM);
}

static void in_user_namespace(void)
{
    CHECK(unshare(CLONE_NEWUSER) == 0);
    // It has keyrings of users and names of its own.
    long user = ctl(KEYCTL_GET_KEYRING_ID, KEY_SPEC_USER_KEYRING, 0);
    CHECK(user > 0 && user != shared);
}

static void large(void)
{
    // Keyrings in each other, as many as there may be, and all gone at once; then as many beside each other.
    long first = ring("first", SES), last = first;
    for (int i = 0; i < 20000; i++) {
        long next = ring("next", SES);
        CHECK(next > 0 && ctl(KEYCTL_SETPERM, next, ANYBODY) == 0 && ctl(KEYCTL_LINK, next, last) == 0);
        last = next;
    }
    CHECK(FAILS(ctl(KEYCTL_LINK, first, last), ELOOP) && ctl(KEYCTL_UNLINK, first, SES) == 0 && ctl(KEYCTL_UNLINK, last, SES) == 0);
    long many = ring("many", SES);
    char name[16];
    int made = 0;
    while (made < 100000 && (sprintf(name, "%d", made), text(name, "x", many)) > 0)
        made++;
    CHECK(made == 100000 || errno == ENOMEM || errno == EDQUOT);
    CHECK(made > 10000 && ctl(KEYCTL_READ, many, NULL, 0) == 4L * made && request("user", "9999", NULL, 0) > 0);
    CHECK(ctl(KEYCTL_CLEAR, many) == 0 && ctl(KEYCTL_UNLINK, many, SES) == 0);
}

int main(int argc, char **argv)
{
    if (argc == 2) {
        CHECK(FAILS(ctl(KEYCTL_GET_KEYRING_ID, KEY_SPEC_PROCESS_KEYRING, 0), ENOKEY) && ctl(KEYCTL_GET_KEYRING_ID, SES, 0) == atol(argv[1]));
        return 0;
    }
    CHECK(ctl(KEYCTL_JOIN_SESSION_KEYRING, NULL) > 0);
    arguments();
    reading();
    searching();
    cycles();
    ends();
    others();
    inheritance();
    shared = ctl(KEYCTL_GET_KEYRING_ID, KEY_SPEC_USER_KEYRING, 0);
    CHECK(in_child(in_user_namespace));
    large();
    puts("all key tests passed");
    return 0;
}
