// SPDX-License-Identifier: Apache-2.0 OR MIT
// Programs with set-user-ID and set-group-ID bits (execve(2)), run by a user who is not root. It is run by root, and copies itself.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { USER = 1000, OWNER = 1234, GROUP = 2345 };

enum how { PLAINLY, WITHOUT_NEW_PRIVILEGES, TRACED, WITH_A_SHARED_ROOT };

static char folder[] = "/tmp/set-id-XXXXXX", copy[64], script[64];

static void make(uid_t owner, gid_t group, mode_t mode) {
    CHECK(chown(copy, owner, group) == 0 && chmod(copy, mode) == 0);
}

static unsigned long long effective_capabilities(void) {
    struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct data[2];
    CHECK(syscall(SYS_capget, &header, data) == 0);
    return data[0].effective | (unsigned long long)data[1].effective << 32;
}

static int suid_dumpable(void) {
    char text[8] = "0";
    int fd = open("/proc/sys/fs/suid_dumpable", O_RDONLY | O_CLOEXEC);
    CHECK(fd < 0 || read(fd, text, sizeof text - 1) > 0);
    CHECK(fd < 0 || close(fd) == 0);
    return atoi(text);
}

// What the copy was started as: its exit status tells whether it is what its arguments say.
static int is_as_told(char **words, enum how how) {
    uid_t u[3], expected_user = atoi(words[0]);
    gid_t g[3], expected_group = atoi(words[1]);
    CHECK(getresuid(&u[0], &u[1], &u[2]) == 0 && getresgid(&g[0], &g[1], &g[2]) == 0);
    CHECK(u[0] == USER && u[1] == expected_user && u[2] == expected_user);
    CHECK(g[0] == USER && g[1] == expected_group && g[2] == expected_group);
    int gains = expected_user != USER || expected_group != USER, signal = -1;
    // The bits are not heeded then, and the environment is not trusted all the same.
    int is_secure = gains || how == TRACED || how == WITH_A_SHARED_ROOT;
    CHECK(getauxval(AT_SECURE) == (unsigned long)is_secure);
    CHECK(getauxval(AT_UID) == USER && getauxval(AT_EUID) == expected_user && getauxval(AT_EGID) == expected_group);
    // Who may look into it is a setting of the system, and its parent's end does not concern it.
    CHECK(prctl(PR_GET_DUMPABLE) == (gains ? suid_dumpable() : 1));
    CHECK(prctl(PR_GET_PDEATHSIG, &signal) == 0 && signal == (is_secure ? 0 : SIGUSR1));
    CHECK((effective_capabilities() != 0) == (expected_user == 0));
    if (expected_user == 0) {
        CHECK(setresuid(0, 0, 0) == 0);
    } else if (gains && expected_user != USER) {
        CHECK(seteuid(USER) == 0 && seteuid(expected_user) == 0 && setuid(0) == -1);
    }
    return 0;
}

static int sharing(void *unused) {
    (void)unused;
    pause();
    return 0;
}

static void become_user(void) {
    CHECK(setgroups(0, NULL) == 0 && setresgid(USER, USER, USER) == 0 && setresuid(USER, USER, USER) == 0);
    CHECK(prctl(PR_SET_DUMPABLE, 1) == 0);
}

