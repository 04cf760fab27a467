// SPDX-License-Identifier: Apache-2.0 OR MIT
// Random sequences of calls (sequences.h) on who a process is and what it may do: users, groups, capability sets, securebits.
// A step runs in one of four processes, which do what they are told one after another; one that can do nothing any more is
// replaced. To be run by root.
#include "sequences.h"
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { CAPABILITIES = 41 };

static uint32_t some_id(void) {
    static const uint32_t ids[] = {0, 0, 1, 2, 1000, 1000, 1001, 65534, (uint32_t)-1, (uint32_t)-1};
    return ONE_OF(ids);
}

// A set of capabilities that tells the ones that matter here.
static uint64_t some_set(void) {
    static const int known[] = {CAP_SETUID, CAP_SETGID, CAP_SETPCAP, CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_SYS_ADMIN, CAP_KILL};
    if (one_in(3))
        return ((uint64_t)1 << CAPABILITIES) - 1;
    uint64_t set = 0;
    for (size_t i = 0; i < COUNT(known); i++)
        if (!one_in(3))
            set |= (uint64_t)1 << known[i];
    return set;
}

static int some_capability(void) {
    static const int known[] = {CAP_SETUID, CAP_SETGID, CAP_SETPCAP, CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_KILL, 40, 41, 63, 64, -1};
    return ONE_OF(known);
}

static void sets_users(void) {
    uint32_t r = some_id(), e = some_id(), s = some_id();
    switch (below(5)) {
    case 0: say("setuid %d", r); answered(syscall(SYS_setuid, r)); return;
    case 1: say("setreuid %d %d", r, e); answered(syscall(SYS_setreuid, r, e)); return;
    case 2: say("setfsuid %d", r); answered(setfsuid(r)); return;
    default: say("setresuid %d %d %d", r, e, s); answered(syscall(SYS_setresuid, r, e, s)); return;
    }
}

static void sets_groups(void) {
    uint32_t r = some_id(), e = some_id(), s = some_id();
    switch (below(6)) {
    case 0: say("setgid %d", r); answered(syscall(SYS_setgid, r)); return;
    case 1: say("setregid %d %d", r, e); answered(syscall(SYS_setregid, r, e)); return;
    case 2: say("setfsgid %d", r); answered(setfsgid(r)); return;
    case 3: {
        gid_t list[3] = {r, e, s};
        int count = (int)below(5) - 1;
        say("setgroups %d: %d %d %d", count, r, e, s);
        answered(syscall(SYS_setgroups, count, list));
        return;
    }
    default: say("setresgid %d %d %d", r, e, s); answered(syscall(SYS_setresgid, r, e, s)); return;
    }
}

static void sets_capabilities(void) {
    static const uint32_t versions[] = {0x20080522, 0x20080522, 0x20080522, 0x20080522, 0x20071026, 0x19980330, 0, 7};
    struct __user_cap_header_struct header = {ONE_OF(versions), one_in(10) ? 1 : 0};
    struct __user_cap_data_struct now[2], data[2];
    struct __user_cap_header_struct mine = {0x20080522, 0};
    syscall(SYS_capget, &mine, now);
    uint64_t e = some_set(), p = some_set(), i = some_set();
    // What it has, less something, is more often allowed.
    if (!one_in(4))
        p &= now[0].permitted | (uint64_t)now[1].permitted << 32;
    if (!one_in(4))
        e &= p;
    data[0] = (struct __user_cap_data_struct){(uint32_t)e, (uint32_t)p, (uint32_t)i};
    data[1] = (struct __user_cap_data_struct){(uint32_t)(e >> 32), (uint32_t)(p >> 32), (uint32_t)(i >> 32)};
    say("capset %x %d e %llx p %llx i %llx", header.version, header.pid, (long long)e, (long long)p, (long long)i);
    long result = syscall(SYS_capset, &header, data);
    if (result < 0 && header.version == 0x20080522)
        say(" (version)");
    answered(result);
}

static void changes_by_prctl(void) {
    static const unsigned long ambient[] = {PR_CAP_AMBIENT_RAISE, PR_CAP_AMBIENT_RAISE, PR_CAP_AMBIENT_LOWER, PR_CAP_AMBIENT_IS_SET,
                                            PR_CAP_AMBIENT_CLEAR_ALL, 0, 9};
    unsigned long a = 0, b = 0, c = 0;
    int option;
    switch (below(9)) {
    case 0: option = PR_SET_KEEPCAPS; a = below(3); break;
    case 1: option = PR_SET_SECUREBITS; a = one_in(8) ? 1u << below(8) : below(4) ? below(64) & ~(one_in(2) ? 0x2a : 0) : 0; break;
    case 2: option = PR_CAPBSET_DROP; a = some_capability(); break;
    case 3: option = PR_CAPBSET_READ; a = some_capability(); break;
    case 4: option = PR_SET_NO_NEW_PRIVS; a = one_in(8) ? below(3) : 0; b = one_in(8); break;
    case 5: option = PR_SET_DUMPABLE; a = below(4); break;
    default: option = PR_CAP_AMBIENT; a = ONE_OF(ambient); b = some_capability(); c = one_in(12); break;
    }
    say("prctl %d %ld %ld %ld", option, a, b, c);
    answered(prctl(option, a, b, c, 0));
}

static void asks(void) {
    static const int options[] = {PR_GET_KEEPCAPS, PR_GET_SECUREBITS, PR_GET_NO_NEW_PRIVS, PR_GET_DUMPABLE};
    int option = ONE_OF(options);
    say("prctl %d", option);
    answered(prctl(option, 0, 0, 0, 0));
}

