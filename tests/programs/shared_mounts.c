// SPDX-License-Identifier: Apache-2.0 OR MIT
// Shared, slave, private and unbindable mounts (mount_namespaces(7)), and namespaces that a bind mount keeps. On Linux: as root; what is
// mounted is gone with the program.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#define FAILS(call, error) (errno = 0, (call) == -1 && errno == (error))

static void in_child(void (*run)(void)) {
    int status;
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        run();
        fflush(stdout);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void dirs(const char *names) {
    char copy[256], *rest = copy, *name;
    snprintf(copy, sizeof copy, "%s", names);
    while ((name = strsep(&rest, " ")))
        CHECK(mkdir(name, 0755) == 0);
}

static void tmpfs(const char *place) { CHECK(mount("tmpfs", place, "tmpfs", 0, NULL) == 0); }
static void bind(const char *from, const char *to) { CHECK(mount(from, to, NULL, MS_BIND, NULL) == 0); }
static void make(const char *place, unsigned long kind) { CHECK(mount(NULL, place, NULL, kind, NULL) == 0); }
static int has(const char *path) { return access(path, F_OK) == 0; }

static void put(const char *path) {
    int fd = open(path, O_WRONLY | O_CREAT, 0644);
    CHECK(fd >= 0 && close(fd) == 0);
}

// A fresh tmpfs to work in, with nothing shared but what the test makes so.
static void begin(const char *names) {
    CHECK(unshare(CLONE_NEWNS) == 0);
    make("/", MS_REC | MS_PRIVATE);
    tmpfs("/tmp");
    CHECK(chdir("/tmp") == 0);
    dirs(names);
}

// The optional fields of the line for what is mounted there last, with groups as letters in the order in which they were met.
static const char *fields(const char *place) {
    static char out[256];
    static int groups[16], count;
    char line[1024], path[128];
    FILE *file = fopen("/proc/self/mountinfo", "r");
    CHECK(file != NULL);
    snprintf(path, sizeof path, "%s%s", place[0] == '/' ? "" : "/tmp/", place);
    strcpy(out, "none");
    while (fgets(line, sizeof line, file)) {
        char *rest = line, *field;
        int index = 0, is_there = 0, ended = 0;
        char found[256] = "";
        while ((field = strsep(&rest, " \n"))) {
            is_there |= index == 4 && strcmp(field, path) == 0;
            ended |= index > 5 && strcmp(field, "-") == 0;
            if (index++ > 5 && !ended) {
                char *colon = strchr(field, ':');
                if (*found)
                    strcat(found, " ");
                strncat(found, field, colon ? (size_t)(colon - field) + 1 : strlen(field));
                if (colon) {
                    int group = atoi(colon + 1), letter = 0;
                    while (letter < count && groups[letter] != group)
                        letter++;
                    if (letter == count)
                        groups[count++] = group;
                    char text[2] = {'A' + letter, 0};
                    strcat(found, text);
                }
            }
        }
        if (is_there)
            strcpy(out, found);
    }
    fclose(file);
    return out;
}

static int is(const char *place, const char *wanted) {
    const char *found = fields(place);
    if (strcmp(found, wanted) != 0)
        printf("%s: \"%s\", not \"%s\"\n", place, found, wanted);
    return strcmp(found, wanted) == 0;
}

static void peers_show_the_same(void) {
    begin("a b c");
    tmpfs("a");
    dirs("a/x a/y");
    make("a", MS_SHARED);
    CHECK(is("a", "shared:A"));
    bind("a", "b");
    CHECK(is("b", "shared:A"));
    tmpfs("a/x");
    CHECK(is("a/x", "shared:B") && is("b/x", "shared:B"));
    put("b/x/file");
    CHECK(has("a/x/file"));
    // A part of it shows what is mounted in that part alone.
    bind("a/y", "c");
    dirs("c/in");
    tmpfs("b/y/in");
    put("a/y/in/file");
    CHECK(has("c/in/file"));
    tmpfs("a/x");
    // On the same place, one covers the other in both.
    CHECK(!has("b/x/file") && umount("b/x") == 0 && has("a/x/file"));
    CHECK(umount("a/x") == 0 && !has("b/x/file"));
    CHECK(FAILS(umount("b/x"), EINVAL));
    // One that is used at its peer's place stays.
    tmpfs("a/x");
    put("b/x/file");
    int fd = open("b/x/file", O_RDONLY);
    CHECK(FAILS(umount("a/x"), EBUSY) && close(fd) == 0 && umount("a/x") == 0);
    // With it goes what is mounted on it, at its peers' places as well.
    CHECK(umount2("a", MNT_DETACH) == 0 && has("b/y/in") && !has("b/y/in/file") && !has("c/in/file"));
    // The last one of a group goes on alone.
    CHECK(is("b", "shared:A"));
}

static void slaves_receive_and_do_not_send(void) {
    begin("a b c d");
    tmpfs("a");
    dirs("a/x a/y");
    make("a", MS_SHARED);
    bind("a", "b");
    make("b", MS_SLAVE);
    CHECK(is("a", "shared:A") && is("b", "master:A"));
    tmpfs("a/x");
    put("a/x/file");
    CHECK(has("b/x/file") && is("a/x", "shared:B") && is("b/x", "master:B"));
    tmpfs("b/y");
    put("b/y/file");
    CHECK(!has("a/y/file") && is("b/y", ""));
    // What is mounted at the master's place afterwards comes below that.
    tmpfs("a/y");
    put("a/y/below");
    CHECK(has("b/y/file") && !has("b/y/below"));
    CHECK(umount("b/y") == 0 && has("b/y/below"));
    tmpfs("b/y");
    put("b/y/top");
    CHECK(umount("a/y") == 0 && has("b/y/top") && umount("b/y") == 0 && FAILS(umount("b/y"), EINVAL));
    // A slave can be shared as well: its peers receive, too.
    make("b", MS_SHARED);
    CHECK(is("b", "shared:C master:A"));
    bind("b", "c");
    bind("c", "d");
    make("d", MS_SLAVE);
    CHECK(is("c", "shared:C master:A") && is("d", "master:C"));
    tmpfs("a/y");
    put("a/y/file");
    CHECK(has("b/y/file") && has("c/y/file") && has("d/y/file"));
    CHECK(is("a/y", "shared:D") && is("b/y", "shared:E master:D") && is("c/y", "shared:E master:D") && is("d/y", "master:E"));
    CHECK(umount("a/y") == 0 && !has("d/y/file") && !has("c/y/file"));
    tmpfs("c/y");
    put("c/y/file");
    CHECK(has("b/y/file") && has("d/y/file") && !has("a/y/file"));
    CHECK(umount("b/y") == 0 && !has("d/y/file"));
    // Without a group between them, what receives does so from the master's master.
    make("b", MS_PRIVATE);
    make("c", MS_PRIVATE);
    CHECK(is("d", "master:A") && is("b", ""));
    make("a", MS_PRIVATE);
    CHECK(is("d", "") && is("a", ""));
}

static void private_ones_are_left_alone(void) {
    begin("a b");
    tmpfs("a");
    dirs("a/x");
    make("a", MS_SHARED);
    bind("a", "b");
    make("b", MS_PRIVATE);
    tmpfs("a/x");
    put("a/x/file");
    CHECK(!has("b/x/file") && is("b", ""));
    // MS_SLAVE of a private one changes nothing, and of the only member of a group makes it private.
    make("b", MS_SLAVE);
    CHECK(is("b", ""));
    make("b", MS_SHARED);
    make("b", MS_SLAVE);
    CHECK(is("b", ""));
    CHECK(FAILS(mount(NULL, "b", NULL, MS_SHARED | MS_SLAVE, NULL), EINVAL));
    CHECK(FAILS(mount(NULL, "b", NULL, MS_SHARED | MS_RDONLY, NULL), EINVAL));
    CHECK(FAILS(mount(NULL, "a/x/file", NULL, MS_SHARED, NULL), EINVAL));
    CHECK(mount(NULL, "b", NULL, MS_SHARED | MS_SILENT, NULL) == 0);
}

static void unbindable_ones_are_not_bound(void) {
    begin("a b c");
    tmpfs("a");
    dirs("a/x a/y");
    tmpfs("a/x");
    put("a/x/file");
    make("a/x", MS_UNBINDABLE);
    CHECK(is("a/x", "unbindable"));
    CHECK(FAILS(mount("a/x", "b", NULL, MS_BIND, NULL), EINVAL));
    CHECK(mount("a", "b", NULL, MS_BIND | MS_REC, NULL) == 0 && has("b/y") && !has("b/x/file"));
    CHECK(umount("b") == 0);
    make("b/..", 0 | MS_PRIVATE);
    tmpfs("b");
    dirs("b/to");
    make("b", MS_SHARED);
    CHECK(FAILS(mount("a/x", "b/to", NULL, MS_MOVE, NULL), EINVAL));
    CHECK(mount("a/x", "c", NULL, MS_MOVE, NULL) == 0 && has("c/file"));
    // A new namespace has it, too.
    CHECK(unshare(CLONE_NEWNS) == 0 && has("c/file"));
}

static void trees_are_sent_whole(void) {
    begin("a b from");
    tmpfs("a");
    dirs("a/x");
    make("a", MS_SHARED);
    bind("a", "b");
    make("b", MS_SLAVE);
    tmpfs("from");
    dirs("from/in");
    tmpfs("from/in");
    put("from/in/file");
    CHECK(mount("from", "a/x", NULL, MS_BIND | MS_REC, NULL) == 0);
    CHECK(has("a/x/in/file") && has("b/x/in/file"));
    CHECK(is("a/x", "shared:B") && is("b/x", "master:B") && is("a/x/in", "shared:C") && is("b/x/in", "master:C"));
    CHECK(is("from", "") && is("from/in", ""));
    CHECK(umount2("a/x", MNT_DETACH) == 0 && !has("b/x/in"));
    // What a shared mount has on it cannot be moved away; to one, it is sent.
    CHECK(mount("from", "a/x", NULL, MS_MOVE, NULL) == 0 && has("b/x/in/file") && !has("from/in"));
    CHECK(FAILS(mount("a/x", "from", NULL, MS_MOVE, NULL), EINVAL));
    CHECK(strncmp(fields("a/x/in"), "shared:", 7) == 0);
    make("a", MS_REC | MS_PRIVATE);
    CHECK(is("a/x/in", "") && mount("a/x", "from", NULL, MS_MOVE, NULL) == 0 && has("from/in/file"));
}

// A peer inside of its own tree: what is bound with all below it is not sent into itself.
static void into_itself(void) {
    begin("a");
    tmpfs("a");
    dirs("a/x a/y");
    tmpfs("a/x");
    put("a/x/file");
    make("a", MS_REC | MS_SHARED);
    CHECK(mount("a", "a/y", NULL, MS_BIND | MS_REC, NULL) == 0);
    CHECK(has("a/y/x/file") && has("a/x/file") && is("a/y", "shared:A") && is("a/y/x", "shared:B"));
    // What is mounted on the copy is what its peer shows at that place, and goes there, too.
    CHECK(umount2("a/y", MNT_DETACH) == 0 && has("a/x") && !has("a/x/file"));
}

static int gate[2], back[2];

static void wait_for(int *end) {
    char byte;
    CHECK(read(end[0], &byte, 1) == 1);
}

static void go(int *end) { CHECK(write(end[1], "", 1) == 1); }

static void in_a_namespace(void) {
    CHECK(unshare(CLONE_NEWNS) == 0);
    CHECK(is("a", "shared:A") && is("b", "shared:B"));
    make("b", MS_SLAVE);
    go(back);
    wait_for(gate);
    CHECK(has("a/x/file") && has("b/x/file"));
    tmpfs("a/y");
    put("a/y/there");
    tmpfs("b/y");
    put("b/y/own");
    go(back);
    wait_for(gate);
    CHECK(!has("a/x/file") && !has("b/x/file"));
}

static void namespaces_show_what_is_shared(void) {
    int status;
    begin("a b");
    tmpfs("a");
    dirs("a/x a/y");
    tmpfs("b");
    dirs("b/x b/y");
    make("a", MS_SHARED);
    make("b", MS_SHARED);
    CHECK(pipe(gate) == 0 && pipe(back) == 0 && is("a", "shared:A") && is("b", "shared:B"));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        in_a_namespace();
        fflush(stdout);
        _exit(0);
    }
    wait_for(back);
    tmpfs("a/x");
    put("a/x/file");
    tmpfs("b/x");
    put("b/x/file");
    go(gate);
    wait_for(back);
    CHECK(has("a/y/there") && !has("b/y/own"));
    CHECK(umount("a/x") == 0 && umount("b/x") == 0);
    go(gate);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    // With the other namespace its mounts are gone, not those that they sent.
    CHECK(has("a/y/there"));
}

