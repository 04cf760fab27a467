// SPDX-License-Identifier: Apache-2.0 OR MIT
// A union of an upper directory and two lower ones (overlayfs): random calls on a few names that all layers have, none or some of them.
// Now and then it is unmounted and mounted again, and what is in the upper directory then is printed. Inode numbers are told by the order
// in which they are first seen. KIND 1: without an upper directory; KIND 2: layers of two file systems.
#include "sequences.h"
#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#define WORLD "/tmp/w"
static const char *const names[] = {
    "a", "b", "c", "d", "e", "d/a", "d/b", "d/c", "e/a", "e/b", "e/d", "e/d/a", "e/d/b", "l", "d/l", "f", "f/a", "f/d", "f/d/a",
};
static const char *const attributes[] = {"user.a", "trusted.b", "user.overlay.x"};
static int descriptors[5] = {-1, -1, -1, -1, -1};
static int kind, numbers;
static struct {
    dev_t device;
    ino_t inode;
} known[4096];

// The same number for the same file.
static int number(dev_t device, ino_t inode) {
    for (int i = 0; i < numbers; i++)
        if (known[i].device == device && known[i].inode == inode)
            return i;
    if (numbers == (int)COUNT(known))
        return -1;
    known[numbers].device = device;
    known[numbers].inode = inode;
    return numbers++;
}

static void say_stat(int result, const struct stat *s) {
    if (result < 0) {
        answered(result);
        return;
    }
    struct stat root;
    int is_own = stat(WORLD "/m", &root) == 0 && root.st_dev == s->st_dev;
    long size = S_ISDIR(s->st_mode) ? -1 : (long)s->st_size;
    // Directories of several file systems are numbered anew by each look.
    int which = kind == 2 && S_ISDIR(s->st_mode) ? -1 : number(s->st_dev, s->st_ino);
    say(" = mode %o links %lu size %ld owner %u:%u rdev %lx device %d number %d\n", s->st_mode, (unsigned long)s->st_nlink, size,
        s->st_uid, s->st_gid, (unsigned long)s->st_rdev, is_own, which);
}

static void opens(void) {
    static const int all[] = {
        O_RDONLY, O_RDONLY, O_WRONLY, O_RDWR, O_CREAT | O_RDWR, O_CREAT | O_EXCL | O_RDWR, O_TRUNC | O_RDWR, O_DIRECTORY, O_NOFOLLOW,
        O_PATH, O_CREAT | O_APPEND | O_RDWR,
    };
    const char *name = ONE_OF(names);
    int slot = below(COUNT(descriptors)), flags = ONE_OF(all);
    int descriptor = open(name, flags | O_NONBLOCK, 0640);
    say("open %s %o", name, flags);
    if (descriptor < 0) {
        answered(descriptor);
        return;
    }
    if (descriptors[slot] >= 0)
        close(descriptors[slot]);
    descriptors[slot] = descriptor;
    say(" = %d\n", slot);
}

static void reads(void) {
    char bytes[40];
    int slot = below(COUNT(descriptors)), at = below(30);
    long n = pread(descriptors[slot], bytes, sizeof bytes, at);
    say("pread %d %d", slot, at);
    if (n > 0)
        say_bytes(bytes, n);
    answered(n);
}

static void reads_name(void) {
    char bytes[64];
    const char *name = ONE_OF(names);
    int descriptor = open(name, O_RDONLY | O_NONBLOCK);
    say("contents %s", name);
    long n = descriptor < 0 ? -1 : read(descriptor, bytes, sizeof bytes);
    if (n > 0)
        say_bytes(bytes, n);
    answered(n);
    close(descriptor);
}

static void writes(void) {
    int slot = below(COUNT(descriptors)), at = below(30), size = 1 + below(9);
    say("pwrite %d %d %d", slot, at, size);
    answered(pwrite(descriptors[slot], "ABCDEFGHIJKLMNOP" + below(7), size, at));
}

static void maps(void) {
    int slot = below(COUNT(descriptors)), writes = one_in(2);
    struct stat s;
    say("map %d %d", slot, writes);
    // Behind the end of a file a mapping has nothing.
    if (fstat(descriptors[slot], &s) != 0 || !S_ISREG(s.st_mode) || s.st_size == 0) {
        say(" = nothing\n");
        return;
    }
    char *memory = mmap(0, 4096, writes ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, descriptors[slot], 0);
    if (memory == MAP_FAILED) {
        answered(-1);
        return;
    }
    if (writes)
        memory[0] = 'M';
    say_bytes(memory, s.st_size < 20 ? s.st_size : 20);
    answered(munmap(memory, 4096));
}

