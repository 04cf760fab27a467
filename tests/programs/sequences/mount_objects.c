// SPDX-License-Identifier: Apache-2.0 OR MIT
// Random sequences of the calls that mount by descriptors (fsopen, fsconfig, fsmount, fspick, open_tree, move_mount, mount_setattr) beside
// mount(2) and umount2(2), in one mount namespace. Behind each call stands what is mounted where, with its options.
#include "sequences.h"
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#define WORLD "/tmp/w"

enum { SLOTS = 4, MANY = 30 };

static int slots[SLOTS] = {-1, -1, -1, -1}, is_context[SLOTS];
static const char *const paths[] = {"/a", "/b", "/a/x", "/a/y", "/b/x", "/b/y", "/a/x/x", "/a/file", "/none", ""};

static const char *some_path(char *room) {
    sprintf(room, WORLD "%s", ONE_OF(paths));
    return room;
}

static void make_names(const char *in) {
    char path[256];
    for (const char *name = "abxy"; *name; name++) {
        snprintf(path, sizeof path, "%s/%c", in, *name);
        mkdir(path, 0755);
    }
    snprintf(path, sizeof path, "%s/file", in);
    close(open(path, O_CREAT | O_WRONLY, 0644));
}

static int by_text(const void *a, const void *b) {
    return strcmp(a, b);
}

// In the order of their texts: that of /proc is another one in later releases.
static int say_mounts(void) {
    static char lines[200][300];
    char text[1024], path[128], options[128];
    int count = 0, groups[64], known = 0;
    FILE *file = fopen("/proc/self/mountinfo", "r");
    if (!file)
        return 0;
    while (fgets(text, sizeof text, file) && count < (int)COUNT(lines)) {
        char *end = strstr(text, " - "), *fields;
        if (sscanf(text, "%*d %*d %*s %*s %127s %127s", path, options) != 2 || strncmp(path, WORLD, strlen(WORLD)) != 0 || !end)
            continue;
        *end = 0;
        fields = strstr(text, options) + strlen(options);
        // Behind the type and the source stands whether the file system itself may be written.
        char *super = strchr(strchr(end + 3, ' ') + 1, ' ') + 1;
        snprintf(lines[count++], sizeof *lines, "%.100s(%.80s%.60s %.2s)", path + strlen(WORLD), options, fields, super);
    }
    fclose(file);
    qsort(lines, (size_t)count, sizeof *lines, by_text);
    for (int i = 0; i < count; i++) {
        putchar(' ');
        for (char *at = lines[i]; *at; at++) {
            if (*at < '0' || *at > '9') {
                putchar(*at == ' ' ? '+' : *at);
                continue;
            }
            int group = (int)strtol(at, &at, 10), letter = 0;
            while (letter < known && groups[letter] != group)
                letter++;
            if (letter == known && known < (int)COUNT(groups))
                groups[known++] = group;
            say("%d", letter);
            at--;
        }
    }
    return count;
}

static void new_world(void) {
    for (int i = 0; i < SLOTS; i++) {
        if (slots[i] >= 0)
            close(slots[i]);
        slots[i] = -1;
    }
    while (umount2(WORLD, MNT_DETACH) == 0)
        ;
    mount("tmpfs", WORLD, "tmpfs", 0, NULL);
    // Into trees that are nowhere later releases of Linux do not propagate.
    mount(NULL, WORLD, NULL, MS_PRIVATE, NULL);
    make_names(WORLD);
    make_names(WORLD "/a");
    make_names(WORLD "/b");
}

static void done(long result) {
    int error = errno;
    say(":");
    int count = say_mounts();
    errno = error;
    answered(result);
    if (count > MANY)
        new_world();
}

// A new descriptor into a slot; told is that there is one.
static void got(int slot, int fd, int context) {
    int error = errno;
    if (fd >= 0) {
        is_context[slot] = context;
        if (slots[slot] >= 0)
            close(slots[slot]);
        slots[slot] = fd;
    }
    errno = error;
    done(fd < 0 ? -1 : 0);
}

static int any(void) {
    return (int)below(SLOTS);
}

// A slot's descriptor with an empty path, or a path.
static int some_place(char *path, unsigned *flags, unsigned empty) {
    int slot = any(), by_slot = one_in(2);
    some_path(path);
    if (by_slot) {
        say(" slot %d", slot);
        *path = 0;
        if (!one_in(12))
            *flags |= empty;
        return slots[slot];
    }
    say(" %s", path);
    return AT_FDCWD;
}

