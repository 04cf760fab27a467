// SPDX-License-Identifier: Apache-2.0 OR MIT
// Random sequences of calls (sequences.h) on eight descriptors of files in memory, directories, pipes and paths: what a descriptor may, how it
// is opened again, sealed, leased and locked, and where names lead from it.
#include "sequences.h"
#include <fcntl.h>
#include <linux/openat2.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>

enum { SLOTS = 8, FIRST = 30, NONE = 99 };

// Slots are the descriptors from FIRST on.
static int any(void) {
    return one_in(30) ? NONE : FIRST + (int)below(SLOTS);
}

// The slots that what is opened gets: drawn whether the call succeeds or not, so that one that differs does not change all behind it.
static int next[2];

static int slot_for(int descriptor, int which) {
    if (descriptor >= 0 && descriptor != next[which]) {
        dup2(descriptor, next[which]);
        close(descriptor);
    }
    return next[which];
}

static const char *name(void) {
    static const char *const all[] = {"a", "b", "d", "d/a", "d/e", "d/e/a", "s", "d/s", "d/up", "loop", ".", "..", "/", "d/..", "d/../a", "/tmp/a", "", "a/", "d/", "s/a", "proc"};
    return ONE_OF(all);
}

static int flags(void) {
    static const int all[] = {O_RDONLY, O_RDONLY, O_WRONLY, O_RDWR, O_RDWR | O_CREAT, O_RDWR | O_CREAT | O_EXCL, O_RDWR | O_TRUNC, O_PATH, O_PATH | O_NOFOLLOW, O_RDONLY | O_DIRECTORY,
        O_RDONLY | O_NOFOLLOW, O_WRONLY | O_APPEND, O_RDWR | O_TMPFILE, 3, O_RDONLY | O_NOATIME, O_RDWR | O_CREAT | O_NOFOLLOW};
    return ONE_OF(all) | O_NONBLOCK;
}

static int from(void) {
    return one_in(2) ? AT_FDCWD : any();
}

static const char *shown(int descriptor) {
    static char text[2][12];
    static int which;
    which ^= 1;
    snprintf(text[which], sizeof text[which], "%d", descriptor == AT_FDCWD ? 0 : descriptor);
    return text[which];
}

static void opens(void) {
    int at = from(), how = flags(), result;
    const char *named = name();
    say("openat %s '%s' %o", shown(at), named, how);
    result = openat(at, named, how, 0640);
    if (result >= 0)
        say(" to %d %o", slot_for(result, 0), 0);
    answered(result < 0 ? -1 : 0);
}

static void opens_carefully(void) {
    static const uint64_t all[] = {0, RESOLVE_BENEATH, RESOLVE_IN_ROOT, RESOLVE_NO_SYMLINKS, RESOLVE_NO_MAGICLINKS, RESOLVE_NO_XDEV, RESOLVE_BENEATH | RESOLVE_IN_ROOT, 1 << 20};
    struct open_how how = {.flags = (uint64_t)flags(), .resolve = ONE_OF(all)};
    char grown[sizeof how + 8] = {0};
    int at = from();
    size_t size = one_in(15) ? below(40) : sizeof how;
    const char *named = name();
    how.mode = how.flags & (O_CREAT | __O_TMPFILE) ? (one_in(10) ? 0100600 : 0600) : one_in(10);
    memcpy(grown, &how, sizeof how);
    if (size > sizeof how && one_in(2))
        grown[sizeof how] = 1;
    say("openat2 %s '%s' %llo %llo %llx in %zu", shown(at), named, how.flags, how.mode, how.resolve, size);
    long result = syscall(SYS_openat2, at, named, grown, size > sizeof grown ? sizeof grown : size);
    if (result >= 0)
        say(" to %d", slot_for((int)result, 0));
    answered(result < 0 ? -1 : 0);
}

