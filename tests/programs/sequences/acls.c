// SPDX-License-Identifier: Apache-2.0 OR MIT
// Random sequences of calls (sequences.h) on access control lists (acl(5)) of a few files and directories, by root and three users:
// set, read, taken away, inherited, changed by chmod(2), and asked by open, access and the like.
#include "sequences.h"
#include <fcntl.h>
#include <grp.h>
#include <sys/stat.h>
#include <sys/xattr.h>

enum { VERSION = 2, MOST = 8 };
enum { USER_OBJ = 1, USER = 2, GROUP_OBJ = 4, GROUP = 8, MASK = 16, OTHER = 32 };

typedef struct {
    uint16_t tag, permissions;
    uint32_t id;
} Entry;

typedef struct {
    uint32_t version;
    Entry entries[MOST];
} List;

static const char *const NAMES[] = {"a", "b", "d", "d/a", "d/b", "d/d", "d/d/a", "l"};
static const char *const KINDS[] = {"system.posix_acl_access", "system.posix_acl_access", "system.posix_acl_default", "system.posix_acl_default"};
static int user;

static const char *name(void) {
    return ONE_OF(NAMES);
}

static void say_list(const List *list, long size) {
    say(" v%u", list->version);
    for (long i = 0; i < (size - 4) / 8; i++) {
        const Entry *entry = &list->entries[i];
        say(" %x:%d:%x", entry->tag, entry->tag == USER || entry->tag == GROUP ? (int)entry->id : -1, entry->permissions);
    }
}

static void becomes(void) {
    static const uint32_t users[] = {0, 0, 1000, 1001, 1002};
    static const gid_t groups[] = {1000, 1001, 1002};
    uint32_t to = ONE_OF(users), group = one_in(3) ? 1000 : to, count = below(3);
    gid_t others[2] = {ONE_OF(groups), ONE_OF(groups)};
    if (seteuid(0) || setegid(0) || setgroups(count, others) || setegid(group))
        abort();
    user = (int)to;
    say("user %u group %u", to, group);
    for (uint32_t i = 0; i < count; i++)
        say(" +%u", others[i]);
    answered(seteuid(to));
}

// Mostly a list that is right; else one with something missing, twice there, out of order or of another size.
static long makes_list(List *list) {
    int count = 0, named = 0;
    memset(list, 0, sizeof *list);
    list->version = one_in(40) ? below(4) : VERSION;
    list->entries[count++] = (Entry){USER_OBJ, (uint16_t)below(8), 0xffffffff};
    for (uint32_t i = below(3); i > 0; i--, named++)
        list->entries[count++] = (Entry){USER, (uint16_t)below(8), 1000 + (named ? 1 + below(2) : one_in(3) ? 1 : 0)};
    list->entries[count++] = (Entry){GROUP_OBJ, (uint16_t)below(8), 0xffffffff};
    if (one_in(2)) {
        list->entries[count++] = (Entry){GROUP, (uint16_t)below(8), 1000 + below(3)};
        named++;
    }
    if (named || one_in(3))
        list->entries[count++] = (Entry){MASK, (uint16_t)below(8), 0xffffffff};
    list->entries[count++] = (Entry){OTHER, (uint16_t)below(8), 0xffffffff};
    long size = 4 + 8 * count;
    uint32_t wrong = below(60), at = below((uint32_t)count), other = below((uint32_t)count);
    Entry entry = list->entries[at];
    switch (wrong) {
    case 0: list->entries[at] = list->entries[other]; list->entries[other] = entry; break;
    case 1: list->entries[at].permissions = 8 + (uint16_t)below(8); break;
    case 2: list->entries[at].tag = (uint16_t)below(64); break;
    case 3: size -= 1 + below(12); break;
    case 4: list->entries[at].id = 0xffffffff; break;
    case 5: list->entries[at].tag = list->entries[other].tag; break;
    case 6: size = 4; break;
    case 7: size = below(5); break;
    case 8: list->entries[at].id = 0; break;
    }
    return size;
}

static void sets(void) {
    static const int all[] = {0, 0, 0, XATTR_CREATE, XATTR_REPLACE, 7};
    List list;
    const char *at = name(), *kind = ONE_OF(KINDS);
    long size = makes_list(&list);
    int flags = one_in(5) ? ONE_OF(all) : 0, follows = one_in(6);
    say("set %s %s %ld %d", at, kind + 17, size, flags);
    say_list(&list, size);
    answered((follows ? setxattr : lsetxattr)(at, kind, &list, (size_t)size, flags));
}

static void says_one(const char *at, const char *kind) {
    List list = {0};
    long size = lgetxattr(at, kind, &list, sizeof list);
    if (size >= 4)
        say_list(&list, size);
    else if (size < 0)
        say(" %s", strerrorname_np(errno));
}

static void says_rights(const char *at) {
    struct stat about;
    if (lstat(at, &about) == 0)
        say(" %o %d:%d", about.st_mode, (int)about.st_uid, (int)about.st_gid);
    says_one(at, KINDS[0]);
    says_one(at, KINDS[2]);
}