static void roots_are_not_shared(void) {
    begin("new");
    tmpfs("new");
    dirs("new/old");
    make("new", MS_SHARED);
    CHECK(chdir("new") == 0);
    CHECK(FAILS(syscall(SYS_pivot_root, ".", "old"), EINVAL));
    make(".", MS_PRIVATE);
    CHECK(syscall(SYS_pivot_root, ".", "old") == 0);
}

static void a_file_keeps_a_namespace(void) {
    struct utsname name;
    struct stat kept, there;
    begin("d");
    put("d/uts");
    put("d/mnt");
    int home = open("/proc/self/ns/uts", O_RDONLY);
    CHECK(unshare(CLONE_NEWUTS) == 0 && sethostname("kept", 4) == 0);
    bind("/proc/self/ns/uts", "d/uts");
    CHECK(stat("d/uts", &kept) == 0 && stat("/proc/self/ns/uts", &there) == 0 && kept.st_ino == there.st_ino);
    CHECK(setns(home, CLONE_NEWUTS) == 0 && uname(&name) == 0 && strcmp(name.nodename, "kept") != 0);
    int fd = open("d/uts", O_RDONLY);
    CHECK(fd >= 0 && setns(fd, CLONE_NEWUTS) == 0 && uname(&name) == 0 && strcmp(name.nodename, "kept") == 0);
    CHECK(close(fd) == 0 && setns(home, 0) == 0);
    // Once more, from where it is bound.
    put("d/again");
    bind("d/uts", "d/again");
    CHECK(umount("d/uts") == 0);
    fd = open("d/again", O_RDONLY);
    CHECK(fd >= 0 && setns(fd, CLONE_NEWUTS) == 0 && uname(&name) == 0 && strcmp(name.nodename, "kept") == 0);
    close(fd);
    // A mount namespace would keep itself.
    CHECK(FAILS(mount("/proc/self/ns/mnt", "d/mnt", NULL, MS_BIND, NULL), EINVAL));
    CHECK(FAILS(mount("/proc/self/ns/uts", "d", NULL, MS_BIND, NULL), ENOTDIR));
    FILE *file = fopen("/proc/self/mountinfo", "r");
    char line[512], last[512] = "";
    while (fgets(line, sizeof line, file))
        if (strstr(line, "/tmp/d/again"))
            strcpy(last, line);
    fclose(file);
    CHECK(strstr(last, " uts:[") && strstr(last, " - nsfs nsfs "));
}

// Twenty members each of which receives: all are reached, and none twice.
static void many(void) {
    char name[64];
    begin("a");
    tmpfs("a");
    dirs("a/x");
    make("a", MS_SHARED);
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof name, "m%d", i);
        dirs(name);
        bind("a", name);
        if (i % 3 == 1)
            make(name, MS_SLAVE);
        if (i % 6 == 1)
            make(name, MS_SHARED);
    }
    tmpfs("m0/x");
    put("a/x/file");
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof name, "m%d/x/file", i);
        CHECK(has(name));
    }
    CHECK(umount("m2/x") == 0);
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof name, "m%d/x", i);
        CHECK(FAILS(umount(name), EINVAL));
    }
}

int main(void) {
    in_child(peers_show_the_same);
    in_child(slaves_receive_and_do_not_send);
    in_child(private_ones_are_left_alone);
    in_child(unbindable_ones_are_not_bound);
    in_child(trees_are_sent_whole);
    in_child(into_itself);
    in_child(namespaces_show_what_is_shared);
    in_child(roots_are_not_shared);
    in_child(a_file_keeps_a_namespace);
    in_child(many);
    puts("all tests of shared mounts passed");
    return 0;
}
