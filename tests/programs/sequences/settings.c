// SPDX-License-Identifier: Apache-2.0 OR MIT
// Random sequences of calls (sequences.h) about what a process has set of itself: limits, priorities, scheduling, prctl(2), names.
// KIND: 0 as root, which does not ask for more than it has had, 1 as another user. Not asked for is what depends on the processor.
#include "sequences.h"
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/utsname.h>

static pid_t somebody(void) {
    static const pid_t all[] = {0, 0, 0, -1, 1 << 22};
    return one_in(3) ? getpid() : ONE_OF(all);
}

static const char *shown(pid_t pid) {
    return pid == getpid() ? "own" : pid == 0 ? "0" : "none";
}

static void limits(void) {
    static const rlim_t all[] = {0, 1, 100, 4096, 1 << 20, RLIM_INFINITY};
    // What the program needs itself is left alone, and what was given it.
    static const int which[] = {RLIMIT_CPU, RLIMIT_CORE, RLIMIT_RSS, RLIMIT_MEMLOCK, RLIMIT_LOCKS, RLIMIT_SIGPENDING, RLIMIT_MSGQUEUE, RLIMIT_RTTIME, 16, -1};
    static char was_set[16];
    int resource = ONE_OF(which);
    struct rlimit64 old = {77, 77}, new = {ONE_OF(all), ONE_OF(all)};
    int is_known = resource >= 0 && resource < 16;
    if (resource == RLIMIT_CPU)
        new.rlim_cur = new.rlim_max = RLIM_INFINITY;
    pid_t pid = somebody();
    if (one_in(2)) {
        say("prlimit %s %d", shown(pid), resource);
        int result = prlimit64(pid, resource, 0, &old);
        if (result == 0 && is_known && was_set[resource])
            say(" %llx %llx", (unsigned long long)old.rlim_cur, (unsigned long long)old.rlim_max);
        answered(result);
        return;
    }
    prlimit64(0, resource, 0, &old);
    // Who may raise a limit is not the same everywhere.
    if (new.rlim_max > old.rlim_max && geteuid() == 0)
        new.rlim_max = old.rlim_max;
    // And before all have been set once none is larger.
    if (is_known && !was_set[resource])
        new.rlim_cur = new.rlim_max = 100;
    say("prlimit %s %d %llx %llx", shown(pid), resource, (unsigned long long)new.rlim_cur, (unsigned long long)new.rlim_max);
    int result = prlimit64(pid, resource, &new, 0);
    if (result == 0)
        was_set[resource] = 1;
    answered(result);
}

static void priorities(void) {
    static const int all[] = {PRIO_PROCESS, PRIO_PROCESS, PRIO_PGRP, PRIO_USER, 9};
    int which = ONE_OF(all), value = (int)below(50) - 25;
    pid_t who = which == PRIO_USER ? (one_in(2) ? 0 : 4242) : somebody();
    if (one_in(2)) {
        errno = 0;
        say("getpriority %d %s", which, shown(who));
        long result = syscall(SYS_getpriority, which, who);
        answered(result);
    } else if (one_in(3)) {
        say("nice %d", value);
        errno = 0;
        int result = nice(value);
        say(" %d", errno ? 0 : result);
        answered(errno ? -1 : 0);
    } else {
        say("setpriority %d %s %d", which, shown(who), value);
        answered(setpriority(which, who, value));
    }
}