static void run(const char *path, enum how how, uid_t user, gid_t group) {
    static char stack[65536];
    char words[2][16];
    snprintf(words[0], sizeof words[0], "%u", user);
    snprintf(words[1], sizeof words[1], "%u", group);
    // The tracer is a user's process, too.
    pid_t outer = fork();
    if (outer == 0) {
        become_user();
        pid_t inner = fork(), other = 0;
        if (inner == 0) {
            CHECK(prctl(PR_SET_PDEATHSIG, SIGUSR1) == 0);
            CHECK(how != WITHOUT_NEW_PRIVILEGES || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
            CHECK(how != TRACED || ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0);
            if (how == WITH_A_SHARED_ROOT) {
                other = clone(sharing, stack + sizeof stack, CLONE_FS | SIGCHLD, NULL);
                CHECK(other > 0);
            }
            char pid[16], manner[16];
            snprintf(pid, sizeof pid, "%d", other);
            snprintf(manner, sizeof manner, "%d", how);
            execl(path, "copy", "told", words[0], words[1], manner, pid, NULL);
            perror("execl");
            _exit(2);
        }
        int status;
        while (waitpid(inner, &status, 0) == inner && WIFSTOPPED(status)) {
            CHECK(ptrace(PTRACE_CONT, inner, NULL, NULL) == 0);
        }
        _exit(status != 0);
    }
    int status;
    CHECK(outer > 0 && waitpid(outer, &status, 0) == outer && status == 0);
}

int main(int count, char **words) {
    // An interpreter is told the path of its script first.
    if (count == 7) {
        words++;
        count--;
    }
    if (count == 6 && strcmp(words[1], "told") == 0) {
        int status = is_as_told(words + 2, atoi(words[4]));
        pid_t other = atoi(words[5]);
        return other > 0 && kill(other, SIGKILL) != 0 ? 3 : status;
    }
    struct stat self;
    CHECK(mkdtemp(folder) != NULL && chmod(folder, 0755) == 0);
    snprintf(copy, sizeof copy, "%s/copy", folder);
    snprintf(script, sizeof script, "%s/script", folder);
    int from = open("/proc/self/exe", O_RDONLY), to = open(copy, O_CREAT | O_WRONLY | O_CLOEXEC, 0755);
    CHECK(from >= 0 && to >= 0 && fstat(from, &self) == 0);
    while (lseek(from, 0, SEEK_CUR) < self.st_size) {
        CHECK(sendfile(to, from, NULL, self.st_size) > 0);
    }
    CHECK(close(to) == 0);

    make(OWNER, GROUP, 0755);
    run(copy, PLAINLY, USER, USER);
    make(OWNER, GROUP, 04755);
    run(copy, PLAINLY, OWNER, USER);
    make(OWNER, GROUP, 02755);
    run(copy, PLAINLY, USER, GROUP);
    make(OWNER, GROUP, 06755);
    run(copy, PLAINLY, OWNER, GROUP);
    // Without the group's right to execute the bit is another one.
    make(OWNER, GROUP, 02745);
    run(copy, PLAINLY, USER, USER);
    make(0, 0, 04755);
    run(copy, PLAINLY, 0, USER);
    run(copy, WITHOUT_NEW_PRIVILEGES, USER, USER);
    run(copy, TRACED, USER, USER);
    run(copy, WITH_A_SHARED_ROOT, USER, USER);

    // The bits of a script count for nothing; those of its interpreter do.
    FILE *file = fopen(script, "w");
    CHECK(file != NULL && fprintf(file, "#!%s\n", copy) > 0 && fclose(file) == 0);
    make(OWNER, GROUP, 0755);
    CHECK(chown(script, 0, 0) == 0 && chmod(script, 06755) == 0);
    run(script, PLAINLY, USER, USER);
    make(OWNER, GROUP, 06755);
    run(script, PLAINLY, OWNER, GROUP);

    // Who writes to it takes the bits away.
    make(0, 0, 06777);
    pid_t writer = fork();
    if (writer == 0) {
        become_user();
        int fd = open(copy, O_WRONLY | O_APPEND);
        _exit(fd < 0 || write(fd, "x", 1) != 1);
    }
    int status;
    struct stat after;
    CHECK(waitpid(writer, &status, 0) == writer && status == 0 && stat(copy, &after) == 0);
    CHECK((after.st_mode & 07777) == 0777);
    CHECK(unlink(copy) == 0 && unlink(script) == 0 && rmdir(folder) == 0);
    puts("all set-id tests passed");
}
