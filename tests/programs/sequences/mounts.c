// SPDX-License-Identifier: Apache-2.0 OR MIT
// Mounts: of file systems, bound, moved, shared, received, taken away, in two mount namespaces. Behind each call stands what is mounted
// where in the namespace of the call, and which of these mounts are in one peer group.
#include "sequences.h"
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#define WORLD "/tmp/w"
// Beyond so many mounts a new world begins: calls would double them.
#define MANY 40

// Each by its file, and its root: where the program runs that need not be the namespace's.
static int namespaces[2] = {-1, -1}, roots[2] = {-1, -1};
static const char *const paths[] = {
    "/a", "/b", "/c", "/a/x", "/a/y", "/b/x", "/b/y", "/c/x", "/c/y", "/a/x/x", "/b/y/x", "/c/x/y", "/a/y/x", "",
};

static const char *path_in(char *room) {
    sprintf(room, WORLD "%s", ONE_OF(paths));
    return room;
}

static void make_directories(const char *in) {
    char path[256];
    for (const char *name = "abcxy"; *name; name++) {
        snprintf(path, sizeof path, "%s/%c", in, *name);
        mkdir(path, 0755);
    }
}

// A line of mountinfo.
struct line {
    int id, parent, depth;
    char root[128], path[128], fields[128];
};

static struct line lines[1024];

static int by_place(const void *a, const void *b) {
    const struct line *x = a, *y = b;
    int order = strcmp(x->path, y->path);
    if (order == 0)
        order = x->depth - y->depth;
    if (order == 0)
        order = strcmp(x->root, y->root);
    if (order == 0)
        order = (int)strlen(x->fields) - (int)strlen(y->fields);
    return order;
}

// What is mounted, with groups as letters in the order of places. How many there are.
static int say_mounts(void) {
    char text[1024];
    int count = 0, groups[64], known = 0;
    FILE *file = fopen("/proc/self/mountinfo", "r");
    if (!file)
        return 0;
    while (fgets(text, sizeof text, file) && count < (int)COUNT(lines)) {
        struct line *line = &lines[count];
        if (sscanf(text, "%d %d %*s %127s %127s", &line->id, &line->parent, line->root, line->path) != 4)
            continue;
        if (strncmp(line->path, WORLD, strlen(WORLD)) != 0)
            continue;
        // Behind the options, the sixth field.
        char *rest = text;
        for (int i = 0; i < 6; i++)
            rest = strchr(rest, ' ') + 1;
        char *end = strstr(rest - 1, " - ");
        snprintf(line->fields, sizeof line->fields, "%.*s", end > rest ? (int)(end - rest) : 0, rest);
        count++;
    }
    fclose(file);
    for (int i = 0; i < count; i++) {
        int id = lines[i].parent, steps = 0;
        for (int found = 1; found && steps < count;) {
            found = 0;
            for (int j = 0; j < count && !found; j++)
                if (lines[j].id == id) {
                    id = lines[j].parent;
                    found = 1;
                    steps++;
                }
        }
        lines[i].depth = steps;
    }
    qsort(lines, count, sizeof *lines, by_place);
    for (int i = 0; i < count; i++) {
        say(" %s", lines[i].path + strlen(WORLD));
        for (char *at = lines[i].fields; *at; at++) {
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

static void go_to(int which) {
    if (setns(namespaces[which], CLONE_NEWNS) != 0 || fchdir(roots[which]) != 0 || chroot(".") != 0)
        say("lost ");
}

static void keep(int which) {
    close(namespaces[which]);
    close(roots[which]);
    namespaces[which] = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    roots[which] = open("/", O_PATH | O_CLOEXEC);
}

static void new_world(void) {
    for (int i = 0; i < 2; i++) {
        go_to(i);
        while (umount2(WORLD, MNT_DETACH) == 0)
            ;
    }
    go_to(0);
    mount("tmpfs", WORLD, "tmpfs", 0, NULL);
    make_directories(WORLD);
    make_directories(WORLD "/a");
    make_directories(WORLD "/b");
    make_directories(WORLD "/c");
    mount(NULL, WORLD, NULL, one_in(2) ? MS_SHARED : MS_PRIVATE, NULL);
    unshare(CLONE_NEWNS);
    keep(1);
}

// In the next namespace, which is the same one twice as often as not.
static void enter(void) {
    int which = one_in(3);
    go_to(which);
    say("%c ", 'A' + which);
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

static void mounted(void) {
    char path[64];
    enter();
    say("mount %s", path_in(path));
    long result = mount("tmpfs", path, "tmpfs", 0, NULL);
    int error = errno;
    if (result == 0)
        make_directories(path);
    errno = error;
    done(result);
}

static void bound(void) {
    char from[64], to[64];
    unsigned long flags = one_in(3) ? MS_BIND | MS_REC : MS_BIND;
    enter();
    path_in(from);
    path_in(to);
    say("bind%s %s %s", flags & MS_REC ? " all" : "", from, to);
    done(mount(from, to, NULL, flags, NULL));
}

static void moved(void) {
    char from[64], to[64];
    enter();
    path_in(from);
    path_in(to);
    say("move %s %s", from, to);
    done(mount(from, to, NULL, MS_MOVE, NULL));
}

static void changed(void) {
    static const unsigned long kinds[] = {MS_SHARED, MS_SHARED, MS_SLAVE, MS_SLAVE, MS_PRIVATE, MS_UNBINDABLE};
    char path[64];
    unsigned long flags = ONE_OF(kinds) | (one_in(3) ? MS_REC : 0);
    enter();
    say("make %s %lx", path_in(path), flags);
    done(mount(NULL, path, NULL, flags, NULL));
}

static void taken(void) {
    char path[64];
    int flags = one_in(4) ? MNT_DETACH : 0;
    enter();
    say("umount %s %d", path_in(path), flags);
    done(umount2(path, flags));
}

static void removed(void) {
    char path[64];
    enter();
    say("rmdir %s", path_in(path));
    long result = rmdir(path);
    int error = errno;
    if (result == 0)
        mkdir(path, 0755);
    errno = error;
    done(result);
}

int main(int count, char **arguments) {
    static void (*const steps[])(void) = {mounted, mounted, bound, bound, bound, moved, changed, changed, changed, taken, taken, removed};
    int kind;
    long most = begin(count, arguments, &kind);
    mkdir("/tmp", 0777);
    mkdir(WORLD, 0755);
    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
    unshare(CLONE_NEWNS);
    keep(0);
    keep(1);
    new_world();
    run_steps(steps, COUNT(steps), most, 0);
    return 0;
}