static void opens_system(void) {
    static const char *const names[] = {"tmpfs", "tmpfs", "tmpfs", "ramfs", "proc", "nothing", ""};
    int slot = any();
    const char *name = ONE_OF(names);
    unsigned flags = one_in(3) ? FSOPEN_CLOEXEC : one_in(20) ? 2 : 0;
    say("fsopen %d '%s' %x", slot, name, flags);
    got(slot, fsopen(name, flags), 1);
}

static void configures(void) {
    static const char *const keys[] = {"size", "mode", "ro", "rw", "source", "nonsense", "sync", "nr_blocks", "nr_inodes", "dirsync", ""};
    static const char *const values[] = {"1M", "700", "0", "x", "", "1000", "0x1P"};
    static const unsigned commands[] = {FSCONFIG_SET_FLAG, FSCONFIG_SET_FLAG, FSCONFIG_SET_STRING, FSCONFIG_SET_STRING, FSCONFIG_SET_STRING, FSCONFIG_CMD_CREATE,
        FSCONFIG_CMD_CREATE, FSCONFIG_CMD_CREATE, FSCONFIG_CMD_RECONFIGURE, FSCONFIG_SET_BINARY, FSCONFIG_SET_PATH, FSCONFIG_SET_FD, 99};
    int slot = any();
    unsigned command = ONE_OF(commands);
    const char *key = ONE_OF(keys), *value = ONE_OF(values);
    int aux = one_in(12) ? (int)below(4) - 1 : 0;
    int has_key = command == FSCONFIG_CMD_CREATE || command == FSCONFIG_CMD_RECONFIGURE ? one_in(20) : !one_in(20);
    int has_value = command == FSCONFIG_SET_STRING ? !one_in(20) : one_in(20);
    say("fsconfig %d %u %s %s %d", slot, command, has_key ? key : "-", has_value ? value : "-", aux);
    done(fsconfig(slots[slot], command, has_key ? key : NULL, has_value ? value : NULL, aux));
}

static unsigned attributes(void) {
    static const unsigned all[] = {MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV, MOUNT_ATTR_NOEXEC, MOUNT_ATTR_NOATIME, MOUNT_ATTR_STRICTATIME, MOUNT_ATTR_NODIRATIME,
        MOUNT_ATTR_NOSYMFOLLOW, MOUNT_ATTR__ATIME, 0, 0x400, MOUNT_ATTR_IDMAP};
    unsigned set = 0, which = below(COUNT(all)), other = below(COUNT(all));
    if (which < 10 || one_in(4))
        set |= all[which];
    if (one_in(3) && (other < 10 || one_in(4)))
        set |= all[other];
    return set;
}

static void makes_mount(void) {
    int from = any(), to = any();
    unsigned flags = one_in(2) ? FSMOUNT_CLOEXEC : one_in(20) ? 2 : 0, set = one_in(2) ? 0 : attributes();
    say("fsmount %d from %d %x %x", to, from, flags, set);
    int fd = fsmount(slots[from], flags, set), error = errno;
    if (fd >= 0) {
        mkdirat(fd, "x", 0755);
        mkdirat(fd, "y", 0755);
    }
    errno = error;
    got(to, fd, 0);
}

static void picks(void) {
    char path[64];
    int slot = any();
    unsigned flags = one_in(20) ? 16 : one_in(2) ? FSPICK_CLOEXEC : 0;
    say("fspick %d", slot);
    int at = some_place(path, &flags, FSPICK_EMPTY_PATH);
    got(slot, fspick(at, path, flags), 1);
}

static void opens_tree(void) {
    char path[64];
    int slot = any();
    unsigned flags = one_in(3) ? 0 : OPEN_TREE_CLONE;
    flags |= one_in(3) ? AT_RECURSIVE : 0;
    flags |= one_in(2) ? OPEN_TREE_CLOEXEC : 0;
    flags |= one_in(20) ? 2 : 0;
    say("open_tree %d %x", slot, flags);
    int at = some_place(path, &flags, AT_EMPTY_PATH);
    // Linux leads to the context as to any descriptor that is no place.
    int is_place = at < 0;
    for (int i = 0; i < SLOTS; i++)
        is_place |= slots[i] == at && !is_context[i];
    // Trees that are nowhere cannot be cloned before Linux 6.15.
    if ((is_place && !(flags & OPEN_TREE_CLONE)) || at == AT_FDCWD)
        got(slot, open_tree(at, path, flags), 0);
    else
        say(" of a context\n");
}

static void moves(void) {
    char from[64], to[64];
    unsigned flags = one_in(30) ? 0x400 : 0;
    say("move_mount");
    int at = some_place(from, &flags, MOVE_MOUNT_F_EMPTY_PATH);
    say(" %s %x", some_path(to), flags);
    int result = move_mount(at, from, AT_FDCWD, to, flags);
    // Of two places that are none, later releases of Linux tell of the second one.
    if (result < 0 && access(to, F_OK) != 0) {
        say(" fails\n");
        return;
    }
    done(result);
}