static void looks(void) {
    struct stat s;
    const char *name = ONE_OF(names);
    int result = lstat(name, &s);
    say("stat %s", name);
    say_stat(result, &s);
}

static void looks_at_descriptor(void) {
    struct stat s;
    int slot = below(COUNT(descriptors)), result = fstat(descriptors[slot], &s);
    // The links of a removed file differ by where it was.
    if (result == 0)
        s.st_nlink = 0;
    say("fstat %d", slot);
    say_stat(result, &s);
}

struct entry {
    char name[32];
    int type;
    ino_t inode;
};

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct entry *)a)->name, ((const struct entry *)b)->name);
}

static void lists(void) {
    struct entry entries[128];
    int count = 0;
    const char *name = one_in(4) ? "." : ONE_OF(names);
    struct stat s;
    DIR *dir = opendir(name);
    say("list %s", name);
    if (!dir) {
        answered(-1);
        return;
    }
    fstat(dirfd(dir), &s);
    for (struct dirent *e; (e = readdir(dir)) && count < 128; count++) {
        snprintf(entries[count].name, sizeof entries[count].name, "%.31s", e->d_name);
        entries[count].type = e->d_type;
        entries[count].inode = e->d_ino;
    }
    closedir(dir);
    qsort(entries, count, sizeof *entries, by_name);
    for (int i = 0; i < count; i++) {
        int is_other = kind == 2 || entries[i].name[0] == '.';
        say(" %s/%d/%d", entries[i].name, entries[i].type, is_other ? -1 : number(s.st_dev, entries[i].inode));
    }
    answered(count);
}

static void removes(void) {
    const char *name = ONE_OF(names);
    int directory = one_in(3);
    say("%s %s", directory ? "rmdir" : "unlink", name);
    answered(directory ? rmdir(name) : unlink(name));
}

static void makes(void) {
    const char *name = ONE_OF(names);
    switch (below(6)) {
    case 0:
    case 1:
    case 2:
        say("mkdir %s", name);
        answered(mkdir(name, 0750));
        break;
    case 3:
        say("symlink %s", name);
        answered(symlink("a", name));
        break;
    case 4:
        say("mkfifo %s", name);
        answered(mkfifo(name, 0600));
        break;
    default: {
        int minor = below(2);
        say("mknod %s 0:%d", name, minor);
        answered(mknod(name, S_IFCHR | 0600, minor));
    }
    }
}

static void links(void) {
    const char *from = ONE_OF(names), *to = ONE_OF(names);
    say("link %s %s", from, to);
    answered(link(from, to));
}

static void renames(void) {
    static const unsigned all[] = {0, 0, 0, 0, 1, 2, 4, 3, 6};
    const char *from = ONE_OF(names), *to = ONE_OF(names);
    unsigned flags = ONE_OF(all);
    say("rename %s %s %u", from, to, flags);
    answered(renameat2(AT_FDCWD, from, AT_FDCWD, to, flags));
}

static void changes(void) {
    const char *name = ONE_OF(names);
    switch (below(4)) {
    case 0: {
        int mode = below(01000);
        say("chmod %s %o", name, mode);
        answered(chmod(name, mode));
        break;
    }
    case 1: {
        int user = below(3);
        say("chown %s %d", name, user);
        answered(lchown(name, user, 5));
        break;
    }
    case 2: {
        int size = below(25);
        say("truncate %s %d", name, size);
        answered(truncate(name, size));
        break;
    }
    default: {
        struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 2000}};
        struct stat s = {0};
        say("utimes %s", name);
        int result = utimensat(AT_FDCWD, name, times, AT_SYMLINK_NOFOLLOW), error = errno;
        lstat(name, &s);
        say(" modified %ld", (long)s.st_mtim.tv_sec == 2000);
        errno = error;
        answered(result);
    }
    }
}

static void has_attributes(void) {
    const char *name = ONE_OF(names), *attribute = ONE_OF(attributes);
    char value[64];
    long result;
    switch (below(4)) {
    case 0:
        say("setxattr %s %s", name, attribute);
        answered(lsetxattr(name, attribute, "value", 1 + below(5), 0));
        break;
    case 1:
        say("getxattr %s %s", name, attribute);
        result = lgetxattr(name, attribute, value, sizeof value);
        if (result > 0)
            say_bytes(value, result);
        answered(result);
        break;
    case 2:
        say("removexattr %s %s", name, attribute);
        answered(lremovexattr(name, attribute));
        break;
    default:
        say("listxattr %s", name);
        result = llistxattr(name, value, sizeof value);
        answered(result);
    }
}

static void closes(void) {
    int slot = below(COUNT(descriptors));
    say("close %d", slot);
    answered(close(descriptors[slot]));
    descriptors[slot] = -1;
}