static void makes(void) {
    int two[2], result;
    switch (below(5)) {
    case 0: {
        unsigned how = (one_in(3) ? 0 : MFD_ALLOW_SEALING) | (one_in(3) ? MFD_CLOEXEC : 0) | (one_in(15) ? 0x100 : 0);
        result = memfd_create("name", how);
        say("memfd_create %x", how);
        if (result >= 0)
            say(" to %d", slot_for(result, 0));
        break;
    }
    case 1: {
        int how = O_NONBLOCK | (one_in(5) ? O_DIRECT : 0) | (one_in(20) ? O_APPEND : 0);
        result = pipe2(two, how);
        say("pipe2 %o", how);
        if (result == 0) {
            say(" to %d", slot_for(two[0], 0));
            say(" %d", slot_for(two[1], 1));
        }
        break;
    }
    case 2: {
        char path[40];
        int again = any(), how = flags() & ~O_CREAT;
        snprintf(path, sizeof path, "/proc/self/fd/%d", again);
        say("open again %d %o", again, how);
        result = open(path, how, 0600);
        if (result >= 0)
            say(" to %d", slot_for(result, 0));
        break;
    }
    case 3: {
        int of = any(), to = any(), how = one_in(3) ? O_CLOEXEC : one_in(8) ? O_NONBLOCK : 0;
        say("dup3 %d %d %o", of, to, how);
        result = to == NONE ? 0 : dup3(of, to, how);
        break;
    }
    default: {
        int first = any(), last = first + (int)below(3) - 1, how = one_in(2) ? 4 : one_in(10) ? 64 : 0;
        say("close_range %d %d %x", first, last, how);
        result = (int)syscall(SYS_close_range, first, last, how);
    }
    }
    answered(result < 0 ? -1 : 0);
}

static void names(void) {
    static const int ways[] = {0, 0, AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW, AT_SYMLINK_FOLLOW, 4, AT_REMOVEDIR};
    int at = from(), to = from(), how = ONE_OF(ways);
    const char *one = name(), *two = name();
    char bytes[60];
    struct stat s;
    long result;
    switch (below(16)) {
    case 0: say("mkdirat %s '%s'", shown(at), one); result = mkdirat(at, one, 0755); break;
    case 1: say("unlinkat %s '%s' %x", shown(at), one, how); result = unlinkat(at, one, how); break;
    case 2: say("linkat %s '%s' %s '%s' %x", shown(at), one, shown(to), two, how); result = linkat(at, one, to, two, how); break;
    case 3: say("symlinkat '%s' %s '%s'", one, shown(at), two); result = symlinkat(one, at, two); break;
    case 4:
        say("readlinkat %s '%s'", shown(at), one);
        result = readlinkat(at, one, bytes, sizeof bytes);
        if (result >= 0)
            say_bytes(bytes, result);
        break;
    case 5: say("fchmodat %s '%s'", shown(at), one); result = fchmodat(at, one, one_in(2) ? 0700 : 0644, 0); break;
    case 6: say("fchownat %s '%s' %x", shown(at), one, how); result = fchownat(at, one, one_in(2) ? 0 : 7, (gid_t)-1, how); break;
    case 7:
        say("fstatat %s '%s' %x", shown(at), one, how);
        result = fstatat(at, one, &s, how);
        if (result == 0)
            say(" %o %u links %lu", S_ISDIR(s.st_mode) ? S_IFDIR : s.st_mode, s.st_uid, S_ISDIR(s.st_mode) ? 0 : (unsigned long)s.st_nlink);
        break;
    case 8: say("faccessat2 %s '%s' %x", shown(at), one, how); result = syscall(SYS_faccessat2, at, one, (int)below(9), how); break;
    case 9: say("utimensat %s '%s' %x", shown(at), one, how); result = utimensat(at, one, 0, how); break;
    case 10: say("utimensat of %d", at); result = syscall(SYS_utimensat, at, 0, 0, 0); break;
    case 11: say("renameat %s '%s' %s '%s'", shown(at), one, shown(to), two); result = renameat(at, one, to, two); break;
    case 12: say("fchdir %d", at); result = at == AT_FDCWD ? 0 : fchdir(at); chdir("/tmp"); break;
    case 13: say("mknodat %s '%s'", shown(at), one); result = mknodat(at, one, one_in(2) ? S_IFIFO | 0600 : S_IFSOCK | 0600, 0); break;
    case 14: {
        struct {
            struct file_handle handle;
            char room[128];
        } handle = {.handle.handle_bytes = one_in(8) ? 2 : 128};
        int mount;
        how &= AT_EMPTY_PATH | AT_SYMLINK_FOLLOW | 4;
        say("name_to_handle_at %s '%s' %x", shown(at), one, how);
        result = name_to_handle_at(at, one, &handle.handle, &mount, how);
        break;
    }
    default: {
        struct statx x;
        say("statx %s '%s' %x", shown(at), one, how);
        result = statx(at, one, how, STATX_BASIC_STATS, &x);
        if (result == 0)
            say(" %o %u", S_ISDIR(x.stx_mode) ? S_IFDIR : x.stx_mode, S_ISDIR(x.stx_mode) ? 0 : x.stx_nlink);
    }
    }
    answered(result);
}