static void scheduling(void) {
    static const int policies[] = {SCHED_OTHER, SCHED_OTHER, SCHED_BATCH, SCHED_IDLE, SCHED_OTHER | SCHED_RESET_ON_FORK, SCHED_BATCH | SCHED_RESET_ON_FORK, 4, 6, 8, -1};
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } attributes = {0};
    struct sched_param parameter = {one_in(4) ? (int)below(120) - 10 : 0};
    struct timespec slice = {0};
    int policy = ONE_OF(policies);
    pid_t pid = somebody();
    long result;
    switch (below(9)) {
    case 0:
        say("sched_setscheduler %s %x %d", shown(pid), (unsigned)policy, parameter.sched_priority);
        result = syscall(SYS_sched_setscheduler, pid, policy, &parameter);
        break;
    case 1:
        say("sched_getscheduler %s", shown(pid));
        result = syscall(SYS_sched_getscheduler, pid);
        break;
    case 2:
        say("sched_setparam %s %d", shown(pid), parameter.sched_priority);
        result = syscall(SYS_sched_setparam, pid, &parameter);
        break;
    case 3:
        result = syscall(SYS_sched_getparam, pid, &parameter);
        say("sched_getparam %s %d", shown(pid), result == 0 ? parameter.sched_priority : 0);
        break;
    case 4:
        say("sched_get_priority_max %d", policy);
        result = syscall(one_in(2) ? SYS_sched_get_priority_max : SYS_sched_get_priority_min, policy);
        break;
    case 5:
        say("sched_setattr %s", shown(pid));
        attributes.size = one_in(5) ? below(70) : sizeof attributes;
        attributes.policy = (uint32_t)policy & ~SCHED_RESET_ON_FORK;
        attributes.flags = one_in(3) ? below(16) : 0;
        attributes.nice = (int)below(50) - 25;
        say(" %u %d %llx %d", attributes.size, (int)attributes.policy, (unsigned long long)attributes.flags, attributes.nice);
        result = syscall(SYS_sched_setattr, pid, &attributes, one_in(10));
        break;
    case 6: {
        unsigned size = one_in(4) ? below(80) : sizeof attributes;
        say("sched_getattr %s %u", shown(pid), size);
        result = syscall(SYS_sched_getattr, pid, &attributes, size > sizeof attributes ? sizeof attributes : size, one_in(10));
        if (result == 0)
            say(" %u %d %llx %d %u", attributes.size, (int)attributes.policy, (unsigned long long)attributes.flags, attributes.nice, attributes.priority);
        break;
    }
    case 7:
        say("sched_rr_get_interval %s", shown(pid));
        result = syscall(SYS_sched_rr_get_interval, pid, &slice);
        break;
    default: {
        unsigned long mask[16] = {1};
        size_t size = one_in(3) ? below(12) : sizeof mask;
        say("sched_setaffinity %s %zu", shown(pid), size);
        if (one_in(5))
            mask[0] = 0;
        result = syscall(SYS_sched_setaffinity, pid, size, mask);
    }
    }
    answered(result);
}

static void controls(void) {
    static const struct {
        int option;
        const char *name;
        uint32_t most;
    } all[] = {
        {PR_SET_PDEATHSIG, "PDEATHSIG", 70}, {PR_SET_DUMPABLE, "DUMPABLE", 4}, {PR_GET_DUMPABLE, "get DUMPABLE", 1}, {PR_SET_KEEPCAPS, "KEEPCAPS", 3},
        {PR_GET_KEEPCAPS, "get KEEPCAPS", 1}, {PR_SET_TIMERSLACK, "TIMERSLACK", 100000}, {PR_GET_TIMERSLACK, "get TIMERSLACK", 1}, {PR_SET_NO_NEW_PRIVS, "NO_NEW_PRIVS", 3},
        {PR_GET_NO_NEW_PRIVS, "get NO_NEW_PRIVS", 2}, {PR_SET_CHILD_SUBREAPER, "CHILD_SUBREAPER", 3}, {PR_SET_THP_DISABLE, "THP_DISABLE", 3}, {PR_GET_THP_DISABLE, "get THP_DISABLE", 2},
        {PR_CAPBSET_READ, "CAPBSET_READ", 24}, {PR_GET_SECUREBITS, "get SECUREBITS", 1}, {PR_SET_FP_MODE, "FP_MODE", 2}, {PR_GET_SECCOMP, "get SECCOMP", 1},
        {PR_MCE_KILL, "MCE_KILL", 3}, {PR_MCE_KILL_GET, "MCE_KILL_GET", 2}, {PR_SET_TIMING, "TIMING", 2}, {PR_GET_TIMING, "get TIMING", 2}, {PR_SET_UNALIGN, "UNALIGN", 2},
        {PR_CAP_AMBIENT, "CAP_AMBIENT", 6}, {4711, "none", 3}, {PR_SET_TSC, "TSC", 2},
        {PR_SET_PTRACER, "PTRACER", 2}, {PR_TASK_PERF_EVENTS_DISABLE, "PERF_EVENTS_DISABLE", 1},
    };
    int which = (int)below(COUNT(all)), value = -1, number;
    char name[20];
    switch (below(8)) {
    case 0:
        memset(name, 'a' + below(5), sizeof name);
        name[below(sizeof name)] = 0;
        name[sizeof name - 1] = 0;
        say("PR_SET_NAME %s", name);
        answered(prctl(PR_SET_NAME, name));
        return;
    case 1: {
        int result = prctl(PR_GET_NAME, name);
        say("PR_GET_NAME %s", name);
        answered(result);
        return;
    }
    case 2:
        number = one_in(2) ? PR_GET_PDEATHSIG : PR_GET_CHILD_SUBREAPER;
        say("prctl get %d", number);
        int result = prctl(number, &value);
        say(" %d", value);
        answered(result);
        return;
    }
    unsigned long first = below(all[which].most), second = one_in(6) ? 1 : 0, third = one_in(12) ? 1 : 0, fourth = one_in(20) ? 1 : 0;
    say("prctl %s %lu %lu %lu %lu", all[which].name, first, second, third, fourth);
    answered(syscall(SYS_prctl, all[which].option, first, second, third, fourth));
}