// The lines of a process' status that this is about.
static void looks(void) {
    static const char *const wanted[] = {"Uid", "Gid", "Groups", "Cap", "NoNewPrivs"};
    char text[8192];
    int file = open("/proc/thread-self/status", O_RDONLY);
    long length = file < 0 ? -1 : read(file, text, sizeof text - 1);
    close(file);
    say("status");
    if (length > 0) {
        text[length] = 0;
        for (char *line = strtok(text, "\n"); line; line = strtok(0, "\n"))
            for (size_t i = 0; i < COUNT(wanted); i++)
                if (strncmp(line, wanted[i], strlen(wanted[i])) == 0)
                    say(" | %s", line);
    }
    answered(length > 0 ? 0 : -1);
}

// Files of several owners, what may be done with them.
static void uses_files(void) {
    static const char *const names[] = {"of-0", "of-1", "of-1000", "set-id", "sticky/of-1", "sticky/of-0"};
    static const mode_t modes[] = {0600, 0644, 02755, 04755, 06755, 02644};
    const char *name = ONE_OF(names);
    struct stat s;
    uint32_t owner = some_id(), group = some_id();
    mode_t mode = ONE_OF(modes);
    switch (below(6)) {
    case 0: say("chown %s %d %d", name, owner, group); answered(chown(name, owner, group)); break;
    case 1: say("chmod %s %o", name, mode); answered(chmod(name, mode)); break;
    case 2: say("access %s", name); answered(access(name, below(8))); break;
    case 3: {
        int file = open(name, O_WRONLY | (one_in(3) ? O_NOATIME : 0));
        say("open and write %s", name);
        answered(file < 0 ? file : write(file, "1", 1));
        close(file);
        break;
    }
    case 4: {
        say("unlink and make %s", name);
        int code = unlink(name), error = errno, file = open(name, O_CREAT | O_EXCL | O_RDWR, mode);
        say(" (%s)", code ? strerrorname_np(error) : "0");
        answered(file < 0 ? -1 : 0);
        close(file);
        break;
    }
    default: break;
    }
    say(" stat %s", name);
    int result = stat(name, &s);
    if (result == 0)
        say(" %o %d %d", s.st_mode, s.st_uid, s.st_gid);
    answered(result);
}

static pid_t others[3];

static void acts_on_others(void) {
    static const int signals[] = {0, 0, 23, 17};
    int n = (int)below(COUNT(others)), signal = ONE_OF(signals);
    struct rlimit limit;
    switch (below(4)) {
    case 0: say("kill process %d %d", n, signal); answered(kill(others[n], signal)); return;
    case 1: say("getpriority %d", n); answered(getpriority(PRIO_PROCESS, others[n])); return;
    case 2: say("setpriority %d", n); answered(setpriority(PRIO_PROCESS, others[n], 5)); return;
    default: say("prlimit %d", n); answered(prlimit(others[n], RLIMIT_CORE, 0, &limit)); return;
    }
}

static void (*const steps[])(void) = {
    sets_users, sets_users, sets_groups, sets_groups, sets_capabilities, sets_capabilities, changes_by_prctl, changes_by_prctl, asks,
    looks, looks, uses_files, uses_files, acts_on_others,
};

// Where this runs natively not everything is left to root.
static void give_up(int capability) {
    struct __user_cap_header_struct header = {0x20080522, 0};
    struct __user_cap_data_struct data[2];
    prctl(PR_CAPBSET_DROP, capability);
    syscall(SYS_capget, &header, data);
    data[0].permitted &= ~(1u << capability);
    data[0].effective &= data[0].permitted;
    syscall(SYS_capset, &header, data);
}

int main(int count, char **arguments) {
    static const uint32_t owners[] = {0, 1, 1000};
    char directory[] = "/tmp/sequence-XXXXXX";
    int kind;
    long total = begin(count, arguments, &kind);
    if (!mkdtemp(directory) || chdir(directory) || chmod(".", 0777) || mkdir("sticky", 0755) || chmod("sticky", 01777)) {
        perror(directory);
        return 1;
    }
    for (size_t i = 0; i < COUNT(owners); i++) {
        others[i] = fork();
        if (others[i] == 0) {
            give_up(CAP_SYS_RESOURCE);
            // Whatever this was started with.
            setpriority(PRIO_PROCESS, 0, 19);
            if (setgroups(0, 0) || setresgid(owners[i], owners[i], owners[i]) || setresuid(owners[i], owners[i], owners[i]))
                _exit(1);
            for (;;)
                pause();
        }
    }
    usleep(100000);
    // A process that has given up what it had gets no further: each makes only so many steps.
    for (long done = 0; done < total; done += 40) {
        static const struct { const char *name; uint32_t owner; mode_t mode; } files[] = {
            {"of-0", 0, 0644}, {"of-1", 1, 0640}, {"of-1000", 1000, 0606}, {"set-id", 1000, 06755}, {"sticky/of-1", 1, 0644}, {"sticky/of-0", 0, 0600},
        };
        for (size_t i = 0; i < COUNT(files); i++) {
            unlink(files[i].name);
            close(open(files[i].name, O_CREAT | O_RDWR, 0600));
            if (chown(files[i].name, files[i].owner, files[i].owner) || chmod(files[i].name, files[i].mode))
                return 1;
        }
        uint64_t seed = state + 977 * (uint64_t)(done + 1);
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            state = seed;
            give_up(CAP_SYS_RESOURCE);
            run_steps(steps, COUNT(steps), 40, 0);
            _exit(0);
        }
        waitpid(child, 0, 0);
    }
    for (size_t i = 0; i < COUNT(others); i++)
        kill(others[i], 9);
    return 0;
}