static void controls(void) {
    static const int seals[] = {F_SEAL_WRITE, F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_SEAL, F_SEAL_FUTURE_WRITE, F_SEAL_WRITE | F_SEAL_GROW, 0, 0x40};
    int descriptor = any(), value, result;
    switch (below(15)) {
    case 0: value = ONE_OF(seals); say("F_ADD_SEALS %d %x", descriptor, value); result = fcntl(descriptor, F_ADD_SEALS, value); break;
    case 1: say("F_GET_SEALS %d", descriptor); result = fcntl(descriptor, F_GET_SEALS); break;
    case 2: say("F_GETFD %d", descriptor); result = fcntl(descriptor, F_GETFD); break;
    case 3: value = (int)below(3); say("F_SETFD %d %d", descriptor, value); result = fcntl(descriptor, F_SETFD, value); break;
    case 4: say("F_GETFL %d", descriptor); result = fcntl(descriptor, F_GETFL); break;
    case 5: {
        static const int all[] = {O_NONBLOCK, O_NONBLOCK | O_APPEND, O_NONBLOCK | O_NOATIME, O_NONBLOCK | O_ASYNC, O_NONBLOCK | O_RDWR | O_CREAT | O_TRUNC};
        value = ONE_OF(all);
        say("F_SETFL %d %o", descriptor, value);
        result = fcntl(descriptor, F_SETFL, value);
        break;
    }
    case 6: {
        static const int all[] = {F_RDLCK, F_WRLCK, F_UNLCK, 7};
        value = ONE_OF(all);
        say("F_SETLEASE %d %d", descriptor, value);
        result = fcntl(descriptor, F_SETLEASE, value);
        break;
    }
    case 7: say("F_GETLEASE %d", descriptor); result = fcntl(descriptor, F_GETLEASE); break;
    case 8: value = 40000 + (int)below(3) * 40000; say("F_SETPIPE_SZ %d %d", descriptor, value); result = fcntl(descriptor, F_SETPIPE_SZ, value); break;
    case 9: say("F_GETPIPE_SZ %d", descriptor); result = fcntl(descriptor, F_GETPIPE_SZ); break;
    case 10: value = (int)below(80) - 5; say("F_SETSIG %d %d", descriptor, value); result = fcntl(descriptor, F_SETSIG, value); break;
    case 11: say("F_GETSIG %d", descriptor); result = fcntl(descriptor, F_GETSIG); break;
    case 12: {
        static const int all[] = {LOCK_SH, LOCK_EX, LOCK_UN, 0, LOCK_SH | LOCK_EX};
        value = ONE_OF(all) | LOCK_NB;
        say("flock %d %x", descriptor, value);
        result = flock(descriptor, value);
        break;
    }
    case 13: {
        static const int commands[] = {F_OFD_SETLK, F_OFD_SETLK, F_OFD_GETLK, F_SETLK, F_GETLK};
        static const int types[] = {F_RDLCK, F_WRLCK, F_UNLCK, 9};
        struct flock lock = {.l_type = (short)ONE_OF(types), .l_whence = (short)below(3), .l_start = (int)below(6) - 1, .l_len = (int)below(4) - 1};
        value = ONE_OF(commands);
        if (one_in(10))
            lock.l_pid = 1;
        // Linux lists locks by it, since 6.5.
        if (value == F_OFD_GETLK && lock.l_type == F_UNLCK)
            lock.l_type = F_RDLCK;
        say("fcntl %d %d type %d from %d %ld for %ld", descriptor, value, lock.l_type, lock.l_whence, (long)lock.l_start, (long)lock.l_len);
        result = fcntl(descriptor, value, &lock);
        if (result == 0 && (value == F_OFD_GETLK || value == F_GETLK))
            say(" = type %d %ld %ld %d", lock.l_type, (long)lock.l_start, (long)lock.l_len, lock.l_pid == getpid() ? 1 : lock.l_pid);
        break;
    }
    default: {
        static const unsigned long all[] = {FIOCLEX, FIONCLEX, FIONREAD, FIONBIO, FIOASYNC, FIOQSIZE, 0x12345};
        int number = 1;
        unsigned long request = ONE_OF(all);
        say("ioctl %d %lx", descriptor, request);
        result = ioctl(descriptor, request, &number);
        if (result == 0 && request == FIONREAD)
            say(" %d", number);
    }
    }
    answered(result);
}