static void reads(void) {
    List list = {0};
    const char *at = name(), *kind = ONE_OF(KINDS);
    size_t room = one_in(3) ? below(sizeof list) : sizeof list;
    say("get %s %s %zu", at, kind + 17, room);
    long size = getxattr(at, kind, &list, room);
    if (size >= 4 && room)
        say_list(&list, size);
    answered(size);
}

static void lists(void) {
    char names[200];
    const char *at = name();
    size_t room = one_in(4) ? below(sizeof names) : sizeof names;
    say("list %s %zu", at, room);
    long size = listxattr(at, names, room);
    for (long i = 0; room && i < size; i += (long)strlen(names + i) + 1)
        say(" %s", names + i);
    answered(size);
}

static void removes(void) {
    const char *at = name(), *kind = ONE_OF(KINDS);
    say("remove %s %s", at, kind + 17);
    answered(removexattr(at, kind));
}

static void modes(void) {
    const char *at = name();
    mode_t mode = below(8) << 6 | below(8) << 3 | below(8) | (one_in(8) ? below(8) << 9 : 0);
    say("chmod %s %o", at, mode);
    int result = chmod(at, mode), error = errno;
    says_rights(at);
    errno = error;
    answered(result);
}

static void owns(void) {
    static const int users[] = {0, 1000, 1001, 1002, -1};
    const char *at = name();
    int to = ONE_OF(users), group = ONE_OF(users);
    say("chown %s %d:%d", at, to, group);
    int result = lchown(at, (uid_t)to, (gid_t)group), error = errno;
    says_rights(at);
    errno = error;
    answered(result);
}

static void makes(void) {
    static const mode_t masks[] = {0, 022, 077, 0777, 027};
    const char *at = name();
    mode_t mode = below(8) << 6 | below(8) << 3 | below(8), mask = ONE_OF(masks);
    int result, kind = (int)below(5);
    umask(mask);
    say("make %d %s %o umask %o", kind, at, mode, mask);
    switch (kind) {
    case 0: result = mkdir(at, mode); break;
    case 1: result = mknod(at, S_IFREG | mode, 0); break;
    case 2: result = mkfifo(at, mode); break;
    case 3: result = symlink("d/a", at); break;
    default:
        result = open(at, O_CREAT | O_EXCL | O_WRONLY | O_NONBLOCK, mode);
        if (result >= 0)
            result = close(result);
    }
    int error = errno;
    says_rights(at);
    errno = error;
    answered(result);
}

static void takes(void) {
    const char *at = name();
    int is_directory = one_in(2);
    if (!one_in(3)) {
        say("stat %s", at);
        says_rights(at);
        say("\n");
        return;
    }
    say("%s %s", is_directory ? "rmdir" : "unlink", at);
    answered(is_directory ? rmdir(at) : unlink(at));
}

static void moves(void) {
    const char *from = name(), *to = name();
    int how = one_in(3);
    say("%s %s %s", how ? "link" : "rename", from, to);
    answered(how ? link(from, to) : rename(from, to));
}

static void asks(void) {
    static const int flags[] = {O_RDONLY, O_WRONLY, O_RDWR, O_RDONLY | O_DIRECTORY, O_WRONLY | O_TRUNC, O_PATH, O_RDONLY | O_NOATIME, O_RDWR | O_TMPFILE, O_WRONLY | O_APPEND};
    const char *at = name();
    int which = ONE_OF(flags), mode = (int)below(8), result;
    switch (below(4)) {
    case 0:
        say("access %s %d", at, mode);
        result = faccessat(AT_FDCWD, at, mode, AT_EACCESS);
        break;
    case 1:
        say("utimes %s", at);
        result = utimensat(AT_FDCWD, at, 0, 0);
        break;
    default:
        say("open %s %o", at, which);
        result = open(at, which | O_NONBLOCK, 0640);
        if (result >= 0 && (which & O_TMPFILE) == O_TMPFILE) {
            List list = {0};
            struct stat about;
            long size = fgetxattr(result, KINDS[0], &list, sizeof list);
            if (fstat(result, &about) == 0)
                say(" %o", about.st_mode);
            if (size > 0)
                say_list(&list, size);
        }
        if (result >= 0)
            result = close(result);
    }
    answered(result);
}

static void (*const steps[])(void) = {
    becomes, becomes, sets, sets, sets, sets, sets, reads, reads, lists, removes, modes, modes, owns, makes, makes, makes, makes, takes, takes, moves, asks, asks, asks, asks, asks,
};

int main(int count, char **arguments) {
    int kind;
    long total = begin(count, arguments, &kind);
    char directory[] = "/tmp/aclsXXXXXX";
    if (!mkdtemp(directory) || chdir(directory) || chmod(".", 0777)) {
        perror(directory);
        return 1;
    }
    run_steps(steps, COUNT(steps), total, 0);
    return 0;
}