static void sets_attributes(void) {
    static const uint64_t kinds[] = {0, 0, 0, MS_PRIVATE, MS_SLAVE, MS_UNBINDABLE, MS_SHARED | MS_PRIVATE, 1};
    char path[64];
    struct mount_attr attr = {0};
    unsigned flags = one_in(3) ? AT_RECURSIVE : one_in(20) ? 2 : 0;
    size_t size = one_in(15) ? below(48) : sizeof attr;
    attr.attr_set = attributes();
    attr.attr_clr = one_in(2) ? attributes() : one_in(2) ? MOUNT_ATTR__ATIME : 0;
    attr.propagation = ONE_OF(kinds);
    if (attr.attr_set & MOUNT_ATTR_IDMAP)
        attr.userns_fd = (uint64_t)-1;
    say("mount_setattr %x set %llx clear %llx kind %llx size %zu", flags, (unsigned long long)attr.attr_set, (unsigned long long)attr.attr_clr, (unsigned long long)attr.propagation, size);
    int at = some_place(path, &flags, AT_EMPTY_PATH);
    done(mount_setattr(at, path, flags, &attr, size));
}

static void closes(void) {
    int slot = any();
    say("close %d", slot);
    int result = close(slots[slot]);
    slots[slot] = -1;
    done(result);
}

// What a context has to say of its last error.
static void reads(void) {
    char text[200];
    int slot = any();
    say("read %d", slot);
    long result = read(slots[slot], text, sizeof text);
    if (result > 0)
        say_bytes(text, result);
    answered(result);
}

static void mounts(void) {
    static const unsigned long all[] = {MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_NOATIME, MS_RELATIME, MS_STRICTATIME, MS_NODIRATIME, MS_NOSYMFOLLOW, MS_SYNCHRONOUS, 0, 0};
    static const unsigned long kinds[] = {MS_REMOUNT | MS_BIND, MS_REMOUNT | MS_BIND, MS_REMOUNT, 0, MS_BIND, MS_BIND | MS_REC, MS_MOVE, MS_PRIVATE | MS_REC, MS_SLAVE, MS_UNBINDABLE};
    char path[64], from[64];
    unsigned long kind = ONE_OF(kinds), flags = ONE_OF(all) | ONE_OF(all);
    if (kind & (MS_UNBINDABLE | MS_PRIVATE | MS_SLAVE))
        flags = 0;
    some_path(from);
    say("mount %s %s %lx", from, some_path(path), kind | flags);
    done(mount(from, path, kind ? NULL : "tmpfs", kind | flags, NULL));
}

static void unmounts(void) {
    static const int all[] = {0, 0, 0, MNT_DETACH, MNT_DETACH, MNT_FORCE, UMOUNT_NOFOLLOW, 64, MNT_EXPIRE | MNT_DETACH};
    char path[64];
    int flags = ONE_OF(all);
    say("umount %s %d", some_path(path), flags);
    done(umount2(path, flags));
}

static void asks(void) {
    char path[64], below_[80];
    struct statfs about;
    some_path(path);
    snprintf(below_, sizeof below_, "%s/new", path);
    say("ask %s", path);
    int result = mkdir(below_, 0755), error = errno;
    if (result == 0)
        rmdir(below_);
    if (statfs(path, &about) == 0)
        say(" %lx", (unsigned long)about.f_flags);
    errno = error;
    answered(result);
}

static void names(void) {
    char path[64];
    say("names %s\n", some_path(path));
    if (strlen(path) > 2)
        make_names(path);
}

int main(int count, char **arguments) {
    static void (*const steps[])(void) = {opens_system, opens_system, configures, configures, configures, configures, makes_mount, makes_mount, makes_mount, picks, opens_tree, opens_tree, opens_tree,
        moves, moves, moves, moves, sets_attributes, sets_attributes, sets_attributes, closes, reads, mounts, mounts, mounts, unmounts, unmounts, asks, asks, names};
    int kind;
    long most = begin(count, arguments, &kind);
    mkdir("/tmp", 0777);
    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
    unshare(CLONE_NEWNS);
    // What is below the world is a tmpfs as well.
    mount("tmpfs", "/tmp", "tmpfs", 0, NULL);
    mkdir(WORLD, 0755);
    new_world();
    for (long i = 0; i < most; i++) {
        if (i % 200 == 199)
            new_world();
        printf("%ld ", i);
        steps[below(COUNT(steps))]();
    }
    fflush(stdout);
    return 0;
}