static void moves_bytes(void) {
    static char bytes[64] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    char room[64];
    int one = any(), two = any(), flag = 0;
    size_t length = below(40);
    off_t at = (off_t)below(50) - one_in(20), other = below(10);
    struct iovec pieces[2] = {{room, length / 2}, {room + 32, length - length / 2}};
    struct iovec given[2] = {{bytes, length / 2}, {bytes + 32, length - length / 2}};
    static const int ways[] = {0, 0, RWF_APPEND, RWF_DSYNC, RWF_HIPRI, 0x1000};
    long result;
    switch (below(18)) {
    case 0:
        say("read %d %zu", one, length);
        result = read(one, room, length);
        if (result > 0)
            say_bytes(room, result);
        break;
    case 1: say("write %d %zu", one, length); result = write(one, bytes, length); break;
    case 2:
        flag = ONE_OF(ways);
        say("preadv2 %d %zu at %ld %x", one, length, (long)at, flag);
        result = preadv2(one, pieces, 2, at, flag);
        break;
    case 3:
        flag = ONE_OF(ways);
        say("pwritev2 %d %zu at %ld %x", one, length, (long)at, flag);
        result = pwritev2(one, given, 2, at, flag);
        break;
    case 4: say("lseek %d %ld", one, (long)at); result = lseek(one, at, (int)below(6)); break;
    case 5: say("ftruncate %d %ld", one, (long)at); result = ftruncate(one, at); break;
    case 6: {
        static const int modes[] = {0, 1, 3, 2};
        flag = ONE_OF(modes);
        say("fallocate %d %x %ld %zu", one, flag, (long)at, length);
        result = fallocate(one, flag, at, (off_t)length);
        break;
    }
    case 7:
        say("splice %d %d %zu", one, two, length);
        result = splice(one, one_in(3) ? &at : 0, two, one_in(3) ? &other : 0, length, SPLICE_F_NONBLOCK | (one_in(15) ? 64 : 0));
        break;
    case 8: say("tee %d %d %zu", one, two, length); result = tee(one, two, length, SPLICE_F_NONBLOCK); break;
    case 9: say("vmsplice %d %zu", one, length); result = vmsplice(one, given, 2, SPLICE_F_NONBLOCK); break;
    case 10: say("sendfile %d %d %zu", one, two, length); result = sendfile(one, two, one_in(2) ? &at : 0, length); break;
    case 11: say("copy_file_range %d %d %zu", one, two, length); result = copy_file_range(one, one_in(2) ? &at : 0, two, one_in(2) ? &other : 0, length, one_in(20)); break;
    case 12: flag = (int)below(8); say("posix_fadvise %d %d", one, flag); result = syscall(SYS_fadvise64, one, at, length, flag); break;
    case 13: say("readahead %d", one); result = readahead(one, at, length); break;
    case 14: flag = (int)below(9); say("sync_file_range %d %ld %x", one, (long)at, flag); result = sync_file_range(one, at, (off_t)length, (unsigned)flag); break;
    case 15: flag = (int)below(3); say("fsync %d %d", one, flag); result = flag == 0 ? fsync(one) : flag == 1 ? fdatasync(one) : syncfs(one); break;
    case 16: {
        static const int protections[] = {PROT_READ, PROT_READ | PROT_WRITE, PROT_WRITE}, kinds[] = {MAP_SHARED, MAP_PRIVATE, MAP_SHARED_VALIDATE};
        int protection = ONE_OF(protections), kind = ONE_OF(kinds), goes = !one_in(4);
        say("mmap %d %d %d", one, protection, kind);
        void *place = mmap(0, 4096, protection, kind, one, one_in(10) ? 100 : 0);
        result = place == MAP_FAILED ? -1 : 0;
        // Some are kept: a mapping that may be written is in the way of a seal.
        if (result == 0 && goes)
            munmap(place, 4096);
        break;
    }
    default: {
        struct pollfd wanted = {one, POLLIN | POLLOUT, 0};
        say("poll %d", one);
        result = poll(&wanted, 1, 0);
        say(" %x", wanted.revents);
    }
    }
    answered(result);
}

static void draws(void (*step)(void)) {
    next[0] = FIRST + (int)below(SLOTS);
    next[1] = FIRST + (int)below(SLOTS);
    step();
}

#define DRAWN(step) static void drawn_##step(void) { draws(step); }
DRAWN(opens)
DRAWN(opens_carefully)
DRAWN(makes)

static void (*const steps[])(void) = {drawn_opens, drawn_opens, drawn_opens, drawn_opens_carefully, drawn_opens_carefully, drawn_makes, drawn_makes, names, names, names, names, controls, controls, controls, moves_bytes, moves_bytes, moves_bytes, moves_bytes};

int main(int count, char **arguments) {
    int kind;
    long total = begin(count, arguments, &kind);
    sigset_t set;
    if (chdir("/tmp") || mkdir("d", 0755) || mkdir("d/e", 0755) || symlink("d/e", "s") || symlink("..", "d/up") || symlink("loop", "loop") || symlink("/proc/self/fd", "proc")) {
        perror("/tmp");
        return 1;
    }
    umask(022);
    sigfillset(&set);
    sigprocmask(SIG_BLOCK, &set, 0);
    run_steps(steps, COUNT(steps), total, 0);
    return 0;
}
