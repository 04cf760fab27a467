// SPDX-License-Identifier: Apache-2.0 OR MIT
// Programs whose file has capabilities (capabilities(7)), run by a user who is not root. It is run by root, and copies itself.
#define _GNU_SOURCE
#include "check.h"
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { USER = 1000, BIND = 1 << CAP_NET_BIND_SERVICE, RAW = 1 << CAP_NET_RAW };

enum how { PLAINLY, WITHOUT_NEW_PRIVILEGES, WITHIN_BOUNDS, WITH_AMBIENT, AS_ROOT };

static char folder[] = "/tmp/capabilities-XXXXXX", copy[64];

static void get(unsigned sets[3]) {
    struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct data[2];
    CHECK(syscall(SYS_capget, &header, data) == 0);
    sets[0] = data[0].effective;
    sets[1] = data[0].permitted;
    sets[2] = data[0].inheritable;
}

static void set_inheritable(unsigned inheritable) {
    struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct data[2];
    CHECK(syscall(SYS_capget, &header, data) == 0);
    data[0].inheritable = inheritable;
    CHECK(syscall(SYS_capset, &header, data) == 0);
}

static void give(unsigned effective, unsigned permitted, unsigned inheritable) {
    struct vfs_cap_data value = { VFS_CAP_REVISION_2 | effective, { { permitted, inheritable }, { 0, 0 } } };
    CHECK(setxattr(copy, "security.capability", &value, sizeof value, 0) == 0);
}

static int suid_dumpable(void) {
    char text[8] = "0";
    int fd = open("/proc/sys/fs/suid_dumpable", O_RDONLY | O_CLOEXEC);
    CHECK(fd < 0 || read(fd, text, sizeof text - 1) > 0);
    CHECK(fd < 0 || close(fd) == 0);
    return atoi(text);
}

// What the copy was started with: effective and permitted set, AT_SECURE.
static int is_as_told(char **words) {
    unsigned sets[3];
    get(sets);
    CHECK(sets[0] == strtoul(words[0], NULL, 0) && sets[1] == strtoul(words[1], NULL, 0));
    CHECK(getauxval(AT_SECURE) == strtoul(words[2], NULL, 0));
    // What it gained would be seen by whoever may look into it.
    CHECK(atoi(words[3]) == WITH_AMBIENT || words[2][0] == '0' || sets[1] == 0 || prctl(PR_GET_DUMPABLE) == suid_dumpable());
    return 0;
}

// Runs the copy as the user; `error` is execve(2)'s.
static void run(enum how how, int error, unsigned effective, unsigned permitted, int is_secure) {
    char words[4][16];
    snprintf(words[3], sizeof words[3], "%d", how);
    snprintf(words[0], sizeof words[0], "%u", effective);
    snprintf(words[1], sizeof words[1], "%u", permitted);
    snprintf(words[2], sizeof words[2], "%d", is_secure);
    pid_t pid = fork();
    if (pid == 0) {
        if (how == AS_ROOT) {
            // Root has what its bounds leave, whatever the file says.
            for (int capability = 0; prctl(PR_CAPBSET_READ, capability) >= 0; capability++) {
                CHECK(capability == CAP_NET_RAW || prctl(PR_CAPBSET_DROP, capability) == 0);
            }
            set_inheritable(0);
        } else {
            CHECK(how != WITHIN_BOUNDS || prctl(PR_CAPBSET_DROP, CAP_NET_BIND_SERVICE) == 0);
            set_inheritable(how == WITH_AMBIENT ? RAW | BIND : RAW);
            CHECK(prctl(PR_SET_KEEPCAPS, 1) == 0);
            CHECK(setgroups(0, NULL) == 0 && setresgid(USER, USER, USER) == 0 && setresuid(USER, USER, USER) == 0);
            CHECK(how != WITH_AMBIENT || prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_NET_RAW, 0, 0) == 0);
            CHECK(how != WITHOUT_NEW_PRIVILEGES || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
            if (how != WITH_AMBIENT) {
                struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
                struct __user_cap_data_struct none[2] = { { 0, 0, RAW }, { 0, 0, 0 } };
                CHECK(syscall(SYS_capset, &header, none) == 0);
            }
        }
        execl(copy, "copy", "told", words[0], words[1], words[2], words[3], NULL);
        _exit(errno == error ? 0 : 2);
    }
    int status;
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    if (status != 0) {
        printf("manner %d, effective %x, permitted %x\n", how, effective, permitted);
    }
    CHECK(status == 0);
}

int main(int count, char **words) {
    if (count == 6 && strcmp(words[1], "told") == 0) {
        return is_as_told(words + 2);
    }
    struct stat self;
    CHECK(mkdtemp(folder) != NULL && chmod(folder, 0755) == 0);
    snprintf(copy, sizeof copy, "%s/copy", folder);
    int from = open("/proc/self/exe", O_RDONLY), to = open(copy, O_CREAT | O_WRONLY | O_CLOEXEC, 0755);
    CHECK(from >= 0 && to >= 0 && fstat(from, &self) == 0);
    while (lseek(from, 0, SEEK_CUR) < self.st_size) {
        CHECK(sendfile(to, from, NULL, self.st_size) > 0);
    }
    CHECK(close(to) == 0);

    run(PLAINLY, 0, 0, 0, 0);
    run(WITH_AMBIENT, 0, RAW, RAW, 0);
    give(VFS_CAP_FLAGS_EFFECTIVE, BIND, 0);
    run(PLAINLY, 0, BIND, BIND, 1);
    run(WITHOUT_NEW_PRIVILEGES, 0, 0, 0, 1);
    run(WITH_AMBIENT, 0, BIND, BIND, 1);
    // It does not do without.
    run(WITHIN_BOUNDS, EPERM, 0, 0, 0);
    run(AS_ROOT, EPERM, 0, 0, 0);
    give(0, BIND | RAW, 0);
    run(PLAINLY, 0, 0, BIND | RAW, 1);
    run(WITHIN_BOUNDS, 0, 0, RAW, 1);
    run(AS_ROOT, 0, RAW, RAW, 0);
    // What the user inherits and the file takes.
    give(VFS_CAP_FLAGS_EFFECTIVE, 0, BIND | RAW);
    run(PLAINLY, 0, RAW, RAW, 1);
    run(WITHIN_BOUNDS, 0, RAW, RAW, 1);
    CHECK(removexattr(copy, "security.capability") == 0);
    run(PLAINLY, 0, 0, 0, 0);
    CHECK(unlink(copy) == 0 && rmdir(folder) == 0);
    puts("all tests of files' capabilities passed");
}
