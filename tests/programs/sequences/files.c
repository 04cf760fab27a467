// SPDX-License-Identifier: Apache-2.0 OR MIT
// Random sequences of calls on a few names and six descriptors (sequences.h). KIND 1: as user 1000.
// To be run where nothing is but its own program and an empty /tmp: names go up to the root.
#include "sequences.h"
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/xattr.h>

static char directory[] = "/tmp/sequence-XXXXXX";
static char too_long[257];
static const char *const names[] = {
    "a", "b", "c", "d", "d/a", "d/b", "d/e", "d/e/a", "a/b", "l", "d/l",
    "l/a", ".", "d/.", "d/..", "", "a/", "d/", "l/", "l/.", "nothing/a", "d/e/..", "./a", "d//a", too_long, "e", "e/a",
};
static const char *const attributes[] = {
    "user.a", "user.b", "nothing", "user.", "trusted.x", "security.y", "system.posix_acl_access",
};
static int descriptors[6];
// Directories of the host have neither of: files without a name, special files, fallocate(2) but for a file's length, the flags of
// renameat2(2), attributes of the system.
static int is_volume;

// The first eleven are what most steps are about.
static const char *any_name(void) {
    return names[below(one_in(3) ? COUNT(names) : 11)];
}

static const char *shown(const char *name) {
    return name == too_long ? "(long)" : name;
}

static int any(void) {
    return below(COUNT(descriptors));
}

static void keep(int slot, int descriptor) {
    if (descriptors[slot] >= 0)
        close(descriptors[slot]);
    descriptors[slot] = descriptor;
}

static void say_stat(int result, const struct stat *s) {
    if (result < 0) {
        answered(result);
        return;
    }
    long size = S_ISDIR(s->st_mode) ? -1 : (long)s->st_size;
    say(" = mode %o links %lu size %ld user %u group %u\n", s->st_mode, (unsigned long)s->st_nlink, size, s->st_uid, s->st_gid);
}

static void opens(void) {
    static const int all[] = {
        O_RDONLY, O_WRONLY, O_RDWR, O_CREAT | O_RDWR, O_CREAT | O_EXCL | O_RDWR, O_TRUNC | O_RDWR, O_CREAT | O_TRUNC | O_WRONLY,
        O_DIRECTORY, O_NOFOLLOW, O_PATH, O_PATH | O_NOFOLLOW, O_CREAT | O_APPEND | O_RDWR, O_TMPFILE | O_RDWR, O_CREAT | O_DIRECTORY,
        O_CREAT | O_NOFOLLOW, O_TRUNC, O_CREAT, O_EXCL, O_WRONLY | O_DIRECTORY, O_PATH | O_DIRECTORY, O_TMPFILE,
        O_TMPFILE | O_WRONLY | O_EXCL, O_ACCMODE, O_NOATIME,
    };
    const char *name = any_name();
    int slot = any(), flags = ONE_OF(all), mode = one_in(2) ? 0644 : below(010000);
    if (is_volume && (flags & O_TMPFILE) == O_TMPFILE)
        flags &= ~O_TMPFILE;
    // Nobody waits for the other end of a FIFO.
    flags |= flags & O_PATH ? 0 : O_NONBLOCK;
    int descriptor = open(name, flags, mode);
    say("open %s %o %o", shown(name), flags, mode);
    if (descriptor < 0) {
        answered(descriptor);
        return;
    }
    keep(slot, descriptor);
    say(" = %d flags %o\n", slot, fcntl(descriptor, F_GETFL));
}

static void makes_directory(void) {
    const char *name = any_name();
    int mode = below(010000);
    say("mkdir %s %o", shown(name), mode);
    answered(mkdir(name, mode));
}

static void makes_node(void) {
    static const int kinds[] = {S_IFIFO | 0644, S_IFSOCK | 0600, 0644, S_IFCHR | 0600, S_IFDIR, 0170000};
    const char *name = any_name();
    int mode = ONE_OF(kinds);
    if (is_volume && mode != S_IFDIR)
        mode = 0644;
    say("mknod %s %o", shown(name), mode);
    answered(mknod(name, mode, 0x103));
}