static void names(void) {
    static const unsigned long all[] = {0xffffffff, 0xffffffff, 0, ADDR_NO_RANDOMIZE, 8};
    struct utsname about;
    int masks[] = {0, 022, 077, 0777, 01777};
    unsigned long wanted;
    switch (below(6)) {
    case 0:
        wanted = ONE_OF(all);
        say("personality %lx", wanted);
        answered(personality(wanted));
        return;
    case 1: {
        int mask = ONE_OF(masks);
        say("umask %o", mask);
        answered(umask((mode_t)mask));
        return;
    }
    case 2: say("sysname"); answered(uname(&about)); return;
    case 3: say("getpgid %d", getpgid(0) == getpgrp()); answered(getpgid(one_in(3) ? 1 << 22 : 0) < 0 ? -1 : 0); return;
    case 4: {
        long which = one_in(4) ? 7 : 1, who = one_in(4) ? 1 << 22 : 0;
        say("ioprio_get %ld %ld", which, who);
        answered(syscall(SYS_ioprio_get, which, who));
        return;
    }
    default: {
        static const int classes[] = {0, 1, 2, 2, 3, 4, 7};
        int class = ONE_OF(classes), level = (int)below(10);
        say("ioprio_set %d %d", class, level);
        answered(syscall(SYS_ioprio_set, one_in(12) ? 9 : 1, one_in(12) ? 1 << 22 : 0, class << 13 | level));
    }
    }
}

static void capabilities(void) {
    struct __user_cap_header_struct header = {one_in(6) ? 77 : _LINUX_CAPABILITY_VERSION_3, one_in(6) ? (one_in(2) ? 1 << 22 : -1) : 0};
    struct __user_cap_data_struct data[2] = {0};
    say("capget %x %d", header.version, header.pid);
    long result = syscall(SYS_capget, &header, one_in(8) ? 0 : data);
    say(" version %x", header.version);
    answered(result);
}

static void (*const steps[])(void) = {limits, limits, priorities, priorities, scheduling, scheduling, scheduling, controls, controls, controls, names, capabilities};

int main(int count, char **arguments) {
    int kind;
    long total = begin(count, arguments, &kind);
    umask(022);
    prctl(PR_SET_PDEATHSIG, 0);
    prctl(PR_SET_NAME, "name");
    if (kind == 1 && (setgid(4242) || setuid(4242))) {
        perror("setuid");
        return 1;
    }
    setpgid(0, 0);
    run_steps(steps, COUNT(steps), total, 0);
    return 0;
}