// What is in a directory of the upper layer, as another mount of it finds it.
static void say_upper(const char *path, const char *shown) {
    char names_[128][32], below_[256], value[8];
    int count = 0;
    DIR *dir = opendir(path);
    if (!dir)
        return;
    for (struct dirent *e; (e = readdir(dir)) && count < 128;)
        if (e->d_name[0] != '.')
            snprintf(names_[count++], sizeof names_[0], "%.31s", e->d_name);
    closedir(dir);
    qsort(names_, count, sizeof names_[0], (int (*)(const void *, const void *))strcmp);
    for (int i = 0; i < count; i++) {
        struct stat s;
        snprintf(below_, sizeof below_, "%s/%s", path, names_[i]);
        if (lstat(below_, &s) != 0)
            continue;
        int is_opaque = lgetxattr(below_, "trusted.overlay.opaque", value, sizeof value) > 0;
        say(" %s%s:%o%s", shown, names_[i], s.st_mode, is_opaque ? ":opaque" : "");
        if (S_ISCHR(s.st_mode))
            say(":%lx", (unsigned long)s.st_rdev);
        if (S_ISDIR(s.st_mode)) {
            char name[256];
            snprintf(name, sizeof name, "%s%s/", shown, names_[i]);
            say_upper(below_, name);
        }
    }
}

static void mounts_it(void) {
    static const char *const options[] = {
        "lowerdir=" WORLD "/l1:" WORLD "/l2,upperdir=" WORLD "/u,workdir=" WORLD "/work",
        "lowerdir=" WORLD "/u:" WORLD "/l1:" WORLD "/l2",
        "lowerdir=" WORLD "/other/l1:" WORLD "/l2,upperdir=" WORLD "/u,workdir=" WORLD "/work",
    };
    if (mount("overlay", WORLD "/m", "overlay", 0, options[kind]) != 0 || chdir(WORLD "/m") != 0) {
        printf("overlay: %m\n");
        exit(1);
    }
}

static void mounts_again(void) {
    if (!one_in(4)) {
        looks();
        return;
    }
    for (unsigned i = 0; i < COUNT(descriptors); i++) {
        close(descriptors[i]);
        descriptors[i] = -1;
    }
    say("again:");
    if (chdir("/") != 0 || umount(WORLD "/m") != 0)
        say(" umount: %m");
    say_upper(WORLD "/u", "");
    mounts_it();
    // The device is another one, and so all numbers are.
    numbers = 0;
    say("\n");
}

// A file of a layer, with its name in it.
static void put(const char *layer, const char *name) {
    char path[128], text[64];
    snprintf(path, sizeof path, WORLD "/%s/%s", layer, name);
    int length = snprintf(text, sizeof text, "%s of %s", name, layer + (strncmp(layer, "other/", 6) ? 0 : 6));
    int descriptor = open(path, O_CREAT | O_WRONLY | O_EXCL, 0644);
    if (descriptor >= 0 && write(descriptor, text, length) != length)
        perror(path);
    close(descriptor);
}

static void fill(const char *layer) {
    char path[128];
    for (unsigned i = 0; i < COUNT(names); i++) {
        snprintf(path, sizeof path, WORLD "/%s/%s", layer, names[i]);
        switch (below(4)) {
        case 0:
            put(layer, names[i]);
            break;
        case 1:
            if (one_in(3))
                symlink("a", path);
            break;
        default:
            if (strchr("def", path[strlen(path) - 1]))
                mkdir(path, 0755);
        }
    }
}

int main(int count, char **arguments) {
    static void (*const steps[])(void) = {
        opens, opens, opens, reads, reads_name, reads_name, writes, writes, maps, looks, looks, looks_at_descriptor, lists, lists,
        removes, removes, removes, makes, makes, links, renames, renames, renames, changes, has_attributes, closes, mounts_again,
    };
    long most = begin(count, arguments, &kind);
    umask(022);
    mkdir("/tmp", 0777);
    mkdir(WORLD, 0755);
    if (mount("world", WORLD, "tmpfs", 0, NULL) != 0)
        perror(WORLD);
    static const char *const all[] = {"l1", "l2", "u", "work", "m", "other"};
    for (unsigned i = 0; i < COUNT(all); i++) {
        char path[64];
        snprintf(path, sizeof path, WORLD "/%s", all[i]);
        mkdir(path, 0755);
    }
    if (mount("other", WORLD "/other", "tmpfs", 0, NULL) != 0)
        perror(WORLD "/other");
    mkdir(WORLD "/other/l1", 0755);
    fill(kind == 2 ? "other/l1" : "l1");
    fill("l2");
    if (kind == 1)
        fill("u");
    mounts_it();
    run_steps(steps, COUNT(steps), most, 0);
    return 0;
}