static void removes(void) {
    const char *name = any_name();
    int is_directory = one_in(2);
    say("%s %s", is_directory ? "rmdir" : "unlink", shown(name));
    answered(is_directory ? rmdir(name) : unlink(name));
}

static void renames(void) {
    const char *from = any_name(), *to = any_name();
    int flags = one_in(2) ? 0 : below(is_volume ? 2 : 8);
    say("renameat2 %s %s %d", shown(from), shown(to), flags);
    answered(renameat2(AT_FDCWD, from, AT_FDCWD, to, flags));
}

static void links(void) {
    static const int all[] = {0, 0, AT_SYMLINK_FOLLOW, AT_EMPTY_PATH, 0x4000};
    const char *from = any_name(), *to = any_name();
    int slot = any(), flags = ONE_OF(all), is_here = one_in(2);
    // What an ordinary user may do with an empty name differs by Linux' release.
    if (flags == AT_EMPTY_PATH && getuid() != 0)
        flags = 0;
    say("linkat %d %s %s %x", is_here ? -1 : slot, shown(from), shown(to), flags);
    answered(linkat(is_here ? AT_FDCWD : descriptors[slot], from, AT_FDCWD, to, flags));
}

static void makes_symbolic_link(void) {
    const char *target = any_name(), *name = any_name();
    say("symlink %s %s", shown(target), shown(name));
    answered(symlink(target, name));
}

static void reads_link(void) {
    char target[300];
    const char *name = any_name();
    // As does what an empty one is told.
    name = *name ? name : ".";
    long length = readlink(name, target, one_in(3) ? below(4) : sizeof target);
    say("readlink %s", shown(name));
    if (length > 0)
        say_bytes(target, length < 20 ? length : 20);
    answered(length);
}

static void looks(void) {
    struct stat s;
    const char *name = any_name();
    int follows = one_in(2);
    int result = follows ? stat(name, &s) : lstat(name, &s);
    say("%s %s", follows ? "stat" : "lstat", shown(name));
    say_stat(result, &s);
}

static void looks_at_descriptor(void) {
    struct stat s;
    int slot = any(), result = fstat(descriptors[slot], &s);
    say("fstat %d", slot);
    say_stat(result, &s);
}

static void looks_closer(void) {
    static const int all[] = {AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH, 0x6000, 0};
    struct statx s;
    const char *name = any_name();
    int slot = any(), flags = ONE_OF(all), is_here = one_in(2);
    int result = statx(is_here ? AT_FDCWD : descriptors[slot], name, flags, STATX_BASIC_STATS, &s);
    say("statx %d %s %x", is_here ? -1 : slot, shown(name), flags);
    if (result < 0)
        answered(result);
    else
        say(" = mode %o links %u\n", s.stx_mode, s.stx_nlink);
}

static void changes_mode(void) {
    const char *name = any_name();
    int mode = below(010000);
    say("chmod %s %o", shown(name), mode);
    answered(chmod(name, mode));
}

static void changes_owner(void) {
    const char *name = any_name();
    int user = below(3) * 1000, group = below(3) * 1000;
    say("lchown %s %d %d", shown(name), user, group);
    answered(lchown(name, user, group));
}

static void asks_for_access(void) {
    const char *name = any_name();
    int mode = below(8);
    say("access %s %d", shown(name), mode);
    answered(access(name, mode));
}

static void sets_times(void) {
    struct timespec times[2] = {{below(100), one_in(2) ? UTIME_OMIT : 5}, {below(100), one_in(2) ? UTIME_NOW : 7}};
    struct stat s;
    const char *name = any_name();
    int flags = one_in(2) ? AT_SYMLINK_NOFOLLOW : 0, result = utimensat(AT_FDCWD, name, times, flags);
    say("utimensat %s", shown(name));
    if (result == 0 && fstatat(AT_FDCWD, name, &s, flags) == 0) {
        if (times[0].tv_nsec == 5)
            say(" accessed %ld", s.st_atim.tv_sec);
        if (times[1].tv_nsec == 7)
            say(" modified %ld", s.st_mtim.tv_sec);
    }
    answered(result);
}

static void lists(void) {
    struct dirent **entries;
    const char *name = any_name();
    int count = scandir(name, &entries, 0, alphasort);
    say("scandir %s", shown(name));
    for (int i = 0; i < count; i++) {
        say(" %.10s:%d", entries[i]->d_name, entries[i]->d_type);
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
    answered(count);
}

static void truncates(void) {
    const char *name = any_name();
    int slot = any();
    long length = (long)below(10000) - 10;
    if (one_in(2)) {
        say("truncate %s %ld", shown(name), length);
        answered(truncate(name, length));
    } else {
        say("ftruncate %d %ld", slot, length);
        answered(ftruncate(descriptors[slot], length));
    }
}

static void writes(void) {
    int slot = any(), length = below(20);
    if (one_in(2)) {
        long at = (long)below(9000) - 5;
        say("pwrite %d %d %ld", slot, length, at);
        answered(pwrite(descriptors[slot], "bytes at a position.", length, at));
    } else {
        say("write %d %d", slot, length);
        answered(write(descriptors[slot], "some bytes to write.", length));
    }
}

static void reads(void) {
    char bytes[256];
    int slot = any(), length = below(256);
    if (one_in(2)) {
        long at = (long)below(9000) - 5;
        say("pread %d %d %ld", slot, length, at);
        answered(pread(descriptors[slot], bytes, length, at));
    } else {
        say("read %d %d", slot, length);
        answered(read(descriptors[slot], bytes, length));
    }
}

// Where data and holes are is the file system's: only what is no place at all is asked for.
static void seeks(void) {
    int slot = any(), whence = below(6), is_of_data = whence == SEEK_DATA || whence == SEEK_HOLE;
    long offset = is_of_data ? -1 : (long)below(9000) - 500;
    say("lseek %d %ld %d", slot, offset, whence);
    answered(lseek(descriptors[slot], offset, whence));
}

static void closes(void) {
    int slot = any();
    say("close %d", slot);
    answered(close(descriptors[slot]));
    descriptors[slot] = -1;
}

static void duplicates(void) {
    int slot = any(), to = any(), copy = dup(descriptors[slot]);
    say("dup %d %d", slot, to);
    if (copy >= 0)
        keep(to, copy);
    answered(copy < 0 ? copy : 0);
}

// What a tmpfs has of fallocate(2).
static void allocates(void) {
    static const int modes[] = {0, 1, 2, 3, 3, 1, 4};
    int slot = any(), mode = ONE_OF(modes);
    if (is_volume)
        mode = 0;
    long offset = one_in(2) ? below(3) * 4096 : below(9000), length = one_in(2) ? below(3) * 4096 : below(5000);
    say("fallocate %d %d %ld %ld", slot, mode, offset, length);
    answered(fallocate(descriptors[slot], mode, offset, length));
}

static void goes_there(void) {
    char here[300];
    const char *name = any_name();
    int slot = any(), is_descriptor = one_in(2);
    int result = is_descriptor ? fchdir(descriptors[slot]) : chdir(name);
    say(is_descriptor ? "fchdir %d" : "chdir %d %s", slot, shown(name));
    if (result == 0 && getcwd(here, sizeof here) && strncmp(here, directory, sizeof directory - 1) == 0)
        say(" %s", here + sizeof directory - 1);
    answered(result);
    if (result == 0 && chdir(directory) != 0)
        exit(1);
}

static void works_below_descriptor(void) {
    const char *name = any_name();
    int slot = any(), what = below(3);
    long result;
    say("at %d %s %d", slot, shown(name), what);
    if (what == 0) {
        result = openat(descriptors[slot], name, O_RDONLY | O_NONBLOCK);
        if (result >= 0)
            close(result), result = 0;
    } else if (what == 1) {
        result = mkdirat(descriptors[slot], name, 0755);
    } else {
        result = unlinkat(descriptors[slot], name, one_in(2) ? AT_REMOVEDIR : one_in(8) ? 1 : 0);
    }
    answered(result);
}

static void sets_attribute(void) {
    const char *name = any_name(), *attribute = attributes[below(is_volume ? 4 : COUNT(attributes))];
    int size = below(30), flags = below(4), follows = one_in(2);
    say("%s %s %s %d %d", follows ? "setxattr" : "lsetxattr", shown(name), attribute, size, flags);
    answered((follows ? setxattr : lsetxattr)(name, attribute, "a value of some thirty bytes...", size, flags));
}

static void reads_attribute(void) {
    char value[200];
    const char *name = any_name(), *attribute = attributes[below(is_volume ? 4 : COUNT(attributes))];
    int removes_it = one_in(2);
    say("%s %s %s", removes_it ? "removexattr" : "getxattr", shown(name), attribute);
    answered(removes_it ? removexattr(name, attribute) : getxattr(name, attribute, value, one_in(3) ? below(5) : sizeof value));
}

static void sets_flags(void) {
    int slot = any(), flags = one_in(2) ? O_APPEND | O_NONBLOCK : O_NONBLOCK;
    say("F_SETFL %d %o", slot, flags);
    answered(fcntl(descriptors[slot], F_SETFL, flags));
}

static void locks(void) {
    static const int operations[] = {LOCK_EX | LOCK_NB, LOCK_SH | LOCK_NB, LOCK_UN, 0};
    static const int commands[] = {F_SETLK, F_OFD_SETLK, F_GETLK};
    int slot = any();
    if (one_in(2)) {
        int operation = ONE_OF(operations);
        say("flock %d %d", slot, operation);
        answered(flock(descriptors[slot], operation));
    } else {
        struct flock lock = {.l_type = below(4), .l_whence = below(4), .l_start = below(100), .l_len = (long)below(100) - 30};
        int command = ONE_OF(commands), result = fcntl(descriptors[slot], command, &lock);
        say("lock %d %d type %d", slot, command, lock.l_type);
        answered(result);
    }
}

static void maps(void) {
    int slot = any(), rights = one_in(2) ? PROT_READ : PROT_READ | PROT_WRITE, kind = one_in(2) ? MAP_SHARED : MAP_PRIVATE;
    void *memory = mmap(0, 4096, rights, kind, descriptors[slot], one_in(2) ? 0 : 4096);
    say("mmap %d %d %d", slot, rights, kind);
    answered(memory == MAP_FAILED ? -1 : munmap(memory, 4096));
}

static void copies(void) {
    int from = any(), to = any(), is_range = one_in(2);
    off_t at = below(100);
    size_t length = below(200);
    long result = is_range ? copy_file_range(descriptors[from], &at, descriptors[to], 0, length, 0)
                           : sendfile(descriptors[to], descriptors[from], &at, length);
    say("%s %d %d %zu, then at %ld", is_range ? "copy_file_range" : "sendfile", from, to, length, (long)at);
    answered(result);
}

static void (*const steps[])(void) = {
    opens, opens, opens, makes_directory, makes_node, removes, removes, renames, renames, links, links, makes_symbolic_link,
    makes_symbolic_link, reads_link, looks, looks, looks_at_descriptor, looks_closer, changes_mode, changes_owner, asks_for_access,
    sets_times, lists, truncates, truncates, writes, writes, reads, reads, seeks, closes, duplicates, allocates, goes_there,
    works_below_descriptor, works_below_descriptor, sets_attribute, reads_attribute, sets_flags, locks, locks, maps, copies,
};

int main(int count, char **arguments) {
    // 0: the superuser, 1: another user, 2: the superuser on a volume.
    int kind;
    long total = begin(count, arguments, &kind);
    int is_user = kind == 1;
    is_volume = kind == 2;
    umask(022);
    memset(too_long, 'z', sizeof too_long - 1);
    memset(descriptors, -1, sizeof descriptors);
    if (!mkdtemp(directory) || chmod(directory, 0777) || chdir(directory) || (is_user && (setgid(1000) || setuid(1000)))) {
        perror(directory);
        return 1;
    }
    run_steps(steps, COUNT(steps), total, 0);
    return 0;
}
